/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an answer means.
 *
 *   2xx                         written
 *   429; 503 with Retry-After   throttled: wait as requested, nothing is charged
 *   408 409 425 500, other 5xx  transient: try this batch again
 *   400 413 422                 poison: nothing of the batch was taken, and an item of it never will be
 *   502 503 504 507 52x, 421    the target is unavailable: keep everything
 *   3xx, 501, 505, other 4xx    it is not set up as it must be: keep everything, and say what to do
 *
 * An answer to poison may name items by their number in the body, from 0, with the reason:
 *   {"index":3,"error":"no such city"}    {"errors":[{"index":3,"error":"no such city"},…]}
 * ("message" or "detail" will do for "error".) Items with the same reason as the first are reported together; one
 * error is all that a reply can carry, so that the others are handed over again, and refused then.
 */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

#include "format/json.h"
#include "sink/http.h"

#define LINE_BYTES 200
#define SECRET_MIN 4 /* shorter ones are no secrets, and would hide too much */

struct meaning {
	int first, last; /* of the status codes */
	int code;
	enum sl_err_class error_class;
	const char *text;
};

/* The first that fits counts. */
static const struct meaning meanings[] = {
	{300, 399, SL_ECONFIG, SL_CLASS_FATAL, "redirects are not followed; give the new URL"},
	{400, 400, SL_EREFUSED, SL_CLASS_POISON, "refused"},
	{401, 401, SL_EACCES, SL_CLASS_FATAL, "not authorized; check the token, the password or the headers"},
	{403, 403, SL_EACCES, SL_CLASS_FATAL, "forbidden; check the rights of the token or user"},
	{404, 404, SL_ECONFIG, SL_CLASS_FATAL, "this URL does not exist"},
	{405, 405, SL_ECONFIG, SL_CLASS_FATAL, "POST is not allowed at this URL"},
	{407, 407, SL_EACCES, SL_CLASS_FATAL, "the proxy requires a password"},
	{408, 409, SL_EAGAIN, SL_CLASS_TRANSIENT, "not now"},
	{410, 410, SL_ECONFIG, SL_CLASS_FATAL, "this URL is gone for good"},
	{413, 413, SL_ETOOBIG, SL_CLASS_POISON, "too large"},
	{415, 415, SL_ECONFIG, SL_CLASS_FATAL, "this kind of body is not supported; see the option body"},
	{421, 421, SL_EUNAVAIL, SL_CLASS_FATAL, "unavailable"},
	{422, 422, SL_EREFUSED, SL_CLASS_POISON, "refused"},
	{425, 425, SL_EAGAIN, SL_CLASS_TRANSIENT, "not now"},
	{429, 429, SL_EAGAIN, SL_CLASS_THROTTLED, "too many requests"},
	{400, 499, SL_ECONFIG, SL_CLASS_FATAL, "refused"},
	{501, 501, SL_ECONFIG, SL_CLASS_FATAL, "the server does not support POST"},
	{502, 504, SL_EUNAVAIL, SL_CLASS_FATAL, "unavailable"},
	{505, 505, SL_ECONFIG, SL_CLASS_FATAL, "this version of HTTP is not supported"},
	{507, 507, SL_EUNAVAIL, SL_CLASS_FATAL, "the server has no space left"},
	{511, 511, SL_ECONFIG, SL_CLASS_FATAL, "the network requires a login"},
	{520, 530, SL_EUNAVAIL, SL_CLASS_FATAL, "unavailable"},
	{500, 599, SL_EAGAIN, SL_CLASS_TRANSIENT, "server error"},
};

/* ---- secrets ---- */

/* `secret` may be NULL. */
static void hide(char *text, size_t len, const char *secret, size_t n)
{
	char *end = text + len;
	if (secret == NULL || n < SECRET_MIN)
		return;
	for (char *p = text; (p = memmem(p, (size_t)(end - p), secret, n)) != NULL; p += n)
		memset(p, '*', n);
}

static void hide_secrets(char *text, size_t len, const struct sl__http_secrets *s)
{
	static const char *const schemes[] = {"Basic ", "Bearer "}, between[] = " \t,;=\"'";
	const struct sl__http_url *url = s->url;
	const char *end = text + len;
	/* The word after "Basic " and "Bearer ", whatever it is. */
	for (size_t i = 0; i < SL_COUNT(schemes); i++) {
		size_t n = strlen(schemes[i]);
		for (char *p = text; (size_t)(end - p) > n; p++) {
			if (strncasecmp(p, schemes[i], n) != 0)
				continue;
			for (p += n; p < end && (unsigned char)*p > ' ' && *p != '"' && *p != '\''; p++)
				*p = '*';
			p--;
		}
	}
	/* The password, and "user:password" in base64, as it is sent. One too long for that is hidden except for its
	 * scheme. */
	if (url->password != NULL) {
		char pair[384],
			base64[sodium_base64_ENCODED_LEN(sizeof(pair), sodium_base64_VARIANT_ORIGINAL_NO_PADDING)];
		int n = snprintf(pair, sizeof(pair), "%s:%s", url->user != NULL ? url->user : "", url->password);
		hide(text, len, url->password, strlen(url->password));
		if (n >= 0 && (size_t)n < sizeof(pair)) {
			(void)sodium_bin2base64(base64, sizeof(base64), (const unsigned char *)pair, (size_t)n,
						sodium_base64_VARIANT_ORIGINAL_NO_PADDING);
			hide(text, len, base64, strlen(base64));
		}
		explicit_bzero(pair, sizeof(pair));
		explicit_bzero(base64, sizeof(base64));
	}
	hide(text, len, s->token, s->token != NULL ? strlen(s->token) : 0);
	/* The value of a header as a whole, and what it is made of: "Token sesame", "id=sesame; lang=en". */
	for (size_t i = 0; i < s->n_headers; i++) {
		const char *value = strchr(s->headers[i], ':') + 1, *whole = value + strspn(value, " \t");
		hide(text, len, whole, strlen(whole));
		for (size_t n; value += strspn(value, between), (n = strcspn(value, between)) > 0; value += n)
			hide(text, len, value, n);
	}
	/* The values of ?x=VALUE&y=VALUE&VALUE. */
	for (const char *p = strchr(url->url, '?'); p != NULL && *p != '\0';) {
		size_t name = strcspn(++p, "=&");
		p += p[name] == '=' ? name + 1 : 0;
		size_t n = strcspn(p, "&");
		hide(text, len, p, n);
		p += n;
	}
}

/* ---- items that the answer names ---- */

struct named {
	bool has_index;
	uint64_t index;
	struct sl__json_value why; /* text NULL: no reason given */
};

static bool key_is(const struct sl__json_value *key, const char *name)
{
	return key->len == strlen(name) && memcmp(key->text, name, key->len) == 0;
}

/* Read an object; `errors` gets a list of that name. false: it is none. */
static bool read_object(struct sl__json *s, struct named *out, struct sl__json_value *errors)
{
	struct sl__json_value key, v;
	*out = (struct named){.has_index = false};
	if (!sl__json_open(s))
		return false;
	for (bool first = true;; first = false) {
		int more = sl__json_more(s, first);
		if (more <= 0)
			return more == 0;
		if (!sl__json_string(s, &key) || !sl__json_colon(s) || !sl__json_value(s, &v))
			return false;
		if (key_is(&key, "index")) {
			out->has_index = v.kind == SL__FIELD_NUMBER && v.len <= 18;
			out->index = 0;
			for (size_t i = 0; out->has_index && i < v.len; i++) {
				out->has_index = v.text[i] >= '0' && v.text[i] <= '9';
				out->index = out->index * 10 + (uint64_t)(v.text[i] - '0');
			}
		} else if (v.kind == SL__FIELD_TEXT &&
			   (key_is(&key, "error") || key_is(&key, "message") || key_is(&key, "detail")))
			out->why = v;
		else if (key_is(&key, "errors") && v.kind == SL__FIELD_JSON && v.text[0] == '[')
			*errors = v;
	}
}

/* The items that were named so far. */
struct naming {
	const struct sl__http_answer_to *to;
	bool any;
	struct sl__json_value why; /* of the first */
};

static void name_item(struct naming *n, const struct named *item)
{
	const struct sl__refusals *refused = n->to->refused;
	size_t end = SL_MIN(refused->stop, n->to->batch->n);
	if (!item->has_index || item->index >= end)
		return;
	/* The body lacks the item that was refused here. */
	size_t i = (size_t)item->index + (item->index >= refused->first);
	bool same_why = n->why.len == item->why.len &&
			(item->why.len == 0 || memcmp(n->why.text, item->why.text, item->why.len) == 0);
	if (i >= end || (n->any && !same_why))
		return;
	n->any = true;
	n->why = item->why;
	n->to->reply->outcomes[i] = SL_SINK_POISON;
}

/* Read which items the body names. line: the reason, as one line without escapes, when it has one. */
static void read_names(const struct sl__http_response *r, const struct sl__http_secrets *secrets, struct naming *n,
		       char line[LINE_BYTES])
{
	struct sl__json s = sl__json_of(r->body, r->len);
	struct sl__json_value errors = {.text = NULL}, ignored = {.text = NULL};
	struct named whole, item;
	if (!read_object(&s, &whole, &errors))
		return;
	if (errors.text != NULL) {
		s = sl__json_of(errors.text + 1, errors.len - 2);
		while (read_object(&s, &item, &ignored)) {
			name_item(n, &item);
			s.at += strspn(s.at, " \t\r\n");
			if (s.at >= s.end || *s.at++ != ',')
				break;
		}
	}
	if (!n->any)
		name_item(n, &whole);
	const struct sl__json_value *why = n->any ? &n->why : &whole.why;
	if (why->len == 0)
		return;
	/* Unescaped, there may be a secret in it that was not seen before. */
	char text[LINE_BYTES];
	bool has_nul;
	size_t len = SL_MIN(why->len, sizeof(text));
	if (why->escaped && why->len <= sizeof(text))
		len = sl__json_unescape(text, why->text, len, &has_nul);
	else
		memcpy(text, why->text, len);
	hide_secrets(text, len, secrets);
	(void)sl__http_first_line(line, LINE_BYTES, text, len);
}

/* ---- the error ---- */

int sl__http_answer(struct sl__http_response *r, const struct sl__http_secrets *secrets,
		    const struct sl__http_answer_to *to, struct sl_err *err)
{
	struct meaning m = {0, 0, SL_EUNAVAIL, SL_CLASS_FATAL, "not a known HTTP status"};
	struct naming n = {.to = to};
	const char *shown = secrets->url->shown;
	char line[LINE_BYTES];
	if (r->status >= 200 && r->status <= 299)
		return 0;
	for (size_t i = 0; i < SL_COUNT(meanings); i++)
		if (r->status >= meanings[i].first && r->status <= meanings[i].last) {
			m = meanings[i];
			break;
		}
	if (r->status == 503 && r->has_retry_after) {
		m.code = SL_EAGAIN;
		m.error_class = SL_CLASS_THROTTLED;
	}
	hide_secrets(r->body, r->len, secrets);
	(void)sl__http_first_line(line, sizeof(line), r->body, r->len);
	if (m.error_class == SL_CLASS_POISON && m.code != SL_ETOOBIG)
		read_names(r, secrets, &n, line);
	if (r->location != NULL)
		(void)sl_err_set(err, m.code, "http: %s: %d to %s: %s", shown, r->status, r->location, m.text);
	else
		(void)sl_err_set(err, m.code, "http: %s: %d, %s%s%s", shown, r->status, m.text,
				 line[0] != '\0' ? ": " : "", line);
	(void)sl__sink_class(err, m.code, m.error_class);
	if (r->has_retry_after)
		err->retry_after_ms = r->retry_after_ms;
	return m.code;
}
