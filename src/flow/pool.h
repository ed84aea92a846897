/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool: named threads that belong to a handle and are joined when it stops.
 *
 * Guarantees: either all n threads run or none ever entered fn (a start that fails half-way unwinds by itself); when
 * stop returns to a caller outside the pool, every thread has left fn and is joined. Not guaranteed: that fn returns.
 * It must leave soon after sl__pool_stopping turns true, or after wake made what it waits for happen.
 *
 * Thread safety: stop and stopping may be called from any thread, several at once; free must be the last call.
 * Ownership: ctx stays the caller's and must live until stop returned; name is copied.
 */
#ifndef SL_FLOW_POOL_H
#define SL_FLOW_POOL_H

#include "base/thread.h"

typedef struct sl__pool sl__pool;

/* The work of thread `index` (0 … n-1). Runs with all signals blocked, without locks. */
typedef void sl__pool_fn(unsigned index, void *ctx);
/* Called by the first stop, after sl__pool_stopping is true and without locks: lock what the threads wait under,
 * broadcast, unlock. */
typedef void sl__pool_wake_fn(void *ctx);

#define SL__POOL_MAX 4096

/*
 * Start n threads (1 … SL__POOL_MAX) called "<name>-<index>", cut so that the index stays readable; a pool of one is
 * called "<name>". wake may be NULL. *out is set before the first thread enters fn, so fn may use it, and is untouched
 * on failure: SL_EINVAL, SL_ENOMEM, SL_EAGAIN (the system has no more threads).
 */
SL_MUST_CHECK int sl__pool_start(sl__pool **out, const struct sl_env *env, const char *name, unsigned n,
				 sl__pool_fn *fn, sl__pool_wake_fn *wake, void *ctx, struct sl_err *err);

/* True once stop was called. Cheap; for the loops of fn. */
bool sl__pool_stopping(const sl__pool *p);

/* Ask the threads to end and join them. Idempotent; a second caller waits as well. Called from a thread of the pool it
 * only asks: the join is left to a caller outside. In a forked child, where the threads do not exist, it does nothing.
 * NULL is allowed. */
void sl__pool_stop(sl__pool *p);

/* Stop, then free. NULL is allowed. */
void sl__pool_free(sl__pool *p);

#endif
