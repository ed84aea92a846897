/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/buf.h"
#include "fail_mem.h"

struct fixture {
	struct fail_mem mem;
	struct sl_env env;
	struct sl__buf buf;
};

static int make(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	const struct sl_env wanted = {SL_ENV_INIT, .mem = &fail_mem_table, .mem_ctx = f != NULL ? &f->mem : NULL};
	if (f == NULL || sl__env_init(&f->env, &wanted, NULL) != 0)
		return -1;
	sl__buf_init(&f->buf, &f->env);
	*state = f;
	return 0;
}

static int drop(void **state)
{
	struct fixture *f = *state;
	sl__buf_fini(&f->buf);
	int held = f->mem.held;
	free(f);
	return held; /* a leak fails the test */
}

static void an_empty_buffer_is_an_empty_string_without_memory(void **state)
{
	struct fixture *f = *state;
	assert_string_equal(sl__buf_str(&f->buf), "");
	assert_int_equal(sl__buf_append(&f->buf, NULL, 0), 0);
	assert_int_equal(f->buf.len, 0);
}

static void appended_bytes_come_back_in_order_with_a_nul_behind(void **state)
{
	struct fixture *f = *state;
	for (int i = 0; i < 1000; i++) {
		char byte = (char)i;
		assert_int_equal(sl__buf_append(&f->buf, &byte, 1), 0);
		assert_int_equal(f->buf.data[f->buf.len], 0);
		assert_true(f->buf.cap > f->buf.len);
	}
	assert_int_equal(f->buf.len, 1000);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(f->buf.data[i], (char)i);
}

static void growing_costs_few_allocations(void **state)
{
	struct fixture *f = *state;
	for (int i = 0; i < 100000; i++)
		assert_int_equal(sl__buf_append(&f->buf, "0123456789", 10), 0);
	assert_true(f->mem.calls <= 20);
}

static void printf_fits_every_length_around_the_capacity(void **state)
{
	struct fixture *f = *state;
	char expected[400];
	memset(expected, 'x', sizeof(expected));
	for (int n = 0; n < 300; n++) {
		sl__buf_fini(&f->buf);
		assert_int_equal(sl__buf_str_append(&f->buf, "ab"), 0);
		assert_int_equal(sl__buf_printf(&f->buf, "%.*s|%d", n, expected, n), 0);
		char number[16];
		int digits = snprintf(number, sizeof(number), "%d", n);
		assert_int_equal(f->buf.len, 2 + n + 1 + digits);
		assert_memory_equal(f->buf.data + 2, expected, (size_t)n);
		assert_string_equal(f->buf.data + 2 + n + 1, number);
	}
}

static void numbers_are_little_endian(void **state)
{
	struct fixture *f = *state;
	assert_int_equal(sl__buf_put32(&f->buf, 0x04030201), 0);
	assert_int_equal(sl__buf_put64(&f->buf, 0x0C0B0A0908070605), 0);
	assert_memory_equal(f->buf.data, "\1\2\3\4\5\6\7\10\11\12\13\14", 12);
}

static void a_size_that_overflows_is_refused(void **state)
{
	struct fixture *f = *state;
	assert_int_equal(sl__buf_str_append(&f->buf, "kept"), 0);
	int calls = f->mem.calls;
	assert_int_equal(sl__buf_reserve(&f->buf, SIZE_MAX), SL_ENOMEM);
	assert_int_equal(f->mem.calls, calls);
	assert_string_equal(sl__buf_str(&f->buf), "kept");
	sl__buf_clear(&f->buf);
	assert_int_equal(sl__buf_reserve(&f->buf, SIZE_MAX - 1), SL_ENOMEM);
}

static void a_failure_sticks_and_leaves_what_was_there(void **state)
{
	struct fixture *f = *state;
	char big[500] = {0};
	assert_int_equal(sl__buf_str_append(&f->buf, "kept"), 0);
	f->mem.fail_at = f->mem.calls + 1;
	assert_int_equal(sl__buf_printf(&f->buf, "%0400d", 7), SL_ENOMEM);
	assert_string_equal(sl__buf_str(&f->buf), "kept");
	assert_int_equal(sl__buf_append(&f->buf, "x", 1), SL_ENOMEM);
	assert_int_equal(sl__buf_append(&f->buf, big, sizeof(big)), SL_ENOMEM);
	assert_int_equal(sl__buf_printf(&f->buf, "y"), SL_ENOMEM);
	assert_string_equal(sl__buf_str(&f->buf), "kept");
	assert_int_equal(f->buf.failed, SL_ENOMEM);
	assert_null(sl__buf_take(&f->buf));

	sl__buf_clear(&f->buf);
	assert_int_equal(sl__buf_str_append(&f->buf, "again"), 0);
	assert_string_equal(sl__buf_str(&f->buf), "again");
}

static void taken_bytes_belong_to_the_caller(void **state)
{
	struct fixture *f = *state;
	assert_int_equal(sl__buf_printf(&f->buf, "%s", "mine"), 0);
	char *mine = sl__buf_take(&f->buf);
	assert_string_equal(sl__buf_str(&f->buf), "");
	assert_int_equal(sl__buf_str_append(&f->buf, "other"), 0);
	assert_string_equal(mine, "mine");
	sl__free(&f->env, mine);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, make, drop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(an_empty_buffer_is_an_empty_string_without_memory),
		CASE(appended_bytes_come_back_in_order_with_a_nul_behind),
		CASE(growing_costs_few_allocations),
		CASE(printf_fits_every_length_around_the_capacity),
		CASE(numbers_are_little_endian),
		CASE(a_size_that_overflows_is_refused),
		CASE(a_failure_sticks_and_leaves_what_was_there),
		CASE(taken_bytes_belong_to_the_caller),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
