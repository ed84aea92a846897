/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of limiter, tokens and breaker share: an environment whose clock is a virtual one, a call that blocks
 * on a separate thread, and a crowd of threads that runs for SLUICE_TEST_SECONDS.
 */
#ifndef TESTS_FLOW_TIMED_H
#define TESTS_FLOW_TIMED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/thread.h"
#include "support/budget.h"
#include "support/vclock.h"

#define MS ((int64_t)1000000)

struct timed {
	struct vclock clock;
	struct sl_env env;
};

/* A zeroed fixture of that many bytes, which begins with a struct timed. */
static inline int timed_set_up(void **state, size_t bytes)
{
	struct timed *t = *state = calloc(1, bytes);
	vclock_init(&t->clock);
	t->env = (struct sl_env){SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &t->clock};
	return 0;
}

static inline int timed_tear_down(void **state)
{
	struct timed *t = *state;
	vclock_fini(&t->clock);
	free(t);
	return 0;
}

/* A call that may block. fn and ctx are the test's. */
struct timed_call {
	int (*fn)(void *ctx);
	void *ctx;
	int rc;
	pthread_t thread;
};

static inline void *timed_call_main(void *arg)
{
	struct timed_call *c = arg;
	c->rc = c->fn(c->ctx);
	return NULL;
}

static inline void timed_call_start(struct timed_call *c, int (*fn)(void *ctx), void *ctx)
{
	*c = (struct timed_call){.fn = fn, .ctx = ctx, .rc = 99};
	assert_int_equal(pthread_create(&c->thread, NULL, timed_call_main, c), 0);
}

/* It returns, with rc. */
static inline void timed_call_finish(struct timed_call *c, int rc)
{
	pthread_join(c->thread, NULL);
	assert_int_equal(c->rc, rc);
}

#define CROWD_MAX 8

/* n threads run main(arg) until *stop; meanwhile watch(arg) is called again and again. Real time. */
static inline void crowd_run(size_t n, void *(*main)(void *), void (*watch)(void *), void *arg, atomic_bool *stop)
{
	pthread_t threads[CROWD_MAX];
	struct sl_env real;
	assert_true(n <= CROWD_MAX);
	assert_int_equal(sl__env_init(&real, NULL, NULL), 0);
	int64_t end = sl__deadline_ns(&real, (int64_t)(test_seconds(1) * 1000));
	for (size_t i = 0; i < n; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, main, arg), 0);
	while (sl__mono_ns(&real) < end)
		watch(arg);
	atomic_store(stop, true);
	for (size_t i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
}

#endif
