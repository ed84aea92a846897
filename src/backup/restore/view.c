/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/restore/view.h"

int sl__bk_view_open(struct bk_view *l, struct sl_backup *b, const char *snapshot, const char *phase,
		     struct sl_err *err)
{
	char id[SL_BACKUP_ID_BYTES];
	*l = (struct bk_view){.b = b};
	int rc = sl__bk_begin(b, phase, err);
	if (rc == 0)
		rc = sl__bk_resolve(b, snapshot, id, err);
	if (rc == 0)
		rc = sl__bk_snapshot_load(b, id, &l->snapshot, err);
	if (rc == 0)
		rc = sl__bk_index_for_reading(b, &l->index, err);
	if (rc == 0)
		rc = sl__bk_reader_new(&l->reader, b, l->index, err);
	if (rc == 0)
		rc = sl__bk_manifest_reader_new(&l->entries, b, &l->snapshot, l->reader, err);
	return rc;
}

void sl__bk_view_close(struct bk_view *l)
{
	sl__bk_manifest_reader_free(l->entries);
	sl__bk_reader_free(l->reader);
	sl__bk_index_free(l->index);
	sl__bk_snapshot_fini(&l->b->env, &l->snapshot);
}

int sl__bk_view_next(struct bk_view *l, struct bk_entry *e, struct sl_err *err)
{
	int rc = sl__bk_check_stop(l->b, err);
	return rc == 0 ? sl__bk_manifest_next(l->entries, e, err) : rc;
}

int sl__bk_view_find(struct bk_view *l, const char *path, size_t len, struct bk_entry *e, struct sl_err *err)
{
	sl__bk_manifest_reader_free(l->entries);
	l->entries = NULL;
	int rc = sl__bk_manifest_reader_new(&l->entries, l->b, &l->snapshot, l->reader, err);
	if (rc != 0)
		return rc;
	while ((rc = sl__bk_view_next(l, e, err)) == 1) {
		int order = sl__bk_path_compare(e->path, e->path_len, path, len);
		if (order == 0)
			return 0;
		if (order > 0)
			rc = 0;
		if (rc == 0)
			break;
	}
	if (rc < 0)
		return rc;
	return sl_err_set(err, SL_ENOENT, "the snapshot %s has no %.150s", l->snapshot.info.id, path);
}
