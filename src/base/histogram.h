/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log-linear buckets over all of uint64: zero, then each power of two split in eight. A bucket ends at its highest
 * value and includes it, so that every power of two is an exact bound ("at most 1024"). 0 to 16 have a bucket each;
 * above, a bucket is at most 1/8 of its lowest value wide, and its middle is within 1/16 of every value in it.
 *
 * Thread safety: add and read from any thread (relaxed atomics, spread over shards by thread).
 */
#ifndef SL_BASE_HISTOGRAM_H
#define SL_BASE_HISTOGRAM_H

#include <pthread.h>

#include "base/base.h"

#define SL__HIST_BUCKETS 497
#define SL__HIST_SHARD_BITS 2

struct sl__hist_shard {
	uint64_t buckets[SL__HIST_BUCKETS];
	uint64_t sum;
	char pad[64]; /* no line is shared with the next shard */
};

struct sl__hist {
	struct sl__hist_shard shards[1 << SL__HIST_SHARD_BITS];
};

/* One reading of all shards. */
struct sl__hist_view {
	uint64_t buckets[SL__HIST_BUCKETS];
	uint64_t count; /* of the buckets above: they always agree */
	uint64_t sum;
};

/* A number below 2^bits that mostly differs between threads and stays the same within one. The handles of threads are
 * addresses a stack apart; the multiplication spreads them. */
static inline size_t sl__thread_shard(unsigned bits)
{
	return (size_t)((uint64_t)pthread_self() * 0x9E3779B97F4A7C15 >> (64 - bits));
}

size_t sl__hist_index(uint64_t value);
/* The lowest and highest value of a bucket. */
uint64_t sl__hist_low(size_t index);
uint64_t sl__hist_high(size_t index);

void sl__hist_add(struct sl__hist *h, uint64_t value);
void sl__hist_read(const struct sl__hist *h, struct sl__hist_view *out);
/* The middle of the bucket that holds the value of rank ceil(q * count); 0 when empty. q outside 0…1 is cut. */
uint64_t sl__hist_quantile(const struct sl__hist_view *v, double q);

#endif
