/* SPDX-License-Identifier: Apache-2.0 */
/* Text to values: exactly, or not at all; and rows of them as columns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <math.h>

#include "base/env.h"
#include "pipeline/export/table.h"
#include "support/fault.h"

/* ---- values ---- */

static void integers_are_exact_to_their_last_bit(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		int64_t value;
	} good[] = {{"0", 0},
		    {"-0", 0},
		    {"007", 7},
		    {"9007199254740993", 9007199254740993},
		    {"999999999999999999", 999999999999999999},
		    {"9223372036854775807", INT64_MAX},
		    {"-9223372036854775808", INT64_MIN}};
	static const char *const bad[] = {"",
					  "-",
					  "+1",
					  "1.0",
					  "1e3",
					  " 1",
					  "1 ",
					  "9223372036854775808",
					  "-9223372036854775809",
					  "99999999999999999999999",
					  "0x10",
					  "12345678901234567a"};
	int64_t v;
	int32_t w;
	for (size_t i = 0; i < SL_COUNT(good); i++) {
		assert_null(sl__to_int64(good[i].text, strlen(good[i].text), &v));
		assert_true(v == good[i].value);
	}
	for (size_t i = 0; i < SL_COUNT(bad); i++)
		assert_non_null(sl__to_int64(bad[i], strlen(bad[i]), &v));
	assert_null(sl__to_int32("-2147483648", 11, &w));
	assert_int_equal(w, INT32_MIN);
	assert_non_null(sl__to_int32("2147483648", 10, &w));
}

static void doubles_are_the_nearest_ones(void **state)
{
	(void)state;
	static const char *const texts[] = {"0",
					    "-0.0",
					    "0.1",
					    "190.25",
					    "-1e-7",
					    "123456789012345678",
					    "9007199254740993",
					    "1.7976931348623157e308",
					    "4.9e-324",
					    "2.2250738585072011e-308",
					    "0.30000000000000004",
					    "1e22",
					    "1e23",
					    "8.5e-23",
					    "0.000000000000000000000000000001234567"};
	char long_text[1300];
	double v;
	for (size_t i = 0; i < SL_COUNT(texts); i++) {
		assert_null(sl__to_double(texts[i], strlen(texts[i]), &v));
		double wanted = strtod(texts[i], NULL);
		assert_memory_equal(&v, &wanted, sizeof(v));
	}
	/* Half way between two doubles, and a thousand digits later a bit above. */
	memset(long_text, '0', sizeof(long_text));
	memcpy(long_text, "9007199254740993.", 17);
	long_text[1200] = '1';
	assert_null(sl__to_double(long_text, 1201, &v));
	assert_true(v == 9007199254740994.0);
	assert_null(sl__to_double(long_text, 1200, &v));
	assert_true(v == 9007199254740992.0);
	assert_null(sl__to_double("NaN", 3, &v));
	assert_true(isnan(v));
	assert_null(sl__to_double("-Infinity", 9, &v));
	assert_true(v == -INFINITY);
	static const char *const bad[] = {"", ".", "1.", ".5", "1e", "1e309", "nan", "inf", "1,5", "0x1p3", "--1"};
	for (size_t i = 0; i < SL_COUNT(bad); i++)
		assert_non_null(sl__to_double(bad[i], strlen(bad[i]), &v));
	float f;
	assert_null(sl__to_float("16777217.00000000000001", 23, &f)); /* by way of a double it would be 16777216 */
	assert_true(f == 16777218.0f);
	assert_non_null(sl__to_float("1e39", 4, &f));
}

static void decimals_lose_no_digit(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		int64_t value; /* of decimal(18,2) */
	} good[] = {{"0", 0},        {"1.5", 150},      {"-12.34", -1234}, {"12.3400", 1234},
		    {"1e3", 100000}, {"1234e-2", 1234}, {"0.00", 0},       {"9999999999999999.99", 999999999999999999}};
	static const char *const bad[] = {"0.001", "10000000000000000", "1e-3", "", "1.", "a"};
	int64_t v;
	for (size_t i = 0; i < SL_COUNT(good); i++) {
		assert_null(sl__to_decimal(good[i].text, strlen(good[i].text), 18, 2, &v));
		assert_true(v == good[i].value);
	}
	for (size_t i = 0; i < SL_COUNT(bad); i++)
		assert_non_null(sl__to_decimal(bad[i], strlen(bad[i]), 18, 2, &v));
}

static const struct sl_parquet_column micros = {.unit = SL_PARQUET_MICROS},
				      micros_local = {.unit = SL_PARQUET_MICROS, .local = true},
				      millis = {.unit = SL_PARQUET_MILLIS}, nanos = {.unit = SL_PARQUET_NANOS};

static void times_are_moments_in_the_columns_unit(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		int64_t micros;
	} good[] = {{"1970-01-01T00:00:00Z", 0},
		    {"1970-01-01", 0},
		    {"1970-01-01 00:00:01.5", 1500000},
		    {"1969-12-31T23:59:59.999999Z", -1},
		    {"2024-02-29T15:04:05.123456+01:00", 1709215445123456},
		    {"2024-02-29T15:04:05.123456000+0100", 1709215445123456},
		    {"2024-02-29T15:04:05-05", 1709237045000000},
		    {"2024-02-29T15:04Z", 1709219040000000},
		    {"2000-03-01t00:00:00z", 951868800000000},
		    {"1900-03-01T00:00:00Z", -2203891200000000},
		    {"9999-12-31T23:59:59Z", 253402300799000000},
		    {"0001-01-01T00:00:00Z", -62135596800000000},
		    {"10000-01-01 00:00:00+00", 253402300800000000},
		    {"294247-01-10 04:00:54.775806+00", 9223372036854775806},
		    {"0001-12-31 00:00:00+00 BC", -62135683200000000},
		    {"0001-02-29 00:00:00 BC", -62162121600000000},
		    {"4714-11-24 00:00:00+00 BC", -210866803200000000},
		    {"infinity", INT64_MAX},
		    {"-infinity", -INT64_MAX}};
	static const char *const bad[] = {"",
					  "2023-02-29T00:00:00Z",
					  "2024-13-01",
					  "2024-00-01",
					  "2024-01-00",
					  "0000-01-01",
					  "2024-01-01T24:00:00Z",
					  "2024-01-01T00:60:00Z",
					  "2024-01-01T00:00:60Z",
					  "2024-01-01T00:00:00.Z",
					  "2024-01-01T00:00:00.1234567Z",
					  "2024-01-01T00:00:00Zx",
					  "2024-01-01X00:00:00Z",
					  "2024-01-01T00:00:00+1",
					  "1704067200",
					  "294247-01-11",
					  "1234567-01-01",
					  "0002-02-29 BC",
					  "Infinity",
					  "infinite",
					  "2024-1-1"};
	struct sl__time_memo memo = {{0}, 0};
	int64_t v;
	for (size_t i = 0; i < SL_COUNT(good); i++) {
		assert_null(sl__to_timestamp(good[i].text, strlen(good[i].text), &micros, &memo, &v));
		if (v != good[i].micros)
			fail_msg("%s: %lld", good[i].text, (long long)v);
	}
	for (size_t i = 0; i < SL_COUNT(bad); i++)
		if (sl__to_timestamp(bad[i], strlen(bad[i]), &micros, &memo, &v) == NULL)
			fail_msg("\"%s\" was taken", bad[i]);
	assert_null(sl__to_timestamp("1970-01-02T00:00:00.001", 23, &millis, &memo, &v));
	assert_int_equal(v, 86400001);
	assert_null(sl__to_timestamp("1970-01-01T00:00:00.000000001", 29, &nanos, &memo, &v));
	assert_int_equal(v, 1);
	assert_non_null(sl__to_timestamp("2263-01-01", 10, &nanos, &memo, &v));
	int32_t day;
	assert_null(sl__to_date("2024-02-29", 10, &day));
	assert_int_equal(day, 19782);
	assert_non_null(sl__to_date("2024-02-29T00:00:00Z", 20, &day));
	assert_null(sl__to_date("0044-03-15 BC", 13, &day));
	assert_int_equal(day, -735160);
	assert_null(sl__to_date("5874897-12-31", 13, &day)); /* the last one of PostgreSQL */
	assert_int_equal(day, 2145042905);
	assert_null(sl__to_date("infinity", 8, &day));
	assert_int_equal(day, INT32_MAX);
	assert_null(sl__to_date("-infinity", 9, &day));
	assert_int_equal(day, -INT32_MAX);
	/* A column of local times has no place for a zone. */
	assert_null(sl__to_timestamp("2024-02-29 15:04:05", 19, &micros_local, &memo, &v));
	assert_int_equal(v, 1709219045000000);
	assert_non_null(sl__to_timestamp("2024-02-29 15:04:05Z", 20, &micros_local, &memo, &v));
	assert_non_null(sl__to_timestamp("2024-02-29 15:04:05+00", 22, &micros_local, &memo, &v));
}

/* ---- rows ---- */

static const struct sl_parquet_column columns[] = {
	{.name = "n", .kind = SL_PARQUET_INT64},
	{.name = "ok", .kind = SL_PARQUET_BOOL, .nullable = true},
	{.name = "text", .kind = SL_PARQUET_STRING, .nullable = true},
	{.name = "raw", .kind = SL_PARQUET_BINARY, .nullable = true},
	{.name = "id", .kind = SL_PARQUET_FIXED, .length = 2, .nullable = true},
};
static const char *const names[] = {"n", "ok", "text", "raw", "id"};
static const size_t in_place[] = {0, 1, 2, 3, 4};
static const struct sl__table_columns all_columns = {columns, 5, in_place};

struct rows {
	struct sl_env env;
	struct sl__row_reader *reader;
	struct sl__table batch;
};

static void open_rows(struct rows *r, bool csv, size_t max)
{
	const struct sl__row_opts opts = {.csv = csv, .columns = names, .n_columns = 5};
	*r = (struct rows){.reader = NULL};
	assert_int_equal(sl__env_init(&r->env, NULL, NULL), 0);
	assert_int_equal(sl__row_reader_new(&r->reader, &opts, NULL), 0);
	assert_int_equal(sl__table_init(&r->batch, &r->env, &all_columns, max, NULL), 0);
}

static void close_rows(struct rows *r)
{
	sl__table_fini(&r->batch);
	sl__row_reader_free(r->reader);
}

static int add(struct rows *r, const char *record, struct sl_err *err)
{
	struct sl__field f[5];
	int rc = sl__row_read(r->reader, record, strlen(record), f, err);
	return rc != 0 ? rc : sl__table_add(&r->batch, f, err);
}

static void rows_become_arrays_of_their_columns(void **state)
{
	(void)state;
	struct rows r;
	open_rows(&r, false, 100);
	assert_int_equal(add(&r, "{\"n\":1,\"ok\":true,\"text\":\"a\\nb\",\"raw\":\"\\\\x00ff\",\"id\":\"xy\"}", NULL),
			 0);
	assert_int_equal(add(&r, "{\"text\":{\"a\": [1]},\"n\":2,\"id\":\"\\\\x0102\"}", NULL), 0);
	assert_int_equal(add(&r, "{\"n\":\"3\",\"ok\":null,\"text\":1.50,\"raw\":\"plain\"}", NULL), 0);
	const struct sl_parquet_values *v = sl__table_values(&r.batch);
	assert_int_equal(r.batch.n, 3);
	assert_null(v[0].nulls);
	assert_int_equal(((const int64_t *)v[0].values)[2], 3);
	assert_memory_equal(v[1].nulls, "\0\1\1", 3);
	assert_int_equal(((const uint8_t *)v[1].values)[0], 1);
	const struct sl_parquet_bytes *text = v[2].values, *raw = v[3].values;
	assert_memory_equal(text[0].data, "a\nb", 3);
	assert_memory_equal(text[1].data, "{\"a\": [1]}", 10);
	assert_int_equal(text[2].len, 4);
	assert_memory_equal(text[2].data, "1.50", 4);
	assert_int_equal(raw[0].len, 2);
	assert_memory_equal(raw[0].data, "\0\xff", 2);
	assert_memory_equal(raw[2].data, "plain", 5);
	assert_memory_equal(v[4].values, "xy\1\2", 4);
	close_rows(&r);
}

static void text_of_the_input_is_not_copied(void **state)
{
	(void)state;
	static const char record[] = "1,t,hello,,ab";
	struct rows r;
	open_rows(&r, true, 100);
	sl__table_input(&r.batch, record, record + sizeof(record) - 1);
	assert_int_equal(add(&r, record, NULL), 0);
	const struct sl_parquet_bytes *text = sl__table_values(&r.batch)[2].values;
	assert_ptr_equal(text[0].data, record + 4);
	assert_int_equal(text[0].len, 5);
	close_rows(&r);
}

static void a_row_that_does_not_fit_names_its_column_and_leaves_nothing(void **state)
{
	(void)state;
	static const struct {
		const char *record, *message;
	} bad[] = {
		{",t,a,b,cd", "column n: NULL in a required column"},
		{"x,t,a,b,cd", "column n: not an integer: \"x\""},
		{"1,yes,a,b,cd", "column ok: neither true nor false: \"yes\""},
		{"1,t,a,\\x0,cd", "column raw: not hexadecimal digits after \\x: \"\\x0\""},
		{"1,t,a,b,c", "column id: wrong length: the column has a fixed number of bytes: \"c\""},
	};
	struct rows r;
	open_rows(&r, true, 100);
	for (size_t i = 0; i < SL_COUNT(bad); i++) {
		struct sl_err err = SL_ERR_INIT;
		assert_int_equal(add(&r, bad[i].record, &err), SL_EDATA);
		assert_string_equal(err.msg, bad[i].message);
		assert_int_equal(r.batch.n, 0);
		assert_int_equal(r.batch.bytes, 0);
	}
	assert_int_equal(add(&r, "1,,,,", NULL), 0);
	assert_int_equal(add(&r, "2,,\"\",,", NULL), 0);
	const struct sl_parquet_values *v = sl__table_values(&r.batch);
	assert_memory_equal(v[2].nulls, "\1\0", 2);
	assert_int_equal(r.batch.n, 2);
	close_rows(&r);
}

static void arrays_grow_and_are_used_again(void **state)
{
	(void)state;
	struct rows r;
	char record[64];
	open_rows(&r, true, 10000);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 10000; i++) {
			(void)snprintf(record, sizeof(record), "%d,%s,%d,%s,zz", i, i % 2 ? "t" : "", i,
				       i % 3 ? "q" : "");
			assert_int_equal(add(&r, record, NULL), 0);
		}
		const struct sl_parquet_values *v = sl__table_values(&r.batch);
		const struct sl_parquet_bytes *text = v[2].values;
		assert_memory_equal(text[9999].data, "9999", 4);
		assert_memory_equal(text[17].data, "17", 2);
		assert_int_equal(v[3].nulls[9999], 1);
		assert_int_equal(v[3].nulls[9998], 0);
		sl__table_clear(&r.batch);
		assert_null(sl__table_values(&r.batch)[3].nulls);
	}
	close_rows(&r);
}

static void without_memory_a_row_fails_and_nothing_leaks(void **state)
{
	(void)state;
	struct fault fault;
	struct sl__field f[5] = {{.text = "1", .len = 1, .kind = SL__FIELD_TEXT}};
	f[2] = (struct sl__field){.text = "abc", .len = 3, .kind = SL__FIELD_TEXT};
	fault_init(&fault, NULL);
	struct sl_env given = fault_env(&fault, NULL), env;
	assert_int_equal(sl__env_init(&env, &given, NULL), 0);
	int64_t failed = 1, at = 1;
	for (; failed > 0; at++) {
		struct sl__table b;
		fault_arm_mem(&fault, at, FAULT_ONCE);
		int rc = sl__table_init(&b, &env, &all_columns, 10, NULL);
		if (rc == 0) {
			rc = sl__table_add(&b, f, NULL);
			sl__table_fini(&b);
		}
		failed = fault_mem_failed(&fault);
		assert_int_equal(rc, failed > 0 ? SL_ENOMEM : 0);
		assert_int_equal(fault_live_allocs(&fault), 0);
	}
	assert_true(at > 5);
	fault_fini(&fault);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(integers_are_exact_to_their_last_bit),
		cmocka_unit_test(doubles_are_the_nearest_ones),
		cmocka_unit_test(decimals_lose_no_digit),
		cmocka_unit_test(times_are_moments_in_the_columns_unit),
		cmocka_unit_test(rows_become_arrays_of_their_columns),
		cmocka_unit_test(text_of_the_input_is_not_copied),
		cmocka_unit_test(a_row_that_does_not_fit_names_its_column_and_leaves_nothing),
		cmocka_unit_test(arrays_grow_and_are_used_again),
		cmocka_unit_test(without_memory_a_row_fails_and_nothing_leaks),
	};
	return cmocka_run_group_tests_name("export_convert", tests, NULL, NULL);
}
