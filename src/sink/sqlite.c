/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SQLite sink: batches in transactions on one connection that all lanes share, so that its page cache stays warm.
 *
 *   lane: records into values ─▶ lock ─▶ BEGIN IMMEDIATE ─▶ has the schema changed? ─▶ an INSERT per row ─▶ COMMIT
 *                          └─▶ another lane has the lock: it writes these rows, too, before it commits (join.h)
 *
 * What a transaction costs is the pages that it changes: each is written twice, and rows with random keys change one
 * each. Rows of several batches that fall on one page pay for it once.
 *
 * Invariants
 *  1. Only the holder of `lock` (db/sqlite_lock.h: the queue of this process, then a flock) touches the connection,
 *     writes or checkpoints. Programs that do not know the lock are waited for as SQLite does, up to the timeout.
 *  2. A row that fails leaves the transaction as it was before it; it alone is refused (sink/refusal.h).
 *  3. The columns that records were taken apart for are those of the schema in whose transaction they are written.
 *  4. A batch never fails, and none of its rows is refused, because of another one in the same transaction: what may be
 *     one batch's own fault makes each of them begin again in a separate transaction.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "sink/sqlite.h"

#define STATEMENT_TIMEOUT_MS 60000
#define CLOSE_LOCK_MS 5000

static void sqlite_cancel(void *ctx)
{
	struct sl__sqlite_sink *s = ctx;
	sl__lock(&s->mu);
	s->cancelled = true;
	if (s->running != NULL)
		sqlite3_interrupt(s->running);
	sl__broadcast(&s->hurry);
	sl__unlock(&s->mu);
}

/* ---- lanes ---- */

static int sqlite_attach(void *ctx, void **lane, struct sl_err *err)
{
	struct sl__sqlite_sink *s = ctx;
	struct sl__sqlite_rows *r = sl__alloc(&s->env, sizeof(*r));
	if (r == NULL)
		return sl__no_memory(err, "sqlite");
	sl__sqlite_rows_init(r, &s->env, &s->opts);
	r->done = &s->load.done;
	*lane = r;
	return 0;
}

static void sqlite_detach(void *ctx, void *lane)
{
	struct sl__sqlite_sink *s = ctx;
	sl__sqlite_rows_fini(lane);
	sl__free(&s->env, lane);
}

/* Read the table's columns, and prepare the statement that would write to them. */
static int inspect_table(struct sl__sqlite_sink *s, struct sl__sqlite_rows *r, struct sl_err *err)
{
	sqlite3_stmt *stmt;
	int64_t version = 0;
	int rc = sl__sqlite_sink_lock(s, err);
	if (rc != 0)
		return sl__sqlite_sink_classify(s, rc, err);
	sl__sqlite_sink_start_waiting(s);
	rc = sl__sqlite_sink_connect(s, err);
	if (rc == 0) {
		rc = sl__sqlite_run(&s->db, SL__SINKQ_BEGIN, NULL, 0, NULL, err);
		if (rc == 0)
			rc = sl__sqlite_sink_version(s, &version, err);
		if (rc == 0)
			rc = sl__shape_load(&r->shape, &s->db, &s->opts, version, err);
		if (rc == 0)
			rc = sl__sqlite_get_insert(s, &r->shape, (struct sl__insert){.rows = 1}, &stmt, err);
	}
	sl__sqlite_rollback(&s->db);
	sl__sqlite_lock_release(&s->lock);
	if (rc != 0)
		return sl__sqlite_sink_classify(s, rc, err);
	return 0;
}

static int sqlite_check(void *ctx, struct sl_err *err)
{
	struct sl__sqlite_sink *s = ctx;
	struct sl_err own;
	void *lane = NULL;
	err = err != NULL ? err : &own;
	int rc = sqlite_attach(ctx, &lane, err);
	if (rc != 0)
		return rc;
	rc = inspect_table(s, lane, err);
	sqlite_detach(ctx, lane);
	return rc;
}

static int sqlite_key(void *ctx, void *lane, const void *data, size_t len, uint64_t *hash, struct sl_err *err)
{
	struct sl__sqlite_rows *r = lane;
	struct sl_err own;
	err = err != NULL ? err : &own;
	int rc = r->reader == NULL ? inspect_table(ctx, r, err) : 0;
	if (rc == 0 && r->reader == NULL)
		rc = sl__sqlite_rows_reshape(r, err);
	if (rc != 0)
		return rc;
	return sl__sqlite_rows_key(r, data, len, hash, err);
}

/* ---- the handle ---- */

static const char *sqlite_target(void *ctx)
{
	return ((struct sl__sqlite_sink *)ctx)->target;
}

static void sqlite_close(void *ctx)
{
	struct sl__sqlite_sink *s = ctx;
	struct sl_env env = s->env;
	struct sl_err err;
	if (s->db.db != NULL) {
		/* Checkpoint, so that the file holds everything, as after the last close of a program that uses SQLite
		 * directly. */
		bool held = sl__sqlite_lock_acquire(&s->lock, CLOSE_LOCK_MS, &err) == 0;
		if (held && s->log_mode) {
			s->busy_until_ns = 0;
			(void)sqlite3_wal_checkpoint_v2(s->db.db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
		}
		sl__sqlite_sink_disconnect(s);
		if (held)
			sl__sqlite_lock_release(&s->lock);
	}
	sl__load_fini(&s->load);
	sl__ranges_fini(&s->written);
	sl__sqlite_lock_close(&s->lock);
	sl__join_fini(&s->join);
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
					      .attach = sqlite_attach,
					      .detach = sqlite_detach,
					      .write = sl__sqlite_sink_write,
					      .check = sqlite_check,
					      .cancel = sqlite_cancel,
					      .close = sqlite_close,
					      .target = sqlite_target,
					      .key = sqlite_key,
					      .load_begin = sl__sqlite_load_begin,
					      .load_dead = sl__sqlite_load_dead,
					      .load_end = sl__sqlite_load_end};

static int build_sqlite_sink(struct sl__sqlite_sink *s, const char *path, const struct sl_sink_opts *opts,
			     struct sl_err *err)
{
	struct sl_io_stat st;
	char real[PATH_MAX];
	int rc = sl__sink_copy_opts(&s->opts, opts, &s->env, err);
	if (rc != 0)
		return rc;
	if (s->opts.table == NULL || s->opts.table[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "sqlite: table: missing; give the table to write to");
	if (s->opts.statement_timeout_ms == 0)
		s->opts.statement_timeout_ms = STATEMENT_TIMEOUT_MS;
	/* The file's real name: two names of one file must have one lock. */
	if (realpath(path, real) == NULL) {
		if (errno == ENOENT)
			return sl_err_set(err, SL_ENOENT, "sqlite: no database %s; create it, or use --create", path);
		return sl_err_set_errno(err, errno, "sqlite: %s", path);
	}
	rc = sl__io_real.stat(real, &st, NULL);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "sqlite: %s", path);
	if (!S_ISREG(st.mode))
		return sl_err_set(err, SL_EINVAL, "sqlite: %s is not a regular file", path);
	s->path = sl__strdup(&s->env, real);
	s->target = sl__asprintf(&s->env, "sqlite:%s", path);
	if (s->path == NULL || s->target == NULL)
		return sl__no_memory(err, "sqlite");
	return sl__sqlite_lock_open(&s->lock, &s->env, s->path, err);
}

int sl_sink_sqlite_open(sl_sink *out, const char *path, const struct sl_sink_opts *opts, struct sl_err *err)
{
	struct sl_env env;
	int rc = sl__sink_check_opts(opts, SL__SINK_ROWS | SL__SINK_TABLE, "sqlite:", &env, err);
	if (rc != 0)
		return rc;
	if (path == NULL || path[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "sqlite: missing file name; give sqlite:FILE");
	struct sl__sqlite_sink *s = sl__calloc(&env, 1, sizeof(*s));
	if (s == NULL)
		return sl__no_memory(err, "sqlite");
	s->env = env;
	s->inserts.version = -1;
	sl__load_init(&s->load, &s->env);
	sl__ranges_init(&s->written, &s->env);
	sl__mutex_init(&s->mu);
	sl__cond_init(&s->hurry);
	sl__join_init(&s->join, &s->env);
	rc = build_sqlite_sink(s, path, opts, err);
	if (rc != 0)
		sqlite_close(s);
	else
		*out = (sl_sink){.ops = &sqlite_ops, .ctx = s};
	return rc;
}
