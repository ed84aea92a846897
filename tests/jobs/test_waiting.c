/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists by status of a store in which too much waits to be read whole: page by page, whatever the filter, they show
 * what a list of everything shows in those statuses, in its order.
 */
#include <stdio.h>
#include <stdlib.h>

#include "jobs/contract_kit.h"
#include "jobs/pg_place.h"
#include "jobs/sqlite_place.h"

#define BIT(status) (1u << (status))
enum { MANY = 10200, CHAINS = 60, ALL = 30000 };

static struct pg_place server;
static bool no_server;

static const char *const types[] = {"a", "b", "c", "chain"};

/* ---- filling ---- */

static void start_many(struct kit *k, struct sl_new_chain (*make)(size_t i, const uint64_t *gate), const uint64_t *gate)
{
	struct sl_new_chain *chains = calloc(MANY, sizeof(*chains));
	struct sl_started *out = calloc(MANY, sizeof(*out));
	for (size_t i = 0; i < MANY; i++)
		chains[i] = make(i, gate);
	KIT_OK(k->ops->start(k->s, chains, MANY, NULL, out, err));
	free(chains);
	free(out);
}

static struct sl_new_chain waiting(size_t i, const uint64_t *gate)
{
	(void)gate;
	return (struct sl_new_chain){.job = {.type = types[i % 3],
					     .priority = (int32_t)(i / 7 % 5) - 2,
					     .delay_ms = i / 3 % 2 ? 3600000 : 0,
					     .input = i % 100 == 0 ? "\"needle\"" : "1"}};
}

static struct sl_new_chain blocked(size_t i, const uint64_t *gate)
{
	return (struct sl_new_chain){.job = {.type = types[i % 3], .blockers = gate, .n_blockers = 1, .input = "1"}};
}

/* Continued chains: a third is pending in its second job, a third has completed there, a third is blocked there. */
static void continue_chains(struct kit *k, const uint64_t *gate)
{
	for (size_t i = 0; i < CHAINS; i++) {
		struct kit_claim claim;
		struct sl_new_job next = {.type = i % 3 == 1 ? "runs" : "next", .input = "1"};
		if (i % 3 == 2) {
			next.blockers = gate;
			next.n_blockers = 1;
		}
		(void)kit_start(k, "chain");
		(void)kit_claim_one(k, "chain", &claim);
		struct sl_settle s = kit_settle(&claim, 0, SL_SETTLE_CONTINUE);
		s.next = &next;
		(void)kit_exchange(k, &s, NULL);
		if (i % 3 == 1)
			kit_run(k, "runs", "1");
	}
}

static void fill(struct kit *k, int blocked_too)
{
	struct kit_claim claim;
	uint64_t gate = kit_start_job(k, &(struct sl_new_job){.type = "gate", .delay_ms = 3600000});
	size_t n;
	continue_chains(k, &gate);
	start_many(k, waiting, NULL);
	if (blocked_too)
		start_many(k, blocked, &gate);
	for (int i = 0; i < 20; i++) {
		(void)kit_claim_one(k, "a", &claim);
		if (i % 4 == 0)
			kit_fail(k, &claim, 0);
		else if (i % 4 == 1)
			kit_retry(k, &claim, 0, 3600000);
		else if (i % 4 == 2)
			kit_complete(k, &claim, 0, NULL);
		/* else it runs */
	}
	for (uint64_t id = 500; id < 9000; id += 700)
		KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&id, 1}, NULL, &n, err));
}

/* ---- everything, and what of it is to be listed ---- */

struct row {
	uint64_t id;
	enum sl_job_status status;
	bool needle;
	char type[8];
};

struct rows {
	struct row row[ALL];
	size_t n;
};

static void keep(struct rows *r, uint64_t id, enum sl_job_status status, const char *input, const char *type)
{
	assert_true(r->n < ALL);
	struct row *row = &r->row[r->n++];
	row->id = id;
	row->status = status;
	row->needle = strstr(input, "needle") != NULL;
	(void)snprintf(row->type, sizeof(row->type), "%s", type);
}

static int keep_job(const struct sl_job *job, void *ctx)
{
	keep(ctx, job->id, job->status, job->input, job->type);
	return 0;
}

static int keep_chain(const struct sl_chain *chain, void *ctx)
{
	keep(ctx, chain->id, chain->status, chain->input, chain->type);
	return 0;
}

/* Pages until nothing is left; scan 0: until one is not full. The number of pages. */
static size_t read_pages(struct kit *k, bool chains, struct sl_job_filter f, struct rows *out)
{
	uint64_t reached = 0;
	size_t pages = 0, had;
	out->n = 0;
	f.reached = &reached;
	do {
		had = out->n;
		if (chains)
			KIT_OK(k->ops->list_chains(k->s, &f, keep_chain, out, err));
		else
			KIT_OK(k->ops->list_jobs(k->s, &f, keep_job, out, err));
		f.after = reached;
		pages++;
	} while (reached != 0 && (f.scan != 0 || out->n - had == f.limit));
	return pages;
}

static bool matches(const struct row *row, const struct sl_job_filter *f)
{
	bool type = f->n_types == 0;
	for (size_t i = 0; i < f->n_types; i++)
		type = type || strcmp(f->types[i], row->type) == 0;
	return type && (f->statuses & BIT(row->status)) != 0 && (f->text == NULL || row->needle);
}

static void compare(struct kit *k, bool chains, const struct rows *all, struct rows *got, struct sl_job_filter f)
{
	size_t at = 0;
	size_t pages = read_pages(k, chains, f, got);
	for (size_t i = 0; i < all->n; i++) {
		if (!matches(&all->row[i], &f))
			continue;
		if (at == got->n || got->row[at].id != all->row[i].id || got->row[at].status != all->row[i].status)
			fail_msg("%s %s, statuses %x, types %zu, text %d, scan %u: at %zu of %zu is not %llu",
				 chains ? "chains" : "jobs", f.ascending ? "up" : "down", f.statuses, f.n_types,
				 f.text != NULL, f.scan, at, got->n, (unsigned long long)all->row[i].id);
		at++;
	}
	assert_int_equal(at, got->n);
	/* A page may be short, but they are not many more than are needed. */
	assert_in_range(pages, 1, 2 + got->n / f.limit + (f.scan != 0 ? all->n / f.scan : 0));
}

/* Few blocked beside the many that wait are another way to go, but for one of the masks only. */
static void compare_all(struct kit *k, bool many_blocked)
{
	static const uint32_t masks[] = {
		BIT(SL_JOB_PENDING) | BIT(SL_JOB_BLOCKED) | BIT(SL_JOB_RUNNING),
		BIT(SL_JOB_PENDING),
		BIT(SL_JOB_BLOCKED),
		BIT(SL_JOB_PENDING) | BIT(SL_JOB_FAILED) | BIT(SL_JOB_CANCELLED),
	};
	struct rows *all = calloc(1, sizeof(*all)), *got = calloc(1, sizeof(*got));
	for (int way = 0; way < 4; way++) {
		bool chains = way / 2 != 0;
		(void)read_pages(k, chains, (struct sl_job_filter){.ascending = way % 2, .limit = 10000}, all);
		for (size_t m = 0; m < (many_blocked ? sizeof(masks) / sizeof(masks[0]) : 1); m++) {
			struct sl_job_filter f = {
				.ascending = way % 2, .statuses = masks[m], .limit = 2900, .scan = 3500};
			compare(k, chains, all, got, f);
			f.types = &types[1];
			f.n_types = 3;
			compare(k, chains, all, got, f);
			if (m > 0)
				continue;
			f.text = "needle";
			compare(k, chains, all, got, f);
			f.text = NULL;
			f.scan = 0;
			compare(k, chains, all, got, f);
		}
	}
	printf("# %zu chains in the last list\n", all->n);
	free(all);
	free(got);
}

static void lists_of_many_that_wait_in_sqlite_are_those_of_all(void **state)
{
	(void)state;
	for (int blocked_too = 0; blocked_too < 2; blocked_too++) {
		struct kit k = {0};
		struct sqlite_place files;
		struct sl_err err = SL_ERR_INIT;
		assert_int_equal(sqlite_place_init(&files), 0);
		assert_int_equal(sl_store_sqlite_open(&k.store, files.path, NULL, &err), 0);
		k.ops = k.store.ops;
		k.s = k.store.ctx;
		fill(&k, blocked_too);
		compare_all(&k, blocked_too);
		sl_store_close(&k.store);
		sqlite_place_fini(&files);
	}
}

static void lists_of_many_that_wait_in_postgres_are_those_of_all(void **state)
{
	(void)state;
	if (no_server)
		skip();
	for (int blocked_too = 0; blocked_too < 2; blocked_too++) {
		struct kit k = {0};
		assert_int_equal(pg_place_set_up(&server), 0);
		assert_int_equal(pg_place_open(&server, &k.store, 0), 0);
		k.ops = k.store.ops;
		k.s = k.store.ctx;
		fill(&k, blocked_too);
		compare_all(&k, blocked_too);
		sl_store_close(&k.store);
		pg_place_tear_down(&server);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_of_many_that_wait_in_sqlite_are_those_of_all),
		cmocka_unit_test(lists_of_many_that_wait_in_postgres_are_those_of_all),
	};
	kit_set_thread();
	int rc = pg_place_start(&server, PG_TEMP_FAST);
	no_server = rc == 77;
	if (rc != 0 && !no_server)
		return rc;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	if (!no_server)
		pg_place_stop(&server);
	return rc;
}
