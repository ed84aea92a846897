/* SPDX-License-Identifier: Apache-2.0 */
#include "parquet/delta.h"
#include "parquet/thrift.h"

#define BLOCK_MAX 65536
#define MINI_MAX 4096

struct delta {
	uint64_t block, minis, total;
	uint64_t value; /* the last one, in wrapping arithmetic */
};

static int read_head(struct sl__bytes_in *in, struct delta *d, size_t n)
{
	uint64_t first = 0;

	if (sl__varint_get(in, &d->block) != 0 || sl__varint_get(in, &d->minis) != 0 ||
	    sl__varint_get(in, &d->total) != 0 || sl__varint_get(in, &first) != 0)
		return SL_ECORRUPT;
	d->value = (uint64_t)sl__unzigzag(first);
	if (d->total != n || d->block == 0 || d->block > BLOCK_MAX || d->block % 128 != 0)
		return SL_ECORRUPT;
	if (d->minis == 0 || d->block % d->minis != 0 || d->block / d->minis % 32 != 0 ||
	    d->block / d->minis > MINI_MAX)
		return SL_ECORRUPT;
	return 0;
}

static void put(void *out, size_t i, unsigned width, uint64_t v)
{
	if (width == 4)
		((int32_t *)out)[i] = (int32_t)(uint32_t)v;
	else
		((int64_t *)out)[i] = (int64_t)v;
}

/* One miniblock: values at [i, n) as far as it goes. The last one is filled up with what is no value. */
static int read_mini(struct sl__bytes_in *in, struct delta *d, uint64_t smallest, unsigned bits, void *out, size_t i,
		     size_t n, unsigned width)
{
	uint64_t above[32];
	size_t size = (size_t)(d->block / d->minis);

	for (size_t at = 0; at < size; at += SL_COUNT(above)) {
		if (sl__unpack64(in, above, SL_COUNT(above), bits) != 0)
			return SL_ECORRUPT;
		for (size_t k = 0; k < SL_COUNT(above) && i < n; k++, i++) {
			d->value += smallest + above[k];
			put(out, i, width, d->value);
		}
	}
	return 0;
}

static int read_block(struct sl__bytes_in *in, struct delta *d, void *out, size_t i, size_t n, unsigned width)
{
	uint64_t smallest = 0;
	size_t size = (size_t)(d->block / d->minis);

	if (sl__varint_get(in, &smallest) != 0 || d->minis > (uint64_t)(in->end - in->at))
		return SL_ECORRUPT;
	const uint8_t *bits = in->at;
	in->at += d->minis;
	for (size_t m = 0; m < d->minis && i + m * size < n; m++) {
		if (bits[m] > width * 8)
			return SL_ECORRUPT;
		if (read_mini(in, d, (uint64_t)sl__unzigzag(smallest), bits[m], out, i + m * size, n, width) != 0)
			return SL_ECORRUPT;
	}
	return 0;
}

int sl__delta_get(struct sl__bytes_in *in, void *out, size_t n, unsigned width)
{
	struct delta d;

	if (read_head(in, &d, n) != 0)
		return SL_ECORRUPT;
	if (n > 0)
		put(out, 0, width, d.value);
	for (size_t i = 1; i < n; i += (size_t)d.block)
		if (read_block(in, &d, out, i, n, width) != 0)
			return SL_ECORRUPT;
	return 0;
}
