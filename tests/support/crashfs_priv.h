/* SPDX-License-Identifier: Apache-2.0 */
/* What crashfs.c (the live filesystem and its history) and crashfs_state.c (the states) share. */
#ifndef TESTS_CRASHFS_PRIV_H
#define TESTS_CRASHFS_PRIV_H

#include <pthread.h>

#include "support/crashfs.h"

#define CFS_NEVER SIZE_MAX

struct cfs_entry {
	char *name;
	uint32_t ino;
};

struct cfs_inode {
	bool is_dir;
	uint8_t *data; /* zeros from size to cap */
	size_t size, cap;
	size_t max_size; /* the largest it ever was */
	struct cfs_entry *entries;
	size_t n_entries;
	int64_t mtime_ms;
	uint32_t mode;
	int lock_fd; /* the descriptor that holds the lock, or -1 */
	char *name;  /* the last one it had */
};

enum cfs_kind { CFS_WRITE, CFS_TRUNCATE, CFS_CREATE, CFS_RENAME, CFS_UNLINK, CFS_SYNC };

struct cfs_op {
	enum cfs_kind kind;
	uint32_t ino, dir, dir2; /* dir2: of a rename's target */
	char *name, *name2;
	uint64_t off; /* CFS_TRUNCATE: the new size */
	size_t len;   /* CFS_SYNC: how many operations it made durable */
	uint8_t *data;
	bool resizes;      /* changed the file's size when it was made */
	bool idle_zeros;   /* zeros where there never was anything: there or not is the same */
	size_t durable_at; /* the operation that made it durable: so it is at every point beyond that one */
	const char *call;  /* CFS_SYNC */
};

struct cfs_fd {
	bool used;
	uint32_t ino;
	int flags;
};

struct crashfs {
	pthread_mutex_t mu;
	struct cfs_inode *inodes, *base; /* base: when recording began; [0] is the root */
	size_t n_inodes, n_base;
	struct cfs_op *ops;
	size_t n_ops, cap_ops;
	size_t settled; /* operations before it need no look when a sync marks what it covers */
	struct cfs_fd *fds;
	size_t n_fds;
	bool recording;
	size_t stop_at, quota;
	size_t fail_in, fail_n; /* writes until some find a full disk, and how many do */
	size_t fail_syncs;      /* the next syncs that fail */
};

/* All of these abort without memory: a test cannot continue. */
void *cfs_alloc(size_t n);
void *cfs_grow(void *p, size_t n);
char *cfs_strdup(const char *s);

void cfs_write(struct cfs_inode *node, uint64_t off, const void *data, size_t n);
void cfs_resize(struct cfs_inode *node, size_t size);
void cfs_link(struct cfs_inode *dir, const char *name, uint32_t ino);
void cfs_unlink(struct cfs_inode *dir, const char *name);
struct cfs_entry *cfs_lookup(const struct cfs_inode *dir, const char *name);
void cfs_copy_inode(struct cfs_inode *to, const struct cfs_inode *from);
void cfs_free_inodes(struct cfs_inode *nodes, size_t n);

#endif
