/* SPDX-License-Identifier: Apache-2.0 */
/* Rows into columns: memory for the arrays, and one value at a time into them. table.h says what is copied. */
#include "pipeline/export/table.h"

#define FIRST_ROWS ((size_t)4096)
#define PIECE_BYTES ((size_t)256 << 10)

static const char is_null[] = "NULL in a required column";
static const char no_hex[] = "not hexadecimal digits after \\x";
static const char wrong_kind[] = "not a value of this column's type";

/* ---- memory ---- */

int sl__table_init(struct sl__table *b, const struct sl_env *env, const struct sl__table_columns *columns, size_t max,
		   struct sl_err *err)
{
	static const uint8_t entry_bytes[] = {[SL_PARQUET_BOOL] = 1,
					      [SL_PARQUET_INT32] = 4,
					      [SL_PARQUET_FLOAT] = 4,
					      [SL_PARQUET_DATE] = 4,
					      [SL_PARQUET_STRING] = sizeof(struct sl_parquet_bytes),
					      [SL_PARQUET_BINARY] = sizeof(struct sl_parquet_bytes),
					      [SL_PARQUET_FIXED] = 0};
	size_t n = columns->n;
	*b = (struct sl__table){.env = env, .n_columns = n, .max = max};
	b->columns = sl__calloc(env, n, sizeof(*b->columns));
	b->views = sl__calloc(env, n, sizeof(*b->views));
	if (b->columns == NULL || b->views == NULL) {
		sl__table_fini(b);
		return sl_err_set(err, SL_ENOMEM, "out of memory for a table of %zu columns", n);
	}
	for (size_t i = 0; i < n; i++) {
		const struct sl_parquet_column *c = &columns->columns[i];
		size_t entry =
			(size_t)c->kind < SL_COUNT(entry_bytes) && entry_bytes[c->kind] != 0 ? entry_bytes[c->kind] : 8;
		if (c->kind == SL_PARQUET_FIXED)
			entry = (size_t)c->length;
		b->columns[i] = (struct sl__table_column){.as = *c, .entry = entry, .of_field = columns->of_field[i]};
	}
	return 0;
}

void sl__table_fini(struct sl__table *b)
{
	if (b->env == NULL)
		return;
	sl__table_clear(b);
	for (size_t i = 0; b->columns != NULL && i < b->n_columns; i++) {
		sl__free(b->env, b->columns[i].values);
		sl__free(b->env, b->columns[i].nulls);
	}
	sl__free(b->env, b->pieces);
	sl__free(b->env, b->columns);
	sl__free(b->env, b->views);
	*b = (struct sl__table){.env = NULL};
}

/* One piece is kept for the next rows. */
void sl__table_clear(struct sl__table *b)
{
	while (b->pieces != NULL && b->pieces->before != NULL) {
		struct sl__table_piece *before = b->pieces->before;
		sl__free(b->env, b->pieces);
		b->pieces = before;
	}
	if (b->pieces != NULL)
		b->pieces->used = 0;
	for (size_t i = 0; b->columns != NULL && i < b->n_columns; i++)
		b->columns[i].has_nulls = false;
	b->n = 0;
	b->bytes = 0;
}

void sl__table_input(struct sl__table *b, const char *input, const char *end)
{
	b->input = input;
	b->input_end = end;
}

/* ---- values ---- */

static bool is_hex(const struct sl__field *f)
{
	return f->len >= 2 && f->text[0] == '\\' && f->text[1] == 'x';
}

/* Where the value of the row at hand goes. */
#define CELL(table, column, type) (&((type *)(void *)(column)->values)[(table)->n])

/* A value that is not text. Returns NULL or why it does not fit. */
static inline const char *put_table_value(const struct sl__table *b, struct sl__table_column *c,
					  const struct sl__field *f)
{
	switch (c->as.kind) {
	case SL_PARQUET_INT64:
		return sl__to_int64(f->text, f->len, CELL(b, c, int64_t));
	case SL_PARQUET_INT32:
		return sl__to_int32(f->text, f->len, CELL(b, c, int32_t));
	case SL_PARQUET_BOOL:
		return sl__to_bool(f->text, f->len, CELL(b, c, uint8_t));
	case SL_PARQUET_TIMESTAMP:
		return sl__to_timestamp(f->text, f->len, &c->as, &c->memo, CELL(b, c, int64_t));
	case SL_PARQUET_DATE:
		return sl__to_date(f->text, f->len, CELL(b, c, int32_t));
	case SL_PARQUET_DOUBLE:
		return sl__to_double(f->text, f->len, CELL(b, c, double));
	case SL_PARQUET_FLOAT:
		return sl__to_float(f->text, f->len, CELL(b, c, float));
	case SL_PARQUET_DECIMAL:
		return sl__to_decimal(f->text, f->len, c->as.precision, c->as.scale, CELL(b, c, int64_t));
	case SL_PARQUET_FIXED: {
		char *to = c->values + b->n * c->entry;
		if (f->len == c->entry) {
			memcpy(to, f->text, c->entry);
			return NULL;
		}
		if (!is_hex(f) || f->len - 2 != c->entry * 2)
			return "wrong length: the column has a fixed number of bytes";
		return sl__from_hex(f->text + 2, f->len - 2, to) ? NULL : no_hex;
	}
	default:
		return wrong_kind;
	}
}

static int add_table_value(struct sl__table *b, struct sl__table_column *c, const struct sl__field *f,
			   struct sl_err *err)
{
	const char *why = NULL;
	bool null = f == NULL || f->kind == SL__FIELD_NULL || f->kind == SL__FIELD_ABSENT;
	if (null && c->nulls == NULL) {
		why = is_null;
	} else if (null) {
		c->nulls[b->n] = 1;
		c->has_nulls = true;
		memset(c->values + b->n * c->entry, 0, c->entry);
	} else if (c->as.kind == SL_PARQUET_STRING || c->as.kind == SL_PARQUET_BINARY) {
		/* Text as it is, if it stays, or a copy; of binary, \x and digits as the bytes that they stand for. */
		bool hex = c->as.kind == SL_PARQUET_BINARY && is_hex(f);
		bool stays = !hex && f->text >= b->input && f->text < b->input_end;
		size_t len = hex ? f->len / 2 - 1 : f->len;
		const char *text = f->text;
		if (!stays) {
			size_t need = hex ? f->len / 2 : SL_MAX(len, (size_t)1);
			if (b->pieces == NULL || b->pieces->cap - b->pieces->used < need) {
				size_t cap = SL_MAX(need, PIECE_BYTES);
				struct sl__table_piece *p = sl__alloc(b->env, sizeof(*p) + cap);
				if (p == NULL)
					return sl__no_memory(err, "rows");
				*p = (struct sl__table_piece){.before = b->pieces, .cap = cap};
				b->pieces = p;
			}
			char *to = b->pieces->bytes + b->pieces->used;
			b->pieces->used += need;
			if (hex && !sl__from_hex(f->text + 2, f->len - 2, to))
				why = no_hex;
			else if (!hex && len > 0)
				memcpy(to, f->text, len);
			text = to;
		}
		*CELL(b, c, struct sl_parquet_bytes) = (struct sl_parquet_bytes){text, (uint32_t)len};
		b->bytes += len;
	} else { /* JSON numbers and words are as they were written; a string of digits is as good as a number */
		why = f->kind != SL__FIELD_JSON ? put_table_value(b, c, f) : wrong_kind;
	}
	if (SL_LIKELY(why == NULL))
		return 0;
	if (null)
		return sl_err_set(err, SL_EDATA, "column %.60s: %s", c->as.name, why);
	return sl_err_set(err, SL_EDATA, "column %.60s: %s: \"%.*s\"%s", c->as.name, why, (int)SL_MIN(f->len, 60),
			  f->text, f->len > 60 ? "…" : "");
}

/* Room for one more row. */
static int reserve_row(struct sl__table *b, struct sl_err *err)
{
	assert(b->n < b->max);
	if (b->n < b->cap)
		return 0;
	size_t cap = SL_MIN(SL_MAX(b->cap * 2, FIRST_ROWS), b->max);
	for (size_t i = 0; i < b->n_columns; i++) {
		struct sl__table_column *c = &b->columns[i];
		char *values = sl__realloc(b->env, c->values, cap * c->entry);
		if (values == NULL)
			return sl__no_memory(err, "rows");
		c->values = values;
		uint8_t *nulls = c->as.nullable ? sl__realloc(b->env, c->nulls, cap) : NULL;
		if (c->as.nullable && nulls == NULL)
			return sl__no_memory(err, "rows");
		c->nulls = nulls;
	}
	b->cap = cap;
	return 0;
}

int sl__table_add(struct sl__table *b, const struct sl__field *fields, struct sl_err *err)
{
	int reserved = reserve_row(b, err);
	if (reserved != 0)
		return reserved;
	size_t bytes = b->bytes;
	for (size_t i = 0; i < b->n_columns; i++) {
		struct sl__table_column *c = &b->columns[i];
		if (c->nulls != NULL)
			c->nulls[b->n] = 0;
		int rc = add_table_value(b, c, c->of_field != SL__NO_FIELD ? &fields[c->of_field] : NULL, err);
		if (SL_UNLIKELY(rc != 0)) {
			b->bytes = bytes;
			return rc;
		}
		b->bytes += c->entry < 8 ? 4 : 8;
	}
	b->n++;
	return 0;
}

int sl__table_add_values(struct sl__table *b, const struct sl_export_value *values, struct sl_err *err)
{
	int rc = reserve_row(b, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < b->n_columns; i++) {
		struct sl__table_column *c = &b->columns[i];
		const struct sl_export_value *v = &values[i];
		b->bytes += c->entry < 8 ? 4 : 8;
		if (c->nulls != NULL)
			c->nulls[b->n] = v->is_null;
		if (v->is_null) {
			c->has_nulls = true;
			memset(c->values + b->n * c->entry, 0, c->entry);
			continue;
		}
		switch (c->as.kind) {
		case SL_PARQUET_BOOL:
			*CELL(b, c, uint8_t) = v->integer != 0;
			break;
		case SL_PARQUET_INT32:
		case SL_PARQUET_DATE:
			*CELL(b, c, int32_t) = (int32_t)v->integer;
			break;
		case SL_PARQUET_FLOAT:
			*CELL(b, c, float) = (float)v->real;
			break;
		case SL_PARQUET_DOUBLE:
			*CELL(b, c, double) = v->real;
			break;
		case SL_PARQUET_FIXED:
			memcpy(c->values + b->n * c->entry, v->bytes, c->entry);
			break;
		case SL_PARQUET_STRING:
		case SL_PARQUET_BINARY:
			*CELL(b, c, struct sl_parquet_bytes) = (struct sl_parquet_bytes){v->bytes, (uint32_t)v->len};
			b->bytes += v->len;
			break;
		default: /* int64, timestamp, decimal */
			*CELL(b, c, int64_t) = v->integer;
			break;
		}
	}
	b->n++;
	return 0;
}

const struct sl_parquet_values *sl__table_values(struct sl__table *b)
{
	for (size_t i = 0; i < b->n_columns; i++) {
		const struct sl__table_column *c = &b->columns[i];
		b->views[i] = (struct sl_parquet_values){.values = c->values, .nulls = c->has_nulls ? c->nulls : NULL};
	}
	return b->views;
}
