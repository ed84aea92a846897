/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The snapshot before, walked beside the tree: what has not changed since is taken over without being opened.
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

/* *out is NULL when there is none. wanted (may be NULL) is its id, or the beginning of it. SL_ENOENT: the wanted one is
 * not there. */
SL_MUST_CHECK int sl__bk_parent_open(struct bk_parent **out, struct sl_backup *b, struct bk_index *index,
				     const char *wanted, const char *host, const struct bk_roots *roots,
				     struct sl_err *err);
void sl__bk_parent_close(struct bk_parent *p); /* NULL is allowed */
const struct sl_backup_snapshot *sl__bk_parent_info(const struct bk_parent *p);

/* The entry of that path, or NULL; paths must ascend from call to call. It lives until the next call. */
SL_MUST_CHECK int sl__bk_parent_find(struct bk_parent *p, const char *path, size_t len, const struct bk_entry **out,
				     struct sl_err *err);
/* Is what st says the same as what the entry says, so that its contents and attributes must be, too? */
bool sl__bk_parent_same(struct bk_parent *p, const struct bk_entry *e, const struct stat *st);

#endif
