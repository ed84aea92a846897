/* SPDX-License-Identifier: Apache-2.0 */
/* Making a table. An advisory lock keeps those apart who do it at once: IF NOT EXISTS alone still fails for the second.
 */
#include "sink/postgres.h"

static const char *type_of(enum sl_column_kind kind)
{
	switch (kind) {
	case SL_COLUMN_INTEGER:
		return "bigint";
	case SL_COLUMN_REAL:
		return "double precision";
	case SL_COLUMN_NUMERIC:
		return "numeric";
	case SL_COLUMN_BOOLEAN:
		return "boolean";
	case SL_COLUMN_TIMESTAMP:
		return "timestamptz";
	case SL_COLUMN_DATE:
		return "date";
	case SL_COLUMN_JSON:
		return "jsonb";
	case SL_COLUMN_TEXT:
		break;
	}
	return "text";
}

static void put_table(struct sl__buf *sql, const char *table, const struct sl_sink_opts *opts,
		      const struct sl_column *columns, size_t n)
{
	(void)sl__buf_printf(sql, "BEGIN; SELECT pg_advisory_xact_lock(7957122); CREATE TABLE IF NOT EXISTS %s (",
			     table);
	for (size_t i = 0; i < n; i++) {
		(void)sl__buf_str_append(sql, i > 0 ? ", " : "");
		sl__pg_put_name(sql, columns[i].name);
		(void)sl__buf_printf(sql, " %s%s", type_of(columns[i].kind), columns[i].not_null ? " NOT NULL" : "");
	}
	for (size_t i = 0; i < opts->n_on_conflict; i++) {
		(void)sl__buf_str_append(sql, i == 0 ? ", PRIMARY KEY (" : ", ");
		sl__pg_put_name(sql, opts->on_conflict[i]);
	}
	(void)sl__buf_str_append(sql, opts->n_on_conflict > 0 ? ")); COMMIT" : "); COMMIT");
}

static int run(const struct sl_env *env, const char *conninfo, const char *sql, struct sl_err *err)
{
	PGconn *pg = NULL;
	struct sl__pg_opts opts = {.env = env,
				   .conninfo = conninfo,
				   .application = "sluice",
				   .connect_timeout_ms = 10000,
				   .statement_timeout_ms = 60000};
	int rc = sl__pg_connect(&pg, &opts, err);
	if (rc != 0)
		return rc;
	PGresult *res = PQexec(pg, sql);
	if (PQresultStatus(res) != PGRES_COMMAND_OK)
		rc = sl__pg_sink_error(err, pg, res, "CREATE TABLE");
	PQclear(res);
	PQfinish(pg);
	return rc;
}

int sl__sink_postgres_create(const char *what, const struct sl_sink_opts *opts, const struct sl_column *columns,
			     size_t n, struct sl_err *err)
{
	struct sl_env env;
	struct sl__buf sql;
	int rc = sl__sink_check_opts(opts, SL__SINK_ROWS | SL__SINK_TABLE, "postgres", err);
	rc = rc != 0 ? rc : sl__env_init(&env, SL_OPT_HAS(opts, env) ? opts->env : NULL, err);
	if (rc != 0)
		return rc;
	if (opts == NULL || opts->table == NULL || opts->table[0] == '\0' || n == 0)
		return sl_err_set(err, SL_EINVAL, "postgres: a table needs a name and a column");
	char *table = sl__pg_quoted_table(&env, opts->table);
	sl__buf_init(&sql, &env);
	if (table != NULL)
		put_table(&sql, table, opts, columns, n);
	rc = table == NULL || sql.failed != 0 ? sl_err_set(err, SL_ENOMEM, "postgres: out of memory")
					      : run(&env, what, sl__buf_str(&sql), err);
	sl__buf_fini(&sql);
	sl__free(&env, table);
	return rc;
}
