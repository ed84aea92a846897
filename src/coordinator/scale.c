/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The number of workers, between workers_min and workers_max, checked every 100 ms while there is work.
 *
 *     up     needed for scale_up_ms at every look: all are busy and a batch for each waits in the queue (or the queue
 * is full), or its oldest item is older than flush_interval. Never while more could not help: the breaker is not
 *            closed, the limiter is below the number of workers, the rate binds, or failed batches fill their bound.
 *     down   fewer were busy at once than there are, for scale_down_ms
 */
#include "coordinator/coordinator.h"

#define LOOK_MS 100

static bool more_would_help(const sl_coordinator *c) SL_REQUIRES(c->mu)
{
	return c->target_workers < (uint32_t)c->o.workers_max && c->state == SL__BREAKER_CLOSED &&
	       c->limit >= c->target_workers && c->n_token_waits == 0 &&
	       c->n_big_waiting < (size_t)c->o.retry_batches && !c->halted;
}

static bool under_pressure(const sl_coordinator *c, const struct sl__queue_stats *s) SL_REQUIRES(c->mu)
{
	uint64_t wanted = SL_MIN((uint64_t)c->target_workers * c->batch_size, (uint64_t)c->o.capacity);
	return (c->n_busy >= c->target_workers && s->depth >= wanted) ||
	       (s->depth > 0 && s->oldest_age_ms > c->o.flush_interval_ms);
}

static void look_up(sl_coordinator *c, const struct sl__queue_stats *s, int64_t now_ns) SL_REQUIRES(c->mu)
{
	if (!more_would_help(c) || !under_pressure(c, s)) {
		c->pressed_ns = 0;
		return;
	}
	if (c->pressed_ns == 0)
		c->pressed_ns = now_ns;
	if (now_ns - c->pressed_ns < c->o.scale_up_ms * SL__NS_PER_MS)
		return;
	c->target_workers++;
	c->pressed_ns = now_ns;
	c->window_ns = now_ns;
	c->peak_busy = c->n_busy;
	sl__signal(&c->park);
}

static void look_down(sl_coordinator *c, int64_t now_ns) SL_REQUIRES(c->mu)
{
	if (c->peak_busy >= c->target_workers || c->target_workers == (uint32_t)c->o.workers_min) {
		c->window_ns = now_ns;
		c->peak_busy = c->n_busy;
		return;
	}
	if (now_ns - c->window_ns < c->o.scale_down_ms * SL__NS_PER_MS)
		return;
	c->target_workers--;
	c->window_ns = now_ns;
	c->peak_busy = c->n_busy;
	sl__wake_worker(c);
}

void sl__scale(sl_coordinator *c, int64_t now_ns) SL_REQUIRES(c->mu)
{
	struct sl__queue_stats s;
	sl__queue_stats(c->queue, &s);
	look_up(c, &s, now_ns);
	look_down(c, now_ns);
	bool quiet = s.depth == 0 && c->n_busy == 0 && c->held.n + c->heap.n == 0;
	c->scale_quiet = quiet && !c->halted;
	if (c->halted || (quiet && c->target_workers == (uint32_t)c->o.workers_min))
		c->scale_at_ns = SL_FOREVER;
	else if (quiet)
		c->scale_at_ns = c->window_ns + c->o.scale_down_ms * SL__NS_PER_MS;
	else
		c->scale_at_ns = now_ns + LOOK_MS * SL__NS_PER_MS;
}

void sl__scale_begin(sl_coordinator *c) SL_REQUIRES(c->mu)
{
	c->scale_quiet = false;
	c->scale_at_ns = SL_MIN(c->scale_at_ns, sl__mono_ns(&c->env) + LOOK_MS * SL__NS_PER_MS);
	sl__keeper_check(c);
}
