/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's events as rows of the export: every offset once and in order, also those of deleted events. The expected
 * rows are written as CSV, and the two exports must be the same, byte for byte.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pipeline/export_place.h"
#include "server/export/export.h"
#include <sluice/events.h>

#define HEADER "offset,stream,incarnation,sequence,crc,job_id,attempt,type,late,partial,ts,payload\n"
#define NULLS ",,,,,,,,,,,\n" /* after the offset of a deleted event */

/* A store with nothing but events; its rows are in the order of their offsets. */
struct store {
	const struct sl_event_row *rows;
	size_t n;
	unsigned reads;
	int fails; /* with this code, when all rows were read */
};

static int events_read(void *ctx, uint64_t job_id, uint64_t after, uint32_t limit, sl_event_row_fn *fn, void *fn_ctx,
		       struct sl_err *err)
{
	struct store *s = ctx;
	uint32_t given = 0;
	int rc = 0;
	assert_int_equal(job_id, 0);
	s->reads++;
	for (size_t i = 0; i < s->n && rc == 0 && given < limit; i++) {
		if (s->rows[i].offset <= after)
			continue;
		rc = fn(&s->rows[i], fn_ctx);
		given++;
	}
	return given == 0 && s->fails != 0 ? sl_err_set(err, s->fails, "no luck") : rc;
}

struct bench {
	struct place place;
	struct store store;
	struct sl_store_ops ops;
	sl_store handle;
	struct srv_core core;
	uint64_t last; /* the export ends when it asks for rows past this offset */
};

static int open_bench(void **state)
{
	struct bench *b = calloc(1, sizeof(*b));
	place_open(&b->place);
	b->ops = (struct sl_store_ops){.events_read = events_read};
	b->handle = (sl_store){.ops = &b->ops, .ctx = &b->store};
	b->core = (struct srv_core){.store = &b->handle};
	*state = b;
	return 0;
}

static int close_bench(void **state)
{
	struct bench *b = *state;
	place_close(&b->place);
	free(b);
	return 0;
}

/* The feed, and the end of the rows after the last event of the test. */
static int rows_until_last(uint64_t next, sl_export_rows *rows, struct sl_err *err, void *ctx)
{
	struct bench *b = ctx;
	return next > b->last ? SL_EXPORT_ROWS_END : srv_feed_rows(next, rows, err, &b->core);
}

static struct sl_export_opts feed_opts(struct bench *b, const struct sl_event_row *rows, size_t n)
{
	struct sl_export_opts opts = place_opts(&b->place, 1000000);
	opts.columns = srv_feed_columns;
	opts.n_columns = srv_feed_n_columns;
	opts.from = NULL;
	opts.final = SL_ON;
	opts.rows = rows_until_last;
	opts.rows_ctx = b;
	b->store = (struct store){.rows = rows, .n = n};
	b->last = n > 0 ? rows[n - 1].offset : 0;
	return opts;
}

/* Export the events, and then the expected rows as CSV to another folder: the same files, catalog and audit events. */
static void events_become(struct bench *b, const struct sl_event_row *rows, size_t n, const char *csv)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_export_opts opts = feed_opts(b, rows, n);
	struct sl_export_result result;
	assert_int_equal(place_run(&opts, &result, &err), 0);
	char *got = place_show(&b->place);
	place_clear(&b->place);
	place_write(&b->place, "in.csv", csv, strlen(csv));
	opts = place_opts(&b->place, 1000000);
	opts.columns = srv_feed_columns;
	opts.n_columns = srv_feed_n_columns;
	opts.final = SL_ON;
	assert_int_equal(place_run(&opts, &result, &err), 0);
	char *expected = place_show(&b->place);
	assert_string_equal(got, expected);
	assert_non_null(strstr(got, ".parquet"));
	free(got);
	free(expected);
}

static struct sl_event_row event(uint64_t offset)
{
	return (struct sl_event_row){.offset = offset,
				     .stream = "w",
				     .incarnation = 7,
				     .sequence = offset,
				     .crc = 5,
				     .job_id = 9,
				     .attempt = 2,
				     .type = SL_EVENT_STDOUT,
				     .ts_ms = INT64_C(1700000000123),
				     .payload = "hi",
				     .payload_len = 2};
}

static void events_become_rows_with_all_that_they_have(void **state)
{
	struct sl_event_row rows[2] = {event(1), event(2)};
	rows[1].stream = "a \"b\", c";
	rows[1].crc = UINT64_MAX;
	rows[1].job_id = 0;
	rows[1].attempt = 0;
	rows[1].late = rows[1].partial = true;
	rows[1].payload = "\0\xff\n";
	rows[1].payload_len = 3;
	events_become(*state, rows, 2,
		      HEADER "1,\"w\",7,1,5,9,2,stdout,false,false,2023-11-14T22:13:20.123Z,\\x6869\n"
			     "2,\"a \"\"b\"\", c\",7,2,-1,,,stdout,true,true,2023-11-14T22:13:20.123Z,\\x00ff0a\n");
}

static void a_deleted_event_is_a_row_with_its_offset_and_nothing_else(void **state)
{
	struct sl_event_row rows[3] = {event(5), event(7), event(10)};
	rows[1].payload_len = rows[2].payload_len = 0;
	events_become(*state, rows, 3,
		      HEADER "5,\"w\",7,5,5,9,2,stdout,false,false,2023-11-14T22:13:20.123Z,\\x6869\n"
			     "6" NULLS "7,\"w\",7,7,5,9,2,stdout,false,false,2023-11-14T22:13:20.123Z,\\x\n"
			     "8" NULLS "9" NULLS
			     "10,\"w\",7,10,5,9,2,stdout,false,false,2023-11-14T22:13:20.123Z,\\x\n");
}

static void a_new_dataset_begins_with_the_first_event_that_is_there(void **state)
{
	struct sl_event_row row = event(1000);
	events_become(*state, &row, 1,
		      HEADER "1000,\"w\",7,1000,5,9,2,stdout,false,false,2023-11-14T22:13:20.123Z,\\x6869\n");
}

static void a_dataset_continues_with_the_offset_after_its_checkpoint(void **state)
{
	struct bench *b = *state;
	struct sl_event_row rows[2] = {event(5), event(8)};
	struct sl_err err = SL_ERR_INIT;
	struct sl_export_opts opts = feed_opts(b, rows, 1);
	struct sl_export_result result;
	assert_int_equal(place_run(&opts, &result, &err), 0);
	assert_int_equal(result.checkpoint, 5);
	opts = feed_opts(b, rows, 2); /* 6 and 7 were deleted in between */
	assert_int_equal(place_run(&opts, &result, &err), 0);
	assert_int_equal(result.checkpoint, 8);
	assert_int_equal(result.rows, 3);
	assert_int_equal(result.holes, 0);
}

static void many_deleted_events_come_one_by_one_across_reads(void **state)
{
	enum { GONE = 30000 }; /* several times what one call may add */
	struct bench *b = *state;
	struct sl_event_row rows[2] = {event(1), event(GONE + 2)};
	struct sl_err err = SL_ERR_INIT;
	struct sl_export_opts opts = feed_opts(b, rows, 2);
	struct sl_export_result result;
	assert_int_equal(place_run(&opts, &result, &err), 0);
	assert_int_equal(result.rows, GONE + 2);
	assert_int_equal(result.holes, 0);
	assert_int_equal(result.checkpoint, GONE + 2);
	assert_in_range(b->store.reads, 3, 30);
}

static void a_store_that_fails_ends_the_run_with_its_error(void **state)
{
	struct bench *b = *state;
	struct sl_event_row row = event(1);
	struct sl_err err = SL_ERR_INIT;
	struct sl_export_opts opts = feed_opts(b, &row, 1);
	b->last = UINT64_MAX;
	b->store.fails = SL_EUNAVAIL;
	struct sl_export_result result;
	assert_int_equal(place_run(&opts, &result, &err), SL_EUNAVAIL);
	assert_non_null(strstr(err.msg, "no luck"));
}

/* Stops the export when the store has no more events. */
struct stopping {
	struct bench *b;
	sl_export *run;
	unsigned calls;
};

static int rows_until_stopped(uint64_t next, sl_export_rows *rows, struct sl_err *err, void *ctx)
{
	struct stopping *s = ctx;
	s->calls++;
	if (next > 2)
		sl_export_stop(s->run, SL_EXPORT_DRAIN);
	return srv_feed_rows(next, rows, err, &s->b->core);
}

static void a_run_that_waits_for_events_is_stopped(void **state)
{
	struct bench *b = *state;
	struct sl_event_row rows[2] = {event(1), event(2)};
	struct sl_err err = SL_ERR_INIT;
	struct sl_export_opts opts = feed_opts(b, rows, 2);
	struct stopping s = {.b = b};
	struct sl_export_result result = {.struct_size = sizeof(result)};
	opts.rows = rows_until_stopped;
	opts.rows_ctx = &s;
	opts.final = SL_OFF;
	assert_int_equal(sl_export_new(&s.run, &opts, &err), 0);
	assert_int_equal(sl_export_run(s.run, &result, &err), 0);
	assert_int_equal(result.stopped, 1);
	assert_int_equal(result.waiting, 2);
	assert_int_equal(s.calls, 2);
	sl_export_free(s.run);
}

#define BENCH_TEST(name) cmocka_unit_test_setup_teardown(name, open_bench, close_bench)

int main(void)
{
	const struct CMUnitTest tests[] = {
		BENCH_TEST(events_become_rows_with_all_that_they_have),
		BENCH_TEST(a_deleted_event_is_a_row_with_its_offset_and_nothing_else),
		BENCH_TEST(a_new_dataset_begins_with_the_first_event_that_is_there),
		BENCH_TEST(a_dataset_continues_with_the_offset_after_its_checkpoint),
		BENCH_TEST(many_deleted_events_come_one_by_one_across_reads),
		BENCH_TEST(a_store_that_fails_ends_the_run_with_its_error),
		BENCH_TEST(a_run_that_waits_for_events_is_stopped),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
