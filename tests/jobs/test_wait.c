/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for the end of a chain: in virtual time, where a wake that is missed shows as time that had to pass; and on
 * many threads, with a poll so rare that a missed wake would hang. */
#include "jobs/client_world.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "support/budget.h"

struct waiting {
	struct world *w;
	uint64_t id;
	int64_t timeout_ms;
	pthread_t thread;
	int rc;
	struct sl_chain *chain;
};

static void *wait_main(void *arg)
{
	struct waiting *x = arg;
	x->rc = sl_jobs_wait(x->w->client, x->id, x->timeout_ms, &x->chain, NULL);
	return NULL;
}

/* Start n threads that wait, and return when all of them sleep. */
static void begin_waiting(struct waiting *x, int n, struct world *w, uint64_t id, int64_t timeout_ms)
{
	for (int i = 0; i < n; i++) {
		x[i] = (struct waiting){.w = w, .id = id, .timeout_ms = timeout_ms};
		assert_int_equal(pthread_create(&x[i].thread, NULL, wait_main, &x[i]), 0);
	}
	vclock_await_waiters(&w->clock, n);
}

static int end_waiting(struct waiting *x)
{
	assert_int_equal(pthread_join(x->thread, NULL), 0);
	if (x->rc == 0)
		assert_non_null(x->chain);
	else
		assert_null(x->chain);
	sl_chain_release(x->w->client, x->chain);
	return x->rc;
}

static void a_chain_that_has_ended_is_given_at_once(void **state)
{
	struct world *w = *state;
	uint64_t id = world_start(w, NULL, "t", NULL);
	struct sl_chain *c = NULL;
	assert_int_equal(sl_jobs_wait(w->client, id, 0, &c, NULL), SL_ETIMEDOUT);
	assert_null(c);
	OK(sl_jobs_complete(w->client, NULL, id, "[7]", &err));
	OK(sl_jobs_wait(w->client, id, 0, &c, &err));
	assert_string_equal(c->output, "[7]");
	sl_chain_release(w->client, c);
	OK(sl_jobs_wait(w->client, id, SL_UNLIMITED, NULL, &err));
	REFUSED(sl_jobs_wait(w->client, 999, 1000, &c, &err), SL_ENOENT, "999");
	REFUSED(sl_jobs_wait(w->client, id, -1, &c, &err), SL_EINVAL, "timeout_ms");
	assert_int_equal(w->subscribed_ever, 0);
}

static void a_note_wakes_the_waiter_while_no_time_passes(void **state)
{
	struct world *w = *state;
	uint64_t id = world_start(w, NULL, "t", NULL), other = world_start(w, NULL, "t", NULL);
	int64_t before = w->clock.now_ns;
	struct waiting x;
	begin_waiting(&x, 1, w, id, SL_UNLIMITED);
	OK(sl_jobs_complete(w->client, NULL, other, NULL, &err));
	OK(sl_jobs_complete(w->client, NULL, id, NULL, &err));
	assert_int_equal(end_waiting(&x), 0);
	assert_true(w->clock.now_ns == before);
}

static void failed_and_cancelled_chains_have_ended_too(void **state)
{
	struct world *w = *state;
	uint64_t id = world_start(w, NULL, "t", NULL);
	struct waiting x;
	begin_waiting(&x, 1, w, id, SL_UNLIMITED);
	OK(sl_jobs_cancel(w->client, NULL, &id, 1, NULL, &err));
	assert_int_equal(end_waiting(&x), 0);
}

static void a_lost_note_costs_a_poll(void **state)
{
	struct world *w = *state;
	uint64_t id = world_start(w, NULL, "t", NULL);
	struct waiting x;
	begin_waiting(&x, 1, w, id, SL_UNLIMITED);
	w->drop = 1;
	OK(sl_jobs_complete(w->client, NULL, id, NULL, &err));
	vclock_advance_ms(&w->clock, 999);
	vclock_await_waiters(&w->clock, 1);
	vclock_advance_ms(&w->clock, 1);
	assert_int_equal(end_waiting(&x), 0);
}

static void a_chain_that_is_deleted_meanwhile_is_found_by_the_poll(void **state)
{
	struct world *w = *state;
	uint64_t id = world_start(w, NULL, "t", NULL);
	struct waiting x;
	begin_waiting(&x, 1, w, id, SL_UNLIMITED);
	OK(sl_jobs_delete(w->client, NULL, &id, 1, false, NULL, &err));
	vclock_advance_ms(&w->clock, 1000);
	assert_int_equal(end_waiting(&x), SL_ENOENT);
}

static void the_time_is_over_when_it_is_over(void **state)
{
	struct world *w = *state;
	uint64_t id = world_start(w, NULL, "t", NULL);
	struct waiting x;
	begin_waiting(&x, 1, w, id, 2500);
	vclock_advance_ms(&w->clock, 1000);
	vclock_await_waiters(&w->clock, 1);
	vclock_advance_ms(&w->clock, 1000);
	vclock_await_waiters(&w->clock, 1);
	vclock_advance_ms(&w->clock, 500);
	assert_int_equal(end_waiting(&x), SL_ETIMEDOUT);
}

static void without_a_healthy_notifier_it_polls_ten_times_a_second(void **state)
{
	struct world *w = *state;
	for (int with = 0; with < 3; with++) {
		/* 0: no notifier; 1: it refuses to subscribe; 2: it has not been seen to work. */
		struct waiting x;
		w->fails = with == 1;
		w->healthy = 0;
		w->drop = with == 2;
		if (with == 0) {
			sl_jobs_close(w->client);
			struct sl_jobs_opts opts = {SL_JOBS_OPTS_INIT, .env = &w->env, .store = &w->store};
			OK(sl_jobs_open(&w->client, &opts, &err));
		} else {
			world_open(w);
		}
		uint64_t id = world_start(w, NULL, "t", NULL);
		begin_waiting(&x, 1, w, id, SL_UNLIMITED);
		OK(sl_jobs_complete(w->client, NULL, id, NULL, &err));
		vclock_advance_ms(&w->clock, 100);
		assert_int_equal(end_waiting(&x), 0);
	}
}

static void notes_that_may_have_been_lost_wake_everybody(void **state)
{
	struct world *w = *state;
	uint64_t id = world_start(w, NULL, "t", NULL);
	struct waiting x;
	begin_waiting(&x, 1, w, id, SL_UNLIMITED);
	w->drop = 1;
	OK(sl_jobs_complete(w->client, NULL, id, NULL, &err));
	w->fn[0](&(const struct sl_note){0}, w->fn_ctx[0]);
	assert_int_equal(end_waiting(&x), 0);
}

static void many_waiters_share_one_subscription(void **state)
{
	struct world *w = *state;
	enum { N = 50 };
	struct waiting x[N];
	uint64_t id = world_start(w, NULL, "t", NULL);
	begin_waiting(x, N, w, id, SL_UNLIMITED);
	assert_int_equal(w->subscribed_ever, 1);
	OK(sl_jobs_complete(w->client, NULL, id, NULL, &err));
	for (int i = 0; i < N; i++)
		assert_int_equal(end_waiting(&x[i]), 0);
	assert_int_equal(w->subscriptions, 1); /* kept for the next, until the client is closed */
}

/* A store on which the chain ends just before or just after it begins to be watched. */
static struct world *racing;
static bool race_after;
static int racing_watch(void *store, uint64_t id, enum sl_job_status *status, struct sl_err *err)
{
	int rc = 0;
	if (race_after)
		rc = racing->real.ops->watch(store, id, status, err);
	assert_int_equal(sl_jobs_complete(racing->client, NULL, id, "1", err), 0);
	return race_after ? rc : racing->real.ops->watch(store, id, status, err);
}

static void an_end_beside_the_start_of_watching_is_not_missed(void **state)
{
	struct world *w = *state;
	racing = w;
	w->ops.watch = racing_watch;
	for (int after = 0; after < 2; after++) {
		race_after = after;
		uint64_t id = world_start(w, NULL, "t", NULL);
		struct sl_chain *c;
		int64_t before = w->clock.now_ns;
		OK(sl_jobs_wait(w->client, id, SL_UNLIMITED, &c, &err));
		assert_string_equal(c->output, "1");
		assert_true(w->clock.now_ns == before);
		sl_chain_release(w->client, c);
	}
}

static atomic_int away;
static enum memstore_fault away_fault(const char *op, void *ctx)
{
	(void)ctx;
	return strcmp(op, "get_chain") == 0 && atomic_load(&away) ? MEMSTORE_FAIL_BEFORE : MEMSTORE_OK;
}

static void a_wait_continues_while_the_store_is_unavailable(void **state)
{
	struct world *w = *state;
	struct waiting x;
	atomic_store(&away, 0);
	memstore_set_faults(w->ms, away_fault, NULL);
	for (int back = 0; back < 2; back++) {
		uint64_t id = world_start(w, NULL, "t", NULL);
		begin_waiting(&x, 1, w, id, 1500);
		atomic_store(&away, 1);
		vclock_advance_ms(&w->clock, 1000);
		vclock_await_waiters(&w->clock, 1);
		atomic_store(&away, !back);
		w->drop = 1;
		OK(sl_jobs_complete(w->client, NULL, id, NULL, &err));
		w->drop = 0;
		vclock_advance_ms(&w->clock, 500);
		assert_int_equal(end_waiting(&x), back ? 0 : SL_EUNAVAIL);
		atomic_store(&away, 0);
	}
	/* When the store is unavailable from the start, the caller gets the error immediately. */
	uint64_t id = world_start(w, NULL, "t", NULL);
	atomic_store(&away, 1);
	assert_int_equal(sl_jobs_wait(w->client, id, SL_UNLIMITED, NULL, NULL), SL_EUNAVAIL);
}

/* ---- many threads, the real clock ---- */

enum { WAITERS = 6 };

struct crowd {
	sl_jobs *client;
	_Atomic uint64_t posted[WAITERS]; /* a chain to be completed; 0: none */
	atomic_bool stop;
	_Atomic uint64_t waits;
	int64_t until_ns;
};

struct member {
	struct crowd *c;
	int i;
	pthread_t thread;
	int wrong;
};

static void *crowd_wait(void *arg)
{
	struct member *m = arg;
	struct sl_new_chain chain = {.job.type = "t"};
	/* Twice at least, however slow the machine is. */
	for (int n = 0; (n < 2 || sl__clock_real.mono_ns(NULL) < m->c->until_ns) && m->wrong == 0; n++) {
		struct sl_started s;
		struct sl_chain *ended = NULL;
		m->wrong = sl_jobs_enqueue(m->c->client, NULL, &chain, &s, NULL);
		if (m->wrong != 0)
			break;
		atomic_store(&m->c->posted[m->i], s.chain_id);
		m->wrong = sl_jobs_wait(m->c->client, s.chain_id, SL_UNLIMITED, &ended, NULL);
		if (m->wrong == 0 && ended->status != SL_JOB_COMPLETED)
			m->wrong = 1;
		sl_chain_release(m->c->client, ended);
		atomic_fetch_add(&m->c->waits, 1);
	}
	return NULL;
}

static void *crowd_complete(void *arg)
{
	struct member *m = arg;
	while (!atomic_load(&m->c->stop))
		for (int i = 0; i < WAITERS; i++) {
			uint64_t id = atomic_exchange(&m->c->posted[i], 0);
			if (id != 0 && m->wrong == 0)
				m->wrong = sl_jobs_complete(m->c->client, NULL, id, "1", NULL);
		}
	return NULL;
}

static void no_wake_is_missed_on_many_threads(void **state)
{
	(void)state;
	struct sl_env env = {SL_ENV_INIT};
	struct crowd c = {0};
	struct member members[WAITERS + 1];
	struct memstore *ms = memstore_new(&env);
	sl_store store = memstore_handle(ms);
	sl_notify notify;
	OK(sl_notify_local_open(&notify, &env, &err));
	/* A day: the test never gets to a poll. */
	struct sl_jobs_opts opts = {SL_JOBS_OPTS_INIT, .store = &store, .notify = &notify, .wait_poll_ms = 86400000};
	OK(sl_jobs_open(&c.client, &opts, &err));
	c.until_ns = sl__clock_real.mono_ns(NULL) + (int64_t)(test_seconds(1) * 1e9);
	for (int i = 0; i <= WAITERS; i++) {
		members[i] = (struct member){.c = &c, .i = i};
		assert_int_equal(pthread_create(&members[i].thread, NULL, i < WAITERS ? crowd_wait : crowd_complete,
						&members[i]),
				 0);
	}
	for (int i = 0; i < WAITERS; i++)
		assert_int_equal(pthread_join(members[i].thread, NULL), 0);
	atomic_store(&c.stop, true);
	assert_int_equal(pthread_join(members[WAITERS].thread, NULL), 0);
	for (int i = 0; i <= WAITERS; i++)
		assert_int_equal(members[i].wrong, 0);
	sl_jobs_close(c.client);
	notify.ops->close(notify.ctx);
	memstore_free(ms);
	printf("# %" PRIu64 " waits\n", atomic_load(&c.waits));
	assert_true(atomic_load(&c.waits) > WAITERS);
}

#define IN_WORLD(test) cmocka_unit_test_setup_teardown(test, world_memory, world_gone)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_WORLD(a_chain_that_has_ended_is_given_at_once),
		IN_WORLD(a_note_wakes_the_waiter_while_no_time_passes),
		IN_WORLD(failed_and_cancelled_chains_have_ended_too),
		IN_WORLD(a_lost_note_costs_a_poll),
		IN_WORLD(a_chain_that_is_deleted_meanwhile_is_found_by_the_poll),
		IN_WORLD(the_time_is_over_when_it_is_over),
		IN_WORLD(without_a_healthy_notifier_it_polls_ten_times_a_second),
		IN_WORLD(notes_that_may_have_been_lost_wake_everybody),
		IN_WORLD(many_waiters_share_one_subscription),
		IN_WORLD(an_end_beside_the_start_of_watching_is_not_missed),
		IN_WORLD(a_wait_continues_while_the_store_is_unavailable),
		cmocka_unit_test(no_wake_is_missed_on_many_threads),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
