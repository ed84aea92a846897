/* SPDX-License-Identifier: Apache-2.0 */
/* The abort signal: the clock that fires it in time, and the ways in which a handler hears of it. */
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "jobs/worker/worker.h"

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

/* The one that is observed next: copied, since its slot may hand it in meanwhile; and only what is the core's or
 * constant, since the slot fills in the rest without the lock. */
static bool next_lost(sl_worker *w, struct sl__run *out)
{
	bool found = false;
	sl__lock(&w->mu);
	for (unsigned i = 0; i < w->n_started && !found; i++) {
		struct sl_attempt *a = &w->slots[i];
		found = a->lease_lost && a->run != NULL;
		a->lease_lost = a->lease_lost && !found;
		if (found)
			*out = (struct sl__run){.id = a->run->id,
						.chain_id = a->run->chain_id,
						.attempt = a->run->attempt,
						.type = a->run->type,
						.lost = a->run->lost,
						.abort = a->run->abort,
						.started_ns = a->run->started_ns};
	}
	sl__unlock(&w->mu);
	return found;
}

void sl__abort_observe(sl_worker *w)
{
	struct sl__run run;
	while (next_lost(w, &run))
		sl__tell_lease(w, SL_OBSERVE_LEASE_LOST, &run);
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

/* ---- for handlers ---- */

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
