/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's event log, when it fails. The log is part of a job's contract, so a worker whose log does not accept
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

/* How long to wait after this number of failures in a row. */
static int64_t pause_ns(uint32_t failures)
{
	if (failures <= 1)
		return 0;
	int64_t ns = RETRY_FIRST_NS << SL_MIN(failures - 2, 10);
	return SL_MIN(ns, RETRY_CAP_NS);
}

/* Those that sleep take their offers back. */
static void wake_lanes(sl_worker *w) SL_REQUIRES(w->mu)
{
	for (unsigned i = 0; i < w->lanes_started; i++) {
		w->lanes[i].asleep = false;
		sl__signal(&w->lanes[i].wake);
	}
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
		uint32_t failures = atomic_fetch_add(&w->log_failures, 1) + 1;
		w->log_retry_ns = now + pause_ns(failures);
		sl__core_pause(w->core, true, now);
		sl__signal(&w->log_wake);
		sl__worker_wake(w, now);
		wake_lanes(w);
	}
	sl__unlock(&w->mu);
	if (news)
		sl__log(env, SL_LOG_ERROR, "worker", "the event log does not accept records; no more jobs are claimed",
			SL__F_STR("worker", w->id), SL__F_STR("code", sl_err_name(why->code)),
			SL__F_STR("error", why->msg));
}

/* What commands wrote while the log did not accept it goes in first. */
static void append_spools(const sl_worker *w)
{
	for (size_t i = 0; i < w->n_types; i++)
		if (w->processes[i].fn == sl_exec_process)
			sl__exec_retry_retired(w->processes[i].ctx, true);
}

static void try_again(sl_worker *w) SL_REQUIRES(w->mu)
{
	const struct sl_env *env = &w->home.env;
	struct sl_err err = SL_ERR_INIT;
	sl__unlock(&w->mu);
	int rc = sl_wal_reopen(w->events, &err);
	if (rc == 0) {
		append_spools(w);
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
		uint32_t failures = atomic_fetch_add(&w->log_failures, 1) + 1;
		w->log_retry_ns = now + pause_ns(failures);
	}
	sl__broadcast(&w->changed);
}

void *sl__log_main(void *worker)
{
	sl_worker *w = worker;
	const struct sl_env *env = &w->home.env;
	sl__lock(&w->mu);
	while (!w->end_clock) {
		if (!w->log_failed)
			(void)sl__wait(env, &w->log_wake, &w->mu, SL_FOREVER);
		else if (sl__mono_ns(env) < w->log_retry_ns)
			(void)sl__wait(env, &w->log_wake, &w->mu, w->log_retry_ns);
		else
			try_again(w);
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
