/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite on the tree that is backed up: it reads there, and never writes, creates, removes or chowns anything.
 *
 * Files are named by the descriptor of their folder, so that moving folders cannot lead SQLite elsewhere, and no
 * symbolic link is followed.
 *
 * Thread safety: any thread. A connection to a database in WAL mode that this process opens while it is copied, and not
 * before, may find its shared memory read-only until the copy is done.
 */
#ifndef SL_BACKUP_SOURCE_VFS_H
#define SL_BACKUP_SOURCE_VFS_H

#include <sqlite3.h>
#include <stdbool.h>

/* NULL: SQLite has no file system of the expected type. Registered under its zName when this returns. */
sqlite3_vfs *sl__bk_source_vfs(void);

/* Its name for a file in a folder: "/proc/self/fd/7/x.db". */
#define BK_SOURCE_NAME_BYTES 320
void sl__bk_source_name(char out[BK_SOURCE_NAME_BYTES], int dir, const char *name);

/* A database without a -shm is open only here, as long as none appears. True: one has, and what was read since the
 * transaction began may be inconsistent. To be called inside the transaction. */
bool sl__bk_source_disturbed(sqlite3 *db);

/* Is the file of this name in a folder one that SQLite creates next to a database? Judged by its type and first bytes,
 * not by its name alone. One that no longer exists was: they come and go. */
bool sl__bk_is_journal(int dir, const char *name);

#endif
