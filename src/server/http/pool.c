/* SPDX-License-Identifier: Apache-2.0 */
/* The workers, and the suspending and resuming of connections around them. */
#include "server/http/internal.h"

#include <stdlib.h>

#define EASY_BUSY 1 /* of SQLite's four readers two are left for what else reads */

void srv_suspend(srv_request *r)
{
	atomic_fetch_add(&r->h->n_suspended, 1);
	MHD_suspend_connection(r->conn->mhd);
}

void srv_resume(srv_request *r, bool locked) SL_NO_TSA
{
	srv_http *h = r->h;
	MHD_resume_connection(r->conn->mhd);
	/* From here on r and its connection may be gone. */
	if (atomic_fetch_sub(&h->n_suspended, 1) == 1 && atomic_load(&h->stopping)) {
		if (!locked)
			sl__lock(&h->mu);
		sl__broadcast(&h->idle);
		if (!locked)
			sl__unlock(&h->mu);
	}
}

void srv_hold(srv_request *r)
{
	if (r->held)
		return;
	r->held = true;
	r->held_prev = NULL;
	r->held_next = r->h->held;
	if (r->held_next != NULL)
		r->held_next->held_prev = r;
	r->h->held = r;
}

void srv_unhold(srv_request *r)
{
	srv_http *h = r->h;
	sl__lock(&h->mu);
	if (r->held) {
		*(r->held_prev != NULL ? &r->held_prev->held_next : &h->held) = r->held_next;
		if (r->held_next != NULL)
			r->held_next->held_prev = r->held_prev;
		r->held = false;
	}
	sl__unlock(&h->mu);
}

void srv_queue_push(srv_http *h, srv_request *r)
{
	r->queue_next = NULL;
	*(h->queue_last != NULL ? &h->queue_last->queue_next : &h->queue_first) = r;
	h->queue_last = r;
	sl__signal(&h->work);
}

/* The caller holds a reference: the answer may have come, and r gone for other threads, when the handler returns. */
static void run_handler(srv_request *r)
{
	const struct srv_endpoint *e = r->match.endpoint;
	e->route.fn(r, e->ctx);
	if ((atomic_load(&r->state) & R_ANSWERED) == 0 && !r->later) {
		sl__log(&r->h->env, SL_LOG_ERROR, "http", "handler returned without a response",
			SL__F_STR("route", e->route.path));
		srv_error(r, 500, "internal", "internal error of the server; report it");
	}
}

enum srv_dispatched srv_dispatch(srv_request *r)
{
	srv_http *h = r->h;
	r->dispatched = true;
	atomic_fetch_add(&h->n_active, 1);
	/* Run it on the network thread? An easy one would have to wait there for one of the store's few readers while
	 * workers use them. */
	unsigned flags = r->match.endpoint->route.flags;
	bool quick = (flags & SRV_QUICK) != 0 || ((flags & SRV_EASY) != 0 && atomic_load(&h->n_busy) <= EASY_BUSY);
	if (quick) {
		run_handler(r);
		if ((atomic_load(&r->state) & R_ANSWERED) != 0)
			return SRV_DISPATCH_ANSWERED;
	}
	sl__lock(&h->mu);
	/* Suspend the connection of a request that is not answered, unless the server ends: then nothing may be
	 * suspended any more. R_SUSPENDED is the last to be set: a thread that answered in between leaves the resuming
	 * to us. */
	bool going = !h->closing;
	if (going) {
		srv_suspend(r);
		srv_hold(r);
		if ((atomic_fetch_or(&r->state, R_SUSPENDED) & R_ANSWERED) != 0)
			srv_resume(r, true);
	}
	if (going && !quick) {
		atomic_fetch_add(&r->refs, 1);
		if (r->match.endpoint->many != NULL)
			srv_gather_queue(h, r);
		else
			srv_queue_push(h, r);
	}
	sl__unlock(&h->mu);
	if (going)
		return SRV_DISPATCH_SUSPENDED;
	if (quick && (atomic_fetch_or(&r->state, R_ABANDONED) & R_ANSWERED) == 0)
		return SRV_DISPATCH_CUT;
	if (!quick)
		srv_error(r, 503, "stopping", "the server is stopping");
	return SRV_DISPATCH_ANSWERED;
}

void srv_run(srv_request *r)
{
	if (r->stream != NULL)
		srv_stream_run(r);
	else if ((atomic_load(&r->state) & R_ABANDONED) != 0)
		srv_error(r, 503, "stopping",
			  "the server is stopping"); /* no client reads it; what the handler uses may be gone */
	else
		run_handler(r);
	srv_request_unref(r);
}

static void *http_worker_main(void *ctx)
{
	srv_http *h = ctx;
	sl__lock(&h->mu);
	for (;;) {
		srv_request *r = h->queue_first;
		if (r == NULL && h->workers_end)
			break;
		if (r == NULL) {
			(void)sl__wait(&sl__env_real, &h->work, &h->mu, SL_FOREVER);
			continue;
		}
		h->queue_first = r->queue_next;
		if (h->queue_first == NULL)
			h->queue_last = NULL;
		atomic_fetch_add(&h->n_busy, 1);
		sl__unlock(&h->mu);
		if (r->match.endpoint->many != NULL && !r->alone)
			srv_gather_run(h, r);
		else
			srv_run(r);
		atomic_fetch_sub(&h->n_busy, 1);
		sl__lock(&h->mu);
	}
	sl__unlock(&h->mu);
	return NULL;
}

int srv_pool_start(srv_http *h, struct sl_err *err)
{
	h->workers = calloc((size_t)h->n_threads, sizeof(*h->workers));
	if (h->workers == NULL)
		return sl_err_set(err, SL_ENOMEM, "workers of the server");
	for (; h->n_started < h->n_threads; h->n_started++) {
		int rc = sl__thread_start(&h->workers[h->n_started], "http-worker", http_worker_main, h);
		if (rc != 0)
			return sl__thread_error(err, rc, "worker", "the HTTP server");
	}
	return 0;
}

void srv_pool_stop(srv_http *h)
{
	sl__lock(&h->mu);
	h->workers_end = true;
	sl__broadcast(&h->work);
	sl__unlock(&h->mu);
	for (int32_t i = 0; i < h->n_started; i++)
		pthread_join(h->workers[i], NULL);
	h->n_started = 0;
	free(h->workers);
	h->workers = NULL;
}
