/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks over snapshots. A manifest is walked block by block: each begins with a whole entry that shares nothing with
 * the one before (backup/manifest/manifest.h). So a block that another snapshot has too need not be read again, and one
 * that cannot be read hides only its own entries.
 */
#include "backup/check/needed.h"

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
		rc = sl__bk_entry_decode(w->scratch, bytes + at, ref->len - at, sl__buf_str(&w->previous),
					 w->previous.len, &e, &used, err);
		if (rc == SL_EAGAIN)
			return sl_err_set(err, SL_ECORRUPT, "a manifest block ends within an entry");
		if (rc == 0)
			rc = fn(&e, ctx, err);
		if (rc != 0)
			return rc;
		sl__buf_clear(&w->previous);
		if (sl__buf_append(&w->previous, e.path, e.path_len) != 0)
			return sl__no_memory(err, "walk the snapshots");
	}
	return 0;
}

/* ---- what entries need ---- */

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
	bool metadata = (e->flags & BK_ENTRY_LISTS) != 0 && ref >= e->refs && ref < e->refs + e->refs_n;
	int rc = n->w->need(ref, e->path, metadata, n->w->ctx, &n->err);
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
	int rc = n->w->unread(ref, path, why, n->w->ctx, err);
	return rc < 0 ? rc : 0;
}

static int need_entry(const struct bk_entry *e, void *ctx, struct sl_err *err)
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
	if (err != NULL)
		*err = n->err;
	return rc;
}

int sl__bk_walk_snapshot(struct bk_walk *w, const struct bk_snapshot *s, struct sl_err *err)
{
	for (size_t i = 0; i < s->manifest_n; i++) {
		const struct bk_ref *ref = &s->manifest[i];
		struct block_needs n = {.w = w};
		struct sl_err why = SL_ERR_INIT;
		if (sl__bk_seen_has(w->walked, &ref->id))
			continue;
		int rc = w->need(ref, NULL, true, w->ctx, err);
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
