/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A walk over a tree of files, name by name in the order of a manifest: depth first, names compared by their bytes.
 * Folders are read through descriptors and symbolic links are never followed, so that moving folders cannot lead the
 * walk elsewhere. At most BK_WALK_FDS folders are open at the same time, however deep the tree is; all names of an open
 * folder are in memory.
 *
 * Thread safety: one thread at a time per walk. Ownership: what the callback gets is valid until it returns.
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
/* A symbolic link to a folder means that folder; other links are backed up as links. SL_ENOENT, SL_EINVAL. */
SL_MUST_CHECK int sl__bk_roots_init(struct bk_roots *out, const struct sl_env *env, const char *const *paths, size_t n,
				    struct sl_err *err);
void sl__bk_roots_fini(const struct sl_env *env, struct bk_roots *r);

struct bk_visit {
	const char *path; /* as in a manifest */
	size_t path_len;
	int dir;          /* descriptor of its folder; -1 for a folder above a root */
	const char *name; /* its last component */
	int fd;           /* of a folder itself, or -1: it could not be opened (reported), or it is not a folder */
	struct stat st;
	/* It may be a database by its size, and has a -wal or -journal file next to it. */
	bool has_journal;
	/* Set by the callback: this is a database, and its -wal, -shm and -journal must not be visited; or only its
	 * -shm, which holds nothing but locks of the processes that have it open. */
	bool leave_out_journal, leave_out_shm;
};
typedef int bk_visit_fn(struct bk_visit *v, struct sl_err *err, void *ctx);
typedef void bk_walk_problem_fn(enum sl_backup_problem problem, const char *path, const struct sl_err *err, void *ctx);

struct bk_walk_opts {
	const struct bk_roots *roots;
	const struct bk_excludes *excludes;
	bool one_file_system;
	bk_visit_fn *visit;          /* 0 to continue; another value ends the walk and is its result */
	bk_walk_problem_fn *problem; /* NULL: not reported */
	void *ctx;
};
SL_MUST_CHECK int sl__bk_walk(const struct sl_env *env, const struct bk_walk_opts *opts, struct sl_err *err);

/* Could it be an SQLite database? They consist of whole pages of at least 512 bytes. */
static inline bool sl__bk_maybe_database(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_size >= 512 && st->st_size % 512 == 0;
}

/* ---- the calls that access the tree (walk_fs.c): descriptors of the system, 0 or more, or a negative errno ---- */

/* The root folder, from which paths of manifests lead. */
int sl__bk_tree_root(void);
/* Open a path of a manifest below root (a descriptor of the root folder) without following any symbolic link, however
 * long the path is. owner: of the file, so that O_NOATIME is used only where it is allowed. */
int sl__bk_tree_open(int root, const char *path, size_t len, int flags, uid_t owner);
/* The same for one name in a folder. */
int sl__bk_tree_open_in(int dir, const char *name, int flags, uid_t owner);
void sl__bk_tree_close(int *fd);

/* Pass all names of a folder except "." and ".." to fn. */
typedef int bk_tree_name_fn(const char *name, void *ctx);
int sl__bk_tree_list(int fd, bk_tree_name_fn *fn, void *ctx);

#endif
