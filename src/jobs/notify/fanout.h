/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What notifiers share: who has subscribed in this process, and the notes that wait to be delivered.
 *
 * One thread of the notifier calls sl__fanout_deliver whenever the wake function has been called; publishers only add
 * to a bounded queue that merges what says the same. When it overflows, subscribers get one note of kind 0 ("check
 * everything") instead of what did not fit.
 *
 * Thread safety: push, subscribe and unsubscribe from any thread; deliver from one thread. Subscribers are called
 * without a lock. unsubscribe waits for a call that is running, unless it is made from that very call.
 * Ownership: a fanout copies notes; env is borrowed.
 */
#ifndef SL_JOBS_NOTIFY_FANOUT_H
#define SL_JOBS_NOTIFY_FANOUT_H

#include <sys/types.h>

#include "base/thread.h"
#include "jobs/notify/ops.h"

#define SL__FANOUT_TYPE_BYTES 129 /* a type's name and its NUL; a longer one is passed as NULL */
#define SL__FANOUT_MAX 256

/* Called without a lock after notes were added to an empty queue: make the thread call sl__fanout_deliver. */
typedef void sl__fanout_wake_fn(void *ctx);

struct sl__fanout_note {
	struct sl_note note; /* its type points to the next field, or is NULL */
	char type[SL__FANOUT_TYPE_BYTES];
};

struct sl__subscriber;

struct sl__fanout {
	const struct sl_env *env;
	pid_t pid; /* of the process that made it */
	sl__fanout_wake_fn *wake;
	void *wake_ctx;
	sl__mutex mu;
	sl__cond idle;                      /* no subscriber is being called */
	struct sl__subscriber *subscribers; /* under mu, as everything below */
	bool delivering;
	pthread_t deliverer;                   /* while delivering */
	struct sl__fanout_note *memory;        /* of both below */
	struct sl__fanout_note *queue, *taken; /* what waits; what the deliverer has taken out */
	size_t n;                              /* in queue */
	bool overflowed;                       /* a note of kind 0 is owed */
};

SL_MUST_CHECK int sl__fanout_init(struct sl__fanout *f, const struct sl_env *env, sl__fanout_wake_fn *wake, void *ctx,
				  struct sl_err *err);
/* Not in use any more. Frees subscriptions that were left. */
void sl__fanout_fini(struct sl__fanout *f);
void sl__fanout_push(struct sl__fanout *f, const struct sl_note *notes, size_t n);
/* Notify subscribers to check everything. */
void sl__fanout_push_all(struct sl__fanout *f);
/* SL_EFORKED in a child of the process that made it. */
SL_MUST_CHECK int sl__fanout_check_fork(const struct sl__fanout *f, struct sl_err *err);

/* Slots of struct sl_notify_ops, for a notifier whose first member is its fanout. All but `healthy` (always 1) check for
 * a fork. When unsubscribe returns, fn is not running with ctx and never will (but for the call it may be made from). */
SL_MUST_CHECK int sl__fanout_publish(void *fanout, const struct sl_note *notes, size_t n, struct sl_err *err);
SL_MUST_CHECK int sl__fanout_subscribe(void *fanout, sl_note_fn *fn, void *ctx, struct sl_err *err);
void sl__fanout_unsubscribe(void *fanout, sl_note_fn *fn, void *ctx);
int sl__fanout_healthy(void *fanout);

/* Call the subscribers with everything that waits, until nothing does. */
void sl__fanout_deliver(struct sl__fanout *f);

#endif
