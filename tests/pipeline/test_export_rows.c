/* SPDX-License-Identifier: Apache-2.0 */
/* Rows from a callback: the same files as the same rows as CSV, and the same rules for sequences and values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>

#include "base/base.h"
#include "export_place.h"

enum { N_COLUMNS = 11 };

static const struct sl_parquet_column columns[N_COLUMNS] = {
	{.name = "n", .kind = SL_PARQUET_INT64},
	{.name = "ok", .kind = SL_PARQUET_BOOL, .nullable = true},
	{.name = "small", .kind = SL_PARQUET_INT32, .nullable = true},
	{.name = "f", .kind = SL_PARQUET_FLOAT, .nullable = true},
	{.name = "d", .kind = SL_PARQUET_DOUBLE, .nullable = true},
	{.name = "at", .kind = SL_PARQUET_TIMESTAMP, .unit = SL_PARQUET_MILLIS, .nullable = true},
	{.name = "day", .kind = SL_PARQUET_DATE, .nullable = true},
	{.name = "price", .kind = SL_PARQUET_DECIMAL, .precision = 9, .scale = 2, .nullable = true},
	{.name = "name", .kind = SL_PARQUET_STRING, .nullable = true},
	{.name = "raw", .kind = SL_PARQUET_BINARY, .nullable = true},
	{.name = "id", .kind = SL_PARQUET_FIXED, .length = 4, .nullable = true},
};

/* Rows first … last, some of whose values are NULL, empty or long. */
struct source {
	uint64_t first, last, at;
	uint64_t missing;   /* a sequence that is left out; 0: none */
	uint64_t bad;       /* a sequence with a value that does not fit; 0: none */
	size_t batch;       /* rows of a call */
	uint64_t next_seen; /* what the first call was asked for */
	bool asked;
	bool waits; /* after the last row, instead of ending */
	sem_t waiting;
};

static const char names[4][20] = {"a \"q\", b", "", "caf\xc3\xa9\nline", "plain"};

static int next_rows(uint64_t next, sl_export_rows *rows, struct sl_err *err, void *ctx)
{
	struct source *s = ctx;
	if (!s->asked)
		s->next_seen = next;
	s->asked = true;
	for (size_t i = 0; i < s->batch && s->at <= s->last; i++, s->at++) {
		char raw[3] = {'\0', (char)s->at, '\xff'}, id[4] = {'i', 'd', '\x80', (char)s->at};
		const char *name = names[s->at % 4];
		struct sl_export_value v[N_COLUMNS] = {
			{.integer = (int64_t)s->at},          {.integer = s->at % 2 == 0},
			{.integer = -(int64_t)s->at},         {.real = (double)s->at / 4},
			{.real = (double)s->at / 8},          {.integer = (int64_t)s->at * 1000},
			{.integer = (int64_t)s->at},          {.integer = (int64_t)s->at * 100 + 5},
			{.bytes = name, .len = strlen(name)}, {.bytes = raw, .len = s->at % 4},
			{.bytes = id, .len = sizeof(id)}};
		if (s->at % 5 == 0)
			for (size_t k = 1; k < N_COLUMNS; k++)
				v[k].is_null = true;
		if (s->at == s->missing)
			continue;
		if (s->at == s->bad)
			v[7].integer = 1000000000;
		int rc = sl_export_rows_add(rows, v, err);
		if (rc < 0)
			return rc;
	}
	if (s->at <= s->last)
		return 0;
	if (!s->waits)
		return SL_EXPORT_ROWS_END;
	(void)sem_post(&s->waiting);
	return sl_export_rows_wait(rows, 60000) != 0 ? sl_err_set(err, SL_ETIMEDOUT, "no stop") : 0;
}

/* The same rows as CSV. */
static char *csv_of(uint64_t first, uint64_t last)
{
	char *text;
	size_t n;
	FILE *f = open_memstream(&text, &n);
	assert_non_null(f);
	(void)fprintf(f, "n,ok,small,f,d,at,day,price,name,raw,id\n");
	for (uint64_t i = first; i <= last; i++) {
		if (i % 5 == 0) {
			(void)fprintf(f, "%" PRIu64 ",,,,,,,,,,\n", i);
			continue;
		}
		(void)fprintf(
			f, "%" PRIu64 ",%s,-%" PRIu64 ",%.2f,%.3f,1970-01-01T00:00:%02" PRIu64 "Z,1970-01-%02" PRIu64,
			i, i % 2 == 0 ? "true" : "false", i, (double)i / 4, (double)i / 8, i, i + 1);
		(void)fprintf(f, ",%" PRIu64 ".05,\"", i);
		for (const char *p = names[i % 4]; *p != '\0'; p++)
			(void)fprintf(f, "%s%c", *p == '"' ? "\"" : "", *p);
		(void)fprintf(f, "\",\\x");
		const unsigned char raw[3] = {0, (unsigned char)i, 0xff};
		for (size_t k = 0; k < i % 4; k++)
			(void)fprintf(f, "%02x", raw[k]);
		(void)fprintf(f, ",\\x696480%02x\n", (unsigned)i);
	}
	assert_int_equal(fclose(f), 0);
	return text;
}

static int open_place(void **state)
{
	struct place *p = malloc(sizeof(*p));
	place_open(p);
	*state = p;
	return 0;
}

static int close_place(void **state)
{
	place_close(*state);
	free(*state);
	return 0;
}

static struct sl_export_opts rows_opts(struct place *p, struct source *s)
{
	struct sl_export_opts opts = place_opts(p, 8);
	opts.from = NULL;
	opts.columns = columns;
	opts.n_columns = N_COLUMNS;
	opts.rows = next_rows;
	opts.rows_ctx = s;
	s->at = s->first;
	return opts;
}

static struct sl_export_result export_all(const struct sl_export_opts *opts)
{
	struct sl_export_result result;
	struct sl_err err = SL_ERR_INIT;
	if (place_run(opts, &result, &err) != 0)
		fail_msg("%s", err.msg);
	return result;
}

/* ---- the tests ---- */

static void rows_of_a_callback_become_the_files_of_the_same_rows_as_csv(void **state)
{
	struct place *p = *state;
	char *text = csv_of(3, 28);
	place_write(p, "in.csv", text, strlen(text));
	free(text);
	struct sl_export_opts opts = place_opts(p, 8);
	opts.columns = columns;
	opts.n_columns = N_COLUMNS;
	assert_int_equal(export_all(&opts).rows, 26);
	char *wanted = place_show(p);
	static const size_t batches[] = {1, 3, 8, 100};
	for (size_t i = 0; i < SL_COUNT(batches); i++) {
		struct source s = {.first = 3, .last = 28, .batch = batches[i]};
		place_clear(p);
		opts = rows_opts(p, &s);
		opts.perf.workers = (int32_t)i + 1;
		assert_int_equal(export_all(&opts).rows, 26);
		char *now = place_show(p);
		assert_string_equal(now, wanted);
		free(now);
	}
	free(wanted);
}

static void a_second_run_asks_for_what_follows_the_checkpoint_and_skips_the_rest(void **state)
{
	struct place *p = *state;
	struct source s = {.first = 1, .last = 28, .batch = 5};
	struct sl_export_opts opts = rows_opts(p, &s);
	(void)export_all(&opts);
	assert_int_equal(s.next_seen, 0);
	char *wanted = place_show(p);
	place_clear(p);

	s = (struct source){.first = 1, .last = 17, .batch = 5};
	opts = rows_opts(p, &s);
	opts.final = SL_OFF;
	struct sl_export_result r = export_all(&opts);
	assert_int_equal(r.checkpoint, 15);
	assert_int_equal(r.waiting, 2);
	s = (struct source){.first = 9, .last = 28, .batch = 5};
	opts = rows_opts(p, &s);
	r = export_all(&opts);
	assert_int_equal(s.next_seen, 16);
	assert_int_equal(r.rows, 13);
	char *now = place_show(p);
	assert_string_equal(now, wanted);
	free(now);
	free(wanted);
}

static void a_missing_sequence_stops_the_run_or_is_recorded_as_a_hole(void **state)
{
	struct place *p = *state;
	struct sl_export_result r;
	struct sl_err err = SL_ERR_INIT;
	struct source s = {.first = 1, .last = 20, .batch = 50, .missing = 11};
	struct sl_export_opts opts = rows_opts(p, &s);
	assert_int_equal(place_run(&opts, &r, &err), SL_EGAP);
	assert_non_null(strstr(err.msg, "rows: source: 11 is missing"));
	assert_int_equal(r.checkpoint, 7);
	s.asked = false;
	opts = rows_opts(p, &s);
	opts.gaps = SL_EXPORT_GAPS_RECORD;
	r = export_all(&opts);
	assert_int_equal(r.checkpoint, 20);
	assert_int_equal(r.holes, 1);
	assert_int_equal(s.next_seen, 8);
}

static void a_value_that_does_not_fit_its_column_ends_the_run(void **state)
{
	struct place *p = *state;
	struct sl_export_result r;
	struct sl_err err = SL_ERR_INIT;
	struct source s = {.first = 1, .last = 20, .batch = 4, .bad = 18};
	struct sl_export_opts opts = rows_opts(p, &s);
	assert_int_equal(place_run(&opts, &r, &err), SL_EDATA);
	assert_non_null(strstr(err.msg, "column price: the number is too large"));
	assert_int_equal(r.checkpoint, 15);
}

static void *stop_when_it_waits(void *arg)
{
	void **both = arg;
	struct source *s = both[0];
	while (sem_wait(&s->waiting) != 0)
		;
	sl_export_stop(both[1], SL_EXPORT_DRAIN);
	return NULL;
}

static void a_stop_wakes_a_callback_that_waits_for_rows(void **state)
{
	struct place *p = *state;
	struct source s = {.first = 1, .last = 18, .batch = 7, .waits = true};
	struct sl_export_opts opts = rows_opts(p, &s);
	struct sl_export_result r = {.struct_size = sizeof(r)};
	struct sl_err err = SL_ERR_INIT;
	sl_export *e;
	pthread_t thread;
	assert_int_equal(sem_init(&s.waiting, 0, 0), 0);
	opts.follow = SL_ON;
	assert_int_equal(sl_export_new(&e, &opts, NULL), 0);
	void *both[2] = {&s, e};
	assert_int_equal(pthread_create(&thread, NULL, stop_when_it_waits, both), 0);
	if (sl_export_run(e, &r, &err) != 0)
		fail_msg("%s", err.msg);
	assert_int_equal(pthread_join(thread, NULL), 0);
	sl_export_free(e);
	(void)sem_destroy(&s.waiting);
	assert_int_equal(r.stopped, 1);
	assert_int_equal(r.checkpoint, 15);
	assert_int_equal(r.waiting, 3);
}

static void options_that_do_not_go_with_a_callback_are_refused(void **state)
{
	struct place *p = *state;
	struct source s = {.first = 1, .last = 8, .batch = 8};
	struct sl_err err = SL_ERR_INIT;
	sl_export *e;
	struct sl_export_opts opts = rows_opts(p, &s);
	opts.n_columns = 0;
	assert_int_equal(sl_export_new(&e, &opts, &err), SL_EINVAL);
	assert_non_null(strstr(err.msg, "columns"));
	opts = rows_opts(p, &s);
	opts.bad_rows = SL_EXPORT_BAD_ROWS_DIVERT;
	assert_int_equal(sl_export_new(&e, &opts, &err), SL_EINVAL);
	assert_non_null(strstr(err.msg, "bad_rows"));
	opts = rows_opts(p, &s);
	opts.table = "t";
	assert_int_equal(sl_export_new(&e, &opts, &err), SL_EINVAL);
	assert_non_null(strstr(err.msg, "rows"));

	opts = rows_opts(p, &s);
	(void)export_all(&opts);
	const struct sl_export_range range = {1, 7};
	assert_int_equal(sl_export_new(&e, &opts, NULL), 0);
	assert_int_equal(sl_export_backfill(e, &range, 1, NULL, &err), SL_EINVAL);
	sl_export_free(e);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, open_place, close_place)
	const struct CMUnitTest tests[] = {
		CASE(rows_of_a_callback_become_the_files_of_the_same_rows_as_csv),
		CASE(a_second_run_asks_for_what_follows_the_checkpoint_and_skips_the_rest),
		CASE(a_missing_sequence_stops_the_run_or_is_recorded_as_a_hole),
		CASE(a_value_that_does_not_fit_its_column_ends_the_run),
		CASE(a_stop_wakes_a_callback_that_waits_for_rows),
		CASE(options_that_do_not_go_with_a_callback_are_refused),
	};
	return cmocka_run_group_tests_name("export rows", tests, NULL, NULL);
}
