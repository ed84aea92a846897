/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An exchange: settle a batch and claim the next in one transaction and one round trip.
 *
 *	[lock rows] settle [open what waited] promote claim Sync
 *
 * A claim alone waits for the disk too: an attempt's number is drawn in it, and must not be drawn twice.
 */
#include "jobs/store/postgres/store.h"

#define CLAIM_TRIES 8 /* of a claim that found nothing but had reason to */

/* One exchange, as the slot was called. */
struct exchange {
	struct pg_store *store;
	const struct sl_exchange *asked;
	sl_store_tx *tx;
	struct pg_settling settling;
	struct pg_claiming claiming;
	const struct sl_store_scope *scope;
	struct sl_settle *refused; /* what the callback would not have, to be given back */
};

/* Queue, run, read. In a caller's transaction the callbacks come before the savepoint is given up, so that a refusal
 * undoes everything; an own transaction is over by then. */
static int run_exchange(struct exchange *x, struct pg_call *call, struct sl_err *err)
{
	bool settles = x->settling.n > 0, claims = x->claiming.request != NULL;
	int rc = settles ? sl__pg_settle_send(call, &x->settling, err) : 0;
	if (rc != 0)
		return rc;
	x->claiming.bare = !settles && x->tx == NULL;
	if (claims)
		sl__pg_claim_send(call, &x->claiming);
	rc = sl__pg_call_run(call, x->tx == NULL, err);
	if (rc != 0)
		return sl__pg_blocker_error(rc, err);
	if (claims)
		sl__pg_claim_read(call, &x->claiming, x->asked->reply);
	if (settles)
		sl__pg_settle_read(call, &x->settling, x->asked->results, x->scope);
	if (claims)
		rc = sl__pg_claim_report(call, &x->claiming, x->asked->claimed, x->asked->claimed_ctx);
	if (rc != 0 && x->tx == NULL) {
		/* The callback refused what was claimed and is durable by now: note what has to be given back. */
		const PGresult *res = sl__pg_call_result(call, x->claiming.at);
		x->refused = sl__calloc(&x->store->env, x->claiming.n, sizeof(*x->refused));
		for (uint32_t i = 0; i < x->claiming.n && x->refused != NULL; i++)
			sl__pg_claim_release(res, (int)i, x->claiming.request, &x->refused[i]);
		if (x->refused != NULL)
			x->refused[x->claiming.n - 1].last_of_claim = true;
	}
	sl__pg_pipe_end(&call->pipe);
	if (rc != 0 || x->tx == NULL)
		return rc;
	return sl__pg_call_run(call, true, err);
}

static int exchange_once(struct exchange *x, struct sl_err *err)
{
	const struct sl_env *env = &x->store->env;
	struct pg_call call;
	struct sl_err local;
	int rc = sl__pg_call_open(&call, x->store, x->tx, PG_ONCE, err);
	if (rc != 0)
		return rc;
	rc = run_exchange(x, &call, err != NULL ? err : &local);
	sl__pg_settle_fini(&call, &x->settling);
	sl__pg_call_close(&call);
	if (x->refused != NULL) {
		/* As if it had never been taken. When this fails, the end of the lease brings it back. */
		struct sl_exchange back = {.settles = x->refused, .n_settles = x->claiming.n};
		back.results = sl__calloc(env, back.n_settles, sizeof(*back.results));
		if (back.results != NULL)
			(void)sl__pg_exchange(x->store, &back, NULL, NULL);
		sl__free(env, back.results);
		sl__free(env, x->refused);
		x->refused = NULL;
	}
	return rc;
}

int sl__pg_exchange(void *store, const struct sl_exchange *asked, const struct sl_store_scope *scope,
		    struct sl_err *err)
{
	const struct sl_claim_request *request = asked->request;
	size_t n = asked->n_settles;
	struct exchange x = {.store = store,
			     .asked = asked,
			     .tx = sl__scope_tx(scope),
			     .settling = {.settles = asked->settles, .n = n},
			     .claiming = {.request = request, .hinted = request != NULL && request->hinted},
			     .scope = scope};
	if (n == 0 && request == NULL)
		return 0;
	int rc = exchange_once(&x, err);
	/* Nothing was claimed, but that does not mean that there is nothing: it began at a mark, it was hinted and
	 * skipped some, it took out rows that their jobs had left, or it saw jobs that others were just claiming while
	 * it did not ask for other types. */
	const struct pg_claiming *cl = &x.claiming;
	bool claims = request != NULL && request->limit > 0 && !request->again;
	x.settling = (struct pg_settling){.n = 0};
	for (int i = 0; i < CLAIM_TRIES && rc == 0 && claims && cl->n == 0 &&
			(cl->marked || cl->passed || cl->out > 0 || (cl->seen > 0 && !cl->lock_all));
	     i++) {
		x.claiming = (struct pg_claiming){.request = request, .lock_all = true};
		rc = exchange_once(&x, err);
		/* What was settled is durable, and must not look as if it had failed: say that there is more to ask
		 * for. */
		if (rc != 0 && n > 0 && cl->n == 0) {
			asked->reply->n = 0;
			asked->reply->next_due_in_ms = 0;
			rc = 0;
			break;
		}
	}
	if (rc == 0 && asked->reply != NULL)
		asked->reply->epoch = sl__pg_deaths(x.store->pool);
	return rc;
}
