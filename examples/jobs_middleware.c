/* SPDX-License-Identifier: Apache-2.0 */
/* Contextual logging: a middleware around every attempt says which job a line of the log belongs to. */
#include <inttypes.h>
#include <sluice/worker.h>
#include <stdio.h>
#include <threads.h>

/* A slot runs one attempt at a time, so its thread can carry the context. */
static thread_local const struct sl_job *current;
static thread_local const char *worker_name;

static void say(const char *text)
{
	printf("[%s job=%" PRIu64 " type=%s attempt=%d] %s\n", worker_name, current->id, current->type,
	       (int)current->attempt, text);
}

static int with_context(sl_attempt *attempt, const char *worker_id, sl_next_fn *next, void *next_ctx,
			struct sl_err *err, void *ctx)
{
	(void)ctx;
	current = sl_attempt_job(attempt);
	worker_name = worker_id;
	say("begins");
	int rc = next(err, next_ctx); /* the other middlewares, then the handler */
	say(rc == 0 ? "is done" : err->msg);
	current = NULL;
	return rc;
}

/* Knows nothing of the context, and fails the first time. */
static int greet(sl_attempt *attempt, struct sl_err *err, void *ctx)
{
	(void)ctx;
	say("says hello");
	return sl_attempt_job(attempt)->attempt > 1 ? 0 : sl_err_set(err, SL_EAGAIN, "no answer");
}

int main(void)
{
	const struct sl_processor greeter = {SL_PROCESSOR_INIT, .type = "greet", .process = greet,
					     .retry = {.first_ms = 10}}; /* the default is 10 s */
	const struct sl_middleware middleware = {.fn = with_context};
	const struct sl_new_chain chain = {.job = {.type = "greet"}};
	struct sl_started started;
	struct sl_err err = SL_ERR_INIT;
	sl_store store = {0};
	sl_jobs *client = NULL;
	sl_worker *worker = NULL;
	const struct sl_jobs_opts jobs_opts = {SL_JOBS_OPTS_INIT, .store = &store};
	const struct sl_worker_opts worker_opts = {SL_WORKER_OPTS_INIT, .store = &store,
						   .worker_id = "w1",   .processors = &greeter,
						   .n_processors = 1,   .middlewares = &middleware,
						   .n_middlewares = 1};

	if (sl_store_open(&store, "sqlite:jobs.db", NULL, &err) != 0 || sl_jobs_open(&client, &jobs_opts, &err) != 0 ||
	    sl_jobs_enqueue(client, NULL, &chain, &started, &err) != 0 ||
	    sl_worker_new(&worker, &worker_opts, &err) != 0 || sl_worker_start(worker, &err) != 0 ||
	    sl_worker_drain(worker, 10000, &err) != 0 || sl_worker_stop(worker, 10000, &err) != 0)
		fprintf(stderr, "%s\n", err.msg);
	sl_worker_free(worker);
	sl_jobs_close(client);
	sl_store_close(&store);
	return err.code != 0;
}
