/* SPDX-License-Identifier: Apache-2.0 */
#include "timed.h"

#include <math.h>

#include "flow/tokens.h"

struct fixture {
	struct timed timed;
	sl__tokens *t;
};

static int set_up(void **state)
{
	return timed_set_up(state, sizeof(struct fixture));
}

static int tear_down(void **state)
{
	sl__tokens_free(((struct fixture *)*state)->t);
	return timed_tear_down(state);
}

static void make(struct fixture *f, struct sl__tokens_opts opts)
{
	opts.env = &f->timed.env;
	assert_int_equal(sl__tokens_new(&f->t, &opts, NULL), 0);
}

static int try_take(struct fixture *f, uint64_t n)
{
	return sl__tokens_try_take(f->t, n, NULL);
}

static void a_full_bucket_gives_its_burst_and_then_its_rate(void **state)
{
	struct fixture *f = *state;
	int64_t wait_ns;
	make(f, (struct sl__tokens_opts){.rate = 100, .burst = 10});
	assert_int_equal(try_take(f, 10), 0);
	assert_int_equal(sl__tokens_try_take(f->t, 1, &wait_ns), SL_EAGAIN);
	assert_int_equal(wait_ns, 10 * MS);
	vclock_advance_ns(&f->timed.clock, 10 * MS - 1);
	assert_int_equal(sl__tokens_try_take(f->t, 1, &wait_ns), SL_EAGAIN);
	assert_int_equal(wait_ns, 1);
	vclock_advance_ns(&f->timed.clock, 1);
	assert_int_equal(try_take(f, 1), 0);
	assert_int_equal(try_take(f, 1), SL_EAGAIN);
	vclock_advance_ms(&f->timed.clock, 50);
	assert_int_equal(sl__tokens_available(f->t), 5);
	assert_int_equal(try_take(f, 6), SL_EAGAIN);
	assert_int_equal(try_take(f, 5), 0);
	/* A wait that is no whole number of nanoseconds is rounded up. */
	sl__tokens_free(f->t);
	make(f, (struct sl__tokens_opts){.rate = 3, .burst = 1});
	assert_int_equal(try_take(f, 1), 0);
	assert_int_equal(sl__tokens_try_take(f->t, 1, &wait_ns), SL_EAGAIN);
	assert_int_equal(wait_ns, 333333334);
}

static void the_burst_is_a_second_of_the_rate_unless_given(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__tokens_opts){.rate = 2.5});
	assert_int_equal(sl__tokens_available(f->t), 3);
	sl__tokens_free(f->t);
	make(f, (struct sl__tokens_opts){.rate = 0.001});
	assert_int_equal(sl__tokens_available(f->t), 1);
}

static void looking_a_million_times_loses_no_fraction(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__tokens_opts){.rate = 1.0 / 3, .burst = 5});
	assert_int_equal(try_take(f, 5), 0);
	uint64_t taken = 0, looks = 0;
	while (taken < 1) {
		vclock_advance_ns(&f->timed.clock, 1001);
		looks++;
		taken += try_take(f, 1) == 0;
	}
	/* A third is kept as 0.333333333: one token takes 3,000,000,003.000000003 ns, a hair more than 2,997,003 looks.
	 */
	assert_int_equal(looks, 2997004);
	/* And in one step the same. */
	sl__tokens_free(f->t);
	make(f, (struct sl__tokens_opts){.rate = 1.0 / 3, .burst = 5});
	assert_int_equal(try_take(f, 5), 0);
	vclock_advance_ns(&f->timed.clock, (int64_t)looks * 1001 - 1001);
	assert_int_equal(try_take(f, 1), SL_EAGAIN);
	vclock_advance_ns(&f->timed.clock, 1001);
	assert_int_equal(try_take(f, 1), 0);
}

static void an_odd_rate_gives_exactly_its_number_over_an_hour(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__tokens_opts){.rate = 7, .burst = 2});
	assert_int_equal(try_take(f, 2), 0);
	uint64_t taken = 0;
	for (int64_t ns = 0; ns < (int64_t)3600 * 1000 * MS; ns += 333333) {
		int64_t step = SL_MIN((int64_t)333333, (int64_t)3600 * 1000 * MS - ns);
		vclock_advance_ns(&f->timed.clock, step);
		taken += try_take(f, 1) == 0;
	}
	assert_int_equal(taken, 7 * 3600);
}

static void a_pause_of_any_length_fills_the_bucket_and_no_more(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__tokens_opts){.rate = 1e9, .burst = 1000000000000000});
	assert_int_equal(try_take(f, 1000000000000000), 0);
	vclock_advance_ns(&f->timed.clock, INT64_MAX - 2 * f->timed.clock.now_ns);
	assert_int_equal(sl__tokens_available(f->t), 1000000000000000);
	assert_int_equal(try_take(f, 1000000000000000), 0);
	assert_int_equal(try_take(f, 1), SL_EAGAIN);
}

static void a_take_above_the_burst_waits_for_a_full_bucket_and_leaves_a_debt(void **state)
{
	struct fixture *f = *state;
	int64_t wait_ns;
	make(f, (struct sl__tokens_opts){.rate = 100, .burst = 10});
	assert_int_equal(try_take(f, 1), 0);
	assert_int_equal(sl__tokens_try_take(f->t, 50, &wait_ns), SL_EAGAIN);
	assert_int_equal(wait_ns, 10 * MS);
	vclock_advance_ms(&f->timed.clock, 10);
	assert_int_equal(try_take(f, 50), 0); /* 40 in debt */
	assert_int_equal(sl__tokens_available(f->t), 0);
	assert_int_equal(sl__tokens_try_take(f->t, 1, &wait_ns), SL_EAGAIN);
	assert_int_equal(wait_ns, 410 * MS);
	/* The biggest number there is neither overflows nor ends. */
	vclock_advance_ms(&f->timed.clock, 1000);
	assert_int_equal(try_take(f, UINT64_MAX), 0);
	assert_int_equal(sl__tokens_try_take(f->t, UINT64_MAX, &wait_ns), SL_EAGAIN);
	assert_int_equal(wait_ns, SL_FOREVER);
}

static void reduce_slows_down_to_the_floor_and_restore_brings_it_back(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__tokens_opts){.rate = 1000, .burst = 100});
	sl__tokens_reduce(f->t);
	assert_true(sl__tokens_rate(f->t) == 500);
	assert_int_equal(sl__tokens_available(f->t), 50); /* the burst shrinks too */
	assert_int_equal(try_take(f, 50), 0);
	vclock_advance_ms(&f->timed.clock, 10);
	assert_int_equal(sl__tokens_available(f->t), 5);
	for (int i = 0; i < 100; i++)
		sl__tokens_reduce(f->t);
	assert_true(sl__tokens_rate(f->t) == 62.5);
	sl__tokens_restore(f->t);
	assert_true(sl__tokens_rate(f->t) == 1000);
	assert_int_equal(sl__tokens_available(f->t), 5); /* what was lost stays lost */
	vclock_advance_ms(&f->timed.clock, 1000);
	assert_int_equal(sl__tokens_available(f->t), 100);
}

static void the_factor_and_the_floor_are_options(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__tokens_opts){.rate = 100, .reduce_factor = 0.1, .min_rate = 5});
	sl__tokens_reduce(f->t);
	assert_true(fabs(sl__tokens_rate(f->t) - 10) < 1e-6);
	sl__tokens_reduce(f->t);
	assert_true(fabs(sl__tokens_rate(f->t) - 5) < 1e-6);
	/* However small the rate, the bucket holds a whole token. */
	sl__tokens_free(f->t);
	make(f, (struct sl__tokens_opts){.rate = 1, .burst = 1});
	sl__tokens_reduce(f->t);
	assert_int_equal(sl__tokens_available(f->t), 1);
}

struct call {
	struct fixture *f;
	uint64_t n;
	int64_t timeout_ms;
	struct timed_call thread;
};

static int take_main(void *ctx)
{
	const struct call *c = ctx;
	return sl__tokens_take(c->f->t, c->n, c->timeout_ms);
}

static void start_take(struct fixture *f, struct call *c, uint64_t n, int64_t timeout_ms)
{
	*c = (struct call){.f = f, .n = n, .timeout_ms = timeout_ms};
	timed_call_start(&c->thread, take_main, c);
}

static void finish(struct call *c, int rc)
{
	timed_call_finish(&c->thread, rc);
}

static void a_take_waits_exactly_until_its_tokens_are_there(void **state)
{
	struct fixture *f = *state;
	struct call c;
	make(f, (struct sl__tokens_opts){.rate = 10, .burst = 10});
	assert_int_equal(try_take(f, 10), 0);
	start_take(f, &c, 3, SL_UNLIMITED);
	vclock_await_waiters(&f->timed.clock, 1);
	vclock_advance_ns(&f->timed.clock, 300 * MS - 1);
	vclock_await_waiters(&f->timed.clock, 1);
	assert_int_equal(c.thread.rc, 99);
	vclock_advance_ns(&f->timed.clock, 1);
	finish(&c, 0);
	assert_int_equal(sl__tokens_available(f->t), 0);
}

static void takers_are_served_in_order_and_a_try_does_not_overtake(void **state)
{
	struct fixture *f = *state;
	struct call big, small;
	make(f, (struct sl__tokens_opts){.rate = 10, .burst = 10});
	assert_int_equal(try_take(f, 10), 0);
	start_take(f, &big, 8, SL_UNLIMITED);
	vclock_await_waiters(&f->timed.clock, 1);
	vclock_advance_ms(&f->timed.clock, 500);
	assert_int_equal(sl__tokens_available(f->t), 5);
	assert_int_equal(try_take(f, 1), SL_EAGAIN);
	start_take(f, &small, 1, SL_UNLIMITED);
	vclock_await_waiters(&f->timed.clock, 2);
	assert_int_equal(small.thread.rc, 99);
	vclock_advance_ms(&f->timed.clock, 300);
	finish(&big, 0);
	vclock_await_waiters(&f->timed.clock, 1);
	assert_int_equal(small.thread.rc, 99);
	vclock_advance_ms(&f->timed.clock, 100);
	finish(&small, 0);
}

static void a_timed_take_gives_up_takes_nothing_and_lets_the_next_one_go(void **state)
{
	struct fixture *f = *state;
	struct call big, small;
	make(f, (struct sl__tokens_opts){.rate = 10, .burst = 10});
	assert_int_equal(try_take(f, 10), 0);
	start_take(f, &big, 10, 200);
	vclock_await_waiters(&f->timed.clock, 1);
	start_take(f, &small, 2, SL_UNLIMITED);
	vclock_await_waiters(&f->timed.clock, 2);
	vclock_advance_ms(&f->timed.clock, 200);
	finish(&big, SL_ETIMEDOUT);
	finish(&small, 0);
	assert_int_equal(sl__tokens_available(f->t), 0);
	assert_int_equal(sl__tokens_take(f->t, 1, 0), SL_ETIMEDOUT);
}

static void a_new_rate_holds_for_those_who_wait(void **state)
{
	struct fixture *f = *state;
	struct call c;
	make(f, (struct sl__tokens_opts){.rate = 16, .burst = 16});
	for (int i = 0; i < 4; i++)
		sl__tokens_reduce(f->t); /* 1 a second, burst 1 */
	assert_int_equal(try_take(f, 1), 0);
	start_take(f, &c, 1, SL_UNLIMITED);
	vclock_await_waiters(&f->timed.clock, 1);
	vclock_advance_ms(&f->timed.clock, 500); /* half a token */
	sl__tokens_restore(f->t);                /* 16 a second: the other half needs 31.25 ms */
	vclock_advance_ns(&f->timed.clock, 31250000 - 1);
	vclock_await_waiters(&f->timed.clock, 1);
	assert_int_equal(c.thread.rc, 99);
	vclock_advance_ns(&f->timed.clock, 1);
	finish(&c, 0);
}

static void closing_releases_those_who_wait(void **state)
{
	struct fixture *f = *state;
	struct call c[3];
	make(f, (struct sl__tokens_opts){.rate = 1});
	assert_int_equal(try_take(f, 1), 0);
	for (int i = 0; i < 3; i++)
		start_take(f, &c[i], 1, SL_UNLIMITED);
	vclock_await_waiters(&f->timed.clock, 3);
	sl__tokens_close(f->t);
	for (int i = 0; i < 3; i++)
		finish(&c[i], SL_ECLOSED);
	assert_int_equal(try_take(f, 0), SL_ECLOSED);
	assert_int_equal(sl__tokens_take(f->t, 0, 0), SL_ECLOSED);
}

static void a_bad_option_is_refused_by_name(void **state)
{
	(void)state;
	static const struct {
		struct sl__tokens_opts opts;
		const char *name;
	} bad[] = {
		{{.rate = 0}, "rate"},
		{{.rate = -1}, "rate"},
		{{.rate = NAN}, "rate"},
		{{.rate = 1e10}, "rate"},
		{{.rate = 1, .burst = 1000000000000001}, "burst"},
		{{.rate = 1, .reduce_factor = 1}, "reduce_factor"},
		{{.rate = 1, .reduce_factor = -0.5}, "reduce_factor"},
		{{.rate = 1, .reduce_factor = NAN}, "reduce_factor"},
		{{.rate = 1, .min_rate = 2}, "min_rate"},
	};
	for (size_t i = 0; i < SL_COUNT(bad); i++) {
		sl__tokens *t = NULL;
		struct sl_err err = SL_ERR_INIT;
		assert_int_equal(sl__tokens_new(&t, &bad[i].opts, &err), SL_EINVAL);
		assert_non_null(strstr(err.msg, bad[i].name));
		assert_null(t);
	}
}

/* ---- many threads at once ---- */

struct stress {
	sl__tokens *t;
	atomic_bool stop;
	atomic_uint_fast64_t taken;
};

static void *stress_main(void *arg)
{
	struct stress *s = arg;
	struct sl__prng prng = {.s = (uintptr_t)&prng};
	uint64_t taken = 0;
	while (!atomic_load(&s->stop) || taken == 0) { /* a slow machine may begin when the time is over */
		uint64_t r = sl__prng_next(&prng), n = (r >> 8) % 20;
		int rc = r % 3 == 0 ? sl__tokens_try_take(s->t, n, NULL)
				    : sl__tokens_take(s->t, n, r % 3 == 1 ? 1 : SL_UNLIMITED);
		if (rc == 0)
			taken += n;
		if (r % 64 == 0)
			sl__tokens_reduce(s->t);
		else if (r % 64 == 1)
			sl__tokens_restore(s->t);
	}
	atomic_fetch_add(&s->taken, taken);
	return NULL;
}

static void stress_watch(void *arg)
{
	struct stress *s = arg;
	(void)sl__tokens_available(s->t);
}

static void many_threads_get_no_more_than_burst_and_rate_allow(void **state)
{
	(void)state;
	struct stress s = {0};
	struct sl__tokens_opts opts = {.rate = 500000, .burst = 100};
	struct sl_env real;
	assert_int_equal(sl__env_init(&real, NULL, NULL), 0);
	int64_t start = sl__mono_ns(&real);
	assert_int_equal(sl__tokens_new(&s.t, &opts, NULL), 0);
	crowd_run(6, stress_main, stress_watch, &s, &s.stop);
	double most = 100 + 500000 * ((double)(sl__mono_ns(&real) - start) / 1e9);
	/* When reduced, the burst is 6 to 50: a take of 19 may leave a debt of 13, which is paid before the next. */
	assert_true((double)s.taken <= most + 20);
	assert_true(s.taken > 0);
	printf("# tokens stress: %llu tokens of at most %.0f\n", (unsigned long long)s.taken, most);
	sl__tokens_free(s.t);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_full_bucket_gives_its_burst_and_then_its_rate),
		TEST(the_burst_is_a_second_of_the_rate_unless_given),
		TEST(looking_a_million_times_loses_no_fraction),
		TEST(an_odd_rate_gives_exactly_its_number_over_an_hour),
		TEST(a_pause_of_any_length_fills_the_bucket_and_no_more),
		TEST(a_take_above_the_burst_waits_for_a_full_bucket_and_leaves_a_debt),
		TEST(reduce_slows_down_to_the_floor_and_restore_brings_it_back),
		TEST(the_factor_and_the_floor_are_options),
		TEST(a_take_waits_exactly_until_its_tokens_are_there),
		TEST(takers_are_served_in_order_and_a_try_does_not_overtake),
		TEST(a_timed_take_gives_up_takes_nothing_and_lets_the_next_one_go),
		TEST(a_new_rate_holds_for_those_who_wait),
		TEST(closing_releases_those_who_wait),
		TEST(a_bad_option_is_refused_by_name),
		TEST(many_threads_get_no_more_than_burst_and_rate_allow),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
