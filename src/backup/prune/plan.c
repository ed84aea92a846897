/* SPDX-License-Identifier: Apache-2.0 */
/* P6, and what follows from it: which packs stay, which are copied from, marked, deleted. */
#include "backup/prune/prune.h"

/* ---- P6 ---- */

static int choose_needed_block(const struct bk_ref *ref, const char *path, bool metadata, struct sl_err *err, void *ctx)
{
	struct bk_prune *p = ctx;
	int rc = sl__bk_choose(&p->choice, &ref->id, metadata ? BK_METADATA_COPIES : 1, err);
	if (rc == SL_ENOENT) {
		char id[BK_HEX_BYTES];
		sl__bk_hex(ref->id.b, BK_ID_BYTES, id);
		return sl_err_set(err, SL_ECORRUPT, "block %.16s… of %s is in no pack; see sluice backup check", id,
				  path != NULL ? path : "the manifest");
	}
	if (rc > 0 && metadata) {
		int added = sl__bk_seen_add(p->metadata, &ref->id);
		if (added < 0 || (added == 1 && rc == 1 && sl__bk_refs_add(&p->b->env, &p->single, ref) != 0))
			return sl__no_memory(err, "prune");
	}
	return rc > 0 ? 0 : rc;
}

static int choose_for_snapshot(struct bk_prune *p, struct bk_walk *walk, const char *id, struct sl_err *err)
{
	struct bk_snapshot s = {.manifest = NULL};
	int rc = sl__bk_snapshot_load(p->b, id, &s, err);
	if (rc == SL_ENOENT) {
		/* It may be forgotten at the same time; one that is still listed and cannot be read stops the prune. */
		char(*ids)[BK_NAME_HEX] = NULL;
		size_t n = 0;
		bool listed = false;
		rc = sl__bk_snapshot_ids(p->b, &ids, &n, err);
		for (size_t i = 0; i < n && rc == 0; i++)
			listed = listed || strcmp(ids[i], id) == 0;
		sl__free(&p->b->env, ids);
		return listed ? SL_ENOENT : rc;
	}
	if (rc == 0)
		rc = sl__bk_walk_snapshot(walk, &s, err);
	sl__bk_snapshot_fini(&p->b->env, &s);
	if (rc != 0)
		return sl_err_wrap(err, rc, "prune: snapshot %.8s (nothing was changed)", id);
	return 0;
}

/* ---- packs whose end is missing ---- */

struct truncation {
	struct bk_prune *p;
	bool *truncated; /* by pack number */
	bool any;
};

static int find_truncated_pack(uint64_t ordinal, SL_UNUSED const struct bk_id *id, const struct bk_found *found,
			       void *ctx)
{
	struct truncation *t = ctx;
	const struct bk_view *v = &t->p->view;
	uint32_t pack = v->pack_of[ordinal];
	if (pack == BK_NO_PACK || sl__bk_place_end(&found->place) <= v->sizes[pack] || t->truncated[pack])
		return 0;
	t->any = t->truncated[pack] = true;
	char name[SL_DRIVER_NAME_BYTES];
	sl__bk_pack_name(&found->pack, name);
	sl__log(&t->p->b->env, SL_LOG_WARN, "backup",
		"a pack is shorter than the index says and is not used: run a check", SL__F_STR("pack", name));
	return 0;
}

int sl__bk_prune_choose(struct bk_prune *p, struct sl_err *err)
{
	const struct sl_env *env = &p->b->env;
	struct bk_walk walk = {.b = p->b, .need = choose_needed_block, .ctx = p};
	size_t n = p->view.packs.n + 1;
	p->marked = sl__calloc(env, n, sizeof(*p->marked));
	p->due = sl__calloc(env, n, sizeof(*p->due));
	p->to_mark = sl__calloc(env, n, sizeof(*p->to_mark));
	p->copy = sl__calloc(env, n, sizeof(*p->copy));
	p->needed = sl__calloc(env, n, sizeof(*p->needed));
	p->contents = sl__calloc(env, n, sizeof(*p->contents));
	if (p->marked == NULL || p->due == NULL || p->to_mark == NULL || p->copy == NULL || p->needed == NULL ||
	    p->contents == NULL)
		return sl__no_memory(err, "prune");

	/* No block of a truncated pack is chosen, not even one before the end: its directory is gone, so that nothing could
	 * be copied from it; and the intact copy of a block would be deleted as the second one. */
	const struct bk_view *v = &p->view;
	struct truncation t = {.p = p, .truncated = sl__calloc(env, n, sizeof(*t.truncated))};
	p->bad = sl__bk_bits(env, v->entries);
	int rc = t.truncated != NULL && p->bad != NULL ? sl__bk_index_each(v->index, find_truncated_pack, &t, err)
						       : sl__no_memory(err, "prune");
	for (uint64_t i = 0; i < v->entries && rc == 0 && t.any; i++)
		if (v->pack_of[i] != BK_NO_PACK && t.truncated[v->pack_of[i]])
			sl__bk_set_bit(p->bad, i);
	sl__free(env, t.truncated);
	if (rc != 0)
		return rc;

	for (size_t i = 0; i < p->view.packs.n; i++) {
		const struct bk_id *pack = &p->view.packs.ids[i];
		p->marked[i] = sl__bk_marks_have(&p->old, pack) || sl__bk_marks_have(&p->all, pack);
	}
	rc = sl__bk_choice_init(&p->choice, &p->view, p->marked, p->bad, err);
	if (rc == 0)
		rc = sl__bk_seen_new(&p->metadata, env, err);
	if (rc == 0)
		rc = sl__bk_walk_init(&walk, p->view.index, err);
	for (size_t i = 0; i < p->n_snapshots && rc == 0; i++)
		rc = choose_for_snapshot(p, &walk, p->snapshots[i], err);
	sl__bk_walk_fini(&walk);
	return rc;
}

/* ---- the plan ---- */

static int add_contents(uint64_t ordinal, SL_UNUSED const struct bk_id *id, const struct bk_found *found, void *ctx)
{
	struct bk_prune *p = ctx;
	uint32_t pack = p->view.pack_of[ordinal];
	if (pack == BK_NO_PACK)
		return 0;
	p->contents[pack] += found->place.length + 1; /* an empty block counts as well */
	if (sl__bk_bit(p->choice.chosen, ordinal))
		p->needed[pack] += found->place.length + 1;
	return 0;
}

/* A pack that no index names may belong to a session that is still running: it is left alone while a session is alive.
 * (Marking it would be safe too, but its blocks would have to be copied once the session is published.) */
static bool may_be_of_live_session(const struct bk_prune *p, size_t i)
{
	return p->live && sl__bk_ids_has(&p->view.unindexed, &p->view.packs.ids[i]);
}

#define MERGE_PACKS_MAX 64u /* full packs that a run makes of small ones: a bound on its memory and its time */

/* A pack that stays as it is, but has less than half of the size it could have. */
static bool is_small(const struct bk_prune *p, size_t i)
{
	return !p->marked[i] && !p->to_mark[i] && p->view.sizes[i] < (uint64_t)p->b->opts.pack_bytes / 2 &&
	       !may_be_of_live_session(p, i);
}

/* Every small backup leaves a small pack or two. Merged ones are marked like sparsely used ones: what snapshots and
 * sessions rely on is in the new pack, too, before the mark exists. The remainder of the last full pack is one small
 * pack, so that a run without new ones has nothing to do. */
static void plan_small(struct bk_prune *p)
{
	uint64_t full = (uint64_t)p->b->opts.pack_bytes, total = 0, n = 0;
	if (p->opts.repack_percent == SL_NONE || p->opts.merge_small == SL_NONE)
		return;
	for (size_t i = 0; i < p->view.packs.n; i++) {
		n += is_small(p, i);
		total += is_small(p, i) ? p->view.sizes[i] : 0;
	}
	if (n < (uint64_t)p->opts.merge_small && (n < 2 || total < full))
		return;
	total = 0;
	for (size_t i = 0; i < p->view.packs.n && total < MERGE_PACKS_MAX * full; i++) {
		if (!is_small(p, i))
			continue;
		total += p->view.sizes[i];
		p->to_mark[i] = p->copy[i] = true;
		p->out.packs_merged++;
		p->out.packs_repacked++;
		p->out.packs_marked++;
		p->out.bytes_marked += p->view.sizes[i];
	}
}

int sl__bk_prune_plan(struct bk_prune *p, struct sl_err *err)
{
	int rc = sl__bk_index_each(p->view.index, add_contents, p, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < p->view.packs.n; i++) {
		uint64_t size = p->view.sizes[i], needed = p->needed[i], contents = p->contents[i];
		p->out.packs++;
		p->out.bytes += size;
		if (p->marked[i]) {
			/* It is deleted, or rescued (what is needed of it is copied; a later run deletes it), or it
			 * waits. May it go: is it in a mark that an earlier run made and every live session has seen? */
			bool may_go = false;
			for (size_t k = 0; k < p->old.n && !may_go; k++)
				may_go = !p->waits[k] && sl__bk_ids_has(&p->old.marks[k].packs, &p->view.packs.ids[i]);
			p->due[i] = p->needed[i] == 0 && may_go;
			p->copy[i] = p->needed[i] > 0 && !p->due[i];
			p->out.packs_rescued += needed > 0;
			p->out.packs_deleted += p->due[i];
			p->out.bytes_deleted += p->due[i] ? size : 0;
			p->out.packs_waiting += !p->due[i];
			p->out.bytes_waiting += p->due[i] ? 0 : size;
			continue;
		}
		/* Marked by this run when nothing is needed of it, or so little that it is copied. */
		uint64_t percent = (uint64_t)p->opts.repack_percent;
		bool sparse = needed > 0 && p->opts.repack_percent != SL_NONE && needed < contents &&
			      needed < contents / 100 * percent + contents % 100 * percent / 100;
		if ((needed > 0 && !sparse) || may_be_of_live_session(p, i))
			continue;
		p->to_mark[i] = true;
		p->copy[i] = sparse;
		p->out.packs_repacked += sparse;
		p->out.packs_marked++;
		p->out.bytes_marked += size;
	}
	plan_small(p);
	return 0;
}
