/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end, step by step:
 *
 *     close    no intake; workers continue until nothing is left or the time is up
 *     halt     nothing is begun any more; the sink is cancelled; batches that come back are left here
 *     return   what is left goes to the log, or to the caller
 *     quit     threads leave and are joined, when no write is still out
 *
 * Without a place to return items to, stop goes no further than close: nothing is lost.
 */
#include "coordinator/coordinator.h"

#define GRACE_MS 1000 /* that a write has to come back after the sink was cancelled */
#define CHUNK 64

void sl__join_threads(sl_coordinator *c)
{
	sl__lock(&c->mu);
	bool again = c->joined;
	c->halted = c->quit = c->joined = true;
	sl__broadcast(&c->work);
	sl__broadcast(&c->park);
	sl__broadcast(&c->fed);
	sl__signal(&c->ticks);
	sl__unlock(&c->mu);
	if (again)
		return;
	if (c->queue != NULL)
		sl__queue_close(c->queue, SL__QUEUE_TAKE_BACK);
	sl__pool_free(c->pool);
	c->pool = NULL;
	if (c->keeper_runs)
		(void)pthread_join(c->keeper, NULL);
	if (c->feeder_runs)
		(void)pthread_join(c->feeder, NULL);
	c->keeper_runs = c->feeder_runs = false;
}

static bool all_ended(sl_coordinator *c) SL_REQUIRES(c->mu)
{
	struct sl__tally t = sl__tally(c);
	return t.queue.pushed == t.ended && c->n_busy == 0;
}

/* Nothing is on its way between the places where items can lie. */
static bool at_rest(sl_coordinator *c) SL_REQUIRES(c->mu)
{
	struct sl__tally t = sl__tally(c);
	return c->n_busy == 0 && c->n_popping == 0 && t.outside == t.waiting;
}

static void wait_until(sl_coordinator *c, bool (*holds)(sl_coordinator *c), int64_t deadline_ns) SL_REQUIRES(c->mu)
{
	while (!holds(c))
		if (!sl__wait(&c->env, &c->settled, &c->mu, deadline_ns))
			break;
}

static bool fed(sl_coordinator *c) SL_REQUIRES(c->mu)
{
	return !atomic_load(&c->feeding);
}

/* cancel: something is still to come back. */
static void halt(sl_coordinator *c, bool cancel) SL_REQUIRES(c->mu)
{
	bool first = !c->halted;
	c->halted = true;
	sl__broadcast(&c->work);
	if (!first)
		return;
	sl__unlock(&c->mu);
	sl__queue_close(c->queue, SL__QUEUE_TAKE_BACK);
	if (c->rate_items != NULL)
		sl__tokens_close(c->rate_items);
	if (c->rate_bytes != NULL)
		sl__tokens_close(c->rate_bytes);
	if (cancel && c->sink.ops->cancel != NULL)
		c->sink.ops->cancel(c->sink.ctx);
	sl__lock(&c->mu);
}

/* ---- giving back ---- */

/* It stays in, or goes to, a log; else on_returned gets it. */
static bool stays_in_a_log(const sl_coordinator *c)
{
	return c->o.wal != NULL || c->o.spill_wal != NULL;
}

static int return_batch(sl_coordinator *c, struct sl__batch *b, struct sl_err *err) SL_REQUIRES(c->mu)
{
	bool keys = sl__has_keys(c);
	for (size_t i = b->lo; i < b->n && b->keyed && keys; i++)
		sl__keys_end(c, b->items[i].ptr);
	b->keyed = false;
	while (b->lo < b->n) {
		size_t n = SL_MIN(b->n - b->lo, CHUNK);
		uint64_t at[CHUNK];
		for (size_t i = 0; i < n && keys; i++)
			at[i] = ((const struct sl__box *)b->items[b->lo + i].ptr)->at;
		sl__unlock(&c->mu);
		/* Without the lock. When spilling fails, nothing was done. */
		int rc =
			c->o.wal == NULL && c->o.spill_wal != NULL ? sl__durable_spill(c, &b->items[b->lo], n, err) : 0;
		for (size_t i = b->lo; i < b->lo + n && rc == 0; i++) {
			if (!stays_in_a_log(c)) {
				struct sl_item item = sl__item_view(&b->items[i]);
				c->o.unwritten.on_returned(&item, c->o.unwritten.returned_ctx);
			}
			sl__item_call_done(&b->items[i], SL_ITEM_RETURNED, NULL);
			sl__item_free(c, &b->items[i], !stays_in_a_log(c));
		}
		sl__lock(&c->mu);
		if (rc != 0) {
			sl__batches_prepend(&c->left, b);
			return rc;
		}
		for (size_t i = 0; i < n && keys; i++)
			sl__settle(c, at[i], 1, true);
		sl__count_ended(c, n, SL_ITEM_RETURNED);
		if (stays_in_a_log(c))
			c->spilled += n;
		b->lo += n;
	}
	sl__settle_batch(c, b, true);
	sl__batch_done(c, b);
	return 0;
}

static int give_back(sl_coordinator *c, struct sl_err *err) SL_REQUIRES(c->mu)
{
	struct sl__batch *b;
	while ((b = sl__batches_pop(&c->left)) != NULL || (b = sl__batches_pop(&c->held)) != NULL ||
	       (b = sl__heap_pop(&c->heap)) != NULL) {
		int rc = return_batch(c, b, err);
		if (rc != 0)
			return rc;
	}
	/* What waits in the queue or for keys goes through an empty batch, so that a failure leaves it somewhere. */
	for (;;) {
		b = sl__batches_pop(&c->free);
		if (b == NULL)
			return sl_err_set(err, SL_ETIMEDOUT,
					  "coordinator %s: every batch is being written; wait for one to end", c->name);
		size_t max = SL_MIN(c->batch_size, CHUNK);
		size_t n = sl__has_keys(c) ? sl__keys_take_aside(c, b->items, max) : 0;
		if (n == 0) {
			n = sl__queue_take_at(c->queue, b->items, max, &b->first);
			for (size_t i = 0; i < n && sl__has_keys(c); i++)
				((struct sl__box *)b->items[i].ptr)->at = b->first + i;
		}
		sl__batch_begin(b, n);
		b->keyed = false;
		if (n == 0) {
			sl__batches_prepend(&c->free, b);
			return 0;
		}
		int rc = return_batch(c, b, err);
		if (rc != 0)
			return rc;
	}
}

/* ---- stop ---- */

static int write_is_out(const sl_coordinator *c, uint64_t n_unknown, struct sl_err *err)
{
	return sl_err_set(err, SL_ETIMEDOUT,
			  "coordinator %s: a write has not returned; the outcome of %llu items is unknown", c->name,
			  (unsigned long long)n_unknown);
}

static int run_down(sl_coordinator *c, int64_t deadline_ns, struct sl_err *err) SL_REQUIRES(c->mu)
{
	/* Close. What the logs have pending is there to be written, too: intake waits for it, and so does this. */
	c->closed = true;
	sl__broadcast(&c->fed);
	wait_until(c, fed, deadline_ns);
	/* From here on the feeder neither pushes nor waits for memory. */
	c->unfed = true;
	sl__broadcast(&c->fed);
	sl__queue_close(c->queue, SL__QUEUE_DRAIN);
	wait_until(c, fed, SL_FOREVER);
	wait_until(c, all_ended, deadline_ns);
	bool done = all_ended(c);
	if (!done && !stays_in_a_log(c) && c->o.unwritten.on_returned == NULL) {
		struct sl__tally t = sl__tally(c);
		if (t.queue.depth + t.waiting == 0)
			return write_is_out(c, t.outside, err);
		return sl_err_set(err, SL_EPENDING,
				  "coordinator %s: %llu items are not written; set a log or on_returned to keep them",
				  c->name, (unsigned long long)(t.queue.depth + t.outside));
	}
	halt(c, !done);
	wait_until(c, at_rest, sl__deadline_ns(&c->env, GRACE_MS));
	int rc = give_back(c, err);
	for (struct sl__flusher *f = c->flushers; f != NULL; f = f->next)
		f->closed = true;
	sl__broadcast(&c->settled);
	c->stopped = true;
	if (rc != 0)
		return rc;
	struct sl__tally t = sl__tally(c);
	uint64_t unknown = t.queue.pushed - t.ended, pending;
	if (unknown > 0)
		return write_is_out(c, unknown, err);
	if (c->returned > 0)
		return sl_err_set(err, SL_EPENDING, "coordinator %s: %llu items were returned", c->name,
				  (unsigned long long)c->returned);
	/* Records that were never queued: the time ran out first, they could not be read, or are not items. */
	rc = sl__durable_pending(c, &pending, err);
	if (rc == 0 && pending > 0)
		rc = sl_err_set(err, SL_EPENDING, "coordinator %s: %llu records are still pending in its log", c->name,
				(unsigned long long)pending);
	return rc;
}

int sl_coordinator_stop(sl_coordinator *c, int64_t drain_timeout_ms, struct sl_coordinator_report *report,
			struct sl_err *err)
{
	if (sl__forked(&c->guard))
		return sl_err_set(err, SL_EFORKED, "coordinator: used in a forked child");
	int64_t deadline_ns = drain_timeout_ms < 0 ? SL_FOREVER : sl__deadline_ns(&c->env, drain_timeout_ms);
	sl__lock(&c->mu);
	while (c->stop_runs)
		(void)sl__wait(&c->env, &c->settled, &c->mu, SL_FOREVER);
	c->stop_runs = true;
	int rc = run_down(c, deadline_ns, err);
	if (report != NULL) {
		struct sl__tally t = sl__tally(c);
		uint64_t unknown = c->halted ? t.queue.pushed - t.ended : t.outside - t.waiting;
		struct sl_coordinator_report r = {.accepted = t.queue.pushed,
						  .written = c->written,
						  .dead = c->dead,
						  .dropped = c->dropped,
						  .returned = c->returned,
						  .unknown = unknown,
						  .spilled = c->spilled};
		sl__result_copy(report, &r, sizeof(r));
	}
	bool join = c->stopped && c->n_busy == 0;
	sl__unlock(&c->mu);
	if (join)
		sl__join_threads(c);
	sl__lock(&c->mu);
	c->stop_runs = false;
	sl__broadcast(&c->settled);
	sl__unlock(&c->mu);
	return rc;
}
