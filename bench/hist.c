/* SPDX-License-Identifier: Apache-2.0 */
/* Latencies and medians. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static unsigned bucket_of(uint64_t ns)
{
	if (ns < HIST_STEPS)
		return (unsigned)ns;
	unsigned shift = 63U - (unsigned)__builtin_clzll(ns) - 6U;
	unsigned at = (shift + 1) * HIST_STEPS + (unsigned)((ns >> shift) - HIST_STEPS);
	return at < HIST_BUCKETS ? at : HIST_BUCKETS - 1;
}

/* The middle of a bucket, in nanoseconds. */
static double bucket_value(unsigned at)
{
	if (at < HIST_STEPS)
		return at;
	unsigned shift = at / HIST_STEPS - 1;
	double low = (double)((uint64_t)(at % HIST_STEPS + HIST_STEPS) << shift);
	return low + (double)(1ULL << shift) / 2;
}

void hist_add(struct hist *h, uint64_t ns)
{
	h->count++;
	h->bucket[bucket_of(ns)]++;
}

void hist_merge(struct hist *to, const struct hist *from)
{
	to->count += from->count;
	for (unsigned i = 0; i < HIST_BUCKETS; i++)
		to->bucket[i] += from->bucket[i];
}

double hist_quantile_us(const struct hist *h, double q)
{
	uint64_t below = 0, target = (uint64_t)((double)h->count * q);
	for (unsigned i = 0; i < HIST_BUCKETS; i++) {
		below += h->bucket[i];
		if (below > target)
			return bucket_value(i) / 1000;
	}
	return 0;
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

double median(const double *values, int n)
{
	double sorted[MAX_ROUNDS];
	if (n <= 0)
		return 0;
	memcpy(sorted, values, (size_t)n * sizeof(*sorted));
	qsort(sorted, (size_t)n, sizeof(*sorted), by_value);
	return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}
