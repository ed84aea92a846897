/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of columns: their sizes and names; checks and copies of columns; UTF-8 of values. */
#include "parquet/column.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/compare.h"
#include "base/utf8.h"

struct kind {
	const char *name;
	enum pq_physical physical;
	uint8_t entry, plain; /* bytes; 0: see the functions below */
};

static const struct kind kinds[] = {
	[SL_PARQUET_BOOL] = {"bool", PQ_BOOLEAN, 1, 1},
	[SL_PARQUET_INT32] = {"int32", PQ_INT32, 4, 4},
	[SL_PARQUET_INT64] = {"int64", PQ_INT64, 8, 8},
	[SL_PARQUET_FLOAT] = {"float", PQ_FLOAT, 4, 4},
	[SL_PARQUET_DOUBLE] = {"double", PQ_DOUBLE, 8, 8},
	[SL_PARQUET_TIMESTAMP] = {"timestamp", PQ_INT64, 8, 8},
	[SL_PARQUET_DATE] = {"date", PQ_INT32, 4, 4},
	[SL_PARQUET_DECIMAL] = {"decimal", PQ_INT64, 8, 8},
	[SL_PARQUET_STRING] = {"string", PQ_BYTE_ARRAY, sizeof(struct sl_parquet_bytes), 0},
	[SL_PARQUET_BINARY] = {"binary", PQ_BYTE_ARRAY, sizeof(struct sl_parquet_bytes), 0},
	[SL_PARQUET_FIXED] = {"fixed", PQ_FIXED, 0, 0},
};
static const char *const units[] = {
	[SL_PARQUET_MICROS] = "micros", [SL_PARQUET_MILLIS] = "millis", [SL_PARQUET_NANOS] = "nanos"};

static bool known_kind(const struct sl_parquet_column *c)
{
	return c->kind >= SL_PARQUET_BOOL && (size_t)c->kind < SL_COUNT(kinds);
}

size_t sl__pq_entry_bytes(const struct sl_parquet_column *c)
{
	if (!known_kind(c))
		return 0;
	return c->kind == SL_PARQUET_FIXED ? (size_t)c->length : kinds[c->kind].entry;
}

size_t sl__pq_plain_bytes(const struct sl_parquet_column *c)
{
	return c->kind == SL_PARQUET_FIXED ? (size_t)c->length : kinds[c->kind].plain;
}

enum pq_physical sl__pq_physical(const struct sl_parquet_column *c)
{
	return kinds[c->kind].physical;
}

const char *sl_parquet_type_name(const struct sl_parquet_column *column, char *out, size_t n)
{
	const char *name = known_kind(column) ? kinds[column->kind].name : "unknown";

	if (column->kind == SL_PARQUET_TIMESTAMP && (unsigned)column->unit < SL_COUNT(units))
		(void)snprintf(out, n, "%s(%s%s)", name, units[column->unit], column->local ? ",local" : "");
	else if (column->kind == SL_PARQUET_DECIMAL)
		(void)snprintf(out, n, "%s(%d,%d)", name, column->precision, column->scale);
	else if (column->kind == SL_PARQUET_FIXED)
		(void)snprintf(out, n, "%s(%d)", name, column->length);
	else
		(void)snprintf(out, n, "%s", name);
	return out;
}

int sl__pq_columns_check(const struct sl_env *env, const struct sl_parquet_column *columns, size_t n,
			 struct sl_err *err)
{
	if (columns == NULL || n == 0 || n > PQ_COLUMNS_MAX)
		return sl_err_set(err, SL_EINVAL, "parquet: %zu columns; a file has 1 to %d", n, PQ_COLUMNS_MAX);
	for (size_t i = 0; i < n; i++) {
		const struct sl_parquet_column *c = &columns[i];
		if (c->name == NULL || *c->name == '\0' || !sl__utf8_valid(c->name))
			return sl_err_set(err, SL_EINVAL, "parquet: column %zu has no name, or one that is not UTF-8",
					  i + 1);
		if (!known_kind(c))
			return sl_err_set(err, SL_EINVAL, "parquet: column '%.100s': unknown kind %d", c->name,
					  (int)c->kind);
		if (c->kind == SL_PARQUET_TIMESTAMP && (unsigned)c->unit >= SL_COUNT(units))
			return sl_err_set(err, SL_EINVAL, "parquet: column '%.100s': unknown unit %d", c->name,
					  (int)c->unit);
		if (c->kind == SL_PARQUET_DECIMAL && (c->precision < 1 || c->precision > 18))
			return sl_err_set(err, SL_EINVAL, "parquet: column '%.100s': precision %d is not 1 to 18",
					  c->name, c->precision);
		if (c->kind == SL_PARQUET_DECIMAL && (c->scale < 0 || c->scale > c->precision))
			return sl_err_set(err, SL_EINVAL,
					  "parquet: column '%.100s': scale %d is not 0 to the precision, %d", c->name,
					  c->scale, c->precision);
		if (c->kind == SL_PARQUET_FIXED && (c->length < 1 || c->length > PQ_FIXED_MAX))
			return sl_err_set(err, SL_EINVAL, "parquet: column '%.100s': length %d is not 1 to %d", c->name,
					  c->length, PQ_FIXED_MAX);
	}
	/* No two have the same name. */
	const char **names = sl__calloc(env, n, sizeof(*names));
	int rc = 0;

	if (names == NULL)
		return sl_err_set(err, SL_ENOMEM, "parquet: out of memory for %zu columns", n);
	for (size_t i = 0; i < n; i++)
		names[i] = columns[i].name;
	qsort(names, n, sizeof(*names), sl__compare_texts);
	for (size_t i = 1; i < n && rc == 0; i++)
		if (strcmp(names[i - 1], names[i]) == 0)
			rc = sl_err_set(err, SL_EINVAL, "parquet: duplicate column '%.100s'", names[i]);
	sl__free(env, names);
	return rc;
}

struct sl_parquet_column *sl__pq_columns_copy(const struct sl_env *env, const struct sl_parquet_column *c, size_t n)
{
	size_t bytes = n * sizeof(*c);

	for (size_t i = 0; i < n; i++)
		bytes += strlen(c[i].name) + 1;
	struct sl_parquet_column *copy = sl__alloc(env, bytes);
	if (copy == NULL)
		return NULL;
	char *names = (char *)(copy + n);
	memcpy(copy, c, n * sizeof(*c));
	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(c[i].name) + 1;
		memcpy(names, c[i].name, len);
		copy[i].name = names;
		names += len;
	}
	return copy;
}

/* ---- UTF-8 ---- */

bool sl__pq_is_utf8(struct sl_parquet_bytes v)
{
	uint64_t any = 0;
	size_t i = 0;
	char last[8] = {0}; /* sl__utf8_length reads up to a NUL */

	/* All ASCII: no byte has its highest bit set. */
	for (; i + 8 <= v.len; i += 8)
		any |= sl__get64(v.data + i);
	for (; i < v.len; i++)
		any |= (uint64_t)(uint8_t)v.data[i];
	if ((any & 0x8080808080808080u) == 0)
		return true;
	for (i = 0; i < v.len;) {
		size_t n, left = v.len - i;
		if (left >= 4) {
			n = sl__utf8_length(v.data + i);
		} else {
			memcpy(last, v.data + i, left);
			memset(last + left, 0, sizeof(last) - left);
			n = sl__utf8_length(last);
		}
		if (n == 0)
			return false;
		i += n;
	}
	return true;
}
