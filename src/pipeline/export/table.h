/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows as columns: fields go in row by row, arrays of values come out, as sl_parquet_writer_put wants them. A row that
 * does not fit leaves nothing after. Text is not copied where it lies in the input, which must outlive the table's
 * rows; what was unescaped, and bytes that were hexadecimal digits, are kept in pieces of the table's own.
 *
 * Thread safety: one thread at a time. Ownership: columns and env are borrowed and outlive the table.
 */
#ifndef SL_PIPELINE_EXPORT_TABLE_H
#define SL_PIPELINE_EXPORT_TABLE_H

#include "base/buf.h"
#include "format/row.h"
#include "pipeline/export/convert.h"
#include <sluice/export.h>

struct sl__table_column {
	struct sl_parquet_column as; /* the names are borrowed */
	size_t entry;                /* bytes of a value */
	char *values;
	uint8_t *nulls;  /* NULL: a required column */
	bool has_nulls;  /* of the rows in the table */
	size_t of_field; /* which field of the row it is; SL__NO_FIELD: none, always NULL */
	struct sl__time_memo memo;
};
#define SL__NO_FIELD SIZE_MAX

struct sl__table_piece {
	struct sl__table_piece *before;
	size_t cap, used;
	char bytes[];
};

struct sl__table {
	const struct sl_env *env;
	struct sl__table_column *columns;
	struct sl_parquet_values *views;
	size_t n_columns;
	size_t n, cap, max; /* rows: there, room for, at most */
	size_t bytes;       /* about what the rows are as plain Parquet values */
	const char *input, *input_end;
	struct sl__table_piece *pieces;
};

struct sl__table_columns {
	const struct sl_parquet_column *columns;
	size_t n;
	const size_t *of_field; /* where column i is among the fields of a row, or SL__NO_FIELD */
};
/* max: rows at most. SL_ENOMEM. */
SL_MUST_CHECK int sl__table_init(struct sl__table *b, const struct sl_env *env, const struct sl__table_columns *columns,
				 size_t max, struct sl_err *err);
void sl__table_fini(struct sl__table *b); /* also of a zeroed one */

/* Text in [input, end) will outlive the rows: it is not copied. */
void sl__table_input(struct sl__table *b, const char *input, const char *end);

/* Add a row; there must be less than max. 0; SL_ENOMEM; SL_EDATA: the value of *column (its name is in the message)
 * does not fit. */
SL_MUST_CHECK int sl__table_add(struct sl__table *b, const struct sl__field *fields, struct sl_err *err);

/* The same of typed values that were checked, one for each column; their bytes outlive the rows. SL_ENOMEM. */
SL_MUST_CHECK int sl__table_add_values(struct sl__table *b, const struct sl_export_value *values, struct sl_err *err);

/* The rows, as arrays. They live until the next add or clear. */
const struct sl_parquet_values *sl__table_values(struct sl__table *b);
void sl__table_clear(struct sl__table *b);

#endif
