/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every store refuses in the same words: what is not there, what has ended, chains that would wait for each other,
 * and redrives that could not continue. They fill err (may be NULL) and return its code.
 */
#ifndef SL_JOBS_STORE_REFUSALS_H
#define SL_JOBS_STORE_REFUSALS_H

#include <sluice/err.h>
#include <sluice/job.h>

/* A search for a circle follows no more edges than this, beside those of the continuation itself. What is further away
 * is not found; see `exchange` in jobs/store/ops.h. */
#define SL__CIRCLE_EDGES 10000

/* SL_ENOENT; the last one for a chain that a new job would wait for. */
int sl__no_chain(uint64_t id, struct sl_err *err);
int sl__no_job(uint64_t id, struct sl_err *err);
int sl__no_blocker(uint64_t chain, struct sl_err *err);
/* SL_EEXIST: the chain cannot be ended from outside any more. */
int sl__refuse_ended(uint64_t chain, enum sl_job_status status, struct sl_err *err);
/* SL_EPENDING: `chain` cannot be deleted while `waiting` waits for it. */
int sl__refuse_waited_for(uint64_t waiting, uint64_t chain, struct sl_err *err);
/* A continuation of `chain` would wait for `by`, near or far, which waits for it. */
int sl__refuse_circle(uint64_t chain, uint64_t by, struct sl_err *err);
/* Redrives of `chain`: another that has not ended has its key; a blocker of it was deleted. */
int sl__refuse_key(uint64_t chain, uint64_t holder, struct sl_err *err);
int sl__refuse_orphan(uint64_t chain, uint64_t gone, struct sl_err *err);

#endif
