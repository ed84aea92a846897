/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice worker: run commands for jobs. Each --type names a type and the command that handles it; the worker claims
 * jobs of these types, runs at most --slots at once, and keeps every line they write.
 */
#include "commands.h"
#include "jobstore.h"
#include "stop.h"
#include "text.h"
#include "words.h"
#include "workerlog.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TYPES_MAX 64
#define DRAIN_LOOK_MS 250

struct handler {
	char *name;
	char **argv; /* NULL: the job's input names the command */
	const char *shell_argv[4];
	sl_exec *exec;
};

struct service {
	struct cli *cli;
	const struct parsed *args;
	struct jobstore store;
	struct workerlog log;
	struct handler handlers[TYPES_MAX];
	size_t n;
	sl_worker *worker;
};

/* "NAME=COMMAND…" or "NAME". */
static int read_handler(struct service *s, const char *text, struct handler *h)
{
	const char *equals = strchr(text, '=');
	const char *error = NULL;

	h->name = strndup(text, equals ? (size_t)(equals - text) : strlen(text));
	if (!h->name)
		return cli_usage(s->cli, "out of memory");
	if (!*h->name)
		return cli_usage(s->cli, "--type: '%.100s' has no name before the '='", text);
	if (equals && opt_flag(s->args, "shell")) {
		h->shell_argv[0] = "/bin/sh", h->shell_argv[1] = "-c", h->shell_argv[2] = equals + 1;
		return equals[1] ? 0 : cli_usage(s->cli, "--type %s: the command is empty", h->name);
	}
	if (equals)
		h->argv = words_split(equals + 1, &error);
	return error ? cli_usage(s->cli, "--type %s: the command: %s", h->name, error) : 0;
}

static int read_handlers(struct service *s)
{
	const char *text;
	int rc = 0;

	while (!rc && (text = opt_all(s->args, "type", (int)s->n)) != NULL) {
		if (s->n == TYPES_MAX)
			return cli_usage(s->cli, "more than %d types", TYPES_MAX);
		rc = read_handler(s, text, &s->handlers[s->n]);
		s->n++;
	}
	for (size_t i = 0; !rc && i < s->n; i++) {
		for (size_t k = 0; k < i; k++) {
			if (strcmp(s->handlers[i].name, s->handlers[k].name) == 0)
				rc = cli_usage(s->cli, "--type %s is given twice", s->handlers[i].name);
		}
	}
	return rc;
}

static int make_exec(struct service *s, struct handler *h, struct sl_err *err)
{
	struct sl_exec_opts opts = {
		SL_EXEC_OPTS_INIT,
		.env = &s->cli->env,
		.argv = h->shell_argv[0] ? h->shell_argv : (const char *const *)h->argv,
		.events = s->log.wal,
		.spool_dir = s->log.spool,
		.kill_grace_ms = opt_num(s->args, "kill-grace"),
	};

	return sl_exec_new(&h->exec, &opts, err);
}

static void fill_processor(const struct service *s, const struct handler *h, struct sl_processor *p)
{
	const struct parsed *args = s->args;

	*p = (struct sl_processor){SL_PROCESSOR_INIT, .type = h->name, .process = sl_exec_process, .ctx = h->exec};
	p->lease_ms = opt_num(args, "lease");
	p->timeout_ms = opt_num(args, "timeout");
	p->retry.first_ms = opt_num(args, "retry-delay");
	p->retry.cap_ms = opt_num(args, "retry-max-delay");
	if (p->retry.cap_ms < p->retry.first_ms)
		p->retry.cap_ms = p->retry.first_ms; /* the default cap; run has refused another one */
	p->retry.max_attempts = (int32_t)opt_num(args, "max-attempts");
	if (!h->argv && !h->shell_argv[0])
		p->retry.max_attempts = 1; /* a command that somebody ran once */
}

static int is_news(enum sl_observe_kind kind)
{
	return kind == SL_OBSERVE_ATTEMPT_FAILED || kind == SL_OBSERVE_ATTEMPT_ABORTED ||
	       kind == SL_OBSERVE_JOB_FAILED || kind == SL_OBSERVE_LEASE_LOST;
}

/* On whichever thread. */
static void on_observation(const struct sl_observation *o, void *ctx)
{
	struct service *s = ctx;
	const char *why = o->err ? o->err->msg : "";

	/* A job that was reaped had a worker that died, perhaps with output that is not sent. */
	if (o->kind == SL_OBSERVE_JOB_REAPED)
		workerlog_nudge(&s->log);
	if (o->kind == SL_OBSERVE_WORKER_STOPPING)
		cli_say(s->cli, SL_LOG_INFO, "stopping; nothing more is started");
	if (o->kind == SL_OBSERVE_WORKER_ERROR)
		cli_say(s->cli, SL_LOG_WARN, "%s", why);
	else if (is_news(o->kind))
		cli_say(s->cli, SL_LOG_INFO, "job %" PRIu64 ", attempt %d: %s%s%s", o->id, o->attempt,
			sl_observe_name(o->kind), *why ? ": " : "", why);
}

static int start(struct service *s)
{
	struct sl_processor processors[TYPES_MAX];
	struct sl_err err = SL_ERR_INIT;
	char types[TEXT_COUNT_BYTES], slots[TEXT_COUNT_BYTES];
	struct sl_worker_opts opts = {
		SL_WORKER_OPTS_INIT,
		.env = &s->cli->env,
		.store = &s->store.store,
		.notify = s->store.notify.ops ? &s->store.notify : NULL,
		.worker_id = opt_str(s->args, "id"),
		.processors = processors,
		.n_processors = s->n,
		.slots = (int32_t)opt_num(s->args, "slots"),
		.poll_interval_ms = opt_num(s->args, "poll"),
		.events = s->log.wal,
		.observe = on_observation,
		.observe_ctx = s,
	};

	for (size_t i = 0; i < s->n; i++) {
		if (make_exec(s, &s->handlers[i], &err))
			return cli_fail(s->cli, &err, s->handlers[i].name);
		fill_processor(s, &s->handlers[i], &processors[i]);
	}
	if (sl_worker_new(&s->worker, &opts, &err) || sl_worker_start(s->worker, &err))
		return jobstore_fail(s->cli, s->args, &err);
	cli_say(s->cli, SL_LOG_INFO, "worker %s serves %s with %s", sl_worker_id(s->worker),
		text_count(types, s->n, "type"), text_count(slots, (uint64_t)opts.slots, "slot"));
	return 0;
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
			rc = sl_worker_drain(s->worker, DRAIN_LOOK_MS, &err);
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

	sl_worker_get_stats(s->worker, &st);
	if (opt_flag(s->args, "json"))
		out_printf(&s->cli->out,
			   "{\"worker\":\"%s\",\"claimed\":%" PRIu64 ",\"completed\":%" PRIu64 ",\"retried\":%" PRIu64
			   ",\"failed\":%" PRIu64 ",\"lost\":%" PRIu64 ",\"reaped\":%" PRIu64 ",\"released\":%" PRIu64
			   "}\n",
			   sl_worker_id(s->worker), st.claimed, st.completed, st.retried, st.failed, st.lost, st.reaped,
			   st.released);
	else
		cli_say(s->cli, SL_LOG_INFO,
			"%" PRIu64 " completed, %" PRIu64 " to be tried again, %" PRIu64 " failed, %" PRIu64 " lost",
			st.completed, st.retried, st.failed, st.lost);
}

static int stop_all(struct service *s)
{
	int64_t grace = opt_num(s->args, "stop-grace");
	struct sl_err err = SL_ERR_INIT;
	int rc = EXIT_OK, code;

	if (s->worker && sl_worker_stop(s->worker, grace, &err)) {
		cli_say(s->cli, SL_LOG_WARN, "stopping: %s", err.msg);
		rc = EXIT_INTERRUPTED;
	}
	if (s->worker)
		print_summary(s);
	sl_worker_free(s->worker);
	for (size_t i = 0; i < s->n; i++) {
		sl_exec_free(s->handlers[i].exec);
		words_free(s->handlers[i].argv);
		free(s->handlers[i].name);
	}
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
	rc = rc ? rc : workerlog_open(cli, args, &s.store, NULL, &s.log);
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
		"SLUICE_TYPE in its environment. What it writes to stdout and stderr is kept line by line ('sluice "
		"jobs logs'). Lines of JSON on descriptor 3 say more: {\"output\":…}, {\"continue_with\":{\"type\":…,"
		"\"input\":…}}, {\"progress\":…}, {\"reschedule_in_ms\":…}, {\"fail\":\"…\"}. Exit 0 completes the "
		"job, 75 "
		"tries again without counting, anything else is a failed attempt. SIGTERM or SIGINT stops the worker: "
		"what runs may finish, what was not started goes back.",
	.example = "sluice worker --type mail='/usr/local/bin/send-mail --fast' --slots 4\n"
		   "sluice worker --type resize=./resize.sh --max-attempts 5 --timeout 2m --drain",
	.run = run,
};
