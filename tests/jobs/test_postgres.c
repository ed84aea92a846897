/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only PostgreSQL can get wrong: the race between reaper and completion statement by statement, connections that
 * are terminated, migrations at once, round trips, plans, HOT updates, marks under a pinned snapshot.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "jobs/pg_place.h"
#include "jobs/pg_proxy.h"
#include "jobs/store/postgres/store.h"

#define LONG_MS 3600000
#define WORKER "5f0c4a3e-7d1b-4c37-9d6b-1e2f3a4b5c6d" /* as long as those of workers are */

static struct pg_place place;
static sl_store store;
static struct sl_err err;

#define OK(call)                                                                                                       \
	do {                                                                                                           \
		if ((call) != 0)                                                                                       \
			fail_msg("%s: %s", #call, err.msg);                                                            \
	} while (0)

static int set_up(void **state)
{
	(void)state;
	memset(&err, 0, sizeof(err));
	return pg_place_set_up(&place) != 0 || pg_place_open(&place, &store, 4) != 0;
}

static long long number(const char *sql)
{
	return pg_temp_number(place.admin, sql);
}

static void await_connections(const char *condition)
{
	char sql[256];
	(void)snprintf(sql, sizeof(sql), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sluice' %s",
		       condition);
	while (number(sql) != 0)
		;
}

static int tear_down(void **state)
{
	(void)state;
	sl_store_close(&store);
	await_connections(""); /* the server notices in its own time, and the next test counts only its own */
	pg_place_tear_down(&place);
	return 0;
}

/* Where the limit for statements is short: a busy server may need several. */
#define OK_AT_LAST(call)                                                                                               \
	do {                                                                                                           \
		int rc_;                                                                                               \
		while ((rc_ = (call)) == SL_ETIMEDOUT)                                                                 \
			;                                                                                              \
		OK(rc_);                                                                                               \
	} while (0)

static void open_hasty(sl_store *out, const char *url, const struct sl_store_opts *opts)
{
	int rc;
	while ((rc = sl_store_postgres_open(out, url, opts, &err)) == SL_ETIMEDOUT || rc == SL_EUNAVAIL)
		;
	OK(rc);
}

/* ---- short ways to start, claim and settle ---- */

static void start_many(const char *type, size_t n)
{
	struct sl_new_chain *chains = calloc(n, sizeof(*chains));
	struct sl_started *out = calloc(n, sizeof(*out));
	assert_true(chains != NULL && out != NULL);
	for (size_t i = 0; i < n; i++)
		chains[i].job = (struct sl_new_job){.type = type, .input = "{\"i\":1}"};
	OK(store.ops->start(store.ctx, chains, n, NULL, out, &err));
	free(chains);
	free(out);
}

static uint64_t start_one(const char *type, int32_t priority)
{
	struct sl_new_chain chain = {.job = {.type = type, .priority = priority}};
	struct sl_started out;
	OK(store.ops->start(store.ctx, &chain, 1, NULL, &out, &err));
	return out.chain_id;
}

struct batch {
	struct sl_settle settles[256];
	struct sl_settle_result results[256];
	size_t n;
	struct sl_claim_id claim;
};

static int keep(const struct sl_claimed_job *job, void *ctx)
{
	struct batch *b = ctx;
	b->settles[b->n++] = (struct sl_settle){.kind = SL_SETTLE_COMPLETE,
						.id = job->id,
						.chain_id = job->chain_id,
						.fence = job->fence,
						.claim = b->claim,
						.worker = WORKER,
						.started_ms = 1700000000000,
						.output = "null"};
	return 0;
}

static struct sl_claim_request request_of(struct batch *b, const struct sl_claim_type *type, uint32_t limit)
{
	static uint32_t claims;
	claims++;
	b->n = 0;
	memcpy(b->claim.bytes, &claims, sizeof(claims));
	return (struct sl_claim_request){.claim = b->claim,
					 .worker = WORKER,
					 .types = type,
					 .n_types = 1,
					 .limit = limit,
					 .free = limit,
					 .lease_ms = LONG_MS};
}

/* Settle what `old` has (may be NULL) and claim into b. Returns how long to sleep until something is due. */
static int64_t exchange(struct batch *old, struct batch *b, const char *type, uint32_t limit)
{
	struct sl_claim_type types = {.type = type, .limit = limit, .free = limit};
	struct sl_claim_request r = request_of(b, &types, limit);
	struct sl_claim_reply reply;
	if (old != NULL && old->n > 0)
		old->settles[old->n - 1].last_of_claim = 1;
	OK(store.ops->exchange(store.ctx,
			       &(struct sl_exchange){.settles = old != NULL ? old->settles : NULL,
						     .n_settles = old != NULL ? old->n : 0,
						     .results = old != NULL ? old->results : NULL,
						     .request = &r,
						     .reply = &reply,
						     .claimed = keep,
						     .claimed_ctx = b},
			       NULL, &err));
	return reply.next_due_in_ms;
}

static size_t drain(const char *type, uint32_t limit)
{
	static struct batch batches[2];
	size_t done = 0;
	exchange(NULL, &batches[0], type, limit);
	for (int i = 0; batches[i].n > 0; i ^= 1) {
		exchange(&batches[i], &batches[i ^ 1], type, limit);
		for (size_t j = 0; j < batches[i].n; j++)
			done += batches[i].results[j].lost == SL_LOST_NOT;
	}
	return done;
}

static void expire_leases(void)
{
	assert_int_equal(pg_temp_exec(place.admin, "UPDATE lease SET until = now() - interval '1 minute'"), 0);
}

static uint32_t reap(const char *type)
{
	const struct sl_reap_type types = {.type = type};
	struct sl_reaped reaped;
	OK(store.ops->reap(store.ctx, &types, 1, 100, &reaped, NULL, &err));
	return reaped.n;
}

/* Wait until a session waits for a lock, however long that takes. */
static void await_waiter(void)
{
	while (number("SELECT count(*) FROM pg_locks WHERE NOT granted") == 0)
		;
}

/* ---- a slot on another thread ---- */

struct call {
	pthread_t thread;
	struct batch *b;
	const struct sl_store_scope *scope; /* of a start */
	int rc;
	struct sl_err err;
};

static void *settle_main(void *arg)
{
	struct call *c = arg;
	c->rc = store.ops->exchange(
		store.ctx,
		&(struct sl_exchange){.settles = c->b->settles, .n_settles = c->b->n, .results = c->b->results}, NULL,
		&c->err);
	return NULL;
}

static void *start_main(void *arg)
{
	struct call *c = arg;
	struct sl_new_chain chain = {.job = {.type = "t"}};
	struct sl_started out;
	c->rc = store.ops->start(store.ctx, &chain, 1, c->scope, &out, &c->err);
	return NULL;
}

/* ---- the race of reaper and completion ---- */

/* The reaper's statement on a connection of the test's, which decides when it commits. */
static int reap_by_hand(PGconn *conn)
{
	const char *params[5] = {"{t}", "100", "{0}", "{0}", "{1}"};
	char *sql = sl__pg_render(&((struct pg_store *)store.ctx)->env, sl__pg_sql[ST_REAP], place.schema);
	assert_non_null(sql);
	PGresult *res = PQexecParams(conn, sql, 5, NULL, params, NULL, NULL, 0);
	if (PQresultStatus(res) != PGRES_TUPLES_OK)
		fail_msg("%s", PQerrorMessage(conn));
	int reaped = PQntuples(res) - 1;
	PQclear(res);
	free(sql);
	return reaped;
}

static void claim_and_expire(struct batch *b)
{
	start_many("t", 1);
	exchange(NULL, b, "t", 10);
	assert_int_equal(b->n, 1);
	b->settles[0].last_of_claim = 1;
	expire_leases();
}

static void assert_completed_once(void)
{
	assert_int_equal(number("SELECT count(*) FROM job WHERE status = 4 AND fence = 2 AND attempt = 1"), 1);
	assert_int_equal(number("SELECT count(*) FROM ready"), 0);
	assert_int_equal(number("SELECT count(*) FROM job_attempt"), 0);
}

static void assert_reaped_once(void)
{
	assert_int_equal(
		number("SELECT count(*) FROM job WHERE status = 2 AND fence = 2 AND attempt = 1 AND charged = 1"), 1);
	assert_int_equal(number("SELECT count(*) FROM ready WHERE solo AND fence = 2"), 1);
	assert_int_equal(number("SELECT count(*) FROM job_attempt WHERE outcome = 3"), 1);
	assert_int_equal(number("SELECT count(*) FROM lease"), 0);
}

static void a_completion_that_waits_for_a_reaper_is_refused(void **state)
{
	(void)state;
	struct batch b;
	PGconn *reaper = pg_temp_connect(place.server);
	claim_and_expire(&b);
	assert_int_equal(pg_temp_exec(reaper, "BEGIN"), 0);
	assert_int_equal(reap_by_hand(reaper), 1);
	struct call c = {.b = &b};
	pthread_create(&c.thread, NULL, settle_main, &c);
	await_waiter();
	assert_int_equal(pg_temp_exec(reaper, "COMMIT"), 0);
	pthread_join(c.thread, NULL);
	assert_int_equal(c.rc, 0);
	assert_int_equal(b.results[0].lost, SL_LOST_TAKEN);
	assert_reaped_once();
	PQfinish(reaper);
}

static void a_completion_that_waits_for_a_reaper_that_fails_is_taken(void **state)
{
	(void)state;
	struct batch b;
	PGconn *reaper = pg_temp_connect(place.server);
	claim_and_expire(&b);
	assert_int_equal(pg_temp_exec(reaper, "BEGIN"), 0);
	assert_int_equal(reap_by_hand(reaper), 1);
	struct call c = {.b = &b};
	pthread_create(&c.thread, NULL, settle_main, &c);
	await_waiter();
	assert_int_equal(pg_temp_exec(reaper, "ROLLBACK"), 0);
	pthread_join(c.thread, NULL);
	assert_int_equal(c.rc, 0);
	assert_int_equal(b.results[0].lost, SL_LOST_NOT);
	assert_completed_once();
	PQfinish(reaper);
}

static void a_completion_after_the_reaper_is_refused(void **state)
{
	(void)state;
	struct batch b;
	claim_and_expire(&b);
	assert_int_equal(reap("t"), 1);
	OK(store.ops->exchange(store.ctx,
			       &(struct sl_exchange){.settles = b.settles, .n_settles = 1, .results = b.results}, NULL,
			       &err));
	assert_int_equal(b.results[0].lost, SL_LOST_TAKEN);
	assert_reaped_once();
}

/* The settle stands uncommitted while the reaper comes by. */
static void settle_in_tx(struct batch *b, sl_store_tx **tx)
{
	OK(store.ops->begin(store.ctx, tx, &err));
	OK(store.ops->exchange(store.ctx,
			       &(struct sl_exchange){.settles = b->settles, .n_settles = 1, .results = b->results},
			       &(struct sl_store_scope){.tx = *tx}, &err));
	assert_int_equal(b->results[0].lost, SL_LOST_NOT);
}

static void a_reaper_skips_a_job_that_is_being_completed(void **state)
{
	(void)state;
	struct batch b;
	sl_store_tx *tx;
	claim_and_expire(&b);
	settle_in_tx(&b, &tx);
	assert_int_equal(reap("t"), 0); /* and does not wait */
	OK(store.ops->commit(tx, &err));
	expire_leases();
	assert_int_equal(reap("t"), 0);
	assert_completed_once();
	assert_int_equal(number("SELECT count(*) FROM lease"), 0);
}

static void a_reaper_takes_a_job_whose_completion_was_rolled_back(void **state)
{
	(void)state;
	struct batch b;
	sl_store_tx *tx;
	claim_and_expire(&b);
	settle_in_tx(&b, &tx);
	assert_int_equal(reap("t"), 0);
	store.ops->rollback(tx);
	expire_leases();
	assert_int_equal(reap("t"), 1);
	assert_reaped_once();
}

/* An owner that has guarded its job in an open transaction cannot lose it meanwhile, and the reaper does not hang. */
static void a_reaper_skips_a_job_that_is_guarded(void **state)
{
	(void)state;
	struct batch b;
	sl_store_tx *tx;
	enum sl_lost_reason lost;
	claim_and_expire(&b);
	OK(store.ops->begin(store.ctx, &tx, &err));
	OK(store.ops->guard(store.ctx, tx, b.settles[0].id, b.settles[0].fence, &lost, &err));
	assert_int_equal(lost, SL_LOST_NOT);
	char sql[128];
	(void)snprintf(sql, sizeof(sql), "SELECT count(*) FROM lease WHERE until > to_timestamp(%lld)",
		       number("SELECT extract(epoch FROM now())::bigint"));
	assert_int_equal(reap("t"), 0);
	assert_int_equal(number(sql), 1); /* checked again in a second */
	OK(store.ops->exchange(store.ctx,
			       &(struct sl_exchange){.settles = b.settles, .n_settles = 1, .results = b.results},
			       &(struct sl_store_scope){.tx = tx}, &err));
	OK(store.ops->commit(tx, &err));
	assert_completed_once();
}

/* A cancel locks the job, and waits for its row of ready; a claim has that row, and must not wait for the job. */
static void a_claim_does_not_wait_for_a_locked_job(void **state)
{
	(void)state;
	struct batch b, none;
	sl_store_tx *tx;
	enum sl_lost_reason lost;
	uint64_t id = start_one("t", 0);
	OK(store.ops->begin(store.ctx, &tx, &err));
	OK(store.ops->guard(store.ctx, tx, id, 1, &lost, &err));
	exchange(NULL, &b, "t", 1);
	assert_int_equal(b.n, 1);
	store.ops->rollback(tx);
	exchange(&b, &none, "t", 1);
	assert_int_equal(b.results[0].lost, SL_LOST_NOT);
	assert_int_equal(number("SELECT attempt FROM job"), 1);
}

static void a_cancel_that_a_claim_of_one_job_meets_goes_through(void **state)
{
	(void)state;
	struct batch b, none;
	sl_store_tx *tx;
	enum sl_lost_reason lost;
	size_t n;
	uint64_t id = start_one("t", 0);
	OK(store.ops->begin(store.ctx, &tx, &err));
	OK(store.ops->guard(store.ctx, tx, id, 1, &lost, &err)); /* as far as a cancel gets in its first round trip */
	exchange(NULL, &b, "t", 1);
	OK(store.ops->cancel(store.ctx, (struct sl_ids){&id, 1}, &(struct sl_store_scope){.tx = tx}, &n, &err));
	assert_int_equal(n, 1);
	OK(store.ops->commit(tx, &err));
	exchange(&b, &none, "t", 1);
	assert_int_equal(b.results[0].lost, SL_LOST_CANCELLED);
}

/* The settle locks the chain's first job. A cancel does so before it comes to the last: both in that order, or each has
 * what the other waits for. */
static void a_guard_holds_the_first_job_of_the_chain_too(void **state)
{
	(void)state;
	struct batch b, next;
	sl_store_tx *tx;
	enum sl_lost_reason lost;
	start_one("t", 0);
	exchange(NULL, &b, "t", 2);
	b.settles[0].kind = SL_SETTLE_CONTINUE;
	b.settles[0].next = &(struct sl_new_job){.type = "t"};
	exchange(&b, &next, "t", 2);
	assert_int_equal(next.n, 1);
	assert_true(next.settles[0].id != next.settles[0].chain_id);
	OK(store.ops->begin(store.ctx, &tx, &err));
	OK(store.ops->guard(store.ctx, tx, next.settles[0].id, next.settles[0].fence, &lost, &err));
	assert_int_equal(lost, SL_LOST_NOT);
	assert_int_equal(number("SELECT count(*) FROM (SELECT id FROM job FOR NO KEY UPDATE SKIP LOCKED) j"), 0);
	store.ops->rollback(tx);
	assert_int_equal(number("SELECT count(*) FROM (SELECT id FROM job FOR NO KEY UPDATE SKIP LOCKED) j"), 2);
}

static void *renew_main(void *renewals)
{
	struct sl_err why;
	return store.ops->renew(store.ctx, renewals, 2, NULL, NULL, &why) == 0 ? renewals : NULL;
}

/* A lane that settles the last jobs of two claims lets go of both leases in this order. */
static void leases_are_renewed_in_the_order_of_their_claims(void **state)
{
	(void)state;
	struct batch a, b;
	pthread_t thread;
	void *renewed;
	PGconn *other = pg_temp_connect(place.server);
	start_many("t", 2);
	exchange(NULL, &a, "t", 1);
	exchange(NULL, &b, "t", 1);
	struct batch *last = memcmp(&a.claim, &b.claim, sizeof(a.claim)) < 0 ? &b : &a, *first = last == &b ? &a : &b;
	struct sl_renewal renewals[] = {{.claim = last->claim, .lease_ms = LONG_MS},
					{.claim = first->claim, .lease_ms = LONG_MS}};
	char sql[256];
	(void)snprintf(sql, sizeof(sql), "BEGIN; SELECT 1 FROM %s.lease ORDER BY claim DESC LIMIT 1 FOR UPDATE",
		       place.schema);
	assert_int_equal(pg_temp_exec(other, sql), 0);
	pthread_create(&thread, NULL, renew_main, renewals);
	await_waiter();
	assert_int_equal(number("SELECT count(*) FROM (SELECT 1 FROM lease FOR UPDATE SKIP LOCKED) l"), 0);
	assert_int_equal(pg_temp_exec(other, "COMMIT"), 0);
	pthread_join(thread, &renewed);
	assert_ptr_equal(renewed, renewals);
	PQfinish(other);
}

/* ---- connections ---- */

static void an_idle_connection_that_was_terminated_is_replaced_unnoticed(void **state)
{
	(void)state;
	start_many("t", 3);
	pg_place_cut(&place);
	await_connections("");
	start_many("t", 3);
	assert_int_equal(drain("t", 10), 6);
}

static void a_connection_that_dies_in_the_middle_is_unavailable_once(void **state)
{
	(void)state;
	struct call c = {.rc = 0};
	start_many("t", 1);
	assert_int_equal(pg_temp_exec(place.admin, "BEGIN; LOCK TABLE job"), 0);
	pthread_create(&c.thread, NULL, start_main, &c);
	await_waiter();
	pg_place_cut(&place);
	pthread_join(c.thread, NULL);
	assert_int_equal(pg_temp_exec(place.admin, "ROLLBACK"), 0);
	assert_int_equal(c.rc, SL_EUNAVAIL);
	assert_int_equal(c.err.error_class, SL_CLASS_FATAL);
	assert_int_equal(sl_err_retryable(&c.err), 1);
	assert_string_equal(c.err.sqlstate, "57P01");
	assert_int_equal(number("SELECT count(*) FROM job"), 1);
	start_many("t", 1);
	assert_int_equal(drain("t", 10), 2);
}

/* A message of more than 1 GB would end the connection, and be sent again and again. */
static void continuations_that_are_too_large_together_are_refused_before_they_are_sent(void **state)
{
	(void)state;
	enum { N = 8, INPUT_BYTES = 40 << 20 };
	static struct batch b;
	char *input = malloc(INPUT_BYTES + 1);
	assert_non_null(input);
	memset(input, '1', INPUT_BYTES);
	input[INPUT_BYTES] = '\0';
	start_many("t", N);
	exchange(NULL, &b, "t", N);
	assert_int_equal(b.n, N);
	const struct sl_new_job next = {.type = "t", .input = input};
	for (size_t i = 0; i < N; i++) {
		b.settles[i].kind = SL_SETTLE_CONTINUE;
		b.settles[i].next = &next;
	}
	assert_int_equal(
		store.ops->exchange(store.ctx,
				    &(struct sl_exchange){.settles = b.settles, .n_settles = N, .results = b.results},
				    NULL, &err),
		SL_ETOOBIG);
	free(input);
}

/* ---- parted in the middle of a transaction ---- */

static struct sl_event_row line(uint64_t sequence)
{
	return (struct sl_event_row){.stream = "far",
				     .incarnation = 1,
				     .sequence = sequence,
				     .crc = sequence,
				     .type = 1,
				     .ts_ms = 1,
				     .payload = "x",
				     .payload_len = 1};
}

struct far_append {
	sl_store store;
	int rc;
	atomic_bool done;
};

static void *append_main(void *arg)
{
	struct far_append *far = arg;
	struct sl_event_row e = line(1);
	struct sl_err ignored = SL_ERR_INIT;
	far->rc = far->store.ops->events_append(far->store.ctx, &e, 1, NULL, 0, NULL, &ignored);
	atomic_store(&far->done, true);
	return NULL;
}

/* The marks of its stream are locked by a transaction whose client is cut off. */
static void events_of_a_client_that_is_cut_off_do_not_stay_locked(void **state)
{
	(void)state;
	struct pg_proxy *proxy = pg_proxy_start(place.server);
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .schema = place.schema, .connections = 1,
				     .connect_timeout_ms = PG_PLACE_CONNECT_MS, .statement_timeout_ms = 1000};
	struct far_append far = {.rc = 0};
	open_hasty(&far.store, pg_proxy_url(proxy), &opts);
	pg_proxy_swallow_after(proxy, 0);
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, append_main, &far), 0);
	while (!atomic_load(&far.done) &&
	       number("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sluice'"
		      " AND state = 'idle in transaction'") == 0)
		;
	struct sl_event_row e[] = {line(1), line(2)};
	size_t n_new = 0;
	OK(store.ops->events_append(store.ctx, e, 2, NULL, 0, &n_new, &err));
	assert_int_equal(n_new, 2);
	pthread_join(thread, NULL);
	assert_int_equal(far.rc, SL_EUNAVAIL);
	sl_store_close(&far.store);
	pg_proxy_stop(proxy);
}

static void a_transaction_of_the_caller_may_take_its_time(void **state)
{
	(void)state;
	sl_store_tx *tx;
	OK(store.ops->begin(store.ctx, &tx, &err));
	assert_int_equal(pg_temp_number(store.ops->native(tx), "SELECT setting::bigint FROM pg_settings"
							       " WHERE name = 'idle_in_transaction_session_timeout'"),
			 0);
	OK(store.ops->commit(tx, &err));
}

static void a_restarted_server_is_found_again(void **state)
{
	(void)state;
	int64_t now;
	struct batch b;
	start_many("t", 10);
	exchange(NULL, &b, "t", 4);
	PQfinish(place.admin);
	assert_int_equal(pg_temp_command(place.server, "crash"), 0);
	place.admin = pg_temp_connect(place.server);
	char sql[128];
	(void)snprintf(sql, sizeof(sql), "SET search_path = %s; SET client_min_messages = error", place.schema);
	assert_int_equal(pg_temp_exec(place.admin, sql), 0);
	while (store.ops->now_ms(store.ctx, &now, &err) != 0)
		assert_int_equal(err.code, SL_EUNAVAIL);
	/* The claim may be lost with the server's memory, or not; the fence decides, and every job ends once. */
	OK(store.ops->exchange(store.ctx,
			       &(struct sl_exchange){.settles = b.settles, .n_settles = b.n, .results = b.results},
			       NULL, &err));
	for (size_t i = 0; i < b.n; i++)
		assert_int_equal(b.results[i].lost, SL_LOST_NOT);
	assert_int_equal(drain("t", 3), 6);
	assert_int_equal(number("SELECT count(*) FROM job WHERE status = 4 AND attempt = 1"), 10);
}

static void a_forked_child_is_refused(void **state)
{
	(void)state;
	int64_t now;
	OK(store.ops->now_ms(store.ctx, &now, &err));
	pid_t pid = fork();
	if (pid == 0)
		_exit(store.ops->now_ms(store.ctx, &now, &err) == SL_EFORKED ? 42 : 1);
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 42);
	OK(store.ops->now_ms(store.ctx, &now, &err));
}

static void one_connection_is_enough_for_every_slot(void **state)
{
	(void)state;
	sl_store many = store;
	assert_int_equal(pg_place_open(&place, &store, 1), 0);
	struct batch b;
	claim_and_expire(&b);
	assert_int_equal(reap("t"), 1);
	OK(store.ops->exchange(store.ctx,
			       &(struct sl_exchange){.settles = b.settles, .n_settles = 1, .results = b.results}, NULL,
			       &err));
	assert_int_equal(b.results[0].lost, SL_LOST_TAKEN); /* asked for on the same connection */
	assert_int_equal(drain("t", 10), 1);
	sl_store_close(&store);
	store = many;
}

/* Transactions of handlers take as long as these do; a lane and the keeper must get through meanwhile. */
static void transactions_leave_a_connection_for_everybody_else(void **state)
{
	(void)state;
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .schema = place.schema, .connections = 2,
				     .connect_timeout_ms = PG_PLACE_CONNECT_MS, .statement_timeout_ms = 500};
	sl_store two;
	sl_store_tx *first, *second;
	int64_t now;
	open_hasty(&two, pg_temp_url(place.server), &opts);
	for (int round = 0; round < 2; round++) {
		OK_AT_LAST(two.ops->begin(two.ctx, &first, &err));
		assert_int_equal(two.ops->begin(two.ctx, &second, &err), SL_EAGAIN);
		OK_AT_LAST(two.ops->now_ms(two.ctx, &now, &err));
		/* One that dies while it is held is not held any more. */
		if (round == 0)
			PQclear(PQexec(two.ops->native(first), "SELECT pg_terminate_backend(pg_backend_pid())"));
		two.ops->rollback(first);
	}
	sl_store_close(&two);
}

/* Reads the schedules, and waits for the lock on them. */
static void *list_crons_main(void *arg)
{
	struct sl_err e;
	*(int *)arg = store.ops->cron_list(store.ctx, NULL, NULL, &e);
	return NULL;
}

static void a_renewal_has_its_own_connection(void **state)
{
	(void)state;
	sl_store_tx *tx[3];
	struct batch b;
	pthread_t thread;
	int rc = -1;
	start_many("t", 1);
	exchange(NULL, &b, "t", 1);
	assert_int_equal(b.n, 1);
	/* Three of the four connections are in transactions, and the last waits for a lock. */
	for (size_t i = 0; i < 3; i++)
		OK(store.ops->begin(store.ctx, &tx[i], &err));
	assert_int_equal(pg_temp_exec(place.admin, "BEGIN; LOCK TABLE cron IN ACCESS EXCLUSIVE MODE"), 0);
	assert_int_equal(pthread_create(&thread, NULL, list_crons_main, &rc), 0);
	await_waiter();
	const struct sl_renewal r = {
		.claim = b.claim, .lease_ms = LONG_MS, .ids = &b.settles[0].id, .fences = &b.settles[0].fence, .n = 1};
	OK(store.ops->renew(store.ctx, &r, 1, NULL, NULL, &err));
	assert_int_equal(pg_temp_exec(place.admin, "COMMIT"), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(rc, 0);
	for (size_t i = 0; i < 3; i++)
		store.ops->rollback(tx[i]);
}

static void a_password_is_in_no_error(void **state)
{
	(void)state;
	static const char *const bad[] = {"postgres://u:s3cret@127.0.0.1:1/x", "postgres://u:s3cr%zzs3cret@h/x",
					  "host=127.0.0.1 port=1 password=s3cret", "password=s3cret s3cret",
					  "postgres://u:s3cret@h:s3cret/x?s3cret=s3cret"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		sl_store other;
		memset(&err, 0, sizeof(err));
		int rc = sl_store_postgres_open(&other, bad[i], NULL, &err);
		assert_true(rc == SL_EUNAVAIL || rc == SL_EINVAL);
		assert_true(err.msg[0] != '\0');
		assert_null(strstr(err.msg, "s3cret"));
	}
}

static void states_of_the_server_are_classified(void **state)
{
	(void)state;
	static const struct {
		const char *sqlstate;
		int code;
		enum sl_err_class error_class;
	} rows[] = {{"40001", SL_EAGAIN, SL_CLASS_TRANSIENT}, {"40P01", SL_EAGAIN, SL_CLASS_TRANSIENT},
		    {"55P03", SL_EAGAIN, SL_CLASS_TRANSIENT}, {"22021", SL_EDATA, SL_CLASS_POISON},
		    {"57P01", SL_EUNAVAIL, SL_CLASS_FATAL},   {"57014", SL_ETIMEDOUT, SL_CLASS_TRANSIENT},
		    {"53100", SL_ENOSPC, SL_CLASS_TRANSIENT}, {"53300", SL_EUNAVAIL, SL_CLASS_FATAL},
		    {"28P01", SL_EACCES, SL_CLASS_FATAL},     {"42601", SL_EINTERNAL, SL_CLASS_NONE}};
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		enum sl_err_class error_class;
		assert_int_equal(sl__pg_code(rows[i].sqlstate, &error_class), rows[i].code);
		assert_int_equal(error_class, rows[i].error_class);
	}
}

/* ---- migrating ---- */

static void *open_main(void *arg)
{
	sl_store *out = arg;
	return pg_place_open(&place, out, 0) == 0 ? out : NULL;
}

static void many_may_migrate_at_once(void **state)
{
	(void)state;
	pthread_t threads[6];
	sl_store stores[6];
	pg_place_tear_down(&place);
	for (int i = 0; i < 6; i++)
		pthread_create(&threads[i], NULL, open_main, &stores[i]);
	char first[33] = "", id[33];
	for (int i = 0; i < 6; i++) {
		void *opened;
		pthread_join(threads[i], &opened);
		assert_non_null(opened);
		OK(stores[i].ops->target_id(stores[i].ctx, id, &err));
		if (i == 0)
			memcpy(first, id, sizeof(first));
		assert_string_equal(id, first);
		sl_store_close(&stores[i]);
	}
	assert_int_equal(number("SELECT count(*) FROM schema_version"), SL_SCHEMA_VERSION);
}

static void a_newer_schema_is_refused(void **state)
{
	(void)state;
	sl_store other;
	assert_int_equal(pg_temp_exec(place.admin, "INSERT INTO schema_version VALUES (1000, now())"), 0);
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .schema = place.schema,
				     .connect_timeout_ms = PG_PLACE_CONNECT_MS};
	assert_int_equal(sl_store_postgres_open(&other, pg_temp_url(place.server), &opts, &err), SL_EUNSUPPORTED);
	assert_non_null(strstr(err.msg, "1000"));
}

static void without_migration_an_empty_place_is_refused(void **state)
{
	(void)state;
	sl_store other;
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .schema = "nowhere", .migrate = SL_OFF,
				     .connect_timeout_ms = PG_PLACE_CONNECT_MS};
	assert_int_equal(sl_store_postgres_open(&other, pg_temp_url(place.server), &opts, &err), SL_EUNSUPPORTED);
	assert_int_equal(number("SELECT count(*) FROM pg_namespace WHERE nspname = 'nowhere'"), 0);
}

/* ---- the caller's transaction ---- */

static uint64_t start_joined(PGconn *conn)
{
	sl_store_tx *tx;
	struct sl_new_chain chain = {.job = {.type = "t"}};
	struct sl_started out;
	OK(store.ops->join(store.ctx, conn, &tx, &err));
	OK(store.ops->start(store.ctx, &chain, 1, &(struct sl_store_scope){.tx = tx}, &out, &err));
	OK(store.ops->commit(tx, &err)); /* lets go of it */
	return out.chain_id;
}

static void a_job_and_the_callers_rows_happen_together_or_not_at_all(void **state)
{
	(void)state;
	PGconn *conn = pg_temp_connect(place.server);
	assert_int_equal(pg_temp_exec(conn, "CREATE TEMP TABLE mine (n integer)"), 0);
	assert_int_equal(pg_temp_exec(conn, "BEGIN; INSERT INTO mine VALUES (1)"), 0);
	(void)start_joined(conn);
	assert_int_equal(number("SELECT count(*) FROM job"), 0); /* not committed yet */
	assert_int_equal(pg_temp_exec(conn, "ROLLBACK"), 0);
	assert_int_equal(drain("t", 10), 0);
	assert_int_equal(pg_temp_exec(conn, "BEGIN; INSERT INTO mine VALUES (2)"), 0);
	(void)start_joined(conn);
	assert_int_equal(pg_temp_exec(conn, "COMMIT"), 0);
	assert_int_equal(pg_temp_number(conn, "SELECT sum(n) FROM mine"), 2);
	assert_int_equal(drain("t", 10), 1);
	PQfinish(conn);
}

static void a_transaction_leaves_the_planner_to_the_callers_sql(void **state)
{
	(void)state;
	sl_store_tx *tx;
	struct sl_new_chain chain = {.job = {.type = "t"}};
	struct sl_started out;
	OK(store.ops->begin(store.ctx, &tx, &err));
	PGconn *conn = store.ops->native(tx);
	assert_int_equal(pg_temp_number(conn, "SELECT (current_setting('enable_seqscan') = 'on')::integer"), 1);
	OK(store.ops->start(store.ctx, &chain, 1, &(struct sl_store_scope){.tx = tx}, &out, &err));
	assert_int_equal(pg_temp_number(conn, "SELECT (current_setting('enable_hashjoin') = 'on'"
					      " AND current_setting('plan_cache_mode') = 'auto')::integer"),
			 1);
	OK(store.ops->commit(tx, &err));
	assert_int_equal(drain("t", 10), 1);
}

/* ---- cost ---- */

static void an_exchange_is_one_round_trip(void **state)
{
	(void)state;
	struct batch a, b;
	sl_store direct = store;
	struct pg_proxy *proxy = pg_proxy_start(place.server);
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .schema = place.schema, .connections = 1,
				     .connect_timeout_ms = PG_PLACE_CONNECT_MS};
	start_many("t", 40);
	OK(sl_store_postgres_open(&store, pg_proxy_url(proxy), &opts, &err));
	exchange(NULL, &a, "t", 10);
	exchange(&a, &b, "t", 10); /* everything is prepared by now */
	unsigned before = pg_proxy_round_trips(proxy);
	exchange(&b, &a, "t", 10);
	assert_int_equal(pg_proxy_round_trips(proxy) - before, 1);
	assert_int_equal(a.n, 10);
	before = pg_proxy_round_trips(proxy);
	(void)start_one("t", 0);
	(void)start_one("t", 0);
	assert_int_equal(pg_proxy_round_trips(proxy) - before, 2);
	sl_store_close(&store);
	pg_proxy_stop(proxy);
	store = direct;
}

/* Plans were made while the tables were empty, and must not be scans when they are full. */
static void a_drain_updates_within_pages_and_scans_no_table(void **state)
{
	(void)state;
	char sql[512];
	start_many("t", 5000);
	assert_int_equal(drain("t", 256), 5000);
	sl_store_close(&store); /* connections report their statistics when they end */
	await_connections("");
	(void)snprintf(sql, sizeof(sql),
		       "SELECT n_tup_upd FROM pg_stat_user_tables WHERE schemaname = '%s' AND relname = 'job'",
		       place.schema);
	while (number(sql) < 5000)
		assert_int_equal(pg_temp_exec(place.admin, "SELECT pg_stat_clear_snapshot()"), 0);
	assert_int_equal(number(sql), 5000);
	(void)snprintf(sql, sizeof(sql),
		       "SELECT n_tup_upd - n_tup_hot_upd FROM pg_stat_user_tables"
		       " WHERE schemaname = '%s' AND relname = 'job'",
		       place.schema);
	assert_int_equal(number(sql), 0);
	(void)snprintf(sql, sizeof(sql),
		       "SELECT sum(seq_scan) FROM pg_stat_user_tables WHERE schemaname = '%s'"
		       " AND relname IN ('job', 'ready', 'sched', 'lease', 'blocker', 'dedup', 'paused')",
		       place.schema);
	/* Each of the indexes on these tables was built by one scan. */
	assert_int_equal(number(sql), number("SELECT count(*) FROM pg_indexes WHERE schemaname = current_schema()"
					     " AND tablename IN ('job', 'ready', 'sched', 'lease', 'blocker', 'dedup',"
					     " 'paused')"));
	assert_int_equal(pg_place_open(&place, &store, 4), 0);
}

static void a_pinned_snapshot_does_not_make_claims_read_what_is_gone(void **state)
{
	(void)state;
	char sql[256];
	PGconn *pin = pg_temp_connect(place.server);
	start_many("t", 3000);
	assert_int_equal(pg_temp_exec(pin, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class"), 0);
	assert_int_equal(drain("t", 50), 3000);
	sl_store_close(&store);
	await_connections("");
	(void)snprintf(sql, sizeof(sql),
		       "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE schemaname = '%s'"
		       " AND indexrelname = 'ready_order'",
		       place.schema);
	while (number(sql) < 3000)
		assert_int_equal(pg_temp_exec(place.admin, "SELECT pg_stat_clear_snapshot()"), 0);
	/* Without a mark the claims read 3000 + 2950 + 2900 + … = 90,000 entries of jobs that are gone. */
	printf("# %lld entries of ready read for 3000 jobs\n", number(sql));
	assert_in_range(number(sql), 3000, 30000);
	PQfinish(pin);
	assert_int_equal(pg_place_open(&place, &store, 4), 0);
}

/* Another process puts the jobs of a batch back: this one's marks know nothing of it. */
static void retry_elsewhere(struct batch *b)
{
	sl_store other;
	assert_int_equal(pg_place_open(&place, &other, 1), 0);
	for (size_t i = 0; i < b->n; i++)
		b->settles[i].kind = SL_SETTLE_RETRY;
	OK(other.ops->exchange(other.ctx,
			       &(struct sl_exchange){.settles = b->settles, .n_settles = b->n, .results = b->results},
			       NULL, &err));
	sl_store_close(&other);
}

static void what_comes_back_below_the_mark_is_claimed_again(void **state)
{
	(void)state;
	struct batch a, b;
	start_many("t", 20);
	exchange(NULL, &a, "t", 10);
	retry_elsewhere(&a);
	exchange(NULL, &b, "t", 10); /* the other ten: the mark is above all */
	assert_int_equal(b.n, 10);
	assert_true(b.settles[0].id > a.settles[9].id);
	exchange(&b, &a, "t", 10);
	assert_int_equal(a.n, 10);
	exchange(&a, &b, "t", 10);
	assert_int_equal(number("SELECT count(*) FROM job WHERE status = 4"), 20);
}

static void a_claim_that_found_few_above_the_mark_says_that_there_may_be_more(void **state)
{
	(void)state;
	struct batch a, b;
	start_many("t", 15);
	exchange(NULL, &a, "t", 10);
	retry_elsewhere(&a);
	assert_int_equal(exchange(NULL, &b, "t", 10), 0);
	assert_int_equal(b.n, 5);
	exchange(&b, &a, "t", 10);
	assert_int_equal(a.n, 10);
	assert_int_equal(exchange(&a, &b, "t", 10), -1);
}

/* Within a process the order is kept at once. */
static void what_this_process_puts_back_is_claimed_first(void **state)
{
	(void)state;
	struct batch a, b;
	start_many("t", 20);
	exchange(NULL, &a, "t", 10);
	for (size_t i = 0; i < a.n; i++)
		a.settles[i].kind = SL_SETTLE_RELEASE;
	exchange(&a, &b, "t", 10);
	assert_int_equal(b.n, 10);
	assert_int_equal(b.settles[0].id, a.settles[0].id);
}

static void what_is_urgent_goes_before_the_mark(void **state)
{
	(void)state;
	struct batch a, b;
	start_many("t", 20);
	exchange(NULL, &a, "t", 10);
	uint64_t urgent = start_one("t", -5);
	exchange(&a, &b, "t", 1);
	assert_int_equal(b.n, 1);
	assert_int_equal(b.settles[0].id, urgent);
}

/* A row of ready that its job has left, as a claim that was lost with the server's memory leaves it. */
static void a_row_that_its_job_has_left_is_skipped(void **state)
{
	(void)state;
	struct batch a, b;
	start_many("t", 1);
	assert_int_equal(pg_temp_exec(place.admin, "CREATE TEMP TABLE before AS SELECT * FROM ready"), 0);
	exchange(NULL, &a, "t", 10);
	exchange(&a, &b, "t", 10);
	start_many("t", 1);
	assert_int_equal(pg_temp_exec(place.admin, "INSERT INTO ready SELECT * FROM before; DROP TABLE before"), 0);
	exchange(NULL, &b, "t", 1);
	assert_int_equal(b.n, 1);
	assert_int_not_equal(b.settles[0].id, a.settles[0].id);
	assert_int_equal(number("SELECT count(*) FROM ready"), 0);
}

/* Another claimer holds all of the more urgent type; the other type must not be overlooked. */
static void a_type_that_others_are_claiming_does_not_hide_another(void **state)
{
	(void)state;
	struct batch b;
	PGconn *other = pg_temp_connect(place.server);
	(void)start_one("hot", 0);
	uint64_t cold = start_one("cold", 5);
	char sql[128];
	(void)snprintf(sql, sizeof(sql),
		       "SET search_path = %s; BEGIN; SELECT * FROM ready WHERE type = 'hot' FOR UPDATE", place.schema);
	assert_int_equal(pg_temp_exec(other, sql), 0);
	struct sl_claim_type types[2] = {{.type = "hot", .limit = 1, .free = 1},
					 {.type = "cold", .limit = 1, .free = 1}};
	struct sl_claim_request r = request_of(&b, types, 1);
	struct sl_claim_reply reply;
	r.n_types = 2;
	OK(store.ops->exchange(
		store.ctx, &(struct sl_exchange){.request = &r, .reply = &reply, .claimed = keep, .claimed_ctx = &b},
		NULL, &err));
	assert_int_equal(b.n, 1);
	assert_int_equal(b.settles[0].id, cold);
	PQfinish(other);
}

/* ---- sharing ---- */

struct starter {
	pthread_t thread;
	const char *input;
	int n, rc;
	struct sl_err err;
};

static void *starter_main(void *arg)
{
	struct starter *s = arg;
	for (int i = 0; i < s->n && s->rc == 0; i++) {
		struct sl_new_chain chain = {.job = {.type = "t", .input = s->input}};
		struct sl_started out;
		s->rc = store.ops->start(store.ctx, &chain, 1, NULL, &out, &s->err);
	}
	return NULL;
}

static void starts_that_share_a_transaction_do_not_fail_for_anothers_data(void **state)
{
	(void)state;
	struct starter s[6];
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 6; i++) {
			s[i] = (struct starter){.input = i == 0 ? "\"\xff\"" : "1", .n = i == 0 ? 1 : 10};
			pthread_create(&s[i].thread, NULL, starter_main, &s[i]);
		}
		for (int i = 0; i < 6; i++) {
			pthread_join(s[i].thread, NULL);
			assert_int_equal(s[i].rc, i == 0 ? SL_EDATA : 0);
		}
		assert_int_equal(s[0].err.error_class, SL_CLASS_POISON);
	}
	assert_int_equal(number("SELECT count(*) FROM job"), 20 * 5 * 10);
}

/* ---- calls that do not wait, and retries ---- */

static void progress_does_not_wait_for_a_transaction_that_has_the_job(void **state)
{
	(void)state;
	struct batch b;
	sl_store_tx *tx;
	enum sl_lost_reason why;
	uint64_t id = start_one("t", 0);
	exchange(NULL, &b, "t", 2);
	OK(store.ops->begin(store.ctx, &tx, &err));
	OK(store.ops->guard(store.ctx, tx, id, 1, &why, &err));
	assert_int_equal(why, SL_LOST_NOT);
	assert_int_equal(store.ops->progress(store.ctx, id, 1, "1", &why, &err), SL_EAGAIN);
	store.ops->rollback(tx);
	OK(store.ops->progress(store.ctx, id, 1, "2", &why, &err));
	assert_int_equal(why, SL_LOST_NOT);
	assert_int_equal(number("SELECT progress::integer FROM job"), 2);
	assert_int_equal(store.ops->progress(store.ctx, id, 9, "3", &why, &err), 0);
	assert_int_equal(why, SL_LOST_TAKEN);
}

/* One connection, so that it is the one that forgets. */
static void what_the_server_has_forgotten_is_prepared_again(void **state)
{
	(void)state;
	sl_store one;
	int64_t now;
	sl_store_tx *tx;
	assert_int_equal(pg_place_open(&place, &one, 1), 0);
	for (int i = 0; i < 4; i++) {
		OK(one.ops->now_ms(one.ctx, &now, &err));
		OK(one.ops->begin(one.ctx, &tx, &err));
		assert_int_equal(pg_temp_exec(one.ops->native(tx), "DEALLOCATE ALL"), 0);
		OK(one.ops->commit(tx, &err));
		int rc = one.ops->now_ms(one.ctx, &now, &err);
		if (i < 2) { /* from then on the connection does without */
			assert_int_equal(rc, SL_EAGAIN);
			assert_int_equal(sl_err_retryable(&err), 1);
			assert_string_equal(err.sqlstate, "26000");
		} else {
			assert_int_equal(rc, 0);
		}
		OK(one.ops->now_ms(one.ctx, &now, &err));
	}
	sl_store_close(&one);
}

static void a_call_of_a_client_outlives_statements_that_were_forgotten(void **state)
{
	(void)state;
	sl_store one;
	sl_store_tx *tx;
	sl_jobs *client;
	struct sl_started out;
	assert_int_equal(pg_place_open(&place, &one, 1), 0);
	struct sl_jobs_opts opts = {SL_JOBS_OPTS_INIT, .store = &one};
	OK(sl_jobs_open(&client, &opts, &err));
	struct sl_new_chain chain = {.job = {.type = "t"}};
	OK(sl_jobs_enqueue(client, NULL, &chain, &out, &err));
	OK(one.ops->begin(one.ctx, &tx, &err));
	assert_int_equal(pg_temp_exec(one.ops->native(tx), "DEALLOCATE ALL"), 0);
	OK(one.ops->commit(tx, &err));
	memset(&err, 0, sizeof(err));
	OK(sl_jobs_enqueue(client, NULL, &chain, &out, &err));
	assert_int_equal(err.code, 0); /* the failure that was retried is not reported */
	assert_int_equal(number("SELECT count(*) FROM ready"), 2);
	sl_jobs_close(client);
	sl_store_close(&one);
}

struct cancelling {
	sl_jobs *client;
	const uint64_t *ids;
	size_t n;
	int rc;
};

static void *cancel_both(void *arg)
{
	struct cancelling *c = arg;
	c->rc = sl_jobs_cancel(c->client, NULL, c->ids, 2, &c->n, NULL);
	return NULL;
}

static void *lock_the_other_way(void *arg)
{
	const uint64_t *ids = arg;
	char sql[96];
	(void)snprintf(sql, sizeof(sql), "SELECT 1 FROM job WHERE id = %llu FOR UPDATE", (unsigned long long)ids[0]);
	int rc = pg_temp_exec(place.admin, sql);
	if (pg_temp_exec(place.admin, rc == 0 ? "COMMIT" : "ROLLBACK") != 0)
		abort();
	return rc == 0 ? arg : NULL;
}

/* Only the client looks for deadlocks, so it is the one that is given up. It looks once, a second after it began to
 * wait: false when there was none yet, and the other one gave up. */
static bool deadlock(sl_jobs *client)
{
	uint64_t ids[2] = {start_one("t", 0), start_one("t", 0)};
	char sql[96];
	pthread_t other;
	void *done = NULL;
	assert_int_equal(pg_temp_exec(place.admin,
				      "BEGIN; SET LOCAL deadlock_timeout = '10min'; SET LOCAL lock_timeout = '10s'"),
			 0);
	(void)snprintf(sql, sizeof(sql), "SELECT 1 FROM job WHERE id = %llu FOR UPDATE", (unsigned long long)ids[1]);
	assert_int_equal(pg_temp_exec(place.admin, sql), 0);
	struct cancelling c = {.client = client, .ids = ids};
	pthread_t canceller;
	assert_int_equal(pthread_create(&canceller, NULL, cancel_both, &c), 0);
	PGconn *look = pg_temp_connect(place.server);
	while (pg_temp_number(look, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") != 1)
		;
	assert_int_equal(pthread_create(&other, NULL, lock_the_other_way, ids), 0);
	pthread_join(other, &done);
	pthread_join(canceller, NULL);
	assert_int_equal(c.rc, 0);
	assert_int_equal(c.n, 2);
	PQfinish(look);
	return done != NULL;
}

static void a_client_that_is_given_up_in_a_deadlock_tries_again(void **state)
{
	(void)state;
	sl_jobs *client;
	int tries = 1;
	struct sl_jobs_opts opts = {SL_JOBS_OPTS_INIT, .store = &store};
	OK(sl_jobs_open(&client, &opts, &err));
	while (!deadlock(client))
		tries++;
	assert_int_equal(number("SELECT count(*) FROM job WHERE status = 6"), 2 * tries);
	sl_jobs_close(client);
}

/* ---- hinted claims ---- */

static void a_hinted_claim_does_not_promote(void **state)
{
	(void)state;
	struct batch b;
	struct sl_claim_type types = {.type = "t", .limit = 4};
	struct sl_claim_reply reply;
	start_many("t", 2);
	assert_int_equal(pg_temp_exec(place.admin,
				      "WITH x AS (DELETE FROM ready WHERE id = (SELECT max(id) FROM ready) RETURNING *)"
				      " INSERT INTO sched (id, fence, due, priority, tried, type)"
				      " SELECT id, fence, now() - interval '1 minute', priority, false, type FROM x"),
			 0);
	struct sl_claim_request r = request_of(&b, &types, 4);
	r.hinted = 1;
	OK(store.ops->exchange(
		store.ctx, &(struct sl_exchange){.request = &r, .reply = &reply, .claimed = keep, .claimed_ctx = &b},
		NULL, &err));
	assert_int_equal(b.n, 1);
	assert_int_equal(reply.next_due_in_ms, 0);
	assert_int_equal(number("SELECT count(*) FROM sched"), 1);
	assert_int_equal(drain("t", 4), 1);
}

/* ---- notifications that are sent with a start ---- */

/* The notification that the store is to send, and the notes that it reports. */
struct herald {
	bool may;
	struct sl_start_notification words;
	unsigned asked, notes;
	struct sl_note note; /* the last */
};

static int may_notify(const char *type, struct sl_start_notification *out, void *ctx)
{
	struct herald *h = ctx;
	assert_string_equal(type, "t");
	h->asked++;
	*out = h->words;
	return h->may;
}

static void keep_note(const struct sl_note *note, void *ctx)
{
	struct herald *h = ctx;
	h->notes++;
	h->note = *note;
}

static int start_heard(struct herald *h, sl_store_tx *tx, const struct sl_new_chain *chains, size_t n)
{
	struct sl_started out[2];
	const struct sl_store_scope scope = {.tx = tx, .note = keep_note, .ctx = h, .start_notification = may_notify};
	assert_true(n <= 2);
	return store.ops->start(store.ctx, chains, n, &scope, out, &err);
}

static int start_input(struct herald *h, const char *input)
{
	struct sl_new_chain chain = {.job = {.type = "t", .input = input}};
	return start_heard(h, NULL, &chain, 1);
}

#define HERALD                                                                                                         \
	{                                                                                                              \
		.may = true, .words = {.channel = "herald", .before = "job ", .after = " came" }                       \
	}

/* What the admin's connection hears next; fails when that is something else. */
static void assert_heard(const char *text)
{
	PGnotify *got;
	while ((got = PQnotifies(place.admin)) == NULL)
		assert_int_equal(number("SELECT 1"), 1);
	assert_string_equal(got->extra, text);
	PQfreemem(got);
}

static void a_notification_is_sent_with_a_start_and_names_the_job(void **state)
{
	(void)state;
	struct herald h = HERALD;
	char text[64];
	assert_int_equal(pg_temp_exec(place.admin, "LISTEN herald"), 0);
	OK(start_input(&h, "1"));
	assert_int_equal(h.asked, 1);
	assert_int_equal(h.notes, 1);
	assert_int_equal(h.note.sent, 1);
	(void)snprintf(text, sizeof(text), "job %lld came", number("SELECT id FROM ready"));
	assert_heard(text);
	h.may = false;
	OK(start_input(&h, "2"));
	assert_int_equal(h.asked, 2);
	assert_int_equal(h.note.sent, 0);
	assert_int_equal(pg_temp_exec(place.admin, "NOTIFY herald, 'last'"), 0);
	assert_heard("last");
	assert_int_equal(pg_temp_exec(place.admin, "UNLISTEN herald"), 0);
	assert_int_equal(drain("t", 10), 2);
}

static void a_start_with_a_notification_does_not_read_the_queue(void **state)
{
	(void)state;
	struct herald h = HERALD;
	char sql[256];
	start_many("t", 3000);
	for (int i = 0; i < 10; i++)
		OK(start_input(&h, "1"));
	assert_int_equal(h.note.sent, 1);
	sl_store_close(&store); /* connections report their statistics when they end */
	await_connections("");
	(void)snprintf(sql, sizeof(sql),
		       "SELECT n_tup_ins FROM pg_stat_user_tables WHERE schemaname = '%s' AND relname = 'ready'",
		       place.schema);
	while (number(sql) < 3010)
		assert_int_equal(pg_temp_exec(place.admin, "SELECT pg_stat_clear_snapshot()"), 0);
	(void)snprintf(sql, sizeof(sql),
		       "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE schemaname = '%s'"
		       " AND indexrelname = 'ready_order'",
		       place.schema);
	printf("# %lld entries of ready read for 10 starts\n", number(sql));
	assert_in_range(number(sql), 0, 100);
	assert_int_equal(pg_place_open(&place, &store, 4), 0);
}

static void no_notification_is_sent_with_several_later_or_uncommitted_jobs(void **state)
{
	(void)state;
	struct herald h = HERALD;
	sl_store_tx *tx;
	struct sl_new_chain two[] = {{.job = {.type = "t"}}, {.job = {.type = "t"}}};
	struct sl_new_chain later = {.job = {.type = "t", .delay_ms = LONG_MS}};
	struct sl_new_chain keyed = {.job = {.type = "t"}, .key = "k"};
	OK(store.ops->begin(store.ctx, &tx, &err));
	OK(start_heard(&h, tx, two, 1));
	OK(store.ops->commit(tx, &err));
	OK(start_heard(&h, NULL, two, 2));
	OK(start_heard(&h, NULL, &later, 1));
	OK(start_heard(&h, NULL, &keyed, 1));
	assert_int_equal(h.asked, 0);
	assert_true(h.notes >= 4);
	assert_int_equal(h.note.sent, 0);
}

static void a_notification_that_the_server_refuses_does_not_fail_the_start(void **state)
{
	(void)state;
	struct herald h = {.may = true}; /* there is no channel without a name */
	OK(start_input(&h, "1"));
	assert_int_equal(h.note.sent, 0); /* so it is published */
	long long pid = number("SELECT pid FROM pg_stat_activity WHERE application_name = 'sluice'");
	h = (struct herald)HERALD;
	OK(start_input(&h, "2"));
	assert_int_equal(h.note.sent, 1);
	assert_int_equal(number("SELECT pid FROM pg_stat_activity WHERE application_name = 'sluice'"), pid);
	assert_int_equal(drain("t", 10), 2);
}

static void a_failed_start_sends_no_notification_and_its_connection_stays_usable(void **state)
{
	(void)state;
	struct herald h = HERALD;
	OK(start_input(&h, "1"));
	long long pid = number("SELECT pid FROM pg_stat_activity WHERE application_name = 'sluice'");
	assert_int_equal(start_input(&h, "\"\xff\""), SL_EDATA);
	assert_int_equal(h.asked, 2);
	assert_int_equal(h.notes, 1);
	OK(start_input(&h, "2"));
	assert_int_equal(h.note.sent, 1);
	assert_int_equal(number("SELECT pid FROM pg_stat_activity WHERE application_name = 'sluice'"), pid);
	assert_int_equal(number("SELECT count(*) FROM job"), 2);
}

static void a_server_that_is_lost_with_a_notification_makes_the_start_unavailable(void **state)
{
	(void)state;
	struct herald h = HERALD;
	const struct sl_store_scope scope = {.note = keep_note, .ctx = &h, .start_notification = may_notify};
	struct call c = {.scope = &scope};
	start_many("t", 1);
	assert_int_equal(pg_temp_exec(place.admin, "BEGIN; LOCK TABLE job"), 0);
	pthread_create(&c.thread, NULL, start_main, &c);
	await_waiter();
	pg_place_cut(&place);
	pthread_join(c.thread, NULL);
	assert_int_equal(pg_temp_exec(place.admin, "ROLLBACK"), 0);
	assert_int_equal(c.rc, SL_EUNAVAIL);
	assert_int_equal(h.asked, 1); /* it was not retried: it could have happened */
	assert_int_equal(h.notes, 0);
	assert_int_equal(number("SELECT count(*) FROM job"), 1);
	start_many("t", 1);
	assert_int_equal(drain("t", 10), 2);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(a_completion_that_waits_for_a_reaper_is_refused),
		TEST(a_completion_that_waits_for_a_reaper_that_fails_is_taken),
		TEST(a_completion_after_the_reaper_is_refused),
		TEST(a_reaper_skips_a_job_that_is_being_completed),
		TEST(a_reaper_takes_a_job_whose_completion_was_rolled_back),
		TEST(a_reaper_skips_a_job_that_is_guarded),
		TEST(a_claim_does_not_wait_for_a_locked_job),
		TEST(a_cancel_that_a_claim_of_one_job_meets_goes_through),
		TEST(a_guard_holds_the_first_job_of_the_chain_too),
		TEST(leases_are_renewed_in_the_order_of_their_claims),
		TEST(an_idle_connection_that_was_terminated_is_replaced_unnoticed),
		TEST(a_connection_that_dies_in_the_middle_is_unavailable_once),
		TEST(continuations_that_are_too_large_together_are_refused_before_they_are_sent),
		TEST(events_of_a_client_that_is_cut_off_do_not_stay_locked),
		TEST(a_transaction_of_the_caller_may_take_its_time),
		TEST(a_restarted_server_is_found_again),
		TEST(a_forked_child_is_refused),
		TEST(one_connection_is_enough_for_every_slot),
		TEST(transactions_leave_a_connection_for_everybody_else),
		TEST(a_renewal_has_its_own_connection),
		TEST(a_password_is_in_no_error),
		TEST(states_of_the_server_are_classified),
		TEST(many_may_migrate_at_once),
		TEST(a_newer_schema_is_refused),
		TEST(without_migration_an_empty_place_is_refused),
		TEST(a_job_and_the_callers_rows_happen_together_or_not_at_all),
		TEST(a_transaction_leaves_the_planner_to_the_callers_sql),
		TEST(an_exchange_is_one_round_trip),
		TEST(a_drain_updates_within_pages_and_scans_no_table),
		TEST(a_pinned_snapshot_does_not_make_claims_read_what_is_gone),
		TEST(what_comes_back_below_the_mark_is_claimed_again),
		TEST(a_claim_that_found_few_above_the_mark_says_that_there_may_be_more),
		TEST(what_this_process_puts_back_is_claimed_first),
		TEST(what_is_urgent_goes_before_the_mark),
		TEST(a_row_that_its_job_has_left_is_skipped),
		TEST(a_type_that_others_are_claiming_does_not_hide_another),
		TEST(progress_does_not_wait_for_a_transaction_that_has_the_job),
		TEST(what_the_server_has_forgotten_is_prepared_again),
		TEST(a_call_of_a_client_outlives_statements_that_were_forgotten),
		TEST(a_client_that_is_given_up_in_a_deadlock_tries_again),
		TEST(starts_that_share_a_transaction_do_not_fail_for_anothers_data),
		TEST(a_hinted_claim_does_not_promote),
		TEST(a_notification_is_sent_with_a_start_and_names_the_job),
		TEST(a_start_with_a_notification_does_not_read_the_queue),
		TEST(no_notification_is_sent_with_several_later_or_uncommitted_jobs),
		TEST(a_notification_that_the_server_refuses_does_not_fail_the_start),
		TEST(a_failed_start_sends_no_notification_and_its_connection_stays_usable),
		TEST(a_server_that_is_lost_with_a_notification_makes_the_start_unavailable),
	};
	int rc = pg_place_start(&place, PG_TEMP_DURABLE);
	if (rc != 0)
		return rc;
	rc = cmocka_run_group_tests_name("postgres", tests, NULL, NULL);
	pg_place_stop(&place);
	return rc;
}
