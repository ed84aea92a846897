/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces that files are made of, each against itself and against what the format's text says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "parquet/column.h"
#include "parquet/crc32.h"
#include "parquet/delta.h"
#include "parquet/dict.h"
#include "parquet/pack.h"
#include "parquet/thrift.h"

static struct sl_env env;
static uint64_t seed = 1;

static uint64_t next(void)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return seed ^ seed >> 31;
}

static int set_up(void **state)
{
	(void)state;
	return sl__env_init(&env, NULL, NULL);
}

/* ---- CRC ---- */

static uint32_t crc_by_bits(const uint8_t *p, size_t n)
{
	uint32_t c = UINT32_MAX;

	for (size_t i = 0; i < n; i++) {
		c ^= p[i];
		for (int k = 0; k < 8; k++)
			c = c >> 1 ^ (c & 1 ? 0xEDB88320u : 0);
	}
	return ~c;
}

static void the_crc_is_that_of_gzip_at_every_length_and_cut(void **state)
{
	uint8_t bytes[700];

	(void)state;
	assert_int_equal(sl__crc32(0, "123456789", 9), 0xCBF43926u);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)next();
	for (size_t n = 0; n <= sizeof(bytes); n++) {
		uint32_t want = crc_by_bits(bytes, n);
		size_t cut = n / 3;
		assert_int_equal(sl__crc32(0, bytes, n), want);
		assert_int_equal(sl__crc32_table(0, bytes, n), want);
		assert_int_equal(sl__crc32(sl__crc32(0, bytes, cut), bytes + cut, n - cut), want);
	}
}

/* ---- runs and groups ---- */

static void hybrid_values_are_packed_as_the_format_shows(void **state)
{
	static const uint32_t values[] = {0, 1, 2, 3, 4, 5, 6, 7};
	static const uint8_t want[] = {0x03, 0x88, 0xC6, 0xFA}; /* the format's own example, width 3 */
	struct sl__buf b;

	(void)state;
	sl__buf_init(&b, &env);
	sl__hybrid_put(&b, values, 8, 3);
	assert_int_equal(b.len, sizeof(want));
	assert_memory_equal(b.data, want, sizeof(want));
	sl__buf_fini(&b);
}

static void a_run_takes_a_count_and_one_value(void **state)
{
	static const uint8_t want[] = {0xC8, 0x01, 0x2A}; /* 100 << 1, 42 */
	uint32_t values[100];
	struct sl__buf b;

	(void)state;
	for (size_t i = 0; i < 100; i++)
		values[i] = 42;
	sl__buf_init(&b, &env);
	sl__hybrid_put(&b, values, 100, 6);
	assert_int_equal(b.len, sizeof(want));
	assert_memory_equal(b.data, want, sizeof(want));
	sl__buf_fini(&b);
}

/* Values with runs of random lengths. */
static void fill_values(uint32_t *v, size_t n, unsigned width)
{
	uint64_t mask = (UINT64_C(1) << width) - 1;

	for (size_t i = 0; i < n;) {
		size_t run = next() % 3 == 0 ? (size_t)(next() % 40) : 1;
		uint32_t value = (uint32_t)(next() & mask);
		for (size_t k = 0; k < run && i < n; k++)
			v[i++] = value;
	}
}

static void hybrid_values_read_back_at_every_width(void **state)
{
	uint32_t values[997], got[997];
	struct sl__buf b;

	(void)state;
	sl__buf_init(&b, &env);
	for (unsigned width = 1; width <= 32; width++) {
		for (size_t n = 1; n < 997; n += 83) {
			fill_values(values, n, width);
			sl__buf_clear(&b);
			sl__hybrid_put(&b, values, n, width);
			struct sl__bytes_in in = {(uint8_t *)b.data, (uint8_t *)b.data + b.len};
			assert_int_equal(sl__hybrid_get(&in, got, n, width, UINT32_MAX), 0);
			assert_memory_equal(got, values, n * sizeof(*values));
			assert_ptr_equal(in.at, in.end);
		}
	}
	sl__buf_fini(&b);
}

static void a_value_above_what_is_allowed_is_refused(void **state)
{
	static const uint8_t run[] = {0x10, 0x05}, group[] = {0x03, 0x88, 0xC6, 0xFA};
	struct sl__bytes_in in = {run, run + sizeof(run)};
	uint32_t out[8];

	(void)state;
	assert_int_equal(sl__hybrid_get(&in, out, 8, 3, 4), SL_ECORRUPT);
	in = (struct sl__bytes_in){group, group + sizeof(group)};
	assert_int_equal(sl__hybrid_get(&in, out, 8, 3, 6), SL_ECORRUPT);
	in = (struct sl__bytes_in){group, group + sizeof(group)};
	assert_int_equal(sl__hybrid_get(&in, out, 8, 3, 7), 0);
	in = (struct sl__bytes_in){group, group + sizeof(group) - 1};
	assert_int_equal(sl__hybrid_get(&in, out, 8, 3, 7), SL_ECORRUPT);
}

/* ---- differences ---- */

static void counting_costs_next_to_nothing(void **state)
{
	int64_t values[100000];
	struct sl__buf b;

	(void)state;
	for (size_t i = 0; i < 100000; i++)
		values[i] = 50000000 + (int64_t)i;
	sl__buf_init(&b, &env);
	sl__delta_put(&b, values, 100000, 8);
	assert_true(b.len < 5000);
	assert_int_equal(b.len, sl__delta_bytes(values, 100000, 8));
	sl__buf_fini(&b);
}

static void check_delta(struct sl__buf *b, const void *values, size_t n, unsigned width)
{
	static int64_t got[1000];

	sl__buf_clear(b);
	sl__delta_put(b, values, n, width);
	assert_int_equal(b->len, sl__delta_bytes(values, n, width));
	struct sl__bytes_in in = {(uint8_t *)b->data, (uint8_t *)b->data + b->len};
	assert_int_equal(sl__delta_get(&in, got, n, width), 0);
	assert_memory_equal(got, values, n * width);
	assert_ptr_equal(in.at, in.end);
	if (b->len > 0 && n > 0) {
		in = (struct sl__bytes_in){(uint8_t *)b->data, (uint8_t *)b->data + b->len - 1};
		assert_int_equal(sl__delta_get(&in, got, n, width), SL_ECORRUPT);
	}
}

static void differences_read_back_at_every_width_and_wrap_around(void **state)
{
	int64_t wide[1000];
	int32_t narrow[1000];
	struct sl__buf b;

	(void)state;
	sl__buf_init(&b, &env);
	for (unsigned bits = 0; bits <= 64; bits++) {
		for (size_t i = 0; i < 1000; i++) {
			wide[i] = (int64_t)(bits == 0 ? 7 : next() >> (64 - bits)) * (next() & 1 ? 1 : -1);
			narrow[i] = (int32_t)wide[i];
		}
		wide[17] = INT64_MAX, wide[18] = INT64_MIN, wide[19] = INT64_MAX;
		narrow[17] = INT32_MAX, narrow[18] = INT32_MIN, narrow[19] = INT32_MAX;
		for (size_t n = 0; n <= 1000; n += 111) {
			check_delta(&b, wide, n, 8);
			check_delta(&b, narrow, n, 4);
		}
		check_delta(&b, wide, 1, 8);
		check_delta(&b, wide, 129, 8);
	}
	sl__buf_fini(&b);
}

static void differences_of_another_count_are_refused(void **state)
{
	static const int64_t values[] = {1, 2, 3};
	int64_t out[8];
	struct sl__buf b;

	(void)state;
	sl__buf_init(&b, &env);
	sl__delta_put(&b, values, 3, 8);
	struct sl__bytes_in in = {(uint8_t *)b.data, (uint8_t *)b.data + b.len};
	assert_int_equal(sl__delta_get(&in, out, 4, 8), SL_ECORRUPT);
	sl__buf_fini(&b);
}

/* ---- dictionaries ---- */

static void a_dictionary_has_its_values_in_the_order_of_their_first_appearance(void **state)
{
	static const int32_t values[] = {7, 7, -1, 7, 3, -1};
	static const uint32_t want[] = {0, 0, 1, 0, 2, 1};
	static const int32_t page[] = {7, -1, 3};
	uint32_t index[6];
	struct sl__dict d;

	(void)state;
	sl__dict_init(&d, &env);
	assert_int_equal(sl__dict_build(&d, &(struct sl__dict_values){values, 6, 4}, 1000, index), 1);
	assert_int_equal(d.count, 3);
	assert_memory_equal(index, want, sizeof(want));
	assert_memory_equal(d.page.data, page, sizeof(page));
	sl__dict_fini(&d);
}

static void a_dictionary_finds_every_value_again_while_it_grows(void **state)
{
	enum { N = 20000, DISTINCT = 5000 };
	static struct sl_parquet_bytes values[N];
	static char text[DISTINCT][24];
	static uint32_t index[N];
	struct sl__dict d;

	(void)state;
	for (size_t i = 0; i < N; i++) {
		size_t k = (size_t)(next() % DISTINCT);
		values[i].len =
			(uint32_t)snprintf(text[k], sizeof(text[k]), "%.*s%zu", (int)(k % 16), "abcdefghijklmnop", k);
		values[i].data = text[k];
	}
	sl__dict_init(&d, &env);
	for (int round = 0; round < 2; round++) {
		assert_int_equal(sl__dict_build(&d, &(struct sl__dict_values){values, N, 0}, 1 << 20, index), 1);
		for (size_t i = 0; i < N; i++) {
			struct sl_parquet_bytes got = sl__dict_bytes(&d, index[i]);
			assert_int_equal(got.len, values[i].len);
			assert_memory_equal(got.data, values[i].data, got.len);
		}
		assert_true(d.count > DISTINCT / 2 && d.count <= DISTINCT);
	}
	sl__dict_fini(&d);
}

/* Of 200,000 values some have the same 32 bits of hash: about five pairs. */
static void values_with_the_same_hash_are_told_apart(void **state)
{
	enum { DISTINCT = 200000, N = 2 * DISTINCT };
	struct sl_parquet_bytes *texts = calloc(N, sizeof(*texts));
	uint64_t *numbers = calloc(N, sizeof(*numbers));
	uint32_t *index = calloc(N, sizeof(*index));
	struct sl__dict d;

	(void)state;
	for (size_t i = 0; i < DISTINCT; i++) {
		numbers[2 * i] = numbers[2 * i + 1] = next();
		texts[2 * i] = texts[2 * i + 1] = (struct sl_parquet_bytes){(const char *)&numbers[2 * i], 8};
	}
	sl__dict_init(&d, &env);
	assert_int_equal(sl__dict_build(&d, &(struct sl__dict_values){texts, N, 0}, 1 << 24, index), 1);
	assert_int_equal(d.count, DISTINCT);
	assert_int_equal(sl__dict_build(&d, &(struct sl__dict_values){numbers, N, 8}, 1 << 24, index), 1);
	assert_int_equal(d.count, DISTINCT);
	for (size_t i = 0; i < N; i++)
		assert_int_equal(index[i], i / 2);
	sl__dict_fini(&d);
	free(texts);
	free(numbers);
	free(index);
}

static void a_dictionary_is_given_up_when_it_is_full_or_nothing_repeats(void **state)
{
	enum { N = 100000 };
	static int64_t values[N];
	static uint32_t index[N];
	struct sl__dict d;

	(void)state;
	sl__dict_init(&d, &env);
	for (size_t i = 0; i < N; i++)
		values[i] = (int64_t)i;
	assert_int_equal(sl__dict_build(&d, &(struct sl__dict_values){values, N, 8}, 1 << 30, index), 0);
	assert_int_equal(d.count, 4096);
	for (size_t i = 0; i < N; i++)
		values[i] = (int64_t)(i % 1000);
	assert_int_equal(sl__dict_build(&d, &(struct sl__dict_values){values, N, 8}, 7000, index), 0);
	assert_int_equal(sl__dict_build(&d, &(struct sl__dict_values){values, N, 8}, 8100, index), 1);
	sl__dict_fini(&d);
}

/* ---- Thrift ---- */

static void thrift_writes_short_and_long_forms(void **state)
{
	static const uint8_t want[] = {0x15, 0x03, 0x05, 0x40, 0x01, 0x49, 0xE5, 0x59, 0xF5, 0x0F, 0x11, 0x00};
	struct sl__buf b;
	struct sl__thrift_out t = {.buf = &b};

	(void)state;
	sl__buf_init(&b, &env);
	sl__thrift_i32(&t, 1, -2);               /* step 1, zigzag 3 */
	sl__thrift_i32(&t, 32, -1);              /* step 31: long form, 64 = zigzag 32 */
	sl__thrift_list(&t, 36, 14, THRIFT_I32); /* size in the nibble */
	sl__thrift_list(&t, 41, 15, THRIFT_I32); /* size after it */
	sl__thrift_bool(&t, 42, true);
	(void)sl__buf_append(&b, "", 1);
	assert_int_equal(b.len, sizeof(want));
	assert_memory_equal(b.data, want, sizeof(want));
	sl__buf_fini(&b);
}

static void thrift_stops_at_nesting_without_end(void **state)
{
	uint8_t deep[200];

	(void)state;
	memset(deep, 0x1C, sizeof(deep)); /* field 1, a struct, and so on */
	struct sl__thrift_in t = {.at = deep, .end = deep + sizeof(deep)};
	struct sl__thrift_field f = sl__thrift_next(&t);
	sl__thrift_skip(&t, f.type);
	assert_non_null(t.bad);
	assert_string_equal(t.bad, "structs are nested too deep");
}

static void thrift_refuses_a_list_that_is_longer_than_the_rest(void **state)
{
	static const uint8_t list[] = {0x19, 0xF5, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0x00};
	struct sl__thrift_in t = {.at = list, .end = list + sizeof(list)};

	(void)state;
	struct sl__thrift_field f = sl__thrift_next(&t);
	assert_int_equal(sl__thrift_get_list(&t, f.type, THRIFT_I32), 0);
	assert_string_equal(t.bad, "a list is longer than the remaining bytes");
}

/* ---- text ---- */

static void valid_and_invalid_utf8_are_distinguished(void **state)
{
	static const struct {
		const char *text;
		int good;
	} cases[] = {{"", 1},
		     {"plain", 1},
		     {"\xC3\xBC", 1},
		     {"\xC3", 0},
		     {"abcdefgh\xFF", 0},
		     {"\xED\xA0\x80", 0},
		     {"\xF0\x9F\x8C\x8A!", 1},
		     {"\xF0\x9F\x8C", 0},
		     {"\xC0\xAF", 0},
		     {"long enough \xE2\x82\xAC and on", 1},
		     {"long enough \xE2\x82 and on", 0}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct sl_parquet_bytes v = {cases[i].text, (uint32_t)strlen(cases[i].text)};
		assert_int_equal(sl__pq_is_utf8(v), cases[i].good);
	}
	assert_true(sl__pq_is_utf8((struct sl_parquet_bytes){"a\0b", 3}));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_crc_is_that_of_gzip_at_every_length_and_cut),
		cmocka_unit_test(hybrid_values_are_packed_as_the_format_shows),
		cmocka_unit_test(a_run_takes_a_count_and_one_value),
		cmocka_unit_test(hybrid_values_read_back_at_every_width),
		cmocka_unit_test(a_value_above_what_is_allowed_is_refused),
		cmocka_unit_test(counting_costs_next_to_nothing),
		cmocka_unit_test(differences_read_back_at_every_width_and_wrap_around),
		cmocka_unit_test(differences_of_another_count_are_refused),
		cmocka_unit_test(a_dictionary_has_its_values_in_the_order_of_their_first_appearance),
		cmocka_unit_test(a_dictionary_finds_every_value_again_while_it_grows),
		cmocka_unit_test(values_with_the_same_hash_are_told_apart),
		cmocka_unit_test(a_dictionary_is_given_up_when_it_is_full_or_nothing_repeats),
		cmocka_unit_test(thrift_writes_short_and_long_forms),
		cmocka_unit_test(thrift_stops_at_nesting_without_end),
		cmocka_unit_test(thrift_refuses_a_list_that_is_longer_than_the_rest),
		cmocka_unit_test(valid_and_invalid_utf8_are_distinguished),
	};
	return cmocka_run_group_tests_name("parquet_encodings", tests, set_up, NULL);
}
