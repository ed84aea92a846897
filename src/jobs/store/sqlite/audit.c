/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit trail: one row for every requested change, written by the transaction of the change, so that
 * there is never one without the other. The ids of the chains are a JSON array.
 */
#include <inttypes.h>

#include "jobs/store/sqlite/store.h"

int sl__sq_audit(struct sq_op *op, const struct sl_audit_record *record)
{
	struct sl__buf ids;
	if (record->actor == NULL || record->action == NULL)
		return sl_err_set(op->err, SL_EINVAL, "audit record: actor or action is missing");
	sl__buf_init(&ids, &op->store->env);
	for (size_t i = 0; i < record->n_chains; i++)
		(void)sl__buf_printf(&ids, "%c%" PRIu64, i == 0 ? '[' : ',', record->chains[i]);
	(void)sl__buf_str_append(&ids, record->n_chains > 0 ? "]" : "[]");
	int rc = ids.failed != 0
			 ? sl__no_memory(op->err, "the audit record")
			 : SQ_RUN(op, SQ_AUDIT_PUT, SQ_INT(op->now_us), SQ_INT(record->via), SQ_TEXT(record->actor),
				  SQ_TEXT(record->address), SQ_TEXT(record->action), SQ_TEXT(record->request_id),
				  SQ_TEXT(sl__buf_str(&ids)), SQ_TEXT(record->detail));
	sl__buf_fini(&ids);
	return rc;
}

int sl__sq_audit_put(void *store, const struct sl_audit_record *records, size_t n, struct sl_err *err)
{
	struct sq_op op;
	const struct sl_store_listen listen = {.audit = records, .n_audit = n};
	int rc = sl__sq_op_begin(&op, store, NULL, SQ_DURABLE, &listen, err);
	return rc != 0 ? rc : sl__sq_op_end(&op, 0);
}

/* The numbers of a JSON array of ours. */
static int read_ids(struct sl__buf *ids, const char *json)
{
	sl__buf_clear(ids);
	while (json != NULL && *json != '\0') {
		uint64_t id = 0;
		for (; *json >= '0' && *json <= '9'; json++)
			id = id * 10 + (uint64_t)(*json - '0');
		if (id != 0 && sl__buf_append(ids, &id, sizeof(id)) != 0)
			return SL_ENOMEM;
		json += *json != '\0';
	}
	return 0;
}

int sl__sq_audit_list(void *store, uint64_t before, uint32_t limit, sl_audit_record_fn *fn, void *ctx,
		      struct sl_err *err)
{
	struct sq_store *own = store;
	struct sl__sqlite *c;
	sqlite3_stmt *s;
	struct sl__buf ids;
	int rc = sl__sq_read_begin(store, NULL, &c, err);
	if (rc != 0)
		return rc;
	sl__buf_init(&ids, &own->env);
	rc = sl__sqlite_bind(
		c, SQ_AUDIT_LIST,
		SQ_VALUES(SQ_INT(before != 0 && before < INT64_MAX ? (int64_t)before : INT64_MAX), SQ_INT(limit)), &s,
		err);
	while (rc == 0 && (rc = sl__sqlite_step(c, s, err)) > 0) {
		if (read_ids(&ids, sl__sqlite_text(s, 7)) != 0) {
			rc = sl__no_memory(err, "the audit record");
			break;
		}
		const struct sl_audit_record record = {
			.id = sl__sqlite_u64(s, 0),
			.time_ms = sl__sqlite_i64(s, 1) / 1000,
			.via = (enum sl_via)sqlite3_column_int(s, 2),
			.actor = sl__sqlite_text(s, 3),
			.address = sl__sqlite_text(s, 4),
			.action = sl__sqlite_text(s, 5),
			.request_id = sl__sqlite_text(s, 6),
			.chains = (const uint64_t *)(const void *)ids.data,
			.n_chains = ids.len / sizeof(uint64_t),
			.detail = sl__sqlite_text(s, 8),
		};
		rc = fn(&record, ctx);
	}
	(void)sqlite3_reset(s);
	sl__buf_fini(&ids);
	sl__sq_read_end(store, NULL, c);
	return rc;
}

int sl__sq_audit_prune(void *store, int64_t before_ms, uint32_t limit, size_t *n, struct sl_err *err)
{
	struct sq_op op;
	int deleted = 0, rc = sl__sq_op_begin(&op, store, NULL, SQ_DURABLE, NULL, err);
	if (rc != 0)
		return rc;
	rc = SQ_CHANGE(&op, SQ_AUDIT_PRUNE, &deleted, SQ_INT(sq_us(before_ms)), SQ_INT(limit));
	rc = sl__sq_op_end(&op, rc);
	if (rc == 0)
		*n = (size_t)deleted;
	return rc;
}
