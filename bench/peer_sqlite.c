/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite in WAL mode with synchronous=FULL: an autocommitted INSERT of a blob per record, a connection and a prepared
 * statement per thread, automatic checkpoints every 1,000 pages as by default. A busy connection waits with the delays
 * of SQLite's own busy timeout, which lets some threads starve for seconds; an insert that still waits when its slice
 * is over is given up and not counted, in its favour.
 */
#include <sqlite3.h>
#include <stdlib.h>

#include "bench.h"

struct lite {
	char path[4096];
};

struct connection {
	sqlite3 *db;
	sqlite3_stmt *insert;
};

static int connection_fail(struct connection *c, const char *what, struct sl_err *err)
{
	return sl_err_set(err, SL_EIO, "sqlite: %s: %s", what, sqlite3_errmsg(c->db));
}

static void lite_worker_close(void *worker)
{
	struct connection *c = worker;
	sqlite3_finalize(c->insert);
	sqlite3_close(c->db);
	free(c);
}

/* As sqlite3_busy_timeout would, until the slice is over. */
static int busy(void *ctx, int times)
{
	static const unsigned char delays_ms[] = {1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, 100};
	size_t last = sizeof(delays_ms) - 1;
	(void)ctx;
	if (bench_slice_over)
		return 0;
	(void)sqlite3_sleep(delays_ms[(size_t)times < last ? (size_t)times : last]);
	return 1;
}

static int connection_setup(struct connection *c, const char *path, struct sl_err *err)
{
	if (sqlite3_open_v2(path, &c->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL) != 0)
		return connection_fail(c, "open", err);
	sqlite3_busy_handler(c->db, busy, NULL);
	if (sqlite3_exec(c->db,
			 "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
			 "CREATE TABLE IF NOT EXISTS log(sequence INTEGER PRIMARY KEY, payload BLOB NOT NULL)",
			 NULL, NULL, NULL) != 0)
		return connection_fail(c, "set up", err);
	if (sqlite3_prepare_v3(c->db, "INSERT INTO log(payload) VALUES (?)", -1, SQLITE_PREPARE_PERSISTENT, &c->insert,
			       NULL) != 0)
		return connection_fail(c, "prepare", err);
	return 0;
}

static int lite_worker_open(void **worker, void *state, struct sl_err *err)
{
	struct lite *lite = state;
	struct connection *c = calloc(1, sizeof(*c));
	if (c == NULL)
		return sl_err_set(err, SL_ENOMEM, "sqlite");
	int rc = connection_setup(c, lite->path, err);
	if (rc != 0) {
		lite_worker_close(c);
		return rc;
	}
	*worker = c;
	return 0;
}

static int lite_append(void *worker, const void *payload, size_t n, struct sl_err *err)
{
	struct connection *c = worker;
	int rc;
	sqlite3_bind_blob(c->insert, 1, payload, (int)n, SQLITE_STATIC);
	do {
		rc = sqlite3_step(c->insert);
		(void)sqlite3_reset(c->insert);
	} while (rc == SQLITE_BUSY && !bench_slice_over);
	if (rc == SQLITE_BUSY)
		return SL_ECANCELLED;
	return rc == SQLITE_DONE ? 0 : connection_fail(c, "insert", err);
}

static int lite_open(void **state, const struct place *place, struct sl_err *err)
{
	struct lite *lite = calloc(1, sizeof(*lite));
	if (lite == NULL)
		return sl_err_set(err, SL_ENOMEM, "sqlite");
	(void)snprintf(lite->path, sizeof(lite->path), "%s/log.db", place->dir);
	*state = lite;
	return 0;
}

const struct contender contender_sqlite = {
	.name = "sqlite",
	.settings = "WAL, synchronous=FULL, a connection per thread, one autocommitted INSERT of a blob per record",
	.open = lite_open,
	.worker_open = lite_worker_open,
	.append = lite_append,
	.worker_close = lite_worker_close,
	.close = free,
};
