/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which file is which: files are identified by device, inode and content, because names move when logs are rotated.
 *
 * sl_is_rotated_name knows the rotated names of a file. Compressed files are not read.
 *
 * A file is unseen when it came after the one that was read last and was rotated before it was read: it has a rotated
 * name, was created and written since reading of the former began, and is not a copy of a file that was read.
 *
 * These are files of other programs, read in place with statx and openat: plain system calls, not the table of the
 * environment.
 *
 * Thread safety: no state. Ownership: what is found belongs to the caller.
 */
#ifndef SL_SHIP_FILE_H
#define SL_SHIP_FILE_H

#include "ship/state.h"

#include <sys/stat.h>

struct ship_file {
	int fd;
	char name[256]; /* in its folder */
	uint64_t dev, ino, size;
	int64_t born_ns; /* when it was created, or last written where the file system does not record that */
	int64_t seen_ns; /* just before it was opened: what takes its place later is not older */
};

/* Where a file and its rotated versions are. */
struct ship_folder {
	const struct sl_env *env;
	char *dir;
	const char *base; /* the name of the file in it */
};

/* Now, by the clock that stamps files. */
int64_t sl__ship_file_now_ns(void);
/* Is the file of fd the one of the place, and does it reach as far? */
bool sl__ship_file_is_at(int fd, const struct ship_place *place);
/* Open a regular file, without waiting. 0, or an errno; EINVAL: not a regular file. */
int sl__ship_file_open(const char *path, struct ship_file *out);
void sl__ship_file_close(struct ship_file *f);
/* When the file of fd was created, as in born_ns; 0: not known. */
int64_t sl__ship_file_born_ns(int fd);

/* Find the file of a place under any name in its folder, else a copy of it under a rotated name. */
bool sl__ship_file_find(const struct ship_folder *in, const struct ship_place *place, struct ship_file *out);
/* A copy only: for a file that was truncated while it was read. */
bool sl__ship_file_find_copy(const struct ship_folder *in, const struct ship_place *place, struct ship_file *out);

/* true: the file is known, or not to be read now. */
typedef bool ship_file_skip_fn(const struct ship_file *file, void *ctx);
struct ship_files {
	struct ship_file *files; /* the caller frees them with sl__free */
	size_t n;
};
/* Unseen files after a place, the oldest first. SL_ENOMEM. */
int sl__ship_file_unseen(const struct ship_folder *in, const struct ship_place *after, ship_file_skip_fn *skip,
			 void *ctx, struct ship_files *out);

#endif
