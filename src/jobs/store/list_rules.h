/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the lists of both stores decide alike, from the filter alone: whether an index finds the jobs, whether more than
 * the status decides, and how many ids a source may give for one page.
 */
#ifndef SL_JOBS_STORE_LIST_RULES_H
#define SL_JOBS_STORE_LIST_RULES_H

#include "base/base.h"
#include <sluice/adapter/job.h>

#define SL__LIST_STATUSES 0x7eu
#define SL__LIST_HAS(mask, status) (((mask) >> (status)) & 1u)
#define SL__LIST_LIMIT_DEFAULT 100u
#define SL__LIST_LIMIT_MAX 10000u
#define SL__LIST_SMALL_MAX 10000  /* a status with no more jobs than this is read whole */
#define SL__LIST_SCAN_OWN 20000   /* ids that a source gives at a time where the caller sets no bound */
#define SL__LIST_GIVEN_LEAST 1000 /* and where nearly all that it gives will be listed: a few will not */
#define SL__LIST_GROUPS_MAX 1000  /* parts of the queues; with more, the list is a walk along the ids */

static inline uint32_t sl__list_limit(const struct sl_job_filter *f)
{
	return f->limit == 0 ? SL__LIST_LIMIT_DEFAULT : SL_MIN(f->limit, SL__LIST_LIMIT_MAX);
}

static inline bool sl__list_by_index(const struct sl_job_filter *f)
{
	return f->key != NULL || f->chain_id != 0 || f->blocks != 0 || f->blocked_by_job != 0;
}

/* Does something other than status and type decide? */
static inline bool sl__list_searches(const struct sl_job_filter *f)
{
	return f->created_from_ms != 0 || f->created_to_ms != 0 || f->text != NULL || f->error != NULL ||
	       f->ended_from_ms != 0 || f->ended_to_ms != 0;
}

/* Does something other than the status decide? */
static inline bool sl__list_is_picky(const struct sl_job_filter *f)
{
	return f->n_types > 0 || sl__list_searches(f);
}

/* How many ids a source may give: what is listed for its status alone, and for its type where the source knows it, need
 * not be searched. */
static inline uint64_t sl__list_given(const struct sl_job_filter *f, bool searched)
{
	uint64_t scan = f->scan != 0 ? f->scan : SL__LIST_SCAN_OWN;
	uint64_t few = SL_MAX(4 * (uint64_t)sl__list_limit(f), (uint64_t)SL__LIST_GIVEN_LEAST);
	return searched ? scan : SL_MIN(scan, few);
}

/* Are only the oldest pending jobs wanted? Then what ended before them is not walked through. Not for chains: a chain
 * may be older than the job that it is at. */
static inline bool sl__list_oldest_pending(const struct sl_job_filter *f, bool chains)
{
	return !chains && f->ascending && (f->statuses & SL__LIST_STATUSES) == 1u << SL_JOB_PENDING;
}

#endif
