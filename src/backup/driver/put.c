/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of a local repository: temporary files, put, rename, remove, and scheduled puts by a few threads.
 *
 * Each temporary file is written by one call and renamed or removed by it; a process that dies leaves some. The first
 * put of a handle removes those that are older than LOCAL_STALE_MS: should one of them be in use after all, its put
 * fails and is retried, which is harmless.
 *
 * Packs are written around the page cache. A pack is written once and read, if ever, days later: in the page cache it
 * would push out what others need, and the copy into it and the writing back cost more than half as much as hashing the
 * pack. Not every file system supports it, and each has its rules. What could not be written that way is written through
 * the page cache, and one sync covers both.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "backup/driver/local.h"

/* ---- temporary files ---- */

struct sweep {
	struct local *l;
	int64_t now_ms;
};

static int sweep_temp_file(const char *file, void *ctx)
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

/* A new, empty file; its descriptor, or a negative SL_E…. */
static int make_temp(struct local *l, const char *what, char path[LOCAL_PATH_BYTES], struct sl_io_stat *st,
		     struct sl_err *err)
{
	char name[SL_DRIVER_NAME_BYTES];
	int rc = sl__bk_local_need_folder(l, LOCAL_TMP, LOCAL_MADE, err);
	if (rc != 0)
		return rc;
	sl__lock(&l->mu);
	uint64_t high = sl__prng_next(&l->prng), low = sl__prng_next(&l->prng);
	sl__unlock(&l->mu);
	(void)snprintf(name, sizeof(name), LOCAL_TMP "/%016llx%016llx", (unsigned long long)high,
		       (unsigned long long)low);
	sl__bk_local_path(l, name, path);
	int fd = SL__IO(&l->env, open, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (fd == -ENOENT)
		sl__bk_local_forget_folders(l); /* tmp/ was removed: the next call makes it again */
	if (fd < 0)
		return sl_err_set_errno(err, -fd, "repository %s: %s: create a temporary file", l->root, what);
	rc = SL__IO(&l->env, fstat, fd, st);
	if (rc == 0)
		return fd;
	(void)SL__IO(&l->env, close, fd);
	(void)SL__IO(&l->env, unlink, path);
	return sl_err_set_errno(err, -rc, "repository %s: %s: stat a temporary file", l->root, what);
}

/* Write the beginning of a file around the page cache, where that is possible: *done bytes, a multiple of
 * LOCAL_DIRECT_ALIGN, are written and not durable yet. 0, or a negative errno: the file is unusable. */
static int write_direct(const struct local *l, const char *path, const struct local_object *o, size_t *done)
{
	*done = 0;
	/* Only whole pages, from whole pages: what all file systems and devices accept. */
	if (o->len < LOCAL_DIRECT_MIN || (uintptr_t)o->bytes % LOCAL_DIRECT_ALIGN != 0)
		return 0;
	int fd = SL__IO(&l->env, open, path, O_WRONLY | O_NOFOLLOW | O_DIRECT, 0);
	if (fd == -EINVAL || fd == -EOPNOTSUPP)
		return 0;
	if (fd < 0)
		return fd;
	size_t whole = o->len - o->len % LOCAL_DIRECT_ALIGN, at = 0;
	ssize_t n = 1;
	while (at < whole && n > 0 && at % LOCAL_DIRECT_ALIGN == 0) {
		n = SL__IO(&l->env, pwrite, fd, (const uint8_t *)o->bytes + at, whole - at, at);
		at += n > 0 ? (size_t)n : 0;
	}
	(void)SL__IO(&l->env, close, fd);
	if (n < 0 && n != -EINVAL && n != -EOPNOTSUPP)
		return (int)n;
	*done = at - at % LOCAL_DIRECT_ALIGN; /* a page that was begun is written again */
	return 0;
}

/* The time that the storage gives to a new file: on a mounted folder that is another machine's clock. */
int sl__bk_local_now_ms(void *driver, int64_t *out, struct sl_err *err)
{
	struct local *l = driver;
	char path[LOCAL_PATH_BYTES];
	struct sl_io_stat st;
	int rc = sl__bk_local_check_change(l, "now", err);
	if (rc != 0)
		return rc;
	int fd = make_temp(l, "read the clock", path, &st, err);
	if (fd < 0)
		return fd;
	(void)SL__IO(&l->env, close, fd);
	(void)SL__IO(&l->env, unlink, path);
	*out = st.mtime_ms;
	return 0;
}

/* ---- put ---- */

/* Write the bytes to a temporary file, make them durable (D1), and rename it. On failure no temporary file is left. */
static int put_named(struct local *l, const struct local_object *o, bool replace, struct sl_err *err)
{
	char temp[LOCAL_PATH_BYTES], path[LOCAL_PATH_BYTES];
	struct sl_io_stat st;
	size_t done = 0;
	const char *failed = "write";
	int fd = make_temp(l, o->name, temp, &st, err);
	if (fd < 0)
		return fd;
	/* Remove stale temporary files, once per handle; those that cannot be removed stay. The new file has the time of
	 * the storage's clock. */
	sl__lock(&l->mu);
	bool swept = l->swept;
	l->swept = true;
	sl__unlock(&l->mu);
	if (!swept) {
		struct sweep s = {.l = l, .now_ms = st.mtime_ms};
		sl__bk_local_path(l, LOCAL_TMP, path);
		(void)SL__IO(&l->env, list, path, sweep_temp_file, &s);
	}
	int rc = write_direct(l, temp, o, &done);
	if (rc == 0)
		rc = sl__pwrite_full(&l->env, fd, (const uint8_t *)o->bytes + done, o->len - done, done);
	if (rc == 0) {
		failed = "sync";
		rc = SL__IO(&l->env, datasync, fd);
	}
	(void)SL__IO(&l->env, close, fd);
	if (rc == 0) {
		failed = "rename a temporary file to";
		sl__bk_local_path(l, o->name, path);
		rc = SL__IO(&l->env, rename, temp, path, !replace);
		if (rc == -ENOENT)
			sl__bk_local_forget_folders(l);
	}
	if (rc == 0) {
		sl__bk_local_drop_cached(l, o->name);
		return 0;
	}
	(void)SL__IO(&l->env, unlink, temp);
	return sl_err_set_errno(err, -rc, "repository %s: %s %s", l->root, failed, o->name);
}

/* 0 or a negative errno: -ENOENT when the open file is no longer the one of that name. */
static int rewrite_open(struct local *l, const struct local_object *o, const char *path, int fd)
{
	struct sl_io_stat open, named;
	int rc = sl__pwrite_full(&l->env, fd, o->bytes, o->len, 0);
	if (rc != 0)
		return rc;
	rc = SL__IO(&l->env, truncate, fd, o->len);
	if (rc != 0)
		return rc;
	rc = SL__IO(&l->env, datasync, fd);
	if (rc != 0)
		return rc;
	rc = SL__IO(&l->env, fstat, fd, &open);
	if (rc != 0)
		return rc;
	rc = SL__IO(&l->env, stat, path, &named);
	if (rc != 0)
		return rc;
	return open.dev == named.dev && open.ino == named.ino ? 0 : -ENOENT;
}

/* In place, so that a name that was removed meanwhile does not come back. */
static int update_object(struct local *l, const struct local_object *o, struct sl_err *err)
{
	char path[LOCAL_PATH_BYTES];
	sl__bk_local_path(l, o->name, path);
	int fd = SL__IO(&l->env, open, path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK, 0);
	if (fd < 0)
		return sl_err_set_errno(err, -fd, "repository %s: open %s", l->root, o->name);
	int rc = rewrite_open(l, o, path, fd);
	(void)SL__IO(&l->env, close, fd);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "repository %s: update %s", l->root, o->name);
	return 0;
}

int sl__bk_local_put(void *driver, const char *name, const void *bytes, size_t len, enum sl_driver_put how,
		     struct sl_err *err)
{
	struct local *l = driver;
	const struct local_object o = {.name = name, .bytes = bytes, .len = len};
	char folder[SL_DRIVER_NAME_BYTES];
	int rc = sl__bk_local_check_change(l, name, err);
	if (rc != 0)
		return rc;
	if (how == SL_DRIVER_UPDATE)
		return update_object(l, &o, err);
	sl__bk_local_folder_of(name, folder);
	rc = sl__bk_local_need_folder(l, folder, LOCAL_DURABLE, err);
	if (rc == 0)
		rc = put_named(l, &o, how == SL_DRIVER_REPLACE, err);
	if (rc == 0)
		rc = sl__bk_local_sync_folder(l, folder, err);
	return rc;
}

/* A rename is one atomic change: only the folder of the new name is synced. */
int sl__bk_local_rename(void *driver, const char *from, const char *to, struct sl_err *err)
{
	struct local *l = driver;
	char from_path[LOCAL_PATH_BYTES], to_path[LOCAL_PATH_BYTES];
	char to_folder[SL_DRIVER_NAME_BYTES];
	int rc = sl__bk_local_check_change(l, from, err);
	if (rc == 0)
		rc = sl__bk_local_check(l, to, err);
	if (rc != 0)
		return rc;
	sl__bk_local_folder_of(to, to_folder);
	rc = sl__bk_local_need_folder(l, to_folder, LOCAL_DURABLE, err);
	if (rc != 0)
		return rc;
	sl__bk_local_path(l, from, from_path);
	sl__bk_local_path(l, to, to_path);
	rc = SL__IO(&l->env, rename, from_path, to_path, 1);
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "repository %s: rename %s to %s", l->root, from, to);
	sl__bk_local_drop_cached(l, from);
	sl__bk_local_drop_cached(l, to);
	return sl__bk_local_sync_folder(l, to_folder, err);
}

int sl__bk_local_remove(void *driver, const char *name, struct sl_err *err)
{
	struct local *l = driver;
	char path[LOCAL_PATH_BYTES], folder[SL_DRIVER_NAME_BYTES];
	int rc = sl__bk_local_check_change(l, name, err);
	if (rc != 0)
		return rc;
	sl__bk_local_path(l, name, path);
	sl__bk_local_folder_of(name, folder);
	rc = SL__IO(&l->env, unlink, path);
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "repository %s: remove %s", l->root, name);
	sl__bk_local_drop_cached(l, name);
	return sl__bk_local_sync_folder(l, folder, err);
}

/* ---- scheduled puts: a queue, which the block writer bounds, and the threads of a pool ---- */

struct local_job {
	struct local_job *next;
	char name[SL_DRIVER_NAME_BYTES];
	struct local_object object;
	sl_driver_done_fn *done;
	void *ctx;
};

/* Until the handle is closed and the queue is empty. */
static void put_scheduled(SL_UNUSED unsigned index, void *ctx)
{
	struct local *l = ctx;
	for (;;) {
		sl__lock(&l->mu);
		while (l->first == NULL && !sl__pool_stopping(l->pool))
			(void)sl__wait(&l->env, &l->more, &l->mu, SL_FOREVER);
		struct local_job *job = l->first;
		if (job != NULL && (l->first = job->next) == NULL)
			l->last = NULL;
		sl__unlock(&l->mu);
		if (job == NULL)
			return;
		/* D1, and the folder is marked for the next sync. */
		struct sl_err err = SL_ERR_INIT;
		char folder[SL_DRIVER_NAME_BYTES];
		sl__bk_local_folder_of(job->name, folder);
		int rc = sl__bk_local_check_change(l, job->name, &err);
		if (rc == 0)
			rc = sl__bk_local_need_folder(l, folder, LOCAL_MADE, &err);
		if (rc == 0)
			rc = put_named(l, &job->object, true, &err);
		if (rc == 0)
			rc = sl__bk_local_mark_folder(l, folder, &err);
		sl_driver_done_fn *done = job->done;
		void *done_ctx = job->ctx;
		sl__free(&l->env, job);
		done(rc == 0 ? NULL : &err, done_ctx);
	}
}

static void wake_threads(void *ctx)
{
	struct local *l = ctx;
	sl__lock(&l->mu);
	sl__broadcast(&l->more);
	sl__unlock(&l->mu);
}

int sl__bk_local_schedule_put(void *driver, const char *name, const void *bytes, size_t len, sl_driver_done_fn *done,
			      void *ctx, struct sl_err *err)
{
	struct local *l = driver;
	int rc = sl__bk_local_check_change(l, name, err);
	if (rc != 0)
		return rc;
	sl__lock(&l->starting);
	if (l->pool == NULL)
		rc = sl__pool_start(&l->pool, &l->env, "backup-put", l->threads, put_scheduled, wake_threads, l, err);
	sl__unlock(&l->starting);
	if (rc != 0)
		return rc;
	struct local_job *job = sl__calloc(&l->env, 1, sizeof(*job));
	if (job == NULL)
		return sl_err_set(err, SL_ENOMEM, "repository %s: put %s: out of memory", l->root, name);
	*job = (struct local_job){.object = {.bytes = bytes, .len = len}, .done = done, .ctx = ctx};
	memcpy(job->name, name, strlen(name) + 1);
	job->object.name = job->name;
	sl__lock(&l->mu);
	if (l->last != NULL)
		l->last->next = job;
	else
		l->first = job;
	l->last = job;
	sl__signal(&l->more);
	sl__unlock(&l->mu);
	return 0;
}
