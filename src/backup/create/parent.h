/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The previous snapshot, walked alongside the tree: what has not changed since is taken over without being opened.
 *
 * It only saves work. When it cannot be read to its end, it ends there, and the rest of the tree is read.
 *
 * Thread safety: one thread at a time.
 */
#ifndef SL_BACKUP_PARENT_H
#define SL_BACKUP_PARENT_H

#include "backup/create/walk.h"
#include "backup/manifest/manifest.h"

struct bk_parent;

struct bk_create;
/* The snapshot that the options name, or the newest of this host with these paths. *out is NULL when there is none.
 * SL_ENOENT: the named one does not exist. */
SL_MUST_CHECK int sl__bk_parent_open(struct bk_parent **out, struct bk_create *c, struct sl_err *err);
void sl__bk_parent_close(struct bk_parent *p); /* NULL is allowed */
const struct sl_backup_snapshot *sl__bk_parent_info(const struct bk_parent *p);

/* The entry with that path, or NULL; paths must ascend from call to call. Valid until the next call. */
SL_MUST_CHECK int sl__bk_parent_find(struct bk_parent *p, const char *path, size_t len, const struct bk_entry **out,
				     struct sl_err *err);
/* Do st and the entry agree, so that contents and attributes must be the same, too? */
bool sl__bk_parent_same(struct bk_parent *p, const struct bk_entry *e, const struct stat *st);

#endif
