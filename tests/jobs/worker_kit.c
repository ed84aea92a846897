/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/worker_kit.h"
#include "support/quiet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A store's ctx alone does not lead to the kit, and tests run one after another. */
static struct wkit *current;

/* ---- hooks ---- */

static int is_poison(const struct sl_settle *s, const char *poison)
{
	if (poison == NULL)
		return 0;
	return (s->output != NULL && strstr(s->output, poison) != NULL) ||
	       (s->error != NULL && strstr(s->error, poison) != NULL);
}

static int count(struct wkit *k, int *calls, const int *fails)
{
	pthread_mutex_lock(&k->mu);
	(*calls)++;
	int away = k->away || (fails != NULL && *fails);
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->mu);
	return away;
}

static int hook_exchange(void *store, const struct sl_exchange *x, const struct sl_store_scope *scope,
			 struct sl_err *err)
{
	struct wkit *k = current;
	if (count(k, &k->exchanges, NULL))
		return sl_err_set(err, SL_EUNAVAIL, "the store is unavailable");
	pthread_mutex_lock(&k->mu);
	const char *poison = k->poison;
	int lose = (scope == NULL || scope->tx == NULL) && k->lose_answers > 0;
	k->lose_answers -= lose;
	k->most_settles = x->n_settles > k->most_settles ? x->n_settles : k->most_settles;
	pthread_mutex_unlock(&k->mu);
	for (size_t i = 0; i < x->n_settles; i++)
		if (is_poison(&x->settles[i], poison))
			return sl_err_set(err, SL_EDATA, "the store does not take this");
	int rc = k->real.ops->exchange(store, x, scope, err);
	return rc == 0 && lose ? sl_err_set(err, SL_EUNAVAIL, "the answer was lost") : rc;
}

static int hook_renew(void *store, const struct sl_renewal *renewals, size_t n, sl_lost_fn *lost, void *ctx,
		      struct sl_err *err)
{
	struct wkit *k = current;
	if (count(k, &k->renews, &k->renew_away))
		return sl_err_set(err, SL_EUNAVAIL, "the store is unavailable");
	return k->real.ops->renew(store, renewals, n, lost, ctx, err);
}

static int hook_reap(void *store, const struct sl_reap_type *types, size_t n_types, uint32_t limit,
		     struct sl_reaped *out, const struct sl_store_scope *scope, struct sl_err *err)
{
	struct wkit *k = current;
	if (count(k, &k->reaps, NULL))
		return sl_err_set(err, SL_EUNAVAIL, "the store is unavailable");
	return k->real.ops->reap(store, types, n_types, limit, out, scope, err);
}

/* ---- the observer ---- */

static void observe(const struct sl_observation *o, void *ctx)
{
	struct wkit *k = ctx;
	pthread_mutex_lock(&k->mu);
	k->seen[o->kind]++;
	k->last[o->kind] = *o;
	if (o->worker != NULL)
		(void)snprintf(k->last_worker[o->kind], sizeof(k->last_worker[0]), "%s", o->worker);
	if (o->err != NULL)
		(void)snprintf(k->last_error[o->kind], sizeof(k->last_error[0]), "%s", o->err->msg);
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->mu);
}

static void await(struct wkit *k, const int *field, int n, const char *what)
{
	struct timespec until;
	(void)clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 60;
	pthread_mutex_lock(&k->mu);
	int rc = 0;
	while (*field < n && rc == 0)
		rc = pthread_cond_timedwait(&k->changed, &k->mu, &until);
	int got = *field;
	pthread_mutex_unlock(&k->mu);
	if (got < n)
		fail_msg("awaited %d of %s, and saw %d", n, what, got);
}

void wkit_await(struct wkit *k, enum sl_observe_kind kind, int n)
{
	await(k, &k->seen[kind], n, sl_observe_name(kind));
}

void wkit_await_field(struct wkit *k, const int *field, int n)
{
	await(k, field, n, "a field");
}

int wkit_get(struct wkit *k, const int *field)
{
	pthread_mutex_lock(&k->mu);
	int value = *field;
	pthread_mutex_unlock(&k->mu);
	return value;
}

int wkit_seen(struct wkit *k, enum sl_observe_kind kind)
{
	return wkit_get(k, &k->seen[kind]);
}

/* ---- the log ---- */

static void keep_warning(const struct sl_log_record *record, void *ctx)
{
	struct wkit *k = ctx;
	char line[512];
	if (record->level < SL_LOG_WARN)
		return;
	(void)sl_log_format(record, SL_LOG_LOGFMT, line, sizeof(line));
	pthread_mutex_lock(&k->mu);
	size_t n = strlen(k->warned);
	(void)snprintf(k->warned + n, sizeof(k->warned) - n, "%s\n", line);
	pthread_mutex_unlock(&k->mu);
}

int wkit_warned(struct wkit *k, const char *text)
{
	pthread_mutex_lock(&k->mu);
	int found = strstr(k->warned, text) != NULL;
	pthread_mutex_unlock(&k->mu);
	return found;
}

/* ---- fixtures ---- */

static struct wkit *make(void)
{
	struct wkit *k = calloc(1, sizeof(*k));
	vclock_init(&k->clock);
	pthread_mutex_init(&k->mu, NULL);
	pthread_cond_init(&k->changed, NULL);
	assert_int_equal(sl_metrics_new(&k->metrics, NULL, NULL), 0);
	assert_int_equal(sl_notify_local_open(&k->notify, NULL, NULL), 0);
	assert_int_equal(sl_job_types_new(&k->types, NULL, NULL), 0);
	current = k;
	return k;
}

static int finish(struct wkit *k, void **state)
{
	k->ops = *k->real.ops;
	k->ops.exchange = hook_exchange;
	k->ops.renew = hook_renew;
	k->ops.reap = hook_reap;
	k->store = (sl_store){.ops = &k->ops, .ctx = k->real.ctx};
	struct sl_jobs_opts opts = {SL_JOBS_OPTS_INIT, .store = &k->real, .notify = &k->notify};
	OK(sl_jobs_open(&k->client, &opts, &err));
	*state = k;
	return 0;
}

int wkit_memory(void **state)
{
	struct wkit *k = make();
	k->env = (struct sl_env){SL_ENV_INIT,           .clock = &vclock_table, .clock_ctx = &k->clock,
				 .metrics = k->metrics, .log = keep_warning,    .log_ctx = k};
	k->ms = memstore_new(&k->env);
	k->real = memstore_handle(k->ms);
	return finish(k, state);
}

int wkit_sqlite(void **state)
{
	struct wkit *k = make();
	k->env = (struct sl_env){SL_ENV_INIT, .metrics = k->metrics};
	assert_int_equal(sqlite_place_init(&k->place), 0);
	OK(sl_store_sqlite_open(&k->real, k->place.path, NULL, &err));
	return finish(k, state);
}

int wkit_gone(void **state)
{
	struct wkit *k = *state;
	sl_jobs_close(k->client);
	sl_notify_close(&k->notify);
	sl_store_close(&k->real);
	if (k->ms != NULL)
		memstore_free(k->ms);
	else
		sqlite_place_fini(&k->place);
	sl_job_types_free(k->types);
	sl_metrics_free(k->metrics);
	vclock_fini(&k->clock);
	pthread_mutex_destroy(&k->mu);
	pthread_cond_destroy(&k->changed);
	free(k);
	return 0;
}

/* ---- doing ---- */

struct sl_worker_opts wkit_opts(struct wkit *k, const struct sl_processor *p, size_t n)
{
	return (struct sl_worker_opts){
		SL_WORKER_OPTS_INIT, .env = &k->env,   .store = &k->store, .notify = k->no_notify ? NULL : &k->notify,
		.observe = observe,  .observe_ctx = k, .worker_id = "w1",  .processors = p,
		.n_processors = n};
}

sl_worker *wkit_worker(struct wkit *k, const struct sl_worker_opts *opts)
{
	sl_worker *w = NULL;
	(void)k;
	OK(sl_worker_new(&w, opts, &err));
	OK(sl_worker_start(w, &err));
	return w;
}

void wkit_end(sl_worker *w)
{
	OK(sl_worker_stop(w, SL_UNLIMITED, &err));
	sl_worker_free(w);
}

uint64_t wkit_start(struct wkit *k, const char *type, const char *input)
{
	struct sl_started out = {0};
	const struct sl_new_chain chain = {.job = {.type = type, .input = input}};
	OK(sl_jobs_enqueue(k->client, NULL, &chain, &out, &err));
	return out.chain_id;
}

enum sl_job_status wkit_wait(struct wkit *k, uint64_t id)
{
	struct sl_chain *chain = NULL;
	OK(sl_jobs_wait(k->client, id, 60000, &chain, &err));
	enum sl_job_status status = chain->status;
	sl_chain_release(k->client, chain);
	return status;
}

struct sl_job *wkit_job(struct wkit *k, uint64_t id)
{
	struct sl_job *job = NULL;
	OK(sl_jobs_get(k->client, id, &job, &err));
	return job;
}

struct tally {
	enum sl_attempt_outcome outcome;
	int n;
};

static int tally(const struct sl_attempt_record *record, void *ctx)
{
	struct tally *t = ctx;
	t->n += record->outcome == t->outcome;
	return 0;
}

int wkit_attempts(struct wkit *k, uint64_t id, enum sl_attempt_outcome outcome)
{
	struct tally t = {.outcome = outcome};
	OK(sl_jobs_attempts(k->client, id, tally, &t, &err));
	return t.n;
}

void wkit_advance(struct wkit *k, int64_t ms)
{
	vclock_advance_ms(&k->clock, ms);
}

void wkit_step(struct wkit *k, enum sl_observe_kind kind, int n, int64_t step_ms, int64_t max_ms)
{
	for (int64_t ms = 0; ms < max_ms; ms += step_ms) {
		quiet_await();
		if (wkit_seen(k, kind) >= n)
			return;
		wkit_advance(k, step_ms);
	}
	wkit_await(k, kind, n);
}

/* ---- handlers ---- */

void wkit_arrive(struct wkit *k)
{
	pthread_mutex_lock(&k->mu);
	k->arrived++;
	k->inside++;
	k->most_inside = k->inside > k->most_inside ? k->inside : k->most_inside;
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->mu);
}

void wkit_leave(struct wkit *k)
{
	pthread_mutex_lock(&k->mu);
	k->inside--;
	k->left++;
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->mu);
}

void wkit_pass(struct wkit *k)
{
	pthread_mutex_lock(&k->mu);
	while (!k->open)
		pthread_cond_wait(&k->changed, &k->mu);
	pthread_mutex_unlock(&k->mu);
}

int wkit_noop(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)a;
	(void)err;
	(void)ctx;
	return 0;
}

int wkit_gate(sl_attempt *a, struct sl_err *err, void *ctx)
{
	wkit_arrive(ctx);
	wkit_pass(ctx);
	int rc = sl_attempt_complete(a, "true", err);
	wkit_leave(ctx);
	return rc;
}

int wkit_abort(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)err;
	wkit_arrive(ctx);
	(void)sl_attempt_wait_abort(a, SL_UNLIMITED);
	wkit_leave(ctx);
	return 0;
}

int wkit_fail(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)a;
	(void)ctx;
	return sl_err_set(err, SL_EIO, "it broke");
}
