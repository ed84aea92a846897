/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/index_kit.h"

void index_kit_begin(struct index_kit *t, int which)
{
	t->env = kit_env();
	t->keys = kit_keys(which);
	mem_driver_init(&t->mem);
	t->driver = mem_driver_handle(&t->mem);
}

void index_kit_end(struct index_kit *t)
{
	mem_driver_fini(&t->mem);
}

struct bk_place index_kit_place(const struct bk_keys *keys, uint64_t number)
{
	uint32_t raw = 1000 + (uint32_t)(number % 5000);
	bool zstd = number % 3 != 0;
	return (struct bk_place){.frame_offset = BK_PACK_HEADER + (uint32_t)(number % 1000000),
				 .frame_stored = (uint32_t)sl__bk_seal_bytes(keys) + (zstd ? raw - 1 : raw),
				 .frame_raw = raw,
				 .offset = (uint32_t)(number % 900),
				 .length = (uint32_t)(number % 100),
				 .zstd = zstd};
}

struct bk_id index_kit_pack(uint64_t number)
{
	return kit_id(number + (1ull << 40));
}

void index_kit_add(struct index_kit *t, struct bk_index_builder *b, uint64_t first, uint64_t end)
{
	struct bk_pack_block blocks[INDEX_KIT_PACK];
	while (first < end) {
		uint64_t pack = first / INDEX_KIT_PACK;
		size_t n = 0;
		for (; first < end && first / INDEX_KIT_PACK == pack; first++)
			blocks[n++] = (struct bk_pack_block){kit_id(first), index_kit_place(&t->keys, first)};
		struct bk_id id = index_kit_pack(pack);
		assert_int_equal(sl__bk_index_builder_pack(b, &id, blocks, n, NULL), 0);
	}
}

void index_kit_put(struct index_kit *t, uint64_t first, uint64_t end, uint32_t run, uint32_t per_file)
{
	struct bk_index_builder *b = NULL;
	struct bk_index_put put = {.bytes = 0};
	assert_int_equal(sl__bk_index_builder_new(&b, &t->env, &t->keys, NULL), 0);
	b->sort.run_entries = run;
	b->file_entries = per_file;
	index_kit_add(t, b, first, end);
	assert_int_equal(sl__bk_index_builder_entries(b), end - first);
	assert_int_equal(sl__bk_index_builder_put(b, &t->driver, &put, NULL), 0);
	assert_true(put.bytes > (end - first) * BK_INDEX_ENTRY);
	sl__bk_index_builder_free(b);
}

struct bk_index *index_kit_load(struct index_kit *t)
{
	struct bk_index *x = NULL;
	struct sl_err err = SL_ERR_INIT;
	int rc = sl__bk_index_load(&x, &(struct bk_index_from){&t->env, &t->keys, &t->driver, NULL, NULL, NULL}, &err);
	if (rc != 0)
		fail_msg("%s", err.msg);
	return x;
}

void index_kit_assert_found(struct index_kit *t, struct bk_index *x, uint64_t number)
{
	struct bk_id id = kit_id(number), pack = index_kit_pack(number / INDEX_KIT_PACK);
	struct bk_place want = index_kit_place(&t->keys, number);
	struct bk_found found;
	assert_int_equal(sl__bk_index_find(x, &id, &found, NULL), 0);
	assert_memory_equal(&found.pack, &pack, sizeof(pack));
	assert_int_equal(found.place.frame_offset, want.frame_offset);
	assert_int_equal(found.place.frame_stored, want.frame_stored);
	assert_int_equal(found.place.frame_raw, want.frame_raw);
	assert_int_equal(found.place.offset, want.offset);
	assert_int_equal(found.place.length, want.length);
	assert_int_equal(found.place.zstd, want.zstd);
}

void index_kit_assert_missing(struct bk_index *x, uint64_t number)
{
	struct bk_id id = kit_id(number);
	struct bk_found found;
	assert_int_equal(sl__bk_index_find(x, &id, &found, NULL), SL_ENOENT);
}
