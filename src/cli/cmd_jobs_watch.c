/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice jobs watch: what the store holds, once a second, until a signal. On a terminal the view is drawn in place;
 * into a pipe or file every look is a block of plain lines.
 */
#include "base/time.h"
#include "commands.h"
#include "jobstore.h"
#include "stop.h"
#include "text.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct view {
	struct cli *cli;
	bool terminal;
	int rows, used; /* of the terminal; rows 0: no bound */
	int64_t now_ms;
	struct sl_job_count runs[SL_JOB_STATUS_COUNT + 1]; /* of all 'sluice run' together, by status */
};

/* A line of the view; what would not fit on the screen is left out. */
static void line(struct view *v, const char *text)
{
	if (v->rows && v->used + 1 >= v->rows)
		return;
	v->used++;
	out_str(&v->cli->out, text);
	out_str(&v->cli->out, v->terminal ? "\x1b[K\r\n" : "\n");
}

static void count_line(struct view *v, const struct sl_job_count *c)
{
	char buf[256], type[40], age[TEXT_TIME_BYTES];

	if (c->count == 0)
		return;
	text_line(type, sizeof(type), jobstore_shown_type(c->type));
	(void)snprintf(buf, sizeof(buf), "%-40s %-10s %9" PRIu64 "  %s%s", type, sl_job_status_name(c->status),
		       c->count, c->oldest_ms ? text_age(age, v->now_ms - c->oldest_ms) : "",
		       c->paused ? "  paused" : "");
	line(v, buf);
}

static int on_count(const struct sl_job_count *c, void *ctx)
{
	struct view *v = ctx;
	struct sl_job_count *run = &v->runs[c->status];

	if (jobstore_shown_type(c->type) == c->type) {
		count_line(v, c);
		return 0;
	}
	run->status = c->status;
	run->count += c->count;
	if (c->oldest_ms && (!run->oldest_ms || run->oldest_ms > c->oldest_ms))
		run->oldest_ms = c->oldest_ms;
	return 0;
}

static int job_line(const struct sl_job *job, void *ctx)
{
	struct view *v = ctx;
	char buf[320], type[40], who[80], age[TEXT_TIME_BYTES];

	text_line(type, sizeof(type), job->type);
	text_line(who, sizeof(who),
		  job->status == SL_JOB_FAILED ? (job->error ? job->error : "")
					       : (job->leased_by ? job->leased_by : ""));
	(void)snprintf(buf, sizeof(buf), "%-12" PRIu64 " %-28.28s attempt %-4d %-9s %s", job->id, type, job->attempt,
		       text_age(age, v->now_ms - (job->started_ms ? job->started_ms : job->created_ms)), who);
	line(v, buf);
	return 0;
}

/* Draw the view once. */
static int draw_jobs(struct view *v, struct jobstore *store, struct sl_err *err)
{
	const struct {
		const char *title;
		struct sl_job_filter filter;
	} lists[] = {
		{"RUNNING", {.statuses = 1u << SL_JOB_RUNNING, .limit = 20, .without_data = 1}},
		{"FAILED", {.statuses = 1u << SL_JOB_FAILED, .limit = 10, .without_data = 1}},
	};
	struct winsize size;
	char buf[160], at[TEXT_TIME_BYTES];
	int rc;

	v->rows = v->terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_row : 0;
	v->used = 0;
	v->now_ms = sl__clock_real_ms();
	memset(v->runs, 0, sizeof(v->runs));
	if (v->terminal)
		out_str(&v->cli->out, "\x1b[H");
	(void)snprintf(buf, sizeof(buf), "sluice jobs  %s", text_time(at, v->now_ms));
	line(v, buf);
	line(v, "");
	/* Counts by type; all 'sluice run' together come last. */
	line(v, "TYPE                                     STATUS         COUNT  OLDEST");
	rc = sl_jobs_counts(store->client, on_count, v, err);
	for (int i = 1; !rc && i <= SL_JOB_STATUS_COUNT; i++) {
		v->runs[i].type = "run";
		count_line(v, &v->runs[i]);
	}
	for (size_t i = 0; i < SL_COUNT(lists); i++) {
		line(v, "");
		line(v, lists[i].title);
		if (!rc)
			rc = sl_jobs_list(store->client, &lists[i].filter, job_line, v, err);
	}
	if (v->terminal)
		out_str(&v->cli->out, "\x1b[J");
	return rc;
}

static int jobs_watch_run(struct cli *cli, const struct parsed *args)
{
	struct view v = {.cli = cli, .terminal = isatty(STDOUT_FILENO)};
	struct pollfd stop = {.fd = stop_fd(), .events = POLLIN};
	struct sl_err err = SL_ERR_INIT;
	SL_CLEANUP(jobstore_close) struct jobstore store = {0};
	int64_t rounds = opt_num(args, "count");
	int rc = jobstore_open(cli, args, JOBSTORE_EXISTING, &store);

	if (!rc && v.terminal)
		out_str(&cli->out, "\x1b[?25l\x1b[?7l\x1b[2J"); /* no cursor, no wrapping, an empty screen */
	while (!rc && !stop_requested()) {
		int code = draw_jobs(&v, &store, &err);

		if (code && !err.retryable)
			rc = jobstore_fail(cli, args, &err);
		else if (code)
			line(&v, err.msg);
		if (out_flush(&cli->out) || rc || --rounds == 0)
			break;
		(void)poll(&stop, 1, (int)opt_num(args, "every"));
	}
	if (v.terminal)
		out_str(&cli->out, "\x1b[?7h\x1b[?25h");
	return rc;
}

static const struct opt jobs_watch_opts[] = {
	JOBSTORE_OPT_STORE,
	{.name = "every",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "1s",
	 .min = 100,
	 .max = 3600000,
	 .help = "Refresh interval"},
	{.name = "count",
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "0",
	 .min = 0,
	 .max = 1000000,
	 .help = "End after N looks; 0: never"},
	{.name = NULL},
};

const struct command cmd_jobs_watch = {
	.name = "jobs watch",
	.operands = "",
	.summary = "a live view of types, running and failed jobs",
	.opts = jobs_watch_opts,
	.description = "Drawn in place on a terminal, as plain lines elsewhere, until SIGINT or SIGTERM.",
	.example = "sluice jobs watch --store postgres:///app",
	.run = jobs_watch_run,
};
