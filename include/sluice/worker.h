/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers: claim jobs from a store, run their handlers, renew their leases and write how they ended. <sluice/jobs.h> says
 * what a job is and how it is run; a program that only enqueues and lists jobs does not need it.
 *
 * Guarantees
 *  - A handler runs under a lease that its worker renews. When the lease is lost, for whatever reason, the handler's
 *    abort signal fires with the reason, and nothing that it returns or declares afterwards changes the job.
 *  - A completion, the next job of the chain and the jobs that it unblocks are one transaction, of which the handler's
 *    own SQL can be a part.
 *  - sl_worker_stop leaves no thread and no lease behind, unless the store is unavailable.
 * Not guaranteed: that a handler runs only once per job; see <sluice/jobs.h>.
 *
 * Names of the specification: createQueuertInProcessWorker is sl_worker_new; jobTypeProcessors are `processors`,
 * jobAttemptMiddlewares `middlewares`; defaultRetryConfig is the field retry, defaultLeaseConfig lease_ms and
 * renew_interval_ms, all of struct sl_worker_opts. The signal of a handler is sl_attempt_aborted with its variants,
 * its prepare and complete are sl_attempt_prepare and sl_attempt_complete; a RescheduleJobError is
 * sl_attempt_reschedule_in or sl_attempt_reschedule_at. The specification's worker runs one job at a time, as a slot
 * does here.
 *
 * Thread safety: all functions on a worker may be called from any thread, except sl_worker_free, which must be last. An
 * attempt belongs to its handler until that returns; only the abort functions may be called on it from other threads,
 * and only until then. Handles do not work in a forked child (SL_EFORKED).
 * Ownership: strings and arrays in options are copied; the store, the notifier, the types and the log are the caller's
 * and must outlive the worker. What an attempt gives lives as long as the attempt.
 */
#ifndef SLUICE_WORKER_H
#define SLUICE_WORKER_H

#include <sluice/jobs.h>
#include <sluice/retention.h>
#include <sluice/wal.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- worker ---- */

typedef struct sl_worker sl_worker;
typedef struct sl_attempt sl_attempt;

/*
 * A handler, called on a slot's thread. Return 0 when the attempt is over: with complete, continue, fail or reschedule
 * called before, or none of them (completes with the output null). Anything else, with *err filled, is a failure that
 * is tried again with the type's backoff, until its attempts run out. What it returns after an abort is ignored, but an
 * end that it declared before the abort stands.
 */
typedef int sl_process_fn(sl_attempt *attempt, struct sl_err *err, void *ctx);

struct sl_processor {
	size_t struct_size;
	const char *type;
	sl_process_fn *process;
	void *ctx;
	/* Zero: the value in the registry of types. */
	struct sl_retry_policy retry;
	int64_t lease_ms, renew_interval_ms, timeout_ms;
	int32_t slots;
	int64_t next_job_delay_ms; /* after a job of this type; zero: the worker's; SL_NONE: none */
};
#define SL_PROCESSOR_INIT .struct_size = sizeof(struct sl_processor)

/* Calls next exactly once (or not at all, to refuse the attempt: return an error) and returns what it returned. */
typedef int sl_next_fn(struct sl_err *err, void *next_ctx);
typedef int sl_middleware_fn(sl_attempt *attempt, const char *worker_id, sl_next_fn *next, void *next_ctx,
			     struct sl_err *err, void *ctx);
struct sl_middleware {
	sl_middleware_fn *fn;
	void *ctx;
};

struct sl_worker_opts {
	size_t struct_size;
	const struct sl_env *env;
	const sl_store *store;     /* required */
	const sl_notify *notify;   /* NULL: polling only */
	const sl_job_types *types; /* NULL: all defaults */
	sl_observe_fn *observe;
	void *observe_ctx;
	const char *worker_id; /* default a random UUID */
	const struct sl_processor *processors;
	size_t n_processors;
	const struct sl_middleware *middlewares; /* the first is the outermost */
	size_t n_middlewares;
	int32_t slots;             /* attempts at once; default 1 */
	int64_t poll_interval_ms;  /* default 60,000 */
	int64_t next_job_delay_ms; /* a slot rests this long between jobs; default 0 */
	int32_t claim_batch;       /* jobs claimed at once at most, ahead of free slots; default 256; 1: never ahead */
	int32_t lanes;             /* exchanges with the store at the same time; default 1 */
	struct sl_retry_policy retry; /* default of all types of this worker */
	/* Default of all types of this worker. Types with one lease and renewal are claimed together, by priority;
	 * those with another have separate claims, in turn. */
	int64_t lease_ms, renew_interval_ms;
	/* Events of attempts go here; NULL: sl_attempt_emit fails. The worker flushes before it settles a job that
	 * emitted, and fails the attempt, retryably, when that fails. Outlives the worker. */
	sl_wal *events;
	/* Delete what is too old in the store while the worker runs (<sluice/retention.h>). Copied. NULL: this worker
	 * deletes nothing. */
	const struct sl_retention *retention;
};
#define SL_WORKER_OPTS_INIT .struct_size = sizeof(struct sl_worker_opts)

/* Make a worker that does nothing until it is started. Strings in opts are copied; its handles must outlive the worker.
 * SL_EINVAL names the field. *out is untouched on failure. */
SL_API SL_MUST_CHECK int sl_worker_new(sl_worker **out, const struct sl_worker_opts *opts, struct sl_err *err);
/* Start the worker's threads: it claims and runs jobs until sl_worker_stop. SL_EINVAL when it was started before. */
SL_API SL_MUST_CHECK int sl_worker_start(sl_worker *worker, struct sl_err *err);
/* Claim nothing more, give back what is claimed and not started, let running handlers finish within deadline_ms
 * (SL_UNLIMITED), then abort them (shutdown), wait for them to return, and give their jobs back uncharged (those of
 * types with max_attempts 1 fail: they have started). Idempotent.
 * SL_ETIMEDOUT when handlers had to be aborted; SL_EUNAVAIL when the store was unavailable to the end, and jobs are
 * left to the ends of their leases; SL_EINVAL when called by its handlers or observers. */
SL_API SL_MUST_CHECK int sl_worker_stop(sl_worker *worker, int64_t deadline_ms, struct sl_err *err);
/* Stops with deadline 0 when it runs. NULL is allowed. Does nothing when called by its handlers or observers. */
SL_API void sl_worker_free(sl_worker *worker);
/* Wait until the worker has enqueued what schedules had due at its start, and nothing of its types is due, awaiting a
 * retry or running anywhere. SL_ETIMEDOUT; the text names types that are paused and have jobs left, and the log does so
 * while it waits: they are drained once sl_jobs_resume resumes them. */
SL_API SL_MUST_CHECK int sl_worker_drain(sl_worker *worker, int64_t timeout_ms, struct sl_err *err);
/* The worker's id, as jobs show it. Lives as long as the worker. */
SL_API const char *sl_worker_id(const sl_worker *worker);

struct sl_worker_stats {
	size_t struct_size;
	uint32_t slots, busy; /* handlers running now */
	uint64_t claimed, completed, failed, retried, lost, reaped, released, renewals;
	uint64_t exchanges, polls, notified; /* round trips that settled or claimed; wake-ups by reason */
	bool connected;                      /* the last call to the store succeeded */
};
/* A snapshot of the counts since the start. struct_size must be set. */
SL_API void sl_worker_get_stats(sl_worker *worker, struct sl_worker_stats *out);
/* 0: the event log accepts records, or the worker has none. Otherwise why it does not: the worker claims nothing until
 * sl_wal_reopen, which it calls itself, succeeds. Attempts whose events could not be written are released without a
 * charge; those of types with max_attempts 1 fail. */
SL_API int sl_worker_log_error(sl_worker *worker, struct sl_err *err);

/* ---- attempts: called by handlers and middlewares ---- */

enum sl_abort_reason {
	SL_ABORT_NONE = 0,
	SL_ABORT_TAKEN_BY_ANOTHER_WORKER = 1,
	SL_ABORT_ALREADY_COMPLETED = 2,
	SL_ABORT_NOT_FOUND = 3,
	SL_ABORT_ERROR = 4, /* the lease could not be renewed in time: the store is unavailable */
	SL_ABORT_TIMEOUT = 5,
	SL_ABORT_CANCELLED = 6,
	SL_ABORT_SHUTDOWN = 7,
	SL_ABORT_ALREADY_FAILED = 8 /* failed from outside */
};
/* "taken_by_another_worker" … */
SL_API const char *sl_abort_reason_name(enum sl_abort_reason reason);

/* The job as claimed: id, chain_id, type, input, priority, traceparent, created_ms; attempt counts this start. Lives as
 * long as the attempt. */
SL_API const struct sl_job *sl_attempt_job(const sl_attempt *attempt);
/* The id of the worker that runs the attempt. Lives as long as the attempt. */
SL_API const char *sl_attempt_worker_id(const sl_attempt *attempt);
/* Visit the chains that this job waited for, with their outputs, in the order in which they were given. */
SL_API SL_MUST_CHECK int sl_attempt_blockers(sl_attempt *attempt, sl_chain_fn *fn, void *ctx, struct sl_err *err);

/* The abort signal. reason: SL_ABORT_NONE until it fires; it never changes after. fd: readable once fired, made at the
 * first call, belongs to the attempt; negative SL_E… on failure. wait: SL_ABORT_NONE when the time is over. */
SL_API enum sl_abort_reason sl_attempt_aborted(const sl_attempt *attempt);
SL_API int sl_attempt_abort_fd(sl_attempt *attempt, struct sl_err *err);
SL_API enum sl_abort_reason sl_attempt_wait_abort(sl_attempt *attempt, int64_t timeout_ms);

/*
 * Transactions. staged: prepare runs fn in one transaction that is committed before it returns; then work outside of
 * any, with the lease renewed; then complete. atomic: the transaction stays open, and complete, continue, fail or
 * reschedule commit it: the handler's SQL and the end of the job are one. In both the job's row is guarded first:
 * SL_ECANCELLED when the job is lost. fn may be NULL in atomic mode. A handler that returns without ending the job
 * rolls an atomic transaction back, and has failed.
 */
enum sl_prepare_mode { SL_STAGED = 1, SL_ATOMIC = 2 };
typedef int sl_tx_fn(sl_tx *tx, struct sl_err *err, void *ctx);
SL_API SL_MUST_CHECK int sl_attempt_prepare(sl_attempt *attempt, enum sl_prepare_mode mode, sl_tx_fn *fn, void *ctx,
					    struct sl_err *err);
/* The open atomic transaction, or NULL. */
SL_API sl_tx *sl_attempt_tx(sl_attempt *attempt);

/*
 * End the job; once per attempt (SL_EINVAL for a second time). Inside an atomic transaction, and with a fn, the call
 * commits: durable when 0 returns, SL_ECANCELLED when the job was lost. Otherwise the end is written after the handler
 * returned, together with those of other jobs.
 */
SL_API SL_MUST_CHECK int sl_attempt_complete(sl_attempt *attempt, const char *output, struct sl_err *err);
/* As complete; fn runs its SQL in the completing transaction (a second one, in staged mode). */
SL_API SL_MUST_CHECK int sl_attempt_complete_with(sl_attempt *attempt, const char *output, sl_tx_fn *fn, void *ctx,
						  struct sl_err *err);
/* The next job must not wait for a chain that waits, near or far, for this one, nor for one that does not exist: the
 * attempt then fails with the reason. */
SL_API SL_MUST_CHECK int sl_attempt_continue(sl_attempt *attempt, const struct sl_new_job *next, struct sl_err *err);
/* For good, whatever attempts are left. */
SL_API SL_MUST_CHECK int sl_attempt_fail(sl_attempt *attempt, const char *reason, struct sl_err *err);
/* Run again later; not charged. */
SL_API SL_MUST_CHECK int sl_attempt_reschedule_in(sl_attempt *attempt, int64_t delay_ms, struct sl_err *err);
SL_API SL_MUST_CHECK int sl_attempt_reschedule_at(sl_attempt *attempt, int64_t at_ms, struct sl_err *err);

/* Report progress as JSON; shown by listings. Written with the next renewal or end, the last one wins; immediately when
 * the job runs longer than a second. */
SL_API SL_MUST_CHECK int sl_attempt_progress(sl_attempt *attempt, const char *json, struct sl_err *err);
/* Hand an event to the worker's log; durable before the job settles. */
SL_API SL_MUST_CHECK int sl_attempt_emit(sl_attempt *attempt, enum sl_event_type type, const void *data, size_t len,
					 struct sl_err *err);

#ifdef __cplusplus
}
#endif
#endif
