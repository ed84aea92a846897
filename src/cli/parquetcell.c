/* SPDX-License-Identifier: Apache-2.0 */
/* Values of Parquet columns as JSON. */
#include "parquetcell.h"

#include "base/time.h"
#include "text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool plain_ascii(const char *data, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)data[i];
		if (c < 0x20 || c >= 0x7F || c == '"' || c == '\\')
			return false;
	}
	return true;
}

void parquetcell_text(struct out *out, const char *data, size_t n)
{
	/* Most strings need no escapes, and are written without a copy. */
	if (plain_ascii(data, n)) {
		out_str(out, "\"");
		out_write(out, data, n);
		out_str(out, "\"");
		return;
	}
	json_t *value = json_stringn(data, n);
	/* Bytes that no JSON string may hold are replaced: NUL by a question mark, what is not UTF-8 by U+FFFD. */
	char *copy = value != NULL ? NULL : malloc(n + 1);
	if (copy != NULL) {
		for (size_t i = 0; i < n; i++)
			copy[i] = data[i] ? data[i] : '?';
		copy[n] = '\0';
		value = text_json(copy);
	}
	free(copy);
	out_json(out, value);
}

static void print_hex(struct out *out, const void *data, size_t n)
{
	const char *p = data;

	out_str(out, "\"\\\\x");
	for (size_t i = 0; i < n; i++) {
		char pair[3];

		out_str(out, text_hex(pair, p + i, 1));
	}
	out_str(out, "\"");
}

/* The fewest digits that read back as the same value; a point or an exponent says that it is no integer. */
static void print_real(struct out *out, double v, int single)
{
	char text[40];
	int digits = single ? 6 : 15;

	/* JSON has no number for these. */
	if (!isfinite(v)) {
		out_str(out, isnan(v) ? "\"NaN\"" : v > 0 ? "\"Infinity\"" : "\"-Infinity\"");
		return;
	}
	/* 17 digits (9 of a float) always read back; most values need fewer. */
	for (;; digits++) {
		(void)snprintf(text, sizeof(text), "%.*g", digits, v);
		if (digits == 17 || (single ? strtof(text, NULL) == (float)v : strtod(text, NULL) == v))
			break;
	}
	out_str(out, text);
	/* A real stays one for readers that distinguish integers and reals. */
	if (strpbrk(text, ".e") == NULL)
		out_str(out, ".0");
}

static void print_decimal(struct out *out, int64_t v, int scale)
{
	uint64_t whole = v < 0 ? -(uint64_t)v : (uint64_t)v, unit = 1;

	/* In unsigned arithmetic: the smallest value has no positive counterpart. */
	for (int i = 0; i < scale; i++)
		unit *= 10;
	out_printf(out, "%s%" PRIu64, v < 0 ? "-" : "", whole / unit);
	if (scale > 0)
		out_printf(out, ".%0*" PRIu64, scale, whole % unit);
}

/* The day of `seconds` since 1970. False: no calendar of four-digit years has it. */
static bool day_of(int64_t seconds, struct tm *tm)
{
	*tm = sl__utc(seconds);
	return tm->tm_year >= -1900 && tm->tm_year <= 9999 - 1900;
}

static void print_time(struct out *out, int64_t v, enum sl_parquet_unit unit, bool local)
{
	int digits = unit == SL_PARQUET_MILLIS ? 3 : unit == SL_PARQUET_MICROS ? 6 : 9;
	int64_t per = unit == SL_PARQUET_MILLIS ? 1000 : unit == SL_PARQUET_MICROS ? 1000000 : 1000000000;
	/* Rounded down, also before 1970, so that the fraction is never negative. */
	int64_t seconds = v / per - (v % per < 0), rest = v % per + (v % per < 0 ? per : 0);
	struct tm tm;

	if (day_of(seconds, &tm))
		out_printf(out, "\"%04d-%02d-%02dT%02d:%02d:%02d.%0*" PRId64 "%s\"", tm.tm_year + 1900, tm.tm_mon + 1,
			   tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, digits, rest, local ? "" : "Z");
	else
		out_printf(out, "%" PRId64, v);
}

/* at: one entry, perhaps not aligned. */
static void print_number(struct out *out, const struct sl_parquet_column *c, const void *at)
{
	struct tm tm;
	int32_t narrow;
	int64_t wide;
	float single;
	double real;

	/* Copied out byte by byte: entries of a page are not aligned. */
	switch (c->kind) {
	case SL_PARQUET_BOOL:
		out_str(out, *(const uint8_t *)at ? "true" : "false");
		break;
	case SL_PARQUET_INT32:
	case SL_PARQUET_DATE:
		memcpy(&narrow, at, sizeof(narrow));
		if (c->kind == SL_PARQUET_DATE && day_of((int64_t)narrow * 86400, &tm))
			out_printf(out, "\"%04d-%02d-%02d\"", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday);
		else
			out_printf(out, "%" PRId32, narrow);
		break;
	case SL_PARQUET_FLOAT:
		memcpy(&single, at, sizeof(single));
		print_real(out, (double)single, 1);
		break;
	case SL_PARQUET_DOUBLE:
		memcpy(&real, at, sizeof(real));
		print_real(out, real, 0);
		break;
	default:
		memcpy(&wide, at, sizeof(wide));
		if (c->kind == SL_PARQUET_TIMESTAMP)
			print_time(out, wide, c->unit, c->local);
		else
			print_decimal(out, wide, c->kind == SL_PARQUET_DECIMAL ? c->scale : 0);
	}
}

static size_t number_bytes(const struct sl_parquet_column *c)
{
	switch (c->kind) {
	case SL_PARQUET_BOOL:
		return 1;
	case SL_PARQUET_INT32:
	case SL_PARQUET_DATE:
	case SL_PARQUET_FLOAT:
		return 4;
	default:
		return 8;
	}
}

static void print_bytes(struct out *out, const struct sl_parquet_column *c, struct sl_parquet_bytes v)
{
	if (c->kind == SL_PARQUET_STRING)
		parquetcell_text(out, v.data, v.len);
	else
		print_hex(out, v.data, v.len);
}

void parquetcell_print(struct out *out, const struct sl_parquet_column *c, const struct sl_parquet_values *values,
		       size_t row)
{
	const char *at = values->values;

	if (values->nulls != NULL && values->nulls[row])
		out_str(out, "null");
	else if (c->kind == SL_PARQUET_STRING || c->kind == SL_PARQUET_BINARY)
		print_bytes(out, c, ((const struct sl_parquet_bytes *)values->values)[row]);
	else if (c->kind == SL_PARQUET_FIXED)
		print_hex(out, at + row * (size_t)c->length, (size_t)c->length);
	else
		print_number(out, c, at + row * number_bytes(c));
}

void parquetcell_bound(struct out *out, const struct sl_parquet_column *c, struct sl_parquet_bytes bound)
{
	/* A bound with another length than its type has is damaged or of another writer: nothing is read beyond
	 * it. */
	if (c->kind == SL_PARQUET_STRING || c->kind == SL_PARQUET_BINARY || c->kind == SL_PARQUET_FIXED)
		print_bytes(out, c, bound);
	else if (bound.len == number_bytes(c))
		print_number(out, c, bound.data);
	else
		out_str(out, "null");
}
