/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a log usable again after a failure, without closing it: the lock stays, and so do the sender, the tickets and
 * the numbers that callers of the handle hold.
 *
 * A poisoned handle. Everything up to the logical end was synced by an earlier flush; what the failed one wrote lies
 * after it. After a failed sync the kernel may call pages clean that are not on disk, so a second sync alone proves
 * nothing. Therefore:
 *   1. The names: a rotation that failed between its renames is taken back.
 *   2. The records of the active file are read again; damage is for a recovery, so the handle stays poisoned then.
 *   3. The file is cut to the logical end, the block that the end lies in is written again, and zeros after it: every
 *      page that the failed flush shared with acknowledged records is dirty once more.
 *   4. The file is synced. Only then does the handle take writes.
 *
 * A full disk. Zeros for the next flush are written after the end: 0 means that there is room for them.
 */
#include <errno.h>

#include "wal/handle.h"
#include "wal/reader.h"
#include "wal/segs.h"

#define BLOCK_BYTES 4096u
#define ROOM_BYTES ((uint64_t)64 * 1024)

/* 1: path names the file that is open; 0: it does not, or names nothing; a negative errno. */
static int is_ours(const sl_wal *w, const char *path)
{
	struct sl_io_stat mine, named;
	int rc = SL__IO(&w->env, fstat, w->fd, &mine);
	if (rc < 0)
		return rc;
	rc = SL__IO(&w->env, stat, path, &named);
	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	return named.dev == mine.dev && named.ino == mine.ino;
}

/* A failed rotation may have given our file its sealed name, and put an empty file in its place. */
static int put_name_back(sl_wal *w, struct sl_err *err)
{
	int rc = is_ours(w, w->path);
	if (rc != 0)
		return rc < 0 ? sl_err_set_errno(err, -rc, "stat %s", w->path) : 0;
	char *sealed = sl__wal_file_path(&w->env, w->dir, w->id, w->active_first);
	if (sealed == NULL)
		return sl_err_set(err, SL_ENOMEM, "reopen %s: out of memory", w->path);
	rc = is_ours(w, sealed);
	if (rc == 1)
		rc = SL__IO(&w->env, rename, sealed, w->path, 0);
	else if (rc == 0)
		rc = -ENOENT;
	sl__free(&w->env, sealed);
	return rc < 0 ? sl_err_set_errno(err, -rc, "reopen %s: its file was replaced; close and open it", w->path) : 0;
}

/* Are all records up to the logical end what they were? */
static int check_records(const sl_wal *w, struct sl_err *err)
{
	struct wal_reader reader;
	struct wal_walk walk;
	struct wal_item item = {.offset = 0};
	enum wal_step step = WAL_STEP_RECORD;
	sl__wal_reader_init(&reader, &w->env, w->fd, w->end);
	sl__wal_walk_init(&walk, &reader, w->active_first != 0 ? w->active_first - 1 : w->durable_seq);
	while (step == WAL_STEP_RECORD)
		step = sl__wal_walk_next(&walk, &item, err);
	int rc = 0;
	if (step == WAL_STEP_ERROR)
		rc = err != NULL && err->code != 0 ? err->code : SL_EIO;
	else if (step != WAL_STEP_END || item.length != 0 || walk.pos != w->end)
		rc = sl_err_set(err, SL_ECORRUPT, "reopen %s: damaged at %llu; close and open it to recover the rest",
				w->path, (unsigned long long)item.offset);
	sl__wal_reader_fini(&reader);
	return rc;
}

/* [exclusive, no mu] Zeros after the end: the next flush has its room. A disk without it is left as it was. */
static int write_room(sl_wal *w, struct sl_err *err)
{
	static const uint8_t zeros[ROOM_BYTES];
	int rc = sl__pwrite_full(&w->env, w->fd, zeros, sizeof(zeros), w->end);
	if (rc < 0) {
		w->cut_needed = true;
		struct sl_err cut = SL_ERR_INIT;
		if (sl__wal_trim(w, &cut) != 0)
			sl__log(&w->env, SL_LOG_WARN, "wal", "could not cut the file back; retrying later",
				SL__F_STR("log", w->path), SL__F_STR("error", cut.msg));
		return sl_err_set_errno(err, -rc, "append to %s: write", w->path);
	}
	sl__lock(&w->mu);
	w->ready_end = w->end + ROOM_BYTES;
	w->prepare_after = 0;
	sl__unlock(&w->mu);
	return 0;
}

/* [exclusive, no mu] */
static int revive(sl_wal *w, bool poisoned, struct sl_err *err)
{
	if (!poisoned) {
		int rc = w->cut_needed ? sl__wal_plain_code(sl__wal_trim(w, err), err) : 0;
		return rc == 0 && w->ready_end < w->end + ROOM_BYTES ? write_room(w, err) : rc;
	}
	/* Steps 1 and 2. */
	int rc = put_name_back(w, err);
	if (rc == 0)
		rc = check_records(w, err);
	if (rc != 0)
		return rc;
	/* Step 3: cut, and dirty again what the failed flush shared with records. */
	if (w->torn > 0) {
		rc = sl__wal_plain_code(sl__wal_trim(w, err), err);
		if (rc != 0)
			return rc;
	} else if ((rc = SL__IO(&w->env, truncate, w->fd, w->end)) < 0) { /* synced below */
		return sl_err_set_errno(err, -rc, "reopen %s: cut it to %llu bytes", w->path,
					(unsigned long long)w->end);
	}
	uint8_t block[BLOCK_BYTES];
	uint64_t from = w->end - w->end % BLOCK_BYTES;
	size_t n = (size_t)(w->end - from);
	ssize_t got = sl__pread_full(&w->env, w->fd, block, n, from);
	if (got < 0)
		return sl_err_set_errno(err, (int)-got, "reopen %s: read", w->path);
	if ((size_t)got < n)
		return sl_err_set(err, SL_ECORRUPT, "reopen %s: the file is shorter than its records", w->path);
	rc = n > 0 ? sl__pwrite_full(&w->env, w->fd, block, n, from) : 0;
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "reopen %s: write", w->path);
	rc = write_room(w, err);
	if (rc != 0)
		return rc;
	/* Step 4. The folder needs no sync: under either name the file is found, with everything that follows. */
	rc = SL__IO(&w->env, sync, w->fd);
	return rc < 0 ? sl_err_set_errno(err, -rc, "reopen %s: sync", w->path) : 0;
}

int sl_wal_reopen(sl_wal *w, struct sl_err *err)
{
	int rc = sl__wal_check_process(w, err);
	if (rc != 0)
		return rc;
	sl__lock(&w->mu);
	sl__wal_begin_exclusive(w);
	bool poisoned = w->poisoned;
	rc = poisoned ? 0 : sl__wal_usable(w, err);
	if (w->closed || w->archived)
		rc = sl_err_set(err, SL_ECLOSED, "%s is closed", w->path);
	if (rc == 0 && w->opts.max_pending_bytes >= 0 &&
	    w->index.pending_bytes + w->inflight_bytes >= (uint64_t)w->opts.max_pending_bytes)
		rc = sl_err_set(err, SL_EFULL, "%s: the backlog is at its limit (max_pending_bytes)", w->path);
	sl__unlock(&w->mu);
	if (rc == 0)
		rc = revive(w, poisoned, err);
	sl__lock(&w->mu);
	if (rc == 0 && poisoned) {
		w->poisoned = false;
		w->cut_needed = false;
		sl__signal(&w->helper_cv);
	}
	sl__wal_end_exclusive(w);
	sl__unlock(&w->mu);
	if (rc == 0 && poisoned)
		sl__log(&w->env, SL_LOG_INFO, "wal", "the log was reopened after a failed write",
			SL__F_STR("log", w->path));
	return rc;
}
