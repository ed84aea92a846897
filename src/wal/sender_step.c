/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the sender's thread does with the receiver: send a batch and act on the reply, park a refused record, look up
 * what the receiver lost. sender.c has the states and the rules T1 to T5 that are kept here.
 */
#include "wal/sender.h"

#include "flow/retry.h"

static void log_state(sl_wal *w, enum sl_log_level level, const char *message, const struct sl_err *why)
	SL_REQUIRES(w->mu)
{
	struct sl_err copy = *why;
	uint64_t mark = w->sender->mark;
	sl__unlock(&w->mu);
	sl__log(&w->env, level, "wal", message, SL__F_STR("log", w->path), SL__F_U64("mark", mark),
		SL__F_STR("error", copy.msg));
	sl__lock(&w->mu);
}

/* ---- what becomes of a reply ---- */

static void halt_sender(sl_wal *w, const struct sl_err *why) SL_REQUIRES(w->mu)
{
	struct wal_sender_state *s = w->sender;
	s->halt = s->trouble = *why;
	if (s->halt.code == 0)
		s->halt.code = s->trouble.code = SL_ECONFLICT;
	s->show = SL_WAL_SENDER_HALTED;
	/* No more room will be made: wake those that wait for it. */
	w->sender_runs = false;
	sl__broadcast(&w->room_cv);
	log_state(w, SL_LOG_ERROR, "the sender is halted", &s->halt);
}

static void back_off(sl_wal *w, const struct sl_err *why) SL_REQUIRES(w->mu)
{
	struct wal_sender_state *s = w->sender;
	if (s->failures < UINT32_MAX)
		s->failures++;
	/* Before a deadline there is no time for pauses that grow. */
	uint32_t failures = s->stop_at_ns != SL_FOREVER ? 1 : s->failures;
	int64_t delay = sl__retry_delay_ms(&w->opts.retry_backoff, failures, &s->prng);
	int64_t asked = SL_MIN(SL_MAX(why->retry_after_ms, (int64_t)0), SL__RETRY_AFTER_MAX_MS);
	if (asked > delay || (asked > 0 && why->error_class == SL_CLASS_THROTTLED))
		delay = asked;
	s->retry_at_ns = sl__deadline_ns(&w->env, delay);
	s->trouble = *why;
	s->show = SL_WAL_SENDER_WAITING;
	log_state(w, s->failures == 1 ? SL_LOG_WARN : SL_LOG_DEBUG, "sending failed; retrying", why);
}

void sl__wal_sender_no_memory(sl_wal *w)
{
	struct sl_err why = SL_ERR_INIT;
	(void)sl_err_set(&why, SL_ENOMEM, "send %s: out of memory", w->path);
	back_off(w, &why);
}

static void end_trouble(sl_wal *w) SL_REQUIRES(w->mu)
{
	struct wal_sender_state *s = w->sender;
	bool was_in_trouble = s->failures > 0;
	struct sl_err was = s->trouble;
	s->failures = 0;
	s->trouble = (struct sl_err)SL_ERR_INIT;
	s->show = SL_WAL_SENDER_RUNNING;
	if (was_in_trouble)
		log_state(w, SL_LOG_INFO, "sending works again", &was);
}

/* Begin a new incarnation with this record. It is written to the log before anything else is done. */
static void renew_from(sl_wal *w, uint64_t first, bool lost, const struct sl_err *why) SL_REQUIRES(w->mu)
{
	struct wal_sender_state *s = w->sender;
	struct wal_renewal next = {.first = first};
	uint32_t was = sl__wal_sent_incarnation(w);
	do {
		if (sl__wal_draw_incarnation(&w->env, w->header.version, &next.incarnation) < 0) {
			back_off(w, why);
			return;
		}
	} while (next.incarnation == was);
	w->renewing = next;
	s->n_untried++;
	s->probe = 0;
	sl__unlock(&w->mu);
	sl__log(&w->env, SL_LOG_WARN, "wal",
		lost ? "the receiver lost acknowledged records and has others: starting a new incarnation with the "
		       "first record in the log; records that the receiver kept arrive twice"
		     : "log and receiver differ: starting a new incarnation with the first record that was not "
		       "acknowledged; records whose acknowledgement was lost arrive twice",
		SL__F_STR("log", w->path), SL__F_U64("incarnation", next.incarnation), SL__F_U64("before", was),
		SL__F_U64("first", next.first), SL__F_STR("error", why->msg));
	sl__lock(&w->mu);
}

static uint64_t first_pending(sl_wal *w) SL_REQUIRES(w->mu)
{
	const struct wal_entry *pending = sl__wal_index_next(&w->index, 0);
	return pending != NULL ? pending->sequence : w->durable_seq + 1;
}

/* The first record that the log still has. */
static uint64_t first_kept(sl_wal *w) SL_REQUIRES(w->mu)
{
	uint64_t first = w->n_segments > 0 ? w->segments[0].first : w->active_first;
	return first != 0 ? SL_MIN(first, first_pending(w)) : first_pending(w);
}

/* The last record that was acknowledged under this incarnation, before the first that was not; 0: none. */
static uint64_t last_acknowledged(sl_wal *w) SL_REQUIRES(w->mu)
{
	uint64_t at = first_pending(w) - 1;
	for (struct sl_wal_range r = {1, 1}; r.first != 0 && at >= w->renewed.first;) {
		r = sl__wal_ranges_failed_before(&w->failed, at + 1);
		if (r.first == 0)
			r = sl__wal_ranges_failed_before(&w->holes, at + 1);
		if (r.first != 0)
			at = r.first - 1;
	}
	return at >= w->renewed.first ? at : 0;
}

/* T4. Log and receiver differ, the receiver being at mark. Has it what it acknowledged? When it was restored, too, and
 * took the records of another log since then, it lost that; then all that the log has is sent again. */
static void handle_difference(sl_wal *w, uint64_t mark, const struct sl_err *why) SL_REQUIRES(w->mu)
{
	struct wal_sender_state *s = w->sender;
	uint64_t last = last_acknowledged(w);
	if (s->n_untried == SENDER_MAX_UNTRIED) {
		halt_sender(w, why);
	} else if (last == 0) {
		renew_from(w, first_pending(w), false, why);
	} else if (mark < last) {
		renew_from(w, first_kept(w), true, why);
	} else {
		s->probe = last;
		s->probe_why = *why;
	}
}

/* Is the receiver's mark one of this log's records? Where the log no longer has the record, nothing says otherwise. */
static int compare_mark(sl_wal *w, const struct sl_wal_reply *reply, bool *ours, struct sl_err *err)
{
	struct wal_sender_state *s = w->sender;
	uint64_t mark = reply->mark, crc = 0;
	sl__lock(&w->mu);
	bool old = mark < w->renewed.first, pending = sl__wal_index_is_pending(&w->index, mark);
	uint64_t end = w->durable_seq;
	sl__unlock(&w->mu);
	*ours = mark <= end;
	if (!*ours || mark == 0 || old || reply->mark_kind == SL_WAL_MARK_UNKNOWN)
		return 0;
	if (reply->mark_kind == SL_WAL_MARK_SKIPPED) {
		*ours = !pending; /* what is skipped was settled before the receiver heard of it */
		return 0;
	}
	/* Nearly always the last record of the batch, or the mark as it was. */
	const struct sl_wal_record *last = s->n > 0 ? &s->records[s->n - 1] : NULL;
	int rc = 0;
	if (last != NULL && last->sequence == mark)
		crc = last->crc;
	else if (s->compared.kind == SL_WAL_MARK_RECORD && s->compared.sequence == mark)
		crc = s->compared.crc;
	else
		rc = sl__wal_sender_crc(w, mark, &crc, err);
	if (rc == 0)
		*ours = crc == reply->mark_crc;
	return rc == SL_ENOENT ? 0 : rc;
}

/* T1. The receiver has everything up to its mark. */
static void accept_mark(sl_wal *w, const struct sl_wal_reply *reply) SL_REQUIRES(w->mu)
{
	struct wal_sender_state *s = w->sender;
	struct sl_err why = SL_ERR_INIT;
	bool asked = !s->mark_known, ours = false;
	uint64_t before = s->mark, mark = reply->mark;
	sl__unlock(&w->mu);
	int rc = compare_mark(w, reply, &ours, &why);
	sl__lock(&w->mu);
	if (rc != 0) {
		back_off(w, &why);
		return;
	}
	if (!ours) {
		(void)sl_err_set(&why, SL_ECONFLICT,
				 mark > w->durable_seq ? "the receiver of %.64s has record %llu, the log ends at %llu"
						       : "the receiver of %.64s has another record %llu (the log ends "
							 "at %llu)",
				 w->id, (unsigned long long)mark, (unsigned long long)w->durable_seq);
		handle_difference(w, mark, &why);
		return;
	}
	/* Nothing of this incarnation is left there: what came before it may be lost as well. */
	if (mark + 1 < w->renewed.first && s->n_untried == 0 && last_acknowledged(w) != 0) {
		(void)sl_err_set(&why, SL_EGAP, "the receiver of %.64s no longer knows incarnation %u", w->id,
				 sl__wal_sent_incarnation(w));
		renew_from(w, first_kept(w), true, &why);
		return;
	}
	s->mark = mark;
	s->mark_known = true;
	s->compared = (struct sl_wal_mark){mark, reply->mark_crc, reply->mark_kind};
	if (mark >= w->renewed.first)
		s->n_untried = 0;
	if (s->refusal.sequence != 0 && mark >= s->refusal.sequence)
		s->refusal = (struct sender_refusal){0};
	if (mark >= s->suspects)
		s->limit = 0;
	sl__wal_archive_poke(w);
	if (asked || mark > before) {
		end_trouble(w);
	} else if (mark < before) {
		(void)sl_err_set(&why, SL_EGAP, "it had %llu", (unsigned long long)before);
		log_state(w, SL_LOG_WARN, "the receiver lost records; sending them again", &why);
	} else {
		(void)sl_err_set(&why, SL_EAGAIN, "the receiver of %.64s accepted a batch but stays at %llu", w->id,
				 (unsigned long long)mark);
		back_off(w, &why);
	}
}

static void note_refusal(sl_wal *w, uint64_t named, const struct sl_err *why) SL_REQUIRES(w->mu)
{
	struct wal_sender_state *s = w->sender;
	if (s->n == 0) {
		back_off(w, why);
		return;
	}
	/* Which record of the batch was refused? 0: it must be searched. */
	uint64_t sequence = s->n == 1 ? s->entries[0].sequence : 0;
	for (size_t i = 0; i < s->n; i++)
		if (s->entries[i].sequence == named)
			sequence = named;
	if (sequence == 0) {
		s->limit = s->n / 2;
		s->suspects = s->entries[s->n - 1].sequence;
		return;
	}
	struct sender_refusal *r = &s->refusal;
	int64_t now = sl__real_ms(&w->env);
	if (r->sequence != sequence)
		*r = (struct sender_refusal){.sequence = sequence, .first_ms = now};
	r->attempts++;
	r->last_ms = now;
	r->why = *why;
}

/* ---- one step of work ---- */

/* A record that the disk gives back damaged, or that no key opens, is never delivered, and none after it either. */
static void reading_failed(sl_wal *w, int rc, struct sl_err *err) SL_REQUIRES(w->mu)
{
	if (rc != SL_ECORRUPT && rc != SL_EKEY) {
		back_off(w, err);
		return;
	}
	struct sl_err why = *err;
	(void)sl_err_set(&why, rc, "%.170s; stop, close the log and run sluice wal recover", err->msg);
	halt_sender(w, &why);
}

/* Read the planned records and send them. false: it was not sent, and what follows from that is done. */
static bool send_planned(sl_wal *w, int *sent, struct sl_wal_reply *reply, struct sl_err *err) SL_REQUIRES(w->mu)
{
	struct wal_sender_state *s = w->sender;
	*reply = (struct sl_wal_reply){.mark = s->mark}; /* of kind UNKNOWN */
	struct sl_wal_batch batch = {.stream = w->id, .incarnation = sl__wal_sent_incarnation(w), .after = s->compared};
	sl__unlock(&w->mu);
	int rc = sl__wal_sender_read(w, s, err);
	sl__lock(&w->mu);
	if (rc != 0) {
		reading_failed(w, rc, err);
		return false;
	}
	/* Reading may have taken until stop's deadline: no send begins after it. */
	if (s->phase == SENDER_STOPPING && sl__mono_ns(&w->env) >= s->stop_at_ns) {
		sl__unlock(&w->mu);
		sl__wal_sender_drop(w, s);
		sl__lock(&w->mu);
		return false;
	}
	batch.records = s->records;
	batch.n_records = s->n;
	batch.skipped = s->skipped;
	batch.n_skipped = s->n_skipped;
	batch.last_sequence = w->durable_seq;
	s->in_send = true;
	sl__unlock(&w->mu);
	*sent = s->table->send(&batch, reply, err, s->ctx);
	sl__wal_sender_drop(w, s);
	sl__lock(&w->mu);
	s->in_send = false;
	return true;
}

static void send_batch(sl_wal *w) SL_REQUIRES(w->mu)
{
	struct sl_wal_reply reply;
	struct sl_err err = SL_ERR_INIT;
	int rc;
	if (!send_planned(w, &rc, &reply, &err))
		return;
	if (rc != 0 && err.code == 0)
		(void)sl_err_set(&err, rc, "send %s: %s", w->path, sl_err_text(rc));
	if (rc == 0)
		accept_mark(w, &reply);
	else if (rc == SL_EREFUSED)
		note_refusal(w, reply.refused, &err);
	else if (rc == SL_ECONFLICT)
		handle_difference(w, w->sender->mark, &err);
	else
		back_off(w, &err);
}

/* T4. The receiver is beyond the last acknowledged record, and so only compares it. */
static void probe_receiver(sl_wal *w) SL_REQUIRES(w->mu)
{
	struct wal_sender_state *s = w->sender;
	struct sl_wal_reply reply;
	struct sl_err err = SL_ERR_INIT, why = s->probe_why;
	int rc;
	s->find_from = s->probe;
	sl__unlock(&w->mu);
	rc = sl__wal_sender_find(w, s, &err);
	sl__lock(&w->mu);
	/* It is archived: nothing before it could be sent again either. */
	if (rc == SL_ECONFLICT || (rc == 0 && s->n_replay == 0)) {
		renew_from(w, first_pending(w), false, &why);
		return;
	}
	if (rc != 0) {
		reading_failed(w, rc, &err);
		return;
	}
	s->entries[0] = s->replay[0];
	s->n = 1;
	s->n_skipped = 0;
	if (!send_planned(w, &rc, &reply, &err))
		return;
	if (rc == SL_ECONFLICT || (rc == 0 && reply.mark < s->probe))
		renew_from(w, first_kept(w), true, &why);
	else if (rc == 0 || rc == SL_EREFUSED)
		renew_from(w, first_pending(w), false, &why);
	else
		back_off(w, &err);
}

/* T3. The refused record is the next one, alone in the plan. */
static void park_refused(sl_wal *w) SL_REQUIRES(w->mu)
{
	struct wal_sender_state *s = w->sender;
	struct sender_refusal *r = &s->refusal;
	uint64_t sequence = r->sequence;
	struct sl_err err = SL_ERR_INIT;
	if (!r->parked) {
		sl__unlock(&w->mu);
		struct wal_stored stored = {0};
		int rc = sl__wal_read_stored(w, &s->entries[0], &stored, &err);
		bool was_read = rc == 0;
		if (was_read)
			rc = sl__wal_put_letter(w, &stored, r, &err);
		sl__free(&w->env, stored.bytes);
		sl__lock(&w->mu);
		if (rc != 0 && !was_read)
			reading_failed(w, rc, &err);
		else if (rc != 0)
			back_off(w, &err);
		if (rc != 0)
			return;
		r->parked = true;
	}
	/* One that was sent to a receiver that lost it is not pending: settling alone would not make it skipped. */
	if (sl__wal_settle(w, sequence, sequence, SL_WAL_FAILED) != 0 ||
	    sl__wal_ranges_set(&w->failed, sequence, sequence, SL_WAL_FAILED) != 0) {
		sl__wal_sender_no_memory(w);
		return;
	}
	w->n_parked++;
	struct sl_err why = r->why;
	s->refusal = (struct sender_refusal){0};
	s->limit = 0;
	end_trouble(w);
	sl__unlock(&w->mu);
	/* On disk before the receiver is asked to skip it: a recovery would otherwise take its mark for "sent". */
	(void)!sl__wal_flush_now(w, NULL);
	sl__log(&w->env, SL_LOG_WARN, "wal", "record refused and moved to the dead letters", SL__F_STR("log", w->path),
		SL__F_U64("sequence", sequence), SL__F_STR("error", why.msg));
	sl__lock(&w->mu);
}

void sl__wal_sender_do(sl_wal *w, enum sender_work work)
{
	struct wal_sender_state *s = w->sender;
	struct sl_err err = SL_ERR_INIT;
	int rc;
	switch (work) {
	case SENDER_NOTHING:
		break;
	case SENDER_ASK:
	case SENDER_SEND:
		send_batch(w);
		break;
	case SENDER_PARK:
		park_refused(w);
		break;
	case SENDER_FIND:
		sl__unlock(&w->mu);
		rc = sl__wal_sender_find(w, s, &err);
		sl__lock(&w->mu);
		if (rc == SL_ECONFLICT)
			halt_sender(w, &err);
		else if (rc != 0)
			reading_failed(w, rc, &err);
		break;
	case SENDER_PROBE:
		probe_receiver(w);
		break;
	case SENDER_RENEW:
		/* The new incarnation to disk; then the receiver is asked how far it is under it. */
		sl__unlock(&w->mu);
		rc = sl__wal_flush_now(w, &err);
		sl__lock(&w->mu);
		if (rc != 0) {
			back_off(w, &err);
			break;
		}
		s->mark_known = false;
		s->mark = 0;
		s->compared = (struct sl_wal_mark){0};
		s->refusal = (struct sender_refusal){0};
		s->limit = s->n_replay = 0;
		break;
	}
}
