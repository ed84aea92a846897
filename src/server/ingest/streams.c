/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can be seen of the receiver: its coordinator, the pressure on it, the streams, and which store it is for. Of
 * streams that this server has heard of lately it also knows how far their senders are ahead.
 */
#include "base/time.h"
#include "server/api/api.h"
#include "server/ingest/ingest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEARD_BUCKETS 1024
#define HEARD_MAX 4096
#define RETRY_MS 1000

/* ---- streams that were heard of ---- */

struct heard {
	struct heard *next;
	char stream[SRV_STREAM_BYTES];
	uint32_t incarnation;
	uint64_t last;
	int64_t at_ms;
};

struct srv_heard {
	sl__mutex mu;
	struct heard *buckets[HEARD_BUCKETS];
	size_t n;
};

struct srv_heard *srv_heard_new(void)
{
	struct srv_heard *h = calloc(1, sizeof(*h));
	if (h != NULL)
		sl__mutex_init(&h->mu);
	return h;
}

void srv_heard_free(struct srv_heard *h)
{
	if (h == NULL)
		return;
	for (size_t i = 0; i < HEARD_BUCKETS; i++)
		for (struct heard *e = h->buckets[i], *next; e != NULL; e = next) {
			next = e->next;
			free(e);
		}
	sl__mutex_fini(&h->mu);
	free(h);
}

static struct heard **heard_bucket(struct srv_heard *h, const char *stream, uint32_t incarnation)
{
	uint32_t hash = 2166136261u ^ incarnation;
	for (const char *p = stream; *p != '\0'; p++)
		hash = (hash ^ (uint8_t)*p) * 16777619u;
	return &h->buckets[hash % HEARD_BUCKETS];
}

static struct heard *find_heard(struct srv_heard *h, const char *stream, uint32_t incarnation)
{
	struct heard *e = *heard_bucket(h, stream, incarnation);
	while (e != NULL && (e->incarnation != incarnation || strcmp(e->stream, stream) != 0))
		e = e->next;
	return e;
}

void srv_heard_of(struct srv_heard *h, const char *stream, uint32_t incarnation, uint64_t last, int64_t now_ms)
{
	sl__lock(&h->mu);
	struct heard *e = find_heard(h, stream, incarnation);
	/* A new one takes the place of the oldest when there are many. */
	struct heard **oldest = NULL;
	for (size_t i = 0; e == NULL && h->n == HEARD_MAX && i < HEARD_BUCKETS; i++)
		for (struct heard **at = &h->buckets[i]; *at != NULL; at = &(*at)->next)
			if (oldest == NULL || (*at)->at_ms < (*oldest)->at_ms)
				oldest = at;
	if (oldest != NULL) {
		struct heard *gone = *oldest;
		*oldest = gone->next;
		h->n--;
		free(gone);
	}
	if (e == NULL && (e = calloc(1, sizeof(*e))) != NULL) {
		struct heard **bucket = heard_bucket(h, stream, incarnation);
		(void)snprintf(e->stream, sizeof(e->stream), "%s", stream);
		e->incarnation = incarnation;
		e->next = *bucket;
		*bucket = e;
		h->n++;
	}
	if (e != NULL) { /* without memory it was not heard of */
		e->at_ms = now_ms;
		e->last = last;
	}
	sl__unlock(&h->mu);
}

/* ---- GET /api/v1/streams ---- */

static json_t *time_json(int64_t ms)
{
	char text[SL__TIME_BYTES];
	return ms > 0 ? json_stringn(text, sl__time_text(text, ms)) : json_null();
}

struct listing {
	struct srv_heard *heard;
	json_t *items;
	char cursor[SRV_STREAM_BYTES + 16];
};

static int add_stream(const struct sl_event_stream *s, void *ctx)
{
	struct listing *l = ctx;
	(void)snprintf(l->cursor, sizeof(l->cursor), "%" PRIu32 ":%s", s->incarnation, s->stream);

	/* How far its sender is ahead, if it was heard of. */
	json_t *lag = NULL, *heard_at = NULL;
	sl__lock(&l->heard->mu);
	const struct heard *e = find_heard(l->heard, s->stream, s->incarnation);
	if (e != NULL && e->last != 0)
		lag = json_integer(e->last > s->mark ? (json_int_t)(e->last - s->mark) : 0);
	if (e != NULL)
		heard_at = time_json(e->at_ms);
	sl__unlock(&l->heard->mu);
	json_t *item =
		json_pack("{s:s,s:I,s:I,s:o,s:o,s:o}", "stream", s->stream, "incarnation", (json_int_t)s->incarnation,
			  "mark", (json_int_t)s->mark, "last_at", time_json(s->last_ms), "heard_at",
			  heard_at != NULL ? heard_at : json_null(), "lag", lag != NULL ? lag : json_null());
	return json_array_append_new(l->items, item) == 0 ? 0 : SL_ENOMEM;
}

static void get_streams(srv_request *r, void *ctx)
{
	struct srv_ingest *in = ctx;
	const sl_store *store = in->core->store;
	struct sl_err err = SL_ERR_INIT;
	struct sl_event_stream after;
	struct listing l = {.heard = in->heard};
	const char *cursor = srv_query(r, "cursor");
	uint32_t limit;
	if (!srv_in_limit(r, &limit))
		return;
	/* "INCARNATION:STREAM". */
	if (cursor != NULL) {
		char *end = NULL;
		unsigned long incarnation = strtoul(cursor, &end, 10);
		after = (struct sl_event_stream){.stream = end + 1, .incarnation = (uint32_t)incarnation};
		if (end == cursor || *end != ':' || incarnation > UINT32_MAX) {
			srv_error(r, 400, "invalid", "cursor: not from this list");
			return;
		}
	}
	l.items = json_array();
	int rc = store->ops->event_streams(store->ctx, cursor != NULL ? &after : NULL, limit, add_stream, &l, &err);
	if (rc != 0) {
		json_decref(l.items);
		srv_fail(r, &err);
		return;
	}
	bool more = json_array_size(l.items) == limit;
	srv_json(r, 200,
		 json_pack("{s:o,s:o}", "items", l.items, "next_cursor", more ? json_string(l.cursor) : json_null()));
}

/* ---- the coordinator ---- */

const char *srv_breaker_name(enum sl_breaker_state state)
{
	static const char *const names[] = {"closed", "open", "half_open"};
	return names[state];
}

static bool get_health(srv_request *r, struct srv_ingest *in, struct sl_coordinator_health *out)
{
	*out = (struct sl_coordinator_health){.struct_size = sizeof(*out)};
	int rc = sl_coordinator_get_health(in->coordinator, out);
	if (rc != 0)
		srv_error(r, 500, "internal", "%s", sl_err_text(rc));
	return rc == 0;
}

static void get_backpressure(srv_request *r, void *ctx)
{
	struct srv_ingest *in = ctx;
	struct sl_coordinator_health h;
	if (!get_health(r, in, &h))
		return;
	bool refusing = h.breaker == SL_BREAKER_OPEN || h.queue_size >= h.capacity || atomic_load(&in->stopping);
	const char *state = refusing ? "refusing" : h.backpressure ? "high" : "ok";
	srv_json(r, 200,
		 json_pack("{s:s,s:I,s:I,s:I,s:I,s:s,s:i}", "state", state, "depth", (json_int_t)h.queue_size,
			   "capacity", (json_int_t)h.capacity, "high", (json_int_t)in->high, "low", (json_int_t)in->low,
			   "breaker", srv_breaker_name(h.breaker), "retry_after_ms", refusing ? RETRY_MS : 0));
}

static void get_coordinator(srv_request *r, void *ctx)
{
	struct srv_ingest *in = ctx;
	struct sl_coordinator_health h;
	if (!get_health(r, in, &h))
		return;
	json_t *o = json_pack("{s:i,s:I,s:I,s:I,s:s,s:I,s:I,s:I}", "workers_alive", (int)h.workers_alive, "queue_size",
			      (json_int_t)h.queue_size, "capacity", (json_int_t)h.capacity, "queue_bytes",
			      (json_int_t)h.queue_bytes, "breaker", srv_breaker_name(h.breaker), "oldest_age_ms",
			      (json_int_t)h.oldest_age_ms, "in_flight", (json_int_t)h.in_flight, "retrying",
			      (json_int_t)h.retrying);
	json_t *counts = json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "accepted", (json_int_t)h.accepted, "written",
				   (json_int_t)h.written, "refused", (json_int_t)h.dead_letters, "returned",
				   (json_int_t)h.returned, "batches", (json_int_t)h.batches, "failures",
				   (json_int_t)h.failures, "splits", (json_int_t)h.splits);
	json_t *rest = json_pack("{s:i,s:b,s:I,s:I,s:o}", "concurrency", (int)h.concurrency, "backpressure",
				 h.backpressure, "high", (json_int_t)in->high, "low", (json_int_t)in->low, "last_error",
				 h.last_error.code != 0 ? json_string(h.last_error.msg) : json_null());
	if (o != NULL)
		(void)(json_object_update(o, counts) + json_object_update(o, rest));
	json_decref(counts);
	json_decref(rest);
	srv_json(r, 200, o);
}

static void get_target(srv_request *r, void *ctx)
{
	struct srv_ingest *in = ctx;
	srv_json(r, 200, json_pack("{s:s}", "target", in->target));
}

int srv_ingest_look_add(srv_http *h, struct srv_ingest *in, struct sl_err *err)
{
	static const struct srv_route routes[] = {
		{"GET", "/api/v1/backpressure", SRV_READ, SRV_QUICK, get_backpressure, NULL},
		{"GET", "/api/v1/coordinator", SRV_READ, SRV_QUICK, get_coordinator, NULL},
		{"GET", "/api/v1/streams", SRV_READ, 0, get_streams, NULL},
		{"GET", "/api/v1/target", SRV_READ, SRV_QUICK, get_target, NULL},
	};
	return srv_http_add(h, routes, SL_COUNT(routes), in, err);
}
