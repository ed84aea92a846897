/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes of the SQLite sink share transactions: what one of them does to a transaction must not show in the others. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "base/env.h"
#include "sink/contract_kit.h"
#include "sink/place.h"
#include "support/budget.h"

#define LANES 6
#define BATCH 40
#define LONG_BATCH 2500
#define TEXT_BYTES 48

static struct place place;

static int set_up(void **state)
{
	(void)state;
	return place_init(&place, "db");
}

static int tear_down(void **state)
{
	(void)state;
	place_fini(&place);
	return 0;
}

/* The first column of the first row; 0 without one. */
static int64_t ask(const char *sql)
{
	sqlite3 *db = NULL;
	sqlite3_stmt *s = NULL;
	int64_t answer = 0;
	assert_int_equal(sqlite3_open(place.path, &db), SQLITE_OK);
	for (const char *rest = sql; *rest != '\0'; sqlite3_finalize(s)) {
		if (sqlite3_prepare_v2(db, rest, -1, &s, &rest) != SQLITE_OK)
			fail_msg("%s: %s", sql, sqlite3_errmsg(db));
		while (sqlite3_step(s) == SQLITE_ROW)
			answer = sqlite3_column_int64(s, 0);
	}
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	return answer;
}

/* Of the database's header: one more with every transaction (of a rollback journal). */
static unsigned transactions(void)
{
	size_t n = 0;
	char *file = place_read(place.path, &n);
	assert_true(n >= 28);
	unsigned value = 0;
	for (int i = 24; i < 28; i++)
		value = value << 8 | (unsigned char)file[i];
	free(file);
	return value;
}

/* ---- lanes that start together, again and again ---- */

struct crowd {
	const sl_sink *sink;
	pthread_barrier_t gate;
	double until;
	bool over;
	_Atomic unsigned batches, good, bad;
};

/* Every third batch has a row that breaks the transaction: id 0 is there already. */
static size_t bad_row(unsigned number, size_t n)
{
	return number % 3 == 0 ? number / 3 % n : n;
}

static void make_batch(unsigned number, size_t n, char (*text)[TEXT_BYTES], struct sl_sink_item *items)
{
	for (size_t i = 0; i < n; i++) {
		unsigned long long id = i == bad_row(number, n) ? 0 : (unsigned long long)number * LONG_BATCH + i + 1;
		int len = snprintf(text[i], TEXT_BYTES, "{\"id\":%llu,\"batch\":%u}", id, number);
		items[i] = (struct sl_sink_item){.data = text[i], .len = (size_t)len, .position = i};
	}
}

/* Some batches are longer than the rows that a lane holds at a time. */
static bool deliver(struct crowd *c, void *lane, unsigned number)
{
	size_t n = number % 8 == 5 ? LONG_BATCH : BATCH, bad = bad_row(number, n);
	char(*text)[TEXT_BYTES] = calloc(n, sizeof(*text));
	struct sl_sink_item *items = calloc(n, sizeof(*items));
	struct sink_delivery d = {.writes = 0};
	if (text == NULL || items == NULL)
		abort();
	make_batch(number, n, text, items);
	bool right = sink_deliver(c->sink, lane, items, n, &d) == 0;
	right = right && (bad == n ? d.dead.n == 0 : d.dead.n == 1 && d.dead.at[0] == bad);
	c->good += (unsigned)(n - d.dead.n);
	c->bad += (unsigned)d.dead.n;
	sink_delivery_fini(&d);
	free(items);
	free(text);
	return right;
}

static void *run_lane(void *arg)
{
	struct crowd *c = arg;
	void *lane = sink_attach(c->sink), *wrong = NULL;
	for (;;) {
		if (pthread_barrier_wait(&c->gate) == PTHREAD_BARRIER_SERIAL_THREAD)
			c->over = c->batches >= 20 * LANES && seconds_now() >= c->until;
		(void)pthread_barrier_wait(&c->gate);
		if (c->over)
			break;
		if (!deliver(c, lane, c->batches++))
			wrong = arg;
	}
	sink_detach(c->sink, lane);
	return wrong;
}

static void run_crowd(struct crowd *c)
{
	pthread_t threads[LANES];
	assert_int_equal(pthread_barrier_init(&c->gate, NULL, LANES), 0);
	for (int i = 0; i < LANES; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run_lane, c), 0);
	for (int i = 0; i < LANES; i++) {
		void *wrong;
		assert_int_equal(pthread_join(threads[i], &wrong), 0);
		assert_null(wrong);
	}
	(void)pthread_barrier_destroy(&c->gate);
}

static void a_row_that_breaks_a_shared_transaction_costs_itself_only(void **state)
{
	const struct sl_sink_opts opts = {SL_SINK_OPTS_INIT, .table = "t"};
	struct crowd c = {.until = seconds_now() + test_seconds(1)};
	struct sl_err err = SL_ERR_INIT;
	sl_sink sink = {0};
	(void)state;
	(void)ask("PRAGMA synchronous=OFF; CREATE TABLE t(id INTEGER UNIQUE ON CONFLICT ROLLBACK, batch INTEGER);"
		  "INSERT INTO t VALUES (0, -1)");
	if (sl_sink_sqlite_open(&sink, place.path, &opts, &err) != 0)
		fail_msg("%s", err.msg);
	c.sink = &sink;
	unsigned before = transactions();
	run_crowd(&c);
	sl_sink_close(&sink);
	print_message("# %u batches, %u rows, %u refused, in %u transactions\n", c.batches, c.good, c.bad,
		      transactions() - before);
	assert_int_equal(ask("SELECT count(*) FROM t"), c.good + 1);
	assert_int_equal(ask("SELECT count(DISTINCT id) FROM t"), c.good + 1);
	assert_int_equal(c.bad, (c.batches + 2) / 3);
}

/* ---- one transaction for all that wait ---- */

/* A clock that counts the threads that wait without a deadline: those whose batch is behind another one. */
static _Atomic unsigned waiting;

static int counting_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline_ns, void *ctx)
{
	static _Thread_local bool counted;
	if (deadline_ns == SL_FOREVER && !counted) {
		counted = true;
		waiting++;
	}
	return sl__clock_real.wait(cond, mutex, deadline_ns, ctx);
}

struct one {
	const sl_sink *sink;
	unsigned number;
	pthread_t thread;
};

static void *write_one(void *arg)
{
	struct one *o = arg;
	struct crowd c = {.sink = o->sink};
	void *lane = sink_attach(c.sink);
	bool right = deliver(&c, lane, 24 * o->number + 1); /* neither long nor bad */
	sink_detach(c.sink, lane);
	return right ? NULL : arg;
}

static void hold(sqlite3 **db)
{
	assert_int_equal(sqlite3_open(place.path, db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(*db, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
}

static void let_go(sqlite3 *db)
{
	assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void batches_that_wait_for_another_are_written_in_its_transaction(void **state)
{
	struct sl_clock clock = sl__clock_real;
	clock.wait = counting_wait;
	const struct sl_env env = {SL_ENV_INIT, .clock = &clock};
	const struct sl_sink_opts opts = {SL_SINK_OPTS_INIT, .env = &env, .table = "t"};
	struct one lanes[LANES];
	struct sl_err err = SL_ERR_INIT;
	sl_sink sink = {0};
	sqlite3 *holder = NULL;
	(void)state;
	(void)ask("CREATE TABLE t(id INTEGER PRIMARY KEY, batch INTEGER)");
	if (sl_sink_sqlite_open(&sink, place.path, &opts, &err) != 0)
		fail_msg("%s", err.msg);
	unsigned before = transactions();
	hold(&holder);
	for (unsigned i = 0; i < LANES; i++) {
		lanes[i] = (struct one){.sink = &sink, .number = i};
		assert_int_equal(pthread_create(&lanes[i].thread, NULL, write_one, &lanes[i]), 0);
	}
	while (waiting < LANES - 1)
		(void)sched_yield();
	let_go(holder);
	for (unsigned i = 0; i < LANES; i++) {
		void *wrong;
		assert_int_equal(pthread_join(lanes[i].thread, &wrong), 0);
		assert_null(wrong);
	}
	sl_sink_close(&sink);
	assert_int_equal(ask("SELECT count(*) FROM t"), LANES * BATCH);
	assert_int_equal(transactions() - before, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_row_that_breaks_a_shared_transaction_costs_itself_only, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(batches_that_wait_for_another_are_written_in_its_transaction, set_up,
						tear_down),
	};
	return cmocka_run_group_tests_name("sqlite_lanes", tests, NULL, NULL);
}
