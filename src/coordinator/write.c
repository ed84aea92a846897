/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One write of the segment on top of a batch, and what its result means:
 *
 *     0            the segment is written
 *     outcomes     items that the sink answered for one by one have ended; the rest as the class says
 *     poison       one item: it is dead. A culprit: it alone is. Otherwise halves.
 *     transient    into the heap by the policy; charged once something else got into the target since its first
 *                  failure. Failed max_attempts times: halves, and then every failure halves. One item whose charged
 *                  attempts are used up is dead.
 *     throttled    into the heap, for as long as the target asked for
 *     fatal        held until the breaker lets a probe through (or in the heap, for as long as the target asked for).
 *                  Something else got into the target since its first failure: into the heap by the policy, and halved
 *                  as transient ones
 *
 * What fails alone makes room for what follows it in its batch.
 *
 * What has failed for retry.give_up_after_ms is tried a last time, past the breaker, and halved at each failure until
 * one item is left: that one is dead. When nothing has got into the target since the first failure, the other pieces are
 * tried once, as they are; if none of them gets in, the target is down, and all of the batch is dead.
 */
#include "coordinator/coordinator.h"

#define COMPONENT "coordinator"

/* Fill the sink's view of items lo … and return where room is full, or max of them are there; at least one after lo.
 */
static size_t view_items(struct sl__worker *w, struct sl__batch *b, size_t max, size_t room, size_t *bytes)
{
	size_t lo = b->lo, i = lo, sum = 0, end = lo + SL_MIN(sl__top(b)->end - lo, max);
	for (; i < end; i++) {
		const struct sl__queue_item *q = &b->items[i];
		struct sl_sink_item *to = &w->items[i - lo];
		if (sum + q->bytes > room && i > lo)
			break;
		sum += q->bytes;
		if (SL_LIKELY(q->tag != SL__ITEM_BOX)) {
			to->data = q->ptr;
			to->len = q->bytes;
			if (SL_UNLIKELY(i - lo < w->dirty)) {
				to->key = NULL;
				to->key_len = 0;
				to->position = 0;
				to->range.end = 0;
			}
			continue;
		}
		const struct sl__box *box = q->ptr;
		*to = (struct sl_sink_item){.data = box->data,
					    .len = box->len,
					    .key = box->key_len > 0 ? box->tail : NULL,
					    .key_len = box->key_len,
					    .position = box->position,
					    .range = box->range};
		b->loops = true;
		w->dirty = SL_MAX(w->dirty, i - lo + 1);
	}
	*bytes = sum;
	return i;
}

/* Write n items; a failure has its class. */
static int call_sink(struct sl__worker *w, struct sl__batch *b, size_t n, struct sl_sink_reply *reply,
		     struct sl_err *err)
{
	sl_coordinator *c = w->c;
	const sl_sink *sink = &c->sink;
	int rc = 0;
	if (!w->attached) {
		w->lane = sink->ctx;
		rc = sink->ops->attach != NULL ? sink->ops->attach(sink->ctx, &w->lane, err) : 0;
		w->attached = rc == 0;
	}
	if (SL_LIKELY(rc == 0)) {
		struct sl__segment *top = sl__top(b);
		if (!top->has_id) {
			/* Random by its first half, and never the same twice. */
			sl__put64(w->id + 8, sl__get64(w->id + 8) + 1);
			memcpy(top->id, w->id, sizeof(top->id));
			top->has_id = true;
			top->tries = 0;
		}
		struct sl_sink_batch batch = {
			.items = w->items, .n = n, .tries = top->tries++, .ordered = c->o.per_key_order == SL_ON};
		memcpy(batch.id, top->id, sizeof(batch.id));
		rc = sink->ops->write(sink->ctx, w->lane, &batch, reply, err);
	}
	if (SL_LIKELY(rc == 0))
		return 0;
	sl_counter_add(c->metrics.worker_errors, 1);
	if (err->code == 0)
		err->code = rc;
	if (err->msg[0] == '\0')
		(void)sl_err_set(err, rc, "%s: %s", sink->ops->name, sl_err_text(rc));
	if (err->error_class == SL_CLASS_NONE)
		err->error_class = c->o.retry.classify_retryable(err, c->o.retry.classify_ctx);
	if (err->error_class == SL_CLASS_NONE)
		err->error_class = sl_default_retry_classifier(err, NULL);
	return rc;
}

/* ---- failures ---- */

/* Apply what the sink answered for single items. *poison: it named some that are. SL__STEP_GONE: they wait for the dead
 * letters, and the rest with them. */
static enum sl__step take_outcomes(sl_coordinator *c, struct sl__worker *w, struct sl__batch *b, bool *poison)
	SL_REQUIRES(c->mu)
{
	size_t n_written, n_poison, n_segments = b->n_segments, n = sl__top(b)->end - b->lo;
	for (size_t i = 0; i < n; i++)
		if (w->outcomes[i] > SL_SINK_POISON)
			w->outcomes[i] = SL_SINK_AS_BATCH;
	_Static_assert(sizeof(struct sl__queue_item) <= sizeof(struct sl_sink_item), "the view is the scratch");
	sl__batch_sort(b, w->outcomes, (void *)w->items, &n_written, &n_poison);
	w->dirty = c->batch_size;
	*poison = n_poison > 0;
	if (n_written > 0) {
		c->successes++;
		c->failing_since_ns = 0;
		sl__end_items(c, b, n_written, SL_ITEM_WRITTEN, NULL);
		b->lo += n_written;
		if (b->lo == sl__top(b)->end)
			sl__batch_pop(b);
	}
	if (b->n_segments < n_segments || n_poison == 0)
		return SL__STEP_ON;
	sl__batch_kill(b, n_poison);
	c->n_splits++;
	return sl__bury(c, w, b);
}

/* Others of the batch may go before the segment on top. */
static bool may_defer_top(const sl_coordinator *c, struct sl__batch *b)
{
	return sl__top(b)->end < b->n && !(sl__has_keys(c) && sl__keys_shared(b));
}

/* The segment on top comes back at due_ns, or when it gives up. What follows it goes first if it may. */
static enum sl__step wait_until_due(sl_coordinator *c, struct sl__batch *b, int64_t due_ns, bool aside)
	SL_REQUIRES(c->mu)
{
	int64_t now_ns = sl__mono_ns(&c->env), gives_up_ns = sl__gives_up_ns(c, b);
	sl__top(b)->due_ns = gives_up_ns > now_ns ? SL_MIN(due_ns, gives_up_ns) : due_ns;
	sl_counter_add(c->metrics.retries, 1);
	if (aside && may_defer_top(c, b))
		sl__batch_defer_top(b);
	if (c->halted)
		sl__put_left(c, b);
	else if (sl__top(b)->due_ns <= now_ns)
		return SL__STEP_ON;
	else
		sl__put_heap(c, b, sl__top(b)->due_ns);
	return SL__STEP_GONE;
}

/* Its time is up. */
static enum sl__step last_call(sl_coordinator *c, struct sl__batch *b, bool alone, int64_t due_ns) SL_REQUIRES(c->mu)
{
	struct sl__segment *top = sl__top(b);
	if (top->end - b->lo > 1 && (alone || !b->down_to_one)) {
		if (!sl__batch_has_room(b))
			return wait_until_due(c, b, due_ns, true);
		c->n_splits++;
		sl__batch_halve(b);
		return SL__STEP_ON;
	}
	b->down_to_one = top->last_call = true;
	if (alone || !may_defer_top(c, b)) {
		top->dead = true;
		return SL__STEP_ON;
	}
	sl__batch_defer_top(b);
	/* Every piece was tried, and the target took none. */
	for (size_t i = 0; i < b->n_segments && sl__top(b)->last_call; i++)
		b->segments[i].dead = b->segments[i].last_call;
	return SL__STEP_ON;
}

/* A failure that is not poison: again later, in halves, or never. */
static enum sl__step wait_or_give_up(sl_coordinator *c, struct sl__worker *w, struct sl__batch *b) SL_REQUIRES(c->mu)
{
	struct sl__segment *top = sl__top(b);
	enum sl_err_class error_class = b->err.error_class;
	size_t n = top->end - b->lo;
	bool alone = sl__fails_alone(c, b), charge = alone && error_class == SL_CLASS_TRANSIENT;
	/* The first failure could not be charged before it was known whose fault it is. */
	if (charge && top->owes && top->retry.charged != UINT32_MAX)
		top->retry.charged++;
	top->owes = error_class == SL_CLASS_TRANSIENT && !alone;
	struct sl__retry_decision d = sl__retry_decide(&c->o.retry.policy, &top->retry, &b->err, charge, &w->prng);
	if (error_class == SL_CLASS_FATAL) {
		/* One that fails for good, while others do not, must not ask every two seconds. */
		struct sl_retry_policy slow = c->o.retry.policy;
		slow.cap_ms = SL_MAX(slow.cap_ms, c->o.breaker.open_max_ms);
		d.delay_ms = SL_MAX(sl__retry_delay_ms(&slow, top->retry.failures, &w->prng), b->err.retry_after_ms);
	}
	int64_t due_ns = sl__deadline_ns(&c->env, d.delay_ms);
	if (sl__is_late(c, b))
		return last_call(c, b, alone, due_ns);
	if (d.action == SL__RETRY_GIVE_UP && n == 1) {
		top->dead = true;
		return SL__STEP_ON;
	}
	/* Halves: when it was tried often enough as a whole. An unavailable target would refuse halves, too. */
	bool often = top->halving || sl__retry_exhausted(&c->o.retry.policy, top->retry.failures);
	if (n > 1 && often && (alone || error_class == SL_CLASS_TRANSIENT)) {
		top->halving = true;
		if (!sl__batch_has_room(b)) /* no room for more pieces: first what follows it */
			return wait_until_due(c, b, due_ns, true);
		c->n_splits++;
		sl__batch_halve(b);
		return alone && error_class == SL_CLASS_TRANSIENT ? SL__STEP_ON : wait_until_due(c, b, due_ns, false);
	}
	if (error_class == SL_CLASS_FATAL && !alone && b->err.retry_after_ms <= 0 && !c->halted) {
		sl_counter_add(c->metrics.retries, 1);
		sl__put_held(c, b, false);
		return SL__STEP_GONE;
	}
	return wait_until_due(c, b, due_ns, n == 1);
}

/* A write of n items failed: what that means for them. */
static enum sl__step after_failure(sl_coordinator *c, struct sl__worker *w, struct sl__batch *b, size_t n,
				   size_t culprit) SL_REQUIRES(c->mu)
{
	const struct sl_err *err = &b->err;
	bool answered = false, named = false;
	struct sl__segment *top = sl__top(b);
	c->n_failures++;
	c->last_error = *err;
	b->last_failed_ms = sl__real_ms(&c->env);
	if (b->first_failed_ms == 0)
		b->first_failed_ms = b->last_failed_ms;
	if (!top->failed && err->error_class != SL_CLASS_POISON) {
		top->failed = true;
		top->failed_ns = sl__mono_ns(&c->env);
		top->successes = c->successes;
	}
	if (c->failing_since_ns == 0 && err->error_class != SL_CLASS_POISON)
		c->failing_since_ns = sl__mono_ns(&c->env);
	/* Items that the sink answered for one by one. */
	for (size_t i = 0; i < n && !answered; i++)
		answered = w->outcomes[i] != SL_SINK_AS_BATCH;
	if (answered) {
		size_t n_segments = b->n_segments;
		enum sl__step step = take_outcomes(c, w, b, &named);
		/* Nothing of the segment is left: it was answered for in whole. */
		if (step != SL__STEP_ON || b->n_segments < n_segments)
			return step;
	}
	if (err->error_class != SL_CLASS_POISON)
		return wait_or_give_up(c, w, b);
	if (named)
		return SL__STEP_ON;
	/* Poison that the sink did not name: the only item, the culprit, or one of two halves. */
	n = sl__top(b)->end - b->lo;
	c->n_splits += n > 1;
	if (n == 1)
		sl__top(b)->dead = true;
	else if (culprit < n)
		sl__batch_isolate(b, b->lo + culprit);
	else
		sl__batch_halve(b);
	return SL__STEP_ON;
}

enum sl__step sl__write(sl_coordinator *c, struct sl__worker *w, struct sl__batch *b) SL_REQUIRES(c->mu)
{
	struct sl__permits permits;
	struct sl_sink_reply reply = {.outcomes = w->outcomes, .culprit = SL_SINK_NO_CULPRIT};
	struct sl_err err = SL_ERR_INIT;
	size_t bytes;
	sl__unlock(&c->mu);
	/* Cut what is more than batch_bytes, or than the rate allows at a time, off the segment on top. */
	size_t end = view_items(w, b, c->chunk_items, SL_MIN(c->batch_bytes, c->chunk_bytes), &bytes);
	if (SL_UNLIKELY(end < sl__top(b)->end) && !sl__batch_cut(b, end))
		end = view_items(w, b, SIZE_MAX, SIZE_MAX, &bytes);
	size_t n = end - b->lo;
	memset(w->outcomes, SL_SINK_AS_BATCH, n);
	sl__lock(&c->mu);
	if (sl__gate_enter(c, b, bytes, &permits) != SL__STEP_ON)
		return SL__STEP_GONE;
	b->turn = ++c->turns;
	uint64_t successes = c->successes;
	sl__unlock(&c->mu);
	int64_t begin_ns = sl__mono_ns(&c->env);
	sl__top(b)->attempts++;
	int rc = call_sink(w, b, n, &reply, &err);
	sl_histogram_observe(c->metrics.latency, (uint64_t)(sl__mono_ns(&c->env) - begin_ns));
	sl_histogram_observe(c->metrics.batch_items, n);
	sl_counter_add(rc == 0 ? c->metrics.writes_ok : c->metrics.writes_failed, 1);
	sl__lock(&c->mu);
	if (SL_LIKELY(rc == 0)) {
		c->successes++;
		c->failing_since_ns = 0;
	}
	/* Others were written meanwhile, or since it failed first: it says nothing about the target. */
	bool alone = c->successes > successes || sl__fails_alone(c, b);
	sl__gate_leave(c, &permits, rc, err.error_class, alone);
	if (SL_LIKELY(rc == 0)) {
		c->n_writes++;
		sl__end_items(c, b, n, SL_ITEM_WRITTEN, NULL);
		sl__batch_pop(b);
		return SL__STEP_ON;
	}
	b->err = err;
	enum sl__breaker_state state = c->state;
	enum sl__step step = after_failure(c, w, b, n, reply.culprit);
	if (c->env.log != NULL) {
		static const char *const states[] = {"closed", "open", "half open"};
		/* What is poison ends in the dead letters with its reason; as a warning each it would drown the others. */
		enum sl_log_level level = err.error_class == SL_CLASS_POISON ? SL_LOG_DEBUG : SL_LOG_WARN;
		sl__unlock(&c->mu);
		sl__log(&c->env, level, COMPONENT, "write failed", SL__F_STR("name", c->name),
			SL__F_STR("class", sl_err_class_name(err.error_class)), SL__F_U64("items", n),
			SL__F_STR("breaker", states[state]), SL__F_STR("error", err.msg));
		sl__lock(&c->mu);
	}
	return step;
}
