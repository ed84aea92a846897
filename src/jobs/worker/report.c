/* SPDX-License-Identifier: Apache-2.0 */
/* What the worker reports: observations of jobs, attempts, leases and itself, and its metrics, by type. */
#include "jobs/worker/worker.h"

#include <stdio.h>

#include "base/utf8.h"

#define REPEAT_NS ((int64_t)60000 * 1000000) /* a failure that repeats is logged this often */

/* ---- metrics ---- */

static double busy_now(void *ctx)
{
	sl_worker *w = ctx;
	sl__lock(&w->mu);
	uint32_t busy = sl__core_stats(w->core)->busy;
	sl__unlock(&w->mu);
	return busy;
}

int sl__report_init(sl_worker *w, struct sl_err *err)
{
	sl_metrics *m = w->home.env.metrics;
	if (m == NULL)
		return 0;
	for (size_t i = 0; i < w->n_types; i++) {
		const struct sl_metric_label label = {"type", w->type_names[i]};
		struct sl__process *p = &w->processes[i];
		const struct {
			sl_counter **out;
			const char *name, *help;
		} counters[] = {
			{&p->completed, "sluice_jobs_completed_total", "Jobs that this process's workers completed."},
			{&p->failed, "sluice_jobs_failed_total", "Jobs that failed for good."},
			{&p->retried, "sluice_jobs_retried_total", "Attempts that failed and will be repeated."},
			{&p->lost, "sluice_jobs_lost_total", "Attempts whose job was taken away meanwhile."},
		};
		const struct {
			sl_histogram **out;
			const char *name, *help;
		} histograms[] = {
			{&p->ran, "sluice_jobs_attempt_seconds", "How long attempts ran."},
			{&p->waited, "sluice_jobs_wait_seconds", "From when a job was due to its start."},
		};
		for (size_t k = 0; k < SL_COUNT(counters); k++) {
			int rc = sl_metrics_counter(m, counters[k].name, counters[k].help, &label, 1, counters[k].out,
						    err);
			if (rc != 0)
				return rc;
		}
		for (size_t k = 0; k < SL_COUNT(histograms); k++) {
			int rc = sl_metrics_histogram(m, histograms[k].name, histograms[k].help, &label, 1,
						      SL_UNIT_NANOSECONDS, histograms[k].out, err);
			if (rc != 0)
				return rc;
		}
	}
	int rc = sl_metrics_gauge(m, "sluice_jobs_busy_slots", "Handlers that run now.", NULL, 0, &w->busy_gauge, err);
	if (rc != 0)
		return rc;
	return sl_gauge_attach(w->busy_gauge, busy_now, w, err);
}

void sl__report_fini(sl_worker *w)
{
	if (w->busy_gauge != NULL)
		sl_gauge_detach(w->busy_gauge, busy_now, w);
}

/* ---- the last error ---- */

void sl__report_last_error(sl_worker *w, const char *where, const char *what)
{
	char *text = w->pulse.error;
	(void)snprintf(text, sizeof(w->pulse.error), "%s: %.*s", where, (int)strcspn(what, "\n"), what);
	/* What is not well-formed is replaced; a character that was cut in two ends the text. */
	for (size_t i = 0, len; text[i] != '\0'; i += len) {
		len = sl__utf8_length(text + i);
		if (len == 0 && strlen(text) == sizeof(w->pulse.error) - 1 && strlen(text + i) < 4)
			text[i] = '\0';
		else if (len == 0)
			text[i] = '?';
		len = len == 0 ? text[i] != '\0' : len;
	}
	w->pulse.error_ms = sl__core_store_ms(w->core, sl__mono_ns(&w->home.env));
}

static void keep_failure(sl_worker *w, const struct sl__run *run)
{
	char where[192];
	(void)snprintf(where, sizeof(where), "%s #%llu", w->type_names[run->type], (unsigned long long)run->id);
	sl__lock(&w->mu);
	sl__report_last_error(w, where, run->error != NULL ? run->error : "failed");
	sl__unlock(&w->mu);
}

/* ---- observations ---- */

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

void sl__report_worker(sl_worker *w, enum sl_observe_kind kind, const struct sl_err *err)
{
	const struct sl_observation o = {.kind = kind, .duration_ns = -1, .err = err};
	sl__observe(&w->home.observer, &o);
}

static bool is_outage(int rc)
{
	return rc == SL_EUNAVAIL || rc == SL_ETIMEDOUT;
}

void sl__report_store(sl_worker *w, enum sl__asks what, int rc, const struct sl_err *err)
{
	static const char *const names[] = {[SL__ASKS_EXCHANGE] = "exchange",
					    [SL__ASKS_RENEW] = "renew",
					    [SL__ASKS_REAP] = "reap",
					    [SL__ASKS_CRON] = "cron",
					    [SL__ASKS_HEARTBEAT] = "heartbeat"};
	const struct sl_env *env = &w->home.env;
	if (rc == 0 && atomic_load(&w->unanswered) == 0)
		return;
	/* Too rare to say when an outage ends. */
	if (what == SL__ASKS_HEARTBEAT && (rc == 0 || is_outage(rc)))
		return;
	sl__lock(&w->mu);
	/* A renewal may not come again, and writes as an exchange does, which answers for it. */
	unsigned before = atomic_load(&w->unanswered), after = before;
	if (is_outage(rc))
		after |= 1U << what;
	else if (rc == 0)
		after &= ~(what == SL__ASKS_EXCHANGE ? 1U << SL__ASKS_EXCHANGE | 1U << SL__ASKS_RENEW : 1U << what);
	atomic_store(&w->unanswered, after);
	/* An outage is logged when it begins, and when everything that failed has been answered since. */
	bool back = before != 0 && after == 0, news = before == 0 && after != 0;
	if (rc != 0 && !is_outage(rc)) {
		struct sl__failure *last = &w->failures[what];
		int64_t now = sl__mono_ns(env);
		news = last->code != rc || now - last->logged_ns >= REPEAT_NS;
		if (news)
			*last = (struct sl__failure){.code = rc, .logged_ns = now};
	}
	sl__unlock(&w->mu);
	if (news)
		sl__log(env, SL_LOG_WARN, "worker",
			is_outage(rc) ? "the store does not answer; trying again"
				      : "the store has failed; trying again",
			SL__F_STR("worker", w->id), SL__F_STR("request", names[what]),
			SL__F_STR("code", sl_err_name(rc)), SL__F_STR("error", err->msg));
	if (back)
		sl__log(env, SL_LOG_INFO, "worker", "the store answers again", SL__F_STR("worker", w->id));
	if (rc != 0)
		sl__report_worker(w, SL_OBSERVE_WORKER_ERROR, err);
}

static int64_t due_for_ns(const struct sl__run *run, int64_t now_ms)
{
	int64_t due = SL_MAX(run->created_ms, run->scheduled_ms);
	return due > 0 && now_ms > due ? (now_ms - due) * 1000000 : 0;
}

void sl__report_acquired(sl_worker *w, const struct sl__claim *claim, int64_t now_ms)
{
	if (!sl__observer_listens(&w->home.observer))
		return;
	for (uint32_t i = 0; i < claim->n; i++)
		observe_run(w, SL_OBSERVE_JOB_ACQUIRED, &claim->runs[i], due_for_ns(&claim->runs[i], now_ms), NULL);
}

void sl__report_started(sl_worker *w, const struct sl__run *run)
{
	if (!sl__observer_listens(&w->home.observer))
		return;
	sl_histogram_observe(sl__process_of(w, run)->waited, (uint64_t)due_for_ns(run, run->started_ms));
	observe_run(w, SL_OBSERVE_ATTEMPT_STARTED, run, -1, NULL);
}

void sl__report_aborted(sl_worker *w, const struct sl__run *run, enum sl_abort_reason reason, int64_t now_ns)
{
	struct sl_err err;
	if (!sl__observer_listens(&w->home.observer))
		return;
	(void)sl_err_set(&err, SL_ECANCELLED, "aborted: %s", sl_abort_reason_name(reason));
	observe_run(w, SL_OBSERVE_ATTEMPT_ABORTED, run, now_ns - run->started_ns, &err);
}

void sl__report_lost(sl_worker *w, const struct sl__run *run, enum sl_lost_reason lost)
{
	static const char *const why[] = {[SL_LOST_NOT] = "the lease could not be renewed",
					  [SL_LOST_TAKEN] = "taken by another worker",
					  [SL_LOST_COMPLETED] = "completed from outside",
					  [SL_LOST_NOT_FOUND] = "deleted",
					  [SL_LOST_CANCELLED] = "cancelled",
					  [SL_LOST_FAILED] = "failed from outside",
					  [SL_LOST_PUT_BACK] = "put back before"};
	struct sl_err err;
	if (!sl__observer_listens(&w->home.observer))
		return;
	(void)sl_err_set(&err, SL_ECANCELLED, "%s", why[lost]);
	sl_counter_add(sl__process_of(w, run)->lost, 1);
	observe_run(w, SL_OBSERVE_LEASE_LOST, run, -1, &err);
}

void sl__report_settled(sl_worker *w, const struct sl__run *run, enum sl_lost_reason lost)
{
	struct sl__process *p = sl__process_of(w, run);
	int64_t ran_ns = run->started_ms != 0 ? run->ended_ns - run->started_ns : -1;
	if (lost == SL_LOST_NOT && (run->kind == SL_SETTLE_FAIL || run->kind == SL_SETTLE_RETRY))
		keep_failure(w, run);
	if (!sl__observer_listens(&w->home.observer))
		return;
	if (run->started_ms != 0)
		sl_histogram_observe(p->ran, (uint64_t)ran_ns);
	if (lost != SL_LOST_NOT) {
		sl__report_lost(w, run, lost);
		return;
	}
	struct sl_err err;
	switch (run->kind) {
	case SL_SETTLE_COMPLETE:
	case SL_SETTLE_CONTINUE:
		sl_counter_add(p->completed, 1);
		observe_run(w, SL_OBSERVE_ATTEMPT_COMPLETED, run, run->ended_ns - run->started_ns, NULL);
		observe_run(w, SL_OBSERVE_JOB_COMPLETED, run, -1, NULL);
		return;
	case SL_SETTLE_FAIL:
	case SL_SETTLE_RETRY:
		(void)sl_err_set(&err, run->error_code != 0 ? run->error_code : SL_EINTERNAL, "%s",
				 run->error != NULL ? run->error : "failed");
		sl_counter_add(run->kind == SL_SETTLE_FAIL ? p->failed : p->retried, 1);
		if (run->started_ms != 0)
			observe_run(w, SL_OBSERVE_ATTEMPT_FAILED, run, ran_ns, &err);
		if (run->kind == SL_SETTLE_FAIL)
			observe_run(w, SL_OBSERVE_JOB_FAILED, run, -1, &err);
		return;
	case SL_SETTLE_RESCHEDULE:
		observe_run(w, SL_OBSERVE_ATTEMPT_COMPLETED, run, run->ended_ns - run->started_ns, NULL);
		return;
	case SL_SETTLE_RELEASE:
		return;
	}
}
