/* SPDX-License-Identifier: Apache-2.0 */
/* Counting, from the queues, the leases and the tally: never by reading the history. */
#include "jobs/store/sqlite/store.h"

int sl__sq_counts(void *store, sl_job_count_fn *fn, void *ctx, struct sl_err *err)
{
	struct sl__sqlite *c;
	sqlite3_stmt *s;
	int rc = sl__sq_read_begin(store, NULL, &c, err);
	if (rc != 0)
		return rc;
	rc = sl__sqlite_bind(c, SQ_COUNTS, SQ_VALUES(SQ_INT(sl__sq_now_us(store))), &s, err);
	while (rc == 0 && (rc = sl__sqlite_step(c, s, err)) > 0) {
		struct sl_job_count count = {
			.type = sl__sqlite_text(s, 0),
			.status = (enum sl_job_status)sqlite3_column_int(s, 1),
			.count = sl__sqlite_u64(s, 2),
			.due = sl__sqlite_u64(s, 3),
			.retrying = sl__sqlite_u64(s, 4),
			.oldest_ms = sl__sqlite_i64(s, 5) / 1000,
			.paused = sqlite3_column_int(s, 6),
		};
		rc = fn(&count, ctx);
	}
	(void)sqlite3_reset(s);
	sl__sq_read_end(store, NULL, c);
	return rc;
}

/* SELECT due,retrying,running,scheduled,blocked over the types in the JSON array ?1, NULL for all; ?2 is now. */
#define OF_TYPES(column) " WHERE (?1 IS NULL OR " column " IN (SELECT value FROM json_each(?1)))"
static const char outstanding_sql[] =
	"WITH " SQ_LEASED " SELECT"
	" (SELECT count(*) FROM sluice_ready" OF_TYPES(
		"type") ")"
			" +(SELECT count(*) FROM sluice_sched" OF_TYPES(
				"type") " AND due_us<=?2),"
					" (SELECT count(*) FROM sluice_sched" OF_TYPES(
						"type") " AND due_us>?2 AND tried),"
							" (SELECT count(*) FROM r JOIN sluice_job j ON j.id=r.id AND "
							"j.fence=r.fence AND j.status=2" OF_TYPES(
								"j.type") "),"
									  " (SELECT count(*) FROM "
									  "sluice_sched" OF_TYPES(
										  "type") " AND due_us>?2 AND NOT "
											  "tried),"
											  " (SELECT count(*) FROM "
											  "sluice_job" OF_TYPES(
												  "type") " AND "
													  "status=1)";

int sl__sq_types_json(struct sl__buf *b, const char *const *types, size_t n_types)
{
	for (size_t i = 0; i < n_types; i++) {
		(void)sl__buf_str_append(b, i == 0 ? "[\"" : ",\"");
		for (const char *p = types[i]; *p != '\0'; p++) {
			if ((unsigned char)*p < 0x20)
				(void)sl__buf_printf(b, "\\u%04x", (unsigned)*p);
			else
				(void)sl__buf_printf(b, *p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
		}
		(void)sl__buf_str_append(b, "\"");
	}
	return n_types == 0 ? 0 : sl__buf_str_append(b, "]");
}

static int read_outstanding(struct sq_store *s, const char *json, struct sl_outstanding *out, struct sl_err *err)
{
	struct sl__sqlite *c;
	sqlite3_stmt *st = NULL;
	int rc = sl__sq_read_begin(s, NULL, &c, err);
	if (rc != 0)
		return rc;
	rc = sl__sqlite_prepare(c, outstanding_sql, SQ_VALUES(SQ_TEXT(json), SQ_INT(sl__sq_now_us(s))), &st, err);
	rc = rc != 0 ? rc : sl__sqlite_step(c, st, err);
	if (rc > 0) {
		*out = (struct sl_outstanding){
			.due = sl__sqlite_u64(st, 0),
			.retrying = sl__sqlite_u64(st, 1),
			.running = sl__sqlite_u64(st, 2),
			.scheduled = sl__sqlite_u64(st, 3),
			.blocked = sl__sqlite_u64(st, 4),
		};
		rc = 0;
	}
	(void)sqlite3_finalize(st);
	sl__sq_read_end(s, NULL, c);
	return rc;
}

int sl__sq_outstanding(void *store, const char *const *types, size_t n_types, struct sl_outstanding *out,
		       struct sl_err *err)
{
	struct sq_store *s = store;
	struct sl__buf json;
	sl__buf_init(&json, &s->env);
	int rc = sl__sq_types_json(&json, types, n_types);
	rc = rc != 0 ? sl_err_set(err, rc, "no memory for a list of types") : read_outstanding(s, json.data, out, err);
	sl__buf_fini(&json);
	return rc;
}
