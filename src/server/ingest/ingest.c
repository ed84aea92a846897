/* SPDX-License-Identifier: Apache-2.0 */
/* The receiver: its coordinator, and the handler that hands publishes over to it. See ingest.h. */
#include "server/ingest/ingest.h"

#include <events.pb-c.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/thread.h"
#include "base/time.h"
#include "server/config/config.h"
#include "server/http/net_text.h"
#include "server/metrics.h"

#define PUBLISH_PATH "/sluice.v1.JobEvents/PublishJobEvents"
#define FULL_MS 1000
#define CAPACITY 10000

/*
 * Answers to PublishJobEvents. A success is in the form of the request; an error is JSON, {"code","message"}, as
 * Connect has it, with the HTTP status of the code but for a refused event, which is 422 and names its sequence.
 */

#define ANSWER_BYTES 128
#define AGAIN_MS 1000

/* {"code":…,"message":…} */
static void answer_connect_error(srv_request *r, int status, const char *code, const char *message)
{
	char text[SL_ERR_MSG_BYTES];
	srv_utf8_copy(text, sizeof(text), message);
	srv_json(r, status, json_pack("{s:s,s:s}", "code", code, "message", text));
}

/* What follows takes the request out of p and answers it; nothing when another thread was first. */

static srv_request *take_request(struct srv_publish *p)
{
	return atomic_exchange(&p->request, NULL);
}

static void answer_refused(srv_request *r, uint64_t refused, const char *why)
{
	char text[24], message[SL_ERR_MSG_BYTES];
	(void)snprintf(text, sizeof(text), "%" PRIu64, refused);
	srv_utf8_copy(message, sizeof(message), why);
	srv_json(r, 422, json_pack("{s:s,s:s,s:s}", "code", "invalid_argument", "message", message, "refused", text));
}

static void answer_publish(struct srv_publish *p)
{
	srv_request *r = take_request(p);
	if (r == NULL)
		return;
	/* The mark, in the form of the request. */
	if (p->rc == 0) {
		Sluice__V1__PublishJobEventsResponse m;
		uint8_t bytes[ANSWER_BYTES];
		char text[ANSWER_BYTES];
		sluice__v1__publish_job_events_response__init(&m);
		m.mark = p->mark.sequence;
		m.mark_crc = p->mark.crc;
		m.mark_skipped = p->mark.kind == SL_WAL_MARK_SKIPPED && p->mark.sequence != 0;
		if (p->json) {
			int n = snprintf(text, sizeof(text), "{\"mark\":\"%" PRIu64 "\"", p->mark.sequence);
			if (p->mark.crc != 0)
				n += snprintf(text + n, sizeof(text) - (size_t)n, ",\"markCrc\":\"%" PRIu64 "\"",
					      p->mark.crc);
			n += snprintf(text + n, sizeof(text) - (size_t)n, "%s}",
				      m.mark_skipped ? ",\"markSkipped\":true" : "");
			srv_bytes(r, 200, "application/json", text, (size_t)n);
		} else {
			srv_bytes(r, 200, "application/proto", bytes,
				  sluice__v1__publish_job_events_response__pack(&m, bytes));
		}
	} else if (p->rc == SL_ECONFLICT)
		answer_connect_error(r, 409, "already_exists", p->why);
	else if (p->rc == SL_EACCES)
		answer_connect_error(r, 403, "permission_denied", p->why);
	else if (p->rc == SL_EAGAIN) {
		srv_retry_after(r, AGAIN_MS);
		answer_connect_error(r, 503, "unavailable", p->why);
	} else {
		answer_refused(r, p->refused, p->why);
	}
}

static void answer_busy(struct srv_publish *p, int status, int64_t ms, const char *why)
{
	srv_request *r = take_request(p);
	if (r == NULL)
		return;
	srv_retry_after(r, ms);
	answer_connect_error(r, status,
			     status == 429   ? "resource_exhausted"
			     : status == 403 ? "permission_denied"
					     : "unavailable",
			     why);
}

static void answer_bad(struct srv_publish *p, const struct sl_err *err)
{
	srv_request *r = take_request(p);
	if (r == NULL)
		return;
	if (err->code == SL_EREFUSED)
		answer_refused(r, p->refused, err->msg);
	else if (err->code == SL_ETOOBIG)
		answer_connect_error(r, 413, "resource_exhausted", err->msg);
	else
		answer_connect_error(r, 400, "invalid_argument", err->msg);
}

/*
 * Publishes that the coordinator has. When the store turns out to be unavailable, all of them are answered, not only
 * those whose write failed: the others would wait for the breaker with open connections until their senders give up.
 * Their items continue, and what is written of them is known by its sequence when it comes again.
 */

#define AWAY_MS 1000

/* False: p does not wait: the store is unavailable (a probe is there to find out), or has not taken an earlier publish
 * of the stream whose sender was answered. */
static bool wait_begin(struct srv_ingest *in, struct srv_publish *p, bool probe)
{
	struct srv_waiting *w = &in->wait;
	sl__lock(&w->mu);
	bool away = !probe && w->away_until_ms != 0 && sl__mono_ns(in->env) / 1000000 < w->away_until_ms;
	/* What a stream sends again and again must not fill the queue while the store does not take it. */
	for (const struct srv_publish *q = w->first; q != NULL && !away; q = q->next_waiting)
		away = atomic_load(&q->unheard) && q->key_len == p->key_len && memcmp(q->key, p->key, p->key_len) == 0;
	if (!away) {
		p->next_waiting = w->first;
		p->prev_waiting = &w->first;
		if (w->first != NULL)
			w->first->prev_waiting = &p->next_waiting;
		w->first = p;
	}
	sl__unlock(&w->mu);
	return !away;
}

static void wait_end(struct srv_publish *p)
{
	struct srv_waiting *w = &p->ingest->wait;
	sl__lock(&w->mu);
	*p->prev_waiting = p->next_waiting;
	if (p->next_waiting != NULL)
		p->next_waiting->prev_waiting = p->prev_waiting;
	sl__unlock(&w->mu);
}

/* Without the lock, which others hold while they wait for a request's `gone`. One that has its answer will end soon. */
void srv_wait_unheard(struct srv_publish *p, int64_t ms, const char *why)
{
	if (atomic_load(&p->request) != NULL)
		atomic_store(&p->unheard, true);
	answer_busy(p, 503, ms, why);
}

/* None of them is freed meanwhile: the coordinator has it until wait_end. */
void srv_wait_away(struct srv_ingest *in)
{
	struct srv_waiting *w = &in->wait;
	sl__lock(&w->mu);
	w->away_until_ms = sl__mono_ns(in->env) / 1000000 + AWAY_MS;
	for (struct srv_publish *p = w->first; p != NULL; p = p->next_waiting)
		srv_wait_unheard(p, AWAY_MS, "the store is unavailable");
	sl__unlock(&w->mu);
}

void srv_wait_back(struct srv_ingest *in)
{
	sl__lock(&in->wait.mu);
	in->wait.away_until_ms = 0;
	sl__unlock(&in->wait.mu);
}

enum outcome { TAKEN, REFUSED, BUSY, BAD };

static void count_request(struct srv_ingest *in, enum outcome outcome)
{
	sl_counter_add(in->requests[outcome], 1);
}

/* ---- the end of a publish ---- */

static void on_publish_done(enum sl_item_end end, const struct sl_err *err, void *ctx)
{
	struct srv_publish *p = ctx;
	struct srv_ingest *in = p->ingest;
	(void)err;
	if (!p->settled) {
		answer_busy(p, 503, FULL_MS,
			    end == SL_ITEM_RETURNED ? "the server is stopping" : "the store did not accept the events");
		count_request(in, BUSY);
	} else {
		if (p->rc == 0)
			sl_counter_add(in->events, p->n);
		count_request(in, p->rc == 0 ? TAKEN : REFUSED);
		answer_publish(p);
	}
	if (end == SL_ITEM_RETURNED)
		srv_publish_unref(p);
}

static void on_publish_free(void *publish, void *ctx)
{
	(void)ctx;
	wait_end(publish);
	srv_publish_unref(publish);
}

/* Ours again, but on_done is called after this: it lets go. */
static void on_publish_returned(const struct sl_item *item, void *ctx)
{
	(void)item;
	(void)ctx;
}

/* Its sender has it, and was answered. */
static void on_publish_dead(const struct sl_item *item, const struct sl_err *err, uint32_t attempts, void *ctx)
{
	(void)item;
	(void)err;
	(void)attempts;
	(void)ctx;
}

/* The client left, or the server stops. The item continues: what is in it may be in the store already. */
static void on_sender_gone(srv_request *r, void *ctx)
{
	(void)r;
	srv_wait_unheard(ctx, FULL_MS, "the server is stopping");
}

/* ---- the handler ---- */

static bool has_content_type(const srv_request *r, const char *type)
{
	const char *given = srv_header(r, "Content-Type");
	size_t n = strlen(type);
	return given != NULL && strncasecmp(given, type, n) == 0 &&
	       (given[n] == '\0' || strchr("; \t", given[n]) != NULL);
}

/* What is wrong before the body is read; answered when it returns false. */
static bool headers_are_good(struct srv_ingest *in, srv_request *r)
{
	const char *version = srv_header(r, "Connect-Protocol-Version"), *target = srv_header(r, "Sluice-Target");
	const char *coding = srv_header(r, "Content-Encoding");
	if (!has_content_type(r, "application/proto") && !has_content_type(r, "application/json")) {
		srv_set_header(r, "Accept-Post", "application/proto, application/json");
		answer_connect_error(r, 415, "unimplemented",
				     "Content-Type must be application/proto or application/json");
	} else if (version != NULL && strcmp(version, "1") != 0)
		answer_connect_error(r, 400, "failed_precondition", "Connect-Protocol-Version must be 1");
	else if (coding != NULL && strcasecmp(coding, "identity") != 0)
		answer_connect_error(r, 501, "unimplemented", "Content-Encoding must be identity");
	else if (target != NULL && strcmp(target, in->target) != 0)
		answer_connect_error(r, 421, "failed_precondition", "this server uses another store");
	else
		return true;
	return false;
}

static void submit_publish(struct srv_ingest *in, struct srv_publish *p)
{
	struct sl_coordinator_health health = {.struct_size = sizeof(health)};
	struct sl_item item = {.data = p,
			       .len = p->bytes,
			       .key = p->key,
			       .key_len = p->key_len,
			       .position = p->n > 0 ? p->rows[0].sequence : 0,
			       .done = on_publish_done,
			       .done_ctx = p};
	/* One publish at a time goes in while the breaker is open: it may be what closes it. If the store seems to be
	 * away, its sender does not wait for that. */
	bool open = sl_coordinator_get_health(in->coordinator, &health) == 0 && health.breaker == SL_BREAKER_OPEN;
	bool away = open && health.last_error.error_class == SL_CLASS_FATAL;
	if ((open && health.queue_size > 0) || !wait_begin(in, p, open)) {
		answer_busy(p, 503, FULL_MS, "the store is unavailable");
		count_request(in, BUSY);
		return;
	}
	(void)atomic_fetch_add(&p->refs, 1);
	int rc = sl_coordinator_submit_many(in->coordinator, &item, 1, 0, NULL);
	if (rc == 0 && away)
		srv_wait_unheard(p, FULL_MS, "the store is unavailable");
	if (rc == 0)
		return;
	count_request(in, BUSY);
	if (rc == SL_EFULL || rc == SL_ETIMEDOUT)
		answer_busy(p, 429, FULL_MS, "too many batches wait for the store");
	else
		answer_busy(p, 503, FULL_MS, rc == SL_ECLOSED ? "the server is stopping" : sl_err_text(rc));
	wait_end(p);
	srv_publish_unref(p);
}

static const char *keep_text(struct srv_publish *p, const char *text)
{
	size_t n = text != NULL ? strlen(text) + 1 : 0;
	char *copy = n > 0 ? srv_publish_alloc(p, n) : NULL;
	return copy != NULL ? memcpy(copy, text, n) : NULL;
}

/* A worker's token publishes what jobs of its types print. One whose job was deleted is kept without it, and late. */
static int check_job_types(const struct srv_ingest *in, const srv_request *r, const struct srv_publish *p,
			   struct sl_err *err)
{
	uint64_t last = 0;
	for (size_t i = 0; i < p->n; i++) {
		struct sl_job *job = NULL;
		uint64_t id = p->rows[i].job_id;
		if (id == 0)
			return sl_err_set(err, SL_EACCES, "the token does not allow events without a job");
		if (id == last)
			continue;
		last = id;
		int rc = sl_jobs_get(in->core->jobs, id, &job, err);
		if (rc == SL_ENOENT)
			continue;
		if (rc == 0 && !srv_may_work(r, job->type))
			rc = sl_err_set(err, SL_EACCES, "the token does not allow events of jobs of type '%.60s'",
					job->type);
		sl_job_release(in->core->jobs, job);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* Whether the sender may publish this: 0, SL_EACCES, or what the store says. */
static int check_writer(const struct srv_ingest *in, srv_request *r, struct srv_publish *p, struct sl_err *err)
{
	if (!srv_may_ship(r, p->stream)) {
		if (!srv_works(r))
			return sl_err_set(err, SL_EACCES, "the token does not allow this stream");
		int rc = check_job_types(in, r, p, err);
		if (rc != 0)
			return rc;
	}

	/* Who publishes, for the store: it decides whose stream it is, and records what is out of the ordinary. */
	struct sl_audit_record record;
	srv_audit_record(r, &record);
	p->record = (struct sl_audit_record){.via = record.via,
					     .actor = keep_text(p, record.actor),
					     .address = keep_text(p, record.address),
					     .action = "events.publish",
					     .request_id = keep_text(p, record.request_id)};
	p->writer = (struct sl_event_writer){.token = keep_text(p, srv_token(r)),
					     .any_stream = srv_role(r) >= SRV_ADMIN,
					     .adopts = srv_ships(r, p->stream),
					     .record = &p->record};
	if (p->record.actor == NULL || (srv_token(r) != NULL && p->writer.token == NULL))
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	return 0;
}

static void handle_publish(srv_request *r, void *ctx)
{
	struct srv_ingest *in = ctx;
	struct sl_err err = SL_ERR_INIT;
	size_t len;
	const void *body = srv_body(r, &len);
	int rc;
	if (!headers_are_good(in, r)) {
		count_request(in, BAD);
		return;
	}
	struct srv_publish *p = srv_publish_new(len);
	if (p == NULL) {
		srv_retry_after(r, FULL_MS);
		answer_connect_error(r, 503, "unavailable", "out of memory");
		return;
	}
	p->ingest = in;
	atomic_init(&p->request, r);
	p->json = has_content_type(r, "application/json");
	if (p->json && !srv_body_reserve(srv_json_cost(body, len), r))
		rc = sl_err_set(&err, SL_EFULL, "too many large bodies at the same time");
	else
		rc = p->json ? srv_publish_json(p, body, len, &err) : srv_publish_proto(p, body, len, &err);
	if (rc == SL_EFULL) {
		count_request(in, BUSY);
		answer_busy(p, 503, FULL_MS, err.msg);
	} else if (rc != 0) {
		count_request(in, err.code == SL_EREFUSED ? REFUSED : BAD);
		answer_bad(p, &err);
	} else if ((rc = check_writer(in, r, p, &err)) == SL_EACCES) {
		count_request(in, REFUSED);
		answer_busy(p, 403, FULL_MS, err.msg);
	} else if (rc != 0) {
		count_request(in, BUSY);
		answer_busy(p, 503, FULL_MS, err.msg);
	} else {
		srv_later(r, on_sender_gone, p);
		submit_publish(in, p);
	}
	srv_publish_unref(p);
}

int srv_ingest_add(srv_http *h, struct srv_ingest *in, struct sl_err *err)
{
	static const struct srv_route routes[] = {
		{"POST", PUBLISH_PATH, SRV_WRITE, SRV_LONG | SRV_BY_SHIP, handle_publish, NULL},
	};
	int rc = srv_http_add(h, routes, SL_COUNT(routes), in, err);
	if (rc != 0)
		return rc;
	rc = srv_ingest_look_add(h, in, err);
	if (rc != 0)
		return rc;
	return srv_follow_add(h, in->follow, err);
}

/* ---- the whole ---- */

static int open_ingest(struct srv_ingest *in, struct sl_err *err)
{
	const sl_store *store = in->core->store;
	int rc = store->ops->target_id(store->ctx, in->target, err);
	if (rc != 0)
		return rc;
	static const char requests[] = "sluice_ingest_requests_total", help[] = "Requests of log senders, by result.";
	const struct srv_metric metrics[] = {
		{requests, help, NULL, &in->requests[TAKEN], {"outcome", "taken"}},
		{requests, help, NULL, &in->requests[REFUSED], {"outcome", "refused"}},
		{requests, help, NULL, &in->requests[BUSY], {"outcome", "busy"}},
		{requests, help, NULL, &in->requests[BAD], {"outcome", "bad"}},
		{"sluice_ingest_events_total", "Events acknowledged to senders, including repeated ones.",
		 .counter = &in->events},
	};
	rc = srv_metrics_make(in->core->metrics, metrics, SL_COUNT(metrics), err);
	if (rc != 0)
		return rc;
	rc = srv_follow_new(&in->follow, in->core, err);
	if (rc != 0)
		return rc;

	const struct srv_config *c = in->core->config;
	struct sl_coordinator_opts o = {SL_COORDINATOR_OPTS_INIT,
					.env = in->env,
					.name = "ingest",
					.capacity = CAPACITY,
					.overflow_strategy = SL_OVERFLOW_ERROR,
					.items.kind = SL_ITEM_POINTERS,
					.items.free = on_publish_free,
					.per_key_order = SL_ON,
					.unwritten.on_dead = on_publish_dead,
					.unwritten.on_returned = on_publish_returned};
	if (c != NULL) {
		o.capacity = c->coordinator_capacity;
		o.workers = (int32_t)c->coordinator_workers;
		o.batch_size = (int32_t)c->coordinator_batch_size;
		o.flush_interval_ms =
			c->coordinator_flush_interval_ms != 0 ? c->coordinator_flush_interval_ms : SL_NONE;
		o.backpressure.high_watermark = c->coordinator_high_watermark;
		o.backpressure.low_watermark = c->coordinator_low_watermark;
		o.retry.policy.max_attempts = (int32_t)c->coordinator_max_attempts;
		o.retry.policy.first_ms = c->coordinator_initial_backoff_ms;
		o.retry.policy.cap_ms = c->coordinator_max_backoff_ms;
		o.breaker.failures = (int32_t)c->coordinator_breaker_failures;
		o.breaker.open_ms = c->coordinator_breaker_open_ms;
		o.breaker.open_max_ms = c->coordinator_breaker_open_max_ms;
		o.retry.give_up_after_ms =
			c->coordinator_give_up_after_ms != 0 ? c->coordinator_give_up_after_ms : SL_UNLIMITED;
	}
	in->high = (uint64_t)(o.backpressure.high_watermark > 0 ? o.backpressure.high_watermark : o.capacity * 8 / 10);
	in->low = (uint64_t)(o.backpressure.low_watermark > 0 ? o.backpressure.low_watermark : o.capacity / 2);
	in->sink = (sl_sink){.ops = &srv_ingest_sink, .ctx = in};
	return sl_coordinator_new(&in->coordinator, &in->sink, &o, err);
}

int srv_ingest_new(struct srv_ingest **out, struct srv_core *core, struct sl_err *err)
{
	struct srv_ingest *in = calloc(1, sizeof(*in));
	if (in == NULL)
		return sl__no_memory(err, "ingest");
	in->core = core;
	in->env = core->env;
	sl__mutex_init(&in->wait.mu);
	in->heard = srv_heard_new();
	int rc = in->heard != NULL ? open_ingest(in, err) : sl__no_memory(err, "ingest");
	if (rc != 0)
		srv_ingest_free(in);
	else
		*out = in;
	return rc;
}

void srv_ingest_taken(const struct sl_wal_batch *batch, const struct sl_event_row *rows, void *ingest)
{
	struct srv_ingest *in = ingest;
	sl_counter_add(in->events, batch->n_records);
	srv_heard_of(in->heard, batch->stream, batch->incarnation, batch->last_sequence, sl__real_ms(in->env));
	srv_follow_poke(in->follow, rows, batch->n_records);
}

int srv_ingest_stop(struct srv_ingest *in, int64_t deadline_ms, struct sl_err *err)
{
	struct sl_coordinator_report report = {.struct_size = sizeof(report)};
	if (in == NULL || in->coordinator == NULL)
		return 0;
	atomic_store(&in->stopping, true);
	int rc = sl_coordinator_stop(in->coordinator, deadline_ms, &report, err);
	/* What was given back is in the logs of its senders, which got an error. */
	return rc == SL_EPENDING && report.returned > 0 ? 0 : rc;
}

void srv_ingest_free(struct srv_ingest *in)
{
	struct sl_err err = SL_ERR_INIT;
	if (in == NULL)
		return;
	(void)srv_ingest_stop(in, 0, &err);
	if (in->coordinator != NULL && sl_coordinator_free(in->coordinator) != 0)
		return; /* a write has not come back: what it works with must stay */
	srv_follow_free(in->follow);
	srv_heard_free(in->heard);
	sl__mutex_fini(&in->wait.mu);
	free(in);
}
