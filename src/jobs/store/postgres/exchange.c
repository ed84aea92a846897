/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An exchange: settle a batch and claim the next in one transaction and one round trip.
 *
 *	[lock rows] settle [open what waited] promote claim Sync
 *
 * A claim alone is not waited for by the disk: when the server loses it, its jobs are only run again.
 */
#include "jobs/store/postgres/store.h"

#define CLAIM_TRIES 8 /* of a claim that found nothing but had reason to */

static int claim_alone(struct pg_store *s, sl_store_tx *tx, struct pg_claiming *cl, struct sl_claim_reply *reply,
		       sl_claimed_fn *claimed, void *claimed_ctx, struct sl_err *err)
{
	struct pg_call call;
	int rc = sl__pg_call_open(&call, s, tx, PG_ONCE, err);
	if (rc != 0)
		return rc;
	if (tx == NULL)
		(void)sl__pg_call_send(&call, ST_ASYNC);
	sl__pg_claim_send(&call, cl);
	rc = sl__pg_call_run(&call, true, err);
	if (rc == 0)
		sl__pg_claim_read(&call, cl, reply);
	if (rc == 0)
		rc = sl__pg_claim_tell(&call, cl, claimed, claimed_ctx);
	sl__pg_call_close(&call);
	return rc;
}

/* Nothing was claimed, but that does not mean that there is nothing: it began at a mark, it took out rows that their
 * jobs had left, or it saw jobs that others were just claiming while it had no eye for other types. */
static bool should_try_again(const struct pg_claiming *cl)
{
	return cl->n == 0 && cl->request->limit > 0 && (cl->marked || cl->out > 0 || (cl->seen > 0 && !cl->lock_all));
}

static int claim_again(struct pg_store *s, sl_store_tx *tx, struct pg_claiming *cl, struct sl_claim_reply *reply,
		       sl_claimed_fn *claimed, void *claimed_ctx, struct sl_err *err)
{
	int rc = 0;
	for (int i = 0; i < CLAIM_TRIES && rc == 0 && should_try_again(cl); i++) {
		*cl = (struct pg_claiming){.request = cl->request, .lock_all = true};
		rc = claim_alone(s, tx, cl, reply, claimed, claimed_ctx, err);
	}
	return rc;
}

static int settle_and_claim(struct pg_call *call, struct pg_settling *st, struct sl_settle_result *results,
			    struct pg_claiming *cl, struct sl_claim_reply *reply, sl_claimed_fn *claimed,
			    void *claimed_ctx, const struct sl_store_listen *listen, struct sl_err *err)
{
	struct sl_err local;
	struct sl_err *e = err != NULL ? err : &local;
	int rc = sl__pg_settle_send(call, st, e);
	if (rc != 0)
		return rc;
	if (cl->request != NULL)
		sl__pg_claim_send(call, cl);
	rc = sl__pg_call_run(call, true, e);
	if (rc != 0)
		return sl__pg_blocker_error(rc, e);
	if (cl->request != NULL)
		sl__pg_claim_read(call, cl, reply);
	sl__pg_settle_read(call, st, results, listen);
	if (cl->request != NULL)
		rc = sl__pg_claim_tell(call, cl, claimed, claimed_ctx);
	return rc;
}

int sl__pg_exchange(void *store, sl_store_tx *tx, const struct sl_settle *settles, size_t n,
		    struct sl_settle_result *results, const struct sl_claim_request *request,
		    struct sl_claim_reply *reply, sl_claimed_fn *claimed, void *claimed_ctx,
		    const struct sl_store_listen *listen, struct sl_err *err)
{
	struct pg_store *s = store;
	struct pg_claiming cl = {.request = request};
	int rc = 0;
	if (n > 0) {
		struct pg_settling st = {.settles = settles, .n = n};
		struct pg_call call;
		rc = sl__pg_call_open(&call, s, tx, PG_ONCE, err);
		if (rc != 0)
			return rc;
		rc = settle_and_claim(&call, &st, results, &cl, reply, claimed, claimed_ctx, listen, err);
		sl__pg_settle_fini(&call, &st);
		sl__pg_call_close(&call);
	} else if (request != NULL) {
		rc = claim_alone(s, tx, &cl, reply, claimed, claimed_ctx, err);
	}
	if (rc != 0 || request == NULL)
		return rc;
	rc = claim_again(s, tx, &cl, reply, claimed, claimed_ctx, err);
	if (rc == 0 || n == 0 || cl.n > 0)
		return rc;
	/* What was settled is durable, and must not look as if it had failed: say that there is more to ask for. */
	reply->n = 0;
	reply->next_due_in_ms = 0;
	return 0;
}
