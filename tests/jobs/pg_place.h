/* SPDX-License-Identifier: Apache-2.0 */
/* A schema on a private PostgreSQL server, created for each test. */
#ifndef TESTS_PG_PLACE_H
#define TESTS_PG_PLACE_H

#include "support/pg.h"
#include <sluice/jobs.h>

#define PG_PLACE_CONNECT_MS 60000 /* for connections: longer than a busy machine takes */

struct pg_place {
	struct pg_temp *server;
	PGconn *admin; /* for looking and meddling; as the store, but outside of it */
	char schema[32];
	int n;
};

/* Start the server. 0, or the exit code for a program without one. */
int pg_place_start(struct pg_place *p, enum pg_temp_durability durability);
void pg_place_stop(struct pg_place *p);
/* A new, empty schema name, and the removal of all its tables; admin's search_path is set to it. */
int pg_place_set_up(struct pg_place *p);
void pg_place_tear_down(struct pg_place *p);
/* A store on the schema. connections 0: the default. */
int pg_place_open(struct pg_place *p, sl_store *out, int connections);
/* Terminate every connection of stores and notifiers. */
void pg_place_cut(struct pg_place *p);

#endif
