/* SPDX-License-Identifier: Apache-2.0 */
/* What the writer refuses, how it fails, what it chooses and what it writes into the footer. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fail_mem.h"
#include "parquet/sample.h"

static struct sl_err err;

static int make(sl_parquet_writer **w, const struct sl_parquet_column *c, size_t n,
		const struct sl_parquet_writer_opts *opts, struct sink *out)
{
	memset(&err, 0, sizeof(err));
	return sl_parquet_writer_new(w, c, n, opts, sink_write, out, &err);
}

static void a_column_that_cannot_be_is_refused_by_name(void **state)
{
	static const struct {
		struct sl_parquet_column column;
		const char *word;
	} cases[] = {
		{{.name = NULL, .kind = SL_PARQUET_BOOL}, "column 1"},
		{{.name = "", .kind = SL_PARQUET_BOOL}, "column 1"},
		{{.name = "a\xFF", .kind = SL_PARQUET_BOOL}, "UTF-8"},
		{{.name = "k", .kind = 0}, "'k'"},
		{{.name = "k", .kind = (enum sl_parquet_kind)12}, "kind"},
		{{.name = "t", .kind = SL_PARQUET_TIMESTAMP, .unit = (enum sl_parquet_unit)3}, "unit"},
		{{.name = "d", .kind = SL_PARQUET_DECIMAL, .precision = 19}, "precision"},
		{{.name = "d", .kind = SL_PARQUET_DECIMAL, .precision = 4, .scale = 5}, "scale"},
		{{.name = "f", .kind = SL_PARQUET_FIXED}, "length"},
		{{.name = "f", .kind = SL_PARQUET_FIXED, .length = 65537}, "length"},
	};
	sl_parquet_writer *w = NULL;
	struct sink out = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(make(&w, &cases[i].column, 1, NULL, &out), SL_EINVAL);
		assert_non_null(strstr(err.msg, cases[i].word));
		assert_null(w);
	}
	struct sl_parquet_column twins[] = {{.name = "x", .kind = SL_PARQUET_BOOL},
					    {.name = "x", .kind = SL_PARQUET_INT32}};
	assert_int_equal(make(&w, twins, 2, NULL, &out), SL_EINVAL);
	assert_non_null(strstr(err.msg, "'x'"));
	assert_int_equal(make(&w, twins, 0, NULL, &out), SL_EINVAL);
	assert_int_equal(out.calls, 0);
}

static void an_option_out_of_range_is_refused_by_name(void **state)
{
	static const struct sl_parquet_pair no_key[] = {{NULL, "v"}};
	static const struct {
		struct sl_parquet_writer_opts opts;
		const char *word;
	} cases[] = {
		{{SL_PARQUET_WRITER_OPTS_INIT, .zstd_level = 20}, "zstd_level"},
		{{SL_PARQUET_WRITER_OPTS_INIT, .row_group_rows = -5}, "row_group_rows"},
		{{SL_PARQUET_WRITER_OPTS_INIT, .row_group_bytes = INT64_MAX}, "row_group_bytes"},
		{{SL_PARQUET_WRITER_OPTS_INIT, .dictionary_bytes = -7}, "dictionary_bytes"},
		{{SL_PARQUET_WRITER_OPTS_INIT, .metadata = no_key, .n_metadata = 1}, "metadata"},
	};
	struct sl_parquet_column c = {.name = "a", .kind = SL_PARQUET_BOOL};
	sl_parquet_writer *w = NULL;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(make(&w, &c, 1, &cases[i].opts, NULL), SL_EINVAL);
		assert_non_null(strstr(err.msg, cases[i].word));
	}
	assert_int_equal(sl_parquet_writer_new(&w, &c, 1, NULL, NULL, NULL, &err), SL_EINVAL);
}

static void a_null_in_a_required_column_is_reported_with_its_row_and_ends_the_file(void **state)
{
	struct sl_parquet_column c = {.name = "must", .kind = SL_PARQUET_INT32};
	static const int32_t values[] = {1, 2, 3};
	static const uint8_t nulls[] = {0, 0, 1};
	struct sl_parquet_values v = {values, NULL};
	struct sink out = {0};
	sl_parquet_writer *w = NULL;

	(void)state;
	assert_int_equal(make(&w, &c, 1, NULL, &out), 0);
	assert_int_equal(sl_parquet_writer_put(w, &v, 3, &err), 0);
	v.nulls = nulls;
	assert_int_equal(sl_parquet_writer_put(w, &v, 3, &err), SL_EDATA);
	assert_non_null(strstr(err.msg, "row 5"));
	assert_non_null(strstr(err.msg, "'must'"));
	assert_int_equal(sl_parquet_writer_put(w, &v, 3, &err), SL_EPOISONED);
	assert_int_equal(sl_parquet_writer_finish(w, &err), SL_EPOISONED);
	sl_parquet_writer_free(w);
	sink_free(&out);
}

/* With NULLs before it, in a dictionary or not. */
static void text_that_is_not_utf8_is_reported_with_its_row(void **state)
{
	struct sl_parquet_column c = {.name = "t", .kind = SL_PARQUET_STRING, .nullable = true};
	struct sl_parquet_bytes values[] = {{"ok", 2}, {"ok", 2}, {NULL, 0}, {"ok", 2}, {"\xC3(", 2}, {"ok", 2}};
	static const uint8_t nulls[] = {0, 0, 1, 0, 0, 0};
	struct sl_parquet_values v = {values, nulls};
	sl_parquet_writer *w = NULL;

	(void)state;
	for (int dictionary = 0; dictionary < 2; dictionary++) {
		struct sink out = {0};
		c.dictionary = dictionary ? SL_ON : SL_OFF;
		assert_int_equal(make(&w, &c, 1, NULL, &out), 0);
		assert_int_equal(sl_parquet_writer_put(w, &v, 3, &err), 0);
		assert_int_equal(sl_parquet_writer_put(w, &v, 6, &err), 0);
		assert_int_equal(sl_parquet_writer_finish(w, &err), SL_EDATA);
		assert_non_null(strstr(err.msg, "row 7"));
		sl_parquet_writer_free(w);
		sink_free(&out);
	}
	struct sl_parquet_writer_opts opts = {SL_PARQUET_WRITER_OPTS_INIT, .check_utf8 = SL_OFF};
	struct sink out = {0};
	assert_int_equal(make(&w, &c, 1, &opts, &out), 0);
	assert_int_equal(sl_parquet_writer_put(w, &v, 6, &err), 0);
	assert_int_equal(sl_parquet_writer_finish(w, &err), 0);
	sl_parquet_writer_free(w);
	sink_free(&out);
}

static void a_finished_file_takes_no_more(void **state)
{
	struct sl_parquet_column c = {.name = "a", .kind = SL_PARQUET_BOOL};
	struct sl_parquet_values v = {"\1", NULL};
	struct sl_parquet_writer_stats stats = {.struct_size = sizeof(stats)};
	struct sink out = {0};
	sl_parquet_writer *w = NULL;

	(void)state;
	assert_int_equal(make(&w, &c, 1, NULL, &out), 0);
	assert_int_equal(out.n, 0);
	assert_int_equal(sl_parquet_writer_put(w, &v, 1, &err), 0);
	assert_int_equal(sl_parquet_writer_finish(w, &err), 0);
	assert_int_equal(sl_parquet_writer_put(w, &v, 1, &err), SL_ECLOSED);
	assert_int_equal(sl_parquet_writer_finish(w, &err), SL_ECLOSED);
	sl_parquet_writer_get_stats(w, &stats);
	assert_int_equal(stats.rows, 1);
	assert_int_equal(stats.row_groups, 1);
	assert_int_equal(stats.bytes, out.n);
	sl_parquet_writer_free(w);
	sink_free(&out);
}

static void a_failure_of_the_callback_at_any_call_is_handed_on(void **state)
{
	struct sample s;
	size_t calls = 0;

	(void)state;
	sample_make(&s, "wide");
	for (size_t at = 1;; at++) {
		struct sink out = {.fail_at = at};
		memset(&err, 0, sizeof(err));
		int rc = sample_write(&s, NULL, 0, &out, &err);
		sink_free(&out);
		if (rc == 0)
			break;
		assert_int_equal(rc, SL_ENOSPC);
		assert_string_equal(err.msg, "the sink is full");
		calls = at;
	}
	printf("# %zu calls failed\n", calls);
	assert_true(calls > 50);
	sample_free(&s);
}

static void a_failed_allocation_anywhere_is_reported_and_leaks_nothing(void **state)
{
	static const char *const names[] = {"uncompressed", "nullable", "wide", "long_texts"};
	struct sample s;
	int failures = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		sample_make(&s, names[i]);
		for (int at = 1;; at++) {
			struct fail_mem mem = {.fail_at = at};
			struct sl_env env = {SL_ENV_INIT, .mem = &fail_mem_table, .mem_ctx = &mem};
			struct sink out = {0};
			memset(&err, 0, sizeof(err));
			int rc = sample_write(&s, &env, 997, &out, &err);
			sink_free(&out);
			assert_int_equal(mem.held, 0);
			if (rc == 0)
				break;
			assert_int_equal(rc, SL_ENOMEM);
			assert_int_equal(err.code, SL_ENOMEM);
			failures++;
		}
		sample_free(&s);
	}
	printf("# %d allocations failed\n", failures);
	assert_true(failures > 200);
}

/* ---- what the file says ---- */

struct file {
	struct sink bytes;
	sl_parquet_reader *r;
};

static void write_one(struct file *f, const struct sl_parquet_column *c, const struct sl_parquet_values *v, size_t n,
		      const struct sl_parquet_writer_opts *opts)
{
	sl_parquet_writer *w = NULL;

	*f = (struct file){0};
	assert_int_equal(make(&w, c, 1, opts, &f->bytes), 0);
	assert_int_equal(sl_parquet_writer_put(w, v, n, &err), 0);
	assert_int_equal(sl_parquet_writer_finish(w, &err), 0);
	sl_parquet_writer_free(w);
	assert_int_equal(sl_parquet_reader_open_memory(&f->r, f->bytes.data, f->bytes.n, NULL, &err), 0);
}

static void close_one(struct file *f)
{
	sl_parquet_reader_close(f->r);
	sink_free(&f->bytes);
}

static struct sl_parquet_chunk chunk_of(const struct file *f, size_t group)
{
	struct sl_parquet_chunk c = {.struct_size = sizeof(c)};

	assert_int_equal(sl_parquet_reader_get_chunk(f->r, group, 0, &c, &err), 0);
	return c;
}

static void zero_is_bounded_by_minus_zero_and_plus_zero(void **state)
{
	struct sl_parquet_column c = {.name = "d", .kind = SL_PARQUET_DOUBLE};
	static const double positive[] = {0.0, 0.0}, negative[] = {-0.0, -0.0};
	struct sl_parquet_values v[] = {{positive, NULL}, {negative, NULL}};
	struct file f;
	double min, max;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		write_one(&f, &c, &v[i], 2, NULL);
		struct sl_parquet_chunk chunk = chunk_of(&f, 0);
		assert_true(chunk.has_bounds);
		memcpy(&min, chunk.min.data, sizeof(min));
		memcpy(&max, chunk.max.data, sizeof(max));
		assert_true(min == 0 && signbit(min) && max == 0 && !signbit(max));
		close_one(&f);
	}
}

static void a_nan_takes_the_bounds_away(void **state)
{
	struct sl_parquet_column c = {.name = "f", .kind = SL_PARQUET_FLOAT};
	const float values[] = {1, NAN, 3};
	struct sl_parquet_values v = {values, NULL};
	struct file f;

	(void)state;
	write_one(&f, &c, &v, 3, NULL);
	assert_false(chunk_of(&f, 0).has_bounds);
	assert_int_equal(chunk_of(&f, 0).nulls, 0);
	close_one(&f);
}

static void text_is_bounded_in_the_order_of_unsigned_bytes(void **state)
{
	struct sl_parquet_column c = {.name = "s", .kind = SL_PARQUET_STRING};
	struct sl_parquet_bytes values[] = {{"b", 1}, {"\xC3\xBC", 2}, {"ab", 2}, {"a", 1}, {"b", 1}};
	struct sl_parquet_values v = {values, NULL};
	struct file f;

	(void)state;
	write_one(&f, &c, &v, 5, NULL);
	struct sl_parquet_chunk chunk = chunk_of(&f, 0);
	assert_int_equal(chunk.min.len, 1);
	assert_memory_equal(chunk.min.data, "a", 1);
	assert_int_equal(chunk.max.len, 2);
	assert_memory_equal(chunk.max.data, "\xC3\xBC", 2);
	close_one(&f);
}

static void long_texts_are_bounded_by_what_follows_a_common_beginning(void **state)
{
	struct sl_parquet_column c = {.name = "s", .kind = SL_PARQUET_STRING};
	struct sl_parquet_bytes values[] = {{"beginning b", 11},
					    {"beginning \xC3\xBC", 12},
					    {"beginning ab", 12},
					    {"beginning a", 11},
					    {"beginning c", 11}};
	struct sl_parquet_values v = {values, NULL};
	struct file f;

	(void)state;
	write_one(&f, &c, &v, 5, NULL);
	struct sl_parquet_chunk chunk = chunk_of(&f, 0);
	assert_int_equal(chunk.min.len, 11);
	assert_memory_equal(chunk.min.data, "beginning a", 11);
	assert_int_equal(chunk.max.len, 12);
	assert_memory_equal(chunk.max.data, "beginning \xC3\xBC", 12);
	close_one(&f);
}

static void a_bound_of_more_than_256_bytes_is_left_out(void **state)
{
	struct sl_parquet_column c = {.name = "s", .kind = SL_PARQUET_BINARY};
	char text[300];
	struct sl_parquet_bytes values[] = {{text, 256}, {"x", 1}};
	struct sl_parquet_values v = {values, NULL};
	struct file f;

	(void)state;
	memset(text, 'y', sizeof(text));
	write_one(&f, &c, &v, 2, NULL);
	assert_true(chunk_of(&f, 0).has_bounds);
	close_one(&f);
	values[0].len = 257;
	write_one(&f, &c, &v, 2, NULL);
	assert_false(chunk_of(&f, 0).has_bounds);
	close_one(&f);
}

static void a_row_group_ends_with_the_row_that_reaches_its_bytes(void **state)
{
	struct sl_parquet_column c = {.name = "s", .kind = SL_PARQUET_BINARY};
	char text[1000] = {0};
	struct sl_parquet_bytes values[10];
	struct sl_parquet_values v = {values, NULL};
	struct sl_parquet_writer_opts opts = {SL_PARQUET_WRITER_OPTS_INIT, .row_group_bytes = 3 * 1004};
	struct sl_parquet_info info = {.struct_size = sizeof(info)};
	struct file f;

	(void)state;
	for (size_t i = 0; i < 10; i++)
		values[i] = (struct sl_parquet_bytes){text, 1000};
	write_one(&f, &c, &v, 10, &opts);
	sl_parquet_reader_get_info(f.r, &info);
	assert_int_equal(info.row_groups, 4);
	assert_int_equal(chunk_of(&f, 0).rows, 3);
	assert_int_equal(chunk_of(&f, 3).rows, 1);
	close_one(&f);
}

static void each_kind_of_values_gets_the_encoding_that_suits_it(void **state)
{
	enum { N = 20000 };
	static int64_t counting[N], few[N], random[N];
	static struct sl_parquet_bytes unique[N], same[N];
	static char text[N][17];
	struct sl_parquet_column number = {.name = "n", .kind = SL_PARQUET_INT64},
				 string = {.name = "s", .kind = SL_PARQUET_STRING};
	const struct {
		const struct sl_parquet_column *column;
		const void *values;
		uint32_t want;
	} cases[] = {{&number, counting, SL_PARQUET_ENC_DELTA_BINARY_PACKED},
		     {&number, few, SL_PARQUET_ENC_RLE_DICTIONARY | SL_PARQUET_ENC_PLAIN},
		     {&number, random, SL_PARQUET_ENC_PLAIN},
		     {&string, unique, SL_PARQUET_ENC_DELTA_LENGTH_BYTE_ARRAY},
		     {&string, same, SL_PARQUET_ENC_RLE_DICTIONARY | SL_PARQUET_ENC_PLAIN}};
	struct file f;

	(void)state;
	for (size_t i = 0; i < N; i++) {
		uint64_t mixed = (i + 1) * 0x9E3779B97F4A7C15u;
		counting[i] = 1000 + (int64_t)i;
		random[i] = (int64_t)((mixed ^ mixed >> 29) * 0x1234567);
		few[i] = random[mixed % 7 % (i + 1)];
		(void)snprintf(text[i], sizeof(text[i]), "%016llx", (unsigned long long)mixed);
		unique[i] = (struct sl_parquet_bytes){text[i], 16};
		same[i] = (struct sl_parquet_bytes){text[i % 9], 16};
	}
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct sl_parquet_values v = {cases[i].values, NULL};
		write_one(&f, cases[i].column, &v, N, NULL);
		assert_int_equal(chunk_of(&f, 0).encodings, cases[i].want);
		close_one(&f);
	}
}

/* The bytes of the block ```hex; what stands after a semicolon is a comment. */
static size_t read_example(uint8_t *out, size_t cap)
{
	char line[512];
	size_t n = 0;
	int inside = 0;
	FILE *f = fopen(PARQUET_DOC, "re");

	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL) {
		if (strncmp(line, "```", 3) == 0)
			inside = strncmp(line, "```hex", 6) == 0;
		unsigned byte;
		int used = 0;
		for (char *p = line; inside && sscanf(p, " %2x%n", &byte, &used) == 1 && n < cap; p += used)
			out[n++] = (uint8_t)byte;
	}
	fclose(f);
	return n;
}

static void the_example_of_the_documents_is_what_is_written(void **state)
{
	struct sl_parquet_column c = {.name = "n", .kind = SL_PARQUET_INT64, .nullable = true};
	struct sl_parquet_writer_opts opts = {SL_PARQUET_WRITER_OPTS_INIT, .zstd_level = SL_NONE,
					      .created_by = "x version 1.0.0 (build 0)"};
	static const int64_t values[] = {7, 0, 300};
	static const uint8_t nulls[] = {0, 1, 0};
	struct sl_parquet_values v = {values, nulls};
	uint8_t want[512];
	struct file f;

	(void)state;
	write_one(&f, &c, &v, 3, &opts);
	assert_int_equal(f.bytes.n, read_example(want, sizeof(want)));
	assert_memory_equal(f.bytes.data, want, f.bytes.n);
	close_one(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_column_that_cannot_be_is_refused_by_name),
		cmocka_unit_test(an_option_out_of_range_is_refused_by_name),
		cmocka_unit_test(a_null_in_a_required_column_is_reported_with_its_row_and_ends_the_file),
		cmocka_unit_test(text_that_is_not_utf8_is_reported_with_its_row),
		cmocka_unit_test(a_finished_file_takes_no_more),
		cmocka_unit_test(a_failure_of_the_callback_at_any_call_is_handed_on),
		cmocka_unit_test(a_failed_allocation_anywhere_is_reported_and_leaks_nothing),
		cmocka_unit_test(zero_is_bounded_by_minus_zero_and_plus_zero),
		cmocka_unit_test(a_nan_takes_the_bounds_away),
		cmocka_unit_test(text_is_bounded_in_the_order_of_unsigned_bytes),
		cmocka_unit_test(long_texts_are_bounded_by_what_follows_a_common_beginning),
		cmocka_unit_test(a_bound_of_more_than_256_bytes_is_left_out),
		cmocka_unit_test(a_row_group_ends_with_the_row_that_reaches_its_bytes),
		cmocka_unit_test(the_example_of_the_documents_is_what_is_written),
		cmocka_unit_test(each_kind_of_values_gets_the_encoding_that_suits_it),
	};
	return cmocka_run_group_tests_name("parquet_writer", tests, NULL, NULL);
}
