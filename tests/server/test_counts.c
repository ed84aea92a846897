/* SPDX-License-Identifier: Apache-2.0 */
/* Callers who ask for counts share them, and each sees what it has changed. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/api/counts.h"

#define ASKERS 8

/* A store that counts when it is let. */
struct store {
	pthread_mutex_t mu;
	pthread_cond_t changed;
	struct srv_counts *counts;
	int64_t now_ms;
	uint64_t jobs;
	int calls, at_work, most_at_work;
	bool held; /* a count waits */
	int fails; /* with this code */
};

static int count(sl_job_count_fn *fn, void *fn_ctx, struct sl_err *err, void *ctx)
{
	struct store *s = ctx;
	(void)pthread_mutex_lock(&s->mu);
	struct sl_job_count c = {.type = "t", .status = SL_JOB_PENDING, .count = s->jobs};
	int fails = s->fails;
	s->calls++;
	s->at_work++;
	if (s->at_work > s->most_at_work)
		s->most_at_work = s->at_work;
	(void)pthread_cond_broadcast(&s->changed);
	while (s->held)
		(void)pthread_cond_wait(&s->changed, &s->mu);
	s->at_work--;
	(void)pthread_mutex_unlock(&s->mu);
	return fails != 0 ? sl_err_set(err, fails, "no luck") : fn(&c, fn_ctx);
}

static int64_t now_ms(void *ctx)
{
	struct store *s = ctx;
	(void)pthread_mutex_lock(&s->mu);
	int64_t now = s->now_ms;
	(void)pthread_mutex_unlock(&s->mu);
	return now;
}

static int set_up(void **state)
{
	static struct store s;
	struct sl_err err = SL_ERR_INIT;
	s = (struct store){.mu = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .now_ms = 1000};
	*state = &s;
	return srv_counts_new(&s.counts, &(struct srv_counts_source){count, now_ms, &s}, &err);
}

static int tear_down(void **state)
{
	srv_counts_free(((struct store *)*state)->counts);
	return 0;
}

static int note(const struct sl_job_count *c, void *ctx)
{
	*(uint64_t *)ctx += c->count;
	return 0;
}

static uint64_t ask(struct store *s)
{
	struct sl_err err = SL_ERR_INIT;
	uint64_t n = 0;
	return srv_counts_each(s->counts, note, &n, &err) == 0 ? n : UINT64_MAX;
}

struct asker {
	pthread_t thread;
	struct store *store;
	uint64_t got;
};

static void *asks(void *arg)
{
	struct asker *a = arg;
	a->got = ask(a->store);
	return NULL;
}

static void hold(struct store *s, bool held)
{
	(void)pthread_mutex_lock(&s->mu);
	s->held = held;
	(void)pthread_cond_broadcast(&s->changed);
	(void)pthread_mutex_unlock(&s->mu);
}

static void begin(struct store *s, struct asker *a)
{
	*a = (struct asker){.store = s};
	assert_int_equal(pthread_create(&a->thread, NULL, asks, a), 0);
}

static void wait_for_calls(struct store *s, int calls)
{
	(void)pthread_mutex_lock(&s->mu);
	while (s->calls < calls)
		(void)pthread_cond_wait(&s->changed, &s->mu);
	(void)pthread_mutex_unlock(&s->mu);
}

static void one_who_asks_again_is_counted_for_again(void **state)
{
	struct store *s = *state;
	s->jobs = 3;
	assert_int_equal(ask(s), 3);
	s->jobs = 4;
	assert_int_equal(ask(s), 4);
	assert_int_equal(s->calls, 2);
}

static void those_who_ask_at_once_share_a_count_that_begins_after_they_asked(void **state)
{
	struct store *s = *state;
	struct asker first, others[ASKERS];
	s->jobs = 3;
	hold(s, true);
	begin(s, &first);
	wait_for_calls(s, 1);
	(void)pthread_mutex_lock(&s->mu);
	s->jobs = 5;
	(void)pthread_mutex_unlock(&s->mu);
	for (int i = 0; i < ASKERS; i++)
		begin(s, &others[i]);
	hold(s, false);
	(void)pthread_join(first.thread, NULL);
	for (int i = 0; i < ASKERS; i++) {
		(void)pthread_join(others[i].thread, NULL);
		assert_int_equal(others[i].got, 5);
	}
	assert_int_equal(first.got, 3);
	assert_int_equal(s->most_at_work, 1);
}

static void a_large_store_is_counted_once_a_second(void **state)
{
	struct store *s = *state;
	s->jobs = SRV_COUNTS_LARGE;
	assert_int_equal(ask(s), SRV_COUNTS_LARGE);
	s->jobs = SRV_COUNTS_LARGE + 1;
	s->now_ms += SRV_COUNTS_AGAIN_MS - 1;
	assert_int_equal(ask(s), SRV_COUNTS_LARGE);
	assert_int_equal(s->calls, 1);
	s->now_ms++;
	assert_int_equal(ask(s), SRV_COUNTS_LARGE + 1);
	assert_int_equal(s->calls, 2);
}

static void those_who_ask_while_a_large_store_is_counted_get_that_count(void **state)
{
	struct store *s = *state;
	struct asker first, others[ASKERS];
	s->jobs = SRV_COUNTS_LARGE;
	(void)ask(s);
	s->now_ms += SRV_COUNTS_AGAIN_MS;
	hold(s, true);
	begin(s, &first);
	wait_for_calls(s, 2);
	for (int i = 0; i < ASKERS; i++)
		begin(s, &others[i]);
	hold(s, false);
	(void)pthread_join(first.thread, NULL);
	for (int i = 0; i < ASKERS; i++)
		(void)pthread_join(others[i].thread, NULL);
	assert_int_equal(s->calls, 2);
}

static void what_was_counted_before_a_change_is_not_returned_after_it(void **state)
{
	struct store *s = *state;
	struct asker early;
	s->jobs = SRV_COUNTS_LARGE;
	(void)ask(s);
	s->jobs++;
	srv_counts_forget(s->counts);
	assert_int_equal(ask(s), SRV_COUNTS_LARGE + 1);
	/* Nor by a count that is under way when it happens. */
	s->now_ms += SRV_COUNTS_AGAIN_MS;
	hold(s, true);
	begin(s, &early);
	wait_for_calls(s, 3);
	(void)pthread_mutex_lock(&s->mu);
	s->jobs++;
	(void)pthread_mutex_unlock(&s->mu);
	srv_counts_forget(s->counts);
	hold(s, false);
	assert_int_equal(ask(s), SRV_COUNTS_LARGE + 2);
	(void)pthread_join(early.thread, NULL);
}

static void a_failure_is_reported_and_not_cached(void **state)
{
	struct store *s = *state;
	struct sl_err err = SL_ERR_INIT;
	uint64_t n = 0;
	s->fails = SL_EUNAVAIL;
	assert_int_equal(srv_counts_each(s->counts, note, &n, &err), SL_EUNAVAIL);
	assert_string_equal(err.msg, "no luck");
	s->fails = 0;
	s->jobs = 2;
	assert_int_equal(ask(s), 2);
}

static int stop(const struct sl_job_count *c, void *ctx)
{
	(void)c;
	(void)ctx;
	return 7;
}

static void a_callback_stops_the_telling_and_gives_its_result(void **state)
{
	struct store *s = *state;
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(srv_counts_each(s->counts, stop, NULL, &err), 7);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(one_who_asks_again_is_counted_for_again),
		CASE(those_who_ask_at_once_share_a_count_that_begins_after_they_asked),
		CASE(a_large_store_is_counted_once_a_second),
		CASE(those_who_ask_while_a_large_store_is_counted_get_that_count),
		CASE(what_was_counted_before_a_change_is_not_returned_after_it),
		CASE(a_failure_is_reported_and_not_cached),
		CASE(a_callback_stops_the_telling_and_gives_its_result),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
