/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A circuit breaker. Invariants, all under mu:
 *  B1  generation grows with every change of state; a report counts only with the generation that holds.
 *  B2  probes_out = slots of probe[] in use; they are 0 outside HALF_OPEN.
 */
#include "flow/breaker.h"

#include "base/thread.h"
#include "flow/new.h"
#include "flow/retry.h"

#define SLICES 10

struct slice {
	uint64_t calls, failures;
};

struct probe {
	uint64_t id; /* 0: free */
	int64_t expires_ns;
};

struct sl__breaker {
	struct sl_env env; /* first: sl__flow_new */
	sl__mutex mu;
	enum sl__breaker_state state;
	uint64_t generation, last_probe_id;
	uint32_t in_a_row;
	struct slice slices[SLICES];
	int64_t slice_ns, slice_no; /* length of a slice; number of the newest one */
	int64_t open_until_ns, opened_ns;
	uint32_t opens_in_a_row; /* without being closed: drives the time it stays open */
	uint32_t probe_oks;
	struct probe probe[SL__BREAKER_PROBES_MAX];
	uint64_t opened, refused, ignored;
	/* options */
	struct sl_retry_policy open;
	uint32_t consecutive_failures, min_calls, probes, probe_successes;
	double failure_rate;
	int64_t probe_ns;
};

/* ---- the rolling window ---- */

/* Forget the slices that have gone by. */
static void turn_window(sl__breaker *b, int64_t now) SL_REQUIRES(b->mu)
{
	int64_t no = now / b->slice_ns;
	if (no - b->slice_no >= SLICES)
		memset(b->slices, 0, sizeof(b->slices));
	else
		for (int64_t i = b->slice_no + 1; i <= no; i++)
			b->slices[i % SLICES] = (struct slice){0};
	b->slice_no = SL_MAX(no, b->slice_no);
}

static struct slice window_sum(const sl__breaker *b) SL_REQUIRES(b->mu)
{
	struct slice sum = {0};
	for (int i = 0; i < SLICES; i++) {
		sum.calls += b->slices[i].calls;
		sum.failures += b->slices[i].failures;
	}
	return sum;
}

/* ---- changes of state ---- */

static void enter_state(sl__breaker *b, enum sl__breaker_state to) SL_REQUIRES(b->mu)
{
	b->state = to;
	b->generation++;
	b->probe_oks = 0;
	memset(b->probe, 0, sizeof(b->probe));
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
static void expire_probes(sl__breaker *b, int64_t now) SL_REQUIRES(b->mu)
{
	for (uint32_t i = 0; i < b->probes; i++)
		if (b->probe[i].id != 0 && now >= b->probe[i].expires_ns) {
			open_breaker(b, now);
			return;
		}
}

/* ---- permits ---- */

/* 0, or SL_EAGAIN with the time at which to ask again. */
static int give_permit(sl__breaker *b, struct sl__breaker_permit *permit, int64_t *retry_ns) SL_REQUIRES(b->mu)
{
	int64_t now = sl__mono_ns(&b->env);
	expire_probes(b, now);
	if (b->state == SL__BREAKER_OPEN && now >= b->open_until_ns)
		enter_state(b, SL__BREAKER_HALF_OPEN);
	if (b->state == SL__BREAKER_CLOSED) {
		*permit = (struct sl__breaker_permit){b->generation, 0};
		return 0;
	}
	*retry_ns = b->state == SL__BREAKER_OPEN ? b->open_until_ns : SL_FOREVER;
	if (b->state == SL__BREAKER_OPEN)
		return SL_EAGAIN;
	/* Half open: a free slot makes this call a probe; else the first probe to expire frees one. */
	for (uint32_t i = 0; i < b->probes; i++) {
		if (b->probe[i].id == 0) {
			b->probe[i] = (struct probe){.id = ++b->last_probe_id, .expires_ns = now + b->probe_ns};
			*permit = (struct sl__breaker_permit){b->generation, b->last_probe_id};
			return 0;
		}
		*retry_ns = SL_MIN(*retry_ns, b->probe[i].expires_ns);
	}
	return SL_EAGAIN;
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
	expire_probes(b, now);
	bool counts = permit.generation == b->generation;
	if (counts && b->state == SL__BREAKER_CLOSED && outcome != SL__BREAKER_NEUTRAL) {
		/* Count the call. Too many failures in a row or in the window open the breaker, a fatal one always. */
		bool failed = outcome != SL__BREAKER_OK;
		turn_window(b, now);
		struct slice *s = &b->slices[b->slice_no % SLICES];
		s->calls++;
		s->failures += failed;
		if (!failed)
			b->in_a_row = 0;
		else if (b->in_a_row != UINT32_MAX)
			b->in_a_row++;
		struct slice sum = window_sum(b);
		bool too_many =
			(b->consecutive_failures != UINT32_MAX && b->in_a_row >= b->consecutive_failures) ||
			(sum.calls >= b->min_calls && (double)sum.failures >= b->failure_rate * (double)sum.calls);
		if (outcome == SL__BREAKER_FATAL || (outcome == SL__BREAKER_FAILED && too_many))
			open_breaker(b, now);
	} else if (counts && b->state != SL__BREAKER_CLOSED) {
		/* The end of a probe: its slot is free, and enough good ones close the breaker. */
		uint32_t i = 0;
		while (i < b->probes && b->probe[i].id != permit.probe_id)
			i++;
		counts = permit.probe_id != 0 && i < b->probes;
		if (counts) {
			b->probe[i].id = 0;
			if (outcome == SL__BREAKER_FAILED || outcome == SL__BREAKER_FATAL) {
				open_breaker(b, now);
			} else if (outcome == SL__BREAKER_OK && ++b->probe_oks >= b->probe_successes) {
				b->opens_in_a_row = 0;
				b->opened_ns = 0;
				b->in_a_row = 0;
				memset(b->slices, 0, sizeof(b->slices));
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
	int64_t now = sl__mono_ns(&b->env);
	sl__lock(&b->mu);
	turn_window(b, now);
	struct slice sum = window_sum(b);
	*out = (struct sl__breaker_stats){.state = b->state,
					  .failures_in_a_row = b->in_a_row,
					  .window_calls = sum.calls,
					  .window_failures = sum.failures,
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
	if (!(opts->failure_rate >= 0))
		return sl_err_set(err, SL_EINVAL, "breaker: failure_rate is %g; give a share above 0",
				  opts->failure_rate);
	if (opts->probes > SL__BREAKER_PROBES_MAX)
		return sl_err_set(err, SL_EINVAL, "breaker: probes is %u; give at most %d", opts->probes,
				  SL__BREAKER_PROBES_MAX);
	int rc = check_span("window_ms", opts->window_ms, SLICES, err);
	if (rc == 0)
		rc = check_span("open_ms", opts->open_ms, 1, err);
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
	b->failure_rate = opts->failure_rate != 0 ? opts->failure_rate : 0.5;
	b->min_calls = opts->min_calls != 0 ? opts->min_calls : 20;
	b->slice_ns = (opts->window_ms != 0 ? opts->window_ms : 10000) * (1000000 / SLICES);
	b->probes = opts->probes != 0 ? opts->probes : 1;
	b->probe_successes = opts->probe_successes != 0 ? opts->probe_successes : 1;
	b->probe_ns = (opts->probe_ms != 0 ? opts->probe_ms : 30000) * 1000000;
	b->generation = 1; /* a zeroed permit belongs to no caller */
	b->slice_no = sl__mono_ns(&b->env) / b->slice_ns;
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
