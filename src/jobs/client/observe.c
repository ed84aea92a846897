/* SPDX-License-Identifier: Apache-2.0 */
/* Counts observations and passes them to the observer of the handle. */
#include "jobs/client/observe.h"

int sl__observer_init(struct sl__observer *o, const struct sl_env *env, struct sl_err *err)
{
	o->counts = env->metrics != NULL;
	for (int kind = SL_OBSERVE_NONE + 1; o->counts && kind < SL__OBSERVE_COUNT; kind++) {
		struct sl_metric_label label = {"kind", sl_observe_name((enum sl_observe_kind)kind)};
		int rc = sl_metrics_counter(env->metrics, "sluice_job_observations_total",
					    "Changes of state of jobs, attempts, leases and workers.", &label, 1,
					    &o->counters[kind], err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

void sl__observe(const struct sl__observer *o, const struct sl_observation *observation)
{
	assert((unsigned)observation->kind < SL__OBSERVE_COUNT);
	sl_counter_add(o->counters[observation->kind], 1);
	if (o->fn == NULL)
		return;
	struct sl_observation full = *observation;
	full.worker = o->worker;
	o->fn(&full, o->ctx);
}

void sl__observe_change(const struct sl__observer *o, const struct sl_change *change)
{
	static const enum sl_observe_kind kinds[] = {
		[SL_CHANGE_CREATED] = SL_OBSERVE_JOB_CREATED,
		[SL_CHANGE_BLOCKED] = SL_OBSERVE_JOB_BLOCKED,
		[SL_CHANGE_UNBLOCKED] = SL_OBSERVE_JOB_UNBLOCKED,
		[SL_CHANGE_SCHEDULED] = SL_OBSERVE_JOB_SCHEDULED,
		[SL_CHANGE_REAPED] = SL_OBSERVE_JOB_REAPED,
		[SL_CHANGE_CANCELLED] = SL_OBSERVE_JOB_CANCELLED,
		[SL_CHANGE_DELETED] = SL_OBSERVE_JOB_DELETED,
		[SL_CHANGE_CHAIN_COMPLETED] = SL_OBSERVE_CHAIN_COMPLETED,
		[SL_CHANGE_COMPLETED] = SL_OBSERVE_JOB_COMPLETED,
		[SL_CHANGE_FAILED] = SL_OBSERVE_JOB_FAILED,
	};
	if ((size_t)change->kind == 0 || (size_t)change->kind >= SL_COUNT(kinds))
		return;
	struct sl_err failed = SL_ERR_INIT;
	if (change->kind == SL_CHANGE_FAILED)
		(void)sl_err_set(&failed, SL_ECANCELLED, "failed from outside");
	const struct sl_observation observation = {.kind = kinds[change->kind],
						   .type = change->type,
						   .id = change->id,
						   .chain_id = change->chain_id,
						   .duration_ns = -1,
						   .err = failed.code != 0 ? &failed : NULL};
	sl__observe(o, &observation);
}
