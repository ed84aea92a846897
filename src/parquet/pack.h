/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bit packing, and Parquet's mix of runs and bit-packed groups ("hybrid"), which holds definition levels and dictionary
 * indices. Values are packed from the lowest bit of each byte on.
 *
 * Thread safety: no state. Ownership: everything is borrowed.
 */
#ifndef SL_PARQUET_PACK_H
#define SL_PARQUET_PACK_H

#include "base/buf.h"

/* Bits that the number needs; 0 for 0. */
static inline unsigned sl__bit_width(uint64_t v)
{
	return v != 0 ? 64u - (unsigned)__builtin_clzll(v) : 0;
}

/* Pack n values of `width` bits (0 to 32, or 0 to 64). n * width is a multiple of 8; there is room for 8 bytes more
 * than that at out. Returns the byte after. */
uint8_t *sl__pack32(uint8_t *out, const uint32_t *v, size_t n, unsigned width);
uint8_t *sl__pack64(uint8_t *out, const uint64_t *v, size_t n, unsigned width);

/* Append n values as runs and groups. width 1 to 32. SL_ENOMEM sticks in b. */
void sl__hybrid_put(struct sl__buf *b, const uint32_t *v, size_t n, unsigned width);
/* Append one run. */
void sl__hybrid_run(struct sl__buf *b, uint32_t v, size_t n, unsigned width);

/* Bytes that are at hand, from which nothing is read beyond the end. */
struct sl__bytes_in {
	const uint8_t *at, *end;
};

/* Read exactly n values. 0, or SL_ECORRUPT when the bytes hold fewer, or one has a value above max. */
SL_MUST_CHECK int sl__hybrid_get(struct sl__bytes_in *in, uint32_t *out, size_t n, unsigned width, uint32_t max);
/* Read n values of width bits (0 to 64); n * width is a multiple of 8. SL_ECORRUPT: too few bytes. */
SL_MUST_CHECK int sl__unpack64(struct sl__bytes_in *in, uint64_t *out, size_t n, unsigned width);
/* At most 10 bytes. SL_ECORRUPT. */
SL_MUST_CHECK int sl__varint_get(struct sl__bytes_in *in, uint64_t *v);

#endif
