/* SPDX-License-Identifier: Apache-2.0 */
/* The sources of the export that are databases: the same tests for SQLite and PostgreSQL, and what only one has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "pipeline/export/source_db.h"
#include "support/pg.h"
#include "support/vclock.h"

static struct pg_temp *server;

struct place {
	bool postgres;
	char folder[64], url[512];
	sqlite3 *db;
	PGconn *pg;
	struct vclock clock;
	struct sl_env env;
	struct sl_export_opts opts;
	struct sl__export_source source;
	char *text; /* of read_all */
};

static void run_sql(struct place *p, const char *sql)
{
	if (p->postgres)
		assert_int_equal(pg_temp_exec(p->pg, sql), 0);
	else
		assert_int_equal(sqlite3_exec(p->db, sql, NULL, NULL, NULL), SQLITE_OK);
}

static int set_up(void **state, bool postgres)
{
	struct place *p = calloc(1, sizeof(*p));
	*state = p;
	p->postgres = postgres;
	vclock_init(&p->clock);
	struct sl_env env = {SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &p->clock};
	assert_int_equal(sl__env_init(&p->env, &env, NULL), 0);
	if (postgres) {
		(void)snprintf(p->url, sizeof(p->url), "%s", pg_temp_url(server));
		p->pg = pg_temp_connect(server);
		run_sql(p, "SET client_min_messages = error; DROP TABLE IF EXISTS t");
	} else {
		(void)snprintf(p->folder, sizeof(p->folder), "/tmp/sluice-source-XXXXXX");
		assert_non_null(mkdtemp(p->folder));
		(void)snprintf(p->url, sizeof(p->url), "sqlite:%s/t.db", p->folder);
		assert_int_equal(sqlite3_open(p->url + 7, &p->db), SQLITE_OK);
		run_sql(p, "PRAGMA journal_mode=WAL");
	}
	p->opts = (struct sl_export_opts){SL_EXPORT_OPTS_INIT, .from = p->url, .table = "t"};
	return 0;
}

static int set_up_sqlite(void **state)
{
	return set_up(state, false);
}

static int set_up_postgres(void **state)
{
	return set_up(state, true);
}

static int tear_down(void **state)
{
	struct place *p = *state;
	char path[128];
	if (p->source.ops != NULL)
		p->source.ops->close(p->source.ctx);
	free(p->text);
	if (p->postgres)
		PQfinish(p->pg);
	else
		(void)sqlite3_close(p->db);
	static const char *const names[] = {"t.db", "t.db-wal", "t.db-shm"};
	for (size_t i = 0; !p->postgres && i < SL_COUNT(names); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", p->folder, names[i]);
		(void)unlink(path);
	}
	if (!p->postgres)
		(void)rmdir(p->folder);
	vclock_fini(&p->clock);
	free(p);
	return 0;
}

static int open_it(struct place *p, struct sl_err *err)
{
	return p->postgres ? sl__export_postgres_open(&p->source, &p->opts, &p->env, err)
			   : sl__export_sqlite_open(&p->source, &p->opts, &p->env, err);
}

static void open_source(struct place *p)
{
	struct sl_err err = SL_ERR_INIT;
	if (open_it(p, &err) != 0)
		fail_msg("open: %s", err.msg);
}

static int64_t read_some(struct place *p, char *buf, size_t n, struct sl_err *err)
{
	return p->source.ops->read(buf, n, err, p->source.ctx);
}

/* All text from first to last; the caller inspects it until the next call. */
static const char *read_all(struct place *p, uint64_t first, uint64_t last)
{
	struct sl_err err = SL_ERR_INIT;
	char buf[1000];
	size_t len = 0;
	int64_t n;
	if (p->source.ops->begin(first, last, &err, p->source.ctx) != 0)
		fail_msg("begin: %s", err.msg);
	free(p->text);
	p->text = NULL;
	while ((n = read_some(p, buf, sizeof(buf), &err)) > 0) {
		p->text = realloc(p->text, len + (size_t)n + 1);
		memcpy(p->text + len, buf, (size_t)n);
		len += (size_t)n;
		p->text[len] = '\0';
	}
	if (n < 0)
		fail_msg("read: %s", err.msg);
	return p->text != NULL ? p->text : "";
}

static size_t count_lines(const char *text)
{
	size_t n = 0;
	for (; *text != '\0'; text++)
		n += *text == '\n';
	return n;
}

/* ---- both ---- */

static void rows_come_in_order_and_nulls_differ_from_empty_texts(void **state)
{
	struct place *p = *state;
	run_sql(p, p->postgres ? "CREATE TABLE t (n bigint, name text, data bytea)"
			       : "CREATE TABLE t (n INTEGER, name TEXT, data BLOB)");
	run_sql(p, "INSERT INTO t VALUES (3, '', NULL), (1, 'a,\"b\"\nc', NULL), (2, NULL, NULL)");
	run_sql(p, p->postgres ? "INSERT INTO t VALUES (4, 'x', '\\x00ff')" : "INSERT INTO t VALUES (4, 'x', x'00ff')");
	open_source(p);
	assert_string_equal(read_all(p, 0, SL__EXPORT_NO_END),
			    p->postgres ? "1,\"a,\"\"b\"\"\nc\",\n2,,\n3,\"\",\n4,x,\\x00ff\n"
					: "1,\"a,\"\"b\"\"\nc\",\n2,,\n3,\"\",\n4,\"x\",\\x00ff\n");
}

static void only_rows_between_the_bounds_come(void **state)
{
	struct place *p = *state;
	run_sql(p, "CREATE TABLE t (n BIGINT PRIMARY KEY)");
	run_sql(p, "INSERT INTO t VALUES (1), (2), (3), (4), (5)");
	open_source(p);
	assert_string_equal(read_all(p, 2, 4), "2\n3\n4\n");
	assert_string_equal(read_all(p, 5, SL__EXPORT_NO_END), "5\n");
	assert_string_equal(read_all(p, 6, SL__EXPORT_NO_END), "");
	assert_string_equal(read_all(p, UINT64_MAX - 1, SL__EXPORT_NO_END), "");
	run_sql(p, "INSERT INTO t VALUES (6)");
	assert_string_equal(read_all(p, 6, SL__EXPORT_NO_END), "6\n");
}

static void the_sequence_may_be_any_column_and_has_no_nulls(void **state)
{
	struct place *p = *state;
	const struct sl_parquet_column *columns;
	size_t n;
	run_sql(p, "CREATE TABLE t (name TEXT, \"the \"\"n\" BIGINT)");
	run_sql(p, "INSERT INTO t VALUES ('b', 2), ('a', 1)");
	p->opts.sequence = "the \"n";
	open_source(p);
	assert_int_equal(p->source.ops->columns(&columns, &n, NULL, p->source.ctx), 0);
	assert_int_equal(n, 2);
	assert_string_equal(columns[1].name, "the \"n");
	assert_int_equal(columns[1].kind, SL_PARQUET_INT64);
	assert_int_equal(columns[0].nullable, 1);
	assert_int_equal(columns[1].nullable, 0);
	assert_string_equal(read_all(p, 0, SL__EXPORT_NO_END), p->postgres ? "a,1\nb,2\n" : "\"a\",1\n\"b\",2\n");
}

static void a_query_may_end_with_a_semicolon_or_a_comment(void **state)
{
	struct place *p = *state;
	run_sql(p, "CREATE TABLE t (n BIGINT)");
	run_sql(p, "INSERT INTO t VALUES (1), (2)");
	p->opts.table = NULL;
	p->opts.query = "SELECT n AS number, n * 2 AS twice FROM t -- all of them ;\n;";
	p->opts.sequence = "number";
	open_source(p);
	assert_string_equal(read_all(p, 0, SL__EXPORT_NO_END), "1,2\n2,4\n");
}

/* More than one chunk, with the same number twice where the first one ends. */
static void a_number_that_is_there_twice_is_given_twice_also_between_chunks(void **state)
{
	struct place *p = *state;
	run_sql(p, "CREATE TABLE t (n BIGINT, pad TEXT)");
	run_sql(p, p->postgres
			   ? "INSERT INTO t SELECT i, '' FROM generate_series(1, 100100) i"
			   : "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 100100)"
			     " INSERT INTO t SELECT i, '12345678901234567890123456789012345678901234567890' FROM c");
	open_source(p);
	assert_int_equal(count_lines(read_all(p, 0, SL__EXPORT_NO_END)), 100100);
	/* Three of the numbers are at, before and after the row that ends the first chunk of PostgreSQL. */
	run_sql(p, "INSERT INTO t SELECT n, pad FROM t WHERE n IN (50000, 99999, 100000, 100001)");
	assert_int_equal(count_lines(read_all(p, 0, SL__EXPORT_NO_END)), 100104);
}

static void a_row_after_a_gap_is_returned_when_the_gap_can_no_longer_be_filled(void **state)
{
	struct place *p = *state;
	run_sql(p, "CREATE TABLE t (n BIGINT)");
	run_sql(p, "INSERT INTO t VALUES (7), (8), (10)");
	p->opts.follow = SL_ON;
	open_source(p);
	assert_string_equal(read_all(p, 0, SL__EXPORT_NO_END), "7\n8\n10\n");
	run_sql(p, "INSERT INTO t VALUES (12)");
	assert_string_equal(read_all(p, 11, SL__EXPORT_NO_END), "12\n");
}

static void a_row_without_a_number_is_refused(void **state)
{
	struct place *p = *state;
	struct sl_err err = SL_ERR_INIT;
	run_sql(p, "CREATE TABLE t (n BIGINT)");
	run_sql(p, "INSERT INTO t VALUES (1), (NULL)");
	open_source(p);
	assert_int_equal(p->source.ops->begin(0, SL__EXPORT_NO_END, &err, p->source.ctx), SL_EDATA);
	assert_non_null(strstr(err.msg, "table t"));
}

static void assert_no_open(struct place *p, int code, const char *says)
{
	struct sl_err err = SL_ERR_INIT;
	int rc = open_it(p, &err);
	if (rc != code || err.code != code || strstr(err.msg, says) == NULL)
		fail_msg("open: %d: %s", rc, err.msg);
}

static void a_wrong_table_query_or_column_is_reported(void **state)
{
	struct place *p = *state;
	run_sql(p, "CREATE TABLE t (n BIGINT)");
	p->opts.sequence = "other";
	assert_no_open(p, SL_EINVAL, "no column other");
	p->opts.sequence = NULL;
	p->opts.table = "nowhere";
	assert_no_open(p, SL_ECONFIG, "nowhere");
	p->opts.query = "SELECT 1";
	assert_no_open(p, SL_EINVAL, "not both");
	p->opts.table = NULL;
	p->opts.query = "SELEKT 1";
	assert_no_open(p, SL_EINVAL, "syntax error");
	p->opts.query = "SELECT n, n FROM t"; /* SQLite gives the second another name by itself */
	if (p->postgres)
		assert_no_open(p, SL_EINVAL, "named n");
	p->opts.query = NULL;
	assert_no_open(p, SL_EINVAL, "a table or a query");
}

static void a_source_that_was_woken_gives_no_more(void **state)
{
	struct place *p = *state;
	struct sl_err err = SL_ERR_INIT;
	char buf[10];
	run_sql(p, "CREATE TABLE t (n BIGINT)");
	run_sql(p, "INSERT INTO t VALUES (1), (2)");
	open_source(p);
	assert_int_equal(p->source.ops->begin(0, SL__EXPORT_NO_END, &err, p->source.ctx), 0);
	p->source.ops->wake(p->source.ctx);
	assert_int_equal(read_some(p, buf, sizeof(buf), &err), SL_ECANCELLED);
}

/* ---- SQLite ---- */

static void sqlite_columns_have_the_types_that_are_declared(void **state)
{
	struct place *p = *state;
	const struct sl_parquet_column *c;
	size_t n;
	static const enum sl_parquet_kind kinds[] = {
		SL_PARQUET_INT64, SL_PARQUET_STRING, SL_PARQUET_BOOL,      SL_PARQUET_DOUBLE, SL_PARQUET_DECIMAL,
		SL_PARQUET_DATE,  SL_PARQUET_INT64,  SL_PARQUET_TIMESTAMP, SL_PARQUET_STRING, SL_PARQUET_BINARY};
	run_sql(p, "CREATE TABLE t (n INTEGER PRIMARY KEY, a VARCHAR(9) NOT NULL, b BOOLEAN, c DOUBLE PRECISION,"
		   " d DECIMAL(12, 2), e DATE, f DATETIME, g TIMESTAMP, h DATE, i)");
	run_sql(p, "INSERT INTO t VALUES (9223372036854775807, 'x', 1, 0.30000000000000004, 12.5, '2024-02-29', "
		   "1700000000,"
		   " '2024-02-29 12:00:00', 'soon', x'00')");
	open_source(p);
	assert_int_equal(p->source.ops->columns(&c, &n, NULL, p->source.ctx), 0);
	assert_int_equal(n, SL_COUNT(kinds));
	for (size_t i = 0; i < n; i++)
		if (c[i].kind != kinds[i])
			fail_msg("column %s has kind %d, not %d", c[i].name, (int)c[i].kind, (int)kinds[i]);
	assert_int_equal(c[0].nullable, 0);
	assert_int_equal(c[1].nullable, 0);
	assert_int_equal(c[2].nullable, 1);
	assert_int_equal(c[4].precision, 12);
	assert_int_equal(c[4].scale, 2);
	assert_string_equal(
		read_all(p, 0, SL__EXPORT_NO_END),
		"9223372036854775807,\"x\",true,0.30000000000000004,12.5,\"2024-02-29\",1700000000,\"2024-02-29 "
		"12:00:00\",\"soon\",\\x00\n");
}

static void sqlite_decimals_have_the_scale_that_is_declared(void **state)
{
	struct place *p = *state;
	static const struct {
		int precision, scale; /* precision 0: not a decimal */
	} want[] = {{0, 0}, {12, 0}, {5, 5}, {18, 18}, {18, 0}, {1, 1}, {4, 2}, {0, 0}, {0, 0}, {0, 0}, {0, 0}};
	const struct sl_parquet_column *c;
	size_t n;
	run_sql(p, "CREATE TABLE t (n INTEGER PRIMARY KEY, a DECIMAL(12), b DECIMAL(5,5), c NUMERIC(18,18),"
		   " d NUMERIC(18,0), e DECIMAL(1,1), f DECIMAL( 4 , 2 ), g DECIMAL(5,6), h DECIMAL(19,2),"
		   " i DECIMAL(0,0), j DECIMAL)");
	open_source(p);
	assert_int_equal(p->source.ops->columns(&c, &n, NULL, p->source.ctx), 0);
	assert_int_equal(n, SL_COUNT(want));
	for (size_t i = 1; i < n; i++) {
		assert_int_equal(c[i].kind == SL_PARQUET_DECIMAL, want[i].precision != 0);
		if (c[i].precision != want[i].precision || c[i].scale != want[i].scale)
			fail_msg("column %s: decimal(%d,%d)", c[i].name, c[i].precision, c[i].scale);
	}
}

static void a_sqlite_number_that_is_a_text_is_refused(void **state)
{
	struct place *p = *state;
	struct sl_err err = SL_ERR_INIT;
	run_sql(p, "CREATE TABLE t (n)");
	run_sql(p, "INSERT INTO t VALUES (1), ('two')");
	open_source(p);
	assert_int_equal(p->source.ops->begin(0, SL__EXPORT_NO_END, &err, p->source.ctx), SL_EDATA);
}

static void writers_of_the_sqlite_file_are_not_blocked_between_reads(void **state)
{
	struct place *p = *state;
	struct sl_err err = SL_ERR_INIT;
	char buf[2];
	run_sql(p, "PRAGMA journal_mode=DELETE");
	run_sql(p, "CREATE TABLE t (n BIGINT)");
	run_sql(p, "INSERT INTO t VALUES (1), (2), (3)");
	open_source(p);
	assert_int_equal(p->source.ops->begin(0, SL__EXPORT_NO_END, &err, p->source.ctx), 0);
	assert_int_equal(read_some(p, buf, sizeof(buf), &err), 2);
	run_sql(p, "INSERT INTO t VALUES (4)"); /* it would be busy under an open read transaction */
}

/* ---- PostgreSQL ---- */

static void postgres_columns_have_the_types_of_the_result(void **state)
{
	struct place *p = *state;
	const struct sl_parquet_column *c;
	size_t n;
	static const enum sl_parquet_kind kinds[] = {
		SL_PARQUET_INT64,     SL_PARQUET_INT32,     SL_PARQUET_BOOL,   SL_PARQUET_FLOAT,   SL_PARQUET_DOUBLE,
		SL_PARQUET_TIMESTAMP, SL_PARQUET_TIMESTAMP, SL_PARQUET_DATE,   SL_PARQUET_DECIMAL, SL_PARQUET_STRING,
		SL_PARQUET_STRING,    SL_PARQUET_STRING,    SL_PARQUET_BINARY, SL_PARQUET_STRING};
	/* The text must not depend on what a server or a user prefers. */
	run_sql(p, "ALTER ROLE postgres SET TimeZone = 'Asia/Tokyo'; ALTER ROLE postgres SET DateStyle = 'SQL, DMY';"
		   "ALTER ROLE postgres SET bytea_output = 'escape'; ALTER ROLE postgres SET extra_float_digits = -15");
	run_sql(p, "CREATE TABLE t (n bigint PRIMARY KEY, a smallint, b boolean NOT NULL, c real, d double precision,"
		   " e timestamptz, f timestamp, g date, h numeric(12,2), i numeric, j uuid, k integer[], l bytea, m "
		   "jsonb)");
	run_sql(p,
		"INSERT INTO t VALUES (1, -2, true, 0.1, 0.30000000000000004, '2024-02-29 12:00:00.5+09', '2024-02-29 "
		"12:00:00',"
		" '2024-02-29', 1.5, 1e30, '00000000-0000-0000-0000-000000000001', '{1,null}', '\\xff', '{\"a\":1}')");
	open_source(p);
	run_sql(p, "ALTER ROLE postgres RESET ALL");
	assert_int_equal(p->source.ops->columns(&c, &n, NULL, p->source.ctx), 0);
	assert_int_equal(n, SL_COUNT(kinds));
	for (size_t i = 0; i < n; i++)
		if (c[i].kind != kinds[i])
			fail_msg("column %s has kind %d, not %d", c[i].name, (int)c[i].kind, (int)kinds[i]);
	assert_int_equal(c[0].nullable, 0);
	assert_int_equal(c[1].nullable, 1);
	assert_int_equal(c[2].nullable, 0);
	assert_int_equal(c[5].local, 0);
	assert_int_equal(c[6].local, 1);
	assert_int_equal(c[8].precision, 12);
	assert_int_equal(c[8].scale, 2);
	assert_string_equal(
		read_all(p, 0, SL__EXPORT_NO_END),
		"1,-2,t,0.1,0.30000000000000004,2024-02-29 03:00:00.5+00,2024-02-29 12:00:00,2024-02-29,1.50,"
		"1000000000000000000000000000000,00000000-0000-0000-0000-000000000001,\"[1,null]\",\\xff,"
		"\"{\"\"a\"\": 1}\"\n");
}

static void a_postgres_sequence_of_another_type_is_refused(void **state)
{
	struct place *p = *state;
	run_sql(p, "CREATE TABLE t (n text)");
	assert_no_open(p, SL_EINVAL, "not of an integer type");
}

static void a_lost_postgres_connection_is_made_again_and_reading_resumes_after_the_last_row(void **state)
{
	struct place *p = *state;
	struct sl_err err = SL_ERR_INIT;
	char buf[4096];
	int64_t n, total = 0;
	unsigned long long next = 1;
	run_sql(p, "CREATE TABLE t (n bigint PRIMARY KEY, pad text)");
	run_sql(p, "INSERT INTO t SELECT i, repeat('x', 999) FROM generate_series(10000, 29999) i");
	open_source(p);
	assert_int_equal(p->source.ops->begin(0, SL__EXPORT_NO_END, &err, p->source.ctx), 0);
	while ((n = read_some(p, buf, sizeof(buf), &err)) > 0) {
		for (int64_t i = 0; i < n; i++) { /* a line has 6 + 999 + 1 bytes */
			if ((total + i) % 1006 == 0)
				assert_int_equal(buf[i], next++ <= 10000 ? '1' : '2');
		}
		if (total / 4000000 != (total + n) / 4000000)
			run_sql(p, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
				   " WHERE application_name = 'sluice export'");
		total += n;
	}
	assert_int_equal(n, 0);
	assert_int_equal(total, 20000 * 1006);
}

static void a_row_in_a_hole_is_found_also_after_a_lost_connection(void **state)
{
	struct place *p = *state;
	struct sl_err err = SL_ERR_INIT;
	bool any = false;
	uint64_t found = 0;
	run_sql(p, "CREATE TABLE t (n bigint PRIMARY KEY)");
	run_sql(p, "INSERT INTO t VALUES (1), (4), (9)");
	open_source(p);
	assert_string_equal(read_all(p, 1, SL__EXPORT_NO_END), "1\n4\n9\n");
	if (p->postgres)
		run_sql(p, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
			   " WHERE application_name = 'sluice export'");
	assert_int_equal(p->source.ops->present("2-3,5-8", &any, &found, &err, p->source.ctx), 0);
	assert_false(any);
	run_sql(p, "INSERT INTO t VALUES (8), (6)");
	assert_int_equal(p->source.ops->present("2-3,5-8", &any, &found, &err, p->source.ctx), 0);
	assert_true(any);
	assert_int_equal(found, 6);
}

/* Until the statement stands in its pg_sleep; each look is a round trip to the server. */
static void await_sleep(struct place *p)
{
	while (pg_temp_number(p->pg, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") != 1)
		continue;
}

static void *cancel_it(void *arg)
{
	struct place *p = arg;
	await_sleep(p);
	if (pg_temp_exec(p->pg,
			 "INSERT INTO t VALUES (1);"
			 "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") != 0)
		abort();
	return NULL;
}

static void reading_resumes_after_the_last_row_when_postgres_cancels_the_statement(void **state)
{
	struct place *p = *state;
	pthread_t thread;
	run_sql(p, "CREATE TABLE t (n bigint)");
	p->opts.table = NULL;
	p->opts.query =
		"SELECT i::bigint AS n, CASE WHEN i = 3 AND (SELECT count(*) FROM t) = 0 THEN pg_sleep(3600)::text "
		"END AS z FROM generate_series(1, 5) i";
	open_source(p);
	assert_int_equal(pthread_create(&thread, NULL, cancel_it, p), 0);
	assert_string_equal(read_all(p, 0, SL__EXPORT_NO_END), "1,\n2,\n3,\n4,\n5,\n");
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static void *wake_it(void *arg)
{
	struct place *p = arg;
	await_sleep(p);
	p->source.ops->wake(p->source.ctx);
	return NULL;
}

static void a_read_that_waits_for_postgres_ends_when_it_is_woken(void **state)
{
	struct place *p = *state;
	struct sl_err err = SL_ERR_INIT;
	pthread_t thread;
	char buf[10];
	p->opts.table = NULL;
	p->opts.query = "SELECT 1::bigint AS n, pg_sleep(3600)::text AS z";
	open_source(p);
	((struct sl__export_db *)p->source.ctx)->columns[0].nullable = false;
	assert_int_equal(pthread_create(&thread, NULL, wake_it, p), 0);
	int64_t n = p->source.ops->begin(0, SL__EXPORT_NO_END, &err, p->source.ctx);
	n = n != 0 ? n : read_some(p, buf, sizeof(buf), &err);
	assert_int_equal(n, SL_ECANCELLED);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

/* ---- numbers of open transactions ---- */

/* A reading on its own thread, and what it logs. */
struct reading {
	struct place *p;
	pthread_t thread;
	pthread_mutex_t mu;
	char told[300]; /* whom it waits for */
	bool ended;
};

static void take_log(const struct sl_log_record *record, void *ctx)
{
	struct reading *r = ctx;
	for (size_t i = 0; i < record->n_fields; i++)
		if (strcmp(record->fields[i].key, "one_of_them") == 0) {
			pthread_mutex_lock(&r->mu);
			(void)snprintf(r->told, sizeof(r->told), "%s", record->fields[i].str);
			pthread_mutex_unlock(&r->mu);
		}
}

static void *read_on_thread(void *ctx)
{
	struct reading *r = ctx;
	(void)read_all(r->p, 1, SL__EXPORT_NO_END);
	pthread_mutex_lock(&r->mu);
	r->ended = true;
	pthread_mutex_unlock(&r->mu);
	return NULL;
}

/* It waits for as long as one likes, and says for whom. */
static void wait_until_logged(struct reading *r, const char *says)
{
	bool told = false;
	pthread_mutex_lock(&r->mu);
	r->told[0] = '\0';
	pthread_mutex_unlock(&r->mu);
	while (!told) {
		vclock_advance_ms(&r->p->clock, 6 * SL__EXPORT_DB_LOG_MS + 1);
		(void)usleep(1000);
		pthread_mutex_lock(&r->mu);
		assert_false(r->ended);
		told = strstr(r->told, says) != NULL;
		pthread_mutex_unlock(&r->mu);
	}
}

/* Number 3 is drawn by a transaction that is still open (opened by `begin`), 4 is committed: nothing after 2 is given
 * until that one has ended by `end`; then comes what there is. prepare (may be NULL): what happens in between. */
static void check_wait(struct place *p, const char *begin, const char *prepare, const char *end, const char *says,
		       const char *rows)
{
	struct reading r = {.p = p, .mu = PTHREAD_MUTEX_INITIALIZER};
	PGconn *other = pg_temp_connect(server);
	p->env.log = take_log;
	p->env.log_ctx = &r;
	open_source(p);
	assert_int_equal(pg_temp_exec(other, begin), 0);
	run_sql(p, "INSERT INTO t VALUES (1), (2), (4)");
	assert_int_equal(pthread_create(&r.thread, NULL, read_on_thread, &r), 0);
	wait_until_logged(&r, prepare != NULL ? "pid " : says);
	if (prepare != NULL) {
		assert_int_equal(pg_temp_exec(other, prepare), 0);
		wait_until_logged(&r, says);
	}
	assert_int_equal(pg_temp_exec(other, end), 0);
	pthread_join(r.thread, NULL);
	assert_string_equal(p->text, rows);
	PQfinish(other);
}

static void a_number_of_an_open_transaction_is_waited_for_however_long_it_takes(void **state)
{
	run_sql(*state, "CREATE TABLE t (n bigint)");
	check_wait(*state, "SET application_name = 'slow one'; BEGIN; INSERT INTO t VALUES (3)", NULL, "COMMIT",
		   "slow one", "1\n2\n3\n4\n");
}

static void a_number_whose_transaction_rolls_back_is_a_hole(void **state)
{
	run_sql(*state, "CREATE TABLE t (n bigint)");
	check_wait(*state, "BEGIN; INSERT INTO t VALUES (3)", NULL, "ROLLBACK", "pid ", "1\n2\n4\n");
}

static void a_prepared_transaction_is_waited_for_and_named(void **state)
{
	run_sql(*state, "CREATE TABLE t (n bigint)");
	check_wait(*state, "BEGIN; INSERT INTO t VALUES (3); PREPARE TRANSACTION 'two phases'", NULL,
		   "COMMIT PREPARED 'two phases'", "prepared transaction two phases", "1\n2\n3\n4\n");
}

static void a_transaction_that_writes_to_a_partition_is_waited_for(void **state)
{
	run_sql(*state, "CREATE TABLE t (n bigint) PARTITION BY RANGE (n);"
			"CREATE TABLE t_low PARTITION OF t FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (n);"
			"CREATE TABLE t_lower PARTITION OF t_low FOR VALUES FROM (0) TO (50)");
	check_wait(*state, "BEGIN; INSERT INTO t_lower VALUES (3)", NULL, "COMMIT", "pid ", "1\n2\n3\n4\n");
}

static void a_transaction_that_is_prepared_meanwhile_is_still_waited_for(void **state)
{
	run_sql(*state, "CREATE TABLE t (n bigint)");
	check_wait(*state, "BEGIN; INSERT INTO t VALUES (3)", "PREPARE TRANSACTION 'later'", "COMMIT PREPARED 'later'",
		   "prepared transaction later", "1\n2\n3\n4\n");
}

/* An INSERT into the table above draws its number before it locks the partition. */
static void a_transaction_that_writes_through_the_table_above_is_waited_for(void **state)
{
	run_sql(*state, "DROP TABLE IF EXISTS top; CREATE TABLE top (n bigint) PARTITION BY RANGE (n);"
			"CREATE TABLE middle PARTITION OF top FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (n);"
			"CREATE TABLE t PARTITION OF middle FOR VALUES FROM (0) TO (50)");
	check_wait(*state, "BEGIN; LOCK TABLE ONLY top IN ROW EXCLUSIVE MODE", NULL,
		   "INSERT INTO top VALUES (3); COMMIT", "pid ", "1\n2\n3\n4\n");
	run_sql(*state, "DROP TABLE top");
}

static void the_rows_of_a_query_wait_for_every_writer(void **state)
{
	struct place *p = *state;
	run_sql(p, "CREATE TABLE t (n bigint)");
	p->opts.table = NULL;
	p->opts.query = "SELECT * FROM t";
	check_wait(p, "BEGIN; INSERT INTO t VALUES (3)", NULL, "COMMIT", "pid ", "1\n2\n3\n4\n");
}

static void readers_and_writers_of_other_tables_are_not_waited_for(void **state)
{
	struct place *p = *state;
	PGconn *other = pg_temp_connect(server);
	run_sql(p, "CREATE TABLE t (n bigint); DROP TABLE IF EXISTS u; CREATE TABLE u (n bigint);"
		   "INSERT INTO t VALUES (1), (2), (4)");
	assert_int_equal(pg_temp_exec(other, "BEGIN; SELECT * FROM t FOR SHARE; INSERT INTO u VALUES (3)"), 0);
	open_source(p);
	assert_string_equal(read_all(p, 1, SL__EXPORT_NO_END), "1\n2\n4\n");
	PQfinish(other);
}

static void a_new_dataset_begins_with_the_smallest_number_that_may_still_come(void **state)
{
	struct place *p = *state;
	struct sl_err err = SL_ERR_INIT;
	char buf[100];
	PGconn *other = pg_temp_connect(server);
	run_sql(p, "CREATE TABLE t (n bigint)");
	open_source(p);
	assert_int_equal(pg_temp_exec(other, "BEGIN; INSERT INTO t VALUES (3)"), 0);
	run_sql(p, "INSERT INTO t VALUES (4)");
	assert_int_equal(p->source.ops->begin(0, SL__EXPORT_NO_END, &err, p->source.ctx), 0);
	/* It waits; a wake ends that. */
	p->source.ops->wake(p->source.ctx);
	assert_int_equal(read_some(p, buf, sizeof(buf), &err), SL_ECANCELLED);
	PQfinish(other);
}

/* As a subscription to a publication with this table would have it. */
#define SUBSCRIBE(table)                                                                                               \
	"SET allow_system_table_mods = on; INSERT INTO pg_subscription_rel (srsubid, srrelid, srsubstate) VALUES (1, " \
	"'" table "'::regclass, 'r'); RESET allow_system_table_mods"

static void missing_numbers_are_recorded_only_where_they_cannot_arrive_later(void **state)
{
	static const struct {
		const char *sql, *table, *query;
		bool records;
	} cases[] = {
		{"CREATE TABLE t (n bigserial)", "t", NULL, true},
		{"CREATE TABLE t (n bigint GENERATED ALWAYS AS IDENTITY)", "public.t", NULL, true},
		{"CREATE TABLE t (n bigint) PARTITION BY RANGE (n)", "t", NULL, true},
		{"CREATE TABLE t (n bigint)", NULL, "SELECT * FROM t", false},
		{"CREATE TABLE t (n bigint GENERATED ALWAYS AS IDENTITY (CACHE 2))", "t", NULL, false},
		{"CREATE SEQUENCE q CACHE 9; CREATE TABLE t (n bigint DEFAULT nextval('q'))", "t", NULL, false},
		{"CREATE TABLE u (n bigint); CREATE VIEW t AS SELECT * FROM u", "t", NULL, false},
		{"CREATE TABLE job_events (n bigint)", "job_events", NULL, false},
		{"CREATE TABLE job_events (n bigint)", "public.job_events", NULL, false},
		/* What counts for a table counts for its partitions, and the other way round. */
		{"CREATE TABLE u (n bigserial) PARTITION BY RANGE (n); CREATE TABLE t PARTITION OF u DEFAULT;"
		 "ALTER SEQUENCE u_n_seq CACHE 5",
		 "t", NULL, false},
		{"CREATE TABLE t (n bigint)", "t", NULL, true},
		{"CREATE TABLE t (n bigint);" SUBSCRIBE("t"), "t", NULL, false},
		{"CREATE TABLE t (n bigint) PARTITION BY RANGE (n); CREATE TABLE u PARTITION OF t DEFAULT;" SUBSCRIBE(
			 "u"),
		 "t", NULL, false},
	};
	struct place *p = *state;
	for (size_t i = 0; i < SL_COUNT(cases); i++) {
		run_sql(p, "DROP SCHEMA public CASCADE; CREATE SCHEMA public");
		run_sql(p, cases[i].sql);
		p->opts.table = cases[i].table;
		p->opts.query = cases[i].query;
		open_source(p);
		if (p->source.records_gaps != cases[i].records)
			fail_msg("%s: records: %d", cases[i].sql, p->source.records_gaps);
		p->source.ops->close(p->source.ctx);
		p->source.ops = NULL;
	}
	run_sql(p, "SET allow_system_table_mods = on; DELETE FROM pg_subscription_rel; RESET allow_system_table_mods");
}

/* It does not see who writes on its primary. */
static void missing_numbers_are_not_recorded_on_a_standby(void **state)
{
	struct place *p = *state;
	run_sql(p, "CREATE TABLE t (n bigserial); INSERT INTO t VALUES (1), (2), (4)");
	assert_int_equal(pg_temp_command(server, "standby"), 0);
	open_source(p);
	assert_false(p->source.records_gaps);
	assert_string_equal(read_all(p, 1, SL__EXPORT_NO_END), "1\n2\n4\n");
	p->source.ops->close(p->source.ctx);
	p->source.ops = NULL;
	assert_int_equal(pg_temp_command(server, "primary"), 0);
}

static void nothing_that_postgres_sources_say_has_the_password(void **state)
{
	struct place *p = *state;
	struct sl_err err = SL_ERR_INIT;
	char url[1024];
	const char *host = strstr(p->url, "@/");
	run_sql(p, "CREATE TABLE t (n bigint)");
	(void)snprintf(url, sizeof(url), "postgres://postgres:hush-hush%s", host);
	p->opts.from = url;
	open_source(p);
	assert_null(strstr(p->source.ops->describe(p->source.ctx), "hush"));
	p->source.ops->close(p->source.ctx);
	p->source.ops = NULL;
	p->opts.from = "postgres://u:hush-hush@127.0.0.1:1/x";
	assert_int_equal(open_it(p, &err), SL_EUNAVAIL);
	assert_null(strstr(err.msg, "hush"));
}

#define BOTH(test)                                                                                                     \
	{"sqlite: " #test, test, set_up_sqlite, tear_down, NULL},                                                      \
	{                                                                                                              \
		"postgres: " #test, test, set_up_postgres, tear_down, NULL                                             \
	}
#define SQLITE(test) cmocka_unit_test_setup_teardown(test, set_up_sqlite, tear_down)
#define POSTGRES(test) cmocka_unit_test_setup_teardown(test, set_up_postgres, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(rows_come_in_order_and_nulls_differ_from_empty_texts),
		BOTH(only_rows_between_the_bounds_come),
		BOTH(the_sequence_may_be_any_column_and_has_no_nulls),
		BOTH(a_query_may_end_with_a_semicolon_or_a_comment),
		BOTH(a_number_that_is_there_twice_is_given_twice_also_between_chunks),
		BOTH(a_row_after_a_gap_is_returned_when_the_gap_can_no_longer_be_filled),
		BOTH(a_row_without_a_number_is_refused),
		BOTH(a_wrong_table_query_or_column_is_reported),
		BOTH(a_source_that_was_woken_gives_no_more),
		SQLITE(sqlite_columns_have_the_types_that_are_declared),
		SQLITE(sqlite_decimals_have_the_scale_that_is_declared),
		SQLITE(a_sqlite_number_that_is_a_text_is_refused),
		SQLITE(writers_of_the_sqlite_file_are_not_blocked_between_reads),
		POSTGRES(postgres_columns_have_the_types_of_the_result),
		POSTGRES(a_postgres_sequence_of_another_type_is_refused),
		BOTH(a_row_in_a_hole_is_found_also_after_a_lost_connection),
		POSTGRES(a_lost_postgres_connection_is_made_again_and_reading_resumes_after_the_last_row),
		POSTGRES(reading_resumes_after_the_last_row_when_postgres_cancels_the_statement),
		POSTGRES(a_read_that_waits_for_postgres_ends_when_it_is_woken),
		POSTGRES(a_number_of_an_open_transaction_is_waited_for_however_long_it_takes),
		POSTGRES(a_number_whose_transaction_rolls_back_is_a_hole),
		POSTGRES(a_prepared_transaction_is_waited_for_and_named),
		POSTGRES(a_transaction_that_writes_to_a_partition_is_waited_for),
		POSTGRES(a_transaction_that_is_prepared_meanwhile_is_still_waited_for),
		POSTGRES(a_transaction_that_writes_through_the_table_above_is_waited_for),
		POSTGRES(the_rows_of_a_query_wait_for_every_writer),
		POSTGRES(readers_and_writers_of_other_tables_are_not_waited_for),
		POSTGRES(a_new_dataset_begins_with_the_smallest_number_that_may_still_come),
		POSTGRES(missing_numbers_are_recorded_only_where_they_cannot_arrive_later),
		POSTGRES(missing_numbers_are_not_recorded_on_a_standby),
		POSTGRES(nothing_that_postgres_sources_say_has_the_password),
	};
	server = pg_temp_start(PG_TEMP_FAST);
	if (server == NULL)
		return pg_temp_missing();
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	pg_temp_stop(server);
	return failed;
}
