/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice ship: options for sl_ship (<sluice/ship.h>), signals, progress and the result. SIGINT and SIGTERM stop it,
 * SIGHUP opens all files anew.
 */
#include "base/time.h"
#include "commands.h"
#include "progress.h"
#include "stop.h"
#include "text.h"
#include "walfile.h"

#include <inttypes.h>
#include <signal.h>
#include <sluice/ship.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

struct ship {
	struct cli *cli;
	const struct parsed *args;
	char dir[PATH_MAX];
	const char **columns, **on_conflict;
	int hangup; /* a signalfd; 0: none */
	struct progress progress;
	uint64_t shown; /* lines delivered when progress was last shown */
};

static void on_ship_progress(sl_ship *ship, void *ctx)
{
	struct ship *s = ctx;
	struct sl_ship_stats stats = {.struct_size = sizeof(stats)};
	char text[256], count[TEXT_COUNT_BYTES];

	if (!progress_due(&s->progress) || sl_ship_get_stats(ship, &stats, NULL))
		return;
	if (stats.delivered == s->shown && !stats.trouble.code)
		return;
	s->shown = stats.delivered;
	(void)snprintf(text, sizeof(text), "%s delivered, %" PRIu64 " waiting%s%.120s",
		       text_count(count, stats.delivered, "line"), stats.pending, stats.trouble.code ? "; " : "",
		       stats.trouble.code ? stats.trouble.msg : "");
	progress_show(&s->progress, text, 0, 0);
}

/* ---- options ---- */

static int set_opts(struct ship *s, struct sl_ship_opts *o)
{
	const struct parsed *args = s->args;
	const char *home = getenv("HOME"), *dir = opt_str(args, "wal"), *token = getenv("SLUICE_HTTP_TOKEN");
	int64_t flush_timeout_ms = opt_num(args, "flush-timeout");
	int rc;

	/* The folder of the log, which every run of the same pipeline must share. */
	if (dir == NULL && !(home != NULL && *home))
		return cli_usage(s->cli, "HOME is not set; give --wal=DIR");
	if (snprintf(s->dir, sizeof(s->dir), "%s%s", dir != NULL ? dir : home, dir != NULL ? "" : "/.sluice/ship") >=
	    PATH_MAX)
		return cli_usage(s->cli, "--wal: the path is too long");
	rc = opts_columns(s->cli, args, "columns", &s->columns, &o->n_columns);
	if (rc == 0 && opt_given(args, "on-conflict") && *opt_str(args, "on-conflict"))
		rc = opts_columns(s->cli, args, "on-conflict", &s->on_conflict, &o->n_on_conflict);
	if (rc != 0)
		return rc;
	o->env = &s->cli->env;
	o->follow = opt_flag(args, "follow") ? SL_ON : SL_OFF;
	o->input = (enum sl_ship_input)opt_num(args, "input");
	o->wal_dir = s->dir;
	o->stream = opt_str(args, "stream");
	o->key_file = opt_str(args, "key-file");
	o->max_pending_bytes = opt_num(args, "max-pending");
	o->retarget = opt_flag(args, "retarget") ? SL_ON : SL_OFF;
	o->to = opt_str(args, "to");
	o->columns = s->columns;
	o->table = opt_given(args, "table") ? opt_str(args, "table") : NULL;
	o->create = opt_flag(args, "create") ? SL_ON : SL_OFF;
	o->on_conflict = s->on_conflict;
	o->upsert = *opt_str(args, "on-conflict") ? SL_DEFAULT : SL_OFF;
	o->as_rows = opt_given(args, "body") ? SL_ON : SL_OFF;
	o->body = (enum sl_http_body)opt_num(args, "body");
	o->token_file = opt_str(args, "token-file");
	o->token = token != NULL && *token ? token : NULL;
	o->ca_file = opt_str(args, "ca-file");
	o->flush_timeout_ms = flush_timeout_ms ? flush_timeout_ms : SL_NONE;
	o->give_up_after_ms = opt_num(args, "give-up-after");
	o->stop_fd = stop_fd();
	o->reopen_fd = s->hangup;
	o->on_progress = on_ship_progress;
	o->ctx = s;
	return 0;
}

/* ---- the run ---- */

static void report(struct ship *s, sl_ship *ship, const struct sl_ship_stats *stats, double seconds)
{
	char count[TEXT_COUNT_BYTES];

	if (opt_flag(s->args, "json"))
		out_printf(&s->cli->out,
			   "{\"read\":%" PRIu64 ",\"delivered\":%" PRIu64 ",\"left\":%" PRIu64 ",\"refused\":%" PRIu64
			   ",\"cut\":%" PRIu64 ",\"stream\":\"%s\",\"seconds\":%.3f}\n",
			   stats->read, stats->delivered, stats->pending, stats->refused, stats->cut,
			   sl_ship_stream(ship), seconds);
	else
		out_printf(&s->cli->out, "%s delivered to %s in %.1f s\n", text_count(count, stats->delivered, "line"),
			   sl_ship_target(ship), seconds);
}

static int run_ship(struct ship *s, sl_ship *ship, int64_t started_ms)
{
	struct sl_ship_stats stats = {.struct_size = sizeof(stats)};
	struct sl_err err = SL_ERR_INIT, why = SL_ERR_INIT;
	const char *stream = sl_ship_stream(ship);
	char count[TEXT_COUNT_BYTES];
	int rc;

	progress_start(&s->progress, s->cli, false);
	rc = sl_ship_run(ship, &err);
	progress_end(&s->progress);
	if (rc != 0 && rc != SL_ECANCELLED)
		(void)cli_fail(s->cli, &err, NULL);
	if (sl_ship_get_stats(ship, &stats, &why)) {
		if (rc != 0)
			return sl_err_exit_code(rc); /* reported already */
		return cli_fail(s->cli, &why, s->dir);
	}
	/* The counts also after a failure: what is delivered stays delivered. */
	report(s, ship, &stats, (double)(sl__clock_ms() - started_ms) / 1000);
	/* The target was given up: SL_EPENDING says how much is left itself. */
	if (stats.pending && (rc == SL_ECONFIG || rc == SL_EUNAVAIL))
		cli_say(s->cli, SL_LOG_ERROR, "%s left in %s/%s.wal for the next run",
			text_count(count, stats.pending, "line"), s->dir, stream);
	if (stats.refused)
		cli_say(s->cli, SL_LOG_ERROR, "%s refused; 'sluice dlq list %s/%s.dead' shows why",
			text_count(count, stats.refused, "line"), s->dir, stream);
	if (rc == SL_ECANCELLED)
		return cli_interrupted(s->cli);
	if (rc != 0)
		return sl_err_exit_code(rc);
	return stats.refused ? EXIT_BAD_DATA : EXIT_OK;
}

static int ship_run(struct cli *cli, const struct parsed *args)
{
	static const char *const input[] = {"-"};
	struct ship s = {.cli = cli, .args = args};
	struct sl_ship_opts opts = {SL_SHIP_OPTS_INIT, .paths = args->n_operands ? args->operands : input,
				    .n_paths = args->n_operands ? (size_t)args->n_operands : 1};
	int64_t started_ms = sl__clock_ms();
	struct sl_err err = SL_ERR_INIT;
	sl_ship *ship = NULL;
	sigset_t set;
	int code, closed;

	/* A hangup that the parent ignores (nohup) stays ignored. Before any thread is started, so that none takes
	 * it. */
	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	if (pthread_sigmask(SIG_BLOCK, &set, NULL) == 0)
		s.hangup = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	cli->component = "ship";
	code = set_opts(&s, &opts);
	if (!code) {
		opts_warn_of_password(cli, args, "to", "PGPASSWORD, a password file or --token-file");
		code = sl_ship_open(&ship, &opts, &err) ? opts_fail(cli, args, &err) : run_ship(&s, ship, started_ms);
	}
	closed = sl_ship_close(ship, &err) ? cli_fail(cli, &err, s.dir) : 0;
	free(s.columns);
	free(s.on_conflict);
	if (s.hangup > 0)
		(void)close(s.hangup);
	return code ? code : closed;
}

static const char *const formats[] = {"lines", "jsonl", NULL};
static const char *const bodies[] = {"jsonl", "array", "cloudevents", NULL};

static const struct opt ship_opts[] = {
	{.name = "follow",
	 .letter = 'f',
	 .kind = OPT_FLAG,
	 .help = "Follow the files as they grow, also when they are rotated or do not exist yet"},
	{.name = "to",
	 .letter = 't',
	 .kind = OPT_STRING,
	 .arg = "URL",
	 .required = true,
	 .help = "Send lines to a Sluice server, http://HOST:PORT; or rows to postgres://…, sqlite:FILE, "
		 "https://HOST/PATH, file:PATH, exec:COMMAND or null:"},
	OPT_TEXT("stream", 's', "ID",
		 "Name of the stream and its log (default: the host name and a hash of the target)"),
	OPT_TEXT("wal", 0, "DIR", "Folder of the log (default: ~/.sluice/ship)"),
	{.name = "input",
	 .letter = 'i',
	 .kind = OPT_ENUM,
	 .arg = "WHAT",
	 .def = "lines",
	 .choices = formats,
	 .help = "Read lines as text, or as one JSON object per line, each an event"},
	{.name = "table",
	 .kind = OPT_STRING,
	 .arg = "T",
	 .def = "shipped_lines",
	 .help = "Table of the database; on PostgreSQL also SCHEMA.TABLE"},
	{.name = "create", .kind = OPT_FLAG, .help = "Create the table unless it exists"},
	OPT_TEXT("columns", 0, "COLS",
		 "Columns of rows, as a,b: from stream, incarnation, sequence, ts, file, partial, line, line_b64, "
		 "event (default: all)"),
	{.name = "on-conflict",
	 .kind = OPT_STRING,
	 .arg = "COLS",
	 .def = "stream,incarnation,sequence",
	 .help = "Unique key of the table, so that each line is stored once (default: none, append rows)"},
	{.name = "body",
	 .kind = OPT_ENUM,
	 .arg = "WHAT",
	 .choices = bodies,
	 .help = "Body of requests to an HTTP endpoint: JSON lines, a JSON array, or a batch of CloudEvents"},
	OPT_TEXT("token-file", 0, "FILE", "Send the first line of FILE as the bearer token to a server or endpoint"),
	OPT_TEXT("ca-file", 0, "FILE",
		 "CA certificates (PEM) to trust for a server or endpoint instead of the system's"),
	{.name = "max-pending",
	 .kind = OPT_SIZE,
	 .arg = "SIZE",
	 .def = "1GiB",
	 .min = 65536,
	 .max = (int64_t)1 << 50,
	 .help = "Pause reading when this many bytes of the log wait for the target"},
	{.name = "flush-timeout",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "30s",
	 .min = 0,
	 .max = INT64_C(31536000000),
	 .help = "At the end of the input, give up when no line was delivered for this long; the rest stays in the "
		 "log"},
	{.name = "give-up-after",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "0",
	 .min = 0,
	 .max = INT64_C(31536000000),
	 .help = "Exit with status 69 or 78 when the target accepted no line for this long; 0 waits forever. The lines "
		 "stay in the log"},
	{.name = "retarget",
	 .kind = OPT_FLAG,
	 .help = "Send what waits in the log for another URL to this one instead"},
	WALFILE_OPT_KEY_FILE,
	OPT_JSON("Print the result as JSON"),
	{.name = NULL},
};

const struct command cmd_ship = {
	.name = "ship",
	.operands = "FILE…",
	.optional = 1,
	.summary = "ship lines of files or of a pipe to a server or a sink, each exactly once",
	.opts = ship_opts,
	.description =
		"Reads lines of files, or of standard input without a FILE or for -. Each line is on disk in a log "
		"before it counts as read, and is delivered from there for as long as it takes. The log also records "
		"the position in each file: run the same command again after an interruption, and it continues after "
		"the last line, also in files that were rotated in the meantime. --follow continues with what is "
		"added, through rotation by rename, copytruncate, truncation and deletion, until SIGINT or SIGTERM "
		"(status 0 when all is delivered); SIGHUP reopens all files. Without --follow, ship ends when all is "
		"delivered. What cannot be delivered in time stays in the log for the next run, and the status is 75. "
		"If the target refuses the first lines, because of a wrong token or address, the status is 78. If it "
		"is unavailable, or refuses lines later, ship waits for it, up to --give-up-after. A line longer than "
		"15.75 MiB is split, and the last line of a finished file may lack its newline: both are marked as "
		"partial. Bytes are kept as they are.",
	.example = "sluice ship --follow /var/log/app.log --to http://127.0.0.1:7070\n"
		   "journalctl -f -o json | sluice ship --input jsonl --to sqlite:logs.db --create",
	.run = ship_run,
};
