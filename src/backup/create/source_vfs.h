/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite on the tree that is backed up: it reads there, and never writes, makes, removes or chowns anything.
 *
 * Files are named by the folder's descriptor, so that nobody can lead SQLite elsewhere by moving folders about, and no
 * symbolic link is followed.
 *
 * Thread safety: any thread. A connection to a database in WAL mode that this process opens while it is copied, and not
 * before, may find its shared memory read-only until the copy is done.
 */
#ifndef SL_BACKUP_SOURCE_VFS_H
#define SL_BACKUP_SOURCE_VFS_H

#include <sqlite3.h>
#include <stdbool.h>

/* NULL: SQLite has no file system of the expected kind. Registered under its zName when this returns. */
sqlite3_vfs *sl__bk_source_vfs(void);

/* What the name in a folder means to it: "/proc/self/fd/7/x.db". */
#define BK_SOURCE_NAME_BYTES 320
void sl__bk_source_name(char out[BK_SOURCE_NAME_BYTES], int dir, const char *name);

/* A database without its -shm is open only here, as long as none appears. True: one has, and what was read since the
 * transaction began may be of several moments. Ask inside of the transaction. */
bool sl__bk_source_disturbed(sqlite3 *db);

/* Is the file of this name in a folder what SQLite makes beside a database? By its kind and first bytes, not by its
 * name alone. What is not there any more was one: they come and go. */
bool sl__bk_is_journal(int dir, const char *name);

#endif
