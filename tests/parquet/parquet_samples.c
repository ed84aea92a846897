/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes every sample into a folder for readers.mjs: NAME.parquet, and for each column NAME.N.cells with one line per
 * row in a form that any reader's value can be brought to: NULL, t or f, whole numbers (also of timestamps, dates and
 * unscaled decimals), the bits of a float or double in hexadecimal (or nan), the bytes of texts in hexadecimal.
 *
 * usage: parquet_samples FOLDER [NAME…]     the samples of these names, or all
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parquet/sample.h"

static void die(const char *what)
{
	fprintf(stderr, "parquet_samples: %s\n", what);
	exit(1);
}

static FILE *create(const char *folder, const char *name, const char *end)
{
	char path[4096];

	if ((size_t)snprintf(path, sizeof(path), "%s/%s%s", folder, name, end) >= sizeof(path))
		die("the path is too long");
	FILE *f = fopen(path, "we");
	if (f == NULL)
		die(path);
	return f;
}

static void print_hex(FILE *f, const void *data, size_t n)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < n; i++)
		fprintf(f, "%02x", p[i]);
	fputc('\n', f);
}

static void print_real(FILE *f, double v, uint64_t bits, int digits)
{
	if (isnan(v))
		fputs("nan\n", f);
	else
		fprintf(f, "%0*" PRIx64 "\n", digits, bits);
}

static void print_cell(FILE *f, const struct sl_parquet_column *c, const void *at)
{
	const struct sl_parquet_bytes *bytes = at;
	uint32_t narrow = 0;
	uint64_t wide = 0;
	float single;
	double real;

	switch (c->kind) {
	case SL_PARQUET_BOOL:
		fputs(*(const uint8_t *)at ? "t\n" : "f\n", f);
		break;
	case SL_PARQUET_INT32:
	case SL_PARQUET_DATE:
		memcpy(&narrow, at, sizeof(narrow));
		fprintf(f, "%" PRId32 "\n", (int32_t)narrow);
		break;
	case SL_PARQUET_FLOAT:
		memcpy(&narrow, at, sizeof(narrow));
		memcpy(&single, at, sizeof(single));
		print_real(f, (double)single, narrow, 8);
		break;
	case SL_PARQUET_DOUBLE:
		memcpy(&wide, at, sizeof(wide));
		memcpy(&real, at, sizeof(real));
		print_real(f, real, wide, 16);
		break;
	case SL_PARQUET_STRING:
	case SL_PARQUET_BINARY:
		print_hex(f, bytes->data, bytes->len);
		break;
	case SL_PARQUET_FIXED:
		print_hex(f, at, (size_t)c->length);
		break;
	default:
		memcpy(&wide, at, sizeof(wide));
		fprintf(f, "%" PRId64 "\n", (int64_t)wide);
	}
}

static void write_cells(const char *folder, const struct sample *s, size_t column)
{
	const struct sl_parquet_column *c = &s->columns[column];
	char end[32];

	(void)snprintf(end, sizeof(end), ".%zu.cells", column);
	FILE *f = create(folder, s->name, end);
	for (size_t row = 0; row < s->rows; row++) {
		if (sample_is_null(&s->values[column], row))
			fputs("NULL\n", f);
		else
			print_cell(f, c, sample_entry(c, s->values[column].values, row));
	}
	if (fclose(f) != 0)
		die("cannot write");
}

static int wanted(char **names, const char *name)
{
	for (; *names != NULL; names++)
		if (strcmp(*names, name) == 0)
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	struct sl_err err = SL_ERR_INIT;
	struct sample s;

	if (argc < 2)
		die("usage: parquet_samples FOLDER [NAME…]");
	for (size_t i = 0; sample_names[i] != NULL; i++) {
		struct sink file = {0};
		if (argc > 2 && !wanted(argv + 2, sample_names[i]))
			continue;
		sample_make(&s, sample_names[i]);
		if (sample_write(&s, NULL, 0, &file, &err) != 0)
			die(err.msg);
		FILE *f = create(argv[1], s.name, ".parquet");
		if (fwrite(file.data, 1, file.n, f) != file.n || fclose(f) != 0)
			die("cannot write");
		for (size_t c = 0; c < s.n_columns; c++)
			write_cells(argv[1], &s, c);
		sink_free(&file);
		sample_free(&s);
	}
	return 0;
}
