/* SPDX-License-Identifier: Apache-2.0 */
/* DELTA_BINARY_PACKED, written and read. delta.h describes the format. */
#include "parquet/delta.h"

#include "parquet/thrift.h"

/* ---- writing ---- */

#define BLOCK 128
#define MINI 32
#define MINIS (BLOCK / MINI)

struct block {
	uint64_t above[BLOCK]; /* differences less the smallest; zeros after the last */
	int64_t smallest;
	uint8_t width[MINIS]; /* bits */
	size_t minis;         /* that hold a value */
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
static inline __attribute__((always_inline)) void fill_width(struct block *b, const void *values, size_t from, size_t n,
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
		b->width[m] = (uint8_t)sl__bit_width(any);
	}
}

static void fill_block(struct block *b, const void *values, size_t from, size_t n, unsigned width)
{
	if (width == 4)
		fill_width(b, values, from, n, 4);
	else
		fill_width(b, values, from, n, 8);
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
			bytes += (size_t)b.width[m] * MINI / 8;
	}
	return bytes;
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
		sl__thrift_varint(out, sl__zigzag(b.smallest));
		(void)sl__buf_append(out, b.width, sizeof(b.width));
		for (size_t m = 0; m < b.minis; m++) {
			if (sl__buf_reserve(out, MINI * sizeof(uint64_t) + 8) != 0)
				return;
			uint8_t *end =
				sl__pack64((uint8_t *)out->data + out->len, b.above + m * MINI, MINI, b.width[m]);
			out->len = (size_t)(end - (uint8_t *)out->data);
		}
		out->data[out->len] = '\0';
	}
}

/* ---- reading ---- */

#define BLOCK_MAX 65536
#define MINI_MAX 4096

struct delta {
	uint64_t block, minis; /* values of a block, miniblocks of it */
	uint64_t value;        /* the last one, in wrapping arithmetic */
	void *out;             /* values of width bytes */
	unsigned width;
};

static void put_delta_value(const struct delta *d, size_t i)
{
	if (d->width == 4)
		((int32_t *)d->out)[i] = (int32_t)(uint32_t)d->value;
	else
		((int64_t *)d->out)[i] = (int64_t)d->value;
}

int sl__delta_get(struct sl__bytes_in *in, void *out, size_t n, unsigned width)
{
	struct delta d = {.out = out, .width = width};
	uint64_t total = 0, first = 0;

	if (sl__varint_get(in, &d.block) != 0 || sl__varint_get(in, &d.minis) != 0 || sl__varint_get(in, &total) != 0 ||
	    sl__varint_get(in, &first) != 0)
		return SL_ECORRUPT;
	if (total != n || d.block == 0 || d.block > BLOCK_MAX || d.block % 128 != 0)
		return SL_ECORRUPT;
	if (d.minis == 0 || d.block % d.minis != 0 || d.block / d.minis % 32 != 0 || d.block / d.minis > MINI_MAX)
		return SL_ECORRUPT;
	d.value = (uint64_t)sl__unzigzag(first);
	if (n > 0)
		put_delta_value(&d, 0);
	size_t size = (size_t)(d.block / d.minis);
	for (size_t i = 1; i < n;) { /* a block of differences: its smallest, the bits of its miniblocks, those */
		uint64_t smallest = 0, above[32];
		if (sl__varint_get(in, &smallest) != 0 || d.minis > (uint64_t)(in->end - in->at))
			return SL_ECORRUPT;
		const uint8_t *bits = in->at;
		in->at += d.minis;
		for (size_t m = 0; m < d.minis && i < n; m++) {
			if (bits[m] > width * 8)
				return SL_ECORRUPT;
			for (size_t at = 0; at < size; at += SL_COUNT(above)) {
				if (sl__unpack64(in, above, SL_COUNT(above), bits[m]) != 0)
					return SL_ECORRUPT;
				for (size_t k = 0; k < SL_COUNT(above) && i < n; k++, i++) {
					d.value += (uint64_t)sl__unzigzag(smallest) + above[k];
					put_delta_value(&d, i);
				}
			}
		}
	}
	return 0;
}
