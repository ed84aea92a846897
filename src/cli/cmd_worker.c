/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice worker: run commands for jobs. Each --type names a type and the command that handles it; the worker claims
 * jobs of these types, runs at most --slots at once, and keeps every line they write.
 */
#include "commands.h"
#include "handlers.h"
#include "stop.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRAIN_LOOK_MS 250
#define PASS_ENV_MAX 256

struct service {
	struct cli *cli;
	const struct parsed *args;
	struct jobstore store;
	struct workerlog log;
	struct handlers handlers;
	const char *pass_env[PASS_ENV_MAX];
};

static int read_handlers(struct service *s)
{
	const char *text;
	int rc = 0;

	s->handlers = (struct handlers){.cli = s->cli, .env = &s->cli->env, .shell = opt_flag(s->args, "shell")};
	for (int i = 0; !rc && (text = opt_all(s->args, "type", i)) != NULL; i++)
		rc = handlers_add(&s->handlers, text);
	return rc;
}

static int open_log(struct service *s)
{
	struct workerlog_opts opts;
	int rc = workerlog_read_opts(s->cli, s->args, &opts);

	return rc ? rc : workerlog_open(s->cli, NULL, &s->store, &opts, &s->log);
}

static int start(struct service *s)
{
	const struct parsed *args = s->args;
	struct handlers_opts opts = {
		.worker_id = opt_str(args, "id"),
		.slots = opt_num(args, "slots"),
		.lease_ms = opt_num(args, "lease"),
		.timeout_ms = opt_num(args, "timeout"),
		.max_attempts = opt_num(args, "max-attempts"),
		.initial_delay_ms = opt_num(args, "retry-delay"),
		.max_delay_ms = opt_num(args, "retry-max-delay"),
		.poll_interval_ms = opt_num(args, "poll"),
		.kill_grace_ms = opt_num(args, "kill-grace"),
		.pass_env = s->pass_env,
	};
	const char *name;

	while (opts.n_pass_env < PASS_ENV_MAX && (name = opt_all(args, "pass-env", (int)opts.n_pass_env)) != NULL)
		s->pass_env[opts.n_pass_env++] = name;

	return handlers_start(&s->handlers, &opts, &s->store, &s->log);
}

/* Until a signal, or with --drain until nothing is left to do. *interrupted: a signal came. */
static int serve(struct service *s, int *interrupted)
{
	struct pollfd stop = {.fd = stop_fd(), .events = POLLIN};
	struct sl_err err = SL_ERR_INIT;
	int rc = SL_ETIMEDOUT;

	if (!opt_flag(s->args, "drain")) {
		while (!stop_requested())
			(void)poll(&stop, 1, -1);
	} else {
		/* A store that is away for a while does not end a drain: the worker connects again. */
		while (rc && !stop_requested()) {
			rc = sl_worker_drain(s->handlers.worker, DRAIN_LOOK_MS, &err);
			if (rc && rc != SL_ETIMEDOUT && !err.retryable)
				return jobstore_fail(s->cli, s->args, &err);
			if (rc && rc != SL_ETIMEDOUT)
				(void)poll(&stop, 1, DRAIN_LOOK_MS);
		}
	}
	*interrupted = stop_requested();
	return 0;
}

static void print_summary(struct service *s)
{
	struct sl_worker_stats st = {.struct_size = sizeof(st)};

	sl_worker_get_stats(s->handlers.worker, &st);
	if (opt_flag(s->args, "json"))
		out_printf(&s->cli->out,
			   "{\"worker\":\"%s\",\"claimed\":%" PRIu64 ",\"completed\":%" PRIu64 ",\"retried\":%" PRIu64
			   ",\"failed\":%" PRIu64 ",\"lost\":%" PRIu64 ",\"reaped\":%" PRIu64 ",\"released\":%" PRIu64
			   "}\n",
			   sl_worker_id(s->handlers.worker), st.claimed, st.completed, st.retried, st.failed, st.lost,
			   st.reaped, st.released);
	else
		cli_say(s->cli, SL_LOG_INFO,
			"%" PRIu64 " completed, %" PRIu64 " to be tried again, %" PRIu64 " failed, %" PRIu64 " lost",
			st.completed, st.retried, st.failed, st.lost);
}

static int stop_all(struct service *s)
{
	int rc = handlers_stop(&s->handlers, opt_num(s->args, "stop-grace")), code;

	if (s->handlers.worker)
		print_summary(s);
	handlers_fini(&s->handlers);
	code = s->log.cli ? workerlog_close(&s->log, opt_num(s->args, "flush-timeout")) : EXIT_OK;
	jobstore_close(&s->store);
	return rc ? rc : code;
}

static int run(struct cli *cli, const struct parsed *args)
{
	struct service s = {.cli = cli, .args = args};
	int interrupted = 0, code;
	int rc = read_handlers(&s);

	if (!rc && opt_given(args, "retry-max-delay") &&
	    opt_num(args, "retry-max-delay") < opt_num(args, "retry-delay"))
		rc = cli_usage(cli, "--retry-max-delay is shorter than --retry-delay");
	rc = rc ? rc : jobstore_open(cli, args, &s.store);
	rc = rc ? rc : open_log(&s);
	rc = rc ? rc : start(&s);
	rc = rc ? rc : serve(&s, &interrupted);
	code = stop_all(&s);
	if (rc)
		return rc;
	/* A signal is the usual way to end a worker: it stopped cleanly, and that is success. */
	return interrupted && opt_flag(args, "drain") && !code ? cli_interrupted(cli) : code;
}

static const struct opt opts_table[] = {
	JOBSTORE_OPT_STORE,
	{.name = "type",
	 .letter = 't',
	 .kind = OPT_STRING,
	 .arg = "NAME=COMMAND",
	 .required = 1,
	 .repeat = 1,
	 .help = "Serve this type with this command, split into words (quotes keep words together, nothing is "
		 "expanded). "
		 "NAME alone: the job's input names the command, as 'sluice run --detach' makes it"},
	{.name = "shell", .kind = OPT_FLAG, .help = "Give the commands to /bin/sh -c instead"},
	{.name = "pass-env",
	 .kind = OPT_STRING,
	 .arg = "NAME",
	 .repeat = 1,
	 .help = "Leave this variable in the environment of commands, although it is a secret of Sluice's: PGPASSWORD, "
		 "the password in SLUICE_STORE, SLUICE_…TOKEN…"},
	{.name = "slots",
	 .letter = 'n',
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "1",
	 .min = 1,
	 .max = 10000,
	 .help = "Commands at once"},
	{.name = "lease",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "60s",
	 .min = 100,
	 .max = 86400000,
	 .help = "How long a job stays with a worker that is not heard of; renewed every third of it"},
	{.name = "timeout",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "0",
	 .min = 0,
	 .max = INT64_C(31536000000),
	 .help = "End a command that runs longer; 0: never"},
	{.name = "max-attempts",
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "0",
	 .min = 0,
	 .max = 1000000,
	 .help = "A job that failed so often has failed for good; 0: it is tried again for ever"},
	{.name = "retry-delay",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "10s",
	 .min = 1,
	 .max = 86400000,
	 .help = "Before the second attempt; doubles with each further one"},
	{.name = "retry-max-delay",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "300s",
	 .min = 1,
	 .max = INT64_C(31536000000),
	 .help = "The longest delay between attempts"},
	{.name = "poll",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "60s",
	 .min = 10,
	 .max = 86400000,
	 .help = "Look for jobs at least so often, also without a notification"},
	{.name = "drain",
	 .kind = OPT_FLAG,
	 .help = "Exit when nothing of these types is due, awaiting a retry or running anywhere, and all output is "
		 "sent"},
	{.name = "id", .kind = OPT_STRING, .arg = "NAME", .help = "The worker's name (default a random UUID)"},
	WORKERLOG_OPT_WAL,
	WORKERLOG_OPTS_SERVER,
	{.name = "kill-grace",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "5s",
	 .min = 1,
	 .max = 3600000,
	 .help = "Between SIGTERM and SIGKILL for a command that is to end"},
	{.name = "stop-grace",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "30s",
	 .min = 0,
	 .max = 86400000,
	 .help = "How long running commands may take to finish when the worker stops"},
	{.name = "flush-timeout",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "30s",
	 .min = 0,
	 .max = 86400000,
	 .help = "How long to try to bring the last output into the store at the end"},
	JOBSTORE_OPT_JSON,
	{.name = NULL},
};

const struct command cmd_worker = {
	.name = "worker",
	.operands = "",
	.summary = "run commands for jobs",
	.opts = opts_table,
	.description =
		"A command gets the job's input on stdin and SLUICE_JOB_ID, SLUICE_CHAIN_ID, SLUICE_ATTEMPT and "
		"SLUICE_TYPE in its environment, which is the worker's without the secrets that are Sluice's own "
		"(--pass-env). What it writes to stdout and stderr is kept line by line ('sluice "
		"jobs logs'). Lines of JSON on descriptor 3 say more: {\"output\":…}, {\"continue_with\":{\"type\":…,"
		"\"input\":…}}, {\"progress\":…}, {\"reschedule_in_ms\":…}, {\"fail\":\"…\"}. Exit 0 completes the "
		"job, 75 "
		"tries again without counting, anything else is a failed attempt. SIGTERM or SIGINT stops the worker: "
		"what runs may finish, what was not started goes back.",
	.example = "sluice worker --type mail='/usr/local/bin/send-mail --fast' --slots 4\n"
		   "sluice worker --type resize=./resize.sh --max-attempts 5 --timeout 2m --drain",
	.run = run,
};
