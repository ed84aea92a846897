/* SPDX-License-Identifier: Apache-2.0 */
/* The contract suite on the PostgreSQL store: a schema per test on one private server, real time. What only PostgreSQL
 * can get wrong is in test_postgres.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "jobs/pg_place.h"
#include "jobs/store_contract.h"

static int set_up(void *ctx)
{
	return pg_place_set_up(ctx);
}

/* What counts() relies on, after everything that a test has done: tally sums up to the rows of job, what has not ended
 * is in a queue, a lease or an edge, what waits for an edge is blocked, and queues know what was tried. Rows are what
 * is wrong. */
static const char miscounted[] =
	"SELECT 'tally', type, status, a.n, b.n FROM (SELECT type, status, count(*) AS n FROM job GROUP BY 1, 2) a"
	" FULL JOIN (SELECT type, status, sum(n) AS n FROM (SELECT type, status, n FROM tally"
	" UNION ALL SELECT type, was, -n FROM tally) m WHERE status <> 0 GROUP BY 1, 2 HAVING sum(n) <> 0) b"
	" USING (type, status) WHERE a.n IS DISTINCT FROM b.n"
	" UNION ALL SELECT 'nowhere', type, status, id, 0 FROM job WHERE status < 4 AND id NOT IN (SELECT id FROM ready"
	" UNION SELECT id FROM sched UNION SELECT unnest(ids) FROM lease UNION SELECT job_id FROM blocker WHERE NOT "
	"done)"
	" UNION ALL SELECT 'not blocked', type, status, id, 0 FROM job WHERE status < 4"
	" AND (status = 1) <> (coalesce(blockers_open, 0) > 0)"
	" UNION ALL SELECT 'tried', j.type, j.status, j.id, 0 FROM job j JOIN (SELECT id, fence, tried FROM ready"
	" UNION ALL SELECT id, fence, tried FROM sched) q ON q.id = j.id AND q.fence = j.fence"
	" WHERE j.status = 2 AND q.tried <> (j.charged > 0)";

static void tear_down(void *ctx)
{
	struct pg_place *p = ctx;
	PGresult *r = PQexec(p->admin, miscounted);
	bool readable = PQresultStatus(r) == PGRES_TUPLES_OK;
	int wrong = PQntuples(r);
	for (int i = 0; i < wrong; i++)
		printf("# %s: type %s, status %s: %s in job, %s in tally\n", PQgetvalue(r, i, 0), PQgetvalue(r, i, 1),
		       PQgetvalue(r, i, 2), PQgetvalue(r, i, 3), PQgetvalue(r, i, 4));
	if (!readable)
		printf("# %s", PQerrorMessage(p->admin));
	PQclear(r);
	pg_place_tear_down(p);
	assert_true(readable);
	assert_int_equal(wrong, 0);
}

static int open_store(sl_store *out, void *ctx)
{
	return pg_place_open(ctx, out, 0);
}

static void close_store(sl_store *store, void *ctx)
{
	(void)ctx;
	store->ops->close(store->ctx);
}

static int native_open(void **out, void *ctx)
{
	struct pg_place *p = ctx;
	char sql[64];
	PGconn *conn = pg_temp_connect(p->server);
	*out = conn;
	(void)snprintf(sql, sizeof(sql), "SET search_path = %s", p->schema);
	return pg_temp_exec(conn, sql);
}

static int native_exec(void *native, const char *sql, void *ctx)
{
	(void)ctx;
	return pg_temp_exec(native, sql);
}

static void native_close(void *native, void *ctx)
{
	(void)ctx;
	PQfinish(native);
}

static void cut(void *ctx)
{
	pg_place_cut(ctx);
}

int main(int argc, char **argv)
{
	struct pg_place place;
	int rc = pg_place_start(&place, PG_TEMP_FAST);
	if (rc != 0)
		return rc;
	struct contract_fixture f = {.name = "postgres",
				     .set_up = set_up,
				     .tear_down = tear_down,
				     .open = open_store,
				     .close = close_store,
				     .native_open = native_open,
				     .native_exec = native_exec,
				     .native_close = native_close,
				     .begin_first = 1,
				     .exchange_is_final = 1,
				     .cut = cut,
				     .ctx = &place};
	rc = store_contract_run(&f, store_contract_part(argc, argv));
	pg_place_stop(&place);
	return rc;
}
