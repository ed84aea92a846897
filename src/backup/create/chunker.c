/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FastCDC. A rolling hash h = 2h + gear[byte] has in its upper bits a window of the last bytes; where the bits of a
 * mask are all zero, the stream is cut. The mask has two bits more than log2(avg) before the average and two fewer
 * after it, which narrows the distribution of lengths.
 *
 *   0 ............ min ............ avg ............ max
 *   no cut         mask_small       mask_large       cut
 *
 * The hash begins 64 bytes before min. So only the 64 bytes before a place decide whether it is a cut, and two streams
 * are in step from the first cut that they share.
 *
 * Two bytes per step: with gear2 = 2 gear, (h << 2) + gear2[a] is twice the hash after a. Its test needs the mask
 * shifted by one, which is why no mask has bit 63.
 */
#include "backup/create/chunker.h"

#include <sodium.h>

#define WINDOW 64u
#define NORMALIZATION 2

/* This number of bits, from bit 62 downwards. */
static uint64_t mask_of(uint32_t bits)
{
	return ((1ull << bits) - 1) << (63 - bits);
}

int sl__bk_chunker_init(struct bk_chunker *c, const struct bk_keys *keys, const struct bk_chunk_sizes *sizes,
			struct sl_err *err)
{
	/* Of repositories without encryption: nothing to hide, and the same everywhere. */
	static const uint8_t fixed[crypto_stream_chacha20_KEYBYTES + 1] = "sluice: the plain gear table, v1";
	static const uint8_t nonce[crypto_stream_chacha20_NONCEBYTES];
	uint8_t bytes[256 * 8];
	const uint32_t min = sizes->min, avg = sizes->avg, max = sizes->max;
	bool powers = (min & (min - 1)) == 0 && (avg & (avg - 1)) == 0 && (max & (max - 1)) == 0;

	if (!powers || min < 4096 || min >= avg || avg >= max || max > BK_CHUNK_MAX)
		return sl_err_set(err, SL_EINVAL,
				  "block sizes %u/%u/%u; give powers of two, 4096 <= min < avg < max <= %u", min, avg,
				  max, BK_CHUNK_MAX);
	(void)crypto_stream_chacha20(bytes, sizeof(bytes), nonce, keys->encrypted ? keys->gear : fixed);
	for (size_t i = 0; i < 256; i++) {
		c->gear[i] = sl__get64(bytes + 8 * i);
		c->gear2[i] = c->gear[i] << 1;
	}
	sodium_memzero(bytes, sizeof(bytes));
	uint32_t bits = (uint32_t)__builtin_ctz(avg);
	c->mask_small = mask_of(bits + NORMALIZATION);
	c->mask_large = mask_of(bits - NORMALIZATION);
	c->min = min;
	c->avg = avg;
	c->max = max;
	return 0;
}

struct cut_search {
	const uint8_t *bytes;
	size_t at;
	uint64_t hash;
};

/* Search from s->at to end (of the same parity), two bytes per step: true when a cut was found, which is then s->at. */
static bool find_cut(const struct bk_chunker *c, struct cut_search *s, size_t end, uint64_t mask)
{
	const uint8_t *bytes = s->bytes;
	uint64_t h = s->hash;
	size_t i = s->at;

	for (; i < end; i += 2) {
		uint64_t twice = (h << 2) + c->gear2[bytes[i]];
		if (SL_UNLIKELY((twice & (mask << 1)) == 0)) {
			s->at = i + 1;
			return true;
		}
		h = twice + c->gear[bytes[i + 1]];
		if (SL_UNLIKELY((h & mask) == 0)) {
			s->at = i + 2;
			return true;
		}
	}
	s->at = i;
	s->hash = h;
	return false;
}

size_t sl__bk_chunk(const struct bk_chunker *c, const uint8_t *bytes, size_t n)
{
	if (n <= c->min)
		return n;
	n = SL_MIN(n, (size_t)c->max);
	struct cut_search s = {.bytes = bytes, .at = c->min};
	size_t even = n & ~(size_t)1;
	for (size_t k = s.at - WINDOW; k < s.at; k++)
		s.hash = (s.hash << 1) + c->gear[bytes[k]];
	if (find_cut(c, &s, SL_MIN(even, (size_t)c->avg), c->mask_small) || find_cut(c, &s, even, c->mask_large))
		return s.at;
	return n;
}
