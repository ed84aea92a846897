/* SPDX-License-Identifier: Apache-2.0 */
/* What the dashboard and the CLI read: claims in force, failed jobs by their errors, streams of events. */
#include "jobs/store/lease_rows.h"
#include "jobs/store/sqlite/store.h"

/* ---- leases ---- */

static int add_lease_row(struct sl__lease_rows *rows, sqlite3_stmt *s, struct sl_err *err)
{
	struct sl_lease row = {.worker = sl__sqlite_text(s, 1),
			       .claimed_ms = sl__sqlite_i64(s, 2) / 1000,
			       .until_ms = sl__sqlite_i64(s, 3) / 1000};
	if (sqlite3_column_bytes(s, 0) != (int)sizeof(row.claim))
		return sl_err_set(err, SL_ECORRUPT, "a lease whose claim has not 16 bytes");
	memcpy(row.claim, sqlite3_column_blob(s, 0), sizeof(row.claim));
	return sl__lease_rows_add(rows, &row, sl__sqlite_u64(s, 4), sl__sqlite_text(s, 5), err);
}

int sl__sq_leases(void *store, const uint8_t after[16], uint32_t limit, sl_lease_fn *fn, void *ctx, struct sl_err *err)
{
	struct sq_store *st = store;
	struct sl__sqlite *c;
	sqlite3_stmt *s;
	struct sl__lease_rows rows;
	int rc = sl__sq_read_begin(st, NULL, &c, err);
	if (rc != 0)
		return rc;
	sl__lease_rows_init(&rows, &st->env, fn, ctx);
	rc = sl__sqlite_bind(
		c, SQ_LEASES,
		SQ_VALUES(SQ_BLOB(after != NULL ? (const char *)after : "", after ? 16 : 0), SQ_INT(limit)), &s, err);
	while (rc == 0 && (rc = sl__sqlite_step(c, s, err)) > 0)
		rc = add_lease_row(&rows, s, err);
	rc = sl__lease_rows_end(&rows, rc, err);
	(void)sqlite3_reset(s);
	sl__sq_read_end(st, NULL, c);
	return rc;
}

/* ---- errors ---- */

#define SCAN_DEFAULT 10000
#define SCAN_MAX 100000
#define GROUPS_DEFAULT 100
#define GROUPS_MAX 1000

static int reached(struct sl__sqlite *c, const struct sl_error_filter *f, uint32_t scan, struct sl_err *err)
{
	sqlite3_stmt *s;
	if (f->reached == NULL)
		return 0;
	int rc = sl__sqlite_row(c, SQ_ERRORS_REACHED, SQ_VALUES(SQ_INT(f->after), SQ_INT(scan - 1)), &s, err);
	if (rc < 0)
		return rc;
	*f->reached = rc > 0 ? sl__sqlite_u64(s, 0) : 0;
	(void)sqlite3_reset(s);
	return 0;
}

static int groups(struct sl__sqlite *c, const struct sl_error_filter *f, uint32_t scan, const char *types,
		  sl_error_group_fn *fn, void *ctx, struct sl_err *err)
{
	sqlite3_stmt *s;
	uint32_t limit = f->limit == 0 ? GROUPS_DEFAULT : SL_MIN(f->limit, GROUPS_MAX);
	int rc = sl__sqlite_bind(c, SQ_ERRORS, SQ_VALUES(SQ_INT(f->after), SQ_INT(scan), SQ_TEXT(types), SQ_INT(limit)),
				 &s, err);
	while (rc == 0 && (rc = sl__sqlite_step(c, s, err)) > 0) {
		struct sl_error_group g = {
			.type = sl__sqlite_text(s, 0),
			.error = sl__sqlite_text(s, 1),
			.count = sl__sqlite_u64(s, 2),
			.first_ms = sl__sqlite_i64(s, 3) / 1000,
			.last_ms = sl__sqlite_i64(s, 4) / 1000,
			.sample_id = sl__sqlite_u64(s, 5),
		};
		rc = fn(&g, ctx);
	}
	(void)sqlite3_reset(s);
	return rc;
}

int sl__sq_errors(void *store, const struct sl_error_filter *filter, sl_error_group_fn *fn, void *ctx,
		  struct sl_err *err)
{
	static const struct sl_error_filter all = {0};
	const struct sl_error_filter *f = filter != NULL ? filter : &all;
	struct sq_store *st = store;
	struct sl__sqlite *c;
	struct sl__buf types;
	uint32_t scan = f->scan == 0 ? SCAN_DEFAULT : SL_MIN(f->scan, SCAN_MAX);
	sl__buf_init(&types, &st->env);
	int rc = sl__sq_types_json(&types, f->types, f->n_types);
	if (rc != 0)
		(void)sl_err_set(err, rc, "no memory for a list of types");
	if (rc == 0 && (rc = sl__sq_read_begin(st, NULL, &c, err)) == 0) {
		/* One snapshot: what was counted is what was grouped. */
		rc = sl__sqlite_exec(c, "BEGIN", err);
		rc = rc != 0 ? rc : reached(c, f, scan, err);
		rc = rc != 0 ? rc : groups(c, f, scan, types.data, fn, ctx, err);
		sl__sqlite_rollback(c);
		sl__sq_read_end(st, NULL, c);
	}
	sl__buf_fini(&types);
	return rc;
}

/* ---- streams ---- */

int sl__sq_event_streams(void *store, const struct sl_event_stream *after, uint32_t limit, sl_event_stream_fn *fn,
			 void *ctx, struct sl_err *err)
{
	struct sl__sqlite *c;
	sqlite3_stmt *s;
	int rc = sl__sq_read_begin(store, NULL, &c, err);
	if (rc != 0)
		return rc;
	rc = sl__sqlite_bind(c, SQ_STREAMS,
			     SQ_VALUES(SQ_TEXT(after != NULL ? after->stream : NULL),
				       SQ_INT(after != NULL ? after->incarnation : 0), SQ_INT(limit)),
			     &s, err);
	while (rc == 0 && (rc = sl__sqlite_step(c, s, err)) > 0) {
		struct sl_event_stream stream = {
			.stream = sl__sqlite_text(s, 0),
			.incarnation = (uint32_t)sl__sqlite_i64(s, 1),
			.mark = sl__sqlite_u64(s, 2),
			.last_ms = sl__sqlite_i64(s, 3) / 1000,
		};
		rc = fn(&stream, ctx);
	}
	(void)sqlite3_reset(s);
	sl__sq_read_end(store, NULL, c);
	return rc;
}
