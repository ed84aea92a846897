/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice export: rows with a gapless number, of a file, a pipe or a database, into Parquet partitions with a catalog
 * and an audit chain. The library does it; here are its options, what is shown, and the result.
 */
#include "commands.h"
#include "exportopts.h"
#include "stop.h"
#include "text.h"
#include "watch.h"

#include <inttypes.h>
#include <sluice/export.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the result ---- */

static void report(struct exportopts *o, const struct sl_export_result *r, int64_t ms, int failed)
{
	struct out *out = &o->cli->out;
	char rows[TEXT_COUNT_BYTES], partitions[TEXT_COUNT_BYTES], bytes[TEXT_TIME_BYTES];
	double seconds = (double)ms / 1000;
	size_t n = strlen(o->opts.to);

	/* What is committed, also when the run ended early. */
	if (opt_flag(o->args, "json")) {
		out_printf(out,
			   "{\"partitions\":%" PRIu64 ",\"rows\":%" PRIu64 ",\"bad_rows\":%" PRIu64
			   ",\"holes\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"skipped\":%" PRIu64 ",\"waiting\":%" PRIu64
			   ",\"start\":%" PRIu64 ",\"checkpoint\":%" PRIu64
			   ",\"head\":\"%s\",\"stopped\":%s,\"seconds\":%.3f}\n",
			   r->partitions, r->rows, r->bad_rows, r->holes, r->bytes, r->skipped, r->waiting, r->start,
			   r->checkpoint, r->head, r->stopped ? "true" : "false", seconds);
		return;
	}
	out_printf(out, "%s in %s (%s) committed to %.350s%s%.100s in %.1f s", text_count(rows, r->rows, "row"),
		   text_count(partitions, r->partitions, "partition"), text_bytes(bytes, r->bytes), o->opts.to,
		   n && o->opts.to[n - 1] == '/' ? "" : "/", o->opts.dataset, seconds);
	if (r->head[0])
		out_printf(out, "; checkpoint %" PRIu64, r->checkpoint);
	if (r->holes)
		out_printf(out, "; %s recorded as holes", text_count(rows, r->holes, "missing number"));
	out_str(out, "\n");
	if (r->waiting && !failed && !r->stopped)
		out_printf(out, "%s left in an unfinished partition for a later run; --final closes it\n",
			   text_count(rows, r->waiting, "row"));
}

/* ---- what a person sees while it runs, and what signals do ---- */

/*
 * On a separate thread: the export takes up the calling one. The first SIGINT or SIGTERM ends the reading, and what was
 * read is committed; the second gives up what is not committed, which a later run does again; the third ends the
 * process, as the system does it.
 */
struct exportwatch {
	sl_export *export;
	struct watch watch;
	int n_stops;    /* signals that were acted upon */
	uint64_t shown; /* partitions when progress was last shown */
	/* Where the input stood when a commit was first seen, and when: a run may resume far into it. */
	uint64_t from_bytes;
	int64_t from_ms;
};

/* Signals, then progress: "63%, 120.0 MiB/s, 7.0 s left", or rows per second where the size of the input is unknown. */
static void watch_export(void *ctx)
{
	struct exportwatch *w = ctx;
	struct sl_export_progress p = {.struct_size = sizeof(p)};
	char text[256], rate[96], rows[TEXT_COUNT_BYTES], partitions[TEXT_COUNT_BYTES], bytes[TEXT_TIME_BYTES];
	char per_second[TEXT_TIME_BYTES], left[TEXT_TIME_BYTES];
	int64_t ms = watch_ms(&w->watch);
	double speed, percent, rest;
	int count = stop_count();

	if (count >= 1 && w->n_stops < 1) {
		w->n_stops = 1;
		cli_say(w->watch.cli, SL_LOG_WARN,
			"stopping: committing what was read; a second signal stops immediately");
		sl_export_stop(w->export, SL_EXPORT_DRAIN);
	}
	if (count >= 2 && w->n_stops < 2) {
		w->n_stops = 2;
		sl_export_stop(w->export, SL_EXPORT_NOW);
	}

	/* An export that follows a source at rest has nothing new to show. */
	if (!progress_due(&w->watch.progress))
		return;
	sl_export_get_progress(w->export, &p);
	if (p.partitions == w->shown)
		return;
	if (!w->shown) {
		w->from_bytes = p.input_bytes;
		w->from_ms = ms;
	}
	w->shown = p.partitions;
	speed = ms > w->from_ms ? (double)(p.input_bytes - w->from_bytes) * 1000 / (double)(ms - w->from_ms) : 0;
	percent = p.input_total ? (double)p.input_bytes * 100 / (double)p.input_total : 0;
	rest = p.input_total > p.input_bytes ? (double)(p.input_total - p.input_bytes) : 0;
	if (!p.input_total)
		(void)snprintf(rate, sizeof(rate), "%.0f rows/s", ms > 0 ? (double)p.rows * 1000 / (double)ms : 0.0);
	else if (speed < 1)
		(void)snprintf(rate, sizeof(rate), "%.0f%%", percent);
	else
		(void)snprintf(rate, sizeof(rate), "%.0f%%, %s/s, %s left", percent,
			       text_bytes(per_second, (uint64_t)speed), text_age(left, (int64_t)(rest * 1000 / speed)));
	(void)snprintf(text, sizeof(text), "%s, %s, %s of %s, checkpoint %" PRIu64 "%s", rate,
		       text_count(rows, p.rows, "row"), text_count(partitions, p.partitions, "partition"),
		       text_bytes(bytes, p.bytes), p.checkpoint, p.bad_rows ? ", bad rows" : "");
	progress_show(&w->watch.progress, text, p.input_bytes, p.input_total);
}

/* ---- running ---- */

typedef int run_fn(sl_export *export, struct sl_export_result *result, struct sl_err *err, void *ctx);

static int run_watched(struct exportopts *o, sl_export *export, run_fn *fn, void *ctx)
{
	struct sl_export_result result = {.struct_size = sizeof(result)};
	struct sl_err err = SL_ERR_INIT;
	struct exportwatch watch = {.export = export};
	char rows[TEXT_COUNT_BYTES];
	int64_t ms;
	int code, rc;

	/* Run it; progress and signals are the business of the watch. */
	stop_ask_twice();
	rc = watch_start(&watch.watch, o->cli, false, watch_export, &watch);
	if (rc != 0)
		return rc;
	rc = fn(export, &result, &err, ctx);
	ms = watch_ms(&watch.watch);
	watch_stop(&watch.watch);
	if (rc == 0 || result.partitions || result.head[0])
		report(o, &result, ms, rc);
	if (result.bad_rows)
		cli_say(o->cli, SL_LOG_ERROR, "%s in %s%s%s; list the reasons with 'sluice dlq list'",
			text_count(rows, result.bad_rows, "bad row"),
			o->opts.dead_letters != NULL ? o->opts.dead_letters : o->opts.to,
			o->opts.dead_letters != NULL ? "" : "/_dead/",
			o->opts.dead_letters != NULL ? "" : o->opts.dataset);
	if (rc != 0) {
		/* What only needs room or rights leaves nothing to repair. */
		code = cli_fail(o->cli, &err, NULL);
		if (code == EXIT_OUTPUT && result.head[0])
			cli_say(o->cli, SL_LOG_ERROR,
				"then run the same command again; it resumes after the checkpoint");
		return code;
	}
	/* Following ends with a signal; everything else that a signal ends was not done. */
	if (result.stopped && (o->opts.follow != SL_ON || stop_count() > 1)) {
		cli_say(o->cli, SL_LOG_ERROR, "interrupted; run the same command again to resume after the checkpoint");
		return EXIT_INTERRUPTED;
	}
	return result.bad_rows ? EXIT_BAD_DATA : EXIT_OK;
}

static int run_with(struct exportopts *o, run_fn *fn, void *ctx)
{
	struct sl_err err = SL_ERR_INIT;
	sl_export *export = NULL;
	char line[800];
	int rc;

	/* A file is mapped. A program that truncates it meanwhile takes away what the workers read. */
	if (o->opts.table == NULL && o->opts.query == NULL && strcmp(o->opts.from, "-") != 0) {
		(void)snprintf(line, sizeof(line),
			       "sluice %s: %.500s became shorter while it was read, or its disk failed; what was "
			       "committed before stays",
			       o->cli->command, o->opts.from);
		(void)stop_report_bus(line); /* without it the system says less */
	}
	if (sl_export_new(&export, &o->opts, &err))
		return cli_fail(o->cli, &err, NULL);
	rc = run_watched(o, export, fn, ctx);
	sl_export_free(export);
	return rc;
}

static int run_whole(sl_export *export, struct sl_export_result *result, struct sl_err *err, void *ctx)
{
	(void)ctx;
	return sl_export_run(export, result, err);
}

static int export_run(struct cli *cli, const struct parsed *args)
{
	struct exportopts o;
	int rc = exportopts_read(&o, cli, args);

	if (rc == 0) {
		o.opts.final = opt_flag(args, "final") ? SL_ON : SL_DEFAULT;
		o.opts.audit_endpoint = opt_str(args, "audit-url");
		o.opts.audit_token_file = opt_str(args, "audit-token-file");
		o.opts.audit_ca_file = opt_str(args, "audit-ca-file");
		rc = run_with(&o, run_whole, NULL);
	}
	exportopts_fini(&o);
	return rc;
}

static const struct opt export_opts[] = {
	EXPORT_OPTS_SOURCE,
	{.name = "follow", .kind = OPT_FLAG, .help = "Continue as the source grows, until a signal"},
	{.name = "final",
	 .kind = OPT_FLAG,
	 .help = "Close the unfinished last partition of a database (that of a file is always closed)"},
	OPT_TEXT("audit-url", 0, "URL", "Send each audit event to this HTTP endpoint too, in order, at least once"),
	OPT_TEXT("audit-token-file", 0, "FILE", "Send the first line of FILE as the bearer token to that endpoint"),
	OPT_TEXT("audit-ca-file", 0, "FILE",
		 "CA certificates (PEM) to trust for that endpoint instead of the system's"),
	OPT_JSON("Print the result as JSON"),
	{.name = NULL},
};

const struct command cmd_export = {
	.name = "export",
	.operands = "",
	.summary = "export numbered rows into Parquet, with a catalog and an audit chain",
	.opts = export_opts,
	.description =
		"Each row has a number, one higher than the row before. Rows become Parquet files of --partition-size "
		"numbers below DIR/NAME, committed in order and exactly once: after an interruption, the same command "
		"resumes at its checkpoint. A gap, a repetition or a step back in the numbers ends the export with "
		"status 65 and the place. A file or standard input is complete at its end. With a database or "
		"--follow, the last partition waits until it is full or --final closes it. SIGINT or SIGTERM stops "
		"reading and commits what was read (status 75, with --follow 0); a second one stops immediately. "
		"'sluice audit verify' proves afterwards that nothing is missing, duplicated or changed. Keep "
		"passwords out of URLs: set PGPASSWORD or PGPASSFILE.",
	.example = "sluice export --from ledgers.jsonl --sequence ledger_sequence --to ./lake --dataset ledgers\n"
		   "sluice export --from sqlite:sluice.db --table job_events --sequence offset --follow --to ./lake "
		   "--dataset job_events",
	.run = export_run,
};

/* ---- export backfill ---- */

struct ranges {
	struct sl_export_range *ranges;
	size_t n;
};

/* *text is past it afterwards. */
static int read_number(const char **text, uint64_t *out)
{
	uint64_t v = 0;
	const char *p = *text;

	/* By hand: strtoull takes signs and blanks, and wraps. */
	for (; *p >= '0' && *p <= '9'; p++) {
		if (__builtin_mul_overflow(v, (uint64_t)10, &v) || __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
			return -1;
	}
	*out = v;
	if (p == *text)
		return -1;
	*text = p;
	return 0;
}

/* "A-B" or "A", with commas between. */
static int read_ranges(struct cli *cli, const char *text, struct ranges *out)
{
	const char *p = text;
	size_t room = 1;

	/* One range more than there are commas. */
	for (const char *comma = text; (comma = strchr(comma, ',')); comma++)
		room++;
	out->ranges = calloc(room, sizeof(*out->ranges));
	if (out->ranges == NULL)
		return cli_no_memory(cli);
	for (; out->n < room; p++) {
		struct sl_export_range *range = &out->ranges[out->n++];
		bool bad = read_number(&p, &range->first) != 0;

		range->last = range->first;
		if (!bad && *p == '-') {
			p++;
			bad = read_number(&p, &range->last) || range->last < range->first;
		}
		if (bad || (*p && *p != ','))
			return cli_usage(cli, "--ranges: '%.200s' is not a list of ranges like 1-250000,500000", text);
	}
	return 0;
}

static int run_ranges(sl_export *export, struct sl_export_result *result, struct sl_err *err, void *ctx)
{
	const struct ranges *r = ctx;

	return sl_export_backfill(export, r->ranges, r->n, result, err);
}

static int export_backfill_run(struct cli *cli, const struct parsed *args)
{
	struct exportopts o = {.cli = cli};
	struct ranges ranges = {.n = 0};
	int rc = read_ranges(cli, opt_str(args, "ranges"), &ranges);

	/* The ranges are checked before the settings: they need no file. */
	if (rc == 0) {
		rc = exportopts_read(&o, cli, args);
		if (rc == 0)
			rc = run_with(&o, run_ranges, &ranges);
		exportopts_fini(&o);
	}
	free(ranges.ranges);
	return rc;
}

static const struct opt backfill_opts[] = {
	EXPORT_OPTS_SOURCE,
	{.name = "ranges",
	 .letter = 'r',
	 .kind = OPT_STRING,
	 .arg = "A-B,…",
	 .required = true,
	 .help = "Rebuild these numbers, both ends included"},
	OPT_JSON("Print the result as JSON"),
	{.name = NULL},
};

const struct command cmd_export_backfill = {
	.name = "export backfill",
	.operands = "",
	.summary = "rebuild partitions from their source, or add those before the start",
	.opts = backfill_opts,
	.description =
		"Rebuilds every partition that a range touches from the source. A partition that was committed must "
		"come out with the hash in the catalog; its file is replaced if it is missing or damaged. If the "
		"source gives something else, the status is 65 and nothing is changed. Rows that have appeared in "
		"recorded holes become separate files. Numbers before the start of the dataset become partitions with "
		"their own audit events. 'sluice export gaps' prints the ranges that are needed.",
	.example = "sluice export backfill --from ledgers.csv --to ./lake --dataset ledgers --ranges 500000-749999\n"
		   "sluice export backfill --from ledgers.csv --to ./lake --dataset ledgers",
	.run = export_backfill_run,
};
