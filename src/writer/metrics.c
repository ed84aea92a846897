/* SPDX-License-Identifier: Apache-2.0 */
/* Observing the writer: on_metrics, statistics, log records, the registry of metrics. */
#include "writer/writer.h"

/* ---- on_metrics ---- */

void sl__writer_report(sl_writer *w)
{
	uint64_t queued = w->queued_bytes, in_flight = w->in_flight_bytes, buffered = 0;
	if (w->o.on_metrics == NULL && w->ops.driver_buffered_bytes == NULL)
		return;
	sl__unlock(&w->mu);
	if (w->ops.driver_buffered_bytes != NULL)
		buffered = w->ops.driver_buffered_bytes(w->driver);
	bool changed =
		queued != w->reported.queued || in_flight != w->reported.in_flight || buffered != w->reported.buffered;
	w->reported.queued = queued;
	w->reported.in_flight = in_flight;
	w->reported.buffered = buffered;
	if (changed && w->o.on_metrics != NULL)
		w->o.on_metrics(queued, in_flight, buffered, w->o.ctx);
	sl__lock(&w->mu);
	w->buffered = buffered;
	sl__writer_press(w);
}

/* ---- log ---- */

int sl_writer_get_stats(sl_writer *w, struct sl_writer_stats *out)
{
	struct sl__limiter_stats l;
	if (sl__forked(&w->guard))
		return SL_EFORKED;
	sl__limiter_stats(w->limiter, &l);
	sl__lock(&w->mu);
	struct sl_writer_stats s = {.enqueued = w->enqueued,
				    .queued_blocks = w->queued_blocks,
				    .queued_bytes = w->queued_bytes,
				    .in_flight_blocks = w->in_flight_blocks,
				    .in_flight_bytes = w->in_flight_bytes,
				    .driver_buffered_bytes = w->buffered,
				    .written = w->written,
				    .physical_bytes = w->physical_bytes,
				    .unwritten = w->unwritten,
				    .unwritten_bytes = w->unwritten_bytes,
				    .failures = w->failures,
				    .retries = w->retries,
				    .target_concurrent_writes = l.limit,
				    .max_concurrent_writes = l.max,
				    .backpressure = w->pressed};
	sl__unlock(&w->mu);
	sl__result_copy(out, &s, sizeof(s));
	return 0;
}

static bool is_logged(const sl_writer *w, enum sl_log_level level)
{
	return w->env.log != NULL && level >= w->env.log_level;
}

/* Is a record due that is made at most once per log_interval_ms? */
static bool is_due(const sl_writer *w, int64_t *next_ns)
{
	int64_t now = sl__mono_ns(&w->env);
	if (now < *next_ns)
		return false;
	*next_ns = now + w->o.log_interval_ms * SL__NS_PER_MS;
	return true;
}

void sl__writer_log_queue(sl_writer *w, uint64_t written)
{
	struct sl_writer_stats s = {.struct_size = sizeof(s)};
	if (written % 512 != 0 || !is_logged(w, SL_LOG_INFO) || !is_due(w, &w->log_ns) ||
	    sl_writer_get_stats(w, &s) != 0)
		return;
	sl__log(&w->env, SL_LOG_INFO, w->name, "queue", SL__F_U64("written", written),
		SL__F_U64("physical_bytes", s.physical_bytes), SL__F_U64("queued_blocks", s.queued_blocks),
		SL__F_U64("queued_bytes", s.queued_bytes), SL__F_U64("in_flight_bytes", s.in_flight_bytes),
		SL__F_U64("driver_buffered_bytes", s.driver_buffered_bytes), SL__F_U64("failures", s.failures),
		SL__F_U64("concurrency", s.target_concurrent_writes),
		SL__F_U64("max_concurrency", s.max_concurrent_writes));
}

void sl__writer_log_round(sl_writer *w, const char *reason)
{
	struct sl_writer_stats s = {.struct_size = sizeof(s)};
	if (w->o.loop_debug != SL_ON || !is_logged(w, SL_LOG_DEBUG))
		return;
	sl__unlock(&w->mu);
	if (sl_writer_get_stats(w, &s) == 0)
		sl__log(&w->env, SL_LOG_DEBUG, w->name, "loop", SL__F_STR("reason", reason),
			SL__F_U64("queued_blocks", s.queued_blocks), SL__F_U64("queued_bytes", s.queued_bytes),
			SL__F_U64("in_flight_bytes", s.in_flight_bytes),
			SL__F_U64("concurrency", s.target_concurrent_writes),
			SL__F_U64("max_concurrency", s.max_concurrent_writes));
	sl__lock(&w->mu);
}

void sl__writer_log_failure(sl_writer *w, const struct sl__wblock *block, int64_t delay_ms, const struct sl_err *err)
{
	if (!is_logged(w, SL_LOG_WARN) || !is_due(w, &w->warn_ns))
		return;
	sl__log(&w->env, SL_LOG_WARN, w->name, "a write failed and will be retried", SL__F_STR("driver", w->ops.name),
		SL__F_U64("attempt", block->attempts), SL__F_I64("retry_in_ms", delay_ms),
		SL__F_STR("error", err->msg));
}

/* ---- registry ---- */

static struct sl_writer_stats read_stats(void *ctx)
{
	struct sl_writer_stats s = {.struct_size = sizeof(s)};
	(void)!sl_writer_get_stats(ctx, &s);
	return s;
}

static double read_queued(void *ctx)
{
	return (double)read_stats(ctx).queued_bytes;
}

static double read_in_flight(void *ctx)
{
	return (double)read_stats(ctx).in_flight_bytes;
}

static double read_buffered(void *ctx)
{
	return (double)read_stats(ctx).driver_buffered_bytes;
}

static double read_concurrency(void *ctx)
{
	return read_stats(ctx).target_concurrent_writes;
}

static double read_pressed(void *ctx)
{
	return read_stats(ctx).backpressure;
}

static const struct {
	const char *name, *help;
	sl_gauge_fn *fn;
} gauges[] = {
	{"sluice_writer_queued_bytes", "Bytes of blocks waiting to be written.", read_queued},
	{"sluice_writer_in_flight_bytes", "Bytes of blocks being written by the driver.", read_in_flight},
	{"sluice_writer_driver_buffered_bytes", "Bytes of written blocks that the driver still holds.", read_buffered},
	{"sluice_writer_target_concurrent_writes", "Writes that may be in flight at the same time.", read_concurrency},
	{"sluice_writer_backpressure", "1 if readers have to wait.", read_pressed},
};

int sl__writer_metrics_attach(sl_writer *w, struct sl_err *err)
{
	const struct sl_metric_label driver = {"driver", w->ops.name};
	struct sl__writer_metrics *x = &w->metrics;
	sl_metrics *m = w->env.metrics;
	const struct {
		sl_counter **to;
		const char *name, *help;
	} counters[] = {
		{&x->written, "sluice_writer_blocks_written_total", "Blocks written."},
		{&x->physical_bytes, "sluice_writer_physical_bytes_total", "Bytes of blocks written."},
		{&x->failures, "sluice_writer_failures_total", "Failed attempts to write a block."},
		{&x->retries, "sluice_writer_retries_total", "Retries of blocks scheduled."},
		{&x->unwritten, "sluice_writer_blocks_unwritten_total", "Blocks that could not be written."},
	};
	static_assert(SL_COUNT(gauges) == SL_COUNT(x->gauges), "a handle for each");
	if (m == NULL)
		return 0;
	int rc = sl_metrics_histogram(m, "sluice_writer_write_latency_seconds",
				      "Duration of a successful attempt to write a block.", &driver, 1,
				      SL_UNIT_NANOSECONDS, &x->latency, err);
	for (size_t i = 0; i < SL_COUNT(counters) && rc == 0; i++)
		rc = sl_metrics_counter(m, counters[i].name, counters[i].help, &driver, 1, counters[i].to, err);
	for (size_t i = 0; i < SL_COUNT(gauges) && rc == 0; i++) {
		rc = sl_metrics_gauge(m, gauges[i].name, gauges[i].help, &driver, 1, &x->gauges[i], err);
		if (rc == 0)
			rc = sl_gauge_attach(x->gauges[i], gauges[i].fn, w, err);
		if (rc == 0)
			x->n_attached++;
	}
	if (rc != 0)
		sl__writer_metrics_detach(w);
	return rc;
}

void sl__writer_metrics_detach(sl_writer *w)
{
	struct sl__writer_metrics *x = &w->metrics;
	for (; x->n_attached > 0; x->n_attached--)
		sl_gauge_detach(x->gauges[x->n_attached - 1], gauges[x->n_attached - 1].fn, w);
}
