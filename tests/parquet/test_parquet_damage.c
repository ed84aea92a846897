/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are cut, flipped, too large for the limits, or cannot be read: told, and nothing beyond. */
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

static void make_file(struct sample *s, const char *name, struct sink *out)
{
	sample_make(s, name);
	assert_int_equal(sample_write(s, NULL, 0, out, &err), 0);
}

/* Open and check; the code of the first failure. */
static int check_bytes(const char *data, size_t n, const struct sl_parquet_reader_opts *opts)
{
	sl_parquet_reader *r = NULL;

	memset(&err, 0, sizeof err);
	int rc = sl_parquet_reader_open_memory(&r, data, n, opts, &err);
	if (rc == 0)
		rc = sl_parquet_reader_check(r, &err);
	sl_parquet_reader_free(r);
	return rc;
}

static int bad_data(int rc)
{
	return rc == SL_ECORRUPT || rc == SL_EUNSUPPORTED || rc == SL_ETOOBIG;
}

static void a_file_that_is_cut_anywhere_is_refused(void **state)
{
	struct sample s;
	struct sink file = {0};

	(void)state;
	make_file(&s, "first_null", &file);
	for (size_t n = 0; n < file.n; n++) {
		char *cut = malloc(n + 1); /* its own memory: a read behind the end is seen */
		memcpy(cut, file.data, n);
		assert_true(bad_data(check_bytes(cut, n, NULL)));
		free(cut);
	}
	assert_int_equal(check_bytes(file.data, file.n, NULL), 0);
	sink_free(&file);
	sample_free(&s);
}

/* Pages have a CRC; a flip in a header or the footer may be without meaning, but never without bounds. */
static void a_flipped_bit_anywhere_is_told_or_harmless(void **state)
{
	struct sample s;
	struct sink file = {0};
	size_t told = 0, harmless = 0;

	(void)state;
	make_file(&s, "first_null", &file);
	for (size_t i = 0; i < file.n * 8; i++) {
		file.data[i / 8] = (char)(file.data[i / 8] ^ 1 << i % 8);
		int rc = check_bytes(file.data, file.n, NULL);
		assert_true(rc == 0 || bad_data(rc));
		told += rc != 0;
		harmless += rc == 0;
		file.data[i / 8] = (char)(file.data[i / 8] ^ 1 << i % 8);
	}
	printf("# %zu told, %zu harmless\n", told, harmless);
	assert_true(told > harmless);
	sink_free(&file);
	sample_free(&s);
}

static void a_flipped_bit_in_a_page_is_told_with_group_column_and_page(void **state)
{
	struct sample s;
	struct sink file = {0};
	sl_parquet_reader *r = NULL;
	struct sl_parquet_chunk c;
	struct sl_parquet_values v;

	(void)state;
	make_file(&s, "dictionary", &file);
	assert_int_equal(sl_parquet_reader_open_memory(&r, file.data, file.n, NULL, &err), 0);
	assert_int_equal(sl_parquet_reader_chunk(r, 2, 10, &c, &err), 0);
	file.data[c.offset + c.bytes - 1] = (char)(file.data[c.offset + c.bytes - 1] ^ 4);
	assert_int_equal(sl_parquet_reader_read(r, 2, 10, &v, &err), SL_ECORRUPT);
	assert_non_null(strstr(err.msg, "row group 2, column 'string', page 1: its CRC is wrong"));
	assert_int_equal(sl_parquet_reader_read(r, 1, 10, &v, &err), 0);
	assert_int_equal(sl_parquet_reader_check(r, &err), SL_ECORRUPT);
	sl_parquet_reader_free(r);
	sink_free(&file);
	sample_free(&s);
}

/* The footer of one file behind the pages of another: everything has a right CRC, and nothing fits. */
static void bounds_that_do_not_hold_are_told(void **state)
{
	struct sl_parquet_column c = {.name = "n", .kind = SL_PARQUET_DOUBLE};
	struct sl_parquet_writer_opts opts = {SL_PARQUET_WRITER_OPTS_INIT, .zstd_level = SL_NONE};
	static const double here[] = {10, 20, 70}, there[] = {10, 20, 30};
	struct sl_parquet_values v[] = {{here, NULL}, {there, NULL}};
	struct sink file[2] = {{0}, {0}};
	sl_parquet_writer *w = NULL;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(sl_parquet_writer_new(&w, &c, 1, &opts, sink_write, &file[i], &err), 0);
		assert_int_equal(sl_parquet_writer_put(w, &v[i], 3, &err), 0);
		assert_int_equal(sl_parquet_writer_finish(w, &err), 0);
		sl_parquet_writer_free(w);
	}
	assert_int_equal(file[0].n, file[1].n);
	assert_int_equal(check_bytes(file[0].data, file[0].n, NULL), 0);
	uint32_t footer;
	memcpy(&footer, file[0].data + file[0].n - 8, sizeof footer);
	memcpy(file[0].data, file[1].data, 4); /* the magic is the same */
	memcpy(file[0].data + file[0].n - 8 - footer, file[1].data + file[1].n - 8 - footer, footer);
	assert_int_equal(check_bytes(file[0].data, file[0].n, NULL), SL_ECORRUPT);
	assert_non_null(strstr(err.msg, "outside of the footer's bounds"));
	sink_free(&file[0]);
	sink_free(&file[1]);
}

static void what_is_no_parquet_file_is_said_to_be_none(void **state)
{
	(void)state;
	assert_int_equal(check_bytes("", 0, NULL), SL_ECORRUPT);
	assert_int_equal(check_bytes("PAR1", 4, NULL), SL_ECORRUPT);
	assert_int_equal(check_bytes("PAR1\0\0\0\0PAR1", 12, NULL), SL_ECORRUPT);
	assert_int_equal(check_bytes("{\"a\": 1, \"b\": 2}", 16, NULL), SL_ECORRUPT);
	assert_non_null(strstr(err.msg, "does not begin with PAR1"));
	assert_int_equal(check_bytes("PAR1\xFF\xFF\xFF\x7FPAR1", 12, NULL), SL_ECORRUPT);
}

static void limits_hold_for_footers_chunks_and_rows(void **state)
{
	struct sl_parquet_reader_opts opts = {SL_PARQUET_READER_OPTS_INIT, .max_footer_bytes = 100};
	struct sample s;
	struct sink file = {0};

	(void)state;
	make_file(&s, "million", &file);
	assert_int_equal(check_bytes(file.data, file.n, &opts), SL_ETOOBIG);
	opts = (struct sl_parquet_reader_opts){SL_PARQUET_READER_OPTS_INIT, .max_chunk_bytes = 1 << 20};
	assert_int_equal(check_bytes(file.data, file.n, &opts), SL_ETOOBIG);
	assert_non_null(strstr(err.msg, "max_chunk_bytes"));
	opts.max_chunk_bytes = -1;
	assert_int_equal(check_bytes(file.data, file.n, &opts), SL_EINVAL);
	sink_free(&file);
	sample_free(&s);
}

static void there_is_no_chunk_beyond_the_last(void **state)
{
	struct sample s;
	struct sink file = {0};
	sl_parquet_reader *r = NULL;
	struct sl_parquet_values v;
	struct sl_parquet_chunk c;

	(void)state;
	make_file(&s, "one_row", &file);
	assert_int_equal(sl_parquet_reader_open_memory(&r, file.data, file.n, NULL, &err), 0);
	assert_int_equal(sl_parquet_reader_read(r, 1, 0, &v, &err), SL_EINVAL);
	assert_int_equal(sl_parquet_reader_read(r, 0, s.columns_n, &v, &err), SL_EINVAL);
	assert_int_equal(sl_parquet_reader_chunk(r, 0, s.columns_n, &c, &err), SL_EINVAL);
	sl_parquet_reader_free(r);
	sink_free(&file);
	sample_free(&s);
}

/* ---- faults ---- */

struct source {
	const struct sink *file;
	size_t calls, fail_at;
};

static int read_at(void *buf, size_t n, uint64_t offset, struct sl_err *e, void *ctx)
{
	struct source *s = ctx;

	if (++s->calls == s->fail_at)
		return sl_err_set(e, SL_EIO, "the disk is gone");
	memcpy(buf, s->file->data + offset, n);
	return 0;
}

static int check_source(struct source *source, const struct sl_env *env)
{
	struct sl_parquet_reader_opts opts = {SL_PARQUET_READER_OPTS_INIT, .env = env};
	sl_parquet_reader *r = NULL;

	memset(&err, 0, sizeof err);
	int rc = sl_parquet_reader_open(&r, read_at, source, source->file->n, &opts, &err);
	if (rc == 0)
		rc = sl_parquet_reader_check(r, &err);
	sl_parquet_reader_free(r);
	return rc;
}

static void a_read_that_fails_at_any_place_is_handed_on(void **state)
{
	struct sample s;
	struct sink file = {0};
	size_t at = 1;

	(void)state;
	make_file(&s, "dictionary", &file);
	for (;; at++) {
		struct source source = {.file = &file, .fail_at = at};
		int rc = check_source(&source, NULL);
		if (rc == 0)
			break;
		assert_int_equal(rc, SL_EIO);
		assert_non_null(strstr(err.msg, "the disk is gone"));
	}
	assert_int_equal(at, 3 + 4 * s.columns_n + 1);
	sink_free(&file);
	sample_free(&s);
}

static void a_failed_allocation_at_any_place_of_a_read_is_told_and_leaks_nothing(void **state)
{
	static const char *const names[] = {"dictionary", "nullable", "long_texts"};
	struct sample s;
	int failures = 0;

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct sink file = {0};
		make_file(&s, names[i], &file);
		for (int at = 1;; at++) {
			struct fail_mem mem = {.fail_at = at};
			struct sl_env env = {SL_ENV_INIT, .mem = &fail_mem_table, .mem_ctx = &mem};
			struct source source = {.file = &file};
			int rc = check_source(&source, &env);
			assert_int_equal(mem.held, 0);
			if (rc == 0)
				break;
			assert_int_equal(rc, SL_ENOMEM);
			failures++;
		}
		sink_free(&file);
		sample_free(&s);
	}
	printf("# %d allocations failed\n", failures);
	assert_true(failures > 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_that_is_cut_anywhere_is_refused),
		cmocka_unit_test(a_flipped_bit_anywhere_is_told_or_harmless),
		cmocka_unit_test(a_flipped_bit_in_a_page_is_told_with_group_column_and_page),
		cmocka_unit_test(bounds_that_do_not_hold_are_told),
		cmocka_unit_test(what_is_no_parquet_file_is_said_to_be_none),
		cmocka_unit_test(limits_hold_for_footers_chunks_and_rows),
		cmocka_unit_test(there_is_no_chunk_beyond_the_last),
		cmocka_unit_test(a_read_that_fails_at_any_place_is_handed_on),
		cmocka_unit_test(a_failed_allocation_at_any_place_of_a_read_is_told_and_leaks_nothing),
	};
	return cmocka_run_group_tests_name("parquet_damage", tests, NULL, NULL);
}
