/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far a load with --wal has come: the log of one input and target in the folder, and beside it a small file with
 * the place in the input up to which all rows are in the log, or were, or are dead letters.
 *
 * The place is noted after the rows are durable and not synced by itself: it may be behind, never ahead. What is behind
 * it is taken again by the next run, so a crash may repeat some rows; a table with a key (--on-conflict) does not mind.
 *
 * Thread safety: none; the main thread calls.
 */
#ifndef SLUICE_CLI_LOADPLACE_H
#define SLUICE_CLI_LOADPLACE_H

#include "cli.h"

#include <limits.h>
#include <sluice/wal.h>

struct loadplace {
	sl_wal *wal;     /* NULL: without --wal */
	uint64_t offset; /* in the input, where reading goes on */
	int fd;
	char path[PATH_MAX];
};

/* The log of loading input (a path, or "-") into target, new or as it was left. dir NULL: none. 0, or an exit code
 * after a line on stderr. */
int loadplace_open(struct loadplace *p, struct cli *cli, const char *dir, const char *target, const char *input);
int loadplace_note(struct loadplace *p, struct cli *cli, uint64_t offset);
/* Everything is written: the log and the place go. */
int loadplace_finish(struct loadplace *p, struct cli *cli);
/* Let go of what is still open, without finishing. */
void loadplace_close(struct loadplace *p, struct cli *cli);

#endif
