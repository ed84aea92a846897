/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last look at the marks, directly before a create publishes (F7). A mark that came after the session has seen
 * them waits for it (backup/prune/prune.h, P2), so that nothing this snapshot counts on can have gone; here the create does
 * not take the prunes' word for it:
 *
 *   list the marks ─▶ none is newer: publish
 *        ▲               │ newer ones name packs that this create may count on
 *        │               ▼
 *        │          load the index anew; walk the manifest; a block that has a place in no pack but those
 *        └── store ◀── is there: stored again, durable and indexed; is gone: SL_EAGAIN, nothing is published
 *
 * Memory: what the create held is let go first, so that there is one index at a time, and 48 bytes for each block that
 * is stored again.
 */
#include "backup/check/needed.h"
#include "backup/create/contents.h"

#define ROUNDS_MAX 8 /* each one because another prune has ended meanwhile */
#define PLACES_MAX 16

struct recheck {
	struct bk_create *c;
	struct bk_marks newer;    /* than the session */
	struct bk_reader *blocks; /* those that are stored again; the walk has its own */
	bool counted_on;          /* one of them names a pack of the create's index, or one that it made */
};

static int gone(struct sl_err *err)
{
	return sl_err_set(err, SL_EAGAIN,
			  "a prune has deleted packs that this snapshot counted on: nothing is published, begin anew");
}

/* ---- is there anything to look at? ---- */

static int note_counted_on(const struct bk_id *pack, bool usable, void *ctx)
{
	struct recheck *r = ctx;
	r->counted_on = r->counted_on || (usable && sl__bk_marks_have(&r->newer, pack));
	return 0;
}

/* 1: newer marks name packs that matter, or one came and went before it could be read; 0: they do not. */
static int look_for_marks(struct recheck *r, struct sl_err *err)
{
	struct bk_create *c = r->c;
	size_t known = r->newer.n;
	bool vanished = false;
	int rc = sl__bk_marks_newer(c->b, &c->session->seen, &r->newer, &vanished, err);
	if (rc != 0 || (r->newer.n == known && !vanished))
		return rc;
	r->counted_on = vanished;
	rc = sl__bk_index_packs(c->index, note_counted_on, r);
	if (rc == 0)
		rc = sl__bk_store_packs(c->store, note_counted_on, r);
	return rc != 0 ? rc : r->counted_on;
}

/* ---- what this create held for itself ---- */

/* Its store is finished and its workers have ended: nobody needs these any more. */
static void let_go(struct bk_create *c)
{
	sl__bk_create_stats(c, &c->before);
	sl__bk_contents_free(c->own);
	sl__bk_manifest_writer_free(c->manifest);
	sl__bk_parent_close(c->parent);
	sl__bk_reader_free(c->lists);
	sl__bk_store_free(c->store);
	sl__bk_index_free(c->index);
	c->own = NULL;
	c->manifest = NULL;
	c->parent = NULL;
	c->lists = NULL;
	c->store = NULL;
	c->index = NULL;
}

/* ---- block by block ---- */

/* 1: it is in a pack that no newer mark names; 0: only in others, or in none (*found is false). */
static int stays(struct recheck *r, const struct bk_id *id, bool *found, struct sl_err *err)
{
	struct bk_found places[PLACES_MAX];
	size_t n = 0;
	int rc = sl__bk_index_find(r->c->index, id, &places[0], err);
	*found = rc == 0;
	if (rc != 0)
		return rc == SL_ENOENT ? 0 : rc;
	if (!sl__bk_marks_have(&r->newer, &places[0].pack))
		return 1;
	rc = sl__bk_index_places(r->c->index, id, places, PLACES_MAX, &n, err);
	for (size_t i = 0; i < n && rc == 0; i++)
		if (!sl__bk_marks_have(&r->newer, &places[i].pack))
			return 1;
	return rc;
}

static int need(const struct bk_ref *ref, SL_UNUSED const char *path, bool metadata, void *ctx, struct sl_err *err)
{
	struct recheck *r = ctx;
	const uint8_t *bytes = NULL;
	bool found = false;
	int rc = stays(r, &ref->id, &found, err);
	if (rc != 0)
		return rc < 0 ? rc : 0;
	if (!found)
		return gone(err);
	rc = sl__bk_read_block(r->blocks, &ref->id, ref->len, &bytes, err);
	if (rc == 0)
		rc = sl__bk_store_put_always(r->c->store, 0, &(struct bk_block){&ref->id, bytes, ref->len},
					     metadata ? 2 : 1, err);
	return rc == SL_ENOENT ? gone(err) : rc;
}

static int walk(struct recheck *r, const struct bk_snapshot *s, struct sl_err *err)
{
	struct bk_create *c = r->c;
	struct bk_walk w = {.b = NULL};
	int rc = sl__bk_walk_init(&w, c->b, c->index, need, NULL, r, err);
	if (rc == 0)
		rc = sl__bk_reader_new(&r->blocks, c->b, c->index, err);
	if (rc == 0)
		rc = sl__bk_walk_snapshot(&w, s, err);
	sl__bk_reader_free(r->blocks);
	r->blocks = NULL;
	sl__bk_walk_fini(&w);
	return rc == SL_ENOENT ? gone(err) : rc;
}

/* The index as for a create that begins now and has seen the same marks: packs that are gone are not in it, packs that
 * the newer marks name are, for as long as they are there. */
static int save(struct recheck *r, const struct bk_snapshot *s, struct sl_err *err)
{
	struct bk_create *c = r->c;
	let_go(c);
	int rc = sl__bk_index_for_writing(c->b, &c->session->seen, &c->index, err);
	if (rc == 0)
		rc = sl__bk_store_new(&c->store, c->b, NULL, 1, err);
	if (rc == 0)
		rc = walk(r, s, err);
	return rc == 0 ? sl__bk_store_finish(c->store, err) : rc;
}

int sl__bk_create_recheck(struct bk_create *c, struct bk_ref *manifest, size_t n, struct sl_err *err)
{
	const struct bk_snapshot s = {.manifest = manifest, .manifest_n = n};
	struct recheck r = {.c = c};
	int rc = look_for_marks(&r, err);
	for (int round = 0; rc == 1; round++) {
		rc = round < ROUNDS_MAX ? save(&r, &s, err)
					: sl_err_set(err, SL_EAGAIN,
						     "prunes condemn what this snapshot needs as fast as it is stored "
						     "again: nothing is published, begin anew");
		if (rc == 0)
			rc = look_for_marks(&r, err);
	}
	sl__bk_marks_fini(&c->b->env, &r.newer);
	return rc;
}
