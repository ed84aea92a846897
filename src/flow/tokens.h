/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A token bucket: `rate` tokens a second flow in, `burst` at most are kept, and a caller that takes more often than that
 * waits. reduce_tokens and restore_tokens (the specification's RateCoordinator) slow it down and bring it back, so that
 * the high and low marks of a queue can drive it.
 *
 *     reduce    rate and burst are multiplied by reduce_factor, not below min_rate (and a burst of 1)
 *     restore   rate and burst are those of the options again
 *
 * Guarantees: over any stretch of t seconds at one rate, at most burst + rate * t tokens are given (plus one take that
 * is bigger than the burst, below); the count is exact, in units of 10^-18 tokens, so it never drifts however often it
 * is read; a pause of any length fills the bucket and no more. Takers are served in the order of their arrival,
 * and a try does not overtake them. A take above the burst waits for a full bucket and leaves a debt that later takers
 * wait for. A change of the rate holds from that moment, also for those who wait.
 * Not guaranteed: tokens of a take that timed out are not kept for it.
 *
 * Thread safety: every function from any thread at once, but sl__tokens_free, which must be the last call.
 * Ownership: nothing is kept.
 */
#ifndef SL_FLOW_TOKENS_H
#define SL_FLOW_TOKENS_H

#include "base/env.h"

typedef struct sl__tokens sl__tokens;

struct sl__tokens_opts {
	const struct sl_env *env; /* copied; NULL: the real one */
	double rate;              /* tokens a second, 10^-6 to 10^9; may be a fraction */
	uint64_t burst;           /* 0: one second's worth, at least 1; at most 10^15. The bucket starts full. */
	double reduce_factor;     /* 0: 0.5; above 0 and below 1 */
	double min_rate;          /* 0: rate / 16 */
};

SL_MUST_CHECK int sl__tokens_new(sl__tokens **out, const struct sl__tokens_opts *opts, struct sl_err *err);
/* NULL allowed. */
void sl__tokens_free(sl__tokens *t);

/* 0: n tokens are taken. SL_ETIMEDOUT after timeout_ms (SL_UNLIMITED waits), SL_ECLOSED: nothing is taken. */
SL_MUST_CHECK int sl__tokens_take(sl__tokens *t, uint64_t n, int64_t timeout_ms);
/* 0, SL_ECLOSED, or SL_EAGAIN without waiting; then *wait_ns (NULL allowed) says how long n tokens will need at this
 * rate if no other caller takes any. */
SL_MUST_CHECK int sl__tokens_try_take(sl__tokens *t, uint64_t n, int64_t *wait_ns);

void sl__tokens_reduce(sl__tokens *t);
void sl__tokens_restore(sl__tokens *t);
/* The rate that holds now, in tokens a second. */
double sl__tokens_rate(sl__tokens *t);
/* Whole tokens that could be taken now; 0 in debt. */
uint64_t sl__tokens_available(sl__tokens *t);

/* Blocked and later takers get SL_ECLOSED. */
void sl__tokens_close(sl__tokens *t);

#endif
