/* SPDX-License-Identifier: Apache-2.0 */
/* A lane: a thread that restores runs of files, with a reader, a folder and a temporary name of its own. */
#include "backup/restore/restore.h"

struct lane {
	struct bk_restore *r;
	int number;
	struct bk_reader *blocks;
	struct bk_folder folder;
	struct bk_comparer comparer;
};

/* The contents of one file on their way into it. */
struct writing {
	struct lane *l;
	const struct bk_entry *e;
	struct bk_file file;
	uint64_t offset; /* of the next byte in the file */
	uint64_t left;   /* bytes that may come there: of the extent, or of the file */
	size_t extent;   /* the next one */
	bool of_target;  /* what failed was to write, not to read */
	struct sl_err *err;
};

static int disagrees(const struct writing *w)
{
	return sl_err_set(w->err, SL_ECORRUPT, "%.150s: its blocks and its size do not agree", w->e->path);
}

static int next_extent(struct writing *w)
{
	const struct bk_entry *e = w->e;
	while (w->left == 0) {
		if (w->extent >= e->extents_n)
			return disagrees(w);
		const struct bk_extent *x = &e->extents[w->extent++];
		if (x->offset < w->offset || x->offset > e->size || x->length > e->size - x->offset)
			return disagrees(w);
		w->offset = x->offset;
		w->left = x->length;
	}
	return 0;
}

static int write_bytes(struct writing *w, const uint8_t *bytes, size_t len)
{
	while (len > 0) {
		int rc = w->left == 0 ? next_extent(w) : 0;
		if (rc != 0)
			return rc;
		size_t n = (size_t)SL_MIN(w->left, (uint64_t)len);
		rc = sl__bk_file_write(&w->file, w->e, bytes, n, w->offset, w->err);
		w->of_target = rc != 0;
		if (rc != 0)
			return rc;
		bytes += n;
		len -= n;
		w->offset += n;
		w->left -= n;
	}
	return 0;
}

static int write_block(const struct bk_ref *ref, void *ctx)
{
	struct writing *w = ctx;
	struct sl_backup *b = w->l->r->b;
	const uint8_t *bytes;
	int rc = sl__bk_check_stop(b, w->err);
	if (rc == 0)
		rc = sl__bk_read_block(w->l->blocks, &ref->id, ref->len, &bytes, w->err);
	if (rc == 0)
		rc = write_bytes(w, bytes, ref->len);
	if (rc != 0)
		return rc;
	sl__bk_flush_wrote(w->l->r, ref->len);
	sl__lock(&b->mu);
	b->progress.bytes += ref->len;
	sl__unlock(&b->mu);
	return 0;
}

static int write_contents(struct writing *w)
{
	const struct bk_entry *e = w->e;
	bool sparse = (e->flags & BK_ENTRY_SPARSE) != 0;
	w->left = sparse ? 0 : e->size;
	int rc = sl__bk_entry_refs(w->l->blocks, e, write_block, w, w->err);
	if (rc != 0)
		return rc;
	return w->left == 0 && (!sparse || w->extent == e->extents_n) ? 0 : disagrees(w);
}

/* What the repository has of a file is no good; the others are. */
static bool is_damage(int code)
{
	return code == SL_ECORRUPT || code == SL_ENOENT || code == SL_EDATA || code == SL_ETOOBIG || code == SL_EIO;
}

static int restore_file(struct lane *l, const struct bk_entry *e, const char *name, enum bk_there there, bool *damaged,
			struct sl_err *err)
{
	struct writing w = {.l = l, .e = e, .file = {.fd = -1}, .err = err};
	int rc = sl__bk_file_begin(&w.file, &l->folder, l->number, e, name, err);
	if (rc != 0)
		return rc;
	rc = write_contents(&w);
	if (rc == 0)
		return sl__bk_file_keep(&w.file, e, there, sl__bk_restore_not_set, l->r, err);
	sl__bk_file_drop(&w.file);
	*damaged = !w.of_target && is_damage(rc);
	return *damaged ? sl_err_wrap(err, rc, "%.100s", e->path) : rc;
}

static int restore_node(struct lane *l, const struct bk_entry *e, const char *name, enum bk_there there, bool *made,
			struct sl_err *err)
{
	const struct bk_target *t = &l->r->target;
	bool device = e->type == SL_BACKUP_CHAR || e->type == SL_BACKUP_BLOCK;
	*made = !device || t->devices;
	if (*made)
		return sl__bk_target_node(&l->folder, l->number, e, name, there, sl__bk_restore_not_set, l->r, err);
	if (!t->devices_asked) {
		struct sl_err why = SL_ERR_INIT;
		(void)sl_err_set(&why, SL_EACCES, "%.150s: this process may not make devices", e->path);
		sl__bk_restore_tell(l->r, SL_BACKUP_SKIPPED, e->path, &why);
	}
	return 0;
}

/* Who asks to overwrite wants the snapshot's files, and not those that only look like them. */
static int look_into(struct lane *l, const struct bk_entry *e, const char *name, enum bk_there *there,
		     struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	bool same;
	if (*there != BK_THERE_SAME || e->type != SL_BACKUP_FILE || !l->r->target.overwrite)
		return 0;
	int rc = sl__bk_target_compare(&l->comparer, &l->folder, name, e, l->blocks, &same, &why);
	if (rc != 0 && !is_damage(rc)) {
		*err = why;
		return rc;
	}
	if (rc != 0 || !same) /* what is damaged of it in the repository, restoring it will tell */
		*there = BK_THERE_REPLACE;
	return 0;
}

static int restore_there(struct lane *l, const struct bk_entry *e, bool *damaged, struct sl_err *err)
{
	size_t parent = sl__bk_path_parent(e->path, e->path_len);
	const char *name = e->path + (parent > 0 ? parent + 1 : 0);
	enum bk_there there = BK_THERE_NOT; /* what somebody else puts there meanwhile is not replaced */
	bool made = true;
	int rc = sl__bk_folder_enter(&l->folder, e->path, parent, err);
	if (rc == 0 && !l->folder.target->fresh)
		rc = sl__bk_target_look(&l->folder, name, e, &there, err);
	if (rc == 0)
		rc = look_into(l, e, name, &there, err);
	if (rc == 0 && there == BK_THERE_SAME) {
		sl__bk_restore_count(l->r, e, true);
		return 0;
	}
	if (rc == 0)
		rc = e->type == SL_BACKUP_FILE ? restore_file(l, e, name, there, damaged, err)
					       : restore_node(l, e, name, there, &made, err);
	if (rc == 0 && made)
		sl__bk_restore_count(l->r, e, false);
	return rc;
}

/* 0 also when the file was left out. */
static int restore_entry(struct lane *l, const struct bk_entry *e, struct sl_err *err)
{
	bool damaged = false;
	struct sl_err why = SL_ERR_INIT;
	int rc = sl__bk_check_stop(l->r->b, err);
	if (rc != 0)
		return rc;
	rc = restore_there(l, e, &damaged, &why);
	if (rc == 0)
		return 0;
	if (damaged || sl__bk_restore_is_of_file(&why))
		return sl__bk_restore_leave_out(l->r, e, &why, damaged, err);
	*err = why;
	return rc;
}

static int restore_run(struct lane *l, const struct bk_run *run, struct sl_err *err)
{
	int rc = 0;
	for (size_t i = 0; i < run->n && rc == 0 && !sl__bk_restore_failed(l->r); i++)
		rc = restore_entry(l, run->entries[i], err);
	return rc;
}

static int run_lane(struct lane *l, struct sl_err *err)
{
	struct sl__queue_item item;
	size_t n;
	int rc = sl__bk_reader_new(&l->blocks, l->r->b, l->r->index, err);
	while (rc == 0) {
		rc = sl__queue_pop(l->r->queue, &item, 1, 0, SL_UNLIMITED, &n);
		if (rc == SL_ECLOSED)
			return 0;
		if (rc != 0) {
			rc = 0; /* interrupted */
			continue;
		}
		rc = restore_run(l, item.ptr, err);
		sl__bk_run_free(l->r->env, item.ptr);
	}
	return rc;
}

void sl__bk_restore_lane(unsigned number, void *ctx)
{
	struct lane l = {.r = ctx, .number = (int)number};
	l.comparer.b = l.r->b;
	struct sl_err err = SL_ERR_INIT;
	sl__bk_folder_init(&l.folder, &l.r->target);
	int rc = run_lane(&l, &err);
	if (rc != 0)
		(void)sl__bk_restore_fail(l.r, rc, &err);
	sl__bk_comparer_fini(&l.comparer);
	sl__bk_folder_fini(&l.folder);
	sl__bk_reader_free(l.blocks);
}
