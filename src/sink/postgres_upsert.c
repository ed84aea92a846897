/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Upserts: a column of a run becomes an array, and one statement takes the arrays apart again on the server:
 *
 *   INSERT INTO t (a, b) SELECT * FROM unnest($1::bigint[], $2::text[]) ON CONFLICT (a) DO UPDATE SET b = EXCLUDED.b
 *
 * With immutable_rows a row that is there keeps its values, and one that differs ends the statement, by a cast that
 * cannot succeed and says why:
 *
 *   … DO UPDATE SET a = CASE WHEN t.b::text IS NOT DISTINCT FROM EXCLUDED.b::text THEN t.a
 *                       ELSE CASE WHEN ('another row …' || …)::int4 = 0 THEN t.a END END
 *
 * (Against COPY into a temporary table and a merge from there this spares writing every row twice.) Runs go through one
 * pipeline followed by one Sync: without a BEGIN they are one transaction.
 */
#include <stdlib.h>

#include "sink/postgres.h"

#define STATEMENT "sluice_upsert"

static void put32(struct sl__buf *out, uint32_t v)
{
	char b[4] = {(char)(v >> 24), (char)(v >> 16), (char)(v >> 8), (char)v};
	(void)sl__buf_append(out, b, 4);
}

static void put_names(struct sl__buf *sql, const struct sl__pg_lane *lane, const uint8_t *have)
{
	const char *between = "";
	for (size_t i = 0; i < lane->table.n; i++) {
		if (!have[i])
			continue;
		(void)sl__buf_str_append(sql, between);
		sl__pg_put_name(sql, lane->table.names[i]);
		between = ", ";
	}
}

/* SELECT * FROM unnest($1::int8[], …), or for text SELECT u.c1::int8, … FROM unnest($1::text[], …) AS u(c1, …) */
static void put_select(struct sl__buf *sql, const struct sl__pg_lane *lane, const uint8_t *have)
{
	bool text = lane->rows.text;
	unsigned k = 0;
	(void)sl__buf_str_append(sql, text ? " SELECT " : " SELECT * ");
	for (size_t i = 0; i < lane->table.n && text; i++)
		if (have[i]) {
			k++;
			(void)sl__buf_printf(sql, "%su.c%u::%s", k > 1 ? ", " : "", k, lane->table.columns[i].type);
		}
	(void)sl__buf_str_append(sql, " FROM unnest(");
	k = 0;
	for (size_t i = 0; i < lane->table.n; i++)
		if (have[i]) {
			k++;
			(void)sl__buf_printf(sql, "%s$%u", k > 1 ? ", " : "", k);
		}
	(void)sl__buf_str_append(sql, text ? ") AS u(" : ")");
	for (unsigned c = 1; c <= k && text; c++)
		(void)sl__buf_printf(sql, "%sc%u", c > 1 ? ", " : "", c);
	if (text)
		(void)sl__buf_str_append(sql, ")");
}

/* DO UPDATE that changes nothing, and fails where there is something to change. The table is called `have`. */
static void put_unchanged(struct sl__buf *sql, const struct sl__pg_lane *lane, const uint8_t *have)
{
	const char *key = lane->sink->opts.on_conflict[0], *before = " = CASE WHEN ";
	for (size_t i = 0; i < lane->table.n; i++) {
		if (!have[i] || lane->table.columns[i].is_key)
			continue;
		if (before[0] == ' ' && before[1] == '=') {
			(void)sl__buf_str_append(sql, " DO UPDATE SET ");
			sl__pg_put_name(sql, key);
		}
		(void)sl__buf_str_append(sql, before);
		(void)sl__buf_str_append(sql, "have.");
		sl__pg_put_name(sql, lane->table.names[i]);
		(void)sl__buf_str_append(sql, "::text IS NOT DISTINCT FROM EXCLUDED.");
		sl__pg_put_name(sql, lane->table.names[i]);
		(void)sl__buf_str_append(sql, "::text");
		before = " AND ";
	}
	if (before[1] == '=') { /* nothing but the key */
		(void)sl__buf_str_append(sql, " DO NOTHING");
		return;
	}
	(void)sl__buf_str_append(sql, " THEN have.");
	sl__pg_put_name(sql, key);
	(void)sl__buf_str_append(sql, " ELSE CASE WHEN ('" SL__PG_OTHER_ROW "' || EXCLUDED.");
	sl__pg_put_name(sql, key);
	(void)sl__buf_str_append(sql, "::text)::int4 = 0 THEN have.");
	sl__pg_put_name(sql, key);
	(void)sl__buf_str_append(sql, " END END");
}

static void put_conflict(struct sl__buf *sql, const struct sl__pg_lane *lane, const uint8_t *have)
{
	const struct sl_sink_opts *o = &lane->sink->opts;
	const char *before = " DO UPDATE SET ";
	(void)sl__buf_str_append(sql, " ON CONFLICT (");
	for (size_t i = 0; i < o->n_on_conflict; i++) {
		(void)sl__buf_str_append(sql, i > 0 ? ", " : "");
		sl__pg_put_name(sql, o->on_conflict[i]);
	}
	(void)sl__buf_str_append(sql, ")");
	if (o->immutable_rows == SL_ON) {
		put_unchanged(sql, lane, have);
		return;
	}
	for (size_t i = 0; i < lane->table.n; i++) {
		if (!have[i] || lane->table.columns[i].is_key)
			continue;
		(void)sl__buf_str_append(sql, before);
		sl__pg_put_name(sql, lane->table.names[i]);
		(void)sl__buf_str_append(sql, " = EXCLUDED.");
		sl__pg_put_name(sql, lane->table.names[i]);
		before = ", ";
	}
	if (before[0] == ' ') /* nothing but the key */
		(void)sl__buf_str_append(sql, " DO NOTHING");
}

int sl__pg_try(struct sl__pg_lane *lane, struct sl_err *err)
{
	const struct sl_sink_opts *o = &lane->sink->opts;
	struct sl__buf *sql = &lane->out;
	uint8_t *all = sl__alloc(&lane->sink->env, lane->table.n);
	if (all == NULL)
		return sl__no_memory(err, "postgres");
	memset(all, 1, lane->table.n);
	sl__buf_clear(sql);
	(void)sl__buf_printf(sql, "EXPLAIN INSERT INTO %s AS have (", lane->sink->table);
	put_names(sql, lane, all);
	(void)sl__buf_str_append(sql, ") VALUES (");
	for (size_t i = 0; i < lane->table.n; i++)
		(void)sl__buf_str_append(sql, i > 0 ? ", NULL" : "NULL");
	(void)sl__buf_str_append(sql, ")");
	if (o->n_on_conflict > 0)
		put_conflict(sql, lane, all);
	sl__free(&lane->sink->env, all);
	if (sl__buf_append(sql, "", 1) != 0)
		return sl__no_memory(err, "postgres");
	int rc = sl__pg_simple(lane, sql->data, o->table, err);
	if (rc == SL_EINTERNAL) { /* what the statement asks for is not there: a unique key */
		rc = SL_ECONFIG;
		if (err != NULL)
			err->code = rc;
	}
	return rc;
}

/* ---- arrays ---- */

/* What a statement is called with, and the buffers for it. */
struct upsert {
	const char **values; /* the allocation of all of these arrays */
	int *lengths, *formats;
	Oid *types;
	size_t *at;     /* of each array in lane->out */
	size_t *cursor; /* of each row of the run: its next value */
	struct sl__buf sql;
	const char *name; /* of the prepared statement */
	int n;
};

#define TEXT_OID 25
#define TEXT_ARRAY_OID 1009

/* One-dimensional, with NULLs where a value has none: dimensions, flag, element type, length, lower bound, elements. */
static void put_array(struct sl__buf *out, const struct sl__pg_lane *lane, const struct sl__pg_run *run, size_t *cursor,
		      uint32_t element)
{
	const struct sl__pg_rows *r = &lane->rows;
	size_t flag = out->len + 4;
	bool nulls = false;
	put32(out, 1);
	put32(out, 0);
	put32(out, element);
	put32(out, (uint32_t)run->n);
	put32(out, 1);
	for (size_t i = 0; i < run->n; i++) {
		const char *value = r->buf.data + cursor[i];
		uint32_t len = sl__pg_length(value);
		size_t n = len == UINT32_MAX ? 4 : (size_t)len + 4;
		nulls = nulls || len == UINT32_MAX;
		(void)sl__buf_append(out, value, n);
		cursor[i] += n;
	}
	if (nulls && out->failed == 0)
		out->data[flag + 3] = 1;
}

/* ---- the pipeline ---- */

/* Prepare the statement for these columns, in the pipeline, unless that is done. */
static bool prepare_upsert(struct sl__pg_lane *lane, struct upsert *u, const uint8_t *have)
{
	if (lane->prepared.len == lane->table.n && lane->prepared_text == lane->rows.text &&
	    memcmp(lane->prepared.data, have, lane->table.n) == 0)
		return true;
	/* Whatever an earlier failure has left. */
	if (!lane->pooled && PQsendQueryParams(lane->pg, "DEALLOCATE ALL", 0, NULL, NULL, NULL, NULL, 0) == 0)
		return false;
	sl__buf_clear(&u->sql);
	(void)sl__buf_printf(&u->sql, "INSERT INTO %s AS have (", lane->sink->table);
	put_names(&u->sql, lane, have);
	(void)sl__buf_str_append(&u->sql, ")");
	put_select(&u->sql, lane, have);
	put_conflict(&u->sql, lane, have);
	sl__buf_clear(&lane->prepared);
	if (u->sql.failed != 0 || sl__buf_append(&lane->prepared, have, lane->table.n) != 0)
		return false;
	lane->prepared_text = lane->rows.text;
	return PQsendPrepare(lane->pg, u->name, sl__buf_str(&u->sql), u->n, u->types) != 0;
}

static int send_run(struct sl__pg_lane *lane, const struct sl__pg_run *run, struct upsert *u, struct sl_err *err)
{
	const struct sl__pg_table *t = &lane->table;
	struct sl__buf *out = &lane->out;
	/* Each column becomes an array. */
	for (size_t i = 0; i < run->n; i++)
		u->cursor[i] = lane->rows.at[run->first + i];
	sl__buf_clear(out);
	u->n = 0;
	for (size_t i = 0; i < t->n; i++) {
		if (!run->have[i])
			continue;
		u->at[u->n] = out->len;
		put_array(out, lane, run, u->cursor, lane->rows.text ? TEXT_OID : t->columns[i].oid);
		u->lengths[u->n] = (int)(out->len - u->at[u->n]);
		u->formats[u->n] = 1;
		u->types[u->n] = lane->rows.text ? TEXT_ARRAY_OID : t->columns[i].array;
		u->n++;
	}
	if (out->failed != 0)
		return sl__no_memory(err, "postgres");
	for (int k = 0; k < u->n; k++)
		u->values[k] = out->data != NULL ? out->data + u->at[k] : NULL;
	if (out->len > INT32_MAX / 2) {
		(void)sl_err_set(err, SL_ETOOBIG, "postgres: the batch is above 1 GiB; use smaller batches");
		return sl__sink_class(err, SL_ETOOBIG, SL_CLASS_POISON);
	}
	if (!prepare_upsert(lane, u, run->have) ||
	    PQsendQueryPrepared(lane->pg, u->name, u->n, u->values, u->lengths, u->formats, 0) == 0)
		return sl__pg_sink_error(err, lane->pg, NULL, "upsert");
	return sl__pg_push(lane, err);
}

/* Read until the Sync's own result. */
static int read_pipeline(struct sl__pg_lane *lane, struct sl_err *err)
{
	int rc = 0, wait_rc = 0;
	for (;;) {
		PGresult *res = sl__pg_next(lane, &wait_rc, err);
		if (wait_rc != 0)
			return wait_rc;
		if (res == NULL) {
			if (PQstatus(lane->pg) == CONNECTION_OK)
				continue; /* the end of one command */
			if (rc != 0)
				return rc;
			return sl__pg_sink_error(err, lane->pg, NULL, "upsert");
		}
		ExecStatusType status = PQresultStatus(res);
		if (rc == 0 && status == PGRES_FATAL_ERROR)
			rc = sl__pg_sink_error(err, lane->pg, res, "upsert");
		PQclear(res);
		if (status == PGRES_PIPELINE_SYNC)
			return rc;
	}
}

/* Everything up to the Sync. */
static int send_pipeline(struct sl__pg_lane *lane, struct upsert *u, struct sl_err *err)
{
	const struct sl__pg_rows *r = &lane->rows;
	if (lane->pooled) { /* each transaction may be in another session */
		sl__buf_clear(&lane->prepared);
		if (PQsendQueryParams(lane->pg, SL__PG_SET_LOCAL, 0, NULL, NULL, NULL, NULL, 0) == 0)
			return sl__pg_sink_error(err, lane->pg, NULL, "upsert");
	}
	for (size_t i = 0; i < r->n_runs; i++) {
		int rc = send_run(lane, &r->runs[i], u, err);
		if (rc != 0)
			return rc;
	}
	if (lane->record.len > 0 && PQsendQueryParams(lane->pg, lane->record.data, 0, NULL, NULL, NULL, NULL, 0) == 0)
		return sl__pg_sink_error(err, lane->pg, NULL, "upsert");
	return PQpipelineSync(lane->pg) == 0 ? sl__pg_sink_error(err, lane->pg, NULL, "upsert") : 0;
}

int sl__pg_upsert(struct sl__pg_lane *lane, struct sl_err *err)
{
	const struct sl_env *env = &lane->sink->env;
	size_t n = lane->table.n, rows = lane->rows.n;
	/* Nothing is kept in a session that others have next: the statement without a name lives as long as the
	 * pipeline. */
	struct upsert u = {.name = lane->pooled ? "" : STATEMENT};
	char *all = sl__alloc(env, rows * sizeof(size_t) +
					   n * (sizeof(char *) + sizeof(size_t) + 2 * sizeof(int) + sizeof(Oid)));
	if (all == NULL)
		return sl__no_memory(err, "postgres");
	u.values = (const char **)(void *)all;
	u.at = (size_t *)(void *)(all + n * sizeof(char *));
	u.cursor = u.at + n;
	u.lengths = (int *)(void *)(u.cursor + rows);
	u.formats = u.lengths + n;
	u.types = (Oid *)(void *)(u.formats + n);
	sl__buf_init(&u.sql, env);
	int rc = PQenterPipelineMode(lane->pg) == 0 ? sl__pg_sink_error(err, lane->pg, NULL, "upsert") : 0;
	if (rc == 0) {
		rc = send_pipeline(lane, &u, err);
		bool half = rc != 0; /* what was sent must not be committed: the caller closes the connection */
		if (rc == 0)
			rc = read_pipeline(lane, err);
		if (rc != 0)
			sl__buf_clear(&lane->prepared);
		if (half || PQexitPipelineMode(lane->pg) == 0)
			lane->broken = true;
	}
	sl__buf_fini(&u.sql);
	sl__free(env, all);
	return rc;
}
