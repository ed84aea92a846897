/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How items end, and who waits for that.
 *
 * dead letters: an item counts as dead only when its letter is durable. While the dead letters refuse it, the batch
 * waits, with backoff and without an end to the attempts, and nothing is lost.
 *
 * flush: everything that has ended so far went into the queue before now, so of the N items that went in, N - ended are
 * what flush waits for. Each end with a place below N counts one down. That needs no record of which have ended, only
 * the place of each one in the queue's order: a batch out of the queue is a range of places.
 */
#include "coordinator/coordinator.h"

void sl__count_ended(sl_coordinator *c, uint64_t n, enum sl_item_end end) SL_REQUIRES(c->mu)
{
	switch (end) {
	case SL_ITEM_WRITTEN:
		c->written += n;
		break;
	case SL_ITEM_DEAD:
		c->dead += n;
		sl_counter_add(c->metrics.dead, n);
		break;
	case SL_ITEM_DROPPED:
		c->dropped += n;
		sl_counter_add(c->metrics.dropped, n);
		break;
	case SL_ITEM_RETURNED:
	default:
		c->returned += n;
		break;
	}
}

void sl__settle(sl_coordinator *c, uint64_t first, uint64_t n, bool returned) SL_REQUIRES(c->mu)
{
	c->ended += n;
	for (struct sl__flusher *f = c->flushers; f != NULL; f = f->next) {
		if (first >= f->until)
			continue;
		f->left -= SL_MIN(n, f->until - first);
		f->closed = f->closed || returned;
	}
	if (SL_UNLIKELY(c->flushers != NULL || c->stop_runs))
		sl__broadcast(&c->settled);
}

void sl__settle_batch(sl_coordinator *c, struct sl__batch *b, bool returned) SL_REQUIRES(c->mu)
{
	if (SL_LIKELY(!sl__has_keys(c))) /* those with keys settled one by one */
		sl__settle(c, b->first, b->total, returned);
}

void sl__end_items(sl_coordinator *c, struct sl__batch *b, size_t n, enum sl_item_end end, const struct sl_err *err)
	SL_REQUIRES(c->mu)
{
	size_t lo = b->lo, hi = lo + n;
	if (b->loops) {
		sl__unlock(&c->mu);
		if (c->logs)
			sl__durable_mark(c, &b->items[lo], n, end == SL_ITEM_WRITTEN);
		for (size_t i = lo; i < hi; i++)
			sl__item_call_done(&b->items[i], end, err);
		if (sl__has_keys(c)) {
			sl__lock(&c->mu);
			sl__count_ended(c, n, end);
			/* The keys are free for others. Each item settles separately: a batch is no range of places. */
			for (size_t i = lo; i < hi; i++) {
				struct sl__box *box = b->items[i].ptr;
				sl__keys_end(c, box);
				sl__settle(c, box->at, 1, false);
			}
			sl__stir(c);
			sl__unlock(&c->mu);
		}
		for (size_t i = lo; i < hi; i++)
			sl__item_free(c, &b->items[i], false);
		sl__lock(&c->mu);
	}
	if (SL_LIKELY(!sl__has_keys(c)))
		sl__count_ended(c, n, end);
}

void sl__on_drop(const struct sl__queue_item *q, uint64_t position, void *ctx)
{
	sl_coordinator *c = ctx;
	struct sl_item item = sl__item_view(q);
	if (c->o.drop_callback != NULL)
		c->o.drop_callback(&item, c->o.drop_ctx);
	if (c->logs)
		sl__durable_mark(c, q, 1, false);
	sl__item_call_done(q, SL_ITEM_DROPPED, NULL);
	sl__item_free(c, q, false);
	sl__lock(&c->mu);
	sl__count_ended(c, 1, SL_ITEM_DROPPED);
	sl__settle(c, position, 1, false);
	sl__unlock(&c->mu);
}

struct sl__tally sl__tally(sl_coordinator *c) SL_REQUIRES(c->mu)
{
	struct sl__tally t;
	sl__queue_stats(c->queue, &t.queue);
	t.ended = c->written + c->dead + c->dropped + c->returned;
	t.outside = t.queue.pushed - t.queue.depth - t.ended;
	t.waiting = c->held.items + c->heap.items + c->left.items + c->keys.n_aside;
	return t;
}

/* ---- dead letters ---- */

/* Without the lock. 0: the item is where people can find it. */
static int bury_one(const sl_coordinator *c, const struct sl__batch *b, const struct sl__queue_item *q,
		    uint32_t attempts, struct sl_err *err)
{
	struct sl_item item = sl__item_view(q);
	if (c->o.unwritten.dead_letters != NULL) {
		struct sl_dlq_letter letter = {SL_DLQ_LETTER_INIT,
					       .source = c->name,
					       .position = item.position,
					       .error = b->err.msg,
					       .code = b->err.code,
					       .error_class = b->err.error_class,
					       .attempts = attempts,
					       .first_failed_ms = b->first_failed_ms,
					       .last_failed_ms = b->last_failed_ms,
					       .target = c->target};
		int rc = sl__item_bytes(c, &item, &letter.item, &letter.item_len);
		if (rc != 0)
			return sl_err_set(err, rc, "items.encode failed: %s", sl_err_text(rc));
		rc = sl_dlq_put(c->o.unwritten.dead_letters, &letter, NULL, err);
		if (rc != 0)
			return rc;
	}
	if (c->o.unwritten.on_dead != NULL)
		c->o.unwritten.on_dead(&item, &b->err, attempts, c->o.unwritten.dead_ctx);
	return 0;
}

enum sl__step sl__bury(sl_coordinator *c, struct sl__worker *w, struct sl__batch *b) SL_REQUIRES(c->mu)
{
	uint32_t attempts = sl__top(b)->attempts;
	while (b->lo < sl__top(b)->end) {
		struct sl_err err = SL_ERR_INIT;
		if (c->halted) {
			sl__put_left(c, b);
			return SL__STEP_GONE;
		}
		sl__unlock(&c->mu);
		int rc = bury_one(c, b, &b->items[b->lo], attempts, &err);
		if (rc != 0) {
			sl_counter_add(c->metrics.worker_errors, 1);
			sl__log(&c->env, SL_LOG_ERROR, "coordinator",
				"could not write a dead letter; the item is kept and retried",
				SL__F_STR("name", c->name), SL__F_STR("error", err.msg));
		}
		sl__lock(&c->mu);
		if (rc == 0) {
			sl__end_items(c, b, 1, SL_ITEM_DEAD, &b->err);
			b->lo++;
			b->letter_tries = 0;
			continue;
		}
		c->last_error = err;
		if (b->letter_tries != UINT32_MAX)
			b->letter_tries++;
		int64_t delay_ms = sl__retry_delay_ms(&c->o.retry.policy, b->letter_tries, &w->prng);
		if (c->halted)
			sl__put_left(c, b);
		else
			sl__put_heap(c, b, sl__deadline_ns(&c->env, delay_ms));
		return SL__STEP_GONE;
	}
	sl__batch_pop(b);
	return SL__STEP_ON;
}

/* ---- flush ---- */

int sl_coordinator_flush(sl_coordinator *c, int64_t timeout_ms)
{
	if (sl__forked(&c->guard))
		return SL_EFORKED;
	int64_t deadline_ns = timeout_ms < 0 ? SL_FOREVER : sl__deadline_ns(&c->env, timeout_ms);
	struct sl__queue_stats s;
	bool in_time = true;
	sl__lock(&c->mu);
	while (atomic_load(&c->feeding) && !c->closed && in_time)
		in_time = sl__wait(&c->env, &c->fed, &c->mu, deadline_ns);
	sl__queue_stats(c->queue, &s);
	struct sl__flusher f = {.next = c->flushers, .until = s.pushed, .left = s.pushed - c->ended};
	f.closed = c->halted && f.left > 0;
	c->flushers = &f;
	sl__queue_flush(c->queue);
	while (f.left > 0 && !f.closed && in_time)
		in_time = sl__wait(&c->env, &c->settled, &c->mu, deadline_ns);
	struct sl__flusher **at = &c->flushers;
	while (*at != &f)
		at = &(*at)->next;
	*at = f.next;
	sl__unlock(&c->mu);
	return f.closed ? SL_ECLOSED : f.left > 0 ? SL_ETIMEDOUT : 0;
}
