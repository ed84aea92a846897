/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A registry of counters, gauges and histograms, rendered in the Prometheus text format 0.0.4. Put it into
 * `sl_env.metrics` and every handle that is opened with that environment reports there. Names and labels are checked
 * against the conventions when a metric is made, and a family holds a bounded number of series, so that an id used as a
 * label fails instead of filling the memory.
 *
 * Guarantee: an update costs no lock and no allocation (relaxed atomics on padded cells, spread over threads). A
 * rendering contains every update that happened before it; of concurrent ones it may contain some. Inside one histogram
 * the buckets always add up to the count. Counters and sums wrap at 2^64.
 *
 * Thread safety: every function may be called from any thread, but sl_metrics_free only when no other thread uses the
 * registry or its handles any more. Ownership: handles belong to the registry and live as long as it does; all strings
 * are copied. Optional throughout: with a NULL registry the get-or-create functions succeed and give NULL, and the
 * update functions ignore a NULL handle.
 */
#ifndef SLUICE_METRICS_H
#define SLUICE_METRICS_H

#include <sluice/adapter/env.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_counter sl_counter;
typedef struct sl_gauge sl_gauge;
typedef struct sl_histogram sl_histogram;

struct sl_metric_label {
	const char *name;  /* [a-zA-Z_][a-zA-Z0-9_]*, not beginning with "__", not "le" or "quantile" */
	const char *value; /* UTF-8, at most 128 bytes; never an id, a path or anything without a small set of values */
};
#define SL_METRIC_MAX_LABELS 8
#define SL_METRIC_MAX_SERIES 1000 /* per family, unless sl_metrics_set_max_series says otherwise */

/* The unit of the values of a histogram, and with it the end of its name and its buckets. */
enum sl_metric_unit {
	SL_UNIT_NANOSECONDS = 1, /* name ends in _seconds; rendered in seconds, 1.024 µs to 68.7 s by powers of 4 */
	SL_UNIT_BYTES = 2,       /* name ends in _bytes; 64 B to 1 GiB by powers of 4 */
	SL_UNIT_COUNT = 3        /* things: records in a batch; 1 to 65536 by powers of 2 */
};

/* env gives the memory; NULL is the real environment. */
SL_API SL_MUST_CHECK int sl_metrics_new(sl_metrics **out, const struct sl_env *env, struct sl_err *err);
SL_API void sl_metrics_free(sl_metrics *m);
/* Series a family may hold, for families made afterwards too; at least 1. */
SL_API SL_MUST_CHECK int sl_metrics_set_max_series(sl_metrics *m, size_t max, struct sl_err *err);

/*
 * Get or create. The same name and labels (in any order) give the same handle. SL_EINVAL: a name or label that is not
 * conventional (a counter ends in _total, nothing else does; base units only: _seconds and _bytes, not _ms), or that is
 * known with another type, help, unit or other label names. SL_EFULL: too many series in the family. Takes the
 * registry's lock: do it once, when a handle is opened, and keep the result.
 */
SL_API SL_MUST_CHECK int sl_metrics_counter(sl_metrics *m, const char *name, const char *help,
					    const struct sl_metric_label *labels, size_t n_labels, sl_counter **out,
					    struct sl_err *err);
SL_API SL_MUST_CHECK int sl_metrics_gauge(sl_metrics *m, const char *name, const char *help,
					  const struct sl_metric_label *labels, size_t n_labels, sl_gauge **out,
					  struct sl_err *err);
SL_API SL_MUST_CHECK int sl_metrics_histogram(sl_metrics *m, const char *name, const char *help,
					      const struct sl_metric_label *labels, size_t n_labels,
					      enum sl_metric_unit unit, sl_histogram **out, struct sl_err *err);

/* Add n. Takes no lock. NULL is allowed, and does nothing. */
SL_API void sl_counter_add(sl_counter *c, uint64_t n);
SL_API uint64_t sl_counter_value(const sl_counter *c);

/* Set the value. Takes no lock. NULL is allowed, and does nothing. */
SL_API void sl_gauge_set(sl_gauge *g, double value);
SL_API void sl_gauge_add(sl_gauge *g, double delta);

/* Read when the gauge is rendered, by the rendering thread, with the registry's lock held: it must not call functions
 * of the registry (updates are fine), and a caller that attaches or detaches must not hold a lock that fn takes. */
typedef double sl_gauge_fn(void *ctx);
/* From now on the gauge is the sum of what was set and of all attached functions: two handles with the same metric add
 * up. (fn, ctx) may be attached once. SL_EEXIST, SL_ENOMEM. */
SL_API SL_MUST_CHECK int sl_gauge_attach(sl_gauge *g, sl_gauge_fn *fn, void *ctx, struct sl_err *err);
/* When it returns, fn is not running with ctx and never will. Unknown pairs are ignored. */
SL_API void sl_gauge_detach(sl_gauge *g, sl_gauge_fn *fn, void *ctx);
/* What would be rendered now. Takes the registry's lock. */
SL_API double sl_gauge_value(sl_gauge *g);

/*
 * Histograms count uint64 values in buckets that split every power of two in eight: 0 to 16 are kept exactly, and a
 * quantile is within 6.25 % of the true value. Count and sum are exact.
 */
SL_API void sl_histogram_observe(sl_histogram *h, uint64_t value);
/* The value, in the unit that was observed, below or at which a share q (0 to 1) of all values lies; 0 when empty. */
SL_API uint64_t sl_histogram_quantile(const sl_histogram *h, double q);
SL_API uint64_t sl_histogram_count(const sl_histogram *h);
SL_API uint64_t sl_histogram_sum(const sl_histogram *h);

/* Takes n bytes of text; 0 to continue, a negative SL_E… to stop, which sl_metrics_render returns. No lock is held. */
typedef int sl_metrics_write_fn(const char *data, size_t n, void *ctx);
/* All families sorted by name, all series sorted by labels. Serve it as "text/plain; version=0.0.4". Builds the whole
 * text in memory first. SL_ENOMEM, or what fn returned. */
SL_API SL_MUST_CHECK int sl_metrics_render(sl_metrics *m, sl_metrics_write_fn *fn, void *ctx, struct sl_err *err);

#ifdef __cplusplus
}
#endif
#endif
