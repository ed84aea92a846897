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

/* Run a statement with text parameters (NULL: none; else ended by NULL). In sql, %s stands for the schema of the records
 * and %t for the target table. *out (may be NULL): its rows, for PQclear. */
static int load_query(struct sl__pg_lane *lane, const char *sql, const char *const *values, PGresult **out,
		      struct sl_err *err)
{
	int rc = 0, wait_rc = 0, n = 0;
	PGresult *res;
	struct sl__buf text;
	if (out != NULL)
		*out = NULL;
	while (values != NULL && values[n] != NULL)
		n++;
	sl__buf_init(&text, &lane->sink->env);
	for (const char *p = sql; *p != '\0'; p++) {
		bool name = p[0] == '%' && (p[1] == 's' || p[1] == 't');
		if (!name)
			(void)sl__buf_append(&text, p, 1);
		else
			(void)sl__buf_str_append(&text, *++p == 's' ? lane->sink->load_schema : lane->sink->table);
	}
	if (text.failed != 0)
		rc = sl__no_memory(err, "postgres");
	else if (PQsendQueryParams(lane->pg, sl__buf_str(&text), n, NULL, values, NULL, NULL, 0) == 0)
		rc = sl__pg_sink_error(err, lane->pg, NULL, "records of loads");
	sl__buf_fini(&text);
	if (rc != 0)
		return rc;
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

/* ---- records ---- */

static uint64_t u64_at(const PGresult *res, int row, int column)
{
	return (uint64_t)strtoll(PQgetvalue(res, row, column), NULL, 10);
}

/* What the run has written, in out. *n_rows: of the table. */
static int read_ranges(struct sl__pg_lane *lane, const char *id, struct sl__ranges *out, size_t *n_rows,
		       struct sl_err *err)
{
	PGresult *res;
	sl__ranges_clear(out);
	int rc = load_query(
		lane, "SELECT first, last, parts, rows, hash FROM %s.sluice_load_ranges WHERE load = $1 ORDER BY first",
		(const char *const[]){id, NULL}, &res, err);
	if (rc != 0)
		return rc;
	*n_rows = (size_t)PQntuples(res);
	for (int i = 0; i < PQntuples(res) && rc == 0; i++) {
		size_t n = 0;
		unsigned char *parts = NULL;
		if (!PQgetisnull(res, i, 2)) {
			parts = PQunescapeBytea((const unsigned char *)PQgetvalue(res, i, 2), &n);
			rc = parts == NULL ? sl__no_memory(err, "postgres") : 0;
		}
		if (rc == 0)
			rc = sl__ranges_get_row(
				out, (struct sl_input_range){.begin = u64_at(res, i, 0), .end = u64_at(res, i, 1)},
				parts, n, err);
		out->rows += u64_at(res, i, 3);
		out->hash += u64_at(res, i, 4);
		PQfreemem(parts);
	}
	PQclear(res);
	sl__ranges_sort(out);
	return rc;
}

/* ('id', first, last, parts, rows, hash) */
static void put_range_row(struct sl__buf *sql, const struct sl_env *env, const char *id, struct sl__ranges *ranges)
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
static int compact_ranges(struct sl__pg_lane *lane, const char *id, struct sl__ranges *all, size_t n_rows,
			  struct sl_err *err)
{
	struct sl__buf sql;
	if (n_rows < 2)
		return 0;
	int rc = load_query(lane, "DELETE FROM %s.sluice_load_ranges WHERE load = $1", (const char *const[]){id, NULL},
			    NULL, err);
	if (rc != 0)
		return rc;
	sl__buf_init(&sql, &lane->sink->env);
	(void)sl__buf_str_append(&sql, INSERT_RANGES);
	put_range_row(&sql, &lane->sink->env, id, all);
	rc = sql.failed != 0 ? sl__no_memory(err, "postgres") : load_query(lane, sl__buf_str(&sql), NULL, NULL, err);
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

/* L3. On failure the caller closes the connection: it may be in a transaction. */
static int renew_load(struct sl__pg_lane *lane, struct sl_err *err) SL_REQUIRES(lane->sink->load_mu)
{
	struct sl__load *l = &lane->sink->load;
	PGresult *res = NULL;
	char id[SL__LOAD_ID_BYTES], before[SL__LOAD_ID_BYTES];
	size_t n;
	sl__load_new_id(&lane->sink->env, id);
	memcpy(before, l->tried[0] != '\0' ? l->tried : l->id, sizeof(before));
	memcpy(l->tried, id, sizeof(id));
	int rc = sl__pg_simple(lane, "BEGIN", "BEGIN", err);
	if (rc != 0)
		return rc;
	rc = load_query(lane, "UPDATE %s.sluice_loads SET id = $1 WHERE id IN ($2, $3) RETURNING id",
			(const char *const[]){id, l->id, before, NULL}, &res, err);
	if (rc != 0)
		return rc;
	bool found = PQntuples(res) > 0;
	PQclear(res);
	if (!found)
		return sl__load_taken_over(err);
	rc = read_ranges(lane, id, &l->late, &n, err);
	if (rc == 0)
		rc = sl__pg_simple(lane, "COMMIT", "COMMIT", err);
	if (rc != 0)
		return rc;
	memcpy(l->id, id, sizeof(id));
	l->tried[0] = '\0';
	l->doubt = false;
	sl__lock(&lane->sink->mu);
	sl__load_drop_dead(l);
	sl__unlock(&lane->sink->mu);
	return 0;
}

/* Fill rows.skip: which items of the batch are written already. */
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
			return sl__no_memory(err, "postgres");
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
		rc = l->doubt ? renew_load(lane, err) : 0;
		memcpy(lane->load_id, l->id, sizeof(lane->load_id));
		if (rc == 0)
			rc = find_written(lane, batch, err);
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
			return sl__no_memory(err, "postgres");
		w->rows++;
	}
	if (w->n == 0)
		return 0;
	(void)sl__buf_printf(&lane->record, INSERT_RANGES, lane->sink->load_schema);
	put_range_row(&lane->record, &lane->sink->env, lane->load_id, w);
	take_dead(lane);
	sl__ranges_clear(w);
	for (size_t i = 0; i < lane->dead.n; i++)
		if (sl__ranges_add(w, &lane->dead.at[i]) != 0)
			return sl__no_memory(err, "postgres");
	if (w->n > 0) {
		(void)sl__buf_str_append(&lane->record, ", ");
		put_range_row(&lane->record, &lane->sink->env, lane->load_id, w);
	}
	return lane->record.failed != 0 ? sl__no_memory(err, "postgres") : 0;
}

bool sl__pg_load_leave(struct sl__pg_lane *lane, int rc, bool lost)
{
	struct sl__pg_sink *s = lane->sink;
	if (rc == 0) {
		sl__ranges_clear(&lane->dead);
		return false;
	}
	/* The dead letters that this transaction would have recorded wait for the next one. Without memory the next run
	 * finds them dead again. */
	int kept = 0;
	sl__lock(&s->mu);
	for (size_t i = 0; i < lane->dead.n && kept == 0; i++)
		kept = sl__load_dead(&s->load, &lane->dead.at[i]);
	sl__unlock(&s->mu);
	sl__ranges_clear(&lane->dead);
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

/* The table that is loaded into. */
struct target {
	char oid[16];
	bool readable; /* all of its rows can be seen */
};

/* Find the target, and create the tables of records in its schema when they are missing. In a transaction. */
static int prepare_load_tables(struct sl__pg_lane *lane, struct target *t, struct sl_err *err)
{
	static const char *const steps[] = {
		"SELECT pg_advisory_xact_lock(7957122)", /* the lock of sl_sink_create_table */
		"CREATE TABLE IF NOT EXISTS %s.sluice_loads (id text PRIMARY KEY, target regclass NOT NULL,"
		" input text NOT NULL, started_ms bigint NOT NULL, finished boolean NOT NULL DEFAULT false,"
		" UNIQUE (target, input))",
		"CREATE TABLE IF NOT EXISTS %s.sluice_load_ranges (load text NOT NULL CONSTRAINT " SL__PG_LOAD_FENCE
		" REFERENCES %s.sluice_loads ON UPDATE CASCADE ON DELETE CASCADE, first bigint NOT NULL,"
		" last bigint NOT NULL, parts bytea, rows bigint NOT NULL, hash bigint NOT NULL)",
		"CREATE INDEX IF NOT EXISTS sluice_load_ranges_load_idx ON %s.sluice_load_ranges (load)",
	};
	struct sl__pg_sink *s = lane->sink;
	PGresult *res;
	int rc = load_query(
		lane,
		"SELECT c.oid, quote_ident(n.nspname), has_schema_privilege(n.oid, 'CREATE'),"
		" has_table_privilege(c.oid, 'SELECT') AND NOT row_security_active(c.oid),"
		" to_regclass(quote_ident(n.nspname) || '.sluice_load_ranges') IS NOT NULL"
		" FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)",
		(const char *const[]){s->table, NULL}, &res, err);
	if (rc != 0)
		return rc;
	if (PQntuples(res) != 1) {
		PQclear(res);
		(void)sl_err_set(err, SL_ECONFIG, "postgres: no table %s", s->opts.table);
		return sl__sink_class(err, SL_ECONFIG, SL_CLASS_FATAL);
	}
	(void)snprintf(t->oid, sizeof(t->oid), "%s", PQgetvalue(res, 0, 0));
	bool may_create = PQgetvalue(res, 0, 2)[0] == 't', has_tables = PQgetvalue(res, 0, 4)[0] == 't';
	t->readable = PQgetvalue(res, 0, 3)[0] == 't';
	sl__free(&s->env, s->load_schema);
	s->load_schema = sl__strdup(&s->env, PQgetvalue(res, 0, 1));
	PQclear(res);
	if (s->load_schema == NULL)
		return sl__no_memory(err, "postgres");
	if (has_tables)
		return 0;
	if (!may_create) {
		(void)sl_err_set(err, SL_EACCES,
				 "postgres: no permission to create the tables with the records of loads in schema %s",
				 s->load_schema);
		return sl__sink_class(err, SL_EACCES, SL_CLASS_FATAL);
	}
	for (size_t i = 0; i < SL_COUNT(steps) && rc == 0; i++)
		rc = load_query(lane, steps[i], NULL, NULL, err);
	return rc;
}

/* A table whose rows cannot be seen counts as not empty. */
static int is_empty(struct sl__pg_lane *lane, const struct target *t, bool *empty, struct sl_err *err)
{
	PGresult *res = NULL;
	*empty = false;
	if (!t->readable)
		return 0;
	int rc = load_query(lane, "SELECT 1 FROM %t LIMIT 1", NULL, &res, err);
	*empty = rc == 0 && PQntuples(res) == 0;
	PQclear(res);
	return rc;
}

/* Delete the records of tables that no longer exist, and those of this one when it is empty although rows were written
 * to it. */
static int forget_old_loads(struct sl__pg_lane *lane, const struct target *t, struct sl_err *err)
{
	const char *const oid[] = {t->oid, NULL};
	bool empty;
	int rc = is_empty(lane, t, &empty, err);
	if (rc == 0 && empty) { /* loads that run now may be about to commit */
		rc = load_query(lane, "SELECT id FROM %s.sluice_loads WHERE target = $1::oid ORDER BY id FOR UPDATE",
				oid, NULL, err);
		if (rc == 0)
			rc = is_empty(lane, t, &empty, err);
	}
	if (rc == 0 && empty)
		rc = load_query(lane,
				"DELETE FROM %s.sluice_loads l WHERE target = $1::oid AND"
				" (SELECT sum(rows) FROM %s.sluice_load_ranges r WHERE r.load = l.id) > 0",
				oid, NULL, err);
	if (rc != 0)
		return rc;
	return load_query(lane,
			  "DELETE FROM %s.sluice_loads WHERE id IN (SELECT id FROM %s.sluice_loads l WHERE NOT"
			  " EXISTS (SELECT 1 FROM pg_class c WHERE c.oid = l.target) FOR UPDATE SKIP LOCKED)",
			  NULL, NULL, err);
}

/* L2, in one transaction. */
static int take_over_load(struct sl__pg_lane *lane, const char *input, bool again, struct sl_err *err)
{
	struct sl__load *l = &lane->sink->load;
	struct target t;
	char started[24];
	PGresult *res = NULL;
	size_t n;
	int rc = sl__pg_make_ready(lane, err);
	if (rc != 0)
		return rc;
	rc = sl__pg_simple(lane, "BEGIN", "BEGIN", err);
	if (rc != 0)
		return rc;
	rc = prepare_load_tables(lane, &t, err);
	if (rc != 0)
		return rc;
	rc = forget_old_loads(lane, &t, err);
	if (rc == 0 && again)
		rc = load_query(lane, "DELETE FROM %s.sluice_loads WHERE target = $1::oid AND input = $2",
				(const char *const[]){t.oid, input, NULL}, NULL, err);
	if (rc != 0)
		return rc;
	sl__load_new_id(&lane->sink->env, l->id);
	(void)snprintf(started, sizeof(started), "%" PRId64, sl__real_ms(&lane->sink->env));
	rc = load_query(lane,
			"INSERT INTO %s.sluice_loads (id, target, input, started_ms) VALUES ($1, $2::oid, $3, $4)"
			" ON CONFLICT (target, input) DO UPDATE SET id = EXCLUDED.id RETURNING started_ms, finished",
			(const char *const[]){l->id, t.oid, input, started, NULL}, &res, err);
	if (rc != 0)
		return rc;
	l->started_ms = (int64_t)u64_at(res, 0, 0);
	l->finished = PQgetvalue(res, 0, 1)[0] == 't';
	PQclear(res);
	rc = read_ranges(lane, l->id, &l->done, &n, err);
	if (rc == 0)
		rc = compact_ranges(lane, l->id, &l->done, n, err);
	if (rc != 0)
		return rc;
	return sl__pg_simple(lane, "COMMIT", "COMMIT", err);
}

int sl__pg_load_begin(void *ctx, const char *input, bool again, struct sl_sink_loaded *out, struct sl_err *err)
{
	struct sl__pg_sink *s = ctx;
	void *lane;
	sl__load_fini(&s->load);
	int rc = sl__pg_attach(ctx, &lane, err);
	if (rc != 0)
		return rc;
	rc = take_over_load(lane, input, again, err);
	sl__pg_detach(ctx, lane);
	if (rc != 0)
		sl__load_fini(&s->load);
	else
		sl__load_show(&s->load, out);
	return rc;
}

static int end_load(struct sl__pg_lane *lane, bool finished, struct sl_err *err)
{
	struct sl__load *l = &lane->sink->load;
	struct sl__ranges *w = &lane->written;
	const char *const id[] = {l->id, NULL};
	PGresult *res = NULL;
	size_t n;
	int rc = sl__pg_make_ready(lane, err);
	if (rc != 0)
		return rc;
	sl__lock(&lane->sink->load_mu);
	rc = l->doubt ? renew_load(lane, err) : 0;
	sl__unlock(&lane->sink->load_mu);
	if (rc == 0)
		rc = sl__pg_simple(lane, "BEGIN", "BEGIN", err);
	/* No other run may take it over in between. */
	if (rc == 0)
		rc = load_query(lane, "SELECT 1 FROM %s.sluice_loads WHERE id = $1 FOR UPDATE", id, &res, err);
	if (rc != 0)
		return rc;
	bool ours = PQntuples(res) > 0;
	PQclear(res);
	if (!ours)
		return sl__load_taken_over(err);
	take_dead(lane);
	rc = read_ranges(lane, l->id, &l->late, &n, err);
	if (rc != 0)
		return rc;
	sl__ranges_clear(w);
	for (size_t i = 0; i < lane->dead.n; i++)
		if (!sl__ranges_has(&l->late, lane->dead.at[i].begin) && sl__ranges_add(w, &lane->dead.at[i]) != 0)
			return sl__no_memory(err, "postgres");
	if (w->n > 0) {
		if (sl__ranges_add_all(&l->late, w) != 0)
			return sl__no_memory(err, "postgres");
		sl__ranges_sort(&l->late);
		n += 2; /* so that it is written */
	}
	rc = compact_ranges(lane, l->id, &l->late, n, err);
	if (rc == 0 && finished)
		rc = load_query(lane, "UPDATE %s.sluice_loads SET finished = true WHERE id = $1", id, NULL, err);
	if (rc != 0)
		return rc;
	return sl__pg_simple(lane, "COMMIT", "COMMIT", err);
}

int sl__pg_load_end(void *ctx, bool finished, struct sl_err *err)
{
	struct sl__pg_sink *s = ctx;
	void *lane;
	if (s->load.id[0] == '\0')
		return 0;
	int rc = sl__pg_attach(ctx, &lane, err);
	if (rc != 0)
		return rc;
	rc = end_load(lane, finished, err);
	sl__pg_detach(ctx, lane);
	sl__load_fini(&s->load);
	return rc;
}
