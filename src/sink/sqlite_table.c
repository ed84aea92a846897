/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/sqlite_table.h"

#include <strings.h>

#include "base/buf.h"

/* ---- affinity ---- */

static bool contains(const char *type, const char *part)
{
	size_t n = strlen(part);
	for (; *type != '\0'; type++)
		if (strncasecmp(type, part, n) == 0)
			return true;
	return false;
}

/* The five rules, in their order. */
static enum sl__affinity affinity_of(const char *type)
{
	if (type == NULL || type[0] == '\0')
		return SL__AFFINITY_BLOB;
	if (contains(type, "INT"))
		return SL__AFFINITY_INTEGER;
	if (contains(type, "CHAR") || contains(type, "CLOB") || contains(type, "TEXT"))
		return SL__AFFINITY_TEXT;
	/* ANY of a strict table keeps what it is given. */
	if (contains(type, "BLOB") || strcasecmp(type, "ANY") == 0)
		return SL__AFFINITY_BLOB;
	if (contains(type, "REAL") || contains(type, "FLOA") || contains(type, "DOUB"))
		return SL__AFFINITY_REAL;
	return SL__AFFINITY_NUMERIC;
}

/* ---- columns ---- */

void sl__shape_fini(struct sl__shape *shape)
{
	for (size_t i = 0; shape->names != NULL && i < shape->n; i++) {
		union {
			const char *in;
			void *out;
		} p = {.in = shape->names[i]};
		sl__free(shape->env, p.out);
	}
	if (shape->env != NULL) {
		union {
			const char **in;
			void *out;
		} p = {.in = shape->names};
		sl__free(shape->env, p.out);
		sl__free(shape->env, shape->affinity);
	}
	*shape = (struct sl__shape){.version = -1};
}

static int add_column(struct sl__shape *shape, const char *name, const char *type)
{
	size_t n = shape->n;
	const char **names = sl__realloc(shape->env, shape->names, (n + 1) * sizeof(*names));
	if (names == NULL)
		return SL_ENOMEM;
	shape->names = names;
	uint8_t *affinity = sl__realloc(shape->env, shape->affinity, n + 1);
	if (affinity == NULL)
		return SL_ENOMEM;
	shape->affinity = affinity;
	names[n] = sl__strdup(shape->env, name);
	affinity[n] = (uint8_t)affinity_of(type);
	shape->n += names[n] != NULL;
	return names[n] != NULL ? 0 : SL_ENOMEM;
}

/* All columns of the table that can be written. */
static int read_columns(struct sl__shape *all, struct sl__sqlite *db, const char *table, struct sl_err *err)
{
	sqlite3_stmt *s = NULL;
	/* hidden: 0 a plain column, 1 of a virtual table, 2 and 3 generated */
	int rc = sl__sqlite_prepare(db, "SELECT name, type FROM pragma_table_xinfo(?1) WHERE hidden = 0 ORDER BY cid",
				    &SQ_TEXT(table), 1, &s, err);
	while (rc == 0) {
		int more = sl__sqlite_step(db, s, err);
		if (more <= 0) {
			rc = more;
			break;
		}
		if (add_column(all, sl__sqlite_text(s, 0), sl__sqlite_text(s, 1)) != 0)
			rc = sl__no_memory(err, "sqlite");
	}
	(void)sqlite3_finalize(s);
	if (rc == 0 && all->n == 0)
		rc = sl_err_set(err, SL_ENOENT, "sqlite: there is no table %s; make it, or use --create", table);
	return rc;
}

static size_t find_column(const struct sl__shape *shape, const char *name)
{
	size_t i = 0;
	while (i < shape->n && strcasecmp(shape->names[i], name) != 0)
		i++;
	return i;
}

static int check_names(const struct sl__shape *all, const char *const *names, size_t n, const char *table,
		       struct sl_err *err)
{
	for (size_t i = 0; i < n; i++)
		if (find_column(all, names[i]) == all->n)
			return sl_err_set(err, SL_ECONFIG, "sqlite: the table %s has no column %s", table, names[i]);
	return 0;
}

static int choose_columns(struct sl__shape *out, struct sl__shape *all, const struct sl_sink_opts *opts,
			  struct sl_err *err)
{
	if (opts->n_columns == 0) {
		struct sl__shape empty = *out;
		*out = *all;
		*all = empty;
		return 0;
	}
	for (size_t i = 0; i < opts->n_columns; i++) {
		if (add_column(out, opts->columns[i], NULL) != 0)
			return sl__no_memory(err, "sqlite");
		out->affinity[i] = all->affinity[find_column(all, opts->columns[i])];
	}
	return 0;
}

int sl__shape_load(struct sl__shape *shape, struct sl__sqlite *db, const struct sl_sink_opts *opts, int64_t version,
		   struct sl_err *err)
{
	struct sl__shape all = {.env = db->env}, chosen = {.env = db->env};
	int rc = read_columns(&all, db, opts->table, err);
	rc = rc != 0 ? rc : check_names(&all, opts->columns, opts->n_columns, opts->table, err);
	rc = rc != 0 ? rc : check_names(&all, opts->on_conflict, opts->n_on_conflict, opts->table, err);
	rc = rc != 0 ? rc : choose_columns(&chosen, &all, opts, err);
	sl__shape_fini(&all);
	if (rc != 0) {
		sl__shape_fini(&chosen);
		return rc;
	}
	sl__shape_fini(shape);
	*shape = chosen;
	shape->version = version;
	return 0;
}

/* ---- statements ---- */

void sl__put_sql_name(struct sl__buf *buf, const char *name)
{
	(void)sl__buf_append(buf, "\"", 1);
	for (; *name != '\0'; name++)
		(void)sl__buf_append(buf, *name == '"' ? "\"\"" : name, *name == '"' ? 2 : 1);
	(void)sl__buf_append(buf, "\"", 1);
}

static bool is_key(const struct sl_sink_opts *opts, const char *name)
{
	for (size_t i = 0; i < opts->n_on_conflict; i++)
		if (strcasecmp(opts->on_conflict[i], name) == 0)
			return true;
	return false;
}

static bool is_present(const uint8_t *present, size_t i)
{
	return present == NULL || sl__bit(present, i);
}

/* The row that is there stays, and one that differs fails: sqlite_connect.c has the function. */
static void put_unchanged(struct sl__buf *b, const struct sl__shape *shape, const struct sl_sink_opts *opts,
			  const uint8_t *present)
{
	const char *before = "=CASE WHEN ";
	for (size_t i = 0; i < shape->n; i++) {
		if (!is_present(present, i) || is_key(opts, shape->names[i]))
			continue;
		if (before[0] == '=') {
			(void)sl__buf_str_append(b, ") DO UPDATE SET ");
			sl__put_sql_name(b, opts->on_conflict[0]);
		}
		(void)sl__buf_str_append(b, before);
		sl__put_sql_name(b, shape->names[i]);
		(void)sl__buf_str_append(b, " IS excluded.");
		sl__put_sql_name(b, shape->names[i]);
		before = " AND ";
	}
	if (before[0] == '=') { /* nothing but the key */
		(void)sl__buf_str_append(b, ") DO NOTHING");
		return;
	}
	(void)sl__buf_str_append(b, " THEN ");
	sl__put_sql_name(b, opts->on_conflict[0]);
	(void)sl__buf_str_append(b, " ELSE " SL__SQLITE_OTHER_ROW "(excluded.");
	sl__put_sql_name(b, opts->on_conflict[0]);
	(void)sl__buf_str_append(b, ") END");
}

/* A column that is not in the record keeps its value. */
static void put_upsert(struct sl__buf *b, const struct sl__shape *shape, const struct sl_sink_opts *opts,
		       const uint8_t *present)
{
	const char *before = ") DO UPDATE SET ";
	(void)sl__buf_str_append(b, " ON CONFLICT(");
	for (size_t i = 0; i < opts->n_on_conflict; i++) {
		(void)sl__buf_str_append(b, i > 0 ? "," : "");
		sl__put_sql_name(b, opts->on_conflict[i]);
	}
	if (opts->immutable_rows == SL_ON) {
		put_unchanged(b, shape, opts, present);
		return;
	}
	for (size_t i = 0; i < shape->n; i++) {
		if (!is_present(present, i) || is_key(opts, shape->names[i]))
			continue;
		(void)sl__buf_str_append(b, before);
		sl__put_sql_name(b, shape->names[i]);
		(void)sl__buf_str_append(b, "=excluded.");
		sl__put_sql_name(b, shape->names[i]);
		before = ",";
	}
	if (before[0] == ')')
		(void)sl__buf_str_append(b, ") DO NOTHING");
}

static size_t put_columns(struct sl__buf *b, const struct sl__shape *shape, const uint8_t *present)
{
	size_t n = 0;
	for (size_t i = 0; i < shape->n; i++) {
		if (!is_present(present, i))
			continue;
		(void)sl__buf_str_append(b, n++ > 0 ? "," : "(");
		sl__put_sql_name(b, shape->names[i]);
	}
	return n;
}

static void put_marks(struct sl__buf *b, size_t n, size_t rows)
{
	for (size_t row = 0; row < rows; row++) {
		(void)sl__buf_str_append(b, row > 0 ? ",(" : ") VALUES(");
		for (size_t i = 0; i < n; i++)
			(void)sl__buf_str_append(b, i > 0 ? ",?" : "?");
		(void)sl__buf_str_append(b, ")");
	}
}

char *sl__table_insert_sql(const struct sl__shape *shape, const struct sl_sink_opts *opts, struct sl__insert what)
{
	struct sl__buf b;
	sl__buf_init(&b, shape->env);
	(void)sl__buf_str_append(&b, "INSERT INTO ");
	sl__put_sql_name(&b, opts->table);
	size_t n = put_columns(&b, shape, what.present);
	if (n > 0)
		put_marks(&b, n, what.rows);
	else
		(void)sl__buf_str_append(&b, " DEFAULT VALUES");
	if (n > 0 && opts->n_on_conflict > 0)
		put_upsert(&b, shape, opts, what.present);
	char *sql = sl__buf_take(&b);
	sl__buf_fini(&b);
	return sql;
}

/* ---- prepared ---- */

void sl__inserts_clear(struct sl__inserts *in, const struct sl_env *env)
{
	for (size_t i = 0; i < SL__INSERTS; i++) {
		(void)sqlite3_finalize(in->at[i].stmt);
		sl__free(env, in->at[i].present);
	}
	*in = (struct sl__inserts){.version = -1};
}

static bool same_columns(const uint8_t *a, const uint8_t *b, size_t bytes)
{
	return a == NULL || b == NULL ? a == b : memcmp(a, b, bytes) == 0;
}

static int prepare(struct sl__sqlite *db, const struct sl__shape *shape, const struct sl_sink_opts *opts,
		   struct sl__insert what, sqlite3_stmt **out, struct sl_err *err)
{
	char *sql = sl__table_insert_sql(shape, opts, what);
	if (sql == NULL)
		return sl__no_memory(err, "sqlite");
	int rc = sqlite3_prepare_v3(db->db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
	sl__free(db->env, sql);
	if (rc == SQLITE_OK)
		return 0;
	int code = sl__sqlite_fail(db, rc, opts->table, err);
	if (code != SL_EINTERNAL)
		return code;
	/* The statement itself is wrong: no such key, a view, … */
	return sl_err_set(err, SL_ECONFIG, "sqlite: %s: %s", opts->table, sqlite3_errmsg(db->db));
}

int sl__inserts_get(struct sl__inserts *in, struct sl__sqlite *db, const struct sl__shape *shape,
		    const struct sl_sink_opts *opts, struct sl__insert what, sqlite3_stmt **out, struct sl_err *err)
{
	if (in->version != shape->version)
		sl__inserts_clear(in, db->env);
	in->version = shape->version;
	size_t bytes = (shape->n + 7) / 8, place = in->next;
	for (size_t i = 0; i < SL__INSERTS; i++)
		if (in->at[i].rows == what.rows && same_columns(in->at[i].present, what.present, bytes)) {
			*out = in->at[i].stmt;
			return 0;
		}
	uint8_t *copy = what.present != NULL ? sl__alloc(db->env, bytes) : NULL;
	if (what.present != NULL && copy == NULL)
		return sl__no_memory(err, "sqlite");
	int rc = prepare(db, shape, opts, what, out, err);
	if (rc != 0) {
		sl__free(db->env, copy);
		return rc;
	}
	if (copy != NULL)
		memcpy(copy, what.present, bytes);
	(void)sqlite3_finalize(in->at[place].stmt);
	sl__free(db->env, in->at[place].present);
	in->at[place].stmt = *out;
	in->at[place].present = copy;
	in->at[place].rows = what.rows;
	in->next = (place + 1) % SL__INSERTS;
	return 0;
}
