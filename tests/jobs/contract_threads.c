/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Races: the same promises with several threads, each with its own handle ("processes"). Loops run for
 * SLUICE_TEST_SECONDS and print what they reached. A store may return SL_EAGAIN; then the call is retried.
 */
#include "jobs/contract_kit.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define N_THREADS 4

/* Make the call until it is not "try again"; what it returned then. `err` is visible inside. */
#define AGAIN(rc, call)                                                                                                \
	do {                                                                                                           \
		struct sl_err err_ = SL_ERR_INIT;                                                                      \
		struct sl_err *err = &err_;                                                                            \
		while ((rc = (call)) == SL_EAGAIN)                                                                     \
			sched_yield();                                                                                 \
		(void)err;                                                                                             \
	} while (0)

struct race;
struct racer {
	struct race *race;
	struct kit k;
	pthread_t thread;
	size_t number;
	uint64_t count; /* what this thread reached */
};
struct race {
	struct kit *k;
	void (*run)(struct racer *me);
	pthread_barrier_t start;
	struct racer racers[N_THREADS];
	int64_t until_ns;
	/* Shared by the test and its threads. */
	uint64_t ids[4096];
	uint64_t made, done;
	uint8_t owners[200000]; /* how many claims hold a job now, by id */
	uint64_t winners[64];
};

static void *race_thread(void *arg)
{
	struct racer *me = arg;
	kit_open(&me->k, me->race->k->f);
	pthread_barrier_wait(&me->race->start);
	me->race->run(me);
	kit_close(&me->k);
	return NULL;
}

static uint64_t run_race(struct race *r, struct kit *k, void (*run)(struct racer *me))
{
	r->k = k;
	r->run = run;
	r->until_ns = kit_mono_ns() + kit_box_ns();
	pthread_barrier_init(&r->start, NULL, N_THREADS);
	uint64_t count = 0;
	for (size_t i = 0; i < N_THREADS; i++) {
		r->racers[i] = (struct racer){.race = r, .number = i};
		if (pthread_create(&r->racers[i].thread, NULL, race_thread, &r->racers[i]) != 0)
			abort();
	}
	for (size_t i = 0; i < N_THREADS; i++) {
		pthread_join(r->racers[i].thread, NULL);
		count += r->racers[i].count;
	}
	pthread_barrier_destroy(&r->start);
	return count;
}

static struct race *new_race(void)
{
	struct race *r = calloc(1, sizeof(*r));
	if (r == NULL)
		abort();
	return r;
}

static bool in_time(const struct racer *me)
{
	return kit_mono_ns() < me->race->until_ns;
}

/* ---- claimers ---- */

struct grab {
	struct racer *me;
	struct kit_claim claim;
};

static int grab_job(const struct sl_claimed_job *job, void *ctx)
{
	struct grab *g = ctx;
	KIT_TRUE(g->claim.n < KIT_MAX);
	struct kit_job *j = &g->claim.jobs[g->claim.n++];
	*j = (struct kit_job){.id = job->id, .chain_id = job->chain_id, .fence = job->fence};
	return 0;
}

/* Settle what is held and claim the next, in one exchange. */
static void exchange(struct racer *me, struct grab *g, uint32_t limit, int64_t lease_ms, uint64_t serial)
{
	struct sl_settle settles[16];
	struct sl_settle_result results[16];
	size_t n = g->claim.n;
	for (size_t i = 0; i < n; i++) {
		settles[i] = kit_settle(&g->claim, i, SL_SETTLE_COMPLETE);
		settles[i].worker = "w";
		settles[i].output = "1";
		settles[i].last_of_claim = i == n - 1;
		__atomic_sub_fetch(&me->race->owners[settles[i].id], 1, __ATOMIC_SEQ_CST);
	}
	struct sl_claim_type type = {.type = "t", .limit = limit};
	struct sl_claim_id id;
	uint64_t words[2] = {me->number + 1, serial};
	memcpy(id.bytes, words, sizeof(id.bytes));
	struct sl_claim_request request = {
		.claim = id, .worker = "w", .types = &type, .n_types = 1, .limit = limit, .lease_ms = lease_ms};
	struct sl_claim_reply reply;
	int rc;
	AGAIN(rc, (g->claim.n = 0, me->k.ops->exchange(me->k.s,
						       &(struct sl_exchange){.settles = settles,
									     .n_settles = n,
									     .results = results,
									     .request = limit > 0 ? &request : NULL,
									     .reply = &reply,
									     .claimed = grab_job,
									     .claimed_ctx = g},
						       NULL, err)));
	KIT_TRUE(rc == 0);
	for (size_t i = 0; i < n; i++)
		KIT_TRUE(results[i].lost == SL_LOST_NOT); /* a lease that has not run out is not lost */
	g->claim.id = id;
	me->count += n;
	for (size_t i = 0; i < g->claim.n; i++) {
		KIT_TRUE(g->claim.jobs[i].id < sizeof(me->race->owners));
		uint8_t before = __atomic_fetch_add(&me->race->owners[g->claim.jobs[i].id], 1, __ATOMIC_SEQ_CST);
		KIT_TRUE(before == 0); /* S3 */
	}
}

static void claim_and_enqueue(struct racer *me)
{
	struct grab *g = calloc(1, sizeof(*g));
	if (g == NULL)
		abort();
	g->me = me;
	for (uint64_t serial = 1; in_time(me) && serial < 20000; serial++) {
		if (me->number % 2 == 0 && serial % 4 == 0) {
			struct sl_new_chain chains[20];
			struct sl_started out[20];
			for (size_t i = 0; i < 20; i++)
				chains[i] = (struct sl_new_chain){.job = {.type = "t", .priority = (int32_t)(i % 3)}};
			int rc;
			AGAIN(rc, me->k.ops->start(me->k.s, chains, 20, NULL, out, err));
			KIT_TRUE(rc == 0);
			__atomic_add_fetch(&me->race->made, 20, __ATOMIC_SEQ_CST);
			if (out[19].chain_id + 200 > sizeof(me->race->owners))
				break;
		}
		exchange(me, g, 1 + (uint32_t)(serial * 7 % 12), KIT_LONG_MS, serial);
	}
	exchange(me, g, 0, 0, 0);
	free(g);
}

static void concurrent_claimers_never_share_a_job(void **state)
{
	struct kit *k = *state;
	struct race *r = new_race();
	for (int i = 0; i < 50; i++)
		kit_start(k, "t");
	r->made = 50;
	uint64_t done = run_race(r, k, claim_and_enqueue);
	/* What is left can be claimed, and then all is accounted for. */
	struct kit_claim claim;
	do {
		kit_claim(k, "t", 100, 0, &claim);
		done += claim.n;
	} while (claim.n > 0);
	assert_int_equal(done, r->made);
	printf("# %llu jobs by %d claimers\n", (unsigned long long)done, N_THREADS);
	free(r);
}

/* ---- leases that run out while their jobs are settled ---- */

/* Take expired leases back; move a virtual clock, so that they expire. */
static void reap_some(struct racer *me)
{
	const struct sl_reap_type types[] = {{.type = "t"}};
	struct sl_reaped reaped;
	int rc;
	if (me->k.f->advance_ms != NULL)
		me->k.f->advance_ms(1, me->k.f->ctx);
	AGAIN(rc, me->k.ops->reap(me->k.s, types, 1, 10, &reaped, NULL, err));
	KIT_TRUE(rc == 0);
}

/* Claim under a lease of 1 ms; the claim's id from a number that only this thread uses. */
static void claim_briefly(struct racer *me, struct grab *g, uint64_t serial)
{
	struct sl_claim_type type = {.type = "t", .limit = 4};
	struct sl_claim_request request = {
		.worker = "w", .types = &type, .n_types = 1, .limit = serial % 3 == 0 ? 1 : 4, .lease_ms = 1};
	uint64_t words[2] = {me->number + 1, serial};
	memcpy(request.claim.bytes, words, sizeof(words));
	struct sl_claim_reply reply;
	int rc;
	AGAIN(rc,
	      (g->claim.n = 0,
	       me->k.ops->exchange(me->k.s,
				   &(struct sl_exchange){
					   .request = &request, .reply = &reply, .claimed = grab_job, .claimed_ctx = g},
				   NULL, err)));
	KIT_TRUE(rc == 0);
	g->claim.id = request.claim;
}

static bool settle_one(struct racer *me, struct grab *g, size_t i)
{
	struct sl_settle s = kit_settle(&g->claim, i, SL_SETTLE_COMPLETE);
	s.worker = "w";
	s.last_of_claim = i == g->claim.n - 1;
	struct sl_settle_result result;
	int rc;
	AGAIN(rc, me->k.ops->exchange(me->k.s, &(struct sl_exchange){.settles = &s, .n_settles = 1, .results = &result},
				      NULL, err));
	KIT_TRUE(rc == 0);
	if (result.lost != SL_LOST_NOT)
		return false;
	/* Of all claims on the job, the settle of this one was accepted: no other may be. */
	KIT_TRUE(__atomic_fetch_add(&me->race->owners[s.id], 1, __ATOMIC_SEQ_CST) == 0);
	__atomic_add_fetch(&me->race->done, 1, __ATOMIC_SEQ_CST);
	return true;
}

static void settle_late(struct racer *me)
{
	struct grab *g = calloc(1, sizeof(*g));
	if (g == NULL)
		abort();
	g->me = me;
	for (uint64_t serial = 1; in_time(me) && __atomic_load_n(&me->race->done, __ATOMIC_SEQ_CST) < me->race->made;
	     serial++) {
		if (me->number == 0) {
			reap_some(me);
			sched_yield();
			continue;
		}
		claim_briefly(me, g, serial);
		for (size_t i = 0; i < g->claim.n; i++) {
			if (serial % 2 == 0)
				reap_some(me); /* often it is this thread that takes its own job away */
			me->count += settle_one(me, g, i);
		}
	}
	free(g);
}

static void a_job_is_completed_once_however_its_lease_and_its_settle_race(void **state)
{
	struct kit *k = *state;
	struct race *r = new_race();
	for (r->made = 0; r->made < 400; r->made++)
		kit_start(k, "t");
	uint64_t done = run_race(r, k, settle_late);
	struct kit_ids completed;
	kit_list(k, &(struct sl_job_filter){.statuses = 1u << SL_JOB_COMPLETED, .limit = KIT_MAX}, &completed);
	assert_int_equal(completed.n, done);
	printf("# %llu of %llu completed under leases that ran out\n", (unsigned long long)done,
	       (unsigned long long)r->made);
	free(r);
}

/* ---- keys ---- */

static void start_same_keys(struct racer *me)
{
	for (uint64_t round = 0; in_time(me) && round < 64; round++) {
		char key[32];
		snprintf(key, sizeof(key), "key-%llu", (unsigned long long)round);
		struct sl_new_chain chains[2] = {{.job = {.type = "t"}, .key = key},
						 {.job = {.type = "t"}, .key = key}};
		struct sl_started out[2];
		int rc;
		AGAIN(rc, me->k.ops->start(me->k.s, chains, 2, NULL, out, err));
		KIT_TRUE(rc == 0);
		KIT_TRUE(out[0].chain_id == out[1].chain_id && out[1].deduplicated);
		me->count += !out[0].deduplicated;
		uint64_t none = 0;
		if (!__atomic_compare_exchange_n(&me->race->winners[round], &none, out[0].chain_id, false,
						 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			KIT_TRUE(none == out[0].chain_id);
	}
}

static void the_same_key_from_many_threads_starts_one_chain(void **state)
{
	struct kit *k = *state;
	struct race *r = new_race();
	uint64_t made = run_race(r, k, start_same_keys);
	size_t rounds = 0;
	while (rounds < 64 && r->winners[rounds] != 0)
		rounds++;
	assert_int_equal(made, rounds);
	struct kit_ids jobs;
	kit_list(k, &(struct sl_job_filter){.limit = KIT_MAX}, &jobs);
	assert_int_equal(jobs.n, rounds);
	printf("# %zu keys by %d threads\n", rounds, N_THREADS);
	free(r);
}

/* Failed chains with one key, redriven by many at once: one gets it. */
#define TWINS 48

static void redrive_twins(struct racer *me)
{
	struct race *r = me->race;
	for (size_t i = 0; i < TWINS; i++) {
		size_t n = 0;
		int rc;
		(void)pthread_barrier_wait(&r->start);
		AGAIN(rc, me->k.ops->redrive(me->k.s, (struct sl_ids){&r->ids[i * N_THREADS + me->number], 1}, NULL, &n,
					     err));
		KIT_TRUE((rc == 0 && n == 1) || rc == SL_EEXIST);
		me->count += rc == 0;
	}
}

static void of_chains_with_one_key_redriven_concurrently_one_resumes(void **state)
{
	struct kit *k = *state;
	struct race *r = new_race();
	for (size_t i = 0; i < TWINS; i++) {
		for (size_t j = 0; j < N_THREADS; j++) {
			char key[32];
			(void)snprintf(key, sizeof(key), "key %zu", i);
			uint64_t id = r->ids[i * N_THREADS + j] =
				kit_start_key(k, key, SL_DEDUP_INCOMPLETE, 0).chain_id;
			KIT_OK(k->ops->fail_chain(k->s, id, "no", NULL, err));
		}
	}
	assert_int_equal(run_race(r, k, redrive_twins), TWINS);
	struct kit_ids pending;
	kit_list(k, &(struct sl_job_filter){.statuses = 1u << SL_JOB_PENDING, .limit = KIT_MAX}, &pending);
	assert_int_equal(pending.n, TWINS);
	free(r);
}

/* ---- blockers ---- */

/* Even threads complete the blockers, odd ones start jobs that wait for them: no job may stay blocked. */
static void complete_or_wait(struct racer *me)
{
	struct race *r = me->race;
	for (size_t i = me->number / 2; in_time(me) && i + 1 < r->made; i += N_THREADS / 2) {
		int rc;
		if (me->number % 2 == 0) {
			AGAIN(rc, me->k.ops->complete_chain(me->k.s, r->ids[i], "1", NULL, err));
			KIT_TRUE(rc == 0);
		} else {
			struct sl_new_chain chain = {.job = {.type = "waits", .blockers = &r->ids[i], .n_blockers = 2}};
			struct sl_started out;
			AGAIN(rc, me->k.ops->start(me->k.s, &chain, 1, NULL, &out, err));
			KIT_TRUE(rc == 0);
			me->count++;
		}
	}
}

static void a_start_that_races_with_its_blockers_end_is_opened(void **state)
{
	struct kit *k = *state;
	struct race *r = new_race();
	for (r->made = 0; r->made < 200; r->made++)
		r->ids[r->made] = kit_start(k, "blocker");
	uint64_t waiting = run_race(r, k, complete_or_wait);
	for (size_t i = 0; i < r->made; i++) {
		struct sl_err err = SL_ERR_INIT;
		int rc = k->ops->complete_chain(k->s, r->ids[i], "1", NULL, &err);
		assert_true(rc == 0 || rc == SL_EEXIST);
	}
	struct kit_ids blocked;
	kit_list(k, &(struct sl_job_filter){.statuses = 1u << SL_JOB_BLOCKED, .limit = KIT_MAX}, &blocked);
	assert_int_equal(blocked.n, 0);
	uint64_t opened = 0;
	struct kit_claim claim;
	do {
		kit_claim(k, "waits", 100, 0, &claim);
		opened += claim.n;
	} while (claim.n > 0);
	assert_int_equal(opened, waiting);
	printf("# %llu jobs waited while their blockers ended\n", (unsigned long long)waiting);
	free(r);
}

/* Rings of as many chains as there are threads: each lets its chain wait for the next one's, all at once. */
#define RINGS 64

struct rings {
	struct race race;
	struct kit_claim claim; /* of all chains, ring by ring */
	uint32_t refused[RINGS];
};

static void close_rings(struct racer *me)
{
	struct rings *r = (struct rings *)(void *)me->race;
	for (size_t ring = 0; ring < RINGS; ring++) {
		size_t i = ring * N_THREADS + me->number, next = ring * N_THREADS + (me->number + 1) % N_THREADS;
		struct sl_new_job job = {.type = "next", .blockers = &r->claim.jobs[next].id, .n_blockers = 1};
		struct sl_settle s = kit_settle(&r->claim, i, SL_SETTLE_CONTINUE);
		struct sl_settle_result result;
		int rc;
		s.next = &job;
		(void)pthread_barrier_wait(&me->race->start);
		AGAIN(rc, me->k.ops->exchange(me->k.s,
					      &(struct sl_exchange){.settles = &s, .n_settles = 1, .results = &result},
					      NULL, err));
		KIT_TRUE(rc == 0 || rc == SL_EDATA);
		if (rc != 0)
			(void)__atomic_fetch_add(&r->refused[ring], 1, __ATOMIC_SEQ_CST);
		me->count += rc != 0;
	}
}

static void continuations_at_once_never_wait_for_each_other(void **state)
{
	struct kit *k = *state;
	struct rings *r = calloc(1, sizeof(*r));
	if (r == NULL)
		abort();
	for (size_t i = 0; i < RINGS * N_THREADS; i++)
		kit_start(k, "t");
	kit_claim(k, "t", RINGS * N_THREADS, 0, &r->claim);
	assert_int_equal(r->claim.n, RINGS * N_THREADS);
	uint64_t refused = run_race(&r->race, k, close_rings);
	for (size_t i = 0; i < RINGS; i++)
		assert_int_equal(r->refused[i], 1); /* the one that would have closed it */
	printf("# %llu rings of %d chains\n", (unsigned long long)refused, N_THREADS);
	free(r);
}

/* Every thread completes some of the blockers of the same jobs. */
static void complete_last(struct racer *me)
{
	for (size_t i = me->number; i < me->race->made; i += N_THREADS) {
		int rc;
		AGAIN(rc, me->k.ops->complete_chain(me->k.s, me->race->ids[i], "1", NULL, err));
		KIT_TRUE(rc == 0);
	}
}

static void the_last_of_blockers_that_end_together_opens_the_job_once(void **state)
{
	struct kit *k = *state;
	struct race *r = new_race();
	enum { GROUPS = 25 };
	for (r->made = 0; r->made < GROUPS * N_THREADS; r->made++)
		r->ids[r->made] = kit_start(k, "blocker");
	for (size_t g = 0; g < GROUPS; g++)
		kit_start_after(k, "waits", &r->ids[g * N_THREADS], N_THREADS);
	run_race(r, k, complete_last);
	struct kit_claim claim;
	kit_claim(k, "waits", 100, 0, &claim);
	assert_int_equal(claim.n, GROUPS);
	kit_claim(k, "waits", 100, 0, &claim);
	assert_int_equal(claim.n, 0);
	free(r);
}

/* ---- recurring schedules ---- */

static void fire(struct racer *me)
{
	for (int64_t tick = 1; in_time(me) && tick <= 100; tick++) {
		bool fired = false;
		int rc;
		struct sl_started out;
		const struct sl_cron seen = {.name = "c", .spec = "@hourly", .next_ms = tick * 1000};
		AGAIN(rc, me->k.ops->cron_fire(me->k.s, &seen, (tick + 1) * 1000, &fired, &out, NULL, err));
		KIT_TRUE(rc == 0);
		me->count += fired;
	}
}

static int keep_next(const struct sl_cron *cron, void *ctx)
{
	*(int64_t *)ctx = cron->next_ms;
	return 0;
}

static void a_tick_that_many_fire_is_enqueued_once(void **state)
{
	struct kit *k = *state;
	struct race *r = new_race();
	struct sl_cron c = {.name = "c", .spec = "@hourly", .type = "t", .input = "1", .next_ms = 1000};
	KIT_OK(k->ops->cron_put(k->s, &c, NULL, err));
	uint64_t fired = run_race(r, k, fire);
	int64_t next = 0;
	KIT_OK(k->ops->cron_list(k->s, keep_next, &next, err));
	assert_int_equal(fired, next / 1000 - 1);
	struct kit_ids jobs;
	kit_list(k, &(struct sl_job_filter){.limit = KIT_MAX}, &jobs);
	assert_int_equal(jobs.n, fired);
	free(r);
}

/* ---- events ---- */

static void append_events(struct racer *me)
{
	char stream[32];
	/* Two threads send each stream, as a sender that is restarted while its old request still runs. */
	snprintf(stream, sizeof(stream), "s%zu", me->number / 2);
	uint64_t mark = 0;
	for (int round = 0; in_time(me) && round < 200; round++) {
		struct sl_event_row events[5];
		for (uint64_t i = 0; i < 5; i++)
			events[i] = (struct sl_event_row){.stream = stream,
							  .incarnation = 1,
							  .sequence = mark + 1 + i,
							  .crc = mark + 1 + i,
							  .type = 2,
							  .ts_ms = 1,
							  .payload = "x",
							  .payload_len = 1};
		struct sl_event_mark m = {.stream = stream, .incarnation = 1};
		size_t n_new = 0;
		int rc;
		AGAIN(rc, me->k.ops->events_append(me->k.s, events, 5, &m, 1, &n_new, err));
		KIT_TRUE(rc == 0);
		KIT_TRUE(m.mark >= mark + 5);
		mark = m.mark;
		me->count += n_new;
	}
}

struct offsets {
	uint64_t last, n;
	uint64_t marks[N_THREADS];
};

static int check_offset(const struct sl_event_row *e, void *ctx)
{
	struct offsets *o = ctx;
	KIT_TRUE(o->n == 0 || e->offset == o->last + 1); /* S7: gapless */
	size_t s = (size_t)(e->stream[1] - '0');
	KIT_TRUE(e->sequence == o->marks[s] + 1); /* and in order within each stream */
	o->marks[s]++;
	o->last = e->offset;
	o->n++;
	return 0;
}

static void offsets_are_gapless_over_streams_that_are_sent_at_once(void **state)
{
	struct kit *k = *state;
	struct race *r = new_race();
	uint64_t taken = run_race(r, k, append_events);
	struct offsets o = {0};
	KIT_OK(k->ops->events_read(k->s, 0, 0, 1000000, check_offset, &o, err));
	assert_int_equal(o.n, taken);
	printf("# %llu events by %d senders\n", (unsigned long long)taken, N_THREADS);
	free(r);
}

/* ---- everything at once ---- */

static void do_anything(struct racer *me)
{
	struct race *r = me->race;
	const struct sl_store_ops *ops = me->k.ops;
	uint64_t x = me->number * 7919 + 1;
	for (uint64_t step = 0; in_time(me) && step < 3000; step++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		uint64_t id = r->ids[(x >> 33) % r->made];
		uint64_t pair[2] = {id, r->ids[(x >> 13) % r->made]};
		size_t n;
		int rc;
		switch ((x >> 50) % 6) {
		case 0:
			AGAIN(rc, ops->cancel(me->k.s, (struct sl_ids){pair, 2}, NULL, &n, err));
			break;
		case 1:
			AGAIN(rc, ops->redrive(me->k.s, (struct sl_ids){pair, 2}, NULL, &n, err));
			break;
		case 2:
			AGAIN(rc, ops->complete_chain(me->k.s, id, "1", NULL, err));
			break;
		case 3:
			AGAIN(rc, ops->remove(me->k.s, (struct sl_ids){pair, pair[0] == pair[1] ? 1 : 2}, false, NULL,
					      &n, err));
			break;
		default: {
			struct sl_claim_type type = {.type = "t", .limit = 4};
			uint64_t words[2] = {me->number + 1, step + 1};
			struct sl_claim_request request = {
				.worker = "w", .types = &type, .n_types = 1, .limit = 4, .lease_ms = KIT_LONG_MS};
			memcpy(request.claim.bytes, words, sizeof(words));
			struct sl_claim_reply reply;
			struct grab g = {.me = me};
			AGAIN(rc, (g.claim.n = 0, ops->exchange(me->k.s,
								&(struct sl_exchange){.request = &request,
										      .reply = &reply,
										      .claimed = grab_job,
										      .claimed_ctx = &g},
								NULL, err)));
			struct sl_settle s[4];
			struct sl_settle_result results[4];
			g.claim.id = request.claim;
			for (size_t i = 0; i < g.claim.n; i++) {
				s[i] = kit_settle(&g.claim, i, x >> 60 == 0 ? SL_SETTLE_RETRY : SL_SETTLE_COMPLETE);
				s[i].last_of_claim = i == g.claim.n - 1;
				s[i].worker = "w";
				s[i].error = "e";
			}
			if (rc == 0 && g.claim.n > 0)
				AGAIN(rc,
				      ops->exchange(me->k.s,
						    &(struct sl_exchange){
							    .settles = s, .n_settles = g.claim.n, .results = results},
						    NULL, err));
			break;
		}
		}
		KIT_TRUE(rc == 0 || kit_overtaken(rc));
		me->count++;
	}
}

static void everything_at_once_ends_with_nothing_stuck(void **state)
{
	struct kit *k = *state;
	struct race *r = new_race();
	for (r->made = 0; r->made < 60; r->made++)
		r->ids[r->made] =
			r->made % 3 == 2 ? kit_start_after(k, "t", &r->ids[r->made - 2], 2) : kit_start(k, "t");
	uint64_t steps = run_race(r, k, do_anything);
	/* What is pending can be claimed, all of it; what is running is under a lease. */
	struct kit_ids pending, running;
	kit_list(k, &(struct sl_job_filter){.statuses = 1u << SL_JOB_PENDING, .limit = KIT_MAX}, &pending);
	kit_list(k, &(struct sl_job_filter){.statuses = 1u << SL_JOB_RUNNING, .limit = KIT_MAX}, &running);
	assert_int_equal(running.n, 0); /* every claim was settled */
	struct kit_claim claim;
	kit_claim(k, "t", 200, 0, &claim);
	assert_int_equal(claim.n, pending.n);
	printf("# %llu calls\n", (unsigned long long)steps);
	free(r);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(concurrent_claimers_never_share_a_job),
	cmocka_unit_test(a_job_is_completed_once_however_its_lease_and_its_settle_race),
	cmocka_unit_test(the_same_key_from_many_threads_starts_one_chain),
	cmocka_unit_test(of_chains_with_one_key_redriven_concurrently_one_resumes),
	cmocka_unit_test(a_start_that_races_with_its_blockers_end_is_opened),
	cmocka_unit_test(continuations_at_once_never_wait_for_each_other),
	cmocka_unit_test(the_last_of_blockers_that_end_together_opens_the_job_once),
	cmocka_unit_test(a_tick_that_many_fire_is_enqueued_once),
	cmocka_unit_test(offsets_are_gapless_over_streams_that_are_sent_at_once),
	cmocka_unit_test(everything_at_once_ends_with_nothing_stuck),
};

CONTRACT_TESTS(contract_threads_tests, tests)
