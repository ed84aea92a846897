/* SPDX-License-Identifier: Apache-2.0 */
/* Where streams are cut. The model here goes byte by byte, by the definition; so do the cuts made by plain Python. */
#include "backup/format_kit.h"

#define STREAM (24u << 20)
#define CUTS_MAX 8192u

struct cuts {
	size_t n, len[CUTS_MAX];
};

static struct bk_chunker chunker(int which, uint32_t min, uint32_t avg, uint32_t max)
{
	struct bk_chunker c;
	struct bk_keys keys = kit_keys(which);
	assert_int_equal(sl__bk_chunker_init(&c, &keys, &(struct bk_chunk_sizes){min, avg, max}, NULL), 0);
	return c;
}

static struct bk_chunker usual(int which)
{
	return chunker(which, BK_CHUNK_MIN, BK_CHUNK_AVG, BK_CHUNK_MAX);
}

static struct cuts *cut_all(const struct bk_chunker *c, const uint8_t *bytes, size_t n)
{
	struct cuts *out = calloc(1, sizeof(*out));
	for (size_t at = 0; at < n; at += out->len[out->n++]) {
		assert_true(out->n < CUTS_MAX);
		out->len[out->n] = sl__bk_chunk(c, bytes + at, n - at);
		assert_true(out->len[out->n] > 0 && out->len[out->n] <= n - at);
	}
	return out;
}

static uint8_t *stream(uint64_t seed)
{
	uint8_t *bytes = malloc(STREAM);
	assert_non_null(bytes);
	kit_random(bytes, STREAM, seed);
	return bytes;
}

static size_t model_cut(const struct bk_chunker *c, const uint8_t *bytes, size_t n)
{
	uint64_t h = 0;
	if (n <= c->min)
		return n;
	n = SL_MIN(n, (size_t)c->max);
	for (size_t i = c->min - 64; i < n; i++) {
		h = (h << 1) + c->gear[bytes[i]];
		if (i >= c->min && (h & (i < c->avg ? c->mask_small : c->mask_large)) == 0)
			return i + 1;
	}
	return n;
}

static void cuts_are_those_of_the_definition(SL_UNUSED void **state)
{
	uint8_t *bytes = stream(1);
	for (int which = 0; which < 3; which++) {
		struct bk_chunker c = which == 2 ? chunker(1, 4096, 8192, 65536) : usual(which);
		size_t n = which == 2 ? 2u << 20 : STREAM;
		for (size_t at = 0; at < n;) {
			size_t len = sl__bk_chunk(&c, bytes + at, n - at);
			assert_int_equal(len, model_cut(&c, bytes + at, n - at));
			at += len;
		}
	}
	free(bytes);
}

static void a_stream_of_any_length_is_cut_as_defined(SL_UNUSED void **state)
{
	struct bk_chunker c = chunker(0, 4096, 8192, 16384);
	uint8_t *bytes = stream(2);
	for (size_t n = 0; n < 20000; n += n < 4090 || (n > 4200 && n < 8180) ? 97 : 1)
		for (size_t at = 0; at < 3; at++)
			assert_int_equal(sl__bk_chunk(&c, bytes + at, n), model_cut(&c, bytes + at, n));
	free(bytes);
}

/* Streams that differ only before the minimum fall into step there, when the 64 bytes before it are the same. */
static void a_cut_right_after_the_minimum_depends_on_the_bytes_before_it(SL_UNUSED void **state)
{
	struct bk_chunker c = chunker(0, 4096, 8192, 16384);
	uint8_t bytes[4096 + 100] = {0};
	unsigned found = 0;
	for (uint64_t seed = 0; seed < 300000 && found < 3; seed++) {
		kit_random(bytes + 4096 - 64, 64 + 100, seed);
		size_t want = model_cut(&c, bytes, sizeof(bytes));
		if (want >= 4096 + 10)
			continue;
		found++;
		memset(bytes, (int)seed, 4096 - 64);
		assert_int_equal(sl__bk_chunk(&c, bytes, sizeof(bytes)), want);
	}
	assert_int_equal(found, 3);
}

static void the_cuts_of_a_plain_repository_never_change(SL_UNUSED void **state)
{
	static const size_t want[] = {17071, 16644, 11080, 23379, 12254, 23070,
				      10435, 19106, 22308, 16843, 20713, 7098};
	struct bk_chunker c = chunker(0, 4096, 16384, 65536);
	uint8_t *bytes = malloc(200001);
	kit_random(bytes, 200001, 7);
	assert_true(c.gear[0] == 0xa5c3181471e412b2 && c.gear[255] == 0x88ce459d93030513);
	struct cuts *got = cut_all(&c, bytes, 200001);
	assert_int_equal(got->n, SL_COUNT(want));
	assert_memory_equal(got->len, want, sizeof(want));
	free(got);
	free(bytes);
}

static void blocks_keep_their_bounds_and_come_near_the_average(SL_UNUSED void **state)
{
	uint8_t *bytes = stream(3);
	struct bk_chunker c = usual(0);
	struct cuts *got = cut_all(&c, bytes, STREAM);
	for (size_t i = 0; i + 1 < got->n; i++)
		assert_true(got->len[i] > BK_CHUNK_MIN && got->len[i] <= BK_CHUNK_MAX);
	assert_in_range(STREAM / got->n, BK_CHUNK_AVG / 2, BK_CHUNK_AVG * 3 / 2);
	free(got);
	memset(bytes, 0, STREAM); /* without any contents to go by */
	got = cut_all(&c, bytes, STREAM);
	for (size_t i = 0; i + 1 < got->n; i++)
		assert_true(got->len[i] > BK_CHUNK_MIN && got->len[i] <= BK_CHUNK_MAX);
	free(got);
	free(bytes);
}

static void a_small_file_stays_whole(SL_UNUSED void **state)
{
	struct bk_chunker c = usual(0);
	uint8_t *bytes = stream(4);
	for (size_t n = 0; n <= BK_CHUNK_MIN; n += n < 64 ? 1 : n == 64 ? BK_CHUNK_MIN - 128 : 1)
		assert_int_equal(sl__bk_chunk(&c, bytes, n), n);
	free(bytes);
}

/* As a reader does it: a buffer that is filled by reads of any size until it holds a block that is certain. */
static void the_cuts_are_the_same_whatever_the_reads_were(SL_UNUSED void **state)
{
	struct bk_chunker c = usual(1);
	uint8_t *bytes = stream(5), *buf = malloc(2 * BK_CHUNK_MAX);
	struct cuts *want = cut_all(&c, bytes, STREAM);
	for (uint64_t seed = 1; seed < 6; seed++) {
		size_t have = 0, read = 0, n = 0;
		struct bk_id dice = kit_id(seed);
		while (have > 0 || read < STREAM) {
			size_t got = 1 + sl__get32(dice.b + read % 29) % (1u << (16 + seed));
			got = SL_MIN(SL_MIN(got, STREAM - read), 2 * (size_t)BK_CHUNK_MAX - have);
			memcpy(buf + have, bytes + read, got);
			have += got;
			read += got;
			size_t len = sl__bk_chunk(&c, buf, have);
			if (len == have && len < BK_CHUNK_MAX && read < STREAM)
				continue;
			assert_int_equal(len, want->len[n++]);
			memmove(buf, buf + len, have - len);
			have -= len;
		}
		assert_int_equal(n, want->n);
	}
	free(want);
	free(buf);
	free(bytes);
}

/* The places where a stream is cut, as a set. */
static size_t shared_cuts(const struct cuts *a, const struct cuts *b, size_t shift)
{
	size_t shared = 0, at_a = 0, at_b = 0, i = 0, k = 0;
	while (i < a->n && k < b->n) {
		if (at_a + a->len[i] + shift == at_b + b->len[k])
			shared++;
		if (at_a + a->len[i] + shift <= at_b + b->len[k])
			at_a += a->len[i++];
		else
			at_b += b->len[k++];
	}
	return shared;
}

static void repositories_with_other_keys_cut_elsewhere(SL_UNUSED void **state)
{
	uint8_t *bytes = stream(6);
	struct bk_chunker c[] = {usual(0), usual(1), usual(2), usual(1)};
	struct cuts *got[SL_COUNT(c)];
	for (size_t i = 0; i < SL_COUNT(c); i++)
		got[i] = cut_all(&c[i], bytes, STREAM);
	assert_int_equal(shared_cuts(got[1], got[3], 0), got[1]->n); /* the same key */
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(shared_cuts(got[i], got[(i + 1) % 3], 0), 1); /* only the end */
	for (size_t i = 0; i < SL_COUNT(c); i++)
		free(got[i]);
	free(bytes);
}

static void a_stream_with_something_put_before_it_falls_into_step_again(SL_UNUSED void **state)
{
	uint8_t *bytes = stream(8);
	struct bk_chunker c = usual(1);
	for (size_t shift = 1; shift < 200000; shift = 3 * shift + 1) {
		struct cuts *all = cut_all(&c, bytes, STREAM), *rest = cut_all(&c, bytes + shift, STREAM - shift);
		assert_true(shared_cuts(rest, all, shift) * 2 > all->n);
		free(all);
		free(rest);
	}
	free(bytes);
}

static void sizes_that_make_no_sense_are_refused(SL_UNUSED void **state)
{
	static const struct bk_chunk_sizes bad[] = {
		{0, 8192, 16384},     {2048, 8192, 16384},   {4096, 4096, 16384},      {8192, 4096, 16384},
		{4096, 16384, 16384}, {4096, 16384, 8192},   {4096, 8193, 16384},      {4097, 8192, 16384},
		{4096, 8192, 16385},  {4096, 8192, 4 << 20}, {4096, 8192, 0x80000000}, {4096, 0, 16384},
	};
	struct bk_keys keys = kit_keys(0);
	for (size_t i = 0; i < SL_COUNT(bad); i++) {
		struct bk_chunker c;
		struct sl_err err = SL_ERR_INIT;
		assert_int_equal(sl__bk_chunker_init(&c, &keys, &bad[i], &err), SL_EINVAL);
		assert_int_equal(err.code, SL_EINVAL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cuts_are_those_of_the_definition),
		cmocka_unit_test(a_stream_of_any_length_is_cut_as_defined),
		cmocka_unit_test(a_cut_right_after_the_minimum_depends_on_the_bytes_before_it),
		cmocka_unit_test(the_cuts_of_a_plain_repository_never_change),
		cmocka_unit_test(blocks_keep_their_bounds_and_come_near_the_average),
		cmocka_unit_test(a_small_file_stays_whole),
		cmocka_unit_test(the_cuts_are_the_same_whatever_the_reads_were),
		cmocka_unit_test(repositories_with_other_keys_cut_elsewhere),
		cmocka_unit_test(a_stream_with_something_put_before_it_falls_into_step_again),
		cmocka_unit_test(sizes_that_make_no_sense_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
