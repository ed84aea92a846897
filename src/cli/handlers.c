/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of a worker and the worker that runs them. */
#include "handlers.h"

#include "handlerenv.h"
#include "text.h"
#include "words.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int read_handler(struct handlers *s, const char *text, struct handler *h)
{
	const char *equals = strchr(text, '=');
	const char *error = NULL;

	h->name = strndup(text, equals ? (size_t)(equals - text) : strlen(text));
	if (!h->name)
		return cli_usage(s->cli, "out of memory");
	if (!*h->name)
		return cli_usage(s->cli, "--type: '%.100s' has no name before the '='", text);
	if (equals && s->shell) {
		h->shell_argv[0] = "/bin/sh", h->shell_argv[1] = "-c", h->shell_argv[2] = equals + 1;
		return equals[1] ? 0 : cli_usage(s->cli, "--type %s: the command is empty", h->name);
	}
	if (!equals && !s->command_from_input)
		return cli_usage(
			s->cli,
			"--type %s: missing command; give %s=COMMAND, or --command-from-input to let the input "
			"of each job name it",
			h->name, h->name);
	if (equals)
		h->argv = words_split(equals + 1, &error);
	return error ? cli_usage(s->cli, "--type %s: the command: %s", h->name, error) : 0;
}

int handlers_add(struct handlers *h, const char *text)
{
	int rc;

	if (h->n == HANDLERS_MAX)
		return cli_usage(h->cli, "more than %d types", HANDLERS_MAX);
	rc = read_handler(h, text, &h->list[h->n]);
	h->n++;
	for (size_t k = 0; !rc && k + 1 < h->n; k++) {
		if (strcmp(h->list[h->n - 1].name, h->list[k].name) == 0)
			rc = cli_usage(h->cli, "--type %s is given twice", h->list[k].name);
	}
	return rc;
}

static int make_exec(struct handlers *s, const struct handlers_opts *o, struct handler *h, struct sl_err *err)
{
	struct sl_exec_opts opts = {
		SL_EXEC_OPTS_INIT,
		.env = s->env,
		.argv = h->shell_argv[0] ? h->shell_argv : (const char *const *)h->argv,
		.events = s->log->wal,
		.spool_dir = s->log->spool,
		.kill_grace_ms = o->kill_grace_ms,
		.environment = (const char *const *)s->environment,
		.run_as = o->run_as,
	};

	return sl_exec_new(&h->exec, &opts, err);
}

static void fill_processor(const struct handlers_opts *o, const struct handler *h, struct sl_processor *p)
{
	*p = (struct sl_processor){SL_PROCESSOR_INIT, .type = h->name, .process = sl_exec_process, .ctx = h->exec};
	p->lease_ms = o->lease_ms;
	p->renew_interval_ms = o->renew_interval_ms;
	p->timeout_ms = o->timeout_ms;
	p->retry.first_ms = o->initial_delay_ms;
	p->retry.cap_ms = o->max_delay_ms;
	if (p->retry.cap_ms < p->retry.first_ms)
		p->retry.cap_ms = p->retry.first_ms; /* the default cap; another one was refused */
	p->retry.max_attempts = (int32_t)o->max_attempts;
	if (!h->argv && !h->shell_argv[0])
		p->retry.max_attempts = 1; /* a command that a person ran once */
}

static int is_news(enum sl_observe_kind kind)
{
	return kind == SL_OBSERVE_ATTEMPT_FAILED || kind == SL_OBSERVE_ATTEMPT_ABORTED ||
	       kind == SL_OBSERVE_JOB_FAILED || kind == SL_OBSERVE_LEASE_LOST;
}

/* On whichever thread. */
static void on_observation(const struct sl_observation *o, void *ctx)
{
	struct handlers *s = ctx;
	const char *why = o->err ? o->err->msg : "";

	/* A job that was reaped had a worker that died, perhaps with output that is not sent. */
	if (o->kind == SL_OBSERVE_JOB_REAPED)
		workerlog_nudge(s->log);
	if (o->kind == SL_OBSERVE_WORKER_STOPPING)
		cli_say(s->cli, SL_LOG_INFO, "stopping; nothing more is started");
	if (is_news(o->kind))
		cli_say(s->cli, SL_LOG_INFO, "job %" PRIu64 ", attempt %d: %s%s%s", o->id, o->attempt,
			sl_observe_name(o->kind), *why ? ": " : "", why);
}

int handlers_start(struct handlers *h, const struct handlers_opts *o, struct jobstore *store, struct workerlog *log)
{
	struct sl_processor processors[HANDLERS_MAX];
	struct sl_err err = SL_ERR_INIT;
	char types[TEXT_COUNT_BYTES], slots[TEXT_COUNT_BYTES];
	struct sl_worker_opts opts = {
		SL_WORKER_OPTS_INIT,
		.env = h->env,
		.store = &store->store,
		.notify = store->notify.ops ? &store->notify : NULL,
		.worker_id = o->worker_id,
		.processors = processors,
		.n_processors = h->n,
		.slots = (int32_t)o->slots,
		.poll_interval_ms = o->poll_interval_ms,
		.events = log->wal,
		.observe = on_observation,
		.observe_ctx = h,
	};

	h->log = log;
	h->environment = handlerenv_make(environ, o->pass_env, o->n_pass_env);
	if (!h->environment)
		return cli_usage(h->cli, "out of memory");
	for (size_t i = 0; i < h->n; i++) {
		if (make_exec(h, o, &h->list[i], &err))
			return cli_fail(h->cli, &err, h->list[i].name);
		fill_processor(o, &h->list[i], &processors[i]);
	}
	if (sl_worker_new(&h->worker, &opts, &err) || sl_worker_start(h->worker, &err))
		return cli_fail(h->cli, &err, NULL);
	cli_say(h->cli, SL_LOG_INFO, "worker %s serves %s with %s", sl_worker_id(h->worker),
		text_count(types, h->n, "type"), text_count(slots, (uint64_t)o->slots, "slot"));
	return 0;
}

int handlers_stop(struct handlers *h, int64_t grace_ms)
{
	struct sl_err err = SL_ERR_INIT;

	if (!h->worker || !sl_worker_stop(h->worker, grace_ms, &err))
		return EXIT_OK;
	cli_say(h->cli, SL_LOG_WARN, "stopping: %s", err.msg);
	return EXIT_INTERRUPTED;
}

void handlers_fini(struct handlers *h)
{
	sl_worker_free(h->worker);
	for (size_t i = 0; i < h->n; i++) {
		sl_exec_free(h->list[i].exec);
		words_free(h->list[i].argv);
		free(h->list[i].name);
	}
	handlerenv_free(h->environment);
	h->environment = NULL;
	h->worker = NULL;
	h->n = 0;
}
