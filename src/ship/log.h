/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of sl_ship: lines are collected in a group, made durable together, and only then count as read (state.h says
 * how). A group that could not be written, because the disk or the backlog is full, is kept and retried as it is;
 * nothing more is read meanwhile.
 *
 * Thread safety: none but `lines`; the thread of open, run and close calls. Ownership: lines are copied.
 */
#ifndef SL_SHIP_LOG_H
#define SL_SHIP_LOG_H

#include "ship/state.h"

#include <limits.h>
#include <sluice/ship.h>
#include <sluice/wal_files.h>
#include <stdatomic.h>

struct ship_log {
	const struct sl_env *env;
	sl_wal *wal;
	struct ship_state state;
	uint64_t pending;       /* at the start: the first sequence that was not delivered */
	_Atomic uint64_t lines; /* durable since open */
	char dir[PATH_MAX], id[256], copy[PATH_MAX];

	/* the group */
	struct sl__buf bytes, first; /* records without snapshots; the first with one */
	struct ship_log_record *records;
	size_t n, cap, done; /* records[done..n) are not in the log yet */
};

#define SHIP_COUNT_BYTES 32
/* "1 line", "2 lines". Returns to. */
const char *sl__ship_count(char to[SHIP_COUNT_BYTES], uint64_t lines);

/* Open <wal_dir>/<stream>.wal for a target and read the state. Close it also after a failure. */
int sl__ship_log_open(struct ship_log *log, const struct sl_env *env, const struct sl_ship_opts *opts,
		      const char *target, struct sl_err *err);
/* Save the copy of the state and release everything. The sender is stopped by then. */
int sl__ship_log_close(struct ship_log *log, struct sl_err *err);

/* Add a line to the group. */
int sl__ship_log_add(struct ship_log *log, const struct ship_line *line, struct sl_err *err);
/* 0: the group is durable and empty, and the state includes it. Otherwise what is not durable stays in it. */
int sl__ship_log_flush(struct ship_log *log, struct sl_err *err);
/* Bytes in the group. */
size_t sl__ship_log_waiting(const struct ship_log *log);

#endif
