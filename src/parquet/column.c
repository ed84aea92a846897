/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include <sluice/parquet.h>

const char *sl_parquet_type_name(const struct sl_parquet_column *column, char *out, size_t n)
{
	static const char *const names[] = {"?",         "bool", "int32",   "int64",  "float",  "double",
					    "timestamp", "date", "decimal", "string", "binary", "fixed"};
	static const char *const units[] = {"micros", "millis", "nanos"};
	unsigned kind = (unsigned)column->kind, unit = (unsigned)column->unit;
	const char *name = kind < sizeof names / sizeof names[0] ? names[kind] : names[0];

	if (column->kind == SL_PARQUET_TIMESTAMP && unit < 3)
		(void)snprintf(out, n, "%s(%s)", name, units[unit]);
	else if (column->kind == SL_PARQUET_DECIMAL)
		(void)snprintf(out, n, "%s(%d,%d)", name, column->precision, column->scale);
	else if (column->kind == SL_PARQUET_FIXED)
		(void)snprintf(out, n, "%s(%d)", name, column->length);
	else
		(void)snprintf(out, n, "%s", name);
	return out;
}
