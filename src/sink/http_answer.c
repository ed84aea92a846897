/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an answer means.
 *
 *   2xx                         written
 *   429; 503 with Retry-After   throttled: wait as told, nothing is charged
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
#include <stdio.h>
#include <stdlib.h>

#include "base/base64.h"
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
	{300, 399, SL_ECONFIG, SL_CLASS_FATAL, "redirects are not followed; name the URL that it moved to"},
	{400, 400, SL_EREFUSED, SL_CLASS_POISON, "refused"},
	{401, 401, SL_EACCES, SL_CLASS_FATAL, "not authorized; check the token, the password or the headers"},
	{403, 403, SL_EACCES, SL_CLASS_FATAL, "forbidden; check the rights of the token or user"},
	{404, 404, SL_ECONFIG, SL_CLASS_FATAL, "there is nothing at this URL"},
	{405, 405, SL_ECONFIG, SL_CLASS_FATAL, "POST is not taken at this URL"},
	{407, 407, SL_EACCES, SL_CLASS_FATAL, "the proxy wants a password"},
	{408, 409, SL_EAGAIN, SL_CLASS_TRANSIENT, "not now"},
	{410, 410, SL_ECONFIG, SL_CLASS_FATAL, "this URL is gone for good"},
	{413, 413, SL_ETOOBIG, SL_CLASS_POISON, "too large"},
	{415, 415, SL_ECONFIG, SL_CLASS_FATAL, "this kind of body is not taken; see the option body"},
	{421, 421, SL_EUNAVAIL, SL_CLASS_FATAL, "unavailable"},
	{422, 422, SL_EREFUSED, SL_CLASS_POISON, "refused"},
	{425, 425, SL_EAGAIN, SL_CLASS_TRANSIENT, "not now"},
	{429, 429, SL_EAGAIN, SL_CLASS_THROTTLED, "too many requests"},
	{400, 499, SL_ECONFIG, SL_CLASS_FATAL, "not taken"},
	{501, 501, SL_ECONFIG, SL_CLASS_FATAL, "it does not know POST"},
	{502, 504, SL_EUNAVAIL, SL_CLASS_FATAL, "unavailable"},
	{505, 505, SL_ECONFIG, SL_CLASS_FATAL, "this version of HTTP is not taken"},
	{507, 507, SL_EUNAVAIL, SL_CLASS_FATAL, "no space left there"},
	{511, 511, SL_ECONFIG, SL_CLASS_FATAL, "the network wants a login"},
	{520, 530, SL_EUNAVAIL, SL_CLASS_FATAL, "unavailable"},
	{500, 599, SL_EAGAIN, SL_CLASS_TRANSIENT, "failed there"},
};

static struct meaning meaning_of(const struct sl__http_response *r)
{
	static const struct meaning strange = {0, 0, SL_EUNAVAIL, SL_CLASS_FATAL, "no status that HTTP knows"};
	const struct meaning *m = &strange;
	for (size_t i = 0; i < SL_COUNT(meanings) && m == &strange; i++)
		if (r->status >= meanings[i].first && r->status <= meanings[i].last)
			m = &meanings[i];
	struct meaning out = *m;
	if (r->status == 503 && r->has_retry_after) {
		out.code = SL_EAGAIN;
		out.error_class = SL_CLASS_THROTTLED;
	}
	return out;
}

/* ---- secrets ---- */

static void hide_n(char *text, size_t len, const char *secret, size_t n)
{
	char *end = text + len;
	if (n < SECRET_MIN)
		return;
	for (char *p = text; (p = memmem(p, (size_t)(end - p), secret, n)) != NULL; p += n)
		memset(p, '*', n);
}

static void hide(char *text, size_t len, const char *secret)
{
	if (secret != NULL)
		hide_n(text, len, secret, strlen(secret));
}

/* The values of ?x=VALUE&y=VALUE&VALUE. */
static void hide_query(char *text, size_t len, const char *url)
{
	const char *p = strchr(url, '?');
	while (p != NULL && *p != '\0') {
		size_t name = strcspn(++p, "=&");
		p += p[name] == '=' ? name + 1 : 0;
		size_t n = strcspn(p, "&");
		hide_n(text, len, p, n);
		p += n;
	}
}

/* "user:password" in base64, as it is sent. */
static void hide_basic(char *text, size_t len, const struct sl__http_url *url)
{
	char pair[384], out[SL__BASE64_LEN(sizeof(pair))];
	int n = snprintf(pair, sizeof(pair), "%s:%s", url->user != NULL ? url->user : "", url->password);
	if (n < 0 || (size_t)n >= sizeof(pair))
		return; /* one this long is hidden except for its scheme */
	size_t at = sl__base64_encode(out, pair, (size_t)n);
	while (at > 0 && out[at - 1] == '=')
		at--;
	hide_n(text, len, out, at);
	explicit_bzero(pair, sizeof(pair));
	explicit_bzero(out, sizeof(out));
}

/* The word behind "Basic " and "Bearer ", whosever it is. */
static void hide_credentials(char *text, size_t len, const char *scheme)
{
	const char *end = text + len;
	size_t n = strlen(scheme);
	for (char *p = text; (size_t)(end - p) > n; p++) {
		if (strncasecmp(p, scheme, n) != 0)
			continue;
		for (p += n; p < end && (unsigned char)*p > ' ' && *p != '"' && *p != '\''; p++)
			*p = '*';
		p--;
	}
}

/* The value of a header as a whole, and what it is made of: "Token sesame", "id=sesame; lang=en". */
static void hide_value(char *text, size_t len, const char *value)
{
	static const char between[] = " \t,;=\"'";
	hide(text, len, value + strspn(value, " \t"));
	for (size_t n; value += strspn(value, between), (n = strcspn(value, between)) > 0; value += n)
		hide_n(text, len, value, n);
}

static void hide_secrets(char *text, size_t len, const struct sl__http_secrets *s)
{
	hide_credentials(text, len, "Basic ");
	hide_credentials(text, len, "Bearer ");
	hide(text, len, s->url->password);
	if (s->url->password != NULL)
		hide_basic(text, len, s->url);
	hide(text, len, s->token);
	for (size_t i = 0; i < s->n_headers; i++)
		hide_value(text, len, strchr(s->headers[i], ':') + 1);
	hide_query(text, len, s->url->url);
}

/* ---- items that the answer names ---- */

struct named {
	bool has_index;
	uint64_t index;
	struct sl__json_value why; /* text NULL: not told */
};

static bool key_is(const struct sl__json_value *key, const char *name)
{
	return key->len == strlen(name) && memcmp(key->text, name, key->len) == 0;
}

static bool read_index(const struct sl__json_value *v, uint64_t *out)
{
	uint64_t n = 0;
	if (v->kind != SL__FIELD_NUMBER || v->len > 18)
		return false;
	for (size_t i = 0; i < v->len; i++) {
		if (v->text[i] < '0' || v->text[i] > '9')
			return false;
		n = n * 10 + (uint64_t)(v->text[i] - '0');
	}
	*out = n;
	return true;
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
		if (key_is(&key, "index"))
			out->has_index = read_index(&v, &out->index);
		else if (v.kind == SL__FIELD_TEXT &&
			 (key_is(&key, "error") || key_is(&key, "message") || key_is(&key, "detail")))
			out->why = v;
		else if (key_is(&key, "errors") && v.kind == SL__FIELD_JSON && v.text[0] == '[')
			*errors = v;
	}
}

struct naming {
	const struct sl_sink_batch *batch;
	const struct sl__refusals *refused;
	struct sl_sink_reply *reply;
	bool any;
	struct sl__json_value why; /* of the first */
};

static bool same_why(const struct sl__json_value *a, const struct sl__json_value *b)
{
	return a->len == b->len && (a->len == 0 || memcmp(a->text, b->text, a->len) == 0);
}

static void name_item(struct naming *n, const struct named *item)
{
	size_t end = SL_MIN(n->refused->stop, n->batch->n);
	if (!item->has_index || item->index >= end)
		return;
	/* The body lacks the item that was refused here. */
	size_t i = (size_t)item->index + (item->index >= n->refused->first);
	if (i >= end || (n->any && !same_why(&n->why, &item->why)))
		return;
	n->any = true;
	n->why = item->why;
	n->reply->outcomes[i] = SL_SINK_POISON;
}

static void name_all(struct naming *n, const struct sl__json_value *errors)
{
	struct sl__json s = sl__json_of(errors->text + 1, errors->len - 2);
	struct sl__json_value ignored = {.text = NULL};
	struct named item;
	while (read_object(&s, &item, &ignored)) {
		name_item(n, &item);
		s.at += strspn(s.at, " \t\r\n");
		if (s.at >= s.end || *s.at++ != ',')
			break;
	}
}

/* The reason as one line, without escapes, behind which a secret may have stood. */
static void write_why(char out[LINE_BYTES], const struct sl__json_value *why, const struct sl__http_secrets *secrets)
{
	char text[LINE_BYTES];
	bool has_nul;
	if (why->len == 0)
		return;
	size_t n = SL_MIN(why->len, sizeof(text));
	if (why->escaped && why->len <= sizeof(text))
		n = sl__json_unescape(text, why->text, n, &has_nul);
	else
		memcpy(text, why->text, n);
	hide_secrets(text, n, secrets);
	(void)sl__http_first_line(out, LINE_BYTES, text, n);
}

static void read_names(const struct sl__http_response *r, const struct sl__http_secrets *secrets, struct naming *n,
		       char line[LINE_BYTES])
{
	struct sl__json s = sl__json_of(r->body, r->len);
	struct sl__json_value errors = {.text = NULL};
	struct named whole;
	if (!read_object(&s, &whole, &errors))
		return;
	if (errors.text != NULL)
		name_all(n, &errors);
	if (!n->any)
		name_item(n, &whole);
	write_why(line, n->any ? &n->why : &whole.why, secrets);
}

/* ---- the error ---- */

static void say(const struct sl__http_response *r, const struct meaning *m, const char *shown, const char *line,
		struct sl_err *err)
{
	if (r->location != NULL)
		(void)sl_err_set(err, m->code, "http: %s: %d to %s: %s", shown, r->status, r->location, m->text);
	else
		(void)sl_err_set(err, m->code, "http: %s: %d, %s%s%s", shown, r->status, m->text,
				 line[0] != '\0' ? ": " : "", line);
	(void)sl__sink_class(err, m->code, m->error_class);
	if (r->has_retry_after)
		err->retry_after_ms = r->retry_after_ms;
}

int sl__http_answer(struct sl__http_response *r, const struct sl__http_secrets *secrets,
		    const struct sl_sink_batch *batch, const struct sl__refusals *refused, struct sl_sink_reply *reply,
		    struct sl_err *err)
{
	struct naming n = {.batch = batch, .refused = refused, .reply = reply};
	char line[LINE_BYTES];
	if (r->status >= 200 && r->status <= 299)
		return 0;
	struct meaning m = meaning_of(r);
	hide_secrets(r->body, r->len, secrets);
	(void)sl__http_first_line(line, sizeof(line), r->body, r->len);
	if (m.error_class == SL_CLASS_POISON && m.code != SL_ETOOBIG)
		read_names(r, secrets, &n, line);
	say(r, &m, secrets->url->shown, line, err);
	return m.code;
}
