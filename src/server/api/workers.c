/* SPDX-License-Identifier: Apache-2.0 */
/* Workers, what they run, the types they serve, and leases. */
#include "jobs/store/ops.h"
#include "server/api/api.h"

#include <stdio.h>
#include <string.h>

/* ---- types that a worker serves ---- */

static int add_served(const struct sl_heartbeat *h, void *ctx)
{
	struct srv_served *s = ctx;
	/* ",a,b," */
	(void)sl__buf_str_append(&s->types, h->types);
	return sl__buf_str_append(&s->types, ",") == 0 ? 0 : SL_ENOMEM;
}

int srv_served_read(struct srv_served *s, const struct srv_core *core, struct sl_err *err)
{
	const sl_store *store = core->store;
	sl__buf_init(&s->types, core->env);
	(void)sl__buf_str_append(&s->types, ",");
	int rc = store->ops->heartbeats(store->ctx, add_served, s, err);
	if (s->types.failed)
		rc = sl_err_set(err, SL_ENOMEM, "out of memory");
	return rc;
}

bool srv_served(const struct srv_served *s, const char *type)
{
	size_t n = strlen(type);
	for (const char *at = sl__buf_str(&s->types) + 1; n > 0 && (at = strstr(at, type)) != NULL; at++)
		if (at[-1] == ',' && at[n] == ',')
			return true;
	return false;
}

void srv_served_free(struct srv_served *s)
{
	sl__buf_fini(&s->types);
}

/* ---- workers ---- */

/* The fields, without brackets. */
static void out_worker(struct srv_out *o, const struct sl_worker_info *w)
{
	bool reports = w->seen_ms != 0;
	SRV_FIELD(o, "worker", str, w->worker);
	SRV_FIELD(o, "host", str, w->host);
	srv_out_known(o, "pid", reports, w->pid);
	SRV_FIELD(o, "version", str, w->version);
	srv_out_known(o, "slots", reports, w->slots);
	srv_out_strs(o, "types", w->types, w->n_types);
	SRV_FIELD(o, "started_at", time, w->started_ms);
	SRV_FIELD(o, "seen_at", time, w->seen_ms);
	SRV_FIELD(o, "error", str, w->error);
	SRV_FIELD(o, "error_at", time, w->error_ms);
	SRV_FIELD(o, "leases", int, (int64_t)w->leases);
	SRV_FIELD(o, "jobs", int, (int64_t)w->jobs);
	SRV_FIELD(o, "oldest_claim_at", time, w->oldest_claimed_ms);
	SRV_FIELD(o, "until", time, w->until_ms);
}

static int list_worker(const struct sl_worker_info *w, void *ctx)
{
	struct srv_out *o = ctx;
	srv_out_open(o, '{');
	out_worker(o, w);
	return srv_out_end(o);
}

void srv_workers_list(srv_request *r, void *ctx)
{
	struct srv_api *api = ctx;
	struct sl_err err = SL_ERR_INIT;
	struct srv_out o = {0};
	if (!srv_in_query(r, NULL))
		return;
	srv_items_begin(&o);
	int rc = sl_jobs_workers(api->core->jobs, list_worker, &o, &err);
	srv_items_answer(r, &o, rc, &err, NULL);
}

#define RUNNING_MAX 1000 /* jobs of one worker that are shown */

struct one_worker {
	struct srv_out out;
	const char *name;
	bool found;
	uint32_t n, read; /* jobs shown; jobs of the last page */
	uint64_t last;
};

static int show_worker(const struct sl_worker_info *w, void *ctx)
{
	struct one_worker *one = ctx;
	if (strcmp(w->worker, one->name) != 0)
		return 0;
	one->found = true;
	out_worker(&one->out, w);
	return 0;
}

static int show_its_job(const struct sl_job *job, void *ctx)
{
	struct one_worker *one = ctx;
	one->read++;
	one->last = job->id;
	if (job->leased_by == NULL || strcmp(job->leased_by, one->name) != 0 || one->n == RUNNING_MAX)
		return 0;
	one->n++;
	srv_out_open(&one->out, '{');
	SRV_FIELD(&one->out, "id", id, job->id);
	SRV_FIELD(&one->out, "chain_id", id, job->chain_id);
	SRV_FIELD(&one->out, "type", str, job->type);
	SRV_FIELD(&one->out, "attempt", int, job->attempt);
	SRV_FIELD(&one->out, "started_at", time, job->started_ms);
	SRV_FIELD(&one->out, "leased_until", time, job->leased_until_ms);
	return srv_out_end(&one->out);
}

void srv_workers_show(srv_request *r, void *ctx)
{
	struct srv_api *api = ctx;
	struct sl_err err = SL_ERR_INIT;
	struct one_worker one = {.name = srv_param(r, "worker")};
	struct sl_job_filter f = {SL_JOB_FILTER_INIT, .statuses = 1U << SL_JOB_RUNNING, .limit = SRV_LIMIT_MAX,
				  .without_data = true};
	if (!srv_in_query(r, NULL))
		return;
	srv_out_open(&one.out, '{');
	int rc = sl_jobs_workers(api->core->jobs, show_worker, &one, &err);
	if (rc == 0 && !one.found)
		rc = sl_err_set(&err, SL_ENOENT, "no worker '%.128s' reports to the store or holds a lease", one.name);
	srv_out_begin(&one.out, "running", '[');
	do {
		one.read = 0;
		if (rc == 0)
			rc = sl_jobs_list(api->core->jobs, &f, show_its_job, &one, &err);
		f.after = one.last;
	} while (rc == 0 && one.read == f.limit && one.n < RUNNING_MAX);
	srv_out_close(&one.out, ']');
	srv_out_close(&one.out, '}');
	srv_out_answer(r, 200, &one.out, rc != 0 ? &err : NULL);
}

/* ---- leases ---- */

struct leases {
	struct srv_out out;
	uint32_t n;
	char last[33];
};

static int add_lease(const struct sl_lease *l, void *ctx)
{
	struct leases *all = ctx;
	struct srv_out *o = &all->out;
	*sl__hex(all->last, l->claim, sizeof(l->claim)) = '\0';
	all->n++;
	srv_out_open(o, '{');
	SRV_FIELD(o, "claim", str, all->last);
	SRV_FIELD(o, "worker", str, l->worker);
	srv_out_strs(o, "types", l->types, l->n_types);
	srv_out_begin(o, "jobs", '[');
	for (size_t i = 0; i < l->n_jobs; i++)
		srv_out_id(o, l->jobs[i]);
	srv_out_close(o, ']');
	SRV_FIELD(o, "claimed_at", time, l->claimed_ms);
	SRV_FIELD(o, "until", time, l->until_ms);
	return srv_out_end(o);
}

void srv_leases_list(srv_request *r, void *ctx)
{
	static const char *const names[] = {"cursor", "limit", NULL};
	struct srv_api *api = ctx;
	struct sl_err err = SL_ERR_INIT;
	struct leases all = {0};
	const char *cursor = srv_query(r, "cursor");
	uint8_t after[16];
	uint32_t limit;
	if (!srv_in_query(r, names) || !srv_in_limit(r, &limit))
		return;
	if (cursor != NULL && (strlen(cursor) != 32 || strspn(cursor, "0123456789abcdef") != 32)) {
		srv_error(r, 400, "invalid", "cursor: not from this list");
		return;
	}
	for (size_t i = 0; cursor != NULL && i < 16; i++) {
		unsigned byte = 0;
		(void)sscanf(cursor + 2 * i, "%2x", &byte);
		after[i] = (uint8_t)byte;
	}
	srv_items_begin(&all.out);
	int rc = sl_jobs_leases(api->core->jobs, cursor != NULL ? after : NULL, limit, add_lease, &all, &err);
	srv_items_answer(r, &all.out, rc, &err, all.n == limit ? all.last : "");
}
