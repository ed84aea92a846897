/* SPDX-License-Identifier: Apache-2.0 */
/* Well-formed UTF-8: what may stand in a log line, a label or a JSON string. */
#ifndef SL_BASE_UTF8_H
#define SL_BASE_UTF8_H

#include "base/base.h"

/* The length of the character at s, or 0 when it is not well-formed (a surrogate, an overlong form, above U+10FFFF).
 * s ends with a NUL, and nothing after that is read, since a NUL continues no character. */
static inline size_t sl__utf8_length(const char *str)
{
	const unsigned char *s = (const unsigned char *)str;
	unsigned char low = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
	unsigned char high = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
	if (s[0] < 0x80)
		return 1;
	if (s[0] < 0xC2 || s[0] > 0xF4 || s[1] < low || s[1] > high)
		return 0;
	size_t n = s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
	for (size_t i = 2; i < n; i++)
		if ((s[i] & 0xC0) != 0x80)
			return 0;
	return n;
}

/* The same of the character at p, of which there are n > 0 bytes. */
static inline size_t sl__utf8_length_n(const char *p, size_t n)
{
	if (n >= 4)
		return sl__utf8_length(p);
	char padded[4] = {0};
	memcpy(padded, p, n);
	return sl__utf8_length(padded);
}

static inline bool sl__utf8_valid_n(const char *p, size_t n)
{
	for (size_t i = 0, step; i < n; i += step)
		if ((step = sl__utf8_length_n(p + i, n - i)) == 0)
			return false;
	return true;
}

static inline bool sl__utf8_valid(const char *s)
{
	for (size_t n; *s != '\0'; s += n)
		if ((n = sl__utf8_length(s)) == 0)
			return false;
	return true;
}

#endif
