/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DELTA_BINARY_PACKED: the first value, then blocks of 128 differences, each with its smallest difference and four
 * miniblocks of 32, packed with as many bits as the largest of them needs above the smallest. A column that counts
 * costs next to nothing. Differences wrap around, so that every value can be written.
 *
 * Thread safety: no state. Ownership: everything is borrowed.
 */
#ifndef SL_PARQUET_DELTA_H
#define SL_PARQUET_DELTA_H

#include "parquet/pack.h"

/* Bytes that put would append, to compare with other encodings. Values lie as int32_t or int64_t (width 4 or 8). */
size_t sl__delta_bytes(const void *values, size_t n, unsigned width);
/* SL_ENOMEM sticks in b. */
void sl__delta_put(struct sl__buf *b, const void *values, size_t n, unsigned width);

/* Read exactly n values into an array of that width. SL_ECORRUPT: other counts, or too few bytes. Other block
 * sizes than ours are read as well. */
SL_MUST_CHECK int sl__delta_get(struct sl__bytes_in *in, void *out, size_t n, unsigned width);

#endif
