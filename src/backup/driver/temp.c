/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Temporary files of a local repository. Each is written by one call and renamed or removed by it; a process that dies
 * leaves some behind. The first call of a handle that writes looks for those that are older than LOCAL_STALE_MS: should
 * one of them be alive after all, its put fails and is tried again, which harms nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "backup/driver/local.h"

struct sweep {
	struct local *l;
	int64_t now_ms;
};

static int sweep_one(const char *file, void *ctx)
{
	const struct sweep *s = ctx;
	char name[SL_DRIVER_NAME_BYTES], path[LOCAL_PATH_BYTES];
	struct sl_io_stat st;
	int n = snprintf(name, sizeof(name), LOCAL_TMP "/%s", file);
	if (n < 0 || n >= (int)sizeof(name) || strncmp(file, LOCAL_LOCK_PREFIX, strlen(LOCAL_LOCK_PREFIX)) == 0)
		return 0;
	sl__bk_local_path(s->l, name, path);
	if (SL__IO(&s->l->env, stat, path, &st) == 0 && st.mtime_ms < s->now_ms - LOCAL_STALE_MS)
		(void)SL__IO(&s->l->env, unlink, path);
	return 0;
}

/* Once per handle; what cannot be removed is left for another time. now_ms is by the clock of the storage. */
static void sweep(struct local *l, int64_t now_ms)
{
	sl__lock(&l->mu);
	bool swept = l->swept;
	l->swept = true;
	sl__unlock(&l->mu);
	if (swept)
		return;
	char path[LOCAL_PATH_BYTES];
	sl__bk_local_path(l, LOCAL_TMP, path);
	struct sweep s = {.l = l, .now_ms = now_ms};
	(void)SL__IO(&l->env, list, path, sweep_one, &s);
}

static void draw_name(struct local *l, char path[LOCAL_PATH_BYTES])
{
	char name[SL_DRIVER_NAME_BYTES];
	sl__lock(&l->mu);
	uint64_t high = sl__prng_next(&l->prng), low = sl__prng_next(&l->prng);
	sl__unlock(&l->mu);
	(void)snprintf(name, sizeof(name), LOCAL_TMP "/%016llx%016llx", (unsigned long long)high,
		       (unsigned long long)low);
	sl__bk_local_path(l, name, path);
}

/* A new, empty file; its descriptor, or a negative SL_E…. */
static int make(struct local *l, const char *what, char path[LOCAL_PATH_BYTES], struct sl_io_stat *st,
		struct sl_err *err)
{
	int rc = sl__bk_local_need_folder(l, LOCAL_TMP, LOCAL_MADE, err);
	if (rc != 0)
		return rc;
	draw_name(l, path);
	int fd = SL__IO(&l->env, open, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (fd == -ENOENT)
		sl__bk_local_forget_folders(l); /* somebody has removed tmp/: it is made again the next time */
	if (fd < 0)
		return sl_err_set_errno(err, -fd, "repository %s: %s: make a temporary file", l->root, what);
	rc = SL__IO(&l->env, fstat, fd, st);
	if (rc == 0)
		return fd;
	(void)SL__IO(&l->env, close, fd);
	(void)SL__IO(&l->env, unlink, path);
	return sl_err_set_errno(err, -rc, "repository %s: %s: stat a temporary file", l->root, what);
}

/* Around the page cache as far as that goes, which saves a copy of every byte and the work of writing it back, and the
 * rest through it. */
static int fill(const struct local *l, int fd, const char *path, const char *name, const void *bytes, size_t len,
		struct sl_err *err)
{
	size_t done = 0;
	int rc = sl__bk_local_write_direct(l, path, bytes, len, &done);
	if (rc == 0)
		rc = sl__pwrite_full(&l->env, fd, (const uint8_t *)bytes + done, len - done, done);
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "repository %s: write %s", l->root, name);
	rc = SL__IO(&l->env, datasync, fd);
	return rc == 0 ? 0 : sl_err_set_errno(err, -rc, "repository %s: sync %s", l->root, name);
}

int sl__bk_local_write_temp(struct local *l, const char *name, const void *bytes, size_t len,
			    char path[LOCAL_PATH_BYTES], struct sl_err *err)
{
	struct sl_io_stat st;
	int fd = make(l, name, path, &st, err);
	if (fd < 0)
		return fd;
	sweep(l, st.mtime_ms);
	int rc = fill(l, fd, path, name, bytes, len, err);
	(void)SL__IO(&l->env, close, fd);
	if (rc != 0)
		(void)SL__IO(&l->env, unlink, path);
	return rc;
}

/* The time that the storage gives to a file made now: on a mounted folder that is another machine's clock. */
int sl__bk_local_now_ms(void *driver, int64_t *out, struct sl_err *err)
{
	struct local *l = driver;
	char path[LOCAL_PATH_BYTES];
	struct sl_io_stat st;
	int rc = sl__bk_local_check_change(l, "now", err);
	int fd = rc == 0 ? make(l, "ask for the time", path, &st, err) : rc;
	if (fd < 0)
		return fd;
	(void)SL__IO(&l->env, close, fd);
	(void)SL__IO(&l->env, unlink, path);
	*out = st.mtime_ms;
	return 0;
}
