/* SPDX-License-Identifier: Apache-2.0 */
/* The worker on the store in memory, in virtual time: the plain way, failures, slots, middlewares, schedules, options.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jobs/worker_kit.h"
#include "support/fault.h"
#include "support/quiet.h"

/* ---- the plain way ---- */

static int echo(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)ctx;
	return sl_attempt_complete(a, sl_attempt_job(a)->input, err);
}

static void a_started_chain_is_completed_with_its_output(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "echo", .process = echo};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	sl_worker *w = wkit_worker(k, &opts);
	uint64_t id = wkit_start(k, "echo", "{\"a\":\"\\u0000\"}");
	assert_int_equal(wkit_wait(k, id), SL_JOB_COMPLETED);
	struct sl_job *job = wkit_job(k, id);
	assert_string_equal(job->output, "{\"a\":\"\\u0000\"}");
	assert_string_equal(job->leased_by, "w1");
	assert_int_equal(job->attempt, 1);
	sl_job_release(k->client, job);
	wkit_end(w);
	const enum sl_observe_kind kinds[] = {SL_OBSERVE_WORKER_STARTED,  SL_OBSERVE_JOB_ACQUIRED,
					      SL_OBSERVE_ATTEMPT_STARTED, SL_OBSERVE_ATTEMPT_COMPLETED,
					      SL_OBSERVE_JOB_COMPLETED,   SL_OBSERVE_CHAIN_COMPLETED,
					      SL_OBSERVE_WORKER_STOPPING, SL_OBSERVE_WORKER_STOPPED};
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		assert_int_equal(wkit_seen(k, kinds[i]), 1);
	assert_string_equal(k->last_worker[SL_OBSERVE_ATTEMPT_STARTED], "w1");
}

static void a_handler_that_says_nothing_completes_with_null(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_noop};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	uint64_t id = wkit_start(k, "t", "1");
	sl_worker *w = wkit_worker(k, &opts);
	assert_int_equal(wkit_wait(k, id), SL_JOB_COMPLETED);
	struct sl_job *job = wkit_job(k, id);
	assert_string_equal(job->output, "null");
	sl_job_release(k->client, job);
	wkit_end(w);
}

static void without_a_notifier_polling_finds_the_job(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_noop};
	k->no_notify = 1;
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	opts.poll_interval_ms = 5000;
	sl_worker *w = wkit_worker(k, &opts);
	quiet_await(); /* slot, lane, keeper, clock */
	wkit_start(k, "t", "1");
	assert_int_equal(wkit_seen(k, SL_OBSERVE_JOB_ACQUIRED), 0);
	wkit_advance(k, 5000);
	wkit_await(k, SL_OBSERVE_JOB_COMPLETED, 1);
	wkit_end(w);
}

static void a_scheduled_job_wakes_the_worker_when_it_is_due(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_noop};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	struct sl_started out;
	const struct sl_new_chain chain = {.job = {.type = "t", .delay_ms = 7000}};
	OK(sl_jobs_enqueue(k->client, NULL, &chain, &out, &err));
	sl_worker *w = wkit_worker(k, &opts);
	quiet_await();
	wkit_advance(k, 6900);
	quiet_await();
	assert_int_equal(wkit_seen(k, SL_OBSERVE_JOB_ACQUIRED), 0);
	wkit_advance(k, 200);
	wkit_await(k, SL_OBSERVE_JOB_COMPLETED, 1);
	wkit_end(w);
}

/* ---- failing ---- */

static void a_failed_attempt_is_repeated_after_its_backoff_until_attempts_run_out(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_fail,
				       .retry = {.max_attempts = 3}};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	sl_worker *w = wkit_worker(k, &opts);
	uint64_t id = wkit_start(k, "t", "1");
	wkit_await(k, SL_OBSERVE_ATTEMPT_FAILED, 1);
	assert_string_equal(k->last_error[SL_OBSERVE_ATTEMPT_FAILED], "it broke");
	quiet_await();
	wkit_advance(k, 9000);
	quiet_await();
	assert_int_equal(wkit_seen(k, SL_OBSERVE_ATTEMPT_STARTED), 1);
	wkit_advance(k, 2000);
	wkit_await(k, SL_OBSERVE_ATTEMPT_FAILED, 2);
	quiet_await();
	wkit_advance(k, 21000);
	assert_int_equal(wkit_wait(k, id), SL_JOB_FAILED);
	struct sl_job *job = wkit_job(k, id);
	assert_int_equal(job->attempt, 3);
	assert_string_equal(job->error, "it broke");
	sl_job_release(k->client, job);
	assert_int_equal(wkit_attempts(k, id, SL_ATTEMPT_FAILED), 3);
	struct sl_worker_stats stats = {.struct_size = sizeof(stats)};
	sl_worker_get_stats(w, &stats);
	assert_int_equal(stats.retried, 2);
	assert_int_equal(stats.failed, 1);
	wkit_await(k, SL_OBSERVE_JOB_FAILED, 1);
	wkit_end(w);
}

static int fail_for_good(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)ctx;
	return sl_attempt_fail(a, "no such \xff customer", err);
}

static void a_job_that_fails_for_good_is_not_repeated_and_its_reason_is_made_text(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = fail_for_good};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	sl_worker *w = wkit_worker(k, &opts);
	uint64_t id = wkit_start(k, "t", "1");
	assert_int_equal(wkit_wait(k, id), SL_JOB_FAILED);
	struct sl_job *job = wkit_job(k, id);
	assert_string_equal(job->error, "no such ? customer");
	sl_job_release(k->client, job);
	wkit_end(w);
}

/* Later by a delay, then at a time, then done. */
static int later_then_done(sl_attempt *a, struct sl_err *err, void *ctx)
{
	struct wkit *k = ctx;
	const struct sl_job *job = sl_attempt_job(a);
	wkit_arrive(k);
	assert_string_equal(sl_attempt_worker_id(a), "w1");
	switch (wkit_get(k, &k->arrived)) {
	case 1:
		return sl_attempt_reschedule_in(a, 1000, err);
	case 2:
		return sl_attempt_reschedule_at(a, job->created_ms + 2150, err);
	default:
		assert_int_equal(job->attempt, 3);
		assert_int_equal(job->charged, 0);
		return 0;
	}
}

static void a_reschedule_charges_nothing(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = later_then_done, .ctx = k,
				       .retry = {.max_attempts = 1}};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	sl_worker *w = wkit_worker(k, &opts);
	uint64_t id = wkit_start(k, "t", "1");
	for (int i = 1; i < 3; i++) {
		wkit_await(k, SL_OBSERVE_ATTEMPT_COMPLETED, i);
		quiet_await();
		if (i == 2) { /* by then 1,100 ms have passed, and it is not due yet */
			wkit_advance(k, 1000);
			quiet_await();
			assert_int_equal(wkit_get(k, &k->arrived), 2);
		}
		wkit_advance(k, 1100);
	}
	assert_int_equal(wkit_wait(k, id), SL_JOB_COMPLETED);
	assert_int_equal(wkit_attempts(k, id, SL_ATTEMPT_RESCHEDULED), 2);
	wkit_end(w);
}

static int refuse_odd(const char *type, const char *json, struct sl_err *err, void *ctx)
{
	(void)type;
	(void)ctx;
	return strcmp(json, "\"even\"") == 0 ? 0 : sl_err_set(err, SL_EDATA, "not even");
}

static int complete_odd(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)ctx;
	(void)err;
	assert_int_equal(sl_attempt_complete(a, "\"odd\"", NULL), SL_EDATA);
	return 0; /* as if nothing had happened */
}

static void an_output_that_its_type_refuses_fails_the_attempt(void **state)
{
	struct wkit *k = *state;
	const struct sl_job_type type = {SL_JOB_TYPE_INIT, .name = "t", .validate_output = refuse_odd};
	OK(sl_job_types_add(k->types, &type, &err));
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = complete_odd,
				       .retry = {.max_attempts = 1}};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	opts.types = k->types;
	sl_worker *w = wkit_worker(k, &opts);
	uint64_t id = wkit_start(k, "t", "1");
	assert_int_equal(wkit_wait(k, id), SL_JOB_FAILED);
	struct sl_job *job = wkit_job(k, id);
	assert_non_null(strstr(job->error, "not even"));
	assert_null(job->output);
	sl_job_release(k->client, job);
	wkit_end(w);
}

/* The validation sees what the handler gave, and null from one that gave nothing; a job that both accept completes. */
static int complete_with_the_input(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)ctx;
	const char *input = sl_attempt_job(a)->input;
	return strcmp(input, "1") == 0 ? 0 : sl_attempt_complete(a, input, err);
}

static int refuse_the_other(const char *type, const char *json, struct sl_err *err, void *ctx)
{
	(void)type;
	return strcmp(json, ctx) == 0 ? 0 : sl_err_set(err, SL_EDATA, "not %s", (const char *)ctx);
}

static void an_output_that_its_type_accepts_completes_the_job(void **state)
{
	struct wkit *k = *state;
	enum { N_CASES = 2 };
	const struct {
		const char *type, *accepts, *input, *output;
	} cases[N_CASES] = {{"given", "\"even\"", "\"even\"", "\"even\""}, {"silent", "null", "1", "null"}};
	struct sl_processor p[N_CASES];
	for (size_t i = 0; i < N_CASES; i++) {
		const struct sl_job_type type = {SL_JOB_TYPE_INIT, .name = cases[i].type,
						 .validate_output = refuse_the_other,
						 .validate_ctx = (void *)(uintptr_t)cases[i].accepts};
		OK(sl_job_types_add(k->types, &type, &err));
		p[i] = (struct sl_processor){SL_PROCESSOR_INIT, .type = cases[i].type,
					     .process = complete_with_the_input, .retry = {.max_attempts = 1}};
	}
	struct sl_worker_opts opts = wkit_opts(k, p, N_CASES);
	opts.types = k->types;
	sl_worker *w = wkit_worker(k, &opts);
	for (size_t i = 0; i < N_CASES; i++) {
		uint64_t good = wkit_start(k, cases[i].type, cases[i].input),
			 bad = wkit_start(k, cases[i].type, cases[1 - i].input);
		assert_int_equal(wkit_wait(k, good), SL_JOB_COMPLETED);
		struct sl_job *job = wkit_job(k, good);
		assert_string_equal(job->output, cases[i].output);
		sl_job_release(k->client, job);
		assert_int_equal(wkit_wait(k, bad), SL_JOB_FAILED);
	}
	wkit_end(w);
}

static int complete_badly_then_well(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)ctx;
	assert_int_equal(sl_attempt_complete(a, "{not json", NULL), SL_EDATA);
	assert_int_equal(sl_attempt_complete(a, "\xff", NULL), SL_EDATA);
	int rc = sl_attempt_complete(a, "[1]", err);
	assert_int_equal(sl_attempt_complete(a, "[2]", NULL), SL_EINVAL);
	return rc;
}

static void an_output_with_invalid_json_is_refused_and_can_be_corrected(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = complete_badly_then_well};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	sl_worker *w = wkit_worker(k, &opts);
	uint64_t id = wkit_start(k, "t", "1");
	assert_int_equal(wkit_wait(k, id), SL_JOB_COMPLETED);
	struct sl_job *job = wkit_job(k, id);
	assert_string_equal(job->output, "[1]");
	sl_job_release(k->client, job);
	wkit_end(w);
}

static int take_any(const struct sl_claimed_job *job, void *ctx)
{
	(void)job;
	(void)ctx;
	return 0;
}

static void a_job_whose_attempts_killed_its_workers_fails_without_being_started(void **state)
{
	struct wkit *k = *state;
	uint64_t id = wkit_start(k, "t", "1");
	/* Two claims whose workers die: the first ahead of any slot, not charged, the second for one, charged. */
	struct sl_claim_type type = {.type = "t", .limit = 5};
	for (int i = 0; i < 2; i++) {
		struct sl_claim_request request = {
			.claim = {{(uint8_t)(i + 1)}}, .worker = "dead", .types = &type, .n_types = 1, .limit = 5};
		struct sl_claim_reply reply;
		const struct sl_reap_type types[] = {{.type = "t"}};
		struct sl_reaped reaped;
		request.lease_ms = 1000;
		request.free = type.free = (uint32_t)i;
		OK(k->real.ops->exchange(
			k->real.ctx, &(struct sl_exchange){.request = &request, .reply = &reply, .claimed = take_any},
			NULL, &err));
		assert_int_equal(reply.n, 1);
		wkit_advance(k, 2000);
		OK(k->real.ops->reap(k->real.ctx, types, 1, 10, &reaped, NULL, &err));
		assert_int_equal(reaped.n, 1);
	}
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_noop,
				       .retry = {.max_attempts = 1}};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	sl_worker *w = wkit_worker(k, &opts);
	assert_int_equal(wkit_wait(k, id), SL_JOB_FAILED);
	assert_int_equal(wkit_seen(k, SL_OBSERVE_ATTEMPT_STARTED), 0);
	struct sl_job *job = wkit_job(k, id);
	assert_non_null(strstr(job->error, "attempts ran out"));
	sl_job_release(k->client, job);
	wkit_end(w);
}

/* ---- slots and order ---- */

static void a_type_runs_in_no_more_slots_than_it_has(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p[] = {{SL_PROCESSOR_INIT, .type = "few", .process = wkit_gate, .ctx = k, .slots = 2},
					 {SL_PROCESSOR_INIT, .type = "many", .process = wkit_noop}};
	struct sl_worker_opts opts = wkit_opts(k, p, 2);
	opts.slots = 6;
	for (int i = 0; i < 10; i++)
		wkit_start(k, "few", "1");
	sl_worker *w = wkit_worker(k, &opts);
	wkit_await_field(k, &k->arrived, 2);
	for (int i = 0; i < 10; i++)
		wkit_start(k, "many", "1");
	wkit_await(k, SL_OBSERVE_JOB_COMPLETED, 10);
	assert_int_equal(wkit_get(k, &k->arrived), 2);
	WKIT_SET(k, open, 1);
	wkit_await(k, SL_OBSERVE_JOB_COMPLETED, 20);
	assert_int_equal(k->most_inside, 2);
	wkit_end(w);
}

static void slots_work_side_by_side(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_gate, .ctx = k};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	opts.slots = 8;
	for (int i = 0; i < 8; i++)
		wkit_start(k, "t", "1");
	sl_worker *w = wkit_worker(k, &opts);
	wkit_await_field(k, &k->arrived, 8);
	WKIT_SET(k, open, 1);
	wkit_await(k, SL_OBSERVE_JOB_COMPLETED, 8);
	wkit_end(w);
}

static int fast_then_slow(sl_attempt *a, struct sl_err *err, void *ctx)
{
	if (strcmp(sl_attempt_job(a)->input, "\"slow\"") == 0)
		return wkit_gate(a, err, ctx);
	return 0;
}

static void what_was_claimed_ahead_goes_back_when_its_slot_is_stuck(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = fast_then_slow, .ctx = k};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	wkit_start(k, "t", "1");
	sl_worker *w = wkit_worker(k, &opts);
	wkit_await(k, SL_OBSERVE_JOB_COMPLETED, 1); /* the handler seems to take no time: it is claimed ahead now */
	struct sl_new_chain chains[20] = {{.job = {.type = "t", .input = "\"slow\"", .priority = -1}}};
	struct sl_started out[20];
	for (int i = 1; i < 20; i++)
		chains[i].job = (struct sl_new_job){.type = "t", .input = "1"};
	OK(sl_jobs_enqueue_many(k->client, NULL, chains, 20, out, &err));
	wkit_await_field(k, &k->arrived, 1);
	wkit_await(k, SL_OBSERVE_JOB_ACQUIRED, 21);
	wkit_advance(k, 1000);
	/* Another worker does them meanwhile. */
	const struct sl_processor quick = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_noop};
	struct sl_worker_opts opts2 = wkit_opts(k, &quick, 1);
	opts2.worker_id = "w2";
	sl_worker *w2 = wkit_worker(k, &opts2);
	wkit_await(k, SL_OBSERVE_JOB_COMPLETED, 20);
	struct sl_worker_stats stats = {.struct_size = sizeof(stats)};
	sl_worker_get_stats(w, &stats);
	assert_int_equal(stats.released, 19);
	WKIT_SET(k, open, 1);
	wkit_await(k, SL_OBSERVE_JOB_COMPLETED, 21);
	for (int i = 1; i < 20; i++) {
		struct sl_job *job = wkit_job(k, out[i].chain_id);
		assert_int_equal(job->charged, 1);
		sl_job_release(k->client, job);
	}
	wkit_end(w);
	wkit_end(w2);
}

static void a_slot_rests_between_jobs(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_noop};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	opts.next_job_delay_ms = 500;
	for (int i = 0; i < 3; i++)
		wkit_start(k, "t", "1");
	sl_worker *w = wkit_worker(k, &opts);
	for (int i = 1; i <= 3; i++) {
		wkit_await(k, SL_OBSERVE_JOB_COMPLETED, i);
		quiet_await();
		assert_int_equal(wkit_seen(k, SL_OBSERVE_ATTEMPT_STARTED), i);
		wkit_advance(k, 500);
	}
	wkit_end(w);
}

static void a_type_has_a_rest_of_its_own(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor ps[] = {
		{SL_PROCESSOR_INIT, .type = "t", .process = wkit_noop, .next_job_delay_ms = 700},
		{SL_PROCESSOR_INIT, .type = "u", .process = wkit_noop, .next_job_delay_ms = SL_NONE}};
	struct sl_worker_opts opts = wkit_opts(k, ps, 2);
	opts.next_job_delay_ms = 500;
	opts.claim_batch = 1;
	wkit_start(k, "u", "1");
	wkit_start(k, "u", "2");
	wkit_start(k, "t", "3");
	wkit_start(k, "t", "4");
	sl_worker *w = wkit_worker(k, &opts);
	/* After one of type u the slot takes the next job immediately; after one of type t it rests first. */
	wkit_await(k, SL_OBSERVE_JOB_COMPLETED, 3);
	quiet_await();
	assert_int_equal(wkit_seen(k, SL_OBSERVE_ATTEMPT_STARTED), 3);
	wkit_advance(k, 699);
	quiet_await();
	assert_int_equal(wkit_seen(k, SL_OBSERVE_ATTEMPT_STARTED), 3);
	wkit_advance(k, 1);
	wkit_await(k, SL_OBSERVE_JOB_COMPLETED, 4);
	wkit_end(w);
}

static void a_thousand_idle_slots_ask_once_a_poll(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_noop};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	opts.slots = 1000;
	opts.lanes = 2;
	sl_worker *w = wkit_worker(k, &opts);
	vclock_await_waiters(&k->clock, 1006);
	int before = wkit_get(k, &k->exchanges);
	for (int i = 1; i <= 10; i++) {
		wkit_advance(k, 60001);
		wkit_await_field(k, &k->exchanges, before + i);
		vclock_await_waiters(&k->clock, 1006);
	}
	assert_int_equal(wkit_get(k, &k->exchanges), before + 10);
	wkit_end(w);
}

/* ---- middlewares ---- */

struct order {
	char text[64];
	int refuse;
};

static int wrap(struct order *o, char in, char out, sl_next_fn *next, void *next_ctx, struct sl_err *err)
{
	size_t n = strlen(o->text);
	o->text[n] = in;
	int rc = next(err, next_ctx);
	n = strlen(o->text);
	o->text[n] = out;
	return rc;
}

static int outer(sl_attempt *a, const char *worker, sl_next_fn *next, void *next_ctx, struct sl_err *err, void *ctx)
{
	assert_string_equal(worker, "w1");
	assert_string_equal(sl_attempt_job(a)->type, "t");
	return wrap(ctx, '(', ')', next, next_ctx, err);
}

static int inner(sl_attempt *a, const char *worker, sl_next_fn *next, void *next_ctx, struct sl_err *err, void *ctx)
{
	struct order *o = ctx;
	(void)a;
	(void)worker;
	if (o->refuse-- > 0)
		return sl_err_set(err, SL_EREFUSED, "not today");
	return wrap(o, '[', ']', next, next_ctx, err);
}

static int mark(sl_attempt *a, struct sl_err *err, void *ctx)
{
	struct order *o = ctx;
	(void)a;
	(void)err;
	o->text[strlen(o->text)] = 'x';
	return 0;
}

static void middlewares_wrap_the_handler_in_order_and_may_refuse(void **state)
{
	struct wkit *k = *state;
	struct order o = {.refuse = 1};
	const struct sl_middleware m[] = {{outer, &o}, {inner, &o}};
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = mark, .ctx = &o};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	opts.middlewares = m;
	opts.n_middlewares = 2;
	sl_worker *w = wkit_worker(k, &opts);
	uint64_t id = wkit_start(k, "t", "1");
	wkit_await(k, SL_OBSERVE_ATTEMPT_FAILED, 1);
	assert_string_equal(k->last_error[SL_OBSERVE_ATTEMPT_FAILED], "not today");
	quiet_await();
	wkit_advance(k, 10100);
	assert_int_equal(wkit_wait(k, id), SL_JOB_COMPLETED);
	wkit_end(w);
	assert_string_equal(o.text, "()([x])");
}

/* ---- reaping, schedules, drain ---- */

static void jobs_of_a_dead_worker_are_taken_back_a_bite_at_a_time(void **state)
{
	struct wkit *k = *state;
	enum { N = 250 };
	for (int i = 0; i < N; i++)
		wkit_start(k, "t", "1");
	const struct sl_claim_type type = {.type = "t", .limit = N};
	const struct sl_claim_request request = {
		.claim = {{7}}, .worker = "dead", .types = &type, .n_types = 1, .limit = N, .lease_ms = 5000};
	struct sl_claim_reply reply;
	OK(k->real.ops->exchange(k->real.ctx,
				 &(struct sl_exchange){.request = &request, .reply = &reply, .claimed = take_any}, NULL,
				 &err));
	assert_int_equal(reply.n, N);
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_noop};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	opts.slots = 4;
	sl_worker *w = wkit_worker(k, &opts);
	quiet_await();
	wkit_advance(k, 5100); /* the worker knows when the lease ends */
	wkit_await(k, SL_OBSERVE_JOB_REAPED, N);
	wkit_await(k, SL_OBSERVE_JOB_COMPLETED, N);
	struct sl_worker_stats stats = {.struct_size = sizeof(stats)};
	quiet_await();
	sl_worker_get_stats(w, &stats);
	assert_int_equal(stats.reaped, N);
	wkit_end(w);
}

static void a_worker_fires_schedules(void **state)
{
	struct wkit *k = *state;
	const struct sl_cron cron = {
		SL_CRON_INIT, .name = "tick", .spec = "* * * * *", .type = "t", .input = "\"tick\"",
	};
	struct sl_jobs_opts client_opts = {SL_JOBS_OPTS_INIT, .env = &k->env, .store = &k->real};
	sl_jobs *client;
	OK(sl_jobs_open(&client, &client_opts, &err));
	OK(sl_jobs_cron_put(client, &cron, &err));
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_noop};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	sl_worker *w = wkit_worker(k, &opts);
	for (int i = 1; i <= 3; i++) {
		quiet_await();
		wkit_advance(k, 60000);
		wkit_await(k, SL_OBSERVE_JOB_COMPLETED, i);
	}
	wkit_end(w);
	sl_jobs_close(client);
}

/* ---- heartbeats ---- */

static struct {
	struct wkit *k;
	int sent, failing, ended; /* the kit's mu */
	struct sl_heartbeat last;
	char worker[64], types[64], host[256], error[256];
} pulse;

static int hear_heartbeat(void *store, const struct sl_heartbeat *h, struct sl_err *err)
{
	(void)store;
	pthread_mutex_lock(&pulse.k->mu);
	pulse.last = *h;
	(void)snprintf(pulse.worker, sizeof(pulse.worker), "%s", h->worker);
	(void)snprintf(pulse.types, sizeof(pulse.types), "%s", h->types);
	(void)snprintf(pulse.host, sizeof(pulse.host), "%s", h->host);
	(void)snprintf(pulse.error, sizeof(pulse.error), "%s", h->error != NULL ? h->error : "");
	pulse.sent++;
	bool fails = pulse.failing > 0 && pulse.failing-- > 0;
	pthread_cond_broadcast(&pulse.k->changed);
	pthread_mutex_unlock(&pulse.k->mu);
	return fails ? sl_err_set(err, SL_EACCES, "no right to write it") : 0;
}

static int hear_heartbeat_end(void *store, const char *worker, int64_t started_ms, struct sl_err *err)
{
	(void)store;
	(void)err;
	pthread_mutex_lock(&pulse.k->mu);
	assert_string_equal(worker, pulse.worker);
	assert_int_equal(started_ms, pulse.last.started_ms);
	pulse.ended++;
	pthread_mutex_unlock(&pulse.k->mu);
	return 0;
}

/* To the store, and then counted. */
static int pass_heartbeat(void *store, const struct sl_heartbeat *h, struct sl_err *err)
{
	int rc = pulse.k->real.ops->heartbeat(store, h, err);
	return rc != 0 ? rc : hear_heartbeat(store, h, err);
}

static void take_pulse(struct wkit *k)
{
	memset(&pulse, 0, sizeof(pulse));
	pulse.k = k;
	k->ops.heartbeat = hear_heartbeat;
	k->ops.heartbeat_end = hear_heartbeat_end;
}

static void an_idle_worker_sends_heartbeats(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p[] = {{SL_PROCESSOR_INIT, .type = "b", .process = wkit_noop},
					 {SL_PROCESSOR_INIT, .type = "a/c", .process = wkit_noop}};
	struct sl_worker_opts opts = wkit_opts(k, p, 2);
	opts.slots = 3;
	take_pulse(k);
	pulse.failing = 1;
	sl_worker *w = wkit_worker(k, &opts);
	wkit_await_field(k, &pulse.sent, 1);
	assert_string_equal(pulse.worker, sl_worker_id(w));
	assert_string_equal(pulse.types, "b,a/c");
	assert_true(strlen(pulse.host) > 0);
	assert_int_equal(pulse.last.pid, getpid());
	assert_int_equal(pulse.last.slots, 3);
	assert_true(pulse.last.ttl_ms >= 60000);
	assert_true(pulse.last.started_ms > 0 && pulse.last.sweep);
	/* The first failed: it is tried again soon. Then every half minute. */
	int64_t started = pulse.last.started_ms;
	for (int i = 2; i <= 4; i++) {
		quiet_await();
		wkit_advance(k, i == 2 ? 5000 : 30000);
		wkit_await_field(k, &pulse.sent, i);
		assert_int_equal(pulse.last.started_ms, started);
		assert_true(pulse.last.sweep == (i == 2));
	}
	assert_true(wkit_warned(k, "no right to write it"));
	quiet_await();
	wkit_advance(k, 20000);
	quiet_await();
	assert_int_equal(wkit_get(k, &pulse.sent), 4);
	wkit_end(w);
	assert_int_equal(pulse.ended, 1);
}

static void a_heartbeat_has_the_last_error_of_an_attempt(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_fail,
				       .retry = {.max_attempts = 1}};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	take_pulse(k);
	sl_worker *w = wkit_worker(k, &opts);
	wkit_await_field(k, &pulse.sent, 1);
	assert_string_equal(pulse.error, "");
	uint64_t id = wkit_start(k, "t", "1");
	wkit_await(k, SL_OBSERVE_JOB_FAILED, 1);
	quiet_await();
	wkit_advance(k, 30000);
	wkit_await_field(k, &pulse.sent, 2);
	char expected[64];
	(void)snprintf(expected, sizeof(expected), "t #%llu: it broke", (unsigned long long)id);
	assert_string_equal(pulse.error, expected);
	assert_true(pulse.last.error_ms >= pulse.last.started_ms);
	wkit_end(w);
}

static int visit_info(const struct sl_worker_info *info, void *ctx)
{
	(void)snprintf(ctx, 128, "%s %u %llu %s", info->seen_ms != 0 ? "reports" : "leases", info->slots,
		       (unsigned long long)info->jobs, info->n_types == 2 ? info->types[1] : "?");
	return 0;
}

static void a_worker_is_listed_from_its_first_heartbeat_until_it_stops(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p[] = {{SL_PROCESSOR_INIT, .type = "t", .process = wkit_gate, .ctx = k},
					 {SL_PROCESSOR_INIT, .type = "u", .process = wkit_noop}};
	struct sl_worker_opts opts = wkit_opts(k, p, 2);
	char text[128];
	take_pulse(k);
	k->ops.heartbeat = pass_heartbeat;
	k->ops.heartbeat_end = k->real.ops->heartbeat_end;
	sl_worker *w = wkit_worker(k, &opts);
	wkit_await_field(k, &pulse.sent, 1);
	text[0] = '\0';
	OK(sl_jobs_workers(k->client, visit_info, text, &err));
	assert_string_equal(text, "reports 1 0 u");
	uint64_t id = wkit_start(k, "t", "1");
	wkit_await_field(k, &k->arrived, 1);
	OK(sl_jobs_workers(k->client, visit_info, text, &err));
	assert_string_equal(text, "reports 1 1 u");
	WKIT_SET(k, open, 1);
	assert_int_equal(wkit_wait(k, id), SL_JOB_COMPLETED);
	wkit_end(w);
	text[0] = '\0';
	OK(sl_jobs_workers(k->client, visit_info, text, &err));
	assert_string_equal(text, "");
}

static void a_schedule_that_is_new_is_heard_of(void **state)
{
	struct wkit *k = *state;
	const struct sl_cron cron = {SL_CRON_INIT, .name = "tick", .spec = "* * * * *", .type = "t"};
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_noop};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	sl_worker *w = wkit_worker(k, &opts);
	quiet_await();          /* it has looked, and found none */
	wkit_advance(k, 30000); /* its next look would be in half a minute */
	OK(sl_jobs_cron_put(k->client, &cron, &err));
	wkit_step(k, SL_OBSERVE_JOB_COMPLETED, 1, 5000, 100000);
	wkit_end(w);
}

static void drain_waits_for_retries_and_not_for_the_far_future(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_fail,
				       .retry = {.max_attempts = 2}};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	wkit_start(k, "t", "1");
	struct sl_started out;
	const struct sl_new_chain chain = {.job = {.type = "t", .delay_ms = 100000000}};
	OK(sl_jobs_enqueue(k->client, NULL, &chain, &out, &err));
	sl_worker *w = wkit_worker(k, &opts);
	wkit_await(k, SL_OBSERVE_ATTEMPT_FAILED, 1);
	REFUSED(sl_worker_drain(w, 0, &err), SL_ETIMEDOUT, "retry");
	quiet_await();
	wkit_advance(k, 10100);
	OK(sl_worker_drain(w, 60000, &err)); /* of virtual time, which does not advance */
	assert_int_equal(wkit_seen(k, SL_OBSERVE_JOB_FAILED), 1);
	OK(sl_worker_stop(w, SL_UNLIMITED, &err));
	wkit_start(k, "t", "1");
	REFUSED(sl_worker_drain(w, 0, &err), SL_ECLOSED, "does not run");
	sl_worker_free(w);
}

static void drain_reports_types_that_are_paused(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p[] = {{SL_PROCESSOR_INIT, .type = "t", .process = wkit_noop},
					 {SL_PROCESSOR_INIT, .type = "u", .process = wkit_noop},
					 {SL_PROCESSOR_INIT, .type = "v", .process = wkit_noop}};
	struct sl_worker_opts opts = wkit_opts(k, p, 3);
	OK(sl_jobs_pause(k->client, "t", &err));
	OK(sl_jobs_pause(k->client, "u", &err)); /* without a job, it is not in the way */
	OK(sl_jobs_pause(k->client, "other", &err));
	wkit_start(k, "t", "1");
	wkit_start(k, "other", "1");
	sl_worker *w = wkit_worker(k, &opts);
	quiet_await();
	struct sl_err why = SL_ERR_INIT;
	assert_int_equal(sl_worker_drain(w, 0, &why), SL_ETIMEDOUT);
	assert_string_equal(why.msg, "drain: jobs are left of types that are paused: t");
	OK(sl_jobs_resume(k->client, "t", &err));
	wkit_await(k, SL_OBSERVE_JOB_COMPLETED, 1);
	OK(sl_worker_drain(w, 60000, &err)); /* of virtual time, which does not advance */
	wkit_end(w);
}

static struct wkit *late_kit;

static int look_late(void *store, sl_cron_fn *fn, void *ctx, struct sl_err *err)
{
	wkit_pass(late_kit);
	return late_kit->real.ops->cron_list(store, fn, ctx, err);
}

static void drain_waits_for_the_first_check_of_the_schedules(void **state)
{
	struct wkit *k = *state;
	const struct sl_cron cron = {SL_CRON_INIT, .name = "tick", .spec = "* * * * *", .type = "t"};
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_noop};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	struct sl_jobs_opts client_opts = {SL_JOBS_OPTS_INIT, .env = &k->env, .store = &k->real};
	sl_jobs *client;
	OK(sl_jobs_open(&client, &client_opts, &err));
	OK(sl_jobs_cron_put(client, &cron, &err));
	wkit_advance(k, 60000); /* it is due before the worker is started */
	late_kit = k;
	k->ops.cron_list = look_late;
	sl_worker *w = wkit_worker(k, &opts);
	REFUSED(sl_worker_drain(w, 0, &err), SL_ETIMEDOUT, "due");
	WKIT_SET(k, open, 1);
	OK(sl_worker_drain(w, 60000, &err)); /* of virtual time, which does not advance */
	assert_int_equal(wkit_seen(k, SL_OBSERVE_JOB_COMPLETED), 1);
	wkit_end(w);
	sl_jobs_close(client);
}

/* ---- options ---- */

static void bad_options_are_named(void **state)
{
	struct wkit *k = *state;
	sl_worker *w = NULL;
	const struct sl_processor good = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_noop};
	const struct sl_processor bad_lease = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_noop, .lease_ms = 1000,
					       .renew_interval_ms = 900};
	const struct sl_processor none = {SL_PROCESSOR_INIT, .type = "t"};
	const struct sl_processor twice[] = {good, good};
	struct sl_worker_opts o = wkit_opts(k, &good, 1);
	o.slots = -5;
	REFUSED(sl_worker_new(&w, &o, &err), SL_EINVAL, "slots");
	o = wkit_opts(k, &good, 1);
	o.lanes = 1000;
	REFUSED(sl_worker_new(&w, &o, &err), SL_EINVAL, "lanes");
	o = wkit_opts(k, &good, 1);
	o.store = NULL;
	REFUSED(sl_worker_new(&w, &o, &err), SL_EINVAL, "store");
	o = wkit_opts(k, &good, 0);
	REFUSED(sl_worker_new(&w, &o, &err), SL_EINVAL, "processors");
	o = wkit_opts(k, &none, 1);
	REFUSED(sl_worker_new(&w, &o, &err), SL_EINVAL, "process");
	o = wkit_opts(k, twice, 2);
	REFUSED(sl_worker_new(&w, &o, &err), SL_EINVAL, "twice");
	o = wkit_opts(k, &bad_lease, 1);
	REFUSED(sl_worker_new(&w, &o, &err), SL_EINVAL, "renew_interval_ms");
	o = wkit_opts(k, &good, 1);
	o.worker_id = "";
	REFUSED(sl_worker_new(&w, &o, &err), SL_EINVAL, "worker_id");
	assert_null(w);
	sl_worker_free(NULL);
}

static void a_worker_without_an_id_gets_a_random_one(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_noop};
	struct sl_worker_opts o = wkit_opts(k, &p, 1);
	o.worker_id = NULL;
	sl_worker *a, *b;
	OK(sl_worker_new(&a, &o, &err));
	OK(sl_worker_new(&b, &o, &err));
	assert_int_equal(strlen(sl_worker_id(a)), 36);
	assert_string_not_equal(sl_worker_id(a), sl_worker_id(b));
	assert_int_equal(sl_worker_id(a)[14], '4');
	sl_worker_free(a);
	sl_worker_free(b);
}

static void a_worker_refuses_to_work_in_a_forked_child(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_noop};
	struct sl_worker_opts o = wkit_opts(k, &p, 1);
	sl_worker *w;
	OK(sl_worker_new(&w, &o, &err));
	pid_t pid = fork();
	if (pid == 0) {
		int rc = sl_worker_start(w, NULL);
		sl_worker_free(w);
		_exit(rc == SL_EFORKED ? 0 : 1);
	}
	int status = 0;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	sl_worker_free(w);
}

/* A worker's whole life, from its making to its end, with the nth allocation failing. */
static int live(struct wkit *k, const struct sl_env *env)
{
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = echo, .retry = {.first_ms = 1}};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	struct sl_err err = SL_ERR_INIT;
	sl_worker *w = NULL;
	opts.env = env;
	opts.slots = 2;
	int rc = sl_worker_new(&w, &opts, &err);
	if (rc == 0)
		rc = sl_worker_start(w, &err);
	if (rc != 0) {
		assert_int_equal(rc, SL_ENOMEM);
		sl_worker_free(w);
		return 0;
	}
	uint64_t ids[5];
	for (int i = 0; i < 5; i++)
		ids[i] = wkit_start(k, "t", "\"an output that is too long to be kept in the run itself\"");
	for (int i = 0; i < 5; i++)
		assert_int_equal(wkit_wait(k, ids[i]), SL_JOB_COMPLETED);
	wkit_end(w);
	return 1;
}

static void no_failed_allocation_loses_a_job_or_memory(void **state)
{
	struct wkit *k = *state;
	struct fault f;
	fault_init(&f, NULL);
	struct sl_env env = fault_env(&f, NULL);
	int lives = 0;
	int64_t n = 1;
	for (;; n++) {
		fault_arm_mem(&f, n, FAULT_ONCE);
		lives += live(k, &env);
		fault_disarm(&f);
		assert_int_equal(fault_live_allocs(&f), 0);
		if (fault_mem_failed(&f) == 0)
			break;
	}
	printf("# %d allocations failed, %d times while it ran\n", (int)n - 1, lives - 1);
	fault_fini(&f);
}

static int find_text(const char *data, size_t n, void *ctx)
{
	char **at = ctx;
	(void)n;
	*at = strdup(data);
	return 0;
}

static void metrics_count_by_type(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p[] = {{SL_PROCESSOR_INIT, .type = "good", .process = wkit_noop},
					 {SL_PROCESSOR_INIT, .type = "bad", .process = fail_for_good}};
	struct sl_worker_opts opts = wkit_opts(k, p, 2);
	sl_worker *w = wkit_worker(k, &opts);
	wkit_wait(k, wkit_start(k, "good", "1"));
	wkit_wait(k, wkit_start(k, "good", "1"));
	wkit_wait(k, wkit_start(k, "bad", "1"));
	wkit_await(k, SL_OBSERVE_JOB_FAILED, 1);
	wkit_await(k, SL_OBSERVE_JOB_COMPLETED, 2);
	char *text = NULL;
	OK(sl_metrics_render(k->metrics, find_text, &text, &err));
	assert_non_null(strstr(text, "sluice_jobs_completed_total{type=\"good\"} 2"));
	assert_non_null(strstr(text, "sluice_jobs_failed_total{type=\"bad\"} 1"));
	assert_non_null(strstr(text, "sluice_jobs_attempt_seconds_count{type=\"good\"} 2"));
	assert_non_null(strstr(text, "sluice_jobs_busy_slots 0"));
	free(text);
	wkit_end(w);
}

#define T(name) cmocka_unit_test_setup_teardown(name, wkit_memory, wkit_gone)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_started_chain_is_completed_with_its_output),
		T(a_handler_that_says_nothing_completes_with_null),
		T(without_a_notifier_polling_finds_the_job),
		T(a_scheduled_job_wakes_the_worker_when_it_is_due),
		T(a_failed_attempt_is_repeated_after_its_backoff_until_attempts_run_out),
		T(a_job_that_fails_for_good_is_not_repeated_and_its_reason_is_made_text),
		T(a_reschedule_charges_nothing),
		T(an_output_that_its_type_refuses_fails_the_attempt),
		T(an_output_that_its_type_accepts_completes_the_job),
		T(an_output_with_invalid_json_is_refused_and_can_be_corrected),
		T(a_job_whose_attempts_killed_its_workers_fails_without_being_started),
		T(a_type_runs_in_no_more_slots_than_it_has),
		T(slots_work_side_by_side),
		T(what_was_claimed_ahead_goes_back_when_its_slot_is_stuck),
		T(a_slot_rests_between_jobs),
		T(a_type_has_a_rest_of_its_own),
		T(a_thousand_idle_slots_ask_once_a_poll),
		T(middlewares_wrap_the_handler_in_order_and_may_refuse),
		T(jobs_of_a_dead_worker_are_taken_back_a_bite_at_a_time),
		T(a_worker_fires_schedules),
		T(an_idle_worker_sends_heartbeats),
		T(a_heartbeat_has_the_last_error_of_an_attempt),
		cmocka_unit_test_setup_teardown(a_worker_is_listed_from_its_first_heartbeat_until_it_stops, wkit_sqlite,
						wkit_gone),
		T(a_schedule_that_is_new_is_heard_of),
		T(drain_waits_for_retries_and_not_for_the_far_future),
		T(drain_reports_types_that_are_paused),
		T(drain_waits_for_the_first_check_of_the_schedules),
		T(bad_options_are_named),
		T(a_worker_without_an_id_gets_a_random_one),
		T(a_worker_refuses_to_work_in_a_forked_child),
		T(metrics_count_by_type),
		cmocka_unit_test_setup_teardown(no_failed_allocation_loses_a_job_or_memory, wkit_sqlite, wkit_gone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
