/* SPDX-License-Identifier: Apache-2.0 */
/* Gathering the entries of index files, with numbers of packs that count in the builder; index_put.c does the rest. */
#include "backup/pack/index_build.h"

int sl__bk_index_builder_new(struct bk_index_builder **out, const struct sl_env *env, const struct bk_keys *keys,
			     struct sl_err *err)
{
	struct bk_index_builder *b = sl__calloc(env, 1, sizeof(*b));
	if (b == NULL)
		return sl__no_memory(err, "build an index");
	b->env = *env;
	b->keys = keys;
	b->file_entries = BK_INDEX_FILE_ENTRIES;
	sl__mutex_init(&b->mu);
	sl__bk_sort_init(&b->sort, &b->env);
	*out = b;
	return 0;
}

void sl__bk_index_builder_free(struct bk_index_builder *b)
{
	if (b == NULL)
		return;
	struct sl_env env = b->env;
	sl__bk_sort_fini(&b->sort);
	sl__mutex_fini(&b->mu);
	sl__free(&env, b->packs);
	sl__free(&env, b->slots);
	sl__free(&env, b);
}

void sl__bk_index_builder_clear(struct bk_index_builder *b)
{
	sl__bk_sort_fini(&b->sort);
	sl__free(&b->env, b->packs);
	sl__free(&b->env, b->slots);
	b->packs = NULL;
	b->slots = NULL;
	b->packs_n = 0;
	b->slots_n = 0;
}

/* Where the pack is in the table of slots, or the free slot for it. */
static uint32_t *slot_of(const struct bk_index_builder *b, const struct bk_id *pack)
{
	size_t i = (size_t)sl__get64(pack->b) & (b->slots_n - 1);
	while (b->slots[i] != 0 && memcmp(&b->packs[b->slots[i] - 1], pack, sizeof(*pack)) != 0)
		i = (i + 1) & (b->slots_n - 1);
	return &b->slots[i];
}

/* Half of the slots are free afterwards, and packs has room for one more. */
static int grow_packs(struct bk_index_builder *b, struct sl_err *err)
{
	if ((size_t)b->packs_n + 1 <= b->slots_n / 2)
		return 0;
	size_t n = SL_MAX(2 * b->slots_n, (size_t)64);
	struct bk_id *packs = sl__realloc(&b->env, b->packs, n / 2 * sizeof(*packs));
	if (packs == NULL)
		return sl__no_memory(err, "build an index");
	b->packs = packs;
	uint32_t *slots = sl__calloc(&b->env, n, sizeof(*slots));
	if (slots == NULL)
		return sl__no_memory(err, "build an index");
	sl__free(&b->env, b->slots);
	b->slots = slots;
	b->slots_n = n;
	for (uint32_t i = 0; i < b->packs_n; i++)
		*slot_of(b, &b->packs[i]) = i + 1;
	return 0;
}

int sl__bk_index_builder_number(struct bk_index_builder *b, const struct bk_id *pack, uint32_t *number,
				struct sl_err *err)
{
	int rc = grow_packs(b, err);
	if (rc != 0)
		return rc;
	uint32_t *slot = slot_of(b, pack);
	if (*slot == 0) {
		b->packs[b->packs_n++] = *pack;
		*slot = b->packs_n;
	}
	*number = *slot - 1;
	return 0;
}

int sl__bk_index_builder_pack(struct bk_index_builder *b, const struct bk_id *pack, const struct bk_pack_block *blocks,
			      size_t n, struct sl_err *err)
{
	uint32_t number;
	sl__lock(&b->mu);
	int rc = sl__bk_index_builder_number(b, pack, &number, err);
	for (size_t i = 0; rc == 0 && i < n; i++) {
		uint8_t entry[BK_INDEX_ENTRY];
		sl__bk_entry_write(entry, &blocks[i].id, number, &blocks[i].place);
		rc = sl__bk_sort_add(&b->sort, entry, err);
	}
	sl__unlock(&b->mu);
	return rc;
}

uint64_t sl__bk_index_builder_entries(const struct bk_index_builder *b)
{
	return b->sort.total;
}

int sl__bk_index_builder_file(struct bk_index_builder *b, struct bk_index *x, struct bk_index_file *f,
			      const uint32_t *numbers, struct sl_err *err)
{
	for (uint32_t s = 0; s < f->segments_n; s++) {
		const uint8_t *e;
		int rc = sl__bk_index_segment(x, f, s, &e, err);
		uint32_t n = sl__bk_segment_entries(f->entries_n, s);
		for (uint32_t i = 0; rc == 0 && i < n; i++, e += BK_INDEX_ENTRY) {
			uint8_t entry[BK_INDEX_ENTRY];
			uint32_t number = numbers[sl__get32(e + 32)];
			if (number == UINT32_MAX)
				continue;
			memcpy(entry, e, sizeof(entry));
			sl__put32(entry + 32, number);
			rc = sl__bk_sort_add(&b->sort, entry, err);
		}
		if (rc != 0)
			return rc;
	}
	return 0;
}

int sl__bk_index_builder_index(struct bk_index_builder *b, struct bk_index *x, bk_index_keep_fn *keep, void *ctx,
			       struct sl_err *err)
{
	int rc = 0;
	sl__lock(&b->mu);
	for (struct bk_index_file *f = atomic_load(&x->first); rc == 0 && f != NULL; f = atomic_load(&f->next)) {
		uint32_t *numbers = sl__calloc(&b->env, f->packs_n, sizeof(*numbers));
		if (numbers == NULL)
			rc = sl__no_memory(err, "build an index");
		for (uint32_t i = 0; rc == 0 && i < f->packs_n; i++) {
			numbers[i] = UINT32_MAX;
			if (keep(&f->packs[i], ctx))
				rc = sl__bk_index_builder_number(b, &f->packs[i], &numbers[i], err);
		}
		if (rc == 0)
			rc = sl__bk_index_builder_file(b, x, f, numbers, err);
		sl__free(&b->env, numbers);
	}
	sl__unlock(&b->mu);
	return rc;
}
