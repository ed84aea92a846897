/* SPDX-License-Identifier: Apache-2.0 */
/* Settling: every kind, the fence, stale settles and their reasons, batches, the history of attempts, odd data. */
#include "jobs/contract_kit.h"

#include <stdlib.h>

/* ---- kinds ---- */

static void a_completion_keeps_the_output_and_ends_the_chain(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_COMPLETE);
	s.output = "{\"r\": [ 1 ]}";
	s.progress = "0.5";
	struct kit_heard heard;
	struct sl_settle_result result = kit_exchange(k, &s, &heard);
	assert_int_equal(result.lost, SL_LOST_NOT);
	assert_int_equal(result.chain_ended, 1);
	assert_int_equal(result.next_id, 0);
	struct kit_row row;
	kit_get(k, id, &row);
	assert_int_equal(row.job.status, SL_JOB_COMPLETED);
	assert_string_equal(row.output, "{\"r\": [ 1 ]}");
	assert_string_equal(row.progress, "0.5");
	assert_string_equal(row.leased_by, claim.worker);
	assert_true(row.job.ended_ms >= row.job.created_ms);
	assert_int_equal(row.job.leased_until_ms, 0);
	assert_int_equal(kit_changes(&heard, SL_CHANGE_CHAIN_COMPLETED, 0), 1);
	assert_int_equal(heard.n_notes, 0); /* no caller watches it, no chain waits for it */
	struct kit_chain chain;
	kit_get_chain(k, id, &chain);
	assert_int_equal(chain.chain.status, SL_JOB_COMPLETED);
	assert_string_equal(chain.output, "{\"r\": [ 1 ]}");
	assert_int_equal(chain.chain.ended_ms, row.job.ended_ms);
}

static void a_completed_job_is_never_claimed_again(void **state)
{
	struct kit *k = *state;
	kit_start(k, "t");
	kit_run(k, "t", "1");
	kit_pass_ms(k, 3);
	struct kit_claim claim;
	kit_claim(k, "t", 5, 0, &claim);
	assert_int_equal(claim.n, 0);
	assert_int_equal(kit_reap(k, "t", NULL), 0);
}

static void a_retry_comes_back_after_its_delay_with_its_error(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	kit_retry(k, &claim, 0, KIT_LONG_MS);
	struct kit_row row;
	kit_get(k, id, &row);
	assert_int_equal(row.job.status, SL_JOB_PENDING);
	assert_string_equal(row.error, "failed once");
	assert_int_equal(row.job.attempt, 1);
	assert_in_range(row.job.scheduled_ms, kit_now(k) + KIT_LONG_MS / 2, kit_now(k) + KIT_LONG_MS);
	assert_int_equal(row.job.ended_ms, 0);
	kit_claim(k, "t", 5, 0, &claim);
	assert_int_equal(claim.n, 0);
	assert_in_range(claim.reply.next_due_in_ms, KIT_LONG_MS / 2, KIT_LONG_MS);
}

static void a_retry_without_delay_is_claimable_immediately_and_notifies_workers(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_RETRY);
	s.error = "e";
	struct kit_heard heard;
	assert_int_equal(kit_exchange(k, &s, &heard).lost, SL_LOST_NOT);
	assert_true(kit_notes(&heard, SL_NOTE_JOB_SCHEDULED, "t", 0) >= 1);
	struct kit_job job = kit_claim_one(k, "t", &claim);
	assert_int_equal(job.id, id);
	assert_int_equal(job.attempt, 2);
}

static void a_retry_at_a_time_is_due_then(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_RETRY);
	s.error = "e";
	s.at_ms = kit_now(k) + 20;
	assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_NOT);
	kit_pass_ms(k, 25);
	assert_int_equal(kit_claim_one(k, "t", &claim).id, id);
}

static void a_failed_job_is_final_and_ends_its_chain(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	kit_fail(k, &claim, 0);
	struct kit_chain chain;
	kit_get_chain(k, id, &chain);
	assert_int_equal(chain.chain.status, SL_JOB_FAILED);
	assert_string_equal(chain.error, "failed for good");
	assert_null(chain.chain.output);
	assert_true(chain.chain.ended_ms > 0);
	kit_claim(k, "t", 5, 0, &claim);
	assert_int_equal(claim.n, 0);
}

static void a_reschedule_is_not_charged(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	struct kit_row row;
	for (int batch = 0; batch < 2; batch++) {
		if (batch)
			kit_start_job(k, &(struct sl_new_job){.type = "t", .priority = 9});
		kit_claim(k, "t", batch ? 2 : 1, 0, &claim);
		assert_int_equal(claim.jobs[0].id, id);
		assert_int_equal(claim.jobs[0].charged, 0);
		struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_RESCHEDULE);
		s.delay_ms = 10;
		assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_NOT);
		kit_get(k, id, &row);
		assert_int_equal(row.job.attempt, claim.jobs[0].attempt);
		assert_int_equal(row.job.status, SL_JOB_PENDING);
		assert_null(row.job.error);
		kit_pass_ms(k, 11);
	}
	char outcomes[KIT_MAX];
	kit_outcomes(k, id, outcomes);
	assert_string_equal(outcomes, "ss");
}

static void a_release_is_back_at_once_uncharged_and_without_history(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	for (int batch = 0; batch < 2; batch++) {
		if (batch)
			kit_start_job(k, &(struct sl_new_job){.type = "t", .priority = 9});
		kit_claim(k, "t", batch ? 2 : 1, 0, &claim);
		assert_int_equal(claim.jobs[0].id, id);
		struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_RELEASE);
		struct kit_heard heard;
		assert_int_equal(kit_exchange(k, &s, &heard).lost, SL_LOST_NOT);
		assert_true(kit_notes(&heard, SL_NOTE_JOB_SCHEDULED, "t", 0) >= 1);
		struct kit_row row;
		kit_get(k, id, &row);
		assert_int_equal(row.job.attempt, 0);
		assert_int_equal(row.job.status, SL_JOB_PENDING);
	}
	char outcomes[KIT_MAX];
	kit_outcomes(k, id, outcomes);
	assert_string_equal(outcomes, "");
	assert_int_equal(kit_claim_one(k, "t", &claim).id, id);
}

static void settling_and_claiming_go_together_in_one_exchange(void **state)
{
	struct kit *k = *state;
	uint64_t first = kit_start(k, "t"), second = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_COMPLETE);
	struct sl_settle_result result = {.lost = 99};
	struct sl_claim_type types = {.type = "t", .limit = 10};
	struct sl_claim_request r = {
		.claim = {{7}}, .worker = "w", .types = &types, .n_types = 1, .limit = 10, .lease_ms = KIT_LONG_MS};
	struct sl_claim_reply reply;
	KIT_OK(k->ops->exchange(k->s,
				&(struct sl_exchange){.settles = &s,
						      .n_settles = 1,
						      .results = &result,
						      .request = &r,
						      .reply = &reply,
						      .claimed = kit_noop_claimed},
				NULL, err));
	assert_int_equal(result.lost, SL_LOST_NOT);
	assert_int_equal(reply.n, 1);
	assert_int_equal(kit_status(k, first), SL_JOB_COMPLETED);
	assert_int_equal(kit_status(k, second), SL_JOB_RUNNING);
}

static void what_a_settle_puts_back_can_be_claimed_in_the_same_exchange(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_RETRY);
	s.error = "e";
	struct sl_settle_result result;
	struct sl_claim_type types = {.type = "t", .limit = 1};
	struct sl_claim_request r = {
		.claim = {{8}}, .worker = "w2", .types = &types, .n_types = 1, .limit = 1, .lease_ms = KIT_LONG_MS};
	struct sl_claim_reply reply;
	KIT_OK(k->ops->exchange(k->s,
				&(struct sl_exchange){.settles = &s,
						      .n_settles = 1,
						      .results = &result,
						      .request = &r,
						      .reply = &reply,
						      .claimed = kit_noop_claimed},
				NULL, err));
	assert_int_equal(reply.n, 1);
	struct kit_row row;
	kit_get(k, id, &row);
	assert_int_equal(row.job.status, SL_JOB_RUNNING);
	assert_string_equal(row.leased_by, "w2");
	assert_int_equal(row.job.attempt, 2);
}

/* ---- the fence ---- */

/* A settle of each kind with this claim finds the job lost for this reason, and changes nothing. */
static void expect_stale(struct kit *k, const struct kit_claim *claim, enum sl_lost_reason reason)
{
	uint64_t id = claim->jobs[0].id;
	bool there = reason != SL_LOST_NOT_FOUND;
	struct kit_row before, after;
	struct kit_ids jobs, jobs_after;
	kit_list(k, &(struct sl_job_filter){0}, &jobs);
	if (there)
		kit_get(k, id, &before);
	struct sl_new_job next = {.type = "next"};
	for (int kind = SL_SETTLE_COMPLETE; kind <= SL_SETTLE_RELEASE; kind++) {
		struct sl_settle s = kit_settle(claim, 0, (enum sl_settle_kind)kind);
		s.last_of_claim = 0;
		s.output = "\"stale\"";
		s.error = "stale";
		s.progress = "\"stale\"";
		s.next = &next;
		struct kit_heard heard;
		struct sl_settle_result result = kit_exchange(k, &s, &heard);
		assert_int_equal(result.lost, reason);
		assert_int_equal(result.next_id, 0);
		assert_int_equal(result.chain_ended, 0);
		assert_int_equal(heard.n_notes, 0);
	}
	kit_list(k, &(struct sl_job_filter){0}, &jobs_after);
	assert_int_equal(jobs_after.n, jobs.n);
	if (!there)
		return;
	kit_get(k, id, &after);
	assert_int_equal(after.job.status, before.job.status);
	assert_int_equal(after.job.attempt, before.job.attempt);
	assert_int_equal(after.job.ended_ms, before.job.ended_ms);
	assert_int_equal(after.job.leased_until_ms, before.job.leased_until_ms);
	assert_string_equal(after.output, before.output);
	assert_string_equal(after.error, before.error);
	assert_string_equal(after.progress, before.progress);
	assert_string_equal(after.leased_by, before.leased_by);
}

static void a_settle_after_a_reap_is_refused_as_taken(void **state)
{
	struct kit *k = *state;
	kit_start(k, "t");
	struct kit_claim claim, next;
	kit_claim_expired(k, "t", 1, &claim);
	assert_int_equal(kit_reap(k, "t", NULL), 1);
	expect_stale(k, &claim, SL_LOST_TAKEN); /* while it waits */
	kit_claim_one(k, "t", &next);
	expect_stale(k, &claim, SL_LOST_TAKEN); /* while another worker has it */
	kit_complete(k, &next, 0, "\"right\"");
	expect_stale(k, &claim, SL_LOST_TAKEN); /* and when that one has completed it: it is not ours */
}

static void a_settle_after_another_worker_failed_the_job_is_refused_as_taken(void **state)
{
	struct kit *k = *state;
	kit_start(k, "t");
	struct kit_claim claim, next;
	kit_claim_expired(k, "t", 1, &claim);
	assert_int_equal(kit_reap(k, "t", NULL), 1);
	kit_claim_one(k, "t", &next);
	kit_fail(k, &next, 0);
	expect_stale(k, &claim, SL_LOST_TAKEN);
}

static void a_settle_after_a_cancel_is_refused_as_cancelled(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	size_t n;
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&id, 1}, NULL, &n, err));
	expect_stale(k, &claim, SL_LOST_CANCELLED);
	KIT_OK(k->ops->redrive(k->s, (struct sl_ids){&id, 1}, NULL, &n, err));
	expect_stale(k, &claim, SL_LOST_TAKEN); /* alive again, but not ours */
}

static void a_settle_after_a_completion_from_outside_is_refused_as_completed(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	KIT_OK(k->ops->complete_chain(k->s, id, "\"outside\"", NULL, err));
	expect_stale(k, &claim, SL_LOST_COMPLETED);
}

static void a_settle_after_a_deletion_is_refused_as_not_found(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	kit_start(k, "other");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	size_t n;
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){&id, 1}, false, NULL, &n, err));
	expect_stale(k, &claim, SL_LOST_NOT_FOUND);
}

/* The worker that puts the job back may be gone by the time it is due. */
static void a_delayed_retry_notifies_other_workers(void **state)
{
	struct kit *k = *state;
	static const enum sl_settle_kind kinds[] = {SL_SETTLE_RETRY, SL_SETTLE_RESCHEDULE};
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		uint64_t id = kit_start(k, "t");
		struct kit_claim claim;
		struct kit_heard heard;
		kit_claim_one(k, "t", &claim);
		struct sl_settle s = kit_settle(&claim, 0, kinds[i]);
		s.delay_ms = 3600000;
		s.error = "broken";
		assert_int_equal(kit_exchange(k, &s, &heard).lost, SL_LOST_NOT);
		assert_int_equal(kit_notes(&heard, SL_NOTE_JOB_SCHEDULED, "t", id), 1);
		assert_int_equal(kit_changes(&heard, SL_CHANGE_SCHEDULED, id), 1);
	}
}

/* A worker that did not hear the answer sends it again, and must know its own work from another's. */
static void a_settle_that_is_sent_twice_is_reported_as_already_applied(void **state)
{
	struct kit *k = *state;
	static const struct {
		enum sl_settle_kind kind;
		enum sl_lost_reason why;
	} rows[] = {{SL_SETTLE_COMPLETE, SL_LOST_COMPLETED},
		    {SL_SETTLE_FAIL, SL_LOST_FAILED},
		    {SL_SETTLE_RETRY, SL_LOST_PUT_BACK},
		    {SL_SETTLE_RELEASE, SL_LOST_PUT_BACK},
		    {SL_SETTLE_RESCHEDULE, SL_LOST_PUT_BACK}};
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		kit_start(k, "t");
		struct kit_claim claim;
		kit_claim_one(k, "t", &claim);
		struct sl_settle s = kit_settle(&claim, 0, rows[i].kind);
		s.delay_ms = rows[i].kind == SL_SETTLE_RELEASE ? 0 : 3600000;
		s.error = rows[i].kind == SL_SETTLE_FAIL || rows[i].kind == SL_SETTLE_RETRY ? "broken" : NULL;
		assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_NOT);
		assert_int_equal(kit_exchange(k, &s, NULL).lost, rows[i].why);
		if (rows[i].kind == SL_SETTLE_RELEASE) {
			kit_claim_one(k, "t", &claim); /* out of the way of the next */
			s = kit_settle(&claim, 0, SL_SETTLE_COMPLETE);
			assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_NOT);
		}
	}
}

static void a_settle_that_is_sent_twice_counts_once(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	struct sl_new_job next = {.type = "next"};
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_CONTINUE);
	s.next = &next;
	assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_NOT);
	assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_COMPLETED);
	struct kit_ids jobs;
	kit_list(k, &(struct sl_job_filter){.chain_id = id}, &jobs);
	assert_int_equal(jobs.n, 2);
	struct kit_claim retried;
	kit_claim_one(k, "next", &retried);
	s = kit_settle(&retried, 0, SL_SETTLE_RETRY);
	s.error = "e";
	assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_NOT);
	assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_PUT_BACK);
	struct kit_row row;
	kit_get(k, retried.jobs[0].id, &row);
	assert_int_equal(row.job.attempt, 1);
}

static void a_settle_with_a_wrong_fence_changes_nothing(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_COMPLETE);
	s.fence++;
	s.last_of_claim = 0;
	assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_TAKEN);
	assert_int_equal(kit_status(k, id), SL_JOB_RUNNING);
	kit_complete(k, &claim, 0, NULL);
}

static void a_late_settle_counts_when_no_other_worker_has_claimed_the_job(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_expired(k, "t", 1, &claim);
	kit_complete(k, &claim, 0, "1");
	assert_int_equal(kit_status(k, id), SL_JOB_COMPLETED);
	assert_int_equal(kit_reap(k, "t", NULL), 0);
}

static void one_stale_member_does_not_hold_up_its_batch(void **state)
{
	struct kit *k = *state;
	enum { N = 6 };
	uint64_t ids[N];
	for (size_t i = 0; i < N; i++)
		ids[i] = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim(k, "t", N, 0, &claim);
	size_t n;
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&ids[2], 1}, NULL, &n, err));
	struct sl_new_job next = {.type = "next"};
	struct sl_settle s[N];
	/* In reverse order: results must match their settles by position, not by id. */
	for (size_t i = 0; i < N; i++) {
		static const enum sl_settle_kind kinds[N] = {SL_SETTLE_COMPLETE, SL_SETTLE_CONTINUE, SL_SETTLE_COMPLETE,
							     SL_SETTLE_RETRY,    SL_SETTLE_FAIL,     SL_SETTLE_RELEASE};
		s[N - 1 - i] = kit_settle(&claim, i, kinds[i]);
		s[N - 1 - i].next = &next;
		s[N - 1 - i].error = "e";
		s[N - 1 - i].output = "1";
	}
	s[N - 1].last_of_claim = 1;
	struct sl_settle_result results[N];
	KIT_OK(k->ops->exchange(k->s, &(struct sl_exchange){.settles = s, .n_settles = N, .results = results}, NULL,
				err));
	for (size_t i = 0; i < N; i++) {
		assert_int_equal(results[N - 1 - i].lost, i == 2 ? SL_LOST_CANCELLED : SL_LOST_NOT);
		assert_int_equal(results[N - 1 - i].next_id != 0, i == 1);
		assert_int_equal(results[N - 1 - i].chain_ended, i == 0);
	}
	static const enum sl_job_status want[N] = {SL_JOB_COMPLETED, SL_JOB_COMPLETED, SL_JOB_CANCELLED,
						   SL_JOB_PENDING,   SL_JOB_FAILED,    SL_JOB_PENDING};
	for (size_t i = 0; i < N; i++)
		assert_int_equal(kit_status(k, ids[i]), want[i]);
}

static void a_guard_reports_whether_the_job_is_still_ours(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	struct kit_job job = kit_claim_one(k, "t", &claim);
	enum sl_lost_reason why = 99;
	KIT_OK(k->ops->guard(k->s, NULL, id, job.fence, &why, err));
	assert_int_equal(why, SL_LOST_NOT);
	KIT_OK(k->ops->guard(k->s, NULL, id, job.fence + 1, &why, err));
	assert_int_equal(why, SL_LOST_TAKEN);
	size_t n;
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&id, 1}, NULL, &n, err));
	KIT_OK(k->ops->guard(k->s, NULL, id, job.fence, &why, err));
	assert_int_equal(why, SL_LOST_CANCELLED);
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){&id, 1}, false, NULL, &n, err));
	KIT_OK(k->ops->guard(k->s, NULL, id, job.fence, &why, err));
	assert_int_equal(why, SL_LOST_NOT_FOUND);
}

static void progress_is_kept_while_the_job_is_ours_and_refused_after(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	struct kit_job job = kit_claim_one(k, "t", &claim);
	enum sl_lost_reason why = 99;
	KIT_OK(k->ops->progress(k->s, id, job.fence, "{\"done\":1}", &why, err));
	assert_int_equal(why, SL_LOST_NOT);
	KIT_OK(k->ops->progress(k->s, id, job.fence, "{\"done\":2}", &why, err));
	struct kit_row row;
	kit_get(k, id, &row);
	assert_string_equal(row.progress, "{\"done\":2}");
	KIT_OK(k->ops->complete_chain(k->s, id, "1", NULL, err));
	KIT_OK(k->ops->progress(k->s, id, job.fence, "{\"done\":3}", &why, err));
	assert_int_equal(why, SL_LOST_COMPLETED);
	kit_get(k, id, &row);
	assert_string_equal(row.progress, "{\"done\":2}");
}

/* ---- history ---- */

struct records {
	size_t n;
	struct sl_attempt_record r[16];
	char workers[16][32], errors[16][64];
};

static int keep_record(const struct sl_attempt_record *a, void *ctx)
{
	struct records *r = ctx;
	KIT_TRUE(r->n < 16);
	r->r[r->n] = *a;
	strncpy(r->workers[r->n], a->worker != NULL ? a->worker : "", 31);
	strncpy(r->errors[r->n], a->error != NULL ? a->error : "", 63);
	r->n++;
	return 0;
}

static void the_history_has_every_attempt(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim first, second, third;
	kit_claim_one(k, "t", &first);
	kit_retry(k, &first, 0, 0);
	kit_claim_expired(k, "t", 1, &second);
	assert_int_equal(kit_reap(k, "t", NULL), 1);
	kit_claim_one(k, "t", &third);
	struct records rs;
	memset(&rs, 0, sizeof(rs));
	KIT_OK(k->ops->attempts(k->s, id, keep_record, &rs, err));
	assert_int_equal(rs.n, 3);
	assert_int_equal(rs.r[0].outcome, SL_ATTEMPT_FAILED);
	assert_int_equal(rs.r[0].attempt, 1);
	assert_string_equal(rs.workers[0], first.worker);
	assert_string_equal(rs.errors[0], "failed once");
	assert_true(rs.r[0].ended_ms >= rs.r[0].started_ms && rs.r[0].started_ms > 0);
	assert_int_equal(rs.r[1].outcome, SL_ATTEMPT_REAPED);
	assert_int_equal(rs.r[1].attempt, 2);
	assert_string_equal(rs.workers[1], second.worker);
	assert_int_equal(rs.r[2].outcome, SL_ATTEMPT_RUNNING);
	assert_int_equal(rs.r[2].attempt, 3);
	assert_string_equal(rs.workers[2], third.worker);
	assert_int_equal(rs.r[2].ended_ms, 0);
	kit_complete(k, &third, 0, "1");
	memset(&rs, 0, sizeof(rs));
	KIT_OK(k->ops->attempts(k->s, id, keep_record, &rs, err));
	assert_int_equal(rs.n, 3);
	assert_int_equal(rs.r[2].outcome, SL_ATTEMPT_COMPLETED);
	assert_int_equal(rs.r[2].attempt, 3);
	assert_string_equal(rs.workers[2], third.worker);
	assert_true(rs.r[2].ended_ms > 0);
}

static void a_job_that_runs_in_a_batch_shows_its_attempt(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	kit_start(k, "t");
	struct kit_claim claim;
	kit_claim(k, "t", 2, 0, &claim);
	struct records rs = {0};
	KIT_OK(k->ops->attempts(k->s, id, keep_record, &rs, err));
	assert_int_equal(rs.n, 1);
	assert_int_equal(rs.r[0].outcome, SL_ATTEMPT_RUNNING);
	assert_int_equal(rs.r[0].attempt, 1);
	assert_string_equal(rs.workers[0], claim.worker);
}

static void a_final_failure_and_an_abort_are_in_the_history(void **state)
{
	struct kit *k = *state;
	uint64_t failed = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	kit_fail(k, &claim, 0);
	char outcomes[KIT_MAX];
	kit_outcomes(k, failed, outcomes);
	assert_string_equal(outcomes, "f");
	uint64_t cancelled = kit_start(k, "t"), completed = kit_start(k, "u"), never = kit_start(k, "v");
	kit_claim_one(k, "t", &claim);
	kit_claim_one(k, "u", &claim);
	size_t n;
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){(uint64_t[]){cancelled, never}, 2}, NULL, &n, err));
	KIT_OK(k->ops->complete_chain(k->s, completed, "1", NULL, err));
	kit_outcomes(k, cancelled, outcomes);
	assert_string_equal(outcomes, "a");
	kit_outcomes(k, completed, outcomes);
	assert_int_equal(outcomes[0], 'a');
	kit_outcomes(k, never, outcomes);
	assert_string_equal(outcomes, "");
	KIT_FAILS(SL_ENOENT, k->ops->attempts(k->s, never + 1000, keep_record, NULL, err));
}

static void the_history_has_the_reason_and_the_attempt_number(void **state)
{
	struct kit *k = *state;
	uint64_t ids[3] = {kit_start(k, "t"), kit_start(k, "t"), kit_start(k, "t")};
	struct kit_claim claim;
	kit_claim(k, "t", 3, 0, &claim); /* a batch: not charged yet */
	size_t n;
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&ids[0], 1}, NULL, &n, err));
	KIT_OK(k->ops->complete_chain(k->s, ids[1], "1", NULL, err));
	struct sl_settle s = kit_settle(&claim, 2, SL_SETTLE_RELEASE);
	s.started_ms = 1000; /* its handler was aborted by a shutdown */
	assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_NOT);
	static const struct {
		enum sl_attempt_outcome outcome;
		const char *error;
	} want[3] = {{SL_ATTEMPT_ABORTED, "cancelled"},
		     {SL_ATTEMPT_ABORTED, "completed from outside"},
		     {SL_ATTEMPT_RELEASED, ""}};
	for (size_t i = 0; i < 3; i++) {
		struct records rs = {0};
		KIT_OK(k->ops->attempts(k->s, ids[i], keep_record, &rs, err));
		assert_true(rs.n >= 1);
		assert_int_equal(rs.r[0].outcome, want[i].outcome);
		assert_int_equal(rs.r[0].attempt, 1);
		assert_string_equal(rs.errors[0], want[i].error);
		assert_string_equal(rs.workers[0], claim.worker);
	}
}

/* ---- what a job shows of its attempts ---- */

/* The error that the job and its chain show; NULL: none. */
static void expect_error(struct kit *k, uint64_t id, const char *error)
{
	struct kit_row row;
	struct kit_chain chain;
	kit_get(k, id, &row);
	kit_get_chain(k, row.job.chain_id, &chain);
	assert_int_equal(row.job.error != NULL, error != NULL);
	if (error != NULL)
		assert_string_equal(row.error, error);
	if (chain.chain.last_id == id)
		assert_string_equal(chain.error, row.error);
}

/* The number, the start and the worker are those of one attempt. */
static void expect_last_attempt(struct kit *k, uint64_t id, int32_t attempt, int64_t started_ms, const char *worker)
{
	struct kit_row row;
	kit_get(k, id, &row);
	assert_int_equal(row.job.attempt, attempt);
	assert_int_equal(row.job.started_ms, started_ms);
	assert_string_equal(row.leased_by, worker);
}

static void fail_once(struct kit *k, const char *type, int64_t delay_ms, struct kit_claim *claim)
{
	kit_claim_one(k, type, claim);
	kit_retry(k, claim, 0, delay_ms);
}

static void a_completed_job_does_not_show_the_error_of_an_earlier_attempt(void **state)
{
	struct kit *k = *state;
	struct kit_claim claim;
	struct sl_new_job next = {.type = "next"};
	uint64_t completed = kit_start(k, "t");
	fail_once(k, "t", 0, &claim);
	expect_error(k, completed, "failed once");
	kit_run(k, "t", "1");
	expect_error(k, completed, NULL);
	uint64_t continued = kit_start(k, "t");
	fail_once(k, "t", 0, &claim);
	kit_claim_one(k, "t", &claim);
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_CONTINUE);
	s.next = &next;
	uint64_t last = kit_exchange(k, &s, NULL).next_id;
	expect_error(k, continued, NULL);
	fail_once(k, "next", 0, &claim);
	expect_error(k, last, "failed once");
	kit_run(k, "next", "2");
	expect_error(k, last, NULL);
	uint64_t outside = kit_start(k, "t");
	fail_once(k, "t", 0, &claim);
	KIT_OK(k->ops->complete_chain(k->s, outside, "3", NULL, err));
	expect_error(k, outside, NULL);
	struct records rs = {0};
	KIT_OK(k->ops->attempts(k->s, completed, keep_record, &rs, err));
	assert_string_equal(rs.errors[0], "failed once"); /* the history has it */
}

static void a_job_shows_the_error_of_its_last_failed_attempt_until_it_completes(void **state)
{
	struct kit *k = *state;
	struct kit_claim claim;
	size_t n;
	uint64_t id = kit_start(k, "t");
	fail_once(k, "t", 0, &claim);
	/* A reschedule and a release are not failures, whatever they say. */
	for (int kind = SL_SETTLE_RESCHEDULE; kind <= SL_SETTLE_RELEASE; kind++) {
		kit_claim_one(k, "t", &claim);
		struct sl_settle s = kit_settle(&claim, 0, (enum sl_settle_kind)kind);
		s.started_ms = claim.reply.now_ms;
		s.error = "not a failure";
		assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_NOT);
		expect_error(k, id, "failed once");
	}
	kit_claim_expired(k, "t", 1, &claim);
	assert_int_equal(kit_reap(k, "t", NULL), 1);
	expect_error(k, id, "failed once");
	kit_claim_one(k, "t", &claim);
	kit_fail(k, &claim, 0);
	expect_error(k, id, "failed for good");
	KIT_OK(k->ops->redrive(k->s, (struct sl_ids){&id, 1}, NULL, &n, err));
	expect_error(k, id, "failed for good");
	fail_once(k, "t", KIT_LONG_MS, &claim);
	KIT_OK(k->ops->trigger(k->s, (struct sl_ids){&id, 1}, NULL, &n, err));
	expect_error(k, id, "failed once");
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&id, 1}, NULL, &n, err));
	expect_error(k, id, "failed once");
	KIT_OK(k->ops->redrive(k->s, (struct sl_ids){&id, 1}, NULL, &n, err));
	KIT_OK(k->ops->fail_chain(k->s, id, "from outside", NULL, err));
	expect_error(k, id, "from outside");
	KIT_OK(k->ops->redrive(k->s, (struct sl_ids){&id, 1}, NULL, &n, err));
	kit_claim_one(k, "t", &claim);
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_RETRY);
	assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_NOT); /* it failed without a reason */
	expect_error(k, id, NULL);
}

static void a_settle_without_a_start_leaves_the_start_of_the_last_attempt(void **state)
{
	struct kit *k = *state;
	struct kit_claim first, claim;
	uint64_t id = kit_start(k, "t");
	struct kit_row row;
	kit_claim_one(k, "t", &claim);
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_RELEASE);
	assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_NOT);
	expect_last_attempt(k, id, 0, 0, claim.worker); /* it never ran */
	fail_once(k, "t", 0, &first);
	expect_last_attempt(k, id, first.jobs[0].attempt, first.reply.now_ms, first.worker);
	kit_pass_ms(k, 3);
	static const enum sl_settle_kind kinds[] = {SL_SETTLE_RELEASE, SL_SETTLE_FAIL};
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		kit_claim_one(k, "t", &claim);
		kit_get(k, id, &row);
		assert_true(row.job.started_ms > first.reply.now_ms); /* running */
		s = kit_settle(&claim, 0, kinds[i]);
		s.started_ms = 0;
		assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_NOT);
		expect_last_attempt(k, id, first.jobs[0].attempt, first.reply.now_ms, claim.worker);
	}
}

static void an_attempt_that_is_cut_short_is_the_last_attempt(void **state)
{
	struct kit *k = *state;
	struct kit_claim claim;
	struct kit_row row;
	size_t n;
	uint64_t id = kit_start(k, "t");
	fail_once(k, "t", 0, &claim);
	kit_pass_ms(k, 3);
	kit_claim_expired(k, "t", 1, &claim);
	kit_get(k, id, &row);
	assert_int_equal(kit_reap(k, "t", NULL), 1);
	expect_last_attempt(k, id, claim.jobs[0].attempt, row.job.started_ms, claim.worker);
	for (int end = 0; end < 3; end++) {
		kit_pass_ms(k, 3);
		kit_claim_one(k, "t", &claim);
		kit_get(k, id, &row);
		if (end == 0)
			KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&id, 1}, NULL, &n, err));
		else if (end == 1)
			KIT_OK(k->ops->fail_chain(k->s, id, "no", NULL, err));
		else
			KIT_OK(k->ops->complete_chain(k->s, id, "1", NULL, err));
		expect_last_attempt(k, id, claim.jobs[0].attempt, row.job.started_ms, claim.worker);
		KIT_OK(k->ops->redrive(k->s, (struct sl_ids){&id, 1}, NULL, &n, err));
		expect_last_attempt(k, id, claim.jobs[0].attempt, row.job.started_ms, claim.worker);
	}
	char outcomes[KIT_MAX];
	kit_outcomes(k, id, outcomes);
	assert_string_equal(outcomes, "fRaaa");
}

static void a_job_shows_when_it_became_due(void **state)
{
	struct kit *k = *state;
	struct kit_claim claim;
	struct kit_row row;
	size_t n;
	uint64_t id = kit_start_job(k, &(struct sl_new_job){.type = "t", .delay_ms = KIT_LONG_MS});
	int64_t before = kit_now(k);
	KIT_OK(k->ops->trigger(k->s, (struct sl_ids){&id, 1}, NULL, &n, err));
	kit_get(k, id, &row);
	assert_in_range(row.job.scheduled_ms, before, kit_now(k));
	int64_t due_ms = row.job.scheduled_ms;
	/* Lost with its worker, it is due as before; released, it is due again immediately. */
	kit_claim_expired(k, "t", 1, &claim);
	assert_int_equal(kit_reap(k, "t", NULL), 1);
	kit_get(k, id, &row);
	assert_int_equal(row.job.scheduled_ms, due_ms);
	kit_claim_one(k, "t", &claim);
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_RELEASE);
	assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_NOT);
	kit_get(k, id, &row);
	assert_int_equal(row.job.scheduled_ms, 0);
	assert_int_equal(kit_claim_one(k, "t", &claim).id, id);
	kit_retry(k, &claim, 0, 5);
	kit_pass_ms(k, 6);
	kit_run(k, "t", NULL);
	kit_get(k, id, &row);
	assert_true(row.job.scheduled_ms > due_ms);
}

/* ---- odd data ---- */

static void empty_and_strange_texts_come_back_as_they_were(void **state)
{
	struct kit *k = *state;
	static const char *const texts[] = {"",
					    " ",
					    "\"\\u0000\"",
					    "\"\\ud800\"",
					    "{\"k\":\"\xc3\xa4\xf0\x9f\x98\x80\"}",
					    "'; DROP TABLE job; --",
					    "$1 %s ?1 :a @b \\",
					    "\n\t\x01"};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		uint64_t id =
			kit_start_job(k, &(struct sl_new_job){.type = "t", .input = texts[i], .traceparent = texts[i]});
		struct kit_claim claim;
		kit_claim_one(k, "t", &claim);
		assert_string_equal(claim.jobs[0].input, texts[i]);
		struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_RETRY);
		s.error = texts[i];
		s.progress = texts[i];
		assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_NOT);
		struct kit_row row;
		kit_get(k, id, &row);
		assert_string_equal(row.error, texts[i]);
		assert_string_equal(row.progress, texts[i]);
		kit_claim_one(k, "t", &claim);
		kit_complete(k, &claim, 0, texts[i]);
		kit_get(k, id, &row);
		assert_non_null(row.job.input);
		assert_non_null(row.job.output);
		assert_string_equal(row.input, texts[i]);
		assert_string_equal(row.output, texts[i]);
	}
}

static void a_big_output_comes_back_whole(void **state)
{
	struct kit *k = *state;
	size_t size = k->f->big_output_bytes != 0 ? k->f->big_output_bytes : 10000000;
	char *big = malloc(size + 1);
	assert_non_null(big);
	memset(big, 'x', size);
	big[0] = big[size - 1] = '"';
	big[size] = '\0';
	uint64_t id = kit_start_job(k, &(struct sl_new_job){.type = "t", .input = big});
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	kit_complete(k, &claim, 0, big);
	struct kit_row row;
	kit_get(k, id, &row);
	assert_int_equal(row.output_len, size);
	free(big);
}

/* Stored, or refused as bad data; after it the store works, and the job can be settled. */
static void expect_stored_or_refused(struct kit *k, const char *bad)
{
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_RETRY);
	s.error = bad;
	struct sl_settle_result result;
	struct sl_err err = SL_ERR_INIT;
	int rc = k->ops->exchange(k->s, &(struct sl_exchange){.settles = &s, .n_settles = 1, .results = &result}, NULL,
				  &err);
	if (rc != 0) {
		assert_int_equal(rc, SL_EDATA);
		assert_int_equal(err.error_class, SL_CLASS_POISON);
		assert_int_equal(kit_status(k, id), SL_JOB_RUNNING);
		s.error = "refused";
		assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_NOT);
	} else {
		assert_int_equal(result.lost, SL_LOST_NOT);
	}
	kit_run(k, "t", "1");
	assert_int_equal(kit_status(k, id), SL_JOB_COMPLETED);
}

static void text_that_is_not_utf8_is_stored_or_refused_and_breaks_nothing(void **state)
{
	struct kit *k = *state;
	expect_stored_or_refused(k, "bad \xff\xfe bytes");
	expect_stored_or_refused(k, "cut \xe2\x82");
	expect_stored_or_refused(k, "surrogate \xed\xa0\x80");
}

static void a_bad_output_in_a_batch_fails_all_of_it_or_nothing(void **state)
{
	struct kit *k = *state;
	uint64_t ids[2] = {kit_start(k, "t"), kit_start(k, "t")};
	struct kit_claim claim;
	kit_claim(k, "t", 2, 0, &claim);
	struct sl_settle s[2] = {kit_settle(&claim, 0, SL_SETTLE_COMPLETE), kit_settle(&claim, 1, SL_SETTLE_COMPLETE)};
	s[0].output = "1";
	s[1].output = "\"\xff\"";
	struct sl_settle_result results[2];
	struct sl_err err = SL_ERR_INIT;
	int rc = k->ops->exchange(k->s, &(struct sl_exchange){.settles = s, .n_settles = 2, .results = results}, NULL,
				  &err);
	enum sl_job_status want = rc == 0 ? SL_JOB_COMPLETED : SL_JOB_RUNNING;
	if (rc != 0)
		assert_int_equal(err.error_class, SL_CLASS_POISON);
	assert_int_equal(kit_status(k, ids[0]), want);
	assert_int_equal(kit_status(k, ids[1]), want);
	if (rc != 0)
		kit_complete(k, &claim, 0, "1"); /* its batch-mate alone is fine */
}

static void the_store_recovers_after_its_database_was_unavailable(void **state)
{
	struct kit *k = *state;
	if (k->f->cut == NULL)
		return; /* not of this store; a skip of cmocka counts as a failure in TAP */
	uint64_t id = kit_start(k, "t");
	k->f->cut(k->f->ctx);
	int failures = 0;
	for (;; failures++) {
		struct sl_new_chain chain = {.job = {.type = "t"}};
		struct sl_started started;
		struct sl_err err = SL_ERR_INIT;
		int rc = k->ops->start(k->s, &chain, 1, NULL, &started, &err);
		if (rc == 0)
			break;
		assert_true(rc == SL_EUNAVAIL || rc == SL_EAGAIN);
		assert_int_equal(sl_err_retryable(&err), 1);
		assert_true(failures < 10000);
	}
	assert_int_equal(kit_status(k, id), SL_JOB_PENDING);
}

/* ---- the store's clock is set ---- */

#define HOUR_MS INT64_C(3600000)

/* Forwards: leases run out early. The job begins again under another claim, and the first one ends nothing. */
static void a_clock_that_is_set_forwards_costs_a_lease_and_no_job(void **state)
{
	struct kit *k = *state;
	struct kit_claim first, second;
	struct kit_row row;
	if (k->f->step_ms == NULL)
		return;
	uint64_t id = kit_start(k, "t");
	kit_claim(k, "t", 1, 60000, &first);
	assert_int_equal(first.n, 1);
	k->f->step_ms(HOUR_MS, k->f->ctx);
	assert_int_equal(kit_reap(k, "t", NULL), 1);
	kit_claim(k, "t", 1, 60000, &second);
	assert_int_equal(second.n, 1);
	assert_true(second.jobs[0].attempt > first.jobs[0].attempt);
	struct sl_settle late = kit_settle(&first, 0, SL_SETTLE_COMPLETE);
	late.output = "\"first\"";
	assert_int_not_equal(kit_exchange(k, &late, NULL).lost, SL_LOST_NOT);
	kit_complete(k, &second, 0, "\"second\"");
	kit_get(k, id, &row);
	assert_string_equal(row.job.output, "\"second\"");
}

/* Back: what runs is not disturbed, what is new is not kept waiting, and what is scheduled comes when the clock has
 * reached its time again. */
static void a_clock_that_is_set_back_disturbs_nothing_that_runs(void **state)
{
	struct kit *k = *state;
	struct kit_claim claim, other;
	if (k->f->step_ms == NULL)
		return;
	uint64_t id = kit_start(k, "t"), waiting = kit_start(k, "u");
	uint64_t later = kit_start_job(k, &(struct sl_new_job){.type = "v", .delay_ms = 1000});
	kit_claim(k, "t", 1, 60000, &claim);
	k->f->step_ms(-HOUR_MS, k->f->ctx);
	/* No other worker gets it, and its own ends it. */
	assert_int_equal(kit_reap(k, "t", NULL), 0);
	kit_claim(k, "t", 1, 60000, &other);
	assert_int_equal(other.n, 0);
	kit_complete(k, &claim, 0, "1");
	assert_int_equal(kit_status(k, id), SL_JOB_COMPLETED);
	/* Pending before the step, and started after it. */
	kit_run(k, "u", "2");
	assert_int_equal(kit_status(k, waiting), SL_JOB_COMPLETED);
	uint64_t fresh = kit_start(k, "t");
	kit_run(k, "t", "3");
	assert_int_equal(kit_status(k, fresh), SL_JOB_COMPLETED);
	k->f->step_ms(HOUR_MS, k->f->ctx);
	kit_pass_ms(k, 1001);
	kit_run(k, "v", "4");
	assert_int_equal(kit_status(k, later), SL_JOB_COMPLETED);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_completion_keeps_the_output_and_ends_the_chain),
	cmocka_unit_test(a_completed_job_is_never_claimed_again),
	cmocka_unit_test(a_retry_comes_back_after_its_delay_with_its_error),
	cmocka_unit_test(a_retry_without_delay_is_claimable_immediately_and_notifies_workers),
	cmocka_unit_test(a_retry_at_a_time_is_due_then),
	cmocka_unit_test(a_failed_job_is_final_and_ends_its_chain),
	cmocka_unit_test(a_reschedule_is_not_charged),
	cmocka_unit_test(a_release_is_back_at_once_uncharged_and_without_history),
	cmocka_unit_test(settling_and_claiming_go_together_in_one_exchange),
	cmocka_unit_test(what_a_settle_puts_back_can_be_claimed_in_the_same_exchange),
	cmocka_unit_test(a_settle_after_a_reap_is_refused_as_taken),
	cmocka_unit_test(a_settle_after_another_worker_failed_the_job_is_refused_as_taken),
	cmocka_unit_test(a_settle_after_a_cancel_is_refused_as_cancelled),
	cmocka_unit_test(a_settle_after_a_completion_from_outside_is_refused_as_completed),
	cmocka_unit_test(a_settle_after_a_deletion_is_refused_as_not_found),
	cmocka_unit_test(a_delayed_retry_notifies_other_workers),
	cmocka_unit_test(a_settle_that_is_sent_twice_is_reported_as_already_applied),
	cmocka_unit_test(a_settle_that_is_sent_twice_counts_once),
	cmocka_unit_test(a_settle_with_a_wrong_fence_changes_nothing),
	cmocka_unit_test(a_late_settle_counts_when_no_other_worker_has_claimed_the_job),
	cmocka_unit_test(one_stale_member_does_not_hold_up_its_batch),
	cmocka_unit_test(a_guard_reports_whether_the_job_is_still_ours),
	cmocka_unit_test(progress_is_kept_while_the_job_is_ours_and_refused_after),
	cmocka_unit_test(the_history_has_every_attempt),
	cmocka_unit_test(a_job_that_runs_in_a_batch_shows_its_attempt),
	cmocka_unit_test(a_final_failure_and_an_abort_are_in_the_history),
	cmocka_unit_test(the_history_has_the_reason_and_the_attempt_number),
	cmocka_unit_test(a_completed_job_does_not_show_the_error_of_an_earlier_attempt),
	cmocka_unit_test(a_job_shows_the_error_of_its_last_failed_attempt_until_it_completes),
	cmocka_unit_test(a_settle_without_a_start_leaves_the_start_of_the_last_attempt),
	cmocka_unit_test(an_attempt_that_is_cut_short_is_the_last_attempt),
	cmocka_unit_test(a_job_shows_when_it_became_due),
	cmocka_unit_test(empty_and_strange_texts_come_back_as_they_were),
	cmocka_unit_test(a_big_output_comes_back_whole),
	cmocka_unit_test(text_that_is_not_utf8_is_stored_or_refused_and_breaks_nothing),
	cmocka_unit_test(a_bad_output_in_a_batch_fails_all_of_it_or_nothing),
	cmocka_unit_test(the_store_recovers_after_its_database_was_unavailable),
	cmocka_unit_test(a_clock_that_is_set_forwards_costs_a_lease_and_no_job),
	cmocka_unit_test(a_clock_that_is_set_back_disturbs_nothing_that_runs),
};

CONTRACT_TESTS(contract_settle_tests, tests)
