/* SPDX-License-Identifier: Apache-2.0 */
/* What the worker reports: observations of jobs, attempts, leases and itself, and its metrics, by type. */
#include "jobs/worker/worker.h"

#define REPEAT_NS ((int64_t)60000 * 1000000) /* a failure that repeats is logged this often */

/* ---- metrics ---- */

static double busy_now(void *ctx)
{
	sl_worker *w = ctx;
	sl__lock(&w->mu);
	uint32_t busy = sl__core_busy(w->core);
	sl__unlock(&w->mu);
	return busy;
}

static int init_type(sl_metrics *m, struct sl__process *p, const char *name, struct sl_err *err)
{
	const struct sl_metric_label label = {"type", name};
	int rc = sl_metrics_counter(m, "sluice_jobs_completed_total", "Jobs that this process's workers completed.",
				    &label, 1, &p->completed, err);
	if (rc == 0)
		rc = sl_metrics_counter(m, "sluice_jobs_failed_total", "Jobs that failed for good.", &label, 1,
					&p->failed, err);
	if (rc == 0)
		rc = sl_metrics_counter(m, "sluice_jobs_retried_total", "Attempts that failed and will be repeated.",
					&label, 1, &p->retried, err);
	if (rc == 0)
		rc = sl_metrics_counter(m, "sluice_jobs_lost_total", "Attempts whose job was taken away meanwhile.",
					&label, 1, &p->lost, err);
	if (rc == 0)
		rc = sl_metrics_histogram(m, "sluice_jobs_attempt_seconds", "How long attempts ran.", &label, 1,
					  SL_UNIT_NANOSECONDS, &p->ran, err);
	if (rc == 0)
		rc = sl_metrics_histogram(m, "sluice_jobs_wait_seconds", "From when a job was due to its start.",
					  &label, 1, SL_UNIT_NANOSECONDS, &p->waited, err);
	return rc;
}

int sl__tell_init(sl_worker *w, struct sl_err *err)
{
	sl_metrics *m = w->home.env.metrics;
	int rc = 0;
	if (m == NULL)
		return 0;
	for (size_t i = 0; i < w->n_types && rc == 0; i++)
		rc = init_type(m, &w->processes[i], w->type_names[i], err);
	if (rc == 0)
		rc = sl_metrics_gauge(m, "sluice_jobs_busy_slots", "Handlers that run now.", NULL, 0, &w->busy_gauge,
				      err);
	return rc == 0 ? sl_gauge_attach(w->busy_gauge, busy_now, w, err) : rc;
}

void sl__tell_fini(sl_worker *w)
{
	if (w->busy_gauge != NULL)
		sl_gauge_detach(w->busy_gauge, busy_now, w);
}

/* ---- observations ---- */

static bool silent(const sl_worker *w)
{
	return !sl__observer_listens(&w->home.observer);
}

static void observe_run(sl_worker *w, enum sl_observe_kind kind, const struct sl__run *run, int64_t duration_ns,
			const struct sl_err *err)
{
	const struct sl_observation o = {.kind = kind,
					 .type = w->type_names[run->type],
					 .id = run->id,
					 .chain_id = run->chain_id,
					 .attempt = run->attempt,
					 .duration_ns = duration_ns,
					 .traceparent = run->traceparent,
					 .err = err};
	sl__observe(&w->home.observer, &o);
}

void sl__tell_worker(sl_worker *w, enum sl_observe_kind kind, const struct sl_err *err)
{
	const struct sl_observation o = {.kind = kind, .duration_ns = -1, .err = err};
	sl__observe(&w->home.observer, &o);
}

static bool is_away(int rc)
{
	return rc == SL_EUNAVAIL || rc == SL_ETIMEDOUT;
}

/* Is there news to log? Sets *back when an outage is over: when everything that failed has been answered since. A
 * renewal may not come again, and writes as an exchange does. */
static bool note_answer(sl_worker *w, enum sl__asks what, int rc, int64_t now_ns, bool *back) SL_REQUIRES(w->mu)
{
	struct sl__failure *last = &w->failures[what];
	unsigned before = atomic_load(&w->unanswered), after = before;
	if (is_away(rc))
		after |= 1U << what;
	else if (rc == 0)
		after &= ~(what == SL__ASKS_EXCHANGE ? 1U << SL__ASKS_EXCHANGE | 1U << SL__ASKS_RENEW : 1U << what);
	atomic_store(&w->unanswered, after);
	*back = before != 0 && after == 0;
	if (rc == 0 || is_away(rc))
		return before == 0 && after != 0;
	if (last->code == rc && now_ns - last->logged_ns < REPEAT_NS)
		return false;
	*last = (struct sl__failure){.code = rc, .logged_ns = now_ns};
	return true;
}

void sl__tell_store(sl_worker *w, enum sl__asks what, int rc, const struct sl_err *err)
{
	static const char *const names[] = {[SL__ASKS_EXCHANGE] = "exchange",
					    [SL__ASKS_RENEW] = "renew",
					    [SL__ASKS_REAP] = "reap",
					    [SL__ASKS_CRON] = "cron"};
	const struct sl_env *env = &w->home.env;
	bool back;
	if (rc == 0 && atomic_load(&w->unanswered) == 0)
		return;
	sl__lock(&w->mu);
	bool news = note_answer(w, what, rc, sl__mono_ns(env), &back);
	sl__unlock(&w->mu);
	if (news)
		sl__log(env, SL_LOG_WARN, "worker",
			is_away(rc) ? "the store does not answer; trying again" : "the store has failed; trying again",
			SL__F_STR("worker", w->id), SL__F_STR("request", names[what]),
			SL__F_STR("code", sl_err_name(rc)), SL__F_STR("error", err->msg));
	if (back)
		sl__log(env, SL_LOG_INFO, "worker", "the store answers again", SL__F_STR("worker", w->id));
	if (rc != 0)
		sl__tell_worker(w, SL_OBSERVE_WORKER_ERROR, err);
}

static int64_t due_for_ns(const struct sl__run *run, int64_t now_ms)
{
	int64_t due = SL_MAX(run->created_ms, run->scheduled_ms);
	return due > 0 && now_ms > due ? (now_ms - due) * 1000000 : 0;
}

void sl__tell_acquired(sl_worker *w, const struct sl__claim *claim, int64_t now_ms)
{
	if (silent(w))
		return;
	for (uint32_t i = 0; i < claim->n; i++)
		observe_run(w, SL_OBSERVE_JOB_ACQUIRED, &claim->runs[i], due_for_ns(&claim->runs[i], now_ms), NULL);
}

void sl__tell_started(sl_worker *w, const struct sl__run *run)
{
	if (silent(w))
		return;
	sl_histogram_observe(sl__process_of(w, run)->waited, (uint64_t)due_for_ns(run, run->started_ms));
	observe_run(w, SL_OBSERVE_ATTEMPT_STARTED, run, -1, NULL);
}

void sl__tell_aborted(sl_worker *w, const struct sl__run *run, enum sl_abort_reason reason, int64_t now_ns)
{
	struct sl_err err;
	if (silent(w))
		return;
	(void)sl_err_set(&err, SL_ECANCELLED, "aborted: %s", sl_abort_reason_name(reason));
	observe_run(w, SL_OBSERVE_ATTEMPT_ABORTED, run, now_ns - run->started_ns, &err);
}

static void tell_lost(sl_worker *w, const struct sl__run *run, enum sl_lost_reason lost)
{
	static const char *const why[] = {[SL_LOST_NOT] = "the lease could not be renewed",
					  [SL_LOST_TAKEN] = "taken by another worker",
					  [SL_LOST_COMPLETED] = "completed from outside",
					  [SL_LOST_NOT_FOUND] = "deleted",
					  [SL_LOST_CANCELLED] = "cancelled",
					  [SL_LOST_FAILED] = "failed from outside",
					  [SL_LOST_PUT_BACK] = "put back before"};
	struct sl_err err;
	(void)sl_err_set(&err, SL_ECANCELLED, "%s", why[lost]);
	sl_counter_add(sl__process_of(w, run)->lost, 1);
	observe_run(w, SL_OBSERVE_LEASE_LOST, run, -1, &err);
}

static void tell_failed(sl_worker *w, const struct sl__run *run, bool for_good)
{
	struct sl_err err;
	int64_t ran = run->started_ms != 0 ? run->ended_ns - run->started_ns : -1;
	(void)sl_err_set(&err, run->error_code != 0 ? run->error_code : SL_EINTERNAL, "%s",
			 run->error != NULL ? run->error : "failed");
	sl_counter_add(for_good ? sl__process_of(w, run)->failed : sl__process_of(w, run)->retried, 1);
	if (run->started_ms != 0)
		observe_run(w, SL_OBSERVE_ATTEMPT_FAILED, run, ran, &err);
	if (for_good)
		observe_run(w, SL_OBSERVE_JOB_FAILED, run, -1, &err);
}

static void tell_completed(sl_worker *w, const struct sl__run *run)
{
	sl_counter_add(sl__process_of(w, run)->completed, 1);
	observe_run(w, SL_OBSERVE_ATTEMPT_COMPLETED, run, run->ended_ns - run->started_ns, NULL);
	observe_run(w, SL_OBSERVE_JOB_COMPLETED, run, -1, NULL);
}

void sl__tell_settled(sl_worker *w, const struct sl__run *run, enum sl_settle_kind kind, enum sl_lost_reason lost)
{
	if (silent(w))
		return;
	if (run->started_ms != 0)
		sl_histogram_observe(sl__process_of(w, run)->ran, (uint64_t)(run->ended_ns - run->started_ns));
	if (lost != SL_LOST_NOT)
		tell_lost(w, run, lost);
	else if (kind == SL_SETTLE_COMPLETE || kind == SL_SETTLE_CONTINUE)
		tell_completed(w, run);
	else if (kind == SL_SETTLE_FAIL || kind == SL_SETTLE_RETRY)
		tell_failed(w, run, kind == SL_SETTLE_FAIL);
	else if (kind == SL_SETTLE_RESCHEDULE)
		observe_run(w, SL_OBSERVE_ATTEMPT_COMPLETED, run, run->ended_ns - run->started_ns, NULL);
}

void sl__tell_lease(sl_worker *w, enum sl_observe_kind kind, const struct sl__run *run)
{
	if (silent(w))
		return;
	if (run != NULL)
		tell_lost(w, run, (enum sl_lost_reason)run->lost);
	else
		sl__tell_worker(w, kind, NULL);
}
