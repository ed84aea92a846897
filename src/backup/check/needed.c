/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views of a repository and choices among the places of a block (needed.h).
 *
 * A view tolerates a prune that runs at the same time: the prune may remove index files while they are read, and then
 * the view is loaded again. A pack that is deleted after it was listed is skipped, because the prune copied what is
 * needed of it before.
 */
#include "backup/check/needed.h"
#include "backup/grow.h"

#define LOADS_MAX 20

/* ---- lists that grow ---- */

int sl__bk_refs_add(const struct sl_env *env, struct bk_refs *s, const struct bk_ref *ref)
{
	struct bk_ref *grown = sl__bk_grow(env, s->refs, s->n, &s->cap, sizeof(*grown));
	if (grown == NULL)
		return SL_ENOMEM;
	s->refs = grown;
	s->refs[s->n++] = *ref;
	return 0;
}

int sl__bk_pack_blocks_add(const struct sl_env *env, struct bk_pack_blocks *p, const struct bk_id *id,
			   const struct bk_place *place)
{
	struct bk_pack_block *grown = sl__bk_grow(env, p->blocks, p->n, &p->cap, sizeof(*grown));
	if (grown == NULL)
		return SL_ENOMEM;
	p->blocks = grown;
	p->blocks[p->n++] = (struct bk_pack_block){.id = *id, .place = *place};
	return 0;
}

/* ---- directories of packs ---- */

struct directory_reading {
	const struct sl_env *env;
	struct bk_pack_blocks *p;
};

static int add_directory_block(const struct bk_id *id, const struct bk_place *place, void *ctx)
{
	const struct directory_reading *r = ctx;
	return sl__bk_pack_blocks_add(r->env, r->p, id, place);
}

int sl__bk_directory_blocks(struct sl_backup *b, struct bk_pack_blocks *p, struct sl_err *err)
{
	struct directory_reading r = {.env = &b->env, .p = p};
	struct sl_err why = SL_ERR_INIT;
	int rc = sl__bk_read_directory(b, &p->pack, p->size, add_directory_block, &r, &why);
	if (rc == SL_ENOMEM)
		return sl__no_memory(err, "read the repository");
	if (rc != 0 && err != NULL)
		*err = why;
	return rc;
}

/* ---- view ---- */

uint32_t sl__bk_view_pack(const struct bk_view *v, const struct bk_id *pack)
{
	const struct bk_id *found = sl__bk_ids_find(&v->packs, pack);
	return found != NULL ? (uint32_t)(found - v->packs.ids) : BK_NO_PACK;
}

struct view_loading {
	struct bk_view *view;
	const struct bk_view_watch *watch;
	bool *indexed; /* by pack number */
};

static bool pack_is_listed(const struct bk_id *pack, void *ctx)
{
	const struct view_loading *l = ctx;
	return sl__bk_view_pack(l->view, pack) != BK_NO_PACK;
}

static int report_index_damage(const char *name, const struct sl_err *why, void *ctx)
{
	const struct view_loading *l = ctx;
	return l->watch->index_damaged(name, why, l->watch->ctx);
}

static int note_indexed_pack(const struct bk_id *pack, bool usable, void *ctx)
{
	const struct view_loading *l = ctx;
	if (usable)
		l->indexed[sl__bk_view_pack(l->view, pack)] = true;
	return 0;
}

/* Add the blocks of a pack that no index file names. */
static int index_pack(const struct view_loading *l, const struct bk_id *id, struct bk_index_builder *builder,
		      struct sl_err *err)
{
	struct sl_backup *b = l->view->b;
	struct bk_pack_blocks p = {.pack = *id, .size = l->view->sizes[sl__bk_view_pack(l->view, id)]};
	struct sl_err why = SL_ERR_INIT;
	int rc = sl__bk_check_stop(b, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_directory_blocks(b, &p, &why);
	if (rc == SL_ECORRUPT && l->watch != NULL && l->watch->directory_damaged != NULL)
		rc = l->watch->directory_damaged(id, &why, l->watch->ctx);
	else if (rc == SL_ENOENT) /* deleted since it was listed; what is needed of it is elsewhere */
		rc = 0;
	else if (rc == 0)
		rc = sl__bk_index_builder_pack(builder, id, p.blocks, p.n, err);
	else if (err != NULL)
		*err = why;
	sl__free(&b->env, p.blocks);
	return rc;
}

/* Find the packs that no index file names, and index them. */
static int index_unindexed_packs(struct view_loading *l, struct sl_err *err)
{
	struct bk_view *v = l->view;
	struct bk_index_builder *builder = NULL;
	l->indexed = sl__calloc(&v->b->env, v->packs.n + 1, sizeof(*l->indexed));
	if (l->indexed == NULL)
		return sl__no_memory(err, "read the repository");
	int rc = sl__bk_index_packs(v->index, note_indexed_pack, l);
	for (size_t i = 0; i < v->packs.n && rc == 0; i++)
		if (!l->indexed[i] && sl__bk_ids_add(&v->b->env, &v->unindexed, &v->packs.ids[i]) != 0)
			rc = sl__no_memory(err, "read the repository");
	sl__bk_ids_sort(&v->unindexed);
	sl__free(&v->b->env, l->indexed);
	if (rc != 0 || v->unindexed.n == 0)
		return rc;

	rc = sl__bk_index_builder_new(&builder, &v->b->env, &v->b->keys, err);
	for (size_t i = 0; i < v->unindexed.n && rc == 0; i++)
		rc = index_pack(l, &v->unindexed.ids[i], builder, err);
	if (rc == 0 && sl__bk_index_builder_entries(builder) > 0)
		rc = sl__bk_index_take_in(v->index, builder, err);
	sl__bk_index_builder_free(builder);
	return rc;
}

static int set_pack_of(uint64_t ordinal, SL_UNUSED const struct bk_id *id, const struct bk_found *found, void *ctx)
{
	struct bk_view *v = ctx;
	if (ordinal < v->entries)
		v->pack_of[ordinal] = sl__bk_view_pack(v, &found->pack);
	return 0;
}

/* On failure the caller frees what v has so far. */
static int load_view_once(struct bk_view *v, const struct bk_view_watch *watch, struct sl_err *err)
{
	struct view_loading l = {.view = v, .watch = watch};
	struct sl_backup *b = v->b;
	bk_index_damaged_fn *on_damage = watch != NULL && watch->index_damaged != NULL ? report_index_damage : NULL;

	/* The packs first, then the index. */
	int rc = sl__bk_list_packs(b, &v->packs, &v->sizes, watch != NULL ? watch->stray : NULL,
				   watch != NULL ? watch->ctx : NULL, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_index_load(
		&v->index, &(struct bk_index_from){&b->env, &b->keys, &b->driver, pack_is_listed, on_damage, &l}, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_index_read_all(v->index, on_damage, &l, err);
	if (rc != 0)
		return rc;

	rc = index_unindexed_packs(&l, err);
	if (rc != 0)
		return rc;

	/* The pack of each entry. */
	v->entries = sl__bk_index_entries(v->index);
	v->pack_of = sl__calloc(&b->env, (size_t)v->entries + 1, sizeof(*v->pack_of));
	if (v->pack_of == NULL)
		return sl__no_memory(err, "read the repository");
	memset(v->pack_of, 0xff, ((size_t)v->entries + 1) * sizeof(*v->pack_of));
	return sl__bk_index_each(v->index, set_pack_of, v, err);
}

int sl__bk_view_load(struct sl_backup *b, struct bk_view *out, const struct bk_view_watch *watch, struct sl_err *err)
{
	int rc = SL_EAGAIN;
	for (int i = 0; i < LOADS_MAX && rc == SL_EAGAIN; i++) {
		struct bk_view v = {.b = b};
		rc = load_view_once(&v, watch, err);
		if (rc == 0)
			*out = v;
		else
			sl__bk_view_fini(&v);
	}
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
			return sl__no_memory(err, "read the repository");
		o->at = grown;
		o->cap = n + 8;
	}
}

/* ---- choice ---- */

int sl__bk_choice_init(struct bk_choice *c, const struct bk_view *view, const bool *avoid, const uint64_t *bad,
		       struct sl_err *err)
{
	*c = (struct bk_choice){.view = view, .avoid = avoid, .bad = bad};
	c->chosen = sl__bk_bits(&view->b->env, view->entries);
	return c->chosen != NULL ? 0 : sl__no_memory(err, "choose places of blocks");
}

void sl__bk_choice_fini(struct bk_choice *c)
{
	if (c->view == NULL)
		return;
	sl__free(&c->view->b->env, c->chosen);
	sl__free(&c->view->b->env, c->ordinals.at);
	*c = (struct bk_choice){.view = NULL};
}

/* The best place in a pack other than the n that were chosen for this block already; UINT64_MAX: no such place. */
static uint64_t best_place(const struct bk_choice *c, const uint32_t *chosen_packs, int n)
{
	const uint32_t *pack_of = c->view->pack_of;
	uint64_t best = UINT64_MAX;
	for (size_t i = 0; i < c->ordinals.n; i++) {
		uint64_t at = c->ordinals.at[i];
		uint32_t pack = pack_of[at];
		bool out = pack == BK_NO_PACK || (c->bad != NULL && sl__bk_bit(c->bad, at));
		for (int k = 0; k < n && !out; k++)
			out = pack == chosen_packs[k];
		if (out)
			continue;
		if (best == UINT64_MAX) {
			best = at;
			continue;
		}
		bool avoid = c->avoid != NULL && c->avoid[pack];
		bool avoid_best = c->avoid != NULL && c->avoid[pack_of[best]];
		if (avoid != avoid_best ? avoid_best : pack < pack_of[best])
			best = at;
	}
	return best;
}

int sl__bk_choose(struct bk_choice *c, const struct bk_id *id, int copies, struct sl_err *err)
{
	uint32_t chosen_packs[BK_METADATA_COPIES];
	int n = 0;
	assert(copies <= BK_METADATA_COPIES);
	int rc = sl__bk_view_ordinals(c->view, id, &c->ordinals, err);
	if (rc != 0)
		return rc;
	while (n < copies) {
		uint64_t best = best_place(c, chosen_packs, n);
		if (best == UINT64_MAX)
			break;
		sl__bk_set_bit(c->chosen, best);
		chosen_packs[n++] = c->view->pack_of[best];
	}
	return n > 0 ? n : SL_ENOENT;
}
