/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lanes: settle what ended and claim the next, in one exchange with the store.
 *
 * While the first lane sleeps, its offer is open: the store may accept it for a job that is started in this process.
 * The thread that starts the job then wakes a slot itself, without the notifier or a lane in between.
 */
#include "jobs/worker/worker.h"

static int on_claimed(const struct sl_claimed_job *job, void *ctx)
{
	struct sl__lane *l = ctx;
	return sl__core_claimed(l->w->core, &l->todo, job);
}

/* A job settles after its events are durable; one whose events are not is released, and runs again. The first wait of a
 * batch lasts a flush of the log, the others find it done. */
static void await_events(struct sl__lane *l)
{
	sl_worker *w = l->w;
	for (size_t i = 0; i < l->todo.n_runs; i++) {
		struct sl__run *run = l->todo.runs[i];
		struct sl_err err = SL_ERR_INIT;
		if (run->ticket.batch == 0)
			continue;
		int rc = sl__emit_wait(w, &run->ticket, &err);
		run->ticket.batch = 0;
		if (rc == 0 || run->kind == SL_SETTLE_RELEASE)
			continue;
		sl__lock(&w->mu);
		sl__core_refuse(w->core, run, !sl__worker_log_error(rc), err.msg);
		sl__unlock(&w->mu);
		run->error_code = rc;
	}
}

/* Notes about jobs that this exchange has claimed itself go no further; the others are for us as well, but for those
 * about jobs that it has put back for later: we know when, and others must, since we may not be there by then. */
static void pass_notes(sl_worker *w, struct sl__lane *l, int64_t now_ns) SL_REQUIRES(w->mu)
{
	for (size_t i = 0; i < l->heard.notes.n; i++) {
		const struct sl_note *note = &l->heard.notes.notes[i];
		if (!note->later && sl__core_satisfied(w->core, &l->todo, note))
			continue;
		if (!note->later)
			sl__core_note(w->core, note, now_ns);
		if (l->fx.scope.note != NULL)
			l->fx.scope.note(note, l->fx.scope.ctx);
	}
}

static void exchange_batch(sl_worker *w, struct sl__lane *l) SL_REQUIRES(w->mu)
{
	const sl_store *store = &w->home.store;
	struct sl__todo *todo = &l->todo;
	struct sl_claim_reply reply = {.next_due_in_ms = -1, .next_expiry_in_ms = -1};
	struct sl_err err = SL_ERR_INIT;
	sl__unlock(&w->mu);
	if (w->events != NULL)
		await_events(l);
	for (size_t i = 0; i < todo->n_runs; i++)
		sl__core_settle(w->core, todo->runs[i], &l->settles[i]);
	int rc = store->ops->exchange(store->ctx,
				      &(struct sl_exchange){.settles = l->settles,
							    .n_settles = todo->n_runs,
							    .results = l->results,
							    .request = todo->claim != NULL ? &todo->request : NULL,
							    .reply = &reply,
							    .claimed = on_claimed,
							    .claimed_ctx = l},
				      &l->heard.scope, &err);
	bool refused = sl__core_refused(todo, rc, &err);

	/* What is durable now is observed before the core takes the runs back. */
	for (size_t i = 0; rc == 0 && i < todo->n_runs; i++)
		sl__report_settled(w, todo->runs[i],
				   sl__core_done(todo->runs[i], &l->results[i]) ? SL_LOST_NOT : l->results[i].lost);
	if (rc == 0 && todo->claim != NULL)
		sl__report_acquired(w, todo->claim, reply.now_ms);
	/* In a batch it is unknown whose data was refused: each run is sent alone, and then the one is logged. */
	if (refused && todo->n_runs == 1 && todo->runs[0]->suspect != SL__RUN_TRUSTED)
		sl__log(&w->home.env, SL_LOG_WARN, "worker",
			"the store refused the end of an attempt, which has failed", SL__F_STR("worker", w->id),
			SL__F_U64("job", todo->runs[0]->id), SL__F_STR("code", sl_err_name(rc)),
			SL__F_STR("error", err.msg));
	sl__report_store(w, SL__ASKS_EXCHANGE, refused ? 0 : rc, &err);
	if (refused)
		sl__report_worker(w, SL_OBSERVE_WORKER_ERROR, &err);

	sl__lock(&w->mu);
	int64_t now = sl__mono_ns(&w->home.env);
	const struct sl__answer answer = {.rc = rc, .err = &err, .results = l->results, .reply = &reply};
	sl__core_exchanged(w->core, todo, &answer, now);
	if (rc == 0)
		pass_notes(w, l, now);
	sl__worker_wake(w, now);
	sl__unlock(&w->mu);
	sl__notes_clear(&l->heard.notes);
	if (rc == 0)
		sl__effects_send(&l->fx);
	else
		sl__effects_fini(&l->fx);
	sl__lock(&w->mu);
}

/* ---- the offer ---- */

/* The offer was accepted: its job goes to a slot. */
static void accept_offer(int rc, const struct sl_claimed_job *job, int64_t sent_ns, int64_t now_ms, void *offering)
{
	struct sl__offering *o = offering;
	struct sl__lane *l = o->lane;
	sl_worker *w = l->w;
	if (job != NULL && sl__core_claimed(w->core, &o->todo, job) == 0 && sl__observer_listens(&w->home.observer)) {
		sl__lock(&w->mu);
		o->being_accepted = true;
		o->taker = pthread_self();
		sl__unlock(&w->mu);
		sl__report_acquired(w, o->todo.claim, now_ms);
	}
	sl__lock(&w->mu);
	int64_t now = sl__mono_ns(&w->home.env);
	sl__core_offer_accepted(w->core, &o->todo, &(struct sl__offer_accepted){rc, sent_ns, now_ms}, now);
	o->open = o->closing = o->being_accepted = false;
	sl__worker_wake(w, now);
	/* The lane makes the next offer, and a lane that ends waits for this one. */
	l->asleep = false;
	sl__signal(&l->wake);
	sl__unlock(&w->mu);
}

bool sl__offer_lacks(const sl_worker *w, const struct sl__lane *l, int64_t now_ns)
{
	const struct sl__offering *o = &l->offering;
	return o->types != NULL && !o->closing &&
	       sl__core_may_offer(w->core, now_ns) > (o->open ? o->offer.n_types : 0);
}

/* Open an offer, unless one is open or the store has no offers. True: mu was released meanwhile. */
static bool open_offer(sl_worker *w, struct sl__lane *l) SL_REQUIRES(w->mu)
{
	const sl_store *store = &w->home.store;
	struct sl__offering *o = &l->offering;
	if (o->open || o->types == NULL ||
	    !sl__core_offer(w->core, sl__mono_ns(&w->home.env), &o->todo, &o->offer, o->types))
		return false;
	o->offer.accepted = accept_offer;
	o->offer.ctx = o;
	o->open = true;
	sl__unlock(&w->mu);
	store->ops->offer(store->ctx, &o->offer);
	sl__lock(&w->mu);
	return true;
}

/* Withdraw the offer. One that is being accepted stays open until accept_offer was called, which wakes the lane. True: mu
 * was released meanwhile. */
static bool close_offer(sl_worker *w, struct sl__lane *l) SL_REQUIRES(w->mu)
{
	const sl_store *store = &w->home.store;
	struct sl__offering *o = &l->offering;
	if (!o->open || o->closing)
		return false;
	sl__unlock(&w->mu);
	int withdrawn = store->ops->withdraw(store->ctx, &o->offer);
	sl__lock(&w->mu);
	if (withdrawn != 0) {
		sl__core_withdrawn(w->core, &o->todo);
		o->open = false;
	} else {
		o->closing = o->open; /* unless it was accepted while the lock was free */
	}
	return true;
}

/* ---- the thread ---- */

void *sl__lane_main(void *lane)
{
	struct sl__lane *l = lane;
	sl_worker *w = l->w;
	sl__lock(&w->mu);
	for (;;) {
		int64_t now = sl__mono_ns(&w->home.env);
		sl__core_next(w->core, now, &l->todo);
		if (l->todo.kind == SL__TODO_EXCHANGE) {
			(void)close_offer(w, l);
			exchange_batch(w, l);
			continue;
		}
		/* Both release the lock, so the lane decides again. A stop closes the offer for good, and an offer that
		 * lacks types is replaced. */
		bool keep = sl__core_may_offer(w->core, now) > 0 && !(l->offering.open && sl__offer_lacks(w, l, now));
		if (keep ? open_offer(w, l) : close_offer(w, l))
			continue;
		if (l->todo.kind == SL__TODO_END && !l->offering.open)
			break;
		l->asleep = true;
		(void)sl__wait(&w->home.env, &l->wake, &w->mu, l->todo.wake_ns);
		l->asleep = false;
	}
	sl__broadcast(&w->changed);
	sl__unlock(&w->mu);
	return NULL;
}
