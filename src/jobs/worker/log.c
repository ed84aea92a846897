/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of attempts, and what happens when their log fails.
 *
 * Events are handed to the log without waiting; a run keeps the ticket of its last one, and its lane waits for that
 * before it settles the run, so that many slots share a sync. A flush is in the log as a whole or not at all, so one
 * ticket speaks for all events of its flush. Before an event goes into another flush than the one before it, that one is
 * waited for: it is under way already, and a failure that no caller has heard of would be reported when the log closes.
 *
 * The log is part of a job's contract, so a worker whose log does not accept
 * records is not ready:
 *
 *   ready ── a flush fails ──▶ failed: claims are paused, what was claimed and not started is released
 *     ▲                          │
 *     └── sl_wal_reopen: 0 ◀─────┘ tried immediately, then with growing pauses, on a separate thread
 *
 * An attempt whose events could not be written is released without a charge, for another worker or for later (with
 * max_attempts 1 it fails: it must not start twice). After a reopening, output that commands left in their spools is
 * appended first. The pauses shrink again only when an event got through, so that a disk with too little room does not
 * make jobs start over and over.
 */
#include "jobs/exec/priv.h"
#include "jobs/worker/worker.h"
#include <sluice/events.h>

#define RETRY_FIRST_NS ((int64_t)100 * 1000000)
#define RETRY_CAP_NS ((int64_t)5000 * 1000000)

bool sl__worker_log_error(int rc)
{
	switch (rc) {
	case SL_ENOSPC:
	case SL_EIO:
	case SL_EPOISONED:
	case SL_EFULL:
	case SL_ECLOSED:
	case SL_ECORRUPT:
	case SL_EACCES:
	case SL_ECREATE:
	case SL_ENOENT:
	case SL_ESTALE:
		return true;
	default: /* the event is bad, or there is no memory: the attempt's own failure */
		return false;
	}
}

/* When to reopen the log after one more failure in a row: immediately, then with growing pauses. */
static void plan_reopen(sl_worker *w, int64_t now_ns) SL_REQUIRES(w->mu)
{
	uint32_t failures = atomic_fetch_add(&w->log_failures, 1) + 1;
	int64_t pause = failures > 1 ? RETRY_FIRST_NS << SL_MIN(failures - 2, 10) : 0;
	w->log_retry_ns = now_ns + SL_MIN(pause, RETRY_CAP_NS);
}

void sl__worker_log_failed(sl_worker *w, const struct sl_err *why)
{
	const struct sl_env *env = &w->home.env;
	int64_t now = sl__mono_ns(env);
	sl__lock(&w->mu);
	bool news = !w->log_failed;
	if (news) {
		w->log_failed = true;
		w->log_failure = *why;
		sl__report_last_error(w, "event log", why->msg);
		plan_reopen(w, now);
		sl__core_pause(w->core, true, now);
		sl__signal(&w->log_wake);
		sl__worker_wake(w, now);
		for (unsigned i = 0; i < w->lanes_started; i++) { /* those that sleep withdraw their offers */
			w->lanes[i].asleep = false;
			sl__signal(&w->lanes[i].wake);
		}
	}
	sl__unlock(&w->mu);
	if (news)
		sl__log(env, SL_LOG_ERROR, "worker", "the event log does not accept records; no more jobs are claimed",
			SL__F_STR("worker", w->id), SL__F_STR("code", sl_err_name(why->code)),
			SL__F_STR("error", why->msg));
}

void *sl__log_main(void *worker)
{
	sl_worker *w = worker;
	const struct sl_env *env = &w->home.env;
	sl__lock(&w->mu);
	while (!w->end_clock) {
		int64_t until = w->log_failed ? w->log_retry_ns : SL_FOREVER;
		if (sl__mono_ns(env) < until) {
			(void)sl__wait(env, &w->log_wake, &w->mu, until);
			continue;
		}
		struct sl_err err = SL_ERR_INIT;
		sl__unlock(&w->mu);
		int rc = sl_wal_reopen(w->events, &err);
		if (rc == 0) {
			/* Output of commands that the log did not accept goes in first. */
			for (size_t i = 0; i < w->n_types; i++)
				if (w->processes[i].fn == sl_exec_process)
					sl__exec_retry_retired(w->processes[i].ctx, true);
			sl__log(env, SL_LOG_INFO, "worker", "the event log accepts records again; jobs are claimed",
				SL__F_STR("worker", w->id));
		}
		sl__lock(&w->mu);
		int64_t now = sl__mono_ns(env);
		if (rc == 0) {
			w->log_failed = false;
			sl__core_pause(w->core, false, now);
			sl__worker_wake(w, now);
		} else {
			w->log_failure = err;
			plan_reopen(w, now);
		}
		sl__broadcast(&w->changed);
	}
	sl__unlock(&w->mu);
	return NULL;
}

int sl_worker_log_error(sl_worker *w, struct sl_err *err)
{
	sl__lock(&w->mu);
	int rc = w->log_failed ? w->log_failure.code : 0;
	if (rc != 0 && err != NULL)
		*err = w->log_failure;
	sl__unlock(&w->mu);
	return rc;
}

/* ---- events ---- */

int sl__emit_wait(sl_worker *w, const struct sl_wal_ticket *ticket, struct sl_err *err)
{
	if (ticket->batch == 0)
		return 0;
	struct sl_err why = SL_ERR_INIT;
	int rc = sl_wal_wait(w->events, ticket, SL_UNLIMITED, &why);
	if (rc == 0) {
		if (atomic_load_explicit(&w->log_failures, memory_order_relaxed) != 0)
			atomic_store(&w->log_failures, 0);
		return 0;
	}
	if (sl__worker_log_error(rc))
		sl__worker_log_failed(w, &why);
	if (err != NULL)
		*err = why;
	return sl_err_wrap(err, rc, "the events of the attempt");
}

int sl_attempt_emit(sl_attempt *a, enum sl_event_type type, const void *data, size_t len, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	struct sl_wal_ticket ticket;
	if (a->w->events == NULL)
		return sl_err_set(err, SL_EINVAL, "emit an event: the worker has no log (option events)");
	const struct sl_event event = {.type = type,
				       .job_id = a->run->id,
				       .attempt = a->run->attempt,
				       .claim = a->run->claim->id,
				       .ts_ms = sl__real_ms(&a->w->home.env),
				       .data = data,
				       .len = len};
	const struct sl_env *env = &a->w->home.env;
	struct sl_wal_ticket before = a->ticket;
	void *record;
	size_t record_len;
	int rc = sl_event_encode(&event, env, &record, &record_len, &why);
	if (rc != 0)
		return sl__attempt_unlogged(a, &why, err);
	rc = sl_wal_submit(a->w->events, record, record_len, &ticket, &why);
	sl_event_free(env, record);
	if (rc != 0)
		return sl__attempt_unlogged(a, &why, err);
	a->ticket = ticket;
	if (before.batch != 0 && before.batch != ticket.batch)
		rc = sl__emit_wait(a->w, &before, &why);
	if (rc != 0)
		return sl__attempt_unlogged(a, &why, err);
	return 0;
}
