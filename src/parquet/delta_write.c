/* SPDX-License-Identifier: Apache-2.0 */
#include "parquet/delta.h"

#include "parquet/thrift.h"

#define BLOCK 128
#define MINI 32
#define MINIS (BLOCK / MINI)

struct block {
	uint64_t above[BLOCK]; /* differences less the smallest; zeros after the last */
	int64_t smallest;
	unsigned width[MINIS];
	size_t minis; /* that hold a value */
};

static inline __attribute__((always_inline)) int64_t value_at(const void *values, size_t i, unsigned width)
{
	return width == 4 ? ((const int32_t *)values)[i] : ((const int64_t *)values)[i];
}

/* In 32 bits the difference wraps at 32. */
static inline __attribute__((always_inline)) int64_t step(int64_t to, int64_t from, unsigned width)
{
	return width == 4 ? (int64_t)(int32_t)((uint32_t)to - (uint32_t)from)
			  : (int64_t)((uint64_t)to - (uint64_t)from);
}

/* The n values from `from` on (1 to BLOCK), each with the one before it. */
static inline __attribute__((always_inline)) void fill(struct block *b, const void *values, size_t from, size_t n,
						       unsigned width)
{
	int64_t steps[BLOCK], smallest = INT64_MAX;
	uint64_t mask = width == 4 ? UINT32_MAX : UINT64_MAX;

	for (size_t i = 0; i < n; i++) {
		steps[i] = step(value_at(values, from + i, width), value_at(values, from + i - 1, width), width);
		smallest = SL_MIN(smallest, steps[i]);
	}
	for (size_t i = 0; i < n; i++)
		b->above[i] = ((uint64_t)steps[i] - (uint64_t)smallest) & mask;
	memset(b->above + n, 0, (BLOCK - n) * sizeof(b->above[0]));
	b->smallest = smallest;
	b->minis = (n + MINI - 1) / MINI;
	for (size_t m = 0; m < MINIS; m++) {
		uint64_t any = 0;
		for (size_t i = 0; i < MINI; i++)
			any |= b->above[m * MINI + i];
		b->width[m] = sl__bit_width(any);
	}
}

static void fill_block(struct block *b, const void *values, size_t from, size_t n, unsigned width)
{
	if (width == 4)
		fill(b, values, from, n, 4);
	else
		fill(b, values, from, n, 8);
}

static size_t varint_bytes(uint64_t v)
{
	return v == 0 ? 1 : (sl__bit_width(v) + 6) / 7;
}

size_t sl__delta_bytes(const void *values, size_t n, unsigned width)
{
	struct block b;
	size_t bytes = 3 + varint_bytes(n) + (n > 0 ? varint_bytes(sl__zigzag(value_at(values, 0, width))) : 1);

	for (size_t i = 1; i < n; i += BLOCK) {
		fill_block(&b, values, i, SL_MIN(n - i, BLOCK), width);
		bytes += varint_bytes(sl__zigzag(b.smallest)) + MINIS;
		for (size_t m = 0; m < b.minis; m++)
			bytes += b.width[m] * MINI / 8;
	}
	return bytes;
}

static void put_block(struct sl__buf *out, const struct block *b)
{
	uint8_t widths[MINIS];

	sl__thrift_varint(out, sl__zigzag(b->smallest));
	for (size_t m = 0; m < MINIS; m++)
		widths[m] = (uint8_t)b->width[m];
	(void)sl__buf_append(out, widths, sizeof(widths));
	for (size_t m = 0; m < b->minis; m++) {
		if (sl__buf_reserve(out, MINI * sizeof(uint64_t) + 8) != 0)
			return;
		uint8_t *end = sl__pack64((uint8_t *)out->data + out->len, b->above + m * MINI, MINI, b->width[m]);
		out->len = (size_t)(end - (uint8_t *)out->data);
	}
	out->data[out->len] = '\0';
}

void sl__delta_put(struct sl__buf *out, const void *values, size_t n, unsigned width)
{
	struct block b;

	sl__thrift_varint(out, BLOCK);
	sl__thrift_varint(out, MINIS);
	sl__thrift_varint(out, n);
	sl__thrift_varint(out, n > 0 ? sl__zigzag(value_at(values, 0, width)) : 0);
	for (size_t i = 1; i < n && out->failed == 0; i += BLOCK) {
		fill_block(&b, values, i, SL_MIN(n - i, BLOCK), width);
		put_block(out, &b);
	}
}
