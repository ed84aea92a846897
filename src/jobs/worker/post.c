/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's offer to other processes: while a slot is idle and others can reach this process, an offer stands in the
 * database. The start that takes it sends a letter, and the thread that reads it wakes a slot: no claim stands between.
 * The first lane posts it and takes it back, which are round trips without a sync, when it has nothing better to do.
 * Only the last slot is not used for something else before the offer is back, so that none waits behind it.
 */
#include "jobs/worker/worker.h"

#define ACCEPT_MS 3000 /* a job that a letter brings must have been heard of, and its lease renewed, by then */
#define RETRY_MS INT64_C(1000)

static bool is_due(const sl_worker *w, const struct sl__lane *l, int64_t now_ns) SL_REQUIRES(w->mu)
{
	return now_ns >= l->post_retry_ns || w->state != SL__WORKER_RUNS;
}

/* Does the offer that stands say what is the case? */
static bool is_true(const sl_worker *w, const struct sl__lane *l, size_t types) SL_REQUIRES(w->mu)
{
	return types > 0 && types <= l->posted.offer.n_types && l->posted_at == w->address.lock;
}

bool sl__post_lacks(const sl_worker *w, const struct sl__lane *l, int64_t now_ns)
{
	const struct sl__offering *o = &l->posted;
	if (o->types == NULL || o->closing || !is_due(w, l, now_ns))
		return false;
	size_t types = sl__core_may_offer(w->core, now_ns, true);
	return o->open ? !is_true(w, l, types) : types > 0 && w->address.lock != 0;
}

int64_t sl__post_wake_ns(const struct sl__lane *l, int64_t now_ns)
{
	return l->posted.types != NULL && l->post_retry_ns > now_ns ? l->post_retry_ns : SL_FOREVER;
}

/* What became of it is not known: should a job have been handed over, its lease is ended early. */
static void forget(sl_worker *w, struct sl__lane *l) SL_REQUIRES(w->mu)
{
	int64_t now = sl__mono_ns(&w->home.env);
	sl__core_handed(w->core, &l->posted.todo, SL_EUNAVAIL, now, 0, now);
	l->posted.open = false;
}

static void post(sl_worker *w, struct sl__lane *l) SL_REQUIRES(w->mu)
{
	const sl_store *store = &w->home.store;
	struct sl__offering *o = &l->posted;
	struct sl_address at = w->address;
	l->posted_at = at.lock;
	o->offer.taken = sl__offer_taken;
	o->offer.ctx = o;
	o->open = true;
	sl__unlock(&w->mu);
	int rc = store->ops->post(store->ctx, &o->offer, &at, NULL);
	sl__lock(&w->mu);
	if (rc == 0)
		return;
	l->post_retry_ns = sl__deadline_ns(&w->home.env, RETRY_MS);
	forget(w, l);
}

static void unpost(sl_worker *w, struct sl__lane *l) SL_REQUIRES(w->mu)
{
	const sl_store *store = &w->home.store;
	struct sl__offering *o = &l->posted;
	bool last = w->state != SL__WORKER_RUNS;
	sl__unlock(&w->mu);
	int rc = store->ops->unpost(store->ctx, &o->offer, NULL);
	bool dropped = rc < 0 && last && store->ops->drop(store->ctx, &o->offer) != 0;
	sl__lock(&w->mu);
	if (rc == 1) {
		sl__core_withdrawn(w->core, &o->todo);
		o->open = false;
	} else if (dropped) {
		forget(w, l);
	} else if (rc == 0 || last) {
		o->closing = o->open; /* unless it was taken while the lock was free */
	} else {
		l->posted_at = 0; /* it may be gone: it must be asked after again, whatever the slots do */
		l->post_retry_ns = sl__deadline_ns(&w->home.env, RETRY_MS);
	}
}

bool sl__post_tend(sl_worker *w, struct sl__lane *l, int64_t now_ns)
{
	struct sl__offering *o = &l->posted;
	if (!sl__post_lacks(w, l, now_ns))
		return false;
	if (o->open) {
		unpost(w, l);
		return true;
	}
	o->offer.accept_ms = ACCEPT_MS;
	if (!sl__core_offer(w->core, now_ns, &o->todo, &o->offer, o->types))
		return false;
	post(w, l);
	return true;
}

void sl__post_yield(sl_worker *w, struct sl__lane *l)
{
	int64_t now = sl__mono_ns(&w->home.env);
	if (l->posted.open && !l->posted.closing && is_due(w, l, now) && sl__core_last_slot(w->core))
		unpost(w, l);
}

/* text NULL: the address has changed. A letter that could not be read is answered by taking the offer back. */
void sl__worker_letter(const char *text, void *worker)
{
	sl_worker *w = worker;
	const sl_store *store = &w->home.store;
	const sl_notify *n = w->home.notify;
	struct sl_address at = {.lock = 0};
	int rc = text != NULL ? store->ops->letter(store->ctx, text) : 0;
	if (text != NULL && rc >= 0)
		return;
	if (n->ops->address(n->ctx, &at) == 0)
		at.lock = 0;
	sl__lock(&w->mu);
	w->address = at;
	if (rc < 0)
		w->lanes[0].posted_at = 0; /* what it said must be asked for */
	sl__worker_wake(w, sl__mono_ns(&w->home.env));
	sl__unlock(&w->mu);
}
