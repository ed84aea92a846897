/* SPDX-License-Identifier: Apache-2.0 */
/* The handle of a coordinator: making its parts, starting its threads, freeing it. */
#include <math.h>

#include "coordinator/coordinator.h"

#define RATE_PARTS 20 /* of the rate is in the bucket at most, and is written at a time */

/* ---- marks ---- */

static void on_high(void *ctx)
{
	sl_coordinator *c = ctx;
	if (c->o.rate.by_watermark == SL_ON)
		(void)sl_coordinator_reduce_tokens(c);
	if (c->o.backpressure.on_high != NULL)
		c->o.backpressure.on_high(c->o.backpressure.ctx);
}

static void on_low(void *ctx)
{
	sl_coordinator *c = ctx;
	if (c->o.rate.by_watermark == SL_ON)
		(void)sl_coordinator_restore_tokens(c);
	if (c->o.backpressure.on_low != NULL)
		c->o.backpressure.on_low(c->o.backpressure.ctx);
}

/* ---- parts ---- */

/* The rate is a bound in every second, not on average: what a full bucket holds, *chunk, and what flows into it in a
 * second are no more than the rate together. A twentieth in the bucket costs little of it. Few items go one by one at
 * equal distances, which costs nothing. The bucket is empty at first: many coordinators in a row, one for each file of
 * a load, keep the rate. */
static int make_rate(sl_coordinator *c, double rate, sl__tokens **out, size_t *chunk, struct sl_err *err)
{
	struct sl__tokens_opts opts = {.env = &c->env, .reduce_factor = c->o.rate.reduce_factor};
	*chunk = SIZE_MAX;
	if (rate == 0)
		return 0;
	*chunk = rate >= 2 * RATE_PARTS ? (size_t)(rate / RATE_PARTS) : 1;
	opts.burst = *chunk;
	opts.rate = *chunk > 1 ? rate - (double)*chunk : SL_MAX(floor(rate), SL_MIN(rate, 1.0));
	int rc = sl__tokens_new(out, &opts, err);
	if (rc == 0)
		(void)!sl__tokens_try_take(*out, *chunk, NULL);
	return rc;
}

/* The queue, and what a batch passes before it is written. */
static int make_queue_and_gates(sl_coordinator *c, struct sl_err *err)
{
	bool marks = c->o.backpressure.on_high != NULL || c->o.backpressure.on_low != NULL ||
		     c->o.rate.by_watermark == SL_ON;
	static const enum sl__queue_overflow overflows[] = {
		[SL_OVERFLOW_BLOCK] = SL__QUEUE_BLOCK,
		[SL_OVERFLOW_DROP_OLDEST] = SL__QUEUE_DROP_OLDEST,
		[SL_OVERFLOW_ERROR] = SL__QUEUE_ERROR,
	};
	struct sl__queue_opts queue = {.env = &c->env,
				       .name = c->name,
				       .capacity = (size_t)c->o.capacity,
				       .max_bytes = c->o.max_bytes == INT64_MAX ? 0 : (size_t)c->o.max_bytes,
				       .high_watermark = c->o.backpressure.high_watermark,
				       .low_watermark = c->o.backpressure.low_watermark,
				       .overflow = overflows[c->o.overflow_strategy],
				       .on_high = marks ? on_high : NULL,
				       .on_low = marks ? on_low : NULL,
				       .on_drop = sl__on_drop,
				       .ctx = c};
	int rc = sl__queue_new(&c->queue, &queue, err);
	if (rc != 0)
		return rc;
	struct sl__breaker_opts breaker = {.env = &c->env,
					   .consecutive_failures = c->o.breaker.failures == SL_UNLIMITED
									   ? UINT32_MAX
									   : (uint32_t)c->o.breaker.failures,
					   .open_ms = c->o.breaker.open_ms,
					   .open_max_ms = c->o.breaker.open_max_ms};
	rc = sl__breaker_new(&c->breaker, &breaker, err);
	if (rc != 0)
		return rc;
	struct sl__limiter_opts limiter = {.env = &c->env, .max = (uint32_t)c->o.scaling.workers_max};
	rc = c->o.adaptive != SL_OFF ? sl__limiter_new(&c->limiter, &limiter, err) : 0;
	if (rc != 0)
		return rc;
	rc = make_rate(c, c->o.rate.items, &c->rate_items, &c->chunk_items, err);
	if (rc != 0)
		return rc;
	if (c->rate_items != NULL)
		c->rate_unreduced = sl__tokens_rate(c->rate_items);
	return make_rate(c, c->o.rate.bytes, &c->rate_bytes, &c->chunk_bytes, err);
}

/* Batches, keys and workers. */
static int make_memory(sl_coordinator *c) SL_NO_TSA
{
	c->n_batches = (size_t)c->o.scaling.workers_max + (size_t)c->o.retry.batches;
	c->batches = sl__calloc(&c->env, c->n_batches, sizeof(*c->batches));
	c->heap.at = sl__calloc(&c->env, c->n_batches + SL__SMALL_BATCHES, sizeof(*c->heap.at));
	c->workers = sl__calloc(&c->env, (size_t)c->o.scaling.workers_max, sizeof(*c->workers));
	if (c->batches == NULL || c->heap.at == NULL || c->workers == NULL)
		return SL_ENOMEM;
	for (size_t i = 0; i < c->n_batches; i++) {
		struct sl__batch *b = &c->batches[i];
		b->items = sl__alloc(&c->env, c->batch_size * sizeof(*b->items));
		b->segments = sl__alloc(&c->env, SL__SEGMENTS * sizeof(*b->segments));
		if (b->items == NULL || b->segments == NULL)
			return SL_ENOMEM;
		sl__batches_append(&c->free, b);
	}
	int rc = c->o.per_key_order == SL_ON ? sl__keys_init(c) : 0;
	if (rc != 0)
		return rc;
	for (int32_t i = 0; i < c->o.scaling.workers_max; i++) {
		struct sl__worker *w = &c->workers[i];
		w->c = c;
		/* Zeroed: a view that never had a key or a position needs none written. */
		w->items = sl__calloc(&c->env, c->batch_size, sizeof(*w->items));
		w->outcomes = sl__alloc(&c->env, c->batch_size);
		if (w->items == NULL || w->outcomes == NULL)
			return SL_ENOMEM;
		sl__prng_init(&w->prng, &c->env);
		if (c->env.rand->fill(w->id, sizeof(w->id), c->env.rand_ctx) != 0)
			for (size_t k = 0; k < sizeof(w->id); k += 8)
				sl__put64(w->id + k, sl__prng_next(&w->prng));
	}
	return 0;
}

/* ---- new and free ---- */

static void set_up_coordinator(sl_coordinator *c) SL_NO_TSA
{
	sl__mutex_init(&c->mu);
	sl__cond_init(&c->work);
	sl__cond_init(&c->park);
	sl__cond_init(&c->ticks);
	sl__cond_init(&c->settled);
	sl__cond_init(&c->fed);
	sl__fork_guard_init(&c->guard);
	c->batch_size = (size_t)c->o.batch_size;
	c->batch_bytes = (size_t)c->o.batch_bytes;
	/* The largest item that every place it may have to go to accepts. */
	uint64_t item_max = SL_MIN((uint64_t)c->o.max_bytes, SL__QUEUE_BYTES_MAX);
	if (c->o.items.kind == SL_ITEM_BYTES && c->o.unwritten.dead_letters != NULL)
		item_max = SL_MIN(item_max, (uint64_t)64 << 20);
	if (c->o.items.kind == SL_ITEM_BYTES && (c->o.wal != NULL || c->o.spill_wal != NULL))
		item_max = SL_MIN(item_max, SL_WAL_MAX_PAYLOAD - 296); /* version, four numbers, a hash, a key */
	c->item_max = (size_t)item_max;
	c->boxes = c->o.per_key_order == SL_ON || c->o.wal != NULL;
	c->logs = c->o.wal != NULL || c->o.spill_wal != NULL;
	c->raw = c->o.items.kind == SL_ITEM_POINTERS && c->o.items.copy == NULL && !c->boxes && !c->logs;
	c->loops = !(c->o.items.kind == SL_ITEM_POINTERS && c->o.items.free == NULL);
	c->n_first = (uint32_t)SL_MIN(SL_MAX(c->o.workers, c->o.scaling.workers_min), c->o.scaling.workers_max);
	c->running = c->target_workers = c->n_first;
	c->limit = (uint32_t)c->o.scaling.workers_max;
	c->limit_next_ns = SL_FOREVER;
	c->keeper_until_ns = SL_FOREVER;
	c->scale_at_ns = SL_FOREVER;
	c->scale_quiet = c->o.scaling.workers_min < c->o.scaling.workers_max;
}

/* Half-built handles too; no thread runs. */
static void take_apart(sl_coordinator *c)
{
	sl__coordinator_metrics_detach(c);
	sl__queue_free(c->queue);
	sl__breaker_free(c->breaker);
	sl__limiter_free(c->limiter);
	sl__tokens_free(c->rate_items);
	sl__tokens_free(c->rate_bytes);
	for (int32_t i = 0; c->workers != NULL && i < c->o.scaling.workers_max; i++) {
		sl__free(&c->env, c->workers[i].items);
		sl__free(&c->env, c->workers[i].outcomes);
	}
	for (size_t i = 0; c->batches != NULL && i < c->n_batches; i++) {
		sl__free(&c->env, c->batches[i].items);
		sl__free(&c->env, c->batches[i].segments);
	}
	sl__free(&c->env, c->workers);
	sl__free(&c->env, c->batches);
	sl__free(&c->env, c->heap.at);
	sl__free(&c->env, c->keys.buckets);
	sl__free(&c->env, c->name);
	sl__free(&c->env, c->target);
	sl__fork_guard_fini(&c->guard);
	sl__cond_fini(&c->work);
	sl__cond_fini(&c->park);
	sl__cond_fini(&c->ticks);
	sl__cond_fini(&c->settled);
	sl__cond_fini(&c->fed);
	sl__mutex_fini(&c->mu);
	struct sl_env env = c->env;
	sl__free(&env, c);
}

static int build(sl_coordinator *c, struct sl_err *err)
{
	const char *target = c->o.unwritten.target;
	if (target == NULL && c->sink.ops->target != NULL)
		target = c->sink.ops->target(c->sink.ctx);
	c->name = sl__strdup(&c->env, c->o.name != NULL ? c->o.name : "coordinator");
	c->target = sl__strdup(&c->env, target != NULL ? target : c->sink.ops->name);
	if (c->name == NULL || c->target == NULL || make_memory(c) != 0)
		return sl_err_set(err, SL_ENOMEM, "coordinator: out of memory");
	int rc = make_queue_and_gates(c, err);
	if (rc != 0)
		return rc;
	rc = sl__coordinator_metrics_attach(c, err);
	if (rc != 0)
		return rc;
	rc = sl__thread_start(&c->keeper, c->name, sl__coordinator_keep, c);
	if (rc != 0)
		return sl__thread_error(err, rc, "keeper", c->name);
	c->keeper_runs = true;
	rc = sl__pool_start(&c->pool, &c->env, c->name, (unsigned)c->o.scaling.workers_max, sl__worker_main, NULL, c,
			    err);
	if (rc != 0)
		return rc;
	return sl__durable_start(c, err);
}

int sl_coordinator_new(sl_coordinator **out, const sl_sink *sink, const struct sl_coordinator_opts *opts,
		       struct sl_err *err)
{
	struct sl_env env;
	struct sl_coordinator_opts o;
	int rc = sl__coordinator_options(&o, opts, sink, err);
	if (rc == 0)
		rc = sl__env_init(&env, o.env, err);
	if (rc != 0)
		return rc;
	sl_coordinator *c = sl__calloc(&env, 1, sizeof(*c));
	if (c == NULL)
		return sl_err_set(err, SL_ENOMEM, "coordinator: out of memory");
	c->env = env;
	c->o = o;
	c->sink = *sink;
	set_up_coordinator(c);
	rc = build(c, err);
	if (rc != 0) {
		sl__join_threads(c);
		take_apart(c);
		return rc;
	}
	*out = c;
	return 0;
}

int sl_coordinator_free(sl_coordinator *c)
{
	if (c == NULL)
		return 0;
	if (sl__forked(&c->guard))
		return SL_EFORKED;
	sl__lock(&c->mu);
	struct sl__tally t = sl__tally(c);
	int rc = 0;
	if (!c->stopped)
		rc = SL_EINVAL;
	else if (c->n_busy > 0)
		rc = SL_ETIMEDOUT;
	else if (t.queue.depth + t.outside > 0)
		rc = SL_EPENDING;
	sl__unlock(&c->mu);
	if (rc != 0)
		return rc;
	sl__join_threads(c);
	take_apart(c);
	return 0;
}
