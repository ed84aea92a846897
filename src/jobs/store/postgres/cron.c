/* SPDX-License-Identifier: Apache-2.0 */
/* Recurring schedules. A tick is enqueued by the one transaction that moves the schedule past it. */
#include "jobs/store/postgres/store.h"

int sl__pg_cron_put(void *store, const struct sl_cron *cron, const struct sl_store_listen *listen, struct sl_err *err)
{
	struct pg_call call;
	int rc = sl__pg_call_open(&call, store, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__pg_add_text(&call.params, cron->name);
	sl__pg_add_text(&call.params, cron->spec);
	sl__pg_add_text(&call.params, cron->type);
	sl__pg_add_text(&call.params, cron->input != NULL ? cron->input : "null");
	sl__pg_add_int4(&call.params, cron->priority);
	sl__pg_add_bool(&call.params, cron->catch_up != 0);
	sl__pg_add_time(&call.params, cron->next_ms);
	sl__pg_add_bool(&call.params, sl__pg_from_http(listen));
	sl__pg_call_audit(&call, listen);
	rc = sl__pg_call_one(&call, ST_CRON_PUT, NULL, err);
	sl__pg_call_close(&call);
	return rc;
}

int sl__pg_cron_remove(void *store, const char *name, const struct sl_store_listen *listen, struct sl_err *err)
{
	struct pg_call call;
	int rc = sl__pg_call_open(&call, store, NULL, PG_LONG, err);
	if (rc != 0)
		return rc;
	sl__pg_add_text(&call.params, name);
	int at = sl__pg_call_send(&call, ST_CRON_REMOVE);
	rc = sl__pg_call_run(&call, false, err);
	if (rc == 0 && PQntuples(sl__pg_call_result(&call, at)) == 0)
		rc = sl_err_set(err, SL_ENOENT, "postgres: schedule %s: not found", name);
	if (rc == 0) {
		sl__pg_pipe_end(&call.pipe);
		sl__pg_call_audit(&call, listen);
		rc = sl__pg_call_run(&call, true, err);
	}
	sl__pg_call_close(&call);
	return rc;
}

int sl__pg_cron_list(void *store, sl_cron_fn *fn, void *ctx, struct sl_err *err)
{
	struct pg_call call;
	const PGresult *res = NULL;
	int rc = sl__pg_call_open(&call, store, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	rc = sl__pg_call_one(&call, ST_CRON_LIST, &res, err);
	for (int i = 0; rc == 0 && i < PQntuples(res); i++) {
		const struct sl_cron cron = {.name = sl__pg_text(res, i, 0),
					     .spec = sl__pg_text(res, i, 1),
					     .type = sl__pg_text(res, i, 2),
					     .input = sl__pg_text(res, i, 3),
					     .priority = sl__pg_int4(res, i, 4),
					     .catch_up = sl__pg_bool(res, i, 5),
					     .next_ms = sl__pg_time_ms(res, i, 6),
					     .last_ms = sl__pg_time_ms(res, i, 7),
					     .last_chain = (uint64_t)sl__pg_int8(res, i, 8),
					     .from_http = sl__pg_bool(res, i, 9)};
		rc = fn(&cron, ctx);
	}
	sl__pg_call_close(&call);
	return rc;
}

int sl__pg_cron_fire(void *store, const struct sl_cron *seen, int64_t next_ms, int *fired, struct sl_started *out,
		     const struct sl_store_listen *listen, struct sl_err *err)
{
	struct pg_call call;
	const PGresult *res = NULL;
	int rc = sl__pg_call_open(&call, store, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__pg_add_text(&call.params, seen->name);
	sl__pg_add_time(&call.params, seen->next_ms);
	sl__pg_add_time(&call.params, next_ms);
	sl__pg_add_text(&call.params, seen->spec);
	sl__pg_add_bool(&call.params, seen->catch_up != 0);
	rc = sl__pg_call_one(&call, ST_CRON_FIRE, &res, err);
	if (rc == 0) {
		*fired = PQntuples(res) > 0;
		if (*fired) {
			*out = (struct sl_started){.chain_id = (uint64_t)sl__pg_int8(res, 0, 0)};
			sl__pg_tell_born(listen, out->chain_id, out->chain_id, sl__pg_text(res, 0, 1), PG_BORN_READY);
		}
	}
	sl__pg_call_close(&call);
	return rc;
}
