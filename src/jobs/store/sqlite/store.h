/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SQLite job store inside: its handle, its transactions, and what its files share.
 *
 * One connection writes, and only while the lock of db/sqlite_lock.h is held (so it needs no mutex); up to
 * SQ_READERS others read. An operation is a struct sq_op: begun with sq_begin in its own transaction or under a
 * savepoint of the caller's, ended with sq_end, which commits or undoes all of it.
 *
 * Thread safety: as <sluice/adapter/store.h> says. A sq_op lives on the stack of one call.
 */
#ifndef SL_JOBS_STORE_SQLITE_STORE_H
#define SL_JOBS_STORE_SQLITE_STORE_H

#include <sys/types.h>

#include "base/buf.h"
#include "base/thread.h"
#include "db/sqlite.h"
#include "db/sqlite_lock.h"
#include "jobs/store/claims.h"
#include "jobs/store/sqlite/sql.h"
#include <sluice/jobs.h>

#define SQ_READERS 4
#define SQ_TYPE_BYTES 129 /* a type's name and its NUL */

struct sq_reader {
	struct sl__sqlite c;
	bool busy;
};

#define SQ_SHORT_US 50000 /* who holds the lock no longer does not endanger a lease */

struct sq_store {
	struct sl_env env;
	pid_t pid;
	char *path;
	int64_t lock_ms; /* how long a writer waits */
	bool may_create; /* the schema, where it is missing */
	struct sl__sqlite_lock lock;
	struct sl__sqlite writer;      /* only with the lock held */
	_Atomic int write_failed;      /* full disk, I/O error: until check_writable has written */
	_Atomic int renewal_waits;     /* for the lock: from its begin until it has it, or fails in another way */
	_Atomic int64_t reap_waits_us; /* since when a reap waits for the lock, over several calls; 0: it does not */
	sl__mutex mu;
	sl__cond reader_free;
	struct sq_reader readers[SQ_READERS]; /* under mu; a busy one belongs to its taker */
};

struct sl_store_tx {
	struct sq_store *store;
	struct sl__sqlite *c;     /* the store's writer, or joined */
	struct sl__sqlite joined; /* the caller's connection */
	int caller_synchronous;   /* to be set again, when it is joined; -1: untouched */
	int64_t locked_us;        /* since when it holds the lock, by the store's clock */
};

/* What is counted, as the columns of sluice_count. Jobs under a lease are not: the leases are read for them. */
enum sq_kind {
	SQ_N_BLOCKED,
	SQ_N_READY,
	SQ_N_READY_TRIED, /* of those in sluice_ready */
	SQ_N_SCHED,
	SQ_N_SCHED_TRIED,
	SQ_N_COMPLETED,
	SQ_N_FAILED,
	SQ_N_CANCELLED,
	SQ_KINDS
};

/* How many jobs of a type came to be of a kind, or ceased to be: written once, at the end of an operation. */
struct sq_tally {
	char type[SQ_TYPE_BYTES];
	int64_t n[SQ_KINDS];
};

struct sq_op {
	struct sq_store *store;
	struct sl_store_tx *tx; /* NULL: an own transaction */
	struct sl__sqlite *c;
	const struct sl_store_listen *listen; /* or NULL */
	struct sl_err *err;
	int64_t now_us;
	const struct sl_audit_record *audit; /* what sl__sq_end writes */
	size_t n_audit;
	bool from_http;   /* new chains came over HTTP */
	bool defer_ready; /* new jobs that are due get into the queue at once, at the end: sl__sq_start */
	struct sl__claim_hash claim_hash;
	size_t n_tally, last_tally;
	struct sq_tally tally[16]; /* the first n_tally of them are set */
};

/* What may be lost in a power cut, because losing it only runs a job again. */
enum sq_durability { SQ_DURABLE = 2, SQ_RELAXED = 1 };

/* Flags of a job's row. */
enum {
	SQ_SOLO = 1,         /* reaped: claimed alone, for a free slot, the next time */
	SQ_WATCHED = 2,      /* of a chain's head: a client waits for the end */
	SQ_BLOCKING = 4,     /* of a chain's head: jobs wait or waited for the chain */
	SQ_HAS_BLOCKERS = 8, /* the job waits or waited for chains */
	SQ_KEYED = 16,       /* of a chain's head: it was started with a key */
	SQ_FROM_HTTP = 32    /* of a chain's head: it was started or retried over HTTP */
};

/* ---- store.c ---- */
int sl__sq_check_fork(const struct sq_store *s, struct sl_err *err);
int sl__sq_begin(struct sq_op *op, struct sq_store *s, struct sl_store_tx *tx, enum sq_durability durability,
		 const struct sl_store_listen *listen, struct sl_err *err);
/* Commits when rc is 0, undoes the operation otherwise. Returns rc, or why the commit failed. */
int sl__sq_end(struct sq_op *op, int rc);
/* A connection to read from: tx's, or a free reader, which sq_read_end gives back. */
int sl__sq_read_begin(struct sq_store *s, struct sl_store_tx *tx, struct sl__sqlite **out, struct sl_err *err);
void sl__sq_read_end(struct sq_store *s, struct sl_store_tx *tx, struct sl__sqlite *c);
int64_t sl__sq_now_us(const struct sq_store *s);
/* The lock and a transaction of the writer, or neither. The other two end both. */
int sl__sq_begin_writing(struct sq_store *s, enum sq_durability durability, struct sl_err *err);
int sl__sq_commit_writing(struct sq_store *s, struct sl_err *err);
void sl__sq_undo_writing(struct sq_store *s);

#define SQ_VALUES(...)                                                                                                 \
	(const struct sl__sqlite_value[]){__VA_ARGS__},                                                                \
		sizeof((const struct sl__sqlite_value[]){__VA_ARGS__}) / sizeof(struct sl__sqlite_value)
#define SQ_RUN(op, id, ...) sl__sqlite_run((op)->c, id, SQ_VALUES(__VA_ARGS__), NULL, (op)->err)
#define SQ_CHANGE(op, id, changed, ...) sl__sqlite_run((op)->c, id, SQ_VALUES(__VA_ARGS__), changed, (op)->err)
#define SQ_ROW(op, id, stmt, ...) sl__sqlite_row((op)->c, id, SQ_VALUES(__VA_ARGS__), stmt, (op)->err)

/* ---- schema.c ---- */
/* The lock is held, no transaction is open. */
int sl__sq_migrate(struct sq_store *s, int *from, int *to, struct sl_err *err);
int sl__sq_require_schema(struct sq_store *s, struct sl_err *err);

/* ---- job.c: rows and queues, inside an operation ---- */
struct sq_row {
	uint64_t id, chain_id, fence;
	enum sl_job_status status; /* never running: that is what a lease says */
	int32_t attempt;           /* the last that has ended; the next one's number is the fence */
	int32_t charged, priority;
	uint32_t flags, blockers_open;
	int64_t due_us;
	char type[SQ_TYPE_BYTES];
};
/* SL_LOST… by the row alone: NOT when it is live and under this fence. */
enum sl_lost_reason sl__sq_lost(const struct sq_row *row, uint64_t fence);
/* 1: found; 0: not found. */
int sl__sq_row_get(struct sq_op *op, uint64_t id, struct sq_row *row);
/* Reserve n ids; *first is the first of them. */
int sl__sq_new_ids(struct sq_op *op, uint64_t n, uint64_t *first);
/* Insert a job, its edges and its place in a queue, and call the listeners. prev_id 0: the head of a new chain. */
int sl__sq_insert_job(struct sq_op *op, uint64_t id, uint64_t chain_id, uint64_t prev_id, const char *key,
		      const struct sl_new_job *job);
/* Put a pending job where it can be claimed: now, or when due_us has come. */
int sl__sq_enqueue(struct sq_op *op, const struct sq_row *row, int64_t due_us);
/* Take a pending job out of its queue; *queued 0: it was in none, so it is under a lease. */
int sl__sq_dequeue(struct sq_op *op, const struct sq_row *row, bool *queued);
/* Everything that the end of a chain at this job brings: the key, the watchers and, when completed, the jobs it opens.
 */
int sl__sq_chain_ended(struct sq_op *op, const struct sq_row *row, enum sl_job_status status);
/* Count jobs of the type into (+) or out of (-) a kind. */
int sl__sq_count(struct sq_op *op, const char *type, enum sq_kind kind, int64_t by);
/* The same for a queue, kind SQ_N_READY or SQ_N_SCHED, and how many of them were tried before. */
int sl__sq_count_queued(struct sq_op *op, const char *type, enum sq_kind queue, int64_t by, int64_t tried_by);
/* The kind that a status is: any but pending and running. */
enum sq_kind sl__sq_kind(enum sl_job_status status);
int sl__sq_count_flush(struct sq_op *op);
/* A line of the history for the attempt that began with the row's fence. */
int sl__sq_attempt_put(struct sq_op *op, const struct sq_row *row, const struct sl_claim_id *claim,
		       enum sl_attempt_outcome outcome, const char *worker, const char *error, int64_t started_us);
/* The same with worker and start read off the lease that holds the job. */
int sl__sq_attempt_put_leased(struct sq_op *op, const struct sq_row *row, enum sl_attempt_outcome outcome,
			      const char *error);
/* The jobs of a lease: struct sq_leased in `jobs`. */
struct sq_leased {
	uint64_t id, fence;
};
struct sq_lease {
	struct sl__buf jobs, worker;
	int64_t claimed_us;
	bool started;
	struct sl_claim_id claim;
};
/* A claim id in a column of a row. */
void sl__sq_read_claim(sqlite3_stmt *s, int column, struct sl_claim_id *out);
int sl__sq_lease_read(struct sq_op *op, int64_t rowid, struct sq_lease *out);
void sl__sq_note(struct sq_op *op, enum sl_note_kind kind, const char *type, uint64_t id, enum sl_lost_reason reason);
void sl__sq_changed(struct sq_op *op, enum sl_change_kind kind, uint64_t id, uint64_t chain_id, const char *type);

/* A time or a span from a caller, who may have given anything: cut to some 70,000 years, so that neither this nor
 * a sum with the present time overflows. */
static inline int64_t sq_us(int64_t ms)
{
	const int64_t most_ms = INT64_MAX / 4000;
	return SL_MAX(SL_MIN(ms, most_ms), -most_ms) * 1000;
}

/* 0: it is past. */
static inline int64_t sq_until_ms(int64_t now_us, int64_t us)
{
	return us <= now_us ? 0 : (us - now_us + 999) / 1000;
}

/* 0: at once. */
static inline int64_t sq_due_us(const struct sq_op *op, int64_t at_ms, int64_t delay_ms)
{
	if (at_ms != 0)
		return SL_MAX(sq_us(at_ms), 0);
	return delay_ms > 0 ? op->now_us + sq_us(delay_ms) : 0;
}

/* ---- settle.c, claim.c ---- */
int sl__sq_settle(struct sq_op *op, const struct sl_settle *settle, uint64_t *next_id, struct sl_settle_result *result);
int sl__sq_claim(struct sq_op *op, const struct sl_claim_request *request, struct sl_claim_reply *reply,
		 sl_claimed_fn *claimed, void *claimed_ctx);
/* Did this attempt of the job have this claim, and is it the last one? */
int sl__sq_claim_standing(struct sq_op *op, uint64_t job_id, int32_t attempt, const struct sl_claim_id *claim,
			  enum sl__claim_standing *out);

/* ---- start.c ---- */
int sl__sq_start_one(struct sq_op *op, const struct sl_new_chain *chain, uint64_t id, struct sl_started *out);

/* ---- the slots, by file ---- */
int sl__sq_start(void *store, sl_store_tx *tx, const struct sl_new_chain *chains, size_t n, struct sl_started *out,
		 const struct sl_store_listen *listen, struct sl_err *err);
int sl__sq_exchange(void *store, sl_store_tx *tx, const struct sl_settle *settles, size_t n,
		    struct sl_settle_result *results, const struct sl_claim_request *request,
		    struct sl_claim_reply *reply, sl_claimed_fn *claimed, void *claimed_ctx,
		    const struct sl_store_listen *listen, struct sl_err *err);
/* tx.c */
int sl__sq_tx_begin(void *store, sl_store_tx **out, struct sl_err *err);
int sl__sq_tx_join(void *store, void *native, sl_store_tx **out, struct sl_err *err);
void *sl__sq_tx_native(sl_store_tx *tx);
int sl__sq_tx_savepoint(sl_store_tx *tx, const char *name, struct sl_err *err);
int sl__sq_tx_release_savepoint(sl_store_tx *tx, const char *name, struct sl_err *err);
int sl__sq_tx_rollback_to(sl_store_tx *tx, const char *name, struct sl_err *err);
int sl__sq_tx_commit(sl_store_tx *tx, struct sl_err *err);
void sl__sq_tx_rollback(sl_store_tx *tx);
/* lease.c */
int sl__sq_guard(void *store, sl_store_tx *tx, uint64_t id, uint64_t fence, enum sl_lost_reason *out,
		 struct sl_err *err);
int sl__sq_progress(void *store, uint64_t id, uint64_t fence, const char *progress, enum sl_lost_reason *out,
		    struct sl_err *err);
int sl__sq_renew(void *store, const struct sl_renewal *renewals, size_t n, sl_lost_fn *lost, void *lost_ctx,
		 struct sl_err *err);
int sl__sq_renewal_waits(void *store);
int sl__sq_reap(void *store, const struct sl_reap_type *types, size_t n_types, uint32_t limit, struct sl_reaped *out,
		const struct sl_store_listen *listen, struct sl_err *err);
/* steer.c */
int sl__sq_complete_chain(void *store, sl_store_tx *tx, uint64_t chain_id, const char *output,
			  const struct sl_store_listen *listen, struct sl_err *err);
int sl__sq_fail_chain(void *store, sl_store_tx *tx, uint64_t chain_id, const char *error,
		      const struct sl_store_listen *listen, struct sl_err *err);
int sl__sq_cancel(void *store, sl_store_tx *tx, const uint64_t *chains, size_t n_chains, size_t *n,
		  const struct sl_store_listen *listen, struct sl_err *err);
int sl__sq_redrive(void *store, sl_store_tx *tx, const uint64_t *chains, size_t n_chains, size_t *n,
		   const struct sl_store_listen *listen, struct sl_err *err);
int sl__sq_trigger(void *store, sl_store_tx *tx, const uint64_t *chains, size_t n_chains, size_t *n,
		   const struct sl_store_listen *listen, struct sl_err *err);
int sl__sq_pause(void *store, const char *type, int paused, const struct sl_store_listen *listen, struct sl_err *err);
int sl__sq_watch(void *store, uint64_t chain_id, enum sl_job_status *status, struct sl_err *err);
/* The job that a chain is at. SL_ENOENT. */
int sl__sq_chain_last(struct sq_op *op, uint64_t chain_id, struct sq_row *row);
/* remove.c */
int sl__sq_remove(void *store, sl_store_tx *tx, const uint64_t *chains, size_t n_chains, int cascade, size_t *n,
		  const struct sl_store_listen *listen, struct sl_err *err);
int sl__sq_prune(void *store, int64_t before_ms, uint32_t limit, size_t *n, const struct sl_store_listen *listen,
		 struct sl_err *err);
/* read.c, list.c, list_waiting.c, counts.c */
int sl__sq_get_job(void *store, sl_store_tx *tx, uint64_t id, sl_job_fn *fn, void *ctx, struct sl_err *err);
int sl__sq_get_chain(void *store, sl_store_tx *tx, uint64_t id, sl_chain_fn *fn, void *ctx, struct sl_err *err);
int sl__sq_list_jobs(void *store, const struct sl_job_filter *filter, sl_job_fn *fn, void *ctx, struct sl_err *err);
int sl__sq_list_chains(void *store, const struct sl_job_filter *filter, sl_chain_fn *fn, void *ctx, struct sl_err *err);
int sl__sq_attempts(void *store, uint64_t job_id, sl_attempt_record_fn *fn, void *ctx, struct sl_err *err);
int sl__sq_counts(void *store, sl_job_count_fn *fn, void *ctx, struct sl_err *err);
int sl__sq_outstanding(void *store, const char *const *types, size_t n_types, struct sl_outstanding *out,
		       struct sl_err *err);
/* The smallest id of all pending jobs; 0: no job is pending. */
int sl__sq_oldest_pending(struct sl__sqlite *c, uint64_t *out, struct sl_err *err);
/* list_waiting.c: the first ids of what is pending, or blocked, in the order of a list. Only the types of the filter
 * matter. The caller has initialised ids, and frees it. */
struct sq_waiting {
	const struct sl_job_filter *filter;
	bool ascending;
	uint64_t after, floor; /* where to begin, and the last that matters; 0: no bound */
	uint32_t n;            /* at most */
	struct sl__buf ids;    /* uint64_t, in order */
	uint64_t end;          /* the last of the n; 0: there are fewer, and these are all */
	bool too_many_parts;   /* to go through them: nothing was found out */
};
int sl__sq_waiting(struct sl__sqlite *c, struct sq_waiting *w, bool blocked, struct sl_err *err);
/* A JSON array of the names; nothing for none. 0 or SL_ENOMEM. */
int sl__sq_types_json(struct sl__buf *b, const char *const *types, size_t n_types);
void sl__sq_read_job(sqlite3_stmt *s, struct sl_job *job);
void sl__sq_read_chain(sqlite3_stmt *s, struct sl_chain *chain);
/* look.c */
int sl__sq_leases(void *store, const uint8_t after[16], uint32_t limit, sl_lease_fn *fn, void *ctx, struct sl_err *err);
int sl__sq_errors(void *store, const struct sl_error_filter *filter, sl_error_group_fn *fn, void *ctx,
		  struct sl_err *err);
int sl__sq_event_streams(void *store, const struct sl_event_stream *after, uint32_t limit, sl_event_stream_fn *fn,
			 void *ctx, struct sl_err *err);
/* audit.c */
/* A record of this operation, in its transaction; of a start with the ids of its chains. */
int sl__sq_audit(struct sq_op *op, const struct sl_audit_record *record);
int sl__sq_audit_put(void *store, const struct sl_audit_record *records, size_t n, struct sl_err *err);
int sl__sq_audit_list(void *store, uint64_t before, uint32_t limit, sl_audit_record_fn *fn, void *ctx,
		      struct sl_err *err);
int sl__sq_audit_prune(void *store, int64_t before_ms, uint32_t limit, size_t *n, struct sl_err *err);
/* cron.c, events.c */
int sl__sq_cron_put(void *store, const struct sl_cron *cron, const struct sl_store_listen *listen, struct sl_err *err);
int sl__sq_cron_remove(void *store, const char *name, const struct sl_store_listen *listen, struct sl_err *err);
int sl__sq_cron_list(void *store, sl_cron_fn *fn, void *ctx, struct sl_err *err);
int sl__sq_cron_fire(void *store, const struct sl_cron *seen, int64_t next_ms, int *fired, struct sl_started *out,
		     const struct sl_store_listen *listen, struct sl_err *err);
int sl__sq_events_append(void *store, const struct sl_event_row *events, size_t n, struct sl_event_mark *marks,
			 size_t n_marks, size_t *n_new, struct sl_err *err);
int sl__sq_events_read(void *store, uint64_t job_id, uint64_t after, uint32_t limit, sl_event_row_fn *fn, void *ctx,
		       struct sl_err *err);

#endif
