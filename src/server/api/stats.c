/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Totals, rates and the time to pick up. One thread asks the store, every second while a client
 * reads the numbers and every ten seconds otherwise, and never for more than a twentieth of the time. Requests get the
 * last sample.
 * Rates are the differences of two counts: what is deleted in between is not seen as ended.
 */
#include "server/api/stats.h"
#include "base/thread.h"
#include "base/time.h"
#include "server/config/config.h"

#include <inttypes.h>
#include <pthread.h>
#include <sluice/metrics.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TICK_MS 1000
#define IDLE_TICK_MS 10000
#define LOOKED_MS 15000 /* a client reads when the last request is at most this old */
#define MINUTE_MS 60000
#define KEPT 64
#define WAIT_MS 5000  /* for a fresh sample */
#define PICKUPS 500   /* newest jobs that are read */
#define REST 20       /* times as long as the last sample took, before the next, … */
#define REST_MS 20000 /* … but not longer: a machine that stalled once is not always slow */

static int srv_stats_metrics_init(struct srv_stats_metrics *m, sl_metrics *metrics, struct sl_err *err)
{
	int rc = 0;
	for (enum sl_job_status s = SL_JOB_BLOCKED; rc == 0 && s <= SL_JOB_CANCELLED; s++) {
		struct sl_metric_label status = {.name = "status", .value = sl_job_status_name(s)};
		rc = sl_metrics_gauge(metrics, "sluice_server_jobs", "Jobs in the store, on any worker.", &status, 1,
				      &m->jobs[s], err);
	}
	rc = rc != 0 ? rc
		     : sl_metrics_gauge(metrics, "sluice_server_jobs_due", "Jobs that could run and wait for a worker.",
					NULL, 0, &m->due, err);
	rc = rc != 0 ? rc
		     : sl_metrics_gauge(metrics, "sluice_server_jobs_oldest_due_seconds",
					"How long the oldest of these has waited; 0: none does.", NULL, 0,
					&m->oldest_due, err);
	rc = rc != 0 ? rc
		     : sl_metrics_gauge(metrics, "sluice_server_leases",
					"Leases in force, of all workers of the store.", NULL, 0, &m->leases, err);
	return rc != 0 ? rc
		       : sl_metrics_gauge(metrics, "sluice_server_dead_letters",
					  "Dead letters of this machine that were neither redriven nor discarded.",
					  NULL, 0, &m->letters, err);
}

/* letters: as srv_letters_waiting; -1 keeps the last value. */
static void srv_stats_metrics_set(const struct srv_stats_metrics *m, const struct srv_sample *x, int64_t letters)
{
	bool waits = x->oldest_due_ms != 0 && x->oldest_due_ms < x->now_ms;
	for (enum sl_job_status s = SL_JOB_BLOCKED; s <= SL_JOB_CANCELLED; s++)
		sl_gauge_set(m->jobs[s], (double)x->by[s]);
	sl_gauge_set(m->due, (double)x->due);
	sl_gauge_set(m->oldest_due, waits ? (double)(x->now_ms - x->oldest_due_ms) / 1000 : 0);
	sl_gauge_set(m->leases, (double)x->leases);
	if (letters >= 0)
		sl_gauge_set(m->letters, (double)letters);
}

struct stream;

struct srv_stats {
	struct srv_core *core;
	struct srv_letters *letters;
	struct srv_stats_metrics metrics;
	sl__mutex mu;
	sl__cond changed;
	struct srv_sample kept[KEPT]; /* a ring */
	size_t n;                     /* ever taken */
	int64_t looked_ms;
	int64_t rest_until_ms; /* the store is not asked before */
	bool asked;            /* a request waits for a sample */
	bool stop, started;
	struct sl_err err; /* of the last try; code 0: it went well */
	uint64_t tries;
	int64_t pruned_ms; /* the thread's: when the audit trail was last pruned */
	pthread_t thread;
	struct stream *streams;
};

/* ---- taking a sample ---- */

static int add_count(const struct sl_job_count *c, void *ctx)
{
	struct srv_sample *s = ctx;
	s->by[c->status] += c->count;
	s->due += c->due;
	s->retrying += c->retrying;
	if (c->oldest_due_ms != 0 && (s->oldest_due_ms == 0 || c->oldest_due_ms < s->oldest_due_ms))
		s->oldest_due_ms = c->oldest_due_ms;
	return 0;
}

static int add_worker(const struct sl_worker_info *w, void *ctx)
{
	struct srv_sample *s = ctx;
	s->workers++;
	s->leases += w->leases;
	return 0;
}

struct pickups {
	struct srv_sample *sample;
	int64_t ms[PICKUPS];
	size_t n;
};

static int64_t due_since(const struct sl_job *job)
{
	return job->scheduled_ms > job->created_ms ? job->scheduled_ms : job->created_ms;
}

/* Only first attempts: the time of a later one is moved by its retry. */
static int add_pickup(const struct sl_job *job, void *ctx)
{
	struct pickups *p = ctx;
	if (job->id > p->sample->newest_id)
		p->sample->newest_id = job->id;
	bool started = job->started_ms != 0 && job->started_ms > p->sample->now_ms - MINUTE_MS && job->attempt <= 1 &&
		       job->blockers_open == 0;
	if (started && p->n < PICKUPS)
		p->ms[p->n++] = job->started_ms > due_since(job) ? job->started_ms - due_since(job) : 0;
	return 0;
}

static int by_value(const void *a, const void *b)
{
	int64_t l = *(const int64_t *)a, r = *(const int64_t *)b;
	return (l > r) - (l < r);
}

static int sample_pickups(struct srv_stats *s, struct srv_sample *out, struct sl_err *err)
{
	struct sl_job_filter f = {.limit = PICKUPS, .without_data = 1};
	struct pickups *p = calloc(1, sizeof(*p));
	if (p == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	p->sample = out;
	int rc = sl_jobs_list(s->core->jobs, &f, add_pickup, p, err);
	qsort(p->ms, p->n, sizeof(*p->ms), by_value);
	out->p50_ms = p->n > 0 ? p->ms[p->n / 2] : -1;
	out->p99_ms = p->n > 0 ? p->ms[p->n * 99 / 100] : -1;
	free(p);
	return rc;
}

static int take(struct srv_stats *s, struct srv_sample *out, struct sl_err *err)
{
	const sl_store *store = s->core->store;
	*out = (struct srv_sample){.p50_ms = -1, .p99_ms = -1};
	int rc = store->ops->now_ms(store->ctx, &out->now_ms, err);
	rc = rc != 0 ? rc : sl_jobs_counts(s->core->jobs, add_count, out, err);
	rc = rc != 0 ? rc : sl_jobs_workers(s->core->jobs, add_worker, out, err);
	rc = rc != 0 ? rc : sample_pickups(s, out, err);
	out->mono_ms = sl__clock_ms();
	return rc;
}

static double per_second(uint64_t now, uint64_t then, int64_t ms)
{
	return now > then && ms > 0 ? (double)(now - then) * 1000.0 / (double)ms : 0.0;
}

/* Against the oldest sample of the last minute. */
static void add_rates(const struct srv_stats *s, struct srv_sample *x)
{
	const struct srv_sample *old = NULL;
	size_t have = s->n < KEPT ? s->n : KEPT;
	for (size_t i = 1; i <= have; i++) {
		const struct srv_sample *k = &s->kept[(s->n - i) % KEPT];
		if (x->mono_ms - k->mono_ms > MINUTE_MS + TICK_MS)
			break;
		old = k;
	}
	if (old == NULL)
		return;
	int64_t ms = x->mono_ms - old->mono_ms;
	uint64_t ended = x->by[SL_JOB_COMPLETED] + x->by[SL_JOB_FAILED],
		 ended_then = old->by[SL_JOB_COMPLETED] + old->by[SL_JOB_FAILED];
	x->enqueued = per_second(x->newest_id, old->newest_id, ms);
	x->completed = per_second(x->by[SL_JOB_COMPLETED], old->by[SL_JOB_COMPLETED], ms);
	x->failed = per_second(x->by[SL_JOB_FAILED], old->by[SL_JOB_FAILED], ms);
	x->started = per_second(ended + x->by[SL_JOB_RUNNING], ended_then + old->by[SL_JOB_RUNNING], ms);
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

static void wake_streams(struct srv_stats *s)
{
	for (struct stream *x = s->streams; x != NULL; x = x->next)
		if (x->s != NULL)
			srv_stream_wake(x->s);
}

/* ---- the thread ---- */

static void rest(struct srv_stats *s, int64_t took_ms) SL_REQUIRES(s->mu)
{
	int64_t began = sl__clock_ms(), least = took_ms * REST < REST_MS ? took_ms * REST : REST_MS;
	s->rest_until_ms = began + least;
	for (;;) {
		int64_t now = sl__clock_ms();
		bool watched = s->streams != NULL || now - s->looked_ms < LOOKED_MS;
		int64_t until = began + (watched ? TICK_MS : IDLE_TICK_MS);
		until = until < began + least ? began + least : until;
		if (s->stop || now >= until || (s->asked && now >= began + least))
			return;
		(void)sl__wait_until_ms(&s->changed, &s->mu, until);
	}
}

/* Once a day. What is too old for the audit trail goes; a store that does not answer is asked again the next time. */
static void prune_audit(struct srv_stats *s, int64_t now_ms)
{
	struct sl_err err = SL_ERR_INIT;
	uint64_t n = 0;
	if (s->pruned_ms != 0 && now_ms - s->pruned_ms < SRV_DAY_MS)
		return;
	int64_t keep_ms = s->core->config->server_audit_retention_days * SRV_DAY_MS;
	if (sl_jobs_audit_prune(s->core->jobs, keep_ms, &n, &err) == 0)
		s->pruned_ms = now_ms;
}

static void *run(void *arg)
{
	struct srv_stats *s = arg;
	sl__lock(&s->mu);
	while (!s->stop) {
		struct sl_err err = SL_ERR_INIT;
		struct srv_sample x;
		sl__unlock(&s->mu);
		int64_t began = sl__clock_ms();
		int rc = take(s, &x, &err);
		int64_t took = sl__clock_ms() - began;
		if (rc == 0)
			srv_stats_metrics_set(&s->metrics, &x, srv_letters_waiting(s->letters));
		if (rc == 0)
			prune_audit(s, began);
		sl__lock(&s->mu);
		s->err = rc != 0 ? err : (struct sl_err)SL_ERR_INIT;
		s->tries++;
		s->asked = false;
		if (rc == 0) {
			add_rates(s, &x);
			s->kept[s->n++ % KEPT] = x;
			wake_streams(s);
		}
		sl__broadcast(&s->changed);
		rest(s, took);
	}
	sl__unlock(&s->mu);
	return NULL;
}

/* ---- asking ---- */

/* The last sample, with the lock; one that is older than those who look would see is waited for to be replaced, unless
 * the store must rest. */
static int newest(struct srv_stats *s, struct srv_sample *out, struct sl_err *err) SL_REQUIRES(s->mu)
{
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
		return 0;
	}
	if (err != NULL && s->err.code != 0)
		*err = s->err;
	return s->err.code != 0 ? s->err.code : sl_err_set(err, SL_EAGAIN, "nothing was counted yet");
}

int srv_stats_get(struct srv_stats *s, struct srv_sample *out, struct sl_err *err)
{
	sl__lock(&s->mu);
	int rc = newest(s, out, err);
	sl__unlock(&s->mu);
	return rc;
}

static void out_latency(struct srv_out *o, const char *name, int64_t ms)
{
	srv_out_name(o, name);
	if (ms < 0)
		srv_out_raw(o, NULL);
	else
		srv_out_int(o, ms);
}

static void out_sample(struct srv_out *o, const struct srv_sample *x)
{
	srv_out_name(o, "totals");
	srv_out_open(o, '{');
	for (enum sl_job_status s = SL_JOB_BLOCKED; s <= SL_JOB_CANCELLED; s++)
		SRV_FIELD(o, sl_job_status_name(s), int, (int64_t)x->by[s]);
	srv_out_close(o, '}');
	SRV_FIELD(o, "due", int, (int64_t)x->due);
	SRV_FIELD(o, "retrying", int, (int64_t)x->retrying);
	srv_out_name(o, "rates");
	srv_out_open(o, '{');
	SRV_FIELD(o, "enqueued", real, x->enqueued);
	SRV_FIELD(o, "started", real, x->started);
	SRV_FIELD(o, "completed", real, x->completed);
	SRV_FIELD(o, "failed", real, x->failed);
	srv_out_close(o, '}');
	srv_out_name(o, "pickup_ms");
	srv_out_open(o, '{');
	out_latency(o, "p50", x->p50_ms);
	out_latency(o, "p99", x->p99_ms);
	srv_out_close(o, '}');
	SRV_FIELD(o, "oldest_due_at", time, x->oldest_due_ms);
	SRV_FIELD(o, "workers", int, (int64_t)x->workers);
}

void srv_stats_show(srv_request *r, void *ctx)
{
	static const char *const none[] = {NULL};
	struct srv_api *api = ctx;
	struct sl_err err = SL_ERR_INIT;
	struct srv_sample x;
	struct srv_out o = {0};
	if (!srv_in_query(r, none))
		return;
	if (srv_stats_get(api->stats, &x, &err) != 0) {
		srv_fail(r, &err);
		return;
	}
	srv_out_open(&o, '{');
	SRV_FIELD(&o, "now", time, x.now_ms);
	out_sample(&o, &x);
	srv_out_close(&o, '}');
	srv_out_answer(r, 200, &o);
}

/* ---- following ---- */

/* Make the next event, when the numbers have changed. */
static void next_event(struct stream *x, const struct srv_sample *sample)
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

static ssize_t fill(srv_stream *s, char *buf, size_t cap, void *ctx)
{
	struct stream *x = ctx;
	struct srv_stats *stats = x->stats;
	struct srv_sample sample;
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
		next_event(x, &sample);
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

static void done(void *ctx)
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
	static const struct srv_stream_ops ops = {fill, done};
	static const char *const none[] = {NULL};
	struct srv_api *api = ctx;
	struct srv_stats *s = api->stats;
	if (!srv_in_query(r, none))
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
	int rc = srv_stats_metrics_init(&s->metrics, core->metrics, err);
	if (rc != 0)
		return rc;
	s->started = sl__thread_start(&s->thread, "sl-stats", run, s) == 0;
	return s->started ? 0 : sl_err_set(err, SL_EAGAIN, "no thread to count with");
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
