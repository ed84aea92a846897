/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing, and the table of slots. */
#include <stdio.h>

#include "jobs/store/postgres/store.h"
#include <sluice/jobs.h>

#define PLANNER_SET(name, value) "SET " #name " = " #value ";"
static const char settings[] = SL__PG_PLANNER(PLANNER_SET) "SET default_transaction_isolation = 'read committed'";

static int pg_now_ms(void *store, int64_t *out, struct sl_err *err)
{
	struct pg_call call;
	const PGresult *res = NULL;
	int rc = sl__pg_call_open(&call, store, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	rc = sl__pg_call_one(&call, ST_NOW, &res, err);
	if (rc == 0)
		*out = sl__pg_time_ms(res, 0, 0);
	sl__pg_call_close(&call);
	return rc;
}

static void pg_close_store(void *store)
{
	struct pg_store *s = store;
	if (s == NULL)
		return;
	sl__join_fini(&s->starts);
	sl__pg_pool_free(s->renewals);
	sl__pg_pool_free(s->pool);
	sl__pg_marks_free(s);
	for (size_t i = 0; i < ST_COUNT; i++) {
		union {
			const char *in;
			char *out;
		} sql = {.in = s->statements[i].sql};
		sl__free(&s->env, sql.out);
	}
	sl__free(&s->env, s->schema);
	sl__mutex_fini(&s->marks_mu);
	sl__mutex_fini(&s->offers_mu);
	struct sl_env env = s->env;
	sl__free(&env, s);
}

static const struct sl_store_ops ops = {.version = SL_STORE_VERSION,
					.name = "postgres",
					.close = pg_close_store,
					.migrate = sl__pg_migrate,
					.now_ms = pg_now_ms,
					.check_writable = sl__pg_check_writable,
					.offer = sl__pg_offer,
					.withdraw = sl__pg_withdraw,
#define FILL_SLOT(slot) .slot = sl__pg_##slot,
					SL__STORE_SLOTS(FILL_SLOT)
#undef FILL_SLOT
#define FILL_SLOT(slot) .slot = sl__cold_##slot,
						SL__COLD_SLOTS(FILL_SLOT)
#undef FILL_SLOT
};

static int check_store_opts(struct sl_store_opts *o, struct sl_err *err)
{
	if (o->connections == 0)
		o->connections = 4;
	if (o->connect_timeout_ms == 0)
		o->connect_timeout_ms = 5000;
	if (o->statement_timeout_ms == 0)
		o->statement_timeout_ms = 30000;
	if (o->schema == NULL)
		o->schema = "sluice";
	if (o->connections < 1 || o->connections > 1000)
		return sl_err_set(err, SL_EINVAL, "connections: %d is not 1 to 1000", (int)o->connections);
	if (o->connect_timeout_ms < 0)
		return sl_err_set(err, SL_EINVAL, "connect_timeout_ms: must be positive");
	if ((o->statement_timeout_ms < 0 && o->statement_timeout_ms != SL_UNLIMITED) ||
	    o->statement_timeout_ms > INT32_MAX)
		return sl_err_set(err, SL_EINVAL, "statement_timeout_ms: must be positive or SL_UNLIMITED");
	size_t n = strlen(o->schema);
	if (n < 1 || n > 63 || strspn(o->schema, "abcdefghijklmnopqrstuvwxyz_0123456789") != n ||
	    (o->schema[0] >= '0' && o->schema[0] <= '9'))
		return sl_err_set(err, SL_EINVAL, "schema: must match [a-z_][a-z0-9_]*, at most 63 bytes");
	return 0;
}

static int set_up_store(struct pg_store *s, const char *conninfo, const struct sl_store_opts *o, struct sl_err *err)
{
	const struct sl__pg_opts pg = {.env = &s->env,
				       .conninfo = conninfo,
				       .application = "sluice",
				       .settings = settings,
				       .connect_timeout_ms = o->connect_timeout_ms,
				       .statement_timeout_ms = o->statement_timeout_ms,
				       .transaction_timeout_ms =
					       sl__pg_transaction_timeout_ms(o->statement_timeout_ms)};
	for (unsigned i = 0; i < ST_COUNT; i++) {
		char *sql = sl__pg_render(&s->env, sl__pg_sql[i], s->schema);
		if (sql == NULL)
			return sl_err_set(err, SL_ENOMEM, "postgres: out of memory");
		s->statements[i] = (struct sl__pg_stmt){.index = i, .name = sl__pg_sql_names[i], .sql = sql};
	}
	int rc = sl__pg_check_conninfo(conninfo, err);
	if (rc != 0)
		return rc;
	rc = sl__pg_pool_new(&s->pool, &pg, (unsigned)o->connections, err);
	if (rc != 0)
		return rc;
	rc = sl__pg_pool_new(&s->renewals, &pg, 1, err);
	if (rc != 0)
		return rc;
	return o->migrate == SL_OFF ? sl__pg_schema_check(s, err) : sl__pg_migrate(s, NULL, NULL, err);
}

int sl_store_postgres_open(sl_store *out, const char *conninfo, const struct sl_store_opts *opts, struct sl_err *err)
{
	struct sl_store_opts o;
	struct sl_env env;
	sl__opts_copy(&o, sizeof(o), opts);
	int rc = check_store_opts(&o, err);
	if (rc == 0)
		rc = sl__env_init(&env, o.env, err);
	if (rc != 0)
		return rc;
	struct pg_store *s = sl__calloc(&env, 1, sizeof(*s));
	if (s == NULL)
		return sl_err_set(err, SL_ENOMEM, "postgres: out of memory");
	s->env = env;
	s->cold = (struct sl__cold_store){.ops = &sl__pg_cold_ops, .env = &s->env};
	sl__mutex_init(&s->marks_mu);
	sl__mutex_init(&s->offers_mu);
	sl__join_init(&s->starts, &s->env);
	s->schema = sl__strdup(&env, o.schema);
	s->may_create = o.create != SL_OFF;
	rc = s->schema != NULL ? set_up_store(s, conninfo, &o, err)
			       : sl_err_set(err, SL_ENOMEM, "postgres: out of memory");
	if (rc != 0) {
		pg_close_store(s);
		return rc;
	}
	*out = (sl_store){.ops = &ops, .ctx = s};
	return 0;
}
