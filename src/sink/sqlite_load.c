/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads into SQLite: the tables of what was written (docs/formats/loads.md).
 *
 *   sluice_loads        a row per table and input: the id of the run that may write, when the first one began, finished
 *   sluice_load_ranges  a row per transaction: which bytes of the input it has written
 *
 * SQLite has no identity of a table that outlives VACUUM and ends with DROP. An index ends with its table: an empty one
 * (WHERE 0), named sluice_mark_ and a random number, marks the table, and loads go by its name.
 *
 * A run may write as long as its id is in sluice_loads: the next run of the same load gives it another one. Each
 * transaction looks, under the lock of all writers.
 */
#include "sink/sqlite.h"

#include <stdio.h>

static const char schema[] =
	"CREATE TABLE IF NOT EXISTS main.sluice_loads (id TEXT NOT NULL PRIMARY KEY, target TEXT NOT NULL,"
	" input TEXT NOT NULL, started_ms INTEGER NOT NULL, finished INTEGER NOT NULL DEFAULT 0,"
	" UNIQUE (target, input));"
	"CREATE TABLE IF NOT EXISTS main.sluice_load_ranges (load TEXT NOT NULL, first INTEGER NOT NULL,"
	" last INTEGER NOT NULL, parts BLOB, rows INTEGER NOT NULL, hash INTEGER NOT NULL);"
	"CREATE INDEX IF NOT EXISTS main.sluice_load_ranges_load ON sluice_load_ranges (load)";

/* ---- statements that run once ---- */

/* Run it to its first row, or to its end: 1, 0 or an error. The caller finalizes *q. */
static int first_row(struct sl__sqlite_sink *s, const char *sql, const struct sl__sqlite_value *values, size_t n,
		     sqlite3_stmt **q, struct sl_err *err)
{
	*q = NULL;
	int rc = sl__sqlite_prepare(&s->db, sql, values, n, q, err);
	if (rc != 0)
		return rc;
	return sl__sqlite_step(&s->db, *q, err);
}

static int run_once(struct sl__sqlite_sink *s, const char *sql, const struct sl__sqlite_value *values, size_t n,
		    struct sl_err *err)
{
	sqlite3_stmt *q;
	int rc = first_row(s, sql, values, n, &q, err);
	(void)sqlite3_finalize(q);
	return rc < 0 ? rc : 0;
}

/* ---- the table's identity ---- */

/* *out: the name of the table's mark, made if need be, or of a view the view's. Fresh memory. */
static int find_mark(struct sl__sqlite_sink *s, char **out, struct sl_err *err)
{
	static const char find[] = "SELECT name FROM main.sqlite_master WHERE type = 'index' AND tbl_name = ?1 COLLATE "
				   "NOCASE AND name GLOB 'sluice_mark_*' AND sql NOT NULL";
	struct sl__shape shape = {.version = -1};
	char id[SL__LOAD_ID_BYTES];
	sqlite3_stmt *q;
	int rc = first_row(s, find, &SQ_TEXT(s->opts.table), 1, &q, err);
	*out = rc > 0 ? sl__strdup(&s->env, sl__sqlite_text(q, 0)) : NULL;
	(void)sqlite3_finalize(q);
	if (rc != 0)
		return rc < 0 || *out != NULL ? SL_MIN(rc, 0) : sl__no_memory(err, "sqlite");
	rc = first_row(s,
		       "SELECT 1 FROM main.sqlite_master WHERE type = 'table' AND name = ?1 COLLATE NOCASE AND sql NOT "
		       "LIKE 'CREATE VIRTUAL%'",
		       &SQ_TEXT(s->opts.table), 1, &q, err);
	(void)sqlite3_finalize(q);
	if (rc < 0)
		return rc;
	if (rc == 0) {
		*out = sl__asprintf(&s->env, "view:%s", s->opts.table);
		return *out != NULL ? 0 : sl__no_memory(err, "sqlite");
	}
	struct sl__buf sql;
	sl__buf_init(&sql, &s->env);
	rc = sl__shape_load(&shape, &s->db, &s->opts, 0, err);
	if (rc == 0) {
		sl__load_new_id(&s->env, id);
		id[16] = '\0';
		*out = sl__asprintf(&s->env, "sluice_mark_%s", id);
		(void)sl__buf_printf(&sql, "CREATE INDEX main.%s ON ", *out != NULL ? *out : "");
		sl__put_sql_name(&sql, s->opts.table);
		(void)sl__buf_str_append(&sql, " (");
		sl__put_sql_name(&sql, shape.names[0]);
		(void)sl__buf_str_append(&sql, ") WHERE 0");
		rc = *out == NULL || sql.failed != 0 ? sl__no_memory(err, "sqlite")
						     : sl__sqlite_exec(&s->db, sl__buf_str(&sql), err);
	}
	sl__shape_fini(&shape);
	sl__buf_fini(&sql);
	return rc;
}

/* Records of tables that are gone, and of this one when it is empty although rows were written to it, count for
 * nothing. */
static int forget_old_loads(struct sl__sqlite_sink *s, const char *mark, struct sl_err *err)
{
	struct sl__buf sql;
	sqlite3_stmt *q = NULL;
	sl__buf_init(&sql, &s->env);
	(void)sl__buf_str_append(&sql, "SELECT 1 FROM main.");
	sl__put_sql_name(&sql, s->opts.table);
	(void)sl__buf_str_append(&sql, " LIMIT 1");
	int rc = sql.failed != 0 ? sl__no_memory(err, "sqlite") : first_row(s, sl__buf_str(&sql), NULL, 0, &q, err);
	(void)sqlite3_finalize(q);
	sl__buf_fini(&sql);
	if (rc < 0)
		return rc;
	if (rc == 0)
		rc = run_once(s,
			      "DELETE FROM main.sluice_loads WHERE target = ?1 AND (SELECT sum(rows) FROM "
			      "main.sluice_load_ranges "
			      "WHERE load = id) > 0",
			      &SQ_TEXT(mark), 1, err);
	if (rc < 0)
		return rc;
	return sl__sqlite_exec(
		&s->db,
		"DELETE FROM main.sluice_loads WHERE target GLOB 'sluice_mark_*' AND target NOT IN "
		"(SELECT name FROM main.sqlite_master WHERE type = 'index');"
		"DELETE FROM main.sluice_load_ranges WHERE load NOT IN (SELECT id FROM main.sluice_loads)",
		err);
}

/* ---- records ---- */

static int read_ranges(struct sl__sqlite_sink *s, struct sl__ranges *out, size_t *n_rows, struct sl_err *err)
{
	sqlite3_stmt *q;
	*n_rows = 0;
	sl__ranges_clear(out);
	int rc = first_row(
		s, "SELECT first, last, parts, rows, hash FROM main.sluice_load_ranges WHERE load = ?1 ORDER BY first",
		&SQ_TEXT(s->load.id), 1, &q, err);
	while (rc > 0) {
		struct sl_input_range row = {.begin = sl__sqlite_u64(q, 0), .end = sl__sqlite_u64(q, 1)};
		const void *parts = sqlite3_column_blob(q, 2);
		++*n_rows;
		rc = sl__ranges_get_row(out, row, parts, (size_t)sqlite3_column_bytes(q, 2), err);
		out->rows += sl__sqlite_u64(q, 3);
		out->hash += sl__sqlite_u64(q, 4);
		if (rc == 0)
			rc = sl__sqlite_step(&s->db, q, err);
	}
	(void)sqlite3_finalize(q);
	sl__ranges_sort(out);
	return rc;
}

int sl__sqlite_load_put(struct sl__sqlite_sink *s, struct sl__ranges *ranges, struct sl_err *err)
{
	struct sl__buf parts;
	if (ranges->n == 0)
		return 0;
	sl__buf_init(&parts, &s->env);
	sl__ranges_sort(ranges);
	sl__ranges_put_parts(ranges, &parts);
	struct sl__sqlite_value values[] = {SQ_TEXT(s->load.id),
					    SQ_INT(ranges->at[0].begin),
					    SQ_INT(sl__ranges_end(ranges)),
					    parts.len > 0 ? SQ_BLOB(parts.data, parts.len) : SQ_NULL,
					    SQ_INT(ranges->rows),
					    SQ_INT(ranges->hash)};
	int rc = parts.failed != 0 ? sl__no_memory(err, "sqlite")
				   : sl__sqlite_run(&s->db, SL__SINKQ_RANGE, values, SL_COUNT(values), NULL, err);
	sl__buf_fini(&parts);
	return rc;
}

/* One row for all that a load has. */
static int compact_ranges(struct sl__sqlite_sink *s, struct sl__ranges *all, size_t n_rows, struct sl_err *err)
{
	if (n_rows < 2)
		return 0;
	int rc = run_once(s, "DELETE FROM main.sluice_load_ranges WHERE load = ?1", &SQ_TEXT(s->load.id), 1, err);
	if (rc != 0)
		return rc;
	return sl__sqlite_load_put(s, all, err);
}

int sl__sqlite_load_enter(struct sl__sqlite_sink *s, struct sl_err *err)
{
	sqlite3_stmt *q;
	size_t n;
	if (s->load.id[0] == '\0')
		return 0;
	int rc = sl__sqlite_row(&s->db, SL__SINKQ_LOAD, &SQ_TEXT(s->load.id), 1, &q, err);
	if (rc > 0)
		(void)sqlite3_reset(q);
	if (rc <= 0)
		return rc < 0 ? rc : sl__load_taken_over(err);
	if (!s->load.doubt)
		return 0;
	rc = read_ranges(s, &s->load.late, &n, err);
	if (rc != 0)
		return rc;
	s->load.doubt = false;
	sl__lock(&s->mu);
	sl__load_drop_dead(&s->load);
	sl__unlock(&s->mu);
	return 0;
}

int sl__sqlite_load_put_dead(struct sl__sqlite_sink *s, struct sl__ranges *taken, struct sl_err *err)
{
	if (s->load.id[0] == '\0')
		return 0;
	sl__lock(&s->mu);
	struct sl__ranges pending = s->load.dead;
	s->load.dead = *taken;
	sl__unlock(&s->mu);
	*taken = pending;
	sl__ranges_clear(&s->written);
	for (size_t i = 0; i < taken->n; i++)
		if (sl__ranges_add(&s->written, &taken->at[i]) != 0)
			return sl__no_memory(err, "sqlite");
	return sl__sqlite_load_put(s, &s->written, err);
}

void sl__sqlite_load_give_back(struct sl__sqlite_sink *s, struct sl__ranges *taken)
{
	int rc = 0;
	sl__lock(&s->mu);
	for (size_t i = 0; i < taken->n && rc == 0; i++)
		rc = sl__load_dead(&s->load, &taken->at[i]); /* without memory: the next run finds them dead again */
	sl__unlock(&s->mu);
	sl__ranges_fini(taken);
}

int sl__sqlite_load_dead(void *ctx, const struct sl_input_range *range)
{
	struct sl__sqlite_sink *s = ctx;
	sl__lock(&s->mu);
	int rc = sl__load_dead(&s->load, range);
	sl__unlock(&s->mu);
	return rc;
}

/* ---- begin and end ---- */

/* Take the load over from the run that has it. In a transaction. */
static int take_over_load(struct sl__sqlite_sink *s, const char *mark, const char *input, bool again,
			  struct sl_err *err)
{
	struct sl__load *l = &s->load;
	char old[SL__LOAD_ID_BYTES] = "";
	sqlite3_stmt *q;
	size_t n;
	struct sl__sqlite_value key[] = {SQ_TEXT(mark), SQ_TEXT(input)};
	sl__load_new_id(&s->env, l->id);
	int rc = first_row(s, "SELECT id, started_ms, finished FROM main.sluice_loads WHERE target = ?1 AND input = ?2",
			   key, 2, &q, err);
	if (rc > 0) {
		(void)snprintf(old, sizeof(old), "%s", sl__sqlite_text(q, 0));
		l->started_ms = sl__sqlite_i64(q, 1);
		l->finished = sl__sqlite_i64(q, 2) != 0;
	}
	(void)sqlite3_finalize(q);
	if (rc < 0)
		return rc;
	bool fresh = old[0] == '\0' || again;
	if (fresh) {
		l->started_ms = sl__real_ms(&s->env);
		l->finished = false;
	}
	rc = run_once(s, "DELETE FROM main.sluice_loads WHERE id = ?1", &SQ_TEXT(old), 1, err);
	if (rc == 0 && fresh)
		rc = run_once(s, "DELETE FROM main.sluice_load_ranges WHERE load = ?1", &SQ_TEXT(old), 1, err);
	else if (rc == 0)
		rc = run_once(s, "UPDATE main.sluice_load_ranges SET load = ?2 WHERE load = ?1",
			      (struct sl__sqlite_value[]){SQ_TEXT(old), SQ_TEXT(l->id)}, 2, err);
	struct sl__sqlite_value row[] = {SQ_TEXT(l->id), SQ_TEXT(mark), SQ_TEXT(input), SQ_INT(l->started_ms),
					 SQ_INT(l->finished)};
	if (rc == 0)
		rc = run_once(s,
			      "INSERT INTO main.sluice_loads (id, target, input, started_ms, finished) VALUES (?1, ?2, "
			      "?3, ?4, ?5)",
			      row, SL_COUNT(row), err);
	if (rc == 0)
		rc = read_ranges(s, &l->done, &n, err);
	if (rc != 0)
		return rc;
	return compact_ranges(s, &l->done, n, err);
}

/* Commit or roll back, and let go of the lock. */
static int leave_load(struct sl__sqlite_sink *s, int rc, struct sl_err *err)
{
	sl__sqlite_sink_start_waiting(s);
	if (rc == 0)
		rc = sl__sqlite_run(&s->db, SL__SINKQ_COMMIT, NULL, 0, NULL, err);
	if (rc != 0)
		sl__sqlite_rollback(&s->db);
	sl__sqlite_lock_release(&s->lock);
	if (rc != 0)
		return sl__sqlite_sink_classify(s, rc, err);
	return 0;
}

static int enter_load(struct sl__sqlite_sink *s, struct sl_err *err)
{
	int rc = sl__sqlite_sink_lock(s, err);
	if (rc != 0)
		return rc;
	sl__sqlite_sink_start_waiting(s);
	rc = sl__sqlite_sink_connect(s, err);
	if (rc == 0)
		rc = sl__sqlite_run(&s->db, SL__SINKQ_BEGIN, NULL, 0, NULL, err);
	if (rc != 0)
		sl__sqlite_lock_release(&s->lock);
	return rc;
}

int sl__sqlite_load_begin(void *ctx, const char *input, bool again, struct sl_sink_loaded *out, struct sl_err *err)
{
	struct sl__sqlite_sink *s = ctx;
	struct sl_err own;
	char *mark = NULL;
	err = err != NULL ? err : &own;
	sl__load_fini(&s->load);
	int rc = enter_load(s, err);
	if (rc != 0)
		return sl__sqlite_sink_classify(s, rc, err);
	rc = sl__sqlite_exec(&s->db, schema, err);
	if (rc == 0)
		rc = find_mark(s, &mark, err);
	if (rc == 0)
		rc = forget_old_loads(s, mark, err);
	if (rc == 0)
		rc = take_over_load(s, mark, input, again, err);
	sl__free(&s->env, mark);
	rc = leave_load(s, rc, err);
	if (rc != 0)
		sl__load_fini(&s->load);
	else
		sl__load_show(&s->load, out);
	return rc;
}

/* Record what is dead, and whether the load is finished, in one row for all ranges. In a transaction. */
static int end_load(struct sl__sqlite_sink *s, bool finished, struct sl_err *err)
{
	struct sl__ranges dead;
	size_t n;
	int rc = sl__sqlite_load_enter(s, err);
	if (rc != 0)
		return rc;
	sl__ranges_init(&dead, &s->env);
	rc = sl__sqlite_load_put_dead(s, &dead, err);
	sl__ranges_fini(&dead);
	if (rc != 0)
		return rc;
	rc = read_ranges(s, &s->load.late, &n, err);
	if (rc != 0)
		return rc;
	rc = compact_ranges(s, &s->load.late, n, err);
	if (rc == 0 && finished)
		rc = run_once(s, "UPDATE main.sluice_loads SET finished = 1 WHERE id = ?1", &SQ_TEXT(s->load.id), 1,
			      err);
	return rc;
}

int sl__sqlite_load_end(void *ctx, bool finished, struct sl_err *err)
{
	struct sl__sqlite_sink *s = ctx;
	struct sl_err own;
	err = err != NULL ? err : &own;
	if (s->load.id[0] == '\0')
		return 0;
	int rc = enter_load(s, err);
	if (rc == 0)
		rc = leave_load(s, end_load(s, finished, err), err);
	sl__load_fini(&s->load);
	return rc;
}
