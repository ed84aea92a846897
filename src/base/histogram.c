/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bucket 0 is the value 0. For a value v > 0 let w = v - 1, so that bounds are inclusive at the upper end:
 *
 *      w            bucket                 values per bucket
 *      0 … 7        1 + w                  1
 *      2^e + …      1 + 8 (e - 2) + the three bits of w below its highest, e >= 3       2^(e-3)
 */
#include "base/histogram.h"

#define SUB_BITS 3
#define SUBS 8

size_t sl__hist_index(uint64_t value)
{
	if (value <= SUBS)
		return (size_t)value;
	uint64_t w = value - 1;
	unsigned e = 63 - (unsigned)__builtin_clzll(w);
	return 1 + (size_t)(e - SUB_BITS + 1) * SUBS + (size_t)(w >> (e - SUB_BITS) & (SUBS - 1));
}

uint64_t sl__hist_low(size_t index)
{
	return index == 0 ? 0 : sl__hist_high(index - 1) + 1;
}

uint64_t sl__hist_high(size_t index)
{
	if (index <= SUBS)
		return index;
	size_t row = (index - 1) / SUBS, sub = (index - 1) % SUBS;
	uint64_t high = (uint64_t)(SUBS + sub + 1) << (row - 1);
	return high != 0 ? high : UINT64_MAX; /* the last bucket would end at 2^64 */
}

void sl__hist_add(struct sl__hist *h, uint64_t value)
{
	struct sl__hist_shard *s = &h->shards[sl__thread_shard(SL__HIST_SHARD_BITS)];
	(void)__atomic_fetch_add(&s->buckets[sl__hist_index(value)], 1, __ATOMIC_RELAXED);
	(void)__atomic_fetch_add(&s->sum, value, __ATOMIC_RELAXED);
}

void sl__hist_read(const struct sl__hist *h, struct sl__hist_view *out)
{
	memset(out, 0, sizeof(*out));
	for (size_t i = 0; i < SL_COUNT(h->shards); i++) {
		const struct sl__hist_shard *s = &h->shards[i];
		for (size_t b = 0; b < SL__HIST_BUCKETS; b++)
			out->buckets[b] += __atomic_load_n(&s->buckets[b], __ATOMIC_RELAXED);
		out->sum += __atomic_load_n(&s->sum, __ATOMIC_RELAXED);
	}
	for (size_t b = 0; b < SL__HIST_BUCKETS; b++)
		out->count += out->buckets[b];
}

/* ceil(q * count) between 1 and count, exact at both ends whatever the rounding of double. */
static uint64_t rank_of(double q, uint64_t count)
{
	if (!(q > 0))
		return 1;
	if (q >= 1)
		return count;
	double exact = q * (double)count;
	uint64_t rank = (uint64_t)exact;
	rank += (double)rank < exact;
	return rank < 1 ? 1 : rank > count ? count : rank;
}

uint64_t sl__hist_quantile(const struct sl__hist_view *v, double q)
{
	if (v->count == 0)
		return 0;
	uint64_t left = rank_of(q, v->count);
	size_t b = 0;
	for (; left > v->buckets[b]; b++)
		left -= v->buckets[b];
	uint64_t low = sl__hist_low(b);
	return low + (sl__hist_high(b) - low) / 2;
}
