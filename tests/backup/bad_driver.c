/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/bad_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bad_job {
	struct bad_job *next;
	struct bad_driver *b;
	char name[SL_DRIVER_NAME_BYTES];
	const void *bytes;
	size_t len;
	sl_driver_done_fn *done;
	void *ctx;
	struct sl_err verdict; /* passed to done; code 0: success, or what storing returned */
	bool stores;
};

static uint64_t draw(struct bad_driver *b)
{
	uint64_t z = b->rnd += 0x9E3779B97F4A7C15u;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return z ^ (z >> 31);
}

static bool chance(struct bad_driver *b, unsigned share, int64_t *count)
{
	(void)pthread_mutex_lock(&b->mu);
	bool yes = draw(b) % 256 < share;
	*count += yes;
	(void)pthread_mutex_unlock(&b->mu);
	return yes;
}

/* Every call comes through here first. */
static int enter(struct bad_driver *b, enum bad_op op, const char *name, struct sl_err *err)
{
	(void)pthread_mutex_lock(&b->mu);
	b->calls[op]++;
	bool fails = false;
	if ((b->fail_ops & BAD_OP(op)) != 0) {
		b->counted++;
		fails = b->fail_at != 0 && (b->fail_on ? b->counted >= b->fail_at : b->counted == b->fail_at);
		b->failed += fails;
	}
	(void)pthread_mutex_unlock(&b->mu);
	if (fails)
		return sl_err_set(err, b->fail_code, "%s %s: failed by the test", bad_op_name(op), name);
	int rc = b->hook != NULL ? b->hook(b, op, name, b->hook_ctx) : 0;
	return rc == 0 ? 0 : sl_err_set(err, rc, "%s %s: refused by the test", bad_op_name(op), name);
}

const char *bad_op_name(enum bad_op op)
{
	static const char *const names[] = {"schedule_put", "put",    "get",  "stat", "list",
					    "rename",       "remove", "sync", "now",  "lock"};
	return names[op];
}

/* ---- scheduled puts ---- */

static void finish(struct bad_job *job)
{
	struct sl_err err = SL_ERR_INIT;
	const sl_driver *u = &job->b->under;
	if (job->stores && u->ops->put(u->driver, job->name, job->bytes, job->len, SL_DRIVER_REPLACE, &err) != 0 &&
	    job->verdict.code == 0)
		job->verdict = err;
	struct bad_job last = *job;
	free(job);
	last.done(last.verdict.code != 0 ? &last.verdict : NULL, last.ctx);
}

/* Any of them, so that they come out of order. */
static struct bad_job *take_job(struct bad_driver *b)
{
	size_t skip = b->n_jobs != 0 ? (size_t)(draw(b) % b->n_jobs) : 0;
	struct bad_job **at = &b->jobs;
	for (; skip > 0; skip--)
		at = &(*at)->next;
	struct bad_job *job = *at;
	if (job != NULL) {
		*at = job->next;
		b->n_jobs--;
	}
	return job;
}

static void *complete(void *arg)
{
	struct bad_driver *b = arg;
	(void)pthread_mutex_lock(&b->mu);
	while (!b->stop || b->jobs != NULL) {
		struct bad_job *job = take_job(b);
		if (job == NULL) {
			(void)pthread_cond_wait(&b->changed, &b->mu);
			continue;
		}
		(void)pthread_mutex_unlock(&b->mu);
		finish(job);
		(void)pthread_mutex_lock(&b->mu);
	}
	(void)pthread_mutex_unlock(&b->mu);
	return NULL;
}

static void give_job(struct bad_driver *b, struct bad_job *job)
{
	(void)pthread_mutex_lock(&b->mu);
	if (!b->started) {
		b->started = true;
		for (int i = 0; i < BAD_COMPLETERS; i++)
			if (pthread_create(&b->completers[i], NULL, complete, b) != 0)
				abort();
	}
	job->next = b->jobs;
	b->jobs = job;
	b->n_jobs++;
	(void)pthread_cond_signal(&b->changed);
	(void)pthread_mutex_unlock(&b->mu);
}

static struct sl_err verdict(enum sl_err_class error_class, int code, const char *what, const char *name)
{
	struct sl_err err = SL_ERR_INIT;
	(void)sl_err_set(&err, code, "put %s: %s by the test", name, what);
	err.error_class = error_class;
	err.retry_after_ms = error_class == SL_CLASS_THROTTLED ? 1 : 0;
	return err;
}

/* What becomes of a put. */
static void decide(struct bad_driver *b, struct bad_job *job)
{
	job->stores = false;
	if (chance(b, b->throttle_share, &b->throttled))
		job->verdict = verdict(SL_CLASS_THROTTLED, SL_EAGAIN, "throttled", job->name);
	else if (chance(b, b->fail_share, &b->failures))
		job->verdict = verdict(SL_CLASS_TRANSIENT, SL_EIO, "failed", job->name);
	else if (chance(b, b->poison_share, &b->poisoned))
		job->verdict = verdict(SL_CLASS_POISON, SL_EREFUSED, "refused for good", job->name);
	else if (!chance(b, b->lie_share, &b->lies)) {
		job->stores = true;
		if (chance(b, b->tear_share, &b->torn))
			job->len /= 2;
		else if (chance(b, b->deny_share, &b->denied))
			job->verdict = verdict(SL_CLASS_TRANSIENT, SL_EIO, "denied", job->name);
	}
}

static int schedule_put(void *driver, const char *name, const void *bytes, size_t len, sl_driver_done_fn *done,
			void *ctx, struct sl_err *err)
{
	struct bad_driver *b = driver;
	int rc = enter(b, BAD_SCHEDULE_PUT, name, err);
	if (rc != 0)
		return rc;
	if (chance(b, b->refuse_share, &b->refused))
		return sl_err_set(err, SL_EAGAIN, "put %s: refused by the test", name);
	struct bad_job *job = calloc(1, sizeof(*job));
	if (job == NULL)
		abort();
	*job = (struct bad_job){.b = b, .bytes = bytes, .len = len, .done = done, .ctx = ctx};
	(void)snprintf(job->name, sizeof(job->name), "%s", name);
	decide(b, job);
	if (job->stores && job->verdict.code == 0 && job->len == len && !b->delay && !b->inside) {
		free(job);
		return b->under.ops->schedule_put(b->under.driver, name, bytes, len, done, ctx, err);
	}
	struct sl_driver_stat st; /* the contract's names are checked by the one beneath */
	if (b->under.ops->stat(b->under.driver, name, &st, err) == SL_EINVAL) {
		free(job);
		return SL_EINVAL;
	}
	if (b->inside && !b->delay)
		finish(job);
	else
		give_job(b, job);
	return 0;
}

static bool is_shard_ready(void *driver, const char *key, size_t len)
{
	struct bad_driver *b = driver;
	(void)key, (void)len;
	(void)pthread_mutex_lock(&b->mu);
	b->asked_ready++;
	bool ready = !b->shards || draw(b) % 2 == 0;
	(void)pthread_mutex_unlock(&b->mu);
	return ready;
}

static bool wait_for_any_shard_ready(void *driver, int64_t timeout_ms)
{
	struct bad_driver *b = driver;
	(void)timeout_ms;
	(void)pthread_mutex_lock(&b->mu);
	b->waited++;
	(void)pthread_mutex_unlock(&b->mu);
	return true;
}

static uint64_t driver_buffered_bytes(void *driver)
{
	return ((struct bad_driver *)driver)->buffered;
}

static void on_concurrency_limit_changed(void *driver, uint32_t concurrency)
{
	struct bad_driver *b = driver;
	(void)pthread_mutex_lock(&b->mu);
	b->concurrency = concurrency;
	(void)pthread_mutex_unlock(&b->mu);
}

/* ---- the others ---- */

static int put(void *driver, const char *name, const void *bytes, size_t len, enum sl_driver_put how,
	       struct sl_err *err)
{
	struct bad_driver *b = driver;
	int rc = enter(b, BAD_PUT, name, err);
	return rc == 0 ? b->under.ops->put(b->under.driver, name, bytes, len, how, err) : rc;
}

static int get(void *driver, const char *name, uint64_t offset, void *buf, size_t len, size_t *got, struct sl_err *err)
{
	struct bad_driver *b = driver;
	int rc = enter(b, BAD_GET, name, err);
	return rc == 0 ? b->under.ops->get(b->under.driver, name, offset, buf, len, got, err) : rc;
}

static int64_t age_of(const struct bad_driver *b, const char *folder, const char *name)
{
	char whole[2 * SL_DRIVER_NAME_BYTES];
	(void)snprintf(whole, sizeof(whole), "%s%s%s", folder, folder[0] != '\0' ? "/" : "", name);
	for (int i = 0; i < b->n_aged; i++)
		if (strcmp(b->aged[i].name, whole) == 0)
			return b->aged[i].ms;
	return 0;
}

static int stat_object(void *driver, const char *name, struct sl_driver_stat *out, struct sl_err *err)
{
	struct bad_driver *b = driver;
	int rc = enter(b, BAD_STAT, name, err);
	if (rc == 0)
		rc = b->under.ops->stat(b->under.driver, name, out, err);
	if (rc == 0)
		out->mtime_ms -= age_of(b, "", name);
	return rc;
}

struct walk {
	struct bad_driver *b;
	const char *folder;
	sl_driver_list_fn *fn;
	void *ctx;
};

static int list_one(const char *name, const struct sl_driver_stat *stat, void *ctx)
{
	struct walk *w = ctx;
	struct sl_driver_stat older = *stat;
	older.mtime_ms -= age_of(w->b, w->folder, name);
	return w->fn(name, &older, w->ctx);
}

static int list(void *driver, const char *folder, sl_driver_list_fn *fn, void *ctx, struct sl_err *err)
{
	struct bad_driver *b = driver;
	struct walk w = {.b = b, .folder = folder, .fn = fn, .ctx = ctx};
	int rc = enter(b, BAD_LIST, folder, err);
	return rc == 0 ? b->under.ops->list(b->under.driver, folder, list_one, &w, err) : rc;
}

static int rename_object(void *driver, const char *from, const char *to, struct sl_err *err)
{
	struct bad_driver *b = driver;
	int rc = enter(b, BAD_RENAME, from, err);
	return rc == 0 ? b->under.ops->rename(b->under.driver, from, to, err) : rc;
}

static int remove_object(void *driver, const char *name, struct sl_err *err)
{
	struct bad_driver *b = driver;
	int rc = enter(b, BAD_REMOVE, name, err);
	return rc == 0 ? b->under.ops->remove(b->under.driver, name, err) : rc;
}

static int sync_all(void *driver, struct sl_err *err)
{
	struct bad_driver *b = driver;
	int rc = enter(b, BAD_SYNC, "", err);
	return rc == 0 ? b->under.ops->sync(b->under.driver, err) : rc;
}

static int now_ms(void *driver, int64_t *out, struct sl_err *err)
{
	struct bad_driver *b = driver;
	int rc = enter(b, BAD_NOW, "", err);
	if (rc == 0)
		rc = b->under.ops->now_ms(b->under.driver, out, err);
	if (rc == 0)
		*out += b->clock_ms;
	return rc;
}

static int lock(void *driver, const char *name, void **held, struct sl_err *err)
{
	struct bad_driver *b = driver;
	int rc = enter(b, BAD_LOCK, name, err);
	return rc == 0 ? b->under.ops->lock(b->under.driver, name, held, err) : rc;
}

static void unlock(void *driver, void *held)
{
	struct bad_driver *b = driver;
	b->under.ops->unlock(b->under.driver, held);
}

static void close_nothing(void *driver)
{
	(void)driver;
}

static const struct sl_driver_ops ops = {
	.version = SL_DRIVER_VERSION,
	.name = "bad",
	.schedule_put = schedule_put,
	.is_shard_ready = is_shard_ready,
	.wait_for_any_shard_ready = wait_for_any_shard_ready,
	.driver_buffered_bytes = driver_buffered_bytes,
	.on_concurrency_limit_changed = on_concurrency_limit_changed,
	.put = put,
	.get = get,
	.stat = stat_object,
	.list = list,
	.rename = rename_object,
	.remove = remove_object,
	.sync = sync_all,
	.now_ms = now_ms,
	.lock = lock,
	.unlock = unlock,
	.close = close_nothing,
};

void bad_driver_init(struct bad_driver *b, const sl_driver *under, uint64_t seed)
{
	*b = (struct bad_driver){.under = *under, .rnd = seed, .fail_code = SL_EIO, .fail_ops = BAD_ALL_OPS};
	(void)pthread_mutex_init(&b->mu, NULL);
	(void)pthread_cond_init(&b->changed, NULL);
}

void bad_driver_fini(struct bad_driver *b)
{
	(void)pthread_mutex_lock(&b->mu);
	b->stop = true;
	(void)pthread_cond_broadcast(&b->changed);
	(void)pthread_mutex_unlock(&b->mu);
	for (int i = 0; b->started && i < BAD_COMPLETERS; i++)
		(void)pthread_join(b->completers[i], NULL);
	(void)pthread_cond_destroy(&b->changed);
	(void)pthread_mutex_destroy(&b->mu);
	sl_driver_close(&b->under);
}

sl_driver bad_driver_handle(struct bad_driver *b)
{
	return (sl_driver){.ops = &ops, .driver = b};
}

void bad_driver_age(struct bad_driver *b, const char *name, int64_t ms)
{
	if (b->n_aged == BAD_AGED_MAX)
		abort();
	(void)snprintf(b->aged[b->n_aged].name, sizeof(b->aged[0].name), "%s", name);
	b->aged[b->n_aged++].ms = ms;
}
