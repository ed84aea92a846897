/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the simulation share: the world, its clockwork, and the parts that act in it. */
#ifndef TESTS_SIM_PRIV_H
#define TESTS_SIM_PRIV_H

#include <stdio.h>
#include <string.h>

#include "jobs/core.h"
#include "jobs/sim.h"

#define SIM_WORKERS 4
#define SIM_SLOTS 4
#define SIM_LANES 2
#define SIM_TYPES 3
#define SIM_CHILDREN 3
#define SIM_ROWS 4096
#define SIM_REAP_LIMIT 2 /* a worker asks for more; so it must ask again */
#define SIM_STEPS 300000 /* a run that takes more is a loop; some have 5,000 */
#define SIM_MS ((int64_t)1000000)

/* What this seed is like; probabilities in thousandths. */
struct sim_knobs {
	int n_workers, lanes, slots, claim_batch;
	int64_t poll_ms, next_job_delay_ms, lease_ms[SIM_TYPES];
	int32_t max_attempts[SIM_TYPES];
	int64_t timeout_ms[SIM_TYPES];
	int n_chains, n_meddles;
	int64_t chaos_ms;
	bool notes; /* there is a notifier */
	uint32_t lose_request, lose_answer, apply_late, again, poison, lose_note, double_note;
	int n_outages, n_pauses, n_kills, n_stops, n_clock_jumps, n_store_jumps;
	uint32_t slow, disobey, inside, fan_out; /* of handlers */
};

struct sim;
struct sim_event;
typedef void sim_fn(struct sim *sim, const struct sim_event *ev);

struct sim_event {
	int64_t at_ns;
	uint64_t order;
	sim_fn *fn;
	int worker;     /* or -1 */
	uint32_t life;  /* of the worker: another one since then is not meant */
	uint64_t which; /* the fn's own */
	void *ptr;
};

/* ---- a call to the store, on its way ---- */

enum sim_call_kind { SIM_EXCHANGE, SIM_INSIDE, SIM_RENEW, SIM_REAP, SIM_CRON };

struct sim_claimed {
	struct sl_claimed_job job; /* strings are the store's, which outlive the run */
};
struct sim_lost {
	uint64_t id, fence;
	enum sl_lost_reason reason;
};

/* Copies of what was sent, since it may be applied after the worker is gone. */
struct sim_call {
	enum sim_call_kind kind;
	int worker;
	uint32_t life;
	int who;  /* the lane, SL__KEEPER, or the slot of SIM_INSIDE */
	int refs; /* apply and reply */
	struct sl_settle *settles;
	struct sl_settle_result *results;
	size_t n_settles;
	char **texts; /* of the settles */
	size_t n_texts;
	bool claims;
	struct sl_claim_request request;
	struct sl_claim_reply reply;
	struct sl_renewal *renewals;
	size_t n_renewals;
	struct sim_claimed *claimed;
	size_t n_claimed;
	struct sim_lost *lost;
	size_t n_lost;
	struct sl_note *notes;
	size_t n_notes;
	uint32_t reaped;
	int more;
	int rc;         /* what the worker is told */
	int applied_rc; /* what the store said */
	struct sl_err err;
};

/* ---- workers ---- */

struct sim_conv {
	struct sl__todo todo;
	int who;
	bool asleep, ended;
	int64_t wake_ns; /* of the worker's clock */
	uint64_t naps;   /* counts sleeps: a timer of an earlier one is void */
};

/* How a handler will end. */
struct sim_plan {
	enum sl__ending ending;
	bool obeys, inside, early;
	uint64_t serial; /* of this attempt: a planned end of an earlier one is void */
};

struct sim_slot {
	struct sl__run *run;
	struct sim_plan plan;
	bool resting, calling;
};

struct sim_worker {
	int index;
	bool alive, stopping, gave_up;
	uint32_t life;
	char id[16];
	struct sl_env env;
	struct sl__core *core;
	struct sl__core_type types[SIM_TYPES];
	struct sim_conv lanes[SIM_LANES], keeper;
	struct sim_slot slots[SIM_SLOTS];
	int64_t paused_until_ns; /* true time */
	int64_t skew_ns, last_ns;
	int64_t abort_at_ns; /* when the clock thread looks next */
};

/* ---- what the checks remember of a job ---- */

struct sim_shadow {
	bool known, gone;
	enum sl_job_status status;
	uint64_t fence, next_id, claimed_fence;
	uint64_t started; /* a bit for each fence under which a handler started */
	const char *output;
	uint32_t completions, opened;
};

struct sim {
	struct sim_opts opts;
	struct sim_report *report;
	uint64_t rng;
	struct sim_knobs k;
	int64_t now_ns;        /* true time */
	int64_t store_skew_ns; /* of the store's clock */
	bool calm;             /* no more faults */
	bool probing;          /* handlers are quick now */
	bool over;             /* only memory is given back */
	bool clocks_true;      /* no clock has jumped in this run */
	int64_t away_until_ns; /* the store */
	struct sim_event *heap;
	size_t n_heap, cap_heap;
	uint64_t order, serial;
	struct memstore *ms;
	sl_store store;
	struct sim_worker workers[SIM_WORKERS];
	uint64_t chains[SIM_ROWS]; /* that clients know */
	size_t n_chains;
	uint32_t poisoned; /* refusals left for poisoned_id */
	uint64_t poisoned_id;
	struct sim_shadow shadow[SIM_ROWS + 1];
	size_t n_rows, n_unfinished;
	bool redriving; /* the operation under way is a redrive */
};

/* ---- sim.c ---- */
uint64_t sim_rand(struct sim *sim);
/* Uniform in from..to, both included. */
int64_t sim_range(struct sim *sim, int64_t from, int64_t to);
bool sim_chance(struct sim *sim, uint32_t thousandths);
struct sim_event *sim_at(struct sim *sim, int64_t at_ns, sim_fn *fn, const struct sim_worker *w);
void sim_trace(struct sim *sim, const char *fmt, ...) SL_PRINTF(2, 3);
void sim_fail(struct sim *sim, const char *fmt, ...) SL_PRINTF(2, 3);
void *sim_alloc(size_t n);
/* A fault that the knobs and the phase allow. */
bool sim_fault(struct sim *sim, uint32_t thousandths);
extern const char *const sim_type_names[SIM_TYPES];

/* ---- sim_worker.c ---- */
void sim_spawn(struct sim *sim, int index);
void sim_kill(struct sim *sim, struct sim_worker *w);
void sim_stop(struct sim *sim, struct sim_worker *w);
void sim_jump(struct sim *sim, struct sim_worker *w, int64_t ns);
int64_t sim_clock(struct sim *sim, struct sim_worker *w);
void sim_tell_note(struct sim *sim, struct sim_worker *w, const struct sl_note *note);
/* An answer has come (or will not): the conversation goes on. */
void sim_answered(struct sim *sim, struct sim_worker *w, struct sim_call *call);
void sim_wake_all(struct sim *sim, struct sim_worker *w);

/* ---- sim_slot.c ---- */
void sim_fill_slots(struct sim *sim, struct sim_worker *w);
void sim_slot_answered(struct sim *sim, struct sim_worker *w, struct sim_call *call);
sl__abort_fn sim_abort; /* ctx: struct sim_worker */
void sim_release(struct sl__run *run, void *ctx);

/* ---- sim_worker.c, for slots ---- */
void sim_wake(struct sim *sim, struct sim_worker *w);
void sim_wake_lane(struct sim *sim, struct sim_worker *w, int lane);
struct sim *sim_of(struct sim_worker *w);
/* Whoever waits for the stop sees that nothing is open any more, and wakes everybody. */
void sim_look_settled(struct sim *sim, struct sim_worker *w);

/* ---- sim_call.c ---- */
void sim_send_todo(struct sim *sim, struct sim_worker *w, struct sim_conv *conv);
void sim_send_settle(struct sim *sim, struct sim_worker *w, int slot, const struct sl_settle *settle);
void sim_publish(struct sim *sim, const struct sl_note *notes, size_t n);
struct sim_hearing {
	struct sl_note notes[64];
	size_t n;
	struct sl_store_listen listen;
};
const struct sl_store_listen *sim_hear(struct sim_hearing *h);

/* ---- sim_client.c ---- */
void sim_plan_clients(struct sim *sim);
/* Start n children of a handler; their chains. Fewer when the store does not answer. */
size_t sim_start_children(struct sim *sim, uint64_t *out, size_t n);

/* Start a chain without any fault; its id. */
uint64_t sim_start_probe(struct sim *sim, int type, int64_t delay_ms);

/* ---- sim_check.c ---- */
void sim_check(struct sim *sim, const char *op);
void sim_check_claimed(struct sim *sim, const struct sl_claimed_job *job);
void sim_check_settled(struct sim *sim, const struct sl_settle *s, const struct sl_settle_result *r);
/* The renewal that told of the loss was answered: does the handler know? */
void sim_check_lost(struct sim *sim, struct sim_worker *w, const struct sim_lost *lost);
/* At the end of a worker. */
void sim_check_worker(struct sim *sim, const struct sim_worker *w);
void sim_check_started(struct sim *sim, struct sim_worker *w, const struct sl__run *run);
/* Is every job at its end, or behind a blocker that will not complete? Fills why with one that is not. */
bool sim_at_rest(struct sim *sim, char *why, size_t size);

#endif
