/* SPDX-License-Identifier: Apache-2.0 */
/* Which snapshots miss something, and what becomes of them. */
#include "backup/repair.h"

#include <stdio.h>

struct mending {
	struct bk_repair *r;
	struct bk_view view; /* after packs and index were repaired */
	struct bk_choice choice;
	struct bk_walk walk;
	bool missing; /* of the snapshot at hand */
};

static int need(const struct bk_ref *ref, const char *path, void *ctx, struct sl_err *err)
{
	struct mending *m = ctx;
	(void)path;
	int rc = sl__bk_choose(&m->choice, &ref->id, NULL, err);
	if (rc != SL_ENOENT)
		return rc;
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

static int lose(struct mending *m, const char *id, const struct sl_err *why, struct sl_err *err)
{
	char name[SL_DRIVER_NAME_BYTES];
	(void)snprintf(name, sizeof name, "snapshots/%s", id);
	int rc = sl__bk_findings_add(&m->r->f, SL_BACKUP_FAULT_SNAPSHOT, false, name, id, NULL, why, err);
	if (rc == 0)
		rc = sl__bk_put_aside(m->r->b, name, err);
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
	char name[SL_DRIVER_NAME_BYTES];
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
	(void)snprintf(name, sizeof name, "snapshots/%s", id);
	return rc == 0 ? sl__bk_put_aside(m->r->b, name, err) : rc;
}

static int mend(struct mending *m, const char *id, char (*ids)[BK_NAME_HEX], size_t n, struct sl_err *err)
{
	struct bk_snapshot s = {.manifest = NULL};
	struct sl_err why = SL_ERR_INIT;
	int rc = sl__bk_snapshot_load(m->r->b, id, &s, &why);
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
	sl__free(&r->b->env, ids);
	sl__bk_walk_fini(&m.walk);
	sl__bk_choice_fini(&m.choice);
	sl__bk_view_fini(&m.view);
	return rc;
}
