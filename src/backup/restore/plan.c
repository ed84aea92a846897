/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan: folders are created in the order of the manifest, before any file in them is queued; files go to the lanes
 * in runs. A run is cut where a frame ends, so that no two lanes open the same frame, and in any case when it is long.
 */
#include "backup/grow.h"
#include "backup/restore/restore.h"

#define RUN_BYTES (4u << 20)      /* of contents; then a run ends with its frame */
#define RUN_BYTES_MAX (16u << 20) /* … and here in any case */
#define RUN_FILES_MAX 2048u
#define RUN_MEMORY_MAX (1u << 20) /* of entries */
#define RUNS_PER_LANE 2u          /* in the queue */

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

/* Is the first block of the file in another frame than that of the last file? */
static int begins_frame(struct bk_restore *r, const struct bk_entry *e, bool *out, struct sl_err *err)
{
	struct bk_found found;
	*out = false;
	if (e->refs_n == 0)
		return 0;
	int rc = sl__bk_index_find(r->index, &e->refs[0].id, &found, err);
	if (rc == SL_ENOENT || rc == SL_ECORRUPT || rc == SL_EIO)
		return 0; /* the lane finds it elsewhere, or reports it */
	if (rc != 0)
		return rc;
	*out = found.place.frame_offset != r->frame_offset ||
	       memcmp(&found.pack, &r->frame_pack, sizeof(found.pack)) != 0;
	r->frame_offset = found.place.frame_offset;
	r->frame_pack = found.pack;
	return 0;
}

/* path: the name to restore it under; NULL: its own. */
static int add_to_run(struct bk_restore *r, const struct bk_entry *e, const char *path, struct sl_err *err)
{
	struct bk_run *run = r->run;
	bool begins;
	int rc = begins_frame(r, e, &begins, err);
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
	struct bk_entry **grown = sl__bk_grow(r->env, run->entries, run->n, &run->cap, sizeof(*grown));
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

static int plan_entry(struct bk_restore *r, const struct bk_entry *e, SL_UNUSED void *ctx, struct sl_err *err)
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
	return rc == 0 ? add_to_run(r, e, NULL, err) : rc;
}

/* The second pass, when links are selected whose targets are not. */
static int plan_stand_in(struct bk_restore *r, const struct bk_entry *e, SL_UNUSED void *ctx, struct sl_err *err)
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
		rc = sl__bk_flusher_start(r, err);
	if (rc == 0)
		rc = sl__pool_start(&r->pool, r->env, "sl-restore", lanes, sl__bk_restore_lane, NULL, r, err);
	if (rc == 0) {
		rc = sl__bk_restore_walk(r, plan_entry, NULL, err);
		if (rc == 0 && r->stand_in_n > 0)
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
	if (err != NULL)
		*err = r->failed;
	return r->failed.code;
}
