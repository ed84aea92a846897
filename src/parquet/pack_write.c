/* SPDX-License-Identifier: Apache-2.0 */
#include "parquet/pack.h"
#include "parquet/thrift.h"

/* A run is worth its header from so many values on; a group of packed values has as many. */
#define GROUP 8

uint8_t *sl__pack32(uint8_t *out, const uint32_t *v, size_t n, unsigned width)
{
	uint64_t word = 0;
	unsigned bits = 0; /* below 32 between the values */

	for (size_t i = 0; i < n; i++) {
		word |= (uint64_t)v[i] << bits;
		bits += width;
		if (bits >= 32) {
			sl__put32(out, (uint32_t)word);
			out += 4, word >>= 32, bits -= 32;
		}
	}
	for (; bits > 0; bits -= 8, word >>= 8)
		*out++ = (uint8_t)word;
	return out;
}

uint8_t *sl__pack64(uint8_t *out, const uint64_t *v, size_t n, unsigned width)
{
	uint64_t word = 0;
	unsigned bits = 0; /* below 64 between the values */

	for (size_t i = 0; i < n && width > 0; i++) {
		word |= v[i] << bits;
		if (bits + width >= 64) {
			sl__put64(out, word);
			out += 8;
			word = bits > 0 ? v[i] >> (64 - bits) : 0;
			bits = bits + width - 64;
		} else {
			bits += width;
		}
	}
	for (; bits > 0; bits -= 8, word >>= 8)
		*out++ = (uint8_t)word;
	return out;
}

void sl__hybrid_run(struct sl__buf *b, uint32_t v, size_t n, unsigned width)
{
	uint8_t value[4];

	sl__put32(value, v);
	sl__thrift_varint(b, (uint64_t)n << 1);
	(void)sl__buf_append(b, value, (width + 7) / 8);
}

/* n is a multiple of 8, but at the end of everything, where zeros fill the group. */
static void put_groups(struct sl__buf *b, const uint32_t *v, size_t n, unsigned width)
{
	size_t groups = (n + GROUP - 1) / GROUP, whole = n / GROUP * GROUP;
	uint32_t rest[GROUP] = {0};

	sl__thrift_varint(b, (uint64_t)groups << 1 | 1);
	if (sl__buf_reserve(b, groups * width + 8) != 0)
		return;
	uint8_t *out = sl__pack32((uint8_t *)b->data + b->len, v, whole, width);
	if (whole < n) {
		memcpy(rest, v + whole, (n - whole) * sizeof(*v));
		out = sl__pack32(out, rest, GROUP, width);
	}
	b->len = (size_t)(out - (uint8_t *)b->data);
}

static size_t run_length(const uint32_t *v, size_t n)
{
	size_t i = 1;

	while (i < n && v[i] == v[0])
		i++;
	return i;
}

static bool starts_run(const uint32_t *v, size_t n)
{
	return n >= GROUP && v[1] == v[0] && v[GROUP - 1] == v[0] && run_length(v, GROUP) == GROUP;
}

void sl__hybrid_put(struct sl__buf *b, const uint32_t *v, size_t n, unsigned width)
{
	for (size_t i = 0; i < n;) {
		if (starts_run(v + i, n - i)) {
			size_t len = run_length(v + i, n - i);
			sl__hybrid_run(b, v[i], len, width);
			i += len;
			continue;
		}
		/* Packed values go in groups: a run can only begin where a group ends. */
		size_t from = i;
		for (i += GROUP; i < n && !starts_run(v + i, n - i);)
			i += GROUP;
		i = SL_MIN(i, n);
		put_groups(b, v + from, i - from, width);
	}
	if (b->data != NULL)
		b->data[b->len] = '\0';
}
