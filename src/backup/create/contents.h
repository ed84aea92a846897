/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contents and attributes of files, read into blocks of the store. Small files are kept whole, several of them at a
 * time; large ones are cut, in memory that does not depend on their size. Ids are looked up in bulk before anything is
 * stored.
 *
 * What happens to a file (it vanished, it changed, it cannot be read) is reported and marked in its item. Only what
 * concerns the repository, memory or a stop is an error here.
 *
 * Thread safety: one thread at a time; each has its own struct bk_contents.
 */
#ifndef SL_BACKUP_CONTENTS_H
#define SL_BACKUP_CONTENTS_H

#include "backup/create/create.h"

SL_MUST_CHECK int sl__bk_contents_new(struct bk_contents **out, struct bk_create *c, int lane, struct sl_err *err);
void sl__bk_contents_free(struct bk_contents *x); /* NULL is allowed */

/* A regular file by its path; item->e has what the walk saw. Its references are complete after the next flush. */
SL_MUST_CHECK int sl__bk_contents_file(struct bk_contents *x, struct bk_item *item, struct sl_err *err);
SL_MUST_CHECK int sl__bk_contents_flush(struct bk_contents *x, struct sl_err *err);

/* Where the bytes of a file come from. */
struct bk_source {
	/* How many bytes were read (0 at the end), or a negative errno. */
	ssize_t (*read)(void *ctx, void *buf, size_t n, uint64_t offset);
	void *ctx;
	int error; /* set by stream: a negative errno of read, or 0 */
};
ssize_t sl__bk_read_fd(void *fd, void *buf, size_t n, uint64_t offset); /* ctx points to a descriptor */
/* All of item->e.size bytes (fewer when the source ends before: then the size is set); references are complete when 0
 * returns. */
SL_MUST_CHECK int sl__bk_contents_stream(struct bk_contents *x, struct bk_item *item, struct bk_source *source,
					 struct sl_err *err);

/* ---- contents_meta.c ---- */
/* Read all extended attributes, ACLs among them, into the item: of an open file, or (fd -1) of a name in a folder. 0 or
 * a negative errno: then the item has none. */
int sl__bk_xattrs_read(const struct sl_env *env, struct bk_item *item, int fd, int dir, const char *name);
/* Find out where the data of a file of item->e.size bytes is; sets extents and SPARSE when it has holes. 0 or -ENOMEM. */
int sl__bk_extents_read(const struct sl_env *env, struct bk_item *item, int fd);

#endif
