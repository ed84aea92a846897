/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record of the log of sl_ship as a row: one JSON object.
 *
 *   {"stream":"web1-0a1b2c3d","incarnation":9120335,"sequence":17,"ts":"2024-05-01T12:00:00.000Z","file":"…/app.log",
 *    "partial":false,"line":"…"}
 *
 * (stream, incarnation, sequence) is the row's key. A line that is not UTF-8, or has a NUL, is in "line_b64" instead,
 * byte for byte; a JSON event is in "event". Members without a value are left out.
 *
 * Thread safety: no state.
 */
#ifndef SL_SHIP_ROW_H
#define SL_SHIP_ROW_H

#include "ship/state.h"

#include <sluice/sink.h>

enum { SHIP_ROW_COLUMNS = 9 };
/* All members in their order, as columns of a table. */
extern const struct sl_column sl__ship_row_columns[SHIP_ROW_COLUMNS];

/* The members of a list of names as a set of bits; 0 with *unknown for an unknown name. n 0: all. */
unsigned sl__ship_row_members(const char *const *names, size_t n, const char **unknown);

/* Append the row to b. */
int sl__ship_row_write(struct sl__buf *b, unsigned members, const struct sl_wal_batch *batch,
		       const struct sl_wal_record *record, struct sl_err *err);

/* The last row of a stream in a file of rows. */
struct ship_last_row {
	uint64_t sequence; /* 0: no row found */
	char *row;         /* without its newline; the caller frees it with sl__free */
	size_t len;
};
struct ship_last_row sl__ship_row_last(const struct sl_env *env, const char *path, const char *stream,
				       uint32_t incarnation);

#endif
