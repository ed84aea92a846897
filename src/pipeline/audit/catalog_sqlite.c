/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog in a SQLite file. One connection writes, under the lock of db/sqlite_lock.h; one reads, under a mutex.
 *
 * A durable commit is one sync of SQLite's log. Checkpoints come when the log has grown, and when the catalog is
 * closed, so that the file alone has everything then.
 *
 * A lease is a flock on "<file>-lease-<dataset>", which the kernel drops with the process, next to the fence in the
 * dataset's row.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#define CAT_NO_ROWID " WITHOUT ROWID"
#define CAT_FOR_UPDATE ""
#define CAT_NOW_MS "0"
#define CAT_EXPIRY(ttl) "0*" ttl

#include "db/sqlite.h"
#include "db/sqlite_lock.h"
#include "pipeline/audit/catalog_db.h"

#define CHECKPOINT_PAGES 1024
#define CLOSE_LOCK_MS 1000

struct sq_catalog {
	const struct sl_env *env;
	char *path;
	int64_t busy_ms;
	bool has_lock;
	struct sl__sqlite_lock lock;
	struct sl__sqlite writer; /* under the lock */
	sl__mutex reader_mu;
	struct sl__sqlite reader; /* under reader_mu */
};

static const char *const statements[] = {
#define TEXT_OF(name, text) text,
	CAT_STATEMENTS(TEXT_OF)
#undef TEXT_OF
};
_Static_assert(SL_COUNT(statements) == CAT_N_STATEMENTS, "a statement without its number");

static const char *const steps[] = {CAT_TO_1};
_Static_assert(SL_COUNT(steps) == CAT_SCHEMA_VERSION, "a version without its statements");

/* ---- failures ---- */

static const char *disk_advice(int code)
{
	return code == SL_ENOSPC ? "free some space" : code == SL_EACCES ? "make it writable" : "check its disk";
}

/*
 * A file that cannot be written stays so until a person acts. So it is fatal and not retryable, whatever db/sqlite.c
 * says of databases in general; what is locked stays retryable.
 */
static int cannot_write(const struct sq_catalog *s, int rc, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	int code = rc;
	if (rc != SL_ENOSPC && rc != SL_EACCES && rc != SL_EUNAVAIL)
		return rc;
	if (err != NULL)
		why = *err;
	if (rc == SL_EUNAVAIL) {
		bool full = why.sys_errno == ENOSPC || why.sys_errno == EDQUOT;
		bool denied = why.sys_errno == EACCES || why.sys_errno == EPERM || why.sys_errno == EROFS;
		code = full ? SL_ENOSPC : denied ? SL_EACCES : SL_EIO;
	}
	bool advised = strstr(why.msg, disk_advice(code)) != NULL;
	(void)sl_err_set(err, code, "catalog %.100s cannot be written: %.90s%s%s", s->path, why.msg,
			 advised ? "" : "; ", advised ? "" : disk_advice(code));
	if (err != NULL) {
		err->sys_errno = why.sys_errno;
		err->error_class = SL_CLASS_FATAL;
	}
	return code;
}

/* ---- connections ---- */

static int connect_one(struct sq_catalog *s, struct sl__sqlite *c, enum sl__sqlite_kind kind, struct sl_err *err)
{
	if (c->db != NULL && c->broken)
		sl__sqlite_close(c);
	if (c->db != NULL)
		return 0;
	int rc = sl__sqlite_open(c, s->env, s->path, kind, s->busy_ms, err);
	if (rc != 0)
		return rc;
	rc = sl__sqlite_statements(c, statements, SL_COUNT(statements), err);
	if (rc != 0)
		sl__sqlite_close(c);
	return rc;
}

/* With the lock and a connection, or neither. */
static int take_catalog_writer(struct sq_catalog *s, struct sl_err *err)
{
	int rc = sl__sqlite_lock_acquire(&s->lock, s->busy_ms, err);
	if (rc != 0)
		return rc;
	rc = connect_one(s, &s->writer, SL__SQLITE_RW, err);
	if (rc != 0)
		sl__sqlite_lock_release(&s->lock);
	return rc;
}

/* ---- transactions ---- */

static int begin_reading(struct sq_catalog *s, struct sl_err *err) SL_NO_TSA
{
	sl__lock(&s->reader_mu);
	int rc = connect_one(s, &s->reader, SL__SQLITE_READER, err);
	if (rc != 0)
		sl__unlock(&s->reader_mu);
	return rc;
}

static int sq_begin(void *db, enum sl__cat_kind kind, struct sl__cat_tx *tx, struct sl_err *err) SL_NO_TSA
{
	struct sq_catalog *s = db;
	int rc;
	if (!sl__cat_changes(kind)) {
		if ((rc = begin_reading(s, err)) != 0)
			return rc;
		/* SQLite's log keeps what the first statement after the BEGIN sees. */
		if (kind == CAT_SNAPSHOT && (rc = sl__sqlite_exec(&s->reader, "BEGIN", err)) != 0) {
			sl__unlock(&s->reader_mu);
			return rc;
		}
	} else {
		if (!s->has_lock)
			return sl_err_set(err, SL_EINVAL, "%s was opened read-only", s->path);
		if ((rc = take_catalog_writer(s, err)) != 0)
			return cannot_write(s, rc, err);
		rc = sl__sqlite_synchronous(&s->writer, kind == CAT_DURABLE ? 2 : 1, err);
		if (rc == 0)
			rc = sl__sqlite_exec(&s->writer, "BEGIN IMMEDIATE", err);
		if (rc != 0) {
			sl__sqlite_lock_release(&s->lock);
			return cannot_write(s, rc, err);
		}
	}
	*tx = (struct sl__cat_tx){
		.db = db, .conn = sl__cat_changes(kind) ? &s->writer : &s->reader, .kind = kind, .begun = true};
	return 0;
}

static void sq_end(struct sl__cat_tx *tx) SL_NO_TSA
{
	struct sq_catalog *s = tx->db;
	if (!tx->begun)
		return;
	tx->begun = false;
	if (!sl__cat_changes(tx->kind)) {
		if (tx->kind == CAT_SNAPSHOT)
			sl__sqlite_rollback(&s->reader);
		sl__unlock(&s->reader_mu);
		return;
	}
	if (tx->committed)
		sl__sqlite_checkpoint_grown(&s->writer, CHECKPOINT_PAGES);
	else
		sl__sqlite_rollback(&s->writer);
	sl__sqlite_lock_release(&s->lock);
}

static int sq_call(struct sl__cat_tx *tx, struct sl__cat_call *calls, size_t n, bool commit, struct sl_err *err)
{
	struct sl__sqlite *c = tx->conn;
	int rc = 0;
	for (struct sl__cat_call *call = calls; call < calls + n && rc == 0; call++) {
		struct sl__sqlite_value values[CAT_VALUES];
		sqlite3_stmt *stmt;
		for (size_t i = 0; i < call->n; i++)
			values[i] = call->values[i].text != NULL ? SQ_TEXT(call->values[i].text)
								 : SQ_INT(call->values[i].number);
		rc = sl__sqlite_bind(c, (size_t)call->stmt, values, call->n, &stmt, err);
		while (rc == 0 && (rc = sl__sqlite_step(c, stmt, err)) > 0) {
			const struct sl__cat_row row = {.ops = &sl__cat_sqlite_ops, .result = stmt};
			rc = call->fn != NULL ? call->fn(&row, err, call->ctx) : 0;
		}
		if (stmt != NULL)
			(void)sqlite3_reset(stmt);
		call->changed = sqlite3_changes(c->db);
	}
	if (rc == 0 && commit && sl__cat_changes(tx->kind)) {
		rc = sl__sqlite_exec(c, "COMMIT", err);
		tx->committed = rc == 0;
	}
	return sl__cat_changes(tx->kind) ? cannot_write(tx->db, rc, err) : rc;
}

/* SQLite takes any value in any column and would give '2x' as 2, and bytes as text: what was not written as what it is
 * asked for is none. */
static int64_t sq_number(const struct sl__cat_row *row, int column)
{
	return sqlite3_column_type(row->result, column) == SQLITE_INTEGER ? sl__sqlite_i64(row->result, column) : -1;
}

static const char *sq_text(const struct sl__cat_row *row, int column)
{
	if (sqlite3_column_type(row->result, column) != SQLITE_TEXT)
		return NULL;
	const char *value = sl__sqlite_text(row->result, column);
	bool whole = value != NULL && strlen(value) == (size_t)sqlite3_column_bytes(row->result, column);
	return whole ? value : NULL;
}

/* ---- leases ---- */

struct sq_guard {
	int fd;
};

static int sq_guard_dataset(void *db, const char *dataset, void **out, struct sl_err *err)
{
	struct sq_catalog *s = db;
	struct sq_guard *g = sl__calloc(s->env, 1, sizeof(*g));
	char *path = sl__asprintf(s->env, "%s-lease-%s", s->path, dataset);
	int rc = 0;
	if (g == NULL || path == NULL) {
		rc = sl_err_set(err, SL_ENOMEM, "out of memory for a lease");
	} else {
		/* SQLite works on real files, and so do its locks. */
		g->fd = sl__io_real.open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600, NULL);
		rc = g->fd < 0 ? g->fd : sl__io_real.lock(g->fd, NULL);
		if (rc < 0 && g->fd >= 0)
			(void)sl__io_real.close(g->fd, NULL);
		if (rc < 0)
			rc = sl_err_set_errno(err, -rc, "lock %s", path);
	}
	sl__free(s->env, path);
	if (rc != 0)
		sl__free(s->env, g);
	else
		*out = g;
	return rc;
}

static void sq_unguard(void *db, void *guard)
{
	struct sq_catalog *s = db;
	struct sq_guard *g = guard;
	if (g == NULL)
		return;
	(void)sl__io_real.close(g->fd, NULL);
	sl__free(s->env, g);
}

/* ---- versions ---- */

/* 0 where there is no catalog yet. SL_EUNSUPPORTED: a later version. */
static int sq_version_of(const struct sq_catalog *s, struct sl__sqlite *c, int *out, struct sl_err *err)
{
	int rc = sl__sqlite_version(c, "sluice_catalog", "SELECT max(version) FROM sluice_catalog", out, err);
	if (rc == 0 && *out > CAT_SCHEMA_VERSION)
		return sl_err_set(err, SL_EUNSUPPORTED, "%s has catalog version %d, this library supports %d", s->path,
				  *out, CAT_SCHEMA_VERSION);
	return rc;
}

/* Apply the steps that are missing, in one transaction. */
static int sq_migrate(struct sq_catalog *s, struct sl_err *err)
{
	struct sl__sqlite *c = &s->writer;
	char note[64];
	int version = 0, rc = take_catalog_writer(s, err);
	if (rc != 0)
		return cannot_write(s, rc, err);
	rc = sl__sqlite_exec(c, "PRAGMA journal_mode=WAL", err);
	if (rc == 0)
		rc = sl__sqlite_synchronous(c, 2, err);
	if (rc == 0)
		rc = sl__sqlite_exec(c, "BEGIN IMMEDIATE", err);
	if (rc == 0 && (rc = sq_version_of(s, c, &version, err)) == 0 && version == 0)
		rc = sl__sqlite_exec(c, "CREATE TABLE IF NOT EXISTS sluice_catalog(version INTEGER)", err);
	for (; rc == 0 && version < CAT_SCHEMA_VERSION; version++) {
		(void)snprintf(note, sizeof(note), "INSERT INTO sluice_catalog VALUES(%d)", version + 1);
		if ((rc = sl__sqlite_exec(c, steps[version], err)) == 0)
			rc = sl__sqlite_exec(c, note, err);
	}
	if (rc == 0)
		rc = sl__sqlite_exec(c, "COMMIT", err);
	if (rc != 0)
		sl__sqlite_rollback(c);
	sl__sqlite_lock_release(&s->lock);
	return cannot_write(s, rc, err);
}

/* ---- the handle ---- */

static void sq_close(void *db)
{
	struct sq_catalog *s = db;
	if (s == NULL)
		return;
	sl__sqlite_close(&s->reader);
	/* Checkpoint, so that the file alone has everything. */
	if (s->has_lock && s->writer.db != NULL && !s->writer.broken && s->writer.wal_pages != 0 &&
	    sl__sqlite_lock_acquire(&s->lock, CLOSE_LOCK_MS, NULL) == 0) {
		sl__sqlite_checkpoint(&s->writer, true);
		sl__sqlite_lock_release(&s->lock);
	}
	sl__sqlite_close(&s->writer);
	if (s->has_lock)
		sl__sqlite_lock_close(&s->lock);
	sl__mutex_fini(&s->reader_mu);
	sl__free(s->env, s->path);
	sl__free(s->env, s);
}

const struct sl__cat_ops sl__cat_sqlite_ops = {
	.name = "sqlite",
	.close = sq_close,
	.begin = sq_begin,
	.call = sq_call,
	.end = sq_end,
	.guard = sq_guard_dataset,
	.unguard = sq_unguard,
	.number = sq_number,
	.text = sq_text,
};

static int sq_open_file(struct sq_catalog *s, const char *path, bool create, struct sl_err *err)
{
	char real[4096];
	struct sl_io_stat st;
	if (!create && sl__io_real.stat(path, &st, NULL) == -ENOENT)
		return sl_err_set(err, SL_EUNAVAIL, "no catalog %s", path);
	int rc = sl__sqlite_locate(s->env, path, create, real, err);
	if (rc != 0)
		return rc;
	s->path = sl__strdup(s->env, real);
	if (s->path == NULL)
		return sl_err_set(err, SL_ENOMEM, "%s: out of memory", path);
	if (!create) { /* it must be there */
		int version = 0;
		if ((rc = begin_reading(s, err)) != 0)
			return rc;
		rc = sq_version_of(s, &s->reader, &version, err);
		struct sl__cat_tx tx = {.db = s, .kind = CAT_READ, .begun = true};
		sq_end(&tx);
		if (rc == 0 && version == 0)
			rc = sl_err_set(err, SL_EUNAVAIL, "no catalog in %s", s->path);
		return rc;
	}
	rc = sl__sqlite_lock_open(&s->lock, s->env, s->path, err);
	if (rc != 0)
		return rc;
	s->has_lock = true;
	return sq_migrate(s, err);
}

int sl__cat_sqlite_open(void **out, const char *path, const struct sl_catalog_opts *opts, const struct sl_env *env,
			struct sl_err *err)
{
	struct sq_catalog *s = sl__calloc(env, 1, sizeof(*s));
	if (s == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a catalog");
	s->env = s->writer.env = s->reader.env = env;
	s->busy_ms = opts->busy_ms;
	sl__mutex_init(&s->reader_mu);
	int rc = sq_open_file(s, path, opts->create != SL_OFF, err);
	if (rc != 0) {
		sq_close(s);
		return rc;
	}
	*out = s;
	return 0;
}
