/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of forget: which snapshots stay, of those sorted by group and time. */
#ifndef SL_BACKUP_FORGET_H
#define SL_BACKUP_FORGET_H

#include "backup/repo/repo.h"

#define BK_RULES_BYTES 96u /* "last, hourly, …" */

struct bk_forget_item {
	struct bk_snapshot snapshot;
	char id[BK_NAME_HEX];
	const char **paths; /* the snapshot's, sorted, without duplicates */
	size_t n_paths;
	bool keeps;
	char rules[BK_RULES_BYTES];
};

/* By host and set of paths; within these the newest first. For qsort. */
int sl__bk_forget_compare(const void *a, const void *b);
/* Set keeps and rules of sorted items. */
void sl__bk_forget_decide(struct bk_forget_item *items, size_t n, const struct sl_backup_forget_opts *opts);

#endif
