/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client: everything is checked here before a store sees it, and what a store tells of goes out once it is durable:
 * at once for a call in a transaction of its own, with the commit for one inside a sl_tx.
 */
#include "jobs/client/client.h"
#include "base/utf8.h"
#include "jobs/cron/cron.h"

/* Chains go to the store in bites of at most so many, and of about so many bytes of JSON. */
#define BITE_CHAINS 10000
#define BITE_BYTES ((size_t)32 << 20)
#define PRUNE_BITE 1000
#define TRIES 5 /* of a transaction that the database gives up for others */

/* ---- open and close ---- */

int sl_jobs_open(sl_jobs **out, const struct sl_jobs_opts *opts, struct sl_err *err)
{
	struct sl_jobs_opts o;
	struct sl__home home;
	sl__opts_copy(&o, sizeof(o), opts);
	int rc = sl__home_init(&home, "jobs client", o.env, o.store, o.notify, o.observe, o.observe_ctx, NULL, err);
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
	return sl__tx_begin(&client->home, NULL, out, err);
}

int sl_jobs_join(sl_jobs *client, void *native, sl_tx **out, struct sl_err *err)
{
	if (native == NULL)
		return sl_err_set(err, SL_EINVAL, "join: native is NULL");
	return sl__tx_begin(&client->home, native, out, err);
}

/* ---- one call ---- */

/* Where a call runs and who hears of it: in the caller's transaction, or in its own. */
struct call {
	const struct sl_store_ops *ops;
	void *store;
	sl_store_tx *tx;
	const struct sl_store_listen *listen;
	struct sl_audit_record record; /* the client's, with the chains of this call */
	bool own;
	unsigned tries;
	struct sl_err err, *out; /* of the last try; the caller's, or NULL */
	struct sl__effects fx;
};

/* chains: those that the call changes, for its audit record; none: as the client's records have them. */
static int begin_call(struct call *c, sl_jobs *client, sl_tx *tx, const uint64_t *chains, size_t n_chains,
		      struct sl_err *err)
{
	const struct sl_audit_record *audit = client->audit;
	int rc = sl__home_check(&client->home, err);
	if (rc == 0 && tx != NULL)
		rc = sl__tx_check(tx, &client->home, err);
	if (rc != 0)
		return rc;
	c->ops = client->home.store.ops;
	c->store = client->home.store.ctx;
	c->own = tx == NULL;
	c->tries = 0;
	c->err.msg[0] = '\0';
	c->out = err;
	c->tx = tx != NULL ? sl__tx_store(tx) : NULL;
	if (c->own)
		sl__effects_init(&c->fx, &client->home);
	if (audit != NULL && n_chains > 0) {
		c->record = *audit;
		c->record.chains = chains;
		c->record.n_chains = n_chains;
		audit = &c->record;
	}
	if (c->own) {
		c->fx.listen.audit = audit;
		c->fx.listen.n_audit = client->n_audit;
	}
	c->listen = c->own ? sl__effects_listen(&c->fx) : sl__tx_listen(tx, audit, client->n_audit);
	return 0;
}

/* Was it a deadlock, or something else that has undone all of a transaction and passes? Of the caller's transaction
 * there is nothing left to try again in. Only the database itself can say so, by an SQLSTATE. */
static bool passes(int rc, const struct sl_err *err, unsigned *tries)
{
	return rc == SL_EAGAIN && err->sqlstate[0] != '\0' && ++*tries < TRIES;
}

static bool again(struct call *c, int rc)
{
	if (!c->own || !passes(rc, &c->err, &c->tries))
		return false;
	sl__notes_clear(&c->fx.notes);
	c->fx.n = 0;
	return true;
}

static int end_call(struct call *c, int rc)
{
	if (rc != 0 && c->out != NULL)
		*c->out = c->err;
	if (c->own)
		sl__effects_end(&c->fx, rc == 0);
	return rc;
}

/* ---- starting ---- */

int sl_jobs_start(sl_jobs *client, sl_tx *tx, const struct sl_new_chain *chain, struct sl_started *out,
		  struct sl_err *err)
{
	return sl_jobs_start_many(client, tx, chain, 1, out, err);
}

/* How many of the chains make the next bite: at least one. */
static size_t bite(const struct sl_new_chain *chains, size_t n)
{
	size_t bytes = 0, i = 0;
	while (i < n && i < BITE_CHAINS && bytes < BITE_BYTES) {
		const char *input = chains[i++].job.input;
		bytes += input != NULL ? strnlen(input, BITE_BYTES) : 0;
	}
	return i;
}

/* Check n chains into checked[n]; `from` is the index of the first one, for the error; SIZE_MAX: there is only one. */
static int check_chains(sl_jobs *client, const struct sl_new_chain *chains, size_t n, size_t from,
			struct sl_new_chain *checked, struct sl_err *err)
{
	for (size_t i = 0; i < n; i++) {
		int rc = sl__new_chain_check(client->types, &client->home.env, &chains[i], &checked[i], err);
		if (rc != 0)
			return from == SIZE_MAX ? rc : sl_err_wrap(err, rc, "chains[%zu]", from + i);
	}
	return 0;
}

static int announce(const char *type, struct sl_announcement *out, void *ctx)
{
	const struct sl__effects *fx = ctx;
	const sl_notify *notify = fx->home->notify;
	return notify->ops->announce(notify->ctx, type, out);
}

/* Alone in its own transaction, it may be announced by the store. */
static int start_one(sl_jobs *client, struct call *c, const struct sl_new_chain *chain, struct sl_started *out,
		     struct sl_err *err)
{
	const sl_notify *notify = client->home.notify;
	struct sl_new_chain checked;
	int rc = check_chains(client, chain, 1, SIZE_MAX, &checked, err);
	if (rc != 0)
		return rc;
	if (c->own && notify != NULL && notify->ops->announce != NULL)
		c->fx.listen.announce = announce;
	return c->ops->start(c->store, c->tx, &checked, 1, out, c->listen, err);
}

/* All chains through one buffer, a bite at a time. With more than one bite c->tx is open, and the caller undoes a part.
 */
static int start_bites(sl_jobs *client, struct call *c, const struct sl_new_chain *chains, size_t n,
		       struct sl_started *out, struct sl_err *err)
{
	const struct sl_env *env = &client->home.env;
	struct sl_new_chain *checked = sl__alloc(env, SL_MIN(n, BITE_CHAINS) * sizeof(*checked));
	if (checked == NULL)
		return sl_err_set(err, SL_ENOMEM, "start %zu chains: no memory", n);
	int rc = 0;
	for (size_t i = 0, some; rc == 0 && i < n; i += some) {
		some = bite(chains + i, n - i);
		rc = check_chains(client, chains + i, some, i, checked, err);
		if (rc == 0)
			rc = c->ops->start(c->store, c->tx, checked, some, out + i, c->listen, err);
	}
	sl__free(env, checked);
	return rc;
}

static int start_in(sl_jobs *client, sl_tx *tx, const struct sl_new_chain *chains, size_t n, struct sl_started *out,
		    struct sl_err *err)
{
	struct call c;
	int rc = begin_call(&c, client, tx, NULL, 0, err);
	if (rc != 0)
		return rc;
	do
		rc = n == 1 ? start_one(client, &c, chains, out, &c.err)
			    : start_bites(client, &c, chains, n, out, &c.err);
	while (again(&c, rc));
	return end_call(&c, rc);
}

/* Several bites in a transaction of ours. */
static int start_alone(sl_jobs *client, const struct sl_new_chain *chains, size_t n, struct sl_started *out,
		       struct sl_err *err)
{
	sl_tx *tx;
	struct sl_err last = SL_ERR_INIT;
	unsigned tries = 0;
	int rc;
	do {
		rc = sl__tx_begin(&client->home, NULL, &tx, &last);
		if (rc != 0)
			break;
		rc = start_in(client, tx, chains, n, out, &last);
		if (rc == 0)
			rc = sl__tx_commit(tx, &last);
		else
			sl__tx_rollback(tx);
	} while (passes(rc, &last, &tries));
	if (rc != 0 && err != NULL)
		*err = last;
	return rc;
}

/* Several bites in the caller's: all or none, whatever it does with its transaction afterwards. */
static int start_inside(sl_jobs *client, sl_tx *tx, const struct sl_new_chain *chains, size_t n, struct sl_started *out,
			struct sl_err *err)
{
	static const char name[] = "sl_start_many";
	int rc = sl_tx_savepoint(tx, name, err);
	if (rc != 0)
		return rc;
	rc = start_in(client, tx, chains, n, out, err);
	if (rc == 0)
		return sl_tx_release(tx, name, err);
	if (sl_tx_rollback_to(tx, name, NULL) == 0)
		(void)!sl_tx_release(tx, name, NULL);
	return rc;
}

int sl_jobs_start_many(sl_jobs *client, sl_tx *tx, const struct sl_new_chain *chains, size_t n, struct sl_started *out,
		       struct sl_err *err)
{
	if (n == 0)
		return sl__home_check(&client->home, err);
	if (bite(chains, n) == n)
		return start_in(client, tx, chains, n, out, err);
	int rc = tx != NULL ? sl__tx_check(tx, &client->home, err) : 0;
	if (rc != 0)
		return rc;
	return tx != NULL ? start_inside(client, tx, chains, n, out, err) : start_alone(client, chains, n, out, err);
}

/* ---- changing chains ---- */

static int keep_type(const struct sl_chain *chain, void *ctx)
{
	char *type = ctx;
	(void)strncpy(type, chain->at_type != NULL ? chain->at_type : chain->type, SL__JOB_TYPE_BYTES);
	return 0;
}

/* The output must suit the type that the chain is at. */
static int check_output(sl_jobs *client, struct call *c, uint64_t chain_id, const char *output, struct sl_err *err)
{
	char type[SL__JOB_TYPE_BYTES + 1] = "";
	int rc = 0;
	if (client->types != NULL)
		rc = c->ops->get_chain(c->store, c->tx, chain_id, keep_type, type, err);
	return rc != 0 ? rc : sl__job_output_check(client->types, type, output, err);
}

int sl_jobs_complete(sl_jobs *client, sl_tx *tx, uint64_t chain_id, const char *output, struct sl_err *err)
{
	struct call c;
	int rc = begin_call(&c, client, tx, &chain_id, 1, err);
	if (rc != 0)
		return rc;
	rc = check_output(client, &c, chain_id, output, &c.err);
	if (rc != 0)
		return end_call(&c, rc);
	do
		rc = c.ops->complete_chain(c.store, c.tx, chain_id, output != NULL ? output : "null", c.listen, &c.err);
	while (again(&c, rc));
	return end_call(&c, rc);
}

int sl_jobs_fail(sl_jobs *client, sl_tx *tx, uint64_t chain_id, const char *error, struct sl_err *err)
{
	struct call c;
	if (error != NULL && !sl__utf8_valid(error))
		return sl_err_set(err, SL_EDATA, "error is not valid UTF-8");
	int rc = begin_call(&c, client, tx, &chain_id, 1, err);
	if (rc != 0)
		return rc;
	do
		rc = c.ops->fail_chain(c.store, c.tx, chain_id, error, c.listen, &c.err);
	while (again(&c, rc));
	return end_call(&c, rc);
}

typedef int change_fn(void *store, sl_store_tx *tx, const uint64_t *chains, size_t n_chains, size_t *n,
		      const struct sl_store_listen *listen, struct sl_err *err);

static int change(sl_jobs *client, sl_tx *tx, change_fn *fn, const uint64_t *chains, size_t n_chains, size_t *n,
		  struct sl_err *err)
{
	struct call c;
	size_t changed = 0;
	int rc = begin_call(&c, client, tx, chains, n_chains, err);
	if (rc != 0)
		return rc;
	do
		rc = n_chains > 0 ? fn(c.store, c.tx, chains, n_chains, &changed, c.listen, &c.err) : 0;
	while (again(&c, rc));
	if (rc == 0 && n != NULL)
		*n = changed;
	return end_call(&c, rc);
}

int sl_jobs_cancel(sl_jobs *client, sl_tx *tx, const uint64_t *chains, size_t n_chains, size_t *n, struct sl_err *err)
{
	return change(client, tx, client->home.store.ops->cancel, chains, n_chains, n, err);
}

int sl_jobs_redrive(sl_jobs *client, sl_tx *tx, const uint64_t *chains, size_t n_chains, size_t *n, struct sl_err *err)
{
	return change(client, tx, client->home.store.ops->redrive, chains, n_chains, n, err);
}

int sl_jobs_trigger(sl_jobs *client, sl_tx *tx, const uint64_t *chains, size_t n_chains, size_t *n, struct sl_err *err)
{
	return change(client, tx, client->home.store.ops->trigger, chains, n_chains, n, err);
}

int sl_jobs_delete(sl_jobs *client, sl_tx *tx, const uint64_t *chains, size_t n_chains, int cascade, size_t *n,
		   struct sl_err *err)
{
	struct call c;
	size_t deleted = 0;
	int rc = begin_call(&c, client, tx, chains, n_chains, err);
	if (rc != 0)
		return rc;
	do
		rc = n_chains > 0
			     ? c.ops->remove(c.store, c.tx, chains, n_chains, cascade != 0, &deleted, c.listen, &c.err)
			     : 0;
	while (again(&c, rc));
	if (rc == 0 && n != NULL)
		*n = deleted;
	return end_call(&c, rc);
}

static int set_paused(sl_jobs *client, const char *type, int paused, struct sl_err *err)
{
	struct call c;
	int rc = sl__job_name_check(type, "type", err);
	if (rc == 0)
		rc = begin_call(&c, client, NULL, NULL, 0, err);
	if (rc != 0)
		return rc;
	do
		rc = c.ops->pause(c.store, type, paused, c.listen, &c.err);
	while (again(&c, rc));
	return end_call(&c, rc);
}

int sl_jobs_pause(sl_jobs *client, const char *type, struct sl_err *err)
{
	return set_paused(client, type, 1, err);
}

int sl_jobs_resume(sl_jobs *client, const char *type, struct sl_err *err)
{
	return set_paused(client, type, 0, err);
}

int sl_jobs_prune(sl_jobs *client, int64_t keep_ms, uint64_t *n, struct sl_err *err)
{
	const sl_store *store = &client->home.store;
	const struct sl_store_listen listen = {.audit = client->audit, .n_audit = client->n_audit};
	int64_t now_ms = 0;
	uint64_t total = 0;
	int rc = sl__home_check(&client->home, err);
	if (rc == 0 && (keep_ms < 0 || keep_ms > SL__JOB_TIME_MAX_MS))
		rc = sl_err_set(err, SL_EINVAL, "keep_ms is %lld; give 0 or more", (long long)keep_ms);
	if (rc == 0)
		rc = store->ops->now_ms(store->ctx, &now_ms, err);
	for (size_t some = 1; rc == 0 && some > 0; total += some) {
		some = 0;
		rc = store->ops->prune(store->ctx, now_ms - keep_ms, PRUNE_BITE, &some, &listen, err);
	}
	if (n != NULL)
		*n = total;
	return rc;
}

/* ---- schedules ---- */

/* Workers look at schedules once a minute, and when a note about a type of theirs names no job. */
static void tell_of_schedule(const sl_jobs *client, const char *type)
{
	struct sl__effects fx;
	sl__effects_init(&fx, &client->home);
	if (fx.listen.note != NULL)
		fx.listen.note(&(struct sl_note){.kind = SL_NOTE_JOB_SCHEDULED, .type = type}, fx.listen.ctx);
	sl__effects_end(&fx, true);
}

int sl_jobs_cron_put(sl_jobs *client, const struct sl_cron *cron, struct sl_err *err)
{
	const sl_store *store = &client->home.store;
	struct sl_new_job job = {.type = cron->type, .input = cron->input, .priority = cron->priority};
	struct sl_cron full = *cron;
	const struct sl_store_listen listen = {.audit = client->audit, .n_audit = client->n_audit};
	int64_t now_ms;
	int rc = sl__home_check(&client->home, err);
	if (rc == 0)
		rc = sl__job_name_check(cron->name, "name", err);
	if (rc == 0 && cron->spec == NULL)
		rc = sl_err_set(err, SL_EINVAL, "spec is missing");
	if (rc == 0)
		rc = sl__new_job_check(client->types, &client->home.env, &job, &job, err);
	if (rc == 0)
		rc = store->ops->now_ms(store->ctx, &now_ms, err);
	if (rc == 0)
		rc = sl_cron_next(cron->spec, now_ms, &full.next_ms, err);
	if (rc != 0)
		return rc;
	full.input = job.input;
	full.priority = job.priority;
	full.catch_up = cron->catch_up != 0;
	full.last_ms = 0;
	full.last_chain = 0;
	rc = store->ops->cron_put(store->ctx, &full, &listen, err);
	if (rc == 0)
		tell_of_schedule(client, full.type);
	return rc;
}

int sl_jobs_cron_remove(sl_jobs *client, const char *name, struct sl_err *err)
{
	const sl_store *store = &client->home.store;
	const struct sl_store_listen listen = {.audit = client->audit, .n_audit = client->n_audit};
	int rc = sl__home_check(&client->home, err);
	if (rc == 0)
		rc = sl__job_name_check(name, "name", err);
	return rc != 0 ? rc : store->ops->cron_remove(store->ctx, name, &listen, err);
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
	if (rc == 0 && (record->actor == NULL || record->action == NULL))
		rc = sl_err_set(err, SL_EINVAL, "audit record: actor or action is missing");
	return rc != 0 ? rc : store->ops->audit_put(store->ctx, record, 1, err);
}

int sl_jobs_audit_list(sl_jobs *client, uint64_t before, uint32_t limit, sl_audit_record_fn *fn, void *ctx,
		       struct sl_err *err)
{
	const sl_store *store = &client->home.store;
	int rc = check_trail(client, err);
	if (rc == 0 && (limit < 1 || limit > 10000))
		rc = sl_err_set(err, SL_EINVAL, "limit is %u; give 1 to 10,000", (unsigned)limit);
	return rc != 0 ? rc : store->ops->audit_list(store->ctx, before, limit, fn, ctx, err);
}

int sl_jobs_audit_prune(sl_jobs *client, int64_t keep_ms, uint64_t *n, struct sl_err *err)
{
	const sl_store *store = &client->home.store;
	int64_t now_ms = 0;
	uint64_t total = 0;
	int rc = check_trail(client, err);
	if (rc == 0 && (keep_ms < 0 || keep_ms > SL__JOB_TIME_MAX_MS))
		rc = sl_err_set(err, SL_EINVAL, "keep_ms is %lld; give 0 or more", (long long)keep_ms);
	if (rc == 0)
		rc = store->ops->now_ms(store->ctx, &now_ms, err);
	for (size_t some = 1; rc == 0 && some > 0; total += some) {
		some = 0;
		rc = store->ops->audit_prune(store->ctx, now_ms - keep_ms, PRUNE_BITE, &some, err);
	}
	if (n != NULL)
		*n = total;
	return rc;
}
