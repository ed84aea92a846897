/* SPDX-License-Identifier: Apache-2.0 */
/* A folder for one test with a place for a database in it, and looks into that database past the store. */
#ifndef TESTS_SQLITE_PLACE_H
#define TESTS_SQLITE_PLACE_H

#include <sluice/jobs.h>

struct sqlite_place {
	char dir[64];
	char path[96]; /* dir/jobs.db */
};

int sqlite_place_init(struct sqlite_place *p);
void sqlite_place_fini(struct sqlite_place *p); /* removes all of it */

/* The first column of the first row of SQL on the file, as text; "" without rows. Lives until the next call. */
const char *sqlite_ask(const char *path, const char *sql);
/* SQL that changes the file. 0, or SQLite's code. */
int sqlite_do(const char *path, const char *sql);
/* PRAGMA integrity_check, and what must always hold of queues, leases and tallies: NULL, or what is wrong. */
const char *sqlite_wrong(const char *path);

#endif
