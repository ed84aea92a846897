/* SPDX-License-Identifier: Apache-2.0 */
/* What a handler can do with its attempt: transactions, continuations, blockers, progress, events. */
#include <errno.h>
#include <sched.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "jobs/worker_kit.h"
#include "support/fault.h"
#include "support/quiet.h"
#include <sluice/events.h>

/* ---- SQL of the handler's own ---- */

static int sql(sl_tx *tx, const char *text, struct sl_err *err)
{
	char *why = NULL;
	if (sqlite3_exec(sl_tx_native(tx), text, NULL, NULL, &why) == SQLITE_OK)
		return 0;
	(void)sl_err_set(err, SL_EIO, "%s", why);
	sqlite3_free(why);
	return SL_EIO;
}

static int insert(sl_tx *tx, struct sl_err *err, void *ctx)
{
	(void)ctx;
	return sql(tx, "INSERT INTO mine VALUES ('x')", err);
}

static int insert_and_break(sl_tx *tx, struct sl_err *err, void *ctx)
{
	(void)ctx;
	int rc = sql(tx, "INSERT INTO mine VALUES ('x')", err);
	return rc != 0 ? rc : sl_err_set(err, SL_EIO, "second thoughts");
}

static const char *rows(struct wkit *k)
{
	return sqlite_ask(k->place.path, "SELECT count(*) FROM mine");
}

/* Run one job through the handler on SQLite with a table `mine`; its status and error after the first attempt. */
static uint64_t run_one(struct wkit *k, sl_process_fn *fn, enum sl_job_status status)
{
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = fn, .ctx = k,
				       .retry = {.max_attempts = 1}};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	assert_int_equal(sqlite_do(k->place.path, "CREATE TABLE mine (what TEXT)"), 0);
	sl_worker *w = wkit_worker(k, &opts);
	uint64_t id = wkit_start(k, "t", "1");
	assert_int_equal(wkit_wait(k, id), status);
	wkit_end(w);
	return id;
}

static void assert_error(struct wkit *k, uint64_t id, const char *text)
{
	struct sl_job *job = wkit_job(k, id);
	assert_non_null(job->error);
	if (strstr(job->error, text) == NULL)
		fail_msg("the error is: %s", job->error);
	sl_job_release(k->client, job);
}

static int atomic(sl_attempt *a, struct sl_err *err, void *ctx)
{
	struct wkit *k = ctx;
	assert_null(sl_attempt_tx(a));
	int rc = sl_attempt_prepare(a, SL_ATOMIC, insert, NULL, err);
	if (rc != 0)
		return rc;
	assert_non_null(sl_attempt_tx(a));
	assert_string_equal(rows(k), "0"); /* no other connection sees it */
	assert_int_equal(sl_attempt_prepare(a, SL_ATOMIC, NULL, NULL, NULL), SL_EINVAL);
	rc = sl_attempt_complete(a, "\"done\"", err);
	assert_string_equal(rows(k), "1"); /* durable when it returned */
	assert_null(sl_attempt_tx(a));
	assert_int_equal(sl_attempt_fail(a, "no", NULL), SL_EINVAL);
	return rc;
}

static void an_atomic_attempt_commits_its_sql_with_its_completion(void **state)
{
	struct wkit *k = *state;
	uint64_t id = run_one(k, atomic, SL_JOB_COMPLETED);
	assert_string_equal(rows(k), "1");
	struct sl_job *job = wkit_job(k, id);
	assert_string_equal(job->output, "\"done\"");
	sl_job_release(k->client, job);
	assert_int_equal(wkit_seen(k, SL_OBSERVE_ATTEMPT_COMPLETED), 1);
	assert_int_equal(wkit_seen(k, SL_OBSERVE_CHAIN_COMPLETED), 1);
	assert_null(sqlite_wrong(k->place.path));
}

static int atomic_fails(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)ctx;
	int rc = sl_attempt_prepare(a, SL_ATOMIC, insert, NULL, err);
	return rc != 0 ? rc : sl_err_set(err, SL_EIO, "after the insert");
}

static void an_atomic_attempt_that_fails_leaves_nothing(void **state)
{
	struct wkit *k = *state;
	uint64_t id = run_one(k, atomic_fails, SL_JOB_FAILED);
	assert_string_equal(rows(k), "0");
	assert_error(k, id, "after the insert");
}

static int atomic_forgets(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)ctx;
	return sl_attempt_prepare(a, SL_ATOMIC, insert, NULL, err);
}

static void a_transaction_that_is_left_open_is_rolled_back_and_the_attempt_has_failed(void **state)
{
	struct wkit *k = *state;
	uint64_t id = run_one(k, atomic_forgets, SL_JOB_FAILED);
	assert_string_equal(rows(k), "0");
	assert_error(k, id, "transaction open");
}

static int savepoints(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)ctx;
	assert_int_equal(sl_attempt_prepare(a, SL_ATOMIC, insert, NULL, err), 0);
	sl_tx *tx = sl_attempt_tx(a);
	assert_int_equal(sl_tx_savepoint(tx, "here", err), 0);
	assert_int_equal(insert(tx, err, NULL), 0);
	assert_int_equal(sl_tx_rollback_to(tx, "here", err), 0);
	assert_int_equal(sl_tx_release(tx, "here", err), 0);
	assert_int_equal(sl_tx_commit(tx, NULL), SL_EINVAL); /* it is the attempt's */
	return sl_attempt_complete(a, NULL, err);
}

static void an_atomic_transaction_has_savepoints_and_is_ended_by_the_attempt_alone(void **state)
{
	struct wkit *k = *state;
	run_one(k, savepoints, SL_JOB_COMPLETED);
	assert_string_equal(rows(k), "1");
}

static int staged(sl_attempt *a, struct sl_err *err, void *ctx)
{
	struct wkit *k = ctx;
	assert_int_equal(sl_attempt_prepare(a, SL_STAGED, NULL, NULL, NULL), SL_EINVAL);
	assert_int_equal(sl_attempt_prepare(a, SL_STAGED, insert, NULL, err), 0);
	assert_string_equal(rows(k), "1");
	assert_null(sl_attempt_tx(a));
	int rc = sl_attempt_complete_with(a, "2", insert, NULL, err);
	assert_string_equal(rows(k), "2");
	return rc;
}

static void a_staged_attempt_has_a_transaction_before_and_one_to_complete(void **state)
{
	struct wkit *k = *state;
	uint64_t id = run_one(k, staged, SL_JOB_COMPLETED);
	struct sl_job *job = wkit_job(k, id);
	assert_string_equal(job->output, "2");
	sl_job_release(k->client, job);
}

static int completes_badly(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)ctx;
	(void)err;
	assert_int_equal(sl_attempt_complete_with(a, "2", insert_and_break, NULL, NULL), SL_EIO);
	assert_int_equal(sl_attempt_complete(a, "3", NULL), SL_EIO); /* its work is not there: it cannot complete */
	return 0;
}

static void a_completing_transaction_that_fails_fails_the_attempt(void **state)
{
	struct wkit *k = *state;
	uint64_t id = run_one(k, completes_badly, SL_JOB_FAILED);
	assert_string_equal(rows(k), "0");
	assert_error(k, id, "second thoughts");
}

static int declares_and_breaks(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)ctx;
	assert_int_equal(sl_attempt_complete(a, "1", err), 0);
	return sl_err_set(err, SL_EIO, "on the way out");
}

static void an_error_after_a_declared_end_is_still_a_failure(void **state)
{
	struct wkit *k = *state;
	uint64_t id = run_one(k, declares_and_breaks, SL_JOB_FAILED);
	assert_error(k, id, "on the way out");
}

/* ---- a transaction that outlives its lease ---- */

#define SHORT_LEASE_MS 200

/* Holds the store until its lease has been over for as long as it lasts. */
static int outlast_lease(sl_attempt *a, struct wkit *k, struct sl_err *err)
{
	wkit_arrive(k);
	int rc = sl_attempt_prepare(a, SL_ATOMIC, insert, NULL, err);
	if (rc != 0)
		return rc;
	struct timespec pause = {.tv_nsec = 5000000};
	while (strcmp(sqlite_ask(k->place.path, "SELECT 1 FROM sluice_lease WHERE until_us/1000+200 <"
						" (julianday('now')-2440587.5)*86400000"),
		      "1") != 0)
		(void)nanosleep(&pause, NULL);
	return 0;
}

static int completes_late(sl_attempt *a, struct sl_err *err, void *ctx)
{
	int rc = outlast_lease(a, ctx, err);
	return rc != 0 ? rc : sl_attempt_complete(a, "1", err);
}

static int fails_late(sl_attempt *a, struct sl_err *err, void *ctx)
{
	int rc = outlast_lease(a, ctx, err);
	return rc != 0 ? rc : sl_err_set(err, SL_EIO, "too late");
}

/* Two workers, as of two processes: the one that does not run the job would take it back. */
static uint64_t run_late(struct wkit *k, sl_process_fn *fn, enum sl_job_status status)
{
	const struct sl_processor p = {SL_PROCESSOR_INIT,
				       .type = "t",
				       .process = fn,
				       .ctx = k,
				       .lease_ms = SHORT_LEASE_MS,
				       .retry = {.max_attempts = 2, .first_ms = 1}};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1), standby = opts;
	sl_store other;
	OK(sl_store_sqlite_open(&other, k->place.path, NULL, &err));
	standby.store = &other;
	standby.worker_id = "w2";
	assert_int_equal(sqlite_do(k->place.path, "CREATE TABLE mine (what TEXT)"), 0);
	sl_worker *a = wkit_worker(k, &opts), *b = wkit_worker(k, &standby);
	uint64_t id = wkit_start(k, "t", "1");
	assert_int_equal(wkit_wait(k, id), status);
	wkit_end(a);
	wkit_end(b);
	sl_store_close(&other);
	return id;
}

static void an_atomic_attempt_on_sqlite_that_outlasts_its_lease_completes(void **state)
{
	struct wkit *k = *state;
	uint64_t id = run_late(k, completes_late, SL_JOB_COMPLETED);
	assert_string_equal(rows(k), "1");
	assert_int_equal(wkit_get(k, &k->arrived), 1);
	assert_int_equal(wkit_attempts(k, id, SL_ATTEMPT_REAPED), 0);
}

static void one_that_fails_then_fails_with_its_own_reason(void **state)
{
	struct wkit *k = *state;
	uint64_t id = run_late(k, fails_late, SL_JOB_FAILED);
	assert_string_equal(rows(k), "0");
	assert_int_equal(wkit_get(k, &k->arrived), 2);
	assert_int_equal(wkit_attempts(k, id, SL_ATTEMPT_FAILED), 2);
	assert_error(k, id, "too late");
}

/* ---- losing the job inside ---- */

static struct wkit *kit;
static int fail_commit;
static enum sl_lost_reason lose_inside;

static enum memstore_fault commit_fault(const char *op, void *ctx)
{
	(void)ctx;
	if (fail_commit == 0 || strcmp(op, "commit") != 0)
		return MEMSTORE_OK;
	fail_commit--;
	return MEMSTORE_FAIL_AFTER;
}

static int commit_is_lost(sl_attempt *a, struct sl_err *err, void *ctx)
{
	wkit_arrive(ctx);
	int rc = sl_attempt_prepare(a, SL_ATOMIC, NULL, NULL, err);
	assert_int_equal(rc, 0);
	fail_commit = 1;
	rc = sl_attempt_complete(a, "\"once\"", err);
	assert_int_equal(rc, SL_EUNAVAIL);
	return rc;
}

static void a_commit_whose_answer_was_lost_is_not_done_twice(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = commit_is_lost, .ctx = k};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	memstore_set_faults(k->ms, commit_fault, k);
	sl_worker *w = wkit_worker(k, &opts);
	uint64_t id = wkit_start(k, "t", "1");
	assert_int_equal(wkit_wait(k, id), SL_JOB_COMPLETED);
	wkit_await(k, SL_OBSERVE_LEASE_LOST, 1); /* the retry was refused: the job had completed */
	wkit_end(w);
	struct sl_job *job = wkit_job(k, id);
	assert_string_equal(job->output, "\"once\"");
	sl_job_release(k->client, job);
	assert_int_equal(wkit_get(k, &k->arrived), 1);
}

static int lost_exchange(void *store, const struct sl_exchange *x, const struct sl_store_scope *scope,
			 struct sl_err *err)
{
	if (scope != NULL && scope->tx != NULL && lose_inside != SL_LOST_NOT) {
		x->results[0] = (struct sl_settle_result){.lost = lose_inside};
		return 0;
	}
	return kit->real.ops->exchange(store, x, scope, err);
}

static int lost_guard(void *store, sl_store_tx *tx, uint64_t id, uint64_t fence, enum sl_lost_reason *out,
		      struct sl_err *err)
{
	int rc = kit->real.ops->guard(store, tx, id, fence, out, err);
	if (rc == 0 && kit->open)
		*out = SL_LOST_CANCELLED;
	return rc;
}

static int taken_inside(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)ctx;
	assert_int_equal(sl_attempt_prepare(a, SL_ATOMIC, NULL, NULL, err), 0);
	assert_int_equal(sl_attempt_complete(a, "1", err), SL_ECANCELLED);
	assert_int_equal(sl_attempt_aborted(a), SL_ABORT_TAKEN_BY_ANOTHER_WORKER);
	wkit_leave(ctx);
	return 0;
}

static int cancelled_at_the_guard(sl_attempt *a, struct sl_err *err, void *ctx)
{
	assert_int_equal(sl_attempt_prepare(a, SL_STAGED, insert, NULL, err), SL_ECANCELLED);
	assert_int_equal(sl_attempt_aborted(a), SL_ABORT_CANCELLED);
	assert_int_equal(sl_attempt_prepare(a, SL_STAGED, insert, NULL, err), SL_ECANCELLED);
	wkit_leave(ctx);
	return 0;
}

static void lose(struct wkit *k, sl_process_fn *fn)
{
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = fn, .ctx = k};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	kit = k;
	k->ops.exchange = lost_exchange;
	k->ops.guard = lost_guard;
	sl_worker *w = wkit_worker(k, &opts);
	wkit_start(k, "t", "1");
	wkit_await_field(k, &k->left, 1);
	wkit_await(k, SL_OBSERVE_ATTEMPT_ABORTED, 1);
	OK(sl_worker_stop(w, SL_UNLIMITED, &err));
	struct sl_worker_stats stats = {.struct_size = sizeof(stats)};
	sl_worker_get_stats(w, &stats);
	assert_int_equal(stats.lost, 1);
	assert_int_equal(stats.completed, 0);
	sl_worker_free(w);
	assert_int_equal(wkit_seen(k, SL_OBSERVE_LEASE_LOST), 1);
}

static void a_job_that_was_taken_is_not_completed_inside_a_transaction(void **state)
{
	lose_inside = SL_LOST_TAKEN;
	lose(*state, taken_inside);
	lose_inside = SL_LOST_NOT;
}

static void a_guard_that_finds_the_job_gone_aborts_with_the_reason(void **state)
{
	struct wkit *k = *state;
	k->open = 1;
	lose(k, cancelled_at_the_guard);
}

/* ---- chains ---- */

static int three_steps(sl_attempt *a, struct sl_err *err, void *ctx)
{
	const struct sl_job *job = sl_attempt_job(a);
	int atomic_step = *(int *)ctx;
	assert_string_equal(job->traceparent, "00-trace");
	if (strcmp(job->input, "3") == 0)
		return sl_attempt_complete(a, "\"end\"", err);
	char input[2] = {(char)(job->input[0] + 1), '\0'};
	const struct sl_new_job next = {.type = "t", .input = input};
	int rc = atomic_step ? sl_attempt_prepare(a, SL_ATOMIC, NULL, NULL, err) : 0;
	if (rc == 0)
		rc = sl_attempt_continue(a, &next, err);
	input[0] = '9'; /* it was copied */
	return rc;
}

static void chain_of_three(struct wkit *k, int atomic_step)
{
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = three_steps, .ctx = &atomic_step};
	k->no_notify = 1; /* what it continues with is found all the same */
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	struct sl_started out;
	const struct sl_new_chain chain = {.job = {.type = "t", .input = "1", .traceparent = "00-trace"}};
	OK(sl_jobs_enqueue(k->client, NULL, &chain, &out, &err));
	sl_worker *w = wkit_worker(k, &opts);
	wkit_await(k, SL_OBSERVE_CHAIN_COMPLETED, 1);
	wkit_end(w);
	struct sl_chain *c = NULL;
	OK(sl_jobs_get_chain(k->client, out.chain_id, &c, &err));
	assert_int_equal(c->status, SL_JOB_COMPLETED);
	assert_string_equal(c->output, "\"end\"");
	sl_chain_release(k->client, c);
	assert_int_equal(wkit_seen(k, SL_OBSERVE_JOB_COMPLETED), 3);
}

static void a_chain_continues_immediately(void **state)
{
	struct wkit *k = *state;
	chain_of_three(k, 0);
	assert_true(k->exchanges <= 5); /* each step is claimed in the exchange that made it */
}

static void a_chain_continued_in_a_transaction_continues_immediately(void **state)
{
	chain_of_three(*state, 1);
}

static int continue_badly(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)ctx;
	(void)err;
	const struct sl_new_job bad = {.type = "t", .input = "{"};
	assert_int_equal(sl_attempt_continue(a, &bad, NULL), SL_EDATA);
	return 0;
}

static int continue_after_itself(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)ctx;
	(void)err;
	uint64_t self = sl_attempt_job(a)->chain_id;
	const struct sl_new_job bad = {.type = "t", .blockers = &self, .n_blockers = 1};
	assert_int_equal(sl_attempt_continue(a, &bad, NULL), SL_EINVAL);
	return 0;
}

static void refused_continuation(struct wkit *k, sl_process_fn *process, const char *why)
{
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = process,
				       .retry = {.max_attempts = 1}};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	sl_worker *w = wkit_worker(k, &opts);
	uint64_t id = wkit_start(k, "t", "1");
	assert_int_equal(wkit_wait(k, id), SL_JOB_FAILED);
	assert_error(k, id, why);
	wkit_end(w);
}

static void a_continuation_that_is_refused_fails_the_attempt(void **state)
{
	refused_continuation(*state, continue_badly, "input");
}

static void a_continuation_blocked_by_its_own_chain_fails_the_attempt(void **state)
{
	refused_continuation(*state, continue_after_itself, "cannot wait for itself");
}

struct outputs {
	char text[64];
};

static int add_output(const struct sl_chain *chain, void *ctx)
{
	strcat(((struct outputs *)ctx)->text, chain->output);
	return 0;
}

static int join(sl_attempt *a, struct sl_err *err, void *ctx)
{
	struct outputs *o = ctx;
	if (strcmp(sl_attempt_job(a)->input, "\"join\"") != 0) {
		assert_int_equal(sl_attempt_blockers(a, add_output, o, err), 0); /* none */
		return sl_attempt_complete(a, sl_attempt_job(a)->input, err);
	}
	return sl_attempt_blockers(a, add_output, o, err);
}

static void the_outputs_of_blockers_come_in_the_order_in_which_they_were_given(void **state)
{
	struct wkit *k = *state;
	struct outputs o = {""};
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = join, .ctx = &o};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	uint64_t blockers[3] = {wkit_start(k, "t", "1"), wkit_start(k, "t", "2"), wkit_start(k, "t", "3")};
	const uint64_t order[] = {blockers[2], blockers[0], blockers[1]};
	struct sl_started out;
	const struct sl_new_chain chain = {
		.job = {.type = "t", .input = "\"join\"", .blockers = order, .n_blockers = 3}};
	OK(sl_jobs_enqueue(k->client, NULL, &chain, &out, &err));
	sl_worker *w = wkit_worker(k, &opts);
	assert_int_equal(wkit_wait(k, out.chain_id), SL_JOB_COMPLETED);
	wkit_end(w);
	assert_string_equal(o.text, "312");
}

/* ---- progress ---- */

static void assert_progress(struct wkit *k, uint64_t id, const char *text)
{
	struct sl_job *job = wkit_job(k, id);
	if (text == NULL)
		assert_null(job->progress);
	else
		assert_string_equal(job->progress, text);
	sl_job_release(k->client, job);
}

static int report(sl_attempt *a, struct sl_err *err, void *ctx)
{
	struct wkit *k = ctx;
	uint64_t id = sl_attempt_job(a)->id;
	assert_int_equal(sl_attempt_progress(a, "{no", err), SL_EDATA);
	assert_int_equal(sl_attempt_progress(a, "1", err), 0);
	assert_int_equal(sl_attempt_progress(a, "2", err), 0);
	assert_progress(k, id, NULL); /* not yet: it is too young to be worth a trip */
	wkit_arrive(k);
	wkit_pass(k);
	assert_int_equal(sl_attempt_progress(a, "4", err), 0);
	assert_progress(k, id, "4");
	return 0;
}

static void progress_is_written_with_the_renewal_and_at_once_later_on(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = report, .ctx = k};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	sl_worker *w = wkit_worker(k, &opts);
	uint64_t id = wkit_start(k, "t", "1");
	wkit_await_field(k, &k->arrived, 1);
	wkit_advance(k, 30000);
	wkit_await(k, SL_OBSERVE_LEASE_RENEWED, 1);
	quiet_await(); /* lane, clock, and the keeper, which has written it */
	assert_progress(k, id, "2");
	WKIT_SET(k, open, 1);
	assert_int_equal(wkit_wait(k, id), SL_JOB_COMPLETED);
	assert_progress(k, id, "4");
	wkit_end(w);
}

static int report_once(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)ctx;
	return sl_attempt_progress(a, "\"all\"", err);
}

static void the_last_progress_of_a_short_attempt_is_written_with_its_end(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = report_once};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	sl_worker *w = wkit_worker(k, &opts);
	uint64_t id = wkit_start(k, "t", "1");
	assert_int_equal(wkit_wait(k, id), SL_JOB_COMPLETED);
	wkit_end(w);
	assert_progress(k, id, "\"all\"");
}

/* In a transaction of the attempt its row is held: writing progress from elsewhere would wait for ourselves. */
static struct {
	sl_attempt *a;
	int written;
	char first[2], second[2];
} inside = {.first = "1", .second = "2"};

static int count_progress(void *store, uint64_t id, uint64_t fence, const char *progress, enum sl_lost_reason *out,
			  struct sl_err *err)
{
	(void)store, (void)id, (void)fence, (void)progress, (void)err;
	inside.written++;
	*out = SL_LOST_NOT;
	return 0;
}

static int report_inside(sl_tx *tx, struct sl_err *err, void *ctx)
{
	(void)tx;
	return sl_attempt_progress(inside.a, ctx, err);
}

static int report_in_both_transactions(sl_attempt *a, struct sl_err *err, void *ctx)
{
	struct wkit *k = ctx;
	inside.a = a;
	wkit_advance(k, 2000); /* from now on it would be written at once */
	assert_int_equal(sl_attempt_prepare(a, SL_STAGED, report_inside, inside.first, err), 0);
	return sl_attempt_complete_with(a, "true", report_inside, inside.second, err);
}

static void progress_inside_a_transaction_is_written_with_its_end(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = report_in_both_transactions,
				       .ctx = k};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	inside.written = 0;
	k->ops.progress = count_progress;
	sl_worker *w = wkit_worker(k, &opts);
	uint64_t id = wkit_start(k, "t", "1");
	assert_int_equal(wkit_wait(k, id), SL_JOB_COMPLETED);
	wkit_end(w);
	assert_int_equal(inside.written, 0);
	assert_progress(k, id, "2");
}

/* ---- events ---- */

struct log {
	char dir[32];
	struct fault fault;
	struct sl_env env;
	sl_wal *wal;
};

static void log_open(struct log *l)
{
	strcpy(l->dir, "/tmp/sl-attempt-XXXXXX");
	assert_non_null(mkdtemp(l->dir));
	fault_init(&l->fault, NULL);
	l->env = fault_env(&l->fault, NULL);
	const struct sl_wal_opts opts = {SL_WAL_OPTS_INIT, .env = &l->env, .wal_dir = l->dir, .archive_dir = l->dir};
	OK(sl_wal_open(&l->wal, "events", &opts, &err));
}

static void log_close(struct log *l)
{
	char path[64];
	(void)sl_wal_close(l->wal, NULL);
	(void)snprintf(path, sizeof(path), "%s/events.wal", l->dir);
	(void)unlink(path);
	assert_int_equal(rmdir(l->dir), 0);
	fault_fini(&l->fault);
}

static int emit_three(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)ctx;
	int rc = sl_attempt_emit(a, SL_EVENT_LOG, "one", 3, err);
	if (rc == 0)
		rc = sl_attempt_emit(a, SL_EVENT_LOG, "two", 3, err);
	return rc != 0 ? rc : sl_attempt_emit(a, SL_EVENT_ERROR, "three", 5, err);
}

struct read {
	int n;
	uint64_t job;
	char text[64];
};

static int read_event(const struct sl_wal_record *record, void *ctx)
{
	struct read *r = ctx;
	struct sl_event event;
	if (sl_event_decode(record->payload, record->payload_len, &event, NULL) != 0)
		return SL_EDATA;
	assert_int_equal(event.attempt, 1);
	r->job = event.job_id;
	r->n++;
	strncat(r->text, event.data, event.len);
	return 0;
}

static void events_are_durable_before_their_job_settles(void **state)
{
	struct wkit *k = *state;
	struct log l;
	log_open(&l);
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = emit_three};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	opts.events = l.wal;
	sl_worker *w = wkit_worker(k, &opts);
	uint64_t id = wkit_start(k, "t", "1");
	assert_int_equal(wkit_wait(k, id), SL_JOB_COMPLETED);
	struct read r = {0};
	OK(sl_wal_iterate(l.wal, 0, read_event, &r, &err)); /* visits what is durable */
	assert_int_equal(r.n, 3);
	assert_int_equal(r.job, id);
	assert_string_equal(r.text, "onetwothree");
	wkit_end(w);
	log_close(&l);
}

static int emit_and_ignore(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)err;
	(void)ctx;
	int rc = sl_attempt_emit(a, SL_EVENT_LOG, "lost", 4, NULL);
	(void)rc;
	return 0;
}

static void an_event_that_could_not_be_kept_releases_the_attempt_without_a_charge(void **state)
{
	struct wkit *k = *state;
	struct log l;
	log_open(&l);
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = emit_and_ignore};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	opts.events = l.wal;
	fault_arm_io(&l.fault, 1, FAULT_FROM, ENOSPC, FAULT_OP(FAULT_PWRITE));
	sl_worker *w = wkit_worker(k, &opts);
	uint64_t id = wkit_start(k, "t", "1");
	while (sl_worker_log_error(w, NULL) != SL_ENOSPC)
		(void)sched_yield();
	quiet_await();
	fault_disarm(&l.fault);
	wkit_advance(k, 10100);
	assert_int_equal(wkit_wait(k, id), SL_JOB_COMPLETED);
	assert_int_equal(wkit_attempts(k, id, SL_ATTEMPT_FAILED), 0);
	assert_int_equal(wkit_attempts(k, id, SL_ATTEMPT_RELEASED), 1);
	assert_int_equal(sl_worker_log_error(w, NULL), 0);
	wkit_end(w);
	log_close(&l);
}

static int emit_nowhere(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)ctx;
	(void)err;
	assert_int_equal(sl_attempt_emit(a, SL_EVENT_LOG, "x", 1, NULL), SL_EINVAL);
	return 0;
}

static void a_worker_without_a_log_refuses_events(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = emit_nowhere};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	sl_worker *w = wkit_worker(k, &opts);
	assert_int_equal(wkit_wait(k, wkit_start(k, "t", "1")), SL_JOB_COMPLETED);
	wkit_end(w);
}

#define T(name) cmocka_unit_test_setup_teardown(name, wkit_memory, wkit_gone)
#define S(name) cmocka_unit_test_setup_teardown(name, wkit_sqlite, wkit_gone)

int main(void)
{
	const struct CMUnitTest tests[] = {
		S(an_atomic_attempt_commits_its_sql_with_its_completion),
		S(an_atomic_attempt_on_sqlite_that_outlasts_its_lease_completes),
		S(one_that_fails_then_fails_with_its_own_reason),
		S(an_atomic_attempt_that_fails_leaves_nothing),
		S(a_transaction_that_is_left_open_is_rolled_back_and_the_attempt_has_failed),
		S(an_atomic_transaction_has_savepoints_and_is_ended_by_the_attempt_alone),
		S(a_staged_attempt_has_a_transaction_before_and_one_to_complete),
		S(a_completing_transaction_that_fails_fails_the_attempt),
		S(an_error_after_a_declared_end_is_still_a_failure),
		T(a_commit_whose_answer_was_lost_is_not_done_twice),
		T(a_job_that_was_taken_is_not_completed_inside_a_transaction),
		T(a_guard_that_finds_the_job_gone_aborts_with_the_reason),
		T(a_chain_continues_immediately),
		T(a_chain_continued_in_a_transaction_continues_immediately),
		T(a_continuation_that_is_refused_fails_the_attempt),
		T(a_continuation_blocked_by_its_own_chain_fails_the_attempt),
		T(the_outputs_of_blockers_come_in_the_order_in_which_they_were_given),
		T(progress_is_written_with_the_renewal_and_at_once_later_on),
		T(the_last_progress_of_a_short_attempt_is_written_with_its_end),
		T(progress_inside_a_transaction_is_written_with_its_end),
		T(events_are_durable_before_their_job_settles),
		T(an_event_that_could_not_be_kept_releases_the_attempt_without_a_charge),
		T(a_worker_without_a_log_refuses_events),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
