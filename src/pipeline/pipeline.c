/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handle and the thread of run. That thread runs no stage: it sleeps on an eventfd and acts on what others ask for,
 * so that a stop is one store and two writes, which a signal handler may do.
 */
#include "pipeline/pipeline.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- making and freeing ---- */

static int make_fd(int *fd, struct sl_err *err)
{
	*fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return *fd >= 0 ? 0 : sl_err_set_errno(err, errno, "pipeline: eventfd");
}

static int make_parts(sl_pipeline *p, struct sl_err *err)
{
	struct sl__queue_opts queue = {.env = &p->env,
				       .name = p->name,
				       .capacity = (size_t)p->o.queue_size,
				       .max_bytes = p->o.queue_bytes > 0 ? (size_t)p->o.queue_bytes : 0};
	struct sl__sequencer_opts sequencer = {.first = 0, .window = (uint64_t)p->o.window};
	int rc = make_fd(&p->wake_fd, err);
	if (rc == 0)
		rc = make_fd(&p->stop_fd, err);
	if (rc == 0)
		rc = sl__queue_new(&p->queue, &queue, err);
	if (rc == 0)
		rc = sl__sequencer_new(&p->sequencer, &p->env, &sequencer, err);
	if (rc == 0)
		rc = sl__pipeline_metrics_attach(p, err);
	return rc;
}

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
	rc = sl__pipeline_options(p, opts, err);
	if (rc == 0)
		rc = make_parts(p, err);
	if (rc != 0)
		sl_pipeline_free(p);
	else
		*out = p;
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

/* Act on what was asked for since the last look. */
static void heed(sl_pipeline *p)
{
	int stop = atomic_load(&p->stop);
	if (sl__pipeline_ending(p) && !p->interrupted) {
		p->interrupted = true;
		raise_fd(p->stop_fd);
		if (p->o.ops->interrupt != NULL)
			p->o.ops->interrupt(p->o.ctx);
	}
	if (stop == p->heeded)
		return;
	p->heeded = stop;
	sl__log(&p->env, SL_LOG_INFO, "pipeline", stop == SL_PIPELINE_NOW ? "stopping now" : "draining",
		SL__F_STR("pipeline", p->name));
	sl__lock(&p->mu);
	if (stop == SL_PIPELINE_NOW)
		p->limit = 0;
	sl__broadcast(&p->changed);
	sl__unlock(&p->mu);
	if (stop == SL_PIPELINE_NOW)
		sl__sequencer_cancel(p->sequencer);
}

static void supervise(sl_pipeline *p)
{
	struct pollfd look = {.fd = p->wake_fd, .events = POLLIN};
	bool done;
	do {
		uint64_t count;
		done = atomic_load(&p->done);
		heed(p);
		if (!done)
			(void)poll(&look, 1, -1);
		ssize_t n = read(p->wake_fd, &count, sizeof(count));
		(void)n;
	} while (!done);
}

/* ---- running ---- */

/* Whatever could not be started is replaced by the end that it would have told, so that those before it leave. */
static int start(sl_pipeline *p, struct sl_err *err)
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

static void join(sl_pipeline *p)
{
	sl__pool_free(p->dispatcher);
	sl__pool_free(p->workers);
	sl__pool_free(p->committer);
	p->dispatcher = p->workers = p->committer = NULL;
	sl__lock(&p->mu);
	p->ended_ns = sl__mono_ns(&p->env);
	sl__unlock(&p->mu);
}

static int outcome(sl_pipeline *p, struct sl_err *err)
{
	if (atomic_load(&p->stop) == SL_PIPELINE_NOW && !atomic_load(&p->failed)) {
		if (p->stats.has_last)
			return sl_err_set(err, SL_ECANCELLED, "%s: stopped; the next run goes on behind %llu", p->name,
					  (unsigned long long)p->stats.last);
		return sl_err_set(err, SL_ECANCELLED, "%s: stopped before anything was committed", p->name);
	}
	if (p->rc != 0 && err != NULL)
		*err = p->error;
	return p->rc;
}

int sl_pipeline_run(sl_pipeline *p, struct sl_pipeline_stats *stats, struct sl_err *err)
{
	if (sl__forked(&p->guard))
		return sl_err_set(err, SL_EFORKED, "pipeline: used in a forked child");
	if (atomic_exchange(&p->ran, true))
		return sl_err_set(err, SL_EINVAL, "pipeline: a handle runs once");
	sl__lock(&p->mu);
	p->began_ns = sl__mono_ns(&p->env);
	sl__unlock(&p->mu);
	int rc = start(p, err);
	if (rc == 0)
		supervise(p);
	join(p);
	if (rc == 0)
		rc = outcome(p, err);
	if (stats != NULL && sl_pipeline_get_stats(p, stats) != 0)
		rc = SL_EFORKED;
	return rc;
}

/* ---- looking ---- */

static double utilisation(const sl_pipeline *p, int64_t now) SL_REQUIRES(p->mu)
{
	if (p->began_ns == 0)
		return 0;
	int64_t until = p->ended_ns != 0 ? p->ended_ns : now;
	int64_t busy = p->busy_ns + (int64_t)p->busy * until - p->busy_since_sum;
	double whole = (double)(until - p->began_ns) * p->o.workers;
	return whole > 0 ? SL_MIN((double)SL_MAX(busy, 0) / whole, 1) : 0;
}

static void copy_own(sl_pipeline *p, struct sl_pipeline_stats *s)
{
	sl__lock(&p->mu);
	int64_t now = sl__mono_ns(&p->env);
	*s = p->stats;
	s->workers_busy = p->busy;
	s->utilisation = utilisation(p, now);
	s->commit_lag_ms = p->oldest != NULL ? SL_MAX(now - p->oldest->stored_ns, 0) / 1000000 : 0;
	sl__unlock(&p->mu);
}

int sl_pipeline_get_stats(sl_pipeline *p, struct sl_pipeline_stats *out)
{
	if (sl__forked(&p->guard))
		return SL_EFORKED;
	struct sl_pipeline_stats s;
	struct sl__queue_stats queue;
	struct sl__sequencer_stats window;
	copy_own(p, &s);
	sl__queue_stats(p->queue, &queue);
	sl__sequencer_get_stats(p->sequencer, &window);
	s.queue_depth = queue.depth;
	s.queue_bytes = queue.bytes;
	s.workers = (uint32_t)p->o.workers;
	s.window = (uint64_t)p->o.window;
	s.window_used = window.buffered;
	s.window_used_max = window.buffered_max;
	s.stopping = sl_pipeline_stopping(p);
	size_t n = out->struct_size != 0 ? SL_MIN(out->struct_size, sizeof(s)) : sizeof(s);
	s.struct_size = n;
	memcpy(out, &s, n);
	return 0;
}
