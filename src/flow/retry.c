/* SPDX-License-Identifier: Apache-2.0 */
/* The retry policy: which errors are retried, and how long to wait before each attempt. */
#include "flow/retry.h"

#include <math.h>

static const struct sl_retry_policy presets[] = {
	[SL_RETRY_COORDINATOR] = {5, 50, 2000, 2.0, SL_JITTER_HALF},
	[SL_RETRY_WAL] = {SL_UNLIMITED, 1000, 60000, 2.0, SL_JITTER_AROUND},
	[SL_RETRY_PIPELINE] = {3, 1000, 60000, 2.0, SL_JITTER_AROUND},
	[SL_RETRY_JOBS] = {SL_UNLIMITED, 10000, 300000, 2.0, SL_JITTER_OFF},
	[SL_RETRY_WRITER] = {5, 2000, 30000, 2.0, SL_JITTER_AROUND},
};

struct sl_retry_policy sl_retry_preset(enum sl_retry_preset preset)
{
	return presets[(unsigned)preset < SL_COUNT(presets) ? preset : SL_RETRY_COORDINATOR];
}

int sl_retry_resolve(const struct sl_retry_policy *policy, enum sl_retry_preset preset, struct sl_retry_policy *out,
		     struct sl_err *err)
{
	if ((unsigned)preset >= SL_COUNT(presets))
		return sl_err_set(err, SL_EINVAL, "retry: preset %d is not an sl_retry_preset", (int)preset);
	struct sl_retry_policy p = presets[preset];
	if (policy != NULL) {
		/* The range of each field as the caller gave it; zero is always allowed and means "from the preset". */
		if (policy->max_attempts < 0 && policy->max_attempts != SL_UNLIMITED)
			return sl_err_set(err, SL_EINVAL,
					  "retry: max_attempts is %d; it must be at least 1, or SL_UNLIMITED",
					  (int)policy->max_attempts);
		if (policy->first_ms < 0 && policy->first_ms != SL_NONE)
			return sl_err_set(err, SL_EINVAL, "retry: first_ms is %lld; it must be at least 1, or SL_NONE",
					  (long long)policy->first_ms);
		if (policy->cap_ms < 0)
			return sl_err_set(err, SL_EINVAL, "retry: cap_ms is %lld; it must be at least 1",
					  (long long)policy->cap_ms);
		if (policy->cap_ms != 0 && policy->cap_ms < policy->first_ms)
			return sl_err_set(err, SL_EINVAL, "retry: cap_ms (%lld) must not be below first_ms (%lld)",
					  (long long)policy->cap_ms, (long long)policy->first_ms);
		/* Written so that a NaN is refused too. */
		if (policy->multiplier != 0 && (!isfinite(policy->multiplier) || !(policy->multiplier >= 1)))
			return sl_err_set(err, SL_EINVAL, "retry: multiplier is %g; it must be a finite number from 1",
					  policy->multiplier);
		if ((unsigned)policy->jitter > SL_JITTER_AROUND)
			return sl_err_set(err, SL_EINVAL, "retry: jitter is %d, which is not an sl_jitter",
					  (int)policy->jitter);
		if (policy->max_attempts != 0)
			p.max_attempts = policy->max_attempts;
		if (policy->first_ms != 0)
			p.first_ms = policy->first_ms;
		if (policy->cap_ms != 0)
			p.cap_ms = policy->cap_ms;
		if (policy->multiplier != 0)
			p.multiplier = policy->multiplier;
		if (policy->jitter != SL_JITTER_DEFAULT)
			p.jitter = policy->jitter;
		/* Given alone, a long first delay lifts the preset's cap, and a low cap lowers the preset's first. */
		if (policy->cap_ms == 0)
			p.cap_ms = SL_MAX(p.cap_ms, p.first_ms);
		if (policy->first_ms == 0)
			p.first_ms = SL_MIN(p.first_ms, p.cap_ms);
	}
	*out = p;
	return 0;
}

int64_t sl__retry_delay_ms(const struct sl_retry_policy *policy, uint32_t failed_attempts, struct sl__prng *prng)
{
	if (failed_attempts == 0 || policy->first_ms <= 0)
		return 0;
	assert(policy->multiplier >= 1 && policy->cap_ms >= policy->first_ms);
	/* multiplier^(n-1) by squaring: 32 steps at most, infinite where it overflows, exact for 2. */
	double factor = 1, base = policy->multiplier;
	for (uint32_t n = failed_attempts - 1; n != 0; n >>= 1, base *= base)
		if (n & 1)
			factor *= base;
	double delay = (double)policy->first_ms * factor, cap = (double)SL_MIN(policy->cap_ms, SL__RETRY_DELAY_MAX_MS);
	delay = SL_MIN(delay, cap);
	if (prng != NULL && policy->jitter == SL_JITTER_HALF)
		delay *= 0.5 + 0.5 * sl__prng_unit(prng);
	else if (prng != NULL && policy->jitter == SL_JITTER_AROUND)
		delay *= 0.5 + sl__prng_unit(prng);
	return (int64_t)(delay + 0.5);
}

bool sl__retry_exhausted(const struct sl_retry_policy *policy, uint32_t failed_attempts)
{
	return policy->max_attempts != SL_UNLIMITED && failed_attempts >= (uint32_t)policy->max_attempts;
}

struct sl__retry_decision sl__retry_decide(const struct sl_retry_policy *policy, struct sl__retry_state *state,
					   const struct sl_err *err, bool may_charge, struct sl__prng *prng)
{
	if (state->failures != UINT32_MAX)
		state->failures++;
	/* The policy's delay or the target's, whichever is longer; throttled: the target's when it gave one. */
	int64_t asked_ms = SL_MIN(err->retry_after_ms, SL__RETRY_AFTER_MAX_MS), delay_ms = asked_ms;
	if (err->error_class != SL_CLASS_THROTTLED || asked_ms <= 0) {
		delay_ms = sl__retry_delay_ms(policy, state->failures, prng);
		delay_ms = SL_MAX(delay_ms, asked_ms);
	}
	switch (err->error_class) {
	case SL_CLASS_TRANSIENT:
		if (may_charge && state->charged != UINT32_MAX)
			state->charged++;
		if (sl__retry_exhausted(policy, state->charged))
			return (struct sl__retry_decision){.action = SL__RETRY_GIVE_UP, .charged = may_charge};
		return (struct sl__retry_decision){
			.action = SL__RETRY_AGAIN, .delay_ms = delay_ms, .charged = may_charge};
	case SL_CLASS_THROTTLED:
		return (struct sl__retry_decision){.action = SL__RETRY_AGAIN, .delay_ms = delay_ms};
	case SL_CLASS_POISON:
		return (struct sl__retry_decision){.action = SL__RETRY_POISON};
	case SL_CLASS_FATAL:
		return (struct sl__retry_decision){.action = SL__RETRY_HOLD, .delay_ms = delay_ms};
	case SL_CLASS_NONE:
	default:
		return (struct sl__retry_decision){.action = SL__RETRY_GIVE_UP};
	}
}

static bool has_keyword(const char *text)
{
	static const char *const keywords[] = {"timeout", "timed out", "temporar",   "deadlock",   "retry",
					       "busy",    "try again", "connection", "unavailable"};
	if (text == NULL)
		return false;
	for (size_t i = 0; i < SL_COUNT(keywords); i++)
		if (strcasestr(text, keywords[i]) != NULL)
			return true;
	return false;
}

bool sl__retry_classify_default(struct sl_err *err)
{
	if (err->error_class == SL_CLASS_NONE) {
		bool again = has_keyword(sl_err_text(err->code)) || has_keyword(err->msg) ||
			     (err->sys_errno != 0 && has_keyword(strerrordesc_np(err->sys_errno)));
		err->error_class = again ? SL_CLASS_TRANSIENT : SL_CLASS_POISON;
	}
	return err->error_class != SL_CLASS_POISON;
}
