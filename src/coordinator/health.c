/* SPDX-License-Identifier: Apache-2.0 */
/* What a coordinator reports about its state, and the calls that slow its token bucket down and restore it. */
#include "coordinator/coordinator.h"

/* The oldest item that waits outside the queue. */
static int64_t oldest_waiting_ns(const sl_coordinator *c) SL_REQUIRES(c->mu)
{
	int64_t oldest = SL_FOREVER;
	for (const struct sl__batch *b = c->held.first; b != NULL; b = b->next)
		oldest = SL_MIN(oldest, b->items[b->lo].at_ns);
	for (size_t i = 0; i < c->heap.n; i++)
		oldest = SL_MIN(oldest, c->heap.at[i]->items[c->heap.at[i]->lo].at_ns);
	return oldest;
}

static int64_t oldest_age_ms(const sl_coordinator *c, const struct sl__queue_stats *s) SL_REQUIRES(c->mu)
{
	int64_t oldest_ns = oldest_waiting_ns(c);
	if (oldest_ns == SL_FOREVER)
		return s->oldest_age_ms;
	return SL_MAX((sl__mono_ns(&c->env) - oldest_ns) / SL__NS_PER_MS, s->oldest_age_ms);
}

static void read_health(sl_coordinator *c, struct sl_coordinator_health *h) SL_REQUIRES(c->mu)
{
	struct sl__tally t = sl__tally(c);
	sl__refresh_limit(c);
	*h = (struct sl_coordinator_health){
		.workers_alive = c->quit ? 0 : c->running,
		.queue_size = t.queue.depth,
		.capacity = t.queue.capacity,
		.queue_bytes = t.queue.bytes,
		.breaker = (enum sl_breaker_state)c->state,
		.oldest_age_ms = oldest_age_ms(c, &t.queue),
		.in_flight = t.outside - t.waiting,
		.retrying = t.waiting,
		.dead_letters = c->dead,
		.accepted = t.queue.pushed,
		.written = c->written,
		.dropped = c->dropped,
		.returned = c->returned,
		.batches = c->n_writes,
		.failures = c->n_failures,
		.splits = c->n_splits,
		.concurrency = c->limit,
		.rate_items = c->rate_items != NULL
				      ? c->o.rate_items * sl__tokens_rate(c->rate_items) / c->rate_unreduced
				      : 0,
		.backpressure = t.queue.above_high,
		.failing_ms = c->failing_since_ns != 0
				      ? SL_MAX((sl__mono_ns(&c->env) - c->failing_since_ns) / SL__NS_PER_MS, 1)
				      : 0,
		.last_error = c->last_error,
	};
}

int sl_coordinator_get_health(sl_coordinator *c, struct sl_coordinator_health *out)
{
	if (sl__forked(&c->guard))
		return SL_EFORKED;
	struct sl_coordinator_health h;
	sl__lock(&c->mu);
	read_health(c, &h);
	sl__unlock(&c->mu);
	size_t n = out->struct_size != 0 ? SL_MIN(out->struct_size, sizeof(h)) : sizeof(h);
	h.struct_size = n;
	memcpy(out, &h, n);
	return 0;
}

/* ---- the rate ---- */

static bool has_rate(const sl_coordinator *c)
{
	return c->rate_items != NULL || c->rate_bytes != NULL;
}

int sl_coordinator_reduce_tokens(sl_coordinator *c)
{
	if (sl__forked(&c->guard))
		return SL_EFORKED;
	if (c->rate_items != NULL)
		sl__tokens_reduce(c->rate_items);
	if (c->rate_bytes != NULL)
		sl__tokens_reduce(c->rate_bytes);
	return has_rate(c) ? 0 : SL_EINVAL;
}

int sl_coordinator_restore_tokens(sl_coordinator *c)
{
	if (sl__forked(&c->guard))
		return SL_EFORKED;
	if (c->rate_items != NULL)
		sl__tokens_restore(c->rate_items);
	if (c->rate_bytes != NULL)
		sl__tokens_restore(c->rate_bytes);
	return has_rate(c) ? 0 : SL_EINVAL;
}
