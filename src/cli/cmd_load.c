/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice load: files of records into a database, an HTTP endpoint, a file or a program. load.h has the parts.
 *
 * What must stay true: the target and the dead letters are known to be fit before the first row is read; logs are
 * removed only when all inputs are done and nothing in them is pending; the result is told however the command ends.
 */
#include "commands.h"
#include "load.h"
#include "stop.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SAMPLE = 1000 };

/* ---- the target ---- */

static int same_columns(const struct load *l, const char *const *names, size_t n)
{
	if (n != l->to.opts.n_columns)
		return 0;
	for (size_t i = 0; i < n; i++)
		if (strcmp(names[i], l->to.opts.columns[i]))
			return 0;
	return 1;
}

static int no_memory(struct load *l)
{
	cli_say(l->cli, SL_LOG_ERROR, "out of memory");
	return EXIT_INTERNAL;
}

/* CSV: the header names the columns; the first file's, and the others must have the same. *empty: there is nothing at
 * all in the input, not even a header. */
static int take_header(struct load *l, int *empty)
{
	struct sl_err err = SL_ERR_INIT;
	const char *const *names;
	size_t n;

	*empty = 0;
	if (l->to.opts.format != SL_ROWS_CSV || opt_flag(l->args, "no-header"))
		return 0;
	if (sl_records_columns(l->in.records, &names, &n, &err)) {
		*empty = l->in.read == 0 && err.code == SL_EDATA;
		return *empty ? 0 : loadinput_failed(&l->in, &err);
	}
	if (l->to.opts.columns && same_columns(l, names, n))
		return 0;
	if (l->to.opts.columns) {
		cli_say(l->cli, SL_LOG_ERROR, "%s: its header is another than that of the files before", l->in.name);
		return EXIT_BAD_DATA;
	}
	l->to.lists[0] = loadsink_copy(names, n);
	l->to.opts.columns = l->to.lists[0];
	l->to.opts.n_columns = n;
	return l->to.lists[0] ? 0 : no_memory(l);
}

/* Columns that --columns names have these names. */
static int create_named(struct load *l, const struct sl_column *guessed, size_t n, struct sl_err *err)
{
	struct sl_column *columns;
	int rc;

	if (n != l->to.opts.n_columns)
		return sl_err_set(err, SL_EDATA, "--columns has %zu names, and the first record %zu fields",
				  l->to.opts.n_columns, n);
	columns = calloc(n, sizeof(*columns));
	if (!columns)
		return sl_err_set(err, SL_ENOMEM, "no memory for columns");
	for (size_t i = 0; i < n; i++) {
		columns[i] = guessed[i];
		columns[i].name = l->to.opts.columns[i];
	}
	rc = sl_sink_create_table(l->to.url, &l->to.opts, columns, n, err);
	free(columns);
	return rc;
}

/* Without a record or a header there is nothing to make a table from; the check of the target says if that is wrong. */
static int create_table(struct load *l)
{
	struct sl_err err = SL_ERR_INIT;
	const struct sl_column *columns;
	size_t n;
	int rc;

	if (!opt_flag(l->args, "create"))
		return 0;
	if (loadinput_infer(&l->in, SAMPLE, &columns, &n, &err))
		return loadinput_failed(&l->in, &err);
	if (n == 0)
		return 0;
	if (l->to.opts.columns)
		rc = create_named(l, columns, n, &err);
	else
		rc = sl_sink_create_table(l->to.url, &l->to.opts, columns, n, &err);
	return rc ? cli_fail(l->cli, &err, "--create") : 0;
}

static int open_dead_letters(struct load *l)
{
	struct sl_dlq_opts opts = {SL_DLQ_OPTS_INIT, .env = &l->cli->env};
	const char *dir = opt_str(l->args, "dead-letters");
	struct sl_err err = SL_ERR_INIT;
	struct stat st;

	if (stat(dir, &st) == 0 && !S_ISDIR(st.st_mode))
		sl_err_set(&err, SL_ECREATE, "--dead-letters: %.200s is not a folder", dir);
	else
		(void)!sl_dlq_open(&l->dead, dir, &opts, &err);
	if (err.code == SL_ELOCKED)
		sl_err_set(&err, SL_ELOCKED,
			   "another command writes to %.150s; give another folder with --dead-letters", dir);
	return err.code ? cli_fail(l->cli, &err, dir) : 0;
}

/* What can be known before the first row: that the target is there and has the table. */
static int check_target(struct load *l)
{
	struct sl_err err = SL_ERR_INIT;

	if (!l->sink.ops->check || l->sink.ops->check(l->sink.ctx, &err) == 0)
		return 0;
	return cli_fail(l->cli, &err, sl_sink_target(&l->sink));
}

static int open_target(struct load *l)
{
	struct sl_err err = SL_ERR_INIT;
	int rc;

	if (l->sink.ops)
		return 0;
	if (sl_sink_open(&l->sink, l->to.url, &l->to.opts, &err))
		return cli_fail(l->cli, &err, "--to");
	rc = check_target(l);
	rc = rc ? rc : open_dead_letters(l);
	if (rc)
		return rc;
	rc = loadsink_write(&l->to, &l->sink, l->target);
	if (rc == SL_ENOMEM)
		return no_memory(l);
	if (rc) {
		cli_say(l->cli, SL_LOG_WARN,
			"the target has too many columns for dead letters to remember: "
			"'sluice dlq redrive' will not know them");
		snprintf(l->target, sizeof(l->target), "%s", sl_sink_target(&l->sink));
	}
	return 0;
}

/* ---- inputs ---- */

static struct loadplace_key place_key(const struct load *l)
{
	return (struct loadplace_key){
		.dir = opt_str(l->args, "wal"), .target = l->target, .inputs = l->inputs, .n_inputs = l->n_inputs};
}

static int load_open_input(struct load *l, int i)
{
	struct loadplace_key key = place_key(l);
	int rc = create_table(l);

	rc = rc ? rc : open_target(l);
	if (rc)
		return rc;
	key = place_key(l);
	rc = load_resume(l, i);
	rc = rc ? rc : loadplace_open(&l->place, l->cli, &key, i);
	rc = rc ? rc : load_rows(l);
	loadplace_close(&l->place, l->cli);
	return load_resumed(l, rc);
}

static int load_input(struct load *l, int i)
{
	struct sl_records_opts opts = {SL_RECORDS_OPTS_INIT, .format = l->to.opts.format,
				       .header = opt_flag(l->args, "no-header") ? SL_OFF : SL_ON,
				       .max_record_bytes = opt_num(l->args, "max-record"),
				       .null_text = opt_str(l->args, "null")};
	int empty = 0, rc = loadinput_open(&l->in, l->cli, l->inputs[i], opts);

	l->records = opts;
	snprintf(l->source, sizeof(l->source), "load:%s", l->inputs[i]);
	rc = rc ? rc : take_header(l, &empty);
	if (!rc && empty)
		cli_say(l->cli, SL_LOG_WARN, "%s is empty", l->in.name);
	else if (!rc)
		rc = load_open_input(l, i);
	loadinput_close(&l->in);
	return rc;
}

/* The size of all files together; 0 when one is not a file. */
static uint64_t size_of_all(const struct load *l)
{
	struct stat st;
	uint64_t bytes = 0;

	for (int i = 0; i < l->n_inputs; i++) {
		int is_stdin = strcmp(l->inputs[i], "-") == 0;

		if ((is_stdin ? fstat(STDIN_FILENO, &st) : stat(l->inputs[i], &st)) || !S_ISREG(st.st_mode))
			return 0;
		bytes += (uint64_t)st.st_size;
	}
	return bytes;
}

static int load_inputs(struct load *l)
{
	int rc = 0;

	for (int i = 0; i < l->n_inputs && !rc; i++)
		rc = load_input(l, i);
	/* Also when every file was empty: a target that is wrong is wrong. */
	rc = rc ? rc : open_target(l);
	if (!rc) {
		struct loadplace_key key = place_key(l);

		rc = loadplace_finish(l->cli, &key);
	}
	return rc;
}

/* ---- the result ---- */

static void report(struct load *l)
{
	const struct sl_coordinator_report *t = &l->total;
	char count[TEXT_COUNT_BYTES];
	double seconds = (double)watch_ms(&l->watch.watch) / 1000;
	uint64_t dead = t->dead + l->bad;

	if (opt_flag(l->args, "json")) {
		out_printf(&l->cli->out,
			   "{\"read\":%" PRIu64 ",\"written\":%" PRIu64 ",\"dead\":%" PRIu64 ",\"dropped\":%" PRIu64
			   ",\"left\":%" PRIu64 ",\"skipped\":%" PRIu64 ",\"seconds\":%.3f}\n",
			   l->read, t->written, dead, t->dropped, t->returned, l->skipped, seconds);
		return;
	}
	out_printf(&l->cli->out, "%s written to %s in %.1f s\n", text_count(count, t->written, "row"),
		   sl_sink_target(&l->sink), seconds);
	if (t->dropped)
		out_printf(&l->cli->out, "%s dropped\n", text_count(count, t->dropped, "row"));
	if (l->skipped)
		out_printf(&l->cli->out, "%s loaded before\n", text_count(count, l->skipped, "row"));
	if (t->returned && opt_given(l->args, "wal"))
		out_printf(&l->cli->out, "%s left in the log in %s\n", text_count(count, t->returned, "row"),
			   opt_str(l->args, "wal"));
	else if (t->returned)
		out_printf(&l->cli->out, "%s read and not written\n", text_count(count, t->returned, "row"));
}

struct count {
	const struct load *l;
	uint64_t letters;
};

static int count_letter(const struct sl_dlq_letter *letter, void *ctx)
{
	struct count *c = ctx;

	c->letters += strncmp(letter->source, "load:", 5) == 0 && letter->last_failed_ms >= c->l->since_ms &&
		      letter->target && strcmp(letter->target, c->l->target) == 0;
	return 0;
}

/* Of the whole load, also of runs that were cut off and could not tell. */
static uint64_t dead_letters(struct load *l)
{
	struct count c = {.l = l};
	uint64_t own = l->total.dead + l->bad;

	if (!l->since_ms || sl_dlq_list(l->dead, 0, count_letter, &c, NULL) || c.letters < own)
		return own;
	return c.letters;
}

static int result(struct load *l, int rc)
{
	uint64_t dead = dead_letters(l);
	char count[TEXT_COUNT_BYTES];

	if (l->dead) /* nothing was done before these were open */
		report(l);
	if (dead)
		cli_say(l->cli, SL_LOG_ERROR, "%s in %s; 'sluice dlq list' says why",
			text_count(count, dead, "dead letter"), opt_str(l->args, "dead-letters"));
	if (l->total.dropped)
		cli_say(l->cli, SL_LOG_ERROR, "%s dropped: the target was slower than the input (--overflow)",
			text_count(count, l->total.dropped, "row"));
	if (rc != EXIT_INTERRUPTED || !stop_requested()) /* others have this status, too, and were told */
		return !rc && (dead || l->total.dropped) ? EXIT_BAD_DATA : rc;
	if (l->total.returned)
		cli_say(l->cli, SL_LOG_ERROR, "interrupted; run the same command again to continue");
	else
		cli_say(l->cli, SL_LOG_ERROR, "interrupted; what was read is written%s",
			opt_given(l->args, "wal") || l->resume.on ? "; run the same command again to continue"
								  : ", the rest is not");
	return rc;
}

/* ---- options ---- */

static const char *const formats[] = {"csv", "jsonl", NULL};
static const char *const overflows[] = {"block", "drop_oldest", "error", NULL};
static const char *const switches[] = {"on", "off", NULL};
static const char *const bodies[] = {"jsonl", "array", "cloudevents", NULL};

static int has_suffix(const char *path, const char *suffix)
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

static int set_format(struct load *l)
{
	int format = format_of(l, l->inputs[0]);

	for (int i = 0; i < l->n_inputs; i++) {
		int other = format_of(l, l->inputs[i]);

		if (other < 0)
			return cli_usage(l->cli, "say with --format whether %s is csv or jsonl",
					 strcmp(l->inputs[i], "-") ? l->inputs[i] : "standard input");
		if (other != format)
			return cli_usage(l->cli, "the files have different formats; say which with --format");
	}
	l->to.opts.format = format == 0 ? SL_ROWS_CSV : SL_ROWS_JSON;
	return 0;
}

static int set_inputs(struct load *l)
{
	static const char *const standard[] = {"-"};
	int n_standard = 0;

	l->inputs = l->args->n_operands ? l->args->operands : standard;
	l->n_inputs = l->args->n_operands ? l->args->n_operands : 1;
	for (int i = 0; i < l->n_inputs; i++)
		n_standard += strcmp(l->inputs[i], "-") == 0;
	return n_standard > 1 ? cli_usage(l->cli, "FILE: standard input (-) can be read only once") : set_format(l);
}

static int set_list(struct load *l, const char *option, const char ***list, size_t *n)
{
	const char *text = opt_str(l->args, option);
	int rc = text ? loadsink_split(text, list, n) : 0;

	if (rc == SL_ENOMEM)
		return no_memory(l);
	return rc ? cli_usage(l->cli, "--%s: '%s' is not a list of columns like a,b", option, text) : 0;
}

static int set_lists(struct load *l)
{
	int rc = set_list(l, "on-conflict", &l->to.lists[1], &l->to.opts.n_on_conflict);

	rc = rc ? rc : set_list(l, "columns", &l->to.lists[0], &l->to.opts.n_columns);
	l->to.opts.on_conflict = l->to.lists[1];
	l->to.opts.columns = l->to.lists[0];
	return rc;
}

static int check_options(struct load *l)
{
	static const char *const of_csv[] = {"columns", "no-header", "null"};
	const char *multiplier;
	char *end;

	for (size_t i = 0; i < sizeof(of_csv) / sizeof(of_csv[0]); i++)
		if (l->to.opts.format != SL_ROWS_CSV && opt_given(l->args, of_csv[i]))
			return cli_usage(l->cli, "--%s is for CSV", of_csv[i]);
	multiplier = opt_str(l->args, "backoff-multiplier");
	if (multiplier && (!(strtod(multiplier, &end) >= 1) || *end || strtod(multiplier, NULL) > 1000))
		return cli_usage(l->cli, "--backoff-multiplier: '%s' is not a number from 1 to 1000", multiplier);
	if (opt_given(l->args, "columns") && !opt_flag(l->args, "no-header"))
		return cli_usage(l->cli, "--columns is for CSV without a header; add --no-header");
	return 0;
}

static int is_database(const char *url)
{
	return strncmp(url, "postgres", 8) == 0 || strncmp(url, "sqlite:", 7) == 0;
}

/* What is recorded of an input, and under which name. */
static int check_resume(struct load *l)
{
	static const char *const of_records[] = {"again", "load-id"};
	int has_stdin = 0;

	for (int i = 0; i < l->n_inputs; i++)
		has_stdin |= strcmp(l->inputs[i], "-") == 0;
	for (size_t i = 0; i < sizeof(of_records) / sizeof(of_records[0]); i++) {
		if (!opt_given(l->args, of_records[i]))
			continue;
		if (!is_database(l->to.url))
			return cli_usage(l->cli, "--%s is for tables of PostgreSQL and SQLite", of_records[i]);
		if (opt_flag(l->args, "no-resume"))
			return cli_usage(l->cli, "--%s does not go with --no-resume", of_records[i]);
	}
	if (opt_given(l->args, "load-id") && !has_stdin && l->n_inputs > 1)
		return cli_usage(l->cli, "--load-id names one input; load the files one by one");
	if (has_stdin && is_database(l->to.url) && !opt_given(l->args, "load-id") && !opt_flag(l->args, "no-resume"))
		return cli_usage(
			l->cli,
			"standard input needs --load-id=NAME, so that an interrupted load can be resumed; or use "
			"--no-resume");
	return 0;
}

static int set_target(struct load *l)
{
	const struct parsed *a = l->args;
	int rc = set_inputs(l);

	l->to.url = opt_str(a, "to");
	rc = rc ? rc : check_options(l);
	rc = rc ? rc : check_resume(l);
	if (rc)
		return rc;
	l->to.opts.struct_size = sizeof(l->to.opts);
	l->to.opts.env = &l->cli->env;
	l->to.opts.table = opt_str(a, "table");
	l->to.opts.null_text = opt_str(a, "null");
	l->to.opts.body = (enum sl_http_body)opt_num(a, "body");
	l->to.opts.header_file = opt_str(a, "header-file");
	l->to.opts.token_file = opt_str(a, "token-file");
	l->to.opts.timeout_ms = opt_num(a, "timeout");
	l->to.opts.zstd_level = (int32_t)opt_num(a, "zstd");
	l->to.opts.rotate_bytes = opt_num(a, "rotate-bytes");
	if (loadsink_take_token(&l->to, l->to.url))
		return no_memory(l);
	if (strncmp(l->to.url, "file:", 5) == 0) /* what goes in comes out */
		l->to.opts.file_format = l->to.opts.format;
	return set_lists(l);
}

/* A password between ':' and '@' of the authority, which others can read in the list of processes. */
static void warn_of_password(struct load *l)
{
	const char *host = strstr(l->to.url, "://");
	const char *at = host ? strchr(host + 3, '@') : NULL;
	const char *colon = host ? strchr(host + 3, ':') : NULL;

	if (at && colon && colon < at && strncmp(l->to.url, "exec:", 5))
		cli_say(l->cli, SL_LOG_WARN,
			"the password in --to can be seen by every user of this machine; use PGPASSWORD, a password "
			"file, --token-file or --header-file");
}

static int run(struct cli *cli, const struct parsed *args)
{
	struct load l = {.cli = cli, .args = args, .in = {.fd = -1}, .place = {.fd = -1}};
	int rc = set_target(&l);

	if (!rc)
		warn_of_password(&l);
	rc = rc ? rc : loadwatch_start(&l.watch, cli, size_of_all(&l));
	if (!rc) {
		rc = load_inputs(&l);
		watch_stop(&l.watch.watch);
		rc = result(&l, rc);
	}
	sl_dlq_close(l.dead);
	sl_sink_close(&l.sink);
	loadsink_fini(&l.to);
	return rc;
}

static const struct opt opts[] = {
	{.name = "to",
	 .letter = 't',
	 .kind = OPT_STRING,
	 .arg = "URL",
	 .required = 1,
	 .help = "Where the rows go: postgres://…, sqlite:FILE, https://…, file:PATH, exec:COMMAND or null:"},
	{.name = "table",
	 .kind = OPT_STRING,
	 .arg = "T",
	 .help = "The table, of a database; on PostgreSQL also SCHEMA.TABLE"},
	{.name = "format",
	 .letter = 'f',
	 .kind = OPT_ENUM,
	 .arg = "WHAT",
	 .choices = formats,
	 .help = "What the files are, when their names do not end in .csv or .jsonl"},
	{.name = "on-conflict",
	 .kind = OPT_STRING,
	 .arg = "COLS",
	 .help = "Columns of a unique key, as a,b: rows with a key that is there replace what it has"},
	{.name = "create",
	 .kind = OPT_FLAG,
	 .help = "Make the table unless it is there, with types guessed from the first rows"},
	{.name = "workers",
	 .letter = 'w',
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "4",
	 .min = 1,
	 .max = 256,
	 .help = "Batches written at a time"},
	{.name = "batch-size",
	 .letter = 'b',
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "5000",
	 .min = 1,
	 .max = 1000000,
	 .help = "Rows of a batch at most"},
	{.name = "flush-interval",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "250ms",
	 .min = 0,
	 .max = 3600000,
	 .help = "A batch that is not full is written when its first row is so old, or at once when nothing else is"},
	{.name = "overflow",
	 .kind = OPT_ENUM,
	 .arg = "WHAT",
	 .def = "block",
	 .choices = overflows,
	 .help = "When the target is slower than the input: read slower, drop what waits longest, or fail"},
	{.name = "capacity",
	 .kind = OPT_INT,
	 .arg = "N",
	 .min = 1,
	 .max = 100000000,
	 .help = "Rows that wait in memory at most; two batches per worker unless given"},
	{.name = "high-watermark",
	 .kind = OPT_INT,
	 .arg = "N",
	 .min = 1,
	 .max = 100000000,
	 .help = "Waiting rows from which on backpressure is logged (-v); 80 % of the capacity unless given"},
	{.name = "low-watermark",
	 .kind = OPT_INT,
	 .arg = "N",
	 .min = 0,
	 .max = 100000000,
	 .help = "Waiting rows at which backpressure ends; 50 % of the capacity unless given"},
	{.name = "max-attempts",
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "5",
	 .min = 1,
	 .max = 1000000,
	 .help = "Attempts to write a row that fails while others are written, before it is a dead letter"},
	{.name = "initial-backoff",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .min = 1,
	 .max = 86400000,
	 .help = "Delay before the second attempt; 50ms unless given"},
	{.name = "max-backoff",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .min = 1,
	 .max = 86400000,
	 .help = "Longest delay between attempts; 2s, or the initial backoff, unless given"},
	{.name = "backoff-multiplier",
	 .kind = OPT_STRING,
	 .arg = "X",
	 .help = "Factor by which the delay grows with each attempt; 2 unless given"},
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
	 .help = "A row that has failed for this long is a dead letter, and a target that took no row for this long "
		 "ends the load (status 69 or 78); 0 waits forever"},
	{.name = "wal",
	 .kind = OPT_STRING,
	 .arg = "DIR",
	 .help = "Keep rows in a log in DIR until they are written, so that a target without records resumes too"},
	{.name = "again",
	 .kind = OPT_FLAG,
	 .help = "Load the files again from their beginning, although the table has them"},
	{.name = "load-id",
	 .kind = OPT_STRING,
	 .arg = "NAME",
	 .help = "Record the load under this name: standard input has none, and a file's is its path"},
	{.name = "no-resume",
	 .kind = OPT_FLAG,
	 .help = "Keep no record in the database: if the load is interrupted, running it again repeats rows"},
	{.name = "rate",
	 .kind = OPT_INT,
	 .arg = "N",
	 .min = 1,
	 .max = 1000000000,
	 .help = "Rows in any second at most"},
	{.name = "dead-letters",
	 .kind = OPT_STRING,
	 .arg = "DIR",
	 .def = "./sluice-dead-letters",
	 .help = "Where rows go that cannot be written"},
	{.name = "columns", .kind = OPT_STRING, .arg = "COLS", .help = "The columns of CSV without a header, as a,b"},
	{.name = "no-header", .kind = OPT_FLAG, .help = "The first record of CSV is a row"},
	{.name = "null",
	 .kind = OPT_STRING,
	 .arg = "TEXT",
	 .help = "An unquoted CSV field with this text is NULL; the empty text unless given"},
	{.name = "max-record",
	 .kind = OPT_SIZE,
	 .arg = "SIZE",
	 .def = "16MiB",
	 .min = 1024,
	 .max = 67108864,
	 .help = "A longer record is a dead letter"},
	{.name = "body",
	 .kind = OPT_ENUM,
	 .arg = "WHAT",
	 .choices = bodies,
	 .help = "Of HTTP requests: JSON lines, a JSON array, or a batch of CloudEvents"},
	{.name = "header-file",
	 .kind = OPT_STRING,
	 .arg = "FILE",
	 .help = "Headers of HTTP requests, one 'Name: value' a line; # begins a comment"},
	{.name = "token-file",
	 .kind = OPT_STRING,
	 .arg = "FILE",
	 .help = "Its first line is sent as a bearer token to an HTTP target"},
	{.name = "timeout",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .min = 1,
	 .max = 86400000,
	 .help = "An HTTP request, or the program of a batch, that takes longer has failed; 30s unless given"},
	{.name = "zstd", .kind = OPT_INT, .arg = "LEVEL", .min = 1, .max = 19, .help = "Compress a file target"},
	{.name = "rotate-bytes",
	 .kind = OPT_SIZE,
	 .arg = "SIZE",
	 .min = 1,
	 .max = (int64_t)1 << 50,
	 .help = "Begin another file past this size, of a file target"},
	{.name = "json", .letter = 'j', .kind = OPT_FLAG, .help = "Print the result as JSON"},
	{.name = NULL},
};

const struct command cmd_load = {
	.name = "load",
	.operands = "FILE…",
	.optional = 1,
	.summary = "load CSV or JSON lines into a database, an endpoint or a file",
	.opts = opts,
	.description =
		"Every record of the files, or of standard input without one or for -, becomes a row of the target. "
		"CSV is "
		"as in RFC 4180 and begins with a header that names the columns; JSON lines are objects whose members "
		"are "
		"the columns. A bad record, and a row that the target refuses, never stops the load: it goes to the "
		"dead "
		"letters with its line and the reason, and the status is 65 at the end; 'sluice dlq redrive' writes it "
		"to "
		"the same target again. A target that refuses the first rows ends the load with status 69 "
		"(unavailable) or 78 (not set up as needed); one that fails later is waited for, up to "
		"--give-up-after. An input from a pipe that ends in the middle of a line was cut off: the rows before "
		"that line are loaded, and the status is 65. Rows that --overflow drops are counted, and the status is "
		"65. SIGINT or SIGTERM "
		"ends the reading and writes what was read (status 75); a second one ends the command at once. If a "
		"load "
		"into PostgreSQL or SQLite is interrupted, however that happens, run the same command again: it "
		"resumes where "
		"it stopped, and each row is written exactly once. The database records which part of the input it "
		"has, in "
		"the tables sluice_loads and sluice_load_ranges next to the target. A file that was loaded is not "
		"loaded "
		"again without --again; if it has grown, only the new rows are loaded. Standard input needs --load-id. "
		"With "
		"--on-conflict, the last row of the input wins for every key. For other targets, and for rows that "
		"were read "
		"and not yet written, --wal keeps what is under way. Passwords are best kept out of the URL: "
		"PGPASSWORD, "
		"PGPASSFILE, SLUICE_HTTP_TOKEN, --token-file and --header-file are read.",
	.example =
		"sluice load bars.csv --to sqlite:market.db --table bars --create\n"
		"zcat trades.jsonl.gz | sluice load - --format jsonl --to postgres://localhost/market --table trades "
		"--on-conflict id --load-id trades-2024",
	.run = run,
};
