/* SPDX-License-Identifier: Apache-2.0 */
/* The table as the catalog describes it: which columns can be written, of which type, with which defaults. Also creates
 * a table. */
#include <stdlib.h>

#include "sink/postgres.h"

/* A number that changes with the names and types of the columns; of the table $1, or of a literal. */
#define SHAPE_OF(table)                                                                                                \
	"(SELECT hashtextextended(string_agg(attname || ':' || atttypid, ',' ORDER BY attnum), 0) FROM pg_attribute"   \
	" WHERE attrelid = to_regclass(" table ") AND attnum > 0 AND NOT attisdropped)"

/* A domain is written as what it is made from; the server checks it when the value gets into the column. */
static const char catalog_sql[] =
	"SELECT a.attname, format_type(a.atttypid, NULL), b.oid, b.typarray, b.typtype, b.typcategory,"
	" a.atthasdef OR a.attidentity <> '', " SHAPE_OF(
		"$1") ", (a.atttypmod = -1 AND t.typtypmod = -1 OR b.typcategory = 'S') AND NOT EXISTS (SELECT 1 FROM"
		      " pg_collation k WHERE k.oid = a.attcollation AND NOT k.collisdeterministic)"
		      " FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid"
		      " JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END"
		      " WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated "
		      "= ''"
		      " ORDER BY a.attnum";

static const struct {
	uint32_t oid;
	enum sl__enc enc;
} encodings[] = {
	{16, SL__ENC_BOOL},    {17, SL__ENC_BYTEA},       {19, SL__ENC_OTHER},         {20, SL__ENC_INT8},
	{21, SL__ENC_INT2},    {23, SL__ENC_INT4},        {25, SL__ENC_TEXT},          {114, SL__ENC_JSON},
	{700, SL__ENC_FLOAT4}, {701, SL__ENC_FLOAT8},     {1042, SL__ENC_TEXT},        {1043, SL__ENC_TEXT},
	{1082, SL__ENC_DATE},  {1114, SL__ENC_TIMESTAMP}, {1184, SL__ENC_TIMESTAMPTZ}, {1700, SL__ENC_NUMERIC},
	{2950, SL__ENC_UUID},  {3802, SL__ENC_JSONB},
};

static enum sl__enc encoding_of(uint32_t oid, char kind)
{
	for (size_t i = 0; i < SL_COUNT(encodings); i++)
		if (encodings[i].oid == oid)
			return encodings[i].enc;
	return kind == 'e' ? SL__ENC_TEXT : SL__ENC_OTHER; /* a label of an enum travels as its text */
}

void sl__pg_put_name(struct sl__buf *buf, const char *name)
{
	(void)sl__buf_append(buf, "\"", 1);
	for (const char *p = name; *p != '\0'; p++)
		(void)sl__buf_append(buf, *p == '"' ? "\"\"" : p, *p == '"' ? 2 : 1);
	(void)sl__buf_append(buf, "\"", 1);
}

char *sl__pg_quoted_table(const struct sl_env *env, const char *table)
{
	struct sl__buf buf;
	const char *dot = strchr(table, '.');
	sl__buf_init(&buf, env);
	if (dot != NULL) {
		char *schema = sl__asprintf(env, "%.*s", (int)(dot - table), table);
		if (schema == NULL)
			buf.failed = SL_ENOMEM;
		else
			sl__pg_put_name(&buf, schema);
		sl__free(env, schema);
		(void)sl__buf_append(&buf, ".", 1);
	}
	sl__pg_put_name(&buf, dot != NULL ? dot + 1 : table);
	char *out = sl__buf_take(&buf);
	sl__buf_fini(&buf);
	return out;
}

void sl__pg_table_fini(struct sl__pg_table *t)
{
	for (size_t i = 0; i < t->n && t->columns != NULL; i++) {
		sl__free(t->env, t->columns[i].name);
		sl__free(t->env, t->columns[i].type);
	}
	if (t->env != NULL) {
		sl__free(t->env, t->columns);
		sl__free(t->env, t->names);
	}
	*t = (struct sl__pg_table){0};
}

static uint32_t oid_at(const PGresult *r, int row, int column)
{
	return (uint32_t)strtoul(PQgetvalue(r, row, column), NULL, 10);
}

static bool is_in(const char *name, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(name, list[i]) == 0)
			return true;
	return false;
}

static int row_of(const PGresult *r, const char *column)
{
	for (int i = 0; i < PQntuples(r); i++)
		if (strcmp(PQgetvalue(r, i, 0), column) == 0)
			return i;
	return -1;
}

/* Are two values of this column equal exactly when their encodings are, but for blanks at the end of text? */
static bool has_plain_encoding(enum sl__enc enc)
{
	switch (enc) {
	case SL__ENC_TEXT:
	case SL__ENC_BOOL:
	case SL__ENC_INT2:
	case SL__ENC_INT4:
	case SL__ENC_INT8:
	case SL__ENC_DATE:
	case SL__ENC_TIMESTAMP:
	case SL__ENC_TIMESTAMPTZ:
	case SL__ENC_UUID:
	case SL__ENC_BYTEA:
		return true;
	case SL__ENC_OTHER:
	case SL__ENC_FLOAT4:
	case SL__ENC_FLOAT8:
	case SL__ENC_NUMERIC:
	case SL__ENC_JSON:
	case SL__ENC_JSONB:
		break;
	}
	return false;
}

static int no_column(const struct sl__pg_sink *s, const char *column, struct sl_err *err)
{
	(void)sl_err_set(err, SL_ECONFIG, "postgres: table %s has no writable column %s", s->opts.table, column);
	return sl__sink_class(err, SL_ECONFIG, SL_CLASS_FATAL);
}

static int fill_columns(struct sl__pg_table *t, const PGresult *r, const struct sl__pg_sink *s, struct sl_err *err)
{
	const struct sl_sink_opts *o = &s->opts;
	size_t n = o->columns != NULL ? o->n_columns : (size_t)PQntuples(r);
	t->columns = sl__calloc(t->env, n, sizeof(*t->columns));
	t->names = sl__calloc(t->env, n, sizeof(*t->names));
	if (t->columns == NULL || t->names == NULL)
		return sl__no_memory(err, "postgres");
	t->binary = true;
	for (t->n = 0; t->n < n; t->n++) {
		int row = o->columns != NULL ? row_of(r, o->columns[t->n]) : (int)t->n;
		if (row < 0)
			return no_column(s, o->columns[t->n], err);
		struct sl__pg_column *c = &t->columns[t->n];
		*c = (struct sl__pg_column){.name = sl__strdup(t->env, PQgetvalue(r, row, 0)),
					    .type = sl__strdup(t->env, PQgetvalue(r, row, 1)),
					    .oid = oid_at(r, row, 2),
					    .array = oid_at(r, row, 3),
					    .has_default = PQgetvalue(r, row, 6)[0] == 't'};
		c->enc = encoding_of(c->oid, PQgetvalue(r, row, 4)[0]);
		t->binary = t->binary && c->enc != SL__ENC_OTHER && c->array != 0;
		t->names[t->n] = c->name;
		if (c->name == NULL || c->type == NULL) {
			t->n++; /* so that it is freed */
			return sl__no_memory(err, "postgres");
		}
		c->is_key = is_in(c->name, o->on_conflict, o->n_on_conflict);
		c->plain = has_plain_encoding(c->enc) && PQgetvalue(r, row, 8)[0] == 't';
	}
	for (size_t i = 0; i < o->n_on_conflict; i++)
		if (!is_in(o->on_conflict[i], t->names, t->n))
			return no_column(s, o->on_conflict[i], err);
	return 0;
}

void sl__pg_put_shape_check(struct sl__buf *sql, const struct sl__pg_lane *lane)
{
	static const char shape[] = SHAPE_OF("\001");
	const char *name = strchr(shape, '\001');
	(void)sl__buf_str_append(sql, "SELECT 1 / (");
	(void)sl__buf_append(sql, shape, (size_t)(name - shape));
	/* The name of the table in the quotes of a literal. */
	(void)sl__buf_str_append(sql, "E'");
	for (const char *p = lane->sink->table; *p != '\0'; p++) {
		if (*p == '\'' || *p == '\\')
			(void)sl__buf_append(sql, p, 1);
		(void)sl__buf_append(sql, p, 1);
	}
	(void)sl__buf_printf(sql, "'%s = %lld)::int", name + 1, (long long)lane->table.shape);
}

int sl__pg_table_load(struct sl__pg_lane *lane, struct sl_err *err)
{
	struct sl__pg_sink *s = lane->sink;
	const char *const values[] = {s->table};
	struct sl__pg_table t = {.env = &s->env};
	int rc = 0, found = 0, wait_rc = 0;
	PGresult *res;
	sl__pg_table_fini(&lane->table);
	lane->prepared.len = 0;
	lane->prepared_text = false;
	if (PQsendQueryParams(lane->pg, catalog_sql, 1, NULL, values, NULL, NULL, 0) == 0)
		return sl__pg_sink_error(err, lane->pg, NULL, "catalog");
	while ((res = sl__pg_next(lane, &wait_rc, err)) != NULL) {
		found = PQntuples(res);
		if (PQresultStatus(res) != PGRES_TUPLES_OK)
			rc = sl__pg_sink_error(err, lane->pg, res, "catalog");
		else if (found > 0)
			rc = fill_columns(&t, res, s, err);
		if (rc == 0 && found > 0)
			t.shape = strtoll(PQgetvalue(res, 0, 7), NULL, 10);
		PQclear(res);
	}
	rc = wait_rc != 0 ? wait_rc : rc;
	if (rc != 0) {
		sl__pg_table_fini(&t);
		return rc;
	}
	if (found == 0) {
		(void)sl_err_set(err, SL_ECONFIG, "postgres: no writable table %s; create it first", s->opts.table);
		return sl__sink_class(err, SL_ECONFIG, SL_CLASS_FATAL);
	}
	lane->table = t;
	return 0;
}

/* ---- creating the table ---- */

static const char *pg_type_of(enum sl_column_kind kind)
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

/* An advisory lock separates processes that create the table at the same time: IF NOT EXISTS alone still fails for the
 * second. */
int sl__sink_postgres_create(const char *what, const struct sl_sink_opts *opts, const struct sl_column *columns,
			     size_t n, struct sl_err *err)
{
	struct sl_env env;
	struct sl__buf sql;
	PGconn *pg = NULL;
	int rc = sl__sink_check_opts(opts, SL__SINK_ROWS | SL__SINK_TABLE, "postgres", &env, err);
	if (rc != 0)
		return rc;
	if (opts == NULL || opts->table == NULL || opts->table[0] == '\0' || n == 0)
		return sl_err_set(err, SL_EINVAL, "postgres: a table needs a name and at least one column");
	char *table = sl__pg_quoted_table(&env, opts->table);
	if (table == NULL)
		return sl__no_memory(err, "postgres");
	sl__buf_init(&sql, &env);
	(void)sl__buf_printf(&sql, "BEGIN; SELECT pg_advisory_xact_lock(7957122); CREATE TABLE IF NOT EXISTS %s (",
			     table);
	sl__free(&env, table);
	for (size_t i = 0; i < n; i++) {
		(void)sl__buf_str_append(&sql, i > 0 ? ", " : "");
		sl__pg_put_name(&sql, columns[i].name);
		(void)sl__buf_printf(&sql, " %s%s", pg_type_of(columns[i].kind),
				     columns[i].not_null ? " NOT NULL" : "");
	}
	for (size_t i = 0; i < opts->n_on_conflict; i++) {
		(void)sl__buf_str_append(&sql, i == 0 ? ", PRIMARY KEY (" : ", ");
		sl__pg_put_name(&sql, opts->on_conflict[i]);
	}
	(void)sl__buf_str_append(&sql, opts->n_on_conflict > 0 ? ")); COMMIT" : "); COMMIT");
	struct sl__pg_opts connection = {.env = &env,
					 .conninfo = what,
					 .application = "sluice",
					 .connect_timeout_ms = 10000,
					 .statement_timeout_ms = 60000};
	rc = sql.failed != 0 ? sl__no_memory(err, "postgres") : sl__pg_connect(&pg, &connection, err);
	if (rc == 0) {
		PGresult *res = PQexec(pg, sl__buf_str(&sql));
		if (PQresultStatus(res) != PGRES_COMMAND_OK)
			rc = sl__pg_sink_error(err, pg, res, "CREATE TABLE");
		PQclear(res);
		PQfinish(pg);
	}
	sl__buf_fini(&sql);
	return rc;
}
