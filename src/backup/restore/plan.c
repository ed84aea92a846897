/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan and the threads that work on it.
 *
 * The plan: folders are created in the order of the manifest, before any file in them is queued; files go to the lanes
 * in runs. A run is cut where a frame ends, so that no two lanes open the same frame, and in any case when it is long.
 *
 * Each lane restores runs of files, with its own reader, folder and temporary name. One flusher writes back while the
 * lanes work.
 *
 * Why a flusher: the kernel waits until much is to be written or some seconds have passed, so that all writing would be
 * left to the sync at the end, while the processors are idle. The flusher syncs the file system whenever the lanes have
 * written FLUSH_BYTES more; then the last sync has little to do. A failed sync is reported once per descriptor, and its
 * data is lost: it ends the restore.
 */
#include "backup/helpers.h"
#include "backup/restore/restore.h"

#define RUN_BYTES (4u << 20)      /* of contents; then a run ends with its frame */
#define RUN_BYTES_MAX (16u << 20) /* … and here in any case */
#define RUN_FILES_MAX 2048u
#define RUN_MEMORY_MAX (1u << 20) /* of entries */
#define RUNS_PER_LANE 2u          /* in the queue */
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
	if (rc != 0)
		return rc;
	if (p.there == BK_THERE_SAME && e->type == SL_BACKUP_FILE && t->overwrite) {
		/* Overwriting means that the snapshot's files are wanted, not those that only look like them. */
		struct sl_err why = SL_ERR_INIT;
		bool same = false;
		rc = sl__bk_target_compare(&l->comparer, &p, l->blocks, &same, &why);
		if (rc != 0 && !is_damage(rc)) {
			*err = why;
			return rc;
		}
		if (rc != 0 || !same) /* damage in the repository is reported when the file is restored */
			p.there = BK_THERE_REPLACE;
	}
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

/* ---- the lane ---- */

static void restore_runs(unsigned number, void *ctx)
{
	struct bk_restore *r = ctx;
	struct lane l = {.r = r, .number = (int)number, .comparer.b = r->b};
	struct sl_err err = SL_ERR_INIT;
	struct sl__queue_item item;
	size_t n;
	sl__bk_folder_init(&l.folder, &r->target);
	int rc = sl__bk_reader_new(&l.blocks, r->b, r->index, &err);
	while (rc == 0) {
		int popped = sl__queue_pop(r->queue, &item, 1, 0, SL_UNLIMITED, &n);
		if (popped == SL_ECLOSED)
			break;
		if (popped != 0) /* interrupted */
			continue;
		struct bk_run *run = item.ptr;
		for (size_t i = 0; i < run->n && rc == 0 && !sl__bk_restore_failed(r); i++) {
			const struct bk_entry *e = run->entries[i];
			struct sl_err why = SL_ERR_INIT;
			bool damaged = false;
			rc = sl__bk_check_stop(r->b, &err);
			if (rc != 0)
				break;
			rc = place_entry(&l, e, &damaged, &why);
			if (rc != 0 && (damaged || sl__bk_restore_is_of_file(&why)))
				rc = sl__bk_restore_leave_out(r, e, &why, damaged, &err);
			else if (rc != 0)
				err = why;
		}
		sl__bk_run_free(r->env, run);
	}
	if (rc != 0)
		sl__bk_restore_fail(r, rc, &err);
	sl__bk_comparer_fini(&l.comparer);
	sl__bk_folder_fini(&l.folder);
	sl__bk_reader_free(l.blocks);
}

/* ---- the plan ---- */

void sl__bk_run_free(const struct sl_env *env, struct bk_run *run)
{
	if (run == NULL)
		return;
	for (size_t i = 0; i < run->n; i++)
		sl__free(env, run->entries[i]);
	sl__free(env, run->entries);
	sl__free(env, run);
}

static int queue_restore_run(struct bk_restore *r, struct sl_err *err)
{
	struct bk_run *run = r->run;
	if (run == NULL || run->n == 0)
		return 0;
	int rc = sl__queue_push(r->queue, run, 0);
	if (rc != 0)
		return sl_err_set(err, rc, "the restore has ended");
	r->run = NULL;
	return 0;
}

/* path: the name to restore it under; NULL: its own. */
static int add_to_run(struct bk_restore *r, const struct bk_entry *e, const char *path, struct sl_err *err)
{
	struct bk_run *run = r->run;
	struct bk_found found;
	bool begins = false; /* the first block of the file is in another frame than that of the last file */
	int rc = e->n_refs > 0 ? sl__bk_index_find(r->index, &e->refs[0].id, &found, err) : SL_ENOENT;
	if (rc == 0) {
		begins = found.place.frame_offset != r->frame_offset ||
			 memcmp(&found.pack, &r->frame_pack, sizeof(found.pack)) != 0;
		r->frame_offset = found.place.frame_offset;
		r->frame_pack = found.pack;
	} else if (rc == SL_ENOENT || rc == SL_ECORRUPT || rc == SL_EIO) {
		rc = 0; /* the lane finds it elsewhere, or reports it */
	}
	if (rc == 0 && run != NULL &&
	    ((begins && run->bytes >= RUN_BYTES) || run->bytes >= RUN_BYTES_MAX || run->n >= RUN_FILES_MAX ||
	     run->memory >= RUN_MEMORY_MAX))
		rc = queue_restore_run(r, err);
	if (rc != 0)
		return rc;
	if (r->run == NULL)
		r->run = sl__calloc(r->env, 1, sizeof(*r->run));
	run = r->run;
	if (run == NULL)
		return sl__no_memory(err, "restore files");
	struct bk_entry **grown = sl__grow(r->env, run->entries, run->n, &run->cap, sizeof(*grown));
	if (grown == NULL)
		return sl__no_memory(err, "restore files");
	run->entries = grown;
	size_t bytes;
	struct bk_entry *copy = sl__bk_entry_copy(r->env, e, path, &bytes);
	if (copy == NULL)
		return sl__no_memory(err, "restore files");
	run->entries[run->n++] = copy;
	run->memory += bytes;
	run->bytes += e->type == SL_BACKUP_FILE ? e->size : 0;
	return 0;
}

static int plan_entry(struct bk_restore *r, const struct bk_entry *e, struct sl_err *err, SL_UNUSED void *ctx)
{
	enum bk_selected selected = sl__bk_select(&r->select, e->path, e->path_len);
	int rc = 0;
	if (selected == BK_NOT_SELECTED || (selected == BK_ABOVE_SELECTED && e->type != SL_BACKUP_DIR))
		return 0;
	if (selected == BK_IS_SELECTED && r->select.n > 0) {
		sl__lock(&r->b->mu);
		r->b->progress.files_total++;
		r->b->progress.bytes_total += e->type == SL_BACKUP_FILE ? e->size : 0;
		sl__unlock(&r->b->mu);
	}
	if (e->type == SL_BACKUP_DIR) {
		bool made;
		rc = sl__bk_folder_make(&r->folder, e->path, e->path_len, &made, err);
		if (rc == 0 && made && selected == BK_ABOVE_SELECTED)
			rc = sl__bk_path_set_add(r->env, &r->made, e->path, e->path_len, err);
		return rc;
	}
	if (e->type == SL_BACKUP_HARDLINK) {
		r->links++;
		if (sl__bk_select(&r->select, e->target, e->target_len) == BK_IS_SELECTED)
			return 0;
		return sl__bk_stand_in_add(r, e, err);
	}
	if (e->nlink > 1)
		rc = sl__bk_path_set_add(r->env, &r->linked, e->path, e->path_len, err);
	if (rc != 0)
		return rc;
	return add_to_run(r, e, NULL, err);
}

/* The second pass, when links are selected whose targets are not. */
static int plan_stand_in(struct bk_restore *r, const struct bk_entry *e, struct sl_err *err, SL_UNUSED void *ctx)
{
	if (e->type == SL_BACKUP_DIR || e->type == SL_BACKUP_HARDLINK || e->nlink <= 1)
		return 0;
	const struct bk_stand_in *s = sl__bk_stand_in_find(r, e->path, e->path_len);
	return s != NULL ? add_to_run(r, e, s->path, err) : 0;
}

int sl__bk_restore_plan(struct bk_restore *r, struct sl_err *err)
{
	unsigned lanes = (unsigned)SL_MAX(r->b->opts.threads, 1);
	struct sl__queue_opts opts = {.env = r->env, .capacity = RUNS_PER_LANE * lanes};
	struct sl__queue_item item;
	int rc = sl__queue_new(&r->queue, &opts, err);
	if (rc == 0)
		rc = sl__pool_start(&r->flusher, r->env, "sl-restore-sync", 1, flush_loop, end_flush_loop, r, err);
	if (rc == 0)
		rc = sl__pool_start(&r->pool, r->env, "sl-restore", lanes, restore_runs, NULL, r, err);
	if (rc == 0) {
		rc = sl__bk_restore_walk(r, plan_entry, NULL, err);
		if (rc == 0 && r->n_stand_in > 0)
			rc = sl__bk_restore_walk(r, plan_stand_in, NULL, err);
		if (rc == 0)
			rc = queue_restore_run(r, err);
		sl__lock(&r->b->mu);
		r->b->progress.totals_known |= rc == 0;
		sl__unlock(&r->b->mu);
		sl__queue_close(r->queue, rc == 0 ? SL__QUEUE_DRAIN : SL__QUEUE_TAKE_BACK);
		sl__pool_free(r->pool); /* joins: with DRAIN, when the last run is done */
		r->pool = NULL;
		while (sl__queue_take(r->queue, &item, 1) == 1)
			sl__bk_run_free(r->env, item.ptr);
	}
	sl__pool_free(r->flusher);
	r->flusher = NULL;
	if (r->failed.code == 0)
		return rc;
	return sl__bk_result(r->failed.code, &r->failed, err);
}
