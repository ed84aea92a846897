/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/client_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- hooks that count ---- */

/* A store's ctx alone does not lead to the world, and tests run one after another. */
static struct world *current;

static int hook_start(void *store, const struct sl_new_chain *chains, size_t n, const struct sl_store_scope *scope,
		      struct sl_started *out, struct sl_err *err)
{
	current->starts++;
	if ((int)n > current->max_bite)
		current->max_bite = (int)n;
	return current->real.ops->start(store, chains, n, scope, out, err);
}

static int hook_list(void *store, const struct sl_job_filter *filter, sl_job_fn *fn, void *ctx, struct sl_err *err)
{
	current->lists++;
	return current->real.ops->list_jobs(store, filter, fn, ctx, err);
}

/* ---- the notifier ---- */

static void remember(struct world *w, const struct sl_note *note)
{
	if (w->n_notes == WORLD_NOTES)
		return;
	struct world_note *to = &w->notes[w->n_notes++];
	*to = (struct world_note){.kind = note->kind, .id = note->id, .reason = note->reason};
	(void)snprintf(to->type, sizeof(to->type), "%s", note->type != NULL ? note->type : "");
}

static int publish(void *notify, const struct sl_note *notes, size_t n, struct sl_err *err)
{
	struct world *w = notify;
	pthread_mutex_lock(&w->mu);
	w->publishes++;
	for (size_t i = 0; i < n; i++)
		remember(w, &notes[i]);
	int fails = w->fails;
	for (int s = 0; s < w->subscriptions && !w->drop && !fails; s++)
		for (size_t i = 0; i < n; i++)
			w->fn[s](&notes[i], w->fn_ctx[s]);
	pthread_mutex_unlock(&w->mu);
	return fails ? sl_err_set(err, SL_EUNAVAIL, "the notifier is unavailable") : 0;
}

int world_publish_in(void *notify, sl_store_tx *tx, const struct sl_note *notes, size_t n, struct sl_err *err)
{
	struct world *w = notify;
	assert_non_null(tx);
	w->publishes_in++;
	for (size_t i = 0; i < n; i++)
		remember(w, &notes[i]);
	return w->fails ? sl_err_set(err, SL_EUNAVAIL, "the notifier is unavailable") : 0;
}

static int subscribe(void *notify, sl_note_fn *fn, void *ctx, struct sl_err *err)
{
	struct world *w = notify;
	if (w->fails)
		return sl_err_set(err, SL_EUNAVAIL, "the notifier is unavailable");
	pthread_mutex_lock(&w->mu);
	w->fn[w->subscriptions] = fn;
	w->fn_ctx[w->subscriptions++] = ctx;
	w->subscribed_ever++;
	pthread_mutex_unlock(&w->mu);
	return 0;
}

static void unsubscribe(void *notify, sl_note_fn *fn, void *ctx)
{
	struct world *w = notify;
	pthread_mutex_lock(&w->mu);
	for (int i = 0; i < w->subscriptions; i++)
		if (w->fn[i] == fn && w->fn_ctx[i] == ctx) {
			w->subscriptions--;
			w->fn[i] = w->fn[w->subscriptions];
			w->fn_ctx[i] = w->fn_ctx[w->subscriptions];
			break;
		}
	pthread_mutex_unlock(&w->mu);
}

static int healthy(void *notify)
{
	return ((struct world *)notify)->healthy;
}

static void observe(const struct sl_observation *o, void *ctx)
{
	struct world *w = ctx;
	if (w->n_seen < WORLD_NOTES)
		w->seen[w->n_seen++] = *o;
}

/* ---- fixtures ---- */

static struct world *make(const struct sl_env *base)
{
	struct world *w = calloc(1, sizeof(*w));
	vclock_init(&w->clock);
	pthread_mutex_init(&w->mu, NULL);
	fault_init(&w->fault, base);
	w->healthy = 1;
	w->notify_ops = (struct sl_notify_ops){.version = SL_NOTIFY_VERSION,
					       .name = "fake",
					       .publish = publish,
					       .subscribe = subscribe,
					       .unsubscribe = unsubscribe,
					       .healthy = healthy};
	w->notify = (sl_notify){.ops = &w->notify_ops, .ctx = w};
	assert_int_equal(sl_metrics_new(&w->metrics, NULL, NULL), 0);
	current = w;
	return w;
}

static int finish(struct world *w, void **state)
{
	w->ops = *w->real.ops;
	w->ops.start = hook_start;
	w->ops.list_jobs = hook_list;
	w->store = (sl_store){.ops = &w->ops, .ctx = w->real.ctx};
	world_open(w);
	*state = w;
	return 0;
}

int world_memory(void **state)
{
	struct world *w = make(NULL);
	struct sl_env env = {SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &w->clock};
	w->env = fault_env(&w->fault, &env);
	w->ms = memstore_new(&env);
	w->real = memstore_handle(w->ms);
	return finish(w, state);
}

int world_sqlite(void **state)
{
	struct world *w = make(NULL);
	struct sl_err err = SL_ERR_INIT;
	w->env = fault_env(&w->fault, NULL);
	assert_int_equal(sqlite_place_init(&w->place), 0);
	if (sl_store_sqlite_open(&w->real, w->place.path, NULL, &err) != 0)
		fail_msg("%s", err.msg);
	return finish(w, state);
}

int world_gone(void **state)
{
	struct world *w = *state;
	sl_jobs_close(w->client);
	assert_int_equal(w->subscriptions, 0);
	assert_int_equal(fault_live_allocs(&w->fault), 0);
	if (w->ms != NULL) {
		memstore_free(w->ms);
	} else {
		w->real.ops->close(w->real.ctx);
		sqlite_place_fini(&w->place);
	}
	sl_job_types_free(w->types);
	sl_metrics_free(w->metrics);
	fault_fini(&w->fault);
	vclock_fini(&w->clock);
	pthread_mutex_destroy(&w->mu);
	free(w);
	return 0;
}

void world_open(struct world *w)
{
	sl_jobs_close(w->client);
	w->client = NULL;
	w->env.metrics = w->metrics;
	struct sl_jobs_opts opts = {SL_JOBS_OPTS_INIT, .env = &w->env,     .store = &w->store, .notify = &w->notify,
				    .types = w->types, .observe = observe, .observe_ctx = w};
	OK(sl_jobs_open(&w->client, &opts, &err));
}

/* ---- short names ---- */

uint64_t world_start(struct world *w, sl_tx *tx, const char *type, const char *input)
{
	struct sl_new_chain chain = {.job = {.type = type, .input = input}};
	struct sl_started started = {0};
	OK(sl_jobs_enqueue(w->client, tx, &chain, &started, &err));
	assert_true(started.chain_id != 0);
	return started.chain_id;
}

int world_seen(const struct world *w, enum sl_observe_kind kind)
{
	int n = 0;
	for (int i = 0; i < w->n_seen; i++)
		n += w->seen[i].kind == kind;
	return n;
}

int world_noted(const struct world *w, enum sl_note_kind kind, uint64_t id)
{
	int n = 0;
	for (int i = 0; i < w->n_notes; i++)
		n += w->notes[i].kind == kind && (id == 0 || w->notes[i].id == id);
	return n;
}

void world_forget(struct world *w)
{
	w->n_notes = w->publishes = w->publishes_in = w->n_seen = w->starts = w->lists = 0;
}

static int count(const struct sl_job_count *c, void *ctx)
{
	*(uint64_t *)ctx += c->count;
	return 0;
}

uint64_t world_jobs(struct world *w)
{
	uint64_t n = 0;
	OK(sl_jobs_counts(w->client, count, &n, &err));
	return n;
}

static int ignore(const struct sl_claimed_job *job, void *ctx)
{
	(void)job;
	(void)ctx;
	return 0;
}

void world_claim(struct world *w, const char *type)
{
	struct sl_claim_type types = {.type = type, .limit = 100};
	struct sl_claim_request request = {
		.claim = {{1}}, .worker = "w1", .types = &types, .n_types = 1, .limit = 100, .lease_ms = 3600000};
	struct sl_claim_reply reply = {0};
	OK(w->real.ops->exchange(w->real.ctx,
				 &(struct sl_exchange){.request = &request, .reply = &reply, .claimed = ignore}, NULL,
				 &err));
	assert_true(reply.n > 0);
}
