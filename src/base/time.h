/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unix times as UTC text and calendar fields, and the system's clocks for programs that have no environment of their
 * own. The library reads clocks through its environment (base/env.h).
 *
 * Thread safety: all; no lock is taken, unlike gmtime_r.
 */
#ifndef SL_BASE_TIME_H
#define SL_BASE_TIME_H

#include <time.h>

#include "base/base.h"

/* What four digits of a year can express. */
#define SL__TIME_MIN_MS (-62135596800000) /* 0001-01-01T00:00:00.000Z */
#define SL__TIME_MAX_MS 253402300799999   /* 9999-12-31T23:59:59.999Z */
#define SL__TIME_BYTES 40                 /* a time as text, its NUL included */

/* a / b, rounded down; b > 0. */
static inline int64_t sl__floor_div(int64_t a, int64_t b)
{
	return a / b - (a % b < 0);
}

/* The calendar fields of a Unix time in UTC; tm_wday and tm_yday are not set. The year must fit tm_year, as it does for
 * every number of milliseconds. */
struct tm sl__utc(int64_t seconds);
/* RFC 3339 in UTC with milliseconds: 2026-11-18T09:30:00.125Z. Years past 9999 get as many digits as they need. Returns
 * the length. */
size_t sl__time_text(char to[SL__TIME_BYTES], int64_t unix_ms);

int64_t sl__clock_ms(void);      /* CLOCK_MONOTONIC */
int64_t sl__clock_real_ms(void); /* CLOCK_REALTIME */

#endif
