/* SPDX-License-Identifier: Apache-2.0 */
/* How SQLite runs the statements of cold_sql.h. Times are microseconds, lists are JSON arrays. */
#include <inttypes.h>

#include "format/row.h"
#include "jobs/store/sqlite/store.h"

#define COLD_SQ_OF(name, text) [SL__COLD_##name] = SQ_##name,
static const enum sq_statement statement_of[SL__COLD_COUNT] = {SL__COLD_STATEMENTS(COLD_SQ_OF)};
#undef COLD_SQ_OF

/* The values of a query as SQLite binds them. */
struct bound {
	struct sl__buf values; /* struct sl__sqlite_value */
	struct sl__buf json;   /* the list among them */
};

static void bind_value(struct bound *b, const struct sl__cold_value *v, int64_t now_us)
{
	struct sl__sqlite_value value = SQ_INT(v->i);
	const uint64_t *ids = v->p;
	switch (v->kind) {
	case SL__COLD_INT:
	case SL__COLD_BOOL:
		break;
	case SL__COLD_TEXT:
		value = SQ_TEXT(v->p);
		break;
	case SL__COLD_TIME:
		value = SQ_INT(sq_us(v->i));
		break;
	case SL__COLD_IDS:
		for (size_t i = 0; i < v->n; i++)
			(void)sl__buf_printf(&b->json, "%c%" PRIu64, i == 0 ? '[' : ',', ids[i]);
		(void)sl__buf_str_append(&b->json, v->n == 0 ? "[]" : "]");
		value = SQ_TEXT(b->json.data);
		break;
	case SL__COLD_TEXTS:
		for (size_t i = 0; i < v->n; i++) {
			const char *text = ((const char *const *)v->p)[i];
			(void)sl__buf_str_append(&b->json, i == 0 ? "[" : ",");
			sl__put_json_string(&b->json, text, strlen(text));
		}
		if (v->n > 0)
			(void)sl__buf_str_append(&b->json, "]");
		value = SQ_TEXT(b->json.data);
		break;
	case SL__COLD_CLAIM:
		value = SQ_BLOB(v->p, sizeof(struct sl_claim_id));
		break;
	case SL__COLD_NOW:
		value = SQ_INT(now_us);
		break;
	}
	(void)sl__buf_append(&b->values, &value, sizeof(value));
}

static int bind_values(struct bound *b, const struct sl__cold_query *q, int64_t now_us, struct sl_err *err)
{
	for (size_t i = 0; i < q->n_values; i++)
		bind_value(b, &q->values[i], now_us);
	if (b->values.failed != 0 || b->json.failed != 0)
		return sl__no_memory(err, "the values of a statement");
	return 0;
}

static void bound_fini(struct bound *b)
{
	sl__buf_fini(&b->values);
	sl__buf_fini(&b->json);
}

static const struct sl__sqlite_value *bound_values(const struct bound *b)
{
	return (const struct sl__sqlite_value *)(const void *)b->values.data;
}

int sl__sq_cold_rows(const struct sq_store *s, struct sl__sqlite *c, const struct sl__cold_query *q, struct sl_err *err)
{
	struct bound b SL_CLEANUP(bound_fini);
	sqlite3_stmt *stmt = NULL;
	sl__buf_init(&b.values, &s->env);
	sl__buf_init(&b.json, &s->env);
	int rc = bind_values(&b, q, sl__sq_now_us(s), err);
	if (rc != 0)
		return rc;
	rc = q->sql != NULL ? sl__sqlite_prepare(c, q->sql, bound_values(&b), q->n_values, &stmt, err)
			    : sl__sqlite_bind(c, statement_of[q->stmt], bound_values(&b), q->n_values, &stmt, err);
	const struct sl__cold_row row = {.ops = &sl__sq_cold_ops, .result = stmt};
	while (rc == 0 && (rc = sl__sqlite_step(c, stmt, err)) > 0)
		rc = q->row(&row, q->ctx);
	if (q->sql != NULL)
		(void)sqlite3_finalize(stmt);
	else
		(void)sqlite3_reset(stmt);
	return rc;
}

static int sq_cold_read(void *store, sl_store_tx *tx, const struct sl__cold_query *queries, size_t n,
			struct sl_err *err)
{
	struct sl__sqlite *c;
	int rc = sl__sq_read_begin(store, tx, &c, err);
	if (rc != 0)
		return rc;
	/* One moment for several. A caller's transaction has one anyway. */
	bool begun = n > 1 && tx == NULL;
	if (begun)
		rc = sl__sqlite_exec(c, "BEGIN", err);
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = sl__sq_cold_rows(store, c, &queries[i], err);
	if (begun)
		sl__sqlite_rollback(c);
	sl__sq_read_end(store, tx, c);
	return rc;
}

static int sq_cold_change(void *store, const struct sl__cold_query *q, const struct sl_store_scope *scope,
			  bool must_change, size_t *n, struct sl_err *err)
{
	struct sq_store *s = store;
	struct sq_op op;
	struct bound b SL_CLEANUP(bound_fini);
	int changed = 0;
	sl__buf_init(&b.values, &s->env);
	sl__buf_init(&b.json, &s->env);
	int rc = sl__sq_op_begin(&op, s, SQ_DURABLE, scope, err);
	if (rc != 0)
		return rc;
	if (q != NULL)
		rc = bind_values(&b, q, op.now_us, err);
	if (rc == 0 && q != NULL)
		rc = sl__sqlite_run(op.c, statement_of[q->stmt], bound_values(&b), q->n_values, &changed, err);
	if (rc == 0 && must_change && changed == 0)
		rc = SL_ENOENT;
	rc = sl__sq_op_end(&op, rc);
	if (rc == 0)
		*n = (size_t)changed;
	return rc;
}

static int64_t sq_column_number(const struct sl__cold_row *row, int column)
{
	return sl__sqlite_i64(row->result, column);
}

static int64_t sq_column_time_ms(const struct sl__cold_row *row, int column)
{
	return sl__sqlite_i64(row->result, column) / 1000;
}

static const char *sq_column_text(const struct sl__cold_row *row, int column)
{
	return sl__sqlite_text(row->result, column);
}

static const void *sq_column_bytes(const struct sl__cold_row *row, int column, size_t *n)
{
	const void *bytes = sqlite3_column_blob(row->result, column);
	*n = (size_t)sqlite3_column_bytes(row->result, column);
	return bytes;
}

const struct sl__cold_ops sl__sq_cold_ops = {.read = sq_cold_read,
					     .change = sq_cold_change,
					     .number = sq_column_number,
					     .time_ms = sq_column_time_ms,
					     .text = sq_column_text,
					     .bytes = sq_column_bytes};
