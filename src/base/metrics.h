/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry inside: families sorted by name, each with its series sorted by label text. Only the registry's lock
 * guards this structure; the values in the handles are atomics.
 */
#ifndef SL_BASE_METRICS_H
#define SL_BASE_METRICS_H

#include <sys/types.h>

#include "base/buf.h"
#include "base/histogram.h"
#include "base/thread.h"
#include <sluice/metrics.h>

enum sl__metric_kind { SL__COUNTER = 1, SL__GAUGE = 2, SL__HISTOGRAM = 3 };

#define SL__COUNTER_SHARD_BITS 3

/* Only the first eight of 64 bytes are used, so that no two cells share a line, however the memory is aligned. */
struct sl__cell {
	uint64_t n;
	char pad[56];
};

struct sl_counter {
	struct sl__cell cells[1 << SL__COUNTER_SHARD_BITS];
};

struct sl__gauge_source {
	sl_gauge_fn *fn;
	void *ctx;
	struct sl__gauge_source *next;
};

struct sl_gauge {
	struct sl_metrics *registry;
	struct sl__gauge_source *sources; /* under the registry's lock */
	uint64_t bits;                    /* of the double that was set */
};

struct sl_histogram {
	struct sl__hist hist;
};

struct sl__series {
	char *labels; /* as rendered, without braces: a="x",b="y", sorted by name; empty without labels */
	union {
		void *any;
		sl_counter *counter;
		sl_gauge *gauge;
		sl_histogram *histogram;
	} handle;
};

struct sl__family {
	char *name, *help;
	char *label_names; /* "a,b" in order: the same for all series */
	enum sl__metric_kind kind;
	enum sl_metric_unit unit; /* histograms only */
	struct sl__series *series;
	size_t n, cap;
};

struct sl_metrics {
	struct sl_env env;
	pid_t pid; /* of the process that made it: a lock held over a fork stays locked in the child */
	sl__mutex mu;
	size_t max_series;
	struct sl__family **families;
	size_t n, cap;
};

/* What a caller asks for. */
struct sl__metric_spec {
	enum sl__metric_kind kind;
	enum sl_metric_unit unit;
	const char *name, *help;
	const struct sl_metric_label *labels;
	size_t n_labels;
};

/* metrics_name.c: is it conventional? SL_EINVAL with the reason. */
SL_MUST_CHECK int sl__metric_check(const struct sl__metric_spec *spec, struct sl_err *err);
/* The rendered labels and the names of labels that sl__metric_check has passed. Failures stick in the buffers. */
void sl__metric_label_text(const struct sl__metric_spec *spec, struct sl__buf *text, struct sl__buf *names);
/* Append with the escapes of the text format: backslash and newline, and the quote in a label's value. */
void sl__metric_escape(struct sl__buf *b, const char *text, bool quote);

/* metrics.c */
double sl__gauge_read(const sl_gauge *g) SL_REQUIRES(g->registry->mu);
/* metrics_render.c */
/* Append a number as printf writes it in any locale, with a point for whatever stands between its digits. */
void sl__metric_plain_number(struct sl__buf *b, const char *text);
void sl__metrics_text(const struct sl_metrics *m, struct sl__buf *out) SL_REQUIRES(m->mu);

#endif
