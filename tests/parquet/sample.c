/* SPDX-License-Identifier: Apache-2.0 */
#include "parquet/sample.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers that are the same on every run ---- */
static uint64_t mixed(uint64_t a, uint64_t b)
{
	uint64_t z = a * 0x9E3779B97F4A7C15u + b * 0xD1B54A32D192ED03u + 1;

	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
	z = (z ^ z >> 27) * 0x94D049BB133111EBu;
	return z ^ z >> 31;
}

static void *must(void *p)
{
	assert(p != NULL);
	return p;
}

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

const void *sample_entry(const struct sl_parquet_column *c, const void *values, size_t row)
{
	return (const char *)values + row * entry_bytes(c);
}

int sample_is_null(const struct sl_parquet_values *v, size_t row)
{
	return v->nulls != NULL && v->nulls[row] != 0;
}

int sample_same(const struct sl_parquet_column *c, const void *a, const void *b)
{
	if (c->kind != SL_PARQUET_STRING && c->kind != SL_PARQUET_BINARY)
		return memcmp(a, b, entry_bytes(c)) == 0;
	const struct sl_parquet_bytes *x = a, *y = b;
	return x->len == y->len && (x->len == 0 || memcmp(x->data, y->data, x->len) == 0);
}

/* ---- values ---- */

/* What a value is made of; the number of distinct ones decides about dictionaries. */
enum shape { RANDOM, FEW, MANY, RISING, EXTREME, LONG };

static const uint64_t extreme_ints[] = {
	0, 1, UINT64_MAX, INT64_MAX, (uint64_t)INT64_MIN, INT32_MAX, 0xFFFFFFFF80000000u};
static const double extreme_reals[] = {0.0, -0.0, 1.5, -1.5, INFINITY, -INFINITY, DBL_MIN, DBL_MAX, -DBL_MAX, 5e-324};
static const char *const extreme_texts[] = {"",
					    "a",
					    "\xF0\x9F\x8C\x8A water",
					    "\xC3\xBC",
					    "\x7F",
					    "quote\" and \\ and \n",
					    "\xEF\xBF\xBF",
					    "trailing blank "};

static uint64_t number_of(enum shape shape, size_t row, size_t column)
{
	switch (shape) {
	case FEW:
		return mixed(mixed(row, column) % 7, column);
	case MANY: /* a third of the rows, so that a dictionary pays as long as it fits */
		return mixed(mixed(row, column) % 40000, column);
	case RISING:
		return 1000000 + row * 3 + column;
	case EXTREME:
		return extreme_ints[mixed(row, column) % (sizeof(extreme_ints) / sizeof(*extreme_ints))];
	default:
		return mixed(row, column);
	}
}

static double real_of(enum shape shape, size_t row, size_t column)
{
	uint64_t v = number_of(shape, row, column);

	if (shape == EXTREME)
		return extreme_reals[mixed(row, column) % (sizeof(extreme_reals) / sizeof(*extreme_reals))];
	return shape == RISING ? (double)v / 4 : (double)(int64_t)v / 1e9;
}

static struct sl_parquet_bytes text_of(const struct sl_parquet_column *c, enum shape shape, size_t row, size_t column)
{
	uint64_t v = number_of(shape, row, column);
	size_t len = shape == LONG ? (size_t)(v % 3000) : 4 + (size_t)(v % 20);
	char *text = must(malloc(len + 32));

	if (shape == EXTREME && c->kind == SL_PARQUET_STRING) {
		const char *pick = extreme_texts[v % (sizeof(extreme_texts) / sizeof(*extreme_texts))];
		return (struct sl_parquet_bytes){strcpy(text, pick), (uint32_t)strlen(pick)};
	}
	if (shape == RISING)
		len = (size_t)snprintf(text, len + 32, "key-%012llu", (unsigned long long)v);
	for (size_t i = 0; i < len && shape != RISING; i++) {
		uint64_t byte = mixed(v, i);
		text[i] = c->kind == SL_PARQUET_STRING ? (char)('a' + byte % 26) : (char)byte;
	}
	return (struct sl_parquet_bytes){text, (uint32_t)len};
}

static void put_value(const struct sl_parquet_column *c, void *at, enum shape shape, size_t row, size_t column)
{
	uint64_t v = number_of(shape, row, column);
	double d = real_of(shape, row, column);
	float f = (float)d;
	int64_t wide = (int64_t)v;
	int32_t narrow = (int32_t)(uint32_t)v;

	switch (c->kind) {
	case SL_PARQUET_BOOL:
		*(uint8_t *)at = (uint8_t)(shape == FEW ? v % 100 < 3 : v & 1);
		break;
	case SL_PARQUET_INT32:
		memcpy(at, &narrow, sizeof(narrow));
		break;
	case SL_PARQUET_DATE: /* years that every reader can say */
		narrow = (int32_t)(v % 60000) - 20000;
		memcpy(at, &narrow, sizeof(narrow));
		break;
	case SL_PARQUET_FLOAT:
		memcpy(at, &f, sizeof(f));
		break;
	case SL_PARQUET_DOUBLE:
		memcpy(at, &d, sizeof(d));
		break;
	case SL_PARQUET_DECIMAL:
		wide = wide % 1000000000000000000;
		memcpy(at, &wide, sizeof(wide));
		break;
	case SL_PARQUET_TIMESTAMP:
		wide = c->unit == SL_PARQUET_MILLIS ? wide % 4000000000000 : wide % 4000000000000000;
		memcpy(at, &wide, sizeof(wide));
		break;
	case SL_PARQUET_STRING:
	case SL_PARQUET_BINARY:
		*(struct sl_parquet_bytes *)at = text_of(c, shape, row, column);
		break;
	case SL_PARQUET_FIXED:
		for (int32_t i = 0; i < c->length; i++)
			((uint8_t *)at)[i] = (uint8_t)mixed(v, (uint64_t)i);
		break;
	default:
		memcpy(at, &wide, sizeof(wide));
	}
}

/* ---- tables ---- */

enum nulls { NO_NULLS, SOME, ALL, RUNS, FIRST_NULL };

static int is_null(enum nulls how, size_t row, size_t column)
{
	switch (how) {
	case SOME:
		return mixed(row + 77, column) % 10 < 3;
	case ALL:
		return 1;
	case RUNS: /* longer than a page of either kind */
		return row >= 1000 && row < 599000;
	case FIRST_NULL:
		return row == 0;
	default:
		return 0;
	}
}

static void fill_column(struct sample *s, size_t i, enum shape shape, enum nulls how)
{
	const struct sl_parquet_column *c = &s->columns[i];
	size_t entry = entry_bytes(c);
	char *values = must(calloc(s->rows + 1, entry));
	uint8_t *nulls = c->nullable && how != NO_NULLS ? must(calloc(s->rows + 1, 1)) : NULL;

	for (size_t row = 0; row < s->rows; row++) {
		if (nulls != NULL && (nulls[row] = (uint8_t)is_null(how, row, i)) != 0)
			continue;
		put_value(c, values + row * entry, shape, row, i);
	}
	s->values[i] = (struct sl_parquet_values){values, nulls};
}

static const struct sl_parquet_column every_kind[] = {
	{.name = "bool", .kind = SL_PARQUET_BOOL},
	{.name = "int32", .kind = SL_PARQUET_INT32},
	{.name = "int64", .kind = SL_PARQUET_INT64},
	{.name = "float", .kind = SL_PARQUET_FLOAT},
	{.name = "double", .kind = SL_PARQUET_DOUBLE},
	{.name = "ts_millis", .kind = SL_PARQUET_TIMESTAMP, .unit = SL_PARQUET_MILLIS},
	{.name = "ts_micros", .kind = SL_PARQUET_TIMESTAMP, .unit = SL_PARQUET_MICROS},
	{.name = "ts_nanos", .kind = SL_PARQUET_TIMESTAMP, .unit = SL_PARQUET_NANOS},
	{.name = "date", .kind = SL_PARQUET_DATE},
	{.name = "decimal", .kind = SL_PARQUET_DECIMAL, .precision = 18, .scale = 4},
	{.name = "string", .kind = SL_PARQUET_STRING},
	{.name = "binary", .kind = SL_PARQUET_BINARY},
	{.name = "fixed", .kind = SL_PARQUET_FIXED, .length = 5},
	{.name = "ts_local", .kind = SL_PARQUET_TIMESTAMP, .unit = SL_PARQUET_MICROS, .local = true},
};

static void every(struct sample *s, size_t rows, int nullable, enum shape shape, enum nulls how)
{
	s->rows = rows;
	s->n_columns = sizeof(every_kind) / sizeof(*every_kind);
	memcpy(s->columns, every_kind, sizeof(every_kind));
	for (size_t i = 0; i < s->n_columns; i++) {
		s->columns[i].nullable = nullable;
		fill_column(s, i, shape, how);
	}
}

static void some(struct sample *s, size_t rows, const int *kinds, size_t n, enum shape shape, enum nulls how)
{
	s->rows = rows;
	s->n_columns = n;
	for (size_t i = 0; i < n; i++) {
		s->columns[i] = every_kind[kinds[i]];
		s->columns[i].nullable = true;
		fill_column(s, i, shape, how);
	}
}
#define SOME_OF(s, rows, shape, how, ...)                                                                              \
	some(s, rows, (const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int), shape, how)
enum { BOOL, INT32, INT64, FLOAT, DOUBLE, MILLIS, MICROS, NANOS, DATE, DECIMAL, STRING, BINARY, FIXED };

static void required(struct sample *s)
{
	every(s, 1000, 0, RANDOM, NO_NULLS);
}

static void nullable(struct sample *s)
{
	static const struct sl_parquet_pair pairs[] = {{"origin", "a test"}, {"empty", ""}, {"none", NULL}};

	every(s, 3000, 1, RANDOM, SOME);
	s->opts.metadata = pairs;
	s->opts.n_metadata = 3;
}

static void one_row(struct sample *s)
{
	every(s, 1, 1, RANDOM, NO_NULLS);
}

static void zero_rows(struct sample *s)
{
	every(s, 0, 1, RANDOM, NO_NULLS);
}

static void all_null(struct sample *s)
{
	every(s, 500, 1, RANDOM, ALL);
}

static void first_null(struct sample *s)
{
	every(s, 2, 1, RANDOM, FIRST_NULL);
}

static void extremes(struct sample *s)
{
	every(s, 400, 1, EXTREME, SOME);
}

/* Three chunks: NaN among numbers, zeros of both signs, NaN only. */
static void nan_and_zero(struct sample *s)
{
	SOME_OF(s, 30, RANDOM, NO_NULLS, FLOAT, DOUBLE, INT32);
	s->opts.row_group_rows = 10;
	for (size_t i = 0; i < 30; i++) {
		double v = i < 10 ? (i == 4 ? NAN : (double)i) : i < 20 ? (i % 2 ? 0.0 : -0.0) : NAN;
		float f = (float)v;
		memcpy((char *)(uintptr_t)s->values[0].values + i * 4, &f, 4);
		memcpy((char *)(uintptr_t)s->values[1].values + i * 8, &v, 8);
	}
}

static void dictionary(struct sample *s)
{
	every(s, 20000, 1, FEW, SOME);
	s->opts.row_group_rows = 6000;
}

/* The first group's dictionary is too large half-way; those of the smaller last one fit. */
static void overflow(struct sample *s)
{
	SOME_OF(s, 130000, MANY, SOME, INT64, STRING, DOUBLE, BINARY, INT32, FIXED);
	s->opts.row_group_rows = 100000;
	s->opts.dictionary_bytes = 300000;
}

static void no_dictionary(struct sample *s)
{
	every(s, 3000, 1, FEW, SOME);
	s->opts.dictionary_bytes = SL_NONE;
}

static void rising(struct sample *s)
{
	every(s, 50000, 1, RISING, NO_NULLS);
	s->opts.row_group_rows = 10000;
}

/* Pages that are all NULL, between others. */
static void null_runs(struct sample *s)
{
	SOME_OF(s, 600000, RISING, RUNS, INT64, STRING);
	s->opts.row_group_rows = 1 << 20;
	s->opts.row_group_bytes = INT64_C(1) << 30;
}

/* Pages of several values each; bounds that are too long to be stored. */
static void long_texts(struct sample *s)
{
	SOME_OF(s, 2000, LONG, SOME, STRING, BINARY);
	s->opts.row_group_bytes = 1 << 20;
}

/* Lists of 15 and more in the footer: columns, row groups. */
static void wide(struct sample *s)
{
	static char names[40][32];

	s->rows = 340;
	s->n_columns = 40;
	for (size_t i = 0; i < s->n_columns; i++) {
		s->columns[i] = every_kind[i % (sizeof(every_kind) / sizeof(*every_kind))];
		(void)snprintf(names[i], sizeof(names[i]), "c%zu_%s", i, s->columns[i].name);
		s->columns[i].name = names[i];
		s->columns[i].nullable = (int)(i % 2);
		fill_column(s, i, RANDOM, i % 2 ? SOME : NO_NULLS);
	}
	s->opts.row_group_rows = 20;
}

static void uncompressed(struct sample *s)
{
	every(s, 2000, 1, FEW, SOME);
	s->opts.zstd_level = SL_NONE;
}

static void level_19(struct sample *s)
{
	every(s, 2000, 1, RANDOM, SOME);
	s->opts.zstd_level = 19;
}

static void million(struct sample *s)
{
	SOME_OF(s, 1000000, MANY, SOME, DOUBLE);
	s->columns[1] = (struct sl_parquet_column){.name = "id", .kind = SL_PARQUET_INT64};
	s->n_columns = 2;
	fill_column(s, 1, RISING, NO_NULLS);
}

static const struct {
	const char *name;
	void (*make)(struct sample *s);
} samples[] = {{"required", required},         {"nullable", nullable},           {"one_row", one_row},
	       {"zero_rows", zero_rows},       {"all_null", all_null},           {"first_null", first_null},
	       {"extremes", extremes},         {"nan_and_zero", nan_and_zero},   {"dictionary", dictionary},
	       {"overflow", overflow},         {"no_dictionary", no_dictionary}, {"rising", rising},
	       {"null_runs", null_runs},       {"long_texts", long_texts},       {"wide", wide},
	       {"uncompressed", uncompressed}, {"level_19", level_19},           {"million", million}};

const char *const sample_names[] = {"required",      "nullable", "one_row",      "zero_rows",  "all_null",
				    "first_null",    "extremes", "nan_and_zero", "dictionary", "overflow",
				    "no_dictionary", "rising",   "null_runs",    "long_texts", "wide",
				    "uncompressed",  "level_19", "million",      NULL};

void sample_make(struct sample *s, const char *name)
{
	memset(s, 0, sizeof(*s));
	s->opts.struct_size = sizeof(s->opts);
	s->name = name;
	for (size_t i = 0; i < sizeof(samples) / sizeof(*samples); i++) {
		if (strcmp(samples[i].name, name) == 0) {
			samples[i].make(s);
			return;
		}
	}
	assert(false); /* no sample of that name */
}

void sample_free(struct sample *s)
{
	for (size_t i = 0; i < s->n_columns; i++) {
		const struct sl_parquet_column *c = &s->columns[i];
		const struct sl_parquet_bytes *v = s->values[i].values;
		for (size_t row = 0; row < s->rows && (c->kind == SL_PARQUET_STRING || c->kind == SL_PARQUET_BINARY);
		     row++)
			free((void *)(uintptr_t)v[row].data);
		free((void *)(uintptr_t)s->values[i].values);
		free((void *)(uintptr_t)s->values[i].nulls);
	}
	memset(s, 0, sizeof(*s));
}

/* ---- writing ---- */

int sink_write(const void *bytes, size_t n, struct sl_err *err, void *ctx)
{
	struct sink *s = ctx;

	if (++s->calls == s->fail_at)
		return sl_err_set(err, SL_ENOSPC, "the sink is full");
	if (s->cap - s->n < n) {
		s->cap = (s->n + n) * 2;
		s->data = must(realloc(s->data, s->cap));
	}
	memcpy(s->data + s->n, bytes, n);
	s->n += n;
	return 0;
}

void sink_free(struct sink *s)
{
	free(s->data);
	memset(s, 0, sizeof(*s));
}

int sample_write(const struct sample *s, const struct sl_env *env, size_t batch, struct sink *out, struct sl_err *err)
{
	struct sl_parquet_writer_opts opts = s->opts;
	struct sl_parquet_values part[SAMPLE_COLUMNS_MAX];
	sl_parquet_writer *w = NULL;

	opts.env = env;
	int rc = sl_parquet_writer_new(&w, s->columns, s->n_columns, &opts, sink_write, out, err);
	for (size_t at = 0, n; at < s->rows && rc == 0; at += n) {
		n = batch != 0 && batch < s->rows - at ? batch : s->rows - at;
		for (size_t i = 0; i < s->n_columns; i++)
			part[i] =
				(struct sl_parquet_values){sample_entry(&s->columns[i], s->values[i].values, at),
							   s->values[i].nulls != NULL ? s->values[i].nulls + at : NULL};
		rc = sl_parquet_writer_put(w, part, n, err);
	}
	if (rc == 0)
		rc = sl_parquet_writer_finish(w, err);
	sl_parquet_writer_free(w);
	return rc;
}
