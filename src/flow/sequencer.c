/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is buffered stands in an array sorted by start, items[head … head + n). It leaves at the front; an insertion
 * shifts the shorter side.
 *
 * Invariants, under mu
 *  S1  buffered elements do not overlap each other, nor the failed range; all start at or after `next`;
 *  S2  every buffered element starts before next + window, when it was let in;
 *  S3  stop_code is 0 while the flow lives, and never changes once it is not.
 */
#include "flow/sequencer.h"

/* A push that waits for the window. */
struct waiter {
	struct waiter *next;
	uint64_t start;
};

struct sl__sequencer {
	struct sl_env env;
	sl__mutex mu;
	sl__cond ready; /* next: something changed at the front */
	sl__cond moved; /* push: the window moved, or the flow stopped */
	uint64_t window;
	uint64_t next;
	struct sl__element *items;
	size_t head, n, cap, n_max;
	struct waiter *waiters; /* pushes on `moved` */
	bool closed, has_last;
	uint64_t last;
	bool failed; /* the first failure in order: */
	uint64_t fail_start, fail_end;
	struct sl_err fail_err;
	int stop_code;
	struct sl_err stop_err;
};

int sl__sequencer_new(sl__sequencer **out, const struct sl_env *env, const struct sl__sequencer_opts *opts,
		      struct sl_err *err)
{
	if (opts->window == 0)
		return sl_err_set(err, SL_EINVAL, "window: 0; it must be at least 1");
	sl__sequencer *s = sl__calloc(env, 1, sizeof(*s));
	if (s == NULL)
		return sl_err_set(err, SL_ENOMEM, "sequencer: out of memory");
	s->env = *env;
	s->next = opts->first;
	s->window = opts->window;
	sl__mutex_init(&s->mu);
	sl__cond_init(&s->ready);
	sl__cond_init(&s->moved);
	*out = s;
	return 0;
}

void sl__sequencer_free(sl__sequencer *s)
{
	if (s == NULL)
		return;
	sl__mutex_fini(&s->mu);
	sl__cond_fini(&s->ready);
	sl__cond_fini(&s->moved);
	struct sl_env env = s->env;
	sl__free(&env, s->items);
	sl__free(&env, s);
}

/* ---- the sorted buffer ---- */

static struct sl__element *at(const sl__sequencer *s, size_t i) SL_REQUIRES(s->mu)
{
	return &s->items[s->head + i];
}

/* How many buffered elements start before `start`. */
static size_t position(const sl__sequencer *s, uint64_t start) SL_REQUIRES(s->mu)
{
	size_t lo = 0, hi = s->n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (at(s, mid)->start < start)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Insert e in order. false: out of memory. */
static bool insert_element(sl__sequencer *s, const struct sl__element *e) SL_REQUIRES(s->mu)
{
	if (s->head == 0 && s->n == s->cap) {
		size_t cap = s->cap * 2 + 16;
		struct sl__element *items = sl__realloc(&s->env, s->items, cap * sizeof(*items));
		if (items == NULL)
			return false;
		s->items = items;
		s->cap = cap;
	}
	size_t i = position(s, e->start);
	bool room_after = s->head + s->n < s->cap;
	if (s->head > 0 && (i < s->n / 2 || !room_after)) {
		s->head--;
		memmove(at(s, 0), at(s, 1), i * sizeof(*e));
	} else {
		memmove(at(s, i + 1), at(s, i), (s->n - i) * sizeof(*e));
	}
	*at(s, i) = *e;
	s->n++;
	s->n_max = SL_MAX(s->n_max, s->n);
	return true;
}

static void remove_front(sl__sequencer *s, struct sl__element *out) SL_REQUIRES(s->mu)
{
	*out = *at(s, 0);
	s->n--;
	s->head = s->n > 0 ? s->head + 1 : 0;
}

/* ---- what is refused ---- */

static bool seen_before(const sl__sequencer *s, uint64_t start, uint64_t end) SL_REQUIRES(s->mu)
{
	if (start < s->next)
		return true;
	size_t i = position(s, start);
	return (i < s->n && at(s, i)->start <= end) || (i > 0 && at(s, i - 1)->end >= start);
}

static int check_range(uint64_t start, uint64_t end, struct sl_err *err)
{
	if (start > end || end == UINT64_MAX)
		return sl_err_set(err, SL_EINVAL, "element %llu to %llu: not a valid range", (unsigned long long)start,
				  (unsigned long long)end);
	return 0;
}

static int duplicate(uint64_t start, uint64_t end, struct sl_err *err)
{
	return sl_err_set(err, SL_EDUPLICATE, "element %llu to %llu: duplicate", (unsigned long long)start,
			  (unsigned long long)end);
}

static int flow_stopped(const struct sl__element *e, struct sl_err *err)
{
	return sl_err_set(err, SL_ECANCELLED, "element %llu to %llu: the flow stopped before it",
			  (unsigned long long)e->start, (unsigned long long)e->end);
}

/* ---- the producers' side ---- */

/* 0: may go in, or wait. */
static int admit(const sl__sequencer *s, const struct sl__element *e, struct sl_err *err) SL_REQUIRES(s->mu)
{
	if (s->stop_code != 0)
		return flow_stopped(e, err);
	if (seen_before(s, e->start, e->end) || (s->failed && e->start <= s->fail_end && s->fail_start <= e->end))
		return duplicate(e->start, e->end, err);
	if (s->failed && e->start > s->fail_start)
		return flow_stopped(e, err);
	return 0;
}

static bool in_window(const sl__sequencer *s, uint64_t start) SL_REQUIRES(s->mu)
{
	return start - s->next < s->window;
}

int sl__sequencer_push(sl__sequencer *s, const struct sl__element *e, int64_t timeout_ms, struct sl_err *err)
{
	int rc = check_range(e->start, e->end, err);
	if (rc != 0)
		return rc;
	sl__lock(&s->mu);
	rc = admit(s, e, err);
	if (rc == 0 && s->closed)
		rc = sl_err_set(err, SL_ECLOSED, "element %llu to %llu: pushed after the close",
				(unsigned long long)e->start, (unsigned long long)e->end);
	if (rc == 0 && !in_window(s, e->start)) {
		/* Wait until e is in the window and may still go in. */
		bool late = timeout_ms == 0;
		int64_t deadline = late ? 0 : sl__deadline_ns(&s->env, timeout_ms);
		struct waiter self = {.next = s->waiters, .start = e->start};
		s->waiters = &self;
		while (rc == 0 && !in_window(s, e->start) && !late) {
			late = !sl__wait(&s->env, &s->moved, &s->mu, deadline);
			rc = admit(s, e, err);
		}
		struct waiter **p = &s->waiters;
		while (*p != &self)
			p = &(*p)->next;
		*p = self.next;
		/* A producer that came in or gave up may be what a closed flow waits for. */
		if (s->closed)
			sl__signal(&s->ready);
		if (rc == 0 && !in_window(s, e->start))
			rc = sl_err_set(err, SL_ETIMEDOUT, "element %llu to %llu: still too far ahead of %llu",
					(unsigned long long)e->start, (unsigned long long)e->end,
					(unsigned long long)s->next);
	}
	if (rc == 0 && !insert_element(s, e))
		rc = sl_err_set(err, SL_ENOMEM, "sequencer: out of memory");
	if (rc == 0 && e->start == s->next)
		sl__signal(&s->ready);
	sl__unlock(&s->mu);
	return rc;
}

int sl__sequencer_fail(sl__sequencer *s, uint64_t start, uint64_t end, const struct sl_err *why, struct sl_err *err)
{
	int rc = check_range(start, end, err);
	if (rc == 0 && why->code >= 0)
		rc = sl_err_set(err, SL_EINVAL, "why: not an error");
	if (rc != 0)
		return rc;
	sl__lock(&s->mu);
	if (s->stop_code == 0 && seen_before(s, start, end))
		rc = duplicate(start, end, err);
	/* Only the first failure in order counts. */
	if (rc == 0 && s->stop_code == 0 && (!s->failed || start < s->fail_start)) {
		s->failed = true;
		s->fail_start = start;
		s->fail_end = end;
		s->fail_err = *why;
		sl__signal(&s->ready);
		sl__broadcast(&s->moved);
	}
	sl__unlock(&s->mu);
	return rc;
}

/* ---- the consumer's side ---- */

static void stop_flow(sl__sequencer *s, const struct sl_err *why) SL_REQUIRES(s->mu)
{
	if (s->stop_code != 0)
		return;
	s->stop_code = why->code;
	s->stop_err = *why;
	sl__broadcast(&s->ready);
	sl__broadcast(&s->moved);
}

#define NOT_YET 1 /* no error code is positive */

/* 0: an element; NOT_YET; else the end. */
static int take_front(sl__sequencer *s, struct sl__element *out) SL_REQUIRES(s->mu)
{
	if (s->stop_code != 0)
		return s->stop_code;
	if (s->n > 0 && at(s, 0)->start == s->next) {
		remove_front(s, out);
		s->next = out->end + 1;
		if (s->waiters != NULL)
			sl__broadcast(&s->moved);
		return 0;
	}
	if (s->failed && s->fail_start == s->next) {
		stop_flow(s, &s->fail_err);
		return s->stop_code;
	}
	if (!s->closed)
		return NOT_YET;
	/* A push may be on its way in that only has not run yet since the window moved. */
	for (const struct waiter *w = s->waiters; w != NULL; w = w->next)
		if (in_window(s, w->start))
			return NOT_YET;
	/* Nothing more can come in: either all is out, or something is missing. */
	if (s->n == 0 && s->waiters == NULL && !s->failed && !(s->has_last && s->next <= s->last))
		return SL_ECLOSED;
	struct sl_err why = SL_ERR_INIT;
	if (s->n > 0)
		sl_err_set(&why, SL_EGAP, "%llu is missing: the next element is %llu to %llu",
			   (unsigned long long)s->next, (unsigned long long)at(s, 0)->start,
			   (unsigned long long)at(s, 0)->end);
	else
		sl_err_set(&why, SL_EGAP, "%llu is missing at the end", (unsigned long long)s->next);
	stop_flow(s, &why);
	return s->stop_code;
}

int sl__sequencer_next(sl__sequencer *s, struct sl__element *out, int64_t timeout_ms, struct sl_err *err)
{
	int64_t deadline = timeout_ms == 0 ? 0 : sl__deadline_ns(&s->env, timeout_ms);
	bool late = timeout_ms == 0;
	struct sl__element e;
	sl__lock(&s->mu);
	int rc = take_front(s, &e);
	while (rc == NOT_YET && !late) {
		late = !sl__wait(&s->env, &s->ready, &s->mu, deadline);
		rc = take_front(s, &e);
	}
	if (rc == 0)
		*out = e;
	else if (rc == NOT_YET)
		rc = sl_err_set(err, SL_ETIMEDOUT, "%llu has not arrived", (unsigned long long)s->next);
	else if (s->stop_code == 0)
		sl_err_set(err, rc, "the flow is complete");
	else if (err != NULL)
		*err = s->stop_err;
	sl__unlock(&s->mu);
	return rc;
}

void sl__sequencer_close(sl__sequencer *s, const uint64_t *last)
{
	sl__lock(&s->mu);
	if (!s->closed) {
		s->closed = true;
		s->has_last = last != NULL;
		s->last = last != NULL ? *last : 0;
		sl__broadcast(&s->ready);
	}
	sl__unlock(&s->mu);
}

void sl__sequencer_cancel(sl__sequencer *s)
{
	struct sl_err why = SL_ERR_INIT;
	sl_err_set(&why, SL_ECANCELLED, "the flow was cancelled");
	sl__lock(&s->mu);
	stop_flow(s, &why);
	sl__unlock(&s->mu);
}

bool sl__sequencer_take(sl__sequencer *s, struct sl__element *out)
{
	sl__lock(&s->mu);
	bool some = s->stop_code != 0 && s->n > 0;
	if (some)
		remove_front(s, out);
	sl__unlock(&s->mu);
	return some;
}

void sl__sequencer_get_stats(sl__sequencer *s, struct sl__sequencer_stats *out)
{
	size_t waiting = 0;
	sl__lock(&s->mu);
	for (const struct waiter *w = s->waiters; w != NULL; w = w->next)
		waiting++;
	*out = (struct sl__sequencer_stats){.next = s->next,
					    .buffered = s->n,
					    .buffered_max = s->n_max,
					    .waiting = waiting,
					    .highest_start = s->n > 0 ? at(s, s->n - 1)->start : 0};
	sl__unlock(&s->mu);
}
