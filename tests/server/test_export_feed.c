/* SPDX-License-Identifier: Apache-2.0 */
/* The store's events as CSV: every offset once and in order, also of those that are gone, and an end that is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/export/export.h"
#include <sluice/events.h>

#define HEADER "offset,stream,incarnation,sequence,crc,job_id,attempt,type,late,partial,ts,payload\n"

/* A store with nothing but events; its rows are in the order of their offsets. */
struct store {
	const struct sl_event_row *rows;
	size_t n;
	_Atomic unsigned questions;
	_Atomic unsigned answered; /* of these with a row: a feed that has everything asks again and again */
	int fails;                 /* with this code, when all rows were read */
};

static int events_read(void *ctx, uint64_t job_id, uint64_t after, uint32_t limit, sl_event_row_fn *fn, void *fn_ctx,
		       struct sl_err *err)
{
	struct store *s = ctx;
	uint32_t given = 0;
	int rc = 0;
	assert_int_equal(job_id, 0);
	s->questions++;
	for (size_t i = 0; i < s->n && rc == 0 && given < limit; i++) {
		if (s->rows[i].offset <= after)
			continue;
		rc = fn(&s->rows[i], fn_ctx);
		given++;
	}
	s->answered += given > 0;
	return given == 0 && s->fails != 0 ? sl_err_set(err, s->fails, "no luck") : rc;
}

struct bench {
	struct store store;
	struct sl_store_ops ops;
	sl_store handle;
	struct srv_core core;
	struct srv_feed *feed;
	FILE *out;
};

static void begin(struct bench *b, const struct sl_event_row *rows, size_t n)
{
	*b = (struct bench){.store = {.rows = rows, .n = n}, .ops = {.events_read = events_read}};
	b->handle = (sl_store){.ops = &b->ops, .ctx = &b->store};
	b->core = (struct srv_core){.store = &b->handle};
}

static void feed(struct bench *b, uint64_t after)
{
	struct sl_err err = SL_ERR_INIT;
	int ends[2];
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(srv_feed_start(&b->feed, &b->core, after, ends[1], &err), 0);
	b->out = fdopen(ends[0], "r");
	assert_non_null(b->out);
}

/* The reader goes first, as the export does. */
static int end(struct bench *b)
{
	struct sl_err err = SL_ERR_INIT;
	(void)fclose(b->out);
	srv_feed_free(b->feed, &err);
	return err.code;
}

static void next_is(struct bench *b, const char *expected)
{
	char *line = NULL;
	size_t cap = 0;
	assert_true(getline(&line, &cap, b->out) > 0);
	assert_string_equal(line, expected);
	free(line);
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

/* ---- rows ---- */

static void events_become_rows_with_all_that_they_have(void **state)
{
	struct sl_event_row rows[2] = {event(1), event(2)};
	struct bench b;
	(void)state;
	rows[1].stream = "a \"b\", c";
	rows[1].crc = UINT64_MAX;
	rows[1].job_id = 0;
	rows[1].attempt = 0;
	rows[1].late = rows[1].partial = 1;
	rows[1].payload = "\0\xff\n";
	rows[1].payload_len = 3;
	begin(&b, rows, 2);
	feed(&b, 0);
	next_is(&b, HEADER);
	next_is(&b, "1,\"w\",7,1,5,9,2,stdout,false,false,2023-11-14T22:13:20.123Z,\\x6869\n");
	next_is(&b, "2,\"a \"\"b\"\", c\",7,2,-1,,,stdout,true,true,2023-11-14T22:13:20.123Z,\\x00ff0a\n");
	assert_int_equal(end(&b), 0);
}

static void an_event_that_is_gone_is_a_row_with_its_offset_and_nothing_else(void **state)
{
	struct sl_event_row rows[2] = {event(7), event(10)};
	struct bench b;
	(void)state;
	rows[0].payload_len = rows[1].payload_len = 0;
	begin(&b, rows, 2);
	feed(&b, 5);
	next_is(&b, HEADER);
	next_is(&b, "6,,,,,,,,,,,\n");
	next_is(&b, "7,\"w\",7,7,5,9,2,stdout,false,false,2023-11-14T22:13:20.123Z,\\x\n");
	next_is(&b, "8,,,,,,,,,,,\n");
	next_is(&b, "9,,,,,,,,,,,\n");
	next_is(&b, "10,\"w\",7,10,5,9,2,stdout,false,false,2023-11-14T22:13:20.123Z,\\x\n");
	assert_int_equal(end(&b), 0);
}

static void a_new_dataset_begins_with_the_first_event_that_is_there(void **state)
{
	struct sl_event_row row = event(1000);
	struct bench b;
	(void)state;
	begin(&b, &row, 1);
	feed(&b, 0);
	next_is(&b, HEADER);
	next_is(&b, "1000,\"w\",7,1000,5,9,2,stdout,false,false,2023-11-14T22:13:20.123Z,\\x6869\n");
	assert_int_equal(end(&b), 0);
}

static void many_that_are_gone_come_one_by_one_across_reads(void **state)
{
	enum { GONE = 300000 }; /* several times what one read may gather */
	struct sl_event_row rows[2] = {event(1), event(GONE + 2)};
	struct bench b;
	char *line = NULL;
	size_t cap = 0;
	(void)state;
	begin(&b, rows, 2);
	feed(&b, 0);
	next_is(&b, HEADER);
	for (uint64_t expected = 1; expected <= GONE + 2; expected++) {
		assert_true(getline(&line, &cap, b.out) > 0);
		assert_int_equal(strtoull(line, NULL, 10), expected);
	}
	free(line);
	assert_in_range(b.store.answered, 3, 20);
	assert_int_equal(end(&b), 0);
}

/* ---- the end ---- */

static void a_store_that_fails_ends_the_input_and_is_told(void **state)
{
	struct sl_event_row row = event(1);
	struct bench b;
	(void)state;
	begin(&b, &row, 1);
	b.store.fails = SL_EUNAVAIL;
	feed(&b, 0);
	next_is(&b, HEADER);
	next_is(&b, "1,\"w\",7,1,5,9,2,stdout,false,false,2023-11-14T22:13:20.123Z,\\x6869\n");
	assert_int_equal(fgetc(b.out), EOF);
	assert_int_equal(end(&b), SL_EUNAVAIL);
}

static void one_that_is_asked_to_end_leaves_whole_rows(void **state)
{
	enum { ROWS = 50000 };
	struct sl_event_row *rows = calloc(ROWS, sizeof(*rows));
	struct bench b;
	char *line = NULL;
	size_t cap = 0;
	bool whole = true;
	ssize_t n;
	(void)state;
	for (uint64_t i = 0; i < ROWS; i++)
		rows[i] = event(i + 1);
	begin(&b, rows, ROWS);
	feed(&b, 0);
	next_is(&b, HEADER);
	srv_feed_end(b.feed);
	while ((n = getline(&line, &cap, b.out)) > 0)
		whole = line[n - 1] == '\n';
	assert_true(whole);
	free(line);
	assert_int_equal(end(&b), 0);
	free(rows);
}

static void a_reader_that_has_gone_is_no_error(void **state)
{
	enum { ROWS = 5000 }; /* more than a pipe holds */
	struct sl_event_row *rows = calloc(ROWS, sizeof(*rows));
	struct bench b;
	(void)state;
	for (uint64_t i = 0; i < ROWS; i++)
		rows[i] = event(i + 1);
	begin(&b, rows, ROWS);
	feed(&b, 0);
	assert_int_equal(end(&b), 0);
	free(rows);
}

/* ---- the newest ---- */

static void the_newest_event_is_found_in_few_questions(void **state)
{
	struct sl_event_row rows[64];
	struct sl_err err = SL_ERR_INIT;
	struct bench b;
	uint64_t offset = 0;
	unsigned most = 0;
	(void)state;
	srand(1);
	for (size_t n = 0; n <= 64; n++) {
		for (size_t known = 0; known <= n; known++) {
			uint64_t newest = known > 0 ? rows[known - 1].offset : 0;
			begin(&b, rows, n);
			assert_int_equal(srv_feed_newest(&b.core, &newest, &err), 0);
			assert_int_equal(newest, n > 0 ? rows[n - 1].offset : 0);
			most = b.store.questions > most ? b.store.questions : most;
		}
		if (n < 64)
			rows[n] = event(offset += 1 + (uint64_t)rand() % (n % 3 == 0 ? 1 : 1000000));
	}
	print_message("# at most %u questions\n", most);
	assert_in_range(most, 1, 80);
}

static void a_question_that_fails_leaves_what_is_known(void **state)
{
	struct sl_err err = SL_ERR_INIT;
	struct bench b;
	uint64_t newest = 5;
	(void)state;
	begin(&b, NULL, 0);
	b.store.fails = SL_EUNAVAIL;
	assert_int_equal(srv_feed_newest(&b.core, &newest, &err), SL_EUNAVAIL);
	assert_int_equal(newest, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_become_rows_with_all_that_they_have),
		cmocka_unit_test(an_event_that_is_gone_is_a_row_with_its_offset_and_nothing_else),
		cmocka_unit_test(a_new_dataset_begins_with_the_first_event_that_is_there),
		cmocka_unit_test(many_that_are_gone_come_one_by_one_across_reads),
		cmocka_unit_test(a_store_that_fails_ends_the_input_and_is_told),
		cmocka_unit_test(one_that_is_asked_to_end_leaves_whole_rows),
		cmocka_unit_test(a_reader_that_has_gone_is_no_error),
		cmocka_unit_test(the_newest_event_is_found_in_few_questions),
		cmocka_unit_test(a_question_that_fails_leaves_what_is_known),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
