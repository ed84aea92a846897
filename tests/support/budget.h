/* SPDX-License-Identifier: Apache-2.0 */
/* How far a loop of a test goes: so long on the clock, or as an environment variable says (docs/testing.md, Sizes). */
#ifndef TESTS_SUPPORT_BUDGET_H
#define TESTS_SUPPORT_BUDGET_H

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

/* The monotonic clock. */
static inline double seconds_now(void)
{
	struct timespec ts;
	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* SLUICE_TEST_SECONDS, or what the test takes by itself. */
static inline double test_seconds(double standard)
{
	const char *text = getenv("SLUICE_TEST_SECONDS");
	return text != NULL && *text != '\0' ? strtod(text, NULL) : standard;
}

/* The number that the variable holds, or standard. */
static inline uint64_t test_number(const char *variable, uint64_t standard)
{
	const char *text = getenv(variable);
	return text != NULL && *text != '\0' ? strtoull(text, NULL, 10) : standard;
}

#endif
