/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows from the caller's callback. They are checked and copied as they are added, and become runs of consecutive
 * sequences that carry the values themselves: a worker copies them into its columns, and no text is written or parsed.
 *
 * A run ends with its partition, where a sequence does not follow the one before, and at the sequence from which this
 * run of the export continues.
 */
#include "format/text.h"
#include "pipeline/export/export.h"

#define BATCH_BYTES ((size_t)1 << 20)
#define VALUE_BYTES_MAX ((size_t)1 << 30)

/* ---- what the callback calls ---- */

/* Why the value does not fit its column; NULL: it does. */
static const char *value_fault(const struct sl_parquet_column *c, const struct sl_export_value *v)
{
	static const int64_t powers[] = {1,
					 10,
					 100,
					 1000,
					 10000,
					 100000,
					 1000000,
					 10000000,
					 100000000,
					 1000000000,
					 10000000000,
					 100000000000,
					 1000000000000,
					 10000000000000,
					 100000000000000,
					 1000000000000000,
					 10000000000000000,
					 100000000000000000,
					 1000000000000000000};
	size_t at;
	if (v->is_null)
		return c->nullable ? NULL : "NULL in a required column";
	switch (c->kind) {
	case SL_PARQUET_BOOL:
		return v->integer == 0 || v->integer == 1 ? NULL : "neither true nor false";
	case SL_PARQUET_INT32:
	case SL_PARQUET_DATE:
		return v->integer >= INT32_MIN && v->integer <= INT32_MAX ? NULL : "the number is too large";
	case SL_PARQUET_DECIMAL:
		return v->integer < powers[c->precision] && v->integer > -powers[c->precision]
			       ? NULL
			       : "the number is too large";
	case SL_PARQUET_FIXED:
		return v->bytes != NULL && v->len == (size_t)c->length ? NULL
								       : "the column has another number of bytes";
	case SL_PARQUET_STRING:
	case SL_PARQUET_BINARY:
		if (v->len >= VALUE_BYTES_MAX || (v->bytes == NULL && v->len > 0))
			return "the value is too long, or NULL with a length";
		return c->kind == SL_PARQUET_STRING && v->len > 0 ? sl__text_fault(v->bytes, v->len, &at) : NULL;
	default:
		return NULL;
	}
}

int sl_export_rows_add(sl_export_rows *rows, const struct sl_export_value *values, struct sl_err *err)
{
	const struct sl__schema *schema = &rows->job->schema;
	size_t sequence = rows->job->layout.sequence_column;
	for (size_t i = 0; i < schema->n; i++) {
		const char *why = value_fault(&schema->columns[i], &values[i]);
		if (why != NULL)
			return sl_err_set(err, SL_EDATA, "column %.60s: %s", schema->columns[i].name, why);
	}
	if (values[sequence].integer < 0 || (uint64_t)values[sequence].integer > SL__SEQUENCE_MAX)
		return sl_err_set(err, SL_EDATA, "column %.60s: not a sequence number", schema->columns[sequence].name);
	for (size_t i = 0; i < schema->n; i++) {
		enum sl_parquet_kind kind = schema->columns[i].kind;
		struct sl_export_value cell = values[i];
		bool has_bytes = !cell.is_null &&
				 (kind == SL_PARQUET_STRING || kind == SL_PARQUET_BINARY || kind == SL_PARQUET_FIXED);
		if (!has_bytes)
			cell.len = 0;
		cell.bytes = NULL; /* set when the run is made: its bytes follow those of the cell before */
		(void)sl__buf_append(&rows->cells, &cell, sizeof(cell));
		if (cell.len > 0)
			(void)sl__buf_append(&rows->bytes, values[i].bytes, cell.len);
	}
	if (rows->cells.failed != 0 || rows->bytes.failed != 0)
		return sl__no_memory(err, "rows");
	rows->n++;
	return rows->cells.len + rows->bytes.len >= BATCH_BYTES ? SL_EXPORT_ROWS_FULL : 0;
}

bool sl_export_rows_wait(sl_export_rows *rows, int64_t ms)
{
	return sl__input_wait(&rows->job->input, SL_MAX(ms, 0));
}

/* ---- runs ---- */

/* Rows [rows->at, rows->at + n) as a run, in one block: the values, and after them their bytes. */
static int make_run(struct sl_export_rows *rows, size_t n, struct sl_pipeline_element *out, struct sl_err *err)
{
	const struct sl_env *env = &rows->job->e->env;
	size_t n_columns = rows->job->schema.n, n_cells = n * n_columns, bytes = 0;
	const struct sl_export_value *from =
		(const struct sl_export_value *)(const void *)rows->cells.data + rows->at * n_columns;
	for (size_t i = 0; i < n_cells; i++)
		bytes += from[i].len;
	size_t size = n_cells * sizeof(*from) + bytes;
	struct sl__run *run = sl__calloc(env, 1, sizeof(*run));
	char *own = run != NULL ? sl__alloc(env, size + 1) : NULL;
	if (own == NULL) {
		sl__free(env, run);
		return sl__no_memory(err, "a run of rows");
	}
	struct sl_export_value *cells = (void *)own;
	char *text = own + n_cells * sizeof(*cells);
	memcpy(cells, from, n_cells * sizeof(*cells));
	if (bytes > 0)
		memcpy(text, rows->bytes.data + rows->bytes_at, bytes);
	for (size_t i = 0; i < n_cells; i++) {
		cells[i].bytes = text;
		text += cells[i].len;
	}
	*run = (struct sl__run){.env = env, .own = own, .values = cells, .n_rows = n};
	out->data = run;
	out->bytes = size;
	rows->at += n;
	rows->bytes_at += bytes;
	return 0;
}

int sl__export_rows_next(struct sl__export_job *job, struct sl_pipeline_element *out, struct sl_err *err)
{
	struct sl_export_rows *rows = &job->rows;
	const struct sl_export_opts *o = &job->e->o;
	size_t n_columns = job->schema.n, column = job->layout.sequence_column;
	if (rows->job == NULL) {
		rows->job = job;
		sl__buf_init(&rows->cells, &job->e->env);
		sl__buf_init(&rows->bytes, &job->e->env);
	}
	while (rows->at == rows->n) {
		rows->at = rows->n = rows->bytes_at = 0;
		sl__buf_clear(&rows->cells);
		sl__buf_clear(&rows->bytes);
		if (rows->ended)
			return SL_PIPELINE_END;
		if (sl__export_stopping(job->e))
			return sl_err_set(err, SL_ECANCELLED, "stopped");
		int rc = o->rows(job->seen_any ? job->seen + 1 : job->first, rows, err, o->rows_ctx);
		if (rc < 0)
			return rc;
		rows->ended = rc == SL_EXPORT_ROWS_END;
	}

	/* As many rows as follow each other within a partition. */
	const struct sl_export_value *cells = (const void *)rows->cells.data;
	uint64_t first = (uint64_t)cells[rows->at * n_columns + column].integer, last = first;
	size_t n = 1;
	for (; rows->at + n < rows->n; n++) {
		uint64_t next = (uint64_t)cells[(rows->at + n) * n_columns + column].integer;
		if (next != last + 1 || next % job->dataset.partition_size == 0 || next == job->first)
			break;
		last = next;
	}
	*out = (struct sl_pipeline_element){.first = first, .last = last};
	return make_run(rows, n, out, err);
}
