/* SPDX-License-Identifier: Apache-2.0 */
/* Transactions of the caller: on the store's own writer, or on a connection that the caller lends. Both hold the lock
 * from their begin to their end. */
#include <stdio.h>

#include "jobs/store/sqlite/store.h"

int sl__sq_begin(void *store, sl_store_tx **out, struct sl_err *err)
{
	struct sq_store *s = store;
	int rc = sl__sq_check_fork(s, err);
	if (rc != 0)
		return rc;
	struct sl_store_tx *tx = sl__calloc(&s->env, 1, sizeof(*tx));
	if (tx == NULL)
		return sl_err_set(err, SL_ENOMEM, "%s: no memory for a transaction", s->path);
	rc = sl__sq_begin_writing(s, SQ_DURABLE, err);
	if (rc != 0) {
		sl__free(&s->env, tx);
		return rc;
	}
	tx->store = s;
	tx->c = &s->writer;
	tx->locked_us = sl__sq_now_us(s);
	*out = tx;
	return 0;
}

/* The lock is held. */
static int join_locked(struct sl_store_tx *tx, struct sl_err *err)
{
	struct sl__sqlite *c = &tx->joined;
	sqlite3_stmt *s;
	int rc = sl__sqlite_statements(c, sl__sq_statements, SQ_STATEMENT_COUNT, err);
	/* Closing it must not checkpoint without the lock. */
	(void)sqlite3_db_config(c->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	if (rc == 0)
		rc = sl__sqlite_prepare(c, "PRAGMA synchronous", NULL, 0, &s, err);
	if (rc != 0)
		return rc;
	rc = sl__sqlite_step(c, s, err);
	int level = rc > 0 ? sqlite3_column_int(s, 0) : 2;
	(void)sqlite3_finalize(s);
	if (rc < 0)
		return rc;
	if (level < 2) {
		tx->caller_synchronous = level;
		rc = sl__sqlite_synchronous(c, 2, err);
		if (rc != 0)
			return rc;
	}
	return sl__sqlite_run(c, SQ_BEGIN, NULL, 0, NULL, err);
}

static void sq_free_tx(struct sl_store_tx *tx)
{
	struct sq_store *s = tx->store;
	char restore[32];
	if (tx->c == &tx->joined) {
		if (tx->caller_synchronous >= 0) {
			(void)snprintf(restore, sizeof(restore), "PRAGMA synchronous=%d", tx->caller_synchronous);
			(void)!sl__sqlite_exec(&tx->joined, restore, NULL);
		}
		sl__sqlite_close(&tx->joined);
	}
	sl__free(&s->env, tx);
}

int sl__sq_join(void *store, void *native, sl_store_tx **out, struct sl_err *err)
{
	struct sq_store *s = store;
	char real[4096];
	int rc = sl__sq_check_fork(s, err);
	if (rc != 0)
		return rc;
	const char *name = native != NULL ? sqlite3_db_filename(native, "main") : NULL;
	if (name == NULL)
		return sl_err_set(err, SL_EINVAL, "join needs an open sqlite3 connection to a file");
	if (!sqlite3_get_autocommit(native))
		return sl_err_set(err, SL_EINVAL, "the connection is inside a transaction; join it while it is idle");
	rc = sl__sqlite_locate(&s->env, name, false, real, err);
	if (rc == 0 && strcmp(real, s->path) != 0)
		rc = sl_err_set(err, SL_EINVAL, "the connection is to %s, the store is in %s", real, s->path);
	if (rc != 0)
		return rc;
	struct sl_store_tx *tx = sl__calloc(&s->env, 1, sizeof(*tx));
	if (tx == NULL)
		return sl_err_set(err, SL_ENOMEM, "%s: no memory for a transaction", s->path);
	tx->store = s;
	tx->c = &tx->joined;
	tx->caller_synchronous = -1;
	sl__sqlite_borrow(&tx->joined, &s->env, native);
	rc = sl__sqlite_lock_acquire(&s->lock, s->lock_ms, err);
	tx->locked_us = sl__sq_now_us(s);
	if (rc == 0 && (rc = join_locked(tx, err)) != 0)
		sl__sqlite_lock_release(&s->lock);
	if (rc != 0)
		sq_free_tx(tx);
	else
		*out = tx;
	return rc;
}

void *sl__sq_native(sl_store_tx *tx)
{
	return tx->c->db;
}

static int savepoint_exec(sl_store_tx *tx, const char *verb, const char *name, struct sl_err *err)
{
	char sql[128];
	size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz_0123456789");
	if (n == 0 || name[n] != '\0' || (name[0] >= '0' && name[0] <= '9') || n > 64)
		return sl_err_set(err, SL_EINVAL, "invalid savepoint name \"%.70s\" (use [a-z_][a-z0-9_]*)", name);
	if (strcmp(name, "sluice_op") == 0)
		return sl_err_set(err, SL_EINVAL, "the savepoint sluice_op is the store's own");
	(void)snprintf(sql, sizeof(sql), "%s \"%s\"", verb, name);
	return sl__sqlite_exec(tx->c, sql, err);
}

int sl__sq_savepoint(sl_store_tx *tx, const char *name, struct sl_err *err)
{
	return savepoint_exec(tx, "SAVEPOINT", name, err);
}

int sl__sq_release_savepoint(sl_store_tx *tx, const char *name, struct sl_err *err)
{
	return savepoint_exec(tx, "RELEASE", name, err);
}

int sl__sq_rollback_to(sl_store_tx *tx, const char *name, struct sl_err *err)
{
	return savepoint_exec(tx, "ROLLBACK TO", name, err);
}

/* No lease could be renewed while the transaction held the lock: that time does not count. */
static int prolong_leases(const sl_store_tx *tx, struct sl_err *err)
{
	int64_t held_us = sl__sq_now_us(tx->store) - tx->locked_us;
	if (held_us < SQ_SHORT_US)
		return 0;
	return sl__sqlite_run(tx->c, SQ_LEASES_PROLONG, SQ_VALUES(SQ_INT(held_us)), NULL, err);
}

int sl__sq_commit(sl_store_tx *tx, struct sl_err *err)
{
	struct sq_store *s = tx->store;
	int rc = sl__sq_check_fork(s, err);
	if (rc != 0)
		return rc;
	bool ours = tx->c == &s->writer;
	/* An error inside may have rolled everything back already: there is nothing to commit then. */
	if (ours && sqlite3_get_autocommit(tx->c->db))
		rc = sl_err_set(err, SL_EAGAIN, "%s: the transaction was rolled back by an earlier error", s->path);
	else
		rc = prolong_leases(tx, err);
	if (rc == 0 && ours) {
		rc = sl__sq_commit_writing(s, err);
		sq_free_tx(tx);
		return rc;
	}
	if (rc == 0)
		rc = sl__sqlite_run(tx->c, SQ_COMMIT, NULL, 0, NULL, err);
	if (rc != 0)
		sl__sqlite_rollback(tx->c);
	sq_free_tx(tx);
	sl__sqlite_lock_release(&s->lock);
	return rc;
}

void sl__sq_rollback(sl_store_tx *tx)
{
	struct sq_store *s = tx->store;
	if (sl__sq_check_fork(s, NULL) != 0)
		return;
	sl__sqlite_rollback(tx->c);
	/* Leases are prolonged here too, in a separate transaction, before the lock is released. When it fails, a reaper
	 * still spares what ended while it waited. */
	bool was_long = sl__sq_now_us(s) - tx->locked_us >= SQ_SHORT_US;
	if (was_long && !tx->c->broken && sl__sqlite_run(tx->c, SQ_BEGIN, NULL, 0, NULL, NULL) == 0)
		if (prolong_leases(tx, NULL) != 0 || sl__sqlite_run(tx->c, SQ_COMMIT, NULL, 0, NULL, NULL) != 0)
			sl__sqlite_rollback(tx->c);
	sq_free_tx(tx);
	sl__sqlite_lock_release(&s->lock);
}
