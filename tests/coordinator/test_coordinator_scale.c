/* SPDX-License-Identifier: Apache-2.0 */
/* The number of workers. */
#include <sched.h>

#include "coordinator/kit.h"

#define OPTS(...) ((struct sl_coordinator_opts){__VA_ARGS__})
#define MS ((int64_t)1000000)

static int64_t now_ms(struct kit *k)
{
	return k->clock.now_ns / MS;
}

/* Let time pass from deadline to deadline, and everybody do at each of them what is due then. */
static void pass_to_ms(struct kit *k, int64_t to)
{
	kit_settle(k);
	while (now_ms(k) < to) {
		vclock_advance_towards_ns(&k->clock, to * MS);
		kit_settle(k);
	}
}

static void pass_ms(struct kit *k, int64_t ms)
{
	pass_to_ms(k, now_ms(k) + ms);
}

/* The number of workers changes at this moment and not before. */
static void changes_at(struct kit *k, int64_t at, uint32_t from, uint32_t to)
{
	pass_to_ms(k, at - 1);
	assert_int_equal(kit_health(k).workers_alive, from);
	pass_to_ms(k, at);
	assert_int_equal(kit_health(k).workers_alive, to);
}

static void workers_are_added_one_by_one_under_pressure_and_leave_when_idle(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 1, .scaling.workers_min = 1, .scaling.workers_max = 3, .batch_size = 10,
			.capacity = 1000));
	assert_int_equal(kit_health(k).workers_alive, 1);
	kit_hold(k);
	kit_submit(k, 1, 500);
	kit_await_in_write(k, 1);
	int64_t begin = now_ms(k);
	changes_at(k, begin + 200, 1, 2); /* needed at one look, and at the next */
	kit_await_in_write(k, 2);
	changes_at(k, begin + 300, 2, 3);
	kit_await_in_write(k, 3);
	pass_ms(k, 1000);
	assert_int_equal(kit_health(k).workers_alive, 3); /* not above workers_max */
	kit_release_all(k);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	begin = now_ms(k);
	changes_at(k, begin + 5100, 3, 2); /* the next check finds no worker busy, and so it stays for 5 s */
	changes_at(k, begin + 10100, 2, 1);
	pass_ms(k, 12000);
	assert_int_equal(kit_health(k).workers_alive, 1); /* not below workers_min */
	pthread_mutex_lock(&k->mu);
	while (k->detached < 2)
		pthread_cond_wait(&k->changed, &k->mu);
	pthread_mutex_unlock(&k->mu);
	kit_submit(k, 501, 502);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	kit_finish(k, 0);
}

static void a_short_burst_adds_no_worker(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 1, .scaling.workers_min = 1, .scaling.workers_max = 3, .batch_size = 10));
	for (int i = 0; i < 5; i++) {
		kit_hold(k);
		kit_submit(k, 1, 100);
		pass_ms(k, 150); /* needed at one check, and not at the next */
		kit_release_all(k);
		assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
		pass_ms(k, 200);
	}
	assert_int_equal(kit_health(k).workers_alive, 1);
	kit_finish(k, 0);
}

static void an_old_item_is_pressure_too(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 1, .scaling.workers_min = 1, .scaling.workers_max = 2, .batch_size = 10,
			.flush_interval_ms = 50));
	kit_hold_first(k);
	kit_submit(k, 2, 2); /* far from a batch, and no worker takes it */
	int64_t begin = now_ms(k);
	changes_at(k, begin + 200, 1, 2); /* too old at one check, and at the next */
	kit_await_in_write(k, 2);
	kit_release_all(k);
	kit_finish(k, 0);
}

static void no_worker_is_added_while_the_breaker_is_not_closed(void **state)
{
	struct kit *k = *state;
	k->script = kit_fail_fatal;
	kit_new(k, OPTS(.workers = 1, .scaling.workers_min = 1, .scaling.workers_max = 3, .batch_size = 10));
	kit_submit(k, 1, 500);
	pass_ms(k, 20000);
	assert_int_equal(kit_health(k).workers_alive, 1);
	kit_set_script(k, NULL);
	while (sl_coordinator_flush(k->c, 0) != 0)
		(void)vclock_advance_to_next(&k->clock);
	kit_finish(k, 0);
}

static int throttle(struct kit *k, int number, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
		    struct sl_err *err)
{
	(void)k;
	(void)batch;
	(void)reply;
	return number == 1 ? kit_fail(err, SL_CLASS_THROTTLED) : 0;
}

static void no_worker_is_added_while_the_limiter_binds(void **state)
{
	struct kit *k = *state;
	k->script = throttle; /* once: three become one */
	kit_new(k, OPTS(.workers = 2, .scaling.workers_min = 2, .scaling.workers_max = 3, .batch_size = 1,
			.flush_interval_ms = SL_NONE, .retry.policy = {.first_ms = 1}));
	kit_submit(k, 1, 1);
	while (kit_health(k).retrying != 1)
		(void)sched_yield();
	vclock_advance_ms(&k->clock, 5); /* beyond the delay of the retry, and not to the limiter's first step up */
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(kit_health(k).concurrency, 1);
	kit_hold(k);
	kit_submit(k, 2, 50);
	pass_ms(k, 3000); /* before its first step up */
	assert_int_equal(kit_health(k).concurrency, 1);
	assert_int_equal(kit_health(k).workers_alive, 2);
	kit_release_all(k);
	kit_finish(k, 0);
}

static void no_worker_is_added_while_the_rate_limit_binds(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 1, .scaling.workers_min = 1, .scaling.workers_max = 3, .batch_size = 10,
			.rate.items = 20));
	kit_submit(k, 1, 500);
	pass_ms(k, 5000);
	assert_int_equal(kit_health(k).workers_alive, 1);
	while (sl_coordinator_flush(k->c, 0) != 0)
		(void)vclock_advance_to_next(&k->clock);
	kit_finish(k, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, kit_set_up, kit_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(workers_are_added_one_by_one_under_pressure_and_leave_when_idle),
		TEST(a_short_burst_adds_no_worker),
		TEST(an_old_item_is_pressure_too),
		TEST(no_worker_is_added_while_the_breaker_is_not_closed),
		TEST(no_worker_is_added_while_the_limiter_binds),
		TEST(no_worker_is_added_while_the_rate_limit_binds),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
