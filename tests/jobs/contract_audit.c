/* SPDX-License-Identifier: Apache-2.0 */
/* The audit trail: no change without its record, no record without its change; and what came over HTTP is marked. */
#include "jobs/contract_kit.h"

#include <stdio.h>

struct trail {
	size_t n;
	struct {
		uint64_t id;
		enum sl_via via;
		int64_t time_ms;
		char actor[64], address[64], action[64], request_id[64], detail[64];
		uint64_t chains[8];
		size_t n_chains;
	} at[KIT_MAX];
};

static void copy(char out[64], const char *text)
{
	(void)snprintf(out, 64, "%s", text != NULL ? text : "(none)");
}

static int keep(const struct sl_audit_record *r, void *ctx)
{
	struct trail *t = ctx;
	assert_true(t->n < KIT_MAX);
	t->at[t->n].id = r->id;
	t->at[t->n].via = r->via;
	t->at[t->n].time_ms = r->time_ms;
	copy(t->at[t->n].actor, r->actor);
	copy(t->at[t->n].address, r->address);
	copy(t->at[t->n].action, r->action);
	copy(t->at[t->n].request_id, r->request_id);
	copy(t->at[t->n].detail, r->detail);
	t->at[t->n].n_chains = r->n_chains;
	for (size_t i = 0; i < r->n_chains && i < 8; i++)
		t->at[t->n].chains[i] = r->chains[i];
	t->n++;
	return 0;
}

static void read_trail(struct kit *k, struct trail *t)
{
	t->n = 0;
	KIT_OK(k->ops->audit_list(k->s, 0, KIT_MAX, keep, t, err));
}

static size_t length(struct kit *k)
{
	static struct trail t;
	read_trail(k, &t);
	return t.n;
}

/* As the client makes it for a call on chains. */
struct by {
	struct sl_audit_record record;
	struct sl_store_scope scope;
};

static const struct sl_store_scope *by(struct by *b, enum sl_via via, const char *actor, const char *action,
				       const uint64_t *chains, size_t n)
{
	b->record = (struct sl_audit_record){
		.via = via, .actor = actor, .action = action, .chains = chains, .n_chains = n, .detail = "{\"d\":1}"};
	b->scope = (struct sl_store_scope){.audit = &b->record, .n_audit = 1};
	return &b->scope;
}

static bool has_trail(const struct kit *k)
{
	return k->ops->audit_put != NULL;
}

/* Every operation that changes something, once: an id, a failed chain, a scheduled one, a schedule, an old chain. */
enum {
	START,
	START_KEYED,
	CANCEL,
	COMPLETE,
	FAIL,
	REDRIVE,
	TRIGGER,
	REMOVE,
	PAUSE,
	RESUME,
	PUT,
	CRON_REMOVE,
	PRUNE,
	N
};
static const char *const actions[N] = {"start",    "start.keyed", "cancel", "complete", "fail",
				       "redrive",  "trigger",     "remove", "pause",    "resume",
				       "cron.put", "cron.remove", "prune"};

struct scene {
	uint64_t live[3], failed, later, removed, old;
	struct sl_cron cron, other;
};

static void set_scene(struct kit *k, struct scene *s)
{
	size_t n;
	for (size_t i = 0; i < 3; i++)
		s->live[i] = kit_start(k, "a");
	s->failed = kit_start(k, "b");
	KIT_OK(k->ops->fail_chain(k->s, s->failed, "no", NULL, err));
	s->later = kit_start_job(k, &(struct sl_new_job){.type = "c", .delay_ms = KIT_LONG_MS});
	s->removed = kit_start(k, "d");
	s->old = kit_start(k, "e");
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&s->old, 1}, NULL, &n, err));
	s->cron = (struct sl_cron){.name = "c1", .spec = "@hourly", .type = "t", .input = "1", .next_ms = 3000};
	s->other = (struct sl_cron){.name = "c2", .spec = "@hourly", .type = "t", .input = "1", .next_ms = 3000};
	KIT_OK(k->ops->cron_put(k->s, &s->other, NULL, err));
	kit_pass_ms(k, 5);
}

static int change(struct kit *k, struct scene *s, int what, const char *actor, uint64_t *subject, struct sl_err *err)
{
	struct by b;
	struct sl_new_chain chain = {.job = {.type = "n", .input = "{}"}};
	struct sl_started started = {0};
	size_t n = 0;
	const uint64_t of[N] = {[CANCEL] = s->live[0], [COMPLETE] = s->live[1], [FAIL] = s->live[2],
				[REDRIVE] = s->failed, [TRIGGER] = s->later,    [REMOVE] = s->removed};
	const struct sl_store_scope *l = by(&b, SL_VIA_COMMAND, actor, actions[what], &of[what], of[what] != 0);
	int rc = SL_EINVAL;
	*subject = of[what];
	switch (what) {
	case START_KEYED:
	case START:
		chain.key = what == START_KEYED ? "k" : NULL;
		rc = k->ops->start(k->s, &chain, 1, l, &started, err);
		*subject = started.chain_id;
		break;
	case CANCEL:
		rc = k->ops->cancel(k->s, (struct sl_ids){subject, 1}, l, &n, err);
		break;
	case COMPLETE:
		rc = k->ops->complete_chain(k->s, *subject, "1", l, err);
		break;
	case FAIL:
		rc = k->ops->fail_chain(k->s, *subject, "bad", l, err);
		break;
	case REDRIVE:
		rc = k->ops->redrive(k->s, (struct sl_ids){subject, 1}, l, &n, err);
		break;
	case TRIGGER:
		rc = k->ops->trigger(k->s, (struct sl_ids){subject, 1}, l, &n, err);
		break;
	case REMOVE:
		rc = k->ops->remove(k->s, (struct sl_ids){subject, 1}, false, l, &n, err);
		break;
	case PAUSE:
	case RESUME:
		rc = k->ops->pause(k->s, "p", what == PAUSE, l, err);
		break;
	case PUT:
		rc = k->ops->cron_put(k->s, &s->cron, l, err);
		break;
	case CRON_REMOVE:
		rc = k->ops->cron_remove(k->s, "c2", l, err);
		break;
	case PRUNE:
		rc = k->ops->prune(k->s, kit_now(k) - 1, 100, l, &n, err);
		break;
	default:
		break;
	}
	return rc;
}

static void every_change_writes_its_record(void **state)
{
	struct kit *k = *state;
	static struct trail t;
	struct scene s;
	if (!has_trail(k))
		return;
	set_scene(k, &s);
	assert_int_equal(length(k), 0); /* no user was named */
	for (int what = 0; what < N; what++) {
		uint64_t subject;
		KIT_OK(change(k, &s, what, "ada", &subject, err));
		read_trail(k, &t);
		assert_int_equal(t.n, what + 1);
		assert_string_equal(t.at[0].action, actions[what]);
		assert_string_equal(t.at[0].actor, "ada");
		assert_string_equal(t.at[0].detail, "{\"d\":1}");
		assert_string_equal(t.at[0].address, "(none)");
		assert_int_equal(t.at[0].via, SL_VIA_COMMAND);
		assert_int_equal(t.at[0].n_chains, subject != 0);
		if (subject != 0)
			assert_int_equal(t.at[0].chains[0], subject);
	}
}

/* What the scene consists of, as one number for each thing that a change would change. */
static void picture(struct kit *k, const struct scene *s, uint64_t out[10])
{
	struct kit_ids all;
	const uint64_t ids[] = {s->live[0], s->live[1], s->live[2], s->failed, s->removed, s->old};
	kit_list(k, &(struct sl_job_filter){.limit = 100}, &all);
	out[0] = all.n;
	for (size_t i = 0; i < 6; i++)
		out[1 + i] = kit_exists(k, ids[i]) ? (uint64_t)kit_status(k, ids[i]) : 99;
	struct kit_row row;
	kit_get(k, s->later, &row);
	out[7] = (uint64_t)row.job.scheduled_ms;
}

static int count_cron(const struct sl_cron *cron, void *ctx)
{
	(void)cron;
	++*(size_t *)ctx;
	return 0;
}

static int count_paused(const struct sl_job_count *c, void *ctx)
{
	*(size_t *)ctx += c->paused;
	return 0;
}

static void a_change_whose_record_cannot_be_written_does_not_happen(void **state)
{
	struct kit *k = *state;
	struct scene s;
	uint64_t before[10] = {0}, after[10] = {0};
	if (!has_trail(k))
		return;
	set_scene(k, &s);
	KIT_OK(k->ops->pause(k->s, "q", 1, NULL, err));
	picture(k, &s, before);
	for (int what = 0; what < N; what++) {
		struct sl_err why = SL_ERR_INIT;
		uint64_t subject;
		size_t crons = 0, paused = 0;
		/* A record without an actor is none. */
		assert_int_not_equal(change(k, &s, what, NULL, &subject, &why), 0);
		picture(k, &s, after);
		assert_memory_equal(before, after, sizeof(before));
		KIT_OK(k->ops->cron_list(k->s, count_cron, &crons, err));
		assert_int_equal(crons, 1);
		KIT_OK(k->ops->counts(k->s, count_paused, &paused, err));
		assert_int_equal(paused, 1);
		assert_int_equal(length(k), 0);
	}
}

static void a_change_that_is_refused_or_rolled_back_leaves_no_record(void **state)
{
	struct kit *k = *state;
	struct by b;
	sl_store_tx *tx;
	size_t n;
	if (!has_trail(k))
		return;
	uint64_t id = kit_start(k, "t"), none = 424242;
	const struct sl_store_scope *l = by(&b, SL_VIA_HTTP, "ada", "x", &id, 1);
	struct sl_store_scope within = *l;
	KIT_FAILS(SL_ENOENT, k->ops->cancel(k->s, (struct sl_ids){&none, 1}, l, &n, err));
	KIT_FAILS(SL_ENOENT, k->ops->cron_remove(k->s, "nothing", l, err));
	KIT_OK(k->ops->complete_chain(k->s, id, "1", NULL, err));
	KIT_FAILS(SL_EEXIST, k->ops->complete_chain(k->s, id, "1", l, err));
	assert_int_equal(length(k), 0);
	id = kit_start(k, "t");
	KIT_OK(k->ops->begin(k->s, &tx, err));
	within.tx = tx;
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&id, 1}, &within, &n, err));
	k->ops->rollback(tx);
	assert_int_equal(length(k), 0);
	assert_int_equal(kit_status(k, id), SL_JOB_PENDING);
	KIT_OK(k->ops->begin(k->s, &tx, err));
	within.tx = tx;
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&id, 1}, &within, &n, err));
	KIT_OK(k->ops->commit(tx, err));
	assert_int_equal(length(k), 1);
}

static void the_records_of_a_start_stand_for_its_chains_in_turn(void **state)
{
	struct kit *k = *state;
	static struct trail t;
	struct sl_new_chain chains[4] = {
		{.job = {.type = "a"}}, {.job = {.type = "b"}}, {.job = {.type = "c"}}, {.job = {.type = "d"}}};
	struct sl_started out[4];
	const struct sl_audit_record records[] = {
		{.via = SL_VIA_HTTP,
		 .actor = "one",
		 .action = "start",
		 .address = "::1",
		 .request_id = "r1",
		 .n_chains = 1},
		{.via = SL_VIA_COMMAND, .actor = "two", .action = "start", .n_chains = 2},
		{.via = SL_VIA_HTTP, .actor = "three", .action = "start"}};
	if (!has_trail(k))
		return;
	const struct sl_store_scope scope = {.audit = records, .n_audit = 3};
	KIT_OK(k->ops->start(k->s, chains, 4, &scope, out, err));
	read_trail(k, &t);
	assert_int_equal(t.n, 3);
	assert_string_equal(t.at[2].actor, "one");
	assert_string_equal(t.at[2].address, "::1");
	assert_string_equal(t.at[2].request_id, "r1");
	assert_int_equal(t.at[2].n_chains, 1);
	assert_int_equal(t.at[2].chains[0], out[0].chain_id);
	assert_int_equal(t.at[1].n_chains, 2);
	assert_int_equal(t.at[1].chains[0], out[1].chain_id);
	assert_int_equal(t.at[1].chains[1], out[2].chain_id);
	assert_int_equal(t.at[0].n_chains, 1);
	assert_int_equal(t.at[0].chains[0], out[3].chain_id);
	for (size_t i = 0; i < 4; i++) {
		struct kit_row row;
		kit_get(k, out[i].chain_id, &row);
		assert_int_equal(row.job.from_http, i == 0 || i == 3);
	}
	/* Records that leave chains out are a mistake of the caller, and nothing is started. */
	const struct sl_store_scope few = {.audit = records, .n_audit = 2};
	KIT_FAILS(SL_EINVAL, k->ops->start(k->s, chains, 4, &few, out, err));
	struct kit_ids all;
	kit_list(k, &(struct sl_job_filter){.limit = 100}, &all);
	assert_int_equal(all.n, 4);
}

static int from_http(struct kit *k, uint64_t id)
{
	struct kit_row row;
	kit_get(k, id, &row);
	return row.job.from_http;
}

static void what_was_started_retried_or_scheduled_over_http_is_marked_and_so_are_its_continuations(void **state)
{
	struct kit *k = *state;
	struct by b;
	struct kit_claim claim;
	struct sl_new_chain chain = {.job = {.type = "t"}, .key = "key"};
	struct sl_started started;
	size_t n;
	if (!has_trail(k))
		return;
	/* A start with a key, and the job that it continues with. */
	KIT_OK(k->ops->start(k->s, &chain, 1, by(&b, SL_VIA_HTTP, "a", "start", NULL, 0), &started, err));
	assert_int_equal(from_http(k, started.chain_id), 1);
	kit_claim_one(k, "t", &claim);
	struct sl_settle next = kit_settle(&claim, 0, SL_SETTLE_CONTINUE);
	next.next = &(struct sl_new_job){.type = "u"};
	assert_int_equal(from_http(k, kit_exchange(k, &next, NULL).next_id), 1);
	/* A retry: by the command line it is not marked, over HTTP it is, and it stays so. */
	uint64_t id = kit_start(k, "v");
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&id, 1}, by(&b, SL_VIA_HTTP, "a", "cancel", &id, 1), &n, err));
	KIT_OK(k->ops->redrive(k->s, (struct sl_ids){&id, 1}, by(&b, SL_VIA_COMMAND, "a", "retry", &id, 1), &n, err));
	assert_int_equal(from_http(k, id), 0);
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&id, 1}, NULL, &n, err));
	KIT_OK(k->ops->redrive(k->s, (struct sl_ids){&id, 1}, by(&b, SL_VIA_HTTP, "a", "retry", &id, 1), &n, err));
	assert_int_equal(from_http(k, id), 1);
	KIT_OK(k->ops->cancel(k->s, (struct sl_ids){&id, 1}, NULL, &n, err));
	KIT_OK(k->ops->redrive(k->s, (struct sl_ids){&id, 1}, NULL, &n, err));
	assert_int_equal(from_http(k, id), 1);
	/* A schedule, until it is put again by other means. */
	struct sl_cron c = {.name = "c", .spec = "@hourly", .type = "w", .input = "1", .next_ms = 1000};
	bool fired = false;
	KIT_OK(k->ops->cron_put(k->s, &c, by(&b, SL_VIA_HTTP, "a", "cron.put", NULL, 0), err));
	KIT_OK(k->ops->cron_fire(k->s, &c, 2000, &fired, &started, NULL, err));
	assert_int_equal(fired, 1);
	assert_int_equal(from_http(k, started.chain_id), 1);
	c.next_ms = 2000;
	KIT_OK(k->ops->cron_put(k->s, &c, by(&b, SL_VIA_COMMAND, "a", "cron.put", NULL, 0), err));
	KIT_OK(k->ops->cron_fire(k->s, &c, 3000, &fired, &started, NULL, err));
	assert_int_equal(from_http(k, started.chain_id), 0);
}

static void records_are_listed_by_pages_and_removed_by_age(void **state)
{
	struct kit *k = *state;
	static struct trail t;
	size_t n = 99;
	if (!has_trail(k))
		return;
	for (int i = 0; i < 5; i++) {
		char action[16];
		(void)snprintf(action, sizeof(action), "a%d", i);
		const struct sl_audit_record r = {.actor = "ada", .action = action};
		if (i == 3)
			kit_pass_ms(k, 20);
		KIT_OK(k->ops->audit_put(k->s, &r, 1, err));
	}
	read_trail(k, &t);
	assert_int_equal(t.n, 5);
	assert_string_equal(t.at[0].action, "a4");
	uint64_t third = t.at[2].id;
	int64_t line = t.at[1].time_ms;
	t.n = 0;
	KIT_OK(k->ops->audit_list(k->s, third, 1, keep, &t, err));
	assert_int_equal(t.n, 1);
	assert_string_equal(t.at[0].action, "a1");
	KIT_OK(k->ops->audit_prune(k->s, line, 2, &n, err));
	assert_int_equal(n, 2);
	KIT_OK(k->ops->audit_prune(k->s, line, 2, &n, err));
	assert_int_equal(n, 1);
	KIT_OK(k->ops->audit_prune(k->s, line, 2, &n, err));
	assert_int_equal(n, 0);
	read_trail(k, &t);
	assert_int_equal(t.n, 2);
	assert_string_equal(t.at[1].action, "a3");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(every_change_writes_its_record),
	cmocka_unit_test(a_change_whose_record_cannot_be_written_does_not_happen),
	cmocka_unit_test(a_change_that_is_refused_or_rolled_back_leaves_no_record),
	cmocka_unit_test(the_records_of_a_start_stand_for_its_chains_in_turn),
	cmocka_unit_test(what_was_started_retried_or_scheduled_over_http_is_marked_and_so_are_its_continuations),
	cmocka_unit_test(records_are_listed_by_pages_and_removed_by_age),
};

CONTRACT_TESTS(contract_audit_tests, tests)
