/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan: folders are made in the order of the manifest, before any file in them is handed out; files go to the lanes
 * in runs. A run is cut where a frame ends, so that no two lanes open the same one, and in any case when it is long.
 */
#include "backup/restore/restore.h"

#define RUN_BYTES (4u << 20)      /* of contents; then a run ends with its frame */
#define RUN_BYTES_MAX (16u << 20) /* … and here in any case */
#define RUN_FILES_MAX 2048u
#define RUN_MEMORY_MAX (1u << 20) /* of entries */
#define RUNS_PER_LANE 2u          /* that wait */

static int hand_over(struct bk_restore *r, struct sl_err *err)
{
	struct bk_run *run = r->run;
	if (run == NULL || run->n == 0)
		return 0;
	int rc = sl__queue_push(r->queue, run, 0);
	if (rc == 0)
		r->run = NULL;
	return rc == 0 ? 0 : sl_err_set(err, rc, "the restore has ended");
}

/* Whether the file's first block is in another frame than the last file's. */
static int begins_frame(struct bk_restore *r, const struct bk_entry *e, bool *out, struct sl_err *err)
{
	struct bk_found found;
	*out = false;
	if (e->refs_n == 0)
		return 0;
	int rc = sl__bk_index_find(r->index, &e->refs[0].id, &found, err);
	if (rc == SL_ENOENT || rc == SL_ECORRUPT || rc == SL_EIO)
		return 0; /* the lane finds it elsewhere, or will tell */
	if (rc != 0)
		return rc;
	*out = found.place.frame_offset != r->frame_offset ||
	       memcmp(&found.pack, &r->frame_pack, sizeof(found.pack)) != 0;
	r->frame_offset = found.place.frame_offset;
	r->frame_pack = found.pack;
	return 0;
}

static int make_room(struct bk_restore *r, const struct bk_entry *e, struct sl_err *err)
{
	struct bk_run *run = r->run;
	bool begins;
	int rc = begins_frame(r, e, &begins, err);
	if (rc == 0 && run != NULL &&
	    ((begins && run->bytes >= RUN_BYTES) || run->bytes >= RUN_BYTES_MAX || run->n >= RUN_FILES_MAX ||
	     run->memory >= RUN_MEMORY_MAX))
		rc = hand_over(r, err);
	if (rc == 0 && r->run == NULL) {
		r->run = sl__calloc(r->env, 1, sizeof(*r->run));
		rc = r->run != NULL ? 0 : sl_err_set(err, SL_ENOMEM, "no memory for a run of files");
	}
	return rc;
}

/* path: under which name; NULL: its own. */
static int add_to_run(struct bk_restore *r, const struct bk_entry *e, const char *path, struct sl_err *err)
{
	int rc = make_room(r, e, err);
	if (rc != 0)
		return rc;
	struct bk_run *run = r->run;
	if (run->n == run->cap) {
		size_t cap = run->cap > 0 ? 2 * run->cap : 64;
		struct bk_entry **more = sl__realloc(r->env, run->entries, cap * sizeof(*more));
		if (more == NULL)
			return sl_err_set(err, SL_ENOMEM, "no memory for a run of files");
		run->entries = more;
		run->cap = cap;
	}
	size_t bytes;
	struct bk_entry *copy = sl__bk_entry_copy(r->env, e, path, &bytes);
	if (copy == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for an entry");
	run->entries[run->n++] = copy;
	run->memory += bytes;
	run->bytes += e->type == SL_BACKUP_FILE ? e->size : 0;
	return 0;
}

static int plan_folder(struct bk_restore *r, const struct bk_entry *e, enum bk_selected selected, struct sl_err *err)
{
	bool made;
	int rc = sl__bk_folder_make(&r->folder, e->path, e->path_len, &made, err);
	if (rc == 0 && made && selected == BK_ABOVE_SELECTED)
		rc = sl__bk_path_set_add(r->env, &r->made, e->path, e->path_len, err);
	return rc;
}

static int plan_link(struct bk_restore *r, const struct bk_entry *e, struct sl_err *err)
{
	r->links++;
	if (sl__bk_select(&r->select, e->target, e->target_len) == BK_IS_SELECTED)
		return 0;
	return sl__bk_stand_in_add(r, e, err);
}

static void grow_totals(struct bk_restore *r, const struct bk_entry *e)
{
	struct sl_backup *b = r->b;
	if (r->select.n == 0)
		return;
	sl__lock(&b->mu);
	b->progress.files_total++;
	b->progress.bytes_total += e->type == SL_BACKUP_FILE ? e->size : 0;
	sl__unlock(&b->mu);
}

static int plan_entry(struct bk_restore *r, const struct bk_entry *e, void *ctx, struct sl_err *err)
{
	enum bk_selected selected = sl__bk_select(&r->select, e->path, e->path_len);
	(void)ctx;
	if (selected == BK_NOT_SELECTED || (selected == BK_ABOVE_SELECTED && e->type != SL_BACKUP_DIR))
		return 0;
	if (selected == BK_IS_SELECTED)
		grow_totals(r, e);
	if (e->type == SL_BACKUP_DIR)
		return plan_folder(r, e, selected, err);
	int rc = 0;
	if (e->type == SL_BACKUP_HARDLINK)
		return plan_link(r, e, err);
	if (e->nlink > 1)
		rc = sl__bk_path_set_add(r->env, &r->linked, e->path, e->path_len, err);
	return rc == 0 ? add_to_run(r, e, NULL, err) : rc;
}

/* Second reading, when links are meant whose targets are not. */
static int plan_stand_in(struct bk_restore *r, const struct bk_entry *e, void *ctx, struct sl_err *err)
{
	(void)ctx;
	if (e->type == SL_BACKUP_DIR || e->type == SL_BACKUP_HARDLINK || e->nlink <= 1)
		return 0;
	const struct bk_stand_in *s = sl__bk_stand_in_find(r, e->path, e->path_len);
	return s != NULL ? add_to_run(r, e, s->path, err) : 0;
}

static int plan_all(struct bk_restore *r, struct sl_err *err)
{
	int rc = sl__bk_restore_walk(r, plan_entry, NULL, err);
	if (rc == 0 && r->stand_in_n > 0)
		rc = sl__bk_restore_walk(r, plan_stand_in, NULL, err);
	if (rc == 0)
		rc = hand_over(r, err);
	if (rc == 0) {
		sl__lock(&r->b->mu);
		r->b->progress.totals_known = 1;
		sl__unlock(&r->b->mu);
	}
	return rc;
}

static void take_back(struct bk_restore *r)
{
	struct sl__queue_item item;
	while (sl__queue_take(r->queue, &item, 1) == 1)
		sl__bk_run_free(r->env, item.ptr);
}

int sl__bk_restore_plan(struct bk_restore *r, struct sl_err *err)
{
	unsigned lanes = (unsigned)SL_MAX(r->b->opts.threads, 1);
	struct sl__queue_opts opts = {.env = r->env, .capacity = RUNS_PER_LANE * lanes};
	int rc = sl__queue_new(&r->queue, &opts, err);
	if (rc == 0)
		rc = sl__bk_flush_start(r, err);
	if (rc == 0)
		rc = sl__pool_start(&r->pool, r->env, "sl-restore", lanes, sl__bk_restore_lane, NULL, r, err);
	if (rc != 0) {
		sl__bk_flush_stop(r);
		return rc;
	}
	rc = plan_all(r, err);
	sl__queue_close(r->queue, rc == 0 ? SL__QUEUE_DRAIN : SL__QUEUE_TAKE_BACK);
	sl__pool_free(r->pool); /* joins: with DRAIN, when the last run is done */
	r->pool = NULL;
	sl__bk_flush_stop(r);
	take_back(r);
	if (r->failed.code == 0)
		return rc;
	if (err != NULL)
		*err = r->failed;
	return r->failed.code;
}
