/* SPDX-License-Identifier: Apache-2.0 */
/* Offers to other processes: what a start does with one, and what becomes of the job when nobody hears of it. */
#include "jobs/contract_kit.h"

#include <stdio.h>
#include <stdlib.h>

#define ACCEPT_MS 40

/* A worker that stands by, and a client of another process. */
struct pair {
	struct kit *k;
	struct kit other;
	struct sl_address at;
	void *held;
	struct sl_offer offer, second; /* second: the other's */
	int calls;
	struct kit_job job; /* that was handed over */
	int64_t sent_ns, now_ms;
};

static const struct sl_offer_type types[] = {
	{.type = "t", .lease_ms = KIT_LONG_MS}, {.type = "u", .lease_ms = 1}, {.type = "v\nw", .lease_ms = 1}};

static void on_taken(int rc, const struct sl_claimed_job *job, int64_t sent_ns, int64_t now_ms, void *ctx)
{
	struct pair *p = ctx;
	assert_int_equal(rc, 0);
	assert_non_null(job);
	p->calls++;
	p->sent_ns = sent_ns;
	p->now_ms = now_ms;
	p->job = (struct kit_job){.id = job->id,
				  .chain_id = job->chain_id,
				  .fence = job->fence,
				  .attempt = job->attempt,
				  .priority = job->priority,
				  .has_blockers = job->has_blockers};
	(void)snprintf(p->job.type, sizeof(p->job.type), "%s", job->type);
	(void)snprintf(p->job.input, sizeof(p->job.input), "%s", job->input);
	(void)snprintf(p->job.traceparent, sizeof(p->job.traceparent), "%s", job->traceparent ? job->traceparent : "-");
}

static void stand_by_for(struct pair *p, struct kit *k, int64_t accept_ms)
{
	*p = (struct pair){.k = k};
	kit_open(&p->other, k->f);
	assert_int_equal(k->f->address_open(&p->at, &p->held, k->f->ctx), 0);
	p->offer = (struct sl_offer){.claim = {{9, 8, 7}},
				     .worker = "stands-by",
				     .types = types,
				     .n_types = 3,
				     .accept_ms = accept_ms,
				     .taken = on_taken,
				     .ctx = p};
	KIT_OK(k->ops->post(k->s, &p->offer, &p->at, err));
}

static void stand_by(struct pair *p, struct kit *k)
{
	stand_by_for(p, k, KIT_LONG_MS);
}

static void leave(struct pair *p)
{
	if (p->held != NULL)
		p->k->f->address_close(p->held, p->k->f->ctx);
	kit_close(&p->other);
}

/* ---- a client that announces ---- */

static int announce(const char *type, struct sl_announcement *out, void *ctx)
{
	(void)type, (void)ctx;
	*out = (struct sl_announcement){.channel = "nobody", .before = "a", .after = "b"};
	return 1;
}

static void no_note(const struct sl_note *note, void *ctx)
{
	(void)note;
	(*(int *)ctx)++;
}

/* *notes (may be NULL): how many were told. */
static uint64_t start_job(struct pair *p, const struct sl_new_job *job, int *notes)
{
	int n = 0;
	const struct sl_store_listen listen = {.note = no_note, .ctx = &n, .announce = announce};
	struct sl_new_chain chain = {.job = *job};
	struct sl_started out;
	KIT_OK(p->other.ops->start(p->other.s, NULL, &chain, 1, &out, &listen, err));
	if (notes != NULL)
		*notes = n;
	return out.chain_id;
}

static uint64_t start(struct pair *p, const char *type)
{
	return start_job(p, &(struct sl_new_job){.type = type, .input = "1"}, NULL);
}

static bool read_letter(struct pair *p, char text[8192])
{
	return p->k->f->address_read(p->held, text, 8192, p->k->f->ctx) != 0;
}

/* Nobody was handed anything: the offer can be taken back. */
static void assert_stands(struct pair *p)
{
	char text[8192];
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(p->calls, 0);
	assert_false(read_letter(p, text));
	assert_int_equal(p->k->ops->unpost(p->k->s, &p->offer, &err), 1);
	assert_int_equal(p->calls, 0);
}

static struct sl_settle settle_of(const struct pair *p, enum sl_settle_kind kind)
{
	return (struct sl_settle){.kind = kind,
				  .id = p->job.id,
				  .chain_id = p->job.id,
				  .fence = p->job.fence,
				  .claim = p->offer.claim,
				  .worker = "stands-by",
				  .output = "2",
				  .last_of_claim = 1};
}

/* ---- tests ---- */

static void a_start_of_another_process_hands_its_job_to_who_stands_by(void **state)
{
	struct pair p;
	char text[8192];
	int notes = -1;
	stand_by(&p, *state);
	int64_t before = kit_now(p.k);
	const struct sl_new_job job = {
		.type = "t", .input = "{\n\"x\": 1}", .priority = -3, .traceparent = "00-ab-cd-01"};
	uint64_t id = start_job(&p, &job, &notes);
	assert_int_equal(notes, 0); /* nobody else need hear of it */
	assert_int_equal(kit_status(p.k, id), SL_JOB_RUNNING);
	struct kit_claim c;
	kit_claim(&p.other, "t", 1, KIT_LONG_MS, &c);
	assert_int_equal(c.n, 0); /* nor can claim it */
	assert_int_equal(p.calls, 0);
	assert_true(read_letter(&p, text));
	assert_int_equal(p.other.ops->letter(p.other.s, text), 0); /* not that one's */
	assert_int_equal(p.k->ops->letter(p.k->s, text), 1);
	assert_int_equal(p.calls, 1);
	assert_int_equal(p.job.id, id);
	assert_int_equal(p.job.chain_id, id);
	assert_int_equal(p.job.fence, 1);
	assert_int_equal(p.job.attempt, 1);
	assert_int_equal(p.job.charged, 0);
	assert_int_equal(p.job.priority, -3);
	assert_string_equal(p.job.type, "t");
	assert_string_equal(p.job.input, "{\n\"x\": 1}");
	assert_string_equal(p.job.traceparent, "00-ab-cd-01");
	assert_in_range(p.now_ms, before, kit_now(p.k) + 1);
	assert_true(p.sent_ns <= kit_mono_ns());
	assert_int_equal(p.k->ops->letter(p.k->s, text), 0); /* C14 */
	struct sl_settle s = settle_of(&p, SL_SETTLE_COMPLETE);
	assert_int_equal(kit_exchange(p.k, &s, NULL).lost, SL_LOST_NOT);
	struct kit_row row;
	kit_get(p.k, id, &row);
	assert_int_equal(row.job.status, SL_JOB_COMPLETED);
	assert_int_equal(row.job.attempt, 1);
	leave(&p);
}

static void an_offer_to_others_is_taken_once(void **state)
{
	struct pair p;
	stand_by(&p, *state);
	assert_int_equal(kit_status(p.k, start(&p, "u")), SL_JOB_RUNNING);
	assert_int_equal(kit_status(p.k, start(&p, "t")), SL_JOB_PENDING);
	leave(&p);
}

static void an_offer_of_the_dead_is_passed_over(void **state)
{
	struct pair p;
	stand_by(&p, *state);
	p.k->f->address_close(p.held, p.k->f->ctx);
	p.held = NULL;
	uint64_t id = start(&p, "t");
	assert_int_equal(kit_status(p.k, id), SL_JOB_PENDING);
	struct kit_claim c;
	assert_int_equal(kit_claim_one(&p.other, "t", &c).id, id);
	leave(&p);
}

static void what_is_taken_back_is_not_taken(void **state)
{
	struct pair p;
	struct sl_err err = SL_ERR_INIT;
	stand_by(&p, *state);
	assert_int_equal(p.k->ops->unpost(p.k->s, &p.offer, &err), 1);
	assert_int_equal(kit_status(p.k, start(&p, "t")), SL_JOB_PENDING);
	assert_int_equal(p.calls, 0);
	leave(&p);
}

static void who_takes_back_what_was_taken_is_given_the_job_without_its_letter(void **state)
{
	struct pair p;
	char text[8192];
	struct sl_err err = SL_ERR_INIT;
	stand_by(&p, *state);
	uint64_t id = start_job(&p, &(struct sl_new_job){.type = "t", .input = "[5]", .traceparent = "x"}, NULL);
	assert_int_equal(p.k->ops->unpost(p.k->s, &p.offer, &err), 0);
	assert_int_equal(p.calls, 1);
	assert_int_equal(p.job.id, id);
	assert_int_equal(p.job.fence, 1);
	assert_string_equal(p.job.input, "[5]");
	assert_string_equal(p.job.traceparent, "x");
	assert_true(read_letter(&p, text)); /* which comes too late */
	assert_int_equal(p.k->ops->letter(p.k->s, text), 0);
	assert_int_equal(p.calls, 1);
	leave(&p);
}

static void a_job_that_nobody_heard_of_comes_back_uncharged(void **state)
{
	struct pair p;
	char text[8192], outcomes[KIT_MAX];
	stand_by_for(&p, *state, ACCEPT_MS);
	uint64_t id = start(&p, "t");
	kit_pass_ms(p.k, ACCEPT_MS + 1);
	assert_int_equal(kit_reap(&p.other, "t", NULL), 1);
	struct kit_claim c;
	struct kit_job again = kit_claim_one(&p.other, "t", &c);
	assert_int_equal(again.id, id);
	assert_int_equal(again.attempt, 2);
	assert_int_equal(again.charged, 0);
	kit_outcomes(p.k, id, outcomes);
	assert_string_equal(outcomes, "Rr");
	/* The letter is read at last: what it says of the lease is true, and its settle is refused. */
	assert_true(read_letter(&p, text));
	assert_int_equal(p.k->ops->letter(p.k->s, text), 1);
	assert_true(kit_mono_ns() - p.sent_ns >= ACCEPT_MS * INT64_C(1000000));
	struct sl_settle s = settle_of(&p, SL_SETTLE_COMPLETE);
	assert_int_equal(kit_exchange(p.k, &s, NULL).lost, SL_LOST_TAKEN);
	kit_complete(&p.other, &c, 0, "3");
	leave(&p);
}

static void a_job_that_was_handed_over_is_renewed_to_its_full_lease(void **state)
{
	struct pair p;
	char text[8192];
	stand_by_for(&p, *state, ACCEPT_MS);
	start(&p, "t");
	assert_true(read_letter(&p, text));
	assert_int_equal(p.k->ops->letter(p.k->s, text), 1);
	struct sl_renewal r = {
		.claim = p.offer.claim, .lease_ms = KIT_LONG_MS, .ids = &p.job.id, .fences = &p.job.fence, .n = 1};
	KIT_OK(p.k->ops->renew(p.k->s, &r, 1, NULL, NULL, err));
	kit_pass_ms(p.k, ACCEPT_MS + 1);
	assert_int_equal(kit_reap(&p.other, "t", NULL), 0);
	leave(&p);
}

static void starts_that_are_not_one_job_to_run_now_leave_the_offer_alone(void **state)
{
	struct pair p;
	stand_by(&p, *state);
	int n = 0;
	const struct sl_store_listen listen = {.note = no_note, .ctx = &n, .announce = announce};
	const struct sl_store_ops *ops = p.other.ops;
	struct sl_new_chain two[2] = {{.job = {.type = "t"}}, {.job = {.type = "t"}}};
	struct sl_started out[2];
	KIT_OK(ops->start(p.other.s, NULL, two, 1, out, NULL, err)); /* not announced */
	KIT_OK(ops->start(p.other.s, NULL, two, 2, out, &listen, err));
	two[0].key = "k";
	KIT_OK(ops->start(p.other.s, NULL, two, 1, out, &listen, err));
	start(&p, "v"); /* a type that is not offered */
	start_job(&p, &(struct sl_new_job){.type = "t", .delay_ms = KIT_LONG_MS}, NULL);
	sl_store_tx *tx;
	KIT_OK(ops->begin(p.other.s, &tx, err)); /* until its commit nobody may run it */
	KIT_OK(ops->start(p.other.s, tx, &two[1], 1, out, &listen, err));
	KIT_OK(ops->commit(tx, err));
	KIT_OK(ops->pause(p.other.s, "t", 1, NULL, err));
	start(&p, "t");
	assert_stands(&p);
	leave(&p);
}

static void what_does_not_fit_into_a_letter_is_queued(void **state)
{
	struct pair p;
	stand_by(&p, *state);
	for (size_t n = 7000; n < 8200; n += 100) {
		char *input = malloc(n + 3);
		memset(input, 'x', n + 2);
		input[0] = input[n + 1] = '"';
		input[n + 2] = '\0';
		uint64_t id = start_job(&p, &(struct sl_new_job){.type = "t", .input = input}, NULL);
		free(input);
		if (n >= 8000) {
			assert_int_equal(kit_status(p.k, id), SL_JOB_PENDING);
			continue;
		}
		if (kit_status(p.k, id) == SL_JOB_PENDING)
			continue;
		char text[8192];
		assert_true(read_letter(&p, text));
		assert_int_equal(p.k->ops->letter(p.k->s, text), 1);
		assert_int_equal(p.job.id, id);
		p.offer.claim.bytes[15]++;
		KIT_OK(p.k->ops->post(p.k->s, &p.offer, &p.at, err));
	}
	assert_true(p.calls > 0);
	start_job(&p, &(struct sl_new_job){.type = "t", .traceparent = "a\nb"}, NULL);
	start(&p, "v\nw");
	p.calls = 0;
	assert_stands(&p);
	leave(&p);
}

static void a_second_offer_of_a_worker_takes_the_place_of_the_first(void **state)
{
	struct pair p;
	char text[8192];
	stand_by(&p, *state);
	assert_int_equal(p.k->ops->drop(p.k->s, &p.offer), 1); /* as if its post had not been answered */
	assert_int_equal(p.k->ops->drop(p.k->s, &p.offer), 0);
	struct sl_offer second = p.offer;
	second.claim.bytes[0] = 200;
	KIT_OK(p.k->ops->post(p.k->s, &second, &p.at, err));
	uint64_t id = start(&p, "t");
	assert_int_equal(kit_status(p.k, start(&p, "t")), SL_JOB_PENDING);
	assert_true(read_letter(&p, text));
	assert_int_equal(p.k->ops->letter(p.k->s, text), 1);
	assert_int_equal(p.job.id, id);
	leave(&p);
}

/* An offer of the same worker, or of another one, that the other process posts. */
static void post_other(struct pair *p, const char *worker)
{
	p->second = p->offer;
	p->second.claim.bytes[0] = 200;
	p->second.worker = worker;
	KIT_OK(p->other.ops->post(p->other.s, &p->second, &p->at, err));
}

static void taking_back_an_offer_leaves_the_one_in_its_place(void **state)
{
	struct pair p;
	char text[8192];
	struct sl_err err = SL_ERR_INIT;
	stand_by(&p, *state);
	post_other(&p, "stands-by");
	assert_int_equal(p.k->ops->unpost(p.k->s, &p.offer, &err), 1);
	assert_int_equal(kit_status(p.k, start(&p, "t")), SL_JOB_RUNNING);
	assert_true(read_letter(&p, text));
	assert_int_equal(p.k->ops->letter(p.k->s, text), 0);
	assert_int_equal(p.other.ops->letter(p.other.s, text), 1);
	leave(&p);
}

static void who_sweeps_leaves_the_offers_of_the_living(void **state)
{
	struct pair p;
	stand_by(&p, *state);
	post_other(&p, "another"); /* the first post of an open store sweeps */
	assert_int_equal(kit_status(p.k, start(&p, "t")), SL_JOB_RUNNING);
	assert_int_equal(kit_status(p.k, start(&p, "t")), SL_JOB_RUNNING);
	assert_int_equal(kit_status(p.k, start(&p, "t")), SL_JOB_PENDING);
	leave(&p);
}

static void change(struct pair *p, const char *sql)
{
	const struct contract_fixture *f = p->k->f;
	void *native = NULL;
	assert_int_equal(f->native_open(&native, f->ctx), 0);
	assert_int_equal(f->native_exec(native, sql, f->ctx), 0);
	f->native_close(native, f->ctx);
}

/* A post that was given up, and reaches the database after all. */
static void a_post_that_comes_late_does_not_replace_a_later_one(void **state)
{
	struct pair p;
	char text[8192];
	struct sl_err why = SL_ERR_INIT;
	stand_by(&p, *state);
	change(&p, "UPDATE offer SET n = 9223372036854775807");
	struct sl_offer second = p.offer;
	second.claim.bytes[0] = 200;
	assert_int_equal(p.k->ops->post(p.k->s, &second, &p.at, &why), SL_EEXIST);
	assert_int_equal(p.k->ops->drop(p.k->s, &second), 0);
	/* One of another session has nothing to do with its numbers. */
	change(&p, "UPDATE offer SET lock = lock + 1000000");
	KIT_OK(p.k->ops->post(p.k->s, &second, &p.at, err));
	uint64_t id = start(&p, "t");
	assert_true(read_letter(&p, text));
	assert_int_equal(p.k->ops->letter(p.k->s, text), 1);
	assert_int_equal(p.job.id, id);
	leave(&p);
}

static void a_start_does_not_wait_for_one_that_takes_the_offer(void **state)
{
	struct pair p;
	stand_by(&p, *state);
	const struct contract_fixture *f = p.k->f;
	void *native = NULL;
	assert_int_equal(f->native_open(&native, f->ctx), 0);
	assert_int_equal(f->native_exec(native, "BEGIN; SELECT 1 FROM offer FOR UPDATE", f->ctx), 0);
	assert_int_equal(kit_status(p.k, start(&p, "t")), SL_JOB_PENDING);
	assert_int_equal(f->native_exec(native, "ROLLBACK", f->ctx), 0);
	f->native_close(native, f->ctx);
	assert_int_equal(kit_status(p.k, start(&p, "t")), SL_JOB_RUNNING);
	leave(&p);
}

/* It has ended before anybody heard of it: there is nothing to hand over. */
static void a_job_that_was_cancelled_is_not_found_by_who_takes_back(void **state)
{
	struct pair p;
	struct sl_err why = SL_ERR_INIT;
	stand_by(&p, *state);
	uint64_t id = start(&p, "t");
	size_t n = 0;
	KIT_OK(p.other.ops->cancel(p.other.s, NULL, &id, 1, &n, NULL, err));
	assert_int_equal(n, 1);
	assert_int_equal(p.k->ops->unpost(p.k->s, &p.offer, &why), 1);
	assert_int_equal(p.calls, 0);
	leave(&p);
}

static void what_is_no_letter_is_not_read(void **state)
{
	static const char *const texts[] = {"", "1", "1 x 2 3 4\nt\n\n1",
					    "2 09080700-0000-0000-0000-000000000000 1 1 1\nt\n\n1",
					    "1 09080700-0000-0000-0000-00000000000 1 1 1\nt\n\n1",
					    "1 09080700-0000-0000-0000-000000000000 1 1 1\nt",
					    /* one that is, of a claim that is not ours */
					    "1 09080700-0000-0000-0000-000000000001 1 1 1\nt\n\n1"};
	struct pair p;
	stand_by(&p, *state);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_int_equal(p.k->ops->letter(p.k->s, texts[i]), 0);
	assert_stands(&p);
	leave(&p);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_start_of_another_process_hands_its_job_to_who_stands_by),
	cmocka_unit_test(an_offer_to_others_is_taken_once),
	cmocka_unit_test(an_offer_of_the_dead_is_passed_over),
	cmocka_unit_test(what_is_taken_back_is_not_taken),
	cmocka_unit_test(who_takes_back_what_was_taken_is_given_the_job_without_its_letter),
	cmocka_unit_test(a_job_that_nobody_heard_of_comes_back_uncharged),
	cmocka_unit_test(a_job_that_was_handed_over_is_renewed_to_its_full_lease),
	cmocka_unit_test(starts_that_are_not_one_job_to_run_now_leave_the_offer_alone),
	cmocka_unit_test(what_does_not_fit_into_a_letter_is_queued),
	cmocka_unit_test(a_second_offer_of_a_worker_takes_the_place_of_the_first),
	cmocka_unit_test(taking_back_an_offer_leaves_the_one_in_its_place),
	cmocka_unit_test(who_sweeps_leaves_the_offers_of_the_living),
	cmocka_unit_test(a_post_that_comes_late_does_not_replace_a_later_one),
	cmocka_unit_test(a_start_does_not_wait_for_one_that_takes_the_offer),
	cmocka_unit_test(a_job_that_was_cancelled_is_not_found_by_who_takes_back),
	cmocka_unit_test(what_is_no_letter_is_not_read),
};

CONTRACT_TESTS(contract_post_tests, tests)
