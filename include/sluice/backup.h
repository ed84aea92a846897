/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backups: trees of files in a repository of content-addressed blocks: deduplicated, compressed, encrypted, verifiable.
 *
 * Guarantees
 *  - A snapshot is immutable and appears at once, whole and durable, or not at all: every block that it needs is in the
 *    repository before its name is.
 *  - Killed or without power at any moment, every snapshot that was reported as done restores bit by bit; nothing needs
 *    repair by hand. What an interrupted create has stored is used by the next one.
 *  - Any number of creates, restores and checks may run at once with one prune, from any number of machines that share
 *    the storage, without a lock that could be left behind. A snapshot never misses a block because of a prune.
 *  - Damage is found: every byte of every object is covered by a checksum (or, encrypted, by an authenticator), and
 *    every block that restore writes was compared with its id.
 *  - Encrypted repositories (the default) show names, contents and lengths of files only with the passphrase;
 *    an attacker with write access can remove objects, which check reports, but not forge one.
 *  - Restore never leaves its target folder, whatever a repository says.
 * Not guaranteed: a consistent snapshot of the whole tree, unless the file system is frozen (SQLite databases are
 * copied consistently each); that a removed snapshot's space is free before the second prune after it.
 *
 * Thread safety: a handle may be used by one thread at a time, but for sl_backup_stop and sl_backup_get_progress, which
 * any thread may call. Callbacks say on which thread they are; they may call those two. A handle does not work in a
 * forked child (SL_EFORKED). Ownership: strings in options are copied or used only during the call; what callbacks get
 * lives until they return.
 */
#ifndef SLUICE_BACKUP_H
#define SLUICE_BACKUP_H

#include <sluice/adapter/driver.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_backup sl_backup;

#define SL_BACKUP_ID_BYTES 33 /* a snapshot's id: 32 hexadecimal characters and the NUL */

/* ---- a repository ---- */

struct sl_backup_opts {
	size_t struct_size; /* SL_BACKUP_OPTS_INIT fills it */
	const struct sl_env *env;
	/* What opens an encrypted repository; bytes, not a C string. Wiped from the library's memory after use. */
	const void *passphrase;
	size_t passphrase_len;
	int32_t threads; /* that read, hash and compress, or restore; default one per processor, at most 64 */
	/* of init */
	enum sl_switch encrypt; /* default on: passphrase must be given then */
	/* of create */
	int32_t zstd_level; /* 1 to 19; default: between 2 and 3 in size, faster than both */
	int64_t pack_bytes; /* a pack is closed when it holds so much; default 8 MiB; 64 KiB to 64 MiB */
	/* of the block writer that puts packs */
	int32_t max_concurrent_writes; /* default 4 */
	int32_t max_retry_attempts;    /* default 5 */
	int64_t retry_first_ms;        /* default 2,000 */
	int64_t backlog_limit_bytes;   /* default 32 MiB */
};
#define SL_BACKUP_OPTS_INIT .struct_size = sizeof(struct sl_backup_opts)

/* Create a repository. SL_EEXIST: one exists already; SL_EINVAL: no passphrase for an encrypted one. */
SL_API SL_MUST_CHECK int sl_backup_init(const sl_driver *driver, const struct sl_backup_opts *opts, struct sl_err *err);
/* The driver is the caller's and must outlive the handle. SL_ENOENT: no repository; SL_EKEY: the passphrase is wrong or
 * missing; SL_ECORRUPT; SL_EUNSUPPORTED: of a later version. */
SL_API SL_MUST_CHECK int sl_backup_open(sl_backup **out, const sl_driver *driver, const struct sl_backup_opts *opts,
					struct sl_err *err);
SL_API void sl_backup_close(sl_backup *b); /* NULL is allowed */
/* Whether a passphrase is needed: 1 or 0, or a negative SL_E…. For those who have to ask for it first. */
SL_API int sl_backup_is_encrypted(const sl_driver *driver, const struct sl_backup_opts *opts, struct sl_err *err);
/* From now on the repository opens with this passphrase and no other. Durable when 0 returns. */
SL_API SL_MUST_CHECK int sl_backup_change_passphrase(sl_backup *b, const void *passphrase, size_t len,
						     struct sl_err *err);

/* End the running call soon, with SL_ECANCELLED; from any thread, not from a signal handler. */
SL_API void sl_backup_stop(sl_backup *b);

/* Progress of a call, for bars and dashboards. Fields that a call does not use are 0. */
struct sl_backup_progress {
	size_t struct_size;
	const char *phase;           /* "scan", "read", "restore", "check", … a string that lives for ever */
	uint64_t files, files_total; /* entries done and known so far */
	uint64_t bytes, bytes_total; /* of file contents, done and known so far */
	uint64_t dedup_bytes;        /* of contents that the repository had already */
	uint64_t physical_bytes;     /* written to the repository */
	uint64_t packs, packs_total; /* done and to do */
	uint64_t errors;             /* files that were reported */
	uint64_t backlog_bytes;      /* queued, in flight, buffered by the driver */
	uint32_t concurrency, max_concurrency; /* of the block writer */
	bool backpressure;                     /* true: readers wait for the writer */
	bool totals_known;                     /* true: files_total and bytes_total are final */
};
SL_API void sl_backup_get_progress(sl_backup *b, struct sl_backup_progress *out);

/* ---- create ---- */

enum sl_backup_problem {
	SL_BACKUP_VANISHED = 1,   /* was listed and is not there any more; not in the snapshot */
	SL_BACKUP_CHANGED = 2,    /* changed while it was read; as read, it is in the snapshot */
	SL_BACKUP_UNREADABLE = 3, /* not in the snapshot, or without its contents or attributes */
	SL_BACKUP_SKIPPED = 4,    /* a socket, or of a kind that is not backed up; reported, not counted as a problem */
	SL_BACKUP_NOT_SET = 5,    /* restore: an attribute could not be set (owner, xattr, …) */
	SL_BACKUP_AS_FILE = 6     /* SQLite could not copy a database in use; perhaps torn, it is kept as a file */
};
/* A file that a person should check; the call continues. path is the file's name, not always UTF-8. One call at a time,
 * on any thread. */
typedef void sl_backup_problem_fn(enum sl_backup_problem problem, const char *path, const struct sl_err *err,
				  void *ctx);
SL_API const char *sl_backup_problem_name(enum sl_backup_problem problem); /* "vanished", … */

struct sl_backup_create_opts {
	size_t struct_size; /* SL_BACKUP_CREATE_OPTS_INIT fills it */
	/* Files and folders; required. A symbolic link to a folder stands for that folder, another one for itself; what
	 * lies inside of another path is in it already. */
	const char *const *paths;
	size_t n_paths;
	/* Patterns of names that are left out, with all below: one without a slash is compared with the last component,
	 * one with a slash with the whole path as given; *, ?, […] as in a shell (no * over a slash), and ** over
	 * slashes. */
	const char *const *excludes;
	size_t n_excludes;
	const char *const *tags;
	size_t n_tags;
	enum sl_switch one_file_system; /* do not go into folders of another device; default off */
	/* SQLite databases (by their first 16 bytes) are copied through SQLite's backup interface, each as a
	 * consistent snapshot; their -wal, -shm and -journal files are left out then. Nothing is written to them.
	 * Default on. */
	enum sl_switch sqlite;
	/* Databases first, then everything else, so that what the rest says is at least as new: for Sluice's own data.
	 */
	enum sl_switch databases_first; /* default off */
	enum sl_switch force;           /* read everything, also what seems unchanged; default off */
	const char *parent;             /* a snapshot's id; default: the newest with the same host and paths */
	const char *host;               /* default: gethostname */
	int64_t time_ms;                /* of the snapshot, Unix milliseconds; default now */
	sl_backup_problem_fn *on_problem;
	void *ctx;
};
#define SL_BACKUP_CREATE_OPTS_INIT .struct_size = sizeof(struct sl_backup_create_opts)

struct sl_backup_created {
	size_t struct_size;
	char id[SL_BACKUP_ID_BYTES];
	uint64_t entries, files, files_new, files_changed, files_unchanged;
	uint64_t bytes;          /* of file contents in the snapshot */
	uint64_t read_bytes;     /* read from files */
	uint64_t new_bytes;      /* of blocks that the repository did not have, before compression */
	uint64_t physical_bytes; /* packs and index, as written */
	uint64_t new_blocks, known_blocks;
	uint64_t problems;
};
/*
 * Make a snapshot of these paths. 0: it is published and durable, though files may have been reported (problems). On
 * failure there is no snapshot, but for a failure of the last step, which says so. SL_EINVAL; SL_ENOENT: a path is not
 * there; SL_EAGAIN: the session was silent for 24 hours and a prune ran meanwhile, or what it counted on was
 * deleted; what the driver returned when retries were exhausted; SL_ECANCELLED.
 */
SL_API SL_MUST_CHECK int sl_backup_create(sl_backup *b, const struct sl_backup_create_opts *opts,
					  struct sl_backup_created *out, struct sl_err *err);

/* ---- reading ---- */

struct sl_backup_snapshot {
	size_t struct_size;
	const char *id;
	int64_t time_ms;
	const char *host;
	const char *parent; /* or "" */
	const char *const *paths;
	size_t n_paths;
	const char *const *tags;
	size_t n_tags;
	uint64_t entries, files, bytes, new_bytes, physical_bytes, problems;
	uint64_t took_ms;
	const char *version; /* of the library that made it */
};
/* 0 to continue; another value ends the walk and becomes its result. */
typedef int sl_backup_snapshot_fn(const struct sl_backup_snapshot *snapshot, void *ctx);
/* In the order of their time. One that cannot be read ends the walk with an error that names it, unless on_damaged is
 * given, which gets its id and the reason; the walk continues then. */
typedef int sl_backup_damaged_fn(const char *id, const struct sl_err *err, void *ctx);
SL_API SL_MUST_CHECK int sl_backup_list(sl_backup *b, sl_backup_snapshot_fn *fn, sl_backup_damaged_fn *on_damaged,
					void *ctx, struct sl_err *err);
/* The id that a beginning of at least 4 characters, or "latest", means. SL_ENOENT; SL_EINVAL: more than one. */
SL_API SL_MUST_CHECK int sl_backup_resolve(sl_backup *b, const char *name, char id[SL_BACKUP_ID_BYTES],
					   struct sl_err *err);

enum sl_backup_type {
	SL_BACKUP_FILE = 1,
	SL_BACKUP_DIR = 2,
	SL_BACKUP_SYMLINK = 3,
	SL_BACKUP_HARDLINK = 4, /* another name of an entry before it: target */
	SL_BACKUP_FIFO = 5,
	SL_BACKUP_CHAR = 6,
	SL_BACKUP_BLOCK = 7
};
struct sl_backup_entry {
	size_t struct_size;
	enum sl_backup_type type;
	const char *path; /* below the snapshot's root, without a leading slash; bytes, NUL-terminated */
	uint32_t mode;    /* permission bits, set-uid, set-gid and sticky */
	uint32_t uid, gid;
	int64_t mtime_s;    /* since 1970; may be negative */
	uint32_t mtime_ns;  /* after these seconds: 0 to 999,999,999 */
	uint64_t size;      /* of a file */
	const char *target; /* of symbolic and hard links; else NULL */
	uint64_t rdev;      /* of devices */
	uint32_t xattrs;    /* how many */
};
typedef int sl_backup_entry_fn(const struct sl_backup_entry *entry, void *ctx);
/* The entries of a snapshot in its order: a folder comes before what is in it, names by their bytes. below: NULL, or a
 * path; only it and what is below. SL_ENOENT: no such snapshot or path. */
SL_API SL_MUST_CHECK int sl_backup_ls(sl_backup *b, const char *snapshot, const char *below, sl_backup_entry_fn *fn,
				      void *ctx, struct sl_err *err);
/* The contents of one file, in pieces, holes as zeros. 0 from fn to continue. */
typedef int sl_backup_bytes_fn(const void *bytes, size_t len, void *ctx);
SL_API SL_MUST_CHECK int sl_backup_cat(sl_backup *b, const char *snapshot, const char *path, sl_backup_bytes_fn *fn,
				       void *ctx, struct sl_err *err);

/* ---- restore ---- */

enum sl_backup_conflict {
	/* A file that is there with the size and time of the snapshot's is taken for restored (a run that was cut off
	 * continues); any other is SL_EEXIST. */
	SL_BACKUP_RESUME = 0,
	/* Other files are replaced, each in one step; folders are kept. A file of the same size and time is read, and
	 * stays only when it has the snapshot's bytes. */
	SL_BACKUP_OVERWRITE = 1
};
struct sl_backup_restore_opts {
	size_t struct_size;       /* SL_BACKUP_RESTORE_OPTS_INIT fills it */
	const char *to;           /* a folder; made when it is missing; required */
	const char *const *paths; /* only these and what is below; default everything */
	size_t n_paths;
	enum sl_backup_conflict conflict;
	enum sl_switch owner; /* set owners; default on when the process may */
	/* Set-uid and set-gid bits; security.* and trusted.* attributes, such as security.capability. Default on for an
	 * encrypted repository, of whose contents only its writers decide, where the process may set them; off for a
	 * plain one, which anyone who can write to the storage may have changed. What is left out is counted. */
	enum sl_switch set_id;
	enum sl_switch security;
	enum sl_switch devices; /* make devices; default on when the process may */
	sl_backup_problem_fn *on_problem;
	void *ctx;
};
#define SL_BACKUP_RESTORE_OPTS_INIT .struct_size = sizeof(struct sl_backup_restore_opts)

struct sl_backup_restored {
	size_t struct_size;
	uint64_t entries, files, bytes; /* restored by this call */
	uint64_t skipped;               /* files that were there */
	uint64_t problems;
	/* entries without set-uid and set-gid bits that the snapshot has, and without such attributes: see set_id */
	uint64_t set_id_stripped, security_stripped;
};
/*
 * Restore a snapshot below `to`, with modes, owners, times, attributes, links and holes. A file is whole under its name
 * or not there: it is written under a temporary name or, where `to` is empty, in a temporary folder that everything is
 * moved out of at the end. Durable when 0 returns. SL_EEXIST (see conflict), SL_ECORRUPT (a
 * block is damaged or missing: the file is named, the others are restored; or the snapshot itself is invalid, as one
 * with absolute names or ".."), SL_EDATA: a symbolic link in `to` is in the way, SL_ELOCKED: another restore writes
 * there, SL_ENOSPC, SL_ENOENT: no such snapshot or path. result (may be NULL) is written in any case.
 */
SL_API SL_MUST_CHECK int sl_backup_restore(sl_backup *b, const char *snapshot,
					   const struct sl_backup_restore_opts *opts, struct sl_backup_restored *result,
					   struct sl_err *err);

#ifdef __cplusplus
}
#endif
#endif
