/* SPDX-License-Identifier: Apache-2.0 */
/* What the dashboard and the CLI read: claims in force, failed jobs by their errors, streams of events. */
#include "jobs/store/lease_rows.h"
#include "jobs/store/postgres/store.h"

#define SCAN_DEFAULT 10000
#define SCAN_MAX 100000
#define GROUPS_DEFAULT 100
#define GROUPS_MAX 1000

static int add_lease_row(struct sl__lease_rows *rows, const PGresult *res, int i, struct sl_err *err)
{
	struct sl_lease row = {.worker = sl__pg_text(res, i, 1),
			       .claimed_ms = sl__pg_time_ms(res, i, 2),
			       .until_ms = sl__pg_time_ms(res, i, 3)};
	memcpy(row.claim, PQgetvalue(res, i, 0), sizeof(row.claim));
	return sl__lease_rows_add(rows, &row, (uint64_t)sl__pg_int8(res, i, 4), sl__pg_text(res, i, 5), err);
}

int sl__pg_leases(void *store, const uint8_t after[16], uint32_t limit, sl_lease_fn *fn, void *ctx, struct sl_err *err)
{
	static const uint8_t none[16] = {0};
	struct pg_store *s = store;
	struct pg_call call;
	struct sl__lease_rows rows;
	const PGresult *res = NULL;
	int rc = sl__pg_call_open(&call, s, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__lease_rows_init(&rows, &s->env, fn, ctx);
	sl__pg_add_uuid(&call.params, after != NULL ? after : none);
	sl__pg_add_int8(&call.params, limit);
	rc = sl__pg_call_one(&call, ST_LEASES, &res, err);
	for (int i = 0; rc == 0 && i < PQntuples(res); i++)
		rc = add_lease_row(&rows, res, i, err);
	rc = sl__lease_rows_end(&rows, rc, err);
	sl__pg_call_close(&call);
	return rc;
}

static int groups(const PGresult *res, sl_error_group_fn *fn, void *ctx)
{
	int rc = 0;
	for (int i = 0; rc == 0 && i < PQntuples(res); i++) {
		const struct sl_error_group g = {.type = sl__pg_text(res, i, 0),
						 .error = sl__pg_text(res, i, 1),
						 .count = (uint64_t)sl__pg_int8(res, i, 2),
						 .first_ms = sl__pg_time_ms(res, i, 3),
						 .last_ms = sl__pg_time_ms(res, i, 4),
						 .sample_id = (uint64_t)sl__pg_int8(res, i, 5)};
		rc = fn(&g, ctx);
	}
	return rc;
}

int sl__pg_errors(void *store, const struct sl_error_filter *filter, sl_error_group_fn *fn, void *ctx,
		  struct sl_err *err)
{
	static const struct sl_error_filter all = {0};
	const struct sl_error_filter *f = filter != NULL ? filter : &all;
	int64_t below = f->after != 0 ? (int64_t)f->after : INT64_MAX;
	int64_t scan = f->scan == 0 ? SCAN_DEFAULT : SL_MIN(f->scan, SCAN_MAX);
	struct pg_call call;
	int rc = sl__pg_call_open(&call, store, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__pg_add_int8(&call.params, below);
	sl__pg_add_int8(&call.params, scan - 1);
	int at_reached = sl__pg_call_send(&call, ST_ERRORS_REACHED);
	sl__pg_add_int8(&call.params, below);
	sl__pg_add_int8(&call.params, scan);
	if (f->n_types > 0)
		sl__pg_add_texts(&call.params, f->types, f->n_types);
	else
		sl__pg_add_null(&call.params);
	sl__pg_add_int8(&call.params, f->limit == 0 ? GROUPS_DEFAULT : SL_MIN(f->limit, GROUPS_MAX));
	int at = sl__pg_call_send(&call, ST_ERRORS);
	rc = sl__pg_call_run(&call, true, err);
	if (rc == 0 && f->reached != NULL) {
		const PGresult *res = sl__pg_call_result(&call, at_reached);
		*f->reached = PQntuples(res) > 0 ? (uint64_t)sl__pg_int8(res, 0, 0) : 0;
	}
	if (rc == 0)
		rc = groups(sl__pg_call_result(&call, at), fn, ctx);
	sl__pg_call_close(&call);
	return rc;
}

int sl__pg_event_streams(void *store, const struct sl_event_stream *after, uint32_t limit, sl_event_stream_fn *fn,
			 void *ctx, struct sl_err *err)
{
	struct pg_call call;
	const PGresult *res = NULL;
	int rc = sl__pg_call_open(&call, store, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__pg_add_text(&call.params, after != NULL ? after->stream : "");
	sl__pg_add_int8(&call.params, after != NULL ? (int64_t)after->incarnation : -1);
	sl__pg_add_int8(&call.params, limit);
	rc = sl__pg_call_one(&call, ST_EVENT_STREAMS, &res, err);
	for (int i = 0; rc == 0 && i < PQntuples(res); i++) {
		const struct sl_event_stream stream = {.stream = sl__pg_text(res, i, 0),
						       .incarnation = (uint32_t)sl__pg_int8(res, i, 1),
						       .mark = (uint64_t)sl__pg_int8(res, i, 2),
						       .last_ms = sl__pg_time_ms(res, i, 3)};
		rc = fn(&stream, ctx);
	}
	sl__pg_call_close(&call);
	return rc;
}
