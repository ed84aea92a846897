/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flow/batcher.h"
#include "support/fault.h"

#define MS 1000000LL

struct fixture {
	struct fault fault;
	struct sl_env env;
	struct sl__batcher b;
	struct sl__batch batch;
};

static int setup(void **state)
{
	struct fixture *x = calloc(1, sizeof(*x));
	fault_init(&x->fault, NULL);
	struct sl_env env = fault_env(&x->fault, NULL);
	assert_int_equal(sl__env_init(&x->env, &env, NULL), 0);
	*state = x;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *x = *state;
	sl__batcher_fini(&x->b);
	sl__batch_fini(&x->batch, &x->env);
	assert_int_equal(fault_live_allocs(&x->fault), 0);
	fault_fini(&x->fault);
	free(x);
	return 0;
}

static void begin(struct fixture *x, struct sl__batcher_opts opts)
{
	assert_int_equal(sl__batcher_init(&x->b, &x->env, &opts, NULL), 0);
}

static void assert_span(const struct sl__batch *batch, size_t i, const char *text)
{
	assert_true(i < batch->n);
	assert_int_equal(batch->spans[i].len, strlen(text));
	assert_memory_equal(batch->spans[i].data, text, strlen(text));
}

static void the_defaults_are_fifty_items_and_256_kib(void **state)
{
	struct fixture *x = *state;
	begin(x, (struct sl__batcher_opts){0});
	for (int i = 0; i < 49; i++)
		assert_int_equal(sl__batcher_add(&x->b, 0, "x", 1), 0);
	assert_int_equal(sl__batcher_add(&x->b, 0, "x", 1), SL__BATCH_READY);
	sl__batcher_take(&x->b, &x->batch);
	assert_int_equal(x->batch.n, 50);
	sl__batch_drop(&x->batch, 50);

	char *kib = calloc(1, 1024);
	static const size_t kibs = 256;
	struct sl__batcher_opts many = {.max_items = 1000};
	sl__batcher_fini(&x->b);
	begin(x, many);
	for (size_t i = 0; i < kibs - 1; i++)
		assert_int_equal(sl__batcher_add(&x->b, 0, kib, 1024), 0);
	assert_int_equal(sl__batcher_add(&x->b, 0, kib, 1024), SL__BATCH_READY);
	free(kib);
}

static void items_come_out_in_order_with_their_bytes(void **state)
{
	struct fixture *x = *state;
	begin(x, (struct sl__batcher_opts){.max_items = 4});
	assert_int_equal(sl__batcher_add(&x->b, 0, "one", 3), 0);
	assert_int_equal(sl__batcher_add(&x->b, 0, "", 0), 0);
	assert_int_equal(sl__batcher_add(&x->b, 0, NULL, 0), 0);
	assert_int_equal(sl__batcher_add(&x->b, 0, "four", 4), SL__BATCH_READY);
	sl__batcher_take(&x->b, &x->batch);
	assert_int_equal(x->batch.n, 4);
	assert_int_equal(x->batch.bytes, 7);
	assert_span(&x->batch, 0, "one");
	assert_span(&x->batch, 1, "");
	assert_span(&x->batch, 2, "");
	assert_span(&x->batch, 3, "four");
	assert_true(sl__batcher_empty(&x->b));
}

static void an_item_that_does_not_fit_waits_for_the_next_batch(void **state)
{
	struct fixture *x = *state;
	begin(x, (struct sl__batcher_opts){.max_bytes = 10});
	assert_int_equal(sl__batcher_add(&x->b, 0, "1234567", 7), 0);
	assert_int_equal(sl__batcher_add(&x->b, 0, "1234", 4), SL_EFULL);
	sl__batcher_take(&x->b, &x->batch);
	assert_int_equal(x->batch.n, 1);
	assert_int_equal(sl__batcher_add(&x->b, 0, "1234", 4), 0);
	assert_int_equal(sl__batcher_add(&x->b, 0, "567890", 6), SL__BATCH_READY);
	/* Complete means complete: not even an empty item goes in. */
	assert_int_equal(sl__batcher_add(&x->b, 0, "", 0), SL_EFULL);
}

static void an_item_above_the_limit_is_a_separate_batch(void **state)
{
	struct fixture *x = *state;
	begin(x, (struct sl__batcher_opts){.max_bytes = 10});
	assert_int_equal(sl__batcher_add(&x->b, 0, "small", 5), 0);
	assert_int_equal(sl__batcher_add(&x->b, 0, "larger than ten", 15), SL_EFULL);
	assert_int_equal(sl__batcher_add(&x->b, 0, "absurd", SIZE_MAX), SL_EFULL);
	sl__batcher_take(&x->b, &x->batch);
	assert_span(&x->batch, 0, "small");
	sl__batch_drop(&x->batch, 1);
	assert_int_equal(sl__batcher_add(&x->b, 0, "larger than ten", 15), SL__BATCH_READY);
	sl__batcher_take(&x->b, &x->batch);
	assert_int_equal(x->batch.n, 1);
	assert_span(&x->batch, 0, "larger than ten");
}

static void the_memory_of_a_huge_item_is_given_back(void **state)
{
	struct fixture *x = *state;
	begin(x, (struct sl__batcher_opts){.max_bytes = 100});
	char *huge = calloc(1, 1 << 20);
	assert_int_equal(sl__batcher_add(&x->b, 0, huge, 1 << 20), SL__BATCH_READY);
	free(huge);
	sl__batcher_take(&x->b, &x->batch);
	sl__batch_drop(&x->batch, 1);
	assert_int_equal(sl__batcher_add(&x->b, 0, "x", 1), 0);
	sl__batcher_take(&x->b, &x->batch);
	assert_true(x->b.fill.cap_bytes <= 100);
	assert_true(x->batch.cap_bytes <= 100);
}

static void the_oldest_item_sets_the_deadline(void **state)
{
	struct fixture *x = *state;
	begin(x, (struct sl__batcher_opts){.max_wait_ms = 20});
	assert_int_equal(sl__batcher_deadline(&x->b), SL_FOREVER);
	assert_false(sl__batcher_due(&x->b, SL_FOREVER));
	assert_int_equal(sl__batcher_add(&x->b, 100 * MS, "a", 1), 0);
	assert_int_equal(sl__batcher_add(&x->b, 110 * MS, "b", 1), 0);
	assert_int_equal(sl__batcher_deadline(&x->b), 120 * MS);
	assert_false(sl__batcher_due(&x->b, 120 * MS - 1));
	assert_true(sl__batcher_due(&x->b, 120 * MS));
	sl__batcher_take(&x->b, &x->batch);
	assert_int_equal(x->batch.oldest_ns, 100 * MS);
	assert_int_equal(sl__batcher_deadline(&x->b), SL_FOREVER);
}

static void an_add_after_the_deadline_returns_flush(void **state)
{
	struct fixture *x = *state;
	begin(x, (struct sl__batcher_opts){.max_wait_ms = 20});
	assert_int_equal(sl__batcher_add(&x->b, 0, "a", 1), 0);
	assert_int_equal(sl__batcher_add(&x->b, 19 * MS, "b", 1), 0);
	assert_int_equal(sl__batcher_add(&x->b, 20 * MS, "c", 1), SL__BATCH_READY);
}

static void no_wait_flushes_every_item_and_unlimited_waits_for_ever(void **state)
{
	struct fixture *x = *state;
	begin(x, (struct sl__batcher_opts){.max_wait_ms = SL_NONE});
	assert_int_equal(sl__batcher_add(&x->b, 5, "a", 1), SL__BATCH_READY);
	sl__batcher_fini(&x->b);
	begin(x, (struct sl__batcher_opts){.max_wait_ms = SL_UNLIMITED});
	assert_int_equal(sl__batcher_add(&x->b, 5, "a", 1), 0);
	assert_int_equal(sl__batcher_add(&x->b, INT64_MAX, "b", 1), 0);
	assert_int_equal(sl__batcher_deadline(&x->b), SL_FOREVER);
	sl__batcher_fini(&x->b);
	begin(x, (struct sl__batcher_opts){.max_wait_ms = INT64_MAX / 2});
	assert_int_equal(sl__batcher_add(&x->b, INT64_MAX / 2, "a", 1), 0);
	assert_int_equal(sl__batcher_deadline(&x->b), SL_FOREVER);
}

static void a_batch_written_in_part_keeps_the_rest(void **state)
{
	struct fixture *x = *state;
	begin(x, (struct sl__batcher_opts){.max_items = 3});
	assert_int_equal(sl__batcher_add(&x->b, 0, "a", 1), 0);
	assert_int_equal(sl__batcher_add(&x->b, 0, "bb", 2), 0);
	assert_int_equal(sl__batcher_add(&x->b, 0, "ccc", 3), SL__BATCH_READY);
	sl__batcher_take(&x->b, &x->batch);
	sl__batch_drop(&x->batch, 1);
	assert_int_equal(x->batch.n, 2);
	assert_int_equal(x->batch.bytes, 5);
	assert_span(&x->batch, 0, "bb");
	/* The batcher fills its other buffer meanwhile, and the kept items do not move. */
	assert_int_equal(sl__batcher_add(&x->b, 0, "dddd", 4), 0);
	sl__batch_drop(&x->batch, 1);
	assert_span(&x->batch, 0, "ccc");
	sl__batch_drop(&x->batch, 1);
	assert_int_equal(x->batch.bytes, 0);
	sl__batcher_take(&x->b, &x->batch);
	assert_span(&x->batch, 0, "dddd");
}

static void fill_and_flush(struct fixture *x, size_t item_len, unsigned n)
{
	char item[64] = {0};
	for (unsigned i = 0; i < n; i++) {
		int rc = sl__batcher_add(&x->b, 0, item, item_len);
		assert_true(rc >= 0 || rc == SL_EFULL);
		if (rc == 0)
			continue;
		sl__batcher_take(&x->b, &x->batch);
		sl__batch_drop(&x->batch, x->batch.n);
	}
}

static void the_steady_state_allocates_nothing(void **state)
{
	struct fixture *x = *state;
	begin(x, (struct sl__batcher_opts){.max_items = 40, .max_bytes = 1000});
	/* Both buffers see a batch that is full of items, and one that is full of bytes. */
	fill_and_flush(x, 1, 80);
	fill_and_flush(x, 50, 40);
	fault_arm_mem(&x->fault, 1, FAULT_FROM);
	for (size_t round = 0; round < 640; round++)
		fill_and_flush(x, round % 64, 500);
	assert_int_equal(fault_mem_failed(&x->fault), 0);
	fault_disarm(&x->fault);
}

static void running_out_of_memory_changes_nothing(void **state)
{
	struct fixture *x = *state;
	begin(x, (struct sl__batcher_opts){.max_items = 100});
	char item[512];
	memset(item, 'i', sizeof(item));
	size_t in = 0;
	for (int64_t n = 1; n < 300; n++) {
		fault_arm_mem(&x->fault, 1 + n % 2, FAULT_ONCE);
		int rc = sl__batcher_add(&x->b, 0, item, sizeof(item));
		if (rc == SL_ENOMEM) {
			assert_int_equal(x->b.fill.n, in);
			assert_int_equal(x->b.fill.bytes, in * sizeof(item));
			continue;
		}
		in++;
		if (rc == SL__BATCH_READY)
			break;
	}
	fault_disarm(&x->fault);
	assert_int_equal(in, 100);
	sl__batcher_take(&x->b, &x->batch);
	for (size_t i = 0; i < in; i++)
		assert_memory_equal(x->batch.spans[i].data, item, sizeof(item));
}

static void bad_options_are_named(void **state)
{
	struct fixture *x = *state;
	struct sl_err err = SL_ERR_INIT;
	struct sl__batcher_opts items = {.max_items = -5}, bytes = {.max_bytes = -5}, wait = {.max_wait_ms = -5};
	assert_int_equal(sl__batcher_init(&x->b, &x->env, &items, &err), SL_EINVAL);
	assert_non_null(strstr(err.msg, "max_items"));
	assert_int_equal(sl__batcher_init(&x->b, &x->env, &bytes, &err), SL_EINVAL);
	assert_non_null(strstr(err.msg, "max_bytes"));
	assert_int_equal(sl__batcher_init(&x->b, &x->env, &wait, &err), SL_EINVAL);
	assert_non_null(strstr(err.msg, "max_wait_ms"));
}

/* Any mix of sizes and times: every byte comes out once, in order, and no batch breaks its limits. */
static void random_items_all_arrive_in_order_within_the_limits(void **state)
{
	struct fixture *x = *state;
	begin(x, (struct sl__batcher_opts){.max_items = 7, .max_bytes = 300, .max_wait_ms = 5});
	struct sl__prng rng = {.s = 42};
	uint32_t sent = 0, seen = 0;
	int64_t now = 0;
	while (sent < 20000) {
		uint32_t item[128];
		size_t words = 1 + sl__prng_next(&rng) % (sl__prng_next(&rng) % 50 == 0 ? 127 : 20);
		for (size_t i = 0; i < words; i++)
			item[i] = sent;
		now += (int64_t)(sl__prng_next(&rng) % (2 * MS));
		int rc = sl__batcher_add(&x->b, now, item, words * 4);
		sent += rc >= 0;
		if (rc == 0 && !sl__batcher_due(&x->b, now))
			continue;
		sl__batcher_take(&x->b, &x->batch);
		assert_true(x->batch.n <= 7);
		assert_true(x->batch.bytes <= 300 || x->batch.n == 1);
		for (size_t i = 0; i < x->batch.n; i++, seen++)
			assert_memory_equal(x->batch.spans[i].data, &seen, 4);
		sl__batch_drop(&x->batch, x->batch.n);
	}
	sl__batcher_take(&x->b, &x->batch);
	assert_int_equal(seen + x->batch.n, sent);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(the_defaults_are_fifty_items_and_256_kib),
		T(items_come_out_in_order_with_their_bytes),
		T(an_item_that_does_not_fit_waits_for_the_next_batch),
		T(an_item_above_the_limit_is_a_separate_batch),
		T(the_memory_of_a_huge_item_is_given_back),
		T(the_oldest_item_sets_the_deadline),
		T(an_add_after_the_deadline_returns_flush),
		T(no_wait_flushes_every_item_and_unlimited_waits_for_ever),
		T(a_batch_written_in_part_keeps_the_rest),
		T(the_steady_state_allocates_nothing),
		T(running_out_of_memory_changes_nothing),
		T(bad_options_are_named),
		T(random_items_all_arrive_in_order_within_the_limits),
	};
	return cmocka_run_group_tests_name("batcher", tests, NULL, NULL);
}
