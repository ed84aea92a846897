/* SPDX-License-Identifier: Apache-2.0 */
/* sluice load: options for sl_load (<sluice/load.h>), signals, progress and the result. */
#include "commands.h"
#include "load/target.h"
#include "opts.h"
#include "stop.h"
#include "text.h"
#include "waiting.h"
#include "watch.h"

#include <inttypes.h>
#include <sluice/load.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct load {
	struct cli *cli;
	const struct parsed *args;
	const char *const *inputs;
	int n_inputs;
	const char *url;
	struct sl_sink_opts sink;
	const char **columns, **on_conflict;
	char *header[1]; /* with the token of the environment */
	struct watch watch;
	sl_load *handle;
	bool stop_reported; /* of the watch's thread */
};

/* ---- progress ---- */

/* On a separate thread, so that it continues while the load waits for its target. */
static void show_load(void *ctx)
{
	struct load *l = ctx;
	struct sl_load_stats s = {.struct_size = sizeof(s)};
	char text[256], count[TEXT_COUNT_BYTES];
	int64_t ms = watch_ms(&l->watch);

	/* A stop is reported once, with what is still to be done. */
	sl_load_get_stats(l->handle, &s);
	if (stop_requested() && !l->stop_reported) {
		l->stop_reported = true;
		cli_say(l->cli, SL_LOG_WARN,
			"stopping: %s still to be written; a second signal ends the command immediately",
			text_count(count, s.queued + s.in_flight + s.retrying, "row"));
	}
	if (!progress_due(&l->watch.progress))
		return;
	(void)snprintf(
		text, sizeof(text), "%s, %.0f/s, %" PRIu64 " queued, %" PRIu64 " retrying, %" PRIu64 " dead%s%.100s",
		text_count(count, s.written, "row"), ms > 0 ? (double)s.written * 1000 / (double)ms : 0.0, s.queued,
		s.retrying, s.dead, s.trouble.code ? "; waiting: " : "", s.trouble.code ? s.trouble.msg : "");
	progress_show(&l->watch.progress, text, s.bytes_total ? s.bytes_read : 0, s.bytes_total);
}

/* ---- the result ---- */

/* The exit code, after a line for everything that went wrong. */
static int result(struct load *l, int rc, const struct sl_err *err)
{
	struct sl_load_stats s = {.struct_size = sizeof(s)};
	const char *target = sl_load_target(l->handle); /* NULL: nothing was done before it was open */
	double seconds = (double)watch_ms(&l->watch) / 1000;
	struct out *out = &l->cli->out;
	char count[TEXT_COUNT_BYTES];
	int code = 0;

	/* The error first, the counts after it. */
	if (rc != 0 && rc != SL_ECANCELLED)
		code = opts_fail(l->cli, l->args, err);
	sl_load_get_stats(l->handle, &s);
	if (target != NULL && opt_flag(l->args, "json")) {
		out_printf(out,
			   "{\"read\":%" PRIu64 ",\"written\":%" PRIu64 ",\"dead\":%" PRIu64 ",\"dropped\":%" PRIu64
			   ",\"left\":%" PRIu64 ",\"skipped\":%" PRIu64 ",\"seconds\":%.3f}\n",
			   s.read, s.written, s.dead, s.dropped, s.left, s.skipped, seconds);
	} else {
		if (target != NULL) {
			/* What was written, and then everything that was not. */
			out_printf(out, "%s written to %s in %.1f s\n", text_count(count, s.written, "row"), target,
				   seconds);
			if (s.dropped)
				out_printf(out, "%s dropped\n", text_count(count, s.dropped, "row"));
			if (s.skipped)
				out_printf(out, "%s loaded before\n", text_count(count, s.skipped, "row"));
			if (s.left && opt_given(l->args, "wal"))
				out_printf(out, "%s left in the log in %s; the next run continues with them\n",
					   text_count(count, s.left, "row"), opt_str(l->args, "wal"));
			else if (s.left)
				out_printf(out, "%s read but not written\n", text_count(count, s.left, "row"));
		}
	}
	if (s.dead_all)
		cli_say(l->cli, SL_LOG_ERROR, "%s in %s%s; list the reasons with 'sluice dlq list'",
			text_count(count, s.dead_all, "dead letter"), sl_load_dead_letters(l->handle),
			s.dead_elsewhere ? " and the folders of earlier runs, which have another number" : "");
	if (s.dropped)
		cli_say(l->cli, SL_LOG_ERROR, "%s dropped: the target was slower than the input (--overflow)",
			text_count(count, s.dropped, "row"));
	/* Rows that did not arrive make the status 65, even if nothing failed. */
	if (rc != SL_ECANCELLED)
		return rc == 0 && (s.dead_all || s.dropped) ? EXIT_BAD_DATA : code;
	if (s.left)
		cli_say(l->cli, SL_LOG_ERROR, "interrupted; run the same command again to continue");
	else
		cli_say(l->cli, SL_LOG_ERROR, "interrupted; the rows that were read are written%s",
			s.resumable ? "; run the same command again to continue" : ", the others are not");
	return EXIT_INTERRUPTED;
}

/* ---- options ---- */

static const char *const formats[] = {"csv", "jsonl", NULL};
static const char *const overflows[] = {"block", "drop_oldest", "error", NULL};
static const char *const switches[] = {"on", "off", NULL};
static const char *const bodies[] = {"jsonl", "array", "cloudevents", NULL};

static bool has_suffix(const char *path, const char *suffix)
{
	size_t n = strlen(path), m = strlen(suffix);

	return n > m && strcmp(path + n - m, suffix) == 0;
}

/* --format, or what the name says. -1: neither. */
static int format_of(const struct load *l, const char *path)
{
	if (opt_given(l->args, "format"))
		return (int)opt_num(l->args, "format");
	if (has_suffix(path, ".csv"))
		return 0;
	if (has_suffix(path, ".jsonl") || has_suffix(path, ".ndjson") || has_suffix(path, ".json"))
		return 1;
	return -1;
}

static int set_inputs(struct load *l)
{
	static const char *const standard[] = {"-"};
	int n_standard = 0, format;

	l->inputs = l->args->n_operands ? l->args->operands : standard;
	l->n_inputs = l->args->n_operands ? l->args->n_operands : 1;
	for (int i = 0; i < l->n_inputs; i++)
		n_standard += strcmp(l->inputs[i], "-") == 0;
	if (n_standard > 1)
		return cli_usage(l->cli, "FILE: standard input (-) can be read only once");
	/* One format for all: the target and the options of CSV are shared. */
	format = format_of(l, l->inputs[0]);
	for (int i = 0; i < l->n_inputs; i++) {
		int other = format_of(l, l->inputs[i]);

		if (other < 0)
			return cli_usage(l->cli, "cannot see the format of %s; give --format=csv or --format=jsonl",
					 strcmp(l->inputs[i], "-") ? l->inputs[i] : "standard input");
		if (other != format)
			return cli_usage(l->cli,
					 "the files have different formats; give --format=csv or --format=jsonl");
	}
	l->sink.format = format == 0 ? SL_ROWS_CSV : SL_ROWS_JSON;
	return 0;
}

/* What is recorded of an input, and under which name. */
static int check_resume(struct load *l)
{
	static const char *const of_records[] = {"again", "load-id"};
	bool database = strncmp(l->url, "postgres", 8) == 0 || strncmp(l->url, "sqlite:", 7) == 0;
	bool has_stdin = false;

	for (int i = 0; i < l->n_inputs; i++)
		has_stdin = has_stdin || strcmp(l->inputs[i], "-") == 0;
	/* Records of loads are kept in tables of the target, which only databases have. */
	for (size_t i = 0; i < sizeof(of_records) / sizeof(of_records[0]); i++) {
		if (!opt_given(l->args, of_records[i]))
			continue;
		if (!database)
			return cli_usage(l->cli, "--%s needs a PostgreSQL or SQLite target", of_records[i]);
		if (opt_flag(l->args, "no-resume"))
			return cli_usage(l->cli, "--%s and --no-resume exclude each other", of_records[i]);
	}
	if (opt_given(l->args, "load-id") && !has_stdin && l->n_inputs > 1)
		return cli_usage(l->cli, "--load-id names one input; load the files one at a time");
	if (has_stdin && database && !opt_given(l->args, "load-id") && !opt_flag(l->args, "no-resume"))
		return cli_usage(
			l->cli,
			"standard input needs --load-id=NAME to resume after an interruption; give it, or --no-resume");
	return 0;
}

static int set_target(struct load *l)
{
	static const char *const of_csv[] = {"columns", "no-header", "null", "delimiter"};
	const struct parsed *a = l->args;
	const char *multiplier = opt_str(a, "backoff-multiplier"), *delimiter = opt_str(a, "delimiter");
	char *end;
	int rc = set_inputs(l);

	if (rc != 0)
		return rc;
	for (size_t i = 0; i < SL_COUNT(of_csv); i++)
		if (l->sink.format != SL_ROWS_CSV && opt_given(a, of_csv[i]))
			return cli_usage(l->cli, "--%s needs CSV input", of_csv[i]);
	/* A factor is not a whole number, which the parser of options has no kind for. */
	if (multiplier != NULL && (!(strtod(multiplier, &end) >= 1) || *end || strtod(multiplier, NULL) > 1000))
		return cli_usage(l->cli, "--backoff-multiplier: '%s' is not a number from 1 to 1000", multiplier);
	if (opt_given(a, "columns") && !opt_flag(a, "no-header"))
		return cli_usage(l->cli, "--columns is for CSV without a header; add --no-header");
	if (delimiter != NULL && strcmp(delimiter, "tab") != 0 && strcmp(delimiter, "\\t") != 0 &&
	    (strlen(delimiter) != 1 || strchr("\"\r\n", *delimiter) != NULL || *delimiter < 0))
		return cli_usage(l->cli, "--delimiter: '%s' is not an ASCII character other than a quote, or tab",
				 delimiter);
	if (delimiter != NULL)
		l->sink.delimiter = strlen(delimiter) == 1 ? *delimiter : '\t';
	l->url = opt_str(a, "to");
	rc = check_resume(l);
	if (rc != 0)
		return rc;
	l->sink.struct_size = sizeof(l->sink);
	l->sink.table = opt_str(a, "table");
	l->sink.null_text = opt_str(a, "null");
	l->sink.body = (enum sl_http_body)opt_num(a, "body");
	l->sink.header_file = opt_str(a, "header-file");
	l->sink.token_file = opt_str(a, "token-file");
	l->sink.ca_file = opt_str(a, "ca-file");
	l->sink.timeout_ms = opt_num(a, "timeout");
	l->sink.zstd_level = (int32_t)opt_num(a, "zstd");
	l->sink.rotate_bytes = opt_num(a, "rotate-bytes");
	/* The token of the environment, for HTTP targets. */
	if (sl__load_set_token(&l->sink, l->url, getenv("SLUICE_HTTP_TOKEN"), l->header))
		return cli_no_memory(l->cli);
	if (strncmp(l->url, "file:", 5) == 0) /* what goes in comes out */
		l->sink.file_format = l->sink.format;
	rc = opts_columns(l->cli, a, "on-conflict", &l->on_conflict, &l->sink.n_on_conflict);
	if (rc == 0)
		rc = opts_columns(l->cli, a, "columns", &l->columns, &l->sink.n_columns);
	l->sink.on_conflict = l->on_conflict;
	l->sink.columns = l->columns;
	return rc;
}

static int open_load(struct load *l)
{
	const struct parsed *a = l->args;
	int64_t interval = opt_num(a, "flush-interval"), limit = opt_num(a, "give-up-after");
	int64_t capacity = opt_num(a, "capacity"), low = opt_num(a, "low-watermark");
	const char *multiplier = opt_str(a, "backoff-multiplier");
	const struct sl_coordinator_opts delivery = {
		SL_COORDINATOR_OPTS_INIT,
		.capacity = capacity ? capacity : opt_num(a, "batch-size") * 2 * opt_num(a, "workers"),
		.workers = (int32_t)opt_num(a, "workers"),
		.batch_size = (int32_t)opt_num(a, "batch-size"),
		.flush_interval_ms = interval ? interval : SL_NONE,
		.backpressure.high_watermark = opt_num(a, "high-watermark"),
		.backpressure.low_watermark = opt_given(a, "low-watermark") && !low ? SL_NONE : low,
		.overflow_strategy = (enum sl_overflow)opt_num(a, "overflow"),
		.retry.policy = {.max_attempts = (int32_t)opt_num(a, "max-attempts"),
				 .first_ms = opt_num(a, "initial-backoff"),
				 .cap_ms = opt_num(a, "max-backoff"),
				 .multiplier = multiplier != NULL ? strtod(multiplier, NULL) : 0,
				 .jitter = opt_num(a, "jitter") ? SL_JITTER_OFF : SL_JITTER_DEFAULT},
		.retry.give_up_after_ms = limit ? limit : SL_UNLIMITED,
		.breaker = {.failures = (int32_t)opt_num(a, "breaker-failures"),
			    .open_ms = opt_num(a, "breaker-pause"),
			    .open_max_ms = SL_MAX(opt_num(a, "breaker-max-pause"), opt_num(a, "breaker-pause"))},
		.rate.items = (double)opt_num(a, "rate")};
	const struct sl_load_opts opts = {SL_LOAD_OPTS_INIT,
					  .env = &l->cli->env,
					  .paths = l->inputs,
					  .n_paths = (size_t)l->n_inputs,
					  .header = opt_flag(a, "no-header") ? SL_OFF : SL_ON,
					  .max_record_bytes = opt_num(a, "max-record"),
					  .to = l->url,
					  .sink = &l->sink,
					  .create = opt_flag(a, "create") ? SL_ON : SL_OFF,
					  .delivery = &delivery,
					  .dead_letters = opt_str(a, "dead-letters"),
					  .dead_letters_numbered = opt_given(a, "dead-letters") ? SL_OFF : SL_ON,
					  .wal_dir = opt_str(a, "wal"),
					  .resume = opt_flag(a, "no-resume") ? SL_OFF : SL_ON,
					  .again = opt_flag(a, "again") ? SL_ON : SL_OFF,
					  .load_id = opt_str(a, "load-id"),
					  .stop_fd = stop_fd()};
	struct sl_err err = SL_ERR_INIT;

	return sl_load_open(&l->handle, &opts, &err) ? opts_fail(l->cli, a, &err) : 0;
}

static int load_run(struct cli *cli, const struct parsed *args)
{
	struct load l = {.cli = cli, .args = args};
	struct sl_err err = SL_ERR_INIT;
	int code;

	cli->component = "load";
	/* Options, target, load; whatever fails prints its reason. */
	code = set_target(&l);
	/* Progress and signals are watched by another thread: the load takes up this one. */
	if (!code) {
		opts_warn_of_password(cli, args, "to", "PGPASSWORD, a password file, --token-file or --header-file");
		code = open_load(&l);
	}
	if (!code)
		code = watch_start(&l.watch, cli, false, show_load, &l);
	if (!code) {
		int rc = sl_load_run(l.handle, &err);

		watch_stop(&l.watch);
		code = result(&l, rc, &err);
	}
	if (sl_load_close(l.handle, &err)) /* a write has not returned: the process ends under it */
		waiting_abandon(cli, code ? code : EXIT_INTERNAL);
	free(l.columns);
	free(l.on_conflict);
	free(l.header[0]);
	return code;
}

static const struct opt load_opts[] = {
	{.name = "to",
	 .letter = 't',
	 .kind = OPT_STRING,
	 .arg = "URL",
	 .required = true,
	 .help = "Write rows to postgres://…, sqlite:FILE, https://…, file:PATH, exec:COMMAND or null:"},
	OPT_TEXT("table", 0, "T", "Table of the database; on PostgreSQL also SCHEMA.TABLE"),
	{.name = "format",
	 .letter = 'f',
	 .kind = OPT_ENUM,
	 .arg = "WHAT",
	 .choices = formats,
	 .help = "Format of files whose names do not end in .csv or .jsonl"},
	OPT_TEXT("on-conflict", 0, "COLS",
		 "Columns of a unique key, as a,b: a row whose key exists replaces the existing row"),
	{.name = "create",
	 .kind = OPT_FLAG,
	 .help = "Create the table unless it exists, with types guessed from the first rows"},
	{.name = "workers",
	 .letter = 'w',
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "4",
	 .min = 1,
	 .max = 256,
	 .help = "Number of batches written at the same time"},
	{.name = "batch-size",
	 .letter = 'b',
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "5000",
	 .min = 1,
	 .max = 1000000,
	 .help = "Maximum rows per batch"},
	{.name = "flush-interval",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "250ms",
	 .min = 0,
	 .max = 3600000,
	 .help = "Write a batch that is not full when its oldest row has waited this long, or immediately when no "
		 "other batch is being written"},
	{.name = "overflow",
	 .kind = OPT_ENUM,
	 .arg = "WHAT",
	 .def = "block",
	 .choices = overflows,
	 .help = "When the target is slower than the input: read more slowly, drop the oldest waiting rows, or fail"},
	{.name = "capacity",
	 .kind = OPT_INT,
	 .arg = "N",
	 .min = 1,
	 .max = 100000000,
	 .help = "Maximum rows waiting in memory (default: two batches per worker)"},
	{.name = "high-watermark",
	 .kind = OPT_INT,
	 .arg = "N",
	 .min = 1,
	 .max = 100000000,
	 .help = "Log backpressure (-v) when this many rows wait (default: 80 % of the capacity)"},
	{.name = "low-watermark",
	 .kind = OPT_INT,
	 .arg = "N",
	 .min = 0,
	 .max = 100000000,
	 .help = "End backpressure when only this many rows wait (default: 50 % of the capacity)"},
	{.name = "max-attempts",
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "5",
	 .min = 1,
	 .max = 1000000,
	 .help = "Attempts for a row that fails while others are written; then it becomes a dead letter"},
	{.name = "initial-backoff",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .min = 1,
	 .max = 86400000,
	 .help = "Delay before the second attempt (default: 50ms)"},
	{.name = "max-backoff",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .min = 1,
	 .max = 86400000,
	 .help = "Longest delay between attempts (default: 2s, or the initial backoff if that is longer)"},
	OPT_TEXT("backoff-multiplier", 0, "X", "Multiply the delay by this factor after each attempt (default: 2)"),
	{.name = "jitter",
	 .kind = OPT_ENUM,
	 .arg = "WHAT",
	 .def = "on",
	 .choices = switches,
	 .help = "Vary each delay between 50 % and 100 %"},
	{.name = "give-up-after",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "10m",
	 .min = 0,
	 .max = INT64_C(31536000000),
	 .help = "Give up on a row, as a dead letter, after it has failed for this long, and on a target that took no "
		 "row for this long (status 69 or 78). 0 waits forever"},
	OPT_TEXT("wal", 0, "DIR",
		 "Keep rows in a log in DIR until they are written, so that a load into a target that keeps no record "
		 "of it can resume too"),
	{.name = "again",
	 .kind = OPT_FLAG,
	 .help = "Load files again from their beginning, even if the table has their rows"},
	OPT_TEXT("load-id", 0, "NAME",
		 "Record the load under this name (default: the path of the file; standard input has none)"),
	{.name = "no-resume",
	 .kind = OPT_FLAG,
	 .help = "Keep no record of the load in the database; running it again repeats rows"},
	{.name = "rate",
	 .kind = OPT_INT,
	 .arg = "N",
	 .min = 1,
	 .max = 1000000000,
	 .help = "Write at most this many rows per second"},
	{.name = "dead-letters",
	 .kind = OPT_STRING,
	 .arg = "DIR",
	 .def = "./sluice-dead-letters",
	 .help = "Folder for rows that cannot be written. Without this option, a load next to another one in the same "
		 "folder uses ./sluice-dead-letters-2, and so on"},
	OPT_TEXT("delimiter", 0, "CHAR", "Character between the fields of CSV, or tab (default: a comma)"),
	OPT_TEXT("ca-file", 0, "FILE",
		 "Trust the certificates in FILE (PEM) for an https target (default: the system's)"),
	{.name = "breaker-failures",
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "5",
	 .min = 1,
	 .max = 1000000,
	 .help = "Pause after this many failed batches in a row"},
	{.name = "breaker-pause",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "1s",
	 .min = 1,
	 .max = 86400000,
	 .help = "First pause before the target is tried again; it doubles with each failure"},
	{.name = "breaker-max-pause",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "30s",
	 .min = 1,
	 .max = 86400000,
	 .help = "Longest pause before the target is tried again"},
	OPT_TEXT("columns", 0, "COLS", "Columns of CSV without a header, as a,b"),
	{.name = "no-header", .kind = OPT_FLAG, .help = "Read the first record of CSV as a row"},
	OPT_TEXT("null", 0, "TEXT", "Read an unquoted CSV field with this text as NULL (default: the empty text)"),
	{.name = "max-record",
	 .kind = OPT_SIZE,
	 .arg = "SIZE",
	 .def = "16MiB",
	 .min = 1024,
	 .max = 67108864,
	 .help = "Maximum size of a record; a longer one becomes a dead letter"},
	{.name = "body",
	 .kind = OPT_ENUM,
	 .arg = "WHAT",
	 .choices = bodies,
	 .help = "Body of HTTP requests: JSON lines, a JSON array, or a batch of CloudEvents"},
	OPT_TEXT("header-file", 0, "FILE",
		 "Send the headers in FILE with each HTTP request, one 'Name: value' per line; # begins a comment"),
	OPT_TEXT("token-file", 0, "FILE", "Send the first line of FILE as the bearer token to an HTTP target"),
	{.name = "timeout",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .min = 1,
	 .max = 86400000,
	 .help = "Fail an HTTP request, or a batch's program, that takes longer (default: 30s)"},
	{.name = "zstd",
	 .kind = OPT_INT,
	 .arg = "LEVEL",
	 .min = 1,
	 .max = 19,
	 .help = "Compress the file of a file target"},
	{.name = "rotate-bytes",
	 .kind = OPT_SIZE,
	 .arg = "SIZE",
	 .min = 1,
	 .max = (int64_t)1 << 50,
	 .help = "Start another file when a file target exceeds this size"},
	OPT_JSON("Print the result as JSON"),
	{.name = NULL},
};

const struct command cmd_load = {
	.name = "load",
	.operands = "FILE…",
	.optional = 1,
	.summary = "load CSV or JSON lines into a database, an endpoint or a file",
	.opts = load_opts,
	.description =
		"Each record of the files becomes a row of the target; without a FILE, or for -, standard input is "
		"read. CSV is as in RFC 4180 and begins with a header that names the columns. JSON lines are objects "
		"whose members are the columns. A bad record, or a row that the target refuses, does not stop the "
		"load: it becomes a dead letter with its line and the reason, and the status is 65 at the end. 'sluice "
		"dlq redrive' writes it to the same target again. If the target refuses the first rows, the load ends "
		"with status 69 (unavailable) or 78 (not set up as needed). If it fails later, load waits for it, up "
		"to --give-up-after. If input from a pipe ends in the middle of a line, the rows before that line are "
		"loaded, and the status is 65. Rows that --overflow drops are counted, and the status is 65. SIGINT or "
		"SIGTERM stops reading and writes what was read (status 75); a second one stops immediately. If a load "
		"into PostgreSQL or SQLite is interrupted, run the same command again: it resumes where it stopped, "
		"and each row is written exactly once. The database records which part of the input it has, in the "
		"tables sluice_loads and sluice_load_ranges next to the target. A file that was loaded is not loaded "
		"again without --again; if it has grown, only the new rows are loaded. Standard input needs --load-id. "
		"With --on-conflict, the last row of the input wins for each key. For other targets, --wal keeps rows "
		"that were read but not yet written. Keep passwords out of the URL: set PGPASSWORD, PGPASSFILE or "
		"SLUICE_HTTP_TOKEN, or give --token-file or --header-file.",
	.example = "sluice load bars.csv --to sqlite:market.db --table bars --create\n"
		   "zcat trades.jsonl.gz | sluice load - --format jsonl --to postgres://localhost/market --table "
		   "trades --on-conflict id --load-id trades-2024",
	.run = load_run,
};
