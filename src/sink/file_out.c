/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One write and one sync per append, always at `end`. When one of them fails, `end` stays, and the file is cut there
 * and synced before anything else is written: what the kernel kept of a write whose sync failed is written again, not
 * trusted, and does not come back after a power loss.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "base/time.h"
#include "sink/file_out.h"

#define COPY_BYTES ((size_t)256 << 10)

static int file_failed(const struct sl__file_out *f, int rc, const char *doing, struct sl_err *err)
{
	return sl_err_set_errno(err, -rc, "%s %s", doing, f->path);
}

void sl__file_out_close(struct sl__file_out *f)
{
	sl__close_fd(f->env, &f->fd);
}

static int sync_folder(const struct sl__file_out *f, struct sl_err *err)
{
	char *dir = sl__dirname(f->env, f->path);
	if (dir == NULL)
		return sl__no_memory(err, f->path);
	int rc = sl__sync_dir(f->env, dir);
	sl__free(f->env, dir);
	if (rc != 0)
		return file_failed(f, rc, "sync the folder of", err);
	return 0;
}

/* ---- what was torn ---- */

/* Copy what follows `from` into a new file PATH.torn-NNN, durably. */
static int save_torn_end(const struct sl__file_out *f, uint64_t from, uint64_t size, struct sl_err *err)
{
	static const char saving[] = "save the torn end of";
	char *name = NULL, *buf = sl__alloc(f->env, COPY_BYTES);
	if (buf == NULL)
		return sl__no_memory(err, f->path);
	int rc = 0, fd = -EEXIST;
	for (unsigned i = 0; fd == -EEXIST && i < 1000 && rc == 0; i++) {
		sl__free(f->env, name);
		name = sl__asprintf(f->env, "%s.torn-%03u", f->path, i);
		if (name == NULL)
			rc = sl__no_memory(err, f->path);
		else
			fd = SL__IO(f->env, open, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0640);
	}
	if (rc == 0 && fd == -EEXIST)
		rc = sl_err_set(err, SL_EEXIST, "%s.torn-000 to -999 all exist; remove some", f->path);
	else if (rc == 0 && fd < 0)
		rc = file_failed(f, fd, saving, err);
	for (uint64_t at = from; rc == 0 && at < size;) {
		ssize_t got = sl__pread_full(f->env, f->fd, buf, (size_t)SL_MIN((uint64_t)COPY_BYTES, size - at), at);
		if (got < 0)
			rc = file_failed(f, (int)got, "read", err);
		if (got <= 0)
			break;
		int put = sl__pwrite_full(f->env, fd, buf, (size_t)got, at - from);
		if (put != 0)
			rc = file_failed(f, put, saving, err);
		at += (uint64_t)got;
	}
	if (rc == 0) {
		int synced = SL__IO(f->env, sync, fd);
		rc = synced == 0 ? sync_folder(f, err) : file_failed(f, synced, saving, err);
	}
	if (rc == 0)
		sl__log(f->env, SL_LOG_WARN, "file", "a torn end was cut off", SL__F_STR("file", f->path),
			SL__F_STR("saved_as", name), SL__F_U64("bytes", size - from));
	else if (fd >= 0)
		(void)SL__IO(f->env, unlink, name);
	if (fd >= 0)
		sl__close_fd(f->env, &fd);
	sl__free(f->env, name);
	sl__free(f->env, buf);
	return rc;
}

/* ---- opening ---- */

static int cut(struct sl__file_out *f, uint64_t size, struct sl_err *err)
{
	int rc = SL__IO(f->env, truncate, f->fd, size);
	if (rc != 0)
		return file_failed(f, rc, "cut", err);
	return 0;
}

/* Lock the open file and repair it: everything before f->end is whole, and nothing follows it. What a killed process had
 * not synced was never acknowledged; the next batch syncs it along. */
static int take_file(struct sl__file_out *f, struct sl_err *err)
{
	struct sl_io_stat st;
	int rc = SL__IO(f->env, fstat, f->fd, &st);
	if (rc != 0)
		return file_failed(f, rc, "inspect", err);
	if (!S_ISREG(st.mode))
		return sl_err_set(err, SL_EINVAL, "%s is not a regular file", f->path);
	rc = SL__IO(f->env, lock, f->fd);
	if (rc == -EWOULDBLOCK)
		return sl_err_set(err, SL_ELOCKED, "%s is being written by another process", f->path);
	if (rc != 0)
		return file_failed(f, rc, "lock", err);
	/* The process that held the lock may have written meanwhile. */
	rc = SL__IO(f->env, fstat, f->fd, &st);
	if (rc != 0)
		return file_failed(f, rc, "inspect", err);
	f->born_ms = st.mtime_ms;
	f->dev = st.dev;
	f->ino = st.ino;
	f->suspect = false;
	rc = sl__file_tail(f, st.size, &f->end, err);
	if (rc != 0)
		return rc;
	if (f->header_text != NULL && f->end > 0) {
		int same = sl__file_begins(f, f->header_text, f->header_text_len, err);
		if (same < 0)
			return same;
		if (same == 0)
			return sl_err_set(err, SL_ECONFIG, "%s begins with other columns; give another file", f->path);
	}
	if (f->end == st.size)
		return 0;
	rc = save_torn_end(f, f->end, st.size, err);
	if (rc != 0)
		return rc;
	return cut(f, f->end, err);
}

int sl__file_out_open(struct sl__file_out *f, struct sl_err *err)
{
	if (f->fd >= 0)
		return 0;
	/* Before the name is taken again: a loss must not leave the new file and neither name of the old one. */
	int rc = f->moved ? sync_folder(f, err) : 0;
	if (rc != 0)
		return rc;
	f->moved = false;
	f->fd = SL__IO(f->env, open, f->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0640);
	if (f->fd == -ENOENT)
		return sl_err_set(err, SL_ENOENT, "%s: the folder does not exist; create it first", f->path);
	if (f->fd == -ELOOP)
		return sl_err_set(err, SL_EACCES, "%s is a symbolic link; give the file that it points to", f->path);
	if (f->fd < 0)
		return file_failed(f, f->fd, "open", err);
	rc = take_file(f, err);
	if (rc == 0)
		rc = sync_folder(f, err);
	if (rc != 0)
		sl__file_out_close(f);
	return rc;
}

/* ---- rotation ---- */

/* The clock is read once: a number that was skipped in an earlier second would come before lower ones of the next. */
static int rotate(struct sl__file_out *f, struct sl_err *err)
{
	struct tm tm = sl__utc((time_t)(sl__real_ms(f->env) / 1000));
	char when[32];
	(void)strftime(when, sizeof(when), "%Y%m%dT%H%M%SZ", &tm);
	int rc = -EEXIST;
	for (unsigned i = 0; rc == -EEXIST && i < 1000; i++) {
		char *name = sl__asprintf(f->env, "%s.%s-%03u", f->path, when, i);
		if (name == NULL)
			return sl__no_memory(err, f->path);
		rc = SL__IO(f->env, rename, f->path, name, 1);
		sl__free(f->env, name);
	}
	if (rc != 0)
		return file_failed(f, rc, "rotate", err);
	sl__file_out_close(f);
	f->moved = true;
	return sl__file_out_open(f, err);
}

/* ---- appending ---- */

/* Write at the end of the file, its header first when it is empty, and sync. */
static int write_at_end(struct sl__file_out *f, const void *data, size_t n, struct sl_err *err)
{
	size_t head = f->end == 0 ? f->header_len : 0;
	if (f->end == 0)
		f->born_ms = sl__real_ms(f->env);
	int rc = head > 0 ? sl__pwrite_full(f->env, f->fd, f->header, head, 0) : 0;
	if (rc == 0)
		rc = sl__pwrite_full(f->env, f->fd, data, n, f->end + head);
	if (rc != 0)
		return file_failed(f, rc, "write to", err);
	rc = SL__IO(f->env, datasync, f->fd);
	if (rc != 0)
		return file_failed(f, rc, "sync", err);
	f->end += head + n;
	return 0;
}

int sl__file_out_append(struct sl__file_out *f, const void *data, size_t n, struct sl_err *err)
{
	assert(n <= SL__FILE_TAIL_MAX);
	/* Another process may have moved the file, or taken its name. */
	struct sl_io_stat st;
	if (f->fd >= 0 && (SL__IO(f->env, stat, f->path, &st) != 0 || st.ino != f->ino || st.dev != f->dev)) {
		sl__file_out_close(f);
		f->moved = true;
	}
	int rc = sl__file_out_open(f, err);
	if (rc == 0 && f->suspect)
		rc = cut(f, f->end, err);
	if (rc != 0)
		return rc;
	f->suspect = false;
	bool too_big = f->rotate_bytes > 0 && f->end + n > (uint64_t)f->rotate_bytes;
	bool too_old = f->rotate_ms > 0 && sl__real_ms(f->env) - f->born_ms >= f->rotate_ms;
	if (f->end > f->header_len && (too_big || too_old))
		rc = rotate(f, err);
	if (rc == 0)
		rc = write_at_end(f, data, n, err);
	/* The cut is synced too: a power loss must not bring back records of a batch that has failed. That is not a second
	 * try of a sync that failed: what it was for is gone. */
	if (rc != 0 && f->fd >= 0)
		f->suspect = SL__IO(f->env, truncate, f->fd, f->end) != 0 || SL__IO(f->env, datasync, f->fd) != 0;
	return rc;
}
