/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of Parquet columns as JSON: 64-bit integers and decimals with every digit, timestamps and dates as RFC 3339
 * has them (a number where no calendar has them), bytes as "\x" and hexadecimal digits, NaN and the infinities as
 * strings.
 *
 * Thread safety: none; the main thread writes. Ownership: everything is borrowed.
 */
#ifndef SLUICE_CLI_PARQUETCELL_H
#define SLUICE_CLI_PARQUETCELL_H

#include "out.h"

#include <sluice/parquet.h>

/* A JSON string; what is not UTF-8 becomes U+FFFD. */
void parquetcell_text(struct out *out, const char *data, size_t n);
/* Row `row` of a column's values. */
void parquetcell_print(struct out *out, const struct sl_parquet_column *column, const struct sl_parquet_values *values,
		       size_t row);
/* A bound as a chunk's statistics have it: the bytes of the file. */
void parquetcell_bound(struct out *out, const struct sl_parquet_column *column, struct sl_parquet_bytes bound);

#endif
