/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads of a restore. Each lane restores runs of files, with its own reader, folder and temporary name. One
 * flusher writes back while the lanes work.
 *
 * Why a flusher: the kernel waits until much is to be written or some seconds have passed, so that all writing would be
 * left to the sync at the end, while the processors are idle. The flusher syncs the file system whenever the lanes have
 * written FLUSH_BYTES more; then the last sync has little to do. A failed sync is reported once per descriptor, and its
 * data is lost: it ends the restore.
 */
#include "backup/restore/restore.h"

#define FLUSH_BYTES (96u << 20)
#define BLOCK_BYTES 4096u /* what a small file costs in addition to its contents */

struct lane {
	struct bk_restore *r;
	int number;
	struct bk_reader *blocks;
	struct bk_folder folder;
	struct bk_comparer comparer;
};

/* ---- the flusher ---- */

static void flush_loop(SL_UNUSED unsigned index, void *ctx)
{
	struct bk_restore *r = ctx;
	struct sl_err err = SL_ERR_INIT;
	int rc = 0;
	sl__lock(&r->mu);
	while (rc == 0 && r->failed.code == 0) {
		if (r->unflushed < FLUSH_BYTES) {
			if (r->flushed_all)
				break;
			(void)sl__wait(r->env, &r->written, &r->mu, SL_FOREVER);
			continue;
		}
		r->unflushed = 0;
		sl__unlock(&r->mu);
		rc = sl__bk_target_flush(&r->target, &err);
		sl__lock(&r->mu);
	}
	sl__unlock(&r->mu);
	if (rc != 0)
		sl__bk_restore_fail(r, rc, &err);
}

static void end_flush_loop(void *ctx)
{
	struct bk_restore *r = ctx;
	sl__lock(&r->mu);
	r->flushed_all = true;
	sl__signal(&r->written);
	sl__unlock(&r->mu);
}

int sl__bk_flusher_start(struct bk_restore *r, struct sl_err *err)
{
	return sl__pool_start(&r->flusher, r->env, "sl-restore-sync", 1, flush_loop, end_flush_loop, r, err);
}

/* ---- one file ---- */

struct file_writing {
	struct lane *l;
	struct bk_file file;
	struct bk_cursor at;
	bool write_failed; /* what failed was a write, not a read */
	struct sl_err *err;
};

static int write_block(const struct bk_ref *ref, void *ctx)
{
	struct file_writing *w = ctx;
	struct bk_restore *r = w->l->r;
	const uint8_t *bytes;
	size_t len = ref->len;
	int rc = sl__bk_check_stop(r->b, w->err);
	if (rc == 0)
		rc = sl__bk_read_block(w->l->blocks, &ref->id, ref->len, &bytes, w->err);
	if (rc != 0)
		return rc;
	while (len > 0) {
		rc = sl__bk_cursor_next(&w->at, w->err);
		if (rc != 0)
			return rc;
		size_t n = (size_t)SL_MIN(w->at.left, (uint64_t)len);
		rc = sl__bk_file_write(&w->file, bytes, n, w->at.offset, w->err);
		if (rc != 0) {
			w->write_failed = true;
			return rc;
		}
		bytes += n;
		len -= n;
		w->at.offset += n;
		w->at.left -= n;
	}
	sl__lock(&r->mu);
	r->unflushed += BLOCK_BYTES + ref->len;
	if (r->unflushed >= FLUSH_BYTES)
		sl__signal(&r->written);
	sl__unlock(&r->mu);
	sl__lock(&r->b->mu);
	r->b->progress.bytes += ref->len;
	sl__unlock(&r->b->mu);
	return 0;
}

/* What the repository has of this file is damaged; other files may be intact. */
static bool is_damage(int code)
{
	return code == SL_ECORRUPT || code == SL_ENOENT || code == SL_EDATA || code == SL_ETOOBIG || code == SL_EIO;
}

static int restore_file(struct lane *l, const struct bk_placing *p, bool *damaged, struct sl_err *err)
{
	struct file_writing w = {.l = l, .file = {.fd = -1}, .err = err};
	int rc = sl__bk_file_begin(&w.file, p, err);
	if (rc != 0)
		return rc;
	sl__bk_cursor_init(&w.at, p->e);
	rc = sl__bk_entry_refs(l->blocks, p->e, write_block, &w, err);
	if (rc == 0)
		rc = sl__bk_cursor_end(&w.at, err);
	if (rc == 0)
		return sl__bk_file_keep(&w.file, err);
	sl__bk_file_drop(&w.file);
	*damaged = !w.write_failed && is_damage(rc);
	return *damaged ? sl_err_wrap(err, rc, "%.100s", p->e->path) : rc;
}

/* Overwriting means that the snapshot's files are wanted, not those that only look like them. */
static int compare_existing(struct lane *l, struct bk_placing *p, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	bool same;
	int rc = sl__bk_target_compare(&l->comparer, p, l->blocks, &same, &why);
	if (rc != 0 && !is_damage(rc)) {
		*err = why;
		return rc;
	}
	if (rc != 0 || !same) /* damage in the repository is reported when the file is restored */
		p->there = BK_THERE_REPLACE;
	return 0;
}

static int place_entry(struct lane *l, const struct bk_entry *e, bool *damaged, struct sl_err *err)
{
	struct bk_target *t = &l->r->target;
	size_t parent = sl__bk_path_parent(e->path, e->path_len);
	struct bk_placing p = {.folder = &l->folder,
			       .e = e,
			       .name = e->path + (parent > 0 ? parent + 1 : 0),
			       .lane = l->number,
			       .there = BK_THERE_NOT}; /* what another process creates there is not replaced */
	int rc = sl__bk_folder_enter(&l->folder, e->path, parent, err);
	if (rc == 0 && !t->fresh)
		rc = sl__bk_target_find(&p, err);
	if (rc == 0 && p.there == BK_THERE_SAME && e->type == SL_BACKUP_FILE && t->overwrite)
		rc = compare_existing(l, &p, err);
	if (rc != 0)
		return rc;
	if (p.there == BK_THERE_SAME) {
		sl__bk_restore_count(l->r, e, true);
		return 0;
	}
	bool device = e->type == SL_BACKUP_CHAR || e->type == SL_BACKUP_BLOCK;
	if (device && !t->devices) {
		struct sl_err why = SL_ERR_INIT;
		(void)sl_err_set(&why, SL_EACCES, "%.150s: this process may not create devices", e->path);
		if (!t->devices_asked)
			sl__bk_restore_report(l->r, SL_BACKUP_SKIPPED, e->path, &why);
		return 0;
	}
	rc = e->type == SL_BACKUP_FILE ? restore_file(l, &p, damaged, err) : sl__bk_target_node(&p, err);
	if (rc == 0)
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
	rc = place_entry(l, e, &damaged, &why);
	if (rc == 0)
		return 0;
	if (damaged || sl__bk_restore_is_of_file(&why))
		return sl__bk_restore_leave_out(l->r, e, &why, damaged, err);
	*err = why;
	return rc;
}

/* ---- the lane ---- */

static int restore_runs(struct lane *l, struct sl_err *err)
{
	struct sl__queue_item item;
	size_t n;
	int rc = sl__bk_reader_new(&l->blocks, l->r->b, l->r->index, err);
	while (rc == 0) {
		int popped = sl__queue_pop(l->r->queue, &item, 1, 0, SL_UNLIMITED, &n);
		if (popped == SL_ECLOSED)
			return 0;
		if (popped != 0) /* interrupted */
			continue;
		struct bk_run *run = item.ptr;
		for (size_t i = 0; i < run->n && rc == 0 && !sl__bk_restore_failed(l->r); i++)
			rc = restore_entry(l, run->entries[i], err);
		sl__bk_run_free(l->r->env, run);
	}
	return rc;
}

void sl__bk_restore_lane(unsigned number, void *ctx)
{
	struct bk_restore *r = ctx;
	struct lane l = {.r = r, .number = (int)number, .comparer.b = r->b};
	struct sl_err err = SL_ERR_INIT;
	sl__bk_folder_init(&l.folder, &r->target);
	int rc = restore_runs(&l, &err);
	if (rc != 0)
		sl__bk_restore_fail(r, rc, &err);
	sl__bk_comparer_fini(&l.comparer);
	sl__bk_folder_fini(&l.folder);
	sl__bk_reader_free(l.blocks);
}
