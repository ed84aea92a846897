/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite databases: copied as a consistent snapshot through SQLite's backup interface, whatever writes to them
 * meanwhile.
 *
 * The file of a database must never be opened and closed without SQLite: closing any descriptor of it releases all
 * locks that connections of this process have on it. So reading its first bytes, and reading it as a file when it
 * cannot be copied, go through SQLite too, which keeps such descriptors until the locks are gone.
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
/* 0 or a negative errno. */
int sl__bk_sqlite_file_open(struct bk_sqlite_file **out, const struct sl_env *env, int dir, const char *name);
void sl__bk_sqlite_file_close(struct bk_sqlite_file *f); /* NULL is allowed */
/* How many bytes, 0 at the end; a negative errno. For struct bk_source. */
ssize_t sl__bk_sqlite_file_read(void *buf, size_t n, uint64_t offset, void *file);
/* Does it begin like an SQLite database? */
bool sl__bk_sqlite_file_is_database(struct bk_sqlite_file *f);

/* Copy the database of this name in a folder into a temporary file (in TMPDIR) whose name is removed; the caller closes
 * its descriptor *fd. Nothing is written to the folder. SL_ECANCELLED; any other error is the reason why it could not be
 * copied, for example that its last change was interrupted and must be undone with its journal. */
SL_MUST_CHECK int sl__bk_sqlite_copy(struct sl_backup *b, int dir, const char *name, int *fd, struct sl_err *err);

#endif
