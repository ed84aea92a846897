/* SPDX-License-Identifier: Apache-2.0 */
/* Reading blocks: frames are read once, damage is named, packs that are gone are looked for elsewhere, and an index
 * that lies does no harm. */
#include "backup/repo_kit.h"
#include "support/fault.h"

struct fixture {
	struct repo r;
	struct bk_index *index;
	struct bk_reader *reader;
};

static void open_reader(struct fixture *f)
{
	assert_int_equal(sl__bk_index_for_reading(f->r.b, &f->index, NULL), 0);
	assert_int_equal(sl__bk_reader_new(&f->reader, f->r.b, f->index, NULL), 0);
}

static void close_reader(struct fixture *f)
{
	sl__bk_reader_free(f->reader);
	sl__bk_index_free(f->index);
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	repo_make(&f->r, NULL);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	repo_free(&f->r);
	free(f);
	return 0;
}

/* Numbers of short blocks: they are in one frame. */
static int short_numbers(uint64_t *out, int n)
{
	uint8_t bytes[REPO_BLOCK_MAX];
	int found = 0;
	for (uint64_t i = 0; found < n; i++) {
		size_t len = repo_block(i, bytes, sizeof(bytes));
		if (len > 8 && len < 3000)
			out[found++] = i;
	}
	return found;
}

static void store_numbers(struct fixture *f, const uint64_t *numbers, int n)
{
	struct bk_store *s;
	assert_int_equal(sl__bk_store_new(&s, f->r.b, NULL, 1, NULL), 0);
	for (int i = 0; i < n; i++)
		assert_int_equal(repo_store_block(&f->r, s, 0, numbers[i], NULL, NULL), 0);
	assert_int_equal(sl__bk_store_finish(s, NULL), 0);
	sl__bk_store_free(s);
}

static void one_pack_name(struct fixture *f, char name[SL_DRIVER_NAME_BYTES])
{
	struct bk_ids packs;
	assert_int_equal(sl__bk_list_packs(f->r.b, &packs, NULL, NULL, NULL), 0);
	assert_int_equal(packs.n, 1);
	sl__bk_pack_name(&packs.ids[0], name);
	sl__bk_ids_fini(&f->r.b->env, &packs);
}

static void a_frame_is_read_once_for_all_its_blocks(void **state)
{
	struct fixture *f = *state;
	uint64_t numbers[50];
	store_numbers(f, numbers, short_numbers(numbers, 50));
	open_reader(f);
	assert_int_equal(repo_read_block(&f->r, f->reader, numbers[0], NULL), 0);
	int64_t gets = f->r.bad.calls[BAD_GET];
	for (int i = 0; i < 50; i++)
		assert_int_equal(repo_read_block(&f->r, f->reader, numbers[i], NULL), 0);
	assert_int_equal(f->r.bad.calls[BAD_GET], gets);
	close_reader(f);
}

static void more_frames_than_are_kept_can_be_read_in_any_order(void **state)
{
	struct fixture *f = *state;
	struct sl_err err = SL_ERR_INIT;
	repo_store(&f->r, 0, 150);
	open_reader(f);
	for (uint64_t i = 0; i < 600; i++)
		if (repo_read_block(&f->r, f->reader, i * 67 % 150, &err) != 0)
			fail_msg("%s", err.msg);
	close_reader(f);
}

static void a_block_that_is_nowhere_is_named(void **state)
{
	struct fixture *f = *state;
	struct sl_err err = SL_ERR_INIT;
	char hex[BK_HEX_BYTES];
	struct bk_id id = repo_block_id(f->r.b, 777);
	open_reader(f);
	assert_int_equal(repo_read_block(&f->r, f->reader, 777, &err), SL_ENOENT);
	sl__bk_hex(id.b, sizeof(id.b), hex);
	assert_non_null(strstr(err.msg, hex));
	close_reader(f);
}

static void another_length_than_expected_is_damage(void **state)
{
	struct fixture *f = *state;
	struct sl_err err = SL_ERR_INIT;
	const uint8_t *bytes = NULL;
	repo_store(&f->r, 0, 3);
	open_reader(f);
	struct bk_id id = repo_block_id(f->r.b, 1);
	assert_int_equal(sl__bk_read_block(f->reader, &id, 5000000, &bytes, &err), SL_ECORRUPT);
	assert_null(bytes);
	close_reader(f);
}

static void a_damaged_frame_is_named_with_its_pack(void **state)
{
	struct fixture *f = *state;
	struct sl_err err = SL_ERR_INIT;
	char name[SL_DRIVER_NAME_BYTES];
	uint64_t numbers[5];
	store_numbers(f, numbers, short_numbers(numbers, 5));
	one_pack_name(f, name);
	repo_damage(&f->r.d, name, BK_PACK_HEADER + 50);
	open_reader(f);
	for (int i = 0; i < 2; i++) { /* nor is it kept */
		assert_int_equal(repo_read_block(&f->r, f->reader, numbers[i], &err), SL_ECORRUPT);
		assert_non_null(strstr(err.msg, name));
	}
	close_reader(f);
}

static void a_pack_that_was_cut_off_is_damage(void **state)
{
	struct fixture *f = *state;
	struct sl_err err = SL_ERR_INIT;
	char name[SL_DRIVER_NAME_BYTES];
	uint64_t numbers[5];
	store_numbers(f, numbers, short_numbers(numbers, 5));
	one_pack_name(f, name);
	open_reader(f);
	assert_int_equal(f->r.d.ops->put(f->r.d.driver, name, "short", 5, SL_DRIVER_REPLACE, NULL), 0);
	assert_int_equal(repo_read_block(&f->r, f->reader, numbers[0], &err), SL_ECORRUPT);
	assert_non_null(strstr(err.msg, name));
	close_reader(f);
}

/* A prune has copied what is needed and deleted the pack during a restore. */
static void a_pack_that_is_gone_is_looked_for_elsewhere(void **state)
{
	struct fixture *f = *state;
	struct sl_err err = SL_ERR_INIT;
	char name[SL_DRIVER_NAME_BYTES];
	uint64_t numbers[10];
	int n = short_numbers(numbers, 10);
	store_numbers(f, numbers, n);
	one_pack_name(f, name);
	open_reader(f);
	store_numbers(f, numbers, 5); /* another pack, another index */
	assert_int_equal(f->r.d.ops->remove(f->r.d.driver, name, NULL), 0);
	for (int i = 0; i < 5; i++)
		if (repo_read_block(&f->r, f->reader, numbers[i], &err) != 0)
			fail_msg("%s", err.msg);
	assert_int_equal(repo_read_block(&f->r, f->reader, numbers[7], &err), SL_ENOENT);
	close_reader(f);
}

/* The names of two packs. */
static void two_pack_names(struct fixture *f, char names[2][SL_DRIVER_NAME_BYTES])
{
	struct bk_ids packs;
	assert_int_equal(sl__bk_list_packs(f->r.b, &packs, NULL, NULL, NULL), 0);
	assert_int_equal(packs.n, 2);
	for (int i = 0; i < 2; i++)
		sl__bk_pack_name(&packs.ids[i], names[i]);
	sl__bk_ids_fini(&f->r.b->env, &packs);
}

/* Whichever of two packs is damaged: each block is read from the other, and the damaged frame not for each of them. */
static void a_block_that_is_damaged_in_one_pack_is_read_from_another(void **state)
{
	struct fixture *f = *state;
	struct sl_err err = SL_ERR_INIT;
	char names[2][SL_DRIVER_NAME_BYTES];
	uint64_t numbers[20];
	int n = short_numbers(numbers, 20);
	store_numbers(f, numbers, n);
	store_numbers(f, numbers, n);
	two_pack_names(f, names);
	for (int damaged = 0; damaged < 2; damaged++) {
		repo_damage(&f->r.d, names[damaged], BK_PACK_HEADER + 50);
		open_reader(f);
		for (int i = 0; i < n; i++)
			if (repo_read_block(&f->r, f->reader, numbers[i], &err) != 0)
				fail_msg("%s", err.msg);
		int64_t gets = f->r.bad.calls[BAD_GET];
		for (int i = 0; i < n; i++)
			assert_int_equal(repo_read_block(&f->r, f->reader, numbers[i], &err), 0);
		assert_int_equal(f->r.bad.calls[BAD_GET], gets);
		close_reader(f);
		repo_damage(&f->r.d, names[damaged], BK_PACK_HEADER + 50); /* back */
	}
	for (int i = 0; i < 2; i++)
		repo_damage(&f->r.d, names[i], BK_PACK_HEADER + 50);
	open_reader(f);
	assert_int_equal(repo_read_block(&f->r, f->reader, numbers[0], &err), SL_ECORRUPT);
	close_reader(f);
}

static int refuse_pack(struct bad_driver *b, enum bad_op op, const char *name, void *ctx)
{
	(void)b;
	return op == BAD_GET && strcmp(name, ctx) == 0 ? SL_EIO : 0;
}

static void a_block_of_a_pack_that_cannot_be_read_is_read_from_another(void **state)
{
	struct fixture *f = *state;
	struct sl_err err = SL_ERR_INIT;
	char names[2][SL_DRIVER_NAME_BYTES];
	uint64_t numbers[3];
	int n = short_numbers(numbers, 3);
	store_numbers(f, numbers, n);
	store_numbers(f, numbers, n);
	two_pack_names(f, names);
	for (int refused = 0; refused < 2; refused++) {
		open_reader(f);
		f->r.bad.hook = refuse_pack;
		f->r.bad.hook_ctx = names[refused];
		for (int i = 0; i < n; i++)
			if (repo_read_block(&f->r, f->reader, numbers[i], &err) != 0)
				fail_msg("%s", err.msg);
		f->r.bad.hook = NULL;
		close_reader(f);
	}
}

static void an_error_of_the_driver_is_no_damage(void **state)
{
	struct fixture *f = *state;
	struct sl_err err = SL_ERR_INIT;
	repo_store(&f->r, 0, 3);
	open_reader(f);
	assert_int_equal(repo_read_block(&f->r, f->reader, 0, &err), 0); /* the index is read */
	close_reader(f);
	open_reader(f);
	f->r.bad.counted = 0;
	f->r.bad.fail_on = true;
	f->r.bad.fail_at = 1;
	f->r.bad.fail_ops = BAD_OP(BAD_GET);
	assert_int_equal(repo_read_block(&f->r, f->reader, 0, &err), SL_EIO);
	f->r.bad.fail_at = 0;
	assert_int_equal(repo_read_block(&f->r, f->reader, 0, &err), 0);
	close_reader(f);
}

/* Anybody may have written a plain repository's index. */
static void an_index_that_lies_does_no_harm(void **state)
{
	struct fixture *f = *state;
	struct sl_err err = SL_ERR_INIT;
	char name[SL_DRIVER_NAME_BYTES], index[SL_DRIVER_NAME_BYTES];
	struct bk_found at;
	struct bk_ids packs;
	uint64_t numbers[5];
	store_numbers(f, numbers, short_numbers(numbers, 5));
	assert_int_equal(sl__bk_list_packs(f->r.b, &packs, NULL, NULL, NULL), 0);
	open_reader(f);
	struct bk_id id = repo_block_id(f->r.b, numbers[0]);
	assert_int_equal(sl__bk_index_find(f->index, &id, &at, NULL), 0);
	close_reader(f);
	assert_int_equal(repo_count(&f->r.d, "index", index), 1);
	(void)snprintf(name, sizeof(name), "index/%.64s", index);
	assert_int_equal(f->r.d.ops->remove(f->r.d.driver, name, NULL), 0);
	const struct bk_place lies[] = {
		{at.place.frame_offset, at.place.frame_stored, at.place.frame_raw, UINT32_MAX, at.place.length,
		 at.place.zstd},
		{at.place.frame_offset, at.place.frame_stored, at.place.frame_raw, at.place.offset, UINT32_MAX,
		 at.place.zstd},
		{at.place.frame_offset, at.place.frame_stored, 0x7fffffff, at.place.offset, at.place.length, true},
		{at.place.frame_offset, 0x7fffffff, at.place.frame_raw, at.place.offset, at.place.length, true},
		{0x7fffffff, at.place.frame_stored, at.place.frame_raw, at.place.offset, at.place.length, true},
		{at.place.frame_offset + 1, at.place.frame_stored, at.place.frame_raw, at.place.offset, at.place.length,
		 at.place.zstd},
		{at.place.frame_offset, 0, 0, 0, 0, false},
		{at.place.frame_offset, at.place.frame_stored, at.place.frame_raw, at.place.offset + 1, at.place.length,
		 at.place.zstd},
	};
	for (size_t i = 0; i < SL_COUNT(lies); i++) {
		struct bk_index_builder *builder;
		struct bk_pack_block block = {.id = id, .place = lies[i]};
		assert_int_equal(sl__bk_index_builder_new(&builder, &f->r.b->env, &f->r.b->keys, NULL), 0);
		int rc = sl__bk_index_builder_pack(builder, &packs.ids[0], &block, 1, &err);
		if (rc == 0)
			rc = sl__bk_index_builder_put(builder, &f->r.d, NULL, &err);
		sl__bk_index_builder_free(builder);
		if (rc != 0)
			continue; /* not even written */
		open_reader(f);
		rc = repo_read_block(&f->r, f->reader, numbers[0], &err);
		assert_true(rc == SL_ECORRUPT || rc == 0); /* 0: the index was refused, and the pack taken in itself */
		close_reader(f);
		assert_int_equal(repo_count(&f->r.d, "index", index), 1);
		(void)snprintf(name, sizeof(name), "index/%.64s", index);
		assert_int_equal(f->r.d.ops->remove(f->r.d.driver, name, NULL), 0);
	}
	sl__bk_ids_fini(&f->r.b->env, &packs);
}

/* ---- sizes that lie ---- */

static size_t largest; /* that was asked for */

static void *measure_alloc(size_t size, SL_UNUSED void *ctx)
{
	largest = SL_MAX(largest, size);
	return malloc(size);
}

static void *measure_resize(void *p, size_t size, SL_UNUSED void *ctx)
{
	largest = SL_MAX(largest, size);
	return realloc(p, size);
}

static void measure_release(void *p, SL_UNUSED void *ctx)
{
	free(p);
}

/* An index in memory, which no reader of files has checked, claims these sizes for a frame. */
static int read_lie(struct fixture *f, sl_backup *b, const struct bk_id *pack, uint32_t stored, uint32_t raw)
{
	struct bk_index *x;
	struct bk_reader *r;
	struct bk_index_builder *builder;
	const uint8_t *bytes = NULL;
	struct bk_pack_block block = {.place = {.frame_offset = BK_PACK_HEADER,
						.frame_stored = stored,
						.frame_raw = raw,
						.length = 5,
						.zstd = true}};
	memset(block.id.b, 0x42, sizeof(block.id.b));
	assert_int_equal(
		sl__bk_index_load(&x, &(struct bk_index_from){&b->env, &b->keys, &f->r.d, NULL, NULL, NULL}, NULL), 0);
	assert_int_equal(sl__bk_index_builder_new(&builder, &b->env, &b->keys, NULL), 0);
	assert_int_equal(sl__bk_index_builder_pack(builder, pack, &block, 1, NULL), 0);
	assert_int_equal(sl__bk_index_take_in(x, builder, NULL), 0);
	sl__bk_index_builder_free(builder);
	assert_int_equal(sl__bk_index_find(x, &block.id, NULL, NULL), 0);
	assert_int_equal(sl__bk_reader_new(&r, b, x, NULL), 0);
	largest = 0;
	int rc = sl__bk_read_block(r, &block.id, 5, &bytes, NULL);
	assert_null(bytes);
	sl__bk_reader_free(r);
	sl__bk_index_free(x);
	return rc;
}

static void sizes_that_lie_do_not_make_a_reader_allocate_more_than_a_frame(void **state)
{
	struct fixture *f = *state;
	static const struct sl_mem mem = {.version = SL_MEM_VERSION,
					  .alloc = measure_alloc,
					  .resize = measure_resize,
					  .release = measure_release};
	static const uint32_t sizes[][2] = {{100, BK_FRAME_RAW_MAX + 1},
					    {100, 0x7fffffff},
					    {BK_FRAME_RAW_MAX + BK_SEAL_MAX + 1, 1000},
					    {0x7fffffff, 1000},
					    {0xffffffff, 0x7fffffff}};
	struct sl_env env = {SL_ENV_INIT, .mem = &mem};
	struct sl_backup_opts opts = f->r.opts;
	struct bk_ids packs;
	sl_backup *b;
	uint64_t numbers[5];
	opts.env = &env;
	store_numbers(f, numbers, short_numbers(numbers, 5));
	assert_int_equal(sl__bk_list_packs(f->r.b, &packs, NULL, NULL, NULL), 0);
	assert_int_equal(sl_backup_open(&b, &f->r.d, &opts, NULL), 0);
	for (size_t i = 0; i < SL_COUNT(sizes); i++) {
		assert_int_equal(read_lie(f, b, &packs.ids[0], sizes[i][0], sizes[i][1]), SL_ECORRUPT);
		assert_true(largest <= BK_FRAME_RAW_MAX + BK_SEAL_MAX);
	}
	/* The largest that may be asked for. */
	assert_int_equal(read_lie(f, b, &packs.ids[0], 100, BK_FRAME_RAW_MAX), SL_ECORRUPT);
	assert_int_equal(largest, BK_FRAME_RAW_MAX);
	sl_backup_close(b);
	sl__bk_ids_fini(&f->r.b->env, &packs);
}

static void every_failing_allocation_is_reported_and_nothing_is_left(void **state)
{
	struct fixture *f = *state;
	struct fault fault;
	int64_t n = 1;
	repo_store(&f->r, 0, 20);
	fault_init(&fault, NULL);
	struct sl_env env = fault_env(&fault, NULL);
	sl_backup *real = f->r.b, *b;
	struct sl_backup_opts opts = f->r.opts;
	opts.env = &env;
	for (bool injected = true; injected; n++) {
		struct bk_index *x = NULL;
		struct bk_reader *r = NULL;
		const uint8_t *bytes;
		uint8_t block[REPO_BLOCK_MAX];
		assert_int_equal(sl_backup_open(&b, &f->r.d, &opts, NULL), 0);
		struct bk_id id = repo_block_id(real, 3);
		uint32_t len = (uint32_t)repo_block(3, block, sizeof(block));
		fault_arm_mem(&fault, n, FAULT_ONCE);
		int rc = sl__bk_index_for_reading(b, &x, NULL);
		if (rc == 0)
			rc = sl__bk_reader_new(&r, b, x, NULL);
		if (rc == 0)
			rc = sl__bk_read_block(r, &id, len, &bytes, NULL);
		fault_disarm(&fault);
		injected = fault_mem_failed(&fault) != 0;
		assert_true(rc == 0 || (injected && rc == SL_ENOMEM));
		sl__bk_reader_free(r);
		sl__bk_index_free(x);
		sl_backup_close(b);
		assert_int_equal(fault_live_allocs(&fault), 0);
	}
	fault_fini(&fault);
	printf("# %lld allocations failed, one after another\n", (long long)n - 2);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_frame_is_read_once_for_all_its_blocks),
		T(more_frames_than_are_kept_can_be_read_in_any_order),
		T(a_block_that_is_nowhere_is_named),
		T(another_length_than_expected_is_damage),
		T(a_damaged_frame_is_named_with_its_pack),
		T(a_pack_that_was_cut_off_is_damage),
		T(a_pack_that_is_gone_is_looked_for_elsewhere),
		T(a_block_that_is_damaged_in_one_pack_is_read_from_another),
		T(a_block_of_a_pack_that_cannot_be_read_is_read_from_another),
		T(an_error_of_the_driver_is_no_damage),
		T(an_index_that_lies_does_no_harm),
		T(sizes_that_lie_do_not_make_a_reader_allocate_more_than_a_frame),
		T(every_failing_allocation_is_reported_and_nothing_is_left),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
