/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slots: take a run, call its handler through the middlewares, hand it in, take the next. And the abort signal of
 * their attempts: the clock that fires it in time, and the ways in which a handler learns of it.
 */
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "jobs/worker/worker.h"

static int call_next_middleware(struct sl_err *err, void *ctx)
{
	struct sl_attempt *a = ctx;
	sl_worker *w = a->w;
	if (a->depth >= w->n_middlewares) {
		const struct sl__process *p = sl__process_of(w, a->run);
		return p->fn(a, err, p->ctx);
	}
	const struct sl_middleware *m = &w->middlewares[a->depth++];
	int rc = m->fn(a, w->id, call_next_middleware, a, err, m->ctx);
	a->depth--;
	return rc;
}

/* Hand the run in, wake its lane when that has reason to move, and pause before the next job. Returns the time. */
static int64_t hand_in(sl_worker *w, struct sl_attempt *a) SL_REQUIRES(w->mu)
{
	const struct sl_env *env = &w->home.env;
	struct sl__run *run = a->run;
	enum sl__ending ending = sl__attempt_finish(w, a);
	struct sl__lane *lane = &w->lanes[run->claim->lane];
	int64_t rest_ms = w->core_types[run->type].next_job_delay_ms;
	enum sl_abort_reason reason = (enum sl_abort_reason)run->abort;
	if (reason != SL_ABORT_NONE && !run->declared) {
		/* Observed before the run is handed in: after that it may be gone. */
		sl__unlock(&w->mu);
		sl__abort_observe(w);
		sl__report_aborted(w, run, reason, sl__mono_ns(env));
		sl__lock(&w->mu);
	}
	int64_t now = sl__mono_ns(env);
	a->run = NULL;
	run->slot = NULL;
	sl__core_end(w->core, run, ending, now);
	if (lane->asleep && sl__core_ready(w->core, lane->index, now)) {
		lane->asleep = false;
		sl__signal(&lane->wake);
	}
	if (w->waiters > 0)
		sl__broadcast(&w->changed);
	if (rest_ms == 0)
		return now;
	int64_t until = now + rest_ms * 1000000;
	while (!w->end_slots && sl__mono_ns(env) < until)
		(void)sl__wait(env, &a->wake, &w->mu, until);
	sl__core_rested(w->core);
	now = sl__mono_ns(env);
	sl__worker_wake(w, now);
	return now;
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
			a->next_idle = w->idle;
			a->idle = true;
			w->idle = a;
			while (a->idle && !w->end_slots)
				(void)sl__wait(&w->home.env, &a->wake, &w->mu, SL_FOREVER);
			if (!a->idle)
				w->waking--;
			now = sl__mono_ns(&w->home.env);
			continue;
		}
		a->run = run;
		run->slot = a;
		atomic_store_explicit(&a->aborted, SL_ABORT_NONE, memory_order_relaxed);
		a->lease_lost = false;
		sl__worker_wake_slot(w);
		if (w->clock_until_ns > sl__core_next_abort_ns(w->core)) {
			w->clock_until_ns = INT64_MIN;
			sl__signal(&w->clock_wake);
		}
		sl__unlock(&w->mu);

		struct sl_err err;
		err.code = 0;
		err.msg[0] = '\0';
		sl__attempt_begin(a);
		sl__report_started(w, run);
		a->depth = 0;
		int rc = call_next_middleware(&err, a);
		sl__attempt_returned(a, rc, &err);

		sl__lock(&w->mu);
		now = hand_in(w, a);
	}
	sl__unlock(&w->mu);
	return NULL;
}

/* ---- the abort signal ---- */

void sl__abort_fire(struct sl__run *run, enum sl_abort_reason reason, void *worker)
{
	struct sl_attempt *a = run->slot;
	(void)worker;
	if (a == NULL)
		return;
	atomic_store_explicit(&a->aborted, (int)reason, memory_order_release);
	a->lease_lost = reason != SL_ABORT_TIMEOUT && reason != SL_ABORT_SHUTDOWN;
	if (a->abort_fd >= 0)
		(void)!write(a->abort_fd, &(uint64_t){1}, sizeof(uint64_t));
	sl__broadcast(&a->abort_cond);
}

void sl__abort_observe(sl_worker *w)
{
	sl__lock(&w->mu);
	for (unsigned i = 0; i < w->n_started; i++) {
		struct sl_attempt *a = &w->slots[i];
		if (!a->lease_lost || a->run == NULL)
			continue;
		a->lease_lost = false;
		/* Copied, since its slot may hand it in meanwhile; and only what is the core's or constant, since the slot
		 * fills in the rest without the lock. */
		const struct sl__run run = {.id = a->run->id,
					    .chain_id = a->run->chain_id,
					    .attempt = a->run->attempt,
					    .type = a->run->type,
					    .lost = a->run->lost,
					    .abort = a->run->abort,
					    .started_ns = a->run->started_ns};
		sl__unlock(&w->mu);
		sl__report_lost(w, &run, (enum sl_lost_reason)run.lost);
		sl__lock(&w->mu);
	}
	sl__unlock(&w->mu);
}

void *sl__clock_main(void *worker)
{
	sl_worker *w = worker;
	sl__lock(&w->mu);
	while (!w->end_clock) {
		int64_t now = sl__mono_ns(&w->home.env), next = sl__core_next_abort_ns(w->core);
		if (now >= next) {
			const sl_store *store = &w->home.store;
			bool shielded = store->ops->renewal_waits != NULL && store->ops->renewal_waits(store->ctx);
			sl__core_expire(w->core, now, shielded, sl__abort_fire, w);
			sl__unlock(&w->mu);
			sl__abort_observe(w);
			sl__lock(&w->mu);
			continue;
		}
		w->clock_until_ns = next;
		(void)sl__wait(&w->home.env, &w->clock_wake, &w->mu, next);
		w->clock_until_ns = INT64_MIN;
	}
	sl__unlock(&w->mu);
	return NULL;
}

enum sl_abort_reason sl_attempt_aborted(const sl_attempt *a)
{
	return (enum sl_abort_reason)atomic_load_explicit(&a->aborted, memory_order_acquire);
}

int sl_attempt_abort_fd(sl_attempt *a, struct sl_err *err)
{
	sl_worker *w = a->w;
	int error = 0;
	sl__lock(&w->mu);
	if (a->abort_fd < 0) {
		unsigned fired = sl_attempt_aborted(a) != SL_ABORT_NONE;
		a->abort_fd = eventfd(fired, EFD_CLOEXEC | EFD_NONBLOCK);
		error = a->abort_fd < 0 ? errno : 0;
	}
	int fd = a->abort_fd;
	sl__unlock(&w->mu);
	return fd >= 0 ? fd : sl_err_set_errno(err, error, "make the descriptor of an abort signal");
}

enum sl_abort_reason sl_attempt_wait_abort(sl_attempt *a, int64_t timeout_ms)
{
	sl_worker *w = a->w;
	const struct sl_env *env = &w->home.env;
	int64_t until = sl__deadline_ns(env, timeout_ms);
	sl__lock(&w->mu);
	while (sl_attempt_aborted(a) == SL_ABORT_NONE && sl__mono_ns(env) < until)
		(void)sl__wait(env, &a->abort_cond, &w->mu, until);
	sl__unlock(&w->mu);
	return sl_attempt_aborted(a);
}
