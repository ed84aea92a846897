/* SPDX-License-Identifier: Apache-2.0 */
/* A tick of a recurring schedule: enqueued by the one transaction that moves the schedule past it. */

#include "jobs/store/sqlite/store.h"

static int enqueue_tick(struct sq_op *op, const char *name, struct sl_started *out)
{
	sqlite3_stmt *s;
	uint64_t id = 0;
	int rc = sl__sq_new_ids(op, 1, &id);
	if (rc != 0)
		return rc;
	rc = SQ_ROW(op, SQ_CRON_GET, &s, SQ_TEXT(name));
	if (rc <= 0)
		return rc;
	struct sl_new_chain chain = {.job = {.type = sl__sqlite_text(s, 0),
					     .input = sl__sqlite_text(s, 1),
					     .priority = sqlite3_column_int(s, 2)}};
	op->from_http = sqlite3_column_int(s, 3) != 0;
	rc = sl__sq_start_one(op, &chain, id, out);
	(void)sqlite3_reset(s);
	if (rc != 0)
		return rc;
	return SQ_RUN(op, SQ_CRON_FIRED, SQ_TEXT(name), SQ_INT(id));
}

int sl__sq_cron_fire(void *store, const struct sl_cron *seen, int64_t next_ms, bool *fired, struct sl_started *out,
		     const struct sl_store_scope *scope, struct sl_err *err)
{
	struct sq_op op;
	struct sl_started started = {0};
	int moved = 0, rc = sl__sq_op_begin(&op, store, SQ_DURABLE, scope, err);
	if (rc != 0)
		return rc;
	rc = SQ_CHANGE(&op, SQ_CRON_MOVE, &moved, SQ_TEXT(seen->name), SQ_INT(sq_us(seen->next_ms)),
		       SQ_INT(sq_us(next_ms)), SQ_TEXT(seen->spec), SQ_INT(seen->catch_up));
	if (rc == 0 && moved)
		rc = enqueue_tick(&op, seen->name, &started);
	rc = sl__sq_op_end(&op, rc);
	if (rc != 0)
		return rc;
	*fired = moved;
	if (out != NULL)
		*out = started;
	return 0;
}
