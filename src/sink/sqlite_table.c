/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the SQLite sink: its columns, the statements that write to it, and its creation as a strict table, so that
 * a value of another type is refused and not kept. */
#include "sink/sqlite_table.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <strings.h>

#include "base/buf.h"
#include "base/compare.h"
#include "sink/sqlite.h"

#define CREATE_LOCK_MS 60000

/* ---- affinity ---- */

/* The five rules, in their order. */
static enum sl__affinity affinity_of(const char *type)
{
	if (type == NULL || type[0] == '\0')
		return SL__AFFINITY_BLOB;
	if (sl__has_word(type, "INT"))
		return SL__AFFINITY_INTEGER;
	if (sl__has_word(type, "CHAR") || sl__has_word(type, "CLOB") || sl__has_word(type, "TEXT"))
		return SL__AFFINITY_TEXT;
	/* ANY of a strict table keeps what it is given. */
	if (sl__has_word(type, "BLOB") || strcasecmp(type, "ANY") == 0)
		return SL__AFFINITY_BLOB;
	if (sl__has_word(type, "REAL") || sl__has_word(type, "FLOA") || sl__has_word(type, "DOUB"))
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
		sl__free(shape->env, shape->names);
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

static size_t find_column(const struct sl__shape *shape, const char *name)
{
	size_t i = 0;
	while (i < shape->n && strcasecmp(shape->names[i], name) != 0)
		i++;
	return i;
}

/* The columns of opts out of all that can be written. On failure there may be some in *out. */
static int choose_columns(struct sl__shape *out, const struct sl__shape *all, const struct sl_sink_opts *opts,
			  struct sl_err *err)
{
	const char *const *const lists[] = {opts->columns, opts->on_conflict};
	const size_t counts[] = {opts->n_columns, opts->n_on_conflict};
	for (size_t k = 0; k < SL_COUNT(lists); k++)
		for (size_t i = 0; i < counts[k]; i++)
			if (find_column(all, lists[k][i]) == all->n)
				return sl_err_set(err, SL_ECONFIG, "sqlite: the table %s has no column %s", opts->table,
						  lists[k][i]);
	size_t n = opts->n_columns > 0 ? opts->n_columns : all->n;
	for (size_t i = 0; i < n; i++) {
		const char *name = opts->n_columns > 0 ? opts->columns[i] : all->names[i];
		if (add_column(out, name, NULL) != 0)
			return sl__no_memory(err, "sqlite");
		out->affinity[i] = all->affinity[find_column(all, name)];
	}
	return 0;
}

int sl__shape_load(struct sl__shape *shape, struct sl__sqlite *db, const struct sl_sink_opts *opts, int64_t version,
		   struct sl_err *err)
{
	struct sl__shape all = {.env = db->env}, chosen = {.env = db->env};
	sqlite3_stmt *q = NULL;
	/* All columns that can be written. hidden: 0 a plain column, 1 of a virtual table, 2 and 3 generated */
	int rc = sl__sqlite_prepare(db, "SELECT name, type FROM pragma_table_xinfo(?1) WHERE hidden = 0 ORDER BY cid",
				    &SQ_TEXT(opts->table), 1, &q, err);
	if (rc == 0)
		rc = sl__sqlite_step(db, q, err);
	while (rc > 0) {
		bool added = add_column(&all, sl__sqlite_text(q, 0), sl__sqlite_text(q, 1)) == 0;
		rc = added ? sl__sqlite_step(db, q, err) : sl__no_memory(err, "sqlite");
	}
	(void)sqlite3_finalize(q);
	if (rc == 0 && all.n == 0)
		rc = sl_err_set(err, SL_ENOENT, "sqlite: no table %s; create it, or use --create", opts->table);
	if (rc == 0)
		rc = choose_columns(&chosen, &all, opts, err);
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

bool sl__is_key_column(const struct sl_sink_opts *opts, const char *name)
{
	for (size_t i = 0; i < opts->n_on_conflict; i++)
		if (strcasecmp(opts->on_conflict[i], name) == 0)
			return true;
	return false;
}

static bool is_present(const uint8_t *present, size_t i)
{
	return present == NULL || (present[i / 8] >> (i % 8) & 1) != 0;
}

/* The row that is there stays, and one that differs fails: sqlite_connect.c has the function. */
static void put_unchanged(struct sl__buf *b, const struct sl__shape *shape, const struct sl_sink_opts *opts,
			  const uint8_t *present)
{
	const char *before = "=CASE WHEN ";
	for (size_t i = 0; i < shape->n; i++) {
		if (!is_present(present, i) || sl__is_key_column(opts, shape->names[i]))
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
		if (!is_present(present, i) || sl__is_key_column(opts, shape->names[i]))
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

char *sl__table_insert_sql(const struct sl__shape *shape, const struct sl_sink_opts *opts, struct sl__insert what)
{
	struct sl__buf b;
	sl__buf_init(&b, shape->env);
	(void)sl__buf_str_append(&b, "INSERT INTO ");
	sl__put_sql_name(&b, opts->table);
	size_t n = 0;
	for (size_t i = 0; i < shape->n; i++) {
		if (!is_present(what.present, i))
			continue;
		(void)sl__buf_str_append(&b, n++ > 0 ? "," : "(");
		sl__put_sql_name(&b, shape->names[i]);
	}
	for (size_t row = 0; n > 0 && row < what.rows; row++) {
		(void)sl__buf_str_append(&b, row > 0 ? ",(" : ") VALUES(");
		for (size_t i = 0; i < n; i++)
			(void)sl__buf_str_append(&b, i > 0 ? ",?" : "?");
		(void)sl__buf_str_append(&b, ")");
	}
	if (n == 0)
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

int sl__sqlite_get_insert(struct sl__sqlite_sink *s, const struct sl__shape *shape, struct sl__insert what,
			  sqlite3_stmt **out, struct sl_err *err)
{
	struct sl__inserts *in = &s->inserts;
	if (in->version != shape->version)
		sl__inserts_clear(in, &s->env);
	in->version = shape->version;
	size_t bytes = (shape->n + 7) / 8, place = in->next;
	for (size_t i = 0; i < SL__INSERTS; i++) {
		const uint8_t *have = in->at[i].present;
		bool same = have == NULL || what.present == NULL ? have == what.present
								 : memcmp(have, what.present, bytes) == 0;
		if (in->at[i].rows == what.rows && same) {
			*out = in->at[i].stmt;
			return 0;
		}
	}
	/* Prepare it, in place of the one that is there longest. */
	uint8_t *copy = what.present != NULL ? sl__alloc(&s->env, bytes) : NULL;
	char *sql = sl__table_insert_sql(shape, &s->opts, what);
	int rc = sql == NULL || (what.present != NULL && copy == NULL) ? SL_ENOMEM : 0;
	if (rc != 0) {
		(void)sl__no_memory(err, "sqlite");
	} else {
		int result = sqlite3_prepare_v3(s->db.db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
		if (result != SQLITE_OK)
			rc = sl__sqlite_fail(&s->db, result, s->opts.table, err);
		if (rc == SL_EINTERNAL) /* the statement itself is wrong: no such key, a view, … */
			rc = sl_err_set(err, SL_ECONFIG, "sqlite: %s: %s", s->opts.table, sqlite3_errmsg(s->db.db));
	}
	sl__free(&s->env, sql);
	if (rc != 0) {
		sl__free(&s->env, copy);
		return rc;
	}
	if (copy != NULL)
		memcpy(copy, what.present, bytes);
	(void)sqlite3_finalize(in->at[place].stmt);
	sl__free(&s->env, in->at[place].present);
	in->at[place].stmt = *out;
	in->at[place].present = copy;
	in->at[place].rows = what.rows;
	in->next = (place + 1) % SL__INSERTS;
	return 0;
}

/* ---- creating the table ---- */

static const char *sqlite_type_of(enum sl_column_kind kind)
{
	switch (kind) {
	case SL_COLUMN_INTEGER:
	case SL_COLUMN_BOOLEAN:
		return "INTEGER";
	case SL_COLUMN_REAL:
		return "REAL";
	case SL_COLUMN_TEXT:
	case SL_COLUMN_NUMERIC:
	case SL_COLUMN_TIMESTAMP:
	case SL_COLUMN_DATE:
	case SL_COLUMN_JSON:
	default:
		return "TEXT";
	}
}

static int create_locked(const struct sl_env *env, const char *path, const char *text, struct sl_err *err)
{
	struct sl__sqlite_lock lock;
	struct sl__sqlite db;
	int rc = sl__sqlite_lock_open(&lock, env, path, err);
	if (rc != 0)
		return rc;
	rc = sl__sqlite_lock_acquire(&lock, CREATE_LOCK_MS, err);
	if (rc == 0) {
		rc = sl__sqlite_open(&db, env, path, SL__SQLITE_RW, CREATE_LOCK_MS, err);
		if (rc == 0) {
			rc = sl__sqlite_exec(&db, text, err);
			sl__sqlite_close(&db);
		}
		sl__sqlite_lock_release(&lock);
	}
	sl__sqlite_lock_close(&lock);
	return rc;
}

int sl__sink_sqlite_create(const char *what, const struct sl_sink_opts *opts, const struct sl_column *columns, size_t n,
			   struct sl_err *err)
{
	struct sl_env env;
	struct sl_sink_opts o;
	struct sl__buf text;
	char real[PATH_MAX];
	int rc = sl__sink_check_opts(opts, SL__SINK_ROWS | SL__SINK_TABLE, "sqlite:", &env, err);
	if (rc != 0)
		return rc;
	sl__opts_copy(&o, sizeof(o), opts);
	if (o.table == NULL || o.table[0] == '\0' || n == 0)
		return sl_err_set(err, SL_EINVAL, "sqlite: a table needs a name and at least one column");
	for (size_t i = 0; i < o.n_on_conflict; i++) {
		size_t c = 0;
		while (c < n && strcasecmp(columns[c].name, o.on_conflict[i]) != 0)
			c++;
		if (c == n)
			return sl_err_set(err, SL_EINVAL, "on_conflict: no column %s", o.on_conflict[i]);
	}
	/* The file, created when it does not exist. */
	rc = sl__sqlite_make(what, 0644, err);
	if (rc == SL_ENOENT)
		return sl_err_set(err, SL_ENOENT, "sqlite: %s: the folder does not exist; create it first", what);
	if (rc != 0)
		return rc;
	if (realpath(what, real) == NULL)
		return sl_err_set_errno(err, errno, "sqlite: find %s", what);
	/* The table. */
	sl__buf_init(&text, &env);
	(void)sl__buf_str_append(&text, "CREATE TABLE IF NOT EXISTS ");
	sl__put_sql_name(&text, o.table);
	for (size_t i = 0; i < n; i++) {
		bool not_null = columns[i].not_null || sl__is_key_column(&o, columns[i].name);
		(void)sl__buf_str_append(&text, i > 0 ? ", " : " (");
		sl__put_sql_name(&text, columns[i].name);
		(void)sl__buf_printf(&text, " %s%s", sqlite_type_of(columns[i].kind), not_null ? " NOT NULL" : "");
	}
	for (size_t i = 0; i < o.n_on_conflict; i++) {
		(void)sl__buf_str_append(&text, i > 0 ? ", " : ", PRIMARY KEY (");
		sl__put_sql_name(&text, o.on_conflict[i]);
	}
	(void)sl__buf_str_append(&text, o.n_on_conflict > 0 ? ")) STRICT" : ") STRICT");
	rc = text.failed != 0 ? sl__no_memory(err, "sqlite") : create_locked(&env, real, sl__buf_str(&text), err);
	sl__buf_fini(&text);
	return rc;
}
