/* SPDX-License-Identifier: Apache-2.0 */
/* A limit of concurrent calls that halves on failure and grows again step by step. */
#include "flow/limiter.h"

#include "base/thread.h"
#include "flow/new.h"

struct sl__limiter {
	struct sl_env env; /* first: sl__flow_new */
	sl__mutex mu;
	uint32_t limit, min, max, step_up;
	uint32_t in_use;
	int64_t window_ns, cooldown_ns;
	int64_t window_end_ns; /* failures before it do not lower again */
	int64_t up_at_ns;      /* the next step up; meaningful below max */
	uint32_t reported;     /* the limit that on_change got last */
	bool reporting;        /* a thread is in on_change and will check again */
	uint64_t failures, lowered, raised;
	sl__limiter_change_fn *on_change;
	void *ctx;
};

/* Take the steps up that are due; after a long pause several at once. */
static void step_up(sl__limiter *l, int64_t now) SL_REQUIRES(l->mu)
{
	if (l->limit == l->max || now < l->up_at_ns)
		return;
	uint64_t steps = (uint64_t)(now - l->up_at_ns) / (uint64_t)l->cooldown_ns + 1;
	uint64_t needed = ((uint64_t)l->max - l->limit + l->step_up - 1) / l->step_up;
	steps = SL_MIN(steps, needed);
	l->limit = (uint32_t)SL_MIN((uint64_t)l->max, l->limit + steps * l->step_up);
	l->up_at_ns += (int64_t)steps * l->cooldown_ns;
	l->raised += steps;
}

/* Release the lock and report the change, if there is one. A thread that is reporting checks again when it is done, so
 * calls never overlap and the newest limit is reported last. */
static void unlock_and_report_limit(sl__limiter *l) SL_RELEASE(l->mu)
{
	if (l->on_change == NULL)
		l->reported = l->limit;
	if (!l->reporting) {
		l->reporting = true;
		while (l->reported != l->limit) {
			uint32_t limit = l->reported = l->limit;
			sl__unlock(&l->mu);
			l->on_change(limit, l->ctx);
			sl__lock(&l->mu);
		}
		l->reporting = false;
	}
	sl__unlock(&l->mu);
}

int sl__limiter_try_acquire(sl__limiter *l)
{
	sl__lock(&l->mu);
	step_up(l, sl__mono_ns(&l->env));
	bool has_room = l->in_use < l->limit;
	l->in_use += has_room;
	unlock_and_report_limit(l);
	return has_room ? 0 : SL_EAGAIN;
}

void sl__limiter_release(sl__limiter *l, enum sl__limiter_outcome outcome)
{
	int64_t now = sl__mono_ns(&l->env);
	sl__lock(&l->mu);
	assert(l->in_use > 0);
	l->in_use--;
	step_up(l, now);
	if (outcome == SL__LIMITER_FAILED) {
		l->failures++;
		l->up_at_ns = now + l->cooldown_ns;
		if (now >= l->window_end_ns) {
			l->window_end_ns = now + l->window_ns;
			uint32_t lower = SL_MAX(l->min, l->limit / 2);
			l->lowered += lower < l->limit;
			l->limit = lower;
		}
	}
	unlock_and_report_limit(l);
}

uint32_t sl__limiter_poll(sl__limiter *l, int64_t *next_ns)
{
	int64_t now = sl__mono_ns(&l->env);
	sl__lock(&l->mu);
	step_up(l, now);
	uint32_t limit = l->limit;
	if (next_ns != NULL)
		*next_ns = limit < l->max ? l->up_at_ns : SL_FOREVER;
	unlock_and_report_limit(l);
	return limit;
}

void sl__limiter_stats(sl__limiter *l, struct sl__limiter_stats *out)
{
	sl__lock(&l->mu);
	*out = (struct sl__limiter_stats){.limit = l->limit,
					  .max = l->max,
					  .in_use = l->in_use,
					  .failures = l->failures,
					  .lowered = l->lowered,
					  .raised = l->raised};
	sl__unlock(&l->mu);
}

int sl__limiter_new(sl__limiter **out, const struct sl__limiter_opts *opts, struct sl_err *err)
{
	if (opts->max == 0)
		return sl_err_set(err, SL_EINVAL, "limiter: max is 0; it must be at least 1");
	if (opts->min > opts->max)
		return sl_err_set(err, SL_EINVAL, "limiter: min (%u) is above max (%u)", opts->min, opts->max);
	if (opts->window_ms < 0 || opts->window_ms > SL__FLOW_SPAN_MAX_MS)
		return sl_err_set(err, SL_EINVAL, "limiter: window_ms is %lld; give up to a year",
				  (long long)opts->window_ms);
	if (opts->cooldown_ms < 0 || opts->cooldown_ms > SL__FLOW_SPAN_MAX_MS)
		return sl_err_set(err, SL_EINVAL, "limiter: cooldown_ms is %lld; give up to a year",
				  (long long)opts->cooldown_ms);
	int rc;
	sl__limiter *l = sl__flow_new(sizeof(*l), opts->env, "limiter", &rc, err);
	if (l == NULL)
		return rc;
	sl__mutex_init(&l->mu);
	l->limit = l->reported = l->max = opts->max;
	l->min = opts->min != 0 ? opts->min : 1;
	l->step_up = opts->step_up != 0 ? opts->step_up : 1;
	l->window_ns = (opts->window_ms != 0 ? opts->window_ms : 1000) * 1000000;
	l->cooldown_ns = (opts->cooldown_ms != 0 ? opts->cooldown_ms : 5000) * 1000000;
	l->window_end_ns = INT64_MIN;
	l->on_change = opts->on_change;
	l->ctx = opts->ctx;
	*out = l;
	return 0;
}

void sl__limiter_free(sl__limiter *l)
{
	if (l == NULL)
		return;
	sl__mutex_fini(&l->mu);
	sl__flow_free(l);
}
