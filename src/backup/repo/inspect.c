/* SPDX-License-Identifier: Apache-2.0 */
/* What is in a repository: listing snapshots, resolving names, statistics. */
#include <stdlib.h>

#include "backup/repo/repo.h"

#define PREFIX_MIN 4

struct loaded_snapshots {
	struct bk_snapshot *all;
	size_t n;
};

static void free_loaded(struct sl_backup *b, struct loaded_snapshots *l)
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

/* All snapshots without their manifests, oldest first. One that was forgotten meanwhile is left out. on_damaged (may be
 * NULL) is called with ctx. */
static int load_snapshots(struct sl_backup *b, sl_backup_damaged_fn *on_damaged, void *ctx,
			  struct loaded_snapshots *out, struct sl_err *err)
{
	char(*ids)[BK_NAME_HEX];
	size_t n;
	struct loaded_snapshots l = {.n = 0};
	int rc = sl__bk_snapshot_ids(b, &ids, &n, err);
	if (rc != 0)
		return rc;
	l.all = sl__calloc(&b->env, n, sizeof(*l.all));
	if (l.all == NULL)
		rc = sl_err_set(err, SL_ENOMEM, "list snapshots: out of memory");
	for (size_t i = 0; rc == 0 && i < n; i++) {
		struct sl_err why = SL_ERR_INIT;
		struct bk_snapshot *s = &l.all[l.n];
		rc = sl__bk_check_stop(b, err);
		if (rc != 0)
			break;
		rc = sl__bk_snapshot_load(b, ids[i], s, &why);
		if (rc == 0) {
			sl__free(&b->env, s->manifest);
			s->manifest = NULL;
			s->n_manifest = 0;
			l.n++;
		} else if (rc == SL_ENOENT) {
			rc = 0;
		} else if ((rc == SL_ECORRUPT || rc == SL_EUNSUPPORTED) && on_damaged != NULL) {
			rc = on_damaged(ids[i], &why, ctx);
		} else if (err != NULL) {
			*err = why;
		}
	}
	sl__free(&b->env, ids);
	if (rc != 0) {
		free_loaded(b, &l);
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
	struct loaded_snapshots l;
	int rc = sl__bk_begin(b, "list", err);
	if (rc == 0)
		rc = load_snapshots(b, on_damaged, ctx, &l, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; rc == 0 && i < l.n; i++)
		rc = fn(&l.all[i].info, ctx);
	free_loaded(b, &l);
	return rc;
}

int sl__bk_resolve(struct sl_backup *b, const char *name, char id[SL_BACKUP_ID_BYTES], struct sl_err *err)
{
	char(*ids)[BK_NAME_HEX];
	size_t n, found = 0, at = 0, len = strlen(name);
	if (strcmp(name, "latest") == 0) {
		/* An older snapshot must not be taken for the latest, and one that cannot be read may be it. */
		struct loaded_snapshots l;
		int rc = load_snapshots(b, NULL, NULL, &l, err);
		if (rc == SL_ECORRUPT || rc == SL_EUNSUPPORTED)
			return sl_err_wrap(err, rc,
					   "the latest snapshot is not known: name it by its id, or run a repair");
		if (rc != 0)
			return sl_err_wrap(err, rc, "find the latest snapshot");
		if (l.n != 0)
			memcpy(id, l.all[l.n - 1].info.id, SL_BACKUP_ID_BYTES);
		else
			rc = sl_err_set(err, SL_ENOENT, "the repository has no snapshot");
		free_loaded(b, &l);
		return rc;
	}
	if (len < PREFIX_MIN || len >= SL_BACKUP_ID_BYTES || strspn(name, "0123456789abcdef") != len)
		return sl_err_set(err, SL_ENOENT,
				  "invalid snapshot id \"%.64s\"; give %d to 32 hexadecimal digits, or latest", name,
				  PREFIX_MIN);
	int rc = sl__bk_snapshot_ids(b, &ids, &n, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < n; i++) {
		if (strncmp(ids[i], name, len) == 0) {
			found++;
			at = i;
		}
	}
	if (found == 1)
		memcpy(id, ids[at], SL_BACKUP_ID_BYTES);
	else if (found == 0)
		rc = sl_err_set(err, SL_ENOENT, "no snapshot %.64s", name);
	else
		rc = sl_err_set(err, SL_EINVAL, "%zu snapshots begin with %s: give more characters", found, name);
	sl__free(&b->env, ids);
	return rc;
}

int sl_backup_resolve(sl_backup *b, const char *name, char id[SL_BACKUP_ID_BYTES], struct sl_err *err)
{
	int rc = sl__bk_begin(b, "resolve", err);
	if (rc != 0)
		return rc;
	return sl__bk_resolve(b, name, id, err);
}

/* ---- statistics ---- */

static int count_session(SL_UNUSED const struct bk_session_info *info, void *ctx)
{
	++*(uint64_t *)ctx;
	return 0;
}

int sl_backup_get_stats(sl_backup *b, struct sl_backup_stats *out, struct sl_err *err)
{
	struct sl_backup_stats s = {.encrypted = b->keys.encrypted};
	char(*ids)[BK_NAME_HEX];
	size_t n;
	struct bk_index *index;
	struct bk_ids packs;
	struct bk_marks marks = {.n = 0};
	uint64_t *sizes;
	int rc = sl__bk_begin(b, "stats", err);
	if (rc == 0)
		rc = sl__bk_snapshot_ids(b, &ids, &n, err);
	if (rc != 0)
		return rc;
	sl__free(&b->env, ids);
	s.snapshots = n;
	sl__bk_hex(b->keys.repository, sizeof(b->keys.repository), s.id);

	/* Packs, and those that are marked. */
	rc = sl__bk_list_packs(b, &packs, &sizes, NULL, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_marks_load(b, &marks, err);
	s.packs = packs.n;
	for (size_t i = 0; rc == 0 && i < packs.n; i++) {
		s.pack_bytes += sizes[i];
		s.marked_packs += sl__bk_marks_have(&marks, &packs.ids[i]);
	}
	sl__bk_marks_fini(&b->env, &marks);
	sl__free(&b->env, sizes);
	sl__bk_ids_fini(&b->env, &packs);

	/* The index and the sessions. */
	if (rc == 0)
		rc = sl__bk_index_for_reading(b, &index, err);
	if (rc != 0)
		return rc;
	s.blocks = sl__bk_index_entries(index);
	for (size_t i = 0; i < sl__bk_index_files(index); i++)
		s.index_files += sl__bk_index_name(index, i)[0] != '\0';
	sl__bk_index_free(index);
	rc = sl__bk_sessions_each(b, count_session, &s.sessions, err);
	if (rc == 0)
		sl__result_copy(out, &s, sizeof(s));
	return rc;
}
