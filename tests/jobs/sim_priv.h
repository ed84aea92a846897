/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the simulation share: the world, its clockwork, and the parts that act in it. */
#ifndef TESTS_SIM_PRIV_H
#define TESTS_SIM_PRIV_H

#include <stdio.h>
#include <string.h>

#include "jobs/cron/cron.h"
#include "jobs/sim.h"
#include "jobs/worker/core.h"

#define SIM_WORKERS 4
#define SIM_SLOTS 4
#define SIM_LANES 2
#define SIM_TYPES 3
#define SIM_CHILDREN 3
#define SIM_ROWS 4096
#define SIM_REAP_LIMIT 2 /* a worker asks for more; so it must ask again */
#define SIM_STEPS 300000 /* a run that takes more is a loop; some have 5,000 */
#define SIM_MS ((int64_t)1000000)
#define SIM_CRONS 3
#define SIM_LOGS 64
#define SIM_LINES 4096
#define SIM_FLUSHES 1024 /* of a log */

/* What this seed is like; probabilities in thousandths. */
struct sim_knobs {
	int n_workers, lanes, slots, claim_batch;
	int64_t poll_ms, next_job_delay_ms[SIM_TYPES], lease_ms[SIM_TYPES];
	int32_t max_attempts[SIM_TYPES];
	int64_t timeout_ms[SIM_TYPES];
	int n_chains, n_meddles;
	int64_t chaos_ms;
	bool notes; /* there is a notifier */
	uint32_t lose_request, lose_answer, apply_late, again, poison, lose_note, double_note;
	int n_outages, n_pauses, n_kills, n_stops, n_clock_jumps, n_store_jumps;
	uint32_t slow, disobey, inside, fan_out; /* of handlers */
	/* of schedules */
	int n_crons, n_cron_puts;
	int64_t jump_ms, store_jump_ms, pause_ms; /* at most */
	/* of events */
	bool events;
	int send_batch;
	uint32_t fail_flush, bad_line, slow_flush, put_back, copy, reopen;
	int n_losses;
	/* of offers, and of failures from outside */
	bool offers;
	int n_beside, n_fails;
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

/* SIM_CRON: a turn without any schedule. From SIM_NOW on: calls of a fiber. */
enum sim_call_kind {
	SIM_EXCHANGE,
	SIM_INSIDE,
	SIM_RENEW,
	SIM_REAP,
	SIM_CRON,
	SIM_HAND_OVER,
	SIM_NOW,
	SIM_CRON_LIST,
	SIM_CRON_FIRE,
	SIM_APPEND
};

struct sim_fiber;

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
	char *few_texts[4]; /* texts of a call without settles */
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
	struct sl_reaped reaped;
	/* a start that has taken an offer */
	struct sl_new_job start;
	struct sl_offer offer;
	int64_t offer_lease_ms, sent_ns;
	struct memstore_handed handed;
	int rc;         /* what the worker gets */
	int applied_rc; /* what the store returned */
	struct sl_err err;
	/* of a fiber */
	struct sim_fiber *fiber;
	int64_t now_ms;
	struct sl_cron *crons;
	size_t n_crons;
	struct sl_cron seen;
	int64_t next_ms, turn_ms; /* turn_ms: what the firing process takes for the time */
	bool fired;
	struct sl_started started;
	int log; /* whose rows these are */
	const struct sl_event_row *rows;
	size_t n_rows, n_new;
	struct sl_event_mark mark;
	uint64_t skip_to;    /* the mark that was sent */
	uint32_t restores;   /* of the store when its fiber began */
	bool stopped_before; /* the sender had met a conflict under this incarnation when it sent this */
};

/* ---- workers ---- */

struct sim_conv {
	struct sl__todo todo;
	int who;
	bool asleep, ended;
	bool flushing;   /* it waits for the log */
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

/* An offer in the list of the store of a process, where it can outlive its worker. */
struct sim_offer {
	bool there;
	uint32_t life; /* of the worker that made it */
	struct sl_claim_id claim;
	struct sl_offer_type types[SIM_TYPES];
	size_t n_types;
};

struct sim_worker {
	int index;
	bool alive, stopping, gave_up;
	uint32_t life;
	char id[16];
	struct sl_env env;
	struct sl__core *core;
	struct sl__core_type types[SIM_TYPES];
	struct sl_reap_type reap_types[SIM_TYPES];
	struct sim_conv lanes[SIM_LANES], keeper, reaper, scheduler;
	struct sim_slot slots[SIM_SLOTS];
	int64_t paused_until_ns; /* true time */
	int64_t skew_ns, last_ns;
	int64_t abort_at_ns; /* when the clock thread looks next */
	struct sim_log *log; /* its own; NULL: no events */
	/* As struct sl__lane; of the first lane. */
	bool offered, closing;
	struct sl_offer offer;
	struct sl_offer_type offer_types[SIM_TYPES];
	struct sl__todo offer_todo;
};

/* ---- schedules ---- */

/* What the checks remember of one. */
struct sim_schedule {
	bool there;
	const char *spec;
	struct sl__cron_spec parsed;
	bool catch_up;
	int64_t at_ms; /* the tick that is next */
};

/* ---- logs of events ---- */

struct sim_line {
	uint64_t job_id, fence;
	struct sl_claim_id claim;
	int32_t attempt;
	bool bad;     /* the store will refuse it, or it is no event at all */
	bool durable; /* the log said so */
	bool parked, gone, found;
	bool lost;            /* by the store, once */
	uint32_t stored;      /* rows of it; more than one after a renewal */
	uint32_t incarnation; /* of the last one */
};

/* What a log says of itself between two of its records. */
struct sim_state {
	struct sim_stream *stream; /* under which its records are sent */
	uint64_t first;            /* from this one on; the others were acknowledged under an earlier one */
	uint64_t acked;            /* up to this one */
};

struct sim_record {
	const void *bytes;
	size_t len;
	uint64_t crc;
	uint32_t line, flush;
	bool parked;
	size_t parked_at;        /* the number of records in the log then */
	struct sim_state before; /* of the log */
};

/* What the store has under a sequence. */
struct sim_taken {
	uint64_t crc, job_id, offset;
	uint32_t line;
	bool there;
};

/* What the checks know of an incarnation of a stream in the store. Logs that are copies of each other share one, until
 * one of them is renewed. */
struct sim_stream {
	char name[16];
	uint32_t incarnation;
	uint64_t mark, crc;
	bool has_crc;
	struct sim_taken *taken; /* [cap] by sequence - 1 */
	size_t cap;
	struct sim_stream *next;
};

/* The log of a worker, or of one that died. Sequence i + 1 is records[i]. */
struct sim_log {
	int index;
	struct sim_state state;
	bool complete;    /* sent and archived */
	int owner;        /* the worker that made it */
	int holder;       /* the worker that has it open; -1 */
	uint32_t life;    /* of the holder */
	uint32_t opening; /* counts */
	bool swept;       /* opened by another than its owner */
	struct sim_record *records;
	size_t n, cap, durable;
	/* flushes */
	uint32_t open_flush, running_flush; /* what submits go into; under way, 0: none */
	bool flush_planned;
	uint8_t outcomes[SIM_FLUSHES]; /* 0: none yet, 1: durable, 2: failed */
	/* the holder's sender */
	bool sending, planned, mark_known;
	struct sim_stream *met_conflict; /* under this incarnation; NULL: none */
	struct sl_wal_mark compared;
	uint64_t probe;
	uint32_t failures, n_untried;
	int64_t retry_at_ns;
	uint64_t mark, refused, suspects;
	size_t limit;
};

/* ---- what the checks remember of a job ---- */

struct sim_shadow {
	bool known, gone;
	enum sl_job_status status;
	uint64_t fence, next_id, claimed_fence;
	uint64_t started; /* a bit for each fence under which a handler started */
	uint64_t numbers; /* and for each number of an attempt with which one did */
	bool begun;       /* a handler has started, and did not give its run back uncharged */
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
	struct sim_offer offers[SIM_WORKERS];   /* of the process with this index */
	struct sl_claim_id taken[2 * SIM_ROWS]; /* by all offers that were */
	size_t n_taken;
	int handing;               /* applies and answers of hand-overs that are still to come */
	uint64_t chains[SIM_ROWS]; /* that clients know */
	size_t n_chains;
	uint32_t poisoned; /* refusals left for poisoned_id */
	uint64_t poisoned_id;
	struct sim_shadow shadow[SIM_ROWS + 1];
	size_t n_rows, n_unfinished;
	bool redriving; /* the operation under way is a redrive */
	struct sl_env env;
	struct sim_fiber *spare_fibers;
	struct sim_schedule schedules[SIM_CRONS];
	struct sim_log *logs[SIM_LOGS];
	struct sim_stream *streams;
	int n_logs;
	uint32_t n_incarnations;
	struct sim_line *lines; /* [SIM_LINES] */
	uint32_t n_lines;
	uint64_t last_offset; /* of job_events */
	void **kept;          /* memory until the end */
	size_t n_kept, cap_kept;
	uint32_t restores;  /* of the store: each ends all connections */
	int64_t base_ms;    /* the store's clock at the beginning */
	int64_t awake_ns;   /* no worker is paused any more */
	int64_t settled_ns; /* from then on ticks are punctual */
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
void *sim_keep(struct sim *sim, size_t n); /* until the end of the run */
/* A fault that the knobs and the phase allow. */
bool sim_fault(struct sim *sim, uint32_t thousandths);
extern const char *const sim_type_names[SIM_TYPES];

/* ---- sim_worker.c ---- */
void sim_spawn(struct sim *sim, int index);
void sim_kill(struct sim *sim, struct sim_worker *w);
/* The worker was not killed but has stopped; its process keeps running. */
void sim_end_worker(struct sim *sim, struct sim_worker *w);
void sim_stop(struct sim *sim, struct sim_worker *w);
void sim_jump(struct sim *sim, struct sim_worker *w, int64_t ns);
int64_t sim_clock(struct sim *sim, struct sim_worker *w);
void sim_deliver_note(struct sim *sim, struct sim_worker *w, const struct sl_note *note);
/* An answer has come (or will not): the conversation continues. */
void sim_answered(struct sim *sim, struct sim_worker *w, struct sim_call *call);
void sim_wake_all(struct sim *sim, struct sim_worker *w);
/* A conversation that waited continues. */
void sim_step(struct sim *sim, struct sim_worker *w, struct sim_conv *conv);

/* ---- sim_slot.c ---- */
void sim_fill_slots(struct sim *sim, struct sim_worker *w);
void sim_slot_answered(struct sim *sim, struct sim_worker *w, struct sim_call *call);
sl__abort_fn sim_abort; /* ctx: struct sim_worker */
void sim_release(struct sl__run *run, void *ctx);

/* ---- sim_worker.c, for slots ---- */
void sim_wake(struct sim *sim, struct sim_worker *w);
void sim_wake_lane(struct sim *sim, struct sim_worker *w, int lane);
/* The first lane, when it could offer more than it does. */
void sim_wake_offer(struct sim *sim, struct sim_worker *w);
struct sim *sim_of(struct sim_worker *w);
/* When nothing is open any more in a worker that is stopping, wake all its conversations. */
void sim_look_settled(struct sim *sim, struct sim_worker *w);

/* ---- sim_call.c ---- */
void sim_send_todo(struct sim *sim, struct sim_worker *w, struct sim_conv *conv);
void sim_send_settle(struct sim *sim, struct sim_worker *w, int slot, const struct sl_settle *settle);
void sim_publish(struct sim *sim, const struct sl_note *notes, size_t n);
struct sim_hearing {
	struct sl_note notes[64];
	size_t n;
	struct sl_store_scope scope;
};
const struct sl_store_scope *sim_hear(struct sim_hearing *h);
/* A call of a fiber; it belongs to the caller until the fiber calls again or ends. */
struct sim_call *sim_call_of(struct sim_fiber *f, enum sim_call_kind kind);
struct sim_call *sim_call_by(const struct sim_worker *w, enum sim_call_kind kind);
void sim_call_send(struct sim *sim, struct sim_call *c);
const char *sim_call_text(struct sim_call *c, const char *text);
const void *sim_call_bytes(struct sim_call *c, const void *data, size_t n);

/* ---- sim_fiber.c ---- */
/*
 * Library code that calls the store several times in one go runs on its own stack: each call is sent as all others are,
 * and the code resumes when the answer comes, while everything else happens. When its worker has died, the answer and
 * all later calls are SL_EUNAVAIL, so that it unwinds; it then must not touch the worker.
 */
struct sim_fiber {
	struct sim *sim;
	int worker;
	uint32_t life;
	bool dead;
	int64_t turn_ms;
	int log; /* that it sends, and whether a conflict had ended its incarnation */
	bool stopped;
	uint32_t restores;
};
typedef void sim_fiber_fn(struct sim_fiber *f, void *arg);
void sim_fiber_start(struct sim *sim, const struct sim_worker *w, sim_fiber_fn *fn, void *arg);
/* Send the call and wait for its answer. */
void sim_fiber_wait(struct sim_fiber *f, struct sim_call *c);
void sim_fiber_resume(struct sim_fiber *f);
void sim_fiber_free_all(struct sim *sim);
/* The store as a fiber sees it: now_ms, schedules, events. */
sl_store sim_fiber_store(struct sim_fiber *f);

/* ---- sim_cron.c ---- */
void sim_cron_turn(struct sim *sim, struct sim_worker *w);
void sim_plan_crons(struct sim *sim);
void sim_check_fired(struct sim *sim, const struct sim_call *c, size_t rows_before);
/* R12: all ticks that are due were fired. */
void sim_check_punctual(struct sim *sim);
void sim_remove_crons(struct sim *sim);

/* ---- sim_log.c ---- */
void sim_log_open(struct sim *sim, struct sim_worker *w);
/* Its holder is gone: with a stop everything was flushed, else what was not synced may be lost. */
void sim_log_left(struct sim *sim, const struct sim_worker *w);
void sim_emit(struct sim *sim, struct sim_worker *w, struct sl__run *run);
enum sim_flushed { SIM_FLUSH_WAIT, SIM_FLUSH_OK, SIM_FLUSH_FAILED };
/* Are all events of the run durable? */
enum sim_flushed sim_flushed(const struct sim_worker *w, const struct sl__run *run);
/* As await_events of lane.c. false: the conversation waits for the log. */
bool sim_await_events(struct sim *sim, struct sim_worker *w, struct sim_conv *conv);
void sim_plan_logs(struct sim *sim);
/* Nothing is left to flush or to send. */
bool sim_logs_at_rest(const struct sim *sim);
/* Close and open all logs that are open: their senders ask the store anew. */
void sim_reopen_logs(struct sim *sim);
void sim_free_logs(struct sim *sim);

/* ---- sim_send.c ---- */
/* A stream of this name, under a new incarnation. */
struct sim_stream *sim_new_stream(struct sim *sim, const char *name);
/* The sender of the log may have something to do. */
void sim_send_poke(struct sim *sim, struct sim_log *log);
/* The store loses its last events. */
sim_fn sim_lose_events;
void sim_check_appended(struct sim *sim, const struct sim_call *c);
void sim_check_durable(struct sim *sim, const struct sl_settle *s);
void sim_check_events(struct sim *sim);

/* ---- sim_offer.c ---- */
/* As lane.c: make an offer, unless there is one; take it back (true: something was done); could there be a better one?
 */
bool sim_offer_lacks(struct sim *sim, struct sim_worker *w);
bool sim_offer_open(struct sim *sim, struct sim_worker *w);
bool sim_offer_close(struct sim *sim, struct sim_worker *w);
/* Start a job in the process: true when a worker's offer was taken for it. The answer comes as sim_handed. */
bool sim_hand_over(struct sim *sim, int process, const char *type);
void sim_handed(struct sim *sim, struct sim_worker *w, struct sim_call *c);
void sim_apply_handed(struct sim *sim, struct sim_call *c, const struct sl_store_scope *scope);
/* The process has ended, and its list with it. */
void sim_forget_offers(struct sim *sim, int process);

/* ---- sim_client.c ---- */
void sim_plan_clients(struct sim *sim);
void sim_know(struct sim *sim, uint64_t chain_id);
/* Start n children of a handler; their chains. Fewer when the store does not answer. */
size_t sim_start_children(struct sim *sim, uint64_t *out, size_t n);

/* Start a chain without any fault; its id. */
uint64_t sim_start_probe(struct sim *sim, int type, int64_t delay_ms);

/* ---- sim_check.c ---- */
void sim_check(struct sim *sim, const char *op);
void sim_check_claimed(struct sim *sim, const struct sl_claimed_job *job, bool again);
void sim_check_settled(struct sim *sim, const struct sl_settle *s, const struct sl_settle_result *r);
/* The renewal that reported the loss was answered: does the handler know? */
void sim_check_lost(struct sim *sim, struct sim_worker *w, const struct sim_lost *lost);
/* At the end of a worker. */
void sim_check_worker(struct sim *sim, const struct sim_worker *w);
void sim_check_started(struct sim *sim, struct sim_worker *w, const struct sl__run *run);
/* Has every job ended, or is it blocked by one that will not complete? Fills why with one that still has to run. */
bool sim_at_rest(struct sim *sim, char *why, size_t size);

#endif
