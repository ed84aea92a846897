/* SPDX-License-Identifier: Apache-2.0 */
/* Retention: the steps that delete old chains, events and marks, and what the store keeps of it. A store without it (the
 * model in memory) passes. */
#include "jobs/contract_kit.h"

#include <stdio.h>

#define NEVER UINT64_MAX

struct event_list {
	size_t n;
	uint64_t sequences[64], offsets[64];
};

static int keep_event(const struct sl_event_row *e, void *ctx)
{
	struct event_list *l = ctx;
	KIT_TRUE(l->n < 64);
	l->offsets[l->n] = e->offset;
	l->sequences[l->n++] = e->sequence;
	return 0;
}

static struct event_list events_of(struct kit *k, uint64_t job)
{
	struct event_list l = {.n = 0};
	KIT_OK(k->ops->events_read(k->s, job, 0, 64, keep_event, &l, err));
	return l;
}

/* Append events first..last of stream "s" at this time, of a job (0: shipped lines); the offset of the last. */
static uint64_t append(struct kit *k, uint64_t job, uint64_t first, uint64_t last, int64_t ts_ms)
{
	struct sl_event_mark mark = {.stream = "s", .incarnation = 7};
	struct event_list l;
	for (uint64_t s = first; s <= last; s++) {
		const struct sl_event_row e = {.stream = "s",
					       .incarnation = 7,
					       .sequence = s,
					       .crc = s,
					       .type = 2,
					       .ts_ms = ts_ms,
					       .job_id = job,
					       .attempt = job != 0 ? 1 : 0,
					       .payload = "line",
					       .payload_len = 4};
		KIT_OK(k->ops->events_append(k->s, &e, 1, &mark, 1, NULL, err));
	}
	l = events_of(k, 0);
	return l.offsets[l.n - 1];
}

/* All that ended before now is old enough. */
static struct sl_prune_step all_chains(struct kit *k)
{
	kit_pass_ms(k, 3);
	int64_t now = kit_now(k);
	return (struct sl_prune_step){.completed_before_ms = now,
				      .failed_before_ms = now,
				      .now_ms = now,
				      .exported = NEVER,
				      .scan = 100,
				      .limit = 100,
				      .n_events = 100};
}

static uint64_t retain(struct kit *k, struct sl_prune_step step)
{
	uint64_t chains = 0;
	do {
		KIT_OK(k->ops->retain_chains(k->s, &step, err));
		chains += step.chains;
	} while (!step.end);
	return chains;
}

static uint64_t start_failed(struct kit *k, const char *type)
{
	struct kit_claim claim;
	uint64_t id = kit_start(k, type);
	kit_claim_one(k, type, &claim);
	kit_fail(k, &claim, 0);
	return id;
}

static uint64_t start_completed(struct kit *k, const char *type)
{
	uint64_t id = kit_start(k, type);
	kit_run(k, type, "1");
	return id;
}

static bool has_retention(const struct kit *k)
{
	return k->ops->retain_chains != NULL;
}

static struct sl_retention_row read_row(struct kit *k, int64_t since_ms)
{
	struct sl_retention_row row;
	KIT_OK(k->ops->retention_read(k->s, since_ms, &row, err));
	return row;
}

/* ---- chains ---- */

static void completed_chains_and_those_that_failed_have_limits_of_their_own(void **state)
{
	struct kit *k = *state;
	if (!has_retention(k))
		return;
	uint64_t done = start_completed(k, "t"), failed = start_failed(k, "t"), cancelled = kit_start(k, "t");
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&cancelled, 1}, NULL, NULL, err));
	struct sl_prune_step step = all_chains(k);
	step.failed_before_ms = 0;
	assert_int_equal(retain(k, step), 1);
	assert_false(kit_exists(k, done));
	done = start_completed(k, "t");
	step = all_chains(k);
	step.completed_before_ms = 0;
	assert_int_equal(retain(k, step), 2);
	assert_false(kit_exists(k, failed));
	assert_false(kit_exists(k, cancelled));
	assert_true(kit_exists(k, done));
	/* What was deleted is counted with the deletion. */
	struct sl_retention_row row = read_row(k, 0);
	assert_int_equal(row.chains, 3);
	assert_int_equal(row.completed, 1);
	assert_int_equal(row.failed, 1);
	assert_true(row.deleted_ms > 0);
}

static void what_ended_later_than_the_limit_stays(void **state)
{
	struct kit *k = *state;
	if (!has_retention(k))
		return;
	uint64_t old = start_completed(k, "t"), open = kit_start(k, "late");
	struct sl_prune_step step = all_chains(k);
	kit_pass_ms(k, 3);
	uint64_t young = start_completed(k, "t");
	kit_run(k, "late", "1"); /* older than the limit, but it ended after it */
	assert_int_equal(retain(k, step), 1);
	assert_false(kit_exists(k, old));
	assert_true(kit_exists(k, open));
	assert_true(kit_exists(k, young));
}

static void a_chain_that_runs_on_stays_whole_and_then_goes_whole(void **state)
{
	struct kit *k = *state;
	if (!has_retention(k))
		return;
	uint64_t chain = kit_start(k, "first");
	struct kit_claim claim;
	kit_claim_one(k, "first", &claim);
	struct sl_settle next = kit_settle(&claim, 0, SL_SETTLE_CONTINUE);
	const struct sl_new_job job = {.type = "second", .input = "{}"};
	next.next = &job;
	uint64_t second = kit_exchange(k, &next, NULL).next_id;
	append(k, chain, 1, 2, 1000);
	append(k, second, 3, 4, 1000);
	assert_int_equal(retain(k, all_chains(k)), 0);
	assert_true(kit_exists(k, chain));
	assert_int_equal(events_of(k, chain).n, 2);
	kit_run(k, "second", "1");
	assert_int_equal(retain(k, all_chains(k)), 1);
	assert_false(kit_exists(k, chain));
	assert_false(kit_exists(k, second));
	assert_int_equal(events_of(k, 0).n, 0);
}

static void a_chain_whose_output_a_job_may_ask_for_stays(void **state)
{
	struct kit *k = *state;
	if (!has_retention(k))
		return;
	uint64_t done = kit_start(k, "a"), failed = kit_start(k, "b");
	uint64_t waits = kit_start_after(k, "t", (uint64_t[]){done}, 1);
	kit_start_after(k, "u", (uint64_t[]){failed}, 1);
	kit_run(k, "a", "1");
	struct kit_claim claim;
	kit_claim_one(k, "b", &claim);
	kit_fail(k, &claim, 0);
	assert_int_equal(retain(k, all_chains(k)), 0);
	kit_run(k, "t", "1");
	assert_int_equal(retain(k, all_chains(k)), 2);
	assert_false(kit_exists(k, done));
	assert_false(kit_exists(k, waits));
	assert_true(kit_exists(k, failed)); /* a job waits until it is redriven */
}

static void a_chain_whose_output_a_retried_job_would_ask_for_stays(void **state)
{
	struct kit *k = *state;
	if (!has_retention(k))
		return;
	uint64_t done = kit_start(k, "a"), waits = kit_start_after(k, "t", (uint64_t[]){done}, 1);
	append(k, done, 1, 3, 1000);
	kit_run(k, "a", "1");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	kit_fail(k, &claim, 0);
	struct sl_prune_step step = all_chains(k);
	step.failed_before_ms = 0;
	assert_int_equal(retain(k, step), 0);
	assert_int_equal(events_of(k, done).n, 3);
	/* It goes once the job that failed is gone. */
	step = all_chains(k);
	assert_int_equal(retain(k, step), 1);
	assert_false(kit_exists(k, waits));
	assert_int_equal(retain(k, step), 1);
	assert_false(kit_exists(k, done));
}

static void a_chain_with_events_that_were_not_exported_stays(void **state)
{
	struct kit *k = *state;
	if (!has_retention(k))
		return;
	/* One with an event of its first job, one with an event of its second. */
	uint64_t one = kit_start(k, "t"), two = kit_start(k, "u");
	kit_run(k, "t", "1");
	struct kit_claim claim;
	kit_claim_one(k, "u", &claim);
	struct sl_settle next = kit_settle(&claim, 0, SL_SETTLE_CONTINUE);
	const struct sl_new_job job = {.type = "v", .input = "{}"};
	next.next = &job;
	uint64_t second = kit_exchange(k, &next, NULL).next_id;
	kit_run(k, "v", "1");
	uint64_t first_offset = append(k, one, 1, 1, 1000), second_offset = append(k, second, 2, 2, 1000);
	struct sl_prune_step step = all_chains(k);
	step.exported = first_offset - 1;
	assert_int_equal(retain(k, step), 0);
	step.exported = first_offset;
	assert_int_equal(retain(k, step), 1);
	assert_false(kit_exists(k, one));
	assert_true(kit_exists(k, two));
	assert_int_equal(events_of(k, second).n, 1);
	step.exported = second_offset;
	assert_int_equal(retain(k, step), 1);
	assert_false(kit_exists(k, two));
}

static void a_chain_stays_while_the_window_of_its_key_lasts(void **state)
{
	struct kit *k = *state;
	if (!has_retention(k))
		return;
	uint64_t held = kit_start_key(k, "held", SL_DEDUP_ANY, KIT_LONG_MS).chain_id;
	uint64_t forever = kit_start_key(k, "forever", SL_DEDUP_ANY, 0).chain_id;
	KIT_OK(k->ops->complete_chain(k->s, held, "1", NULL, err));
	KIT_OK(k->ops->complete_chain(k->s, forever, "1", NULL, err));
	struct sl_prune_step step = all_chains(k);
	assert_int_equal(retain(k, step), 0);
	assert_true(kit_exists(k, held));
	assert_true(kit_start_key(k, "held", SL_DEDUP_ANY, KIT_LONG_MS).deduplicated);
	step.now_ms += 2 * KIT_LONG_MS;
	assert_int_equal(retain(k, step), 1);
	assert_false(kit_exists(k, held));
	/* Without a window, a key keeps its chain until a person deletes or prunes it. */
	assert_true(kit_start_key(k, "forever", SL_DEDUP_ANY, 0).deduplicated);
	size_t n = 0;
	KIT_OK(k->ops->prune(k->s, kit_now(k), 10, NULL, &n, err));
	assert_false(kit_exists(k, forever));
}

static void a_step_reads_and_deletes_a_bounded_number_and_continues(void **state)
{
	struct kit *k = *state;
	if (!has_retention(k))
		return;
	uint64_t ids[6];
	for (size_t i = 0; i < 6; i++)
		ids[i] = kit_start(k, "t");
	for (size_t i = 0; i < 6; i++)
		if (i != 2)
			KIT_OK(k->ops->complete_chain(k->s, ids[i], "1", NULL, err));
	struct sl_prune_step step = all_chains(k);
	step.limit = 2;
	KIT_OK(k->ops->retain_chains(k->s, &step, err));
	assert_int_equal(step.chains, 2);
	assert_int_equal(step.after, ids[1]);
	assert_false(step.end);
	/* A page with nothing in it that may go. */
	step.limit = 100;
	step.scan = 1;
	KIT_OK(k->ops->retain_chains(k->s, &step, err));
	assert_int_equal(step.chains, 0);
	assert_int_equal(step.after, ids[2]);
	assert_false(step.end);
	step.scan = 100;
	KIT_OK(k->ops->retain_chains(k->s, &step, err));
	assert_int_equal(step.chains, 3);
	assert_true(step.end);
	for (size_t i = 0; i < 6; i++)
		assert_int_equal(kit_exists(k, ids[i]), i == 2);
}

static void a_chain_with_many_events_loses_them_first(void **state)
{
	struct kit *k = *state;
	if (!has_retention(k))
		return;
	uint64_t big = start_completed(k, "t");
	append(k, big, 1, 5, 1000);
	struct sl_prune_step step = all_chains(k);
	step.n_events = 2;
	for (size_t left = 5; left > 1;) {
		KIT_OK(k->ops->retain_chains(k->s, &step, err));
		assert_int_equal(step.chains, 0);
		assert_false(step.end);
		left -= 2;
		assert_int_equal(events_of(k, big).n, left);
		assert_true(kit_exists(k, big));
	}
	KIT_OK(k->ops->retain_chains(k->s, &step, err));
	assert_int_equal(step.chains, 1);
	assert_int_equal(events_of(k, 0).n, 0);
	assert_false(kit_exists(k, big));
}

/* ---- events ---- */

static struct sl_prune_step event_step(int64_t events_before, int64_t lines_before)
{
	return (struct sl_prune_step){.events_before_ms = events_before,
				      .lines_before_ms = lines_before,
				      .events_for_ever = events_before == 0,
				      .lines_for_ever = lines_before == 0,
				      .exported = NEVER,
				      .scan = 2};
}

static uint64_t retain_events(struct kit *k, struct sl_prune_step step)
{
	uint64_t events = 0;
	do {
		KIT_OK(k->ops->retain_events(k->s, &step, err));
		events += step.events;
	} while (!step.end);
	return events;
}

static void old_events_and_old_lines_have_limits_of_their_own(void **state)
{
	struct kit *k = *state;
	if (!has_retention(k))
		return;
	uint64_t job = kit_start(k, "t");
	append(k, 0, 1, 5, 1000);
	append(k, job, 6, 8, 1000);
	append(k, 0, 9, 9, 3000);
	append(k, job, 10, 10, 3000);
	/* Lines for ever: they end no pass, although there are whole pages of them. */
	assert_int_equal(retain_events(k, event_step(2000, 0)), 3);
	assert_int_equal(events_of(k, job).n, 1);
	assert_int_equal(events_of(k, 0).n, 7);
	assert_int_equal(retain_events(k, event_step(0, 2000)), 5);
	struct event_list l = events_of(k, 0);
	assert_int_equal(l.n, 2);
	assert_int_equal(l.sequences[0], 9);
	assert_int_equal(l.sequences[1], 10);
	/* The job is there, and the stream and the offsets continue. */
	assert_true(kit_exists(k, job));
	assert_int_equal(append(k, job, 11, 11, 3000), l.offsets[1] + 1);
}

static void what_is_kept_longer_hides_nothing_that_came_after_it(void **state)
{
	struct kit *k = *state;
	if (!has_retention(k))
		return;
	/* Whole pages of one kind that is not old enough, then the other kind, which is; and the other way round. */
	uint64_t job = kit_start(k, "t");
	append(k, job, 1, 4, 1000);
	append(k, 0, 5, 7, 1000);
	assert_int_equal(retain_events(k, event_step(500, 2000)), 3);
	assert_int_equal(events_of(k, job).n, 4);
	append(k, 0, 8, 12, 1000);
	append(k, job, 13, 14, 1000);
	assert_int_equal(retain_events(k, event_step(2000, 500)), 6);
	assert_int_equal(events_of(k, job).n, 0);
	assert_int_equal(events_of(k, 0).n, 5);
}

static void late_events_whose_job_was_gone_go_with_the_events_of_jobs(void **state)
{
	struct kit *k = *state;
	if (!has_retention(k))
		return;
	uint64_t gone = kit_start(k, "t");
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){&gone, 1}, false, NULL, NULL, err));
	append(k, gone, 1, 2, 1000);
	assert_int_equal(retain_events(k, event_step(0, 2000)), 0);
	assert_int_equal(retain_events(k, event_step(2000, 0)), 2);
	assert_int_equal(events_of(k, 0).n, 0);
}

static void events_that_were_not_exported_stay_and_offsets_stay_gapless(void **state)
{
	struct kit *k = *state;
	if (!has_retention(k))
		return;
	uint64_t last = append(k, 0, 1, 6, 1000);
	struct sl_prune_step step = event_step(2000, 2000);
	step.exported = last - 2;
	assert_int_equal(retain_events(k, step), 4);
	struct event_list l = events_of(k, 0);
	assert_int_equal(l.n, 2);
	assert_int_equal(l.offsets[0], last - 1);
	step.exported = NEVER;
	assert_int_equal(retain_events(k, step), 2);
	assert_int_equal(append(k, 0, 7, 7, 5000), last + 1);
}

static void a_page_of_young_events_ends_a_pass_and_is_read_again(void **state)
{
	struct kit *k = *state;
	if (!has_retention(k))
		return;
	append(k, 0, 1, 2, 1000);
	append(k, 0, 3, 5, 3000);
	struct sl_prune_step step = event_step(2000, 2000);
	KIT_OK(k->ops->retain_events(k->s, &step, err));
	assert_int_equal(step.events, 2);
	assert_false(step.end);
	uint64_t after = step.after;
	KIT_OK(k->ops->retain_events(k->s, &step, err));
	assert_int_equal(step.events, 0);
	assert_true(step.end);
	assert_int_equal(step.after, after);
	step.events_before_ms = step.lines_before_ms = 4000;
	assert_int_equal(retain_events(k, step), 3);
}

/* ---- marks ---- */

static int count_stream(const struct sl_event_stream *s, void *ctx)
{
	(void)s;
	++*(size_t *)ctx;
	return 0;
}

static size_t count_marks(struct kit *k)
{
	size_t n = 0;
	KIT_OK(k->ops->event_streams(k->s, NULL, 8, count_stream, &n, err));
	return n;
}

static uint64_t retain_marks(struct kit *k, int64_t superseded_before, int64_t silent_before)
{
	struct sl_prune_step step = {
		.superseded_before_ms = superseded_before, .silent_before_ms = silent_before, .limit = 1};
	uint64_t marks = 0;
	do {
		KIT_OK(k->ops->retain_marks(k->s, &step, err));
		marks += step.marks;
	} while (!step.end);
	return marks;
}

static void a_mark_outlives_its_events_until_it_is_followed_or_silent(void **state)
{
	struct kit *k = *state;
	if (!has_retention(k))
		return;
	for (uint32_t incarnation = 1; incarnation <= 2; incarnation++) {
		struct sl_event_mark mark = {.stream = "s", .incarnation = incarnation};
		const struct sl_event_row e = {.stream = "s",
					       .incarnation = incarnation,
					       .sequence = 1,
					       .crc = 1,
					       .type = 2,
					       .ts_ms = 1000,
					       .payload = "x",
					       .payload_len = 1};
		KIT_OK(k->ops->events_append(k->s, &e, 1, &mark, 1, NULL, err));
		kit_pass_ms(k, 20);
	}
	int64_t now = kit_now(k);
	assert_int_equal(retain_marks(k, now, now), 0); /* their events are there */
	assert_int_equal(retain_events(k, event_step(2000, 2000)), 2);
	assert_int_equal(retain_marks(k, now - KIT_LONG_MS, now - KIT_LONG_MS), 0); /* too young */
	assert_int_equal(retain_marks(k, now, now - KIT_LONG_MS), 1);
	/* The newest one has its mark still. */
	struct sl_event_mark mark = {.stream = "s", .incarnation = 2};
	KIT_OK(k->ops->events_append(k->s, NULL, 0, &mark, 1, NULL, err));
	assert_int_equal(mark.mark, 1);
	assert_int_equal(count_marks(k), 1);
	kit_pass_ms(k, 3);
	assert_int_equal(retain_marks(k, 0, kit_now(k)), 1);
	assert_int_equal(count_marks(k), 0);
}

/* ---- what the store keeps ---- */

static void the_turn_belongs_to_one_process_until_it_ends_or_is_given_back(void **state)
{
	struct kit *k = *state;
	if (!has_retention(k))
		return;
	struct sl_retention_turn a = {.holder = "a", .now_ms = 1000, .until_ms = 2000, .events = 3};
	struct sl_retention_turn b = {.holder = "b", .now_ms = 1500, .until_ms = 2500, .events = 4};
	KIT_OK(k->ops->retention_turn(k->s, &a, err));
	KIT_FAILS(SL_ELOCKED, k->ops->retention_turn(k->s, &b, err));
	a.now_ms = 1600;
	KIT_OK(k->ops->retention_turn(k->s, &a, err)); /* kept */
	b.now_ms = 2001;
	KIT_OK(k->ops->retention_turn(k->s, &b, err)); /* a has died */
	b.now_ms = 2002;
	b.until_ms = 0;
	KIT_OK(k->ops->retention_turn(k->s, &b, err));
	a.now_ms = 2003;
	KIT_OK(k->ops->retention_turn(k->s, &a, err));
	struct sl_retention_row row = read_row(k, 0);
	assert_string_equal(row.holder, "a");
	assert_int_equal(row.events, 3 * 3 + 2 * 4);
}

static void limits_that_are_not_given_stay_as_they_are(void **state)
{
	struct kit *k = *state;
	if (!has_retention(k))
		return;
	struct sl_retention_row row = read_row(k, 0);
	assert_int_equal(row.completed_ms, -1);
	row = (struct sl_retention_row){.completed_ms = 5, .failed_ms = -1, .events_ms = 0, .lines_ms = -1};
	KIT_OK(k->ops->retention_limits(k->s, &row, err));
	row = (struct sl_retention_row){.completed_ms = -1, .failed_ms = 6, .events_ms = -1, .lines_ms = -1};
	KIT_OK(k->ops->retention_limits(k->s, &row, err));
	row = read_row(k, 0);
	assert_int_equal(row.completed_ms, 5);
	assert_int_equal(row.failed_ms, 6);
	assert_int_equal(row.events_ms, 0);
	assert_int_equal(row.lines_ms, -1);
}

static void the_least_checkpoint_of_the_exports_that_are_alive_counts(void **state)
{
	struct kit *k = *state;
	if (!has_retention(k))
		return;
	assert_false(read_row(k, 0).exports);
	KIT_OK(k->ops->retention_export(k->s, "one", 7, 1000, err));
	KIT_OK(k->ops->retention_export(k->s, "two", 3, 2000, err));
	KIT_OK(k->ops->retention_export(k->s, "one", 8, 2000, err));
	struct sl_retention_row row = read_row(k, 0);
	assert_true(row.exports);
	assert_int_equal(row.exported, 3);
	KIT_OK(k->ops->retention_export(k->s, "two", 9, 1500, err));
	assert_int_equal(read_row(k, 0).exported, 8);
	assert_int_equal(read_row(k, 1600).exported, 8);             /* two was not confirmed since */
	KIT_OK(k->ops->retention_export(k->s, "one", 5, 2000, err)); /* a dataset that was made anew */
	assert_int_equal(read_row(k, 0).exported, 5);
	assert_false(read_row(k, 2001).exports);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(completed_chains_and_those_that_failed_have_limits_of_their_own),
	cmocka_unit_test(what_ended_later_than_the_limit_stays),
	cmocka_unit_test(a_chain_that_runs_on_stays_whole_and_then_goes_whole),
	cmocka_unit_test(a_chain_whose_output_a_job_may_ask_for_stays),
	cmocka_unit_test(a_chain_whose_output_a_retried_job_would_ask_for_stays),
	cmocka_unit_test(a_chain_with_events_that_were_not_exported_stays),
	cmocka_unit_test(a_chain_stays_while_the_window_of_its_key_lasts),
	cmocka_unit_test(a_step_reads_and_deletes_a_bounded_number_and_continues),
	cmocka_unit_test(a_chain_with_many_events_loses_them_first),
	cmocka_unit_test(old_events_and_old_lines_have_limits_of_their_own),
	cmocka_unit_test(what_is_kept_longer_hides_nothing_that_came_after_it),
	cmocka_unit_test(late_events_whose_job_was_gone_go_with_the_events_of_jobs),
	cmocka_unit_test(events_that_were_not_exported_stay_and_offsets_stay_gapless),
	cmocka_unit_test(a_page_of_young_events_ends_a_pass_and_is_read_again),
	cmocka_unit_test(a_mark_outlives_its_events_until_it_is_followed_or_silent),
	cmocka_unit_test(the_turn_belongs_to_one_process_until_it_ends_or_is_given_back),
	cmocka_unit_test(limits_that_are_not_given_stay_as_they_are),
	cmocka_unit_test(the_least_checkpoint_of_the_exports_that_are_alive_counts),
};

CONTRACT_TESTS(contract_retention_tests, tests)
