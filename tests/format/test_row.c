/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "format/row.h"
#include "source.h"
#include "support/fault.h"

static const char *const abc[] = {"a", "b", "c"};

struct row {
	const char *record;
	const char *fields; /* as show() writes them */
};

/* a=<kind><text>; kinds: - absent, 0 null, ' text, # number, T, F, { nested. An exclamation mark: has_nul. */
static char *show(const struct sl__field *f, size_t n)
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);
	for (size_t i = 0; i < n; i++) {
		fprintf(out, "%s%c%s", i > 0 ? "|" : "", "-0'#TF{"[f[i].kind], f[i].has_nul ? "!" : "");
		if (f[i].kind == SL__FIELD_TEXT || f[i].kind == SL__FIELD_NUMBER || f[i].kind == SL__FIELD_JSON)
			fwrite(f[i].text, 1, f[i].len, out);
	}
	fclose(out);
	return text;
}

static struct sl__row_reader *reader(bool csv, size_t n, const char *null_text)
{
	struct sl__row_reader *r;
	const struct sl__row_opts opts = {.csv = csv, .columns = abc, .n_columns = n, .null_text = null_text};
	assert_int_equal(sl__row_reader_new(&r, &opts, NULL), 0);
	return r;
}

/* Read a copy that ends where its memory ends, so that a byte too far is seen by the sanitizer. */
static int read_exactly(struct sl__row_reader *r, const char *record, size_t len, char **copy, struct sl__field *f,
			struct sl_err *err)
{
	*copy = malloc(len > 0 ? len : 1);
	assert_non_null(*copy);
	memcpy(*copy, record, len);
	return sl__row_read(r, *copy, len, f, err);
}

static void expect(struct sl__row_reader *r, const struct row *rows, size_t n, size_t columns)
{
	struct sl__field f[3];
	struct sl_err err = SL_ERR_INIT;
	char *copy;
	for (size_t i = 0; i < n; i++) {
		if (read_exactly(r, rows[i].record, strlen(rows[i].record), &copy, f, &err) != 0)
			fail_msg("%s: %s", rows[i].record, err.msg);
		char *got = show(f, columns);
		assert_string_equal(got, rows[i].fields);
		free(got);
		free(copy);
	}
	sl__row_reader_free(r);
}

static void refuse(struct sl__row_reader *r, const struct row *rows, size_t n)
{
	struct sl__field f[3];
	char *copy;
	for (size_t i = 0; i < n; i++) {
		struct sl_err err = SL_ERR_INIT;
		if (read_exactly(r, rows[i].record, strlen(rows[i].record), &copy, f, &err) != SL_EDATA)
			fail_msg("%s was read", rows[i].record);
		assert_int_equal(err.error_class, SL_CLASS_POISON);
		assert_string_equal(err.msg, rows[i].fields);
		free(copy);
	}
	sl__row_reader_free(r);
}
#define ROWS(list) list, sizeof(list) / sizeof((list)[0])

/* ---- CSV ---- */

static void csv_fields_are_columns_by_their_place(void **state)
{
	(void)state;
	static const struct row rows[] = {
		{"1,2,3", "'1|'2|'3"},
		{",,", "0|0|0"},
		{"a,,\"\"", "'a|0|'"},
		{"\"a\",\"b,b\",\"c\"\"c\"", "'a|'b,b|'c\"c"},
		{"\"\"\"\",\"\"\"x\"\"\",\"\"\"\"\"\"", "'\"|'\"x\"|'\"\""},
		{"\"line\r\nend\",b,c", "'line\r\nend|'b|'c"},
		{" a , b ,c ", "' a |' b |'c "},
		{"\xC3\xA9,\xE2\x82\xAC,\xF0\x9F\x98\x80", "'\xC3\xA9|'\xE2\x82\xAC|'\xF0\x9F\x98\x80"},
		{"0123456789abcde,0123456789abcdef,0123456789abcdefg",
		 "'0123456789abcde|'0123456789abcdef|'0123456789abcdefg"},
		{"0123456789abcdefghijklmnopqrstuvw,,x", "'0123456789abcdefghijklmnopqrstuvw|0|'x"},
		{"0123456789abcd,,", "'0123456789abcd|0|0"},
	};
	expect(reader(true, 3, NULL), ROWS(rows), 3);
}

static void an_unquoted_field_with_the_null_text_is_null(void **state)
{
	(void)state;
	static const struct row rows[] = {
		{"NULL,\"NULL\",", "0|'NULL|'"},
		{"NULLS,NUL,NULL", "'NULLS|'NUL|0"},
		{"\xC3\xA9,NULL,\"\"", "'\xC3\xA9|0|'"},
	};
	expect(reader(true, 3, "NULL"), ROWS(rows), 3);
}

static void a_single_column_may_be_empty(void **state)
{
	(void)state;
	static const struct row rows[] = {{"", "0"}, {"\"\"", "'"}, {"x", "'x"}};
	expect(reader(true, 1, NULL), ROWS(rows), 1);
}

static void csv_that_is_wrong_says_where(void **state)
{
	(void)state;
	static const struct row rows[] = {
		{"1,2", "CSV: 2 fields for 3 columns"},
		{"", "CSV: 1 field for 3 columns"},
		{"1,2,3,4,5", "CSV: 5 fields for 3 columns"},
		{"1,2,3,\"4,5\"", "CSV: 4 fields for 3 columns"},
		{"1,2,3,\"4\"\"\"", "CSV: 4 fields for 3 columns"},
		{"1,2,3,4,\"5\"\"\"", "CSV: more than 4 fields for 3 columns"},
		{"1,\"2,3", "CSV, field 2, byte 3: an unclosed quote"},
		{"1,\"2\"x,3", "CSV, field 2, byte 6: text after a closing quote"},
		{"1,2\"2\",3", "CSV, field 2, byte 4: a quote inside an unquoted field"},
		{"1,2\n,3", "CSV, field 2, byte 4: a line end outside quotes"},
		{"1,2,3\r", "CSV, field 3, byte 6: a line end outside quotes"},
		{"1,\xFF,3", "CSV, byte 3: invalid UTF-8"},
		{"1,2,\"\xE2\x82\"", "CSV, byte 6: invalid UTF-8"},
		{"1,2,\xE2\x82", "CSV, byte 5: invalid UTF-8"},
		{"0123456789,0123456789,\xFF", "CSV, byte 23: invalid UTF-8"},
		{"\xFF"
		 "0123456789,0123456789,0",
		 "CSV, byte 1: invalid UTF-8"},
		/* sixteen bytes at a time, the last ones overlap: no delimiter counts twice */
		{"0123456,89abcdef0", "CSV: 2 fields for 3 columns"},
		{"0123456789abcd,f01", "CSV: 2 fields for 3 columns"},
	};
	refuse(reader(true, 3, NULL), ROWS(rows));
}

static void a_nul_in_csv_is_wrong(void **state)
{
	(void)state;
	struct sl__row_reader *r = reader(true, 3, NULL);
	struct sl__field f[3];
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(sl__row_read(r, "1,\0,3", 5, f, &err), SL_EDATA);
	assert_string_equal(err.msg, "CSV, byte 3: a NUL byte");
	assert_int_equal(sl__row_read(r, NULL, 0, f, &err), SL_EDATA);
	sl__row_reader_free(r);
}

static void another_delimiter_takes_the_place_of_the_comma(void **state)
{
	(void)state;
	static const struct row rows[] = {{"1,1;2;3", "'1,1|'2|'3"}, {"\"x;y\";;\"z\"", "'x;y|0|'z"}};
	struct sl__row_reader *r;
	struct sl__row_opts opts = {.csv = true, .n_columns = 3, .delimiter = ';'};
	assert_int_equal(sl__row_reader_new(&r, &opts, NULL), 0);
	expect(r, ROWS(rows), 3);
	opts.delimiter = '"';
	assert_int_equal(sl__row_reader_new(&r, &opts, NULL), SL_EINVAL);
}

/* ---- JSON ---- */

static void json_members_are_columns_by_their_name(void **state)
{
	(void)state;
	static const struct row rows[] = {
		{"{\"a\":1,\"b\":\"x\",\"c\":null}", "#1|'x|0"},
		{"{\"a\":2,\"b\":\"y\",\"c\":true}", "#2|'y|T"},
		{"{\"c\":false,\"a\":\"\"}", "'|-|F"},
		{"{\"c\":false,\"b\":3}", "-|#3|F"},
		{" { \"b\" : [ 1 , {\"x\":[]} ] ,\t\"a\" : {} } \r\n", "{{}|{[ 1 , {\"x\":[]} ]|-"},
		{"{}", "-|-|-"},
		{"{\"\\u0061\":1,\"\\u0062\":2}", "#1|#2|-"},
		{"{\"a\":9223372036854775807,\"b\":0.1000000000000000055511151231257827,\"c\":-1.5E+300}",
		 "#9223372036854775807|#0.1000000000000000055511151231257827|#-1.5E+300"},
		{"{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\",\"b\":\"\\u00e9\\u20AC\\ud83d\\uDE00\",\"c\":\"x\\ny\"}",
		 "'\"\\/\b\f\n\r\t|'\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80|'x\ny"},
		{"{\"a\":\"0123456789abcdef0123456789\xC3\xA9\",\"b\":\"plain \xF0\x9F\x98\x80 and \\\\ \"}",
		 "'0123456789abcdef0123456789\xC3\xA9|'plain \xF0\x9F\x98\x80 and \\ |-"},
	};
	expect(reader(false, 3, NULL), ROWS(rows), 3);
}

static void a_nul_character_in_a_json_string_is_flagged(void **state)
{
	(void)state;
	struct sl__row_reader *r = reader(false, 3, NULL);
	struct sl__field f[3];
	static const char text[] = "{\"a\":\"x\\u0000y\",\"b\":\"\\\\u0000\"}";
	assert_int_equal(sl__row_read(r, text, sizeof(text) - 1, f, NULL), 0);
	assert_true(f[0].has_nul);
	assert_int_equal(f[0].len, 3);
	assert_memory_equal(f[0].text, "x\0y", 3);
	assert_false(f[1].has_nul);
	sl__row_reader_free(r);
}

static void json_that_is_wrong_says_where(void **state)
{
	(void)state;
	static const struct row rows[] = {
		{"", "JSON, byte 1: an object is expected"},
		{"[]", "JSON, byte 1: an object is expected"},
		{"{\"a\":1,\"d\":2}", "JSON: no column for member \"d\""},
		{"{\"a\":1,\"b\":2,\"a\":3}", "JSON: duplicate member \"a\""},
		{"{\"a\":1,\"\\u0061\":3}", "JSON: duplicate member \"a\""},
		{"{\"a\":1} x", "JSON, byte 9: unexpected text after the value"},
		{"{\"a\":1", "JSON, byte 7: ',' or '}' is expected"},
		{"{\"a\":1,}", "JSON, byte 8: a string is expected"},
		{"{,}", "JSON, byte 2: a string is expected"},
		{"{\"a\"}", "JSON, byte 5: ':' is expected"},
		{"{\"a\":}", "JSON, byte 6: a value is expected"},
		{"{\"a\":", "JSON, byte 6: the text ends where a value is expected"},
		{"{\"a\":\"x", "JSON, byte 8: the text ends inside a string"},
		{"{\"a", "JSON, byte 4: the text ends inside a string"},
		{"{\"a\":\"\t\"}", "JSON, byte 7: a control character must be escaped"},
		{"{\"a\":\"\x1F\"}", "JSON, byte 7: a control character must be escaped"},
		{"{\"a\":\"\x1F"
		 "0123456789abcdef\"}",
		 "JSON, byte 7: a control character must be escaped"},
		{"{\"a\":\"\\x\"}", "JSON, byte 7: invalid escape"},
		{"{\"a\":\"\\", "JSON, byte 7: invalid escape"},
		{"{\"a\":\"\\u12g4\"}", "JSON, byte 7: \\u needs four hexadecimal digits"},
		{"{\"a\":\"\\ud800x\"}", "JSON, byte 7: a lone surrogate is not a character"},
		{"{\"a\":\"\\ud800\\u0041\"}", "JSON, byte 7: a lone surrogate is not a character"},
		{"{\"a\":\"\\udc00\"}", "JSON, byte 7: a lone surrogate is not a character"},
		{"{\"a\":\"\xC3\"}", "JSON, byte 7: invalid UTF-8"},
		{"{\"a\":\"\xED\xA0\x80\"}", "JSON, byte 7: invalid UTF-8"},
		{"{\"a\":01}", "JSON, byte 7: ',' or '}' is expected"},
		{"{\"a\":-}", "JSON, byte 7: a digit is expected"},
		{"{\"a\":1.}", "JSON, byte 8: a digit is expected"},
		{"{\"a\":.5}", "JSON, byte 6: a value is expected"},
		{"{\"a\":1e}", "JSON, byte 8: a digit is expected"},
		{"{\"a\":+1}", "JSON, byte 6: a value is expected"},
		{"{\"a\":NaN}", "JSON, byte 6: a value is expected"},
		{"{\"a\":nul}", "JSON, byte 6: a value is expected"},
		{"{\"a\":truex}", "JSON, byte 10: ',' or '}' is expected"},
		{"{\"a\":[1,]}", "JSON, byte 9: a value is expected"},
		{"{\"a\":[1}", "JSON, byte 8: ',' or ']' is expected"},
		{"{\"a\":{\"x\":1]}", "JSON, byte 12: ',' or '}' is expected"},
		{"{\"a\":[,1]}", "JSON, byte 7: a value is expected"},
		{"{'a':1}", "JSON, byte 2: a string is expected"},
	};
	refuse(reader(false, 3, NULL), ROWS(rows));
}

static void nesting_is_allowed_to_a_depth_of_256(void **state)
{
	(void)state;
	struct sl__row_reader *r = reader(false, 3, NULL);
	struct sl__field f[3];
	for (int depth = 254; depth <= 257; depth++) {
		char text[1024], *p = text;
		p += sprintf(p, "{\"a\":");
		for (int i = 1; i < depth; i++)
			*p++ = '[';
		for (int i = 1; i < depth; i++)
			*p++ = ']';
		*p++ = '}';
		assert_int_equal(sl__row_read(r, text, (size_t)(p - text), f, NULL), depth <= 256 ? 0 : SL_EDATA);
		assert_int_equal(sl__json_check_value(text, (size_t)(p - text), true, NULL),
				 depth <= 256 ? 0 : SL_EDATA);
	}
	sl__row_reader_free(r);
}

static void names_that_json_escapes_are_found(void **state)
{
	(void)state;
	static const char *const odd[] = {"a\"b", "tab\t", "\xC3\xA9", ""};
	struct sl__row_reader *r;
	struct sl__field f[4];
	const struct sl__row_opts opts = {.columns = odd, .n_columns = 4};
	static const char text[] = "{\"a\\\"b\":1,\"tab\\t\":2,\"\xC3\xA9\":3,\"\":4}";
	static const char wrong[] = "{\"a\"b\":1}";
	assert_int_equal(sl__row_reader_new(&r, &opts, NULL), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(sl__row_read(r, text, sizeof(text) - 1, f, NULL), 0);
		char *got = show(f, 4);
		assert_string_equal(got, "#1|#2|#3|#4");
		free(got);
		assert_int_equal(sl__row_read(r, wrong, sizeof(wrong) - 1, f, NULL), SL_EDATA);
	}
	sl__row_reader_free(r);
}

static void a_column_that_is_there_twice_is_refused(void **state)
{
	(void)state;
	static const char *const twice[] = {"x", "y", "x"};
	struct sl__row_reader *r = NULL;
	struct sl_err err = SL_ERR_INIT;
	const struct sl__row_opts opts = {.columns = twice, .n_columns = 3};
	assert_int_equal(sl__row_reader_new(&r, &opts, &err), SL_EINVAL);
	assert_non_null(strstr(err.msg, "\"x\""));
	sl__row_reader_free(r);
}

static void many_members_in_any_order_are_found(void **state)
{
	(void)state;
	enum { N = 300 };
	static char names[N][8];
	const char *columns[N];
	struct sl__field f[N];
	struct sl__row_reader *r;
	struct sl__buf b;
	struct sl_env env;
	assert_int_equal(sl__env_init(&env, NULL, NULL), 0);
	sl__buf_init(&b, &env);
	for (size_t i = 0; i < N; i++) {
		snprintf(names[i], sizeof(names[i]), "m%zu", i);
		columns[i] = names[i];
	}
	const struct sl__row_opts opts = {.columns = columns, .n_columns = N};
	assert_int_equal(sl__row_reader_new(&r, &opts, NULL), 0);
	for (size_t step = 1; step < N; step += 2) { /* odd, and not a multiple of 3 or 5: visits all */
		if (step % 3 == 0 || step % 5 == 0)
			continue;
		sl__buf_clear(&b);
		for (size_t i = 0; i < N; i++)
			sl__buf_printf(&b, "%c\"m%zu\":%zu", i > 0 ? ',' : '{', i * step % N, i * step % N);
		sl__buf_str_append(&b, "}");
		assert_int_equal(sl__row_read(r, b.data, b.len, f, NULL), 0);
		for (size_t i = 0; i < N; i++) {
			assert_int_equal(f[i].kind, SL__FIELD_NUMBER);
			assert_int_equal(atoi(f[i].text), (int)i);
		}
	}
	sl__buf_fini(&b);
	sl__row_reader_free(r);
}

static void any_json_value_can_be_checked(void **state)
{
	(void)state;
	static const char *const good[] = {"1",
					   " \"x\" ",
					   "null",
					   "[]",
					   "[[],{}]",
					   "{\"a\":{\"a\":1,\"a\":2}}",
					   "-0",
					   "1E-5",
					   "[1, 2 ,3]",
					   "[{},[1]]",
					   "{\"a\":[[],[]],\"b\":[{}]}"};
	static const char *const bad[] = {"",
					  " ",
					  "1 2",
					  "[",
					  "]",
					  "{",
					  "{\"a\"",
					  "\"",
					  "tru",
					  "--1",
					  "[1 2]",
					  "\xEF\xBB\xBF{}",
					  "{\"a\":1,,\"b\":2}",
					  "[}",
					  "{]"};
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(sl__json_check_value(good[i], strlen(good[i]), false, NULL), 0);
		assert_int_equal(sl__json_check_value(good[i], strlen(good[i]), true, NULL),
				 good[i][0] == '{' ? 0 : SL_EDATA);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(sl__json_check_value(bad[i], strlen(bad[i]), false, NULL), SL_EDATA);
}

/* ---- putting together ---- */

static void expect_put(const char *record, bool csv, const char *json, const char *as_csv)
{
	struct sl__row_reader *r = reader(csv, 3, NULL);
	struct sl__field f[3];
	struct sl__buf b;
	struct sl_env env;
	assert_int_equal(sl__env_init(&env, NULL, NULL), 0);
	sl__buf_init(&b, &env);
	assert_int_equal(sl__row_read(r, record, strlen(record), f, NULL), 0);
	sl__row_put_json(&b, abc, f, 3);
	assert_string_equal(sl__buf_str(&b), json);
	sl__buf_clear(&b);
	sl__row_put_csv(&b, f, 3);
	assert_string_equal(sl__buf_str(&b), as_csv);
	sl__buf_fini(&b);
	sl__row_reader_free(r);
}

static void rows_are_put_together_again(void **state)
{
	(void)state;
	expect_put("{\"a\":1.50,\"b\":\"x,\\\"y\\\"\",\"c\":null}", false,
		   "{\"a\":1.50,\"b\":\"x,\\\"y\\\"\",\"c\":null}", "1.50,\"x,\"\"y\"\"\",");
	expect_put("{\"c\":[1,\n{\"k\":\"v\"}\r\n],\"a\":true}", false, "{\"a\":true,\"c\":[1, {\"k\":\"v\"}  ]}",
		   "true,,\"[1,\n{\"\"k\"\":\"\"v\"\"}\r\n]\"");
	expect_put("{}", false, "{}", ",,");
	expect_put("1,\"\",", true, "{\"a\":\"1\",\"b\":\"\",\"c\":null}", "1,\"\",");
	expect_put("\"two\nlines\",\\.,\xC3\xA9", true, "{\"a\":\"two\\nlines\",\"b\":\"\\\\.\",\"c\":\"\xC3\xA9\"}",
		   "\"two\nlines\",\"\\.\",\xC3\xA9");
	expect_put("{\"a\":\"\\u0001\\u001f\\u007f\\u0000\",\"b\":false}", false,
		   "{\"a\":\"\\u0001\\u001f\x7F\\u0000\",\"b\":false}", "\x01\x1F\x7F");
}

static void bytes_that_are_not_utf8_are_replaced_in_json_strings(void **state)
{
	(void)state;
	struct sl__buf b;
	struct sl_env env;
	assert_int_equal(sl__env_init(&env, NULL, NULL), 0);
	sl__buf_init(&b, &env);
	sl__put_json_string(&b, "a\xFF\xC3", 3);
	assert_string_equal(sl__buf_str(&b), "\"a\xEF\xBF\xBD\xEF\xBF\xBD\"");
	sl__buf_fini(&b);
}

/* ---- memory ---- */

static void without_memory_a_row_fails_and_can_be_read_again(void **state)
{
	(void)state;
	static const char *const records[] = {"\"a\"\"a\",b,\"c\"\"\"", "{\"a\":\"\\n\",\"b\":\"\\t\"}"};
	struct fault fault;
	fault_init(&fault, NULL);
	struct sl_env env = fault_env(&fault, NULL);
	for (int csv = 0; csv < 2; csv++)
		for (int64_t at = 1;; at++) {
			const struct sl__row_opts opts = {.env = &env, .csv = csv == 0, .columns = abc, .n_columns = 3};
			struct sl__row_reader *r = NULL;
			struct sl__field f[3];
			struct sl_err err = SL_ERR_INIT;
			fault_arm_mem(&fault, at, FAULT_ONCE);
			int rc = sl__row_reader_new(&r, &opts, &err);
			if (rc == 0 && (rc = sl__row_read(r, records[csv], strlen(records[csv]), f, &err)) != 0)
				assert_int_equal(sl__row_read(r, records[csv], strlen(records[csv]), f, NULL), 0);
			assert_int_equal(rc, fault_mem_failed(&fault) > 0 ? SL_ENOMEM : 0);
			sl__row_reader_free(r);
			assert_int_equal(fault_live_allocs(&fault), 0);
			if (rc == 0)
				break;
			assert_int_equal(err.error_class, SL_CLASS_TRANSIENT);
		}
	fault_fini(&fault);
}

static void the_usual_row_allocates_nothing(void **state)
{
	(void)state;
	struct fault fault;
	fault_init(&fault, NULL);
	struct sl_env env = fault_env(&fault, NULL);
	static const char *const records[] = {"{\"a\":\"x\",\"b\":[1],\"c\":2}", "x,\"y,y\",z"};
	for (int csv = 0; csv < 2; csv++) {
		const struct sl__row_opts opts = {.env = &env, .csv = csv == 1, .columns = abc, .n_columns = 3};
		struct sl__row_reader *r;
		struct sl__field f[3];
		assert_int_equal(sl__row_reader_new(&r, &opts, NULL), 0);
		fault_arm_mem(&fault, 1, FAULT_FROM);
		assert_int_equal(sl__row_read(r, records[csv], strlen(records[csv]), f, NULL), 0);
		assert_int_equal(fault_mem_failed(&fault), 0);
		fault_disarm(&fault);
		sl__row_reader_free(r);
	}
	fault_fini(&fault);
}

/* ---- records whose end is still to be found ---- */

/* The records of text as sl_records and sl__row_read see them: "<line bytes>:<fields or !>" each. */
static char *by_records(const char *text, size_t len, bool csv)
{
	struct source s = {.data = text, .len = len};
	const struct sl_records_opts opts = {SL_RECORDS_OPTS_INIT, .format = csv ? SL_ROWS_CSV : SL_ROWS_JSON,
					     .header = SL_OFF};
	struct sl__row_reader *row = reader(csv, 3, NULL);
	struct sl__field f[3];
	struct sl_record record;
	sl_records *records;
	char *out = NULL;
	size_t bytes, n;
	FILE *file = open_memstream(&out, &bytes);
	assert_int_equal(sl_records_new(&records, source_read, &s, &opts, NULL), 0);
	while (sl_records_next(records, &record, 1, &n, NULL) == 0 && n == 1) {
		bool good = record.bad == NULL && sl__row_read(row, record.data, record.len, f, NULL) == 0;
		char *fields = good ? show(f, 3) : strdup("!");
		fprintf(file, "%zu:%s\n", record.len, fields);
		free(fields);
	}
	sl_records_free(records);
	sl__row_reader_free(row);
	fclose(file);
	return out;
}

static char *by_next(const char *text, size_t len, bool csv)
{
	struct sl__row_reader *row = reader(csv, 3, NULL);
	struct sl__field f[3];
	char *out = NULL, *copy = calloc(1, len + SL__ROW_PADDING);
	size_t bytes;
	struct sl__row_line line = {0};
	FILE *file = open_memstream(&out, &bytes);
	memcpy(copy, text, len);
	for (size_t at = 0; at < len; at += line.used) {
		line = (struct sl__row_line){.text = copy + at, .left = len - at};
		int rc = sl__row_next(row, &line, f, NULL);
		assert_in_range(line.used, 1, len - at);
		if (rc == SL__ROW_BLANK)
			continue;
		char *fields = rc == 0 ? show(f, 3) : strdup("!");
		fprintf(file, "%zu:%s\n", line.len, fields);
		free(fields);
	}
	sl__row_reader_free(row);
	free(copy);
	fclose(file);
	return out;
}

static void same_both_ways(const char *text, size_t len, bool csv)
{
	char *one = by_records(text, len, csv), *other = by_next(text, len, csv);
	if (strcmp(one, other) != 0)
		fail_msg("records of:\n%.*s\nare:\n%s\nand:\n%s", (int)len, text, one, other);
	free(one);
	free(other);
}

static void records_found_in_memory_are_those_of_the_stream(void **state)
{
	(void)state;
	static const char *const pieces[] = {
		"a",    ",",           ",",   "\n", "\n", "\"", "\r", "\r\n", "\xC3\xA9", "1,2,3\n", "0123456789abcdef",
		"\"\"", "x,\"y\",z\n", "\xFF"};
	static const char *const json[] = {"{\"a\":1}\n", "{\"a\":\"\\n\",\"b\":[1]}\r\n", "\n", " ", "{", "\"",
					   "\r",          "{\"c\":\"\xC3\xA9\"}"};
	uint64_t seed = 7;
	char text[400];
	for (int round = 0; round < 20000; round++) {
		size_t len = 0;
		bool csv = round % 4 != 0;
		for (seed = seed * 6364136223846793005u + 1; len < sizeof(text) - 40 && (seed >> 33) % 24 != 0;
		     seed = seed * 6364136223846793005u + 1442695040888963407u) {
			const char *p =
				csv ? pieces[(seed >> 40) % SL_COUNT(pieces)] : json[(seed >> 40) % SL_COUNT(json)];
			memcpy(text + len, p, strlen(p));
			len += strlen(p);
		}
		same_both_ways(text, len, csv);
	}
}

static void a_record_says_where_the_next_one_begins(void **state)
{
	(void)state;
	static const char text[] = "1,2,3\r\n\n\"a\nb\",\"c\"\"d\",\n4,5";
	char padded[sizeof(text) + SL__ROW_PADDING] = {0};
	struct sl__row_reader *r = reader(true, 3, NULL);
	struct sl__field f[3];
	struct sl_err err = SL_ERR_INIT;
	const size_t n = sizeof(text) - 1;
	struct sl__row_line line = {.text = padded, .left = n};
	memcpy(padded, text, n);
	assert_int_equal(sl__row_next(r, &line, f, NULL), 0);
	assert_int_equal(line.len, 5);
	assert_int_equal(line.used, 7);
	line = (struct sl__row_line){.text = line.text + line.used, .left = line.left - line.used};
	assert_int_equal(sl__row_next(r, &line, f, NULL), SL__ROW_BLANK);
	assert_int_equal(line.used, 1);
	line = (struct sl__row_line){.text = line.text + line.used, .left = line.left - line.used};
	assert_int_equal(sl__row_next(r, &line, f, NULL), 0);
	char *fields = show(f, 3);
	assert_string_equal(fields, "'a\nb|'c\"d|0");
	free(fields);
	line = (struct sl__row_line){.text = line.text + line.used, .left = line.left - line.used};
	assert_int_equal(sl__row_next(r, &line, f, &err), SL_EDATA);
	assert_string_equal(err.msg, "CSV: 2 fields for 3 columns");
	assert_int_equal(line.text + line.used - padded, n);
	sl__row_reader_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(csv_fields_are_columns_by_their_place),
		cmocka_unit_test(an_unquoted_field_with_the_null_text_is_null),
		cmocka_unit_test(a_single_column_may_be_empty),
		cmocka_unit_test(csv_that_is_wrong_says_where),
		cmocka_unit_test(a_nul_in_csv_is_wrong),
		cmocka_unit_test(another_delimiter_takes_the_place_of_the_comma),
		cmocka_unit_test(json_members_are_columns_by_their_name),
		cmocka_unit_test(a_nul_character_in_a_json_string_is_flagged),
		cmocka_unit_test(json_that_is_wrong_says_where),
		cmocka_unit_test(nesting_is_allowed_to_a_depth_of_256),
		cmocka_unit_test(names_that_json_escapes_are_found),
		cmocka_unit_test(a_column_that_is_there_twice_is_refused),
		cmocka_unit_test(many_members_in_any_order_are_found),
		cmocka_unit_test(any_json_value_can_be_checked),
		cmocka_unit_test(rows_are_put_together_again),
		cmocka_unit_test(bytes_that_are_not_utf8_are_replaced_in_json_strings),
		cmocka_unit_test(without_memory_a_row_fails_and_can_be_read_again),
		cmocka_unit_test(the_usual_row_allocates_nothing),
		cmocka_unit_test(records_found_in_memory_are_those_of_the_stream),
		cmocka_unit_test(a_record_says_where_the_next_one_begins),
	};
	return cmocka_run_group_tests_name("row", tests, NULL, NULL);
}
