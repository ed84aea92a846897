/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of jobs and chains, a job with its attempts, and the events of a job. */
#include "server/api/api.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/time.h"

/* How many rows one query reads, the first and a later one, and after which time a request stops querying: an
 * empty page is worth less than the time it takes to find the first row. */
#define SCAN 20000
#define SCAN_MOST 80000
#define ENOUGH_MS 100
#define EMPTY_MS 1000

/* ---- lists ---- */

struct job_page {
	struct srv_out out;
	uint32_t n;
	uint64_t last; /* id of the last row */
};

#define PAGE_FULL 1 /* what a callback below returns once the answer is large enough */

static int next_row(struct job_page *l, uint64_t id)
{
	l->n++;
	l->last = id;
	if (l->out.text.failed)
		return SL_ENOMEM;
	return l->out.text.len >= SRV_PAGE_BYTES ? PAGE_FULL : 0;
}

static int add_listed_job(const struct sl_job *job, void *ctx)
{
	struct job_page *l = ctx;
	srv_out_open(&l->out, '{');
	srv_out_job(&l->out, job);
	srv_out_close(&l->out, '}');
	return next_row(l, job->id);
}

static int add_listed_chain(const struct sl_chain *chain, void *ctx)
{
	struct job_page *l = ctx;
	srv_out_open(&l->out, '{');
	srv_out_chain(&l->out, chain);
	srv_out_close(&l->out, '}');
	return next_row(l, chain->id);
}

static void answer_list(srv_request *r, struct srv_api *api, bool chains)
{
	struct srv_filter f;
	struct sl_err err = SL_ERR_INIT;
	struct job_page l = {0};
	uint64_t reached = 0;
	char cursor[32];
	if (!srv_filter_query(r, &f))
		return;
	f.f.data_max_bytes = f.data ? 0 : SRV_SHORT_BYTES;
	srv_items_begin(&l.out);
	/* Continue over stretches without a match, but not for long. */
	uint32_t limit = f.f.limit;
	int64_t began_ms = sl__clock_ms();
	int rc = 0;
	f.f.scan = SCAN;
	f.f.reached = &reached;
	while (rc == 0 && l.n < limit) {
		f.f.limit = limit - l.n;
		rc = chains ? sl_jobs_list_chains(api->core->jobs, &f.f, add_listed_chain, &l, &err)
			    : sl_jobs_list(api->core->jobs, &f.f, add_listed_job, &l, &err);
		if (rc == PAGE_FULL) {
			reached = l.last;
			rc = 0;
			break;
		}
		f.f.after = reached;
		f.f.scan = f.f.scan < SCAN_MOST ? 2 * f.f.scan : SCAN_MOST;
		if (reached == 0 || sl__clock_ms() - began_ms >= (l.n == 0 ? EMPTY_MS : ENOUGH_MS))
			break;
	}
	(void)snprintf(cursor, sizeof(cursor), "%c%" PRIu64, f.f.ascending ? 'a' : 'd', reached);
	srv_items_answer(r, &l.out, rc, &err, reached != 0 ? cursor : "");
}

void srv_list_chains(srv_request *r, void *ctx)
{
	answer_list(r, ctx, true);
}

void srv_list_jobs(srv_request *r, void *ctx)
{
	answer_list(r, ctx, false);
}

/* ---- one job ---- */

static int out_attempt(const struct sl_attempt_record *a, void *ctx)
{
	struct srv_out *o = ctx;
	srv_out_open(o, '{');
	SRV_FIELD(o, "attempt", int, a->attempt);
	SRV_FIELD(o, "outcome", str, sl_attempt_outcome_name(a->outcome));
	SRV_FIELD(o, "worker", str, a->worker);
	SRV_FIELD(o, "error", str, a->error);
	SRV_FIELD(o, "started_at", time, a->started_ms);
	SRV_FIELD(o, "ended_at", time, a->ended_ms);
	srv_out_close(o, '}');
	return 0;
}

struct shown_job {
	struct srv_out out;
	char type[129]; /* of a job that waits for a worker; "": it does not */
};

/* Straight from the store's row: this is what is asked for most. */
static int out_stored_job(const struct sl_job *job, void *ctx)
{
	struct shown_job *shown = ctx;
	if (job->status == SL_JOB_PENDING)
		(void)snprintf(shown->type, sizeof(shown->type), "%s", job->type);
	srv_out_job(&shown->out, job);
	return 0;
}

/* Whether a worker serves the type of the job that waits. */
static int out_served(struct shown_job *shown, const struct srv_core *core, struct sl_err *err)
{
	struct srv_served served;
	srv_out_name(&shown->out, "served");
	if (shown->type[0] == '\0') {
		srv_out_raw(&shown->out, NULL);
		return 0;
	}
	int rc = srv_served_read(&served, core, err);
	srv_out_bool(&shown->out, rc == 0 && srv_served(&served, shown->type));
	srv_served_free(&served);
	return rc;
}

void srv_jobs_show(srv_request *r, void *ctx)
{
	struct srv_api *api = ctx;
	const sl_store *store = api->core->store;
	struct sl_err err = SL_ERR_INIT;
	struct shown_job shown = {.type = ""};
	struct srv_out *o = &shown.out;
	uint64_t id;
	if (!srv_in_query(r, NULL) || !srv_in_id(r, &id))
		return;
	srv_out_open(o, '{');
	int rc = store->ops->get_job(store->ctx, NULL, id, out_stored_job, &shown, &err);
	if (rc == 0)
		rc = out_served(&shown, api->core, &err);
	srv_out_begin(o, "attempts", '[');
	if (rc == 0)
		rc = store->ops->attempts(store->ctx, id, out_attempt, o, &err);
	srv_out_close(o, ']');
	srv_out_close(o, '}');
	srv_out_answer(r, 200, o, rc != 0 ? &err : NULL);
}

/* ---- its events ---- */

static int add_job_event(const struct sl_event_row *e, void *ctx)
{
	struct job_page *l = ctx;
	srv_out_event(&l->out, e);
	return next_row(l, e->offset);
}

void srv_jobs_events(srv_request *r, void *ctx)
{
	static const char *const names[] = {"after", "limit", NULL};
	struct srv_api *api = ctx;
	struct sl_err err = SL_ERR_INIT;
	struct job_page l = {0};
	uint64_t id, after = 0;
	uint32_t limit;
	const char *text = srv_query(r, "after");
	if (!srv_in_query(r, names) || !srv_in_id(r, &id) || !srv_in_limit(r, &limit) ||
	    (text != NULL && !srv_in_number(r, "after", text, INT64_MAX, &after)))
		return;
	srv_items_begin(&l.out);
	int rc = sl_jobs_events(api->core->jobs, id, after, limit, add_job_event, &l, &err);
	bool more = rc == PAGE_FULL || l.n == limit;
	if (rc == 0 && l.n == 0) {
		/* The job has no events, or it does not exist. */
		struct sl_job *job = NULL;
		rc = sl_jobs_get(api->core->jobs, id, &job, &err);
		sl_job_release(api->core->jobs, job);
	}
	srv_out_close(&l.out, ']');
	srv_out_known(&l.out, "next_after", more, (int64_t)l.last);
	srv_out_close(&l.out, '}');
	srv_out_answer(r, 200, &l.out, rc < 0 ? &err : NULL);
}
