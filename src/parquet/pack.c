/* SPDX-License-Identifier: Apache-2.0 */
/* Bit packing and the hybrid of runs and packed groups, written and read. */
#include "parquet/pack.h"

#include "parquet/thrift.h"

/* ---- writing ---- */

/* A run is worth its header from this many values on; a group of packed values has as many. */
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
		size_t count = i - from, groups = (count + GROUP - 1) / GROUP, whole = count / GROUP * GROUP;
		sl__thrift_varint(b, (uint64_t)groups << 1 | 1);
		if (sl__buf_reserve(b, groups * width + 8) != 0)
			return;
		uint8_t *out = sl__pack32((uint8_t *)b->data + b->len, v + from, whole, width);
		if (whole < count) { /* the last group of all is filled with zeros */
			uint32_t rest[GROUP] = {0};
			memcpy(rest, v + from + whole, (count - whole) * sizeof(*v));
			out = sl__pack32(out, rest, GROUP, width);
		}
		b->len = (size_t)(out - (uint8_t *)b->data);
	}
	if (b->data != NULL)
		b->data[b->len] = '\0';
}

/* ---- reading ---- */

int sl__varint_get(struct sl__bytes_in *in, uint64_t *v)
{
	*v = 0;
	for (unsigned shift = 0; shift < 64 && in->at < in->end; shift += 7) {
		uint8_t byte = *in->at++;
		*v |= (uint64_t)(byte & 127) << shift;
		if (byte < 128)
			return 0;
	}
	return SL_ECORRUPT;
}

/* Up to eight bytes at p as a word; zeros after the end. */
static inline uint64_t word_at(const uint8_t *p, const uint8_t *end)
{
	uint8_t bytes[8] = {0};

	if (SL_LIKELY(end - p >= 8))
		return sl__get64(p);
	if (p < end)
		memcpy(bytes, p, (size_t)(end - p));
	return sl__get64(bytes);
}

int sl__unpack64(struct sl__bytes_in *in, uint64_t *out, size_t n, unsigned width)
{
	uint64_t mask = width >= 64 ? UINT64_MAX : (UINT64_C(1) << width) - 1, bit = 0;

	if (width > 64 || (width > 0 && n * width / 8 > (size_t)(in->end - in->at)))
		return SL_ECORRUPT;
	for (size_t i = 0; i < n; i++, bit += width) {
		const uint8_t *p = in->at + bit / 8;
		unsigned shift = bit % 8;
		uint64_t v = word_at(p, in->end) >> shift;
		if (shift + width > 64)
			v |= word_at(p + 8, in->end) << (64 - shift);
		out[i] = v & mask;
	}
	in->at += n * width / 8;
	return 0;
}

int sl__hybrid_get(struct sl__bytes_in *in, uint32_t *out, size_t n, unsigned width, uint32_t max)
{
	if (width > 32)
		return SL_ECORRUPT;
	if (width == 0) {
		memset(out, 0, n * sizeof(*out));
		return 0;
	}
	const uint64_t mask = (UINT64_C(1) << width) - 1;
	for (size_t i = 0; i < n;) {
		uint64_t head = 0;
		int rc = sl__varint_get(in, &head);
		if (rc != 0)
			return rc;
		uint64_t count = head >> 1, wanted = n - i;
		size_t left = (size_t)(in->end - in->at), end;
		if (count == 0)
			return SL_ECORRUPT; /* or a file of these would keep us busy for nothing */
		if (head & 1) {             /* groups of eight packed values; of the last group a part may be missing */
			end = i + (size_t)(count > wanted / 8 ? wanted : count * 8);
			if (((end - i) * width + 7) / 8 > left)
				return SL_ECORRUPT;
			for (uint64_t bit = 0; i < end; i++, bit += width) {
				out[i] = (uint32_t)(word_at(in->at + bit / 8, in->end) >> bit % 8 & mask);
				if (out[i] > max)
					return SL_ECORRUPT;
			}
			/* Not count * width before it is known that it fits. */
			in->at += count > left / width ? left : (size_t)count * width;
		} else { /* one value, count times */
			size_t bytes = (width + 7) / 8;
			uint8_t value[4] = {0};
			end = i + (size_t)SL_MIN(count, wanted);
			if (bytes > left)
				return SL_ECORRUPT;
			memcpy(value, in->at, bytes);
			in->at += bytes;
			if (sl__get32(value) > max)
				return SL_ECORRUPT;
			for (; i < end; i++)
				out[i] = sl__get32(value);
		}
	}
	return 0;
}
