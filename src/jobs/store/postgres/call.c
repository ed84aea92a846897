/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call: where its connection comes from, and what stands around its statements.
 *
 *	own, once    st … st                          the pipeline is the transaction
 *	own, long    BEGIN st … │ st … │ st … COMMIT  several round trips
 *	caller's     SAVEPOINT st … │ … RELEASE       a failure is rolled back to the savepoint
 */
#include <stdio.h>

#include "jobs/store/postgres/store.h"
#include "jobs/store/refusals.h"

#define SAVEPOINT "sluice_call"

int sl__pg_call_open(struct pg_call *call, struct pg_store *store, sl_store_tx *tx, enum pg_call_kind kind,
		     struct sl_err *err)
{
	memset(call, 0, sizeof(*call));
	call->store = store;
	call->tx = tx;
	call->pool = kind == PG_RENEWAL ? store->renewals : store->pool;
	call->kind = kind;
	if (tx != NULL) {
		call->conn = tx->pg.conn;
	} else {
		int rc = sl__pg_take(call->pool, &call->conn, err);
		if (rc != 0)
			return rc;
	}
	sl__pg_pipe_init(&call->pipe, call->conn);
	sl__pg_params_init(&call->params, &store->env);
	return 0;
}

void sl__pg_call_close(struct pg_call *call)
{
	if (call->conn == NULL)
		return;
	/* What was queued and never run must not be committed by another call's Sync. */
	if (call->pipe.n > 0 && PQpipelineStatus(call->conn->pg) != PQ_PIPELINE_OFF) {
		call->pipe.failed = SL_ENOMEM;
		int rc = sl__pg_run(&call->pipe, NULL);
		assert(rc != 0);
		(void)rc;
	}
	sl__pg_pipe_end(&call->pipe);
	if (call->begun && !call->finished && PQstatus(call->conn->pg) == CONNECTION_OK)
		sl__pg_exec_quietly(call->conn, call->tx != NULL ? "ROLLBACK TO SAVEPOINT " SAVEPOINT
								   "; RELEASE SAVEPOINT " SAVEPOINT
								 : "ROLLBACK");
	sl__pg_params_fini(&call->params);
	if (call->tx == NULL)
		sl__pg_put(call->pool, call->conn);
}

static void begin_statements(struct pg_call *call)
{
	if (call->begun || (call->tx == NULL && call->kind != PG_LONG))
		return;
	call->begun = true;
	(void)sl__pg_send_sql(&call->pipe, call->tx != NULL ? "SAVEPOINT " SAVEPOINT : "BEGIN", NULL);
	if (call->tx != NULL && !call->conn->foreign)
		(void)sl__pg_send(&call->pipe, &call->store->statements[ST_STRICT], NULL);
}

int sl__pg_call_send(struct pg_call *call, enum pg_statement statement)
{
	begin_statements(call);
	int n = sl__pg_send(&call->pipe, &call->store->statements[statement], &call->params);
	sl__pg_params_clear(&call->params);
	return n;
}

int sl__pg_call_send_sql(struct pg_call *call, const char *sql)
{
	begin_statements(call);
	int n = sl__pg_send_sql(&call->pipe, sql, &call->params);
	sl__pg_params_clear(&call->params);
	return n;
}

int sl__pg_call_run(struct pg_call *call, bool last, struct sl_err *err)
{
	begin_statements(call);
	/* The last run writes the audit records and ends what was begun. */
	for (size_t i = 0; last && i < call->n_audit; i++) {
		const struct sl_audit_record *r = &call->audit[i];
		sl__pg_add_record(&call->params, r);
		sl__pg_add_ids(&call->params, r->chains, r->n_chains);
		(void)sl__pg_call_send(call, ST_AUDIT);
	}
	if (last && call->begun) {
		if (call->tx != NULL && !call->conn->foreign)
			(void)sl__pg_send(&call->pipe, &call->store->statements[ST_RELAXED], NULL);
		(void)sl__pg_send_sql(&call->pipe, call->tx != NULL ? "RELEASE SAVEPOINT " SAVEPOINT : "COMMIT", NULL);
	}
	int rc = sl__pg_run(&call->pipe, err);
	if (rc == 0)
		call->finished = last;
	return rc;
}

int sl__pg_call_run_then(struct pg_call *call, enum pg_statement then, bool *done, struct sl_err *err)
{
	assert(call->tx == NULL && call->kind == PG_ONCE);
	int rc = sl__pg_run_then(&call->pipe, &call->store->statements[then], &call->params, done, err);
	sl__pg_params_clear(&call->params);
	if (rc == 0)
		call->finished = true;
	return rc;
}

int sl__pg_call_one(struct pg_call *call, enum pg_statement statement, const PGresult **res, struct sl_err *err)
{
	int at = sl__pg_call_send(call, statement);
	int rc = sl__pg_call_run(call, true, err);
	if (rc == 0 && res != NULL)
		*res = sl__pg_call_result(call, at);
	return rc;
}

static const char *const relax[] = {
#define PLANNER_ROW(name, value) "SET LOCAL " #name " TO DEFAULT",
	SL__PG_PLANNER(PLANNER_ROW)
#undef PLANNER_ROW
};

/* Lists are rare and large: a statement for each setting is cheap compared with them. */
int sl__pg_call_run_relaxed(struct pg_call *call, const char *sql, const PGresult **res, struct sl_err *err)
{
	assert(call->tx == NULL);
	call->kind = PG_LONG;
	begin_statements(call);
	/* No table is read from end to end where there is an index, nor all that an index has of a type by a bitmap:
	 * the first rows in its order are enough. JIT stays off, too: the cost of what is forbidden would call for it,
	 * and it takes a second. */
	for (size_t i = 0; i < SL_COUNT(relax); i++)
		if (strstr(relax[i], "enable_seqscan") == NULL && strstr(relax[i], "enable_bitmapscan") == NULL &&
		    strstr(relax[i], "jit") == NULL)
			(void)sl__pg_send_sql(&call->pipe, relax[i], NULL);
	int at = sl__pg_call_send_sql(call, sql);
	int rc = sl__pg_call_run(call, true, err);
	if (rc == 0)
		*res = sl__pg_call_result(call, at);
	return rc;
}

int sl__pg_blocker_error(int rc, struct sl_err *err)
{
	unsigned long long own, by;
	const char *circle = err != NULL ? strstr(err->msg, SL__PG_CIRCLE) : NULL;
	if (circle != NULL && strcmp(err->sqlstate, "22P02") == 0 &&
	    sscanf(circle, SL__PG_CIRCLE "%llu %llu", &own, &by) == 2)
		return sl__refuse_circle(own, by, err);
	if (err == NULL || strcmp(err->sqlstate, "23502") != 0)
		return rc;
	rc = sl_err_set(err, SL_ENOENT, "postgres: a chain among the blockers does not exist, or is the job's own");
	err->error_class = SL_CLASS_POISON;
	return rc;
}

void sl__pg_report_unblocked(struct pg_store *s, const PGresult *res, const struct sl_store_scope *l)
{
	if (PQntuples(res) > 0)
		sl__pg_marks_forget(s);
	for (int i = 0; i < PQntuples(res); i++) {
		uint64_t id = (uint64_t)sl__pg_int8(res, i, 0);
		const char *type = sl__pg_text(res, i, 2);
		sl__report_change(l, SL_CHANGE_UNBLOCKED, id, (uint64_t)sl__pg_int8(res, i, 1), type);
		sl__report_note(l, SL_NOTE_JOB_SCHEDULED, type, id, SL_LOST_NOT);
	}
}
