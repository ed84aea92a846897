/* SPDX-License-Identifier: Apache-2.0 */
/* SQLite connections: opening, prepared statements by number, errors as SL_E codes, checkpoints. */
#include "db/sqlite.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>

/* ---- errors ---- */

static int code_of(int rc)
{
	switch (rc & 0xff) {
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
	case SQLITE_PROTOCOL:
	case SQLITE_INTERRUPT:
		return SL_EAGAIN;
	case SQLITE_NOMEM:
		return SL_ENOMEM;
	case SQLITE_FULL:
		return SL_ENOSPC;
	case SQLITE_READONLY:
	case SQLITE_PERM:
	case SQLITE_AUTH:
		return SL_EACCES;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return SL_ECORRUPT;
	case SQLITE_TOOBIG:
	case SQLITE_CONSTRAINT:
	case SQLITE_MISMATCH:
	case SQLITE_RANGE:
		return SL_EDATA;
	case SQLITE_CANTOPEN:
	case SQLITE_IOERR:
	case SQLITE_NOLFS:
		return rc == SQLITE_IOERR_NOMEM ? SL_ENOMEM : SL_EUNAVAIL;
	default:
		return SL_EINTERNAL;
	}
}

int sl__sqlite_fail(struct sl__sqlite *c, int rc, const char *what, struct sl_err *err)
{
	int code = code_of(rc);
	int extended = c->db != NULL ? sqlite3_extended_errcode(c->db) : rc;
	const char *text =
		c->db != NULL && (extended & 0xff) == (rc & 0xff) ? sqlite3_errmsg(c->db) : sqlite3_errstr(rc);
	if (code == SL_EUNAVAIL || code == SL_ECORRUPT)
		c->broken = true;
	const char *advice = "";
	if ((rc & 0xff) == SQLITE_NOTADB)
		advice = "; is it another kind of file?";
	else if ((rc & 0xff) == SQLITE_CORRUPT)
		advice = "; check it with PRAGMA integrity_check and restore a backup";
	else if ((rc & 0xff) == SQLITE_FULL)
		advice = "; free some space";
	(void)sl_err_set(err, code, "%s: %s%s", what, text, advice);
	if (err != NULL) {
		err->sys_errno = c->db != NULL && code == SL_EUNAVAIL ? sqlite3_system_errno(c->db) : 0;
		if (code == SL_ECORRUPT || code == SL_EACCES)
			err->error_class = SL_CLASS_FATAL;
	}
	return code;
}

/* ---- opening ---- */

/* The file and its folders, made where they are missing. */
static int make_file(const struct sl_env *env, const char *path, struct sl_err *err)
{
	char *dir = sl__dirname(env, path);
	if (dir == NULL)
		return sl_err_set(err, SL_ENOMEM, "%s: out of memory", path);
	/* SQLite works on real files, so these are made with the real table whatever the environment says. */
	struct sl_env real = {SL_ENV_INIT, .io = &sl__io_real, .mem = env->mem, .mem_ctx = env->mem_ctx};
	int rc = sl__mkdirs(&real, dir);
	if (rc != 0) {
		rc = sl_err_set(err, SL_ECREATE, "cannot create the folder %.120s: %s", dir, strerror(-rc));
		sl__free(env, dir);
		return rc;
	}
	sl__free(env, dir);
	return sl__sqlite_make(path, 0600, err);
}

static int refuse_folder(const char *path, struct sl_err *err)
{
	struct stat st;
	if (stat(path, &st) != 0)
		return sl_err_set_errno(err, errno, "open %s", path);
	return S_ISDIR(st.st_mode) ? sl_err_set_errno(err, EISDIR, "open %s", path) : 0;
}

int sl__sqlite_make(const char *path, mode_t mode, struct sl_err *err)
{
	if (mknod(path, S_IFREG | mode, 0) == 0)
		return 0;
	if (errno == EACCES || errno == EPERM || errno == EROFS || errno == ENOENT)
		return sl_err_set(err, SL_ECREATE, "cannot create %.150s: %s", path, strerror(errno));
	return errno == EEXIST ? refuse_folder(path, err) : sl_err_set_errno(err, errno, "open %s", path);
}

int sl__sqlite_locate(const struct sl_env *env, const char *path, bool create, char out[4096], struct sl_err *err)
{
	static_assert(PATH_MAX <= 4096, "realpath needs PATH_MAX bytes");
	int rc = sl_check_local_path("sqlite", path, err);
	rc = rc != 0 || !create ? rc : make_file(env, path, err);
	if (rc != 0)
		return rc;
	if (realpath(path, out) != NULL)
		return create ? 0 : refuse_folder(out, err);
	if (!create && (errno == ENOENT || errno == ENOTDIR))
		return sl_err_set(err, SL_EUNAVAIL, "%s does not exist; create it with 'sluice jobs migrate'", path);
	return sl_err_set_errno(err, errno, "find %s", path);
}

static int note_wal_pages(void *connection, SL_UNUSED sqlite3 *db, SL_UNUSED const char *name, int pages)
{
	((struct sl__sqlite *)connection)->wal_pages = pages;
	return SQLITE_OK;
}

static int configure_connection(struct sl__sqlite *c, enum sl__sqlite_kind kind, int64_t busy_ms, struct sl_err *err)
{
	(void)sqlite3_extended_result_codes(c->db, 1);
	(void)sqlite3_busy_timeout(c->db, busy_ms < 0 ? INT_MAX : (int)SL_MIN(busy_ms, INT_MAX));
	(void)sqlite3_db_config(c->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	(void)sqlite3_db_config(c->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	(void)sqlite3_db_config(c->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	(void)sqlite3_wal_autocheckpoint(c->db, 0);
	if (kind == SL__SQLITE_READER)
		return sl__sqlite_exec(c, "PRAGMA query_only=1; PRAGMA temp_store=MEMORY", err);
	(void)sqlite3_wal_hook(c->db, note_wal_pages, c);
	c->synchronous = 2;
	return sl__sqlite_exec(c,
			       "PRAGMA synchronous=FULL; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-16384;"
			       "PRAGMA journal_size_limit=67108864",
			       err);
}

int sl__sqlite_open(struct sl__sqlite *c, const struct sl_env *env, const char *path, enum sl__sqlite_kind kind,
		    int64_t busy_ms, struct sl_err *err)
{
	memset(c, 0, sizeof(*c));
	c->env = env;
	int rc = sqlite3_open_v2(path, &c->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
				 NULL);
	rc = rc != SQLITE_OK ? sl__sqlite_fail(c, rc, path, err) : configure_connection(c, kind, busy_ms, err);
	if (rc != 0)
		sl__sqlite_close(c);
	return rc;
}

void sl__sqlite_borrow(struct sl__sqlite *c, const struct sl_env *env, sqlite3 *db)
{
	memset(c, 0, sizeof(*c));
	c->env = env;
	c->db = db;
	c->borrowed = true;
}

int sl__sqlite_statements(struct sl__sqlite *c, const char *const *sql, size_t n, struct sl_err *err)
{
	c->prepared = sl__calloc(c->env, n, sizeof(*c->prepared));
	if (c->prepared == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for the statements");
	c->sql = sql;
	c->n_sql = n;
	return 0;
}

void sl__sqlite_close(struct sl__sqlite *c)
{
	for (size_t i = 0; c->prepared != NULL && i < c->n_sql; i++)
		(void)sqlite3_finalize(c->prepared[i]);
	sl__free(c->env, c->prepared);
	c->prepared = NULL;
	if (!c->borrowed)
		(void)sqlite3_close_v2(c->db);
	c->db = NULL;
}

/* ---- running ---- */

int sl__sqlite_exec(struct sl__sqlite *c, const char *sql, struct sl_err *err)
{
	int rc = sqlite3_exec(c->db, sql, NULL, NULL, NULL);
	return rc == SQLITE_OK ? 0 : sl__sqlite_fail(c, rc, "database", err);
}

static int bind_one(sqlite3_stmt *s, int at, const struct sl__sqlite_value *v)
{
	switch (v->kind) {
	case 'i':
		return sqlite3_bind_int64(s, at, v->i);
	case 't':
		return sqlite3_bind_text(s, at, v->p, -1, SQLITE_STATIC);
	case 'x':
		return sqlite3_bind_text64(s, at, v->p, v->len, SQLITE_STATIC, SQLITE_UTF8);
	case 'b':
		return v->len == 0 ? sqlite3_bind_zeroblob(s, at, 0)
				   : sqlite3_bind_blob64(s, at, v->p, v->len, SQLITE_STATIC);
	default:
		return sqlite3_bind_null(s, at);
	}
}

static int bind_all(struct sl__sqlite *c, sqlite3_stmt *s, const struct sl__sqlite_value *values, size_t n,
		    struct sl_err *err)
{
	for (size_t i = 0; i < n; i++) {
		int rc = bind_one(s, (int)i + 1, &values[i]);
		if (rc != SQLITE_OK)
			return sl__sqlite_fail(c, rc, "bind a value", err);
	}
	return 0;
}

int sl__sqlite_bind(struct sl__sqlite *c, size_t id, const struct sl__sqlite_value *values, size_t n,
		    sqlite3_stmt **out, struct sl_err *err)
{
	assert(id < c->n_sql);
	*out = NULL; /* what a caller resets in any case */
	if (c->prepared[id] == NULL) {
		int rc = sqlite3_prepare_v3(c->db, c->sql[id], -1, SQLITE_PREPARE_PERSISTENT, &c->prepared[id], NULL);
		if (rc != SQLITE_OK)
			return sl__sqlite_fail(c, rc, "prepare a statement", err);
	}
	*out = c->prepared[id];
	assert((int)n == sqlite3_bind_parameter_count(*out));
	return bind_all(c, *out, values, n, err);
}

int sl__sqlite_prepare(struct sl__sqlite *c, const char *sql, const struct sl__sqlite_value *values, size_t n,
		       sqlite3_stmt **out, struct sl_err *err)
{
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(c->db, sql, -1, &s, NULL);
	if (rc != SQLITE_OK)
		return sl__sqlite_fail(c, rc, "prepare a statement", err);
	assert((int)n == sqlite3_bind_parameter_count(s));
	rc = bind_all(c, s, values, n, err);
	if (rc != 0)
		(void)sqlite3_finalize(s);
	else
		*out = s;
	return rc;
}

int sl__sqlite_step(struct sl__sqlite *c, sqlite3_stmt *stmt, struct sl_err *err)
{
	int rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		return 1;
	int code = rc == SQLITE_DONE ? 0 : sl__sqlite_fail(c, rc, "database", err);
	(void)sqlite3_reset(stmt);
	return code;
}

int sl__sqlite_run(struct sl__sqlite *c, size_t id, const struct sl__sqlite_value *values, size_t n, int *changed,
		   struct sl_err *err)
{
	sqlite3_stmt *s;
	int rc = sl__sqlite_bind(c, id, values, n, &s, err);
	while (rc == 0 && (rc = sl__sqlite_step(c, s, err)) > 0)
		rc = 0;
	if (rc == 0 && changed != NULL)
		*changed = sqlite3_changes(c->db);
	return rc;
}

int sl__sqlite_row(struct sl__sqlite *c, size_t id, const struct sl__sqlite_value *values, size_t n, sqlite3_stmt **out,
		   struct sl_err *err)
{
	int rc = sl__sqlite_bind(c, id, values, n, out, err);
	if (rc != 0)
		return rc;
	return sl__sqlite_step(c, *out, err);
}

/* ---- durability ---- */

int sl__sqlite_synchronous(struct sl__sqlite *c, int level, struct sl_err *err)
{
	if (c->synchronous == level)
		return 0;
	int rc = sl__sqlite_exec(c, level == 2 ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL", err);
	if (rc == 0)
		c->synchronous = level;
	return rc;
}

void sl__sqlite_checkpoint(struct sl__sqlite *c, bool restart)
{
	struct sl_err err = SL_ERR_INIT;
	int old_ms = 0;
	sqlite3_stmt *s = NULL;
	if (restart && sqlite3_prepare_v2(c->db, "PRAGMA busy_timeout", -1, &s, NULL) == SQLITE_OK &&
	    sqlite3_step(s) == SQLITE_ROW)
		old_ms = sqlite3_column_int(s, 0);
	(void)sqlite3_finalize(s);
	if (restart)
		(void)sqlite3_busy_timeout(c->db, 100);
	int in_log = -1, copied = -1;
	int rc = sqlite3_wal_checkpoint_v2(c->db, NULL, restart ? SQLITE_CHECKPOINT_RESTART : SQLITE_CHECKPOINT_PASSIVE,
					   &in_log, &copied);
	if (restart)
		(void)sqlite3_busy_timeout(c->db, old_ms);
	if (rc == SQLITE_OK || rc == SQLITE_BUSY)
		return;
	bool broken = c->broken;
	(void)sl__sqlite_fail(c, rc, "checkpoint", &err);
	/* What was committed is in the log all the same; the next write shows whether the connection still works. */
	c->broken = broken;
	sl__log(c->env, SL_LOG_WARN, "sqlite", "checkpoint failed", SL__F_STR("error", err.msg));
}

void sl__sqlite_checkpoint_grown(struct sl__sqlite *c, int pages)
{
	int now = c->wal_pages;
	if (now < c->checkpointed_pages)
		c->checkpointed_pages = 0; /* the log began anew */
	if (now - c->checkpointed_pages < pages)
		return;
	c->checkpointed_pages = now;
	sl__sqlite_checkpoint(c, now >= 4 * pages);
}

void sl__sqlite_rollback(struct sl__sqlite *c)
{
	/* Some errors have rolled back already. */
	if (c->db != NULL && !sqlite3_get_autocommit(c->db))
		(void)sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
}

/* The first column of the first row; 0 rows leave *out as it is. text: its parameter, or NULL. */
static int first_int(struct sl__sqlite *c, const char *sql, const char *text, int *out, struct sl_err *err)
{
	sqlite3_stmt *s;
	int rc = sl__sqlite_prepare(c, sql, &SQ_TEXT(text), text != NULL, &s, err);
	if (rc != 0)
		return rc;
	rc = sl__sqlite_step(c, s, err);
	if (rc > 0)
		*out = sqlite3_column_int(s, 0);
	(void)sqlite3_finalize(s);
	return SL_MIN(rc, 0);
}

int sl__sqlite_version(struct sl__sqlite *c, const char *table, const char *sql, int *out, struct sl_err *err)
{
	int there = 0;
	*out = 0;
	int rc = first_int(c, "SELECT 1 FROM sqlite_schema WHERE type='table' AND name=?1", table, &there, err);
	return rc != 0 || !there ? rc : first_int(c, sql, NULL, out, err);
}
