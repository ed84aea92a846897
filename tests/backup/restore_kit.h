/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of restore share: a repository in a temporary folder whose snapshots are put together entry by entry,
 * also such as no create would make, a target to restore to, and a folder outside of it that nothing may touch.
 */
#ifndef TESTS_BACKUP_RESTORE_KIT_H
#define TESTS_BACKUP_RESTORE_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "backup/manifest/manifest.h"

#define RK_REFS 256
#define RK_MTIME_S 1500000000

struct rk_problem {
	enum sl_backup_problem problem;
	int code;
	char path[200], msg[256];
};

struct rk {
	char dir[200];                         /* repo, to and outside are in it */
	char repo[220], to[220], outside[220]; /* full paths */
	struct sl_env env;                     /* filled in */
	sl_driver driver;
	sl_backup *b;
	/* the snapshot that is being made */
	struct bk_hasher *hasher;
	struct bk_pack *pack;
	struct bk_index_builder *index;
	struct sl__buf block;
	struct bk_ref manifest[RK_REFS];
	size_t n_manifest;
	struct bk_ref refs[RK_REFS]; /* of rk_file */
	size_t n_refs;
	char id[SL_BACKUP_ID_BYTES];
	/* of the last restore */
	struct sl_backup_restored result;
	struct sl_err err;
	struct rk_problem problems[64];
	size_t n_problems;
};

/* env NULL: the real one. passphrase NULL: a plain repository. A file outside/secret is there. */
void rk_begin(struct rk *k, const struct sl_env *env, const char *passphrase);
void rk_end(struct rk *k);
/* Close the handle and open it again with another environment and this many threads. */
void rk_reopen(struct rk *k, const struct sl_env *env, int threads);

struct bk_ref rk_block(struct rk *k, const void *bytes, size_t len);
/* As bytes, whatever it says; in order of the calls. */
void rk_add(struct rk *k, const struct bk_entry *e);
void rk_cut(struct rk *k); /* the manifest continues in another block */
const char *rk_publish(struct rk *k);

/* Entries to add or to change first. What they point to lives as long as k. */
struct bk_entry rk_dir(const char *path);
struct bk_entry rk_file(struct rk *k, const char *path, const void *bytes, size_t len);
struct bk_entry rk_text(struct rk *k, const char *path, const char *text);
struct bk_entry rk_link(enum sl_backup_type type, const char *path, const char *target);
struct bk_entry rk_node(enum sl_backup_type type, const char *path);

struct sl_backup_restore_opts rk_opts(struct rk *k);
/* Restore what was published; problems and the result are kept. */
int rk_restore(struct rk *k);
int rk_restore_with(struct rk *k, const struct sl_backup_restore_opts *opts);
const struct rk_problem *rk_problem_of(const struct rk *k, const char *path);

/* Below `to`. */
bool rk_exists(const struct rk *k, const char *path);
struct stat rk_stat(const struct rk *k, const char *path); /* does not follow */
/* The file's bytes (free), with a NUL behind; NULL when it is not there. */
char *rk_read(const struct rk *k, const char *path, size_t *len);
void rk_expect(const struct rk *k, const char *path, const char *text);
void rk_write(const struct rk *k, const char *path, const char *text); /* relative to dir */
/* How many names below `to` begin as temporary ones do. */
int rk_leftovers(const struct rk *k);
/* outside/secret is as it was, and alone. */
void rk_expect_outside_untouched(const struct rk *k);
/* A path of dir/… in static storage of the caller. */
const char *rk_path(const struct rk *k, const char *path, char out[512]);

#endif
