/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sender's thread: one batch in flight, in order, for as long as it takes.
 *
 *              ┌──────────── a record became durable ───────────┐
 *              ▼                                                │
 *   start ─▶ active ──── send failed ────▶ waiting ── delay ──▶ active ── stop ──▶ stopped
 *              │                                                  │
 *              └── a record that cannot be read, or conflict again ─▶ halted ── stop ──▶ stopped
 *
 * T1  Only the receiver's mark acknowledges: what it covers is settled as sent, and nothing else is.
 * T2  Only durable records are sent: the index holds no others.
 * T3  A refused record is parked once all before it were taken, and is settled as failed once its letter is durable.
 * T4  A mark counts only when it is of this log's records; where log and receiver differ, everything that was not
 *     acknowledged goes under a new incarnation, which is on disk before the first record is sent under it. Where the
 *     receiver lost what it acknowledged, and has other records instead, everything that the log has goes under it.
 * T5  mu is never held while the receiver, the disk, the dead letters or the log callback are at work.
 */
#include "wal/sender.h"

#define CANCEL_AGAIN_MS 1000

/* ---- the thread ---- */

/* While stopping, nothing that was pending when stop was called is left: is there still a reason to continue? Skipped
 * ranges are reported once if the receiver answers. */
static bool must_end(sl_wal *w, enum sender_work work) SL_REQUIRES(w->mu)
{
	const struct wal_sender_state *s = w->sender;
	const struct wal_entry *entry = sl__wal_index_next(&w->index, 0);
	if (s->phase != SENDER_STOPPING || (entry != NULL && entry->sequence <= s->stop_after))
		return false;
	return !(work == SENDER_SEND && s->n == 0 && s->failures == 0);
}

/* Does the planned batch wait for more? One that holds all there is and has room does, but not while the sender is
 * being stopped, and not while the receiver is in trouble: then every answer counts. */
static bool batch_lingers(sl_wal *w) SL_REQUIRES(w->mu)
{
	struct wal_sender_state *s = w->sender;
	bool room = s->n > 0 && s->n < s->cap && s->entries[s->n - 1].sequence == w->durable_seq;
	if (w->opts.linger_ms == 0 || s->phase != SENDER_RUNNING || s->failures > 0 || s->limit != 0 || !room)
		return false;
	int64_t now = sl__mono_ns(&w->env);
	if (s->linger_until_ns == SL_FOREVER)
		s->linger_until_ns = now + w->opts.linger_ms * 1000000;
	return now < s->linger_until_ns;
}

static void sender_work(sl_wal *w) SL_REQUIRES(w->mu)
{
	struct wal_sender_state *s = w->sender;
	if (s->mark_known && sl__wal_settle(w, 1, s->mark, SL_WAL_SENT) != 0) {
		sl__wal_sender_no_memory(w);
		return;
	}
	enum sender_work next = sl__wal_sender_plan(w, s);
	if (must_end(w, next)) {
		s->finished = true;
		return;
	}
	if (next == SENDER_SEND && batch_lingers(w)) {
		(void)sl__wait(&w->env, &w->sender_cv, &w->mu, s->linger_until_ns);
		return;
	}
	if (next != SENDER_NOTHING) {
		s->linger_until_ns = SL_FOREVER;
		sl__wal_sender_do(w, next);
		return;
	}
	bool some = w->inflight_bytes > 0 || w->index.pending > 0;
	int64_t until = some ? sl__deadline_ns(&w->env, w->opts.flush_interval_ms) : SL_FOREVER;
	(void)sl__wait(&w->env, &w->sender_cv, &w->mu, SL_MIN(until, s->stop_at_ns));
}

static void *sender_main(void *arg)
{
	sl_wal *w = arg;
	sl__lock(&w->mu);
	struct wal_sender_state *s = w->sender;
	while (!s->finished) {
		int64_t now = sl__mono_ns(&w->env);
		if (s->phase == SENDER_STOPPING && (now >= s->stop_at_ns || s->halt.code != 0))
			s->finished = true;
		else if (s->halt.code != 0)
			(void)sl__wait(&w->env, &w->sender_cv, &w->mu, SL_FOREVER);
		else if (now >= s->retry_at_ns)
			sender_work(w);
		else if (must_end(w, SENDER_NOTHING))
			s->finished = true;
		else
			(void)sl__wait(&w->env, &w->sender_cv, &w->mu, SL_MIN(s->retry_at_ns, s->stop_at_ns));
	}
	s->thread_done = true;
	w->sender_runs = false;
	sl__broadcast(&s->done_cv);
	sl__broadcast(&w->room_cv);
	sl__unlock(&w->mu);
	return NULL;
}

/* ---- start and stop ---- */

static int start_locked(sl_wal *w, const struct sl_wal_sender *table, void *ctx, struct sl_err *err) SL_REQUIRES(w->mu)
{
	int rc = sl__wal_usable(w, err);
	if (rc != 0)
		return rc;
	if (!sl__wal_sender_idle(w))
		return sl_err_set(err, SL_EINVAL, "start: %s already has a running sender; stop it first", w->path);
	struct wal_sender_state *s = w->sender;
	if (s == NULL) {
		s = sl__calloc(&w->env, 1, sizeof(*s));
		if (s == NULL || sl__wal_sender_alloc(w, s) != 0) {
			if (s != NULL)
				sl__wal_sender_release(w, s);
			sl__free(&w->env, s);
			return sl_err_set(err, SL_ENOMEM, "start the sender of %s: out of memory", w->path);
		}
		sl__cond_init(&s->done_cv);
		w->sender = s;
	}
	/* What an earlier run knew is asked anew. */
	s->table = table;
	s->ctx = ctx;
	s->thread_done = s->in_send = s->finished = s->mark_known = false;
	s->stop_at_ns = SL_FOREVER;
	s->mark = s->suspects = s->find_from = 0;
	s->compared = (struct sl_wal_mark){0};
	s->n_untried = 0;
	s->probe = 0;
	s->halt = s->trouble = (struct sl_err)SL_ERR_INIT;
	s->refusal = (struct sender_refusal){0};
	s->failures = 0;
	s->retry_at_ns = INT64_MIN;
	s->linger_until_ns = SL_FOREVER;
	s->limit = s->n_replay = s->n = s->n_read = s->n_skipped = 0;
	sl__prng_init(&s->prng, &w->env);
	rc = sl__thread_start(&s->thread, "sl-wal-send", sender_main, w);
	if (rc < 0)
		return sl__thread_error(err, rc, "sender", w->path);
	s->phase = SENDER_RUNNING;
	s->show = SL_WAL_SENDER_RUNNING;
	w->sender_runs = true;
	return 0;
}

int sl_wal_sender_start(sl_wal *w, const struct sl_wal_sender *sender, void *ctx, struct sl_err *err)
{
	int rc = sl__wal_check_process(w, err);
	if (rc != 0)
		return rc;
	if (sender == NULL || sender->version != SL_WAL_SENDER_VERSION || sender->send == NULL)
		return sl_err_set(err, SL_EINVAL,
				  "sender: NULL, without send, or of another version; use SL_WAL_SENDER_VERSION");
	sl__lock(&w->mu);
	rc = start_locked(w, sender, ctx, err);
	sl__unlock(&w->mu);
	return rc;
}

static void stop_locked(sl_wal *w, int64_t deadline_ns) SL_REQUIRES(w->mu)
{
	struct wal_sender_state *s = w->sender;
	if (sl__wal_sender_idle(w))
		return;
	bool mine = s->phase == SENDER_RUNNING;
	s->phase = SENDER_STOPPING;
	s->stop_at_ns = SL_MIN(s->stop_at_ns, deadline_ns);
	if (mine) {
		s->stop_after = w->durable_seq;
		/* What is left has its try now: a pause between two may be longer than the caller wants to wait. One
		 * that the receiver has asked for is kept. */
		if (s->trouble.error_class != SL_CLASS_THROTTLED && s->trouble.retry_after_ms <= 0)
			s->retry_at_ns = INT64_MIN;
	}
	sl__broadcast(&w->sender_cv);
	sl__broadcast(&s->done_cv);
	if (!mine) {
		while (s->phase == SENDER_STOPPING)
			(void)sl__wait(&w->env, &s->done_cv, &w->mu, SL_FOREVER);
		return;
	}
	/* Wait for the thread's end; past the deadline, when no send begins any more, ask a running one to return. Now
	 * and then again: the first call may have come before it could listen. */
	int64_t cancel_at = INT64_MIN;
	while (!s->thread_done) {
		int64_t now = sl__mono_ns(&w->env), until = SL_FOREVER;
		bool can_cancel = s->in_send && s->table->cancel != NULL;
		if (now < s->stop_at_ns) {
			until = s->stop_at_ns;
		} else if (can_cancel && now < cancel_at) {
			until = cancel_at;
		} else if (can_cancel) {
			sl__unlock(&w->mu);
			s->table->cancel(s->ctx);
			sl__lock(&w->mu);
			cancel_at = sl__deadline_ns(&w->env, CANCEL_AGAIN_MS);
			continue;
		}
		(void)sl__wait(&w->env, &s->done_cv, &w->mu, until);
	}
	sl__unlock(&w->mu);
	(void)pthread_join(s->thread, NULL);
	sl__lock(&w->mu);
	s->phase = SENDER_IDLE;
	s->show = SL_WAL_SENDER_STOPPED;
	sl__broadcast(&s->done_cv);
}

int sl_wal_sender_stop(sl_wal *w, int64_t deadline_ms, struct sl_err *err)
{
	int rc = sl__wal_check_process(w, err);
	if (rc != 0)
		return rc;
	if (deadline_ms < 0 && deadline_ms != SL_UNLIMITED)
		return sl_err_set(err, SL_EINVAL, "deadline_ms: %lld is negative", (long long)deadline_ms);
	int64_t deadline_ns = sl__deadline_ns(&w->env, deadline_ms);
	sl__lock(&w->mu);
	bool flush = deadline_ms != 0 && !sl__wal_sender_idle(w) && sl__wal_usable(w, NULL) == 0;
	sl__unlock(&w->mu);
	/* What was submitted is to go as well. When that fails, its tickets say so. */
	if (flush)
		(void)!sl__wal_flush_now(w, NULL);
	sl__lock(&w->mu);
	stop_locked(w, deadline_ns);
	if (w->index.pending > 0) {
		bool trouble = w->sender != NULL && w->sender->trouble.code != 0;
		rc = sl_err_set(err, SL_EPENDING, "%llu records of %.64s are pending: %.150s",
				(unsigned long long)w->index.pending, w->id,
				trouble ? w->sender->trouble.msg : "not sent yet");
	}
	bool archive = !w->helper_runs && !w->closed && !w->archived;
	sl__unlock(&w->mu);
	if (archive)
		sl__wal_archive_settled(w);
	return rc;
}

void sl__wal_sender_free(sl_wal *w)
{
	/* In a forked child there is no thread to wait for, and a lock may be held for ever. */
	bool child = sl__wal_check_process(w, NULL) != 0;
	struct wal_sender_state *s = w->sender;
	if (s == NULL || child)
		return;
	sl__lock(&w->mu);
	stop_locked(w, INT64_MIN);
	w->sender = NULL;
	sl__unlock(&w->mu);
	sl__cond_fini(&s->done_cv);
	sl__wal_sender_release(w, s);
	sl__free(&w->env, s);
}

/* ---- what others ask ---- */

bool sl__wal_sender_idle(const sl_wal *w)
{
	return w->sender == NULL || w->sender->phase == SENDER_IDLE;
}

int sl_wal_sender_error(sl_wal *w, struct sl_err *err)
{
	int rc = sl__wal_check_process(w, err);
	if (rc != 0)
		return rc;
	sl__lock(&w->mu);
	if (w->sender != NULL && w->sender->halt.code != 0) {
		rc = w->sender->halt.code;
		if (err != NULL)
			*err = w->sender->halt;
	}
	sl__unlock(&w->mu);
	return rc;
}
