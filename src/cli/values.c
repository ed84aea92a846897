/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, durations, sizes and times, parsed from text. */
#include "values.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct unit {
	const char *name;
	int64_t factor;
};

/* Largest first, so that the first that divides is the shortest way to write. */
static const struct unit duration_units[] = {{"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};
static const struct unit size_units[] = {
	{"TiB", (int64_t)1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}};

enum { DURATION_UNITS = sizeof(duration_units) / sizeof(duration_units[0]) };
enum { SIZE_UNITS = sizeof(size_units) / sizeof(size_units[0]) };

/* A decimal number at the start of text; *rest is what follows. */
static int leading_number(const char *text, int64_t *out, const char **rest)
{
	char *end;
	long long v;

	if (*text != '-' && (*text < '0' || *text > '9'))
		return -1; /* strtoll would take blanks and a plus */
	errno = 0;
	v = strtoll(text, &end, 10);
	if (errno || end == text)
		return -1;
	*out = v;
	*rest = end;
	return 0;
}

int value_int(const char *text, int64_t *out)
{
	const char *rest;
	int64_t v;

	if (leading_number(text, &v, &rest) || *rest)
		return -1;
	*out = v;
	return 0;
}

static int with_unit(const char *text, const struct unit *units, int n, int64_t *out)
{
	const char *rest;
	int64_t v, scaled;

	if (leading_number(text, &v, &rest))
		return -1;
	/* A number that overflows with its unit is refused, never wrapped. */
	for (int i = 0; i < n; i++) {
		if (strcmp(rest, units[i].name) == 0) {
			if (__builtin_mul_overflow(v, units[i].factor, &scaled))
				return -1;
			*out = scaled;
			return 0;
		}
	}
	return -1;
}

int value_duration(const char *text, int64_t *out_ms)
{
	if (strcmp(text, "0") == 0) {
		*out_ms = 0;
		return 0;
	}
	return with_unit(text, duration_units, DURATION_UNITS, out_ms);
}

int value_size(const char *text, int64_t *out_bytes)
{
	return with_unit(text, size_units, SIZE_UNITS, out_bytes);
}

/* strptime also takes what people do not write: digits must stand where the pattern has them. */
static bool has_form(const char *text, const char *pattern)
{
	for (; *pattern; pattern++, text++) {
		if (*pattern == '0' ? *text < '0' || *text > '9' : *text != *pattern)
			return false;
	}
	return *text == '\0';
}

static int calendar(const char *text, const char *format, int64_t *out_ms)
{
	struct tm tm, again;
	time_t t;

	memset(&tm, 0, sizeof(tm));
	if (strptime(text, format, &tm) == NULL)
		return -1;
	/* timegm normalises: a day that does not exist becomes another one. */
	again = tm;
	t = timegm(&again);
	if (again.tm_mday != tm.tm_mday || again.tm_mon != tm.tm_mon)
		return -1; /* 31 February */
	*out_ms = (int64_t)t * 1000;
	return 0;
}

int value_time(const char *text, int64_t now_ms, int64_t *out_ms)
{
	int64_t ago;

	if (has_form(text, "0000-00-00"))
		return calendar(text, "%Y-%m-%d", out_ms);
	if (has_form(text, "0000-00-00T00:00:00Z"))
		return calendar(text, "%Y-%m-%dT%H:%M:%SZ", out_ms);
	/* Anything else is a duration before now. */
	if (value_duration(text, &ago) || ago < 0 || ago > now_ms)
		return -1;
	*out_ms = now_ms - ago;
	return 0;
}

static const char *write_unit(char to[32], int64_t v, const struct unit *units, int n)
{
	int i = 0;

	/* The largest unit that divides it. */
	while (i < n - 1 && v % units[i].factor != 0)
		i++;
	if (v == 0)
		i = n - 1;
	snprintf(to, 32, "%lld%s", (long long)(v / units[i].factor), units[i].name);
	return to;
}

const char *value_write_size(char to[32], int64_t bytes)
{
	return write_unit(to, bytes, size_units, SIZE_UNITS);
}

const char *value_write_duration(char to[32], int64_t ms)
{
	return write_unit(to, ms, duration_units, DURATION_UNITS);
}
