/* SPDX-License-Identifier: Apache-2.0 */
/* Unix times as UTC text, without the time zone lock of gmtime_r. */
#include "base/time.h"

#include <stdio.h>

#define DAY_S 86400
#define DAYS_PER_ERA 146097 /* 400 years of the Gregorian calendar */
#define EPOCH_DAY 719468    /* 1970-01-01, counted from 0000-03-01 */

/* Years are counted from March, so that the leap day is the last of its year. */
struct tm sl__utc(int64_t seconds)
{
	int64_t day = sl__floor_div(seconds, DAY_S), of_day = seconds - day * DAY_S;
	int64_t era = sl__floor_div(day + EPOCH_DAY, DAYS_PER_ERA), of_era = day + EPOCH_DAY - era * DAYS_PER_ERA;
	int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
	int64_t of_year = of_era - (365 * year + year / 4 - year / 100);
	int64_t month = (5 * of_year + 2) / 153; /* 0: March */
	return (struct tm){.tm_year = (int)(year + era * 400 + (month >= 10) - 1900),
			   .tm_mon = (int)(month < 10 ? month + 2 : month - 10),
			   .tm_mday = (int)(of_year - (153 * month + 2) / 5 + 1),
			   .tm_hour = (int)(of_day / 3600),
			   .tm_min = (int)(of_day / 60 % 60),
			   .tm_sec = (int)(of_day % 60)};
}

size_t sl__time_text(char to[SL__TIME_BYTES], int64_t unix_ms)
{
	int64_t seconds = sl__floor_div(unix_ms, 1000);
	struct tm tm = sl__utc(seconds);
	/* The remainders let the compiler see that two digits are enough. */
	int n = snprintf(to, SL__TIME_BYTES, "%04d-%02u-%02uT%02u:%02u:%02u.%03uZ", tm.tm_year + 1900,
			 (unsigned)(tm.tm_mon + 1) % 100, (unsigned)tm.tm_mday % 100, (unsigned)tm.tm_hour % 100,
			 (unsigned)tm.tm_min % 100, (unsigned)tm.tm_sec % 100,
			 (unsigned)(unix_ms - seconds * 1000) % 1000);
	return (size_t)n;
}

static int64_t read_ms(clockid_t clock)
{
	struct timespec t;
	(void)clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t sl__clock_ms(void)
{
	return read_ms(CLOCK_MONOTONIC);
}

int64_t sl__clock_real_ms(void)
{
	return read_ms(CLOCK_REALTIME);
}
