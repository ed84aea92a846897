/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking places in the log: append, submit, wait. The order of reservations under mu is the order of sequences and of
 * bytes; payloads are encoded outside the lock, straight into the batch's buffer (commit.c has the whole picture).
 */
#include <errno.h>
#include <sys/eventfd.h>

#include "wal/commit.h"

/* Places in the log for records that are next to each other in one batch. */
struct slot {
	const struct sl_wal_span *records;
	size_t n;          /* records: before reserve how many there are, then how many have a place */
	bool caller_waits; /* the caller flushes them, or waits for another thread that does */
	bool lead;         /* the caller flushes them */
	struct wal_batch *batch;
	uint64_t id;       /* of the batch */
	uint64_t sequence; /* of the first record */
	uint8_t *at;
	int64_t timestamp_ms;
	uint8_t nonce[WAL_NONCE_BYTES]; /* of an encrypted log */
};

/* ---- reserving ---- */

static bool backlog_full(const sl_wal *w, size_t total) SL_REQUIRES(w->mu)
{
	uint64_t backlog = w->index.pending_bytes + w->inflight_bytes;
	return w->opts.max_pending_bytes >= 0 && backlog > 0 && backlog + total > (uint64_t)w->opts.max_pending_bytes;
}

static void wait_for_room(sl_wal *w) SL_REQUIRES(w->mu)
{
	w->room_waiters++;
	(void)sl__wait(&w->env, &w->room_cv, &w->mu, SL_FOREVER);
	w->room_waiters--;
}

/* Wait until the current batch has room for total bytes and the backlog allows them. */
static int wait_until_admitted(sl_wal *w, size_t total, struct sl_err *err) SL_REQUIRES(w->mu)
{
	for (;;) {
		int rc = sl__wal_usable(w, err);
		if (rc != 0)
			return rc;
		struct wal_batch *b = sl__wal_current(w);
		if (backlog_full(w, total)) {
			bool block = w->opts.on_full == SL_WAL_FULL_BLOCK ||
				     (w->opts.on_full == SL_WAL_FULL_AUTO && w->sender_runs);
			if (!block)
				return sl_err_set(
					err, SL_EFULL,
					"%s: the backlog is at its limit of %lld bytes (max_pending_bytes); %s",
					w->path, (long long)w->opts.max_pending_bytes,
					w->sender_runs ? "the receiver lags; wait for it or raise the limit"
						       : "start a sender or raise the limit");
			if (b->n > 0 && !b->has_leader)
				sl__wal_flush_orphans(w);
			else
				wait_for_room(w);
			continue;
		}
		if (b->cap - b->fill >= total)
			return 0;
		if (b->n == 0) {
			/* An empty batch grows to the record, and the next ones with it, so that a flow of such records
			 * allocates once. */
			while (w->batch_cap < total && w->batch_cap < WAL_BATCH_MAX)
				w->batch_cap *= 2;
			size_t cap = SL_MAX(total, w->batch_cap);
			uint8_t *buf = sl__realloc(&w->env, b->buf, cap + WAL_BATCH_MARKS);
			if (buf == NULL)
				return sl_err_set(err, SL_ENOMEM, "append to %s: out of memory for %zu bytes", w->path,
						  total);
			b->buf = buf;
			b->cap = cap;
			return 0;
		}
		/* The batch is full: have it flushed, on this thread when no other leads. */
		b->was_full = true;
		if (!b->has_leader) {
			b->has_leader = true;
			sl__wal_lead(w, b, b->id);
			continue;
		}
		if (w->gathering) {
			w->gathering = false;
			sl__signal(&w->gather_cv);
		}
		wait_for_room(w);
	}
}

static size_t sealed_len(const sl_wal *w, size_t len)
{
	return w->key != NULL ? len + WAL_SEAL_BYTES : len;
}

/* Under mu, after admit for the first record: take adjacent places for as many as fit the current batch and the
 * backlog together. */
static int take_places(sl_wal *w, struct slot *s, struct sl_err *err) SL_REQUIRES(w->mu)
{
	struct wal_batch *b = sl__wal_current(w);
	size_t bytes = 0, n = 0;
	for (; n < s->n; n++) {
		size_t len = s->records[n].len;
		if (len > SL_WAL_MAX_PAYLOAD || sealed_len(w, len) > SL_WAL_MAX_PAYLOAD)
			break;
		size_t total = sealed_len(w, len) + WAL_FRAME_BYTES;
		if (bytes + total > b->cap - b->fill || (n > 0 && backlog_full(w, bytes + total)))
			break;
		bytes += total;
	}
	if (w->next_seq > WAL_MAX_SEQUENCE - n)
		return sl_err_set(err, SL_EFULL,
				  "%s: no sequence numbers are left; restart the stream with sluice wal recover "
				  "--new-incarnation",
				  w->path);
	if (sl__wal_index_reserve(&w->index, n) != 0)
		return sl_err_set(err, SL_ENOMEM, "append to %s: out of memory for the index", w->path);
	s->n = n;
	s->batch = b;
	s->id = b->id;
	s->sequence = w->next_seq;
	s->at = b->buf + b->fill;
	w->next_seq += n;
	b->fill += bytes;
	b->n += (uint32_t)n;
	w->inflight_bytes += bytes;
	atomic_fetch_add_explicit(&b->writers, 1, memory_order_relaxed);
	return 0;
}

/* Places for the first s->n of the records, next to each other in one batch: they are durable together or not at all.
 */
static int reserve_places(sl_wal *w, struct slot *s, struct sl_err *err)
{
	size_t len = s->records[0].len;
	if (len > SL_WAL_MAX_PAYLOAD || sealed_len(w, len) > SL_WAL_MAX_PAYLOAD)
		return sl_err_set(err, SL_ETOOBIG, "append to %s: the payload has %zu bytes; at most %zu fit a record",
				  w->path, len, SL_WAL_MAX_PAYLOAD - (w->key != NULL ? WAL_SEAL_BYTES : 0));
	/* What can fail, or takes time, and needs no lock. */
	s->timestamp_ms = sl__real_ms(&w->env);
	int rc = w->key != NULL ? sl__wal_draw_nonce(&w->env, s->nonce) : 0;
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "append to %s: random bytes", w->path);
	sl__lock(&w->mu);
	rc = wait_until_admitted(w, sealed_len(w, len) + WAL_FRAME_BYTES, err);
	if (rc == 0)
		rc = take_places(w, s, err);
	if (rc == 0 && s->caller_waits) {
		/* One more of those that the leader gathers. */
		s->batch->company++;
		if (!s->batch->has_leader)
			s->batch->has_leader = s->lead = true;
		if (w->gathering && s->batch->company >= w->gather_target) {
			w->gathering = false;
			sl__signal(&w->gather_cv);
		}
	} else if (rc == 0) {
		/* The helper flushes what is submitted if its submitter does not wait for it. */
		bool now = w->event_fd >= 0 || !w->gather, called = now ? w->want_flush : w->ticking;
		s->batch->tickets++;
		if (!s->batch->has_leader && w->helper_runs && !called) {
			if (now) {
				w->want_flush = true;
			} else {
				w->ticking = true;
				w->tick_id = w->batch_id - 1;
				w->tick_at_ns = sl__mono_ns(&w->env);
			}
			sl__signal(&w->helper_cv);
		}
	}
	sl__unlock(&w->mu);
	return rc;
}

/* Outside the lock: the bytes of the slot's records. Cannot fail. */
static void encode_records(const sl_wal *w, struct slot s)
{
	for (size_t i = 0; i < s.n; i++) {
		const struct sl_wal_span *payload = &s.records[i];
		uint32_t stored = (uint32_t)sealed_len(w, payload->len);
		uint8_t *body = s.at + WAL_BODY_OFFSET;
		sl__wal_begin(s.at, s.sequence, SL_WAL_PENDING, s.timestamp_ms, stored);
		if (w->key != NULL) {
			struct wal_seal_ctx at = {w->id, w->header.incarnation, s.sequence, s.timestamp_ms};
			sl__wal_seal_payload(w->key, &at, s.nonce, payload, body);
			/* One random nonce serves a group: its last eight bytes count up. */
			uint8_t *counter = s.nonce + WAL_NONCE_BYTES - 8;
			sl__put64(counter, sl__get64(counter) + 1);
		} else if (payload->len > 0) {
			memcpy(body, payload->data, payload->len);
		}
		sl__wal_seal(s.at, stored);
		s.at += stored + WAL_FRAME_BYTES;
		s.sequence++;
	}
	/* The leader may write. */
	uint32_t before = atomic_fetch_sub_explicit(&s.batch->writers, 1, memory_order_acq_rel);
	if (before == (WAL_LEADER_SLEEPS | 1))
		sl__futex_wake_all(&s.batch->writers);
}

int sl_wal_append(sl_wal *w, const void *payload, size_t len, uint64_t *sequence, struct sl_err *err)
{
	return sl_wal_append_many(w, &(struct sl_wal_span){.data = payload, .len = len}, 1, sequence, NULL, err);
}

int sl_wal_submit(sl_wal *w, const void *payload, size_t len, struct sl_wal_ticket *ticket, struct sl_err *err)
{
	size_t n;
	return sl_wal_submit_many(w, &(struct sl_wal_span){.data = payload, .len = len}, 1, ticket, &n, err);
}

/* ---- waiting for tickets ---- */

/* The outcome of a ticket's batch; a failure that a caller got here is not returned again by sync or close. */
static int ticket_outcome(sl_wal *w, uint64_t id, struct sl_err *err)
{
	int rc = sl__wal_outcome(w, id, err);
	if (rc != 0) {
		sl__lock(&w->mu);
		w->heard_id = SL_MAX(w->heard_id, id);
		sl__unlock(&w->mu);
	}
	return rc;
}

int sl_wal_wait(sl_wal *w, const struct sl_wal_ticket *ticket, int64_t timeout_ms, struct sl_err *err)
{
	int rc = sl__wal_check_process(w, err);
	if (rc != 0)
		return rc;
	uint64_t id = ticket->batch;
	const struct wal_batch *b = &w->batch[id % 2];
	if (sl__wal_ended(b, id))
		return ticket_outcome(w, id, err);
	sl__lock(&w->mu);
	bool strange = id > w->batch_id, done = id <= w->done_id;
	if (!strange && !done && timeout_ms < 0) {
		sl__wal_drive(w, id);
		return ticket_outcome(w, id, err);
	}
	sl__unlock(&w->mu);
	if (strange)
		return sl_err_set(err, SL_EINVAL, "ticket: not issued by %s", w->path);
	if (done)
		return ticket_outcome(w, id, err);
	if (timeout_ms == 0)
		return sl_err_set(err, SL_ETIMEDOUT, "%s: not durable yet", w->path);
	sl__lock(&w->mu);
	if (!w->helper_runs) {
		sl__wal_drive(w, id);
		return ticket_outcome(w, id, err);
	}
	/* A thread with a deadline never leads: the helper flushes. */
	int64_t deadline = sl__deadline_ns(&w->env, timeout_ms);
	bool in_time = true;
	w->timed_waiters++;
	while (!sl__wal_ended(b, id) && in_time)
		in_time = sl__wait(&w->env, &w->done_cv, &w->mu, deadline);
	w->timed_waiters--;
	sl__unlock(&w->mu);
	if (!sl__wal_ended(b, id))
		return sl_err_set(err, SL_ETIMEDOUT, "%s: not durable yet", w->path);
	return ticket_outcome(w, id, err);
}

int sl__wal_unheard(sl_wal *w, struct sl_err *err)
{
	sl__lock(&w->mu);
	uint64_t id = w->unheard_id > w->heard_id ? w->unheard_id : 0;
	w->heard_id = SL_MAX(w->heard_id, id);
	sl__unlock(&w->mu);
	return id != 0 ? sl__wal_outcome(w, id, err) : 0;
}

int sl_wal_sync(sl_wal *w, struct sl_err *err)
{
	int rc = sl__wal_check_process(w, err);
	if (rc != 0)
		return rc;
	sl__lock(&w->mu);
	uint64_t id = sl__wal_current(w)->n > 0 ? w->batch_id : w->batch_id - 1;
	if (id > w->done_id) {
		sl__wal_drive(w, id);
		rc = ticket_outcome(w, id, err);
	} else {
		rc = sl__wal_usable(w, err);
		sl__unlock(&w->mu);
	}
	if (rc != 0)
		return rc;
	return sl__wal_unheard(w, err);
}

/* ---- appending ---- */

int sl_wal_append_many(sl_wal *w, const struct sl_wal_span *records, size_t n, uint64_t *first_sequence,
		       size_t *n_durable, struct sl_err *err)
{
	size_t done = 0;
	int rc = sl__wal_check_process(w, err);
	while (rc == 0 && done < n) {
		struct slot s = {.records = records + done, .n = n - done, .caller_waits = true};
		rc = reserve_places(w, &s, err);
		if (rc != 0)
			break;
		encode_records(w, s);
		if (s.lead) {
			sl__lock(&w->mu);
			sl__wal_lead(w, s.batch, s.id);
			sl__unlock(&w->mu);
		} else {
			sl__wal_follow(s.batch, s.id);
		}
		rc = sl__wal_outcome(w, s.id, err);
		if (rc != 0)
			break;
		if (done == 0 && first_sequence != NULL)
			*first_sequence = s.sequence;
		done += s.n;
	}
	if (n_durable != NULL)
		*n_durable = done;
	return rc;
}

int sl_wal_submit_many(sl_wal *w, const struct sl_wal_span *records, size_t n, struct sl_wal_ticket *ticket,
		       size_t *n_submitted, struct sl_err *err)
{
	struct slot s = {.records = records, .n = n};
	int rc = sl__wal_check_process(w, err);
	if (rc != 0)
		return rc;
	if (n == 0)
		return sl_err_set(err, SL_EINVAL, "n: 0; it must be at least 1");
	rc = reserve_places(w, &s, err);
	if (rc != 0)
		return rc;
	encode_records(w, s);
	*ticket = (struct sl_wal_ticket){.sequence = s.sequence + s.n - 1, .batch = s.id};
	*n_submitted = s.n;
	return 0;
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
		(void)!read(w->event_fd, &count, sizeof(count));
	sl__unlock(&w->mu);
}
