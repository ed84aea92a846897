/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A manifest is walked block by block: each begins with a whole entry that shares nothing with the one before (see
 * backup/manifest/manifest.h), so a block that another snapshot has too need not be looked at again, and one that cannot be read
 * hides only its own entries.
 */
#include "backup/check/needed.h"

int sl__bk_walk_init(struct bk_walk *w, struct sl_backup *b, struct bk_index *index, bk_need_fn *need,
		     bk_unread_fn *unread, void *ctx, struct sl_err *err)
{
	*w = (struct bk_walk){.b = b, .need = need, .unread = unread, .ctx = ctx};
	sl__buf_init(&w->previous, &b->env);
	int rc = sl__bk_reader_new(&w->manifests, b, index, err);
	if (rc == 0)
		rc = sl__bk_reader_new(&w->lists, b, index, err);
	if (rc == 0)
		rc = sl__bk_seen_new(&w->walked, &b->env, err);
	if (rc == 0 && sl__bk_entry_scratch_new(&w->scratch, &b->env) != 0)
		rc = sl_err_set(err, SL_ENOMEM, "walk the snapshots: out of memory");
	if (rc != 0)
		sl__bk_walk_fini(w);
	return rc;
}

void sl__bk_walk_fini(struct bk_walk *w)
{
	if (w->b == NULL)
		return;
	sl__bk_reader_free(w->manifests);
	sl__bk_reader_free(w->lists);
	sl__bk_seen_free(w->walked);
	sl__bk_entry_scratch_free(w->scratch);
	sl__buf_fini(&w->previous);
	w->b = NULL;
}

/* ---- entries of a block ---- */

static int one_entry(struct bk_walk *w, const uint8_t *bytes, size_t n, size_t *used, bk_walk_entry_fn *fn, void *ctx,
		     struct sl_err *err)
{
	struct bk_entry e;
	int rc = sl__bk_entry_decode(w->scratch, bytes, n, sl__buf_str(&w->previous), w->previous.len, &e, used, err);
	if (rc == SL_EAGAIN)
		return sl_err_set(err, SL_ECORRUPT, "a block of a manifest ends within an entry");
	if (rc == 0)
		rc = fn(&e, ctx, err);
	if (rc != 0)
		return rc;
	sl__buf_clear(&w->previous);
	rc = sl__buf_append(&w->previous, e.path, e.path_len);
	return rc == 0 ? 0 : sl_err_set(err, SL_ENOMEM, "walk the snapshots: out of memory");
}

int sl__bk_walk_block(struct bk_walk *w, const struct bk_ref *ref, bk_walk_entry_fn *fn, void *ctx, struct sl_err *err)
{
	const uint8_t *bytes = NULL;
	int rc = sl__bk_read_block(w->manifests, &ref->id, ref->len, &bytes, err);
	sl__buf_clear(&w->previous);
	for (size_t at = 0, used = 0; at < ref->len && rc == 0; at += used) {
		rc = sl__bk_check_stop(w->b, err);
		if (rc == 0)
			rc = one_entry(w, bytes + at, ref->len - at, &used, fn, ctx, err);
	}
	return rc;
}

/* ---- what they need ---- */

/* An entry's blocks on their way to need. */
struct needing {
	struct bk_walk *w;
	const struct bk_entry *entry;
	bool missing;  /* something of this block of the manifest is not there */
	bool answered; /* the code that ended the walk is need's own */
	struct sl_err err;
};

static int need_ref(const struct bk_ref *ref, void *ctx)
{
	struct needing *n = ctx;
	const struct bk_entry *e = n->entry; /* its own references are of lists, when it has any */
	bool metadata = (e->flags & BK_ENTRY_LISTS) != 0 && ref >= e->refs && ref < e->refs + e->refs_n;
	int rc = n->w->need(ref, e->path, metadata, n->w->ctx, &n->err);
	if (rc > 0)
		n->missing = true;
	n->answered = rc < 0;
	return rc < 0 ? rc : 0;
}

static int tell_unread(struct needing *n, const struct bk_ref *ref, const char *path, const struct sl_err *why,
		       struct sl_err *err)
{
	n->missing = true;
	if (n->w->unread == NULL || (why->code != SL_ENOENT && why->code != SL_ECORRUPT && why->code != SL_EDATA)) {
		if (err != NULL)
			*err = *why;
		return why->code;
	}
	int rc = n->w->unread(ref, path, why, n->w->ctx, err);
	return rc < 0 ? rc : 0;
}

static int need_entry(const struct bk_entry *e, void *ctx, struct sl_err *err)
{
	struct needing *n = ctx;
	struct sl_err why = SL_ERR_INIT;
	n->entry = e;
	n->answered = false;
	int rc = sl__bk_entry_all_refs(n->w->lists, e, need_ref, n, &why);
	if (rc == 0)
		return 0;
	if (n->answered) {
		if (err != NULL)
			*err = n->err;
		return rc;
	}
	return tell_unread(n, NULL, e->path, &why, err);
}

static int walk_manifest_block(struct bk_walk *w, const struct bk_ref *ref, struct sl_err *err)
{
	struct needing n = {.w = w};
	struct sl_err why = SL_ERR_INIT;
	int rc = w->need(ref, NULL, true, w->ctx, err);
	if (rc != 0)
		return rc < 0 ? rc : 0;
	rc = sl__bk_walk_block(w, ref, need_entry, &n, &why);
	if (rc != 0)
		rc = tell_unread(&n, ref, NULL, &why, err);
	if (rc == 0 && !n.missing && sl__bk_seen_add(w->walked, &ref->id) < 0)
		rc = sl_err_set(err, SL_ENOMEM, "walk the snapshots: out of memory");
	return rc;
}

int sl__bk_walk_snapshot(struct bk_walk *w, const struct bk_snapshot *s, struct sl_err *err)
{
	for (size_t i = 0; i < s->manifest_n; i++) {
		if (sl__bk_seen_has(w->walked, &s->manifest[i].id))
			continue;
		int rc = walk_manifest_block(w, &s->manifest[i], err);
		if (rc != 0)
			return rc;
	}
	return 0;
}
