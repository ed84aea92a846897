/* SPDX-License-Identifier: Apache-2.0 */
#include "parquet/pack.h"

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

/* Groups of eight of which n values count: the last may be there in part only. */
static int get_groups(struct sl__bytes_in *in, uint32_t *out, size_t n, uint64_t groups, unsigned width, uint32_t max)
{
	uint64_t mask = (UINT64_C(1) << width) - 1, bit = 0;
	size_t left = (size_t)(in->end - in->at), need = (n * width + 7) / 8;

	if (need > left)
		return SL_ECORRUPT;
	for (size_t i = 0; i < n; i++, bit += width) {
		out[i] = (uint32_t)(word_at(in->at + bit / 8, in->end) >> bit % 8 & mask);
		if (out[i] > max)
			return SL_ECORRUPT;
	}
	/* Not groups * width before it is known that it fits. */
	in->at += groups > left / width ? left : (size_t)groups * width;
	return 0;
}

static int get_run(struct sl__bytes_in *in, uint32_t *out, size_t n, unsigned width, uint32_t max)
{
	size_t bytes = (width + 7) / 8;
	uint8_t value[4] = {0};

	if (bytes > (size_t)(in->end - in->at))
		return SL_ECORRUPT;
	memcpy(value, in->at, bytes);
	in->at += bytes;
	uint32_t v = sl__get32(value);
	if (v > max)
		return SL_ECORRUPT;
	for (size_t i = 0; i < n; i++)
		out[i] = v;
	return 0;
}

int sl__hybrid_get(struct sl__bytes_in *in, uint32_t *out, size_t n, unsigned width, uint32_t max)
{
	int rc = 0;

	if (width > 32)
		return SL_ECORRUPT;
	if (width == 0) {
		memset(out, 0, n * sizeof(*out));
		return 0;
	}
	for (size_t i = 0; i < n && rc == 0;) {
		uint64_t head = 0;
		rc = sl__varint_get(in, &head);
		if (rc != 0)
			return rc;
		uint64_t count = head >> 1, left = n - i;
		if (count == 0)
			return SL_ECORRUPT; /* or a file of these would keep us busy for nothing */
		if (head & 1) {
			size_t m = (size_t)(count > left / 8 ? left : count * 8);
			rc = get_groups(in, out + i, m, count, width, max);
			i += m;
		} else {
			size_t m = (size_t)SL_MIN(count, left);
			rc = get_run(in, out + i, m, width, max);
			i += m;
		}
	}
	return rc;
}
