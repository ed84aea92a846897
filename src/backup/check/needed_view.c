/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/check/needed.h"

#define LOADS_MAX 20

uint32_t sl__bk_view_pack(const struct bk_view *v, const struct bk_id *pack)
{
	const struct bk_id *found = sl__bk_ids_find(&v->packs, pack);
	return found != NULL ? (uint32_t)(found - v->packs.ids) : BK_NO_PACK;
}

/* ---- the index ---- */

struct loading {
	const struct bk_view *view;
	const struct bk_view_watch *watch;
	bool *indexed; /* by pack number */
};

static bool is_there(const struct bk_id *pack, void *ctx)
{
	const struct loading *l = ctx;
	return sl__bk_view_pack(l->view, pack) != BK_NO_PACK;
}

static int tell_damaged(const char *name, const struct sl_err *why, void *ctx)
{
	const struct loading *l = ctx;
	return l->watch->index_damaged(name, why, l->watch->ctx);
}

static int load_index(struct bk_view *v, const struct bk_view_watch *watch, struct sl_err *err)
{
	struct loading l = {.view = v, .watch = watch};
	bool told = watch != NULL && watch->index_damaged != NULL;
	int rc = sl__bk_index_load(&v->index,
				   &(struct bk_index_from){&v->b->env, &v->b->keys, &v->b->driver, is_there,
							   told ? tell_damaged : NULL, &l},
				   err);
	return rc == 0 ? sl__bk_index_read_all(v->index, told ? tell_damaged : NULL, &l, err) : rc;
}

/* ---- packs that no index file names ---- */

static int note_indexed(const struct bk_id *pack, bool usable, void *ctx)
{
	const struct loading *l = ctx;
	if (usable)
		l->indexed[sl__bk_view_pack(l->view, pack)] = true;
	return 0;
}

static int find_unindexed(struct bk_view *v, struct sl_err *err)
{
	bool *indexed = sl__calloc(&v->b->env, v->packs.n + 1, sizeof(*indexed));
	if (indexed == NULL)
		return sl__no_memory(err, "look at the repository");
	struct loading l = {.view = v, .indexed = indexed};
	int rc = sl__bk_index_packs(v->index, note_indexed, &l);
	for (size_t i = 0; i < v->packs.n && rc == 0; i++)
		if (!indexed[i] && sl__bk_ids_add(&v->b->env, &v->unindexed, &v->packs.ids[i]) != 0)
			rc = sl__no_memory(err, "look at the repository");
	sl__bk_ids_sort(&v->unindexed);
	sl__free(&v->b->env, indexed);
	return rc;
}

/* The blocks of one directory, gathered. */
struct gathering {
	const struct sl_env *env;
	struct bk_pack_block *blocks;
	size_t n, cap;
};

static int gather(const struct bk_id *id, const struct bk_place *place, void *ctx)
{
	struct gathering *g = ctx;
	if (g->n == g->cap) {
		size_t cap = g->cap == 0 ? 256 : g->cap * 2;
		void *grown = sl__realloc(g->env, g->blocks, cap * sizeof(*g->blocks));
		if (grown == NULL)
			return SL_ENOMEM;
		g->blocks = grown;
		g->cap = cap;
	}
	g->blocks[g->n++] = (struct bk_pack_block){.id = *id, .place = *place};
	return 0;
}

int sl__bk_directory_blocks(struct sl_backup *b, const struct bk_id *pack, uint64_t size, struct bk_pack_block **blocks,
			    size_t *n, struct sl_err *err)
{
	struct gathering g = {.env = &b->env};
	struct sl_err why = SL_ERR_INIT;
	int rc = sl__bk_read_directory(b, pack, size, gather, &g, &why);
	if (rc == SL_ENOMEM)
		rc = sl__no_memory(&why, "look at the repository");
	if (rc != 0) {
		sl__free(&b->env, g.blocks);
		if (err != NULL)
			*err = why;
		return rc;
	}
	*blocks = g.blocks;
	*n = g.n;
	return 0;
}

static int take_in_pack(struct bk_view *v, size_t number, struct bk_index_builder *builder,
			const struct bk_view_watch *watch, struct sl_err *err)
{
	struct bk_pack_block *blocks = NULL;
	size_t n = 0;
	struct sl_err why = SL_ERR_INIT;
	int rc = sl__bk_directory_blocks(v->b, &v->packs.ids[number], v->sizes[number], &blocks, &n, &why);
	if (rc == SL_ECORRUPT && watch != NULL && watch->directory_damaged != NULL)
		return watch->directory_damaged(&v->packs.ids[number], &why, watch->ctx);
	if (rc == SL_ENOENT) /* deleted since it was listed; what is needed of it is elsewhere */
		return 0;
	if (rc != 0) {
		if (err != NULL)
			*err = why;
		return rc;
	}
	rc = sl__bk_index_builder_pack(builder, &v->packs.ids[number], blocks, n, err);
	sl__free(&v->b->env, blocks);
	return rc;
}

static int take_in(struct bk_view *v, const struct bk_view_watch *watch, struct sl_err *err)
{
	if (v->unindexed.n == 0)
		return 0;
	struct bk_index_builder *builder = NULL;
	int rc = sl__bk_index_builder_new(&builder, &v->b->env, &v->b->keys, err);
	for (size_t i = 0; i < v->unindexed.n && rc == 0; i++) {
		rc = sl__bk_check_stop(v->b, err);
		if (rc == 0)
			rc = take_in_pack(v, sl__bk_view_pack(v, &v->unindexed.ids[i]), builder, watch, err);
	}
	if (rc == 0 && sl__bk_index_builder_entries(builder) > 0)
		rc = sl__bk_index_take_in(v->index, builder, err);
	sl__bk_index_builder_free(builder);
	return rc;
}

/* ---- ordinals ---- */

static int number_entry(uint64_t ordinal, const struct bk_id *id, const struct bk_found *found, void *ctx)
{
	struct bk_view *v = ctx;
	(void)id;
	if (ordinal < v->entries)
		v->pack_of[ordinal] = sl__bk_view_pack(v, &found->pack);
	return 0;
}

static int number_entries(struct bk_view *v, struct sl_err *err)
{
	v->entries = sl__bk_index_entries(v->index);
	v->pack_of = sl__calloc(&v->b->env, (size_t)v->entries + 1, sizeof(*v->pack_of));
	if (v->pack_of == NULL)
		return sl__no_memory(err, "look at the repository");
	memset(v->pack_of, 0xff, ((size_t)v->entries + 1) * sizeof(*v->pack_of));
	return sl__bk_index_each(v->index, number_entry, v, err);
}

int sl__bk_view_ordinals(const struct bk_view *v, const struct bk_id *id, struct bk_ordinals *o, struct sl_err *err)
{
	for (;;) {
		size_t n = 0;
		int rc = sl__bk_index_ordinals(v->index, id, o->at, o->cap, &n, err);
		if (rc != 0)
			return rc;
		o->n = n;
		if (n <= o->cap)
			return 0;
		void *grown = sl__realloc(&v->b->env, o->at, (n + 8) * sizeof(*o->at));
		if (grown == NULL)
			return sl__no_memory(err, "look at the repository");
		o->at = grown;
		o->cap = n + 8;
	}
}

static int load(struct sl_backup *b, struct bk_view *out, const struct bk_view_watch *watch, struct sl_err *err)
{
	struct bk_view v = {.b = b};
	int rc = sl__bk_list_packs(b, &v.packs, &v.sizes, watch != NULL ? watch->stray : NULL,
				   watch != NULL ? watch->ctx : NULL, err);
	if (rc == 0)
		rc = load_index(&v, watch, err);
	if (rc == 0)
		rc = find_unindexed(&v, err);
	if (rc == 0)
		rc = take_in(&v, watch, err);
	if (rc == 0)
		rc = number_entries(&v, err);
	if (rc != 0) {
		sl__bk_view_fini(&v);
		return rc;
	}
	*out = v;
	return 0;
}

/* A prune may remove index files while they are read. */
int sl__bk_view_load(struct sl_backup *b, struct bk_view *out, const struct bk_view_watch *watch, struct sl_err *err)
{
	int rc = SL_EAGAIN;
	for (int i = 0; i < LOADS_MAX && rc == SL_EAGAIN; i++)
		rc = load(b, out, watch, err);
	return rc;
}

void sl__bk_view_drop_index(struct bk_view *v)
{
	sl__free(&v->b->env, v->pack_of);
	sl__bk_index_free(v->index);
	v->pack_of = NULL;
	v->index = NULL;
	v->entries = 0;
}

void sl__bk_view_fini(struct bk_view *v)
{
	if (v->b == NULL)
		return;
	sl__bk_ids_fini(&v->b->env, &v->packs);
	sl__bk_ids_fini(&v->b->env, &v->unindexed);
	sl__free(&v->b->env, v->sizes);
	sl__bk_view_drop_index(v);
	*v = (struct bk_view){.b = NULL};
}
