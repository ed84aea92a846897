/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/thread.h"
#include "support/vclock.h"

struct report {
	sigset_t blocked;
	char name[16];
	sl__mutex mu;
	sl__cond named; /* the starter names the thread after it has begun */
	bool is_named;
};

static void *look_around(void *arg)
{
	struct report *r = arg;
	(void)pthread_sigmask(SIG_BLOCK, NULL, &r->blocked);
	sl__lock(&r->mu);
	while (!r->is_named)
		(void)pthread_cond_wait(&r->named.c, &r->mu.m);
	sl__unlock(&r->mu);
	(void)pthread_getname_np(pthread_self(), r->name, sizeof(r->name));
	return NULL;
}

static void start_and_look(struct report *r, const char *name)
{
	pthread_t thread;
	memset(r, 0, sizeof(*r));
	sl__mutex_init(&r->mu);
	sl__cond_init(&r->named);
	assert_int_equal(sl__thread_start(&thread, name, look_around, r), 0);
	sl__lock(&r->mu);
	r->is_named = true;
	sl__signal(&r->named);
	sl__unlock(&r->mu);
	assert_int_equal(pthread_join(thread, NULL), 0);
	sl__cond_fini(&r->named);
	sl__mutex_fini(&r->mu);
}

static void a_library_thread_blocks_every_signal(void **state)
{
	(void)state;
	struct report r;
	start_and_look(&r, "quiet");
	for (int signal = 1; signal < SIGRTMAX; signal++) {
		bool possible = signal != SIGKILL && signal != SIGSTOP && (signal < 32 || signal >= SIGRTMIN);
		if (possible && sigismember(&r.blocked, signal) != 1)
			fail_msg("signal %d is not blocked", signal);
	}
}

static void starting_a_thread_leaves_the_callers_signals_alone(void **state)
{
	(void)state;
	sigset_t before, after, one;
	(void)sigemptyset(&one);
	(void)sigaddset(&one, SIGUSR2);
	(void)pthread_sigmask(SIG_BLOCK, &one, NULL);
	(void)pthread_sigmask(SIG_BLOCK, NULL, &before);
	struct report r;
	start_and_look(&r, "quiet");
	(void)pthread_sigmask(SIG_BLOCK, NULL, &after);
	for (int signal = 1; signal < SIGRTMAX; signal++)
		assert_int_equal(sigismember(&before, signal), sigismember(&after, signal));
	assert_int_equal(sigismember(&after, SIGUSR2), 1);
	assert_int_equal(sigismember(&after, SIGTERM), 0);
	(void)pthread_sigmask(SIG_UNBLOCK, &one, NULL);
}

static void a_thread_carries_its_name_cut_at_15_bytes(void **state)
{
	(void)state;
	struct report r;
	start_and_look(&r, "sl-wal-flush");
	assert_string_equal(r.name, "sl-wal-flush");
	start_and_look(&r, "a-name-that-is-far-too-long");
	assert_string_equal(r.name, "a-name-that-is-");
}

static void a_wait_times_out_at_its_deadline_and_not_before(void **state)
{
	(void)state;
	struct sl_env env;
	sl__mutex mu;
	sl__cond cond;
	assert_int_equal(sl__env_init(&env, NULL, NULL), 0);
	sl__mutex_init(&mu);
	sl__cond_init(&cond);
	sl__lock(&mu);
	assert_false(sl__wait(&env, &cond, &mu, -5));
	assert_false(sl__wait(&env, &cond, &mu, sl__mono_ns(&env)));
	int64_t soon = sl__deadline_ns(&env, 20);
	while (sl__wait(&env, &cond, &mu, soon))
		;
	assert_true(sl__mono_ns(&env) >= soon); /* never early: the condition goes by the same clock */
	sl__unlock(&mu);
	sl__cond_fini(&cond);
	sl__mutex_fini(&mu);
}

struct handover {
	struct sl_env env;
	sl__mutex mu;
	sl__cond cond;
	int turns;
	bool timed_out;
};

static void *wait_for_turn(void *arg)
{
	struct handover *h = arg;
	sl__lock(&h->mu);
	while (h->turns == 0)
		(void)sl__wait(&h->env, &h->cond, &h->mu, SL_FOREVER);
	h->turns = 2;
	sl__signal(&h->cond);
	sl__unlock(&h->mu);
	return NULL;
}

static void a_waiter_without_a_deadline_is_woken_by_a_signal(void **state)
{
	(void)state;
	struct handover h = {0};
	pthread_t thread;
	assert_int_equal(sl__env_init(&h.env, NULL, NULL), 0);
	sl__mutex_init(&h.mu);
	sl__cond_init(&h.cond);
	assert_int_equal(sl__thread_start(&thread, "waiter", wait_for_turn, &h), 0);
	sl__lock(&h.mu);
	h.turns = 1;
	sl__signal(&h.cond);
	while (h.turns != 2)
		(void)sl__wait(&h.env, &h.cond, &h.mu, SL_FOREVER);
	sl__unlock(&h.mu);
	assert_int_equal(pthread_join(thread, NULL), 0);
	sl__cond_fini(&h.cond);
	sl__mutex_fini(&h.mu);
}

static void *wait_a_minute(void *arg)
{
	struct handover *h = arg;
	sl__lock(&h->mu);
	int64_t deadline = sl__deadline_ns(&h->env, 60000);
	while (sl__wait(&h->env, &h->cond, &h->mu, deadline))
		;
	h->timed_out = true;
	sl__unlock(&h->mu);
	return NULL;
}

static void a_deadline_follows_the_clock_of_the_environment(void **state)
{
	(void)state;
	struct vclock clock;
	vclock_init(&clock);
	const struct sl_env wanted = {SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &clock};
	struct handover h = {0};
	pthread_t thread;
	assert_int_equal(sl__env_init(&h.env, &wanted, NULL), 0);
	sl__mutex_init(&h.mu);
	sl__cond_init(&h.cond);
	assert_int_equal(sl__thread_start(&thread, "waiter", wait_a_minute, &h), 0);
	vclock_await_waiters(&clock, 1);
	vclock_advance_ms(&clock, 59999);
	vclock_await_waiters(&clock, 1);
	assert_false(h.timed_out);
	vclock_advance_ms(&clock, 1);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(h.timed_out);
	sl__cond_fini(&h.cond);
	sl__mutex_fini(&h.mu);
	vclock_fini(&clock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_library_thread_blocks_every_signal),
		cmocka_unit_test(starting_a_thread_leaves_the_callers_signals_alone),
		cmocka_unit_test(a_thread_carries_its_name_cut_at_15_bytes),
		cmocka_unit_test(a_wait_times_out_at_its_deadline_and_not_before),
		cmocka_unit_test(a_waiter_without_a_deadline_is_woken_by_a_signal),
		cmocka_unit_test(a_deadline_follows_the_clock_of_the_environment),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
