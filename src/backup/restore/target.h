/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder that a restore writes below, and nothing outside of it: every path is resolved from one descriptor by
 * openat2 with RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS and RESOLVE_NO_MAGICLINKS, and its last component is made under a
 * temporary name in its folder, given all that it has, and renamed. Where the target was empty, all of it is made in
 * one temporary folder, the stage, and moved up at the end (target_stage.c).
 *
 * Invariants, cited by tests:
 *  T1  No system call follows a symbolic link below the target, nor takes a path that was not checked by
 *      sl__bk_target_path_check.
 *  T2  What stands under a name of the snapshot is whole, with its attributes: only the rename puts it there, or that
 *      of a folder above it.
 *  T3  A run that was cut off leaves names that begin with BK_TEMP_PREFIX; the next run removes those of other runs
 *      when it enters a folder that was there before it, and moves what is whole out of a stage at its beginning.
 *  T4  While a restore writes, and until a syncfs has made it durable, the target folder carries BK_TARGET_MARK with
 *      the boot's id. One of another boot: the machine went down, and sizes and times of files prove nothing; nor do
 *      they when a sync has failed.
 *
 * The tree that is restored into is touched by direct system calls, not through struct sl_env; only files target*.c do.
 *
 * Thread safety: a struct bk_target is read-only between open and finish, but for `inherits`
 * and the counts; a struct bk_folder, a
 * struct bk_file belongs to one thread. Ownership: the target owns its descriptor and lock.
 */
#ifndef SL_BACKUP_TARGET_H
#define SL_BACKUP_TARGET_H

#include <stdatomic.h>

#include "backup/manifest/manifest.h"

#define BK_TEMP_PREFIX ".sluice-restore-"
#define BK_TEMP_BYTES 40u /* prefix, 8 characters of the run, "-", a lane, the NUL */
#define BK_TARGET_MARK "user.sluice.restore"

struct bk_target {
	const struct sl_env *env;
	int root;                               /* -1: closed */
	int base;                               /* what paths begin at: the stage, or root */
	bool overwrite, owner, set_id, devices; /* as the options say and the process may */
	bool capability, security;              /* the same: security.capability; others of its kind */
	bool devices_asked;                     /* devices are left out because the options say so */
	bool unsure;                            /* T4 */
	size_t made;       /* bytes of the target's path up to the first folder that was missing; 0: none was */
	bool fresh;        /* the folder was empty: what is below it now, this run has made */
	uint32_t uid, gid; /* of this process */
	char run[9];       /* in temporary names */
	bool staged;       /* base is the stage: names in it are this run's, and nobody sees them yet */
	char stage[BK_TEMP_BYTES];
	atomic_bool inherits; /* a folder hands access lists down to what is made in it */
	atomic_uint_fast64_t set_id_stripped, security_stripped; /* entries, by the options */
};

/* Make the folder when it is missing, lock it, mark it. SL_EUNSUPPORTED: the kernel has no openat2; SL_ELOCKED: another
 * restore writes there. trusted: what the snapshot says comes from whoever has the passphrase. */
SL_MUST_CHECK int sl__bk_target_open(struct bk_target *t, const struct sl_env *env,
				     const struct sl_backup_restore_opts *opts, bool trusted, struct sl_err *err);
/* What is in the stage gets its place in the target; no folder may be open. SL_EEXIST: something else has appeared. */
SL_MUST_CHECK int sl__bk_stage_publish(struct bk_target *t, struct sl_err *err);
/* What was made before the call is durable when 0 returns. On failure the next run trusts nothing that it finds (T4).
 */
SL_MUST_CHECK int sl__bk_target_flush(const struct bk_target *t, struct sl_err *err);
/* Everything below is durable when 0 returns, and the mark is gone. */
SL_MUST_CHECK int sl__bk_target_finish(struct bk_target *t, struct sl_err *err);
/* Of a restore that failed: the folders of its path that it made go again when nothing is in them. */
void sl__bk_target_unmake(const struct bk_target *t, const char *to);
void sl__bk_target_close(struct bk_target *t); /* one that was never opened is allowed when root is -1 */

/* SL_EDATA: absolute, empty, or with a component that is empty, "." or "..". */
SL_MUST_CHECK int sl__bk_target_path_check(const char *path, size_t len, struct sl_err *err);

/* ---- folders ---- */

/* A folder below the target that is open; kept, because the next entry is mostly in the same. */
struct bk_folder {
	struct bk_target *target;
	int fd;       /* -1: none */
	bool is_path; /* this user may not list it: opened with O_PATH */
	struct sl__buf path;
};
void sl__bk_folder_init(struct bk_folder *f, struct bk_target *t);
void sl__bk_folder_fini(struct bk_folder *f);
/* Open the folder with this path (len 0: the target itself). SL_ENOENT: it is not there; SL_EDATA: a link or a file is
 * in the way. */
SL_MUST_CHECK int sl__bk_folder_enter(struct bk_folder *f, const char *path, size_t len, struct sl_err *err);
/* Make the folder `path`, whose parent is there. *made: it was not there. Until its attributes
 * are set only this user may look into it. */
SL_MUST_CHECK int sl__bk_folder_make(struct bk_folder *f, const char *path, size_t len, bool *made, struct sl_err *err);

/* It was there before: remove what other runs have left in it (T3), see whether it hands access lists down. make does
 * so itself. Only before lanes work in it. */
void sl__bk_folder_take_over(struct bk_folder *f);

/* The length of the folder part of a path: 0 when there is none. */
static inline size_t sl__bk_path_parent(const char *path, size_t len)
{
	while (len > 0 && path[len - 1] != '/')
		len--;
	return len > 0 ? len - 1 : 0;
}

/* ---- what is in them ---- */

enum bk_there {
	BK_THERE_NOT = 0,
	BK_THERE_SAME = 1,    /* the entry, as far as size, time, target tell */
	BK_THERE_REPLACE = 2, /* something else, and it is to be replaced */
};
/* What stands where an entry belongs. name: the last component. SL_EEXIST: something else, and it is to stay. */
SL_MUST_CHECK int sl__bk_target_look(struct bk_folder *f, const char *name, const struct bk_entry *e,
				     enum bk_there *out, struct sl_err *err);

/* What a comparison needs, made when the first is asked for; only b is set. */
struct bk_comparer {
	struct sl_backup *b;
	struct bk_hasher *hasher;
	uint8_t *block;
};
void sl__bk_comparer_fini(struct bk_comparer *c);
/* Whether the file that stands there has the contents of the entry, byte by byte; one that cannot be read has not.
 * Fails as reading the lists of its blocks does. */
SL_MUST_CHECK int sl__bk_target_compare(struct bk_comparer *c, struct bk_folder *f, const char *name,
					const struct bk_entry *e, struct bk_reader *lists, bool *same,
					struct sl_err *err);

/* A file that is being written, under its temporary name, or in the stage under its own. */
struct bk_file {
	struct bk_folder *folder;
	int fd;           /* -1: none */
	const char *name; /* its own */
	char temp[BK_TEMP_BYTES];
};
/* An attribute could not be set; the restore goes on. */
typedef void bk_not_set_fn(const struct bk_entry *e, const struct sl_err *err, void *ctx);

/* folder must stay where it is, and name, the last component, live until keep or drop. lane: one file at a time per
 * lane. */
SL_MUST_CHECK int sl__bk_file_begin(struct bk_file *file, struct bk_folder *folder, int lane, const struct bk_entry *e,
				    const char *name, struct sl_err *err);
SL_MUST_CHECK int sl__bk_file_write(struct bk_file *file, const struct bk_entry *e, const void *bytes, size_t len,
				    uint64_t offset, struct sl_err *err);
/* Give it its length, attributes and name. The file is closed in any case, and gone on failure. */
SL_MUST_CHECK int sl__bk_file_keep(struct bk_file *file, const struct bk_entry *e, enum bk_there there,
				   bk_not_set_fn *not_set, void *ctx, struct sl_err *err);
void sl__bk_file_drop(struct bk_file *file);

/* A symbolic link, fifo or device with its attributes, as keep does. */
SL_MUST_CHECK int sl__bk_target_node(struct bk_folder *folder, int lane, const struct bk_entry *e, const char *name,
				     enum bk_there there, bk_not_set_fn *not_set, void *ctx, struct sl_err *err);
/* Another name for what stands at from_name. *linked: false when it was there already. */
SL_MUST_CHECK int sl__bk_target_link(struct bk_folder *from, const char *from_name, struct bk_folder *to,
				     const struct bk_entry *e, const char *name, bool *linked, struct sl_err *err);

/* Owner, attributes, mode and time of an open file or folder. is_path: fd was opened with O_PATH. */
void sl__bk_target_attributes(struct bk_target *t, int fd, bool is_path, const struct bk_entry *e,
			      bk_not_set_fn *not_set, void *ctx);

/* ---- shared by the files target*.c ---- */
void sl__bk_temp_name(const struct bk_target *t, int lane, char out[BK_TEMP_BYTES]);
/* temp gets its name, in one step. */
SL_MUST_CHECK int sl__bk_target_publish(struct bk_folder *f, const char *temp, const struct bk_entry *e,
					const char *name, enum bk_there there, struct sl_err *err);
int sl__bk_open_beneath(int root, const char *path, uint64_t flags); /* a descriptor, or -1 with errno */
/* A folder below base, however long its path is; a descriptor, or -1 with errno. */
int sl__bk_open_path(const struct bk_target *t, const char *path, size_t len, uint64_t flags);
int sl__bk_rename_new(int from, const char *name, int to, const char *new_name); /* -1 with EEXIST: it is taken */
SL_MUST_CHECK int sl__bk_stage_begin(struct bk_target *t, struct sl_err *err);
/* What a run that was killed has left in its stage: what is whole gets its place, the rest goes. */
SL_MUST_CHECK int sl__bk_stage_recover(struct bk_target *t, struct sl_err *err);

#endif
