/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event batcher: flow/batcher.h decides when, a log takes the batch. Two buffers: `batcher` fills while `out` is
 * being appended.
 *
 * E1  Events are appended in the order in which they were added: `out` is always older than what `batcher` holds, and
 *     one thread at a time (w->writing) appends it.
 * E2  What failed to append stays in `out` and goes first; the part of it that is durable has left.
 * E3  The lock is not held while the log works, so that others may add meanwhile, until both buffers are full.
 */
#include "flow/batcher.h"

#include "wal/handle.h"

struct sl_wal_batcher {
	sl_wal *log;
	struct sl_env env;
	sl__mutex mu; /* guards all below; the log is called without it */
	sl__cond changed;
	struct sl__batcher batcher;
	struct sl__batch out;
	bool writing;     /* a thread appends `out` */
	bool failed;      /* the last try to append `out` did */
	int64_t retry_ns; /* the background thread does not try again before */
	int64_t interval_ms;
	bool background, stop;
	pthread_t thread;
};

_Static_assert(sizeof(struct sl__span) == sizeof(struct sl_wal_span) &&
		       offsetof(struct sl__span, len) == offsetof(struct sl_wal_span, len),
	       "a span is a span");

/* Append `out`; what became durable leaves it. */
static int write_out(sl_wal_batcher *b, struct sl_err *err) SL_REQUIRES(b->mu)
{
	size_t done = 0;
	b->writing = true;
	sl__unlock(&b->mu);
	int rc = sl_wal_append_many(b->log, (const struct sl_wal_span *)(const void *)b->out.spans, b->out.n, NULL,
				    &done, err);
	sl__lock(&b->mu);
	sl__batch_drop(&b->out, done);
	b->writing = false;
	b->failed = rc != 0;
	if (rc != 0)
		b->retry_ns = sl__deadline_ns(&b->env, b->interval_ms);
	sl__broadcast(&b->changed);
	return rc;
}

/* Wait for who writes, then write what is left of it. Afterwards `out` is empty, or this failed. */
static int clear_out(sl_wal_batcher *b, struct sl_err *err) SL_REQUIRES(b->mu)
{
	while (b->writing)
		(void)sl__wait(&b->env, &b->changed, &b->mu, SL_FOREVER);
	return b->out.n > 0 ? write_out(b, err) : 0;
}

/* Append everything that was added before this call. */
static int flush_batcher_locked(sl_wal_batcher *b, struct sl_err *err) SL_REQUIRES(b->mu)
{
	int rc = clear_out(b, err);
	if (rc != 0 || sl__batcher_empty(&b->batcher))
		return rc;
	/* Between the two, mu was not released: `out` is ours to fill. */
	sl__batcher_take(&b->batcher, &b->out);
	return write_out(b, err);
}

/* ---- time ---- */

static void *batcher_main(void *arg)
{
	sl_wal_batcher *b = arg;
	sl__lock(&b->mu);
	while (!b->stop) {
		int64_t at = b->writing ? SL_FOREVER : b->out.n > 0 ? b->retry_ns : sl__batcher_deadline(&b->batcher);
		if (sl__mono_ns(&b->env) < at) {
			(void)sl__wait(&b->env, &b->changed, &b->mu, at);
			continue;
		}
		struct sl_err err = SL_ERR_INIT;
		if (flush_batcher_locked(b, &err) == 0)
			continue;
		sl__unlock(&b->mu);
		sl__log(&b->env, SL_LOG_WARN, "wal", "a batch of events could not be appended yet",
			SL__F_STR("log", b->log->path), SL__F_STR("error", err.msg));
		sl__lock(&b->mu);
	}
	sl__unlock(&b->mu);
	return NULL;
}

/* ---- the public functions ---- */

static void free_batcher(sl_wal_batcher *b)
{
	struct sl_env env = b->env;
	sl__batch_fini(&b->out, &env);
	sl__batcher_fini(&b->batcher);
	sl__cond_fini(&b->changed);
	sl__mutex_fini(&b->mu);
	sl__free(&env, b);
}

int sl_wal_batcher_new(sl_wal_batcher **out, sl_wal *w, const struct sl_wal_batcher_opts *opts, struct sl_err *err)
{
	struct sl_wal_batcher_opts o;
	sl__opts_copy(&o, sizeof(o), opts);
	int rc = sl__wal_check_process(w, err);
	if (rc != 0)
		return rc;
	if ((unsigned)o.background > SL_OFF)
		return sl_err_set(err, SL_EINVAL, "background: not a switch");
	if (o.flush_interval_ms == 0)
		o.flush_interval_ms = 100;
	if (o.flush_interval_ms < 1 || o.flush_interval_ms > 86400000)
		return sl_err_set(err, SL_EINVAL, "flush_interval_ms: %lld is not 1 to 86400000",
				  (long long)o.flush_interval_ms);
	sl_wal_batcher *b = sl__calloc(&w->env, 1, sizeof(*b));
	if (b == NULL)
		return sl_err_set(err, SL_ENOMEM, "batcher of %s: out of memory", w->path);
	b->log = w;
	b->env = w->env;
	b->interval_ms = o.flush_interval_ms;
	sl__mutex_init(&b->mu);
	sl__cond_init(&b->changed);
	struct sl__batcher_opts flow = {
		.max_items = o.max_items, .max_bytes = o.max_bytes, .max_wait_ms = o.flush_interval_ms};
	rc = sl__batcher_init(&b->batcher, &b->env, &flow, err);
	b->background = o.background != SL_OFF;
	if (rc == 0 && b->background) {
		int started = sl__thread_start(&b->thread, "sl-wal-batch", batcher_main, b);
		if (started < 0)
			rc = sl__thread_error(err, started, "batcher", w->path);
	}
	if (rc != 0) {
		free_batcher(b);
		return rc;
	}
	*out = b;
	return 0;
}

static int add_event_locked(sl_wal_batcher *b, const void *event, size_t len, struct sl_err *err) SL_REQUIRES(b->mu)
{
	for (;;) {
		int rc = b->failed ? clear_out(b, err) : 0;
		if (rc != 0)
			return rc;
		bool first = sl__batcher_empty(&b->batcher);
		rc = sl__batcher_add(&b->batcher, sl__mono_ns(&b->env), event, len);
		if (rc == SL__BATCH_READY)
			return flush_batcher_locked(b, err);
		if (rc == 0 && first && b->background)
			sl__broadcast(&b->changed); /* there is a deadline now */
		if (rc == SL_ENOMEM)
			return sl_err_set(err, rc, "batcher of %s: out of memory", b->log->path);
		if (rc != SL_EFULL)
			return rc;
		/* It does not fit next to what is there: that goes first. */
		rc = flush_batcher_locked(b, err);
		if (rc != 0)
			return rc;
	}
}

int sl_wal_batcher_add(sl_wal_batcher *b, const void *event, size_t len, struct sl_err *err)
{
	int rc = sl__wal_check_process(b->log, err);
	if (rc != 0)
		return rc;
	/* An event that the log can never take must not get into a batch: it would keep it for ever. */
	size_t max = SL_WAL_MAX_PAYLOAD - (b->log->key != NULL ? WAL_SEAL_BYTES : 0);
	if (len > max)
		return sl_err_set(err, SL_ETOOBIG, "event of %zu bytes for %s; at most %zu fit a record", len,
				  b->log->path, max);
	sl__lock(&b->mu);
	rc = add_event_locked(b, event, len, err);
	sl__unlock(&b->mu);
	return rc;
}

int sl_wal_batcher_flush(sl_wal_batcher *b, struct sl_err *err)
{
	int rc = sl__wal_check_process(b->log, err);
	if (rc != 0)
		return rc;
	sl__lock(&b->mu);
	rc = flush_batcher_locked(b, err);
	sl__unlock(&b->mu);
	return rc;
}

int sl_wal_batcher_free(sl_wal_batcher *b, size_t *lost, struct sl_err *err)
{
	if (lost != NULL)
		*lost = 0;
	if (b == NULL)
		return 0;
	int rc = sl__wal_check_process(b->log, err);
	if (rc != 0)
		return rc;
	sl__lock(&b->mu);
	b->stop = true;
	sl__broadcast(&b->changed);
	sl__unlock(&b->mu);
	if (b->background)
		(void)pthread_join(b->thread, NULL);
	sl__lock(&b->mu);
	rc = flush_batcher_locked(b, err);
	if (lost != NULL)
		*lost = b->out.n + b->batcher.fill.n;
	sl__unlock(&b->mu);
	free_batcher(b);
	return rc;
}
