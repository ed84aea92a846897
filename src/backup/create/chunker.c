/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FastCDC. A rolling hash h = 2h + gear[byte] has in its upper bits a window of the last bytes; where the bits of a
 * mask are all zero, the stream is cut. The mask has two bits more than log2(avg) before the average and two fewer
 * behind it, which draws the lengths together.
 *
 *   0 ............ min ............ avg ............ max
 *   no cut         mask_small       mask_large       cut
 *
 * The hash begins 64 bytes before min, so that whether a place is a cut depends on the 64 bytes before it alone, and
 * two streams fall into step at the first cut that they share.
 *
 * Two bytes a step: with gear2 = 2 gear, (h << 2) + gear2[a] is twice the hash behind a. Its test needs the mask
 * shifted by one, which is why no mask has bit 63.
 */
#include "backup/create/chunker.h"

#include <sodium.h>

#define WINDOW 64u
#define NORMALIZATION 2

static uint32_t log2_of(uint32_t power_of_two)
{
	return (uint32_t)__builtin_ctz(power_of_two);
}

/* So many bits, from bit 62 downwards. */
static uint64_t mask_of(uint32_t bits)
{
	return ((1ull << bits) - 1) << (63 - bits);
}

static bool sizes_ok(uint32_t min, uint32_t avg, uint32_t max)
{
	uint32_t all[] = {min, avg, max};
	for (size_t i = 0; i < SL_COUNT(all); i++)
		if (all[i] == 0 || (all[i] & (all[i] - 1)) != 0)
			return false;
	return min >= 4096 && min < avg && avg < max && max <= BK_CHUNK_MAX;
}

int sl__bk_chunker_init(struct bk_chunker *c, const struct bk_keys *keys, uint32_t min, uint32_t avg, uint32_t max,
			struct sl_err *err)
{
	/* Of plain repositories: nothing to hide, and the same everywhere. */
	static const uint8_t fixed[crypto_stream_chacha20_KEYBYTES + 1] = "sluice: the plain gear table, v1";
	static const uint8_t nonce[crypto_stream_chacha20_NONCEBYTES];
	uint8_t bytes[256 * 8];

	if (!sizes_ok(min, avg, max))
		return sl_err_set(err, SL_EINVAL,
				  "sizes of blocks %u/%u/%u: want powers of two, 4096 <= min < avg < max <= %u", min,
				  avg, max, BK_CHUNK_MAX);
	(void)crypto_stream_chacha20(bytes, sizeof(bytes), nonce, keys->encrypted ? keys->gear : fixed);
	for (size_t i = 0; i < 256; i++) {
		c->gear[i] = sl__get64(bytes + 8 * i);
		c->gear2[i] = c->gear[i] << 1;
	}
	sodium_memzero(bytes, sizeof(bytes));
	c->mask_small = mask_of(log2_of(avg) + NORMALIZATION);
	c->mask_large = mask_of(log2_of(avg) - NORMALIZATION);
	c->min = min;
	c->avg = avg;
	c->max = max;
	return 0;
}

/* From *at to end (of the same parity), two bytes a step: true when a cut was found, which is then *at. */
static bool scan(const struct bk_chunker *c, const uint8_t *bytes, size_t *at, size_t end, uint64_t *hash,
		 uint64_t mask)
{
	uint64_t h = *hash;
	size_t i = *at;

	for (; i < end; i += 2) {
		uint64_t twice = (h << 2) + c->gear2[bytes[i]];
		if (SL_UNLIKELY((twice & (mask << 1)) == 0)) {
			*at = i + 1;
			return true;
		}
		h = twice + c->gear[bytes[i + 1]];
		if (SL_UNLIKELY((h & mask) == 0)) {
			*at = i + 2;
			return true;
		}
	}
	*at = i;
	*hash = h;
	return false;
}

size_t sl__bk_chunk(const struct bk_chunker *c, const uint8_t *bytes, size_t n)
{
	if (n <= c->min)
		return n;
	n = SL_MIN(n, (size_t)c->max);
	size_t even = n & ~(size_t)1, i = c->min;
	uint64_t h = 0;
	for (size_t k = i - WINDOW; k < i; k++)
		h = (h << 1) + c->gear[bytes[k]];
	if (scan(c, bytes, &i, SL_MIN(even, (size_t)c->avg), &h, c->mask_small) ||
	    scan(c, bytes, &i, even, &h, c->mask_large))
		return i;
	return n;
}
