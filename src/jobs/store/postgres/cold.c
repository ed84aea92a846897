/* SPDX-License-Identifier: Apache-2.0 */
/* How PostgreSQL runs the statements of cold_sql.h. */
#include <stdlib.h>

#include "jobs/store/postgres/store.h"

#define COLD_PG_OF(name, text) [SL__COLD_##name] = ST_##name,
static const enum pg_statement statement_of[SL__COLD_COUNT] = {SL__COLD_STATEMENTS(COLD_PG_OF)};
#undef COLD_PG_OF

void sl__pg_add_values(struct sl__pg_params *p, const struct sl__cold_query *q)
{
	for (size_t i = 0; i < q->n_values; i++) {
		const struct sl__cold_value *v = &q->values[i];
		switch (v->kind) {
		case SL__COLD_INT:
			sl__pg_add_int8(p, v->i);
			break;
		case SL__COLD_BOOL:
			sl__pg_add_bool(p, v->i != 0);
			break;
		case SL__COLD_TEXT:
			sl__pg_add_text(p, v->p);
			break;
		case SL__COLD_TIME:
			sl__pg_add_time(p, v->i);
			break;
		case SL__COLD_IDS:
			sl__pg_add_ids(p, v->p, v->n);
			break;
		case SL__COLD_TEXTS:
			if (v->n > 0)
				sl__pg_add_texts(p, v->p, v->n);
			else
				sl__pg_add_null(p);
			break;
		case SL__COLD_CLAIM:
			sl__pg_add_uuid(p, v->p);
			break;
		case SL__COLD_NOW:
			break;
		}
	}
}

int sl__pg_cold_rows(const PGresult *res, const struct sl__cold_query *q)
{
	union {
		const PGresult *in;
		void *out;
	} result = {.in = res};
	struct sl__cold_row row = {.ops = &sl__pg_cold_ops, .result = result.out};
	int rc = 0;
	for (; rc == 0 && row.at < PQntuples(res); row.at++)
		rc = q->row(&row, q->ctx);
	return rc;
}

static int pg_cold_read(void *store, sl_store_tx *tx, const struct sl__cold_query *queries, size_t n,
			struct sl_err *err)
{
	struct pg_call call SL_CLEANUP(sl__pg_call_close);
	int at = 0, rc = sl__pg_call_open(&call, store, tx, PG_ONCE, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < n; i++) {
		sl__pg_add_values(&call.params, &queries[i]);
		int number = sl__pg_call_send(&call, statement_of[queries[i].stmt]);
		at = i == 0 ? number : at;
	}
	rc = sl__pg_call_run(&call, true, err);
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = sl__pg_cold_rows(sl__pg_call_result(&call, at + (int)i), &queries[i]);
	return rc;
}

static int pg_cold_change(void *store, const struct sl__cold_query *q, const struct sl_store_scope *scope,
			  bool must_change, size_t *n, struct sl_err *err)
{
	struct pg_call call SL_CLEANUP(sl__pg_call_close);
	int rc = sl__pg_call_open(&call, store, sl__scope_tx(scope), must_change ? PG_LONG : PG_ONCE, err);
	if (rc != 0)
		return rc;
	if (!must_change)
		sl__pg_call_audit(&call, scope);
	int at = -1;
	if (q != NULL) {
		sl__pg_add_values(&call.params, q);
		at = sl__pg_call_send(&call, statement_of[q->stmt]);
	}
	rc = sl__pg_call_run(&call, !must_change, err);
	if (rc != 0 || q == NULL)
		return rc;
	*n = strtoul(PQcmdTuples(call.pipe.results[at]), NULL, 10);
	if (!must_change)
		return 0;
	if (*n == 0)
		return SL_ENOENT;
	sl__pg_pipe_end(&call.pipe);
	sl__pg_call_audit(&call, scope);
	return sl__pg_call_run(&call, true, err);
}

static int64_t pg_column_number(const struct sl__cold_row *row, int column)
{
	switch (PQgetlength(row->result, row->at, column)) {
	case 1:
		return sl__pg_bool(row->result, row->at, column);
	case 8:
		return sl__pg_int8(row->result, row->at, column);
	default:
		return sl__pg_int4(row->result, row->at, column);
	}
}

static int64_t pg_column_time_ms(const struct sl__cold_row *row, int column)
{
	return sl__pg_time_ms(row->result, row->at, column);
}

static const char *pg_column_text(const struct sl__cold_row *row, int column)
{
	return sl__pg_text(row->result, row->at, column);
}

static const void *pg_column_bytes(const struct sl__cold_row *row, int column, size_t *n)
{
	*n = (size_t)PQgetlength(row->result, row->at, column);
	return PQgetvalue(row->result, row->at, column);
}

const struct sl__cold_ops sl__pg_cold_ops = {.answer_bytes = SL__PG_EVENTS_BYTES,
					     .read = pg_cold_read,
					     .change = pg_cold_change,
					     .number = pg_column_number,
					     .time_ms = pg_column_time_ms,
					     .text = pg_column_text,
					     .bytes = pg_column_bytes};
