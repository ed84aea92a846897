/* SPDX-License-Identifier: Apache-2.0 */
#include "writer/kit.h"

#include <sched.h>

#include "writer/writer.h"

#define START_MS 1000 /* of the virtual clock */

int64_t kit_now_ms(struct kit *k)
{
	return vclock_table.mono_ns(&k->clock) / 1000000 - START_MS;
}

/* ---- the driver ---- */

static int note_write(struct kit *k, const struct sl_writer_block *block, uint32_t attempt, struct sl_write write)
{
	pthread_mutex_lock(&k->mu);
	int i = k->n_writes++;
	assert_true(i < KIT_MAX);
	struct kit_write *x = &k->writes[i];
	*x = (struct kit_write){
		.len = block->len, .bytes = block->bytes, .attempt = attempt, .write = write, .at_ms = kit_now_ms(k)};
	memcpy(x->hash, block->hash, block->hash_len < 71 ? block->hash_len : 71);
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->mu);
	return i;
}

static int k_schedule(void *driver, const struct sl_writer_block *block, uint32_t attempt, struct sl_write write,
		      struct sl_err *err)
{
	struct kit *k = driver;
	int i = note_write(k, block, attempt, write);
	if (k->at_once)
		assert_int_equal(sl_writer_complete(write, NULL), 0);
	return k->script != NULL ? k->script(k, i + 1, err) : 0;
}

static bool k_ready(void *driver, const char *key, size_t key_len)
{
	struct kit *k = driver;
	bool blocked = false;
	assert_int_equal(strlen(key), key_len);
	pthread_mutex_lock(&k->mu);
	if (k->n_asked < KIT_MAX)
		(void)snprintf(k->asked[k->n_asked++], 8, "%s", key);
	for (size_t i = 0; i < 16; i++)
		blocked |= k->blocked[i][0] != '\0' && strcmp(k->blocked[i], key) == 0;
	pthread_mutex_unlock(&k->mu);
	return !blocked;
}

void kit_block_shard(struct kit *k, const char *key, bool blocked)
{
	pthread_mutex_lock(&k->mu);
	for (size_t i = 0; i < 16; i++) {
		if (blocked && k->blocked[i][0] == '\0') {
			(void)snprintf(k->blocked[i], sizeof(k->blocked[i]), "%s", key);
			break;
		}
		if (!blocked && strcmp(k->blocked[i], key) == 0)
			k->blocked[i][0] = '\0';
	}
	pthread_mutex_unlock(&k->mu);
}

static uint64_t k_buffered(void *driver)
{
	struct kit *k = driver;
	pthread_mutex_lock(&k->mu);
	uint64_t n = k->buffered;
	pthread_mutex_unlock(&k->mu);
	return n;
}

static void k_limit(void *driver, uint32_t limit)
{
	struct kit *k = driver;
	pthread_mutex_lock(&k->mu);
	assert_true(k->n_limits < 256);
	k->limits_at_ms[k->n_limits] = kit_now_ms(k);
	k->limits[k->n_limits++] = limit;
	pthread_mutex_unlock(&k->mu);
}

/* ---- callbacks ---- */

static void k_metrics(uint64_t queued, uint64_t in_flight, uint64_t buffered, void *ctx)
{
	struct kit *k = ctx;
	pthread_mutex_lock(&k->mu);
	assert_true(k->n_metrics < KIT_MAX);
	k->metrics[k->n_metrics].queued = queued;
	k->metrics[k->n_metrics].in_flight = in_flight;
	k->metrics[k->n_metrics++].buffered = buffered;
	pthread_mutex_unlock(&k->mu);
}

static void k_physical(uint64_t bytes, void *ctx)
{
	struct kit *k = ctx;
	pthread_mutex_lock(&k->mu);
	k->physical += bytes;
	k->n_physical++;
	pthread_mutex_unlock(&k->mu);
}

static void k_written(const struct sl_writer_block *block, void *ctx)
{
	struct kit *k = ctx;
	pthread_mutex_lock(&k->mu);
	assert_true(k->n_written < KIT_MAX);
	memcpy(k->written[k->n_written++], block->hash, block->hash_len < 71 ? block->hash_len : 71);
	pthread_mutex_unlock(&k->mu);
}

static void k_unwritten(const struct sl_writer_block *block, uint32_t attempts, const struct sl_err *reason, void *ctx)
{
	struct kit *k = ctx;
	pthread_mutex_lock(&k->mu);
	assert_true(k->n_unwritten < KIT_MAX);
	struct kit_unwritten *u = &k->unwritten[k->n_unwritten++];
	*u = (struct kit_unwritten){.attempts = attempts, .reason = *reason};
	memcpy(u->hash, block->hash, block->hash_len < 71 ? block->hash_len : 71);
	pthread_mutex_unlock(&k->mu);
}

static void k_log(const struct sl_log_record *record, void *ctx)
{
	struct kit *k = ctx;
	char line[1024];
	size_t n = sl_log_format(record, SL_LOG_LOGFMT, line, sizeof(line) - 1);
	line[n++] = '\n';
	pthread_mutex_lock(&k->mu);
	k->log = realloc(k->log, k->log_len + n + 1);
	assert_non_null(k->log);
	memcpy(k->log + k->log_len, line, n);
	k->log_len += n;
	k->log[k->log_len] = '\0';
	pthread_mutex_unlock(&k->mu);
}

int kit_logged(struct kit *k, const char *text)
{
	int n = 0;
	pthread_mutex_lock(&k->mu);
	for (const char *at = k->log; at != NULL && (at = strstr(at, text)) != NULL; at = strchr(at, '\n'))
		n++;
	pthread_mutex_unlock(&k->mu);
	return n;
}

/* ---- set up ---- */

int kit_set_up(void **state)
{
	struct kit *k = calloc(1, sizeof(*k));
	assert_non_null(k);
	vclock_init(&k->clock);
	pthread_mutex_init(&k->mu, NULL);
	pthread_cond_init(&k->changed, NULL);
	k->env = (struct sl_env){SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &k->clock, .log = k_log,
				 .log_ctx = k};
	k->ops = (struct sl_writer_driver_ops){.version = SL_WRITER_DRIVER_VERSION,
					       .name = "kit",
					       .schedule_write = k_schedule,
					       .is_shard_ready = k_ready,
					       .driver_buffered_bytes = k_buffered,
					       .on_concurrency_limit_changed = k_limit};
	k->opts = (struct sl_writer_opts){
		SL_WRITER_OPTS_INIT,     .on_metrics = k_metrics,     .handle_physical_bytes = k_physical,
		.on_written = k_written, .on_unwritten = k_unwritten, .retry_policy.jitter = SL_JITTER_OFF};
	*state = k;
	return 0;
}

int kit_tear_down(void **state)
{
	struct kit *k = *state;
	if (k->w != NULL) {
		assert_int_equal(sl_writer_cancel(k->w, NULL), 0);
		(void)kit_finish(k);
		assert_int_equal(sl_writer_free(k->w), 0);
	}
	vclock_fini(&k->clock);
	pthread_mutex_destroy(&k->mu);
	pthread_cond_destroy(&k->changed);
	free(k->log);
	free(k);
	return 0;
}

void kit_new(struct kit *k)
{
	struct sl_err err = SL_ERR_INIT;
	k->opts.env = &k->env;
	k->opts.ctx = k;
	if (sl_writer_new(&k->w, &k->ops, k, &k->opts, &err) != 0)
		fail_msg("%s", err.msg);
}

void kit_start(struct kit *k)
{
	struct sl_err err = SL_ERR_INIT;
	kit_new(k);
	if (sl_writer_start(k->w, &err) != 0)
		fail_msg("%s", err.msg);
	kit_quiet(k);
}

/* ---- moving on ---- */

static enum sl__writer_phase phase_of(struct kit *k)
{
	pthread_mutex_lock(&k->w->mu.m);
	enum sl__writer_phase phase = k->w->phase;
	pthread_mutex_unlock(&k->w->mu.m);
	return phase;
}

void kit_quiet(struct kit *k)
{
	for (;;) {
		vclock_await_settled(&k->clock, 0); /* no waiting thread is due */
		pthread_mutex_lock(&k->w->mu.m);
		bool quiet = k->w->asleep || k->w->phase == SL__WRITER_ENDED;
		pthread_mutex_unlock(&k->w->mu.m);
		if (quiet)
			return;
		sched_yield();
	}
}

void kit_pass_ms(struct kit *k, int64_t ms)
{
	vclock_advance_ms(&k->clock, ms);
	kit_quiet(k);
}

void kit_enqueue(struct kit *k, const char *hash, size_t len)
{
	static char zeros[1 << 16];
	struct sl_err err = SL_ERR_INIT;
	assert_true(len <= sizeof(zeros));
	if (sl_writer_enqueue(k->w, hash, strlen(hash), zeros, len, &err) != 0)
		fail_msg("%s", err.msg);
	if (phase_of(k) == SL__WRITER_RUNNING)
		kit_quiet(k);
}

int kit_find(struct kit *k, const char *hash, uint32_t attempt)
{
	int found = -1;
	pthread_mutex_lock(&k->mu);
	for (int i = 0; i < k->n_writes && found < 0; i++)
		if (strcmp(k->writes[i].hash, hash) == 0 && k->writes[i].attempt == attempt)
			found = i;
	pthread_mutex_unlock(&k->mu);
	return found;
}

void kit_complete(struct kit *k, int i, const struct sl_err *err)
{
	assert_true(i >= 0 && i < k->n_writes);
	assert_int_equal(sl_writer_complete(k->writes[i].write, err), 0);
	kit_quiet(k);
}

int kit_finish(struct kit *k)
{
	struct sl_err err = SL_ERR_INIT;
	if (phase_of(k) == SL__WRITER_NEW)
		return 0;
	assert_int_equal(sl_writer_signal_done(k->w), 0);
	for (int i = 0;;) {
		kit_quiet(k);
		pthread_mutex_lock(&k->mu);
		bool more = i < k->n_writes;
		struct sl_write write = more ? k->writes[i].write : (struct sl_write){NULL, 0};
		pthread_mutex_unlock(&k->mu);
		if (more) {
			(void)sl_writer_complete(write, NULL);
			i++;
			continue;
		}
		if (phase_of(k) == SL__WRITER_ENDED)
			break;
		if (vclock_advance_to_next(&k->clock) == 0)
			sched_yield();
	}
	return sl_writer_join(k->w, 0, &err);
}

char *kit_order(struct kit *k, int first)
{
	char *text = calloc(1, KIT_MAX * 8);
	size_t n = 0;
	assert_non_null(text);
	pthread_mutex_lock(&k->mu);
	for (int i = first; i < k->n_writes; i++)
		n += (size_t)snprintf(text + n, KIT_MAX * 8 - n, "%s%s", i > first ? " " : "", k->writes[i].hash);
	pthread_mutex_unlock(&k->mu);
	return text;
}

struct sl_err kit_error(enum sl_err_class error_class, const char *msg)
{
	struct sl_err err = SL_ERR_INIT;
	(void)sl_err_set(&err, SL_EIO, "%s", msg);
	err.error_class = error_class;
	return err;
}

struct sl_writer_stats kit_stats(struct kit *k)
{
	struct sl_writer_stats s = {.struct_size = sizeof(s)};
	assert_int_equal(sl_writer_get_stats(k->w, &s), 0);
	return s;
}
