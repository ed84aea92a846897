/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A filesystem in memory that remembers every change, and rebuilds what a power loss could leave at any point of that
 * history.
 *
 * What a loss at point p (after the first p operations were issued) keeps:
 *  1. A change is durable once a sync that covers it has returned: a file's data and size by datasync or sync of that
 *     file (or a write through O_DSYNC), a directory's entries by sync of that directory. Syncing a file does not make
 *     its name durable.
 *  2. Of the writes that are not durable any subset is there, each torn at 512 or at 64 bytes.
 *  3. A file has one of the sizes that it had since it was last synced: it may be long without its data (zeros are
 *     read there), or have its data cut off. A truncation that is there has taken the bytes after it.
 *  4. Of the creations, renames and removals that are not durable any subset is there, independently. A rename is
 *     whole or not there; one that is not there leaves the file that it would have replaced.
 * Not modelled: filesystems that swap whole blocks between files, and devices that lie about flushes.
 *
 * Thread safety: the I/O table may be used by several threads at once; the other functions by one.
 */
#ifndef TESTS_CRASHFS_H
#define TESTS_CRASHFS_H

#include <stdbool.h>
#include <stdio.h>

#include <sluice/adapter/env.h>

struct crashfs;

/* The table; ctx is the struct crashfs. */
extern const struct sl_io crashfs_io;

/* An empty filesystem with nothing but its root. */
struct crashfs *crashfs_new(void);
void crashfs_free(struct crashfs *fs);

/* ---- recording ---- */

/* Off: changes are made but not remembered, and count as durable. On by default. */
void crashfs_record(struct crashfs *fs, bool on);
/* Forget the history: what is there now is durable. */
void crashfs_settle(struct crashfs *fs);
/* How many changes were made so far: the crash point "now". */
size_t crashfs_point(const struct crashfs *fs);
/* The first sync at or after point that had something to make durable, and the first rename; the number of changes if
 * no such sync or rename follows. */
size_t crashfs_next_sync(const struct crashfs *fs, size_t point);
size_t crashfs_next_rename(const struct crashfs *fs, size_t point);
/* The process dies just before change number point (SIZE_MAX: never): every call from there on fails with EIO and
 * changes nothing. */
void crashfs_stop_at(struct crashfs *fs, size_t point);
bool crashfs_stopped(const struct crashfs *fs);
/* The end of a process: descriptors and locks are gone, what it wrote stays in the page cache, not more durable than
 * before. Calls work again. */
void crashfs_kill(struct crashfs *fs);
size_t crashfs_open_files(const struct crashfs *fs);
/* Bytes that files may take in all; a write beyond gives ENOSPC (and a short write before it). SIZE_MAX: no limit. */
void crashfs_quota(struct crashfs *fs, size_t bytes);
size_t crashfs_used(const struct crashfs *fs);
/* The nth write from now on and n_writes - 1 more find a full disk. 0: none. */
void crashfs_fail_writes(struct crashfs *fs, size_t nth, size_t n_writes);
/* The next n syncs of files fail with EIO and make nothing durable. */
void crashfs_fail_syncs(struct crashfs *fs, size_t n);

/* ---- whole files, outside of any recording: durable at once ---- */
void crashfs_mkdir(struct crashfs *fs, const char *path);
void crashfs_put(struct crashfs *fs, const char *path, const void *data, size_t n);
/* The live bytes (valid until the next change), or NULL when there is no such file. */
const void *crashfs_get(const struct crashfs *fs, const char *path, size_t *n);
/* Names in a folder, in order of creation; stops at the first non-zero result. 0 for a folder that is not there. */
int crashfs_each(const struct crashfs *fs, const char *dir, sl_io_list_fn *fn, void *ctx);

/* ---- states ---- */

/* How many states crashfs_crash makes for a point when at most limit are wanted: all of them when they are so few,
 * else limit samples; first with 512-byte, then with 64-byte tears. */
size_t crashfs_states(const struct crashfs *fs, size_t point, size_t limit);
/* State k (< crashfs_states) at point, a separate filesystem that does not record; *hash (may be NULL) identifies equal
 * contents. The same arguments give the same state. */
struct crashfs *crashfs_crash(const struct crashfs *fs, size_t point, size_t k, size_t limit, uint64_t seed,
			      uint64_t *hash);
/* The history up to point, one line an operation, and the tree that is there now. For a failed test. */
void crashfs_print_log(const struct crashfs *fs, size_t point, FILE *out);
void crashfs_print_tree(const struct crashfs *fs, FILE *out);

#endif
