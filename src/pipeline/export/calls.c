/* SPDX-License-Identifier: Apache-2.0 */
/* The calls on an export: run, and gaps. backfill.c has the third. */
#include "pipeline/export/export.h"

#include <errno.h>

/* ---- run ---- */

static void tell(struct sl__export_job *job, struct sl_export_result *out)
{
	struct sl_export *e = job->e;
	struct sl__export_tail tail = {.head = {0}};
	sl__lock(&e->mu);
	job->result.partitions = e->progress.partitions;
	job->result.rows = e->progress.rows;
	job->result.bad_rows = e->progress.bad_rows;
	job->result.holes = e->progress.holes;
	job->result.bytes = e->progress.bytes;
	job->result.stopped = e->stop != 0;
	sl__unlock(&e->mu);
	if (job->catalog != NULL && sl__dataset_tail(job->catalog, e->o.dataset, &tail) == 0) {
		job->result.start = tail.start;
		job->result.checkpoint = tail.checkpoint;
		memcpy(job->result.head, tail.head, sizeof(tail.head));
	}
	if (job->seen_any && tail.head[0] == '\0')
		job->result.waiting = job->seen - job->seen_first + 1;
	else if (job->seen > tail.checkpoint)
		job->result.waiting = job->seen - tail.checkpoint;
	if (job->result.stopped)
		job->result.waiting += job->left;
	if (out != NULL) {
		size_t size = out->struct_size;
		memcpy(out, &job->result, SL_MIN(size, sizeof(job->result)));
		out->struct_size = size;
	}
}

int sl__export_call(struct sl_export *e, sl__export_call_fn *fn, void *ctx, struct sl_export_result *result,
		    struct sl_err *err)
{
	struct sl_err ignored = SL_ERR_INIT;
	struct sl_err *why = err != NULL ? err : &ignored;
	if (sl__forked(&e->guard))
		return sl_err_set(err, SL_EFORKED, "export: used in a forked child");
	struct sl__export_job *job = sl__calloc(&e->env, 1, sizeof(*job));
	if (job == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for an export");
	sl__lock(&e->mu);
	e->progress = (struct sl_export_progress){0};
	sl__unlock(&e->mu);
	sl__export_interrupt(e, false);
	int rc = fn(job, e, ctx, why);
	if (rc == SL_ECANCELLED && e->stop != 0)
		rc = 0;
	if (job->outbox != NULL) {
		int late = sl__job_deliver(job, rc == 0 ? why : NULL);
		rc = rc != 0 ? rc : late;
	}
	tell(job, result);
	sl__job_close(job);
	sl__free(&e->env, job);
	return rc;
}

static bool is_of_input(int rc)
{
	return rc == SL_EGAP || rc == SL_EDUPLICATE || rc == SL_EDATA;
}

static int run(struct sl__export_job *job, struct sl_export *e, void *ctx, struct sl_err *err)
{
	(void)ctx;
	int rc = sl__job_open(job, e, err);
	if (rc != 0)
		return rc;
	rc = sl__job_pipeline(job, err);
	if (rc == 0 && !sl__export_stopping(e))
		rc = sl__job_recheck(job, err);
	return is_of_input(rc) ? sl_err_wrap(err, rc, "%.80s", sl__input_name(&job->input)) : rc;
}

int sl_export_run(sl_export *e, struct sl_export_result *result, struct sl_err *err)
{
	return sl__export_call(e, run, NULL, result, err);
}

/* ---- gaps ---- */

struct gaps {
	struct sl_export *e;
	sl_export_gap_fn *fn;
	void *ctx;
	bool any;
	uint64_t last; /* of the partition before, when any */
};

static int look_at_file(const struct gaps *g, const struct sl_catalog_partition *p)
{
	struct sl_io_stat st;
	char *path = sl__asprintf(&g->e->env, "%s/%s", g->e->o.to, p->path);
	if (path == NULL)
		return SL_ENOMEM;
	int rc = SL__IO(&g->e->env, stat, path, &st);
	sl__free(&g->e->env, path);
	if (rc == 0 && st.size == p->bytes)
		return 0;
	const struct sl_export_gap gap = {.kind = rc < 0 ? SL_EXPORT_GAP_MISSING : SL_EXPORT_GAP_SIZE,
					  .first = p->start,
					  .last = p->end,
					  .path = p->path};
	return g->fn(&gap, g->ctx);
}

static int look_at(const struct sl_catalog_partition *p, void *ctx)
{
	struct gaps *g = ctx;
	int rc = 0;
	if (p->type == SL_AUDIT_LATE) /* within the one before */
		return look_at_file(g, p);
	if (g->any && p->start > g->last + 1) {
		const struct sl_export_gap gap = {
			.kind = SL_EXPORT_GAP_UNCOMMITTED, .first = g->last + 1, .last = p->start - 1, .path = ""};
		rc = g->fn(&gap, g->ctx);
	}
	g->any = true;
	g->last = p->end;
	return rc != 0 ? rc : look_at_file(g, p);
}

static int is_there(const struct sl_dataset *d, void *ctx)
{
	(void)d;
	(void)ctx;
	return 0;
}

int sl_export_gaps(sl_export *e, sl_export_gap_fn *fn, void *ctx, struct sl_err *err)
{
	struct gaps g = {.e = e, .fn = fn, .ctx = ctx};
	sl_catalog *catalog;
	if (sl__forked(&e->guard))
		return sl_err_set(err, SL_EFORKED, "export: used in a forked child");
	int rc = sl__export_catalog(e, false, &catalog, err);
	if (rc != 0)
		return rc;
	rc = sl_catalog_datasets(catalog, e->o.dataset, is_there, NULL, err); /* a name that is wrong has no gaps */
	if (rc == 0)
		rc = sl_catalog_partitions(catalog, e->o.dataset, 0, 0, look_at, &g, err);
	sl_catalog_close(catalog);
	return rc;
}
