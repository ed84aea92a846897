/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers on PostgreSQL: jobs that are handed to an idle worker by their start, and what a crash of the server does to
 * claims that were not durable. Without a notifier, and with a poll that is longer than any test: what moves here moves
 * by itself.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "jobs/pg_place.h"
#include "jobs/worker/worker.h"
#include "support/budget.h"

#define PATIENCE_S 60
#define LEASE_MS 3600000 /* and a renewal is as far away as the poll */

static struct pg_place place;
static struct sl_err err;

#define OK(call)                                                                                                       \
	do {                                                                                                           \
		if ((call) != 0)                                                                                       \
			fail_msg("%s: %s", #call, err.msg);                                                            \
	} while (0)

static struct world {
	sl_store store;
	struct sl_store_ops counting; /* the store's, for workers: their offers are counted */
	const struct sl_store_ops *plain;
	sl_jobs *client;
	pthread_mutex_t mu;
	pthread_cond_t changed;
	int arrived, left; /* of handlers */
	int withdrawn;     /* since the beginning */
	int offers;        /* to run a job of type "t", since the beginning */
	int all_offers;    /* of them to run both types */
	bool hold;         /* the second exchange waits in the store … */
	int begun, done;   /* … exchanges */
	int aborted;       /* enum sl_abort_reason of the last */
	int seen[SL_OBSERVE_CHAIN_COMPLETED + 1];
} w;

static void observe(const struct sl_observation *o, void *ctx)
{
	(void)ctx;
	pthread_mutex_lock(&w.mu);
	w.seen[o->kind]++;
	pthread_cond_broadcast(&w.changed);
	pthread_mutex_unlock(&w.mu);
}

static void await(const int *what, int n)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_S;
	pthread_mutex_lock(&w.mu);
	while (*what < n)
		if (pthread_cond_timedwait(&w.changed, &w.mu, &until) != 0) {
			fprintf(stderr, "what the test waits for has not happened\n");
			_exit(1); /* with threads of workers at work, there is no going on */
		}
	pthread_mutex_unlock(&w.mu);
}

static void add(int *what)
{
	pthread_mutex_lock(&w.mu);
	(*what)++;
	pthread_cond_broadcast(&w.changed);
	pthread_mutex_unlock(&w.mu);
}

static int read_count(const int *what)
{
	pthread_mutex_lock(&w.mu);
	int n = *what;
	pthread_mutex_unlock(&w.mu);
	return n;
}

/* Counted when it can be taken. */
static void count_offer(void *store, struct sl_offer *offer)
{
	bool of_t = false;
	for (size_t i = 0; i < offer->n_types; i++)
		of_t = of_t || strcmp(offer->types[i].type, "t") == 0;
	w.plain->offer(store, offer);
	if (of_t)
		add(&w.offers);
	if (of_t && offer->n_types == 2)
		add(&w.all_offers);
}

static int held_exchange(void *store, const struct sl_exchange *x, const struct sl_store_scope *scope, struct sl_err *e)
{
	pthread_mutex_lock(&w.mu);
	bool second = ++w.begun == 2;
	pthread_cond_broadcast(&w.changed);
	while (second && w.hold)
		pthread_cond_wait(&w.changed, &w.mu);
	pthread_mutex_unlock(&w.mu);
	int rc = w.plain->exchange(store, x, scope, e);
	add(&w.done);
	return rc;
}

static int set_up(void **state)
{
	(void)state;
	memset(&w, 0, sizeof(w));
	pthread_mutex_init(&w.mu, NULL);
	pthread_cond_init(&w.changed, NULL);
	memset(&err, 0, sizeof(err));
	if (pg_place_set_up(&place) != 0 || pg_place_open(&place, &w.store, 8) != 0)
		return -1;
	w.plain = w.store.ops;
	w.counting = *w.plain;
	w.counting.offer = count_offer;
	w.counting.exchange = held_exchange;
	struct sl_jobs_opts opts = {SL_JOBS_OPTS_INIT, .store = &w.store};
	return sl_jobs_open(&w.client, &opts, &err);
}

/* ---- what is not durable yet stays so ---- */

static const char *const flushers[] = {"walwriter", "background writer"};
static pid_t stopped[2]; /* 0: not */

static void let_flush(void)
{
	for (int i = 0; i < 2; i++)
		if (stopped[i] != 0)
			(void)kill(stopped[i], SIGCONT);
	memset(stopped, 0, sizeof(stopped));
}

static bool stands_still(pid_t pid)
{
	char path[64], line[256] = "";
	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *f = fopen(path, "r");
	bool still = f != NULL && fgets(line, sizeof(line), f) != NULL && strstr(line, ") T ") != NULL;
	if (f != NULL)
		(void)fclose(f);
	return still;
}

/* Stop those of the server's processes that write by themselves, each while it sleeps and so has no lock. */
static void keep_from_flushing(void)
{
	for (int i = 0; i < 2; i++) {
		char pid[96], asleep[160];
		(void)snprintf(pid, sizeof(pid), "SELECT pid FROM pg_stat_activity WHERE backend_type = '%s'",
			       flushers[i]);
		stopped[i] = (pid_t)pg_temp_number(place.admin, pid);
		assert_true(stopped[i] > 0);
		(void)snprintf(asleep, sizeof(asleep),
			       "SELECT count(*) FROM pg_stat_activity WHERE pid = %d AND wait_event_type = 'Activity'",
			       (int)stopped[i]);
		for (;;) {
			assert_int_equal(kill(stopped[i], SIGSTOP), 0);
			while (!stands_still(stopped[i]))
				sched_yield();
			if (pg_temp_number(place.admin, asleep) == 1)
				break;
			assert_int_equal(kill(stopped[i], SIGCONT), 0);
			sched_yield();
		}
	}
}

static int tear_down(void **state)
{
	(void)state;
	let_flush();
	sl_jobs_close(w.client);
	sl_store_close(&w.store);
	pg_place_tear_down(&place);
	return 0;
}

static long long number(const char *sql)
{
	return pg_temp_number(place.admin, sql);
}

static uint64_t start(const char *type, const char *input)
{
	struct sl_new_chain chain = {.job = {.type = type, .input = input}};
	struct sl_started out;
	OK(sl_jobs_enqueue(w.client, NULL, &chain, &out, &err));
	return out.chain_id;
}

/* ---- handlers and workers ---- */

static int noop(sl_attempt *a, struct sl_err *e, void *ctx)
{
	(void)e, (void)ctx;
	add(&w.arrived);
	return sl_attempt_complete(a, sl_attempt_job(a)->input, NULL);
}

/* Waits until it may continue, or is aborted. */
static int gate(sl_attempt *a, struct sl_err *e, void *ctx)
{
	(void)e, (void)ctx;
	add(&w.arrived);
	enum sl_abort_reason reason = sl_attempt_wait_abort(a, SL_UNLIMITED);
	pthread_mutex_lock(&w.mu);
	w.aborted = (int)reason;
	w.left++;
	pthread_cond_broadcast(&w.changed);
	pthread_mutex_unlock(&w.mu);
	return 0;
}

static sl_worker *new_worker_of(sl_process_fn *fn, int slots, int lanes)
{
	/* "u" is there to make a worker speak with its store; its lease differs, so that it is claimed by itself. */
	struct sl_processor p[] = {{SL_PROCESSOR_INIT, .type = "t", .process = fn, .lease_ms = LEASE_MS},
				   {SL_PROCESSOR_INIT, .type = "u", .process = noop, .lease_ms = LEASE_MS + 1}};
	const sl_store counted = {.ops = &w.counting, .ctx = w.store.ctx};
	struct sl_worker_opts opts = {SL_WORKER_OPTS_INIT, .store = &counted, .processors = p,   .n_processors = 2,
				      .slots = slots,      .lanes = lanes,    .observe = observe};
	sl_worker *worker = NULL;
	OK(sl_worker_new(&worker, &opts, &err));
	OK(sl_worker_start(worker, &err));
	return worker;
}

static sl_worker *new_worker(sl_process_fn *fn, int slots)
{
	return new_worker_of(fn, slots, 1);
}

/* Start a job that is handed to a worker. One that comes while an offer is taken back for a moment is queued, where it
 * waits for the poll: then the next offer is waited for. */
static uint64_t start_handed_over(const char *type)
{
	for (int offers = 1;; offers++) {
		char sql[64];
		await(&w.offers, offers);
		offers = read_count(&w.offers);
		uint64_t id = start(type, "{\"x\":1}");
		(void)snprintf(sql, sizeof(sql), "SELECT count(*) FROM ready WHERE id = %llu", (unsigned long long)id);
		if (number(sql) == 0)
			return id;
	}
}

/* ---- offers, as the store has them ---- */

struct taken {
	int calls, rc, n;
	uint64_t id;
	int32_t attempt;
	int charged;
	char input[64];
};

static void on_accepted(int rc, const struct sl_claimed_job *job, int64_t sent_ns, int64_t now_ms, void *ctx)
{
	struct taken *t = ctx;
	assert_true(sent_ns > 0);
	t->calls++;
	t->rc = rc;
	if (job == NULL)
		return;
	assert_true(now_ms > 1700000000000);
	assert_int_equal(job->fence, 1);
	assert_string_equal(job->type, "t");
	t->n++;
	t->id = job->id;
	t->attempt = job->attempt;
	t->charged = job->charged;
	(void)snprintf(t->input, sizeof(t->input), "%s", job->input);
}

static const struct sl_offer_type type_t = {.type = "t", .lease_ms = 60000};

static struct sl_offer offer_of(struct taken *t)
{
	return (struct sl_offer){
		.claim = {{7}}, .worker = "me", .types = &type_t, .n_types = 1, .accepted = on_accepted, .ctx = t};
}

static void a_start_claims_its_job_for_the_worker_that_offered_to_run_it(void **state)
{
	(void)state;
	struct taken t = {0};
	struct sl_offer offer = offer_of(&t);
	w.store.ops->offer(w.store.ctx, &offer);
	uint64_t id = start("t", "{\"x\":1}");
	assert_int_equal(t.calls, 1);
	assert_int_equal(t.rc, 0);
	assert_int_equal(t.id, id);
	assert_int_equal(t.charged, 0);
	assert_int_equal(t.attempt, 1);
	assert_string_equal(t.input, "{\"x\":1}");
	assert_int_equal(number("SELECT count(*) FROM ready"), 0);
	assert_int_equal(number("SELECT ids[1] FROM lease WHERE worker = 'me' AND started AND fences = '{1}'"), id);
	assert_int_equal(w.store.ops->withdraw(w.store.ctx, &offer), 0);
	start("t", "2"); /* the offer is gone */
	assert_int_equal(t.calls, 1);
	assert_int_equal(number("SELECT count(*) FROM ready"), 1);
	/* It settles as any other. */
	struct sl_settle settle = {.kind = SL_SETTLE_COMPLETE,
				   .id = id,
				   .chain_id = id,
				   .fence = 1,
				   .claim = offer.claim,
				   .worker = "me",
				   .output = "3",
				   .last_of_claim = 1};
	struct sl_settle_result result;
	OK(w.store.ops->exchange(w.store.ctx,
				 &(struct sl_exchange){.settles = &settle, .n_settles = 1, .results = &result}, NULL,
				 &err));
	assert_int_equal(result.lost, SL_LOST_NOT);
	assert_int_equal(number("SELECT count(*) FROM lease"), 0);
	assert_int_equal(number("SELECT attempt FROM job WHERE status = 4"), 1);
}

static void what_is_not_to_run_now_leaves_the_offer_alone(void **state)
{
	(void)state;
	struct taken t = {0};
	struct sl_offer offer = offer_of(&t);
	struct sl_new_chain chains[2] = {{.job = {.type = "t"}}, {.job = {.type = "t"}}};
	struct sl_started out[2];
	w.store.ops->offer(w.store.ctx, &offer);
	start("other", NULL);
	chains[0].job.delay_ms = 60000;
	OK(sl_jobs_enqueue(w.client, NULL, &chains[0], out, &err));
	chains[0].job.delay_ms = 0;
	OK(sl_jobs_enqueue_many(w.client, NULL, chains, 2, out, &err));
	sl_tx *tx;
	OK(sl_jobs_begin(w.client, &tx, &err));
	OK(sl_jobs_enqueue(w.client, tx, &chains[0], out, &err));
	OK(sl_tx_commit(tx, &err));
	assert_int_equal(t.calls, 0);
	assert_int_equal(number("SELECT count(*) FROM ready"), 4);
	assert_int_equal(w.store.ops->withdraw(w.store.ctx, &offer), 1);
	assert_int_equal(w.store.ops->withdraw(w.store.ctx, &offer), 0);
}

static void a_job_of_a_paused_type_is_queued_and_the_offer_gets_none(void **state)
{
	(void)state;
	struct taken t = {0};
	struct sl_offer offer = offer_of(&t);
	OK(sl_jobs_pause(w.client, "t", &err));
	w.store.ops->offer(w.store.ctx, &offer);
	start("t", NULL);
	assert_int_equal(t.calls, 1);
	assert_int_equal(t.rc, 0);
	assert_int_equal(t.n, 0);
	assert_int_equal(number("SELECT count(*) FROM lease"), 0);
	assert_int_equal(number("SELECT count(*) FROM ready"), 1);
	assert_int_equal(number("SELECT attempt FROM job WHERE leased_by IS NULL"), 0);
}

static void a_failed_start_reports_its_error_to_the_offer(void **state)
{
	(void)state;
	struct taken t = {0};
	struct sl_offer offer = offer_of(&t);
	struct sl_new_chain chain = {.job = {.type = "t", .input = "\"\xff\""}};
	struct sl_started out;
	w.store.ops->offer(w.store.ctx, &offer);
	assert_int_equal(w.store.ops->start(w.store.ctx, &chain, 1, NULL, &out, &err), SL_EDATA);
	assert_int_equal(t.calls, 1);
	assert_int_equal(t.rc, SL_EDATA);
	assert_int_equal(t.n, 0);
	assert_int_equal(number("SELECT count(*) FROM lease"), 0);
}

/* ---- offers, as workers make them ---- */

static void a_job_that_is_started_beside_an_idle_worker_runs_at_once(void **state)
{
	(void)state;
	sl_worker *worker = new_worker(noop, 2);
	uint64_t id = start_handed_over("t");
	struct sl_chain *chain = NULL;
	OK(sl_jobs_wait(w.client, id, PATIENCE_S * 1000, &chain, &err));
	assert_int_equal(chain->status, SL_JOB_COMPLETED);
	assert_string_equal(chain->output, "{\"x\":1}");
	sl_chain_release(w.client, chain);
	assert_true(w.seen[SL_OBSERVE_JOB_ACQUIRED] >= 1);
	OK(sl_worker_stop(worker, SL_UNLIMITED, &err));
	sl_worker_free(worker);
	assert_int_equal(number("SELECT count(*) FROM lease"), 0);
}

/* While the claim of one lane is under way, it has all slots, and the other lane sees nothing to offer. */
static void a_lane_offers_when_the_claim_of_another_one_has_left_the_slots_free(void **state)
{
	(void)state;
	w.hold = true;
	sl_worker *worker = new_worker_of(noop, 1, 2);
	struct sl_worker_stats s = {.struct_size = sizeof(s)};
	await(&w.begun, 2);
	await(&w.done, 1);
	do
		sl_worker_get_stats(worker, &s);
	while (s.exchanges == 0 && sched_yield() == 0);
	assert_int_equal(read_count(&w.all_offers), 0);
	pthread_mutex_lock(&w.mu);
	w.hold = false;
	pthread_cond_broadcast(&w.changed);
	pthread_mutex_unlock(&w.mu);
	await(&w.all_offers, 1);
	OK(sl_worker_stop(worker, SL_UNLIMITED, &err));
	sl_worker_free(worker);
}

static void a_worker_that_stops_takes_its_offer_back(void **state)
{
	(void)state;
	sl_worker *worker = new_worker(noop, 2);
	await(&w.offers, 1); /* and it stands: nothing comes that would take it */
	OK(sl_worker_stop(worker, SL_UNLIMITED, &err));
	start("t", NULL);
	sl_worker_free(worker);
	assert_int_equal(number("SELECT count(*) FROM ready"), 1);
	assert_int_equal(number("SELECT count(*) FROM lease"), 0);
}

static int counting_withdraw(void *store, struct sl_offer *offer)
{
	int rc = w.plain->withdraw(store, offer);
	add(&w.withdrawn);
	return rc;
}

static void a_worker_whose_log_fails_takes_its_offer_back(void **state)
{
	(void)state;
	struct sl_worker_stats s = {.struct_size = sizeof(s)};
	struct sl_err why;
	w.counting.withdraw = counting_withdraw;
	sl_worker *worker = new_worker(noop, 2);
	await(&w.offers, 1);
	int before = read_count(&w.withdrawn);
	(void)sl_err_set(&why, SL_ENOSPC, "no room");
	sl__worker_log_failed(worker, &why);
	await(&w.withdrawn, before + 1);
	start("t", NULL);
	sl_worker_get_stats(worker, &s);
	assert_int_equal(s.claimed, 0);
	OK(sl_worker_stop(worker, SL_UNLIMITED, &err));
	sl_worker_free(worker);
	assert_int_equal(number("SELECT count(*) FROM ready"), 1);
	assert_int_equal(number("SELECT fence FROM job"), 1); /* it was claimed by no worker */
}

static atomic_bool enough;
static atomic_int started;

static void *starter(void *arg)
{
	struct sl_new_chain chain = {.job = {.type = "t", .input = "1"}};
	struct sl_started out;
	(void)arg;
	while (!atomic_load(&enough)) {
		struct sl_err own = SL_ERR_INIT;
		if (sl_jobs_enqueue(w.client, NULL, &chain, &out, &own) == 0)
			atomic_fetch_add(&started, 1);
	}
	return NULL;
}

/* Starts that take offers beside workers that make them, withdraw them and end. */
static void nothing_is_lost_while_workers_come_and_go(void **state)
{
	(void)state;
	time_t until = time(NULL) + (time_t)test_seconds(2);
	pthread_t threads[2];
	int workers = 0;
	atomic_store(&enough, false);
	atomic_store(&started, 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, starter, NULL), 0);
	while (time(NULL) < until) {
		int arrived = read_count(&w.arrived);
		sl_worker *worker = new_worker(noop, 1 + workers % 3);
		await(&w.arrived, arrived + workers % 7 * 3); /* some live for a moment only */
		OK(sl_worker_stop(worker, SL_UNLIMITED, &err));
		sl_worker_free(worker);
		workers++;
	}
	atomic_store(&enough, true);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	sl_worker *last = new_worker(noop, 4);
	OK(sl_worker_drain(last, PATIENCE_S * 1000, &err));
	OK(sl_worker_stop(last, SL_UNLIMITED, &err));
	sl_worker_free(last);
	printf("# %d workers, %d chains\n", workers, atomic_load(&started));
	assert_int_equal(number("SELECT count(*) FROM job WHERE status = 4"), atomic_load(&started));
	assert_int_equal(number("SELECT count(*) FROM job WHERE attempt <> 1 AND solo"), 0);
	assert_int_equal(w.arrived, atomic_load(&started));
	assert_int_equal(number("SELECT count(*) FROM lease"), 0);
}

/* ---- a server that crashes ---- */

static void crash_server(void)
{
	char sql[128];
	PQfinish(place.admin);
	assert_int_equal(pg_temp_command(place.server, "crash"), 0);
	memset(stopped, 0, sizeof(stopped)); /* they are dead */
	place.admin = pg_temp_connect(place.server);
	(void)snprintf(sql, sizeof(sql), "SET client_min_messages = error; SET search_path = %s", place.schema);
	assert_int_equal(pg_temp_exec(place.admin, sql), 0);
}

/* An attempt's number is drawn in the claim, so a server that forgot a claim would draw it again. */
static void a_claim_is_durable_before_its_handler_starts(void **state)
{
	(void)state;
	start("t", NULL);
	keep_from_flushing();
	sl_worker *worker = new_worker(gate, 2);
	await(&w.arrived, 1);
	crash_server();
	assert_int_equal(number("SELECT count(*) FROM lease"), 1);
	assert_int_equal(number("SELECT count(*) FROM ready"), 0);
	assert_int_equal(sl_worker_stop(worker, 0, &err), SL_ETIMEDOUT);
	sl_worker_free(worker);
}

static int notification(const char *type, struct sl_start_notification *out, void *ctx)
{
	(void)type, (void)ctx;
	*out = (struct sl_start_notification){.channel = "unused"};
	return 1;
}

static void keep_sent(const struct sl_note *note, void *ctx)
{
	*(int *)ctx += note->sent;
}

/* It is visible to others before it is flushed, but its start returns only after that. */
static void a_start_that_notifies_is_durable_when_it_returns(void **state)
{
	(void)state;
	int sent = 0;
	const struct sl_store_scope scope = {.note = keep_sent, .ctx = &sent, .start_notification = notification};
	struct sl_new_chain chain = {.job = {.type = "t", .input = "1"}};
	struct sl_started out;
	keep_from_flushing();
	OK(w.plain->start(w.store.ctx, &chain, 1, &scope, &out, &err));
	assert_int_equal(sent, 1);
	crash_server();
	assert_int_equal(number("SELECT count(*) FROM job"), 1);
	assert_int_equal(number("SELECT count(*) FROM ready"), 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_start_claims_its_job_for_the_worker_that_offered_to_run_it),
		TEST(what_is_not_to_run_now_leaves_the_offer_alone),
		TEST(a_job_of_a_paused_type_is_queued_and_the_offer_gets_none),
		TEST(a_failed_start_reports_its_error_to_the_offer),
		TEST(a_job_that_is_started_beside_an_idle_worker_runs_at_once),
		TEST(a_lane_offers_when_the_claim_of_another_one_has_left_the_slots_free),
		TEST(a_worker_that_stops_takes_its_offer_back),
		TEST(a_worker_whose_log_fails_takes_its_offer_back),
		TEST(nothing_is_lost_while_workers_come_and_go),
		TEST(a_claim_is_durable_before_its_handler_starts),
		TEST(a_start_that_notifies_is_durable_when_it_returns),
	};
	int rc = pg_place_start(&place, PG_TEMP_FAST);
	if (rc != 0)
		return rc;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	pg_place_stop(&place);
	return rc;
}
