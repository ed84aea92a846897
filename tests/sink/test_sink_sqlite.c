/* SPDX-License-Identifier: Apache-2.0 */
/* The SQLite sink passes the suite, with a rollback journal and (last argument "wal") with a write-ahead log. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sink/contract.h"
#include "sink/place.h"

static struct place place;
static bool log_mode;
static sqlite3 *holder; /* has the database while writes are to hang */

static sqlite3 *database(void)
{
	sqlite3 *db = NULL;
	if (sqlite3_open(place.path, &db) != SQLITE_OK)
		abort();
	(void)sqlite3_busy_timeout(db, 60000);
	return db;
}

static void run(sqlite3 *db, const char *sql)
{
	char *why = NULL;
	if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK) {
		fprintf(stderr, "%s: %s\n", sql, why);
		abort();
	}
}

static void run_once(const char *sql)
{
	sqlite3 *db = database();
	run(db, sql);
	(void)sqlite3_close(db);
}

static int set_up(void *ctx)
{
	(void)ctx;
	if (place_init(&place, "db") != 0)
		return -1;
	run_once(log_mode ? "PRAGMA journal_mode=wal" : "PRAGMA journal_mode=delete");
	run_once("CREATE TABLE t(n INTEGER PRIMARY KEY AUTOINCREMENT, id INTEGER NOT NULL, body TEXT)");
	return 0;
}

static void tear_down(void *ctx)
{
	(void)ctx;
	place_fini(&place);
}

static int open_sqlite(sl_sink *out, const struct sl_env *env, struct sl_err *err, void *ctx)
{
	char url[160];
	(void)ctx;
	(void)snprintf(url, sizeof(url), "sqlite:%s", place.path);
	return sl_sink_open(out, url, &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .env = env, .table = "t"}, err);
}

/* By turns: what cannot be read, has no column, does not fit, breaks a constraint. */
static size_t poison(char *out, size_t cap, uint64_t id, void *ctx)
{
	static const char *const kinds[] = {"{\"id\":%llu,", "{\"id\":%llu,\"nose\":1}", "{\"id\":\"%llux\"}",
					    "{\"body\":\"%llu\"}"};
	(void)ctx;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	return (size_t)snprintf(out, cap, kinds[id % 4], (unsigned long long)id);
#pragma GCC diagnostic pop
}

static int add_id(void *ids, int n, char **values, char **names)
{
	(void)n;
	(void)names;
	sink_ids_add(ids, strtoull(values[0], NULL, 10));
	return 0;
}

static void read_back(struct sink_ids *out, void *ctx)
{
	sqlite3 *db = database();
	(void)ctx;
	if (sqlite3_exec(db, "SELECT id FROM t ORDER BY n", add_id, out, NULL) != SQLITE_OK)
		abort();
	(void)sqlite3_close(db);
}

static void take_table(void *ctx)
{
	(void)ctx;
	run_once("ALTER TABLE t RENAME TO away");
}

static void give_table(void *ctx)
{
	(void)ctx;
	run_once("ALTER TABLE away RENAME TO t");
}

static void hold(void *ctx)
{
	(void)ctx;
	holder = database();
	run(holder, "BEGIN EXCLUSIVE");
}

static void let_go(void *ctx)
{
	(void)ctx;
	run(holder, "COMMIT");
	(void)sqlite3_close(holder);
}

int main(int argc, char **argv)
{
	static const char *ways[] = {"journal", "wal", NULL};
	const struct sink_fixture f = {.name = "sqlite",
				       .set_up = set_up,
				       .tear_down = tear_down,
				       .open = open_sqlite,
				       .poison_item = poison,
				       .read_back = read_back,
				       .break_target = take_table,
				       .mend_target = give_table,
				       .hang = hold,
				       .let_go = let_go};
	log_mode = strcmp(argv[argc - 1], "wal") == 0;
	return sink_contract_run(&f, sink_contract_part(argc, argv, ways));
}
