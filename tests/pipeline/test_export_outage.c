/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog's database becomes unavailable in the middle of an export and comes back. In the end everything is as if it had
 * always been there. SQLite's export is the one to be like: files, rows and events do not depend on the database.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/base.h"
#include "pipeline/export_rig.h"
#include "support/pg.h"

#define FIRST 17
#define ROWS 383
#define LAST 399

/* What an export without trouble leaves; the catalog's own place is not part of it. */
static char *reference(struct export_rig *x)
{
	struct sl_err err = SL_ERR_INIT;
	export_rig_to(x, "reference");
	struct sl_export_opts o = export_rig_opts(x);
	if (export_rig_run(&o, NULL, &err) != 0)
		fail_msg("%s", err.msg);
	return export_rig_look(x, NULL);
}

static void assert_like(const struct export_rig *x, const char *catalog, const char *must_be, const char *when)
{
	char *is = export_rig_look(x, catalog);
	export_rig_assert_same(is, must_be, when);
	free(is);
}

/* ---- an export of a pipe, on a thread ---- */

struct running {
	struct export_rig *x;
	int pipe[2];
	sl_export *e;
	pthread_t thread;
	int rc;
	struct sl_err err;
	atomic_int retries; /* warnings of the pipeline about a commit */
	atomic_int partitions;
};

static void count_retries(const struct sl_log_record *record, void *ctx)
{
	struct running *r = ctx;
	if (record->level == SL_LOG_WARN && strcmp(record->component, "pipeline") == 0)
		atomic_fetch_add(&r->retries, 1);
}

static void count_partitions(const struct sl_export_progress *progress, void *ctx)
{
	struct running *r = ctx;
	atomic_store(&r->partitions, (int)progress->partitions);
}

static void *run_main(void *arg)
{
	struct running *r = arg;
	r->rc = sl_export_run(r->e, NULL, &r->err);
	return NULL;
}

static void begin(struct running *r, struct export_rig *x, const struct sl_env *env, const char *catalog)
{
	*r = (struct running){.x = x};
	assert_int_equal(pipe2(r->pipe, O_CLOEXEC), 0);
	struct sl_export_opts o = export_rig_opts(x);
	o.env = env;
	o.catalog = catalog;
	o.from = "-";
	o.fd = r->pipe[0];
	o.format = SL_EXPORT_CSV;
	o.sample_records = 40;
	o.perf.retry_backoff_ms = 20;
	o.on_progress = count_partitions;
	o.on_progress_ctx = r;
	if (sl_export_new(&r->e, &o, &r->err) != 0)
		fail_msg("%s", r->err.msg);
	assert_int_equal(pthread_create(&r->thread, NULL, run_main, r), 0);
}

static void feed(struct running *r, uint64_t from, uint64_t to)
{
	char row[160];
	if (from == FIRST)
		assert_int_equal(write(r->pipe[1], "seq,account,fee,ok\n", 19), 19);
	for (uint64_t i = from; i <= to; i++) {
		int n = export_rig_csv_row(row, sizeof(row), i);
		assert_int_equal(write(r->pipe[1], row, (size_t)n), n);
	}
}

static void await(const atomic_int *what, int at_least)
{
	while (atomic_load(what) < at_least)
		sched_yield();
}

static int finish(struct running *r)
{
	close(r->pipe[1]);
	pthread_join(r->thread, NULL);
	close(r->pipe[0]);
	sl_export_free(r->e);
	return r->rc;
}

/* ---- the catalog ---- */

static struct pg_temp *server;

static char *fresh_catalog(void)
{
	PGconn *admin = pg_temp_connect(server);
	assert_int_equal(pg_temp_exec(admin, "SET client_min_messages = error; DROP SCHEMA IF EXISTS sluice CASCADE"),
			 0);
	PQfinish(admin);
	return strdup(pg_temp_url(server));
}

static void an_unavailable_catalog_is_waited_for_and_nothing_is_lost_or_duplicated(void **state)
{
	struct export_rig x;
	struct running r;
	(void)state;
	export_rig_init(&x, ".csv", FIRST, ROWS);
	char *must_be = reference(&x), *url = fresh_catalog();
	export_rig_to(&x, "out");
	struct sl_env env = {SL_ENV_INIT, .log = count_retries, .log_ctx = &r};
	begin(&r, &x, &env, url);
	feed(&r, FIRST, 149);
	await(&r.partitions, 3);
	assert_int_equal(pg_temp_command(server, "stop"), 0);
	feed(&r, 150, 299);
	await(&r.retries, 3);
	assert_int_equal(atomic_load(&r.partitions), 3);
	assert_int_equal(pg_temp_command(server, "start"), 0);
	await(&r.partitions, 6);
	assert_int_equal(pg_temp_command(server, "crash"), 0); /* and it recovers */
	feed(&r, 300, LAST);
	if (finish(&r) != 0)
		fail_msg("%s", r.err.msg);
	assert_like(&x, url, must_be, "the catalog was unavailable");
	free(url);
	free(must_be);
	export_rig_fini(&x);
}

static void a_catalog_that_stays_away_lets_the_export_be_stopped_and_resumed(void **state)
{
	struct export_rig x;
	struct running r;
	(void)state;
	export_rig_init(&x, ".csv", FIRST, ROWS);
	char *must_be = reference(&x), *url = fresh_catalog();
	export_rig_to(&x, "out");
	struct sl_env env = {SL_ENV_INIT, .log = count_retries, .log_ctx = &r};
	begin(&r, &x, &env, url);
	feed(&r, FIRST, 149);
	await(&r.partitions, 3);
	assert_int_equal(pg_temp_command(server, "stop"), 0);
	feed(&r, 150, 299);
	await(&r.retries, 1);
	sl_export_stop(r.e, SL_EXPORT_NOW);
	(void)finish(&r);
	assert_int_equal(atomic_load(&r.partitions), 3);
	assert_int_equal(pg_temp_command(server, "start"), 0);
	/* its lease could not be released: it has to expire, or to be declared dead */
	PGconn *admin = pg_temp_connect(server);
	assert_int_equal(pg_temp_exec(admin, "UPDATE sluice.sluice_dataset SET lease_until_ms = 0"), 0);
	PQfinish(admin);
	struct sl_export_opts o = export_rig_opts(&x);
	struct sl_err err = SL_ERR_INIT;
	o.catalog = url;
	if (export_rig_run(&o, NULL, &err) != 0)
		fail_msg("%s", err.msg);
	assert_like(&x, url, must_be, "stopped while the catalog was unavailable");
	free(url);
	free(must_be);
	export_rig_fini(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_unavailable_catalog_is_waited_for_and_nothing_is_lost_or_duplicated),
		cmocka_unit_test(a_catalog_that_stays_away_lets_the_export_be_stopped_and_resumed),
	};
	server = pg_temp_start(PG_TEMP_FAST);
	if (server == NULL)
		return pg_temp_missing();
	int rc = cmocka_run_group_tests_name("export, catalog away", tests, NULL, NULL);
	pg_temp_stop(server);
	return rc;
}
