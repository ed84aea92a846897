/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads into PostgreSQL: the tables of what was written, in the schema of the target (docs/formats/loads.md).
 *
 *   sluice_loads        a row per table and input: the id of the run that may write, when the first one began, finished
 *   sluice_load_ranges  a row per transaction: which bytes of the input it has written; references the id
 *
 * The table is named by a regclass: another table of the same name is another one, and a dump of the database keeps it.
 *
 *  L1  A transaction that writes rows of a load inserts their ranges, and so holds the row of its run (FOR KEY SHARE,
 *      by the foreign key) until it ends.
 *  L2  A run that takes a load over changes its id. That waits for transactions that hold it, and those that come later
 *      with the old id fail (SL__PG_LOAD_FENCE): afterwards the records are all that was written or will be.
 *  L3  After a lost connection a lane takes the load over from itself in the same way, before anything else is written:
 *      so a transaction whose commit was not answered has either been recorded, or will never be.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "sink/postgres.h"

/* A statement with text parameters; NULL is NULL. *out (may be NULL): its rows, for PQclear. */
static int query(struct sl__pg_lane *lane, const char *sql, int n, const char *const *values, PGresult **out,
		 struct sl_err *err)
{
	int rc = 0, wait_rc = 0;
	PGresult *res;
	if (out != NULL)
		*out = NULL;
	if (PQsendQueryParams(lane->pg, sql, n, NULL, values, NULL, NULL, 0) == 0)
		return sl__pg_sink_error(err, lane->pg, NULL, "records of loads");
	while ((res = sl__pg_next(lane, &wait_rc, err)) != NULL) {
		ExecStatusType status = PQresultStatus(res);
		if (rc == 0 && status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
			rc = sl__pg_sink_error(err, lane->pg, res, "records of loads");
		if (out != NULL && *out == NULL)
			*out = res;
		else
			PQclear(res);
	}
	rc = wait_rc != 0 ? wait_rc : rc;
	if (rc != 0 && out != NULL) {
		PQclear(*out);
		*out = NULL;
	}
	return rc;
}

/* The same with the name of the schema in place of each %s of the text. */
static int query_in_schema(struct sl__pg_lane *lane, const char *sql, int n, const char *const *values, PGresult **out,
			   struct sl_err *err)
{
	struct sl__buf text;
	sl__buf_init(&text, &lane->sink->env);
	for (const char *p = sql, *at; *p != '\0'; p = at) {
		at = strstr(p, "%s");
		(void)sl__buf_append(&text, p, at != NULL ? (size_t)(at - p) : strlen(p));
		if (at == NULL)
			break;
		(void)sl__buf_str_append(&text, lane->sink->load_schema);
		at += 2;
	}
	int rc = text.failed != 0 ? sl_err_set(err, SL_ENOMEM, "postgres: out of memory")
				  : query(lane, sl__buf_str(&text), n, values, out, err);
	sl__buf_fini(&text);
	return rc;
}

/* ---- records ---- */

static uint64_t number(const PGresult *res, int row, int column)
{
	return (uint64_t)strtoll(PQgetvalue(res, row, column), NULL, 10);
}

/* What the run has written, in out. *n_rows: of the table. */
static int read_ranges(struct sl__pg_lane *lane, const char *id, struct sl__ranges *out, size_t *n_rows,
		       struct sl_err *err)
{
	PGresult *res;
	sl__ranges_clear(out);
	int rc = query_in_schema(
		lane, "SELECT first, last, parts, rows, hash FROM %s.sluice_load_ranges WHERE load = $1 ORDER BY first",
		1, &id, &res, err);
	if (rc != 0)
		return rc;
	*n_rows = (size_t)PQntuples(res);
	for (int i = 0; i < PQntuples(res) && rc == 0; i++) {
		size_t n = 0;
		unsigned char *parts = PQgetisnull(res, i, 2)
					       ? NULL
					       : PQunescapeBytea((const unsigned char *)PQgetvalue(res, i, 2), &n);
		if (parts == NULL && !PQgetisnull(res, i, 2))
			rc = sl_err_set(err, SL_ENOMEM, "postgres: out of memory");
		rc = rc != 0 ? rc : sl__ranges_get_row(out, number(res, i, 0), number(res, i, 1), parts, n, err);
		out->rows += number(res, i, 3);
		out->hash += number(res, i, 4);
		PQfreemem(parts);
	}
	PQclear(res);
	sl__ranges_sort(out);
	return rc;
}

/* ('id', first, last, parts, rows, hash) */
static void put_row(struct sl__buf *sql, const struct sl_env *env, const char *id, struct sl__ranges *ranges)
{
	struct sl__buf parts;
	sl__buf_init(&parts, env);
	sl__ranges_sort(ranges);
	sl__ranges_put_parts(ranges, &parts);
	(void)sl__buf_printf(sql, "('%s', %" PRIu64 ", %" PRIu64 ", ", id, ranges->at[0].begin, sl__ranges_end(ranges));
	if (parts.len == 0) {
		(void)sl__buf_str_append(sql, "NULL");
	} else if (sl__buf_reserve(sql, parts.len * 2 + 8) == 0) {
		(void)sl__buf_str_append(sql, "E'\\\\x");
		for (size_t i = 0; i < parts.len; i++) {
			static const char digits[] = "0123456789abcdef";
			char two[2] = {digits[(uint8_t)parts.data[i] >> 4], digits[(uint8_t)parts.data[i] & 15]};
			(void)sl__buf_append(sql, two, 2);
		}
		(void)sl__buf_str_append(sql, "'");
	}
	(void)sl__buf_printf(sql, ", %" PRIu64 ", %" PRId64 ")", ranges->rows, (int64_t)ranges->hash);
	if (parts.failed != 0)
		sql->failed = SL_ENOMEM;
	sl__buf_fini(&parts);
}

#define INSERT_RANGES "INSERT INTO %s.sluice_load_ranges (load, first, last, parts, rows, hash) VALUES "

/* One row for all that a load has. In a transaction. */
static int compact(struct sl__pg_lane *lane, const char *id, struct sl__ranges *all, size_t n_rows, struct sl_err *err)
{
	struct sl__buf sql;
	if (n_rows < 2)
		return 0;
	int rc = query_in_schema(lane, "DELETE FROM %s.sluice_load_ranges WHERE load = $1", 1, &id, NULL, err);
	if (rc != 0)
		return rc;
	sl__buf_init(&sql, &lane->sink->env);
	(void)sl__buf_printf(&sql, INSERT_RANGES, lane->sink->load_schema);
	put_row(&sql, &lane->sink->env, id, all);
	rc = sql.failed != 0 ? sl_err_set(err, SL_ENOMEM, "postgres: out of memory")
			     : query(lane, sl__buf_str(&sql), 0, NULL, NULL, err);
	sl__buf_fini(&sql);
	return rc;
}

/* ---- around a batch ---- */

static void take_dead(struct sl__pg_lane *lane)
{
	struct sl__pg_sink *s = lane->sink;
	if (lane->dead.n > 0)
		return;
	sl__lock(&s->mu);
	struct sl__ranges mine = s->load.dead;
	s->load.dead = lane->dead;
	lane->dead = mine;
	sl__unlock(&s->mu);
}

static void give_back_dead(struct sl__pg_lane *lane)
{
	struct sl__pg_sink *s = lane->sink;
	int rc = 0;
	sl__lock(&s->mu);
	for (size_t i = 0; i < lane->dead.n && rc == 0; i++)
		rc = sl__load_dead(&s->load,
				   &lane->dead.at[i]); /* without memory: the next run finds them dead again */
	sl__unlock(&s->mu);
	sl__ranges_clear(&lane->dead);
}

/* L3. Under load_mu. */
static int renew(struct sl__pg_lane *lane, struct sl_err *err) SL_REQUIRES(lane->sink->load_mu)
{
	struct sl__load *l = &lane->sink->load;
	PGresult *res = NULL;
	char id[SL__LOAD_ID_BYTES], before[SL__LOAD_ID_BYTES];
	size_t n;
	sl__load_new_id(&lane->sink->env, id);
	memcpy(before, l->tried[0] != '\0' ? l->tried : l->id, sizeof(before));
	memcpy(l->tried, id, sizeof(id));
	const char *const values[] = {id, l->id, before};
	int rc = sl__pg_simple(lane, "BEGIN", "BEGIN", err);
	rc = rc != 0 ? rc
		     : query_in_schema(lane, "UPDATE %s.sluice_loads SET id = $1 WHERE id IN ($2, $3) RETURNING id", 3,
				       values, &res, err);
	if (rc == 0 && PQntuples(res) == 0)
		rc = sl__load_taken_over(err);
	PQclear(res);
	rc = rc != 0 ? rc : read_ranges(lane, id, &l->late, &n, err);
	rc = rc != 0 ? rc : sl__pg_simple(lane, "COMMIT", "COMMIT", err);
	if (rc != 0)
		return rc; /* the connection is closed by the caller: it is in a transaction */
	memcpy(l->id, id, sizeof(id));
	l->tried[0] = '\0';
	l->doubt = false;
	sl__lock(&lane->sink->mu);
	sl__load_drop_dead(l);
	sl__unlock(&lane->sink->mu);
	return 0;
}

static int find_written(struct sl__pg_lane *lane, const struct sl_sink_batch *batch, struct sl_err *err)
	SL_REQUIRES(lane->sink->load_mu)
{
	const struct sl__load *l = &lane->sink->load;
	struct sl__pg_rows *r = &lane->rows;
	if (l->done.n == 0 && l->late.n == 0)
		return 0;
	if (r->cap_skip < batch->n) {
		uint8_t *skip = sl__realloc(&lane->sink->env, r->skip, batch->n);
		if (skip == NULL)
			return sl_err_set(err, SL_ENOMEM, "postgres: out of memory");
		r->skip = skip;
		r->cap_skip = batch->n;
	}
	for (size_t i = 0; i < batch->n; i++) {
		const struct sl_input_range *range = &batch->items[i].range;
		r->skip[i] = range->end != 0 &&
			     (sl__ranges_has(&l->done, range->begin) || sl__ranges_has(&l->late, range->begin));
		r->skips = r->skips || r->skip[i];
	}
	return 0;
}

int sl__pg_load_enter(struct sl__pg_lane *lane, const struct sl_sink_batch *batch, struct sl_err *err)
{
	const struct sl__load *l = &lane->sink->load;
	int rc = 0;
	lane->rows.skips = false;
	lane->load_id[0] = '\0';
	sl__lock(&lane->sink->load_mu);
	if (l->id[0] != '\0') {
		rc = l->doubt ? renew(lane, err) : 0;
		memcpy(lane->load_id, l->id, sizeof(lane->load_id));
		rc = rc != 0 ? rc : find_written(lane, batch, err);
	}
	sl__unlock(&lane->sink->load_mu);
	return rc;
}

int sl__pg_load_record(struct sl__pg_lane *lane, const struct sl_sink_batch *batch, struct sl_err *err)
{
	struct sl__ranges *w = &lane->written;
	sl__buf_clear(&lane->record);
	if (lane->load_id[0] == '\0')
		return 0;
	sl__ranges_clear(w);
	for (size_t k = 0; k < lane->rows.n; k++) {
		const struct sl_input_range *range = &batch->items[lane->rows.item[k]].range;
		if (range->end == 0)
			continue;
		if (sl__ranges_add(w, range) != 0)
			return sl_err_set(err, SL_ENOMEM, "postgres: out of memory");
		w->rows++;
	}
	if (w->n == 0)
		return 0;
	(void)sl__buf_printf(&lane->record, INSERT_RANGES, lane->sink->load_schema);
	put_row(&lane->record, &lane->sink->env, lane->load_id, w);
	take_dead(lane);
	sl__ranges_clear(w);
	for (size_t i = 0; i < lane->dead.n; i++)
		if (sl__ranges_add(w, &lane->dead.at[i]) != 0)
			return sl_err_set(err, SL_ENOMEM, "postgres: out of memory");
	if (w->n > 0) {
		(void)sl__buf_str_append(&lane->record, ", ");
		put_row(&lane->record, &lane->sink->env, lane->load_id, w);
	}
	return lane->record.failed != 0 ? sl_err_set(err, SL_ENOMEM, "postgres: out of memory") : 0;
}

bool sl__pg_load_leave(struct sl__pg_lane *lane, int rc, bool lost)
{
	struct sl__pg_sink *s = lane->sink;
	if (rc == 0) {
		sl__ranges_clear(&lane->dead);
		return false;
	}
	give_back_dead(lane);
	sl__lock(&s->load_mu);
	s->load.doubt = s->load.doubt || (lost && s->load.id[0] != '\0');
	bool renewed = rc == SL_ELOCKED && lane->load_id[0] != '\0' && strcmp(lane->load_id, s->load.id) != 0;
	sl__unlock(&s->load_mu);
	return renewed && !lost;
}

int sl__pg_load_dead(void *ctx, const struct sl_input_range *range)
{
	struct sl__pg_sink *s = ctx;
	sl__lock(&s->mu);
	int rc = sl__load_dead(&s->load, range);
	sl__unlock(&s->mu);
	return rc;
}

/* ---- begin and end ---- */

struct target {
	char oid[16];
	bool has_tables, may_create, can_look;
};

static int find_target(struct sl__pg_lane *lane, struct target *t, struct sl_err *err)
{
	struct sl__pg_sink *s = lane->sink;
	PGresult *res;
	int rc = query(lane,
		       "SELECT c.oid, quote_ident(n.nspname), has_schema_privilege(n.oid, 'CREATE'),"
		       " has_table_privilege(c.oid, 'SELECT') AND NOT row_security_active(c.oid),"
		       " to_regclass(quote_ident(n.nspname) || '.sluice_load_ranges') IS NOT NULL"
		       " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)",
		       1, (const char *const[]){s->table}, &res, err);
	if (rc != 0)
		return rc;
	if (PQntuples(res) != 1) {
		PQclear(res);
		(void)sl_err_set(err, SL_ECONFIG, "postgres: no table %s", s->opts.table);
		return sl__sink_class(err, SL_ECONFIG, SL_CLASS_FATAL);
	}
	(void)snprintf(t->oid, sizeof(t->oid), "%s", PQgetvalue(res, 0, 0));
	t->may_create = PQgetvalue(res, 0, 2)[0] == 't';
	t->can_look = PQgetvalue(res, 0, 3)[0] == 't';
	t->has_tables = PQgetvalue(res, 0, 4)[0] == 't';
	sl__free(&s->env, s->load_schema);
	s->load_schema = sl__strdup(&s->env, PQgetvalue(res, 0, 1));
	PQclear(res);
	return s->load_schema != NULL ? 0 : sl_err_set(err, SL_ENOMEM, "postgres: out of memory");
}

static int make_tables(struct sl__pg_lane *lane, const struct target *t, struct sl_err *err)
{
	static const char *const steps[] = {
		"SELECT pg_advisory_xact_lock(7957122)", /* as those that make the target */
		"CREATE TABLE IF NOT EXISTS %s.sluice_loads (id text PRIMARY KEY, target regclass NOT NULL,"
		" input text NOT NULL, started_ms bigint NOT NULL, finished boolean NOT NULL DEFAULT false,"
		" UNIQUE (target, input))",
		"CREATE TABLE IF NOT EXISTS %s.sluice_load_ranges (load text NOT NULL CONSTRAINT " SL__PG_LOAD_FENCE
		" REFERENCES %s.sluice_loads ON UPDATE CASCADE ON DELETE CASCADE, first bigint NOT NULL,"
		" last bigint NOT NULL, parts bytea, rows bigint NOT NULL, hash bigint NOT NULL)",
		"CREATE INDEX IF NOT EXISTS sluice_load_ranges_load_idx ON %s.sluice_load_ranges (load)",
	};
	int rc = 0;
	if (t->has_tables)
		return 0;
	if (!t->may_create) {
		(void)sl_err_set(err, SL_EACCES,
				 "postgres: no right to create the tables with the records of loads in schema %s",
				 lane->sink->load_schema);
		return sl__sink_class(err, SL_EACCES, SL_CLASS_FATAL);
	}
	for (size_t i = 0; i < SL_COUNT(steps) && rc == 0; i++)
		rc = query_in_schema(lane, steps[i], 0, NULL, NULL, err);
	return rc;
}

static int is_empty(struct sl__pg_lane *lane, const struct target *t, bool *empty, struct sl_err *err)
{
	struct sl__buf sql;
	PGresult *res = NULL;
	*empty = false;
	if (!t->can_look)
		return 0;
	sl__buf_init(&sql, &lane->sink->env);
	(void)sl__buf_printf(&sql, "SELECT 1 FROM %s LIMIT 1", lane->sink->table);
	int rc = sql.failed != 0 ? sl_err_set(err, SL_ENOMEM, "postgres: out of memory")
				 : query(lane, sl__buf_str(&sql), 0, NULL, &res, err);
	*empty = rc == 0 && PQntuples(res) == 0;
	PQclear(res);
	sl__buf_fini(&sql);
	return rc;
}

/* Records of tables that are gone, and of this one when it is empty although rows were written to it, count for
 * nothing. */
static int forget_old(struct sl__pg_lane *lane, const struct target *t, struct sl_err *err)
{
	const char *const oid[] = {t->oid};
	bool empty;
	int rc = is_empty(lane, t, &empty, err);
	if (rc == 0 && empty) { /* loads that run now may be about to commit */
		rc = query_in_schema(lane,
				     "SELECT id FROM %s.sluice_loads WHERE target = $1::oid ORDER BY id FOR UPDATE", 1,
				     oid, NULL, err);
		rc = rc != 0 ? rc : is_empty(lane, t, &empty, err);
	}
	if (rc == 0 && empty)
		rc = query_in_schema(lane,
				     "DELETE FROM %s.sluice_loads l WHERE target = $1::oid AND"
				     " (SELECT sum(rows) FROM %s.sluice_load_ranges r WHERE r.load = l.id) > 0",
				     1, oid, NULL, err);
	return rc != 0 ? rc
		       : query_in_schema(
				 lane,
				 "DELETE FROM %s.sluice_loads WHERE id IN (SELECT id FROM %s.sluice_loads l WHERE NOT"
				 " EXISTS (SELECT 1 FROM pg_class c WHERE c.oid = l.target) FOR UPDATE SKIP LOCKED)",
				 0, NULL, NULL, err);
}

/* L2. */
static int take_over(struct sl__pg_lane *lane, const struct target *t, const char *input, bool again,
		     struct sl_err *err)
{
	struct sl__load *l = &lane->sink->load;
	char started[24];
	PGresult *res = NULL;
	size_t n;
	int rc = 0;
	if (again)
		rc = query_in_schema(lane, "DELETE FROM %s.sluice_loads WHERE target = $1::oid AND input = $2", 2,
				     (const char *const[]){t->oid, input}, NULL, err);
	sl__load_new_id(&lane->sink->env, l->id);
	(void)snprintf(started, sizeof(started), "%" PRId64, sl__real_ms(&lane->sink->env));
	rc = rc != 0 ? rc
		     : query_in_schema(lane,
				       "INSERT INTO %s.sluice_loads (id, target, input, started_ms) VALUES ($1, "
				       "$2::oid, $3, $4)"
				       " ON CONFLICT (target, input) DO UPDATE SET id = EXCLUDED.id RETURNING "
				       "started_ms, finished",
				       4, (const char *const[]){l->id, t->oid, input, started}, &res, err);
	if (rc != 0)
		return rc;
	l->started_ms = (int64_t)number(res, 0, 0);
	l->finished = PQgetvalue(res, 0, 1)[0] == 't';
	PQclear(res);
	rc = read_ranges(lane, l->id, &l->done, &n, err);
	return rc != 0 ? rc : compact(lane, l->id, &l->done, n, err);
}

int sl__pg_load_begin(void *ctx, const char *input, int again, struct sl_sink_loaded *out, struct sl_err *err)
{
	struct sl__pg_sink *s = ctx;
	struct target t;
	void *lane;
	sl__load_fini(&s->load);
	int rc = sl__pg_attach(ctx, &lane, err);
	if (rc != 0)
		return rc;
	rc = sl__pg_make_ready(lane, err);
	rc = rc != 0 ? rc : find_target(lane, &t, err);
	rc = rc != 0 ? rc : sl__pg_simple(lane, "BEGIN", "BEGIN", err);
	rc = rc != 0 ? rc : make_tables(lane, &t, err);
	rc = rc != 0 ? rc : forget_old(lane, &t, err);
	rc = rc != 0 ? rc : take_over(lane, &t, input, again != 0, err);
	rc = rc != 0 ? rc : sl__pg_simple(lane, "COMMIT", "COMMIT", err);
	sl__pg_detach(ctx, lane);
	if (rc != 0)
		sl__load_fini(&s->load);
	else
		sl__load_show(&s->load, out);
	return rc;
}

static int end_in_transaction(struct sl__pg_lane *lane, bool finished, struct sl_err *err)
{
	struct sl__load *l = &lane->sink->load;
	struct sl__ranges *w = &lane->written;
	const char *const id[] = {l->id};
	PGresult *res = NULL;
	size_t n;
	/* No other run may take it over in between. */
	int rc = query_in_schema(lane, "SELECT 1 FROM %s.sluice_loads WHERE id = $1 FOR UPDATE", 1, id, &res, err);
	if (rc == 0 && PQntuples(res) == 0)
		rc = sl__load_taken_over(err);
	PQclear(res);
	if (rc != 0)
		return rc;
	take_dead(lane);
	rc = read_ranges(lane, l->id, &l->late, &n, err);
	sl__ranges_clear(w);
	for (size_t i = 0; i < lane->dead.n && rc == 0; i++)
		if (!sl__ranges_has(&l->late, lane->dead.at[i].begin))
			rc = sl__ranges_add(w, &lane->dead.at[i]) == 0
				     ? 0
				     : sl_err_set(err, SL_ENOMEM, "postgres: out of memory");
	if (rc == 0 && w->n > 0) {
		rc = sl__ranges_add_all(&l->late, w) == 0 ? 0 : sl_err_set(err, SL_ENOMEM, "postgres: out of memory");
		sl__ranges_sort(&l->late);
		n += 2; /* so that it is written */
	}
	rc = rc != 0 ? rc : compact(lane, l->id, &l->late, n, err);
	return rc != 0 || !finished ? rc
				    : query_in_schema(lane, "UPDATE %s.sluice_loads SET finished = true WHERE id = $1",
						      1, id, NULL, err);
}

int sl__pg_load_end(void *ctx, int finished, struct sl_err *err)
{
	struct sl__pg_sink *s = ctx;
	struct sl__pg_lane *lane;
	void *attached;
	if (s->load.id[0] == '\0')
		return 0;
	int rc = sl__pg_attach(ctx, &attached, err);
	if (rc != 0)
		return rc;
	lane = attached;
	rc = sl__pg_make_ready(lane, err);
	sl__lock(&lane->sink->load_mu);
	rc = rc == 0 && s->load.doubt ? renew(lane, err) : rc;
	sl__unlock(&lane->sink->load_mu);
	rc = rc != 0 ? rc : sl__pg_simple(lane, "BEGIN", "BEGIN", err);
	rc = rc != 0 ? rc : end_in_transaction(lane, finished != 0, err);
	rc = rc != 0 ? rc : sl__pg_simple(lane, "COMMIT", "COMMIT", err);
	sl__pg_detach(ctx, lane);
	sl__load_fini(&s->load);
	return rc;
}
