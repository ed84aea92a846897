/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the PostgreSQL sink makes of values: whatever way they take, the column must hold what the server's own input
 * function makes of the text, and what that refuses must be refused. Then what tables can be like: defaults, domains,
 * enums, keys that repeat, other schemas, columns that change, connections that are cut.
 */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sink/contract.h"
#include "sink/postgres.h"
#include "support/pg.h"

static struct pg_temp *pg;
static PGconn *admin;

static void run(const char *sql)
{
	if (pg_temp_exec(admin, sql) != 0)
		abort();
}

static sl_sink open_sink(struct sl_sink_opts opts)
{
	sl_sink sink;
	struct sl_err err = SL_ERR_INIT;
	opts.struct_size = sizeof(opts);
	if (opts.table == NULL)
		opts.table = "t";
	int rc = sl_sink_open(&sink, pg_temp_url(pg), &opts, &err);
	if (rc != 0)
		fail_msg("%s", err.msg);
	return sink;
}

/* Write records as one batch. */
static int write_texts(const sl_sink *sink, void *lane, const char *const *texts, size_t n, struct sl_sink_reply *reply,
		       struct sl_err *err)
{
	struct sl_sink_item items[64];
	static uint8_t outcomes[64];
	assert_true(n <= 64);
	for (size_t i = 0; i < n; i++)
		items[i] = (struct sl_sink_item){.data = texts[i], .len = strlen(texts[i])};
	return sink_write(sink, lane, items, n, reply, outcomes, err);
}

static int write_one(const sl_sink *sink, void *lane, const char *text, struct sl_err *err)
{
	struct sl_sink_reply reply;
	int rc = write_texts(sink, lane, &text, 1, &reply, err);
	if (rc != 0)
		print_message("# %s: %s\n", text, err->msg);
	return rc;
}

static char *first_value(const char *sql)
{
	static char value[4096];
	PGresult *r = PQexec(admin, sql);
	if (PQresultStatus(r) != PGRES_TUPLES_OK || PQntuples(r) == 0)
		(void)snprintf(value, sizeof(value), "(%s)", PQresultErrorMessage(r));
	else
		(void)snprintf(value, sizeof(value), "%s", PQgetisnull(r, 0, 0) ? "(null)" : PQgetvalue(r, 0, 0));
	PQclear(r);
	return value;
}

/* The server's own reading of a text as a type, as text again; NULL: it refuses it. */
static const char *server_reads(const char *type, const char *text)
{
	static char value[4096];
	char sql[128];
	const char *params[] = {text};
	(void)snprintf(sql, sizeof(sql), "SELECT ($1::text::%s)::text", type);
	PGresult *r = PQexecParams(admin, sql, 1, NULL, params, NULL, NULL, 0);
	bool fine = PQresultStatus(r) == PGRES_TUPLES_OK;
	(void)snprintf(value, sizeof(value), "%s", fine ? PQgetvalue(r, 0, 0) : "");
	PQclear(r);
	return fine ? value : NULL;
}

static const struct {
	const char *type;
	const char *texts[32];
} values[] = {
	{"smallint",
	 {"0", "-0", "+7", "32767", "-32768", "32768", "-32769", "x", " 5", "5 ", "1.0", "", "1e2", "99999999999"}},
	{"integer", {"2147483647", "-2147483648", "2147483648", "-2147483649", "007", "--1", "+", "-"}},
	{"bigint",
	 {"9223372036854775807", "-9223372036854775808", "9223372036854775808", "-9223372036854775809",
	  "18446744073709551616", "92233720368547758070", "000000000000000000000000000001"}},
	{"double precision",
	 {"0",
	  "-0",
	  "1.5",
	  "190.25",
	  "-0.1",
	  ".5",
	  "5.",
	  ".",
	  "1e10",
	  "1E-10",
	  "1e400",
	  "1e-400",
	  "1e-310",
	  "123456789012345678",
	  "0.1234567890123456789",
	  "179769313486231570000000000000",
	  "NaN",
	  "Infinity",
	  "-inf",
	  "abc",
	  "1e",
	  "1e+",
	  " 2.5 ",
	  "0x1F",
	  "999999999999999",
	  "0.000001",
	  "4.35",
	  "0.000000000000001",
	  "9007199254740993",
	  "1_000"}},
	{"real", {"0.1", "3.4028235e38", "3.5e38", "1e-45", "16777217", "1.17549435e-38", "x"}},
	{"numeric",
	 {"0",
	  "0.00",
	  "-0",
	  "1",
	  "-1.10",
	  "10000",
	  "9999.9999",
	  "0.0001",
	  "0.00001",
	  "100000000",
	  ".5",
	  "5.",
	  "123456789012345678901234567890.123456789",
	  "1e5",
	  "1e-5",
	  "NaN",
	  "abc",
	  "+3",
	  "00012.3400",
	  "."}},
	{"numeric(6,2)", {"1.005", "9999.99", "9999.995", "12345.6", "-1.235"}},
	{"boolean", {"true", "false", "t", "f", "1", "0", "yes", "off", "TRUE", "maybe", ""}},
	{"date",
	 {"2000-01-01", "1999-12-31", "1900-02-28", "1900-02-29", "2000-02-29", "2024-13-01", "0001-01-01",
	  "9999-12-31", "2024-1-2", "Jan 5 2024", "infinity", "20240105", "epoch", "2024-01-05x"}},
	{"timestamp",
	 {"2024-01-02 03:04:05", "2024-01-02T03:04:05.123456", "2024-01-02T03:04:05.1234567", "2024-01-02",
	  "1969-12-31 23:59:59.5", "2024-01-02T03:04:05Z", "2024-01-02 03:04:05+02", "2024-01-02 24:00:00",
	  "2024-01-02 23:59:60", "2024-01-02 25:00", "2024-01-02 03:04", "now is", "1700-02-28 00:00:00",
	  "2024-01-02 03:04:05."}},
	{"timestamptz",
	 {"2024-01-02 03:04:05+00", "2024-01-02T03:04:05+02:00", "2024-01-02T03:04:05-0730", "2024-01-02T03:04:05.5Z",
	  "2024-01-02 03:04:05 Europe/Berlin", "2024-01-02 03:04:05", "2024-01-02T03:04:05+16:00",
	  "2024-01-02T03:04:05+15:59", "1850-05-05T12:00:00-00:30"}},
	{"uuid",
	 {"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
	  "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}", "a0eebc999c0b4ef8bb6d6bb9bd380a11", "a0eebc99",
	  "g0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}},
	{"bytea", {"\\x", "\\x00ff", "\\xABcd", "\\x0", "\\xzz", "abc", "a\\\\b", "a\\001"}},
	{"text", {"", "plain", "t\tab", "new\nline", "back\\slash", "\\N", "\\.", "\xc3\xa9", "a,b", "\r"}},
	{"varchar(3)", {"abc", "abcd", "abc  ", ""}},
	{"char(4)", {"ab", "abcd", "abcde", "abcd   "}},
	{"json", {"{\"a\": 1}", "[1,2]", "x", "\"s\"", ""}},
	{"jsonb", {"{\"a\": 1, \"a\": 2}", "[1, 2]", "tru", "null", "1.50"}},
	{"inet", {"10.0.0.1", "10.0.0.0/8", "x"}},
	{"integer[]", {"{1,2}", "{}", "{x}"}},
	{"interval", {"1 day", "x"}},
	{"time", {"12:34:56", "25:00"}},
};

/* One CSV field, quoted. */
static void quote(char *out, const char *text)
{
	*out++ = '"';
	for (; *text != '\0'; text++) {
		if (*text == '"')
			*out++ = '"';
		*out++ = *text;
	}
	*out++ = '"';
	*out = '\0';
}

static unsigned refused_count, taken_count;

static void check_value(const sl_sink *sink, void *lane, const char *type, const char *text)
{
	char record[512], expected[4096];
	struct sl_err err = SL_ERR_INIT;
	run("TRUNCATE t");
	quote(record, text);
	const char *server = server_reads(type, text);
	int rc = write_one(sink, lane, record, &err);
	if (server == NULL) {
		if (rc == 0)
			fail_msg("%s '%s' was taken as %s", type, text, first_value("SELECT v::text FROM t"));
		assert_int_equal(err.error_class, SL_CLASS_POISON);
		refused_count++;
		return;
	}
	(void)snprintf(expected, sizeof(expected), "%s", server);
	if (rc != 0)
		fail_msg("%s '%s' was refused: %s", type, text, err.msg);
	const char *got = first_value("SELECT v::text FROM t");
	if (strcmp(got, expected) != 0)
		fail_msg("%s '%s' became %s, not %s", type, text, got, expected);
	taken_count++;
}

/* varchar(3) and char(4) of a cast cut what an assignment refuses: there the server is asked by an INSERT. */
static bool is_sized(const char *type)
{
	return strchr(type, '(') != NULL && strncmp(type, "numeric", 7) != 0;
}

static void check_sized(const sl_sink *sink, void *lane, const char *type, const char *text)
{
	char record[512];
	const char *params[] = {text};
	struct sl_err err = SL_ERR_INIT;
	run("TRUNCATE t");
	PGresult *r =
		PQexecParams(admin, "INSERT INTO t(v) VALUES ($1) RETURNING v::text", 1, NULL, params, NULL, NULL, 0);
	bool fine = PQresultStatus(r) == PGRES_TUPLES_OK;
	char expected[256];
	(void)snprintf(expected, sizeof(expected), "%s", fine ? PQgetvalue(r, 0, 0) : "");
	PQclear(r);
	run("TRUNCATE t");
	quote(record, text);
	int rc = write_one(sink, lane, record, &err);
	if ((rc == 0) != fine)
		fail_msg("%s '%s': %s", type, text, rc == 0 ? "taken" : err.msg);
	if (fine)
		assert_string_equal(first_value("SELECT v::text FROM t"), expected);
}

static void check_types(bool upsert)
{
	static const char *const columns[] = {"v"}, *const key[] = {"v"};
	for (size_t i = 0; i < SL_COUNT(values); i++) {
		char sql[128];
		run("SET TimeZone = 'UTC'; DROP TABLE IF EXISTS t");
		/* json has no equality, and so no key. */
		bool keyed = upsert && strcmp(values[i].type, "json") != 0;
		(void)snprintf(sql, sizeof(sql), "CREATE TABLE t(v %s%s)", values[i].type, keyed ? " UNIQUE" : "");
		run(sql);
		sl_sink sink = open_sink((struct sl_sink_opts){.format = SL_ROWS_CSV,
							       .columns = columns,
							       .n_columns = 1,
							       .null_text = "NULL",
							       .on_conflict = keyed ? key : NULL,
							       .n_on_conflict = keyed ? 1 : 0});
		void *lane = sink_attach(&sink);
		for (size_t k = 0; values[i].texts[k] != NULL; k++) {
			if (is_sized(values[i].type))
				check_sized(&sink, lane, values[i].type, values[i].texts[k]);
			else
				check_value(&sink, lane, values[i].type, values[i].texts[k]);
		}
		sink_detach(&sink, lane);
		sl_sink_close(&sink);
	}
	assert_true(refused_count > 30 && taken_count > 60);
}

static void appended_values_are_what_the_server_reads(void **state)
{
	(void)state;
	check_types(false);
}

static void upserted_values_are_what_the_server_reads(void **state)
{
	(void)state;
	check_types(true);
}

/* Numbers of many shapes, in batches of one column, against the server's casts. */
static void random_numbers_are_what_the_server_reads(void **state)
{
	static const char *const types[] = {"double precision", "numeric", "real"};
	static const char *const columns[] = {"text", "v"};
	unsigned seed = 12345;
	(void)state;
	for (size_t t = 0; t < SL_COUNT(types); t++) {
		char sql[128];
		run("DROP TABLE IF EXISTS t");
		(void)snprintf(sql, sizeof(sql), "CREATE TABLE t(text text, v %s)", types[t]);
		run(sql);
		sl_sink sink =
			open_sink((struct sl_sink_opts){.format = SL_ROWS_CSV, .columns = columns, .n_columns = 2});
		void *lane = sink_attach(&sink);
		for (int batch = 0; batch < 40; batch++) {
			char records[64][96];
			const char *texts[64];
			struct sl_sink_reply reply;
			struct sl_err err = SL_ERR_INIT;
			for (size_t i = 0; i < 64; i++) {
				char number[40];
				size_t n = 0, digits = 1 + (size_t)rand_r(&seed) % 20,
				       dot = (size_t)rand_r(&seed) % (digits + 2);
				if (rand_r(&seed) % 2 == 0)
					number[n++] = '-';
				for (size_t d = 0; d < digits; d++) {
					if (d == dot)
						number[n++] = '.';
					number[n++] = (char)('0' + rand_r(&seed) % 10);
				}
				number[n] = '\0';
				(void)snprintf(records[i], sizeof(records[i]), "%s,%s", number, number);
				texts[i] = records[i];
			}
			if (write_texts(&sink, lane, texts, 64, &reply, &err) != 0)
				fail_msg("%s", err.msg);
		}
		(void)snprintf(sql, sizeof(sql),
			       "SELECT count(*) FROM t WHERE v = text::%s AND v::text = text::%s::text", types[t],
			       types[t]);
		assert_int_equal(pg_temp_number(admin, sql), 40 * 64);
		sink_detach(&sink, lane);
		sl_sink_close(&sink);
	}
}

static void every_class_of_states_is_one_of_the_four(void **state)
{
	static const struct {
		const char *state;
		enum sl_err_class error_class;
	} known[] = {
		{"08006", SL_CLASS_FATAL},     {"22P02", SL_CLASS_POISON},    {"23505", SL_CLASS_POISON},
		{"40001", SL_CLASS_TRANSIENT}, {"40P01", SL_CLASS_TRANSIENT}, {"42P01", SL_CLASS_FATAL},
		{"53100", SL_CLASS_FATAL},     {"53200", SL_CLASS_TRANSIENT}, {"53300", SL_CLASS_THROTTLED},
		{"54000", SL_CLASS_POISON},    {"55P03", SL_CLASS_TRANSIENT}, {"57014", SL_CLASS_TRANSIENT},
		{"57P01", SL_CLASS_FATAL},     {"57P03", SL_CLASS_FATAL},     {"28P01", SL_CLASS_FATAL},
		{"P0001", SL_CLASS_POISON},    {"XX000", SL_CLASS_TRANSIENT}, {"XX001", SL_CLASS_FATAL},
		{"25006", SL_CLASS_FATAL},     {"ZZ999", SL_CLASS_TRANSIENT},
	};
	(void)state;
	for (size_t i = 0; i < SL_COUNT(known); i++)
		assert_int_equal(sl__pg_sink_class(known[i].state), known[i].error_class);
}

static void members_go_to_their_columns_and_the_rest_takes_its_default(void **state)
{
	static const char *const records[] = {
		"{\"name\":\"a\",\"n\":5}",       "{\"name\":\"b\"}",
		"{\"name\":\"c\",\"n\":null}",    "{\"name\":\"d\",\"doc\":{\"x\":[1,2]},\"tag\":\"red\"}",
		"{\"name\":\"e\",\"doc\":\"s\"}", "{\"name\":\"f\",\"big\":9007199254740993,\"even\":4}"};
	struct sl_sink_reply reply;
	struct sl_err err = SL_ERR_INIT;
	(void)state;
	run("DROP TABLE IF EXISTS t; DROP TYPE IF EXISTS colour; DROP DOMAIN IF EXISTS even_number;"
	    "CREATE TYPE colour AS ENUM ('red', 'green'); CREATE DOMAIN even_number AS bigint CHECK (VALUE % 2 = 0);"
	    "CREATE TABLE t(id bigint GENERATED ALWAYS AS IDENTITY, name text, n int DEFAULT 7, doc jsonb, tag colour,"
	    " big bigint, even even_number, twice int GENERATED ALWAYS AS (n * 2) STORED)");
	sl_sink sink = open_sink((struct sl_sink_opts){.format = SL_ROWS_JSON});
	void *lane = sink_attach(&sink);
	if (write_texts(&sink, lane, records, 6, &reply, &err) != 0)
		fail_msg("%s", err.msg);
	assert_string_equal(
		first_value("SELECT string_agg(format('%s=%s', name, coalesce(n::text, '-')), ' ' ORDER BY id)"
			    " FROM t"),
		"a=5 b=7 c=- d=7 e=7 f=7");
	assert_string_equal(first_value("SELECT doc->'x'->>1 FROM t WHERE tag = 'red'"), "2");
	assert_string_equal(first_value("SELECT doc::text FROM t WHERE name = 'e'"), "\"s\"");
	assert_string_equal(first_value("SELECT big FROM t WHERE even = 4"), "9007199254740993");
	/* The domain and the enum say no to one row; the server names it. */
	assert_int_equal(write_one(&sink, lane, "{\"even\":3}", &err), SL_EDATA);
	assert_int_equal(err.error_class, SL_CLASS_POISON);
	assert_int_equal(write_one(&sink, lane, "{\"tag\":\"blue\"}", &err), SL_EDATA);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

static void a_key_twice_in_a_batch_ends_as_its_last_value(void **state)
{
	static const char *const key[] = {"k"};
	static const char *const records[] = {"{\"k\":1,\"v\":\"a\"}", "{\"k\":2,\"v\":\"b\"}", "{\"k\":1,\"v\":\"c\"}",
					      "{\"k\":1,\"v\":\"d\"}", "{\"k\":2}"};
	struct sl_sink_reply reply;
	struct sl_err err = SL_ERR_INIT;
	(void)state;
	run("DROP TABLE IF EXISTS t; CREATE TABLE t(k int PRIMARY KEY, v text DEFAULT 'none')");
	sl_sink sink = open_sink((struct sl_sink_opts){.on_conflict = key, .n_on_conflict = 1});
	void *lane = sink_attach(&sink);
	for (int round = 0; round < 2; round++) {
		if (write_texts(&sink, lane, records, 5, &reply, &err) != 0)
			fail_msg("%s", err.msg);
		/* What is not there keeps its old value. */
		assert_string_equal(first_value("SELECT string_agg(k || v, ' ' ORDER BY k) FROM t"), "1d 2b");
	}
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

static void immutable_rows_are_never_replaced_by_others(void **state)
{
	static const char *const key[] = {"s", "n"};
	static const char *const again[] = {"{\"s\":\"x\",\"n\":1,\"v\":\"a\"}", "{\"s\":\"x\",\"n\":2}",
					    "{\"s\":\"x\",\"n\":3,\"v\":\"c\"}"};
	static const char *const other[] = {"{\"s\":\"x\",\"n\":4,\"v\":\"d\"}", "{\"s\":\"x\",\"n\":2,\"v\":\"b\"}"};
	struct sl_sink_reply reply;
	struct sl_err err = SL_ERR_INIT;
	(void)state;
	run("DROP TABLE IF EXISTS t; CREATE TABLE t(s text, n int, v text, PRIMARY KEY (s, n))");
	sl_sink sink =
		open_sink((struct sl_sink_opts){.on_conflict = key, .n_on_conflict = 2, .immutable_rows = SL_ON});
	void *lane = sink_attach(&sink);
	for (size_t n = 2; n <= 3; n++)
		if (write_texts(&sink, lane, again, n, &reply, &err) != 0)
			fail_msg("%s", err.msg);
	assert_int_equal(write_texts(&sink, lane, other, 2, &reply, &err), SL_ECONFLICT);
	assert_string_equal(first_value("SELECT string_agg(n || coalesce(v, '-'), ' ' ORDER BY n) FROM t"), "1a 2- 3c");
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

static void the_server_names_the_row_that_breaks_a_constraint(void **state)
{
	static const char *const columns[] = {"id", "n"};
	static const char *const records[] = {"1,1", "2,2", "3,-3", "4,4"};
	struct sl_sink_reply reply;
	struct sl_err err = SL_ERR_INIT;
	(void)state;
	run("DROP SCHEMA IF EXISTS \"Odd, one\" CASCADE; CREATE SCHEMA \"Odd, one\";"
	    "CREATE TABLE \"Odd, one\".\"My \"\"t, 9\"(id int PRIMARY KEY, n int CHECK (n > 0))");
	sl_sink sink = open_sink((struct sl_sink_opts){
		.table = "Odd, one.My \"t, 9", .format = SL_ROWS_CSV, .columns = columns, .n_columns = 2});
	void *lane = sink_attach(&sink);
	assert_int_equal(write_texts(&sink, lane, records, 4, &reply, &err), SL_EDATA);
	assert_int_equal(reply.culprit, 2);
	assert_string_equal(err.sqlstate, "23514");
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

/* A table t(v bigint) that has a 1, and a sink of lines for it. */
static sl_sink open_numbers(void **lane)
{
	static const char *const columns[] = {"v"};
	struct sl_err err = SL_ERR_INIT;
	run("DROP TABLE IF EXISTS t; CREATE TABLE t(v bigint)");
	sl_sink sink = open_sink((struct sl_sink_opts){.format = SL_ROWS_CSV, .columns = columns, .n_columns = 1});
	*lane = sink_attach(&sink);
	assert_int_equal(write_one(&sink, *lane, "1", &err), 0);
	return sink;
}

static void a_column_that_changes_its_type_is_noticed(void **state)
{
	struct sl_err err = SL_ERR_INIT;
	void *lane;
	(void)state;
	sl_sink sink = open_numbers(&lane);
	run("ALTER TABLE t ALTER v TYPE integer");
	assert_int_equal(write_one(&sink, lane, "2", &err), 0);
	run("ALTER TABLE t ALTER v TYPE bigint");
	assert_int_equal(write_one(&sink, lane, "3", &err), 0);
	run("ALTER TABLE t ALTER v TYPE double precision"); /* would read the same bytes as another number */
	assert_int_equal(write_one(&sink, lane, "4", &err), 0);
	run("ALTER TABLE t ALTER v TYPE text");
	assert_int_equal(write_one(&sink, lane, "5", &err), 0);
	assert_string_equal(first_value("SELECT string_agg(v, ' ' ORDER BY v) FROM t"), "1 2 3 4 5");
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

static void a_cut_connection_is_tried_again_uncharged(void **state)
{
	struct sl_err err = SL_ERR_INIT;
	void *lane;
	(void)state;
	sl_sink sink = open_numbers(&lane);
	run("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = 'sluice'");
	assert_int_not_equal(write_one(&sink, lane, "2", &err), 0);
	assert_int_equal(err.error_class, SL_CLASS_THROTTLED);
	assert_int_equal(write_one(&sink, lane, "2", &err), 0);
	assert_int_equal(pg_temp_number(admin, "SELECT count(*) FROM t"), 2);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

static void a_server_that_is_gone_is_fatal_until_it_is_back(void **state)
{
	struct sl_err err = SL_ERR_INIT;
	void *lane;
	(void)state;
	sl_sink sink = open_numbers(&lane);
	PQfinish(admin);
	assert_int_equal(pg_temp_command(pg, "stop"), 0);
	assert_int_not_equal(write_one(&sink, lane, "2", &err), 0);
	assert_int_equal(err.error_class, SL_CLASS_FATAL);
	assert_int_equal(pg_temp_command(pg, "start"), 0);
	admin = pg_temp_connect(pg);
	assert_int_equal(write_one(&sink, lane, "2", &err), 0);
	assert_int_equal(pg_temp_number(admin, "SELECT count(*) FROM t"), 2);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

static void tables_are_made_once_however_many_make_them(void **state)
{
	static const char *const key[] = {"symbol", "ts"};
	static const struct sl_column columns[] = {{"symbol", SL_COLUMN_TEXT, 1},   {"ts", SL_COLUMN_TIMESTAMP, 1},
						   {"open", SL_COLUMN_REAL, 0},     {"volume", SL_COLUMN_INTEGER, 0},
						   {"exact", SL_COLUMN_NUMERIC, 0}, {"up", SL_COLUMN_BOOLEAN, 0},
						   {"day", SL_COLUMN_DATE, 0},      {"more", SL_COLUMN_JSON, 0}};
	struct sl_sink_opts opts = {SL_SINK_OPTS_INIT, .table = "made", .on_conflict = key, .n_on_conflict = 2};
	struct sl_err err = SL_ERR_INIT;
	(void)state;
	run("DROP TABLE IF EXISTS made");
	for (int i = 0; i < 2; i++)
		if (sl_sink_create_table(pg_temp_url(pg), &opts, columns, 8, &err) != 0)
			fail_msg("%s", err.msg);
	assert_string_equal(first_value("SELECT string_agg(format_type(atttypid, NULL), ',' ORDER BY attnum)"
					" FROM pg_attribute WHERE attrelid = 'made'::regclass AND attnum > 0"),
			    "text,timestamp with time zone,double precision,bigint,numeric,boolean,date,jsonb");
	assert_int_equal(pg_temp_number(admin, "SELECT count(*) FROM pg_index WHERE indrelid = 'made'::regclass AND "
					       "indisprimary AND indnatts = 2"),
			 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(appended_values_are_what_the_server_reads),
		cmocka_unit_test(upserted_values_are_what_the_server_reads),
		cmocka_unit_test(random_numbers_are_what_the_server_reads),
		cmocka_unit_test(every_class_of_states_is_one_of_the_four),
		cmocka_unit_test(members_go_to_their_columns_and_the_rest_takes_its_default),
		cmocka_unit_test(a_key_twice_in_a_batch_ends_as_its_last_value),
		cmocka_unit_test(immutable_rows_are_never_replaced_by_others),
		cmocka_unit_test(the_server_names_the_row_that_breaks_a_constraint),
		cmocka_unit_test(a_column_that_changes_its_type_is_noticed),
		cmocka_unit_test(a_cut_connection_is_tried_again_uncharged),
		cmocka_unit_test(a_server_that_is_gone_is_fatal_until_it_is_back),
		cmocka_unit_test(tables_are_made_once_however_many_make_them),
	};
	pg = pg_temp_start(PG_TEMP_FAST);
	if (pg == NULL)
		return pg_temp_missing();
	admin = pg_temp_connect(pg);
	run("SET client_min_messages = error");
	int failed = cmocka_run_group_tests_name("postgres values", tests, NULL, NULL);
	PQfinish(admin);
	pg_temp_stop(pg);
	return failed;
}
