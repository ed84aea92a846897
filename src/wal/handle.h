/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An open log, as the files of this folder see it.
 *
 *   open.c      lock, creation, closing                                 append.c   reserve, encode, tickets
 *   recover.c   what is there when it is opened                         space.c    zeros ahead, rotation, trimming
 *   repair.c    torn tails, salvage, truncation, header                 marks.c    sent and failed
 *   read.c      iterate, read one                                      reopen.c   after a failure
 *   commit.c    group commit: batches, leading a flush, failures
 *   sender.c    the asynchronous sender      archive.c  archives        crypt.c    sealing payloads
 *
 * Locks: `mu` guards every field below it unless the field says otherwise. The thread that leads a flush (w->flushing,
 * taken under mu) owns the active file's end and may do I/O on it without mu: fields marked [leader] are written by the
 * leader, under mu, and may be read by the leader without it. Nothing else is locked while mu is held; no I/O happens
 * under mu.
 */
#ifndef SL_WAL_HANDLE_H
#define SL_WAL_HANDLE_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/thread.h"
#include "wal/crypt.h"
#include "wal/format.h"
#include "wal/index.h"
#include "wal/ranges.h"
#include <sluice/metrics.h>
#include <sluice/wal_files.h>

#define WAL_BATCH_START ((size_t)64 * 1024)           /* a batch buffer at first */
#define WAL_BATCH_MAX ((size_t)1024 * 1024)           /* and at most, but for one larger record */
#define WAL_BATCH_MARKS ((size_t)64 * WAL_MARK_BYTES) /* room for status records after the data of a batch */
#define WAL_FAILURES_KEPT 4096u

/* One of the two buffers that take turns: records are reserved in one while the other is on its way to disk. */
struct wal_batch {
	uint8_t *buf;
	size_t cap;               /* for data; buf has WAL_BATCH_MARKS more */
	size_t fill;              /* bytes reserved */
	uint64_t id;              /* of the flush that will carry it; ids grow by 1; id % 2 is the slot */
	uint64_t first_seq;       /* of its first record */
	uint32_t n;               /* records reserved */
	uint32_t tickets;         /* of them, submitted */
	uint32_t company;         /* of them, calls whose threads wait: they come back together */
	bool has_leader;          /* someone will flush it */
	bool was_full;            /* someone had to wait for room: make it larger next time */
	_Atomic uint32_t writers; /* reservations still being encoded; the top bit: the leader sleeps on it */
	_Atomic uint32_t done;    /* low bits of the last id of this slot that ended; futex of the followers */
};

/* A sealed segment. */
struct wal_segment {
	uint64_t first; /* its first sequence: its name */
	uint64_t last;  /* its last data sequence */
	uint64_t bytes, records;
	uint32_t version;
};

/* Batches whose flush failed: their tickets fail. */
struct wal_failure {
	uint64_t first, last; /* batch ids */
	struct sl_err err;
};

/* All logs of a registry share one family each: counters add up, gauges are summed at render time. Stream ids are never
 * labels. Without a registry every handle is NULL and costs a branch. */
struct wal_metrics {
	sl_counter *records, *bytes, *flush_errors, *sent, *failed;
	sl_histogram *flush_seconds, *flush_records;
	sl_gauge *pending_records, *pending_bytes;
	bool attached;
};

struct wal_sender_state; /* sender.c */

struct sl_wal {
	/* ---- fixed after open ---- */
	struct sl_env env;
	struct sl_wal_opts opts; /* resolved; its strings are owned copies (see sl__wal_opts_free) */
	char *id, *dir, *path;   /* path: the active file */
	pid_t pid;
	struct wal_key *key; /* NULL: payloads are plain */
	bool gather;         /* the clock is the real one: a leader may wait a little for company */
	struct wal_metrics metrics;

	sl__mutex mu;

	/* ---- group commit ---- */
	struct wal_batch batch[2];
	uint64_t batch_id;               /* of the batch that takes reservations: batch[batch_id % 2] */
	uint64_t next_seq;               /* of the next reservation */
	uint64_t durable_seq;            /* every sequence up to here is on disk, or a hole */
	uint64_t done_id;                /* the last batch that ended */
	_Atomic uint64_t last_failed_id; /* the last batch that failed; read without mu */
	uint64_t unheard_id, heard_id;   /* the last failed batch with tickets; the last whose error a caller got */
	uint64_t inflight_bytes;         /* reserved and not yet in the index: part of the backlog */
	bool flushing;                   /* a leader is at work (also: rotation, preparation that must not overlap) */
	bool closed, poisoned, archived;
	struct sl_err poison;
	sl__cond lead_cv;   /* the leader of the next batch waits here for its turn */
	sl__cond gather_cv; /* the leader waits here for company */
	sl__cond room_cv;   /* reservers wait for a buffer, or for the backlog to shrink */
	sl__cond done_cv;   /* timed waiters of tickets */
	uint32_t timed_waiters, room_waiters;
	uint32_t gather_target; /* the company of the last cycle */
	size_t batch_cap;       /* what the buffers hold */
	bool gathering;
	int64_t flush_ewma_ns;
	struct wal_failure *failures; /* oldest first; WAL_FAILURES_KEPT at most */
	size_t n_failures;
	uint64_t forgotten_failures; /* batch id up to which failures were forgotten */
	int event_fd;                /* sl_wal_fd; -1 until asked for */

	/* ---- the active file [leader] ---- */
	int fd;
	struct wal_header header;
	uint64_t end;                       /* logical end: where the next record goes */
	uint64_t ready_end;                 /* zeros are on disk up to here (the file's size) */
	uint64_t active_first, active_last; /* data sequences in it; 0: none */
	uint64_t active_records;
	uint64_t clean_end; /* the record of a clean close ends here; 0: none */
	bool cut_needed;    /* bytes behind end must go before the next write */
	uint64_t torn;      /* this many are quarantined first: the disk was full when it was opened */

	/* ---- space (space.c) ---- */
	uint32_t hold_prepare;  /* no preparation may begin: the file is being cut, renamed or archived */
	bool preparing;         /* [ready_end, …) is being written with zeros; no other thread may write there */
	int64_t prepare_bytes;  /* the next piece */
	uint64_t prepare_after; /* a disk was full: no zeros before the log has grown to here */
	sl__cond prepare_cv;
	uint64_t prepared_total;

	/* ---- segments, index, marks ---- */
	struct wal_segment *segments; /* sealed ones, oldest first */
	size_t n_segments, cap_segments;
	struct wal_index index;
	struct wal_ranges marks;     /* said and not yet on disk; ride the next flush */
	struct wal_ranges flying;    /* the marks of the flush that runs */
	struct wal_ranges holes;     /* sequences that are not there, as status 3: declared at recovery */
	struct wal_renewal renewed;  /* under which incarnation records are sent; on disk */
	struct wal_renewal renewing; /* rides the next flush, and is `renewed` then; incarnation 0: none */
	bool renewal_flying;         /* the flush that runs has it */
	struct wal_ranges failed;    /* status 3: parked records that are or were in the files, and holes */
	uint64_t sealed_records, sealed_bytes;
	uint64_t n_flushes, n_flushed_records, n_parked;
	uint64_t damaged_ranges, torn_bytes;

	/* ---- helper thread (space.c): prepares, flushes what no thread waits for, writes marks, archives ---- */
	pthread_t helper;
	bool helper_runs, helper_stop;
	bool want_prepare, want_flush, want_archive;
	bool ticking;     /* records are being submitted: the helper looks in at tick_at_ns */
	uint64_t tick_id; /* the batch it met the last time */
	int64_t tick_at_ns;
	bool archiving;           /* a thread is; lead_cv signals its end */
	int64_t archive_after_ns; /* a failed archive is not tried again before */
	pthread_t archiver;       /* these two belong to the helper */
	bool archiver_runs;
	int64_t marks_since_ns; /* when the oldest unwritten mark came; 0: none */
	sl__cond helper_cv;

	/* ---- reading ---- */
	sl__mutex read_mu;   /* guards the two below and, in a rotation, the names; taken before mu, never under it */
	int read_fd;         /* of the segment that was read last */
	uint64_t read_first; /* that segment's first sequence */

	/* ---- sender ---- */
	struct wal_sender_state *sender; /* NULL: never started */
	sl__cond sender_cv;              /* records became durable, or the sender must look up */
	bool sender_runs;
};

/* SL_EFORKED in another process than the one that opened w; 0 otherwise. Every public function asks first. */
SL_MUST_CHECK int sl__wal_check_process(const sl_wal *w, struct sl_err *err);

/* ---- open.c ---- */
void sl__wal_opts_free(const struct sl_env *env, struct sl_wal_opts *opts);
/* Copy opts with defaults filled and every field checked; err names a bad one. Strings are owned by *out. */
SL_MUST_CHECK int sl__wal_opts_resolve(struct sl_wal_opts *out, const struct sl_wal_opts *opts,
				       const struct sl_env *env, struct sl_err *err);
/* Split <dir>/<id>.wal; both in fresh memory. SL_EINVAL when the name is not that of an active file. */
SL_MUST_CHECK int sl__wal_split_path(const struct sl_env *env, const char *path, char **dir, char **id,
				     struct sl_err *err);
struct wal_open_hooks {
	sl_wal_damage_fn *on_damage; /* may be NULL */
	void *ctx;
	bool new_incarnation;
	bool must_exist; /* do not create: SL_ENOENT */
	bool keyless;    /* an encrypted log may be opened without its key, for what needs no payload */
};
SL_MUST_CHECK int sl__wal_open_with(sl_wal **out, const char *id, const struct sl_wal_opts *opts,
				    const struct wal_open_hooks *hooks, struct sl_err *err);

/* Open and lock the active file, or make it. Sets fd and header version and incarnation of a new one. */
SL_MUST_CHECK int sl__wal_acquire(sl_wal *w, const struct wal_open_hooks *hooks, struct sl_err *err);
/* ---- recover.c ---- */
/* Read all segments, repair what is damaged by opts.on_corruption, and fill the state of w. */
SL_MUST_CHECK int sl__wal_recover_state(sl_wal *w, const struct wal_open_hooks *hooks, struct sl_err *err);

/* ---- commit.c ---- */
/* Why w cannot be used for writing now, or 0: closed, archived, poisoned. */
SL_MUST_CHECK int sl__wal_usable(const sl_wal *w, struct sl_err *err) SL_REQUIRES(w->mu);
SL_MUST_CHECK int sl__wal_batches_init(sl_wal *w, struct sl_err *err);
void sl__wal_batches_fini(sl_wal *w);
/* The helper's turn: flush what was submitted while no thread leads. */
void sl__wal_flush_orphans(sl_wal *w) SL_REQUIRES(w->mu);
/* Lead a flush of whatever is reserved and of the marks, even when that is nothing but marks. */
SL_MUST_CHECK int sl__wal_flush_now(sl_wal *w, struct sl_err *err) SL_EXCLUDES(w->mu);
/* Wait until no flush runs and keep others from starting one, to own the active file; sl__wal_end_exclusive lets
 * them continue. */
void sl__wal_begin_exclusive(sl_wal *w) SL_REQUIRES(w->mu);
void sl__wal_end_exclusive(sl_wal *w) SL_REQUIRES(w->mu);

/* The incarnation that receivers see. */
static inline uint32_t sl__wal_sent_incarnation(const sl_wal *w) SL_REQUIRES(w->mu)
{
	return w->renewed.incarnation != 0 ? w->renewed.incarnation : w->header.incarnation;
}

/* ---- marks.c ---- */
/* Settle what is pending in first..last and queue the marks; the last word on a settled record stays. SL_ENOMEM: what
 * was settled before is. */
SL_MUST_CHECK int sl__wal_settle(sl_wal *w, uint64_t first, uint64_t last, uint8_t status) SL_REQUIRES(w->mu);
/* Data records with status 3 in the files that are there. */
uint64_t sl__wal_count_failed(const sl_wal *w) SL_REQUIRES(w->mu);

/* All marks that are queued now, and what is submitted, to disk. */
SL_MUST_CHECK int sl__wal_flush_marks(sl_wal *w, struct sl_err *err) SL_EXCLUDES(w->mu);

/* ---- space.c ---- */
SL_MUST_CHECK int sl__wal_helper_start(sl_wal *w, struct sl_err *err);
void sl__wal_helper_stop(sl_wal *w);
/* [leader, no mu] Seal the active file and start a new one. A failure before the first rename leaves all as it was;
 * SL_EPOISONED: what is on disk is unknown, the caller must poison. */
SL_MUST_CHECK int sl__wal_rotate(sl_wal *w, struct sl_err *err);
/* How an active file begins. */
struct wal_new_file {
	struct wal_header header;
	struct wal_renewal renewed; /* its first record, unless the incarnation is 0 */
	uint64_t n_zeros;           /* after that, when there is room */
};
/* Make the active file, synced, under a temporary name, locked, and move it into place (replace: over what is there).
 * *out_fd is its descriptor. The folder is for the caller to sync, before anything is acknowledged. */
SL_MUST_CHECK int sl__wal_create_active(const sl_wal *w, const struct wal_new_file *f, bool replace, int *out_fd,
					struct sl_err *err);
/* Where nothing can be created, that is what the code says; a full disk or a failing one keeps its own. */
static inline int sl__wal_create_code(int code, struct sl_err *err)
{
	if (code != SL_EACCES && code != SL_ENOENT && code != SL_EEXIST)
		return code;
	if (err != NULL)
		err->code = SL_ECREATE;
	return SL_ECREATE;
}
/* The first half of sl__wal_create_active: locked, synced, not yet in place. *out_path is in fresh memory. */
SL_MUST_CHECK int sl__wal_make_temp(const sl_wal *w, const struct wal_new_file *f, char **out_path, int *out_fd,
				    struct sl_err *err);
/* [leader, no mu] Where there is no helper: write zeros for a write that ends at `end` and beyond. */
void sl__wal_prepare_inline(sl_wal *w, uint64_t end);
/* For callers that poison nothing, what SL_EPOISONED from trim or rotate means: the code that err has. */
static inline int sl__wal_plain_code(int rc, const struct sl_err *err)
{
	return rc != SL_EPOISONED ? rc : err != NULL ? err->code : SL_EIO;
}
/* [leader or open] Cut the active file to its logical end, durably: what a full disk left after that does not come
 * back. SL_EPOISONED: the sync failed. */
SL_MUST_CHECK int sl__wal_trim(sl_wal *w, struct sl_err *err);
/* [leader, no mu] The disk is full: cut the zeros off and write none for a while. As trim. */
SL_MUST_CHECK int sl__wal_give_back(sl_wal *w, struct sl_err *err);
/* [leader, no mu] Before a write that ends at `end`: wait for a preparation that it would overlap, and claim the place.
 */
void sl__wal_await_prepared(sl_wal *w, uint64_t end);
/* Wake the helper when little is left ready. */
void sl__wal_maybe_prepare(sl_wal *w) SL_REQUIRES(w->mu);

/* ---- read.c ---- */
/* Read the record of entry into fresh memory of exactly entry->total bytes + decrypt: fills *out; *owned is what to
 * free with sl__free. A record that fails its CRC is SL_ECORRUPT: never delivered. No mu. */
SL_MUST_CHECK int sl__wal_read_entry(sl_wal *w, const struct wal_entry *entry, struct sl_wal_record *out,
				     uint8_t **owned, struct sl_err *err);
/* A descriptor of the caller's for the segment that holds sequence, or would. SL_ENOENT: no segment is that old. */
SL_MUST_CHECK int sl__wal_open_segment_of(sl_wal *w, uint64_t sequence, int *fd, struct sl_err *err);

/* ---- sender.c ---- */
/* End the sender at once, when it runs, and free it. */
void sl__wal_sender_free(sl_wal *w);
/* ---- observe.c ---- */
SL_MUST_CHECK int sl__wal_metrics_attach(sl_wal *w, struct sl_err *err);
void sl__wal_metrics_detach(sl_wal *w);
/* ---- archive.c ---- */
/* Archive sealed segments that are settled as a whole, oldest first, as long as numbering stays safe; without mu.
 * Failures are logged and tried again later. */
void sl__wal_archive_settled(sl_wal *w);
/* For the helper: on a separate thread, which join waits for (after its current segment, once helper_stop). */
void sl__wal_archive_in_background(sl_wal *w);
void sl__wal_archive_join(sl_wal *w);
/* Wake the helper for that when the oldest sealed segment may be due. */
void sl__wal_archive_poke(sl_wal *w) SL_REQUIRES(w->mu);

#endif
