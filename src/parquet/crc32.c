/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-32 by folding, as base/crc64nvme.c explains it for 64 bits: words are reflected, 16 bytes that stand d bits
 * before others are multiplied by x^d mod P and added there; the multipliers are x^(d+63) for the first eight bytes and
 * x^(d-1) for the last eight, modulo the polynomial of degree 32, in the high half of a reflected word. The last 16
 * bytes and what does not fill 16 go through the table.
 */
#include "parquet/crc32.h"

/* The table entries of the single bits 1, 2, 4 … 128; an entry of the table is the sum of those of its bits. */
#define BIT(i, bit, word) (((i) >> (bit)&1) != 0 ? (word) : 0u)
#define ENTRY(i)                                                                                                       \
	(BIT(i, 0, 0x77073096u) ^ BIT(i, 1, 0xEE0E612Cu) ^ BIT(i, 2, 0x076DC419u) ^ BIT(i, 3, 0x0EDB8832u) ^           \
	 BIT(i, 4, 0x1DB71064u) ^ BIT(i, 5, 0x3B6E20C8u) ^ BIT(i, 6, 0x76DC4190u) ^ BIT(i, 7, 0xEDB88320u))
#define ENTRY4(i) ENTRY(i), ENTRY((i) + 1), ENTRY((i) + 2), ENTRY((i) + 3)
#define ENTRY16(i) ENTRY4(i), ENTRY4((i) + 4), ENTRY4((i) + 8), ENTRY4((i) + 12)
#define ENTRY64(i) ENTRY16(i), ENTRY16((i) + 16), ENTRY16((i) + 32), ENTRY16((i) + 48)

static const uint32_t table[256] = {ENTRY64(0), ENTRY64(64), ENTRY64(128), ENTRY64(192)};

/* On the inverted state. */
static uint32_t crc32_by_table(uint32_t c, const unsigned char *p, size_t n)
{
	for (; n > 0; p++, n--)
		c = c >> 8 ^ table[(c ^ *p) & 255];
	return c;
}

uint32_t sl__crc32_table(uint32_t crc, const void *data, size_t n)
{
	return ~crc32_by_table(~crc, data, n);
}

#if defined(__x86_64__)
#include <immintrin.h>

#define FN_128 __attribute__((target("pclmul,sse4.1"))) static inline __attribute__((always_inline))
#define K(last, first) _mm_set_epi64x((long long)(last), (long long)(first))
#define FOLD_128 K(0x9BA54C6F00000000, 0x65673B4600000000)
#define FOLD_256 K(0x01B5FD1D00000000, 0x9570D49500000000)
#define FOLD_384 K(0x2A28386200000000, 0x69CCFC0D00000000)
#define FOLD_512 K(0xCAD38E8F00000000, 0x653D982200000000)

FN_128 __m128i load(const unsigned char *p)
{
	return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* x moved ahead by the distance of k, onto next. */
FN_128 __m128i fold(__m128i x, __m128i k, __m128i next)
{
	__m128i first = _mm_clmulepi64_si128(x, k, 0x00), last = _mm_clmulepi64_si128(x, k, 0x11);
	return _mm_xor_si128(_mm_xor_si128(first, last), next);
}

/* At least 64 bytes. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t fold_update(uint32_t c, const unsigned char *p, size_t n)
{
	unsigned char last[16];
	__m128i a0 = _mm_xor_si128(load(p), _mm_cvtsi32_si128((int)c));
	__m128i a1 = load(p + 16), a2 = load(p + 32), a3 = load(p + 48);

	for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
		a0 = fold(a0, FOLD_512, load(p));
		a1 = fold(a1, FOLD_512, load(p + 16));
		a2 = fold(a2, FOLD_512, load(p + 32));
		a3 = fold(a3, FOLD_512, load(p + 48));
	}
	__m128i x = fold(a0, FOLD_384, fold(a1, FOLD_256, fold(a2, FOLD_128, a3)));
	for (; n >= 16; p += 16, n -= 16)
		x = fold(x, FOLD_128, load(p));
	_mm_storeu_si128((__m128i *)(void *)last, x);
	return crc32_by_table(crc32_by_table(0, last, sizeof(last)), p, n);
}

uint32_t sl__crc32(uint32_t crc, const void *data, size_t n)
{
	if (n < 64 || !__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("sse4.1"))
		return sl__crc32_table(crc, data, n);
	return ~fold_update(~crc, data, n);
}
#else
uint32_t sl__crc32(uint32_t crc, const void *data, size_t n)
{
	return sl__crc32_table(crc, data, n);
}
#endif
