/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's shell: the threads that carry out what the core says (core.h has the decisions).
 *
 *   slots    run handlers. A slot hands in the run that ended and takes the next one under one lock.
 *   lanes    exchange with the store: settle what ended, claim the next.
 *   keeper   renews leases, and does nothing else.
 *   reaper   takes back lost jobs, writes the progress that waits.
 *   cron     fires schedules, sends heartbeats.
 *   clock    aborts attempts in time, whatever the store does to the others.
 *   log      reopens an event log that failed (log.c).
 *
 * Locks: `mu` guards the core and everything below that is not said to be constant or of one thread. It is never held
 * while the store, the log, the notifier, a handler, a validation or an observer is called. It is the only lock.
 *
 * Waking. Idle slots are a stack; the last to sleep is the first to wake. A thread that makes work wakes one of them, and a
 * slot that takes a run while more wait wakes the next, but only one wake is under way at a time: short handlers are
 * done before the next thread has woken, and long ones spread over all. A slot that finds work never sleeps.
 */
#ifndef SL_JOBS_WORKER_H
#define SL_JOBS_WORKER_H

#include <stdatomic.h>

#include "base/thread.h"
#include "jobs/client/tx.h"
#include "jobs/worker/core.h"
#include <sluice/retention.h>

/* One type of the worker. Constant after new. */
struct sl__process {
	sl_process_fn *fn;
	void *ctx;
	bool validates; /* the type has a check of outputs */
	sl_counter *completed, *failed, *retried, *lost;
	sl_histogram *ran, *waited;
};

/* Memory that hangs on a run, or on an attempt. */
struct sl__owned {
	struct sl__owned *next;
	char data[];
};

/* A slot, and the attempt that runs in it. */
struct sl_attempt {
	sl_worker *w;
	unsigned index;
	pthread_t thread;
	sl__cond wake;
	struct sl_attempt *next_idle; /* mu */
	bool idle;                    /* mu: on the stack of those that sleep */
	/* The attempt: of the slot's thread, but where said. */
	struct sl__run *run;
	struct sl_job job;
	_Atomic int aborted; /* enum sl_abort_reason; written with mu */
	int abort_fd;        /* mu; -1: none */
	sl__cond abort_cond; /* mu */
	bool lease_lost;     /* mu: to be observed */
	bool ended;          /* how it ends was declared */
	bool settled;        /* in its own transaction */
	bool broken;         /* failure can not be undone by declaring an end */
	bool unlogged;       /* its events could not be written */
	enum sl__ending ending;
	struct sl_err failure;       /* code not 0: the attempt has failed whatever the handler returns */
	sl_tx *tx;                   /* atomic */
	bool in_tx;                  /* mu: it holds its job's row, and perhaps the store, for itself */
	struct sl_wal_ticket ticket; /* of the last event; batch 0: none */
	struct sl__owned *progress;  /* mu: reported and not yet written; or NULL */
	unsigned depth;              /* of the middlewares */
};

/* What a call of the store reports, on its way to an outer listener: notes are kept, for the worker's own core and to be
 * passed on, changes go through. */
struct sl__heard {
	struct sl__notes notes;
	const struct sl_store_scope *outer;
	struct sl_store_scope scope; /* for the store */
};

/* The offer of the first lane. While it is open, `offer`, `types` and `todo` belong to the store and its callback. */
struct sl__offering {
	struct sl__lane *lane;
	bool open;           /* mu: not withdrawn, and not accepted yet */
	bool closing;        /* mu: it was being accepted when it should be withdrawn, so the callback will come */
	bool being_accepted; /* mu: the thread `taker` is calling the observer */
	pthread_t taker;
	struct sl_offer offer;
	struct sl_offer_type *types; /* NULL: the store takes no offers, or this is not the first lane */
	struct sl__todo todo;
};

struct sl__lane {
	sl_worker *w;
	int index;
	pthread_t thread;
	sl__cond wake;
	bool asleep; /* mu */
	/* The rest is of the lane's thread. */
	struct sl__todo todo;
	struct sl_settle *settles;
	struct sl_settle_result *results;
	struct sl__effects fx;
	struct sl__heard heard;       /* in one exchange: notes that its claim has satisfied go no further */
	struct sl__offering offering; /* of the first lane: open while it sleeps */
};

/* What a worker asks of the store. */
enum sl__asks { SL__ASKS_EXCHANGE, SL__ASKS_RENEW, SL__ASKS_REAP, SL__ASKS_CRON, SL__ASKS_HEARTBEAT, SL__ASKS };

/* The last failure that was logged of one kind of request. */
struct sl__failure {
	int code; /* 0: none */
	int64_t logged_ns;
};

/* The keeper, the reaper, or the scheduler. */
struct sl__keeper {
	sl_worker *w;
	pthread_t thread;
	bool started;
	sl__cond wake;
	int64_t until_ns; /* mu: it sleeps until then; INT64_MIN: it does not */
	struct sl__todo todo;
	struct sl__loss *losses; /* the keeper's, of its thread: what a renewal found lost */
	size_t n_losses, cap_losses;
};

/* What heartbeats say. host, types and started_ns are constant after the start. */
struct sl__pulse {
	char host[256];
	char *types; /* separated by commas */
	int64_t started_ns;
	int64_t started_ms; /* the scheduler's: the same by the store's clock, as first heard */
	uint64_t sent;      /* the scheduler's */
	/* mu: the last failure, of an attempt or of the log; error_ms 0: none */
	char error[256];
	int64_t error_ms;
};

#define SL__HEARTBEAT_MS 30000
#define SL__HEARTBEAT_TTL_MS (3 * SL__HEARTBEAT_MS)
#define SL__PAUSED_BYTES 160
#define SL__KEEPERS 3 /* keepers[-1 - who]: SL__KEEPER, SL__REAPER, SL__SCHEDULER */

enum sl__worker_state { SL__WORKER_NEW = 0, SL__WORKER_RUNS, SL__WORKER_STOPPING, SL__WORKER_STOPPED };

struct sl_worker {
	struct sl__home home;
	char *id;
	const sl_job_types *types;
	sl_wal *events;
	struct sl__process *processes; /* [n_types], as the core's types */
	struct sl__core_type *core_types;
	const char **type_names;
	struct sl_reap_type *reap_types;
	size_t n_types;
	struct sl_middleware *middlewares;
	size_t n_middlewares;
	struct sl__core_cfg cfg;
	sl_gauge *busy_gauge;

	sl__mutex mu;
	sl__cond changed; /* of the state, and of what stop and drain wait for */
	enum sl__worker_state state;
	pthread_t stopper; /* while stopping */
	struct sl__core *core;
	struct sl_attempt *slots;
	unsigned n_started; /* slots */
	struct sl_attempt *idle;
	unsigned waking; /* 1: a slot was woken and has not come yet */
	bool end_slots;
	_Atomic unsigned unanswered; /* bits by enum sl__asks: the store did not answer the last one; set under mu */
	struct sl__failure failures[SL__ASKS];
	unsigned waiters; /* stop and drain */
	struct sl__lane *lanes;
	unsigned lanes_started;
	struct sl__keeper keepers[SL__KEEPERS];
	struct sl__pulse pulse;
	bool progress_due;             /* mu: the reaper is to write the progress that waits */
	bool schedules_checked;        /* once, or they cannot be read: a drain does not end before */
	int64_t paused_check_ns;       /* mu: when a drain may next ask the store for paused types */
	char paused[SL__PAUSED_BYTES]; /* mu: those of its types that had jobs left at the last check, "a, b" */
	pthread_t clock_thread;
	bool clock_started, end_clock;
	sl__cond clock_wake;
	int64_t clock_until_ns; /* INT64_MIN: it does not sleep */
	bool subscribed;
	/* The event log: log.c. */
	pthread_t log_thread;
	bool log_started;
	sl__cond log_wake;
	bool log_failed; /* mu */
	struct sl_err log_failure;
	int64_t log_retry_ns;          /* mu */
	_Atomic uint32_t log_failures; /* since an event was written */
	bool retains;                  /* it deletes what is too old, by these limits */
	struct sl_retention keep;
	sl_retention_thread *retention; /* of the threads that start and stop; NULL: not started */
};

static inline struct sl__process *sl__process_of(const sl_worker *w, const struct sl__run *run)
{
	return &w->processes[run->type];
}

/* worker.c */
/* Wake the threads that have something to do after a change of the core: a slot, a lane, the keeper, the clock, waiters. */
void sl__worker_wake(sl_worker *w, int64_t now_ns) SL_REQUIRES(w->mu);
void sl__worker_wake_slot(sl_worker *w) SL_REQUIRES(w->mu);
/* The sl_note_fn with which it subscribes. */
void sl__worker_note(const struct sl_note *note, void *worker);
/* The core's release callback: frees what hangs on a run. */
void sl__run_release(struct sl__run *run, void *worker);
/* Memory that lives as long as the run. NULL without memory. */
void *sl__run_memory(sl_worker *w, struct sl__run *run, size_t n);
/* The text of an error as a store may keep it (well-formed UTF-8), in memory of the run. Never NULL. */
const char *sl__run_text(sl_worker *w, struct sl__run *run, const char *text);

void sl__heard_init(struct sl__heard *h, const sl_worker *w, const struct sl_store_scope *outer);
/* Pass the notes to the outer listener. */
void sl__heard_pass(const struct sl__heard *h);

/* slot.c, lane.c, keeper.c, log.c: the threads */
void *sl__slot_main(void *attempt);
void *sl__clock_main(void *worker);
void *sl__lane_main(void *lane);
void *sl__keeper_main(void *keeper);
void *sl__log_main(void *worker);

/* lane.c */
/* Could the lane offer more types than it does? Another lane's claim may have had their slots before. */
bool sl__offer_lacks(const sl_worker *w, const struct sl__lane *l, int64_t now_ns) SL_REQUIRES(w->mu);

/* slot.c */
/* The core's sl__abort_fn, with the worker as ctx: fire the signal. */
void sl__abort_fire(struct sl__run *run, enum sl_abort_reason reason, void *worker);
/* Observe the leases that were found lost since the last time. */
void sl__abort_observe(sl_worker *w) SL_EXCLUDES(w->mu);

/* attempt.c */
/* Before the handler; the signal was cleared when the run was taken. */
void sl__attempt_begin(struct sl_attempt *a);
/* After the handler returned, without a lock: roll back what is open, check what was left unsaid, keep the text of a
 * failure. */
void sl__attempt_returned(struct sl_attempt *a, int rc, const struct sl_err *err);
/* What the handler returned and declared, as an ending. */
enum sl__ending sl__attempt_finish(sl_worker *w, struct sl_attempt *a) SL_REQUIRES(w->mu);
/* The attempt fails with this error, whatever the handler returns, unless it declares another end (not for_good).
 * Returns the code. */
int sl__attempt_break(struct sl_attempt *a, const struct sl_err *why, bool for_good, struct sl_err *err);

/* As sl__attempt_break for good; when the error is one of the event log, the attempt is not charged. */
int sl__attempt_unlogged(struct sl_attempt *a, const struct sl_err *why, struct sl_err *err);

/* log.c */
/* All events of the run are durable when 0 returns. Else the worker knows that its log failed. */
int sl__emit_wait(sl_worker *w, const struct sl_wal_ticket *ticket, struct sl_err *err);

/* Does the code speak of a log, or of the disk under it, that accepts no records now? */
bool sl__worker_log_error(int rc);
/* The log did not accept a record: stop claiming until it does. */
void sl__worker_log_failed(sl_worker *w, const struct sl_err *why) SL_EXCLUDES(w->mu);

/* report.c: observers and metrics. No lock. */
int sl__report_init(sl_worker *w, struct sl_err *err);
void sl__report_fini(sl_worker *w);
/* The store answered a request, or did not. An outage is logged once, and its end; another failure once a minute while
 * it repeats. */
void sl__report_store(sl_worker *w, enum sl__asks what, int rc, const struct sl_err *err) SL_EXCLUDES(w->mu);
void sl__report_worker(sl_worker *w, enum sl_observe_kind kind, const struct sl_err *err);
/* The next heartbeat shows this as the worker's last error: "where: what", as well-formed UTF-8. */
void sl__report_last_error(sl_worker *w, const char *where, const char *what) SL_REQUIRES(w->mu);
void sl__report_acquired(sl_worker *w, const struct sl__claim *claim, int64_t now_ms);
void sl__report_started(sl_worker *w, const struct sl__run *run);
void sl__report_aborted(sl_worker *w, const struct sl__run *run, enum sl_abort_reason reason, int64_t now_ns);
/* The run has settled, or (lost) could not. */
void sl__report_settled(sl_worker *w, const struct sl__run *run, enum sl_lost_reason lost);
/* SL_LOST_NOT: its lease could not be renewed. */
void sl__report_lost(sl_worker *w, const struct sl__run *run, enum sl_lost_reason lost);

#endif
