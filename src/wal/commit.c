/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group commit. Two batches take turns: while one is on its way to disk, records are reserved in the other.
 *
 *   reserve (under mu)      a place and a sequence in the current batch; the first appender of a batch is its leader
 *   encode (no lock)        payload, seal, CRC, straight into the batch's buffer
 *   lead                    wait for the flush before, gather company, swap the batches, wait for encoders,
 *                           one write, one sync, then publish
 *   follow                  sleep on the batch's `done` word; woken once
 *
 * C1  One flush at a time (w->flushing); batches end in the order of their ids, so acknowledgements are in sequence
 * order. C2  A batch is in the log as a whole or not at all: when its flush fails, the file is cut back to the logical
 * end, and the batch behind it, whose sequences would leave a gap, fails with it. Numbers are then given anew. C3  A
 * failed sync, or any write error but a full disk, poisons the handle: what the page cache holds is unknown. C4  Memory
 * for the index is reserved with the record, so nothing can fail between the sync and the acknowledgement.
 */
#include <errno.h>
#include <sys/eventfd.h>

#include "wal/futex.h"
#include "wal/handle.h"

#define LEADER_SLEEPS 0x80000000u

struct slot {
	struct wal_batch *batch;
	uint8_t *at;
	uint64_t sequence;
	uint64_t id;
	int64_t timestamp_ms;
	uint8_t nonce[WAL_NONCE_BYTES]; /* of an encrypted log */
	bool lead;
};

int sl__wal_batches_init(sl_wal *w, struct sl_err *err)
{
	for (unsigned i = 0; i < 2; i++) {
		struct wal_batch *b = &w->batch[i];
		b->cap = WAL_BATCH_START;
		b->buf = sl__alloc(&w->env, b->cap + WAL_BATCH_MARKS);
		if (b->buf == NULL)
			return sl_err_set(err, SL_ENOMEM, "no memory for the buffers of %s", w->path);
	}
	w->batch_id = 2;
	w->done_id = 1;
	w->batch[0].id = 2;
	w->batch[1].done = 1;
	w->batch[0].first_seq = w->next_seq;
	return 0;
}

void sl__wal_batches_fini(sl_wal *w)
{
	for (unsigned i = 0; i < 2; i++)
		sl__free(&w->env, w->batch[i].buf);
	sl__free(&w->env, w->failures);
}

int sl__wal_usable(const sl_wal *w, struct sl_err *err)
{
	if (w->closed || w->archived)
		return sl_err_set(err, SL_ECLOSED, "%s is %s", w->path, w->archived ? "archived" : "closed");
	if (w->poisoned)
		return sl_err_set(err, SL_EPOISONED, "%s takes no more writes since: %.150s; close and open it again",
				  w->path, w->poison.msg);
	return 0;
}

void sl__wal_poison(sl_wal *w, const struct sl_err *why)
{
	if (w->poisoned)
		return;
	w->poisoned = true;
	w->poison = *why;
	sl__broadcast(&w->room_cv);
	sl__broadcast(&w->helper_cv);
}

static struct wal_batch *current(sl_wal *w)
{
	return &w->batch[w->batch_id % 2];
}

/* ---- failures, for tickets that ask later ---- */

static void remember_failure(sl_wal *w, uint64_t first, uint64_t last, const struct sl_err *why)
{
	atomic_store_explicit(&w->last_failed_id, last, memory_order_release);
	if (w->n_failures > 0 && w->failures[w->n_failures - 1].last + 1 == first) {
		w->failures[w->n_failures - 1].last = last;
		return;
	}
	struct wal_failure *grown = w->failures;
	if (w->n_failures == WAL_FAILURES_KEPT) {
		w->forgotten_failures = w->failures[0].last;
		memmove(w->failures, w->failures + 1, --w->n_failures * sizeof *w->failures);
	} else if ((w->n_failures & (w->n_failures + 1)) == 0) { /* grow at 0, 1, 3, 7 … */
		grown = sl__realloc(&w->env, w->failures, (w->n_failures * 2 + 1) * sizeof *grown);
	}
	if (grown == NULL) {
		w->forgotten_failures = last;
		return;
	}
	w->failures = grown;
	w->failures[w->n_failures++] = (struct wal_failure){first, last, *why};
}

/* The outcome of a batch that ended. */
static int outcome(sl_wal *w, uint64_t id, struct sl_err *err)
{
	if (atomic_load_explicit(&w->last_failed_id, memory_order_acquire) < id)
		return 0;
	sl__lock(&w->mu);
	int rc = id <= w->forgotten_failures ? SL_ESTALE : 0;
	for (size_t i = w->n_failures; i > 0 && rc == 0; i--) {
		const struct wal_failure *f = &w->failures[i - 1];
		if (id > f->last)
			break;
		if (id >= f->first) {
			rc = f->err.code;
			if (err != NULL)
				*err = f->err;
		}
	}
	sl__unlock(&w->mu);
	if (rc == SL_ESTALE)
		return sl_err_set(err, rc, "%s: the outcome of this ticket is no longer known", w->path);
	return rc;
}

static bool ended(const struct wal_batch *b, uint64_t id)
{
	return (int32_t)(atomic_load_explicit(&b->done, memory_order_acquire) - (uint32_t)id) >= 0;
}

/* ---- the end of a flush ---- */

/* Marks that did not get to disk go back in front of the newer ones. Without memory they are forgotten: a resend. */
static void return_flying_marks(sl_wal *w) SL_REQUIRES(w->mu)
{
	for (size_t i = 0; i < w->marks.n; i++) {
		const struct wal_status_range *m = &w->marks.v[i];
		(void)!sl__wal_ranges_set(&w->flying, m->first, m->last, m->status);
	}
	struct wal_ranges empty = w->marks;
	w->marks = w->flying;
	w->flying = empty;
	w->flying.n = 0;
}

static void index_batch(sl_wal *w, const struct wal_batch *b, uint64_t at) SL_REQUIRES(w->mu)
{
	for (size_t off = 0; off < b->fill;) {
		const uint8_t *p = b->buf + off;
		uint32_t total = sl__get32(p) + 4;
		sl__wal_index_add(&w->index, &(struct wal_entry){.sequence = sl__get64(p + 4),
								 .offset = at + off,
								 .timestamp_ms = (int64_t)sl__get64(p + 16),
								 .total = total,
								 .status = SL_WAL_PENDING});
		off += total;
	}
}

static void publish_success(sl_wal *w, struct wal_batch *b, size_t bytes) SL_REQUIRES(w->mu)
{
	index_batch(w, b, w->end);
	if (b->n > 0) {
		w->durable_seq = b->first_seq + b->n - 1;
		if (w->active_first == 0)
			w->active_first = b->first_seq;
		w->active_last = w->durable_seq;
		w->active_records += b->n;
	}
	w->end += bytes;
	w->ready_end = SL_MAX(w->ready_end, w->end);
	w->inflight_bytes -= b->fill;
	w->flying.n = 0;
	w->n_flushes++;
	w->n_flushed_records += b->n;
	sl_counter_add(w->metrics.records, b->n);
	sl_counter_add(w->metrics.bytes, b->fill);
	sl_histogram_observe(w->metrics.flush_records, b->n);
	w->done_id = b->id;
	if (w->sender_runs && b->n > 0)
		sl__signal(&w->sender_cv);
	sl__wal_maybe_prepare(w);
}

/* Make the other slot current. It is free: its flush ended before this one began. */
static void swap_batches(sl_wal *w, struct wal_batch *taken) SL_REQUIRES(w->mu)
{
	struct wal_batch *next = &w->batch[(taken->id + 1) % 2];
	size_t cap = next->cap;
	if (taken->was_full && cap < WAL_BATCH_MAX)
		cap *= 2;
	else if (cap > WAL_BATCH_MAX)
		cap = WAL_BATCH_MAX;
	if (cap != next->cap) {
		uint8_t *buf = sl__realloc(&w->env, next->buf, cap + WAL_BATCH_MARKS);
		if (buf != NULL) {
			next->buf = buf;
			next->cap = cap;
		}
	}
	next->id = taken->id + 1;
	next->fill = 0;
	next->n = 0;
	next->first_seq = w->next_seq;
	next->has_leader = next->was_full = false;
	w->batch_id = next->id;
	w->want_flush = false;
	if (w->room_waiters > 0)
		sl__broadcast(&w->room_cv);
}

static void await_writers(struct wal_batch *b)
{
	uint32_t left = atomic_load_explicit(&b->writers, memory_order_acquire);
	if (left == 0)
		return;
	left = atomic_fetch_or_explicit(&b->writers, LEADER_SLEEPS, memory_order_acq_rel) | LEADER_SLEEPS;
	while (left != LEADER_SLEEPS) {
		sl__futex_wait(&b->writers, left);
		left = atomic_load_explicit(&b->writers, memory_order_acquire);
	}
	atomic_store_explicit(&b->writers, 0, memory_order_relaxed);
}

/* C2: batch b failed, and with it the one that was being filled meanwhile. Called with flushing still set. */
static void publish_failure(sl_wal *w, struct wal_batch *b, const struct sl_err *why) SL_REQUIRES(w->mu)
{
	struct wal_batch *behind = current(w);
	remember_failure(w, b->id, behind->id, why);
	sl_counter_add(w->metrics.flush_errors, 1);
	sl__wal_index_unreserve(&w->index, b->n + behind->n);
	w->inflight_bytes -= b->fill + behind->fill;
	if (b->n > 0)
		w->next_seq = b->first_seq;
	else if (behind->n > 0)
		w->next_seq = behind->first_seq;
	return_flying_marks(w);
	atomic_store_explicit(&b->done, (uint32_t)b->id, memory_order_release);
	swap_batches(w, behind);
	sl__unlock(&w->mu);
	sl__futex_wake_all(&b->done);
	await_writers(behind);
	sl__lock(&w->mu);
	w->done_id = behind->id;
	atomic_store_explicit(&behind->done, (uint32_t)behind->id, memory_order_release);
	sl__futex_wake_all(&behind->done);
}

static void ring_event_fd(int fd)
{
	uint64_t one = 1;
	(void)!write(fd, &one, sizeof one);
}

/* ---- leading ---- */

/* Wait a part of a flush's time for those who were in the last cycle: they are about to come back. */
static void gather(sl_wal *w, const struct wal_batch *b) SL_REQUIRES(w->mu)
{
	if (!w->gather || b->n >= w->gather_target || b->n == 0)
		return;
	int64_t deadline = sl__mono_ns(&w->env) + SL_MIN(w->flush_ewma_ns / 2, (int64_t)1000000);
	w->gathering = true;
	while (w->gathering && b->n < w->gather_target)
		if (!sl__wait(&w->env, &w->gather_cv, &w->mu, deadline))
			break;
	w->gathering = false;
}

/* Encode queued marks behind the data; returns their bytes. */
static size_t take_marks(sl_wal *w, struct wal_batch *b) SL_REQUIRES(w->mu)
{
	if (w->marks.n == 0)
		return 0;
	struct wal_ranges taken = w->marks;
	w->marks = w->flying;
	w->marks.n = 0;
	w->flying = taken;
	w->marks_since_ns = 0;
	size_t room = WAL_BATCH_MARKS / WAL_MARK_BYTES, bytes = 0;
	int64_t now = sl__real_ms(&w->env);
	for (size_t i = 0; i < w->flying.n; i++) {
		const struct wal_status_range *m = &w->flying.v[i];
		if (i < room)
			bytes += sl__wal_encode_mark(b->buf + b->fill + bytes, m->first, m->last, m->status, now);
		else /* the rest waits for the next flush; without memory it is forgotten, which costs a resend */
			(void)!sl__wal_ranges_set(&w->marks, m->first, m->last, m->status);
	}
	if (w->flying.n > room) {
		w->flying.n = room;
		w->marks_since_ns = sl__mono_ns(&w->env);
	}
	return bytes;
}

static bool disk_is_full(int rc)
{
	return rc == -ENOSPC || rc == -EDQUOT || rc == -EFBIG;
}

/* [leader] Write and sync. A full disk leaves the file cut back; everything else that fails poisons (by *poison). */
static int write_batch(sl_wal *w, const struct wal_batch *b, size_t bytes, bool *poison, struct sl_err *err)
{
	*poison = false;
	if (w->end >= (uint64_t)w->opts.segment_bytes && w->active_first != 0) {
		struct sl_err why = SL_ERR_INIT;
		int rotated = sl__wal_rotate(w, &why);
		if (rotated == SL_EPOISONED) {
			*poison = true;
			if (err != NULL)
				*err = why;
			return why.code;
		}
		if (rotated != 0)
			sl__log(&w->env, SL_LOG_WARN, "wal", "could not start a new segment, going on in the old one",
				SL__F_STR("log", w->path), SL__F_STR("error", why.msg));
	}
	if (w->cut_needed) {
		int rc = sl__wal_trim(w, err);
		if (rc != 0)
			return rc;
	}
	sl__wal_await_prepared(w, w->end + bytes);
	sl__wal_prepare_inline(w, w->end + bytes);
	int rc = sl__pwrite_full(&w->env, w->fd, b->buf, bytes, w->end);
	if (rc < 0) {
		int code = sl_err_set_errno(err, -rc, "append to %s: write", w->path);
		w->cut_needed = true;
		*poison = !disk_is_full(rc);
		struct sl_err cut = SL_ERR_INIT;
		if (!*poison && sl__wal_trim(w, &cut) != 0)
			sl__log(&w->env, SL_LOG_WARN, "wal", "could not cut the file back yet",
				SL__F_STR("log", w->path), SL__F_STR("error", cut.msg));
		return code;
	}
	rc = SL__IO(&w->env, datasync, w->fd);
	if (rc < 0) {
		*poison = true;
		return sl_err_set_errno(err, -rc, "append to %s: sync", w->path);
	}
	return 0;
}

/* Flush b, whose leader the caller is. mu is held on entry and exit; when it returns, b has ended. */
static void lead(sl_wal *w, struct wal_batch *b, uint64_t id) SL_REQUIRES(w->mu)
{
	while (w->flushing && !ended(b, id))
		(void)sl__wait(&w->env, &w->lead_cv, &w->mu, SL_FOREVER);
	if (ended(b, id))
		return;
	w->flushing = true;
	gather(w, b);
	struct sl_err err = SL_ERR_INIT;
	bool poison = false;
	size_t bytes = b->fill + take_marks(w, b);
	int64_t began = sl__mono_ns(&w->env);
	swap_batches(w, b);
	int rc = sl__wal_usable(w, &err);
	sl__unlock(&w->mu);
	await_writers(b);
	if (rc == 0 && bytes > 0)
		rc = write_batch(w, b, bytes, &poison, &err);
	int64_t took = sl__mono_ns(&w->env) - began;
	sl_histogram_observe(w->metrics.flush_seconds, (uint64_t)took);
	sl__lock(&w->mu);
	w->flush_ewma_ns += (took - w->flush_ewma_ns) / 8;
	if (poison)
		sl__wal_poison(w, &err);
	if (rc == 0) {
		w->gather_target = b->n + current(w)->n;
		publish_success(w, b, bytes);
		atomic_store_explicit(&b->done, (uint32_t)id, memory_order_release);
	} else {
		publish_failure(w, b, &err);
	}
	w->flushing = false;
	sl__broadcast(&w->lead_cv);
	if (w->timed_waiters > 0)
		sl__broadcast(&w->done_cv);
	if (w->event_fd >= 0)
		ring_event_fd(w->event_fd);
	sl__unlock(&w->mu);
	sl__futex_wake_all(&b->done);
	sl__lock(&w->mu);
}

static void follow(struct wal_batch *b, uint64_t id)
{
	uint32_t seen;
	while (!ended(b, id)) {
		seen = atomic_load_explicit(&b->done, memory_order_acquire);
		if ((int32_t)(seen - (uint32_t)id) < 0)
			sl__futex_wait(&b->done, seen);
	}
}

/* Become the leader of batch id when it has none, else follow it. mu is held on entry, not on exit. */
static void drive(sl_wal *w, uint64_t id) SL_RELEASE(w->mu)
{
	struct wal_batch *b = &w->batch[id % 2];
	bool mine = id == w->batch_id && !b->has_leader;
	if (mine) {
		b->has_leader = true;
		lead(w, b, id);
	}
	sl__unlock(&w->mu);
	if (!mine)
		follow(b, id);
}

void sl__wal_flush_orphans(sl_wal *w)
{
	struct wal_batch *b = current(w);
	w->want_flush = false;
	if (b->n > 0 && !b->has_leader) {
		b->has_leader = true;
		lead(w, b, b->id);
	}
}

int sl__wal_flush_now(sl_wal *w, struct sl_err *err)
{
	sl__lock(&w->mu);
	int rc = sl__wal_usable(w, err);
	if (rc != 0) {
		sl__unlock(&w->mu);
		return rc;
	}
	uint64_t id = w->batch_id;
	drive(w, id);
	return outcome(w, id, err);
}

void sl__wal_begin_exclusive(sl_wal *w)
{
	while (w->flushing)
		(void)sl__wait(&w->env, &w->lead_cv, &w->mu, SL_FOREVER);
	w->flushing = true;
	w->hold_prepare++;
	while (w->preparing)
		(void)sl__wait(&w->env, &w->prepare_cv, &w->mu, SL_FOREVER);
}

void sl__wal_end_exclusive(sl_wal *w)
{
	w->hold_prepare--;
	w->flushing = false;
	sl__broadcast(&w->lead_cv);
}

/* ---- reserving ---- */

static bool backlog_full(const sl_wal *w, size_t total) SL_REQUIRES(w->mu)
{
	uint64_t backlog = w->index.pending_bytes + w->inflight_bytes;
	return w->opts.max_pending_bytes >= 0 && backlog > 0 && backlog + total > (uint64_t)w->opts.max_pending_bytes;
}

static int backlog_error(const sl_wal *w, struct sl_err *err)
{
	return sl_err_set(err, SL_EFULL, "%s: the backlog is at its limit of %lld bytes (max_pending_bytes); %s",
			  w->path, (long long)w->opts.max_pending_bytes,
			  w->sender_runs ? "the receiver is behind" : "start a sender or raise the limit");
}

static void wait_for_room(sl_wal *w) SL_REQUIRES(w->mu)
{
	w->room_waiters++;
	(void)sl__wait(&w->env, &w->room_cv, &w->mu, SL_FOREVER);
	w->room_waiters--;
}

/* The batch is full: have it flushed, by ourselves when nobody is on it. */
static void wait_for_buffer(sl_wal *w) SL_REQUIRES(w->mu)
{
	struct wal_batch *b = current(w);
	b->was_full = true;
	if (!b->has_leader) {
		b->has_leader = true;
		lead(w, b, b->id);
	} else if (w->gathering) {
		w->gathering = false;
		sl__signal(&w->gather_cv);
		wait_for_room(w);
	} else {
		wait_for_room(w);
	}
}

/* An empty batch grows to the record. */
static int grow_batch(sl_wal *w, struct wal_batch *b, size_t total, struct sl_err *err) SL_REQUIRES(w->mu)
{
	uint8_t *buf = sl__realloc(&w->env, b->buf, total + WAL_BATCH_MARKS);
	if (buf == NULL)
		return sl_err_set(err, SL_ENOMEM, "append to %s: no memory for %zu bytes", w->path, total);
	b->buf = buf;
	b->cap = total;
	return 0;
}

/* Wait until the current batch has room for total bytes and the backlog allows them. */
static int admit(sl_wal *w, size_t total, struct sl_err *err) SL_REQUIRES(w->mu)
{
	for (;;) {
		int rc = sl__wal_usable(w, err);
		if (rc != 0)
			return rc;
		struct wal_batch *b = current(w);
		if (backlog_full(w, total)) {
			bool block = w->opts.on_full == SL_WAL_FULL_BLOCK ||
				     (w->opts.on_full == SL_WAL_FULL_AUTO && w->sender_runs);
			if (!block)
				return backlog_error(w, err);
			if (b->n > 0 && !b->has_leader)
				sl__wal_flush_orphans(w);
			else
				wait_for_room(w);
		} else if (b->cap - b->fill >= total) {
			return 0;
		} else if (b->n == 0) {
			return grow_batch(w, b, total, err);
		} else {
			wait_for_buffer(w);
		}
	}
}

static int too_big(const sl_wal *w, size_t len, struct sl_err *err)
{
	return sl_err_set(err, SL_ETOOBIG, "append to %s: a payload of %zu bytes; at most %zu fit a record", w->path,
			  len, SL_WAL_MAX_PAYLOAD - (w->key != NULL ? WAL_SEAL_BYTES : 0));
}

static size_t sealed_len(const sl_wal *w, size_t len)
{
	return w->key != NULL ? len + WAL_SEAL_BYTES : len;
}

/* Under mu, room was found: take n places side by side. */
static int take_places(sl_wal *w, size_t n, size_t bytes, struct slot *out, struct sl_err *err) SL_REQUIRES(w->mu)
{
	struct wal_batch *b = current(w);
	if (sl__wal_index_reserve(&w->index, n) != 0)
		return sl_err_set(err, SL_ENOMEM, "append to %s: no memory for the index", w->path);
	out->batch = b;
	out->at = b->buf + b->fill;
	out->sequence = w->next_seq;
	out->id = b->id;
	w->next_seq += n;
	b->fill += bytes;
	b->n += (uint32_t)n;
	w->inflight_bytes += bytes;
	atomic_fetch_add_explicit(&b->writers, 1, memory_order_relaxed);
	if (w->gathering && b->n >= w->gather_target) {
		w->gathering = false;
		sl__signal(&w->gather_cv);
	}
	return 0;
}

/* Outside the lock: the record's bytes. Cannot fail. */
static void encode(const sl_wal *w, const struct slot *s, const void *payload, size_t len)
{
	uint32_t stored = (uint32_t)sealed_len(w, len);
	sl__wal_begin(s->at, s->sequence, SL_WAL_PENDING, s->timestamp_ms, stored);
	uint8_t *body = s->at + WAL_BODY_OFFSET;
	if (w->key != NULL) {
		struct wal_seal_ctx at = {w->id, w->header.incarnation, s->sequence, s->timestamp_ms};
		sl__wal_seal_payload(w->key, &at, s->nonce, body, payload, len);
	} else if (len > 0) {
		memcpy(body, payload, len);
	}
	sl__wal_seal(s->at, stored);
}

/* The leader may write. */
static void encoded(const struct slot *s)
{
	uint32_t before = atomic_fetch_sub_explicit(&s->batch->writers, 1, memory_order_acq_rel);
	if (before == (LEADER_SLEEPS | 1))
		sl__futex_wake_all(&s->batch->writers);
}

/* What can fail, or takes time, and needs no lock. */
static int prepare_slot(const sl_wal *w, struct slot *out, struct sl_err *err)
{
	out->lead = false;
	out->timestamp_ms = sl__real_ms(&w->env);
	int rc = w->key != NULL ? sl__wal_draw_nonce(&w->env, out->nonce) : 0;
	return rc < 0 ? sl_err_set_errno(err, -rc, "append to %s: randomness", w->path) : 0;
}

static int reserve(sl_wal *w, size_t len, struct slot *out, bool want_lead, struct sl_err *err)
{
	int rc = sl__wal_check_process(w, err);
	if (rc != 0)
		return rc;
	if (len > SL_WAL_MAX_PAYLOAD || sealed_len(w, len) > SL_WAL_MAX_PAYLOAD)
		return too_big(w, len, err);
	size_t total = sealed_len(w, len) + WAL_FRAME_BYTES;
	rc = prepare_slot(w, out, err);
	if (rc != 0)
		return rc;
	sl__lock(&w->mu);
	rc = admit(w, total, err);
	if (rc == 0)
		rc = take_places(w, 1, total, out, err);
	if (rc == 0 && !out->batch->has_leader) {
		if (want_lead) {
			out->batch->has_leader = out->lead = true;
		} else if (!w->want_flush && w->helper_runs) {
			w->want_flush = true;
			sl__signal(&w->helper_cv);
		}
	}
	sl__unlock(&w->mu);
	return rc;
}

static int finish_slot(sl_wal *w, const struct slot *s, struct sl_err *err)
{
	if (s->lead) {
		sl__lock(&w->mu);
		lead(w, s->batch, s->id);
		sl__unlock(&w->mu);
	} else {
		follow(s->batch, s->id);
	}
	return outcome(w, s->id, err);
}

int sl_wal_append(sl_wal *w, const void *payload, size_t len, uint64_t *sequence, struct sl_err *err)
{
	struct slot s;
	int rc = reserve(w, len, &s, true, err);
	if (rc != 0)
		return rc;
	encode(w, &s, payload, len);
	encoded(&s);
	rc = finish_slot(w, &s, err);
	if (rc == 0 && sequence != NULL)
		*sequence = s.sequence;
	return rc;
}

int sl_wal_submit(sl_wal *w, const void *payload, size_t len, struct sl_wal_ticket *ticket, struct sl_err *err)
{
	struct slot s;
	int rc = reserve(w, len, &s, false, err);
	if (rc != 0)
		return rc;
	encode(w, &s, payload, len);
	encoded(&s);
	*ticket = (struct sl_wal_ticket){.sequence = s.sequence, .batch = s.id};
	return 0;
}

/* ---- waiting for tickets ---- */

/* With a deadline nobody leads: the helper flushes (or, without one, whoever waits without a deadline). */
static int wait_timed(sl_wal *w, const struct wal_batch *b, uint64_t id, int64_t timeout_ms, struct sl_err *err)
{
	int64_t deadline = sl__deadline_ns(&w->env, timeout_ms);
	sl__lock(&w->mu);
	w->timed_waiters++;
	bool in_time = true;
	while (!ended(b, id) && in_time)
		in_time = sl__wait(&w->env, &w->done_cv, &w->mu, deadline);
	w->timed_waiters--;
	sl__unlock(&w->mu);
	if (!ended(b, id))
		return sl_err_set(err, SL_ETIMEDOUT, "%s: not durable yet", w->path);
	return outcome(w, id, err);
}

int sl_wal_wait(sl_wal *w, const struct sl_wal_ticket *ticket, int64_t timeout_ms, struct sl_err *err)
{
	int rc = sl__wal_check_process(w, err);
	if (rc != 0)
		return rc;
	uint64_t id = ticket->batch;
	const struct wal_batch *b = &w->batch[id % 2];
	if (ended(b, id))
		return outcome(w, id, err);
	if (timeout_ms == 0)
		return sl_err_set(err, SL_ETIMEDOUT, "%s: not durable yet", w->path);
	if (timeout_ms > 0 && w->helper_runs)
		return wait_timed(w, b, id, timeout_ms, err);
	sl__lock(&w->mu);
	if (id > w->batch_id) {
		sl__unlock(&w->mu);
		return sl_err_set(err, SL_EINVAL, "ticket: not one of %s", w->path);
	}
	drive(w, id);
	return outcome(w, id, err);
}

int sl_wal_sync(sl_wal *w, struct sl_err *err)
{
	int rc = sl__wal_check_process(w, err);
	if (rc != 0)
		return rc;
	sl__lock(&w->mu);
	uint64_t id = current(w)->n > 0 ? w->batch_id : w->batch_id - 1;
	if (id <= w->done_id)
		rc = sl__wal_usable(w, err);
	if (id <= w->done_id) {
		sl__unlock(&w->mu);
		return rc;
	}
	drive(w, id);
	return outcome(w, id, err);
}

/* ---- many at once ---- */

/* Under mu, behind admit for the first: how many of the records fit the current batch and the backlog together? */
static size_t group_size(const sl_wal *w, const struct sl_wal_span *records, size_t n, size_t *bytes) SL_REQUIRES(w->mu)
{
	const struct wal_batch *b = &w->batch[w->batch_id % 2];
	size_t k = 0;
	for (*bytes = 0; k < n; k++) {
		size_t len = records[k].len;
		if (len > SL_WAL_MAX_PAYLOAD || sealed_len(w, len) > SL_WAL_MAX_PAYLOAD)
			break;
		size_t total = sealed_len(w, len) + WAL_FRAME_BYTES;
		if (*bytes + total > b->cap - b->fill || (k > 0 && backlog_full(w, *bytes + total)))
			break;
		*bytes += total;
	}
	return k;
}

/* Places for the first *k of the records, side by side in one batch: they are durable together or not at all. */
static int reserve_group(sl_wal *w, const struct sl_wal_span *records, size_t n, struct slot *out, size_t *k,
			 struct sl_err *err)
{
	if (records[0].len > SL_WAL_MAX_PAYLOAD || sealed_len(w, records[0].len) > SL_WAL_MAX_PAYLOAD)
		return too_big(w, records[0].len, err);
	int rc = prepare_slot(w, out, err);
	if (rc != 0)
		return rc;
	sl__lock(&w->mu);
	rc = admit(w, sealed_len(w, records[0].len) + WAL_FRAME_BYTES, err);
	if (rc == 0) {
		size_t bytes;
		*k = group_size(w, records, n, &bytes);
		rc = take_places(w, *k, bytes, out, err);
	}
	if (rc == 0 && !out->batch->has_leader)
		out->batch->has_leader = out->lead = true;
	sl__unlock(&w->mu);
	return rc;
}

/* One random nonce serves a group: its last eight bytes count up. */
static void next_nonce(uint8_t nonce[WAL_NONCE_BYTES])
{
	sl__put64(nonce + WAL_NONCE_BYTES - 8, sl__get64(nonce + WAL_NONCE_BYTES - 8) + 1);
}

static void encode_group(const sl_wal *w, struct slot s, const struct sl_wal_span *records, size_t k)
{
	for (size_t i = 0; i < k; i++) {
		encode(w, &s, records[i].data, records[i].len);
		s.at += sealed_len(w, records[i].len) + WAL_FRAME_BYTES;
		s.sequence++;
		next_nonce(s.nonce);
	}
	encoded(&s);
}

int sl_wal_append_many(sl_wal *w, const struct sl_wal_span *records, size_t n, uint64_t *first_sequence,
		       size_t *n_durable, struct sl_err *err)
{
	size_t done = 0, k = 0;
	int rc = sl__wal_check_process(w, err);
	while (rc == 0 && done < n) {
		struct slot s;
		rc = reserve_group(w, records + done, n - done, &s, &k, err);
		if (rc != 0)
			break;
		encode_group(w, s, records + done, k);
		rc = finish_slot(w, &s, err);
		if (rc == 0 && done == 0 && first_sequence != NULL)
			*first_sequence = s.sequence;
		done += rc == 0 ? k : 0;
	}
	if (n_durable != NULL)
		*n_durable = done;
	return rc;
}

int sl_wal_fd(sl_wal *w, struct sl_err *err)
{
	int rc = sl__wal_check_process(w, err);
	if (rc != 0)
		return rc;
	if (!w->helper_runs)
		return sl_err_set(err, SL_EINVAL, "%s: a descriptor needs the background thread", w->path);
	sl__lock(&w->mu);
	if (w->event_fd < 0)
		w->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int fd = w->event_fd >= 0 ? w->event_fd : sl_err_set_errno(err, errno, "eventfd");
	sl__unlock(&w->mu);
	return fd;
}

void sl_wal_fd_clear(sl_wal *w)
{
	uint64_t count;
	sl__lock(&w->mu);
	if (w->event_fd >= 0)
		(void)!read(w->event_fd, &count, sizeof count);
	sl__unlock(&w->mu);
}
