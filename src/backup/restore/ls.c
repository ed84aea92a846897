/* SPDX-License-Identifier: Apache-2.0 */
/* sl_backup_ls: the entries of a snapshot, as a caller sees them. */
#include "backup/restore/select.h"
#include "backup/restore/view.h"

static struct sl_backup_entry public_entry(const struct bk_entry *e)
{
	return (struct sl_backup_entry){.struct_size = sizeof(struct sl_backup_entry),
					.type = e->type,
					.path = e->path,
					.mode = e->mode,
					.uid = e->uid,
					.gid = e->gid,
					.mtime_s = e->mtime.tv_sec,
					.mtime_ns = (uint32_t)e->mtime.tv_nsec,
					.size = e->size,
					.target = e->target,
					.rdev = e->rdev,
					.xattrs = (uint32_t)e->xattrs_n};
}

static int list_entries(struct bk_view *l, struct bk_select *select, sl_backup_entry_fn *fn, void *ctx,
			struct sl_err *err)
{
	struct bk_entry e;
	int rc;
	while ((rc = sl__bk_view_next(l, &e, err)) == 1) {
		if (sl__bk_select(select, e.path, e.path_len) != BK_IS_SELECTED) {
			if (select->paths[0].met) /* entries are in order: nothing more can come */
				return 0;
			continue;
		}
		struct sl_backup_entry entry = public_entry(&e);
		rc = fn(&entry, ctx);
		if (rc != 0)
			return rc;
	}
	return rc < 0 ? rc : sl__bk_select_all_met(select, l->snapshot.info.id, err);
}

int sl_backup_ls(sl_backup *b, const char *snapshot, const char *below, sl_backup_entry_fn *fn, void *ctx,
		 struct sl_err *err)
{
	struct bk_view l;
	struct bk_select select;
	if (b == NULL || snapshot == NULL || fn == NULL)
		return sl_err_set(err, SL_EINVAL, "ls: no handle, snapshot or callback");
	int rc = sl__bk_select_init(&select, &b->env, &below, below != NULL ? 1 : 0, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_view_open(&l, b, snapshot, "ls", err);
	if (rc == 0)
		rc = list_entries(&l, &select, fn, ctx, err);
	sl__bk_view_close(&l);
	sl__bk_select_fini(&select);
	return rc;
}
