/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of a run: for people as one table with the contenders below it, for machines as JSON. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include <sluice/version.h>

#define BUSY_PERCENT 15

int report_init(struct report *r)
{
	memset(r, 0, sizeof(*r));
	r->details = open_memstream(&r->details_text, &r->details_len);
	r->json_details = open_memstream(&r->json_text, &r->json_len);
	return r->details != NULL && r->json_details != NULL ? 0 : SL_ENOMEM;
}

void report_fini(struct report *r)
{
	if (r->details != NULL)
		fclose(r->details);
	if (r->json_details != NULL)
		fclose(r->json_details);
	free(r->details_text);
	free(r->json_text);
}

void report_line(struct report *r, const struct line *line)
{
	if (r->n_lines < (int)(sizeof(r->lines) / sizeof(*r->lines)))
		r->lines[r->n_lines++] = *line;
}

void format_rate(char *out, size_t size, double per_second)
{
	if (per_second >= 1e6)
		(void)snprintf(out, size, "%.2f M/s", per_second / 1e6);
	else if (per_second >= 1e4)
		(void)snprintf(out, size, "%.1f k/s", per_second / 1e3);
	else
		(void)snprintf(out, size, "%.0f /s", per_second);
}

static void format_size(char *out, size_t size, size_t bytes)
{
	if (bytes == 0)
		(void)snprintf(out, size, "-");
	else if (bytes % 1024 == 0)
		(void)snprintf(out, size, "%zu KiB", bytes / 1024);
	else
		(void)snprintf(out, size, "%zu B", bytes);
}

static void format_value(char *out, size_t size, const struct line *l, double value)
{
	if (value <= 0)
		(void)snprintf(out, size, "-");
	else
		(void)snprintf(out, size, value >= 10 ? "%.1f %s" : "%.2f %s", value, l->unit);
}

static const char *verdict(const struct line *l)
{
	if (l->floor <= 0)
		return "stated";
	if (l->at_most ? l->value > l->floor : l->value < l->floor)
		return "below floor";
	return l->goal > 0 && l->value >= l->goal ? "PASS, goal" : "PASS";
}

static void group_entry(struct report *r, const struct group *g, const struct entry *e, const char *title)
{
	char rate[32], size[24];
	double lowest = 0, highest = 0;
	if (e->out || e->n_rates == 0) {
		fprintf(r->details, "  %-14s out: %s\n", e->c->name, e->out ? e->err.msg : "stopped");
		return;
	}
	for (int i = 0; i < e->n_rates; i++) {
		lowest = i == 0 || e->rates[i] < lowest ? e->rates[i] : lowest;
		highest = e->rates[i] > highest ? e->rates[i] : highest;
	}
	format_rate(rate, sizeof(rate), entry_rate(e));
	format_size(size, sizeof(size), g->record_bytes);
	fprintf(r->details, "  %-14s %10s  (%.0f to %.0f)", e->c->name, rate, lowest, highest);
	double p50 = e->c->pipelined ? 0 : hist_quantile_us(&e->latency, 0.5);
	double p99 = e->c->pipelined ? 0 : hist_quantile_us(&e->latency, 0.99);
	if (!e->c->pipelined)
		fprintf(r->details, "  p50 %.0f us  p99 %.0f us", p50, p99);
	double per_flush = e->flushes > 0 ? (double)e->flushed_records / (double)e->flushes : 0;
	if (per_flush > 0)
		fprintf(r->details, "  %.1f records a flush", per_flush);
	fputc('\n', r->details);
	fprintf(r->json_details,
		"    {\"group\": \"%s\", \"record_bytes\": %zu, \"name\": \"%s\", \"clients\": %d, \"per_second\": "
		"%.1f, "
		"\"lowest\": %.1f, \"highest\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"records_per_flush\": "
		"%.2f},\n",
		title, g->record_bytes, e->c->name, e->clients, entry_rate(e), lowest, highest, p50, p99, per_flush);
}

void report_group(struct report *r, const struct group *g, const char *title)
{
	char size[24];
	format_size(size, sizeof(size), g->record_bytes);
	fprintf(r->details, "\n%s, %s: durable records a second, median (lowest to highest round)\n", title, size);
	for (int i = 0; i < g->n; i++)
		group_entry(r, g, &g->entries[i], title);
}

static void print_settings(FILE *out)
{
	static const struct contender *const ours[] = {&contender_sluice, &contender_sluice_tickets,
						       &contender_raw_fdatasync, &contender_raw_direct};
	fprintf(out, "\nSettings\n");
	for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++)
		fprintf(out, "  %-14s %s\n", ours[i]->name, ours[i]->settings);
	for (const struct contender *const *c = bench_peers; *c != NULL; c++)
		fprintf(out, "  %-14s %s\n", (*c)->name, (*c)->settings);
}

void report_print(const struct report *r, const struct settings *s, FILE *out)
{
	char size[24], value[24], least[24], goal[24];
	fprintf(out, "sluice %s, %d rounds of %d ms slices; others used %.0f %% of the processors%s\n\n", sl_version(),
		s->rounds, s->slice_ms, r->others_percent,
		r->others_percent > BUSY_PERCENT ? ": too busy, run it again on an idle machine" : "");
	fprintf(out, "%-34s %-6s %-11s %-24s %-14s %-13s %-11s %s\n", "work", "size", "sluice", "against", "result",
		"floor", "goal", "verdict");
	for (int i = 0; i < r->n_lines; i++) {
		const struct line *l = &r->lines[i];
		format_size(size, sizeof(size), l->record_bytes);
		format_value(value, sizeof(value), l, l->value);
		format_value(least, sizeof(least), l, l->floor);
		format_value(goal, sizeof(goal), l, l->goal);
		fprintf(out, "%-34s %-6s %-11s %-24s %-14s %-13s %-11s %s\n", l->work, size, l->ours, l->against, value,
			least, goal, verdict(l));
	}
	fflush(r->details);
	fputs(r->details_text, out);
	print_settings(out);
}

static void json_number(FILE *f, const char *name, double value, bool given)
{
	if (given)
		fprintf(f, ", \"%s\": %.6g", name, value);
	else
		fprintf(f, ", \"%s\": null", name);
}

/* As bench/figures.py has it. */
static void json_line(FILE *f, const struct line *l, bool last)
{
	char size[24];
	bool ratio = l->peer != NULL;
	format_size(size, sizeof(size), l->record_bytes);
	fprintf(f, "    {\"row\": \"%s\", \"what\": \"%s%s%s\", \"value\": %.6g, \"unit\": \"%s\"", l->row, l->work,
		l->record_bytes != 0 ? ", " : "", l->record_bytes != 0 ? size : "", ratio ? l->ours_rate : l->value,
		ratio ? l->rate_unit : l->unit);
	if (ratio)
		fprintf(f, ", \"base\": \"%s\"", l->peer);
	json_number(f, "base_value", l->peer_rate, ratio);
	json_number(f, "ratio", l->value, ratio);
	json_number(f, "floor", l->floor, l->floor > 0);
	json_number(f, "goal", l->goal, l->goal > 0);
	fprintf(f, ", \"at_most\": %s}%s\n", l->at_most ? "true" : "false", last ? "" : ",");
}

int report_json(const struct report *r, const struct settings *s, const char *path)
{
	FILE *f = fopen(path, "we");
	if (f == NULL)
		return -errno;
	fflush(r->json_details);
	fprintf(f,
		"{\n  \"part\": \"wal\",\n  \"quick\": %s,\n  \"rounds\": %d,\n  \"slice_ms\": %d,\n  "
		"\"others_percent\": "
		"%.1f,\n  \"figures\": [\n",
		s->quick ? "true" : "false", s->rounds, s->slice_ms, r->others_percent);
	for (int i = 0; i < r->n_lines; i++)
		json_line(f, &r->lines[i], i + 1 == r->n_lines);
	/* Each object ends in a comma and a newline; the last one has neither. */
	fprintf(f, "  ],\n  \"contenders\": [\n%.*s\n  ]\n}\n", (int)(r->json_len > 2 ? r->json_len - 2 : 0),
		r->json_text);
	return fclose(f) == 0 ? 0 : -errno;
}
