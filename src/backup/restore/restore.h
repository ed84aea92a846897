/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A restore that runs. The manifest is read several times, so that memory holds neither its folders nor its files:
 *
 *   plan     the caller's thread: makes folders, cuts files into runs that follow each other in the manifest (and so
 *            mostly share frames), hands these to the lanes
 *   lanes    threads, each with a reader of its own: contents, attributes, the name
 *   links    when all lanes have ended: further names of files that are there now
 *   publish  what was made in the stage is moved to its place (target.h)
 *   folders  the attributes of folders, those inside first, because every file made in one changes its time
 *   flush    a thread that syncs the file system while the lanes work
 *   finish   the last syncfs
 *
 * A file that cannot be restored is told and left out, and the restore goes on; what would happen to every file (no
 * space, no memory) and what a person must decide (SL_EEXIST) ends it. Locks: mu and telling are never held together.
 *
 * Thread safety: fields above mu belong to the caller's thread, or do not change while the lanes run.
 */
#ifndef SL_BACKUP_RESTORE_H
#define SL_BACKUP_RESTORE_H

#include "backup/restore/select.h"
#include "backup/restore/target.h"
#include "flow/pool.h"
#include "flow/queue.h"

/* ---- entries that are kept ---- */

/* A copy in one piece of memory (sl__free); path NULL: the entry's own. NULL without memory. *bytes: how many. */
struct bk_entry *sl__bk_entry_copy(const struct sl_env *env, const struct bk_entry *e, const char *path, size_t *bytes);

/* Files of which one lane takes all. */
struct bk_run {
	struct bk_entry **entries;
	size_t n, cap;
	size_t memory;  /* of entries */
	uint64_t bytes; /* of contents */
};
void sl__bk_run_free(const struct sl_env *env, struct bk_run *run); /* NULL is allowed */

/* ---- paths by a 16-byte beginning of their SHA-256 ---- */
struct bk_path_key {
	uint8_t b[16];
};
struct bk_path_set {
	struct bk_path_key *keys;
	size_t n, cap;
	bool sorted;
};
SL_MUST_CHECK int sl__bk_path_key(const char *path, size_t len, struct bk_path_key *out, struct sl_err *err);
SL_MUST_CHECK int sl__bk_path_set_add(const struct sl_env *env, struct bk_path_set *s, const char *path, size_t len,
				      struct sl_err *err);
SL_MUST_CHECK int sl__bk_path_set_has(struct bk_path_set *s, const char *path, size_t len, bool *out,
				      struct sl_err *err);
void sl__bk_path_set_fini(const struct sl_env *env, struct bk_path_set *s);

/* A link is meant and its target is not: the target's contents are restored under the first such link's name. */
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
	struct bk_path_set made;      /* folders above what is meant that were not there */
	struct bk_stand_in *stand_in; /* sorted by target when the plan is done */
	size_t stand_in_n, stand_in_cap;
	uint64_t links; /* how many entries are links */

	sl__mutex telling; /* one call of on_problem at a time */
	sl__mutex mu;      /* of what follows */
	struct sl_backup_restored done;
	struct sl_err failed;    /* what ended it */
	struct sl_err lost;      /* of the first file that was left out; SL_ECORRUPT before others */
	struct bk_path_set gone; /* files that were left out */
	sl__cond written;        /* unflushed is enough, or flushed_all */
	uint64_t unflushed;      /* bytes that the lanes have made since the last sync began */
	bool flushed_all;        /* the flusher is to end */
};

/* ---- what all parts of it use (restore.c) ---- */

/* Entry after entry; their names and the targets of hard links do not leave the folder. */
typedef int bk_walk_fn(struct bk_restore *r, const struct bk_entry *e, void *ctx, struct sl_err *err);
SL_MUST_CHECK int sl__bk_restore_walk(struct bk_restore *r, bk_walk_fn *fn, void *ctx, struct sl_err *err);
/* What ends everything: kept when it is the first; the lanes stop. Returns code. */
int sl__bk_restore_fail(struct bk_restore *r, int code, const struct sl_err *why);
bool sl__bk_restore_failed(struct bk_restore *r);
void sl__bk_restore_tell(struct bk_restore *r, enum sl_backup_problem problem, const char *path,
			 const struct sl_err *why);
/* A file is left out: told, kept for the result. damaged: what the repository has of it is. */
SL_MUST_CHECK int sl__bk_restore_leave_out(struct bk_restore *r, const struct bk_entry *e, const struct sl_err *why,
					   bool damaged, struct sl_err *err);
/* Whether a failure to write is of this one file (its name, its length, a right), so that the restore goes on. */
bool sl__bk_restore_is_of_file(const struct sl_err *why);
/* A bk_not_set_fn; ctx is the struct bk_restore. */
void sl__bk_restore_not_set(const struct bk_entry *e, const struct sl_err *err, void *ctx);
void sl__bk_restore_count(struct bk_restore *r, const struct bk_entry *e, bool skipped);

/* ---- the parts ---- */
SL_MUST_CHECK int sl__bk_restore_plan(struct bk_restore *r, struct sl_err *err);    /* restore/plan.c */
void sl__bk_restore_lane(unsigned lane, void *ctx);                                 /* restore/lane.c */
SL_MUST_CHECK int sl__bk_restore_links(struct bk_restore *r, struct sl_err *err);   /* restore/links.c */
SL_MUST_CHECK int sl__bk_restore_folders(struct bk_restore *r, struct sl_err *err); /* restore/folders.c */
/* Write back beside the lanes (restore/flush.c); what fails there ends the restore. stop joins; without a start it does
 * nothing. */
SL_MUST_CHECK int sl__bk_flush_start(struct bk_restore *r, struct sl_err *err);
void sl__bk_flush_stop(struct bk_restore *r);
void sl__bk_flush_wrote(struct bk_restore *r, uint64_t bytes); /* of a block, by a lane */
/* The stand-in of a target; NULL: none. */
const struct bk_stand_in *sl__bk_stand_in_find(const struct bk_restore *r, const char *target, size_t len);
SL_MUST_CHECK int sl__bk_stand_in_add(struct bk_restore *r, const struct bk_entry *link, struct sl_err *err);

#endif
