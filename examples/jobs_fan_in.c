/* SPDX-License-Identifier: Apache-2.0 */
/* Fan-out and fan-in: three chains run side by side, and a fourth starts when all of them have completed. */
#include <sluice/worker.h>
#include <stdio.h>
#include <stdlib.h>

static int square(sl_attempt *attempt, struct sl_err *err, void *ctx)
{
	(void)ctx;
	long n = atol(sl_attempt_job(attempt)->input);
	char output[32];
	snprintf(output, sizeof(output), "%ld", n * n);
	return sl_attempt_complete(attempt, output, err);
}

static int add(const struct sl_chain *blocker, void *total)
{
	printf("%s squared is %s\n", blocker->input, blocker->output);
	*(long *)total += atol(blocker->output);
	return 0;
}

static int sum(sl_attempt *attempt, struct sl_err *err, void *ctx)
{
	(void)ctx;
	long total = 0;
	char output[32];
	if (sl_attempt_blockers(attempt, add, &total, err) != 0) /* in the order in which they were given */
		return err->code;
	snprintf(output, sizeof(output), "%ld", total);
	return sl_attempt_complete(attempt, output, err);
}

static int start_all(sl_jobs *client, struct sl_started *last, struct sl_err *err)
{
	const struct sl_new_chain squares[] = {{.job = {.type = "square", .input = "3"}},
					       {.job = {.type = "square", .input = "4"}},
					       {.job = {.type = "square", .input = "5"}}};
	struct sl_started s[3];
	if (sl_jobs_enqueue_many(client, NULL, squares, 3, s, err) != 0)
		return err->code;
	const uint64_t ids[] = {s[0].chain_id, s[1].chain_id, s[2].chain_id};
	const struct sl_new_chain chain = {.job = {.type = "sum", .blockers = ids, .n_blockers = 3}};
	return sl_jobs_enqueue(client, NULL, &chain, last, err);
}

int main(void)
{
	struct sl_err err = SL_ERR_INIT;
	sl_store store = {0};
	sl_jobs *client = NULL;
	sl_worker *worker = NULL;
	struct sl_chain *ended = NULL;
	struct sl_started last;
	const struct sl_processor processors[] = {{SL_PROCESSOR_INIT, .type = "square", .process = square},
						  {SL_PROCESSOR_INIT, .type = "sum", .process = sum}};
	const struct sl_jobs_opts jobs_opts = {SL_JOBS_OPTS_INIT, .store = &store};
	const struct sl_worker_opts worker_opts = {SL_WORKER_OPTS_INIT, .store = &store, .processors = processors,
						   .n_processors = 2, .slots = 3};

	if (sl_store_open(&store, "sqlite:jobs.db", NULL, &err) != 0 || sl_jobs_open(&client, &jobs_opts, &err) != 0 ||
	    start_all(client, &last, &err) != 0 || sl_worker_new(&worker, &worker_opts, &err) != 0 ||
	    sl_worker_start(worker, &err) != 0 || sl_jobs_wait(client, last.chain_id, 10000, &ended, &err) != 0)
		fprintf(stderr, "%s\n", err.msg);
	else
		printf("sum: %s\n", ended->output);
	sl_chain_release(client, ended);
	sl_worker_free(worker);
	sl_jobs_close(client);
	sl_store_close(&store);
	return err.code != 0;
}
