/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers that stand by for starts of other processes, on PostgreSQL. A second store and notifier stand for another
 * process, since they share nothing but the server with the first; where a worker must die or stand still, it has a
 * process of its own. The poll is longer than any test.
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
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "jobs/notify/postgres.h"
#include "jobs/pg_place.h"
#include "support/budget.h"

#define PATIENCE_S 60
#define LEASE_MS 3600000

static struct pg_place place;
static struct sl_err err;

#define OK(call)                                                                                                       \
	do {                                                                                                           \
		if ((call) != 0)                                                                                       \
			fail_msg("%s: %s", #call, err.msg);                                                            \
	} while (0)

/* What the processes of a test share. */
static struct shared {
	atomic_int begun;  /* handlers of all workers, and of those in a child */
	atomic_int inside; /* of them: in a child */
	atomic_int held;   /* handlers go on when it is 0 */
} * shared;

/* One process: what it has open. */
struct process {
	sl_store store;
	struct sl_store_ops counting;    /* the store's, for its worker */
	sl_notify notify, herald;        /* herald: the same, for its client */
	struct sl_notify_ops announcing; /* herald's */
	sl_jobs *client;
	sl_worker *worker;
};

/* What the stores of workers were asked, and whom they meet on the way. */
static atomic_int posts, letters, found;
static atomic_int standing, behind; /* offers of workers; claims that were made while one stood */
static const struct sl_store_ops *plain;
static void (*before_unpost)(void);

static int count_post(void *store, struct sl_offer *offer, const struct sl_address *at, struct sl_err *e)
{
	int rc = plain->post(store, offer, at, e);
	atomic_fetch_add(&posts, rc == 0);
	atomic_store(&standing, rc == 0);
	return rc;
}

static int count_letter(void *store, const char *text)
{
	int rc = plain->letter(store, text);
	atomic_fetch_add(&letters, rc);
	return rc;
}

static int meet_unpost(void *store, struct sl_offer *offer, struct sl_err *e)
{
	if (before_unpost != NULL)
		before_unpost();
	int rc = plain->unpost(store, offer, e);
	atomic_fetch_add(&found, rc == 0);
	if (rc >= 0)
		atomic_store(&standing, 0);
	return rc;
}

static int watch_exchange(void *store, sl_store_tx *tx, const struct sl_settle *settles, size_t n,
			  struct sl_settle_result *results, const struct sl_claim_request *request,
			  struct sl_claim_reply *reply, sl_claimed_fn *claimed, void *ctx,
			  const struct sl_store_listen *listen, struct sl_err *e)
{
	if (request != NULL)
		atomic_fetch_add(&behind, atomic_load(&standing));
	return plain->exchange(store, tx, settles, n, results, request, reply, claimed, ctx, listen, e);
}

/* However often it starts: only what is announced takes offers. */
static int announce(void *notify, const char *type, struct sl_announcement *out)
{
	const struct sl__pg_notify *n = notify;
	sl__pg_announcement(n->id, type, out);
	return 1;
}

static void open_process(struct process *p)
{
	*p = (struct process){.worker = NULL};
	assert_int_equal(pg_place_open(&place, &p->store, 8), 0);
	OK(sl_notify_postgres_open(&p->notify, pg_temp_url(place.server), NULL, &err));
	p->announcing = *p->notify.ops;
	p->announcing.announce = announce;
	p->herald = (sl_notify){.ops = &p->announcing, .ctx = p->notify.ctx};
	struct sl_jobs_opts opts = {SL_JOBS_OPTS_INIT, .store = &p->store, .notify = &p->herald};
	OK(sl_jobs_open(&p->client, &opts, &err));
	plain = p->store.ops;
	p->counting = *plain;
	p->counting.post = count_post;
	p->counting.letter = count_letter;
	p->counting.unpost = meet_unpost;
	p->counting.exchange = watch_exchange;
}

static void close_process(struct process *p)
{
	sl_jobs_close(p->client);
	sl_notify_close(&p->notify);
	sl_store_close(&p->store);
}

static int set_up(void **state)
{
	(void)state;
	memset(&err, 0, sizeof(err));
	*shared = (struct shared){.begun = 0};
	posts = letters = found = standing = behind = 0;
	before_unpost = NULL;
	sl_store store; /* the schema is there before anybody forks */
	if (pg_place_set_up(&place) != 0 || pg_place_open(&place, &store, 1) != 0)
		return -1;
	sl_store_close(&store);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	pg_place_tear_down(&place);
	return 0;
}

static long long number(const char *sql)
{
	return pg_temp_number(place.admin, sql);
}

#define UNTIL(cond)                                                                                                    \
	for (time_t until_ = time(NULL) + PATIENCE_S; !(cond); sched_yield())                                          \
		if (time(NULL) > until_) {                                                                             \
			fprintf(stderr, "%s:%d: never: %s\n", __FILE__, __LINE__, #cond);                              \
			_exit(1); /* with threads of workers at work, there is no going on */                          \
		}

static bool stands_by(void)
{
	return number("SELECT count(*) FROM offer") == 1;
}

/* ---- handlers, workers, starts ---- */

static int handle(sl_attempt *a, struct sl_err *e, void *ctx)
{
	(void)e;
	atomic_fetch_add(&shared->begun, 1);
	atomic_fetch_add(&shared->inside, ctx != NULL);
	while (atomic_load(&shared->held) && sl_attempt_wait_abort(a, 10) == SL_ABORT_NONE)
		;
	return sl_attempt_complete(a, sl_attempt_job(a)->input, NULL);
}

static void start_worker(struct process *p, int slots, bool child)
{
	struct sl_processor proc = {SL_PROCESSOR_INIT, .type = "t", .process = handle, .ctx = child ? p : NULL,
				    .lease_ms = LEASE_MS};
	const sl_store counted = {.ops = &p->counting, .ctx = p->store.ctx};
	struct sl_worker_opts opts = {SL_WORKER_OPTS_INIT,         .store = &counted, .notify = &p->notify,
				      .processors = &proc,         .n_processors = 1, .slots = slots,
				      .poll_interval_ms = LEASE_MS};
	OK(sl_worker_new(&p->worker, &opts, &err));
	OK(sl_worker_start(p->worker, &err));
}

static void stop_worker(struct process *p)
{
	OK(sl_worker_stop(p->worker, SL_UNLIMITED, &err));
	sl_worker_free(p->worker);
}

static uint64_t start(struct process *p)
{
	struct sl_new_chain chain = {.job = {.type = "t", .input = "{\"x\":1}"}};
	struct sl_started out;
	OK(sl_jobs_start(p->client, NULL, &chain, &out, &err));
	return out.chain_id;
}

static void await_completed(struct process *p, uint64_t id)
{
	struct sl_chain *chain = NULL;
	OK(sl_jobs_wait(p->client, id, PATIENCE_S * 1000, &chain, &err));
	assert_int_equal(chain->status, SL_JOB_COMPLETED);
	assert_string_equal(chain->output, "{\"x\":1}");
	sl_jobs_free(p->client, chain);
}

/* A worker in a process of its own, that has posted its offer. */
static pid_t fork_worker(void)
{
	fflush(stdout);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		static struct process mine;
		open_process(&mine);
		start_worker(&mine, 1, true);
		for (;;)
			pause();
	}
	UNTIL(stands_by());
	return pid;
}

static void end_child(pid_t pid)
{
	int status;
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
}

/* ---- tests ---- */

static void a_job_that_another_process_starts_is_handed_to_an_idle_worker(void **state)
{
	(void)state;
	struct process here, other;
	open_process(&here);
	open_process(&other);
	start_worker(&here, 2, false);
	for (int i = 1; i <= 3; i++) { /* it stands by again after each */
		UNTIL(stands_by());
		await_completed(&other, start(&other));
		assert_true(atomic_load(&letters) + atomic_load(&found) >= i);
	}
	assert_int_equal(atomic_load(&shared->begun), 3);
	stop_worker(&here);
	assert_int_equal(number("SELECT count(*) FROM offer"), 0);
	assert_int_equal(number("SELECT count(*) FROM lease"), 0);
	assert_int_equal(number("SELECT count(*) FROM job WHERE status = 4 AND attempt = 1"), 3);
	close_process(&other);
	close_process(&here);
}

static void a_worker_whose_slots_are_full_does_not_stand_by(void **state)
{
	(void)state;
	struct process here, other;
	atomic_store(&shared->held, 1);
	open_process(&here);
	open_process(&other);
	start_worker(&here, 1, false);
	UNTIL(stands_by());
	uint64_t first = start(&other);
	UNTIL(atomic_load(&shared->begun) == 1);
	uint64_t second = start(&other);
	assert_int_equal(number("SELECT count(*) FROM offer"), 0);
	assert_int_equal(number("SELECT count(*) FROM ready"), 1);
	atomic_store(&shared->held, 0);
	await_completed(&other, first);
	await_completed(&other, second);
	stop_worker(&here);
	close_process(&other);
	close_process(&here);
}

/* What has a key is queued, so that the worker must claim it. */
static void the_last_slot_claims_only_when_the_offer_is_back(void **state)
{
	static const char *const keys[] = {"a", "b", "c"};
	(void)state;
	struct process here, other;
	open_process(&here);
	open_process(&other);
	start_worker(&here, 1, false);
	for (int i = 0; i < 3; i++) {
		struct sl_new_chain chain = {.job = {.type = "t", .input = "{\"x\":1}"}, .key = keys[i]};
		struct sl_started out;
		UNTIL(stands_by() && atomic_load(&standing));
		OK(sl_jobs_start(other.client, NULL, &chain, &out, &err));
		await_completed(&other, out.chain_id);
	}
	stop_worker(&here);
	assert_int_equal(atomic_load(&letters), 0);
	assert_int_equal(atomic_load(&behind), 0);
	close_process(&other);
	close_process(&here);
}

static void a_killed_worker_is_handed_nothing(void **state)
{
	(void)state;
	struct process here;
	pid_t pid = fork_worker();
	end_child(pid);
	UNTIL(number("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0);
	open_process(&here);
	/* As another start does that looks at it in the same moment. */
	assert_int_equal(pg_temp_exec(place.admin, "BEGIN"), 0);
	assert_int_equal(number("SELECT pg_try_advisory_xact_lock_shared(lock)::integer FROM offer"), 1);
	uint64_t id = start(&here);
	assert_int_equal(pg_temp_exec(place.admin, "COMMIT"), 0);
	assert_int_equal(number("SELECT count(*) FROM offer"), 1); /* it is there, and nobody believes it */
	assert_int_equal(number("SELECT count(*) FROM ready"), 1);
	start_worker(&here, 1, false);
	await_completed(&here, id);
	UNTIL(number("SELECT count(*) FROM offer o JOIN pg_locks l ON l.locktype = 'advisory'"
		     " AND (l.classid::bigint << 32 | l.objid::bigint) = o.lock") == 1);
	assert_int_equal(number("SELECT count(*) FROM offer"), 1); /* its own: the other one was swept away */
	stop_worker(&here);
	close_process(&here);
	assert_int_equal(number("SELECT count(*) FROM job_attempt"), 0);
}

/* The server holds the lock of a process that stands still, and it is handed a job. Somebody else runs it when it was
 * not accepted in time; and when the process goes on, it does not. */
static void a_job_for_a_worker_that_stands_still_runs_elsewhere_uncharged(void **state)
{
	(void)state;
	struct process here;
	pid_t pid = fork_worker();
	int status;
	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid); /* with all of its threads */
	assert_true(WIFSTOPPED(status));
	open_process(&here);
	uint64_t id = start(&here);
	assert_int_equal(number("SELECT count(*) FROM offer"), 0);
	assert_int_equal(number("SELECT count(*) FROM lease WHERE NOT started"), 1);
	start_worker(&here, 1, false);
	await_completed(&here, id);
	assert_int_equal(atomic_load(&shared->inside), 0);
	assert_int_equal(number("SELECT charged FROM job"), 1);
	assert_int_equal(kill(pid, SIGCONT), 0);
	/* It gives the job back, which is not its any more, and stands by again. */
	UNTIL(number("SELECT count(*) FROM offer") == 2);
	end_child(pid);
	stop_worker(&here);
	close_process(&here);
	assert_int_equal(atomic_load(&shared->begun), 1);
	assert_int_equal(number("SELECT count(*) FROM job WHERE status = 4 AND attempt = 2 AND charged = 1"), 1);
}

static struct process *meddler;

static void start_once(void)
{
	before_unpost = NULL;
	start(meddler);
}

static void a_job_that_is_handed_to_a_worker_as_it_stops_goes_back_at_once(void **state)
{
	(void)state;
	struct process here, other;
	open_process(&here);
	open_process(&other);
	start_worker(&here, 1, false);
	UNTIL(stands_by());
	meddler = &other;
	before_unpost = start_once;
	stop_worker(&here);
	assert_true(atomic_load(&letters) + atomic_load(&found) >= 1);
	assert_int_equal(atomic_load(&shared->begun), 0);
	assert_int_equal(number("SELECT count(*) FROM lease"), 0);
	assert_int_equal(number("SELECT count(*) FROM ready WHERE NOT solo"), 1);
	assert_int_equal(number("SELECT attempt FROM job"), 0);
	close_process(&other);
	close_process(&here);
}

static void a_worker_that_listens_anew_stands_by_at_its_new_address(void **state)
{
	(void)state;
	struct process here, other;
	open_process(&here);
	open_process(&other);
	start_worker(&here, 2, false);
	for (int i = 0; i < 3; i++) {
		UNTIL(stands_by());
		int before = atomic_load(&posts);
		assert_int_equal(pg_temp_exec(place.admin, "SELECT pg_terminate_backend(l.pid) FROM pg_locks l"
							   " WHERE l.locktype = 'advisory'"),
				 0);
		UNTIL(atomic_load(&posts) > before);
		await_completed(&other, start(&other));
	}
	stop_worker(&here);
	assert_int_equal(number("SELECT count(*) FROM offer"), 0);
	close_process(&other);
	close_process(&here);
}

static void without_the_server_a_worker_stops_and_leaves_its_offer(void **state)
{
	(void)state;
	struct process here;
	open_process(&here);
	start_worker(&here, 1, false);
	UNTIL(stands_by());
	PQfinish(place.admin);
	assert_int_equal(pg_temp_command(place.server, "stop"), 0);
	stop_worker(&here);
	close_process(&here);
	assert_int_equal(pg_temp_command(place.server, "start"), 0);
	place.admin = pg_temp_connect(place.server);
	char sql[128];
	(void)snprintf(sql, sizeof(sql), "SET client_min_messages = error; SET search_path = %s", place.schema);
	assert_int_equal(pg_temp_exec(place.admin, sql), 0);
}

/* ---- a crowd ---- */

static atomic_bool enough;
static atomic_int started;

static void *starter(void *process)
{
	struct process *p = process;
	struct sl_new_chain chain = {.job = {.type = "t", .input = "1"}};
	struct sl_started out;
	while (!atomic_load(&enough)) {
		struct sl_err own = SL_ERR_INIT;
		if (sl_jobs_start(p->client, NULL, &chain, &out, &own) == 0)
			atomic_fetch_add(&started, 1);
		while (atomic_load(&shared->begun) < atomic_load(&started) && !atomic_load(&enough))
			sched_yield(); /* so that a worker has a moment to stand by */
	}
	return NULL;
}

static void nothing_is_lost_while_workers_of_other_processes_come_and_go(void **state)
{
	(void)state;
	time_t until = time(NULL) + (time_t)test_seconds(2);
	struct process clients[2], here;
	pthread_t threads[2];
	int workers = 0;
	atomic_store(&enough, false);
	atomic_store(&started, 0);
	open_process(&here);
	for (int i = 0; i < 2; i++) {
		open_process(&clients[i]);
		assert_int_equal(pthread_create(&threads[i], NULL, starter, &clients[i]), 0);
	}
	while (time(NULL) < until) {
		int begun = atomic_load(&shared->begun);
		start_worker(&here, 1 + workers % 3, false);
		UNTIL(atomic_load(&shared->begun) >= begun + workers % 7 * 3); /* some live for a moment only */
		stop_worker(&here);
		workers++;
	}
	atomic_store(&enough, true);
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		close_process(&clients[i]);
	}
	start_worker(&here, 4, false);
	OK(sl_worker_drain(here.worker, PATIENCE_S * 1000, &err));
	stop_worker(&here);
	close_process(&here);
	printf("# %d workers, %d chains, %d letters, %d found without\n", workers, atomic_load(&started),
	       atomic_load(&letters), atomic_load(&found));
	assert_int_equal(number("SELECT count(*) FROM job WHERE status = 4"), atomic_load(&started));
	assert_int_equal(number("SELECT count(*) FROM lease"), 0);
	assert_int_equal(atomic_load(&shared->begun), atomic_load(&started));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_job_that_another_process_starts_is_handed_to_an_idle_worker),
		TEST(a_worker_whose_slots_are_full_does_not_stand_by),
		TEST(the_last_slot_claims_only_when_the_offer_is_back),
		TEST(a_killed_worker_is_handed_nothing),
		TEST(a_job_for_a_worker_that_stands_still_runs_elsewhere_uncharged),
		TEST(a_job_that_is_handed_to_a_worker_as_it_stops_goes_back_at_once),
		TEST(a_worker_that_listens_anew_stands_by_at_its_new_address),
		TEST(nothing_is_lost_while_workers_of_other_processes_come_and_go),
		TEST(without_the_server_a_worker_stops_and_leaves_its_offer),
	};
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 1;
	int rc = pg_place_start(&place, PG_TEMP_FAST);
	if (rc != 0)
		return rc;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	pg_place_stop(&place);
	return rc;
}
