/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker offers to run, and what becomes of a job that was handed to it; the test plays the store. */
#include "jobs/core_kit.h"

struct table {
	struct sl_env env;
	struct sl__core_type types[2];
	struct sl__core_cfg cfg;
	struct sl__core *core;
	struct sl__todo lane, keeper, offered;
	struct sl_offer offer;
	struct sl_offer_type offer_types[2];
	int64_t now;
};

static int set_up(void **state)
{
	static struct table t;
	t = (struct table){.now = 1000 * MS};
	assert_int_equal(sl__env_init(&t.env, NULL, NULL), 0);
	for (int i = 0; i < 2; i++)
		t.types[i] = (struct sl__core_type){.name = i == 0 ? "a" : "b",
						    .retry = sl_retry_preset(SL_RETRY_JOBS),
						    .lease_ms = i == 0 ? 60000 : 5000,
						    .renew_ms = i == 0 ? 30000 : 2500,
						    .timeout_ms = SL_UNLIMITED,
						    .slots = 2};
	t.cfg = (struct sl__core_cfg){.env = &t.env,
				      .worker = "w",
				      .types = t.types,
				      .n_types = 2,
				      .slots = 2,
				      .claim_batch = 100,
				      .lanes = 1,
				      .poll_ms = 60000};
	*state = &t;
	return 0;
}

static void begin(struct table *t)
{
	assert_int_equal(sl__core_new(&t->core, &t->cfg, t->now, NULL), 0);
	assert_int_equal(sl__todo_init(&t->lane, t->core, 0, NULL), 0);
	assert_int_equal(sl__todo_init(&t->offered, t->core, 0, NULL), 0);
	assert_int_equal(sl__todo_init(&t->keeper, t->core, SL__KEEPER, NULL), 0);
}

static int tear_down(void **state)
{
	struct table *t = *state;
	sl__todo_fini(&t->lane, t->core);
	sl__todo_fini(&t->offered, t->core);
	sl__todo_fini(&t->keeper, t->core);
	sl__core_free(t->core);
	return 0;
}

/* The lane claims until it sleeps, and finds nothing. */
static void find_nothing(struct table *t)
{
	for (;;) {
		struct sl_claim_reply reply = {.now_ms = 1, .next_due_in_ms = -1, .next_expiry_in_ms = -1};
		sl__core_next(t->core, t->now, &t->lane);
		if (t->lane.kind != SL__TODO_EXCHANGE)
			break;
		sl__core_exchanged(t->core, &t->lane, &(struct sl__answer){0, NULL, NULL, &reply}, t->now);
	}
	assert_int_equal(t->lane.kind, SL__TODO_SLEEP);
}

static bool offer(struct table *t)
{
	return sl__core_may_offer(t->core, t->now) &&
	       sl__core_offer(t->core, t->now, &t->offered, &t->offer, t->offer_types);
}

static void hand(struct table *t, const char *type, uint64_t id)
{
	const struct sl_claimed_job job = {
		.id = id, .chain_id = id, .fence = 1, .attempt = 1, .type = type, .input = "7"};
	assert_int_equal(sl__core_claimed(t->core, &t->offered, &job), 0);
	sl__core_offer_accepted(t->core, &t->offered, &(struct sl__offer_accepted){0, t->now, 1}, t->now);
}

static void nothing_is_offered_before_the_queue_was_found_empty(void **state)
{
	struct table *t = *state;
	begin(t);
	assert_false(offer(t));
	find_nothing(t);
	assert_true(offer(t));
	assert_int_equal(t->offer.n_types, 2);
	assert_string_equal(t->offer.types[0].type, "a");
	assert_int_equal(t->offer.types[0].lease_ms, 60000);
	assert_int_equal(t->offer.types[1].lease_ms, 5000);
	sl__core_withdrawn(t->core, &t->offered);
}

static void a_type_with_work_in_the_queue_is_not_offered(void **state)
{
	struct table *t = *state;
	begin(t);
	find_nothing(t);
	sl__core_note(t->core, &(struct sl_note){.kind = SL_NOTE_JOB_SCHEDULED, .type = "a", .id = 1}, t->now);
	assert_true(offer(t));
	assert_int_equal(t->offer.n_types, 1);
	assert_string_equal(t->offer.types[0].type, "b");
	sl__core_withdrawn(t->core, &t->offered);
}

static void a_job_that_is_handed_over_runs_under_the_lease_of_its_type(void **state)
{
	struct table *t = *state;
	begin(t);
	find_nothing(t);
	assert_true(offer(t));
	hand(t, "b", 42);
	struct sl__run *run = sl__core_take(t->core, t->now);
	assert_non_null(run);
	assert_int_equal(run->id, 42);
	assert_int_equal(run->attempt, 1);
	assert_string_equal(run->input, "7");
	core_keep(t->core, t->now, &t->keeper);
	while (t->keeper.kind == SL__TODO_CRON || t->keeper.kind == SL__TODO_REAP) {
		if (t->keeper.kind == SL__TODO_REAP)
			sl__core_reaped(t->core, 0, &(struct sl_reaped){.n = 0, .more = 0, .next_expiry_in_ms = -1},
					t->now);
		else
			sl__core_cron_done(t->core, 0, -1, t->now);
		core_keep(t->core, t->now, &t->keeper);
	}
	t->now += 2500 * MS;
	core_keep(t->core, t->now, &t->keeper);
	assert_int_equal(t->keeper.kind, SL__TODO_RENEW);
	assert_int_equal(t->keeper.renewals[0].lease_ms, 5000);
	assert_memory_equal(&t->keeper.renewals[0].claim, &t->offer.claim, sizeof(t->offer.claim));
	sl__core_renewed(t->core, &t->keeper, 0, t->now);
	run->declared = 1;
	sl__core_end(t->core, run, SL__END_COMPLETE, t->now);
	assert_true(sl__core_ready(t->core, 0, t->now));
	sl__core_next(t->core, t->now, &t->lane);
	assert_int_equal(t->lane.n_runs, 1);
	assert_int_equal(t->lane.runs[0]->last, 1);
}

static void nothing_is_offered_while_all_slots_are_taken(void **state)
{
	struct table *t = *state;
	begin(t);
	find_nothing(t);
	assert_true(offer(t));
	hand(t, "a", 1);
	assert_non_null(sl__core_take(t->core, t->now));
	assert_true(offer(t));
	hand(t, "a", 2);
	assert_false(offer(t));
	assert_non_null(sl__core_take(t->core, t->now));
	assert_false(offer(t));
}

static void a_claim_with_an_unknown_outcome_is_asked_for_again(void **state)
{
	struct table *t = *state;
	begin(t);
	find_nothing(t);
	assert_true(offer(t));
	sl__core_offer_accepted(t->core, &t->offered, &(struct sl__offer_accepted){SL_EUNAVAIL, t->now, 0}, t->now);
	assert_null(t->offered.claim);
	assert_int_equal(sl__core_stats(t->core)->open, 0);
	assert_true(sl__core_ready(t->core, 0, t->now));
	sl__core_next(t->core, t->now, &t->lane);
	assert_int_equal(t->lane.kind, SL__TODO_EXCHANGE);
	assert_int_equal(t->lane.request.again, 1);
	assert_memory_equal(&t->lane.request.claim, &t->offer.claim, sizeof(t->offer.claim));
	const struct sl_claimed_job job = {.id = 9, .chain_id = 9, .fence = 1, .attempt = 1, .type = "b", .input = "7"};
	assert_int_equal(sl__core_claimed(t->core, &t->lane, &job), 0);
	struct sl_claim_reply reply = {.n = 1, .now_ms = 1, .next_expiry_in_ms = -1};
	sl__core_exchanged(t->core, &t->lane, &(struct sl__answer){0, NULL, NULL, &reply}, t->now);
	assert_int_equal(sl__core_take(t->core, t->now)->id, 9);
}

static void a_job_that_was_queued_after_all_leaves_nothing_behind(void **state)
{
	struct table *t = *state;
	begin(t);
	find_nothing(t);
	assert_true(offer(t));
	sl__core_offer_accepted(t->core, &t->offered, &(struct sl__offer_accepted){0, t->now, 1}, t->now);
	assert_int_equal(sl__core_stats(t->core)->open, 0);
	assert_null(sl__core_take(t->core, t->now));
	core_keep(t->core, t->now, &t->keeper);
	assert_int_not_equal(t->keeper.kind, SL__TODO_RENEW);
	assert_true(offer(t));
	sl__core_withdrawn(t->core, &t->offered);
}

static void a_job_that_is_handed_over_while_stopping_goes_back_at_once(void **state)
{
	struct table *t = *state;
	begin(t);
	find_nothing(t);
	assert_true(offer(t));
	sl__core_stop(t->core, t->now);
	assert_false(sl__core_may_offer(t->core, t->now));
	hand(t, "a", 1);
	assert_null(sl__core_take(t->core, t->now));
	sl__core_next(t->core, t->now, &t->lane);
	assert_int_equal(t->lane.kind, SL__TODO_EXCHANGE);
	assert_int_equal(t->lane.runs[0]->kind, SL_SETTLE_RELEASE);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(nothing_is_offered_before_the_queue_was_found_empty),
		TEST(a_type_with_work_in_the_queue_is_not_offered),
		TEST(a_job_that_is_handed_over_runs_under_the_lease_of_its_type),
		TEST(nothing_is_offered_while_all_slots_are_taken),
		TEST(a_claim_with_an_unknown_outcome_is_asked_for_again),
		TEST(a_job_that_was_queued_after_all_leaves_nothing_behind),
		TEST(a_job_that_is_handed_over_while_stopping_goes_back_at_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
