/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A circuit breaker. Invariants, all under mu:
 *  B1  generation grows with every change of state; a report counts only with the generation that holds.
 *  B2  probe.id is 0 outside HALF_OPEN.
 */
#include "flow/breaker.h"

#include "base/thread.h"
#include "flow/new.h"
#include "flow/retry.h"

struct probe {
	uint64_t id; /* 0: none is out */
	int64_t expires_ns;
};

struct sl__breaker {
	struct sl_env env; /* first: sl__flow_new */
	sl__mutex mu;
	enum sl__breaker_state state;
	uint64_t generation, last_probe_id;
	uint32_t in_a_row;
	int64_t open_until_ns, opened_ns;
	uint32_t opens_in_a_row; /* without being closed: drives the time it stays open */
	struct probe probe;
	uint64_t opened, refused, ignored;
	/* options */
	struct sl_retry_policy open;
	uint32_t consecutive_failures;
	int64_t probe_ns;
};

/* ---- changes of state ---- */

static void enter_state(sl__breaker *b, enum sl__breaker_state to) SL_REQUIRES(b->mu)
{
	b->state = to;
	b->generation++;
	b->probe = (struct probe){0};
}

static void open_breaker(sl__breaker *b, int64_t now) SL_REQUIRES(b->mu)
{
	if (b->opens_in_a_row != UINT32_MAX)
		b->opens_in_a_row++;
	if (b->opens_in_a_row == 1)
		b->opened_ns = now;
	b->opened++;
	b->open_until_ns = now + sl__retry_delay_ms(&b->open, b->opens_in_a_row, NULL) * 1000000;
	enter_state(b, SL__BREAKER_OPEN);
}

/* What time alone has brought about: a probe that expired has failed. */
static void expire_probe(sl__breaker *b, int64_t now) SL_REQUIRES(b->mu)
{
	if (b->probe.id != 0 && now >= b->probe.expires_ns)
		open_breaker(b, now);
}

/* ---- permits ---- */

/* 0, or SL_EAGAIN with the time at which to ask again. */
static int give_permit(sl__breaker *b, struct sl__breaker_permit *permit, int64_t *retry_ns) SL_REQUIRES(b->mu)
{
	int64_t now = sl__mono_ns(&b->env);
	expire_probe(b, now);
	if (b->state == SL__BREAKER_OPEN && now >= b->open_until_ns)
		enter_state(b, SL__BREAKER_HALF_OPEN);
	if (b->state == SL__BREAKER_CLOSED) {
		*permit = (struct sl__breaker_permit){b->generation, 0};
		return 0;
	}
	*retry_ns = b->state == SL__BREAKER_OPEN ? b->open_until_ns : b->probe.expires_ns;
	if (b->state == SL__BREAKER_OPEN || b->probe.id != 0)
		return SL_EAGAIN;
	/* Half open, and no probe is out: this call is the probe. */
	b->probe = (struct probe){.id = ++b->last_probe_id, .expires_ns = now + b->probe_ns};
	*permit = (struct sl__breaker_permit){b->generation, b->last_probe_id};
	return 0;
}

int sl__breaker_try_acquire(sl__breaker *b, struct sl__breaker_permit *permit, int64_t *retry_ns)
{
	int64_t again_ns;
	sl__lock(&b->mu);
	int rc = give_permit(b, permit, &again_ns);
	if (rc == SL_EAGAIN) {
		b->refused++;
		if (retry_ns != NULL)
			*retry_ns = again_ns;
	}
	sl__unlock(&b->mu);
	return rc;
}

/* ---- reports ---- */

bool sl__breaker_report(sl__breaker *b, struct sl__breaker_permit permit, enum sl__breaker_outcome outcome)
{
	int64_t now = sl__mono_ns(&b->env);
	sl__lock(&b->mu);
	expire_probe(b, now);
	bool counts = permit.generation == b->generation;
	if (counts && b->state == SL__BREAKER_CLOSED && outcome != SL__BREAKER_NEUTRAL) {
		/* Too many failures in a row open the breaker, a fatal one always. */
		if (outcome == SL__BREAKER_OK)
			b->in_a_row = 0;
		else if (b->in_a_row != UINT32_MAX)
			b->in_a_row++;
		bool too_many = b->consecutive_failures != UINT32_MAX && b->in_a_row >= b->consecutive_failures;
		if (outcome == SL__BREAKER_FATAL || (outcome == SL__BREAKER_FAILED && too_many))
			open_breaker(b, now);
	} else if (counts && b->state != SL__BREAKER_CLOSED) {
		/* The end of the probe: a good one closes the breaker. */
		counts = permit.probe_id != 0 && b->probe.id == permit.probe_id;
		if (counts) {
			b->probe.id = 0;
			if (outcome == SL__BREAKER_FAILED || outcome == SL__BREAKER_FATAL) {
				open_breaker(b, now);
			} else if (outcome == SL__BREAKER_OK) {
				b->opens_in_a_row = 0;
				b->opened_ns = 0;
				b->in_a_row = 0;
				enter_state(b, SL__BREAKER_CLOSED);
			}
		}
	}
	b->ignored += !counts;
	sl__unlock(&b->mu);
	return counts;
}

/* ---- the rest ---- */

enum sl__breaker_state sl__breaker_state(sl__breaker *b)
{
	sl__lock(&b->mu);
	enum sl__breaker_state state = b->state;
	sl__unlock(&b->mu);
	return state;
}

void sl__breaker_stats(sl__breaker *b, struct sl__breaker_stats *out)
{
	sl__lock(&b->mu);
	*out = (struct sl__breaker_stats){.state = b->state,
					  .failures_in_a_row = b->in_a_row,
					  .opened = b->opened,
					  .refused = b->refused,
					  .ignored = b->ignored,
					  .opened_ns = b->opened_ns};
	sl__unlock(&b->mu);
}

static int check_span(const char *name, int64_t ms, int64_t least, struct sl_err *err)
{
	if (ms != 0 && (ms < least || ms > SL__FLOW_SPAN_MAX_MS))
		return sl_err_set(err, SL_EINVAL, "breaker: %s is %lld; give %lld to a year in ms", name, (long long)ms,
				  (long long)least);
	return 0;
}

int sl__breaker_new(sl__breaker **out, const struct sl__breaker_opts *opts, struct sl_err *err)
{
	int rc = check_span("open_ms", opts->open_ms, 1, err);
	if (rc == 0)
		rc = check_span("open_max_ms", opts->open_max_ms, SL_MAX(opts->open_ms, 1), err);
	if (rc == 0)
		rc = check_span("probe_ms", opts->probe_ms, 1, err);
	if (rc != 0)
		return rc;
	sl__breaker *b = sl__flow_new(sizeof(*b), opts->env, "breaker", &rc, err);
	if (b == NULL)
		return rc;
	sl__mutex_init(&b->mu);
	/* Options and their defaults. */
	int64_t open_max_ms = opts->open_max_ms != 0 ? opts->open_max_ms : 30000;
	int64_t open_ms = opts->open_ms != 0 ? opts->open_ms : SL_MIN((int64_t)1000, open_max_ms);
	b->open = (struct sl_retry_policy){SL_UNLIMITED, open_ms, SL_MAX(open_ms, open_max_ms), 2.0, SL_JITTER_OFF};
	b->consecutive_failures = opts->consecutive_failures != 0 ? opts->consecutive_failures : 5;
	b->probe_ns = (opts->probe_ms != 0 ? opts->probe_ms : 30000) * 1000000;
	b->generation = 1; /* a zeroed permit belongs to no caller */
	*out = b;
	return 0;
}

void sl__breaker_free(sl__breaker *b)
{
	if (b == NULL)
		return;
	sl__mutex_fini(&b->mu);
	sl__flow_free(b);
}
