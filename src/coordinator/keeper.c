/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper: the only thread that watches the time, so that workers can sleep in the queue or on `work` without
 * deadlines. It wakes one when a batch is due, a probe makes sense or the limiter has a step to make, and checks the
 * number of workers while there is work. Otherwise it sleeps for ever.
 */
#include "coordinator/coordinator.h"

static int64_t next_event(const sl_coordinator *c) SL_REQUIRES(c->mu)
{
	int64_t at = SL_FOREVER;
	if (!c->nudged && c->n_idle + c->n_popping > 0)
		at = sl__takeable_at(c);
	if (!c->nudged && c->n_idle > 0)
		at = SL_MIN(at, sl__poppable_at(c));
	return SL_MIN(at, c->scale_at_ns);
}

void sl__keeper_check(sl_coordinator *c) SL_REQUIRES(c->mu)
{
	if (next_event(c) < c->keeper_until_ns)
		sl__signal(&c->ticks);
}

void sl__refresh_limit(sl_coordinator *c) SL_REQUIRES(c->mu)
{
	if (c->limiter != NULL)
		c->limit = sl__limiter_poll(c->limiter, &c->limit_next_ns);
}

static void tick(sl_coordinator *c, int64_t now_ns) SL_REQUIRES(c->mu)
{
	if (c->limit_next_ns <= now_ns)
		sl__refresh_limit(c);
	if (c->scale_at_ns <= now_ns)
		sl__scale(c, now_ns);
	bool due = sl__takeable_at(c) <= now_ns || (c->n_idle > 0 && sl__poppable_at(c) <= now_ns);
	if (due && !c->nudged && c->n_idle + c->n_popping > 0)
		sl__wake_worker(c);
}

void *sl__coordinator_keep(void *arg)
{
	sl_coordinator *c = arg;
	sl__lock(&c->mu);
	while (!c->quit) {
		c->keeper_until_ns = next_event(c);
		int64_t now = sl__mono_ns(&c->env);
		if (c->keeper_until_ns <= now) {
			tick(c, now);
			continue;
		}
		(void)sl__wait(&c->env, &c->ticks, &c->mu, c->keeper_until_ns);
	}
	sl__unlock(&c->mu);
	return NULL;
}
