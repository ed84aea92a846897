/* SPDX-License-Identifier: Apache-2.0 */
/* The calls on an export: run, and gaps. backfill.c has the third. */
#include "pipeline/export/export.h"

#include <errno.h>

/* ---- run ---- */

static int load_tail(const struct sl_dataset *d, void *ctx)
{
	struct sl_export_result *out = ctx;
	out->start = d->start;
	out->checkpoint = d->checkpoint;
	if (d->events > 0)
		sl__sha256_hex(d->head, out->head);
	return 0;
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
		return sl_err_set(err, SL_ENOMEM, "out of memory for an export");
	sl__lock(&e->mu);
	e->progress = (struct sl_export_progress){0};
	sl__unlock(&e->mu);
	sl__export_interrupt(e, false);
	int rc = fn(job, e, why, ctx);
	if (rc == SL_ECANCELLED && e->stop != SL_PIPELINE_GO)
		rc = 0;
	if (job->outbox != NULL) {
		int delivered = sl__job_deliver(job, rc == 0 ? why : NULL);
		if (rc == 0)
			rc = delivered;
	}
	/* What the call has done; what cannot be read from the catalog stays zero. */
	struct sl_export_result *r = &job->result;
	sl__lock(&e->mu);
	r->partitions = e->progress.partitions;
	r->rows = e->progress.rows;
	r->bad_rows = e->progress.bad_rows;
	r->holes = e->progress.holes;
	r->bytes = e->progress.bytes;
	r->stopped = e->stop != SL_PIPELINE_GO;
	sl__unlock(&e->mu);
	if (job->catalog == NULL || sl_catalog_datasets(job->catalog, e->o.dataset, load_tail, r, NULL) != 0)
		r->start = r->checkpoint = 0; /* not readable, or nothing is committed */
	if (job->seen_any && r->head[0] == '\0')
		r->waiting = job->seen - job->seen_first + 1;
	else if (job->seen > r->checkpoint)
		r->waiting = job->seen - r->checkpoint;
	if (r->stopped)
		r->waiting += job->left;
	sl__result_copy(result, r, sizeof(*r));
	sl__job_close(job);
	sl__free(&e->env, job);
	return rc;
}

static int run_export(struct sl__export_job *job, struct sl_export *e, struct sl_err *err, SL_UNUSED void *ctx)
{
	int rc = sl__job_open(job, e, err);
	if (rc != 0)
		return rc;
	rc = sl__job_pipeline(job, err);
	if (rc == 0 && !sl__export_stopping(e))
		rc = sl__job_recheck(job, err);
	bool of_input = rc == SL_EGAP || rc == SL_EDUPLICATE || rc == SL_EDATA;
	return of_input ? sl_err_wrap(err, rc, "%.80s", sl__input_name(&job->input)) : rc;
}

int sl_export_run(sl_export *e, struct sl_export_result *result, struct sl_err *err)
{
	return sl__export_call(e, run_export, NULL, result, err);
}

/* ---- gaps ---- */

struct gaps {
	struct sl_export *e;
	sl_export_gap_fn *fn;
	void *ctx;
	bool any;
	uint64_t last; /* of the partition before, when any */
};

/* Report what is missing before the partition, and its file if that is missing or has another size. */
static int check_gap(const struct sl_catalog_partition *p, void *ctx)
{
	struct gaps *g = ctx;
	struct sl_io_stat st;
	int rc = 0;
	if (p->type != SL_AUDIT_LATE) { /* late rows lie within the partition before */
		const struct sl_export_gap gap = {
			.kind = SL_EXPORT_GAP_UNCOMMITTED, .first = g->last + 1, .last = p->start - 1, .path = ""};
		if (g->any && p->start > g->last + 1)
			rc = g->fn(&gap, g->ctx);
		g->any = true;
		g->last = p->end;
		if (rc != 0)
			return rc;
	}
	char *path = sl__asprintf(&g->e->env, "%s/%s", g->e->o.to, p->path);
	if (path == NULL)
		return SL_ENOMEM;
	rc = SL__IO(&g->e->env, stat, path, &st);
	sl__free(&g->e->env, path);
	if (rc == 0 && st.size == p->bytes)
		return 0;
	const struct sl_export_gap gap = {.kind = rc < 0 ? SL_EXPORT_GAP_MISSING : SL_EXPORT_GAP_SIZE,
					  .first = p->start,
					  .last = p->end,
					  .path = p->path};
	return g->fn(&gap, g->ctx);
}

int sl_export_gaps(sl_export *e, sl_export_gap_fn *fn, void *ctx, struct sl_err *err)
{
	struct gaps g = {.e = e, .fn = fn, .ctx = ctx};
	struct sl_export_result ignored = {0};
	sl_catalog *catalog;
	if (sl__forked(&e->guard))
		return sl_err_set(err, SL_EFORKED, "export: used in a forked child");
	int rc = sl__export_catalog(e, false, &catalog, err);
	if (rc != 0)
		return rc;
	rc = sl_catalog_datasets(catalog, e->o.dataset, load_tail, &ignored, err); /* SL_ENOENT for an unknown name */
	if (rc == 0)
		rc = sl_catalog_partitions(catalog, e->o.dataset, 0, 0, check_gap, &g, err);
	sl_catalog_close(catalog);
	return rc;
}
