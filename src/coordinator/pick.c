/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The workers: who takes which batch, when. A worker takes what waits already (held for the breaker or the limiter, then
 * what is due in the heap, then what waited for its key) before it takes new items out of the queue.
 *
 *     breaker     a waiting batch                       new items
 *     closed      immediately, or when due              while fewer than retry.batches wait
 *     not closed  one at a time, from probe_ns on       one at a time, from probe_ns on, while a batch is free
 *
 * and never more than the limiter allows. Probes take turns, a waiting batch and new items, and among waiting batches
 * the one whose last write is longest ago: batches that fail by themselves cannot keep the breaker open for others.
 * sl__takeable_at and sl__poppable_at return from when on that holds, so that the worker that checks, the one that
 * sleeps and the keeper that wakes it agree.
 */
#include "coordinator/coordinator.h"

#define NOW INT64_MIN

/* A ready key needs an empty batch (C2). */
static bool room_for_a_batch(const sl_coordinator *c) SL_REQUIRES(c->mu)
{
	return c->n_big_waiting < (size_t)c->o.retry.batches;
}

/* When a waiting batch is tried for the last time, whatever the breaker says. */
static int64_t expires_ns(const sl_coordinator *c, struct sl__batch *b) SL_REQUIRES(c->mu)
{
	return sl__top(b)->dead ? SL_FOREVER : SL_MAX(sl__gives_up_ns(c, b), sl__top(b)->due_ns);
}

static int64_t next_expiry(const sl_coordinator *c) SL_REQUIRES(c->mu)
{
	int64_t at = SL_FOREVER;
	if (c->o.retry.give_up_after_ms == SL_UNLIMITED || c->state == SL__BREAKER_CLOSED)
		return at;
	for (struct sl__batch *b = c->held.first; b != NULL; b = b->next)
		at = SL_MIN(at, expires_ns(c, b));
	for (size_t i = 0; i < c->heap.n; i++)
		at = SL_MIN(at, expires_ns(c, c->heap.at[i]));
	return at;
}

int64_t sl__takeable_at(const sl_coordinator *c) SL_REQUIRES(c->mu)
{
	bool ready = c->held.first != NULL || (SL_UNLIKELY(c->keys.ready != NULL) && room_for_a_batch(c));
	if (c->halted || (!ready && c->heap.n == 0))
		return SL_FOREVER;
	if (c->n_busy >= c->limit)
		return c->limit_next_ns;
	int64_t at = ready ? NOW : c->heap.at[0]->due_ns;
	if (c->state != SL__BREAKER_CLOSED)
		at = c->probing > 0 ? SL_FOREVER : SL_MAX(at, c->probe_ns);
	return SL_MIN(at, next_expiry(c));
}

int64_t sl__poppable_at(const sl_coordinator *c) SL_REQUIRES(c->mu)
{
	if (c->halted || c->drained)
		return SL_FOREVER;
	if (SL_UNLIKELY(sl__has_keys(c)) && (c->n_popping > 0 || c->keys.n_aside >= (size_t)c->o.capacity))
		return SL_FOREVER; /* K2, and the bound of what waits aside */
	if (SL_LIKELY(c->state == SL__BREAKER_CLOSED) ? !room_for_a_batch(c) : c->free.first == NULL)
		return SL_FOREVER;
	if (c->n_busy + c->n_popping >= c->limit)
		return c->limit_next_ns;
	if (SL_LIKELY(c->state == SL__BREAKER_CLOSED))
		return NOW;
	return c->probing > 0 || c->n_popping > 0 ? SL_FOREVER : c->probe_ns;
}

void sl__wake_worker(sl_coordinator *c) SL_REQUIRES(c->mu)
{
	c->nudged = true;
	if (c->n_idle > 0)
		sl__signal(&c->work);
	else if (c->n_popping > 0)
		sl__queue_interrupt(c->queue);
	else
		c->nudged = false; /* all are busy: they check when they are done */
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

static bool reached(const sl_coordinator *c, int64_t at)
{
	return at == NOW || (at != SL_FOREVER && sl__mono_ns(&c->env) >= at);
}

/* ---- batches taken by a worker, and put back ---- */

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

void sl__batch_done(sl_coordinator *c, struct sl__batch *b) SL_REQUIRES(c->mu)
{
	if (SL_UNLIKELY(b->small)) {
		c->n_small--;
		sl__free(&c->env, b);
		return;
	}
	b->n = b->lo = b->n_segments = 0;
	sl__batches_prepend(&c->free, b);
}

void sl__put_free(sl_coordinator *c, struct sl__batch *b) SL_REQUIRES(c->mu)
{
	put_down(c, b);
	sl__batch_done(c, b);
	sl__stir(c);
}

/* A few items that fail by themselves, or while the breaker is not closed, would wait in a batch that others need. They
 * go into a small one. Returns the one that they are in. */
static struct sl__batch *shrink(sl_coordinator *c, struct sl__batch *b) SL_REQUIRES(c->mu)
{
	size_t n = b->n - b->lo;
	if (b->small || n > SL__SMALL_ITEMS || c->n_small == SL__SMALL_BATCHES ||
	    (c->state == SL__BREAKER_CLOSED && !sl__fails_alone(c, b)))
		return b;
	struct sl__batch *s =
		sl__alloc(&c->env, sizeof(*s) + SL__SMALL_ITEMS * (sizeof(*s->segments) + sizeof(*s->items)));
	if (s == NULL)
		return b;
	*s = *b;
	s->small = true;
	s->n = n;
	s->lo = 0;
	s->segments = (struct sl__segment *)(s + 1);
	s->items = (struct sl__queue_item *)(s->segments + SL__SMALL_ITEMS);
	memcpy(s->items, &b->items[b->lo], n * sizeof(*s->items));
	for (size_t i = 0; i < b->n_segments; i++) {
		s->segments[i] = b->segments[i];
		s->segments[i].end -= b->lo;
	}
	if (sl__has_keys(c))
		sl__keys_moved(c, s);
	c->n_small++;
	sl__batch_done(c, b);
	return s;
}

void sl__put_held(sl_coordinator *c, struct sl__batch *b, bool first) SL_REQUIRES(c->mu)
{
	put_down(c, b);
	b = shrink(c, b);
	c->n_big_waiting += !b->small;
	if (first)
		sl__batches_prepend(&c->held, b);
	else
		sl__batches_append(&c->held, b);
	sl__stir(c);
}

void sl__put_heap(sl_coordinator *c, struct sl__batch *b, int64_t due_ns) SL_REQUIRES(c->mu)
{
	put_down(c, b);
	b = shrink(c, b);
	c->n_big_waiting += !b->small;
	b->due_ns = due_ns;
	sl__heap_push(&c->heap, b);
	sl__stir(c);
}

void sl__put_left(sl_coordinator *c, struct sl__batch *b) SL_REQUIRES(c->mu)
{
	put_down(c, b);
	sl__batches_append(&c->left, b);
}

/* A batch that waits: one whose time is up, what was held, what is due, what waited for its key. With the breaker not
 * closed, whatever was written longest ago. NULL: none may be taken now. */
static struct sl__batch *take_waiting(sl_coordinator *c) SL_REQUIRES(c->mu)
{
	struct sl__batch *b = NULL;
	if (!reached(c, sl__takeable_at(c)))
		return NULL;
	if (reached(c, next_expiry(c))) {
		struct sl__batches rest = {0};
		for (struct sl__batch *h; (h = sl__batches_pop(&c->held)) != NULL;)
			if (b == NULL && reached(c, expires_ns(c, h)))
				b = h;
			else
				sl__batches_append(&rest, h);
		c->held = rest;
		for (size_t i = 0; i < c->heap.n && b == NULL; i++)
			if (reached(c, expires_ns(c, c->heap.at[i])))
				b = sl__heap_remove(&c->heap, i);
	}
	if (b == NULL) {
		bool due = c->heap.n > 0 && reached(c, c->heap.at[0]->due_ns);
		bool rotate = c->state != SL__BREAKER_CLOSED && due;
		if (c->held.first != NULL && !(rotate && c->heap.at[0]->turn < c->held.first->turn))
			b = sl__batches_pop(&c->held);
		else if (due)
			b = sl__heap_pop(&c->heap);
	}
	if (b != NULL) {
		c->n_big_waiting -= !b->small;
	} else {
		b = sl__batches_pop(&c->free);
		sl__keys_take_ready(c, b);
		b->loops = true;
	}
	take_up(c, b);
	c->probe_new = true;
	sl__stir(c); /* another one may be due for another worker */
	return b;
}

/* ---- out of the queue ---- */

static struct sl__batch *pop_batch(sl_coordinator *c) SL_REQUIRES(c->mu)
{
	struct sl__batch *b = sl__batches_pop(&c->free);
	assert(b != NULL); /* C2 */
	/* Nothing is in flight: whatever comes is written immediately. One popper watches out for that; the others sleep
	 * until a batch is full or old, so that a storm of submits does not wake them for nothing. */
	int64_t linger_ms = c->n_busy == 0 && c->n_at_once == 0 ? 0 : c->o.flush_interval_ms;
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
		c->probe_new = false;
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

/* Sleep until one more worker is needed. */
static void wait_parked(sl_coordinator *c) SL_REQUIRES(c->mu)
{
	while (c->running >= c->target_workers && !c->quit)
		(void)sl__wait(&c->env, &c->park, &c->mu, SL_FOREVER);
	c->running++;
}

static void detach_worker(struct sl__worker *w)
{
	const sl_sink *sink = &w->c->sink;
	if (w->attached && sink->ops->detach != NULL)
		sink->ops->detach(sink->ctx, w->lane);
	w->attached = false;
}

/* The next batch for w, which is counted as busy from then on; waits for it. NULL: leave. */
static struct sl__batch *pick(sl_coordinator *c, struct sl__worker *w) SL_REQUIRES(c->mu)
{
	while (!c->quit) {
		struct sl__batch *b = NULL;
		c->nudged = false;
		if (SL_UNLIKELY(c->running > c->target_workers)) {
			/* Not needed for now: give the lane back and sleep until needed. */
			c->running--;
			sl__stir(c);
			/* The popper that took items at once may have been this one: let another one check again. */
			if (c->n_popping > 0 && c->n_at_once == 0)
				sl__queue_interrupt(c->queue);
			sl__unlock(&c->mu);
			detach_worker(w);
			sl__lock(&c->mu);
			wait_parked(c);
			continue;
		}
		if (SL_UNLIKELY(c->limit_next_ns != SL_FOREVER))
			sl__refresh_limit(c);
		/* The breaker is not closed, and it is the turn of new items to probe. */
		if (SL_UNLIKELY(c->state != SL__BREAKER_CLOSED) && c->probe_new && reached(c, sl__poppable_at(c))) {
			struct sl__queue_stats s;
			sl__queue_stats(c->queue, &s);
			/* Without items it was interrupted: a waiting batch must not take the turn of new ones for that. */
			if (s.depth > 0 && (b = pop_batch(c)) == NULL)
				continue;
		}
		if (b == NULL)
			b = take_waiting(c);
		if (b == NULL && reached(c, sl__poppable_at(c))) {
			b = pop_batch(c);
			if (b == NULL)
				continue;
		}
		if (b != NULL)
			return b;
		c->n_idle++;
		/* With keys one worker takes out of the queue, and the others sleep here (K2). It may have begun to wait
		 * for a full batch while one of them wrote; nothing is in flight any more, so that it must take what
		 * comes immediately. */
		if (SL_UNLIKELY(sl__has_keys(c)) && c->n_popping > 0 && c->n_busy == 0 && c->n_at_once == 0)
			sl__queue_interrupt(c->queue);
		sl__keeper_check(c);
		(void)sl__wait(&c->env, &c->work, &c->mu, SL_FOREVER);
		c->n_idle--;
	}
	return NULL;
}

/* ---- the thread of a worker ---- */

/* Write segment after segment until nothing is left of the batch, or it has to wait. */
static void work_on(sl_coordinator *c, struct sl__worker *w, struct sl__batch *b) SL_REQUIRES(c->mu)
{
	while (b->n_segments > 0) {
		if (SL_UNLIKELY(c->halted)) {
			sl__put_left(c, b);
			return;
		}
		enum sl__step step = SL_UNLIKELY(sl__top(b)->dead) ? sl__bury(c, w, b) : sl__write(c, w, b);
		if (step == SL__STEP_GONE)
			return;
	}
	sl__settle_batch(c, b, false);
	sl__put_free(c, b);
}

void sl__worker_main(unsigned index, void *ctx)
{
	sl_coordinator *c = ctx;
	struct sl__worker *w = &c->workers[index];
	struct sl__batch *b;
	sl__lock(&c->mu);
	if (index >= c->n_first)
		wait_parked(c);
	while ((b = pick(c, w)) != NULL)
		work_on(c, w, b);
	sl__unlock(&c->mu);
	detach_worker(w);
}
