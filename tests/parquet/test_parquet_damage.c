/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are cut, flipped, too large for the limits, or cannot be read: an error, and nothing worse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fail_mem.h"
#include "parquet/crc32.h"
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

	memset(&err, 0, sizeof(err));
	int rc = sl_parquet_reader_open_memory(&r, data, n, opts, &err);
	if (rc == 0)
		rc = sl_parquet_reader_check(r, &err);
	sl_parquet_reader_close(r);
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
		char *cut = malloc(n + 1); /* its own memory: a read after the end is seen */
		memcpy(cut, file.data, n);
		assert_true(bad_data(check_bytes(cut, n, NULL)));
		free(cut);
	}
	assert_int_equal(check_bytes(file.data, file.n, NULL), 0);
	sink_free(&file);
	sample_free(&s);
}

/* Pages have a CRC; a flip in a header or the footer may be without meaning, but never without bounds. */
static void a_flipped_bit_anywhere_is_reported_or_harmless(void **state)
{
	struct sample s;
	struct sink file = {0};
	size_t reported = 0, harmless = 0;

	(void)state;
	make_file(&s, "first_null", &file);
	for (size_t i = 0; i < file.n * 8; i++) {
		file.data[i / 8] = (char)(file.data[i / 8] ^ 1 << i % 8);
		int rc = check_bytes(file.data, file.n, NULL);
		assert_true(rc == 0 || bad_data(rc));
		reported += rc != 0;
		harmless += rc == 0;
		file.data[i / 8] = (char)(file.data[i / 8] ^ 1 << i % 8);
	}
	printf("# %zu reported, %zu harmless\n", reported, harmless);
	assert_true(reported > harmless);
	sink_free(&file);
	sample_free(&s);
}

static void a_flipped_bit_in_a_page_is_reported_with_group_column_and_page(void **state)
{
	struct sample s;
	struct sink file = {0};
	sl_parquet_reader *r = NULL;
	struct sl_parquet_chunk c = {.struct_size = sizeof(c)};
	struct sl_parquet_values v;

	(void)state;
	make_file(&s, "dictionary", &file);
	assert_int_equal(sl_parquet_reader_open_memory(&r, file.data, file.n, NULL, &err), 0);
	assert_int_equal(sl_parquet_reader_get_chunk(r, 2, 10, &c, &err), 0);
	file.data[c.offset + c.bytes - 1] = (char)(file.data[c.offset + c.bytes - 1] ^ 4);
	assert_int_equal(sl_parquet_reader_read(r, 2, 10, &v, &err), SL_ECORRUPT);
	assert_non_null(strstr(err.msg, "row group 2, column 'string', page 1: its CRC is wrong"));
	assert_int_equal(sl_parquet_reader_read(r, 1, 10, &v, &err), 0);
	assert_int_equal(sl_parquet_reader_check(r, &err), SL_ECORRUPT);
	sl_parquet_reader_close(r);
	sink_free(&file);
	sample_free(&s);
}

/* The footer of one file after the pages of another: everything has a right CRC, and nothing fits. */
static void bounds_that_do_not_hold_are_reported(void **state)
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
	memcpy(&footer, file[0].data + file[0].n - 8, sizeof(footer));
	memcpy(file[0].data, file[1].data, 4); /* the magic is the same */
	memcpy(file[0].data + file[0].n - 8 - footer, file[1].data + file[1].n - 8 - footer, footer);
	assert_int_equal(check_bytes(file[0].data, file[0].n, NULL), SL_ECORRUPT);
	assert_non_null(strstr(err.msg, "outside the footer's bounds"));
	sink_free(&file[0]);
	sink_free(&file[1]);
}

/* ---- lies with a right CRC ---- */

static void flip_bits(uint8_t *at, uint32_t bits)
{
	for (size_t i = 0; i < 4; i++)
		at[i] ^= (uint8_t)(bits >> 8 * i);
}

/* Change four bytes at page + at so that the page's CRC is `want`. What each of their bits does to the CRC does not
 * depend on the others, so that the bits to flip are the solution of a linear system. */
static void set_crc(uint8_t *page, size_t n, size_t at, uint32_t want)
{
	struct {
		uint32_t bits, does;
	} rows[32];
	uint32_t is = sl__crc32(0, page, n), left = is ^ want, flips = 0;
	for (int i = 0; i < 32; i++) {
		rows[i].bits = UINT32_C(1) << i;
		flip_bits(page + at, rows[i].bits);
		rows[i].does = sl__crc32(0, page, n) ^ is;
		flip_bits(page + at, rows[i].bits);
	}
	for (uint32_t bit = UINT32_C(1) << 31; bit != 0; bit >>= 1) {
		int with = 0; /* the first row that has the bit and none above it */
		while (rows[with].does / bit != 1)
			with++;
		for (int i = 0; i < 32; i++)
			if (i != with && (rows[i].does & bit) != 0) {
				rows[i].does ^= rows[with].does;
				rows[i].bits ^= rows[with].bits;
			}
		if ((left & bit) != 0) {
			left ^= rows[with].does;
			flips ^= rows[with].bits;
		}
	}
	flip_bits(page + at, flips);
	assert_int_equal(sl__crc32(0, page, n), want);
}

static uint8_t *find_bytes(const struct sink *file, const char *bytes, size_t n, bool last)
{
	uint8_t *found = NULL;
	for (size_t i = 0; i + n <= file->n && (last || found == NULL); i++)
		if (memcmp(file->data + i, bytes, n) == 0)
			found = (uint8_t *)file->data + i;
	assert_non_null(found);
	return found;
}

static void write_fruit(struct sink *out, enum sl_switch dictionary)
{
	static const char *const texts[] = {"apple", "pear", ""};
	const struct sl_parquet_column column = {.name = "s", .kind = SL_PARQUET_STRING, .dictionary = dictionary};
	const struct sl_parquet_writer_opts opts = {SL_PARQUET_WRITER_OPTS_INIT, .zstd_level = SL_NONE};
	struct sl_parquet_bytes rows[300];
	const struct sl_parquet_values values = {.values = rows};
	sl_parquet_writer *w = NULL;
	for (size_t i = 0; i < 300; i++)
		rows[i] = (struct sl_parquet_bytes){texts[i % 3], (uint32_t)strlen(texts[i % 3])};
	assert_int_equal(sl_parquet_writer_new(&w, &column, 1, &opts, sink_write, out, &err), 0);
	assert_int_equal(sl_parquet_writer_put(w, &values, 300, &err), 0);
	assert_int_equal(sl_parquet_writer_finish(w, &err), 0);
	sl_parquet_writer_free(w);
	assert_int_equal(check_bytes(out->data, out->n, NULL), 0);
}

/* Pages whose values are longer than they are, as a foreign or hostile writer may make them. */
static void values_beyond_the_end_of_a_page_are_refused_though_its_crc_is_right(void **state)
{
	struct sink file = {0};

	(void)state;
	/* a dictionary: length and bytes of each value; the last one is empty, and gets a length */
	write_fruit(&file, SL_ON);
	const size_t n = 3 * 4 + 5 + 4;
	for (uint32_t bit = 0; bit < 32; bit++) {
		uint8_t *page = find_bytes(&file, "\5\0\0\0apple\4\0\0\0pear\0\0\0\0", n, false);
		uint8_t whole[3 * 4 + 5 + 4];
		memcpy(whole, page, n);
		uint32_t crc = sl__crc32(0, page, n);
		page[n - 4 + bit / 8] ^= (uint8_t)(1u << bit % 8);
		set_crc(page, n, 5, crc);
		assert_int_equal(check_bytes(file.data, file.n, NULL), SL_ECORRUPT);
		assert_non_null(strstr(err.msg, "fewer values than it declares"));
		memcpy(page, whole, n);
	}
	assert_int_equal(check_bytes(file.data, file.n, NULL), 0);
	sink_free(&file);

	/* lengths first, then all bytes: the first of 300 lengths is one more, and so are the others, relative to it */
	file = (struct sink){0};
	write_fruit(&file, SL_OFF);
	uint8_t *page = find_bytes(&file, "\x80\1\4\xac\2\12", 6, false);
	uint8_t *end = find_bytes(&file, "applepear", 9, true) + 9;
	uint32_t crc = sl__crc32(0, page, (size_t)(end - page));
	page[5] = 12;
	set_crc(page, (size_t)(end - page), (size_t)(end - page) - 8, crc);
	assert_int_equal(check_bytes(file.data, file.n, NULL), SL_ECORRUPT);
	assert_non_null(strstr(err.msg, "fewer bytes than its lengths declare"));
	sink_free(&file);
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
	struct sl_parquet_chunk c = {.struct_size = sizeof(c)};

	(void)state;
	make_file(&s, "one_row", &file);
	assert_int_equal(sl_parquet_reader_open_memory(&r, file.data, file.n, NULL, &err), 0);
	assert_int_equal(sl_parquet_reader_read(r, 1, 0, &v, &err), SL_EINVAL);
	assert_int_equal(sl_parquet_reader_read(r, 0, s.n_columns, &v, &err), SL_EINVAL);
	assert_int_equal(sl_parquet_reader_get_chunk(r, 0, s.n_columns, &c, &err), SL_EINVAL);
	sl_parquet_reader_close(r);
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

	memset(&err, 0, sizeof(err));
	int rc = sl_parquet_reader_open(&r, read_at, source, source->file->n, &opts, &err);
	if (rc == 0)
		rc = sl_parquet_reader_check(r, &err);
	sl_parquet_reader_close(r);
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
	assert_int_equal(at, 3 + 4 * s.n_columns + 1);
	sink_free(&file);
	sample_free(&s);
}

static void a_failed_allocation_anywhere_in_a_read_is_reported_and_leaks_nothing(void **state)
{
	static const char *const names[] = {"dictionary", "nullable", "long_texts"};
	struct sample s;
	int failures = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
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
		cmocka_unit_test(a_flipped_bit_anywhere_is_reported_or_harmless),
		cmocka_unit_test(a_flipped_bit_in_a_page_is_reported_with_group_column_and_page),
		cmocka_unit_test(bounds_that_do_not_hold_are_reported),
		cmocka_unit_test(values_beyond_the_end_of_a_page_are_refused_though_its_crc_is_right),
		cmocka_unit_test(what_is_no_parquet_file_is_said_to_be_none),
		cmocka_unit_test(limits_hold_for_footers_chunks_and_rows),
		cmocka_unit_test(there_is_no_chunk_beyond_the_last),
		cmocka_unit_test(a_read_that_fails_at_any_place_is_handed_on),
		cmocka_unit_test(a_failed_allocation_anywhere_in_a_read_is_reported_and_leaks_nothing),
	};
	return cmocka_run_group_tests_name("parquet_damage", tests, NULL, NULL);
}
