/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of many chains: those that are named, all or none; or all that a filter finds, in bites of one transaction
 * each, newest first, for a bounded time. Chains that are not in a state for the change are skipped. A dry run counts
 * what the filter finds instead.
 */
#include "base/time.h"
#include "server/api/api.h"

#include <stdlib.h>

#define NAMED_MAX 10000
#define BITE 500
#define SCAN 20000
#define TIME_BOX_MS 20000
#define COUNT_BOX_MS 2000 /* a person waits for the number */
#define COUNT_BITE 10000

#define BIT(status) (1u << (status))
#define PENDING_STATES (BIT(SL_JOB_READY) | BIT(SL_JOB_SCHEDULED) | BIT(SL_JOB_RETRYING))

struct bulk_change {
	struct srv_api *api;
	sl_jobs *jobs;     /* of this change */
	srv_chains_fn *fn; /* NULL: delete them */
	bool cascade;
	uint32_t statuses; /* that it can change at all; 0: any */
	uint64_t ids[BITE];
	size_t n;
	uint64_t changed, matched; /* matched: of a dry run */
	bool dry_run;
	bool more; /* the time was over before the end */
};

static int keep_id(const struct sl_chain *chain, void *ctx)
{
	struct bulk_change *b = ctx;
	b->ids[b->n++] = chain->id;
	return 0;
}

static int count_id(const struct sl_chain *chain, void *ctx)
{
	struct bulk_change *b = ctx;
	(void)chain;
	b->matched++;
	return 0;
}

/* About one chain: it is gone meanwhile, others wait for it, or it cannot be redriven. */
static bool is_about_one(int rc)
{
	return rc == SL_ENOENT || rc == SL_EPENDING || rc == SL_EEXIST || rc == SL_ECONFLICT;
}

/* In one transaction. */
static int change_ids(struct bulk_change *b, const uint64_t *ids, size_t n, struct sl_err *err)
{
	size_t changed = 0;
	int rc = b->fn != NULL ? b->fn(b->jobs, NULL, ids, n, &changed, err)
			       : sl_jobs_delete(b->jobs, NULL, ids, n, b->cascade, &changed, err);
	if (rc == 0)
		b->changed += changed;
	return rc;
}

/* Leave of the filter what can be changed so. False: nothing. */
static bool narrow_filter(const struct bulk_change *b, struct srv_filter *f)
{
	uint32_t wanted = f->f.statuses;
	if (b->statuses == 0)
		return true;
	if ((wanted & BIT(SL_JOB_PENDING)) != 0)
		wanted |= PENDING_STATES;
	f->f.statuses = wanted == 0 ? b->statuses : wanted & b->statuses;
	return f->f.statuses != 0;
}

/* How many the filter finds that can be changed so, until the time is over. */
static int count_filtered(struct bulk_change *b, struct srv_filter *f, struct sl_err *err)
{
	uint64_t reached = 0;
	int64_t end = sl__clock_ms() + COUNT_BOX_MS;
	if (!narrow_filter(b, f))
		return 0;
	f->f.without_data = true;
	f->f.limit = COUNT_BITE;
	f->f.scan = SCAN;
	f->f.reached = &reached;
	do {
		int rc = sl_jobs_list_chains(b->api->core->jobs, &f->f, count_id, b, err);
		if (rc != 0)
			return rc;
		f->f.after = reached;
		b->more = reached != 0;
	} while (b->more && sl__clock_ms() < end);
	return 0;
}

/* All that the filter finds, until the time is over. */
static int change_filtered(struct bulk_change *b, struct srv_filter *f, struct sl_err *err)
{
	uint64_t reached = 0;
	int64_t end = sl__clock_ms() + TIME_BOX_MS;
	if (!narrow_filter(b, f))
		return 0;
	f->f.without_data = true;
	f->f.limit = BITE;
	f->f.scan = SCAN;
	f->f.reached = &reached;
	do {
		b->n = 0;
		int rc = sl_jobs_list_chains(b->api->core->jobs, &f->f, keep_id, b, err);
		if (rc != 0)
			return rc;
		/* One transaction; when a chain of it cannot be changed, each alone. */
		rc = b->n > 0 ? change_ids(b, b->ids, b->n, err) : 0;
		bool alone = is_about_one(rc);
		for (size_t i = 0; alone && i < b->n && (rc == 0 || is_about_one(rc)); i++)
			rc = change_ids(b, &b->ids[i], 1, err);
		if (rc != 0 && !is_about_one(rc))
			return rc;
		f->f.after = reached;
		b->more = reached != 0;
	} while (b->more && sl__clock_ms() < end);
	return 0;
}

/* Change what the body names, and answer. */
static void change_body(struct bulk_change *b, const struct srv_object *body)
{
	srv_request *r = body->r;
	const struct srv_object filter = {r, "filter", json_object_get(body->json, "filter")};
	struct sl_err err = SL_ERR_INIT;
	int rc;
	bool named = json_object_get(body->json, "chains") != NULL;
	if (named == (filter.json != NULL)) {
		srv_error(r, 400, "invalid", "give either chains or filter");
		return;
	}
	if (named && b->dry_run) {
		srv_error(r, 400, "invalid", "dry_run: needs a filter; named chains are counted by the client");
		return;
	}
	if (named) {
		uint64_t *ids = NULL;
		size_t n = 0;
		if (!srv_in_ids(body, "chains", NAMED_MAX, &ids, &n))
			return;
		rc = change_ids(b, ids, n, &err);
		free(ids);
	} else {
		struct srv_filter f;
		if (!srv_filter_body(&filter, &f))
			return;
		if (json_object_size(filter.json) == 0) {
			srv_error(r, 400, "invalid",
				  "filter: must have at least one field; an empty filter would match every chain");
			return;
		}
		rc = b->dry_run ? count_filtered(b, &f, &err) : change_filtered(b, &f, &err);
	}
	struct srv_out o = {0};
	srv_out_open(&o, '{');
	SRV_FIELD(&o, "changed", int, (int64_t)b->changed);
	if (b->dry_run)
		SRV_FIELD(&o, "matched", int, (int64_t)b->matched);
	SRV_FIELD(&o, "more", bool, b->more);
	srv_out_close(&o, '}');
	srv_out_answer(r, 200, &o, rc != 0 ? &err : NULL);
}

static void change_many(srv_request *r, struct srv_api *api, srv_chains_fn *fn, uint32_t statuses)
{
	static const char *const names[] = {"chains", "filter", "dry_run", NULL};
	static const char *const delete_names[] = {"chains", "filter", "dry_run", "cascade", NULL};
	struct bulk_change *b = calloc(1, sizeof(*b));
	struct srv_object body;
	if (b == NULL) {
		srv_error(r, 500, "internal", "out of memory");
		return;
	}
	struct srv_change c = {.jobs = NULL};
	*b = (struct bulk_change){.api = api, .fn = fn, .statuses = statuses};
	if (srv_in_query(r, NULL) && srv_in_body(r, fn != NULL ? names : delete_names, NULL, &body) &&
	    srv_in_bool(&body, "cascade", &b->cascade) && srv_in_bool(&body, "dry_run", &b->dry_run)) {
		if (b->dry_run) {
			change_body(b, &body);
		} else if (srv_change_begin(r, api->core, &c)) {
			b->jobs = c.jobs;
			change_body(b, &body);
			srv_change_end(&c);
		}
	}
	free(b);
}

void srv_bulk_cancel(srv_request *r, void *ctx)
{
	change_many(r, ctx, sl_jobs_cancel,
		    BIT(SL_JOB_BLOCKED) | BIT(SL_JOB_PENDING) | PENDING_STATES | BIT(SL_JOB_RUNNING));
}

void srv_bulk_retry(srv_request *r, void *ctx)
{
	change_many(r, ctx, sl_jobs_redrive, BIT(SL_JOB_FAILED) | BIT(SL_JOB_CANCELLED));
}

void srv_bulk_trigger(srv_request *r, void *ctx)
{
	change_many(r, ctx, sl_jobs_trigger, BIT(SL_JOB_SCHEDULED) | BIT(SL_JOB_RETRYING));
}

void srv_bulk_delete(srv_request *r, void *ctx)
{
	change_many(r, ctx, NULL, 0);
}
