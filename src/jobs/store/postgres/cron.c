/* SPDX-License-Identifier: Apache-2.0 */
/* Recurring schedules. A tick is enqueued by the one transaction that moves the schedule past it. */
#include "jobs/store/postgres/store.h"

int sl__pg_cron_fire(void *store, const struct sl_cron *seen, int64_t next_ms, bool *fired, struct sl_started *out,
		     const struct sl_store_scope *scope, struct sl_err *err)
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
	sl__pg_add_bool(&call.params, seen->catch_up);
	rc = sl__pg_call_one(&call, ST_CRON_FIRE, &res, err);
	if (rc == 0) {
		*fired = PQntuples(res) > 0;
		if (*fired) {
			*out = (struct sl_started){.chain_id = (uint64_t)sl__pg_int8(res, 0, 0)};
			sl__pg_report_created(scope, out->chain_id, out->chain_id, sl__pg_text(res, 0, 1),
					      PG_CREATED_READY);
		}
	}
	sl__pg_call_close(&call);
	return rc;
}
