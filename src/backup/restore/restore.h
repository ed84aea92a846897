/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a restore. The manifest is read several times, so that memory holds neither its folders nor its files:
 *
 *   plan     the caller's thread: creates folders, cuts files into runs that follow each other in the manifest (and so
 *            mostly share frames), queues these for the lanes
 *   lanes    threads, each with its own reader: contents, attributes, the name
 *   flusher  a thread that syncs the file system while the lanes work
 *   links    when all lanes have ended: further names of files that exist now
 *   publish  what was created in the stage is moved to its place (target.h)
 *   folders  the attributes of folders, inner ones first, because every file created in one changes its time
 *   finish   the last syncfs
 *
 * A file that cannot be restored is reported and left out, and the restore continues. What would affect every file (no
 * space, no memory) and what a person must decide (SL_EEXIST) ends it. Locks: mu and problem_mu are never held
 * together.
 *
 * Thread safety: fields above mu belong to the caller's thread, or do not change while the lanes run.
 */
#ifndef SL_BACKUP_RESTORE_H
#define SL_BACKUP_RESTORE_H

#include "backup/restore/entries.h"
#include "backup/restore/target.h"
#include "flow/pool.h"
#include "flow/queue.h"

/* Files that one lane restores. */
struct bk_run {
	struct bk_entry **entries;
	size_t n, cap;
	size_t memory;  /* of entries */
	uint64_t bytes; /* of contents */
};
void sl__bk_run_free(const struct sl_env *env, struct bk_run *run); /* NULL is allowed */

/* A link is selected and its target is not: the target's contents are restored under the name of the first such link.
 */
struct bk_stand_in {
	char *target, *path;
	size_t target_len, path_len;
};

struct bk_restore {
	struct sl_backup *b;
	const struct sl_env *env; /* of b */
	struct sl_backup_restore_opts opts;
	struct bk_select select;
	struct bk_snapshot snapshot;
	struct bk_index *index;
	struct bk_reader *reader; /* of the manifest */
	struct bk_target target;
	struct bk_folder folder; /* of the caller's thread */
	sl__queue *queue;        /* of struct bk_run */
	sl__pool *pool;
	sl__pool *flusher;
	struct bk_run *run;           /* that is being filled */
	struct bk_id frame_pack;      /* of the last file in it: the frame of its first block */
	uint32_t frame_offset;        /* … */
	struct bk_path_set linked;    /* files with several names */
	struct bk_path_set made;      /* folders above what is selected that did not exist */
	struct bk_stand_in *stand_in; /* sorted by target */
	size_t n_stand_in, cap_stand_in;
	uint64_t links; /* how many entries are links */

	sl__mutex problem_mu; /* one call of on_problem at a time */
	sl__mutex mu;         /* of what follows */
	struct sl_backup_restored done;
	struct sl_err failed;    /* what ended it */
	struct sl_err lost;      /* of the first file that was left out; SL_ECORRUPT before others */
	struct bk_path_set gone; /* files that were left out */
	sl__cond written;        /* unflushed is enough, or flushed_all */
	uint64_t unflushed;      /* bytes that the lanes have written since the last sync began */
	bool flushed_all;        /* the flusher must end */
};

/* ---- shared by all parts (restore.c) ---- */

/* Visit entry after entry; their names and the targets of hard links do not leave the folder. */
typedef int bk_walk_fn(struct bk_restore *r, const struct bk_entry *e, struct sl_err *err, void *ctx);
SL_MUST_CHECK int sl__bk_restore_walk(struct bk_restore *r, bk_walk_fn *fn, void *ctx, struct sl_err *err);
/* End the restore with an error, unless it has failed before; the lanes stop. */
void sl__bk_restore_fail(struct bk_restore *r, int code, const struct sl_err *why);
bool sl__bk_restore_failed(struct bk_restore *r);
/* Count a problem and pass it to on_problem. */
void sl__bk_restore_report(struct bk_restore *r, enum sl_backup_problem problem, const char *path,
			   const struct sl_err *why);
/* Leave a file out: report it, and keep the reason for the result. damaged: the repository's copy is damaged. */
SL_MUST_CHECK int sl__bk_restore_leave_out(struct bk_restore *r, const struct bk_entry *e, const struct sl_err *why,
					   bool damaged, struct sl_err *err);
/* Does a failed write concern only this file (its name, its length, a permission), so that the restore continues? */
bool sl__bk_restore_is_of_file(const struct sl_err *why);
void sl__bk_restore_count(struct bk_restore *r, const struct bk_entry *e, bool skipped);

/* ---- the parts ---- */
SL_MUST_CHECK int sl__bk_restore_plan(struct bk_restore *r, struct sl_err *err);    /* plan.c, with the lanes */
SL_MUST_CHECK int sl__bk_restore_links(struct bk_restore *r, struct sl_err *err);   /* finish.c */
SL_MUST_CHECK int sl__bk_restore_folders(struct bk_restore *r, struct sl_err *err); /* finish.c */
/* The stand-in of a target; NULL: none. */
const struct bk_stand_in *sl__bk_stand_in_find(const struct bk_restore *r, const char *target, size_t len);
SL_MUST_CHECK int sl__bk_stand_in_add(struct bk_restore *r, const struct bk_entry *link, struct sl_err *err);

#endif
