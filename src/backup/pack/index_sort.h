/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Index entries in the order of their ids, however many there are: runs of BK_SORT_RUN entries are sorted in memory and
 * written to an unnamed temporary file, and merged from there. What fits into one run needs no file.
 *
 * Thread safety: one thread at a time. Ownership: env is borrowed.
 */
#ifndef SL_BACKUP_INDEX_SORT_H
#define SL_BACKUP_INDEX_SORT_H

#include "backup/repo/format.h"

#define BK_SORT_RUN 65536u         /* entries of a run: 3.5 MiB */
#define BK_SORT_WINDOWS (8u << 20) /* bytes of all windows onto runs while they are merged */

struct bk_sort_run; /* a run while it is merged */

struct bk_sort {
	const struct sl_env *env;
	uint32_t run_entries; /* BK_SORT_RUN; tests set less */
	uint8_t *run;         /* the run that is filled */
	size_t n, cap;        /* its entries */
	int fd;               /* -1: no run had to be written */
	uint64_t spilled;     /* entries in the file: whole runs */
	uint64_t total;
	/* of merging */
	struct bk_sort_run *runs; /* a heap, the least entry first */
	size_t n_runs;
	uint8_t *windows;
	bool merging;
};

void sl__bk_sort_init(struct bk_sort *s, const struct sl_env *env);
/* Empty afterwards, as after init. */
void sl__bk_sort_fini(struct bk_sort *s);
SL_MUST_CHECK int sl__bk_sort_add(struct bk_sort *s, const uint8_t entry[BK_INDEX_ENTRY], struct sl_err *err);
/* 1 and *entry, which lives until the next call; 0: that was the last one. Once it was called nothing is added. Entries
 * are ordered by their first 36 bytes, id and pack. */
int sl__bk_sort_next(struct bk_sort *s, const uint8_t **entry, struct sl_err *err);

#endif
