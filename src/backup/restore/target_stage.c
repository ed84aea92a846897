/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stage: when the target was empty, a run creates everything in one folder below it and moves its contents up when
 * the last file is complete. This way files get their names immediately, and a rename of each is saved.
 *
 * A run that was killed leaves its stage. The next run, whatever it restores, removes what may be incomplete from it
 * and moves the rest up. The time of a file is set last. So a file whose last change of contents is about as recent as
 * its last change of any kind is not known to be complete; both times are from the same clock, which may be wrong.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backup/restore/target.h"

#define STAGE_SUFFIX "-tree"
#define YOUNG_SECONDS 60 /* setting owner and mode after the last write takes far less */

int sl__bk_stage_begin(struct bk_target *t, struct sl_err *err)
{
	struct stat st;
	(void)snprintf(t->stage, sizeof(t->stage), BK_TEMP_PREFIX "%s" STAGE_SUFFIX, t->run);
	if (mkdirat(t->root, t->stage, 0700) != 0)
		return sl_err_set_errno(err, errno, "create a folder in the target folder");
	int fd = sl__bk_open_beneath(t->root, t->stage, O_RDONLY | O_DIRECTORY);
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

typedef int stage_name_fn(int folder, const struct dirent *d, struct sl_err *err, void *ctx);

static int each_name(int folder, stage_name_fn *fn, void *ctx, struct sl_err *err)
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
			rc = fn(folder, d, err, ctx);
	(void)closedir(dir);
	return rc;
}

/* ---- moving up ---- */

struct stage_moving {
	const struct bk_target *t;
	size_t moved;
};

static int move_up(int folder, const struct dirent *d, struct sl_err *err, void *ctx)
{
	struct stage_moving *m = ctx;
	if (sl__bk_rename_new(folder, d->d_name, m->t->root, d->d_name) == 0) {
		m->moved++;
		return 0;
	}
	if (errno == EEXIST)
		return sl_err_set(err, SL_EEXIST, "%.100s appeared while it was restored to %s; remove one of them",
				  d->d_name, m->t->stage);
	return sl_err_set_errno(err, errno, "move %.100s out of %s", d->d_name, m->t->stage);
}

/* A folder whose names are removed while it is listed may have to be listed again. */
static int move_all_up(const struct bk_target *t, int stage, struct sl_err *err)
{
	struct stage_moving m = {.t = t};
	int rc;
	do {
		m.moved = 0;
		rc = each_name(stage, move_up, &m, err);
	} while (rc == 0 && m.moved > 0);
	if (rc == 0 && unlinkat(t->root, t->stage, AT_REMOVEDIR) != 0)
		rc = sl_err_set_errno(err, errno, "remove %s", t->stage);
	return rc;
}

int sl__bk_stage_publish(struct bk_target *t, struct sl_err *err)
{
	if (!t->staged)
		return 0;
	t->staged = false;
	int rc = move_all_up(t, t->base, err);
	(void)close(t->base);
	t->base = t->root;
	return rc;
}

/* ---- the stage of a run that was killed ---- */

struct stage_sweeping {
	struct sl__buf waiting; /* paths of folders, each with its NUL; the last is next */
	struct sl__buf path;    /* of the current folder, with a slash at its end, or empty */
};

/* Remove a file that may be incomplete; put a folder on the list. */
static int sweep_name(int folder, const struct dirent *d, struct sl_err *err, void *ctx)
{
	struct stage_sweeping *s = ctx;
	struct stat st;
	if (fstatat(folder, d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return errno == ENOENT ? 0 : sl_err_set_errno(err, errno, "stat %.100s", d->d_name);
	if (S_ISDIR(st.st_mode)) {
		if (sl__buf_append(&s->waiting, sl__buf_str(&s->path), s->path.len) == 0 &&
		    sl__buf_append(&s->waiting, d->d_name, strlen(d->d_name) + 1) == 0)
			return 0;
		return sl__no_memory(err, "recover an earlier restore");
	}
	/* T2: a complete file had its contents, owner, attributes and mode before it got its time. */
	bool complete = strncmp(d->d_name, BK_TEMP_PREFIX, strlen(BK_TEMP_PREFIX)) != 0 &&
			st.st_mtim.tv_sec < st.st_ctim.tv_sec - YOUNG_SECONDS;
	if (complete || unlinkat(folder, d->d_name, 0) == 0)
		return 0;
	return sl_err_set_errno(err, errno, "remove %.100s, which an earlier restore has left", d->d_name);
}

static int find_stage(SL_UNUSED int folder, const struct dirent *d, SL_UNUSED struct sl_err *err, void *ctx)
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
	int fd = sl__bk_open_beneath(t->root, t->stage, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return errno == ENOTDIR || errno == ELOOP ? 0 : sl_err_set_errno(err, errno, "open %s", t->stage);
	t->base = fd;
	struct stage_sweeping s;
	sl__buf_init(&s.waiting, t->env);
	sl__buf_init(&s.path, t->env);
	rc = each_name(fd, sweep_name, &s, err);
	while (rc == 0 && s.waiting.len > 0) {
		/* Take the last path off the list. */
		const char *all = sl__buf_str(&s.waiting);
		size_t start = s.waiting.len - 1;
		while (start > 0 && all[start - 1] != '\0')
			start--;
		sl__buf_clear(&s.path);
		if (sl__buf_append(&s.path, all + start, s.waiting.len - 1 - start) != 0 ||
		    sl__buf_append(&s.path, "/", 1) != 0) {
			rc = sl__no_memory(err, "recover an earlier restore");
			break;
		}
		s.waiting.len = start;

		int folder = sl__bk_open_path(t, sl__buf_str(&s.path), s.path.len - 1, O_RDONLY);
		if (folder < 0) {
			rc = sl_err_set_errno(err, errno, "open %.150s, which an earlier restore has left",
					      sl__buf_str(&s.path));
			break;
		}
		rc = each_name(folder, sweep_name, &s, err);
		(void)close(folder);
	}
	sl__buf_fini(&s.waiting);
	sl__buf_fini(&s.path);
	if (rc == 0)
		rc = move_all_up(t, fd, err);
	t->base = t->root;
	(void)close(fd);
	return rc;
}
