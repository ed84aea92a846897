/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a job store must do. There are two (SQLite, PostgreSQL); tests/support holds a third, in memory, as the
 * model of a simulation. All pass the same contract suite, tests/jobs/store_contract.c.
 *
 * The promises of a store
 *  S1. What an operation returned 0 for is durable, except a renewal: losing one only lets a lease end earlier.
 *  S2. Every operation is atomic: all of it happened, or nothing.
 *  S3. A job is given to at most one claim at a time. The fence of a claimed job is its `fence` number, which the job's
 *      own row holds and every end of a claim changes: settling compares it in the WHERE of the statement that updates
 *      that row, and so does every takeover. A stale settle changes nothing and says why. The fence under which a job
 *      was claimed is also the number of the attempt: it grows with every claim, and none is given twice.
 *  S4. A lease is taken in the claim itself. A takeover needs an expired lease, by the store's clock, in its statement.
 *  S5. A completion, the continuation it makes, the jobs it unblocks and the key it frees are one transaction. A
 *      blocked job opens exactly once: in the transaction that completes its last open blocker.
 *  S6. Batches lock job rows in the order of their ids.
 *  S7. Event offsets are gapless and in the order of commit; a (stream, incarnation, sequence) is taken once.
 *  S8. A job that is started for an offer is claimed in the transaction that starts it, under S3 and S4, for an
 *      offer that was open until then. An offer is accepted at most once.
 *
 * Thread safety: every slot may be called from any thread at once, but a transaction belongs to one thread at a time.
 * No lock of the caller is held. Callbacks are called from inside the slot, after the statement succeeded; what they
 * are given holds only when the slot returns 0 (and, inside a caller's transaction, when that commits). Callbacks must
 * not call the store.
 * Errors: SL_EUNAVAIL (SL_CLASS_FATAL, retryable) when the database is unavailable: the store connects again in a
 * later call. SL_EAGAIN (SL_CLASS_TRANSIENT) for a deadlock, a serialization failure or a lock timeout. SL_EDATA
 * (SL_CLASS_POISON) when the data itself was refused.
 */
#ifndef SL_JOBS_STORE_OPS_H
#define SL_JOBS_STORE_OPS_H

#include <sluice/adapter/env.h>
#include <sluice/event.h>
#include <sluice/retry.h>

#define SL_STORE_VERSION 7
#define SL_SCHEMA_VERSION 1

typedef struct sl_store_tx sl_store_tx;

/* Where a stream of events stands, before and after its rows were taken. */
struct sl_event_mark {
	const char *stream;
	uint32_t incarnation;
	uint64_t mark; /* in: skip up to here (0: nothing to skip); out: the durable high-water mark */
	/* out: the CRC of the event at the mark, which the mark keeps however long the event itself is kept; has_crc false:
	 * that sequence was skipped, or mark is 0 */
	uint64_t crc;
	bool has_crc;
	/* in, where after is not 0: the sender's record with this sequence has this CRC. A store whose mark is there
	 * with another one fails with SL_ECONFLICT: they are different streams. */
	uint64_t after, after_crc;
	/* in: who writes to the stream. NULL: this process, which may write to all of them. SL_EACCES: it belongs to
	 * another token; nothing of the call is taken. */
	const struct sl_event_writer *writer;
};

/* Why a settle, a renewal or an operation on a job found another state than it expected. */
enum sl_lost_reason {
	SL_LOST_NOT = 0,
	SL_LOST_TAKEN = 1,     /* the lease ran out; reaped, perhaps claimed by another worker */
	SL_LOST_COMPLETED = 2, /* under this very fence: from outside, or by a settle whose answer got lost */
	SL_LOST_NOT_FOUND = 3, /* deleted */
	SL_LOST_CANCELLED = 4,
	SL_LOST_FAILED = 5,  /* under this very fence: from outside, or by a settle whose answer got lost */
	SL_LOST_PUT_BACK = 6 /* of settles only. Under this very fence, by one whose answer got lost */
};

/* A notification for other workers and processes, once it is committed. A hint: polling finds all of it too. */
enum sl_note_kind {
	SL_NOTE_JOB_SCHEDULED = 1,  /* type: something to claim, now or at a time that sleepers do not know of yet;
				       id: the job when it is one, else 0 */
	SL_NOTE_OWNERSHIP_LOST = 2, /* id: a job under a lease that ended; reason */
	SL_NOTE_CHAIN_ENDED = 3     /* id: a watched chain that completed, failed or was cancelled */
};

struct sl_note {
	enum sl_note_kind kind;
	const char *type; /* or NULL */
	uint64_t id;
	enum sl_lost_reason reason;
	bool later; /* of JOB_SCHEDULED: it was put back by its worker for a time to come */
	bool sent;  /* the store has already sent it to other processes: see sl_start_notification */
};
typedef void sl_note_fn(const struct sl_note *note, void *ctx);

/* What happened to single jobs, for observers: called beside the notes. */
enum sl_change_kind {
	SL_CHANGE_CREATED = 1,
	SL_CHANGE_BLOCKED = 2, /* created with open blockers */
	SL_CHANGE_UNBLOCKED = 3,
	SL_CHANGE_SCHEDULED = 4, /* created or put back for a later time */
	SL_CHANGE_REAPED = 5,
	SL_CHANGE_CANCELLED = 6,
	SL_CHANGE_DELETED = 7,
	SL_CHANGE_CHAIN_COMPLETED = 8,
	SL_CHANGE_COMPLETED = 9, /* from outside */
	SL_CHANGE_FAILED = 10    /* from outside */
};
struct sl_change {
	enum sl_change_kind kind;
	uint64_t id, chain_id;
	const char *type; /* or NULL where the store does not know it without another query */
};
typedef void sl_change_fn(const struct sl_change *change, void *ctx);

/*
 * The notification of one started job, which a store sends to other processes with the transaction that starts it
 * (PostgreSQL: NOTIFY). The payload is `before`, the job's id in decimal, `after`.
 */
struct sl_start_notification {
	char channel[64];
	char before[64];
	char after[256];
};
/* Fill the notification for a job of this type. 0: the store sends none, and the note is published as usual. */
typedef int sl_start_notification_fn(const char *type, struct sl_start_notification *out, void *ctx);

/* In which transaction an operation happens, and where it reports its effects. NULL: in its own, not reported. */
struct sl_store_scope {
	sl_store_tx *tx;  /* NULL: its own. Only for the slots that say so */
	sl_note_fn *note; /* or NULL, as the next */
	sl_change_fn *change;
	void *ctx;
	/* Only for start, or NULL. A store that can notify calls this at most once, for a single job that it starts in
	 * its own transaction. The note then has `sent` set if the notification went out. A notification that is refused
	 * does not fail the start. */
	sl_start_notification_fn *start_notification;
	/* Who asks for the change: written to the audit trail in the transaction of the operation, or nothing happens.
	 * Of start, several records may stand for the chains in turn; else there is one. A start or a redrive that came
	 * over HTTP marks its chains (from_http of struct sl_job). NULL: not audited. */
	const struct sl_audit_record *audit;
	size_t n_audit;
};

/* ---- claiming ---- */

struct sl_claim_type {
	const char *type;
	uint32_t limit; /* at most this many of the type */
	uint32_t free;  /* how many of the type could start immediately */
};

struct sl_claim_request {
	struct sl_claim_id claim;
	const char *worker;
	const struct sl_claim_type *types;
	size_t n_types;
	uint32_t limit; /* at most this many in all, by priority, then age */
	/* How many in all will start immediately. When a claim gives no more than this, and of no type more than its
	 * `free`, its lease counts as started: a job whose worker dies is charged. A job that was lost before is given
	 * only for a free slot, alone. */
	uint32_t free;
	int64_t lease_ms;
	/* This claim was sent before, and its answer was lost. If the store made it, the jobs that it still holds
	 * are given again, under a lease that begins anew. Otherwise nothing is given, and the claim that was sent
	 * before is not made any more; next_due_in_ms is 0. Of the types only the names matter. */
	bool again;
	/* Without settles only: nothing is known to be due, and most often a notification of one job is the reason.
	 * To be quick, the store may skip what it would have to promote and jobs that are claimed alone, unless
	 * there is nothing else. Where there are such and it gives less than was asked for, next_due_in_ms is 0.
	 * It may leave out next_expiry_in_ms. */
	bool hinted;
};

struct sl_claimed_job {
	uint64_t id, chain_id;
	uint64_t fence;
	const char *type;
	const char *input;
	const char *traceparent;
	int32_t attempt; /* the number of the attempt that begins with this claim: numbers may be left out, and never
			    come twice */
	int32_t charged; /* runs that count against max_attempts so far, without this one */
	int32_t priority;
	bool has_blockers; /* its blockers' outputs can be listed */
	int64_t created_ms, scheduled_ms;
};
typedef int sl_claimed_fn(const struct sl_claimed_job *job, void *ctx);

struct sl_claim_reply {
	uint32_t n;
	int64_t now_ms;
	/* Filled when fewer than `limit` were found; -1: none known. How long to sleep at most. */
	int64_t next_due_in_ms;    /* until a scheduled job of these types is due */
	int64_t next_expiry_in_ms; /* until a lease on these types runs out */
	bool alone;                /* jobs are left that are given only for a free slot, and the request had none */
	/* Another one than in the last reply: the store was out of reach meanwhile, and may have forgotten claims that
	 * were not durable. The worker asks after its leases at once. */
	uint64_t epoch;
};

/* ---- offers ---- */

struct sl_offer_type {
	const char *type;
	int64_t lease_ms;
};

/*
 * A worker with an idle slot offers to run the next job that is started through the same open store. The transaction
 * that starts the job also claims it for the worker, so the job does not pass through the queue.
 */
struct sl_offer {
	struct sl_claim_id claim;
	const char *worker;
	const struct sl_offer_type *types;
	size_t n_types;
	/* Called once if the offer is accepted: after the transaction, on the thread that starts the job, no lock held; it
	 * must be quick. rc 0: the job, or NULL when it was queued after all (its type is paused). Otherwise the error
	 * of the start, which may have been committed when the connection was lost. sent_ns: the monotonic clock of the
	 * store's environment before the start was sent; the worker uses the same clock. */
	void (*accepted)(int rc, const struct sl_claimed_job *job, int64_t sent_ns, int64_t now_ms, void *ctx);
	void *ctx;
	struct sl_offer *next; /* the store's */
};

/* ---- settling ---- */

enum sl_settle_kind {
	SL_SETTLE_COMPLETE = 1,   /* output */
	SL_SETTLE_CONTINUE = 2,   /* next */
	SL_SETTLE_RETRY = 3,      /* error, delay_ms or at_ms; charged */
	SL_SETTLE_FAIL = 4,       /* error; charged, and in the history, when it was started (started_ms) */
	SL_SETTLE_RESCHEDULE = 5, /* delay_ms or at_ms; not charged */
	SL_SETTLE_RELEASE = 6     /* back at once, not charged; history only when it was started (started_ms) */
};

struct sl_settle {
	enum sl_settle_kind kind;
	uint64_t id, chain_id;
	uint64_t fence;
	struct sl_claim_id claim;
	const char *worker;
	int64_t started_ms; /* when the handler started; 0: never */
	const char *output;
	const char *error;
	const char *progress;
	const struct sl_new_job *next;
	int64_t delay_ms, at_ms;
	bool last_of_claim; /* nothing of the claim is left after this one: its lease goes */
};

/* The answer that is kept for a request. fn is called with it if there is one; it lives until fn returns. */
struct sl_kept_answer {
	bool found; /* out */
	int (*fn)(const char *answer, void *ctx);
	void *ctx;
};

/* Chains, or jobs. */
struct sl_ids {
	const uint64_t *ids;
	size_t n;
};

struct sl_settle_result {
	enum sl_lost_reason lost; /* SL_LOST_NOT: done */
	uint64_t next_id;         /* of CONTINUE */
	bool chain_ended;         /* the chain completed with this */
};

/* What an exchange settles, and what it claims. */
struct sl_exchange {
	const struct sl_settle *settles;
	size_t n_settles;                 /* may be 0 */
	struct sl_settle_result *results; /* one per settle, filled when 0 is returned */
	/* NULL: nothing is claimed; then claimed is not used, and of reply, which may be NULL, only the epoch. */
	const struct sl_claim_request *request;
	struct sl_claim_reply *reply;
	sl_claimed_fn *claimed;
	void *claimed_ctx;
};

struct sl_renewal {
	struct sl_claim_id claim;
	int64_t lease_ms;
	bool started; /* all that is left of the claim has been started, and is charged when the worker dies */
	/* The jobs of the claim that are still at work, to learn which of them are lost. */
	const uint64_t *ids;
	const uint64_t *fences;
	size_t n;
};
/* A job that is not ours any more. */
typedef void sl_lost_fn(uint64_t id, uint64_t fence, enum sl_lost_reason reason, void *ctx);

struct sl_reap_type {
	const char *type;
	const struct sl_retry_policy *retry; /* resolved; NULL: no delay */
};

struct sl_reaped {
	uint32_t n;                /* jobs that were taken back */
	bool more;                 /* there are others */
	int64_t next_expiry_in_ms; /* until a lease on these types expires; -1: no lease */
};

struct sl_outstanding {
	uint64_t due, retrying, running, scheduled, blocked;
};

/* What a worker reports of itself while it runs, however idle it is. */
struct sl_heartbeat {
	const char *worker, *host, *version;
	const char *types; /* those it serves, separated by commas */
	int64_t pid;
	int32_t slots;
	int64_t started_ms; /* by the store's clock; with `worker`, names one run of it */
	const char *error;  /* of its last failure; NULL: none */
	int64_t error_ms;
	int64_t ttl_ms;            /* in: how long it counts as alive if no other follows */
	bool sweep;                /* in: delete those of other workers that have expired */
	int64_t seen_ms, until_ms; /* out: by the store's clock */
};
typedef int sl_heartbeat_fn(const struct sl_heartbeat *heartbeat, void *ctx);

/* ---- retention ---- */

/* One bounded step through the chains, or through the events. Both go up in the order of ids and of offsets, from `after`.
 * A time of 0: nothing is old enough. */
struct sl_prune_step {
	int64_t completed_before_ms; /* chains that completed before this */
	int64_t failed_before_ms;    /* chains that failed or were cancelled before this */
	int64_t events_before_ms;    /* events of jobs, by their own time */
	int64_t lines_before_ms;     /* events that never had a job */
	bool lines_for_ever;         /* end nothing: events that follow them may be old */
	bool events_for_ever;
	int64_t superseded_before_ms; /* marks that a newer incarnation of the stream has followed */
	int64_t silent_before_ms;     /* all marks */
	int64_t now_ms;               /* a chain stays whose key holds for longer than until this time */
	uint64_t exported; /* events above this offset stay, and so do their chains; UINT64_MAX: all may go */
	uint32_t scan;     /* rows that are read at most */
	uint32_t limit;    /* chains, or marks, that are deleted at most */
	uint32_t n_events; /* events that are deleted with chains at most, about; a chain with more loses them first */
	/* Where the step begins, and then where the next one does. */
	uint64_t after;
	/* Results. */
	bool end; /* nothing is left past `after` that is old enough by its creation */
	uint64_t chains, events, marks;
};

/* What the store keeps of retention. Limits: milliseconds, 0 for ever, -1 not given by any process. */
struct sl_retention_row {
	char holder[64]; /* the process that deletes; "": none has yet */
	int64_t until_ms;
	int64_t completed_ms, failed_ms, events_ms, lines_ms;
	int64_t deleted_ms; /* when something was last deleted; 0: not yet */
	uint64_t chains;    /* deleted so far, by prune, too */
	uint64_t completed; /* jobs of these that had completed */
	uint64_t failed;    /* and those that had failed */
	uint64_t events;    /* deleted so far because they were too old themselves */
	bool exports;       /* there is an export whose checkpoint counts */
	uint64_t exported;  /* the least of their checkpoints */
};

/* The turn of a process: it holds it until until_ms. Events that it has deleted are added. */
struct sl_retention_turn {
	const char *holder;
	int64_t now_ms, until_ms; /* until_ms <= now_ms: it is given back */
	uint64_t events;
};

/* The numbers of the store at one moment. Of each step, the first that is written in a bucket stays. */
struct sl_history_row {
	int64_t step_s; /* the width of its bucket */
	int64_t at_s;   /* where that begins, a multiple of step_s: Unix seconds by the store's clock */
	int64_t taken_ms;
	uint64_t newest_id, completed, failed; /* so far: a reader takes differences */
	uint64_t due, running;
	int64_t p50_ms, p99_ms; /* from due to started; -1: not known */
};
struct sl_history_roll {
	int64_t step_s, finer_s; /* finer_s 0: nothing is made */
	int64_t before_s;        /* of buckets that end by then */
	int64_t keep_s;          /* rows of the step from before that are deleted */
};
typedef int sl_history_fn(const struct sl_history_row *row, void *ctx);

struct sl_store_ops {
	int version;      /* SL_STORE_VERSION */
	const char *name; /* "sqlite", "postgres" */

	void (*close)(void *store);
	/* Bring the schema to SL_SCHEMA_VERSION: idempotent, safe in many processes at once. *from and *to (may be
	 * NULL) are the versions before and after. SL_EUNSUPPORTED: the schema is newer than this library. */
	int (*migrate)(void *store, int *from, int *to, struct sl_err *err);
	/* The store's random id, 32 hexadecimal characters and a NUL: names the folder of its logs. */
	int (*target_id)(void *store, char out[33], struct sl_err *err);
	int (*now_ms)(void *store, int64_t *out, struct sl_err *err);

	/* ---- transactions ---- */
	int (*begin)(void *store, sl_store_tx **out, struct sl_err *err);
	/* Use the caller's connection (PGconn *, sqlite3 *). A PGconn inside a transaction is joined: commit and
	 * rollback then only let go of it, and the caller ends its own transaction. An idle one, and any sqlite3 (which
	 * must be idle), gets a transaction begun here that commit and rollback end. */
	int (*join)(void *store, void *native, sl_store_tx **out, struct sl_err *err);
	void *(*native)(sl_store_tx *tx);
	int (*savepoint)(sl_store_tx *tx, const char *name, struct sl_err *err); /* name: [a-z_][a-z0-9_]* */
	int (*release_savepoint)(sl_store_tx *tx, const char *name, struct sl_err *err);
	int (*rollback_to)(sl_store_tx *tx, const char *name, struct sl_err *err);
	/* Both end and free tx in any case. */
	int (*commit)(sl_store_tx *tx, struct sl_err *err);
	void (*rollback)(sl_store_tx *tx);

	/* ---- start, exchange, complete_chain, fail_chain, cancel, redrive, trigger and remove heed scope->tx ---- */
	/* out[n]. SL_ENOENT: a blocker that does not exist. */
	int (*start)(void *store, const struct sl_new_chain *chains, size_t n, const struct sl_store_scope *scope,
		     struct sl_started *out, struct sl_err *err);
	/*
	 * Settle jobs and claim the next, in one transaction and, where the database allows, one round trip. Promotes
	 * what is due first. A job that was reaped is claimed alone, in its turn.
	 * A continuation is refused, and nothing is settled, with SL_ENOENT for a blocker that does not exist, and with
	 * SL_EDATA (SL_CLASS_POISON) when chains would then wait for each other: the message names two of them. That
	 * holds for continuations at the same time, too. The search follows 10,000 edges at most beside those of the
	 * continuation; a circle that is longer is not found. A start cannot make one.
	 */
	int (*exchange)(void *store, const struct sl_exchange *exchange, const struct sl_store_scope *scope,
			struct sl_err *err);
	/* Is the job still under this fence? Locks its row until the transaction ends. SL_LOST_NOT: yes. */
	int (*guard)(void *store, sl_store_tx *tx, uint64_t id, uint64_t fence, enum sl_lost_reason *out,
		     struct sl_err *err);
	int (*progress)(void *store, uint64_t id, uint64_t fence, const char *progress, enum sl_lost_reason *out,
			struct sl_err *err);
	/* Prolong n leases; lost is called for every job in ids that is not under its fence any more, and for all of a
	 * claim whose lease was taken over. A lease that has expired but was not taken over is renewed. */
	int (*renew)(void *store, const struct sl_renewal *renewals, size_t n, sl_lost_fn *lost, void *lost_ctx,
		     struct sl_err *err);
	/* NULL: never. 1: a renewal waits for a lock without which no job can be reaped either: no lease is given
	 * up meanwhile. A transaction that holds such a lock prolongs every lease by that time as it commits. Does not
	 * block. */
	int (*renewal_waits)(void *store);
	/* Take back at most `limit` jobs of expired leases on these types (n_types 0: of all). Those of a lease that
	 * counts as started are charged. The first time that a job is lost it can be claimed immediately, from then on
	 * after the delay of its type's policy, without jitter. Writes nothing when nothing has expired. */
	int (*reap)(void *store, const struct sl_reap_type *types, size_t n_types, uint32_t limit,
		    struct sl_reaped *out, const struct sl_store_scope *scope, struct sl_err *err);

	/* ---- clients ---- */
	/* Complete the chain with an output whatever its current job does. SL_ENOENT; SL_EEXIST when it has ended. */
	int (*complete_chain)(void *store, uint64_t chain_id, const char *output, const struct sl_store_scope *scope,
			      struct sl_err *err);
	/* The same with a failure: the chain is at its end, its current job has failed with this error. What waits for
	 * it keeps waiting, as after any failure. */
	int (*fail_chain)(void *store, uint64_t chain_id, const char *error, const struct sl_store_scope *scope,
			  struct sl_err *err);
	/* *n: how many were changed. Those that have ended already are skipped; SL_ENOENT for an unknown one. */
	int (*cancel)(void *store, struct sl_ids chains, const struct sl_store_scope *scope, size_t *n,
		      struct sl_err *err);
	/* Failed and cancelled chains continue at their last job, with attempt 0. Others are skipped. A chain that was
	 * started with a key takes it again, in the same transaction, unless another that has ended holds it (scope
	 * any). Refused, and none is changed: SL_EEXIST when a chain that has not ended has the key, SL_ECONFLICT when
	 * a chain that it waits for was deleted. The message names both chains. */
	int (*redrive)(void *store, struct sl_ids chains, const struct sl_store_scope *scope, size_t *n,
		       struct sl_err *err);
	/* Make scheduled jobs due now. */
	int (*trigger)(void *store, struct sl_ids chains, const struct sl_store_scope *scope, size_t *n,
		       struct sl_err *err);
	/* Delete chains with their jobs, attempts, keys and events. SL_EPENDING when a chain outside of the set waits
	 * for one of them and not cascade (nothing is deleted, the message names one); with cascade those go too. */
	int (*remove)(void *store, struct sl_ids chains, bool cascade, const struct sl_store_scope *scope, size_t *n,
		      struct sl_err *err);
	int (*pause)(void *store, const char *type, int paused, const struct sl_store_scope *scope, struct sl_err *err);
	/* Delete at most `limit` chains that ended before the time and that are no blocker, done or not, of a job that
	 * has not ended: its handler may ask for their outputs. When nothing is left of these (*n 0), events older than
	 * that whose job was deleted are removed, too. */
	int (*prune)(void *store, int64_t before_ms, uint32_t limit, const struct sl_store_scope *scope, size_t *n,
		     struct sl_err *err);
	/* In an open transaction: take the key of a request that is answered once, until its time is over. Unless an
	 * answer is found, request_answer keeps one. SL_ECONFLICT: the key is that of another request. Waits for a
	 * transaction that has the key. Of once only key, hash and keep_ms matter. */
	int (*request_take)(void *store, sl_store_tx *tx, const struct sl_once *once, struct sl_kept_answer *kept,
			    struct sl_err *err);
	int (*request_answer)(void *store, sl_store_tx *tx, const char *key, const char *answer, struct sl_err *err);
	/* Report when the chain ends (SL_NOTE_CHAIN_ENDED): *status is where it is now, after that is set. */
	int (*watch)(void *store, uint64_t chain_id, enum sl_job_status *status, struct sl_err *err);

	/* ---- reading; tx NULL: none of the caller ---- */
	int (*get_job)(void *store, sl_store_tx *tx, uint64_t id, sl_job_fn *fn, void *ctx, struct sl_err *err);
	int (*get_chain)(void *store, sl_store_tx *tx, uint64_t id, sl_chain_fn *fn, void *ctx, struct sl_err *err);
	int (*list_jobs)(void *store, const struct sl_job_filter *filter, sl_job_fn *fn, void *ctx, struct sl_err *err);
	int (*list_chains)(void *store, const struct sl_job_filter *filter, sl_chain_fn *fn, void *ctx,
			   struct sl_err *err);
	int (*attempts)(void *store, uint64_t job_id, sl_attempt_record_fn *fn, void *ctx, struct sl_err *err);
	int (*counts)(void *store, sl_job_count_fn *fn, void *ctx, struct sl_err *err);
	int (*outstanding)(void *store, const char *const *types, size_t n_types, struct sl_outstanding *out,
			   struct sl_err *err);

	/* ---- recurring schedules ---- */
	/* By name, replaces. One that was put over HTTP is marked; one without next_ms is paused. */
	int (*cron_put)(void *store, const struct sl_cron *cron, const struct sl_store_scope *scope,
			struct sl_err *err);
	int (*cron_remove)(void *store, const char *name, const struct sl_store_scope *scope,
			   struct sl_err *err);                                       /* SL_ENOENT */
	int (*cron_list)(void *store, sl_cron_fn *fn, void *ctx, struct sl_err *err); /* by next_ms, paused ones last */
	/* Enqueue the tick seen->next_ms of the schedule seen->name and move it to next_ms, in one transaction. *fired
	 * 0 when it is not as it was seen (next_ms, spec, catch_up): another process has done this tick, or a client
	 * has replaced or removed the schedule, whose next_ms is then another. */
	int (*cron_fire)(void *store, const struct sl_cron *seen, int64_t next_ms, bool *fired, struct sl_started *out,
			 const struct sl_store_scope *scope, struct sl_err *err);

	/* ---- events ---- */
	/* Take events, in order within each stream. What is at or below a stream's mark is dropped after comparing its
	 * CRC with that of the event, or of the mark (SL_ECONFLICT); a gap that marks[] does not skip is SL_EGAP.
	 * marks[]: one per stream in events, in and out. *n_new (may be NULL): how many were new. */
	int (*events_append)(void *store, const struct sl_event_row *events, size_t n, struct sl_event_mark *marks,
			     size_t n_marks, size_t *n_new, struct sl_err *err);
	/* Events of a job (0: all) with an offset above `after`, in order, at most `limit`. */
	int (*events_read)(void *store, uint64_t job_id, uint64_t after, uint32_t limit, sl_event_row_fn *fn, void *ctx,
			   struct sl_err *err);
	/* The offset of the newest event that the store has; 0: it has no event. */
	int (*events_newest)(void *store, uint64_t *offset, struct sl_err *err);

	/* ---- offers; NULL, both: not supported ---- */
	/* Open an offer. The caller owns it and must not change it until it is withdrawn or `accepted` was called. Does not
	 * block. */
	void (*offer)(void *store, struct sl_offer *offer);
	/* 1: withdrawn. 0: the offer was accepted; `accepted` has been called or will be. */
	int (*withdraw)(void *store, struct sl_offer *offer);

	/* ---- inspecting from outside ---- */
	/* Whether changes are possible now: SL_EUNAVAIL for a database that is read-only, SL_ENOSPC for a disk that is
	 * full. Changes nothing; takes a lock only after a change could not be written, to try again. NULL: always. */
	int (*check_writable)(void *store, struct sl_err *err);
	/* Claims in the order of their ids, past `after` (NULL: from the first), at most `limit`. */
	int (*leases)(void *store, const uint8_t after[16], uint32_t limit, sl_lease_fn *fn, void *ctx,
		      struct sl_err *err);
	/* The newest failed jobs, grouped: the largest group first, then by the newest job. What it costs depends on
	 * filter->scan, not on how many jobs there are. */
	int (*errors)(void *store, const struct sl_error_filter *filter, sl_error_group_fn *fn, void *ctx,
		      struct sl_err *err);
	/* In the order of (stream, incarnation), after *after (NULL: from the first; only those two are read). */
	int (*event_streams)(void *store, const struct sl_event_stream *after, uint32_t limit, sl_event_stream_fn *fn,
			     void *ctx, struct sl_err *err);

	/* ---- workers; NULL, all three: not supported ---- */
	/* Write the heartbeat of heartbeat->worker in place of its last one. */
	int (*heartbeat)(void *store, const struct sl_heartbeat *heartbeat, struct sl_err *err);
	/* The worker has stopped. Does nothing when a later run of it has written its own. */
	int (*heartbeat_end)(void *store, const char *worker, int64_t started_ms, struct sl_err *err);
	/* Those that have not expired, in the order of workers, at most 10,000. */
	int (*heartbeats)(void *store, sl_heartbeat_fn *fn, void *ctx, struct sl_err *err);

	/* ---- history; NULL, all three: not supported ---- */
	/* Does nothing where its bucket has a row. */
	int (*history_put)(void *store, const struct sl_history_row *row, struct sl_err *err);
	/* Make the missing rows of the step from those of the finer one, and then delete old rows of the step. */
	int (*history_roll)(void *store, const struct sl_history_roll *roll, struct sl_err *err);
	/* Rows of steps up to from->step_s that begin at from->at_s or later, by at_s, the largest step first; at most
	 * 5,000. */
	int (*history)(void *store, const struct sl_history_row *from, sl_history_fn *fn, void *ctx,
		       struct sl_err *err);

	/* ---- the audit trail; NULL, all three: not supported, and records are ignored ---- */
	/* Of changes that are made elsewhere than in the store: before them. */
	int (*audit_put)(void *store, const struct sl_audit_record *records, size_t n, struct sl_err *err);
	/* The newest first, with smaller ids than `before` (0: from the newest), at most `limit`. */
	int (*audit_list)(void *store, uint64_t before, uint32_t limit, sl_audit_record_fn *fn, void *ctx,
			  struct sl_err *err);
	/* Delete at most `limit` records from before the time, the oldest first. */
	int (*audit_prune)(void *store, int64_t before_ms, uint32_t limit, size_t *n, struct sl_err *err);

	/* ---- retention; NULL, all: not supported ---- */
	/* Delete chains, as prune does, and with their events. One that has an event above step->exported stays. */
	int (*retain_chains)(void *store, struct sl_prune_step *step, struct sl_err *err);
	/* Delete events up to step->exported that are too old, whether their job is there or not. */
	int (*retain_events)(void *store, struct sl_prune_step *step, struct sl_err *err);
	/* Delete at most step->limit marks of streams without events: those that are too old, or that a newer incarnation
	 * has followed. */
	int (*retain_marks)(void *store, struct sl_prune_step *step, struct sl_err *err);
	/* What the store has. Checkpoints of exports that were not confirmed since that time do not count. */
	int (*retention_read)(void *store, int64_t exports_since_ms, struct sl_retention_row *out, struct sl_err *err);
	/* Set the limits that are not -1. */
	int (*retention_limits)(void *store, const struct sl_retention_row *limits, struct sl_err *err);
	/* Take, keep or give back the turn. SL_ELOCKED without a text: another process has it. */
	int (*retention_turn)(void *store, const struct sl_retention_turn *turn, struct sl_err *err);
	/* Confirm an export at this time. Its checkpoint only grows. */
	int (*retention_export)(void *store, const char *name, uint64_t checkpoint, int64_t now_ms, struct sl_err *err);
};

#endif
