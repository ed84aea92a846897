/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stopping and draining.
 *
 * A stop gives back what has not started, waits for the handlers, aborts those that are late, settles everything, and
 * ends the threads: lanes and keeper when nothing is open any more, then slots and clock. When the store is unavailable, the
 * last settles are tried until the deadline (at least once; without a deadline, as long as the longest lease), then
 * left to the ends of their leases.
 */
#include "jobs/worker/worker.h"

#include <stdio.h>

/* Is this a thread that a stop would wait for? Handlers are called on slots, observers on all of them, on the thread
 * that starts a job for an offer, and on the one that stops. */
static bool is_own_thread(const sl_worker *w) SL_REQUIRES(w->mu)
{
	pthread_t self = pthread_self();
	for (unsigned i = 0; i < w->n_started; i++)
		if (pthread_equal(w->slots[i].thread, self))
			return true;
	for (unsigned i = 0; i < w->lanes_started; i++)
		if (pthread_equal(w->lanes[i].thread, self) ||
		    (w->lanes[i].offering.being_accepted && pthread_equal(w->lanes[i].offering.taker, self)))
			return true;
	for (int i = 0; i < SL__KEEPERS; i++)
		if (w->keepers[i].started && pthread_equal(w->keepers[i].thread, self))
			return true;
	return (w->clock_started && pthread_equal(w->clock_thread, self)) ||
	       (w->state == SL__WORKER_STOPPING && pthread_equal(w->stopper, self));
}

/* Until the count of the core is 0 or the time has come. */
static bool await_lane_end(sl_worker *w, const uint32_t *count, int64_t until_ns) SL_REQUIRES(w->mu)
{
	const struct sl_env *env = &w->home.env;
	w->waiters++;
	while (*count > 0 && (until_ns == SL_FOREVER || sl__mono_ns(env) < until_ns))
		(void)sl__wait(env, &w->changed, &w->mu, until_ns);
	w->waiters--;
	return *count == 0;
}

/* Every thread decides again what to do. */
static void wake_all(sl_worker *w) SL_REQUIRES(w->mu)
{
	for (unsigned i = 0; i < w->lanes_started; i++)
		sl__signal(&w->lanes[i].wake);
	for (int i = 0; i < SL__KEEPERS; i++)
		sl__signal(&w->keepers[i].wake);
	sl__signal(&w->clock_wake);
	sl__signal(&w->log_wake);
	if (w->end_slots)
		for (unsigned i = 0; i < w->n_started; i++)
			sl__signal(&w->slots[i].wake);
}

static int stop_running(sl_worker *w, int64_t deadline_ms, struct sl_err *err) SL_REQUIRES(w->mu)
{
	const struct sl_env *env = &w->home.env;
	const struct sl__core_stats *stats = sl__core_stats(w->core);
	int64_t until = sl__deadline_ns(env, deadline_ms), longest_ms = 0;
	size_t aborted = 0;
	w->state = SL__WORKER_STOPPING;
	w->stopper = pthread_self();
	sl__core_stop(w->core, sl__mono_ns(env));
	wake_all(w);
	sl__unlock(&w->mu);
	sl__report_worker(w, SL_OBSERVE_WORKER_STOPPING, NULL);
	sl__lock(&w->mu);

	/* The handlers. */
	if (!await_lane_end(w, &stats->busy, until)) {
		aborted = sl__core_abort_all(w->core, sl__abort_fire, w);
		(void)await_lane_end(w, &stats->busy, SL_FOREVER);
	}
	/* Their settles; without a deadline, for as long as the longest lease. */
	for (size_t i = 0; i < w->n_types; i++)
		longest_ms = SL_MAX(longest_ms, w->core_types[i].lease_ms);
	if (until == SL_FOREVER)
		until = sl__deadline_ns(env, longest_ms);
	if (w->lanes_started > 0 && !await_lane_end(w, &stats->open, until)) {
		sl__core_give_up(w->core);
		wake_all(w);
		(void)await_lane_end(w, &stats->open, SL_FOREVER);
	}
	/* The threads. */
	w->end_slots = w->end_clock = true;
	wake_all(w);
	uint64_t abandoned = stats->abandoned;
	sl__unlock(&w->mu);
	sl_retention_stop(w->retention);
	w->retention = NULL;
	for (unsigned i = 0; i < w->lanes_started; i++)
		(void)pthread_join(w->lanes[i].thread, NULL);
	for (int i = 0; i < SL__KEEPERS; i++)
		if (w->keepers[i].started)
			(void)pthread_join(w->keepers[i].thread, NULL);
	for (unsigned i = 0; i < w->n_started; i++)
		(void)pthread_join(w->slots[i].thread, NULL);
	if (w->clock_started)
		(void)pthread_join(w->clock_thread, NULL);
	if (w->log_started)
		(void)pthread_join(w->log_thread, NULL);
	if (w->subscribed)
		w->home.notify->ops->unsubscribe(w->home.notify->ctx, sl__worker_note, w);
	sl__report_worker(w, SL_OBSERVE_WORKER_STOPPED, NULL);
	sl__lock(&w->mu);
	w->state = SL__WORKER_STOPPED;
	sl__broadcast(&w->changed);
	if (abandoned > 0)
		return sl_err_set(err, SL_EUNAVAIL,
				  "worker: the store was unavailable; %llu jobs run again when their leases expire",
				  (unsigned long long)abandoned);
	if (aborted > 0)
		return sl_err_set(err, SL_ETIMEDOUT, "worker: %zu attempts were still running and were aborted",
				  aborted);
	return 0;
}

int sl_worker_stop(sl_worker *w, int64_t deadline_ms, struct sl_err *err)
{
	int rc = sl__home_check(&w->home, err);
	if (rc != 0)
		return rc;
	sl__lock(&w->mu);
	if (w->state == SL__WORKER_NEW)
		w->state = SL__WORKER_STOPPED;
	if (w->state != SL__WORKER_STOPPED && is_own_thread(w))
		rc = sl_err_set(err, SL_EINVAL,
				"worker: a handler or observer cannot stop its own worker and wait for itself");
	else if (w->state == SL__WORKER_RUNS)
		rc = stop_running(w, deadline_ms, err);
	else
		while (w->state != SL__WORKER_STOPPED)
			(void)sl__wait(&w->home.env, &w->changed, &w->mu, SL_FOREVER);
	sl__unlock(&w->mu);
	return rc;
}

/* ---- draining ---- */

#define PAUSED_CHECK_MS 2000
#define DRAIN_CHECK_MS 1000 /* what other workers run, and what waits for a retry, is asked after this often */

/* Grows whenever a job is done with here, and with the first read of the schedules. */
static uint64_t progress_of(const sl_worker *w)
{
	const struct sl__core_stats *s = sl__core_stats(w->core);
	return s->completed + s->failed + s->retried + s->released + s->lost + (w->schedules_checked ? 1 : 0);
}

struct paused {
	const sl_worker *w;
	char names[SL__PAUSED_BYTES];
};

static int add_paused(const struct sl_job_count *c, void *ctx)
{
	struct paused *p = ctx;
	size_t used = strlen(p->names);
	if (!c->paused || (c->due == 0 && c->retrying == 0))
		return 0;
	for (size_t i = 0; i < p->w->n_types; i++)
		if (strcmp(p->w->type_names[i], c->type) == 0)
			(void)snprintf(p->names + used, sizeof(p->names) - used, "%s%s", used > 0 ? ", " : "", c->type);
	return 0;
}

/* *gen: what had been settled before the store was asked. */
static bool nothing_left(sl_worker *w, uint64_t *gen, int *rc, struct sl_err *err)
{
	const sl_store *store = &w->home.store;
	struct sl_outstanding o = {0};
	sl__lock(&w->mu);
	/* What was due when the worker was started is enqueued by its first read of the schedules. */
	bool busy = sl__core_stats(w->core)->open > 0 || (w->state == SL__WORKER_RUNS && !w->schedules_checked);
	*gen = progress_of(w);
	sl__unlock(&w->mu);
	if (busy)
		return false;
	*rc = store->ops->outstanding(store->ctx, w->type_names, w->n_types, &o, err);
	if (*rc != 0 || o.running > 0)
		return false;
	if (o.due == 0 && o.retrying == 0)
		return true;

	/* Jobs are left, and nothing runs: they may be of types that are paused, and then a drain waits until a person
	 * resumes them. Log them when they change, and keep them for the error of a drain. A store that does not answer
	 * changes nothing. */
	struct paused p = {.w = w};
	int64_t now = sl__mono_ns(&w->home.env);
	sl__lock(&w->mu);
	bool due = now >= w->paused_check_ns;
	if (due)
		w->paused_check_ns = sl__deadline_ns(&w->home.env, PAUSED_CHECK_MS);
	sl__unlock(&w->mu);
	if (!due || store->ops->counts(store->ctx, add_paused, &p, NULL) != 0)
		return false;
	sl__lock(&w->mu);
	bool news = strcmp(w->paused, p.names) != 0;
	memcpy(w->paused, p.names, sizeof(p.names));
	sl__unlock(&w->mu);
	if (news && p.names[0] != '\0')
		sl__log(&w->home.env, SL_LOG_INFO, "worker", "drain waits: jobs are left of types that are paused",
			SL__F_STR("types", p.names));
	return false;
}

int sl_worker_drain(sl_worker *w, int64_t timeout_ms, struct sl_err *err)
{
	const struct sl_env *env = &w->home.env;
	int rc = sl__home_check(&w->home, err);
	int64_t until = sl__deadline_ns(env, timeout_ms);
	while (rc == 0) {
		int asked = 0;
		uint64_t gen = 0;
		struct sl_err why = SL_ERR_INIT;
		if (nothing_left(w, &gen, &asked, &why))
			return 0;
		if (asked != 0 && !sl_err_retryable(&why)) {
			if (err != NULL)
				*err = why;
			return asked;
		}
		sl__lock(&w->mu);
		bool late = sl__mono_ns(env) >= until;
		if (w->state != SL__WORKER_RUNS)
			rc = sl_err_set(err, SL_ECLOSED, "drain: the worker does not run");
		else if (late && w->log_failed)
			rc = sl_err_set(err, SL_ETIMEDOUT, "drain: the event log does not accept records: %.150s",
					w->log_failure.msg);
		else if (late && w->paused[0] != '\0')
			rc = sl_err_set(err, SL_ETIMEDOUT, "drain: jobs are left of types that are paused: %s",
					w->paused);
		else if (late)
			rc = sl_err_set(err, SL_ETIMEDOUT, "drain: jobs are still due, awaiting a retry or running");
		/* Until something more is settled and nothing is open here, but check again in a while in any case. */
		int64_t check_ns = SL_MIN(until, sl__deadline_ns(env, DRAIN_CHECK_MS));
		w->waiters++;
		while (rc == 0 && w->state == SL__WORKER_RUNS && sl__mono_ns(env) < check_ns &&
		       (sl__core_stats(w->core)->open > 0 || progress_of(w) == gen))
			(void)sl__wait(env, &w->changed, &w->mu, check_ns);
		w->waiters--;
		sl__unlock(&w->mu);
	}
	return rc;
}
