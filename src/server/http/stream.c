/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers without end. When the client can take more, libmicrohttpd asks the reader on the network thread; the reader
 * suspends the connection and has a worker call fill, which may therefore wait for the store. Nothing to send leaves
 * the connection suspended (returning 0 without suspending would burn a core) until a thread wakes the stream, or a
 * heartbeat is due, or the client has left.
 *
 *   READY ── the reader finds nothing left ──▶ FILLING ── fill wrote, ended ──▶ READY (resumed)
 *                                                 ▲ └─── fill wrote nothing ──▶ IDLE
 *                                                 └──────── woken ───────────────┘ └── heartbeat, left, stop ──▶ READY
 *
 * All fields but buf are guarded by h->mu; buf belongs to the worker while FILLING and to the reader else.
 */
#include "server/http/internal.h"

#include <stdlib.h>
#include <string.h>

#define FILL_BYTES ((size_t)32 * 1024)

enum stream_state { S_READY, S_FILLING, S_IDLE };

struct srv_stream {
	srv_request *r;
	srv_stream *prev, *next; /* h->streams */
	struct srv_stream_ops ops;
	void *ctx;
	enum stream_state state;
	bool suspended, woken, end, detached;
	char *buf;
	const char *data; /* buf or a heartbeat */
	size_t at, len;
	int64_t last_ns; /* when something was sent */
};

static const char heartbeat[] = ":\n\n";

static void stream_free(srv_stream *s)
{
	srv_http *h = s->r->h;
	s->ops.done(s->ctx);
	sl__lock(&h->mu);
	*(s->prev != NULL ? &s->prev->next : &h->streams) = s->next;
	if (s->next != NULL)
		s->next->prev = s->prev;
	sl__unlock(&h->mu);
	atomic_fetch_sub(&h->n_streams, 1);
	s->r->stream = NULL;
	free(s->buf);
	free(s);
}

/* h->mu held. */
static void queue_fill(srv_stream *s)
{
	s->state = S_FILLING;
	atomic_fetch_add(&s->r->refs, 1);
	srv_queue_push(s->r->h, s->r);
}

/* h->mu held. */
static void ready(srv_stream *s, const char *data, size_t len)
{
	s->state = S_READY;
	s->data = data;
	s->at = 0;
	s->len = len;
	s->last_ns = sl__mono_ns(&s->r->h->env);
	if (s->suspended) {
		s->suspended = false;
		srv_resume(s->r, true);
	}
}

static ssize_t read_stream(void *cls, uint64_t pos, char *buf, size_t max)
{
	srv_stream *s = cls;
	srv_http *h = s->r->h;
	ssize_t n = 0;
	(void)pos;
	sl__lock(&h->mu);
	if (s->state == S_READY && s->at < s->len) {
		n = (ssize_t)(s->len - s->at < max ? s->len - s->at : max);
		memcpy(buf, s->data + s->at, (size_t)n);
		s->at += (size_t)n;
	} else if (s->end || atomic_load(&h->stopping)) {
		n = MHD_CONTENT_READER_END_OF_STREAM;
	} else {
		srv_hold(s->r);
		srv_suspend(s->r);
		s->suspended = true;
		queue_fill(s);
	}
	sl__unlock(&h->mu);
	return n;
}

void srv_stream_run(srv_request *r)
{
	srv_stream *s = r->stream;
	srv_http *h = r->h;
	sl__lock(&h->mu);
	s->woken = false;
	bool over = s->end || s->detached;
	sl__unlock(&h->mu);
	if (!over && s->buf == NULL)
		s->buf = malloc(FILL_BYTES);
	ssize_t n = !over && s->buf != NULL ? s->ops.fill(s, s->buf, FILL_BYTES, s->ctx) : -1;
	sl__lock(&h->mu);
	bool detached = s->detached;
	if (detached) {
		s->state = S_READY;
	} else if (n < 0 || s->end) {
		s->end = true;
		ready(s, NULL, 0);
	} else if (n > 0) {
		ready(s, s->buf, (size_t)n);
	} else if (s->woken) {
		queue_fill(s);
	} else {
		s->state = S_IDLE;
		free(s->buf);
		s->buf = NULL;
	}
	sl__unlock(&h->mu);
	if (detached)
		stream_free(s);
}

void srv_stream_wake(srv_stream *s)
{
	srv_http *h = s->r->h;
	sl__lock(&h->mu);
	s->woken = true;
	if (s->state == S_IDLE && !s->detached)
		queue_fill(s);
	sl__unlock(&h->mu);
}

void srv_stream_finish(srv_request *r)
{
	srv_stream *s = r->stream;
	s->end = true;
	if (s->state == S_IDLE)
		ready(s, NULL, 0);
}

void srv_stream_abandon(srv_request *r)
{
	srv_stream *s = r->stream;
	s->end = true;
	if (s->suspended) {
		s->suspended = false;
		srv_resume(r, true);
	}
}

void srv_stream_tick(srv_request *r, int64_t now_ns)
{
	srv_stream *s = r->stream;
	if (s->state != S_IDLE)
		return;
	if (srv_client_left(r->conn))
		srv_stream_finish(r);
	else if (now_ns >= s->last_ns + r->h->heartbeat_ns)
		ready(s, heartbeat, sizeof(heartbeat) - 1);
}

void srv_stream_detach(srv_request *r)
{
	srv_stream *s = r->stream;
	sl__lock(&r->h->mu);
	bool filling = s->state == S_FILLING;
	s->detached = true;
	sl__unlock(&r->h->mu);
	if (!filling)
		stream_free(s);
}

void srv_stream_open(srv_request *r, const struct srv_stream_ops *ops, void *ctx)
{
	srv_stream *s = calloc(1, sizeof(*s));
	struct MHD_Response *response =
		s != NULL ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, FILL_BYTES, read_stream, s, NULL)
			  : NULL;
	if (response == NULL) {
		free(s);
		ops->done(ctx);
		srv_error(r, 503, "busy", "out of memory");
		return;
	}
	*s = (srv_stream){.r = r, .ops = *ops, .ctx = ctx, .last_ns = sl__mono_ns(&r->h->env)};
	/* Add it, unless its client has too many: they leave room for its other requests. */
	srv_http *h = r->h;
	int32_t n = 0;
	sl__lock(&h->mu); /* the ticker reads held requests */
	for (const srv_stream *other = h->streams; other != NULL; other = other->next)
		n += strcmp(other->r->address, r->address) == 0;
	bool added = n < h->streams_per_address;
	if (added) {
		s->next = h->streams;
		if (s->next != NULL)
			s->next->prev = s;
		h->streams = s;
		r->stream = s;
	}
	sl__unlock(&h->mu);
	if (!added) {
		MHD_destroy_response(response);
		free(s);
		ops->done(ctx);
		srv_retry_after(r, 5000);
		srv_error(r, 429, "too_many_streams", "%s has %d streams open; close some first", r->address,
			  (int)r->h->streams_per_address);
		return;
	}
	r->is_stream = true;
	atomic_fetch_add(&r->h->n_streams, 1);
	srv_header_add(response, "Content-Type", "text/event-stream");
	srv_header_add(response, "Cache-Control", "no-store");
	srv_answer(r, 200, response, 0);
}
