/* SPDX-License-Identifier: Apache-2.0 */
#include "support/vclock.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

struct vclock_waiter {
	struct vclock_waiter *next;
	pthread_cond_t *cond;
	pthread_mutex_t *mu;
	int64_t deadline_ns;
	bool to_wake, poked;
};

static int64_t v_mono(void *ctx)
{
	struct vclock *c = ctx;
	pthread_mutex_lock(&c->mu);
	int64_t now = c->now_ns;
	pthread_mutex_unlock(&c->mu);
	return now;
}

static int64_t v_real(void *ctx)
{
	struct vclock *c = ctx;
	pthread_mutex_lock(&c->mu);
	int64_t now = c->now_ns / 1000000 + c->real_offset_ms;
	pthread_mutex_unlock(&c->mu);
	return now;
}

static int v_wait(pthread_cond_t *cond, pthread_mutex_t *mu, int64_t deadline_ns, void *ctx)
{
	struct vclock *c = ctx;
	struct vclock_waiter self = {.cond = cond, .mu = mu, .deadline_ns = deadline_ns};
	pthread_mutex_lock(&c->mu);
	if (c->auto_advance && deadline_ns != SL_FOREVER && c->now_ns < deadline_ns)
		c->now_ns = deadline_ns;
	if (c->now_ns >= deadline_ns) {
		pthread_mutex_unlock(&c->mu);
		return ETIMEDOUT;
	}
	self.next = c->waiters;
	c->waiters = &self;
	c->n_waiting++;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->mu);

	pthread_cond_wait(cond, mu);

	pthread_mutex_lock(&c->mu);
	struct vclock_waiter **at = &c->waiters;
	while (*at != &self)
		at = &(*at)->next;
	*at = self.next;
	c->n_waiting--;
	pthread_cond_broadcast(&c->changed);
	bool late = c->now_ns >= deadline_ns;
	pthread_mutex_unlock(&c->mu);
	return late ? ETIMEDOUT : 0;
}

const struct sl_clock vclock_table = {
	.version = SL_CLOCK_VERSION, .mono_ns = v_mono, .real_ms = v_real, .wait = v_wait};

void vclock_init(struct vclock *c)
{
	*c = (struct vclock){.now_ns = 1000000000, .real_offset_ms = 1700000000000 - 1000};
	pthread_mutex_init(&c->mu, NULL);
	pthread_cond_init(&c->changed, NULL);
}

void vclock_fini(struct vclock *c)
{
	pthread_mutex_destroy(&c->mu);
	pthread_cond_destroy(&c->changed);
}

/* Everybody who waits now and whose deadline is not after `until`. A waiter holds its own mutex around everything but
 * the sleep itself, so a mutex that can be taken here belongs to a waiter that sleeps (or is being woken); one that
 * cannot is in motion: let it move and look again. */
static void wake(struct vclock *c, int64_t until_ns)
{
	for (struct vclock_waiter *w = c->waiters; w != NULL; w = w->next)
		w->to_wake = w->deadline_ns <= until_ns;
again:
	for (struct vclock_waiter *w = c->waiters; w != NULL; w = w->next) {
		if (!w->to_wake)
			continue;
		if (pthread_mutex_trylock(w->mu) != 0) {
			pthread_mutex_unlock(&c->mu);
			sched_yield();
			pthread_mutex_lock(&c->mu);
			goto again;
		}
		pthread_cond_broadcast(w->cond);
		pthread_mutex_unlock(w->mu);
		w->to_wake = false;
	}
}

void vclock_advance_ns(struct vclock *c, int64_t ns)
{
	pthread_mutex_lock(&c->mu);
	c->now_ns += ns;
	wake(c, c->now_ns);
	pthread_mutex_unlock(&c->mu);
}

void vclock_advance_ms(struct vclock *c, int64_t ms)
{
	vclock_advance_ns(c, ms * 1000000);
}

void vclock_await_waiters(struct vclock *c, int n)
{
	pthread_mutex_lock(&c->mu);
	while (c->n_waiting < n)
		pthread_cond_wait(&c->changed, &c->mu);
	pthread_mutex_unlock(&c->mu);
}

void vclock_poke(struct vclock *c)
{
	pthread_mutex_lock(&c->mu);
	for (struct vclock_waiter *w = c->waiters; w != NULL; w = w->next)
		w->poked = true;
	wake(c, SL_FOREVER);
	pthread_mutex_unlock(&c->mu);
}

void vclock_look_again(struct vclock *c)
{
	pthread_mutex_lock(&c->mu);
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->mu);
}

static int count_resting(const struct vclock *c)
{
	for (struct vclock_waiter *w = c->waiters; w != NULL; w = w->next)
		if (w->poked || w->deadline_ns <= c->now_ns)
			return 0;
	return c->n_waiting;
}

void vclock_await_rest(struct vclock *c, int n, int (*elsewhere)(void *ctx), void *ctx)
{
	pthread_mutex_lock(&c->mu);
	while (count_resting(c) + elsewhere(ctx) != n)
		pthread_cond_wait(&c->changed, &c->mu);
	pthread_mutex_unlock(&c->mu);
}

void vclock_await_settled(struct vclock *c, int n)
{
	pthread_mutex_lock(&c->mu);
	for (;;) {
		int ahead = 0, due = 0;
		for (struct vclock_waiter *w = c->waiters; w != NULL; w = w->next) {
			ahead += w->deadline_ns > c->now_ns && w->deadline_ns != SL_FOREVER;
			due += w->deadline_ns <= c->now_ns;
		}
		if (ahead >= n && due == 0)
			break;
		pthread_cond_wait(&c->changed, &c->mu);
	}
	pthread_mutex_unlock(&c->mu);
}

static int64_t next_deadline(const struct vclock *c)
{
	int64_t next = SL_FOREVER;
	for (struct vclock_waiter *w = c->waiters; w != NULL; w = w->next)
		if (w->deadline_ns < next)
			next = w->deadline_ns;
	return next;
}

void vclock_advance_towards_ns(struct vclock *c, int64_t ns)
{
	pthread_mutex_lock(&c->mu);
	int64_t next = next_deadline(c);
	if (next > c->now_ns)
		c->now_ns = next < ns ? next : ns;
	wake(c, c->now_ns);
	pthread_mutex_unlock(&c->mu);
}

int vclock_advance_to_next(struct vclock *c)
{
	pthread_mutex_lock(&c->mu);
	int64_t next = next_deadline(c);
	if (next != SL_FOREVER) {
		if (next > c->now_ns)
			c->now_ns = next;
		wake(c, c->now_ns);
	}
	pthread_mutex_unlock(&c->mu);
	return next != SL_FOREVER;
}
