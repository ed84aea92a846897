/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "source.h"

#define CSV SL_RECORDS_OPTS_INIT, .format = SL_ROWS_CSV
#define BARE CSV, .header = SL_OFF

struct expectation {
	const char *input;
	const char *records;
};

static void expect_one(const char *input, size_t len, const char *wanted, const struct sl_records_opts *opts,
		       size_t first, size_t chunk, size_t at_once)
{
	struct source s = {.data = input, .len = len, .first = first, .chunk = chunk};
	char *got = source_records(&s, opts, at_once);
	if (strcmp(got, wanted) != 0)
		print_message("# first read %zu, then %zu, %zu at once: %s\n", first, chunk, at_once, input);
	assert_string_equal(got, wanted);
	free(got);
}

/* The same records, wherever the reads cut the input and however small the buffer is. */
static void expect_len(const char *input, size_t len, const char *wanted, struct sl_records_opts opts)
{
	for (size_t cut = 1; cut <= len; cut++)
		expect_one(input, len, wanted, &opts, cut, 0, 8);
	for (size_t chunk = 1; chunk <= 3; chunk++)
		expect_one(input, len, wanted, &opts, chunk, chunk, 2);
	for (opts.buffer_bytes = 1; opts.buffer_bytes <= 40; opts.buffer_bytes++)
		expect_one(input, len, wanted, &opts, 0, 0, 1);
}

static void expect(const struct expectation *e, size_t n, struct sl_records_opts opts)
{
	for (size_t i = 0; i < n; i++)
		expect_len(e[i].input, strlen(e[i].input), e[i].records, opts);
}
#define EXPECT(list, ...) expect(list, sizeof(list) / sizeof((list)[0]), (struct sl_records_opts){__VA_ARGS__})

static void csv_records_end_at_line_ends_outside_of_quotes(void **state)
{
	(void)state;
	static const struct expectation list[] = {
		{"a,b\nc,d\n", "1 [a,b]\n2 [c,d]\n"},
		{"a,b\r\nc,d\r\n", "1 [a,b]\n2 [c,d]\n"},
		{"a,b\r\nc,d\ne,f", "1 [a,b]\n2 [c,d]\n3 [e,f]\n"},
		{"last without a line end", "1 [last without a line end]\n"},
		{"cut in a line end\r", "1 [cut in a line end]\n"},
		{"\"a\nb\",c\nd,e\n", "1 [\"a\nb\",c]\n3 [d,e]\n"},
		{"\"a\r\n\r\nb\"\r\nc\r\n", "1 [\"a\r\n\r\nb\"]\n4 [c]\n"},
		{"x,\"he said \"\"no\n\"\"\"\ny,z\n", "1 [x,\"he said \"\"no\n\"\"\"]\n3 [y,z]\n"},
		{"\"\",\"\"\n\"\"\n", "1 [\"\",\"\"]\n2 [\"\"]\n"},
		{"\"\"\"\"\n\"\"\"\n\"\"\"\n", "1 [\"\"\"\"]\n2 [\"\"\"\n\"\"\"]\n"},
		{",\n,,\n", "1 [,]\n2 [,,]\n"},
		{"a , b\n \n", "1 [a , b]\n2 [ ]\n"},
		{"", ""},
		{"0123456789abcdef0123456789abcdef,x\nshort\n", "1 [0123456789abcdef0123456789abcdef,x]\n2 [short]\n"},
	};
	EXPECT(list, BARE);
}

static void empty_lines_are_skipped_and_counted(void **state)
{
	(void)state;
	static const struct expectation list[] = {
		{"\n\na\n\r\n\nb\n\n", "3 [a]\n6 [b]\n"},
		{"\n", ""},
		{"\r\n\r\n", ""},
		{"a\n\n\n\n", "1 [a]\n"},
	};
	EXPECT(list, BARE);
}

static void a_byte_order_mark_is_no_part_of_the_first_record(void **state)
{
	(void)state;
	static const struct expectation list[] = {
		{"\xEF\xBB\xBF"
		 "a,b\nc\n",
		 "1 [a,b]\n2 [c]\n"},
		{"\xEF\xBB\xBF\"a\nb\"\n", "1 [\"a\nb\"]\n"},
		{"\xEF\xBB\xBF", ""},
		{"\xEF\xBB", "1 [\xEF\xBB] !invalid UTF-8\n"},
		{"a\n\xEF\xBB\xBF"
		 "b\n",
		 "1 [a]\n2 [\xEF\xBB\xBF"
		 "b]\n"},
	};
	EXPECT(list, BARE);
	static const struct expectation json[] = {{"\xEF\xBB\xBF{}\n", "1 [{}]\n"}};
	EXPECT(json, SL_RECORDS_OPTS_INIT, .format = SL_ROWS_JSON);
}

static void a_wrong_quote_costs_its_line_only(void **state)
{
	(void)state;
	static const struct expectation list[] = {
		{"a,\"b\nc,d\ne,f\n", "1 [a,\"b] !an unclosed quote\n2 [c,d]\n3 [e,f]\n"},
		{"\"a", "1 [\"a] !an unclosed quote\n"},
		{"\"a\n", "1 [\"a] !an unclosed quote\n"},
		{"a,\"b\r\nc,d", "1 [a,\"b] !an unclosed quote\n2 [c,d]\n"},
		{"\"a\"b,c\nd\n", "1 [\"a\"b,c] !text after a closing quote\n2 [d]\n"},
		/* closed by accident, many lines later */
		{"\"a\nb\nc,\"d,e\",f\ng\n", "1 [\"a] !text after a closing quote\n2 [b]\n3 [c,\"d,e\",f]\n4 [g]\n"},
		{"\"say \"no\" twice\",x\ny\n", "1 [\"say \"no\" twice\",x] !text after a closing quote\n2 [y]\n"},
		{"5\" pipe,3\n6,4\n", "1 [5\" pipe,3] !a quote inside an unquoted field\n2 [6,4]\n"},
		{"a\"b\",\"c\nd\"\ne\n", "1 [a\"b\",\"c\nd\"] !a quote inside an unquoted field\n3 [e]\n"},
		{" \"a\"\n", "1 [ \"a\"] !a quote inside an unquoted field\n"},
		{"a\rb,c\nd\n", "1 [a\rb,c] !a carriage return outside quotes\n2 [d]\n"},
		{"\"a\"\rb\nd\n", "1 [\"a\"\rb] !a carriage return outside quotes\n2 [d]\n"},
		{"a\r\r\nb\n", "1 [a\r] !a carriage return outside quotes\n2 [b]\n"},
	};
	EXPECT(list, BARE);
}

static void bytes_that_are_no_text_make_a_record_bad(void **state)
{
	(void)state;
	static const struct expectation list[] = {
		{"a\xFFz,b\nc\n", "1 [a\xFFz,b] !invalid UTF-8\n2 [c]\n"},
		{"\"\xC3\n\",b\nc\n", "1 [\"\xC3\n\",b] !invalid UTF-8\n3 [c]\n"},
		{"0123456789abcdef\xED\xA0\x80\nc\n", "1 [0123456789abcdef\xED\xA0\x80] !invalid UTF-8\n2 [c]\n"},
		{"\xC3\xA9\xE2\x82\xAC,\xF0\x9F\x98\x80\n", "1 [\xC3\xA9\xE2\x82\xAC,\xF0\x9F\x98\x80]\n"},
	};
	EXPECT(list, BARE);
}

static void a_nul_is_reported(void **state)
{
	(void)state;
	static const char nul[] = "a\nb\0c\nd\n";
	for (size_t chunk = 1; chunk < 9; chunk++) {
		struct source s = {.data = nul, .len = sizeof(nul) - 1, .first = chunk, .chunk = chunk};
		const struct sl_records_opts opts = {BARE};
		struct sl_record r[3];
		sl_records *reader;
		size_t n, all = 0;
		assert_int_equal(sl_records_new(&reader, source_read, &s, &opts, NULL), 0);
		for (;;) {
			assert_int_equal(sl_records_next(reader, r, 3, &n, NULL), 0);
			if (n == 0)
				break;
			for (size_t i = 0; i < n; i++, all++)
				if (all == 1) {
					assert_string_equal(r[i].bad, "a NUL byte");
					assert_int_equal(r[i].len, 3);
				} else {
					assert_null(r[i].bad);
				}
		}
		assert_int_equal(all, 3);
		sl_records_free(reader);
	}
}

static void a_record_must_have_the_fields_of_the_header(void **state)
{
	(void)state;
	static const struct expectation list[] = {
		{"a,b\n1,2\n3\n4,5,6\n\"7,7\",8\n",
		 "2 [1,2]\n3 [3] !fewer fields than the header has\n4 [4,5,6] !more fields than the header has\n"
		 "5 [\"7,7\",8]\n"},
		{"\"a\nb\",c\n1,2\n", "3 [1,2]\n"},
		{"a\n", ""},
		{"\n\na\n1\n", "4 [1]\n"},
		{"a,,b\n1\n", "EDATA: the header has a column without a name\n"},
		{"a,b,a\n1\n", "EDATA: duplicate column \"a\" in the header\n"},
		{"a,\"b\n1\n", "EDATA: the header (line 1): an unclosed quote\n"},
	};
	EXPECT(list, CSV);
}

static void another_delimiter_takes_the_place_of_the_comma(void **state)
{
	(void)state;
	static const struct expectation list[] = {
		{"a;b\n1,0;2\n1;2;3\n\"x;y\";z\n",
		 "2 [1,0;2]\n3 [1;2;3] !more fields than the header has\n4 [\"x;y\";z]\n"}};
	EXPECT(list, CSV, .delimiter = ';');
}

static void json_records_are_lines_with_an_object(void **state)
{
	(void)state;
	static const struct expectation list[] = {
		{"{}\n{\"a\":1}\r\n  {\"b\":[1,2]}  \n", "1 [{}]\n2 [{\"a\":1}]\n3 [  {\"b\":[1,2]}  ]\n"},
		{"{\"a\":\"\\n\"}", "1 [{\"a\":\"\\n\"}]\n"},
		{"\n \t\r\n{}\n", "3 [{}]\n"},
		{"[]\n1\n{}\n", "1 [[]] !an object is expected\n2 [1] !an object is expected\n3 [{}]\n"},
		{"{\"a\":\n1}\n",
		 "1 [{\"a\":] !the text ends where a value is expected\n2 [1}] !an object is expected\n"},
		{"{\"a\":1}{}\n{}\n", "1 [{\"a\":1}{}] !unexpected text after the value\n2 [{}]\n"},
		{"{\"a\":\"\xFF\"}\n{}\n", "1 [{\"a\":\"\xFF\"}] !invalid UTF-8\n2 [{}]\n"},
	};
	EXPECT(list, SL_RECORDS_OPTS_INIT, .format = SL_ROWS_JSON);
}

static void a_record_that_is_too_long_is_reported_and_skipped(void **state)
{
	(void)state;
	static const struct expectation list[] = {
		{"12345678\nab\n", "1 [12345678]\n2 [ab]\n"},
		{"123456789\nab\n", "1 [123456789] !longer than the maximum record size\n2 [ab]\n"},
		{"12345678\r\nab\n", "1 [12345678]\n2 [ab]\n"},
		{"123456789\r\nab\n", "1 [123456789] !longer than the maximum record size\n2 [ab]\n"},
		{"123456789abcdef0123\r\nab\n",
		 "1 [123456789abcdef0123] !longer than the maximum record size\n2 [ab]\n"},
		{"ab\n123456789", "1 [ab]\n2 [123456789] !longer than the maximum record size\n"},
		{"ab\n123456789abcdef", "1 [ab]\n2 [123456789abcdef] !longer than the maximum record size\n"},
		{"\"1\n\"\nab\n", "1 [\"1\n\"]\n3 [ab]\n"},
		/* a quote that is closed too late is not closed */
		{"\"1\n2345678\"\nab\n",
		 "1 [\"1] !an unclosed quote\n2 [2345678\"] !a quote inside an unquoted field\n3 [ab]\n"},
		{"\"1\n\",345678\nab\n",
		 "1 [\"1] !longer than the maximum record size\n2 [\",345678] !an unclosed quote\n3 [ab]\n"},
		{"\"12345678901234567890\n\"\n", "1 [\"12345678901234567890] !longer than the maximum record size\n"
						 "2 [\"] !an unclosed quote\n"},
	};
	EXPECT(list, BARE, .max_record_bytes = 8);
	static const struct expectation json[] = {
		{"{\"a\":12}\n{\"a\":123}\n{}\n",
		 "1 [{\"a\":12}]\n2 [{\"a\":123}] !longer than the maximum record size\n3 [{}]\n"}};
	EXPECT(json, SL_RECORDS_OPTS_INIT, .format = SL_ROWS_JSON, .max_record_bytes = 8);
}

/* ---- an endless line: nothing holds it ---- */

struct endless {
	uint64_t left; /* of the long line */
	int stage;
};

static int64_t endless_read(void *buf, size_t n, struct sl_err *err, void *ctx)
{
	struct endless *e = ctx;
	(void)err;
	if (e->left > 0) {
		size_t k = e->left < n ? (size_t)e->left : n;
		memset(buf, 'x', k);
		e->left -= k;
		return (int64_t)k;
	}
	static const char *const rest[] = {"\nlast\n", ""};
	size_t k = strlen(rest[e->stage]);
	assert_true(k <= n);
	memcpy(buf, rest[e->stage], k);
	e->stage += e->stage == 0;
	return (int64_t)k;
}

static size_t most_allocated;

static void *watched_resize(void *p, size_t n, void *ctx)
{
	(void)ctx;
	most_allocated = n > most_allocated ? n : most_allocated;
	return realloc(p, n);
}

static void *watched_alloc(size_t n, void *ctx)
{
	return watched_resize(NULL, n, ctx);
}

static void watched_release(void *p, void *ctx)
{
	(void)ctx;
	free(p);
}

static void a_line_of_four_gigabytes_needs_no_memory(void **state)
{
	(void)state;
	static const struct sl_mem watched = {SL_MEM_VERSION, watched_alloc, watched_resize, watched_release};
	const struct sl_env env = {SL_ENV_INIT, .mem = &watched};
	const struct sl_records_opts opts = {BARE, .env = &env, .max_record_bytes = 1 << 20};
	const uint64_t length = (uint64_t)1 << 32;
	struct endless e = {.left = length};
	struct sl_record r[4];
	sl_records *reader;
	size_t n;
	most_allocated = 0;
	assert_int_equal(sl_records_new(&reader, endless_read, &e, &opts, NULL), 0);
	assert_int_equal(sl_records_next(reader, r, 4, &n, NULL), 0);
	assert_int_equal(n, 1);
	assert_string_equal(r[0].bad, "longer than the maximum record size");
	assert_int_equal(r[0].len, 4096);
	assert_int_equal(r[0].line, 1);
	assert_int_equal(r[0].end, length + 1);
	for (size_t i = 0; i < 4096; i++)
		assert_int_equal(r[0].data[i], 'x');
	assert_int_equal(sl_records_next(reader, r, 4, &n, NULL), 0);
	assert_int_equal(n, 1);
	assert_int_equal(r[0].line, 2);
	assert_memory_equal(r[0].data, "last", 4);
	assert_true(most_allocated <= (1 << 20) + 64);
	sl_records_free(reader);
}

/* ---- continuing where one was ---- */

static const char log_text[] = "h,i\n1,a\n\"2\n2\",b\nbad\n\n3,c\n";

static void line_numbers_are_right_after_a_skip(void **state)
{
	(void)state;
	static const uint64_t ends[] = {4, 8, 16, 20, 25};
	static const uint64_t next_line[] = {2, 3, 5, 7, 0};
	for (size_t i = 0; i < 5; i++) {
		struct source s = {.data = log_text, .len = sizeof(log_text) - 1, .first = 3, .chunk = 3};
		const struct sl_records_opts opts = {CSV, .buffer_bytes = 5};
		struct sl_record r;
		sl_records *reader;
		size_t n;
		assert_int_equal(sl_records_new(&reader, source_read, &s, &opts, NULL), 0);
		assert_int_equal(sl_records_skip(reader, ends[i], NULL), 0);
		assert_int_equal(sl_records_next(reader, &r, 1, &n, NULL), 0);
		assert_int_equal(n, next_line[i] != 0);
		if (n == 1)
			assert_int_equal(r.line, next_line[i]);
		sl_records_free(reader);
	}
}

static void skipping_to_where_no_record_ends_is_refused(void **state)
{
	(void)state;
	for (uint64_t offset = 1; offset < 40; offset++) {
		struct source s = {.data = log_text, .len = sizeof(log_text) - 1};
		const struct sl_records_opts opts = {CSV};
		struct sl_err err = SL_ERR_INIT;
		sl_records *reader;
		bool end = offset == 4 || offset == 8 || offset == 16 || offset == 20 || offset == 25;
		assert_int_equal(sl_records_new(&reader, source_read, &s, &opts, NULL), 0);
		assert_int_equal(sl_records_skip(reader, offset, &err), end ? 0 : SL_EDATA);
		if (offset > 25)
			assert_non_null(strstr(err.msg, "fewer"));
		sl_records_free(reader);
	}
}

/* ---- columns, options ---- */

static void the_header_names_the_columns(void **state)
{
	(void)state;
	static const char text[] = "plain,\"with, comma\",\"with \"\"quotes\"\"\",\"two\nlines\"\r\n";
	for (size_t chunk = 1; chunk < sizeof(text); chunk++) {
		struct source s = {.data = text, .len = sizeof(text) - 1, .first = chunk, .chunk = chunk};
		const struct sl_records_opts opts = {CSV};
		sl_records *reader;
		const char *const *names;
		size_t n;
		assert_int_equal(sl_records_new(&reader, source_read, &s, &opts, NULL), 0);
		assert_int_equal(sl_records_columns(reader, &names, &n, NULL), 0);
		assert_int_equal(n, 4);
		assert_string_equal(names[0], "plain");
		assert_string_equal(names[1], "with, comma");
		assert_string_equal(names[2], "with \"quotes\"");
		assert_string_equal(names[3], "two\nlines");
		sl_records_free(reader);
	}
}

static void without_a_header_there_are_no_columns(void **state)
{
	(void)state;
	static const struct sl_records_opts list[] = {{CSV}, {BARE}, {SL_RECORDS_OPTS_INIT, .format = SL_ROWS_JSON}};
	for (size_t i = 0; i < 3; i++) {
		struct source s = {.data = "", .len = 0};
		const char *const *names;
		struct sl_record record;
		sl_records *reader;
		size_t n;
		assert_int_equal(sl_records_new(&reader, source_read, &s, &list[i], NULL), 0);
		assert_int_equal(sl_records_columns(reader, &names, &n, NULL), SL_EDATA);
		assert_int_equal(sl_records_next(reader, &record, 1, &n, NULL), 0);
		assert_int_equal(n, 0);
		sl_records_free(reader);
	}
}

static void options_out_of_range_are_named(void **state)
{
	(void)state;
	static const struct {
		struct sl_records_opts opts;
		const char *name;
	} list[] = {
		{{SL_RECORDS_OPTS_INIT, .format = (enum sl_row_format)7}, "format"},
		{{CSV, .header = (enum sl_switch)3}, "header"},
		{{CSV, .max_record_bytes = -1}, "max_record_bytes"},
		{{CSV, .max_record_bytes = (64 << 20) + 1}, "max_record_bytes"},
		{{CSV, .buffer_bytes = -1}, "buffer_bytes"},
		{{CSV, .delimiter = '"'}, "delimiter"},
		{{CSV, .delimiter = '\n'}, "delimiter"},
	};
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		struct sl_err err = SL_ERR_INIT;
		sl_records *reader = NULL;
		assert_int_equal(sl_records_new(&reader, source_read, NULL, &list[i].opts, &err), SL_EINVAL);
		assert_non_null(strstr(err.msg, list[i].name));
		assert_null(reader);
	}
	sl_records_free(NULL);
}

/* ---- failures ---- */

static void a_failed_read_is_reported_after_the_records_before_it_and_can_be_repeated(void **state)
{
	(void)state;
	static const char text[] = "a,b\n1,2\n\"3\n3\",4\n5\n6,7\n";
	static const char wanted[] = "2 [1,2]\n3 [\"3\n3\",4]\n5 [5] !fewer fields than the header has\n6 [6,7]\n";
	for (size_t fail_at = 1; fail_at < 40; fail_at++)
		for (size_t chunk = 1; chunk < 8; chunk++) {
			struct source s = {.data = text,
					   .len = sizeof(text) - 1,
					   .first = chunk,
					   .chunk = chunk,
					   .fail_at = fail_at};
			const struct sl_records_opts opts = {CSV};
			char *got = source_records(&s, &opts, 3);
			assert_string_equal(got, wanted);
			free(got);
		}
}

static void a_read_that_fails_in_a_record_that_is_too_long_loses_nothing(void **state)
{
	(void)state;
	static const char text[] = "ok\n0123456789012345678901234567890123456789\nok2\n";
	for (size_t fail_at = 1; fail_at < 50; fail_at++) {
		struct source s = {.data = text, .len = sizeof(text) - 1, .first = 1, .chunk = 1, .fail_at = fail_at};
		const struct sl_records_opts opts = {BARE, .max_record_bytes = 5};
		char *got = source_records(&s, &opts, 3);
		assert_string_equal(got, "1 [ok]\n2 [0123456789012345678901234567890123456789] "
					 "!longer than the maximum record size\n3 [ok2]\n");
		free(got);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(csv_records_end_at_line_ends_outside_of_quotes),
		cmocka_unit_test(empty_lines_are_skipped_and_counted),
		cmocka_unit_test(a_byte_order_mark_is_no_part_of_the_first_record),
		cmocka_unit_test(a_wrong_quote_costs_its_line_only),
		cmocka_unit_test(bytes_that_are_no_text_make_a_record_bad),
		cmocka_unit_test(a_nul_is_reported),
		cmocka_unit_test(a_record_must_have_the_fields_of_the_header),
		cmocka_unit_test(another_delimiter_takes_the_place_of_the_comma),
		cmocka_unit_test(json_records_are_lines_with_an_object),
		cmocka_unit_test(a_record_that_is_too_long_is_reported_and_skipped),
		cmocka_unit_test(a_line_of_four_gigabytes_needs_no_memory),
		cmocka_unit_test(line_numbers_are_right_after_a_skip),
		cmocka_unit_test(skipping_to_where_no_record_ends_is_refused),
		cmocka_unit_test(the_header_names_the_columns),
		cmocka_unit_test(without_a_header_there_are_no_columns),
		cmocka_unit_test(options_out_of_range_are_named),
		cmocka_unit_test(a_failed_read_is_reported_after_the_records_before_it_and_can_be_repeated),
		cmocka_unit_test(a_read_that_fails_in_a_record_that_is_too_long_loses_nothing),
	};
	return cmocka_run_group_tests_name("records", tests, NULL, NULL);
}
