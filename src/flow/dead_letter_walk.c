/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walking over dead letters: list, show, redrive, purge. Callbacks run without the lock: a walk finds its next letter
 * under it, reads the letter into its own window, and releases the lock before it calls back.
 */
#include "flow/dead_letter.h"

#include <errno.h>
#include <fcntl.h>

#define ACKS_AT_ONCE 1024

/* ---- walks ---- */

/* Letters come in the order of ids; those that are put meanwhile are not seen. */
struct walk {
	uint64_t next, end; /* ids */
	bool all;
	struct sl__dl_reader r;
	int fd; /* of file `opened` */
	uint64_t opened;
};

static void walk_begin(struct walk *w, const sl_dlq *q, bool all) SL_REQUIRES(q->mu)
{
	*w = (struct walk){.next = 1, .end = q->next_id, .all = all, .fd = -1, .r = {.env = &q->env}};
}

static void walk_end(struct walk *w, const struct sl_env *env)
{
	sl__close_fd(env, &w->fd);
	sl__dl_reader_fini(&w->r);
}

/* Read letter w->next, which f has. 1: good; 0: not there any more, or damaged; or an error. */
static int walk_read(sl_dlq *q, struct walk *w, struct sl__dl_file *f, struct sl_dlq_letter *out, struct sl_err *err)
	SL_REQUIRES(q->mu)
{
	struct sl_err why = SL_ERR_INIT;
	if (w->fd < 0 || w->opened != f->first_id) {
		sl__close_fd(&q->env, &w->fd);
		int fd = SL__IO(&q->env, open, sl__dl_file_path(q, f->first_id, ""), O_RDONLY | O_NOFOLLOW, 0);
		if (fd == -ENOENT)
			return 0;
		if (fd < 0)
			return sl_err_set_errno(err, -fd, "open %s", q->path);
		w->fd = fd;
		w->opened = f->first_id;
		sl__dl_reader_set(&w->r, fd, f->size);
	}
	int rc = sl__dl_read_letter(f, &w->r, f->index[w->next - f->first_id], out, &why);
	if (rc == 0)
		return 1;
	/* A reader may have seen a letter that its writer took back. */
	if (rc == SL_ESTALE && q->read_only)
		return 0;
	if (rc == SL_ECORRUPT || rc == SL_ESTALE) {
		/* It was good when the file was scanned: from now on it counts as damaged. */
		uint32_t *entry = &f->index[w->next - f->first_id];
		f->unacked -= sl__dl_is_waiting(*entry);
		f->letters--;
		f->damaged++;
		*entry = 0;
		sl__log(&q->env, SL_LOG_WARN, "dead_letter", "damaged dead letter skipped", SL__F_STR("dir", q->dir),
			SL__F_U64("id", w->next));
		return 0;
	}
	if (err != NULL)
		*err = why;
	return sl_err_wrap(err, rc, "%s", sl__dl_file_path(q, f->first_id, ""));
}

/* The next letter that is wanted: 1, 0 at the end, or an error. */
static int walk_next(sl_dlq *q, struct walk *w, struct sl_dlq_letter *out, struct sl_err *err) SL_REQUIRES(q->mu)
{
	struct sl__dl_file *f = sl__dl_find(q, w->next);
	if (f == NULL)
		f = q->files;
	for (; f != NULL && f < q->files + q->n_files; f++) {
		w->next = SL_MAX(w->next, f->first_id);
		while (w->next - f->first_id < f->n_index && w->next < w->end) {
			uint32_t entry = f->index[w->next - f->first_id];
			bool wanted = w->all ? entry != 0 : sl__dl_is_waiting(entry);
			int rc = wanted ? walk_read(q, w, f, out, err) : 0;
			w->next++;
			if (rc != 0)
				return rc;
		}
	}
	return 0;
}

int sl__dl_oldest(sl_dlq *q, int64_t *out, struct sl_err *err)
{
	struct walk w;
	struct sl_dlq_letter letter;
	walk_begin(&w, q, false);
	int rc = walk_next(q, &w, &letter, err);
	*out = rc == 1 ? letter.last_failed_ms : 0;
	walk_end(&w, &q->env);
	return rc < 0 ? rc : 0;
}

/* ---- list and show ---- */

static int callback_stopped(const sl_dlq *q, int answer, struct sl_err *err)
{
	return answer < 0 ? sl_err_set(err, answer, "dead letters %s: the callback stopped the walk", q->dir) : answer;
}

int sl_dlq_list(sl_dlq *q, bool all, sl_dlq_fn *fn, void *ctx, struct sl_err *err)
{
	struct walk w;
	struct sl_dlq_letter letter;
	int rc = sl__dl_enter(q, SL__DL_READ, err);
	if (rc != 0)
		return rc;
	walk_begin(&w, q, all);
	while ((rc = walk_next(q, &w, &letter, err)) == 1) {
		sl__unlock(&q->mu);
		int answer = fn(&letter, ctx);
		sl__lock(&q->mu);
		if (answer != 0) {
			rc = callback_stopped(q, answer, err);
			break;
		}
	}
	sl__dl_leave(q);
	walk_end(&w, &q->env);
	return rc;
}

int sl_dlq_show(sl_dlq *q, uint64_t id, sl_dlq_fn *fn, void *ctx, struct sl_err *err)
{
	struct walk w;
	struct sl_dlq_letter letter;
	int rc = sl__dl_enter(q, SL__DL_READ, err);
	if (rc != 0)
		return rc;
	walk_begin(&w, q, true);
	w.next = id;
	struct sl__dl_file *f = sl__dl_find(q, id);
	const uint32_t *entry = sl__dl_entry(f, id);
	if (f != NULL && entry != NULL && *entry != 0)
		rc = walk_read(q, &w, f, &letter, err);
	if (rc == 0)
		rc = sl_err_set(err, SL_ENOENT, "dead letters %s: no dead letter %llu", q->dir, (unsigned long long)id);
	sl__dl_leave(q);
	if (rc == 1)
		rc = callback_stopped(q, fn(&letter, ctx), err);
	walk_end(&w, &q->env);
	return rc;
}

/* ---- redrive ---- */

int sl_dlq_redrive(sl_dlq *q, sl_dlq_fn *fn, void *ctx, uint64_t *done, uint64_t *failed, struct sl_err *err)
{
	struct walk w;
	struct sl_dlq_letter letter;
	uint64_t none = 0;
	done = done != NULL ? done : &none;
	failed = failed != NULL ? failed : &none;
	*done = *failed = 0;
	int rc = sl__dl_enter(q, SL__DL_WRITE, err);
	if (rc != 0)
		return rc;
	/* Two concurrent redrives would deliver letters twice. */
	if (q->redriving) {
		sl__dl_leave(q);
		return sl_err_set(err, SL_EAGAIN, "dead letters %s: another redrive is running", q->dir);
	}
	q->redriving = true;
	walk_begin(&w, q, false);
	while ((rc = walk_next(q, &w, &letter, err)) == 1) {
		sl__unlock(&q->mu);
		int answer = fn(&letter, ctx);
		sl__lock(&q->mu);
		rc = 0;
		if (answer == SL_ECANCELLED)
			rc = callback_stopped(q, answer, err);
		else if (answer == 0)
			rc = sl__dl_ack(q, letter.id, err);
		if (rc != 0)
			break;
		++*(answer == 0 ? done : failed);
	}
	q->redriving = false;
	sl__dl_leave(q);
	walk_end(&w, &q->env);
	return rc;
}

/* ---- purge ---- */

static int flush_acks(sl_dlq *q, struct sl__dl_file *f, struct sl_err *err) SL_REQUIRES(q->mu)
{
	int rc = q->buf_len == 0 ? 0 : sl__dl_append(q, f, q->buf_len, err);
	for (size_t at = 0; rc == 0 && at < q->buf_len; at += SL__DL_ACK)
		sl__dl_index_ack(f, sl__get64(q->buf + at + 16), sl__dl_ack_last(q->buf + at));
	q->buf_len = 0;
	return rc;
}

/* Acknowledge what in f last failed before before_ms, consecutive ids in one record. */
static int purge_older(sl_dlq *q, struct sl__dl_file *f, struct walk *w, int64_t before_ms, struct sl_err *err)
	SL_REQUIRES(q->mu)
{
	int rc = sl__dl_reserve_buf(q, ACKS_AT_ONCE * SL__DL_ACK, err);
	if (rc != 0)
		return rc;
	q->buf_len = 0;
	for (size_t i = 0; i < f->n_index; i++) {
		struct sl_dlq_letter letter;
		if (!sl__dl_is_waiting(f->index[i]))
			continue;
		uint64_t id = w->next = f->first_id + i;
		rc = walk_read(q, w, f, &letter, err);
		if (rc < 0)
			return rc;
		if (rc == 0 || letter.last_failed_ms >= before_ms)
			continue;
		uint8_t *last = q->buf_len > 0 ? q->buf + q->buf_len - SL__DL_ACK : NULL;
		int64_t now = sl__real_ms(&q->env);
		if (last != NULL && sl__dl_ack_last(last) + 1 == id) {
			sl__dl_put_ack(last, f->salt, sl__get64(last + 16), id, now);
			continue;
		}
		rc = q->buf_len == ACKS_AT_ONCE * SL__DL_ACK ? flush_acks(q, f, err) : 0;
		if (rc != 0)
			return rc;
		sl__dl_put_ack(q->buf + q->buf_len, f->salt, id, id, now);
		q->buf_len += SL__DL_ACK;
	}
	return flush_acks(q, f, err);
}

/* Everything goes, damaged files and torn tails as well: whole files, without writing into them first, so that it also
 * works on a disk that is full. */
static int purge_all(sl_dlq *q, uint64_t *purged, struct sl_err *err) SL_REQUIRES(q->mu)
{
	int rc = 0;
	while (rc == 0 && q->n_files > 0) {
		const struct sl__dl_file *f = &q->files[0];
		uint64_t unacked = f->unacked;
		if (q->n_files == 1) {
			if (f->letters == 0 && !f->opaque && f->damaged == 0)
				break;
			rc = sl__dl_new_file(q, err);
		}
		if (rc == 0)
			rc = sl__dl_remove_file(q, 0, err);
		if (rc == 0)
			*purged += unacked;
	}
	if (rc != 0)
		return rc;
	return sl__dl_remove_torn(q, 0, err);
}

static int purge_before(sl_dlq *q, int64_t before_ms, uint64_t *purged, struct sl_err *err) SL_REQUIRES(q->mu)
{
	struct walk w;
	int rc = 0;
	walk_begin(&w, q, false);
	for (size_t i = 0; rc == 0 && i < q->n_files; i++) {
		uint64_t acked = q->files[i].letters - q->files[i].unacked;
		rc = purge_older(q, &q->files[i], &w, before_ms, err);
		*purged += q->files[i].letters - q->files[i].unacked - acked;
	}
	walk_end(&w, &q->env);
	if (rc != 0)
		return rc;
	return sl__dl_reap(q, err);
}

int sl_dlq_purge(sl_dlq *q, int64_t before_ms, uint64_t *purged, struct sl_err *err)
{
	uint64_t n = 0;
	int rc = sl__dl_enter(q, SL__DL_WRITE, err);
	if (rc != 0)
		return rc;
	rc = before_ms == 0 ? purge_all(q, &n, err) : purge_before(q, before_ms, &n, err);
	/* What was removed must not come back with the next start. */
	if (rc == 0)
		rc = sl__dl_sync_folder(q, err);
	if (rc == 0)
		rc = sl__dl_recount(q, err);
	sl__dl_leave(q);
	if (purged != NULL)
		*purged = n;
	return rc;
}
