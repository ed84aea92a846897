/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who takes which batch, when. A worker takes what waits already (held for the breaker or the limiter, then what is due
 * in the heap, then what waited for its key) before it takes new items out of the queue.
 *
 *     breaker     a waiting batch                       new items
 *     closed      at once, or when due                  while fewer than retry_batches wait
 *     not closed  one at a time, from probe_ns on       only when nothing waits, one at a time, from probe_ns on
 *
 * and never more than the limiter allows. takeable_at and poppable_at say from when on that holds, so that the worker
 * that looks, the one that sleeps and the keeper that wakes it agree.
 */
#include "coordinator/coordinator.h"

#define NOW INT64_MIN

/* A ready key needs an empty batch (C2). */
static bool room_for_a_batch(const sl_coordinator *c) SL_REQUIRES(c->mu)
{
	return c->held.n + c->heap.n < (size_t)c->o.retry_batches;
}

static bool a_key_is_ready(const sl_coordinator *c) SL_REQUIRES(c->mu)
{
	return SL_UNLIKELY(c->keys.ready != NULL) && room_for_a_batch(c);
}

static bool something_waits(const sl_coordinator *c) SL_REQUIRES(c->mu)
{
	return c->held.first != NULL || c->heap.n > 0 || a_key_is_ready(c);
}

static int64_t at_the_limit(const sl_coordinator *c) SL_REQUIRES(c->mu)
{
	return c->limit_next_ns;
}

int64_t sl__takeable_at(const sl_coordinator *c) SL_REQUIRES(c->mu)
{
	if (c->halted || !something_waits(c))
		return SL_FOREVER;
	if (c->n_busy >= c->limit)
		return at_the_limit(c);
	int64_t at = c->held.first != NULL || a_key_is_ready(c) ? NOW : c->heap.at[0]->due_ns;
	if (c->state == SL__BREAKER_CLOSED)
		return at;
	return c->probing > 0 ? SL_FOREVER : SL_MAX(at, c->probe_ns);
}

int64_t sl__poppable_at(const sl_coordinator *c) SL_REQUIRES(c->mu)
{
	if (c->halted || c->drained || !room_for_a_batch(c))
		return SL_FOREVER;
	if (SL_UNLIKELY(sl__has_keys(c)) && (c->n_popping > 0 || c->keys.n_aside >= (size_t)c->o.capacity))
		return SL_FOREVER; /* K2, and the bound of what waits aside */
	if (c->n_busy + c->n_popping >= c->limit)
		return at_the_limit(c);
	if (SL_LIKELY(c->state == SL__BREAKER_CLOSED))
		return NOW;
	return c->probing > 0 || c->n_popping > 0 || something_waits(c) ? SL_FOREVER : c->probe_ns;
}

void sl__wake_worker(sl_coordinator *c) SL_REQUIRES(c->mu)
{
	c->nudged = true;
	if (c->n_idle > 0)
		sl__signal(&c->work);
	else if (c->n_popping > 0)
		sl__queue_interrupt(c->queue);
	else
		c->nudged = false; /* all are busy: they look when they are done */
}

void sl__stir(sl_coordinator *c) SL_REQUIRES(c->mu)
{
	if (!c->nudged && (c->n_idle > 0 || c->n_popping > 0)) {
		int64_t at = sl__takeable_at(c);
		if (c->n_idle > 0)
			at = SL_MIN(at, sl__poppable_at(c));
		if (at == NOW)
			sl__wake_worker(c);
	}
	sl__keeper_check(c);
}

static int64_t now_ns(const sl_coordinator *c)
{
	return sl__mono_ns(&c->env);
}

static bool reached(const sl_coordinator *c, int64_t at)
{
	return at == NOW || (at != SL_FOREVER && now_ns(c) >= at);
}

/* ---- into a worker's hands, and out of them ---- */

static void take_up(sl_coordinator *c, struct sl__batch *b) SL_REQUIRES(c->mu)
{
	c->n_busy++;
	c->peak_busy = SL_MAX(c->peak_busy, c->n_busy);
	if (SL_UNLIKELY(c->state != SL__BREAKER_CLOSED)) {
		b->probes = true;
		c->probing++;
	}
}

static void put_down(sl_coordinator *c, struct sl__batch *b) SL_REQUIRES(c->mu)
{
	c->n_busy--;
	if (b->probes)
		c->probing--;
	b->probes = false;
	if (SL_UNLIKELY(c->stop_runs))
		sl__broadcast(&c->settled);
}

void sl__put_free(sl_coordinator *c, struct sl__batch *b) SL_REQUIRES(c->mu)
{
	put_down(c, b);
	b->n = b->lo = 0;
	sl__batches_prepend(&c->free, b);
	sl__stir(c);
}

void sl__put_held(sl_coordinator *c, struct sl__batch *b, bool first) SL_REQUIRES(c->mu)
{
	put_down(c, b);
	if (first)
		sl__batches_prepend(&c->held, b);
	else
		sl__batches_append(&c->held, b);
	sl__stir(c);
}

void sl__put_heap(sl_coordinator *c, struct sl__batch *b, int64_t delay_ms) SL_REQUIRES(c->mu)
{
	put_down(c, b);
	b->due_ns = sl__deadline_ns(&c->env, delay_ms);
	sl__heap_push(&c->heap, b);
	sl__stir(c);
}

void sl__put_left(sl_coordinator *c, struct sl__batch *b) SL_REQUIRES(c->mu)
{
	put_down(c, b);
	sl__batches_append(&c->left, b);
}

static struct sl__batch *take_waiting(sl_coordinator *c) SL_REQUIRES(c->mu)
{
	if (!reached(c, sl__takeable_at(c)))
		return NULL;
	struct sl__batch *b = sl__batches_pop(&c->held);
	if (b == NULL && c->heap.n > 0 && (!a_key_is_ready(c) || reached(c, c->heap.at[0]->due_ns)))
		b = sl__heap_pop(&c->heap);
	if (b == NULL) {
		b = sl__batches_pop(&c->free);
		sl__keys_take_ready(c, b);
		b->loops = true;
	}
	take_up(c, b);
	sl__stir(c); /* another one may be due for another worker */
	return b;
}

/* ---- out of the queue ---- */

/* Nothing is in flight: whatever comes is written at once. One popper watches out for that; the others sleep until a
 * batch is full or old, so that a storm of submits does not wake them for nothing. */
static int64_t linger_of(const sl_coordinator *c) SL_REQUIRES(c->mu)
{
	return c->n_busy == 0 && c->n_at_once == 0 ? 0 : c->o.flush_interval_ms;
}

static struct sl__batch *pop(sl_coordinator *c) SL_REQUIRES(c->mu)
{
	struct sl__batch *b = sl__batches_pop(&c->free);
	assert(b != NULL); /* C2 */
	int64_t linger_ms = linger_of(c);
	bool at_once = linger_ms == 0;
	size_t n;
	c->n_popping++;
	c->n_at_once += at_once;
	sl__keeper_check(c);
	sl__unlock(&c->mu);
	int rc = sl__queue_pop_at(c->queue, b->items, c->batch_size, linger_ms, SL_UNLIMITED, &n, &b->first);
	sl__lock(&c->mu);
	c->n_popping--;
	c->n_at_once -= at_once;
	c->nudged = false;
	if (SL_UNLIKELY(c->stop_runs))
		sl__broadcast(&c->settled);
	if (rc == 0) {
		sl__batch_begin(b, n);
		b->loops = c->loops;
		if (SL_UNLIKELY(c->scale_quiet))
			sl__scale_begin(c);
		if (SL_UNLIKELY(sl__has_keys(c)))
			sl__keys_admit(c, b);
	}
	if (rc == 0 && SL_LIKELY(b->n > 0)) {
		take_up(c, b);
		if (SL_UNLIKELY(sl__has_keys(c)))
			sl__stir(c); /* it is another worker's turn */
		return b;
	}
	c->drained = c->drained || rc == SL_ECLOSED;
	b->n = 0;
	sl__batches_prepend(&c->free, b);
	return NULL;
}

/* ---- waiting ---- */

static void wait_for_work(sl_coordinator *c) SL_REQUIRES(c->mu)
{
	c->n_idle++;
	/* With keys one worker takes out of the queue, and the others sleep here (K2). It may have begun to wait for a
	 * full batch while one of them wrote; nothing is in flight any more, so that it must take what comes at once.
	 */
	if (SL_UNLIKELY(sl__has_keys(c)) && c->n_popping > 0 && c->n_busy == 0 && c->n_at_once == 0)
		sl__queue_interrupt(c->queue);
	sl__keeper_check(c);
	(void)sl__wait(&c->env, &c->work, &c->mu, SL_FOREVER);
	c->n_idle--;
}

void sl__wait_parked(sl_coordinator *c) SL_REQUIRES(c->mu)
{
	while (c->running >= c->target_workers && !c->quit)
		(void)sl__wait(&c->env, &c->park, &c->mu, SL_FOREVER);
	c->running++;
}

/* Not needed for now: give the lane back and sleep until somebody is. */
static void park(sl_coordinator *c, struct sl__worker *w) SL_REQUIRES(c->mu)
{
	c->running--;
	sl__stir(c);
	/* The popper that took items at once may have been this one: let another one look again. */
	if (c->n_popping > 0 && c->n_at_once == 0)
		sl__queue_interrupt(c->queue);
	sl__unlock(&c->mu);
	sl__worker_detach(w);
	sl__lock(&c->mu);
	sl__wait_parked(c);
}

struct sl__batch *sl__pick(sl_coordinator *c, struct sl__worker *w) SL_REQUIRES(c->mu)
{
	while (!c->quit) {
		struct sl__batch *b;
		c->nudged = false;
		if (SL_UNLIKELY(c->running > c->target_workers)) {
			park(c, w);
			continue;
		}
		if (SL_UNLIKELY(c->limit_next_ns != SL_FOREVER))
			sl__refresh_limit(c);
		b = take_waiting(c);
		if (b == NULL && reached(c, sl__poppable_at(c))) {
			b = pop(c);
			if (b == NULL)
				continue;
		}
		if (b != NULL)
			return b;
		wait_for_work(c);
	}
	return NULL;
}
