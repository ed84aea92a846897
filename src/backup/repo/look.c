/* SPDX-License-Identifier: Apache-2.0 */
/* What is in a repository: list, resolve, statistics. */
#include <stdlib.h>

#include "backup/repo/repo.h"

#define PREFIX_MIN 4

struct loaded {
	struct bk_snapshot *all;
	size_t n;
};

static void fini_loaded(struct sl_backup *b, struct loaded *l)
{
	for (size_t i = 0; i < l->n; i++)
		sl__bk_snapshot_fini(&b->env, &l->all[i]);
	sl__free(&b->env, l->all);
}

static int compare_times(const void *a, const void *b)
{
	const struct bk_snapshot *x = a, *y = b;
	if (x->info.time_ms != y->info.time_ms)
		return x->info.time_ms < y->info.time_ms ? -1 : 1;
	return strcmp(x->info.id, y->info.id);
}

/* One snapshot without its manifest, at the end of *l; one that was forgotten meanwhile is left out. */
static int load_one(struct sl_backup *b, const char *id, struct loaded *l, sl_backup_damaged_fn *on_damaged, void *ctx,
		    struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	struct bk_snapshot *s = &l->all[l->n];
	int rc = sl__bk_check_stop(b, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_snapshot_load(b, id, s, &why);
	if (rc == 0) {
		sl__free(&b->env, s->manifest);
		s->manifest = NULL;
		s->manifest_n = 0;
		l->n++;
	}
	if (rc == 0 || rc == SL_ENOENT)
		return 0;
	if ((rc == SL_ECORRUPT || rc == SL_EUNSUPPORTED) && on_damaged != NULL)
		return on_damaged(id, &why, ctx);
	if (err != NULL)
		*err = why;
	return rc;
}

static int load_all(struct sl_backup *b, struct loaded *out, sl_backup_damaged_fn *on_damaged, void *ctx,
		    struct sl_err *err)
{
	char(*ids)[BK_NAME_HEX];
	size_t n;
	struct loaded l = {.n = 0};
	int rc = sl__bk_snapshot_ids(b, &ids, &n, err);
	if (rc != 0)
		return rc;
	l.all = sl__calloc(&b->env, n, sizeof(*l.all));
	if (l.all == NULL)
		rc = sl_err_set(err, SL_ENOMEM, "list snapshots: out of memory");
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = load_one(b, ids[i], &l, on_damaged, ctx, err);
	sl__free(&b->env, ids);
	if (rc != 0) {
		fini_loaded(b, &l);
		return rc;
	}
	if (l.n != 0)
		qsort(l.all, l.n, sizeof(*l.all), compare_times);
	*out = l;
	return 0;
}

int sl_backup_list(sl_backup *b, sl_backup_snapshot_fn *fn, sl_backup_damaged_fn *on_damaged, void *ctx,
		   struct sl_err *err)
{
	struct loaded l;
	int rc = sl__bk_begin(b, "list", err);
	if (rc == 0)
		rc = load_all(b, &l, on_damaged, ctx, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; rc == 0 && i < l.n; i++)
		rc = fn(&l.all[i].info, ctx);
	fini_loaded(b, &l);
	return rc;
}

/* An older one must not pass for the latest, and what cannot be read may have been it. */
static int resolve_latest(sl_backup *b, char id[SL_BACKUP_ID_BYTES], struct sl_err *err)
{
	struct loaded l;
	int rc = load_all(b, &l, NULL, NULL, err);
	if (rc == SL_ECORRUPT || rc == SL_EUNSUPPORTED)
		return sl_err_wrap(err, rc,
				   "which snapshot is the latest is not known: name it by its id, or run a repair");
	if (rc != 0)
		return sl_err_wrap(err, rc, "find the latest snapshot");
	if (l.n != 0)
		memcpy(id, l.all[l.n - 1].info.id, SL_BACKUP_ID_BYTES);
	else
		rc = sl_err_set(err, SL_ENOENT, "the repository has no snapshot");
	fini_loaded(b, &l);
	return rc;
}

static int resolve_prefix(sl_backup *b, const char *name, char id[SL_BACKUP_ID_BYTES], struct sl_err *err)
{
	char(*ids)[BK_NAME_HEX];
	size_t n, found = 0, at = 0;
	int rc = sl__bk_snapshot_ids(b, &ids, &n, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < n; i++) {
		if (strncmp(ids[i], name, strlen(name)) == 0) {
			found++;
			at = i;
		}
	}
	if (found == 1)
		memcpy(id, ids[at], SL_BACKUP_ID_BYTES);
	else if (found == 0)
		rc = sl_err_set(err, SL_ENOENT, "there is no snapshot %.64s", name);
	else
		rc = sl_err_set(err, SL_EINVAL, "%zu snapshots begin with %s: give more characters", found, name);
	sl__free(&b->env, ids);
	return rc;
}

int sl__bk_resolve(struct sl_backup *b, const char *name, char id[SL_BACKUP_ID_BYTES], struct sl_err *err)
{
	if (strcmp(name, "latest") == 0)
		return resolve_latest(b, id, err);
	size_t n = strlen(name);
	if (n < PREFIX_MIN || n >= SL_BACKUP_ID_BYTES || strspn(name, "0123456789abcdef") != n)
		return sl_err_set(err, SL_ENOENT,
				  "\"%.64s\" is no id of a snapshot: want %d to 32 hexadecimal digits, or latest", name,
				  PREFIX_MIN);
	return resolve_prefix(b, name, id, err);
}

int sl_backup_resolve(sl_backup *b, const char *name, char id[SL_BACKUP_ID_BYTES], struct sl_err *err)
{
	int rc = sl__bk_begin(b, "resolve", err);
	return rc == 0 ? sl__bk_resolve(b, name, id, err) : rc;
}

/* ---- statistics ---- */

static int count_one(SL_UNUSED const struct bk_session_info *info, void *ctx)
{
	++*(uint64_t *)ctx;
	return 0;
}

static int count_packs(sl_backup *b, struct sl_backup_stats *out, struct sl_err *err)
{
	struct bk_ids packs;
	struct bk_marks marks;
	uint64_t *sizes;
	int rc = sl__bk_list_packs(b, &packs, &sizes, NULL, NULL, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_marks_load(b, &marks, err);
	out->packs = packs.n;
	for (size_t i = 0; rc == 0 && i < packs.n; i++) {
		out->pack_bytes += sizes[i];
		out->condemned_packs += sl__bk_marks_have(&marks, &packs.ids[i]);
	}
	if (rc == 0)
		sl__bk_marks_fini(&b->env, &marks);
	sl__free(&b->env, sizes);
	sl__bk_ids_fini(&b->env, &packs);
	return rc;
}

static int count_blocks(sl_backup *b, struct sl_backup_stats *out, struct sl_err *err)
{
	struct bk_index *index;
	int rc = sl__bk_index_for_reading(b, &index, err);
	if (rc != 0)
		return rc;
	out->blocks = sl__bk_index_entries(index);
	for (size_t i = 0; i < sl__bk_index_files(index); i++)
		out->index_files += sl__bk_index_name(index, i)[0] != '\0';
	sl__bk_index_free(index);
	return 0;
}

int sl_backup_get_stats(sl_backup *b, struct sl_backup_stats *out, struct sl_err *err)
{
	struct sl_backup_stats s = {.encrypted = b->keys.encrypted};
	char(*ids)[BK_NAME_HEX];
	size_t n, size = out->struct_size;
	int rc = sl__bk_begin(b, "stats", err);
	if (rc == 0)
		rc = sl__bk_snapshot_ids(b, &ids, &n, err);
	if (rc != 0)
		return rc;
	sl__free(&b->env, ids);
	s.snapshots = n;
	sl__bk_hex(b->keys.repository, sizeof(b->keys.repository), s.id);
	rc = count_packs(b, &s, err);
	if (rc == 0)
		rc = count_blocks(b, &s, err);
	if (rc == 0)
		rc = sl__bk_sessions_each(b, count_one, &s.sessions, err);
	if (rc != 0)
		return rc;
	s.struct_size = size;
	memcpy(out, &s, SL_MIN(size, sizeof(s)));
	return 0;
}
