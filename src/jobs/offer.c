/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's offer: while its first lane sleeps, the store may hand it a job that is being started in this process.
 * The thread that starts the job then wakes a slot itself; neither the notifier nor the lane stands between.
 */
#include "jobs/worker.h"

static void tell_acquired(sl_worker *w, struct sl__lane *l, int64_t now_ms)
{
	if (!sl__observer_listens(&w->home.observer))
		return;
	sl__lock(&w->mu);
	l->being_taken = true;
	l->taker = pthread_self();
	sl__unlock(&w->mu);
	sl__tell_acquired(w, l->offer_todo.claim, now_ms);
}

static void on_taken(int rc, const struct sl_claimed_job *job, int64_t sent_ns, int64_t now_ms, void *lane)
{
	struct sl__lane *l = lane;
	sl_worker *w = l->w;
	if (job != NULL && sl__core_claimed(w->core, &l->offer_todo, job) == 0)
		tell_acquired(w, l, now_ms);
	sl__lock(&w->mu);
	int64_t now = sl__mono_ns(&w->home.env);
	sl__core_handed(w->core, &l->offer_todo, rc, sent_ns, now_ms, now);
	l->offered = l->closing = l->being_taken = false;
	sl__worker_wake(w, now);
	/* The next offer is the lane's to make; and when it is to end, it waits for this one. */
	l->asleep = false;
	sl__signal(&l->wake);
	sl__unlock(&w->mu);
}

bool sl__offer_lacks(const sl_worker *w, const struct sl__lane *l, int64_t now_ns)
{
	return l->offer_types != NULL && !l->closing &&
	       sl__core_may_offer(w->core, now_ns) > (l->offered ? l->offer.n_types : 0);
}

bool sl__offer_open(sl_worker *w, struct sl__lane *l)
{
	const sl_store *store = &w->home.store;
	if (l->offered || l->offer_types == NULL ||
	    !sl__core_offer(w->core, sl__mono_ns(&w->home.env), &l->offer_todo, &l->offer, l->offer_types))
		return false;
	l->offer.taken = on_taken;
	l->offer.ctx = l;
	l->offered = true;
	sl__unlock(&w->mu);
	store->ops->offer(store->ctx, &l->offer);
	sl__lock(&w->mu);
	return true;
}

bool sl__offer_close(sl_worker *w, struct sl__lane *l)
{
	const sl_store *store = &w->home.store;
	if (!l->offered || l->closing)
		return false;
	sl__unlock(&w->mu);
	int back = store->ops->withdraw(store->ctx, &l->offer);
	sl__lock(&w->mu);
	if (back != 0) {
		sl__core_withdrawn(w->core, &l->offer_todo);
		l->offered = false;
	} else {
		l->closing = l->offered; /* unless it was taken while the lock was free */
	}
	return true;
}
