/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of repositories: one in a temporary folder or on a crash filesystem, wrapped in the driver that misbehaves
 * on request; blocks by number, snapshots without files. */
#ifndef TESTS_BACKUP_REPO_KIT_H
#define TESTS_BACKUP_REPO_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backup/bad_driver.h"
#include "backup/pack/store.h"
#include "backup/place.h"

#define KIT_PASSPHRASE "correct horse battery staple"

struct repo {
	struct sl_env env;  /* io may be a crash filesystem's */
	const char *path;   /* of the repository */
	struct place place; /* with a path only on a disk */
	struct bad_driver bad;
	sl_driver d; /* the bad driver's handle */
	sl_backup *b;
	struct sl_backup_opts opts; /* that open uses */
};

/* A plain repository, made and open. env may be NULL; with an io table in it the repository is at /repo of that. */
void repo_make(struct repo *r, const struct sl_env *env);
void repo_free(struct repo *r);
/* Close everything and open it again, as another process would. */
void repo_reopen(struct repo *r);
/* Only the drivers, without init and open. */
void repo_place(struct repo *r, const struct sl_env *env);

#define REPO_BLOCK_MAX 600000
/* Block `number`: its length follows from the number (few are long), the contents compress half of the time. */
size_t repo_block(uint64_t number, uint8_t *out, size_t cap);
struct bk_id repo_block_id(sl_backup *b, uint64_t number);
int repo_store_block(struct repo *r, struct bk_store *s, int lane, uint64_t number, bool *is_new, struct sl_err *err);
/* Read it through a reader and compare; what the reader returned. */
int repo_read_block(struct repo *r, struct bk_reader *reader, uint64_t number, struct sl_err *err);
/* Store blocks first … first + n - 1 in one go; they must be stored. */
void repo_store(struct repo *r, uint64_t first, uint64_t n);

/* Publish a snapshot without files. */
int repo_publish(struct repo *r, const char *host, int64_t time_ms, char id[BK_NAME_HEX], struct sl_err *err);

/* How many objects are in a folder; the name of the last one. */
int repo_count(const sl_driver *d, const char *folder, char last[SL_DRIVER_NAME_BYTES]);
/* Flip a bit of an object. */
void repo_damage(const sl_driver *d, const char *name, size_t offset);

#endif
