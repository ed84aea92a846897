/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice jobs stats and watch: how many jobs there are, by type and status, once, or once a second until a signal. On a
 * terminal the view is drawn in place; into a pipe or file it is a block of plain lines each time.
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
#include <termios.h>
#include <unistd.h>

struct stats {
	struct cli *cli;
	json_t *totals, *types;
};

static json_int_t int_at(json_t *object, const char *name)
{
	return json_integer_value(json_object_get(object, name));
}

static void add_to(json_t *object, const char *name, uint64_t n)
{
	json_object_set_new(object, name, json_integer(int_at(object, name) + (json_int_t)n));
}

/* Statuses and states without a job are 0, not missing. */
static json_t *no_jobs(void)
{
	json_t *all = json_object();

	for (int i = 1; i <= SL_JOB_STATE_COUNT; i++)
		json_object_set_new(all, sl_job_status_name((enum sl_job_status)i), json_integer(0));
	return all;
}

static int add_count(const struct sl_job_count *c, void *ctx)
{
	struct stats *s = ctx;
	const char *status = sl_job_status_name(c->status);
	const char *name = jobstore_shown_type(c->type);
	json_t *type = json_object_get(s->types, name);

	/* The first count of a type makes an entry with every field, so that readers of the JSON find all of them. */
	if (type == NULL) {
		type = no_jobs();
		json_object_set_new(type, "oldest_ms", json_null());
		json_object_set_new(type, "paused", json_false());
		if (json_object_set_new(s->types, name, type))
			return SL_ENOMEM;
	}
	add_to(type, status, c->count);
	add_to(s->totals, status, c->count);
	for (size_t i = 0; c->status == SL_JOB_PENDING && i < 2; i++) {
		json_t *to = i == 0 ? type : s->totals;

		add_to(to, "ready", c->due);
		add_to(to, "scheduled", c->count - c->due - c->retrying);
		add_to(to, "retrying", c->retrying);
	}
	/* The oldest of all that are counted under this name: each 'sluice run' has its own type. */
	if (c->oldest_ms) {
		json_t *known = json_object_get(type, "oldest_ms");

		if (!json_is_integer(known) || json_integer_value(known) > c->oldest_ms)
			json_object_set_new(type, "oldest_ms", json_integer(c->oldest_ms));
	}
	if (c->paused)
		json_object_set_new(type, "paused", json_true());
	return 0;
}

static void print_counts(struct out *out, const char *name, json_t *counts)
{
	out_printf(out, "%-24s %7lld %9lld %8lld %7lld %7lld %9lld %6lld %9lld%s\n", name, int_at(counts, "ready"),
		   int_at(counts, "scheduled"), int_at(counts, "retrying"), int_at(counts, "blocked"),
		   int_at(counts, "running"), int_at(counts, "completed"), int_at(counts, "failed"),
		   int_at(counts, "cancelled"), json_is_true(json_object_get(counts, "paused")) ? "  paused" : "");
}

static void print_stats(struct stats *s)
{
	struct out *out = &s->cli->out;
	const char *name;
	json_t *type;
	char line[64];

	out_printf(out, "%-24s %7s %9s %8s %7s %7s %9s %6s %9s\n", "TYPE", "ready", "scheduled", "retrying", "blocked",
		   "running", "completed", "failed", "cancelled");
	/* In the order in which the store counts them. */
	json_object_foreach(s->types, name, type)
	{
		text_line(line, sizeof(line), name);
		print_counts(out, line, type);
	}
	print_counts(out, "all", s->totals);
}

static int jobs_stats_run(struct cli *cli, const struct parsed *args)
{
	struct stats s = {.cli = cli, .totals = no_jobs(), .types = json_object()};
	SL_CLEANUP(jobstore_close) struct jobstore store = {0};
	struct sl_err err = SL_ERR_INIT;
	int rc = jobstore_open(cli, args, JOBSTORE_EXISTING, &store);

	if (rc == 0 && sl_jobs_counts(store.client, add_count, &s, &err)) {
		rc = jobstore_fail(cli, args, &err);
	} else if (rc == 0 && opt_flag(args, "json")) {
		out_json_line(&cli->out, json_pack("{s:O, s:O}", "totals", s.totals, "types", s.types));
	} else if (rc == 0) {
		print_stats(&s);
	}
	json_decref(s.totals);
	json_decref(s.types);
	return rc;
}

const struct command cmd_jobs_stats = {
	.name = "jobs stats",
	.operands = "",
	.summary = "count jobs by type and status",
	.opts = jobstore_opts,
	.description = "Pending jobs are ready (they can be claimed now), scheduled (they wait for their time) or "
		       "retrying (they wait for their next attempt after one that failed). With --json, also prints "
		       "the sum of the three, the oldest job that has not ended, and whether the type is paused.",
	.example = "sluice jobs stats\n"
		   "sluice jobs stats --json",
	.run = jobs_stats_run,
};

/* ---- watch ---- */

struct view {
	struct cli *cli;
	bool terminal, keys;
	int rows, used; /* of the terminal; rows 0: no bound */
	int64_t now_ms;
	struct sl_job_count runs[SL_JOB_STATUS_COUNT + 1]; /* of all 'sluice run' together, by status */
};

/* A line of the view; what would not fit on the screen is left out. */
static void line(struct view *v, const char *text)
{
	/* One line stays free for the cursor. */
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

	/* Runs are summed up here and printed after all types. */
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
	/* A failed job shows its error, a running one its worker. */
	text_line(who, sizeof(who),
		  job->status == SL_JOB_FAILED ? (job->error != NULL ? job->error : "")
					       : (job->leased_by != NULL ? job->leased_by : ""));
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
		{"RUNNING", {SL_JOB_FILTER_INIT, .statuses = 1u << SL_JOB_RUNNING, .limit = 20, .without_data = true}},
		{"FAILED", {SL_JOB_FILTER_INIT, .statuses = 1u << SL_JOB_FAILED, .limit = 10, .without_data = true}},
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
	(void)snprintf(buf, sizeof(buf), "sluice jobs  %s%s", text_moment(at, &v->cli->out, v->now_ms),
		       v->keys ? "  q: quit" : "");
	line(v, buf);
	line(v, "");
	/* Counts by type; all 'sluice run' together come last. */
	line(v, "TYPE                                     STATUS         COUNT  OLDEST");
	rc = sl_jobs_counts(store->client, on_count, v, err);
	for (int i = 1; rc == 0 && i <= SL_JOB_STATUS_COUNT; i++) {
		v->runs[i].type = "run";
		count_line(v, &v->runs[i]);
	}
	for (size_t i = 0; i < SL_COUNT(lists); i++) {
		line(v, "");
		line(v, lists[i].title);
		if (rc == 0)
			rc = sl_jobs_list(store->client, &lists[i].filter, job_line, v, err);
	}
	if (v->terminal)
		out_str(&v->cli->out, "\x1b[J");
	return rc;
}

/* Keys come one by one and unseen while the view is drawn. Ctrl-Z would leave the terminal like that: it is off. */
static bool keys_one_by_one(struct termios *before)
{
	struct termios keys;

	/* In the background, setting the terminal would stop this process. */
	if (tcgetattr(STDIN_FILENO, before) || tcgetpgrp(STDIN_FILENO) != getpgrp())
		return false;
	keys = *before;
	keys.c_lflag &= ~(tcflag_t)(ECHO | ICANON);
	keys.c_cc[VMIN] = 1;
	keys.c_cc[VTIME] = 0;
	keys.c_cc[VSUSP] = _POSIX_VDISABLE;
	return tcsetattr(STDIN_FILENO, TCSAFLUSH, &keys) == 0;
}

/* Until the next refresh, a signal, or the key q (true). */
static bool quit_within(bool keys, int64_t ms)
{
	struct pollfd fds[2] = {{.fd = stop_fd(), .events = POLLIN},
				{.fd = keys ? STDIN_FILENO : -1, .events = POLLIN}};
	int64_t until = sl__clock_ms() + ms;
	char key;

	for (int64_t left = ms; left > 0; left = until - sl__clock_ms()) {
		if (poll(fds, 2, (int)left) <= 0 || fds[0].revents)
			return false;
		/* Other keys mean nothing; a terminal that is gone ends the view. */
		if (fds[1].revents && (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q'))
			return true;
	}
	return false;
}

static int jobs_watch_run(struct cli *cli, const struct parsed *args)
{
	struct view v = {.cli = cli, .terminal = isatty(STDOUT_FILENO)};
	struct termios before;
	struct sl_err err = SL_ERR_INIT;
	SL_CLEANUP(jobstore_close) struct jobstore store = {0};
	int64_t rounds = opt_num(args, "count");
	int rc = jobstore_open(cli, args, JOBSTORE_EXISTING, &store);

	v.keys = rc == 0 && v.terminal && isatty(STDIN_FILENO) && keys_one_by_one(&before);

	if (rc == 0 && v.terminal)
		out_str(&cli->out, "\x1b[?25l\x1b[?7l\x1b[2J"); /* no cursor, no wrapping, an empty screen */
	/* A store that is unavailable for a while does not end the view: the error takes the place of the lists. */
	while (rc == 0 && !stop_requested()) {
		int code = draw_jobs(&v, &store, &err);

		if (code && !sl_err_retryable(&err))
			rc = jobstore_fail(cli, args, &err);
		else if (code)
			line(&v, err.msg);
		if (out_flush(&cli->out) || rc != 0 || --rounds == 0)
			break;
		if (quit_within(v.keys, opt_num(args, "every")))
			break;
	}
	if (v.keys)
		(void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
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
	 .help = "Refresh at this interval"},
	{.name = "count",
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "0",
	 .min = 0,
	 .max = 1000000,
	 .help = "Exit after N refreshes; 0: never"},
	{.name = NULL},
};

const struct command cmd_jobs_watch = {
	.name = "jobs watch",
	.operands = "",
	.summary = "watch types, running jobs and failed jobs live",
	.opts = jobs_watch_opts,
	.description = "Redraws a view on a terminal until you press q, prints plain lines elsewhere, until SIGINT or "
		       "SIGTERM.",
	.example = "sluice jobs watch\n"
		   "sluice jobs watch --store postgres:///app",
	.run = jobs_watch_run,
};
