/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record of the log of sluice ship as a row: one JSON object.
 *
 *   {"stream":"web1-0a1b2c3d","incarnation":9120335,"sequence":17,"ts":"2024-05-01T12:00:00.000Z","file":"…/app.log",
 *    "partial":false,"line":"…"}
 *
 * (stream, incarnation, sequence) is the row's key. A line that is not UTF-8, or holds a NUL, is in "line_b64" instead,
 * byte for byte; a JSON event is in "event". What is not there has no member.
 *
 * Thread safety: no state.
 */
#ifndef SLUICE_CLI_SHIPROW_H
#define SLUICE_CLI_SHIPROW_H

#include "shipstate.h"

#include <sluice/sink.h>

enum { SHIPROW_COLUMNS = 9 };
/* All members in their order, as columns of a table. */
extern const struct sl_column shiprow_columns[SHIPROW_COLUMNS];

/* The members of a list of names as a set of bits; 0 with *unknown for a name that is none. n 0: all. */
unsigned shiprow_members(const char *const *names, size_t n, const char **unknown);

/* The row at the end of b. */
int shiprow_write(struct ship_buf *b, unsigned members, const struct sl_wal_batch *batch,
		  const struct sl_wal_record *record, struct sl_err *err);

#endif
