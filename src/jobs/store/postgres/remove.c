/* SPDX-License-Identifier: Apache-2.0 */
/* Removing chains: those that a client names, with what waits for them, and those that ended long ago. */
#include "jobs/store/postgres/store.h"

#define ORPHAN_PAGE 10000

struct id_set {
	const struct sl_env *env;
	uint64_t *ids;
	size_t n, cap;
};

static int add_id(struct id_set *set, uint64_t id, struct sl_err *err)
{
	for (size_t i = 0; i < set->n; i++)
		if (set->ids[i] == id)
			return 0;
	if (set->n == set->cap) {
		size_t cap = set->cap * 2 + 16;
		uint64_t *more = sl__realloc(set->env, set->ids, cap * sizeof(*more));
		if (more == NULL)
			return sl_err_set(err, SL_ENOMEM, "postgres: remove: out of memory");
		set->ids = more;
		set->cap = cap;
	}
	set->ids[set->n++] = id;
	return 0;
}

/* Lock the chains of the set, and take in those that wait for one of them, until nothing outside does. A chain that is
 * started meanwhile must lock a chain of the set first, and then finds it gone. */
static int close_set(struct pg_call *call, struct id_set *set, int cascade, struct sl_err *err)
{
	for (;;) {
		int at;
		int rc = sl__pg_lock_heads(call, set->ids, set->n, &at, err);
		if (rc != 0)
			return rc;
		sl__pg_pipe_end(&call->pipe);
		sl__pg_add_ids(&call->params, set->ids, set->n);
		at = sl__pg_call_send(call, ST_WAITING);
		rc = sl__pg_call_run(call, false, err);
		if (rc != 0)
			return rc;
		const PGresult *res = sl__pg_call_result(call, at);
		int waiting = PQntuples(res);
		if (waiting > 0 && !cascade)
			return sl_err_set(err, SL_EPENDING, "postgres: chain %lld waits for chain %lld",
					  (long long)sl__pg_int8(res, 0, 0), (long long)sl__pg_int8(res, 0, 1));
		for (int i = 0; i < waiting && rc == 0; i++)
			rc = add_id(set, (uint64_t)sl__pg_int8(res, i, 0), err);
		sl__pg_pipe_end(&call->pipe);
		if (rc != 0 || waiting == 0)
			return rc;
	}
}

/* Rows: id, chain, type, was leased */
static size_t tell_deleted(const PGresult *res, const struct sl_store_listen *l)
{
	size_t chains = 0;
	for (int i = 0; i < PQntuples(res); i++) {
		uint64_t id = (uint64_t)sl__pg_int8(res, i, 0), chain_id = (uint64_t)sl__pg_int8(res, i, 1);
		const char *type = sl__pg_text(res, i, 2);
		chains += id == chain_id;
		if (sl__pg_bool(res, i, 3))
			sl__pg_note(l, SL_NOTE_OWNERSHIP_LOST, type, id, SL_LOST_NOT_FOUND);
		sl__pg_change(l, SL_CHANGE_DELETED, id, chain_id, type);
	}
	return chains;
}

static int delete_ids(struct pg_call *call, const uint64_t *ids, size_t n_ids, bool keep_needed, size_t *n,
		      const struct sl_store_listen *listen, struct sl_err *err)
{
	const PGresult *res = NULL;
	sl__pg_add_ids(&call->params, ids, n_ids);
	sl__pg_add_bool(&call->params, keep_needed);
	int rc = sl__pg_call_one(call, ST_DELETE, &res, err);
	if (rc == 0)
		*n = tell_deleted(res, listen);
	return rc;
}

int sl__pg_remove(void *store, sl_store_tx *tx, const uint64_t *chains, size_t n_chains, int cascade, size_t *n,
		  const struct sl_store_listen *listen, struct sl_err *err)
{
	struct pg_store *s = store;
	struct id_set set = {.env = &s->env};
	struct pg_call call;
	size_t deleted = 0;
	int rc = sl__pg_call_open(&call, s, tx, PG_LONG, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < n_chains && rc == 0; i++)
		rc = add_id(&set, chains[i], err);
	sl__pg_call_audit(&call, listen);
	if (rc == 0)
		rc = close_set(&call, &set, cascade, err);
	if (rc == 0)
		rc = delete_ids(&call, set.ids, set.n, false, &deleted, listen, err);
	if (rc == 0 && n != NULL)
		*n = deleted;
	sl__free(&s->env, set.ids);
	sl__pg_call_close(&call);
	return rc;
}

/* ---- retention ---- */

/* Where the last call for this time ended: what it has skipped, because it has not ended or is needed, is not read
 * again by every call of a row of them. */
static int64_t begin_pruning(struct pg_store *s, int64_t before_ms)
{
	sl__lock(&s->marks_mu);
	int64_t after = s->pruned_before_ms == before_ms ? s->pruned_after : 0;
	sl__unlock(&s->marks_mu);
	return after;
}

/* Fewer than asked for: that was the end, and the next row of calls begins anew. */
static void end_pruning(struct pg_store *s, int64_t before_ms, const struct id_set *found, uint32_t limit)
{
	sl__lock(&s->marks_mu);
	s->pruned_before_ms = before_ms;
	s->pruned_after = found->n > 0 && found->n == limit ? (int64_t)found->ids[found->n - 1] : 0;
	sl__unlock(&s->marks_mu);
}

/* Locked, so that no job begins to wait for one of them; one that did just before is seen by the deleting statement. */
static int find_prunable(struct pg_call *call, int64_t before_ms, uint32_t limit, int64_t after, struct id_set *set,
			 struct sl_err *err)
{
	sl__pg_add_time(&call->params, before_ms);
	sl__pg_add_int8(&call->params, limit);
	sl__pg_add_int8(&call->params, after);
	int at = sl__pg_call_send(call, ST_PRUNABLE);
	int rc = sl__pg_call_run(call, false, err);
	if (rc != 0)
		return rc;
	const PGresult *res = sl__pg_call_result(call, at);
	size_t n = (size_t)PQntuples(res);
	set->ids = sl__calloc(set->env, n, sizeof(*set->ids));
	if (set->ids == NULL)
		return sl_err_set(err, SL_ENOMEM, "postgres: prune: out of memory");
	for (; set->n < n; set->n++)
		set->ids[set->n] = (uint64_t)sl__pg_int8(res, (int)set->n, 0);
	sl__pg_pipe_end(&call->pipe);
	return 0;
}

/* A page of the jobs that events name in each statement. */
static int prune_events(struct pg_store *s, int64_t before_ms, struct sl_err *err)
{
	int64_t n = ORPHAN_PAGE, after = 0;
	int rc = 0;
	while (rc == 0 && n == ORPHAN_PAGE) {
		struct pg_call call;
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
		sl__pg_call_close(&call);
	}
	return rc;
}

static int prune_marks(struct pg_store *s, int64_t before_ms, struct sl_err *err)
{
	struct pg_call call;
	const PGresult *res = NULL;
	int rc = sl__pg_call_open(&call, s, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__pg_add_time(&call.params, before_ms);
	rc = sl__pg_call_one(&call, ST_PRUNE_MARKS, &res, err);
	sl__pg_call_close(&call);
	return rc;
}

int sl__pg_prune(void *store, int64_t before_ms, uint32_t limit, size_t *n, const struct sl_store_listen *listen,
		 struct sl_err *err)
{
	struct pg_store *s = store;
	struct id_set set = {.env = &s->env};
	struct pg_call call;
	int rc = sl__pg_call_open(&call, s, NULL, PG_LONG, err);
	if (rc != 0)
		return rc;
	rc = find_prunable(&call, before_ms, limit, begin_pruning(s, before_ms), &set, err);
	if (set.n > 0)
		sl__pg_call_audit(&call, listen);
	if (rc == 0)
		rc = delete_ids(&call, set.ids, set.n, true, n, NULL, err);
	if (rc == 0)
		end_pruning(s, before_ms, &set, limit);
	sl__free(&s->env, set.ids);
	sl__pg_call_close(&call);
	if (rc == 0 && *n == 0)
		rc = prune_events(s, before_ms, err);
	if (rc == 0 && *n == 0)
		rc = prune_marks(s, before_ms, err);
	return rc;
}
