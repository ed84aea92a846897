/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small dataset "d" as an export would leave it: Parquet files of ten rows (column "seq" and a text), catalog, event
 * files, a signed head that is kept elsewhere. Partitions 100-109, 110-119, 120-129 …
 */
#ifndef TESTS_AUDIT_DATASET_H
#define TESTS_AUDIT_DATASET_H

#include <stdbool.h>

#include "pipeline/catalog_place.h"

#define AUDIT_SIZE 10u

struct audit_rows {
	const int64_t *sequences; /* NULL: start … end */
	size_t n;
	const char *column; /* NULL: "seq" */
	uint64_t said_rows; /* what the event says; 0: as many as there are */
	int64_t group_rows; /* of a row group; 0: all are in one */
	int null_at;        /* that row has no sequence; 0: all have one; from 1 */
	bool backfill;      /* below the start */
	uint64_t n_holes;   /* how many of the sequences without a row are holes: */
	const char *holes;
};

/* Write and commit partition number `index` (0 is 100-109; -10 is 0-9). rows NULL: as it should be. */
void audit_dataset_put(struct catalog_place *place, sl_catalog *c, sl_catalog_lease *lease, uint64_t index,
		       const struct audit_rows *rows);
/* Define "d" in an empty catalog. */
void audit_dataset_define(sl_catalog *c, sl_catalog_lease *lease);
/* n partitions, their events in the files, the key PLACE/key and the head PLACE/head. */
void audit_dataset_make(struct catalog_place *place, uint64_t n);
/* Deliver what is pending. */
void audit_dataset_deliver(struct catalog_place *place, sl_catalog *c, sl_catalog_lease *lease);
void audit_dataset_head(struct catalog_place *place, const char *name, int with_key);

/* Paths: of a partition's file, of the first event file, of something else below the place. */
void audit_dataset_file(const struct catalog_place *place, uint64_t index, char out[512]);
void audit_dataset_events(const struct catalog_place *place, char out[512]);

/* Whole files. */
char *audit_read(const char *path, size_t *n);
void audit_write(const char *path, const void *data, size_t n);

#endif
