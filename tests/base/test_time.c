/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/time.h"

static void times_are_rfc_3339_in_utc(void **state)
{
	(void)state;
	static const struct {
		int64_t ms;
		const char *text;
	} rows[] = {
		{0, "1970-01-01T00:00:00.000Z"},
		{-1, "1969-12-31T23:59:59.999Z"},
		{951782400000, "2000-02-29T00:00:00.000Z"},
		{1709251199999, "2024-02-29T23:59:59.999Z"},
		{4107542400000, "2100-03-01T00:00:00.000Z"},
		{SL__TIME_MIN_MS, "0001-01-01T00:00:00.000Z"},
		{SL__TIME_MAX_MS, "9999-12-31T23:59:59.999Z"},
		{SL__TIME_MAX_MS + 1, "10000-01-01T00:00:00.000Z"},
	};
	for (size_t i = 0; i < SL_COUNT(rows); i++) {
		char text[SL__TIME_BYTES];
		assert_int_equal(sl__time_text(text, rows[i].ms), strlen(rows[i].text));
		assert_string_equal(text, rows[i].text);
	}
}

static void every_number_of_milliseconds_fits(void **state)
{
	(void)state;
	char text[SL__TIME_BYTES];
	assert_true(sl__time_text(text, INT64_MAX) < sizeof(text));
	assert_string_equal(text, "292278994-08-17T07:12:55.807Z");
	assert_true(sl__time_text(text, INT64_MIN) < sizeof(text));
}

static void fields_agree_with_the_c_library(void **state)
{
	(void)state;
	for (int64_t s = -62135596800; s < 253402300800; s += 86400 * 13 + 12345) {
		time_t t = (time_t)s;
		struct tm want, got = sl__utc(s);
		assert_non_null(gmtime_r(&t, &want));
		if (got.tm_year != want.tm_year || got.tm_mon != want.tm_mon || got.tm_mday != want.tm_mday ||
		    got.tm_hour != want.tm_hour || got.tm_min != want.tm_min || got.tm_sec != want.tm_sec)
			fail_msg("%lld s: %d-%d-%d", (long long)s, got.tm_year, got.tm_mon, got.tm_mday);
	}
}

static void the_clocks_are_the_systems(void **state)
{
	(void)state;
	struct timespec now;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	int64_t real = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000, mono = sl__clock_ms();
	assert_true(sl__clock_real_ms() >= real - 1000);
	assert_true(sl__clock_real_ms() < real + 600000);
	assert_true(sl__clock_ms() >= mono);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(times_are_rfc_3339_in_utc),
		cmocka_unit_test(every_number_of_milliseconds_fits),
		cmocka_unit_test(fields_agree_with_the_c_library),
		cmocka_unit_test(the_clocks_are_the_systems),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
