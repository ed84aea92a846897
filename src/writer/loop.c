/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop. A round settles what the driver has completed, queries shards again that were not ready, schedules while there
 * is room, and sleeps when it could do nothing:
 *
 *     settle ─▶ report ─▶ failed? report what is queued ─▶ nothing left, and done or failed? end
 *       ▲                                                   │ no
 *       ├────────── scheduled ◀───────── schedule ◀─────────┘
 *       │                                   │ nothing
 *       ├────────── drain-inflight ◀────────┤ writes are in flight: a completion, or 100 ms
 *       └────────── wait-shard-ready ◀──────┘ none: a signal, the first retry_at, or 100 ms
 */
#include "writer/writer.h"

void sl__writer_stir(sl_writer *w)
{
	w->events++;
	if (w->asleep) {
		w->asleep = false;
		sl__signal(&w->wake);
	}
}

/* ---- schedule ---- */

/* Query shards that were not ready again when it is time, however busy the others are. */
static void recheck_shards(sl_writer *w)
{
	struct sl__shards_stats s;
	sl__shards_get_stats(w->shards, &s);
	if (s.not_ready == 0) {
		w->recheck_ns = SL_FOREVER;
		return;
	}
	int64_t now = sl__mono_ns(&w->env);
	if (w->recheck_ns <= now)
		sl__shards_recheck(w->shards, NULL, 0);
	if (w->recheck_ns <= now || w->recheck_ns == SL_FOREVER)
		w->recheck_ns = now + SL__WRITER_POLL_MS * SL__NS_PER_MS;
}

/* Called and returns with mu held. false: there is no room, or no block that may go. */
static bool schedule_batch(sl_writer *w) SL_REQUIRES(w->mu)
{
	struct sl__wblock *blocks[SL__WRITER_BATCH];
	struct sl__wslot *slots[SL__WRITER_BATCH];
	uint64_t ids[SL__WRITER_BATCH];
	size_t n = 0;
	/* Take blocks whose turn it is, as long as there is room. */
	sl__unlock(&w->mu);
	recheck_shards(w);
	while (n < SL_COUNT(blocks) && sl__limiter_try_acquire(w->limiter) == 0) {
		struct sl__shard_item *item = sl__shards_take(w->shards);
		if (item == NULL) {
			sl__limiter_release(w->limiter, SL__LIMITER_NEUTRAL);
			break;
		}
		blocks[n++] = (struct sl__wblock *)item;
	}
	/* Move them from queued to in flight. */
	sl__lock(&w->mu);
	for (size_t i = 0; i < n; i++) {
		struct sl__wblock *b = blocks[i];
		struct sl__wslot *slot = slots[i] = sl__wslots_pop(&w->free);
		assert(slot != NULL); /* W2 */
		slot->block = b;
		slot->id = ids[i] = ++w->issued << SL__WRITER_SLOT_BITS | (uint64_t)(slot - w->slots);
		slot->out = true;
		if (w->metrics.latency != NULL)
			slot->began_ns = sl__mono_ns(&w->env);
		b->attempts++;
		w->queued_blocks--;
		w->queued_bytes -= b->view.len;
		w->in_flight_blocks++;
		w->in_flight_bytes += b->view.len;
	}
	if (n == 0)
		return false;
	sl__writer_report(w);
	/* Hand them to the driver. */
	sl__unlock(&w->mu);
	for (size_t i = 0; i < n; i++) {
		const struct sl_write write = {.writer = w, .id = ids[i]};
		struct sl_err err = SL_ERR_INIT;
		int rc = w->ops.schedule_write(w->driver, &blocks[i]->view, blocks[i]->attempts, write, &err);
		if (rc == 0)
			continue;
		if (err.code == 0)
			(void)sl_err_set(&err, rc < 0 ? rc : SL_EIO, "driver %s: schedule_write: %s", w->ops.name,
					 sl_err_text(rc < 0 ? rc : SL_EIO));
		/* Refused. A completion from inside the call, or from another thread meanwhile, wins. */
		sl__lock(&w->mu);
		if (slots[i]->id == ids[i] && slots[i]->out)
			sl__writer_ended(w, slots[i], &err);
		sl__unlock(&w->mu);
	}
	sl__lock(&w->mu);
	return true;
}

/* ---- wait ---- */

static void wait_for_events(sl_writer *w, uint64_t seen) SL_REQUIRES(w->mu)
{
	uint64_t in_flight = w->in_flight_blocks;
	if (in_flight > 0 || w->queued_blocks > 0)
		sl__writer_log_round(w, in_flight > 0 ? "drain-inflight" : "wait-shard-ready");
	/* When does the loop have to run again even if nothing is signalled? */
	int64_t until = SL_FOREVER, step = SL_FOREVER;
	in_flight = w->in_flight_blocks;
	bool failed = w->failed;
	if (w->ops.driver_buffered_bytes != NULL && (in_flight > 0 || w->pressed || w->buffered > 0))
		until = sl__deadline_ns(&w->env, SL__WRITER_POLL_MS);
	sl__unlock(&w->mu);
	bool room = sl__limiter_poll(w->limiter, &step) > in_flight;
	until = SL_MIN(until, step);
	/* Without room only a completion or a higher limit matters: blocks that are due must not keep the loop awake.
	 */
	if (!failed && room) {
		recheck_shards(w);
		int64_t due = sl__shards_next_due(w->shards);
		until = SL_MIN(until, SL_MIN(due, w->recheck_ns));
	}
	sl__lock(&w->mu);
	if (w->events != seen)
		return;
	/* All that is queued belongs to shards that are not ready: let the driver wait. */
	if (in_flight == 0 && w->recheck_ns != SL_FOREVER && w->ops.wait_for_any_shard_ready != NULL) {
		sl__unlock(&w->mu);
		int64_t left_ms = (until - sl__mono_ns(&w->env) + SL__NS_PER_MS - 1) / SL__NS_PER_MS;
		left_ms = SL_MIN(left_ms, SL__WRITER_POLL_MS);
		if (w->ops.wait_for_any_shard_ready(w->driver, SL_MAX(left_ms, 1)))
			sl__shards_recheck(w->shards, NULL, 0);
		sl__lock(&w->mu);
		return;
	}
	w->asleep = true;
	(void)sl__wait(&w->env, &w->wake, &w->mu, until);
	w->asleep = false;
}

/* ---- rounds ---- */

void sl__writer_loop(sl_writer *w)
{
	sl__lock(&w->mu);
	w->loop = pthread_self();
	w->has_loop = true;
	for (;;) {
		uint64_t seen = w->events;
		sl__writer_settle(w);
		sl__writer_report(w);
		if (w->failed && !w->error_logged) {
			struct sl_err error = w->error;
			w->error_logged = true;
			sl__unlock(&w->mu);
			if (error.code == SL_ECANCELLED) /* on request */
				sl__log(&w->env, SL_LOG_INFO, w->name, "cancelled", SL__F_STR("driver", w->ops.name));
			else
				sl__log(&w->env, SL_LOG_ERROR, w->name, "stopped on an error",
					SL__F_STR("driver", w->ops.name), SL__F_STR("error", error.msg));
			sl__lock(&w->mu);
		}
		if (w->failed)
			sl__writer_report_queued(w);
		/* The end: nothing is left, and on_metrics has been called with that. */
		bool reported = w->o.on_metrics == NULL ||
				(w->reported.queued == w->queued_bytes && w->reported.in_flight == w->in_flight_bytes);
		if ((w->done || w->failed) && w->queued_blocks == 0 && w->in_flight_blocks == 0 && reported)
			break;
		bool scheduled = false;
		while (!w->failed && w->queued_blocks > 0 && schedule_batch(w))
			scheduled = true;
		if (scheduled)
			sl__writer_log_round(w, "scheduled");
		else
			wait_for_events(w, seen);
	}
	sl__writer_end(w);
	sl__unlock(&w->mu);
}
