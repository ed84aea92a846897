/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last check of the marks, directly before a create publishes (F7). A mark that was made after the session has seen
 * the marks waits for the session (backup/prune/prune.h, P2), so nothing that this snapshot relies on can be gone. Here
 * the create verifies this instead of trusting the prunes:
 *
 *   list the marks ─▶ none is newer: publish
 *        ▲               │ newer ones name packs that this create may rely on
 *        │               ▼
 *        │          load the index again; walk the manifest; a block that only those packs contain
 *        └── store ◀── exists: stored again, durable and indexed; is gone: SL_EAGAIN, nothing is published
 *
 * Memory: what the create held is freed first, so that only one index is loaded at a time, and 48 bytes for each block
 * that is stored again.
 */
#include "backup/check/needed.h"
#include "backup/create/create.h"

#define ROUNDS_MAX 8 /* each one because another prune has ended since the last */
#define PLACES_MAX 16

struct recheck {
	struct bk_create *c;
	struct bk_marks newer;    /* than the session */
	struct bk_reader *blocks; /* for blocks that are stored again; the walk has its own */
	bool relied_on;           /* one of them names a pack of the create's index, or one that it made */
};

static int packs_are_gone(struct sl_err *err)
{
	return sl_err_set(err, SL_EAGAIN,
			  "a prune has deleted packs that this snapshot needs: nothing was published; run it again");
}

static int note_relied_on(const struct bk_id *pack, bool usable, void *ctx)
{
	struct recheck *r = ctx;
	r->relied_on = r->relied_on || (usable && sl__bk_marks_have(&r->newer, pack));
	return 0;
}

/* 1: newer marks name packs that matter, or one came and went before it could be read; 0: they do not. */
static int newer_marks_matter(struct recheck *r, struct sl_err *err)
{
	struct bk_create *c = r->c;
	size_t known = r->newer.n;
	bool vanished = false;
	int rc = sl__bk_marks_newer(c->b, &c->session->seen, &r->newer, &vanished, err);
	if (rc != 0 || (r->newer.n == known && !vanished))
		return rc;
	r->relied_on = vanished;
	rc = sl__bk_index_packs(c->index, note_relied_on, r);
	if (rc == 0)
		rc = sl__bk_store_packs(c->store, note_relied_on, r);
	if (rc != 0)
		return rc;
	return r->relied_on;
}

/* ---- block by block ---- */

static int store_again(const struct bk_ref *ref, SL_UNUSED const char *path, bool metadata, struct sl_err *err,
		       void *ctx)
{
	struct recheck *r = ctx;
	struct bk_found places[PLACES_MAX];
	const uint8_t *bytes = NULL;

	/* A block in a pack that no newer mark names stays where it is. */
	int rc = sl__bk_index_find(r->c->index, &ref->id, &places[0], err);
	if (rc == SL_ENOENT)
		return packs_are_gone(err);
	if (rc != 0 || !sl__bk_marks_have(&r->newer, &places[0].pack))
		return rc;
	int n = sl__bk_index_places(r->c->index, &ref->id, places, PLACES_MAX, err);
	if (n < 0)
		return n;
	for (int i = 0; i < n; i++)
		if (!sl__bk_marks_have(&r->newer, &places[i].pack))
			return 0;

	rc = sl__bk_read_block(r->blocks, &ref->id, ref->len, &bytes, err);
	if (rc == 0)
		rc = sl__bk_store_put_always(r->c->store, 0, &(struct bk_block){&ref->id, bytes, ref->len},
					     metadata ? 2 : 1, err);
	return rc == SL_ENOENT ? packs_are_gone(err) : rc;
}

/* Store again what only packs of newer marks contain. */
static int rescue_blocks(struct recheck *r, const struct bk_snapshot *s, struct sl_err *err)
{
	struct bk_create *c = r->c;
	struct bk_walk w = {.b = c->b, .need = store_again, .ctx = r};

	/* The store is finished and the workers have ended: nothing uses these any more. */
	sl__bk_create_stats(c, &c->before);
	sl__bk_create_release(c);

	/* The index as for a create that begins now and has seen the same marks: without packs that are gone, with
	 * packs that the newer marks name, as long as they exist. */
	int rc = sl__bk_index_for_writing(c->b, &c->session->seen, &c->index, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_store_new(&c->store, c->b, NULL, 1, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_walk_init(&w, c->index, err);
	if (rc == 0)
		rc = sl__bk_reader_new(&r->blocks, c->b, c->index, err);
	if (rc == 0)
		rc = sl__bk_walk_snapshot(&w, s, err);
	sl__bk_reader_free(r->blocks);
	r->blocks = NULL;
	sl__bk_walk_fini(&w);
	if (rc == SL_ENOENT)
		return packs_are_gone(err);
	if (rc != 0)
		return rc;
	return sl__bk_store_finish(c->store, err);
}

int sl__bk_create_recheck(struct bk_create *c, const struct bk_snapshot *s, struct sl_err *err)
{
	struct recheck r = {.c = c};
	int rc = newer_marks_matter(&r, err);
	for (int round = 0; rc == 1; round++) {
		rc = round < ROUNDS_MAX ? rescue_blocks(&r, s, err)
					: sl_err_set(err, SL_EAGAIN,
						     "prune keeps marking packs that this snapshot needs; "
						     "no snapshot was published; run the backup again");
		if (rc == 0)
			rc = newer_marks_matter(&r, err);
	}
	sl__bk_marks_fini(&c->b->env, &r.newer);
	return rc;
}
