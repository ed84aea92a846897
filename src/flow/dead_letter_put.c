/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing dead letters: put and ack, the bound, and the removal of files that are done with.
 */
#include "flow/dead_letter.h"

#include <errno.h>
#include <fcntl.h>

#define KEEP_BUF ((size_t)1 << 20) /* a larger buffer is freed after its letter */

/* ---- writing ---- */

int sl__dl_reserve_buf(sl_dlq *q, size_t n, struct sl_err *err)
{
	if (n <= q->buf_cap)
		return 0;
	sl__free(&q->env, q->buf);
	q->buf_cap = 0;
	size_t cap = SL_MAX(n, (size_t)4096);
	q->buf = sl__alloc(&q->env, cap);
	if (q->buf == NULL)
		return sl_err_set(err, SL_ENOMEM, "dead letters %s: out of memory", q->dir);
	q->buf_cap = cap;
	return 0;
}

/* Write n bytes of q->buf after f and sync. After a failure the file is cut back, now or before the next write. */
static int append_to(sl_dlq *q, struct sl__dl_file *f, int fd, size_t n, struct sl_err *err) SL_REQUIRES(q->mu)
{
	int rc = f->cut ? SL__IO(&q->env, truncate, fd, f->size) : 0;
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "cut back %s", sl__dl_file_path(q, f->first_id, ""));
	f->cut = false;
	rc = sl__pwrite_full(&q->env, fd, q->buf, n, f->size);
	bool written = rc == 0;
	if (written)
		rc = SL__IO(&q->env, datasync, fd);
	if (rc == 0) {
		f->size += n;
		q->bytes += n;
		return 0;
	}
	/* Cut f back to its last good record. The cut is synced: a power loss must not bring back a record whose put or
	 * acknowledgement has failed. That is not a second try of a sync that failed: what it was for is gone. If either
	 * fails, the file is cut again before the next write. */
	f->cut = SL__IO(&q->env, truncate, fd, f->size) != 0 || SL__IO(&q->env, datasync, fd) != 0;
	int code = sl_err_set_errno(err, -rc, "%s %s", written ? "sync" : "write to",
				    sl__dl_file_path(q, f->first_id, ""));
	return written || !(rc == -ENOSPC || rc == -EDQUOT || rc == -EFBIG) ? sl__dl_poison(q, code) : code;
}

int sl__dl_append(sl_dlq *q, struct sl__dl_file *f, size_t n, struct sl_err *err)
{
	bool newest = sl__dl_is_newest(q, f);
	int fd = newest ? q->active_fd : -1;
	if (fd < 0)
		fd = SL__IO(&q->env, open, sl__dl_file_path(q, f->first_id, ""), O_RDWR | O_NOFOLLOW, 0);
	if (fd < 0)
		return sl_err_set_errno(err, -fd, "open %s", q->path);
	if (newest)
		q->active_fd = fd;
	int rc = append_to(q, f, fd, n, err);
	if (!newest)
		sl__close_fd(&q->env, &fd);
	return rc;
}

int sl__dl_end_newest(sl_dlq *q, struct sl_err *err)
{
	struct sl__dl_file *f = q->n_files > 0 ? &q->files[q->n_files - 1] : NULL;
	if (f == NULL || f->opaque || !f->close_due || f->unacked == 0)
		return 0;
	int rc = sl__dl_reserve_buf(q, SL__DL_CLOSE, err);
	if (rc != 0)
		return rc;
	sl__dl_put_close(q->buf, f->salt, q->next_id);
	rc = sl__dl_append(q, f, SL__DL_CLOSE, err);
	if (rc == 0)
		f->close_due = false;
	return rc;
}

/* ---- the bound ---- */

struct drops {
	uint64_t first_id, last_id, unacked;
	bool any;
};

static int drop_oldest(sl_dlq *q, struct drops *d, struct sl_err *err) SL_REQUIRES(q->mu)
{
	if (q->n_files == 1) {
		int rc = sl__dl_new_file(q, err);
		if (rc != 0)
			return rc;
	}
	struct sl__dl_file *f = &q->files[0];
	uint64_t first = f->first_id, last = f->n_index > 0 ? first + f->n_index - 1 : first, unacked = f->unacked;
	int rc = sl__dl_remove_file(q, 0, err);
	if (rc == 0)
		rc = sl__dl_remove_torn(q, first, err);
	if (rc != 0)
		return rc;
	sl__log(&q->env, SL_LOG_WARN, "dead_letter", "oldest dead letters dropped to stay within max_bytes",
		SL__F_STR("dir", q->dir), SL__F_U64("first_id", first), SL__F_U64("last_id", last),
		SL__F_U64("unacknowledged", unacked));
	sl_counter_add(q->drops, unacked);
	d->first_id = d->any ? d->first_id : first;
	d->last_id = last;
	d->unacked += unacked;
	d->any = true;
	return 0;
}

static int full_error(const sl_dlq *q, struct sl_err *err) SL_REQUIRES(q->mu)
{
	return sl_err_set(err, SL_EFULL,
			  "dead letters %s: full (%llu of %llu bytes); redrive or purge some, or raise max_bytes",
			  q->dir, (unsigned long long)q->bytes, (unsigned long long)q->max_bytes);
}

/* Room for n more bytes, which may need a new file. The disk is asked before anything is refused or dropped. */
static int make_space(sl_dlq *q, uint64_t n, struct drops *d, struct sl_err *err) SL_REQUIRES(q->mu)
{
	uint64_t need = n + SL__DL_HEADER;
	if (need + SL__DL_HEADER > q->max_bytes)
		return sl_err_set(err, SL_ETOOBIG, "dead letters %s: a dead letter of %llu bytes exceeds max_bytes",
				  q->dir, (unsigned long long)n);
	if (q->bytes + need <= q->max_bytes)
		return 0;
	int rc = sl__dl_recount(q, err);
	while (rc == 0 && q->bytes + need > q->max_bytes) {
		uint64_t before = q->bytes;
		bool has_letters = q->n_files == 1 && (q->files[0].letters > 0 || q->files[0].opaque);
		bool drop_file = q->n_files > 1 || has_letters;
		/* Drop the oldest file, or without one, the torn tails that were kept. */
		if (q->on_full == SL_DLQ_REFUSE)
			return full_error(q, err);
		rc = drop_file ? drop_oldest(q, d, err) : sl__dl_remove_torn(q, 0, err);
		if (rc == 0)
			rc = sl__dl_recount(q, err);
		if (rc == 0 && !drop_file && q->bytes == before)
			return full_error(q, err);
	}
	return rc == 0 && d->any ? sl__dl_sync_folder(q, err) : rc;
}

/* ---- put ---- */

static int put_locked(sl_dlq *q, const struct sl_dlq_letter *letter, const struct sl__dl_sizes *sizes, struct drops *d,
		      struct sl_err *err) SL_REQUIRES(q->mu)
{
	int rc = make_space(q, sizes->total, d, err);
	if (rc != 0)
		return rc;
	/* The newest file takes the letter if it is not opaque and both the bytes and the id (I4) fit. */
	struct sl__dl_file *f = q->n_files > 0 ? &q->files[q->n_files - 1] : NULL;
	if (f == NULL || f->opaque || (f->size + sizes->total > q->file_bytes && f->letters > 0) ||
	    q->next_id - f->first_id > (f->size - SL__DL_HEADER) / SL__DL_LETTER_MIN) {
		rc = sl__dl_end_newest(q, err);
		if (rc == 0)
			rc = sl__dl_new_file(q, err);
		if (rc != 0)
			return rc;
		f = &q->files[q->n_files - 1];
	}
	rc = sl__dl_reserve_buf(q, sizes->total, err);
	if (rc != 0)
		return rc;
	if (sl__dl_index_reserve(f, &q->env, q->next_id) != 0)
		return sl_err_set(err, SL_ENOMEM, "dead letters %s: out of memory", q->dir);
	sl__dl_put_letter(q->buf, f->salt, q->next_id, letter, sizes);
	uint64_t offset = f->size;
	rc = sl__dl_append(q, f, sizes->total, err);
	if (q->buf_cap > KEEP_BUF) {
		sl__free(&q->env, q->buf);
		q->buf = NULL;
		q->buf_cap = 0;
	}
	if (rc != 0)
		return rc;
	sl__dl_index_add(f, q->next_id++, offset);
	sl_counter_add(q->puts, 1);
	return 0;
}

int sl_dlq_put(sl_dlq *q, const struct sl_dlq_letter *letter, uint64_t *id, struct sl_err *err)
{
	struct sl__dl_sizes sizes;
	struct drops d = {0};
	/* Times that were not given are now. */
	struct sl_dlq_letter timed;
	sl__opts_copy(&timed, sizeof(timed), letter);
	if (letter->struct_size == 0)
		return sl_err_set(err, SL_EINVAL, "dead letter: struct_size is 0");
	if (timed.last_failed_ms == 0)
		timed.last_failed_ms = sl__real_ms(&q->env);
	if (timed.first_failed_ms == 0)
		timed.first_failed_ms = timed.last_failed_ms;
	letter = &timed;
	int rc = sl__dl_measure(letter, &sizes, err);
	if (rc != 0)
		return rc;
	rc = sl__dl_enter(q, SL__DL_WRITE, err);
	if (rc != 0)
		return rc;
	uint64_t given = q->next_id;
	rc = put_locked(q, letter, &sizes, &d, err);
	sl__dl_leave(q);
	if (d.any && q->on_drop != NULL)
		q->on_drop(d.first_id, d.last_id, d.unacked, q->on_drop_ctx);
	if (rc == 0 && id != NULL)
		*id = given;
	return rc;
}

/* ---- acknowledging ---- */

int sl__dl_reap(sl_dlq *q, struct sl_err *err)
{
	for (size_t i = q->n_files; i-- > 0;) {
		const struct sl__dl_file *f = &q->files[i];
		bool newest = sl__dl_is_newest(q, f);
		if (f->unacked != 0 || f->damaged != 0 || (newest && f->letters == 0))
			continue;
		int rc = newest ? sl__dl_new_file(q, err) : 0; /* I3; moves f */
		if (rc == 0)
			rc = sl__dl_remove_file(q, i, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

int sl__dl_ack(sl_dlq *q, uint64_t id, struct sl_err *err)
{
	struct sl__dl_file *f = sl__dl_find(q, id);
	uint32_t *entry = sl__dl_entry(f, id);
	if (id == 0 || id >= q->next_id || (entry != NULL && *entry == 0))
		return sl_err_set(err, SL_ENOENT, "dead letters %s: no dead letter %llu", q->dir,
				  (unsigned long long)id);
	/* An id of the past in no file: acknowledged and removed, or dropped. Nothing is left to do. */
	if (entry == NULL || !sl__dl_is_waiting(*entry))
		return 0;
	int rc = sl__dl_reserve_buf(q, SL__DL_ACK, err);
	if (rc != 0)
		return rc;
	sl__dl_put_ack(q->buf, f->salt, id, id, sl__real_ms(&q->env));
	rc = sl__dl_append(q, f, SL__DL_ACK, err);
	if (rc != 0)
		return rc;
	sl__dl_index_ack(f, id, id);
	if (f->unacked == 0) {
		/* The acknowledgement is durable in any case: a file that stays only takes space. */
		struct sl_err why = SL_ERR_INIT;
		if (sl__dl_reap(q, &why) != 0)
			sl__log(&q->env, SL_LOG_WARN, "dead_letter",
				"failed to remove a file whose dead letters are all acknowledged",
				SL__F_STR("dir", q->dir), SL__F_STR("error", why.msg));
	}
	return 0;
}

int sl_dlq_ack(sl_dlq *q, uint64_t id, struct sl_err *err)
{
	int rc = sl__dl_enter(q, SL__DL_WRITE, err);
	if (rc != 0)
		return rc;
	rc = sl__dl_ack(q, id, err);
	sl__dl_leave(q);
	return rc;
}
