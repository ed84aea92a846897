/* SPDX-License-Identifier: Apache-2.0 */
/* Counts that a store keeps, against counts by reading every job: after a mix of everything that changes a status. */
#include <stdio.h>
#include <stdlib.h>

#include "jobs/contract_kit.h"

#define TYPES 20 /* more than a store may keep in mind within one operation */
#define CLAIMS 6
#define STEPS 1200
#define CHECK_EVERY 25
#define SHORT_MS 2 /* a delay that is over by the next check */

static const char *const names[TYPES] = {"t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9",
					 "u0", "u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8", "u9"};

struct count {
	uint64_t n, due, retrying;
	int64_t oldest_ms, oldest_due_ms;
};
struct census {
	struct count by[TYPES][SL_JOB_STATUS_COUNT + 1];
	struct sl_outstanding all;
	int64_t now_ms;
	uint64_t n, last, unknown;
};

struct mix {
	struct kit *k;
	uint64_t random;
	struct kit_claim *claims; /* CLAIMS of them */
	size_t at[CLAIMS];        /* jobs of the claim that were settled */
	uint64_t newest;          /* chain */
	uint64_t cron_ms;
	uint64_t done[32]; /* how often each step was taken */
};

static uint32_t pick(struct mix *m, uint32_t n)
{
	m->random ^= m->random << 13;
	m->random ^= m->random >> 7;
	m->random ^= m->random << 17;
	return (uint32_t)((m->random >> 20) % n);
}

/* Mostly the first few types. */
static const char *pick_type(struct mix *m)
{
	return names[pick(m, 4) != 0 ? pick(m, 3) : pick(m, TYPES)];
}

static uint64_t pick_chain(struct mix *m)
{
	return 1 + pick(m, (uint32_t)m->newest);
}

/* ---- the two censuses ---- */

static size_t type_index(const char *type)
{
	size_t i = 0;
	while (i < TYPES && strcmp(names[i], type) != 0)
		i++;
	return i;
}

static int read_job(const struct sl_job *job, void *ctx)
{
	struct census *c = ctx;
	size_t t = type_index(job->type);
	c->n++;
	c->last = job->id;
	if (t == TYPES) {
		c->unknown++;
		return 0;
	}
	struct count *n = &c->by[t][job->status];
	bool due = job->scheduled_ms <= c->now_ms, live = job->status < SL_JOB_COMPLETED;
	n->n++;
	if (live && (n->oldest_ms == 0 || job->created_ms < n->oldest_ms))
		n->oldest_ms = job->created_ms;
	c->all.blocked += job->status == SL_JOB_BLOCKED;
	c->all.running += job->status == SL_JOB_RUNNING;
	if (job->status != SL_JOB_PENDING)
		return 0;
	n->due += due;
	if (due && n->oldest_due_ms == 0) /* they come in the order of their ids */
		n->oldest_due_ms = job->scheduled_ms > job->created_ms ? job->scheduled_ms : job->created_ms;
	n->retrying += !due && job->charged > 0;
	KIT_TRUE(job->state == (due ? SL_JOB_READY : job->charged > 0 ? SL_JOB_RETRYING : SL_JOB_SCHEDULED));
	c->all.due += due;
	c->all.retrying += !due && job->charged > 0;
	c->all.scheduled += !due && job->charged == 0;
	return 0;
}

static void read_all(struct kit *k, struct census *c)
{
	uint64_t before;
	c->now_ms = kit_now(k);
	do {
		struct sl_job_filter f = {.limit = 1000, .after = c->last, .ascending = true, .without_data = true};
		before = c->n;
		KIT_OK(k->ops->list_jobs(k->s, &f, read_job, c, err));
	} while (c->n != before);
}

static int take_count(const struct sl_job_count *row, void *ctx)
{
	struct census *c = ctx;
	size_t t = type_index(row->type);
	if (t == TYPES) {
		c->unknown++;
		return 0;
	}
	struct count *n = &c->by[t][row->status];
	KIT_TRUE(n->n == 0); /* one row each */
	*n = (struct count){row->count, row->due, row->retrying, row->oldest_ms, row->oldest_due_ms};
	return 0;
}

static void compare(struct mix *m, int step)
{
	struct census *rows = calloc(1, sizeof(*rows)), *reported = calloc(1, sizeof(*reported));
	struct kit *k = m->k;
	kit_pass_ms(k, SHORT_MS + 1);
	KIT_OK(k->ops->counts(k->s, take_count, reported, err));
	KIT_OK(k->ops->outstanding(k->s, names, TYPES, &reported->all, err));
	read_all(k, rows);
	assert_int_equal(rows->unknown + reported->unknown, 0);
	for (size_t t = 0; t < TYPES; t++)
		for (int s = SL_JOB_BLOCKED; s <= SL_JOB_CANCELLED; s++) {
			const struct count *a = &rows->by[t][s], *b = &reported->by[t][s];
			if (memcmp(a, b, sizeof(*a)) != 0)
				fail_msg("step %d: %s %s: rows %llu due %llu retrying %llu oldest %lld %lld, reported "
					 "%llu %llu %llu %lld %lld",
					 step, names[t], sl_job_status_name((enum sl_job_status)s),
					 (unsigned long long)a->n, (unsigned long long)a->due,
					 (unsigned long long)a->retrying, (long long)a->oldest_ms,
					 (long long)a->oldest_due_ms, (unsigned long long)b->n,
					 (unsigned long long)b->due, (unsigned long long)b->retrying,
					 (long long)b->oldest_ms, (long long)b->oldest_due_ms);
		}
	assert_memory_equal(&rows->all, &reported->all, sizeof(rows->all));
	free(rows);
	free(reported);
}

/* ---- steps ---- */

/* A step may fail because another thread changed its chains meanwhile. */
static void may_fail(int rc, const struct sl_err *err)
{
	if (!kit_overtaken(rc))
		kit_check(rc, err, "a step", __FILE__, __LINE__);
}
#define TRY(call)                                                                                                      \
	do {                                                                                                           \
		struct sl_err err_ = SL_ERR_INIT;                                                                      \
		struct sl_err *err = &err_;                                                                            \
		int rc_ = (call);                                                                                      \
		may_fail(rc_, err);                                                                                    \
	} while (0)

static struct sl_new_job any_job(struct mix *m)
{
	static const int64_t delays[] = {0, 0, 0, SHORT_MS, KIT_LONG_MS};
	return (struct sl_new_job){
		.type = pick_type(m), .priority = (int32_t)pick(m, 5) - 2, .delay_ms = delays[pick(m, 5)]};
}

static void note_started(struct mix *m, const struct sl_started *out, size_t n)
{
	for (size_t i = 0; i < n; i++)
		m->newest = out[i].chain_id > m->newest ? out[i].chain_id : m->newest;
}

/* n chains in one call, or in a transaction that ends one way or the other. */
static void start(struct mix *m, size_t n, int in_tx)
{
	struct sl_new_chain chains[40];
	struct sl_started out[40] = {{0}};
	uint64_t blockers[40];
	sl_store_tx *tx = NULL;
	char keys[40][16];
	struct kit *k = m->k;
	for (size_t i = 0; i < n; i++) {
		chains[i] = (struct sl_new_chain){.job = any_job(m), .scope = SL_DEDUP_INCOMPLETE};
		blockers[i] = m->newest;
		if (m->newest != 0 && pick(m, 6) == 0 && kit_exists(k, m->newest)) {
			chains[i].job.blockers = &blockers[i];
			chains[i].job.n_blockers = 1;
		}
		(void)snprintf(keys[i], sizeof(keys[i]), "key %u", pick(m, 9));
		chains[i].key = pick(m, 5) == 0 ? keys[i] : NULL;
	}
	if (in_tx)
		KIT_OK(k->ops->begin(k->s, &tx, err));
	struct sl_err why = SL_ERR_INIT;
	int rc = k->ops->start(k->s, chains, n, &(struct sl_store_scope){.tx = tx}, out, &why);
	may_fail(rc, &why);
	if (in_tx == 2)
		k->ops->rollback(tx);
	else if (in_tx)
		KIT_OK(k->ops->commit(tx, err));
	if (rc == 0 && in_tx != 2)
		note_started(m, out, n);
}

static void claim(struct mix *m)
{
	struct sl_claim_type types[3];
	size_t i = pick(m, CLAIMS);
	for (size_t t = 0; t < 3; t++)
		types[t] = (struct sl_claim_type){.type = names[t], .limit = 1 + pick(m, 4)};
	m->at[i] = 0;
	kit_claim_types(m->k, types, 1 + pick(m, 3), 1 + pick(m, 6), pick(m, 3) == 0 ? 1 : KIT_LONG_MS, &m->claims[i]);
}

/* Settle the next job of a claim. It may be lost by now. */
static void settle(struct mix *m, enum sl_settle_kind kind)
{
	static const int64_t delays[] = {0, SHORT_MS, KIT_LONG_MS};
	size_t i = pick(m, CLAIMS);
	struct kit_claim *c = &m->claims[i];
	if (m->at[i] >= c->n)
		return;
	struct sl_new_job next = any_job(m);
	struct sl_settle s = kit_settle(c, m->at[i]++, kind);
	s.last_of_claim = m->at[i] == c->n;
	s.error = "an error";
	s.next = kind == SL_SETTLE_CONTINUE ? &next : NULL;
	s.delay_ms = kind == SL_SETTLE_RETRY || kind == SL_SETTLE_RESCHEDULE ? delays[pick(m, 3)] : 0;
	struct sl_settle_result result = kit_exchange(m->k, &s, NULL);
	if (result.next_id > m->newest)
		m->newest = result.next_id;
}

static void taken(int rc, const struct sl_claimed_job *job, int64_t sent_ns, int64_t now_ms, void *ctx)
{
	struct kit_claim *c = ctx;
	(void)sent_ns;
	c->reply.now_ms = now_ms;
	KIT_TRUE(rc == 0);
	if (job != NULL)
		c->jobs[c->n++] = (struct kit_job){.id = job->id, .chain_id = job->chain_id, .fence = job->fence};
}

/* A worker offers to run what is started next. */
static void offer(struct mix *m)
{
	struct kit *k = m->k;
	size_t i = pick(m, CLAIMS);
	struct kit_claim *c = &m->claims[i];
	struct sl_claim_type none = {.type = "nothing", .limit = 1};
	struct sl_offer_type types[] = {{names[0], KIT_LONG_MS}, {names[1], KIT_LONG_MS}, {names[2], KIT_LONG_MS}};
	if (k->ops->offer == NULL)
		return;
	kit_claim_types(k, &none, 1, 1, KIT_LONG_MS, c); /* only for a new id and worker name */
	m->at[i] = 0;
	struct sl_offer o = {
		.claim = c->id, .worker = c->worker, .types = types, .n_types = 3, .accepted = taken, .ctx = c};
	k->ops->offer(k->s, &o);
	start(m, 1, 0);
	(void)k->ops->withdraw(k->s, &o);
}

static void fire(struct mix *m)
{
	struct kit *k = m->k;
	struct sl_cron cron = {
		.name = "tick", .spec = "* * * * *", .type = "t0", .input = "1", .next_ms = (int64_t)m->cron_ms};
	bool fired = false;
	struct sl_started out = {0};
	if (m->cron_ms == 60000)
		KIT_OK(k->ops->cron_put(k->s, &cron, NULL, err));
	m->cron_ms += 60000;
	KIT_OK(k->ops->cron_fire(k->s, &cron, (int64_t)m->cron_ms, &fired, &out, NULL, err));
	assert_int_equal(fired, 1);
	note_started(m, &out, 1);
}

static void step(struct mix *m)
{
	static const enum sl_settle_kind kinds[] = {SL_SETTLE_COMPLETE, SL_SETTLE_CONTINUE,   SL_SETTLE_RETRY,
						    SL_SETTLE_FAIL,     SL_SETTLE_RESCHEDULE, SL_SETTLE_RELEASE};
	struct kit *k = m->k;
	uint64_t chain = pick_chain(m), other[2] = {chain, pick_chain(m)};
	uint32_t what = pick(m, 24);
	struct sl_reaped reaped;
	size_t changed = 0;
	m->done[what]++;
	switch (what) {
	case 0:
		start(m, 1, 0);
		break;
	case 1:
		start(m, 16 + pick(m, 24), 0);
		break;
	case 2:
		start(m, 1 + pick(m, 20), 1 + (int)pick(m, 2));
		break;
	case 3:
		TRY(k->ops->cancel(k->s, (struct sl_ids){other, 2}, NULL, &changed, err));
		break;
	case 4:
		TRY(k->ops->redrive(k->s, (struct sl_ids){other, 2}, NULL, &changed, err));
		break;
	case 5:
		TRY(k->ops->trigger(k->s, (struct sl_ids){other, 2}, NULL, &changed, err));
		break;
	case 6:
		TRY(k->ops->remove(k->s, (struct sl_ids){other, 1}, (int)pick(m, 2), NULL, &changed, err));
		break;
	case 7:
		TRY(k->ops->complete_chain(k->s, chain, "1", NULL, err));
		break;
	case 8:
		TRY(k->ops->fail_chain(k->s, chain, "from outside", NULL, err));
		break;
	case 9:
		KIT_OK(k->ops->reap(k->s, NULL, 0, 1 + pick(m, 3), &reaped, NULL, err));
		break;
	case 10:
		KIT_OK(k->ops->prune(k->s, kit_now(k), 1 + pick(m, 3), NULL, &changed, err));
		break;
	case 11:
		fire(m);
		break;
	case 12:
		offer(m);
		break;
	case 13:
		KIT_OK(k->ops->pause(k->s, names[pick(m, 3)], (int)pick(m, 2), NULL, err));
		break;
	case 14:
	case 15:
	case 16:
	case 17:
		claim(m);
		break;
	default:
		settle(m, kinds[what - 18]);
	}
}

static void counts_are_those_of_the_rows_after_a_mix_of_everything(void **state)
{
	struct mix m = {.k = *state, .random = 0x9e3779b97f4a7c15u, .cron_ms = 60000};
	const char *seed = getenv("SLUICE_TEST_SEED");
	if (seed != NULL)
		m.random ^= strtoull(seed, NULL, 0) * 0x2545f4914f6cdd1du;
	m.claims = calloc(CLAIMS, sizeof(*m.claims));
	start(&m, 40, 0);
	for (int i = 1; i <= STEPS; i++) {
		step(&m);
		if (i % CHECK_EVERY == 0)
			compare(&m, i);
	}
	printf("# chains %llu; steps:", (unsigned long long)m.newest);
	for (size_t i = 0; i < 24; i++)
		printf(" %llu", (unsigned long long)m.done[i]);
	printf("\n");
	free(m.claims);
}

/* ---- paused types ---- */

static int find_quiet(const struct sl_job_count *c, void *ctx)
{
	struct sl_job_count *found = ctx;
	if (strcmp(c->type, "quiet") != 0)
		return 0;
	KIT_TRUE(found->type == NULL); /* once */
	*found = *c;
	found->type = "quiet";
	return 0;
}

static void a_paused_type_without_jobs_is_reported_with_a_count_of_zero(void **state)
{
	struct kit *k = *state;
	struct sl_job_count c = {0};
	kit_start(k, "t");
	KIT_OK(k->ops->pause(k->s, "quiet", 1, NULL, err));
	KIT_OK(k->ops->counts(k->s, find_quiet, &c, err));
	assert_non_null(c.type);
	assert_int_equal(c.status, SL_JOB_PENDING);
	assert_int_equal(c.count + c.due + c.retrying, 0);
	assert_int_equal(c.oldest_ms, 0);
	assert_int_equal(c.paused, 1);
	KIT_OK(k->ops->pause(k->s, "quiet", 0, NULL, err));
	c = (struct sl_job_count){0};
	KIT_OK(k->ops->counts(k->s, find_quiet, &c, err));
	assert_null(c.type);
	/* A type with jobs has only the rows of its jobs; without jobs, it has the empty row again. */
	uint64_t id = kit_start(k, "quiet");
	size_t n = 0;
	KIT_OK(k->ops->pause(k->s, "quiet", 1, NULL, err));
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&id, 1}, NULL, &n, err));
	KIT_OK(k->ops->counts(k->s, find_quiet, &c, err));
	assert_int_equal(c.status, SL_JOB_CANCELLED);
	KIT_OK(k->ops->remove(k->s, (struct sl_ids){&id, 1}, false, NULL, &n, err));
	c = (struct sl_job_count){0};
	KIT_OK(k->ops->counts(k->s, find_quiet, &c, err));
	assert_int_equal(c.status, SL_JOB_PENDING);
	assert_int_equal(c.count, 0);
}

/* ---- the oldest ---- */

static int find_t(const struct sl_job_count *c, void *ctx)
{
	if (strcmp(c->type, "t") == 0 && c->status == SL_JOB_PENDING)
		*(struct sl_job_count *)ctx = *c;
	return 0;
}

static void the_oldest_that_waits_is_found_behind_any_number_of_priorities(void **state)
{
	struct kit *k = *state;
	struct sl_job_count c = {0};
	struct kit_row row;
	static struct sl_new_chain chains[1200];
	static struct sl_started out[1200];
	uint64_t oldest = kit_start_job(k, &(struct sl_new_job){.type = "t", .priority = 5000});
	kit_pass_ms(k, 5);
	for (int i = 0; i < 1200; i++)
		chains[i] = (struct sl_new_chain){.job = {.type = "t", .priority = i}};
	KIT_OK(k->ops->start(k->s, chains, 1200, NULL, out, err));
	kit_get(k, oldest, &row);
	KIT_OK(k->ops->counts(k->s, find_t, &c, err));
	assert_int_equal(c.count, 1201);
	assert_int_equal(c.oldest_ms, row.job.created_ms);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(counts_are_those_of_the_rows_after_a_mix_of_everything),
	cmocka_unit_test(a_paused_type_without_jobs_is_reported_with_a_count_of_zero),
	cmocka_unit_test(the_oldest_that_waits_is_found_behind_any_number_of_priorities),
};

CONTRACT_TESTS(contract_counts_tests, tests)
