/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One write of the segment on top of a batch, and what its result means:
 *
 *     0            the segment is written
 *     outcomes     items that the sink answered for one by one have ended; the rest as the class says
 *     poison       one item: it is dead. A culprit: it alone is. Otherwise halves.
 *     transient    into the heap by the policy; attempts used up: the segment is dead
 *     throttled    into the heap, for as long as told
 *     fatal        held until the breaker lets a probe through (or in the heap, for as long as told)
 */
#include "coordinator/coordinator.h"

#define COMPONENT "coordinator"

/* Fill the sink's view of items lo … and return where room is full, at least one behind lo. */
static size_t view_items(struct sl__worker *w, struct sl__batch *b, size_t room, size_t *bytes)
{
	size_t lo = b->lo, i = lo, sum = 0, end = sl__top(b)->end;
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
			}
			continue;
		}
		const struct sl__box *box = q->ptr;
		*to = (struct sl_sink_item){.data = box->data,
					    .len = box->len,
					    .key = box->key_len > 0 ? box->tail : NULL,
					    .key_len = box->key_len,
					    .position = box->position};
		b->loops = true;
		w->dirty = SL_MAX(w->dirty, i - lo + 1);
	}
	*bytes = sum;
	return i;
}

/* Random by its first half, and never the same twice. */
static void new_id(struct sl__worker *w, struct sl__batch *b)
{
	sl__put64(w->id + 8, sl__get64(w->id + 8) + 1);
	memcpy(b->id, w->id, sizeof b->id);
	b->has_id = true;
	b->tries = 0;
}

static int call_sink(struct sl__worker *w, struct sl__batch *b, size_t n, struct sl_sink_reply *reply,
		     struct sl_err *err)
{
	const sl_sink *sink = &w->c->sink;
	if (!w->attached) {
		w->lane = sink->ctx;
		int rc = sink->ops->attach != NULL ? sink->ops->attach(sink->ctx, &w->lane, err) : 0;
		if (rc != 0)
			return rc;
		w->attached = true;
	}
	if (!b->has_id)
		new_id(w, b);
	struct sl_sink_batch batch = {
		.items = w->items, .n = n, .tries = b->tries++, .ordered = w->c->o.per_key_order == SL_ON};
	memcpy(batch.id, b->id, sizeof batch.id);
	return sink->ops->write(sink->ctx, w->lane, &batch, reply, err);
}

static void classify(const sl_coordinator *c, int rc, struct sl_err *err)
{
	if (err->code == 0)
		err->code = rc;
	if (err->msg[0] == '\0')
		(void)sl_err_set(err, rc, "%s: %s", c->sink.ops->name, sl_err_text(rc));
	if (err->error_class == SL_CLASS_NONE)
		err->error_class = c->o.classify_retryable(err, c->o.classify_ctx);
	if (err->error_class == SL_CLASS_NONE)
		err->error_class = sl_default_retry_classifier(err, NULL);
}

static void log_failure(const sl_coordinator *c, const struct sl_err *err, size_t n, enum sl__breaker_state state)
{
	static const char *const states[] = {"closed", "open", "half open"};
	/* What is poison ends in the dead letters with its reason; as a warning each it would drown the others. */
	enum sl_log_level level = err->error_class == SL_CLASS_POISON ? SL_LOG_DEBUG : SL_LOG_WARN;
	sl__log(&c->env, level, COMPONENT, "write failed", SL__F_STR("name", c->name),
		SL__F_STR("class", sl_err_class_name(err->error_class)), SL__F_U64("items", n),
		SL__F_STR("breaker", states[state]), SL__F_STR("error", err->msg));
}

/* ---- failures ---- */

static void note_failure(sl_coordinator *c, struct sl__batch *b, const struct sl_err *err) SL_REQUIRES(c->mu)
{
	c->n_failures++;
	c->last_error = *err;
	b->err = *err;
	b->last_failed_ms = sl__real_ms(&c->env);
	if (b->first_failed_ms == 0)
		b->first_failed_ms = b->last_failed_ms;
}

static bool answered_for_some(const uint8_t *outcomes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (outcomes[i] != SL_SINK_AS_BATCH)
			return true;
	return false;
}

/* End the first n items of the segment on top as written. */
static void end_front(sl_coordinator *c, struct sl__batch *b, size_t n) SL_REQUIRES(c->mu)
{
	sl__end_items(c, b, b->lo, b->lo + n, SL_ITEM_WRITTEN, NULL);
	b->lo += n;
	if (b->lo == sl__top(b)->end)
		sl__batch_pop(b);
}

/* Honour what the sink said of single items. *poison: it named some that are. SL__STEP_GONE: they wait for the dead
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
	if (n_written > 0)
		end_front(c, b, n_written);
	if (b->n_segments < n_segments || n_poison == 0)
		return SL__STEP_ON;
	sl__batch_kill(b, n_poison);
	c->n_splits++;
	return sl__bury(c, w, b);
}

static void split(sl_coordinator *c, struct sl__batch *b, size_t culprit) SL_REQUIRES(c->mu)
{
	size_t n = sl__top(b)->end - b->lo;
	if (n == 1) {
		sl__top(b)->dead = true;
		return;
	}
	c->n_splits++;
	if (culprit < n)
		sl__batch_isolate(b, b->lo + culprit);
	else
		sl__batch_halve(b);
}

static enum sl__step wait_or_give_up(sl_coordinator *c, struct sl__worker *w, struct sl__batch *b, bool charge)
	SL_REQUIRES(c->mu)
{
	struct sl__retry_decision d =
		sl__retry_decide(&c->o.retry_policy, &sl__top(b)->retry, &b->err, charge, &w->prng);
	if (d.action == SL__RETRY_GIVE_UP) {
		sl__top(b)->dead = true;
		return SL__STEP_ON;
	}
	sl_counter_add(c->metrics.retries, 1);
	if (c->halted)
		sl__put_left(c, b);
	else if (d.action == SL__RETRY_HOLD && b->err.retry_after_ms <= 0)
		sl__put_held(c, b, true);
	else
		sl__put_heap(c, b, d.action == SL__RETRY_HOLD ? b->err.retry_after_ms : d.delay_ms);
	return SL__STEP_GONE;
}

static enum sl__step failed(sl_coordinator *c, struct sl__worker *w, struct sl__batch *b,
			    const struct sl_sink_reply *reply, bool charge) SL_REQUIRES(c->mu)
{
	size_t n_segments = b->n_segments;
	bool named = false;
	size_t n = sl__top(b)->end - b->lo;
	if (answered_for_some(w->outcomes, n)) {
		enum sl__step step = take_outcomes(c, w, b, &named);
		/* Nothing of the segment is left: it was answered for in whole. */
		if (step != SL__STEP_ON || b->n_segments < n_segments)
			return step;
	}
	if (b->err.error_class != SL_CLASS_POISON)
		return wait_or_give_up(c, w, b, charge);
	if (!named)
		split(c, b, reply->culprit);
	return SL__STEP_ON;
}

/* Cut what is more than batch_bytes off the segment on top; returns how many items are left in it. */
static size_t view_top(struct sl__worker *w, struct sl__batch *b, size_t *bytes)
{
	size_t end = view_items(w, b, w->c->batch_bytes, bytes);
	if (SL_UNLIKELY(end < sl__top(b)->end) && !sl__batch_cut(b, end))
		end = view_items(w, b, SIZE_MAX, bytes);
	memset(w->outcomes, SL_SINK_AS_BATCH, end - b->lo);
	return end - b->lo;
}

static void count_write(const sl_coordinator *c, int rc, int64_t took_ns, size_t n)
{
	sl_counter_add(rc == 0 ? c->metrics.writes_ok : c->metrics.writes_failed, 1);
	if (rc != 0)
		sl_counter_add(c->metrics.worker_errors, 1);
	sl_histogram_observe(c->metrics.latency, (uint64_t)took_ns);
	sl_histogram_observe(c->metrics.batch_items, n);
}

static enum sl__step after_failure(sl_coordinator *c, struct sl__worker *w, struct sl__batch *b,
				   const struct sl_sink_reply *reply, const struct sl_err *err, size_t n, bool charge)
	SL_REQUIRES(c->mu)
{
	note_failure(c, b, err);
	enum sl__breaker_state state = c->state;
	enum sl__step step = failed(c, w, b, reply, charge);
	if (c->env.log != NULL) {
		sl__unlock(&c->mu);
		log_failure(c, err, n, state);
		sl__lock(&c->mu);
	}
	return step;
}

enum sl__step sl__write(sl_coordinator *c, struct sl__worker *w, struct sl__batch *b) SL_REQUIRES(c->mu)
{
	struct sl__permits permits;
	struct sl_sink_reply reply = {.outcomes = w->outcomes, .culprit = SL_SINK_NO_CULPRIT};
	struct sl_err err = SL_ERR_INIT;
	size_t bytes;
	sl__unlock(&c->mu);
	size_t n = view_top(w, b, &bytes);
	sl__lock(&c->mu);
	if (sl__gate_enter(c, b, n, bytes, &permits) != SL__STEP_ON)
		return SL__STEP_GONE;
	sl__unlock(&c->mu);
	int64_t begin_ns = sl__mono_ns(&c->env);
	sl__top(b)->attempts++;
	int rc = call_sink(w, b, n, &reply, &err);
	if (SL_UNLIKELY(rc != 0))
		classify(c, rc, &err);
	count_write(c, rc, sl__mono_ns(&c->env) - begin_ns, n);
	sl__lock(&c->mu);
	bool charge = sl__gate_leave(c, &permits, rc, err.error_class);
	if (SL_UNLIKELY(rc != 0))
		return after_failure(c, w, b, &reply, &err, n, charge);
	c->n_writes++;
	sl__end_items(c, b, b->lo, b->lo + n, SL_ITEM_WRITTEN, NULL);
	sl__batch_pop(b);
	return SL__STEP_ON;
}
