/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handle and the thread of run. That thread runs no stage: it sleeps on an eventfd and acts on what others ask for,
 * so that a stop is one store and two writes, which a signal handler may do.
 */
#include "pipeline/pipeline.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/options.h"

/* ---- options ---- */

#define SPAN_MAX_MS ((int64_t)365 * 24 * 3600 * 1000) /* keeps sums of times far from overflow */
#define PARTITION_SIZE_MAX ((uint64_t)1 << 48)
#define NAME_BYTES_MAX 100

static int take_pipeline_options(sl_pipeline *p, const struct sl_pipeline_opts *opts, struct sl_err *err)
{
	struct sl_pipeline_opts *o = &p->o;
	sl__opts_copy(o, sizeof(*o), opts);
	if (o->name == NULL)
		o->name = "pipeline";
	if (o->name[0] == '\0' || strlen(o->name) > NAME_BYTES_MAX)
		return sl_err_set(err, SL_EINVAL, "pipeline: name is empty or longer than %d bytes", NAME_BYTES_MAX);
	(void)snprintf(p->name, sizeof(p->name), "%s", o->name);
	o->name = p->name;
	o->workers = (int32_t)sl__or_default(o->workers, 4);
	o->queue_size = (int32_t)sl__or_default(o->queue_size, 8);
	o->retry_attempts = (int32_t)sl__or_default(o->retry_attempts, 3);
	o->retry_backoff_ms = sl__or_default(o->retry_backoff_ms, 1000);
	o->window = (int32_t)sl__or_default(o->window, (int64_t)o->workers + o->queue_size);
	o->queue_bytes = sl__or_default(o->queue_bytes, SL_UNLIMITED);
	o->commit_patience_ms = sl__or_default(o->commit_patience_ms, SL_UNLIMITED);
	/* Each option within its range. */
	const struct sl__range rows[] = {
		{"workers", o->workers, 1, 256},
		{"queue_size", o->queue_size, 1, 65536},
		{"window", o->window, 1, 1 << 20},
		{"queue_bytes", o->queue_bytes == SL_UNLIMITED ? 1 : o->queue_bytes, 1, INT64_MAX},
		{"retry_attempts", o->retry_attempts == SL_UNLIMITED ? 1 : o->retry_attempts, 1, INT32_MAX},
		{"retry_backoff_ms", o->retry_backoff_ms == SL_NONE ? 1 : o->retry_backoff_ms, 1, SPAN_MAX_MS},
		{"commit_patience_ms", o->commit_patience_ms < 0 ? 1 : o->commit_patience_ms, 1, SPAN_MAX_MS},
		{"begin", o->begin, SL_PIPELINE_ANYWHERE, SL_PIPELINE_AT},
		{"final", o->final, SL_DEFAULT, SL_OFF},
		{"keep_output", o->keep_output, SL_DEFAULT, SL_OFF},
	};
	int rc = sl__check_ranges("pipeline", rows, SL_COUNT(rows), err);
	if (rc != 0)
		return rc;
	if (o->partition_size == 0 || o->partition_size > PARTITION_SIZE_MAX)
		return sl_err_set(err, SL_EINVAL, "pipeline: partition_size is %llu; give 1 to %llu",
				  (unsigned long long)o->partition_size, (unsigned long long)PARTITION_SIZE_MAX);
	if (o->first > SL_SEQUENCE_MAX)
		return sl_err_set(err, SL_EINVAL, "pipeline: first is %llu, above the highest number",
				  (unsigned long long)o->first);
	if (o->commit_patience_ms < SL_UNLIMITED)
		return sl_err_set(err, SL_EINVAL,
				  "pipeline: commit_patience_ms is %lld; give 1 or more, SL_NONE or SL_UNLIMITED",
				  (long long)o->commit_patience_ms);
	const struct sl_pipeline_ops *ops = o->ops;
	if (ops == NULL || ops->version != SL_PIPELINE_OPS_VERSION)
		return sl_err_set(err, SL_EINVAL, "pipeline: ops is missing or of another version");
	if (ops->next == NULL || ops->build == NULL || ops->commit == NULL)
		return sl_err_set(err, SL_EINVAL, "pipeline: ops needs next, build and commit");
	struct sl_retry_policy given = {.max_attempts = o->retry_attempts, .first_ms = o->retry_backoff_ms};
	rc = sl_retry_resolve(&given, SL_RETRY_PIPELINE, &p->retry, err);
	p->commit = p->retry;
	p->commit.max_attempts = SL_UNLIMITED;
	return rc;
}

/* ---- making and freeing ---- */

int sl_pipeline_new(sl_pipeline **out, const struct sl_pipeline_opts *opts, struct sl_err *err)
{
	struct sl_env env;
	if (opts == NULL)
		return sl_err_set(err, SL_EINVAL, "pipeline: options are required");
	int rc = sl__env_init(&env, SL_OPT_HAS(opts, env) ? opts->env : NULL, err);
	if (rc != 0)
		return rc;
	sl_pipeline *p = sl__calloc(&env, 1, sizeof(*p));
	if (p == NULL)
		return sl_err_set(err, SL_ENOMEM, "pipeline: out of memory");
	p->env = env;
	p->wake_fd = p->stop_fd = -1;
	p->limit = UINT64_MAX;
	sl__mutex_init(&p->mu);
	sl__cond_init(&p->changed);
	sl__fork_guard_init(&p->guard);
	if ((rc = take_pipeline_options(p, opts, err)) != 0)
		goto fail;
	p->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	p->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->wake_fd < 0 || p->stop_fd < 0) {
		rc = sl_err_set_errno(err, errno, "pipeline: eventfd");
		goto fail;
	}
	const struct sl__queue_opts queue = {.env = &p->env,
					     .name = p->name,
					     .capacity = (size_t)p->o.queue_size,
					     .max_bytes = p->o.queue_bytes > 0 ? (size_t)p->o.queue_bytes : 0};
	const struct sl__sequencer_opts sequencer = {.first = 0, .window = (uint64_t)p->o.window};
	if ((rc = sl__queue_new(&p->queue, &queue, err)) != 0)
		goto fail;
	if ((rc = sl__sequencer_new(&p->sequencer, &p->env, &sequencer, err)) != 0)
		goto fail;
	if ((rc = sl__pipeline_metrics_attach(p, err)) != 0)
		goto fail;
	*out = p;
	return 0;
fail:
	sl_pipeline_free(p);
	return rc;
}

void sl_pipeline_free(sl_pipeline *p)
{
	if (p == NULL || sl__forked(&p->guard))
		return;
	sl__pipeline_metrics_detach(p);
	sl__sequencer_free(p->sequencer);
	sl__queue_free(p->queue);
	if (p->wake_fd >= 0)
		(void)close(p->wake_fd);
	if (p->stop_fd >= 0)
		(void)close(p->stop_fd);
	sl__fork_guard_fini(&p->guard);
	sl__cond_fini(&p->changed);
	sl__mutex_fini(&p->mu);
	struct sl_env env = p->env;
	sl__free(&env, p);
}

/* ---- stopping ---- */

static void raise_fd(int fd)
{
	static const uint64_t one = 1;
	ssize_t n = write(fd, &one, sizeof(one));
	(void)n;
}

void sl_pipeline_stop(sl_pipeline *p, enum sl_pipeline_stop how)
{
	int before = atomic_load(&p->stop), saved = errno;
	while (before < (int)how && !atomic_compare_exchange_weak(&p->stop, &before, (int)how))
		;
	if (before < (int)how) {
		raise_fd(p->stop_fd);
		sl__pipeline_wake(p);
	}
	errno = saved;
}

enum sl_pipeline_stop sl_pipeline_stopping(const sl_pipeline *p)
{
	return (enum sl_pipeline_stop)atomic_load(&p->stop);
}

int sl_pipeline_stop_fd(const sl_pipeline *p)
{
	return p->stop_fd;
}

/* Act on what was requested since the last call. */
static void act_on_stop(sl_pipeline *p)
{
	enum sl_pipeline_stop stop = sl_pipeline_stopping(p);
	if (sl__pipeline_ending(p) && !p->interrupted) {
		p->interrupted = true;
		raise_fd(p->stop_fd);
		if (p->o.ops->interrupt != NULL)
			p->o.ops->interrupt(p->o.ctx);
	}
	if (stop == p->acted_on)
		return;
	p->acted_on = stop;
	sl__log(&p->env, SL_LOG_INFO, "pipeline", stop == SL_PIPELINE_NOW ? "stopping immediately" : "draining",
		SL__F_STR("pipeline", p->name));
	sl__lock(&p->mu);
	if (stop == SL_PIPELINE_NOW)
		p->limit = 0;
	sl__broadcast(&p->changed);
	sl__unlock(&p->mu);
	if (stop == SL_PIPELINE_NOW)
		sl__sequencer_cancel(p->sequencer);
}

/* ---- running ---- */

/* What could not be started is replaced by the end that it would have reported, so that those before it leave. */
static int start_stages(sl_pipeline *p, struct sl_err *err)
{
	int rc = sl__pool_start(&p->committer, &p->env, "sl-commit", 1, sl__committer_main, NULL, p, err);
	if (rc != 0)
		return rc;
	p->workers_left = (unsigned)p->o.workers;
	rc = sl__pool_start(&p->workers, &p->env, "sl-part", (unsigned)p->o.workers, sl__pipeline_worker_main, NULL, p,
			    err);
	if (rc != 0) {
		sl__sequencer_close(p->sequencer, NULL);
		return rc;
	}
	rc = sl__pool_start(&p->dispatcher, &p->env, "sl-dispatch", 1, sl__dispatcher_main, NULL, p, err);
	if (rc != 0)
		sl__queue_close(p->queue, SL__QUEUE_DRAIN);
	return rc;
}

int sl_pipeline_run(sl_pipeline *p, struct sl_pipeline_stats *stats, struct sl_err *err)
{
	if (sl__forked(&p->guard))
		return sl_err_set(err, SL_EFORKED, "pipeline: used in a forked child");
	if (atomic_exchange(&p->ran, true))
		return sl_err_set(err, SL_EINVAL, "pipeline: already run; a handle runs once");
	sl__lock(&p->mu);
	p->began_ns = sl__mono_ns(&p->env);
	sl__unlock(&p->mu);

	/* Until the committer is done, act on stops. */
	struct pollfd wake = {.fd = p->wake_fd, .events = POLLIN};
	int rc = start_stages(p, err);
	for (bool done = rc != 0; !done;) {
		uint64_t count;
		done = atomic_load(&p->done);
		act_on_stop(p);
		if (!done)
			(void)poll(&wake, 1, -1);
		ssize_t n = read(p->wake_fd, &count, sizeof(count));
		(void)n;
	}
	sl__pool_free(p->dispatcher);
	sl__pool_free(p->workers);
	sl__pool_free(p->committer);
	p->dispatcher = p->workers = p->committer = NULL;
	sl__lock(&p->mu);
	p->ended_ns = sl__mono_ns(&p->env);
	sl__unlock(&p->mu);

	if (rc == 0 && atomic_load(&p->stop) == SL_PIPELINE_NOW && !atomic_load(&p->failed)) {
		rc = p->stats.has_last
			     ? sl_err_set(err, SL_ECANCELLED, "%s: stopped; the next run continues after %llu", p->name,
					  (unsigned long long)p->stats.last)
			     : sl_err_set(err, SL_ECANCELLED, "%s: stopped before anything was committed", p->name);
	} else if (rc == 0 && p->rc != 0) {
		if (err != NULL)
			*err = p->error;
		rc = p->rc;
	}
	if (stats != NULL && sl_pipeline_get_stats(p, stats) != 0)
		rc = SL_EFORKED;
	return rc;
}

/* ---- looking ---- */

int sl_pipeline_get_stats(sl_pipeline *p, struct sl_pipeline_stats *out)
{
	if (sl__forked(&p->guard))
		return SL_EFORKED;
	struct sl__queue_stats queue;
	struct sl__sequencer_stats window;
	sl__lock(&p->mu);
	struct sl_pipeline_stats s = p->stats;
	int64_t now = sl__mono_ns(&p->env), until = p->ended_ns != 0 ? p->ended_ns : now;
	int64_t busy = p->busy_ns + (int64_t)p->busy * until - p->busy_since_sum;
	double whole = p->began_ns != 0 ? (double)(until - p->began_ns) * p->o.workers : 0;
	s.workers_busy = p->busy;
	s.utilisation = whole > 0 ? SL_MIN((double)SL_MAX(busy, 0) / whole, 1) : 0;
	s.commit_lag_ms = p->oldest != NULL ? SL_MAX(now - p->oldest->stored_ns, 0) / 1000000 : 0;
	sl__unlock(&p->mu);
	sl__queue_stats(p->queue, &queue);
	sl__sequencer_get_stats(p->sequencer, &window);
	s.queue_depth = queue.depth;
	s.queue_bytes = queue.bytes;
	s.workers = (uint32_t)p->o.workers;
	s.window = (uint64_t)p->o.window;
	s.window_used = window.buffered;
	s.window_used_max = window.buffered_max;
	s.stopping = sl_pipeline_stopping(p);
	sl__result_copy(out, &s, sizeof(s));
	return 0;
}
