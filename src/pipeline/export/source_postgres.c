/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of PostgreSQL, by COPY … TO STDOUT (FORMAT csv) of a SELECT that is ordered by the sequence, CHUNK_ROWS at a
 * time (source_db.h says why). Each line has the sequence once more in front, which is taken off here: so the place is
 * known without reading CSV.
 *
 * The session is read-only, in UTC, with ISO times and floats of all digits, so that the text does not depend on the
 * settings of the server. Types come from the result: its OIDs and modifiers. What Parquet has no type for is text;
 * arrays and composites are JSON.
 *
 * A lost connection is made again after the last row that was given.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "db/postgres.h"
#include "pipeline/export/source_db.h"

enum { CHUNK_ROWS = 100000, CONNECT_MS = 10000 };

static const char session[] = "SET default_transaction_read_only = on; SET TimeZone = 'UTC';"
			      "SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'iso_8601';"
			      "SET extra_float_digits = 1; SET bytea_output = 'hex'";

struct pg_source {
	struct sl__export_db db;
	PGconn *pg;   /* NULL: to be connected by the next begin */
	char *fields; /* the list after SELECT, as text that CSV needs */
	bool not_null;
	bool looked; /* for rows without a number */
	bool copying;
	uint64_t chunk_rows; /* so far in this chunk */
	Oid table;           /* of which rows are inserted; 0: a query or a view, any table may be it */
	bool records_gaps;
	const char *present; /* which rows are asked for, */
	bool any_present;    /* whether there is one, */
	uint64_t found;      /* and its number */
	bool settling;       /* the rows are read again after open transactions have ended */
	uint64_t unsettled;  /* the row that was visible before they had */
};

/* ---- errors and waiting ---- */

/* A query that is wrong is the caller's. */
static int pg_query_failed(struct pg_source *s, const PGresult *res, const char *what, struct sl_err *err)
{
	struct sl_err local = SL_ERR_INIT;
	struct sl_err *e = err != NULL ? err : &local;
	int code = sl__pg_error(e, s->pg, res, what);
	if (code == SL_EINTERNAL && (strncmp(e->sqlstate, "42", 2) == 0 || strncmp(e->sqlstate, "25", 2) == 0))
		code = e->code = SL_EINVAL;
	if (PQstatus(s->pg) != CONNECTION_OK) {
		PQfinish(s->pg);
		s->pg = NULL;
		s->copying = false;
		if (!sl_err_retryable(e))
			e->error_class = SL_CLASS_TRANSIENT; /* with another connection */
	}
	return code;
}

/* Until the server has sent something, or wake was called. */
static int wait_input(struct pg_source *s, struct sl_err *err)
{
	struct pollfd fds[2] = {{.fd = PQsocket(s->pg), .events = POLLIN}, {.fd = s->db.wake_fd, .events = POLLIN}};
	while (!atomic_load(&s->db.woken) && poll(fds, 2, -1) < 0)
		if (errno != EINTR)
			return sl_err_set_errno(err, errno, "postgres: poll");
	if (atomic_load(&s->db.woken))
		return sl__export_db_cancelled(err);
	return PQconsumeInput(s->pg) == 1 ? 0 : pg_query_failed(s, NULL, "copy", err);
}

/* The result of a statement that was sent, waiting so that wake is heard. NULL in *out: there is no further one. */
static int next_result(struct pg_source *s, PGresult **out, struct sl_err *err)
{
	*out = NULL;
	while (PQisBusy(s->pg)) {
		int rc = wait_input(s, err);
		if (rc != 0)
			return rc;
	}
	*out = PQgetResult(s->pg);
	return 0;
}

/* Read what is left of a statement that has failed. */
static void pg_drain(struct pg_source *s)
{
	for (PGresult *res; s->pg != NULL && (res = PQgetResult(s->pg)) != NULL;)
		PQclear(res);
}

/* End a COPY in the middle, so that the connection can be used again; where that fails it is closed. */
static void pg_abandon_copy(struct pg_source *s)
{
	char why[256], *row;
	int n;
	if (!s->copying)
		return;
	s->copying = false;
	PGcancel *cancel = PQgetCancel(s->pg);
	bool lost = cancel == NULL || PQcancel(cancel, why, sizeof(why)) == 0;
	PQfreeCancel(cancel);
	while (!lost && (n = PQgetCopyData(s->pg, &row, 0)) > 0)
		PQfreemem(row);
	if (!lost)
		pg_drain(s);
	if (lost || PQstatus(s->pg) != CONNECTION_OK) {
		PQfinish(s->pg);
		s->pg = NULL;
	}
}

static int connect_again(struct pg_source *s, struct sl_err *err)
{
	const struct sl__pg_opts opts = {.env = s->db.env,
					 .conninfo = s->db.opts->from,
					 .application = "sluice export",
					 .settings = session,
					 .connect_timeout_ms = CONNECT_MS,
					 .statement_timeout_ms = SL_UNLIMITED};
	struct sl__pg_conn conn = {.env = s->db.env};
	if (s->pg != NULL)
		return 0;
	int rc = sl__pg_open(&conn, &opts, err);
	if (rc != 0)
		return rc;
	if (conn.pooled) { /* its next client would get a read-only session, and we another one */
		PQfinish(conn.pg);
		return sl_err_set(err, SL_ECONFIG,
				  "postgres: the address is a connection pooler, but an export needs its own session; "
				  "connect to the server directly");
	}
	s->pg = conn.pg;
	return 0;
}

/* A statement with rows, run to its end. */
static int query(struct pg_source *s, const char *sql, const char *what, PGresult **out, struct sl_err *err)
{
	PGresult *res = NULL, *more = NULL;
	if (PQsendQuery(s->pg, sql) != 1)
		return pg_query_failed(s, NULL, what, err);
	int rc = next_result(s, &res, err);
	if (rc == 0 && PQresultStatus(res) != PGRES_TUPLES_OK)
		rc = pg_query_failed(s, res, what, err);
	while (rc == 0 && (rc = next_result(s, &more, err)) == 0 && more != NULL)
		PQclear(more);
	if (rc != 0) {
		PQclear(res);
		if (rc != SL_ECANCELLED)
			pg_drain(s);
		return rc;
	}
	*out = res;
	return 0;
}

/* ---- types ---- */

static const struct {
	Oid oid;
	enum sl_parquet_kind kind;
} kinds[] = {
	{16, SL_PARQUET_BOOL},      {17, SL_PARQUET_BINARY},      {20, SL_PARQUET_INT64},
	{21, SL_PARQUET_INT32},     {23, SL_PARQUET_INT32},       {25, SL_PARQUET_STRING},
	{26, SL_PARQUET_INT64},     {114, SL_PARQUET_STRING},     {700, SL_PARQUET_FLOAT},
	{701, SL_PARQUET_DOUBLE},   {1042, SL_PARQUET_STRING},    {1043, SL_PARQUET_STRING},
	{1082, SL_PARQUET_DATE},    {1114, SL_PARQUET_TIMESTAMP}, {1184, SL_PARQUET_TIMESTAMP},
	{1700, SL_PARQUET_DECIMAL}, {2950, SL_PARQUET_STRING},    {3802, SL_PARQUET_STRING},
};

/* Column i: its name and kind, and how the SELECT lists it. Arrays and composites are written as JSON, other types that
 * are not in the list as their text. */
static int add_field(struct pg_source *s, struct sl__buf *fields, size_t i, const PGresult *res, struct sl_err *err)
{
	Oid oid = PQftype(res, (int)i);
	bool nested = false;
	int rc = sl__export_db_name(&s->db, i, PQfname(res, (int)i), err);
	if (rc != 0)
		return rc;
	struct sl_parquet_column *c = &s->db.columns[i];
	size_t k = 0;
	while (k < SL_COUNT(kinds) && kinds[k].oid != oid)
		k++;
	c->nullable = true;
	c->kind = SL_PARQUET_STRING;
	if (k < SL_COUNT(kinds)) {
		int modifier = PQfmod(res, (int)i);
		c->kind = kinds[k].kind;
		c->unit = SL_PARQUET_MICROS;
		c->local = oid == 1114; /* a timestamp without time zone */
		if (c->kind == SL_PARQUET_DECIMAL) {
			c->precision = modifier >= 4 ? (modifier - 4) >> 16 & 0xffff : 0;
			c->scale = modifier >= 4 ? (((modifier - 4) & 0x7ff) ^ 1024) - 1024 : 0;
			/* Without a precision, or with one that 64 bits do not hold, it is text: no digit is lost. */
			if (c->precision < 1 || c->precision > 18 || c->scale < 0 || c->scale > c->precision) {
				c->kind = SL_PARQUET_STRING;
				c->precision = c->scale = 0;
			}
		}
	} else {
		char sql[160];
		PGresult *types;
		(void)snprintf(sql, sizeof(sql),
			       "SELECT typcategory IN ('A', 'C') FROM pg_catalog.pg_type WHERE oid = %u", oid);
		if ((rc = query(s, sql, "types", &types, err)) != 0)
			return rc;
		nested = PQntuples(types) == 1 && PQgetvalue(types, 0, 0)[0] == 't';
		PQclear(types);
	}
	(void)sl__buf_str_append(fields, nested ? ", pg_catalog.to_json(s." : ", s.");
	sl__export_db_put_name(fields, PQfname(res, (int)i));
	if (nested)
		(void)sl__buf_append(fields, ")", 1);
	return 0;
}

/* The table, the partitions below it, and the tables that it is a partition of: rows of it may be inserted into any. */
#define FAMILY                                                                                                         \
	"(WITH RECURSIVE below(oid) AS (SELECT %1$u::pg_catalog.oid UNION SELECT i.inhrelid FROM"                      \
	" pg_catalog.pg_inherits i JOIN below ON i.inhparent = below.oid), above(oid) AS (SELECT"                      \
	" %1$u::pg_catalog.oid UNION SELECT i.inhparent FROM pg_catalog.pg_inherits i JOIN above ON i.inhrelid ="      \
	" above.oid) SELECT oid FROM below UNION SELECT oid FROM above)"

/* Is what is missing for good recorded, unless the caller says so? Where open transactions cannot be seen, or numbers
 * are handed out in blocks that others use later, only a person can say. */
static int check_table(struct pg_source *s, const PGresult *described, bool *records, struct sl_err *err)
{
	PGresult *res = NULL;
	char sql[2000];
	Oid oid = PQftable(described, (int)s->db.sequence);
	*records = false;
	if (s->db.opts->table == NULL || oid == 0)
		return 0;
	(void)snprintf(
		sql, sizeof(sql),
		"WITH family AS " FAMILY
		" SELECT c.relkind IN ('r', 'p'), pg_catalog.pg_is_in_recovery() OR EXISTS (SELECT 1 FROM"
		" pg_catalog.pg_subscription_rel r WHERE r.srrelid IN (SELECT oid FROM family))"
		" OR EXISTS (SELECT 1 FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_sequence q ON q.seqrelid ="
		" d.objid WHERE d.refobjid IN (SELECT oid FROM family) AND d.deptype IN ('a', 'i') AND q.seqcache"
		" > 1) OR EXISTS (SELECT 1 FROM pg_catalog.pg_attrdef f JOIN pg_catalog.pg_depend d ON d.objid ="
		" f.oid AND d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass JOIN pg_catalog.pg_sequence q"
		" ON q.seqrelid = d.refobjid WHERE f.adrelid IN (SELECT oid FROM family) AND q.seqcache > 1)"
		" FROM pg_catalog.pg_class c WHERE c.oid = %1$u",
		oid);
	int rc = query(s, sql, "table", &res, err);
	if (rc == 0 && PQntuples(res) == 1 && PQgetvalue(res, 0, 0)[0] == 't') {
		s->table = oid;
		*records = PQgetvalue(res, 0, 1)[0] == 'f' && !sl__export_db_is_job_events(s->db.opts);
	}
	PQclear(res);
	return rc;
}

static int pg_take_columns(struct pg_source *s, const PGresult *described, struct sl_err *err)
{
	struct sl__buf fields SL_CLEANUP(sl__buf_fini);
	sl__buf_init(&fields, s->db.env);
	int rc = sl__export_db_columns(&s->db, (size_t)PQnfields(described), err);
	for (size_t i = 0; rc == 0 && i < s->db.n; i++)
		rc = add_field(s, &fields, i, described, err);
	if (rc != 0)
		return rc;
	/* Of a table, which columns are NOT NULL. (Of a query it is not known: an outer join makes NULLs.) */
	Oid table = PQftable(described, 0);
	if (s->db.opts->table != NULL && table != 0) {
		PGresult *res = NULL;
		char sql[160];
		(void)snprintf(
			sql, sizeof(sql),
			"SELECT attname FROM pg_catalog.pg_attribute WHERE attrelid = %u AND attnotnull AND attnum > 0",
			table);
		rc = query(s, sql, "columns", &res, err);
		for (int row = 0; rc == 0 && row < PQntuples(res); row++)
			for (size_t i = 0; i < s->db.n; i++)
				if (strcmp(s->db.columns[i].name, PQgetvalue(res, row, 0)) == 0)
					s->db.columns[i].nullable = false;
		PQclear(res);
		if (rc != 0)
			return rc;
	}
	if ((rc = sl__export_db_find_sequence(&s->db, err)) != 0)
		return rc;
	struct sl_parquet_column *c = &s->db.columns[s->db.sequence];
	Oid oid = PQftype(described, (int)s->db.sequence);
	if (oid != 20 && oid != 21 && oid != 23)
		return sl_err_set(err, SL_EINVAL, "export: the sequence %.60s of %.120s is not of an integer type",
				  c->name, s->db.describe);
	s->not_null = !c->nullable;
	c->nullable = false;
	if ((rc = check_table(s, described, &s->records_gaps, err)) != 0)
		return rc;
	s->fields = sl__buf_take(&fields);
	return s->fields != NULL ? 0 : sl__no_memory(err, "postgres");
}

/* The shape of the rows, without running the query. */
static int pg_describe_rows(struct pg_source *s, struct sl_err *err)
{
	char *sql = sl__asprintf(s->db.env, "SELECT * FROM %s", s->db.inner);
	if (sql == NULL)
		return sl__no_memory(err, "postgres");
	PGresult *res = PQprepare(s->pg, "", sql, 0, NULL);
	sl__free(s->db.env, sql);
	if (PQresultStatus(res) == PGRES_COMMAND_OK) {
		PQclear(res);
		res = PQdescribePrepared(s->pg, "");
	}
	int rc = PQresultStatus(res) == PGRES_COMMAND_OK
			 ? pg_take_columns(s, res, err)
			 : pg_query_failed(s, res, s->db.opts->table != NULL ? "table" : "query", err);
	PQclear(res);
	return rc;
}

/* ---- rows ---- */

/* Rows without a number would never be read, and would be missing unnoticed. */
static int check_no_nulls(struct pg_source *s, SL_UNUSED size_t n, struct sl_err *err)
{
	PGresult *res = NULL;
	if (s->not_null || s->looked)
		return 0;
	struct sl__buf sql SL_CLEANUP(sl__buf_fini);
	sl__buf_init(&sql, s->db.env);
	(void)sl__buf_printf(&sql, "SELECT 1 FROM %s WHERE ", s->db.inner);
	sl__export_db_put_sequence(&sql, &s->db);
	(void)sl__buf_str_append(&sql, " IS NULL LIMIT 1");
	if (sql.failed != 0)
		return sl__no_memory(err, "postgres");
	int rc = query(s, sl__buf_str(&sql), "query", &res, err);
	if (rc == 0 && PQntuples(res) > 0)
		rc = sl_err_set(err, SL_EDATA, "%.150s has a row whose %.60s is NULL", s->db.describe,
				s->db.columns[s->db.sequence].name);
	s->looked = rc == 0;
	PQclear(res);
	return rc;
}

static int start_chunk(struct pg_source *s, struct sl_err *err)
{
	struct sl__buf sql SL_CLEANUP(sl__buf_fini);
	PGresult *res = NULL;
	uint64_t from = sl__export_db_next_chunk(&s->db);
	sl__buf_init(&sql, s->db.env);
	(void)sl__buf_str_append(&sql, "COPY (SELECT ");
	sl__export_db_put_sequence(&sql, &s->db);
	(void)sl__buf_printf(&sql, "%s FROM %s WHERE ", s->fields, s->db.inner);
	if (from > 0) {
		sl__export_db_put_sequence(&sql, &s->db);
		(void)sl__buf_printf(&sql, " >= %llu AND ", (unsigned long long)from);
	}
	if (s->db.last != SL__EXPORT_NO_END) {
		sl__export_db_put_sequence(&sql, &s->db);
		(void)sl__buf_printf(&sql, " <= %llu AND ", (unsigned long long)s->db.last);
	}
	(void)sl__buf_str_append(&sql, "true ORDER BY ");
	sl__export_db_put_sequence(&sql, &s->db);
	(void)sl__buf_printf(&sql, " LIMIT %d) TO STDOUT (FORMAT csv)", CHUNK_ROWS);
	if (sql.failed != 0)
		return sl__no_memory(err, "postgres");

	if (PQsendQuery(s->pg, sl__buf_str(&sql)) != 1)
		return pg_query_failed(s, NULL, "copy", err);
	int rc = next_result(s, &res, err);
	if (rc == 0 && PQresultStatus(res) != PGRES_COPY_OUT) {
		rc = pg_query_failed(s, res, "copy", err);
		pg_drain(s);
	}
	PQclear(res);
	s->copying = rc == 0;
	s->chunk_rows = 0;
	return rc;
}

/* ---- numbers that may still come ---- */

/*
 * A transaction that has drawn a number for a row holds a lock for writing on the table (or the partition that it
 * names, or the table that it is a partition of) until it has ended, and has ended for every later snapshot when the
 * lock is gone. So of the numbers up to one that is visible now, each is visible too, or its transaction holds such a
 * lock now, or it never comes. ANALYZE and VACUUM hold SHARE UPDATE EXCLUSIVE and insert nothing. A transaction that is
 * prepared while it is waited for keeps its virtual transaction.
 */

#define WRITERS                                                                                                        \
	" FROM pg_catalog.pg_locks l WHERE l.locktype = 'relation' AND l.granted"                                      \
	" AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())"     \
	" AND l.mode IN ('RowExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock',"                   \
	" 'AccessExclusiveLock') AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()"

/* The virtual transactions that could still produce a number, as an array of PostgreSQL; NULL: there are none. */
static int find_writers(struct pg_source *s, char **out, struct sl_err *err)
{
	PGresult *res = NULL;
	char family[600] = "";
	if (s->table != 0)
		(void)snprintf(family, sizeof(family), " AND l.relation IN " FAMILY, s->table);
	char *sql = sl__asprintf(s->db.env, "SELECT pg_catalog.array_agg(DISTINCT l.virtualtransaction)" WRITERS "%s",
				 family);
	if (sql == NULL)
		return sl__no_memory(err, "postgres");
	int rc = query(s, sql, "locks", &res, err);
	sl__free(s->db.env, sql);
	if (rc != 0)
		return rc;
	*out = NULL;
	if (PQntuples(res) == 1 && !PQgetisnull(res, 0, 0)) {
		*out = sl__strdup(s->db.env, PQgetvalue(res, 0, 0));
		if (*out == NULL)
			rc = sl__no_memory(err, "postgres");
	}
	PQclear(res);
	return rc;
}

/* How many of them are still there; first: who one of them is, for people. */
static int count_writers(struct pg_source *s, const char *writers, int *n, char first[200], struct sl_err *err)
{
	PGresult *res = NULL;
	char *sql = sl__asprintf(s->db.env,
				 "SELECT DISTINCT l.virtualtransaction, CASE WHEN p.gid IS NOT NULL THEN 'prepared "
				 "transaction ' || p.gid"
				 " ELSE 'pid ' || l.pid || ', ' || coalesce(a.usename, '?') || ', ' || "
				 "coalesce(a.application_name, '') ||"
				 " ', ' || coalesce(a.state, '?') END"
				 " FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid"
				 " LEFT JOIN pg_catalog.pg_locks x ON x.virtualtransaction = l.virtualtransaction"
				 " AND x.locktype = 'transactionid' AND l.pid IS NULL"
				 " LEFT JOIN pg_catalog.pg_prepared_xacts p ON p.transaction = x.transactionid"
				 " WHERE l.locktype = 'relation' AND l.virtualtransaction = ANY ('%s')",
				 writers);
	int rc = sql != NULL ? query(s, sql, "locks", &res, err) : sl__no_memory(err, "postgres");
	sl__free(s->db.env, sql);
	if (rc != 0)
		return rc;
	*n = PQntuples(res);
	if (*n > 0)
		(void)snprintf(first, 200, "%s", PQgetvalue(res, 0, 1));
	PQclear(res);
	return 0;
}

/* Wait until no number below the row that was seen can appear any more, by locks and not by a time. */
static int pg_wait_for_holders(struct pg_source *s, struct sl_err *err)
{
	struct pollfd wake = {.fd = s->db.wake_fd, .events = POLLIN};
	const struct sl_env *env = s->db.env;
	uint64_t up_to = s->unsettled;
	char *writers = NULL, first[200] = "";
	int64_t log_ns = sl__mono_ns(env) + (int64_t)SL__EXPORT_DB_LOG_MS * 1000000;
	int left = 0;

	/* The greatest number that is visible now. */
	PGresult *res = NULL;
	struct sl__buf sql SL_CLEANUP(sl__buf_fini);
	sl__buf_init(&sql, env);
	(void)sl__buf_str_append(&sql, "SELECT max(");
	sl__export_db_put_sequence(&sql, &s->db);
	(void)sl__buf_printf(&sql, ") FROM %s", s->db.inner);
	if (sql.failed != 0)
		return sl__no_memory(err, "postgres");
	int rc = query(s, sl__buf_str(&sql), "query", &res, err);
	if (rc != 0)
		return rc;
	if (PQntuples(res) == 1 && PQgetvalue(res, 0, 0)[0] != '-')
		up_to = SL_MAX(up_to, strtoull(PQgetvalue(res, 0, 0), NULL, 10));
	PQclear(res);

	/* The transactions that are open now, until each has ended. */
	if ((rc = find_writers(s, &writers, err)) != 0)
		return rc;
	while (rc == 0 && writers != NULL) {
		rc = count_writers(s, writers, &left, first, err);
		if (rc != 0 || left == 0)
			break;
		if (sl__mono_ns(env) >= log_ns) {
			sl__log(env, SL_LOG_WARN, "export", "waiting for transactions that may fill a gap to end",
				SL__F_STR("source", s->db.describe), SL__F_U64("below", s->unsettled),
				SL__F_I64("transactions", left), SL__F_STR("one_of_them", first));
			log_ns = sl__mono_ns(env) + (int64_t)6 * SL__EXPORT_DB_LOG_MS * 1000000;
		}
		(void)poll(&wake, 1, 100);
		if (atomic_load(&s->db.woken))
			rc = sl__export_db_cancelled(err);
	}
	sl__free(env, writers);
	if (rc != 0)
		return rc;
	s->db.settled = s->db.any_settled ? SL_MAX(s->db.settled, up_to) : up_to;
	s->db.any_settled = true;
	s->settling = false;
	return 0;
}

/* ---- more rows ---- */

/* At least one row, or the end, or as many as are here and fit n bytes. */
static int pg_fill(struct pg_source *s, size_t n, struct sl_err *err)
{
	int rc = 0;
	while (rc == 0 && !s->db.done && s->db.text.len < n) {
		char *row = NULL;
		if (!s->copying) {
			if (s->db.text.len > 0)
				return 0;
			rc = s->settling ? pg_wait_for_holders(s, err) : start_chunk(s, err);
			continue;
		}
		int got = PQgetCopyData(s->pg, &row, 1);
		if (got > 0) { /* one line: the number, a comma, the row */
			char *end;
			unsigned long long sequence = strtoull(row, &end, 10);
			enum sl__export_db_verdict verdict = SL__EXPORT_DB_GIVE;
			const char *comma = memchr(row, ',', (size_t)got);
			s->chunk_rows++;
			if (*row != '-') /* a number below 0 goes to the export, which refuses it */
				verdict = sl__export_db_admit(&s->db, sequence);
			if (comma == NULL) {
				rc = sl_err_set(err, SL_EINTERNAL, "postgres: copy: a line without a sequence number");
			} else if (verdict == SL__EXPORT_DB_SETTLE) {
				pg_abandon_copy(s);
				s->settling = true;
				s->unsettled = sequence;
			} else if (verdict == SL__EXPORT_DB_GIVE) {
				if (sl__buf_append(&s->db.text, comma + 1, (size_t)(row + got - (comma + 1))) != 0)
					rc = sl__no_memory(err, "postgres");
			}
			PQfreemem(row);
		} else if (got == 0) {
			if (s->db.text.len > 0)
				return 0;
			rc = wait_input(s, err);
		} else if (got == -1) { /* the server has sent all rows of the chunk */
			PGresult *res = NULL;
			rc = next_result(s, &res, err);
			if (rc == 0 && res != NULL && PQresultStatus(res) != PGRES_COMMAND_OK)
				rc = pg_query_failed(s, res, "copy", err);
			PQclear(res);
			if (rc != SL_ECANCELLED)
				pg_drain(s);
			s->copying = false;
			s->db.done = rc == 0 && s->chunk_rows < CHUNK_ROWS;
		} else {
			rc = pg_query_failed(s, NULL, "copy", err);
		}
	}
	return rc;
}

/* ---- the table ---- */

static const char *pg_describe(void *ctx)
{
	return ((struct pg_source *)ctx)->db.describe;
}

static int pg_columns(const struct sl_parquet_column **out, size_t *n, SL_UNUSED struct sl_err *err, void *ctx)
{
	struct pg_source *s = ctx;
	*out = s->db.columns;
	*n = s->db.n;
	return 0;
}

/* Call try_it, again and again while its failure may pass. */
static int retry_until_done(struct pg_source *s, int (*try_it)(struct pg_source *s, size_t n, struct sl_err *err),
			    size_t n, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	int rc;
	for (;;) {
		rc = connect_again(s, &why);
		if (rc == 0)
			rc = try_it(s, n, &why);
		if (rc == 0 || s->db.text.len > 0)
			break;
		if ((rc = sl__export_db_retry(&s->db, &why)) != 0)
			break;
	}
	if (rc == 0)
		s->db.failures = 0;
	else if (err != NULL)
		*err = why;
	return rc;
}

static int pg_begin(uint64_t first, uint64_t last, struct sl_err *err, void *ctx)
{
	struct pg_source *s = ctx;
	if (atomic_load(&s->db.woken))
		return sl__export_db_cancelled(err);
	if (s->pg != NULL)
		pg_abandon_copy(s);
	sl__export_db_begin(&s->db, first, last);
	s->settling = false;
	s->db.done = first > INT64_MAX;
	return retry_until_done(s, check_no_nulls, 0, err);
}

/* What was read before a failure is returned first; the failure comes again. */
static int64_t pg_read(void *buf, size_t n, struct sl_err *err, void *ctx)
{
	struct pg_source *s = ctx;
	int rc = s->db.text.len == 0 && !s->db.done ? retry_until_done(s, pg_fill, n, err) : 0;
	if (rc != 0 && s->db.text.len == 0)
		return rc;
	return (int64_t)sl__export_db_take(&s->db, buf, n);
}

static int ask_present(struct pg_source *s, SL_UNUSED size_t n, struct sl_err *err)
{
	PGresult *res = NULL;
	int rc = query(s, s->present, "holes", &res, err);
	s->any_present = rc == 0 && PQntuples(res) == 1 && !PQgetisnull(res, 0, 0);
	if (s->any_present)
		s->found = strtoull(PQgetvalue(res, 0, 0), NULL, 10);
	PQclear(res);
	return rc;
}

static int pg_present(const char *ranges, bool *any, uint64_t *found, struct sl_err *err, void *ctx)
{
	struct pg_source *s = ctx;
	struct sl__buf sql SL_CLEANUP(sl__buf_fini);
	int rc = 0;
	sl__buf_init(&sql, s->db.env);
	s->any_present = false;
	while (rc == 0 && !s->any_present && sl__export_db_put_present(&sql, &s->db, &ranges)) {
		s->present = sl__buf_str(&sql);
		rc = sql.failed != 0 ? sl__no_memory(err, "postgres") : retry_until_done(s, ask_present, 0, err);
	}
	s->present = NULL;
	*any = s->any_present;
	if (*any)
		*found = s->found;
	return rc;
}

static void pg_wake(void *ctx)
{
	sl__export_db_wake(&((struct pg_source *)ctx)->db);
}

static void pg_close_source(void *ctx)
{
	struct pg_source *s = ctx;
	const struct sl_env *env = s->db.env;
	PQfinish(s->pg);
	sl__free(env, s->fields);
	sl__export_db_fini(&s->db);
	sl__free(env, s);
}

static const struct sl__export_source_ops ops = {.csv = true,
						 .describe = pg_describe,
						 .columns = pg_columns,
						 .begin = pg_begin,
						 .read = pg_read,
						 .present = pg_present,
						 .wake = pg_wake,
						 .close = pg_close_source};

int sl__export_postgres_open(struct sl__export_source *out, const struct sl_export_opts *opts, const struct sl_env *env,
			     struct sl_err *err)
{
	struct pg_source *s = sl__calloc(env, 1, sizeof(*s));
	if (s == NULL)
		return sl__no_memory(err, "postgres");
	int rc = sl__export_db_init(&s->db, opts, env, err);
	if (rc == 0)
		rc = connect_again(s, err);
	if (rc == 0) {
		s->db.describe =
			sl__asprintf(env, "%s%.100s of postgres://%s/%s", opts->table != NULL ? "table " : "a query",
				     opts->table != NULL ? opts->table : "", PQhost(s->pg) != NULL ? PQhost(s->pg) : "",
				     PQdb(s->pg));
		rc = s->db.describe != NULL ? pg_describe_rows(s, err) : sl__no_memory(err, "postgres");
	}
	if (rc != 0) {
		pg_close_source(s);
		return rc;
	}
	s->db.waits = true;
	*out = (struct sl__export_source){.ops = &ops, .ctx = s, .records_gaps = s->records_gaps};
	return 0;
}
