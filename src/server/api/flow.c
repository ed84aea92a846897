/* SPDX-License-Identifier: Apache-2.0 */
/* The flow in numbers, stage by stage: jobs, workers, log, coordinator, events. */
#include "server/api/stats.h"

#include "server/ingest/ingest.h"

#define STREAMS_MAX 1000

struct streams {
	uint64_t n, taken;
	int64_t last_ms;
};

static int add_stream(const struct sl_event_stream *s, void *ctx)
{
	struct streams *all = ctx;
	all->n++;
	all->taken += s->mark;
	all->last_ms = s->last_ms > all->last_ms ? s->last_ms : all->last_ms;
	return 0;
}

static void begin(struct srv_out *o, const char *name)
{
	srv_out_open(o, '{');
	SRV_FIELD(o, "name", str, name);
}

static const char *breaker_name(enum sl_breaker_state state)
{
	return state == SL_BREAKER_OPEN ? "open" : state == SL_BREAKER_CLOSED ? "closed" : "half_open";
}

static void out_coordinator(struct srv_out *o, struct srv_api *api, const struct sl_coordinator_health *h)
{
	int64_t letters = srv_letters_waiting(api->letters);
	begin(o, "coordinator");
	SRV_FIELD(o, "depth", int, (int64_t)h->queue_size);
	SRV_FIELD(o, "capacity", int, (int64_t)h->capacity);
	SRV_FIELD(o, "high", int, api->core->ingest != NULL ? (int64_t)api->core->ingest->high : 0);
	SRV_FIELD(o, "low", int, api->core->ingest != NULL ? (int64_t)api->core->ingest->low : 0);
	SRV_FIELD(o, "breaker", str, breaker_name(h->breaker));
	SRV_FIELD(o, "concurrency", int, h->concurrency);
	SRV_FIELD(o, "in_flight", int, (int64_t)h->in_flight);
	SRV_FIELD(o, "retrying", int, (int64_t)h->retrying);
	SRV_FIELD(o, "accepted", int, (int64_t)h->accepted);
	srv_out_name(o, "dead_letters_waiting");
	if (letters >= 0)
		srv_out_int(o, letters);
	else
		srv_out_raw(o, NULL);
	srv_out_close(o, '}');
	begin(o, "events");
	SRV_FIELD(o, "written", int, (int64_t)h->written);
	SRV_FIELD(o, "batches", int, (int64_t)h->batches);
	SRV_FIELD(o, "refused", int, (int64_t)h->dead_letters);
	srv_out_close(o, '}');
}

void srv_river_show(srv_request *r, void *ctx)
{
	static const char *const none[] = {NULL};
	struct srv_api *api = ctx;
	struct sl_coordinator_health health = {.struct_size = sizeof(health)};
	struct streams streams = {0};
	struct sl_err err = SL_ERR_INIT;
	struct srv_sample x;
	struct srv_out o = {0};
	if (!srv_in_query(r, none))
		return;
	int rc = srv_stats_get(api->stats, &x, &err);
	rc = rc != 0 ? rc : sl_jobs_event_streams(api->core->jobs, NULL, STREAMS_MAX, add_stream, &streams, &err);
	if (rc == 0 && api->core->ingest != NULL &&
	    (rc = sl_coordinator_get_health(api->core->ingest->coordinator, &health)) != 0)
		(void)sl_err_set(&err, rc, "the coordinator's health");
	if (rc != 0) {
		srv_fail(r, &err);
		return;
	}
	srv_out_open(&o, '{');
	SRV_FIELD(&o, "now", time, x.now_ms);
	srv_out_name(&o, "stages");
	srv_out_open(&o, '[');
	/* The job queue and its workers. */
	begin(&o, "jobs");
	SRV_FIELD(&o, "pending", int, (int64_t)x.by[SL_JOB_PENDING]);
	SRV_FIELD(&o, "due", int, (int64_t)x.due);
	SRV_FIELD(&o, "retrying", int, (int64_t)x.retrying);
	SRV_FIELD(&o, "blocked", int, (int64_t)x.by[SL_JOB_BLOCKED]);
	SRV_FIELD(&o, "failed", int, (int64_t)x.by[SL_JOB_FAILED]);
	SRV_FIELD(&o, "oldest_due_at", time, x.oldest_due_ms);
	SRV_FIELD(&o, "enqueued_per_s", real, x.enqueued);
	srv_out_close(&o, '}');
	begin(&o, "workers");
	SRV_FIELD(&o, "workers", int, (int64_t)x.workers);
	SRV_FIELD(&o, "leases", int, (int64_t)x.leases);
	SRV_FIELD(&o, "running", int, (int64_t)x.by[SL_JOB_RUNNING]);
	SRV_FIELD(&o, "started_per_s", real, x.started);
	SRV_FIELD(&o, "completed_per_s", real, x.completed);
	SRV_FIELD(&o, "failed_per_s", real, x.failed);
	srv_out_close(&o, '}');
	/* The logs on their way here. */
	begin(&o, "log");
	SRV_FIELD(&o, "streams", int, (int64_t)streams.n);
	SRV_FIELD(&o, "taken", int, (int64_t)streams.taken);
	SRV_FIELD(&o, "last_at", time, streams.last_ms);
	srv_out_close(&o, '}');
	out_coordinator(&o, api, &health);
	srv_out_close(&o, ']');
	srv_out_close(&o, '}');
	srv_out_answer(r, 200, &o);
}
