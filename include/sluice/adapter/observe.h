/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Observation: one callback that gets every change of state of jobs and workers, after it is durable. The metrics
 * of the library come from the same places.
 *
 * Thread safety: called on the thread where it happened, several at once, no lock held; must be quick and must not call
 * the handle it came from. Ownership: an observation and all that it points to live for the call.
 */
#ifndef SLUICE_ADAPTER_OBSERVE_H
#define SLUICE_ADAPTER_OBSERVE_H

#include <sluice/job.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name in C, name in text) */
#define SL_OBSERVE_TABLE(X)                                                                                            \
	X(WORKER_STARTED, "worker_started")                                                                            \
	X(WORKER_STOPPING, "worker_stopping")                                                                          \
	X(WORKER_STOPPED, "worker_stopped")                                                                            \
	X(WORKER_ERROR, "worker_error")                                                                                \
	X(JOB_CREATED, "job_created")                                                                                  \
	X(JOB_BLOCKED, "job_blocked")                                                                                  \
	X(JOB_UNBLOCKED, "job_unblocked")                                                                              \
	X(JOB_SCHEDULED, "job_scheduled")                                                                              \
	X(JOB_ACQUIRED, "job_acquired")                                                                                \
	X(JOB_COMPLETED, "job_completed")                                                                              \
	X(JOB_FAILED, "job_failed")                                                                                    \
	X(JOB_CANCELLED, "job_cancelled")                                                                              \
	X(JOB_REAPED, "job_reaped")                                                                                    \
	X(JOB_DELETED, "job_deleted")                                                                                  \
	X(ATTEMPT_STARTED, "attempt_started")                                                                          \
	X(ATTEMPT_COMPLETED, "attempt_completed")                                                                      \
	X(ATTEMPT_FAILED, "attempt_failed")                                                                            \
	X(ATTEMPT_ABORTED, "attempt_aborted")                                                                          \
	X(LEASE_RENEWED, "lease_renewed")                                                                              \
	X(LEASE_LOST, "lease_lost")                                                                                    \
	X(CHAIN_COMPLETED, "chain_completed")

enum sl_observe_kind {
	SL_OBSERVE_NONE = 0,
#define SL_OBSERVE_ENUM(name, text) SL_OBSERVE_##name,
	SL_OBSERVE_TABLE(SL_OBSERVE_ENUM)
#undef SL_OBSERVE_ENUM
};

struct sl_observation {
	enum sl_observe_kind kind;
	const char *worker;    /* or NULL: a client did it */
	const char *type;      /* or NULL */
	uint64_t id, chain_id; /* 0: none */
	int32_t attempt;       /* 0: none */
	int64_t duration_ns;   /* of attempt_*: how long it ran; of job_acquired: how long it was due; -1: not known */
	const char *traceparent;  /* or NULL */
	const struct sl_err *err; /* of *_error, *_failed, *_aborted and lease_lost; else NULL */
};
typedef void sl_observe_fn(const struct sl_observation *observation, void *ctx);

/* "job_created"; "unknown" for an unknown kind. */
SL_API const char *sl_observe_name(enum sl_observe_kind kind);

#ifdef __cplusplus
}
#endif
#endif
