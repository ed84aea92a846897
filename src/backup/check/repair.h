/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repair inside. In this order, so that it may die anywhere and be run again:
 *
 *   config and keys are put where they are missing or damaged by their other copy, durable; marks that are damaged,
 *   and keys that are in both places, are put aside
 *   every pack is read; what is right in damaged ones is copied into new packs; durable, and indexed
 *   the index is made anew of the directories of all packs that are right, and durable before the old files go
 *   damaged packs are put aside
 *   a snapshot that cannot be read is put aside; of one that misses something a copy without the lost files is
 *   published, with the old one's id as its parent, and then the old one is put aside
 *
 * Nothing is deleted but index files that were replaced, and copies of keys that somebody removed: what is put aside is
 * renamed to damaged/.
 */
#ifndef SL_BACKUP_REPAIR_H
#define SL_BACKUP_REPAIR_H

#include "backup/check/check.h"

struct bk_repair {
	struct sl_backup *b;
	struct bk_findings f;
	struct bk_view view;                     /* of packs and index as they were found */
	struct bk_verify verify;                 /* of its packs */
	struct bk_ids damaged;                   /* packs to put aside */
	char (*bad_files)[SL_DRIVER_NAME_BYTES]; /* index files that cannot be read */
	size_t bad_files_n;
	bool reindex; /* the index is wrong, or will be */
	struct sl_backup_repaired out;
};

/* Rename an object to damaged/<folder>-<name>. One that is gone is done with. */
SL_MUST_CHECK int sl__bk_put_aside(struct sl_backup *b, const char *name, struct sl_err *err);
SL_MUST_CHECK int sl__bk_repair_packs(struct bk_repair *r, struct sl_err *err);
SL_MUST_CHECK int sl__bk_repair_index(struct bk_repair *r, struct sl_err *err);
SL_MUST_CHECK int sl__bk_repair_snapshots(struct bk_repair *r, struct sl_err *err);
/* Publish what is left of a snapshot. *lost (files) is added to; *kept: entries. 0 of these: nothing is published. */
SL_MUST_CHECK int sl__bk_rewrite_snapshot(struct bk_repair *r, const struct bk_view *view, const struct bk_snapshot *s,
					  const char *id, uint64_t *kept, struct sl_err *err);

#endif
