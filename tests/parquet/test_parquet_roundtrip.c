/* SPDX-License-Identifier: Apache-2.0 */
/* What was written is what is read, for every sample; and the same bytes however it was put. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "parquet/sample.h"

static void write_sample(struct sample *s, const char *name, size_t batch, struct sink *out)
{
	struct sl_err err = SL_ERR_INIT;

	sample_make(s, name);
	if (sample_write(s, NULL, batch, out, &err) != 0)
		fail_msg("%s: %s", name, err.msg);
}

static sl_parquet_reader *open_file(const struct sink *file)
{
	struct sl_err err = SL_ERR_INIT;
	sl_parquet_reader *r = NULL;

	if (sl_parquet_reader_open_memory(&r, file->data, file->n, NULL, &err) != 0)
		fail_msg("%s", err.msg);
	return r;
}

static void compare_chunk(const struct sample *s, size_t column, const struct sl_parquet_values *got, size_t first,
			  size_t n)
{
	const struct sl_parquet_column *c = &s->columns[column];

	for (size_t i = 0; i < n; i++) {
		int null = sample_is_null(&s->values[column], first + i);
		if (null != sample_is_null(got, i))
			fail_msg("%s.%s row %zu: NULL or not", s->name, c->name, first + i);
		if (!null && !sample_same(c, sample_entry(c, s->values[column].values, first + i),
					  sample_entry(c, got->values, i)))
			fail_msg("%s.%s row %zu: another value", s->name, c->name, first + i);
	}
}

static size_t compare_file(const struct sample *s, const struct sink *file)
{
	sl_parquet_reader *r = open_file(file);
	struct sl_err err = SL_ERR_INIT;
	struct sl_parquet_info info = {.struct_size = sizeof(info)};
	struct sl_parquet_chunk chunk = {.struct_size = sizeof(chunk)};
	struct sl_parquet_values v;
	size_t row = 0;

	sl_parquet_reader_get_info(r, &info);
	assert_int_equal(info.rows, s->rows);
	assert_int_equal(info.n_columns, s->n_columns);
	for (size_t g = 0; g < info.row_groups; g++) {
		for (size_t c = 0; c < info.n_columns; c++) {
			assert_int_equal(sl_parquet_reader_get_chunk(r, g, c, &chunk, &err), 0);
			if (sl_parquet_reader_read(r, g, c, &v, &err) != 0)
				fail_msg("%s: %s", s->name, err.msg);
			compare_chunk(s, c, &v, row, (size_t)chunk.rows);
		}
		row += (size_t)chunk.rows;
	}
	assert_int_equal(row, s->rows);
	if (sl_parquet_reader_check(r, &err) != 0)
		fail_msg("%s: %s", s->name, err.msg);
	sl_parquet_reader_close(r);
	return row * s->n_columns;
}

static void every_sample_reads_back_as_it_was_written(void **state)
{
	struct sample s;
	size_t cells = 0;

	(void)state;
	for (size_t i = 0; sample_names[i] != NULL; i++) {
		struct sink file = {0};
		write_sample(&s, sample_names[i], 0, &file);
		cells += compare_file(&s, &file);
		sink_free(&file);
		sample_free(&s);
	}
	printf("# %zu cells\n", cells);
	assert_true(cells > 1000000);
}

static void the_bytes_do_not_depend_on_how_the_rows_were_put(void **state)
{
	static const char *const names[] = {"nullable",   "dictionary", "overflow", "rising",
					    "long_texts", "wide",       "extremes"};
	static const size_t batches[] = {1, 7, 999, 6001};
	struct sample s, again;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct sink whole = {0};
		write_sample(&s, names[i], 0, &whole);
		for (size_t b = s.rows > 50000 ? 2 : 0; b < sizeof(batches) / sizeof(*batches); b++) {
			struct sink parts = {0};
			write_sample(&again, names[i], batches[b], &parts);
			if (parts.n != whole.n || memcmp(parts.data, whole.data, whole.n) != 0)
				fail_msg("%s by %zu rows: other bytes", names[i], batches[b]);
			sink_free(&parts);
			sample_free(&again);
		}
		sink_free(&whole);
		sample_free(&s);
	}
}

static void the_schema_reads_back_as_it_was_written(void **state)
{
	struct sample s;
	struct sink file = {0};
	struct sl_parquet_info info = {.struct_size = sizeof(info)};

	(void)state;
	write_sample(&s, "wide", 0, &file);
	sl_parquet_reader *r = open_file(&file);
	sl_parquet_reader_get_info(r, &info);
	for (size_t i = 0; i < info.n_columns; i++) {
		char want[64], got[64];
		assert_string_equal(info.columns[i].name, s.columns[i].name);
		assert_string_equal(sl_parquet_type_name(&info.columns[i], got, sizeof(got)),
				    sl_parquet_type_name(&s.columns[i], want, sizeof(want)));
		assert_int_equal(info.columns[i].nullable, s.columns[i].nullable);
	}
	assert_string_equal(info.created_by, "sluice version 0.1.0 (build 0)");
	assert_int_equal(info.row_groups, 17);
	sl_parquet_reader_close(r);
	sink_free(&file);
	sample_free(&s);
}

static void metadata_reads_back_in_order(void **state)
{
	struct sample s;
	struct sink file = {0};
	struct sl_parquet_info info = {.struct_size = sizeof(info)};

	(void)state;
	write_sample(&s, "nullable", 0, &file);
	sl_parquet_reader *r = open_file(&file);
	sl_parquet_reader_get_info(r, &info);
	assert_int_equal(info.n_metadata, 3);
	assert_string_equal(info.metadata[0].key, "origin");
	assert_string_equal(info.metadata[0].value, "a test");
	assert_string_equal(info.metadata[1].value, "");
	assert_string_equal(info.metadata[2].key, "none");
	assert_null(info.metadata[2].value);
	sl_parquet_reader_close(r);
	sink_free(&file);
	sample_free(&s);
}

static int read_at(void *buf, size_t n, uint64_t offset, struct sl_err *err, void *ctx)
{
	const struct sink *file = ctx;

	(void)err;
	assert_true(offset <= file->n && n <= file->n - offset);
	memcpy(buf, file->data + offset, n);
	return 0;
}

static void a_file_is_read_through_a_callback_as_from_memory(void **state)
{
	struct sample s;
	struct sink file = {0};
	struct sl_err err = SL_ERR_INIT;
	sl_parquet_reader *r = NULL;
	struct sl_parquet_values v;

	(void)state;
	write_sample(&s, "dictionary", 0, &file);
	assert_int_equal(sl_parquet_reader_open(&r, read_at, &file, file.n, NULL, &err), 0);
	for (size_t c = 0; c < s.n_columns; c++) {
		assert_int_equal(sl_parquet_reader_read(r, 1, c, &v, &err), 0);
		compare_chunk(&s, c, &v, 6000, 6000);
	}
	assert_int_equal(sl_parquet_reader_check(r, &err), 0);
	sl_parquet_reader_close(r);
	sink_free(&file);
	sample_free(&s);
}

static void columns_of_a_group_can_be_held_side_by_side(void **state)
{
	struct sample s;
	struct sink file = {0};
	struct sl_err err = SL_ERR_INIT;
	struct sl_parquet_values v[SAMPLE_COLUMNS_MAX];

	(void)state;
	write_sample(&s, "nullable", 0, &file);
	sl_parquet_reader *r = open_file(&file);
	for (size_t c = 0; c < s.n_columns; c++)
		assert_int_equal(sl_parquet_reader_read(r, 0, c, &v[c], &err), 0);
	for (size_t c = 0; c < s.n_columns; c++)
		compare_chunk(&s, c, &v[c], 0, s.rows);
	sl_parquet_reader_close(r);
	sink_free(&file);
	sample_free(&s);
}

/* In a dictionary, and plainly: after the length of an empty value nothing follows. */
static void a_last_value_that_is_empty_reads_back(void **state)
{
	static const char *const texts[] = {"apple", "pear", ""};
	struct sl_parquet_bytes rows[300];
	const struct sl_parquet_values values = {.values = rows};
	(void)state;
	for (int dictionary = 0; dictionary < 2; dictionary++) {
		const struct sl_parquet_column column = {
			.name = "s", .kind = SL_PARQUET_STRING, .dictionary = dictionary ? SL_ON : SL_OFF};
		const struct sl_parquet_writer_opts opts = {SL_PARQUET_WRITER_OPTS_INIT, .zstd_level = SL_NONE};
		struct sink file = {0};
		struct sl_err err = SL_ERR_INIT;
		struct sl_parquet_values got;
		sl_parquet_writer *w = NULL;
		for (size_t i = 0; i < 300; i++)
			rows[i] = (struct sl_parquet_bytes){texts[i % 3], (uint32_t)strlen(texts[i % 3])};
		assert_int_equal(sl_parquet_writer_new(&w, &column, 1, &opts, sink_write, &file, &err), 0);
		assert_int_equal(sl_parquet_writer_put(w, &values, 300, &err), 0);
		assert_int_equal(sl_parquet_writer_finish(w, &err), 0);
		sl_parquet_writer_free(w);
		sl_parquet_reader *r = open_file(&file);
		if (sl_parquet_reader_read(r, 0, 0, &got, &err) != 0)
			fail_msg("dictionary %d: %s", dictionary, err.msg);
		for (size_t i = 0; i < 300; i++)
			assert_true(sample_same(&column, sample_entry(&column, rows, i),
						sample_entry(&column, got.values, i)));
		sl_parquet_reader_close(r);
		sink_free(&file);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_sample_reads_back_as_it_was_written),
		cmocka_unit_test(the_bytes_do_not_depend_on_how_the_rows_were_put),
		cmocka_unit_test(the_schema_reads_back_as_it_was_written),
		cmocka_unit_test(metadata_reads_back_in_order),
		cmocka_unit_test(a_file_is_read_through_a_callback_as_from_memory),
		cmocka_unit_test(columns_of_a_group_can_be_held_side_by_side),
		cmocka_unit_test(a_last_value_that_is_empty_reads_back),
	};
	return cmocka_run_group_tests_name("parquet_roundtrip", tests, NULL, NULL);
}
