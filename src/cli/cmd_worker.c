/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice worker: run commands for jobs. Each --type names a type and the command that handles it; the worker claims
 * jobs of these types, runs at most --slots at once, and keeps every line they write.
 */
#include "base/time.h"
#include "commands.h"
#include "handlers.h"
#include "stop.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRAIN_POLL_MS 250
#define PASS_ENV_MAX 256
#define PAUSED_POLL_MS 2000
#define PAUSED_MAX 512

struct service {
	struct cli *cli;
	const struct parsed *args;
	struct jobstore store;
	struct workerlog log;
	struct handlers handlers;
};

/* ---- draining ---- */

struct drain {
	struct service *s;
	int64_t log_failed_ms;   /* since when the event log does not accept records; 0: it does */
	int64_t asked_ms;        /* when the store was asked for paused types; 0: not yet */
	char paused[PAUSED_MAX]; /* the types that were reported */
	char now[PAUSED_MAX];    /* and those that are paused now */
};

static int note_paused(const struct sl_job_count *c, void *ctx)
{
	struct drain *d = ctx;
	size_t used = strlen(d->now);

	/* Only types of this worker that have something to do. */
	if (!c->paused || (!c->due && !c->retrying))
		return 0;
	for (size_t i = 0; i < d->s->handlers.n; i++) {
		if (strcmp(d->s->handlers.list[i].name, c->type) == 0)
			(void)snprintf(d->now + used, sizeof(d->now) - used, "%s%s", used ? ", " : "", c->type);
	}
	return 0;
}

/* Jobs are left. 0 to wait on, or an exit code. */
static int check_drain(struct drain *d)
{
	struct sl_worker_stats st = {.struct_size = sizeof(st)};
	struct cli *cli = d->s->cli;
	struct sl_err err = SL_ERR_INIT;
	int64_t now = sl__clock_ms();

	/* An event log that stays unusable ends a drain: nothing would be claimed any more. */
	if (!sl_worker_log_error(d->s->handlers.worker, &err))
		d->log_failed_ms = 0;
	else if (!d->log_failed_ms)
		d->log_failed_ms = now;
	if (d->log_failed_ms && now - d->log_failed_ms >= opt_num(d->s->args, "flush-timeout")) {
		cli_say(cli, SL_LOG_ERROR, "jobs are left because the event log does not accept records: %s", err.msg);
		return sl_err_exit_code(err.code);
	}

	/* Jobs of a paused type are left to do, and no worker does them: report it, once for each change. */
	sl_worker_get_stats(d->s->handlers.worker, &st);
	if (st.busy || (d->asked_ms && now - d->asked_ms < PAUSED_POLL_MS))
		return 0;
	d->asked_ms = now;
	d->now[0] = '\0';
	if (sl_jobs_counts(d->s->store.client, note_paused, d, &err) || strcmp(d->now, d->paused) == 0)
		return 0;
	if (d->now[0])
		cli_say(cli, SL_LOG_WARN,
			"waiting for jobs of paused types: %s; continue with: sluice jobs resume TYPE", d->now);
	memcpy(d->paused, d->now, sizeof(d->paused));
	return 0;
}

/* Until nothing is left to do. A store that is unavailable for a while does not end it: the worker reconnects. */
static int drain_jobs(struct service *s)
{
	struct pollfd stop = {.fd = stop_fd(), .events = POLLIN};
	struct sl_err err = SL_ERR_INIT;
	struct drain d = {.s = s};
	int rc = SL_ETIMEDOUT, code = 0;

	while (rc != 0 && !code && !stop_requested()) {
		rc = sl_worker_drain(s->handlers.worker, DRAIN_POLL_MS, &err);
		if (rc == SL_ETIMEDOUT)
			code = check_drain(&d);
		else if (rc != 0 && !sl_err_retryable(&err))
			code = jobstore_fail(s->cli, s->args, &err);
		else {
			if (rc != 0)
				(void)poll(&stop, 1, DRAIN_POLL_MS);
		}
	}
	return code;
}

/* Of an option that was not given, what the store has; 0 is for ever. */
static int64_t option_to_keep(const struct parsed *args, const char *name)
{
	if (!opt_given(args, name))
		return 0;
	return opt_num(args, name) == 0 ? SL_UNLIMITED : opt_num(args, name);
}

/* Store, log and handlers. 0, or an exit code after a line on stderr. */
static int start_service(struct service *s)
{
	const struct parsed *args = s->args;
	const char *pass_env[PASS_ENV_MAX], *text;
	char store[JOBSTORE_NAME_BYTES];
	const struct sl_retention retention = {SL_RETENTION_INIT,
					       .completed_ms = option_to_keep(args, "retention-completed"),
					       .failed_ms = option_to_keep(args, "retention-failed"),
					       .events_ms = option_to_keep(args, "retention-events"),
					       .lines_ms = option_to_keep(args, "retention-lines")};
	struct handlers_opts opts = {
		.retention = &retention,
		.worker_id = opt_str(args, "id"),
		.slots = opt_num(args, "slots"),
		.lease_ms = opt_num(args, "lease"),
		.timeout_ms = opt_num(args, "timeout"),
		.max_attempts = opt_num(args, "max-attempts"),
		.initial_delay_ms = opt_num(args, "retry-delay"),
		.max_delay_ms = opt_num(args, "retry-max-delay"),
		.poll_interval_ms = opt_num(args, "poll"),
		.kill_grace_ms = opt_num(args, "kill-grace"),
		.pass_env = pass_env,
		.store = store,
	};
	struct workerlog_opts log;
	int rc = 0;

	s->handlers = (struct handlers){.cli = s->cli,
					.env = &s->cli->env,
					.shell = opt_flag(args, "shell"),
					.command_from_input = opt_flag(args, "command-from-input"),
					.run_as = opt_str(args, "run-as")};
	for (int i = 0; rc == 0 && (text = opt_all(args, "type", i)) != NULL; i++)
		rc = handlers_add(&s->handlers, text);
	if (rc != 0)
		return rc;
	/* The default cap grows with the first delay; one that was given does not. */
	if (opt_given(args, "retry-max-delay") && opts.max_delay_ms < opts.initial_delay_ms)
		return cli_usage(s->cli, "--retry-max-delay is shorter than --retry-delay");
	rc = jobstore_open(s->cli, args, JOBSTORE_WAIT, &s->store);
	jobstore_name(store, jobstore_url(args));
	if (rc == 0)
		rc = workerlog_read_opts(s->cli, args, &log);
	if (rc == 0)
		rc = workerlog_open(s->cli, NULL, &s->store, &log, &s->log);
	if (rc != 0)
		return rc;
	while (opts.n_pass_env < PASS_ENV_MAX && (text = opt_all(args, "pass-env", (int)opts.n_pass_env)) != NULL)
		pass_env[opts.n_pass_env++] = text;
	return handlers_start(&s->handlers, &opts, &s->store, &s->log);
}

static int worker_run(struct cli *cli, const struct parsed *args)
{
	struct pollfd stop = {.fd = stop_fd(), .events = POLLIN};
	struct sl_worker_stats st = {.struct_size = sizeof(st)};
	struct service s = {.cli = cli, .args = args};
	bool interrupted = false;
	int stopped, flushed, rc;

	/* Before any thread or command is started. */
	handlers_hide_secrets();
	rc = start_service(&s);

	/* Until a signal, or with --drain until nothing is left to do. */
	if (rc == 0 && opt_flag(args, "drain"))
		rc = drain_jobs(&s);
	else if (rc == 0)
		while (!stop_requested())
			(void)poll(&stop, 1, -1);
	interrupted = stop_requested();

	stopped = handlers_stop(&s.handlers, opt_num(args, "stop-grace"));
	if (s.handlers.worker != NULL) {
		sl_worker_get_stats(s.handlers.worker, &st);
		if (opt_flag(args, "json"))
			out_printf(&cli->out,
				   "{\"worker\":\"%s\",\"claimed\":%" PRIu64 ",\"completed\":%" PRIu64
				   ",\"retried\":%" PRIu64 ",\"failed\":%" PRIu64 ",\"lost\":%" PRIu64
				   ",\"reaped\":%" PRIu64 ",\"released\":%" PRIu64 "}\n",
				   sl_worker_id(s.handlers.worker), st.claimed, st.completed, st.retried, st.failed,
				   st.lost, st.reaped, st.released);
		else
			cli_notice(cli,
				   "stopped: %" PRIu64 " completed, %" PRIu64 " to be retried, %" PRIu64
				   " failed, %" PRIu64 " lost",
				   st.completed, st.retried, st.failed, st.lost);
	}
	handlers_fini(&s.handlers);
	flushed = s.log.cli != NULL ? workerlog_close(&s.log, opt_num(args, "flush-timeout")) : EXIT_OK;
	jobstore_close(&s.store);
	if (rc != 0)
		return rc;
	if (stopped)
		return stopped;
	/* A signal is the usual way to end a worker: it stopped cleanly, and that is success. */
	return interrupted && opt_flag(args, "drain") && !flushed ? cli_interrupted(cli) : flushed;
}

#define KEEP_MS_MAX INT64_C(3153600000000) /* 36500 days */
#define RETENTION_OPT(option, does, standard)                                                                          \
	{                                                                                                              \
		.name = option, .kind = OPT_DURATION, .arg = "TIME", .min = 0, .max = KEEP_MS_MAX,                     \
		.help = does "; 0: never. Default: what another process has set for the store, else " standard         \
	}

static const struct opt worker_opts[] = {
	JOBSTORE_OPT_STORE,
	{.name = "type",
	 .letter = 't',
	 .kind = OPT_STRING,
	 .arg = "NAME=COMMAND",
	 .required = true,
	 .repeat = true,
	 .help = "Serve this type with this command, split into words (quotes keep words together, nothing is "
		 "expanded). NAME alone needs --command-from-input"},
	{.name = "command-from-input",
	 .kind = OPT_FLAG,
	 .help = "Let the input of a job name its command, for each --type without one ('sluice run --detach' creates "
		 "such jobs, of type run). Warning: anyone who can write to the store can then run commands as this "
		 "user. Jobs that came over HTTP fail"},
	{.name = "shell", .kind = OPT_FLAG, .help = "Run each command with /bin/sh -c"},
	{.name = "pass-env",
	 .kind = OPT_STRING,
	 .arg = "NAME",
	 .repeat = true,
	 .help = "Pass this variable to commands although it is one of Sluice's secrets: PGPASSWORD, the password in "
		 "SLUICE_STORE, SLUICE_…TOKEN…"},
	OPT_TEXT("run-as", 0, "USER",
		 "Run the commands as this user, who cannot read the worker's files, such as a SQLite store. Needs "
		 "root, or CAP_SETUID, CAP_SETGID and CAP_KILL. Default: the worker's own user"),
	{.name = "slots",
	 .letter = 'n',
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "1",
	 .min = 1,
	 .max = 10000,
	 .help = "Number of commands run at the same time"},
	{.name = "lease",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "60s",
	 .min = 100,
	 .max = 86400000,
	 .help = "Lease a job for this long; the worker renews the lease after a third of it. Without a renewal, "
		 "another worker takes the job"},
	{.name = "timeout",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "0",
	 .min = 0,
	 .max = INT64_C(31536000000),
	 .help = "Stop a command that runs longer; 0: never"},
	{.name = "max-attempts",
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "0",
	 .min = 0,
	 .max = 1000000,
	 .help = "Fail a job after N charged attempts; 0: never. With 1, a job starts at most once: it fails if its "
		 "worker stops or dies"},
	{.name = "retry-delay",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "10s",
	 .min = 1,
	 .max = 86400000,
	 .help = "Delay before the second attempt; it doubles with each further one"},
	{.name = "retry-max-delay",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "300s",
	 .min = 1,
	 .max = INT64_C(31536000000),
	 .help = "Longest delay between attempts"},
	{.name = "poll",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "60s",
	 .min = 10,
	 .max = 86400000,
	 .help = "Poll for jobs at this interval, even without a notification"},
	{.name = "drain",
	 .kind = OPT_FLAG,
	 .help = "Exit when no job of these types is due, awaiting a retry or running anywhere, and all output is "
		 "sent. Waits for paused types and reports them; fails if the event log accepts no records for "
		 "--flush-timeout"},
	OPT_TEXT("id", 0, "NAME", "Name of the worker (default: a random UUID)"),
	WORKERLOG_OPT_WAL,
	WORKERLOG_OPTS_SERVER,
	{.name = "kill-grace",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "5s",
	 .min = 1,
	 .max = 3600000,
	 .help = "Time between SIGTERM and SIGKILL for a command that must stop"},
	{.name = "stop-grace",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "30s",
	 .min = 0,
	 .max = 86400000,
	 .help = "Let running commands finish for up to this long when the worker stops"},
	WORKERLOG_OPT_FLUSH_TIMEOUT,
	RETENTION_OPT("retention-completed", "Delete a chain this long after it completed", "7d"),
	RETENTION_OPT("retention-failed", "Delete a chain this long after it failed or was cancelled", "90d"),
	RETENTION_OPT("retention-events", "Delete events of jobs at this age, also while their job is kept", "30d"),
	RETENTION_OPT("retention-lines", "Delete shipped lines at this age", "30d"),
	OPT_JSON("Print JSON"),
	{.name = NULL},
};

const struct command cmd_worker = {
	.name = "worker",
	.operands = "",
	.summary = "run commands for jobs",
	.opts = worker_opts,
	.description = "A command gets the job's input on stdin and SLUICE_JOB_ID, SLUICE_CHAIN_ID, SLUICE_ATTEMPT and "
		       "SLUICE_TYPE in its environment. The rest of the environment is the worker's, without Sluice's "
		       "own secrets (--pass-env). Each line that it writes to stdout and stderr is kept ('sluice jobs "
		       "logs'). JSON lines on descriptor 3 control the job: {\"output\":…}, "
		       "{\"continue_with\":{\"type\":…,\"input\":…}}, {\"progress\":…}, {\"reschedule_in_ms\":…}, "
		       "{\"fail\":\"…\"}. Exit status 0 completes the job, 75 retries it after the type's delay "
		       "without counting the attempt, and any other is a failed attempt. SIGTERM or SIGINT stops the "
		       "worker: running commands may finish, and jobs that were not started are returned.",
	.example = "sluice worker --type mail='/usr/local/bin/send-mail --fast' --slots 4\n"
		   "sluice worker --type resize=./resize.sh --max-attempts 5 --timeout 2m --drain",
	.run = worker_run,
};
