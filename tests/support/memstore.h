/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job store in memory: the model that the simulation runs on, and the third store that passes the contract suite.
 * Plain arrays and loops over all rows, so that its rules can be read off. Its clock is the environment's real_ms.
 *
 * It keeps no promise about durability, and it can be made to misbehave: to be unavailable, to lose an answer after it has
 * applied the operation, and to break one of its promises (enum memstore_break), which shows that a check finds it.
 *
 * Thread safety: any thread; one mutex. A transaction keeps every other caller waiting until it ends, so the thread
 * that has one open must not call the store without it.
 * Ownership: strings live until the store is freed.
 */
#ifndef TESTS_MEMSTORE_H
#define TESTS_MEMSTORE_H

#include <stdbool.h>

#include "jobs/store/ops.h"

struct memstore;

struct memstore *memstore_new(const struct sl_env *env);
void memstore_free(struct memstore *ms);
/* A handle. Any number; its close slot does nothing. */
sl_store memstore_handle(struct memstore *ms);

/* ---- faults ---- */

enum memstore_fault {
	MEMSTORE_OK = 0,
	MEMSTORE_FAIL_BEFORE = 1, /* SL_EUNAVAIL, nothing happened */
	MEMSTORE_FAIL_AFTER = 2,  /* SL_EUNAVAIL, but it happened, and callbacks were called */
	MEMSTORE_AGAIN = 3        /* SL_EAGAIN, nothing happened */
};
/* Asked once per operation (op: the slot's name). Called with the store locked. */
typedef enum memstore_fault memstore_fault_fn(const char *op, void *ctx);
void memstore_set_faults(struct memstore *ms, memstore_fault_fn *fn, void *ctx);

/* One promise broken, for tests of the tests. */
enum memstore_break {
	MEMSTORE_SOUND = 0,
	MEMSTORE_NO_FENCE,           /* a settle is taken whatever its fence and the job's status */
	MEMSTORE_UNBLOCK_EARLY,      /* the first completed blocker opens a job */
	MEMSTORE_UNBLOCK_ENDED,      /* a completed blocker opens what was cancelled meanwhile too */
	MEMSTORE_UNBLOCK_NEVER,      /* the end of a chain of several jobs opens nothing */
	MEMSTORE_TORN_CONTINUE,      /* a continuation completes its job and, now and then, makes no next one */
	MEMSTORE_REAP_LIVE,          /* leases are taken back before they have run out, with the fence left as it was */
	MEMSTORE_CLAIM_TWICE,        /* a claim leaves its jobs where others can claim them */
	MEMSTORE_LEASE_LOST,         /* an expired lease is removed without giving its jobs back */
	MEMSTORE_LOSS_FREE,          /* a job that was started, and whose worker died, is not charged */
	MEMSTORE_LOSS_WITHOUT_DELAY, /* a job that is lost again can be claimed immediately */
	MEMSTORE_SOLO_AHEAD,         /* a job that was lost is claimed without a free slot */
	MEMSTORE_AGAIN_FORGETS,      /* a claim whose answer was lost is not found again */
	MEMSTORE_REDRIVE_COMPLETED,  /* redrive takes completed chains too */
	MEMSTORE_FAIL_SAME_FENCE,    /* a chain that is failed from outside keeps its fence */
	MEMSTORE_SETTLE_FAILED,      /* a settle is taken when its chain was failed from outside meanwhile */
	MEMSTORE_OFFER_QUEUED,       /* a job that is handed over is left where others can claim it */
	MEMSTORE_CRON_ANY_TICK,      /* a schedule is fired whatever tick it is at */
	MEMSTORE_CRON_STAYS,         /* a schedule is fired and, now and then, not moved on */
	MEMSTORE_CRON_NO_JOB,        /* a schedule is moved on and, now and then, makes no job */
	MEMSTORE_EVENTS_TWICE,       /* an event that comes again is taken again */
	MEMSTORE_EVENTS_LOST,        /* the mark moves over an event that is, now and then, not stored */
	MEMSTORE_EVENTS_OFFSETS,     /* an event that comes again uses up an offset */
	MEMSTORE_EVENTS_ANY_CRC,     /* the CRC of what comes again is not compared */
	MEMSTORE_EVENTS_NEVER_LATE   /* no event is marked */
};
void memstore_set_break(struct memstore *ms, enum memstore_break which);
/* As after a restore from a backup, at the end of a transaction: the last offset that was there then, at most after. */
uint64_t memstore_lose_events(struct memstore *ms, uint64_t after);
/* The mark of a stream, 0 when it has none; true: with the CRC of its event. */
bool memstore_mark(struct memstore *ms, const char *stream, uint32_t incarnation, uint64_t *sequence, uint64_t *crc);

/* ---- offers: the store has no list of them; who calls this has taken one from its own ---- */
struct memstore_handed {
	struct sl_started started;
	struct sl_claimed_job job; /* id 0: its type is paused, and it was queued */
	int64_t now_ms;
};
/* Start a job that is due and claim it for the offer, in one. */
int memstore_start_offered(struct memstore *ms, const struct sl_new_job *job, const struct sl_offer *offer,
			   int64_t lease_ms, struct memstore_handed *out, const struct sl_store_scope *scope,
			   struct sl_err *err);

/* The job of a claim of one, if it is still under that; job.id 0: no such job. now_ms: since when. */
void memstore_find_claimed(struct memstore *ms, const struct sl_claim_id *claim, struct memstore_handed *out);

/* ---- looking inside, for invariants: the row of a job as it is, nothing derived ---- */
struct memstore_row {
	uint64_t id, chain_id, prev_id, next_id, fence;
	const char *type, *output;
	enum sl_job_status status; /* pending also while it runs */
	int32_t attempt, charged;
	int gone;          /* deleted */
	int ready, sched;  /* where claims look */
	int solo;          /* to be claimed alone */
	int leases;        /* in how many leases with its present fence */
	uint32_t blockers; /* in all, and open */
	uint32_t open;
	int64_t lease_until_ms; /* 0: no lease */
};
/* Rows in order of id, from 1; the number of rows ever made. */
size_t memstore_rows(struct memstore *ms);
void memstore_row(struct memstore *ms, uint64_t id, struct memstore_row *out);
/* Blocker i of a job: the chain, and whether the job still waits for it. */
uint64_t memstore_blocker(struct memstore *ms, uint64_t id, uint32_t i, int *open);

#endif
