/* SPDX-License-Identifier: Apache-2.0 */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "format/guess.h"
#include "source.h"
#include "support/fault.h"

#define CSV SL_RECORDS_OPTS_INIT, .format = SL_ROWS_CSV
#define JSON SL_RECORDS_OPTS_INIT, .format = SL_ROWS_JSON

static const char *const kind_names[] = {"text", "integer", "real", "numeric", "boolean", "timestamp", "date", "json"};

/* "a:integer b:text" */
static char *infer(struct source *s, const struct sl_records_opts *opts, size_t max)
{
	const struct sl_column *columns;
	struct sl_err err = SL_ERR_INIT;
	sl_records *r;
	char *text = NULL;
	size_t n = 0, bytes;
	FILE *out = open_memstream(&text, &bytes);
	assert_int_equal(sl_records_new(&r, source_read, s, opts, &err), 0);
	int rc = sl_records_infer(r, max, &columns, &n, &err);
	if (rc != 0)
		fprintf(out, "%s: %s", sl_err_name(rc), err.msg);
	for (size_t i = 0; i < n; i++) {
		fprintf(out, "%s%s:%s", i > 0 ? " " : "", columns[i].name, kind_names[columns[i].kind]);
		assert_int_equal(columns[i].not_null, 0);
	}
	fclose(out);
	sl_records_free(r);
	return text;
}

static void expect(const char *input, const char *wanted, struct sl_records_opts opts)
{
	for (size_t chunk = 0; chunk < 8; chunk++) {
		struct source s = {.data = input, .len = strlen(input), .first = chunk, .chunk = chunk};
		opts.buffer_bytes = chunk % 2 == 0 ? 7 : 0;
		char *got = infer(&s, &opts, 100);
		assert_string_equal(got, wanted);
		free(got);
	}
}

static void expect_kind(const char *value, const char *kind)
{
	const char *got = kind_names[sl__guess_column(sl__guess(value, strlen(value), SL__KINDS_ALL), true)];
	if (strcmp(got, kind) != 0)
		fail_msg("%s is taken for %s, not %s", value, got, kind);
}

static void the_type_of_a_value_is_inferred_from_its_text(void **state)
{
	(void)state;
	static const char *const list[][2] = {
		{"0", "integer"},
		{"-0", "integer"},
		{"42", "integer"},
		{"-17", "integer"},
		{"9223372036854775807", "integer"},
		{"-9223372036854775808", "integer"},
		{"9223372036854775808", "numeric"},
		{"-9223372036854775809", "numeric"},
		{"100000000000000000000", "numeric"},
		{"007", "text"},
		{"-007", "text"},
		{"00", "text"},
		{"+5", "text"},
		{"5.", "text"},
		{".5", "text"},
		{"-", "text"},
		{"1 ", "text"},
		{" 1", "text"},
		{"1,5", "text"},
		{"0x10", "text"},
		{"NaN", "text"},
		{"Infinity", "text"},
		{"190.25", "real"},
		{"0.1", "real"},
		{"-0.0", "real"},
		{"190.10", "real"},
		{"1e3", "real"},
		{"1E-7", "real"},
		{"1e", "text"},
		{"123456789012345.6", "real"},  /* prints as it is */
		{"123456789012345.67", "real"}, /* 17 digits that are those of its double */
		{"0.30000000000000004", "real"},
		{"0.30000000000000001", "numeric"},
		{"123456789012345.678", "numeric"},
		{"3.14159265358979323846", "numeric"},
		{"0.10000000000000000000000000", "real"}, /* zeros say nothing */
		{"1e308", "real"},
		{"1e309", "numeric"},
		{"5e-324", "real"},
		{"4.95e-324", "numeric"}, /* a denormal double would lose digits */
		{"1e-400", "numeric"},
		{"1e99999", "text"},
		{"1e-99999", "text"},
		{"1e99999999999999999999", "text"},
		{"true", "boolean"},
		{"false", "boolean"},
		{"True", "text"},
		{"t", "text"},
		{"2024-02-29", "date"},
		{"2023-02-29", "text"},
		{"1900-02-29", "text"},
		{"2000-02-29", "date"},
		{"2024-13-01", "text"},
		{"2024-04-31", "text"},
		{"0000-01-01", "text"},
		{"2024-1-1", "text"},
		{"20240101", "integer"},
		{"2024-01-02T15:04:05Z", "timestamp"},
		{"2024-01-02 15:04:05", "timestamp"},
		{"2024-01-02T15:04", "timestamp"},
		{"2024-01-02T15:04:05.1", "timestamp"},
		{"2024-01-02T15:04:05.123456+01:00", "timestamp"},
		{"2024-01-02T15:04:05.123456000-0530", "timestamp"},
		{"2024-01-02T15:04:05+01", "timestamp"},
		{"2024-01-02T15:04:05.123456789Z", "text"},
		{"2024-01-02T15:04:05.1234567Z", "text"},
		{"2024-01-02T15:04:05.", "text"},
		{"2024-01-02T24:00:00", "text"},
		{"2024-01-02T15:60", "text"},
		{"2024-01-02T15", "text"},
		{"2024-01-02T15:04:05+1", "text"},
		{"2024-01-02T15:04:05+01:0", "text"},
		{"2024-01-02T15:04:05+01:", "text"},
		{"2024-01-02T15:04:05ZZ", "text"},
		{"2024-01-02T", "text"},
		{"{}", "json"},
		{"[1,2]", "json"},
		{"{\"a\":1", "text"},
		{"\"x\"", "text"},
		{"", "text"},
		{"AAPL", "text"},
	};
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		expect_kind(list[i][0], list[i][1]);
}

/* Prices must not become text where the decimal point is a comma. */
static void the_locale_changes_nothing(void **state)
{
	(void)state;
	if (setlocale(LC_NUMERIC, "de_DE.UTF-8") == NULL)
		print_message("# no locale with a decimal comma here\n");
	expect_kind("190.25", "real");
	expect_kind("0.30000000000000004", "real");
	expect_kind("190,25", "text");
	setlocale(LC_NUMERIC, "C");
}

static void a_column_is_what_all_its_values_can_be(void **state)
{
	(void)state;
	const struct sl_records_opts csv = {CSV};
	expect("symbol,ts,open,volume\nAAPL,2024-01-02T15:04:05Z,190.25,100\nMSFT,2024-01-02T15:04:06Z,370,200\n",
	       "symbol:text ts:timestamp open:real volume:integer", csv);
	expect("a\n1\n2.5\n", "a:real", csv);
	expect("a\n9007199254740993\n2.5\n", "a:numeric", csv);
	expect("a\n1\n99999999999999999999\n", "a:numeric", csv);
	expect("a\n1\nx\n2\n", "a:text", csv);
	expect("a\ntrue\nfalse\n", "a:boolean", csv);
	expect("a\ntrue\n1\n", "a:text", csv);
	expect("a\n2024-01-01\n2024-01-02\n", "a:date", csv);
	expect("a\n2024-01-01\n2024-01-02 10:00\n", "a:timestamp", csv);
	expect("a\n\"{\"\"k\"\":[1]}\"\n[]\n", "a:json", csv);
	expect("a\n\"[1]\"\n1\n", "a:text", csv);
	expect("a\n1\n007\n", "a:text", csv);
}

static void nulls_and_bad_records_say_nothing(void **state)
{
	(void)state;
	const struct sl_records_opts csv = {CSV}, dash = {CSV, .null_text = "-"};
	expect("a,b\n1,\n,\n2,\n", "a:integer b:text", csv);
	expect("a,b\n1,\"\"\n2,3\n", "a:integer b:text", csv);
	expect("a,b\n-,1.5\n-1,-\n", "a:integer b:real", dash);
	expect("a,b\n1,2\nx\n\"y\nz\n3,4\n", "a:integer b:integer", csv);
	expect("a,b\n", "a:text b:text", csv);
	expect("", "", csv);
	expect("a,a\n", "EDATA: duplicate column \"a\" in the header", csv);
}

static void without_a_header_columns_get_numbers(void **state)
{
	(void)state;
	const struct sl_records_opts bare = {CSV, .header = SL_OFF};
	expect("1,x\n2,y\n1,2,3\n", "c1:integer c2:text", bare);
	expect("", "", bare);
}

static void json_columns_are_the_union_of_the_members(void **state)
{
	(void)state;
	const struct sl_records_opts json = {JSON};
	expect("{\"b\":1,\"a\":\"x\"}\n{\"c\":true,\"b\":2}\nnonsense\n{\"d\":null}\n",
	       "b:integer a:text c:boolean d:text", json);
	expect("{\"a\":1}\n{\"a\":1.0}\n", "a:real", json);
	expect("{\"a\":18446744073709551615}\n", "a:numeric", json);
	expect("{\"a\":\"42\",\"b\":\"true\",\"c\":\"2024-01-01\",\"d\":\"[]\"}\n", "a:text b:text c:date d:text",
	       json);
	expect("{\"a\":[1],\"b\":{}}\n{\"a\":{},\"b\":1}\n", "a:json b:text", json);
	expect("{\"\\u00e9\":1,\"\xC3\xA9\":2.5}\n", "\xC3\xA9:real", json);
	expect("{\"a\":\"2024-01-02T15:04:05Z\"}\n", "a:timestamp", json);
	expect("", "", json);
}

static void too_many_members_are_refused(void **state)
{
	(void)state;
	for (int n = 2000; n <= 2001; n++) {
		char *text = NULL, *got;
		size_t bytes;
		FILE *f = open_memstream(&text, &bytes);
		for (int i = 0; i < n; i++)
			fprintf(f, "{\"m%d\":%d}\n", (i * 7919) % n, i);
		fclose(f);
		struct source s = {.data = text, .len = bytes};
		const struct sl_records_opts json = {JSON};
		got = infer(&s, &json, 10000);
		assert_int_equal(strncmp(got, "EDATA: more than 2000", 21) == 0, n == 2001);
		free(got);
		free(text);
	}
}

/* ---- the records stay ---- */

static void the_records_that_were_sampled_are_still_returned(void **state)
{
	(void)state;
	static const char text[] = "\xEF\xBB\xBFn\n1\n\"2\n\"\n01234567890123456789\n\"3\n4\n";
	for (size_t chunk = 1; chunk < sizeof(text); chunk++)
		for (size_t max = 0; max < 8; max++)
			for (size_t before = 0; before < 5; before++) {
				struct source s = {
					.data = text, .len = sizeof(text) - 1, .first = chunk, .chunk = chunk};
				const struct sl_records_opts opts = {CSV, .max_record_bytes = 10, .buffer_bytes = 4};
				static const uint64_t lines[] = {2, 3, 5, 6, 7};
				const struct sl_column *c;
				struct sl_record r;
				sl_records *reader;
				size_t n;
				assert_int_equal(sl_records_new(&reader, source_read, &s, &opts, NULL), 0);
				for (size_t i = 0; i < 5; i++) {
					if (i == before)
						assert_int_equal(sl_records_infer(reader, max, &c, &n, NULL), 0);
					assert_int_equal(sl_records_next(reader, &r, 1, &n, NULL), 0);
					assert_int_equal(n, 1);
					assert_int_equal(r.line, lines[i]);
					assert_memory_equal(r.data, text + r.offset, r.len);
				}
				assert_int_equal(sl_records_next(reader, &r, 1, &n, NULL), 0);
				assert_int_equal(n, 0);
				sl_records_free(reader);
			}
}

struct numbers {
	uint64_t next, most;
	size_t reads;
};

static int64_t numbers_read(void *buf, size_t n, struct sl_err *err, void *ctx)
{
	struct numbers *s = ctx;
	size_t k = 0;
	(void)err;
	s->reads++;
	for (; k + 16 <= n && s->next < s->most; k += 16, s->next++) {
		snprintf((char *)buf + k, 16, "%015u", (unsigned)s->next);
		((char *)buf)[k + 15] = '\n';
	}
	return (int64_t)k;
}

static void no_more_is_read_ahead_than_needed(void **state)
{
	(void)state;
	const struct sl_records_opts opts = {CSV, .header = SL_OFF};
	const struct sl_column *c;
	struct sl_record r[500];
	size_t n;
	uint64_t seen = 0;
	sl_records *reader;
	/* a few records: one read; any number of records: 16 MiB */
	struct numbers few = {.most = 10000000}, many = {.most = 10000000};
	assert_int_equal(sl_records_new(&reader, numbers_read, &few, &opts, NULL), 0);
	assert_int_equal(sl_records_infer(reader, 1000, &c, &n, NULL), 0);
	assert_int_equal(few.reads, 1);
	sl_records_free(reader);
	assert_int_equal(sl_records_new(&reader, numbers_read, &many, &opts, NULL), 0);
	assert_int_equal(sl_records_infer(reader, SIZE_MAX, &c, &n, NULL), 0);
	assert_int_equal(many.next * 16, 16 << 20);
	many.most = many.next + 5;
	for (;;) {
		assert_int_equal(sl_records_next(reader, r, 500, &n, NULL), 0);
		if (n == 0)
			break;
		for (size_t i = 0; i < n; i++, seen++)
			assert_int_equal(strtoull(r[i].data, NULL, 10), seen);
	}
	assert_int_equal(seen, many.most);
	sl_records_free(reader);
}

/* ---- failures ---- */

static void everything_once(struct sl_env *env, const struct sl_records_opts *with, const char *text, size_t chunk,
			    int (*failed)(void *), void *ctx)
{
	struct source s = {.data = text, .len = strlen(text), .first = chunk, .chunk = chunk};
	struct sl_records_opts opts = *with;
	const struct sl_column *c;
	const char *const *names;
	struct sl_record r[2];
	sl_records *reader = NULL;
	size_t n, records = 0;
	opts.env = env;
	int rc = sl_records_new(&reader, source_read, &s, &opts, NULL);
	if (rc != 0) {
		assert_int_equal(rc, SL_ENOMEM);
		assert_true(failed(ctx));
		return;
	}
	for (int again = 0; opts.format == SL_ROWS_CSV && (rc = sl_records_columns(reader, &names, &n, NULL)) != 0;
	     again++) {
		assert_int_equal(rc, SL_ENOMEM);
		assert_int_equal(again, 0);
	}
	for (int again = 0; (rc = sl_records_infer(reader, 10, &c, &n, NULL)) != 0; again++) {
		assert_int_equal(rc, SL_ENOMEM);
		assert_int_equal(again, 0);
	}
	assert_int_equal(n, 2);
	assert_int_equal(c[1].kind, SL_COLUMN_INTEGER);
	do {
		rc = sl_records_next(reader, r, 2, &n, NULL);
		assert_true(rc == 0 || rc == SL_ENOMEM);
		for (size_t i = 0; rc == 0 && i < n; i++, records++) {
			assert_int_equal(r[i].line, records + (opts.format == SL_ROWS_CSV ? 2 : 1));
			assert_memory_equal(r[i].data, text + r[i].offset, r[i].len);
		}
	} while (rc != 0 || n > 0);
	assert_int_equal(records, 3);
	sl_records_free(reader);
}

static int mem_failed(void *ctx)
{
	return fault_mem_failed(ctx) > 0;
}

static void a_call_without_memory_fails_alone_and_can_be_made_again(void **state)
{
	(void)state;
	static const struct {
		struct sl_records_opts opts;
		const char *text;
	} list[] = {
		{{CSV, .buffer_bytes = 4}, "\"a\"\"\",b\nx,1\n\"y\"\"y\",2\n0123456789,3\n"},
		{{JSON, .buffer_bytes = 4}, "{\"\\u0061\":\"x\",\"b\":1}\n{\"b\":2}\n{\"a\":\"\\n\"}\n"},
	};
	struct fault fault;
	fault_init(&fault, NULL);
	struct sl_env env = fault_env(&fault, NULL);
	for (size_t i = 0; i < 2; i++)
		for (int64_t at = 1;; at++) {
			fault_arm_mem(&fault, at, FAULT_ONCE);
			everything_once(&env, &list[i].opts, list[i].text, 3, mem_failed, &fault);
			assert_int_equal(fault_live_allocs(&fault), 0);
			if (fault_mem_failed(&fault) == 0)
				break;
		}
	fault_fini(&fault);
}

static void a_failed_read_fails_the_guess_and_loses_nothing(void **state)
{
	(void)state;
	static const char text[] = "a\n1\n2\n3\n";
	for (size_t fail_at = 1; fail_at <= sizeof(text); fail_at++) {
		struct source s = {.data = text, .len = sizeof(text) - 1, .first = 1, .chunk = 1, .fail_at = fail_at};
		const struct sl_records_opts opts = {CSV};
		const struct sl_column *c;
		struct sl_record r;
		sl_records *reader;
		size_t n;
		assert_int_equal(sl_records_new(&reader, source_read, &s, &opts, NULL), 0);
		assert_int_equal(sl_records_infer(reader, 10, &c, &n, NULL), SL_EIO);
		assert_int_equal(sl_records_infer(reader, 10, &c, &n, NULL), 0);
		assert_int_equal(c[0].kind, SL_COLUMN_INTEGER);
		for (uint64_t line = 2; line <= 4; line++) {
			assert_int_equal(sl_records_next(reader, &r, 1, &n, NULL), 0);
			assert_int_equal(r.line, line);
		}
		sl_records_free(reader);
	}
}

struct pausing {
	const char *pieces[4]; /* NULL: nothing for now */
	size_t at;
};

static int64_t pausing_read(void *buf, size_t n, struct sl_err *err, void *ctx)
{
	struct pausing *p = ctx;
	(void)err;
	const char *piece = p->pieces[p->at++];
	if (piece == NULL)
		return SL_EAGAIN;
	assert_true(strlen(piece) <= n);
	memcpy(buf, piece, strlen(piece));
	return (int64_t)strlen(piece);
}

static void a_pause_ends_the_look_once_there_is_a_record(void **state)
{
	struct sl_records_opts opts = {CSV};
	struct pausing p = {.pieces = {"a,b\n", NULL, "1,x\n2.", NULL}};
	const struct sl_column *c;
	sl_records *reader;
	struct sl_record r;
	size_t n;
	(void)state;
	assert_int_equal(sl_records_new(&reader, pausing_read, &p, &opts, NULL), 0);
	assert_int_equal(sl_records_infer(reader, 10, &c, &n, NULL), SL_EAGAIN);
	assert_int_equal(sl_records_infer(reader, 10, &c, &n, NULL), 0);
	assert_int_equal(n, 2);
	assert_int_equal(c[0].kind, SL_COLUMN_INTEGER); /* not of what is only begun */
	p = (struct pausing){.pieces = {"5,y\n", ""}};
	assert_int_equal(sl_records_next(reader, &r, 1, &n, NULL), 0);
	assert_memory_equal(r.data, "1,x", 3);
	assert_int_equal(sl_records_next(reader, &r, 1, &n, NULL), 0);
	assert_memory_equal(r.data, "2.5,y", 5);
	sl_records_free(reader);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_type_of_a_value_is_inferred_from_its_text),
		cmocka_unit_test(the_locale_changes_nothing),
		cmocka_unit_test(a_column_is_what_all_its_values_can_be),
		cmocka_unit_test(nulls_and_bad_records_say_nothing),
		cmocka_unit_test(without_a_header_columns_get_numbers),
		cmocka_unit_test(json_columns_are_the_union_of_the_members),
		cmocka_unit_test(too_many_members_are_refused),
		cmocka_unit_test(the_records_that_were_sampled_are_still_returned),
		cmocka_unit_test(no_more_is_read_ahead_than_needed),
		cmocka_unit_test(a_call_without_memory_fails_alone_and_can_be_made_again),
		cmocka_unit_test(a_failed_read_fails_the_guess_and_loses_nothing),
		cmocka_unit_test(a_pause_ends_the_look_once_there_is_a_record),
	};
	return cmocka_run_group_tests_name("infer", tests, NULL, NULL);
}
