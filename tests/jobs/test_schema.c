/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who makes the schema of a store, and when: many processes at the same time, none without leave, none over a newer
 * one.
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

struct world {
	struct kit k;
	struct sqlite_place files;
	char url[512];
	bool postgres;
};

static struct pg_place server;
static bool no_server;

/* ---- places without a store ---- */

static void empty_place(struct world *w, bool postgres)
{
	memset(w, 0, sizeof(*w));
	w->postgres = postgres;
	if (postgres) {
		(void)snprintf(w->url, sizeof(w->url), "%s", pg_temp_url(server.server));
		assert_int_equal(pg_temp_exec(server.admin, "DROP SCHEMA IF EXISTS sluice CASCADE"), 0);
		return;
	}
	assert_int_equal(sqlite_place_init(&w->files), 0);
	(void)snprintf(w->url, sizeof(w->url), "sqlite:%s", w->files.path);
}

static void open_world(struct world *w)
{
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .connect_timeout_ms = PG_PLACE_CONNECT_MS};
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

/* ---- many at once ---- */

struct other {
	pid_t pid;
	int go;
};

static struct other spawn(const char *url)
{
	int go[2];
	assert_int_equal(pipe2(go, 02000000), 0); /* O_CLOEXEC: no other process keeps it open */
	pid_t pid = fork();
	if (pid == 0) {
		(void)dup2(go[0], STDIN_FILENO);
		(void)execl("/proc/self/exe", "test_schema", "open", url, (char *)NULL);
		_exit(99);
	}
	(void)close(go[0]);
	return (struct other){pid, go[1]};
}

static int open_after_stdin_ends(const char *url)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .connect_timeout_ms = PG_PLACE_CONNECT_MS};
	struct sl_new_chain chain = {.job = {.type = "fresh"}};
	struct sl_started started;
	sl_store store;
	char c;
	while (read(STDIN_FILENO, &c, 1) > 0)
		;
	int rc = sl_store_open(&store, url, &opts, &err);
	if (rc == 0) {
		rc = store.ops->start(store.ctx, &chain, 1, NULL, &started, &err);
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
	empty_place(&w, postgres);
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
	assert_int_equal(ids.n, PROCESSES);
	close_world(&w);
}

static void processes_that_make_a_sqlite_store_at_the_same_time_all_succeed(void **state)
{
	(void)state;
	many_at_once(false);
}

static void processes_that_make_a_postgres_store_at_the_same_time_all_succeed(void **state)
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
	empty_place(&w, postgres);
	open_world(&w);
	sl_store_close(&w.k.store);
	w.k.ops = NULL;
	make_newer(&w);
	assert_int_equal(sl_store_open(&store, w.url, &opts, &err), SL_EUNSUPPORTED);
	assert_non_null(strstr(err.msg, "1000"));
	assert_non_null(strstr(err.msg, "this library supports"));
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
	(void)snprintf(url, sizeof(url), "sqlite:%s", place.path);
	refuse_to_make(url);
	assert_int_equal(access(place.path, F_OK), -1);
	(void)snprintf(url, sizeof(url), "sqlite:%s/no/folder/jobs.db", place.dir);
	refuse_to_make(url);
	(void)snprintf(url, sizeof(url), "%s/no", place.dir);
	assert_int_equal(access(url, F_OK), -1);
	(void)snprintf(url, sizeof(url), "sqlite:%s", place.path);
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
		cmocka_unit_test(processes_that_make_a_sqlite_store_at_the_same_time_all_succeed),
		cmocka_unit_test(processes_that_make_a_postgres_store_at_the_same_time_all_succeed),
		cmocka_unit_test(a_newer_version_is_refused_with_both_numbers),
		cmocka_unit_test(a_store_that_is_not_there_is_not_made_without_leave),
	};
	if (argc == 3 && strcmp(argv[1], "open") == 0)
		return open_after_stdin_ends(argv[2]);
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
