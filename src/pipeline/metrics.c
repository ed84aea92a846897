/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of a pipeline: gauges that read its state, counters and a histogram that its stages feed. */
#include <stddef.h>

#include "pipeline/pipeline.h"

static double read_queue_depth(void *ctx)
{
	struct sl__queue_stats s;
	sl__queue_stats(((sl_pipeline *)ctx)->queue, &s);
	return (double)s.depth;
}

static double read_window(void *ctx)
{
	struct sl__sequencer_stats s;
	sl__sequencer_get_stats(((sl_pipeline *)ctx)->sequencer, &s);
	return (double)s.buffered;
}

static double read_busy(void *ctx)
{
	sl_pipeline *p = ctx;
	sl__lock(&p->mu);
	double busy = p->busy;
	sl__unlock(&p->mu);
	return busy;
}

static double read_busy_workers(void *ctx)
{
	sl_pipeline *p = ctx;
	sl__lock(&p->mu);
	double n = p->began_ns != 0 && p->ended_ns == 0 ? p->o.workers : 0;
	sl__unlock(&p->mu);
	return n;
}

static double read_lag(void *ctx)
{
	struct sl_pipeline_stats s = {.struct_size = sizeof(s)};
	return sl_pipeline_get_stats(ctx, &s) == 0 ? (double)s.commit_lag_ms / 1000 : 0;
}

/* The gauges, and where the handle of each is in struct sl__pipeline_metrics. */
static const struct {
	size_t at;
	const char *name, *help;
	sl_gauge_fn *fn;
} gauges[] = {
	{offsetof(struct sl__pipeline_metrics, queue_depth), "sluice_pipeline_queue_depth",
	 "Partitions waiting for a worker.", read_queue_depth},
	{offsetof(struct sl__pipeline_metrics, workers_busy), "sluice_pipeline_workers_busy",
	 "Busy workers; divided by the workers, their utilisation.", read_busy},
	{offsetof(struct sl__pipeline_metrics, workers), "sluice_pipeline_workers", "Workers of running pipelines.",
	 read_busy_workers},
	{offsetof(struct sl__pipeline_metrics, window_used), "sluice_pipeline_window_used",
	 "Finished partitions waiting for an earlier one.", read_window},
	{offsetof(struct sl__pipeline_metrics, commit_lag), "sluice_pipeline_commit_lag_oldest_seconds",
	 "Age of the oldest finished partition that waits for its commit.", read_lag},
};

static sl_gauge **gauge_of(sl_pipeline *p, size_t i)
{
	return (sl_gauge **)(void *)((char *)&p->metrics + gauges[i].at);
}

int sl__pipeline_metrics_attach(sl_pipeline *p, struct sl_err *err)
{
	static const char retries[] = "sluice_pipeline_retries_total", retries_help[] = "Retries of steps.";
	static const char ends[] = "sluice_pipeline_partitions_total", ends_help[] = "Partitions by outcome.";
	struct sl__pipeline_metrics *x = &p->metrics;
	sl_metrics *m = p->env.metrics;
	const struct {
		sl_counter **to;
		const char *name, *help;
		struct sl_metric_label label;
	} counters[] = {
		{&x->build_retries, retries, retries_help, {"step", "build"}},
		{&x->store_retries, retries, retries_help, {"step", "store"}},
		{&x->commit_retries, retries, retries_help, {"step", "commit"}},
		{&x->committed, ends, ends_help, {"status", "committed"}},
		{&x->failed, ends, ends_help, {"status", "failed"}},
	};
	if (m == NULL)
		return 0;
	int rc = sl_metrics_histogram(m, "sluice_pipeline_commit_lag_seconds",
				      "Time from the end of storing a partition to the end of its commit.", NULL, 0,
				      SL_UNIT_NANOSECONDS, &x->lag, err);
	for (size_t i = 0; i < SL_COUNT(counters) && rc == 0; i++)
		rc = sl_metrics_counter(m, counters[i].name, counters[i].help, &counters[i].label, 1, counters[i].to,
					err);
	if (rc != 0)
		return rc;
	for (; x->n_attached < SL_COUNT(gauges); x->n_attached++) {
		size_t i = x->n_attached;
		rc = sl_metrics_gauge(m, gauges[i].name, gauges[i].help, NULL, 0, gauge_of(p, i), err);
		if (rc == 0)
			rc = sl_gauge_attach(*gauge_of(p, i), gauges[i].fn, p, err);
		if (rc != 0) {
			sl__pipeline_metrics_detach(p);
			return rc;
		}
	}
	return 0;
}

void sl__pipeline_metrics_detach(sl_pipeline *p)
{
	for (size_t i = 0; i < p->metrics.n_attached; i++)
		sl_gauge_detach(*gauge_of(p, i), gauges[i].fn, p);
	p->metrics.n_attached = 0;
}
