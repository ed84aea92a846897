/* SPDX-License-Identifier: Apache-2.0 */
/* The parser sees a text without its opaque values, which are found by base/json_scan.h. */
#include "server/http/json_body.h"

#include "base/base.h"
#include "base/json_scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Measured with jansson 2.14 on x86-64: an object 224 bytes with its first table, an array 112, a member 64 and its
 * name, a string 64 and its bytes, a number 32; tables that grow take up to twice their size. */
enum { OBJECT_COST = 256, ARRAY_COST = 128, MEMBER_COST = 112, VALUE_COST = 48, STRING_COST = 64 };

size_t srv_json_cost(const char *text, size_t len)
{
	size_t cost = VALUE_COST;
	for (const char *p = text, *end = text + len; p < end;) {
		const char *q = *p == '"' ? sl__json_skip_string(p, end) : p + 1;
		cost += *p == '"'   ? STRING_COST + (size_t)(q - p)
			: *p == '{' ? OBJECT_COST
			: *p == '[' ? ARRAY_COST
			: *p == ':' ? MEMBER_COST
			: *p == ',' ? VALUE_COST
				    : 0;
		p = q;
	}
	return cost;
}

/* Whether the string from p to q, with its quotes, is the name; escapes are decoded by the parser. */
static bool is_name(const char *p, const char *q, const char *name)
{
	size_t len = (size_t)(q - p);
	if (memchr(p, '\\', len) == NULL)
		return len == strlen(name) + 2 && memcmp(p + 1, name, len - 2) == 0;
	json_t *v = json_loadb(p, len, JSON_DECODE_ANY, NULL);
	bool same = v != NULL && strcmp(json_string_value(v), name) == 0;
	json_decref(v);
	return same;
}

/* More than any route takes, and the digits of their numbers with a NUL. */
enum { OPAQUE_MAX = 100000, DIGITS = 6 };

/* Copy text without its opaque values into out, which has room for DIGITS bytes more for each of them than the text. A
 * value that is longer than its number is replaced by the number and blanks, so that columns stay right. */
static int cut_opaque(struct srv_json_body *b, struct srv_text text, const struct srv_json_opts *opts, char *out,
		      size_t *len)
{
	const char *end = text.at + text.len;
	char *to = out;
	int level = 0;
	for (const char *p = text.at; p < end;) {
		const char *q = *p == '"' ? sl__json_skip_string(p, end) : p + 1, *colon = q;
		level += *p == '{' || *p == '[' ? 1 : *p == '}' || *p == ']' ? -1 : 0;
		memcpy(to, p, (size_t)(q - p));
		to += q - p;
		if (*p == '"' && level == opts->depth && (colon = sl__json_skip_blanks(q, end)) < end &&
		    *colon == ':' && is_name(p, q, opts->opaque)) {
			struct srv_text v = {.at = sl__json_skip_blanks(colon + 1, end)};
			v.len = (size_t)(sl__json_skip_value(v.at, end) - v.at);
			memcpy(to, q, (size_t)(v.at - q));
			to += v.at - q;
			q = v.at + v.len;
			int n = 0;
			if (v.len > 0) {
				n = snprintf(to, DIGITS, "%zu", b->n_opaque);
				if (b->n_opaque == OPAQUE_MAX)
					return SL_ETOOBIG;
				if ((b->n_opaque & (b->n_opaque - 1)) == 0) { /* full: it grows in powers of two */
					size_t cap = b->n_opaque > 0 ? 2 * b->n_opaque : 1;
					struct srv_text *grown = realloc(b->opaque, cap * sizeof(*grown));
					if (grown == NULL)
						return SL_ENOMEM;
					b->opaque = grown;
				}
				b->opaque[b->n_opaque++] = v;
			}
			to += n;
			for (size_t i = (size_t)n; i < v.len; i++)
				*to++ = v.at[i] == '\n' ? '\n' : ' ';
		}
		p = q;
	}
	*len = (size_t)(to - out);
	return 0;
}

static void free_copy(char **copy)
{
	free(*copy);
}

int srv_json_body_parse(struct srv_json_body *out, struct srv_text text, const struct srv_json_opts *opts,
			struct sl_err *err)
{
	struct srv_json_body b SL_CLEANUP(srv_json_body_fini) = {0};
	struct srv_text rest = text;
	char *copy SL_CLEANUP(free_copy) = NULL;
	/* The parser skips a NUL after a number; a reader of the value as it was sent would stop there. */
	if (text.len > 0 && memchr(text.at, 0, text.len) != NULL)
		return sl_err_set(err, SL_EDATA, "the body is not valid JSON: it contains a NUL byte");
	if (opts->opaque != NULL) {
		/* Room for the rest of a text: every opaque value follows a colon. */
		const char *end = text.at + text.len;
		size_t n = 0;
		for (const char *p = text.at; p < end && (p = memchr(p, ':', (size_t)(end - p))) != NULL; p++)
			n++;
		size_t room = text.len + DIGITS * (n < OPAQUE_MAX ? n : OPAQUE_MAX) + 1;
		if (opts->reserve != NULL && room > 4096 && !opts->reserve(room, opts->ctx))
			return sl_err_set(err, SL_EFULL, "too many large bodies at the same time");
		copy = malloc(room);
		int rc = copy != NULL ? cut_opaque(&b, text, opts, copy, &rest.len) : SL_ENOMEM;
		if (rc == SL_ENOMEM)
			return sl_err_set(err, rc, "out of memory for a body of %zu bytes", text.len);
		if (rc == SL_ETOOBIG)
			return sl_err_set(err, rc, "the body has more than %d values of '%s'", OPAQUE_MAX,
					  opts->opaque);
		rest.at = copy;
	}

	/* Build the objects, if there is room for them. */
	json_error_t why;
	size_t cost = srv_json_cost(rest.at, rest.len);
	if (cost > SRV_JSON_COST_MAX)
		return sl_err_set(err, SL_ETOOBIG, "the body has too many JSON values; send it in several requests");
	if (opts->reserve != NULL && !opts->reserve(cost, opts->ctx))
		return sl_err_set(err, SL_EFULL, "too many large bodies at the same time");
	b.json = json_loadb(rest.at, rest.len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
	if (b.json == NULL)
		return sl_err_set(err, SL_EDATA, "the body is not valid JSON: %s at line %d, column %d", why.text,
				  why.line, why.column);
	*out = b;
	b = (struct srv_json_body){0};
	return 0;
}

struct srv_text srv_json_body_text(const struct srv_json_body *b, const json_t *v)
{
	json_int_t i = json_integer_value(v);
	return i >= 0 && (size_t)i < b->n_opaque ? b->opaque[i] : (struct srv_text){"", 0};
}

void srv_json_body_fini(struct srv_json_body *b)
{
	json_decref(b->json);
	free(b->opaque);
	*b = (struct srv_json_body){0};
}
