/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of <sluice/retention.h> and the workers that run one, on a SQLite store in virtual time. What a step of it
 * deletes is in contract_retention.c, for all stores. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <sched.h>

#include "base/base.h"
#include "jobs/sqlite_place.h"
#include "jobs/store/ops.h"
#include "support/vclock.h"
#include <sluice/retention.h>
#include <sluice/worker.h>

#define DAY_MS INT64_C(86400000)
#define OK(call) assert_int_equal_or_say((call), &err, #call)

struct fixture {
	struct sqlite_place place;
	struct vclock clock;
	struct sl_env env;
	sl_store store;
	sl_jobs *client;
};

static void assert_int_equal_or_say(int rc, const struct sl_err *err, const char *call)
{
	if (rc != 0)
		print_message("# %s: %s\n", call, err->msg);
	assert_int_equal(rc, 0);
}

static int set_up(void **state)
{
	static struct fixture f;
	struct sl_err err = SL_ERR_INIT;
	memset(&f, 0, sizeof(f));
	vclock_init(&f.clock);
	if (sqlite_place_init(&f.place) != 0)
		return -1;
	f.env = (struct sl_env){SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &f.clock};
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .env = &f.env};
	OK(sl_store_sqlite_open(&f.store, f.place.path, &opts, &err));
	struct sl_jobs_opts jobs = {SL_JOBS_OPTS_INIT, .env = &f.env, .store = &f.store};
	OK(sl_jobs_open(&f.client, &jobs, &err));
	*state = &f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	sl_jobs_close(f->client);
	sl_store_close(&f->store);
	sqlite_place_fini(&f->place);
	vclock_fini(&f->clock);
	return 0;
}

static uint64_t start_completed(struct fixture *f)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_started out = {0};
	const struct sl_new_chain chain = {.job = {.type = "t", .input = "{}"}};
	OK(sl_jobs_enqueue(f->client, NULL, &chain, &out, &err));
	OK(sl_jobs_complete(f->client, NULL, out.chain_id, "1", &err));
	return out.chain_id;
}

static bool exists(struct fixture *f, uint64_t id)
{
	struct sl_chain *chain = NULL;
	int rc = sl_jobs_get_chain(f->client, id, &chain, NULL);
	sl_chain_release(f->client, chain);
	assert_true(rc == 0 || rc == SL_ENOENT);
	return rc == 0;
}

static bool has_completed(struct fixture *f, uint64_t id)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_chain *chain = NULL;
	OK(sl_jobs_get_chain(f->client, id, &chain, &err));
	bool completed = chain->status == SL_JOB_COMPLETED;
	sl_chain_release(f->client, chain);
	return completed;
}

static struct sl_retention_status status_of(struct fixture *f)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_retention_status s = {.struct_size = sizeof(s)};
	OK(sl_retention_get(&f->store, &s, &err));
	return s;
}

static sl_retention_thread *start(struct fixture *f, struct sl_retention keep)
{
	struct sl_err err = SL_ERR_INIT;
	sl_retention_thread *t = NULL;
	const struct sl_retention_opts opts = {SL_RETENTION_OPTS_INIT, .env = &f->env, .store = &f->store,
					       .keep = keep};
	OK(sl_retention_start(&t, &opts, &err));
	return t;
}

/* Let virtual time pass in steps until the store has deleted n chains since it was created. n_threads wait meanwhile, and
 * have done what was due before each step; 0: not known. */
static void pass_until_deleted(struct fixture *f, uint64_t n, int n_threads)
{
	while (status_of(f).chains < n) {
		if (n_threads > 0)
			vclock_await_settled(&f->clock, n_threads);
		else
			sched_yield();
		vclock_advance_ms(&f->clock, 1000);
	}
}

static void the_defaults_are_a_week_for_what_completed_and_a_quarter_for_what_failed(void **state)
{
	struct fixture *f = *state;
	struct sl_retention_status s = status_of(f);
	assert_int_equal(s.keep.completed_ms, 7 * DAY_MS);
	assert_int_equal(s.keep.failed_ms, 90 * DAY_MS);
	assert_int_equal(s.keep.events_ms, 30 * DAY_MS);
	assert_int_equal(s.keep.lines_ms, 30 * DAY_MS);
	assert_false(s.active);
	assert_false(s.exports);
	/* A chain goes after seven days, and not before. */
	uint64_t first = start_completed(f);
	vclock_advance_ms(&f->clock, 3 * DAY_MS);
	uint64_t second = start_completed(f);
	vclock_advance_ms(&f->clock, 4 * DAY_MS + 1000);
	sl_retention_thread *t = start(f, (struct sl_retention){SL_RETENTION_INIT});
	pass_until_deleted(f, 1, 1);
	assert_false(exists(f, first));
	assert_true(exists(f, second));
	assert_true(status_of(f).active);
	sl_retention_stop(t);
	assert_false(status_of(f).active);
}

static void a_limit_that_is_given_applies_to_processes_without_one(void **state)
{
	struct fixture *f = *state;
	uint64_t id = start_completed(f);
	vclock_advance_ms(&f->clock, 30 * DAY_MS);
	/* One that keeps what completed for ever; and one that knows nothing of it, and deletes. */
	sl_retention_thread *a =
		start(f, (struct sl_retention){SL_RETENTION_INIT, .completed_ms = SL_UNLIMITED, .failed_ms = DAY_MS});
	sl_retention_stop(a);
	assert_int_equal(status_of(f).keep.completed_ms, SL_UNLIMITED);
	sl_retention_thread *b = start(f, (struct sl_retention){SL_RETENTION_INIT});
	struct sl_err err = SL_ERR_INIT;
	struct sl_started out = {0};
	const struct sl_new_chain chain = {.job = {.type = "t", .input = "{}"}};
	OK(sl_jobs_enqueue(f->client, NULL, &chain, &out, &err));
	OK(sl_jobs_cancel(f->client, NULL, &out.chain_id, 1, NULL, &err));
	vclock_advance_ms(&f->clock, DAY_MS + 1000);
	pass_until_deleted(f, 1, 1);
	assert_false(exists(f, out.chain_id));
	assert_true(exists(f, id));
	sl_retention_stop(b);
}

static void another_process_takes_over_when_the_one_that_deletes_ends(void **state)
{
	struct fixture *f = *state;
	struct sl_retention keep = {SL_RETENTION_INIT, .completed_ms = 60000};
	sl_retention_thread *a = start(f, keep), *b = start(f, keep);
	start_completed(f);
	vclock_advance_ms(&f->clock, 61000);
	pass_until_deleted(f, 1, 2);
	sl_retention_stop(a);
	start_completed(f);
	vclock_advance_ms(&f->clock, 61000);
	pass_until_deleted(f, 2, 1);
	sl_retention_stop(b);
	assert_false(status_of(f).active);
}

static uint64_t five(void *ctx)
{
	(void)ctx;
	return 5;
}

static void an_export_is_in_the_store_when_the_thread_was_started(void **state)
{
	struct fixture *f = *state;
	struct sl_err err = SL_ERR_INIT;
	sl_retention_thread *t = NULL;
	struct sl_retention_opts opts = {SL_RETENTION_OPTS_INIT, .env = &f->env, .store = &f->store, .export_name = "e",
					 .checkpoint = five};
	OK(sl_retention_start(&t, &opts, &err));
	struct sl_retention_status s = status_of(f);
	assert_true(s.exports);
	assert_int_equal(s.exported, 5);
	sl_retention_stop(t);
	/* It counts for as long as it was confirmed in the last 90 days. */
	vclock_advance_ms(&f->clock, 89 * DAY_MS);
	assert_true(status_of(f).exports);
	vclock_advance_ms(&f->clock, 2 * DAY_MS);
	assert_false(status_of(f).exports);
}

static void limits_out_of_range_are_refused_by_name(void **state)
{
	struct fixture *f = *state;
	struct sl_err err = SL_ERR_INIT;
	sl_retention_thread *t = NULL;
	struct sl_retention_opts opts = {SL_RETENTION_OPTS_INIT, .env = &f->env, .store = &f->store,
					 .keep = {SL_RETENTION_INIT, .events_ms = -7}};
	assert_int_equal(sl_retention_start(&t, &opts, &err), SL_EINVAL);
	assert_non_null(strstr(err.msg, "events_ms"));
	opts.store = NULL;
	opts.keep.events_ms = 0;
	assert_int_equal(sl_retention_start(&t, &opts, &err), SL_EINVAL);
	assert_non_null(strstr(err.msg, "store"));
	assert_null(t);
}

static int complete_at_once(sl_attempt *attempt, struct sl_err *err, void *ctx)
{
	(void)attempt;
	(void)err;
	(void)ctx;
	return 0;
}

static void a_worker_deletes_only_when_it_is_asked_to(void **state)
{
	struct fixture *f = *state;
	struct sl_err err = SL_ERR_INIT;
	const struct sl_processor processor = {SL_PROCESSOR_INIT, .type = "other", .process = complete_at_once};
	struct sl_retention keep = {SL_RETENTION_INIT, .completed_ms = 60000};
	struct sl_worker_opts opts = {SL_WORKER_OPTS_INIT, .env = &f->env, .store = &f->store, .processors = &processor,
				      .n_processors = 1};
	sl_worker *w = NULL;
	struct sl_retention_row row;
	struct sl_started job = {0};
	const struct sl_new_chain chain = {.job = {.type = "other", .input = "{}"}};
	OK(sl_jobs_enqueue(f->client, NULL, &chain, &job, &err));
	start_completed(f);
	OK(sl_worker_new(&w, &opts, &err));
	OK(sl_worker_start(w, &err));
	while (!has_completed(f, job.chain_id))
		sched_yield();
	sl_worker_free(w);
	OK(f->store.ops->retention_read(f->store.ctx, 0, &row, &err));
	assert_string_equal(row.holder, ""); /* none has had the turn */
	assert_int_equal(status_of(f).keep.completed_ms, 7 * DAY_MS);
	opts.retention = &keep;
	OK(sl_worker_new(&w, &opts, &err));
	OK(sl_worker_start(w, &err));
	assert_int_equal(status_of(f).keep.completed_ms, 60000);
	vclock_advance_ms(&f->clock, 61000);
	pass_until_deleted(f, 2, 0);
	sl_worker_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			the_defaults_are_a_week_for_what_completed_and_a_quarter_for_what_failed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_limit_that_is_given_applies_to_processes_without_one, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(another_process_takes_over_when_the_one_that_deletes_ends, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(an_export_is_in_the_store_when_the_thread_was_started, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(limits_out_of_range_are_refused_by_name, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_worker_deletes_only_when_it_is_asked_to, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
