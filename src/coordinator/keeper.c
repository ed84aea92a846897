/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper: the only thread that watches the time, so that workers can sleep in the queue or on `work` without
 * deadlines. It wakes one when a batch is due, a probe makes sense or the limiter has a step to make, and checks the
 * number of workers while there is work. Otherwise it sleeps for ever.
 *
 * The number of workers, between workers_min and workers_max, is checked every 100 ms while there is work:
 *
 *     up     needed for scaling.up_ms at every check: all are busy and a batch for each waits in the queue (or the queue
 *            is full), or its oldest item is older than flush_interval_ms. Never while more could not help: the breaker is
 *            not closed, the limiter is below the number of workers, the rate binds, or failed batches fill their bound.
 *     down   the most that were busy at the same time are fewer than there are, for scaling.down_ms
 */
#include "coordinator/coordinator.h"

#define CHECK_MS 100

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

/* ---- the number of workers ---- */

static void scale(sl_coordinator *c, int64_t now_ns) SL_REQUIRES(c->mu)
{
	struct sl__queue_stats s;
	sl__queue_stats(c->queue, &s);
	/* up */
	bool could_help = c->target_workers < (uint32_t)c->o.scaling.workers_max && c->state == SL__BREAKER_CLOSED &&
			  c->limit >= c->target_workers && c->n_token_waits == 0 &&
			  c->n_big_waiting < (size_t)c->o.retry.batches && !c->halted;
	uint64_t wanted = SL_MIN((uint64_t)c->target_workers * c->batch_size, (uint64_t)c->o.capacity);
	bool pressed = (c->n_busy >= c->target_workers && s.depth >= wanted) ||
		       (s.depth > 0 && s.oldest_age_ms > c->o.flush_interval_ms);
	if (!could_help || !pressed)
		c->pressed_ns = 0;
	else if (c->pressed_ns == 0)
		c->pressed_ns = now_ns;
	if (c->pressed_ns != 0 && now_ns - c->pressed_ns >= c->o.scaling.up_ms * SL__NS_PER_MS) {
		c->target_workers++;
		c->pressed_ns = now_ns;
		c->window_ns = now_ns;
		c->peak_busy = c->n_busy;
		sl__signal(&c->park);
	}
	/* down */
	if (c->peak_busy >= c->target_workers || c->target_workers == (uint32_t)c->o.scaling.workers_min) {
		c->window_ns = now_ns;
		c->peak_busy = c->n_busy;
	} else if (now_ns - c->window_ns >= c->o.scaling.down_ms * SL__NS_PER_MS) {
		c->target_workers--;
		c->window_ns = now_ns;
		c->peak_busy = c->n_busy;
		sl__wake_worker(c);
	}
	/* the next check */
	bool quiet = s.depth == 0 && c->n_busy == 0 && c->held.n + c->heap.n == 0;
	c->scale_quiet = quiet && !c->halted;
	if (c->halted || (quiet && c->target_workers == (uint32_t)c->o.scaling.workers_min))
		c->scale_at_ns = SL_FOREVER;
	else if (quiet)
		c->scale_at_ns = c->window_ns + c->o.scaling.down_ms * SL__NS_PER_MS;
	else
		c->scale_at_ns = now_ns + CHECK_MS * SL__NS_PER_MS;
}

void sl__scale_begin(sl_coordinator *c) SL_REQUIRES(c->mu)
{
	c->scale_quiet = false;
	c->scale_at_ns = SL_MIN(c->scale_at_ns, sl__mono_ns(&c->env) + CHECK_MS * SL__NS_PER_MS);
	sl__keeper_check(c);
}

/* ---- the thread ---- */

void *sl__coordinator_keep(void *arg)
{
	sl_coordinator *c = arg;
	sl__lock(&c->mu);
	while (!c->quit) {
		c->keeper_until_ns = next_event(c);
		int64_t now = sl__mono_ns(&c->env);
		if (c->keeper_until_ns <= now) {
			if (c->limit_next_ns <= now)
				sl__refresh_limit(c);
			if (c->scale_at_ns <= now)
				scale(c, now);
			bool due = sl__takeable_at(c) <= now || (c->n_idle > 0 && sl__poppable_at(c) <= now);
			if (due && !c->nudged && c->n_idle + c->n_popping > 0)
				sl__wake_worker(c);
			continue;
		}
		(void)sl__wait(&c->env, &c->ticks, &c->mu, c->keeper_until_ns);
	}
	sl__unlock(&c->mu);
	return NULL;
}
