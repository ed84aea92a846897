/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of sluice ship: lines are collected, made durable together, and only then count as read (shipstate.h says
 * how). A group that could not be written, on a full disk or behind a full backlog, is kept and tried again as it is;
 * nothing more is taken meanwhile.
 *
 * Thread safety: none; the main thread calls. Ownership: lines are copied.
 */
#ifndef SLUICE_CLI_SHIPLOG_H
#define SLUICE_CLI_SHIPLOG_H

#include "opts.h"
#include "shipstate.h"

#include <limits.h>

struct shiplog {
	struct cli *cli;
	sl_wal *wal;
	struct ship_state state;
	uint64_t pending; /* at the start: the first sequence that was not delivered */
	uint64_t lines;   /* durable in this run */
	char dir[PATH_MAX], id[256], copy[PATH_MAX];

	/* the group */
	struct ship_buf bytes, first; /* records without snapshots; the first with one */
	struct shiplog_record *records;
	size_t n, cap, done; /* records[done..n) are not in the log yet */
};

/* Open <dir>/<id>.wal, or what --wal and --stream say, for a target, and read the state. 0, or an exit code after a
 * line on stderr. Close it in any case. */
int shiplog_open(struct shiplog *log, struct cli *cli, const struct parsed *args, const char *target);
/* Flush, save the copy of the state and release everything. The sender is stopped by then. */
int shiplog_close(struct shiplog *log);

/* The line is in the group. */
int shiplog_add(struct shiplog *log, const struct ship_line *line, struct sl_err *err);
/* The group is durable and empty when 0 returns, and the state moved behind it. Otherwise what is not stays in it. */
int shiplog_flush(struct shiplog *log, struct sl_err *err);
/* Bytes in the group. */
size_t shiplog_waiting(const struct shiplog *log);

#endif
