/* SPDX-License-Identifier: Apache-2.0 */
/* Looking from outside: searches in a long list, leases, errors by their first lines, streams of events. */
#include <stdio.h>
#include <stdlib.h>

#include "jobs/contract_kit.h"

#define BIT(status) (1u << (status))

static void expect_ids(const struct kit_ids *got, const uint64_t *ids, size_t n)
{
	assert_int_equal(got->n, n);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(got->ids[i], ids[i]);
}
#define IDS(...) (uint64_t[]){__VA_ARGS__}, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)
/* Both lists: here every chain has one job. */
#define BOTH(k, ids, ...)                                                                                              \
	do {                                                                                                           \
		struct sl_job_filter f_ = {__VA_ARGS__};                                                               \
		struct kit_ids got_;                                                                                   \
		kit_list(k, &f_, &got_);                                                                               \
		expect_ids(&got_, ids);                                                                                \
		kit_list_chains(k, &f_, &got_);                                                                        \
		expect_ids(&got_, ids);                                                                                \
	} while (0)

static uint64_t start_with(struct kit *k, const char *type, const char *input)
{
	return kit_start_job(k, &(struct sl_new_job){.type = type, .input = input});
}

static uint64_t start_failed(struct kit *k, const char *type, const char *error)
{
	struct kit_claim claim;
	uint64_t id = kit_start(k, type);
	kit_claim_one(k, type, &claim);
	struct sl_settle settle = kit_settle(&claim, 0, SL_SETTLE_FAIL);
	settle.error = error;
	assert_int_equal(kit_exchange(k, &settle, NULL).lost, SL_LOST_NOT);
	return id;
}

/* ---- filters ---- */

static void a_text_is_found_in_input_output_error_and_key(void **state)
{
	struct kit *k = *state;
	uint64_t in = start_with(k, "t", "{\"to\":\"näedle\"}");
	kit_run(k, "t", "null");
	uint64_t out = kit_start(k, "t");
	kit_run(k, "t", "\"a näedle in it\"");
	uint64_t bad = start_failed(k, "t", "second\nline has a näedle");
	uint64_t none = start_with(k, "u", "\"Näedle\""); /* letters as they are */
	BOTH(k, IDS(bad, out, in), .text = "näedle");
	BOTH(k, IDS(out), .text = "a näedle in", .statuses = BIT(SL_JOB_COMPLETED));
	BOTH(k, IDS(bad), .text = "näedle", .statuses = BIT(SL_JOB_FAILED));
	BOTH(k, IDS(none), .text = "Näedle", .statuses = BIT(SL_JOB_PENDING));
	BOTH(k, IDS(in, out), .text = "näedle", .limit = 2, .ascending = true);
	struct kit_ids got;
	kit_list(k, &(struct sl_job_filter){.text = "%"}, &got); /* no pattern */
	assert_int_equal(got.n, 0);
	uint64_t keyed = kit_start_key(k, "order näedle", SL_DEDUP_ANY, 0).chain_id;
	BOTH(k, IDS(keyed), .text = "order näe");
	BOTH(k, IDS(keyed, bad, out, in), .text = "näedle");
	kit_list(k, &(struct sl_job_filter){.text = "näedle", .without_data = true}, &got);
	assert_int_equal(got.n, 4);
}

static void a_chain_is_found_by_its_first_input_and_its_last_end(void **state)
{
	struct kit *k = *state;
	struct kit_claim claim;
	struct kit_ids got;
	uint64_t first = start_with(k, "t", "\"begin\"");
	kit_claim_one(k, "t", &claim);
	struct sl_settle settle = kit_settle(&claim, 0, SL_SETTLE_CONTINUE);
	settle.next = &(struct sl_new_job){.type = "u", .input = "\"between\""};
	uint64_t second = kit_exchange(k, &settle, NULL).next_id;
	kit_run(k, "u", "\"end\"");
	kit_list_chains(k, &(struct sl_job_filter){.text = "begin"}, &got);
	expect_ids(&got, IDS(first));
	kit_list_chains(k, &(struct sl_job_filter){.text = "end"}, &got);
	expect_ids(&got, IDS(first));
	kit_list_chains(k, &(struct sl_job_filter){.text = "between"}, &got);
	assert_int_equal(got.n, 0);
	kit_list(k, &(struct sl_job_filter){.text = "between"}, &got);
	expect_ids(&got, IDS(second));
}

static void a_long_line(char *out, size_t chars, const char *tail)
{
	*out = '\0';
	for (size_t i = 0; i < chars; i++)
		strcat(out, "é");
	strcat(out, tail);
}

static void jobs_are_found_by_the_first_line_of_their_error(void **state)
{
	struct kit *k = *state;
	char lines[3][1200];
	a_long_line(lines[0], SL_ERROR_LINE_CHARS, "");
	a_long_line(lines[1], SL_ERROR_LINE_CHARS, " and more");
	a_long_line(lines[2], SL_ERROR_LINE_CHARS - 1, "");
	uint64_t a = start_failed(k, "t", "no\ndetails"), b = start_failed(k, "t", "no"),
		 c = start_failed(k, "t", "not"), empty = start_failed(k, "t", "\nonly details");
	uint64_t cut = start_failed(k, "t", lines[1]), whole = start_failed(k, "t", lines[0]),
		 shorter = start_failed(k, "t", lines[2]);
	BOTH(k, IDS(b, a), .error = "no");
	BOTH(k, IDS(c), .error = "not", .statuses = BIT(SL_JOB_FAILED));
	BOTH(k, IDS(empty), .error = "", .statuses = BIT(SL_JOB_FAILED));
	BOTH(k, IDS(whole, cut), .error = lines[0]);
	BOTH(k, IDS(shorter), .error = lines[2]);
}

static void jobs_are_found_by_when_they_ended(void **state)
{
	struct kit *k = *state;
	struct kit_row row;
	uint64_t early = kit_start(k, "t");
	kit_run(k, "t", "1");
	kit_pass_ms(k, 3);
	int64_t line = kit_now(k);
	kit_pass_ms(k, 3);
	uint64_t late = start_failed(k, "t", "x");
	kit_start(k, "t"); /* has not ended */
	BOTH(k, IDS(early), .ended_to_ms = line);
	BOTH(k, IDS(late), .ended_from_ms = line);
	BOTH(k, IDS(late, early), .ended_from_ms = 1);
	kit_get(k, late, &row);
	BOTH(k, IDS(late), .ended_from_ms = row.job.ended_ms, .ended_to_ms = row.job.ended_ms + 1);
	struct kit_ids got;
	kit_list(k, &(struct sl_job_filter){.ended_from_ms = line, .ended_to_ms = row.job.ended_ms}, &got);
	assert_int_equal(got.n, 0);
}

/* ---- bounded searches ---- */

/* Go through all of it in steps of `scan`; the ids that were found, and in how many steps. */
static size_t search(struct kit *k, struct sl_job_filter f, bool chains, struct kit_ids *found)
{
	size_t steps = 0;
	uint64_t reached = 0;
	f.reached = &reached;
	found->n = 0;
	do {
		struct kit_ids page;
		(chains ? kit_list_chains : kit_list)(k, &f, &page);
		for (size_t i = 0; i < page.n; i++)
			found->ids[found->n++] = page.ids[i];
		if (reached != 0 && f.after != 0)
			assert_true(f.ascending ? reached > f.after : reached < f.after);
		f.after = reached;
		assert_true(++steps < 200);
	} while (reached != 0);
	return steps;
}

static void a_search_stops_at_its_scan_limit_and_resumes_where_it_stopped(void **state)
{
	struct kit *k = *state;
	enum { N = 60 };
	uint64_t rare[2], all[N];
	struct kit_ids found;
	for (size_t i = 0; i < N; i++)
		all[i] = start_with(k, "t", i == 7 || i == 41 ? "\"rare\"" : "\"common\"");
	rare[0] = all[41];
	rare[1] = all[7];
	for (int chains = 0; chains < 2; chains++) {
		size_t steps =
			search(k, (struct sl_job_filter){.text = "rare", .scan = 10, .limit = 5}, chains, &found);
		expect_ids(&found, rare, 2);
		assert_in_range(steps, 6, 7);
		steps = search(k, (struct sl_job_filter){.text = "rare", .scan = 10, .limit = 5, .ascending = true},
			       chains, &found);
		expect_ids(&found, IDS(rare[1], rare[0]));
		assert_in_range(steps, 6, 7);
		steps = search(k, (struct sl_job_filter){.text = "rare", .scan = 1000}, chains, &found);
		expect_ids(&found, rare, 2);
		assert_int_equal(steps, 1);
		/* The page is full before the bound. */
		search(k, (struct sl_job_filter){.text = "common", .scan = 25, .limit = 4}, chains, &found);
		assert_int_equal(found.n, N - 2);
	}
}

static void a_search_among_the_failed_counts_only_those(void **state)
{
	struct kit *k = *state;
	struct kit_ids found;
	uint64_t failed[12], cancelled = 0;
	size_t n;
	for (size_t i = 0; i < 12; i++) {
		failed[11 - i] = start_failed(k, "t", i % 2 == 0 ? "even" : "odd");
		kit_start(k, "t");
		kit_run(k, "t", "1");
		if (i == 5) {
			cancelled = kit_start(k, "t");
			KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&cancelled, 1}, NULL, &n, err));
		}
	}
	for (int chains = 0; chains < 2; chains++) {
		struct sl_job_filter f = {.statuses = BIT(SL_JOB_FAILED), .scan = 5, .limit = 100};
		search(k, f, chains, &found);
		expect_ids(&found, failed, 12);
		f.error = "even";
		search(k, f, chains, &found);
		expect_ids(&found, IDS(failed[1], failed[3], failed[5], failed[7], failed[9], failed[11]));
		f.error = NULL;
		f.statuses |= BIT(SL_JOB_CANCELLED);
		search(k, f, chains, &found);
		assert_int_equal(found.n, 13);
		assert_int_equal(found.ids[6], cancelled);
		f.ascending = true;
		f.limit = 2;
		search(k, f, chains, &found);
		assert_int_equal(found.n, 13);
		assert_int_equal(found.ids[6], cancelled);
	}
}

/* ---- filters within a status, page by page ---- */

/* Jobs in every status: four that are common, two that are rare, four more that are common. What is rare has its own
 * type, input and error, and was made and ended between two moments. So behind either end of a list of one status there
 * are more of the others than fit on a page. */
enum { STATUSES = 6, RARE = 2, COMMON = 4, MIXED = STATUSES * (RARE + 2 * COMMON), PAGE = 3 };

struct mix {
	struct {
		uint64_t id;
		enum sl_job_status status;
		bool rare;
	} job[MIXED];
	size_t n;
	int64_t from_ms, to_ms; /* when the rare ones were made */
	uint64_t gate;          /* what the blocked ones wait for */
};

static const char *const rare_types[] = {"rare1", "rare2", "rare3", "rare4", "rare5", "rare6"};
static const char *const common_types[] = {"common1", "common2", "common3", "common4", "common5", "common6"};

static void add_to_mix(struct kit *k, struct mix *m, enum sl_job_status status, bool rare)
{
	const char *type = (rare ? rare_types : common_types)[status - SL_JOB_BLOCKED];
	struct sl_new_job job = {.type = type, .input = rare ? "\"needle\"" : "\"hay\""};
	struct kit_claim claim;
	size_t n;
	if (status == SL_JOB_BLOCKED) {
		job.blockers = &m->gate;
		job.n_blockers = 1;
	}
	uint64_t id = kit_start_job(k, &job);
	if (status == SL_JOB_CANCELLED)
		KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&id, 1}, NULL, &n, err));
	else if (status > SL_JOB_PENDING)
		kit_claim_one(k, type, &claim);
	if (status == SL_JOB_COMPLETED) {
		kit_complete(k, &claim, 0, "1");
	} else if (status == SL_JOB_FAILED) {
		struct sl_settle settle = kit_settle(&claim, 0, SL_SETTLE_FAIL);
		settle.error = rare ? "rare\nwith details" : "common";
		assert_int_equal(kit_exchange(k, &settle, NULL).lost, SL_LOST_NOT);
	}
	m->job[m->n].id = id;
	m->job[m->n].status = status;
	m->job[m->n++].rare = rare;
}

static void make_mix(struct kit *k, struct mix *m)
{
	m->n = 0;
	m->gate = kit_start_job(k, &(struct sl_new_job){.type = "gate", .delay_ms = KIT_LONG_MS});
	for (int part = 0; part < 3; part++) {
		if (part == 1) {
			kit_pass_ms(k, 3);
			m->from_ms = kit_now(k);
		}
		for (int i = 0; i < (part == 1 ? RARE : COMMON); i++)
			for (enum sl_job_status s = SL_JOB_BLOCKED; s <= SL_JOB_CANCELLED; s++)
				add_to_mix(k, m, s, part == 1);
		if (part == 1) {
			kit_pass_ms(k, 3);
			m->to_ms = kit_now(k);
			kit_pass_ms(k, 3);
		}
	}
}

static void expect_rare(struct kit *k, const struct mix *m, struct sl_job_filter f, const char *what)
{
	/* What has not ended or not failed is not found by its end or its error. */
	uint32_t mask = f.statuses;
	if (f.error != NULL)
		mask &= BIT(SL_JOB_FAILED);
	if (f.ended_from_ms != 0)
		mask &= BIT(SL_JOB_COMPLETED) | BIT(SL_JOB_FAILED) | BIT(SL_JOB_CANCELLED);
	for (int way = 0; way < 8; way++) {
		bool chains = way / 4 != 0;
		struct kit_ids found = {.n = 0};
		size_t at = 0;
		f.ascending = way % 2;
		f.scan = way / 2 % 2 ? 2 * PAGE + 1 : 0;
		f.after = 0;
		for (bool more = f.scan == 0; more; more = found.n == at + PAGE, at = found.n) {
			struct kit_ids page;
			(chains ? kit_list_chains : kit_list)(k, &f, &page);
			for (size_t i = 0; i < page.n; i++)
				found.ids[found.n++] = f.after = page.ids[i];
		}
		if (f.scan != 0)
			(void)search(k, f, chains, &found);
		at = 0;
		for (size_t i = 0; i < m->n; i++) {
			size_t n = f.ascending ? i : m->n - 1 - i;
			if (!m->job[n].rare || (mask & BIT(m->job[n].status)) == 0)
				continue;
			if (at == found.n || found.ids[at] != m->job[n].id)
				fail_msg("%s by %s, statuses %x, scan %u: %zu of %zu is not %llu",
					 chains ? "chains" : "jobs", what, f.statuses, f.scan, at, found.n,
					 (unsigned long long)m->job[n].id);
			at++;
		}
		if (at != found.n)
			fail_msg("%s by %s, statuses %x: %zu instead of %zu", chains ? "chains" : "jobs", what,
				 f.statuses, found.n, at);
	}
}

static void every_filter_is_applied_before_a_page_of_a_status_is_cut(void **state)
{
	struct kit *k = *state;
	struct mix m;
	make_mix(k, &m);
	static const uint32_t masks[] = {
		BIT(SL_JOB_BLOCKED),
		BIT(SL_JOB_PENDING),
		BIT(SL_JOB_RUNNING),
		BIT(SL_JOB_COMPLETED),
		BIT(SL_JOB_FAILED),
		BIT(SL_JOB_CANCELLED),
		BIT(SL_JOB_FAILED) | BIT(SL_JOB_CANCELLED),
		BIT(SL_JOB_PENDING) | BIT(SL_JOB_FAILED),
		BIT(SL_JOB_COMPLETED) | BIT(SL_JOB_CANCELLED),
	};
	for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
		struct sl_job_filter f = {.statuses = masks[i], .limit = PAGE}, all = f;
		all.types = f.types = rare_types;
		all.n_types = f.n_types = STATUSES;
		expect_rare(k, &m, f, "type");
		f.n_types = 0;
		all.text = f.text = "needle";
		expect_rare(k, &m, f, "text");
		f.text = NULL;
		all.created_from_ms = f.created_from_ms = m.from_ms;
		all.created_to_ms = f.created_to_ms = m.to_ms;
		expect_rare(k, &m, f, "when it was made");
		f.created_from_ms = f.created_to_ms = 0;
		expect_rare(k, &m, all, "all but the end");
		f.ended_from_ms = m.from_ms;
		f.ended_to_ms = m.to_ms;
		expect_rare(k, &m, f, "its end");
		f.ended_from_ms = f.ended_to_ms = 0;
		f.error = "rare";
		expect_rare(k, &m, f, "its error");
	}
}

static void what_was_redriven_or_deleted_is_not_among_the_failed(void **state)
{
	struct kit *k = *state;
	uint64_t a = start_failed(k, "t", "a"), b = start_failed(k, "t", "b"), c = start_failed(k, "t", "c"),
		 d = kit_start(k, "u"), e = kit_start(k, "u");
	size_t n;
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){IDS(d)}, NULL, &n, err));
	KIT_OK(k->ops->fail_chain(k->s, e, "from outside", NULL, err));
	BOTH(k, IDS(e, c, b, a), .statuses = BIT(SL_JOB_FAILED));
	BOTH(k, IDS(d), .statuses = BIT(SL_JOB_CANCELLED));
	KIT_OK(k->ops->redrive(k->s, (struct sl_ids){IDS(b, d)}, NULL, &n, err));
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){IDS(c)}, false, NULL, &n, err));
	BOTH(k, IDS(e, a), .statuses = BIT(SL_JOB_FAILED));
	struct kit_ids got;
	kit_list(k, &(struct sl_job_filter){.statuses = BIT(SL_JOB_CANCELLED)}, &got);
	assert_int_equal(got.n, 0);
	struct kit_claim claim;
	kit_claim_one(k, "t", &claim);
	kit_fail(k, &claim, 0); /* and again */
	BOTH(k, IDS(e, b, a), .statuses = BIT(SL_JOB_FAILED));
}

static void chains_that_wait_for_a_chain_are_listed(void **state)
{
	struct kit *k = *state;
	struct kit_ids got;
	uint64_t a = kit_start(k, "t"), b = kit_start_after(k, "u", &a, 1), c = kit_start_after(k, "u", &a, 1);
	kit_start(k, "u");
	kit_list_chains(k, &(struct sl_job_filter){.blocks = a}, &got);
	expect_ids(&got, IDS(c, b));
	kit_run(k, "t", "1"); /* also when they waited */
	kit_list_chains(k, &(struct sl_job_filter){.blocks = a, .scan = 1}, &got);
	expect_ids(&got, IDS(c, b));
}

/* ---- leases ---- */

struct seen_lease {
	uint8_t claim[16];
	char worker[32], types[64];
	uint64_t jobs[8];
	size_t n_jobs;
	int64_t claimed_ms, until_ms;
};
struct seen_leases {
	struct seen_lease all[16];
	size_t n;
};

static int keep_lease(const struct sl_lease *l, void *ctx)
{
	struct seen_leases *seen = ctx;
	struct seen_lease *s = &seen->all[seen->n++];
	memset(s, 0, sizeof(*s));
	memcpy(s->claim, l->claim, 16);
	(void)snprintf(s->worker, sizeof(s->worker), "%s", l->worker);
	for (size_t i = 0; i < l->n_types; i++)
		(void)snprintf(s->types + strlen(s->types), sizeof(s->types) - strlen(s->types), "%s;", l->types[i]);
	for (size_t i = 0; i < l->n_jobs && i < 8; i++)
		s->jobs[i] = l->jobs[i];
	s->n_jobs = l->n_jobs;
	s->claimed_ms = l->claimed_ms;
	s->until_ms = l->until_ms;
	return 0;
}

static const struct seen_lease *lease_of(const struct seen_leases *seen, const struct kit_claim *claim)
{
	for (size_t i = 0; i < seen->n; i++)
		if (memcmp(seen->all[i].claim, claim->id.bytes, 16) == 0)
			return &seen->all[i];
	fail_msg("a claim without a lease");
	abort();
}

static void leases_show_which_worker_has_which_jobs_until_when(void **state)
{
	struct kit *k = *state;
	struct kit_claim one, many;
	struct seen_leases seen = {0};
	KIT_OK(k->ops->leases(k->s, NULL, 100, keep_lease, &seen, err));
	assert_int_equal(seen.n, 0);
	uint64_t a = kit_start(k, "t"), b = kit_start(k, "v"), c = kit_start(k, "u"), d = kit_start(k, "u");
	int64_t before = kit_now(k);
	kit_claim(k, "t", 1, 60000, &one);
	const struct sl_claim_type types[] = {{.type = "v", .limit = 5}, {.type = "u", .limit = 5}};
	kit_claim_types(k, types, 2, 10, 60000, &many);
	KIT_OK(k->ops->leases(k->s, NULL, 100, keep_lease, &seen, err));
	assert_int_equal(seen.n, 2);
	const struct seen_lease *l = lease_of(&seen, &one);
	assert_string_equal(l->worker, one.worker);
	assert_string_equal(l->types, "t;");
	assert_int_equal(l->n_jobs, 1);
	assert_int_equal(l->jobs[0], a);
	assert_in_range(l->claimed_ms, before, kit_now(k));
	assert_in_range(l->until_ms, before + 60000, kit_now(k) + 60000);
	l = lease_of(&seen, &many);
	assert_string_equal(l->types, "u;v;");
	assert_int_equal(l->n_jobs, 3);
	assert_true(l->jobs[0] == b && l->jobs[1] == c && l->jobs[2] == d);
}

static void a_job_that_has_left_its_lease_is_not_shown_there(void **state)
{
	struct kit *k = *state;
	struct kit_claim claim;
	size_t n;
	for (int i = 0; i < 3; i++)
		kit_start(k, "t");
	kit_claim(k, "t", 3, 0, &claim);
	kit_complete(k, &claim, 0, NULL);
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&claim.jobs[2].id, 1}, NULL, &n, err));
	struct seen_leases seen = {0};
	KIT_OK(k->ops->leases(k->s, NULL, 100, keep_lease, &seen, err));
	assert_int_equal(seen.n, 1);
	assert_int_equal(seen.all[0].n_jobs, 1);
	assert_int_equal(seen.all[0].jobs[0], claim.jobs[1].id);
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&claim.jobs[1].id, 1}, NULL, &n, err));
	seen.n = 0;
	KIT_OK(k->ops->leases(k->s, NULL, 100, keep_lease, &seen, err));
	assert_int_equal(seen.n, 0);
}

static void leases_come_in_pages(void **state)
{
	struct kit *k = *state;
	struct kit_claim claim;
	struct seen_leases seen = {0};
	for (int i = 0; i < 7; i++) {
		kit_start(k, "t");
		kit_claim(k, "t", 1, 0, &claim);
	}
	uint8_t *after = NULL;
	for (int page = 0; page < 4; page++) {
		size_t before = seen.n;
		KIT_OK(k->ops->leases(k->s, after, 3, keep_lease, &seen, err));
		assert_int_equal(seen.n - before, page < 2 ? 3 : page == 2 ? 1 : 0);
		after = seen.all[seen.n - 1].claim;
	}
	for (size_t i = 1; i < seen.n; i++)
		assert_true(memcmp(seen.all[i - 1].claim, seen.all[i].claim, 16) < 0);
}

static int stop_after_one(const struct sl_lease *l, void *ctx)
{
	(void)l;
	++*(int *)ctx;
	return 7;
}

static void a_callback_stops_the_leases(void **state)
{
	struct kit *k = *state;
	struct kit_claim claim;
	int called = 0;
	for (int i = 0; i < 3; i++) {
		kit_start(k, "t");
		kit_claim(k, "t", 1, 0, &claim);
	}
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(k->ops->leases(k->s, NULL, 100, stop_after_one, &called, &err), 7);
	assert_int_equal(called, 1);
}

/* ---- errors ---- */

struct seen_errors {
	char text[512];
	size_t n;
	struct sl_error_group last;
};

static int keep_error(const struct sl_error_group *g, void *ctx)
{
	struct seen_errors *seen = ctx;
	(void)snprintf(seen->text + strlen(seen->text), sizeof(seen->text) - strlen(seen->text), "%s %s %d;", g->type,
		       g->error, (int)g->count);
	seen->n++;
	seen->last = *g;
	return 0;
}

static struct seen_errors errors_of(struct kit *k, const struct sl_error_filter *f)
{
	struct seen_errors seen = {0};
	KIT_OK(k->ops->errors(k->s, f, keep_error, &seen, err));
	return seen;
}

static void failed_jobs_are_grouped_by_type_and_first_line(void **state)
{
	struct kit *k = *state;
	struct kit_row row;
	struct sl_error_filter all = {0};
	assert_int_equal(errors_of(k, &all).n, 0);
	start_failed(k, "t", "timeout\nafter 3 s");
	uint64_t first = start_failed(k, "u", "timeout");
	start_failed(k, "t", "timeout\nafter 4 s");
	kit_pass_ms(k, 2);
	start_failed(k, "t", "refused");
	uint64_t newest = start_failed(k, "t", "timeout");
	start_failed(k, "t", "refused");
	size_t n;
	uint64_t gone = start_failed(k, "t", "gone"), other = kit_start(k, "t");
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){&gone, 1}, false, NULL, &n, err));
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&other, 1}, NULL, &n, err));
	assert_string_equal(errors_of(k, &all).text, "t timeout 3;t refused 2;u timeout 1;");
	struct seen_errors one = errors_of(k, &(struct sl_error_filter){.limit = 1});
	assert_string_equal(one.text, "t timeout 3;");
	assert_int_equal(one.last.sample_id, newest);
	kit_get(k, newest, &row);
	assert_int_equal(one.last.last_ms, row.job.ended_ms);
	assert_true(one.last.first_ms < one.last.last_ms);
	const char *const types[] = {"u", "none"};
	one = errors_of(k, &(struct sl_error_filter){.types = types, .n_types = 2});
	assert_string_equal(one.text, "u timeout 1;");
	assert_int_equal(one.last.sample_id, first);
}

static void errors_cover_a_limited_number_of_jobs_with_a_cursor_for_the_rest(void **state)
{
	struct kit *k = *state;
	uint64_t ids[6], reached = 99;
	for (size_t i = 0; i < 6; i++) {
		ids[i] = start_failed(k, "t", i < 3 ? "old" : "new");
		kit_start(k, "t");
		kit_run(k, "t", "1");
	}
	struct sl_error_filter f = {.scan = 4, .reached = &reached};
	assert_string_equal(errors_of(k, &f).text, "t new 3;t old 1;");
	assert_int_equal(reached, ids[2]);
	f.after = reached;
	assert_string_equal(errors_of(k, &f).text, "t old 2;");
	assert_int_equal(reached, 0);
}

static void an_error_is_listed_from_the_first_attempt_on(void **state)
{
	struct kit *k = *state;
	struct kit_claim claim;
	struct sl_error_filter all = {0};
	start_failed(k, "t", "failed once");
	kit_pass_ms(k, 2);
	uint64_t id = kit_start(k, "t");
	kit_start(k, "t"); /* never tried */
	kit_claim_one(k, "t", &claim);
	kit_retry(k, &claim, 0, 0);
	struct seen_errors seen = errors_of(k, &all);
	assert_string_equal(seen.text, "t failed once 2;");
	assert_int_equal(seen.last.retrying, 1);
	assert_int_equal(seen.last.sample_id, id);
	assert_true(seen.last.first_ms < seen.last.last_ms);
	/* Also while the next attempt runs, and while it waits for another. */
	int64_t last_ms = seen.last.last_ms;
	do {
		kit_claim_one(k, "t", &claim);
	} while (claim.jobs[0].id != id);
	assert_int_equal(errors_of(k, &all).last.retrying, 1);
	kit_pass_ms(k, 2);
	kit_retry(k, &claim, 0, KIT_LONG_MS);
	seen = errors_of(k, &all);
	assert_string_equal(seen.text, "t failed once 2;");
	assert_int_equal(seen.last.retrying, 1);
	assert_true(seen.last.last_ms > last_ms);
	struct kit_ids got;
	kit_list(k, &(struct sl_job_filter){.error = "failed once", .statuses = BIT(SL_JOB_RETRYING)}, &got);
	assert_int_equal(got.n, 1);
	/* What completes after all is no failure. */
	size_t n;
	KIT_OK(k->ops->trigger(k->s, (struct sl_ids){&id, 1}, NULL, &n, err));
	kit_claim_one(k, "t", &claim);
	kit_complete(k, &claim, 0, NULL);
	seen = errors_of(k, &all);
	assert_string_equal(seen.text, "t failed once 1;");
	assert_int_equal(seen.last.retrying, 0);
}

static void a_group_can_be_listed_by_its_line(void **state)
{
	struct kit *k = *state;
	char line[1200];
	a_long_line(line, SL_ERROR_LINE_CHARS + 20, "\nx");
	start_failed(k, "t", line);
	start_failed(k, "t", line);
	struct sl_error_filter f = {0};
	struct seen_errors seen = errors_of(k, &f);
	assert_int_equal(seen.n, 1);
	assert_int_equal(seen.last.count, 2);
	char kept[1200];
	a_long_line(kept, SL_ERROR_LINE_CHARS, "");
	struct kit_ids got;
	kit_list(k, &(struct sl_job_filter){.error = kept}, &got);
	assert_int_equal(got.n, 2);
}

/* ---- streams ---- */

static int keep_stream(const struct sl_event_stream *s, void *ctx)
{
	char *text = ctx;
	(void)snprintf(text + strlen(text), 512 - strlen(text), "%s/%u:%d@%d;", s->stream, s->incarnation, (int)s->mark,
		       (int)s->last_ms);
	return 0;
}

static void put_events(struct kit *k, const char *stream, uint32_t incarnation, uint64_t n, uint64_t skip_to)
{
	struct sl_event_row rows[8];
	struct sl_event_mark mark = {.stream = stream, .incarnation = incarnation, .mark = skip_to};
	for (size_t i = 0; i < n; i++)
		rows[i] = (struct sl_event_row){.stream = stream,
						.incarnation = incarnation,
						.sequence = i + 1,
						.crc = i,
						.type = 7,
						.ts_ms = (int64_t)(1000 + i),
						.payload = "x",
						.payload_len = 1};
	KIT_OK(k->ops->events_append(k->s, rows, n, &mark, 1, NULL, err));
}

static void streams_report_how_far_they_were_stored(void **state)
{
	struct kit *k = *state;
	char text[512] = "";
	KIT_OK(k->ops->event_streams(k->s, NULL, 100, keep_stream, text, err));
	assert_string_equal(text, "");
	put_events(k, "b", 7, 3, 0);
	put_events(k, "a", 9, 1, 0);
	put_events(k, "a", 2, 2, 0);
	put_events(k, "B", 1, 0, 5); /* skipped only */
	KIT_OK(k->ops->event_streams(k->s, NULL, 100, keep_stream, text, err));
	assert_string_equal(text, "B/1:5@0;a/2:2@1001;a/9:1@1000;b/7:3@1002;");
	text[0] = '\0';
	KIT_OK(k->ops->event_streams(k->s, NULL, 2, keep_stream, text, err));
	assert_string_equal(text, "B/1:5@0;a/2:2@1001;");
	text[0] = '\0';
	struct sl_event_stream after = {.stream = "a", .incarnation = 2};
	KIT_OK(k->ops->event_streams(k->s, &after, 100, keep_stream, text, err));
	assert_string_equal(text, "a/9:1@1000;b/7:3@1002;");
}

/* ---- heartbeats ---- */

static int keep_heartbeat(const struct sl_heartbeat *h, void *ctx)
{
	char *text = ctx;
	size_t used = strlen(text);
	(void)snprintf(text + used, 512 - used, "%s@%s:%lld v%s %dx%s since %lld%s%s;", h->worker, h->host,
		       (long long)h->pid, h->version, (int)h->slots, h->types, (long long)h->started_ms,
		       h->error != NULL ? " " : "", h->error != NULL ? h->error : "");
	if (h->error == NULL)
		assert_int_equal(h->error_ms, 0);
	else
		assert_int_equal(h->error_ms, 6000);
	return 0;
}

static int keep_times(const struct sl_heartbeat *h, void *ctx)
{
	*(struct sl_heartbeat *)ctx = *h;
	return 0;
}

static struct sl_heartbeat beat_of(const char *worker)
{
	return (struct sl_heartbeat){.worker = worker,
				     .host = "h",
				     .version = "1",
				     .types = "a,b/c",
				     .pid = 7,
				     .slots = 4,
				     .started_ms = 5000,
				     .ttl_ms = KIT_LONG_MS};
}

static void expect_heartbeats(struct kit *k, const char *expected)
{
	char text[512] = "";
	KIT_OK(k->ops->heartbeats(k->s, keep_heartbeat, text, err));
	assert_string_equal(text, expected);
}

static void workers_are_listed_until_their_heartbeats_expire(void **state)
{
	struct kit *k = *state;
	if (k->ops->heartbeat == NULL)
		return;
	expect_heartbeats(k, "");
	struct sl_heartbeat b = beat_of("b"), a = beat_of("A"), brief = beat_of("brief"), seen = {0};
	int64_t before = kit_now(k);
	KIT_OK(k->ops->heartbeat(k->s, &b, err));
	KIT_OK(k->ops->heartbeats(k->s, keep_times, &seen, err));
	assert_true(seen.seen_ms >= before && seen.seen_ms <= kit_now(k));
	assert_int_equal(seen.until_ms - seen.seen_ms, KIT_LONG_MS);
	a.error = "t #1: it broke";
	a.error_ms = 6000;
	KIT_OK(k->ops->heartbeat(k->s, &a, err));
	brief.ttl_ms = 1;
	KIT_OK(k->ops->heartbeat(k->s, &brief, err));
	kit_pass_ms(k, 2);
	expect_heartbeats(k, "A@h:7 v1 4xa,b/c since 5000 t #1: it broke;b@h:7 v1 4xa,b/c since 5000;");
	a.error = NULL;
	a.slots = 5;
	KIT_OK(k->ops->heartbeat(k->s, &a, err));
	expect_heartbeats(k, "A@h:7 v1 5xa,b/c since 5000;b@h:7 v1 4xa,b/c since 5000;");
}

static void a_sweep_deletes_only_what_has_expired(void **state)
{
	struct kit *k = *state;
	if (k->ops->heartbeat == NULL)
		return;
	struct sl_heartbeat a = beat_of("a"), b = beat_of("b"), c = beat_of("c");
	KIT_OK(k->ops->heartbeat(k->s, &a, err));
	b.ttl_ms = 1;
	KIT_OK(k->ops->heartbeat(k->s, &b, err));
	kit_pass_ms(k, 2);
	c.sweep = true;
	KIT_OK(k->ops->heartbeat(k->s, &c, err));
	/* With the clock set back, one that was only hidden would be listed again. */
	if (k->f->step_ms != NULL)
		k->f->step_ms(-1000, k->f->ctx);
	expect_heartbeats(k, "a@h:7 v1 4xa,b/c since 5000;c@h:7 v1 4xa,b/c since 5000;");
}

static void a_worker_that_stops_does_not_remove_its_successor_of_the_same_name(void **state)
{
	struct kit *k = *state;
	if (k->ops->heartbeat == NULL)
		return;
	struct sl_heartbeat a = beat_of("a"), b = beat_of("b");
	KIT_OK(k->ops->heartbeat(k->s, &a, err));
	KIT_OK(k->ops->heartbeat(k->s, &b, err));
	a.started_ms = 9000;
	KIT_OK(k->ops->heartbeat(k->s, &a, err));
	KIT_OK(k->ops->heartbeat_end(k->s, "a", 5000, err));
	KIT_OK(k->ops->heartbeat_end(k->s, "b", 5000, err));
	KIT_OK(k->ops->heartbeat_end(k->s, "none", 5000, err));
	expect_heartbeats(k, "a@h:7 v1 4xa,b/c since 9000;");
	KIT_OK(k->ops->heartbeat_end(k->s, "a", 9000, err));
	expect_heartbeats(k, "");
}

/* ---- history ---- */

static int keep_history(const struct sl_history_row *r, void *ctx)
{
	char *text = ctx;
	size_t used = strlen(text);
	(void)snprintf(text + used, 512 - used, "%d+%d t%d n%d c%d f%d d%d r%d %d/%d;", (int)r->at_s, (int)r->step_s,
		       (int)r->taken_ms, (int)r->newest_id, (int)r->completed, (int)r->failed, (int)r->due,
		       (int)r->running, (int)r->p50_ms, (int)r->p99_ms);
	return 0;
}

static void expect_history(struct kit *k, int64_t step_s, int64_t from_s, const char *expected)
{
	char text[512] = "";
	const struct sl_history_row from = {.step_s = step_s, .at_s = from_s};
	KIT_OK(k->ops->history(k->s, &from, keep_history, text, err));
	assert_string_equal(text, expected);
}

static void put_history(struct kit *k, int64_t at_s, uint64_t completed, uint64_t due, int64_t p50_ms)
{
	struct sl_history_row row = {.step_s = 10,
				     .at_s = at_s,
				     .taken_ms = at_s * 1000 + 7,
				     .newest_id = completed + 5,
				     .completed = completed,
				     .failed = 1,
				     .due = due,
				     .running = 2,
				     .p50_ms = p50_ms,
				     .p99_ms = p50_ms};
	KIT_OK(k->ops->history_put(k->s, &row, err));
}

static void roll_history(struct kit *k, struct sl_history_roll roll)
{
	KIT_OK(k->ops->history_roll(k->s, &roll, err));
}

static void the_first_row_of_a_bucket_stays(void **state)
{
	struct kit *k = *state;
	if (k->ops->history_put == NULL)
		return;
	put_history(k, 40, 7, 0, -1);
	put_history(k, 30, 3, 4, 5);
	put_history(k, 30, 9, 9, 9); /* another server */
	expect_history(k, 10, 0, "30+10 t30007 n8 c3 f1 d4 r2 5/5;40+10 t40007 n12 c7 f1 d0 r2 -1/-1;");
	expect_history(k, 10, 40, "40+10 t40007 n12 c7 f1 d0 r2 -1/-1;");
	expect_history(k, 9, 0, "");
	/* What was enqueued so far never falls, also when the newest jobs were deleted. */
	put_history(k, 50, 1, 0, -1);
	expect_history(k, 10, 50, "50+10 t50007 n12 c1 f1 d0 r2 -1/-1;");
}

static void finer_rows_are_rolled_up_once_and_deleted_when_they_are_old(void **state)
{
	struct kit *k = *state;
	if (k->ops->history_put == NULL)
		return;
	put_history(k, 300, 10, 4, -1);
	put_history(k, 320, 20, 8, 6);
	put_history(k, 590, 25, 0, 2);
	put_history(k, 600, 30, 1, 1); /* its bucket of five minutes has not ended */
	for (int i = 0; i < 2; i++) {
		roll_history(k, (struct sl_history_roll){300, 10, 610, 0});
		expect_history(k, 300, 600, "600+10 t600007 n35 c30 f1 d1 r2 1/1;");
		expect_history(k, 300, 300,
			       "300+300 t590007 n30 c25 f1 d4 r2 4/6;300+10 t300007 n15 c10 f1 d4 r2 -1/-1;"
			       "320+10 t320007 n25 c20 f1 d8 r2 6/6;590+10 t590007 n30 c25 f1 d0 r2 2/2;"
			       "600+10 t600007 n35 c30 f1 d1 r2 1/1;");
	}
	roll_history(k, (struct sl_history_roll){10, 0, 610, 590});
	roll_history(k, (struct sl_history_roll){300, 10, 610, 0});
	expect_history(k, 300, 0,
		       "300+300 t590007 n30 c25 f1 d4 r2 4/6;590+10 t590007 n30 c25 f1 d0 r2 2/2;"
		       "600+10 t600007 n35 c30 f1 d1 r2 1/1;");
	roll_history(k, (struct sl_history_roll){300, 10, 610, 600});
	expect_history(k, 300, 300, "590+10 t590007 n30 c25 f1 d0 r2 2/2;600+10 t600007 n35 c30 f1 d1 r2 1/1;");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_text_is_found_in_input_output_error_and_key),
	cmocka_unit_test(a_chain_is_found_by_its_first_input_and_its_last_end),
	cmocka_unit_test(jobs_are_found_by_the_first_line_of_their_error),
	cmocka_unit_test(jobs_are_found_by_when_they_ended),
	cmocka_unit_test(a_search_stops_at_its_scan_limit_and_resumes_where_it_stopped),
	cmocka_unit_test(a_search_among_the_failed_counts_only_those),
	cmocka_unit_test(every_filter_is_applied_before_a_page_of_a_status_is_cut),
	cmocka_unit_test(what_was_redriven_or_deleted_is_not_among_the_failed),
	cmocka_unit_test(chains_that_wait_for_a_chain_are_listed),
	cmocka_unit_test(leases_show_which_worker_has_which_jobs_until_when),
	cmocka_unit_test(a_job_that_has_left_its_lease_is_not_shown_there),
	cmocka_unit_test(leases_come_in_pages),
	cmocka_unit_test(a_callback_stops_the_leases),
	cmocka_unit_test(failed_jobs_are_grouped_by_type_and_first_line),
	cmocka_unit_test(an_error_is_listed_from_the_first_attempt_on),
	cmocka_unit_test(errors_cover_a_limited_number_of_jobs_with_a_cursor_for_the_rest),
	cmocka_unit_test(a_group_can_be_listed_by_its_line),
	cmocka_unit_test(streams_report_how_far_they_were_stored),
	cmocka_unit_test(workers_are_listed_until_their_heartbeats_expire),
	cmocka_unit_test(a_sweep_deletes_only_what_has_expired),
	cmocka_unit_test(a_worker_that_stops_does_not_remove_its_successor_of_the_same_name),
	cmocka_unit_test(the_first_row_of_a_bucket_stays),
	cmocka_unit_test(finer_rows_are_rolled_up_once_and_deleted_when_they_are_old),
};

CONTRACT_TESTS(contract_look_tests, tests)
