/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A place for a catalog on either database: its own folder with a SQLite file, or its own schema on a private
 * PostgreSQL server. One test after the other.
 */
#ifndef TESTS_CATALOG_PLACE_H
#define TESTS_CATALOG_PLACE_H

#include "support/pg.h"
#include <sluice/catalog.h>

struct catalog_place {
	struct pg_temp *server; /* NULL: SQLite */
	PGconn *admin;
	char dir[64]; /* made by set_up, removed by tear_down */
	char url[512];
	char schema[32];
	int n;
};

/* argv[1]: "sqlite" or "postgres". 0, or the exit code for a program that cannot run. */
int catalog_place_start(struct catalog_place *p, int argc, char **argv);
void catalog_place_stop(struct catalog_place *p);
void catalog_place_set_up(struct catalog_place *p);
void catalog_place_tear_down(struct catalog_place *p);
sl_catalog *catalog_place_open(struct catalog_place *p, const struct sl_env *env);
int catalog_place_try(struct catalog_place *p, const struct sl_env *env, sl_catalog **out, struct sl_err *err);
/* SQL of the test's own; aborts when it fails. */
void catalog_place_exec(struct catalog_place *p, const char *sql);
long long catalog_place_number(struct catalog_place *p, const char *sql);

/* A partition of `rows` from start, whose file is said to have the hash of its name. */
struct sl_catalog_partition catalog_partition(const char *dataset, uint64_t start, uint64_t end, uint64_t size,
					      char path[256]);
/* Define the dataset "d": partitions of 100, column "seq". */
void catalog_define(sl_catalog *c, sl_catalog_lease *lease);
/* Commit start … end of dataset "d". */
int catalog_commit(sl_catalog *c, sl_catalog_lease *lease, uint64_t start, uint64_t end, bool *is_new,
		   struct sl_err *err);

#endif
