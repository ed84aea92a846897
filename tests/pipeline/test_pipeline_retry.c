/* SPDX-License-Identifier: Apache-2.0 */
/* Partitions that fail once, always, late; commits whose catalog becomes unavailable and comes back. */
#include <sched.h>

#include "base/base.h"
#include "pipeline/rig.h"

/* Which partition fails, how often, with what; further ones by another plan. */
struct plan {
	uint64_t number;
	uint32_t times; /* attempts that fail, from the first */
	int code;
	enum sl_err_class error_class;
	int64_t retry_after_ms;
	atomic_uint failed;
};

static int fail_as_planned(struct rig *r, const struct sl_pipeline_partition *p, struct sl_err *err)
{
	struct plan *plan = r->own;
	if (p->number != plan->number || p->attempt > plan->times)
		return 0;
	atomic_fetch_add(&plan->failed, 1);
	(void)sl_err_set(err, plan->code, "the disk grumbles");
	if (plan->error_class != SL_CLASS_NONE)
		err->error_class = plan->error_class;
	err->retry_after_ms = plan->retry_after_ms;
	return plan->code;
}

static int64_t now_ms(struct rig *r)
{
	return r->env.clock->mono_ns(r->env.clock_ctx) / 1000000;
}

static void assert_text(const char *text, const char *part)
{
	if (strstr(text, part) == NULL)
		fail_msg("\"%s\" is not in: %s", part, text);
}

/* ---- workers ---- */

static void a_partition_that_fails_once_is_tried_again_and_committed_in_its_place(void **state)
{
	struct rig *r = *state;
	struct plan plan = {.number = 2, .times = 1, .code = SL_EIO};
	r->own = &plan;
	r->on_store = fail_as_planned;
	r->clock.auto_advance = 1;
	int64_t began = now_ms(r);
	assert_int_equal(rig_run(r), 0);
	rig_assert_chain(r, 0, 59, 10);
	assert_int_equal(r->builds, 7); /* a failed store is built anew */
	assert_int_equal(r->stores, 7);
	assert_int_equal(r->stats.retries, 1);
	assert_in_range(now_ms(r) - began, 500, 1500); /* 1 s, ±50 % */
}

static void with_keep_output_only_the_store_is_repeated(void **state)
{
	struct rig *r = *state;
	struct plan plan = {.number = 2, .times = 2, .code = SL_EIO};
	r->own = &plan;
	r->on_store = fail_as_planned;
	r->o.keep_output = SL_ON;
	r->clock.auto_advance = 1;
	assert_int_equal(rig_run(r), 0);
	rig_assert_chain(r, 0, 59, 10);
	assert_int_equal(r->builds, 6);
	assert_int_equal(r->stores, 8);
}

static void the_backoff_doubles_and_nothing_is_tried_before_its_time(void **state)
{
	struct rig *r = *state;
	struct plan plan = {.number = 0, .times = 2, .code = SL_ETIMEDOUT};
	r->own = &plan;
	r->on_build = fail_as_planned;
	r->to = 9;
	r->o.retry_backoff_ms = 1000;
	rig_start(r);
	vclock_await_settled(&r->clock, 1);
	vclock_advance_ms(&r->clock, 499); /* 1000 − 50 % */
	vclock_await_settled(&r->clock, 1);
	assert_int_equal(atomic_load(&plan.failed), 1);
	vclock_advance_ms(&r->clock, 1001);
	while (atomic_load(&plan.failed) < 2)
		sched_yield();
	vclock_await_settled(&r->clock, 1);
	vclock_advance_ms(&r->clock, 999); /* 2000 − 50 % */
	vclock_await_settled(&r->clock, 1);
	assert_int_equal(r->n_commits, 0);
	vclock_advance_ms(&r->clock, 2001);
	assert_int_equal(rig_join(r), 0);
	rig_assert_chain(r, 0, 9, 10);
	assert_int_equal(r->builds, 3);
}

static void every_retry_is_logged_with_partition_attempt_and_cause(void **state)
{
	struct rig *r = *state;
	struct plan plan = {.number = 4, .times = 2, .code = SL_EIO};
	r->own = &plan;
	r->on_store = fail_as_planned;
	r->clock.auto_advance = 1;
	assert_int_equal(rig_run(r), 0);
	assert_int_equal(r->warnings, 2);
	assert_text(r->last_record, "step=store start=40 end=49 attempt=2 delay_ms=");
	assert_text(r->last_record, "the disk grumbles");
}

static void a_partition_that_always_fails_stops_the_run_and_is_named(void **state)
{
	struct rig *r = *state;
	struct plan plan = {.number = 3, .times = UINT32_MAX, .code = SL_EIO};
	r->own = &plan;
	r->on_store = fail_as_planned;
	r->clock.auto_advance = 1;
	r->to = 9999;
	r->run = 10;
	assert_int_equal(rig_run(r), SL_EIO);
	assert_text(r->err.msg, "partition 30 to 39, attempt 3 of 3: store: the disk grumbles");
	assert_int_equal(atomic_load(&plan.failed), 3);
	rig_assert_chain(r, 0, 29, 10);
	assert_int_equal(r->stats.last, 29);
	assert_int_equal(r->errors, 1);
	assert_text(r->last_record, "partition 30 to 39");
	assert_int_equal(atomic_load(&r->interrupts), 1);
	/* the next run resumes after what was committed */
	r->on_store = NULL;
	assert_int_equal(rig_resume(r), 0);
	rig_assert_chain(r, 0, 9999, 10);
	assert_int_equal(r->stats.skipped, 3);
}

static void an_error_that_no_retry_can_cure_is_not_tried_again(void **state)
{
	struct rig *r = *state;
	const int codes[] = {SL_EDATA, SL_EINVAL, SL_ECONFLICT, SL_ECLOSED, SL_ECANCELLED};
	r->on_build = fail_as_planned;
	for (size_t i = 0; i < SL_COUNT(codes); i++) {
		struct plan plan = {.number = 1, .times = UINT32_MAX, .code = codes[i]};
		r->own = &plan;
		r->n_commits = 0;
		assert_int_equal(rig_run(r), codes[i]);
		assert_text(r->err.msg, "partition 10 to 19, attempt 1 of 3: build: the disk grumbles");
		assert_int_equal(atomic_load(&plan.failed), 1);
		rig_assert_chain(r, 0, 9, 10);
	}
}

static void an_unavailable_target_uses_up_the_attempts_so_that_the_run_ends_resumable(void **state)
{
	struct rig *r = *state;
	struct plan plan = {.number = 1, .times = UINT32_MAX, .code = SL_EUNAVAIL};
	r->own = &plan;
	r->on_store = fail_as_planned;
	r->o.retry_attempts = 5;
	r->clock.auto_advance = 1;
	assert_int_equal(rig_run(r), SL_EUNAVAIL);
	assert_int_equal(atomic_load(&plan.failed), 5);
}

static void a_throttled_partition_waits_as_long_as_requested_and_is_not_charged(void **state)
{
	struct rig *r = *state;
	struct plan plan = {
		.number = 1, .times = 10, .code = SL_EAGAIN, .error_class = SL_CLASS_THROTTLED, .retry_after_ms = 7000};
	r->own = &plan;
	r->on_store = fail_as_planned;
	r->clock.auto_advance = 1;
	int64_t began = now_ms(r);
	assert_int_equal(rig_run(r), 0);
	rig_assert_chain(r, 0, 59, 10);
	assert_int_equal(now_ms(r) - began, 70000);
}

/* Fails without saying why. */
static int fail_silently(struct rig *r, const struct sl_pipeline_partition *p, struct sl_err *err)
{
	(void)r;
	(void)err;
	return p->number == 0 ? SL_EDATA : 0;
}

static void a_callback_that_fills_no_error_gets_the_text_of_its_code(void **state)
{
	struct rig *r = *state;
	r->on_build = fail_silently;
	assert_int_equal(rig_run(r), SL_EDATA);
	assert_text(r->err.msg, "build: bad data");
	assert_int_equal(r->n_commits, 0);
}

/* Partition 0 fails for good, but only when all the others that have room are finished. */
static int fail_late(struct rig *r, const struct sl_pipeline_partition *p, struct sl_err *err)
{
	struct sl_pipeline_stats s = {.struct_size = sizeof(s)};
	if (p->number != 0)
		return 0;
	do {
		sched_yield();
		if (sl_pipeline_get_stats(r->p, &s) != 0)
			abort();
	} while (s.window_used < 11 || s.stored < 14);
	return sl_err_set(err, SL_EDATA, "too late");
}

static void a_late_failure_of_the_first_partition_commits_none_of_the_finished_ones_after_it(void **state)
{
	struct rig *r = *state;
	r->on_store = fail_late;
	r->to = 9999;
	r->run = 10;
	assert_int_equal(rig_run(r), SL_EDATA);
	assert_text(r->err.msg, "partition 0 to 9, attempt 1");
	assert_int_equal(r->n_commits, 0);
	r->on_store = NULL;
	assert_int_equal(rig_resume(r), 0);
	rig_assert_chain(r, 0, 9999, 10);
}

/* 4 fails at once, 2 fails after it: the run ends at 2. */
static int two_failures(struct rig *r, const struct sl_pipeline_partition *p, struct sl_err *err)
{
	atomic_int *failed = r->own;
	if (p->number == 4) {
		atomic_store(failed, 1);
		return sl_err_set(err, SL_EDATA, "four");
	}
	if (p->number != 2)
		return 0;
	while (atomic_load(failed) == 0)
		sched_yield();
	return sl_err_set(err, SL_EDATA, "two");
}

static void of_several_failures_the_first_in_order_is_reported(void **state)
{
	struct rig *r = *state;
	atomic_int failed = 0;
	r->own = &failed;
	r->on_store = two_failures;
	r->o.workers = 6;
	assert_int_equal(rig_run(r), SL_EDATA);
	assert_text(r->err.msg, "partition 20 to 29");
	rig_assert_chain(r, 0, 19, 10);
}

/* A failure in front of a partition that waits for its retry lets go of it at once: the clock does not move. */
static int wait_and_fail(struct rig *r, const struct sl_pipeline_partition *p, struct sl_err *err)
{
	atomic_int *waits = r->own;
	if (p->number == 1) {
		atomic_store(waits, 1);
		return sl_err_set(err, SL_EIO, "for a while");
	}
	if (p->number != 0)
		return 0;
	while (atomic_load(waits) == 0)
		sched_yield();
	vclock_await_settled(&r->clock, 1);
	return sl_err_set(err, SL_EDATA, "for good");
}

static void a_failure_ends_the_retries_of_later_partitions(void **state)
{
	struct rig *r = *state;
	atomic_int waits = 0;
	r->own = &waits;
	r->on_build = wait_and_fail;
	assert_int_equal(rig_run(r), SL_EDATA);
	assert_text(r->err.msg, "partition 0 to 9");
	assert_int_equal(r->n_commits, 0);
}

/* A source that waits for more does not hold up the end. */
static void a_failure_interrupts_a_source_that_waits(void **state)
{
	struct rig *r = *state;
	struct plan plan = {.number = 5, .times = UINT32_MAX, .code = SL_EDATA};
	r->own = &plan;
	r->on_build = fail_as_planned;
	r->wait_at_end = true;
	assert_int_equal(rig_run(r), SL_EDATA);
	rig_assert_chain(r, 0, 49, 10);
	assert_int_equal(atomic_load(&r->interrupts), 1);
}

static int broken_init(unsigned index, void **worker, struct sl_err *err, void *ctx)
{
	(void)ctx;
	(void)index;
	(void)worker;
	return sl_err_set(err, SL_EACCES, "no scratch");
}

static void a_worker_that_cannot_be_made_fails_its_first_partition(void **state)
{
	struct rig *r = *state;
	r->ops.worker_init = broken_init;
	assert_int_equal(rig_run(r), SL_EACCES);
	assert_text(r->err.msg, "attempt 1 of 3: worker: no scratch");
	assert_int_equal(r->n_commits, 0);
}

/* ---- commits ---- */

static void a_commit_is_retried_until_its_catalog_is_available_again(void **state)
{
	struct rig *r = *state;
	struct plan plan = {.number = 2, .times = 50, .code = SL_EUNAVAIL};
	r->own = &plan;
	r->on_commit = fail_as_planned;
	r->clock.auto_advance = 1;
	assert_int_equal(rig_run(r), 0);
	rig_assert_chain(r, 0, 59, 10);
	assert_int_equal(r->tries, 56);
	assert_int_equal(r->stats.commit_retries, 50);
	assert_int_equal(r->stats.retries, 0);
	assert_text(r->last_record, "step=commit start=20 end=29 attempt=50");
}

static void a_commit_that_needs_an_operator_fails_after_its_attempts_and_can_be_resumed(void **state)
{
	struct rig *r = *state;
	struct plan plan = {.number = 2, .times = UINT32_MAX, .code = SL_ENOSPC, .error_class = SL_CLASS_FATAL};
	r->own = &plan;
	r->on_commit = fail_as_planned;
	r->clock.auto_advance = 1;
	assert_int_equal(rig_run(r), SL_ENOSPC);
	assert_int_equal(plan.failed, 3);
	assert_text(r->err.msg, "partition 20 to 29, attempt 3: commit: the disk grumbles");
	rig_assert_chain(r, 0, 19, 10);
	r->on_commit = NULL;
	assert_int_equal(rig_resume(r), 0);
	rig_assert_chain(r, 0, 59, 10);
}

static void a_commit_is_given_up_when_its_patience_ends(void **state)
{
	struct rig *r = *state;
	struct plan plan = {.number = 2, .times = UINT32_MAX, .code = SL_EUNAVAIL};
	r->own = &plan;
	r->on_commit = fail_as_planned;
	r->clock.auto_advance = 1;
	r->o.commit_patience_ms = 100000;
	int64_t began = now_ms(r);
	assert_int_equal(rig_run(r), SL_EUNAVAIL);
	assert_text(r->err.msg, "partition 20 to 29, attempt ");
	assert_text(r->err.msg, ": commit: the disk grumbles");
	assert_in_range(now_ms(r) - began, 10000, 100000);
	rig_assert_chain(r, 0, 19, 10);
	r->on_commit = NULL;
	assert_int_equal(rig_resume(r), 0);
	rig_assert_chain(r, 0, 59, 10);
}

static void without_patience_a_commit_is_tried_once(void **state)
{
	struct rig *r = *state;
	struct plan plan = {.number = 2, .times = 1, .code = SL_EUNAVAIL};
	r->own = &plan;
	r->on_commit = fail_as_planned;
	r->o.commit_patience_ms = SL_NONE;
	assert_int_equal(rig_run(r), SL_EUNAVAIL);
	assert_int_equal(r->tries, 3);
	rig_assert_chain(r, 0, 19, 10);
}

static void a_commit_that_is_refused_for_good_stops_the_run(void **state)
{
	struct rig *r = *state;
	const int codes[] = {SL_ECONFLICT, SL_EIO, SL_ECLOSED, SL_ECANCELLED};
	r->on_commit = fail_as_planned;
	r->to = 9999;
	r->run = 10;
	for (size_t i = 0; i < SL_COUNT(codes); i++) {
		struct plan plan = {.number = 2, .times = UINT32_MAX, .code = codes[i]};
		r->own = &plan;
		r->n_commits = 0;
		assert_int_equal(rig_run(r), codes[i]);
		assert_text(r->err.msg, "partition 20 to 29, attempt 1: commit: the disk grumbles");
		assert_int_equal(atomic_load(&plan.failed), 1);
		rig_assert_chain(r, 0, 19, 10);
	}
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_partition_that_fails_once_is_tried_again_and_committed_in_its_place),
		CASE(with_keep_output_only_the_store_is_repeated),
		CASE(the_backoff_doubles_and_nothing_is_tried_before_its_time),
		CASE(every_retry_is_logged_with_partition_attempt_and_cause),
		CASE(a_partition_that_always_fails_stops_the_run_and_is_named),
		CASE(an_error_that_no_retry_can_cure_is_not_tried_again),
		CASE(an_unavailable_target_uses_up_the_attempts_so_that_the_run_ends_resumable),
		CASE(a_throttled_partition_waits_as_long_as_requested_and_is_not_charged),
		CASE(a_callback_that_fills_no_error_gets_the_text_of_its_code),
		CASE(a_late_failure_of_the_first_partition_commits_none_of_the_finished_ones_after_it),
		CASE(of_several_failures_the_first_in_order_is_reported),
		CASE(a_failure_ends_the_retries_of_later_partitions),
		CASE(a_failure_interrupts_a_source_that_waits),
		CASE(a_worker_that_cannot_be_made_fails_its_first_partition),
		CASE(a_commit_is_retried_until_its_catalog_is_available_again),
		CASE(a_commit_that_needs_an_operator_fails_after_its_attempts_and_can_be_resumed),
		CASE(a_commit_is_given_up_when_its_patience_ends),
		CASE(without_patience_a_commit_is_tried_once),
		CASE(a_commit_that_is_refused_for_good_stops_the_run),
	};
	return cmocka_run_group_tests_name("pipeline retries", tests, NULL, NULL);
}
