/* SPDX-License-Identifier: Apache-2.0 */
/* A folder with an input and an export of it, and all that the export holds as text, to compare two of them. */
#ifndef TESTS_PIPELINE_EXPORT_PLACE_H
#define TESTS_PIPELINE_EXPORT_PLACE_H

#include <stdio.h>

#include <sluice/catalog.h>
#include <sluice/export.h>

struct place {
	char dir[64];   /* of everything */
	char to[96];    /* of the export */
	char input[96]; /* the file, once it was written */
};

void place_open(struct place *p);
void place_close(struct place *p);
/* Start anew: nothing is exported. */
void place_clear(struct place *p);

/* Write the input; the name has its format's ending. */
void place_write(struct place *p, const char *name, const char *text, size_t n);
void place_append(struct place *p, const char *text);

/* Rows first … last, each "n,text n,…": CSV with a header n,name,amount,at, or JSON lines of the same. */
char *rows_csv(uint64_t first, uint64_t last);
char *rows_json(uint64_t first, uint64_t last);

/* The options of an export of the input, with this partition size. */
struct sl_export_opts place_opts(const struct place *p, int64_t partition_size);
/* Run it; the code, the message in err. */
int place_run(const struct sl_export_opts *opts, struct sl_export_result *result, struct sl_err *err);

/*
 * What is there, in fresh memory: a line for every file below the dataset with its size and hash, catalog rows, events.
 * Two exports with the same text are the same.
 */
char *place_show(const struct place *p);
/* Only the rows of the partitions, as "n|name|amount|at" lines, in order; out of the Parquet files. */
char *place_rows(const struct place *p);

#endif
