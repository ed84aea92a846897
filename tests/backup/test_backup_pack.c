/* SPDX-License-Identifier: Apache-2.0 */
/* Packs: what goes in comes out, from frames and from the directory; damage is found; memory may fail. */
#include "backup/format_kit.h"
#include "base/sha256.h"
#include "support/fault.h"

#define POOL (8u << 20) /* bytes that blocks are cut of: the first half compresses */
#define BLOCKS_MAX 400u

struct block {
	size_t at, len; /* in the pool; its id is kit_id of its number */
};

struct pool {
	struct sl_env env;
	struct bk_keys keys;
	uint8_t *bytes;
	struct block blocks[BLOCKS_MAX];
	uint64_t n;
};

static struct pool *pool_new(int which)
{
	struct pool *o = calloc(1, sizeof(*o));
	o->env = kit_env();
	o->keys = kit_keys(which);
	o->bytes = malloc(POOL);
	kit_text(o->bytes, POOL / 2, 1);
	kit_random(o->bytes + POOL / 2, POOL / 2, 2);
	return o;
}

static void pool_free(struct pool *o)
{
	free(o->bytes);
	free(o);
}

static struct bk_pack *pack_new(struct pool *o, size_t pack_bytes)
{
	struct bk_pack *p = NULL;
	assert_int_equal(sl__bk_pack_new(&p, &o->env,
					 &(struct bk_pack_opts){.keys = &o->keys, .level = 3, .pack_bytes = pack_bytes},
					 NULL),
			 0);
	return p;
}

static bool add(struct pool *o, struct bk_pack *p, size_t at, size_t len)
{
	struct bk_id id = kit_id(o->n);
	bool full = false;
	assert_true(o->n < BLOCKS_MAX && at + len <= POOL);
	o->blocks[o->n++] = (struct block){at, len};
	assert_int_equal(sl__bk_pack_add(p, &(struct bk_block){&id, o->bytes + at, len}, &full, NULL), 0);
	return full;
}

static struct bk_pack_image take(struct bk_pack *p)
{
	struct bk_pack_image image;
	assert_int_equal(sl__bk_pack_take(p, &image, NULL), 0);
	return image;
}

static size_t number_of(const struct pool *o, const struct bk_id *id)
{
	for (uint64_t i = 0; i < o->n; i++) {
		struct bk_id want = kit_id(i);
		if (memcmp(&want, id, sizeof(want)) == 0)
			return i;
	}
	fail_msg("an id that was never added");
	return 0;
}

/* ---- reading it again ---- */

struct reading {
	struct pool *o;
	const uint8_t *pack;
	struct bk_opener *opener;
	uint8_t *stored, *raw;
	size_t blocks;
	uint64_t sum; /* of lengths */
};

/* 0: the block's frame opens and has its bytes. */
static int read_block(const struct bk_id *id, const struct bk_place *place, void *ctx)
{
	struct reading *r = ctx;
	memcpy(r->stored, r->pack + place->frame_offset, place->frame_stored);
	int rc = sl__bk_frame_open(r->opener, place, r->stored, r->raw, NULL);
	if (rc != 0)
		return rc;
	const struct block *b = &r->o->blocks[number_of(r->o, id)];
	assert_int_equal(place->length, b->len);
	assert_true((size_t)place->offset + place->length <= place->frame_raw);
	assert_memory_equal(r->raw + place->offset, r->o->bytes + b->at, b->len);
	r->blocks++;
	r->sum += b->len;
	return 0;
}

/* The pack by its directory, and every frame by the places there. */
static int read_pack(struct pool *o, const uint8_t *pack, size_t len, size_t *blocks)
{
	struct reading r = {.o = o, .pack = pack, .stored = malloc(len), .raw = malloc(BK_FRAME_RAW_MAX)};
	uint8_t *copy = malloc(len);
	assert_int_equal(sl__bk_opener_new(&r.opener, &o->env, &o->keys, NULL), 0);
	memcpy(copy, pack, len);
	struct bk_pack_end last = {.bytes = copy, .n = len, .pack_size = len};
	int rc = sl__bk_directory_read(&o->keys, &last, read_block, &r, NULL);
	sl__bk_opener_free(r.opener);
	free(copy);
	free(r.stored);
	free(r.raw);
	*blocks = r.blocks;
	return rc;
}

static void assert_image(struct pool *o, const struct bk_pack_image *image)
{
	size_t blocks;
	struct bk_id name;
	assert_int_equal(read_pack(o, image->bytes, image->len, &blocks), 0);
	assert_int_equal(blocks, image->n_blocks);
	assert_int_equal(sl__sha256(image->bytes, image->len, name.b, NULL), 0);
	assert_memory_equal(&name, &image->name, sizeof(name));
	uint64_t sum = 0;
	for (size_t i = 0; i < image->n_blocks; i++)
		sum += image->blocks[i].place.length;
	assert_int_equal(sum, image->raw_bytes);
}

static void blocks_of_every_length_come_back(SL_UNUSED void **state)
{
	static const size_t lens[] = {0,
				      1,
				      2,
				      31,
				      4095,
				      100000,
				      BK_SOLID_BELOW - 1,
				      BK_SOLID_BELOW,
				      BK_SOLID_BELOW + 1,
				      BK_FRAME_BYTES - 1,
				      BK_FRAME_BYTES,
				      BK_CHUNK_MAX - 1,
				      BK_CHUNK_MAX,
				      77};
	for (int which = 0; which < 2; which++) {
		struct pool *o = pool_new(which);
		struct bk_pack *p = pack_new(o, 32u << 20);
		for (size_t i = 0; i < 3 * SL_COUNT(lens); i++)
			(void)add(o, p, (i * 997777) % (POOL - BK_CHUNK_MAX), lens[i % SL_COUNT(lens)]);
		struct bk_pack_image image = take(p);
		assert_int_equal(image.n_blocks, o->n);
		assert_image(o, &image);
		sl__bk_pack_image_fini(&o->env, &image);
		sl__bk_pack_free(p);
		pool_free(o);
	}
}

static void the_directory_says_what_the_builder_said(SL_UNUSED void **state)
{
	struct pool *o = pool_new(1);
	struct bk_pack *p = pack_new(o, 8u << 20);
	for (size_t i = 0; i < 60; i++)
		(void)add(o, p, i * 1000, i % 7 == 6 ? 600000 : i * 3001 % 300000);
	struct bk_pack_image image = take(p);
	struct bk_opener *opener = NULL;
	assert_int_equal(sl__bk_opener_new(&opener, &o->env, &o->keys, NULL), 0);
	struct reading r = {.o = o,
			    .pack = image.bytes,
			    .opener = opener,
			    .stored = malloc(image.len),
			    .raw = malloc(BK_FRAME_RAW_MAX)};
	for (size_t i = 0; i < image.n_blocks; i++) /* by the builder's places */
		assert_int_equal(read_block(&image.blocks[i].id, &image.blocks[i].place, &r), 0);
	assert_int_equal(r.sum, image.raw_bytes);
	assert_image(o, &image); /* by the directory's */
	free(r.stored);
	free(r.raw);
	sl__bk_opener_free(opener);
	sl__bk_pack_image_fini(&o->env, &image);
	sl__bk_pack_free(p);
	pool_free(o);
}

static void small_blocks_share_a_frame_and_large_ones_do_not(SL_UNUSED void **state)
{
	struct pool *o = pool_new(0);
	struct bk_pack *p = pack_new(o, 8u << 20);
	(void)add(o, p, 0, 1000);
	(void)add(o, p, 0, BK_SOLID_BELOW);
	(void)add(o, p, 5000, BK_SOLID_BELOW - 1);
	struct bk_pack_image image = take(p);
	const struct bk_pack_block *b = image.blocks; /* in the order of frames: the large one is closed first */
	assert_int_equal(number_of(o, &b[0].id), 1);
	assert_int_equal(b[0].place.frame_raw, BK_SOLID_BELOW);
	assert_int_equal(b[1].place.frame_raw, 1000 + BK_SOLID_BELOW - 1);
	assert_int_equal(b[1].place.frame_offset, b[2].place.frame_offset);
	assert_int_equal(b[2].place.offset, 1000);
	sl__bk_pack_image_fini(&o->env, &image);
	sl__bk_pack_free(p);
	pool_free(o);
}

static void what_does_not_shrink_is_stored_as_it_is(SL_UNUSED void **state)
{
	struct pool *o = pool_new(0);
	struct bk_pack *p = pack_new(o, 8u << 20);
	(void)add(o, p, 0, 1u << 20);
	(void)add(o, p, POOL / 2, 1u << 20);
	struct bk_pack_image image = take(p);
	assert_true(image.blocks[0].place.zstd && image.blocks[0].place.frame_stored < 1u << 19);
	assert_false(image.blocks[1].place.zstd);
	assert_int_equal(image.blocks[1].place.frame_stored, (1u << 20) + sl__bk_seal_bytes(&o->keys));
	assert_image(o, &image);
	sl__bk_pack_image_fini(&o->env, &image);
	sl__bk_pack_free(p);
	pool_free(o);
}

static void a_pack_is_full_when_it_has_reached_its_size(SL_UNUSED void **state)
{
	static const size_t sizes[] = {1, 64u << 10, 1u << 20, 4u << 20};
	for (size_t i = 0; i < SL_COUNT(sizes); i++) {
		struct pool *o = pool_new(1);
		struct bk_pack *p = pack_new(o, sizes[i]);
		size_t last = 0;
		while (!add(o, p, POOL / 2 + o->n * 100000 % 4000000, 100000))
			last = (size_t)o->n * 100000;
		struct bk_pack_image image = take(p);
		assert_true(image.len >= sizes[i] && image.len <= sizes[i] + BK_CHUNK_MAX + BK_FRAME_BYTES + 100000);
		assert_true(last <= sizes[i] + BK_FRAME_BYTES);
		assert_image(o, &image);
		sl__bk_pack_image_fini(&o->env, &image);
		image = take(p); /* it is empty, and can be used again */
		assert_null(image.bytes);
		assert_int_equal(image.n_blocks, 0);
		(void)add(o, p, 5, 5);
		image = take(p);
		assert_int_equal(image.n_blocks, 1);
		assert_int_equal(image.raw_bytes, 5);
		assert_image(o, &image);
		sl__bk_pack_image_fini(&o->env, &image);
		sl__bk_pack_free(p);
		pool_free(o);
	}
}

static int count_block(SL_UNUSED const struct bk_id *id, const struct bk_place *place, void *ctx)
{
	assert_int_equal(place->length, 0);
	++*(size_t *)ctx;
	return 0;
}

static void any_number_of_empty_blocks_ends_in_a_full_pack(SL_UNUSED void **state)
{
	struct pool *o = pool_new(0);
	struct bk_pack *p = pack_new(o, 4u << 20);
	bool full = false;
	size_t n = 0, count = 0;
	for (; !full; n++) {
		struct bk_id id = kit_id(n);
		assert_int_equal(sl__bk_pack_add(p, &(struct bk_block){&id, NULL, 0}, &full, NULL), 0);
	}
	assert_true(n > BK_FRAME_BLOCKS_MAX); /* several frames */
	struct bk_pack_image image = take(p);
	assert_int_equal(image.n_blocks, n);
	assert_true(image.len >= 4u << 20 && image.len < (4u << 20) + 200); /* the directory counts */
	struct bk_pack_end last = {.bytes = image.bytes, .n = image.len, .pack_size = image.len};
	assert_int_equal(sl__bk_directory_read(&o->keys, &last, count_block, &count, NULL), 0);
	assert_int_equal(count, n);
	sl__bk_pack_image_fini(&o->env, &image);
	sl__bk_pack_free(p);
	pool_free(o);
}

static void no_two_packs_have_one_name(SL_UNUSED void **state)
{
	struct pool *o = pool_new(0);
	struct bk_pack *p = pack_new(o, 8u << 20);
	(void)add(o, p, 0, 1000);
	struct bk_pack_image a = take(p);
	o->n = 0; /* the same block again */
	(void)add(o, p, 0, 1000);
	struct bk_pack_image b = take(p);
	assert_int_equal(a.len, b.len);
	assert_memory_not_equal(&a.name, &b.name, sizeof(a.name));
	sl__bk_pack_image_fini(&o->env, &a);
	sl__bk_pack_image_fini(&o->env, &b);
	sl__bk_pack_free(p);
	pool_free(o);
}

static void arguments_out_of_range_are_refused(SL_UNUSED void **state)
{
	struct pool *o = pool_new(0);
	struct bk_pack *p = NULL;
	struct bk_id id = kit_id(1);
	bool full;
	assert_int_equal(sl__bk_pack_new(&p, &o->env,
					 &(struct bk_pack_opts){.keys = &o->keys, .level = 3, .pack_bytes = 0}, NULL),
			 SL_EINVAL);
	assert_int_equal(
		sl__bk_pack_new(&p, &o->env,
				&(struct bk_pack_opts){.keys = &o->keys, .level = 3, .pack_bytes = BK_PACK_BYTES_MAX},
				NULL),
		SL_EINVAL);
	assert_null(p);
	p = pack_new(o, 1u << 20);
	assert_int_equal(sl__bk_pack_add(p, &(struct bk_block){&id, o->bytes, BK_CHUNK_MAX + 1}, &full, NULL),
			 SL_EINVAL);
	sl__bk_pack_free(p);
	pool_free(o);
}

/* Two frames, one compressed, with few bytes. */
static struct bk_pack_image small_pack(struct pool *o)
{
	struct bk_pack *p = pack_new(o, 1u << 20);
	(void)add(o, p, 0, 150);
	(void)add(o, p, 200, 90);
	(void)add(o, p, POOL / 2, 20);
	struct bk_pack_image image = take(p);
	sl__bk_pack_free(p);
	return image;
}

static void every_flipped_bit_of_a_pack_is_found(SL_UNUSED void **state)
{
	for (int which = 0; which < 2; which++) {
		struct pool *o = pool_new(which);
		struct bk_pack_image image = small_pack(o);
		for (size_t bit = 0; bit < 8 * image.len; bit++) {
			size_t blocks;
			image.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
			int rc = read_pack(o, image.bytes, image.len, &blocks);
			image.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
			/* The random bytes of the header mean nothing to a reader; the name covers them. */
			bool covered_by_name_only = bit / 8 >= 24 && bit / 8 < BK_PACK_HEADER;
			assert_int_equal(rc, covered_by_name_only ? 0 : SL_ECORRUPT);
		}
		assert_image(o, &image);
		sl__bk_pack_image_fini(&o->env, &image);
		pool_free(o);
	}
}

static void a_pack_that_was_cut_is_refused(SL_UNUSED void **state)
{
	struct pool *o = pool_new(1);
	struct bk_pack_image image = small_pack(o);
	size_t blocks;
	for (size_t n = 0; n < image.len; n++)
		assert_int_equal(read_pack(o, image.bytes, n, &blocks), SL_ECORRUPT);
	sl__bk_pack_image_fini(&o->env, &image);
	pool_free(o);
}

static int count_any(SL_UNUSED const struct bk_id *id, SL_UNUSED const struct bk_place *place, void *ctx)
{
	++*(size_t *)ctx;
	return 0;
}

static void a_directory_is_read_from_as_few_bytes_as_it_has(SL_UNUSED void **state)
{
	struct pool *o = pool_new(1);
	struct bk_pack_image image = small_pack(o);
	uint8_t *end = malloc(image.len);
	for (size_t n = 0; n <= image.len; n++) {
		size_t count = 0, had = n;
		int rounds = 0, rc;
		do {
			memcpy(end, image.bytes + image.len - had, had);
			struct bk_pack_end last = {.bytes = end, .n = had, .pack_size = image.len};
			rc = sl__bk_directory_read(&o->keys, &last, count_any, &count, NULL);
			assert_true(rc == 0 || (rc == SL_EAGAIN && last.need > had && last.need <= image.len));
			had = rc == SL_EAGAIN ? last.need : had;
		} while (rc == SL_EAGAIN && ++rounds <= 2);
		assert_int_equal(rc, 0);
		assert_int_equal(count, 3);
	}
	free(end);
	sl__bk_pack_image_fini(&o->env, &image);
	pool_free(o);
}

static void a_pack_of_another_repository_is_refused(SL_UNUSED void **state)
{
	struct pool *o = pool_new(0);
	struct bk_pack_image image = small_pack(o);
	size_t blocks;
	o->keys = kit_keys(1);
	assert_int_equal(read_pack(o, image.bytes, image.len, &blocks), SL_ECORRUPT);
	o->keys = kit_keys(0);
	o->keys.repository[0] ^= 1;
	assert_int_equal(read_pack(o, image.bytes, image.len, &blocks), SL_ECORRUPT);
	sl__bk_pack_image_fini(&o->env, &image);
	pool_free(o);
}

static void images_begin_with_a_page_and_are_used_again(SL_UNUSED void **state)
{
	struct pool *o = pool_new(0);
	struct fault f;
	fault_init(&f, NULL);
	struct sl_env base = fault_env(&f, NULL);
	assert_int_equal(sl__env_init(&o->env, &base, NULL), 0);
	struct bk_images images;
	uint8_t *all[8], *again[2];
	sl__bk_images_init(&images);
	for (size_t i = 0; i < SL_COUNT(all); i++) {
		all[i] = sl__bk_image_alloc(&o->env, &images, 10000 + i);
		assert_non_null(all[i]);
		assert_int_equal((uintptr_t)all[i] % BK_IMAGE_ALIGN, 0);
		memset(all[i], (int)i, 10000 + i);
	}
	sl__bk_image_free(&o->env, &images, all[3]);
	again[0] = sl__bk_image_alloc(&o->env, &images, 10003);
	assert_ptr_equal(again[0], all[3]);
	sl__bk_image_free(&o->env, &images, again[0]);
	again[1] = sl__bk_image_alloc(&o->env, &images, 10004); /* none that waits is so large */
	assert_ptr_not_equal(again[1], all[3]);
	memset(again[1], 1, 10004);
	sl__bk_image_free(&o->env, &images, again[1]);
	for (size_t i = 0; i < SL_COUNT(all); i++)
		if (i != 3)
			sl__bk_image_free(&o->env, &images, all[i]);
	assert_true(fault_live_allocs(&f) <= 2); /* a backlog is not kept */
	sl__bk_images_fini(&images, &o->env);
	assert_int_equal(fault_live_allocs(&f), 0);
	fault_fini(&f);
	pool_free(o);
}

/* A builder's life with an allocation that fails. */
static int build_once(struct pool *o)
{
	struct bk_pack *p = NULL;
	struct bk_pack_image image = {.bytes = NULL};
	bool full;
	int rc = sl__bk_pack_new(&p, &o->env,
				 &(struct bk_pack_opts){.keys = &o->keys, .level = 3, .pack_bytes = 1u << 20}, NULL);
	for (uint64_t i = 0; rc == 0 && i < 200; i++) {
		struct bk_id id = kit_id(i);
		rc = sl__bk_pack_add(p, &(struct bk_block){&id, o->bytes + i, i % 40 == 39 ? BK_SOLID_BELOW : 3000},
				     &full, NULL);
	}
	if (rc == 0)
		rc = sl__bk_pack_take(p, &image, NULL);
	assert_true((rc == 0) == (image.bytes != NULL));
	sl__bk_pack_image_fini(&o->env, &image);
	sl__bk_pack_free(p);
	return rc;
}

static void every_allocation_may_fail(SL_UNUSED void **state)
{
	struct pool *o = pool_new(1);
	struct fault f;
	fault_init(&f, NULL);
	struct sl_env base = fault_env(&f, NULL);
	assert_int_equal(sl__env_init(&o->env, &base, NULL), 0);
	int64_t n = 1;
	for (;; n++) {
		fault_arm_mem(&f, n, FAULT_ONCE);
		int rc = build_once(o);
		fault_disarm(&f);
		assert_int_equal(fault_live_allocs(&f), 0);
		if (fault_mem_failed(&f) == 0) {
			assert_int_equal(rc, 0);
			break;
		}
		assert_int_equal(rc, SL_ENOMEM);
	}
	print_message("# %lld allocations failed\n", (long long)n - 1);
	assert_true(n > 5);
	fault_fini(&f);
	pool_free(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_of_every_length_come_back),
		cmocka_unit_test(the_directory_says_what_the_builder_said),
		cmocka_unit_test(small_blocks_share_a_frame_and_large_ones_do_not),
		cmocka_unit_test(what_does_not_shrink_is_stored_as_it_is),
		cmocka_unit_test(a_pack_is_full_when_it_has_reached_its_size),
		cmocka_unit_test(any_number_of_empty_blocks_ends_in_a_full_pack),
		cmocka_unit_test(no_two_packs_have_one_name),
		cmocka_unit_test(arguments_out_of_range_are_refused),
		cmocka_unit_test(every_flipped_bit_of_a_pack_is_found),
		cmocka_unit_test(a_pack_that_was_cut_is_refused),
		cmocka_unit_test(a_directory_is_read_from_as_few_bytes_as_it_has),
		cmocka_unit_test(a_pack_of_another_repository_is_refused),
		cmocka_unit_test(images_begin_with_a_page_and_are_used_again),
		cmocka_unit_test(every_allocation_may_fail),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
