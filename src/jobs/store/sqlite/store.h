/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SQLite job store inside: its handle, its transactions, and what its files share.
 *
 * One connection writes, and only while the lock of db/sqlite_lock.h is held (so it needs no mutex); up to
 * SQ_READERS others read. An operation is a struct sq_op: begun with sl__sq_op_begin in its own transaction or under a
 * savepoint of the caller's, ended with sl__sq_op_end, which commits or undoes all of it.
 *
 * Thread safety: as jobs/store/ops.h says. A sq_op lives on the stack of one call.
 */
#ifndef SL_JOBS_STORE_SQLITE_STORE_H
#define SL_JOBS_STORE_SQLITE_STORE_H

#include <sys/types.h>

#include "base/buf.h"
#include "base/thread.h"
#include "db/sqlite.h"
#include "db/sqlite_lock.h"
#include "jobs/store/claims.h"
#include "jobs/store/cold.h"
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
	struct sl__cold_store cold; /* first: cold.c knows the store by it */
	struct sl_env env;
	pid_t pid;
	char *path;
	int64_t lock_ms; /* how long a writer waits */
	bool may_create; /* the schema, where it is missing */
	struct sl__sqlite_lock lock;
	struct sl__sqlite writer;      /* only with the lock held */
	_Atomic bool write_failed;     /* full disk, I/O error: until check_writable has written */
	_Atomic bool renewal_waits;    /* for the lock: from its begin until it has it, or fails in another way */
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
	const struct sl_store_scope *scope; /* or NULL */
	struct sl_err *err;
	int64_t now_us;
	const struct sl_audit_record *audit; /* what sl__sq_op_end writes */
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
/* In the transaction of scope, if it has one. */
int sl__sq_op_begin(struct sq_op *op, struct sq_store *s, enum sq_durability durability,
		    const struct sl_store_scope *scope, struct sl_err *err);
/* Commits when rc is 0, undoes the operation otherwise. Returns rc, or why the commit failed. */
int sl__sq_op_end(struct sq_op *op, int rc);
/* A connection to read from: tx's, or a free reader, which sl__sq_read_end gives back. */
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
struct sq_past {
	struct sl_claim_id claim;
	enum sl_attempt_outcome outcome;
	const char *worker, *error;
	int64_t started_us;
};
int sl__sq_attempt_put(struct sq_op *op, const struct sq_row *row, const struct sq_past *past);
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
/* What an exchange claims. */
int sl__sq_claim(struct sq_op *op, const struct sl_exchange *exchange);
/* Did this attempt of the job have this claim, and is it the last one? */
int sl__sq_claim_standing(struct sq_op *op, uint64_t job_id, int32_t attempt, const struct sl_claim_id *claim,
			  enum sl__claim_standing *out);

/* ---- start.c ---- */
int sl__sq_start_one(struct sq_op *op, const struct sl_new_chain *chain, uint64_t id, struct sl_started *out);

/* ---- the slots, each in the file of its task ---- */
#define SQ_DECLARE_SLOT(slot) SL__STORE_SLOT(sl__sq_, slot);
SL__STORE_SLOTS(SQ_DECLARE_SLOT)
#undef SQ_DECLARE_SLOT
int sl__sq_renewal_waits(void *store);

/* ---- steer.c, counts.c, audit.c ---- */
/* The job that a chain is at. SL_ENOENT. */
int sl__sq_chain_last(struct sq_op *op, uint64_t chain_id, struct sq_row *row);
/* The smallest id of all pending jobs; 0: no job is pending. */
int sl__sq_oldest_pending(struct sl__sqlite *c, uint64_t *out, struct sl_err *err);
/* A record of this operation, in its transaction; of a start with the ids of its chains. */
int sl__sq_audit(struct sq_op *op, const struct sl_audit_record *record);

/* ---- cold.c ---- */
extern const struct sl__cold_ops sl__sq_cold_ops;
/* Run a query that reads on this connection. */
int sl__sq_cold_rows(const struct sq_store *s, struct sl__sqlite *c, const struct sl__cold_query *q,
		     struct sl_err *err);

#endif
