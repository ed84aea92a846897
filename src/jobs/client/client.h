/* SPDX-License-Identifier: Apache-2.0 */
/* The client's handle, shared by the files that make it up: client.c, list.c and wait.c. */
#ifndef SL_JOBS_CLIENT_H
#define SL_JOBS_CLIENT_H

#include "base/thread.h"
#include "jobs/client/tx.h"
#include "jobs/client/types.h"

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

#endif
