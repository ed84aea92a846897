/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A repository in a folder. Objects are files of their names; what is being written, probes of the clock and locks are
 * in tmp/, which no name may begin with.
 *
 * A put writes tmp/<random>, syncs its bytes, and renames it: so an object is complete under its name or not there, also
 * after a power loss. The names become durable by a sync of the folder: immediately for put, rename and remove, in
 * `sync` for scheduled puts.
 *
 *   D1  A file gets its name only when its bytes are durable.
 *   D2  A folder that a durable name is in has a durable name itself.
 *   D3  After a sync of a folder has failed it is unknown what is durable in it: the handle refuses every later change
 *       and every sync. A file whose own sync failed is removed, and a new one written from memory.
 *
 *   local.c     opening, names of objects, locks      folders.c   folders, created and durable
 *   put.c       put, rename, remove, scheduled puts   get.c       reading, listing
 *
 * Locks: starting (the pool's start), then mu (folders, cache, queue), which is a leaf: no I/O and no callback under
 * it.
 */
#ifndef SL_BACKUP_DRIVER_LOCAL_H
#define SL_BACKUP_DRIVER_LOCAL_H

#include "base/fork_guard.h"
#include "base/thread.h"
#include "flow/pool.h"
#include <sluice/adapter/driver.h>

#define LOCAL_PATH_BYTES 4096
#define LOCAL_CACHE 32 /* descriptors kept open for get */
#define LOCAL_TMP "tmp"
#define LOCAL_LOCK_PREFIX "lock-"
#define LOCAL_DIRECT_MIN (64u << 10) /* less is not worth a call more */
#define LOCAL_DIRECT_ALIGN 4096u
#define LOCAL_STALE_MS (60 * 60 * 1000) /* a temporary file not written to for this long is left over */

struct local_folder {
	char name[SL_DRIVER_NAME_BYTES]; /* relative; "" is the repository's */
	bool made;                       /* it was there when this handle checked, and the next sync covers its name */
	bool durable;                    /* D2: this handle has synced the folder that it is in */
	uint64_t changed, synced;        /* changes to its entries, and how many of them a sync has covered */
};

struct local_cached {
	char name[SL_DRIVER_NAME_BYTES];
	int fd;         /* -1: free */
	unsigned users; /* that read from it now */
	bool stale;     /* the name means another file by now: closed by its last user */
	uint64_t used;  /* when, by `ticks` */
};

struct local_job;

struct local {
	struct sl_env env;
	struct sl__fork_guard guard;
	char *root;
	unsigned threads;
	sl__mutex starting, mu;
	struct sl__prng prng; /* of temporary names */
	bool swept;           /* stale temporary files were removed */
	bool broken;          /* D3 */
	struct local_folder *folders;
	size_t n_folders, cap_folders;
	struct local_cached cache[LOCAL_CACHE];
	uint64_t ticks;
	struct local_job *first, *last; /* scheduled puts that wait for a thread */
	sl__cond more;
	sl__pool *pool; /* started by the first scheduled put */
};

/* ---- names ---- */

bool sl__bk_driver_name_ok(const char *name);
/* SL_EINVAL for an invalid name; SL_EFORKED. */
SL_MUST_CHECK int sl__bk_local_check(const struct local *l, const char *name, struct sl_err *err);
/* The same for changes, which D3 forbids: SL_EPOISONED. */
SL_MUST_CHECK int sl__bk_local_check_change(struct local *l, const char *name, struct sl_err *err);
void sl__bk_local_path(const struct local *l, const char *name, char out[LOCAL_PATH_BYTES]);
/* The folder of a name; "" for one directly in the repository. */
void sl__bk_local_folder_of(const char *name, char out[SL_DRIVER_NAME_BYTES]);

/* ---- folders ---- */

enum local_need {
	LOCAL_SEEN,   /* it is there: D2 holds once sync has returned 0 */
	LOCAL_MADE,   /* create it and those above it where they are missing; the same */
	LOCAL_DURABLE /* and D2 holds when 0 returns */
};
SL_MUST_CHECK int sl__bk_local_need_folder(struct local *l, const char *folder, enum local_need need,
					   struct sl_err *err);
/* Sync its entries now. */
SL_MUST_CHECK int sl__bk_local_sync_folder(struct local *l, const char *folder, struct sl_err *err);
/* Its entries have changed, or were returned by stat: the next sync covers them. */
SL_MUST_CHECK int sl__bk_local_mark_folder(struct local *l, const char *folder, struct sl_err *err);
SL_MUST_CHECK int sl__bk_local_sync(void *driver, struct sl_err *err);
/* Forget which folders are there: one of them is gone. */
void sl__bk_local_forget_folders(struct local *l);

/* ---- objects ---- */

/* What a put writes. */
struct local_object {
	const char *name;
	const void *bytes;
	size_t len;
};
SL_MUST_CHECK int sl__bk_local_now_ms(void *driver, int64_t *out, struct sl_err *err);
SL_MUST_CHECK int sl__bk_local_put(void *driver, const char *name, const void *bytes, size_t len,
				   enum sl_driver_put how, struct sl_err *err);
SL_MUST_CHECK int sl__bk_local_rename(void *driver, const char *from, const char *to, struct sl_err *err);
SL_MUST_CHECK int sl__bk_local_remove(void *driver, const char *name, struct sl_err *err);
SL_MUST_CHECK int sl__bk_local_get(void *driver, const char *name, uint64_t offset, void *buf, size_t len, size_t *got,
				   struct sl_err *err);
SL_MUST_CHECK int sl__bk_local_stat(void *driver, const char *name, struct sl_driver_stat *out, struct sl_err *err);
SL_MUST_CHECK int sl__bk_local_list(void *driver, const char *folder, sl_driver_list_fn *fn, void *ctx,
				    struct sl_err *err);
/* The name means another file now, or no file. */
void sl__bk_local_drop_cached(struct local *l, const char *name);
SL_MUST_CHECK int sl__bk_local_schedule_put(void *driver, const char *name, const void *bytes, size_t len,
					    sl_driver_done_fn *done, void *ctx, struct sl_err *err);

#endif
