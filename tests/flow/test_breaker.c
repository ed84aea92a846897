/* SPDX-License-Identifier: Apache-2.0 */
#include "timed.h"

#include <math.h>

#include "flow/breaker.h"

struct fixture {
	struct timed timed;
	sl__breaker *b;
	char told[512]; /* "CO OH HC " */
	atomic_int n_told;
	int toggle_in_callback;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	timed_init(&f->timed);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	sl__breaker_free(f->b);
	timed_fini(&f->timed);
	free(f);
	return 0;
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

static void on_change(enum sl__breaker_state from, enum sl__breaker_state to, void *ctx)
{
	struct fixture *f = ctx;
	size_t used = strlen(f->told);
	(void)snprintf(f->told + used, sizeof(f->told) - used, "%c%c ", "COH"[from], "COH"[to]);
	atomic_fetch_add(&f->n_told, 1);
	/* Re-enters: would hang if the lock were held. Two changes each time. */
	for (; f->toggle_in_callback > 0; f->toggle_in_callback--) {
		vclock_advance_ms(&f->timed.clock, 100000);
		call(f, SL__BREAKER_OK);
		call(f, SL__BREAKER_FATAL);
	}
}

/* 3 in a row, rate one half of at least 10 in 10 s, open 1 s to 8 s, one probe, 5 s. */
static const struct sl__breaker_opts usual = {
	.consecutive_failures = 3, .min_calls = 10, .open_max_ms = 8000, .probe_ms = 5000};

static void make(struct fixture *f, struct sl__breaker_opts opts)
{
	opts.env = &f->timed.env;
	opts.on_change = on_change;
	opts.ctx = f;
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
	assert_string_equal(f->told, "CO ");
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
	assert_int_equal(s.window_calls, 2);
	assert_int_equal(s.failures_in_a_row, 2);
	assert_int_equal(state_of(f), SL__BREAKER_CLOSED);
}

static void a_failure_rate_opens_it_once_there_are_enough_calls(void **state)
{
	struct fixture *f = *state;
	make(f, usual);
	for (int i = 0; i < 4; i++) {
		call(f, SL__BREAKER_OK);
		call(f, SL__BREAKER_FAILED);
	}
	call(f, SL__BREAKER_OK);
	assert_int_equal(state_of(f), SL__BREAKER_CLOSED); /* 4 of 9 */
	call(f, SL__BREAKER_FAILED);                       /* 5 of 10 */
	assert_int_equal(state_of(f), SL__BREAKER_OPEN);
	/* Once it has closed, the window begins anew. */
	vclock_advance_ms(&f->timed.clock, 1000);
	call(f, SL__BREAKER_OK);
	call(f, SL__BREAKER_FAILED);
	assert_int_equal(state_of(f), SL__BREAKER_CLOSED);
}

static void the_rate_forgets_what_is_older_than_the_window(void **state)
{
	struct fixture *f = *state;
	struct sl__breaker_opts opts = usual;
	opts.consecutive_failures = UINT32_MAX;
	make(f, opts);
	calls(f, 9, SL__BREAKER_FAILED);
	vclock_advance_ms(&f->timed.clock, 9000);
	struct sl__breaker_stats s;
	sl__breaker_stats(f->b, &s);
	assert_int_equal(s.window_failures, 9);
	vclock_advance_ms(&f->timed.clock, 1000);
	sl__breaker_stats(f->b, &s);
	assert_int_equal(s.window_failures, 0);
	calls(f, 9, SL__BREAKER_FAILED);
	vclock_advance_ms(&f->timed.clock, (int64_t)1000 * 3600 * 24 * 365 * 200); /* a very long pause */
	calls(f, 9, SL__BREAKER_FAILED);
	assert_int_equal(state_of(f), SL__BREAKER_CLOSED);
	call(f, SL__BREAKER_FAILED);
	assert_int_equal(state_of(f), SL__BREAKER_OPEN);
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
	assert_string_equal(f->told, "CO OH HC ");
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

static void several_probes_and_successes_may_be_asked_for(void **state)
{
	struct fixture *f = *state;
	struct sl__breaker_opts opts = usual;
	opts.probes = 2;
	opts.probe_successes = 3;
	make(f, opts);
	call(f, SL__BREAKER_FATAL);
	vclock_advance_ms(&f->timed.clock, 1000);
	struct sl__breaker_permit a = acquire(f), b = acquire(f);
	expect_refused_until(f, f->timed.clock.now_ns + 5000 * MS);
	assert_true(sl__breaker_report(f->b, a, SL__BREAKER_OK));
	a = acquire(f);
	assert_true(sl__breaker_report(f->b, b, SL__BREAKER_OK));
	assert_int_equal(state_of(f), SL__BREAKER_HALF_OPEN);
	assert_true(sl__breaker_report(f->b, a, SL__BREAKER_OK));
	assert_int_equal(state_of(f), SL__BREAKER_CLOSED);
	/* A failure among them, and all are needed again. */
	call(f, SL__BREAKER_FATAL);
	vclock_advance_ms(&f->timed.clock, 1000);
	calls(f, 2, SL__BREAKER_OK);
	call(f, SL__BREAKER_FAILED);
	vclock_advance_ms(&f->timed.clock, 2000);
	calls(f, 2, SL__BREAKER_OK);
	assert_int_equal(state_of(f), SL__BREAKER_HALF_OPEN);
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
	assert_string_equal(f->told, "CO OH HO OH HC ");
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

static void changes_made_in_a_callback_are_reported_after_it_in_order(void **state)
{
	struct fixture *f = *state;
	make(f, usual);
	f->toggle_in_callback = 2;
	call(f, SL__BREAKER_FATAL);
	assert_string_equal(f->told, "CO OH HC CO OH HC CO ");
}

static void more_changes_than_can_be_kept_are_reported_as_one_chain(void **state)
{
	struct fixture *f = *state;
	make(f, usual);
	f->toggle_in_callback = 20; /* sixty changes after the first */
	call(f, SL__BREAKER_FATAL);
	size_t n = strlen(f->told);
	assert_true(n % 3 == 0 && n / 3 >= 32 && n / 3 <= 33);
	assert_true(f->told[0] == 'C');
	for (size_t i = 3; i < n; i += 3)
		assert_int_equal(f->told[i], f->told[i - 2]);
	assert_int_equal(f->told[n - 2], 'O');
}

struct waiter {
	struct fixture *f;
	int64_t timeout_ms;
	struct sl__breaker_permit permit;
	struct timed_call thread;
};

static int wait_main(void *ctx)
{
	struct waiter *w = ctx;
	return sl__breaker_acquire(w->f->b, &w->permit, w->timeout_ms);
}

static void start_wait(struct fixture *f, struct waiter *w, int64_t timeout_ms)
{
	*w = (struct waiter){.f = f, .timeout_ms = timeout_ms};
	timed_call_start(&w->thread, wait_main, w);
}

static void finish(struct waiter *w, int rc)
{
	timed_call_finish(&w->thread, rc);
}

static void blocked_acquires_wait_for_the_probe_and_go_when_it_closes(void **state)
{
	struct fixture *f = *state;
	struct waiter w[2];
	make(f, usual);
	call(f, SL__BREAKER_FATAL);
	start_wait(f, &w[0], SL_UNLIMITED);
	start_wait(f, &w[1], SL_UNLIMITED);
	vclock_await_waiters(&f->timed.clock, 2);
	vclock_advance_ms(&f->timed.clock, 1000);
	/* One gets the probe, the other continues to wait. */
	while (state_of(f) != SL__BREAKER_HALF_OPEN)
		sched_yield();
	vclock_await_waiters(&f->timed.clock, 1);
	struct waiter *probe = NULL;
	while (probe == NULL) {
		struct sl__breaker_permit permit;
		assert_int_equal(sl__breaker_try_acquire(f->b, &permit, NULL), SL_EAGAIN);
		for (int i = 0; i < 2; i++)
			if (pthread_tryjoin_np(w[i].thread.thread, NULL) == 0)
				probe = &w[i];
	}
	assert_int_equal(probe->thread.rc, 0);
	assert_true(sl__breaker_report(f->b, probe->permit, SL__BREAKER_OK));
	finish(probe == &w[0] ? &w[1] : &w[0], 0);
}

static void a_blocked_acquire_takes_the_place_that_a_neutral_probe_gives_back(void **state)
{
	struct fixture *f = *state;
	struct waiter w;
	make(f, usual);
	call(f, SL__BREAKER_FATAL);
	vclock_advance_ms(&f->timed.clock, 1000);
	struct sl__breaker_permit probe = acquire(f);
	start_wait(f, &w, SL_UNLIMITED);
	vclock_await_waiters(&f->timed.clock, 1);
	assert_true(sl__breaker_report(f->b, probe, SL__BREAKER_NEUTRAL));
	finish(&w, 0);
}

static void a_probe_that_expires_while_others_wait_is_reported_immediately(void **state)
{
	struct fixture *f = *state;
	struct waiter w;
	make(f, usual);
	call(f, SL__BREAKER_FATAL);
	vclock_advance_ms(&f->timed.clock, 1000);
	(void)acquire(f); /* never reports */
	start_wait(f, &w, SL_UNLIMITED);
	vclock_await_waiters(&f->timed.clock, 1);
	vclock_advance_ms(&f->timed.clock, 5000);
	while (atomic_load(&f->n_told) < 3)
		sched_yield();
	assert_string_equal(f->told, "CO OH HO ");
	vclock_await_waiters(&f->timed.clock, 1);
	vclock_advance_ms(&f->timed.clock, 2000);
	finish(&w, 0);
}

static void a_blocked_acquire_gives_up_at_its_deadline(void **state)
{
	struct fixture *f = *state;
	struct waiter w;
	make(f, usual);
	call(f, SL__BREAKER_FATAL);
	start_wait(f, &w, 300);
	vclock_await_waiters(&f->timed.clock, 1);
	vclock_advance_ms(&f->timed.clock, 299);
	assert_int_equal(w.thread.rc, 99);
	vclock_advance_ms(&f->timed.clock, 1);
	finish(&w, SL_ETIMEDOUT);
}

static void shutting_releases_those_who_wait(void **state)
{
	struct fixture *f = *state;
	struct waiter w;
	make(f, usual);
	struct sl__breaker_permit permit = acquire(f);
	call(f, SL__BREAKER_FATAL);
	start_wait(f, &w, SL_UNLIMITED);
	vclock_await_waiters(&f->timed.clock, 1);
	sl__breaker_shut(f->b);
	finish(&w, SL_ECLOSED);
	assert_int_equal(sl__breaker_try_acquire(f->b, &permit, NULL), SL_ECLOSED);
}

static void a_bad_option_is_refused_by_name(void **state)
{
	(void)state;
	static const struct {
		struct sl__breaker_opts opts;
		const char *name;
	} bad[] = {
		{{.failure_rate = -0.1}, "failure_rate"},
		{{.failure_rate = NAN}, "failure_rate"},
		{{.probes = SL__BREAKER_PROBES_MAX + 1}, "probes"},
		{{.window_ms = 9}, "window_ms"},
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
	atomic_int in_callback, bad, changes;
	enum sl__breaker_state last; /* told; callbacks never overlap, so TSan would object if they did */
	atomic_uint_fast64_t permits, counted;
};

static void stress_change(enum sl__breaker_state from, enum sl__breaker_state to, void *ctx)
{
	struct stress *s = ctx;
	if (atomic_fetch_add(&s->in_callback, 1) != 0 || from != s->last)
		atomic_fetch_add(&s->bad, 1);
	s->last = to;
	atomic_fetch_add(&s->changes, 1);
	atomic_fetch_sub(&s->in_callback, 1);
}

static void *stress_main(void *arg)
{
	struct stress *s = arg;
	struct sl__prng prng = {.s = (uintptr_t)&prng};
	uint64_t permits = 0, counted = 0;
	/* A slow machine may begin when the time is over. */
	while (!atomic_load(&s->stop) || permits == 0 || atomic_load(&s->changes) == 0) {
		uint64_t r = sl__prng_next(&prng);
		struct sl__breaker_permit permit;
		int rc = r % 2 ? sl__breaker_try_acquire(s->b, &permit, NULL) : sl__breaker_acquire(s->b, &permit, 1);
		if (rc != 0)
			continue;
		permits++;
		if ((r >> 8) % 16 == 0) /* never reported */
			continue;
		static const enum sl__breaker_outcome outcomes[] = {
			SL__BREAKER_OK, SL__BREAKER_OK,     SL__BREAKER_OK,    SL__BREAKER_OK,
			SL__BREAKER_OK, SL__BREAKER_FAILED, SL__BREAKER_FATAL, SL__BREAKER_NEUTRAL};
		counted += sl__breaker_report(s->b, permit, outcomes[(r >> 16) % 8]);
	}
	atomic_fetch_add(&s->permits, permits);
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

static void many_threads_see_one_chain_of_changes(void **state)
{
	(void)state;
	struct stress s = {0};
	struct sl__breaker_opts opts = {.open_ms = 1,
					.open_max_ms = 2,
					.probes = 2,
					.probe_successes = 2,
					.probe_ms = 1,
					.on_change = stress_change,
					.ctx = &s};
	assert_int_equal(sl__breaker_new(&s.b, &opts, NULL), 0);
	crowd_run(6, stress_main, stress_watch, &s, &s.stop);
	struct sl__breaker_stats stats;
	assert_int_equal(s.bad, 0);
	assert_int_equal(s.last, sl__breaker_state(s.b));
	sl__breaker_stats(s.b, &stats);
	assert_true(s.permits > 0 && stats.opened > 0);
	printf("# breaker stress: %llu permits, %llu reports counted, opened %llu times, %d changes told\n",
	       (unsigned long long)s.permits, (unsigned long long)s.counted, (unsigned long long)stats.opened,
	       (int)s.changes);
	sl__breaker_free(s.b);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(failures_in_a_row_open_it_and_a_success_starts_the_count_anew),
		TEST(one_fatal_outcome_opens_it_at_once),
		TEST(neutral_outcomes_count_for_nothing),
		TEST(a_failure_rate_opens_it_once_there_are_enough_calls),
		TEST(the_rate_forgets_what_is_older_than_the_window),
		TEST(when_its_time_has_come_one_probe_goes_and_closes_it),
		TEST(each_failed_probe_doubles_the_time_up_to_the_maximum),
		TEST(several_probes_and_successes_may_be_asked_for),
		TEST(a_neutral_probe_gives_its_place_back),
		TEST(a_probe_that_never_reports_expires_and_opens_it_again),
		TEST(a_probe_that_reports_too_late_counts_as_expired),
		TEST(results_from_before_a_change_are_ignored),
		TEST(changes_made_in_a_callback_are_reported_after_it_in_order),
		TEST(more_changes_than_can_be_kept_are_reported_as_one_chain),
		TEST(blocked_acquires_wait_for_the_probe_and_go_when_it_closes),
		TEST(a_blocked_acquire_takes_the_place_that_a_neutral_probe_gives_back),
		TEST(a_probe_that_expires_while_others_wait_is_reported_immediately),
		TEST(a_blocked_acquire_gives_up_at_its_deadline),
		TEST(shutting_releases_those_who_wait),
		TEST(a_bad_option_is_refused_by_name),
		TEST(many_threads_see_one_chain_of_changes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
