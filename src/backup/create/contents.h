/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contents and attributes of files, read into blocks of the store. Small files are kept whole, several of them at
 * once; large ones are cut, in memory that does not depend on their size. Ids are asked for in bulk before anything is
 * stored.
 *
 * What happens to a file (it vanished, it changed, it cannot be read) is reported and marked in its item; only what
 * concerns the repository, memory or a stop is an error here.
 *
 * Thread safety: one thread at a time; each has its own.
 */
#ifndef SL_BACKUP_CONTENTS_H
#define SL_BACKUP_CONTENTS_H

#include "backup/create/create.h"

SL_MUST_CHECK int sl__bk_contents_new(struct bk_contents **out, struct bk_create *c, int lane, struct sl_err *err);
void sl__bk_contents_free(struct bk_contents *x); /* NULL is allowed */

/* A regular file by its path; item->e has what the walk saw. Its references are complete after the next flush. */
SL_MUST_CHECK int sl__bk_contents_file(struct bk_contents *x, struct bk_item *item, struct sl_err *err);
SL_MUST_CHECK int sl__bk_contents_flush(struct bk_contents *x, struct sl_err *err);

/* Bytes from anywhere: how many were read (0 at the end), or a negative errno. */
typedef ssize_t bk_source_fn(void *source, void *buf, size_t n, uint64_t offset);
/* All of item->e.size bytes (less when the source ends before: then the size is set), references complete when 0
 * returns. *broken: a negative errno of the source, or 0. */
SL_MUST_CHECK int sl__bk_contents_stream(struct bk_contents *x, struct bk_item *item, bk_source_fn *read, void *source,
					 int *broken, struct sl_err *err);

/* ---- contents_xattr.c ---- */
/* All extended attributes, ACLs among them, into the item: of an open file, or (fd -1) of a name in a folder. 0 or a
 * negative errno: then it has none. */
int sl__bk_xattrs_read(const struct sl_env *env, struct bk_item *item, int fd, int dir, const char *name);

/* ---- contents_sparse.c ---- */
/* Where the data of a file of item->e.size bytes is; sets extents and SPARSE when there are holes. 0 or -ENOMEM. */
int sl__bk_extents_read(const struct sl_env *env, struct bk_item *item, int fd);

#endif
