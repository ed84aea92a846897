/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far a load with a log has come: a log for each input, and next to it a small file with the place in the input up
 * to which all records are in the log, or were, or are dead letters. Both are kept until all inputs are done, so that
 * the same load continues wherever it was ended.
 *
 * The place is noted after the rows are durable and is not synced: it may lag, but is never ahead. What comes after it
 * is read again by the next run, so a crash may repeat some rows; a table with a key is not affected. A place counts
 * only together with the log that it was noted for (its incarnation) and with an input that still has the same record
 * before it: nothing is skipped because of a place of another load.
 *
 * The file is one line: the log's incarnation, when the first run began, the ends of the last two records, a hash of
 * the last, and a checksum.
 *
 * Thread safety: none; the thread of sl_load_run calls.
 */
#ifndef SL_LOAD_PLACE_H
#define SL_LOAD_PLACE_H

#include "base/env.h"

#include <limits.h>
#include <sluice/records.h>
#include <sluice/wal_files.h>

/* What identifies a load: where to, and from what. */
struct load_key {
	const struct sl_env *env;
	const char *dir;           /* of the logs; NULL: nothing is kept */
	const char *target;        /* without secrets */
	const char *const *inputs; /* paths, or "-" */
	size_t n_inputs;
};

struct load_place {
	const struct sl_env *env;
	sl_wal *wal; /* NULL: without a log */
	uint32_t incarnation;
	uint64_t before, end; /* in the input: where the last record that was taken begins (or some blanks before it),
				 and where it ends; 0: nothing was taken */
	uint64_t hash;        /* of the last record */
	int64_t started_ms;   /* Unix time of the first run */
	int fd;
	char path[PATH_MAX];
};

/* Open the log of input i, new or as it was left. */
int sl__load_place_open(struct load_place *p, const struct load_key *key, size_t i, struct sl_err *err);
/* Skip what was taken before. 0, or what sl_records_next returns; SL_EDATA: the input is not what it was. */
int sl__load_place_skip(const struct load_place *p, sl_records *records, struct sl_err *err);
/* Is this the last record that was taken? */
bool sl__load_place_is_at(const struct load_place *p, const struct sl_record *record);
/* Everything up to the last of n records is taken. */
int sl__load_place_note(struct load_place *p, const struct sl_record *records, size_t n, struct sl_err *err);
/* Close what is open. Log and place stay. */
void sl__load_place_close(struct load_place *p);
/* Every input is done: remove all logs and places. */
int sl__load_place_finish(const struct load_key *key, struct sl_err *err);

#endif
