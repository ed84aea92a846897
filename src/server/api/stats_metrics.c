/* SPDX-License-Identifier: Apache-2.0 */
#include "server/api/stats.h"

#include <sluice/metrics.h>

int srv_stats_metrics_init(struct srv_stats_metrics *m, sl_metrics *metrics, struct sl_err *err)
{
	int rc = 0;
	for (enum sl_job_status s = SL_JOB_BLOCKED; rc == 0 && s <= SL_JOB_CANCELLED; s++) {
		struct sl_metric_label status = {.name = "status", .value = sl_job_status_name(s)};
		rc = sl_metrics_gauge(metrics, "sluice_server_jobs", "Jobs of the store, whoever runs them.", &status,
				      1, &m->jobs[s], err);
	}
	rc = rc != 0 ? rc
		     : sl_metrics_gauge(metrics, "sluice_server_jobs_due", "Jobs that could run and wait for a worker.",
					NULL, 0, &m->due, err);
	rc = rc != 0 ? rc
		     : sl_metrics_gauge(metrics, "sluice_server_jobs_oldest_due_seconds",
					"How long the oldest of these has waited; 0: none does.", NULL, 0,
					&m->oldest_due, err);
	rc = rc != 0 ? rc
		     : sl_metrics_gauge(metrics, "sluice_server_leases",
					"Leases in force, of all workers of the store.", NULL, 0, &m->leases, err);
	return rc != 0 ? rc
		       : sl_metrics_gauge(metrics, "sluice_server_dead_letters",
					  "Dead letters of this machine that nobody has dealt with.", NULL, 0,
					  &m->letters, err);
}

void srv_stats_metrics_set(const struct srv_stats_metrics *m, const struct srv_sample *x, int64_t letters)
{
	bool waits = x->oldest_due_ms != 0 && x->oldest_due_ms < x->now_ms;
	for (enum sl_job_status s = SL_JOB_BLOCKED; s <= SL_JOB_CANCELLED; s++)
		sl_gauge_set(m->jobs[s], (double)x->by[s]);
	sl_gauge_set(m->due, (double)x->due);
	sl_gauge_set(m->oldest_due, waits ? (double)(x->now_ms - x->oldest_due_ms) / 1000 : 0);
	sl_gauge_set(m->leases, (double)x->leases);
	if (letters >= 0)
		sl_gauge_set(m->letters, (double)letters);
}
