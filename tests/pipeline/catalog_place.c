/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/catalog_place.h"

#include <ftw.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "base/sha256.h"
#include "pipeline/partition.h"

int catalog_place_start(struct catalog_place *p, int argc, char **argv)
{
	memset(p, 0, sizeof(*p));
	if (argc < 2 || strcmp(argv[1], "postgres") != 0)
		return 0;
	p->server = pg_temp_start(PG_TEMP_FAST);
	if (p->server == NULL)
		return pg_temp_missing();
	p->admin = pg_temp_connect(p->server);
	return pg_temp_exec(p->admin, "SET client_min_messages = error") == 0 ? 0 : 1;
}

void catalog_place_stop(struct catalog_place *p)
{
	if (p->server == NULL)
		return;
	PQfinish(p->admin);
	pg_temp_stop(p->server);
}

void catalog_place_set_up(struct catalog_place *p)
{
	char sql[64];
	/* No test here loses power: memory spares them the disk's syncs. */
	const char *tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : getenv("TMPDIR");
	(void)snprintf(p->dir, sizeof(p->dir), "%.30s/sluice-catalog-XXXXXX", tmp != NULL ? tmp : "/tmp");
	assert_non_null(mkdtemp(p->dir));
	if (p->server == NULL) {
		(void)snprintf(p->url, sizeof(p->url), "sqlite:%s/_catalog.db", p->dir);
		return;
	}
	(void)snprintf(p->url, sizeof(p->url), "%s", pg_temp_url(p->server));
	(void)snprintf(p->schema, sizeof(p->schema), "t%d", ++p->n);
	(void)snprintf(sql, sizeof(sql), "SET search_path = %s", p->schema);
	assert_int_equal(pg_temp_exec(p->admin, sql), 0);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

void catalog_place_tear_down(struct catalog_place *p)
{
	char sql[64];
	(void)nftw(p->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	if (p->server == NULL)
		return;
	(void)snprintf(sql, sizeof(sql), "DROP SCHEMA IF EXISTS %s CASCADE", p->schema);
	assert_int_equal(pg_temp_exec(p->admin, sql), 0);
}

int catalog_place_try(struct catalog_place *p, const struct sl_env *env, sl_catalog **out, struct sl_err *err)
{
	struct sl_catalog_opts opts = {SL_CATALOG_OPTS_INIT, .env = env, .schema = p->server != NULL ? p->schema : NULL,
				       .producer_version = "0.0.0", .connect_timeout_ms = 60000};
	return sl_catalog_open(out, p->url, &opts, err);
}

sl_catalog *catalog_place_open(struct catalog_place *p, const struct sl_env *env)
{
	struct sl_err err = SL_ERR_INIT;
	sl_catalog *c = NULL;
	int rc = catalog_place_try(p, env, &c, &err);
	if (rc != 0)
		print_error("# %s\n", err.msg);
	assert_int_equal(rc, 0);
	return c;
}

static sqlite3 *sqlite_connect(struct catalog_place *p)
{
	sqlite3 *db = NULL;
	assert_int_equal(sqlite3_open(p->url + strlen("sqlite:"), &db), SQLITE_OK);
	(void)sqlite3_busy_timeout(db, 60000);
	(void)sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	return db;
}

void catalog_place_exec(struct catalog_place *p, const char *sql)
{
	char *why = NULL;
	if (p->server != NULL) {
		assert_int_equal(pg_temp_exec(p->admin, sql), 0);
		return;
	}
	sqlite3 *db = sqlite_connect(p);
	if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK)
		fail_msg("%s: %s", sql, why);
	(void)sqlite3_close(db);
}

long long catalog_place_number(struct catalog_place *p, const char *sql)
{
	sqlite3_stmt *s = NULL;
	if (p->server != NULL)
		return pg_temp_number(p->admin, sql);
	sqlite3 *db = sqlite_connect(p);
	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
	long long n = sqlite3_step(s) == SQLITE_ROW ? sqlite3_column_int64(s, 0) : -1;
	(void)sqlite3_finalize(s);
	(void)sqlite3_close(db);
	return n;
}

struct sl_catalog_partition catalog_partition(const char *dataset, uint64_t start, uint64_t end, uint64_t size,
					      char path[256])
{
	char name[SL__PARTITION_NAME_BYTES];
	struct sl_catalog_partition p = {.struct_size = sizeof(p),
					 .start = start,
					 .end = end,
					 .rows = end - start + 1,
					 .bytes = 1000,
					 .path = path};
	sl__partition_name(start, end, size, false, name);
	(void)snprintf(path, 256, "%s/%s", dataset, name);
	assert_int_equal(sl__sha256(path, strlen(path), p.sha256, NULL), 0);
	return p;
}

void catalog_define(sl_catalog *c, sl_catalog_lease *lease)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_dataset d = {.struct_size = sizeof(d),
			       .partition_size = 100,
			       .sequence_column = "seq",
			       .schema = "{\"seq\":\"int64\"}"};
	assert_int_equal(sl_catalog_define(c, lease, &d, &err), 0);
}

int catalog_commit(sl_catalog *c, sl_catalog_lease *lease, uint64_t start, uint64_t end, bool *is_new,
		   struct sl_err *err)
{
	char path[256];
	struct sl_catalog_partition p = catalog_partition("d", start, end, 100, path);
	return sl_catalog_commit(c, lease, &p, is_new, err);
}
