/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which file is which: files are known by device, inode and content, because names move when logs are rotated.
 *
 * sl_is_rotated_name knows the rotated names of a file. Compressed files are not read.
 *
 * A file that came between the one that was read last and the one that has the name now was never seen. It is one with
 * a rotated name that was born and written since reading of the former began, and that is no copy of one that was read.
 *
 * Thread safety: none needed. Ownership: what is found belongs to the caller.
 */
#ifndef SLUICE_CLI_SHIPFILE_H
#define SLUICE_CLI_SHIPFILE_H

#include "shipstate.h"

#include <sys/stat.h>

struct shipfile {
	int fd;
	char name[256]; /* in its folder */
	uint64_t dev, ino, size;
	int64_t born_ns; /* when it was made, or last written where the file system does not know */
	int64_t seen_ns; /* just before it was opened: what takes its place later is not older */
};

/* Now, by the clock that stamps files. */
int64_t shipfile_now_ns(void);
/* 1: the file behind fd is the one of the place, and reaches as far. */
int shipfile_is_at(int fd, const struct ship_place *place);
/* Open a regular file. 0, or an errno; EINVAL: it is no regular file. */
int shipfile_open(const char *path, struct shipfile *out);
void shipfile_close(struct shipfile *f);

/* Find the file of a place in a folder under whatever name, else a copy of it under a rotated name of base. 1: found.
 */
int shipfile_find(const char *dir, const char *base, const struct ship_place *place, struct shipfile *out);
/* A copy only: for one that was truncated under its reader. */
int shipfile_find_copy(const char *dir, const char *base, const struct ship_place *place, struct shipfile *out);
/* When the file behind fd was made, as in born_ns; 0 when that cannot be told. */
int64_t shipfile_born_ns(int fd);
/* Files that were never seen, the oldest first. skip says which are known, or not to be read now. *out is malloc'ed: *n
 * of them. 0, or an errno. */
typedef int shipfile_skip_fn(const struct shipfile *file, void *ctx);
int shipfile_unseen(const char *dir, const char *base, const struct ship_place *after, shipfile_skip_fn *skip,
		    void *ctx, struct shipfile **out, size_t *n);

#endif
