/* SPDX-License-Identifier: Apache-2.0 */
/* Index files: everything that was put is found, where it was put; what a prune removes meanwhile, and damage. */
#include "backup/index_kit.h"
#include "support/fault.h"

static void every_block_is_found_where_it_was_put_and_no_other(SL_UNUSED void **state)
{
	static const uint64_t sizes[] = {1, 2, 1023, 1024, 1025, 2048, 5000, 20000};
	for (size_t i = 0; i < 2 * SL_COUNT(sizes); i++) {
		struct index_kit t;
		uint64_t n = sizes[i / 2];
		index_kit_begin(&t, (int)(i % 2));
		index_kit_put(&t, 0, n, 1000, 7000); /* several runs, several files */
		struct bk_index *x = index_kit_load(&t);
		assert_int_equal(sl__bk_index_entries(x), n);
		assert_int_equal(sl__bk_index_files(x), (n + 6999) / 7000);
		for (uint64_t k = 0; k < n; k++)
			index_kit_assert_found(&t, x, k);
		for (uint64_t k = n; k < n + 1000; k++)
			index_kit_assert_missing(x, k);
		sl__bk_index_free(x);
		index_kit_end(&t);
	}
}

static void a_look_up_reads_no_more_than_a_segment(SL_UNUSED void **state)
{
	struct index_kit t;
	index_kit_begin(&t, 1);
	index_kit_put(&t, 0, 100000, BK_SORT_RUN, BK_INDEX_FILE_ENTRIES);
	struct bk_index *x = index_kit_load(&t);
	assert_int_equal(t.mem.gets, 2); /* header and head */
	assert_true(t.mem.got_bytes < 40000);
	uint64_t before = t.mem.got_bytes;
	index_kit_assert_found(&t, x, 77);
	assert_int_equal(t.mem.gets, 3);
	assert_true(t.mem.got_bytes - before <= BK_INDEX_SEGMENT_BYTES + BK_SEAL_MAX);
	index_kit_assert_found(&t, x, 77);
	assert_int_equal(t.mem.gets, 3); /* and keeps it */
	sl__bk_index_free(x);
	index_kit_end(&t);
}

static int no_name(SL_UNUSED const char *name, SL_UNUSED void *ctx)
{
	fail_msg("an object was put");
	return 0;
}

static void an_empty_builder_puts_nothing(SL_UNUSED void **state)
{
	struct index_kit t;
	struct bk_index_builder *b = NULL;
	index_kit_begin(&t, 0);
	assert_int_equal(sl__bk_index_builder_new(&b, &t.env, &t.keys, NULL), 0);
	assert_int_equal(sl__bk_index_builder_put(b, &t.driver, &(struct bk_index_put){.on_name = no_name}, NULL), 0);
	assert_int_equal(t.mem.n, 0);
	sl__bk_index_builder_free(b);
	struct bk_index *x = index_kit_load(&t);
	assert_int_equal(sl__bk_index_files(x), 0);
	index_kit_assert_missing(x, 1);
	sl__bk_index_free(x);
	index_kit_end(&t);
}

static bool odd_packs(const struct bk_id *pack, SL_UNUSED void *ctx)
{
	for (uint64_t i = 1; i < 200; i += 2) {
		struct bk_id odd = index_kit_pack(i);
		if (memcmp(&odd, pack, sizeof(odd)) == 0)
			return true;
	}
	return false;
}

static void blocks_of_packs_that_may_not_be_used_are_not_found(SL_UNUSED void **state)
{
	struct index_kit t;
	struct bk_index *x = NULL;
	index_kit_begin(&t, 1);
	index_kit_put(&t, 0, 5000, 1000, 3000);
	assert_int_equal(
		sl__bk_index_load(&x, &(struct bk_index_from){&t.env, &t.keys, &t.driver, odd_packs, NULL, NULL}, NULL),
		0);
	for (uint64_t i = 0; i < 5000; i++)
		if (i / INDEX_KIT_PACK % 2 == 1)
			index_kit_assert_found(&t, x, i);
		else
			index_kit_assert_missing(x, i);
	sl__bk_index_free(x);
	index_kit_end(&t);
}

/* One id in many packs, more than a segment has entries; only the last of them may be used. */
static bool last_pack(const struct bk_id *pack, void *ctx)
{
	return memcmp(pack, ctx, sizeof(*pack)) == 0;
}

static void a_block_in_many_packs_is_found_in_the_usable_one(SL_UNUSED void **state)
{
	struct index_kit t;
	struct bk_index_builder *b = NULL;
	struct bk_index *x = NULL;
	index_kit_begin(&t, 0);
	struct bk_pack_block block = {kit_id(3), index_kit_place(&t.keys, 3)};
	assert_int_equal(sl__bk_index_builder_new(&b, &t.env, &t.keys, NULL), 0);
	index_kit_add(&t, b, 100, 300);
	for (uint64_t i = 0; i < 3000; i++) {
		struct bk_id pack = index_kit_pack(i + 1000);
		for (int twice = 0; twice < 2; twice++) /* the same id and pack are one entry */
			assert_int_equal(sl__bk_index_builder_pack(b, &pack, &block, 1, NULL), 0);
	}
	assert_int_equal(sl__bk_index_builder_put(b, &t.driver, NULL, NULL), 0);
	for (uint64_t i = 1000; i < 4000; i += 333) {
		struct bk_id last = index_kit_pack(i);
		struct bk_found found;
		uint64_t ordinals[4000];
		size_t count = 0;
		assert_int_equal(
			sl__bk_index_load(
				&x, &(struct bk_index_from){&t.env, &t.keys, &t.driver, last_pack, NULL, &last}, NULL),
			0);
		assert_int_equal(sl__bk_index_entries(x), 3200);
		assert_int_equal(sl__bk_index_find(x, &block.id, &found, NULL), 0);
		assert_memory_equal(&found.pack, &last, sizeof(last));
		count = (size_t)sl__bk_index_ordinals(x, &block.id, ordinals, 4000, NULL);
		assert_int_equal(count, 3000);
		for (size_t k = 1; k < count; k++)
			assert_int_equal(ordinals[k], ordinals[k - 1] + 1);
		count = (size_t)sl__bk_index_ordinals(x, &block.id, ordinals, 2, NULL);
		assert_int_equal(count, 3000); /* all are counted, two are given */
		sl__bk_index_free(x);
	}
	sl__bk_index_builder_free(b);
	index_kit_end(&t);
}

struct walk {
	struct bk_index *x;
	uint64_t next;
	size_t packs;
};

static int visit_entry(uint64_t ordinal, const struct bk_id *id, const struct bk_found *found, void *ctx)
{
	struct walk *w = ctx;
	struct bk_found same;
	uint64_t mine;
	assert_int_equal(ordinal, w->next++);
	assert_int_equal(sl__bk_index_find(w->x, id, &same, NULL), 0);
	assert_memory_equal(&same.pack, &found->pack, sizeof(same.pack));
	assert_int_equal(same.place.frame_offset, found->place.frame_offset);
	assert_int_equal(sl__bk_index_ordinals(w->x, id, &mine, 1, NULL), 1);
	assert_int_equal(mine, ordinal);
	return ordinal == 4321 ? 99 : 0;
}

static int visit_pack(SL_UNUSED const struct bk_id *pack, bool usable, void *ctx)
{
	struct walk *w = ctx;
	assert_true(usable);
	w->packs++;
	return 0;
}

static void going_through_shows_every_entry_in_order(SL_UNUSED void **state)
{
	struct index_kit t;
	index_kit_begin(&t, 0);
	index_kit_put(&t, 0, 3000, 1000, 1500);
	index_kit_put(&t, 3000, 4300, 1000, 1500);
	struct bk_index *x = index_kit_load(&t);
	struct walk w = {.x = x};
	assert_int_equal(sl__bk_index_each(x, visit_entry, &w, NULL), 0);
	assert_int_equal(w.next, 4300);
	assert_int_equal(sl__bk_index_packs(x, visit_pack, &w), 0);
	assert_true(w.packs >= 43);
	assert_int_equal(sl__bk_index_files(x), 3);
	uint64_t entries = 0;
	for (size_t i = 0; i < 3; i++) {
		assert_non_null(mem_driver_find(&t.mem, sl__bk_index_name(x, i)));
		entries += sl__bk_index_file_entries(x, i);
	}
	assert_int_equal(entries, 4300);
	sl__bk_index_free(x);
	index_kit_put(&t, 4300, 4400, 1000, 1500);
	x = index_kit_load(&t);
	w = (struct walk){.x = x};
	assert_int_equal(sl__bk_index_each(x, visit_entry, &w, NULL), 99); /* what the visitor returned */
	sl__bk_index_free(x);
	index_kit_end(&t);
}

static int keep_name(const char *name, void *ctx)
{
	char *names = ctx;
	assert_true(strlen(names) < 300);
	strcat(strcat(names, name), " ");
	return 0;
}

/* All of an index in one new file, the old ones removed: what a prune does. */
static void merge(struct index_kit *t, bk_index_keep_fn *keep)
{
	struct bk_index *x = index_kit_load(t);
	struct bk_index_builder *b = NULL;
	char names[400] = "";
	assert_int_equal(sl__bk_index_builder_new(&b, &t->env, &t->keys, NULL), 0);
	assert_int_equal(sl__bk_index_builder_index(b, x, keep, NULL, NULL), 0);
	assert_int_equal(sl__bk_index_builder_put(b, &t->driver,
						  &(struct bk_index_put){.on_name = keep_name, .ctx = names}, NULL),
			 0);
	for (size_t i = 0; i < sl__bk_index_files(x); i++)
		assert_int_equal(t->driver.ops->remove(t->driver.driver, sl__bk_index_name(x, i), NULL), 0);
	assert_int_equal(t->mem.n, 1);
	assert_int_equal(strncmp(names, t->mem.objects[0].name, strlen(t->mem.objects[0].name)), 0);
	sl__bk_index_builder_free(b);
	sl__bk_index_free(x);
}

static bool all_packs(SL_UNUSED const struct bk_id *pack, SL_UNUSED void *ctx)
{
	return true;
}

static void files_are_merged_into_one_without_doubles(SL_UNUSED void **state)
{
	struct index_kit t;
	index_kit_begin(&t, 1);
	index_kit_put(&t, 0, 3000, 1000, 1500);
	index_kit_put(&t, 2000, 5000, 1000, 1500); /* a third of it again */
	merge(&t, all_packs);
	struct bk_index *x = index_kit_load(&t);
	assert_int_equal(sl__bk_index_entries(x), 5000);
	for (uint64_t i = 0; i < 5000; i++)
		index_kit_assert_found(&t, x, i);
	sl__bk_index_free(x);
	merge(&t, odd_packs);
	x = index_kit_load(&t);
	assert_int_equal(sl__bk_index_entries(x), 2500);
	index_kit_assert_missing(x, 0);
	index_kit_assert_found(&t, x, INDEX_KIT_PACK);
	sl__bk_index_free(x);
	index_kit_end(&t);
}

static void an_index_takes_in_what_no_file_has(SL_UNUSED void **state)
{
	struct index_kit t;
	struct bk_index_builder *b = NULL;
	index_kit_begin(&t, 1);
	index_kit_put(&t, 0, 1000, 1000, 1500);
	struct bk_index *x = index_kit_load(&t);
	assert_int_equal(sl__bk_index_builder_new(&b, &t.env, &t.keys, NULL), 0);
	assert_int_equal(sl__bk_index_take_in(x, b, NULL), 0); /* nothing */
	assert_int_equal(sl__bk_index_files(x), 1);
	index_kit_add(&t, b, 1000, 6000);
	assert_int_equal(sl__bk_index_take_in(x, b, NULL), 0);
	assert_int_equal(sl__bk_index_builder_entries(b), 0);
	assert_int_equal(sl__bk_index_files(x), 2);
	assert_string_equal(sl__bk_index_name(x, 1), "");
	assert_int_equal(sl__bk_index_entries(x), 6000);
	for (uint64_t i = 0; i < 6000; i++)
		index_kit_assert_found(&t, x, i);
	index_kit_assert_missing(x, 6000);
	struct walk w = {.x = x};
	assert_int_equal(sl__bk_index_each(x, visit_entry, &w, NULL), 99);
	index_kit_add(&t, b, 7000, 7001); /* and the builder can be used again */
	assert_int_equal(sl__bk_index_take_in(x, b, NULL), 0);
	index_kit_assert_found(&t, x, 7000);
	sl__bk_index_builder_free(b);
	sl__bk_index_free(x);
	index_kit_end(&t);
}

/* ---- many small files ---- */

#define MANY 20u

/* 100 blocks to a file, and one file that is not small by itself. */
static void put_many(struct index_kit *t)
{
	for (uint64_t i = 0; i < MANY; i++)
		index_kit_put(t, i * 100, (i + 1) * 100, 1000, 4000);
	index_kit_put(t, 10000, 13000, 1000, 4000);
}

static void assert_many(struct index_kit *t, struct bk_index *x)
{
	for (uint64_t i = 0; i < MANY * 100; i++)
		index_kit_assert_found(t, x, i);
	for (uint64_t i = 10000; i < 13000; i++)
		index_kit_assert_found(t, x, i);
	for (uint64_t i = 5000; i < 6000; i++)
		index_kit_assert_missing(x, i);
}

static void many_small_files_are_read_once_and_then_asked_as_one(SL_UNUSED void **state)
{
	struct index_kit t;
	index_kit_begin(&t, 1);
	put_many(&t);
	struct bk_index *x = index_kit_load(&t);
	assert_null(x->front);
	index_kit_assert_missing(x, 5000);
	assert_non_null(x->front);
	assert_int_equal(x->front->n_entries, MANY * 100 + 3000);
	uint64_t gets = t.mem.gets;
	assert_many(&t, x);
	assert_int_equal(t.mem.gets, gets);
	/* For everything else the files are as they were. */
	assert_int_equal(sl__bk_index_files(x), MANY + 1);
	assert_int_equal(sl__bk_index_entries(x), MANY * 100 + 3000);
	struct walk w = {.x = x};
	assert_int_equal(sl__bk_index_each(x, visit_entry, &w, NULL), 99);
	sl__bk_index_free(x);
	merge(&t, all_packs);
	x = index_kit_load(&t);
	assert_many(&t, x);
	sl__bk_index_free(x);
	index_kit_end(&t);
}

static void of_many_small_files_only_what_is_usable_is_found(SL_UNUSED void **state)
{
	struct index_kit t;
	struct bk_index *x = NULL;
	index_kit_begin(&t, 0);
	put_many(&t);
	assert_int_equal(
		sl__bk_index_load(&x, &(struct bk_index_from){&t.env, &t.keys, &t.driver, odd_packs, NULL, NULL}, NULL),
		0);
	for (uint64_t i = 0; i < MANY * 100; i++)
		if (i / INDEX_KIT_PACK % 2 == 1)
			index_kit_assert_found(&t, x, i);
		else
			index_kit_assert_missing(x, i);
	sl__bk_index_free(x);
	index_kit_end(&t);
}

static void one_damaged_file_of_many_harms_only_its_own_blocks(SL_UNUSED void **state)
{
	struct index_kit t;
	index_kit_begin(&t, 1);
	put_many(&t);
	struct mem_object *third = &t.mem.objects[2]; /* blocks 200 to 299 */
	third->bytes[third->len - 1] ^= 1;
	struct bk_index *x = index_kit_load(&t);
	for (uint64_t i = 0; i < MANY * 100; i++) {
		struct bk_id id = kit_id(i);
		if (i / 100 == 2)
			assert_int_equal(sl__bk_index_find(x, &id, NULL, NULL), SL_ECORRUPT);
		else
			index_kit_assert_found(&t, x, i);
	}
	sl__bk_index_free(x);
	index_kit_end(&t);
}

static void many_files_that_a_prune_merges_are_found_in_what_took_their_place(SL_UNUSED void **state)
{
	struct index_kit t;
	index_kit_begin(&t, 1);
	for (int before = 0; before < 2; before++) {
		put_many(&t);
		struct bk_index *x = index_kit_load(&t);
		if (before)
			index_kit_assert_found(&t, x, 7); /* all is gathered */
		merge(&t, all_packs);
		assert_many(&t, x);
		sl__bk_index_free(x);
		assert_int_equal(t.driver.ops->remove(t.driver.driver, t.mem.objects[0].name, NULL), 0);
	}
	index_kit_end(&t);
}

static void without_memory_or_a_temporary_file_many_files_are_asked_one_by_one(SL_UNUSED void **state)
{
	struct fault f;
	struct index_kit t;
	int64_t failed = 0;
	fault_init(&f, NULL);
	struct sl_env base = fault_env(&f, NULL), env;
	assert_int_equal(sl__env_init(&env, &base, NULL), 0);
	index_kit_begin(&t, 0);
	put_many(&t);
	for (int64_t n = 1; failed >= 0; n++) {
		struct bk_index *x = NULL;
		assert_int_equal(sl__bk_index_load(
					 &x, &(struct bk_index_from){&env, &t.keys, &t.driver, NULL, NULL, NULL}, NULL),
				 0);
		fault_arm_mem(&f, n, FAULT_ONCE);
		index_kit_assert_missing(x, 5000);
		fault_disarm(&f);
		failed = fault_mem_failed(&f) != 0 ? n : -failed;
		assert_many(&t, x);
		sl__bk_index_free(x);
		assert_int_equal(fault_live_allocs(&f), 0);
	}
	assert_true(failed < -(int64_t)MANY);          /* the last one that was there to fail */
	index_kit_put(&t, 20000, 90000, 65536, 30000); /* more than are sorted in memory */
	struct bk_index *x = NULL;
	assert_int_equal(
		sl__bk_index_load(&x, &(struct bk_index_from){&env, &t.keys, &t.driver, NULL, NULL, NULL}, NULL), 0);
	fault_arm_io(&f, 1, FAULT_FROM, 28, FAULT_ALL_OPS);
	assert_many(&t, x);
	index_kit_assert_found(&t, x, 50000);
	assert_true(fault_io_failed(&f) > 0);
	assert_null(x->front);
	fault_disarm(&f);
	sl__bk_index_free(x);
	assert_int_equal(fault_open_fds(&f), 0);
	fault_fini(&f);
	index_kit_end(&t);
}

/* ---- files that vanish ---- */

static void merge_once(struct mem_driver *d, void *ctx)
{
	d->after_list = NULL;
	merge(ctx, all_packs);
}

static void a_file_that_vanishes_while_loading_leads_to_another_listing(SL_UNUSED void **state)
{
	struct index_kit t;
	index_kit_begin(&t, 1);
	index_kit_put(&t, 0, 3000, 1000, 1500);
	t.mem.after_list = merge_once;
	t.mem.after_list_ctx = &t;
	struct bk_index *x = index_kit_load(&t);
	assert_int_equal(sl__bk_index_files(x), 1);
	for (uint64_t i = 0; i < 3000; i++)
		index_kit_assert_found(&t, x, i);
	sl__bk_index_free(x);
	index_kit_end(&t);
}

static void a_prune_that_merges_files_does_not_disturb_look_ups(SL_UNUSED void **state)
{
	struct index_kit t;
	struct bk_index *x = NULL;
	index_kit_begin(&t, 1);
	index_kit_put(&t, 0, 10000, 1000, 4000);
	assert_int_equal(
		sl__bk_index_load(&x, &(struct bk_index_from){&t.env, &t.keys, &t.driver, odd_packs, NULL, NULL}, NULL),
		0);
	index_kit_assert_found(&t, x, INDEX_KIT_PACK); /* some segments are read */
	index_kit_put(&t, 10000, 10200, 1000, 4000);   /* another create */
	merge(&t, all_packs);
	for (uint64_t i = 0; i < 10000; i++)
		if (i / INDEX_KIT_PACK % 2 == 1)
			index_kit_assert_found(&t, x, i);
		else
			index_kit_assert_missing(x, i); /* what was not usable does not become so */
	for (uint64_t i = 10000; i < 10200; i++)
		index_kit_assert_missing(x, i); /* packs that came after us do not count */
	sl__bk_index_free(x);
	index_kit_end(&t);
}

static void what_was_removed_for_good_is_missing_and_not_an_error(SL_UNUSED void **state)
{
	struct index_kit t;
	index_kit_begin(&t, 0);
	index_kit_put(&t, 0, 2000, 1000, 4000);
	struct bk_index *x = index_kit_load(&t);
	char name[SL_DRIVER_NAME_BYTES];
	strcpy(name, t.mem.objects[0].name);
	assert_int_equal(t.driver.ops->remove(t.driver.driver, name, NULL), 0);
	index_kit_assert_missing(x, 0);
	uint64_t gets = t.mem.gets;
	for (uint64_t i = 0; i < 2000; i++)
		index_kit_assert_missing(x, i);
	assert_int_equal(t.mem.gets, gets); /* and is not asked for again */
	sl__bk_index_free(x);
	index_kit_end(&t);
}

/* ---- failures ---- */

static void a_failed_read_is_reported_and_may_succeed_later(SL_UNUSED void **state)
{
	struct index_kit t;
	struct bk_index *x = NULL;
	struct sl_err err = SL_ERR_INIT;
	struct bk_id id = kit_id(5);
	index_kit_begin(&t, 1);
	index_kit_put(&t, 0, 3000, 1000, 4000);
	for (int64_t n = 1; n <= 2; n++) {
		t.mem.gets = 0;
		t.mem.fail_get_at = n;
		assert_int_equal(
			sl__bk_index_load(&x, &(struct bk_index_from){&t.env, &t.keys, &t.driver, NULL, NULL, NULL},
					  &err),
			SL_EIO);
		assert_null(x);
	}
	t.mem.gets = 0;
	t.mem.fail_get_at = 3;
	x = index_kit_load(&t);
	assert_int_equal(sl__bk_index_find(x, &id, NULL, &err), SL_EIO);
	assert_non_null(strstr(err.msg, "made to fail"));
	index_kit_assert_found(&t, x, 5);
	sl__bk_index_free(x);
	index_kit_end(&t);
}

/* Build with runs that go to the temporary file, put, load, look up, take in. */
static int life(struct index_kit *t)
{
	struct bk_index_builder *b = NULL;
	struct bk_index *x = NULL;
	struct bk_id id = kit_id(1), pack = index_kit_pack(0);
	struct bk_pack_block blocks[70];
	for (uint64_t i = 0; i < SL_COUNT(blocks); i++)
		blocks[i] = (struct bk_pack_block){kit_id(i), index_kit_place(&t->keys, i)};
	int rc = sl__bk_index_builder_new(&b, &t->env, &t->keys, NULL);
	if (rc == 0) {
		b->sort.run_entries = 20;
		rc = sl__bk_index_builder_pack(b, &pack, blocks, SL_COUNT(blocks), NULL);
	}
	if (rc == 0)
		rc = sl__bk_index_builder_put(b, &t->driver, NULL, NULL);
	if (rc == 0)
		rc = sl__bk_index_load(&x, &(struct bk_index_from){&t->env, &t->keys, &t->driver, NULL, NULL, NULL},
				       NULL);
	if (rc == 0)
		rc = sl__bk_index_find(x, &id, NULL, NULL);
	if (rc == 0) {
		pack = index_kit_pack(1);
		rc = sl__bk_index_builder_pack(b, &pack, blocks, 10, NULL);
	}
	if (rc == 0)
		rc = sl__bk_index_take_in(x, b, NULL);
	if (rc == 0)
		rc = sl__bk_index_builder_index(b, x, all_packs, NULL, NULL);
	sl__bk_index_builder_free(b);
	sl__bk_index_free(x);
	return rc;
}

static void every_allocation_and_system_call_may_fail(SL_UNUSED void **state)
{
	struct fault f;
	int64_t allocations = 0, calls = 0;
	fault_init(&f, NULL);
	struct sl_env base = fault_env(&f, NULL);
	for (int what = 0; what < 2; what++) {
		for (int64_t n = 1;; n++) {
			struct index_kit t;
			index_kit_begin(&t, 1);
			assert_int_equal(sl__env_init(&t.env, &base, NULL), 0);
			if (what == 0)
				fault_arm_mem(&f, n, FAULT_ONCE);
			else
				fault_arm_io(&f, n, FAULT_ONCE, 28, FAULT_ALL_OPS & ~FAULT_OP(FAULT_CLOSE));
			int rc = life(&t);
			fault_disarm(&f);
			index_kit_end(&t);
			assert_int_equal(fault_live_allocs(&f), 0);
			assert_int_equal(fault_open_fds(&f), 0);
			if ((what == 0 ? fault_mem_failed(&f) : fault_io_failed(&f)) == 0) {
				assert_int_equal(rc, 0);
				break;
			}
			assert_int_equal(rc, what == 0 ? SL_ENOMEM : SL_ENOSPC);
			*(what == 0 ? &allocations : &calls) = n;
		}
	}
	print_message("# %lld allocations and %lld system calls failed\n", (long long)allocations, (long long)calls);
	assert_true(allocations > 15 && calls > 5);
	fault_fini(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_block_is_found_where_it_was_put_and_no_other),
		cmocka_unit_test(a_look_up_reads_no_more_than_a_segment),
		cmocka_unit_test(an_empty_builder_puts_nothing),
		cmocka_unit_test(blocks_of_packs_that_may_not_be_used_are_not_found),
		cmocka_unit_test(a_block_in_many_packs_is_found_in_the_usable_one),
		cmocka_unit_test(going_through_shows_every_entry_in_order),
		cmocka_unit_test(files_are_merged_into_one_without_doubles),
		cmocka_unit_test(an_index_takes_in_what_no_file_has),
		cmocka_unit_test(many_small_files_are_read_once_and_then_asked_as_one),
		cmocka_unit_test(of_many_small_files_only_what_is_usable_is_found),
		cmocka_unit_test(one_damaged_file_of_many_harms_only_its_own_blocks),
		cmocka_unit_test(many_files_that_a_prune_merges_are_found_in_what_took_their_place),
		cmocka_unit_test(without_memory_or_a_temporary_file_many_files_are_asked_one_by_one),
		cmocka_unit_test(a_file_that_vanishes_while_loading_leads_to_another_listing),
		cmocka_unit_test(a_prune_that_merges_files_does_not_disturb_look_ups),
		cmocka_unit_test(what_was_removed_for_good_is_missing_and_not_an_error),
		cmocka_unit_test(a_failed_read_is_reported_and_may_succeed_later),
		cmocka_unit_test(every_allocation_and_system_call_may_fail),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
