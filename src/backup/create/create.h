/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creating a snapshot: one thread walks the tree, several read files.
 *
 *   walk (the caller's thread)          workers (one lane each)
 *     unchanged ──────────────┐
 *     to be read ─▶ run ─▶ queue ─▶ read, cut, hash, look up, store
 *         │                   │          │ done
 *         ▼                   ▼          ▼
 *     window: items in the order of paths ─▶ manifest (the caller's thread, on its own lane)
 *
 * The walk continues until the window is full, then waits for the first item of the window. Consecutive files form a
 * run, so that files that are close in the tree are close in a pack.
 *
 * Invariants
 *  C1  items leave the window in the order in which they were added, each once, and only when done;
 *  C2  an item belongs to the worker that took its run until done is set, to the caller's thread before and after;
 *  C3  a hard link leaves the window after the entry that it names, and that entry is in the manifest.
 */
#ifndef SL_BACKUP_CREATE_H
#define SL_BACKUP_CREATE_H

#include "backup/create/walk.h"
#include "backup/manifest/manifest.h"

struct bk_link; /* an inode with several names: window.c */

/* An entry on its way into the manifest, with its own memory for everything in it. */
struct bk_item {
	struct bk_item *next;      /* in the window */
	struct bk_item *next_work; /* in its run */
	struct bk_entry e;
	size_t bytes;         /* of memory … */
	size_t bytes_counted; /* … when it was added to the window */
	uint64_t owed;        /* bytes of its size, as the walk saw it, that are not counted as done yet */
	bool ends_run;        /* the last of its run */
	bool taken_over;      /* from the parent, or not a file: not counted as new or changed */
	atomic_bool done;     /* C2 */
	bool gone;            /* left out of the snapshot: it vanished, or cannot be read */
	bool known;           /* the parent has an entry with this path */
	bool maybe_sparse;    /* it has fewer blocks than its size needs */
	struct bk_link *link;
	struct bk_ref one; /* the references of most files */
	void *xattrs;      /* what e.xattrs points to */
	void *copy;        /* what all of e points to, when it is the copy of an entry */
	struct bk_extent *extents;
	struct bk_ref *refs; /* NULL: &one */
	size_t cap_refs;
	char text[]; /* path and target, each with a NUL */
};

struct bk_counts { /* updated by any thread */
	atomic_uint_fast64_t entries, files, files_new, files_changed, files_unchanged;
	atomic_uint_fast64_t bytes, read_bytes, new_bytes, new_blocks, known_blocks, known_bytes, problems;
	atomic_uint_fast64_t seen, seen_bytes; /* by the walk: the totals */
	atomic_uint_fast64_t bytes_done;
};

struct bk_contents; /* contents.c */
struct bk_parent;   /* parent.c */

struct bk_create {
	struct sl_backup *b;
	struct sl_backup_create_opts o;
	char host[256];
	int64_t started_ms; /* real time; what changed after this (and shortly before) is FRESH */
	struct bk_roots roots;
	struct bk_excludes excludes;
	struct bk_session *session;
	struct bk_index *index;
	struct bk_store *store;
	struct bk_manifest_writer *manifest;
	struct bk_parent *parent; /* or NULL */
	char parent_id[BK_NAME_HEX];
	bool check_parent;       /* F5: blocks of the parent may be in packs that must not be relied on */
	struct bk_reader *lists; /* for that: reads the parent's list blocks */
	struct bk_contents *own; /* for what the caller's thread reads */
	int root;                /* descriptor of the root folder */
	struct bk_counts counts;
	struct bk_store_stats before; /* of stores before this one (recheck.c) */

	/* ---- the caller's thread ---- */
	struct bk_item *first, *last; /* the window */
	size_t window_bytes;
	struct bk_item *run_first, *run_last; /* a run that is not in the queue yet */
	size_t n_run;
	uint64_t run_bytes;
	struct bk_links *links;
	struct bk_item *databases, *databases_last; /* copied before everything else */
	uint64_t ticks;

	/* ---- shared with the workers, under mu ---- */
	sl__mutex mu;
	sl__cond work; /* a run is in the queue, or the end */
	sl__cond done; /* the front of the window may be done, or failed */
	struct bk_item *queue, *queue_last;
	bool ended; /* no more runs will follow */
	int failed; /* the code of failure, which came first; or 0 */
	struct sl_err failure;
	pthread_t *threads;
	int n_threads;

	sl__mutex problem_mu; /* one report at a time */
};

/* ---- item.c ---- */
struct bk_item *sl__bk_item_new(const struct sl_env *env, const char *path, size_t path_len, const char *target,
				size_t target_len);
/* A copy of the entry with everything in it. */
struct bk_item *sl__bk_item_copy(const struct sl_env *env, const struct bk_entry *e);
void sl__bk_item_free(const struct sl_env *env, struct bk_item *item);
/* 0: a type that is not backed up. */
enum sl_backup_type sl__bk_type_of(mode_t mode);
/* Set what stat returns, type and flags too; path, target, attributes and contents stay. False: a type that is not
 * backed up. */
bool sl__bk_entry_from_stat(const struct bk_create *c, struct bk_entry *e, const struct stat *st);
/* Read all extended attributes, ACLs among them, into the item: of an open file, or (fd -1) of a name in a folder. 0 or
 * a negative errno: then the item has none. */
int sl__bk_xattrs_read(const struct sl_env *env, struct bk_item *item, int fd, int dir, const char *name);
/* Find out where the data of a file of item->e.size bytes is; sets extents and SPARSE when it has holes. 0 or -ENOMEM. */
int sl__bk_extents_read(const struct sl_env *env, struct bk_item *item, int fd);

/* ---- window.c; the caller's thread ---- */
/* Add to the window: to be read by the workers, or done already. The window owns the item, also on failure. */
SL_MUST_CHECK int sl__bk_window_add(struct bk_create *c, struct bk_item *item, bool to_read, struct sl_err *err);
/* An entry that is complete, and valid only until this returns. */
SL_MUST_CHECK int sl__bk_window_entry(struct bk_create *c, const struct bk_entry *e, struct bk_link *link,
				      struct sl_err *err);
/* Write what is done, and wait until the window has at most max_bytes bytes; 0: until all items are in the manifest. */
SL_MUST_CHECK int sl__bk_window_shrink(struct bk_create *c, size_t max_bytes, struct sl_err *err);
void sl__bk_window_fini(struct bk_create *c);

/* The link of an inode with several names; *first: this is its first one. NULL when out of memory. */
struct bk_link *sl__bk_links_meet(struct bk_create *c, const struct stat *st, bool *first);
/* One of its names has left the window. in_manifest: as a file, under this path. SL_ENOMEM. */
SL_MUST_CHECK int sl__bk_link_left(struct bk_create *c, struct bk_link *link, bool in_manifest, const char *path);

SL_MUST_CHECK int sl__bk_workers_start(struct bk_create *c, struct sl_err *err);
void sl__bk_workers_stop(struct bk_create *c); /* and join; then no other thread accesses items */

/* ---- contents.c: contents and attributes of files, read into blocks of the store; one thread at a time ---- */
/* Small files are kept whole, several of them at a time; large ones are cut, in memory that does not depend on their
 * size. Ids are looked up in bulk before anything is stored. What happens to a file (it vanished, it changed, it cannot
 * be read) is reported and marked in its item. Only what concerns the repository, memory or a stop is an error here. */
SL_MUST_CHECK int sl__bk_contents_new(struct bk_contents **out, struct bk_create *c, int lane, struct sl_err *err);
void sl__bk_contents_free(struct bk_contents *x); /* NULL is allowed */

/* A regular file by its path; item->e has what the walk saw. Its references are complete after the next flush. */
SL_MUST_CHECK int sl__bk_contents_file(struct bk_contents *x, struct bk_item *item, struct sl_err *err);
SL_MUST_CHECK int sl__bk_contents_flush(struct bk_contents *x, struct sl_err *err);

/* Where the bytes of a file come from. */
struct bk_source {
	/* How many bytes were read (0 at the end), or a negative errno. */
	ssize_t (*read)(void *buf, size_t n, uint64_t offset, void *ctx);
	void *ctx;
	int error; /* set by stream: a negative errno of read, or 0 */
};
ssize_t sl__bk_read_fd(void *buf, size_t n, uint64_t offset, void *fd); /* ctx points to a descriptor */
/* All of item->e.size bytes (fewer when the source ends before: then the size is set); references are complete when 0
 * returns. */
SL_MUST_CHECK int sl__bk_contents_stream(struct bk_contents *x, struct bk_item *item, struct bk_source *source,
					 struct sl_err *err);

/* ---- parent.c: the previous snapshot, walked alongside the tree; one thread at a time ---- */
/* What has not changed since is taken over without being opened. It only saves work: when it cannot be read to its end,
 * it ends there, and the rest of the tree is read. */
/* The snapshot that the options name, or the newest of this host with these paths. *out is NULL when the host has none.
 * SL_ENOENT: the named one does not exist. */
SL_MUST_CHECK int sl__bk_parent_open(struct bk_parent **out, struct bk_create *c, struct sl_err *err);
void sl__bk_parent_close(struct bk_parent *p); /* NULL is allowed */
const struct sl_backup_snapshot *sl__bk_parent_info(const struct bk_parent *p);

/* The entry with that path, or NULL; paths must ascend from call to call. Valid until the next call. */
SL_MUST_CHECK int sl__bk_parent_find(struct bk_parent *p, const char *path, size_t len, const struct bk_entry **out,
				     struct sl_err *err);
/* Do st and the entry agree, so that contents and attributes must be the same, too? */
bool sl__bk_parent_same(struct bk_parent *p, const struct bk_entry *e, const struct stat *st);

/* ---- visit.c ---- */
bk_visit_fn sl__bk_create_visit;
bk_visit_fn sl__bk_create_visit_databases;

/* ---- create.c ---- */
/* Report and count a problem; path as in the manifest, ctx is a struct bk_create. From any thread. */
bk_walk_problem_fn sl__bk_create_problem;
/* Free everything that reads and stores; the session, the roots and the counts stay. */
void sl__bk_create_release(struct bk_create *c);
void sl__bk_create_progress(struct bk_create *c);
/* Of all stores of this create. */
void sl__bk_create_stats(struct bk_create *c, struct bk_store_stats *out);

/* ---- recheck.c; the caller's thread, after the store has finished ---- */
/* F7. SL_EAGAIN: something that the snapshot needs is gone. */
SL_MUST_CHECK int sl__bk_create_recheck(struct bk_create *c, const struct bk_snapshot *s, struct sl_err *err);

#endif
