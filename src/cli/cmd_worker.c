/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice worker: run commands for jobs. Each --type names a type and the command that handles it; the worker claims
 * jobs of these types, runs at most --slots at once, and keeps every line they write.
 */
#include "base/base.h"
#include "base/time.h"
#include "commands.h"
#include "configfile.h"
#include "handlers.h"
#include "stop.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DRAIN_POLL_MS 250
#define PAUSED_POLL_MS 2000
#define PAUSED_MAX 512

struct service {
	struct cli *cli;
	const struct parsed *args;
	struct srv_config config;
	struct jobstore store;
	struct workerlog log;
	struct handlers handlers;
	char store_name[JOBSTORE_NAME_BYTES];
	struct sl_retention retention;
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

/* A limit that is not set is what the store has; 0 is for ever. */
static int64_t option_to_keep(int64_t setting)
{
	return setting == 0 ? SL_UNLIMITED : SL_MAX(setting, 0);
}

/* Settings of a file, the environment and the flags; some defaults differ from those of 'sluice up'. 0, or an
 * exit code after lines on stderr. */
static int configure_worker(struct service *s)
{
	struct srv_config *c = &s->config;
	struct sl_err err = SL_ERR_INIT;
	int rc;

	/* Refused here with the names of the flags. A default cap grows with the first delay. */
	if (opt_given(s->args, "retry-max-delay") && opt_given(s->args, "retry-delay") &&
	    opt_num(s->args, "retry-max-delay") < opt_num(s->args, "retry-delay"))
		return cli_usage(s->cli, "--retry-max-delay is shorter than --retry-delay");
	rc = configfile_read(s->cli, opt_str(s->args, "config"), false, c);
	/* Of the environment the sections of a worker: it may have variables of other commands. */
	for (char **e = environ; rc == 0 && *e != NULL; e++) {
		char *const one[] = {*e, NULL};

		if (strncmp(*e, "SLUICE_JOBS_", 12) != 0 && strncmp(*e, "SLUICE_WAL_", 11) != 0 &&
		    strncmp(*e, "SLUICE_RETENTION_", 17) != 0)
			continue;
		if (srv_config_environment(c, one, &err))
			rc = cli_fail(s->cli, &err, NULL);
	}
	if (rc == 0)
		rc = configfile_flags(s->cli, s->args, c);
	if (rc != 0)
		return rc;
	if (!srv_config_given(c, "jobs", "slots"))
		c->jobs_slots = 1;
	if (!srv_config_given(c, "wal", "linger_ms"))
		c->wal_linger_ms = 10; /* so that many short commands share a transaction */
	s->retention = (struct sl_retention){SL_RETENTION_INIT, .completed_ms = option_to_keep(c->retention_completed),
					     .failed_ms = option_to_keep(c->retention_failed),
					     .events_ms = option_to_keep(c->retention_events),
					     .lines_ms = option_to_keep(c->retention_lines)};
	/* As if SLUICE_STORE had named it, for the commands, too. */
	if (c->store_url != NULL && getenv("SLUICE_STORE") == NULL && setenv("SLUICE_STORE", c->store_url, 1) != 0)
		return cli_no_memory(s->cli);
	return 0;
}

/* Store, log and handlers. 0, or an exit code after a line on stderr. */
static int start_service(struct service *s)
{
	struct workerlog_opts log;
	int rc = handlers_init(&s->handlers, s->cli, &s->cli->env, &s->config, false);

	if (rc != 0)
		return rc;
	if (s->handlers.n == 0)
		return cli_usage(s->cli,
				 "no type to serve; give --type NAME=COMMAND, or types in a file with --config");
	rc = workerlog_read_opts(s->cli, s->args, &log);
	if (rc != 0)
		return rc;
	workerlog_set_opts(&log, &s->config);
	rc = jobstore_open(s->cli, s->args, JOBSTORE_WAIT, &s->store);
	jobstore_name(s->store_name, jobstore_url(s->args));
	if (rc == 0)
		rc = workerlog_open(s->cli, NULL, &s->store, &log, &s->log);
	if (rc != 0)
		return rc;
	s->handlers.worker_id = opt_str(s->args, "id");
	s->handlers.store_name = s->store_name;
	s->handlers.retention = &s->retention;
	return handlers_start(&s->handlers, &s->store, &s->log);
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
	rc = configure_worker(&s);
	if (rc == 0)
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
	srv_config_fini(&s.config);
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
	CONFIG_OPTS_OWN,
	SRV_SETTINGS_WORKER(CONFIG_OPT){.name = "slots",
					.letter = 'n',
					.kind = OPT_INT,
					.arg = "N",
					.def = "1",
					.min = 1,
					.max = 10000,
					.help = "Number of commands run at the same time"},
	{.name = "drain",
	 .kind = OPT_FLAG,
	 .help = "Exit when no job of these types is due, awaiting a retry or running anywhere, and all output is "
		 "sent. Waits for paused types and reports them; fails if the event log accepts no records for "
		 "--flush-timeout"},
	OPT_TEXT("id", 0, "NAME", "Name of the worker (default: a random UUID)"),
	WORKERLOG_OPTS_SERVER,
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
