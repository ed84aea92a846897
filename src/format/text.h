/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a record sixteen at a time. Everything here works on a length, never on a NUL: records are slices of a
 * buffer. On x86-64 with SSE2, which every such machine has; elsewhere, and for the last few bytes, byte by byte.
 *
 * Thread safety: no state.
 */
#ifndef SL_FORMAT_TEXT_H
#define SL_FORMAT_TEXT_H

#include "base/utf8.h"

static inline bool sl__is_digit(char c)
{
	return c >= '0' && c <= '9';
}

#if defined(__SSE2__) && !defined(SL__NO_SSE2)
#define SL__SSE2 1
#include <emmintrin.h>

static inline __m128i sl__load16(const char *p)
{
	__m128i v;
	memcpy(&v, p, sizeof(v));
	return v;
}
static inline __m128i sl__equal16(__m128i v, char c)
{
	return _mm_cmpeq_epi8(v, _mm_set1_epi8(c));
}
static inline unsigned sl__mask16(__m128i v)
{
	return (unsigned)_mm_movemask_epi8(v);
}
/* Bytes that are NUL or no ASCII: as signed numbers they are below 1. */
static inline __m128i sl__odd16(__m128i v)
{
	return _mm_cmplt_epi8(v, _mm_set1_epi8(1));
}
#else
#define SL__SSE2 0
#endif

/* Where p[0..n) stops being ASCII without NUL; n when all of it is. */
static inline size_t sl__ascii_length(const char *p, size_t n)
{
	size_t i = 0;
#if SL__SSE2
	for (; i + 16 <= n; i += 16) {
		unsigned odd = sl__mask16(sl__odd16(sl__load16(p + i)));
		if (odd != 0)
			return i + (size_t)__builtin_ctz(odd);
	}
#endif
	while (i < n && (signed char)p[i] > 0)
		i++;
	return i;
}

/* Why p[0..n) is not text (well-formed UTF-8 without NUL), and at which byte; NULL when it is. */
static inline const char *sl__text_fault(const char *p, size_t n, size_t *at)
{
	for (size_t i = 0, step; (i += sl__ascii_length(p + i, n - i)) < n; i += step) {
		*at = i;
		if (p[i] == '\0')
			return "a NUL byte";
		if ((step = sl__utf8_length_n(p + i, n - i)) == 0)
			return "invalid UTF-8";
	}
	return NULL;
}

#endif
