/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker whose event log fails under it: it claims nothing, charges nothing, logs why, and resumes when the log
 * accepts records again. Real threads on SQLite; the faults are injected under the log, once for commands and once for
 * handlers in C.
 */
#include "execbox.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/fault.h"
#include <sluice/worker.h>

#define DEADLINE_MS 60000
#define N_JOBS 12

struct plant {
	struct execbox box;
	char path[128];
	struct fault fault;
	struct sl_env env; /* of the log */
	sl_wal *log;
	sl_store store;
	sl_jobs *client;
	sl_exec *exec;
	sl_worker *worker;
	struct sl_processor processor;
	sl_process_fn *process; /* NULL: emit_three, or the command */
	_Atomic int runs;       /* of the handler in C */
	_Atomic int warned;     /* log records of the worker at SL_LOG_ERROR */
	struct sl_err err;
};

static void must(struct plant *p, int rc)
{
	if (rc != 0)
		fail_msg("%s", p->err.msg);
}

static void on_log(const struct sl_log_record *record, void *ctx)
{
	struct plant *p = ctx;
	if (record->level == SL_LOG_ERROR && strstr(record->message, "no more jobs are claimed") != NULL)
		p->warned++;
}

static int plant_open(void **state)
{
	struct plant *p = calloc(1, sizeof(*p));
	execbox_init(&p->box);
	fault_init(&p->fault, NULL);
	p->env = fault_env(&p->fault, NULL);
	(void)snprintf(p->path, sizeof(p->path), "%s/jobs.db", p->box.dir);
	must(p, sl_store_sqlite_open(&p->store, p->path, NULL, &p->err));
	struct sl_jobs_opts opts = {SL_JOBS_OPTS_INIT, .store = &p->store};
	must(p, sl_jobs_open(&p->client, &opts, &p->err));
	struct sl_wal_opts wal = {SL_WAL_OPTS_INIT, .env = &p->env, .wal_dir = p->box.dir, .archive_dir = p->box.dir,
				  .prepare_max_bytes = SL_NONE};
	must(p, sl_wal_open(&p->log, "events", &wal, &p->err));
	*state = p;
	return 0;
}

static int plant_close(void **state)
{
	struct plant *p = *state;
	fault_disarm(&p->fault);
	sl_worker_free(p->worker);
	sl_exec_free(p->exec);
	must(p, sl_wal_close(p->log, &p->err));
	sl_jobs_close(p->client);
	sl_store_close(&p->store);
	assert_int_equal(fault_open_fds(&p->fault), 0);
	fault_fini(&p->fault);
	execbox_fini(&p->box);
	free(p);
	return 0;
}

static int emit_three(sl_attempt *a, struct sl_err *err, void *ctx)
{
	struct plant *p = ctx;
	p->runs++;
	for (int i = 0; i < 3; i++) {
		int rc = sl_attempt_emit(a, SL_EVENT_STDOUT, "line", 4, err);
		if (rc != 0)
			return rc;
	}
	return sl_attempt_complete(a, "1", err);
}

static void start(struct plant *p, bool command, int32_t max_attempts)
{
	static const char *const argv[] = {"/bin/sh", "-c", "echo one; echo two", NULL};
	p->processor = (struct sl_processor){SL_PROCESSOR_INIT, .type = "t", .process = emit_three, .ctx = p,
					     .retry = {.first_ms = 1, .cap_ms = 1, .max_attempts = max_attempts}};
	if (command) {
		struct sl_exec_opts exec = {SL_EXEC_OPTS_INIT, .argv = argv, .events = p->log,
					    .spool_dir = p->box.spool};
		must(p, sl_exec_new(&p->exec, &exec, &p->err));
		p->processor.process = sl_exec_process;
		p->processor.ctx = p->exec;
	}
	if (p->process != NULL) {
		p->processor.process = p->process;
		p->processor.ctx = p;
	}
	struct sl_env env = {SL_ENV_INIT, .log = on_log, .log_ctx = p};
	struct sl_worker_opts opts = {SL_WORKER_OPTS_INIT, .env = &env, .store = &p->store, .processors = &p->processor,
				      .n_processors = 1,   .slots = 2,  .events = p->log,   .poll_interval_ms = 20};
	must(p, sl_worker_new(&p->worker, &opts, &p->err));
	must(p, sl_worker_start(p->worker, &p->err));
}

static void enqueue(struct plant *p, uint64_t *ids, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct sl_new_chain chain = {.job = {.type = "t"}};
		struct sl_started started;
		must(p, sl_jobs_enqueue(p->client, NULL, &chain, &started, &p->err));
		ids[i] = started.chain_id;
	}
}

static void finish(struct plant *p, const uint64_t *ids, size_t n, enum sl_job_status status)
{
	for (size_t i = 0; i < n; i++) {
		struct sl_chain *c = NULL;
		must(p, sl_jobs_wait(p->client, ids[i], DEADLINE_MS, &c, &p->err));
		if (c->status != status)
			fail_msg("job %llu: %s", (unsigned long long)ids[i],
				 c->error != NULL ? c->error : "(no error)");
		sl_chain_release(p->client, c);
	}
}

static struct sl_worker_stats stats(struct plant *p)
{
	struct sl_worker_stats s = {.struct_size = sizeof(s)};
	sl_worker_get_stats(p->worker, &s);
	return s;
}

static int count(const struct sl_wal_record *record, void *ctx)
{
	(void)record;
	(*(size_t *)ctx)++;
	return 0;
}

/* No attempt is charged, and every job completes. One flush may hold the events of several jobs, so there are jobs
 * until the sync that fails has come. */
static void one_failed_sync(struct plant *p, bool command)
{
	uint64_t ids[N_JOBS];
	int jobs = 0;
	fault_arm_io(&p->fault, 3, FAULT_ONCE, EIO, FAULT_OP(FAULT_DATASYNC));
	start(p, command, 3);
	for (; fault_io_failed(&p->fault) == 0; jobs += N_JOBS) {
		enqueue(p, ids, N_JOBS);
		finish(p, ids, N_JOBS, SL_JOB_COMPLETED);
	}
	struct sl_worker_stats s = stats(p);
	assert_int_equal(fault_io_failed(&p->fault), 1);
	assert_int_equal(s.retried, 0);
	assert_int_equal(s.failed, 0);
	assert_true(s.released > 0);
	assert_true(p->warned > 0);
	assert_int_equal(sl_worker_log_error(p->worker, &p->err), 0);
	/* Only those whose events were on their way when it failed ran again. */
	assert_true(p->runs <= 2 * jobs);
}

static void one_failed_sync_charges_no_handler(void **state)
{
	one_failed_sync(*state, false);
}

static void one_failed_sync_charges_no_command(void **state)
{
	one_failed_sync(*state, true);
}

static void full_disk(struct plant *p, bool command)
{
	uint64_t ids[2 * N_JOBS];
	struct sl_err why = SL_ERR_INIT;
	start(p, command, 3);
	fault_arm_io(&p->fault, 1, FAULT_FROM, ENOSPC, FAULT_OP(FAULT_PWRITE));
	enqueue(p, ids, N_JOBS);
	while (sl_worker_log_error(p->worker, &why) == 0)
		(void)sched_yield();
	assert_int_equal(why.code, SL_ENOSPC);
	assert_int_equal(sl_worker_drain(p->worker, 1, &p->err), SL_ETIMEDOUT);
	assert_non_null(strstr(p->err.msg, "event log"));
	/* What was claimed before goes back. Then nothing more is claimed, however often the disk is tried. */
	while (stats(p).busy > 0 || stats(p).claimed > stats(p).released + stats(p).completed)
		(void)sched_yield();
	assert_int_equal(stats(p).completed, 0); /* its last line is not durable */
	uint64_t claimed = stats(p).claimed;
	enqueue(p, ids + N_JOBS, N_JOBS);
	int64_t tried = fault_io_failed(&p->fault);
	while (fault_io_failed(&p->fault) < tried + 4)
		(void)usleep(1000);
	assert_int_equal(stats(p).claimed, claimed);
	assert_int_equal(sl_worker_log_error(p->worker, &why), SL_ENOSPC);
	fault_disarm(&p->fault);
	finish(p, ids, 2 * N_JOBS, SL_JOB_COMPLETED);
	struct sl_worker_stats s = stats(p);
	assert_int_equal(s.retried, 0);
	assert_int_equal(s.failed, 0);
	assert_true(p->warned > 0);
	must(p, sl_worker_drain(p->worker, DEADLINE_MS, &p->err));
}

static void a_full_disk_pauses_handlers_until_there_is_room(void **state)
{
	full_disk(*state, false);
}

static void a_full_disk_pauses_commands_until_there_is_room(void **state)
{
	struct plant *p = *state;
	full_disk(p, true);
	/* What the commands wrote before is in the log too: three lines of state and two of output for each start. */
	size_t n = 0;
	must(p, sl_worker_stop(p->worker, DEADLINE_MS, &p->err));
	must(p, sl_wal_iterate(p->log, 0, count, &n, &p->err));
	assert_true(n >= (size_t)2 * N_JOBS * 4);
	assert_int_equal(execbox_spools(&p->box) > 0, 1);
}

static void a_job_that_may_start_once_fails_with_the_reason(void **state)
{
	struct plant *p = *state;
	uint64_t id;
	start(p, true, 1);
	fault_arm_io(&p->fault, 1, FAULT_ONCE, EIO, FAULT_OP(FAULT_DATASYNC));
	enqueue(p, &id, 1);
	struct sl_chain *c = NULL;
	must(p, sl_jobs_wait(p->client, id, DEADLINE_MS, &c, &p->err));
	assert_int_equal(c->status, SL_JOB_FAILED);
	assert_non_null(strstr(c->error, "events.wal: sync"));
	sl_chain_release(p->client, c);
	enqueue(p, &id, 1);
	finish(p, &id, 1, SL_JOB_COMPLETED);
}

static int emit_then_run(sl_attempt *a, struct sl_err *err, void *ctx)
{
	struct plant *p = ctx;
	int rc = sl_attempt_emit(a, SL_EVENT_LOG, "before", 6, err);
	if (rc != 0)
		return rc;
	if (p->runs++ == 0) {
		assert_int_equal(sl_wal_sync(p->log, NULL), SL_ENOSPC);
		fault_disarm(&p->fault);
	}
	return sl_exec_process(a, err, p->exec);
}

/* By attempt: whether the event that comes before the command is in the log. */
static int find_before(const struct sl_wal_record *record, void *ctx)
{
	struct sl_event e;
	bool *found = ctx;
	assert_int_equal(sl_event_decode(record->payload, record->payload_len, &e, NULL), 0);
	if (e.type == SL_EVENT_LOG && e.len == 6 && memcmp(e.data, "before", 6) == 0) {
		assert_in_range(e.attempt, 1, 15);
		found[e.attempt] = true;
	}
	return 0;
}

/* The flush with the handler's own event finds no room, the later ones of the command do: the last ticket alone would
 * not speak for it. */
static void what_a_handler_emitted_before_its_command_is_waited_for_too(void **state)
{
	struct plant *p = *state;
	uint64_t id;
	struct sl_job *job = NULL;
	bool found[16] = {false};
	p->process = emit_then_run;
	start(p, true, 3);
	fault_arm_io(&p->fault, 1, FAULT_FROM, ENOSPC, FAULT_OP(FAULT_PWRITE));
	enqueue(p, &id, 1);
	finish(p, &id, 1, SL_JOB_COMPLETED);
	must(p, sl_jobs_get(p->client, id, &job, &p->err));
	must(p, sl_wal_iterate(p->log, 0, find_before, found, &p->err));
	assert_in_range(job->attempt, 2, 15);
	assert_true(found[job->attempt]);
	assert_int_equal(job->charged, 1); /* of the last one only */
	sl_job_release(p->client, job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, plant_open, plant_close)
		T(one_failed_sync_charges_no_handler),
		T(one_failed_sync_charges_no_command),
		T(a_full_disk_pauses_handlers_until_there_is_room),
		T(a_full_disk_pauses_commands_until_there_is_room),
		T(a_job_that_may_start_once_fails_with_the_reason),
		T(what_a_handler_emitted_before_its_command_is_waited_for_too),
	};
	return cmocka_run_group_tests_name("worker log", tests, NULL, NULL);
}
