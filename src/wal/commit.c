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
 *     order.
 * C2  A batch is in the log as a whole or not at all: when its flush fails, the file is cut back to the logical end,
 *     and the batch after it, whose sequences would leave a gap, fails with it. Numbers are then given anew.
 * C3  A failed sync, or any write error but a full disk, poisons the handle: what the page cache holds is unknown.
 * C4  Memory for the index is reserved with the record, so nothing can fail between the sync and the acknowledgement.
 */
#include <errno.h>
#include <sys/eventfd.h>

#include "wal/commit.h"

int sl__wal_batches_init(sl_wal *w, struct sl_err *err)
{
	for (unsigned i = 0; i < 2; i++) {
		struct wal_batch *b = &w->batch[i];
		b->cap = WAL_BATCH_START;
		b->buf = sl__alloc(&w->env, b->cap + WAL_BATCH_MARKS);
		if (b->buf == NULL)
			return sl_err_set(err, SL_ENOMEM, "no memory for the buffers of %s", w->path);
	}
	w->batch_cap = WAL_BATCH_START;
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
		return sl_err_set(err, SL_EPOISONED, "%s does not accept writes since: %.150s; close and open it again",
				  w->path, w->poison.msg);
	return 0;
}

struct wal_batch *sl__wal_current(sl_wal *w)
{
	return &w->batch[w->batch_id % 2];
}

/* ---- failures, for tickets that ask later ---- */

static void remember_failure(sl_wal *w, uint64_t first, uint64_t last, const struct sl_err *why)
{
	atomic_store_explicit(&w->last_failed_id, last, memory_order_release);
	if (w->n_failures > 0 && w->failures[w->n_failures - 1].last + 1 == first &&
	    w->failures[w->n_failures - 1].err.code == why->code) {
		w->failures[w->n_failures - 1].last = last;
		return;
	}
	struct wal_failure *grown = w->failures;
	if (w->n_failures == WAL_FAILURES_KEPT && grown != NULL) {
		w->forgotten_failures = w->failures[0].last;
		w->n_failures = WAL_FAILURES_KEPT - 1;
		memmove(w->failures, w->failures + 1, (WAL_FAILURES_KEPT - 1) * sizeof(*w->failures));
	} else if ((w->n_failures & (w->n_failures + 1)) == 0) { /* grow at 0, 1, 3, 7 … */
		grown = sl__realloc(&w->env, w->failures, (w->n_failures * 2 + 1) * sizeof(*grown));
	}
	if (grown == NULL) {
		w->forgotten_failures = last;
		return;
	}
	w->failures = grown;
	w->failures[w->n_failures++] = (struct wal_failure){first, last, *why};
}

/* The outcome of a batch that ended. */
int sl__wal_outcome(sl_wal *w, uint64_t id, struct sl_err *err)
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

bool sl__wal_ended(const struct wal_batch *b, uint64_t id)
{
	return (int32_t)(atomic_load_explicit(&b->done, memory_order_acquire) - (uint32_t)id) >= 0;
}

/* ---- the end of a flush ---- */

static void publish_success(sl_wal *w, struct wal_batch *b, size_t bytes) SL_REQUIRES(w->mu)
{
	for (size_t off = 0; off < b->fill;) {
		const uint8_t *p = b->buf + off;
		uint32_t total = sl__get32(p) + 4;
		sl__wal_index_add(&w->index, &(struct wal_entry){.sequence = sl__get64(p + 4),
								 .offset = w->end + off,
								 .timestamp_ms = (int64_t)sl__get64(p + 16),
								 .total = total,
								 .status = SL_WAL_PENDING});
		off += total;
	}
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
	if (w->renewal_flying) {
		w->renewed = w->renewing;
		w->renewing = (struct wal_renewal){0, 0};
		w->renewal_flying = false;
	}
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
	/* Both buffers follow the flow; one that grew for a large record shrinks again. */
	if (taken->was_full && w->batch_cap < WAL_BATCH_MAX)
		w->batch_cap *= 2;
	size_t cap = w->batch_cap;
	if (cap != next->cap) {
		uint8_t *buf = sl__realloc(&w->env, next->buf, cap + WAL_BATCH_MARKS);
		if (buf != NULL) {
			next->buf = buf;
			next->cap = cap;
		}
	}
	next->id = taken->id + 1;
	next->fill = 0;
	next->n = next->company = next->tickets = 0;
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
	left = atomic_fetch_or_explicit(&b->writers, WAL_LEADER_SLEEPS, memory_order_acq_rel) | WAL_LEADER_SLEEPS;
	while (left != WAL_LEADER_SLEEPS) {
		sl__futex_wait(&b->writers, left);
		left = atomic_load_explicit(&b->writers, memory_order_acquire);
	}
	atomic_store_explicit(&b->writers, 0, memory_order_relaxed);
}

/* C2: batch b failed, and with it the one that was being filled meanwhile. Called with flushing still set. */
static void publish_failure(sl_wal *w, struct wal_batch *b, const struct sl_err *why) SL_REQUIRES(w->mu)
{
	struct wal_batch *behind = sl__wal_current(w);
	remember_failure(w, b->id, behind->id, why);
	sl_counter_add(w->metrics.flush_errors, 1);
	if (b->tickets + behind->tickets > 0)
		w->unheard_id = behind->tickets > 0 ? behind->id : b->id;
	sl__wal_index_unreserve(&w->index, b->n + behind->n);
	w->inflight_bytes -= b->fill + behind->fill;
	if (b->n > 0)
		w->next_seq = b->first_seq;
	else if (behind->n > 0)
		w->next_seq = behind->first_seq;
	/* Marks that did not get to disk go back in front of the newer ones. Without memory they are forgotten: a
	 * resend. */
	w->renewal_flying = false;
	for (size_t i = 0; i < w->marks.n; i++) {
		const struct wal_status_range *m = &w->marks.v[i];
		(void)!sl__wal_ranges_set(&w->flying, m->first, m->last, m->status);
	}
	struct wal_ranges empty = w->marks;
	w->marks = w->flying;
	w->flying = empty;
	w->flying.n = 0;
	if (w->marks.n > 0 && w->marks_since_ns == 0)
		w->marks_since_ns = sl__mono_ns(&w->env);
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

/* ---- leading ---- */

/* Encode queued marks after the data; returns their bytes. */
static size_t take_marks(sl_wal *w, struct wal_batch *b) SL_REQUIRES(w->mu)
{
	if (w->marks.n == 0 && w->renewing.incarnation == 0)
		return 0;
	size_t bytes = 0;
	int64_t now = sl__real_ms(&w->env);
	if (w->renewing.incarnation != 0) {
		bytes += sl__wal_encode_renewal(b->buf + b->fill, w->renewing, now);
		w->renewal_flying = true;
	}
	struct wal_ranges taken = w->marks;
	w->marks = w->flying;
	w->marks.n = 0;
	w->flying = taken;
	w->marks_since_ns = 0;
	size_t room = WAL_BATCH_MARKS / WAL_MARK_BYTES - 1; /* one place is the renewal's */
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

/* [leader] Write and sync. A full disk leaves the file cut back to its logical end, so that nothing of the batch
 * survives; everything else that fails poisons (by *poison). */
static int write_wal_batch(sl_wal *w, const struct wal_batch *b, size_t bytes, bool *poison, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	*poison = false;
	if (w->end >= (uint64_t)w->opts.segment_bytes && w->active_first != 0) {
		int rotated = sl__wal_rotate(w, &why);
		if (rotated == SL_EPOISONED)
			goto poisoned;
		if (rotated != 0)
			sl__log(&w->env, SL_LOG_WARN, "wal", "could not start a new segment; continuing in the old one",
				SL__F_STR("log", w->path), SL__F_STR("error", why.msg));
	}
	if (w->cut_needed) {
		int rc = sl__wal_trim(w, &why);
		if (rc == SL_EPOISONED)
			goto poisoned;
		if (rc != 0) {
			if (err != NULL)
				*err = why;
			return rc;
		}
	}
	sl__wal_await_prepared(w, w->end + bytes);
	sl__wal_prepare_inline(w, w->end + bytes);
	int rc = sl__pwrite_full(&w->env, w->fd, b->buf, bytes, w->end);
	if (disk_is_full(rc)) {
		/* The zeros ahead may be what fills it. The cut also takes away what was written of this batch. */
		w->cut_needed = true;
		int cut_rc = sl__wal_give_back(w, &why);
		if (cut_rc == SL_EPOISONED)
			goto poisoned;
		if (cut_rc == 0)
			rc = sl__pwrite_full(&w->env, w->fd, b->buf, bytes, w->end);
	}
	if (rc < 0) {
		w->cut_needed = true;
		*poison = !disk_is_full(rc);
		int cut_rc = *poison ? 0 : sl__wal_trim(w, &why);
		if (cut_rc == SL_EPOISONED)
			goto poisoned;
		if (cut_rc != 0)
			sl__log(&w->env, SL_LOG_WARN, "wal", "could not cut the file back; retrying later",
				SL__F_STR("log", w->path), SL__F_STR("error", why.msg));
		return sl_err_set_errno(err, -rc, "append to %s: write", w->path);
	}
	rc = SL__IO(&w->env, datasync, w->fd);
	if (rc < 0) {
		*poison = true;
		return sl_err_set_errno(err, -rc, "append to %s: sync", w->path);
	}
	return 0;

poisoned:
	*poison = true;
	if (err != NULL)
		*err = why;
	return why.code;
}

/* Flush b, whose leader the caller is. mu is held on entry and exit; when it returns, b has ended. */
void sl__wal_lead(sl_wal *w, struct wal_batch *b, uint64_t id) SL_REQUIRES(w->mu)
{
	while (w->flushing && !sl__wal_ended(b, id))
		(void)sl__wait(&w->env, &w->lead_cv, &w->mu, SL_FOREVER);
	if (sl__wal_ended(b, id))
		return;
	w->flushing = true;
	/* Wait a part of a flush's time for those who were in the last cycle: they are about to come back. */
	if (w->gather && b->company > 0 && b->company < w->gather_target && !b->was_full) {
		int64_t deadline = sl__mono_ns(&w->env) + SL_MIN(w->flush_ewma_ns / 2, (int64_t)1000000);
		w->gathering = true;
		while (w->gathering && b->company < w->gather_target)
			if (!sl__wait(&w->env, &w->gather_cv, &w->mu, deadline))
				break;
		w->gathering = false;
	}
	struct sl_err err = SL_ERR_INIT;
	bool poison = false;
	size_t bytes = b->fill + take_marks(w, b);
	int64_t began = sl__mono_ns(&w->env);
	swap_batches(w, b);
	int rc = sl__wal_usable(w, &err);
	sl__unlock(&w->mu);
	await_writers(b);
	if (rc == 0 && bytes > 0)
		rc = write_wal_batch(w, b, bytes, &poison, &err);
	int64_t took = sl__mono_ns(&w->env) - began;
	sl_histogram_observe(w->metrics.flush_seconds, (uint64_t)took);
	/* C2. The sync of the records is not tried again: they are cut off. That the cut is synced is no second try: a
	 * power loss must not bring back what the append said is not there. */
	if (poison && SL__IO(&w->env, truncate, w->fd, w->end) == 0)
		(void)SL__IO(&w->env, datasync, w->fd);
	sl__lock(&w->mu);
	w->flush_ewma_ns += (took - w->flush_ewma_ns) / 8;
	if (poison && !w->poisoned) {
		/* No more durable writes: remember why, fail everyone who waits. */
		w->poisoned = true;
		w->poison = err;
		sl__broadcast(&w->room_cv);
		sl__broadcast(&w->helper_cv);
	}
	if (rc == 0) {
		w->gather_target = b->company + sl__wal_current(w)->company;
		publish_success(w, b, bytes);
		atomic_store_explicit(&b->done, (uint32_t)id, memory_order_release);
	} else {
		publish_failure(w, b, &err);
	}
	w->flushing = false;
	sl__broadcast(&w->lead_cv);
	if (w->timed_waiters > 0)
		sl__broadcast(&w->done_cv);
	if (w->event_fd >= 0) {
		uint64_t one = 1;
		(void)!write(w->event_fd, &one, sizeof(one));
	}
	sl__unlock(&w->mu);
	sl__futex_wake_all(&b->done);
	sl__lock(&w->mu);
}

void sl__wal_follow(struct wal_batch *b, uint64_t id)
{
	uint32_t seen;
	while (!sl__wal_ended(b, id)) {
		seen = atomic_load_explicit(&b->done, memory_order_acquire);
		if ((int32_t)(seen - (uint32_t)id) < 0)
			sl__futex_wait(&b->done, seen);
	}
}

/* Become the leader of batch id when it has none, else follow it. mu is held on entry, not on exit. */
void sl__wal_drive(sl_wal *w, uint64_t id) SL_RELEASE(w->mu)
{
	struct wal_batch *b = &w->batch[id % 2];
	bool mine = id == w->batch_id && !b->has_leader;
	if (mine) {
		b->has_leader = true;
		sl__wal_lead(w, b, id);
	}
	sl__unlock(&w->mu);
	if (!mine)
		sl__wal_follow(b, id);
}

void sl__wal_flush_orphans(sl_wal *w)
{
	struct wal_batch *b = sl__wal_current(w);
	w->want_flush = false;
	if (b->n > 0 && !b->has_leader) {
		b->has_leader = true;
		sl__wal_lead(w, b, b->id);
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
	sl__wal_drive(w, id);
	return sl__wal_outcome(w, id, err);
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
