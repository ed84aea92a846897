/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice ship: lines of files and streams, through a log, to a Sluice server or a sink.
 *
 *   files, rotated or not ─▶ lines ─▶ group ─▶ log (durable: now they count as read) ─▶ sender ─▶ server or sink
 *        shipfollow.h                 shiplog.h, shipstate.h                            shipsend.h
 *
 * One thread reads and appends; the log's own thread delivers. What must stay true:
 *  1. Whenever the process dies, every line is in the log once or will be read again; shipstate.h says why.
 *  2. While the log takes nothing (its disk or its backlog is full), nothing is read: pressure goes back to the writer
 *     of a pipe, and files wait where they are.
 *  3. Nothing wakes the process while nothing happens.
 *
 * A pipe has no place to go back to: what was read of it is durable as soon as the group is, and what the process had
 * in its hands when it was killed (at most one read, not answered to anybody) is lost with the pipe itself.
 */
#include "commands.h"
#include "progress.h"
#include "server/thread.h"
#include "shipfollow.h"
#include "shipsend.h"
#include "stop.h"
#include "text.h"
#include "walfile.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { FULL_AGAIN_MS = 200, AFTER_SIGNAL_MS = 5000, NOTE_MS = 10000, HALT_MS = 500 };

struct ship {
	struct cli *cli;
	const struct parsed *args;
	struct shipsend to;
	struct shiplog log;
	struct shipfollow from;
	struct progress progress;
	struct pollfd *fds;
	int hangup; /* a signalfd */
	int stuck;  /* code of why the log takes nothing, so that it is told once */
	int sending;
	int stopping; /* a signal has been acted upon: it is not waited for any more */
	int gave_up;  /* the exit code, when the target is not waited for any longer */
	int64_t started_ms;
	uint64_t shown; /* lines delivered when progress was last shown */
};

/* ---- waiting ---- */

static void show_progress(struct ship *s)
{
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	struct sl_err why = SL_ERR_INIT;
	uint64_t delivered;
	char text[256], count[TEXT_COUNT_BYTES];

	if (!progress_due(&s->progress) || sl_wal_get_stats(s->log.wal, &stats, NULL))
		return;
	delivered = shipsend_get(&s->to, &why);
	if (delivered == s->shown && !why.code)
		return;
	s->shown = delivered;
	(void)snprintf(text, sizeof(text), "%s delivered, %" PRIu64 " waiting%s%.120s",
		       text_count(count, delivered, "line"), stats.pending, why.code ? "; " : "",
		       why.code ? why.msg : "");
	progress_show(&s->progress, text, 0, 0);
}

static void drain(int fd)
{
	char bytes[512];

	while (fd >= 0 && read(fd, bytes, sizeof(bytes)) > 0) {
	}
}

/* Milliseconds until the target has taken nothing for --give-up-after; -1: it takes lines, or is waited for. */
static int patience_ms(struct ship *s)
{
	int64_t limit = opt_num(s->args, "give-up-after"), left;
	struct shipsend_state state = shipsend_state(&s->to);

	if (!limit || !state.why.code)
		return -1;
	left = limit - state.failing_ms;
	return left < 0 ? 0 : left < INT32_MAX ? (int)left : INT32_MAX;
}

/* Until something happens, or timeout_ms. reading: also something to read. A signal that came at any time before ends
 * the wait, unless it is known (s->stopping). */
static void wait_for(struct ship *s, int timeout_ms, int reading)
{
	size_t n = 0, own;
	int wait = -1, patience = patience_ms(s), rc;

	s->fds[n++] = (struct pollfd){.fd = s->stopping ? -1 : stop_fd(), .events = POLLIN};
	s->fds[n++] = (struct pollfd){.fd = s->hangup, .events = POLLIN};
	s->fds[n++] = (struct pollfd){.fd = s->to.wake, .events = POLLIN};
	own = n;
	if (reading)
		n += shipfollow_fds(&s->from, s->fds + n, &wait);
	if (timeout_ms >= 0 && (wait < 0 || timeout_ms < wait))
		wait = timeout_ms;
	if (patience >= 0 && (wait < 0 || patience < wait))
		wait = patience;
	rc = poll(s->fds, n, wait);
	if (rc > 0 && s->fds[1].revents) {
		drain(s->hangup);
		shipfollow_reopen(&s->from);
	}
	if (rc > 0 && s->fds[2].revents)
		drain(s->to.wake);
	if (reading && rc >= 0)
		shipfollow_heard(&s->from, s->fds + own, n - own);
	show_progress(s);
}

/* ---- reading ---- */

/* A log that takes nothing now may take it later; everything else ends the command. */
static int is_passing(int code)
{
	return code == SL_EFULL || code == SL_ENOSPC;
}

static void tell_stuck(struct ship *s, const struct sl_err *err)
{
	if (s->stuck == err->code)
		return;
	s->stuck = err->code;
	if (err->code == SL_EFULL)
		cli_say(s->cli, SL_LOG_WARN,
			"the log is full of lines that wait for %s; reading goes on when it takes some", s->to.target);
	else
		cli_say(s->cli, SL_LOG_WARN, "%s; reading goes on when there is room", err->msg);
}

static void tell_free(struct ship *s)
{
	if (s->stuck)
		cli_say(s->cli, SL_LOG_INFO, "the log takes lines again");
	s->stuck = 0;
}

/* A target that does not know the token or the address will not by itself: at the first contact that ends the command,
 * later after --give-up-after. One that is unavailable is waited for from the start. */
static int check_target(struct ship *s)
{
	struct shipsend_state state = shipsend_state(&s->to);
	int is_wrong = state.why.code == SL_EACCES || state.why.code == SL_ECONFIG || state.why.code == SL_ENOENT;

	if (state.first && is_wrong)
		cli_say(s->cli, SL_LOG_ERROR, "%s took no line: %s", s->to.target, state.why.msg);
	else if (patience_ms(s) == 0)
		cli_say(s->cli, SL_LOG_ERROR, "%s took no line for %" PRId64 " s: %s", s->to.target,
			state.failing_ms / 1000, state.why.msg);
	else
		return 0;
	s->gave_up = sl_err_exit_code(is_wrong ? SL_ECONFIG : SL_EUNAVAIL);
	return s->gave_up;
}

/* The stream is stopped for good when the receiver knows other lines under these numbers. */
static int check_sender(struct ship *s)
{
	struct sl_err err = SL_ERR_INIT;

	return sl_wal_sender_error(s->log.wal, &err) ? cli_fail(s->cli, &err, s->log.id) : check_target(s);
}

/* Did the last send fail? The sender halts after that, and nothing wakes this thread then. */
static int in_trouble(struct ship *s)
{
	struct sl_err why = SL_ERR_INIT;

	(void)shipsend_get(&s->to, &why);
	return why.code != 0;
}

/* One round: read, make durable. *more: at once another one. */
static int round_of(struct ship *s, int *more, struct sl_err *err)
{
	int rc = shiplog_flush(&s->log, err); /* what the log did not take before */

	rc = rc ? rc : shipfollow_read(&s->from, more, err);
	return rc ? rc : shiplog_flush(&s->log, err);
}

/* A signal came. What was read of a file waits there; what was read of a pipe, a line without its end too, is nowhere
 * else. */
static int keep_rest(struct ship *s)
{
	struct sl_err err = SL_ERR_INIT;
	char count[TEXT_COUNT_BYTES];
	int piped = 0, rc = shipfollow_end_streams(&s->from, &piped, &err);

	rc = rc || !piped ? rc : shiplog_flush(&s->log, &err);
	if (!rc)
		return 0;
	cli_say(s->cli, SL_LOG_ERROR, "%s; %s that had been read did not fit: what is of a pipe is lost", err.msg,
		text_count(count, s->log.n - s->log.done, "line"));
	return sl_err_exit_code(rc);
}

static int ship_all(struct ship *s)
{
	struct sl_err err = SL_ERR_INIT;
	int more = 0, rc;

	while (!stop_requested()) {
		rc = round_of(s, &more, &err);
		if (rc && !is_passing(rc))
			return cli_fail(s->cli, &err, s->log.dir);
		if (rc)
			tell_stuck(s, &err);
		else
			tell_free(s);
		rc = check_sender(s);
		if (rc || (!s->stuck && shipfollow_over(&s->from)))
			return rc;
		if (s->stuck)
			wait_for(s, FULL_AGAIN_MS, 0);
		else
			wait_for(s, more ? 0 : in_trouble(s) ? HALT_MS : -1, 1);
	}
	return keep_rest(s);
}

/* ---- the end ---- */

/* The target's mark is known before the log has noted it. */
static int is_delivered(struct ship *s)
{
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};

	return sl_wal_get_stats(s->log.wal, &stats, NULL) || stats.pending == 0 ||
	       shipsend_mark(&s->to) >= stats.last_sequence;
}

/* Until all is delivered; given up when a signal came, or nothing moved for --flush-timeout. */
static int await_delivery(struct ship *s)
{
	int64_t patience = opt_num(s->args, "flush-timeout"), now = srv_clock_ms(), moved = now, began = now;
	struct sl_err why = SL_ERR_INIT;
	uint64_t before = shipsend_get(&s->to, &why), after;
	int rc = 0;

	s->stopping = stop_requested();
	while (!rc && !is_delivered(s)) {
		int64_t left = patience - (now - moved);

		if (stop_requested() && !s->stopping)
			break; /* the first one, after the end of the input: the rest is safe */
		if (s->stopping && AFTER_SIGNAL_MS - (now - began) < left)
			left = AFTER_SIGNAL_MS - (now - began);
		if (left <= 0)
			break;
		if (in_trouble(s) && left > HALT_MS)
			left = HALT_MS;
		wait_for(s, (int)(left < INT32_MAX ? left : INT32_MAX), 0);
		now = srv_clock_ms();
		after = shipsend_get(&s->to, &why);
		if (after != before)
			moved = now;
		before = after;
		rc = check_sender(s);
	}
	return rc;
}

/* *refused: in this run. What earlier ones left in the dead letters is not told again. */
static int stop_sending(struct ship *s, uint64_t *left, uint64_t *refused)
{
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	struct sl_err err = SL_ERR_INIT;
	/* All delivered: it only has to be noted. Where the mark was of another log's lines, ours are sent now. */
	int64_t patience = opt_num(s->args, "flush-timeout");
	int64_t deadline = s->sending && is_delivered(s) ? (patience > NOTE_MS ? patience : NOTE_MS) : 0;
	int rc = s->sending ? sl_wal_stop(s->log.wal, deadline, &err) : 0;

	s->sending = 0;
	if (rc && rc != SL_EPENDING)
		return cli_fail(s->cli, &err, s->log.dir);
	if (sl_wal_get_stats(s->log.wal, &stats, &err))
		return cli_fail(s->cli, &err, s->log.dir);
	*left = stats.pending;
	*refused = stats.parked;
	return 0;
}

static void report(struct ship *s, uint64_t left, uint64_t refused)
{
	double seconds = (double)(srv_clock_ms() - s->started_ms) / 1000;
	struct sl_err why = SL_ERR_INIT;
	uint64_t delivered = shipsend_get(&s->to, &why);
	char count[TEXT_COUNT_BYTES];

	if (opt_flag(s->args, "json")) {
		out_printf(&s->cli->out,
			   "{\"read\":%" PRIu64 ",\"delivered\":%" PRIu64 ",\"left\":%" PRIu64 ",\"refused\":%" PRIu64
			   ",\"cut\":%" PRIu64 ",\"stream\":\"%s\",\"seconds\":%.3f}\n",
			   s->log.lines, delivered, left, refused, s->from.cut, s->log.id, seconds);
		return;
	}
	out_printf(&s->cli->out, "%s delivered to %s in %.1f s\n", text_count(count, delivered, "line"), s->to.target,
		   seconds);
}

/* The status, after a line for everything that is not as it should be. */
static int result(struct ship *s, uint64_t left, uint64_t refused)
{
	struct sl_err why = SL_ERR_INIT;
	char count[TEXT_COUNT_BYTES];

	if (!s->gave_up) /* which has said why */
		(void)shipsend_get(&s->to, &why);
	if (left)
		cli_say(s->cli, SL_LOG_ERROR, "%s left in %s/%s.wal for the next run%s%.150s",
			text_count(count, left, "line"), s->log.dir, s->log.id, why.code ? ": " : "",
			why.code ? why.msg : "");
	if (refused)
		cli_say(s->cli, SL_LOG_ERROR, "%s refused; 'sluice dlq list %s/%s.dead' says why",
			text_count(count, refused, "line"), s->log.dir, s->log.id);
	if (s->gave_up)
		return s->gave_up;
	if (left)
		return EXIT_INTERRUPTED;
	if (stop_requested() && !shipfollow_over(&s->from) && !s->from.follow)
		return cli_interrupted(s->cli);
	return refused ? EXIT_BAD_DATA : EXIT_OK;
}

static int finish(struct ship *s, int rc)
{
	uint64_t left = 0, refused = 0;
	int code = rc ? rc : await_delivery(s);
	int stopped = stop_sending(s, &left, &refused);

	progress_end(&s->progress);
	code = code ? code : stopped;
	if (!stopped)
		report(s, left, refused);
	return code && code != s->gave_up ? code : result(s, left, refused);
}

/* ---- the beginning ---- */

/* A hangup that the parent ignores (nohup) stays ignored. Before any thread is made, so that none takes it. */
static int open_hangup(struct ship *s)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	if (pthread_sigmask(SIG_BLOCK, &set, NULL) == 0)
		s->hangup = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return 0;
}

static int start(struct ship *s, const char *const *operands, int n)
{
	int rc = shipsend_check(&s->to);

	rc = rc ? rc : shiplog_open(&s->log, s->cli, s->args, s->to.target);
	rc = rc ? rc
		: shipfollow_open(&s->from, s->cli, &s->log, operands, n, opt_flag(s->args, "follow"),
				  (int)opt_num(s->args, "input"));
	if (rc)
		return rc;
	s->fds = calloc(shipfollow_fds_max(&s->from) + 3, sizeof(*s->fds));
	if (!s->fds) {
		cli_say(s->cli, SL_LOG_ERROR, "out of memory");
		return EXIT_INTERNAL;
	}
	rc = shipsend_start(&s->to, s->log.wal, s->log.id, s->log.pending);
	s->sending = !rc;
	return rc;
}

static int run(struct cli *cli, const struct parsed *args)
{
	static const char *const input[] = {"-"};
	const char *const *operands = args->n_operands ? args->operands : input;
	int n = args->n_operands ? args->n_operands : 1, code;
	struct ship s = {.cli = cli, .args = args, .hangup = -1, .started_ms = srv_clock_ms()};
	int rc = shipsend_open(&s.to, cli, args);

	s.from.inotify = -1;
	rc = rc ? rc : open_hangup(&s);
	rc = rc ? rc : start(&s, operands, n);
	if (!rc) {
		progress_start(&s.progress, cli, 0);
		rc = finish(&s, ship_all(&s));
	}
	shipfollow_close(&s.from);
	code = s.log.cli ? shiplog_close(&s.log) : 0;
	shipsend_close(&s.to);
	free(s.fds);
	if (s.hangup >= 0)
		(void)close(s.hangup);
	return rc ? rc : code;
}

static const char *const formats[] = {"lines", "jsonl", NULL};
static const char *const bodies[] = {"jsonl", "array", "cloudevents", NULL};

static const struct opt opts[] = {
	{.name = "follow",
	 .letter = 'f',
	 .kind = OPT_FLAG,
	 .help = "Go on with what is added to the files, also when they are rotated or not there yet"},
	{.name = "to",
	 .letter = 't',
	 .kind = OPT_STRING,
	 .arg = "URL",
	 .required = 1,
	 .help = "Where lines go: http://HOST:PORT of a Sluice server; or rows to postgres://…, sqlite:FILE, "
		 "https://HOST/PATH, file:PATH, exec:COMMAND or null:"},
	{.name = "stream",
	 .letter = 's',
	 .kind = OPT_STRING,
	 .arg = "ID",
	 .help = "Name of the stream and its log (default made of the host's name and the target)"},
	{.name = "wal", .kind = OPT_STRING, .arg = "DIR", .help = "Folder of the log (default ~/.sluice/ship)"},
	{.name = "input",
	 .letter = 'i',
	 .kind = OPT_ENUM,
	 .arg = "WHAT",
	 .def = "lines",
	 .choices = formats,
	 .help = "What the input is: lines of text, or a JSON object a line, each an event"},
	{.name = "table",
	 .kind = OPT_STRING,
	 .arg = "T",
	 .def = "shipped_lines",
	 .help = "The table, of a database; on PostgreSQL also SCHEMA.TABLE"},
	{.name = "create", .kind = OPT_FLAG, .help = "Make the table unless it is there"},
	{.name = "columns",
	 .kind = OPT_STRING,
	 .arg = "COLS",
	 .help = "Which members rows have, as a,b of stream, incarnation, sequence, ts, file, partial, line, line_b64, "
		 "event; all unless given"},
	{.name = "on-conflict",
	 .kind = OPT_STRING,
	 .arg = "COLS",
	 .def = "stream,incarnation,sequence",
	 .help = "The unique key of the table, so that each line is there once; empty: rows are appended"},
	{.name = "body",
	 .kind = OPT_ENUM,
	 .arg = "WHAT",
	 .choices = bodies,
	 .help = "Of requests to an HTTP endpoint: JSON lines, a JSON array, or a batch of CloudEvents"},
	{.name = "token-file",
	 .kind = OPT_STRING,
	 .arg = "FILE",
	 .help = "Its first line is sent as a bearer token to a server or endpoint"},
	{.name = "ca-file",
	 .kind = OPT_STRING,
	 .arg = "FILE",
	 .help = "Certificates (PEM) that a server or endpoint may be signed by, instead of the system's"},
	{.name = "max-pending",
	 .kind = OPT_SIZE,
	 .arg = "SIZE",
	 .def = "1GiB",
	 .min = 65536,
	 .max = (int64_t)1 << 50,
	 .help = "Bytes of the log that may wait for the target; past that, reading waits too"},
	{.name = "flush-timeout",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "30s",
	 .min = 0,
	 .max = INT64_C(31536000000),
	 .help = "At the end of the input, give up when nothing was delivered for so long; the rest stays in the log"},
	{.name = "give-up-after",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "0",
	 .min = 0,
	 .max = INT64_C(31536000000),
	 .help = "End with status 69 or 78 when the target took no line for this long; 0 waits forever. The lines stay "
		 "in the log"},
	{.name = "retarget",
	 .kind = OPT_FLAG,
	 .help = "Send what waits in the log to this URL although it was for another"},
	WALFILE_OPT_KEY_FILE,
	{.name = "json", .letter = 'j', .kind = OPT_FLAG, .help = "Print the result as JSON"},
	{.name = NULL},
};

const struct command cmd_ship = {
	.name = "ship",
	.operands = "FILE…",
	.optional = 1,
	.summary = "ship lines of files or of a pipe to a server or a sink, none lost and none twice",
	.opts = opts,
	.description =
		"Every line of the files, or of standard input without one or for -, is on disk in a log before it "
		"counts as read, and is delivered from there for as long as it takes. The log also has the place in "
		"each file: however the command was ended, the same command goes on behind the last line, in files "
		"that were rotated meanwhile too. With --follow it goes on with what is added, through rotation by "
		"rename, copytruncate, truncation and deletion, until SIGINT or SIGTERM (status 0 when all is "
		"delivered); SIGHUP opens everything anew. Without, it ends when all is delivered. What cannot be "
		"delivered in time stays in the log for the next run, and the status is 75. A target that refuses the "
		"first lines, because of a wrong token or address, ends the command with status 78. One that is "
		"unavailable, or refuses lines later, is waited for, up to --give-up-after. A line longer than 15.75 "
		"MiB is cut, and the last line of a file that is done with may lack its newline: both are marked as "
		"partial. Bytes are kept as they are.",
	.example = "sluice ship --follow /var/log/app.log --to http://127.0.0.1:7070\n"
		   "journalctl -f -o json | sluice ship --input jsonl --to sqlite:logs.db --create",
	.run = run,
};
