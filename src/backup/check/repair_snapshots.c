/* SPDX-License-Identifier: Apache-2.0 */
/* Which snapshots miss something, and what becomes of them. */
#include "backup/check/repair.h"

#include <stdio.h>

struct mending {
	struct bk_repair *r;
	struct bk_view view; /* after packs and index were repaired */
	struct bk_choice choice;
	struct bk_walk walk;
	bool missing;          /* of the snapshot at hand */
	struct bk_refs single; /* blocks of metadata that only one pack has */
};

static int need(const struct bk_ref *ref, SL_UNUSED const char *path, bool metadata, void *ctx, struct sl_err *err)
{
	struct mending *m = ctx;
	int rc = sl__bk_choose(&m->choice, &ref->id, metadata ? BK_METADATA_COPIES : 1, err);
	if (rc == 1 && metadata && sl__bk_refs_add(&m->r->b->env, &m->single, ref) != 0)
		return sl__no_memory(err, "repair");
	if (rc != SL_ENOENT)
		return rc > 0 ? 0 : rc;
	m->missing = true;
	return 1;
}

static int unread(const struct bk_ref *ref, const char *path, const struct sl_err *why, void *ctx, struct sl_err *err)
{
	struct mending *m = ctx;
	(void)ref;
	(void)path;
	(void)why;
	(void)err;
	m->missing = true;
	return 1;
}

/* The first is kept under damaged/; its copy goes before, else it would count as the snapshot. */
static int put_snapshot_aside(struct mending *m, const char *id, struct sl_err *err)
{
	char name[SL_DRIVER_NAME_BYTES];
	int rc = sl__bk_snapshot_remove_copy(m->r->b, id, err);
	(void)snprintf(name, sizeof(name), "snapshots/%s", id);
	return rc == 0 ? sl__bk_put_aside(m->r->b, name, err) : rc;
}

static int lose(struct mending *m, const char *id, const struct sl_err *why, struct sl_err *err)
{
	char name[SL_DRIVER_NAME_BYTES];
	(void)snprintf(name, sizeof(name), "snapshots/%s", id);
	int rc = sl__bk_findings_add(&m->r->f, SL_BACKUP_FAULT_SNAPSHOT, false, name, id, NULL, why, err);
	if (rc == 0)
		rc = put_snapshot_aside(m, id, err);
	m->r->out.snapshots_lost += rc == 0;
	return rc;
}

static bool is_repaired_copy(const struct sl_backup_snapshot *s, const char *of)
{
	bool tagged = false;
	for (size_t i = 0; i < s->tags_n; i++)
		tagged = tagged || strcmp(s->tags[i], "repaired") == 0;
	return tagged && s->parent != NULL && strcmp(s->parent, of) == 0;
}

/* 1: a repair that died has published the copy, and not put the old one aside. */
static int has_copy(struct mending *m, const char *id, char (*ids)[BK_NAME_HEX], size_t n, struct sl_err *err)
{
	for (size_t i = 0; i < n; i++) {
		struct bk_snapshot s = {.manifest = NULL};
		int rc = sl__bk_snapshot_load(m->r->b, ids[i], &s, err);
		bool found = rc == 0 && is_repaired_copy(&s.info, id);
		sl__bk_snapshot_fini(&m->r->b->env, &s);
		if (found)
			return 1;
		if (rc != 0 && rc != SL_ENOENT && rc != SL_ECORRUPT && rc != SL_EUNSUPPORTED)
			return rc;
	}
	return 0;
}

static int rewrite(struct mending *m, const struct bk_snapshot *s, const char *id, char (*ids)[BK_NAME_HEX], size_t n,
		   struct sl_err *err)
{
	uint64_t kept = 1;
	int copy = has_copy(m, id, ids, n, err);
	int rc = copy < 0 ? copy : 0;
	if (copy == 0)
		rc = sl__bk_rewrite_snapshot(m->r, &m->view, s, id, &kept, err);
	if (rc == 0 && kept == 0) {
		struct sl_err why = SL_ERR_INIT;
		(void)sl_err_set(&why, SL_ECORRUPT, "nothing of it is left");
		return lose(m, id, &why, err);
	}
	m->r->out.snapshots_rewritten += rc == 0;
	return rc == 0 ? put_snapshot_aside(m, id, err) : rc;
}

static int snapshot_damaged(enum sl_backup_fault fault, bool harmless, const char *object, const struct sl_err *why,
			    void *ctx, struct sl_err *err)
{
	struct mending *m = ctx;
	return sl__bk_findings_add(&m->r->f, fault, harmless, object, NULL, NULL, why, err);
}

/* Metadata that only one pack has gets into a second one. What cannot be read is told as missing elsewhere. */
static int double_metadata(struct mending *m, struct sl_err *err)
{
	struct sl_backup *b = m->r->b;
	struct bk_store *store = NULL;
	struct bk_reader *reader = NULL;
	uint64_t doubled = 0;
	if (m->single.n == 0)
		return 0;
	int rc = sl__bk_store_new(&store, b, NULL, 1, err);
	if (rc == 0)
		rc = sl__bk_reader_new(&reader, b, m->view.index, err);
	for (size_t i = 0; i < m->single.n && rc == 0; i++) {
		const struct bk_ref *ref = &m->single.refs[i];
		const uint8_t *bytes = NULL;
		rc = sl__bk_read_block(reader, &ref->id, ref->len, &bytes, err);
		if (rc == SL_ENOENT || rc == SL_ECORRUPT) {
			rc = 0;
			continue;
		}
		if (rc == 0)
			rc = sl__bk_store_put_always(store, 0, &(struct bk_block){&ref->id, bytes, ref->len}, 1, err);
		doubled += rc == 0;
	}
	if (rc == 0)
		rc = sl__bk_store_finish(store, err);
	m->r->out.copies_mended += rc == 0 ? doubled : 0;
	sl__bk_reader_free(reader);
	sl__bk_store_free(store);
	return rc;
}

static int mend(struct mending *m, const char *id, char (*ids)[BK_NAME_HEX], size_t n, struct sl_err *err)
{
	struct bk_snapshot s = {.manifest = NULL};
	struct sl_err why = SL_ERR_INIT;
	struct bk_care care = {.fn = snapshot_damaged, .ctx = m, .mend = true};
	int rc = sl__bk_snapshot_care(m->r->b, id, &care, err);
	m->r->out.copies_mended += care.mended;
	if (rc != 0)
		return rc;
	rc = sl__bk_snapshot_load(m->r->b, id, &s, &why);
	if (rc == SL_ECORRUPT)
		return lose(m, id, &why, err);
	if (rc == SL_ENOENT ||
	    rc == SL_EUNSUPPORTED) /* forgotten meanwhile; or of a later version: not ours to judge */
		return 0;
	if (rc != 0) {
		if (err != NULL)
			*err = why;
		return rc;
	}
	m->missing = false;
	rc = sl__bk_walk_snapshot(&m->walk, &s, err);
	if (rc == 0 && m->missing)
		rc = rewrite(m, &s, id, ids, n, err);
	sl__bk_snapshot_fini(&m->r->b->env, &s);
	return rc;
}

int sl__bk_repair_snapshots(struct bk_repair *r, struct sl_err *err)
{
	struct mending m = {.r = r};
	char(*ids)[BK_NAME_HEX] = NULL;
	size_t n = 0;
	int rc = sl__bk_view_load(r->b, &m.view, NULL, err);
	if (rc == 0)
		rc = sl__bk_choice_init(&m.choice, &m.view, NULL, NULL, err);
	if (rc == 0)
		rc = sl__bk_walk_init(&m.walk, r->b, m.view.index, need, unread, &m, err);
	if (rc == 0)
		rc = sl__bk_snapshot_ids(r->b, &ids, &n, err);
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = mend(&m, ids[i], ids, n, err);
	if (rc == 0)
		rc = double_metadata(&m, err);
	sl__free(&r->b->env, ids);
	sl__free(&r->b->env, m.single.refs);
	sl__bk_walk_fini(&m.walk);
	sl__bk_choice_fini(&m.choice);
	sl__bk_view_fini(&m.view);
	return rc;
}
