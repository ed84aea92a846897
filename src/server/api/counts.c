/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts are numbered in the order in which they begin. A request gets one whose number is high enough: the next to
 * begin, or, with a large store, also the running one, or the last one while it is young. A request that finds no
 * running count does it, for itself and for all requests that arrived meanwhile.
 */
#include "server/api/counts.h"
#include "base/thread.h"

#include <stdlib.h>
#include <string.h>

struct result {
	unsigned refs; /* with the lock */
	uint64_t number;
	int64_t began_ms;
	int rc;
	struct sl_err err;
	struct sl_job_count *rows; /* their types are their own */
	size_t n, cap;
	uint64_t waiting;
};

struct srv_counts {
	struct srv_counts_source source;
	sl__mutex mu;
	sl__cond done;
	struct result *last;
	uint64_t begun;      /* the number of the last that began */
	uint64_t not_before; /* numbers below are of no use any more */
	bool under_way;
};

/* ---- results ---- */

static void result_free(struct result *r)
{
	for (size_t i = 0; i < r->n; i++)
		free((char *)(uintptr_t)r->rows[i].type);
	free(r->rows);
	free(r);
}

static int keep_count(const struct sl_job_count *count, void *ctx)
{
	struct result *r = ctx;
	struct sl_job_count *rows = sl__grow(&sl__env_real, r->rows, r->n, &r->cap, sizeof(*rows));
	if (rows == NULL)
		return SL_ENOMEM;
	r->rows = rows;
	struct sl_job_count row = *count;
	if ((row.type = strdup(count->type)) == NULL)
		return SL_ENOMEM;
	r->rows[r->n++] = row;
	if (count->status == SL_JOB_PENDING || count->status == SL_JOB_BLOCKED)
		r->waiting += count->count;
	return 0;
}

/* ---- asking ---- */

/* Called with the lock, which is released meanwhile. False: out of memory. */
static bool count_now(struct srv_counts *c) SL_REQUIRES(c->mu)
{
	struct result *r = calloc(1, sizeof(*r)), *old;
	if (r == NULL)
		return false;
	r->refs = 1;
	r->number = ++c->begun;
	c->under_way = true;
	sl__unlock(&c->mu);
	r->err = (struct sl_err)SL_ERR_INIT;
	r->began_ms = c->source.now_ms(c->source.ctx);
	r->rc = c->source.count(keep_count, r, &r->err, c->source.ctx);
	if (r->rc == SL_ENOMEM)
		(void)sl_err_set(&r->err, r->rc, "out of memory");
	sl__lock(&c->mu);
	c->under_way = false;
	old = c->last;
	c->last = r;
	if (old != NULL && --old->refs == 0)
		result_free(old);
	sl__broadcast(&c->done);
	return true;
}

int srv_counts_each(struct srv_counts *c, sl_job_count_fn *fn, void *ctx, struct sl_err *err)
{
	bool ok = true;
	sl__lock(&c->mu);
	/* The number from which on a result will do. */
	uint64_t number = c->begun + 1;
	bool large = c->last != NULL && c->last->rc == 0 && c->last->waiting >= SRV_COUNTS_LARGE;
	if (large && c->under_way)
		number = c->begun;
	else if (large && c->source.now_ms(c->source.ctx) - c->last->began_ms < SRV_COUNTS_AGAIN_MS)
		number = c->last->number;
	number = number < c->not_before ? c->not_before : number;
	while (ok && (c->last == NULL || c->last->number < number)) {
		if (c->under_way)
			(void)sl__wait(&sl__env_real, &c->done, &c->mu, SL_FOREVER);
		else
			ok = count_now(c);
	}
	struct result *r = ok ? c->last : NULL;
	if (ok)
		r->refs++;
	sl__unlock(&c->mu);
	if (r == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory");

	int rc = r->rc;
	if (rc != 0 && err != NULL)
		*err = r->err;
	for (size_t i = 0; rc == 0 && i < r->n; i++)
		rc = fn(&r->rows[i], ctx);
	sl__lock(&c->mu);
	bool gone = --r->refs == 0;
	sl__unlock(&c->mu);
	if (gone)
		result_free(r);
	return rc;
}

void srv_counts_forget(struct srv_counts *c)
{
	sl__lock(&c->mu);
	c->not_before = c->begun + 1;
	sl__unlock(&c->mu);
}

/* ---- the whole ---- */

int srv_counts_new(struct srv_counts **out, const struct srv_counts_source *source, struct sl_err *err)
{
	struct srv_counts *c = calloc(1, sizeof(*c));
	if (c == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	c->source = *source;
	sl__mutex_init(&c->mu);
	sl__cond_init(&c->done);
	*out = c;
	return 0;
}

void srv_counts_free(struct srv_counts *c)
{
	if (c == NULL)
		return;
	if (c->last != NULL)
		result_free(c->last);
	sl__cond_fini(&c->done);
	sl__mutex_fini(&c->mu);
	free(c);
}
