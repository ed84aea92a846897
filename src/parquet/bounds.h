/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest and the largest value of a column chunk, in the order that Parquet gives the type: signed numbers,
 * floating point without NaN, unsigned bytes. Readers skip chunks by these, so they are left out rather than
 * doubtful: with a NaN among the values (readers do not agree where it stands), or when a bound is long.
 *
 * Thread safety: one thread at a time. Ownership: byte bounds point to the caller's values until keep copies them.
 */
#ifndef SL_PARQUET_BOUNDS_H
#define SL_PARQUET_BOUNDS_H

#include "parquet/column.h"

#define PQ_BOUND_MAX 256 /* bytes; a longer value is not kept as a bound */

struct sl__bounds {
	bool any; /* a value was seen */
	bool nan;
	int64_t min_int, max_int;
	double min_real, max_real;
	struct sl_parquet_bytes min, max; /* byte arrays and fixed */
	uint64_t min_head, max_head;      /* their first eight bytes, to compare quickly */
};

/* Take n more values, in entries of the column's kind. b is zeroed at first. */
void sl__bounds_add(struct sl__bounds *b, const struct sl_parquet_column *c, const void *values, size_t n);

/* In the bytes of the file; false: the chunk gets no bounds. min and max have room for 8 bytes or point to the value
 * itself. */
struct sl__bounds_out {
	uint8_t number[2][8];
	const void *data[2]; /* min, max */
	uint32_t len[2];
};
bool sl__bounds_get(const struct sl__bounds *b, const struct sl_parquet_column *c, struct sl__bounds_out *out);

/* Take a bound as a file encodes it. false: it has the wrong length, or is a NaN. The bytes must outlive b. */
bool sl__bounds_add_encoded(struct sl__bounds *b, const struct sl_parquet_column *c, struct sl_parquet_bytes value);
/* Every value of inner lies within outer; both have seen a value. */
bool sl__bounds_contain(const struct sl__bounds *outer, const struct sl__bounds *inner,
			const struct sl_parquet_column *c);

#endif
