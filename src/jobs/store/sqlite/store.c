/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handle of the SQLite store: opening, readers, transactions and the log's checkpoints.
 *
 * A commit that leaves more than CHECKPOINT_PAGES in SQLite's log copies them into the database before it lets go of
 * the lock; no connection checkpoints by itself or when it is closed. When readers keep the log from beginning anew
 * and it has grown to four times that, the writer waits a moment for them.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "jobs/store/sqlite/store.h"

#define CHECKPOINT_PAGES 4096
#define LOCK_MS_DEFAULT 30000

int64_t sl__sq_now_us(const struct sq_store *s)
{
	return sl__real_ms(&s->env) * 1000;
}

int sl__sq_check_fork(const struct sq_store *s, struct sl_err *err)
{
	if (SL_LIKELY(s->pid == getpid()))
		return 0;
	return sl_err_set(err, SL_EFORKED, "%s was opened by process %d; a forked child must open it itself", s->path,
			  (int)s->pid);
}

/* Open a connection, unless it is open and works. */
static int open_connection(struct sq_store *s, struct sl__sqlite *c, enum sl__sqlite_kind kind, struct sl_err *err)
{
	if (c->db != NULL && c->broken)
		sl__sqlite_close(c);
	if (c->db != NULL)
		return 0;
	int rc = sl__sqlite_open(c, &s->env, s->path, kind, s->lock_ms, err);
	if (rc != 0)
		return rc;
	rc = sl__sqlite_statements(c, sl__sq_statements, SQ_STATEMENT_COUNT, err);
	if (rc != 0)
		sl__sqlite_close(c);
	return rc;
}

/* ---- the writer ---- */

/* With the lock and a connection, or neither. */
static int lock_writer(struct sq_store *s, struct sl_err *err)
{
	int rc = sl__sqlite_lock_acquire(&s->lock, s->lock_ms, err);
	if (rc != 0)
		return rc;
	rc = open_connection(s, &s->writer, SL__SQLITE_RW, err);
	if (rc != 0)
		sl__sqlite_lock_release(&s->lock);
	return rc;
}

int sl__sq_begin_writing(struct sq_store *s, enum sq_durability durability, struct sl_err *err)
{
	int rc = lock_writer(s, err);
	if (rc != 0)
		return rc;
	rc = sl__sqlite_synchronous(&s->writer, (int)durability, err);
	if (rc == 0)
		rc = sl__sqlite_run(&s->writer, SQ_BEGIN, NULL, 0, NULL, err);
	if (rc != 0)
		sl__sqlite_lock_release(&s->lock);
	return rc;
}

int sl__sq_commit_writing(struct sq_store *s, struct sl_err *err)
{
	int rc = sl__sqlite_run(&s->writer, SQ_COMMIT, NULL, 0, NULL, err);
	if (rc != 0)
		sl__sqlite_rollback(&s->writer);
	else
		sl__sqlite_checkpoint_grown(&s->writer, CHECKPOINT_PAGES);
	sl__sqlite_lock_release(&s->lock);
	return rc;
}

void sl__sq_undo_writing(struct sq_store *s)
{
	sl__sqlite_rollback(&s->writer);
	sl__sqlite_lock_release(&s->lock);
}

/* ---- operations ---- */

int sl__sq_op_begin(struct sq_op *op, struct sq_store *s, enum sq_durability durability,
		    const struct sl_store_scope *scope, struct sl_err *err)
{
	struct sl_store_tx *tx = scope != NULL ? scope->tx : NULL;
	memset(op, 0, offsetof(struct sq_op, tally));
	op->store = s;
	op->tx = tx;
	op->scope = scope;
	if (scope != NULL && scope->n_audit > 0) {
		op->audit = scope->audit;
		op->n_audit = scope->n_audit;
		op->from_http = op->audit->via == SL_VIA_HTTP;
	}
	op->err = err;
	int rc = sl__sq_check_fork(s, err);
	if (rc != 0)
		return rc;
	rc = tx == NULL ? sl__sq_begin_writing(s, durability, err) : sl__sqlite_run(tx->c, SQ_SAVE, NULL, 0, NULL, err);
	op->c = tx == NULL ? &s->writer : tx->c;
	op->now_us = sl__sq_now_us(s); /* after the wait for the lock */
	return rc;
}

int sl__sq_op_end(struct sq_op *op, int rc)
{
	if (rc == 0)
		rc = sl__sq_count_flush(op);
	for (size_t i = 0; rc == 0 && i < op->n_audit; i++)
		rc = sl__sq_audit(op, &op->audit[i]);
	if (op->tx == NULL) {
		if (rc == 0)
			rc = sl__sq_commit_writing(op->store, op->err);
		else
			sl__sq_undo_writing(op->store);
		if (rc == SL_ENOSPC || rc == SL_EUNAVAIL)
			atomic_store(&op->store->write_failed, true);
		return rc;
	}
	if (rc == 0)
		return sl__sqlite_run(op->c, SQ_SAVE_RELEASE, NULL, 0, NULL, op->err);
	/* An error that rolled the caller's whole transaction back has taken the savepoint along. */
	if (!sqlite3_get_autocommit(op->c->db) && sl__sqlite_run(op->c, SQ_SAVE_UNDO, NULL, 0, NULL, NULL) == 0)
		(void)!sl__sqlite_run(op->c, SQ_SAVE_RELEASE, NULL, 0, NULL, NULL);
	return rc;
}

/* ---- readers ---- */

static struct sq_reader *free_reader(struct sq_store *s) SL_REQUIRES(s->mu)
{
	for (size_t i = 0; i < SQ_READERS; i++)
		if (!s->readers[i].busy)
			return &s->readers[i];
	return NULL;
}

static void give_reader(struct sq_store *s, struct sq_reader *r)
{
	sl__lock(&s->mu);
	r->busy = false;
	sl__signal(&s->reader_free);
	sl__unlock(&s->mu);
}

int sl__sq_read_begin(struct sq_store *s, struct sl_store_tx *tx, struct sl__sqlite **out, struct sl_err *err)
{
	int rc = sl__sq_check_fork(s, err);
	if (rc != 0)
		return rc;
	if (tx != NULL) {
		*out = tx->c;
		return 0;
	}
	int64_t deadline_ns = sl__deadline_ns(&s->env, s->lock_ms);
	sl__lock(&s->mu);
	struct sq_reader *r;
	while ((r = free_reader(s)) == NULL)
		if (!sl__wait(&s->env, &s->reader_free, &s->mu, deadline_ns)) {
			sl__unlock(&s->mu);
			return sl_err_set(err, SL_EAGAIN, "%s: all %d readers are busy for too long", s->path,
					  SQ_READERS);
		}
	r->busy = true;
	sl__unlock(&s->mu);
	rc = open_connection(s, &r->c, SL__SQLITE_READER, err);
	if (rc != 0)
		give_reader(s, r);
	else
		*out = &r->c;
	return rc;
}

void sl__sq_read_end(struct sq_store *s, struct sl_store_tx *tx, struct sl__sqlite *c)
{
	if (tx == NULL)
		give_reader(s, (struct sq_reader *)((char *)c - offsetof(struct sq_reader, c)));
}

/* ---- the handle ---- */

static void sq_close_store(void *store)
{
	struct sq_store *s = store;
	/* A forked child must not touch the connections: their locks are the parent's. */
	if (s == NULL || sl__sq_check_fork(s, NULL) != 0)
		return;
	for (size_t i = 0; i < SQ_READERS; i++)
		sl__sqlite_close(&s->readers[i].c);
	sl__sqlite_close(&s->writer);
	sl__sqlite_lock_close(&s->lock);
	sl__cond_fini(&s->reader_free);
	sl__mutex_fini(&s->mu);
	sl__free(&s->env, s->path);
	struct sl_env env = s->env;
	sl__free(&env, s);
}

static int migrate(void *store, int *from, int *to, struct sl_err *err)
{
	struct sq_store *s = store;
	int rc = sl__sq_check_fork(s, err);
	if (rc == 0)
		rc = lock_writer(s, err);
	if (rc != 0)
		return rc;
	rc = sl__sq_migrate(s, from, to, err);
	sl__sqlite_lock_release(&s->lock);
	return rc;
}

static int sq_now_ms(void *store, int64_t *out, struct sl_err *err)
{
	int rc = sl__sq_check_fork(store, err);
	if (rc == 0)
		*out = sl__sq_now_us(store) / 1000;
	return rc;
}

static int check_writable(void *store, struct sl_err *err)
{
	struct sq_store *s = store;
	if (access(s->path, W_OK) != 0)
		return sl_err_set(err, SL_EUNAVAIL, "%s: the file cannot be written: %s", s->path, strerror(errno));
	if (!atomic_load(&s->write_failed))
		return 0;
	/* Whether it is still so is seen only by writing. */
	struct sq_op op;
	int rc = sl__sq_op_begin(&op, s, SQ_DURABLE, NULL, err);
	if (rc == 0)
		rc = sl__sq_op_end(&op, sl__sqlite_run(op.c, SQ_TOUCH, NULL, 0, NULL, op.err));
	if (rc == 0)
		atomic_store(&s->write_failed, false);
	return rc;
}

static const struct sl_store_ops ops = {.version = SL_STORE_VERSION,
					.name = "sqlite",
					.close = sq_close_store,
					.migrate = migrate,
					.now_ms = sq_now_ms,
					.renewal_waits = sl__sq_renewal_waits,
					.check_writable = check_writable,
#define FILL_SLOT(slot) .slot = sl__sq_##slot,
					SL__STORE_SLOTS(FILL_SLOT)
#undef FILL_SLOT
#define FILL_SLOT(slot) .slot = sl__cold_##slot,
						SL__COLD_SLOTS(FILL_SLOT)
#undef FILL_SLOT
};

static int open_store_parts(struct sq_store *s, const char *path, const struct sl_store_opts *o, struct sl_err *err)
{
	char real[4096];
	s->pid = getpid();
	s->lock_ms = o->statement_timeout_ms != 0 ? o->statement_timeout_ms : LOCK_MS_DEFAULT;
	if (s->lock_ms < 0 && s->lock_ms != SL_UNLIMITED)
		return sl_err_set(err, SL_EINVAL, "statement_timeout_ms must not be negative");
	s->may_create = o->create != SL_OFF;
	int rc = sl__sqlite_locate(&s->env, path, s->may_create, real, err);
	if (rc != 0)
		return rc;
	s->path = sl__strdup(&s->env, real);
	if (s->path == NULL)
		return sl_err_set(err, SL_ENOMEM, "%s: out of memory", path);
	rc = sl__sqlite_lock_open(&s->lock, &s->env, s->path, err);
	if (rc != 0)
		return rc;
	if (o->migrate != SL_OFF)
		return migrate(s, NULL, NULL, err);
	rc = lock_writer(s, err);
	if (rc != 0)
		return rc;
	rc = sl__sq_require_schema(s, err);
	sl__sqlite_lock_release(&s->lock);
	return rc;
}

int sl_store_sqlite_open(sl_store *out, const char *path, const struct sl_store_opts *opts, struct sl_err *err)
{
	struct sl_store_opts o;
	struct sl_env env;
	sl__opts_copy(&o, sizeof(o), opts);
	if (out == NULL || path == NULL || path[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "a SQLite store needs the name of a file");
	int rc = sl__env_init(&env, o.env, err);
	if (rc != 0)
		return rc;
	struct sq_store *s = sl__calloc(&env, 1, sizeof(*s));
	if (s == NULL)
		return sl_err_set(err, SL_ENOMEM, "%s: no memory for a store", path);
	s->env = env;
	s->cold = (struct sl__cold_store){.ops = &sl__sq_cold_ops, .env = &s->env};
	sl__mutex_init(&s->mu);
	sl__cond_init(&s->reader_free);
	rc = open_store_parts(s, path, &o, err);
	if (rc != 0) {
		rc = sl_err_wrap(err, rc, "open the store %s", path);
		sq_close_store(s);
		return rc;
	}
	*out = (sl_store){.ops = &ops, .ctx = s};
	return 0;
}
