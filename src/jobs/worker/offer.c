/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's offer: while its first lane sleeps, the store may hand it a job that is being started in this process.
 * The thread that starts the job then wakes a slot itself; neither the notifier nor the lane stands between.
 */
#include "jobs/worker/worker.h"

static void tell_acquired(sl_worker *w, struct sl__offering *o, int64_t now_ms)
{
	if (!sl__observer_listens(&w->home.observer))
		return;
	sl__lock(&w->mu);
	o->being_taken = true;
	o->taker = pthread_self();
	sl__unlock(&w->mu);
	sl__tell_acquired(w, o->todo.claim, now_ms);
}

void sl__offer_taken(int rc, const struct sl_claimed_job *job, int64_t sent_ns, int64_t now_ms, void *offering)
{
	struct sl__offering *o = offering;
	struct sl__lane *l = o->lane;
	sl_worker *w = l->w;
	if (job != NULL && sl__core_claimed(w->core, &o->todo, job) == 0)
		tell_acquired(w, o, now_ms);
	sl__lock(&w->mu);
	int64_t now = sl__mono_ns(&w->home.env);
	sl__core_handed(w->core, &o->todo, rc, sent_ns, now_ms, now);
	o->open = o->closing = o->being_taken = false;
	sl__worker_wake(w, now);
	/* The next offer is the lane's to make; and when it is to end, it waits for this one. */
	l->asleep = false;
	sl__signal(&l->wake);
	sl__unlock(&w->mu);
}

bool sl__offer_lacks(const sl_worker *w, const struct sl__lane *l, int64_t now_ns)
{
	const struct sl__offering *o = &l->here;
	return o->types != NULL && !o->closing &&
	       sl__core_may_offer(w->core, now_ns, false) > (o->open ? o->offer.n_types : 0);
}

bool sl__offer_open(sl_worker *w, struct sl__lane *l)
{
	const sl_store *store = &w->home.store;
	struct sl__offering *o = &l->here;
	if (o->open || o->types == NULL ||
	    !sl__core_offer(w->core, sl__mono_ns(&w->home.env), &o->todo, &o->offer, o->types))
		return false;
	o->offer.taken = sl__offer_taken;
	o->offer.ctx = o;
	o->open = true;
	sl__unlock(&w->mu);
	store->ops->offer(store->ctx, &o->offer);
	sl__lock(&w->mu);
	return true;
}

bool sl__offer_close(sl_worker *w, struct sl__lane *l)
{
	const sl_store *store = &w->home.store;
	struct sl__offering *o = &l->here;
	if (!o->open || o->closing)
		return false;
	sl__unlock(&w->mu);
	int back = store->ops->withdraw(store->ctx, &o->offer);
	sl__lock(&w->mu);
	if (back != 0) {
		sl__core_withdrawn(w->core, &o->todo);
		o->open = false;
	} else {
		o->closing = o->open; /* unless it was taken while the lock was free */
	}
	return true;
}
