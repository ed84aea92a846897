/* SPDX-License-Identifier: Apache-2.0 */
/* Every snapshot, and what it needs: is it there, and right where it is? */
#include "backup/check/check.h"

struct walking {
	struct sl_backup *b;
	const struct bk_view *view;
	struct bk_choice choice;
	struct bk_findings *f;
	const char *snapshot; /* at hand */
	bool *missing;
};

/* The pack that has the block, though not right; NULL when none has it at all. */
static const struct bk_id *bad_pack_of(struct walking *w)
{
	const struct bk_ordinals *o = &w->choice.ordinals; /* of the last choice */
	for (size_t i = 0; i < o->n; i++)
		if (w->view->pack_of[o->at[i]] != BK_NO_PACK)
			return &w->view->packs.ids[w->view->pack_of[o->at[i]]];
	return NULL;
}

/* A file may have many blocks in one damaged pack. */
static bool is_told(const struct walking *w, const char *object, const char *path)
{
	const struct bk_finding *last = w->f->n > 0 ? &w->f->items[w->f->n - 1] : NULL;
	return last != NULL && path != NULL && last->path != NULL && strcmp(last->path, path) == 0 &&
	       last->snapshot != NULL && strcmp(last->snapshot, w->snapshot) == 0 && last->object != NULL &&
	       strcmp(last->object, object) == 0;
}

static int tell_missing(struct walking *w, const struct bk_ref *ref, const char *path, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	char object[SL_DRIVER_NAME_BYTES];
	const struct bk_id *pack = bad_pack_of(w);
	const char *what = path != NULL ? "the file" : "the list of files";
	if (pack != NULL) {
		sl__bk_pack_name(pack, object);
		(void)sl_err_set(&why, SL_ECORRUPT, "a block of %s is damaged", what);
	} else {
		sl__bk_hex(ref->id.b, BK_ID_BYTES, object);
		(void)sl_err_set(&why, SL_ECORRUPT, "a block of %s is in no pack", what);
	}
	*w->missing = true;
	if (is_told(w, object, path))
		return 0;
	return sl__bk_findings_add(w->f, pack != NULL ? SL_BACKUP_FAULT_PACK : SL_BACKUP_FAULT_MISSING_BLOCK, false,
				   object, w->snapshot, path, &why, err);
}

static int tell_single(struct walking *w, const struct bk_ref *ref, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	char object[BK_HEX_BYTES];
	sl__bk_hex(ref->id.b, BK_ID_BYTES, object);
	(void)sl_err_set(&why, SL_ENOENT, "only one pack has this block of metadata; repair and prune copy it");
	return sl__bk_findings_add(w->f, SL_BACKUP_FAULT_ONE_COPY, true, object, NULL, NULL, &why, err);
}

static int need(const struct bk_ref *ref, const char *path, bool metadata, void *ctx, struct sl_err *err)
{
	struct walking *w = ctx;
	int rc = sl__bk_choose(&w->choice, &ref->id, metadata ? BK_METADATA_COPIES : 1, err);
	if (rc == 1 && metadata)
		rc = tell_single(w, ref, err);
	if (rc != SL_ENOENT)
		return rc > 0 ? 0 : rc;
	rc = tell_missing(w, ref, path, err);
	return rc == 0 ? 1 : rc;
}

static int unread(const struct bk_ref *ref, const char *path, const struct sl_err *why, void *ctx, struct sl_err *err)
{
	struct walking *w = ctx;
	char object[SL_DRIVER_NAME_BYTES] = "snapshots/";
	if (ref != NULL)
		sl__bk_hex(ref->id.b, BK_ID_BYTES, object);
	else
		(void)memcpy(object + strlen(object), w->snapshot, strlen(w->snapshot) + 1);
	*w->missing = true;
	int rc = sl__bk_findings_add(w->f, SL_BACKUP_FAULT_MISSING_BLOCK, false, object, w->snapshot, path, why, err);
	return rc == 0 ? 1 : rc;
}

static int snapshot_damaged(enum sl_backup_fault fault, bool harmless, const char *object, const struct sl_err *why,
			    void *ctx, struct sl_err *err)
{
	struct walking *w = ctx;
	return sl__bk_findings_add(w->f, fault, harmless, object, w->snapshot, NULL, why, err);
}

static int check_one(struct walking *w, struct bk_walk *walk, const char *id, struct sl_err *err)
{
	struct bk_snapshot s = {.manifest = NULL};
	struct sl_err why = SL_ERR_INIT;
	struct bk_care care = {.fn = snapshot_damaged, .ctx = w};
	w->snapshot = id;
	int rc = sl__bk_snapshot_care(w->b, id, &care, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_snapshot_load(w->b, id, &s, &why);
	if (rc == SL_ENOENT || rc == SL_ECORRUPT || rc == SL_EUNSUPPORTED) /* forgotten meanwhile; told by its care */
		return 0;
	if (rc != 0) {
		if (err != NULL)
			*err = why;
		return rc;
	}
	rc = sl__bk_walk_snapshot(walk, &s, err);
	sl__bk_snapshot_fini(&w->b->env, &s);
	return rc;
}

int sl__bk_check_snapshots(struct sl_backup *b, const struct bk_view *view, const struct bk_verify *verify,
			   struct bk_findings *f, uint64_t *snapshots, bool *missing, struct sl_err *err)
{
	struct walking w = {.b = b, .view = view, .f = f, .missing = missing};
	struct bk_walk walk = {.b = NULL};
	char(*ids)[BK_NAME_HEX] = NULL;
	size_t n = 0;
	uint64_t *bad = sl__bk_verify_bits(verify, view, err);
	int rc = bad != NULL ? sl__bk_choice_init(&w.choice, view, NULL, bad, err) : SL_ENOMEM;
	if (rc == 0)
		rc = sl__bk_walk_init(&walk, b, view->index, need, unread, &w, err);
	if (rc == 0)
		rc = sl__bk_snapshot_ids(b, &ids, &n, err);
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = check_one(&w, &walk, ids[i], err);
	*snapshots = n;
	sl__free(&b->env, ids);
	sl__bk_walk_fini(&walk);
	sl__bk_choice_fini(&w.choice);
	sl__free(&b->env, bad);
	return rc;
}
