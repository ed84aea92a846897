/* SPDX-License-Identifier: Apache-2.0 */
/* What a table has of an input: sets of ranges, their rows, and a load of a sink that records them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "sink/ranges.h"

#define RANGE(first, last) ((struct sl_input_range){.begin = (first), .end = (last)})

static struct sl_env env;

static void add(struct sl__ranges *r, uint64_t begin, uint64_t end)
{
	assert_int_equal(sl__ranges_add(r, &(struct sl_input_range){begin, end, end - begin}), 0);
}

/* "0-30 40-50" */
static const char *shown(const struct sl__ranges *r)
{
	static char text[256];
	size_t n = 0;
	text[0] = '\0';
	for (size_t i = 0; i < r->n; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%llu-%llu", i > 0 ? " " : "",
				      (unsigned long long)r->at[i].begin, (unsigned long long)r->at[i].end);
	return text;
}

static void neighbours_become_one_whatever_their_order(void **state)
{
	struct sl__ranges r;
	(void)state;
	sl__ranges_init(&r, &env);
	add(&r, 40, 50);
	add(&r, 10, 20);
	add(&r, 20, 30);
	add(&r, 0, 10);
	add(&r, 60, 61);
	sl__ranges_sort(&r);
	assert_string_equal(shown(&r), "0-30 40-50 60-61");
	assert_int_equal(r.hash, 30 + 10 + 1);
	assert_int_equal(sl__ranges_end(&r), 61);
	const struct {
		uint64_t at;
		bool in;
	} looks[] = {{0, true}, {29, true}, {30, false}, {39, false}, {40, true}, {50, false}, {60, true}, {61, false}};
	for (size_t i = 0; i < SL_COUNT(looks); i++)
		assert_int_equal(sl__ranges_has(&r, looks[i].at), looks[i].in);
	sl__ranges_clear(&r);
	assert_false(sl__ranges_has(&r, 0));
	assert_int_equal(sl__ranges_end(&r), 0);
	sl__ranges_fini(&r);
}

static void a_row_gives_back_the_ranges_that_were_put_in(void **state)
{
	struct sl__ranges r, back;
	struct sl__buf parts;
	(void)state;
	sl__ranges_init(&r, &env);
	sl__ranges_init(&back, &env);
	sl__buf_init(&parts, &env);
	for (uint64_t i = 0, at = 5; i < 300; i++, at += 1000 * i + 2)
		add(&r, at, at + i * i + 1);
	sl__ranges_sort(&r);
	sl__ranges_put_parts(&r, &parts);
	assert_true(parts.len > 0);
	assert_int_equal(sl__ranges_get_row(&back, RANGE(5, sl__ranges_end(&r)), parts.data, parts.len, NULL), 0);
	assert_int_equal(back.n, r.n);
	for (size_t i = 0; i < r.n; i++) {
		assert_int_equal(back.at[i].begin, r.at[i].begin);
		assert_int_equal(back.at[i].end, r.at[i].end);
	}
	/* One range needs no parts. */
	sl__ranges_clear(&r);
	add(&r, 7, 9);
	sl__buf_clear(&parts);
	sl__ranges_put_parts(&r, &parts);
	assert_int_equal(parts.len, 0);
	sl__ranges_clear(&back);
	assert_int_equal(sl__ranges_get_row(&back, RANGE(7, 9), NULL, 0, NULL), 0);
	assert_string_equal(shown(&back), "7-9");
	sl__buf_fini(&parts);
	sl__ranges_fini(&r);
	sl__ranges_fini(&back);
}

static void a_row_that_is_damaged_is_refused(void **state)
{
	static const struct {
		const char *bytes;
		size_t n;
	} bad[] = {
		{"\x05", 1}, {"\x05\x01", 2},     {"\x05\x01\x05", 3},
		{"\x80", 1}, {"\x7f\x01\x03", 3}, {"\x05\x7f\x01", 3},
	};
	(void)state;
	for (size_t i = 0; i < SL_COUNT(bad); i++) {
		struct sl__ranges r;
		struct sl_err err = SL_ERR_INIT;
		sl__ranges_init(&r, &env);
		assert_int_equal(sl__ranges_get_row(&r, RANGE(10, 20), bad[i].bytes, bad[i].n, &err), SL_ECORRUPT);
		assert_non_null(strstr(err.msg, "--again"));
		sl__ranges_fini(&r);
	}
	struct sl__ranges r;
	sl__ranges_init(&r, &env);
	assert_int_equal(sl__ranges_get_row(&r, RANGE(20, 10), NULL, 0, NULL), SL_ECORRUPT);
	sl__ranges_fini(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(neighbours_become_one_whatever_their_order),
		cmocka_unit_test(a_row_gives_back_the_ranges_that_were_put_in),
		cmocka_unit_test(a_row_that_is_damaged_is_refused),
	};
	return sl__env_init(&env, NULL, NULL) != 0 || cmocka_run_group_tests_name("sink_ranges", tests, NULL, NULL);
}
