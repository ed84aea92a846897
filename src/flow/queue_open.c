/* SPDX-License-Identifier: Apache-2.0 */
/* A queue's options and watermarks, the thread that reports crossings of them, its creation and its end. */
#include "flow/new.h"
#include "flow/queue_priv.h"

/* Reports each crossing of the marks, one after the other. Only their number is kept, so a slow callback cannot make the
 * backlog grow. */
static void *notifier_main(void *arg)
{
	sl__queue *q = arg;
	sl__lock(&q->mu);
	for (;;) {
		while (q->reported == q->crossings && !q->stopping)
			(void)sl__wait(&q->env, &q->notify, &q->mu, SL_FOREVER);
		if (q->reported == q->crossings)
			break;
		sl__queue_mark_fn *fn = ++q->reported % 2 == 1 ? q->on_high : q->on_low;
		sl__unlock(&q->mu);
		if (fn != NULL)
			fn(q->ctx);
		sl__lock(&q->mu);
	}
	sl__unlock(&q->mu);
	return NULL;
}

/* Four fifths, rounded up, without overflow. */
static size_t high_part(size_t n)
{
	return n - n / 5;
}

/* Check the options and take them over, with the watermarks that they give. */
static int set_queue_opts(sl__queue *q, const struct sl__queue_opts *o, struct sl_err *err)
{
	if (o->capacity == 0 || o->capacity > SIZE_MAX / 2 / sizeof(struct sl__queue_item))
		return sl_err_set(err, SL_EINVAL, "queue: capacity is %zu; it must be at least 1", o->capacity);
	if (o->high_watermark < 0 || (uint64_t)o->high_watermark > o->capacity)
		return sl_err_set(err, SL_EINVAL, "queue: high_watermark is %lld; give 1 to capacity (%zu)",
				  (long long)o->high_watermark, o->capacity);
	if (o->low_watermark < SL_NONE)
		return sl_err_set(err, SL_EINVAL, "queue: low_watermark is %lld; it must be at least 1, or SL_NONE",
				  (long long)o->low_watermark);
	if ((unsigned)o->overflow > SL__QUEUE_ERROR)
		return sl_err_set(err, SL_EINVAL, "queue: overflow is %d; give block, drop_oldest or error",
				  (int)o->overflow);
	q->capacity = o->capacity;
	q->overflow = o->overflow;
	q->on_high = o->on_high;
	q->on_low = o->on_low;
	q->on_drop = o->on_drop;
	q->ctx = o->ctx;
	q->high = o->high_watermark != 0 ? (size_t)o->high_watermark : high_part(q->capacity);
	q->low = o->low_watermark > 0 ? (size_t)o->low_watermark : q->capacity / 2;
	if (o->low_watermark == SL_NONE)
		q->low = 0;
	else if (o->low_watermark == 0 && q->low >= q->high)
		q->low = q->high - 1; /* a low high mark alone takes the default of the low one along */
	if (q->low >= q->high)
		return sl_err_set(err, SL_EINVAL, "queue: low_watermark (%zu) must be below high_watermark (%zu)",
				  q->low, q->high);
	bool bound = o->max_bytes != 0;
	q->max_bytes = bound ? o->max_bytes : SIZE_MAX;
	q->limit = q->capacity;
	q->limit_bytes = q->max_bytes;
	q->high_bytes = bound ? high_part(o->max_bytes) : SIZE_MAX;
	q->low_bytes = bound ? o->max_bytes / 2 : SIZE_MAX;
	return 0;
}

int sl__queue_new(sl__queue **out, const struct sl__queue_opts *opts, struct sl_err *err) SL_NO_TSA
{
	int rc;
	sl__queue *q = sl__flow_new(sizeof(*q), opts->env, "queue", &rc, err);
	if (q == NULL)
		return rc;
	sl__mutex_init_busy(&q->mu);
	sl__cond_init(&q->notify);
	for (size_t i = 0; i < POOL_WAITERS; i++) {
		struct waiter *w = &q->waiters[i];
		sl__cond_init(&w->cond);
		w->pooled = true;
		w->next = q->pool;
		q->pool = w;
	}
	q->wake_at = SIZE_MAX;
	rc = set_queue_opts(q, opts, err);
	/* Not zeroed: pages that a small backlog never reaches stay untouched. */
	if (rc == 0 && (q->ring = sl__alloc(&q->env, q->capacity * sizeof(*q->ring))) == NULL)
		rc = sl_err_set(err, SL_ENOMEM, "queue: out of memory for %zu items", q->capacity);
	if (rc == 0 && (opts->on_high != NULL || opts->on_low != NULL)) {
		const char *name = opts->name != NULL ? opts->name : "sl-queue";
		rc = sl__thread_start(&q->notifier, name, notifier_main, q);
		q->notifier_runs = rc == 0;
		if (rc != 0)
			rc = sl_err_set(err, SL_EAGAIN, "queue: cannot start the notifier thread: %s", strerror(-rc));
	}
	if (rc != 0)
		sl__queue_free(q);
	else
		*out = q;
	return rc;
}

void sl__queue_free(sl__queue *q)
{
	if (q == NULL)
		return;
	if (q->notifier_runs) {
		sl__lock(&q->mu);
		q->stopping = true;
		sl__signal(&q->notify);
		sl__unlock(&q->mu);
		(void)pthread_join(q->notifier, NULL);
	}
	for (size_t i = 0; i < POOL_WAITERS; i++)
		sl__cond_fini(&q->waiters[i].cond);
	sl__cond_fini(&q->notify);
	sl__mutex_fini(&q->mu);
	sl__free(&q->env, q->ring);
	sl__flow_free(q);
}
