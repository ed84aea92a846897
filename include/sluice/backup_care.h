/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The care of a repository of backups: check it, repair it, forget snapshots, free the space of what is not needed, and
 * count what is there. <sluice/backup.h> makes and restores snapshots, and says what a repository guarantees.
 *
 * Guarantees
 *  - Every byte that a snapshot needs is checked when read_data is on, and a finding names what it affects.
 *  - Repair and prune may be killed at any moment, and run alongside creates, restores and checks from any machine:
 *    what a snapshot or a live session needs is never removed.
 * Not guaranteed: that a removed snapshot's space is free before the second prune after it.
 *
 * Thread safety: as in <sluice/backup.h>: a handle is used by one thread at a time. Callbacks may be called on any
 * thread, one at a time. Ownership: strings in options are used only during the call; what callbacks get lives until
 * they return.
 */
#ifndef SLUICE_BACKUP_CARE_H
#define SLUICE_BACKUP_CARE_H

#include <sluice/backup.h>

#ifdef __cplusplus
extern "C" {
#endif

enum sl_backup_fault {
	SL_BACKUP_FAULT_PACK = 1, /* an object of this kind is damaged, */
	SL_BACKUP_FAULT_INDEX = 2,
	SL_BACKUP_FAULT_SNAPSHOT = 3,
	SL_BACKUP_FAULT_KEY = 4,
	SL_BACKUP_FAULT_CONFIG = 5,
	SL_BACKUP_FAULT_MISSING_PACK = 6,  /* … is missing, */
	SL_BACKUP_FAULT_MISSING_BLOCK = 7, /* a snapshot needs a block that no pack has: path is the file's */
	SL_BACKUP_FAULT_UNINDEXED = 8,     /* … is not in the index: harmless, the next create or prune takes it in */
	SL_BACKUP_FAULT_STRAY = 9,         /* an object that does not belong there: harmless */
	SL_BACKUP_FAULT_MARK = 10,    /* a mark of prune is damaged (nothing is created or pruned before a repair) */
	SL_BACKUP_FAULT_ONE_COPY = 11 /* metadata that is to be in two packs is in one: harmless, repair copies it */
};
struct sl_backup_finding {
	size_t struct_size;
	enum sl_backup_fault fault;
	bool harmless;        /* true: no data is affected, and check still passes */
	const char *object;   /* the name of the object */
	const char *snapshot; /* that it concerns, or NULL */
	const char *path;     /* the file that it concerns, or NULL */
	struct sl_err reason;
};
typedef int sl_backup_finding_fn(const struct sl_backup_finding *finding, void *ctx);
SL_API const char *sl_backup_fault_name(enum sl_backup_fault fault); /* "pack", "missing_block", … */

struct sl_backup_check_opts {
	size_t struct_size;       /* SL_BACKUP_CHECK_OPTS_INIT fills it */
	enum sl_switch read_data; /* read and verify every byte of every pack; default off: directories and sizes */
	sl_backup_finding_fn *on_finding;
	void *ctx;
};
#define SL_BACKUP_CHECK_OPTS_INIT .struct_size = sizeof(struct sl_backup_check_opts)
struct sl_backup_checked {
	size_t struct_size;
	uint64_t snapshots, packs, blocks, bytes, findings, harmless;
};
/* 0: everything that a snapshot needs is there (and, with read_data, right). Otherwise SL_ECORRUPT; every finding is
 * reported. */
SL_API SL_MUST_CHECK int sl_backup_check(sl_backup *b, const struct sl_backup_check_opts *opts,
					 struct sl_backup_checked *out, struct sl_err *err);

struct sl_backup_repaired {
	size_t struct_size;
	uint64_t packs_rewritten, packs_lost, blocks_kept, blocks_lost, indexes_rebuilt;
	uint64_t snapshots_rewritten, snapshots_lost, files_lost;
	uint64_t copies_repaired; /* of config, keys, snapshots and blocks of metadata, which are there twice */
};
/*
 * Keep everything that is not damaged: blocks of damaged packs that are still right go into new packs, the index is
 * made anew from the packs, and a snapshot that misses something is replaced by one (tagged "repaired") without the
 * files that are lost; on_finding is called for each. Damaged objects are kept under damaged/. A second repair finds
 * nothing to do.
 */
SL_API SL_MUST_CHECK int sl_backup_repair(sl_backup *b, sl_backup_finding_fn *on_finding, void *ctx,
					  struct sl_backup_repaired *out, struct sl_err *err);

struct sl_backup_forget_opts {
	size_t struct_size; /* SL_BACKUP_FORGET_OPTS_INIT fills it */
	/* Per host and set of paths, the newest snapshot of each of the last N …; 0: this rule keeps none. */
	int32_t keep_last, keep_hourly, keep_daily, keep_weekly, keep_monthly, keep_yearly;
	const char *const *keep_tags; /* snapshots with one of these stay */
	size_t n_keep_tags;
	const char *const *snapshots; /* forget these instead of going by rules */
	size_t n_snapshots;
	const char *host, *tag, *path; /* consider only those; NULL: all */
	enum sl_switch dry_run;        /* default off */
	/* Every snapshot considered, with true when it stays and the rules that keep it ("last, daily"). */
	int (*on_decision)(const struct sl_backup_snapshot *snapshot, bool keeps, const char *rules, void *ctx);
	void *ctx;
};
#define SL_BACKUP_FORGET_OPTS_INIT .struct_size = sizeof(struct sl_backup_forget_opts)
/* SL_EINVAL: neither a rule nor a snapshot is given. removed may be NULL. */
SL_API SL_MUST_CHECK int sl_backup_forget(sl_backup *b, const struct sl_backup_forget_opts *opts, uint64_t *removed,
					  struct sl_err *err);

struct sl_backup_prune_opts {
	size_t struct_size; /* SL_BACKUP_PRUNE_OPTS_INIT fills it */
	/* A pack of which less than this percentage is needed is rewritten; default 70; SL_NONE: no pack is rewritten,
	 * and small ones are not merged. */
	int32_t repack_percent;
	int64_t session_silence_ms; /* after which a session counts as dead; default 24 hours, at least a minute */
	enum sl_switch dry_run;     /* default off */
	/* When this many packs have less than half of pack_bytes, or together a whole pack's, they are merged into full
	 * ones; default 16, at least 2; SL_NONE: never. Those of one run are bounded, and the next run continues. */
	int32_t merge_small;
};
#define SL_BACKUP_PRUNE_OPTS_INIT .struct_size = sizeof(struct sl_backup_prune_opts)
struct sl_backup_pruned {
	size_t struct_size;
	uint64_t packs, packs_marked, packs_repacked, packs_deleted, packs_rescued, packs_waiting;
	uint64_t bytes, bytes_marked, bytes_deleted, bytes_waiting; /* of packs */
	uint64_t sessions_live, sessions_removed;
	uint64_t packs_merged; /* of those repacked: for being small */
};
/* Two steps, of two runs: packs that no snapshot needs are marked for deletion; those that an earlier run marked, that
 * are still not needed, and that no live session could count on, are deleted. SL_ELOCKED: another prune runs. */
SL_API SL_MUST_CHECK int sl_backup_prune(sl_backup *b, const struct sl_backup_prune_opts *opts,
					 struct sl_backup_pruned *out, struct sl_err *err);

struct sl_backup_stats {
	size_t struct_size;
	uint64_t snapshots, packs, pack_bytes, blocks, index_files, sessions, marked_packs;
	bool encrypted;
	char id[SL_BACKUP_ID_BYTES]; /* of the repository */
};
/* Count what the repository has. Reads names, marks and the index, no packs. struct_size must be set. */
SL_API SL_MUST_CHECK int sl_backup_get_stats(sl_backup *b, struct sl_backup_stats *out, struct sl_err *err);

#ifdef __cplusplus
}
#endif
#endif
