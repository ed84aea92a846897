/* SPDX-License-Identifier: Apache-2.0 */
#include "timed.h"

#include "flow/breaker.h"

struct fixture {
	struct timed timed;
	sl__breaker *b;
};

static int set_up(void **state)
{
	return timed_set_up(state, sizeof(struct fixture));
}

static int tear_down(void **state)
{
	sl__breaker_free(((struct fixture *)*state)->b);
	return timed_tear_down(state);
}

static struct sl__breaker_permit acquire(struct fixture *f)
{
	struct sl__breaker_permit permit;
	assert_int_equal(sl__breaker_try_acquire(f->b, &permit, NULL), 0);
	return permit;
}

static void call(struct fixture *f, enum sl__breaker_outcome outcome)
{
	assert_true(sl__breaker_report(f->b, acquire(f), outcome));
}

static void calls(struct fixture *f, int n, enum sl__breaker_outcome outcome)
{
	for (int i = 0; i < n; i++)
		call(f, outcome);
}

static enum sl__breaker_state state_of(struct fixture *f)
{
	return sl__breaker_state(f->b);
}

static void expect_refused_until(struct fixture *f, int64_t at_ns)
{
	struct sl__breaker_permit permit;
	int64_t retry_ns = 0;
	assert_int_equal(sl__breaker_try_acquire(f->b, &permit, &retry_ns), SL_EAGAIN);
	assert_int_equal(retry_ns, at_ns);
}

/* 3 in a row, open 1 s to 8 s, a probe of 5 s. */
static const struct sl__breaker_opts usual = {.consecutive_failures = 3, .open_max_ms = 8000, .probe_ms = 5000};

static void make(struct fixture *f, struct sl__breaker_opts opts)
{
	opts.env = &f->timed.env;
	assert_int_equal(sl__breaker_new(&f->b, &opts, NULL), 0);
}

static void failures_in_a_row_open_it_and_a_success_starts_the_count_anew(void **state)
{
	struct fixture *f = *state;
	make(f, usual);
	calls(f, 2, SL__BREAKER_FAILED);
	call(f, SL__BREAKER_OK);
	calls(f, 2, SL__BREAKER_FAILED);
	assert_int_equal(state_of(f), SL__BREAKER_CLOSED);
	call(f, SL__BREAKER_FAILED);
	assert_int_equal(state_of(f), SL__BREAKER_OPEN);
	expect_refused_until(f, f->timed.clock.now_ns + 1000 * MS);
}

static void one_fatal_outcome_opens_it_at_once(void **state)
{
	struct fixture *f = *state;
	make(f, usual);
	call(f, SL__BREAKER_FATAL);
	assert_int_equal(state_of(f), SL__BREAKER_OPEN);
}

static void neutral_outcomes_count_for_nothing(void **state)
{
	struct fixture *f = *state;
	make(f, usual);
	calls(f, 2, SL__BREAKER_FAILED);
	calls(f, 100, SL__BREAKER_NEUTRAL);
	struct sl__breaker_stats s;
	sl__breaker_stats(f->b, &s);
	assert_int_equal(s.failures_in_a_row, 2);
	assert_int_equal(state_of(f), SL__BREAKER_CLOSED);
}

static void when_its_time_has_come_one_probe_goes_and_closes_it(void **state)
{
	struct fixture *f = *state;
	make(f, usual);
	call(f, SL__BREAKER_FATAL);
	int64_t until = f->timed.clock.now_ns + 1000 * MS;
	vclock_advance_ms(&f->timed.clock, 999);
	expect_refused_until(f, until);
	vclock_advance_ms(&f->timed.clock, 1);
	struct sl__breaker_permit probe = acquire(f);
	assert_int_equal(state_of(f), SL__BREAKER_HALF_OPEN);
	expect_refused_until(f, f->timed.clock.now_ns + 5000 * MS);
	assert_true(sl__breaker_report(f->b, probe, SL__BREAKER_OK));
	assert_int_equal(state_of(f), SL__BREAKER_CLOSED);
	/* The old failures are forgotten. */
	calls(f, 2, SL__BREAKER_FAILED);
	assert_int_equal(state_of(f), SL__BREAKER_CLOSED);
}

static void each_failed_probe_doubles_the_time_up_to_the_maximum(void **state)
{
	struct fixture *f = *state;
	make(f, usual);
	call(f, SL__BREAKER_FATAL);
	static const int64_t open_ms[] = {1000, 2000, 4000, 8000, 8000, 8000};
	for (size_t i = 0; i < SL_COUNT(open_ms); i++) {
		expect_refused_until(f, f->timed.clock.now_ns + open_ms[i] * MS);
		vclock_advance_ms(&f->timed.clock, open_ms[i]);
		call(f, i % 2 ? SL__BREAKER_FAILED : SL__BREAKER_FATAL);
	}
	vclock_advance_ms(&f->timed.clock, 8000);
	call(f, SL__BREAKER_OK);
	call(f, SL__BREAKER_FATAL);
	expect_refused_until(f, f->timed.clock.now_ns + 1000 * MS); /* from the beginning */
}

static void a_neutral_probe_gives_its_place_back(void **state)
{
	struct fixture *f = *state;
	make(f, usual);
	call(f, SL__BREAKER_FATAL);
	vclock_advance_ms(&f->timed.clock, 1000);
	struct sl__breaker_permit given_back = acquire(f);
	assert_true(sl__breaker_report(f->b, given_back, SL__BREAKER_NEUTRAL));
	assert_int_equal(state_of(f), SL__BREAKER_HALF_OPEN);
	struct sl__breaker_permit probe = acquire(f);
	assert_false(sl__breaker_report(f->b, given_back, SL__BREAKER_OK)); /* twice: not in the other's name */
	assert_int_equal(state_of(f), SL__BREAKER_HALF_OPEN);
	assert_true(sl__breaker_report(f->b, probe, SL__BREAKER_OK));
	assert_int_equal(state_of(f), SL__BREAKER_CLOSED);
}

static void a_probe_that_never_reports_expires_and_opens_it_again(void **state)
{
	struct fixture *f = *state;
	make(f, usual);
	call(f, SL__BREAKER_FATAL);
	vclock_advance_ms(&f->timed.clock, 1000);
	struct sl__breaker_permit lost = acquire(f);
	vclock_advance_ms(&f->timed.clock, 4999);
	expect_refused_until(f, f->timed.clock.now_ns + 1 * MS);
	vclock_advance_ms(&f->timed.clock, 1);
	expect_refused_until(f, f->timed.clock.now_ns + 2000 * MS);
	assert_int_equal(state_of(f), SL__BREAKER_OPEN);
	/* Its late answer changes nothing, good or bad. */
	assert_false(sl__breaker_report(f->b, lost, SL__BREAKER_OK));
	assert_int_equal(state_of(f), SL__BREAKER_OPEN);
	vclock_advance_ms(&f->timed.clock, 2000);
	struct sl__breaker_permit probe = acquire(f);
	assert_false(sl__breaker_report(f->b, lost, SL__BREAKER_FATAL));
	assert_int_equal(state_of(f), SL__BREAKER_HALF_OPEN);
	assert_true(sl__breaker_report(f->b, probe, SL__BREAKER_OK));
}

static void a_probe_that_reports_too_late_counts_as_expired(void **state)
{
	struct fixture *f = *state;
	make(f, usual);
	call(f, SL__BREAKER_FATAL);
	vclock_advance_ms(&f->timed.clock, 1000);
	struct sl__breaker_permit probe = acquire(f);
	vclock_advance_ms(&f->timed.clock, 5000);
	assert_false(sl__breaker_report(f->b, probe, SL__BREAKER_OK));
	assert_int_equal(state_of(f), SL__BREAKER_OPEN);
}

static void results_from_before_a_change_are_ignored(void **state)
{
	struct fixture *f = *state;
	make(f, usual);
	struct sl__breaker_permit old[4];
	for (int i = 0; i < 4; i++)
		old[i] = acquire(f);
	call(f, SL__BREAKER_FATAL);
	assert_false(sl__breaker_report(f->b, old[0], SL__BREAKER_OK));
	vclock_advance_ms(&f->timed.clock, 1000);
	struct sl__breaker_permit probe = acquire(f);
	assert_false(sl__breaker_report(f->b, old[1], SL__BREAKER_OK)); /* must not close it */
	assert_false(sl__breaker_report(f->b, old[2], SL__BREAKER_FAILED));
	assert_int_equal(state_of(f), SL__BREAKER_HALF_OPEN);
	assert_true(sl__breaker_report(f->b, probe, SL__BREAKER_OK));
	assert_false(sl__breaker_report(f->b, probe, SL__BREAKER_FATAL)); /* twice */
	assert_false(sl__breaker_report(f->b, old[3], SL__BREAKER_FATAL));
	assert_false(sl__breaker_report(f->b, (struct sl__breaker_permit){0}, SL__BREAKER_FATAL));
	assert_int_equal(state_of(f), SL__BREAKER_CLOSED);
	struct sl__breaker_stats s;
	sl__breaker_stats(f->b, &s);
	assert_int_equal(s.ignored, 6);
	assert_int_equal(s.opened, 1);
	assert_int_equal(s.opened_ns, 0);
}

static void a_bad_option_is_refused_by_name(void **state)
{
	(void)state;
	static const struct {
		struct sl__breaker_opts opts;
		const char *name;
	} bad[] = {
		{{.open_ms = -1}, "open_ms"},
		{{.open_ms = 100, .open_max_ms = 99}, "open_max_ms"},
		{{.probe_ms = INT64_MAX}, "probe_ms"},
	};
	for (size_t i = 0; i < SL_COUNT(bad); i++) {
		sl__breaker *b = NULL;
		struct sl_err err = SL_ERR_INIT;
		assert_int_equal(sl__breaker_new(&b, &bad[i].opts, &err), SL_EINVAL);
		assert_non_null(strstr(err.msg, bad[i].name));
		assert_null(b);
	}
}

/* ---- many threads at once ---- */

struct stress {
	sl__breaker *b;
	atomic_bool stop;
	atomic_uint_fast64_t permits, reports, counted;
};

static void *stress_main(void *arg)
{
	struct stress *s = arg;
	struct sl__prng prng = {.s = (uintptr_t)&prng};
	uint64_t permits = 0, reports = 0, counted = 0;
	struct sl__breaker_stats stats = {0};
	/* A slow machine may begin when the time is over. */
	while (!atomic_load(&s->stop) || permits == 0 || stats.opened == 0) {
		uint64_t r = sl__prng_next(&prng);
		struct sl__breaker_permit permit;
		sl__breaker_stats(s->b, &stats);
		if (sl__breaker_try_acquire(s->b, &permit, NULL) != 0)
			continue;
		permits++;
		if ((r >> 8) % 16 == 0) /* never reported */
			continue;
		static const enum sl__breaker_outcome outcomes[] = {
			SL__BREAKER_OK, SL__BREAKER_OK,     SL__BREAKER_OK,    SL__BREAKER_OK,
			SL__BREAKER_OK, SL__BREAKER_FAILED, SL__BREAKER_FATAL, SL__BREAKER_NEUTRAL};
		reports++;
		counted += sl__breaker_report(s->b, permit, outcomes[(r >> 16) % 8]);
	}
	atomic_fetch_add(&s->permits, permits);
	atomic_fetch_add(&s->reports, reports);
	atomic_fetch_add(&s->counted, counted);
	return NULL;
}

static void stress_watch(void *arg)
{
	struct stress *s = arg;
	struct sl__breaker_stats stats;
	sl__breaker_stats(s->b, &stats);
	sched_yield();
}

static void of_many_threads_each_report_counts_or_is_ignored(void **state)
{
	(void)state;
	struct stress s = {0};
	struct sl__breaker_opts opts = {.open_ms = 1, .open_max_ms = 2, .probe_ms = 1};
	assert_int_equal(sl__breaker_new(&s.b, &opts, NULL), 0);
	crowd_run(6, stress_main, stress_watch, &s, &s.stop);
	struct sl__breaker_stats stats;
	sl__breaker_stats(s.b, &stats);
	assert_true(s.permits > 0 && stats.opened > 0);
	assert_int_equal(s.reports, s.counted + stats.ignored);
	printf("# breaker stress: %llu permits, %llu reports counted, opened %llu times\n",
	       (unsigned long long)s.permits, (unsigned long long)s.counted, (unsigned long long)stats.opened);
	sl__breaker_free(s.b);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(failures_in_a_row_open_it_and_a_success_starts_the_count_anew),
		TEST(one_fatal_outcome_opens_it_at_once),
		TEST(neutral_outcomes_count_for_nothing),
		TEST(when_its_time_has_come_one_probe_goes_and_closes_it),
		TEST(each_failed_probe_doubles_the_time_up_to_the_maximum),
		TEST(a_neutral_probe_gives_its_place_back),
		TEST(a_probe_that_never_reports_expires_and_opens_it_again),
		TEST(a_probe_that_reports_too_late_counts_as_expired),
		TEST(results_from_before_a_change_are_ignored),
		TEST(a_bad_option_is_refused_by_name),
		TEST(of_many_threads_each_report_counts_or_is_ignored),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
