/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <stdatomic.h>

#include "flow/sequencer.h"
#include "support/budget.h"
#include "support/fault.h"
#include "support/vclock.h"

struct fixture {
	struct vclock clock;
	struct fault fault;
	struct sl_env env;
	sl__sequencer *s;
	struct sl_err err;
};

static int setup(void **state)
{
	struct fixture *x = calloc(1, sizeof(*x));
	vclock_init(&x->clock);
	fault_init(&x->fault, NULL);
	struct sl_env base = {SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &x->clock};
	struct sl_env env = fault_env(&x->fault, &base);
	assert_int_equal(sl__env_init(&x->env, &env, NULL), 0);
	*state = x;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *x = *state;
	sl__sequencer_free(x->s);
	assert_int_equal(fault_live_allocs(&x->fault), 0);
	fault_fini(&x->fault);
	vclock_fini(&x->clock);
	free(x);
	return 0;
}

static void begin(struct fixture *x, uint64_t first, uint64_t window)
{
	struct sl__sequencer_opts opts = {.first = first, .window = window};
	sl__sequencer_free(x->s);
	x->s = NULL;
	assert_int_equal(sl__sequencer_new(&x->s, &x->env, &opts, &x->err), 0);
}

static int push(struct fixture *x, uint64_t start, uint64_t end)
{
	struct sl__element e = {.start = start, .end = end, .ptr = (void *)(uintptr_t)(start * 10)};
	return sl__sequencer_push(x->s, &e, 0, &x->err);
}

static int next_code(struct fixture *x)
{
	struct sl__element e;
	return sl__sequencer_next(x->s, &e, 0, &x->err);
}

static void assert_next(struct fixture *x, uint64_t start, uint64_t end)
{
	struct sl__element e = {0};
	int rc = sl__sequencer_next(x->s, &e, 0, &x->err);
	if (rc != 0)
		fail_msg("next: %s", x->err.msg);
	assert_int_equal(e.start, start);
	assert_int_equal(e.end, end);
	assert_int_equal((uintptr_t)e.ptr, start * 10);
}

static void assert_take(struct fixture *x, uint64_t start)
{
	struct sl__element e = {0};
	assert_true(sl__sequencer_take(x->s, &e));
	assert_int_equal(e.start, start);
	assert_int_equal((uintptr_t)e.ptr, start * 10);
}

static void assert_nothing_to_take(struct fixture *x)
{
	struct sl__element e;
	assert_false(sl__sequencer_take(x->s, &e));
}

static struct sl_err some_error(int code)
{
	struct sl_err why = SL_ERR_INIT;
	sl_err_set(&why, code, "partition 3: no such column");
	return why;
}

/* ---- order ---- */

static void every_order_of_arrival_gives_the_same_order_out(void **state)
{
	struct fixture *x = *state;
	int permutations = 0;
	for (unsigned code = 0; code < 720; code++, permutations++) {
		unsigned left[6] = {1, 2, 3, 4, 5, 6}, c = code;
		uint64_t out = 1;
		begin(x, 1, 6);
		for (unsigned n = 6; n > 0; n--) {
			unsigned pick = c % n;
			c /= n;
			assert_int_equal(push(x, left[pick], left[pick]), 0);
			memmove(&left[pick], &left[pick + 1], (n - pick - 1) * sizeof(left[0]));
			struct sl__element e;
			while (sl__sequencer_next(x->s, &e, 0, NULL) == 0)
				assert_int_equal(e.start, out++);
		}
		assert_int_equal(out, 7);
	}
	assert_int_equal(permutations, 720);
}

static void ranges_follow_each_other_by_their_ends(void **state)
{
	struct fixture *x = *state;
	begin(x, 1000, 5000);
	assert_int_equal(push(x, 3000, 3000), 0);
	assert_int_equal(push(x, 1000, 1999), 0);
	assert_int_equal(push(x, 3001, 5000), 0);
	assert_next(x, 1000, 1999);
	assert_int_equal(next_code(x), SL_ETIMEDOUT);
	assert_int_equal(push(x, 2000, 2999), 0);
	assert_next(x, 2000, 2999);
	assert_next(x, 3000, 3000);
	assert_next(x, 3001, 5000);
	struct sl__sequencer_stats stats;
	sl__sequencer_get_stats(x->s, &stats);
	assert_int_equal(stats.next, 5001);
	assert_int_equal(stats.buffered, 0);
	assert_int_equal(stats.buffered_max, 3);
}

static void a_thousand_in_any_order_come_out_in_theirs(void **state)
{
	struct fixture *x = *state;
	struct sl__prng rng = {.s = 3};
	for (int round = 0; round < 20; round++) {
		uint64_t order[1000], out = 0;
		begin(x, 0, 1000);
		for (uint64_t i = 0; i < 1000; i++)
			order[i] = i;
		for (size_t i = 999; i > 0; i--) {
			size_t j = sl__prng_next(&rng) % (i + 1);
			uint64_t swap = order[i];
			order[i] = order[j];
			order[j] = swap;
		}
		for (size_t i = 0; i < 1000; i++) {
			assert_int_equal(push(x, order[i], order[i]), 0);
			struct sl__element e;
			while (sl__prng_next(&rng) % 3 != 0 && sl__sequencer_next(x->s, &e, 0, NULL) == 0)
				assert_int_equal(e.start, out++);
		}
		for (; out < 1000; out++)
			assert_next(x, out, out);
	}
}

/* ---- what is refused ---- */

static void numbers_that_were_seen_are_refused(void **state)
{
	struct fixture *x = *state;
	begin(x, 10, 100);
	assert_int_equal(push(x, 9, 9), SL_EDUPLICATE);
	assert_int_equal(push(x, 5, 20), SL_EDUPLICATE);
	assert_int_equal(push(x, 20, 29), 0);
	assert_int_equal(push(x, 20, 29), SL_EDUPLICATE);
	assert_int_equal(push(x, 15, 20), SL_EDUPLICATE);
	assert_int_equal(push(x, 29, 35), SL_EDUPLICATE);
	assert_int_equal(push(x, 22, 25), SL_EDUPLICATE);
	assert_int_equal(push(x, 15, 40), SL_EDUPLICATE);
	assert_non_null(strstr(x->err.msg, "15 to 40"));
	assert_int_equal(push(x, 10, 19), 0);
	assert_next(x, 10, 19);
	assert_next(x, 20, 29);
	assert_int_equal(push(x, 10, 19), SL_EDUPLICATE);
	struct sl_err why = some_error(SL_EDATA);
	assert_int_equal(sl__sequencer_fail(x->s, 20, 29, &why, &x->err), SL_EDUPLICATE);
	assert_int_equal(push(x, 30, 30), 0);
	assert_int_equal(sl__sequencer_fail(x->s, 30, 31, &why, &x->err), SL_EDUPLICATE);
	assert_next(x, 30, 30);
}

static void what_is_no_range_is_refused(void **state)
{
	struct fixture *x = *state;
	struct sl__sequencer_opts none = {.window = 0};
	assert_int_equal(sl__sequencer_new(&x->s, &x->env, &none, &x->err), SL_EINVAL);
	begin(x, 0, 10);
	assert_int_equal(push(x, 5, 4), SL_EINVAL);
	assert_int_equal(push(x, 5, UINT64_MAX), SL_EINVAL);
	struct sl_err fine = SL_ERR_INIT;
	assert_int_equal(sl__sequencer_fail(x->s, 1, 1, &fine, &x->err), SL_EINVAL);
	assert_int_equal(push(x, 0, UINT64_MAX - 1), 0);
	assert_next(x, 0, UINT64_MAX - 1);
}

static void a_number_that_is_missing_at_the_end_is_named(void **state)
{
	struct fixture *x = *state;
	begin(x, 1, 10);
	assert_int_equal(push(x, 1, 1), 0);
	assert_int_equal(push(x, 3, 4), 0);
	sl__sequencer_close(x->s, NULL);
	assert_next(x, 1, 1);
	assert_int_equal(next_code(x), SL_EGAP);
	assert_string_equal(x->err.msg, "2 is missing: the next element is 3 to 4");
	assert_int_equal(next_code(x), SL_EGAP);
	assert_int_equal(push(x, 2, 2), SL_ECANCELLED);
	assert_take(x, 3);
	assert_nothing_to_take(x);

	/* The tail. */
	uint64_t last = 5;
	begin(x, 1, 10);
	assert_int_equal(push(x, 1, 4), 0);
	sl__sequencer_close(x->s, &last);
	assert_next(x, 1, 4);
	assert_int_equal(next_code(x), SL_EGAP);
	assert_string_equal(x->err.msg, "5 is missing at the end");
}

static void a_complete_flow_ends_cleanly(void **state)
{
	struct fixture *x = *state;
	uint64_t last = 4, other = 9;
	begin(x, 1, 10);
	assert_int_equal(push(x, 1, 4), 0);
	sl__sequencer_close(x->s, &last);
	sl__sequencer_close(x->s, &other);
	assert_int_equal(push(x, 5, 5), SL_ECLOSED);
	assert_next(x, 1, 4);
	assert_int_equal(next_code(x), SL_ECLOSED);
	assert_int_equal(next_code(x), SL_ECLOSED);
	begin(x, 1, 10);
	sl__sequencer_close(x->s, NULL);
	assert_int_equal(next_code(x), SL_ECLOSED);
}

/* ---- the window ---- */

struct producer {
	struct fixture *x;
	uint64_t start, end;
	int64_t timeout_ms;
	int rc;
	pthread_t thread;
};

static void *produce(void *arg)
{
	struct producer *p = arg;
	struct sl__element e = {.start = p->start, .end = p->end, .ptr = (void *)(uintptr_t)(p->start * 10)};
	p->rc = sl__sequencer_push(p->x->s, &e, p->timeout_ms, NULL);
	return NULL;
}

static void start(struct producer *p, struct fixture *x, uint64_t first, uint64_t last, int64_t timeout_ms)
{
	*p = (struct producer){.x = x, .start = first, .end = last, .timeout_ms = timeout_ms, .rc = 77};
	assert_int_equal(pthread_create(&p->thread, NULL, produce, p), 0);
}

static int result(struct producer *p)
{
	pthread_join(p->thread, NULL);
	return p->rc;
}

static size_t waiting(struct fixture *x)
{
	struct sl__sequencer_stats stats;
	sl__sequencer_get_stats(x->s, &stats);
	return stats.waiting;
}

static void an_element_too_far_ahead_waits_until_the_window_moves(void **state)
{
	struct fixture *x = *state;
	struct producer p, far;
	begin(x, 1, 3);
	assert_int_equal(push(x, 3, 3), 0);
	assert_int_equal(push(x, 4, 4), SL_ETIMEDOUT);
	start(&p, x, 4, 4, SL_UNLIMITED);
	start(&far, x, 5, 5, SL_UNLIMITED);
	vclock_await_waiters(&x->clock, 2);
	assert_int_equal(waiting(x), 2);
	assert_int_equal(push(x, 1, 1), 0); /* the next expected is always let in */
	assert_int_equal(waiting(x), 2);
	assert_next(x, 1, 1);
	assert_int_equal(result(&p), 0);
	vclock_await_waiters(&x->clock, 1);
	assert_int_equal(waiting(x), 1);
	assert_int_equal(push(x, 2, 2), 0);
	assert_next(x, 2, 2);
	assert_int_equal(result(&far), 0);
	assert_next(x, 3, 3);
	assert_next(x, 4, 4);
	assert_next(x, 5, 5);
}

static void a_push_that_waits_gives_up_at_its_time(void **state)
{
	struct fixture *x = *state;
	struct producer p;
	begin(x, 1, 3);
	start(&p, x, 9, 9, 500);
	vclock_await_waiters(&x->clock, 1);
	vclock_advance_ms(&x->clock, 499);
	vclock_await_waiters(&x->clock, 1);
	vclock_advance_ms(&x->clock, 1);
	assert_int_equal(result(&p), SL_ETIMEDOUT);
	assert_int_equal(waiting(x), 0);
}

struct consumer {
	struct fixture *x;
	int64_t timeout_ms;
	int rc;
	struct sl__element e;
	pthread_t thread;
};

static void *consume(void *arg)
{
	struct consumer *c = arg;
	c->rc = sl__sequencer_next(c->x->s, &c->e, c->timeout_ms, NULL);
	return NULL;
}

static void start_consumer(struct consumer *c, struct fixture *x, int64_t timeout_ms)
{
	*c = (struct consumer){.x = x, .timeout_ms = timeout_ms, .rc = 77};
	assert_int_equal(pthread_create(&c->thread, NULL, consume, c), 0);
	vclock_await_waiters(&x->clock, 1);
}

static void the_consumer_waits_for_the_next_one(void **state)
{
	struct fixture *x = *state;
	struct consumer c;
	begin(x, 1, 10);
	start_consumer(&c, x, SL_UNLIMITED);
	assert_int_equal(push(x, 2, 2), 0);
	assert_int_equal(push(x, 1, 1), 0);
	pthread_join(c.thread, NULL);
	assert_int_equal(c.rc, 0);
	assert_int_equal(c.e.start, 1);
	assert_next(x, 2, 2);
	start_consumer(&c, x, 100);
	vclock_advance_ms(&x->clock, 100);
	pthread_join(c.thread, NULL);
	assert_int_equal(c.rc, SL_ETIMEDOUT);
}

/* A push that waits when the flow is closed still goes in; one that waits for a gap is let go. */
static void a_close_neither_forgets_nor_traps_a_push_that_waits(void **state)
{
	struct fixture *x = *state;
	struct producer p, behind_gap;
	begin(x, 1, 2);
	assert_int_equal(push(x, 1, 1), 0);
	assert_int_equal(push(x, 2, 2), 0);
	start(&p, x, 3, 3, SL_UNLIMITED);
	start(&behind_gap, x, 9, 9, SL_UNLIMITED);
	vclock_await_waiters(&x->clock, 2);
	sl__sequencer_close(x->s, NULL);
	assert_next(x, 1, 1);
	assert_next(x, 2, 2);
	struct sl__element e;
	assert_int_equal(sl__sequencer_next(x->s, &e, SL_UNLIMITED, &x->err), 0);
	assert_int_equal(e.start, 3);
	assert_int_equal(result(&p), 0);
	assert_int_equal(sl__sequencer_next(x->s, &e, SL_UNLIMITED, &x->err), SL_EGAP);
	assert_int_equal(result(&behind_gap), SL_ECANCELLED);
	assert_nothing_to_take(x);
}

static void a_consumer_that_waits_learns_of_the_close(void **state)
{
	struct fixture *x = *state;
	struct consumer c;
	begin(x, 1, 2);
	start_consumer(&c, x, SL_UNLIMITED);
	sl__sequencer_close(x->s, NULL);
	pthread_join(c.thread, NULL);
	assert_int_equal(c.rc, SL_ECLOSED);
}

/* ---- failures ---- */

static void a_failed_element_stops_the_flow_at_exactly_its_place(void **state)
{
	struct fixture *x = *state;
	begin(x, 1, 10);
	struct sl_err why = some_error(SL_EAGAIN); /* any code, also one that means "again" elsewhere */
	assert_int_equal(push(x, 4, 4), 0);
	assert_int_equal(push(x, 2, 2), 0);
	assert_int_equal(sl__sequencer_fail(x->s, 3, 3, &why, &x->err), 0);
	assert_int_equal(push(x, 5, 5), SL_ECANCELLED); /* never its turn */
	assert_int_equal(push(x, 3, 3), SL_EDUPLICATE);
	assert_nothing_to_take(x); /* it still flows */
	assert_int_equal(next_code(x), SL_ETIMEDOUT);
	assert_int_equal(push(x, 1, 1), 0);
	assert_next(x, 1, 1);
	assert_next(x, 2, 2);
	for (int i = 0; i < 2; i++) {
		x->err = (struct sl_err)SL_ERR_INIT;
		assert_int_equal(next_code(x), SL_EAGAIN);
		assert_string_equal(x->err.msg, "partition 3: no such column");
	}
	assert_take(x, 4);
	assert_nothing_to_take(x);
	assert_int_equal(push(x, 6, 6), SL_ECANCELLED);
}

static void of_several_failures_the_first_in_order_counts(void **state)
{
	struct fixture *x = *state;
	begin(x, 1, 100);
	struct sl_err late = some_error(SL_EIO), early = some_error(SL_EDATA), between = some_error(SL_ENOSPC);
	assert_int_equal(sl__sequencer_fail(x->s, 50, 59, &late, &x->err), 0);
	assert_int_equal(push(x, 30, 39), 0);
	assert_int_equal(sl__sequencer_fail(x->s, 20, 29, &early, &x->err), 0);
	assert_int_equal(sl__sequencer_fail(x->s, 40, 49, &between, &x->err), 0);
	assert_int_equal(push(x, 1, 19), 0);
	assert_next(x, 1, 19);
	assert_int_equal(next_code(x), SL_EDATA);
	assert_int_equal(sl__sequencer_fail(x->s, 90, 91, &late, &x->err), 0);
	assert_int_equal(next_code(x), SL_EDATA);
	assert_take(x, 30);
}

static void a_failure_wakes_the_consumer_and_lets_waiting_pushes_go(void **state)
{
	struct fixture *x = *state;
	struct consumer c;
	struct producer p;
	struct sl_err why = some_error(SL_EDATA);
	begin(x, 1, 2);
	start_consumer(&c, x, SL_UNLIMITED);
	start(&p, x, 8, 8, SL_UNLIMITED);
	vclock_await_waiters(&x->clock, 2);
	assert_int_equal(sl__sequencer_fail(x->s, 5, 5, &why, &x->err), 0); /* outside the window: never waits */
	assert_int_equal(result(&p), SL_ECANCELLED);
	vclock_await_waiters(&x->clock, 1);
	assert_int_equal(sl__sequencer_fail(x->s, 1, 1, &why, &x->err), 0);
	pthread_join(c.thread, NULL);
	assert_int_equal(c.rc, SL_EDATA);
}

static void a_cancel_lets_everybody_go(void **state)
{
	struct fixture *x = *state;
	struct producer p[3];
	begin(x, 1, 2);
	assert_int_equal(push(x, 2, 2), 0);
	for (uint64_t i = 0; i < 3; i++)
		start(&p[i], x, 5 + i, 5 + i, SL_UNLIMITED);
	struct consumer c;
	vclock_await_waiters(&x->clock, 3);
	c = (struct consumer){.x = x, .timeout_ms = SL_UNLIMITED};
	assert_int_equal(pthread_create(&c.thread, NULL, consume, &c), 0);
	vclock_await_waiters(&x->clock, 4);
	sl__sequencer_cancel(x->s);
	sl__sequencer_cancel(x->s);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(result(&p[i]), SL_ECANCELLED);
	pthread_join(c.thread, NULL);
	assert_int_equal(c.rc, SL_ECANCELLED);
	assert_take(x, 2);
	assert_nothing_to_take(x);
}

static void a_push_without_memory_leaves_the_element_with_its_owner(void **state)
{
	struct fixture *x = *state;
	struct sl__sequencer_opts opts = {.first = 1, .window = 10000};
	fault_arm_mem(&x->fault, 1, FAULT_ONCE);
	assert_int_equal(sl__sequencer_new(&x->s, &x->env, &opts, &x->err), SL_ENOMEM);
	begin(x, 1, 10000);
	unsigned refused = 0;
	int rc = 0;
	for (uint64_t i = 1000; i > 0;) {
		fault_arm_mem(&x->fault, rc == 0, FAULT_ONCE); /* then once more with memory */
		rc = push(x, i, i);
		refused += rc == SL_ENOMEM;
		assert_true(rc == 0 || rc == SL_ENOMEM);
		i -= rc == 0;
	}
	fault_disarm(&x->fault);
	assert_true(refused > 3);
	for (uint64_t i = 1; i <= 1000; i++)
		assert_next(x, i, i);
}

/* ---- threads ---- */

#define WORKERS 6

struct crowd {
	struct fixture *x;
	struct sl_env env;
	uint64_t n, fail_at; /* fail_at 0: none */
	atomic_uint_fast64_t ticket, refused;
};

/* As in the pipeline: elements are taken in order and finish in any. */
static void *work(void *arg)
{
	struct crowd *c = arg;
	struct sl__prng rng = {.s = (uint64_t)(uintptr_t)&rng};
	for (;;) {
		uint64_t i = atomic_fetch_add(&c->ticket, 1) + 1;
		if (i > c->n)
			return NULL;
		for (volatile uint64_t spin = sl__prng_next(&rng) % 500; spin > 0; spin--)
			;
		if (i == c->fail_at) {
			struct sl_err why = some_error(SL_EDATA);
			assert_int_equal(sl__sequencer_fail(c->x->s, i * 10, i * 10 + 9, &why, NULL), 0);
			continue;
		}
		struct sl__element e = {.start = i * 10, .end = i * 10 + 9, .ptr = c};
		int rc = sl__sequencer_push(c->x->s, &e, SL_UNLIMITED, NULL);
		assert_true(rc == 0 || (rc == SL_ECANCELLED && c->fail_at != 0 && i > c->fail_at));
		atomic_fetch_add(&c->refused, rc != 0);
	}
}

static void *close_after(void *arg)
{
	struct crowd *c = arg;
	pthread_t workers[WORKERS];
	for (size_t i = 0; i < WORKERS; i++)
		assert_int_equal(pthread_create(&workers[i], NULL, work, c), 0);
	for (size_t i = 0; i < WORKERS; i++)
		pthread_join(workers[i], NULL);
	uint64_t last = c->n * 10 + 9;
	sl__sequencer_close(c->x->s, &last);
	return NULL;
}

static void run_round(struct fixture *x, struct crowd *c)
{
	struct sl__sequencer_opts opts = {.first = 10, .window = 40};
	struct sl__element e;
	pthread_t closer;
	uint64_t out = 0, back = 0;
	int rc;
	sl__sequencer_free(x->s);
	assert_int_equal(sl__sequencer_new(&x->s, &c->env, &opts, NULL), 0);
	assert_int_equal(pthread_create(&closer, NULL, close_after, c), 0);
	while ((rc = sl__sequencer_next(x->s, &e, SL_UNLIMITED, NULL)) == 0) {
		out++;
		assert_int_equal(e.start, out * 10);
	}
	pthread_join(closer, NULL);
	while (sl__sequencer_take(x->s, &e))
		back++;
	struct sl__sequencer_stats stats;
	sl__sequencer_get_stats(x->s, &stats);
	assert_true(stats.buffered_max <= 4);
	if (c->fail_at == 0) {
		assert_int_equal(rc, SL_ECLOSED);
		assert_int_equal(out, c->n);
	} else {
		assert_int_equal(rc, SL_EDATA);
		assert_int_equal(out, c->fail_at - 1);
	}
	assert_int_equal(out + back + c->refused + (c->fail_at != 0), c->n);
}

static void out_of_order_completion_still_produces_order_under_threads(void **state)
{
	struct fixture *x = *state;
	int64_t end = sl__clock_real.mono_ns(NULL) + (int64_t)(test_seconds(1) * 1e9);
	struct sl__prng rng = {.s = 17};
	uint64_t rounds = 0, elements = 0;
	do {
		struct crowd c = {.x = x, .env = x->env, .n = 1 + sl__prng_next(&rng) % 400};
		c.env.clock = &sl__clock_real;
		if (rounds % 2 != 0)
			c.fail_at = 1 + sl__prng_next(&rng) % c.n;
		run_round(x, &c);
		elements += c.n;
		rounds++;
	} while (sl__clock_real.mono_ns(NULL) < end);
	printf("# %llu rounds, %llu elements\n", (unsigned long long)rounds, (unsigned long long)elements);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(every_order_of_arrival_gives_the_same_order_out),
		T(ranges_follow_each_other_by_their_ends),
		T(a_thousand_in_any_order_come_out_in_theirs),
		T(numbers_that_were_seen_are_refused),
		T(what_is_no_range_is_refused),
		T(a_number_that_is_missing_at_the_end_is_named),
		T(a_complete_flow_ends_cleanly),
		T(an_element_too_far_ahead_waits_until_the_window_moves),
		T(a_push_that_waits_gives_up_at_its_time),
		T(the_consumer_waits_for_the_next_one),
		T(a_close_neither_forgets_nor_traps_a_push_that_waits),
		T(a_consumer_that_waits_learns_of_the_close),
		T(a_failed_element_stops_the_flow_at_exactly_its_place),
		T(of_several_failures_the_first_in_order_counts),
		T(a_failure_wakes_the_consumer_and_lets_waiting_pushes_go),
		T(a_cancel_lets_everybody_go),
		T(a_push_without_memory_leaves_the_element_with_its_owner),
		T(out_of_order_completion_still_produces_order_under_threads),
	};
	return cmocka_run_group_tests_name("sequencer", tests, NULL, NULL);
}
