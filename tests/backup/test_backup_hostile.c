/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packs and frames made by an attacker who knows the format (and, in a plain repository, makes every checksum right):
 * sizes that lie, overlap, overflow or explode are refused, and nothing is read or written outside of what was given.
 */
#include <zstd.h>

#include "backup/format_kit.h"
#include "base/crc64nvme.h"

#define ZSTD 0x80000000u
#define FRAMES_MAX 4
#define BLOCKS_MAX (BK_FRAME_BLOCKS_MAX + 2)

/* A directory, row by row, as it is to be written. */
struct forged {
	uint32_t n_frames, n_blocks; /* what the directory says */
	uint32_t frame_rows, block_rows;
	struct {
		uint32_t offset, stored, raw, blocks;
	} frames[FRAMES_MAX];
	uint32_t lengths[BLOCKS_MAX];
	uint32_t sealed_len, reserved; /* what the tail says; 0: right */
	uint64_t pack_size;            /* what the reader is given; 0: right */
	size_t extra;                  /* bytes after the rows */
};

#define SEAL BK_SEAL_PLAIN

/* Two frames of 100 and 50 bytes, with two blocks and one. */
static struct forged honest(void)
{
	return (struct forged){
		.n_frames = 2,
		.n_blocks = 3,
		.frame_rows = 2,
		.block_rows = 3,
		.frames = {{BK_PACK_HEADER, SEAL + 80, 100 | ZSTD, 2}, {BK_PACK_HEADER + SEAL + 80, SEAL + 50, 50, 1}},
		.lengths = {60, 40, 50}};
}

static int count_block(SL_UNUSED const struct bk_id *id, const struct bk_place *place, void *ctx)
{
	assert_true((uint64_t)place->offset + place->length <= place->frame_raw);
	assert_true(place->frame_raw <= BK_FRAME_RAW_MAX);
	++*(int *)ctx;
	return 0;
}

/* The result of reading it, and how many blocks were reported. */
static int read_forged(const struct forged *f, int *reported)
{
	struct sl_env env = kit_env();
	struct bk_keys keys = kit_keys(0);
	size_t frames = 0, body = 8 + 16 * (size_t)f->frame_rows + 36 * (size_t)f->block_rows + f->extra;
	for (uint32_t i = 0; i < 2; i++)
		frames += honest().frames[i].stored;
	size_t len = BK_PACK_HEADER + frames + SEAL + body + BK_PACK_TAIL;
	uint8_t *pack = calloc(1, len), *at = pack + BK_PACK_HEADER + frames, *row = at + SEAL;
	memcpy(pack, BK_PACK_MAGIC, 8);
	memcpy(pack + 8, keys.repository, BK_NAME_BYTES);
	sl__put32(row, f->n_frames);
	sl__put32(row + 4, f->n_blocks);
	row += 8;
	for (uint32_t i = 0; i < f->frame_rows; i++, row += 16) {
		sl__put32(row, f->frames[i].offset);
		sl__put32(row + 4, f->frames[i].stored);
		sl__put32(row + 8, f->frames[i].raw);
		sl__put32(row + 12, f->frames[i].blocks);
	}
	for (uint32_t i = 0; i < f->block_rows; i++, row += 36)
		sl__put32(row + 32, f->lengths[i]);
	assert_int_equal(
		sl__bk_seal(&(struct bk_seal){&env, &keys, BK_KIND_DIRECTORY, NULL, 0}, at + SEAL, body, at, NULL), 0);
	uint8_t *tail = at + SEAL + body;
	sl__put32(tail, f->sealed_len != 0 ? f->sealed_len : (uint32_t)(SEAL + body));
	sl__put32(tail + 4, f->reserved);
	sl__put64(tail + 8, sl__crc64nvme(0, at, SEAL + body));
	memcpy(tail + 16, BK_PACK_END, 8);
	*reported = 0;
	uint64_t size = f->pack_size != 0 ? f->pack_size : len;
	struct bk_pack_end last = {.bytes = pack, .n = (size_t)SL_MIN(size, (uint64_t)len), .pack_size = size};
	int rc = sl__bk_directory_read(&keys, &last, count_block, reported, NULL);
	free(pack);
	return rc;
}

static void assert_refused(const struct forged *f, const char *what)
{
	int reported, rc = read_forged(f, &reported);
	if (rc != SL_ECORRUPT || reported != 0)
		fail_msg("%s: %d, %d blocks reported", what, rc, reported);
}

static void an_honest_directory_is_read(SL_UNUSED void **state)
{
	struct forged f = honest();
	int reported;
	assert_int_equal(read_forged(&f, &reported), 0);
	assert_int_equal(reported, 3);
}

#define REFUSE(change)                                                                                                 \
	do {                                                                                                           \
		struct forged f = honest();                                                                            \
		change;                                                                                                \
		assert_refused(&f, #change);                                                                           \
	} while (0)

static void frames_that_overlap_or_leave_a_hole_are_refused(SL_UNUSED void **state)
{
	REFUSE(f.frames[1].offset--);
	REFUSE(f.frames[1].offset++);
	REFUSE(f.frames[0].offset = 0);
	REFUSE(f.frames[0].offset++);
	REFUSE(f.frames[1].offset = f.frames[0].offset);
	REFUSE((f.frames[0].stored--, f.frames[1].offset--)); /* a hole before the directory */
	REFUSE((f.frames[0].stored++, f.frames[1].offset++)); /* into the directory */
	REFUSE((f.n_frames = 1, f.n_blocks = 2, f.frame_rows = 1, f.block_rows = 2));
	REFUSE((f.n_frames = 0, f.n_blocks = 0, f.frame_rows = 0, f.block_rows = 0));
}

static void counts_that_do_not_give_the_directorys_length_are_refused(SL_UNUSED void **state)
{
	REFUSE(f.n_frames = 0xFFFFFFFF);
	REFUSE(f.n_blocks = 0xFFFFFFFF);
	REFUSE((f.n_frames = 0xFFFFFFFF, f.n_blocks = 0xFFFFFFFF));
	REFUSE((f.n_frames = 2 + 0x10000000, f.n_blocks = 3)); /* right when 32 bits wrap around */
	REFUSE((f.n_blocks = 3 + 0x40000000));
	REFUSE(f.n_frames = 3);
	REFUSE(f.n_blocks = 2);
	REFUSE(f.extra = 1);
}

static void blocks_that_do_not_fill_their_frame_are_refused(SL_UNUSED void **state)
{
	REFUSE(f.lengths[0]--);
	REFUSE(f.lengths[1]++);
	REFUSE((f.lengths[0] = 0xFFFFFFFF, f.lengths[1] = 101)); /* a sum of 100 in 32 bits */
	REFUSE((f.frames[0].blocks = 1, f.frames[1].blocks = 2));
	REFUSE((f.frames[0].blocks = 3, f.frames[1].blocks = 0));
	REFUSE(f.frames[0].blocks = 0xFFFFFFFF);
	REFUSE(f.frames[1].blocks = 2);
	REFUSE(f.frames[1].blocks = 0xFFFFFFFF - 1);
	REFUSE((f.frames[0].blocks = 0, f.frames[0].raw = 0, f.frames[0].stored = SEAL));
}

static void a_frame_of_no_block_or_of_too_many_is_refused(SL_UNUSED void **state)
{
	struct forged f = honest();
	f.frames[0].stored = SEAL; /* nothing in the first, everything in the second */
	f.frames[0].raw = f.frames[0].blocks = 0;
	f.frames[1].offset = BK_PACK_HEADER + SEAL;
	f.frames[1].stored = SEAL + 130;
	f.frames[1].raw = 130;
	f.frames[1].blocks = 3;
	f.lengths[2] = 30;
	assert_refused(&f, "a frame without blocks");
	f = honest();
	f.frames[0].blocks = BK_FRAME_BLOCKS_MAX;
	f.n_blocks = f.block_rows = BK_FRAME_BLOCKS_MAX + 1;
	f.lengths[2] = 0;
	f.lengths[BK_FRAME_BLOCKS_MAX] = 50;
	int reported;
	assert_int_equal(read_forged(&f, &reported), 0);
	f.frames[0].blocks++;
	f.n_blocks = ++f.block_rows;
	f.lengths[BK_FRAME_BLOCKS_MAX] = 0;
	f.lengths[BK_FRAME_BLOCKS_MAX + 1] = 50;
	assert_refused(&f, "a frame of too many blocks");
}

static void sizes_of_frames_that_no_builder_makes_are_refused(SL_UNUSED void **state)
{
	REFUSE((f.frames[0].raw = (BK_FRAME_RAW_MAX + 1) | ZSTD, f.lengths[0] = BK_FRAME_RAW_MAX + 1 - 40));
	REFUSE((f.frames[0].raw = 0x7FFFFFFF | ZSTD, f.lengths[0] = 0x7FFFFFFF - 40));
	REFUSE((f.frames[0].raw = 80 | ZSTD, f.lengths[0] = 40)); /* compressed, and no smaller */
	REFUSE(f.frames[1].raw = 50 | ZSTD);
	REFUSE((f.frames[0].raw = 100));
	REFUSE((f.frames[1].raw = 51, f.lengths[2] = 51)); /* as it is, and larger */
	REFUSE((f.frames[1].stored = SEAL - 1));
	REFUSE((f.frames[0].stored = 0xFFFFFFFF));
}

static void a_tail_that_lies_is_refused(SL_UNUSED void **state)
{
	REFUSE(f.sealed_len = 1);
	REFUSE(f.sealed_len = SEAL);
	REFUSE(f.sealed_len = 0xFFFFFFFF);
	REFUSE(f.sealed_len = 300);
	REFUSE(f.reserved = 1);
	REFUSE(f.pack_size = BK_PACK_HEADER + BK_PACK_TAIL);
	REFUSE(f.pack_size = 1);
	REFUSE(f.pack_size = BK_PACK_BYTES_MAX + 1ull);
	REFUSE(f.pack_size = UINT64_MAX);
	REFUSE(f.pack_size = 1000 + BK_PACK_HEADER); /* the directory is not where its frames end */
}

/* ---- frames ---- */

/* The result of opening a frame that holds these bytes and is said to have these sizes. */
static int open_frame(const void *bytes, size_t len, uint32_t raw, bool zstd, uint32_t stored)
{
	struct sl_env env = kit_env();
	struct bk_keys keys = kit_keys(0);
	struct bk_opener *o = NULL;
	uint8_t *sealed = malloc(len + SEAL), *out = malloc((size_t)raw + 1);
	struct bk_place place = {.frame_stored = stored, .frame_raw = raw, .zstd = zstd, .length = raw};
	assert_int_equal(sl__bk_seal(&(struct bk_seal){&env, &keys, BK_KIND_FRAME, NULL, 0}, bytes, len, sealed, NULL),
			 0);
	assert_int_equal(sl__bk_opener_new(&o, &env, &keys, NULL), 0);
	out[raw] = 0xA5;
	int rc = sl__bk_frame_open(o, &place, sealed, out, NULL);
	assert_int_equal(out[raw], 0xA5);
	sl__bk_opener_free(o);
	free(sealed);
	free(out);
	return rc;
}

static void a_frame_that_decompresses_to_something_else_is_refused(SL_UNUSED void **state)
{
	size_t n = 64u << 20, room = ZSTD_compressBound(n);
	uint8_t *zeros = calloc(1, n), *packed = malloc(room);
	size_t len = ZSTD_compress(packed, room, zeros, n, 3); /* a bomb: 64 MiB in some KB */
	assert_false(ZSTD_isError(len));
	static const uint32_t raws[] = {10000, 1u << 20, BK_FRAME_RAW_MAX};
	for (size_t i = 0; i < SL_COUNT(raws); i++)
		assert_int_equal(open_frame(packed, len, raws[i], true, (uint32_t)len + SEAL), SL_ECORRUPT);
	assert_int_equal(open_frame(packed, len, BK_FRAME_RAW_MAX + 1, true, (uint32_t)len + SEAL), SL_ECORRUPT);
	len = ZSTD_compress(packed, room, zeros, 5000, 3);
	assert_int_equal(open_frame(packed, len, 5000, true, (uint32_t)len + SEAL), 0);
	assert_int_equal(open_frame(packed, len, 4999, true, (uint32_t)len + SEAL), SL_ECORRUPT);
	assert_int_equal(open_frame(packed, len, 5001, true, (uint32_t)len + SEAL), SL_ECORRUPT);
	assert_int_equal(open_frame(zeros, 100, 5000, true, 100 + SEAL), SL_ECORRUPT); /* not zstd */
	free(zeros);
	free(packed);
}

static void a_frame_whose_lengths_do_not_fit_is_refused(SL_UNUSED void **state)
{
	uint8_t bytes[100] = {1};
	assert_int_equal(open_frame(bytes, 100, 100, false, 100 + SEAL), 0);
	assert_int_equal(open_frame(bytes, 100, 99, false, 100 + SEAL), SL_ECORRUPT);
	assert_int_equal(open_frame(bytes, 100, 101, false, 100 + SEAL), SL_ECORRUPT);
	assert_int_equal(open_frame(bytes, 100, 100, false, SEAL - 1), SL_ECORRUPT);
	assert_int_equal(open_frame(bytes, 100, 99, false, 99 + SEAL), SL_ECORRUPT); /* its seal is of 100 */
	assert_int_equal(open_frame(bytes, 0, 0, false, SEAL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_honest_directory_is_read),
		cmocka_unit_test(frames_that_overlap_or_leave_a_hole_are_refused),
		cmocka_unit_test(counts_that_do_not_give_the_directorys_length_are_refused),
		cmocka_unit_test(blocks_that_do_not_fill_their_frame_are_refused),
		cmocka_unit_test(a_frame_of_no_block_or_of_too_many_is_refused),
		cmocka_unit_test(sizes_of_frames_that_no_builder_makes_are_refused),
		cmocka_unit_test(a_tail_that_lies_is_refused),
		cmocka_unit_test(a_frame_that_decompresses_to_something_else_is_refused),
		cmocka_unit_test(a_frame_whose_lengths_do_not_fit_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
