/* SPDX-License-Identifier: Apache-2.0 */
/* Order within keys. */
#include <sched.h>

#include "coordinator/kit.h"

#define OPTS(...) ((struct sl_coordinator_opts){__VA_ARGS__})
#define OTHERS 2 /* threads beside the workers that wait on the clock: the keeper, the notifier */
static const struct sl_retry_policy steady = {
	.max_attempts = 3, .first_ms = 100, .cap_ms = 1000, .jitter = SL_JITTER_OFF};

/* The key of a number is its hundreds; below 100 it has none. */
static void submit(struct kit *k, uintptr_t first, uintptr_t last)
{
	for (uintptr_t i = first; i <= last; i++) {
		char key = (char)('a' + i / 100);
		struct sl_item item = {
			.data = ITEM(i), .key = &key, .key_len = i >= 100, .done = kit_done, .done_ctx = k};
		assert_int_equal(sl_coordinator_submit_many(k->c, &item, 1, SL_UNLIMITED, NULL), 0);
	}
}

static void check_order(struct kit *k)
{
	uintptr_t last[256] = {0};
	for (size_t i = 0; i < k->n_written; i++) {
		uintptr_t v = k->written[i], key = v / 100;
		if (key == 0)
			continue;
		if (v <= last[key])
			print_error("%ju was written after %ju\n", (uintmax_t)v, (uintmax_t)last[key]);
		assert_true(v > last[key]);
		last[key] = v;
	}
}

static void run_until_ended(struct kit *k)
{
	while (sl_coordinator_flush(k->c, 0) != 0)
		(void)vclock_advance_to_next(&k->clock);
}

static void an_item_waits_for_the_one_before_it_while_other_keys_continue(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 3, .per_key_order = SL_ON, .flush_interval_ms = SL_NONE));
	kit_hold(k);
	submit(k, 101, 101);
	kit_await_in_write(k, 1);
	submit(k, 102, 103); /* must wait */
	submit(k, 201, 201); /* need not */
	submit(k, 5, 5);
	kit_await_writes(k, 2);
	while (kit_health(k).retrying < 2) /* two wait aside */
		(void)sched_yield();
	kit_check_equation(k);
	kit_release_all(k);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(k->n_written, 5);
	check_order(k);
	assert_int_equal(k->writes[0].ordered, 1);
	assert_int_equal(k->ends[SL_ITEM_WRITTEN], 5);
	kit_finish(k, 0);
}

static void items_of_one_key_share_a_batch_in_order(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 2, .per_key_order = SL_ON, .batch_size = 10, .flush_interval_ms = SL_NONE));
	kit_hold(k);
	submit(k, 101, 101);
	kit_await_in_write(k, 1);
	submit(k, 102, 106);
	while (kit_health(k).retrying < 5)
		(void)sched_yield();
	kit_release_all(k);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(kit_count_writes(k), 2); /* all that had waited went together */
	assert_int_equal(k->writes[1].n, 5);
	check_order(k);
	kit_finish(k, 0);
}

static int refuse_key_b_at_first(struct kit *k, int number, const struct sl_sink_batch *batch,
				 struct sl_sink_reply *reply, struct sl_err *err)
{
	(void)number;
	(void)reply;
	for (size_t i = 0; i < batch->n; i++)
		if (kit_value(k, batch->items[i].data) / 100 == 1 && batch->tries < 2)
			return kit_fail(err, SL_CLASS_TRANSIENT);
	return 0;
}

static void the_keys_of_a_failed_batch_are_held_until_it_settles(void **state)
{
	struct kit *k = *state;
	k->script = refuse_key_b_at_first;
	kit_new(k, OPTS(.workers = 3, .per_key_order = SL_ON, .batch_size = 1, .flush_interval_ms = SL_NONE,
			.retry.policy = steady, .breaker.failures = SL_UNLIMITED));
	for (uintptr_t i = 1; i <= 10; i++) {
		submit(k, 100 + i, 100 + i);
		submit(k, 200 + i, 200 + i);
	}
	kit_await_written(k, 10); /* all of c, and no time has passed */
	run_until_ended(k);
	assert_int_equal(k->n_written, 20);
	check_order(k);
	kit_finish(k, 0);
}

static int poison_fives(struct kit *k, int number, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
			struct sl_err *err)
{
	(void)number;
	(void)reply;
	for (size_t i = 0; i < batch->n; i++)
		if (kit_value(k, batch->items[i].data) % 5 == 0)
			return kit_fail(err, SL_CLASS_POISON);
	return 0;
}

static void splits_keep_the_order(void **state)
{
	struct kit *k = *state;
	k->script = poison_fives;
	kit_new(k, OPTS(.workers = 4, .per_key_order = SL_ON, .batch_size = 16, .flush_interval_ms = SL_NONE));
	for (uintptr_t i = 1; i < 100; i++)
		for (uintptr_t key = 1; key <= 3; key++)
			submit(k, key * 100 + i, key * 100 + i);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(k->n_written, 3 * 80);
	assert_int_equal(k->n_dead, 3 * 19);
	check_order(k);
	kit_finish(k, 0);
}

static void what_waits_aside_is_bounded(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 2, .per_key_order = SL_ON, .capacity = 4, .batch_size = 2,
			.flush_interval_ms = SL_NONE));
	kit_hold(k);
	submit(k, 101, 101);
	kit_await_in_write(k, 1);
	int n = 0;
	char key = 'b';
	struct sl_item item = {.data = ITEM(102), .key = &key, .key_len = 1};
	/* One in the sink, four in the queue, and aside until the bound is reached or passed by the last batch. */
	for (;;) {
		struct sl_coordinator_health h = kit_health(k);
		if (h.queue_size == 4 && h.retrying >= 4)
			break;
		item.data = ITEM(102 + n);
		n += sl_coordinator_submit_many(k->c, &item, 1, 0, NULL) == 0;
	}
	assert_in_range(kit_health(k).retrying, 4, 5);
	assert_int_equal(sl_coordinator_submit_many(k->c, &item, 1, 0, NULL), SL_EFULL);
	kit_check_equation(k);
	kit_release_all(k);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(k->n_written, n + 1);
	check_order(k);
	kit_finish(k, 0);
}

static void stop_gives_back_what_waits_aside_in_order(void **state)
{
	struct kit *k = *state;
	struct sl_coordinator_report r = {.struct_size = sizeof(r)};
	k->script = refuse_key_b_at_first;
	kit_new(k, OPTS(.workers = 2, .per_key_order = SL_ON, .batch_size = 2, .flush_interval_ms = SL_NONE,
			.retry.policy = steady, .breaker.failures = SL_UNLIMITED));
	submit(k, 101, 150);
	submit(k, 201, 210);
	kit_await_written(k, 10);
	while (kit_health(k).queue_size > 0)
		(void)sched_yield();
	assert_int_equal(sl_coordinator_stop(k->c, 0, &r, NULL), SL_EPENDING);
	assert_int_equal(r.returned, 50);
	assert_int_equal(k->ends[SL_ITEM_RETURNED], 50);
	for (uintptr_t i = 0; i < 50; i++)
		assert_int_equal(k->returned[i], 101 + i);
	assert_int_equal(sl_coordinator_free(k->c), 0);
	k->c = NULL;
}

static void a_flush_waits_for_those_aside_too(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 2, .per_key_order = SL_ON, .flush_interval_ms = SL_NONE));
	kit_hold(k);
	submit(k, 101, 101);
	kit_await_in_write(k, 1);
	submit(k, 102, 102);
	while (kit_health(k).retrying < 1)
		(void)sched_yield();
	assert_int_equal(sl_coordinator_flush(k->c, 0), SL_ETIMEDOUT);
	kit_release(k, 1);
	kit_await_writes(k, 2);
	assert_int_equal(sl_coordinator_flush(k->c, 0), SL_ETIMEDOUT);
	kit_release_all(k);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(k->n_written, 2);
	kit_finish(k, 0);
}

static void one_key_alone_is_written_in_full_batches(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 4, .per_key_order = SL_ON, .batch_size = 50, .capacity = 200));
	kit_hold(k);
	submit(k, 101, 101);
	kit_await_in_write(k, 1);
	submit(k, 102, 199);
	kit_release_all(k);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(k->n_written, 99);
	assert_int_equal(k->max_in_write, 1);
	check_order(k);
	kit_finish(k, 0);
}

/* The worker that watched the queue began to while the other one wrote. */
static void with_keys_too_an_idle_worker_writes_at_once(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 2, .per_key_order = SL_ON, .batch_size = 100, .flush_interval_ms = 60000));
	kit_hold(k);
	submit(k, 101, 101);
	kit_await_in_write(k, 1);
	kit_await_calm(k, 1 + OTHERS);
	kit_release_all(k);
	kit_await_written(k, 1);
	submit(k, 201, 201);
	kit_await_written(k, 2); /* no time has passed */
	kit_finish(k, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, kit_set_up, kit_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_item_waits_for_the_one_before_it_while_other_keys_continue),
		TEST(items_of_one_key_share_a_batch_in_order),
		TEST(the_keys_of_a_failed_batch_are_held_until_it_settles),
		TEST(splits_keep_the_order),
		TEST(what_waits_aside_is_bounded),
		TEST(stop_gives_back_what_waits_aside_in_order),
		TEST(a_flush_waits_for_those_aside_too),
		TEST(one_key_alone_is_written_in_full_batches),
		TEST(with_keys_too_an_idle_worker_writes_at_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
