/* SPDX-License-Identifier: Apache-2.0 */
/* The slots: take a run, call its handler through the middlewares, hand it in, take the next. */
#include "jobs/worker/worker.h"

static int call_next(void *ctx, struct sl_err *err)
{
	struct sl_attempt *a = ctx;
	sl_worker *w = a->w;
	if (a->depth >= w->n_middlewares) {
		const struct sl__process *p = sl__process_of(w, a->run);
		return p->fn(a, err, p->ctx);
	}
	const struct sl_middleware *m = &w->middlewares[a->depth++];
	int rc = m->fn(a, w->id, call_next, a, err, m->ctx);
	a->depth--;
	return rc;
}

static void run_handler(struct sl_attempt *a)
{
	struct sl_err err;
	err.code = 0;
	err.msg[0] = '\0';
	sl__attempt_begin(a);
	sl__tell_started(a->w, a->run);
	a->depth = 0;
	int rc = call_next(a, &err);
	sl__attempt_returned(a, rc, &err);
}

/* An end that an abort undid is observed before the run is handed in: then it may be gone. */
static void observe_abort(sl_worker *w, struct sl_attempt *a) SL_REQUIRES(w->mu)
{
	enum sl_abort_reason reason = (enum sl_abort_reason)a->run->abort;
	if (reason == SL_ABORT_NONE || a->run->declared)
		return;
	sl__unlock(&w->mu);
	sl__abort_observe(w);
	sl__tell_aborted(w, a->run, reason, sl__mono_ns(&w->home.env));
	sl__lock(&w->mu);
}

/* Hand the run in. Its lane is woken when that has reason to move. */
static int64_t hand_in(sl_worker *w, struct sl_attempt *a) SL_REQUIRES(w->mu)
{
	struct sl__run *run = a->run;
	enum sl__ending ending = sl__attempt_finish(w, a);
	struct sl__lane *lane = &w->lanes[run->claim->lane];
	observe_abort(w, a);
	int64_t now = sl__mono_ns(&w->home.env);
	a->run = NULL;
	run->slot = NULL;
	sl__core_end(w->core, run, ending, now);
	if (lane->asleep && sl__core_ready(w->core, lane->index, now)) {
		lane->asleep = false;
		sl__signal(&lane->wake);
	}
	if (w->waiters > 0)
		sl__broadcast(&w->changed);
	return now;
}

/* The pause between two jobs of a slot. */
static void rest(sl_worker *w, struct sl_attempt *a, int64_t now) SL_REQUIRES(w->mu)
{
	int64_t until = now + w->cfg.next_job_delay_ms * 1000000;
	while (!w->end_slots && sl__mono_ns(&w->home.env) < until)
		(void)sl__wait(&w->home.env, &a->wake, &w->mu, until);
	now = sl__mono_ns(&w->home.env);
	sl__core_rested(w->core);
	sl__worker_wake(w, now);
}

static void sleep_idle(sl_worker *w, struct sl_attempt *a) SL_REQUIRES(w->mu)
{
	a->next_idle = w->idle;
	a->idle = true;
	w->idle = a;
	while (a->idle && !w->end_slots)
		(void)sl__wait(&w->home.env, &a->wake, &w->mu, SL_FOREVER);
	if (!a->idle)
		w->waking--;
}

static void take_run(sl_worker *w, struct sl_attempt *a, struct sl__run *run) SL_REQUIRES(w->mu)
{
	a->run = run;
	run->slot = a;
	atomic_store_explicit(&a->aborted, SL_ABORT_NONE, memory_order_relaxed);
	a->lease_lost = false;
	sl__worker_wake_slot(w);
	if (w->clock_until_ns > sl__core_next_abort_ns(w->core)) {
		w->clock_until_ns = INT64_MIN;
		sl__signal(&w->clock_wake);
	}
}

void *sl__slot_main(void *attempt)
{
	struct sl_attempt *a = attempt;
	sl_worker *w = a->w;
	sl__lock(&w->mu);
	int64_t now = sl__mono_ns(&w->home.env);
	while (!w->end_slots) {
		struct sl__run *run = sl__core_take(w->core, now);
		if (run == NULL) {
			sl__worker_wake(w, now); /* what take gave back must be settled */
			sleep_idle(w, a);
			now = sl__mono_ns(&w->home.env);
			continue;
		}
		take_run(w, a, run);
		sl__unlock(&w->mu);
		run_handler(a);
		sl__lock(&w->mu);
		now = hand_in(w, a);
		if (w->cfg.next_job_delay_ms > 0) {
			rest(w, a, now);
			now = sl__mono_ns(&w->home.env);
		}
	}
	sl__unlock(&w->mu);
	return NULL;
}
