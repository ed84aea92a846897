/* SPDX-License-Identifier: Apache-2.0 */
/* Making the handle and taking it apart. */
#include <sched.h>

#include "writer/writer.h"

/* ---- what shards and limiter ask ---- */

static bool gate(const void *key, size_t key_len, void *ctx)
{
	sl_writer *w = ctx;
	char text[SL__WRITER_KEY + 1] = "";
	memcpy(text, key, SL_MIN(key_len, SL__WRITER_KEY));
	return w->ops.is_shard_ready(w->driver, text, key_len) != 0;
}

static void on_limit(uint32_t limit, void *ctx)
{
	sl_writer *w = ctx;
	sl__log(&w->env, SL_LOG_INFO, w->name, "concurrency changed", SL__F_U64("concurrency", limit),
		SL__F_I64("max_concurrency", w->o.max_concurrent_writes));
	if (w->ops.on_concurrency_limit_changed != NULL)
		w->ops.on_concurrency_limit_changed(w->driver, limit);
}

/* ---- new ---- */

static int make_parts(sl_writer *w, struct sl_err *err)
{
	struct sl__limiter_opts limiter = {.env = &w->env,
					   .max = (uint32_t)w->o.max_concurrent_writes,
					   .step_up = (uint32_t)w->o.cooldown_step,
					   .window_ms = w->o.window_ms,
					   .cooldown_ms = w->o.cooldown_ms,
					   .on_change = on_limit,
					   .ctx = w};
	int rc = sl__limiter_new(&w->limiter, &limiter, err);
	if (rc == 0)
		rc = sl__shards_new(&w->shards, &w->env, w->ops.is_shard_ready != NULL ? gate : NULL, w, err);
	return rc;
}

static int make_memory(sl_writer *w, struct sl_err *err) SL_NO_TSA
{
	size_t n = (size_t)w->o.max_concurrent_writes;
	w->name = sl__strdup(&w->env, w->o.name != NULL ? w->o.name : "writer");
	w->slots = sl__calloc(&w->env, n, sizeof(*w->slots));
	if (w->name == NULL || w->slots == NULL)
		return sl_err_set(err, SL_ENOMEM, "writer: no memory");
	for (size_t i = 0; i < n; i++)
		sl__wslots_append(&w->free, &w->slots[i]);
	return 0;
}

static void set_up(sl_writer *w) SL_NO_TSA
{
	sl__mutex_init_busy(&w->mu);
	sl__cond_init(&w->wake);
	sl__cond_init(&w->clear);
	sl__cond_init(&w->over);
	sl__fork_guard_init(&w->guard);
	sl__prng_init(&w->prng, &w->env);
	w->phase = SL__WRITER_NEW;
	w->fds[0] = w->fds[1] = -1;
	w->recheck_ns = SL_FOREVER;
	w->log_ns = w->warn_ns = INT64_MIN;
}

/* Half-built handles too; no thread runs. */
static void take_apart(sl_writer *w) SL_NO_TSA
{
	sl__writer_metrics_detach(w);
	sl__shards_free(w->shards);
	sl__limiter_free(w->limiter);
	sl__close_fd(&w->env, &w->fds[0]);
	sl__close_fd(&w->env, &w->fds[1]);
	sl__free(&w->env, w->slots);
	sl__free(&w->env, w->name);
	sl__fork_guard_fini(&w->guard);
	sl__cond_fini(&w->wake);
	sl__cond_fini(&w->clear);
	sl__cond_fini(&w->over);
	sl__mutex_fini(&w->mu);
	struct sl_env env = w->env;
	sl__free(&env, w);
}

int sl_writer_new(sl_writer **out, const struct sl_writer_driver_ops *ops, void *driver,
		  const struct sl_writer_opts *opts, struct sl_err *err)
{
	struct sl_env env;
	struct sl_writer_opts o;
	int rc = sl__writer_options(&o, opts, ops, err);
	if (rc == 0)
		rc = sl__env_init(&env, o.env, err);
	if (rc != 0)
		return rc;
	sl_writer *w = sl__calloc(&env, 1, sizeof(*w));
	if (w == NULL)
		return sl_err_set(err, SL_ENOMEM, "writer: no memory");
	w->env = env;
	w->o = o;
	w->ops = *ops;
	w->driver = driver;
	set_up(w);
	rc = make_memory(w, err);
	if (rc == 0)
		rc = make_parts(w, err);
	if (rc == 0)
		rc = sl__writer_metrics_attach(w, err);
	if (rc != 0) {
		take_apart(w);
		return rc;
	}
	*out = w;
	return 0;
}

/* ---- free ---- */

/* A writer that never ran still owes an answer about its blocks. */
static void report_all(sl_writer *w) SL_REQUIRES(w->mu)
{
	struct sl_err cancelled = SL_ERR_INIT;
	(void)sl_err_set(&cancelled, SL_ECANCELLED, "writer %s: freed before it was run", w->name);
	sl__writer_fail(w, &cancelled);
	sl__writer_report_queued(w);
}

int sl_writer_free(sl_writer *w)
{
	if (w == NULL)
		return 0;
	if (sl__forked(&w->guard))
		return SL_EFORKED;
	sl__lock(&w->mu);
	enum sl__writer_phase phase = w->phase;
	if (phase == SL__WRITER_NEW)
		report_all(w);
	sl__unlock(&w->mu);
	if (phase == SL__WRITER_RUNNING)
		return SL_EPENDING;
	if (phase == SL__WRITER_ENDED && w->own_thread && !w->joined)
		(void)pthread_join(w->thread, NULL);
	while (atomic_load_explicit(&w->completing, memory_order_acquire) != 0)
		sched_yield();
	take_apart(w);
	return 0;
}
