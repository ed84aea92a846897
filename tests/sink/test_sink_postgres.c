/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The PostgreSQL sink passes the suite: "append" through COPY in binary, "text" through COPY as text (a column whose
 * type has no encoding), "upsert" through arrays, "upsert_text".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sink/contract.h"
#include "support/pg.h"

static struct pg_temp *pg;
static PGconn *admin, *holder;
static bool upsert, text;

static void run(PGconn *conn, const char *sql)
{
	if (pg_temp_exec(conn, sql) != 0)
		abort();
}

static int set_up(void *ctx)
{
	(void)ctx;
	run(admin, "DROP TABLE IF EXISTS t");
	run(admin, text ? "CREATE TABLE t(n bigserial, id bigint NOT NULL UNIQUE, body text, net inet)"
			: "CREATE TABLE t(n bigserial, id bigint NOT NULL UNIQUE, body text)");
	return 0;
}

static int open_postgres(sl_sink *out, const struct sl_env *env, struct sl_err *err, void *ctx)
{
	static const char *const key[] = {"id"};
	struct sl_sink_opts opts = {SL_SINK_OPTS_INIT, .env = env, .table = "t"};
	(void)ctx;
	if (upsert) {
		opts.on_conflict = key;
		opts.n_on_conflict = 1;
	}
	return sl_sink_open(out, pg_temp_url(pg), &opts, err);
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

static void read_back(struct sink_ids *out, void *ctx)
{
	PGresult *r = PQexec(admin, "SELECT id FROM t ORDER BY n");
	(void)ctx;
	if (PQresultStatus(r) != PGRES_TUPLES_OK)
		abort();
	for (int i = 0; i < PQntuples(r); i++)
		sink_ids_add(out, strtoull(PQgetvalue(r, i, 0), NULL, 10));
	PQclear(r);
}

static void take_table(void *ctx)
{
	(void)ctx;
	run(admin, "ALTER TABLE t RENAME TO away");
}

static void give_table(void *ctx)
{
	(void)ctx;
	run(admin, "ALTER TABLE away RENAME TO t");
}

static void hold(void *ctx)
{
	(void)ctx;
	run(holder, "BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE");
}

/* Until a statement waits for the lock. */
static void await_hang(void *ctx)
{
	(void)ctx;
	while (pg_temp_number(admin, "SELECT count(*) FROM pg_locks WHERE NOT granted") == 0)
		;
}

static void let_go(void *ctx)
{
	(void)ctx;
	run(holder, "COMMIT");
}

int main(int argc, char **argv)
{
	static const char *ways[] = {"append", "text", "upsert", "upsert_text", NULL};
	const struct sink_fixture f = {.name = "postgres",
				       .set_up = set_up,
				       .open = open_postgres,
				       .poison_item = poison,
				       .read_back = read_back,
				       .break_target = take_table,
				       .mend_target = give_table,
				       .hang = hold,
				       .await_hang = await_hang,
				       .let_go = let_go};
	upsert = strncmp(argv[argc - 1], "upsert", 6) == 0;
	text = strstr(argv[argc - 1], "text") != NULL;
	pg = pg_temp_start(PG_TEMP_FAST);
	if (pg == NULL)
		return pg_temp_missing();
	admin = pg_temp_connect(pg);
	holder = pg_temp_connect(pg);
	int failed = sink_contract_run(&f, sink_contract_part(argc, argv, ways));
	PQfinish(holder);
	PQfinish(admin);
	pg_temp_stop(pg);
	return failed;
}
