/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How writes end. The driver completes a write on any thread; the loop settles it: written, queued again, or reported
 * as unwritten. Only the loop settles, so the callbacks here never overlap.
 *
 * A write's id is the number of its attempt and the index of its slot. No id is used twice, so a second completion of
 * the same write is detected however late it comes.
 */
#include "writer/writer.h"

/* ---- completions, from any thread ---- */

void sl__wslots_append(struct sl__wslots *list, struct sl__wslot *slot)
{
	slot->next = NULL;
	if (list->last != NULL)
		list->last->next = slot;
	else
		list->first = slot;
	list->last = slot;
}

struct sl__wslot *sl__wslots_pop(struct sl__wslots *list)
{
	struct sl__wslot *slot = list->first;
	if (slot == NULL)
		return NULL;
	list->first = slot->next;
	if (list->first == NULL)
		list->last = NULL;
	return slot;
}

void sl__writer_ended(sl_writer *w, struct sl__wslot *slot, const struct sl_err *err)
{
	slot->out = false;
	slot->err.code = 0;
	if (err != NULL)
		slot->err = *err;
	sl__wslots_append(&w->completed, slot);
	sl__writer_stir(w);
}

int sl_writer_complete(struct sl_write write, const struct sl_err *err)
{
	sl_writer *w = write.writer;
	if (sl__forked(&w->guard))
		return SL_EFORKED;
	uint64_t number = write.id >> SL__WRITER_SLOT_BITS;
	uint64_t index = write.id & ((1u << SL__WRITER_SLOT_BITS) - 1);
	int rc = 0;
	(void)atomic_fetch_add_explicit(&w->completing, 1, memory_order_relaxed);
	sl__lock(&w->mu);
	if (number == 0 || number > w->issued || index >= (uint64_t)w->o.max_concurrent_writes)
		rc = SL_EINVAL;
	else if (w->slots[index].id != write.id || !w->slots[index].out)
		rc = SL_EDUPLICATE;
	else
		sl__writer_ended(w, &w->slots[index], err);
	sl__unlock(&w->mu);
	(void)atomic_fetch_sub_explicit(&w->completing, 1, memory_order_release); /* the last touch */
	return rc;
}

int sl_writer_shard_ready(sl_writer *w, const char *shard_key, size_t key_len)
{
	if (sl__forked(&w->guard))
		return SL_EFORKED;
	sl__shards_recheck(w->shards, shard_key, key_len);
	sl__lock(&w->mu);
	sl__writer_stir(w);
	sl__unlock(&w->mu);
	return 0;
}

/* ---- on the loop ---- */

/* The block has ended and its callbacks have run. */
static void free_block(sl_writer *w, struct sl__wblock *b)
{
	sl__shards_done(w->shards, &b->item);
	if (b->view.release != NULL)
		b->view.release(&b->view);
	sl__free(&w->env, b);
}

/* The slot is free afterwards, and only the caller has its block. */
static struct sl__wblock *leave_flight(sl_writer *w, struct sl__wslot *slot) SL_REQUIRES(w->mu)
{
	struct sl__wblock *b = slot->block;
	slot->block = NULL;
	sl__wslots_append(&w->free, slot);
	w->in_flight_blocks--;
	w->in_flight_bytes -= b->view.len;
	return b;
}

/* Several at a time, so that the lock is taken once for them. false: the next one is not a success. */
static bool settle_written(sl_writer *w) SL_REQUIRES(w->mu)
{
	struct sl__wblock *blocks[SL__WRITER_BATCH];
	uint64_t written = w->written;
	size_t n = 0;
	/* Count the first of the completed that are written. */
	while (n < SL_COUNT(blocks) && w->completed.first != NULL && w->completed.first->err.code == 0) {
		struct sl__wslot *slot = sl__wslots_pop(&w->completed);
		if (w->metrics.latency != NULL)
			sl_histogram_observe(w->metrics.latency, (uint64_t)(sl__mono_ns(&w->env) - slot->began_ns));
		blocks[n] = leave_flight(w, slot);
		w->physical_bytes += blocks[n++]->view.len;
	}
	w->written += n;
	sl__writer_press(w);
	if (n == 0)
		return false;
	sl__unlock(&w->mu);
	for (size_t i = 0; i < n; i++) {
		const struct sl_writer_block *view = &blocks[i]->view;
		sl__limiter_release(w->limiter, SL__LIMITER_OK);
		sl_counter_add(w->metrics.written, 1);
		sl_counter_add(w->metrics.physical_bytes, view->len);
		if (w->o.handle_physical_bytes != NULL)
			w->o.handle_physical_bytes(view->len, w->o.ctx);
		if (w->o.on_written != NULL)
			w->o.on_written(view, w->o.ctx);
		free_block(w, blocks[i]);
		sl__writer_log_queue(w, ++written);
	}
	sl__lock(&w->mu);
	sl__writer_report(w);
	return true;
}

/* Report a block that is counted neither as queued nor as in flight any more. */
static void report_unwritten(sl_writer *w, struct sl__wblock *b, const struct sl_err *reason) SL_REQUIRES(w->mu)
{
	w->unwritten++;
	w->unwritten_bytes += b->view.len;
	sl__writer_press(w);
	sl__unlock(&w->mu);
	sl_counter_add(w->metrics.unwritten, 1);
	if (w->o.on_unwritten != NULL)
		w->o.on_unwritten(&b->view, b->attempts, reason, w->o.ctx);
	free_block(w, b);
	sl__lock(&w->mu);
	sl__writer_report(w);
}

static void settle_failed(sl_writer *w, struct sl__wslot *slot) SL_REQUIRES(w->mu)
{
	struct sl_err reason = slot->err;
	struct sl__wblock *b = slot->block;
	sl__unlock(&w->mu);
	bool poison = reason.error_class == SL_CLASS_POISON;
	sl__limiter_release(w->limiter, poison ? SL__LIMITER_NEUTRAL : SL__LIMITER_FAILED);
	sl_counter_add(w->metrics.failures, 1);
	/* Everything is retried except poison: an error without a class, and a target that is unavailable, too. */
	struct sl_err judged = reason;
	if (judged.error_class == SL_CLASS_NONE || judged.error_class == SL_CLASS_FATAL)
		judged.error_class = SL_CLASS_TRANSIENT;
	struct sl__retry_decision d = sl__retry_decide(&w->o.retry_policy, &b->retry, &judged, true, &w->prng);
	sl__lock(&w->mu);
	(void)leave_flight(w, slot);
	w->failures++;
	if (!w->failed && d.action == SL__RETRY_AGAIN) {
		int64_t retry_at = d.delay_ms > 0 ? sl__deadline_ns(&w->env, d.delay_ms) : 0;
		w->retries++;
		w->queued_blocks++;
		w->queued_bytes += b->view.len;
		sl__shards_retry(w->shards, &b->item, retry_at);
		sl__unlock(&w->mu);
		sl_counter_add(w->metrics.retries, 1);
		sl__writer_log_failure(w, b, d.delay_ms, &reason);
		sl__lock(&w->mu);
		sl__writer_report(w);
		return;
	}
	/* The first block without attempts left gives the writer its error. */
	if (!w->failed) {
		struct sl_err error = reason;
		size_t len;
		const char *key = sl__shard_key(&b->item, &len);
		(void)sl_err_wrap(&error, error.code, "write a block of shard %.*s (attempt %u)", (int)len, key,
				  b->attempts);
		sl__writer_fail(w, &error);
	}
	report_unwritten(w, b, &reason);
}

void sl__writer_settle(sl_writer *w)
{
	while (w->completed.first != NULL)
		if (!settle_written(w))
			settle_failed(w, sl__wslots_pop(&w->completed));
}

void sl__writer_report_queued(sl_writer *w)
{
	struct sl_err reason = SL_ERR_INIT;
	struct sl__shard_item *item;
	(void)sl_err_set(&reason, SL_ECANCELLED, "not written because the writer has stopped: %s", w->error.msg);
	while ((item = sl__shards_take_any(w->shards)) != NULL) {
		struct sl__wblock *b = (struct sl__wblock *)item;
		w->queued_blocks--;
		w->queued_bytes -= b->view.len;
		report_unwritten(w, b, &reason);
	}
}
