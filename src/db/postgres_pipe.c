/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pipelines. A connection is in pipeline mode only between the first statement and the end of the run, so that a
 * caller who is handed the connection of a transaction finds it as usual.
 *
 *	[Parse] Bind Execute   [Parse] Bind Execute   …   Sync          one write, one answer
 *
 * A statement is parsed in the same pipeline in which it is first used. PREPARE is not undone by a failure of the
 * transaction, so what the server says of each Parse decides whether it counts as prepared.
 *
 * A server may forget what was prepared (DISCARD ALL, DEALLOCATE), and a pooler between us and it may give us another
 * session with every transaction. That fails the pipe, with nothing done; the next one prepares anew, and a connection
 * where it happens again does without.
 */
#include "db/postgres.h"

void sl__pg_pipe_init(struct sl__pg_pipe *pipe, struct sl__pg_conn *conn)
{
	memset(pipe, 0, sizeof(*pipe));
	pipe->conn = conn;
	pipe->failed_at = -1;
}

void sl__pg_pipe_end(struct sl__pg_pipe *pipe)
{
	for (int i = 0; i < SL__PG_PIPE_MAX; i++) {
		PQclear(pipe->results[i]);
		pipe->results[i] = NULL;
	}
	pipe->n = pipe->n_queued = 0;
	pipe->failed = 0;
	pipe->failed_at = -1;
}

/* Pointers into the buffer, now that it does not move any more. */
struct bound {
	const char *values[SL__PG_PARAMS];
	int lengths[SL__PG_PARAMS];
	int formats[SL__PG_PARAMS];
	int n;
};

static void bind(struct bound *b, const struct sl__pg_params *p)
{
	b->n = p != NULL ? p->n : 0;
	for (int i = 0; i < b->n; i++) {
		b->values[i] = p->p[i].len < 0 ? NULL : sl__buf_str(&p->data) + p->p[i].at;
		b->lengths[i] = p->p[i].len < 0 ? 0 : p->p[i].len;
		b->formats[i] = 1;
	}
}

/* A place for one more statement; false when the pipe has failed. */
static bool begin_statement(struct sl__pg_pipe *pipe, const struct sl__pg_params *params)
{
	PGconn *pg = pipe->conn->pg;
	assert(pipe->n < SL__PG_PIPE_MAX);
	if (params != NULL && params->data.failed != 0 && pipe->failed == 0)
		pipe->failed = SL_ENOMEM;
	if (pipe->failed == 0 && PQpipelineStatus(pg) == PQ_PIPELINE_OFF && PQenterPipelineMode(pg) != 1)
		pipe->failed = SL_EUNAVAIL;
	return pipe->failed == 0;
}

static void queued(struct sl__pg_pipe *pipe, int ok, bool is_prepare, unsigned index)
{
	if (ok != 1) {
		pipe->failed = SL_EUNAVAIL;
		return;
	}
	pipe->is_prepare[pipe->n_queued] = is_prepare;
	pipe->prepares[pipe->n_queued++] = index;
}

/* Prepared already, or being prepared in this pipe. */
static bool knows(const struct sl__pg_pipe *pipe, unsigned index)
{
	if ((pipe->conn->prepared >> index & 1) != 0)
		return true;
	for (int i = 0; i < pipe->n_queued; i++)
		if (pipe->is_prepare[i] && pipe->prepares[i] == index)
			return true;
	return false;
}

#define FORGETS 2 /* as often, and nothing is prepared any more */

int sl__pg_send(struct sl__pg_pipe *pipe, const struct sl__pg_stmt *stmt, const struct sl__pg_params *params)
{
	const struct sl__pg_conn *conn = pipe->conn;
	if (conn->foreign || conn->pooled || conn->forgot >= FORGETS || stmt->index >= SL__PG_STATEMENTS)
		return sl__pg_send_sql(pipe, stmt->sql, params);
	if (begin_statement(pipe, params)) {
		struct bound b;
		PGconn *pg = pipe->conn->pg;
		bind(&b, params);
		if (!knows(pipe, stmt->index))
			queued(pipe, PQsendPrepare(pg, stmt->name, stmt->sql, 0, NULL), true, stmt->index);
		if (pipe->failed == 0)
			queued(pipe, PQsendQueryPrepared(pg, stmt->name, b.n, b.values, b.lengths, b.formats, 1), false,
			       0);
	}
	pipe->names[pipe->n] = stmt->name;
	return pipe->n++;
}

int sl__pg_send_sql(struct sl__pg_pipe *pipe, const char *sql, const struct sl__pg_params *params)
{
	if (begin_statement(pipe, params)) {
		struct bound b;
		bind(&b, params);
		queued(pipe, PQsendQueryParams(pipe->conn->pg, sql, b.n, NULL, b.values, b.lengths, b.formats, 1),
		       false, 0);
	}
	pipe->names[pipe->n] = "statement";
	return pipe->n++;
}

static bool is_good(const PGresult *res)
{
	ExecStatusType status = PQresultStatus(res);
	return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK || status == PGRES_EMPTY_QUERY;
}

/* Read what the command at i of the queue gave, and the NULL after it. Returns the first error's code. */
static int take_result(struct sl__pg_pipe *pipe, int i, int *statement, struct sl_err *err)
{
	PGconn *pg = pipe->conn->pg;
	PGresult *res = PQgetResult(pg), *more;
	int rc = 0;
	while (res != NULL && PQresultStatus(res) != PGRES_PIPELINE_SYNC && (more = PQgetResult(pg)) != NULL)
		PQclear(more);
	if (res == NULL || !is_good(res)) {
		const char *state = res != NULL ? PQresultErrorField(res, PG_DIAG_SQLSTATE) : NULL;
		rc = sl__pg_error(err, pg, res, pipe->names[*statement]);
		pipe->failed_at = *statement;
		/* What we prepared was forgotten, or the session is another's. */
		if (state != NULL && (strcmp(state, "26000") == 0 || strcmp(state, "42P05") == 0)) {
			pipe->conn->prepared = 0;
			pipe->conn->forgot++;
		}
	} else if (pipe->is_prepare[i]) {
		pipe->conn->prepared |= UINT64_C(1) << pipe->prepares[i];
	}
	if (pipe->is_prepare[i])
		PQclear(res);
	else
		pipe->results[(*statement)++] = res;
	return rc;
}

/* *synced: a Sync is under way, and its answer has to be read. */
static int send_sync(struct sl__pg_pipe *pipe, bool *synced, struct sl_err *err)
{
	PGconn *pg = pipe->conn->pg;
	int rc = 0;
	if (pipe->failed == SL_ENOMEM)
		rc = sl_err_set(err, SL_ENOMEM, "postgres: parameters: out of memory, or too large");
	else if (pipe->failed != 0)
		rc = sl__pg_error(err, pg, NULL, "send");
	*synced = PQpipelineStatus(pg) != PQ_PIPELINE_OFF;
	/* Statements before the one that could not be sent must not be committed by the Sync: a failing one comes last.
	 * If that could not be sent either, there is no Sync, and nothing is committed. */
	if (*synced && rc != 0)
		*synced = PQsendQueryParams(pg, "SELECT 1/0", 0, NULL, NULL, NULL, NULL, 0) == 1;
	if (*synced && PQpipelineSync(pg) != 1 && rc == 0)
		rc = sl__pg_error(err, pg, NULL, "send");
	return rc;
}

/* rc: of send_sync. */
static int read_answer(struct sl__pg_pipe *pipe, int rc, bool synced, struct sl_err *err)
{
	PGconn *pg = pipe->conn->pg;
	int statement = 0;
	for (int i = 0; i < pipe->n_queued && rc == 0; i++)
		rc = take_result(pipe, i, &statement, err);
	/* Read up to the Sync, whatever comes, so that the connection is idle afterwards. */
	for (bool idle = !synced; !idle && PQstatus(pg) == CONNECTION_OK;) {
		PGresult *res = PQgetResult(pg);
		idle = res != NULL && PQresultStatus(res) == PGRES_PIPELINE_SYNC;
		PQclear(res);
	}
	if (rc != 0) {
		int failed_at = synced ? pipe->failed_at : -1;
		sl__pg_pipe_end(pipe);
		pipe->failed_at = failed_at;
	}
	return rc;
}

int sl__pg_run(struct sl__pg_pipe *pipe, struct sl_err *err)
{
	bool synced;
	int rc = send_sync(pipe, &synced, err);
	rc = read_answer(pipe, rc, synced, err);
	if (synced)
		(void)PQexitPipelineMode(pipe->conn->pg);
	return rc;
}

int sl__pg_run_then(struct sl__pg_pipe *pipe, const struct sl__pg_stmt *then, const struct sl__pg_params *params,
		    bool *done, struct sl_err *err)
{
	struct sl__pg_pipe second;
	bool synced, second_synced = false;
	int second_rc = SL_EUNAVAIL;
	int rc = send_sync(pipe, &synced, err);
	sl__pg_pipe_init(&second, pipe->conn);
	if (rc == 0) {
		(void)sl__pg_send(&second, then, params);
		second_rc = send_sync(&second, &second_synced, NULL);
	}
	rc = read_answer(pipe, rc, synced, err);
	if (second_synced)
		second_rc = read_answer(&second, second_rc, true, NULL);
	*done = rc == 0 && second_rc == 0;
	sl__pg_pipe_end(&second);
	if (synced)
		(void)PQexitPipelineMode(pipe->conn->pg);
	return rc;
}

int sl__pg_exec(struct sl__pg_conn *conn, const char *sql, struct sl_err *err)
{
	PGresult *res = PQexec(conn->pg, sql);
	int rc = is_good(res) ? 0 : sl__pg_error(err, conn->pg, res, sql);
	PQclear(res);
	return rc;
}

void sl__pg_exec_quietly(struct sl__pg_conn *conn, const char *sql)
{
	PQclear(PQexec(conn->pg, sql));
}
