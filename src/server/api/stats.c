/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Totals, rates and the time to pick up. One thread queries the store, every second while a client reads the numbers and
 * every ten seconds otherwise, and never for more than a twentieth of the time. Requests get the last sample.
 * Rates are the differences of two counts. What retention has deleted in between is added; jobs that a person deletes do not
 * count as ended.
 */
#include "base/thread.h"
#include "base/time.h"
#include "jobs/store/ops.h"
#include "server/api/api.h"
#include "server/config/config.h"
#include "server/ingest/ingest.h"
#include "server/metrics.h"

#include <sluice/retention.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MS 1000
#define IDLE_TICK_MS 10000
#define LOOKED_MS 15000 /* a client reads when the last request is at most this old */
#define MINUTE_MS 60000
#define KEPT 64
#define WAIT_MS 5000     /* for a fresh sample */
#define PICKUPS 500      /* newest jobs that are read */
#define STREAMS_MAX 1000 /* event streams that are summed up */
#define REST 20          /* times as long as the last sample took, before the next, … */
#define REST_MS 20000    /* … but not longer: a machine that stalled once is not always slow */

struct stream;

/* The numbers of the store as they were last counted, by one thread for all who ask. */
struct sample {
	int64_t now_ms;  /* of the store's clock */
	int64_t mono_ms; /* when it was taken */
	uint64_t by[SL_JOB_STATUS_COUNT + 1];
	uint64_t due, retrying, newest_id;
	int64_t oldest_due_ms; /* since when the oldest of the due could run; 0: none is */
	uint64_t workers, leases;
	int64_t p50_ms, p99_ms; /* from due to started, of jobs that started in the last minute; -1: none did */
	/* A second, over the last minute. */
	double enqueued, started, completed, failed;
	struct sl_retention_status retention;
};

struct srv_stats {
	struct srv_core *core;
	struct srv_letters *letters;
	struct { /* the same for collectors, also of what workers on other machines do */
		sl_gauge *jobs[SL_JOB_STATUS_COUNT + 1];
		sl_gauge *due, *oldest_due, *leases, *letters;
	} metrics;
	sl__mutex mu;
	sl__cond changed;
	struct sample kept[KEPT]; /* a ring */
	size_t n;                 /* ever taken */
	int64_t looked_ms;
	int64_t rest_until_ms; /* the store is not asked before */
	bool asked;            /* a request waits for a sample */
	bool stop, started;
	struct sl_err err; /* of the last try; code 0: it went well */
	uint64_t tries;
	struct srv_history history; /* the thread's */
	uint64_t newest_id;         /* the thread's: ever seen */
	int64_t pruned_ms;          /* the thread's: when the audit trail was last pruned */
	pthread_t thread;
	struct stream *streams;
};

/* ---- taking a sample ---- */

static int add_to_sample(const struct sl_job_count *c, void *ctx)
{
	struct sample *s = ctx;
	s->by[c->status] += c->count;
	s->due += c->due;
	s->retrying += c->retrying;
	if (c->oldest_due_ms != 0 && (s->oldest_due_ms == 0 || c->oldest_due_ms < s->oldest_due_ms))
		s->oldest_due_ms = c->oldest_due_ms;
	return 0;
}

static int add_worker(const struct sl_worker_info *w, void *ctx)
{
	struct sample *s = ctx;
	s->workers++;
	s->leases += w->leases;
	return 0;
}

struct pickups {
	struct sample *sample;
	int64_t ms[PICKUPS];
	size_t n;
};

/* Only first attempts: the time of a later one is moved by its retry. */
static int add_pickup(const struct sl_job *job, void *ctx)
{
	struct pickups *p = ctx;
	if (job->id > p->sample->newest_id)
		p->sample->newest_id = job->id;
	int64_t due_ms = job->scheduled_ms > job->created_ms ? job->scheduled_ms : job->created_ms;
	bool started = job->started_ms != 0 && job->started_ms > p->sample->now_ms - MINUTE_MS && job->attempt <= 1 &&
		       job->blockers_open == 0;
	if (started && p->n < PICKUPS)
		p->ms[p->n++] = job->started_ms > due_ms ? job->started_ms - due_ms : 0;
	return 0;
}

static int by_value(const void *a, const void *b)
{
	int64_t l = *(const int64_t *)a, r = *(const int64_t *)b;
	return (l > r) - (l < r);
}

static int take_sample(struct srv_stats *s, struct sample *out, struct sl_err *err)
{
	const sl_store *store = s->core->store;
	*out = (struct sample){.p50_ms = -1, .p99_ms = -1};
	int rc = store->ops->now_ms(store->ctx, &out->now_ms, err);
	if (rc != 0)
		return rc;
	/* Before the counts: a step in between lets the sum fall short for one sample, and is never counted twice. */
	rc = sl_retention_get(store, &out->retention, err);
	if (rc != 0)
		return rc;
	rc = sl_jobs_counts(s->core->jobs, add_to_sample, out, err);
	if (rc != 0)
		return rc;
	rc = sl_jobs_workers(s->core->jobs, add_worker, out, err);
	if (rc != 0)
		return rc;

	/* How long the newest jobs waited. */
	struct sl_job_filter f = {SL_JOB_FILTER_INIT, .limit = PICKUPS, .without_data = true};
	struct pickups *p = calloc(1, sizeof(*p));
	if (p == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	p->sample = out;
	rc = sl_jobs_list(s->core->jobs, &f, add_pickup, p, err);
	/* The newest one may have been deleted since. */
	s->newest_id = out->newest_id = SL_MAX(s->newest_id, out->newest_id);
	qsort(p->ms, p->n, sizeof(*p->ms), by_value);
	out->p50_ms = p->n > 0 ? p->ms[p->n / 2] : -1;
	out->p99_ms = p->n > 0 ? p->ms[p->n * 99 / 100] : -1;
	free(p);
	out->mono_ms = sl__clock_ms();
	return rc;
}

/* Jobs that have completed, or failed, since the store was created. */
static uint64_t completed_ever(const struct sample *s)
{
	return s->by[SL_JOB_COMPLETED] + s->retention.completed_jobs;
}

static uint64_t failed_ever(const struct sample *s)
{
	return s->by[SL_JOB_FAILED] + s->retention.failed_jobs;
}

static double per_second(uint64_t now, uint64_t then, int64_t ms)
{
	return now > then && ms > 0 ? (double)(now - then) * 1000.0 / (double)ms : 0.0;
}

/* ---- streams ---- */

struct stream {
	struct stream *next, **at; /* NULL at: not in the list */
	struct srv_stats *stats;
	srv_stream *s;
	size_t seen; /* number of the sample that was sent */
	char *last;  /* what was sent, without the time */
	char *text;  /* what is being sent */
	size_t len, sent;
};

/* ---- the thread ---- */

/* What follows a sample without the lock: the metrics, the history, and once a day the audit trail is pruned. A store
 * that is unavailable is tried again with the next sample. */
static void publish_sample(struct srv_stats *s, const struct sample *x, int64_t now_ms)
{
	int64_t letters = srv_letters_waiting(s->letters);
	bool waits = x->oldest_due_ms != 0 && x->oldest_due_ms < x->now_ms;
	for (enum sl_job_status status = SL_JOB_BLOCKED; status <= SL_JOB_CANCELLED; status++)
		sl_gauge_set(s->metrics.jobs[status], (double)x->by[status]);
	sl_gauge_set(s->metrics.due, (double)x->due);
	sl_gauge_set(s->metrics.oldest_due, waits ? (double)(x->now_ms - x->oldest_due_ms) / 1000 : 0);
	sl_gauge_set(s->metrics.leases, (double)x->leases);
	if (letters >= 0) /* else the last value stays */
		sl_gauge_set(s->metrics.letters, (double)letters);

	struct sl_history_row row = {.taken_ms = x->now_ms,
				     .newest_id = x->newest_id,
				     .completed = completed_ever(x),
				     .failed = failed_ever(x),
				     .due = x->due,
				     .running = x->by[SL_JOB_RUNNING],
				     .p50_ms = x->p50_ms,
				     .p99_ms = x->p99_ms};
	srv_history_put(&s->history, s->core, &row);

	struct sl_err err = SL_ERR_INIT;
	uint64_t n = 0;
	int64_t keep_ms = s->core->config->server_audit_retention_days * SRV_DAY_MS;
	if ((s->pruned_ms == 0 || now_ms - s->pruned_ms >= SRV_DAY_MS) &&
	    sl_jobs_audit_prune(s->core->jobs, keep_ms, &n, &err) == 0)
		s->pruned_ms = now_ms;
}

/* With the lock: rates against the oldest sample of the last minute; then the sample is the newest. */
static void keep_sample(struct srv_stats *s, struct sample *x)
{
	const struct sample *old = NULL;
	size_t have = s->n < KEPT ? s->n : KEPT;
	for (size_t i = 1; i <= have; i++) {
		const struct sample *k = &s->kept[(s->n - i) % KEPT];
		if (x->mono_ms - k->mono_ms > MINUTE_MS + TICK_MS)
			break;
		old = k;
	}
	if (old != NULL) {
		int64_t ms = x->mono_ms - old->mono_ms;
		uint64_t ended = completed_ever(x) + failed_ever(x),
			 ended_then = completed_ever(old) + failed_ever(old);
		x->enqueued = per_second(x->newest_id, old->newest_id, ms);
		x->completed = per_second(completed_ever(x), completed_ever(old), ms);
		x->failed = per_second(failed_ever(x), failed_ever(old), ms);
		x->started = per_second(ended + x->by[SL_JOB_RUNNING], ended_then + old->by[SL_JOB_RUNNING], ms);
	}
	s->kept[s->n++ % KEPT] = *x;
	for (struct stream *stream = s->streams; stream != NULL; stream = stream->next) {
		if (stream->s != NULL)
			srv_stream_wake(stream->s);
	}
}

static void *stats_main(void *arg)
{
	struct srv_stats *s = arg;
	sl__lock(&s->mu);
	while (!s->stop) {
		struct sl_err err = SL_ERR_INIT;
		struct sample x;
		sl__unlock(&s->mu);
		int64_t began = sl__clock_ms();
		int rc = take_sample(s, &x, &err);
		int64_t ended = sl__clock_ms(), rest_ms = SL_MIN((ended - began) * REST, REST_MS);
		if (rc == 0)
			publish_sample(s, &x, began);
		sl__lock(&s->mu);
		s->err = rc != 0 ? err : (struct sl_err)SL_ERR_INIT;
		s->tries++;
		s->asked = false;
		if (rc == 0)
			keep_sample(s, &x);
		sl__broadcast(&s->changed);

		/* Rest, the longer the more the sample cost; a request may end it, but not before the minimum. */
		int64_t now = sl__clock_ms(), from = now, until;
		s->rest_until_ms = from + rest_ms;
		do {
			bool watched = s->streams != NULL || now - s->looked_ms < LOOKED_MS;
			until = SL_MAX(from + (watched ? TICK_MS : IDLE_TICK_MS), s->rest_until_ms);
			if (s->stop || now >= until || (s->asked && now >= s->rest_until_ms))
				break;
			(void)sl__wait_until_ms(&s->changed, &s->mu, until);
			now = sl__clock_ms();
		} while (true);
	}
	sl__unlock(&s->mu);
	return NULL;
}

/* ---- requests ---- */

/* The last one, taken now if this is the first. */
static int newest_sample(struct srv_stats *s, struct sample *out, struct sl_err *err)
{
	int rc = 0;
	sl__lock(&s->mu);
	/* A sample that is too old is replaced first, unless the store must rest. */
	uint64_t tries = s->tries;
	int64_t now = sl__clock_ms();
	bool old = s->n == 0 || (now - s->kept[(s->n - 1) % KEPT].mono_ms > 2 * TICK_MS && now >= s->rest_until_ms);
	s->looked_ms = now;
	if (old) {
		s->asked = true;
		sl__broadcast(&s->changed);
	}
	while (old && s->tries == tries && !s->stop && sl__clock_ms() < now + WAIT_MS)
		(void)sl__wait_until_ms(&s->changed, &s->mu, now + WAIT_MS);
	if (s->n > 0) {
		*out = s->kept[(s->n - 1) % KEPT];
	} else if (s->err.code != 0) {
		rc = s->err.code;
		if (err != NULL)
			*err = s->err;
	} else {
		rc = sl_err_set(err, SL_EAGAIN, "no counts yet; try again");
	}
	sl__unlock(&s->mu);
	return rc;
}

static void out_retention(struct srv_out *o, const struct sl_retention_status *r)
{
	srv_out_begin(o, "retention", '{');
	srv_out_known(o, "completed_ms", r->keep.completed_ms >= 0, r->keep.completed_ms);
	srv_out_known(o, "failed_ms", r->keep.failed_ms >= 0, r->keep.failed_ms);
	srv_out_known(o, "events_ms", r->keep.events_ms >= 0, r->keep.events_ms);
	srv_out_known(o, "lines_ms", r->keep.lines_ms >= 0, r->keep.lines_ms);
	srv_out_known(o, "exported", r->exports, (int64_t)r->exported);
	SRV_FIELD(o, "deleted_chains", int, (int64_t)r->chains);
	SRV_FIELD(o, "deleted_events", int, (int64_t)r->events);
	SRV_FIELD(o, "deleted_at", time, r->deleted_ms);
	srv_out_close(o, '}');
}

static void out_sample(struct srv_out *o, const struct sample *x)
{
	srv_out_begin(o, "totals", '{');
	for (enum sl_job_status s = SL_JOB_BLOCKED; s <= SL_JOB_CANCELLED; s++)
		SRV_FIELD(o, sl_job_status_name(s), int, (int64_t)x->by[s]);
	srv_out_close(o, '}');
	SRV_FIELD(o, "ready", int, (int64_t)x->due);
	SRV_FIELD(o, "scheduled", int, (int64_t)(x->by[SL_JOB_PENDING] - x->due - x->retrying));
	SRV_FIELD(o, "retrying", int, (int64_t)x->retrying);
	srv_out_begin(o, "rates", '{');
	SRV_FIELD(o, "enqueued", real, x->enqueued);
	SRV_FIELD(o, "started", real, x->started);
	SRV_FIELD(o, "completed", real, x->completed);
	SRV_FIELD(o, "failed", real, x->failed);
	srv_out_close(o, '}');
	srv_out_begin(o, "pickup_ms", '{');
	srv_out_known(o, "p50", x->p50_ms >= 0, x->p50_ms);
	srv_out_known(o, "p99", x->p99_ms >= 0, x->p99_ms);
	srv_out_close(o, '}');
	SRV_FIELD(o, "oldest_due_at", time, x->oldest_due_ms);
	SRV_FIELD(o, "workers", int, (int64_t)x->workers);
	out_retention(o, &x->retention);
}

void srv_stats_show(srv_request *r, void *ctx)
{
	struct srv_api *api = ctx;
	struct sl_err err = SL_ERR_INIT;
	struct sample x;
	struct srv_out o = {0};
	if (!srv_in_query(r, NULL))
		return;
	if (newest_sample(api->stats, &x, &err) != 0) {
		srv_fail(r, &err);
		return;
	}
	srv_out_open(&o, '{');
	SRV_FIELD(&o, "now", time, x.now_ms);
	out_sample(&o, &x);
	srv_out_close(&o, '}');
	srv_out_answer(r, 200, &o, NULL);
}

/* ---- the data flow in numbers, stage by stage: jobs, workers, log, coordinator, events ---- */

struct stream_sums {
	uint64_t n, taken;
	int64_t last_ms;
};

static int sum_stream(const struct sl_event_stream *s, void *ctx)
{
	struct stream_sums *all = ctx;
	all->n++;
	all->taken += s->mark;
	all->last_ms = s->last_ms > all->last_ms ? s->last_ms : all->last_ms;
	return 0;
}

void srv_pipeline_show(srv_request *r, void *ctx)
{
	struct srv_api *api = ctx;
	struct sl_coordinator_health health = {.struct_size = sizeof(health)};
	struct stream_sums streams = {0};
	struct sl_err err = SL_ERR_INIT;
	struct sample x;
	struct srv_out o = {0};
	if (!srv_in_query(r, NULL))
		return;
	const struct srv_ingest *ingest = api->core->ingest;
	int rc = newest_sample(api->stats, &x, &err);
	if (rc == 0)
		rc = sl_jobs_event_streams(api->core->jobs, NULL, STREAMS_MAX, sum_stream, &streams, &err);
	if (rc == 0 && ingest != NULL && (rc = sl_coordinator_get_health(ingest->coordinator, &health)) != 0)
		(void)sl_err_set(&err, rc, "health of the coordinator");
	if (rc != 0) {
		srv_fail(r, &err);
		return;
	}
	srv_out_open(&o, '{');
	SRV_FIELD(&o, "now", time, x.now_ms);
	srv_out_begin(&o, "stages", '[');
	/* The job queue and its workers. */
	srv_out_open(&o, '{');
	SRV_FIELD(&o, "name", str, "jobs");
	SRV_FIELD(&o, "pending", int, (int64_t)x.by[SL_JOB_PENDING]);
	SRV_FIELD(&o, "ready", int, (int64_t)x.due);
	SRV_FIELD(&o, "scheduled", int, (int64_t)(x.by[SL_JOB_PENDING] - x.due - x.retrying));
	SRV_FIELD(&o, "retrying", int, (int64_t)x.retrying);
	SRV_FIELD(&o, "blocked", int, (int64_t)x.by[SL_JOB_BLOCKED]);
	SRV_FIELD(&o, "failed", int, (int64_t)x.by[SL_JOB_FAILED]);
	SRV_FIELD(&o, "oldest_due_at", time, x.oldest_due_ms);
	SRV_FIELD(&o, "enqueued_per_s", real, x.enqueued);
	srv_out_close(&o, '}');
	srv_out_open(&o, '{');
	SRV_FIELD(&o, "name", str, "workers");
	SRV_FIELD(&o, "workers", int, (int64_t)x.workers);
	SRV_FIELD(&o, "leases", int, (int64_t)x.leases);
	SRV_FIELD(&o, "running", int, (int64_t)x.by[SL_JOB_RUNNING]);
	SRV_FIELD(&o, "started_per_s", real, x.started);
	SRV_FIELD(&o, "completed_per_s", real, x.completed);
	SRV_FIELD(&o, "failed_per_s", real, x.failed);
	srv_out_close(&o, '}');
	/* The logs on their way here. */
	srv_out_open(&o, '{');
	SRV_FIELD(&o, "name", str, "log");
	SRV_FIELD(&o, "streams", int, (int64_t)streams.n);
	SRV_FIELD(&o, "taken", int, (int64_t)streams.taken);
	SRV_FIELD(&o, "last_at", time, streams.last_ms);
	srv_out_close(&o, '}');
	srv_out_open(&o, '{');
	SRV_FIELD(&o, "name", str, "coordinator");
	SRV_FIELD(&o, "depth", int, (int64_t)health.queue_size);
	SRV_FIELD(&o, "capacity", int, (int64_t)health.capacity);
	SRV_FIELD(&o, "high", int, ingest != NULL ? (int64_t)ingest->high : 0);
	SRV_FIELD(&o, "low", int, ingest != NULL ? (int64_t)ingest->low : 0);
	SRV_FIELD(&o, "breaker", str, srv_breaker_name(health.breaker));
	SRV_FIELD(&o, "concurrency", int, health.concurrency);
	SRV_FIELD(&o, "in_flight", int, (int64_t)health.in_flight);
	SRV_FIELD(&o, "retrying", int, (int64_t)health.retrying);
	SRV_FIELD(&o, "accepted", int, (int64_t)health.accepted);
	int64_t letters = srv_letters_waiting(api->letters);
	srv_out_known(&o, "dead_letters_waiting", letters >= 0, letters);
	srv_out_close(&o, '}');
	srv_out_open(&o, '{');
	SRV_FIELD(&o, "name", str, "events");
	SRV_FIELD(&o, "written", int, (int64_t)health.written);
	SRV_FIELD(&o, "batches", int, (int64_t)health.batches);
	SRV_FIELD(&o, "refused", int, (int64_t)health.dead_letters);
	srv_out_close(&o, '}');
	srv_out_close(&o, ']');
	srv_out_close(&o, '}');
	srv_out_answer(r, 200, &o, NULL);
}

/* ---- following ---- */

/* Make the next event, when the numbers have changed. */
static void next_stats_event(struct stream *x, const struct sample *sample)
{
	struct srv_out body = {0}, o = {0};
	srv_out_open(&body, '{');
	out_sample(&body, sample);
	srv_out_close(&body, '}');
	char *last = sl__buf_take(&body.text);
	if (last == NULL || (x->last != NULL && strcmp(x->last, last) == 0)) {
		srv_out_free(&body);
		free(last);
		return;
	}
	free(x->last);
	x->last = last;
	srv_out_open(&o, '{');
	SRV_FIELD(&o, "now", time, sample->now_ms);
	char *text = NULL;
	int n = o.text.failed ? -1 : asprintf(&text, "event: stats\ndata: %s,%s\n\n", sl__buf_str(&o.text), last + 1);
	srv_out_free(&o);
	x->text = n > 0 ? text : NULL;
	x->len = n > 0 ? (size_t)n : 0;
	x->sent = 0;
}

static ssize_t fill_stats_stream(srv_stream *s, char *buf, size_t cap, void *ctx)
{
	struct stream *x = ctx;
	struct srv_stats *stats = x->stats;
	struct sample sample;
	bool fresh = false;
	sl__lock(&stats->mu);
	x->s = s;
	if (x->text == NULL && stats->n != x->seen && stats->n > 0) {
		sample = stats->kept[(stats->n - 1) % KEPT];
		x->seen = stats->n;
		fresh = true;
	}
	sl__unlock(&stats->mu);
	if (fresh)
		next_stats_event(x, &sample);
	if (x->text == NULL)
		return 0;
	size_t n = x->len - x->sent < cap ? x->len - x->sent : cap;
	memcpy(buf, x->text + x->sent, n);
	x->sent += n;
	if (x->sent == x->len) {
		free(x->text);
		x->text = NULL;
	}
	return (ssize_t)n;
}

static void end_stats_stream(void *ctx)
{
	struct stream *x = ctx;
	sl__lock(&x->stats->mu);
	*x->at = x->next;
	if (x->next != NULL)
		x->next->at = x->at;
	sl__unlock(&x->stats->mu);
	free(x->last);
	free(x->text);
	free(x);
}

void srv_stats_stream(srv_request *r, void *ctx)
{
	static const struct srv_stream_ops ops = {fill_stats_stream, end_stats_stream};
	struct srv_api *api = ctx;
	struct srv_stats *s = api->stats;
	if (!srv_in_query(r, NULL))
		return;
	struct stream *x = calloc(1, sizeof(*x));
	if (x == NULL) {
		srv_error(r, 500, "internal", "out of memory");
		return;
	}
	x->stats = s;
	sl__lock(&s->mu);
	x->next = s->streams;
	x->at = &s->streams;
	if (x->next != NULL)
		x->next->at = &x->next;
	s->streams = x;
	s->looked_ms = sl__clock_ms();
	sl__broadcast(&s->changed);
	sl__unlock(&s->mu);
	srv_stream_open(r, &ops, x);
}

/* ---- the whole ---- */

int srv_stats_new(struct srv_stats **out, struct srv_core *core, struct srv_letters *letters, struct sl_err *err)
{
	struct srv_stats *s = calloc(1, sizeof(*s));
	if (s == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	s->core = core;
	s->letters = letters;
	sl__mutex_init(&s->mu);
	sl__cond_init(&s->changed);
	*out = s;
	for (enum sl_job_status status = SL_JOB_BLOCKED; status <= SL_JOB_CANCELLED; status++) {
		const struct srv_metric of_status = {"sluice_server_jobs",
						     "Jobs in the store, on all workers.",
						     &s->metrics.jobs[status],
						     NULL,
						     {"status", sl_job_status_name(status)}};
		int rc = srv_metrics_make(core->metrics, &of_status, 1, err);
		if (rc != 0)
			return rc;
	}
	const struct srv_metric metrics[] = {
		{"sluice_server_jobs_due", "Jobs that are due and wait for a worker.", .gauge = &s->metrics.due},
		{"sluice_server_jobs_oldest_due_seconds", "Age of the oldest job that is due; 0 if no job is due.",
		 .gauge = &s->metrics.oldest_due},
		{"sluice_server_leases", "Leases in force, on all workers of the store.", .gauge = &s->metrics.leases},
		{"sluice_server_dead_letters", "Dead letters on this machine that were neither redriven nor discarded.",
		 .gauge = &s->metrics.letters},
	};
	int rc = srv_metrics_make(core->metrics, metrics, SL_COUNT(metrics), err);
	if (rc != 0)
		return rc;
	int failed = sl__thread_start(&s->thread, "sl-stats", stats_main, s);
	s->started = failed == 0;
	return failed != 0 ? sl__thread_error(err, failed, "stats", "the server") : 0;
}

void srv_stats_free(struct srv_stats *s)
{
	if (s == NULL)
		return;
	sl__lock(&s->mu);
	s->stop = true;
	sl__broadcast(&s->changed);
	sl__unlock(&s->mu);
	if (s->started)
		(void)pthread_join(s->thread, NULL);
	sl__cond_fini(&s->changed);
	sl__mutex_fini(&s->mu);
	free(s);
}
