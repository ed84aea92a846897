/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers of several processes on PostgreSQL: a job that one process starts runs in another, which hears of it by a
 * notification. A second store and notifier act as another process, since they share only the server with the first.
 * The poll is longer than any test.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "jobs/notify/ops.h"
#include "jobs/pg_place.h"
#include "support/budget.h"
#include <sluice/worker.h>

#define PATIENCE_S 60
#define LEASE_MS 3600000

static struct pg_place place;
static struct sl_err err;

#define OK(call)                                                                                                       \
	do {                                                                                                           \
		if ((call) != 0)                                                                                       \
			fail_msg("%s: %s", #call, err.msg);                                                            \
	} while (0)

static atomic_int begun; /* handlers of all workers */

/* What one process has open. */
struct process {
	sl_store store;
	sl_notify notify;
	sl_jobs *client;
	sl_worker *worker;
};

static void open_process(struct process *p)
{
	*p = (struct process){.worker = NULL};
	assert_int_equal(pg_place_open(&place, &p->store, 8), 0);
	OK(sl_notify_postgres_open(&p->notify, pg_temp_url(place.server), NULL, &err));
	struct sl_jobs_opts opts = {SL_JOBS_OPTS_INIT, .store = &p->store, .notify = &p->notify};
	OK(sl_jobs_open(&p->client, &opts, &err));
}

static void close_process(struct process *p)
{
	sl_jobs_close(p->client);
	sl_notify_close(&p->notify);
	sl_store_close(&p->store);
}

static int set_up(void **state)
{
	(void)state;
	memset(&err, 0, sizeof(err));
	atomic_store(&begun, 0);
	return pg_place_set_up(&place);
}

static int tear_down(void **state)
{
	(void)state;
	pg_place_tear_down(&place);
	return 0;
}

static long long number(const char *sql)
{
	return pg_temp_number(place.admin, sql);
}

#define UNTIL(cond)                                                                                                    \
	for (time_t until_ = time(NULL) + PATIENCE_S; !(cond); sched_yield())                                          \
		if (time(NULL) > until_) {                                                                             \
			fprintf(stderr, "%s:%d: never: %s\n", __FILE__, __LINE__, #cond);                              \
			_exit(1); /* with threads of workers at work, there is no going on */                          \
		}

/* ---- handlers, workers, starts ---- */

static int handle(sl_attempt *a, struct sl_err *e, void *ctx)
{
	(void)e, (void)ctx;
	atomic_fetch_add(&begun, 1);
	return sl_attempt_complete(a, sl_attempt_job(a)->input, NULL);
}

static void start_worker(struct process *p, int slots)
{
	struct sl_processor proc = {SL_PROCESSOR_INIT, .type = "t", .process = handle, .lease_ms = LEASE_MS};
	struct sl_worker_opts opts = {SL_WORKER_OPTS_INIT,         .store = &p->store, .notify = &p->notify,
				      .processors = &proc,         .n_processors = 1,  .slots = slots,
				      .poll_interval_ms = LEASE_MS};
	OK(sl_worker_new(&p->worker, &opts, &err));
	OK(sl_worker_start(p->worker, &err));
}

static void stop_worker(struct process *p)
{
	OK(sl_worker_stop(p->worker, SL_UNLIMITED, &err));
	sl_worker_free(p->worker);
}

static uint64_t start(struct process *p)
{
	struct sl_new_chain chain = {.job = {.type = "t", .input = "{\"x\":1}"}};
	struct sl_started out;
	OK(sl_jobs_enqueue(p->client, NULL, &chain, &out, &err));
	return out.chain_id;
}

static void await_completed(struct process *p, uint64_t id)
{
	struct sl_chain *chain = NULL;
	OK(sl_jobs_wait(p->client, id, PATIENCE_S * 1000, &chain, &err));
	assert_int_equal(chain->status, SL_JOB_COMPLETED);
	assert_string_equal(chain->output, "{\"x\":1}");
	sl_chain_release(p->client, chain);
}

static bool is_healthy(const struct process *p)
{
	return p->notify.ops->healthy(p->notify.ctx) != 0;
}

/* ---- tests ---- */

static void a_job_that_another_process_starts_runs_on_an_idle_worker(void **state)
{
	(void)state;
	struct process here, other;
	open_process(&here);
	open_process(&other);
	start_worker(&here, 2);
	UNTIL(is_healthy(&here));
	for (int i = 1; i <= 3; i++) {
		await_completed(&other, start(&other));
		assert_int_equal(atomic_load(&begun), i);
	}
	stop_worker(&here);
	assert_int_equal(number("SELECT count(*) FROM lease"), 0);
	assert_int_equal(number("SELECT count(*) FROM job WHERE status = 4 AND attempt = 1"), 3);
	close_process(&other);
	close_process(&here);
}

/* What was started while nothing listened is found when the connection is there again. */
static void a_job_runs_when_the_listener_of_its_worker_is_lost(void **state)
{
	(void)state;
	struct process here, other;
	open_process(&here);
	open_process(&other);
	start_worker(&here, 2);
	for (int i = 0; i < 3; i++) {
		UNTIL(is_healthy(&here));
		assert_int_equal(pg_temp_exec(place.admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
							   " WHERE query LIKE 'LISTEN %' AND pid <> pg_backend_pid()"),
				 0);
		await_completed(&other, start(&other));
	}
	stop_worker(&here);
	close_process(&other);
	close_process(&here);
}

static void without_the_server_a_worker_stops(void **state)
{
	(void)state;
	struct process here;
	open_process(&here);
	start_worker(&here, 1);
	UNTIL(is_healthy(&here));
	PQfinish(place.admin);
	assert_int_equal(pg_temp_command(place.server, "stop"), 0);
	stop_worker(&here);
	close_process(&here);
	assert_int_equal(pg_temp_command(place.server, "start"), 0);
	place.admin = pg_temp_connect(place.server);
	char sql[128];
	(void)snprintf(sql, sizeof(sql), "SET client_min_messages = error; SET search_path = %s", place.schema);
	assert_int_equal(pg_temp_exec(place.admin, sql), 0);
}

/* ---- a crowd ---- */

static atomic_bool enough;
static atomic_int started;

static void *starter(void *process)
{
	struct process *p = process;
	struct sl_new_chain chain = {.job = {.type = "t", .input = "1"}};
	struct sl_started out;
	while (!atomic_load(&enough)) {
		struct sl_err own = SL_ERR_INIT;
		if (sl_jobs_enqueue(p->client, NULL, &chain, &out, &own) == 0)
			atomic_fetch_add(&started, 1);
		while (atomic_load(&begun) < atomic_load(&started) && !atomic_load(&enough))
			sched_yield(); /* so that a worker is idle now and then */
	}
	return NULL;
}

static void nothing_is_lost_while_workers_of_other_processes_come_and_go(void **state)
{
	(void)state;
	time_t until = time(NULL) + (time_t)test_seconds(2);
	struct process clients[2], here;
	pthread_t threads[2];
	int workers = 0;
	atomic_store(&enough, false);
	atomic_store(&started, 0);
	open_process(&here);
	for (int i = 0; i < 2; i++) {
		open_process(&clients[i]);
		assert_int_equal(pthread_create(&threads[i], NULL, starter, &clients[i]), 0);
	}
	while (time(NULL) < until) {
		int before = atomic_load(&begun);
		start_worker(&here, 1 + workers % 3);
		UNTIL(atomic_load(&begun) >= before + workers % 7 * 3); /* some live for a moment only */
		stop_worker(&here);
		workers++;
	}
	atomic_store(&enough, true);
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		close_process(&clients[i]);
	}
	start_worker(&here, 4);
	OK(sl_worker_drain(here.worker, PATIENCE_S * 1000, &err));
	stop_worker(&here);
	close_process(&here);
	printf("# %d workers, %d chains\n", workers, atomic_load(&started));
	assert_int_equal(number("SELECT count(*) FROM job WHERE status = 4"), atomic_load(&started));
	assert_int_equal(number("SELECT count(*) FROM lease"), 0);
	assert_int_equal(atomic_load(&begun), atomic_load(&started));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_job_that_another_process_starts_runs_on_an_idle_worker),
		TEST(a_job_runs_when_the_listener_of_its_worker_is_lost),
		TEST(nothing_is_lost_while_workers_of_other_processes_come_and_go),
		TEST(without_the_server_a_worker_stops),
	};
	int rc = pg_place_start(&place, PG_TEMP_FAST);
	if (rc != 0)
		return rc;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	pg_place_stop(&place);
	return rc;
}
