/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for the end of a chain by a long poll, without a thread per request. One thread is notified of ends, checks
 * some of the other chains every second, since notifications can get lost, and answers when the time is over.
 *
 * A wait is in the list until a thread removes it under the lock; that thread answers it, without the lock.
 */
#include "base/thread.h"
#include "base/time.h"
#include "server/api/api.h"

#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MAX_MS 60000
#define TIMEOUT_MS 30000
#define CHECK_MS 1000
#define CHECK_MAX 200 /* waits per second, in turn */

struct wait {
	struct wait *next, *prev;
	struct srv_waits *waits;
	srv_request *r;
	uint64_t chain;
	int64_t until_ms; /* monotonic */
	bool linked;
	bool notified;
};

struct srv_waits {
	struct srv_core *core;
	struct srv_api *api;
	sl__mutex mu;
	sl__cond changed;
	struct wait head; /* of a ring */
	bool woken, stop, started, subscribed;
	pthread_t thread;
};

static void link_last(struct srv_waits *w, struct wait *x)
{
	x->prev = w->head.prev;
	x->next = &w->head;
	x->prev->next = x;
	w->head.prev = x;
	x->linked = true;
}

static void unlink_one(struct wait *x)
{
	x->prev->next = x->next;
	x->next->prev = x->prev;
	x->linked = false;
}

static void wake(struct srv_waits *w)
{
	w->woken = true;
	sl__signal(&w->changed);
}

/* On a thread of the notifier. */
static void on_notification(const struct sl_note *note, void *ctx)
{
	struct srv_waits *w = ctx;
	if (note->kind != 0 && note->kind != SL_NOTE_CHAIN_ENDED)
		return;
	sl__lock(&w->mu);
	for (struct wait *x = w->head.next; x != &w->head; x = x->next)
		if (note->kind == 0 || x->chain == note->id) {
			x->notified = true;
			wake(w);
		}
	sl__unlock(&w->mu);
}

/* ---- the thread ---- */

static int note_chain_status(const struct sl_chain *chain, void *ctx)
{
	*(enum sl_job_status *)ctx = chain->status;
	return 0;
}

/* The wait, if it is still in the ring; else NULL. Only the address is compared: it may have been freed meanwhile. */
static struct wait *find_wait(struct srv_waits *w, const struct wait *x, const srv_request *r, uint64_t chain)
{
	for (struct wait *y = w->head.next; y != &w->head; y = y->next)
		if (y == x && y->r == r && y->chain == chain)
			return y;
	return NULL;
}

/* Called and returns with the lock, which is released meanwhile. The wait stays in the ring while the store is read,
 * and may be gone afterwards. late: its time is over. */
static void check_wait(struct srv_waits *w, struct wait *x, bool late) SL_REQUIRES(w->mu)
{
	const sl_store *store = w->core->store;
	uint64_t chain = x->chain;
	srv_request *r = x->r;
	enum sl_job_status status = 0;
	struct sl_err err = SL_ERR_INIT;
	sl__unlock(&w->mu);
	int rc = store->ops->get_chain(store->ctx, NULL, chain, note_chain_status, &status, &err);
	bool ended = rc == SL_ENOENT || (rc == 0 && status >= SL_JOB_COMPLETED);
	sl__lock(&w->mu);
	struct wait *y = find_wait(w, x, r, chain);
	if (y == NULL || (!ended && !late))
		return;
	unlink_one(y);
	sl__unlock(&w->mu);
	if (ended)
		srv_chain_answer(r, w->api, chain);
	else
		srv_error(r, 408, "timeout", "the chain has not ended yet");
	free(y);
	sl__lock(&w->mu);
}

static void *waits_main(void *arg)
{
	struct srv_waits *w = arg;
	int64_t check_ms = sl__clock_ms() + CHECK_MS;
	sl__lock(&w->mu);
	while (!w->stop) {
		int64_t now = sl__clock_ms();
		int turns = now >= check_ms ? CHECK_MAX : 0;
		if (now >= check_ms)
			check_ms = now + CHECK_MS;
		while (!w->stop) {
			/* One that was notified or is late, else the next in turn, which moves to the end. */
			struct wait *x = w->head.next;
			while (x != &w->head && !x->notified && x->until_ms > now)
				x = x->next;
			bool urgent = x != &w->head, late = urgent && !x->notified;
			if (!urgent) {
				x = w->head.next;
				if (x == &w->head || turns-- == 0)
					break;
				unlink_one(x);
				link_last(w, x);
			}
			x->notified = false;
			check_wait(w, x, late);
		}
		/* Sleep until the first time is over, at most a second; for long when no request waits. */
		int64_t until = w->head.next == &w->head ? now + 3600000 : check_ms;
		for (const struct wait *x = w->head.next; x != &w->head; x = x->next)
			until = SL_MIN(until, x->until_ms);
		while (!w->woken && !w->stop && sl__wait_until_ms(&w->changed, &w->mu, until))
			;
		w->woken = false;
	}
	sl__unlock(&w->mu);
	return NULL;
}

/* ---- requests ---- */

/* The client has left, or the server is stopping. */
static void on_wait_gone(srv_request *r, void *ctx)
{
	struct wait *x = ctx;
	/* Only the thread that removes the wait from the list answers it. */
	struct srv_waits *w = x->waits;
	sl__lock(&w->mu);
	bool ours = x->linked;
	if (ours)
		unlink_one(x);
	sl__unlock(&w->mu);
	if (!ours)
		return;
	srv_retry_after(r, 1000);
	srv_error(r, 503, "stopping", "the server is stopping");
	free(x);
}

void srv_chains_wait(srv_request *r, void *ctx)
{
	struct srv_api *api = ctx;
	struct srv_waits *w = api->waits;
	static const char *const names[] = {"timeout_ms", NULL};
	const char *text = srv_query(r, "timeout_ms");
	uint64_t id, timeout_ms = TIMEOUT_MS;
	if (!srv_in_id(r, &id) || !srv_in_query(r, names) ||
	    (text != NULL && !srv_in_number(r, "timeout_ms", text, TIMEOUT_MAX_MS, &timeout_ms)))
		return;
	struct wait *x = calloc(1, sizeof(*x));
	if (x == NULL) {
		srv_error(r, 500, "internal", "out of memory");
		return;
	}
	*x = (struct wait){.waits = w, .r = r, .chain = id, .until_ms = sl__clock_ms() + (int64_t)timeout_ms};
	/* It is registered before it is checked, so that no end is missed in between. */
	const sl_store *store = w->core->store;
	enum sl_job_status status = 0;
	struct sl_err err = SL_ERR_INIT;
	srv_later(r, on_wait_gone, x);
	sl__lock(&w->mu);
	link_last(w, x);
	wake(w);
	sl__unlock(&w->mu);
	int rc = store->ops->watch(store->ctx, id, &status, &err);
	if (rc == 0 && status < SL_JOB_COMPLETED)
		return;
	sl__lock(&w->mu);
	struct wait *y = find_wait(w, x, r, id);
	if (y != NULL)
		unlink_one(y);
	sl__unlock(&w->mu);
	if (y == NULL)
		return;
	if (rc == 0)
		srv_chain_answer(r, w->api, id);
	else
		srv_fail(r, &err);
	free(y);
}

/* ---- the whole ---- */

int srv_waits_new(struct srv_waits **out, struct srv_api *api, struct sl_err *err)
{
	struct srv_waits *w = calloc(1, sizeof(*w));
	struct srv_core *core = api->core;
	if (w == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	w->core = core;
	w->api = api;
	w->head.next = w->head.prev = &w->head;
	sl__mutex_init(&w->mu);
	sl__cond_init(&w->changed);
	*out = w;
	int rc = sl__thread_start(&w->thread, "sl-waits", waits_main, w);
	if (rc != 0)
		return sl__thread_error(err, rc, "waits", "the server");
	w->started = true;
	if (core->notify == NULL || core->notify->ops == NULL)
		return 0;
	rc = core->notify->ops->subscribe(core->notify->ctx, on_notification, w, err);
	w->subscribed = rc == 0;
	return rc;
}

void srv_waits_free(struct srv_waits *w)
{
	if (w == NULL)
		return;
	if (w->subscribed)
		w->core->notify->ops->unsubscribe(w->core->notify->ctx, on_notification, w);
	sl__lock(&w->mu);
	w->stop = true;
	wake(w);
	sl__unlock(&w->mu);
	if (w->started)
		(void)pthread_join(w->thread, NULL);
	sl__cond_fini(&w->changed);
	sl__mutex_fini(&w->mu);
	free(w);
}
