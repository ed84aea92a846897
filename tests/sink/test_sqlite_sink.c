/* SPDX-License-Identifier: Apache-2.0 */
/* What only the SQLite sink does: values by the kind of their column, upserts, defaults, tables that change. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "sink/contract.h"
#include "sink/place.h"

static struct place place;

static int set_up(void **state)
{
	(void)state;
	return place_init(&place, "db");
}

static int tear_down(void **state)
{
	(void)state;
	place_fini(&place);
	return 0;
}

/* Every row as its columns joined by '|', rows by '\n'; for statements without rows "". Valid until the next call. */
static const char *ask(const char *sql)
{
	static char text[4096];
	size_t n = 0;
	sqlite3 *db = NULL;
	sqlite3_stmt *s = NULL;
	assert_int_equal(sqlite3_open(place.path, &db), SQLITE_OK);
	for (const char *rest = sql; rest != NULL && *rest != '\0'; sqlite3_finalize(s)) {
		if (sqlite3_prepare_v2(db, rest, -1, &s, &rest) != SQLITE_OK)
			fail_msg("%s: %s", sql, sqlite3_errmsg(db));
		while (sqlite3_step(s) == SQLITE_ROW)
			for (int c = 0; c < sqlite3_column_count(s); c++)
				n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s",
						      c > 0   ? "|"
						      : n > 0 ? "\n"
							      : "",
						      (const char *)sqlite3_column_text(s, c));
	}
	text[n] = '\0';
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	return text;
}

static void opened(sl_sink *out, struct sl_sink_opts opts)
{
	struct sl_err err = SL_ERR_INIT;
	opts.struct_size = sizeof(opts);
	if (sl_sink_sqlite_open(out, place.path, &opts, &err) != 0)
		fail_msg("%s", err.msg);
}

/* Write records (NULL after the last) in one batch as a coordinator would. The positions of the dead, as text. */
static const char *load(struct sl_sink_opts opts, const char *const *records, struct sl_err *err)
{
	static char dead[256];
	struct sl_sink_item items[64];
	struct sink_delivery d = {.writes = 0};
	size_t n = 0, used = 0;
	sl_sink sink;
	for (; records[n] != NULL; n++)
		items[n] = (struct sl_sink_item){.data = records[n], .len = strlen(records[n]), .position = n + 1};
	opened(&sink, opts);
	void *lane = sink_attach(&sink);
	int rc = sink_deliver(&sink, lane, items, n, &d);
	if (err != NULL)
		*err = d.err;
	else if (rc != 0)
		fail_msg("%s", d.err.msg);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
	dead[0] = '\0';
	for (size_t i = 0; i < d.dead.n; i++)
		used += (size_t)snprintf(dead + used, sizeof(dead) - used, "%s%llu", i > 0 ? " " : "",
					 (unsigned long long)d.dead.at[i]);
	sink_delivery_fini(&d);
	return dead;
}

#define LOAD(...) load((struct sl_sink_opts){.table = "t"}, (const char *const[]){__VA_ARGS__, NULL}, NULL)
#define LOAD_CSV(...)                                                                                                  \
	load((struct sl_sink_opts){.table = "t", .format = SL_ROWS_CSV}, (const char *const[]){__VA_ARGS__, NULL}, NULL)

/* ---- keys ---- */

static uint64_t key_number(const sl_sink *sink, void *lane, const char *record)
{
	struct sl_err err = SL_ERR_INIT;
	uint64_t hash = 0;
	if (sink->ops->key(sink->ctx, lane, record, strlen(record), &hash, &err) != 0)
		fail_msg("%s: %s", record, err.msg);
	return hash;
}

/* The order of a key's records is kept by this number, so what the database takes for one key must have one number. */
static void keys_that_are_equal_for_the_database_have_one_number(void **state)
{
	(void)state;
	static const char *const key[] = {"k"};
	static const char *const equal[][2] = {{"\"A\"", "\"a\""},   {"\"Z\"", "\"z\""}, {"\"mIx\"", "\"MiX\""},
					       {"\"x\"", "\"x  \""}, {"1", "1.0"},       {"0", "-0.0"},
					       {"1", "\"1\""},       {"100", "\"1e2\""}, {"null", "null"},
					       {"\"\"", "\" \""}};
	static const char *const other[][2] = {{"\"a\"", "\"b\""}, {"1", "2"},          {"\"[\"", "\"{\""},
					       {"\"@\"", "\"`\""}, {"\"a\"", "\"aa\""}, {"\" a\"", "\"a\""}};
	sl_sink sink;
	ask("CREATE TABLE t(k PRIMARY KEY COLLATE NOCASE, v)");
	opened(&sink, (struct sl_sink_opts){.table = "t", .on_conflict = key, .n_on_conflict = 1});
	void *lane = sink_attach(&sink);
	for (size_t i = 0; i < sizeof(equal) / sizeof(equal[0]) + sizeof(other) / sizeof(other[0]); i++) {
		bool same = i < sizeof(equal) / sizeof(equal[0]);
		const char *const *pair = same ? equal[i] : other[i - sizeof(equal) / sizeof(equal[0])];
		uint64_t number[2];
		for (int k = 0; k < 2; k++) {
			char record[64];
			(void)snprintf(record, sizeof(record), "{\"k\":%s,\"v\":%d}", pair[k], k);
			number[k] = key_number(&sink, lane, record);
		}
		if ((number[0] == number[1]) != same)
			fail_msg("%s and %s", pair[0], pair[1]);
	}
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

/* ---- values ---- */

static void csv_text_becomes_what_its_column_holds(void **state)
{
	(void)state;
	ask("CREATE TABLE t(i INTEGER, r REAL, s TEXT, n NUMERIC, b BLOB)");
	assert_string_equal(LOAD_CSV("123,1.5,007,42,42", "-9223372036854775808,1e3,\"\",1.50,x", " 7 ,-0.1,,abc,",
				     "true,3,TRUE,12345678901234567890,f"),
			    "");
	assert_string_equal(ask("SELECT typeof(i)||':'||i, typeof(r)||':'||r, typeof(s)||':'||ifnull(s,'-'), "
				"typeof(n)||':'||n, typeof(b)||':'||ifnull(b,'-') FROM t"),
			    "integer:123|real:1.5|text:007|integer:42|text:42\n"
			    "integer:-9223372036854775808|real:1000.0|text:|real:1.5|text:x\n"
			    "integer:7|real:-0.1|null:-|text:abc|null:-\n"
			    "integer:1|real:3.0|text:TRUE|real:1.23456789012346e+19|text:f");
}

static void json_values_keep_their_digits_and_their_kind(void **state)
{
	(void)state;
	ask("CREATE TABLE t(i INTEGER, r REAL, s TEXT, x)");
	assert_string_equal(
		LOAD("{\"i\":9007199254740993,\"r\":0.1,\"s\":9007199254740993.10,\"x\":12345678901234567890}",
		     "{\"i\":true,\"r\":2,\"s\":false,\"x\":{\"a\": [1, 2]}}",
		     "{\"i\":null,\"r\":1.7976931348623157e308,\"s\":\"a\\u00e9\\n\",\"x\":\"b\\\"c\"}",
		     "{\"i\":\"12\",\"r\":\"1e-5\",\"s\":[],\"x\":2.5}"),
		"");
	assert_string_equal(ask("SELECT i, typeof(r)||':'||r, s, typeof(x)||':'||x FROM t WHERE rowid <> 3"),
			    "9007199254740993|real:0.1|9007199254740993.10|text:12345678901234567890\n"
			    "1|real:2.0|false|text:{\"a\": [1, 2]}\n"
			    "12|real:1.0e-05|[]|real:2.5");
	assert_string_equal(ask("SELECT typeof(i), r = 1.7976931348623157e308, s = 'a'||char(233)||char(10), x FROM t "
				"WHERE rowid = 3"),
			    "null|1|1|b\"c");
}

static void every_double_is_the_nearest_one(void **state)
{
	(void)state;
	char records[40][48];
	const char *list[41] = {NULL};
	ask("CREATE TABLE t(r REAL)");
	srand(7);
	for (int i = 0; i < 40; i++) {
		int digits = 1 + rand() % 19, n = snprintf(records[i], sizeof(records[i]), "%s", i % 2 ? "-" : "");
		for (int k = 0; k < digits; k++)
			n += snprintf(records[i] + n, sizeof(records[i]) - (size_t)n, "%s%d",
				      k == digits / 3 ? "." : "", rand() % 10);
		(void)snprintf(records[i] + n, sizeof(records[i]) - (size_t)n, "e%d", rand() % 60 - 30);
		list[i] = records[i];
	}
	assert_string_equal(load((struct sl_sink_opts){.table = "t", .format = SL_ROWS_CSV}, list, NULL), "");
	sqlite3 *db = NULL;
	sqlite3_stmt *q = NULL;
	assert_int_equal(sqlite3_open(place.path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "SELECT r FROM t ORDER BY rowid", -1, &q, NULL), SQLITE_OK);
	for (int i = 0; i < 40; i++) {
		assert_int_equal(sqlite3_step(q), SQLITE_ROW);
		assert_true(sqlite3_column_double(q, 0) == strtod(records[i], NULL));
	}
	(void)sqlite3_finalize(q);
	(void)sqlite3_close(db);
}

static void numbers_at_the_edges_are_exact_or_refused(void **state)
{
	(void)state;
	ask("CREATE TABLE t(i INTEGER, r REAL)");
	/* Of the reals: the last that one multiplication gets right, the next ones, and those beyond a double. */
	assert_string_equal(LOAD_CSV("9223372036854775807,1e22", "-9223372036854775808,123456789012345e22",
				     "-9223372036854775809,1", "0000000000000000000000000000007,1e23", "+8,.5", "-9,5.",
				     "-0,-0.0", "10,1e308", "1,1e309", "1,-1e309", "1,1e999999999999999",
				     "11,1e-999999999999999", "1,.", "1,-", "1,+", "1,1e", "1,1e+", "1,0x10", "1,1 2",
				     "1,nan", "-,1", "+,1", "t,12345678901234567890"),
			    "3 9 10 11 13 14 15 16 17 18 19 20 21 22");
	assert_string_equal(
		ask("SELECT i, r = 1e22, r = 123456789012345e22, r = 1e23, r = .5, r = 5, r = 0, r = 1e308, "
		    "r = 12345678901234567890.0 FROM t ORDER BY rowid"),
		"9223372036854775807|1|0|0|0|0|0|0|0\n-9223372036854775808|0|1|0|0|0|0|0|0\n7|0|0|1|0|0|0|0|0\n"
		"8|0|0|0|1|0|0|0|0\n-9|0|0|0|0|1|0|0|0\n0|0|0|0|0|0|1|0|0\n10|0|0|0|0|0|0|1|0\n11|0|0|0|0|0|1|0|0\n"
		"1|0|0|0|0|0|0|0|1");
}

/* 2^53 + 1 is not a double: multiplied by ten after it was rounded, it would be another one. */
static void sixteen_digits_are_not_rounded_twice(void **state)
{
	(void)state;
	ask("CREATE TABLE t(i INTEGER, r REAL)");
	assert_string_equal(LOAD_CSV("1,9007199254740993e1"), "");
	assert_string_equal(ask("SELECT r = 90071992547409936 FROM t"), "1");
}

static void a_number_too_long_to_be_copied_is_converted_by_the_database(void **state)
{
	char record[300];
	(void)state;
	ask("CREATE TABLE t(i INTEGER, r REAL)");
	int n = snprintf(record, sizeof(record), "1,0.");
	for (int i = 0; i < 200; i++)
		record[n++] = (char)('0' + (i + 1) % 10);
	record[n] = '\0';
	assert_string_equal(LOAD_CSV(record), "");
	assert_string_equal(ask("SELECT typeof(r), abs(r - 0.1234567890123456) < 1e-15 FROM t"), "real|1");
}

static void a_column_of_any_kind_keeps_the_digits_that_a_double_would_lose(void **state)
{
	(void)state;
	ask("CREATE TABLE t(x, n NUMERIC, s TEXT)");
	assert_string_equal(LOAD("{\"x\":0.12345678901234567,\"n\":1.5,\"s\":true}",
				 "{\"x\":0.123456789012345678,\"n\":9223372036854775807,\"s\":\"\"}",
				 "{\"x\":9223372036854775808,\"n\":true,\"s\":null}",
				 "{\"x\":\"a\\u0000b\",\"n\":1,\"s\":\"z\"}"),
			    "4");
	assert_string_equal(
		ask("SELECT typeof(x), typeof(n)||':'||n, ifnull(typeof(s)||':'||s, '-') FROM t ORDER BY rowid"),
		"real|real:1.5|text:true\ntext|integer:9223372036854775807|text:\ntext|integer:1|-");
}

static void values_that_a_column_does_not_take_are_refused_alone(void **state)
{
	(void)state;
	ask("CREATE TABLE t(i INTEGER, r REAL CHECK (r < 100), u TEXT UNIQUE)");
	assert_string_equal(LOAD_CSV("1,1,a", "x,1,b", "2,y,c", "9223372036854775808,1,d", "3,100,e", "4,4,a", "5,5,f",
				     "6,6", "7,7,g,7", "8,8,\"h\"x", "9,9,i"),
			    "2 3 4 5 6 8 9 10");
	assert_string_equal(ask("SELECT i, u FROM t"), "1|a\n5|f\n9|i");
}

static void the_error_of_a_refused_row_is_its_own(void **state)
{
	struct sl_err err;
	(void)state;
	ask("CREATE TABLE t(i INTEGER NOT NULL, u TEXT UNIQUE)");
	const char *const bad_kind[] = {"{\"i\":1,\"u\":\"a\"}", "{\"i\":\"x\"}", NULL};
	const char *const twice[] = {"{\"i\":2,\"u\":\"a\"}", NULL};
	const char *const no_column[] = {"{\"i\":2,\"w\":1}", NULL};
	assert_string_equal(load((struct sl_sink_opts){.table = "t"}, bad_kind, &err), "2");
	assert_string_equal(err.msg, "column i accepts only integers");
	assert_string_equal(load((struct sl_sink_opts){.table = "t"}, twice, &err), "1");
	assert_non_null(strstr(err.msg, "UNIQUE constraint failed: t.u"));
	assert_string_equal(load((struct sl_sink_opts){.table = "t"}, no_column, &err), "1");
	assert_non_null(strstr(err.msg, "w"));
}

static void the_first_of_two_refused_rows_is_reported_and_the_second_left_for_later(void **state)
{
	/* The third cannot be read, which shows before the second is found to be there already. */
	static const char *const records[] = {"{\"u\":\"a\"}", "{\"u\":\"a\"}", "{", "{\"u\":\"b\"}"};
	struct sl_sink_item items[4];
	struct sl_sink_reply reply;
	uint8_t outcomes[4];
	struct sl_err err;
	sl_sink sink;
	(void)state;
	ask("CREATE TABLE t(u TEXT UNIQUE)");
	for (int i = 0; i < 4; i++)
		items[i] = (struct sl_sink_item){.data = records[i], .len = strlen(records[i])};
	opened(&sink, (struct sl_sink_opts){.table = "t"});
	void *lane = sink_attach(&sink);
	assert_int_equal(sink_write(&sink, lane, items, 4, &reply, outcomes, &err), SL_EDATA);
	assert_non_null(strstr(err.msg, "UNIQUE"));
	assert_int_equal(outcomes[0], SL_SINK_WRITTEN);
	assert_int_equal(outcomes[1], SL_SINK_POISON);
	assert_int_equal(outcomes[2], SL_SINK_AS_BATCH);
	assert_int_equal(outcomes[3], SL_SINK_AS_BATCH);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
	assert_string_equal(ask("SELECT u FROM t"), "a");
}

static void strict_tables_refuse_what_their_types_do_not_hold(void **state)
{
	(void)state;
	ask("CREATE TABLE t(i INTEGER, a ANY) STRICT");
	assert_string_equal(LOAD("{\"i\":1,\"a\":\"007\"}", "{\"i\":1.5}", "{\"i\":2.0,\"a\":7}"), "2");
	assert_string_equal(ask("SELECT i, typeof(a), a FROM t"), "1|text|007\n2|integer|7");
}

/* ---- columns ---- */

static void members_that_are_not_there_get_the_default(void **state)
{
	(void)state;
	ask("CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT DEFAULT 'x', b INTEGER NOT NULL DEFAULT 5, "
	    "g INTEGER AS (b * 2))");
	assert_string_equal(LOAD("{\"id\":1}", "{\"a\":null,\"id\":2,\"b\":1}", "{}", "{\"b\":7}"), "");
	assert_string_equal(ask("SELECT id, ifnull(a,'-'), b, g FROM t"), "1|x|5|10\n2|-|1|2\n3|x|5|10\n4|x|7|14");
}

static void csv_columns_are_taken_in_the_order_that_was_named(void **state)
{
	static const char *const columns[] = {"C", "a"};
	(void)state;
	ask("CREATE TABLE t(a INTEGER, b TEXT DEFAULT 'd', c TEXT)");
	const char *const records[] = {"x,1", "NA,2", "\"NA\",3", NULL};
	load(
		(struct sl_sink_opts){
			.table = "t", .format = SL_ROWS_CSV, .columns = columns, .n_columns = 2, .null_text = "NA"},
		records, NULL);
	assert_string_equal(ask("SELECT a, b, ifnull(c, '-') FROM t"), "1|d|x\n2|d|-\n3|d|NA");
}

static void names_with_quotes_and_many_columns_are_written(void **state)
{
	char sql[8192], record[8192];
	(void)state;
	int n = snprintf(sql, sizeof(sql), "CREATE TABLE \"my \"\"t\"\"\"(\"a \"\"b\"\"\""),
	    m = snprintf(record, sizeof(record), "{\"a \\\"b\\\"\":0");
	for (int i = 1; i < 300; i++) {
		n += snprintf(sql + n, sizeof(sql) - (size_t)n, ",c%d", i);
		if (i % 7 != 0)
			m += snprintf(record + m, sizeof(record) - (size_t)m, ",\"c%d\":%d", i, i);
	}
	(void)snprintf(sql + n, sizeof(sql) - (size_t)n, ")");
	(void)snprintf(record + m, sizeof(record) - (size_t)m, "}");
	ask(sql);
	const char *const records[] = {record, record, NULL};
	assert_string_equal(load((struct sl_sink_opts){.table = "my \"t\""}, records, NULL), "");
	assert_string_equal(ask("SELECT \"a \"\"b\"\"\", c299, c7, count(*) FROM \"my \"\"t\"\"\""), "0|299|(null)|2");
}

/* ---- upserts ---- */

static void an_upsert_changes_what_the_record_has(void **state)
{
	static const char *const key[] = {"k"};
	(void)state;
	ask("CREATE TABLE t(k TEXT PRIMARY KEY, a INTEGER, b INTEGER DEFAULT 9)");
	const char *const records[] = {"{\"k\":\"x\",\"a\":1,\"b\":1}", "{\"k\":\"y\",\"a\":2}",
				       "{\"k\":\"x\",\"a\":3}", "{\"k\":\"x\"}", NULL};
	const struct sl_sink_opts opts = {.table = "t", .on_conflict = key, .n_on_conflict = 1};
	assert_string_equal(load(opts, records, NULL), "");
	assert_string_equal(load(opts, records, NULL), "");
	assert_string_equal(ask("SELECT * FROM t ORDER BY k"), "x|3|1\ny|2|9");
}

static void immutable_rows_are_never_replaced_by_others(void **state)
{
	static const char *const key[] = {"s", "n"};
	static const char *const first[] = {"{\"s\":\"x\",\"n\":1,\"v\":\"a\"}", "{\"s\":\"x\",\"n\":2}", NULL};
	static const char *const again[] = {"{\"s\":\"x\",\"n\":1,\"v\":\"a\"}", "{\"s\":\"x\",\"n\":2}",
					    "{\"s\":\"x\",\"n\":3,\"v\":\"c\"}", NULL};
	static const char *const other[] = {"{\"s\":\"x\",\"n\":4,\"v\":\"d\"}", "{\"s\":\"x\",\"n\":2,\"v\":\"b\"}",
					    NULL};
	const struct sl_sink_opts opts = {
		.table = "t", .on_conflict = key, .n_on_conflict = 2, .immutable_rows = SL_ON};
	struct sl_err err = SL_ERR_INIT;
	(void)state;
	ask("CREATE TABLE t(s TEXT, n INTEGER, v TEXT, PRIMARY KEY (s, n))");
	assert_string_equal(load(opts, first, NULL), "");
	assert_string_equal(load(opts, again, NULL), "");
	load(opts, other, &err);
	assert_int_equal(err.code, SL_ECONFLICT);
	assert_string_equal(ask("SELECT n, ifnull(v, '-') FROM t ORDER BY n"), "1|a\n2|-\n3|c");
}

static void a_key_that_the_table_does_not_have_is_the_targets_fault(void **state)
{
	static const char *const not_a_key[] = {"a"}, *const not_there[] = {"z"};
	const char *const records[] = {"{\"k\":\"x\"}", NULL};
	struct sl_err err;
	(void)state;
	ask("CREATE TABLE t(k TEXT PRIMARY KEY, a INTEGER)");
	load((struct sl_sink_opts){.table = "t", .on_conflict = not_a_key, .n_on_conflict = 1}, records, &err);
	assert_int_equal(err.code, SL_ECONFIG);
	assert_int_equal(err.error_class, SL_CLASS_FATAL);
	load((struct sl_sink_opts){.table = "t", .on_conflict = not_there, .n_on_conflict = 1}, records, &err);
	assert_int_equal(err.code, SL_ECONFIG);
	assert_int_equal(err.error_class, SL_CLASS_FATAL);
	assert_non_null(strstr(err.msg, "no column z"));
}

/* ---- what changes under an open sink ---- */

static int write_one(const sl_sink *sink, void *lane, const char *record, struct sl_err *err)
{
	struct sl_sink_item item = {.data = record, .len = strlen(record)};
	struct sl_sink_reply reply;
	uint8_t outcome;
	return sink_write(sink, lane, &item, 1, &reply, &outcome, err);
}

static void a_column_that_is_added_is_seen_by_the_next_batch(void **state)
{
	struct sl_err err;
	sl_sink sink;
	(void)state;
	ask("CREATE TABLE t(a INTEGER)");
	opened(&sink, (struct sl_sink_opts){.table = "t"});
	void *lane = sink_attach(&sink);
	assert_int_equal(write_one(&sink, lane, "{\"a\":1}", &err), 0);
	assert_int_equal(write_one(&sink, lane, "{\"a\":2,\"b\":\"x\"}", &err), SL_EDATA);
	ask("ALTER TABLE t ADD COLUMN b TEXT");
	assert_int_equal(write_one(&sink, lane, "{\"a\":3,\"b\":\"y\"}", &err), 0);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
	assert_string_equal(ask("SELECT a, ifnull(b,'-') FROM t"), "1|-\n3|y");
}

static void a_database_that_was_replaced_is_opened_anew(void **state)
{
	struct sl_err err;
	sl_sink sink;
	(void)state;
	ask("CREATE TABLE t(a INTEGER)");
	opened(&sink, (struct sl_sink_opts){.table = "t"});
	void *lane = sink_attach(&sink);
	assert_int_equal(write_one(&sink, lane, "{\"a\":1}", &err), 0);
	assert_int_equal(rename(place.path, place_file(&place, "old")), 0);
	assert_int_equal(write_one(&sink, lane, "{\"a\":2}", &err), SL_ENOENT);
	assert_int_equal(err.error_class, SL_CLASS_FATAL);
	ask("CREATE TABLE t(a INTEGER)");
	assert_int_equal(write_one(&sink, lane, "{\"a\":2}", &err), 0);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
	assert_string_equal(ask("SELECT a FROM t"), "2");
}

static void a_row_that_rolls_the_transaction_back_is_the_culprit(void **state)
{
	(void)state;
	ask("CREATE TABLE t(a INTEGER UNIQUE ON CONFLICT ROLLBACK)");
	assert_string_equal(LOAD("{\"a\":1}", "{\"a\":2}", "{\"a\":1}", "{\"a\":3}"), "3");
	assert_string_equal(ask("SELECT a FROM t ORDER BY a"), "1\n2\n3");
}

/* Rows with the same columns go to the database in groups; what happens in the middle of one must not show. */
static const char *load_sixty(const char *const make[3], const struct sl_sink_opts *opts)
{
	static char records[60][64];
	const char *list[61] = {NULL};
	for (int i = 0; i < 60; i++) {
		int value = i == 25 || i == 26 ? 3 : i; /* the same as an earlier one */
		(void)snprintf(records[i], sizeof(records[i]), "%s%d%s%d%s", make[0], value, make[1], i, make[2]);
		list[i] = records[i];
	}
	return load(*opts, list, NULL);
}

static void poison_in_a_group_of_rows_is_refused_alone(void **state)
{
	static const char *const json[] = {"{\"a\":", ",\"b\":\"row ", "\"}"};
	static const char *const parts[] = {"{\"a\":", ",\"b\":\"part ", "\"}"};
	const struct sl_sink_opts opts = {.table = "t"};
	(void)state;
	ask("CREATE TABLE t(n INTEGER PRIMARY KEY, a INTEGER UNIQUE, b TEXT, c TEXT DEFAULT 'c')");
	assert_string_equal(load_sixty(json, &opts), "26 27");
	assert_string_equal(ask("SELECT count(*), count(DISTINCT a), min(a), max(a), max(c) FROM t"), "58|58|0|59|c");
	assert_string_equal(ask("SELECT count(*) FROM t WHERE b <> 'row ' || a"), "0");
	assert_string_equal(ask("SELECT count(*) FROM t x JOIN t y ON y.n = x.n + 1 WHERE y.a <= x.a"), "0");
	ask("DROP TABLE t; CREATE TABLE t(a INTEGER UNIQUE ON CONFLICT ROLLBACK, b TEXT)");
	assert_string_equal(load_sixty(parts, &opts), "26 27");
	assert_string_equal(ask("SELECT count(*), count(DISTINCT a) FROM t"), "58|58");
}

static void an_upsert_of_a_group_takes_the_last_of_a_key(void **state)
{
	static const char *const json[] = {"{\"a\":", ",\"b\":\"row ", "\"}"}, *const key[] = {"a"};
	const struct sl_sink_opts opts = {.table = "t", .on_conflict = key, .n_on_conflict = 1};
	(void)state;
	ask("CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)");
	assert_string_equal(load_sixty(json, &opts), "");
	assert_string_equal(ask("SELECT count(*), max(b) FILTER (WHERE a = 3) FROM t"), "58|row 26");
}

static void a_trigger_that_fails_refuses_its_row(void **state)
{
	(void)state;
	ask("CREATE TABLE t(a TEXT); CREATE TABLE u(b); CREATE TRIGGER x AFTER INSERT ON t BEGIN "
	    "INSERT INTO u VALUES (json_extract(new.a, '$.k')); END");
	assert_string_equal(LOAD("{\"a\":\"{\\\"k\\\":1}\"}", "{\"a\":\"no json\"}", "{\"a\":\"{\\\"k\\\":2}\"}"), "2");
	assert_string_equal(ask("SELECT b FROM u"), "1\n2");
	assert_string_equal(ask("SELECT count(*) FROM t"), "2");
}

static void a_full_database_is_fatal_and_takes_the_batch_later(void **state)
{
	struct sl_err err;
	sl_sink sink;
	char record[9000];
	struct rlimit all, little = {.rlim_cur = 20000};
	(void)state;
	ask("CREATE TABLE t(a TEXT)");
	opened(&sink, (struct sl_sink_opts){.table = "t"});
	void *lane = sink_attach(&sink);
	(void)snprintf(record, sizeof(record), "{\"a\":\"%08000d\"}", 1);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
	little.rlim_max = all.rlim_max;
	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
	int rc = 0;
	for (int i = 0; i < 10 && rc == 0; i++)
		rc = write_one(&sink, lane, record, &err);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
	assert_int_not_equal(rc, 0);
	assert_int_equal(err.error_class, SL_CLASS_FATAL);
	assert_int_equal(write_one(&sink, lane, record, &err), 0);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
	assert_string_equal(ask("PRAGMA integrity_check"), "ok");
}

static void a_file_that_is_no_database_is_fatal(void **state)
{
	struct sl_err err;
	sl_sink sink;
	(void)state;
	place_write(place.path,
		    "this is no database, and it is longer than a header of a hundred bytes would be, by far; "
		    "or at least by some bytes",
		    110);
	opened(&sink, (struct sl_sink_opts){.table = "t"});
	void *lane = sink_attach(&sink);
	assert_int_equal(write_one(&sink, lane, "{\"a\":1}", &err), SL_ECORRUPT);
	assert_int_equal(err.error_class, SL_CLASS_FATAL);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

static void the_log_is_in_the_file_when_the_sink_is_closed(void **state)
{
	struct stat st;
	(void)state;
	ask("PRAGMA journal_mode=wal; CREATE TABLE t(a INTEGER)");
	assert_string_equal(LOAD("{\"a\":1}"), "");
	assert_true(stat(place_file(&place, "db-wal"), &st) != 0 || st.st_size == 0);
	assert_string_equal(ask("SELECT a FROM t"), "1");
}

/* ---- opening ---- */

static void what_can_be_checked_at_once_is(void **state)
{
	struct sl_err err;
	sl_sink sink;
	char url[160];
	(void)state;
	const struct sl_sink_opts opts = {SL_SINK_OPTS_INIT, .table = "t"};
	const struct sl_sink_opts http = {SL_SINK_OPTS_INIT, .table = "t", .token_file = "x"};
	(void)snprintf(url, sizeof(url), "sqlite:%s", place.path);
	assert_int_equal(sl_sink_open(&sink, url, &opts, &err), SL_ENOENT);
	ask("CREATE TABLE t(a)");
	assert_int_equal(sl_sink_open(&sink, url, NULL, &err), SL_EINVAL);
	assert_non_null(strstr(err.msg, "table"));
	assert_int_equal(sl_sink_open(&sink, url, &http, &err), SL_EINVAL);
	assert_non_null(strstr(err.msg, "token_file"));
	assert_int_equal(sl_sink_open(&sink, "sqlite:", &opts, &err), SL_EINVAL);
	assert_int_equal(sl_sink_open(&sink, "sqlite://host/x", &opts, &err), SL_EINVAL);
	assert_int_equal(sl_sink_open(&sink, "mongo://user:secret@host", &opts, &err), SL_EINVAL);
	assert_null(strstr(err.msg, "secret"));
	assert_int_equal(sl_sink_open(&sink, url, &opts, &err), 0);
	assert_string_equal(sl_sink_target(&sink), url);
	sl_sink_close(&sink);
}

static void create_makes_a_table_with_its_key_once(void **state)
{
	static const char *const key[] = {"id", "at"}, *const wrong[] = {"nose"};
	static const struct sl_column columns[] = {{"id", SL_COLUMN_INTEGER, 0},   {"at", SL_COLUMN_TIMESTAMP, 0},
						   {"x \"y\"", SL_COLUMN_REAL, 1}, {"ok", SL_COLUMN_BOOLEAN, 0},
						   {"doc", SL_COLUMN_JSON, 0},     {"big", SL_COLUMN_NUMERIC, 0}};
	struct sl_sink_opts opts = {SL_SINK_OPTS_INIT, .table = "t", .on_conflict = key, .n_on_conflict = 2};
	struct sl_err err = SL_ERR_INIT;
	char url[160];
	(void)state;
	(void)snprintf(url, sizeof(url), "sqlite:%s", place.path);
	for (int i = 0; i < 2; i++)
		assert_int_equal(sl_sink_create_table(url, &opts, columns, 6, &err), 0);
	assert_string_equal(
		ask("SELECT name, type, \"notnull\", pk FROM pragma_table_info('t')"),
		"id|INTEGER|1|1\nat|TEXT|1|2\nx \"y\"|REAL|1|0\nok|INTEGER|0|0\ndoc|TEXT|0|0\nbig|TEXT|0|0");
	assert_string_equal(
		LOAD_CSV("1,2026-01-01,1.5,true,{},12345678901234567890", "2,2026-01-01,,false,,", "x,a,1,,,"), "2 3");
	assert_string_equal(ask("SELECT id, ok, big FROM t"), "1|1|12345678901234567890");
	opts.on_conflict = wrong;
	opts.n_on_conflict = 1;
	assert_int_equal(sl_sink_create_table(url, &opts, columns, 6, &err), SL_EINVAL);
	assert_int_equal(sl_sink_create_table("file:x", NULL, columns, 6, &err), SL_EUNSUPPORTED);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(keys_that_are_equal_for_the_database_have_one_number),
		TEST(csv_text_becomes_what_its_column_holds),
		TEST(json_values_keep_their_digits_and_their_kind),
		TEST(every_double_is_the_nearest_one),
		TEST(numbers_at_the_edges_are_exact_or_refused),
		TEST(sixteen_digits_are_not_rounded_twice),
		TEST(a_number_too_long_to_be_copied_is_converted_by_the_database),
		TEST(a_column_of_any_kind_keeps_the_digits_that_a_double_would_lose),
		TEST(values_that_a_column_does_not_take_are_refused_alone),
		TEST(the_error_of_a_refused_row_is_its_own),
		TEST(the_first_of_two_refused_rows_is_reported_and_the_second_left_for_later),
		TEST(strict_tables_refuse_what_their_types_do_not_hold),
		TEST(members_that_are_not_there_get_the_default),
		TEST(csv_columns_are_taken_in_the_order_that_was_named),
		TEST(names_with_quotes_and_many_columns_are_written),
		TEST(an_upsert_changes_what_the_record_has),
		TEST(immutable_rows_are_never_replaced_by_others),
		TEST(a_key_that_the_table_does_not_have_is_the_targets_fault),
		TEST(a_column_that_is_added_is_seen_by_the_next_batch),
		TEST(a_database_that_was_replaced_is_opened_anew),
		TEST(a_row_that_rolls_the_transaction_back_is_the_culprit),
		TEST(poison_in_a_group_of_rows_is_refused_alone),
		TEST(an_upsert_of_a_group_takes_the_last_of_a_key),
		TEST(a_trigger_that_fails_refuses_its_row),
		TEST(a_full_database_is_fatal_and_takes_the_batch_later),
		TEST(a_file_that_is_no_database_is_fatal),
		TEST(the_log_is_in_the_file_when_the_sink_is_closed),
		TEST(what_can_be_checked_at_once_is),
		TEST(create_makes_a_table_with_its_key_once),
	};
	return cmocka_run_group_tests_name("sqlite_sink", tests, NULL, NULL);
}
