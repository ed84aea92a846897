/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of create share: a tree to back up, a repository, a target to restore to, all in one temporary folder;
 * and a comparison of two trees in everything that a file has.
 */
#ifndef TESTS_BACKUP_CREATE_KIT_H
#define TESTS_BACKUP_CREATE_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "backup/bad_driver.h"
#include <sluice/backup_care.h>

struct ck_problem {
	enum sl_backup_problem problem;
	char path[300];
	char msg[256];
};

struct ck {
	char dir[200]; /* real path; the others are in it */
	char tree[220], repo[220], out[220];
	struct sl_env env;
	sl_driver driver;
	sl_backup *b;
	struct sl_backup_opts opts; /* of open */
	/* of the last create */
	struct sl_backup_create_opts create;
	const char *paths[1];
	struct sl_backup_created made;
	struct sl_err err;
	struct ck_problem problems[128];
	size_t n_problems;
	/* called in on_problem, when set */
	void (*on_problem)(struct ck *k, const struct ck_problem *p);
};

/* Milliseconds that are added to the real time that the library sees: with 10,000, files made now are not fresh. */
extern int64_t ck_ahead_ms;
struct sl_env ck_env(void);

/* A plain repository; `tree` is there and empty. env NULL: ck_env, 60 s ahead. */
void ck_begin(struct ck *k, const struct sl_env *env);
void ck_end(struct ck *k);
/* Close and open the handle again with k->opts. */
void ck_reopen(struct ck *k);

/* Create with k->create (paths: the tree); what happened is in made, err and problems. */
int ck_create(struct ck *k);
void ck_create_ok(struct ck *k);
const struct ck_problem *ck_problem_of(const struct ck *k, const char *path_end);

/* Restore the last created one to `out`, which is removed first, with everything. Where the tree is in it: out + tree.
 */
void ck_restore(struct ck *k);
/* The tree and what was restored are the same in everything. */
void ck_restore_and_compare(struct ck *k);
/* Both are folders (or both a file). except (may be NULL): a name that may differ. Says the first difference. */
void ck_compare(const char *a, const char *b);

/* Below the tree. */
const char *ck_path(const struct ck *k, const char *path, char out[1024]);
void ck_write(const struct ck *k, const char *path, const void *bytes, size_t n);
void ck_text(const struct ck *k, const char *path, const char *text);
void ck_mkdir(const struct ck *k, const char *path);
/* Bytes by a seed that do not compress, or do. */
void ck_fill(uint8_t *out, size_t n, uint64_t seed, int text);
void ck_write_seed(const struct ck *k, const char *path, size_t n, uint64_t seed);
/* A tree of every kind of file that this process may make. Files in all: returned. */
int ck_mixed_tree(const struct ck *k);
void ck_remove(const char *path);
/* All entries of the last created snapshot that lie in the tree, their paths relative to it, each ended by a newline;
 * free. */
char *ck_listing(struct ck *k);

/* 40 files, 12 MB that do not compress. */
void ck_many_files(const struct ck *k);
/* check --read-data passes. */
void ck_check(struct ck *k);

/* Something to do when the repository is asked to put the Nth pack, on the thread that asks. */
struct ck_step {
	struct ck *k;
	int64_t at;   /* from 1 */
	int64_t puts; /* so far */
	void (*fn)(struct ck *k);
};
/* The handle is opened again on a driver that steps in, with small packs and a short queue of them, and back. */
void ck_step_in(struct ck *k, struct bad_driver *bad, sl_driver *handle, struct ck_step *s);
void ck_step_out(struct ck *k, struct bad_driver *bad);

#endif
