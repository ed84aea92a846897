/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far a load with --wal has come: a log for each input of the command, and beside it a small file with the place in
 * the input up to which all records are in the log, or were, or are dead letters. Both are kept until all inputs are
 * done, so that the same command goes on wherever it was ended.
 *
 * The place is noted after the rows are durable and is not synced by itself: it may be behind, never ahead. What is
 * behind it is taken again by the next run, so a crash may repeat some rows; a table with a key (--on-conflict) does
 * not mind. A place counts only together with the log that it was noted for (its incarnation) and with an input that
 * still has the same record before it: nothing is passed over because of a place that is about something else.
 *
 * The file is one line: the log's incarnation, when the first run began, the ends of the last two records, a hash of
 * the last, and a checksum.
 *
 * Thread safety: none; the main thread calls.
 */
#ifndef SLUICE_CLI_LOADPLACE_H
#define SLUICE_CLI_LOADPLACE_H

#include "cli.h"

#include <limits.h>
#include <sluice/records.h>
#include <sluice/wal.h>

/* What loads have in common that are the same: where to, and from what. */
struct loadplace_key {
	const char *dir;           /* of --wal; NULL: nothing is kept */
	const char *target;        /* without secrets */
	const char *const *inputs; /* paths, or "-" */
	int n_inputs;
};

struct loadplace {
	sl_wal *wal; /* NULL: without --wal */
	uint32_t incarnation;
	uint64_t before, end; /* in the input: where the last record that was taken begins (or some blanks before it),
				 and where it ends; 0: nothing was taken */
	uint64_t hash;        /* of the last record */
	int64_t started_ms;   /* Unix time of the first run */
	int fd;
	char path[PATH_MAX];
};

/* The log of input i, new or as it was left. 0, or an exit code after a line on stderr. */
int loadplace_open(struct loadplace *p, struct cli *cli, const struct loadplace_key *key, int i);
/* Pass over what was taken before. 0, or what sl_records_next returns; SL_EDATA: the input is not what it was. */
int loadplace_skip(const struct loadplace *p, sl_records *records, struct sl_err *err);
/* Is this the last record that was taken? */
int loadplace_is_at(const struct loadplace *p, const struct sl_record *record);
/* Everything up to the last of n records is taken. 0, or an exit code. */
int loadplace_note(struct loadplace *p, struct cli *cli, const struct sl_record *records, size_t n);
/* Let go of what is open. Log and place stay. */
void loadplace_close(struct loadplace *p, struct cli *cli);
/* Every input is done: all logs and places go. 0, or an exit code. */
int loadplace_finish(struct cli *cli, const struct loadplace_key *key);

#endif
