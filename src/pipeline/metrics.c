/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of a pipeline: gauges that read its state, counters and a histogram that its stages feed. */
#include "pipeline/pipeline.h"

static double read_depth(void *ctx)
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

static double read_workers(void *ctx)
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

struct gauge {
	sl_gauge **to;
	const char *name, *help;
	sl_gauge_fn *fn;
};

#define GAUGES 5

static void list_gauges(struct sl__pipeline_metrics *x, struct gauge rows[GAUGES])
{
	rows[0] = (struct gauge){&x->queue_depth, "sluice_pipeline_queue_depth", "Partitions that wait for a worker.",
				 read_depth};
	rows[1] = (struct gauge){&x->workers_busy, "sluice_pipeline_workers_busy",
				 "Workers that build or store; divided by the workers it is their utilisation.",
				 read_busy};
	rows[2] = (struct gauge){&x->workers, "sluice_pipeline_workers", "Workers of running pipelines.", read_workers};
	rows[3] = (struct gauge){&x->window_used, "sluice_pipeline_window_used",
				 "Finished partitions that wait for an earlier one.", read_window};
	rows[4] = (struct gauge){&x->commit_lag, "sluice_pipeline_commit_lag_oldest_seconds",
				 "How long the oldest finished partition has waited for its commit.", read_lag};
}

static int make_counters(struct sl__pipeline_metrics *x, sl_metrics *m, struct sl_err *err)
{
	static const char retries[] = "sluice_pipeline_retries_total", retries_help[] = "Steps that were tried again.";
	static const char ends[] = "sluice_pipeline_partitions_total", ends_help[] = "Partitions by their end.";
	const struct {
		sl_counter **to;
		const char *name, *help;
		struct sl_metric_label label;
	} rows[] = {
		{&x->build_retries, retries, retries_help, {"step", "build"}},
		{&x->store_retries, retries, retries_help, {"step", "store"}},
		{&x->commit_retries, retries, retries_help, {"step", "commit"}},
		{&x->committed, ends, ends_help, {"status", "committed"}},
		{&x->failed, ends, ends_help, {"status", "failed"}},
	};
	int rc = sl_metrics_histogram(m, "sluice_pipeline_commit_lag_seconds",
				      "From the end of a partition's storing to the end of its commit.", NULL, 0,
				      SL_UNIT_NANOSECONDS, &x->lag, err);
	for (size_t i = 0; i < SL_COUNT(rows) && rc == 0; i++)
		rc = sl_metrics_counter(m, rows[i].name, rows[i].help, &rows[i].label, 1, rows[i].to, err);
	return rc;
}

static void detach(sl_pipeline *p, const struct gauge *rows, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sl_gauge_detach(*rows[i].to, rows[i].fn, p);
}

int sl__pipeline_metrics_attach(sl_pipeline *p, struct sl_err *err)
{
	struct sl__pipeline_metrics *x = &p->metrics;
	struct gauge rows[GAUGES];
	size_t n = 0;
	if (p->env.metrics == NULL)
		return 0;
	int rc = make_counters(x, p->env.metrics, err);
	list_gauges(x, rows);
	while (n < GAUGES && rc == 0) {
		rc = sl_metrics_gauge(p->env.metrics, rows[n].name, rows[n].help, NULL, 0, rows[n].to, err);
		if (rc == 0)
			rc = sl_gauge_attach(*rows[n].to, rows[n].fn, p, err);
		n += rc == 0;
	}
	if (rc != 0)
		detach(p, rows, n);
	x->attached = rc == 0;
	return rc;
}

void sl__pipeline_metrics_detach(sl_pipeline *p)
{
	struct gauge rows[GAUGES];
	if (!p->metrics.attached)
		return;
	list_gauges(&p->metrics, rows);
	detach(p, rows, GAUGES);
	p->metrics.attached = false;
}
