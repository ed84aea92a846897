/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the steps of repair share. They run in this order, so that a repair that dies at any point can be run again:
 *
 *   config and keys that are missing or damaged are restored from their other copy, durable; damaged marks, and keys
 *   that are damaged in both places, are quarantined
 *   every pack is read; what is intact in damaged ones is copied into new packs, durable and indexed
 *   the index is rebuilt from the directories of all intact packs, durable before the old files are removed
 *   damaged packs are quarantined
 *   a snapshot that cannot be read is quarantined; of one that misses something a copy without the lost files is
 *   published, with the id of the old one as its parent, and then the old one is quarantined
 *
 * Only index files that were replaced, and copies of keys that were removed, are deleted. To quarantine an object is to
 * rename it to damaged/.
 */
#ifndef SL_BACKUP_REPAIR_H
#define SL_BACKUP_REPAIR_H

#include "backup/check/check.h"

struct bk_repair {
	struct sl_backup *b;
	struct bk_findings f;
	struct bk_view view;                     /* of packs and index before the repair */
	struct bk_verify verify;                 /* of its packs */
	struct bk_ids damaged;                   /* packs to quarantine */
	char (*bad_files)[SL_DRIVER_NAME_BYTES]; /* index files that cannot be read */
	size_t n_bad_files;
	bool reindex; /* the index is wrong, or will be */
	struct sl_backup_repaired out;
};

/* Quarantine an object: rename it to damaged/<folder>-<name>. 0 also when it does not exist. */
SL_MUST_CHECK int sl__bk_put_aside(struct sl_backup *b, const char *name, struct sl_err *err);
/* For struct bk_view_watch: verifying the packs reports it. */
int sl__bk_ignore_directory_damage(const struct bk_id *pack, const struct sl_err *why, void *ctx);
SL_MUST_CHECK int sl__bk_repair_snapshots(struct bk_repair *r, struct sl_err *err);

#endif
