/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The columns of an export, from a YAML file:
 *
 *	columns:
 *	  - {name: ledger_sequence, type: int64, nullable: false}
 *	  - {name: closed_at, type: timestamp, unit: millis}
 *	  - {name: fee, type: decimal, precision: 18, scale: 7}
 *	  - {name: tx_hash, type: fixed, length: 32}
 *
 * Types: bool, int32, int64, float, double, timestamp (unit millis, micros or nanos; micros unless given), date,
 *decimal (precision 1 to 18, scale 0 unless given), string, binary, fixed (length). nullable is true unless given. The
 * whole file is read: every problem is reported with its line and column.
 *
 * Thread safety: none; the main thread calls. Ownership: exportschema_fini frees what exportschema_read made, also
 *after a failure; the columns live until then.
 */
#ifndef SLUICE_CLI_EXPORTSCHEMA_H
#define SLUICE_CLI_EXPORTSCHEMA_H

#include "cli.h"

#include <sluice/parquet.h>

struct exportschema {
	struct sl_parquet_column *columns;
	size_t n;
};

/* 0, or an exit code after a line on stderr for each problem: 78 for what the file says, 74 when it cannot be read. */
int exportschema_read(struct exportschema *schema, struct cli *cli, const char *path);
void exportschema_fini(struct exportschema *schema);

#endif
