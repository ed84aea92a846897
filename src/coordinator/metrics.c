/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of a coordinator: registered when it is created, read from its counters when they are collected. */
#include "coordinator/coordinator.h"

static double read_depth(void *ctx)
{
	struct sl__queue_stats s;
	sl__queue_stats(((sl_coordinator *)ctx)->queue, &s);
	return (double)s.depth;
}

static double read_oldest_age(void *ctx)
{
	struct sl_coordinator_health h = {.struct_size = sizeof(h)};
	return sl_coordinator_get_health(ctx, &h) == 0 ? (double)h.oldest_age_ms / 1000 : 0;
}

static double read_breaker(void *ctx)
{
	sl_coordinator *c = ctx;
	sl__lock(&c->mu);
	bool open = c->state != SL__BREAKER_CLOSED;
	sl__unlock(&c->mu);
	return open ? 1 : 0;
}

static double read_workers(void *ctx)
{
	sl_coordinator *c = ctx;
	sl__lock(&c->mu);
	uint32_t n = c->quit ? 0 : c->running;
	sl__unlock(&c->mu);
	return n;
}

struct gauge {
	sl_gauge **to;
	const char *name, *help;
	sl_gauge_fn *fn;
};

#define GAUGES 4

static void list_gauges(struct sl__coordinator_metrics *x, struct gauge rows[GAUGES])
{
	rows[0] = (struct gauge){&x->depth, "sluice_coordinator_queue_depth", "Items that wait in the queue.",
				 read_depth};
	rows[1] = (struct gauge){&x->oldest_age, "sluice_coordinator_oldest_age_seconds",
				 "Age of the oldest item that waits in the queue or for a retry.", read_oldest_age};
	rows[2] = (struct gauge){&x->breaker_open, "sluice_coordinator_breaker_open",
				 "1 while the circuit breaker is open or half open.", read_breaker};
	rows[3] = (struct gauge){&x->workers, "sluice_coordinator_workers", "Workers that take part.", read_workers};
}

static int make_counters(struct sl__coordinator_metrics *x, sl_metrics *m, const char *name, const char *sink,
			 struct sl_err *err)
{
	const struct sl_metric_label label = {"coordinator", name};
	const struct sl_metric_label ok[] = {{"coordinator", name}, {"sink", sink}, {"status", "success"}};
	const struct sl_metric_label bad[] = {{"coordinator", name}, {"sink", sink}, {"status", "failure"}};
	static const char writes[] = "sluice_sink_writes_total", writes_help[] = "Batches handed to a sink.";
	const struct {
		sl_counter **to;
		const char *name, *help;
	} rows[] = {
		{&x->worker_errors, "sluice_coordinator_worker_errors_total",
		 "Errors that workers met and survived: failed writes and refused dead letters."},
		{&x->dropped, "sluice_coordinator_items_dropped_total", "Items dropped to make room."},
		{&x->dead, "sluice_coordinator_items_dead_total", "Items that went to the dead letters."},
		{&x->retries, "sluice_coordinator_retries_total", "Batches that wait to be tried again."},
	};
	int rc = sl_metrics_counter(m, writes, writes_help, ok, 3, &x->writes_ok, err);
	if (rc == 0)
		rc = sl_metrics_counter(m, writes, writes_help, bad, 3, &x->writes_failed, err);
	for (size_t i = 0; i < SL_COUNT(rows) && rc == 0; i++)
		rc = sl_metrics_counter(m, rows[i].name, rows[i].help, &label, 1, rows[i].to, err);
	return rc;
}

static int make_histograms(struct sl__coordinator_metrics *x, sl_metrics *m, const char *name, const char *sink,
			   struct sl_err *err)
{
	const struct sl_metric_label labels[] = {{"coordinator", name}, {"sink", sink}};
	int rc = sl_metrics_histogram(m, "sluice_sink_write_latency_seconds", "Time of one write of a sink.", labels, 2,
				      SL_UNIT_NANOSECONDS, &x->latency, err);
	if (rc == 0)
		rc = sl_metrics_histogram(m, "sluice_coordinator_batch_items", "Items of one write.", labels, 1,
					  SL_UNIT_COUNT, &x->batch_items, err);
	return rc;
}

static void detach(sl_coordinator *c, const struct gauge *rows, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sl_gauge_detach(*rows[i].to, rows[i].fn, c);
}

int sl__coordinator_metrics_attach(sl_coordinator *c, struct sl_err *err)
{
	struct sl__coordinator_metrics *x = &c->metrics;
	struct gauge rows[GAUGES];
	const struct sl_metric_label label = {"coordinator", c->name};
	if (c->env.metrics == NULL)
		return 0;
	int rc = make_counters(x, c->env.metrics, c->name, c->sink.ops->name, err);
	if (rc == 0)
		rc = make_histograms(x, c->env.metrics, c->name, c->sink.ops->name, err);
	list_gauges(x, rows);
	size_t n = 0;
	for (; n < GAUGES && rc == 0; n++) {
		rc = sl_metrics_gauge(c->env.metrics, rows[n].name, rows[n].help, &label, 1, rows[n].to, err);
		if (rc == 0)
			rc = sl_gauge_attach(*rows[n].to, rows[n].fn, c, err);
		if (rc != 0)
			break;
	}
	if (rc != 0)
		detach(c, rows, n);
	x->attached = rc == 0;
	return rc;
}

void sl__coordinator_metrics_detach(sl_coordinator *c)
{
	struct gauge rows[GAUGES];
	if (!c->metrics.attached)
		return;
	list_gauges(&c->metrics, rows);
	detach(c, rows, GAUGES);
	c->metrics.attached = false;
}
