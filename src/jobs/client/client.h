/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's handle, shared by client.c, list.c and wait.c; and the copies of copy.c.
 *
 * A copy of what a store passes to a callback is one allocation together with its strings, so that one free releases
 * it. Rows are copies that are kept until the store has returned and user code may run.
 *
 * Thread safety: copies and rows are for one thread at a time. Ownership: the rows belong to struct sl__rows until
 * fini; a single copy belongs to the caller (sl__free).
 */
#ifndef SL_JOBS_CLIENT_H
#define SL_JOBS_CLIENT_H

#include "base/thread.h"
#include "jobs/client/tx.h"
#include "jobs/client/types.h"
#include <sluice/event.h>

struct sl__waiter;

struct sl_jobs {
	struct sl__home home;
	const sl_job_types *types;
	int64_t wait_poll_ms;                /* 0: by the health of the notifier */
	const struct sl_audit_record *audit; /* NULL: changes are not audited */
	size_t n_audit;

	sl__mutex subscribe_mu; /* held while subscribing; the notifier's threads never take it */
	bool subscribed;        /* one subscription for all waiters, made by the first and kept until close */
	sl__mutex mu;           /* guards the list; never held while the store or the notifier is called */
	struct sl__waiter *waiters;
};

/* wait.c: give the subscription back. */
void sl__jobs_unsubscribe(sl_jobs *client);

/* ---- copies ---- */

/* The copy of one job or chain. */
struct sl__copy {
	const struct sl_env *env;
	void *data; /* NULL: none was made */
};
/* Callbacks for a store, with a struct sl__copy as ctx: 0 or SL_ENOMEM. */
sl_job_fn sl__copy_job;
sl_chain_fn sl__copy_chain;

struct sl__row {
	struct sl__row *next;
	void *data; /* follows this struct, in the same allocation */
};

/* A page of jobs, chains or events ends after this many bytes, with at least one row. */
#define SL__ROWS_BYTES ((size_t)4 << 20)
#define SL__ROWS_FULL 1 /* what a callback below returns to stop the store at the end of a page */

struct sl__rows {
	const struct sl_env *env;
	struct sl__row *first, **last;
	size_t n, bytes;
	uint64_t last_id; /* of the last row: the cursor of the next page */
	bool full, no_memory;
};

void sl__rows_init(struct sl__rows *rows, const struct sl_env *env);
void sl__rows_fini(struct sl__rows *rows);
/* The data of the last row; there must be one. */
void *sl__rows_newest(const struct sl__rows *rows);
/* Callbacks for a store, with a struct sl__rows as ctx: 0, SL__ROWS_FULL or SL_ENOMEM. Counts, attempts and schedules
 * are few and come as one page. */
sl_job_fn sl__rows_job;
sl_chain_fn sl__rows_chain;
sl_attempt_record_fn sl__rows_attempt;
sl_job_count_fn sl__rows_count;
sl_cron_fn sl__rows_cron;
sl_event_row_fn sl__rows_event;
sl_lease_fn sl__rows_lease;
sl_error_group_fn sl__rows_error;
sl_event_stream_fn sl__rows_stream;
sl_heartbeat_fn sl__rows_heartbeat;

#endif
