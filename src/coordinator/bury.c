/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Items that will never be written. One counts as dead only when its letter is durable: while the dead letters cannot
 * take it, the batch waits, with backoff and without an end to the attempts, and nothing is lost.
 */
#include "coordinator/coordinator.h"

static int put_letter(const sl_coordinator *c, const struct sl__batch *b, const struct sl_item *item, uint32_t attempts,
		      struct sl_err *err)
{
	struct sl_dlq_letter letter = {.source = c->name,
				       .position = item->position,
				       .error = b->err.msg,
				       .code = b->err.code,
				       .error_class = b->err.error_class,
				       .attempts = attempts,
				       .first_failed_ms = b->first_failed_ms,
				       .last_failed_ms = b->last_failed_ms,
				       .target = c->target};
	int rc = sl__item_bytes(c, item, &letter.item, &letter.item_len);
	if (rc != 0)
		return sl_err_set(err, rc, "item_encode failed: %s", sl_err_text(rc));
	return sl_dlq_put(c->o.dead_letters, &letter, NULL, err);
}

/* Without the lock. 0: it is where people can find it. */
static int bury_one(const sl_coordinator *c, const struct sl__batch *b, const struct sl__queue_item *q,
		    uint32_t attempts, struct sl_err *err)
{
	struct sl_item item = sl__item_view(q);
	int rc = c->o.dead_letters != NULL ? put_letter(c, b, &item, attempts, err) : 0;
	if (rc == 0 && c->o.on_dead != NULL)
		c->o.on_dead(&item, &b->err, attempts, c->o.dead_ctx);
	return rc;
}

static void wait_for_the_letters(sl_coordinator *c, struct sl__worker *w, struct sl__batch *b, const struct sl_err *err)
	SL_REQUIRES(c->mu)
{
	sl_counter_add(c->metrics.worker_errors, 1);
	sl__unlock(&c->mu);
	sl__log(&c->env, SL_LOG_ERROR, "coordinator", "the dead letters refused an item; it waits",
		SL__F_STR("name", c->name), SL__F_STR("error", err->msg));
	sl__lock(&c->mu);
	c->last_error = *err;
	if (b->letter_tries != UINT32_MAX)
		b->letter_tries++;
	if (c->halted)
		sl__put_left(c, b);
	else
		sl__put_heap(
			c, b,
			sl__deadline_ns(&c->env, sl__retry_delay_ms(&c->o.retry_policy, b->letter_tries, &w->prng)));
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
		sl__lock(&c->mu);
		if (rc != 0) {
			wait_for_the_letters(c, w, b, &err);
			return SL__STEP_GONE;
		}
		sl__end_items(c, b, b->lo, b->lo + 1, SL_ITEM_DEAD, &b->err);
		b->lo++;
		b->letter_tries = 0;
	}
	sl__batch_pop(b);
	return SL__STEP_ON;
}
