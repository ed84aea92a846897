/* SPDX-License-Identifier: Apache-2.0 */
/* Removing chains: those that a client names, with what waits for them, and those that ended long ago. */
#include "jobs/store/id_set.h"
#include "jobs/store/postgres/store.h"
#include "jobs/store/refusals.h"

#define ORPHAN_PAGE 10000

/* The chains to delete. */
struct removal {
	struct sl__id_set set;
	const struct sl_store_scope *scope; /* where that is reported; may be NULL */
	bool keep_needed;                   /* but not what another job waits for */
};

/* Lock the chains of the set, and take in those that wait for one of them, until nothing outside does. A chain that is
 * started meanwhile must lock a chain of the set first, and then finds it gone. */
static int close_set(struct pg_call *call, struct sl__id_set *set, bool cascade, struct sl_err *err)
{
	for (;;) {
		const PGresult *res = NULL;
		int rc = sl__pg_lock_heads(call, (struct sl_ids){set->ids, set->n}, &res, err);
		if (rc != 0)
			return rc;
		sl__pg_pipe_end(&call->pipe);
		sl__pg_add_ids(&call->params, set->ids, set->n);
		int at = sl__pg_call_send(call, ST_WAITING);
		rc = sl__pg_call_run(call, false, err);
		if (rc != 0)
			return rc;
		res = sl__pg_call_result(call, at);
		int waiting = PQntuples(res);
		if (waiting > 0 && !cascade)
			return sl__refuse_waited_for((uint64_t)sl__pg_int8(res, 0, 0), (uint64_t)sl__pg_int8(res, 0, 1),
						     err);
		for (int i = 0; i < waiting && rc == 0; i++)
			rc = sl__id_set_add(set, (uint64_t)sl__pg_int8(res, i, 0), err);
		sl__id_set_sort(set);
		sl__pg_pipe_end(&call->pipe);
		if (rc != 0 || waiting == 0)
			return rc;
	}
}

/* Delete the chains and report them. *n: how many. */
static int delete_set(struct pg_call *call, const struct removal *x, size_t *n, struct sl_err *err)
{
	const PGresult *res = NULL;
	sl__pg_add_ids(&call->params, x->set.ids, x->set.n);
	sl__pg_add_bool(&call->params, x->keep_needed);
	int rc = sl__pg_call_one(call, ST_DELETE, &res, err);
	if (rc != 0)
		return rc;
	/* Rows: id, chain, type, was leased */
	*n = 0;
	for (int i = 0; i < PQntuples(res); i++) {
		uint64_t id = (uint64_t)sl__pg_int8(res, i, 0), chain_id = (uint64_t)sl__pg_int8(res, i, 1);
		const char *type = sl__pg_text(res, i, 2);
		*n += id == chain_id;
		if (sl__pg_bool(res, i, 3))
			sl__report_note(x->scope, SL_NOTE_OWNERSHIP_LOST, type, id, SL_LOST_NOT_FOUND);
		sl__report_change(x->scope, SL_CHANGE_DELETED, id, chain_id, type);
	}
	return 0;
}

int sl__pg_remove(void *store, struct sl_ids chains, bool cascade, const struct sl_store_scope *scope, size_t *n,
		  struct sl_err *err)
{
	struct pg_store *s = store;
	struct removal x = {.set = {.env = &s->env}, .scope = scope};
	struct pg_call call SL_CLEANUP(sl__pg_call_close);
	size_t deleted = 0;
	int rc = sl__pg_call_open(&call, s, sl__scope_tx(scope), PG_LONG, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < chains.n && rc == 0; i++)
		rc = sl__id_set_add(&x.set, chains.ids[i], err);
	sl__id_set_sort(&x.set);
	sl__pg_call_audit(&call, scope);
	if (rc == 0)
		rc = close_set(&call, &x.set, cascade, err);
	if (rc == 0)
		rc = delete_set(&call, &x, &deleted, err);
	if (rc == 0 && n != NULL)
		*n = deleted;
	sl__id_set_fini(&x.set);
	return rc;
}

/* ---- retention ---- */

/* Events of jobs that are gone, a page of the jobs that they name in each statement; then marks of which nothing is
 * left. */
static int pg_prune_events(struct pg_store *s, int64_t before_ms, struct sl_err *err)
{
	int64_t n = ORPHAN_PAGE, after = 0;
	int rc = 0;
	while (rc == 0 && n == ORPHAN_PAGE) {
		struct pg_call call SL_CLEANUP(sl__pg_call_close);
		const PGresult *res = NULL;
		rc = sl__pg_call_open(&call, s, NULL, PG_ONCE, err);
		if (rc != 0)
			return rc;
		sl__pg_add_time(&call.params, before_ms);
		sl__pg_add_int8(&call.params, ORPHAN_PAGE);
		sl__pg_add_int8(&call.params, after);
		rc = sl__pg_call_one(&call, ST_PRUNE_EVENTS, &res, err);
		if (rc == 0) {
			n = sl__pg_int8(res, 0, 0);
			after = sl__pg_int8(res, 0, 1);
		}
	}
	if (rc != 0)
		return rc;
	return sl__cold_prune_marks(&s->cold, before_ms, err);
}

/* Delete up to limit chains. Locked, so that no job begins to wait for one of them; one that did just before is seen by
 * the deleting statement. */
int sl__pg_prune(void *store, int64_t before_ms, uint32_t limit, const struct sl_store_scope *scope, size_t *n,
		 struct sl_err *err)
{
	struct pg_store *s = store;
	struct removal x = {.set = {.env = &s->env}, .keep_needed = true};
	struct pg_call call;
	int rc = sl__pg_call_open(&call, s, NULL, PG_LONG, err);
	if (rc != 0)
		return rc;
	/* Continue where the last call for this time ended: what it has skipped, because it has not ended or is needed,
	 * is not read again by every call of a series. */
	sl__lock(&s->marks_mu);
	int64_t after = s->pruned_before_ms == before_ms ? s->pruned_after : 0;
	sl__unlock(&s->marks_mu);
	sl__pg_add_time(&call.params, before_ms);
	sl__pg_add_int8(&call.params, limit);
	sl__pg_add_int8(&call.params, after);
	int at = sl__pg_call_send(&call, ST_PRUNABLE);
	rc = sl__pg_call_run(&call, false, err);
	const PGresult *res = rc == 0 ? sl__pg_call_result(&call, at) : NULL;
	for (int i = 0; rc == 0 && i < PQntuples(res); i++)
		rc = sl__id_set_add(&x.set, (uint64_t)sl__pg_int8(res, i, 0), err);
	sl__pg_pipe_end(&call.pipe);
	if (x.set.n > 0)
		sl__pg_call_audit(&call, scope);
	if (rc == 0)
		rc = delete_set(&call, &x, n, err);
	if (rc == 0) {
		/* Fewer than asked for: that was the end, and the next series of calls begins anew. */
		sl__lock(&s->marks_mu);
		s->pruned_before_ms = before_ms;
		s->pruned_after = x.set.n > 0 && x.set.n == limit ? (int64_t)x.set.ids[x.set.n - 1] : 0;
		sl__unlock(&s->marks_mu);
	}
	sl__id_set_fini(&x.set);
	sl__pg_call_close(&call);
	if (rc != 0 || *n > 0)
		return rc;
	return pg_prune_events(s, before_ms, err);
}
