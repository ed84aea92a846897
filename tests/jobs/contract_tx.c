/* SPDX-License-Identifier: Apache-2.0 */
/* Transactions, several handles on one store, and the slots that say who the store is. */
#include "jobs/contract_kit.h"

static uint64_t start_in(struct kit *k, sl_store_tx *tx, const char *type)
{
	struct sl_new_chain chain = {.job = {.type = type}};
	struct sl_started out = {0};
	KIT_OK(k->ops->start(k->s, &chain, 1, &(struct sl_store_scope){.tx = tx}, &out, err));
	return out.chain_id;
}

static int seen(const struct sl_job *job, void *ctx)
{
	*(enum sl_job_status *)ctx = job->status;
	return 0;
}

static void a_commit_makes_all_of_it_visible(void **state)
{
	struct kit *k = *state;
	sl_store_tx *tx = NULL;
	KIT_OK(k->ops->begin(k->s, &tx, err));
	uint64_t a = start_in(k, tx, "t"), b = start_in(k, tx, "t");
	enum sl_job_status status = 0;
	KIT_OK(k->ops->get_job(k->s, tx, a, seen, &status, err)); /* its own writes */
	assert_int_equal(status, SL_JOB_PENDING);
	KIT_OK(k->ops->commit(tx, err));
	assert_int_equal(kit_status(k, a), SL_JOB_PENDING);
	assert_int_equal(kit_status(k, b), SL_JOB_PENDING);
}

static void a_rollback_leaves_nothing(void **state)
{
	struct kit *k = *state;
	uint64_t live = kit_start(k, "u"), failed = kit_start(k, "f");
	uint64_t later = kit_start_job(k, &(struct sl_new_job){.type = "l", .delay_ms = KIT_LONG_MS});
	struct kit_claim claim;
	kit_claim_one(k, "f", &claim);
	kit_fail(k, &claim, 0);
	uint64_t running = kit_start(k, "r");
	kit_claim_one(k, "r", &claim);
	sl_store_tx *tx = NULL;
	size_t n;
	KIT_OK(k->ops->begin(k->s, &tx, err));
	struct sl_new_chain chain = {.job = {.type = "t", .blockers = &live, .n_blockers = 1}, .key = "k"};
	struct sl_started out;
	KIT_OK(k->ops->start(k->s, &chain, 1, &(struct sl_store_scope){.tx = tx}, &out, err));
	KIT_OK(k->ops->complete_chain(k->s, live, "1", &(struct sl_store_scope){.tx = tx}, err));
	KIT_OK(k->ops->redrive(k->s, (struct sl_ids){&failed, 1}, &(struct sl_store_scope){.tx = tx}, &n, err));
	KIT_OK(k->ops->trigger(k->s, (struct sl_ids){&later, 1}, &(struct sl_store_scope){.tx = tx}, &n, err));
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_COMPLETE);
	struct sl_settle_result result;
	KIT_OK(k->ops->exchange(k->s, &(struct sl_exchange){.settles = &s, .n_settles = 1, .results = &result},
				&(struct sl_store_scope){.tx = tx}, err));
	assert_int_equal(result.lost, SL_LOST_NOT);
	k->ops->rollback(tx);
	assert_false(kit_exists(k, out.chain_id));
	assert_int_equal(kit_status(k, live), SL_JOB_PENDING);
	assert_int_equal(kit_status(k, failed), SL_JOB_FAILED);
	assert_int_equal(kit_status(k, running), SL_JOB_RUNNING);
	struct kit_claim none;
	kit_claim(k, "l", 1, 0, &none);
	assert_int_equal(none.n, 0);
	assert_int_equal(kit_start_key(k, "k", SL_DEDUP_ANY, 0).deduplicated, 0);
	kit_complete(k, &claim, 0, "1"); /* the fence is as it was */
}

static void a_removal_and_a_cancel_can_be_rolled_back(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "a"), b = kit_start(k, "b");
	sl_store_tx *tx = NULL;
	size_t n;
	KIT_OK(k->ops->begin(k->s, &tx, err));
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){&a, 1}, false, &(struct sl_store_scope){.tx = tx}, &n, err));
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&b, 1}, &(struct sl_store_scope){.tx = tx}, &n, err));
	k->ops->rollback(tx);
	kit_run(k, "a", NULL);
	kit_run(k, "b", NULL);
}

static void a_savepoint_takes_back_what_came_after_it(void **state)
{
	struct kit *k = *state;
	sl_store_tx *tx = NULL;
	KIT_OK(k->ops->begin(k->s, &tx, err));
	uint64_t a = start_in(k, tx, "t");
	KIT_OK(k->ops->savepoint(tx, "one", err));
	uint64_t b = start_in(k, tx, "t");
	KIT_OK(k->ops->savepoint(tx, "two", err));
	uint64_t c = start_in(k, tx, "t");
	KIT_OK(k->ops->release_savepoint(tx, "two", err));
	KIT_OK(k->ops->rollback_to(tx, "one", err));
	uint64_t d = start_in(k, tx, "t");
	KIT_OK(k->ops->rollback_to(tx, "one", err)); /* it is still there */
	uint64_t e = start_in(k, tx, "t");
	KIT_OK(k->ops->release_savepoint(tx, "one", err));
	KIT_OK(k->ops->commit(tx, err));
	struct kit_ids jobs;
	kit_list(k, &(struct sl_job_filter){.ascending = true}, &jobs);
	assert_int_equal(jobs.n, 2);
	assert_int_equal(jobs.ids[0], a);
	assert_int_equal(jobs.ids[1], e);
	(void)b, (void)c, (void)d;
}

static void a_call_that_fails_leaves_the_transaction_usable(void **state)
{
	struct kit *k = *state;
	sl_store_tx *tx = NULL;
	KIT_OK(k->ops->begin(k->s, &tx, err));
	uint64_t a = start_in(k, tx, "t");
	uint64_t unknown = a + 1000;
	struct sl_new_chain bad[2] = {{.job = {.type = "t"}, .key = "k"},
				      {.job = {.type = "t", .blockers = &unknown, .n_blockers = 1}}};
	struct sl_started out[2];
	size_t n;
	KIT_FAILS(SL_ENOENT, k->ops->start(k->s, bad, 2, &(struct sl_store_scope){.tx = tx}, out, err));
	KIT_FAILS(SL_ENOENT, k->ops->cancel(k->s, (struct sl_ids){(uint64_t[]){a, unknown}, 2},
					    &(struct sl_store_scope){.tx = tx}, &n, err));
	KIT_FAILS(SL_ENOENT, k->ops->get_job(k->s, tx, unknown, NULL, NULL, err));
	uint64_t b = start_in(k, tx, "t");
	KIT_OK(k->ops->commit(tx, err));
	struct kit_ids jobs;
	kit_list(k, &(struct sl_job_filter){.ascending = true}, &jobs);
	assert_int_equal(jobs.n, 2);
	assert_int_equal(jobs.ids[0], a);
	assert_int_equal(jobs.ids[1], b);
	assert_int_equal(kit_status(k, a), SL_JOB_PENDING);
}

static void a_job_is_guarded_and_completed_in_one_transaction(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	struct kit_job job = kit_claim_one(k, "t", &claim);
	sl_store_tx *tx = NULL;
	KIT_OK(k->ops->begin(k->s, &tx, err));
	enum sl_lost_reason why = 99;
	KIT_OK(k->ops->guard(k->s, tx, id, job.fence, &why, err));
	assert_int_equal(why, SL_LOST_NOT);
	uint64_t made = start_in(k, tx, "child");
	struct sl_new_job next = {.type = "join", .blockers = &made, .n_blockers = 1};
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_CONTINUE);
	s.next = &next;
	struct sl_settle_result result;
	KIT_OK(k->ops->exchange(k->s, &(struct sl_exchange){.settles = &s, .n_settles = 1, .results = &result},
				&(struct sl_store_scope){.tx = tx}, err));
	assert_int_equal(result.lost, SL_LOST_NOT);
	KIT_OK(k->ops->commit(tx, err));
	assert_int_equal(kit_status(k, id), SL_JOB_COMPLETED);
	assert_int_equal(kit_status(k, result.next_id), SL_JOB_BLOCKED);
	kit_run(k, "child", NULL);
	assert_int_equal(kit_status(k, result.next_id), SL_JOB_PENDING);
}

static void a_callers_connection_can_be_joined(void **state)
{
	struct kit *k = *state;
	const struct contract_fixture *f = k->f;
	if (f->native_open == NULL)
		return; /* not of this store */
	void *native = NULL;
	assert_int_equal(f->native_open(&native, f->ctx), 0);
	sl_store_tx *tx = NULL;
	KIT_OK(k->ops->join(k->s, native, &tx, err));
	assert_ptr_equal(k->ops->native(tx), native);
	uint64_t kept = start_in(k, tx, "t");
	KIT_OK(k->ops->commit(tx, err));
	assert_true(kit_exists(k, kept));
	KIT_OK(k->ops->join(k->s, native, &tx, err));
	uint64_t dropped = start_in(k, tx, "t");
	k->ops->rollback(tx);
	assert_false(kit_exists(k, dropped));
	f->native_close(native, f->ctx);
}

static void a_callers_own_transaction_decides_when_it_was_joined(void **state)
{
	struct kit *k = *state;
	const struct contract_fixture *f = k->f;
	if (f->native_open == NULL || !f->begin_first)
		return; /* not of this store */
	for (int commit = 0; commit < 2; commit++) {
		void *native = NULL;
		sl_store_tx *tx = NULL;
		assert_int_equal(f->native_open(&native, f->ctx), 0);
		assert_int_equal(f->native_exec(native, "BEGIN", f->ctx), 0);
		KIT_OK(k->ops->join(k->s, native, &tx, err));
		uint64_t id = start_in(k, tx, "t");
		KIT_OK(k->ops->commit(tx, err)); /* only lets go */
		assert_false(kit_exists(k, id));
		assert_int_equal(f->native_exec(native, commit ? "COMMIT" : "ROLLBACK", f->ctx), 0);
		assert_int_equal(kit_exists(k, id), commit);
		f->native_close(native, f->ctx);
	}
}

static void an_empty_transaction_may_be_committed_or_rolled_back(void **state)
{
	struct kit *k = *state;
	sl_store_tx *tx = NULL;
	KIT_OK(k->ops->begin(k->s, &tx, err));
	KIT_OK(k->ops->commit(tx, err));
	KIT_OK(k->ops->begin(k->s, &tx, err));
	k->ops->rollback(tx);
	kit_start(k, "t");
}

/* ---- the store itself ---- */

static void another_handle_sees_the_same_jobs(void **state)
{
	struct kit *k = *state;
	struct kit other;
	kit_open(&other, k->f);
	uint64_t id = kit_start(k, "t");
	struct kit_claim claim;
	assert_int_equal(kit_claim_one(&other, "t", &claim).id, id);
	struct kit_claim none;
	kit_claim(k, "t", 1, 0, &none);
	assert_int_equal(none.n, 0);
	kit_complete(k, &claim, 0, "1"); /* by another connection: the fence is in the row */
	assert_int_equal(kit_status(&other, id), SL_JOB_COMPLETED);
	kit_close(&other);
}

static void what_was_committed_is_there_after_all_handles_were_closed(void **state)
{
	struct kit *k = *state;
	uint64_t done = kit_start(k, "t");
	kit_run(k, "t", "\"kept\"");
	uint64_t open = kit_start_key(k, "k", SL_DEDUP_ANY, 0).chain_id;
	const struct contract_fixture *f = k->f;
	kit_close(k);
	kit_open(k, f);
	struct kit_row row;
	kit_get(k, done, &row);
	assert_string_equal(row.output, "\"kept\"");
	assert_int_equal(kit_start_key(k, "k", SL_DEDUP_ANY, 0).chain_id, open);
	assert_true(kit_start(k, "t") > open);
}

static void a_migration_that_is_done_does_nothing(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	int from = -1, to = -1;
	KIT_OK(k->ops->migrate(k->s, &from, &to, err));
	assert_int_equal(from, SL_SCHEMA_VERSION);
	assert_int_equal(to, SL_SCHEMA_VERSION);
	KIT_OK(k->ops->migrate(k->s, NULL, NULL, err));
	assert_int_equal(kit_status(k, id), SL_JOB_PENDING);
}

static void the_target_id_is_32_hexadecimal_digits_and_stays(void **state)
{
	struct kit *k = *state;
	char first[33], second[33];
	KIT_OK(k->ops->target_id(k->s, first, err));
	assert_int_equal(strspn(first, "0123456789abcdef"), 32);
	assert_int_equal(first[32], '\0');
	struct kit other;
	kit_open(&other, k->f);
	KIT_OK(other.ops->target_id(other.s, second, err));
	kit_close(&other);
	assert_string_equal(first, second);
}

static void the_table_is_whole(void **state)
{
	struct kit *k = *state;
	assert_int_equal(k->ops->version, SL_STORE_VERSION);
	assert_non_null(k->ops->name);
	union {
		const struct sl_store_ops *ops;
		const char *bytes;
	} table = {.ops = k->ops};
	void (*const none)(void) = NULL;
	for (size_t at = offsetof(struct sl_store_ops, close); at < offsetof(struct sl_store_ops, offer);
	     at += sizeof(none))
		if (at != offsetof(struct sl_store_ops, renewal_waits)) /* of stores with a lock */
			assert_memory_not_equal(table.bytes + at, &none, sizeof(none));
	assert_int_equal(k->ops->offer != NULL, k->ops->withdraw != NULL); /* both or none */
	for (size_t at = offsetof(struct sl_store_ops, leases); at < offsetof(struct sl_store_ops, heartbeat);
	     at += sizeof(none))
		assert_memory_not_equal(table.bytes + at, &none, sizeof(none));
	bool beats = k->ops->heartbeat != NULL; /* all or none */
	assert_true((k->ops->heartbeat_end != NULL) == beats && (k->ops->heartbeats != NULL) == beats);
	bool history = k->ops->history != NULL; /* all or none */
	assert_true((k->ops->history_put != NULL) == history && (k->ops->history_roll != NULL) == history);
	bool audits = k->ops->audit_put != NULL; /* all or none */
	assert_true((k->ops->audit_list != NULL) == audits && (k->ops->audit_prune != NULL) == audits);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_commit_makes_all_of_it_visible),
	cmocka_unit_test(a_rollback_leaves_nothing),
	cmocka_unit_test(a_removal_and_a_cancel_can_be_rolled_back),
	cmocka_unit_test(a_savepoint_takes_back_what_came_after_it),
	cmocka_unit_test(a_call_that_fails_leaves_the_transaction_usable),
	cmocka_unit_test(a_job_is_guarded_and_completed_in_one_transaction),
	cmocka_unit_test(a_callers_connection_can_be_joined),
	cmocka_unit_test(a_callers_own_transaction_decides_when_it_was_joined),
	cmocka_unit_test(an_empty_transaction_may_be_committed_or_rolled_back),
	cmocka_unit_test(another_handle_sees_the_same_jobs),
	cmocka_unit_test(what_was_committed_is_there_after_all_handles_were_closed),
	cmocka_unit_test(a_migration_that_is_done_does_nothing),
	cmocka_unit_test(the_target_id_is_32_hexadecimal_digits_and_stays),
	cmocka_unit_test(the_table_is_whole),
};

CONTRACT_TESTS(contract_tx_tests, tests)
