/* SPDX-License-Identifier: Apache-2.0 */
/* The contract suite on the SQLite store: files on the real disk, virtual time. What only SQLite can get wrong is in
 * test_sqlite_file.c and test_sqlite_kill9.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "jobs/sqlite_place.h"
#include "jobs/store_contract.h"
#include "support/vclock.h"

struct fixture {
	struct sqlite_place place;
	struct vclock clock;
};

static int set_up(void *ctx)
{
	struct fixture *f = ctx;
	vclock_init(&f->clock);
	return sqlite_place_init(&f->place);
}

static void tear_down(void *ctx)
{
	struct fixture *f = ctx;
	char wrong[512] = "";
	if (sqlite_wrong(f->place.path) != NULL)
		(void)snprintf(wrong, sizeof(wrong), "%s", sqlite_wrong(f->place.path));
	sqlite_place_fini(&f->place);
	vclock_fini(&f->clock);
	/* Jobs that are removed take their events along. */
	if (strcmp(wrong, "gap in offsets") != 0)
		assert_string_equal(wrong, "");
}

static int open_store(sl_store *out, void *ctx)
{
	struct fixture *f = ctx;
	struct sl_env env = {SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &f->clock};
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .env = &env};
	struct sl_err err = SL_ERR_INIT;
	int rc = sl_store_sqlite_open(out, f->place.path, &opts, &err);
	if (rc != 0)
		printf("# open %s: %s\n", f->place.path, err.msg);
	return rc;
}

static void close_store(sl_store *store, void *ctx)
{
	(void)ctx;
	store->ops->close(store->ctx);
}

static void step_ms(int64_t ms, void *ctx)
{
	((struct fixture *)ctx)->clock.real_offset_ms += ms;
}

static void advance_ms(int64_t ms, void *ctx)
{
	vclock_advance_ms(&((struct fixture *)ctx)->clock, ms);
}

static int native_open(void **out, void *ctx)
{
	sqlite3 *db = NULL;
	int rc = sqlite3_open(((struct fixture *)ctx)->place.path, &db);
	*out = db;
	return rc;
}

static int native_exec(void *native, const char *sql, void *ctx)
{
	(void)ctx;
	return sqlite3_exec(native, sql, NULL, NULL, NULL);
}

static void native_close(void *native, void *ctx)
{
	(void)ctx;
	(void)sqlite3_close(native);
}

int main(int argc, char **argv)
{
	struct fixture fixture;
	memset(&fixture, 0, sizeof(fixture));
	struct contract_fixture f = {.name = "sqlite",
				     .set_up = set_up,
				     .tear_down = tear_down,
				     .open = open_store,
				     .close = close_store,
				     .advance_ms = advance_ms,
				     .step_ms = step_ms,
				     .native_open = native_open,
				     .native_exec = native_exec,
				     .native_close = native_close,
				     .ctx = &fixture};
	return store_contract_run(&f, store_contract_part(argc, argv));
}
