/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A private PostgreSQL server for a test, through tests/support/pg-temp: it stops when the test does, also when the
 * test is killed. Without a PostgreSQL on the machine: NULL, and the test program exits with 77 (skipped), or fails in
 * CI.
 *
 * Thread safety: one thread starts, commands and stops; the URL may be read by all.
 */
#ifndef TESTS_PG_H
#define TESTS_PG_H

#include <libpq-fe.h>

struct pg_temp;

enum pg_temp_durability {
	PG_TEMP_DURABLE = 0, /* as PostgreSQL comes */
	PG_TEMP_FAST = 1     /* fsync off: for tests that lose no power */
};

/* NULL when the server could not be started; why is on standard error. */
struct pg_temp *pg_temp_start(enum pg_temp_durability durability);
const char *pg_temp_url(const struct pg_temp *pg);
/* "restart", "crash", "stop", "start", "standby" or "primary"; 0 or -1. */
int pg_temp_command(struct pg_temp *pg, const char *command);
/* NULL is allowed. */
void pg_temp_stop(struct pg_temp *pg);
/* The exit code of a test program without a server: 77, or 1 in CI. */
int pg_temp_missing(void);

/* A connection of the test's own; aborts the program when that fails. */
PGconn *pg_temp_connect(const struct pg_temp *pg);
/* Run SQL; 0, or -1 with the reason on standard error. */
int pg_temp_exec(PGconn *conn, const char *sql);
/* The first column of the first row as a number; -1 without a row. */
long long pg_temp_number(PGconn *conn, const char *sql);

#endif
