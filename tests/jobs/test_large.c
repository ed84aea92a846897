/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of a store with 150,000 jobs: what they read stays bounded, whatever they look for. With SQLite, the steps of
 * every statement are counted and its plan is checked; with PostgreSQL, the rows that it has read are counted.
 *
 *   1 … 150,000   old: completed, but each 50,000th failed and each 40,000th cancelled; 70,000 is the only one of its
 * type the next 100  pending
 */
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#include "jobs/contract_kit.h"
#include "jobs/pg_place.h"
#include "jobs/sqlite_place.h"

#define OLD 150000
#define SCAN 5000
#define BIT(status) (1u << (status))

static struct pg_place server;
static bool no_server;

/* ---- filling ---- */

#define STATUS_OF(n) "CASE WHEN " n " % 50000 = 0 THEN 5 WHEN " n " % 40000 = 0 THEN 6 ELSE 4 END"

static void fill_sqlite(const char *path)
{
	assert_int_equal(
		sqlite_do(path,
			  "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM n WHERE n<150000)"
			  "INSERT INTO "
			  "sluice_job(id,chain_id,type,status,fence,attempt,charged,priority,flags,created_us,"
			  "blockers_open,started_us,ended_us,error,input) SELECT n,n,CASE n WHEN 70000 THEN 'rare' "
			  "ELSE 'old'"
			  " END," STATUS_OF(
				  "n") ",1,1,1,0,0,1000000+n,0,2000000+n,3000000+n,"
				       "CASE WHEN n%50000=0 THEN 'broken'||char(10)||n END,'\"some input to "
				       "read, needle '||n||'\"' FROM n;"
				       "INSERT INTO sluice_count SELECT type,0,0,0,0,0,sum(status=4),sum(status=5),"
				       "sum(status=6) FROM sluice_job GROUP BY 1;"
				       "UPDATE sluice_meta SET value=150001 WHERE name='next_id'"),
		SQLITE_OK);
}

static void fill_postgres(void)
{
	assert_int_equal(
		pg_temp_exec(
			server.admin,
			"INSERT INTO job (id, chain_id, created_at, started_at, ended_at, priority, attempt, status,"
			" type, error, input) SELECT n, n, to_timestamp(1 + n), to_timestamp(2 + n), to_timestamp(3 + "
			"n),"
			" 0, 1, " STATUS_OF(
				"n") ", CASE n WHEN 70000 THEN 'rare' ELSE 'old' END,"
				     " CASE WHEN n % 50000 = 0 THEN E'broken\\n' || n END, '\"some input to read, "
				     "needle ' || n || '\"'"
				     " FROM generate_series(1, 150000) n;"
				     "INSERT INTO stopped SELECT status, id, chain_id FROM job WHERE status IN (5, 6);"
				     "INSERT INTO tally SELECT type, status, count(*), 0 FROM job GROUP BY 1, 2;"
				     "SELECT setval('job_id', 150000)"),
		0);
}

/* ---- what was read ---- */

/* SQLite: steps of the machine that runs statements, and the plans of those that read jobs. */
static struct {
	uint64_t steps;
	char scans[4096]; /* plans that read a table of jobs from end to end */
	sqlite3 *explain;
} seen;

static void explain(const char *sql)
{
	char *text = sqlite3_mprintf("EXPLAIN QUERY PLAN %s", sql);
	sqlite3_stmt *s = NULL;
	if (seen.explain != NULL && sqlite3_prepare_v2(seen.explain, text, -1, &s, NULL) == SQLITE_OK)
		while (sqlite3_step(s) == SQLITE_ROW) {
			const char *detail = (const char *)sqlite3_column_text(s, 3);
			bool job = strncmp(detail, "SCAN sluice_job", 15) == 0 || strncmp(detail, "SCAN j", 6) == 0 ||
				   strncmp(detail, "SCAN h", 6) == 0;
			size_t used = strlen(seen.scans);
			if (job && strstr(detail, "INDEX") == NULL)
				(void)snprintf(seen.scans + used, sizeof(seen.scans) - used, "%s: %s\n", detail, sql);
		}
	(void)sqlite3_finalize(s);
	sqlite3_free(text);
}

static int watch(unsigned what, void *ctx, void *stmt, void *x)
{
	(void)what;
	(void)ctx;
	(void)x;
	int steps = sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_VM_STEP, 0);
	seen.steps += (uint64_t)steps;
	if (strstr(sqlite3_sql(stmt), "sluice_job") != NULL)
		explain(sqlite3_sql(stmt));
	return 0;
}

/* Called for every connection that is opened. */
static int watch_all(sqlite3 *db, const char **error, const void *api)
{
	(void)error;
	(void)api;
	return sqlite3_trace_v2(db, SQLITE_TRACE_PROFILE, watch, NULL);
}

/* ---- the store and its lists ---- */

struct world {
	struct kit k;
	struct sqlite_place files;
	bool postgres;
	uint64_t rows; /* PostgreSQL: read so far */
};

static void open_store(struct world *w)
{
	struct sl_err err = SL_ERR_INIT;
	int rc = w->postgres ? pg_place_open(&server, &w->k.store, 0)
			     : sl_store_sqlite_open(&w->k.store, w->files.path, NULL, &err);
	assert_int_equal(rc, 0);
	w->k.ops = w->k.store.ops;
	w->k.s = w->k.store.ctx;
}

/* Counters of the server are written when a connection ends: when it is not listed any more. */
static uint64_t rows_read(void)
{
	while (pg_temp_number(server.admin, "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
					    " AND backend_type = 'client backend'") > 0)
		;
	(void)pg_temp_exec(server.admin, "SELECT pg_stat_clear_snapshot()");
	return (uint64_t)pg_temp_number(
		server.admin, "SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)"
			      " FROM pg_stat_user_tables WHERE relname IN ('job', 'stopped', 'ready', 'sched')"
			      " AND schemaname = current_schema()");
}

static void begin(struct world *w)
{
	if (w->postgres) {
		sl_store_close(&w->k.store);
		w->rows = rows_read();
		open_store(w);
	}
	seen.steps = 0;
	seen.scans[0] = '\0';
}

/* At most `rows` rows were read; with SQLite, at most about 50 steps for each row were taken. */
static void end(struct world *w, const char *what, uint64_t rows, bool walk)
{
	if (!w->postgres) {
		printf("# sqlite: %s: %" PRIu64 " steps\n", what, seen.steps);
		if (seen.steps > 20000 + rows * 50)
			fail_msg("%s takes %" PRIu64 " steps", what, seen.steps);
		if (!walk && seen.scans[0] != '\0')
			fail_msg("%s reads all jobs: %s", what, seen.scans);
		return;
	}
	sl_store_close(&w->k.store);
	uint64_t read = rows_read() - w->rows;
	printf("# postgres: %s: %" PRIu64 " rows\n", what, read);
	if (read > 3000 + rows * 3)
		fail_msg("%s reads %" PRIu64 " rows", what, read);
	open_store(w);
}

static void expect(struct world *w, const char *what, struct sl_job_filter f, uint64_t rows, size_t n, uint64_t first)
{
	for (int chains = 0; chains < 2; chains++) {
		struct kit_ids got;
		char name[96];
		(void)snprintf(name, sizeof(name), "%s of %s", what, chains ? "chains" : "jobs");
		begin(w);
		(chains ? kit_list_chains : kit_list)(&w->k, &f, &got);
		end(w, name, rows, f.statuses == 0 || f.scan != 0);
		assert_int_equal(got.n, n);
		if (n > 0)
			assert_int_equal(got.ids[0], first);
	}
}

static int count_group(const struct sl_error_group *g, void *ctx)
{
	*(uint64_t *)ctx += g->count;
	return 0;
}

static void lists_read_little(struct world *w)
{
	static const char *const rare[] = {"rare"};
	uint64_t reached = 0, failed = 0;
	for (int i = 0; i < 100; i++)
		kit_start(&w->k, "new");
	expect(w, "the newest", (struct sl_job_filter){.limit = 50}, 50, 50, OLD + 100);
	expect(w, "a page in the middle", (struct sl_job_filter){.limit = 50, .after = 75000}, 50, 50, 74999);
	expect(w, "the oldest", (struct sl_job_filter){.limit = 50, .ascending = true}, 50, 50, 1);
	expect(w, "failed", (struct sl_job_filter){.limit = 50, .statuses = BIT(SL_JOB_FAILED)}, 50, 3, 150000);
	expect(w, "cancelled", (struct sl_job_filter){.limit = 50, .statuses = BIT(SL_JOB_CANCELLED)}, 50, 3, 120000);
	expect(w, "pending", (struct sl_job_filter){.limit = 50, .statuses = BIT(SL_JOB_PENDING)}, 400, 50, OLD + 100);
	expect(w, "running", (struct sl_job_filter){.limit = 50, .statuses = BIT(SL_JOB_RUNNING)}, 50, 0, 0);
	expect(w, "failed by error",
	       (struct sl_job_filter){.limit = 50, .statuses = BIT(SL_JOB_FAILED), .error = "broken", .scan = SCAN}, 50,
	       3, 150000);
	expect(w, "a rare type, bounded",
	       (struct sl_job_filter){.limit = 50, .types = rare, .n_types = 1, .scan = SCAN, .reached = &reached},
	       SCAN, 0, 0);
	assert_int_equal(reached, OLD + 100 - SCAN + 1);
	expect(w, "a rare text, bounded",
	       (struct sl_job_filter){.limit = 50, .text = "needle 7\"", .scan = SCAN, .reached = &reached}, SCAN, 0,
	       0);
	expect(w, "a rare text, where it is",
	       (struct sl_job_filter){
		       .limit = 50, .text = "needle 7\"", .after = 4000, .scan = SCAN, .reached = &reached},
	       SCAN, 1, 7);
	assert_int_equal(reached, 0);
	begin(w);
	KIT_OK(w->k.ops->errors(w->k.s, &(struct sl_error_filter){0}, count_group, &failed, err));
	end(w, "errors", 50, false);
	assert_int_equal(failed, 3);
}

/* More than are read whole for a list by status. */
enum { MANY = 10200 };

static void the_oldest_of_many_that_wait_are_found_after_a_long_history(struct world *w)
{
	struct sl_new_chain *chains = calloc(MANY, sizeof(*chains));
	struct sl_started *out = calloc(MANY, sizeof(*out));
	struct sl_job_filter f = {.limit = 50, .statuses = BIT(SL_JOB_PENDING), .ascending = true, .scan = SCAN};
	struct kit_ids got;
	for (size_t i = 0; i < MANY; i++)
		chains[i] = (struct sl_new_chain){.job = {.type = "new", .priority = -1}};
	KIT_OK(w->k.ops->start(w->k.s, chains, MANY, NULL, out, err));
	free(chains);
	free(out);
	begin(w);
	kit_list(&w->k, &f, &got);
	end(w, "the oldest of many that wait", 2 * SCAN, true);
	assert_int_equal(got.n, 50);
	assert_int_equal(got.ids[0], OLD + 1);
	f.after = OLD + 60;
	kit_list(&w->k, &f, &got);
	assert_int_equal(got.n, 50);
	assert_int_equal(got.ids[0], OLD + 61);
	f.after = 0;
	begin(w);
	kit_list_chains(&w->k, &f, &got);
	end(w, "the oldest chains of many that wait", 2 * SCAN, true);
	assert_int_equal(got.n, 50);
	assert_int_equal(got.ids[0], OLD + 1);
}

/* With the jobs of the test before, and a history of the same length after them. */
static void the_newest_of_many_that_wait_are_found_before_a_long_history(struct world *w)
{
	struct sl_job_filter f = {.limit = 50, .statuses = BIT(SL_JOB_PENDING), .scan = SCAN};
	if (w->postgres)
		assert_int_equal(pg_temp_exec(server.admin,
					      "INSERT INTO job (id, chain_id, created_at, ended_at, priority, status,"
					      " type, input) SELECT n, n, now(), now(), 0, 4, 'last', '1'"
					      " FROM generate_series(200001, 230000) n"),
				 0);
	else
		assert_int_equal(
			sqlite_do(w->files.path,
				  "WITH RECURSIVE n(n) AS (SELECT 200001 UNION ALL SELECT n+1 FROM n WHERE"
				  " n<230000) INSERT INTO sluice_job(id,chain_id,type,status,fence,attempt,"
				  "charged,priority,flags,created_us,blockers_open,ended_us,input) SELECT n,n,'last',"
				  "4,1,1,1,0,0,1,0,1,'1' FROM n"),
			SQLITE_OK);
	expect(w, "the newest of many that wait", f, 2 * SCAN, 50, OLD + 100 + MANY);
}

static int find_new(const struct sl_job_count *c, void *ctx)
{
	if (strcmp(c->type, "new") == 0 && c->status == SL_JOB_PENDING)
		*(struct sl_job_count *)ctx = *c;
	return 0;
}

/* After the history, and with the jobs of the test before. */
static void what_waits_is_counted_without_being_read(struct world *w)
{
	struct sl_job_count c = {0};
	struct kit_row oldest;
	kit_get(&w->k, OLD + 1, &oldest);
	begin(w);
	KIT_OK(w->k.ops->counts(w->k.s, find_new, &c, err));
	end(w, "counts", 100, true);
	assert_int_equal(c.count, 100 + MANY);
	assert_int_equal(c.due, c.count);
	assert_int_equal(c.oldest_ms, oldest.job.created_ms);
	assert_int_equal(c.oldest_due_ms, oldest.job.created_ms);
}

/* A million takes no longer than these, of which no more than a third is read. */
static void what_waits_for_its_time_is_counted_without_being_read(struct world *w)
{
	struct sl_job_count c = {0};
	assert_int_equal(
		pg_temp_exec(server.admin,
			     "DELETE FROM ready; DELETE FROM job WHERE id > 150000;"
			     "INSERT INTO job (id, chain_id, created_at, scheduled_for, priority, status, type, input)"
			     " SELECT n, n, now(), now() + interval '1 day', 0, 2, 'new', '1'"
			     " FROM generate_series(300001, 360000) n;"
			     "INSERT INTO sched (id, fence, due, priority, tried, type)"
			     " SELECT id, 1, scheduled_for, 0, id % 20000 = 0, type FROM job WHERE id > 300000;"
			     "INSERT INTO ready (id, fence, priority, solo, type) VALUES (149999, 1, 0, false, 'new');"
			     "UPDATE job SET status = 2, type = 'new', ended_at = NULL WHERE id = 149999;"
			     "DELETE FROM tally WHERE type = 'new';"
			     "INSERT INTO tally (type, status, n, was) VALUES ('new', 2, 60001, 0);"
			     "SELECT pg_stat_force_next_flush()"),
		0);
	begin(w);
	KIT_OK(w->k.ops->counts(w->k.s, find_new, &c, err));
	end(w, "counts with many for later", 6000, true);
	assert_int_equal(c.count, 60001);
	assert_int_equal(c.due, 1);
	assert_int_equal(c.retrying, 3);
	assert_int_equal(c.oldest_ms, (1 + 149999) * INT64_C(1000));
	/* And when their time has come, and no worker claims. */
	assert_int_equal(pg_temp_exec(server.admin, "DELETE FROM ready; UPDATE job SET status = 4 WHERE id = 149999;"
						    "UPDATE tally SET n = 60000 WHERE type = 'new';"
						    "UPDATE sched SET due = now() - interval '1 hour';"
						    "SELECT pg_stat_force_next_flush()"),
			 0);
	begin(w);
	KIT_OK(w->k.ops->counts(w->k.s, find_new, &c, err));
	end(w, "counts with many whose time has come", 6000, true);
	assert_int_equal(c.count, 60000);
	assert_int_equal(c.due, 60000);
	assert_int_equal(c.retrying, 0);
	assert_true(c.oldest_due_ms > c.oldest_ms);
}

/* 60,000 jobs for later, of which each 20,000th failed before; and those of the tests before, which are ready. */
static void the_states_of_many_that_wait_are_listed_apart(struct world *w)
{
	struct sl_job_filter f = {.limit = 50};
	if (w->postgres)
		assert_int_equal(
			pg_temp_exec(server.admin,
				     "INSERT INTO job (id, chain_id, created_at, scheduled_for, priority, status, type,"
				     " charged, input) SELECT n, n, now(), now() + interval '1 day', 0, 2, 'later',"
				     " (n % 20000 = 0)::integer, '1' FROM generate_series(400001, 460000) n;"
				     "INSERT INTO sched (id, fence, due, priority, tried, type)"
				     " SELECT id, 1, scheduled_for, 0, charged > 0, type FROM job WHERE id > 400000;"
				     "INSERT INTO tally (type, status, n, was) VALUES ('later', 2, 60000, 0)"),
			0);
	else
		assert_int_equal(
			sqlite_do(w->files.path,
				  "WITH RECURSIVE n(n) AS (SELECT 400001 UNION ALL SELECT n+1 FROM n WHERE n<460000)"
				  " INSERT INTO sluice_job(id,chain_id,type,status,fence,attempt,charged,priority,"
				  "flags,created_us,due_us,blockers_open,input) SELECT n,n,'later',2,1,0,n%20000=0,"
				  "0,0,1,strftime('%s','now','+1 day')*1000000,0,'1' FROM n;"
				  "INSERT INTO sluice_sched SELECT type,due_us,id,0,0,charged FROM sluice_job"
				  " WHERE id>400000;"
				  "INSERT INTO sluice_count VALUES('later',0,0,0,60000,3,0,0,0)"),
			SQLITE_OK);
	f.statuses = BIT(SL_JOB_RETRYING);
	expect(w, "few that are retrying", f, 100, 3, 460000);
	f.statuses = BIT(SL_JOB_READY);
	expect(w, "the ready of many that wait", f, 2 * MANY, 50, OLD + 100 + MANY);
	f.statuses = BIT(SL_JOB_SCHEDULED);
	expect(w, "the scheduled of many that wait", f, 4 * MANY, 50, 459999);
	f.ascending = true;
	expect(w, "the oldest scheduled of many", f, 4 * MANY, 50, 400001);
	f.statuses = BIT(SL_JOB_RETRYING) | BIT(SL_JOB_FAILED);
	expect(w, "failed and retrying", f, 100, 6, 50000);
	if (w->postgres)
		assert_int_equal(pg_temp_exec(server.admin, "DELETE FROM sched; DELETE FROM job WHERE type = 'later';"
							    "DELETE FROM tally WHERE type = 'later'"),
				 0);
}

static void lists_of_a_large_sqlite_store_read_little(void **state)
{
	struct world w = {0};
	(void)state;
	assert_int_equal(sqlite_place_init(&w.files), 0);
	(void)sqlite3_auto_extension((void (*)(void))watch_all);
	open_store(&w);
	fill_sqlite(w.files.path);
	assert_int_equal(sqlite3_open(w.files.path, &seen.explain), SQLITE_OK);
	lists_read_little(&w);
	the_oldest_of_many_that_wait_are_found_after_a_long_history(&w);
	the_newest_of_many_that_wait_are_found_before_a_long_history(&w);
	what_waits_is_counted_without_being_read(&w);
	the_states_of_many_that_wait_are_listed_apart(&w);
	(void)sqlite3_close(seen.explain);
	seen.explain = NULL;
	sqlite3_reset_auto_extension();
	sl_store_close(&w.k.store);
	sqlite_place_fini(&w.files);
}

static void lists_of_a_large_postgres_store_read_little(void **state)
{
	struct world w = {.postgres = true};
	(void)state;
	if (no_server)
		skip();
	assert_int_equal(pg_place_set_up(&server), 0);
	open_store(&w);
	fill_postgres();
	/* Before the server knows anything of the table, and after. */
	lists_read_little(&w);
	assert_int_equal(pg_temp_exec(server.admin, "DELETE FROM ready; DELETE FROM job WHERE id > 150000;"
						    " DELETE FROM tally WHERE status = 2;"
						    " SELECT setval('job_id', 150000)"),
			 0);
	assert_int_equal(pg_temp_exec(server.admin, "VACUUM ANALYZE job"), 0);
	assert_int_equal(pg_temp_exec(server.admin, "ANALYZE stopped"), 0);
	lists_read_little(&w);
	the_oldest_of_many_that_wait_are_found_after_a_long_history(&w);
	the_newest_of_many_that_wait_are_found_before_a_long_history(&w);
	what_waits_is_counted_without_being_read(&w);
	the_states_of_many_that_wait_are_listed_apart(&w);
	what_waits_for_its_time_is_counted_without_being_read(&w);
	sl_store_close(&w.k.store);
	pg_place_tear_down(&server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_of_a_large_sqlite_store_read_little),
		cmocka_unit_test(lists_of_a_large_postgres_store_read_little),
	};
	kit_set_thread();
	int rc = pg_place_start(&server, PG_TEMP_FAST);
	no_server = rc == 77;
	if (rc != 0 && !no_server)
		return rc;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	if (!no_server)
		pg_place_stop(&server);
	return rc;
}
