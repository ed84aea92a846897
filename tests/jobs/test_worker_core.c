/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's decisions, one at a time: no threads, no store; the test plays both. */
#include "jobs/core_kit.h"

struct table {
	struct sl_env env;
	struct sl__core_type types[3];
	struct sl__core_cfg cfg;
	struct sl__core *core;
	struct sl__todo lane[2], keeper;
	int64_t now;
	uint64_t next_id;
	int aborts;
	enum sl_abort_reason last_abort;
	int released; /* runs whose end was let go of */
};

static void on_release(struct sl__run *run, void *ctx)
{
	(void)run;
	((struct table *)ctx)->released++;
}

static int set_up(void **state)
{
	static struct table t;
	t = (struct table){.now = 1000 * MS};
	assert_int_equal(sl__env_init(&t.env, NULL, NULL), 0);
	const char *const names[] = {"a", "b", "c"};
	for (int i = 0; i < 3; i++)
		t.types[i] = (struct sl__core_type){.name = names[i],
						    .retry = sl_retry_preset(SL_RETRY_JOBS),
						    .lease_ms = 60000,
						    .renew_ms = 30000,
						    .timeout_ms = SL_UNLIMITED,
						    .slots = 4};
	t.cfg = (struct sl__core_cfg){.env = &t.env,
				      .worker = "w",
				      .types = t.types,
				      .n_types = 1,
				      .slots = 4,
				      .claim_batch = 100,
				      .lanes = 1,
				      .poll_ms = 60000,
				      .release = on_release,
				      .release_ctx = &t};
	*state = &t;
	return 0;
}

static void begin(struct table *t)
{
	assert_int_equal(sl__core_new(&t->core, &t->cfg, t->now, NULL), 0);
	for (int i = 0; i < t->cfg.lanes; i++)
		assert_int_equal(sl__todo_init(&t->lane[i], t->core, i, NULL), 0);
	assert_int_equal(sl__todo_init(&t->keeper, t->core, SL__KEEPER, NULL), 0);
}

static int tear_down(void **state)
{
	struct table *t = *state;
	if (t->core != NULL) {
		for (int i = 0; i < t->cfg.lanes; i++)
			sl__todo_fini(&t->lane[i], t->core);
		sl__todo_fini(&t->keeper, t->core);
	}
	sl__core_free(t->core);
	return 0;
}

static enum sl__todo_kind next(struct table *t, int lane)
{
	sl__core_next(t->core, t->now, &t->lane[lane]);
	return t->lane[lane].kind;
}

/* Answer the exchange: everything settled, n jobs of the type claimed. */
static void answer_type(struct table *t, int lane, uint32_t n, const char *type, bool more)
{
	struct sl_settle_result results[SL__SETTLE_MAX] = {{0}};
	struct sl_claim_reply reply = {.n = n, .now_ms = 1, .next_due_in_ms = more ? 0 : -1, .next_expiry_in_ms = -1};
	for (uint32_t i = 0; i < n; i++) {
		const struct sl_claimed_job job = {.id = ++t->next_id,
						   .chain_id = t->next_id,
						   .fence = 1,
						   .attempt = 1,
						   .type = type,
						   .input = "1"};
		assert_int_equal(sl__core_claimed(t->core, &t->lane[lane], &job), 0);
	}
	sl__core_exchanged(t->core, &t->lane[lane], &(struct sl__answer){0, NULL, results, &reply}, t->now);
}

static void answer(struct table *t, int lane, uint32_t n)
{
	answer_type(t, lane, n, "a", 0);
}

static void refuse(struct table *t, int lane, int code)
{
	struct sl_err err;
	(void)sl_err_set(&err, code, "no");
	sl__core_exchanged(t->core, &t->lane[lane], &(struct sl__answer){code, &err, NULL, NULL}, t->now);
}

static void on_abort(struct sl__run *run, enum sl_abort_reason reason, void *ctx)
{
	struct table *t = ctx;
	(void)run;
	t->aborts++;
	t->last_abort = reason;
}

static struct sl__run *take(struct table *t)
{
	return sl__core_take(t->core, t->now);
}

static void end(struct table *t, struct sl__run *run, enum sl__ending ending)
{
	run->declared = 1;
	sl__core_end(t->core, run, ending, t->now);
}

static void hint(struct table *t)
{
	sl__core_note(t->core, &(struct sl_note){.kind = SL_NOTE_JOB_SCHEDULED, .type = "a", .id = 1}, t->now);
}

/* Claim one job and run it for so long; leaves the lane about to settle it and to claim more. */
static void learn_speed(struct table *t, int64_t ns)
{
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 1);
	struct sl__run *run = take(t);
	t->now += ns;
	end(t, run, SL__END_COMPLETE);
	hint(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_non_null(t->lane[0].claim);
}

static struct sl__core_stats stats(struct table *t)
{
	struct sl__core_stats s;
	s = *sl__core_stats(t->core);
	return s;
}

/* ---- how many ---- */

static void the_first_claim_is_for_free_slots_only(void **state)
{
	struct table *t = *state;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_int_equal(t->lane[0].request.limit, 4);
	assert_int_equal(t->lane[0].request.lease_ms, 60000);
	answer(t, 0, 4);
	assert_int_equal(next(t, 0), SL__TODO_SLEEP);
}

static void fast_handlers_are_claimed_for_ahead(void **state)
{
	struct table *t = *state;
	begin(t);
	learn_speed(t, MS / 100);
	assert_int_equal(t->lane[0].request.limit, 100);
}

static void what_starts_within_50_ms_is_claimed_and_no_more(void **state)
{
	struct table *t = *state;
	begin(t);
	learn_speed(t, 10 * MS);
	assert_int_equal(t->lane[0].request.limit, 4 + 4 * 5);
}

static void slow_handlers_are_claimed_for_only_when_a_slot_is_free(void **state)
{
	struct table *t = *state;
	begin(t);
	learn_speed(t, 500 * MS);
	assert_int_equal(t->lane[0].request.limit, 4);
	answer(t, 0, 4);
	for (int i = 0; i < 4; i++)
		assert_non_null(take(t));
	assert_null(take(t));
	assert_int_equal(next(t, 0), SL__TODO_SLEEP);
}

static void a_batch_of_one_never_claims_ahead(void **state)
{
	struct table *t = *state;
	t->cfg.claim_batch = 1;
	begin(t);
	learn_speed(t, 1000);
	assert_int_equal(t->lane[0].request.limit, 1);
}

static void nothing_is_claimed_ahead_of_slots_that_are_stuck(void **state)
{
	struct table *t = *state;
	t->cfg.slots = t->types[0].slots = 1;
	begin(t);
	learn_speed(t, 1000);
	answer(t, 0, 40); /* of the hundred that it asked for: there is room for more */
	hint(t);
	assert_non_null(take(t));
	t->now += SL__AHEAD_NS + 1;
	assert_int_equal(next(t, 0), SL__TODO_SLEEP);
}

static void a_type_has_no_more_slots_than_it_was_given_however_many_wait(void **state)
{
	struct table *t = *state;
	t->types[0].slots = 2;
	begin(t);
	learn_speed(t, 1000);
	answer(t, 0, 10);
	struct sl__run *first = take(t);
	assert_non_null(first);
	assert_non_null(take(t));
	assert_null(take(t));
	assert_false(sl__core_waiting(t->core));
	end(t, first, SL__END_COMPLETE);
	assert_true(sl__core_waiting(t->core));
	assert_non_null(take(t));
	assert_null(take(t));
}

/* ---- when ---- */

static void a_lone_run_is_settled_at_once(void **state)
{
	struct table *t = *state;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 1);
	end(t, take(t), SL__END_COMPLETE);
	assert_true(sl__core_ready(t->core, 0, t->now));
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_int_equal(t->lane[0].n_runs, 1);
}

static void short_jobs_of_a_batch_are_settled_together(void **state)
{
	struct table *t = *state;
	begin(t);
	learn_speed(t, 1000);
	answer(t, 0, 50);
	for (int i = 0; i < 49; i++) {
		end(t, take(t), SL__END_COMPLETE);
		assert_int_equal(next(t, 0), SL__TODO_SLEEP);
		assert_true(t->lane[0].wake_ns <= t->now + SL__LINGER_NS);
		assert_false(sl__core_ready(t->core, 0, t->now));
	}
	end(t, take(t), SL__END_COMPLETE);
	assert_true(sl__core_ready(t->core, 0, t->now));
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_int_equal(t->lane[0].n_runs, 50);
}

static void a_settle_waits_a_millisecond_for_its_mates_and_not_longer(void **state)
{
	struct table *t = *state;
	begin(t);
	learn_speed(t, 1000);
	answer(t, 0, 50);
	end(t, take(t), SL__END_COMPLETE);
	assert_int_equal(next(t, 0), SL__TODO_SLEEP);
	t->now += SL__LINGER_NS;
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_int_equal(t->lane[0].n_runs, 1);
}

static void while_others_wait_for_a_slot_those_that_end_within_five_milliseconds_are_settled_together(void **state)
{
	struct table *t = *state;
	begin(t);
	learn_speed(t, 2 * MS);
	answer(t, 0, 50);
	end(t, take(t), SL__END_COMPLETE);
	int64_t ended = t->now;
	assert_int_equal(next(t, 0), SL__TODO_SLEEP);
	assert_true(t->lane[0].wake_ns <= ended + SL__BUSY_LINGER_NS);
	t->now += 2 * MS;
	end(t, take(t), SL__END_COMPLETE);
	assert_false(sl__core_ready(t->core, 0, t->now));
	t->now = ended + SL__BUSY_LINGER_NS;
	assert_true(sl__core_ready(t->core, 0, t->now));
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_int_equal(t->lane[0].n_runs, 2);
}

static void handlers_that_take_longer_than_that_are_settled_at_once(void **state)
{
	struct table *t = *state;
	begin(t);
	learn_speed(t, SL__BUSY_LINGER_NS + MS);
	answer(t, 0, 20);
	end(t, take(t), SL__END_COMPLETE);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_int_equal(t->lane[0].n_runs, 1);
}

static void runs_that_wait_a_second_behind_slow_handlers_are_given_back(void **state)
{
	struct table *t = *state;
	t->cfg.slots = t->types[0].slots = 1;
	begin(t);
	learn_speed(t, 1000);
	answer(t, 0, 10);
	assert_non_null(take(t));
	t->now += SL__STUCK_NS;
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_int_equal(t->lane[0].n_runs, 9);
	assert_null(t->lane[0].claim);
	struct sl_settle settle;
	sl__core_settle(t->core, t->lane[0].runs[0], &settle);
	assert_int_equal(settle.kind, SL_SETTLE_RELEASE);
	assert_int_equal(settle.started_ms, 0);
}

/* ---- dry ---- */

static void an_empty_answer_makes_the_worker_sleep_until_its_poll(void **state)
{
	struct table *t = *state;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 0);
	assert_int_equal(next(t, 0), SL__TODO_SLEEP);
	assert_true(t->lane[0].wake_ns == t->now + 60000 * MS);
	t->now = t->lane[0].wake_ns;
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_int_equal(stats(t).polls, 2);
}

static void a_due_job_is_looked_for_in_time(void **state)
{
	struct table *t = *state;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	const struct sl_claim_reply reply = {.next_due_in_ms = 500, .next_expiry_in_ms = -1};
	sl__core_exchanged(t->core, &t->lane[0], &(struct sl__answer){0, NULL, NULL, &reply}, t->now);
	assert_int_equal(next(t, 0), SL__TODO_SLEEP);
	t->now += 502 * MS;
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
}

static void a_hint_that_comes_while_a_claim_is_under_way_counts(void **state)
{
	struct table *t = *state;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	sl__core_note(t->core, &(struct sl_note){.kind = SL_NOTE_JOB_SCHEDULED, .type = "a", .id = 9}, t->now);
	answer(t, 0, 0);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 0);
	assert_int_equal(next(t, 0), SL__TODO_SLEEP);
}

static void a_claim_says_when_nothing_is_known_to_be_due(void **state)
{
	struct table *t = *state;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_int_equal(t->lane[0].request.hinted, 0); /* the first look */
	answer(t, 0, 0);
	hint(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_int_equal(t->lane[0].request.hinted, 1);
	answer(t, 0, 1);
	end(t, take(t), SL__END_COMPLETE);
	hint(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_int_equal(t->lane[0].n_runs, 1);
	assert_int_equal(t->lane[0].request.hinted, 0); /* it settles, too */
	const struct sl_settle_result settled = {.lost = SL_LOST_NOT};
	const struct sl_claim_reply reply = {.next_due_in_ms = 500, .next_expiry_in_ms = -1};
	sl__core_exchanged(t->core, &t->lane[0], &(struct sl__answer){0, NULL, &settled, &reply}, t->now);
	assert_int_equal(next(t, 0), SL__TODO_SLEEP);
	t->now += 502 * MS;
	hint(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_int_equal(t->lane[0].request.hinted, 0); /* it was notified, and something is due */
}

static void hints_for_other_types_are_ignored(void **state)
{
	struct table *t = *state;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 0);
	sl__core_note(t->core, &(struct sl_note){.kind = SL_NOTE_JOB_SCHEDULED, .type = "z", .id = 9}, t->now);
	assert_false(sl__core_ready(t->core, 0, t->now));
	sl__core_note(t->core, &(struct sl_note){.kind = 0}, t->now);
	assert_true(sl__core_ready(t->core, 0, t->now));
}

static void a_flagged_job_that_came_alone_does_not_mean_that_there_is_no_more(void **state)
{
	struct table *t = *state;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer_type(t, 0, 1, "a", 1);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_int_equal(t->lane[0].request.limit, 3);
}

static void only_the_type_that_gave_too_few_is_dry(void **state)
{
	struct table *t = *state;
	t->cfg.n_types = 2;
	t->types[0].slots = 1;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_int_equal(t->lane[0].request.n_types, 2);
	assert_int_equal(t->lane[0].request.types[0].limit, 1);
	answer(t, 0, 1); /* of four: all that a may have, none of b */
	assert_int_equal(next(t, 0), SL__TODO_SLEEP);
	end(t, take(t), SL__END_COMPLETE);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_non_null(t->lane[0].claim);
	assert_int_equal(t->lane[0].request.n_types, 1);
	assert_string_equal(t->lane[0].request.types[0].type, "a");
}

static void a_note_about_what_was_just_claimed_goes_no_further(void **state)
{
	struct table *t = *state;
	const struct sl_note note = {.kind = SL_NOTE_JOB_SCHEDULED, .type = "a", .id = 1};
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 1);
	assert_true(sl__core_satisfied(t->core, &t->lane[0], &note));
	/* The same type is still dry when a settle goes without a claim: that proves nothing about the note. */
	end(t, take(t), SL__END_COMPLETE);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_null(t->lane[0].claim);
	answer(t, 0, 0);
	assert_false(sl__core_satisfied(t->core, &t->lane[0], &note));
}

static void a_continued_job_is_claimed_in_the_exchange_that_makes_it(void **state)
{
	struct table *t = *state;
	const struct sl_new_job more = {.type = "a"};
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 1);
	struct sl__run *run = take(t);
	run->continued = &more;
	end(t, run, SL__END_CONTINUE);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_non_null(t->lane[0].claim);
}

static void the_second_lane_waits_for_the_answer_of_the_first(void **state)
{
	struct table *t = *state;
	t->cfg.lanes = 2;
	t->cfg.claim_batch = 2;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_int_equal(t->lane[0].request.limit, 2);
	assert_int_equal(next(t, 1), SL__TODO_SLEEP);
	answer(t, 0, 2);
	assert_true(sl__core_ready(t->core, 1, t->now));
	assert_int_equal(next(t, 1), SL__TODO_EXCHANGE);
	assert_int_equal(t->lane[1].request.limit, 2);
	answer(t, 1, 0);
}

static void types_with_another_lease_are_claimed_apart_and_in_turns(void **state)
{
	struct table *t = *state;
	t->cfg.n_types = 2;
	t->types[1].lease_ms = 5000;
	t->types[1].renew_ms = 1000;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_int_equal(t->lane[0].request.n_types, 1);
	assert_string_equal(t->lane[0].request.types[0].type, "a");
	answer(t, 0, 0);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_string_equal(t->lane[0].request.types[0].type, "b");
	assert_int_equal(t->lane[0].request.lease_ms, 5000);
	answer(t, 0, 0);
	assert_int_equal(next(t, 0), SL__TODO_SLEEP);
}

/* ---- leases ---- */

static void a_run_is_not_started_once_its_lease_is_in_doubt(void **state)
{
	struct table *t = *state;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	t->now += 59000 * MS; /* the answer took that long: the lease counts from before it was asked for */
	answer(t, 0, 2);
	assert_null(take(t));
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_int_equal(t->lane[0].n_runs, 2);
	assert_int_equal(t->lane[0].runs[0]->kind, SL_SETTLE_RELEASE);
}

static void a_lease_is_given_up_only_with_its_last_run(void **state)
{
	struct table *t = *state;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 3);
	struct sl__run *run[3] = {take(t), take(t), take(t)};
	end(t, run[0], SL__END_COMPLETE);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	struct sl_settle settle;
	sl__core_settle(t->core, t->lane[0].runs[0], &settle);
	assert_int_equal(settle.last_of_claim, 0);
	/* The first is not known to be settled yet: neither of the others may take the lease with it. */
	end(t, run[1], SL__END_COMPLETE);
	sl__core_settle(t->core, run[2], &settle);
	assert_int_equal(settle.last_of_claim, 0);
	answer(t, 0, 0);
	end(t, run[2], SL__END_COMPLETE);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_int_equal(t->lane[0].n_runs, 2);
	sl__core_settle(t->core, t->lane[0].runs[0], &settle);
	assert_int_equal(settle.last_of_claim, 0);
	sl__core_settle(t->core, t->lane[0].runs[1], &settle);
	assert_int_equal(settle.last_of_claim, 1);
	answer(t, 0, 0);
	assert_int_equal(sl__core_stats(t->core)->open, 0);
	assert_int_equal(t->released, 3);
}

/* Until the keeper wants to renew; skips its other duties. */
static void keeper_renews(struct table *t)
{
	for (int i = 0; i < 10; i++) {
		core_keep(t->core, t->now, &t->keeper);
		if (t->keeper.kind == SL__TODO_RENEW)
			return;
		if (t->keeper.kind == SL__TODO_REAP)
			sl__core_reaped(t->core, 0, &(struct sl_reaped){.n = 0, .more = 0, .next_expiry_in_ms = -1},
					t->now);
		else if (t->keeper.kind == SL__TODO_CRON)
			sl__core_cron_done(t->core, 0, -1, t->now);
		else
			break;
	}
	fail_msg("the keeper does not renew");
}

static int keeper_sleeps(struct table *t)
{
	for (int i = 0; i < 10; i++) {
		core_keep(t->core, t->now, &t->keeper);
		if (t->keeper.kind == SL__TODO_REAP)
			sl__core_reaped(t->core, 0, &(struct sl_reaped){.n = 0, .more = 0, .next_expiry_in_ms = -1},
					t->now);
		else if (t->keeper.kind == SL__TODO_CRON)
			sl__core_cron_done(t->core, 0, -1, t->now);
		else
			return t->keeper.kind == SL__TODO_SLEEP;
	}
	return 0;
}

/* Does the keeper check the schedules immediately? Does its other duties first. */
static bool keeper_fires(struct table *t)
{
	for (int i = 0; i < 10; i++) {
		core_keep(t->core, t->now, &t->keeper);
		if (t->keeper.kind != SL__TODO_REAP)
			return t->keeper.kind == SL__TODO_CRON;
		sl__core_reaped(t->core, 0, &(struct sl_reaped){.n = 0, .more = 0, .next_expiry_in_ms = -1}, t->now);
	}
	return false;
}

static void a_tick_fires_in_time_after_our_clock_stalled(void **state)
{
	struct table *t = *state;
	const int64_t store = INT64_C(1700000000000);
	begin(t);
	sl__core_store_clock(t->core, store, t->now);
	assert_true(keeper_fires(t));
	sl__core_cron_done(t->core, 0, store + 50000, t->now);
	t->now += 10000 * MS;
	assert_int_equal(sl__core_store_ms(t->core, t->now), store + 10000);
	sl__core_store_clock(t->core, store + 23000, t->now); /* 13 s that we know nothing of */
	t->now += 26999 * MS;
	assert_false(keeper_fires(t));
	t->now += 1 * MS;
	assert_true(keeper_fires(t));
	/* The clock was read again during the turn: its tick is counted from there. */
	sl__core_store_clock(t->core, store + 58000, t->now);
	sl__core_cron_done(t->core, 0, store + 60000, t->now);
	t->now += 1999 * MS;
	assert_false(keeper_fires(t));
	t->now += 1 * MS;
	assert_true(keeper_fires(t));
}

static void all_leases_that_are_due_are_renewed_together(void **state)
{
	struct table *t = *state;
	t->cfg.claim_batch = 2;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 2);
	assert_true(take(t) != NULL && take(t) != NULL);
	t->now += 900 * MS;
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 2);
	assert_true(take(t) != NULL && take(t) != NULL);
	assert_true(keeper_sleeps(t));
	t->now += 29100 * MS; /* the second would be due a little later */
	keeper_renews(t);
	assert_int_equal(t->keeper.n_renewals, 2);
	assert_int_equal(t->keeper.renewals[0].n, 2);
	assert_int_equal(t->keeper.renewals[0].lease_ms, 60000);
	int64_t sent = t->now;
	t->now += 500 * MS; /* the lease counts from before that */
	sl__core_renewed(t->core, &t->keeper, 0, t->now);
	assert_true(keeper_sleeps(t));
	assert_int_equal(stats(t).renewals, 2);
	t->now = sent + 57000 * MS;
	sl__core_expire(t->core, t->now, false, on_abort, t);
	assert_int_equal(t->aborts, 0);
	assert_true(sl__core_next_abort_ns(t->core) == sent + 58000 * MS);
}

static void a_renewal_that_fails_is_repeated_soon_and_in_the_end_aborts(void **state)
{
	struct table *t = *state;
	begin(t);
	int64_t start = t->now;
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 1);
	assert_non_null(take(t));
	assert_true(sl__core_next_abort_ns(t->core) == start + 58000 * MS);
	t->now += 30000 * MS;
	int tries = 0;
	while (t->aborts == 0) {
		keeper_renews(t);
		tries++;
		sl__core_renewed(t->core, &t->keeper, SL_EUNAVAIL, t->now);
		t->now = SL_MIN(sl__core_wake_ns(t->core, SL__KEEPER, t->now), start + 58000 * MS);
		sl__core_expire(t->core, t->now, false, on_abort, t);
	}
	assert_true(tries >= 4);
	assert_int_equal(t->last_abort, SL_ABORT_ERROR);
	assert_true(t->now < start + 60000 * MS);
	assert_false(sl__core_stats(t->core)->connected);
}

/* The lease of another worker is renewed again and again; then that worker dies. */
static void a_standby_takes_back_what_expired_within_a_second_whatever_the_poll_interval(void **state)
{
	struct table *t = *state;
	t->cfg.poll_ms = 3600000;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 0);
	assert_true(keeper_sleeps(t));
	int64_t expires = t->now + 2000 * MS;
	for (int i = 0; i < 50; i++) {
		t->now = t->keeper.wake_ns;
		assert_true(t->now <= expires + 1000 * MS);
		core_keep(t->core, t->now, &t->keeper);
		if (t->keeper.kind == SL__TODO_CRON) {
			sl__core_cron_done(t->core, 0, -1, t->now);
			core_keep(t->core, t->now, &t->keeper);
		}
		if (t->keeper.kind == SL__TODO_SLEEP)
			continue;
		assert_int_equal(t->keeper.kind, SL__TODO_REAP);
		if (t->now >= expires - 1000 * MS && i < 40) /* it was renewed meanwhile */
			expires = t->now + 2000 * MS;
		int64_t left = (expires - t->now) / MS;
		struct sl_reaped reaped = {.n = left <= 0, .next_expiry_in_ms = left > 0 ? left : -1};
		sl__core_reaped(t->core, 0, &reaped, t->now);
		if (reaped.n > 0) {
			assert_true(t->now <= expires + 1000 * MS);
			assert_int_equal(next(t, 0), SL__TODO_EXCHANGE); /* and claims it */
			answer(t, 0, 1);
			return;
		}
		core_keep(t->core, t->now, &t->keeper);
	}
	fail_msg("it was not taken back");
}

static void a_hinted_claim_that_leaves_the_expiry_out_does_not_take_it_back(void **state)
{
	struct table *t = *state;
	t->cfg.poll_ms = 3600000;
	begin(t);
	assert_true(keeper_sleeps(t)); /* the reap at the start is done */
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	const struct sl_claim_reply reply = {.now_ms = 1, .next_due_in_ms = -1, .next_expiry_in_ms = 100};
	sl__core_exchanged(t->core, &t->lane[0], &(struct sl__answer){0, NULL, NULL, &reply}, t->now);
	int64_t expires = t->now + 101 * MS;
	hint(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_int_equal(t->lane[0].request.hinted, 1);
	answer(t, 0, 0); /* without an expiry */
	assert_true(keeper_sleeps(t));
	assert_true(t->keeper.wake_ns <= expires);
}

static void an_expired_lease_is_found_within_a_second_without_a_notification(void **state)
{
	struct table *t = *state;
	t->cfg.poll_ms = 3600000;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 0);
	for (int i = 0; i < 100; i++) {
		assert_true(keeper_sleeps(t));
		assert_true(t->keeper.wake_ns <= t->now + 1000 * MS);
		t->now = t->keeper.wake_ns;
	}
}

static void nothing_that_the_reaper_does_keeps_a_renewal_waiting(void **state)
{
	struct table *t = *state;
	struct sl__todo reaper;
	begin(t);
	assert_int_equal(sl__todo_init(&reaper, t->core, SL__REAPER, NULL), 0);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 1);
	assert_non_null(take(t));
	sl__core_next(t->core, t->now, &reaper);
	assert_int_equal(reaper.kind, SL__TODO_REAP); /* which is never answered */
	for (int i = 0; i < 5; i++) {
		t->now = sl__core_wake_ns(t->core, SL__KEEPER, t->now);
		t->keeper.who = SL__KEEPER;
		sl__core_next(t->core, t->now, &t->keeper);
		assert_int_equal(t->keeper.kind, SL__TODO_RENEW);
		sl__core_renewed(t->core, &t->keeper, 0, t->now);
		sl__core_expire(t->core, t->now, false, on_abort, t);
	}
	assert_int_equal(t->aborts, 0);
	sl__todo_fini(&reaper, t->core);
}

static void schedules_that_hang_or_fail_keep_no_job_from_being_reaped(void **state)
{
	struct table *t = *state;
	struct sl__todo reaper, scheduler;
	begin(t);
	assert_int_equal(sl__todo_init(&reaper, t->core, SL__REAPER, NULL), 0);
	assert_int_equal(sl__todo_init(&scheduler, t->core, SL__SCHEDULER, NULL), 0);
	sl__core_next(t->core, t->now, &scheduler);
	assert_int_equal(scheduler.kind, SL__TODO_CRON); /* under way until further notice */
	for (int i = 0; i < 20; i++) {
		if (i == 10)
			for (int n = 0; n < 20; n++)
				sl__core_cron_done(t->core, SL_EACCES, -1, t->now);
		sl__core_next(t->core, t->now, &reaper);
		assert_int_equal(reaper.kind, SL__TODO_REAP);
		sl__core_reaped(t->core, 0, &(struct sl_reaped){.next_expiry_in_ms = -1}, t->now);
		sl__core_next(t->core, t->now, &reaper);
		assert_int_equal(reaper.kind, SL__TODO_SLEEP);
		assert_true(reaper.wake_ns <= t->now + 1000 * MS);
		t->now = reaper.wake_ns;
	}
	sl__todo_fini(&reaper, t->core);
	sl__todo_fini(&scheduler, t->core);
}

static void no_lease_is_given_up_while_its_renewal_waits_for_the_store_s_lock(void **state)
{
	struct table *t = *state;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 1);
	assert_non_null(take(t));
	t->now += 30000 * MS;
	keeper_renews(t); /* and waits */
	for (int i = 0; i < 600; i++) {
		t->now += 1000 * MS;
		if (t->now >= sl__core_next_abort_ns(t->core))
			sl__core_expire(t->core, t->now, true, on_abort, t);
	}
	sl__core_expire(t->core, t->now, false, on_abort, t); /* the lock is there, the answer is on its way */
	assert_int_equal(t->aborts, 0);
	t->keeper.sent_ns = t->now;
	sl__core_renewed(t->core, &t->keeper, 0, t->now);
	sl__core_expire(t->core, t->now, false, on_abort, t);
	assert_int_equal(t->aborts, 0);
	t->now += 60000 * MS;
	sl__core_expire(t->core, t->now, false, on_abort, t);
	t->now += 2000 * MS;
	sl__core_expire(t->core, t->now, false, on_abort, t);
	assert_int_equal(t->aborts, 1);
}

static void a_note_of_a_loss_asks_the_store_and_does_not_abort_by_itself(void **state)
{
	struct table *t = *state;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 1);
	struct sl__run *run = take(t);
	assert_true(keeper_sleeps(t));
	const struct sl_note note = {.kind = SL_NOTE_OWNERSHIP_LOST, .id = run->id, .reason = SL_LOST_TAKEN};
	sl__core_note(t->core, &note, t->now);
	assert_true(sl__core_wake_ns(t->core, SL__KEEPER, t->now) <= t->now);
	keeper_renews(t);
	assert_int_equal(t->aborts, 0);
	sl__core_lost(t->core, &(struct sl__loss){run->id, run->fence + 1, SL_LOST_TAKEN}, on_abort,
		      t); /* of another claim */
	assert_int_equal(t->aborts, 0);
	sl__core_lost(t->core, &(struct sl__loss){run->id, run->fence, SL_LOST_CANCELLED}, on_abort, t);
	assert_int_equal(t->aborts, 1);
	assert_int_equal(t->last_abort, SL_ABORT_CANCELLED);
	sl__core_renewed(t->core, &t->keeper, 0, t->now);
	run->declared = 0;
	sl__core_end(t->core, run, SL__END_COMPLETE, t->now);
	assert_int_equal(sl__core_stats(t->core)->open, 0);
	assert_int_equal(stats(t).lost, 1);
}

static void a_run_that_said_how_it_ends_is_not_aborted_any_more(void **state)
{
	struct table *t = *state;
	t->types[0].timeout_ms = 1000;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 2);
	struct sl__run *said = take(t), *silent = take(t);
	said->declared = 1;
	t->now += 1000 * MS;
	sl__core_expire(t->core, t->now, false, on_abort, t);
	assert_int_equal(t->aborts, 1);
	assert_int_equal(silent->abort, SL_ABORT_TIMEOUT);
	sl__core_lost(t->core, &(struct sl__loss){said->id, said->fence, SL_LOST_COMPLETED}, on_abort, t);
	assert_int_equal(t->aborts, 1);
	sl__core_end(t->core, said, SL__END_COMPLETE, t->now);
	sl__core_end(t->core, silent, SL__END_COMPLETE, t->now);
	assert_int_equal(said->kind, SL_SETTLE_COMPLETE);
	assert_int_equal(silent->kind, SL_SETTLE_RETRY);
	assert_non_null(strstr(silent->error, "timeout"));
}

static void under_load_lost_leases_are_looked_for_too(void **state)
{
	struct table *t = *state;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 4);
	core_keep(t->core, t->now, &t->keeper);
	assert_int_equal(t->keeper.kind, SL__TODO_REAP);
	assert_int_equal(t->keeper.reap_limit, SL__REAP_LIMIT);
	sl__core_reaped(t->core, 0, &(struct sl_reaped){.n = SL__REAP_LIMIT, .more = 1, .next_expiry_in_ms = -1},
			t->now);
	core_keep(t->core, t->now, &t->keeper);
	assert_int_equal(t->keeper.kind, SL__TODO_REAP); /* there are more */
	sl__core_reaped(t->core, 0, &(struct sl_reaped){.n = 1, .more = 0, .next_expiry_in_ms = -1}, t->now);
	assert_true(keeper_sleeps(t));
	assert_true(t->keeper.wake_ns <= t->now + 30000 * MS);
	assert_int_equal(stats(t).reaped, SL__REAP_LIMIT + 1);
}

/* ---- a store that refuses ---- */

static void a_refused_batch_is_settled_one_by_one(void **state)
{
	struct table *t = *state;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 3);
	struct sl__run *run[3] = {take(t), take(t), take(t)};
	for (int i = 0; i < 3; i++)
		end(t, run[i], SL__END_COMPLETE);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_int_equal(t->lane[0].n_runs, 3);
	refuse(t, 0, SL_EDATA);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
		assert_int_equal(t->lane[0].n_runs, 1);
		assert_null(t->lane[0].claim);
		if (i != 1) {
			answer(t, 0, 0);
			continue;
		}
		assert_ptr_equal(t->lane[0].runs[0], run[1]);
		refuse(t, 0, SL_EDATA);
		assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
		assert_ptr_equal(t->lane[0].runs[0], run[1]);
		assert_int_equal(run[1]->kind, SL_SETTLE_RETRY);
		assert_string_equal(run[1]->error, "no");
		answer(t, 0, 0);
	}
	assert_int_equal(stats(t).completed, 2);
	assert_int_equal(stats(t).retried, 1);
	assert_int_equal(sl__core_stats(t->core)->open, 0);
}

static void what_is_refused_in_every_form_is_left_to_its_lease(void **state)
{
	struct table *t = *state;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 1);
	end(t, take(t), SL__END_COMPLETE);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
		refuse(t, 0, SL_EDATA);
	}
	assert_int_equal(sl__core_stats(t->core)->open, 0);
	assert_int_equal(sl__core_stats(t->core)->abandoned, 1);
}

static void an_unavailable_store_is_retried_with_growing_pauses(void **state)
{
	struct table *t = *state;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 1);
	end(t, take(t), SL__END_COMPLETE);
	int64_t longest = 0;
	for (int i = 0; i < 20; i++) {
		assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
		assert_int_equal(t->lane[0].n_runs, 1);
		refuse(t, 0, SL_EUNAVAIL);
		assert_int_equal(next(t, 0), SL__TODO_SLEEP);
		int64_t pause = t->lane[0].wake_ns - t->now;
		assert_true(pause > 0 && pause <= SL__BACKOFF_CAP_NS);
		longest = SL_MAX(longest, pause);
		t->now = t->lane[0].wake_ns;
	}
	assert_true(longest > SL__BACKOFF_CAP_NS / 3);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	const struct sl_settle_result lost = {.lost = SL_LOST_COMPLETED};
	const struct sl_claim_reply reply = {.next_due_in_ms = -1, .next_expiry_in_ms = -1};
	sl__core_exchanged(t->core, &t->lane[0], &(struct sl__answer){0, NULL, &lost, &reply}, t->now);
	assert_int_equal(stats(t).completed, 1); /* it was ours: the answer had been lost */
	assert_int_equal(stats(t).lost, 0);
}

static void a_claim_whose_answer_was_lost_is_sent_again(void **state)
{
	struct table *t = *state;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	const struct sl_claim_id id = t->lane[0].request.claim;
	for (int i = 0; i < 3; i++) {
		refuse(t, 0, SL_EUNAVAIL);
		assert_int_equal(next(t, 0), SL__TODO_SLEEP);
		t->now = t->lane[0].wake_ns;
		assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
		assert_int_equal(t->lane[0].request.again, 1);
		assert_memory_equal(&t->lane[0].request.claim, &id, sizeof(id));
	}
	answer(t, 0, 2);
	assert_non_null(take(t));
	assert_non_null(take(t));
	assert_int_equal(sl__core_stats(t->core)->open, 2);
}

/* There is no bound to how many are asked after. */
static void every_claim_whose_answer_was_lost_is_asked_after(void **state)
{
	struct table *t = *state;
	struct sl_claim_id ids[40];
	t->cfg.lanes = 1;
	begin(t);
	for (size_t i = 0; i < SL_COUNT(ids); i++) {
		struct sl__todo offered;
		assert_int_equal(sl__todo_init(&offered, t->core, 0, NULL), 0);
		struct sl_offer offer = {0};
		struct sl_offer_type types[8];
		if (i == 0) {
			assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
			answer(t, 0, 0);
		}
		assert_true(sl__core_offer(t->core, t->now, &offered, &offer, types));
		ids[i] = offer.claim;
		sl__core_offer_accepted(t->core, &offered, &(struct sl__offer_accepted){SL_EUNAVAIL, t->now, 0},
					t->now);
		sl__todo_fini(&offered, t->core);
	}
	for (size_t i = 0; i < SL_COUNT(ids); i++) {
		assert_true(sl__core_ready(t->core, 0, t->now));
		assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
		assert_int_equal(t->lane[0].request.again, 1);
		assert_memory_equal(&t->lane[0].request.claim, &ids[i], sizeof(ids[i]));
		answer(t, 0, 0);
	}
	assert_int_equal(next(t, 0), SL__TODO_SLEEP);
}

static void a_type_with_one_attempt_is_never_claimed_ahead(void **state)
{
	struct table *t = *state;
	for (int once = 0; once < 2; once++) {
		t->types[0].retry.max_attempts = once ? 1 : SL_UNLIMITED;
		begin(t);
		assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
		uint32_t slots = t->lane[0].request.limit;
		assert_int_equal(t->lane[0].request.free, slots);
		answer(t, 0, slots);
		for (uint32_t i = 0; i < slots; i++)
			end(t, take(t), SL__END_COMPLETE); /* in no time: more could be started soon */
		assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
		assert_int_equal(t->lane[0].request.free, slots);
		if (once)
			assert_int_equal(t->lane[0].request.limit, slots);
		else
			assert_true(t->lane[0].request.limit > slots);
		answer(t, 0, 0);
		(void)tear_down(state);
		t->core = NULL;
	}
}

static void what_is_left_for_a_free_slot_is_claimed_when_there_is_one(void **state)
{
	struct table *t = *state;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	uint32_t slots = t->lane[0].request.limit;
	answer(t, 0, slots);
	struct sl__run *first = take(t);
	end(t, first, SL__END_COMPLETE);
	for (uint32_t i = 1; i < slots; i++)
		assert_non_null(take(t));
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 1);
	struct sl__run *last = take(t);
	assert_non_null(last);
	/* All slots are busy, for a moment only: more is claimed ahead, and the store has only such as want a slot. */
	sl__core_note(t->core, &(struct sl_note){.kind = 0}, t->now);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_int_equal(t->lane[0].request.free, 0);
	struct sl_claim_reply reply = {.now_ms = 1, .next_due_in_ms = -1, .next_expiry_in_ms = -1, .alone = 1};
	sl__core_exchanged(t->core, &t->lane[0], &(struct sl__answer){0, NULL, NULL, &reply}, t->now);
	assert_int_equal(next(t, 0), SL__TODO_SLEEP);
	end(t, last, SL__END_COMPLETE);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_non_null(t->lane[0].claim);
	assert_int_equal(t->lane[0].request.free, 1);
	answer(t, 0, 1);
}

/* ---- the end of attempts ---- */

static void attempts_run_out(void **state)
{
	struct table *t = *state;
	t->types[0].retry.max_attempts = 1;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 1);
	struct sl__run *run = take(t);
	run->declared = 0;
	sl__core_end(t->core, run, SL__END_FAILED, t->now);
	assert_int_equal(run->kind, SL_SETTLE_FAIL);
}

static void what_may_start_once_is_not_given_back_after_it_has_started(void **state)
{
	struct table *t = *state;
	for (int once = 0; once < 2; once++) {
		t->types[0].retry.max_attempts = once ? 1 : 2;
		begin(t);
		assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
		answer(t, 0, 3);
		struct sl__run *lease = take(t), *stop = take(t);
		t->now += 59000 * MS; /* no renewal came through */
		sl__core_expire(t->core, t->now, false, on_abort, t);
		assert_int_equal(t->last_abort, SL_ABORT_ERROR);
		sl__core_end(t->core, lease, SL__END_FAILED, t->now);
		assert_int_equal(lease->kind, once ? SL_SETTLE_FAIL : SL_SETTLE_RELEASE);
		stop->abort = SL_ABORT_SHUTDOWN;
		sl__core_end(t->core, stop, SL__END_COMPLETE, t->now);
		assert_int_equal(stop->kind, once ? SL_SETTLE_FAIL : SL_SETTLE_RELEASE);
		if (once) {
			assert_non_null(strstr(lease->error, "lease"));
			assert_non_null(strstr(stop->error, "stopped"));
		}
		sl__core_stop(t->core, t->now); /* the third was never started, and goes back in any case */
		assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
		assert_int_equal(t->lane[0].n_runs, 3);
		assert_int_equal(t->lane[0].runs[2]->kind, SL_SETTLE_RELEASE);
		answer(t, 0, 0);
		(void)tear_down(state);
		t->core = NULL;
	}
}

static void a_retry_is_looked_for_when_its_backoff_is_over(void **state)
{
	struct table *t = *state;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 1);
	end(t, take(t), SL__END_FAILED);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 0);
	assert_int_equal(next(t, 0), SL__TODO_SLEEP);
	t->now += 10001 * MS;
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_non_null(t->lane[0].claim);
}

static void a_stop_gives_back_what_waits_and_ends_when_all_is_settled(void **state)
{
	struct table *t = *state;
	begin(t);
	learn_speed(t, 1000);
	answer(t, 0, 20);
	struct sl__run *run = take(t);
	sl__core_stop(t->core, t->now);
	assert_null(take(t));
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_null(t->lane[0].claim);
	assert_int_equal(t->lane[0].n_runs, 19);
	answer(t, 0, 0);
	assert_int_equal(next(t, 0), SL__TODO_SLEEP);
	assert_int_equal(sl__core_abort_all(t->core, on_abort, t), 1);
	run->declared = 0;
	sl__core_end(t->core, run, SL__END_COMPLETE, t->now);
	assert_int_equal(run->kind, SL_SETTLE_RELEASE);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 0);
	assert_int_equal(next(t, 0), SL__TODO_END);
	core_keep(t->core, t->now, &t->keeper);
	assert_int_equal(t->keeper.kind, SL__TODO_END);
	assert_int_equal(stats(t).released, 20);
}

static void a_claim_that_arrives_after_the_stop_is_given_back(void **state)
{
	struct table *t = *state;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	sl__core_stop(t->core, t->now);
	answer(t, 0, 4);
	assert_null(take(t));
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	assert_int_equal(t->lane[0].n_runs, 4);
}

static void giving_up_leaves_the_rest_to_their_leases(void **state)
{
	struct table *t = *state;
	begin(t);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	answer(t, 0, 2);
	sl__core_stop(t->core, t->now);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	refuse(t, 0, SL_EUNAVAIL);
	assert_int_equal(next(t, 0), SL__TODO_SLEEP);
	sl__core_give_up(t->core);
	assert_int_equal(next(t, 0), SL__TODO_EXCHANGE);
	refuse(t, 0, SL_EUNAVAIL);
	assert_int_equal(next(t, 0), SL__TODO_END);
	assert_int_equal(sl__core_stats(t->core)->abandoned, 2);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(the_first_claim_is_for_free_slots_only),
		T(fast_handlers_are_claimed_for_ahead),
		T(what_starts_within_50_ms_is_claimed_and_no_more),
		T(slow_handlers_are_claimed_for_only_when_a_slot_is_free),
		T(a_batch_of_one_never_claims_ahead),
		T(nothing_is_claimed_ahead_of_slots_that_are_stuck),
		T(a_type_has_no_more_slots_than_it_was_given_however_many_wait),
		T(a_lone_run_is_settled_at_once),
		T(short_jobs_of_a_batch_are_settled_together),
		T(a_settle_waits_a_millisecond_for_its_mates_and_not_longer),
		T(while_others_wait_for_a_slot_those_that_end_within_five_milliseconds_are_settled_together),
		T(handlers_that_take_longer_than_that_are_settled_at_once),
		T(runs_that_wait_a_second_behind_slow_handlers_are_given_back),
		T(an_empty_answer_makes_the_worker_sleep_until_its_poll),
		T(a_due_job_is_looked_for_in_time),
		T(a_hint_that_comes_while_a_claim_is_under_way_counts),
		T(a_claim_says_when_nothing_is_known_to_be_due),
		T(hints_for_other_types_are_ignored),
		T(a_flagged_job_that_came_alone_does_not_mean_that_there_is_no_more),
		T(only_the_type_that_gave_too_few_is_dry),
		T(a_note_about_what_was_just_claimed_goes_no_further),
		T(a_continued_job_is_claimed_in_the_exchange_that_makes_it),
		T(the_second_lane_waits_for_the_answer_of_the_first),
		T(types_with_another_lease_are_claimed_apart_and_in_turns),
		T(a_run_is_not_started_once_its_lease_is_in_doubt),
		T(a_lease_is_given_up_only_with_its_last_run),
		T(a_tick_fires_in_time_after_our_clock_stalled),
		T(all_leases_that_are_due_are_renewed_together),
		T(a_renewal_that_fails_is_repeated_soon_and_in_the_end_aborts),
		T(a_standby_takes_back_what_expired_within_a_second_whatever_the_poll_interval),
		T(a_hinted_claim_that_leaves_the_expiry_out_does_not_take_it_back),
		T(an_expired_lease_is_found_within_a_second_without_a_notification),
		T(nothing_that_the_reaper_does_keeps_a_renewal_waiting),
		T(schedules_that_hang_or_fail_keep_no_job_from_being_reaped),
		T(no_lease_is_given_up_while_its_renewal_waits_for_the_store_s_lock),
		T(a_note_of_a_loss_asks_the_store_and_does_not_abort_by_itself),
		T(a_run_that_said_how_it_ends_is_not_aborted_any_more),
		T(under_load_lost_leases_are_looked_for_too),
		T(a_refused_batch_is_settled_one_by_one),
		T(what_is_refused_in_every_form_is_left_to_its_lease),
		T(an_unavailable_store_is_retried_with_growing_pauses),
		T(a_claim_whose_answer_was_lost_is_sent_again),
		T(every_claim_whose_answer_was_lost_is_asked_after),
		T(a_type_with_one_attempt_is_never_claimed_ahead),
		T(what_is_left_for_a_free_slot_is_claimed_when_there_is_one),
		T(attempts_run_out),
		T(what_may_start_once_is_not_given_back_after_it_has_started),
		T(a_retry_is_looked_for_when_its_backoff_is_over),
		T(a_stop_gives_back_what_waits_and_ends_when_all_is_settled),
		T(a_claim_that_arrives_after_the_stop_is_given_back),
		T(giving_up_leaves_the_rest_to_their_leases),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
