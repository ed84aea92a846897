/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adaptive concurrency: at most `limit` permits are out at a time, and the limit follows how the target fares.
 *
 *     down  on a failure: the limit is halved (rounded down), never below min; once per window_ms, however many
 *           failures fall into it
 *     up    after each cooldown_ms without a failure and without a change: by step_up, to max at most
 *
 *                  failure, no window open                      failure, window open
 *     limit ──────────────────────────────▶ max(min, limit / 2)  ─────────────────▶ unchanged; the cooldown starts anew
 *     limit ──────────────────────────────▶ min(max, limit + step_up)
 *                  cooldown_ms passed
 *
 * Guarantees: permits out never exceed the limit at the time of the acquire (a limit that fell is reached by releases,
 * nothing is revoked); min <= limit <= max; each change is reported to on_change in order, one call at a time, with no lock
 * held, and the last call has the limit that holds (limits that were replaced while a callback ran may be skipped).
 * Steps up are taken only by calls: a caller that waits for one calls sl__limiter_poll at its time.
 *
 * Thread safety: every function from any thread at once, but sl__limiter_free, which must be the last call.
 * Ownership: nothing is kept but the callback's ctx.
 */
#ifndef SL_FLOW_LIMITER_H
#define SL_FLOW_LIMITER_H

#include "base/env.h"

typedef struct sl__limiter sl__limiter;

/* On the thread that made the change or on one that was telling an earlier one; no lock held; may call the limiter. */
typedef void sl__limiter_change_fn(uint32_t limit, void *ctx);

struct sl__limiter_opts {
	const struct sl_env *env; /* copied; NULL: the real one */
	uint32_t max;             /* at least 1; also the start */
	uint32_t min;             /* 0: 1 */
	uint32_t step_up;         /* 0: 1 */
	int64_t window_ms;        /* 0: 1000 */
	int64_t cooldown_ms;      /* 0: 5000 */
	sl__limiter_change_fn *on_change;
	void *ctx;
};

enum sl__limiter_outcome {
	SL__LIMITER_OK = 0,
	SL__LIMITER_FAILED = 1, /* the target struggled: timeout, refusal, throttled */
	SL__LIMITER_NEUTRAL = 2 /* says nothing about the target: cancelled, poison */
};

struct sl__limiter_stats {
	uint32_t limit, max, in_use;
	uint64_t failures, lowered, raised; /* steps */
};

SL_MUST_CHECK int sl__limiter_new(sl__limiter **out, const struct sl__limiter_opts *opts, struct sl_err *err);
/* NULL allowed. */
void sl__limiter_free(sl__limiter *l);

/* 0: a permit, to be given back by exactly one release. SL_EAGAIN: none is free. */
SL_MUST_CHECK int sl__limiter_try_acquire(sl__limiter *l);
void sl__limiter_release(sl__limiter *l, enum sl__limiter_outcome outcome);

/* The limit now, after the steps that are due. *next_ns (NULL allowed): when the next step up is due, SL_FOREVER at
 * max. */
uint32_t sl__limiter_poll(sl__limiter *l, int64_t *next_ns);

void sl__limiter_stats(sl__limiter *l, struct sl__limiter_stats *out);

#endif
