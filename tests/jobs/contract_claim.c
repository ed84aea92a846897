/* SPDX-License-Identifier: Apache-2.0 */
/* Starting, claiming, leases: who gets a job, in which order, for how long, and what it costs an attempt. */
#include "jobs/contract_kit.h"

/* ---- start ---- */

static void a_started_job_is_there_with_all_that_was_given(void **state)
{
	struct kit *k = *state;
	int64_t before = kit_now(k);
	uint64_t id = kit_start_job(
		k, &(struct sl_new_job){
			   .type = "t", .input = "{\"a\": [1,  2]}", .priority = -7, .traceparent = "00-abc-def-01"});
	struct kit_row row;
	kit_get(k, id, &row);
	assert_int_equal(row.job.id, id);
	assert_int_equal(row.job.chain_id, id);
	assert_int_equal(row.job.prev_id, 0);
	assert_int_equal(row.job.next_id, 0);
	assert_string_equal(row.type, "t");
	assert_int_equal(row.job.status, SL_JOB_PENDING);
	assert_int_equal(row.job.attempt, 0);
	assert_int_equal(row.job.priority, -7);
	assert_string_equal(row.input, "{\"a\": [1,  2]}"); /* byte for byte, also the blanks */
	assert_string_equal(row.traceparent, "00-abc-def-01");
	assert_null(row.job.output);
	assert_null(row.job.error);
	assert_null(row.job.progress);
	assert_null(row.job.key);
	assert_in_range(row.job.created_ms, before, kit_now(k));
	assert_int_equal(row.job.ended_ms, 0);
	assert_int_equal(row.job.leased_until_ms, 0);
	assert_int_equal(row.job.blockers_open, 0);
}

static void no_input_is_the_json_null(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start_job(k, &(struct sl_new_job){.type = "t"});
	struct kit_row row;
	kit_get(k, id, &row);
	assert_non_null(row.job.input);
	assert_string_equal(row.input, "null");
	struct kit_claim claim;
	assert_string_equal(kit_claim_one(k, "t", &claim).input, "null");
}

static void many_chains_start_in_one_call_and_get_ascending_ids(void **state)
{
	struct kit *k = *state;
	struct sl_new_chain chains[300];
	struct sl_started out[300];
	memset(out, 0, sizeof(out));
	for (size_t i = 0; i < 300; i++)
		chains[i] = (struct sl_new_chain){.job = {.type = i % 2 == 0 ? "even" : "odd", .input = "1"}};
	KIT_OK(k->ops->start(k->s, chains, 300, NULL, out, err));
	for (size_t i = 0; i < 300; i++) {
		assert_int_equal(out[i].deduplicated, 0);
		if (i > 0)
			assert_true(out[i].chain_id > out[i - 1].chain_id);
	}
	struct kit_row row;
	kit_get(k, out[299].chain_id, &row);
	assert_string_equal(row.type, "odd");
}

static void ids_are_never_given_again(void **state)
{
	struct kit *k = *state;
	uint64_t first = kit_start(k, "t");
	size_t n = 0;
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){&first, 1}, false, NULL, &n, err));
	assert_true(kit_start(k, "t") > first);
}

static void a_start_reports_the_type_and_each_job(void **state)
{
	struct kit *k = *state;
	struct sl_new_chain chains[2] = {{.job = {.type = "a"}}, {.job = {.type = "b", .delay_ms = KIT_LONG_MS}}};
	struct sl_started out[2];
	struct kit_heard heard;
	KIT_OK(k->ops->start(k->s, chains, 2, kit_hear(&heard), out, err));
	assert_true(kit_notes(&heard, SL_NOTE_JOB_SCHEDULED, "a", 0) >= 1);
	/* Also for the later one: a worker that sleeps must learn when to wake. */
	assert_true(kit_notes(&heard, SL_NOTE_JOB_SCHEDULED, "b", 0) >= 1);
	assert_int_equal(kit_notes(&heard, SL_NOTE_OWNERSHIP_LOST, NULL, 0), 0);
	assert_int_equal(kit_notes(&heard, SL_NOTE_CHAIN_ENDED, NULL, 0), 0);
	assert_int_equal(kit_changes(&heard, SL_CHANGE_CREATED, out[0].chain_id), 1);
	assert_int_equal(kit_changes(&heard, SL_CHANGE_CREATED, out[1].chain_id), 1);
	assert_int_equal(kit_changes(&heard, SL_CHANGE_SCHEDULED, out[0].chain_id), 0);
	assert_int_equal(kit_changes(&heard, SL_CHANGE_SCHEDULED, out[1].chain_id), 1);
}

/* ---- order and limits ---- */

static void jobs_are_claimed_by_priority_and_then_by_age(void **state)
{
	struct kit *k = *state;
	static const int32_t priorities[] = {5, 0, -3, 5, 0, -3, 2147483647, -2147483647 - 1};
	uint64_t ids[8];
	for (size_t i = 0; i < 8; i++)
		ids[i] = kit_start_job(k, &(struct sl_new_job){.type = "t", .priority = priorities[i]});
	static const size_t order[] = {7, 2, 5, 1, 4, 0, 3, 6};
	struct kit_claim claim;
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(kit_claim_one(k, "t", &claim).id, ids[order[i]]);
	kit_claim(k, "t", 10, 0, &claim);
	assert_int_equal(claim.n, 5);
	for (size_t i = 0; i < 5; i++)
		assert_int_equal(claim.jobs[i].id, ids[order[i + 3]]);
}

static void priority_counts_across_types(void **state)
{
	struct kit *k = *state;
	uint64_t a2 = kit_start_job(k, &(struct sl_new_job){.type = "a", .priority = 2});
	uint64_t b1 = kit_start_job(k, &(struct sl_new_job){.type = "b", .priority = 1});
	uint64_t a3 = kit_start_job(k, &(struct sl_new_job){.type = "a", .priority = 3});
	uint64_t b2 = kit_start_job(k, &(struct sl_new_job){.type = "b", .priority = 2});
	struct sl_claim_type types[] = {{.type = "a", .limit = 10}, {.type = "b", .limit = 10}};
	struct kit_claim claim;
	kit_claim_types(k, types, 2, 3, 0, &claim);
	assert_int_equal(claim.n, 3);
	assert_int_equal(claim.jobs[0].id, b1);
	assert_int_equal(claim.jobs[1].id, a2); /* the same priority: the older */
	assert_int_equal(claim.jobs[2].id, b2);
	assert_int_equal(kit_status(k, a3), SL_JOB_PENDING);
}

static void a_claim_keeps_the_limit_of_each_type_and_of_all(void **state)
{
	struct kit *k = *state;
	for (int i = 0; i < 6; i++) {
		kit_start(k, "a");
		kit_start(k, "b");
		kit_start(k, "other");
	}
	struct sl_claim_type types[] = {{.type = "a", .limit = 2}, {.type = "b", .limit = 10}};
	struct kit_claim claim;
	kit_claim_types(k, types, 2, 5, 0, &claim);
	assert_int_equal(claim.n, 5);
	size_t a = 0;
	for (size_t i = 0; i < claim.n; i++) {
		a += strcmp(claim.jobs[i].type, "a") == 0;
		assert_string_not_equal(claim.jobs[i].type, "other");
	}
	assert_int_equal(a, 2);
	kit_claim_types(k, types, 2, 0, 0, &claim);
	assert_int_equal(claim.n, 0);
}

static void a_type_that_has_nothing_does_not_keep_others_from_being_claimed(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "b");
	struct sl_claim_type types[] = {
		{.type = "a", .limit = 10}, {.type = "b", .limit = 10}, {.type = "c", .limit = 0}};
	struct kit_claim claim;
	kit_claim_types(k, types, 3, 10, 0, &claim);
	assert_int_equal(claim.n, 1);
	assert_int_equal(claim.jobs[0].id, id);
}

static void a_claimed_job_has_what_its_handler_needs(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start_job(
		k, &(struct sl_new_job){.type = "t", .input = "{\"x\":1}", .priority = 4, .traceparent = "tp"});
	struct kit_claim claim;
	struct kit_job job = kit_claim_one(k, "t", &claim);
	assert_int_equal(job.id, id);
	assert_int_equal(job.chain_id, id);
	assert_string_equal(job.type, "t");
	assert_string_equal(job.input, "{\"x\":1}");
	assert_string_equal(job.traceparent, "tp");
	assert_int_equal(job.priority, 4);
	assert_int_equal(job.has_blockers, 0);
	assert_in_range(claim.reply.now_ms, kit_now(k) - 60000, kit_now(k));
}

static void a_claimed_job_is_running_and_no_other_worker_gets_it(void **state)
{
	struct kit *k = *state;
	uint64_t ids[2] = {kit_start(k, "t"), kit_start(k, "t")};
	struct kit_claim claim, other;
	kit_claim(k, "t", 5, 0, &claim);
	assert_int_equal(claim.n, 2);
	kit_claim(k, "t", 5, 0, &other);
	assert_int_equal(other.n, 0);
	for (size_t i = 0; i < 2; i++) {
		struct kit_row row;
		kit_get(k, ids[i], &row);
		assert_int_equal(row.job.status, SL_JOB_RUNNING);
		assert_string_equal(row.leased_by, claim.worker);
		assert_in_range(row.job.leased_until_ms, kit_now(k) + KIT_LONG_MS / 2, kit_now(k) + KIT_LONG_MS);
	}
}

static int refuse_second(const struct sl_claimed_job *job, void *ctx)
{
	(void)job;
	return ++*(int *)ctx == 2 ? SL_ENOMEM : 0;
}

static void a_claim_whose_callback_refuses_takes_nothing(void **state)
{
	struct kit *k = *state;
	uint64_t done = kit_start(k, "u");
	for (int i = 0; i < 3; i++)
		kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "u", &claim);
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_COMPLETE);
	struct sl_settle_result result;
	struct sl_claim_type types = {.type = "t", .limit = 10};
	struct sl_claim_request r = {.claim = {{1, 2, 3}},
				     .worker = "w",
				     .types = &types,
				     .n_types = 1,
				     .limit = 10,
				     .lease_ms = KIT_LONG_MS};
	struct sl_claim_reply reply;
	int calls = 0;
	KIT_FAILS(SL_ENOMEM, k->ops->exchange(k->s,
					      &(struct sl_exchange){.settles = &s,
								    .n_settles = 1,
								    .results = &result,
								    .request = &r,
								    .reply = &reply,
								    .claimed = refuse_second,
								    .claimed_ctx = &calls},
					      NULL, err));
	/* And the settle with it is undone (S2), unless that could only be known when it was durable. */
	assert_int_equal(kit_status(k, done), k->f->exchange_is_final ? SL_JOB_COMPLETED : SL_JOB_RUNNING);
	kit_claim(k, "t", 10, 0, &claim);
	assert_int_equal(claim.n, 3);
}

/* ---- time ---- */

static void a_job_for_later_is_not_claimed_before_its_time(void **state)
{
	struct kit *k = *state;
	uint64_t delayed = kit_start_job(k, &(struct sl_new_job){.type = "t", .delay_ms = KIT_LONG_MS});
	uint64_t at = kit_start_job(k, &(struct sl_new_job){.type = "t", .at_ms = kit_now(k) + KIT_LONG_MS});
	uint64_t past = kit_start_job(k, &(struct sl_new_job){.type = "t", .at_ms = 1000});
	struct kit_claim claim;
	kit_claim(k, "t", 10, 0, &claim);
	assert_int_equal(claim.n, 1);
	assert_int_equal(claim.jobs[0].id, past);
	struct kit_row row;
	kit_get(k, delayed, &row);
	assert_int_equal(row.job.status, SL_JOB_PENDING);
	assert_in_range(row.job.scheduled_ms, kit_now(k) + KIT_LONG_MS / 2, kit_now(k) + KIT_LONG_MS);
	assert_int_equal(kit_status(k, at), SL_JOB_PENDING);
}

static void a_job_becomes_claimable_when_its_time_has_come(void **state)
{
	struct kit *k = *state;
	uint64_t late = kit_start_job(k, &(struct sl_new_job){.type = "t", .delay_ms = 20, .priority = -1});
	uint64_t now = kit_start(k, "t");
	kit_pass_ms(k, 21);
	struct kit_claim claim;
	kit_claim(k, "t", 10, 0, &claim);
	assert_int_equal(claim.n, 2);
	assert_int_equal(claim.jobs[0].id, late); /* with its own priority */
	assert_int_equal(claim.jobs[1].id, now);
}

static void more_due_jobs_than_a_claim_takes_are_not_forgotten(void **state)
{
	struct kit *k = *state;
	for (int i = 0; i < 40; i++)
		kit_start_job(k, &(struct sl_new_job){.type = "t", .delay_ms = 5});
	kit_pass_ms(k, 6);
	uint32_t all = 0;
	struct kit_claim claim;
	for (int i = 0; i < 40 && all < 40; i++) {
		kit_claim(k, "t", 7, 0, &claim);
		all += claim.n;
		if (claim.n < 7 && all < 40)
			assert_int_equal(claim.reply.next_due_in_ms, 0);
	}
	assert_int_equal(all, 40);
}

static void an_empty_claim_returns_how_long_to_sleep(void **state)
{
	struct kit *k = *state;
	struct kit_claim claim;
	kit_claim(k, "t", 5, 0, &claim);
	assert_int_equal(claim.reply.next_due_in_ms, -1);
	assert_int_equal(claim.reply.next_expiry_in_ms, -1);
	kit_start_job(k, &(struct sl_new_job){.type = "t", .delay_ms = 500000});
	kit_start_job(k, &(struct sl_new_job){.type = "t", .delay_ms = KIT_LONG_MS});
	kit_start_job(k, &(struct sl_new_job){.type = "other", .delay_ms = 1000});
	kit_start(k, "t");
	kit_claim(k, "t", 5, 300000, &claim);
	assert_int_equal(claim.n, 1);
	assert_in_range(claim.reply.next_due_in_ms, 400000, 500000);
	struct kit_claim empty;
	kit_claim(k, "t", 5, 0, &empty);
	assert_int_equal(empty.n, 0);
	assert_in_range(empty.reply.next_due_in_ms, 400000, 500000);
	assert_in_range(empty.reply.next_expiry_in_ms, 200000, 300000);
	kit_complete(k, &claim, 0, NULL);
	kit_claim(k, "t", 5, 0, &empty);
	assert_int_equal(empty.reply.next_expiry_in_ms, -1); /* the lease went with its last job */
}

static void an_expired_lease_is_reported_with_no_time_to_wait(void **state)
{
	struct kit *k = *state;
	kit_start(k, "t");
	struct kit_claim claim, empty;
	kit_claim_expired(k, "t", 1, &claim);
	kit_claim(k, "t", 1, 0, &empty);
	assert_int_equal(empty.n, 0); /* expired is not yet reaped */
	assert_int_equal(empty.reply.next_expiry_in_ms, 0);
}

/* ---- what a start costs ---- */

static void expect_charged(struct kit *k, const char *type, int32_t charged)
{
	struct kit_claim claim;
	struct kit_job job = kit_claim_one(k, type, &claim);
	assert_int_equal(job.charged, charged);
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_RELEASE);
	assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_NOT);
}

static void no_two_attempts_of_a_job_have_one_number(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	int32_t last = 0;
	for (int i = 0; i < 12; i++) {
		if (i % 6 == 3)
			kit_claim_expired(k, "t", 1 + (uint32_t)i % 2, &claim);
		else
			kit_claim(k, "t", 1 + (uint32_t)i % 2, 0, &claim);
		assert_int_equal(claim.n, 1);
		assert_true(claim.jobs[0].attempt > last);
		last = claim.jobs[0].attempt;
		struct sl_settle s = kit_settle(&claim, 0,
						i % 6 == 0   ? SL_SETTLE_RETRY
						: i % 6 == 1 ? SL_SETTLE_RESCHEDULE
						: i % 6 == 2 ? SL_SETTLE_RELEASE
							     : SL_SETTLE_FAIL);
		if (i % 6 == 3)
			assert_int_equal(kit_reap(k, "t", NULL), 1);
		else if (i % 6 == 5)
			KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&id, 1}, NULL, NULL, err));
		else
			assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_NOT);
		if (i % 6 >= 4)
			KIT_OK(k->ops->redrive(k->s, (struct sl_ids){&id, 1}, NULL, NULL, err));
	}
	kit_claim(k, "t", 1, 0, &claim);
	assert_true(claim.jobs[0].attempt > last);
}

static void the_first_attempt_has_the_number_one(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	struct kit_job job = kit_claim_one(k, "t", &claim);
	assert_int_equal(job.attempt, 1);
	assert_int_equal(job.charged, 0);
	struct kit_row row;
	kit_get(k, id, &row);
	assert_int_equal(row.job.attempt, 1);
	kit_complete(k, &claim, 0, "1");
	kit_get(k, id, &row);
	assert_int_equal(row.job.attempt, 1);
}

static void runs_that_end_are_charged(void **state)
{
	struct kit *k = *state;
	kit_start(k, "t");
	struct kit_claim claim;
	for (int32_t run = 0; run < 3; run++) {
		kit_claim_one(k, "t", &claim);
		assert_int_equal(claim.jobs[0].charged, run);
		kit_retry(k, &claim, 0, 0);
	}
	kit_claim_one(k, "t", &claim);
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_RESCHEDULE);
	assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_NOT);
	expect_charged(k, "t", 3);
	expect_charged(k, "t", 3);
}

static void a_lost_job_is_charged_when_its_claim_was_for_free_slots(void **state)
{
	struct kit *k = *state;
	struct kit_claim claim;
	kit_start(k, "a");
	kit_claim_expired(k, "a", 8, &claim); /* it could have been more; it is one, for one slot */
	assert_int_equal(kit_reap(k, "a", NULL), 1);
	expect_charged(k, "a", 1);
	kit_start(k, "b");
	kit_start(k, "b");
	kit_claim_expired(k, "b", 8, &claim); /* of these at most one was started */
	assert_int_equal(claim.n, 2);
	assert_int_equal(kit_reap(k, "b", NULL), 2);
	expect_charged(k, "b", 0);
	kit_start(k, "c");
	k->busy = true;
	kit_claim_expired(k, "c", 8, &claim);
	k->busy = false;
	assert_int_equal(claim.n, 1);
	assert_int_equal(kit_reap(k, "c", NULL), 1);
	expect_charged(k, "c", 0);
}

static void a_renewal_says_that_what_was_claimed_ahead_has_been_started(void **state)
{
	struct kit *k = *state;
	struct kit_claim claim;
	for (int started = 0; started < 2; started++) {
		const char *type = started ? "s" : "w";
		kit_start(k, type);
		k->busy = true;
		kit_claim(k, type, 8, 0, &claim);
		k->busy = false;
		const struct sl_renewal r = {.claim = claim.id, .lease_ms = 1, .started = started};
		KIT_OK(k->ops->renew(k->s, &r, 1, NULL, NULL, err));
		kit_pass_ms(k, 3);
		assert_int_equal(kit_reap(k, type, NULL), 1);
		expect_charged(k, type, started);
	}
}

static void lost_jobs_are_claimed_one_by_one_in_their_turn(void **state)
{
	struct kit *k = *state;
	uint64_t ids[3];
	for (size_t i = 0; i < 3; i++)
		ids[i] = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_expired(k, "t", 3, &claim);
	uint64_t urgent = kit_start_job(k, &(struct sl_new_job){.type = "t", .priority = -100});
	uint64_t younger = kit_start(k, "t");
	assert_int_equal(kit_reap(k, "t", NULL), 3);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(kit_status(k, ids[i]), SL_JOB_PENDING);
	/* A more urgent job goes first. What comes with it is not one of those that were lost. */
	kit_claim(k, "t", 100, 0, &claim);
	assert_int_equal(claim.n, 2);
	assert_int_equal(claim.jobs[0].id, urgent);
	assert_int_equal(claim.jobs[1].id, younger);
	younger = kit_start(k, "t");
	for (size_t i = 0; i < 3; i++) {
		kit_claim(k, "t", 100, 0, &claim);
		assert_int_equal(claim.n, 1);
		assert_int_equal(claim.jobs[0].id, ids[i]);
		assert_int_equal(claim.reply.next_due_in_ms, 0); /* there is more: the claimer must not sleep */
		kit_complete(k, &claim, 0, NULL);
	}
	kit_claim(k, "t", 100, 0, &claim);
	assert_int_equal(claim.n, 1);
	assert_int_equal(claim.jobs[0].id, younger);
}

static void a_lost_job_does_not_go_before_a_more_urgent_one_of_another_type(void **state)
{
	struct kit *k = *state;
	struct kit_claim claim;
	uint64_t lost = kit_start(k, "a");
	kit_claim_expired(k, "a", 1, &claim);
	assert_int_equal(kit_reap(k, "a", NULL), 1);
	uint64_t urgent = kit_start_job(k, &(struct sl_new_job){.type = "b", .priority = -1});
	struct sl_claim_type types[] = {{.type = "a", .limit = 1}, {.type = "b", .limit = 1}};
	kit_claim_types(k, types, 2, 1, 0, &claim);
	assert_int_equal(claim.n, 1);
	assert_int_equal(claim.jobs[0].id, urgent);
	kit_claim_types(k, types, 2, 1, 0, &claim);
	assert_int_equal(claim.n, 1);
	assert_int_equal(claim.jobs[0].id, lost);
}

static void a_lost_job_is_claimed_only_for_a_free_slot(void **state)
{
	struct kit *k = *state;
	struct kit_claim claim;
	for (int many = 0; many < 2; many++) {
		struct sl_claim_type types[] = {{.type = "t", .limit = 4}, {.type = "u", .limit = 4}};
		uint64_t lost = kit_start(k, "t");
		kit_claim_expired(k, "t", 1, &claim);
		assert_int_equal(kit_reap(k, "t", NULL), 1);
		k->busy = true;
		kit_claim_types(k, types, 1 + (size_t)many, 4, 0, &claim);
		assert_int_equal(claim.n, 0);
		assert_int_equal(claim.reply.alone, 1);
		k->busy = false;
		kit_claim_types(k, types, 1 + (size_t)many, 4, 0, &claim);
		assert_int_equal(claim.n, 1);
		assert_int_equal(claim.reply.alone, 0);
		assert_int_equal(claim.jobs[0].id, lost);
		kit_complete(k, &claim, 0, NULL);
	}
}

static void a_job_that_kills_its_workers_is_charged_and_waits_from_its_second_loss_on(void **state)
{
	static const struct sl_retry_policy policy = {
		.max_attempts = SL_UNLIMITED, .first_ms = 60000, .cap_ms = 200000, .multiplier = 2};
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim, none;
	k->retry = &policy;
	for (int32_t loss = 1; loss <= 4; loss++) {
		kit_claim_expired(k, "t", 1, &claim);
		assert_int_equal(claim.n, 1);
		assert_int_equal(claim.jobs[0].id, id);
		assert_int_equal(claim.jobs[0].charged, loss - 1);
		int64_t now = kit_now(k);
		assert_int_equal(kit_reap(k, "t", NULL), 1);
		if (loss == 1)
			continue; /* can be claimed immediately */
		kit_claim(k, "t", 1, 0, &none);
		assert_int_equal(none.n, 0);
		struct kit_row row;
		int64_t delay = loss == 2 ? 120000 : 200000;
		kit_get(k, id, &row);
		assert_true(row.job.scheduled_ms >= now + delay);
		assert_true(row.job.scheduled_ms <= kit_now(k) + delay);
		assert_true(none.reply.next_due_in_ms > 0);
		KIT_OK(k->ops->trigger(k->s, (struct sl_ids){&id, 1}, NULL, NULL, err));
	}
	k->retry = NULL;
}

static void a_claim_whose_answer_was_lost_gives_the_same_jobs_again(void **state)
{
	struct kit *k = *state;
	struct kit_claim claim, again;
	for (int many = 0; many < 2; many++) {
		uint64_t ids[3];
		for (size_t i = 0; i < 3; i++)
			ids[i] = kit_start_job(k, &(struct sl_new_job){.type = "t", .input = "[7]"});
		kit_claim(k, "t", 3, 0, &claim);
		assert_int_equal(claim.n, 3);
		kit_complete(k, &claim, 1, "1"); /* as another exchange of that worker would */
		uint64_t other = kit_start(k, "t");
		kit_claim_again(k, "t", &claim, &again);
		assert_int_equal(again.n, 2);
		for (size_t i = 0; i < 2; i++) {
			assert_int_equal(again.jobs[i].id, ids[i * 2]);
			assert_int_equal(again.jobs[i].attempt, claim.jobs[i * 2].attempt);
			assert_int_equal(again.jobs[i].fence, claim.jobs[i * 2].fence);
			assert_string_equal(again.jobs[i].input, "[7]");
		}
		kit_complete(k, &again, 0, "1");
		kit_complete(k, &again, 1, "1");
		kit_claim_one(k, "t", &claim);
		assert_int_equal(claim.jobs[0].id, other);
		kit_complete(k, &claim, 0, "1");
	}
}

static void a_claim_that_was_not_made_gives_nothing_when_it_is_asked_after(void **state)
{
	struct kit *k = *state;
	struct kit_claim claim, again;
	uint64_t id = kit_start(k, "t");
	memset(&claim, 0, sizeof(claim));
	memcpy(claim.id.bytes, "never was before", 16);
	memcpy(claim.worker, "w", 2);
	for (int i = 0; i < 2; i++) {
		kit_claim_again(k, "t", &claim, &again);
		assert_int_equal(again.n, 0);
		assert_int_equal(again.reply.next_due_in_ms, 0);
	}
	kit_claim_one(k, "t", &claim);
	assert_int_equal(claim.jobs[0].id, id);
}

static void a_claim_that_is_asked_after_has_a_lease_that_begins_anew(void **state)
{
	struct kit *k = *state;
	struct kit_claim claim, again;
	kit_start(k, "t");
	kit_claim_expired(k, "t", 1, &claim);
	kit_claim_again(k, "t", &claim, &again);
	assert_int_equal(again.n, 1);
	assert_int_equal(kit_reap(k, "t", NULL), 0);
}

static void a_reap_says_when_the_next_lease_runs_out(void **state)
{
	struct kit *k = *state;
	const struct sl_reap_type types[] = {{.type = "t"}, {.type = "u"}};
	struct sl_reaped reaped;
	struct kit_claim claim;
	KIT_OK(k->ops->reap(k->s, types, 2, 10, &reaped, NULL, err));
	assert_int_equal(reaped.n, 0);
	assert_int_equal(reaped.next_expiry_in_ms, -1);
	kit_start(k, "t");
	kit_start(k, "u");
	kit_start(k, "v");
	kit_claim(k, "v", 1, KIT_LONG_MS / 4, &claim);
	KIT_OK(k->ops->reap(k->s, types, 2, 10, &reaped, NULL, err));
	assert_int_equal(reaped.next_expiry_in_ms, -1);
	kit_claim(k, "t", 1, KIT_LONG_MS, &claim);
	KIT_OK(k->ops->reap(k->s, types, 2, 10, &reaped, NULL, err));
	assert_in_range(reaped.next_expiry_in_ms, KIT_LONG_MS / 2, KIT_LONG_MS);
	kit_claim_expired(k, "u", 1, &claim);
	KIT_OK(k->ops->reap(k->s, types, 2, 10, &reaped, NULL, err));
	assert_int_equal(reaped.n, 1);
	assert_in_range(reaped.next_expiry_in_ms, KIT_LONG_MS / 2, KIT_LONG_MS);
}

static int keep_attempt(const struct sl_job *job, void *ctx)
{
	*(int32_t *)ctx = job->attempt;
	return 0;
}

/* As it is shown alone, and in a list. */
static void expect_attempt(struct kit *k, uint64_t id, enum sl_job_status status, int32_t attempt)
{
	struct kit_row row;
	int32_t listed = -1;
	kit_get(k, id, &row);
	assert_int_equal(row.job.status, status);
	assert_int_equal(row.job.attempt, attempt);
	KIT_OK(k->ops->list_jobs(k->s, &(struct sl_job_filter){.chain_id = id}, keep_attempt, &listed, err));
	assert_int_equal(listed, attempt);
	listed = -1;
	KIT_OK(k->ops->list_jobs(k->s, &(struct sl_job_filter){.statuses = 1u << status}, keep_attempt, &listed, err));
	assert_int_equal(listed, attempt);
}

static void a_job_that_runs_shows_the_attempt_that_runs(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	expect_attempt(k, id, SL_JOB_PENDING, 0);
	kit_claim(k, "t", 8, 0, &claim);
	expect_attempt(k, id, SL_JOB_RUNNING, 1);
	kit_retry(k, &claim, 0, 0);
	expect_attempt(k, id, SL_JOB_PENDING, 1);
	kit_claim(k, "t", 1, 0, &claim);
	expect_attempt(k, id, SL_JOB_RUNNING, 2);
	kit_retry(k, &claim, 0, 0);
	kit_claim_expired(k, "t", 8, &claim);
	expect_attempt(k, id, SL_JOB_RUNNING, 3);
	assert_int_equal(kit_reap(k, "t", NULL), 1);
	expect_attempt(k, id, SL_JOB_PENDING, 3);
}

/* The worker that finds that the attempts have run out starts no handler. */
static void a_failure_without_a_start_charges_nothing(void **state)
{
	struct kit *k = *state;
	for (uint32_t limit = 1; limit < 8; limit += 6) {
		uint64_t id = kit_start(k, "t");
		struct kit_claim claim;
		kit_claim_expired(k, "t", 1, &claim);
		assert_int_equal(kit_reap(k, "t", NULL), 1);
		kit_claim(k, "t", limit, 0, &claim);
		assert_int_equal(claim.jobs[0].attempt, 2);
		struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_FAIL);
		s.started_ms = 0;
		s.error = "the attempts ran out";
		assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_NOT);
		struct kit_row row;
		char outcomes[KIT_MAX];
		kit_get(k, id, &row);
		assert_int_equal(row.job.status, SL_JOB_FAILED);
		assert_int_equal(row.job.attempt, 1);
		assert_string_equal(row.error, "the attempts ran out");
		kit_outcomes(k, id, outcomes);
		assert_string_equal(outcomes, "R");
	}
}

/* ---- claims of a worker that was notified of a job ---- */

static void a_hinted_claim_gets_what_is_ready_in_order(void **state)
{
	struct kit *k = *state;
	uint64_t ids[3];
	for (size_t i = 0; i < 3; i++)
		ids[i] =
			kit_start_job(k, &(struct sl_new_job){.type = "t", .input = "[7]", .priority = 2 - (int32_t)i});
	struct kit_claim claim, rest;
	kit_claim_hinted(k, "t", 2, &claim);
	assert_int_equal(claim.n, 2);
	assert_int_equal(claim.jobs[0].id, ids[2]);
	assert_int_equal(claim.jobs[1].id, ids[1]);
	assert_string_equal(claim.jobs[0].input, "[7]");
	assert_int_equal(kit_status(k, ids[2]), SL_JOB_RUNNING);
	kit_claim_hinted(k, "t", 2, &rest);
	assert_int_equal(rest.n, 1);
	assert_int_equal(rest.jobs[0].id, ids[0]);
	kit_complete(k, &claim, 0, "1");
	kit_complete(k, &claim, 1, "1");
	kit_complete(k, &rest, 0, "1");
	kit_claim_hinted(k, "t", 2, &claim);
	assert_int_equal(claim.n, 0);
	kit_start(k, "t");
	kit_claim_hinted(k, "t", 2, &claim);
	assert_int_equal(claim.n, 1);
	assert_int_equal(claim.reply.next_due_in_ms, -1);
	if (claim.reply.next_expiry_in_ms != -1)
		assert_in_range(claim.reply.next_expiry_in_ms, 1, KIT_LONG_MS);
	assert_true(claim.reply.now_ms > 0);
	kit_start(k, "t");
	kit_claim_hinted(k, "t", 1, &claim);
	assert_int_equal(claim.n, 1);
}

/* A job that was due a moment ago, and one that a reap has flagged. */
static uint64_t start_due(struct kit *k)
{
	uint64_t id = kit_start_job(k, &(struct sl_new_job){.type = "t", .delay_ms = 1});
	kit_pass_ms(k, 2);
	return id;
}

static uint64_t start_flagged(struct kit *k)
{
	struct kit_claim claim;
	uint64_t id = kit_start(k, "t");
	kit_claim_expired(k, "t", 2, &claim);
	assert_int_equal(claim.n, 1);
	assert_int_equal(kit_reap(k, "t", NULL), 1);
	return id;
}

static void a_hinted_claim_gets_what_is_due_or_flagged_when_there_is_nothing_else(void **state)
{
	struct kit *k = *state;
	struct kit_claim claim;
	uint64_t due = start_due(k);
	kit_claim_hinted(k, "t", 4, &claim);
	assert_int_equal(claim.n, 1);
	assert_int_equal(claim.jobs[0].id, due);
	kit_complete(k, &claim, 0, "1");
	uint64_t flagged = start_flagged(k);
	kit_claim_hinted(k, "t", 4, &claim);
	assert_int_equal(claim.n, 1);
	assert_int_equal(claim.jobs[0].id, flagged);
	assert_int_equal(claim.jobs[0].charged, 1);
}

static void what_a_hinted_claim_skips_can_be_claimed_immediately(void **state)
{
	struct kit *k = *state;
	struct kit_claim claim;
	for (int flagged = 0; flagged < 2; flagged++) {
		uint32_t n = 0;
		if (flagged)
			start_flagged(k);
		else
			start_due(k);
		kit_start(k, "t");
		for (int i = 0; n < 2; i++) {
			if (i == 0)
				kit_claim_hinted(k, "t", 4, &claim);
			else
				kit_claim(k, "t", 4, 0, &claim);
			assert_in_range(claim.n, 1, 2 - n);
			n += claim.n;
			assert_int_equal(n < 2 ? claim.reply.next_due_in_ms : 0, 0);
			for (uint32_t j = 0; j < claim.n; j++)
				kit_complete(k, &claim, j, "1");
		}
	}
}

static void a_hinted_claim_of_a_paused_type_gets_nothing(void **state)
{
	struct kit *k = *state;
	struct kit_claim claim;
	kit_start(k, "t");
	KIT_OK(k->ops->pause(k->s, "t", 1, NULL, err));
	kit_claim_hinted(k, "t", 4, &claim);
	assert_int_equal(claim.n, 0);
	KIT_OK(k->ops->pause(k->s, "t", 0, NULL, err));
	kit_claim_hinted(k, "t", 4, &claim);
	assert_int_equal(claim.n, 1);
}

/* ---- reap and renew ---- */

static void a_lease_that_has_not_run_out_is_not_reaped(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	assert_int_equal(kit_reap(k, "t", NULL), 0);
	assert_int_equal(kit_status(k, id), SL_JOB_RUNNING);
	kit_complete(k, &claim, 0, NULL);
}

static void a_reap_notifies_the_next_worker_and_the_old_one(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_expired(k, "t", 1, &claim);
	struct kit_heard heard;
	assert_int_equal(kit_reap(k, "t", &heard), 1);
	assert_true(kit_notes(&heard, SL_NOTE_JOB_SCHEDULED, "t", 0) >= 1);
	assert_int_equal(kit_notes(&heard, SL_NOTE_OWNERSHIP_LOST, NULL, id), 1);
	assert_int_equal(kit_lost_note(&heard, id), SL_LOST_TAKEN);
	assert_int_equal(kit_changes(&heard, SL_CHANGE_REAPED, id), 1);
	char outcomes[KIT_MAX];
	kit_outcomes(k, id, outcomes);
	assert_string_equal(outcomes, "R");
	assert_int_equal(kit_reap(k, "t", &heard), 0); /* once */
	assert_int_equal(heard.n_notes, 0);
}

static void a_reaper_takes_only_its_types_and_at_most_its_limit(void **state)
{
	struct kit *k = *state;
	for (int i = 0; i < 5; i++)
		kit_start(k, "a");
	uint64_t b = kit_start(k, "b");
	struct kit_claim claim;
	kit_claim_expired(k, "a", 5, &claim);
	assert_int_equal(claim.n, 5);
	kit_claim_expired(k, "b", 1, &claim);
	const struct sl_reap_type types[] = {{.type = "a"}};
	struct sl_reaped reaped = {.more = 1};
	uint32_t all = 0;
	int calls = 0;
	for (; reaped.more && calls < 20; calls++) {
		KIT_OK(k->ops->reap(k->s, types, 1, 2, &reaped, NULL, err));
		assert_in_range(reaped.n, 0, 2);
		all += reaped.n;
	}
	assert_int_equal(all, 5);
	assert_true(calls >= 3);
	assert_int_equal(kit_status(k, b), SL_JOB_RUNNING);
	assert_int_equal(kit_reap(k, "b", NULL), 1);
}

static void a_reaped_job_goes_back_into_its_place_by_priority(void **state)
{
	struct kit *k = *state;
	uint64_t urgent = kit_start_job(k, &(struct sl_new_job){.type = "t", .priority = -5});
	uint64_t plain = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_expired(k, "t", 2, &claim);
	assert_int_equal(kit_reap(k, "t", NULL), 2);
	assert_int_equal(kit_claim_one(k, "t", &claim).id, urgent);
	assert_int_equal(kit_claim_one(k, "t", &claim).id, plain);
}

struct losses {
	size_t n;
	uint64_t ids[16], fences[16];
	enum sl_lost_reason reasons[16];
};

static void keep_loss(uint64_t id, uint64_t fence, enum sl_lost_reason reason, void *ctx)
{
	struct losses *l = ctx;
	KIT_TRUE(l->n < 16);
	l->ids[l->n] = id;
	l->fences[l->n] = fence;
	l->reasons[l->n++] = reason;
}

static void renew(struct kit *k, const struct kit_claim *claim, int64_t lease_ms, struct losses *losses)
{
	uint64_t ids[16], fences[16];
	KIT_TRUE(claim->n <= 16);
	for (size_t i = 0; i < claim->n; i++) {
		ids[i] = claim->jobs[i].id;
		fences[i] = claim->jobs[i].fence;
	}
	struct sl_renewal r = {.claim = claim->id, .lease_ms = lease_ms, .ids = ids, .fences = fences, .n = claim->n};
	losses->n = 0;
	KIT_OK(k->ops->renew(k->s, &r, 1, keep_loss, losses, err));
}

static void a_renewed_lease_is_not_reaped_even_when_it_had_run_out(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_expired(k, "t", 2, &claim);
	struct losses losses;
	renew(k, &claim, KIT_LONG_MS, &losses);
	assert_int_equal(losses.n, 0);
	assert_int_equal(kit_reap(k, "t", NULL), 0);
	struct kit_row row;
	kit_get(k, id, &row);
	assert_in_range(row.job.leased_until_ms, kit_now(k) + KIT_LONG_MS / 2, kit_now(k) + KIT_LONG_MS);
	kit_complete(k, &claim, 0, NULL);
	kit_complete(k, &claim, 1, NULL);
}

static void a_renewal_names_what_is_lost_and_why(void **state)
{
	struct kit *k = *state;
	uint64_t ids[5];
	for (size_t i = 0; i < 5; i++)
		ids[i] = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim(k, "t", 5, 0, &claim);
	size_t n;
	KIT_OK(k->ops->fail_chain(k->s, ids[4], "no", NULL, err));
	KIT_OK(k->ops->complete_chain(k->s, ids[0], "1", NULL, err));
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&ids[1], 1}, NULL, &n, err));
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){&ids[2], 1}, false, NULL, &n, err));
	struct losses losses;
	renew(k, &claim, KIT_LONG_MS, &losses);
	assert_int_equal(losses.n, 4);
	for (size_t i = 0; i < 4; i++) {
		enum sl_lost_reason want = losses.ids[i] == ids[0]   ? SL_LOST_COMPLETED
					   : losses.ids[i] == ids[4] ? SL_LOST_FAILED
					   : losses.ids[i] == ids[1] ? SL_LOST_CANCELLED
					   : losses.ids[i] == ids[2] ? SL_LOST_NOT_FOUND
								     : SL_LOST_NOT;
		assert_int_equal(losses.reasons[i], want);
	}
	assert_int_equal(kit_status(k, ids[3]), SL_JOB_RUNNING);
}

static void a_claim_that_was_taken_over_is_lost_as_a_whole(void **state)
{
	struct kit *k = *state;
	kit_start(k, "t");
	kit_start(k, "t");
	struct kit_claim claim, next;
	kit_claim_expired(k, "t", 2, &claim);
	assert_int_equal(kit_reap(k, "t", NULL), 2);
	kit_claim_one(k, "t", &next); /* one has a new owner, one waits */
	struct losses losses;
	renew(k, &claim, KIT_LONG_MS, &losses);
	assert_int_equal(losses.n, 2);
	assert_int_equal(losses.reasons[0], SL_LOST_TAKEN);
	assert_int_equal(losses.reasons[1], SL_LOST_TAKEN);
	kit_complete(k, &next, 0, NULL); /* the renewal of the old one did not touch the new one */
}

static void several_leases_are_renewed_at_once(void **state)
{
	struct kit *k = *state;
	kit_start(k, "t");
	kit_start(k, "t");
	struct kit_claim claims[2];
	kit_claim(k, "t", 1, 1, &claims[0]);
	kit_claim_expired(k, "t", 1, &claims[1]);
	struct sl_renewal r[2];
	for (size_t i = 0; i < 2; i++)
		r[i] = (struct sl_renewal){.claim = claims[i].id,
					   .lease_ms = KIT_LONG_MS,
					   .ids = &claims[i].jobs[0].id,
					   .fences = &claims[i].jobs[0].fence,
					   .n = 1};
	struct losses losses = {0};
	KIT_OK(k->ops->renew(k->s, r, 2, keep_loss, &losses, err));
	assert_int_equal(losses.n, 0);
	assert_int_equal(kit_reap(k, "t", NULL), 0);
}

static void a_claim_settled_without_giving_up_its_lease_leaves_nothing_to_reap(void **state)
{
	struct kit *k = *state;
	uint64_t ids[2] = {kit_start(k, "t"), kit_start(k, "t")};
	struct kit_claim claim, empty;
	kit_claim(k, "t", 2, 1, &claim);
	kit_complete(k, &claim, 0, "1");
	kit_retry(k, &claim, 1, KIT_LONG_MS);
	kit_pass_ms(k, 3);
	assert_int_equal(kit_reap(k, "t", NULL), 0);
	assert_int_equal(kit_status(k, ids[0]), SL_JOB_COMPLETED);
	assert_int_equal(kit_status(k, ids[1]), SL_JOB_PENDING);
	kit_claim(k, "t", 2, 0, &empty);
	assert_int_equal(empty.n, 0);
	assert_int_equal(empty.reply.next_expiry_in_ms, -1); /* the lease is gone, and no worker wakes for it again */
}

/* ---- pause ---- */

static void a_paused_type_is_not_claimed_until_it_is_resumed(void **state)
{
	struct kit *k = *state;
	kit_start(k, "a");
	uint64_t b = kit_start(k, "b");
	struct kit_heard heard;
	KIT_OK(k->ops->pause(k->s, "a", 1, kit_hear(&heard), err));
	KIT_OK(k->ops->pause(k->s, "a", 1, NULL, err)); /* again: no error */
	kit_start(k, "a");
	struct sl_claim_type types[] = {{.type = "a", .limit = 10}, {.type = "b", .limit = 10}};
	struct kit_claim claim;
	kit_claim_types(k, types, 2, 10, 0, &claim);
	assert_int_equal(claim.n, 1);
	assert_int_equal(claim.jobs[0].id, b);
	KIT_OK(k->ops->pause(k->s, "a", 0, kit_hear(&heard), err));
	assert_true(kit_notes(&heard, SL_NOTE_JOB_SCHEDULED, "a", 0) >= 1);
	KIT_OK(k->ops->pause(k->s, "a", 0, NULL, err));
	kit_claim_types(k, types, 2, 10, 0, &claim);
	assert_int_equal(claim.n, 2);
}

static void a_pause_lets_running_jobs_finish(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	KIT_OK(k->ops->pause(k->s, "t", 1, NULL, err));
	kit_complete(k, &claim, 0, "1");
	assert_int_equal(kit_status(k, id), SL_JOB_COMPLETED);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_started_job_is_there_with_all_that_was_given),
	cmocka_unit_test(no_input_is_the_json_null),
	cmocka_unit_test(many_chains_start_in_one_call_and_get_ascending_ids),
	cmocka_unit_test(ids_are_never_given_again),
	cmocka_unit_test(a_start_reports_the_type_and_each_job),
	cmocka_unit_test(jobs_are_claimed_by_priority_and_then_by_age),
	cmocka_unit_test(priority_counts_across_types),
	cmocka_unit_test(a_claim_keeps_the_limit_of_each_type_and_of_all),
	cmocka_unit_test(a_type_that_has_nothing_does_not_keep_others_from_being_claimed),
	cmocka_unit_test(a_claimed_job_has_what_its_handler_needs),
	cmocka_unit_test(a_claimed_job_is_running_and_no_other_worker_gets_it),
	cmocka_unit_test(a_claim_whose_callback_refuses_takes_nothing),
	cmocka_unit_test(a_job_for_later_is_not_claimed_before_its_time),
	cmocka_unit_test(a_job_becomes_claimable_when_its_time_has_come),
	cmocka_unit_test(more_due_jobs_than_a_claim_takes_are_not_forgotten),
	cmocka_unit_test(an_empty_claim_returns_how_long_to_sleep),
	cmocka_unit_test(an_expired_lease_is_reported_with_no_time_to_wait),
	cmocka_unit_test(no_two_attempts_of_a_job_have_one_number),
	cmocka_unit_test(the_first_attempt_has_the_number_one),
	cmocka_unit_test(runs_that_end_are_charged),
	cmocka_unit_test(a_lost_job_is_charged_when_its_claim_was_for_free_slots),
	cmocka_unit_test(a_renewal_says_that_what_was_claimed_ahead_has_been_started),
	cmocka_unit_test(lost_jobs_are_claimed_one_by_one_in_their_turn),
	cmocka_unit_test(a_lost_job_does_not_go_before_a_more_urgent_one_of_another_type),
	cmocka_unit_test(a_lost_job_is_claimed_only_for_a_free_slot),
	cmocka_unit_test(a_job_that_kills_its_workers_is_charged_and_waits_from_its_second_loss_on),
	cmocka_unit_test(a_claim_whose_answer_was_lost_gives_the_same_jobs_again),
	cmocka_unit_test(a_claim_that_was_not_made_gives_nothing_when_it_is_asked_after),
	cmocka_unit_test(a_claim_that_is_asked_after_has_a_lease_that_begins_anew),
	cmocka_unit_test(a_reap_says_when_the_next_lease_runs_out),
	cmocka_unit_test(a_job_that_runs_shows_the_attempt_that_runs),
	cmocka_unit_test(a_failure_without_a_start_charges_nothing),
	cmocka_unit_test(a_hinted_claim_gets_what_is_ready_in_order),
	cmocka_unit_test(a_hinted_claim_gets_what_is_due_or_flagged_when_there_is_nothing_else),
	cmocka_unit_test(what_a_hinted_claim_skips_can_be_claimed_immediately),
	cmocka_unit_test(a_hinted_claim_of_a_paused_type_gets_nothing),
	cmocka_unit_test(a_lease_that_has_not_run_out_is_not_reaped),
	cmocka_unit_test(a_reap_notifies_the_next_worker_and_the_old_one),
	cmocka_unit_test(a_reaper_takes_only_its_types_and_at_most_its_limit),
	cmocka_unit_test(a_reaped_job_goes_back_into_its_place_by_priority),
	cmocka_unit_test(a_renewed_lease_is_not_reaped_even_when_it_had_run_out),
	cmocka_unit_test(a_renewal_names_what_is_lost_and_why),
	cmocka_unit_test(a_claim_that_was_taken_over_is_lost_as_a_whole),
	cmocka_unit_test(several_leases_are_renewed_at_once),
	cmocka_unit_test(a_claim_settled_without_giving_up_its_lease_leaves_nothing_to_reap),
	cmocka_unit_test(a_paused_type_is_not_claimed_until_it_is_resumed),
	cmocka_unit_test(a_pause_lets_running_jobs_finish),
};

CONTRACT_TESTS(contract_claim_tests, tests)
