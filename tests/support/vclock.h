/* SPDX-License-Identifier: Apache-2.0 */
/* A clock for tests that moves only when the test advances it. Threads that wait through it sleep until signalled or
 * until virtual time has reached their deadline. Put &vclock_table and the vclock into struct sl_env as clock and
 * clock_ctx. */
#ifndef TESTS_VCLOCK_H
#define TESTS_VCLOCK_H

#include <sluice/adapter/env.h>

struct vclock_waiter;

struct vclock {
	pthread_mutex_t mu;
	pthread_cond_t changed; /* a waiter came or went */
	int64_t now_ns;
	int64_t real_offset_ms; /* real_ms = now_ns / 10^6 + this */
	struct vclock_waiter *waiters;
	int n_waiting;
	int auto_advance; /* 1: a wait with a deadline moves the time there by itself (single-threaded tests) */
};

extern const struct sl_clock vclock_table;

void vclock_init(struct vclock *c); /* starts at 1 s, real time 1,700,000,000,000 ms */
void vclock_fini(struct vclock *c);
/* Move time on and wake every waiter whose deadline has come. */
void vclock_advance_ms(struct vclock *c, int64_t ms);
void vclock_advance_ns(struct vclock *c, int64_t ns);
/* Block until n threads wait on this clock (with or without a deadline): then nothing moves but by the test. */
void vclock_await_waiters(struct vclock *c, int n);
/* Wake every waiter for nothing, as a condition variable may. Who was signalled before, and got no processor yet, acts
 * on it; who wakes for nothing looks around and waits again. */
void vclock_poke(struct vclock *c);
/* Block until n threads are at rest: they wait here, their time has not come and they were not poked since they do, or
 * elsewhere counts them, which is asked, under the clock's lock, when a waiter came or went and after
 * vclock_look_again. One that was signalled since the last poke rests until it runs. */
void vclock_await_rest(struct vclock *c, int n, int (*elsewhere)(void *ctx), void *ctx);
void vclock_look_again(struct vclock *c);
/* Block until n threads wait with a deadline that is still ahead: every thread that was due has run and waits again. */
void vclock_await_settled(struct vclock *c, int n);
/* Move time to the earliest deadline among the waiters, at most to ns. */
void vclock_advance_towards_ns(struct vclock *c, int64_t ns);
/* Move time to the earliest deadline among the waiters; 0 when none has one. */
int vclock_advance_to_next(struct vclock *c);

#endif
