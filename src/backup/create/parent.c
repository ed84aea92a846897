/* SPDX-License-Identifier: Apache-2.0 */
/* The previous snapshot of a create (create.h): which one it is, its entries in order, and what has not changed. */
#include "backup/create/create.h"
#include "backup/helpers.h"

/* A device may have another number after a restart, but then for all its files. */
struct device {
	uint64_t then, now;
};
enum { DEVICES = 64 };

struct bk_parent {
	struct sl_backup *b;
	struct bk_snapshot snapshot;
	struct bk_reader *reader;
	struct bk_manifest_reader *manifest;
	struct bk_entry e; /* the next one that was not asked for */
	bool have, ended;
	struct device devices[DEVICES];
	size_t n_devices;
};

/* ---- which one ---- */

static bool has_paths(const struct sl_backup_snapshot *s, const struct bk_roots *roots)
{
	if (s->n_paths != roots->n)
		return false;
	for (size_t i = 0; i < roots->n; i++)
		if (s->paths[i][0] != '/' || strcmp(s->paths[i] + 1, roots->roots[i].path) != 0)
			return false;
	return true;
}

/* The newest of this host with these paths. One that cannot be read is skipped: check reports it. */
static int find_newest(struct bk_create *c, struct bk_snapshot *out, bool *found, struct sl_err *err)
{
	struct sl_backup *b = c->b;
	char(*ids)[BK_NAME_HEX] = NULL;
	size_t n = 0;
	int rc = sl__bk_snapshot_ids(b, &ids, &n, err);
	for (size_t i = 0; rc == 0 && i < n; i++) {
		struct bk_snapshot s = {0};
		rc = sl__bk_check_stop(b, err);
		if (rc != 0)
			break;
		rc = sl__bk_snapshot_load(b, ids[i], &s, err);
		if (rc == SL_ENOENT || rc == SL_ECORRUPT || rc == SL_EUNSUPPORTED) {
			rc = 0;
			continue;
		}
		if (rc != 0)
			break;
		bool better = strcmp(s.info.host, c->host) == 0 && has_paths(&s.info, &c->roots) &&
			      (!*found || s.info.time_ms >= out->info.time_ms);
		if (better && *found)
			sl__bk_snapshot_fini(&b->env, out);
		if (better)
			*out = s;
		else
			sl__bk_snapshot_fini(&b->env, &s);
		*found |= better;
	}
	sl__free(&b->env, ids);
	if (rc != 0 && *found)
		sl__bk_snapshot_fini(&b->env, out);
	return rc;
}

int sl__bk_parent_open(struct bk_parent **out, struct bk_create *c, struct sl_err *err)
{
	struct sl_backup *b = c->b;
	struct bk_snapshot snapshot = {0};
	bool found = c->o.parent != NULL;
	int rc;
	*out = NULL;
	if (found) {
		char id[SL_BACKUP_ID_BYTES];
		rc = sl__bk_resolve(b, c->o.parent, id, err);
		if (rc == 0)
			rc = sl__bk_snapshot_load(b, id, &snapshot, err);
	} else {
		rc = find_newest(c, &snapshot, &found, err);
	}
	if (rc != 0 || !found)
		return rc;
	struct bk_parent *p = sl__calloc(&b->env, 1, sizeof(*p));
	if (p == NULL) {
		sl__bk_snapshot_fini(&b->env, &snapshot);
		return sl__no_memory(err, "open the parent snapshot");
	}
	p->b = b;
	p->snapshot = snapshot;
	rc = sl__bk_reader_new(&p->reader, b, c->index, err);
	if (rc == 0)
		rc = sl__bk_manifest_reader_new(&p->manifest, b, &p->snapshot, p->reader, err);
	if (rc != 0)
		sl__bk_parent_close(p);
	else
		*out = p;
	return rc;
}

void sl__bk_parent_close(struct bk_parent *p)
{
	if (p == NULL)
		return;
	sl__bk_manifest_reader_free(p->manifest);
	sl__bk_reader_free(p->reader);
	sl__bk_snapshot_fini(&p->b->env, &p->snapshot);
	sl__free(&p->b->env, p);
}

const struct sl_backup_snapshot *sl__bk_parent_info(const struct bk_parent *p)
{
	return &p->snapshot.info;
}

/* ---- its entries ---- */

int sl__bk_parent_find(struct bk_parent *p, const char *path, size_t len, const struct bk_entry **out,
		       struct sl_err *err)
{
	*out = NULL;
	while (!p->ended) {
		int order = p->have ? sl__bk_path_compare(p->e.path, p->e.path_len, path, len) : -1;
		if (order == 0)
			*out = &p->e;
		if (order >= 0)
			return 0;
		/* On to the next entry. */
		struct sl_err why = SL_ERR_INIT;
		int rc = sl__bk_manifest_next(p->manifest, &p->e, &why);
		p->have = rc == 1;
		p->ended = rc != 1;
		if (rc >= 0)
			continue;
		if (rc != SL_ENOENT && rc != SL_ECORRUPT) {
			return sl__bk_result(rc, &why, err);
		}
		sl__log(&p->b->env, SL_LOG_WARN, "backup",
			"cannot read the rest of the parent snapshot; reading the remaining files from the tree",
			SL__F_STR("error", why.msg));
	}
	return 0;
}

bool sl__bk_parent_same(struct bk_parent *p, const struct bk_entry *e, const struct stat *st)
{
	if ((e->flags & (BK_ENTRY_CHANGED | BK_ENTRY_FRESH)) != 0 || sl__bk_type_of(st->st_mode) != e->type)
		return false;
	/* The copy of a database has another size than the database. */
	bool size = e->type != SL_BACKUP_FILE || (e->flags & BK_ENTRY_SQLITE) != 0 || e->size == (uint64_t)st->st_size;
	if (!size || e->ino != st->st_ino || !sl__bk_same_time(e->ctime, st->st_ctim) ||
	    !sl__bk_same_time(e->mtime, st->st_mtim))
		return false;

	/* Is it the device that it was then? */
	for (size_t i = 0; i < p->n_devices; i++)
		if (p->devices[i].then == e->dev || p->devices[i].now == st->st_dev)
			return p->devices[i].then == e->dev && p->devices[i].now == st->st_dev;
	if (p->n_devices == DEVICES)
		return e->dev == st->st_dev;
	p->devices[p->n_devices++] = (struct device){e->dev, st->st_dev};
	return true;
}
