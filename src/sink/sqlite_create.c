/* SPDX-License-Identifier: Apache-2.0 */
/* The SQLite half of sl_sink_create_table: a strict table, so that a value of another type is refused and not kept. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <strings.h>

#include "base/buf.h"
#include "db/sqlite_lock.h"
#include "sink/sqlite_table.h"

#define LOCK_MS 60000

static const char *type_of(enum sl_column_kind kind)
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

static bool is_key(const struct sl_sink_opts *opts, const char *name)
{
	for (size_t i = 0; i < opts->n_on_conflict; i++)
		if (strcasecmp(opts->on_conflict[i], name) == 0)
			return true;
	return false;
}

static int check_key(const struct sl_sink_opts *opts, const struct sl_column *columns, size_t n, struct sl_err *err)
{
	for (size_t i = 0; i < opts->n_on_conflict; i++) {
		size_t c = 0;
		while (c < n && strcasecmp(columns[c].name, opts->on_conflict[i]) != 0)
			c++;
		if (c == n)
			return sl_err_set(err, SL_EINVAL, "on_conflict: there is no column %s", opts->on_conflict[i]);
	}
	return 0;
}

static void put_create(struct sl__buf *b, const struct sl_sink_opts *opts, const struct sl_column *columns, size_t n)
{
	(void)sl__buf_str_append(b, "CREATE TABLE IF NOT EXISTS ");
	sl__put_sql_name(b, opts->table);
	for (size_t i = 0; i < n; i++) {
		(void)sl__buf_str_append(b, i > 0 ? ", " : " (");
		sl__put_sql_name(b, columns[i].name);
		(void)sl__buf_printf(b, " %s", type_of(columns[i].kind));
		if (columns[i].not_null || is_key(opts, columns[i].name))
			(void)sl__buf_str_append(b, " NOT NULL");
	}
	for (size_t i = 0; i < opts->n_on_conflict; i++) {
		(void)sl__buf_str_append(b, i > 0 ? ", " : ", PRIMARY KEY (");
		sl__put_sql_name(b, opts->on_conflict[i]);
	}
	(void)sl__buf_str_append(b, opts->n_on_conflict > 0 ? ")) STRICT" : ") STRICT");
}

/* The file, made when it is not there. */
static int make_file(const char *path, char real[PATH_MAX], struct sl_err *err)
{
	int rc = sl__sqlite_make(path, 0644, err);
	if (rc == SL_ENOENT)
		return sl_err_set(err, SL_ENOENT, "sqlite: %s: its folder is not there; make it first", path);
	if (rc != 0)
		return rc;
	return realpath(path, real) != NULL ? 0 : sl_err_set_errno(err, errno, "sqlite: find %s", path);
}

static int run_locked(const struct sl_env *env, const char *path, const char *text, struct sl_err *err)
{
	struct sl__sqlite_lock lock;
	struct sl__sqlite db;
	int rc = sl__sqlite_lock_open(&lock, env, path, err);
	if (rc != 0)
		return rc;
	rc = sl__sqlite_lock_acquire(&lock, LOCK_MS, err);
	if (rc == 0) {
		rc = sl__sqlite_open(&db, env, path, SL__SQLITE_RW, LOCK_MS, err);
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
	char real[PATH_MAX];
	int rc = sl__sink_check_opts(opts, SL__SINK_ROWS | SL__SINK_TABLE, "sqlite:", err);
	rc = rc != 0 ? rc : sl__env_init(&env, SL_OPT_HAS(opts, env) ? opts->env : NULL, err);
	if (rc != 0)
		return rc;
	sl__opts_copy(&o, sizeof(o), opts);
	if (o.table == NULL || o.table[0] == '\0' || n == 0)
		return sl_err_set(err, SL_EINVAL, "sqlite: a table needs a name and columns");
	rc = check_key(&o, columns, n, err);
	rc = rc != 0 ? rc : make_file(what, real, err);
	if (rc != 0)
		return rc;
	struct sl__buf text;
	sl__buf_init(&text, &env);
	put_create(&text, &o, columns, n);
	rc = text.failed != 0 ? sl_err_set(err, SL_ENOMEM, "sqlite: out of memory")
			      : run_locked(&env, real, sl__buf_str(&text), err);
	sl__buf_fini(&text);
	return rc;
}
