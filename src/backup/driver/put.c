/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of a local repository: put, rename, remove. */
#include <errno.h>
#include <fcntl.h>

#include "backup/driver/local.h"

/* Give the bytes their name. On failure there is no temporary file left. */
static int put_named(struct local *l, const char *name, const void *bytes, size_t len, bool replace, struct sl_err *err)
{
	char temp[LOCAL_PATH_BYTES], path[LOCAL_PATH_BYTES];
	int rc = sl__bk_local_write_temp(l, name, bytes, len, temp, err);
	if (rc != 0)
		return rc;
	sl__bk_local_path(l, name, path);
	rc = SL__IO(&l->env, rename, temp, path, !replace);
	if (rc == 0) {
		sl__bk_local_drop_cached(l, name);
		return 0;
	}
	(void)SL__IO(&l->env, unlink, temp);
	if (rc == -ENOENT)
		sl__bk_local_forget_folders(l);
	return sl_err_set_errno(err, -rc, "repository %s: rename a temporary file to %s", l->root, name);
}

int sl__bk_local_put_unsynced(struct local *l, const char *name, const void *bytes, size_t len, struct sl_err *err)
{
	char folder[SL_DRIVER_NAME_BYTES];
	sl__bk_local_folder_of(name, folder);
	int rc = sl__bk_local_check_change(l, name, err);
	if (rc == 0)
		rc = sl__bk_local_need_folder(l, folder, LOCAL_MADE, err);
	if (rc == 0)
		rc = put_named(l, name, bytes, len, true, err);
	return rc == 0 ? sl__bk_local_mark_folder(l, folder, err) : rc;
}

/* Whether the open file is still the one of that name. */
static int still_there(const struct local *l, int fd, const char *path)
{
	struct sl_io_stat open, named;
	int rc = SL__IO(&l->env, fstat, fd, &open);
	if (rc == 0)
		rc = SL__IO(&l->env, stat, path, &named);
	if (rc == 0 && (open.dev != named.dev || open.ino != named.ino))
		rc = -ENOENT;
	return rc;
}

/* In place, so that a name that somebody has removed meanwhile does not come back. */
static int update(struct local *l, const char *name, const void *bytes, size_t len, struct sl_err *err)
{
	char path[LOCAL_PATH_BYTES];
	sl__bk_local_path(l, name, path);
	int fd = SL__IO(&l->env, open, path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK, 0);
	if (fd < 0)
		return sl_err_set_errno(err, -fd, "repository %s: open %s", l->root, name);
	int rc = sl__pwrite_full(&l->env, fd, bytes, len, 0);
	if (rc == 0)
		rc = SL__IO(&l->env, truncate, fd, len);
	if (rc == 0)
		rc = SL__IO(&l->env, datasync, fd);
	if (rc == 0)
		rc = still_there(l, fd, path);
	(void)SL__IO(&l->env, close, fd);
	return rc == 0 ? 0 : sl_err_set_errno(err, -rc, "repository %s: update %s", l->root, name);
}

int sl__bk_local_put(void *driver, const char *name, const void *bytes, size_t len, enum sl_driver_put how,
		     struct sl_err *err)
{
	struct local *l = driver;
	int rc = sl__bk_local_check_change(l, name, err);
	if (rc != 0 || how == SL_DRIVER_UPDATE)
		return rc != 0 ? rc : update(l, name, bytes, len, err);
	char folder[SL_DRIVER_NAME_BYTES];
	sl__bk_local_folder_of(name, folder);
	rc = sl__bk_local_need_folder(l, folder, LOCAL_DURABLE, err);
	if (rc == 0)
		rc = put_named(l, name, bytes, len, how == SL_DRIVER_REPLACE, err);
	return rc == 0 ? sl__bk_local_sync_folder(l, folder, err) : rc;
}

/* A rename is one change, whole or not there: where it went to is the folder to sync. */
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
