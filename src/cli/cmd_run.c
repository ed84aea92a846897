/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice run: a command as a job. It is enqueued, run in a slot of this process, its output shown as it comes and kept
 * like any job's, and its exit code is ours. The type is the process's own, so that no other worker takes it.
 */
#include "commands.h"
#include "jobstore.h"
#include "waiting.h"
#include "workerlog.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define DETACHED_TYPE "run"
#define NOT_STARTED 127
#define STOP_MS 10000 /* for the worker to settle what has ended */

struct once {
	struct cli *cli;
	const struct parsed *args;
	struct jobstore store;
	struct workerlog log;
	sl_exec *exec;
	sl_worker *worker;
	char type[64];
	const char *key; /* by which a process that finds our log without us finds the job */
	uint64_t chain;
	struct waiting waiting;
	int completed[2];      /* a pipe: the job, not yet the chain, has completed */
	int goes_on;           /* the chain does, without us: the wait for its end is not over */
	_Atomic int exit_code; /* of the command; -1: not known */
};

/* {"argv":[…],"cwd":"…"}; NULL without memory or when an argument is not UTF-8. */
static char *make_input(const struct parsed *args)
{
	json_t *argv = json_array(), *object = NULL;
	char *cwd = getcwd(NULL, 0), *text = NULL;
	int bad = 0;

	for (int i = 0; i < args->n_operands; i++)
		bad |= json_array_append_new(argv, json_string(args->operands[i]));
	object = json_pack("{s:o}", "argv", argv);
	if (cwd && object)
		json_object_set_new(object, "cwd", json_string(cwd)); /* left out when it is not UTF-8 */
	if (!bad && object)
		text = json_dumps(object, JSON_COMPACT);
	json_decref(object);
	free(cwd);
	return text;
}

static int enqueue(struct once *o)
{
	struct sl_new_chain chain = {.job = {.type = o->type, .traceparent = getenv("TRACEPARENT")}, .key = o->key};
	char *input = make_input(o->args);
	struct sl_started started = {0};
	struct sl_err err = SL_ERR_INIT;
	int rc;

	if (!input) {
		cli_say(o->cli, SL_LOG_ERROR, "the command is not valid UTF-8");
		return EXIT_BAD_DATA;
	}
	chain.job.input = input;
	rc = sl_jobs_start(o->store.client, NULL, &chain, &started, &err);
	o->chain = started.chain_id;
	free(input);
	return rc ? jobstore_fail(o->cli, o->args, &err) : 0;
}

static void write_all(int fd, const char *data, size_t n)
{
	while (n > 0) {
		ssize_t w = write(fd, data, n);

		if (w < 0 && errno != EINTR)
			return;
		if (w > 0) {
			data += w;
			n -= (size_t)w;
		}
	}
}

static void on_exited(struct once *o, const struct sl_event *event)
{
	json_t *status = json_loadb(event->data, event->len, 0, NULL);
	json_t *code = json_object_get(status, "code"), *sig = json_object_get(status, "signal");

	if (json_is_integer(code))
		o->exit_code = (int)json_integer_value(code);
	else if (json_is_integer(sig))
		o->exit_code = 128 + (int)json_integer_value(sig);
	json_decref(status);
}

/* Runs on the slot's thread; the main thread prints nothing meanwhile. */
static void on_event(const struct sl_event *event, void *ctx)
{
	struct once *o = ctx;
	int fd = event->type == SL_EVENT_STDERR ? STDERR_FILENO : STDOUT_FILENO;

	if (event->type == SL_EVENT_EXITED)
		on_exited(o, event);
	if (event->type != SL_EVENT_STDOUT && event->type != SL_EVENT_STDERR)
		return;
	write_all(fd, event->data, event->len);
	if (!event->partial)
		write_all(fd, "\n", 1);
}

/* On a thread of the worker. */
static void on_observation(const struct sl_observation *seen, void *ctx)
{
	struct once *o = ctx;

	if (seen->kind == SL_OBSERVE_JOB_COMPLETED && seen->id == o->chain)
		(void)!write(o->completed[1], "c", 1);
}

static int start(struct once *o)
{
	struct sl_exec_opts exec = {SL_EXEC_OPTS_INIT,         .env = &o->cli->env, .events = o->log.wal,
				    .spool_dir = o->log.spool, .tap = on_event,     .tap_ctx = o,
				    .reschedule = SL_OFF};
	struct sl_processor processor = {SL_PROCESSOR_INIT, .type = o->type, .process = sl_exec_process,
					 .retry = {.max_attempts = 1}};
	struct sl_worker_opts opts = {SL_WORKER_OPTS_INIT,
				      .env = &o->cli->env,
				      .store = &o->store.store,
				      .notify = o->store.notify.ops ? &o->store.notify : NULL,
				      .processors = &processor,
				      .n_processors = 1,
				      .slots = 1,
				      .events = o->log.wal,
				      .observe = on_observation,
				      .observe_ctx = o};
	struct sl_err err = SL_ERR_INIT;

	if (pipe2(o->completed, O_CLOEXEC | O_NONBLOCK)) {
		cli_say(o->cli, SL_LOG_ERROR, "a pipe: %s", strerror(errno));
		return EXIT_INTERNAL;
	}
	if (sl_exec_new(&o->exec, &exec, &err))
		return cli_fail(o->cli, &err, NULL);
	processor.ctx = o->exec;
	if (sl_worker_new(&o->worker, &opts, &err) || sl_worker_start(o->worker, &err))
		return jobstore_fail(o->cli, o->args, &err);
	return 0;
}

/* The command's own code. When that says nothing of a failure, one that does: it was not started, as a shell has it, or
 * it exited with 0 and yet said on descriptor 3 that it failed. */
static int code_of(struct once *o, const struct sl_chain *chain)
{
	if (o->exit_code > 0)
		return o->exit_code;
	if (chain->status == SL_JOB_COMPLETED)
		return EXIT_OK;
	cli_say(o->cli, SL_LOG_ERROR, "job %" PRIu64 " is %s%s%s", o->chain, sl_job_status_name(chain->status),
		chain->error ? ": " : "", chain->error ? chain->error : "");
	return o->exit_code < 0 ? NOT_STARTED : EXIT_BAD_DATA;
}

/* Our part is done, but the command continued the chain: that takes a worker, which we are not. 1: it was reported. */
static int tell_continuation(struct once *o)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_job *job = NULL, *next = NULL;
	int rc = sl_jobs_get(o->store.client, o->chain, &job, &err);

	if (!rc && job->next_id)
		rc = sl_jobs_get(o->store.client, job->next_id, &next, &err);
	if (next)
		cli_say(o->cli, SL_LOG_WARN,
			"the chain continues as job %" PRIu64
			" of type %s, for a worker that serves it; 'sluice jobs wait "
			"%" PRIu64 "' waits for its end",
			next->id, next->type, o->chain);
	rc = next != NULL;
	sl_jobs_free(o->store.client, job);
	sl_jobs_free(o->store.client, next);
	return rc;
}

/* Until the chain has ended, or continues without us; a signal cancels it, which ends the command. */
static int await(struct once *o)
{
	struct sl_err err = SL_ERR_INIT;
	struct waiting *w = &o->waiting;
	int interrupted = 0, what;
	int rc = waiting_start(w, o->cli, o->store.client, o->chain, SL_UNLIMITED);

	if (rc)
		return rc;
	what = waiting_until_signal_or(w, o->completed[0]);
	if (what == 2) {
		o->goes_on = tell_continuation(o);
		if (o->goes_on)
			return o->exit_code;
		what = waiting_until_signal(w);
	}
	if (what == 0) {
		size_t n;

		interrupted = 1;
		if (sl_jobs_cancel(o->store.client, NULL, &o->chain, 1, &n, &err))
			waiting_abandon(o->cli, jobstore_fail(o->cli, o->args, &err));
	}
	waiting_join(w);
	if (w->rc)
		return jobstore_fail(o->cli, o->args, &w->err);
	rc = interrupted ? cli_interrupted(o->cli) : code_of(o, w->chain);
	sl_jobs_free(o->store.client, w->chain);
	return rc;
}

/* A name of our own for the type, the job's key and the log. */
static int open_log(struct once *o)
{
	struct workerlog_opts opts;
	char id[64];
	uint64_t random = 0;
	int rc = workerlog_read_opts(o->cli, o->args, &opts);

	if (rc)
		return rc;
	(void)!getrandom(&random, sizeof(random), 0);
	(void)snprintf(o->type, sizeof(o->type), WORKERLOG_RUN_TYPE "%x-%016" PRIx64, (unsigned)getpid(), random);
	(void)snprintf(id, sizeof(id), WORKERLOG_RUN_STREAM "%x-%016" PRIx64, (unsigned)getpid(), random);
	o->key = o->type;
	opts.id = id;
	return workerlog_open(o->cli, NULL, &o->store, &opts, &o->log);
}

static int run_here(struct once *o)
{
	struct sl_err err = SL_ERR_INIT;
	int rc = open_log(o), code;

	rc = rc ? rc : enqueue(o);
	rc = rc ? rc : start(o);
	rc = rc ? rc : await(o);
	if (o->worker && sl_worker_stop(o->worker, STOP_MS, &err) && !rc)
		rc = cli_fail(o->cli, &err, NULL);
	sl_worker_free(o->worker);
	sl_exec_free(o->exec);
	code = o->log.cli ? workerlog_close(&o->log, opt_num(o->args, "flush-timeout")) : 0;
	return rc || o->exit_code == 0 ? rc : code; /* what is not sent yet was said, and does not fail the command */
}

static int run(struct cli *cli, const struct parsed *args)
{
	struct once o = {.cli = cli, .args = args, .exit_code = -1, .completed = {-1, -1}};
	int rc = jobstore_open(cli, args, &o.store);

	if (!rc && opt_flag(args, "detach")) {
		(void)snprintf(o.type, sizeof(o.type), "%s", DETACHED_TYPE);
		rc = enqueue(&o);
		if (!rc)
			out_printf(&cli->out, "%" PRIu64 "\n", o.chain);
	} else if (!rc) {
		rc = run_here(&o);
		if (o.goes_on)
			waiting_abandon(cli, rc);
	}
	jobstore_close(&o.store);
	return rc;
}

static const struct opt opts_table[] = {
	JOBSTORE_OPT_STORE,
	{.name = "detach",
	 .letter = 'd',
	 .kind = OPT_FLAG,
	 .help = "Only enqueue it, as type 'run', for a 'sluice worker --type run' anywhere; print the job's id"},
	WORKERLOG_OPT_WAL,
	WORKERLOG_OPTS_SERVER,
	{.name = "flush-timeout",
	 .kind = OPT_DURATION,
	 .arg = "TIME",
	 .def = "30s",
	 .min = 0,
	 .max = 86400000,
	 .help = "How long to try to bring the last output into the store at the end"},
	{.name = NULL},
};

const struct command cmd_run = {
	.name = "run",
	.operands = "COMMAND…",
	.summary = "run a command as a job, with its output kept",
	.opts = opts_table,
	.description =
		"Enqueues the command with one attempt, runs it in this process, shows its output as it comes "
		"and exits "
		"with its code (128 and the signal's number when a signal ended it, 127 when it could not be "
		"started). Put '--' before a command "
		"that has "
		"options. The output stays readable with 'sluice jobs logs'. SIGINT and SIGTERM cancel the job. "
		"A command that continues its chain ends this run: the next job, which is reported on standard error, "
		"is for a worker.",
	.example = "sluice run -- make -C /srv/site all",
	.empty_ok = 1,
	.run = run,
};
