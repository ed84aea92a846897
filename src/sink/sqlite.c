/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SQLite sink: one transaction per batch on one connection that all lanes share, so that its page cache stays warm.
 *
 *   lane: records into values ─▶ lock ─▶ BEGIN IMMEDIATE ─▶ has the schema changed? ─▶ an INSERT per row ─▶ COMMIT
 *
 * Invariants
 *  1. Only the holder of `lock` (db/sqlite_lock.h: the queue of this process, then a flock) touches the connection,
 *     writes or checkpoints. Programs that do not know the lock are waited for as SQLite does, up to the timeout.
 *  2. A row that fails leaves the transaction as it was before it; it alone is refused (sink/refusal.h).
 *  3. The columns that records were taken apart for are those of the schema in whose transaction they are written.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/thread.h"
#include "db/sqlite_lock.h"
#include "sink/sqlite_rows.h"

#define STATEMENT_TIMEOUT_MS 60000
#define LOCK_SLICE_MS 500     /* after so long a wait for the lock looks whether it was cancelled */
#define OPEN_BUSY_MS 1000     /* while a connection is made */
#define CHECKPOINT_PAGES 1000 /* as SQLite does by itself */
#define CLOSE_LOCK_MS 5000
#define GROUP 16 /* rows in one statement: 1.7 times as fast as one by one; more gain little */

enum { Q_BEGIN, Q_COMMIT, Q_VERSION, Q_COUNT };
static const char *const sql[Q_COUNT] = {"BEGIN IMMEDIATE", "COMMIT", "PRAGMA schema_version"};

struct sqlite_sink {
	struct sl_env env;
	struct sl_sink_opts opts;
	char *path, *target;
	struct sl__sqlite_lock lock;

	/* Of the holder of `lock`. */
	struct sl__sqlite db; /* db.db NULL: not connected */
	struct sl__inserts inserts;
	uint8_t *present; /* bits of a row's columns */
	size_t present_cap;
	uint64_t dev, ino; /* of the file that is connected to */
	bool log_mode;     /* the database has a write-ahead log */
	size_t max_values; /* in one statement */
	int64_t busy_until_ns;

	/* Under mu. */
	sl__mutex mu;
	sl__cond hurry; /* it was cancelled */
	bool cancelled;
	sqlite3 *running; /* to interrupt; NULL: not connected */
};

static int cancelled(struct sl_err *err)
{
	(void)sl_err_set(err, SL_ECANCELLED, "sqlite: the write was cancelled");
	return sl__sink_class(err, SL_ECANCELLED, SL_CLASS_TRANSIENT);
}

static bool is_cancelled(struct sqlite_sink *s)
{
	sl__lock(&s->mu);
	bool yes = s->cancelled;
	sl__unlock(&s->mu);
	return yes;
}

/* What an error means for the batch, beyond what its code says by itself. */
static int classify(struct sqlite_sink *s, int code, struct sl_err *err)
{
	if (code == SL_EAGAIN && is_cancelled(s))
		return cancelled(err);
	bool away = code == SL_ENOSPC || code == SL_ECONFIG || code == SL_ENOENT || code == SL_EINTERNAL ||
		    code == SL_EACCES || code == SL_ECORRUPT || code == SL_EUNAVAIL;
	return away ? sl__sink_class(err, code, SL_CLASS_FATAL) : code;
}

/* ---- the connection ---- */

static void show_running(struct sqlite_sink *s, sqlite3 *db)
{
	sl__lock(&s->mu);
	s->running = db;
	sl__unlock(&s->mu);
}

static void disconnect(struct sqlite_sink *s)
{
	show_running(s, NULL);
	sl__inserts_clear(&s->inserts, &s->env);
	sl__sqlite_close(&s->db);
}

/* Somebody who does not know the lock has the database: wait a little, unless time is up. */
static int on_busy(void *ctx, int tries)
{
	struct sqlite_sink *s = ctx;
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

static int read_mode(struct sqlite_sink *s, struct sl_err *err)
{
	sqlite3_stmt *q = NULL;
	int rc = sl__sqlite_prepare(&s->db, "PRAGMA journal_mode", NULL, 0, &q, err);
	if (rc == 0 && (rc = sl__sqlite_step(&s->db, q, err)) > 0) {
		s->log_mode = strcmp(sl__sqlite_text(q, 0), "wal") == 0;
		rc = 0;
	}
	(void)sqlite3_finalize(q);
	return rc;
}

static int open_database(struct sqlite_sink *s, struct sl_err *err)
{
	int rc = sl__sqlite_open(&s->db, &s->env, s->path, SL__SQLITE_RW, OPEN_BUSY_MS, err);
	if (rc != 0)
		return rc;
	(void)sqlite3_busy_handler(s->db.db, on_busy, s);
	/* Triggers, defaults and checks of this database run as its owner wrote them, as with every other program. */
	(void)sqlite3_db_config(s->db.db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 1, NULL);
	s->max_values = (size_t)sqlite3_limit(s->db.db, SQLITE_LIMIT_VARIABLE_NUMBER, -1);
	rc = sl__sqlite_statements(&s->db, sql, Q_COUNT, err);
	rc = rc != 0 ? rc : read_mode(s, err);
	if (rc != 0)
		disconnect(s);
	else
		show_running(s, s->db.db);
	return rc;
}

/* A file that was replaced is another database. */
static int connect(struct sqlite_sink *s, struct sl_err *err)
{
	struct sl_io_stat st;
	int rc = sl__io_real.stat(s->path, &st, NULL);
	bool same = rc == 0 && st.ino == s->ino && st.dev == s->dev;
	if (s->db.db != NULL && (s->db.broken || !same))
		disconnect(s);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "sqlite: %s", s->path);
	if (s->db.db != NULL)
		return 0;
	s->dev = st.dev;
	s->ino = st.ino;
	return open_database(s, err);
}

static int64_t timeout_ns(const struct sqlite_sink *s)
{
	return sl__deadline_ns(&s->env, s->opts.statement_timeout_ms);
}

static int lock(struct sqlite_sink *s, struct sl_err *err)
{
	int64_t until = timeout_ns(s);
	for (;;) {
		if (is_cancelled(s))
			return cancelled(err);
		int rc = sl__sqlite_lock_acquire(&s->lock, LOCK_SLICE_MS, err);
		if (rc != SL_EAGAIN || sl__mono_ns(&s->env) >= until)
			return rc;
	}
}

/* ---- a batch ---- */

/* The statement of a table that was changed under us fails when it is prepared anew; else the row is at fault. */
static int row_or_table(struct sqlite_sink *s, const struct sl__sqlite_rows *r, struct sl__insert what,
			struct sl_err *err)
{
	struct sl_err table = SL_ERR_INIT;
	sqlite3_stmt *stmt;
	sl__inserts_clear(&s->inserts, &s->env);
	int rc = sl__inserts_get(&s->inserts, &s->db, &r->shape, &s->opts, what, &stmt, &table);
	if (rc != 0) {
		*err = table;
		return rc;
	}
	err->code = SL_EDATA;
	return sl__sink_class(err, SL_EDATA, SL_CLASS_POISON);
}

static int insert(struct sqlite_sink *s, const struct sl__sqlite_rows *r, size_t k, struct sl__insert what,
		  struct sl_err *err)
{
	sqlite3_stmt *stmt;
	int rc = sl__inserts_get(&s->inserts, &s->db, &r->shape, &s->opts, what, &stmt, err);
	if (rc != 0)
		return rc;
	int result = sl__sqlite_rows_bind(r, k, what.rows, stmt);
	if (result == SQLITE_OK)
		result = sqlite3_step(stmt);
	if (SL_LIKELY(result == SQLITE_DONE)) {
		(void)sqlite3_reset(stmt);
		return 0;
	}
	rc = sl__sqlite_fail(&s->db, result, s->opts.table, err);
	(void)sqlite3_reset(stmt);
	return rc == SL_EINTERNAL ? row_or_table(s, r, what, err) : rc;
}

/* Write n rows that have the same columns. */
static int insert_rows(struct sqlite_sink *s, const struct sl__sqlite_rows *r, size_t k, size_t n, struct sl_err *err)
{
	struct sl__insert what = {.rows = n};
	if (!r->full[k]) {
		sl__sqlite_rows_present(r, k, s->present);
		what.present = s->present;
	}
	return insert(s, r, k, what, err);
}

/* Write one row. A row that fails is refused; 0 then, too, unless it took the transaction with it: then the reply has
 * its number. */
static int write_row(struct sqlite_sink *s, const struct sl__sqlite_rows *r, size_t k, struct sl__refusals *refused,
		     struct sl_sink_reply *reply, struct sl_err *err)
{
	int rc = r->refused[k] ? 0 : insert_rows(s, r, k, 1, err);
	if (SL_LIKELY(rc == 0) || err->error_class != SL_CLASS_POISON)
		return rc;
	if (sqlite3_get_autocommit(s->db.db)) { /* ON CONFLICT ROLLBACK */
		reply->culprit = r->first + k;
		return rc;
	}
	(void)sl__refusals_add(refused, r->first + k, err);
	return 0;
}

/* How many of the rows from k on go into one statement: GROUP when they all have the same columns, else 1. A row of
 * defaults alone cannot be one of several. */
static size_t group_at(const struct sqlite_sink *s, const struct sl__sqlite_rows *r, size_t k, size_t end)
{
	bool whole = end - k >= GROUP && !r->refused[k] && memchr(r->alike + k + 1, 0, GROUP - 1) == NULL;
	return whole && r->shape.n * GROUP <= s->max_values && sl__sqlite_rows_has_values(r, k) ? GROUP : 1;
}

/* A statement that fails leaves nothing of its rows; then each of them is tried alone. */
static int write_rows(struct sqlite_sink *s, const struct sl__sqlite_rows *r, struct sl__refusals *refused,
		      struct sl_sink_reply *reply, struct sl_err *err)
{
	int rc = 0;
	for (size_t k = 0, alone = 0; rc == 0 && k < r->n && r->first + k < refused->stop;) {
		size_t end = SL_MIN(r->n, refused->stop - r->first), n = k < alone ? 1 : group_at(s, r, k, end);
		if (n == 1) {
			rc = write_row(s, r, k++, refused, reply, err);
			continue;
		}
		rc = insert_rows(s, r, k, n, err);
		if (SL_LIKELY(rc == 0)) {
			k += n;
		} else if (err->error_class == SL_CLASS_POISON && !sqlite3_get_autocommit(s->db.db)) {
			alone = k + n;
			rc = 0;
		}
	}
	return rc;
}

static int read_version(struct sqlite_sink *s, int64_t *version, struct sl_err *err)
{
	sqlite3_stmt *q;
	int rc = sl__sqlite_row(&s->db, Q_VERSION, NULL, 0, &q, err);
	if (rc < 0)
		return rc;
	*version = rc > 0 ? sl__sqlite_i64(q, 0) : 0;
	(void)sqlite3_reset(q);
	return 0;
}

/* Make the lane's columns those of this transaction. */
static int agree_on_columns(struct sqlite_sink *s, struct sl__sqlite_rows *r, const struct sl_sink_batch *batch,
			    struct sl__refusals *refused, struct sl_err *err)
{
	int64_t version;
	int rc = read_version(s, &version, err);
	if (rc != 0 || r->shape.version == version)
		return rc;
	rc = sl__shape_load(&r->shape, &s->db, &s->opts, version, err);
	rc = rc != 0 ? rc : sl__sqlite_rows_reshape(r, err);
	if (rc != 0)
		return rc;
	*refused = (struct sl__refusals)SL__REFUSALS_INIT;
	return sl__sqlite_rows_fill(r, batch, 0, refused, err);
}

static int make_present(struct sqlite_sink *s, size_t columns, struct sl_err *err)
{
	size_t bytes = (columns + 7) / 8;
	if (bytes <= s->present_cap)
		return 0;
	uint8_t *bits = sl__realloc(&s->env, s->present, bytes);
	if (bits == NULL)
		return sl_err_set(err, SL_ENOMEM, "sqlite: out of memory");
	s->present = bits;
	s->present_cap = bytes;
	return 0;
}

static int fill_transaction(struct sqlite_sink *s, struct sl__sqlite_rows *r, const struct sl_sink_batch *batch,
			    struct sl__refusals *refused, struct sl_sink_reply *reply, struct sl_err *err)
{
	int rc = agree_on_columns(s, r, batch, refused, err);
	rc = rc != 0 ? rc : make_present(s, r->shape.n, err);
	while (rc == 0) {
		rc = write_rows(s, r, refused, reply, err);
		size_t next = r->first + r->n;
		if (rc != 0 || refused->stop != SIZE_MAX || next == batch->n)
			break;
		rc = sl__sqlite_rows_fill(r, batch, next, refused, err);
	}
	return rc;
}

static int write_transaction(struct sqlite_sink *s, struct sl__sqlite_rows *r, const struct sl_sink_batch *batch,
			     struct sl__refusals *refused, struct sl_sink_reply *reply, struct sl_err *err)
{
	s->busy_until_ns = timeout_ns(s);
	int rc = connect(s, err);
	if (rc != 0)
		return rc;
	rc = sl__sqlite_run(&s->db, Q_BEGIN, NULL, 0, NULL, err);
	rc = rc != 0 ? rc : fill_transaction(s, r, batch, refused, reply, err);
	rc = rc != 0 ? rc : sl__sqlite_run(&s->db, Q_COMMIT, NULL, 0, NULL, err);
	if (rc != 0) {
		sl__sqlite_rollback(&s->db);
		return rc;
	}
	if (s->log_mode && s->db.wal_pages >= CHECKPOINT_PAGES)
		sl__sqlite_checkpoint(&s->db, false);
	return 0;
}

static int write_batch(void *ctx, void *lane, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
		       struct sl_err *err)
{
	struct sqlite_sink *s = ctx;
	struct sl__sqlite_rows *r = lane;
	struct sl__refusals refused = SL__REFUSALS_INIT;
	struct sl_err own;
	err = err != NULL ? err : &own;
	int rc = r->shape.version >= 0 ? sl__sqlite_rows_fill(r, batch, 0, &refused, err) : 0;
	rc = rc != 0 ? rc : lock(s, err);
	if (rc != 0)
		return classify(s, rc, err);
	rc = write_transaction(s, r, batch, &refused, reply, err);
	sl__sqlite_lock_release(&s->lock);
	if (rc != 0)
		return classify(s, rc, err);
	return sl__refusals_reply(&refused, SL_MIN(refused.stop, batch->n), reply, 0, err);
}

static void cancel(void *ctx)
{
	struct sqlite_sink *s = ctx;
	sl__lock(&s->mu);
	s->cancelled = true;
	if (s->running != NULL)
		sqlite3_interrupt(s->running);
	sl__broadcast(&s->hurry);
	sl__unlock(&s->mu);
}

/* ---- lanes ---- */

static int attach(void *ctx, void **lane, struct sl_err *err)
{
	struct sqlite_sink *s = ctx;
	struct sl__sqlite_rows *r = sl__alloc(&s->env, sizeof *r);
	if (r == NULL)
		return sl_err_set(err, SL_ENOMEM, "sqlite: out of memory");
	sl__sqlite_rows_init(r, &s->env, &s->opts);
	*lane = r;
	return 0;
}

static void detach(void *ctx, void *lane)
{
	struct sqlite_sink *s = ctx;
	sl__sqlite_rows_fini(lane);
	sl__free(&s->env, lane);
}

/* The table's columns, and the statement that would write to them. */
static int check_table(struct sqlite_sink *s, struct sl__sqlite_rows *r, struct sl_err *err)
{
	sqlite3_stmt *stmt;
	int64_t version = 0;
	int rc = read_version(s, &version, err);
	rc = rc != 0 ? rc : sl__shape_load(&r->shape, &s->db, &s->opts, version, err);
	return rc != 0 ? rc
		       : sl__inserts_get(&s->inserts, &s->db, &r->shape, &s->opts, (struct sl__insert){.rows = 1},
					 &stmt, err);
}

static int check(void *ctx, struct sl_err *err)
{
	struct sqlite_sink *s = ctx;
	struct sl_err own;
	void *lane;
	err = err != NULL ? err : &own;
	int rc = attach(ctx, &lane, err);
	if (rc != 0)
		return rc;
	rc = lock(s, err);
	if (rc == 0) {
		s->busy_until_ns = timeout_ns(s);
		rc = connect(s, err);
		rc = rc != 0 ? rc : sl__sqlite_run(&s->db, Q_BEGIN, NULL, 0, NULL, err);
		rc = rc != 0 ? rc : check_table(s, lane, err);
		sl__sqlite_rollback(&s->db);
		sl__sqlite_lock_release(&s->lock);
	}
	detach(ctx, lane);
	return rc != 0 ? classify(s, rc, err) : 0;
}

/* ---- the handle ---- */

static const char *target(void *ctx)
{
	return ((struct sqlite_sink *)ctx)->target;
}

/* So that the file holds everything by itself, as after the last close of a program that uses SQLite directly. */
static void finish(struct sqlite_sink *s)
{
	struct sl_err err;
	if (s->db.db == NULL)
		return;
	bool held = sl__sqlite_lock_acquire(&s->lock, CLOSE_LOCK_MS, &err) == 0;
	if (held && s->log_mode) {
		s->busy_until_ns = 0;
		(void)sqlite3_wal_checkpoint_v2(s->db.db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
	}
	disconnect(s);
	if (held)
		sl__sqlite_lock_release(&s->lock);
}

static void close_sink(void *ctx)
{
	struct sqlite_sink *s = ctx;
	struct sl_env env = s->env;
	finish(s);
	sl__sqlite_lock_close(&s->lock);
	sl__cond_fini(&s->hurry);
	sl__mutex_fini(&s->mu);
	sl__sink_free_opts(&s->opts, &env);
	sl__free(&env, s->present);
	sl__free(&env, s->target);
	sl__free(&env, s->path);
	sl__free(&env, s);
}

static const struct sl_sink_ops sqlite_ops = {.version = SL_SINK_VERSION,
					      .name = "sqlite",
					      .attach = attach,
					      .detach = detach,
					      .write = write_batch,
					      .check = check,
					      .cancel = cancel,
					      .close = close_sink,
					      .target = target};

/* The file's real name: two names of one file must have one lock. */
static int locate(const char *path, char out[PATH_MAX], struct sl_err *err)
{
	struct sl_io_stat st;
	if (realpath(path, out) == NULL) {
		if (errno == ENOENT)
			return sl_err_set(err, SL_ENOENT, "sqlite: there is no file %s; make it, or use --create",
					  path);
		return sl_err_set_errno(err, errno, "sqlite: %s", path);
	}
	int rc = sl__io_real.stat(out, &st, NULL);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "sqlite: %s", path);
	return S_ISREG(st.mode) ? 0 : sl_err_set(err, SL_EINVAL, "sqlite: %s is not a plain file", path);
}

static int build(struct sqlite_sink *s, const char *path, const struct sl_sink_opts *opts, struct sl_err *err)
{
	char real[PATH_MAX];
	int rc = sl__sink_copy_opts(&s->opts, opts, &s->env, err);
	if (rc != 0)
		return rc;
	if (s->opts.table == NULL || s->opts.table[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "sqlite: table: name the table to write to");
	if (s->opts.statement_timeout_ms == 0)
		s->opts.statement_timeout_ms = STATEMENT_TIMEOUT_MS;
	rc = locate(path, real, err);
	if (rc != 0)
		return rc;
	s->path = sl__strdup(&s->env, real);
	s->target = sl__asprintf(&s->env, "sqlite:%s", path);
	if (s->path == NULL || s->target == NULL)
		return sl_err_set(err, SL_ENOMEM, "sqlite: out of memory");
	return sl__sqlite_lock_open(&s->lock, &s->env, s->path, err);
}

int sl_sink_sqlite_open(sl_sink *out, const char *path, const struct sl_sink_opts *opts, struct sl_err *err)
{
	struct sl_env env;
	int rc = sl__sink_check_opts(opts, SL__SINK_ROWS | SL__SINK_TABLE, "sqlite:", err);
	rc = rc != 0 ? rc : sl__env_init(&env, SL_OPT_HAS(opts, env) ? opts->env : NULL, err);
	if (rc != 0)
		return rc;
	if (path == NULL || path[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "sqlite: needs the name of a file");
	struct sqlite_sink *s = sl__calloc(&env, 1, sizeof *s);
	if (s == NULL)
		return sl_err_set(err, SL_ENOMEM, "sqlite: out of memory");
	s->env = env;
	s->inserts.version = -1;
	sl__mutex_init(&s->mu);
	sl__cond_init(&s->hurry);
	rc = build(s, path, opts, err);
	if (rc != 0)
		close_sink(s);
	else
		*out = (sl_sink){.ops = &sqlite_ops, .ctx = s};
	return rc;
}
