/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice run: a command as a job. It is enqueued, run in a slot of this process, its output shown as it comes and kept
 * like any job's, and its exit code is ours. The type is the process's own, so that no other worker takes it.
 */
#include "commands.h"
#include "jobstore.h"
#include "stop.h"
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
#define BY_SIGNAL 128 /* and the signal's number */
#define STOP_MS 10000 /* for the worker to report what has ended to the store */

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
	bool continues;        /* the chain does, without us: the wait for its end is not over */
	_Atomic int exit_code; /* of the command; -1: not known */
};

static int enqueue_command(struct once *o)
{
	struct sl_new_chain chain = {.job = {.type = o->type, .traceparent = getenv("TRACEPARENT")}, .key = o->key};
	json_t *argv = json_array(), *object = NULL;
	char *cwd = getcwd(NULL, 0), *input = NULL;
	struct sl_started started = {0};
	struct sl_err err = SL_ERR_INIT;
	bool bad = false;
	int rc;

	/* {"argv":[…],"cwd":"…"} */
	for (int i = 0; i < o->args->n_operands; i++)
		bad |= json_array_append_new(argv, json_string(o->args->operands[i])) != 0;
	object = json_pack("{s:o}", "argv", argv);
	if (cwd != NULL && object != NULL)
		json_object_set_new(object, "cwd", json_string(cwd)); /* left out when it is not UTF-8 */
	if (!bad && object != NULL)
		input = json_dumps(object, JSON_COMPACT);
	json_decref(object);
	free(cwd);
	if (input == NULL) {
		cli_say(o->cli, SL_LOG_ERROR, "the command is not valid UTF-8");
		return EXIT_BAD_DATA;
	}
	chain.job.input = input;
	rc = sl_jobs_enqueue(o->store.client, NULL, &chain, &started, &err);
	o->chain = started.chain_id;
	free(input);
	if (rc != 0)
		return jobstore_fail(o->cli, o->args, &err);
	return 0;
}

static void write_all(int fd, const char *data, size_t n)
{
	/* A terminal or pipe that is broken does not end the command: its output is kept in any case. */
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

/* Called on the slot's thread; the main thread prints nothing meanwhile. */
static void on_event(const struct sl_event *event, void *ctx)
{
	struct once *o = ctx;
	int fd = event->type == SL_EVENT_STDERR ? STDERR_FILENO : STDOUT_FILENO;

	if (event->type == SL_EVENT_EXITED) {
		json_t *status = json_loadb(event->data, event->len, 0, NULL);
		json_t *code = json_object_get(status, "code"), *sig = json_object_get(status, "signal");

		if (json_is_integer(code))
			o->exit_code = (int)json_integer_value(code);
		else if (json_is_integer(sig))
			o->exit_code = BY_SIGNAL + (int)json_integer_value(sig);
		json_decref(status);
	}
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

static int start_slot(struct once *o)
{
	struct sl_exec_opts exec = {SL_EXEC_OPTS_INIT,         .env = &o->cli->env, .events = o->log.wal,
				    .spool_dir = o->log.spool, .tap = on_event,     .tap_ctx = o,
				    .reschedule = SL_OFF};
	struct sl_processor processor = {SL_PROCESSOR_INIT, .type = o->type, .process = sl_exec_process,
					 .retry = {.max_attempts = 1}};
	struct sl_worker_opts opts = {SL_WORKER_OPTS_INIT,
				      .env = &o->cli->env,
				      .store = &o->store.store,
				      .notify = o->store.notify.ops != NULL ? &o->store.notify : NULL,
				      .processors = &processor,
				      .n_processors = 1,
				      .slots = 1,
				      .events = o->log.wal,
				      .observe = on_observation,
				      .observe_ctx = o};
	struct sl_err err = SL_ERR_INIT;

	/* The pipe by which the worker's thread wakes the main thread when the job has completed. */
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

/* The job has completed. Has its command continued the chain? The next job needs a worker, which this process is not:
 * report it. */
static bool report_continuation(struct once *o)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_job *job = NULL, *next = NULL;
	bool continues;

	if (!sl_jobs_get(o->store.client, o->chain, &job, &err) && job->next_id)
		(void)!sl_jobs_get(o->store.client, job->next_id, &next, &err);
	continues = next != NULL;
	if (next != NULL)
		cli_say(o->cli, SL_LOG_WARN,
			"the chain continues as job %" PRIu64 " of type %s, which needs a worker that serves the type; "
			"wait for the end with 'sluice jobs wait %" PRIu64 "'",
			next->id, next->type, o->chain);
	sl_job_release(o->store.client, job);
	sl_job_release(o->store.client, next);
	return continues;
}

/* Wait until the chain has ended, or continues without us; a signal cancels it, which ends the command. */
static int wait_for_command(struct once *o)
{
	struct sl_err err = SL_ERR_INIT;
	struct waiting *w = &o->waiting;
	bool interrupted = false;
	enum waiting_end end;
	int rc = waiting_start(w, o->cli, o->store.client, o->chain, SL_UNLIMITED);

	if (rc != 0)
		return rc;
	end = waiting_until_signal_or(w, o->completed[0]);
	if (end == WAITING_READABLE) {
		o->continues = report_continuation(o);
		if (o->continues)
			return o->exit_code;
		end = waiting_until_signal_or(w, -1);
	}
	if (end == WAITING_SIGNAL) {
		size_t n;

		interrupted = true;
		if (sl_jobs_cancel(o->store.client, NULL, &o->chain, 1, &n, &err))
			waiting_abandon(o->cli, jobstore_fail(o->cli, o->args, &err));
	}
	waiting_join(w);
	if (w->rc)
		return jobstore_fail(o->cli, o->args, &w->err);

	/* The command's own code. Where that does not show a failure, another one: 127 when it was not started, as a
	 * shell has it, 65 when it exited with 0 but reported a failure on descriptor 3. */
	if (interrupted && w->chain->status == SL_JOB_CANCELLED) {
		cli_say(o->cli, SL_LOG_ERROR, "cancelled; job %" PRIu64 " was stopped", o->chain);
		rc = BY_SIGNAL + stop_signal();
	} else if (o->exit_code > 0) {
		rc = o->exit_code;
	} else if (w->chain->status != SL_JOB_COMPLETED) {
		const char *error = w->chain->error;

		cli_say(o->cli, SL_LOG_ERROR, "job %" PRIu64 " is %s%s%s", o->chain,
			sl_job_status_name(w->chain->status), error != NULL ? ": " : "", error != NULL ? error : "");
		rc = o->exit_code < 0 ? NOT_STARTED : EXIT_BAD_DATA;
	}
	sl_chain_release(o->store.client, w->chain);
	return rc;
}

static int run_run(struct cli *cli, const struct parsed *args)
{
	struct once o = {.cli = cli, .args = args, .exit_code = -1, .completed = {-1, -1}};
	struct sl_err err = SL_ERR_INIT;
	struct workerlog_opts log;
	uint64_t random = 0;
	char id[64];
	int code, rc = jobstore_open(cli, args, JOBSTORE_CREATE, &o.store);

	/* Only enqueue it. */
	if (rc == 0 && opt_flag(args, "detach")) {
		(void)snprintf(o.type, sizeof(o.type), "%s", DETACHED_TYPE);
		rc = enqueue_command(&o);
		if (rc == 0)
			out_printf(&cli->out, "%" PRIu64 "\n", o.chain);
	}
	if (rc == 0 && !opt_flag(args, "detach"))
		rc = workerlog_read_opts(cli, args, &log);
	if (rc != 0 || opt_flag(args, "detach")) {
		jobstore_close(&o.store);
		return rc;
	}

	/* Run it here: one name for the type, the job's key and the log. */
	(void)!getrandom(&random, sizeof(random), 0);
	(void)snprintf(o.type, sizeof(o.type), WORKERLOG_RUN_TYPE "%x-%016" PRIx64, (unsigned)getpid(), random);
	(void)snprintf(id, sizeof(id), WORKERLOG_RUN_STREAM "%x-%016" PRIx64, (unsigned)getpid(), random);
	o.key = o.type;
	log.id = id;
	rc = workerlog_open(cli, NULL, &o.store, &log, &o.log);
	if (rc == 0)
		rc = enqueue_command(&o);
	if (rc == 0)
		rc = start_slot(&o);
	if (rc == 0)
		rc = wait_for_command(&o);

	/* In this order: the worker reports the end, the log delivers what is left, the store is closed. */
	if (o.worker != NULL && sl_worker_stop(o.worker, STOP_MS, &err) && rc == 0)
		rc = cli_fail(cli, &err, NULL);
	sl_worker_free(o.worker);
	sl_exec_free(o.exec);
	code = o.log.cli != NULL ? workerlog_close(&o.log, opt_num(args, "flush-timeout")) : 0;
	if (rc == 0 && o.exit_code != 0)
		rc = code; /* output that is not sent yet was reported, and does not fail the command */
	if (o.continues)
		waiting_abandon(cli, rc);
	jobstore_close(&o.store);
	return rc;
}

static const struct opt run_opts[] = {
	JOBSTORE_OPT_STORE,
	{.name = "detach",
	 .letter = 'd',
	 .kind = OPT_FLAG,
	 .help = "Only enqueue the command, as type 'run', for any 'sluice worker --type run'; print the job's id"},
	WORKERLOG_OPT_WAL,
	WORKERLOG_OPTS_SERVER,
	WORKERLOG_OPT_FLUSH_TIMEOUT,
	{.name = NULL},
};

const struct command cmd_run = {
	.name = "run",
	.operands = "COMMAND…",
	.summary = "run a command as a job and keep its output",
	.opts = run_opts,
	.description = "Enqueues the command with one attempt, runs it in this process, shows its output as it comes "
		       "and exits with its code (128 and the signal's number when a signal ended it, 127 when it could "
		       "not be started). Put '--' before a command that has options. 'sluice jobs logs' prints the "
		       "output later. Ctrl-C cancels the job and ends the command; the status is 130 (143 after "
		       "SIGTERM). If the command continues its chain, this run "
		       "ends, and a worker runs the next job, which is reported on standard error.",
	.example = "sluice run -- make -C /srv/site all\n"
		   "sluice run --detach -- ./nightly-report --full",
	.empty_ok = true,
	.run = run_run,
};
