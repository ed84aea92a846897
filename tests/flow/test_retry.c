/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>

#include "flow/retry.h"

static void the_presets_are_those_of_the_design(void **state)
{
	(void)state;
	static const struct sl_retry_policy expected[] = {
		{5, 50, 2000, 2.0, SL_JITTER_HALF},      {SL_UNLIMITED, 1000, 60000, 2.0, SL_JITTER_AROUND},
		{3, 1000, 60000, 2.0, SL_JITTER_AROUND}, {SL_UNLIMITED, 10000, 300000, 2.0, SL_JITTER_OFF},
		{5, 2000, 30000, 2.0, SL_JITTER_AROUND},
	};
	for (int i = 0; i < 5; i++) {
		struct sl_retry_policy p = sl_retry_preset((enum sl_retry_preset)i);
		assert_int_equal(p.max_attempts, expected[i].max_attempts);
		assert_int_equal(p.first_ms, expected[i].first_ms);
		assert_int_equal(p.cap_ms, expected[i].cap_ms);
		assert_true(p.multiplier == expected[i].multiplier);
		assert_int_equal(p.jitter, expected[i].jitter);
	}
}

static void zero_fields_come_from_the_preset_and_given_ones_stay(void **state)
{
	(void)state;
	struct sl_retry_policy out, given = {.max_attempts = SL_UNLIMITED, .multiplier = 3};
	assert_int_equal(sl_retry_resolve(&given, SL_RETRY_WRITER, &out, NULL), 0);
	assert_int_equal(out.max_attempts, SL_UNLIMITED);
	assert_int_equal(out.first_ms, 2000);
	assert_int_equal(out.cap_ms, 30000);
	assert_true(out.multiplier == 3);
	assert_int_equal(out.jitter, SL_JITTER_AROUND);
	assert_int_equal(sl_retry_resolve(NULL, SL_RETRY_JOBS, &out, NULL), 0);
	assert_int_equal(out.first_ms, 10000);
	/* Resolving a resolved policy changes nothing. */
	struct sl_retry_policy again;
	given = (struct sl_retry_policy){.first_ms = SL_NONE};
	assert_int_equal(sl_retry_resolve(&given, SL_RETRY_WAL, &out, NULL), 0);
	assert_int_equal(sl_retry_resolve(&out, SL_RETRY_JOBS, &again, NULL), 0);
	assert_int_equal(again.first_ms, SL_NONE);
	assert_int_equal(again.cap_ms, 60000);
}

static void a_long_first_delay_alone_lifts_the_cap_and_a_low_cap_lowers_the_first(void **state)
{
	(void)state;
	struct sl_retry_policy out, given = {.first_ms = 120000};
	assert_int_equal(sl_retry_resolve(&given, SL_RETRY_WAL, &out, NULL), 0);
	assert_int_equal(out.cap_ms, 120000);
	given = (struct sl_retry_policy){.cap_ms = 10};
	assert_int_equal(sl_retry_resolve(&given, SL_RETRY_WAL, &out, NULL), 0);
	assert_int_equal(out.first_ms, 10);
}

static void a_field_out_of_range_is_refused_by_name_and_the_output_is_untouched(void **state)
{
	(void)state;
	static const struct {
		struct sl_retry_policy policy;
		const char *name;
	} bad[] = {
		{{.max_attempts = -1}, "max_attempts"},
		{{.max_attempts = -3}, "max_attempts"},
		{{.first_ms = -2}, "first_ms"},
		{{.cap_ms = -1}, "cap_ms"},
		{{.first_ms = 100, .cap_ms = 99}, "cap_ms"},
		{{.multiplier = 0.5}, "multiplier"},
		{{.multiplier = -2}, "multiplier"},
		{{.multiplier = INFINITY}, "multiplier"},
		{{.multiplier = NAN}, "multiplier"},
		{{.jitter = (enum sl_jitter)4}, "jitter"},
	};
	for (size_t i = 0; i < SL_COUNT(bad); i++) {
		struct sl_retry_policy out = {.max_attempts = 77};
		struct sl_err err = SL_ERR_INIT;
		assert_int_equal(sl_retry_resolve(&bad[i].policy, SL_RETRY_WAL, &out, &err), SL_EINVAL);
		assert_int_equal(err.code, SL_EINVAL);
		assert_non_null(strstr(err.msg, bad[i].name));
		assert_int_equal(out.max_attempts, 77);
	}
	struct sl_retry_policy out;
	assert_int_equal(sl_retry_resolve(NULL, (enum sl_retry_preset)5, &out, NULL), SL_EINVAL);
}

static void the_delay_doubles_up_to_the_cap(void **state)
{
	(void)state;
	struct sl_retry_policy p = sl_retry_preset(SL_RETRY_JOBS);
	struct sl__prng prng = {.s = 1};
	static const int64_t expected[] = {0, 10000, 20000, 40000, 80000, 160000, 300000, 300000};
	for (uint32_t n = 0; n < SL_COUNT(expected); n++)
		assert_int_equal(sl__retry_delay_ms(&p, n, &prng), expected[n]);
	p.multiplier = 1;
	assert_int_equal(sl__retry_delay_ms(&p, UINT32_MAX, &prng), 10000);
	p.first_ms = SL_NONE;
	assert_int_equal(sl__retry_delay_ms(&p, 3, &prng), 0);
}

static void any_number_of_failures_gives_the_capped_delay(void **state)
{
	(void)state;
	struct sl_retry_policy p = sl_retry_preset(SL_RETRY_JOBS);
	static const uint32_t attempts[] = {64, 65, 1024, 1025, 10000, UINT32_MAX - 1, UINT32_MAX};
	static const double multipliers[] = {1.5, 2, 1e9, 1e308};
	for (size_t m = 0; m < SL_COUNT(multipliers); m++) {
		p.multiplier = multipliers[m];
		for (size_t i = 0; i < SL_COUNT(attempts); i++)
			assert_int_equal(sl__retry_delay_ms(&p, attempts[i], NULL), 300000);
	}
	/* A cap beyond all measure is cut before the jitter can overflow. */
	p.cap_ms = INT64_MAX;
	p.jitter = SL_JITTER_AROUND;
	struct sl__prng prng = {.s = 2};
	for (int i = 0; i < 100; i++) {
		int64_t d = sl__retry_delay_ms(&p, UINT32_MAX, &prng);
		assert_in_range(d, SL__RETRY_DELAY_MAX_MS / 2, SL__RETRY_DELAY_MAX_MS * 3 / 2);
	}
}

/* Draw many delays at the cap: they fill [low, high] % of it and do not leave it. */
static void check_spread(enum sl_jitter jitter, int64_t low, int64_t high)
{
	struct sl_retry_policy p = {SL_UNLIMITED, 1000, 60000, 2.0, jitter};
	struct sl__prng prng = {.s = 42};
	int64_t min = INT64_MAX, max = 0;
	for (int i = 0; i < 10000; i++) {
		int64_t d = sl__retry_delay_ms(&p, 20, &prng);
		min = SL_MIN(min, d);
		max = SL_MAX(max, d);
	}
	assert_in_range(min, 600 * low, 600 * low + 60);
	assert_in_range(max, 600 * high - 60, 600 * high);
}

static void jitter_spreads_the_capped_delay(void **state)
{
	(void)state;
	check_spread(SL_JITTER_HALF, 50, 100);
	check_spread(SL_JITTER_AROUND, 50, 150);
}

static void attempts_run_out_at_the_limit_and_never_without_one(void **state)
{
	(void)state;
	struct sl_retry_policy p = sl_retry_preset(SL_RETRY_COORDINATOR);
	assert_false(sl__retry_exhausted(&p, 4));
	assert_true(sl__retry_exhausted(&p, 5));
	assert_true(sl__retry_exhausted(&p, UINT32_MAX));
	p.max_attempts = SL_UNLIMITED;
	assert_false(sl__retry_exhausted(&p, UINT32_MAX));
}

static struct sl_err of_class(enum sl_err_class error_class, int64_t retry_after_ms)
{
	return (struct sl_err){.code = SL_EIO, .error_class = error_class, .retry_after_ms = retry_after_ms};
}

static struct sl__retry_decision decide(struct sl__retry_state *s, struct sl_err err, bool may_charge)
{
	struct sl_retry_policy p = {3, 100, 1000, 2.0, SL_JITTER_OFF};
	return sl__retry_decide(&p, s, &err, may_charge, NULL);
}

static void a_transient_error_is_retried_until_the_attempts_run_out(void **state)
{
	(void)state;
	struct sl__retry_state s = {0};
	struct sl_err transient = of_class(SL_CLASS_TRANSIENT, 0);
	struct sl__retry_decision d = decide(&s, transient, true);
	assert_int_equal(d.action, SL__RETRY_AGAIN);
	assert_int_equal(d.delay_ms, 100);
	assert_true(d.charged);
	d = decide(&s, transient, true);
	assert_int_equal(d.delay_ms, 200);
	d = decide(&s, transient, true);
	assert_int_equal(d.action, SL__RETRY_GIVE_UP);
	assert_int_equal(d.delay_ms, 0);
	assert_int_equal(s.charged, 3);
}

static void what_is_not_charged_never_uses_up_the_attempts_but_backs_off(void **state)
{
	(void)state;
	struct sl__retry_state s = {0};
	for (int i = 0; i < 100; i++) {
		struct sl__retry_decision d = decide(&s, of_class(SL_CLASS_TRANSIENT, 0), false);
		assert_int_equal(d.action, SL__RETRY_AGAIN);
		assert_false(d.charged);
		assert_int_equal(d.delay_ms, i == 0 ? 100 : i == 1 ? 200 : i == 2 ? 400 : i == 3 ? 800 : 1000);
	}
	assert_int_equal(s.charged, 0);
	s.failures = UINT32_MAX;
	assert_int_equal(decide(&s, of_class(SL_CLASS_TRANSIENT, 0), false).delay_ms, 1000);
	assert_int_equal(s.failures, UINT32_MAX);
}

static void a_throttled_call_waits_as_instructed_and_is_not_charged(void **state)
{
	(void)state;
	struct sl__retry_state s = {0};
	struct sl__retry_decision d = decide(&s, of_class(SL_CLASS_THROTTLED, 30), true);
	assert_int_equal(d.action, SL__RETRY_AGAIN);
	assert_int_equal(d.delay_ms, 30); /* shorter than the policy's, but requested */
	assert_int_equal(decide(&s, of_class(SL_CLASS_THROTTLED, 5000), true).delay_ms, 5000);
	assert_int_equal(decide(&s, of_class(SL_CLASS_THROTTLED, 0), true).delay_ms, 400);
	assert_int_equal(decide(&s, of_class(SL_CLASS_THROTTLED, INT64_MAX), true).delay_ms, SL__RETRY_AFTER_MAX_MS);
	assert_int_equal(s.charged, 0);
}

static void a_requested_delay_only_lengthens_that_of_other_errors(void **state)
{
	(void)state;
	struct sl__retry_state s = {0};
	assert_int_equal(decide(&s, of_class(SL_CLASS_TRANSIENT, 30), true).delay_ms, 100);
	assert_int_equal(decide(&s, of_class(SL_CLASS_TRANSIENT, 3000), true).delay_ms, 3000);
	assert_int_equal(decide(&s, of_class(SL_CLASS_FATAL, -5), true).delay_ms, 400);
}

static void poison_is_isolated_an_absent_target_is_held_and_the_rest_given_up(void **state)
{
	(void)state;
	struct sl__retry_state s = {0};
	assert_int_equal(decide(&s, of_class(SL_CLASS_POISON, 0), true).action, SL__RETRY_POISON);
	struct sl__retry_decision d = decide(&s, of_class(SL_CLASS_FATAL, 0), true);
	assert_int_equal(d.action, SL__RETRY_HOLD);
	assert_int_equal(d.delay_ms, 200);
	assert_int_equal(decide(&s, of_class(SL_CLASS_NONE, 0), true).action, SL__RETRY_GIVE_UP);
	assert_int_equal(s.charged, 0);
}

static struct sl_err user_error(int code, int sys_errno, const char *msg)
{
	struct sl_err err = {.code = code, .sys_errno = sys_errno};
	strncpy(err.msg, msg, sizeof(err.msg) - 1);
	return err;
}

static void the_default_classifier_knows_the_keywords_of_the_specification(void **state)
{
	(void)state;
	const struct {
		struct sl_err err;
		enum sl_err_class expected;
	} cases[] = {
		{user_error(SL_EIO, 0, "Read TIMEOUT after 5 s"), SL_CLASS_TRANSIENT},
		{user_error(SL_EIO, 0, "temporary failure"), SL_CLASS_TRANSIENT},
		{user_error(SL_EIO, 0, "temporarily out of order"), SL_CLASS_TRANSIENT},
		{user_error(SL_EIO, 0, "Deadlock found"), SL_CLASS_TRANSIENT},
		{user_error(SL_EIO, 0, "please retry"), SL_CLASS_TRANSIENT},
		{user_error(SL_EIO, 0, "database is busy"), SL_CLASS_TRANSIENT},
		{user_error(SL_EIO, 0, "Connection lost"), SL_CLASS_TRANSIENT},
		{user_error(SL_ETIMEDOUT, 0, "write"), SL_CLASS_TRANSIENT},
		{user_error(SL_EIO, ECONNRESET, "write"), SL_CLASS_TRANSIENT},
		{user_error(SL_EIO, 0, "duplicate key value"), SL_CLASS_POISON},
		{user_error(SL_EINVAL, EINVAL, ""), SL_CLASS_POISON},
		{user_error(SL_EIO, 999999, ""), SL_CLASS_POISON},
		{user_error(-12345, 0, ""), SL_CLASS_POISON},
	};
	for (size_t i = 0; i < SL_COUNT(cases); i++) {
		struct sl_err err = cases[i].err;
		bool again = sl__retry_classify_default(&err);
		assert_int_equal(err.error_class, cases[i].expected);
		assert_int_equal(again, cases[i].expected == SL_CLASS_TRANSIENT);
		assert_int_equal(sl_err_retryable(&err), again);
	}
}

static void the_default_classifier_keeps_a_class_that_is_set(void **state)
{
	(void)state;
	struct sl_err err = user_error(SL_EIO, 0, "timeout");
	err.error_class = SL_CLASS_POISON;
	assert_false(sl__retry_classify_default(&err));
	assert_int_equal(err.error_class, SL_CLASS_POISON);
	err = user_error(SL_EIO, 0, "nothing known");
	err.error_class = SL_CLASS_FATAL;
	assert_true(sl__retry_classify_default(&err));
	assert_int_equal(err.error_class, SL_CLASS_FATAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_presets_are_those_of_the_design),
		cmocka_unit_test(zero_fields_come_from_the_preset_and_given_ones_stay),
		cmocka_unit_test(a_long_first_delay_alone_lifts_the_cap_and_a_low_cap_lowers_the_first),
		cmocka_unit_test(a_field_out_of_range_is_refused_by_name_and_the_output_is_untouched),
		cmocka_unit_test(the_delay_doubles_up_to_the_cap),
		cmocka_unit_test(any_number_of_failures_gives_the_capped_delay),
		cmocka_unit_test(jitter_spreads_the_capped_delay),
		cmocka_unit_test(attempts_run_out_at_the_limit_and_never_without_one),
		cmocka_unit_test(a_transient_error_is_retried_until_the_attempts_run_out),
		cmocka_unit_test(what_is_not_charged_never_uses_up_the_attempts_but_backs_off),
		cmocka_unit_test(a_throttled_call_waits_as_instructed_and_is_not_charged),
		cmocka_unit_test(a_requested_delay_only_lengthens_that_of_other_errors),
		cmocka_unit_test(poison_is_isolated_an_absent_target_is_held_and_the_rest_given_up),
		cmocka_unit_test(the_default_classifier_knows_the_keywords_of_the_specification),
		cmocka_unit_test(the_default_classifier_keeps_a_class_that_is_set),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
