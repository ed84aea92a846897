/* SPDX-License-Identifier: Apache-2.0 */
/* A job queue inside a program: start a chain, run its two jobs on two slots, wait for the output. */
#include <sluice/worker.h>
#include <stdio.h>

/* Runs at least once. Its end and the next job of the chain are one transaction. */
static int fetch(sl_attempt *attempt, struct sl_err *err, void *ctx)
{
	(void)ctx;
	const struct sl_job *job = sl_attempt_job(attempt);
	printf("fetch %s, attempt %d\n", job->input, (int)job->attempt);
	const struct sl_new_job next = {.type = "count", .input = "[1, 2, 3]"};
	return sl_attempt_continue(attempt, &next, err);
}

static int count(sl_attempt *attempt, struct sl_err *err, void *ctx)
{
	(void)ctx;
	printf("count %s\n", sl_attempt_job(attempt)->input);
	return sl_attempt_complete(attempt, "3", err);
}

int main(void)
{
	struct sl_err err = SL_ERR_INIT;
	sl_store store = {0};
	sl_notify notify = {0};
	sl_jobs *client = NULL;
	sl_worker *worker = NULL;
	struct sl_chain *ended = NULL;
	struct sl_started started;
	const struct sl_new_chain chain = {.job = {.type = "fetch", .input = "\"page-1\""}};
	const struct sl_processor processors[] = {{SL_PROCESSOR_INIT, .type = "fetch", .process = fetch},
						  {SL_PROCESSOR_INIT, .type = "count", .process = count}};
	const struct sl_jobs_opts jobs_opts = {SL_JOBS_OPTS_INIT, .store = &store, .notify = &notify};
	const struct sl_worker_opts worker_opts = {
		SL_WORKER_OPTS_INIT,      .store = &store,   .notify = &notify,
		.processors = processors, .n_processors = 2, .slots = 2,
	};

	if (sl_store_open(&store, "sqlite:jobs.db", NULL, &err) != 0 ||
	    sl_notify_local_open(&notify, NULL, &err) != 0 || sl_jobs_open(&client, &jobs_opts, &err) != 0 ||
	    sl_worker_new(&worker, &worker_opts, &err) != 0 || sl_worker_start(worker, &err) != 0 ||
	    sl_jobs_enqueue(client, NULL, &chain, &started, &err) != 0 || /* durable from here on */
	    sl_jobs_wait(client, started.chain_id, 10000, &ended, &err) != 0)
		fprintf(stderr, "%s\n", err.msg);
	else
		printf("%s: %s\n", sl_job_status_name(ended->status), ended->output);
	sl_chain_release(client, ended);
	sl_worker_free(worker); /* stops it */
	sl_jobs_close(client);
	sl_notify_close(&notify);
	sl_store_close(&store);
	return err.code != 0;
}
