/* SPDX-License-Identifier: Apache-2.0 */
/* Reading: every filter, cursors, counts, what is outstanding. */
#include <stdio.h>

#include "jobs/contract_kit.h"

static void expect_jobs(struct kit *k, const struct sl_job_filter *filter, const uint64_t *ids, size_t n)
{
	struct kit_ids got;
	kit_list(k, filter, &got);
	assert_int_equal(got.n, n);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(got.ids[i], ids[i]);
}

static void expect_chains(struct kit *k, const struct sl_job_filter *filter, const uint64_t *ids, size_t n)
{
	struct kit_ids got;
	kit_list_chains(k, filter, &got);
	assert_int_equal(got.n, n);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(got.ids[i], ids[i]);
}

#define JOBS(k, filter, ...)                                                                                           \
	expect_jobs(k, &(struct sl_job_filter)filter, (uint64_t[]){__VA_ARGS__},                                       \
		    sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))
#define CHAINS(k, filter, ...)                                                                                         \
	expect_chains(k, &(struct sl_job_filter)filter, (uint64_t[]){__VA_ARGS__},                                     \
		      sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))
#define F(...)                                                                                                         \
	{                                                                                                              \
		__VA_ARGS__                                                                                            \
	}
#define BIT(status) (1u << (status))

/* One job in each status: blocked, pending, running, completed, failed, cancelled. */
struct zoo {
	uint64_t blocked, pending, running, completed, failed, cancelled;
};

static struct zoo make_zoo(struct kit *k)
{
	struct zoo z;
	struct kit_claim claim;
	z.completed = kit_start(k, "t");
	kit_run(k, "t", "1");
	z.failed = kit_start(k, "t");
	kit_claim_one(k, "t", &claim);
	kit_fail(k, &claim, 0);
	z.cancelled = kit_start(k, "t");
	size_t n;
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&z.cancelled, 1}, NULL, &n, err));
	z.running = kit_start(k, "t");
	kit_claim_one(k, "t", &claim);
	z.pending = kit_start(k, "t");
	z.blocked = kit_start_after(k, "t", &z.pending, 1);
	return z;
}

static void jobs_are_listed_newest_first_or_oldest_first(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "t"), b = kit_start(k, "t"), c = kit_start(k, "t");
	JOBS(k, F(0), c, b, a);
	JOBS(k, F(.ascending = true), a, b, c);
	CHAINS(k, F(0), c, b, a);
	CHAINS(k, F(.ascending = true), a, b, c);
}

static void a_cursor_walks_through_all_pages(void **state)
{
	struct kit *k = *state;
	enum { N = 23 };
	uint64_t ids[N];
	for (size_t i = 0; i < N; i++)
		ids[i] = kit_start(k, "t");
	for (int ascending = 0; ascending < 2; ascending++) {
		struct sl_job_filter f = {.limit = 5, .ascending = ascending};
		size_t seen = 0;
		for (;;) {
			struct kit_ids page;
			kit_list(k, &f, &page);
			if (page.n == 0)
				break;
			assert_true(page.n <= 5);
			for (size_t i = 0; i < page.n; i++, seen++)
				assert_int_equal(page.ids[i], ids[ascending ? seen : N - 1 - seen]);
			f.after = page.ids[page.n - 1];
			struct kit_ids chains;
			kit_list_chains(k, &f, &chains);
			assert_int_equal(chains.n, N - seen < 5 ? N - seen : 5);
		}
		assert_int_equal(seen, N);
	}
}

static void the_default_limit_is_100(void **state)
{
	struct kit *k = *state;
	struct sl_new_chain chains[120];
	struct sl_started out[120];
	for (size_t i = 0; i < 120; i++)
		chains[i] = (struct sl_new_chain){.job = {.type = "t"}};
	KIT_OK(k->ops->start(k->s, chains, 120, NULL, out, err));
	struct kit_ids got;
	kit_list(k, &(struct sl_job_filter){0}, &got);
	assert_int_equal(got.n, 100);
	kit_list(k, &(struct sl_job_filter){.limit = 110}, &got);
	assert_int_equal(got.n, 110);
}

static void jobs_are_filtered_by_status(void **state)
{
	struct kit *k = *state;
	struct zoo z = make_zoo(k);
	JOBS(k, F(.statuses = BIT(SL_JOB_BLOCKED)), z.blocked);
	JOBS(k, F(.statuses = BIT(SL_JOB_PENDING)), z.pending); /* what runs is not pending */
	JOBS(k, F(.statuses = BIT(SL_JOB_RUNNING)), z.running);
	JOBS(k, F(.statuses = BIT(SL_JOB_COMPLETED)), z.completed);
	JOBS(k, F(.statuses = BIT(SL_JOB_FAILED)), z.failed);
	JOBS(k, F(.statuses = BIT(SL_JOB_CANCELLED)), z.cancelled);
	JOBS(k, F(.statuses = BIT(SL_JOB_RUNNING) | BIT(SL_JOB_FAILED)), z.running, z.failed);
	CHAINS(k, F(.statuses = BIT(SL_JOB_RUNNING)), z.running);
	CHAINS(k, F(.statuses = BIT(SL_JOB_PENDING)), z.pending);
	CHAINS(k, F(.statuses = BIT(SL_JOB_BLOCKED) | BIT(SL_JOB_COMPLETED)), z.blocked, z.completed);
}

static enum sl_job_status state_of(struct kit *k, uint64_t id)
{
	struct kit_row row;
	kit_get(k, id, &row);
	return row.job.state;
}

static void a_pending_job_is_ready_scheduled_or_retrying(void **state)
{
	struct kit *k = *state;
	struct zoo z = make_zoo(k);
	struct kit_claim claim;
	uint64_t retrying = kit_start(k, "r");
	kit_claim_one(k, "r", &claim);
	kit_retry(k, &claim, 0, KIT_LONG_MS);
	uint64_t ready_again = kit_start(k, "r");
	kit_claim_one(k, "r", &claim);
	kit_retry(k, &claim, 0, 3);
	uint64_t scheduled = kit_start_job(k, &(struct sl_new_job){.type = "r", .delay_ms = KIT_LONG_MS});
	uint64_t came = kit_start_job(k, &(struct sl_new_job){.type = "r", .delay_ms = 3});
	kit_pass_ms(k, 4);
	JOBS(k, F(.statuses = BIT(SL_JOB_READY)), came, ready_again, z.pending);
	JOBS(k, F(.statuses = BIT(SL_JOB_SCHEDULED)), scheduled);
	JOBS(k, F(.statuses = BIT(SL_JOB_RETRYING)), retrying);
	CHAINS(k, F(.statuses = BIT(SL_JOB_READY), .ascending = true), z.pending, ready_again, came);
	CHAINS(k, F(.statuses = BIT(SL_JOB_SCHEDULED) | BIT(SL_JOB_RUNNING)), scheduled, z.running);
	CHAINS(k, F(.statuses = BIT(SL_JOB_RETRYING)), retrying);
	/* With others, along all jobs, page by page, and together with all that are pending. */
	JOBS(k, F(.statuses = BIT(SL_JOB_RETRYING) | BIT(SL_JOB_FAILED)), retrying, z.failed);
	JOBS(k, F(.statuses = BIT(SL_JOB_SCHEDULED) | BIT(SL_JOB_COMPLETED)), scheduled, z.completed);
	JOBS(k, F(.statuses = BIT(SL_JOB_READY), .limit = 1, .after = came), ready_again);
	JOBS(k, F(.statuses = BIT(SL_JOB_PENDING) | BIT(SL_JOB_RETRYING)), came, scheduled, ready_again, retrying,
	     z.pending);
	assert_int_equal(state_of(k, retrying), SL_JOB_RETRYING);
	assert_int_equal(state_of(k, scheduled), SL_JOB_SCHEDULED);
	assert_int_equal(state_of(k, came), SL_JOB_READY);
	assert_int_equal(state_of(k, z.running), SL_JOB_RUNNING);
	assert_int_equal(state_of(k, z.failed), SL_JOB_FAILED);
	assert_int_equal(state_of(k, z.blocked), SL_JOB_BLOCKED);
	/* The next attempt runs, and it may be triggered. */
	size_t n;
	KIT_OK(k->ops->trigger(k->s, (struct sl_ids){&retrying, 1}, NULL, &n, err));
	assert_int_equal(state_of(k, retrying), SL_JOB_READY);
}

static void jobs_are_filtered_by_type_key_and_time(void **state)
{
	struct kit *k = *state;
	uint64_t a = kit_start(k, "a"), b = kit_start(k, "b");
	kit_pass_ms(k, 3);
	int64_t line = kit_now(k);
	kit_pass_ms(k, 3);
	uint64_t c = kit_start(k, "c");
	uint64_t keyed = kit_start_key(k, "key", SL_DEDUP_ANY, 0).chain_id;
	const char *const types[] = {"a", "c", "none"};
	JOBS(k, F(.types = types, .n_types = 3), c, a);
	CHAINS(k, F(.types = types, .n_types = 3), c, a);
	JOBS(k, F(.types = types + 1, .n_types = 1), c);
	JOBS(k, F(.key = "key"), keyed);
	CHAINS(k, F(.key = "key"), keyed);
	JOBS(k, F(.created_to_ms = line), b, a);
	JOBS(k, F(.created_from_ms = line), keyed, c);
	CHAINS(k, F(.created_from_ms = line), keyed, c);
	struct kit_row row;
	kit_get(k, keyed, &row);
	struct kit_ids got;
	/* From is inclusive, to is exclusive. */
	kit_list(k, &(struct sl_job_filter){.key = "key", .created_from_ms = row.job.created_ms}, &got);
	assert_int_equal(got.n, 1);
	kit_list(k, &(struct sl_job_filter){.key = "key", .created_to_ms = row.job.created_ms}, &got);
	assert_int_equal(got.n, 0);
	kit_list(k, &(struct sl_job_filter){.key = "none"}, &got);
	assert_int_equal(got.n, 0);
}

static void the_jobs_of_a_chain_are_listed_in_their_order(void **state)
{
	struct kit *k = *state;
	uint64_t first = kit_start(k, "a");
	kit_start(k, "other");
	struct kit_claim claim;
	kit_claim_one(k, "a", &claim);
	struct sl_new_job next = {.type = "b"};
	struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_CONTINUE);
	s.next = &next;
	uint64_t second = kit_exchange(k, &s, NULL).next_id;
	JOBS(k, F(.chain_id = first, .ascending = true), first, second);
	/* A chain is listed by the type of its first job and the status of its last. */
	const char *const types[] = {"a"};
	CHAINS(k, F(.types = types, .n_types = 1, .statuses = BIT(SL_JOB_PENDING)), first);
}

static int look_for_data(const struct sl_job *job, void *ctx)
{
	assert_null(job->input);
	assert_null(job->output);
	assert_null(job->progress);
	assert_non_null(job->type);
	++*(int *)ctx;
	return 0;
}

static int look_for_chain_data(const struct sl_chain *chain, void *ctx)
{
	assert_null(chain->input);
	assert_null(chain->output);
	++*(int *)ctx;
	return 0;
}

static void data_can_be_left_out(void **state)
{
	struct kit *k = *state;
	kit_start(k, "t");
	kit_run(k, "t", "1");
	int n = 0;
	struct sl_job_filter f = {.without_data = true};
	KIT_OK(k->ops->list_jobs(k->s, &f, look_for_data, &n, err));
	KIT_OK(k->ops->list_chains(k->s, &f, look_for_chain_data, &n, err));
	assert_int_equal(n, 2);
}

static int note_input(const struct sl_job *job, void *ctx)
{
	(void)snprintf(ctx, 64, "%.20s|%.20s", job->input != NULL ? job->input : "none",
		       job->output != NULL ? job->output : "none");
	return 0;
}

static int note_chain_input(const struct sl_chain *chain, void *ctx)
{
	(void)snprintf(ctx, 64, "%.20s|%.20s", chain->input != NULL ? chain->input : "none",
		       chain->output != NULL ? chain->output : "none");
	return 0;
}

static void data_longer_than_the_filter_wants_is_an_empty_text(void **state)
{
	struct kit *k = *state;
	struct sl_new_chain chain = {.job = {.type = "t", .input = "\"1234567890\""}};
	struct sl_started started;
	KIT_OK(k->ops->start(k->s, &chain, 1, NULL, &started, err));
	const struct {
		uint32_t max;
		const char *shown;
	} cases[] = {{0, "\"1234567890\"|none"}, {12, "\"1234567890\"|none"}, {11, "|none"}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sl_job_filter f = {.data_max_bytes = cases[i].max};
		char jobs[64] = "", chains[64] = "";
		KIT_OK(k->ops->list_jobs(k->s, &f, note_input, jobs, err));
		KIT_OK(k->ops->list_chains(k->s, &f, note_chain_input, chains, err));
		assert_string_equal(jobs, cases[i].shown);
		assert_string_equal(chains, cases[i].shown);
	}
}

static int stop_at_second(const struct sl_job *job, void *ctx)
{
	(void)job;
	return ++*(int *)ctx == 2 ? 7 : 0;
}

static void a_callback_stops_a_listing_and_gives_its_result(void **state)
{
	struct kit *k = *state;
	for (int i = 0; i < 4; i++)
		kit_start(k, "t");
	int n = 0;
	struct sl_err err = SL_ERR_INIT;
	struct sl_job_filter f = {0};
	assert_int_equal(k->ops->list_jobs(k->s, &f, stop_at_second, &n, &err), 7);
	assert_int_equal(n, 2);
	kit_start(k, "t"); /* and the store is fine */
}

static void what_is_not_there_is_not_found(void **state)
{
	struct kit *k = *state;
	uint64_t id = kit_start(k, "t");
	KIT_FAILS(SL_ENOENT, k->ops->get_job(k->s, NULL, id + 1000, NULL, NULL, err));
	KIT_FAILS(SL_ENOENT, k->ops->get_chain(k->s, NULL, id + 1000, NULL, NULL, err));
	KIT_FAILS(SL_ENOENT, k->ops->get_job(k->s, NULL, 0, NULL, NULL, err));
}

/* ---- counts ---- */

struct counted {
	struct sl_job_count by[SL_JOB_STATUS_COUNT + 1]; /* of type "t" */
	int rows, paused_rows;
};

static int keep_count(const struct sl_job_count *c, void *ctx)
{
	struct counted *all = ctx;
	if (c->count == 0)
		return 0;
	all->rows++;
	all->paused_rows += c->paused;
	if (strcmp(c->type, "t") == 0) {
		KIT_TRUE(all->by[c->status].count == 0); /* one row each */
		all->by[c->status] = *c;
	}
	return 0;
}

static void counts_are_reported_per_type_and_status(void **state)
{
	struct kit *k = *state;
	struct zoo z = make_zoo(k);
	kit_start(k, "u");
	kit_start_job(k, &(struct sl_new_job){.type = "t", .delay_ms = KIT_LONG_MS});
	uint64_t retried = kit_start_job(k, &(struct sl_new_job){.type = "t", .priority = -9});
	struct kit_claim claim;
	assert_int_equal(kit_claim_one(k, "t", &claim).id, retried);
	kit_retry(k, &claim, 0, KIT_LONG_MS);
	struct counted all = {0};
	KIT_OK(k->ops->counts(k->s, keep_count, &all, err));
	assert_int_equal(all.rows, 7);
	for (int s = SL_JOB_BLOCKED; s <= SL_JOB_CANCELLED; s++)
		assert_int_equal(all.by[s].count, s == SL_JOB_PENDING ? 3 : 1);
	assert_int_equal(all.by[SL_JOB_PENDING].due, 1);
	assert_int_equal(all.by[SL_JOB_PENDING].retrying, 1); /* and 1 is scheduled */
	struct kit_row row;
	kit_get(k, z.pending, &row);
	assert_int_equal(all.by[SL_JOB_PENDING].oldest_ms, row.job.created_ms);
	kit_get(k, z.running, &row);
	assert_int_equal(all.by[SL_JOB_RUNNING].oldest_ms, row.job.created_ms);
	assert_int_equal(all.by[SL_JOB_COMPLETED].oldest_ms, 0);
	assert_int_equal(all.paused_rows, 0);
	KIT_OK(k->ops->pause(k->s, "u", 1, NULL, err));
	all = (struct counted){0};
	KIT_OK(k->ops->counts(k->s, keep_count, &all, err));
	assert_int_equal(all.paused_rows, 1);
}

static void a_batch_that_runs_is_counted_as_running(void **state)
{
	struct kit *k = *state;
	for (int i = 0; i < 5; i++)
		kit_start(k, "t");
	struct kit_claim claim;
	kit_claim(k, "t", 3, 0, &claim);
	kit_complete(k, &claim, 0, NULL);
	struct counted all = {0};
	KIT_OK(k->ops->counts(k->s, keep_count, &all, err));
	assert_int_equal(all.by[SL_JOB_RUNNING].count, 2);
	assert_int_equal(all.by[SL_JOB_PENDING].count, 2);
	assert_int_equal(all.by[SL_JOB_COMPLETED].count, 1);
}

static void outstanding_work_is_reported_in_disjoint_kinds(void **state)
{
	struct kit *k = *state;
	make_zoo(k);
	kit_start_job(k, &(struct sl_new_job){.type = "t", .delay_ms = KIT_LONG_MS});
	uint64_t retried = kit_start_job(k, &(struct sl_new_job){.type = "t", .priority = -9});
	struct kit_claim claim;
	assert_int_equal(kit_claim_one(k, "t", &claim).id, retried);
	kit_retry(k, &claim, 0, KIT_LONG_MS);
	kit_start(k, "other");
	const char *const types[] = {"t", "none"};
	struct sl_outstanding o = {99, 99, 99, 99, 99};
	KIT_OK(k->ops->outstanding(k->s, types, 2, &o, err));
	assert_int_equal(o.due, 1);
	assert_int_equal(o.retrying, 1);
	assert_int_equal(o.running, 1);
	assert_int_equal(o.scheduled, 1);
	assert_int_equal(o.blocked, 1);
	KIT_OK(k->ops->outstanding(k->s, types + 1, 1, &o, err));
	assert_int_equal(o.due + o.retrying + o.running + o.scheduled + o.blocked, 0);
}

static void a_scheduled_job_whose_time_has_come_is_due_before_anyone_claims(void **state)
{
	struct kit *k = *state;
	kit_start_job(k, &(struct sl_new_job){.type = "t", .delay_ms = 3});
	kit_pass_ms(k, 4);
	const char *const types[] = {"t"};
	struct sl_outstanding o = {0};
	KIT_OK(k->ops->outstanding(k->s, types, 1, &o, err));
	assert_int_equal(o.due, 1);
	assert_int_equal(o.scheduled, 0);
	struct counted all = {0};
	KIT_OK(k->ops->counts(k->s, keep_count, &all, err));
	assert_int_equal(all.by[SL_JOB_PENDING].due, 1);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(jobs_are_listed_newest_first_or_oldest_first),
	cmocka_unit_test(a_cursor_walks_through_all_pages),
	cmocka_unit_test(the_default_limit_is_100),
	cmocka_unit_test(jobs_are_filtered_by_status),
	cmocka_unit_test(a_pending_job_is_ready_scheduled_or_retrying),
	cmocka_unit_test(jobs_are_filtered_by_type_key_and_time),
	cmocka_unit_test(the_jobs_of_a_chain_are_listed_in_their_order),
	cmocka_unit_test(data_can_be_left_out),
	cmocka_unit_test(data_longer_than_the_filter_wants_is_an_empty_text),
	cmocka_unit_test(a_callback_stops_a_listing_and_gives_its_result),
	cmocka_unit_test(what_is_not_there_is_not_found),
	cmocka_unit_test(counts_are_reported_per_type_and_status),
	cmocka_unit_test(a_batch_that_runs_is_counted_as_running),
	cmocka_unit_test(outstanding_work_is_reported_in_disjoint_kinds),
	cmocka_unit_test(a_scheduled_job_whose_time_has_come_is_due_before_anyone_claims),
};

CONTRACT_TESTS(contract_list_tests, tests)
