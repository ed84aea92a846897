/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exports for tests: an input, options, and everything that an export leaves (the files with their hashes, the rows of
 * the catalog, the events of the chain) as one text, so that two exports can be compared.
 */
#ifndef TESTS_EXPORT_RIG_H
#define TESTS_EXPORT_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/catalog.h>
#include <sluice/export.h>

#define EXPORT_DATASET "ledger"

struct export_rig {
	char dir[64]; /* made by init, removed by fini */
	char input[96];
	char to[96]; /* of the export */
	uint64_t first, rows;
};

/* A folder and an input of `rows` rows from `first`, ".csv" or ".jsonl". */
void export_rig_init(struct export_rig *x, const char *suffix, uint64_t first, uint64_t rows);
void export_rig_fini(struct export_rig *x);
/* Write the input anew, with this many rows. */
void export_rig_input(struct export_rig *x, uint64_t rows);
/* One row of it as CSV, with its line end. */
int export_rig_csv_row(char *out, size_t n, uint64_t sequence);
/* An empty folder for another export. */
void export_rig_to(struct export_rig *x, const char *name);

/* Partitions of 50, 3 workers, retries without a wait. */
struct sl_export_opts export_rig_opts(const struct export_rig *x);
/* One run; fails the test when the handle cannot be made. */
int export_rig_run(const struct sl_export_opts *o, struct sl_export_result *result, struct sl_err *err);

/* What the export in x->to has left; catalog NULL: its own. To be freed. Nothing is there yet: "". */
char *export_rig_look(const struct export_rig *x, const char *catalog);
/* Every partition that the catalog has is there with its bytes. Files next to them may be there: they may be replaced.
 * Returns how many. */
uint64_t export_rig_assert_committed_files(const struct export_rig *x);
/* audit verify finds nothing wrong with it; complete: nor anything to note. Nothing there yet is right as well. */
void export_rig_assert_verified(const struct export_rig *x, bool complete);
/* Two texts are the same; else their first difference is reported. */
void export_rig_assert_same(const char *is, const char *must_be, const char *when);

#endif
