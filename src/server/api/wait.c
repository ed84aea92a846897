/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for the end of a chain by a long poll, without a thread for each that waits. One thread hears of ends from
 * the notifier, checks some of the others every second, since notifications can get lost, and answers when the time
 * is over.
 *
 * A wait is in the list until a thread removes it under the lock; that thread answers it, without the lock.
 */
#include "base/thread.h"
#include "base/time.h"
#include "server/api/api.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TIMEOUT_MAX_MS 60000
#define TIMEOUT_MS 30000
#define LOOK_MS 1000
#define LOOK_AT 200 /* waits each second, in turn */

struct wait {
	struct wait *next, *prev;
	struct srv_waits *waits;
	srv_request *r;
	uint64_t chain;
	int64_t until_ms; /* monotonic */
	bool linked;
	bool look; /* a note was about it */
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
static void hear(const struct sl_note *note, void *ctx)
{
	struct srv_waits *w = ctx;
	if (note->kind != 0 && note->kind != SL_NOTE_CHAIN_ENDED)
		return;
	sl__lock(&w->mu);
	for (struct wait *x = w->head.next; x != &w->head; x = x->next)
		if (note->kind == 0 || x->chain == note->id) {
			x->look = true;
			wake(w);
		}
	sl__unlock(&w->mu);
}

/* ---- the thread ---- */

static int keep_status(const struct sl_chain *chain, void *ctx)
{
	*(enum sl_job_status *)ctx = chain->status;
	return 0;
}

/* Whether there is something to answer with: it ended, it is gone, or the store says why not. */
static bool has_ended(struct srv_waits *w, uint64_t chain)
{
	const sl_store *store = w->core->store;
	enum sl_job_status status = 0;
	struct sl_err err = SL_ERR_INIT;
	int rc = store->ops->get_chain(store->ctx, NULL, chain, keep_status, &status, &err);
	return rc == SL_ENOENT || (rc == 0 && status >= SL_JOB_COMPLETED);
}

/* The next one to check, moved to the end of the ring; *late: its time is over. NULL: none, for now. */
static struct wait *next_wait(struct srv_waits *w, int64_t now, int *turns, bool *late)
{
	for (struct wait *x = w->head.next; x != &w->head; x = x->next)
		if (x->look || x->until_ms <= now) {
			*late = !x->look;
			x->look = false;
			return x;
		}
	struct wait *x = w->head.next;
	if (x == &w->head || *turns == 0)
		return NULL;
	--*turns;
	unlink_one(x);
	link_last(w, x);
	*late = false;
	return x;
}

/* With the lock; gives it back meanwhile. The wait stays in the ring while the store is asked, so that it may be gone
 * after: found again by its address and chain. */
static void look_at(struct srv_waits *w, struct wait *x, bool late) SL_REQUIRES(w->mu)
{
	uint64_t chain = x->chain;
	srv_request *r = x->r;
	sl__unlock(&w->mu);
	bool ended = has_ended(w, chain);
	sl__lock(&w->mu);
	struct wait *y = w->head.next;
	while (y != &w->head && (y != x || y->r != r || y->chain != chain))
		y = y->next;
	if (y == &w->head || (!ended && !late))
		return;
	unlink_one(y);
	sl__unlock(&w->mu);
	if (ended)
		srv_chain_answer(r, w->api, chain);
	else {
		srv_error(r, 408, "timeout", "the chain has not ended yet");
	}
	free(y);
	sl__lock(&w->mu);
}

/* When the first time is over, at most a second from now; far in the future when no request waits. */
static int64_t next_time(const struct srv_waits *w, int64_t now, int64_t look_at_ms)
{
	int64_t next = w->head.next == &w->head ? now + 3600000 : look_at_ms;
	for (const struct wait *x = w->head.next; x != &w->head; x = x->next)
		next = x->until_ms < next ? x->until_ms : next;
	return next;
}

static void *run(void *arg)
{
	struct srv_waits *w = arg;
	int64_t look_ms = sl__clock_ms() + LOOK_MS;
	sl__lock(&w->mu);
	while (!w->stop) {
		int64_t now = sl__clock_ms();
		int turns = now >= look_ms ? LOOK_AT : 0;
		bool late = false;
		struct wait *x;
		if (now >= look_ms)
			look_ms = now + LOOK_MS;
		while (!w->stop && (x = next_wait(w, now, &turns, &late)) != NULL)
			look_at(w, x, late);
		int64_t ms = next_time(w, now, look_ms);
		while (!w->woken && !w->stop && sl__wait_until_ms(&w->changed, &w->mu, ms))
			;
		w->woken = false;
	}
	sl__unlock(&w->mu);
	return NULL;
}

/* ---- requests ---- */

/* The client has left, or the server stops. */
static void gone(srv_request *r, void *ctx)
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
	srv_error(r, 503, "stopping", "the server stops");
	free(x);
}

static bool read_timeout(srv_request *r, uint64_t *out)
{
	static const char *const names[] = {"timeout_ms", NULL};
	const char *text = srv_query(r, "timeout_ms");
	*out = TIMEOUT_MS;
	return srv_in_query(r, names) && (text == NULL || srv_in_number(r, "timeout_ms", text, TIMEOUT_MAX_MS, out));
}

void srv_chains_wait(srv_request *r, void *ctx)
{
	struct srv_api *api = ctx;
	struct srv_waits *w = api->waits;
	uint64_t id, timeout_ms;
	if (!srv_in_id(r, &id) || !read_timeout(r, &timeout_ms))
		return;
	struct wait *x = calloc(1, sizeof(*x));
	if (x == NULL) {
		srv_error(r, 500, "internal", "out of memory");
		return;
	}
	*x = (struct wait){.waits = w, .r = r, .chain = id, .until_ms = sl__clock_ms() + (int64_t)timeout_ms};
	/* Registered first and checked then: no end falls in between. */
	const sl_store *store = w->core->store;
	enum sl_job_status status = 0;
	struct sl_err err = SL_ERR_INIT;
	uint64_t chain = x->chain;
	srv_later(r, gone, x);
	sl__lock(&w->mu);
	link_last(w, x);
	wake(w);
	sl__unlock(&w->mu);
	int rc = store->ops->watch(store->ctx, chain, &status, &err);
	if (rc == 0 && status < SL_JOB_COMPLETED)
		return;
	/* x may be gone: only its address is compared. */
	sl__lock(&w->mu);
	struct wait *y = w->head.next;
	while (y != &w->head && (y != x || y->r != r || y->chain != chain))
		y = y->next;
	bool ours = y != &w->head;
	if (ours)
		unlink_one(y);
	sl__unlock(&w->mu);
	if (!ours)
		return;
	if (rc == 0)
		srv_chain_answer(r, w->api, chain);
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
	w->started = sl__thread_start(&w->thread, "sl-waits", run, w) == 0;
	if (!w->started)
		return sl_err_set(err, SL_EAGAIN, "no thread for those who wait");
	if (core->notify == NULL || core->notify->ops == NULL)
		return 0;
	int rc = core->notify->ops->subscribe(core->notify->ctx, hear, w, err);
	w->subscribed = rc == 0;
	return rc;
}

void srv_waits_free(struct srv_waits *w)
{
	if (w == NULL)
		return;
	if (w->subscribed)
		w->core->notify->ops->unsubscribe(w->core->notify->ctx, hear, w);
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
