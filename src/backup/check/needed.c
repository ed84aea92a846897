/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views of a repository, choices among the places of a block, and walks over snapshots (needed.h).
 *
 * A view tolerates a prune that runs at the same time: the prune may remove index files while they are read, and then
 * the view is loaded again. A pack that is deleted after it was listed is skipped, because the prune copied what is
 * needed of it before.
 */
#include "backup/check/needed.h"
#include "backup/helpers.h"

#define LOADS_MAX 20

/* ---- lists that grow ---- */

int sl__bk_refs_add(const struct sl_env *env, struct bk_refs *s, const struct bk_ref *ref)
{
	struct bk_ref *grown = sl__grow(env, s->refs, s->n, &s->cap, sizeof(*grown));
	if (grown == NULL)
		return SL_ENOMEM;
	s->refs = grown;
	s->refs[s->n++] = *ref;
	return 0;
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
	for (size_t i = 0; i < v->unindexed.n && rc == 0; i++) {
		const struct bk_id *id = &v->unindexed.ids[i];
		struct bk_pack_blocks p = {.pack = *id, .size = v->sizes[sl__bk_view_pack(v, id)]};
		struct sl_err why = SL_ERR_INIT;
		rc = sl__bk_check_stop(v->b, err);
		if (rc != 0)
			break;
		rc = sl__bk_directory_blocks(v->b, &p, &why);
		if (rc == SL_ECORRUPT && l->watch != NULL && l->watch->directory_damaged != NULL)
			rc = l->watch->directory_damaged(id, &why, l->watch->ctx);
		else if (rc == SL_ENOENT) /* deleted since it was listed; what is needed of it is elsewhere */
			rc = 0;
		else if (rc == 0)
			rc = sl__bk_index_builder_pack(builder, id, p.blocks, p.n, err);
		else if (err != NULL)
			*err = why;
		sl__free(&v->b->env, p.blocks);
	}
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
	const struct bk_strays strays = {.fn = watch != NULL ? watch->stray : NULL,
					 .ctx = watch != NULL ? watch->ctx : NULL};
	int rc = sl__bk_list_packs(b, &v->packs, &v->sizes, &strays, err);
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
		int found = sl__bk_index_ordinals(v->index, id, o->at, o->cap, err);
		if (found < 0)
			return found;
		size_t n = (size_t)found;
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

int sl__bk_choose(struct bk_choice *c, const struct bk_id *id, int copies, struct sl_err *err)
{
	const uint32_t *pack_of = c->view->pack_of;
	uint32_t chosen_packs[BK_METADATA_COPIES];
	int n = 0;
	assert(copies <= BK_METADATA_COPIES);
	int rc = sl__bk_view_ordinals(c->view, id, &c->ordinals, err);
	if (rc != 0)
		return rc;
	while (n < copies) {
		/* The best place in a pack other than those chosen for this block already. */
		uint64_t best = UINT64_MAX;
		for (size_t i = 0; i < c->ordinals.n; i++) {
			uint64_t at = c->ordinals.at[i];
			uint32_t pack = pack_of[at];
			bool out = pack == BK_NO_PACK || (c->bad != NULL && sl__bk_bit(c->bad, at));
			for (int k = 0; k < n && !out; k++)
				out = pack == chosen_packs[k];
			if (out)
				continue;
			bool avoid = c->avoid != NULL && c->avoid[pack];
			bool avoid_best = best != UINT64_MAX && c->avoid != NULL && c->avoid[pack_of[best]];
			if (best == UINT64_MAX || (avoid != avoid_best ? avoid_best : pack < pack_of[best]))
				best = at;
		}
		if (best == UINT64_MAX)
			break;
		sl__bk_set_bit(c->chosen, best);
		chosen_packs[n++] = pack_of[best];
	}
	return n > 0 ? n : SL_ENOENT;
}

/* ---- walk ---- */

/* A manifest is walked block by block: each begins with a whole entry that shares nothing with the one before
 * (backup/manifest/manifest.h). So a block that another snapshot has too need not be read again, and one that cannot be
 * read hides only its own entries. */
int sl__bk_walk_init(struct bk_walk *w, struct bk_index *index, struct sl_err *err)
{
	const struct sl_env *env = &w->b->env;
	sl__buf_init(&w->previous, env);
	int rc = sl__bk_reader_new(&w->manifests, w->b, index, err);
	if (rc == 0)
		rc = sl__bk_reader_new(&w->lists, w->b, index, err);
	if (rc == 0)
		rc = sl__bk_seen_new(&w->walked, env, err);
	if (rc != 0)
		return rc;
	return sl__bk_entry_scratch_new(&w->scratch, env) == 0 ? 0 : sl__no_memory(err, "walk the snapshots");
}

void sl__bk_walk_fini(struct bk_walk *w)
{
	if (w->previous.env == NULL) /* before init */
		return;
	sl__bk_reader_free(w->manifests);
	sl__bk_reader_free(w->lists);
	sl__bk_seen_free(w->walked);
	sl__bk_entry_scratch_free(w->scratch);
	sl__buf_fini(&w->previous);
	*w = (struct bk_walk){.b = NULL};
}

int sl__bk_walk_block(struct bk_walk *w, const struct bk_ref *ref, bk_walk_entry_fn *fn, void *ctx, struct sl_err *err)
{
	const uint8_t *bytes = NULL;
	int rc = sl__bk_read_block(w->manifests, &ref->id, ref->len, &bytes, err);
	if (rc != 0)
		return rc;
	sl__buf_clear(&w->previous);
	for (size_t at = 0, used = 0; at < ref->len; at += used) {
		struct bk_entry e;
		rc = sl__bk_check_stop(w->b, err);
		if (rc != 0)
			return rc;
		const struct bk_entry_bytes from = {.bytes = {bytes + at, ref->len - at},
						    .previous = {sl__buf_str(&w->previous), w->previous.len}};
		rc = sl__bk_entry_decode(w->scratch, &from, &e, &used, err);
		if (rc == SL_EAGAIN)
			return sl_err_set(err, SL_ECORRUPT, "a manifest block ends within an entry");
		if (rc == 0)
			rc = fn(&e, err, ctx);
		if (rc != 0)
			return rc;
		sl__buf_clear(&w->previous);
		if (sl__buf_append(&w->previous, e.path, e.path_len) != 0)
			return sl__no_memory(err, "walk the snapshots");
	}
	return 0;
}

/* A manifest block whose entries' blocks are passed to need. */
struct block_needs {
	struct bk_walk *w;
	const struct bk_entry *entry;
	bool missing;       /* something that this manifest block needs */
	bool ended_by_need; /* the code that ended the walk is need's own */
	struct sl_err err;
};

static int need_ref(const struct bk_ref *ref, void *ctx)
{
	struct block_needs *n = ctx;
	const struct bk_entry *e = n->entry; /* its own references are of lists, when it has any */
	bool metadata = (e->flags & BK_ENTRY_LISTS) != 0 && ref >= e->refs && ref < e->refs + e->n_refs;
	int rc = n->w->need(ref, e->path, metadata, &n->err, n->w->ctx);
	if (rc > 0)
		n->missing = true;
	n->ended_by_need = rc < 0;
	return rc < 0 ? rc : 0;
}

static int report_unread(struct block_needs *n, const struct bk_ref *ref, const char *path, const struct sl_err *why,
			 struct sl_err *err)
{
	n->missing = true;
	if (n->w->unread == NULL || (why->code != SL_ENOENT && why->code != SL_ECORRUPT && why->code != SL_EDATA)) {
		if (err != NULL)
			*err = *why;
		return why->code;
	}
	int rc = n->w->unread(ref, path, why, err, n->w->ctx);
	return rc < 0 ? rc : 0;
}

static int need_entry(const struct bk_entry *e, struct sl_err *err, void *ctx)
{
	struct block_needs *n = ctx;
	struct sl_err why = SL_ERR_INIT;
	n->entry = e;
	n->ended_by_need = false;
	int rc = sl__bk_entry_all_refs(n->w->lists, e, need_ref, n, &why);
	if (rc == 0)
		return 0;
	if (!n->ended_by_need)
		return report_unread(n, NULL, e->path, &why, err);
	return sl__bk_result(rc, &n->err, err);
}

int sl__bk_walk_snapshot(struct bk_walk *w, const struct bk_snapshot *s, struct sl_err *err)
{
	for (size_t i = 0; i < s->n_manifest; i++) {
		const struct bk_ref *ref = &s->manifest[i];
		struct block_needs n = {.w = w};
		struct sl_err why = SL_ERR_INIT;
		if (sl__bk_seen_has(w->walked, &ref->id))
			continue;
		int rc = w->need(ref, NULL, true, err, w->ctx);
		if (rc < 0)
			return rc;
		if (rc > 0) /* missing */
			continue;
		rc = sl__bk_walk_block(w, ref, need_entry, &n, &why);
		if (rc != 0)
			rc = report_unread(&n, ref, NULL, &why, err);
		if (rc != 0)
			return rc;
		if (!n.missing && sl__bk_seen_add(w->walked, &ref->id) < 0)
			return sl__no_memory(err, "walk the snapshots");
	}
	return 0;
}
