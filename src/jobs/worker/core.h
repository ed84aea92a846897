/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's decisions, without threads, I/O or a clock: what to send to the store next, which job a slot runs, when
 * a lease is renewed, an attempt aborted, a lost job reaped. Its driver (the shell in worker.c, a simulation in
 * tests/jobs) carries out what it says and reports the result.
 *
 * The dialogue, for each conversation c with the store (lanes 0 … lanes-1 exchange; SL__KEEPER renews, SL__REAPER reaps
 * and SL__SCHEDULER fires schedules, each nothing else, so that no renewal and no reap waits for anything but the
 * store):
 *
 *     sl__core_next(core, c, now, &todo)      what to do now; SLEEP has the time
 *        EXCHANGE  settle todo.runs[0 … n_runs-1]; when todo.claim is set, claim as todo.request says, with
 *                  sl__core_claimed for each job              ── sl__core_exchanged
 *                  (a claim whose answer was lost is sent once more, with request.again)
 *        RENEW     prolong todo.renewals[]                    ── sl__core_renewed, sl__core_lost for each lost job
 *        REAP      todo.reap_limit of all types               ── sl__core_reaped
 *        CRON      fire what is due                           ── sl__core_cron_done
 *
 * for each slot:   sl__core_take gives a run, the handler runs, sl__core_end takes its end;
 * for the clock:   at sl__core_next_abort_ns call sl__core_expire, which names the runs to abort.
 *
 *   a run:  WAITING ──take──▶ RUNNING ──end──▶ ENDED ──next──▶ SETTLING ──exchanged──▶ gone
 *              └──────── released, or out of attempts ──▶┘   ▲──── store away ───┘
 *
 * Invariants
 *  C1. A run is started only before its lease ends by this process's clock, counted from before the claim was sent.
 *  C2. A claim's lease is given up (last_of_claim) only in the transaction that settles its last run, when all others
 *      are known to be settled: a job is never live without a lease and outside of the queue.
 *  C3. Every claimed run is settled, or known to be lost, or left to the end of its lease when a stop gave up.
 *  C4. At most one conversation settles a run at a time; a settle whose fate is unknown is sent again, and the fence
 *      decides.
 *
 * Thread safety: none; the caller has one lock around every call, except that the fields of a claim and its runs belong
 * to the conversation that makes or settles them while it does (todo.claim until exchanged, todo.runs until exchanged),
 * and a running run's end fields to its slot. sl__core_claimed and sl__core_settle need no lock.
 * Ownership: claims and runs belong to the core. What a run's end fields point to is the caller's, and must live until
 * the release callback of the configuration is called with the run.
 */
#ifndef SL_JOBS_CORE_H
#define SL_JOBS_CORE_H

#include "base/env.h"
#include "jobs/store/ops.h"
#include <sluice/worker.h>

#define SL__AHEAD_NS ((int64_t)50 * 1000000)      /* claim ahead only what can start within this */
#define SL__STUCK_NS ((int64_t)1000 * 1000000)    /* a claimed job waits this long at most for a slot */
#define SL__LINGER_NS ((int64_t)1 * 1000000)      /* a settle waits this long at most for its batch-mates */
#define SL__BUSY_LINGER_NS ((int64_t)5 * 1000000) /* and this long where many of them still wait for a slot */
#define SL__BACKOFF_FIRST_NS ((int64_t)50 * 1000000)
#define SL__BACKOFF_CAP_NS ((int64_t)5000 * 1000000)
#define SL__REAP_LIMIT 100
#define SL__SETTLE_MAX 1024 /* in one exchange */
#define SL__KEEPER (-1)
#define SL__REAPER (-2)
#define SL__SCHEDULER (-3)

/* What a worker does with one type, resolved: no zero is left. */
struct sl__core_type {
	const char *name; /* borrowed */
	struct sl_retry_policy retry;
	int64_t lease_ms, renew_ms;
	int64_t timeout_ms; /* SL_UNLIMITED */
	int32_t slots;
	int64_t next_job_delay_ms; /* a slot rests this long after one of its jobs */
};

struct sl__run;

struct sl__core_cfg {
	const struct sl_env *env; /* memory and randomness only; outlives the core */
	const char *worker;       /* borrowed */
	const struct sl__core_type *types;
	size_t n_types;
	int32_t slots, claim_batch, lanes;
	int64_t poll_ms;
	int64_t heartbeat_ms; /* between two heartbeats; 0: none are sent */
	/* May be NULL. The run is about to go: free what its end fields point to. Called with the caller's lock held.
	 */
	void (*release)(struct sl__run *run, void *ctx);
	void *release_ctx;
};

enum sl__run_state {
	SL__RUN_WAITING = 1,
	SL__RUN_RUNNING = 2,
	SL__RUN_ENDED = 3,
	SL__RUN_SETTLING = 4,
	SL__RUN_GONE = 5
};

/* How a handler's attempt ended, as its slot reports it. */
enum sl__ending {
	SL__END_COMPLETE = 1,
	SL__END_CONTINUE = 2,
	SL__END_FAIL = 3,       /* for good */
	SL__END_RESCHEDULE = 4, /* delay_ms or at_ms */
	SL__END_FAILED = 5,     /* to be tried again, while attempts are left */
	SL__END_SETTLED = 6,    /* in a transaction of the handler: nothing is left to do */
	SL__END_LOST = 7,       /* not ours any more: nothing can be done */
	SL__END_UNLOGGED = 8 /* its events could not be written: released without charge, or failed (max_attempts 1) */
};

struct sl__claim;

#define SL__RUN_INLINE 40

/* Does the store accept the end of a run? After its batch was refused it is settled alone. */
enum sl__run_trust { SL__RUN_TRUSTED = 0, SL__RUN_ALONE, SL__RUN_REFUSED_ONCE, SL__RUN_REFUSED_TWICE };

/* One claimed job. */
struct sl__run {
	/* From the claim, constant. Strings live in the claim's arena. */
	struct sl__claim *claim;
	uint64_t id, chain_id, fence;
	uint64_t order; /* of arrival, over all claims */
	const char *input, *traceparent;
	int64_t created_ms, scheduled_ms;
	int32_t attempt; /* its number */
	int32_t charged; /* runs before this one that count */
	int32_t priority;
	uint32_t type; /* index */
	bool has_blockers;
	/* The core's. */
	uint8_t state;   /* enum sl__run_state */
	uint8_t abort;   /* enum sl_abort_reason: the first that applied */
	bool uncertain;  /* a settle of it was sent, and what became of it is not known */
	uint8_t suspect; /* enum sl__run_trust */
	bool declared;   /* the slot's, with the lock: the end was declared before any abort, which does not undo it */
	uint8_t lost;    /* enum sl_lost_reason: the store said so */
	bool last;       /* settling: its claim's lease goes with it */
	struct sl__run *next;
	int64_t started_ns, ended_ns;
	int64_t started_ms; /* of the store's clock; 0: never started */
	/* How it settles. kind is the core's; the rest is the slot's, before sl__core_end. */
	enum sl_settle_kind kind;
	const char *output, *error, *progress;
	const struct sl_new_job *continued;
	int64_t delay_ms, at_ms;
	void *slot;                  /* the shell's: who runs it */
	int error_code;              /* the shell's: SL_E… behind error, for observers */
	void *owned;                 /* the shell's: memory of the fields above */
	struct sl_wal_ticket ticket; /* the shell's: its last event; batch 0 and sequence 0: none */
	char text[SL__RUN_INLINE];   /* the shell's: short outputs live here */
};

/* A batch of jobs under one lease. */
struct sl__claim {
	struct sl__claim *next, *prev;
	struct sl_claim_id id;
	int lane;
	uint32_t klass;  /* types with the same lease and renewal are claimed together */
	uint32_t n, cap; /* runs */
	uint32_t n_gone;
	bool abandoned;    /* one of its runs was left to the end of the lease, which must not be given up (C2) */
	uint32_t n_picked; /* scratch of the core */
	int64_t lease_ms;
	int64_t held_ms;            /* the lease of a claim that was sent again, until it is renewed; 0: lease_ms */
	int64_t sent_ns;            /* before the claim, or the last renewal that succeeded, was sent */
	int64_t renew_ns;           /* when to renew */
	int64_t abort_ns;           /* when to give up on it: a margin before the lease ends */
	int64_t grace_ns;           /* what runs is not aborted before: set by a clock that comes too late; 0: none */
	int64_t now_ms, replied_ns; /* the store's clock, and ours, at the reply */
	bool renews;                /* scratch of the core */
	struct sl__arena *arena;
	struct sl__run *runs; /* [cap] */
};

enum sl__todo_kind {
	SL__TODO_SLEEP = 0, /* until wake_ns */
	SL__TODO_EXCHANGE = 1,
	SL__TODO_RENEW = 2,
	SL__TODO_REAP = 3,
	SL__TODO_CRON = 4,
	SL__TODO_HEARTBEAT = 5,
	SL__TODO_END = 6 /* stopping, and nothing is left for this conversation */
};

/* One per conversation; its arrays are made by sl__todo_init. */
struct sl__todo {
	enum sl__todo_kind kind;
	int who; /* the lane's number, SL__KEEPER, SL__REAPER or SL__SCHEDULER */
	int64_t wake_ns;
	int64_t sent_ns; /* when it was decided: before anything is sent */
	/* EXCHANGE */
	struct sl__run **runs;
	size_t n_runs;
	struct sl__claim *claim; /* NULL: settle only */
	struct sl_claim_request request;
	struct sl_claim_type *types; /* request.types */
	uint32_t *type_index, *seen; /* of types[]: the core's */
	int refused;                 /* the code with which sl__core_claimed failed; 0 */
	bool answered;               /* the claim was */
	/* RENEW */
	struct sl_renewal *renewals;
	size_t n_renewals, cap_renewals;
	uint64_t *ids; /* what renewals point into: ids, then fences */
	size_t cap_ids;
	/* REAP */
	uint32_t reap_limit;
};

struct sl__core_stats {
	uint64_t claimed, completed, failed, retried, lost, reaped, released, renewals;
	uint64_t exchanges, polls, notified;
	uint64_t abandoned; /* runs that were given up */
	uint32_t busy;      /* handlers that run now */
	uint32_t open;      /* claimed now, and not known to be settled or lost */
	bool connected;
};

/* How the store answered an exchange. rc 0: results, one for each run, and, with a claim, reply are filled; without one
 * only its epoch and clock are read, and it may be NULL. */
struct sl__answer {
	int rc;
	const struct sl_err *err; /* of a failure */
	const struct sl_settle_result *results;
	const struct sl_claim_reply *reply;
};

/* How an offer was accepted. */
struct sl__offer_accepted {
	int rc;
	int64_t sent_ns; /* before the claim was made */
	int64_t now_ms;  /* the store's clock */
};

/* A job that the store says is not ours any more. */
struct sl__loss {
	uint64_t id, fence;
	enum sl_lost_reason reason;
};

struct sl__core;

SL_MUST_CHECK int sl__core_new(struct sl__core **out, const struct sl__core_cfg *cfg, int64_t now_ns,
			       struct sl_err *err);
/* Claims and runs that are left are released. NULL is allowed. */
void sl__core_free(struct sl__core *core);
SL_MUST_CHECK int sl__todo_init(struct sl__todo *todo, const struct sl__core *core, int who, struct sl_err *err);
/* Before the core's end. A claim that was never answered goes with it. */
void sl__todo_fini(struct sl__todo *todo, const struct sl__core *core);

/* ---- conversations with the store ---- */

/* Decide. Everything but SLEEP and END must be answered by its call below before the next sl__core_next of `who`. */
void sl__core_next(struct sl__core *core, int64_t now_ns, struct sl__todo *todo);
/* Should a lane that sleeps be woken? Cheap: asked after every ended run. */
bool sl__core_ready(const struct sl__core *core, int lane, int64_t now_ns);
/* When the keeper, the reaper, or the scheduler has something to do. */
int64_t sl__core_wake_ns(const struct sl__core *core, int who, int64_t now_ns);
/* After sl__core_exchanged: did the claim of that exchange find what the note speaks of, so that no one need hear
 * of it? */
bool sl__core_satisfied(const struct sl__core *core, const struct sl__todo *todo, const struct sl_note *note);

/* A job that the store gave for todo->claim: copied. No lock. SL_ENOMEM, SL_EDATA (a type that was not asked for). */
SL_MUST_CHECK int sl__core_claimed(const struct sl__core *core, struct sl__todo *todo,
				   const struct sl_claimed_job *job);
/* The settle to send for a run of todo, without a lock; or, with the lock, for a running one that its handler settles in
 * its own transaction, which gives up the lease when C2 allows it. run->kind is set. */
void sl__core_settle(const struct sl__core *core, const struct sl__run *run, struct sl_settle *out);
/* Before sl__core_exchanged: did the exchange fail for the data of its runs, which the store has answered and refused?
 * No lock. */
bool sl__core_refused(const struct sl__todo *todo, int rc, const struct sl_err *err);
/* Has the run settled as it should? A settle that was sent before, and whose answer was lost, may be found done. */
bool sl__core_done(const struct sl__run *run, const struct sl_settle_result *result);
/* A run that todo is about to settle must not settle so: it becomes a failed attempt with this text (copied). Not
 * charged: its events could not be written, as SL__END_UNLOGGED. */
void sl__core_refuse(struct sl__core *core, struct sl__run *run, bool charged, const char *error);
/*
 * The exchange has returned. Data that was refused (poison) makes the runs be settled one by one, and the culprit as a
 * failed attempt with the error's text, which is copied; after any other failure they are settled again later.
 */
void sl__core_exchanged(struct sl__core *core, struct sl__todo *todo, const struct sl__answer *answer, int64_t now_ns);

/* ---- offers: see core_next.c ---- */

/* How many types have an idle slot that could be offered. */
size_t sl__core_may_offer(const struct sl__core *core, int64_t now_ns);
/* Fill offer, except its callback, and types[n_types]. todo is that of the offer, not the lane's own. False: nothing is
 * offered. Then call one of the two below, and before sl__core_offer_accepted also sl__core_claimed if it has a job. */
SL_MUST_CHECK bool sl__core_offer(struct sl__core *core, int64_t now_ns, struct sl__todo *todo, struct sl_offer *offer,
				  struct sl_offer_type *types);
void sl__core_withdrawn(struct sl__core *core, struct sl__todo *todo);
void sl__core_offer_accepted(struct sl__core *core, struct sl__todo *todo, const struct sl__offer_accepted *accepted,
			     int64_t now_ns);

/* Called when a running handler must be aborted: once per run. */
typedef void sl__abort_fn(struct sl__run *run, enum sl_abort_reason reason, void *ctx);

/* fn is called when the handler of the lost job runs. */
void sl__core_lost(struct sl__core *core, const struct sl__loss *loss, sl__abort_fn *fn, void *ctx);
void sl__core_renewed(struct sl__core *core, struct sl__todo *todo, int rc, int64_t now_ns);
void sl__core_reaped(struct sl__core *core, int rc, const struct sl_reaped *reaped, int64_t now_ns);
/* The store's clock was heard, in ms: a tick that it shows to be nearer is brought forward. sl__core_exchanged does so
 * by itself. */
void sl__core_store_clock(struct sl__core *core, int64_t store_ms, int64_t now_ns);
/* The store's clock now, by its last answer, which is a query less; 0: there was none. */
int64_t sl__core_store_ms(const struct sl__core *core, int64_t now_ns);
/* tick_ms: the next tick, by the store's clock; -1: none known. */
void sl__core_cron_done(struct sl__core *core, int rc, int64_t tick_ms, int64_t now_ns);
void sl__core_heartbeat_done(struct sl__core *core, int rc, int64_t now_ns);

/* A notification: kind 0, check everything. */
void sl__core_note(struct sl__core *core, const struct sl_note *note, int64_t now_ns);

/* ---- slots ---- */

/* The next run to start, or NULL. Its started_ns, started_ms and attempt are set. */
struct sl__run *sl__core_take(struct sl__core *core, int64_t now_ns);
/* Does a run wait that a slot could take now? Then the taker wakes another one. */
bool sl__core_waiting(const struct sl__core *core);
/* The attempt is over. error and so on are in the run. With a next_job_delay_ms of its type the slot counts as resting after it,
 * until sl__core_rested. */
void sl__core_end(struct sl__core *core, struct sl__run *run, enum sl__ending ending, int64_t now_ns);
void sl__core_rested(struct sl__core *core);

/* While paused nothing is claimed or offered, and what was claimed and has not started is released. */
void sl__core_pause(struct sl__core *core, bool paused, int64_t now_ns);

/* ---- time ---- */

/* When to call expire at the latest; SL_FOREVER. May be early. */
int64_t sl__core_next_abort_ns(const struct sl__core *core);
/* Abort what is over its timeout, or whose lease could not be renewed. shielded: a renewal waits for the store's lock,
 * and so would everybody who could take the jobs back. */
void sl__core_expire(struct sl__core *core, int64_t now_ns, bool shielded, sl__abort_fn *fn, void *ctx);

/* ---- stop ---- */

/* Claim nothing more and give back what has not started. */
void sl__core_stop(struct sl__core *core, int64_t now_ns);
/* Abort every running handler (shutdown). Returns how many. */
size_t sl__core_abort_all(struct sl__core *core, sl__abort_fn *fn, void *ctx);
/* From now on (stopping, all handlers back) a failed exchange is not repeated: its runs are left to their leases. */
void sl__core_give_up(struct sl__core *core);

/* Lives as long as the core. */
const struct sl__core_stats *sl__core_stats(const struct sl__core *core);

#endif
