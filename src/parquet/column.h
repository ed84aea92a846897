/* SPDX-License-Identifier: Apache-2.0 */
/* A column inside the library: what the caller said, checked, and what follows from it. */
#ifndef SL_PARQUET_COLUMN_H
#define SL_PARQUET_COLUMN_H

#include <sluice/parquet.h>

#include "base/env.h"
#include "parquet/format.h"

#define PQ_COLUMNS_MAX 10000
#define PQ_FIXED_MAX 65536

/* Bytes of one entry in an array of values; 0: no such kind. */
size_t sl__pq_entry_bytes(const struct sl_parquet_column *c);
/* Bytes of one value in PLAIN; 0 for a byte array, whose values have a length of four bytes and their own. A bool is
 * counted as one. */
size_t sl__pq_plain_bytes(const struct sl_parquet_column *c);
enum pq_physical sl__pq_physical(const struct sl_parquet_column *c);

/* Physical types that hold integers, for which DELTA_BINARY_PACKED is defined. */
static inline bool sl__pq_is_integer(enum pq_physical t)
{
	return t == PQ_INT32 || t == PQ_INT64;
}

/* Kind, unit, precision, scale, length and name of each, and that names are unique. SL_EINVAL names the column. */
SL_MUST_CHECK int sl__pq_columns_check(const struct sl_env *env, const struct sl_parquet_column *c, size_t n,
				       struct sl_err *err);
/* A copy with names its own, in one piece of memory: sl__free. NULL without memory. */
struct sl_parquet_column *sl__pq_columns_copy(const struct sl_env *env, const struct sl_parquet_column *c, size_t n);

/* Well-formed UTF-8, as base/utf8.h says; a NUL is a character like any other. Fast for ASCII. */
bool sl__pq_is_utf8(struct sl_parquet_bytes v);

#endif
