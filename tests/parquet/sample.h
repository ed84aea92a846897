/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables to write: named, the same on every run, from one row to a million, with everything that a file may hold. The
 * tests in C read them back with our reader, those in readers.mjs with DuckDB, hyparquet and Arrow.
 *
 * Ownership: a sample owns its columns and values until sample_free.
 */
#ifndef TESTS_PARQUET_SAMPLE_H
#define TESTS_PARQUET_SAMPLE_H

#include <sluice/parquet.h>

#define SAMPLE_COLUMNS_MAX 64

struct sample {
	const char *name;
	size_t rows, n_columns;
	struct sl_parquet_column columns[SAMPLE_COLUMNS_MAX];
	struct sl_parquet_values values[SAMPLE_COLUMNS_MAX];
	struct sl_parquet_writer_opts opts;
};

/* The names of all samples, NULL at the end. */
extern const char *const sample_names[];
void sample_make(struct sample *s, const char *name);
void sample_free(struct sample *s);

/* A growing piece of memory that a writer writes to. */
struct sink {
	char *data;
	size_t n, cap;
	size_t calls, fail_at; /* the call that fails, from 1; 0: none */
};
int sink_write(const void *bytes, size_t n, struct sl_err *err, void *ctx);
void sink_free(struct sink *s);

/* Write the sample, `batch` rows per put (0: all at once). The code of the first call that failed. */
int sample_write(const struct sample *s, const struct sl_env *env, size_t batch, struct sink *out, struct sl_err *err);

/* Entry `row` of a column in an array of its values. */
const void *sample_entry(const struct sl_parquet_column *c, const void *values, size_t row);
int sample_is_null(const struct sl_parquet_values *v, size_t row);
/* Bit by bit: NaNs and zeros of either sign differ. */
int sample_same(const struct sl_parquet_column *c, const void *a, const void *b);

#endif
