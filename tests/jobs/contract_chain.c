/* SPDX-License-Identifier: Apache-2.0 */
/* Chains: continuation, blockers (fan-out and fan-in), deduplication keys. */
#include "jobs/contract_kit.h"

#include <stdio.h>

/* ---- continuation ---- */

/* Continue job 0 of the claim with next; the new job's id. */
static uint64_t go_on(struct kit *k, const struct kit_claim *claim, const struct sl_new_job *next,
		      struct kit_heard *heard)
{
	struct sl_settle s = kit_settle(claim, 0, SL_SETTLE_CONTINUE);
	s.next = next;
	struct sl_settle_result result = kit_exchange(k, &s, heard);
	KIT_TRUE(result.lost == SL_LOST_NOT);
	KIT_TRUE(result.next_id != 0);
	KIT_TRUE(!result.chain_ended);
	return result.next_id;
}

static void a_continued_chain_goes_on_with_its_next_job(void **state)
{
	struct kit *k = *state;
	uint64_t first = kit_start(k, "a");
	struct kit_claim claim;
	kit_claim_one(k, "a", &claim);
	struct kit_heard heard;
	struct sl_new_job next = {.type = "b", .input = "{\"step\":2}", .priority = 3, .traceparent = "tp"};
	uint64_t second = go_on(k, &claim, &next, &heard);
	assert_true(second > first);
	assert_true(kit_notes(&heard, SL_NOTE_JOB_SCHEDULED, "b", 0) >= 1);
	assert_int_equal(kit_changes(&heard, SL_CHANGE_CREATED, second), 1);
	assert_int_equal(kit_changes(&heard, SL_CHANGE_CHAIN_COMPLETED, 0), 0);
	struct kit_row row;
	kit_get(k, first, &row);
	assert_int_equal(row.job.status, SL_JOB_COMPLETED);
	assert_int_equal(row.job.next_id, second);
	assert_int_equal(row.job.attempt, 1);
	assert_null(row.job.output);
	kit_get(k, second, &row);
	assert_int_equal(row.job.status, SL_JOB_PENDING);
	assert_int_equal(row.job.prev_id, first);
	assert_int_equal(row.job.chain_id, first);
	assert_int_equal(row.job.priority, 3);
	assert_string_equal(row.input, "{\"step\":2}");
	assert_string_equal(row.traceparent, "tp");
	struct kit_chain chain;
	kit_get_chain(k, first, &chain);
	assert_int_equal(chain.chain.status, SL_JOB_PENDING);
	assert_int_equal(chain.chain.last_id, second);
	assert_string_equal(chain.type, "a");
	assert_string_equal(chain.at_type, "b");
	assert_string_equal(chain.input, "{\"n\":1}");
	assert_int_equal(chain.chain.ended_ms, 0);
	kit_run(k, "b", "\"end\"");
	kit_get_chain(k, first, &chain);
	assert_int_equal(chain.chain.status, SL_JOB_COMPLETED);
	assert_string_equal(chain.output, "\"end\"");
	KIT_FAILS(SL_ENOENT, k->ops->get_chain(k->s, NULL, second, NULL, NULL, err)); /* a job, not a chain */
}

static void a_continuation_may_be_for_later(void **state)
{
	struct kit *k = *state;
	kit_start(k, "a");
	struct kit_claim claim;
	kit_claim_one(k, "a", &claim);
	struct kit_heard heard;
	struct sl_new_job next = {.type = "b", .delay_ms = 20};
	uint64_t second = go_on(k, &claim, &next, &heard);
	assert_true(kit_notes(&heard, SL_NOTE_JOB_SCHEDULED, "b", 0) >= 1);
	assert_int_equal(kit_changes(&heard, SL_CHANGE_SCHEDULED, second), 1);
	kit_pass_ms(k, 21);
	assert_int_equal(kit_claim_one(k, "b", &claim).id, second);
}

static void a_continuation_with_an_unknown_blocker_changes_nothing(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "a");
	struct kit_claim claim;
	kit_claim_one(k, "a", &claim);
	uint64_t nobody = id + 1000;
	struct sl_new_job next = {.type = "b", .blockers = &nobody, .n_blockers = 1};
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_CONTINUE);
	s.next = &next;
	struct sl_settle_result result;
	KIT_FAILS(SL_ENOENT, k->ops->exchange(k->s, NULL, &s, 1, &result, NULL, NULL, NULL, NULL, NULL, err));
	assert_int_equal(kit_status(k, id), SL_JOB_RUNNING);
	struct kit_ids jobs;
	kit_list(k, &(struct sl_job_filter){0}, &jobs);
	assert_int_equal(jobs.n, 1);
	kit_complete(k, &claim, 0, NULL);
}

static void a_continuation_waits_for_what_it_fanned_out(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "parent");
	struct kit_claim claim;
	kit_claim_one(k, "parent", &claim);
	uint64_t children[3] = {kit_start(k, "child"), kit_start(k, "child"), kit_start(k, "child")};
	kit_run(k, "child", "\"early\"");
	struct kit_heard heard;
	struct sl_new_job next = {.type = "join", .blockers = children, .n_blockers = 3};
	uint64_t join = go_on(k, &claim, &next, &heard);
	assert_int_equal(kit_notes(&heard, SL_NOTE_JOB_SCHEDULED, "join", 0), 0);
	assert_int_equal(kit_changes(&heard, SL_CHANGE_BLOCKED, join), 1);
	struct kit_chain chain;
	kit_get_chain(k, id, &chain);
	assert_int_equal(chain.chain.status, SL_JOB_BLOCKED);
	kit_run(k, "child", NULL);
	assert_int_equal(kit_status(k, join), SL_JOB_BLOCKED);
	kit_run(k, "child", NULL);
	assert_int_equal(kit_status(k, join), SL_JOB_PENDING);
	assert_int_equal(kit_claim_one(k, "join", &claim).has_blockers, 1);
}

/* ---- blockers ---- */

static void a_job_opens_when_its_last_blocker_completes(void **state)
{
	struct kit *k = *state;
	uint64_t blockers[2] = {kit_start(k, "a"), kit_start(k, "b")};
	struct sl_new_chain spec = {.job = {.type = "t", .blockers = blockers, .n_blockers = 2}};
	struct sl_started started;
	struct kit_heard heard;
	KIT_OK(k->ops->start(k->s, NULL, &spec, 1, &started, kit_hear(&heard), err));
	uint64_t id = started.chain_id;
	assert_int_equal(heard.n_notes, 0); /* nothing to claim yet */
	assert_int_equal(kit_changes(&heard, SL_CHANGE_CREATED, id), 1);
	assert_int_equal(kit_changes(&heard, SL_CHANGE_BLOCKED, id), 1);
	struct kit_row row;
	kit_get(k, id, &row);
	assert_int_equal(row.job.status, SL_JOB_BLOCKED);
	assert_int_equal(row.job.blockers_open, 2);
	kit_run(k, "b", NULL);
	kit_get(k, id, &row);
	assert_int_equal(row.job.status, SL_JOB_BLOCKED);
	assert_int_equal(row.job.blockers_open, 1);
	struct kit_claim claim;
	kit_claim(k, "t", 5, 0, &claim);
	assert_int_equal(claim.n, 0);
	kit_claim_one(k, "a", &claim);
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_COMPLETE);
	assert_int_equal(kit_exchange(k, &s, &heard).lost, SL_LOST_NOT);
	assert_true(kit_notes(&heard, SL_NOTE_JOB_SCHEDULED, "t", 0) >= 1);
	assert_int_equal(kit_changes(&heard, SL_CHANGE_UNBLOCKED, id), 1);
	kit_get(k, id, &row);
	assert_int_equal(row.job.status, SL_JOB_PENDING);
	assert_int_equal(row.job.blockers_open, 0);
	kit_claim(k, "t", 5, 0, &claim);
	assert_int_equal(claim.n, 1);
	assert_int_equal(claim.jobs[0].has_blockers, 1);
}

static void what_a_completion_unblocks_can_be_claimed_in_the_same_exchange(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "a");
	uint64_t id = kit_start_after(k, "t", &a, 1);
	struct kit_claim claim;
	kit_claim_one(k, "a", &claim);
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_COMPLETE);
	struct sl_settle_result result;
	struct sl_claim_type types = {"t", 10};
	struct sl_claim_request r = {
		.claim = {{9}}, .worker = "w", .types = &types, .n_types = 1, .limit = 10, .lease_ms = KIT_LONG_MS};
	struct sl_claim_reply reply;
	KIT_OK(k->ops->exchange(k->s, NULL, &s, 1, &result, &r, &reply, kit_noop_claimed, NULL, NULL, err));
	assert_int_equal(reply.n, 1);
	assert_int_equal(kit_status(k, id), SL_JOB_RUNNING);
}

static void a_blocker_that_has_completed_before_does_not_block(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "a");
	kit_run(k, "a", "\"of a\"");
	uint64_t id = kit_start_after(k, "t", &a, 1);
	assert_int_equal(kit_status(k, id), SL_JOB_PENDING);
	struct kit_claim claim;
	assert_int_equal(kit_claim_one(k, "t", &claim).has_blockers, 1);
	struct kit_ids chains;
	kit_list_chains(k, &(struct sl_job_filter){.blocked_by_job = id}, &chains);
	assert_int_equal(chains.n, 1);
	assert_int_equal(chains.ids[0], a);
}

static void a_chain_blocks_until_its_last_job_completes(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "a");
	uint64_t id = kit_start_after(k, "t", &a, 1);
	struct kit_claim claim;
	kit_claim_one(k, "a", &claim);
	struct sl_new_job next = {.type = "a2"};
	go_on(k, &claim, &next, NULL);
	assert_int_equal(kit_status(k, id), SL_JOB_BLOCKED);
	uint64_t late = kit_start_after(k, "t", &a, 1); /* started while the blocker is at its second job */
	kit_run(k, "a2", NULL);
	assert_int_equal(kit_status(k, id), SL_JOB_PENDING);
	assert_int_equal(kit_status(k, late), SL_JOB_PENDING);
}

static void many_jobs_wait_for_the_same_blocker(void **state)
{
	struct kit *k = *state;
	enum { N = 40 };
	uint64_t a = kit_start(k, "a"), b = kit_start(k, "b"), ids[N];
	for (size_t i = 0; i < N; i++)
		ids[i] = i % 2 == 0 ? kit_start_after(k, "t", &a, 1) : kit_start_after(k, "t", (uint64_t[]){b, a}, 2);
	kit_run(k, "a", NULL);
	for (size_t i = 0; i < N; i++)
		assert_int_equal(kit_status(k, ids[i]), i % 2 == 0 ? SL_JOB_PENDING : SL_JOB_BLOCKED);
	kit_run(k, "b", NULL);
	struct kit_claim claim;
	kit_claim(k, "t", 100, 0, &claim);
	assert_int_equal(claim.n, N);
}

static void two_blockers_that_complete_in_one_batch_open_a_job_once(void **state)
{
	struct kit *k = *state;
	uint64_t blockers[3] = {kit_start(k, "a"), kit_start(k, "a"), kit_start(k, "a")};
	uint64_t id = kit_start_after(k, "t", blockers, 3);
	struct kit_claim claim;
	kit_claim(k, "a", 3, 0, &claim);
	struct sl_settle s[3];
	for (size_t i = 0; i < 3; i++)
		s[i] = kit_settle(&claim, i, SL_SETTLE_COMPLETE);
	s[2].last_of_claim = 1;
	struct sl_settle_result results[3];
	struct kit_heard heard;
	KIT_OK(k->ops->exchange(k->s, NULL, s, 3, results, NULL, NULL, NULL, NULL, kit_hear(&heard), err));
	assert_int_equal(kit_changes(&heard, SL_CHANGE_UNBLOCKED, id), 1);
	kit_claim(k, "t", 10, 0, &claim);
	assert_int_equal(claim.n, 1);
	assert_int_equal(claim.jobs[0].id, id);
	kit_complete(k, &claim, 0, NULL);
	kit_claim(k, "t", 10, 0, &claim);
	assert_int_equal(claim.n, 0);
}

static void a_completion_from_outside_unblocks_too(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "a");
	uint64_t id = kit_start_after(k, "t", &a, 1);
	struct kit_heard heard;
	KIT_OK(k->ops->complete_chain(k->s, NULL, a, "1", kit_hear(&heard), err));
	assert_int_equal(kit_status(k, id), SL_JOB_PENDING);
	assert_true(kit_notes(&heard, SL_NOTE_JOB_SCHEDULED, "t", 0) >= 1);
	assert_int_equal(kit_changes(&heard, SL_CHANGE_UNBLOCKED, id), 1);
}

static void a_failed_blocker_keeps_blocking_until_it_is_redriven_and_completes(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "a");
	uint64_t before = kit_start_after(k, "t", &a, 1);
	struct kit_claim claim;
	kit_claim_one(k, "a", &claim);
	kit_fail(k, &claim, 0);
	uint64_t after = kit_start_after(k, "t", &a, 1);
	assert_int_equal(kit_status(k, before), SL_JOB_BLOCKED);
	assert_int_equal(kit_status(k, after), SL_JOB_BLOCKED);
	size_t n;
	KIT_OK(k->ops->redrive(k->s, NULL, &a, 1, &n, NULL, err));
	assert_int_equal(kit_status(k, before), SL_JOB_BLOCKED);
	kit_run(k, "a", NULL);
	assert_int_equal(kit_status(k, before), SL_JOB_PENDING);
	assert_int_equal(kit_status(k, after), SL_JOB_PENDING);
}

static void a_cancelled_blocker_keeps_blocking(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "a");
	uint64_t id = kit_start_after(k, "t", &a, 1);
	size_t n;
	KIT_OK(k->ops->cancel(k->s, NULL, &a, 1, &n, NULL, err));
	assert_int_equal(kit_status(k, id), SL_JOB_BLOCKED);
}

static void a_job_cancelled_while_blocked_waits_again_when_it_is_redriven(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "a");
	uint64_t waits = kit_start_after(k, "t", &a, 1), opened = kit_start_after(k, "t", &a, 1);
	size_t n;
	KIT_OK(k->ops->cancel(k->s, NULL, (uint64_t[]){waits, opened}, 2, &n, NULL, err));
	KIT_OK(k->ops->redrive(k->s, NULL, &waits, 1, &n, NULL, err));
	assert_int_equal(n, 1);
	assert_int_equal(kit_status(k, waits), SL_JOB_BLOCKED);
	kit_run(k, "a", NULL);
	assert_int_equal(kit_status(k, waits), SL_JOB_PENDING);
	assert_int_equal(kit_status(k, opened), SL_JOB_CANCELLED); /* its blocker's end does not revive it */
	KIT_OK(k->ops->redrive(k->s, NULL, &opened, 1, &n, NULL, err));
	assert_int_equal(kit_status(k, opened), SL_JOB_PENDING);
}

static void a_blocked_job_with_a_time_waits_for_both(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "a");
	uint64_t later = kit_start_job(
		k, &(struct sl_new_job){.type = "t", .delay_ms = KIT_LONG_MS, .blockers = &a, .n_blockers = 1});
	uint64_t soon =
		kit_start_job(k, &(struct sl_new_job){.type = "t", .delay_ms = 5, .blockers = &a, .n_blockers = 1});
	kit_pass_ms(k, 6);
	assert_int_equal(kit_status(k, soon), SL_JOB_BLOCKED);
	kit_run(k, "a", NULL);
	assert_int_equal(kit_status(k, later), SL_JOB_PENDING);
	struct kit_claim claim;
	kit_claim(k, "t", 5, 0, &claim);
	assert_int_equal(claim.n, 1);
	assert_int_equal(claim.jobs[0].id, soon);
}

static void an_unknown_blocker_fails_the_whole_start(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "a");
	uint64_t blockers[2] = {a, a + 1000};
	struct sl_new_chain chains[2] = {{.job = {.type = "t"}, .key = "k"},
					 {.job = {.type = "t", .blockers = blockers, .n_blockers = 2}}};
	struct sl_started out[2];
	char missing[32];
	struct sl_err why = SL_ERR_INIT;
	(void)snprintf(missing, sizeof missing, " %llu", (unsigned long long)blockers[1]);
	assert_int_equal(k->ops->start(k->s, NULL, chains, 2, out, NULL, &why), SL_ENOENT);
	assert_non_null(strstr(why.msg, missing)); /* it says which */
	struct kit_ids jobs;
	kit_list(k, &(struct sl_job_filter){0}, &jobs);
	assert_int_equal(jobs.n, 1);
	assert_int_equal(kit_start_key(k, "k", SL_DEDUP_ANY, 0).deduplicated, 0); /* nor is the key taken */
}

static void blockers_are_listed_in_the_order_given_with_their_outputs(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "a"), b = kit_start(k, "b"), c = kit_start(k, "c");
	uint64_t given[3] = {b, c, a};
	uint64_t id = kit_start_after(k, "t", given, 3);
	kit_run(k, "a", "\"of a\"");
	kit_run(k, "b", "\"of b\"");
	kit_run(k, "c", "\"of c\"");
	struct kit_ids chains;
	kit_list_chains(k, &(struct sl_job_filter){.blocked_by_job = id}, &chains);
	assert_int_equal(chains.n, 3);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(chains.ids[i], given[i]);
	kit_list_chains(k, &(struct sl_job_filter){.blocked_by_job = id, .limit = 2}, &chains);
	assert_int_equal(chains.n, 2);
	kit_list_chains(k, &(struct sl_job_filter){.blocked_by_job = id, .after = c}, &chains);
	assert_int_equal(chains.n, 1);
	assert_int_equal(chains.ids[0], a);
	struct kit_ids blocked;
	kit_list(k, &(struct sl_job_filter){.blocks = a}, &blocked);
	assert_int_equal(blocked.n, 1);
	assert_int_equal(blocked.ids[0], id);
}

/* ---- deduplication ---- */

static void a_key_gives_the_first_chain_back_while_it_has_not_ended(void **state)
{
	struct kit *k = *state;
	struct sl_started first = kit_start_key(k, "key", SL_DEDUP_INCOMPLETE, 0);
	assert_int_equal(first.deduplicated, 0);
	struct sl_started second = kit_start_key(k, "key", SL_DEDUP_INCOMPLETE, 0);
	assert_int_equal(second.deduplicated, 1);
	assert_int_equal(second.chain_id, first.chain_id);
	assert_int_equal(kit_start_key(k, "other", SL_DEDUP_INCOMPLETE, 0).deduplicated, 0);
	struct kit_row row;
	kit_get(k, first.chain_id, &row);
	assert_string_equal(row.key, "key");
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	assert_int_equal(claim.jobs[0].id, first.chain_id);
	assert_int_equal(kit_start_key(k, "key", SL_DEDUP_INCOMPLETE, 0).deduplicated, 1); /* running */
	struct sl_new_job next = {.type = "next"};
	go_on(k, &claim, &next, NULL);
	assert_int_equal(kit_start_key(k, "key", SL_DEDUP_INCOMPLETE, 0).deduplicated, 1); /* went on */
	kit_run(k, "next", NULL);
	struct sl_started third = kit_start_key(k, "key", SL_DEDUP_INCOMPLETE, 0);
	assert_int_equal(third.deduplicated, 0);
	assert_int_not_equal(third.chain_id, first.chain_id);
}

static void every_end_of_a_chain_frees_its_key(void **state)
{
	struct kit *k = *state;
	size_t n;
	struct kit_claim claim;
	uint64_t id = kit_start_key(k, "k", SL_DEDUP_INCOMPLETE, 0).chain_id;
	kit_claim_one(k, "t", &claim);
	kit_fail(k, &claim, 0);
	struct sl_started s = kit_start_key(k, "k", SL_DEDUP_INCOMPLETE, 0);
	assert_int_equal(s.deduplicated, 0);
	KIT_OK(k->ops->cancel(k->s, NULL, &s.chain_id, 1, &n, NULL, err));
	s = kit_start_key(k, "k", SL_DEDUP_INCOMPLETE, 0);
	assert_int_equal(s.deduplicated, 0);
	KIT_OK(k->ops->complete_chain(k->s, NULL, s.chain_id, "1", NULL, err));
	s = kit_start_key(k, "k", SL_DEDUP_INCOMPLETE, 0);
	assert_int_equal(s.deduplicated, 0);
	KIT_OK(k->ops->remove(k->s, NULL, &s.chain_id, 1, 0, &n, NULL, err));
	assert_int_equal(kit_start_key(k, "k", SL_DEDUP_INCOMPLETE, 0).deduplicated, 0);
	assert_true(kit_exists(k, id));
}

static void a_key_of_any_scope_holds_after_the_end_of_its_chain(void **state)
{
	struct kit *k = *state;
	struct sl_started first = kit_start_key(k, "k", SL_DEDUP_ANY, 0);
	kit_run(k, "t", NULL);
	struct sl_started second = kit_start_key(k, "k", SL_DEDUP_ANY, 0);
	assert_int_equal(second.deduplicated, 1);
	assert_int_equal(second.chain_id, first.chain_id);
	size_t n;
	KIT_OK(k->ops->remove(k->s, NULL, &first.chain_id, 1, 0, &n, NULL, err));
	assert_int_equal(kit_start_key(k, "k", SL_DEDUP_ANY, 0).deduplicated, 0);
}

static void a_window_frees_the_key_when_it_has_passed(void **state)
{
	struct kit *k = *state;
	assert_int_equal(kit_start_key(k, "long", SL_DEDUP_ANY, KIT_LONG_MS).deduplicated, 0);
	assert_int_equal(kit_start_key(k, "long", SL_DEDUP_ANY, KIT_LONG_MS).deduplicated, 1);
	struct sl_started first = kit_start_key(k, "short", SL_DEDUP_ANY, 5);
	struct sl_started open = kit_start_key(k, "open", SL_DEDUP_INCOMPLETE, 5);
	kit_pass_ms(k, 7);
	struct sl_started second = kit_start_key(k, "short", SL_DEDUP_ANY, KIT_LONG_MS);
	assert_int_equal(second.deduplicated, 0);
	assert_int_not_equal(second.chain_id, first.chain_id);
	assert_int_equal(kit_start_key(k, "short", SL_DEDUP_ANY, 0).chain_id, second.chain_id); /* now its key */
	assert_int_equal(kit_start_key(k, "open", SL_DEDUP_INCOMPLETE, 0).deduplicated, 0);
	assert_int_equal(kit_status(k, open.chain_id), SL_JOB_PENDING);
}

static void an_old_chain_whose_window_has_passed_does_not_free_the_new_ones_key(void **state)
{
	struct kit *k = *state;
	uint64_t old = kit_start_key(k, "k", SL_DEDUP_INCOMPLETE, 2).chain_id;
	kit_pass_ms(k, 4);
	uint64_t new = kit_start_key(k, "k", SL_DEDUP_INCOMPLETE, 0).chain_id;
	assert_int_not_equal(old, new);
	KIT_OK(k->ops->complete_chain(k->s, NULL, old, "1", NULL, err));
	assert_int_equal(kit_start_key(k, "k", SL_DEDUP_INCOMPLETE, 0).chain_id, new);
}

static void one_call_with_the_same_key_twice_starts_one_chain(void **state)
{
	struct kit *k = *state;
	struct sl_new_chain chains[3] = {
		{.job = {.type = "t"}, .key = "k"}, {.job = {.type = "t"}}, {.job = {.type = "t"}, .key = "k"}};
	struct sl_started out[3];
	struct kit_heard heard;
	KIT_OK(k->ops->start(k->s, NULL, chains, 3, out, kit_hear(&heard), err));
	assert_int_equal(out[0].deduplicated, 0);
	assert_int_equal(out[1].deduplicated, 0);
	assert_int_equal(out[2].deduplicated, 1);
	assert_int_equal(out[2].chain_id, out[0].chain_id);
	assert_int_equal(kit_changes(&heard, SL_CHANGE_CREATED, 0), 2);
	struct kit_ids jobs;
	kit_list(k, &(struct sl_job_filter){0}, &jobs);
	assert_int_equal(jobs.n, 2);
}

static void a_deduplicated_start_tells_nobody(void **state)
{
	struct kit *k = *state;
	kit_start_key(k, "k", SL_DEDUP_ANY, 0);
	struct sl_new_chain chain = {.job = {.type = "t"}, .key = "k", .scope = SL_DEDUP_ANY};
	struct sl_started out;
	struct kit_heard heard;
	KIT_OK(k->ops->start(k->s, NULL, &chain, 1, &out, kit_hear(&heard), err));
	assert_int_equal(out.deduplicated, 1);
	assert_int_equal(heard.n_notes, 0);
	assert_int_equal(heard.n_changes, 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_continued_chain_goes_on_with_its_next_job),
	cmocka_unit_test(a_continuation_may_be_for_later),
	cmocka_unit_test(a_continuation_with_an_unknown_blocker_changes_nothing),
	cmocka_unit_test(a_continuation_waits_for_what_it_fanned_out),
	cmocka_unit_test(a_job_opens_when_its_last_blocker_completes),
	cmocka_unit_test(what_a_completion_unblocks_can_be_claimed_in_the_same_exchange),
	cmocka_unit_test(a_blocker_that_has_completed_before_does_not_block),
	cmocka_unit_test(a_chain_blocks_until_its_last_job_completes),
	cmocka_unit_test(many_jobs_wait_for_the_same_blocker),
	cmocka_unit_test(two_blockers_that_complete_in_one_batch_open_a_job_once),
	cmocka_unit_test(a_completion_from_outside_unblocks_too),
	cmocka_unit_test(a_failed_blocker_keeps_blocking_until_it_is_redriven_and_completes),
	cmocka_unit_test(a_cancelled_blocker_keeps_blocking),
	cmocka_unit_test(a_job_cancelled_while_blocked_waits_again_when_it_is_redriven),
	cmocka_unit_test(a_blocked_job_with_a_time_waits_for_both),
	cmocka_unit_test(an_unknown_blocker_fails_the_whole_start),
	cmocka_unit_test(blockers_are_listed_in_the_order_given_with_their_outputs),
	cmocka_unit_test(a_key_gives_the_first_chain_back_while_it_has_not_ended),
	cmocka_unit_test(every_end_of_a_chain_frees_its_key),
	cmocka_unit_test(a_key_of_any_scope_holds_after_the_end_of_its_chain),
	cmocka_unit_test(a_window_frees_the_key_when_it_has_passed),
	cmocka_unit_test(an_old_chain_whose_window_has_passed_does_not_free_the_new_ones_key),
	cmocka_unit_test(one_call_with_the_same_key_twice_starts_one_chain),
	cmocka_unit_test(a_deduplicated_start_tells_nobody),
};

CONTRACT_TESTS(contract_chain_tests, tests)
