/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking places in the log: append, submit, wait. The order of reservations under mu is the order of sequences and of
 * bytes; payloads are encoded outside the lock, straight into the batch's buffer (commit.c has the whole picture).
 */
#include <errno.h>
#include <sys/eventfd.h>

#include "wal/commit.h"

struct slot {
	struct wal_batch *batch;
	uint8_t *at;
	uint64_t sequence;
	uint64_t id;
	int64_t timestamp_ms;
	uint8_t nonce[WAL_NONCE_BYTES]; /* of an encrypted log */
	bool lead;
};

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

/* The batch is full: have it flushed, on this thread when no other leads. */
static void wait_for_buffer(sl_wal *w) SL_REQUIRES(w->mu)
{
	struct wal_batch *b = sl__wal_current(w);
	b->was_full = true;
	if (!b->has_leader) {
		b->has_leader = true;
		sl__wal_lead(w, b, b->id);
	} else if (w->gathering) {
		w->gathering = false;
		sl__signal(&w->gather_cv);
		wait_for_room(w);
	} else {
		wait_for_room(w);
	}
}

/* An empty batch grows to the record, and the next ones with it, so that a flow of such records allocates once. */
static int grow_batch(sl_wal *w, struct wal_batch *b, size_t total, struct sl_err *err) SL_REQUIRES(w->mu)
{
	while (w->batch_cap < total && w->batch_cap < WAL_BATCH_MAX)
		w->batch_cap *= 2;
	size_t cap = SL_MAX(total, w->batch_cap);
	uint8_t *buf = sl__realloc(&w->env, b->buf, cap + WAL_BATCH_MARKS);
	if (buf == NULL)
		return sl_err_set(err, SL_ENOMEM, "append to %s: no memory for %zu bytes", w->path, total);
	b->buf = buf;
	b->cap = cap;
	return 0;
}

/* Wait until the current batch has room for total bytes and the backlog allows them. */
static int admit(sl_wal *w, size_t total, struct sl_err *err) SL_REQUIRES(w->mu)
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
	struct wal_batch *b = sl__wal_current(w);
	if (w->next_seq > WAL_MAX_SEQUENCE - n)
		return sl_err_set(err, SL_EFULL,
				  "%s: no sequence numbers are left; sluice wal recover --new-incarnation", w->path);
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
	return 0;
}

/* The caller will wait: one more of those the leader gathers. */
static void join_company(sl_wal *w, struct slot *s) SL_REQUIRES(w->mu)
{
	s->batch->company++;
	if (!s->batch->has_leader)
		s->batch->has_leader = s->lead = true;
	if (w->gathering && s->batch->company >= w->gather_target) {
		w->gathering = false;
		sl__signal(&w->gather_cv);
	}
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
	if (before == (WAL_LEADER_SLEEPS | 1))
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

/* The helper flushes what is submitted if its submitter does not wait for it. */
static void call_helper(sl_wal *w) SL_REQUIRES(w->mu)
{
	bool at_once = w->event_fd >= 0 || !w->gather;
	if (at_once ? w->want_flush : w->ticking)
		return;
	if (at_once) {
		w->want_flush = true;
	} else {
		w->ticking = true;
		w->tick_id = w->batch_id - 1;
		w->tick_at_ns = sl__mono_ns(&w->env);
	}
	sl__signal(&w->helper_cv);
}

/* Who will flush what has taken its place? want_lead: the caller, or one that it waits for. */
static void arrange_flush(sl_wal *w, struct slot *s, bool want_lead) SL_REQUIRES(w->mu)
{
	if (want_lead) {
		join_company(w, s);
		return;
	}
	s->batch->tickets++;
	if (!s->batch->has_leader && w->helper_runs)
		call_helper(w);
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
	if (rc == 0)
		arrange_flush(w, out, want_lead);
	sl__unlock(&w->mu);
	return rc;
}

static int finish_slot(sl_wal *w, const struct slot *s, struct sl_err *err)
{
	if (s->lead) {
		sl__lock(&w->mu);
		sl__wal_lead(w, s->batch, s->id);
		sl__unlock(&w->mu);
	} else {
		sl__wal_follow(s->batch, s->id);
	}
	return sl__wal_outcome(w, s->id, err);
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

/* A thread with a deadline never leads: the helper flushes (or, without one, a thread that waits without a
 * deadline). */
static int wait_timed(sl_wal *w, const struct wal_batch *b, uint64_t id, int64_t timeout_ms, struct sl_err *err)
{
	int64_t deadline = sl__deadline_ns(&w->env, timeout_ms);
	sl__lock(&w->mu);
	w->timed_waiters++;
	bool in_time = true;
	while (!sl__wal_ended(b, id) && in_time)
		in_time = sl__wait(&w->env, &w->done_cv, &w->mu, deadline);
	w->timed_waiters--;
	sl__unlock(&w->mu);
	if (!sl__wal_ended(b, id))
		return sl_err_set(err, SL_ETIMEDOUT, "%s: not durable yet", w->path);
	return ticket_outcome(w, id, err);
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
		return sl_err_set(err, SL_EINVAL, "ticket: not one of %s", w->path);
	if (done)
		return ticket_outcome(w, id, err);
	if (timeout_ms == 0)
		return sl_err_set(err, SL_ETIMEDOUT, "%s: not durable yet", w->path);
	if (w->helper_runs)
		return wait_timed(w, b, id, timeout_ms, err);
	sl__lock(&w->mu);
	sl__wal_drive(w, id);
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
	return rc != 0 ? rc : sl__wal_unheard(w, err);
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
			 bool want_lead, struct sl_err *err)
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
	if (rc == 0)
		arrange_flush(w, out, want_lead);
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
		rc = reserve_group(w, records + done, n - done, &s, &k, true, err);
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

int sl_wal_submit_many(sl_wal *w, const struct sl_wal_span *records, size_t n, struct sl_wal_ticket *ticket,
		       size_t *n_submitted, struct sl_err *err)
{
	struct slot s;
	size_t k = 0;
	int rc = sl__wal_check_process(w, err);
	if (rc == 0 && n == 0)
		rc = sl_err_set(err, SL_EINVAL, "n: there is nothing to submit");
	if (rc == 0)
		rc = reserve_group(w, records, n, &s, &k, false, err);
	if (rc != 0)
		return rc;
	encode_group(w, s, records, k);
	*ticket = (struct sl_wal_ticket){.sequence = s.sequence + k - 1, .batch = s.id};
	*n_submitted = k;
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
