/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog in PostgreSQL. The statements of a call, with the BEGIN before the first and the COMMIT after the last,
 * are one round trip. Every transaction names its schema itself, so that a pooler between us and the server does no
 * harm.
 *
 * A lease is the dataset's row alone: holder, expiry by the server's clock, fence.
 */
#include <stdio.h>

#define CAT_NO_ROWID ""
#define CAT_FOR_UPDATE " FOR UPDATE"
#define CAT_NOW_MS "(extract(epoch from clock_timestamp())*1000)::bigint"
#define CAT_EXPIRY(ttl) CAT_NOW_MS "+" ttl

#include "db/postgres.h"
#include "pipeline/audit/catalog_db.h"

#define CONNECTIONS 4

struct pg_catalog {
	const struct sl_env *env;
	sl__pg_pool *pool;
	char path[96]; /* SET LOCAL search_path … */
	char schema[64];
};

/* What tx->conn points to. */
struct pg_session {
	struct pg_catalog *db;
	struct sl__pg_conn *conn;
	struct sl__pg_pipe pipe;
	struct sl__pg_params params;
};

static const struct sl__pg_stmt statements[] = {
#define STATEMENT_OF(stmt, text) {.index = CAT_##stmt, .name = "cat_" #stmt, .sql = text},
	CAT_STATEMENTS(STATEMENT_OF)
#undef STATEMENT_OF
};
_Static_assert(CAT_N_STATEMENTS <= SL__PG_STATEMENTS, "too many statements");

static const char *const steps[] = {CAT_TO_1};
_Static_assert(SL_COUNT(steps) == CAT_SCHEMA_VERSION, "a version without its statements");

/* ---- transactions ---- */

static int cat_pg_begin(void *db, enum sl__cat_kind kind, struct sl__cat_tx *tx, struct sl_err *err)
{
	struct pg_catalog *s = db;
	struct pg_session *session = sl__calloc(s->env, 1, sizeof(*session));
	if (session == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for a transaction");
	int rc = sl__pg_take(s->pool, &session->conn, err);
	if (rc != 0) {
		sl__free(s->env, session);
		return rc;
	}
	session->db = s;
	sl__pg_pipe_init(&session->pipe, session->conn);
	sl__pg_params_init(&session->params, s->env);
	*tx = (struct sl__cat_tx){.db = db, .conn = session, .kind = kind};
	return 0;
}

static void cat_pg_end(struct sl__cat_tx *tx)
{
	struct pg_catalog *s = tx->db;
	struct pg_session *session = tx->conn;
	sl__pg_pipe_end(&session->pipe);
	if (tx->begun && !tx->committed && PQstatus(session->conn->pg) == CONNECTION_OK)
		sl__pg_exec_quietly(session->conn, "ROLLBACK");
	sl__pg_params_fini(&session->params);
	sl__pg_put(s->pool, session->conn);
	sl__free(s->env, session);
	tx->conn = NULL;
}

static int cat_pg_call(struct sl__cat_tx *tx, struct sl__cat_call *calls, size_t n, bool commit, struct sl_err *err)
{
	struct pg_session *session = tx->conn;
	struct sl__pg_pipe *pipe = &session->pipe;
	bool snapshot = tx->kind == CAT_SNAPSHOT;
	int at[SL__PG_PIPE_MAX];
	assert(n + 4 <= SL__PG_PIPE_MAX);
	sl__pg_pipe_end(pipe);
	if (!tx->begun) {
		(void)sl__pg_send_sql(pipe, snapshot ? "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" : "BEGIN",
				      NULL);
		(void)sl__pg_send_sql(pipe, session->db->path, NULL);
		/* It blocks no other transaction, and the caller's callback may take its time. */
		if (snapshot)
			(void)sl__pg_send_sql(pipe, "SET LOCAL idle_in_transaction_session_timeout='10min'", NULL);
		if (tx->kind == CAT_RELAXED)
			(void)sl__pg_send_sql(pipe, "SET LOCAL synchronous_commit=off", NULL);
		tx->begun = true;
	}
	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < calls[i].n; k++) {
			const struct sl__cat_value *v = &calls[i].values[k];
			if (v->text != NULL)
				sl__pg_add_text(&session->params, v->text);
			else
				sl__pg_add_int8(&session->params, v->number);
		}
		at[i] = sl__pg_send(pipe, &statements[calls[i].stmt], &session->params);
		sl__pg_params_clear(&session->params);
	}
	if (commit)
		(void)sl__pg_send_sql(pipe, "COMMIT", NULL);
	int rc = sl__pg_run(pipe, err);
	if (rc != 0)
		return rc;
	tx->committed = commit;
	for (size_t i = 0; i < n; i++) {
		/* libpq and the row take a result that is not const, and do not change it. */
		union {
			const PGresult *in;
			PGresult *out;
		} res = {.in = sl__pg_result(pipe, at[i])};
		struct sl__cat_call *call = &calls[i];
		const char *tuples = PQcmdTuples(res.out);
		call->changed = tuples[0] != '\0' && sscanf(tuples, "%d", &call->changed) == 1 ? call->changed : 0;
		for (int k = 0; call->fn != NULL && k < PQntuples(res.in); k++) {
			const struct sl__cat_row row = {.ops = &sl__cat_postgres_ops, .result = res.out, .at = k};
			if ((rc = call->fn(&row, err, call->ctx)) != 0)
				return rc;
		}
	}
	return 0;
}

static int64_t cat_pg_number(const struct sl__cat_row *row, int column)
{
	return sl__pg_int8(row->result, row->at, column);
}

static const char *cat_pg_text(const struct sl__cat_row *row, int column)
{
	return sl__pg_is_null(row->result, row->at, column) ? NULL : sl__pg_text(row->result, row->at, column);
}

/* ---- leases: the row says it all ---- */

static int cat_pg_guard(SL_UNUSED void *db, SL_UNUSED const char *dataset, void **out, SL_UNUSED struct sl_err *err)
{
	*out = NULL;
	return 0;
}

static void cat_pg_unguard(SL_UNUSED void *db, SL_UNUSED void *guard)
{
}

/* ---- versions ---- */

static int ask_catalog(struct sl__pg_conn *c, const char *sql, char *out, size_t size, struct sl_err *err)
{
	PGresult *res = PQexec(c->pg, sql);
	int rc = PQresultStatus(res) == PGRES_TUPLES_OK ? 0 : sl__pg_error(err, c->pg, res, "catalog");
	if (rc == 0)
		(void)snprintf(out, size, "%s", PQntuples(res) > 0 ? PQgetvalue(res, 0, 0) : "");
	PQclear(res);
	return rc;
}

/* 0 where there is no catalog yet. The FROM makes this session see what others changed while it waited for the advisory
 * lock; without it to_regclass would repeat from its cache that there is nothing. SL_EUNSUPPORTED: a later version. */
static int pg_version_of(struct pg_catalog *s, struct sl__pg_conn *c, int *out, struct sl_err *err)
{
	char sql[256], answer[32];
	*out = 0;
	(void)snprintf(sql, sizeof(sql),
		       "SELECT to_regclass('%s.sluice_catalog') IS NOT NULL FROM pg_catalog.pg_namespace"
		       " WHERE nspname='pg_catalog'",
		       s->schema);
	int rc = ask_catalog(c, sql, answer, sizeof(answer), err);
	if (rc != 0 || answer[0] != 't')
		return rc;
	(void)snprintf(sql, sizeof(sql), "SELECT coalesce(max(version),0) FROM %s.sluice_catalog", s->schema);
	if ((rc = ask_catalog(c, sql, answer, sizeof(answer), err)) != 0)
		return rc;
	if (sscanf(answer, "%d", out) != 1)
		return sl_err_set(err, SL_ECORRUPT, "schema %s: the catalog has no version number", s->schema);
	if (*out > CAT_SCHEMA_VERSION)
		return sl_err_set(err, SL_EUNSUPPORTED, "schema %s has catalog version %d, this library supports %d",
				  s->schema, *out, CAT_SCHEMA_VERSION);
	return 0;
}

static int pg_apply_missing(struct pg_catalog *s, struct sl__pg_conn *c, int version, struct sl_err *err)
{
	char sql[160], answer[32];
	(void)snprintf(sql, sizeof(sql), "SELECT to_regnamespace('%s') IS NOT NULL", s->schema);
	int rc = ask_catalog(c, sql, answer, sizeof(answer), err);
	if (rc != 0)
		return rc;
	(void)snprintf(sql, sizeof(sql), "CREATE SCHEMA %s", s->schema);
	if (answer[0] != 't' && (rc = sl__pg_exec(c, sql, err)) != 0)
		return rc;
	if ((rc = sl__pg_exec(c, s->path, err)) != 0)
		return rc;
	if (version == 0)
		rc = sl__pg_exec(c, "CREATE TABLE IF NOT EXISTS sluice_catalog(version integer)", err);
	for (; rc == 0 && version < CAT_SCHEMA_VERSION; version++) {
		if ((rc = sl__pg_exec(c, steps[version], err)) != 0)
			return rc;
		(void)snprintf(sql, sizeof(sql), "INSERT INTO sluice_catalog VALUES(%d)", version + 1);
		rc = sl__pg_exec(c, sql, err);
	}
	return rc;
}

static int pg_migrate(struct pg_catalog *s, bool create, struct sl_err *err)
{
	struct sl__pg_conn *c;
	char sql[160];
	int version = 0, rc = sl__pg_take(s->pool, &c, err);
	if (rc != 0)
		return rc;
	/* Mostly there is nothing to do, and no lock is taken for that. */
	rc = pg_version_of(s, c, &version, err);
	if (rc == 0 && version == 0 && !create)
		rc = sl_err_set(err, SL_EUNAVAIL, "no catalog in schema %s", s->schema);
	if (rc == 0 && version < CAT_SCHEMA_VERSION && create && (rc = sl__pg_exec(c, "BEGIN", err)) == 0) {
		(void)snprintf(sql, sizeof(sql),
			       "SELECT pg_advisory_xact_lock(hashtextextended('sluice catalog %s',0))", s->schema);
		if ((rc = sl__pg_exec(c, sql, err)) == 0 && (rc = pg_version_of(s, c, &version, err)) == 0 &&
		    (rc = pg_apply_missing(s, c, version, err)) == 0)
			rc = sl__pg_exec(c, "COMMIT", err);
		if (rc != 0)
			sl__pg_exec_quietly(c, "ROLLBACK");
	}
	sl__pg_put(s->pool, c);
	return rc;
}

/* ---- the handle ---- */

static void cat_pg_close(void *db)
{
	struct pg_catalog *s = db;
	if (s == NULL)
		return;
	sl__pg_pool_free(s->pool);
	sl__free(s->env, s);
}

const struct sl__cat_ops sl__cat_postgres_ops = {
	.name = "postgres",
	.expires = true,
	.close = cat_pg_close,
	.begin = cat_pg_begin,
	.call = cat_pg_call,
	.end = cat_pg_end,
	.guard = cat_pg_guard,
	.unguard = cat_pg_unguard,
	.number = cat_pg_number,
	.text = cat_pg_text,
};

int sl__cat_postgres_open(void **out, const char *url, const struct sl_catalog_opts *opts, const struct sl_env *env,
			  struct sl_err *err)
{
	const struct sl__pg_opts pg = {.env = env,
				       .conninfo = url,
				       .application = "sluice catalog",
				       .settings = "SET default_transaction_isolation='read committed'",
				       .connect_timeout_ms = opts->connect_timeout_ms,
				       .statement_timeout_ms = opts->statement_timeout_ms,
				       .transaction_timeout_ms =
					       sl__pg_transaction_timeout_ms(opts->statement_timeout_ms)};
	size_t n = strlen(opts->schema);
	if (n < 1 || n > 63 || strspn(opts->schema, "abcdefghijklmnopqrstuvwxyz_0123456789") != n ||
	    (opts->schema[0] >= '0' && opts->schema[0] <= '9'))
		return sl_err_set(err, SL_EINVAL, "schema: must match [a-z_][a-z0-9_]*, at most 63 bytes");
	int rc = sl__pg_check_conninfo(url, err);
	if (rc != 0)
		return rc;
	struct pg_catalog *s = sl__calloc(env, 1, sizeof(*s));
	if (s == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a catalog");
	s->env = env;
	(void)snprintf(s->schema, sizeof(s->schema), "%s", opts->schema);
	(void)snprintf(s->path, sizeof(s->path), "SET LOCAL search_path=%s", opts->schema);
	rc = sl__pg_pool_new(&s->pool, &pg, CONNECTIONS, err);
	if (rc == 0)
		rc = pg_migrate(s, opts->create != SL_OFF, err);
	if (rc != 0) {
		cat_pg_close(s);
		return rc;
	}
	*out = s;
	return 0;
}
