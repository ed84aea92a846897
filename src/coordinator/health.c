/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a coordinator reports about its state: health, and metrics, which are registered when it is created and read
 * when they are collected. And the calls that slow its token bucket down and restore it.
 */
#include "coordinator/coordinator.h"

int sl_coordinator_get_health(sl_coordinator *c, struct sl_coordinator_health *out)
{
	if (sl__forked(&c->guard))
		return SL_EFORKED;
	sl__lock(&c->mu);
	struct sl__tally t = sl__tally(c);
	sl__refresh_limit(c);
	/* The oldest item waits in the queue or outside of it. */
	int64_t now_ns = sl__mono_ns(&c->env), oldest_ns = now_ns - t.queue.oldest_age_ms * SL__NS_PER_MS;
	for (const struct sl__batch *b = c->held.first; b != NULL; b = b->next)
		oldest_ns = SL_MIN(oldest_ns, b->items[b->lo].at_ns);
	for (size_t i = 0; i < c->heap.n; i++)
		oldest_ns = SL_MIN(oldest_ns, c->heap.at[i]->items[c->heap.at[i]->lo].at_ns);
	struct sl_coordinator_health h = {
		.workers_alive = c->quit ? 0 : c->running,
		.queue_size = t.queue.depth,
		.capacity = t.queue.capacity,
		.queue_bytes = t.queue.bytes,
		.breaker = (enum sl_breaker_state)c->state,
		.oldest_age_ms = (now_ns - oldest_ns) / SL__NS_PER_MS,
		.in_flight = t.outside - t.waiting,
		.retrying = t.waiting,
		.dead_letters = c->dead,
		.accepted = t.queue.pushed,
		.written = c->written,
		.dropped = c->dropped,
		.returned = c->returned,
		.batches = c->n_writes,
		.failures = c->n_failures,
		.splits = c->n_splits,
		.concurrency = c->limit,
		.backpressure = t.queue.above_high,
		.last_error = c->last_error,
	};
	if (c->rate_items != NULL)
		h.rate_items = c->o.rate.items * sl__tokens_rate(c->rate_items) / c->rate_unreduced;
	if (c->failing_since_ns != 0)
		h.failing_ms = SL_MAX((now_ns - c->failing_since_ns) / SL__NS_PER_MS, 1);
	sl__unlock(&c->mu);
	sl__result_copy(out, &h, sizeof(h));
	return 0;
}

/* ---- the rate ---- */

int sl_coordinator_reduce_tokens(sl_coordinator *c)
{
	if (sl__forked(&c->guard))
		return SL_EFORKED;
	if (c->rate_items != NULL)
		sl__tokens_reduce(c->rate_items);
	if (c->rate_bytes != NULL)
		sl__tokens_reduce(c->rate_bytes);
	return c->rate_items != NULL || c->rate_bytes != NULL ? 0 : SL_EINVAL;
}

int sl_coordinator_restore_tokens(sl_coordinator *c)
{
	if (sl__forked(&c->guard))
		return SL_EFORKED;
	if (c->rate_items != NULL)
		sl__tokens_restore(c->rate_items);
	if (c->rate_bytes != NULL)
		sl__tokens_restore(c->rate_bytes);
	return c->rate_items != NULL || c->rate_bytes != NULL ? 0 : SL_EINVAL;
}

/* ---- metrics ---- */

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
	rows[0] =
		(struct gauge){&x->depth, "sluice_coordinator_queue_depth", "Items waiting in the queue.", read_depth};
	rows[1] = (struct gauge){&x->oldest_age, "sluice_coordinator_oldest_age_seconds",
				 "Age of the oldest item waiting in the queue or for a retry.", read_oldest_age};
	rows[2] = (struct gauge){&x->breaker_open, "sluice_coordinator_breaker_open",
				 "1 if the circuit breaker is open or half open.", read_breaker};
	rows[3] = (struct gauge){&x->workers, "sluice_coordinator_workers", "Active workers.", read_workers};
}

/* Counters and histograms. */
static int make_metrics(sl_coordinator *c, struct sl_err *err)
{
	struct sl__coordinator_metrics *x = &c->metrics;
	sl_metrics *m = c->env.metrics;
	const char *name = c->name, *sink = c->sink.ops->name;
	const struct sl_metric_label ok[] = {{"coordinator", name}, {"sink", sink}, {"status", "success"}};
	const struct sl_metric_label bad[] = {{"coordinator", name}, {"sink", sink}, {"status", "failure"}};
	static const char writes[] = "sluice_sink_writes_total", writes_help[] = "Batches handed to a sink.";
	const struct {
		sl_counter **to;
		const char *name, *help;
	} rows[] = {
		{&x->worker_errors, "sluice_coordinator_worker_errors_total",
		 "Failed writes and refused dead letters that workers recovered from."},
		{&x->dropped, "sluice_coordinator_items_dropped_total", "Items dropped to make room."},
		{&x->dead, "sluice_coordinator_items_dead_total", "Items moved to the dead letters."},
		{&x->retries, "sluice_coordinator_retries_total", "Batches scheduled for a retry."},
	};
	int rc = sl_metrics_counter(m, writes, writes_help, ok, 3, &x->writes_ok, err);
	if (rc != 0)
		return rc;
	rc = sl_metrics_counter(m, writes, writes_help, bad, 3, &x->writes_failed, err);
	for (size_t i = 0; i < SL_COUNT(rows) && rc == 0; i++)
		rc = sl_metrics_counter(m, rows[i].name, rows[i].help, ok, 1, rows[i].to, err);
	if (rc != 0)
		return rc;
	rc = sl_metrics_histogram(m, "sluice_sink_write_latency_seconds", "Duration of a write to the sink.", ok, 2,
				  SL_UNIT_NANOSECONDS, &x->latency, err);
	if (rc != 0)
		return rc;
	return sl_metrics_histogram(m, "sluice_coordinator_batch_items", "Items per write.", ok, 1, SL_UNIT_COUNT,
				    &x->batch_items, err);
}

static void detach_gauges(sl_coordinator *c, const struct gauge *rows, size_t n)
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
	int rc = make_metrics(c, err);
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
		detach_gauges(c, rows, n);
	x->attached = rc == 0;
	return rc;
}

void sl__coordinator_metrics_detach(sl_coordinator *c)
{
	struct gauge rows[GAUGES];
	if (!c->metrics.attached)
		return;
	list_gauges(&c->metrics, rows);
	detach_gauges(c, rows, GAUGES);
	c->metrics.attached = false;
}
