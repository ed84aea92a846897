/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/thread.h"
#include "flow/queue.h"
#include "support/budget.h"
#include "support/vclock.h"

#define ITEM(n) ((void *)(uintptr_t)(n))
#define MS ((int64_t)1000000)

/* ---- fixture: a virtual clock and what callbacks saw ---- */

struct fixture {
	struct vclock clock;
	struct sl_env env;
	sl__queue *q;
	pthread_mutex_t mu;
	pthread_cond_t changed;
	char marks[64]; /* H and L in the order of the callbacks */
	int n_marks;
	bool hold; /* callbacks wait while set */
	bool freeing;
	uintptr_t dropped[256];
	int n_dropped;
	uint64_t last_drop_position;
	pthread_t dropper;
	int push_in_high; /* items to push from on_high */
	int failed_pushes;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	vclock_init(&f->clock);
	f->env = (struct sl_env){SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &f->clock};
	pthread_mutex_init(&f->mu, NULL);
	pthread_cond_init(&f->changed, NULL);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	if (f->q != NULL)
		sl__queue_close(f->q, SL__QUEUE_TAKE_BACK);
	sl__queue_free(f->q);
	vclock_fini(&f->clock);
	pthread_mutex_destroy(&f->mu);
	pthread_cond_destroy(&f->changed);
	free(f);
	return 0;
}

static void note_mark(struct fixture *f, char mark)
{
	pthread_mutex_lock(&f->mu);
	f->marks[f->n_marks++] = mark;
	pthread_cond_broadcast(&f->changed);
	while (f->hold)
		pthread_cond_wait(&f->changed, &f->mu);
	pthread_mutex_unlock(&f->mu);
}

static void on_high(void *ctx)
{
	struct fixture *f = ctx;
	for (int i = 0; i < f->push_in_high; i++)
		f->failed_pushes += sl__queue_push(f->q, ITEM(1000 + i), 1) != 0;
	note_mark(f, 'H');
}

static void on_low(void *ctx)
{
	note_mark(ctx, 'L');
}

static void on_drop(const struct sl__queue_item *item, uint64_t position, void *ctx)
{
	struct fixture *f = ctx;
	struct sl__queue_stats s;
	sl__queue_stats(f->q, &s); /* would hang if the lock were held */
	f->last_drop_position = position;
	f->dropped[f->n_dropped++] = (uintptr_t)item->ptr;
	f->dropper = pthread_self();
}

static void await_marks(struct fixture *f, int n)
{
	pthread_mutex_lock(&f->mu);
	while (f->n_marks < n)
		pthread_cond_wait(&f->changed, &f->mu);
	pthread_mutex_unlock(&f->mu);
}

static void make(struct fixture *f, struct sl__queue_opts opts)
{
	struct sl_err err = SL_ERR_INIT;
	opts.env = &f->env;
	opts.ctx = f;
	assert_int_equal(sl__queue_new(&f->q, &opts, &err), 0);
}

static void push_range(struct fixture *f, uintptr_t from, uintptr_t to)
{
	for (uintptr_t i = from; i <= to; i++)
		assert_int_equal(sl__queue_try_push(f->q, ITEM(i), 1), 0);
}

/* Pop what is there and check that it is from … to. */
static void expect_range(struct fixture *f, uintptr_t from, uintptr_t to)
{
	struct sl__queue_item out[256];
	size_t n;
	assert_int_equal(sl__queue_pop(f->q, out, to - from + 1, 0, 0, &n), 0);
	assert_int_equal(n, to - from + 1);
	for (size_t i = 0; i < n; i++)
		assert_int_equal((uintptr_t)out[i].ptr, from + i);
}

static struct sl__queue_stats stats_of(struct fixture *f)
{
	struct sl__queue_stats s;
	sl__queue_stats(f->q, &s);
	assert_int_equal(s.pushed, s.popped + s.dropped + s.taken + s.depth);
	return s;
}

/* ---- one call on its own thread ---- */

struct call {
	struct fixture *f;
	pthread_t thread;
	/* in */
	struct sl__queue_item items[32];
	size_t n, max;
	int64_t linger_ms, timeout_ms;
	/* out */
	int rc;
	size_t moved;
	struct sl__queue_item out[64];
};

static void *push_main(void *arg)
{
	struct call *c = arg;
	c->rc = sl__queue_push_many(c->f->q, c->items, c->n, c->timeout_ms, &c->moved);
	return NULL;
}

static void *pop_main(void *arg)
{
	struct call *c = arg;
	c->rc = sl__queue_pop(c->f->q, c->out, c->max, c->linger_ms, c->timeout_ms, &c->moved);
	return NULL;
}

static void start_push(struct fixture *f, struct call *c, uintptr_t first, size_t n, size_t bytes, int64_t timeout_ms)
{
	*c = (struct call){.f = f, .n = n, .timeout_ms = timeout_ms, .rc = 99};
	for (size_t i = 0; i < n; i++)
		c->items[i] = (struct sl__queue_item){.ptr = ITEM(first + i), .bytes = bytes & 0xffffffff};
	assert_int_equal(pthread_create(&c->thread, NULL, push_main, c), 0);
}

static void start_pop(struct fixture *f, struct call *c, size_t max, int64_t linger_ms, int64_t timeout_ms)
{
	*c = (struct call){.f = f, .max = max, .linger_ms = linger_ms, .timeout_ms = timeout_ms, .rc = 99};
	assert_int_equal(pthread_create(&c->thread, NULL, pop_main, c), 0);
}

static void finish(struct call *c, int rc, size_t moved)
{
	pthread_join(c->thread, NULL);
	assert_int_equal(c->rc, rc);
	assert_int_equal(c->moved, moved);
}

/* ---- order and bounds ---- */

static void items_leave_in_the_order_in_which_they_came(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__queue_opts){.capacity = 7});
	uintptr_t in = 1, out = 1;
	for (int round = 0; round < 20; round++) {
		push_range(f, in, in + 4);
		in += 5;
		expect_range(f, out, out + 4);
		out += 5;
	}
	assert_int_equal(stats_of(f).pushed, 100);
	assert_int_equal(stats_of(f).popped, 100);
}

static void depth_bytes_and_the_oldest_age_are_reported(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__queue_opts){.capacity = 10, .max_bytes = 100});
	assert_int_equal(stats_of(f).oldest_age_ms, 0);
	assert_int_equal(sl__queue_push(f->q, ITEM(1), 30), 0);
	vclock_advance_ms(&f->clock, 40);
	assert_int_equal(sl__queue_push(f->q, ITEM(2), 20), 0);
	vclock_advance_ms(&f->clock, 2);
	struct sl__queue_stats s = stats_of(f);
	assert_int_equal(s.depth, 2);
	assert_int_equal(s.capacity, 10);
	assert_int_equal(s.bytes, 50);
	assert_int_equal(s.oldest_age_ms, 42);
	expect_range(f, 1, 1);
	s = stats_of(f);
	assert_int_equal(s.bytes, 20);
	assert_int_equal(s.oldest_age_ms, 2);
}

static void a_storm_of_pushes_never_makes_an_item_look_younger_than_it_is(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__queue_opts){.capacity = 200});
	int64_t went_in[200];
	struct sl__queue_item out[200];
	size_t n;
	for (uintptr_t i = 0; i < 200; i++) {
		went_in[i] = f->clock.now_ns;
		assert_int_equal(sl__queue_push(f->q, ITEM(i), 0), 0);
		vclock_advance_ms(&f->clock, 1);
	}
	assert_int_equal(sl__queue_pop(f->q, out, 200, 0, 0, &n), 0);
	assert_int_equal(n, 200);
	for (size_t i = 0; i < n; i++) {
		assert_true(out[i].at_ns <= went_in[i]);
		assert_true(out[i].at_ns >= went_in[i] - (i < 32 ? 0 : 15 * MS));
	}
	/* After a pop the times are exact again. */
	for (uintptr_t i = 0; i < 32; i++) {
		went_in[i] = f->clock.now_ns;
		assert_int_equal(sl__queue_push(f->q, ITEM(i), 0), 0);
		vclock_advance_ms(&f->clock, 1);
	}
	assert_int_equal(sl__queue_pop(f->q, out, 200, 0, 0, &n), 0);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(out[i].at_ns, went_in[i]);
}

static void a_full_queue_blocks_until_there_is_room(void **state)
{
	struct fixture *f = *state;
	struct call c;
	make(f, (struct sl__queue_opts){.capacity = 10});
	push_range(f, 1, 10);
	start_push(f, &c, 11, 1, 1, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 1);
	assert_int_equal(stats_of(f).blocked_pushers, 1);
	assert_int_equal(stats_of(f).depth, 10);
	expect_range(f, 1, 1);
	finish(&c, 0, 1);
	expect_range(f, 2, 11);
}

static void blocked_pushers_are_served_in_the_order_of_their_arrival(void **state)
{
	struct fixture *f = *state;
	struct call c[5];
	make(f, (struct sl__queue_opts){.capacity = 2});
	push_range(f, 1, 2);
	for (int i = 0; i < 5; i++) {
		start_push(f, &c[i], 3 + (uintptr_t)i, 1, 1, SL_UNLIMITED);
		vclock_await_waiters(&f->clock, i + 1);
	}
	for (uintptr_t i = 1; i <= 7; i++)
		expect_range(f, i, i);
	for (int i = 0; i < 5; i++)
		finish(&c[i], 0, 1);
}

/* More than the queue has places for: those beyond bring their own. */
static void any_number_of_pushers_may_be_blocked(void **state)
{
	struct fixture *f = *state;
	enum { N = 40 };
	static struct call c[N];
	make(f, (struct sl__queue_opts){.capacity = 2});
	push_range(f, 1, 2);
	for (int i = 0; i < N; i++) {
		start_push(f, &c[i], 3 + (uintptr_t)i, 1, 1, SL_UNLIMITED);
		vclock_await_waiters(&f->clock, i + 1);
	}
	for (uintptr_t i = 1; i <= N + 2; i++)
		expect_range(f, i, i);
	for (int i = 0; i < N; i++)
		finish(&c[i], 0, 1);
}

static void no_smaller_item_overtakes_a_blocked_pusher(void **state)
{
	struct fixture *f = *state;
	struct call big, small;
	make(f, (struct sl__queue_opts){.capacity = 10, .max_bytes = 100});
	assert_int_equal(sl__queue_push(f->q, ITEM(1), 60), 0);
	start_push(f, &big, 2, 1, 50, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 1);
	assert_int_equal(sl__queue_try_push(f->q, ITEM(9), 1), SL_EFULL);
	start_push(f, &small, 3, 1, 1, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 2);
	expect_range(f, 1, 1);
	finish(&big, 0, 1);
	finish(&small, 0, 1);
	expect_range(f, 2, 3);
}

static void when_the_first_blocked_pusher_gives_up_the_next_goes_in(void **state)
{
	struct fixture *f = *state;
	struct call big, small;
	make(f, (struct sl__queue_opts){.capacity = 10, .max_bytes = 100});
	assert_int_equal(sl__queue_push(f->q, ITEM(1), 60), 0);
	start_push(f, &big, 9, 1, 50, 10);
	vclock_await_waiters(&f->clock, 1);
	start_push(f, &small, 2, 1, 1, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 2);
	vclock_advance_ms(&f->clock, 10);
	finish(&big, SL_ETIMEDOUT, 0);
	finish(&small, 0, 1);
	expect_range(f, 1, 2);
}

static void a_push_of_more_than_the_capacity_goes_in_in_pieces(void **state)
{
	struct fixture *f = *state;
	struct call c;
	make(f, (struct sl__queue_opts){.capacity = 4});
	start_push(f, &c, 1, 30, 1, SL_UNLIMITED);
	struct sl__queue_item out[30];
	size_t got = 0, n;
	while (got < 30) {
		assert_int_equal(sl__queue_pop(f->q, out + got, 3, 0, SL_UNLIMITED, &n), 0);
		assert_true(stats_of(f).depth <= 4);
		got += n;
	}
	finish(&c, 0, 30);
	for (uintptr_t i = 0; i < 30; i++)
		assert_int_equal((uintptr_t)out[i].ptr, i + 1);
}

static void a_timed_push_gives_up_at_its_deadline_and_reports_how_much_went_in(void **state)
{
	struct fixture *f = *state;
	struct call c;
	make(f, (struct sl__queue_opts){.capacity = 3});
	start_push(f, &c, 1, 10, 1, 50);
	vclock_await_waiters(&f->clock, 1);
	vclock_advance_ms(&f->clock, 49);
	expect_range(f, 1, 2); /* two more fit now */
	while (stats_of(f).depth < 3)
		sched_yield();
	vclock_await_waiters(&f->clock, 1);
	assert_int_equal(c.rc, 99);
	vclock_advance_ms(&f->clock, 1);
	finish(&c, SL_ETIMEDOUT, 5);
	expect_range(f, 3, 5);
	assert_int_equal(stats_of(f).refused, 5);
	assert_int_equal(stats_of(f).blocked_pushers, 0);
}

static void a_try_on_a_full_queue_fails_at_once(void **state)
{
	struct fixture *f = *state;
	size_t pushed;
	struct sl__queue_item items[3] = {{.ptr = ITEM(2)}, {.ptr = ITEM(3)}, {.ptr = ITEM(4)}};
	make(f, (struct sl__queue_opts){.capacity = 2});
	assert_int_equal(sl__queue_try_push(f->q, ITEM(1), 0), 0);
	assert_int_equal(sl__queue_push_many(f->q, items, 3, 0, &pushed), SL_EFULL);
	assert_int_equal(pushed, 1);
	assert_int_equal(sl__queue_try_push(f->q, ITEM(9), 0), SL_EFULL);
	expect_range(f, 1, 2);
}

static void the_error_strategy_never_waits(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__queue_opts){.capacity = 2, .overflow = SL__QUEUE_ERROR});
	push_range(f, 1, 2);
	assert_int_equal(sl__queue_push(f->q, ITEM(3), 1), SL_EFULL);
	assert_int_equal(sl__queue_push_timed(f->q, ITEM(3), 1, 1000), SL_EFULL);
	assert_int_equal(stats_of(f).refused, 2);
	expect_range(f, 1, 2);
}

static void an_item_above_the_byte_bound_is_refused(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__queue_opts){.capacity = 10, .max_bytes = 100});
	assert_int_equal(sl__queue_push(f->q, ITEM(1), 101), SL_ETOOBIG);
	assert_int_equal(sl__queue_push(f->q, ITEM(1), SIZE_MAX), SL_ETOOBIG);
	struct sl__queue_item items[3] = {
		{.ptr = ITEM(1), .bytes = 10}, {.ptr = ITEM(2), .bytes = 101}, {.ptr = ITEM(3), .bytes = 1}};
	size_t pushed;
	assert_int_equal(sl__queue_push_many(f->q, items, 3, SL_UNLIMITED, &pushed), SL_ETOOBIG);
	assert_int_equal(pushed, 1);
	assert_int_equal(sl__queue_push(f->q, ITEM(2), 90), 0);
	assert_int_equal(sl__queue_try_push(f->q, ITEM(3), 1), SL_EFULL);
	expect_range(f, 1, 2);
}

/* ---- drop_oldest ---- */

static void the_oldest_are_dropped_in_order_and_reported_on_the_pushers_thread(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__queue_opts){.capacity = 3, .overflow = SL__QUEUE_DROP_OLDEST, .on_drop = on_drop});
	push_range(f, 1, 5);
	assert_int_equal(f->n_dropped, 2);
	assert_int_equal(f->dropped[0], 1);
	assert_int_equal(f->dropped[1], 2);
	assert_true(pthread_equal(f->dropper, pthread_self()));
	assert_int_equal(stats_of(f).dropped, 2);
	expect_range(f, 3, 5);
}

static void a_big_item_displaces_as_many_as_it_needs(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__queue_opts){
			.capacity = 200, .max_bytes = 100, .overflow = SL__QUEUE_DROP_OLDEST, .on_drop = on_drop});
	push_range(f, 1, 100);
	assert_int_equal(sl__queue_push(f->q, ITEM(101), 90), 0);
	assert_int_equal(f->n_dropped, 90);
	for (uintptr_t i = 0; i < 90; i++)
		assert_int_equal(f->dropped[i], i + 1);
	assert_int_equal(stats_of(f).bytes, 100);
	expect_range(f, 91, 101);
}

static void a_push_of_more_than_the_capacity_keeps_the_newest(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__queue_opts){.capacity = 5, .overflow = SL__QUEUE_DROP_OLDEST, .on_drop = on_drop});
	struct sl__queue_item items[100];
	size_t pushed;
	for (uintptr_t i = 0; i < 100; i++)
		items[i] = (struct sl__queue_item){.ptr = ITEM(i + 1), .bytes = 1};
	assert_int_equal(sl__queue_push_many(f->q, items, 100, SL_UNLIMITED, &pushed), 0);
	assert_int_equal(pushed, 100);
	assert_int_equal(f->n_dropped, 95);
	assert_int_equal(f->dropped[94], 95);
	expect_range(f, 96, 100);
}

/* ---- marks ---- */

static void each_crossing_of_a_mark_is_reported_once(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__queue_opts){.capacity = 10, .on_high = on_high, .on_low = on_low}); /* 8 and 5 */
	push_range(f, 1, 7);
	assert_false(stats_of(f).above_high);
	push_range(f, 8, 10);
	await_marks(f, 1);
	expect_range(f, 1, 4); /* 6 left: still above */
	push_range(f, 11, 14); /* and up again: no second HIGH */
	assert_true(stats_of(f).above_high);
	expect_range(f, 5, 9); /* 5 left: low */
	await_marks(f, 2);
	expect_range(f, 10, 14);
	push_range(f, 15, 21); /* 7: below the high mark, nothing to report */
	expect_range(f, 15, 21);
	push_range(f, 22, 29);
	await_marks(f, 3);
	assert_int_equal(stats_of(f).crossings, 3);
	sl__queue_free(f->q);
	f->q = NULL;
	assert_string_equal(f->marks, "HLH");
}

/* What a queue takes for a mark that is not given, and the edges of those that are. */
static void marks_that_are_not_given_follow_the_capacity_and_the_other_one(void **state)
{
	static const struct {
		size_t capacity;
		int64_t high_watermark, low_watermark;
		size_t high, low; /* at which depth they are crossed */
	} rows[] = {
		{1, 0, 0, 1, 0},  {2, 0, 0, 2, 1},  {4, 0, 0, 4, 2},        {5, 0, 0, 4, 2},    {9, 0, 0, 8, 4},
		{10, 0, 0, 8, 5}, {11, 0, 0, 9, 5}, {10, 10, 0, 10, 5},     {10, 6, 0, 6, 5},   {10, 5, 0, 5, 4},
		{10, 1, 0, 1, 0}, {10, 0, 7, 8, 7}, {10, 0, SL_NONE, 8, 0}, {10, 10, 9, 10, 9}, {10, 1, SL_NONE, 1, 0},
	};
	for (size_t i = 0; i < SL_COUNT(rows); i++) {
		struct fixture *f = *state;
		make(f, (struct sl__queue_opts){.capacity = rows[i].capacity,
						.high_watermark = rows[i].high_watermark,
						.low_watermark = rows[i].low_watermark,
						.on_high = on_high,
						.on_low = on_low});
		for (uintptr_t depth = 1; depth <= rows[i].capacity; depth++) {
			push_range(f, depth, depth);
			assert_int_equal(stats_of(f).above_high, depth >= rows[i].high);
		}
		for (size_t depth = rows[i].capacity; depth-- > 0;) {
			struct sl__queue_item item;
			assert_int_equal(sl__queue_take(f->q, &item, 1), 1);
			assert_int_equal(stats_of(f).above_high, depth > rows[i].low);
		}
		(void)tear_down(state);
		(void)set_up(state);
	}
}

static void the_marks_also_watch_the_bytes(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__queue_opts){.capacity = 1000, .max_bytes = 100, .on_high = on_high, .on_low = on_low});
	assert_int_equal(sl__queue_push(f->q, ITEM(1), 79), 0);
	assert_int_equal(stats_of(f).crossings, 0);
	assert_int_equal(sl__queue_push(f->q, ITEM(2), 1), 0);
	await_marks(f, 1);
	assert_int_equal(sl__queue_push(f->q, ITEM(3), 20), 0);
	expect_range(f, 1, 1);
	await_marks(f, 2);
	assert_string_equal(f->marks, "HL");
}

static void *free_main(void *arg)
{
	struct fixture *f = arg;
	pthread_mutex_lock(&f->mu);
	f->freeing = true;
	pthread_cond_broadcast(&f->changed);
	pthread_mutex_unlock(&f->mu);
	sl__queue_free(f->q);
	return NULL;
}

static void a_slow_callback_delays_the_others_and_none_is_merged_or_lost_in_the_end(void **state)
{
	struct fixture *f = *state;
	pthread_t freer;
	make(f, (struct sl__queue_opts){.capacity = 10, .on_high = on_high, .on_low = on_low});
	f->hold = true;
	for (uintptr_t i = 0; i < 5; i++) {
		push_range(f, i * 8 + 1, i * 8 + 8);
		if (i == 0)
			await_marks(f, 1);
		expect_range(f, i * 8 + 1, i * 8 + 8);
	}
	assert_int_equal(f->n_marks, 1);
	/* Free while nine are pending. */
	assert_int_equal(pthread_create(&freer, NULL, free_main, f), 0);
	pthread_mutex_lock(&f->mu);
	while (!f->freeing)
		pthread_cond_wait(&f->changed, &f->mu);
	pthread_mutex_unlock(&f->mu);
	for (int i = 0; i < 100; i++)
		sched_yield();
	pthread_mutex_lock(&f->mu);
	f->hold = false;
	pthread_cond_broadcast(&f->changed);
	pthread_mutex_unlock(&f->mu);
	pthread_join(freer, NULL);
	f->q = NULL;
	assert_string_equal(f->marks, "HLHLHLHLHL");
}

static void a_callback_may_push_into_the_full_queue(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__queue_opts){.capacity = 10, .high_watermark = 10, .on_high = on_high, .on_low = on_low});
	f->push_in_high = 5;
	push_range(f, 1, 10);
	while (stats_of(f).blocked_pushers == 0) /* the notifier */
		sched_yield();
	struct sl__queue_item out[15];
	size_t got = 0, n;
	while (got < 15) {
		assert_int_equal(sl__queue_pop(f->q, out + got, 15 - got, 0, SL_UNLIMITED, &n), 0);
		got += n;
	}
	await_marks(f, 2);
	assert_int_equal(f->failed_pushes, 0);
	assert_int_equal((uintptr_t)out[14].ptr, 1004);
}

static void a_drop_oldest_queue_stays_above_while_it_overflows(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__queue_opts){
			.capacity = 10, .overflow = SL__QUEUE_DROP_OLDEST, .on_high = on_high, .on_low = on_low});
	push_range(f, 1, 100);
	assert_int_equal(stats_of(f).crossings, 1);
	expect_range(f, 91, 100);
	await_marks(f, 2);
	assert_string_equal(f->marks, "HL");
}

/* ---- when a batch closes ---- */

static void a_full_batch_is_taken_at_once_even_by_one_who_lingers(void **state)
{
	struct fixture *f = *state;
	struct call c;
	make(f, (struct sl__queue_opts){.capacity = 100});
	start_pop(f, &c, 5, 250, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 1);
	push_range(f, 1, 5);
	finish(&c, 0, 5);
}

static void one_who_does_not_linger_takes_the_first_item_at_once(void **state)
{
	struct fixture *f = *state;
	struct call c;
	make(f, (struct sl__queue_opts){.capacity = 100});
	start_pop(f, &c, 5, 0, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 1);
	push_range(f, 1, 1);
	finish(&c, 0, 1);
}

static void a_batch_closes_when_its_oldest_item_is_old_enough(void **state)
{
	struct fixture *f = *state;
	struct call c;
	make(f, (struct sl__queue_opts){.capacity = 100});
	start_pop(f, &c, 5, 250, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 1);
	vclock_advance_ms(&f->clock, 1000); /* an empty queue has no age */
	push_range(f, 1, 1);
	vclock_advance_ms(&f->clock, 100);
	push_range(f, 2, 2);
	vclock_advance_ms(&f->clock, 149);
	vclock_await_waiters(&f->clock, 1);
	assert_int_equal(c.rc, 99);
	vclock_advance_ms(&f->clock, 1);
	finish(&c, 0, 2);
	/* Who comes late finds it closed already. */
	push_range(f, 3, 3);
	vclock_advance_ms(&f->clock, 250);
	start_pop(f, &c, 5, 250, SL_UNLIMITED);
	finish(&c, 0, 1);
}

/* Move the clock when everybody sleeps: n threads that wait, of which one may be about to arm its timer. */
static void advance_when_asleep(struct fixture *f, int n, int64_t ms)
{
	vclock_await_waiters(&f->clock, n);
	vclock_advance_ms(&f->clock, ms);
}

static void the_shortest_linger_decides_and_only_its_popper_wakes(void **state)
{
	struct fixture *f = *state;
	struct call slow, fast;
	make(f, (struct sl__queue_opts){.capacity = 100});
	start_pop(f, &slow, 5, 250, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 1);
	start_pop(f, &fast, 5, 10, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 2);
	push_range(f, 1, 1);
	advance_when_asleep(f, 2, 10);
	finish(&fast, 0, 1);
	assert_int_equal(slow.rc, 99);
	push_range(f, 2, 3);
	advance_when_asleep(f, 1, 250);
	finish(&slow, 0, 2);
}

static void a_popper_left_behind_takes_over_the_timer(void **state)
{
	struct fixture *f = *state;
	struct call a, b;
	make(f, (struct sl__queue_opts){.capacity = 100});
	start_pop(f, &a, 5, 250, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 1);
	start_pop(f, &b, 5, 250, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 2);
	struct sl__queue_item items[7] = {{0}};
	size_t pushed;
	assert_int_equal(sl__queue_push_many(f->q, items, 7, 0, &pushed), 0);
	/* One takes five; two items are left to the other's timer. */
	for (;;) {
		struct sl__queue_stats s = stats_of(f);
		if (s.popped == 5 && s.waiting_poppers == 1)
			break;
		sched_yield();
	}
	advance_when_asleep(f, 1, 250);
	pthread_join(a.thread, NULL);
	pthread_join(b.thread, NULL);
	assert_int_equal(a.rc, 0);
	assert_int_equal(b.rc, 0);
	assert_int_equal(a.moved + b.moved, 7);
	assert_true(a.moved == 5 || b.moved == 5);
}

static void a_pop_ends_at_its_timeout_with_what_is_there(void **state)
{
	struct fixture *f = *state;
	struct call c;
	make(f, (struct sl__queue_opts){.capacity = 100});
	start_pop(f, &c, 5, SL_UNLIMITED, 30);
	vclock_await_waiters(&f->clock, 1);
	push_range(f, 1, 2);
	vclock_advance_ms(&f->clock, 30);
	finish(&c, 0, 2);
	start_pop(f, &c, 5, 0, 30);
	vclock_await_waiters(&f->clock, 1);
	vclock_advance_ms(&f->clock, 30);
	finish(&c, SL_ETIMEDOUT, 0);
	size_t n;
	assert_int_equal(sl__queue_pop(f->q, c.out, 5, 0, 0, &n), SL_ETIMEDOUT);
}

static void a_batch_bigger_than_the_queue_closes_when_the_queue_is_full(void **state)
{
	struct fixture *f = *state;
	struct call c;
	make(f, (struct sl__queue_opts){.capacity = 3, .overflow = SL__QUEUE_ERROR});
	start_pop(f, &c, 10, SL_UNLIMITED, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 1);
	push_range(f, 1, 3);
	finish(&c, 0, 3);
}

static void a_push_without_room_closes_the_batch(void **state)
{
	struct fixture *f = *state;
	struct call popper, pusher;
	make(f, (struct sl__queue_opts){.capacity = 100, .max_bytes = 100});
	start_pop(f, &popper, 50, SL_UNLIMITED, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 1);
	assert_int_equal(sl__queue_push(f->q, ITEM(1), 60), 0);
	start_push(f, &pusher, 2, 1, 60, SL_UNLIMITED);
	finish(&popper, 0, 1);
	finish(&pusher, 0, 1);
	/* A try that is refused does the same. */
	start_pop(f, &popper, 50, SL_UNLIMITED, SL_UNLIMITED);
	assert_int_equal(sl__queue_try_push(f->q, ITEM(3), 60), SL_EFULL);
	finish(&popper, 0, 1);
}

static void a_flush_closes_the_batch_but_not_the_next_one(void **state)
{
	struct fixture *f = *state;
	struct call c;
	make(f, (struct sl__queue_opts){.capacity = 100});
	push_range(f, 1, 3);
	start_pop(f, &c, 50, SL_UNLIMITED, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 1);
	sl__queue_flush(f->q);
	finish(&c, 0, 3);
	push_range(f, 4, 4);
	start_pop(f, &c, 50, SL_UNLIMITED, 5);
	advance_when_asleep(f, 1, 4);
	assert_int_equal(c.rc, 99);
	vclock_advance_ms(&f->clock, 1);
	finish(&c, 0, 1);
}

static void idle_poppers_and_an_idle_notifier_sleep_without_a_deadline(void **state)
{
	struct fixture *f = *state;
	struct call c[3];
	make(f, (struct sl__queue_opts){.capacity = 100, .on_high = on_high});
	for (int i = 0; i < 3; i++)
		start_pop(f, &c[i], 50, 250, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 4);
	assert_int_equal(vclock_advance_to_next(&f->clock), 0);
	sl__queue_close(f->q, SL__QUEUE_DRAIN);
	for (int i = 0; i < 3; i++)
		finish(&c[i], SL_ECLOSED, 0);
}

/* ---- the end ---- */

static void a_draining_queue_gives_out_the_rest_at_once_and_takes_nothing(void **state)
{
	struct fixture *f = *state;
	struct call popper;
	make(f, (struct sl__queue_opts){.capacity = 100});
	push_range(f, 1, 7);
	start_pop(f, &popper, 50, SL_UNLIMITED, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 1);
	sl__queue_close(f->q, SL__QUEUE_DRAIN);
	finish(&popper, 0, 7);
	assert_int_equal(sl__queue_push(f->q, ITEM(8), 1), SL_ECLOSED);
	size_t n;
	assert_int_equal(sl__queue_pop(f->q, popper.out, 50, 250, SL_UNLIMITED, &n), SL_ECLOSED);
}

static void closing_gives_blocked_pushers_their_items_back(void **state)
{
	struct fixture *f = *state;
	enum { N = 20 };
	static struct call c[N];
	make(f, (struct sl__queue_opts){.capacity = 3});
	start_push(f, &c[0], 1, 5, 1, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 1);
	for (int i = 1; i < N; i++)
		start_push(f, &c[i], 6, 2, 1, 1000);
	vclock_await_waiters(&f->clock, N);
	sl__queue_close(f->q, SL__QUEUE_DRAIN);
	expect_range(f, 1, 3); /* making room after the end lets no pusher in */
	finish(&c[0], SL_ECLOSED, 3);
	for (int i = 1; i < N; i++)
		finish(&c[i], SL_ECLOSED, 0);
	assert_int_equal(stats_of(f).refused, 2 + 2 * (N - 1));
	assert_int_equal(stats_of(f).depth, 0);
}

static void taking_back_stops_the_poppers_and_keeps_the_rest_for_the_caller(void **state)
{
	struct fixture *f = *state;
	struct call popper;
	make(f, (struct sl__queue_opts){.capacity = 100, .on_high = on_high, .on_low = on_low});
	push_range(f, 1, 90);
	sl__queue_close(f->q, SL__QUEUE_DRAIN);
	expect_range(f, 1, 10);
	sl__queue_close(f->q, SL__QUEUE_TAKE_BACK);
	sl__queue_close(f->q, SL__QUEUE_DRAIN); /* does not go back */
	start_pop(f, &popper, 50, 0, SL_UNLIMITED);
	finish(&popper, SL_ECLOSED, 0);
	struct sl__queue_item out[100];
	assert_int_equal(sl__queue_take(f->q, out, 100), 80);
	assert_int_equal((uintptr_t)out[79].ptr, 90);
	assert_int_equal(sl__queue_take(f->q, out, 100), 0);
	assert_int_equal(stats_of(f).taken, 80);
	await_marks(f, 2);
	assert_string_equal(f->marks, "HL");
}

static void any_number_of_sleepers_is_woken(void **state)
{
	struct fixture *f = *state;
	enum { N = 50 };
	static struct call pushers[N], poppers[N];
	make(f, (struct sl__queue_opts){.capacity = 1});
	push_range(f, 1, 1);
	for (int i = 0; i < N; i++)
		start_push(f, &pushers[i], 2 + (uintptr_t)i, 1, 1, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, N);
	for (int i = 0; i <= N; i++) {
		size_t n;
		assert_int_equal(sl__queue_pop(f->q, poppers[0].out, 1, 0, SL_UNLIMITED, &n), 0);
	}
	for (int i = 0; i < N; i++)
		finish(&pushers[i], 0, 1);
	for (int i = 0; i < N; i++)
		start_pop(f, &poppers[i], 1, 0, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, N);
	for (int i = 0; i < N; i++)
		assert_int_equal(sl__queue_push(f->q, ITEM(i), 1), 0);
	for (int i = 0; i < N; i++)
		finish(&poppers[i], 0, 1);
}

/* ---- construction ---- */

static void a_bad_option_is_refused_by_name(void **state)
{
	(void)state;
	static const struct {
		struct sl__queue_opts opts;
		const char *name;
	} bad[] = {
		{{.capacity = 0}, "capacity"},
		{{.capacity = SIZE_MAX / 8}, "capacity"},
		{{.capacity = 10, .high_watermark = 11}, "high_watermark"},
		{{.capacity = 10, .high_watermark = -1}, "high_watermark"},
		{{.capacity = 10, .high_watermark = 5, .low_watermark = 5}, "low_watermark"},
		{{.capacity = 10, .low_watermark = 9}, "low_watermark"},
		{{.capacity = 10, .low_watermark = -2}, "low_watermark"},
		{{.capacity = 10, .overflow = (enum sl__queue_overflow)3}, "overflow"},
	};
	for (size_t i = 0; i < SL_COUNT(bad); i++) {
		sl__queue *q = NULL;
		struct sl_err err = SL_ERR_INIT;
		assert_int_equal(sl__queue_new(&q, &bad[i].opts, &err), SL_EINVAL);
		assert_non_null(strstr(err.msg, bad[i].name));
		assert_null(q);
	}
}

static void the_smallest_queue_has_marks_too(void **state)
{
	struct fixture *f = *state;
	make(f, (struct sl__queue_opts){.capacity = 1, .on_high = on_high, .on_low = on_low});
	push_range(f, 1, 1);
	expect_range(f, 1, 1);
	await_marks(f, 2);
	assert_string_equal(f->marks, "HL");
}

static int allocations_left;
static void *scarce_alloc(size_t n, void *ctx)
{
	(void)ctx;
	return allocations_left-- > 0 ? malloc(n) : NULL;
}
static void *scarce_resize(void *p, size_t n, void *ctx)
{
	(void)ctx;
	return allocations_left-- > 0 ? realloc(p, n) : NULL;
}
static void scarce_release(void *p, void *ctx)
{
	(void)ctx;
	free(p);
}

static void without_memory_nothing_is_made_and_nothing_leaks(void **state)
{
	(void)state;
	static const struct sl_mem scarce = {SL_MEM_VERSION, scarce_alloc, scarce_resize, scarce_release};
	struct sl_env env = {SL_ENV_INIT, .mem = &scarce};
	struct sl__queue_opts opts = {.env = &env, .capacity = 10, .on_high = on_high};
	int rc = SL_ENOMEM, n = 0;
	for (; rc == SL_ENOMEM; n++) {
		sl__queue *q = NULL;
		struct sl_err err = SL_ERR_INIT;
		allocations_left = n;
		rc = sl__queue_new(&q, &opts, &err);
		assert_true(rc == 0 || (rc == SL_ENOMEM && q == NULL && err.code == SL_ENOMEM));
		sl__queue_free(q);
	}
	assert_int_equal(rc, 0);
	assert_int_equal(n, 3); /* the queue, the ring, and a run that fails nowhere */
}

/* ---- many threads at once ---- */

enum { PRODUCERS = 4, CONSUMERS = 3 };

struct stress {
	sl__queue *q;
	enum sl__queue_overflow overflow;
	atomic_bool stop;
	atomic_uint_fast64_t accepted, sum_in, popped, dropped, sum_out;
	atomic_int high, low, bad_marks;
	uint64_t seed;
};

struct stress_thread {
	struct stress *s;
	uintptr_t id;
	pthread_t thread;
};

static uint64_t item_value(uintptr_t id, uint64_t seq)
{
	return (uint64_t)id << 48 | seq;
}

static void stress_high(void *ctx)
{
	struct stress *s = ctx;
	if (atomic_fetch_add(&s->high, 1) != atomic_load(&s->low))
		atomic_fetch_add(&s->bad_marks, 1);
}

static void stress_low(void *ctx)
{
	struct stress *s = ctx;
	if (atomic_fetch_add(&s->low, 1) + 1 != atomic_load(&s->high))
		atomic_fetch_add(&s->bad_marks, 1);
}

static void stress_drop(const struct sl__queue_item *item, SL_UNUSED uint64_t position, void *ctx)
{
	struct stress *s = ctx;
	atomic_fetch_add(&s->dropped, 1);
	atomic_fetch_add(&s->sum_out, (uintptr_t)item->ptr);
}

/* Singles, tries, timed and batches, with sizes from 0 to 40 bytes; some calls fail, and their items are not counted.
 */
static void *stress_produce(void *arg)
{
	struct stress_thread *t = arg;
	struct stress *s = t->s;
	struct sl__prng prng = {.s = s->seed * 100 + t->id};
	struct sl__queue_item items[40];
	uint64_t seq = 0, accepted = 0, sum = 0;
	while (!atomic_load(&s->stop)) {
		uint64_t r = sl__prng_next(&prng);
		size_t n = r % 3 == 0 ? r / 3 % 40 + 1 : 1, pushed = 0;
		int64_t timeout_ms = (r >> 20) % 4 == 0 ? 0 : (r >> 20) % 4 == 1 ? 1 : SL_UNLIMITED;
		for (size_t i = 0; i < n; i++)
			items[i] = (struct sl__queue_item){.ptr = ITEM(item_value(t->id, ++seq)),
							   .bytes = (r >> 30) % 41 & 63};
		int rc = sl__queue_push_many(s->q, items, n, timeout_ms, &pushed);
		for (size_t i = 0; i < pushed; i++)
			sum += (uintptr_t)items[i].ptr;
		accepted += pushed;
		if (rc == SL_ECLOSED)
			break;
	}
	atomic_fetch_add(&s->accepted, accepted);
	atomic_fetch_add(&s->sum_in, sum);
	return NULL;
}

/* Each consumer sees the items of one producer in their order. */
static void *stress_consume(void *arg)
{
	struct stress_thread *t = arg;
	struct stress *s = t->s;
	struct sl__prng prng = {.s = s->seed * 100 + 50 + t->id};
	struct sl__queue_item out[64];
	uint64_t last[PRODUCERS] = {0}, popped = 0, sum = 0;
	size_t n;
	for (;;) {
		uint64_t r = sl__prng_next(&prng);
		int64_t linger_ms = r % 3 == 0 ? 0 : r % 3 == 1 ? 1 : SL_UNLIMITED;
		int rc = sl__queue_pop(s->q, out, r / 3 % 64 + 1, linger_ms, (r >> 20) % 2 ? SL_UNLIMITED : 1, &n);
		if (rc == SL_ECLOSED)
			break;
		for (size_t i = 0; i < n; i++) {
			uint64_t v = (uintptr_t)out[i].ptr;
			if ((v & 0xFFFFFFFFFFFF) <= last[v >> 48])
				abort();
			last[v >> 48] = v & 0xFFFFFFFFFFFF;
			sum += v;
		}
		popped += n;
	}
	atomic_fetch_add(&s->popped, popped);
	atomic_fetch_add(&s->sum_out, sum);
	return NULL;
}

static uint64_t stress_round(struct fixture *f, uint64_t seed, int64_t for_ms)
{
	struct stress s = {.overflow = (enum sl__queue_overflow)(seed % 3), .seed = seed};
	struct sl__queue_opts opts = {.capacity = 100,
				      .max_bytes = 1500,
				      .overflow = s.overflow,
				      .on_high = stress_high,
				      .on_low = stress_low,
				      .on_drop = stress_drop,
				      .ctx = &s};
	assert_int_equal(sl__queue_new(&s.q, &opts, NULL), 0);
	struct stress_thread p[PRODUCERS], c[CONSUMERS];
	for (uintptr_t i = 0; i < PRODUCERS; i++) {
		p[i] = (struct stress_thread){.s = &s, .id = i};
		assert_int_equal(pthread_create(&p[i].thread, NULL, stress_produce, &p[i]), 0);
	}
	for (uintptr_t i = 0; i < CONSUMERS; i++) {
		c[i] = (struct stress_thread){.s = &s, .id = i};
		assert_int_equal(pthread_create(&c[i].thread, NULL, stress_consume, &c[i]), 0);
	}
	struct sl_env real;
	assert_int_equal(sl__env_init(&real, NULL, NULL), 0);
	struct sl__queue_stats stats;
	for (int64_t end = sl__deadline_ns(&real, for_ms); sl__mono_ns(&real) < end; sched_yield())
		sl__queue_stats(s.q, &stats);
	if (seed % 2)
		atomic_store(&s.stop, true);
	else /* close under their feet */
		sl__queue_close(s.q, seed % 4 ? SL__QUEUE_DRAIN : SL__QUEUE_TAKE_BACK);
	for (int i = 0; i < PRODUCERS; i++)
		pthread_join(p[i].thread, NULL);
	sl__queue_close(s.q, SL__QUEUE_DRAIN);
	for (int i = 0; i < CONSUMERS; i++)
		pthread_join(c[i].thread, NULL);
	struct sl__queue_item rest[100];
	size_t taken = sl__queue_take(s.q, rest, 100);
	for (size_t i = 0; i < taken; i++)
		s.sum_out += (uintptr_t)rest[i].ptr;
	sl__queue_stats(s.q, &stats);
	sl__queue_free(s.q);
	assert_int_equal(s.accepted, s.popped + s.dropped + taken);
	assert_int_equal(s.sum_in, s.sum_out);
	assert_int_equal(stats.pushed, s.accepted);
	assert_int_equal(stats.depth, 0);
	assert_int_equal(stats.bytes, 0);
	assert_int_equal(s.high + s.low, stats.crossings);
	assert_int_equal(s.high, s.low); /* it ended empty */
	assert_int_equal(s.bad_marks, 0);
	f->n_marks += s.high + s.low;
	return s.accepted;
}

static void every_item_of_many_threads_leaves_exactly_once(void **state)
{
	struct fixture *f = *state;
	int64_t budget_ms = (int64_t)(test_seconds(2) * 1000);
	struct sl_env real;
	assert_int_equal(sl__env_init(&real, NULL, NULL), 0);
	int64_t end = sl__deadline_ns(&real, budget_ms);
	uint64_t items = 0, rounds = 0;
	do
		items += stress_round(f, rounds++, 50);
	while (sl__mono_ns(&real) < end || rounds < 12);
	printf("# queue stress: %llu rounds, %llu items, %d crossings\n", (unsigned long long)rounds,
	       (unsigned long long)items, f->n_marks);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* ---- tags, places, interrupts ---- */

/* ---- reserved room ---- */

static const struct sl__queue_item three[3] = {
	{.ptr = ITEM(1), .bytes = 10}, {.ptr = ITEM(2), .bytes = 10}, {.ptr = ITEM(3), .bytes = 10}};

static void reserved_room_is_kept_from_others_until_it_is_used_or_given_back(void **state)
{
	struct fixture *f = *state;
	struct sl__queue_room room;
	make(f, (struct sl__queue_opts){.capacity = 3, .max_bytes = 100});
	assert_int_equal(sl__queue_reserve(f->q, three, 2, 0, &room), 0);
	assert_int_equal(room.n, 2);
	assert_int_equal(room.bytes, 20);
	assert_int_equal(stats_of(f).depth, 0);
	assert_int_equal(sl__queue_try_push(f->q, ITEM(9), 81), SL_EFULL); /* by bytes */
	assert_int_equal(sl__queue_try_push(f->q, ITEM(9), 80), 0);
	assert_int_equal(sl__queue_try_push(f->q, ITEM(10), 0), SL_EFULL); /* by number */
	assert_int_equal(sl__queue_push_reserved(f->q, three, 1, &room), 0);
	/* The other place is free again, with its bytes. */
	assert_int_equal(sl__queue_try_push(f->q, ITEM(2), 11), SL_EFULL);
	assert_int_equal(sl__queue_try_push(f->q, ITEM(2), 10), 0);
	expect_range(f, 9, 9);
	expect_range(f, 1, 2);
}

static void what_has_room_for_a_part_reserves_that_part(void **state)
{
	struct fixture *f = *state;
	struct sl__queue_room room, none;
	make(f, (struct sl__queue_opts){.capacity = 10, .max_bytes = 25});
	assert_int_equal(sl__queue_reserve(f->q, three, 3, SL_UNLIMITED, &room), 0);
	assert_int_equal(room.n, 2);
	assert_int_equal(sl__queue_reserve(f->q, three, 1, 0, &none), SL_EFULL);
	assert_int_equal(none.n, 0);
	assert_int_equal(sl__queue_push_reserved(f->q, three, 2, &room), 0);
	expect_range(f, 1, 2);
	const struct sl__queue_item big = {.ptr = ITEM(1), .bytes = 26};
	assert_int_equal(sl__queue_reserve(f->q, &big, 1, SL_UNLIMITED, &none), SL_ETOOBIG);
}

struct reservation {
	struct fixture *f;
	pthread_t thread;
	int64_t timeout_ms;
	int rc;
	struct sl__queue_room room;
};

static void *reserve_main(void *arg)
{
	struct reservation *r = arg;
	r->rc = sl__queue_reserve(r->f->q, three, 2, r->timeout_ms, &r->room);
	return NULL;
}

static void start_reserve(struct fixture *f, struct reservation *r, int64_t timeout_ms)
{
	*r = (struct reservation){.f = f, .timeout_ms = timeout_ms, .rc = 99};
	assert_int_equal(pthread_create(&r->thread, NULL, reserve_main, r), 0);
}

static void a_reservation_waits_in_the_line_of_pushers(void **state)
{
	struct fixture *f = *state;
	struct reservation r;
	struct call first, last;
	make(f, (struct sl__queue_opts){.capacity = 1});
	push_range(f, 1, 1);
	start_push(f, &first, 2, 1, 1, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 1);
	start_reserve(f, &r, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 2);
	start_push(f, &last, 3, 1, 1, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 3);
	expect_range(f, 1, 1);
	expect_range(f, 2, 2);
	finish(&first, 0, 1);
	pthread_join(r.thread, NULL);
	assert_int_equal(r.rc, 0);
	assert_int_equal(r.room.n, 1); /* it does not wait for more */
	assert_int_equal(stats_of(f).blocked_pushers, 1);
	/* What is given back goes to the next in line. */
	assert_int_equal(sl__queue_push_reserved(f->q, three, 0, &r.room), 0);
	finish(&last, 0, 1);
	expect_range(f, 3, 3);
}

static void a_reservation_ends_at_its_deadline_and_at_the_close(void **state)
{
	struct fixture *f = *state;
	struct reservation r;
	struct sl__queue_room room;
	make(f, (struct sl__queue_opts){.capacity = 2});
	push_range(f, 1, 1);
	assert_int_equal(sl__queue_reserve(f->q, three, 3, 0, &room), 0);
	start_reserve(f, &r, 10);
	vclock_await_waiters(&f->clock, 1);
	vclock_advance_ms(&f->clock, 10);
	pthread_join(r.thread, NULL);
	assert_int_equal(r.rc, SL_ETIMEDOUT);
	start_reserve(f, &r, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 1);
	sl__queue_close(f->q, SL__QUEUE_DRAIN);
	pthread_join(r.thread, NULL);
	assert_int_equal(r.rc, SL_ECLOSED);
	assert_int_equal(sl__queue_push_reserved(f->q, three, 1, &room), SL_ECLOSED);
	assert_int_equal(stats_of(f).depth, 1);
	assert_int_equal(sl__queue_reserve(f->q, three, 1, SL_UNLIMITED, &room), SL_ECLOSED);
}

static void what_comes_while_pushers_are_blocked_is_due_at_once(void **state)
{
	struct fixture *f = *state;
	struct sl__queue_room room;
	struct call blocked, popper;
	make(f, (struct sl__queue_opts){.capacity = 2});
	assert_int_equal(sl__queue_reserve(f->q, three, 2, 0, &room), 0);
	start_push(f, &blocked, 3, 1, 1, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 1);
	start_pop(f, &popper, 10, SL_UNLIMITED, SL_UNLIMITED);
	vclock_await_waiters(&f->clock, 2);
	assert_int_equal(sl__queue_push_reserved(f->q, three, 2, &room), 0);
	finish(&popper, 0, 2);
	finish(&blocked, 0, 1);
	expect_range(f, 3, 3);
}

static void an_item_keeps_its_tag_and_reports_its_place(void **state)
{
	struct fixture *f = *state;
	struct sl__queue_item in[5], out[5];
	size_t n;
	uint64_t first = 99;
	make(f, (struct sl__queue_opts){.capacity = 3, .overflow = SL__QUEUE_DROP_OLDEST, .on_drop = on_drop});
	for (uint8_t i = 0; i < 5; i++)
		in[i] = (struct sl__queue_item){.ptr = ITEM(i + 1), .bytes = 7, .tag = i};
	assert_int_equal(sl__queue_push_many(f->q, in, 5, 0, &n), 0);
	assert_int_equal(f->n_dropped, 2);
	assert_int_equal(f->last_drop_position, 1);
	assert_int_equal(sl__queue_pop_at(f->q, out, 2, 0, 0, &n, &first), 0);
	assert_int_equal(n, 2);
	assert_int_equal(first, 2);
	assert_int_equal(out[0].tag, 2);
	assert_int_equal(out[0].bytes, 7);
	assert_int_equal(out[1].tag, 3);
	assert_int_equal(sl__queue_take_at(f->q, out, 5, &first), 1);
	assert_int_equal(first, 4);
	assert_int_equal(out[0].tag, 4);
}

static void *waiting_push_main(void *arg)
{
	struct call *c = arg;
	size_t pushed;
	c->rc = sl__queue_push_waiting(c->f->q, c->items, c->n, c->timeout_ms, &pushed);
	return NULL;
}

static void a_waiting_push_waits_also_where_others_drop(void **state)
{
	struct fixture *f = *state;
	struct call c = {.f = f, .n = 1, .timeout_ms = SL_UNLIMITED, .rc = 99};
	c.items[0] = (struct sl__queue_item){.ptr = ITEM(3), .bytes = 1};
	make(f, (struct sl__queue_opts){.capacity = 2, .overflow = SL__QUEUE_DROP_OLDEST, .on_drop = on_drop});
	push_range(f, 1, 2);
	assert_int_equal(pthread_create(&c.thread, NULL, waiting_push_main, &c), 0);
	vclock_await_waiters(&f->clock, 1);
	expect_range(f, 1, 2);
	pthread_join(c.thread, NULL);
	assert_int_equal(c.rc, 0);
	assert_int_equal(f->n_dropped, 0);
	expect_range(f, 3, 3);
}

struct popper {
	struct fixture *f;
	int64_t linger_ms;
	int rc;
	size_t n;
	pthread_t thread;
};

static void *popper_main(void *arg)
{
	struct popper *p = arg;
	struct sl__queue_item out[8];
	p->rc = sl__queue_pop(p->f->q, out, 8, p->linger_ms, SL_UNLIMITED, &p->n);
	return NULL;
}

static void an_interrupt_ends_one_wait_with_nothing(void **state)
{
	struct fixture *f = *state;
	struct popper p[2] = {{.f = f}, {.f = f, .linger_ms = 50}};
	make(f, (struct sl__queue_opts){.capacity = 8});
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pthread_create(&p[i].thread, NULL, popper_main, &p[i]), 0);
		vclock_await_waiters(&f->clock, i + 1);
	}
	sl__queue_interrupt(f->q);
	pthread_join(p[0].thread, NULL);
	assert_int_equal(p[0].rc, SL_EAGAIN);
	assert_int_equal(p[0].n, 0);
	/* The other one waits on, and keeps the time of what comes. */
	push_range(f, 1, 2);
	vclock_await_waiters(&f->clock, 1);
	vclock_advance_ms(&f->clock, 50);
	pthread_join(p[1].thread, NULL);
	assert_int_equal(p[1].rc, 0);
	assert_int_equal(p[1].n, 2);
}

static void an_interrupt_without_a_waiter_meets_the_next_one(void **state)
{
	struct fixture *f = *state;
	struct sl__queue_item out[8];
	size_t n;
	make(f, (struct sl__queue_opts){.capacity = 8});
	sl__queue_interrupt(f->q);
	sl__queue_interrupt(f->q); /* they are one */
	push_range(f, 1, 1);
	assert_int_equal(sl__queue_pop(f->q, out, 8, 0, SL_UNLIMITED, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(sl__queue_pop(f->q, out, 8, 0, SL_UNLIMITED, &n), SL_EAGAIN);
	assert_int_equal(n, 0);
	assert_int_equal(sl__queue_pop(f->q, out, 8, 0, 0, &n), SL_ETIMEDOUT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(items_leave_in_the_order_in_which_they_came),
		TEST(depth_bytes_and_the_oldest_age_are_reported),
		TEST(a_storm_of_pushes_never_makes_an_item_look_younger_than_it_is),
		TEST(a_full_queue_blocks_until_there_is_room),
		TEST(blocked_pushers_are_served_in_the_order_of_their_arrival),
		TEST(any_number_of_pushers_may_be_blocked),
		TEST(no_smaller_item_overtakes_a_blocked_pusher),
		TEST(when_the_first_blocked_pusher_gives_up_the_next_goes_in),
		TEST(a_push_of_more_than_the_capacity_goes_in_in_pieces),
		TEST(a_timed_push_gives_up_at_its_deadline_and_reports_how_much_went_in),
		TEST(a_try_on_a_full_queue_fails_at_once),
		TEST(the_error_strategy_never_waits),
		TEST(an_item_above_the_byte_bound_is_refused),
		TEST(the_oldest_are_dropped_in_order_and_reported_on_the_pushers_thread),
		TEST(a_big_item_displaces_as_many_as_it_needs),
		TEST(a_push_of_more_than_the_capacity_keeps_the_newest),
		TEST(each_crossing_of_a_mark_is_reported_once),
		TEST(marks_that_are_not_given_follow_the_capacity_and_the_other_one),
		TEST(the_marks_also_watch_the_bytes),
		TEST(a_slow_callback_delays_the_others_and_none_is_merged_or_lost_in_the_end),
		TEST(a_callback_may_push_into_the_full_queue),
		TEST(a_drop_oldest_queue_stays_above_while_it_overflows),
		TEST(a_full_batch_is_taken_at_once_even_by_one_who_lingers),
		TEST(one_who_does_not_linger_takes_the_first_item_at_once),
		TEST(a_batch_closes_when_its_oldest_item_is_old_enough),
		TEST(the_shortest_linger_decides_and_only_its_popper_wakes),
		TEST(a_popper_left_behind_takes_over_the_timer),
		TEST(a_pop_ends_at_its_timeout_with_what_is_there),
		TEST(a_batch_bigger_than_the_queue_closes_when_the_queue_is_full),
		TEST(a_push_without_room_closes_the_batch),
		TEST(a_flush_closes_the_batch_but_not_the_next_one),
		TEST(idle_poppers_and_an_idle_notifier_sleep_without_a_deadline),
		TEST(a_draining_queue_gives_out_the_rest_at_once_and_takes_nothing),
		TEST(closing_gives_blocked_pushers_their_items_back),
		TEST(taking_back_stops_the_poppers_and_keeps_the_rest_for_the_caller),
		TEST(any_number_of_sleepers_is_woken),
		TEST(a_bad_option_is_refused_by_name),
		TEST(the_smallest_queue_has_marks_too),
		TEST(without_memory_nothing_is_made_and_nothing_leaks),
		TEST(every_item_of_many_threads_leaves_exactly_once),
		TEST(reserved_room_is_kept_from_others_until_it_is_used_or_given_back),
		TEST(what_has_room_for_a_part_reserves_that_part),
		TEST(a_reservation_waits_in_the_line_of_pushers),
		TEST(a_reservation_ends_at_its_deadline_and_at_the_close),
		TEST(what_comes_while_pushers_are_blocked_is_due_at_once),
		TEST(an_item_keeps_its_tag_and_reports_its_place),
		TEST(a_waiting_push_waits_also_where_others_drop),
		TEST(an_interrupt_ends_one_wait_with_nothing),
		TEST(an_interrupt_without_a_waiter_meets_the_next_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
