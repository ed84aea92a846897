/* SPDX-License-Identifier: Apache-2.0 */
/* The writer's handle: options, new, enqueue, free. */
#include <sched.h>

#include "base/options.h"
#include "writer/writer.h"

#define SPAN_MAX_MS ((int64_t)365 * 24 * 3600 * 1000) /* keeps sums of times far from overflow */
#define CONCURRENCY_MAX 4096
#define BACKLOG_MAX ((int64_t)1 << 60) /* keeps sums of bytes far from overflow */
#define NAME_MAX_BYTES 200
#define HASH_MAX_BYTES 255

/* ---- new ---- */

/* Check the driver and the options; *out gets the options with every default filled in. */
static int read_writer_options(const struct sl_writer_opts *opts, const struct sl_writer_driver_ops *ops,
			       struct sl_writer_opts *out, struct sl_err *err)
{
	struct sl_writer_opts o;
	if (opts != NULL && opts->struct_size == 0)
		return sl_err_set(err, SL_EINVAL, "writer: struct_size is 0; use SL_WRITER_OPTS_INIT");
	if (ops == NULL || ops->schedule_write == NULL || ops->name == NULL)
		return sl_err_set(err, SL_EINVAL, "writer: the driver has no schedule_write or no name");
	if (ops->version != SL_WRITER_DRIVER_VERSION)
		return sl_err_set(err, SL_EINVAL, "writer: the driver's table has version %d, not %d", ops->version,
				  SL_WRITER_DRIVER_VERSION);
	/* Defaults. */
	sl__opts_copy(&o, sizeof(o), opts);
	o.max_concurrent_writes = (int32_t)sl__or_default(o.max_concurrent_writes, 16);
	o.backlog_limit_bytes = sl__or_default(o.backlog_limit_bytes, (int64_t)256 << 20);
	o.backlog_clear_bytes = sl__or_default(o.backlog_clear_bytes, o.backlog_limit_bytes / 2);
	if (o.backlog_clear_bytes == SL_NONE)
		o.backlog_clear_bytes = 0;
	o.backlog_limit_blocks = sl__or_default(o.backlog_limit_blocks, 65536);
	o.window_ms = sl__or_default(o.window_ms, 1000);
	o.cooldown_ms = sl__or_default(o.cooldown_ms, 5000);
	o.cooldown_step = (int32_t)sl__or_default(o.cooldown_step, 1);
	o.log_interval_ms = sl__or_default(o.log_interval_ms, 5000);
	if (o.log_interval_ms == SL_NONE)
		o.log_interval_ms = 0;
	/* Bounds. */
	const struct sl__range rows[] = {
		{"hash_form", o.hash_form, SL_WRITER_HASH_TEXT, SL_WRITER_HASH_BINARY},
		{"max_concurrent_writes", o.max_concurrent_writes, 1, CONCURRENCY_MAX},
		{"backlog_limit_bytes", o.backlog_limit_bytes, 1, BACKLOG_MAX},
		{"backlog_clear_bytes", o.backlog_clear_bytes, 0, o.backlog_limit_bytes},
		{"backlog_limit_blocks", o.backlog_limit_blocks, 1, BACKLOG_MAX},
		{"window_ms", o.window_ms, 1, SPAN_MAX_MS},
		{"cooldown_ms", o.cooldown_ms, 1, SPAN_MAX_MS},
		{"cooldown_step", o.cooldown_step, 1, CONCURRENCY_MAX},
		{"log_interval_ms", o.log_interval_ms, 0, SPAN_MAX_MS},
		{"loop_debug", o.loop_debug, SL_DEFAULT, SL_OFF},
	};
	int rc = sl__check_ranges("writer", rows, SL_COUNT(rows), err);
	if (rc != 0)
		return rc;
	if (o.name != NULL && (o.name[0] == '\0' || strlen(o.name) > NAME_MAX_BYTES))
		return sl_err_set(err, SL_EINVAL, "writer: name has %zu bytes; give 1 to %d", strlen(o.name),
				  NAME_MAX_BYTES);
	if (o.max_retry_attempts < 0 && o.max_retry_attempts != SL_UNLIMITED)
		return sl_err_set(err, SL_EINVAL,
				  "writer: max_retry_attempts is %d; it must be at least 1, or SL_UNLIMITED",
				  (int)o.max_retry_attempts);
	struct sl_retry_policy given = o.retry_policy;
	if (o.max_retry_attempts != 0)
		given.max_attempts = o.max_retry_attempts;
	rc = sl_retry_resolve(&given, SL_RETRY_WRITER, &o.retry_policy, err);
	if (rc == 0)
		*out = o;
	return rc;
}

/* Whether a shard may go, for the shards. */
static bool is_ready(const void *key, size_t key_len, void *ctx)
{
	sl_writer *w = ctx;
	char text[SL__WRITER_KEY + 1] = "";
	memcpy(text, key, SL_MIN(key_len, SL__WRITER_KEY));
	return w->ops.is_shard_ready(w->driver, text, key_len);
}

static void on_limit(uint32_t limit, void *ctx)
{
	sl_writer *w = ctx;
	sl__log(&w->env, SL_LOG_INFO, w->name, "concurrency changed", SL__F_U64("concurrency", limit),
		SL__F_I64("max_concurrency", w->o.max_concurrent_writes));
	if (w->ops.on_concurrency_limit_changed != NULL)
		w->ops.on_concurrency_limit_changed(w->driver, limit);
}

/* Of a zeroed handle with env, options and driver. On failure destroy_writer frees what is there. */
static int set_up_writer(sl_writer *w, struct sl_err *err) SL_NO_TSA
{
	size_t n = (size_t)w->o.max_concurrent_writes;
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
	w->name = sl__strdup(&w->env, w->o.name != NULL ? w->o.name : "writer");
	w->slots = sl__calloc(&w->env, n, sizeof(*w->slots));
	if (w->name == NULL || w->slots == NULL)
		return sl_err_set(err, SL_ENOMEM, "writer: out of memory");
	for (size_t i = 0; i < n; i++)
		sl__wslots_append(&w->free, &w->slots[i]);
	struct sl__limiter_opts limiter = {.env = &w->env,
					   .max = (uint32_t)w->o.max_concurrent_writes,
					   .step_up = (uint32_t)w->o.cooldown_step,
					   .window_ms = w->o.window_ms,
					   .cooldown_ms = w->o.cooldown_ms,
					   .on_change = on_limit,
					   .ctx = w};
	int rc = sl__limiter_new(&w->limiter, &limiter, err);
	if (rc == 0)
		rc = sl__shards_new(&w->shards, &w->env, w->ops.is_shard_ready != NULL ? is_ready : NULL, w, err);
	if (rc != 0)
		return rc;
	return sl__writer_metrics_attach(w, err);
}

/* Half-built handles too; no thread runs. */
static void destroy_writer(sl_writer *w) SL_NO_TSA
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
	int rc = read_writer_options(opts, ops, &o, err);
	if (rc == 0)
		rc = sl__env_init(&env, o.env, err);
	if (rc != 0)
		return rc;
	sl_writer *w = sl__calloc(&env, 1, sizeof(*w));
	if (w == NULL)
		return sl_err_set(err, SL_ENOMEM, "writer: out of memory");
	w->env = env;
	w->o = o;
	w->ops = *ops;
	w->driver = driver;
	rc = set_up_writer(w, err);
	if (rc == 0)
		*out = w;
	else
		destroy_writer(w);
	return rc;
}

/* ---- enqueue ---- */

/* On success the shards own b. */
static int push_block(sl_writer *w, struct sl__wblock *b, struct sl_err *err) SL_REQUIRES(w->mu)
{
	if (w->failed) {
		if (err != NULL)
			*err = w->error;
		return w->error.code;
	}
	if (w->done)
		return sl_err_set(err, SL_ECLOSED, "writer %s: a block was added after signal_done", w->name);
	if (sl__writer_overfull(w, b->view.len)) {
		return sl_err_set(err, SL_EFULL, "writer %s: the backlog is at twice its limit; wait for it to clear",
				  w->name);
	}
	/* The shard's key: the first four hexadecimal characters of the hash, or all of a shorter one. */
	char key[SL__WRITER_KEY];
	size_t key_len = SL_MIN(b->view.hash_len, SL__WRITER_KEY);
	if (w->o.hash_form == SL_WRITER_HASH_TEXT)
		memcpy(key, b->view.hash, key_len);
	else
		key_len = (size_t)(sl__hex(key, b->view.hash, SL_MIN(b->view.hash_len, SL__WRITER_KEY / 2)) - key);
	if (sl__shards_push(w->shards, key, key_len, &b->item, 0) != 0)
		return sl_err_set(err, SL_ENOMEM, "writer %s: out of memory for a shard", w->name);
	w->enqueued++;
	w->queued_blocks++;
	w->queued_bytes += b->view.len;
	sl__writer_press(w);
	sl__writer_stir(w);
	return 0;
}

static int enqueue_block(sl_writer *w, const struct sl_writer_block *in, bool copy, struct sl_err *err)
{
	if (sl__forked(&w->guard))
		return sl_err_set(err, SL_EFORKED, "writer: used in a forked child");
	if (in->hash_len == 0 || in->hash_len > HASH_MAX_BYTES)
		return sl_err_set(err, SL_EINVAL, "writer %s: hash_len is %zu; give 1 to %d", w->name, in->hash_len,
				  HASH_MAX_BYTES);
	struct sl__wblock *b = NULL;
	if (in->len <= SIZE_MAX - sizeof(*b) - HASH_MAX_BYTES)
		b = sl__alloc(&w->env, sizeof(*b) + in->hash_len + (copy ? in->len : 0));
	if (b == NULL)
		return sl_err_set(err, SL_ENOMEM, "writer %s: out of memory for a block of %zu bytes", w->name,
				  in->len);
	*b = (struct sl__wblock){.item.bytes = in->len, .view = *in};
	memcpy(b->tail, in->hash, in->hash_len);
	b->view.hash = b->tail;
	if (copy && in->len > 0) {
		memcpy(b->tail + in->hash_len, in->bytes, in->len);
		b->view.bytes = b->tail + in->hash_len;
	}
	sl__lock(&w->mu);
	int rc = push_block(w, b, err);
	sl__unlock(&w->mu);
	if (rc != 0)
		sl__free(&w->env, b);
	return rc;
}

int sl_writer_enqueue(sl_writer *w, const void *hash, size_t hash_len, const void *bytes, size_t len,
		      struct sl_err *err)
{
	const struct sl_writer_block block = {.hash = hash, .hash_len = hash_len, .bytes = bytes, .len = len};
	return enqueue_block(w, &block, true, err);
}

int sl_writer_enqueue_block(sl_writer *w, const struct sl_writer_block *block, struct sl_err *err)
{
	return enqueue_block(w, block, false, err);
}

/* ---- free ---- */

int sl_writer_free(sl_writer *w)
{
	if (w == NULL)
		return 0;
	if (sl__forked(&w->guard))
		return SL_EFORKED;
	sl__lock(&w->mu);
	enum sl__writer_phase phase = w->phase;
	if (phase == SL__WRITER_NEW) { /* blocks of a writer that never ran are reported as unwritten */
		struct sl_err cancelled = SL_ERR_INIT;
		(void)sl_err_set(&cancelled, SL_ECANCELLED, "writer %s: freed before it was run", w->name);
		sl__writer_fail(w, &cancelled);
		sl__writer_report_queued(w);
	}
	sl__unlock(&w->mu);
	if (phase == SL__WRITER_RUNNING)
		return SL_EPENDING;
	if (phase == SL__WRITER_ENDED && w->own_thread && !w->joined)
		(void)pthread_join(w->thread, NULL);
	while (atomic_load_explicit(&w->completing, memory_order_acquire) != 0)
		sched_yield();
	destroy_writer(w);
	return 0;
}
