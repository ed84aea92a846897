/* SPDX-License-Identifier: Apache-2.0 */
/* The contract suite on the PostgreSQL store: a schema per test on one private server, real time. What only PostgreSQL
 * can get wrong is in test_postgres.c. */
#include <stdio.h>

#include "jobs/pg_place.h"
#include "jobs/store_contract.h"

static int set_up(void *ctx)
{
	return pg_place_set_up(ctx);
}

static void tear_down(void *ctx)
{
	pg_place_tear_down(ctx);
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
	(void)snprintf(sql, sizeof sql, "SET search_path = %s", p->schema);
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
