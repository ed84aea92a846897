/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slots of struct sl_store_ops that both stores fill: each with its function of that name (sl__pg_…, sl__sq_…), or
 * both with that of cold.c. What a slot does and takes is written in jobs/store/ops.h only: declarations have the type of
 * the slot.
 *
 *	SL__STORE_SLOTS(DECLARE)   with   #define DECLARE(slot) SL__STORE_SLOT(sl__pg_, slot);
 */
#ifndef SL_JOBS_STORE_SLOTS_H
#define SL_JOBS_STORE_SLOTS_H

#include "jobs/store/ops.h"

/* clang-format off */
#define SL__STORE_SLOTS(X) \
	X(begin) X(join) X(native) X(savepoint) X(release_savepoint) X(rollback_to) X(commit) X(rollback) \
	X(start) X(exchange) X(guard) X(progress) X(renew) X(reap) \
	X(complete_chain) X(fail_chain) X(cancel) X(redrive) X(trigger) X(remove) X(prune) X(retain_chains) X(watch) \
	X(list_jobs) X(list_chains) X(counts) X(cron_fire) X(events_append)
#define SL__COLD_SLOTS(X) \
	X(target_id) X(pause) X(get_job) X(get_chain) X(attempts) X(outstanding) X(cron_put) X(cron_remove) X(cron_list) \
	X(events_read) X(events_newest) X(event_streams) X(leases) X(errors) X(audit_put) X(audit_list) X(audit_prune) \
	X(heartbeat) X(heartbeat_end) X(heartbeats) X(history_put) X(history_roll) X(history) \
	X(request_take) X(request_answer) \
	X(retain_events) X(retain_marks) X(retention_read) X(retention_limits) X(retention_turn) X(retention_export)
/* clang-format on */

#define SL__STORE_SLOT(prefix, slot) extern __typeof__(*((struct sl_store_ops *)0)->slot) prefix##slot

#endif
