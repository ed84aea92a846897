/* SPDX-License-Identifier: Apache-2.0 */
/* Items that a working target never takes, among items that it takes: whatever the error, the others are written. */
#include "coordinator/kit.h"

#define OPTS(...) ((struct sl_coordinator_opts){__VA_ARGS__})
#define MINUTE_NS ((int64_t)60 * 1000000000)

static const struct sl_retry_policy quick = {
	.max_attempts = 3, .first_ms = 100, .cap_ms = 1000, .jitter = SL_JITTER_OFF};

/* What each item does to the write that it is part of: SL_CLASS_NONE: nothing. */
#define ITEMS 400
static enum sl_err_class classes[ITEMS + 1];

/* The first bad one decides, as it would where a statement stops at its first error. */
static int by_item(struct kit *k, int number, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
		   struct sl_err *err)
{
	(void)number, (void)reply;
	for (size_t i = 0; i < batch->n; i++) {
		enum sl_err_class error_class = classes[kit_value(k, batch->items[i].data)];
		if (error_class == SL_CLASS_NONE)
			continue;
		int rc = kit_fail(err, error_class);
		if (error_class == SL_CLASS_THROTTLED)
			err->retry_after_ms = 500;
		return rc;
	}
	return 0;
}

/* Let time pass until everything has ended, for at most limit_ns. Returns how much time has passed. */
static int64_t run_for(struct kit *k, int64_t limit_ns)
{
	int64_t begin_ns = k->clock.now_ns;
	kit_settle(k);
	while (sl_coordinator_flush(k->c, 0) != 0) {
		kit_pass(k);
		if (k->clock.now_ns - begin_ns <= limit_ns)
			continue;
		struct sl_coordinator_health h = kit_health(k);
		print_error("stalled: %ju queued, %ju retrying, %ju written, %ju dead, breaker %d\n",
			    (uintmax_t)h.queue_size, (uintmax_t)h.retrying, (uintmax_t)h.written,
			    (uintmax_t)h.dead_letters, (int)h.breaker);
		kit_set_script(k, NULL); /* so that the end can come */
		fail();
	}
	return k->clock.now_ns - begin_ns;
}

static uint32_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*seed >> 33);
}

/* Every bad item is dead, every other one is written, once. */
static void check_ends(struct kit *k, uintptr_t n)
{
	unsigned char seen[ITEMS + 1] = {0};
	for (size_t i = 0; i < k->n_written; i++) {
		assert_int_equal(classes[k->written[i]], SL_CLASS_NONE);
		assert_int_equal(seen[k->written[i]]++, 0);
	}
	for (int i = 0; i < k->n_dead; i++) {
		assert_int_not_equal(classes[k->dead[i]], SL_CLASS_NONE);
		assert_int_equal(seen[k->dead[i]]++, 0);
	}
	for (uintptr_t v = 1; v <= n; v++)
		assert_int_equal(seen[v], 1);
}

static void mix(struct kit *k, uint64_t seed, bool keyed)
{
	static const enum sl_err_class kinds[] = {SL_CLASS_TRANSIENT, SL_CLASS_THROTTLED, SL_CLASS_POISON,
						  SL_CLASS_FATAL};
	static const int32_t sizes[] = {1, 2, 10, 64};
	uint32_t share = 3 + next_random(&seed) % 30;
	unsigned only = next_random(&seed) % 8; /* half of the time one class */
	for (uintptr_t v = 1; v <= ITEMS; v++)
		classes[v] = next_random(&seed) % share != 0 ? SL_CLASS_NONE
							     : kinds[only < 4 ? only : next_random(&seed) % 4];
	k->script = by_item;
	kit_new(k, OPTS(.workers = 1 + (int32_t)(next_random(&seed) % 4), .batch_size = sizes[next_random(&seed) % 4],
			.retry.policy = quick, .retry.give_up_after_ms = 10 * 60000, .capacity = ITEMS,
			.per_key_order = keyed ? SL_ON : SL_OFF));
	for (uintptr_t v = 1; v <= ITEMS; v++) {
		char key[8];
		int n = snprintf(key, sizeof(key), "k%u", next_random(&seed) % 40);
		struct sl_item item = {.data = ITEM(v), .key = key, .key_len = keyed ? (size_t)n : 0};
		assert_int_equal(sl_coordinator_submit_many(k->c, &item, 1, SL_UNLIMITED, NULL), 0);
	}
	(void)run_for(k, 600 * MINUTE_NS);
	check_ends(k, ITEMS);
	kit_finish(k, 0);
}

static void mix_all(void **state, bool keyed)
{
	for (uint64_t seed = 1; seed <= 12; seed++) {
		mix(*state, seed, keyed);
		(void)kit_tear_down(state);
		(void)kit_set_up(state);
	}
}

static void whatever_the_error_the_bad_items_are_dead_and_all_others_are_written(void **state)
{
	mix_all(state, false);
}

static void the_same_holds_with_the_order_of_keys(void **state)
{
	mix_all(state, true);
}

/* More than open the breaker, at the head of the queue, each a batch: a good one must get its turn as a probe. */
static void batches_that_fail_by_themselves_keep_no_other_from_the_target(void **state)
{
	struct kit *k = *state;
	for (uintptr_t v = 1; v <= ITEMS; v++)
		classes[v] = v <= 6 ? SL_CLASS_TRANSIENT : SL_CLASS_NONE;
	k->script = by_item;
	kit_new(k, OPTS(.workers = 1, .batch_size = 1, .retry.policy = quick, .retry.batches = 8, .capacity = ITEMS));
	kit_submit(k, 1, ITEMS);
	assert_true(run_for(k, 10 * MINUTE_NS) < MINUTE_NS);
	check_ends(k, ITEMS);
	kit_finish(k, 0);
}

/* Many more than may wait in batches, for as long as it takes. */
static void items_that_wait_for_ever_take_no_room_from_others(void **state)
{
	struct kit *k = *state;
	for (uintptr_t v = 1; v <= ITEMS; v++)
		classes[v] = v % 5 == 0 ? SL_CLASS_FATAL : SL_CLASS_NONE;
	k->script = by_item;
	kit_new(k, OPTS(.workers = 2, .batch_size = 1, .retry.policy = quick, .retry.batches = 4, .capacity = ITEMS));
	kit_submit(k, 1, ITEMS);
	int64_t end_ns = k->clock.now_ns + 10 * MINUTE_NS;
	kit_settle(k);
	while (kit_health(k).written < ITEMS * 4 / 5 && k->clock.now_ns < end_ns)
		kit_pass(k);
	assert_int_equal(kit_health(k).written, ITEMS * 4 / 5);
	assert_int_equal(kit_health(k).retrying + kit_health(k).in_flight, ITEMS / 5);
	kit_check_equation(k);
	kit_set_script(k, NULL);
	(void)run_for(k, 10 * MINUTE_NS);
	assert_int_equal(k->n_dead, 0);
	kit_finish(k, 0);
}

/* The only batch has good items: the half that is written proves that the other one fails by itself. */
static void half_of_a_batch_proves_that_the_target_works(void **state)
{
	struct kit *k = *state;
	/* All go into the queue together, so that the worker cannot take some before the rest is there. */
	struct sl_item items[64] = {0};
	size_t n = sizeof(items) / sizeof(items[0]);
	for (uintptr_t v = 1; v <= n; v++) {
		classes[v] = v % 20 == 1 ? SL_CLASS_TRANSIENT : SL_CLASS_NONE;
		items[v - 1].data = ITEM(v);
	}
	k->script = by_item;
	kit_new(k, OPTS(.workers = 1, .batch_size = (int32_t)n, .retry.policy = quick, .flush_interval_ms = 1000));
	assert_int_equal(sl_coordinator_submit_many(k->c, items, n, SL_UNLIMITED, NULL), 0);
	assert_true(run_for(k, 60 * MINUTE_NS) < 5 * MINUTE_NS);
	check_ends(k, n);
	kit_finish(k, 0);
}

/* Nothing else is written: is it the target's fault? Only the time says when to stop waiting. */
static void what_nothing_is_written_beside_waits_until_it_gives_up(void **state)
{
	static const enum sl_err_class kinds[] = {SL_CLASS_TRANSIENT, SL_CLASS_THROTTLED, SL_CLASS_FATAL};
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct kit *k = *state;
		classes[1] = kinds[i];
		k->script = by_item;
		kit_new(k, OPTS(.workers = 1, .retry.policy = quick, .retry.give_up_after_ms = 5 * 60000));
		kit_submit(k, 1, 1);
		assert_int_equal(run_for(k, 6 * MINUTE_NS), 5 * MINUTE_NS);
		assert_int_equal(k->n_dead, 1);
		assert_true(k->dead_attempts[0] > 3);
		kit_finish(k, 0);
		(void)kit_tear_down(state);
		(void)kit_set_up(state);
	}
}

/* A whole outage of five minutes: every failure is the target's, and nothing is dead. */
static void an_outage_is_charged_to_no_item(void **state)
{
	struct kit *k = *state;
	memset(classes, 0, sizeof(classes));
	k->script = kit_fail_transient;
	kit_new(k, OPTS(.workers = 2, .batch_size = 10, .retry.policy = quick, .capacity = ITEMS));
	kit_submit(k, 1, ITEMS);
	int64_t end_ns = k->clock.now_ns + 5 * MINUTE_NS;
	while (k->clock.now_ns < end_ns)
		kit_pass(k);
	assert_true(kit_health(k).failing_ms >= 4 * 60000);
	kit_set_script(k, NULL);
	(void)run_for(k, 10 * MINUTE_NS);
	assert_int_equal(kit_health(k).failing_ms, 0);
	assert_int_equal(k->n_dead, 0);
	check_ends(k, ITEMS);
	kit_finish(k, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, kit_set_up, kit_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(whatever_the_error_the_bad_items_are_dead_and_all_others_are_written),
		TEST(the_same_holds_with_the_order_of_keys),
		TEST(batches_that_fail_by_themselves_keep_no_other_from_the_target),
		TEST(items_that_wait_for_ever_take_no_room_from_others),
		TEST(half_of_a_batch_proves_that_the_target_works),
		TEST(what_nothing_is_written_beside_waits_until_it_gives_up),
		TEST(an_outage_is_charged_to_no_item),
	};
	return cmocka_run_group_tests_name("coordinator_mixed", tests, NULL, NULL);
}
