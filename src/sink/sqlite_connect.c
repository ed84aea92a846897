/* SPDX-License-Identifier: Apache-2.0 */
/* The connection of the SQLite sink: made when it is needed, and anew for another file of the same name. */
#include "sink/sqlite.h"

#define LOCK_SLICE_MS 500 /* how often a wait for the lock checks whether it was cancelled */
#define OPEN_BUSY_MS 1000 /* while a connection is made */

static const char *const sql[SL__SINKQ_COUNT] = {
	"BEGIN IMMEDIATE", "COMMIT", "PRAGMA schema_version", "SELECT 1 FROM main.sluice_loads WHERE id = ?1",
	"INSERT INTO main.sluice_load_ranges (load, first, last, parts, rows, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6)"};

static int sqlite_cancelled(struct sl_err *err)
{
	(void)sl_err_set(err, SL_ECANCELLED, "sqlite: the write was cancelled");
	return sl__sink_class(err, SL_ECANCELLED, SL_CLASS_TRANSIENT);
}

static bool sqlite_is_cancelled(struct sl__sqlite_sink *s)
{
	sl__lock(&s->mu);
	bool yes = s->cancelled;
	sl__unlock(&s->mu);
	return yes;
}

int sl__sqlite_sink_classify(struct sl__sqlite_sink *s, int code, struct sl_err *err)
{
	if (code == SL_EAGAIN && sqlite_is_cancelled(s))
		return sqlite_cancelled(err);
	bool away = code == SL_ENOSPC || code == SL_ECONFIG || code == SL_ENOENT || code == SL_EINTERNAL ||
		    code == SL_EACCES || code == SL_ECORRUPT || code == SL_EUNAVAIL;
	return away ? sl__sink_class(err, code, SL_CLASS_FATAL) : code;
}

/* ---- the connection ---- */

static void show_running(struct sl__sqlite_sink *s, sqlite3 *db)
{
	sl__lock(&s->mu);
	s->running = db;
	sl__unlock(&s->mu);
}

void sl__sqlite_sink_disconnect(struct sl__sqlite_sink *s)
{
	show_running(s, NULL);
	sl__inserts_clear(&s->inserts, &s->env);
	sl__sqlite_close(&s->db);
}

/* A program that does not know the lock has the database: wait a little, unless time is up. */
static int on_busy(void *ctx, int tries)
{
	struct sl__sqlite_sink *s = ctx;
	int64_t now = sl__mono_ns(&s->env), pause = (int64_t)SL_MIN(1 << SL_MIN(tries, 6), 50) * 1000000;
	if (now >= s->busy_until_ns)
		return 0;
	sl__lock(&s->mu);
	int64_t until = SL_MIN(now + pause, s->busy_until_ns);
	while (!s->cancelled && sl__wait(&s->env, &s->hurry, &s->mu, until))
		;
	bool go_on = !s->cancelled;
	sl__unlock(&s->mu);
	return go_on;
}

static void other_row(sqlite3_context *ctx, int n, sqlite3_value **values)
{
	(void)n;
	(void)values;
	sqlite3_result_error(ctx, "another row has the key", -1);
	sqlite3_result_error_code(ctx, SQLITE_CONSTRAINT_FUNCTION);
}

/* A file that was replaced is another database. */
int sl__sqlite_sink_connect(struct sl__sqlite_sink *s, struct sl_err *err)
{
	struct sl_io_stat st;
	int rc = sl__io_real.stat(s->path, &st, NULL);
	bool same = rc == 0 && st.ino == s->ino && st.dev == s->dev;
	if (s->db.db != NULL && (s->db.broken || !same))
		sl__sqlite_sink_disconnect(s);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "sqlite: %s", s->path);
	if (s->db.db != NULL)
		return 0;
	s->dev = st.dev;
	s->ino = st.ino;
	rc = sl__sqlite_open(&s->db, &s->env, s->path, SL__SQLITE_RW, OPEN_BUSY_MS, err);
	if (rc != 0)
		return rc;
	(void)sqlite3_busy_handler(s->db.db, on_busy, s);
	/* Triggers, defaults and checks of this database run as its owner wrote them, as with every other program. */
	(void)sqlite3_db_config(s->db.db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 1, NULL);
	s->max_values = (size_t)sqlite3_limit(s->db.db, SQLITE_LIMIT_VARIABLE_NUMBER, -1);
	rc = sl__sqlite_statements(&s->db, sql, SL__SINKQ_COUNT, err);
	if (rc == 0) {
		sqlite3_stmt *q = NULL;
		rc = sl__sqlite_prepare(&s->db, "PRAGMA journal_mode", NULL, 0, &q, err);
		if (rc == 0)
			rc = sl__sqlite_step(&s->db, q, err);
		if (rc > 0) {
			s->log_mode = strcmp(sl__sqlite_text(q, 0), "wal") == 0;
			rc = 0;
		}
		(void)sqlite3_finalize(q);
	}
	if (rc == 0 && sqlite3_create_function_v2(s->db.db, SL__SQLITE_OTHER_ROW, 1, SQLITE_UTF8, NULL, other_row, NULL,
						  NULL, NULL) != SQLITE_OK)
		rc = sl__no_memory(err, "sqlite");
	if (rc != 0)
		sl__sqlite_sink_disconnect(s);
	else
		show_running(s, s->db.db);
	return rc;
}

void sl__sqlite_sink_start_waiting(struct sl__sqlite_sink *s)
{
	s->busy_until_ns = sl__deadline_ns(&s->env, s->opts.statement_timeout_ms);
}

int sl__sqlite_sink_lock(struct sl__sqlite_sink *s, struct sl_err *err)
{
	int64_t until = sl__deadline_ns(&s->env, s->opts.statement_timeout_ms);
	for (;;) {
		if (sqlite_is_cancelled(s))
			return sqlite_cancelled(err);
		int rc = sl__sqlite_lock_acquire(&s->lock, LOCK_SLICE_MS, err);
		if (rc != SL_EAGAIN || sl__mono_ns(&s->env) >= until)
			return rc;
	}
}

int sl__sqlite_sink_version(struct sl__sqlite_sink *s, int64_t *version, struct sl_err *err)
{
	sqlite3_stmt *q;
	int rc = sl__sqlite_row(&s->db, SL__SINKQ_VERSION, NULL, 0, &q, err);
	if (rc < 0)
		return rc;
	*version = rc > 0 ? sl__sqlite_i64(q, 0) : 0;
	(void)sqlite3_reset(q);
	return 0;
}
