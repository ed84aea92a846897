/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice load: files of records into a database, an HTTP endpoint, a file or a program.
 *
 *   files ─▶ records ─▶ coordinator (and with --wal a log) ─▶ sink
 *               └ bad records ─▶ dead letters ◀─ rows that the target refuses
 *
 * One coordinator per file, so that a dead letter names its file and line. What must stay true:
 *  1. Every record of the input is accepted by the coordinator or in the dead letters before the place behind it is
 *     noted (loadplace.h); so a run that is cut off is taken up without a loss.
 *  2. A log is removed only when nothing in it is pending, and with it the place: the next run begins anew.
 *  3. After the first signal nothing more is read, and what was read is written; the second ends the command at once.
 */
#include "commands.h"
#include "loadplace.h"
#include "loadsink.h"
#include "progress.h"
#include "stop.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sluice/coordinator.h>
#include <sluice/records.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 256, SAMPLE = 1000, LOOK_EVERY_MS = 100 };

struct load {
	struct cli *cli;
	const struct parsed *args;
	struct loadsink to;
	char target[LOADSINK_TEXT_BYTES];
	sl_sink sink;
	sl_dlq *dead;
	sl_coordinator *c;
	struct loadplace place; /* of --wal */
	struct progress progress;

	/* the file */
	const char *name; /* for people: "standard input" */
	char source[200]; /* of letters: "load:bars.csv" */
	int fd;
	uint64_t bytes;      /* of all files, when known; else 0 */
	uint64_t done_bytes; /* of the files before this one */
	sl_records *records;
	uint64_t offset; /* behind the last record taken */

	/* all in all */
	uint64_t rows, bad;
	struct sl_coordinator_report total;
	int64_t started_ms;
	int exit_code; /* of the first thing that went wrong beyond dead letters */
};

static int64_t mono_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* ---- input ---- */

static int64_t read_input(void *buf, size_t n, struct sl_err *err, void *ctx)
{
	struct load *l = ctx;

	for (;;) {
		struct pollfd p[2] = {{.fd = l->fd, .events = POLLIN}, {.fd = stop_fd(), .events = POLLIN}};
		ssize_t got;

		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return sl_err_set_errno(err, errno, "%s", l->name);
		if (stop_requested())
			return sl_err_set(err, SL_ECANCELLED, "interrupted");
		if (!p[0].revents)
			continue;
		got = read(l->fd, buf, n);
		if (got >= 0)
			return got;
		if (errno != EINTR && errno != EAGAIN)
			return sl_err_set_errno(err, errno, "%s", l->name);
	}
}

static int open_input(struct load *l, const char *path)
{
	struct sl_err err = SL_ERR_INIT;
	struct stat st;
	int is_stdin = strcmp(path, "-") == 0;

	l->name = is_stdin ? "standard input" : path;
	snprintf(l->source, sizeof(l->source), "load:%s", is_stdin ? "-" : path);
	l->fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	if (l->fd < 0)
		sl_err_set_errno(&err, errno, "%s", path);
	else if (fstat(l->fd, &st) == 0 && S_ISDIR(st.st_mode))
		sl_err_set(&err, SL_EINVAL, "%s is a folder; name its files", path);
	return err.code ? cli_fail(l->cli, &err, path) : 0;
}

static void close_input(struct load *l)
{
	sl_records_free(l->records);
	l->records = NULL;
	if (l->fd > STDIN_FILENO)
		close(l->fd);
	l->fd = -1;
}

static const char *const formats[] = {"csv", "jsonl", NULL};

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

static int start_records(struct load *l)
{
	const char *delimiter = opt_str(l->args, "delimiter");
	struct sl_records_opts opts = {SL_RECORDS_OPTS_INIT,
				       .env = &l->cli->env,
				       .format = l->to.opts.format,
				       .header = opt_flag(l->args, "no-header") ? SL_OFF : SL_ON,
				       .max_record_bytes = opt_num(l->args, "max-record"),
				       .delimiter = delimiter ? delimiter[0] : ',',
				       .null_text = opt_str(l->args, "null")};
	struct sl_err err = SL_ERR_INIT;

	return sl_records_new(&l->records, read_input, l, &opts, &err) ? cli_fail(l->cli, &err, l->name) : 0;
}

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

/* CSV: the header names the columns; the first file's, and the others must have the same. */
static int take_header(struct load *l)
{
	struct sl_err err = SL_ERR_INIT;
	const char *const *names;
	size_t n;

	if (l->to.opts.format != SL_ROWS_CSV || opt_flag(l->args, "no-header"))
		return 0;
	if (sl_records_columns(l->records, &names, &n, &err))
		return stop_requested() ? cli_interrupted(l->cli) : cli_fail(l->cli, &err, l->name);
	if (l->to.opts.columns && !same_columns(l, names, n))
		return cli_fail(
			l->cli,
			(sl_err_set(&err, SL_EDATA, "%s: its header is another than that of the first file", l->name),
			 &err),
			l->name);
	if (l->to.opts.columns)
		return 0;
	l->to.lists[0] = loadsink_copy(names, n);
	if (!l->to.lists[0]) {
		cli_say(l->cli, SL_LOG_ERROR, "out of memory");
		return EXIT_INTERNAL;
	}
	l->to.opts.columns = l->to.lists[0];
	l->to.opts.n_columns = n;
	return 0;
}

static int create_table(struct load *l)
{
	struct sl_err err = SL_ERR_INIT;
	const struct sl_column *columns;
	size_t n;

	if (!opt_flag(l->args, "create"))
		return 0;
	if (sl_records_infer(l->records, SAMPLE, &columns, &n, &err))
		return stop_requested() ? cli_interrupted(l->cli) : cli_fail(l->cli, &err, l->name);
	if (sl_sink_create_table(l->to.url, &l->to.opts, columns, n, &err))
		return cli_fail(l->cli, &err, "--create");
	return 0;
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
	struct sl_dlq_opts dead = {SL_DLQ_OPTS_INIT, .env = &l->cli->env};
	const char *dir = opt_str(l->args, "dead-letters");
	int rc;

	if (l->sink.ops)
		return 0;
	if (sl_sink_open(&l->sink, l->to.url, &l->to.opts, &err))
		return cli_fail(l->cli, &err, "--to");
	if (loadsink_write(&l->to, &l->sink, l->target))
		snprintf(l->target, sizeof(l->target), "%s", sl_sink_target(&l->sink));
	rc = check_target(l);
	if (rc)
		return rc;
	if (sl_dlq_open(&l->dead, dir, &dead, &err))
		return cli_fail(l->cli, &err, dir);
	return 0;
}

/* ---- rows ---- */

static void show_progress(struct load *l)
{
	struct sl_coordinator_health h = {.struct_size = sizeof(h)};
	char text[256];
	int64_t ms = mono_ms() - l->started_ms;
	uint64_t written;

	if (!progress_due(&l->progress) || sl_coordinator_get_health(l->c, &h))
		return;
	written = l->total.written + h.written;
	snprintf(text, sizeof(text),
		 "%" PRIu64 " rows, %.0f/s, %" PRIu64 " queued, %" PRIu64 " retrying, %" PRIu64 " dead%s%.100s",
		 written, ms > 0 ? (double)written * 1000 / (double)ms : 0.0, h.queue_size, h.retrying,
		 l->total.dead + h.dead_letters + l->bad, h.breaker != SL_BREAKER_CLOSED ? "; waiting: " : "",
		 h.breaker != SL_BREAKER_CLOSED ? h.last_error.msg : "");
	progress_show(&l->progress, text, l->bytes ? l->done_bytes + l->offset : 0, l->bytes);
}

/* A record that is none. Durable before reading goes on. */
static int put_bad(struct load *l, const struct sl_record *r)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_dlq_letter letter = {.source = l->source,
				       .position = r->line,
				       .error = r->bad,
				       .code = SL_EDATA,
				       .error_class = SL_CLASS_POISON,
				       .attempts = 0,
				       .target = l->target,
				       .item = r->data,
				       .item_len = r->len};

	l->bad++;
	return sl_dlq_put(l->dead, &letter, NULL, &err) ? cli_fail(l->cli, &err, opt_str(l->args, "dead-letters")) : 0;
}

/* Hand n rows over, showing progress while there is no room. */
static int submit(struct load *l, const struct sl_item *items, size_t n)
{
	struct sl_err err = SL_ERR_INIT;
	size_t done = 0, now;

	while (done < n) {
		int rc = sl_coordinator_submit_many(l->c, items + done, n - done, LOOK_EVERY_MS, &now);

		done += now;
		show_progress(l);
		if (rc && rc != SL_ETIMEDOUT) {
			sl_err_set(&err, rc, "%s: a row was not accepted: %s", l->name, sl_err_text(rc));
			return cli_fail(l->cli, &err, NULL);
		}
	}
	l->rows += n;
	return 0;
}

static int take_chunk(struct load *l, const struct sl_record *records, size_t n)
{
	struct sl_item items[CHUNK];
	size_t good = 0;
	int rc = 0;

	for (size_t i = 0; i < n; i++) {
		const struct sl_record *r = &records[i];

		if (!r->bad)
			items[good++] = (struct sl_item){.data = r->data, .len = r->len, .position = r->line};
		else if ((rc = put_bad(l, r)))
			return rc;
	}
	rc = submit(l, items, good);
	if (rc)
		return rc;
	l->offset = records[n - 1].end;
	return loadplace_note(&l->place, l->cli, l->offset);
}

/* Until the input ends, a signal comes or something fails. */
static int read_rows(struct load *l)
{
	struct sl_record records[CHUNK];
	struct sl_err err = SL_ERR_INIT;
	size_t n;

	for (;;) {
		int rc = stop_requested() ? SL_ECANCELLED : sl_records_next(l->records, records, CHUNK, &n, &err);

		if (rc)
			return stop_requested() ? EXIT_INTERRUPTED : cli_fail(l->cli, &err, l->name);
		if (n == 0)
			return 0;
		rc = take_chunk(l, records, n);
		if (rc)
			return rc;
	}
}

/* ---- one file ---- */

static const char *const overflows[] = {"block", "drop_oldest", "error", NULL};

static int start_coordinator(struct load *l)
{
	const struct parsed *a = l->args;
	int64_t interval = opt_num(a, "flush-interval");
	struct sl_coordinator_opts opts = {SL_COORDINATOR_OPTS_INIT,
					   .env = &l->cli->env,
					   .name = l->source,
					   .target = l->target,
					   .capacity = opt_num(a, "batch-size") * 2 * opt_num(a, "workers"),
					   .workers = (int32_t)opt_num(a, "workers"),
					   .batch_size = (int32_t)opt_num(a, "batch-size"),
					   .flush_interval_ms = interval ? interval : SL_NONE,
					   .overflow_strategy = (enum sl_overflow)opt_num(a, "overflow"),
					   .rate_items = (double)opt_num(a, "rate"),
					   .dead_letters = l->dead,
					   .wal = l->place.wal};
	struct sl_err err = SL_ERR_INIT;

	return sl_coordinator_new(&l->c, &l->sink, &opts, &err) ? cli_fail(l->cli, &err, NULL) : 0;
}

static void add_report(struct load *l, const struct sl_coordinator_report *r)
{
	l->total.accepted += r->accepted;
	l->total.written += r->written;
	l->total.dead += r->dead;
	l->total.dropped += r->dropped;
	l->total.returned += r->returned;
	l->total.unknown += r->unknown;
}

/* Everything that was taken is to end as written or dead, however long that takes. */
static int drain(struct load *l)
{
	struct sl_coordinator_report report = {.struct_size = sizeof(report)};
	struct sl_err err = SL_ERR_INIT;
	int rc;

	while (sl_coordinator_flush(l->c, LOOK_EVERY_MS) == SL_ETIMEDOUT)
		show_progress(l);
	rc = sl_coordinator_stop(l->c, SL_UNLIMITED, &report, &err);
	add_report(l, &report);
	if (!rc)
		rc = sl_coordinator_free(l->c);
	l->c = NULL;
	return rc ? cli_fail(l->cli, &err, NULL) : 0;
}

static int skip_done(struct load *l)
{
	struct sl_err err = SL_ERR_INIT;

	l->offset = l->place.offset;
	if (!l->offset)
		return 0;
	cli_say(l->cli, SL_LOG_INFO, "%s: going on at byte %" PRIu64 " of an earlier run", l->name, l->offset);
	if (sl_records_skip(l->records, l->offset, &err) == 0)
		return 0;
	return stop_requested() ? cli_interrupted(l->cli) : cli_fail(l->cli, &err, l->name);
}

static int load_rows(struct load *l)
{
	int rc = skip_done(l), drained;

	rc = rc ? rc : start_coordinator(l);
	if (rc)
		return rc;
	rc = read_rows(l);
	drained = drain(l);
	if (rc == 0 && drained == 0)
		rc = loadplace_finish(&l->place, l->cli);
	return rc ? rc : drained;
}

static int prepare(struct load *l, const char *path)
{
	int rc = open_input(l, path);

	rc = rc ? rc : start_records(l);
	rc = rc ? rc : take_header(l);
	rc = rc ? rc : create_table(l);
	rc = rc ? rc : open_target(l);
	return rc ? rc : loadplace_open(&l->place, l->cli, opt_str(l->args, "wal"), l->target, path);
}

static int load_file(struct load *l, const char *path)
{
	struct stat st;
	int rc = prepare(l, path);

	rc = rc ? rc : load_rows(l);
	loadplace_close(&l->place, l->cli);
	if (!rc && l->bytes && fstat(l->fd, &st) == 0)
		l->done_bytes += (uint64_t)st.st_size;
	l->offset = 0;
	close_input(l);
	return rc;
}

/* ---- the command ---- */

static void report(struct load *l)
{
	const struct sl_coordinator_report *t = &l->total;
	char count[TEXT_COUNT_BYTES];
	double seconds = (double)(mono_ms() - l->started_ms) / 1000;
	uint64_t dead = t->dead + l->bad;

	if (opt_flag(l->args, "json")) {
		out_printf(&l->cli->out,
			   "{\"read\":%" PRIu64 ",\"written\":%" PRIu64 ",\"dead\":%" PRIu64 ",\"dropped\":%" PRIu64
			   ",\"seconds\":%.3f}\n",
			   l->rows + l->bad, t->written, dead, t->dropped, seconds);
		return;
	}
	out_printf(&l->cli->out, "%s written to %s in %.1f s\n", text_count(count, t->written, "row"),
		   l->sink.ops ? sl_sink_target(&l->sink) : "", seconds);
	if (t->dropped)
		out_printf(&l->cli->out, "%s dropped\n", text_count(count, t->dropped, "row"));
	if (dead)
		cli_say(l->cli, SL_LOG_ERROR, "%s in %s; 'sluice dlq list' says why",
			text_count(count, dead, "dead letter"), opt_str(l->args, "dead-letters"));
}

/* The size of all files together; 0 when one is not a file. */
static uint64_t size_of_all(const struct parsed *args)
{
	struct stat st;
	uint64_t bytes = 0;

	for (int i = 0; i < args->n_operands; i++) {
		int is_stdin = strcmp(args->operands[i], "-") == 0;

		if ((is_stdin ? fstat(STDIN_FILENO, &st) : stat(args->operands[i], &st)) || !S_ISREG(st.st_mode))
			return 0;
		bytes += (uint64_t)st.st_size;
	}
	return bytes;
}

static int load_all(struct load *l)
{
	static const char *const standard[] = {"-"};
	const char *const *paths = l->args->n_operands ? l->args->operands : standard;
	int n = l->args->n_operands ? l->args->n_operands : 1, rc = 0;

	l->bytes = size_of_all(l->args);
	l->started_ms = mono_ms();
	progress_start(&l->progress, l->cli, 0);
	for (int i = 0; i < n && !rc; i++)
		rc = load_file(l, paths[i]);
	progress_end(&l->progress);
	return rc;
}

static int set_format(struct load *l)
{
	const char *first = l->args->n_operands ? l->args->operands[0] : "-";
	int format = format_of(l, first);

	if (format < 0)
		return cli_usage(l->cli, "say with --format whether %s is csv or jsonl",
				 strcmp(first, "-") ? first : "standard input");
	for (int i = 1; i < l->args->n_operands; i++)
		if (format_of(l, l->args->operands[i]) != format)
			return cli_usage(l->cli, "the files have different formats; say which with --format");
	l->to.opts.format = format == 0 ? SL_ROWS_CSV : SL_ROWS_JSON;
	return 0;
}

static int set_lists(struct load *l)
{
	const char *key = opt_str(l->args, "on-conflict"), *columns = opt_str(l->args, "columns");

	if (key && !(l->to.lists[1] = loadsink_split(key, &l->to.opts.n_on_conflict)))
		return cli_usage(l->cli, "--on-conflict: '%s' is not a list of columns like a,b", key);
	if (columns && !(l->to.lists[0] = loadsink_split(columns, &l->to.opts.n_columns)))
		return cli_usage(l->cli, "--columns: '%s' is not a list of columns like a,b", columns);
	l->to.opts.on_conflict = l->to.lists[1];
	l->to.opts.columns = l->to.lists[0];
	return 0;
}

static const char *const bodies[] = {"jsonl", "array", "cloudevents", NULL};

static int set_target(struct load *l)
{
	const struct parsed *a = l->args;
	const char *delimiter = opt_str(a, "delimiter");
	int rc = set_format(l);

	if (rc)
		return rc;
	if (delimiter && (strlen(delimiter) != 1 || strchr("\"\r\n", delimiter[0])))
		return cli_usage(l->cli, "--delimiter: give one character that is neither a quote nor a line end");
	l->to.url = opt_str(a, "to");
	l->to.opts.struct_size = sizeof(l->to.opts);
	l->to.opts.env = &l->cli->env;
	l->to.opts.table = opt_str(a, "table");
	l->to.opts.null_text = opt_str(a, "null");
	l->to.opts.body = (enum sl_http_body)opt_num(a, "body");
	l->to.opts.token_file = opt_str(a, "token-file");
	l->to.opts.file_format = l->to.opts.format;
	l->to.opts.zstd_level = (int32_t)opt_num(a, "zstd");
	l->to.opts.rotate_bytes = opt_num(a, "rotate-bytes");
	if (strncmp(l->to.url, "file:", 5))
		l->to.opts.file_format = SL_ROWS_JSON;
	return set_lists(l);
}

static int run(struct cli *cli, const struct parsed *args)
{
	struct load l = {.cli = cli, .args = args, .fd = -1};
	int rc = set_target(&l);

	rc = rc ? rc : load_all(&l);
	if (l.sink.ops && (rc == 0 || rc == EXIT_INTERRUPTED))
		report(&l);
	if (rc == EXIT_INTERRUPTED)
		cli_say(cli, SL_LOG_ERROR, "interrupted; what had been read is written, the rest is not");
	if (rc == 0 && l.total.dead + l.bad)
		rc = EXIT_BAD_DATA;
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
	{.name = "wal",
	 .kind = OPT_STRING,
	 .arg = "DIR",
	 .help = "Keep rows in a log in DIR until they are written, so that the same command goes on after a crash"},
	{.name = "rate", .kind = OPT_INT, .arg = "N", .min = 1, .max = 1000000000, .help = "Rows a second at most"},
	{.name = "dead-letters",
	 .kind = OPT_STRING,
	 .arg = "DIR",
	 .def = "./sluice-dead-letters",
	 .help = "Where rows go that cannot be written"},
	{.name = "columns", .kind = OPT_STRING, .arg = "COLS", .help = "The columns of CSV without a header, as a,b"},
	{.name = "no-header", .kind = OPT_FLAG, .help = "The first record of CSV is a row"},
	{.name = "delimiter",
	 .kind = OPT_STRING,
	 .arg = "C",
	 .help = "What stands between CSV fields; a comma unless given"},
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
	{.name = "token-file",
	 .kind = OPT_STRING,
	 .arg = "FILE",
	 .help = "Its first line is sent as a bearer token to an HTTP target"},
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
		"the same target again. A target that is away is waited for once the load has begun. SIGINT or SIGTERM "
		"ends the reading and writes what was read (status 75); a second one ends the command at once. With "
		"--wal "
		"a run that was ended, however, goes on where it was when the same command is given again: no row is "
		"lost, "
		"and with --on-conflict none is there twice. Passwords are best kept out of the URL: PGPASSWORD, "
		"PGPASSFILE and --token-file are read.",
	.example =
		"sluice load bars.csv --to sqlite:market.db --table bars --create\n"
		"zcat trades.jsonl.gz | sluice load - --format jsonl --to postgres://localhost/market --table trades "
		"--on-conflict id --wal ./wal",
	.run = run,
};
