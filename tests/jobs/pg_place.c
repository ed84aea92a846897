/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/pg_place.h"

#include <stdio.h>
#include <string.h>

int pg_place_start(struct pg_place *p, enum pg_temp_durability durability)
{
	memset(p, 0, sizeof(*p));
	p->server = pg_temp_start(durability);
	if (p->server == NULL)
		return pg_temp_missing();
	p->admin = pg_temp_connect(p->server);
	return pg_temp_exec(p->admin, "SET client_min_messages = error") == 0 ? 0 : 1;
}

void pg_place_stop(struct pg_place *p)
{
	PQfinish(p->admin);
	pg_temp_stop(p->server);
}

int pg_place_set_up(struct pg_place *p)
{
	char sql[64];
	(void)snprintf(p->schema, sizeof(p->schema), "t%d", ++p->n);
	(void)snprintf(sql, sizeof(sql), "SET search_path = %s", p->schema);
	return pg_temp_exec(p->admin, sql);
}

void pg_place_tear_down(struct pg_place *p)
{
	char sql[64];
	(void)snprintf(sql, sizeof(sql), "DROP SCHEMA IF EXISTS %s CASCADE", p->schema);
	(void)pg_temp_exec(p->admin, sql);
}

int pg_place_open(struct pg_place *p, sl_store *out, int connections)
{
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .schema = p->schema, .connections = connections,
				     .connect_timeout_ms = PG_PLACE_CONNECT_MS};
	struct sl_err err = SL_ERR_INIT;
	int rc = sl_store_postgres_open(out, pg_temp_url(p->server), &opts, &err);
	if (rc != 0)
		printf("# open: %s\n", err.msg);
	return rc;
}

void pg_place_cut(struct pg_place *p)
{
	(void)pg_temp_exec(p->admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
				     " WHERE application_name = 'sluice' AND datname = current_database()");
}
