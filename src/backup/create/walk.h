/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree of files, told name by name in the order of a manifest: depth first, names by their bytes. Folders are read
 * through descriptors and symbolic links are never followed, so nobody can lead the walk elsewhere by moving things
 * about. At most BK_WALK_FDS folders are open at once, however deep the tree is; of a folder all names are in memory.
 *
 * Thread safety: one thread at a time per walk. Ownership: what the callback gets lives until it returns.
 */
#ifndef SL_BACKUP_WALK_H
#define SL_BACKUP_WALK_H

#include <sys/stat.h>

#include "backup/create/exclude.h"
#include <sluice/backup.h>

#define BK_WALK_FDS 64

/* What is backed up: real absolute paths without the leading slash, in the order of manifests, none below another. */
struct bk_root {
	char *path;  /* "" is the root folder */
	char *given; /* as the caller wrote it, without slashes at its end */
};
struct bk_roots {
	struct bk_root *roots;
	size_t n;
};
/* A path that is a symbolic link to a folder stands for that folder; other links stand for themselves. SL_ENOENT,
 * SL_EINVAL. */
SL_MUST_CHECK int sl__bk_roots_init(struct bk_roots *out, const struct sl_env *env, const char *const *paths, size_t n,
				    struct sl_err *err);
void sl__bk_roots_fini(const struct sl_env *env, struct bk_roots *r);

struct bk_visit {
	const char *path; /* as in a manifest */
	size_t path_len;
	int dir;          /* descriptor of the folder that it is in; -1 of a folder above a root */
	const char *name; /* its last component */
	int fd;           /* of a folder itself, or -1: it could not be opened (reported), or it is no folder */
	struct stat st;
	/* It may be a database by its size, and a -wal or -journal file is beside it. */
	bool has_journal;
	/* Set by the callback: this is a database, its -wal, -shm and -journal are not to be told; or only its -shm,
	 * which holds nothing but locks of those who have it open. */
	bool leave_out_journal, leave_out_shm;
};
typedef int bk_visit_fn(struct bk_visit *v, void *ctx, struct sl_err *err);
typedef void bk_walk_problem_fn(enum sl_backup_problem problem, const char *path, const struct sl_err *err, void *ctx);

struct bk_walk_opts {
	const struct bk_roots *roots;
	const struct bk_excludes *excludes;
	bool one_file_system;
	bk_visit_fn *visit; /* 0 to go on; another value ends the walk and becomes its result */
	bk_walk_problem_fn *problem;
	void *ctx;
};
SL_MUST_CHECK int sl__bk_walk(const struct sl_env *env, const struct bk_walk_opts *opts, struct sl_err *err);

/* Could it be an SQLite database? Those are whole pages, of 512 bytes at least. */
static inline bool sl__bk_maybe_database(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_size >= 512 && st->st_size % 512 == 0;
}

/* ---- the calls that touch the tree (walk_fs.c): descriptors of the system, 0 or more, or a negative errno ---- */

/* The root folder, from which paths of manifests lead. */
int sl__bk_tree_root(void);
/* Open a path of a manifest below root (a descriptor of the root folder) without following any symbolic link, however
 * long the path is. owner: whose file it is, so that O_NOATIME is used only where it is allowed. */
int sl__bk_tree_open(int root, const char *path, size_t len, int flags, uid_t owner);
/* The same for one name in a folder. */
int sl__bk_tree_open_in(int dir, const char *name, int flags, uid_t owner);
void sl__bk_tree_close(int *fd);

/* All names of a folder but "." and "..": fn gets each. */
typedef int bk_tree_name_fn(const char *name, void *ctx);
int sl__bk_tree_list(int fd, bk_tree_name_fn *fn, void *ctx);

#endif
