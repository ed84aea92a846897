/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One value: the text of a field as the number, time or truth value that its column wants. Exact or not at all: what
 * the column cannot hold without a loss (a digit, a fraction of its unit, a bit of an integer) is refused. Only floats
 * and doubles round, to the nearest.
 *
 *	integer    -?digits, within the column's bits
 *	decimal    -?digits[.digits][e±digits]; nothing but zeros beyond the scale
 *	float      the same, and NaN, Infinity, -Infinity
 *	boolean    true false t f 1 0
 *	date       2024-02-29, years of four to six digits, " BC" after it; infinity and -infinity are the greatest
 *	           number that the column holds and its negative
 *	timestamp  2024-02-29T15:04:05[.123456789][Z|±hh[[:]mm]], also with a blank for the T, and without a zone: UTC;
 *	           seconds may be missing, digits beyond the unit must be zeros; a date is its first moment; years and
 *	           infinities as of dates. A local one has no zone.
 *
 * Each returns NULL, or why not (a constant string, for "column x: WHY"). *out is untouched then.
 *
 * Thread safety: no state.
 */
#ifndef SL_PIPELINE_EXPORT_CONVERT_H
#define SL_PIPELINE_EXPORT_CONVERT_H

#include "base/base.h"
#include <sluice/parquet.h>

const char *sl__to_int64(const char *text, size_t len, int64_t *out);
const char *sl__to_int32(const char *text, size_t len, int32_t *out);
const char *sl__to_double(const char *text, size_t len, double *out);
const char *sl__to_float(const char *text, size_t len, float *out);
const char *sl__to_bool(const char *text, size_t len, uint8_t *out);
const char *sl__to_date(const char *text, size_t len, int32_t *out);
const char *sl__to_decimal(const char *text, size_t len, int32_t precision, int32_t scale, int64_t *out);

/* Times of one column mostly share their day: it is computed once. Zero it before the first use. */
struct sl__time_memo {
	char date[10];
	int64_t days;
};
/* unit and local are the column's. */
const char *sl__to_timestamp(const char *text, size_t len, const struct sl_parquet_column *column,
			     struct sl__time_memo *memo, int64_t *out);

/* The bytes of hexadecimal digits, two a byte. */
bool sl__from_hex(const char *text, size_t len, char *out);

#endif
