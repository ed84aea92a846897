/* SPDX-License-Identifier: Apache-2.0 */
/* What clients do to chains: complete, fail, cancel, redrive, trigger, remove, prune, watch; recurring schedules. */
#include "jobs/contract_kit.h"

#include <stdio.h>

/* ---- completing from outside ---- */

static void a_chain_completed_from_outside_has_the_output_and_its_worker_is_notified(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	struct kit_heard heard;
	KIT_OK(k->ops->complete_chain(k->s, id, "\"outside\"", kit_hear(&heard), err));
	assert_int_equal(kit_notes(&heard, SL_NOTE_OWNERSHIP_LOST, NULL, id), 1);
	assert_int_equal(kit_lost_note(&heard, id), SL_LOST_COMPLETED);
	assert_int_equal(kit_changes(&heard, SL_CHANGE_COMPLETED, id), 1);
	assert_int_equal(kit_changes(&heard, SL_CHANGE_CHAIN_COMPLETED, 0), 1);
	struct kit_chain chain;
	kit_get_chain(k, id, &chain);
	assert_int_equal(chain.chain.status, SL_JOB_COMPLETED);
	assert_string_equal(chain.output, "\"outside\"");
	assert_true(chain.chain.ended_ms > 0);
}

static void a_chain_can_be_completed_in_every_state_that_is_not_final(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "a");
	uint64_t ids[3] = {kit_start(k, "t"), kit_start_after(k, "t", &a, 1),
			   kit_start_job(k, &(struct sl_new_job){.type = "t", .delay_ms = 5})};
	for (size_t i = 0; i < 3; i++) {
		struct kit_heard heard;
		KIT_OK(k->ops->complete_chain(k->s, ids[i], "1", kit_hear(&heard), err));
		assert_int_equal(kit_notes(&heard, SL_NOTE_OWNERSHIP_LOST, NULL, 0), 0); /* no worker had it */
		assert_int_equal(kit_status(k, ids[i]), SL_JOB_COMPLETED);
	}
	kit_pass_ms(k, 6);
	kit_run(k, "a", NULL); /* opens nothing that has ended */
	struct kit_claim claim;
	kit_claim(k, "t", 10, 0, &claim);
	assert_int_equal(claim.n, 0);
}

static void a_chain_that_has_ended_cannot_be_completed_again(void **state)
{
	struct kit *k = *state;
	uint64_t done = kit_start(k, "t");
	kit_run(k, "t", "\"first\"");
	KIT_FAILS(SL_EEXIST, k->ops->complete_chain(k->s, done, "\"second\"", NULL, err));
	struct kit_row row;
	kit_get(k, done, &row);
	assert_string_equal(row.output, "\"first\"");
	uint64_t cancelled = kit_start(k, "t");
	size_t n;
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&cancelled, 1}, NULL, &n, err));
	KIT_FAILS(SL_EEXIST, k->ops->complete_chain(k->s, cancelled, "1", NULL, err));
	KIT_FAILS(SL_ENOENT, k->ops->complete_chain(k->s, cancelled + 1000, "1", NULL, err));
}

/* ---- failing from outside ---- */

static void a_chain_failed_from_outside_has_the_error_and_its_worker_is_notified(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start_key(k, "once", SL_DEDUP_INCOMPLETE, 0).chain_id;
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	enum sl_job_status status;
	KIT_OK(k->ops->watch(k->s, id, &status, err));
	struct kit_heard heard;
	KIT_OK(k->ops->fail_chain(k->s, id, "the target is gone", kit_hear(&heard), err));
	assert_int_equal(kit_notes(&heard, SL_NOTE_OWNERSHIP_LOST, NULL, id), 1);
	assert_int_equal(kit_lost_note(&heard, id), SL_LOST_FAILED);
	assert_int_equal(kit_notes(&heard, SL_NOTE_CHAIN_ENDED, NULL, id), 1);
	assert_int_equal(kit_changes(&heard, SL_CHANGE_FAILED, id), 1);
	assert_int_equal(heard.n_changes, 1);
	struct kit_chain chain;
	struct kit_row row;
	char outcomes[KIT_MAX];
	kit_get_chain(k, id, &chain);
	assert_int_equal(chain.chain.status, SL_JOB_FAILED);
	assert_string_equal(chain.error, "the target is gone");
	assert_null(chain.chain.output);
	kit_get(k, id, &row);
	assert_true(row.job.ended_ms > 0);
	assert_int_equal(row.job.leased_until_ms, 0);
	kit_outcomes(k, id, outcomes);
	assert_string_equal(outcomes, "a");
	assert_int_equal(kit_start_key(k, "once", SL_DEDUP_INCOMPLETE, 0).deduplicated, 0); /* the key is free */
}

static void a_settle_after_a_failure_from_outside_is_refused_as_failed(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	KIT_OK(k->ops->fail_chain(k->s, id, "no", NULL, err));
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_COMPLETE);
	s.last_of_claim = 0;
	s.output = "\"stale\"";
	assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_FAILED);
	enum sl_lost_reason why = SL_LOST_NOT;
	KIT_OK(k->ops->guard(k->s, NULL, id, claim.jobs[0].fence, &why, err));
	assert_int_equal(why, SL_LOST_FAILED);
	KIT_OK(k->ops->progress(k->s, id, claim.jobs[0].fence, "1", &why, err));
	assert_int_equal(why, SL_LOST_FAILED);
	assert_int_equal(kit_status(k, id), SL_JOB_FAILED);
	size_t n;
	KIT_OK(k->ops->redrive(k->s, (struct sl_ids){&id, 1}, NULL, &n, err));
	assert_int_equal(n, 1);
	assert_int_equal(kit_exchange(k, &s, NULL).lost, SL_LOST_TAKEN); /* alive again, but not ours */
	kit_run(k, "t", "\"right\"");
}

static void a_chain_can_be_failed_in_every_state_that_is_not_final(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "a");
	uint64_t ids[3] = {kit_start(k, "t"), kit_start_after(k, "t", &a, 1),
			   kit_start_job(k, &(struct sl_new_job){.type = "t", .delay_ms = 5})};
	for (size_t i = 0; i < 3; i++) {
		struct kit_heard heard;
		struct kit_row row;
		KIT_OK(k->ops->fail_chain(k->s, ids[i], NULL, kit_hear(&heard), err));
		assert_int_equal(kit_notes(&heard, SL_NOTE_OWNERSHIP_LOST, NULL, 0), 0); /* no worker had it */
		kit_get(k, ids[i], &row);
		assert_int_equal(row.job.status, SL_JOB_FAILED);
		assert_string_equal(row.error, "failed from outside");
	}
	kit_pass_ms(k, 6);
	kit_run(k, "a", NULL); /* opens nothing that has ended */
	struct kit_claim claim;
	kit_claim(k, "t", 10, 0, &claim);
	assert_int_equal(claim.n, 0);
}

static void a_chain_fails_from_outside_at_its_last_job_and_its_dependents_stay_blocked(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t"), waits = kit_start_after(k, "w", &id, 1);
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	struct sl_new_job next = {.type = "next"};
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_CONTINUE);
	s.next = &next;
	uint64_t last = kit_exchange(k, &s, NULL).next_id;
	KIT_OK(k->ops->fail_chain(k->s, id, "at the second", NULL, err));
	assert_int_equal(kit_status(k, id), SL_JOB_COMPLETED);
	assert_int_equal(kit_status(k, last), SL_JOB_FAILED);
	assert_int_equal(kit_status(k, waits), SL_JOB_BLOCKED);
	struct kit_chain chain;
	kit_get_chain(k, id, &chain);
	assert_int_equal(chain.chain.status, SL_JOB_FAILED);
	size_t n;
	KIT_OK(k->ops->redrive(k->s, (struct sl_ids){&id, 1}, NULL, &n, err));
	kit_run(k, "next", NULL);
	assert_int_equal(kit_status(k, waits), SL_JOB_PENDING);
}

static void a_chain_that_has_ended_cannot_be_failed(void **state)
{
	struct kit *k = *state;
	uint64_t done = kit_start(k, "t");
	kit_run(k, "t", "\"first\"");
	KIT_FAILS(SL_EEXIST, k->ops->fail_chain(k->s, done, "late", NULL, err));
	assert_int_equal(kit_status(k, done), SL_JOB_COMPLETED);
	uint64_t failed = kit_start(k, "t");
	KIT_OK(k->ops->fail_chain(k->s, failed, "one", NULL, err));
	KIT_FAILS(SL_EEXIST, k->ops->fail_chain(k->s, failed, "two", NULL, err));
	struct kit_row row;
	kit_get(k, failed, &row);
	assert_string_equal(row.error, "one");
	KIT_FAILS(SL_ENOENT, k->ops->fail_chain(k->s, failed + 1000, "none", NULL, err));
}

static void a_failure_from_outside_that_is_rolled_back_has_not_happened(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	sl_store_tx *tx = NULL;
	KIT_OK(k->ops->begin(k->s, &tx, err));
	KIT_OK(k->ops->fail_chain(k->s, id, "no", &(struct sl_store_scope){.tx = tx}, err));
	k->ops->rollback(tx);
	assert_int_equal(kit_status(k, id), SL_JOB_PENDING);
	kit_run(k, "t", NULL);
}

/* ---- cancel ---- */

static void a_cancelled_chain_is_final_and_its_worker_is_notified(void **state)
{
	struct kit *k = *state;
	uint64_t running = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	uint64_t a = kit_start(k, "a");
	uint64_t ids[4] = {running, kit_start(k, "t"), kit_start_after(k, "t", &a, 1),
			   kit_start_job(k, &(struct sl_new_job){.type = "t", .delay_ms = 5})};
	struct kit_heard heard;
	size_t n = 0;
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){ids, 4}, kit_hear(&heard), &n, err));
	assert_int_equal(n, 4);
	assert_int_equal(kit_notes(&heard, SL_NOTE_OWNERSHIP_LOST, NULL, 0), 1);
	assert_int_equal(kit_lost_note(&heard, running), SL_LOST_CANCELLED);
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(kit_changes(&heard, SL_CHANGE_CANCELLED, ids[i]), 1);
		assert_int_equal(kit_status(k, ids[i]), SL_JOB_CANCELLED);
	}
	kit_pass_ms(k, 6);
	kit_claim(k, "t", 10, 0, &claim);
	assert_int_equal(claim.n, 0);
	assert_int_equal(kit_reap(k, "t", NULL), 0);
}

static void cancel_skips_what_has_ended(void **state)
{
	struct kit *k = *state;
	uint64_t done = kit_start(k, "t");
	kit_run(k, "t", "1");
	uint64_t ids[2] = {done, kit_start(k, "t")};
	size_t n = 0;
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){ids, 2}, NULL, &n, err));
	assert_int_equal(n, 1);
	assert_int_equal(kit_status(k, done), SL_JOB_COMPLETED);
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){ids, 2}, NULL, &n, err));
	assert_int_equal(n, 0);
}

static void an_unknown_chain_fails_the_whole_call(void **state)
{
	struct kit *k = *state;
	uint64_t live = kit_start(k, "t"),
		 later = kit_start_job(k, &(struct sl_new_job){.type = "u", .delay_ms = 50000});
	uint64_t failed = kit_start(k, "f");
	struct kit_claim claim;
	kit_claim_one(k, "f", &claim);
	kit_fail(k, &claim, 0);
	uint64_t unknown = failed + 1000;
	size_t n = 0;
	KIT_FAILS(SL_ENOENT, k->ops->cancel(k->s, (struct sl_ids){(uint64_t[]){live, unknown}, 2}, NULL, &n, err));
	KIT_FAILS(SL_ENOENT, k->ops->redrive(k->s, (struct sl_ids){(uint64_t[]){failed, unknown}, 2}, NULL, &n, err));
	KIT_FAILS(SL_ENOENT, k->ops->trigger(k->s, (struct sl_ids){(uint64_t[]){later, unknown}, 2}, NULL, &n, err));
	KIT_FAILS(SL_ENOENT,
		  k->ops->remove(k->s, (struct sl_ids){(uint64_t[]){live, unknown}, 2}, false, NULL, &n, err));
	assert_int_equal(kit_status(k, live), SL_JOB_PENDING);
	assert_int_equal(kit_status(k, failed), SL_JOB_FAILED);
	kit_claim(k, "u", 1, 0, &claim);
	assert_int_equal(claim.n, 0);
}

/* ---- redrive and trigger ---- */

static void a_redriven_chain_resumes_at_its_last_job_with_nothing_charged(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "a");
	struct kit_claim claim;
	kit_claim_one(k, "a", &claim);
	struct sl_new_job next = {.type = "b"};
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_CONTINUE);
	s.next = &next;
	uint64_t second = kit_exchange(k, &s, NULL).next_id;
	kit_claim_one(k, "b", &claim);
	kit_fail(k, &claim, 0);
	struct kit_heard heard;
	size_t n = 0;
	KIT_OK(k->ops->redrive(k->s, (struct sl_ids){&id, 1}, kit_hear(&heard), &n, err));
	assert_int_equal(n, 1);
	assert_true(kit_notes(&heard, SL_NOTE_JOB_SCHEDULED, "b", 0) >= 1);
	struct kit_row row;
	kit_get(k, second, &row);
	assert_int_equal(row.job.status, SL_JOB_PENDING);
	assert_int_equal(row.job.ended_ms, 0);
	struct kit_chain chain;
	kit_get_chain(k, id, &chain);
	assert_int_equal(chain.chain.status, SL_JOB_PENDING);
	assert_int_equal(chain.chain.ended_ms, 0);
	struct kit_job job = kit_claim_one(k, "b", &claim);
	assert_int_equal(job.id, second);
	assert_int_equal(claim.jobs[0].charged, 0);
	char outcomes[KIT_MAX];
	kit_outcomes(k, second, outcomes);
	assert_string_equal(outcomes, "fr"); /* the history stays */
	kit_complete(k, &claim, 0, "1");
	kit_get_chain(k, id, &chain);
	assert_int_equal(chain.chain.status, SL_JOB_COMPLETED);
}

static void redrive_skips_what_runs_waits_or_has_completed(void **state)
{
	struct kit *k = *state;
	uint64_t done = kit_start(k, "t");
	kit_run(k, "t", "1");
	uint64_t running = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	uint64_t waiting = kit_start(k, "t");
	size_t n = 99;
	KIT_OK(k->ops->redrive(k->s, (struct sl_ids){(uint64_t[]){done, running, waiting}, 3}, NULL, &n, err));
	assert_int_equal(n, 0);
	assert_int_equal(kit_status(k, done), SL_JOB_COMPLETED);
	kit_complete(k, &claim, 0, NULL); /* its fence was not touched */
}

static void a_triggered_job_is_due_now(void **state)
{
	struct kit *k = *state;
	uint64_t later = kit_start_job(k, &(struct sl_new_job){.type = "t", .delay_ms = KIT_LONG_MS, .priority = 1});
	uint64_t retried = kit_start(k, "t");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	kit_retry(k, &claim, 0, KIT_LONG_MS);
	uint64_t due = kit_start(k, "u");
	struct kit_heard heard;
	size_t n = 0;
	KIT_OK(k->ops->trigger(k->s, (struct sl_ids){(uint64_t[]){later, retried, due}, 3}, kit_hear(&heard), &n, err));
	assert_int_equal(n, 2);
	assert_true(kit_notes(&heard, SL_NOTE_JOB_SCHEDULED, "t", 0) >= 1);
	kit_claim(k, "t", 5, 0, &claim);
	assert_int_equal(claim.n, 2);
	assert_int_equal(claim.jobs[0].id, retried);
	assert_int_equal(claim.jobs[1].id, later);
	KIT_OK(k->ops->trigger(k->s, (struct sl_ids){&later, 1}, NULL, &n, err)); /* it runs: skipped */
	assert_int_equal(n, 0);
}

/* ---- remove and prune ---- */

static void a_removed_chain_is_gone_with_all_its_jobs(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "a"), other = kit_start(k, "other");
	struct kit_claim claim;
	kit_claim_one(k, "a", &claim);
	struct sl_new_job next = {.type = "b"};
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_CONTINUE);
	s.next = &next;
	uint64_t second = kit_exchange(k, &s, NULL).next_id;
	kit_claim_one(k, "b", &claim);
	struct kit_heard heard;
	size_t n = 0;
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){&id, 1}, false, kit_hear(&heard), &n, err));
	assert_int_equal(n, 1);
	assert_int_equal(kit_lost_note(&heard, second), SL_LOST_NOT_FOUND);
	assert_int_equal(kit_changes(&heard, SL_CHANGE_DELETED, id), 1);
	assert_false(kit_exists(k, id));
	assert_false(kit_exists(k, second));
	assert_true(kit_exists(k, other));
	KIT_FAILS(SL_ENOENT, k->ops->get_chain(k->s, NULL, id, NULL, NULL, err));
	kit_pass_ms(k, 3);
	assert_int_equal(kit_reap(k, "b", NULL), 0);
	struct kit_ids jobs;
	kit_list(k, &(struct sl_job_filter){0}, &jobs);
	assert_int_equal(jobs.n, 1);
}

static void removed_jobs_are_not_claimed(void **state)
{
	struct kit *k = *state;
	uint64_t ids[2] = {kit_start(k, "t"), kit_start_job(k, &(struct sl_new_job){.type = "t", .delay_ms = 2})};
	size_t n = 0;
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){ids, 2}, false, NULL, &n, err));
	assert_int_equal(n, 2);
	kit_pass_ms(k, 3);
	struct kit_claim claim;
	kit_claim(k, "t", 5, 0, &claim);
	assert_int_equal(claim.n, 0);
	assert_int_equal(claim.reply.next_due_in_ms, -1);
}

static void a_chain_that_others_wait_for_is_not_removed(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "a"), free_one = kit_start(k, "free");
	uint64_t waits = kit_start_after(k, "t", &a, 1);
	size_t n = 0;
	KIT_FAILS(SL_EPENDING,
		  k->ops->remove(k->s, (struct sl_ids){(uint64_t[]){free_one, a}, 2}, false, NULL, &n, err));
	assert_true(kit_exists(k, a));
	assert_true(kit_exists(k, free_one)); /* nothing was deleted */
	struct sl_err why = SL_ERR_INIT;
	(void)k->ops->remove(k->s, (struct sl_ids){&a, 1}, false, NULL, &n, &why);
	char name[32];
	snprintf(name, sizeof(name), "%llu", (unsigned long long)waits);
	assert_non_null(strstr(why.msg, name));
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){(uint64_t[]){a, waits}, 2}, false, NULL, &n,
			      err)); /* both in the set */
	assert_int_equal(n, 2);
}

/* A chain that has ended waits for no other, but this one could never run, and the error names both chains. */
static void a_chain_whose_blocker_was_removed_is_not_redriven(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "t"), b = kit_start(k, "t");
	uint64_t waits = kit_start_after(k, "t", (uint64_t[]){a, b}, 2), failed = kit_start(k, "t");
	size_t n = 0;
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&waits, 1}, NULL, &n, err));
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){&a, 1}, false, NULL, &n, err));
	assert_int_equal(n, 1);
	KIT_OK(k->ops->complete_chain(k->s, b, "1", NULL, err));
	KIT_OK(k->ops->fail_chain(k->s, failed, "no", NULL, err));
	struct sl_err why = SL_ERR_INIT;
	char name[32];
	assert_int_equal(k->ops->redrive(k->s, (struct sl_ids){(uint64_t[]){failed, waits}, 2}, NULL, &n, &why),
			 SL_ECONFLICT);
	(void)snprintf(name, sizeof(name), "chain %llu", (unsigned long long)waits);
	assert_non_null(strstr(why.msg, name));
	(void)snprintf(name, sizeof(name), "chain %llu", (unsigned long long)a);
	assert_non_null(strstr(why.msg, name));
	assert_int_equal(kit_status(k, waits), SL_JOB_CANCELLED);
	assert_int_equal(kit_status(k, failed), SL_JOB_FAILED);
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){&waits, 1}, false, NULL, &n, err));
	assert_int_equal(n, 1);
}

static void a_cascade_removes_what_waits_transitively(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "a"), b = kit_start(k, "b");
	uint64_t second = kit_start_after(k, "t", &a, 1);
	uint64_t third = kit_start_after(k, "t", (uint64_t[]){second, b}, 2);
	size_t n = 0;
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){&a, 1}, true, NULL, &n, err));
	assert_int_equal(n, 3);
	assert_false(kit_exists(k, second));
	assert_false(kit_exists(k, third));
	assert_true(kit_exists(k, b));
	kit_run(k, "b", NULL); /* what waited for it is gone */
}

static void what_has_ended_does_not_protect_its_blockers(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "a");
	uint64_t done = kit_start_after(k, "t", &a, 1);
	kit_run(k, "a", NULL);
	kit_run(k, "t", NULL);
	size_t n = 0;
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){&a, 1}, false, NULL, &n, err));
	assert_int_equal(n, 1);
	assert_int_equal(kit_status(k, done), SL_JOB_COMPLETED);
}

static void prune_deletes_what_ended_before_in_bites(void **state)
{
	struct kit *k = *state;
	uint64_t ids[5];
	for (size_t i = 0; i < 5; i++) {
		ids[i] = kit_start(k, "t");
		kit_run(k, "t", "1");
	}
	kit_pass_ms(k, 3);
	int64_t line = kit_now(k);
	kit_pass_ms(k, 3);
	uint64_t young = kit_start(k, "t");
	kit_run(k, "t", "1");
	uint64_t open = kit_start(k, "t");
	size_t n = 0, all = 0;
	KIT_OK(k->ops->prune(k->s, line, 2, NULL, &n, err));
	assert_int_equal(n, 2);
	for (all = n; n > 0; all += n)
		KIT_OK(k->ops->prune(k->s, line, 2, NULL, &n, err));
	assert_int_equal(all, 5);
	for (size_t i = 0; i < 5; i++)
		assert_false(kit_exists(k, ids[i]));
	assert_true(kit_exists(k, young));
	assert_true(kit_exists(k, open));
}

static size_t prune_in_bites_of_one(struct kit *k)
{
	size_t n = 0, all = 0;
	kit_pass_ms(k, 3);
	int64_t line = kit_now(k);
	do {
		KIT_OK(k->ops->prune(k->s, line, 1, NULL, &n, err));
		assert_true(n <= 1);
		all += n;
	} while (n > 0);
	KIT_OK(k->ops->prune(k->s, line, 1, NULL, &n, err));
	assert_int_equal(n, 0);
	return all;
}

static void prune_skips_what_has_not_ended_and_removes_it_later(void **state)
{
	struct kit *k = *state;
	uint64_t ids[6];
	for (size_t i = 0; i < 6; i++)
		ids[i] = kit_start(k, "t");
	for (size_t i = 1; i < 6; i += 2)
		KIT_OK(k->ops->complete_chain(k->s, ids[i], "1", NULL, err));
	assert_int_equal(prune_in_bites_of_one(k), 3);
	for (size_t i = 0; i < 6; i++)
		assert_int_equal(kit_exists(k, ids[i]), i % 2 == 0);
	for (size_t i = 0; i < 6; i += 2)
		KIT_OK(k->ops->complete_chain(k->s, ids[i], "1", NULL, err));
	assert_int_equal(prune_in_bites_of_one(k), 3);
	for (size_t i = 0; i < 6; i++)
		assert_false(kit_exists(k, ids[i]));
}

static void prune_keeps_the_blockers_of_what_has_not_ended(void **state)
{
	struct kit *k = *state;
	uint64_t failed = kit_start(k, "a"), done = kit_start(k, "b");
	kit_start_after(k, "t", (uint64_t[]){failed, done}, 2);
	uint64_t output = kit_start(k, "c");
	kit_start_after(k, "u", &output, 1);
	struct kit_claim claim;
	kit_claim_one(k, "a", &claim);
	kit_fail(k, &claim, 0);
	kit_run(k, "b", "1");
	kit_run(k, "c", "1");
	kit_pass_ms(k, 3);
	size_t n = 99;
	KIT_OK(k->ops->prune(k->s, kit_now(k), 100, NULL, &n, err));
	assert_int_equal(n, 0);
	kit_run(k, "u", "1");
	kit_pass_ms(k, 3);
	KIT_OK(k->ops->prune(k->s, kit_now(k), 100, NULL, &n, err));
	assert_false(kit_exists(k, output)); /* its dependant has ended */
	assert_true(kit_exists(k, failed));
	assert_true(kit_exists(k, done));
}

static void prune_deletes_the_blockers_of_what_it_deletes_too(void **state)
{
	struct kit *k = *state;
	uint64_t done = kit_start(k, "a"), waits = kit_start_after(k, "t", &done, 1);
	kit_run(k, "a", "1");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	kit_fail(k, &claim, 0);
	for (size_t i = 0; i < 30; i++) /* more pages than one */
		KIT_OK(k->ops->complete_chain(k->s, kit_start(k, "other"), "1", NULL, err));
	assert_int_equal(prune_in_bites_of_one(k), 32);
	assert_false(kit_exists(k, waits));
	assert_false(kit_exists(k, done));
}

/* ---- watch ---- */

static void only_a_watched_chain_sends_a_notification_when_it_ends(void **state)
{
	struct kit *k = *state;
	enum sl_job_status status = 0;
	struct kit_heard heard;
	size_t n;
	for (int how = 0; how < 4; how++) {
		uint64_t id = kit_start(k, "t");
		KIT_OK(k->ops->watch(k->s, id, &status, err));
		assert_int_equal(status, SL_JOB_PENDING);
		struct kit_claim claim;
		kit_claim_one(k, "t", &claim);
		struct sl_settle s = kit_settle(&claim, 0, how == 0 ? SL_SETTLE_COMPLETE : SL_SETTLE_FAIL);
		s.error = "e";
		kit_hear(&heard);
		if (how < 2)
			kit_exchange(k, &s, &heard);
		else if (how == 2)
			KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&id, 1}, &heard.scope, &n, err));
		else
			KIT_OK(k->ops->complete_chain(k->s, id, "1", &heard.scope, err));
		assert_int_equal(kit_notes(&heard, SL_NOTE_CHAIN_ENDED, NULL, id), 1);
		assert_int_equal(kit_notes(&heard, SL_NOTE_CHAIN_ENDED, NULL, 0), 1);
	}
	uint64_t id = kit_start(k, "t");
	KIT_OK(k->ops->complete_chain(k->s, id, "1", kit_hear(&heard), err));
	assert_int_equal(kit_notes(&heard, SL_NOTE_CHAIN_ENDED, NULL, 0), 0);
	KIT_OK(k->ops->watch(k->s, id, &status, err));
	assert_int_equal(status, SL_JOB_COMPLETED); /* too late, and the watcher knows */
	KIT_FAILS(SL_ENOENT, k->ops->watch(k->s, id + 1000, &status, err));
}

static void a_watched_chain_that_continues_notifies_only_at_its_end(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	enum sl_job_status status;
	KIT_OK(k->ops->watch(k->s, id, &status, err));
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	struct sl_new_job next = {.type = "next"};
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_CONTINUE);
	s.next = &next;
	struct kit_heard heard;
	kit_exchange(k, &s, &heard);
	assert_int_equal(kit_notes(&heard, SL_NOTE_CHAIN_ENDED, NULL, 0), 0);
	kit_claim_one(k, "next", &claim);
	s = kit_settle(&claim, 0, SL_SETTLE_RETRY);
	s.error = "e";
	kit_exchange(k, &s, &heard);
	assert_int_equal(kit_notes(&heard, SL_NOTE_CHAIN_ENDED, NULL, 0), 0);
	kit_claim_one(k, "next", &claim);
	s = kit_settle(&claim, 0, SL_SETTLE_COMPLETE);
	kit_exchange(k, &s, &heard);
	assert_int_equal(kit_notes(&heard, SL_NOTE_CHAIN_ENDED, NULL, id), 1);
}

/* ---- recurring schedules ---- */

struct crons {
	size_t n;
	struct sl_cron c[8];
	char names[8][32], types[8][32], inputs[8][32], specs[8][32];
};

static int keep_cron(const struct sl_cron *cron, void *ctx)
{
	struct crons *cs = ctx;
	KIT_TRUE(cs->n < 8);
	cs->c[cs->n] = *cron;
	snprintf(cs->names[cs->n], 32, "%s", cron->name);
	snprintf(cs->types[cs->n], 32, "%s", cron->type);
	snprintf(cs->inputs[cs->n], 32, "%s", cron->input);
	snprintf(cs->specs[cs->n++], 32, "%s", cron->spec);
	return 0;
}

static void schedules_are_kept_by_name_and_listed_by_their_next_tick(void **state)
{
	struct kit *k = *state;
	struct sl_cron a = {.name = "a", .spec = "@hourly", .type = "t", .input = "1", .next_ms = 3000};
	struct sl_cron b = {.name = "b",
			    .spec = "* * * * *",
			    .type = "u",
			    .input = "{}",
			    .priority = 4,
			    .catch_up = true,
			    .next_ms = 2000};
	KIT_OK(k->ops->cron_put(k->s, &a, NULL, err));
	KIT_OK(k->ops->cron_put(k->s, &b, NULL, err));
	struct crons cs = {0};
	KIT_OK(k->ops->cron_list(k->s, keep_cron, &cs, err));
	assert_int_equal(cs.n, 2);
	assert_string_equal(cs.names[0], "b");
	assert_string_equal(cs.types[0], "u");
	assert_string_equal(cs.inputs[0], "{}");
	assert_string_equal(cs.specs[0], "* * * * *");
	assert_int_equal(cs.c[0].priority, 4);
	assert_int_equal(cs.c[0].catch_up, 1);
	assert_int_equal(cs.c[0].next_ms, 2000);
	assert_int_equal(cs.c[0].last_ms, 0);
	b.next_ms = 9000;
	b.type = "v";
	KIT_OK(k->ops->cron_put(k->s, &b, NULL, err));
	cs.n = 0;
	KIT_OK(k->ops->cron_list(k->s, keep_cron, &cs, err));
	assert_int_equal(cs.n, 2);
	assert_string_equal(cs.names[1], "b");
	assert_string_equal(cs.types[1], "v");
	assert_false(cs.c[1].paused);
	b.next_ms = 0;
	KIT_OK(k->ops->cron_put(k->s, &b, NULL, err));
	cs.n = 0;
	KIT_OK(k->ops->cron_list(k->s, keep_cron, &cs, err));
	assert_string_equal(cs.names[1], "b"); /* without a tick */
	assert_true(cs.c[1].paused);
	assert_int_equal(cs.c[1].next_ms, 0);
	KIT_OK(k->ops->cron_remove(k->s, "a", NULL, err));
	KIT_FAILS(SL_ENOENT, k->ops->cron_remove(k->s, "a", NULL, err));
}

static void a_tick_is_enqueued_once(void **state)
{
	struct kit *k = *state;
	struct sl_cron c = {
		.name = "c", .spec = "@hourly", .type = "t", .input = "{\"c\":1}", .priority = 7, .next_ms = 1000};
	KIT_OK(k->ops->cron_put(k->s, &c, NULL, err));
	bool fired = false;
	struct sl_started started = {0};
	struct kit_heard heard;
	KIT_OK(k->ops->cron_fire(k->s, &c, 2000, &fired, &started, kit_hear(&heard), err));
	assert_int_equal(fired, 1);
	assert_true(kit_notes(&heard, SL_NOTE_JOB_SCHEDULED, "t", 0) >= 1);
	assert_int_equal(kit_changes(&heard, SL_CHANGE_CREATED, started.chain_id), 1);
	struct kit_row row;
	kit_get(k, started.chain_id, &row);
	assert_string_equal(row.type, "t");
	assert_string_equal(row.input, "{\"c\":1}");
	assert_int_equal(row.job.priority, 7);
	struct sl_started again = {0};
	KIT_OK(k->ops->cron_fire(k->s, &c, 2000, &fired, &again, kit_hear(&heard), err));
	assert_int_equal(fired, 0);
	assert_int_equal(heard.n_notes, 0);
	struct crons cs = {0};
	KIT_OK(k->ops->cron_list(k->s, keep_cron, &cs, err));
	assert_int_equal(cs.c[0].next_ms, 2000);
	assert_int_equal(cs.c[0].last_ms, 1000);
	assert_int_equal(cs.c[0].last_chain, started.chain_id);
	c.next_ms = 2000;
	KIT_OK(k->ops->cron_fire(k->s, &c, 3000, &fired, &again, NULL, err));
	assert_int_equal(fired, 1);
	struct kit_ids jobs;
	kit_list(k, &(struct sl_job_filter){0}, &jobs);
	assert_int_equal(jobs.n, 2);
}

/* Its next tick was computed from what the process had seen. */
static void a_schedule_that_was_replaced_is_not_fired_by_who_saw_the_one_before(void **state)
{
	struct kit *k = *state;
	struct sl_cron seen = {.name = "c", .spec = "@yearly", .type = "t", .next_ms = 1000}, now = seen;
	bool fired = true;
	struct sl_started started = {0};
	now.spec = "@hourly";
	KIT_OK(k->ops->cron_put(k->s, &now, NULL, err));
	KIT_OK(k->ops->cron_fire(k->s, &seen, 9000, &fired, &started, NULL, err));
	assert_int_equal(fired, 0);
	seen = now;
	seen.catch_up = true;
	KIT_OK(k->ops->cron_fire(k->s, &seen, 9000, &fired, &started, NULL, err));
	assert_int_equal(fired, 0);
	struct crons cs = {0};
	KIT_OK(k->ops->cron_list(k->s, keep_cron, &cs, err));
	assert_int_equal(cs.c[0].next_ms, 1000);
	KIT_OK(k->ops->cron_fire(k->s, &now, 2000, &fired, &started, NULL, err));
	assert_int_equal(fired, 1);
}

/* ---- requests that are answered once ---- */

static int note_answer(const char *answer, void *ctx)
{
	(void)snprintf(ctx, 64, "%s", answer);
	return 0;
}

/* The answer that is kept for a key, in `answer`, or it is taken and gets this answer. */
static bool take_request(struct kit *k, const struct sl_once *once, const char *give, bool commit, char answer[64])
{
	sl_store_tx *tx;
	struct sl_kept_answer kept = {.fn = note_answer, .ctx = answer};
	answer[0] = '\0';
	KIT_OK(k->ops->begin(k->s, &tx, err));
	KIT_OK(k->ops->request_take(k->s, tx, once, &kept, err));
	if (!kept.found)
		KIT_OK(k->ops->request_answer(k->s, tx, once->key, give, err));
	if (commit)
		KIT_OK(k->ops->commit(tx, err));
	else
		k->ops->rollback(tx);
	return kept.found;
}

static void a_request_is_answered_once_until_its_time_is_over(void **state)
{
	struct kit *k = *state;
	char answer[64];
	struct sl_once once = {.key = "k", .hash = {1}, .keep_ms = KIT_LONG_MS}, other = once, brief = once;
	assert_false(take_request(k, &once, "undone", false, answer));
	assert_false(take_request(k, &once, "17", true, answer));
	assert_true(take_request(k, &once, "18", true, answer));
	assert_string_equal(answer, "17");
	/* Another request with the same key is refused, and one with another key is none of it. */
	other.hash[31] = 1;
	sl_store_tx *tx;
	struct sl_kept_answer kept = {.fn = note_answer, .ctx = answer};
	KIT_OK(k->ops->begin(k->s, &tx, err));
	KIT_FAILS(SL_ECONFLICT, k->ops->request_take(k->s, tx, &other, &kept, err));
	k->ops->rollback(tx);
	other.key = "K";
	assert_false(take_request(k, &other, "19", true, answer));
	/* After its time the key is free, also for another request; what else is over is removed with that. */
	for (int i = 0; i < 3; i++) {
		const char *const keys[] = {"a", "b", "c"};
		brief = (struct sl_once){.key = keys[i], .hash = {1}, .keep_ms = 2};
		assert_false(take_request(k, &brief, "20", true, answer));
	}
	kit_pass_ms(k, 3);
	brief.hash[0] = 2;
	assert_false(take_request(k, &brief, "21", true, answer));
	assert_true(take_request(k, &once, "22", true, answer));
	assert_string_equal(answer, "17");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_request_is_answered_once_until_its_time_is_over),
	cmocka_unit_test(a_chain_completed_from_outside_has_the_output_and_its_worker_is_notified),
	cmocka_unit_test(a_chain_can_be_completed_in_every_state_that_is_not_final),
	cmocka_unit_test(a_chain_that_has_ended_cannot_be_completed_again),
	cmocka_unit_test(a_chain_failed_from_outside_has_the_error_and_its_worker_is_notified),
	cmocka_unit_test(a_settle_after_a_failure_from_outside_is_refused_as_failed),
	cmocka_unit_test(a_chain_can_be_failed_in_every_state_that_is_not_final),
	cmocka_unit_test(a_chain_fails_from_outside_at_its_last_job_and_its_dependents_stay_blocked),
	cmocka_unit_test(a_chain_that_has_ended_cannot_be_failed),
	cmocka_unit_test(a_failure_from_outside_that_is_rolled_back_has_not_happened),
	cmocka_unit_test(a_cancelled_chain_is_final_and_its_worker_is_notified),
	cmocka_unit_test(cancel_skips_what_has_ended),
	cmocka_unit_test(an_unknown_chain_fails_the_whole_call),
	cmocka_unit_test(a_redriven_chain_resumes_at_its_last_job_with_nothing_charged),
	cmocka_unit_test(redrive_skips_what_runs_waits_or_has_completed),
	cmocka_unit_test(a_triggered_job_is_due_now),
	cmocka_unit_test(a_removed_chain_is_gone_with_all_its_jobs),
	cmocka_unit_test(removed_jobs_are_not_claimed),
	cmocka_unit_test(a_chain_that_others_wait_for_is_not_removed),
	cmocka_unit_test(a_chain_whose_blocker_was_removed_is_not_redriven),
	cmocka_unit_test(a_cascade_removes_what_waits_transitively),
	cmocka_unit_test(what_has_ended_does_not_protect_its_blockers),
	cmocka_unit_test(prune_deletes_what_ended_before_in_bites),
	cmocka_unit_test(prune_skips_what_has_not_ended_and_removes_it_later),
	cmocka_unit_test(prune_keeps_the_blockers_of_what_has_not_ended),
	cmocka_unit_test(prune_deletes_the_blockers_of_what_it_deletes_too),
	cmocka_unit_test(only_a_watched_chain_sends_a_notification_when_it_ends),
	cmocka_unit_test(a_watched_chain_that_continues_notifies_only_at_its_end),
	cmocka_unit_test(schedules_are_kept_by_name_and_listed_by_their_next_tick),
	cmocka_unit_test(a_tick_is_enqueued_once),
	cmocka_unit_test(a_schedule_that_was_replaced_is_not_fired_by_who_saw_the_one_before),
};

CONTRACT_TESTS(contract_admin_tests, tests)
