/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where observations go: to the handle's observer, and into one counter per kind of the environment's metrics
 * (sluice_job_observations_total{kind="job_created"}).
 *
 * Thread safety: sl__observe from any thread. Ownership: worker is borrowed.
 */
#ifndef SL_JOBS_OBSERVE_H
#define SL_JOBS_OBSERVE_H

#include "base/env.h"
#include <sluice/adapter/observe.h>
#include <sluice/adapter/store.h>
#include <sluice/metrics.h>

#define SL__OBSERVE_COUNT (SL_OBSERVE_CHAIN_COMPLETED + 1)

struct sl__observer {
	sl_observe_fn *fn;
	void *ctx;
	const char *worker; /* NULL: a client */
	bool counts;
	sl_counter *counters[SL__OBSERVE_COUNT];
};

/* fn, ctx and worker are set. */
SL_MUST_CHECK int sl__observer_init(struct sl__observer *o, const struct sl_env *env, struct sl_err *err);
/* Otherwise nothing need be collected. */
static inline bool sl__observer_listens(const struct sl__observer *o)
{
	return o->fn != NULL || o->counts;
}
/* The worker is filled in. No lock may be held. */
void sl__observe(const struct sl__observer *o, const struct sl_observation *observation);
/* A change that a store reported, now that it is durable. */
void sl__observe_change(const struct sl__observer *o, const struct sl_change *change);

#endif
