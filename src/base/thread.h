/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mutexes that clang can check, conditions on the monotonic clock, and threads that block every signal and carry a
 * name. Conditions are waited for through the environment's clock, so that a virtual clock can drive them.
 */
#ifndef SL_BASE_THREAD_H
#define SL_BASE_THREAD_H

#include <pthread.h>

#include "base/env.h"

typedef struct SL_TSA(capability("mutex")) {
	pthread_mutex_t m;
} sl__mutex;

typedef struct {
	pthread_cond_t c;
} sl__cond;

/* These cannot fail on Linux with default attributes; they assert. */
void sl__mutex_init(sl__mutex *mu);
/* For one that many threads take for a moment: a short spin comes before the sleep. */
void sl__mutex_init_busy(sl__mutex *mu);
void sl__mutex_fini(sl__mutex *mu);
void sl__cond_init(sl__cond *cond);
void sl__cond_fini(sl__cond *cond);

static inline void sl__lock(sl__mutex *mu) SL_ACQUIRE(*mu) SL_NO_TSA
{
	int rc = pthread_mutex_lock(&mu->m);
	assert(rc == 0);
	(void)rc;
}
static inline void sl__unlock(sl__mutex *mu) SL_RELEASE(*mu) SL_NO_TSA
{
	int rc = pthread_mutex_unlock(&mu->m);
	assert(rc == 0);
	(void)rc;
}
static inline void sl__signal(sl__cond *cond)
{
	(void)pthread_cond_signal(&cond->c);
}
static inline void sl__broadcast(sl__cond *cond)
{
	(void)pthread_cond_broadcast(&cond->c);
}
/* false when the deadline has passed; spurious true is allowed. */
static inline bool sl__wait(const struct sl_env *e, sl__cond *cond, sl__mutex *mu, int64_t deadline_ns) SL_REQUIRES(*mu)
{
	return e->clock->wait(&cond->c, &mu->m, deadline_ns, e->clock_ctx) == 0;
}

/* The same with the system's clock; at_ms is a time of sl__clock_ms. */
static inline bool sl__wait_until_ms(sl__cond *cond, sl__mutex *mu, int64_t at_ms) SL_REQUIRES(*mu)
{
	return sl__wait(&sl__env_real, cond, mu, at_ms * 1000000);
}

/* Start a thread with all signals blocked and a name (cut at 15 bytes). 0 or a negative errno. */
int sl__thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg);
/* The error of a start that returned rc: SL_EAGAIN when the system has no room for another thread. */
int sl__thread_error(struct sl_err *err, int rc, const char *role, const char *of);

#endif
