/* SPDX-License-Identifier: Apache-2.0 */
/* How writes end. Only the loop settles, so the callbacks here never overlap. */
#include "writer/writer.h"

/* The block has ended and its callbacks have run. */
static void forget(sl_writer *w, struct sl__wblock *b)
{
	sl__shards_done(w->shards, &b->item);
	if (b->view.release != NULL)
		b->view.release(&b->view);
	sl__free(&w->env, b);
}

/* The slot is free, and its block in nobody's hands but the caller's. */
static struct sl__wblock *leave_flight(sl_writer *w, struct sl__wslot *slot) SL_REQUIRES(w->mu)
{
	struct sl__wblock *b = slot->block;
	slot->block = NULL;
	sl__wslots_append(&w->free, slot);
	w->in_flight_blocks--;
	w->in_flight_bytes -= b->view.len;
	return b;
}

static void observe_latency(const sl_writer *w, const struct sl__wslot *slot)
{
	if (w->metrics.latency != NULL)
		sl_histogram_observe(w->metrics.latency, (uint64_t)(sl__mono_ns(&w->env) - slot->began_ns));
}

/* Count the first of the completed that are written, up to max of them. Returns their number. */
static size_t count_written(sl_writer *w, struct sl__wblock **blocks, size_t max) SL_REQUIRES(w->mu)
{
	size_t n = 0;
	while (n < max && w->completed.first != NULL && w->completed.first->err.code == 0) {
		struct sl__wslot *slot = sl__wslots_pop(&w->completed);
		observe_latency(w, slot);
		blocks[n] = leave_flight(w, slot);
		w->physical_bytes += blocks[n++]->view.len;
	}
	w->written += n;
	sl__writer_press(w);
	return n;
}

static void tell_written(sl_writer *w, struct sl__wblock *b)
{
	sl__limiter_release(w->limiter, SL__LIMITER_OK);
	sl_counter_add(w->metrics.written, 1);
	sl_counter_add(w->metrics.physical_bytes, b->view.len);
	if (w->o.handle_physical_bytes != NULL)
		w->o.handle_physical_bytes(b->view.len, w->o.ctx);
	if (w->o.on_written != NULL)
		w->o.on_written(&b->view, w->o.ctx);
	forget(w, b);
}

/* Several at a time, so that the lock is taken once for them. false: the next one is not a success. */
static bool settle_written(sl_writer *w) SL_REQUIRES(w->mu)
{
	struct sl__wblock *blocks[SL__WRITER_BATCH];
	uint64_t written = w->written;
	size_t n = count_written(w, blocks, SL_COUNT(blocks));
	if (n == 0)
		return false;
	sl__unlock(&w->mu);
	for (size_t i = 0; i < n; i++) {
		tell_written(w, blocks[i]);
		sl__writer_log_queue(w, ++written);
	}
	sl__lock(&w->mu);
	sl__writer_tell(w);
	return true;
}

/* Report a block that is counted neither as queued nor as in flight any more. */
static void give_up(sl_writer *w, struct sl__wblock *b, const struct sl_err *reason) SL_REQUIRES(w->mu)
{
	w->unwritten++;
	w->unwritten_bytes += b->view.len;
	sl__writer_press(w);
	sl__unlock(&w->mu);
	sl_counter_add(w->metrics.unwritten, 1);
	if (w->o.on_unwritten != NULL)
		w->o.on_unwritten(&b->view, b->attempts, reason, w->o.ctx);
	forget(w, b);
	sl__lock(&w->mu);
	sl__writer_tell(w);
}

/* Every failure of a write is tried again but for poison: what has no class, and a target that is away, count. */
static struct sl__retry_decision decide(sl_writer *w, struct sl__wblock *b, const struct sl_err *reason)
{
	struct sl_err e = *reason;
	if (e.error_class == SL_CLASS_NONE || e.error_class == SL_CLASS_FATAL)
		e.error_class = SL_CLASS_TRANSIENT;
	return sl__retry_decide(&w->o.retry_policy, &b->retry, &e, true, &w->prng);
}

static void try_again(sl_writer *w, struct sl__wblock *b, int64_t delay_ms, const struct sl_err *reason)
	SL_REQUIRES(w->mu)
{
	int64_t retry_at = delay_ms > 0 ? sl__deadline_ns(&w->env, delay_ms) : 0;
	w->retries++;
	w->queued_blocks++;
	w->queued_bytes += b->view.len;
	sl__shards_retry(w->shards, &b->item, retry_at);
	sl__unlock(&w->mu);
	sl_counter_add(w->metrics.retries, 1);
	sl__writer_log_failure(w, b, delay_ms, reason);
	sl__lock(&w->mu);
	sl__writer_tell(w);
}

/* What the first block without attempts left makes the writer's error. */
static void name_error(const struct sl__wblock *b, struct sl_err *error)
{
	size_t len;
	const char *key = sl__shard_key(&b->item, &len);
	(void)sl_err_wrap(error, error->code, "write a block of shard %.*s (attempt %u)", (int)len, key, b->attempts);
}

static void settle_failed(sl_writer *w, struct sl__wslot *slot) SL_REQUIRES(w->mu)
{
	struct sl_err reason = slot->err;
	struct sl__wblock *b = slot->block;
	bool poison = reason.error_class == SL_CLASS_POISON;
	sl__unlock(&w->mu);
	sl__limiter_release(w->limiter, poison ? SL__LIMITER_NEUTRAL : SL__LIMITER_FAILED);
	sl_counter_add(w->metrics.failures, 1);
	struct sl__retry_decision d = decide(w, b, &reason);
	sl__lock(&w->mu);
	(void)leave_flight(w, slot);
	w->failures++;
	if (!w->failed && d.action == SL__RETRY_AGAIN) {
		try_again(w, b, d.delay_ms, &reason);
		return;
	}
	if (!w->failed) {
		struct sl_err error = reason;
		name_error(b, &error);
		sl__writer_fail(w, &error);
	}
	give_up(w, b, &reason);
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
	(void)sl_err_set(&reason, SL_ECANCELLED, "not written, for the writer has stopped: %s", w->error.msg);
	while ((item = sl__shards_take_any(w->shards)) != NULL) {
		struct sl__wblock *b = (struct sl__wblock *)item;
		w->queued_blocks--;
		w->queued_bytes -= b->view.len;
		give_up(w, b, &reason);
	}
}
