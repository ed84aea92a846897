/* SPDX-License-Identifier: Apache-2.0 */
/* Recurring schedules: kept here, understood by the client. */
#include <stdio.h>

#include "jobs/store/sqlite/store.h"

int sl__sq_cron_put(void *store, const struct sl_cron *cron, const struct sl_store_listen *listen, struct sl_err *err)
{
	struct sq_op op;
	int rc = sl__sq_op_begin(&op, store, NULL, SQ_DURABLE, listen, err);
	if (rc != 0)
		return rc;
	rc = SQ_RUN(&op, SQ_CRON_PUT, SQ_TEXT(cron->name), SQ_TEXT(cron->spec), SQ_TEXT(cron->type),
		    SQ_TEXT(cron->input != NULL ? cron->input : "null"), SQ_INT(cron->priority),
		    SQ_INT(cron->catch_up != 0), SQ_INT(sq_us(cron->next_ms)), SQ_INT(op.from_http));
	return sl__sq_op_end(&op, rc);
}

int sl__sq_cron_remove(void *store, const char *name, const struct sl_store_listen *listen, struct sl_err *err)
{
	struct sq_op op;
	int changed = 0, rc = sl__sq_op_begin(&op, store, NULL, SQ_DURABLE, listen, err);
	if (rc != 0)
		return rc;
	rc = SQ_CHANGE(&op, SQ_CRON_REMOVE, &changed, SQ_TEXT(name));
	if (rc == 0 && changed == 0)
		rc = sl_err_set(err, SL_ENOENT, "there is no schedule \"%s\"", name);
	return sl__sq_op_end(&op, rc);
}

int sl__sq_cron_list(void *store, sl_cron_fn *fn, void *ctx, struct sl_err *err)
{
	struct sl__sqlite *c;
	sqlite3_stmt *s;
	int rc = sl__sq_read_begin(store, NULL, &c, err);
	if (rc != 0)
		return rc;
	rc = sl__sqlite_bind(c, SQ_CRON_LIST, NULL, 0, &s, err);
	while (rc == 0 && (rc = sl__sqlite_step(c, s, err)) > 0) {
		struct sl_cron cron = {
			.name = sl__sqlite_text(s, 0),
			.spec = sl__sqlite_text(s, 1),
			.type = sl__sqlite_text(s, 2),
			.input = sl__sqlite_text(s, 3),
			.priority = sqlite3_column_int(s, 4),
			.catch_up = sqlite3_column_int(s, 5),
			.next_ms = sl__sqlite_i64(s, 6) / 1000,
			.last_ms = sl__sqlite_i64(s, 7) / 1000,
			.last_chain = sl__sqlite_u64(s, 8),
			.from_http = sqlite3_column_int(s, 9),
		};
		rc = fn(&cron, ctx);
	}
	(void)sqlite3_reset(s);
	sl__sq_read_end(store, NULL, c);
	return rc;
}

static int enqueue_tick(struct sq_op *op, const char *name, struct sl_started *out)
{
	sqlite3_stmt *s;
	uint64_t id = 0;
	int rc = sl__sq_new_ids(op, 1, &id);
	rc = rc != 0 ? rc : SQ_ROW(op, SQ_CRON_GET, &s, SQ_TEXT(name));
	if (rc <= 0)
		return rc;
	struct sl_new_chain chain = {.job = {.type = sl__sqlite_text(s, 0),
					     .input = sl__sqlite_text(s, 1),
					     .priority = sqlite3_column_int(s, 2)}};
	op->from_http = sqlite3_column_int(s, 3) != 0;
	rc = sl__sq_start_one(op, &chain, id, out);
	(void)sqlite3_reset(s);
	return rc != 0 ? rc : SQ_RUN(op, SQ_CRON_FIRED, SQ_TEXT(name), SQ_INT(id));
}

int sl__sq_cron_fire(void *store, const struct sl_cron *seen, int64_t next_ms, int *fired, struct sl_started *out,
		     const struct sl_store_listen *listen, struct sl_err *err)
{
	struct sq_op op;
	struct sl_started started = {0};
	int moved = 0, rc = sl__sq_op_begin(&op, store, NULL, SQ_DURABLE, listen, err);
	if (rc != 0)
		return rc;
	rc = SQ_CHANGE(&op, SQ_CRON_MOVE, &moved, SQ_TEXT(seen->name), SQ_INT(sq_us(seen->next_ms)),
		       SQ_INT(sq_us(next_ms)), SQ_TEXT(seen->spec), SQ_INT(seen->catch_up != 0));
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
