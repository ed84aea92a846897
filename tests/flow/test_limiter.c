/* SPDX-License-Identifier: Apache-2.0 */
#include "timed.h"

#include "flow/limiter.h"

struct fixture {
	struct timed timed;
	sl__limiter *l;
	uint32_t told[64];
	atomic_int n_told;
	bool fail_in_callback;
};

static int set_up(void **state)
{
	return timed_set_up(state, sizeof(struct fixture));
}

static int tear_down(void **state)
{
	sl__limiter_free(((struct fixture *)*state)->l);
	return timed_tear_down(state);
}

static void on_change(uint32_t limit, void *ctx)
{
	struct fixture *f = ctx;
	f->told[f->n_told] = limit;
	atomic_fetch_add(&f->n_told, 1);
	if (f->fail_in_callback) { /* re-enters, and would hang if the lock were held */
		f->fail_in_callback = false;
		vclock_advance_ms(&f->timed.clock, 1000);
		assert_int_equal(sl__limiter_try_acquire(f->l), 0);
		sl__limiter_release(f->l, SL__LIMITER_FAILED);
	}
}

/* Window 1 s, cooldown 5 s: the defaults. */
static void make(struct fixture *f, struct sl__limiter_opts opts)
{
	opts.env = &f->timed.env;
	opts.on_change = on_change;
	opts.ctx = f;
	assert_int_equal(sl__limiter_new(&f->l, &opts, NULL), 0);
}

static void acquire(struct fixture *f, int n)
{
	for (int i = 0; i < n; i++)
		assert_int_equal(sl__limiter_try_acquire(f->l), 0);
}

static void fail_once(struct fixture *f)
{
	acquire(f, 1);
	sl__limiter_release(f->l, SL__LIMITER_FAILED);
}

static struct sl__limiter_stats stats_of(struct fixture *f)
{
	struct sl__limiter_stats s;
	sl__limiter_stats(f->l, &s);
	return s;
}

static void no_more_than_the_limit_are_out(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__limiter_opts){.max = 3});
	acquire(f, 3);
	assert_int_equal(sl__limiter_try_acquire(f->l), SL_EAGAIN);
	sl__limiter_release(f->l, SL__LIMITER_OK);
	acquire(f, 1);
	assert_int_equal(sl__limiter_try_acquire(f->l), SL_EAGAIN);
	assert_int_equal(stats_of(f).in_use, 3);
	assert_int_equal(f->n_told, 0);
}

static void failures_within_one_window_halve_the_limit_once(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__limiter_opts){.max = 16});
	acquire(f, 16);
	for (int i = 0; i < 8; i++)
		sl__limiter_release(f->l, SL__LIMITER_FAILED);
	vclock_advance_ms(&f->timed.clock, 999);
	sl__limiter_release(f->l, SL__LIMITER_FAILED);
	assert_int_equal(stats_of(f).limit, 8);
	vclock_advance_ms(&f->timed.clock, 1);
	sl__limiter_release(f->l, SL__LIMITER_FAILED);
	assert_int_equal(stats_of(f).limit, 4);
	assert_int_equal(f->n_told, 2);
	assert_int_equal(f->told[0], 8);
	assert_int_equal(f->told[1], 4);
	/* Six are still out: no other is admitted before they are below the limit. */
	assert_int_equal(sl__limiter_try_acquire(f->l), SL_EAGAIN);
	for (int i = 0; i < 3; i++)
		sl__limiter_release(f->l, SL__LIMITER_NEUTRAL);
	acquire(f, 1);
	assert_int_equal(stats_of(f).limit, 4);
	assert_int_equal(stats_of(f).failures, 10);
}

static void the_limit_never_falls_below_the_minimum(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__limiter_opts){.max = 5});
	static const uint32_t expected[] = {2, 1, 1, 1};
	for (size_t i = 0; i < SL_COUNT(expected); i++) {
		fail_once(f);
		assert_int_equal(stats_of(f).limit, expected[i]);
		vclock_advance_ms(&f->timed.clock, 1000);
	}
	assert_int_equal(f->n_told, 2);
	assert_int_equal(stats_of(f).lowered, 2);
	sl__limiter_free(f->l);
	make(f, (struct sl__limiter_opts){.max = 5, .min = 4});
	fail_once(f);
	assert_int_equal(stats_of(f).limit, 4);
}

static void the_limit_rises_in_cooldown_steps_to_the_maximum(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__limiter_opts){.max = 4});
	fail_once(f); /* 2 */
	int64_t next_ns, lowered_ns = f->timed.clock.now_ns;
	assert_int_equal(sl__limiter_poll(f->l, &next_ns), 2);
	assert_int_equal(next_ns, lowered_ns + 5000 * (int64_t)1000000);
	vclock_advance_ms(&f->timed.clock, 4999);
	assert_int_equal(sl__limiter_poll(f->l, NULL), 2);
	vclock_advance_ms(&f->timed.clock, 1);
	assert_int_equal(sl__limiter_poll(f->l, NULL), 3);
	vclock_advance_ms(&f->timed.clock, 4999);
	assert_int_equal(sl__limiter_poll(f->l, NULL), 3);
	vclock_advance_ms(&f->timed.clock, 1);
	assert_int_equal(sl__limiter_poll(f->l, &next_ns), 4);
	assert_int_equal(next_ns, SL_FOREVER);
	vclock_advance_ms(&f->timed.clock, 100000);
	assert_int_equal(sl__limiter_poll(f->l, NULL), 4);
	assert_int_equal(f->n_told, 3);
	assert_int_equal(f->told[1], 3);
	assert_int_equal(f->told[2], 4);
}

static void a_failure_starts_the_cooldown_anew_even_within_the_window(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__limiter_opts){.max = 4, .window_ms = 60000});
	fail_once(f);
	vclock_advance_ms(&f->timed.clock, 4000);
	fail_once(f);
	assert_int_equal(stats_of(f).limit, 2);
	vclock_advance_ms(&f->timed.clock, 4999);
	assert_int_equal(sl__limiter_poll(f->l, NULL), 2);
	vclock_advance_ms(&f->timed.clock, 1);
	assert_int_equal(sl__limiter_poll(f->l, NULL), 3);
}

static void after_a_long_pause_all_steps_are_taken_at_once(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__limiter_opts){.max = 100, .step_up = 7});
	fail_once(f); /* 50 */
	vclock_advance_ms(&f->timed.clock, 5000 * 3);
	assert_int_equal(sl__limiter_poll(f->l, NULL), 71);
	vclock_advance_ms(&f->timed.clock, (int64_t)1000 * 3600 * 24 * 365 * 100);
	assert_int_equal(sl__limiter_poll(f->l, NULL), 100);
	assert_int_equal(stats_of(f).raised, 3 + 5);
}

static void a_callback_may_call_the_limiter_and_later_changes_follow_in_order(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__limiter_opts){.max = 16});
	f->fail_in_callback = true;
	fail_once(f);
	assert_int_equal(f->n_told, 2);
	assert_int_equal(f->told[0], 8);
	assert_int_equal(f->told[1], 4);
}

static void a_bad_option_is_refused_by_name(void **state)
{
	(void)state;
	static const struct {
		struct sl__limiter_opts opts;
		const char *name;
	} bad[] = {
		{{.max = 0}, "max"},
		{{.max = 2, .min = 3}, "min"},
		{{.max = 2, .window_ms = -1}, "window_ms"},
		{{.max = 2, .cooldown_ms = -1}, "cooldown_ms"},
		{{.max = 2, .cooldown_ms = INT64_MAX}, "cooldown_ms"},
	};
	for (size_t i = 0; i < SL_COUNT(bad); i++) {
		sl__limiter *l = NULL;
		struct sl_err err = SL_ERR_INIT;
		assert_int_equal(sl__limiter_new(&l, &bad[i].opts, &err), SL_EINVAL);
		assert_non_null(strstr(err.msg, bad[i].name));
		assert_null(l);
	}
}

/* ---- many threads at once ---- */

struct stress {
	sl__limiter *l;
	atomic_bool stop;
	atomic_int out, in_callback, bad, callbacks;
	atomic_uint last_told;
	atomic_uint_fast64_t acquired;
};

static void stress_change(uint32_t limit, void *ctx)
{
	struct stress *s = ctx;
	if (atomic_fetch_add(&s->in_callback, 1) != 0)
		atomic_fetch_add(&s->bad, 1);
	atomic_store(&s->last_told, limit);
	atomic_fetch_add(&s->callbacks, 1);
	sched_yield();
	atomic_fetch_sub(&s->in_callback, 1);
}

static void *stress_main(void *arg)
{
	struct stress *s = arg;
	struct sl__prng prng = {.s = (uintptr_t)&prng};
	uint64_t n = 0;
	while (!atomic_load(&s->stop)) {
		uint64_t r = sl__prng_next(&prng);
		if (sl__limiter_try_acquire(s->l) != 0)
			continue;
		if (atomic_fetch_add(&s->out, 1) >= 6)
			atomic_fetch_add(&s->bad, 1);
		n++;
		atomic_fetch_sub(&s->out, 1);
		sl__limiter_release(s->l, (r >> 8) % 64 == 0 ? SL__LIMITER_FAILED : SL__LIMITER_OK);
	}
	atomic_fetch_add(&s->acquired, n);
	return NULL;
}

static void stress_watch(void *arg)
{
	struct stress *s = arg;
	(void)sl__limiter_poll(s->l, NULL);
}

static void many_threads_never_exceed_the_maximum_and_hear_the_last_limit(void **state)
{
	(void)state;
	struct stress s = {.last_told = 6};
	struct sl__limiter_opts opts = {
		.max = 6, .window_ms = 1, .cooldown_ms = 1, .on_change = stress_change, .ctx = &s};
	assert_int_equal(sl__limiter_new(&s.l, &opts, NULL), 0);
	crowd_run(8, stress_main, stress_watch, &s, &s.stop);
	struct sl__limiter_stats stats;
	sl__limiter_stats(s.l, &stats);
	assert_int_equal(stats.in_use, 0);
	assert_int_equal(s.bad, 0);
	assert_int_equal(s.last_told, stats.limit);
	printf("# limiter stress: %llu permits, %d changes reported\n", (unsigned long long)s.acquired,
	       (int)s.callbacks);
	sl__limiter_free(s.l);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(no_more_than_the_limit_are_out),
		TEST(failures_within_one_window_halve_the_limit_once),
		TEST(the_limit_never_falls_below_the_minimum),
		TEST(the_limit_rises_in_cooldown_steps_to_the_maximum),
		TEST(a_failure_starts_the_cooldown_anew_even_within_the_window),
		TEST(after_a_long_pause_all_steps_are_taken_at_once),
		TEST(a_callback_may_call_the_limiter_and_later_changes_follow_in_order),
		TEST(a_bad_option_is_refused_by_name),
		TEST(many_threads_never_exceed_the_maximum_and_hear_the_last_limit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
