/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/env.h"

/* 2023-11-14T22:13:20.123Z */
#define SOME_MS 1700000000123

static const char *format(enum sl_log_format how, const struct sl_log_record *r, char out[2048])
{
	size_t n = sl_log_format(r, how, out, 2048);
	assert_int_equal(n, strlen(out));
	return out;
}

/* One string field named k, without the head of the line. */
static const char *one_value(enum sl_log_format how, const char *value, char out[2048])
{
	const struct sl_log_field field = SL__F_STR("k", value);
	const struct sl_log_record r = {SL_LOG_INFO, SOME_MS, "c", "m", &field, 1};
	const char *at = strstr(format(how, &r, out), how == SL_LOG_JSON ? "\"k\":" : " k=");
	assert_non_null(at);
	return at + (how == SL_LOG_JSON ? 4 : 3);
}

static void logfmt_has_time_level_component_message_and_fields(void **state)
{
	(void)state;
	char out[2048];
	const struct sl_log_field fields[] = {SL__F_STR("segment", "job-7.wal"), SL__F_U64("offset", UINT64_MAX),
					      SL__F_I64("delta", -5), SL__F_HEX("crc", 0xAB)};
	const struct sl_log_record r = {SL_LOG_WARN, SOME_MS, "wal", "torn tail trimmed", fields, SL_COUNT(fields)};
	assert_string_equal(format(SL_LOG_LOGFMT, &r, out),
			    "ts=2023-11-14T22:13:20.123Z level=warn component=wal msg=\"torn tail trimmed\" "
			    "segment=job-7.wal offset=18446744073709551615 delta=-5 crc=0x00000000000000ab");
}

static void json_has_the_same_in_the_same_order(void **state)
{
	(void)state;
	char out[2048];
	const struct sl_log_field fields[] = {SL__F_STR("segment", "job-7.wal"), SL__F_U64("offset", UINT64_MAX),
					      SL__F_I64("delta", -5), SL__F_HEX("crc", 0xAB), SL__F_STR("none", NULL)};
	const struct sl_log_record r = {SL_LOG_ERROR, SOME_MS, "wal", "torn tail trimmed", fields, SL_COUNT(fields)};
	assert_string_equal(
		format(SL_LOG_JSON, &r, out),
		"{\"ts\":\"2023-11-14T22:13:20.123Z\",\"level\":\"error\",\"component\":\"wal\",\"msg\":\"torn tail "
		"trimmed\",\"segment\":\"job-7.wal\",\"offset\":18446744073709551615,\"delta\":-5,"
		"\"crc\":\"0x00000000000000ab\",\"none\":null}");
}

static void logfmt_quotes_exactly_what_needs_quotes(void **state)
{
	(void)state;
	char out[2048];
	static const char *const rows[][2] = {
		{"plain-value_1.2/3:4,5", "plain-value_1.2/3:4,5"},
		{"", "\"\""},
		{"two words", "\"two words\""},
		{"a=b", "\"a=b\""},
		{"say \"hi\"", "\"say \\\"hi\\\"\""},
		{"back\\slash", "\"back\\\\slash\""},
		{"line\nbreak\r\ttab", "\"line\\nbreak\\r\\ttab\""},
		{"\x1b[31mred\x7f", "\"\\u001b[31mred\\u007f\""},
		{"c1\xC2\x9B", "\"c1\\u009b\""},
		{"grüße–日本🙂", "grüße–日本🙂"},
		{"bad\xFFutf", "\"bad\\xffutf\""},
		{"half\xE6\x97", "\"half\\xe6\\x97\""},
	};
	for (size_t i = 0; i < SL_COUNT(rows); i++)
		assert_string_equal(one_value(SL_LOG_LOGFMT, rows[i][0], out), rows[i][1]);
	assert_string_equal(one_value(SL_LOG_LOGFMT, NULL, out), "null");
}

static void a_logfmt_key_cannot_break_the_line(void **state)
{
	(void)state;
	char out[2048];
	const struct sl_log_field fields[] = {SL__F_I64("a b=c\"d\n\xFF", 1), SL__F_I64("", 2), SL__F_I64(NULL, 3)};
	const struct sl_log_record r = {SL_LOG_INFO, SOME_MS, "c", "m", fields, SL_COUNT(fields)};
	assert_non_null(strstr(format(SL_LOG_LOGFMT, &r, out), " msg=m a_b_c_d__=1 _=2 _=3"));
}

static void json_escapes_and_replaces_what_is_not_utf8(void **state)
{
	(void)state;
	char out[2048];
	static const char *const rows[][2] = {
		{"q\"b\\n\nt\tr\r", "\"q\\\"b\\\\n\\nt\\tr\\r\"}"},
		{"\x01\x1f\x7f", "\"\\u0001\\u001f\\u007f\"}"},
		{"grüße🙂", "\"grüße🙂\"}"},
		{"\xFF", "\"\xEF\xBF\xBD\"}"},
		{"\xC0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\"}"},                                   /* an overlong NUL */
		{"\xED\xA0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"}"},                   /* a surrogate */
		{"\xF4\x90\x80\x80x", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDx\"}"}, /* beyond U+10FFFF */
		{"cut\xF0\x9F", "\"cut\xEF\xBF\xBD\xEF\xBF\xBD\"}"},
	};
	for (size_t i = 0; i < SL_COUNT(rows); i++)
		assert_string_equal(one_value(SL_LOG_JSON, rows[i][0], out), rows[i][1]);
}

/* Every kind of trouble in one record; jansson reads integers up to INT64_MAX only. */
static const struct sl_log_field wild_fields[] = {
	SL__F_STR("pa\"th\n", "a \"b\" \\ \n\x01 \xFF grüße 日本 🙂 \xF0\x9F"),
	SL__F_U64("offset", INT64_MAX),
	SL__F_STR("n", NULL),
	SL__F_HEX("crc", 7),
	SL__F_STR("", ""),
	SL__F_I64("min", INT64_MIN),
	SL__F_STR("z", "end")};
static const struct sl_log_record wild = {SL_LOG_DEBUG,
					  SOME_MS,
					  "q=u eue",
					  "m\xC3\xA4"
					  "ssage \"x\"",
					  wild_fields,
					  SL_COUNT(wild_fields)};

static void json_is_valid_at_every_size(void **state)
{
	(void)state;
	char whole[2048];
	size_t full = sl_log_format(&wild, SL_LOG_JSON, whole, sizeof(whole));
	for (size_t size = 3; size <= full + 1; size++) {
		char *out = malloc(size); /* exact, for a sanitizer */
		assert_non_null(out);
		size_t n = sl_log_format(&wild, SL_LOG_JSON, out, size);
		assert_int_equal(n, strlen(out));
		assert_true(n < size);
		json_error_t why;
		json_t *parsed = json_loads(out, JSON_REJECT_DUPLICATES, &why);
		if (parsed == NULL)
			fail_msg("size %zu: %s: %s", size, why.text, out);
		json_decref(parsed);
		free(out);
	}
	char out[2048];
	assert_int_equal(sl_log_format(&wild, SL_LOG_JSON, out, full + 1), full);
	assert_string_equal(out, whole);
}

static void logfmt_closes_its_quotes_at_every_size(void **state)
{
	(void)state;
	char whole[2048];
	size_t full = sl_log_format(&wild, SL_LOG_LOGFMT, whole, sizeof(whole));
	for (size_t size = 1; size <= full + 1; size++) {
		char *out = malloc(size);
		assert_non_null(out);
		size_t n = sl_log_format(&wild, SL_LOG_LOGFMT, out, size);
		assert_int_equal(n, strlen(out));
		bool open = false;
		for (size_t i = 0; i < n; i++) {
			assert_true((unsigned char)out[i] >= 0x20);
			if (open && out[i] == '\\')
				i++;
			else if (out[i] == '"')
				open = !open;
		}
		assert_false(open);
		/* Cut at a character boundary: the bytes decode as JSON text does. */
		json_t *text = json_stringn(out, n);
		assert_non_null(text);
		json_decref(text);
		free(out);
	}
}

static void a_cut_keeps_as_much_as_fits(void **state)
{
	(void)state;
	char out[2048];
	const struct sl_log_field field = SL__F_STR("k", "0123456789");
	const struct sl_log_record r = {SL_LOG_INFO, SOME_MS, "c", "m", &field, 1};
	size_t full = sl_log_format(&r, SL_LOG_JSON, out, sizeof(out));
	assert_int_equal(sl_log_format(&r, SL_LOG_JSON, out, full + 1 - 4), full - 4);
	assert_string_equal(strstr(out, "\"k\""), "\"k\":\"012345\"}");
	assert_int_equal(sl_log_format(&r, SL_LOG_JSON, out, full + 1 - 10), full - 10);
	assert_string_equal(strstr(out, "\"k\""), "\"k\":\"\"}");
	(void)sl_log_format(&r, SL_LOG_JSON, out, full + 1 - 11);
	assert_null(strstr(out, "\"k\"")); /* no key without a value */
}

static void a_buffer_too_small_for_anything_is_left_empty(void **state)
{
	(void)state;
	char out[3] = "xx";
	assert_int_equal(sl_log_format(&wild, SL_LOG_JSON, out, 0), 0);
	assert_string_equal(out, "xx");
	assert_int_equal(sl_log_format(&wild, SL_LOG_JSON, out, 2), 0);
	assert_string_equal(out, "");
	assert_int_equal(sl_log_format(&wild, SL_LOG_JSON, out, 3), 2);
	assert_string_equal(out, "{}");
}

static void times_are_right_from_year_1_to_9999(void **state)
{
	(void)state;
	static const struct {
		int64_t ms;
		const char *text;
	} rows[] = {
		{0, "1970-01-01T00:00:00.000Z"},
		{-1, "1969-12-31T23:59:59.999Z"},
		{951782399999, "2000-02-28T23:59:59.999Z"},
		{951782400000, "2000-02-29T00:00:00.000Z"},
		{1709164800000, "2024-02-29T00:00:00.000Z"},
		{4107542399000, "2100-02-28T23:59:59.000Z"},
		{4107542400000, "2100-03-01T00:00:00.000Z"},
		{253402300799999, "9999-12-31T23:59:59.999Z"},
		{INT64_MAX, "9999-12-31T23:59:59.999Z"},
		{-62135596800000, "0001-01-01T00:00:00.000Z"},
		{INT64_MIN, "0001-01-01T00:00:00.000Z"},
	};
	for (size_t i = 0; i < SL_COUNT(rows); i++) {
		char out[2048];
		struct sl_log_record r = {
			.level = SL_LOG_INFO, .time_ms = rows[i].ms, .component = "c", .message = "m"};
		assert_memory_equal(format(SL_LOG_LOGFMT, &r, out) + 3, rows[i].text, 24);
	}
}

static void times_agree_with_the_c_library_on_every_day_of_500_years(void **state)
{
	(void)state;
	for (int64_t day = -25567; day <= 157053; day++) { /* 1900 to 2399 */
		char out[40], expected[40];
		time_t seconds = (time_t)(day * 86400);
		struct tm tm;
		assert_non_null(gmtime_r(&seconds, &tm));
		(void)snprintf(expected, sizeof(expected), "ts=%04d-%02d-%02d", tm.tm_year + 1900, tm.tm_mon + 1,
			       tm.tm_mday);
		struct sl_log_record r = {.level = SL_LOG_INFO, .time_ms = day * 86400000};
		(void)sl_log_format(&r, SL_LOG_LOGFMT, out, sizeof(out));
		if (memcmp(out, expected, 13) != 0)
			fail_msg("%s, expected %s", out, expected);
	}
}

static void levels_have_names(void **state)
{
	(void)state;
	assert_string_equal(sl_log_level_name(SL_LOG_DEBUG), "debug");
	assert_string_equal(sl_log_level_name(SL_LOG_INFO), "info");
	assert_string_equal(sl_log_level_name(SL_LOG_WARN), "warn");
	assert_string_equal(sl_log_level_name(SL_LOG_ERROR), "error");
	assert_string_equal(sl_log_level_name((enum sl_log_level)99), "unknown");
}

struct seen {
	int count;
	struct sl_log_record last;
	uint64_t number;
};

static void remember(const struct sl_log_record *record, void *ctx)
{
	struct seen *seen = ctx;
	seen->count++;
	seen->last = *record;
	seen->number = record->n_fields > 0 ? record->fields[0].num : 0;
}

static void records_below_the_level_are_not_made(void **state)
{
	(void)state;
	struct seen seen = {0};
	const struct sl_env wanted = {SL_ENV_INIT, .log = remember, .log_ctx = &seen};
	struct sl_env env;
	assert_int_equal(sl__env_init(&env, &wanted, NULL), 0);
	sl__log(&env, SL_LOG_DEBUG, "c", "quiet", SL__F_U64("n", 1));
	assert_int_equal(seen.count, 0); /* the default level is info */
	sl__log(&env, SL_LOG_INFO, "c", "said", SL__F_U64("n", 42), SL__F_STR("s", "x"));
	assert_int_equal(seen.count, 1);
	assert_int_equal(seen.last.n_fields, 2);
	assert_int_equal(seen.number, 42);
	assert_string_equal(seen.last.message, "said");
	assert_true(seen.last.time_ms > 1600000000000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(logfmt_has_time_level_component_message_and_fields),
		cmocka_unit_test(json_has_the_same_in_the_same_order),
		cmocka_unit_test(logfmt_quotes_exactly_what_needs_quotes),
		cmocka_unit_test(a_logfmt_key_cannot_break_the_line),
		cmocka_unit_test(json_escapes_and_replaces_what_is_not_utf8),
		cmocka_unit_test(json_is_valid_at_every_size),
		cmocka_unit_test(logfmt_closes_its_quotes_at_every_size),
		cmocka_unit_test(a_cut_keeps_as_much_as_fits),
		cmocka_unit_test(a_buffer_too_small_for_anything_is_left_empty),
		cmocka_unit_test(times_are_right_from_year_1_to_9999),
		cmocka_unit_test(times_agree_with_the_c_library_on_every_day_of_500_years),
		cmocka_unit_test(levels_have_names),
		cmocka_unit_test(records_below_the_level_are_not_made),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
