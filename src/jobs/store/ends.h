/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How jobs end, as every store decides it: what a chain that is ended from outside becomes, and what a settle counts.
 *
 * Thread safety: no state. Ownership: texts are the caller's, or constants.
 */
#ifndef SL_JOBS_STORE_ENDS_H
#define SL_JOBS_STORE_ENDS_H

#include "jobs/store/ops.h"

/* How a chain's last job ends from outside. */
struct sl__end {
	enum sl_job_status status;
	enum sl_lost_reason reason; /* for the worker that has the job */
	enum sl_change_kind change;
	const char *history; /* the error of the attempt that is cut short */
	const char *output, *error;
};
static inline struct sl__end sl__end_completed(const char *output)
{
	return (struct sl__end){.status = SL_JOB_COMPLETED,
				.reason = SL_LOST_COMPLETED,
				.change = SL_CHANGE_COMPLETED,
				.history = "completed from outside",
				.output = output != NULL ? output : "null"};
}
static inline struct sl__end sl__end_failed(const char *error)
{
	const char *why = error != NULL ? error : "failed from outside";
	return (struct sl__end){.status = SL_JOB_FAILED,
				.reason = SL_LOST_FAILED,
				.change = SL_CHANGE_FAILED,
				.history = why,
				.error = why};
}
static const struct sl__end sl__end_cancelled = {
	.status = SL_JOB_CANCELLED, .reason = SL_LOST_CANCELLED, .change = SL_CHANGE_CANCELLED, .history = "cancelled"};

/* Has an attempt ended with this settle? It is in the history then, or the completion is. A release or a failure for
 * good without a start is that of a worker which gave the job back, or found that its attempts had run out. */
static inline bool sl__settle_has_run(const struct sl_settle *s)
{
	return s->started_ms != 0 || (s->kind != SL_SETTLE_FAIL && s->kind != SL_SETTLE_RELEASE);
}
/* Does it count against max_attempts? */
static inline bool sl__settle_is_charged(const struct sl_settle *s)
{
	return s->kind != SL_SETTLE_RESCHEDULE && s->kind != SL_SETTLE_RELEASE && sl__settle_has_run(s);
}
/* What a job that is settled so has as its output; NULL: nothing. */
static inline const char *sl__settle_output(const struct sl_settle *s)
{
	if (s->kind != SL_SETTLE_COMPLETE)
		return NULL;
	return s->output != NULL ? s->output : "null";
}

#endif
