/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The PostgreSQL store inside: its handle, its statements, and a call: the conversation of one slot with the server.
 *
 * Thread safety: the handle from any thread; a call belongs to the thread that opened it.
 */
#ifndef SL_JOBS_STORE_POSTGRES_STORE_H
#define SL_JOBS_STORE_POSTGRES_STORE_H

#include "db/postgres.h"
#include "flow/join.h"
#include "jobs/store/claims.h"
#include "jobs/store/cold.h"
#include "jobs/store/event_admit.h"

/* Every statement that is prepared, and then those that are too rare for that; sql.c has the texts. */
#define SL__PG_STORE_STATEMENTS(X)                                                                                     \
	X(NOW)                                                                                                         \
	X(ASYNC)                                                                                                       \
	X(STRICT)                                                                                                      \
	X(RELAXED)                                                                                                     \
	X(START)                                                                                                       \
	X(START_ONE)                                                                                                   \
	X(START_OFFERED)                                                                                               \
	X(START_NOTIFIED)                                                                                              \
	X(FLUSH)                                                                                                       \
	X(START_AUDITED)                                                                                               \
	X(AUDIT)                                                                                                       \
	X(START_FULL)                                                                                                  \
	X(LOCK_SHARE)                                                                                                  \
	X(LOCK)                                                                                                        \
	X(MISSING)                                                                                                     \
	X(SETTLE_FAST)                                                                                                 \
	X(SETTLE)                                                                                                      \
	X(UNBLOCK)                                                                                                     \
	X(PROMOTE)                                                                                                     \
	X(CLAIM_ONE_TYPE)                                                                                              \
	X(CLAIM_HINTED)                                                                                                \
	X(CLAIM_TYPES)                                                                                                 \
	X(LOST)                                                                                                        \
	X(GUARD)                                                                                                       \
	X(PROGRESS)                                                                                                    \
	X(RENEW)                                                                                                       \
	X(RENEW_LOST)                                                                                                  \
	X(REAP)                                                                                                        \
	X(NEXT_EXPIRY)                                                                                                 \
	X(CLAIM_STANDING)                                                                                              \
	X(HEADS)                                                                                                       \
	X(END)                                                                                                         \
	X(REDRIVE)                                                                                                     \
	X(TRIGGER)                                                                                                     \
	X(WAITING)                                                                                                     \
	X(DELETE)                                                                                                      \
	X(PRUNABLE)                                                                                                    \
	X(PAUSE)                                                                                                       \
	X(RESUME)                                                                                                      \
	X(WATCH)                                                                                                       \
	X(GET_JOB)                                                                                                     \
	X(GET_CHAIN)                                                                                                   \
	X(ATTEMPTS)                                                                                                    \
	X(OUTSTANDING)                                                                                                 \
	X(FOLD_TALLY)                                                                                                  \
	X(CRON_PUT)                                                                                                    \
	X(CRON_REMOVE)                                                                                                 \
	X(CRON_LIST)                                                                                                   \
	X(CRON_FIRE)                                                                                                   \
	X(EVENT_MARKS)                                                                                                 \
	X(EVENT_KNOWN)                                                                                                 \
	X(EVENT_INSERT)                                                                                                \
	X(EVENT_OFFSET)                                                                                                \
	X(EVENT_COPY)                                                                                                  \
	X(EVENT_ADVANCE)                                                                                               \
	X(EVENTS_OF_JOB)                                                                                               \
	X(EVENTS_NEWEST)                                                                                               \
	X(EVENTS_ALL)                                                                                                  \
	X(CIRCLE_LOCK)                                                                                                 \
	X(CIRCLE)                                                                                                      \
	X(CLAIM_AGAIN)                                                                                                 \
	X(ERRORS)                                                                                                      \
	X(ERRORS_REACHED)                                                                                              \
	X(LOCK_BLOCKERS)                                                                                               \
	X(PRUNE_EVENTS)                                                                                                \
	X(BLOCKERS_GONE)                                                                                               \
	X(TAKE_KEYS)                                                                                                   \
	X(KEYS_HELD)                                                                                                   \
	X(START_FULL_AUDITED)                                                                                          \
	X(AUDIT_LIST)                                                                                                  \
	X(AUDIT_PRUNE)                                                                                                 \
	X(MARK_HTTP)                                                                                                   \
	X(EVENT_NAME_LOCK)                                                                                             \
	X(EVENT_OWNERS)                                                                                                \
	X(EVENT_OWN)                                                                                                   \
	X(EVENT_ADOPT)                                                                                                 \
	X(REQUEST_TAKE)                                                                                                \
	X(REQUEST_GET)                                                                                                 \
	X(REQUEST_ANSWER)                                                                                              \
	X(REQUEST_PRUNE)                                                                                               \
	X(PRUNE_MARKS)                                                                                                 \
	X(RETAIN_PAGE)                                                                                                 \
	X(RETAIN_EVENTS)                                                                                               \
	X(RETAIN_MARKS_FOUND)                                                                                          \
	X(RETAIN_MARKS)                                                                                                \
	X(RETENTION_READ)                                                                                              \
	X(RETENTION_LIMITS)                                                                                            \
	X(RETENTION_TURN)                                                                                              \
	X(RETENTION_EXPORT)                                                                                            \
	X(PRUNE_SOME_EVENTS)                                                                                           \
	X(LEASES)                                                                                                      \
	X(EVENT_STREAMS)                                                                                               \
	X(TARGET_ID)                                                                                                   \
	X(HEARTBEAT)                                                                                                   \
	X(HEARTBEAT_SWEEP)                                                                                             \
	X(HEARTBEAT_END)                                                                                               \
	X(HEARTBEATS)                                                                                                  \
	X(HISTORY_PUT)                                                                                                 \
	X(HISTORY_ROLL)                                                                                                \
	X(HISTORY_PRUNE)                                                                                               \
	X(HISTORY)

enum pg_statement {
#define PG_STATEMENT_ENUM(name) ST_##name,
	SL__PG_STORE_STATEMENTS(PG_STATEMENT_ENUM)
#undef PG_STATEMENT_ENUM
		ST_COUNT
};
_Static_assert(ST_CIRCLE < SL__PG_STATEMENTS, "a statement of the ways that are often gone is not prepared");

/* Payloads of events in one answer: all but the last one are below it together. */
#define SL__PG_EVENTS_BYTES 8388608

/* The first line of j's error, cut: SL_ERROR_LINE_CHARS. */
#define SL__PG_ERROR_LINE "left(split_part(coalesce(j.error, ''), E'\\n', 1), 500)"

/* How the error of ST_CIRCLE begins, before the two chains. */
#define SL__PG_CIRCLE "sluice-circle "

/* sql.c: the texts, with {s} where the schema goes. */
extern const char *const sl__pg_sql[ST_COUNT];
extern const char *const sl__pg_sql_names[ST_COUNT];
/* The text with the schema in place, in fresh memory; NULL without memory. */
char *sl__pg_render(const struct sl_env *env, const char *sql, const char *schema);

/* Where claims of a type begin to look: everything of this priority with a smaller id was taken when it was set. */
struct pg_mark {
	char *type;
	int32_t priority;
	int64_t id; /* 0: no mark */
};

struct pg_store {
	struct sl__cold_store cold; /* first: cold.c knows the store by it */
	struct sl_env env;
	sl__pg_pool *pool;
	sl__pg_pool *renewals; /* one connection for renewals only, so that they wait for no other call */
	char *schema;          /* as given: letters, digits and underscores only */
	bool may_create;
	struct sl__pg_stmt statements[ST_COUNT];
	sl__mutex marks_mu;
	struct pg_mark *marks; /* under marks_mu */
	size_t n_marks, cap_marks;
	int64_t marks_reset_ns;                 /* when they were last forgotten */
	int64_t folded_ns;                      /* when rows of tally were last summed up */
	int64_t pruned_before_ms, pruned_after; /* under marks_mu: how far which row of prunes has come */
	bool pruned_some;                       /* marks_mu: and whether it has deleted any since it began */
	struct sl__join starts;                 /* calls that share a transaction */
	sl__mutex offers_mu;
	struct sl_offer *offers; /* under offers_mu: the oldest first */
};

struct sl_store_tx {
	struct sl__pg_tx pg; /* first: the notifier knows it by this */
	struct pg_store *store;
	struct sl__pg_conn joined; /* pg.conn points here when the caller's connection is used */
	bool ours;                 /* the transaction was begun here: commit and rollback end it */
};

/* ---- the slots, each in the file of its task ---- */
#define PG_DECLARE_SLOT(slot) SL__STORE_SLOT(sl__pg_, slot);
SL__STORE_SLOTS(PG_DECLARE_SLOT)
#undef PG_DECLARE_SLOT

/* ---- call.c ---- */

enum pg_call_kind {
	PG_ONCE = 1,   /* one run, which is a transaction by itself */
	PG_LONG = 2,   /* several runs: begun with the first, committed with the last */
	PG_RENEWAL = 3 /* one run, on the connection for renewals */
};

/*
 * One slot at work. Inside a caller's transaction everything happens after a savepoint, so that a failure leaves
 * nothing of it there and the transaction continues.
 */
struct pg_call {
	struct pg_store *store;
	sl_store_tx *tx;
	sl__pg_pool *pool; /* where conn comes from, without tx */
	struct sl__pg_conn *conn;
	struct sl__pg_pipe pipe;
	struct sl__pg_params params;
	enum pg_call_kind kind;
	bool begun;                          /* BEGIN or SAVEPOINT has been sent */
	bool finished;                       /* committed or released */
	const struct sl_audit_record *audit; /* what its last run writes */
	size_t n_audit;
};

SL_MUST_CHECK int sl__pg_call_open(struct pg_call *call, struct pg_store *store, sl_store_tx *tx,
				   enum pg_call_kind kind, struct sl_err *err);
/* The change that the call makes is recorded, by its last run. scope may be NULL. */
void sl__pg_call_audit(struct pg_call *call, const struct sl_store_scope *scope);
/* Did it come over HTTP? */
bool sl__pg_from_http(const struct sl_store_scope *scope);
/* Undoes what was not finished, gives the connection back. Does nothing to a call that could not be opened, so that it
 * serves as SL_CLEANUP. */
void sl__pg_call_close(struct pg_call *call);
/* Queue a statement with call->params, which are cleared; its number. */
int sl__pg_call_send(struct pg_call *call, enum pg_statement statement);
int sl__pg_call_send_sql(struct pg_call *call, const char *sql);
/* Run what is queued. last: and commit. */
SL_MUST_CHECK int sl__pg_call_run(struct pg_call *call, bool last, struct sl_err *err);
/* Run what is queued in one transaction, PG_ONCE, and after it the statement, with call->params, in a second one:
 * see sl__pg_run_then. */
SL_MUST_CHECK int sl__pg_call_run_then(struct pg_call *call, enum pg_statement then, bool *done, struct sl_err *err);
static inline const PGresult *sl__pg_call_result(const struct pg_call *call, int statement)
{
	return sl__pg_result(&call->pipe, statement);
}
/* A statement alone: open, send, run. The caller fills the parameters between open and this. */
SL_MUST_CHECK int sl__pg_call_one(struct pg_call *call, enum pg_statement statement, const PGresult **res,
				  struct sl_err *err);

/* SQL that is planned each time, with the planner's defaults, in its own call; but not by reading a table from end to
 * end where there is an index. */
SL_MUST_CHECK int sl__pg_call_run_relaxed(struct pg_call *call, const char *sql, const PGresult **res,
					  struct sl_err *err);

/* The error of a statement that puts edges to blockers: a NULL there is a blocker that does not exist. Also of
 * ST_CIRCLE. */
int sl__pg_blocker_error(int rc, struct sl_err *err);
/* The jobs that ST_UNBLOCK opened. */
void sl__pg_report_unblocked(struct pg_store *s, const PGresult *res, const struct sl_store_scope *l);

/* ---- tx.c ---- */
/*
 * What keeps plans as they are: one generic plan per statement, and only nested loops over indexes, since a plan that
 * was made while a table was empty stays when it is full. Without JIT, which the costs of that would call for. These
 * hold on pooled connections, except for the caller's own SQL inside a transaction. X(name, value)
 */
#define SL__PG_PLANNER(X)                                                                                              \
	X(plan_cache_mode, force_generic_plan)                                                                         \
	X(enable_seqscan, off)                                                                                         \
	X(enable_bitmapscan, off)                                                                                      \
	X(enable_hashjoin, off)                                                                                        \
	X(enable_mergejoin, off)                                                                                       \
	X(enable_material, off)                                                                                        \
	X(max_parallel_workers_per_gather, 0)                                                                          \
	X(jit, off)

/* ---- schema.c ---- */
int sl__pg_migrate(void *store, int *from, int *to, struct sl_err *err);
/* SL_EUNSUPPORTED when the schema is not of this library's version. */
int sl__pg_schema_check(struct pg_store *s, struct sl_err *err);

/* ---- start.c, start_full.c ---- */
/* A call of the slot start. */
struct pg_start {
	sl_store_tx *tx;
	const struct sl_new_chain *chains;
	size_t n;
	struct sl_started *out;
	const struct sl_store_scope *scope;
};
/* With keys or blockers. */
int sl__pg_start_full(struct pg_store *s, const struct pg_start *start, struct sl_err *err);
/* Report a new job: created, and blocked, or to be claimed. */
enum pg_created { PG_CREATED_READY = 0, PG_CREATED_SCHEDULED = 1, PG_CREATED_BLOCKED = 2 };
void sl__pg_report_created(const struct sl_store_scope *l, uint64_t id, uint64_t chain_id, const char *type,
			   enum pg_created how);

/* ---- offer.c ---- */
void sl__pg_offer(void *store, struct sl_offer *offer);
int sl__pg_withdraw(void *store, struct sl_offer *offer);
/* Start one chain, plain and due, for a worker that has offered to run it. False: no offer. */
struct pg_start_result {
	int rc;
	struct sl_err err;
	uint64_t chain_id;
	bool queued; /* it is in the queue after all */
};
bool sl__pg_start_offered(struct pg_store *s, const struct sl_new_job *job, struct pg_start_result *out);

/* ---- settle.c, claim.c ---- */

/* Settling within a call: queued, then read after the run. */
struct pg_settling {
	const struct sl_settle *settles;
	size_t n;
	size_t *order;             /* numbers of the settles, by id */
	int64_t *claims;           /* hashes of their claims, in the order of settles */
	bool fast;                 /* all of them complete chains of one job */
	int at_settle, at_unblock; /* numbers of the statements; at_unblock -1: none */
};
SL_MUST_CHECK int sl__pg_settle_send(struct pg_call *call, struct pg_settling *st, struct sl_err *err);
/* Fill results, ask why those that did not match were lost, call the listeners. */
void sl__pg_settle_read(struct pg_call *call, const struct pg_settling *st, struct sl_settle_result *results,
			const struct sl_store_scope *scope);
void sl__pg_settle_fini(struct pg_call *call, struct pg_settling *st);

struct pg_claiming {
	const struct sl_claim_request *request;
	bool marked;    /* it began at a mark: nothing found means little */
	bool lock_all;  /* every type to its limit, whatever the others have */
	bool bare;      /* there is nothing but the claim */
	bool hinted;    /* and nothing is known to be due */
	bool quick;     /* so it was sent as the quick statement: see claim_hinted in sql.c */
	int at;         /* number of the statement */
	int at_promote; /* and of the one that moves what is due; -1: none */
	bool promoted;  /* something was moved, perhaps to below the mark */
	bool passed;    /* as it was hinted, it has skipped some */
	uint32_t n;     /* claimed */
	uint32_t out;   /* taken out of ready: more than n when rows were there that their jobs had left */
	uint32_t seen;  /* by the search before the locks (several types) */
};
void sl__pg_claim_send(struct pg_call *call, struct pg_claiming *cl);
/* Count, set the marks, fill reply. */
void sl__pg_claim_read(struct pg_call *call, struct pg_claiming *cl, struct sl_claim_reply *reply);
SL_MUST_CHECK int sl__pg_claim_report(struct pg_call *call, const struct pg_claiming *cl, sl_claimed_fn *claimed,
				      void *claimed_ctx);
/* The settle that gives back the job of a row of the claim. */
void sl__pg_claim_release(const PGresult *res, int row, const struct sl_claim_request *request, struct sl_settle *out);
/* Something was put back into the queue. */
void sl__pg_marks_forget(struct pg_store *s);
void sl__pg_marks_free(struct pg_store *s);

/* Jobs that may not be under their fences any more. */
struct pg_lost {
	const uint64_t *ids, *fences;
	enum sl_lost_reason *reasons; /* to be set where one is not */
	size_t n;
};
/* A separate round trip, which leaves the results of the call as they are. */
SL_MUST_CHECK int sl__pg_lost_reasons(struct pg_call *call, const struct pg_lost *jobs, struct sl_err *err);
/* Of one row of ST_LOST, ST_GUARD or ST_RENEW_LOST. */
enum sl_lost_reason sl__pg_reason(const PGresult *res, int row);

/* ---- chains.c ---- */
/* Lock the heads of chains in order of id. SL_ENOENT names one that is unknown. *heads: the result of ST_HEADS, until
 * the end of the pipeline. */
SL_MUST_CHECK int sl__pg_lock_heads(struct pg_call *call, struct sl_ids chains, const PGresult **heads,
				    struct sl_err *err);

/* ---- audit.c ---- */
/* A record as parameters of ST_AUDIT, but for its chains. */
void sl__pg_add_record(struct sl__pg_params *p, const struct sl_audit_record *record);

/* ---- cold.c ---- */
extern const struct sl__cold_ops sl__pg_cold_ops;
void sl__pg_add_values(struct sl__pg_params *p, const struct sl__cold_query *q);
/* Pass the rows on. */
int sl__pg_cold_rows(const PGresult *res, const struct sl__cold_query *q);

/* ---- stats.c ---- */
/* The smallest id of those that wait in a queue, to be run now or later; 0: none does. */
int sl__pg_oldest_pending(struct pg_store *s, uint64_t *out, struct sl_err *err);
int sl__pg_check_writable(void *store, struct sl_err *err);

/* ---- events.c ---- */
/* The time that the store keeps. */
int64_t sl__pg_event_ms(const struct sl_event_row *e);
/* events_copy.c: new events, within a call that is several runs long. */
SL_MUST_CHECK int sl__pg_events_copy(struct pg_call *call, const struct sl__event_admission *a, struct sl_err *err);

#endif
