/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a batch passes before it is written: tokens of the rate, a permit of the breaker, a permit of the limiter. A
 * batch that does not pass is held, and its worker is free for another; only the rate is waited for in place, since
 * no other worker could do better.
 *
 *     class       breaker   limiter   what it says
 *     written     OK        OK
 *     transient   FAILED    FAILED    the target struggles
 *     throttled   NEUTRAL   FAILED    it is there, and asks for less
 *     poison      NEUTRAL   NEUTRAL   it is there, and does not like an item
 *     fatal       FATAL     NEUTRAL   it is unavailable: the breaker handles that
 *
 * What has failed for retry.give_up_after_ms passes without a permit.
 *
 * A batch that fails alone, while others are written, says nothing about the target: NEUTRAL for both.
 */
#include "coordinator/coordinator.h"

#define PROBE_MS 30000 /* the breaker's default */

static void refresh_breaker(sl_coordinator *c) SL_REQUIRES(c->mu)
{
	struct sl__breaker_permit permit;
	int64_t retry_ns = SL_FOREVER;
	if (sl__breaker_state(c->breaker) == SL__BREAKER_CLOSED) {
		c->state = SL__BREAKER_CLOSED;
		return;
	}
	/* Asking is how to learn when a probe makes sense; one that is given at once goes back. */
	if (sl__breaker_try_acquire(c->breaker, &permit, &retry_ns) == 0) {
		(void)sl__breaker_report(c->breaker, permit, SL__BREAKER_NEUTRAL);
		retry_ns = 0;
	}
	c->probe_ns = retry_ns;
	c->state = sl__breaker_state(c->breaker);
}

/* 0 or SL_ECLOSED. */
static int take_tokens(sl_coordinator *c, sl__tokens *t, size_t n) SL_REQUIRES(c->mu)
{
	if (t == NULL)
		return 0;
	int rc = sl__tokens_try_take(t, n, NULL);
	if (rc != SL_EAGAIN)
		return rc;
	c->n_token_waits++;
	sl__unlock(&c->mu);
	rc = sl__tokens_take(t, n, SL_UNLIMITED);
	sl__lock(&c->mu);
	c->n_token_waits--;
	return rc;
}

enum sl__step sl__gate_enter(sl_coordinator *c, struct sl__batch *b, size_t bytes, struct sl__permits *permits)
	SL_REQUIRES(c->mu)
{
	/* Pay for each item and byte. An item above the chunk goes alone and pays for all of its bytes. A batch that has
	 * paid and is held all the same pays again: those that a breaker has collected would go all together when it
	 * closes. */
	int rc = take_tokens(c, c->rate_items, sl__top(b)->end - b->lo);
	if (rc == 0)
		rc = take_tokens(c, c->rate_bytes, bytes);
	if (SL_UNLIKELY(rc != 0 || c->halted)) {
		sl__put_left(c, b);
		return SL__STEP_GONE;
	}
	if (SL_UNLIKELY(sl__is_late(c, b))) {
		/* Its last call: a few writes that no breaker waits for. Without a permit there is no report. */
		*permits = (struct sl__permits){.limited = false};
		return SL__STEP_ON;
	}
	bool closed = c->state == SL__BREAKER_CLOSED;
	if (sl__breaker_try_acquire(c->breaker, &permits->breaker, NULL) != 0) {
		refresh_breaker(c);
		sl__put_held(c, b, true);
		return SL__STEP_GONE;
	}
	if (SL_UNLIKELY(!closed)) {
		c->state = sl__breaker_state(c->breaker);
		c->probe_ns = sl__deadline_ns(&c->env, PROBE_MS);
	}
	if (b->probes) {
		b->probes = false;
		c->probing--;
	}
	permits->limited = c->limiter != NULL;
	if (permits->limited && sl__limiter_try_acquire(c->limiter) != 0) {
		(void)sl__breaker_report(c->breaker, permits->breaker, SL__BREAKER_NEUTRAL);
		refresh_breaker(c);
		sl__refresh_limit(c);
		sl__put_held(c, b, true);
		return SL__STEP_GONE;
	}
	return SL__STEP_ON;
}

void sl__gate_leave(sl_coordinator *c, const struct sl__permits *permits, int rc, enum sl_err_class error_class,
		    bool alone) SL_REQUIRES(c->mu)
{
	bool closed = c->state == SL__BREAKER_CLOSED;
	/* The table above. */
	enum sl__breaker_outcome breaker = rc == 0 ? SL__BREAKER_OK : SL__BREAKER_NEUTRAL;
	enum sl__limiter_outcome limiter = rc == 0 ? SL__LIMITER_OK : SL__LIMITER_NEUTRAL;
	if (rc != 0 && !alone) {
		if (error_class == SL_CLASS_TRANSIENT)
			breaker = SL__BREAKER_FAILED;
		else if (error_class == SL_CLASS_FATAL)
			breaker = SL__BREAKER_FATAL;
		if (error_class == SL_CLASS_TRANSIENT || error_class == SL_CLASS_THROTTLED)
			limiter = SL__LIMITER_FAILED;
	}
	(void)sl__breaker_report(c->breaker, permits->breaker, breaker);
	if (permits->limited)
		sl__limiter_release(c->limiter, limiter);
	if (SL_UNLIKELY(rc != 0 || !closed)) {
		refresh_breaker(c);
		sl__refresh_limit(c);
		sl__stir(c);
	}
}
