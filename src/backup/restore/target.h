/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder that a restore writes into, and nothing outside of it: every path is resolved from one descriptor by
 * openat2 with RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS and RESOLVE_NO_MAGICLINKS. Its last component is created under a
 * temporary name in its folder, gets its contents and attributes, and is renamed. When the target was empty, everything
 * is created in one temporary folder, the stage, and moved up at the end (target_stage.c).
 *
 * Invariants, cited by tests:
 *  T1  No system call follows a symbolic link below the target, or uses a path that was not checked by
 *      sl__bk_target_path_check.
 *  T2  What has a name of the snapshot is complete, with its attributes: only the rename puts it there, or the rename
 *      of a folder above it.
 *  T3  A run that was interrupted leaves names that begin with BK_TEMP_PREFIX. The next run removes those of other runs
 *      when it enters a folder that existed before, and first moves what is complete out of a stage.
 *  T4  While a restore writes, and until a syncfs has made it durable, the target folder carries BK_TARGET_MARK with
 *      the id of the boot. The id of another boot means that the machine crashed, and that sizes and times of files
 *      prove nothing; neither do they when a sync has failed.
 *
 * The tree that is restored into is accessed by direct system calls, not through struct sl_env; only by target*.c.
 *
 * Thread safety: a struct bk_target is read-only between open and finish, except `inherits` and the counts. A struct
 * bk_folder, bk_placing or bk_file belongs to one thread. Ownership: the target owns its descriptor and lock.
 */
#ifndef SL_BACKUP_TARGET_H
#define SL_BACKUP_TARGET_H

#include <stdatomic.h>

#include "backup/manifest/manifest.h"

#define BK_TEMP_PREFIX ".sluice-restore-"
#define BK_TEMP_BYTES 40u /* prefix, 8 characters of the run, "-", a lane, the NUL */
#define BK_TARGET_MARK "user.sluice.restore"

/* An attribute could not be set; the restore continues. */
typedef void bk_not_set_fn(const struct bk_entry *e, const struct sl_err *err, void *ctx);

struct bk_target {
	const struct sl_env *env;
	int root;                               /* -1: closed */
	int base;                               /* where paths begin: the stage, or root */
	bool overwrite, owner, set_id, devices; /* what the options ask for and the process may do */
	bool capability, security;              /* the same: security.capability; other security attributes */
	bool devices_asked;                     /* devices are left out because the options say so */
	bool unsure;                            /* T4 */
	size_t made;       /* bytes of the target's path up to the first folder that was missing; 0: none was */
	bool fresh;        /* the folder was empty: this run created everything below it */
	uint32_t uid, gid; /* of this process */
	char run[9];       /* in temporary names */
	bool staged;       /* base is the stage: names in it belong to this run and are not visible yet */
	char stage[BK_TEMP_BYTES];
	atomic_bool inherits; /* a folder passes access lists on to what is created in it */
	atomic_uint_fast64_t set_id_stripped, security_stripped; /* entries, by the options */
	bk_not_set_fn *not_set;                                  /* set by the caller after open; may be NULL */
	void *not_set_ctx;
};

/* Create the folder when it is missing, lock it, mark it. SL_EUNSUPPORTED: the kernel has no openat2; SL_ELOCKED:
 * another restore writes there. trusted: the snapshot was made by an owner of the passphrase. */
SL_MUST_CHECK int sl__bk_target_open(struct bk_target *t, const struct sl_env *env,
				     const struct sl_backup_restore_opts *opts, bool trusted, struct sl_err *err);
/* Move what is in the stage into the target; no folder may be open. SL_EEXIST: something else has appeared there. */
SL_MUST_CHECK int sl__bk_stage_publish(struct bk_target *t, struct sl_err *err);
/* What was created before the call is durable when 0 returns. After a failure the next run trusts nothing that it finds
 * (T4). */
SL_MUST_CHECK int sl__bk_target_flush(const struct bk_target *t, struct sl_err *err);
/* Everything below is durable when 0 returns, and the mark is removed. */
SL_MUST_CHECK int sl__bk_target_finish(struct bk_target *t, struct sl_err *err);
/* After a restore that failed: remove the folders of its path that it created, if they are empty. */
void sl__bk_target_unmake(const struct bk_target *t, const char *to);
void sl__bk_target_close(struct bk_target *t); /* one that was never opened is allowed when root is -1 */

/* SL_EDATA: absolute, empty, or with a component that is empty, "." or "..". */
SL_MUST_CHECK int sl__bk_target_path_check(const char *path, size_t len, struct sl_err *err);

/* ---- folders ---- */

/* An open folder below the target; kept open, because the next entry is usually in the same one. */
struct bk_folder {
	struct bk_target *target;
	int fd;       /* -1: none */
	bool is_path; /* this user may not list it: opened with O_PATH */
	struct sl__buf path;
};
void sl__bk_folder_init(struct bk_folder *f, struct bk_target *t);
void sl__bk_folder_fini(struct bk_folder *f);
/* Open the folder with this path (len 0: the target itself). SL_ENOENT: it does not exist; SL_EDATA: a link or a file
 * is in the way. */
SL_MUST_CHECK int sl__bk_folder_enter(struct bk_folder *f, const char *path, size_t len, struct sl_err *err);
/* Create the folder `path`, whose parent exists. *made: it did not exist. Until its attributes are set, only this user
 * may access it. */
SL_MUST_CHECK int sl__bk_folder_make(struct bk_folder *f, const char *path, size_t len, bool *made, struct sl_err *err);
/* For a folder that existed before: remove what other runs have left in it (T3), and find out whether it passes access
 * lists on. make does so itself. Only before lanes use the folder. */
void sl__bk_folder_take_over(struct bk_folder *f);

/* The length of the folder part of a path; 0 when it has none. */
static inline size_t sl__bk_path_parent(const char *path, size_t len)
{
	while (len > 0 && path[len - 1] != '/')
		len--;
	return len > 0 ? len - 1 : 0;
}

/* ---- entries in folders ---- */

enum bk_there {
	BK_THERE_NOT = 0,
	BK_THERE_SAME = 1,    /* the entry, judged by size, time and target */
	BK_THERE_REPLACE = 2, /* something else, to be replaced */
};

/* An entry and its place. Everything in it must stay valid while it is used. */
struct bk_placing {
	struct bk_folder *folder; /* open */
	const struct bk_entry *e;
	const char *name;    /* the last component of its path */
	int lane;            /* one entry at a time per lane */
	enum bk_there there; /* what is in its place */
};
/* Find out what is in an entry's place. SL_EEXIST: something else, which may not be replaced. */
SL_MUST_CHECK int sl__bk_target_find(struct bk_placing *p, struct sl_err *err);

/* What a comparison needs, created by the first one; the caller sets b. */
struct bk_comparer {
	struct sl_backup *b;
	struct bk_hasher *hasher;
	uint8_t *block;
};
void sl__bk_comparer_fini(struct bk_comparer *c);
/* Does the existing file have the contents of the entry, byte by byte? One that cannot be read does not. Fails as
 * reading the lists of its blocks does. */
SL_MUST_CHECK int sl__bk_target_compare(struct bk_comparer *c, const struct bk_placing *p, struct bk_reader *lists,
					bool *same, struct sl_err *err);

/* A file that is being written, under its temporary name, or in the stage under its own. */
struct bk_file {
	const struct bk_placing *p;
	int fd; /* -1: none */
	char temp[BK_TEMP_BYTES];
};
SL_MUST_CHECK int sl__bk_file_begin(struct bk_file *file, const struct bk_placing *p, struct sl_err *err);
SL_MUST_CHECK int sl__bk_file_write(struct bk_file *file, const void *bytes, size_t len, uint64_t offset,
				    struct sl_err *err);
/* Set its length, attributes and name. The file is closed in any case, and removed on failure. */
SL_MUST_CHECK int sl__bk_file_keep(struct bk_file *file, struct sl_err *err);
void sl__bk_file_drop(struct bk_file *file);

/* A symbolic link, fifo or device with its attributes, as keep does. */
SL_MUST_CHECK int sl__bk_target_node(const struct bk_placing *p, struct sl_err *err);
/* Another name for from_name in `from`. *linked: false when it existed already. */
SL_MUST_CHECK int sl__bk_target_link(struct bk_folder *from, const char *from_name, struct bk_placing *p, bool *linked,
				     struct sl_err *err);

/* Set owner, attributes, mode and time of an open file or folder. is_path: fd was opened with O_PATH. */
void sl__bk_target_attributes(struct bk_target *t, int fd, bool is_path, const struct bk_entry *e);

/* ---- shared by the files target*.c ---- */
int sl__bk_open_beneath(int root, const char *path, uint64_t flags); /* a descriptor, or -1 with errno */
/* A folder below base, however long its path is; a descriptor, or -1 with errno. */
int sl__bk_open_path(const struct bk_target *t, const char *path, size_t len, uint64_t flags);
int sl__bk_rename_new(int from, const char *name, int to, const char *new_name); /* -1 with EEXIST: it exists */
SL_MUST_CHECK int sl__bk_stage_begin(struct bk_target *t, struct sl_err *err);
/* Recover the stage of a run that was killed: what is complete is moved into the target, the rest is removed. */
SL_MUST_CHECK int sl__bk_stage_recover(struct bk_target *t, struct sl_err *err);

#endif
