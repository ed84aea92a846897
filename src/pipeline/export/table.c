/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/export/table.h"

#define FIRST_ROWS ((size_t)4096)
#define PIECE_BYTES ((size_t)256 << 10)

static const char is_null[] = "NULL in a column that has none";
static const char wrong_kind[] = "not a value of this column's kind";

/* ---- memory ---- */

static size_t entry_bytes(const struct sl_parquet_column *c)
{
	switch (c->kind) {
	case SL_PARQUET_BOOL:
		return 1;
	case SL_PARQUET_INT32:
	case SL_PARQUET_FLOAT:
	case SL_PARQUET_DATE:
		return 4;
	case SL_PARQUET_STRING:
	case SL_PARQUET_BINARY:
		return sizeof(struct sl_parquet_bytes);
	case SL_PARQUET_FIXED:
		return (size_t)c->length;
	default:
		return 8;
	}
}

int sl__table_init(struct sl__table *b, const struct sl_env *env, const struct sl_parquet_column *columns, size_t n,
		   const size_t *of_field, size_t max, struct sl_err *err)
{
	*b = (struct sl__table){.env = env, .n_columns = n, .max = max};
	b->columns = sl__calloc(env, n, sizeof(*b->columns));
	b->views = sl__calloc(env, n, sizeof(*b->views));
	if (b->columns == NULL || b->views == NULL) {
		sl__table_fini(b);
		return sl_err_set(err, SL_ENOMEM, "no memory for a table of %zu columns", n);
	}
	for (size_t i = 0; i < n; i++)
		b->columns[i] = (struct sl__table_column){
			.as = columns[i], .entry = entry_bytes(&columns[i]), .of_field = of_field[i]};
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

static int grow(struct sl__table *b, struct sl_err *err)
{
	size_t cap = SL_MIN(SL_MAX(b->cap * 2, FIRST_ROWS), b->max);
	for (size_t i = 0; i < b->n_columns; i++) {
		struct sl__table_column *c = &b->columns[i];
		char *values = sl__realloc(b->env, c->values, cap * c->entry);
		if (values == NULL)
			return sl__no_memory(err, "rows");
		c->values = values;
		uint8_t *nulls = c->as.nullable != 0 ? sl__realloc(b->env, c->nulls, cap) : NULL;
		if (c->as.nullable != 0 && nulls == NULL)
			return sl__no_memory(err, "rows");
		c->nulls = nulls;
	}
	b->cap = cap;
	return 0;
}

static char *room(struct sl__table *b, size_t n)
{
	if (b->pieces == NULL || b->pieces->cap - b->pieces->used < n) {
		size_t cap = SL_MAX(n, PIECE_BYTES);
		struct sl__table_piece *p = sl__alloc(b->env, sizeof(*p) + cap);
		if (p == NULL)
			return NULL;
		*p = (struct sl__table_piece){.before = b->pieces, .cap = cap};
		b->pieces = p;
	}
	char *at = b->pieces->bytes + b->pieces->used;
	b->pieces->used += n;
	return at;
}

/* ---- values ---- */

/* JSON gives numbers and words as they are written; strings of digits are as good as numbers. */
static inline bool is_scalar(const struct sl__field *f)
{
	return f->kind != SL__FIELD_JSON;
}

/* Text that stays, or a copy. NULL: no memory. */
static const char *kept(struct sl__table *b, const char *text, size_t len)
{
	if (SL_LIKELY(text >= b->input && text < b->input_end))
		return text;
	char *copy = room(b, SL_MAX(len, (size_t)1));
	return copy != NULL && len > 0 ? memcpy(copy, text, len) : copy;
}

static bool is_hex(const struct sl__field *f)
{
	return f->len >= 2 && f->text[0] == '\\' && f->text[1] == 'x';
}

/* Text as it is; \x and digits as the bytes that they mean. *why is set when it is neither, and no memory is NULL. */
static const char *bytes_of(struct sl__table *b, const struct sl__field *f, size_t *len, const char **why)
{
	if (!is_hex(f)) {
		*len = f->len;
		return kept(b, f->text, f->len);
	}
	char *to = room(b, f->len / 2);
	*len = f->len / 2 - 1;
	if (to != NULL && !sl__from_hex(f->text + 2, f->len - 2, to))
		*why = "not hexadecimal digits behind \\x";
	return to;
}

static int put_text(struct sl__table *b, struct sl__table_column *c, const struct sl__field *f, const char **why,
		    struct sl_err *err)
{
	size_t len = f->len;
	const char *text = c->as.kind == SL_PARQUET_STRING ? kept(b, f->text, len) : bytes_of(b, f, &len, why);
	if (text == NULL)
		return sl__no_memory(err, "rows");
	((struct sl_parquet_bytes *)(void *)c->values)[b->n] = (struct sl_parquet_bytes){text, (uint32_t)len};
	b->bytes += len;
	return 0;
}

static const char *put_fixed(const struct sl__table *b, struct sl__table_column *c, const struct sl__field *f)
{
	char *to = c->values + b->n * c->entry;
	if (f->len == c->entry) {
		memcpy(to, f->text, c->entry);
		return NULL;
	}
	if (!is_hex(f) || f->len - 2 != c->entry * 2)
		return "not as many bytes as the column has";
	return sl__from_hex(f->text + 2, f->len - 2, to) ? NULL : "not hexadecimal digits behind \\x";
}

#define PUT(type) (&((type *)(void *)c->values)[b->n])

/* A value that is no text. NULL or why not. */
static inline const char *put_value(const struct sl__table *b, struct sl__table_column *c, const struct sl__field *f)
{
	switch (c->as.kind) {
	case SL_PARQUET_INT64:
		return sl__to_int64(f->text, f->len, PUT(int64_t));
	case SL_PARQUET_INT32:
		return sl__to_int32(f->text, f->len, PUT(int32_t));
	case SL_PARQUET_BOOL:
		return sl__to_bool(f->text, f->len, PUT(uint8_t));
	case SL_PARQUET_TIMESTAMP:
		return sl__to_timestamp(f->text, f->len, c->as.unit, c->as.local != 0, &c->memo, PUT(int64_t));
	case SL_PARQUET_DATE:
		return sl__to_date(f->text, f->len, PUT(int32_t));
	case SL_PARQUET_DOUBLE:
		return sl__to_double(f->text, f->len, PUT(double));
	case SL_PARQUET_FLOAT:
		return sl__to_float(f->text, f->len, PUT(float));
	case SL_PARQUET_DECIMAL:
		return sl__to_decimal(f->text, f->len, c->as.precision, c->as.scale, PUT(int64_t));
	case SL_PARQUET_FIXED:
		return put_fixed(b, c, f);
	default:
		return wrong_kind;
	}
}

static const char *put_null(struct sl__table *b, struct sl__table_column *c)
{
	if (c->nulls == NULL)
		return is_null;
	c->nulls[b->n] = 1;
	c->has_nulls = true;
	memset(c->values + b->n * c->entry, 0, c->entry);
	return NULL;
}

static int wrong(const struct sl__table_column *c, const struct sl__field *f, const char *why, struct sl_err *err)
{
	if (f == NULL || f->kind == SL__FIELD_NULL || f->kind == SL__FIELD_ABSENT)
		return sl_err_set(err, SL_EDATA, "column %.60s: %s", c->as.name, why);
	return sl_err_set(err, SL_EDATA, "column %.60s: %s: \"%.*s\"%s", c->as.name, why, (int)SL_MIN(f->len, 60),
			  f->text, f->len > 60 ? "…" : "");
}

static int add_value(struct sl__table *b, struct sl__table_column *c, const struct sl__field *f, struct sl_err *err)
{
	const char *why = NULL;
	if (f == NULL || f->kind == SL__FIELD_NULL || f->kind == SL__FIELD_ABSENT) {
		why = put_null(b, c);
	} else if (c->as.kind == SL_PARQUET_STRING || c->as.kind == SL_PARQUET_BINARY) {
		int rc = put_text(b, c, f, &why, err);
		if (rc != 0)
			return rc;
	} else {
		why = is_scalar(f) ? put_value(b, c, f) : wrong_kind;
	}
	if (SL_UNLIKELY(why != NULL))
		return wrong(c, f, why, err);
	return 0;
}

int sl__table_add(struct sl__table *b, const struct sl__field *fields, struct sl_err *err)
{
	assert(b->n < b->max);
	int rc = b->n == b->cap ? grow(b, err) : 0;
	size_t bytes = b->bytes;
	for (size_t i = 0; rc == 0 && i < b->n_columns; i++) {
		struct sl__table_column *c = &b->columns[i];
		if (c->nulls != NULL)
			c->nulls[b->n] = 0;
		rc = add_value(b, c, c->of_field != SL__NO_FIELD ? &fields[c->of_field] : NULL, err);
		b->bytes += c->entry < 8 ? 4 : 8;
	}
	if (SL_UNLIKELY(rc != 0)) {
		b->bytes = bytes;
		return rc;
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
