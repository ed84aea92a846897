/* SPDX-License-Identifier: Apache-2.0 */
/* Removing chains: those that a client names, with what waits for them, and those that ended long ago. */
#include <stdlib.h>

#include "jobs/store/id_set.h"
#include "jobs/store/postgres/store.h"
#include "jobs/store/refusals.h"

#define ORPHAN_PAGE 10000
#define SCAN_PAGES 10 /* of a prune: rows that are read for each chain that may be deleted */

/* The chains to delete. */
struct removal {
	struct sl__id_set set;
	const struct sl_store_scope *scope; /* where that is reported; may be NULL */
	bool keep_needed;                   /* but not what another job waits for */
	uint64_t exported;                  /* nor what has events above this offset */
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
	sl__pg_add_int8(&call->params, (int64_t)SL_MIN(x->exported, (uint64_t)INT64_MAX));
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
	struct removal x = {.set = {.env = &s->env}, .scope = scope, .exported = UINT64_MAX};
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

/* Find chains in one page of jobs and lock them, so that no job begins to wait for one of them; one that did just before
 * is seen by the deleting statement. What others have locked is skipped. */
static int pg_find_prunable(struct pg_call *call, struct sl_prune_step *step, struct sl__id_set *found,
			    struct sl_err *err)
{
	sl__pg_add_time(&call->params, step->completed_before_ms);
	sl__pg_add_time(&call->params, step->failed_before_ms);
	sl__pg_add_int8(&call->params, (int64_t)step->after);
	sl__pg_add_int8(&call->params, step->scan);
	sl__pg_add_int8(&call->params, step->limit);
	sl__pg_add_int8(&call->params, (int64_t)SL_MIN(step->exported, (uint64_t)INT64_MAX));
	sl__pg_add_time(&call->params, step->now_ms);
	int at = sl__pg_call_send(call, ST_PRUNABLE);
	int rc = sl__pg_call_run(call, false, err);
	const PGresult *res = rc == 0 ? sl__pg_call_result(call, at) : NULL;
	uint64_t last = 0, n = 0;
	for (int i = 0; rc == 0 && i < PQntuples(res); i++) {
		uint64_t id = (uint64_t)sl__pg_int8(res, i, 2);
		last = (uint64_t)sl__pg_int8(res, i, 0);
		n = (uint64_t)sl__pg_int8(res, i, 1);
		if (id != 0)
			rc = sl__id_set_add(found, id, err);
	}
	sl__pg_pipe_end(&call->pipe);
	if (rc != 0)
		return rc;
	step->end = n < step->scan && found->n < step->limit;
	if (found->n > 0 && found->n == step->limit)
		last = found->ids[found->n - 1];
	step->after = SL_MAX(step->after, last);
	return 0;
}

static int pg_prune_step(struct pg_store *s, struct sl_prune_step *step, const struct sl_store_scope *scope,
			 struct sl_err *err)
{
	struct removal x = {.set = {.env = &s->env}, .keep_needed = true, .exported = step->exported};
	struct pg_call call SL_CLEANUP(sl__pg_call_close);
	uint64_t after = step->after;
	step->chains = step->events = 0;
	int rc = sl__pg_call_open(&call, s, NULL, PG_LONG, err);
	if (rc != 0)
		return rc;
	rc = pg_find_prunable(&call, step, &x.set, err);
	if (x.set.n > 0)
		sl__pg_call_audit(&call, scope);
	/* Chains with many events lose some of them, and go with a later step. */
	if (rc == 0 && x.set.n > 0 && step->n_events != 0) {
		sl__pg_add_ids(&call.params, x.set.ids, x.set.n);
		sl__pg_add_int8(&call.params, step->n_events);
		sl__pg_add_int8(&call.params, (int64_t)SL_MIN(step->exported, (uint64_t)INT64_MAX));
		int at = sl__pg_call_send(&call, ST_PRUNE_SOME_EVENTS);
		rc = sl__pg_call_run(&call, false, err);
		if (rc == 0)
			step->events = strtoull(PQcmdTuples(call.pipe.results[at]), NULL, 10);
		sl__pg_pipe_end(&call.pipe);
	}
	if (rc == 0 && step->n_events != 0 && step->events == step->n_events) {
		step->after = after;
		step->end = false;
		rc = sl__pg_call_run(&call, true, err);
	} else if (rc == 0) {
		size_t n = 0;
		rc = delete_set(&call, &x, &n, err);
		step->chains = n;
	}
	sl__id_set_fini(&x.set);
	return rc;
}

int sl__pg_retain_chains(void *store, struct sl_prune_step *step, struct sl_err *err)
{
	return pg_prune_step(store, step, NULL, err);
}

int sl__pg_prune(void *store, int64_t before_ms, uint32_t limit, const struct sl_store_scope *scope, size_t *n,
		 struct sl_err *err)
{
	struct pg_store *s = store;
	/* Continue where the last call for this time ended: what it has skipped, because it has not ended or is needed,
	 * is not read again by every call of a series. */
	sl__lock(&s->marks_mu);
	bool again = s->pruned_before_ms == before_ms;
	int64_t after = again ? s->pruned_after : 0;
	bool some = again && s->pruned_some;
	sl__unlock(&s->marks_mu);
	struct sl_prune_step step = {.completed_before_ms = before_ms,
				     .failed_before_ms = before_ms,
				     .now_ms = SL__NO_KEYS_MS,
				     .exported = UINT64_MAX,
				     .scan = limit * SCAN_PAGES,
				     .limit = limit,
				     .after = (uint64_t)after};
	int rc = 0;
	while (rc == 0 && step.chains == 0 && !step.end) {
		rc = pg_prune_step(s, &step, scope, err);
		/* What was deleted may have kept others, which come before it. */
		if (rc == 0 && step.end && step.chains == 0 && some) {
			step.after = 0;
			step.end = some = false;
		}
	}
	if (rc != 0)
		return rc;
	/* At the end, the next series of calls begins anew. */
	sl__lock(&s->marks_mu);
	s->pruned_before_ms = before_ms;
	s->pruned_after = step.end ? 0 : (int64_t)step.after;
	s->pruned_some = !step.end && (some || step.chains > 0);
	sl__unlock(&s->marks_mu);
	*n = step.chains;
	return step.chains > 0 ? 0 : pg_prune_events(s, before_ms, err);
}
