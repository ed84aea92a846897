/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The specification's "Retry and cooldown ownership", "Timeouts and errors", and the honouring of retryAt, line by
 * line:
 *
 *   honor per-block retryAt                       a_failed_block_waits_for_its_retry_at_and_goes_ahead_when_due
 *   re-queued with exponential backoff            the_delay_doubles_from_2_s_to_30_s, the_default_delay_is_spread_…
 *   lowers target (minimum 1), notifies           failures_within_one_window_lower_the_concurrency_once,
 *                                                 the_concurrency_never_falls_below_1
 *   increases in cooldown steps to max            the_concurrency_comes_back_in_cooldown_steps
 *   retried until maxRetryAttempts                the_fifth_failure_of_a_block_is_an_error, max_retry_attempts_…
 *   error: loop aborts, waiters released,         the_fifth_failure_of_a_block_is_an_error,
 *     later callers see it (throwIfError)           an_error_releases_who_waits_for_backpressure
 *   every block written or reported               every_block_that_is_not_written_is_reported_with_its_reason,
 *                                                 in_flight_writes_are_awaited_and_counted_after_an_error
 */
#include "writer/kit.h"

static void fail_call(struct kit *k, int i)
{
	struct sl_err bad = kit_error(SL_CLASS_TRANSIENT, "away");
	kit_complete(k, i, &bad);
}

/* ---- retry_at ---- */

static void a_failed_block_waits_for_its_retry_at_and_goes_ahead_when_due(void **state)
{
	struct kit *k = *state;
	k->opts.max_concurrent_writes = 1;
	kit_start(k);
	kit_enqueue(k, "aaaa1", 1);
	kit_enqueue(k, "aaaa2", 1);
	kit_enqueue(k, "aaaa3", 1);
	fail_call(k, 0);
	assert_string_equal(k->writes[1].hash, "aaaa2"); /* it is skipped */
	kit_pass_ms(k, 1999);
	kit_complete(k, 1, NULL);
	assert_string_equal(k->writes[2].hash, "aaaa3");
	kit_enqueue(k, "aaaa4", 1);
	kit_pass_ms(k, 1);
	kit_complete(k, 2, NULL);
	assert_string_equal(k->writes[3].hash, "aaaa1"); /* due: ahead of its shard */
	assert_int_equal(k->writes[3].attempt, 2);
	assert_int_equal(kit_finish(k), 0);
	assert_int_equal(k->n_written, 4);
}

static void a_block_is_tried_again_when_due_though_nothing_else_happens(void **state)
{
	struct kit *k = *state;
	kit_start(k);
	kit_enqueue(k, "aaaa1", 1);
	fail_call(k, 0);
	assert_int_equal(kit_stats(k).queued_blocks, 1);
	assert_int_equal(kit_stats(k).in_flight_blocks, 0);
	kit_pass_ms(k, 1999);
	assert_int_equal(k->n_writes, 1);
	kit_pass_ms(k, 1);
	assert_int_equal(k->n_writes, 2);
}

static void the_delay_doubles_from_2_s_to_30_s(void **state)
{
	struct kit *k = *state;
	static const int64_t delays[] = {2000, 4000, 8000, 16000, 30000, 30000};
	k->opts.max_retry_attempts = SL_UNLIMITED;
	kit_start(k);
	kit_enqueue(k, "aaaa1", 1);
	for (int i = 0; i < 6; i++) {
		fail_call(k, i);
		kit_pass_ms(k, delays[i] - 1);
		assert_int_equal(k->n_writes, i + 1);
		kit_pass_ms(k, 1);
		assert_int_equal(k->n_writes, i + 2);
	}
}

static void the_default_delay_is_spread_by_half(void **state)
{
	struct kit *k = *state;
	int64_t least = INT64_MAX, most = 0;
	k->opts.retry_policy = (struct sl_retry_policy){0};
	kit_start(k);
	for (int i = 0; i < 40; i++) {
		char hash[8];
		(void)snprintf(hash, sizeof(hash), "%04x", i);
		int64_t from = kit_now_ms(k);
		kit_enqueue(k, hash, 1);
		fail_call(k, kit_find(k, hash, 1));
		for (int ms = 0; kit_find(k, hash, 2) < 0; ms += 10) {
			assert_true(ms < 4000);
			kit_pass_ms(k, 10);
		}
		int again = kit_find(k, hash, 2);
		int64_t delay = k->writes[again].at_ms - from;
		least = delay < least ? delay : least;
		most = delay > most ? delay : most;
		kit_complete(k, again, NULL);
	}
	assert_in_range(least, 1000, 1700);
	assert_in_range(most, 2300, 3010);
}

static void a_throttled_block_waits_as_requested_and_is_not_counted(void **state)
{
	struct kit *k = *state;
	struct sl_err slow = kit_error(SL_CLASS_THROTTLED, "slow down");
	slow.retry_after_ms = 700;
	kit_start(k);
	kit_enqueue(k, "aaaa1", 1);
	for (int i = 0; i < 12; i++) {
		kit_complete(k, i, &slow);
		kit_pass_ms(k, 699);
		assert_int_equal(k->n_writes, i + 1);
		kit_pass_ms(k, 1);
		assert_int_equal(k->n_writes, i + 2);
	}
	assert_int_equal(sl_writer_error(k->w, NULL), 0);
	kit_complete(k, 12, NULL);
	assert_int_equal(k->n_written, 1);
}

/* ---- concurrency ---- */

static void start_in_flight(struct kit *k, int n)
{
	for (int i = 0; i < n; i++) {
		char hash[8];
		(void)snprintf(hash, sizeof(hash), "%04x", i);
		kit_enqueue(k, hash, 1);
	}
}

static void failures_within_one_window_lower_the_concurrency_once(void **state)
{
	struct kit *k = *state;
	kit_start(k);
	start_in_flight(k, 16);
	for (int i = 0; i < 5; i++)
		fail_call(k, i);
	assert_int_equal(k->n_limits, 1);
	assert_int_equal(k->limits[0], 8);
	assert_int_equal(kit_stats(k).target_concurrent_writes, 8);
	assert_int_equal(kit_stats(k).max_concurrent_writes, 16);
	kit_pass_ms(k, 1000); /* the window is over */
	fail_call(k, 5);
	assert_int_equal(k->n_limits, 2);
	assert_int_equal(k->limits[1], 4);
	/* 10 are still out: nothing new goes until fewer than 4 are */
	start_in_flight(k, 20);
	assert_int_equal(k->n_writes, 16);
	for (int i = 6; i < 12; i++)
		kit_complete(k, i, NULL);
	assert_int_equal(k->n_writes, 16);
	kit_complete(k, 12, NULL);
	assert_int_equal(k->n_writes, 17);
}

static void the_concurrency_never_falls_below_1(void **state)
{
	struct kit *k = *state;
	k->opts.max_retry_attempts = SL_UNLIMITED;
	k->opts.cooldown_ms = 1000000;
	kit_start(k);
	start_in_flight(k, 1);
	for (int i = 0; i < 8; i++) {
		fail_call(k, i);
		kit_pass_ms(k, 30000);
	}
	assert_int_equal(k->n_limits, 4);
	for (int i = 0; i < 4; i++)
		assert_int_equal(k->limits[i], 8 >> i);
	assert_int_equal(k->n_writes, 9); /* and continues */
}

static void the_concurrency_comes_back_in_cooldown_steps(void **state)
{
	struct kit *k = *state;
	k->opts.max_concurrent_writes = 4;
	kit_start(k);
	start_in_flight(k, 4);
	fail_call(k, 0);
	assert_int_equal(k->limits[0], 2);
	kit_complete(k, 1, NULL);
	kit_complete(k, 2, NULL);
	kit_complete(k, 3, NULL);
	kit_pass_ms(k, 2000);
	kit_complete(k, 4, NULL); /* nothing is left: the writer is idle, and steps up all the same */
	kit_pass_ms(k, 2999);
	assert_int_equal(k->n_limits, 1);
	kit_pass_ms(k, 1);
	assert_int_equal(k->n_limits, 2);
	assert_int_equal(k->limits[1], 3);
	kit_pass_ms(k, 5000);
	assert_int_equal(k->n_limits, 3);
	assert_int_equal(k->limits[2], 4);
	assert_int_equal(k->limits_at_ms[2], 10000);
	assert_int_equal(vclock_advance_to_next(&k->clock), 0); /* max: no more steps */
}

/* ---- the error state ---- */

static void the_fifth_failure_of_a_block_is_an_error(void **state)
{
	struct kit *k = *state;
	struct sl_err err = SL_ERR_INIT;
	kit_start(k);
	kit_enqueue(k, "aaaa1", 3);
	for (int i = 0; i < 4; i++) {
		fail_call(k, i);
		assert_int_equal(sl_writer_error(k->w, &err), 0);
		kit_pass_ms(k, 16000);
	}
	fail_call(k, 4);
	assert_int_equal(sl_writer_error(k->w, &err), SL_EIO);
	assert_non_null(strstr(err.msg, "shard aaaa"));
	assert_non_null(strstr(err.msg, "attempt 5"));
	assert_non_null(strstr(err.msg, "away"));
	/* the loop has ended, and every later caller gets the error */
	err = (struct sl_err)SL_ERR_INIT;
	assert_int_equal(sl_writer_join(k->w, SL_UNLIMITED, &err), SL_EIO);
	assert_int_equal(sl_writer_enqueue(k->w, "bbbb1", 5, "x", 1, &err), SL_EIO);
	assert_non_null(strstr(err.msg, "away"));
	assert_int_equal(sl_writer_wait_for_backpressure_clear(k->w, SL_UNLIMITED, &err), SL_EIO);
	assert_int_equal(k->n_unwritten, 1);
	assert_int_equal(k->unwritten[0].attempts, 5);
	assert_int_equal(k->unwritten[0].reason.code, SL_EIO);
	assert_int_equal(k->physical, 0);
	assert_int_equal(kit_logged(k, "stopped on an error"), 1);
}

static void max_retry_attempts_counts_the_first_try(void **state)
{
	struct kit *k = *state;
	k->opts.max_retry_attempts = 1;
	kit_start(k);
	kit_enqueue(k, "aaaa1", 3);
	fail_call(k, 0);
	assert_int_equal(sl_writer_error(k->w, NULL), SL_EIO);
}

static void an_error_without_a_class_and_an_unreachable_target_are_retried(void **state)
{
	struct kit *k = *state;
	struct sl_err plain = kit_error(SL_CLASS_NONE, "oops"), fatal = kit_error(SL_CLASS_FATAL, "gone");
	k->opts.max_retry_attempts = 3;
	kit_start(k);
	kit_enqueue(k, "aaaa1", 3);
	kit_complete(k, 0, &plain);
	kit_pass_ms(k, 2000);
	kit_complete(k, 1, &fatal);
	kit_pass_ms(k, 4000);
	assert_int_equal(sl_writer_error(k->w, NULL), 0);
	kit_complete(k, 2, &fatal); /* but not for ever */
	assert_int_equal(sl_writer_error(k->w, NULL), SL_EIO);
}

static void poison_is_not_tried_again(void **state)
{
	struct kit *k = *state;
	struct sl_err poison = kit_error(SL_CLASS_POISON, "too long");
	kit_start(k);
	kit_enqueue(k, "aaaa1", 3);
	kit_complete(k, 0, &poison);
	assert_int_equal(sl_writer_error(k->w, NULL), SL_EIO);
	assert_int_equal(k->n_limits, 0); /* and says nothing about the target */
	assert_int_equal(k->unwritten[0].attempts, 1);
}

static void in_flight_writes_are_awaited_and_counted_after_an_error(void **state)
{
	struct kit *k = *state;
	struct sl_err poison = kit_error(SL_CLASS_POISON, "too long"), later = kit_error(SL_CLASS_TRANSIENT, "slow");
	k->opts.max_concurrent_writes = 3;
	kit_start(k);
	kit_enqueue(k, "aaaa1", 10);
	kit_enqueue(k, "bbbb1", 20);
	kit_enqueue(k, "cccc1", 40);
	kit_enqueue(k, "dddd1", 80);
	kit_complete(k, 0, &poison);
	/* reported at once: the culprit, and what was queued; the two others are out */
	assert_int_equal(k->n_unwritten, 2);
	assert_string_equal(k->unwritten[1].hash, "dddd1");
	assert_int_equal(sl_writer_join(k->w, 0, NULL), SL_ETIMEDOUT);
	assert_int_equal(sl_writer_free(k->w), SL_EPENDING);
	assert_int_equal(kit_stats(k).in_flight_blocks, 2);
	kit_complete(k, 1, NULL);
	assert_int_equal(k->physical, 20); /* counted */
	assert_int_equal(sl_writer_join(k->w, 0, NULL), SL_ETIMEDOUT);
	kit_complete(k, 2, &later); /* not tried again */
	assert_int_equal(sl_writer_join(k->w, SL_UNLIMITED, NULL), SL_EIO);
	assert_int_equal(k->n_unwritten, 3);
	assert_int_equal(k->unwritten[2].attempts, 1);
	assert_string_equal(k->unwritten[2].reason.msg, "slow");
	assert_int_equal(k->n_writes, 3);
	struct sl_writer_stats s = kit_stats(k);
	assert_int_equal(s.enqueued, s.written + s.unwritten);
	assert_int_equal(s.unwritten_bytes, 130);
	assert_int_equal(k->metrics[k->n_metrics - 1].queued, 0);
	assert_int_equal(k->metrics[k->n_metrics - 1].in_flight, 0);
	assert_int_equal(kit_logged(k, "stopped on an error"), 1);
}

static void every_block_that_is_not_written_is_reported_with_its_reason(void **state)
{
	struct kit *k = *state;
	struct sl_err poison = kit_error(SL_CLASS_POISON, "too long");
	k->opts.max_concurrent_writes = 2;
	kit_block_shard(k, "bbbb", true);
	kit_start(k);
	kit_enqueue(k, "bbbb1", 1); /* never ready */
	kit_enqueue(k, "cccc1", 1);
	fail_call(k, 0); /* waits for its retry_at; the concurrency is 1 now */
	kit_enqueue(k, "aaaa1", 1);
	kit_enqueue(k, "dddd1", 1); /* no room */
	kit_complete(k, 1, &poison);
	assert_int_equal(sl_writer_join(k->w, SL_UNLIMITED, NULL), SL_EIO);
	assert_int_equal(k->n_unwritten, 4);
	assert_string_equal(k->unwritten[0].hash, "aaaa1");
	assert_string_equal(k->unwritten[0].reason.msg, "too long");
	for (int i = 1; i < 4; i++) {
		assert_int_equal(k->unwritten[i].reason.code, SL_ECANCELLED);
		assert_non_null(strstr(k->unwritten[i].reason.msg, "too long"));
		assert_int_equal(k->unwritten[i].attempts, strcmp(k->unwritten[i].hash, "cccc1") == 0);
	}
}

static void cancel_ends_it_with_the_reason(void **state)
{
	struct kit *k = *state;
	struct sl_err err = SL_ERR_INIT, reason = kit_error(SL_CLASS_NONE, "the reader failed");
	kit_start(k);
	start_in_flight(k, 20);
	assert_int_equal(sl_writer_cancel(k->w, &reason), 0);
	assert_int_equal(sl_writer_cancel(k->w, NULL), 0); /* the first stays */
	kit_quiet(k);
	assert_int_equal(k->n_unwritten, 4);
	for (int i = 0; i < 16; i++)
		kit_complete(k, i, NULL);
	assert_int_equal(sl_writer_join(k->w, SL_UNLIMITED, &err), SL_EIO);
	assert_string_equal(err.msg, "the reader failed");
	assert_int_equal(k->n_written, 16);
}

static void a_cancel_after_the_end_changes_nothing(void **state)
{
	struct kit *k = *state;
	kit_start(k);
	assert_int_equal(kit_finish(k), 0);
	assert_int_equal(sl_writer_cancel(k->w, NULL), 0);
	assert_int_equal(sl_writer_error(k->w, NULL), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, kit_set_up, kit_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_failed_block_waits_for_its_retry_at_and_goes_ahead_when_due),
		T(a_block_is_tried_again_when_due_though_nothing_else_happens),
		T(the_delay_doubles_from_2_s_to_30_s),
		T(the_default_delay_is_spread_by_half),
		T(a_throttled_block_waits_as_requested_and_is_not_counted),
		T(failures_within_one_window_lower_the_concurrency_once),
		T(the_concurrency_never_falls_below_1),
		T(the_concurrency_comes_back_in_cooldown_steps),
		T(the_fifth_failure_of_a_block_is_an_error),
		T(max_retry_attempts_counts_the_first_try),
		T(an_error_without_a_class_and_an_unreachable_target_are_retried),
		T(poison_is_not_tried_again),
		T(in_flight_writes_are_awaited_and_counted_after_an_error),
		T(every_block_that_is_not_written_is_reported_with_its_reason),
		T(cancel_ends_it_with_the_reason),
		T(a_cancel_after_the_end_changes_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
