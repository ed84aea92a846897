/* SPDX-License-Identifier: Apache-2.0 */
/* P6, and what follows from it: which packs stay, which are copied from, marked, deleted. */
#include "backup/prune/prune.h"

static int make_arrays(struct bk_prune *p, struct sl_err *err)
{
	const struct sl_env *env = &p->b->env;
	size_t n = p->view.packs.n + 1;
	p->marked = sl__calloc(env, n, sizeof(*p->marked));
	p->due = sl__calloc(env, n, sizeof(*p->due));
	p->condemn = sl__calloc(env, n, sizeof(*p->condemn));
	p->copy = sl__calloc(env, n, sizeof(*p->copy));
	p->needed = sl__calloc(env, n, sizeof(*p->needed));
	p->contents = sl__calloc(env, n, sizeof(*p->contents));
	bool made = p->marked != NULL && p->due != NULL && p->condemn != NULL && p->copy != NULL && p->needed != NULL &&
		    p->contents != NULL;
	return made ? 0 : sl__no_memory(err, "prune");
}

/* ---- P6 ---- */

static int need(const struct bk_ref *ref, const char *path, bool metadata, void *ctx, struct sl_err *err)
{
	struct bk_prune *p = ctx;
	int rc = sl__bk_choose(&p->choice, &ref->id, metadata ? BK_METADATA_COPIES : 1, err);
	if (rc > 0 && metadata) {
		int added = sl__bk_seen_add(p->metadata, &ref->id);
		if (added < 0 || (added == 1 && rc == 1 && sl__bk_refs_add(&p->b->env, &p->single, ref) != 0))
			return sl__no_memory(err, "prune");
	}
	if (rc != SL_ENOENT)
		return rc > 0 ? 0 : rc;
	char id[BK_HEX_BYTES];
	sl__bk_hex(ref->id.b, BK_ID_BYTES, id);
	return sl_err_set(err, SL_ECORRUPT, "block %.16s… of %s is in no pack; see sluice backup check", id,
			  path != NULL ? path : "the manifest");
}

/* Somebody may forget a snapshot while we look; one that is still listed and cannot be had stops everything. */
static int is_forgotten(struct bk_prune *p, const char *id, struct sl_err *err)
{
	char(*ids)[BK_NAME_HEX] = NULL;
	size_t n = 0;
	int rc = sl__bk_snapshot_ids(p->b, &ids, &n, err);
	bool there = false;
	for (size_t i = 0; i < n && rc == 0; i++)
		there = there || strcmp(ids[i], id) == 0;
	sl__free(&p->b->env, ids);
	return rc != 0 ? rc : !there;
}

static int walk_one(struct bk_prune *p, struct bk_walk *walk, const char *id, struct sl_err *err)
{
	struct bk_snapshot s = {.manifest = NULL};
	int rc = sl__bk_snapshot_load(p->b, id, &s, err);
	if (rc == SL_ENOENT) {
		int forgotten = is_forgotten(p, id, err);
		return forgotten == 1 ? 0 : forgotten < 0 ? forgotten : rc;
	}
	if (rc == 0)
		rc = sl__bk_walk_snapshot(walk, &s, err);
	sl__bk_snapshot_fini(&p->b->env, &s);
	return rc != 0 ? sl_err_wrap(err, rc, "prune: snapshot %.8s (nothing was changed)", id) : 0;
}

/* ---- packs of which the end is missing ---- */

struct cutting {
	struct bk_prune *p;
	bool *cut; /* by pack number */
	bool any;
};

static int find_cut(uint64_t ordinal, SL_UNUSED const struct bk_id *id, const struct bk_found *found, void *ctx)
{
	struct cutting *c = ctx;
	uint32_t pack = c->p->view.pack_of[ordinal];
	if (pack == BK_NO_PACK || sl__bk_place_end(&found->place) <= c->p->view.sizes[pack] || c->cut[pack])
		return 0;
	c->any = c->cut[pack] = true;
	char name[SL_DRIVER_NAME_BYTES];
	sl__bk_pack_name(&found->pack, name);
	sl__log(&c->p->b->env, SL_LOG_WARN, "backup",
		"a pack is shorter than the index says and is not counted on: run a check", SL__F_STR("pack", name));
	return 0;
}

static int set_bad(uint64_t ordinal, SL_UNUSED const struct bk_id *id, SL_UNUSED const struct bk_found *found,
		   void *ctx)
{
	struct cutting *c = ctx;
	uint32_t pack = c->p->view.pack_of[ordinal];
	if (pack != BK_NO_PACK && c->cut[pack])
		sl__bk_set_bit(c->p->bad, ordinal);
	return 0;
}

/* No block of such a pack is chosen, also none that is before the cut: its directory is gone, so that nothing could be
 * copied from it; and else the whole copy of a block would be deleted as the second one. */
static int leave_out_cut(struct bk_prune *p, struct sl_err *err)
{
	struct cutting c = {.p = p, .cut = sl__calloc(&p->b->env, p->view.packs.n + 1, sizeof(*c.cut))};
	p->bad = sl__bk_bits(&p->b->env, p->view.entries);
	int rc = c.cut != NULL && p->bad != NULL ? sl__bk_index_each(p->view.index, find_cut, &c, err)
						 : sl__no_memory(err, "prune");
	if (rc == 0 && c.any)
		rc = sl__bk_index_each(p->view.index, set_bad, &c, err);
	sl__free(&p->b->env, c.cut);
	return rc;
}

int sl__bk_prune_choose(struct bk_prune *p, struct sl_err *err)
{
	struct bk_walk walk = {.b = NULL};
	int rc = make_arrays(p, err);
	if (rc == 0)
		rc = leave_out_cut(p, err);
	for (size_t i = 0; i < p->view.packs.n && rc == 0; i++) {
		const struct bk_id *pack = &p->view.packs.ids[i];
		p->marked[i] = sl__bk_marks_have(&p->old, pack) || sl__bk_marks_have(&p->all, pack);
	}
	if (rc == 0)
		rc = sl__bk_choice_init(&p->choice, &p->view, p->marked, p->bad, err);
	if (rc == 0)
		rc = sl__bk_seen_new(&p->metadata, &p->b->env, err);
	if (rc == 0)
		rc = sl__bk_walk_init(&walk, p->b, p->view.index, need, NULL, p, err);
	for (size_t i = 0; i < p->snapshots_n && rc == 0; i++)
		rc = walk_one(p, &walk, p->snapshots[i], err);
	sl__bk_walk_fini(&walk);
	return rc;
}

/* ---- the plan ---- */

static int add_up(uint64_t ordinal, const struct bk_id *id, const struct bk_found *found, void *ctx)
{
	struct bk_prune *p = ctx;
	(void)id;
	uint32_t pack = p->view.pack_of[ordinal];
	if (pack == BK_NO_PACK)
		return 0;
	p->contents[pack] += found->place.length + 1; /* an empty block counts as well */
	if (sl__bk_bit(p->choice.chosen, ordinal))
		p->needed[pack] += found->place.length + 1;
	return 0;
}

/* Is the pack in a mark that an earlier run made and that every live session has seen? */
static bool may_go(const struct bk_prune *p, const struct bk_id *pack)
{
	for (size_t i = 0; i < p->old.n; i++) {
		if (!p->waits[i] && sl__bk_ids_has(&p->old.marks[i].packs, pack))
			return true;
	}
	return false;
}

/* One that is marked: deleted, or rescued (what is needed of it is copied; it goes in the next run), or it waits. */
static void plan_marked(struct bk_prune *p, size_t i)
{
	p->due[i] = p->needed[i] == 0 && may_go(p, &p->view.packs.ids[i]);
	p->copy[i] = p->needed[i] > 0 && !p->due[i];
	p->out.packs_rescued += p->needed[i] > 0;
	if (p->due[i]) {
		p->out.packs_deleted++;
		p->out.bytes_deleted += p->view.sizes[i];
	} else {
		p->out.packs_waiting++;
		p->out.bytes_waiting += p->view.sizes[i];
	}
}

/* A pack that no index names may be of a session that is still at work: it is left alone while there is one. (Marked it
 * would be safe too, but its blocks would have to be copied once the session is published.) */
static void plan_unmarked(struct bk_prune *p, size_t i)
{
	bool unneeded = p->needed[i] == 0;
	int64_t percent = p->opts.repack_percent;
	bool hardly = !unneeded && percent != SL_NONE && p->needed[i] < p->contents[i] &&
		      p->needed[i] <
			      p->contents[i] / 100 * (uint64_t)percent + p->contents[i] % 100 * (uint64_t)percent / 100;
	if ((!unneeded && !hardly) || (p->live && sl__bk_ids_has(&p->view.unindexed, &p->view.packs.ids[i])))
		return;
	p->condemn[i] = true;
	p->copy[i] = hardly;
	p->out.packs_repacked += hardly;
	p->out.packs_condemned++;
	p->out.bytes_condemned += p->view.sizes[i];
}

/* ---- small packs ---- */

#define MERGE_PACKS_MAX 64u /* full ones that a run makes of small ones: a bound on its memory and its time */

/* One that stays as it is, but is less than half of what it could be. */
static bool is_small(const struct bk_prune *p, size_t i)
{
	return !p->marked[i] && !p->condemn[i] && p->view.sizes[i] < (uint64_t)p->b->opts.pack_bytes / 2 &&
	       !(p->live && sl__bk_ids_has(&p->view.unindexed, &p->view.packs.ids[i]));
}

/* Every small backup leaves a small pack or two. Merged they are marked like those that are hardly used: what snapshots
 * and sessions count on is in the new pack, too, before the mark is there. What is left over of the last full pack is
 * one small pack, so that a run without new ones has nothing to do. */
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
		p->condemn[i] = p->copy[i] = true;
		p->out.packs_merged++;
		p->out.packs_repacked++;
		p->out.packs_condemned++;
		p->out.bytes_condemned += p->view.sizes[i];
	}
}

int sl__bk_prune_plan(struct bk_prune *p, struct sl_err *err)
{
	int rc = sl__bk_index_each(p->view.index, add_up, p, err);
	for (size_t i = 0; i < p->view.packs.n && rc == 0; i++) {
		p->out.packs++;
		p->out.bytes += p->view.sizes[i];
		if (p->marked[i])
			plan_marked(p, i);
		else
			plan_unmarked(p, i);
	}
	if (rc == 0)
		plan_small(p);
	return rc;
}
