/* SPDX-License-Identifier: Apache-2.0 */
/* Events: idempotent appends, marks, gaps and skips, conflicts, offsets, late ones. */
#include "jobs/contract_kit.h"

#include <stdio.h>
#include <stdlib.h>

struct rows {
	size_t n;
	struct sl_event_row r[64];
	char streams[64][32], payloads[64][32];
};

static int keep_row(const struct sl_event_row *e, void *ctx)
{
	struct rows *rows = ctx;
	KIT_TRUE(rows->n < 64);
	rows->r[rows->n] = *e;
	snprintf(rows->streams[rows->n], 32, "%s", e->stream);
	size_t len = e->payload_len < 31 ? e->payload_len : 31;
	memset(rows->payloads[rows->n], 0, 32);
	if (len > 0)
		memcpy(rows->payloads[rows->n], e->payload, len);
	rows->n++;
	return 0;
}

static void read_all(struct kit *k, uint64_t job_id, uint64_t after, uint32_t limit, struct rows *rows)
{
	rows->n = 0;
	KIT_OK(k->ops->events_read(k->s, job_id, after, limit, keep_row, rows, err));
}

static struct sl_event_row event(const char *stream, uint64_t sequence)
{
	return (struct sl_event_row){.stream = stream,
				     .incarnation = 7,
				     .sequence = sequence,
				     .crc = 0xf000000000000000u + sequence,
				     .type = 2,
				     .ts_ms = 1000 + (int64_t)sequence,
				     .payload = "line",
				     .payload_len = 4};
}

/* The same of the one job of the claim. */
static struct sl_event_row of_claim(struct sl_event_row e, const struct kit_claim *claim)
{
	e.job_id = claim->jobs[0].id;
	e.attempt = claim->jobs[0].attempt;
	e.claim = claim->id;
	return e;
}

/* Append sequences first..last of one stream; returns the mark. */
static uint64_t append(struct kit *k, const char *stream, uint64_t first, uint64_t last, size_t *n_new)
{
	struct sl_event_row events[32];
	size_t n = 0;
	for (uint64_t s = first; s <= last; s++)
		events[n++] = event(stream, s);
	struct sl_event_mark mark = {.stream = stream, .incarnation = 7};
	KIT_OK(k->ops->events_append(k->s, events, n, &mark, 1, n_new, err));
	return mark.mark;
}

static void events_come_back_as_they_were_with_gapless_offsets(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct sl_event_row events[2] = {event("s", 1), event("s", 2)};
	events[0].job_id = id;
	events[0].attempt = 1;
	events[0].payload = "a\0b\xff";
	events[0].payload_len = 4;
	events[0].partial = true;
	events[1].payload = NULL;
	events[1].payload_len = 0;
	struct sl_event_mark mark = {.stream = "s", .incarnation = 7};
	size_t n_new = 0;
	KIT_OK(k->ops->events_append(k->s, events, 2, &mark, 1, &n_new, err));
	assert_int_equal(n_new, 2);
	assert_int_equal(mark.mark, 2);
	struct rows rows;
	read_all(k, 0, 0, 100, &rows);
	assert_int_equal(rows.n, 2);
	assert_int_equal(rows.r[1].offset, rows.r[0].offset + 1);
	assert_string_equal(rows.streams[0], "s");
	assert_int_equal(rows.r[0].incarnation, 7);
	assert_int_equal(rows.r[0].sequence, 1);
	assert_true(rows.r[0].crc == 0xf000000000000001u);
	assert_int_equal(rows.r[0].job_id, id);
	assert_int_equal(rows.r[0].attempt, 1);
	assert_int_equal(rows.r[0].type, 2);
	assert_int_equal(rows.r[0].ts_ms, 1001);
	assert_int_equal(rows.r[0].partial, 1);
	assert_int_equal(rows.r[1].partial, 0);
	assert_int_equal(rows.r[0].payload_len, 4);
	assert_memory_equal(rows.payloads[0], "a\0b\xff", 4);
	assert_int_equal(rows.r[1].job_id, 0);
	assert_int_equal(rows.r[1].attempt, 0);
	assert_int_equal(rows.r[1].payload_len, 0);
	assert_int_equal(rows.r[1].late, 0);
}

static void an_event_that_comes_again_is_dropped(void **state)
{
	struct kit *k = *state;
	size_t n_new;
	assert_int_equal(append(k, "s", 1, 3, &n_new), 3);
	assert_int_equal(append(k, "s", 2, 5, &n_new), 5);
	assert_int_equal(n_new, 2);
	assert_int_equal(append(k, "s", 1, 5, &n_new), 5);
	assert_int_equal(n_new, 0);
	struct rows rows;
	read_all(k, 0, 0, 100, &rows);
	assert_int_equal(rows.n, 5);
	for (size_t i = 0; i < 5; i++)
		assert_int_equal(rows.r[i].offset, rows.r[0].offset + i); /* what was dropped took no offset */
}

static void another_crc_for_a_known_event_is_a_conflict(void **state)
{
	struct kit *k = *state;
	size_t n_new;
	append(k, "s", 1, 3, &n_new);
	struct sl_event_row events[2] = {event("s", 2), event("s", 4)};
	events[0].crc++;
	struct sl_event_mark mark = {.stream = "s", .incarnation = 7};
	KIT_FAILS(SL_ECONFLICT, k->ops->events_append(k->s, events, 1, &mark, 1, &n_new, err));
	events[1] = event("s", 3);
	events[1].crc++;
	KIT_FAILS(SL_ECONFLICT, k->ops->events_append(k->s, &events[1], 1, &mark, 1, &n_new, err));
	assert_int_equal(append(k, "s", 4, 4, &n_new), 4); /* the stream continues */
}

static void a_mark_keeps_the_crc_of_its_event_after_the_event_is_gone(void **state)
{
	struct kit *k = *state;
	size_t n = 0;
	uint64_t id = kit_start(k, "t");
	kit_run(k, "t", NULL);
	struct sl_event_row e = event("s", 1), other;
	e.job_id = id;
	e.attempt = 1;
	struct sl_event_mark mark = {.stream = "s", .incarnation = 7};
	KIT_OK(k->ops->events_append(k->s, &e, 1, &mark, 1, NULL, err));
	assert_int_equal(mark.has_crc, 1);
	assert_true(mark.crc == e.crc);
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){&id, 1}, false, NULL, &n, err)); /* its events go with it */
	mark = (struct sl_event_mark){.stream = "s", .incarnation = 7};
	KIT_OK(k->ops->events_append(k->s, NULL, 0, &mark, 1, NULL, err));
	assert_int_equal(mark.mark, 1);
	assert_int_equal(mark.has_crc, 1);
	assert_true(mark.crc == e.crc);
	KIT_OK(k->ops->events_append(k->s, &e, 1, &mark, 1, &n, err)); /* the same comes again */
	assert_int_equal(n, 0);
	other = e;
	other.crc++;
	KIT_FAILS(SL_ECONFLICT, k->ops->events_append(k->s, &other, 1, &mark, 1, NULL, err));
	mark.mark = 4; /* what was skipped has no CRC */
	KIT_OK(k->ops->events_append(k->s, NULL, 0, &mark, 1, NULL, err));
	assert_int_equal(mark.mark, 4);
	assert_int_equal(mark.has_crc, 0);
}

static void a_sender_that_has_another_record_at_the_mark_is_a_conflict(void **state)
{
	struct kit *k = *state;
	size_t n_new;
	append(k, "s", 1, 3, &n_new);
	struct sl_event_row next = event("s", 4);
	struct sl_event_mark mark = {.stream = "s", .incarnation = 7, .after = 3, .after_crc = event("s", 3).crc + 1};
	KIT_FAILS(SL_ECONFLICT, k->ops->events_append(k->s, &next, 1, &mark, 1, NULL, err));
	KIT_FAILS(SL_ECONFLICT, k->ops->events_append(k->s, NULL, 0, &mark, 1, NULL, err));
	struct sl_event_row known = event("s", 2);
	mark.after = 2; /* not where the store is: nothing to compare it with */
	mark.after_crc = event("s", 2).crc;
	KIT_OK(k->ops->events_append(k->s, &known, 1, &mark, 1, NULL, err));
	assert_int_equal(mark.mark, 3);
	mark = (struct sl_event_mark){.stream = "s", .incarnation = 7, .after = 3, .after_crc = event("s", 3).crc};
	KIT_OK(k->ops->events_append(k->s, &next, 1, &mark, 1, &n_new, err));
	assert_int_equal(n_new, 1);
	assert_int_equal(mark.mark, 4);
	assert_true(mark.has_crc && mark.crc == next.crc);
}

static void a_conflict_or_a_gap_takes_nothing_of_the_call(void **state)
{
	struct kit *k = *state;
	size_t n_new;
	append(k, "a", 1, 2, &n_new);
	struct sl_event_row events[3] = {event("a", 3), event("b", 1), event("b", 3)};
	struct sl_event_mark marks[2] = {{.stream = "a", .incarnation = 7}, {.stream = "b", .incarnation = 7}};
	KIT_FAILS(SL_EGAP, k->ops->events_append(k->s, events, 3, marks, 2, &n_new, err));
	events[1] = event("a", 2);
	events[1].crc++;
	KIT_FAILS(SL_ECONFLICT, k->ops->events_append(k->s, events, 2, marks, 1, &n_new, err));
	struct rows rows;
	read_all(k, 0, 0, 100, &rows);
	assert_int_equal(rows.n, 2);
	assert_int_equal(append(k, "a", 3, 3, &n_new), 3);
	assert_int_equal(append(k, "b", 1, 1, &n_new), 1);
	read_all(k, 0, 0, 100, &rows);
	assert_int_equal(rows.n, 4);
	assert_int_equal(rows.r[3].offset, rows.r[0].offset + 3); /* nor were offsets used up */
}

static void a_gap_is_refused_unless_it_is_skipped(void **state)
{
	struct kit *k = *state;
	size_t n_new;
	append(k, "s", 1, 2, &n_new);
	struct sl_event_row e = event("s", 6);
	struct sl_event_mark mark = {.stream = "s", .incarnation = 7};
	KIT_FAILS(SL_EGAP, k->ops->events_append(k->s, &e, 1, &mark, 1, &n_new, err));
	mark.mark = 4;
	KIT_FAILS(SL_EGAP, k->ops->events_append(k->s, &e, 1, &mark, 1, &n_new, err)); /* not far enough */
	mark.mark = 5;
	KIT_OK(k->ops->events_append(k->s, &e, 1, &mark, 1, &n_new, err));
	assert_int_equal(mark.mark, 6);
	assert_int_equal(n_new, 1);
	assert_int_equal(append(k, "s", 4, 7, &n_new), 7); /* what was skipped is below the mark: dropped */
	assert_int_equal(n_new, 1);
	struct rows rows;
	read_all(k, 0, 0, 100, &rows);
	assert_int_equal(rows.n, 4);
	assert_int_equal(rows.r[3].offset, rows.r[0].offset + 3); /* offsets have no gap */
}

static void an_event_inside_of_a_skipped_range_is_taken(void **state)
{
	struct kit *k = *state;
	struct sl_event_row events[2] = {event("s", 3), event("s", 5)};
	struct sl_event_mark mark = {.stream = "s", .incarnation = 7, .mark = 6};
	size_t n_new = 0;
	KIT_OK(k->ops->events_append(k->s, events, 2, &mark, 1, &n_new, err));
	assert_int_equal(n_new, 2);
	assert_int_equal(mark.mark, 6);
	struct rows rows;
	read_all(k, 0, 0, 100, &rows);
	assert_int_equal(rows.n, 2);
	assert_int_equal(rows.r[0].sequence, 3);
	assert_int_equal(rows.r[1].sequence, 5);
	assert_int_equal(append(k, "s", 7, 7, &n_new), 7);
}

static void a_stream_is_taken_without_a_mark_of_the_caller(void **state)
{
	struct kit *k = *state;
	struct sl_event_row events[3] = {event("a", 1), event("b", 1), event("a", 2)};
	struct sl_event_mark mark = {.stream = "b", .incarnation = 7};
	size_t n_new = 0;
	KIT_OK(k->ops->events_append(k->s, events, 3, &mark, 1, &n_new, err));
	assert_int_equal(n_new, 3);
	assert_int_equal(mark.mark, 1);
	KIT_OK(k->ops->events_append(k->s, events, 3, NULL, 0, &n_new, err));
	assert_int_equal(n_new, 0);
	events[0] = event("a", 4);
	KIT_FAILS(SL_EGAP, k->ops->events_append(k->s, events, 1, NULL, 0, &n_new, err));
	assert_int_equal(append(k, "a", 3, 3, &n_new), 3);
}

static void marks_without_events_skip_ahead_and_are_returned(void **state)
{
	struct kit *k = *state;
	size_t n_new = 99;
	append(k, "s", 1, 2, &n_new);
	struct sl_event_mark mark = {.stream = "s", .incarnation = 7};
	KIT_OK(k->ops->events_append(k->s, NULL, 0, &mark, 1, NULL, err));
	assert_int_equal(mark.mark, 2);
	mark.mark = 5;
	KIT_OK(k->ops->events_append(k->s, NULL, 0, &mark, 1, &n_new, err));
	assert_int_equal(mark.mark, 5);
	assert_int_equal(n_new, 0);
	mark.mark = 1;
	KIT_OK(k->ops->events_append(k->s, NULL, 0, &mark, 1, &n_new, err));
	assert_int_equal(mark.mark, 5); /* a mark never goes back */
	struct sl_event_mark unknown = {.stream = "new", .incarnation = 7};
	KIT_OK(k->ops->events_append(k->s, NULL, 0, &unknown, 1, &n_new, err));
	assert_int_equal(unknown.mark, 0);
	assert_int_equal(append(k, "s", 6, 6, &n_new), 6);
}

static void streams_and_incarnations_have_marks_of_their_own(void **state)
{
	struct kit *k = *state;
	size_t n_new;
	append(k, "a", 1, 3, &n_new);
	struct sl_event_row events[3] = {event("b", 1), event("a", 1), event("a", 4)};
	events[1].incarnation = 8;
	events[1].crc = 5;
	struct sl_event_mark marks[3] = {{.stream = "b", .incarnation = 7},
					 {.stream = "a", .incarnation = 8},
					 {.stream = "a", .incarnation = 7}};
	KIT_OK(k->ops->events_append(k->s, events, 3, marks, 3, &n_new, err));
	assert_int_equal(n_new, 3);
	assert_int_equal(marks[0].mark, 1);
	assert_int_equal(marks[1].mark, 1);
	assert_int_equal(marks[2].mark, 4);
}

static void checksums_and_incarnations_keep_all_their_bits(void **state)
{
	struct kit *k = *state;
	size_t n_new;
	struct sl_event_row e = event("s", 1);
	e.incarnation = 0xffffff;
	e.crc = UINT64_MAX;
	struct sl_event_mark mark = {.stream = "s", .incarnation = 0xffffff};
	KIT_OK(k->ops->events_append(k->s, &e, 1, &mark, 1, &n_new, err));
	KIT_OK(k->ops->events_append(k->s, &e, 1, &mark, 1, &n_new, err));
	assert_int_equal(n_new, 0);
	struct rows rows;
	read_all(k, 0, 0, 10, &rows);
	assert_true(rows.r[0].crc == UINT64_MAX);
	assert_int_equal(rows.r[0].incarnation, 0xffffff);
}

/* A sender may write any number there. */
static void times_beyond_what_a_store_can_keep_are_cut_to_it(void **state)
{
	struct kit *k = *state;
	struct sl_event_row e[4] = {event("s", 1), event("s", 2), event("s", 3), event("s", 4)};
	struct sl_event_mark mark = {.stream = "s", .incarnation = 7};
	struct rows rows;
	e[0].ts_ms = INT64_MAX;
	e[1].ts_ms = INT64_MIN;
	e[2].ts_ms = INT64_MAX / 1000 + 1;
	e[3].ts_ms = INT64_MIN / 1000 - 1;
	KIT_OK(k->ops->events_append(k->s, e, 4, &mark, 1, NULL, err));
	read_all(k, 0, 0, 10, &rows);
	assert_int_equal(rows.n, 4);
	for (size_t i = 0; i < 4; i++)
		if (i % 2 == 0)
			assert_true(rows.r[i].ts_ms > INT64_C(9000000000000)); /* in the year 2255 */
		else
			assert_true(rows.r[i].ts_ms < 0);
}

static void events_are_read_by_job_from_an_offset_up_to_a_limit(void **state)
{
	struct kit *k = *state;
	uint64_t ids[2] = {kit_start(k, "t"), kit_start(k, "t")};
	struct sl_event_row events[10];
	for (uint64_t i = 0; i < 10; i++) {
		events[i] = event("s", i + 1);
		events[i].job_id = ids[i % 2];
		events[i].attempt = 1;
	}
	struct sl_event_mark mark = {.stream = "s", .incarnation = 7};
	KIT_OK(k->ops->events_append(k->s, events, 10, &mark, 1, NULL, err));
	struct rows rows;
	read_all(k, ids[1], 0, 3, &rows);
	assert_int_equal(rows.n, 3);
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(rows.r[i].sequence, 2 * i + 2);
	read_all(k, ids[1], rows.r[2].offset, 100, &rows);
	assert_int_equal(rows.n, 2);
	assert_int_equal(rows.r[0].sequence, 8);
	read_all(k, 0, rows.r[0].offset, 100, &rows);
	assert_int_equal(rows.n, 2);
}

static void the_newest_offset_is_that_of_the_last_event_there_is(void **state)
{
	struct kit *k = *state;
	uint64_t newest = 99, before = 0, id = kit_start(k, "t");
	KIT_OK(k->ops->events_newest(k->s, &newest, err));
	assert_int_equal(newest, 0); /* a store without events */
	append(k, "s", 1, 3, NULL);
	KIT_OK(k->ops->events_newest(k->s, &before, err));
	struct rows rows;
	read_all(k, 0, 0, 64, &rows);
	assert_int_equal(before, rows.r[rows.n - 1].offset);
	/* The events of a removed chain are gone, and an older event is the newest again. */
	struct sl_event_row e = event("s", 4);
	e.job_id = id;
	struct sl_event_mark mark = {.stream = "s", .incarnation = 7};
	KIT_OK(k->ops->events_append(k->s, &e, 1, &mark, 1, NULL, err));
	KIT_OK(k->ops->events_newest(k->s, &newest, err));
	assert_int_equal(newest, before + 1);
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){&id, 1}, false, NULL, NULL, err));
	KIT_OK(k->ops->events_newest(k->s, &newest, err));
	assert_int_equal(newest, before);
}

static void an_event_of_an_earlier_attempt_is_marked_late(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	kit_retry(k, &claim, 0, 0);
	struct sl_event_row events[2] = {of_claim(event("s", 1), &claim), event("s", 2)};
	kit_claim_one(k, "t", &claim);
	events[1] = of_claim(events[1], &claim);
	struct sl_event_mark mark = {.stream = "s", .incarnation = 7};
	KIT_OK(k->ops->events_append(k->s, events, 2, &mark, 1, NULL, err));
	struct rows rows;
	read_all(k, id, 0, 10, &rows);
	assert_int_equal(rows.n, 2); /* kept, not refused */
	assert_int_equal(rows.r[0].late, 1);
	assert_int_equal(rows.r[1].late, 0);
}

static void an_event_without_the_claim_of_its_attempt_is_marked_late(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim, other;
	kit_start(k, "u");
	kit_claim_one(k, "u", &other);
	kit_claim_one(k, "t", &claim);
	for (int ended = 0; ended < 2; ended++) {
		struct sl_event_row e[5];
		for (uint64_t i = 0; i < 5; i++)
			e[i] = of_claim(event("s", (uint64_t)ended * 5 + i + 1), &claim);
		e[1].claim = (struct sl_claim_id){{0}}; /* none */
		e[2].claim = other.id;                  /* of another job */
		e[3].attempt += 7;                      /* of an attempt that never was */
		e[4].attempt = 0;                       /* of no attempt */
		struct sl_event_mark mark = {.stream = "s", .incarnation = 7};
		KIT_OK(k->ops->events_append(k->s, e, 5, &mark, 1, NULL, err));
		if (ended == 0)
			kit_complete(k, &claim, 0, "1");
	}
	struct rows rows;
	read_all(k, id, 0, 20, &rows);
	assert_int_equal(rows.n, 10);
	for (size_t i = 0; i < 10; i++)
		assert_int_equal(rows.r[i].late, i % 5 != 0);
}

static void an_event_of_a_job_that_is_not_there_yet_stays_out_of_its_log(void **state)
{
	struct kit *k = *state;
	uint64_t last = kit_start(k, "t");
	struct sl_event_row e[100];
	for (uint64_t i = 0; i < 100; i++) { /* many, and few, since stores take them in two ways */
		e[i] = event("s", i + 1);
		e[i].job_id = last + 1 + i % 50;
		e[i].attempt = 1;
	}
	struct sl_event_mark mark = {.stream = "s", .incarnation = 7};
	KIT_OK(k->ops->events_append(k->s, e, 10, &mark, 1, NULL, err));
	KIT_OK(k->ops->events_append(k->s, e + 10, 90, &mark, 1, NULL, err));
	assert_int_equal(mark.mark, 100);
	struct rows rows;
	for (size_t i = 0; i < 20; i++) {
		uint64_t id = kit_start(k, "t");
		read_all(k, id, 0, 10, &rows);
		assert_int_equal(rows.n, 0);
	}
	read_all(k, 0, 0, 60, &rows);
	assert_int_equal(rows.n, 60);
	for (size_t i = 0; i < 60; i++) {
		assert_int_equal(rows.r[i].job_id, 0);
		assert_int_equal(rows.r[i].attempt, 0);
		assert_int_equal(rows.r[i].late, 1);
	}
}

static void an_event_of_the_last_attempt_is_not_late_when_the_job_has_ended(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	kit_complete(k, &claim, 0, NULL);
	struct sl_event_row e = of_claim(event("s", 1), &claim);
	struct sl_event_mark mark = {.stream = "s", .incarnation = 7};
	KIT_OK(k->ops->events_append(k->s, &e, 1, &mark, 1, NULL, err));
	struct rows rows;
	read_all(k, id, 0, 10, &rows);
	assert_int_equal(rows.n, 1);
	assert_int_equal(rows.r[0].late, 0);
}

static void events_of_a_job_that_is_gone_are_taken_and_break_nothing(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	size_t n;
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){&id, 1}, false, NULL, &n, err));
	struct sl_event_row e = event("s", 1);
	e.job_id = id;
	e.attempt = 1;
	struct sl_event_mark mark = {.stream = "s", .incarnation = 7};
	KIT_OK(k->ops->events_append(k->s, &e, 1, &mark, 1, &n, err));
	assert_int_equal(mark.mark, 1); /* the records after it must not be held up */
}

static void prune_removes_old_events_whose_job_was_deleted(void **state)
{
	struct kit *k = *state;
	uint64_t gone = kit_start(k, "t"), kept = kit_start(k, "t");
	struct sl_event_row e[5] = {event("s", 1), event("s", 2), event("s", 3), event("s", 4), event("s", 5)};
	e[0].job_id = e[1].job_id = e[2].job_id = gone;
	e[3].job_id = kept;
	e[0].attempt = e[1].attempt = e[2].attempt = e[3].attempt = 1;
	struct sl_event_mark mark = {.stream = "s", .incarnation = 7};
	size_t n_new;
	KIT_OK(k->ops->events_append(k->s, &e[0], 1, &mark, 1, &n_new, err));
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){&gone, 1}, false, NULL, NULL, err));
	/* Its worker was still running it. */
	e[2].ts_ms = INT64_C(9000000000000);
	KIT_OK(k->ops->events_append(k->s, &e[1], 4, &mark, 1, &n_new, err));
	struct rows rows;
	read_all(k, 0, 0, 100, &rows);
	assert_int_equal(rows.n, 4);
	uint64_t last = rows.r[3].offset;
	size_t n = 9;
	KIT_OK(k->ops->prune(k->s, kit_now(k), 100, NULL, &n, err));
	assert_int_equal(n, 0);
	read_all(k, 0, 0, 100, &rows);
	assert_int_equal(rows.n, 3);
	assert_int_equal(rows.r[0].sequence, 3); /* too young */
	assert_int_equal(rows.r[1].sequence, 4); /* its job is there */
	assert_int_equal(rows.r[2].sequence, 5); /* never had one */
	/* The stream and the offsets continue. */
	assert_int_equal(append(k, "s", 6, 6, &n_new), 6);
	read_all(k, 0, last, 100, &rows);
	assert_int_equal(rows.n, 1);
	assert_int_equal(rows.r[0].offset, last + 1);
}

static void a_removed_chain_takes_its_events_with_it(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct sl_event_row events[2] = {event("s", 1), event("s", 2)};
	events[0].job_id = id;
	events[0].attempt = 1;
	struct sl_event_mark mark = {.stream = "s", .incarnation = 7};
	size_t n;
	KIT_OK(k->ops->events_append(k->s, events, 2, &mark, 1, NULL, err));
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){&id, 1}, false, NULL, &n, err));
	struct rows rows;
	read_all(k, 0, 0, 10, &rows);
	assert_int_equal(rows.n, 1);
	uint64_t last = rows.r[0].offset;
	append(k, "s", 3, 3, &n); /* offsets are not given again */
	read_all(k, 0, last, 10, &rows);
	assert_int_equal(rows.n, 1);
	assert_int_equal(rows.r[0].offset, last + 1);
}

/* ---- many at once: stores may take them another way ---- */

#define MANY 600

struct crowd {
	struct sl_event_row r[MANY];
	char payloads[MANY][32];
	uint64_t jobs[3];                /* in its second attempt; in its first; gone */
	struct sl_claim_id claims[2][3]; /* of their first and second attempts */
	size_t seen;
	uint64_t first_offset;
};

static void make_jobs(struct kit *k, struct crowd *c)
{
	struct kit_claim claim;
	size_t n;
	c->jobs[0] = kit_start(k, "twice");
	kit_claim_one(k, "twice", &claim);
	c->claims[0][0] = claim.id;
	kit_retry(k, &claim, 0, 0);
	kit_claim_one(k, "twice", &claim);
	c->claims[1][0] = claim.id;
	c->jobs[1] = kit_start(k, "once");
	kit_claim_one(k, "once", &claim);
	c->claims[0][1] = claim.id;
	c->jobs[2] = kit_start(k, "gone");
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){&c->jobs[2], 1}, false, NULL, &n, err));
}

/* Of three streams in turns, of every job and of none, of attempts 1 and 2 and of none; every field has its say. */
static struct crowd *make_crowd(struct kit *k)
{
	static const char *const streams[] = {"a", "b", "c"};
	struct crowd *c = calloc(1, sizeof(*c));
	make_jobs(k, c);
	for (size_t i = 0; i < MANY; i++) {
		struct sl_event_row *e = &c->r[i];
		*e = event(streams[i % 3], i / 3 + 1);
		e->crc = UINT64_MAX - i * 7919;
		e->job_id = i % 4 < 3 ? c->jobs[i % 4] : 0;
		e->attempt = (int32_t)(i / 4 % 3);
		e->type = (enum sl_event_type)(i % 7 + 1);
		e->partial = i % 5 == 0;
		if (i % 4 < 3 && e->attempt > 0)
			e->claim = c->claims[e->attempt - 1][i % 4];
		/* In time: the second attempt of the one, the first of the other. */
		e->late = i % 4 < 3 && !(i % 4 == 0 && e->attempt == 2) && !(i % 4 == 1 && e->attempt == 1);
		e->payload_len = (size_t)snprintf(c->payloads[i], 32, "%zu\n\t\\.\xff", i);
		c->payloads[i][0] = (char)(i % 3); /* also 0 */
		e->payload = c->payloads[i];
		if (i % 11 == 0) {
			e->payload = NULL;
			e->payload_len = 0;
		}
	}
	c->r[5].ts_ms = INT64_MIN; /* cut, as when it comes alone */
	c->r[7].ts_ms = 0;
	return c;
}

static int compare_row(const struct sl_event_row *e, void *ctx)
{
	struct crowd *c = ctx;
	KIT_TRUE(c->seen < MANY);
	const struct sl_event_row *sent = &c->r[c->seen];
	if (c->seen == 0)
		c->first_offset = e->offset;
	KIT_TRUE(e->offset == c->first_offset + c->seen);
	KIT_TRUE(strcmp(e->stream, sent->stream) == 0 && e->incarnation == 7 && e->sequence == sent->sequence);
	bool gone = sent->job_id == c->jobs[2];
	KIT_TRUE(e->crc == sent->crc && e->job_id == (gone ? 0 : sent->job_id));
	KIT_TRUE(e->attempt == (gone ? 0 : sent->attempt));
	KIT_TRUE(e->type == sent->type && e->partial == sent->partial && e->late == sent->late);
	KIT_TRUE(e->payload_len == sent->payload_len);
	KIT_TRUE(sent->payload_len == 0 || memcmp(e->payload, sent->payload, sent->payload_len) == 0);
	KIT_TRUE(c->seen == 5 ? e->ts_ms < 0 : c->seen == 7 ? e->ts_ms <= 1 : e->ts_ms == sent->ts_ms);
	c->seen++;
	return 0;
}

static void many_events_at_once_come_back_as_they_were(void **state)
{
	struct kit *k = *state;
	struct crowd *c = make_crowd(k);
	struct sl_event_mark marks[3] = {{.stream = "c", .incarnation = 7},
					 {.stream = "a", .incarnation = 7},
					 {.stream = "b", .incarnation = 7}};
	size_t n_new = 0;
	KIT_OK(k->ops->events_append(k->s, c->r, 90, marks, 3, &n_new, err));
	assert_int_equal(n_new, 90);
	/* The first of these were there before. */
	KIT_OK(k->ops->events_append(k->s, c->r + 60, MANY - 60, marks, 3, &n_new, err));
	assert_int_equal(n_new, MANY - 90);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(marks[i].mark, MANY / 3);
	KIT_OK(k->ops->events_read(k->s, 0, 0, MANY + 1, compare_row, c, err));
	assert_int_equal(c->seen, MANY);
	free(c);
}

static void a_conflict_or_a_gap_among_many_takes_nothing(void **state)
{
	struct kit *k = *state;
	struct crowd *c = make_crowd(k);
	const struct sl_event_mark none[3] = {{.stream = "a", .incarnation = 7},
					      {.stream = "b", .incarnation = 7},
					      {.stream = "c", .incarnation = 7}};
	struct sl_event_mark marks[3];
	struct sl_err why = SL_ERR_INIT;
	struct sl_event_row last = c->r[MANY - 1];
	struct rows rows;
	c->r[MANY - 1].sequence++;
	assert_int_equal(k->ops->events_append(k->s, c->r, MANY, memcpy(marks, none, sizeof(none)), 3, NULL, &why),
			 SL_EGAP);
	read_all(k, 0, 0, 10, &rows);
	assert_int_equal(rows.n, 0);
	c->r[MANY - 1] = last;
	KIT_OK(k->ops->events_append(k->s, c->r, 300, memcpy(marks, none, sizeof(none)), 3, NULL, err));
	c->r[299].crc++;
	assert_int_equal(k->ops->events_append(k->s, c->r, MANY, memcpy(marks, none, sizeof(none)), 3, NULL, &why),
			 SL_ECONFLICT);
	c->r[299].crc--;
	KIT_OK(k->ops->events_append(k->s, c->r + 300, 300, memcpy(marks, none, sizeof(none)), 3, NULL, err));
	KIT_OK(k->ops->events_read(k->s, 0, 0, MANY + 1, compare_row, c, err));
	assert_int_equal(c->seen, MANY);
	free(c);
}

/* ---- whose stream it is ---- */

static struct sl_event_mark by(const struct sl_event_writer *writer, uint32_t incarnation)
{
	return (struct sl_event_mark){.stream = "s", .incarnation = incarnation, .writer = writer};
}

static int write_as(struct kit *k, const struct sl_event_writer *writer, uint32_t incarnation, uint64_t sequence)
{
	struct sl_event_mark mark = by(writer, incarnation);
	struct sl_event_row e = event("s", sequence);
	struct sl_err why = SL_ERR_INIT;
	e.incarnation = incarnation;
	return k->ops->events_append(k->s, &e, 1, &mark, 1, NULL, &why);
}

static void a_stream_belongs_to_the_token_that_created_it(void **state)
{
	struct kit *k = *state;
	const struct sl_event_writer ada = {.token = "ada", .adopts = true}, bob = {.token = "bob", .adopts = true};
	const struct sl_event_writer boss = {.token = "boss", .any_stream = true};
	struct rows rows;
	size_t n_new;
	assert_int_equal(write_as(k, &ada, 7, 1), 0);
	assert_int_equal(write_as(k, &bob, 7, 2), SL_EACCES);
	assert_int_equal(write_as(k, &bob, 8, 1), SL_EACCES); /* under any incarnation */
	struct sl_event_mark skip = by(&bob, 7);
	struct sl_err why = SL_ERR_INIT;
	skip.mark = 9;
	assert_int_equal(k->ops->events_append(k->s, NULL, 0, &skip, 1, NULL, &why), SL_EACCES);
	/* A new incarnation of its owner is its owner's, too. */
	assert_int_equal(write_as(k, &ada, 8, 1), 0);
	assert_int_equal(write_as(k, &bob, 8, 2), SL_EACCES);
	/* An administrator may, and does not become the owner. */
	assert_int_equal(write_as(k, &boss, 7, 2), 0);
	assert_int_equal(write_as(k, &boss, 9, 1), 0);
	assert_int_equal(write_as(k, &ada, 9, 2), 0);
	assert_int_equal(write_as(k, &bob, 9, 3), SL_EACCES);
	/* So may a process that has the store itself. */
	assert_int_equal(append(k, "s", 3, 3, &n_new), 3);
	assert_int_equal(write_as(k, &ada, 7, 4), 0);
	read_all(k, 0, 0, 100, &rows);
	assert_int_equal(rows.n, 7);
}

static void a_stream_that_no_token_created_is_taken_over_by_a_scope_that_names_it_only(void **state)
{
	struct kit *k = *state;
	const struct sl_event_writer none = {.any_stream = true}, ada = {.token = "ada", .adopts = true};
	const struct sl_event_writer writer = {.token = "writer"};
	size_t n_new;
	append(k, "s", 1, 1, &n_new);
	assert_int_equal(write_as(k, &none, 7, 2), 0); /* a server without tokens */
	assert_int_equal(write_as(k, &none, 8, 1), 0);
	assert_int_equal(write_as(k, &writer, 7, 3), SL_EACCES);
	assert_int_equal(write_as(k, &writer, 9, 1), SL_EACCES);
	assert_int_equal(write_as(k, &ada, 7, 3), 0);
	assert_int_equal(write_as(k, &writer, 8, 2), SL_EACCES);
	const struct sl_event_writer bob = {.token = "bob", .adopts = true};
	assert_int_equal(write_as(k, &bob, 8, 2), SL_EACCES);
	assert_int_equal(write_as(k, &ada, 8, 2), 0);
}

static int append_both(struct kit *k, struct sl_event_mark *marks, struct sl_err *why)
{
	struct sl_event_row e[2] = {event("s", 1), event("s", 1)};
	e[0].incarnation = marks[0].incarnation;
	e[1].incarnation = marks[1].incarnation;
	return k->ops->events_append(k->s, e, 2, marks, 2, NULL, why);
}

static void two_tokens_do_not_create_one_stream_in_one_call(void **state)
{
	struct kit *k = *state;
	const struct sl_event_writer ada = {.token = "ada"}, bob = {.token = "bob"};
	struct sl_event_mark marks[2] = {by(&ada, 1), by(&bob, 2)};
	struct sl_err why = SL_ERR_INIT;
	struct rows rows;
	assert_int_equal(append_both(k, marks, &why), SL_EACCES);
	read_all(k, 0, 0, 100, &rows);
	assert_int_equal(rows.n, 0);
	assert_int_equal(write_as(k, &bob, 2, 1), 0);
	assert_int_equal(write_as(k, &ada, 1, 1), SL_EACCES);
}

struct details {
	size_t n;
	char at[8][200];
};

static int keep_detail(const struct sl_audit_record *r, void *ctx)
{
	struct details *d = ctx;
	assert_true(d->n < 8);
	assert_string_equal(r->action, "events.publish");
	assert_string_equal(r->address, "192.0.2.7");
	(void)snprintf(d->at[d->n++], sizeof(d->at[0]), "%s %s", r->actor, r->detail);
	return 0;
}

static void what_is_out_of_the_ordinary_is_in_the_audit_trail(void **state)
{
	struct kit *k = *state;
	struct sl_audit_record record = {.via = SL_VIA_HTTP, .actor = "ada", .action = "-", .address = "192.0.2.7"};
	struct sl_audit_record of_boss = record;
	const struct sl_event_writer ada = {.token = "ada", .record = &record};
	const struct sl_event_writer boss = {.token = "boss", .any_stream = true, .record = &of_boss};
	struct details d = {.n = 0};
	of_boss.actor = "boss";
	if (k->ops->audit_list == NULL)
		return;
	/* Ordinary: nothing. Not even when it comes again. */
	for (int i = 0; i < 2; i++)
		assert_int_equal(write_as(k, &ada, 7, 1), 0);
	KIT_OK(k->ops->audit_list(k->s, 0, 100, keep_detail, &d, err));
	assert_int_equal(d.n, 0);
	/* Skipped sequences, once. */
	for (int i = 0; i < 2; i++) {
		struct sl_event_mark skip = by(&ada, 7);
		skip.mark = 4;
		KIT_OK(k->ops->events_append(k->s, NULL, 0, &skip, 1, NULL, err));
	}
	assert_int_equal(write_as(k, &ada, 8, 1), 0);
	assert_int_equal(write_as(k, &boss, 8, 2), 0);
	/* A line for a job without its claim. */
	struct sl_event_row forged = event("s", 5);
	struct sl_event_mark mark = by(&ada, 7);
	forged.job_id = kit_start(k, "t");
	forged.attempt = 1;
	KIT_OK(k->ops->events_append(k->s, &forged, 1, &mark, 1, NULL, err));
	/* What is refused leaves no record. */
	const struct sl_event_writer bob = {.token = "bob", .record = &record};
	assert_int_equal(write_as(k, &bob, 7, 6), SL_EACCES);
	KIT_OK(k->ops->audit_list(k->s, 0, 100, keep_detail, &d, err));
	assert_int_equal(d.n, 4);
	assert_string_equal(d.at[3], "ada {\"stream\":\"s\",\"incarnation\":7,\"skipped\":[\"2\",\"4\"]}");
	assert_string_equal(d.at[2], "ada {\"stream\":\"s\",\"incarnation\":8,\"new_incarnation\":true}");
	assert_string_equal(d.at[1], "boss {\"stream\":\"s\",\"incarnation\":8,\"foreign\":true}");
	assert_string_equal(d.at[0], "ada {\"stream\":\"s\",\"incarnation\":7,\"without_claim\":1}");
}

struct stream_list {
	size_t n;
	uint32_t incarnations[8];
};

static int keep_stream(const struct sl_event_stream *s, void *ctx)
{
	struct stream_list *l = ctx;
	assert_true(l->n < 8);
	l->incarnations[l->n++] = s->incarnation;
	return 0;
}

static void prune_removes_marks_of_incarnations_that_another_has_followed(void **state)
{
	struct kit *k = *state;
	struct stream_list l = {.n = 0};
	size_t n = 9;
	if (k->ops->event_streams == NULL)
		return;
	/* 3 has only lines of a job that will be deleted, 4 has lines of none, 5 is the newest. */
	uint64_t job = kit_start(k, "t");
	for (uint32_t incarnation = 3; incarnation <= 5; incarnation++) {
		struct sl_event_mark mark = {.stream = "s", .incarnation = incarnation};
		struct sl_event_row e = event("s", 1);
		e.incarnation = incarnation;
		e.job_id = incarnation == 4 ? 0 : job;
		e.attempt = incarnation == 4 ? 0 : 1;
		KIT_OK(k->ops->events_append(k->s, &e, 1, &mark, 1, NULL, err));
		kit_pass_ms(k, 20);
	}
	int64_t before = kit_now(k);
	KIT_OK(k->ops->prune(k->s, before, 100, NULL, &n, err));
	KIT_OK(k->ops->event_streams(k->s, NULL, 8, keep_stream, &l, err));
	assert_int_equal(l.n, 3); /* events of all three are there */
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){&job, 1}, false, NULL, NULL, err));
	KIT_OK(k->ops->prune(k->s, before - KIT_LONG_MS, 100, NULL, &n, err));
	l.n = 0;
	KIT_OK(k->ops->event_streams(k->s, NULL, 8, keep_stream, &l, err));
	assert_int_equal(l.n, 3); /* too young */
	KIT_OK(k->ops->prune(k->s, before, 100, NULL, &n, err));
	l.n = 0;
	KIT_OK(k->ops->event_streams(k->s, NULL, 8, keep_stream, &l, err));
	assert_int_equal(l.n, 2);
	assert_int_equal(l.incarnations[0], 4);
	assert_int_equal(l.incarnations[1], 5);
	/* The newest continues. */
	struct sl_event_mark mark = {.stream = "s", .incarnation = 5};
	KIT_OK(k->ops->events_append(k->s, NULL, 0, &mark, 1, NULL, err));
	assert_int_equal(mark.mark, 1);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(events_come_back_as_they_were_with_gapless_offsets),
	cmocka_unit_test(an_event_that_comes_again_is_dropped),
	cmocka_unit_test(another_crc_for_a_known_event_is_a_conflict),
	cmocka_unit_test(a_mark_keeps_the_crc_of_its_event_after_the_event_is_gone),
	cmocka_unit_test(a_sender_that_has_another_record_at_the_mark_is_a_conflict),
	cmocka_unit_test(a_conflict_or_a_gap_takes_nothing_of_the_call),
	cmocka_unit_test(a_gap_is_refused_unless_it_is_skipped),
	cmocka_unit_test(an_event_inside_of_a_skipped_range_is_taken),
	cmocka_unit_test(a_stream_is_taken_without_a_mark_of_the_caller),
	cmocka_unit_test(marks_without_events_skip_ahead_and_are_returned),
	cmocka_unit_test(streams_and_incarnations_have_marks_of_their_own),
	cmocka_unit_test(checksums_and_incarnations_keep_all_their_bits),
	cmocka_unit_test(times_beyond_what_a_store_can_keep_are_cut_to_it),
	cmocka_unit_test(events_are_read_by_job_from_an_offset_up_to_a_limit),
	cmocka_unit_test(the_newest_offset_is_that_of_the_last_event_there_is),
	cmocka_unit_test(an_event_of_an_earlier_attempt_is_marked_late),
	cmocka_unit_test(an_event_without_the_claim_of_its_attempt_is_marked_late),
	cmocka_unit_test(an_event_of_a_job_that_is_not_there_yet_stays_out_of_its_log),
	cmocka_unit_test(an_event_of_the_last_attempt_is_not_late_when_the_job_has_ended),
	cmocka_unit_test(events_of_a_job_that_is_gone_are_taken_and_break_nothing),
	cmocka_unit_test(prune_removes_old_events_whose_job_was_deleted),
	cmocka_unit_test(a_removed_chain_takes_its_events_with_it),
	cmocka_unit_test(many_events_at_once_come_back_as_they_were),
	cmocka_unit_test(a_conflict_or_a_gap_among_many_takes_nothing),
	cmocka_unit_test(a_stream_belongs_to_the_token_that_created_it),
	cmocka_unit_test(a_stream_that_no_token_created_is_taken_over_by_a_scope_that_names_it_only),
	cmocka_unit_test(two_tokens_do_not_create_one_stream_in_one_call),
	cmocka_unit_test(what_is_out_of_the_ordinary_is_in_the_audit_trail),
	cmocka_unit_test(prune_removes_marks_of_incarnations_that_another_has_followed),
};

CONTRACT_TESTS(contract_event_tests, tests)
