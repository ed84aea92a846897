/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of check, repair, forget and prune: repositories on a shelf, small snapshots of made-up files that go the
 * way of a create (session, index, store, manifest, publish) without a file system, and what they must give back.
 */
#ifndef TESTS_BACKUP_CARE_KIT_H
#define TESTS_BACKUP_CARE_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backup/manifest/manifest.h"
#include "backup/shelf.h"

struct care_file {
	const char *path;
	uint64_t seed; /* of its bytes: the same seed and length are the same contents; 0: a folder */
	size_t len;
	const char *link; /* not NULL: another name of that file */
};

struct care_snapshot {
	const struct care_file *files;
	size_t n;
	const char *host; /* NULL: "here" */
	const char *root; /* path of the snapshot; NULL: "/data" */
	const char *tag;  /* may be NULL */
	int64_t time_ms;
};

#define CARE_PASSPHRASE "correct horse"

/* A repository on the shelf, and a handle to it. */
sl_backup *care_new(struct shelf *s, bool encrypted);
sl_backup *care_open(struct shelf *s);
int care_try_open(sl_backup **out, struct shelf *s, struct sl_err *err);

/* Make a snapshot; the code of what failed. */
int care_make(sl_backup *b, const struct care_snapshot *snapshot, char id[SL_BACKUP_ID_BYTES], struct sl_err *err);
/* The bytes of a file; free. */
uint8_t *care_bytes(const struct care_file *file);
/* All files of the snapshot are there, as they were made, and no other. */
void care_assert_whole(sl_backup *b, const char *id, const struct care_file *files, size_t n);
/* How many of the files are there, all right; -1 when one is wrong or unknown. */
int care_count_right(sl_backup *b, const char *id, const struct care_file *files, size_t n);

/* Check, with every byte read; on_finding may be NULL. 0 when it passes. */
int care_check(sl_backup *b, sl_backup_finding_fn *fn, void *ctx, struct sl_backup_checked *out);
/* It passes, and everything that is to be in two packs is. */
void care_assert_right(sl_backup *b);
struct sl_backup_pruned care_prune(sl_backup *b);
void care_forget(sl_backup *b, const char *id);
size_t care_snapshots(sl_backup *b);

#endif
