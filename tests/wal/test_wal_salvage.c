/* SPDX-License-Identifier: Apache-2.0 */
/* Archives that are damaged or cut off: every record of what can be decompressed is there, and nothing else. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zstd.h>

#include "support/crashfs.h"
#include "support/fault.h"
#include "wal/archive_zst.h"
#include "wal/box.h"
#include "wal/format.h"

#define RECORDS 60
#define ARCHIVE "/s.wal.zst"

/* A log of RECORDS records, and where each one ends. */
struct sample {
	uint8_t log[16384];
	size_t size;
	size_t ends[RECORDS + 1]; /* ends[i]: behind record i */
};

/* Payloads of both kinds: what compresses, and what zstd stores as it is. */
static size_t payload(uint8_t *out, unsigned i)
{
	size_t n = 20 + i * 7 % 120;
	uint32_t x = i * 2654435761U;
	for (size_t k = 0; k < n; k++) {
		x = x * 1664525U + 1013904223U;
		out[k] = i % 3 == 0 ? (uint8_t)(x >> 24) : (uint8_t)('a' + i % 26);
	}
	return n;
}

static void make_sample(struct sample *s)
{
	uint8_t text[256];
	sl__wal_header_encode(s->log, (struct wal_header){.version = 1, .incarnation = 0xabcdef});
	s->size = s->ends[0] = WAL_HEADER_BYTES;
	for (unsigned i = 1; i <= RECORDS; i++) {
		size_t n = payload(text, i);
		s->size += box_record(s->log + s->size, i, SL_WAL_PENDING, 1000 + i, text, n);
		s->ends[i] = s->size;
	}
}

/* One frame with blocks of about `block` bytes of content each; ends[] (may be NULL) gets where each block ends.
 * Returns its size. */
static size_t make_frame(uint8_t *out, size_t cap, const uint8_t *content, size_t n, size_t block, size_t *ends,
			 size_t *n_blocks)
{
	ZSTD_CCtx *ctx = ZSTD_createCCtx();
	assert_non_null(ctx);
	assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(ctx, ZSTD_c_checksumFlag, 1)));
	assert_false(ZSTD_isError(ZSTD_CCtx_setPledgedSrcSize(ctx, n)));
	ZSTD_outBuffer to = {.dst = out, .size = cap};
	size_t blocks = 0;
	for (size_t at = 0; at < n; at += block) {
		ZSTD_inBuffer from = {.src = content + at, .size = SL_MIN(block, n - at)};
		assert_int_equal(ZSTD_compressStream2(ctx, &to, &from, at + block < n ? ZSTD_e_flush : ZSTD_e_end), 0);
		if (ends != NULL)
			ends[blocks] = to.pos;
		blocks++;
	}
	if (n_blocks != NULL)
		*n_blocks = blocks;
	ZSTD_freeCCtx(ctx);
	return to.pos;
}

/* What a scan said. */
struct seen {
	const struct sample *sample;
	uint64_t records, last;
	bool in_order; /* 1, 2, 3 … without a gap */
	uint64_t damaged, of_archive;
	struct sl_wal_damage lost; /* the last one of the archive itself */
	struct sl_wal_stats stats;
};

static int on_record(const struct sl_wal_record *r, void *ctx)
{
	struct seen *s = ctx;
	uint8_t text[256];
	assert_in_range(r->sequence, 1, RECORDS);
	size_t n = payload(text, (unsigned)r->sequence);
	assert_int_equal(r->payload_len, n);
	assert_memory_equal(r->payload, text, n);
	s->in_order = s->in_order && r->sequence == s->last + 1;
	s->last = r->sequence;
	s->records++;
	return 0;
}

static int on_damage(const struct sl_wal_damage *d, void *ctx)
{
	struct seen *s = ctx;
	assert_false(d->torn_tail && s->of_archive > 0);
	s->damaged += !d->torn_tail && !d->declared;
	s->of_archive += (uint64_t)d->of_archive;
	if (d->of_archive) {
		s->lost = *d;
		s->lost.reason = NULL; /* lives for the call */
		assert_true(strlen(d->reason) > 0);
	}
	return 0;
}

static int scan(struct box *b, struct seen *s, struct sl_err *err)
{
	*s = (struct seen){.in_order = true, .stats = {.struct_size = sizeof(s->stats)}};
	struct sl_wal_scan_opts opts = {SL_WAL_SCAN_OPTS_INIT, .env = &b->e.env, .on_record = on_record,
					.on_damage = on_damage, .ctx = s};
	int rc = sl_wal_scan(ARCHIVE, &opts, &s->stats, err);
	if (rc != 0)
		return rc;
	assert_int_equal(s->stats.records, s->records);
	assert_int_equal(s->stats.damaged_ranges, s->damaged);
	if (s->of_archive > 0)
		assert_int_equal(s->stats.torn_bytes, 0);
	return 0;
}

static size_t records_within(const struct sample *s, size_t content)
{
	size_t n = 0;
	while (n < RECORDS && s->ends[n + 1] <= content)
		n++;
	return n;
}

static void a_cut_archive_gives_every_record_of_its_whole_blocks(void **state)
{
	(void)state;
	static const size_t block_sizes[] = {300, 1000, 100000};
	struct sample s;
	struct box b;
	box_init(&b);
	make_sample(&s);
	for (size_t k = 0; k < SL_COUNT(block_sizes); k++) {
		uint8_t z[20000];
		size_t ends[100], n_blocks,
			zn = make_frame(z, sizeof(z), s.log, s.size, block_sizes[k], ends, &n_blocks);
		for (size_t cut = 0; cut <= zn; cut++) {
			struct seen seen;
			struct sl_err err = SL_ERR_INIT;
			size_t blocks = 0;
			crashfs_put(b.fs, ARCHIVE, z, cut);
			int rc = scan(&b, &seen, &err);
			if (cut < 4) {
				assert_int_equal(rc, SL_ECORRUPT);
				continue;
			}
			assert_int_equal(rc, 0);
			while (blocks < n_blocks && ends[blocks] <= cut)
				blocks++;
			/* The last block ends before the four bytes of the checksum. */
			if (cut >= zn - 4)
				blocks = n_blocks;
			size_t whole = records_within(&s, SL_MIN(blocks * block_sizes[k], s.size));
			assert_true(seen.in_order);
			assert_true(seen.records >= whole);
			assert_int_equal(seen.of_archive, cut < zn);
			assert_int_equal(seen.damaged, cut < zn);
			if (cut == zn)
				assert_int_equal(seen.records, RECORDS);
			else
				assert_int_equal(seen.lost.archive_offset, cut);
			if (cut < zn &&
			    cut > 18) /* what is missing begins after the last record, and is all the rest */
				assert_int_equal(seen.lost.offset + seen.lost.length,
						 blocks < n_blocks ? s.size : seen.lost.offset);
			if (cut < zn && blocks < n_blocks && seen.records > 0)
				assert_int_equal(seen.lost.offset, s.ends[seen.records]);
		}
	}
	box_fini(&b);
}

static void every_flipped_bit_is_noticed_or_harmless_and_no_record_is_invented(void **state)
{
	(void)state;
	struct sample s;
	struct box b;
	uint8_t z[20000];
	size_t noticed = 0, kept = 0;
	box_init(&b);
	make_sample(&s);
	size_t zn = make_frame(z, sizeof(z), s.log, s.size, 500, NULL, NULL);
	for (size_t bit = 0; bit < zn * 8; bit += bit < 200 ? 1 : 7) {
		struct seen seen;
		struct sl_err err = SL_ERR_INIT;
		z[bit / 8] ^= (uint8_t)(1U << bit % 8);
		crashfs_put(b.fs, ARCHIVE, z, zn);
		z[bit / 8] ^= (uint8_t)(1U << bit % 8);
		int rc = scan(&b, &seen, &err);
		if (bit < 32) {
			assert_int_equal(rc, SL_ECORRUPT);
			continue;
		}
		/* A header of 7 bytes may then ask for more memory than any archive needs. */
		if (bit < 56 && rc == SL_EUNSUPPORTED)
			continue;
		assert_int_equal(rc, 0);
		if (seen.damaged == 0)
			assert_int_equal(seen.records, RECORDS);
		else
			assert_true(seen.of_archive > 0);
		noticed += seen.damaged > 0;
		kept += seen.records;
	}
	print_message("# %zu flips noticed, %zu records kept\n", noticed, kept);
	assert_true(noticed > zn);
	assert_true(kept > noticed * RECORDS / 4);
	box_fini(&b);
}

static void a_damaged_checksum_costs_no_record_and_a_damaged_size_only_the_last_block(void **state)
{
	(void)state;
	struct sample s;
	struct box b;
	uint8_t z[20000];
	box_init(&b);
	make_sample(&s);
	size_t ends[100], n_blocks, zn = make_frame(z, sizeof(z), s.log, s.size, 1000, ends, &n_blocks);
	assert_int_equal(z[4] >> 5, 3); /* one segment, a size of two bytes at 5 */
	size_t places[] = {5, 6, zn - 1, zn - 4};
	for (size_t i = 0; i < SL_COUNT(places); i++) {
		struct seen seen;
		z[places[i]] ^= 0x40;
		crashfs_put(b.fs, ARCHIVE, z, zn);
		z[places[i]] ^= 0x40;
		assert_int_equal(scan(&b, &seen, NULL), 0);
		assert_true(seen.in_order);
		assert_int_equal(seen.of_archive, 1);
		if (i < 2) {
			assert_int_equal(seen.records, records_within(&s, (n_blocks - 1) * 1000));
			assert_in_range(seen.lost.archive_offset, ends[n_blocks - 2], zn);
			continue;
		}
		assert_int_equal(seen.damaged, 1);
		assert_int_equal(seen.records, RECORDS);
		assert_int_equal(seen.lost.offset, 0);
		assert_int_equal(seen.lost.length, s.size);
	}
	box_fini(&b);
}

static void frames_are_read_up_to_the_first_damaged_block_and_past_a_wrong_checksum(void **state)
{
	(void)state;
	struct sample s;
	struct box b;
	uint8_t z[40000];
	box_init(&b);
	make_sample(&s);
	for (unsigned bad = 0; bad < 3; bad++)
		for (unsigned checksum = 0; checksum < 2; checksum++) {
			struct seen seen;
			size_t starts[4], at = 0, cuts[] = {0, s.ends[20], s.ends[40] + 11, s.size};
			for (size_t i = 0; i < 3; i++) {
				starts[i] = at;
				at += make_frame(z + at, sizeof(z) - at, s.log + cuts[i], cuts[i + 1] - cuts[i], 4000,
						 NULL, NULL);
			}
			starts[3] = at;
			if (checksum)
				z[starts[bad + 1] - 1] ^= 1;
			else
				memset(z + starts[bad] + 10, 0xFF, 8); /* how the block's content is coded */
			crashfs_put(b.fs, ARCHIVE, z, at);
			assert_int_equal(scan(&b, &seen, NULL), 0);
			assert_int_equal(seen.of_archive, 1);
			assert_true(seen.in_order);
			assert_in_range(seen.lost.archive_offset, starts[bad], starts[bad + 1]);
			assert_int_equal(seen.records, checksum ? RECORDS : 20 * bad);
		}
	box_fini(&b);
}

/* In the header of a frame, the size of its window comes after the magic and a byte of flags. */
static void frames_before_one_that_asks_for_too_much_memory_are_read(void **state)
{
	(void)state;
	struct sample s;
	struct box b;
	struct seen seen;
	uint8_t z[40000];
	box_init(&b);
	make_sample(&s);
	size_t first = make_frame(z, sizeof(z), s.log, s.ends[20], 4000, NULL, NULL);
	size_t second =
		make_frame(z + first, sizeof(z) - first, s.log + s.ends[20], s.size - s.ends[20], 4000, NULL, NULL);
	assert_int_equal(z[first + 4] >> 5, 3); /* one segment, a size of two bytes at 5: without them, a window at 5 */
	z[first + 4] &= 0x04;
	z[first + 5] = 0xFF;
	crashfs_put(b.fs, ARCHIVE, z, first + second);
	assert_int_equal(scan(&b, &seen, NULL), 0);
	assert_int_equal(seen.records, 20);
	assert_int_equal(seen.of_archive, 1);
	assert_in_range(seen.lost.archive_offset, first, first + 6);
	box_fini(&b);
}

static int only_100(const struct sl_wal_record *r, void *ctx)
{
	(void)ctx;
	assert_int_equal(r->sequence, 100);
	return 0;
}

static void a_frame_inside_a_payload_is_not_taken_for_the_next_one(void **state)
{
	(void)state;
	struct sample s;
	struct box b;
	uint8_t inner[20000], log[40000], z[40000];
	box_init(&b);
	make_sample(&s);
	/* Records 1 … 60 in a frame, in the payload of a record of another log. */
	size_t inner_n = make_frame(inner, sizeof(inner), s.log, s.size, 100000, NULL, NULL);
	memcpy(log, s.log, WAL_HEADER_BYTES);
	size_t n = WAL_HEADER_BYTES;
	n += box_record(log + n, 100, SL_WAL_PENDING, 1, inner, inner_n);
	size_t zn = make_frame(z, sizeof(z), log, n, 100000, NULL, NULL);
	assert_int_equal(z[4] >> 5, 3); /* a header of 7 bytes, then that of the block */
	assert_non_null(memmem(z + 10, zn - 10, inner, 64));
	for (unsigned bit = 0; bit < 24; bit++) {
		struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
		struct sl_wal_scan_opts opts = {SL_WAL_SCAN_OPTS_INIT, .env = &b.e.env, .on_record = only_100};
		z[7 + bit / 8] ^= (uint8_t)(1U << bit % 8);
		crashfs_put(b.fs, ARCHIVE, z, zn);
		z[7 + bit / 8] ^= (uint8_t)(1U << bit % 8);
		assert_int_equal(sl_wal_scan(ARCHIVE, &opts, &stats, NULL), 0);
		assert_true(stats.damaged_ranges > 0);
	}
	box_fini(&b);
}

static void junk_after_the_frame_is_damage_and_skippable_frames_are_not(void **state)
{
	(void)state;
	struct sample s;
	struct box b;
	struct seen seen;
	uint8_t z[20000];
	box_init(&b);
	make_sample(&s);
	size_t zn = make_frame(z, sizeof(z), s.log, s.size, 4000, NULL, NULL);
	memcpy(z + zn, "junk", 4);
	crashfs_put(b.fs, ARCHIVE, z, zn + 4);
	assert_int_equal(scan(&b, &seen, NULL), 0);
	assert_int_equal(seen.records, RECORDS);
	assert_int_equal(seen.of_archive, 1);
	assert_int_equal(seen.lost.archive_offset, zn);
	memcpy(z + zn, "\x51\x2a\x4d\x18\x03\0\0\0abc", 11);
	crashfs_put(b.fs, ARCHIVE, z, zn + 11);
	assert_int_equal(scan(&b, &seen, NULL), 0);
	assert_int_equal(seen.records, RECORDS);
	assert_int_equal(seen.damaged, 0);
	crashfs_put(b.fs, ARCHIVE, z, zn + 10);
	assert_int_equal(scan(&b, &seen, NULL), 0);
	assert_int_equal(seen.records, RECORDS);
	assert_int_equal(seen.of_archive, 1);
	memcpy(z + zn, "\x50\x2a\x4d\x18\0\0\0\0", 8); /* an empty one */
	crashfs_put(b.fs, ARCHIVE, z, zn + 8);
	assert_int_equal(scan(&b, &seen, NULL), 0);
	assert_int_equal(seen.records, RECORDS);
	assert_int_equal(seen.damaged, 0);
	box_fini(&b);
}

/* The highest levels look back further than the usual window: what refers to it is content, not damage. */
static void content_that_refers_far_back_is_read(void **state)
{
	(void)state;
	enum { FAR = 12 * 1024 * 1024, PART = 64 * 1024 };
	struct box b;
	struct wal_zst_content content;
	uint8_t *plain = malloc(FAR + PART), *packed = malloc(ZSTD_compressBound(FAR + PART));
	assert_true(plain != NULL && packed != NULL);
	box_init(&b);
	uint64_t x = 1;
	for (size_t i = 0; i < FAR; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		plain[i] = (uint8_t)(x >> 56);
	}
	memcpy(plain + FAR, plain, PART);
	ZSTD_CCtx *ctx = ZSTD_createCCtx();
	assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(ctx, ZSTD_c_windowLog, 24)));
	assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(ctx, ZSTD_c_enableLongDistanceMatching, 1)));
	for (int sized = 0; sized < 2; sized++) {
		ZSTD_outBuffer to = {.dst = packed, .size = ZSTD_compressBound(FAR + PART)};
		ZSTD_inBuffer from = {.src = plain, .size = FAR + PART};
		assert_false(ZSTD_isError(ZSTD_CCtx_reset(ctx, ZSTD_reset_session_only)));
		if (sized) /* one segment: the header has a size and no window */
			assert_false(ZSTD_isError(ZSTD_CCtx_setPledgedSrcSize(ctx, FAR + PART)));
		while (from.pos < from.size)
			assert_false(ZSTD_isError(ZSTD_compressStream2(ctx, &to, &from, ZSTD_e_continue)));
		assert_int_equal(ZSTD_compressStream2(ctx, &to, &from, ZSTD_e_end), 0);
		assert_true(to.pos < FAR + PART / 2); /* the last part is a reference */
		crashfs_put(b.fs, ARCHIVE, packed, to.pos);
		assert_int_equal(sl__wal_zst_load(&b.e.env, ARCHIVE, &content, &b.err), 0);
		assert_int_equal(content.n_damage, 0);
		assert_int_equal(content.size, FAR + PART);
		assert_memory_equal(content.data, plain, FAR + PART);
		sl__wal_zst_content_free(&content, &b.e.env);
	}
	ZSTD_freeCCtx(ctx);
	free(plain);
	free(packed);
	box_fini(&b);
}

static void what_is_no_archive_at_all_says_so(void **state)
{
	(void)state;
	struct box b;
	struct seen seen;
	struct sl_err err = SL_ERR_INIT;
	box_init(&b);
	crashfs_put(b.fs, ARCHIVE, "ARWAL001, but not packed", 24);
	assert_int_equal(scan(&b, &seen, &err), SL_ECORRUPT);
	assert_non_null(strstr(err.msg, "does not begin with a zstd header"));
	crashfs_put(b.fs, ARCHIVE, "", 0);
	assert_int_equal(scan(&b, &seen, &err), SL_ECORRUPT);
	assert_non_null(strstr(err.msg, "is empty"));
	box_fini(&b);
}

/* Of three frames, so that every step of reading is there; whichever read or allocation fails, it is an error and not
 * an archive with fewer records. */
static void a_read_or_an_allocation_that_fails_is_an_error_and_not_damage(void **state)
{
	(void)state;
	struct sample s;
	struct box b;
	uint8_t z[40000];
	make_sample(&s);
	for (int memory = 0; memory < 2; memory++) {
		struct fault f;
		size_t at = 0, cuts[] = {0, s.ends[20], s.ends[40] + 11, s.size};
		box_init(&b);
		for (size_t i = 0; i < 3; i++)
			at += make_frame(z + at, sizeof(z) - at, s.log + cuts[i], cuts[i + 1] - cuts[i], 700, NULL,
					 NULL);
		crashfs_put(b.fs, ARCHIVE, z, at);
		fault_init(&f, &b.e.env);
		struct sl_env env = fault_env(&f, &b.e.env), real = b.e.env;
		b.e.env = env;
		int64_t n = 1;
		for (;; n++) {
			struct seen seen;
			struct sl_err err = SL_ERR_INIT;
			if (memory)
				fault_arm_mem(&f, n, FAULT_ONCE);
			else
				fault_arm_io(&f, n, FAULT_ONCE, EIO, FAULT_OP(FAULT_PREAD) | FAULT_OP(FAULT_OPEN));
			int rc = scan(&b, &seen, &err);
			bool failed = fault_io_failed(&f) + fault_mem_failed(&f) > 0;
			fault_disarm(&f);
			assert_int_equal(fault_open_fds(&f), 0);
			assert_int_equal(fault_live_allocs(&f), 0);
			if (!failed) {
				assert_int_equal(rc, 0);
				assert_int_equal(seen.records, RECORDS);
				assert_int_equal(seen.damaged, 0);
				break;
			}
			assert_int_equal(rc, memory ? SL_ENOMEM : SL_EIO);
		}
		print_message("# %lld %s failed\n", (long long)(n - 1), memory ? "allocations" : "calls");
		assert_true(n > (memory ? 3 : 20));
		b.e.env = real;
		fault_fini(&f);
		box_fini(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cut_archive_gives_every_record_of_its_whole_blocks),
		cmocka_unit_test(every_flipped_bit_is_noticed_or_harmless_and_no_record_is_invented),
		cmocka_unit_test(a_damaged_checksum_costs_no_record_and_a_damaged_size_only_the_last_block),
		cmocka_unit_test(frames_are_read_up_to_the_first_damaged_block_and_past_a_wrong_checksum),
		cmocka_unit_test(frames_before_one_that_asks_for_too_much_memory_are_read),
		cmocka_unit_test(a_frame_inside_a_payload_is_not_taken_for_the_next_one),
		cmocka_unit_test(junk_after_the_frame_is_damage_and_skippable_frames_are_not),
		cmocka_unit_test(content_that_refers_far_back_is_read),
		cmocka_unit_test(what_is_no_archive_at_all_says_so),
		cmocka_unit_test(a_read_or_an_allocation_that_fails_is_an_error_and_not_damage),
	};
	return cmocka_run_group_tests_name("salvage", tests, NULL, NULL);
}
