/* SPDX-License-Identifier: Apache-2.0 */
/* sl_backup_restore: its beginning and end, and what its parts share (restore.h). */
#include <errno.h>

#include "backup/restore/restore.h"

/* ---- what its parts share ---- */

int sl__bk_restore_walk(struct bk_restore *r, bk_walk_fn *fn, void *ctx, struct sl_err *err)
{
	struct bk_manifest_reader *m = NULL;
	struct bk_entry e;
	int rc = sl__bk_manifest_reader_new(&m, r->b, &r->snapshot, r->reader, err);
	while (rc == 0) {
		rc = sl__bk_manifest_next(m, &e, err);
		if (rc <= 0)
			break;
		/* The reader has checked paths too; this check keeps a restore inside its folder. */
		rc = sl__bk_check_stop(r->b, err);
		if (rc == 0)
			rc = sl__bk_target_path_check(e.path, e.path_len, err);
		if (rc == 0 && e.type == SL_BACKUP_HARDLINK)
			rc = sl__bk_target_path_check(e.target, e.target_len, err);
		if (rc == 0)
			rc = fn(r, &e, err, ctx);
	}
	sl__bk_manifest_reader_free(m);
	return rc;
}

void sl__bk_restore_fail(struct bk_restore *r, int code, const struct sl_err *why)
{
	sl__lock(&r->mu);
	if (r->failed.code == 0) {
		r->failed = *why;
		r->failed.code = code;
	}
	sl__unlock(&r->mu);
	sl__queue_close(r->queue, SL__QUEUE_TAKE_BACK);
}

bool sl__bk_restore_failed(struct bk_restore *r)
{
	sl__lock(&r->mu);
	bool failed = r->failed.code != 0;
	sl__unlock(&r->mu);
	return failed;
}

void sl__bk_restore_report(struct bk_restore *r, enum sl_backup_problem problem, const char *path,
			   const struct sl_err *why)
{
	sl__lock(&r->mu);
	r->done.problems++;
	sl__unlock(&r->mu);
	sl__lock(&r->b->mu);
	r->b->progress.errors++;
	sl__unlock(&r->b->mu);
	if (r->opts.on_problem == NULL)
		return;
	sl__lock(&r->problem_mu);
	r->opts.on_problem(problem, path, why, r->opts.ctx);
	sl__unlock(&r->problem_mu);
}

static void report_attribute_not_set(const struct bk_entry *e, const struct sl_err *err, void *ctx)
{
	sl__bk_restore_report(ctx, SL_BACKUP_NOT_SET, e->path, err);
}

bool sl__bk_restore_is_of_file(const struct sl_err *why)
{
	switch (why->sys_errno) {
	case ENAMETOOLONG:
	case EILSEQ:
	case EINVAL:
	case ENOENT:
	case EACCES:
	case EPERM:
	case EMLINK:
	case EXDEV:
	case EOVERFLOW:
	case EOPNOTSUPP:
		return true;
	default:
		return why->code == SL_ETOOBIG;
	}
}

int sl__bk_restore_leave_out(struct bk_restore *r, const struct bk_entry *e, const struct sl_err *why, bool damaged,
			     struct sl_err *err)
{
	sl__lock(&r->mu);
	int rc = sl__bk_path_set_add(r->env, &r->gone, e->path, e->path_len, err);
	if (r->lost.code == 0 || (damaged && r->lost.code != SL_ECORRUPT)) {
		r->lost = *why;
		r->lost.code = damaged ? SL_ECORRUPT : why->code;
	}
	sl__unlock(&r->mu);
	sl__bk_restore_report(r, SL_BACKUP_UNREADABLE, e->path, why);
	return rc;
}

void sl__bk_restore_count(struct bk_restore *r, const struct bk_entry *e, bool skipped)
{
	uint64_t bytes = e->type == SL_BACKUP_FILE ? e->size : 0;
	sl__lock(&r->mu);
	r->done.entries += !skipped;
	r->done.files += !skipped && e->type == SL_BACKUP_FILE;
	r->done.bytes += skipped ? 0 : bytes;
	r->done.skipped += skipped;
	sl__unlock(&r->mu);
	sl__lock(&r->b->mu);
	r->b->progress.files++;
	if (skipped)
		r->b->progress.bytes += bytes;
	sl__unlock(&r->b->mu);
}

/* ---- beginning and end ---- */

static int restore_open(struct bk_restore *r, const char *id, struct sl_err *err)
{
	struct sl_backup *b = r->b;
	int rc = sl__bk_select_init(&r->select, r->env, r->opts.paths, r->opts.n_paths, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_snapshot_load(b, id, &r->snapshot, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_index_for_reading(b, &r->index, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_reader_new(&r->reader, b, r->index, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_target_open(&r->target, r->env, &r->opts, b->keys.encrypted, err);
	if (rc != 0)
		return rc;
	r->target.not_set = report_attribute_not_set;
	r->target.not_set_ctx = r;
	if (r->select.n == 0) {
		sl__lock(&b->mu);
		b->progress.files_total = r->snapshot.info.entries;
		b->progress.bytes_total = r->snapshot.info.bytes;
		b->progress.totals_known = 1;
		sl__unlock(&b->mu);
	}
	sl__bk_folder_init(&r->folder, &r->target);
	rc = sl__bk_folder_enter(&r->folder, "", 0, err);
	if (rc == 0)
		sl__bk_folder_take_over(&r->folder);
	return rc;
}

static int restore_all(struct bk_restore *r, struct sl_err *err)
{
	int rc = sl__bk_restore_plan(r, err);
	if (rc == 0 && r->links > 0)
		rc = sl__bk_restore_links(r, err);
	if (rc != 0)
		return rc;
	/* Publish before folders get their modes: a folder that is not writable cannot be moved. */
	sl__bk_folder_fini(&r->folder);
	sl__bk_folder_init(&r->folder, &r->target);
	rc = sl__bk_stage_publish(&r->target, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_restore_folders(r, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_target_finish(&r->target, err);
	if (rc != 0)
		return rc;
	/* The restore is complete, except for what it left out. */
	if (r->lost.code == 0)
		return sl__bk_select_all_met(&r->select, r->snapshot.info.id, err);
	if (err != NULL)
		*err = r->lost;
	return sl_err_wrap(err, r->lost.code, "%zu files were not restored, the first", r->gone.n);
}

static void fini_restore(struct bk_restore *r)
{
	sl__bk_folder_fini(&r->folder);
	sl__bk_target_close(&r->target);
	sl__bk_run_free(r->env, r->run);
	sl__queue_free(r->queue);
	sl__bk_reader_free(r->reader);
	sl__bk_index_free(r->index);
	sl__bk_snapshot_fini(r->env, &r->snapshot);
	sl__bk_select_fini(&r->select);
	sl__bk_path_set_fini(r->env, &r->linked);
	sl__bk_path_set_fini(r->env, &r->made);
	sl__bk_path_set_fini(r->env, &r->gone);
	for (size_t i = 0; i < r->n_stand_in; i++) {
		sl__free(r->env, r->stand_in[i].target);
		sl__free(r->env, r->stand_in[i].path);
	}
	sl__free(r->env, r->stand_in);
	sl__mutex_fini(&r->problem_mu);
	sl__cond_fini(&r->written);
	sl__mutex_fini(&r->mu);
}

int sl_backup_restore(sl_backup *b, const char *snapshot, const struct sl_backup_restore_opts *opts,
		      struct sl_backup_restored *result, struct sl_err *err)
{
	char id[SL_BACKUP_ID_BYTES];
	sl__result_copy(result, &(struct sl_backup_restored){0}, sizeof(*result));
	if (b == NULL || snapshot == NULL || opts == NULL)
		return sl_err_set(err, SL_EINVAL, "restore: no handle, snapshot or options");
	if (opts->struct_size == 0)
		return sl_err_set(err, SL_EINVAL, "restore: struct_size is 0; use SL_BACKUP_RESTORE_OPTS_INIT");
	if (!SL_OPT_HAS(opts, to) || opts->to == NULL || opts->to[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "restore: no target folder (to)");
	int rc = sl_check_local_path("restore: to", opts->to, err);
	if (rc != 0)
		return rc;
	if (SL_OPT_HAS(opts, conflict) && opts->conflict != SL_BACKUP_RESUME && opts->conflict != SL_BACKUP_OVERWRITE)
		return sl_err_set(err, SL_EINVAL, "restore: conflict is neither resume nor overwrite");
	rc = sl__bk_begin(b, "restore", err);
	if (rc == 0)
		rc = sl__bk_resolve(b, snapshot, id, err);
	if (rc != 0)
		return rc;

	struct bk_restore r SL_CLEANUP(fini_restore) = {.b = b, .env = &b->env, .target = {.root = -1, .base = -1}};
	sl__opts_copy(&r.opts, sizeof(r.opts), opts);
	sl__mutex_init(&r.problem_mu);
	sl__mutex_init(&r.mu);
	sl__cond_init(&r.written);
	rc = restore_open(&r, id, err);
	if (rc == 0)
		rc = restore_all(&r, err);
	r.done.set_id_stripped = atomic_load(&r.target.set_id_stripped);
	r.done.security_stripped = atomic_load(&r.target.security_stripped);
	sl__result_copy(result, &r.done, sizeof(r.done));
	if (rc != 0)
		sl__bk_target_unmake(&r.target, opts->to);
	return rc;
}
