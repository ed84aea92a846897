/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of a batch as values that SQLite can be given: records taken apart, and their fields turned into what their
 * columns hold. This is done before a lane has the database, so that lanes do it side by side.
 *
 * What becomes of a field:
 *   INTEGER column   a 64-bit integer exactly; another number as a double, which SQLite takes or refuses; true and
 *                    false as 1 and 0; text that is not a number, and an integer beyond 64 bits, are refused
 *   REAL column      a double; true and false as above; text that is not a number is refused
 *   TEXT column      the text as it is
 *   other columns    text as it is (NUMERIC converts what it can without loss), JSON numbers as 64-bit integers or
 *                    doubles, or as text where both would lose digits; true and false as 1 and 0
 *   objects, arrays  their text;   NULL: NULL;   not there: the column's default, or its old value in an update
 *
 * Thread safety: one thread at a time. Ownership: values point into the records and into memory of the rows, and live
 * until the next fill or the end of the records.
 */
#ifndef SL_SINK_SQLITE_ROWS_H
#define SL_SINK_SQLITE_ROWS_H

#include "base/buf.h"
#include "format/row.h"
#include "sink/ranges.h"
#include "sink/refusal.h"
#include "sink/sqlite_table.h"

enum sl__cell_kind {
	SL__CELL_ABSENT = 0,
	SL__CELL_NULL = 1,
	SL__CELL_INT = 2,
	SL__CELL_REAL = 3,
	SL__CELL_TEXT = 4, /* in the record */
	SL__CELL_COPY = 5  /* at an offset in `copies` */
};

struct sl__cell {
	union {
		int64_t i;
		double d;
		const char *text;
		size_t at;
	};
	uint32_t len;
	uint8_t kind;
};

#define SL__ROWS_MAX 2048 /* are held at a time */

struct sl__sqlite_rows {
	const struct sl_env *env;
	const struct sl_sink_opts *opts;
	struct sl__shape shape; /* as the lane knows it */
	struct sl__row_reader *reader;
	struct sl__field *fields;
	struct sl__cell *cells; /* cap rows of shape.n */
	uint8_t *full;          /* of each row: 1 nothing of it is absent */
	uint8_t *refused;       /* of each row: 1 it is not to be written */
	uint8_t *alike;         /* of each row: 1 it has the columns of the one before, and both are to be written */
	const struct sl__ranges *done; /* items in it are not to be written; NULL: none */
	size_t cap;
	size_t first, n; /* the rows are of the items first … first + n - 1 */
	struct sl__buf copies;
};

void sl__sqlite_rows_init(struct sl__sqlite_rows *r, const struct sl_env *env, const struct sl_sink_opts *opts);
void sl__sqlite_rows_fini(struct sl__sqlite_rows *r);
/* After shape has changed: a reader for its columns. */
SL_MUST_CHECK int sl__sqlite_rows_reshape(struct sl__sqlite_rows *r, struct sl_err *err);
/* Take the items from `first` on apart, at most SL__ROWS_MAX, up to the second that is refused. */
SL_MUST_CHECK int sl__sqlite_rows_fill(struct sl__sqlite_rows *r, const struct sl_sink_batch *batch, size_t first,
				       struct sl__refusals *refused, struct sl_err *err);
/* Bind n rows from row k on to the statement for their columns. SQLite's result code. */
int sl__sqlite_rows_bind(const struct sl__sqlite_rows *r, size_t k, size_t n, sqlite3_stmt *stmt);
/* The number of a record's key, as in struct sl_sink_ops. The shape must be known. */
SL_MUST_CHECK int sl__sqlite_rows_key(struct sl__sqlite_rows *r, const void *data, size_t len, uint64_t *hash,
				      struct sl_err *err);
/* Leave row k out. */
void sl__sqlite_rows_omit(struct sl__sqlite_rows *r, size_t k);
/* Does row k have any column? */
bool sl__sqlite_rows_has_values(const struct sl__sqlite_rows *r, size_t k);
/* The bits of the columns that row k has. */
void sl__sqlite_rows_present(const struct sl__sqlite_rows *r, size_t k, uint8_t *bits);

#endif
