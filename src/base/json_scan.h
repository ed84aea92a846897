/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds where strings and values of a JSON text end, for who keeps a value as it was written: a parser would give 1.1
 * back as 1.1000000000000001. It does not validate. A text that it cuts in a wrong place is not valid JSON, and then
 * either the rest is refused by the parser, or the value by the code that reads it. It stays inside of any text.
 *
 * Thread safety: all. Ownership: nothing is kept.
 */
#ifndef SL_BASE_JSON_SCAN_H
#define SL_BASE_JSON_SCAN_H

#include <string.h>

static inline const char *sl__json_skip_blanks(const char *p, const char *end)
{
	while (p < end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n'))
		p++;
	return p;
}

/* p is at the opening quote. */
static inline const char *sl__json_skip_string(const char *p, const char *end)
{
	for (p++; p < end && *p != '"'; p++)
		p += *p == '\\' && p + 1 < end;
	return p < end ? p + 1 : end;
}

static inline const char *sl__json_skip_value(const char *p, const char *end)
{
	int depth = 0;
	while (p < end) {
		if (*p == '"') {
			p = sl__json_skip_string(p, end);
		} else if (*p == '{' || *p == '[') {
			depth++;
			p++;
		} else if (*p == '}' || *p == ']') {
			if (depth-- == 0)
				return p; /* the end of what the value is in */
			p++;
		} else {
			/* A word or number ends before what follows it; inside brackets everything is skipped. */
			if (depth == 0 && memchr(", \t\r\n", *p, 5) != NULL)
				return p;
			p++;
			continue;
		}
		if (depth == 0)
			return p;
	}
	return end;
}

#endif
