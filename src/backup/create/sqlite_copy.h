/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite databases: copied as of one moment through SQLite's backup interface, whoever writes to them meanwhile.
 *
 * A database's file must never be opened and closed beside SQLite: closing any descriptor of it lets go of all locks
 * that connections of this process have on it. So also the look at its first bytes, and reading it as a file when it
 * cannot be copied, go through SQLite, which keeps such descriptors until the locks are gone.
 *
 * Thread safety: one thread at a time per handle.
 */
#ifndef SL_BACKUP_SQLITE_COPY_H
#define SL_BACKUP_SQLITE_COPY_H

#include <sys/types.h>

#include "base/env.h"

struct sl_backup;

/* A file opened by SQLite: a name in a folder, whose descriptor must stay open as long as the file. */
struct bk_sqlite_file;
/* 0 or a negative errno; -ENOMEM without memory. */
int sl__bk_sqlite_file_open(struct bk_sqlite_file **out, const struct sl_env *env, int dir, const char *name);
void sl__bk_sqlite_file_close(struct bk_sqlite_file *f); /* NULL is allowed */
/* How many bytes, 0 at the end; a negative errno. A bk_source_fn. */
ssize_t sl__bk_sqlite_file_read(void *file, void *buf, size_t n, uint64_t offset);
/* Does it begin as SQLite databases do? */
bool sl__bk_sqlite_file_is_database(struct bk_sqlite_file *f);

/* Copy the database of this name in a folder into a temporary file (of TMPDIR) that has no name any more: its
 * descriptor in *fd, to be closed by the caller. Nothing is written to the folder. SL_ECANCELLED; anything else says
 * why it could not be copied: among others that its last change was broken off, and is to be undone with its journal.
 */
SL_MUST_CHECK int sl__bk_sqlite_copy(struct sl_backup *b, int dir, const char *name, int *fd, struct sl_err *err);

#endif
