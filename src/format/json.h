/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strict scanner of JSON (RFC 8259) over a slice of memory. It checks and finds, and builds nothing: a value is its
 * kind and its text.
 *
 * Each function moves `at` over what it has accepted. A false leaves `at` at the byte that is wrong, and `why` says
 * what was expected there (a constant string).
 *
 * Thread safety: a scanner belongs to one thread. Ownership: values point into the slice.
 */
#ifndef SL_FORMAT_JSON_H
#define SL_FORMAT_JSON_H

#include "format/row.h"

#define SL__JSON_DEPTH 256      /* how deep values may be nested, unless depth_max is set */
#define SL__JSON_DEPTH_MAX 1024 /* the most that it can be set to */

struct sl__json {
	const char *start, *at, *end;
	const char *why;
	unsigned depth; /* of the objects that the caller walks through itself */
	unsigned depth_max;
};

struct sl__json_value {
	const char *text; /* a string: what is between its quotes */
	size_t len;
	enum sl__field_kind kind;
	bool escaped; /* a string with a backslash in it: sl__json_unescape */
};

static inline struct sl__json sl__json_of(const void *text, size_t len)
{
	const char *p = text;
	return (struct sl__json){.start = p, .at = p, .end = p + len, .depth_max = SL__JSON_DEPTH};
}

/* Walk an object: open; then while more gives 1: key (at is at its opening quote), colon, value; then finish, which
 * wants nothing but blanks after. more gives 0 after the closing brace, -1 when it is wrong. */
bool sl__json_open(struct sl__json *s);
int sl__json_more(struct sl__json *s, bool first);
bool sl__json_string(struct sl__json *s, struct sl__json_value *v);
bool sl__json_colon(struct sl__json *s);
bool sl__json_value(struct sl__json *s, struct sl__json_value *v);
bool sl__json_finish(struct sl__json *s);

/* The characters of a string that was scanned; `to` has room for n bytes. Returns the length. */
size_t sl__json_unescape(char *to, const char *from, size_t n, bool *has_nul);

/* SL_EDATA with what is wrong, and where. */
int sl__json_wrong(const struct sl__json *s, struct sl_err *err);

#endif
