/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "flow/pool.h"
#include "support/budget.h"
#include "support/fault.h"

/* The linker sends the library's calls here (--wrap), so that the Nth start of a thread can fail. */
static int starts_until_failure;
int __real_sl__thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg);
int __wrap_sl__thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg);
int __wrap_sl__thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg)
{
	if (starts_until_failure > 0 && --starts_until_failure == 0)
		return -EAGAIN;
	return __real_sl__thread_start(out, name, fn, arg);
}

struct fixture {
	struct fault fault;
	struct sl_env env;
	sl__mutex mu;
	sl__cond changed;
	sl__pool *pool;
	unsigned entered, left, wakes; /* under mu */
	unsigned seen;                 /* under mu: bit per index */
	char names[8][16];             /* under mu */
	bool unblocked_signal;         /* under mu */
};

static int setup(void **state)
{
	struct fixture *x = calloc(1, sizeof(*x));
	fault_init(&x->fault, NULL);
	struct sl_env env = fault_env(&x->fault, NULL);
	assert_int_equal(sl__env_init(&x->env, &env, NULL), 0);
	sl__mutex_init(&x->mu);
	sl__cond_init(&x->changed);
	starts_until_failure = 0;
	*state = x;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *x = *state;
	sl__pool_free(x->pool);
	assert_int_equal(fault_live_allocs(&x->fault), 0);
	fault_fini(&x->fault);
	sl__mutex_fini(&x->mu);
	sl__cond_fini(&x->changed);
	free(x);
	return 0;
}

/* Says who it is, then waits until the pool stops. */
static void wait_for_stop(unsigned index, void *ctx)
{
	struct fixture *x = ctx;
	sigset_t blocked;
	pthread_sigmask(SIG_BLOCK, NULL, &blocked);
	sl__lock(&x->mu);
	x->entered++;
	x->seen |= 1u << index;
	x->unblocked_signal |= !sigismember(&blocked, SIGTERM) || !sigismember(&blocked, SIGCHLD);
	sl__broadcast(&x->changed);
	while (!sl__pool_stopping(x->pool))
		sl__wait(&x->env, &x->changed, &x->mu, SL_FOREVER);
	/* Last, since the starter names a thread only after creating it. */
	pthread_getname_np(pthread_self(), x->names[index], 16);
	x->left++;
	sl__unlock(&x->mu);
}

static void wake(void *ctx)
{
	struct fixture *x = ctx;
	sl__lock(&x->mu);
	x->wakes++;
	sl__broadcast(&x->changed);
	sl__unlock(&x->mu);
}

static void await_entered(struct fixture *x, unsigned n)
{
	sl__lock(&x->mu);
	while (x->entered < n)
		sl__wait(&x->env, &x->changed, &x->mu, SL_FOREVER);
	sl__unlock(&x->mu);
}

static void every_thread_runs_with_its_index_and_name_and_is_joined(void **state)
{
	struct fixture *x = *state;
	assert_int_equal(sl__pool_start(&x->pool, &x->env, "a-rather-long-name", 3, wait_for_stop, wake, x, NULL), 0);
	await_entered(x, 3);
	assert_false(sl__pool_stopping(x->pool));
	sl__pool_stop(x->pool);
	assert_true(sl__pool_stopping(x->pool));
	assert_int_equal(x->left, 3);
	assert_int_equal(x->seen, 7);
	assert_string_equal(x->names[2], "a-rather-long-2");
	assert_false(x->unblocked_signal);
}

static void a_pool_of_one_has_the_plain_name(void **state)
{
	struct fixture *x = *state;
	assert_int_equal(sl__pool_start(&x->pool, &x->env, "sender", 1, wait_for_stop, wake, x, NULL), 0);
	await_entered(x, 1);
	sl__pool_stop(x->pool);
	assert_string_equal(x->names[0], "sender");
}

static void stop_is_idempotent_and_wakes_once(void **state)
{
	struct fixture *x = *state;
	sl__pool_stop(NULL);
	sl__pool_free(NULL);
	assert_int_equal(sl__pool_start(&x->pool, &x->env, "p", 4, wait_for_stop, wake, x, NULL), 0);
	sl__pool_stop(x->pool);
	sl__pool_stop(x->pool);
	sl__pool_stop(x->pool);
	assert_int_equal(x->wakes, 1);
	assert_int_equal(x->left, 4);
}

static void a_start_that_fails_half_way_never_enters_the_work(void **state)
{
	struct fixture *x = *state;
	for (int nth = 1; nth <= 4; nth++) {
		struct sl_err err = SL_ERR_INIT;
		starts_until_failure = nth;
		assert_int_equal(sl__pool_start(&x->pool, &x->env, "p", 4, wait_for_stop, wake, x, &err), SL_EAGAIN);
		assert_null(x->pool);
		assert_int_equal(x->entered, 0);
		assert_int_equal(x->wakes, 0);
		assert_non_null(strstr(err.msg, "pool p"));
		assert_int_equal(fault_live_allocs(&x->fault), 0);
	}
}

static void a_start_without_memory_fails_cleanly(void **state)
{
	struct fixture *x = *state;
	fault_arm_mem(&x->fault, 1, FAULT_ONCE);
	assert_int_equal(sl__pool_start(&x->pool, &x->env, "p", 4, wait_for_stop, wake, x, NULL), SL_ENOMEM);
	fault_disarm(&x->fault);
	assert_null(x->pool);
	assert_int_equal(sl__pool_start(&x->pool, &x->env, "p", 0, wait_for_stop, wake, x, NULL), SL_EINVAL);
	assert_int_equal(sl__pool_start(&x->pool, &x->env, "p", SL__POOL_MAX + 1, wait_for_stop, wake, x, NULL),
			 SL_EINVAL);
}

static void stop_itself(unsigned index, void *ctx)
{
	struct fixture *x = ctx;
	if (index == 0)
		sl__pool_stop(x->pool);
	wait_for_stop(index, ctx);
}

static void a_thread_of_the_pool_may_ask_for_the_stop(void **state)
{
	struct fixture *x = *state;
	assert_int_equal(sl__pool_start(&x->pool, &x->env, "p", 3, stop_itself, wake, x, NULL), 0);
	sl__pool_stop(x->pool);
	assert_int_equal(x->left, 3);
	assert_int_equal(x->wakes, 1);
}

static void a_forked_child_neither_joins_nor_hangs(void **state)
{
	struct fixture *x = *state;
	assert_int_equal(sl__pool_start(&x->pool, &x->env, "p", 2, wait_for_stop, wake, x, NULL), 0);
	await_entered(x, 2);
	pid_t child = fork();
	if (child == 0) {
		sl__pool_stop(x->pool);
		_exit(x->wakes == 0 ? 0 : 1); /* no thread waits */
	}
	int status = -1;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	sl__pool_stop(x->pool);
	assert_int_equal(x->left, 2);
}

static void *stopper(void *ctx)
{
	struct fixture *x = ctx;
	sl__pool_stop(x->pool);
	sl__lock(&x->mu);
	unsigned left = x->left;
	sl__unlock(&x->mu);
	return (void *)(uintptr_t)left;
}

/* Many rounds of start, stop from several threads at once (two of them inside), free. */
static void stops_from_everywhere_at_once_all_see_the_end(void **state)
{
	struct fixture *x = *state;
	int64_t end = sl__deadline_ns(&x->env, (int64_t)(test_seconds(1) * 1000));
	unsigned rounds = 0;
	do {
		x->left = x->entered = 0;
		assert_int_equal(sl__pool_start(&x->pool, &x->env, "p", 4, rounds % 2 ? stop_itself : wait_for_stop,
						wake, x, NULL),
				 0);
		pthread_t threads[3];
		for (size_t i = 0; i < SL_COUNT(threads); i++)
			assert_int_equal(pthread_create(&threads[i], NULL, stopper, x), 0);
		for (size_t i = 0; i < SL_COUNT(threads); i++) {
			void *left;
			pthread_join(threads[i], &left);
			assert_int_equal((uintptr_t)left, 4);
		}
		sl__pool_free(x->pool);
		x->pool = NULL;
		rounds++;
	} while (sl__mono_ns(&x->env) < end);
	printf("# %u rounds\n", rounds);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(every_thread_runs_with_its_index_and_name_and_is_joined),
		T(a_pool_of_one_has_the_plain_name),
		T(stop_is_idempotent_and_wakes_once),
		T(a_start_that_fails_half_way_never_enters_the_work),
		T(a_start_without_memory_fails_cleanly),
		T(a_thread_of_the_pool_may_ask_for_the_stop),
		T(a_forked_child_neither_joins_nor_hangs),
		T(stops_from_everywhere_at_once_all_see_the_end),
	};
	return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
