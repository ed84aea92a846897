/* SPDX-License-Identifier: Apache-2.0 */
/* Chains: continuation, blockers (fan-out and fan-in), deduplication keys. */
#include "jobs/contract_kit.h"

#include <stdio.h>

/* ---- continuation ---- */

/* Continue job 0 of the claim with next; the new job's id. */
static uint64_t continue_job(struct kit *k, const struct kit_claim *claim, const struct sl_new_job *next,
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

static void a_continuation_creates_the_next_job_of_its_chain(void **state)
{
	struct kit *k = *state;
	uint64_t first = kit_start(k, "a");
	struct kit_claim claim;
	kit_claim_one(k, "a", &claim);
	struct kit_heard heard;
	struct sl_new_job next = {.type = "b", .input = "{\"step\":2}", .priority = 3, .traceparent = "tp"};
	uint64_t second = continue_job(k, &claim, &next, &heard);
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
	uint64_t second = continue_job(k, &claim, &next, &heard);
	assert_true(kit_notes(&heard, SL_NOTE_JOB_SCHEDULED, "b", 0) >= 1);
	assert_int_equal(kit_changes(&heard, SL_CHANGE_SCHEDULED, second), 1);
	kit_pass_ms(k, 21);
	assert_int_equal(kit_claim_one(k, "b", &claim).id, second);
}

/* distance 0: the chain itself. */
static void refuse_continuation_behind(struct kit *k, uint64_t distance)
{
	uint64_t id = kit_start(k, "a");
	struct kit_claim claim;
	kit_claim_one(k, "a", &claim);
	uint64_t blocker = id + distance;
	struct sl_new_job next = {.type = "b", .blockers = &blocker, .n_blockers = 1};
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_CONTINUE);
	s.next = &next;
	struct sl_settle_result result;
	KIT_FAILS(SL_ENOENT,
		  k->ops->exchange(k->s, &(struct sl_exchange){.settles = &s, .n_settles = 1, .results = &result}, NULL,
				   err));
	assert_int_equal(kit_status(k, id), SL_JOB_RUNNING);
	struct kit_ids jobs;
	kit_list(k, &(struct sl_job_filter){0}, &jobs);
	assert_int_equal(jobs.n, 1);
	kit_complete(k, &claim, 0, NULL);
}

static void a_continuation_with_an_unknown_blocker_changes_nothing(void **state)
{
	refuse_continuation_behind(*state, 1000);
}

static void a_continuation_that_waits_for_its_own_chain_changes_nothing(void **state)
{
	refuse_continuation_behind(*state, 0);
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
	uint64_t join = continue_job(k, &claim, &next, &heard);
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

/* ---- circles ---- */

static void name_of(uint64_t id, char out[32])
{
	(void)snprintf(out, 32, "%llu", (unsigned long long)id);
}

/* The settles are refused for their data, with the ids of these two in the message, and nothing has happened. */
static void refuse_circle(struct kit *k, const struct sl_settle *settles, size_t n, uint64_t a, uint64_t b)
{
	struct sl_settle_result results[4];
	struct sl_err err = SL_ERR_INIT;
	struct kit_ids before, after;
	char name[32];
	kit_list(k, &(struct sl_job_filter){0}, &before);
	assert_int_equal(k->ops->exchange(k->s,
					  &(struct sl_exchange){.settles = settles, .n_settles = n, .results = results},
					  NULL, &err),
			 SL_EDATA);
	name_of(a, name);
	assert_non_null(strstr(err.msg, name));
	name_of(b, name);
	assert_non_null(strstr(err.msg, name));
	assert_int_equal(err.error_class, SL_CLASS_POISON);
	kit_list(k, &(struct sl_job_filter){0}, &after);
	assert_int_equal(after.n, before.n);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(kit_status(k, settles[i].id), SL_JOB_RUNNING);
}

static struct sl_settle wait_for(const struct kit_claim *claim, size_t i, struct sl_new_job *next,
				 const uint64_t *blocker)
{
	*next = (struct sl_new_job){.type = "next", .blockers = blocker, .n_blockers = 1};
	struct sl_settle s = kit_settle(claim, i, SL_SETTLE_CONTINUE);
	s.next = next;
	return s;
}

static void a_continuation_that_waits_for_who_waits_for_it_is_refused(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "a"), b = kit_start_after(k, "b", &a, 1);
	uint64_t c = kit_start_after(k, "c", (uint64_t[]){kit_start(k, "else"), b}, 2);
	uint64_t other = kit_start_after(k, "other", &c, 1);
	struct kit_claim claim;
	struct sl_new_job next;
	kit_claim_one(k, "a", &claim);
	struct sl_settle s = wait_for(&claim, 0, &next, &b);
	refuse_circle(k, &s, 1, a, b);
	s = wait_for(&claim, 0, &next, &other); /* from afar */
	refuse_circle(k, &s, 1, a, b);
	kit_run(k, "else", NULL);
	kit_complete(k, &claim, 0, NULL);
	kit_run(k, "b", NULL);
	kit_run(k, "c", NULL);
	kit_run(k, "other", NULL);
}

static void two_continuations_of_one_batch_that_wait_for_each_other_are_refused(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "t"), b = kit_start(k, "t");
	struct kit_claim claim;
	struct sl_new_job next[2];
	kit_claim(k, "t", 2, 0, &claim);
	assert_int_equal(claim.n, 2);
	struct sl_settle s[2] = {wait_for(&claim, 0, &next[0], &b), wait_for(&claim, 1, &next[1], &a)};
	refuse_circle(k, s, 2, a, b);
	struct sl_settle_result result;
	KIT_OK(k->ops->exchange(k->s, &(struct sl_exchange){.settles = &s[0], .n_settles = 1, .results = &result}, NULL,
				err));
	assert_int_equal(result.lost, SL_LOST_NOT); /* alone it can */
	refuse_circle(k, &s[1], 1, b, a);
	kit_complete(k, &claim, 1, NULL);
	kit_run(k, "next", NULL);
}

/* Else a redrive would close the circle. */
static void who_was_cancelled_while_it_waited_counts_as_waiting(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "a"), b = kit_start_after(k, "b", &a, 1), c = kit_start_after(k, "c", &b, 1);
	size_t n;
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&b, 1}, NULL, &n, err));
	KIT_OK(k->ops->fail_chain(k->s, c, "no", NULL, err));
	struct kit_claim claim;
	struct sl_new_job next;
	kit_claim_one(k, "a", &claim);
	struct sl_settle s = wait_for(&claim, 0, &next, &c);
	refuse_circle(k, &s, 1, a, b);
	KIT_OK(k->ops->redrive(k->s, (struct sl_ids){(uint64_t[]){b, c}, 2}, NULL, &n, err));
	KIT_OK(k->ops->complete_chain(k->s, b, "1", NULL, err)); /* no longer waits for a chain */
	continue_job(k, &claim, &next, NULL);
	kit_run(k, "c", NULL);
	kit_run(k, "next", NULL);
}

/* ---- blockers ---- */

static void a_job_opens_when_its_last_blocker_completes(void **state)
{
	struct kit *k = *state;
	uint64_t blockers[2] = {kit_start(k, "a"), kit_start(k, "b")};
	struct sl_new_chain spec = {.job = {.type = "t", .blockers = blockers, .n_blockers = 2}};
	struct sl_started started;
	struct kit_heard heard;
	KIT_OK(k->ops->start(k->s, &spec, 1, kit_hear(&heard), &started, err));
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
	struct sl_claim_type types = {.type = "t", .limit = 10};
	struct sl_claim_request r = {
		.claim = {{9}}, .worker = "w", .types = &types, .n_types = 1, .limit = 10, .lease_ms = KIT_LONG_MS};
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
	continue_job(k, &claim, &next, NULL);
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
	KIT_OK(k->ops->exchange(k->s, &(struct sl_exchange){.settles = s, .n_settles = 3, .results = results},
				kit_hear(&heard), err));
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
	KIT_OK(k->ops->complete_chain(k->s, a, "1", kit_hear(&heard), err));
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
	KIT_OK(k->ops->redrive(k->s, (struct sl_ids){&a, 1}, NULL, &n, err));
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
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&a, 1}, NULL, &n, err));
	assert_int_equal(kit_status(k, id), SL_JOB_BLOCKED);
}

static void a_job_cancelled_while_blocked_waits_again_when_it_is_redriven(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "a");
	uint64_t waits = kit_start_after(k, "t", &a, 1), opened = kit_start_after(k, "t", &a, 1);
	size_t n;
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){(uint64_t[]){waits, opened}, 2}, NULL, &n, err));
	KIT_OK(k->ops->redrive(k->s, (struct sl_ids){&waits, 1}, NULL, &n, err));
	assert_int_equal(n, 1);
	assert_int_equal(kit_status(k, waits), SL_JOB_BLOCKED);
	kit_run(k, "a", NULL);
	assert_int_equal(kit_status(k, waits), SL_JOB_PENDING);
	assert_int_equal(kit_status(k, opened), SL_JOB_CANCELLED); /* its blocker's end does not revive it */
	KIT_OK(k->ops->redrive(k->s, (struct sl_ids){&opened, 1}, NULL, &n, err));
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
	(void)snprintf(missing, sizeof(missing), " %llu", (unsigned long long)blockers[1]);
	assert_int_equal(k->ops->start(k->s, chains, 2, NULL, out, &why), SL_ENOENT);
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
	continue_job(k, &claim, &next, NULL);
	assert_int_equal(kit_start_key(k, "key", SL_DEDUP_INCOMPLETE, 0).deduplicated, 1); /* continued */
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
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&s.chain_id, 1}, NULL, &n, err));
	s = kit_start_key(k, "k", SL_DEDUP_INCOMPLETE, 0);
	assert_int_equal(s.deduplicated, 0);
	KIT_OK(k->ops->complete_chain(k->s, s.chain_id, "1", NULL, err));
	s = kit_start_key(k, "k", SL_DEDUP_INCOMPLETE, 0);
	assert_int_equal(s.deduplicated, 0);
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){&s.chain_id, 1}, false, NULL, &n, err));
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
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){&first.chain_id, 1}, false, NULL, &n, err));
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
	KIT_OK(k->ops->complete_chain(k->s, old, "1", NULL, err));
	assert_int_equal(kit_start_key(k, "k", SL_DEDUP_INCOMPLETE, 0).chain_id, new);
}

static void one_call_with_the_same_key_twice_starts_one_chain(void **state)
{
	struct kit *k = *state;
	struct sl_new_chain chains[3] = {
		{.job = {.type = "t"}, .key = "k"}, {.job = {.type = "t"}}, {.job = {.type = "t"}, .key = "k"}};
	struct sl_started out[3];
	struct kit_heard heard;
	KIT_OK(k->ops->start(k->s, chains, 3, kit_hear(&heard), out, err));
	assert_int_equal(out[0].deduplicated, 0);
	assert_int_equal(out[1].deduplicated, 0);
	assert_int_equal(out[2].deduplicated, 1);
	assert_int_equal(out[2].chain_id, out[0].chain_id);
	assert_int_equal(kit_changes(&heard, SL_CHANGE_CREATED, 0), 2);
	struct kit_ids jobs;
	kit_list(k, &(struct sl_job_filter){0}, &jobs);
	assert_int_equal(jobs.n, 2);
}

static void a_deduplicated_start_sends_no_notifications(void **state)
{
	struct kit *k = *state;
	kit_start_key(k, "k", SL_DEDUP_ANY, 0);
	struct sl_new_chain chain = {.job = {.type = "t"}, .key = "k", .scope = SL_DEDUP_ANY};
	struct sl_started out;
	struct kit_heard heard;
	KIT_OK(k->ops->start(k->s, &chain, 1, kit_hear(&heard), &out, err));
	assert_int_equal(out.deduplicated, 1);
	assert_int_equal(heard.n_notes, 0);
	assert_int_equal(heard.n_changes, 0);
}

/* ---- keys and redrives ---- */

static uint64_t failed_with_key(struct kit *k, const char *key, enum sl_dedup_scope scope, int64_t window_ms)
{
	struct sl_started s = kit_start_key(k, key, scope, window_ms);
	KIT_TRUE(!s.deduplicated);
	KIT_OK(k->ops->fail_chain(k->s, s.chain_id, "no", NULL, err));
	return s.chain_id;
}

static void a_redriven_chain_takes_its_key_again(void **state)
{
	struct kit *k = *state;
	uint64_t first = failed_with_key(k, "k", SL_DEDUP_INCOMPLETE, 0);
	size_t n = 0;
	KIT_OK(k->ops->redrive(k->s, (struct sl_ids){&first, 1}, NULL, &n, err));
	assert_int_equal(n, 1);
	struct sl_started again = kit_start_key(k, "k", SL_DEDUP_INCOMPLETE, 0);
	assert_int_equal(again.deduplicated, 1);
	assert_int_equal(again.chain_id, first);
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	struct sl_new_job next = {.type = "next"};
	continue_job(k, &claim, &next, NULL);
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&first, 1}, NULL, &n, err));
	KIT_OK(k->ops->redrive(k->s, (struct sl_ids){&first, 1}, NULL, &n, err)); /* at its second job */
	assert_int_equal(kit_start_key(k, "k", SL_DEDUP_INCOMPLETE, 0).chain_id, first);
	kit_run(k, "next", NULL);
	assert_int_equal(kit_start_key(k, "k", SL_DEDUP_INCOMPLETE, 0).deduplicated, 0);
}

static void refuse_redrive(struct kit *k, const uint64_t *ids, size_t n_ids, int code, uint64_t named)
{
	struct sl_err err = SL_ERR_INIT;
	size_t n = 99;
	char name[32];
	name_of(named, name);
	assert_int_equal(k->ops->redrive(k->s, (struct sl_ids){ids, n_ids}, NULL, &n, &err), code);
	assert_non_null(strstr(err.msg, name));
	assert_int_equal(n, 99);
	for (size_t i = 0; i < n_ids; i++) {
		struct kit_chain chain;
		kit_get_chain(k, ids[i], &chain);
		assert_int_equal(chain.chain.status, SL_JOB_FAILED);
	}
}

static void a_chain_is_not_redriven_while_another_holds_its_key(void **state)
{
	struct kit *k = *state;
	uint64_t first = failed_with_key(k, "k", SL_DEDUP_INCOMPLETE, 0);
	uint64_t plain = failed_with_key(k, "other", SL_DEDUP_INCOMPLETE, 0);
	uint64_t second = kit_start_key(k, "k", SL_DEDUP_INCOMPLETE, 0).chain_id;
	assert_int_not_equal(first, second);
	refuse_redrive(k, (uint64_t[]){plain, first}, 2, SL_EEXIST, second);
	assert_int_equal(kit_start_key(k, "other", SL_DEDUP_INCOMPLETE, 0).deduplicated, 0); /* it was not taken */
	sl_store_tx *tx = NULL;
	size_t n = 0;
	KIT_OK(k->ops->begin(k->s, &tx, err));
	KIT_FAILS(SL_EEXIST,
		  k->ops->redrive(k->s, (struct sl_ids){&first, 1}, &(struct sl_store_scope){.tx = tx}, &n, err));
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&second, 1}, &(struct sl_store_scope){.tx = tx}, &n,
			      err)); /* the transaction continues */
	KIT_OK(k->ops->redrive(k->s, (struct sl_ids){&first, 1}, &(struct sl_store_scope){.tx = tx}, &n, err));
	KIT_OK(k->ops->commit(tx, err));
	assert_int_equal(kit_start_key(k, "k", SL_DEDUP_INCOMPLETE, 0).chain_id, first);
}

static void of_two_chains_with_one_key_only_one_is_redriven(void **state)
{
	struct kit *k = *state;
	uint64_t first = failed_with_key(k, "k", SL_DEDUP_INCOMPLETE, 0);
	uint64_t second = failed_with_key(k, "k", SL_DEDUP_INCOMPLETE, 0);
	size_t n = 0;
	refuse_redrive(k, (uint64_t[]){first, second}, 2, SL_EEXIST, first);
	KIT_OK(k->ops->redrive(k->s, (struct sl_ids){&second, 1}, NULL, &n, err));
	assert_int_equal(n, 1);
	refuse_redrive(k, &first, 1, SL_EEXIST, second);
}

static void a_key_that_is_held_after_its_chains_end_keeps_no_other_from_a_redrive(void **state)
{
	struct kit *k = *state;
	uint64_t first = failed_with_key(k, "k", SL_DEDUP_ANY, 2);
	kit_pass_ms(k, 4);
	uint64_t second = kit_start_key(k, "k", SL_DEDUP_ANY, KIT_LONG_MS).chain_id;
	refuse_redrive(k, &first, 1, SL_EEXIST, second);
	kit_run(k, "t", NULL);
	size_t n = 0;
	KIT_OK(k->ops->redrive(k->s, (struct sl_ids){&first, 1}, NULL, &n, err));
	assert_int_equal(n, 1);
	assert_int_equal(kit_start_key(k, "k", SL_DEDUP_ANY, 0).chain_id, second); /* it is still the other's */
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_continuation_creates_the_next_job_of_its_chain),
	cmocka_unit_test(a_continuation_may_be_for_later),
	cmocka_unit_test(a_continuation_with_an_unknown_blocker_changes_nothing),
	cmocka_unit_test(a_continuation_that_waits_for_its_own_chain_changes_nothing),
	cmocka_unit_test(a_continuation_waits_for_what_it_fanned_out),
	cmocka_unit_test(a_continuation_that_waits_for_who_waits_for_it_is_refused),
	cmocka_unit_test(two_continuations_of_one_batch_that_wait_for_each_other_are_refused),
	cmocka_unit_test(who_was_cancelled_while_it_waited_counts_as_waiting),
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
	cmocka_unit_test(a_deduplicated_start_sends_no_notifications),
	cmocka_unit_test(a_redriven_chain_takes_its_key_again),
	cmocka_unit_test(a_chain_is_not_redriven_while_another_holds_its_key),
	cmocka_unit_test(of_two_chains_with_one_key_only_one_is_redriven),
	cmocka_unit_test(a_key_that_is_held_after_its_chains_end_keeps_no_other_from_a_redrive),
};

CONTRACT_TESTS(contract_chain_tests, tests)
