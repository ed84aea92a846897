/* SPDX-License-Identifier: Apache-2.0 */
/* The bounds of a column chunk: gathered from values, written to and compared with a footer. */
#include "parquet/bounds.h"

#include <math.h>

/* Order of two byte strings: unsigned, the shorter first. */
static int compare_bytes(struct sl_parquet_bytes a, struct sl_parquet_bytes b)
{
	size_t n = SL_MIN(a.len, b.len);
	int order = n > 0 ? memcmp(a.data, b.data, n) : 0;

	return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

/* The heads are the first eight bytes as a number that sorts as they do; missing ones are zeros, so that equal heads
 * decide nothing. */
static void add_bytes(struct sl__bounds *b, struct sl_parquet_bytes v)
{
	uint8_t first[8] = {0};
	uint64_t head;

	if (SL_LIKELY(v.len >= 8)) {
		head = __builtin_bswap64(sl__get64(v.data));
	} else {
		if (v.len > 0)
			memcpy(first, v.data, v.len);
		head = __builtin_bswap64(sl__get64(first));
	}
	if (!b->any) {
		b->any = true;
		b->min = b->max = v;
		b->min_head = b->max_head = head;
	} else if (head <= b->min_head && (head < b->min_head || compare_bytes(v, b->min) < 0)) {
		b->min = v, b->min_head = head;
	} else if (head >= b->max_head && (head > b->max_head || compare_bytes(v, b->max) > 0)) {
		b->max = v, b->max_head = head;
	}
}

static void add_real(struct sl__bounds *b, double v)
{
	if (isnan(v)) {
		b->nan = true;
		return;
	}
	b->min_real = b->any ? SL_MIN(b->min_real, v) : v;
	b->max_real = b->any ? SL_MAX(b->max_real, v) : v;
	b->any = true;
}

void sl__bounds_add(struct sl__bounds *b, const struct sl_parquet_column *c, const void *values, size_t n)
{
	const uint8_t *bools = values;
	const int32_t *ints = values;
	const int64_t *longs = values;
	int64_t min = INT64_MAX, max = INT64_MIN;

	if (n == 0)
		return;
	switch (sl__pq_physical(c)) {
	case PQ_BOOLEAN:
		for (size_t i = 0; i < n; i++) {
			min = SL_MIN(min, bools[i] != 0);
			max = SL_MAX(max, bools[i] != 0);
		}
		break;
	case PQ_INT32: {
		int32_t low = ints[0], high = ints[0]; /* in 32 bits, which is faster */
		for (size_t i = 1; i < n; i++) {
			low = SL_MIN(low, ints[i]);
			high = SL_MAX(high, ints[i]);
		}
		min = low;
		max = high;
		break;
	}
	case PQ_INT64:
		for (size_t i = 0; i < n; i++) {
			min = SL_MIN(min, longs[i]);
			max = SL_MAX(max, longs[i]);
		}
		break;
	case PQ_FLOAT:
		for (size_t i = 0; i < n; i++)
			add_real(b, (double)((const float *)values)[i]);
		return;
	case PQ_DOUBLE:
		for (size_t i = 0; i < n; i++)
			add_real(b, ((const double *)values)[i]);
		return;
	case PQ_BYTE_ARRAY:
		for (size_t i = 0; i < n; i++)
			add_bytes(b, ((const struct sl_parquet_bytes *)values)[i]);
		return;
	case PQ_FIXED:
	default:
		for (size_t i = 0; i < n; i++)
			add_bytes(b, (struct sl_parquet_bytes){(const char *)values + i * (size_t)c->length,
							       (uint32_t)c->length});
		return;
	}
	b->min_int = b->any ? SL_MIN(b->min_int, min) : min;
	b->max_int = b->any ? SL_MAX(b->max_int, max) : max;
	b->any = true;
}

static void put_bound(struct sl__bounds_out *out, int which, uint64_t bits, uint32_t len)
{
	sl__put64(out->number[which], bits);
	out->data[which] = out->number[which];
	out->len[which] = len;
}

bool sl__bounds_get(const struct sl__bounds *b, const struct sl_parquet_column *c, struct sl__bounds_out *out)
{
	enum pq_physical type = sl__pq_physical(c);

	if (!b->any || b->nan)
		return false;
	if (type == PQ_FLOAT || type == PQ_DOUBLE) {
		/* A zero is written as -0.0 below and as +0.0 above: readers that distinguish them lose neither. */
		double real[2] = {b->min_real == 0 ? -0.0 : b->min_real, b->max_real == 0 ? 0.0 : b->max_real};
		for (int i = 0; i < 2; i++) {
			float single = (float)real[i];
			uint64_t bits = 0;
			memcpy(&bits, type == PQ_FLOAT ? (const void *)&single : &real[i], type == PQ_FLOAT ? 4 : 8);
			put_bound(out, i, bits, type == PQ_FLOAT ? 4 : 8);
		}
	} else if (type == PQ_BYTE_ARRAY || type == PQ_FIXED) {
		if (b->min.len > PQ_BOUND_MAX || b->max.len > PQ_BOUND_MAX)
			return false;
		out->data[0] = b->min.data, out->len[0] = b->min.len;
		out->data[1] = b->max.data, out->len[1] = b->max.len;
	} else {
		uint32_t len = type == PQ_BOOLEAN ? 1 : type == PQ_INT32 ? 4 : 8;
		put_bound(out, 0, (uint64_t)b->min_int, len);
		put_bound(out, 1, (uint64_t)b->max_int, len);
	}
	return true;
}

bool sl__bounds_add_encoded(struct sl__bounds *b, const struct sl_parquet_column *c, struct sl_parquet_bytes value)
{
	enum pq_physical type = sl__pq_physical(c);
	int64_t number = 0; /* aligned for every type */

	if (type == PQ_BYTE_ARRAY || type == PQ_FIXED) {
		if (type == PQ_FIXED && value.len != (uint32_t)c->length)
			return false;
		add_bytes(b, value);
		return true;
	}
	if (value.len != sl__pq_plain_bytes(c))
		return false;
	memcpy(&number, value.data, value.len);
	sl__bounds_add(b, c, &number, 1);
	return !b->nan;
}

bool sl__bounds_contain(const struct sl__bounds *outer, const struct sl__bounds *inner,
			const struct sl_parquet_column *c)
{
	switch (sl__pq_physical(c)) {
	case PQ_FLOAT:
	case PQ_DOUBLE:
		return outer->min_real <= inner->min_real && outer->max_real >= inner->max_real;
	case PQ_BYTE_ARRAY:
	case PQ_FIXED:
		return compare_bytes(outer->min, inner->min) <= 0 && compare_bytes(outer->max, inner->max) >= 0;
	default:
		return outer->min_int <= inner->min_int && outer->max_int >= inner->max_int;
	}
}
