/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the worker's core, shared by core*.c; everybody else goes by core.h. */
#ifndef SL_JOBS_CORE_PRIV_H
#define SL_JOBS_CORE_PRIV_H

#include "flow/retry.h"
#include "jobs/worker/core.h"

#define CORE_CRON_NS ((int64_t)60000 * 1000000)    /* schedules are read this often at least */
#define CORE_CRON_MIN_NS ((int64_t)5000 * 1000000) /* and not more often for a hint */
#define CORE_REAP_MS 1000  /* check other workers' leases at least this often: expiry needs no notification */
#define CORE_CLOCK_MS 1000 /* the store's clock and ours have parted: answers take less */

static inline int64_t core_add(int64_t at_ns, int64_t ns)
{
	int64_t sum;
	return __builtin_add_overflow(at_ns, ns, &sum) ? SL_FOREVER : sum;
}

static inline int64_t core_ms(int64_t ms)
{
	int64_t ns;
	return __builtin_mul_overflow(ms, (int64_t)1000000, &ns) ? SL_FOREVER : ns;
}

/* How long the claim's lease lasts, from when it was taken or renewed. */
static inline int64_t core_held_ns(const struct sl__claim *c)
{
	return core_ms(c->held_ms > 0 ? c->held_ms : c->lease_ms);
}

/* Runs in the order in which they came. */
struct core_list {
	struct sl__run *head, *tail;
	uint32_t n;
};

struct core_type {
	struct sl__core_type cfg;
	uint32_t klass;
	struct core_list waiting;
	uint32_t running;
	uint32_t reserved; /* asked for by claims under way */
	int64_t avg_ns;    /* how long handlers run; -1: not known yet */
	uint32_t hints;    /* counts what speaks for a claim: a claim sent before the last one proves nothing */
	bool dry;          /* the last claim took all that was there */
};

/* Types with one lease are claimed together. */
struct core_class {
	int64_t lease_ms, renew_ms;
	int64_t poll_ns;    /* dry types are claimed for again: the poll, or the next due job */
	int64_t expiry_ns;  /* when the next lease ends, as last heard; SL_FOREVER: none known */
	uint32_t in_flight; /* claims under way */
	bool wet;           /* the last claim found as many as it asked for */
	bool once;          /* max_attempts 1: never claimed ahead of a free slot, so that at most once is exact */
	bool alone;         /* what is left is given only for a free slot */
};

struct core_lane {
	struct core_list ended; /* to settle; suspects are at its head */
	uint32_t waiting;       /* of its claims */
	uint32_t open;          /* of its claims: not gone */
	bool armed;             /* it sleeps with the time of a linger, or is about to */
	bool under_way;         /* an exchange */
	uint32_t next_class;
};

struct sl__core {
	const struct sl_env *env;
	struct sl__core_cfg cfg;
	struct core_type *types;
	size_t n_types;
	struct core_class *classes;
	size_t n_classes;
	struct core_lane *lanes;
	struct sl__claim *claims; /* open */
	struct sl__claim *lost;   /* whose answers were lost: the store is asked again, by the next exchange */
	struct sl__claim *spare;  /* kept to be used again */
	uint32_t n_spare;
	uint64_t order;
	uint32_t waiting, resting, reserved;
	int64_t avg_ns;      /* of all handlers; -1 */
	int64_t last_end_ns; /* of any handler */
	int64_t backoff_ns;  /* lanes wait until then */
	uint32_t failures;   /* in a row */
	bool stopping, giving_up, paused;
	bool rests;     /* after jobs of some type a slot rests */
	uint64_t epoch; /* of the store, in its last reply */
	/* the keeper's */
	int64_t renew_ns; /* not later than the first renewal that is due */
	uint32_t renew_failures;
	/* the reaper's */
	int64_t reap_ns, reaped_ns, reaper_backoff_ns;
	uint32_t reaper_failures;
	/* the scheduler's */
	int64_t cron_ns, cron_done_ns;
	int64_t tick_ms;            /* the next tick, by the store's clock; -1: none known */
	int64_t store_ms, store_ns; /* the store's clock as last heard, and ours then; 0: not yet */
	uint32_t cron_failures;
	int64_t heartbeat_ns;
	int64_t abort_ns;
	struct sl__prng prng, prng2;
	struct sl__core_stats stats;
};

/* core.c */
void sl__core_push(struct core_list *list, struct sl__run *run);
void sl__core_push_front(struct core_list *list, struct sl__run *run);
/* Cheap for the first one. */
void sl__core_remove(struct core_list *list, struct sl__run *run);
struct sl__claim *sl__core_claim_get(struct sl__core *core, uint32_t cap);
/* To the spare ones, or free. */
void sl__core_claim_put(struct sl__core *core, struct sl__claim *claim);
const char *sl__core_text(const struct sl_env *env, struct sl__arena *arena, const char *text);
void sl__core_note_type(struct sl__core *core, struct core_type *type);

/* core_slot.c */
/* A waiting run leaves its queue; the caller puts it somewhere. */
void sl__core_unqueue(struct sl__core *core, struct sl__run *run);
/* A waiting run that will not start: it settles as kind. */
void sl__core_give_back(struct sl__core *core, struct sl__run *run, enum sl_settle_kind kind, const char *error,
			int64_t now_ns);
void sl__core_release_waiting(struct sl__core *core, int64_t now_ns);
/* Nothing is left to do for the run. */
void sl__core_gone(struct sl__core *core, struct sl__run *run);
/* The run has settled: count it, and expect its job when it can be claimed again. */
void sl__core_settled(struct sl__core *core, const struct sl__run *run, int64_t now_ns);
/* The attempt has failed: retry or fail. */
void sl__core_set_failure(struct sl__core *core, struct sl__run *run);
/* The attempt ended without being at fault: release it, or fail it when it must not start twice. */
void sl__core_set_released(const struct sl__core *core, struct sl__run *run);

/* core_next.c */
/* Reserve the slots that a claim under way may need, or release them. */
void sl__core_reserve(struct sl__core *core, const struct sl__todo *todo, bool give);

/* core_exchange.c */
int64_t sl__core_delay_ns(struct sl__core *core, uint32_t failures, bool transient);
/* What was claimed may be started. */
void sl__core_publish(struct sl__core *core, struct sl__claim *claim, int64_t now_ms, int64_t now_ns);
/* The claim of todo may have been made, and its jobs are not known: the store is asked again. It leaves todo. */
void sl__core_remember_claim(struct sl__core *core, struct sl__todo *todo);

/* core_keeper.c */
/* The claim's lease counts from sent_ns, before it was asked for: when to renew it, and when to give up on it. */
void sl__core_leased(struct sl__core *core, struct sl__claim *claim, int64_t sent_ns);
/* The part of sl__core_next for the keeper, the reaper and the scheduler. */
void sl__core_next_keeper(struct sl__core *core, int64_t now_ns, struct sl__todo *todo);

#endif
