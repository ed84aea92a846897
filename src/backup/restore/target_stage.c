/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stage: where the target was empty, a run makes everything in one folder below it and moves what is in there up
 * when the last file is whole. Files get their names at once that way, and a rename of each is saved.
 *
 * A run that was killed leaves its stage. The next one removes what may be half from it and moves the rest up, whatever
 * it restores itself. A file's time is the last thing that is set, so one whose last change of contents is as young as
 * its last change of any kind is not known to be whole; both times are of one clock, which may be wrong.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backup/restore/target.h"

#define STAGE_SUFFIX "-tree"
#define YOUNG_SECONDS 60 /* what lies between a file's last write and its owner and mode is far less */

static int open_stage(const struct bk_target *t, const char *name)
{
	return sl__bk_open_beneath(t->root, name, O_RDONLY | O_DIRECTORY);
}

int sl__bk_stage_begin(struct bk_target *t, struct sl_err *err)
{
	struct stat st;
	(void)snprintf(t->stage, sizeof(t->stage), BK_TEMP_PREFIX "%s" STAGE_SUFFIX, t->run);
	if (mkdirat(t->root, t->stage, 0700) != 0)
		return sl_err_set_errno(err, errno, "make a folder in the target folder");
	int fd = open_stage(t, t->stage);
	if (fd < 0)
		return sl_err_set_errno(err, errno, "open %s in the target folder", t->stage);
	if (fstat(fd, &st) != 0 || st.st_uid != t->uid) {
		(void)close(fd);
		return sl_err_set(err, SL_EDATA, "%s in the target folder was exchanged", t->stage);
	}
	t->base = fd;
	t->staged = true;
	return 0;
}

/* ---- every name in a folder ---- */

typedef int name_fn(int folder, const struct dirent *d, void *ctx, struct sl_err *err);

static int each_name(int folder, name_fn *fn, void *ctx, struct sl_err *err)
{
	const struct dirent *d;
	int rc = 0, fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	if (dir == NULL) {
		int why = errno;
		if (fd >= 0)
			(void)close(fd);
		return sl_err_set_errno(err, why, "list a folder of the target");
	}
	while (rc == 0 && (d = readdir(dir)) != NULL)
		if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
			rc = fn(folder, d, ctx, err);
	(void)closedir(dir);
	return rc;
}

/* ---- moving up ---- */

struct raising {
	const struct bk_target *t;
	size_t moved;
};

static int raise_one(int folder, const struct dirent *d, void *ctx, struct sl_err *err)
{
	struct raising *r = ctx;
	if (sl__bk_rename_new(folder, d->d_name, r->t->root, d->d_name) == 0) {
		r->moved++;
		return 0;
	}
	if (errno == EEXIST)
		return sl_err_set(err, SL_EEXIST, "%.100s appeared while it was restored to %s; remove one of both",
				  d->d_name, r->t->stage);
	return sl_err_set_errno(err, errno, "move %.100s out of %s", d->d_name, r->t->stage);
}

/* A folder whose names go while they are listed may have to be listed again. */
static int raise_all(const struct bk_target *t, int stage, struct sl_err *err)
{
	struct raising r = {.t = t};
	int rc;
	do {
		r.moved = 0;
		rc = each_name(stage, raise_one, &r, err);
	} while (rc == 0 && r.moved > 0);
	if (rc == 0 && unlinkat(t->root, t->stage, AT_REMOVEDIR) != 0)
		rc = sl_err_set_errno(err, errno, "remove %s", t->stage);
	return rc;
}

int sl__bk_stage_publish(struct bk_target *t, struct sl_err *err)
{
	if (!t->staged)
		return 0;
	t->staged = false;
	int rc = raise_all(t, t->base, err);
	(void)close(t->base);
	t->base = t->root;
	return rc;
}

/* ---- what a run that was killed has left ---- */

struct sweeping {
	struct sl__buf *waiting; /* paths of folders, each with its NUL; the last is next */
	const char *path;        /* of the folder at hand, with a slash behind it, or "" */
};

/* T2: it has its contents, owner, attributes and mode, and then got its time. */
static bool is_whole(const char *name, const struct stat *st)
{
	return strncmp(name, BK_TEMP_PREFIX, strlen(BK_TEMP_PREFIX)) != 0 &&
	       st->st_mtim.tv_sec < st->st_ctim.tv_sec - YOUNG_SECONDS;
}

static int sweep_one(int folder, const struct dirent *d, void *ctx, struct sl_err *err)
{
	const struct sweeping *s = ctx;
	struct stat st;
	if (fstatat(folder, d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return errno == ENOENT ? 0 : sl_err_set_errno(err, errno, "look at %.100s", d->d_name);
	if (S_ISDIR(st.st_mode)) {
		if (sl__buf_append(s->waiting, s->path, strlen(s->path)) == 0 &&
		    sl__buf_append(s->waiting, d->d_name, strlen(d->d_name) + 1) == 0)
			return 0;
		return sl_err_set(err, SL_ENOMEM, "no memory for the folders that an earlier restore has left");
	}
	if (is_whole(d->d_name, &st) || unlinkat(folder, d->d_name, 0) == 0)
		return 0;
	return sl_err_set_errno(err, errno, "remove %.100s, which an earlier restore has left", d->d_name);
}

/* The last path that waits, taken out, with a slash behind it. */
static int take_last(struct sl__buf *waiting, struct sl__buf *path)
{
	const char *all = sl__buf_str(waiting);
	size_t start = waiting->len - 1;
	while (start > 0 && all[start - 1] != '\0')
		start--;
	sl__buf_clear(path);
	if (sl__buf_append(path, all + start, waiting->len - 1 - start) != 0 || sl__buf_append(path, "/", 1) != 0)
		return SL_ENOMEM;
	waiting->len = start;
	return 0;
}

static int sweep_folders(struct bk_target *t, struct sl__buf *waiting, struct sl__buf *path, struct sl_err *err)
{
	struct sweeping s = {.waiting = waiting, .path = ""};
	int rc = each_name(t->base, sweep_one, &s, err);
	while (rc == 0 && waiting->len > 0) {
		if (take_last(waiting, path) != 0)
			return sl_err_set(err, SL_ENOMEM, "no memory for a path");
		int fd = sl__bk_open_path(t, sl__buf_str(path), path->len - 1, O_RDONLY);
		if (fd < 0)
			return sl_err_set_errno(err, errno, "open %.150s, which an earlier restore has left",
						sl__buf_str(path));
		s.path = sl__buf_str(path);
		rc = each_name(fd, sweep_one, &s, err);
		(void)close(fd);
	}
	return rc;
}

static int sweep(struct bk_target *t, struct sl_err *err)
{
	struct sl__buf waiting, path;
	sl__buf_init(&waiting, t->env);
	sl__buf_init(&path, t->env);
	int rc = sweep_folders(t, &waiting, &path, err);
	sl__buf_fini(&waiting);
	sl__buf_fini(&path);
	return rc;
}

static int find_stage(SL_UNUSED int folder, const struct dirent *d, void *ctx, SL_UNUSED struct sl_err *err)
{
	struct bk_target *t = ctx;
	size_t n = strlen(d->d_name), suffix = strlen(STAGE_SUFFIX);
	if (n < sizeof(t->stage) && n > suffix && strcmp(d->d_name + n - suffix, STAGE_SUFFIX) == 0 &&
	    strncmp(d->d_name, BK_TEMP_PREFIX, strlen(BK_TEMP_PREFIX)) == 0)
		memcpy(t->stage, d->d_name, n + 1);
	return 0;
}

int sl__bk_stage_recover(struct bk_target *t, struct sl_err *err)
{
	t->stage[0] = '\0';
	int rc = each_name(t->root, find_stage, t, err);
	if (rc != 0 || t->stage[0] == '\0')
		return rc;
	int fd = open_stage(t, t->stage);
	if (fd < 0)
		return errno == ENOTDIR || errno == ELOOP ? 0 : sl_err_set_errno(err, errno, "open %s", t->stage);
	t->base = fd;
	rc = sweep(t, err);
	if (rc == 0)
		rc = raise_all(t, fd, err);
	t->base = t->root;
	(void)close(fd);
	return rc;
}
