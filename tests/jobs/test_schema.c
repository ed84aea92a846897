/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores that an earlier version has filled (schema/v<N>-*.sql, see schema/make-fixture) under this one: all of it is
 * there, and can be worked on. Every earlier version must have its two fixtures.
 *
 * Other processes are this program again: "open" and a URL open a store when their stdin ends.
 */
#include <errno.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jobs/contract_kit.h"
#include "jobs/pg_place.h"
#include "jobs/sqlite_place.h"

#define PROCESSES 6

/* Where the fixtures go. */
struct world {
	struct kit k;
	struct sqlite_place files;
	char url[512];
	bool postgres;
};

static struct pg_place server;
static bool no_server;

/* ---- fixtures ---- */

static char *read_fixture(int version, const char *kind)
{
	char name[512];
	const char *dir = getenv("SLUICE_SCHEMA_DIR");
	(void)snprintf(name, sizeof name, "%s/v%d-%s.sql", dir != NULL ? dir : "tests/jobs/schema", version, kind);
	FILE *f = fopen(name, "r");
	if (f == NULL)
		fail_msg("%s: %s", name, strerror(errno));
	char *text = calloc(1, 1 << 20);
	size_t n = fread(text, 1, (1 << 20) - 1, f);
	assert_true(n > 1000 && n < (1 << 20) - 1);
	(void)fclose(f);
	return text;
}

static void load_sqlite(struct world *w, int version)
{
	char *sql = read_fixture(version, "sqlite");
	sqlite3 *db = NULL;
	assert_int_equal(sqlite_place_init(&w->files), 0);
	(void)snprintf(w->url, sizeof w->url, "sqlite:%s", w->files.path);
	assert_int_equal(sqlite3_open(w->files.path, &db), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		fail_msg("fixture: %s", sqlite3_errmsg(db));
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	free(sql);
}

static void load_postgres(struct world *w, int version)
{
	char *sql = read_fixture(version, "postgres");
	PGconn *conn = pg_temp_connect(server.server);
	(void)snprintf(w->url, sizeof w->url, "%s", pg_temp_url(server.server));
	assert_int_equal(pg_temp_exec(server.admin, "DROP SCHEMA IF EXISTS sluice CASCADE"), 0);
	PGresult *res = PQexec(conn, sql);
	if (PQresultStatus(res) != PGRES_TUPLES_OK && PQresultStatus(res) != PGRES_COMMAND_OK)
		fail_msg("fixture: %s", PQresultErrorMessage(res));
	PQclear(res);
	PQfinish(conn);
	free(sql);
}

static void load(struct world *w, bool postgres, int version)
{
	memset(w, 0, sizeof *w);
	w->postgres = postgres;
	if (postgres)
		load_postgres(w, version);
	else
		load_sqlite(w, version);
}

static void open_world(struct world *w)
{
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .create = SL_OFF, .connect_timeout_ms = PG_PLACE_CONNECT_MS};
	KIT_OK(sl_store_open(&w->k.store, w->url, &opts, err));
	w->k.ops = w->k.store.ops;
	w->k.s = w->k.store.ctx;
}

static void close_world(struct world *w)
{
	if (w->k.ops != NULL)
		sl_store_close(&w->k.store);
	if (!w->postgres)
		sqlite_place_fini(&w->files);
}

/* ---- what is there ---- */

static void expect_job(struct kit *k, uint64_t id, const char *type, enum sl_job_status status, int attempt,
		       const char *input)
{
	struct kit_row row;
	kit_get(k, id, &row);
	assert_string_equal(row.type, type);
	assert_int_equal(row.job.status, status);
	assert_int_equal(row.job.attempt, attempt);
	assert_string_equal(row.input, input);
	assert_true(row.job.created_ms > 0);
}

static void the_jobs_are_there(struct kit *k)
{
	struct kit_row row;
	struct kit_chain chain;
	struct kit_ids ids;
	expect_job(k, 1, "done", SL_JOB_COMPLETED, 1, "{\"to\":\"ä\"}");
	kit_get(k, 1, &row);
	assert_string_equal(row.output, "{\"sent\":1}");
	assert_string_equal(row.progress, "1");
	assert_string_equal(row.key, "once");
	expect_job(k, 2, "chain", SL_JOB_COMPLETED, 1, "1");
	expect_job(k, 3, "then", SL_JOB_COMPLETED, 1, "2");
	kit_get_chain(k, 2, &chain);
	assert_int_equal(chain.chain.last_id, 3);
	assert_string_equal(chain.output, "\"end\"");
	kit_list_chains(k, &(struct sl_job_filter){.blocked_by_job = 3}, &ids);
	assert_int_equal(ids.n, 1);
	assert_int_equal(ids.ids[0], 1);
	expect_job(k, 4, "bad", SL_JOB_FAILED, 2, "[null, \"two\"]");
	kit_get(k, 4, &row);
	assert_string_equal(row.error, "exit code 3: no");
	expect_job(k, 5, "bad", SL_JOB_CANCELLED, 0, "5");
	expect_job(k, 6, "stuck", SL_JOB_RUNNING, 1, "6");
	expect_job(k, 8, "wait", SL_JOB_BLOCKED, 0, "8");
	kit_get(k, 8, &row);
	assert_int_equal(row.job.blockers_open, 2);
	kit_get(k, 11, &row);
	assert_true(row.job.scheduled_ms == INT64_C(4102444800000));
	kit_get(k, 13, &row);
	assert_string_equal(row.traceparent, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
	expect_job(k, 15, "bad", SL_JOB_PENDING, 1, "15");
	kit_list(k, &(struct sl_job_filter){0}, &ids);
	assert_int_equal(ids.n, 15);
	char outcomes[KIT_MAX];
	kit_outcomes(k, 4, outcomes);
	assert_string_equal(outcomes, "ff");
	kit_outcomes(k, 1, outcomes);
	assert_string_equal(outcomes, "c");
}

#define COUNTS_MAX 512
static int add_count(const struct sl_job_count *c, void *ctx)
{
	char *text = ctx;
	size_t used = strlen(text);
	(void)snprintf(text + used, COUNTS_MAX - used, "%s %s %d", c->type, sl_job_status_name(c->status),
		       (int)c->count);
	used = strlen(text);
	if (c->status == SL_JOB_PENDING)
		(void)snprintf(text + used, COUNTS_MAX - used, " due %d tried %d;", (int)c->due, (int)c->retrying);
	else
		(void)snprintf(text + used, COUNTS_MAX - used, ";");
	return 0;
}

static void all_are_counted(struct kit *k)
{
	char text[COUNTS_MAX] = "";
	KIT_OK(k->ops->counts(k->s, add_count, text, err));
	assert_string_equal(
		text, "bad pending 1 due 1 tried 1;bad failed 1;bad cancelled 1;chain completed 1;done completed 1;"
		      "later pending 2 due 1 tried 0;rest pending 1 due 1 tried 0;stuck running 1;then completed 1;"
		      "wait blocked 1;wait pending 4 due 4 tried 0;");
}

static int add_cron(const struct sl_cron *cron, void *ctx)
{
	char *names = ctx;
	(void)snprintf(names + strlen(names), 128 - strlen(names), "%s %s %s %s %d;", cron->name, cron->spec,
		       cron->type, cron->input, cron->priority);
	return 0;
}

static void the_schedules_are_there(struct kit *k)
{
	char names[128] = "";
	KIT_OK(k->ops->cron_list(k->s, add_cron, names, err));
	assert_string_equal(names, "often * * * * * wait null 0;nightly 30 2 * * * done {\"n\":1} 4;");
}

struct events {
	uint64_t n, last;
	char text[256];
	char stream[64];
	uint32_t incarnation;
	uint64_t crc;
	int partial;
};

static int add_event(const struct sl_event_row *e, void *ctx)
{
	struct events *all = ctx;
	assert_int_equal(e->offset, all->last + 1);
	all->last = e->offset;
	all->n++;
	all->partial += e->partial;
	if (e->job_id != 1)
		return 0;
	(void)snprintf(all->stream, sizeof all->stream, "%s", e->stream);
	all->incarnation = e->incarnation;
	all->crc = e->crc;
	size_t used = strlen(all->text);
	(void)snprintf(all->text + used, sizeof all->text - used, "%" PRIu64 ":%d:%.*s;", e->sequence, e->type,
		       e->type == 1 ? 3 : (int)e->payload_len, (const char *)e->payload);
	return 0;
}

static void the_events_are_there(struct kit *k, struct events *all)
{
	memset(all, 0, sizeof *all);
	KIT_OK(k->ops->events_read(k->s, 0, 0, 100, add_event, all, err));
	assert_int_equal(all->n, 22);
	assert_string_equal(all->text, "1:1:{\"p;2:2:out;3:3:err;4:4:1;5:5:{\"code\":0};");
	assert_int_equal(all->partial, 0); /* nobody knows any more */
}

/* ---- what can be done with it ---- */

static void keys_hold(struct kit *k)
{
	struct sl_started s = kit_start_key(k, "once", SL_DEDUP_ANY, 0);
	assert_int_equal(s.deduplicated, 1);
	assert_int_equal(s.chain_id, 1);
	s = kit_start_key(k, "live", SL_DEDUP_INCOMPLETE, 0);
	assert_int_equal(s.chain_id, 10);
	s = kit_start_key(k, "twice", SL_DEDUP_INCOMPLETE, 0);
	assert_int_equal(s.deduplicated, 0);
	assert_true(s.chain_id > 15);
}

static void jobs_are_claimed_in_order_and_completed(struct kit *k)
{
	static const uint64_t order[] = {10, 7, 9, 13};
	struct kit_claim claim;
	kit_claim(k, "wait", 10, 0, &claim);
	assert_int_equal(claim.n, 4);
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(claim.jobs[i].id, order[i]);
		kit_complete(k, &claim, i, "\"now\"");
	}
	kit_claim(k, "rest", 10, 0, &claim);
	assert_int_equal(claim.n, 0); /* paused */
	kit_claim(k, "later", 10, 0, &claim);
	assert_int_equal(claim.n, 1);
	assert_int_equal(claim.jobs[0].id, 12);
	kit_claim(k, "bad", 10, 0, &claim);
	assert_int_equal(claim.n, 1);
	assert_int_equal(claim.jobs[0].id, 15);
	assert_int_equal(claim.jobs[0].attempt, 1);
	kit_complete(k, &claim, 0, NULL);
}

static void the_lease_of_the_dead_is_reaped_and_its_end_opens_what_waits(struct kit *k)
{
	struct kit_claim claim;
	char outcomes[KIT_MAX];
	assert_int_equal(kit_reap(k, "stuck", NULL), 1);
	kit_claim_one(k, "stuck", &claim);
	assert_int_equal(claim.jobs[0].id, 6);
	assert_int_equal(claim.jobs[0].attempt, 2);
	assert_int_equal(kit_status(k, 8), SL_JOB_BLOCKED);
	kit_complete(k, &claim, 0, NULL);
	kit_outcomes(k, 6, outcomes);
	assert_string_equal(outcomes, "Rc");
	kit_claim_one(k, "wait", &claim);
	assert_int_equal(claim.jobs[0].id, 8);
	kit_complete(k, &claim, 0, NULL);
}

static void events_go_on_where_they_were(struct kit *k, const struct events *before)
{
	struct sl_event_row e[3] = {
		{.sequence = 5, .crc = before->crc, .type = 5},
		{.sequence = 6, .crc = 66, .type = 2, .partial = 1, .payload = "l", .payload_len = 1},
		{.sequence = 7, .crc = 77, .type = 2, .payload = "ine", .payload_len = 3}};
	for (size_t i = 0; i < 3; i++) {
		e[i].stream = before->stream;
		e[i].incarnation = before->incarnation;
		e[i].job_id = 1;
		e[i].attempt = 1;
	}
	struct sl_event_mark mark = {.stream = before->stream, .incarnation = before->incarnation};
	size_t fresh = 0;
	KIT_OK(k->ops->events_append(k->s, e, 3, &mark, 1, &fresh, err));
	assert_int_equal(fresh, 2);
	assert_int_equal(mark.mark, 7);
	e[0].crc++;
	KIT_FAILS(SL_ECONFLICT, k->ops->events_append(k->s, e, 1, &mark, 1, &fresh, err));
	struct events all = {0};
	KIT_OK(k->ops->events_read(k->s, 0, 0, 100, add_event, &all, err));
	assert_int_equal(all.n, 24);
	assert_int_equal(all.partial, 1);
}

static struct sl_cron often;

static int note_next(const struct sl_cron *cron, void *ctx)
{
	(void)ctx;
	if (strcmp(cron->name, "often") == 0)
		often = (struct sl_cron){.name = "often", .spec = "* * * * *", .next_ms = cron->next_ms};
	return 0;
}

static void schedules_fire_and_chains_end_from_outside(struct kit *k)
{
	struct sl_started out;
	int fired = 0;
	size_t n = 0;
	KIT_OK(k->ops->cron_list(k->s, note_next, NULL, err));
	KIT_OK(k->ops->cron_fire(k->s, &often, often.next_ms + 60000, &fired, &out, NULL, err));
	assert_int_equal(fired, 1);
	/* The key of 4 is another's, which keys_hold has started. */
	uint64_t other = kit_start_key(k, "twice", SL_DEDUP_INCOMPLETE, 0).chain_id;
	KIT_FAILS(SL_EEXIST, k->ops->redrive(k->s, NULL, (uint64_t[]){4, 5}, 2, &n, NULL, err));
	KIT_OK(k->ops->remove(k->s, NULL, &other, 1, 0, &n, NULL, err));
	KIT_OK(k->ops->redrive(k->s, NULL, (uint64_t[]){4, 5}, 2, &n, NULL, err));
	assert_int_equal(n, 2);
	KIT_OK(k->ops->fail_chain(k->s, NULL, 14, "not today", NULL, err));
	assert_int_equal(kit_status(k, 14), SL_JOB_FAILED);
	KIT_OK(k->ops->remove(k->s, NULL, (uint64_t[]){2}, 1, 0, &n, NULL, err));
	assert_false(kit_exists(k, 3));
}

static void every_earlier_version(bool postgres)
{
	for (int version = 1; version < SL_SCHEMA_VERSION; version++) {
		struct world w;
		struct events events;
		int from = -1, to = -1;
		char id[33] = "", again[33] = "";
		load(&w, postgres, version);
		open_world(&w);
		KIT_OK(w.k.ops->target_id(w.k.s, id, err));
		the_jobs_are_there(&w.k);
		the_schedules_are_there(&w.k);
		all_are_counted(&w.k);
		the_events_are_there(&w.k, &events);
		KIT_OK(w.k.ops->migrate(w.k.s, &from, &to, err)); /* once more, for nothing */
		assert_int_equal(from, SL_SCHEMA_VERSION);
		assert_int_equal(to, SL_SCHEMA_VERSION);
		keys_hold(&w.k);
		jobs_are_claimed_in_order_and_completed(&w.k);
		the_lease_of_the_dead_is_reaped_and_its_end_opens_what_waits(&w.k);
		events_go_on_where_they_were(&w.k, &events);
		schedules_fire_and_chains_end_from_outside(&w.k);
		sl_store_close(&w.k.store);
		open_world(&w);
		KIT_OK(w.k.ops->target_id(w.k.s, again, err));
		assert_string_equal(id, again);
		assert_int_equal(kit_status(&w.k, 8), SL_JOB_COMPLETED);
		if (!postgres && sqlite_wrong(w.files.path) != NULL &&
		    strcmp(sqlite_wrong(w.files.path), "gap in offsets") != 0) /* chain 2 took its events along */
			fail_msg("%s", sqlite_wrong(w.files.path));
		close_world(&w);
	}
}

static void a_sqlite_store_of_every_earlier_version_is_brought_up_to_date_and_works(void **state)
{
	(void)state;
	every_earlier_version(false);
}

static void a_postgres_store_of_every_earlier_version_is_brought_up_to_date_and_works(void **state)
{
	(void)state;
	if (no_server)
		skip();
	every_earlier_version(true);
}

/* ---- many at once ---- */

struct other {
	pid_t pid;
	int go;
};

static struct other spawn(const char *url)
{
	int go[2];
	assert_int_equal(pipe2(go, 02000000), 0); /* O_CLOEXEC: nobody else keeps it open */
	pid_t pid = fork();
	if (pid == 0) {
		(void)dup2(go[0], STDIN_FILENO);
		(void)execl("/proc/self/exe", "test_schema", "open", url, (char *)NULL);
		_exit(99);
	}
	(void)close(go[0]);
	return (struct other){pid, go[1]};
}

static int open_when_told(const char *url)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .create = SL_OFF, .connect_timeout_ms = PG_PLACE_CONNECT_MS};
	struct sl_new_chain chain = {.job = {.type = "fresh"}};
	struct sl_started started;
	sl_store store;
	char c;
	while (read(STDIN_FILENO, &c, 1) > 0)
		;
	int rc = sl_store_open(&store, url, &opts, &err);
	if (rc == 0) {
		rc = store.ops->start(store.ctx, NULL, &chain, 1, &started, NULL, &err);
		sl_store_close(&store);
	}
	if (rc != 0)
		fprintf(stderr, "# open: %s\n", err.msg);
	return rc == 0 ? 0 : 1;
}

static void many_at_once(bool postgres)
{
	struct world w;
	struct other others[PROCESSES];
	struct kit_ids ids;
	struct events events;
	load(&w, postgres, 1);
	for (size_t i = 0; i < PROCESSES; i++)
		others[i] = spawn(w.url);
	for (size_t i = 0; i < PROCESSES; i++)
		(void)close(others[i].go);
	for (size_t i = 0; i < PROCESSES; i++) {
		int status = -1;
		assert_int_equal(waitpid(others[i].pid, &status, 0), others[i].pid);
		assert_int_equal(status, 0);
	}
	open_world(&w);
	kit_list(&w.k, &(struct sl_job_filter){0}, &ids);
	assert_int_equal(ids.n, 15 + PROCESSES);
	the_events_are_there(&w.k, &events);
	close_world(&w);
}

static void processes_that_open_an_old_sqlite_store_at_once_all_succeed(void **state)
{
	(void)state;
	many_at_once(false);
}

static void processes_that_open_an_old_postgres_store_at_once_all_succeed(void **state)
{
	(void)state;
	if (no_server)
		skip();
	many_at_once(true);
}

/* ---- what is refused ---- */

static void make_newer(struct world *w)
{
	if (w->postgres)
		assert_int_equal(pg_temp_exec(server.admin,
					      "INSERT INTO sluice.schema_version VALUES (1000, clock_timestamp())"),
				 0);
	else
		assert_int_equal(
			sqlite_do(w->files.path, "UPDATE sluice_meta SET value=1000 WHERE name='schema_version'"), 0);
}

static void newer_is_refused(bool postgres)
{
	struct world w;
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .create = SL_OFF, .connect_timeout_ms = PG_PLACE_CONNECT_MS};
	struct sl_err err = SL_ERR_INIT;
	sl_store store;
	load(&w, postgres, 1);
	make_newer(&w);
	assert_int_equal(sl_store_open(&store, w.url, &opts, &err), SL_EUNSUPPORTED);
	assert_non_null(strstr(err.msg, "1000"));
	assert_non_null(strstr(err.msg, "this library knows"));
	close_world(&w);
}

static void a_newer_version_is_refused_with_both_numbers(void **state)
{
	(void)state;
	newer_is_refused(false);
	if (!no_server)
		newer_is_refused(true);
}

/* Everything that asks for what is there makes nothing. */
static void refuse_to_make(const char *url)
{
	for (int migrate = 0; migrate < 2; migrate++) {
		struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .create = SL_OFF, .migrate = migrate ? SL_ON : SL_OFF,
					     .connect_timeout_ms = PG_PLACE_CONNECT_MS};
		struct sl_err err = SL_ERR_INIT;
		sl_store store;
		assert_int_equal(sl_store_open(&store, url, &opts, &err), SL_EUNAVAIL);
		assert_non_null(strstr(err.msg, "jobs migrate"));
	}
}

static void a_store_that_is_not_there_is_not_made_without_leave(void **state)
{
	struct sqlite_place place;
	char url[512];
	(void)state;
	assert_int_equal(sqlite_place_init(&place), 0);
	(void)snprintf(url, sizeof url, "sqlite:%s", place.path);
	refuse_to_make(url);
	assert_int_equal(access(place.path, F_OK), -1);
	(void)snprintf(url, sizeof url, "sqlite:%s/no/folder/jobs.db", place.dir);
	refuse_to_make(url);
	(void)snprintf(url, sizeof url, "%s/no", place.dir);
	assert_int_equal(access(url, F_OK), -1);
	(void)snprintf(url, sizeof url, "sqlite:%s", place.path);
	FILE *f = fopen(place.path, "w");
	(void)fclose(f);
	refuse_to_make(url); /* an empty file holds no store either */
	assert_string_equal(sqlite_ask(place.path, "SELECT count(*) FROM sqlite_schema"), "0");
	sqlite_place_fini(&place);
	if (no_server)
		return;
	assert_int_equal(pg_temp_exec(server.admin, "DROP SCHEMA IF EXISTS sluice CASCADE"), 0);
	refuse_to_make(pg_temp_url(server.server));
	assert_int_equal(pg_temp_number(server.admin, "SELECT count(*) FROM pg_namespace WHERE nspname = 'sluice'"), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sqlite_store_of_every_earlier_version_is_brought_up_to_date_and_works),
		cmocka_unit_test(a_postgres_store_of_every_earlier_version_is_brought_up_to_date_and_works),
		cmocka_unit_test(processes_that_open_an_old_sqlite_store_at_once_all_succeed),
		cmocka_unit_test(processes_that_open_an_old_postgres_store_at_once_all_succeed),
		cmocka_unit_test(a_newer_version_is_refused_with_both_numbers),
		cmocka_unit_test(a_store_that_is_not_there_is_not_made_without_leave),
	};
	if (argc == 3 && strcmp(argv[1], "open") == 0)
		return open_when_told(argv[2]);
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
