/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The level is counted in attotokens (10^-18): a rate kept in nanotokens a second, times nanoseconds, gives exactly
 * that, so nothing is ever rounded. It is signed, 128 bits wide, at most the burst, and below zero after a take that
 * was bigger than the burst.
 */
#include "flow/tokens.h"

#include "base/thread.h"
#include "flow/new.h"

__extension__ typedef __int128 atto;

#define NANO 1000000000
#define ONE_TOKEN ((atto)NANO * NANO)
#define BURST_MAX ((uint64_t)1000000 * NANO)

struct taker {
	struct taker *next;
	sl__cond cond;
};

struct sl__tokens {
	struct sl_env env; /* first: sl__flow_new */
	sl__mutex mu;
	atto level, burst; /* burst as it holds now */
	int64_t rate;      /* nanotokens a second, as it holds now */
	int64_t at_ns;     /* when level was right */
	int64_t full_rate, min_rate;
	atto full_burst;
	double reduce_factor;
	struct taker *first, *last; /* blocked, in order; only the first waits for tokens */
	bool closed;
};

/* Bring the level up to now. The clock never goes back; the product fits by far: 2^63 * 10^18 < 2^127. */
static void refill_tokens(sl__tokens *t) SL_REQUIRES(t->mu)
{
	int64_t now = sl__mono_ns(&t->env);
	if (now <= t->at_ns)
		return;
	t->level += (atto)(now - t->at_ns) * t->rate;
	t->level = SL_MIN(t->level, t->burst);
	t->at_ns = now;
}

/* How much must be there to take n: all of it, or a full bucket when n is more than that. */
static atto needed(const sl__tokens *t, uint64_t n) SL_REQUIRES(t->mu)
{
	atto want = (atto)n * ONE_TOKEN;
	return SL_MIN(want, t->burst);
}

static bool grab(sl__tokens *t, uint64_t n) SL_REQUIRES(t->mu)
{
	if (t->level < needed(t, n))
		return false;
	t->level -= (atto)n * ONE_TOKEN;
	return true;
}

/* Take n now: 0, SL_ECLOSED, or SL_EAGAIN when there are too few or others wait. */
static int take_now(sl__tokens *t, uint64_t n) SL_REQUIRES(t->mu)
{
	refill_tokens(t);
	if (t->closed)
		return SL_ECLOSED;
	return t->first == NULL && grab(t, n) ? 0 : SL_EAGAIN;
}

/* Nanoseconds until n can be taken, rounded up so that a sleeper never wakes a moment too early. */
static int64_t wait_for_tokens(const sl__tokens *t, uint64_t n) SL_REQUIRES(t->mu)
{
	atto missing = needed(t, n) - t->level;
	if (missing <= 0)
		return 0;
	atto ns = (missing + t->rate - 1) / t->rate;
	return ns > SL_FOREVER ? SL_FOREVER : (int64_t)ns;
}

/* Wait for n tokens after the takers that came first, until the deadline. */
static int wait_for_turn(sl__tokens *t, uint64_t n, int64_t deadline_ns) SL_REQUIRES(t->mu)
{
	struct taker self = {.next = NULL};
	int rc = SL_ETIMEDOUT;
	sl__cond_init(&self.cond);
	if (t->first == NULL)
		t->first = &self;
	else
		t->last->next = &self;
	t->last = &self;
	for (;;) {
		refill_tokens(t);
		if (t->closed)
			rc = SL_ECLOSED;
		else if (t->first == &self && grab(t, n))
			rc = 0;
		if (rc != SL_ETIMEDOUT || (deadline_ns != SL_FOREVER && sl__mono_ns(&t->env) >= deadline_ns))
			break;
		int64_t ready_ns;
		if (t->first != &self || __builtin_add_overflow(t->at_ns, wait_for_tokens(t, n), &ready_ns))
			ready_ns = SL_FOREVER;
		(void)sl__wait(&t->env, &self.cond, &t->mu, SL_MIN(deadline_ns, ready_ns));
	}
	/* Leaving the head of the line makes the next one check. */
	struct taker *before = NULL;
	for (struct taker *at = t->first; at != &self; at = at->next)
		before = at;
	if (before != NULL)
		before->next = self.next;
	else
		t->first = self.next;
	if (t->last == &self)
		t->last = before;
	if (before == NULL && t->first != NULL)
		sl__signal(&t->first->cond);
	sl__cond_fini(&self.cond);
	return rc;
}

int sl__tokens_take(sl__tokens *t, uint64_t n, int64_t timeout_ms)
{
	sl__lock(&t->mu);
	int rc = take_now(t, n);
	if (rc == SL_EAGAIN)
		rc = wait_for_turn(t, n, sl__deadline_ns(&t->env, timeout_ms));
	sl__unlock(&t->mu);
	return rc;
}

int sl__tokens_try_take(sl__tokens *t, uint64_t n, int64_t *wait_ns)
{
	sl__lock(&t->mu);
	int rc = take_now(t, n);
	/* Behind others there may be tokens and yet no turn: never return "now". */
	if (rc == SL_EAGAIN && wait_ns != NULL)
		*wait_ns = SL_MAX(wait_for_tokens(t, n), 1);
	sl__unlock(&t->mu);
	return rc;
}

/* From now on; what the bucket holds above its new size is lost, a debt stays. */
static void set_rate(sl__tokens *t, int64_t rate, atto burst) SL_REQUIRES(t->mu)
{
	refill_tokens(t);
	t->rate = rate;
	t->burst = burst;
	t->level = SL_MIN(t->level, burst);
	if (t->first != NULL)
		sl__signal(&t->first->cond);
}

void sl__tokens_reduce(sl__tokens *t)
{
	sl__lock(&t->mu);
	int64_t rate = (int64_t)((double)t->rate * t->reduce_factor);
	rate = SL_MAX(rate, t->min_rate);
	/* The burst shrinks in proportion: a slower stream must not begin with a full-size burst. */
	atto whole = t->full_burst / t->full_rate, rest = t->full_burst % t->full_rate;
	atto burst = whole * rate + rest * rate / t->full_rate;
	set_rate(t, rate, SL_MAX(burst, ONE_TOKEN));
	sl__unlock(&t->mu);
}

void sl__tokens_restore(sl__tokens *t)
{
	sl__lock(&t->mu);
	set_rate(t, t->full_rate, t->full_burst);
	sl__unlock(&t->mu);
}

double sl__tokens_rate(sl__tokens *t)
{
	sl__lock(&t->mu);
	double rate = (double)t->rate / NANO;
	sl__unlock(&t->mu);
	return rate;
}

uint64_t sl__tokens_available(sl__tokens *t)
{
	sl__lock(&t->mu);
	refill_tokens(t);
	uint64_t whole = t->level > 0 ? (uint64_t)(t->level / ONE_TOKEN) : 0;
	sl__unlock(&t->mu);
	return whole;
}

void sl__tokens_close(sl__tokens *t)
{
	sl__lock(&t->mu);
	t->closed = true;
	for (struct taker *at = t->first; at != NULL; at = at->next)
		sl__signal(&at->cond);
	sl__unlock(&t->mu);
}

static bool rate_ok(double rate)
{
	return rate >= 1e-6 && rate <= 1e9; /* false for a NaN */
}

int sl__tokens_new(sl__tokens **out, const struct sl__tokens_opts *opts, struct sl_err *err)
{
	if (!rate_ok(opts->rate))
		return sl_err_set(err, SL_EINVAL, "tokens: rate is %g; give 0.000001 to 1000000000 a second",
				  opts->rate);
	if (opts->burst > BURST_MAX)
		return sl_err_set(err, SL_EINVAL, "tokens: burst is %llu; give at most 10^15",
				  (unsigned long long)opts->burst);
	if (opts->reduce_factor != 0 && !(opts->reduce_factor > 0 && opts->reduce_factor < 1))
		return sl_err_set(err, SL_EINVAL, "tokens: reduce_factor is %g; give a value between 0 and 1",
				  opts->reduce_factor);
	if (opts->min_rate != 0 && (!rate_ok(opts->min_rate) || opts->min_rate > opts->rate))
		return sl_err_set(err, SL_EINVAL, "tokens: min_rate is %g; give 0.000001 to rate (%g)", opts->min_rate,
				  opts->rate);
	int rc;
	sl__tokens *t = sl__flow_new(sizeof(*t), opts->env, "tokens", &rc, err);
	if (t == NULL)
		return rc;
	sl__mutex_init(&t->mu);
	double min_rate = opts->min_rate != 0 ? opts->min_rate : opts->rate / 16;
	uint64_t second = (uint64_t)opts->rate + ((double)(uint64_t)opts->rate < opts->rate);
	uint64_t burst = opts->burst != 0 ? opts->burst : second;
	t->rate = t->full_rate = (int64_t)(opts->rate * NANO + 0.5);
	t->min_rate = SL_MAX((int64_t)(min_rate * NANO), 1);
	t->level = t->burst = t->full_burst = (atto)burst * ONE_TOKEN;
	t->reduce_factor = opts->reduce_factor != 0 ? opts->reduce_factor : 0.5;
	t->at_ns = sl__mono_ns(&t->env);
	*out = t;
	return 0;
}

void sl__tokens_free(sl__tokens *t)
{
	if (t == NULL)
		return;
	sl__mutex_fini(&t->mu);
	sl__flow_free(t);
}
