/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Retry: when to try again, and when to stop. The policy and its presets are public (<sluice/retry.h>). This header has
 * the delay, the bound, the decision after an error, and the classifier for errors that carry no class.
 *
 * Guarantee: for any policy that sl_retry_resolve accepted and any number of failures up to UINT32_MAX the delay is
 * finite, never negative, and at most 1.5 times the cap (the cap is applied before the jitter). Nothing here sleeps,
 * allocates or reads a clock. Not guaranteed: that attempts really are so far apart, since the caller waits.
 *
 * Thread safety: no global state; a sl__retry_state and a sl__prng belong to one thread at a time.
 * Ownership: nothing is kept.
 */
#ifndef SL_FLOW_RETRY_H
#define SL_FLOW_RETRY_H

#include "base/env.h"
#include <sluice/retry.h>

/* Delays are cut here whatever a policy or a target says: 100 years, and 24 h for a target's retry_after_ms. */
#define SL__RETRY_DELAY_MAX_MS ((int64_t)100 * 365 * 24 * 3600 * 1000)
#define SL__RETRY_AFTER_MAX_MS ((int64_t)24 * 3600 * 1000)

/* The delay before the next attempt after failed_attempts in a row (0: no delay). prng NULL: without jitter. */
int64_t sl__retry_delay_ms(const struct sl_retry_policy *policy, uint32_t failed_attempts, struct sl__prng *prng);

/* true when failed_attempts have used up the policy's attempts; never for SL_UNLIMITED. */
bool sl__retry_exhausted(const struct sl_retry_policy *policy, uint32_t failed_attempts);

/* What to do with work that failed. */
enum sl__retry_action {
	SL__RETRY_AGAIN = 0,   /* try again after delay_ms */
	SL__RETRY_GIVE_UP = 1, /* attempts ran out, or an error that no retry can cure */
	SL__RETRY_POISON = 2,  /* this item (or one of this batch) will never succeed: isolate it */
	SL__RETRY_HOLD = 3     /* the target is unavailable: keep everything, open the breaker, retry after delay_ms */
};

struct sl__retry_decision {
	enum sl__retry_action action;
	int64_t delay_ms; /* of AGAIN and HOLD, else 0 */
	bool charged;     /* this failure counted against max_attempts */
};

/* The failures of one piece of work. Zeroed at first, and again after a success. */
struct sl__retry_state {
	uint32_t charged;  /* attempts that count against max_attempts */
	uint32_t failures; /* failures in a row, charged or not: they drive the delay; saturates */
};

/*
 * Count a failure in *state and decide, by class and retry_after_ms, never by the text:
 *
 *   class                      charged           action
 *   transient                  when may_charge   AGAIN, GIVE_UP when the attempts are used up
 *   throttled                  no                AGAIN after retry_after_ms, or the policy's delay without one
 *   poison                     no                POISON
 *   fatal                      no                HOLD
 *   none                       no                GIVE_UP
 *
 * A retry_after_ms beside a transient or fatal error lengthens the delay and never shortens it. may_charge is false
 * while a breaker is not closed, so that an outage does not eat the attempts of what waits for its end.
 */
struct sl__retry_decision sl__retry_decide(const struct sl_retry_policy *policy, struct sl__retry_state *state,
					   const struct sl_err *err, bool may_charge, struct sl__prng *prng);

/*
 * The specification's default_retry_classifier, for user code that sets no class: fills err->error_class. A class that
 * is set stays; an error whose code, errno or message has one of the keywords (timeout, timed out, temporar…, deadlock,
 * retry, try again, busy, connection, unavailable; any case), is transient; the rest is poison. Returns whether it is
 * anything but poison.
 */
bool sl__retry_classify_default(struct sl_err *err);

#endif
