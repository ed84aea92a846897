/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Prometheus text format 0.0.4:
 *
 *      # HELP sluice_wal_flush_seconds Time of one flush.
 *      # TYPE sluice_wal_flush_seconds histogram
 *      sluice_wal_flush_seconds_bucket{dir="a",le="0.000001024"} 0
 *      …
 *      sluice_wal_flush_seconds_bucket{dir="a",le="+Inf"} 12
 *      sluice_wal_flush_seconds_sum{dir="a"} 0.073
 *      sluice_wal_flush_seconds_count{dir="a"} 12
 *
 * Bounds are powers of two of the unit that is observed, which are exact bounds of the histogram: no count is
 * estimated. A number never depends on the locale.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/metrics.h"

/* The bounds of a unit: 2^first, 2^(first + step) … 2^last. */
static const struct {
	unsigned first, last, step;
} unit_bounds[] = {[SL_UNIT_NANOSECONDS] = {10, 36, 2}, [SL_UNIT_BYTES] = {6, 30, 2}, [SL_UNIT_COUNT] = {0, 16, 1}};

#define NUMBER_BYTES 32

/* Nanoseconds in seconds, exactly and without trailing zeros; other units as they are. */
static void format_scaled(char out[NUMBER_BYTES], uint64_t value, enum sl_metric_unit unit)
{
	uint64_t scale = unit == SL_UNIT_NANOSECONDS ? 1000000000 : 1, part = value % scale;
	int digits = 9;
	if (part == 0) {
		(void)snprintf(out, NUMBER_BYTES, "%" PRIu64, value / scale);
		return;
	}
	for (; part % 10 == 0; part /= 10)
		digits--;
	(void)snprintf(out, NUMBER_BYTES, "%" PRIu64 ".%0*" PRIu64, value / scale, digits, part);
}

void sl__metric_plain_number(struct sl__buf *b, const char *text)
{
	static const char known[] = "0123456789+-e";
	for (const char *s = text; *s != '\0';) {
		size_t plain = strspn(s, known), other = strcspn(s + plain, known);
		(void)sl__buf_append(b, s, plain);
		if (other > 0)
			(void)sl__buf_append(b, ".", 1);
		s += plain + other;
	}
}

/* The shorter of 15 or 17 digits that reads back as the same number. */
static void put_double(struct sl__buf *b, double value)
{
	char text[64];
	double back = 0;
	if (isnan(value) || isinf(value)) {
		(void)sl__buf_str_append(b, isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf");
		return;
	}
	(void)snprintf(text, sizeof(text), "%.15g", value);
	if (sscanf(text, "%lf", &back) != 1 || back < value || back > value)
		(void)snprintf(text, sizeof(text), "%.17g", value);
	sl__metric_plain_number(b, text);
}

/* name, suffix and the labels in braces, with a space behind. */
static void put_sample(struct sl__buf *b, const char *name, const char *suffix, const char *labels)
{
	bool any = labels[0] != '\0';
	(void)sl__buf_printf(b, "%s%s%s%s%s ", name, suffix, any ? "{" : "", labels, any ? "}" : "");
}

static void put_bucket(struct sl__buf *b, const struct sl__family *f, const char *labels, const char *le,
		       uint64_t count)
{
	(void)sl__buf_printf(b, "%s_bucket{%s%sle=\"%s\"} %" PRIu64 "\n", f->name, labels, labels[0] != '\0' ? "," : "",
			     le, count);
}

static void put_histogram(struct sl__buf *b, const struct sl__family *f, const struct sl__series *s)
{
	struct sl__hist_view view; /* read once: buckets and count agree while others observe */
	char number[NUMBER_BYTES];
	size_t next = 0;
	uint64_t below = 0;
	sl__hist_read(&s->handle.histogram->hist, &view);
	for (unsigned bit = unit_bounds[f->unit].first; bit <= unit_bounds[f->unit].last;
	     bit += unit_bounds[f->unit].step) {
		for (size_t last = sl__hist_index((uint64_t)1 << bit); next <= last; next++)
			below += view.buckets[next];
		format_scaled(number, (uint64_t)1 << bit, f->unit);
		put_bucket(b, f, s->labels, number, below);
	}
	put_bucket(b, f, s->labels, "+Inf", view.count);
	format_scaled(number, view.sum, f->unit);
	put_sample(b, f->name, "_sum", s->labels);
	(void)sl__buf_printf(b, "%s\n", number);
	put_sample(b, f->name, "_count", s->labels);
	(void)sl__buf_printf(b, "%" PRIu64 "\n", view.count);
}

static void put_series(const struct sl_metrics *m, struct sl__buf *b, const struct sl__family *f,
		       const struct sl__series *s) SL_REQUIRES(m->mu) SL_NO_TSA
{
	(void)m;
	switch (f->kind) {
	case SL__COUNTER:
		put_sample(b, f->name, "", s->labels);
		(void)sl__buf_printf(b, "%" PRIu64 "\n", sl_counter_value(s->handle.counter));
		break;
	case SL__GAUGE:
		put_sample(b, f->name, "", s->labels);
		put_double(b, sl__gauge_read(s->handle.gauge));
		(void)sl__buf_str_append(b, "\n");
		break;
	case SL__HISTOGRAM:
		put_histogram(b, f, s);
		break;
	}
}

void sl__metrics_text(const struct sl_metrics *m, struct sl__buf *out)
{
	static const char *const types[] = {"untyped", "counter", "gauge", "histogram"};
	for (size_t i = 0; i < m->n; i++) {
		const struct sl__family *f = m->families[i];
		(void)sl__buf_printf(out, "# HELP %s ", f->name);
		sl__metric_escape(out, f->help, false);
		(void)sl__buf_printf(out, "\n# TYPE %s %s\n", f->name, types[f->kind]);
		for (size_t k = 0; k < f->n; k++)
			put_series(m, out, f, &f->series[k]);
	}
}
