/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client: enqueue, change, pause, prune, schedule and audit.
 *
 *  C1  Every argument is checked here, before a store sees it.
 *  C2  Notifications and observations go out after the commit: immediately for a call that runs in its own
 *      transaction, with the commit of the sl_tx otherwise.
 *  C3  Only a call in its own transaction is retried; a caller's transaction that was aborted is the caller's to retry.
 */
#include "jobs/client/client.h"
#include "base/buf.h"
#include "base/utf8.h"
#include "jobs/cron/cron.h"

#include <inttypes.h>
#include <stdlib.h>

/* Chains go to the store in batches of at most this many, and of about this many bytes of JSON. */
#define BATCH_CHAINS 10000
#define BATCH_BYTES ((size_t)32 << 20)
#define PRUNE_BATCH 1000
#define TRIES 5    /* of a transaction that the database aborts in favour of others */
#define PAUSE_MS 5 /* before the second try, doubled for each further one */

/* ---- open and close ---- */

int sl_jobs_open(sl_jobs **out, const struct sl_jobs_opts *opts, struct sl_err *err)
{
	struct sl_jobs_opts o;
	struct sl__home home;
	sl__opts_copy(&o, sizeof(o), opts);
	const struct sl__home_opts home_opts = {.what = "jobs client",
						.env = o.env,
						.store = o.store,
						.notify = o.notify,
						.observe = o.observe,
						.observe_ctx = o.observe_ctx};
	int rc = sl__home_init(&home, &home_opts, err);
	if (rc != 0)
		return rc;
	if (o.audit != NULL && (o.audit->actor == NULL || o.audit->action == NULL))
		return sl_err_set(err, SL_EINVAL, "jobs client options: audit: actor or action is missing");
	if (o.wait_poll_ms < 0)
		return sl_err_set(err, SL_EINVAL, "jobs client options: wait_poll_ms is %lld; give 1 or more",
				  (long long)o.wait_poll_ms);
	sl_jobs *client = sl__calloc(&home.env, 1, sizeof(*client));
	if (client == NULL)
		return sl_err_set(err, SL_ENOMEM, "jobs client: no memory");
	client->home = home;
	client->types = o.types;
	client->wait_poll_ms = o.wait_poll_ms;
	client->audit = o.audit;
	client->n_audit = o.audit == NULL ? 0 : o.n_audit == 0 ? 1 : o.n_audit;
	sl__mutex_init(&client->mu);
	sl__mutex_init(&client->subscribe_mu);
	*out = client;
	return 0;
}

void sl_jobs_close(sl_jobs *client)
{
	if (client == NULL)
		return;
	/* In a forked child the notifier's threads and locks are not ours to touch. */
	if (sl__home_check(&client->home, NULL) == 0)
		sl__jobs_unsubscribe(client);
	sl__mutex_fini(&client->mu);
	sl__mutex_fini(&client->subscribe_mu);
	struct sl_env env = client->home.env;
	sl__free(&env, client);
}

int sl_jobs_begin(sl_jobs *client, sl_tx **out, struct sl_err *err)
{
	return sl__tx_begin(&client->home, NULL, false, out, err);
}

int sl_jobs_join(sl_jobs *client, void *native, sl_tx **out, struct sl_err *err)
{
	if (native == NULL)
		return sl_err_set(err, SL_EINVAL, "join: native is NULL");
	return sl__tx_begin(&client->home, native, false, out, err);
}

/* ---- one call ---- */

/* One call of the client: where it runs, and what it collects. client, tx and chains are set by the caller. */
struct call {
	sl_jobs *client;
	sl_tx *tx;            /* NULL: it runs in its own transaction */
	struct sl_ids chains; /* that it changes, for its audit record; none: the record stays as the client has it */

	const struct sl_store_ops *ops;
	void *store;
	const struct sl_store_scope *scope;
	struct sl_audit_record record; /* the client's, with the chains of this call */
	unsigned tries;
	struct sl_err err, *out; /* of the last try; the caller's, or NULL */
	struct sl__effects fx;   /* of a call in its own transaction */
};

static int begin_call(struct call *c, struct sl_err *err)
{
	const struct sl_audit_record *audit = c->client->audit;
	size_t n_audit = c->client->n_audit;
	int rc = sl__home_check(&c->client->home, err);
	if (rc != 0)
		return rc;
	rc = c->tx != NULL ? sl__tx_check(c->tx, &c->client->home, err) : 0;
	if (rc != 0)
		return rc;
	c->ops = c->client->home.store.ops;
	c->store = c->client->home.store.ctx;
	c->out = err;
	if (audit != NULL && c->chains.n > 0) {
		c->record = *audit;
		c->record.chains = c->chains.ids;
		c->record.n_chains = c->chains.n;
		audit = &c->record;
	}
	if (c->tx != NULL) {
		c->scope = sl__tx_scope(c->tx, audit, n_audit);
		return 0;
	}
	sl__effects_init(&c->fx, &c->client->home);
	c->fx.scope.audit = audit;
	c->fx.scope.n_audit = n_audit;
	c->scope = &c->fx.scope;
	return 0;
}

/* Was it a deadlock, or another failure that aborts a whole transaction and passes? Only the database can report that,
 * by an SQLSTATE. Then true after a pause, in which the other transaction gets its locks. */
static bool is_transient(const struct sl_env *env, int rc, const struct sl_err *err, unsigned *tries)
{
	sl__mutex mu;
	sl__cond never;
	if (rc != SL_EAGAIN || err->sqlstate[0] == '\0' || ++*tries >= TRIES)
		return false;
	sl__mutex_init(&mu);
	sl__cond_init(&never);
	int64_t until_ns = sl__deadline_ns(env, PAUSE_MS << *tries);
	sl__lock(&mu);
	while (sl__wait(env, &never, &mu, until_ns))
		continue;
	sl__unlock(&mu);
	sl__cond_fini(&never);
	sl__mutex_fini(&mu);
	return true;
}

/* Whether the call is to be made again (C3); then what it collected is forgotten. */
static bool retry_call(struct call *c, int rc)
{
	if (c->tx != NULL || !is_transient(&c->client->home.env, rc, &c->err, &c->tries))
		return false;
	sl__notes_clear(&c->fx.notes);
	c->fx.n = 0;
	return true;
}

static int end_call(struct call *c, int rc)
{
	if (rc != 0 && c->out != NULL)
		*c->out = c->err;
	if (c->tx == NULL)
		sl__effects_end(&c->fx, rc == 0);
	return rc;
}

/* ---- enqueueing ---- */

/* What one sl_jobs_enqueue_many was given. */
struct enqueue {
	sl_jobs *client;
	const struct sl_new_chain *chains;
	size_t n;
	struct sl_started *out;
};

int sl_jobs_enqueue(sl_jobs *client, sl_tx *tx, const struct sl_new_chain *chain, struct sl_started *out,
		    struct sl_err *err)
{
	return sl_jobs_enqueue_many(client, tx, chain, 1, out, err);
}

/* How many of the chains make the next batch: at least one. */
static size_t batch_length(const struct sl_new_chain *chains, size_t n)
{
	size_t bytes = 0, i = 0;
	while (i < n && i < BATCH_CHAINS && bytes < BATCH_BYTES) {
		const char *input = chains[i++].job.input;
		bytes += input != NULL ? strnlen(input, BATCH_BYTES) : 0;
	}
	return i;
}

static int start_notification(const char *type, struct sl_start_notification *out, void *ctx)
{
	const struct sl__effects *fx = ctx;
	const sl_notify *notify = fx->home->notify;
	return notify->ops->start_notification(notify->ctx, type, out);
}

/* With more than one batch tx is open, and the caller undoes a part. */
static int enqueue_in(const struct enqueue *e, sl_tx *tx, struct sl_err *err)
{
	const struct sl__home *home = &e->client->home;
	struct sl_new_chain one, *checked = &one;
	struct call c = {.client = e->client, .tx = tx};
	int rc = begin_call(&c, err);
	if (rc != 0)
		return rc;
	if (e->n > 1)
		checked = sl__alloc(&home->env, SL_MIN(e->n, BATCH_CHAINS) * sizeof(*checked));
	if (checked == NULL)
		return end_call(&c, sl_err_set(&c.err, SL_ENOMEM, "enqueue %zu chains: no memory", e->n));
	/* For a single chain in its own transaction the store may send the notification itself. */
	if (e->n == 1 && tx == NULL && home->notify != NULL && home->notify->ops->start_notification != NULL)
		c.fx.scope.start_notification = start_notification;
	do {
		/* Check and insert every chain through one buffer, a batch at a time. */
		rc = 0;
		for (size_t from = 0, n; rc == 0 && from < e->n; from += n) {
			n = batch_length(e->chains + from, e->n - from);
			for (size_t i = 0; rc == 0 && i < n; i++) {
				rc = sl__new_chain_check(e->client->types, &home->env, &e->chains[from + i],
							 &checked[i], &c.err);
				if (rc != 0 && e->n > 1)
					rc = sl_err_wrap(&c.err, rc, "chains[%zu]", from + i);
			}
			if (rc == 0)
				rc = c.ops->start(c.store, checked, n, c.scope, e->out + from, &c.err);
		}
	} while (retry_call(&c, rc));
	if (checked != &one)
		sl__free(&home->env, checked);
	return end_call(&c, rc);
}

int sl_jobs_enqueue_many(sl_jobs *client, sl_tx *tx, const struct sl_new_chain *chains, size_t n,
			 struct sl_started *out, struct sl_err *err)
{
	static const char savepoint[] = "sl_start_many";
	const struct enqueue e = {client, chains, n, out};
	struct sl_err last = SL_ERR_INIT;
	unsigned tries = 0;
	int rc;
	if (n == 0)
		return sl__home_check(&client->home, err);
	if (batch_length(chains, n) == n)
		return enqueue_in(&e, tx, err);
	if (tx != NULL) {
		/* Several batches in the caller's transaction: all or none, whatever it does with it afterwards. */
		rc = sl__tx_check(tx, &client->home, err);
		if (rc == 0)
			rc = sl_tx_savepoint(tx, savepoint, err);
		if (rc != 0)
			return rc;
		rc = enqueue_in(&e, tx, err);
		if (rc == 0)
			return sl_tx_release(tx, savepoint, err);
		if (sl_tx_rollback_to(tx, savepoint, NULL) == 0)
			(void)!sl_tx_release(tx, savepoint, NULL);
		return rc;
	}
	/* Several batches in a new transaction. */
	do {
		rc = sl__tx_begin(&client->home, NULL, false, &tx, &last);
		if (rc != 0)
			break;
		rc = enqueue_in(&e, tx, &last);
		if (rc == 0)
			rc = sl__tx_commit(tx, &last);
		else
			sl__tx_rollback(tx);
	} while (is_transient(&client->home.env, rc, &last, &tries));
	if (rc != 0 && err != NULL)
		*err = last;
	return rc;
}

/* ---- enqueueing once ---- */

#define ONCE_KEY_MAX 1000
#define ONCE_KEEP_MS INT64_C(86400000)

/* The kept answer is "17,18d": ids in the order of the request, with a d where the chain existed already. */
static int read_results(const char *answer, void *ctx)
{
	const struct sl_once *once = ctx;
	for (size_t i = 0; i < once->n_chains; i++) {
		char *end;
		unsigned long long id = strtoull(answer, &end, 10);
		if (end == answer)
			return SL_ECORRUPT;
		once->out[i] = (struct sl_started){.chain_id = id, .deduplicated = *end == 'd'};
		answer = end + (*end == 'd');
		answer += *answer == ',';
	}
	return *answer == '\0' ? 0 : SL_ECORRUPT;
}

/* The results are those of an earlier call, or of this one, and are kept. The transaction is open. */
static int enqueue_or_repeat(sl_jobs *client, struct sl_once *once, sl_tx *tx, struct sl_err *err)
{
	const struct sl__home *home = &client->home;
	const struct sl_store_ops *ops = home->store.ops;
	struct sl_kept_answer kept = {.fn = read_results, .ctx = once};
	struct sl__buf text SL_CLEANUP(sl__buf_fini);
	sl__buf_init(&text, &home->env);
	int rc = ops->request_take(home->store.ctx, sl__tx_store(tx), once, &kept, err);
	if (rc == SL_ECORRUPT)
		rc = sl_err_set(err, rc, "the answer that is kept for the key is not one of this request");
	once->again = kept.found;
	if (rc != 0 || kept.found)
		return rc;
	rc = sl_jobs_enqueue_many(client, tx, once->chains, once->n_chains, once->out, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < once->n_chains; i++)
		(void)sl__buf_printf(&text, "%s%" PRIu64 "%s", i > 0 ? "," : "", once->out[i].chain_id,
				     once->out[i].deduplicated ? "d" : "");
	if (text.failed != 0)
		return sl_err_set(err, SL_ENOMEM, "enqueue once: no memory");
	return ops->request_answer(home->store.ctx, sl__tx_store(tx), once->key, sl__buf_str(&text), err);
}

int sl_jobs_enqueue_once(sl_jobs *client, struct sl_once *once, struct sl_err *err)
{
	struct sl_err last = SL_ERR_INIT;
	unsigned tries = 0;
	sl_tx *tx;
	int rc;
	if (once->key == NULL || *once->key == '\0' || strlen(once->key) > ONCE_KEY_MAX || !sl__utf8_valid(once->key))
		return sl_err_set(err, SL_EINVAL, "once: key must be 1 to %d bytes of UTF-8", ONCE_KEY_MAX);
	if (once->keep_ms < 0)
		return sl_err_set(err, SL_EINVAL, "once: keep_ms is negative");
	if (once->keep_ms == 0)
		once->keep_ms = ONCE_KEEP_MS;
	do {
		rc = sl__tx_begin(&client->home, NULL, false, &tx, &last);
		if (rc != 0)
			break;
		rc = enqueue_or_repeat(client, once, tx, &last);
		if (rc == 0)
			rc = sl__tx_commit(tx, &last);
		else
			sl__tx_rollback(tx);
	} while (is_transient(&client->home.env, rc, &last, &tries));
	if (rc != 0 && err != NULL)
		*err = last;
	return rc;
}

/* ---- changing chains ---- */

static int keep_type(const struct sl_chain *chain, void *ctx)
{
	char *type = ctx;
	(void)strncpy(type, chain->at_type != NULL ? chain->at_type : chain->type, SL__JOB_TYPE_BYTES);
	return 0;
}

int sl_jobs_complete(sl_jobs *client, sl_tx *tx, uint64_t chain_id, const char *output, struct sl_err *err)
{
	struct call c = {.client = client, .tx = tx, .chains = {&chain_id, 1}};
	char type[SL__JOB_TYPE_BYTES + 1] = "";
	int rc = begin_call(&c, err);
	if (rc != 0)
		return rc;
	/* The output must suit the type that the chain is at. */
	if (client->types != NULL)
		rc = c.ops->get_chain(c.store, c.scope->tx, chain_id, keep_type, type, &c.err);
	if (rc == 0)
		rc = sl__job_output_check(client->types, type, output, &c.err);
	if (rc != 0)
		return end_call(&c, rc);
	do
		rc = c.ops->complete_chain(c.store, chain_id, output != NULL ? output : "null", c.scope, &c.err);
	while (retry_call(&c, rc));
	return end_call(&c, rc);
}

int sl_jobs_fail(sl_jobs *client, sl_tx *tx, uint64_t chain_id, const char *error, struct sl_err *err)
{
	struct call c = {.client = client, .tx = tx, .chains = {&chain_id, 1}};
	if (error != NULL && !sl__utf8_valid(error))
		return sl_err_set(err, SL_EDATA, "error is not valid UTF-8");
	int rc = begin_call(&c, err);
	if (rc != 0)
		return rc;
	do
		rc = c.ops->fail_chain(c.store, chain_id, error, c.scope, &c.err);
	while (retry_call(&c, rc));
	return end_call(&c, rc);
}

typedef int change_fn(void *store, struct sl_ids chains, const struct sl_store_scope *scope, size_t *n,
		      struct sl_err *err);

/* Change the chains of the call; *n (may be NULL) of them were changed. */
static int change_chains(struct call *c, change_fn *change, size_t *n, struct sl_err *err)
{
	size_t changed = 0;
	int rc = begin_call(c, err);
	if (rc != 0)
		return rc;
	do
		rc = c->chains.n > 0 ? change(c->store, c->chains, c->scope, &changed, &c->err) : 0;
	while (retry_call(c, rc));
	if (rc == 0 && n != NULL)
		*n = changed;
	return end_call(c, rc);
}

int sl_jobs_cancel(sl_jobs *client, sl_tx *tx, const uint64_t *chains, size_t n_chains, size_t *n, struct sl_err *err)
{
	struct call c = {.client = client, .tx = tx, .chains = {chains, n_chains}};
	return change_chains(&c, client->home.store.ops->cancel, n, err);
}

int sl_jobs_redrive(sl_jobs *client, sl_tx *tx, const uint64_t *chains, size_t n_chains, size_t *n, struct sl_err *err)
{
	struct call c = {.client = client, .tx = tx, .chains = {chains, n_chains}};
	return change_chains(&c, client->home.store.ops->redrive, n, err);
}

int sl_jobs_trigger(sl_jobs *client, sl_tx *tx, const uint64_t *chains, size_t n_chains, size_t *n, struct sl_err *err)
{
	struct call c = {.client = client, .tx = tx, .chains = {chains, n_chains}};
	return change_chains(&c, client->home.store.ops->trigger, n, err);
}

int sl_jobs_delete(sl_jobs *client, sl_tx *tx, const uint64_t *chains, size_t n_chains, bool cascade, size_t *n,
		   struct sl_err *err)
{
	struct call c = {.client = client, .tx = tx, .chains = {chains, n_chains}};
	size_t deleted = 0;
	int rc = begin_call(&c, err);
	if (rc != 0)
		return rc;
	do
		rc = n_chains > 0 ? c.ops->remove(c.store, c.chains, cascade, c.scope, &deleted, &c.err) : 0;
	while (retry_call(&c, rc));
	if (rc == 0 && n != NULL)
		*n = deleted;
	return end_call(&c, rc);
}

static int pause_type(sl_jobs *client, const char *type, bool paused, struct sl_err *err)
{
	struct call c = {.client = client};
	int rc = sl__job_name_check(type, "type", err);
	if (rc != 0)
		return rc;
	rc = begin_call(&c, err);
	if (rc != 0)
		return rc;
	do
		rc = c.ops->pause(c.store, type, paused, c.scope, &c.err);
	while (retry_call(&c, rc));
	return end_call(&c, rc);
}

int sl_jobs_pause(sl_jobs *client, const char *type, struct sl_err *err)
{
	return pause_type(client, type, true, err);
}

int sl_jobs_resume(sl_jobs *client, const char *type, struct sl_err *err)
{
	return pause_type(client, type, false, err);
}

/* ---- pruning ---- */

enum prunable { PRUNE_CHAINS, PRUNE_AUDIT };

/* Delete what is older than keep_ms, a batch per transaction; *n (may be NULL) counts also what was deleted before a
 * failure. */
static int prune(sl_jobs *client, enum prunable what, int64_t keep_ms, uint64_t *n, struct sl_err *err)
{
	const sl_store *store = &client->home.store;
	const struct sl_store_scope scope = {.audit = client->audit, .n_audit = client->n_audit};
	int64_t now_ms = 0;
	uint64_t total = 0;
	int rc;
	if (n != NULL)
		*n = 0;
	if (keep_ms < 0 || keep_ms > SL__JOB_TIME_MAX_MS)
		return sl_err_set(err, SL_EINVAL, "keep_ms is %lld; give 0 or more", (long long)keep_ms);
	rc = store->ops->now_ms(store->ctx, &now_ms, err);
	for (size_t deleted = 1; rc == 0 && deleted > 0; total += deleted) {
		deleted = 0;
		if (what == PRUNE_CHAINS)
			rc = store->ops->prune(store->ctx, now_ms - keep_ms, PRUNE_BATCH, &scope, &deleted, err);
		else
			rc = store->ops->audit_prune(store->ctx, now_ms - keep_ms, PRUNE_BATCH, &deleted, err);
	}
	if (n != NULL)
		*n = total;
	return rc;
}

int sl_jobs_prune(sl_jobs *client, int64_t keep_ms, uint64_t *n, struct sl_err *err)
{
	int rc = sl__home_check(&client->home, err);
	if (rc != 0)
		return rc;
	return prune(client, PRUNE_CHAINS, keep_ms, n, err);
}

/* ---- schedules ---- */

int sl_jobs_cron_put(sl_jobs *client, const struct sl_cron *cron, struct sl_err *err)
{
	const sl_store *store = &client->home.store;
	const struct sl_store_scope scope = {.audit = client->audit, .n_audit = client->n_audit};
	struct sl_cron full;
	int64_t now_ms;
	sl__opts_copy(&full, sizeof(full), cron);
	struct sl_new_job job = {.type = full.type, .input = full.input, .priority = full.priority};
	int rc = sl__home_check(&client->home, err);
	if (rc != 0)
		return rc;
	rc = sl__job_name_check(full.name, "name", err);
	if (rc != 0)
		return rc;
	if (full.spec == NULL)
		return sl_err_set(err, SL_EINVAL, "spec is missing");
	rc = sl__new_job_check(client->types, &client->home.env, &job, &job, err);
	if (rc != 0)
		return rc;
	rc = store->ops->now_ms(store->ctx, &now_ms, err);
	if (rc != 0)
		return rc;
	rc = sl_cron_next(full.spec, now_ms, &full.next_ms, err);
	if (rc != 0)
		return rc;
	if (full.paused)
		full.next_ms = 0;
	full.input = job.input;
	full.priority = job.priority;
	full.last_ms = 0;
	full.last_chain = 0;
	rc = store->ops->cron_put(store->ctx, &full, &scope, err);
	if (rc != 0)
		return rc;
	/* Workers read the schedules once a minute, and when a notification of one of their types names no job. */
	struct sl__effects fx;
	sl__effects_init(&fx, &client->home);
	if (fx.scope.note != NULL)
		fx.scope.note(&(struct sl_note){.kind = SL_NOTE_JOB_SCHEDULED, .type = full.type}, fx.scope.ctx);
	sl__effects_end(&fx, true);
	return 0;
}

int sl_jobs_cron_remove(sl_jobs *client, const char *name, struct sl_err *err)
{
	const sl_store *store = &client->home.store;
	const struct sl_store_scope scope = {.audit = client->audit, .n_audit = client->n_audit};
	int rc = sl__home_check(&client->home, err);
	if (rc == 0)
		rc = sl__job_name_check(name, "name", err);
	if (rc != 0)
		return rc;
	return store->ops->cron_remove(store->ctx, name, &scope, err);
}

/* ---- the audit trail ---- */

static int check_trail(const sl_jobs *client, struct sl_err *err)
{
	int rc = sl__home_check(&client->home, err);
	if (rc == 0 && client->home.store.ops->audit_put == NULL)
		rc = sl_err_set(err, SL_EUNSUPPORTED, "the store %s has no audit trail", client->home.store.ops->name);
	return rc;
}

int sl_jobs_audit_put(sl_jobs *client, const struct sl_audit_record *record, struct sl_err *err)
{
	const sl_store *store = &client->home.store;
	int rc = check_trail(client, err);
	if (rc != 0)
		return rc;
	if (record->actor == NULL || record->action == NULL)
		return sl_err_set(err, SL_EINVAL, "audit record: actor or action is missing");
	return store->ops->audit_put(store->ctx, record, 1, err);
}

int sl_jobs_audit_list(sl_jobs *client, uint64_t before, uint32_t limit, sl_audit_record_fn *fn, void *ctx,
		       struct sl_err *err)
{
	const sl_store *store = &client->home.store;
	int rc = check_trail(client, err);
	if (rc != 0)
		return rc;
	if (limit < 1 || limit > 10000)
		return sl_err_set(err, SL_EINVAL, "limit is %u; give 1 to 10,000", (unsigned)limit);
	return store->ops->audit_list(store->ctx, before, limit, fn, ctx, err);
}

int sl_jobs_audit_prune(sl_jobs *client, int64_t keep_ms, uint64_t *n, struct sl_err *err)
{
	int rc = check_trail(client, err);
	if (rc != 0)
		return rc;
	return prune(client, PRUNE_AUDIT, keep_ms, n, err);
}
