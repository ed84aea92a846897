/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transactions and their effects. A store reports notifications and changes while its statements run. They are
 * collected here and go out (notifications merged and published, changes observed) once they are durable; what is
 * rolled back, also to a savepoint, is never sent.
 *
 *   struct sl__effects   the collector alone, for a call that runs in its own transaction (tx NULL):
 *                            struct sl__effects fx;
 *                            sl__effects_init(&fx, home);
 *                            rc = ops->reap(…, &fx.scope, err);
 *                            sl__effects_end(&fx, rc == 0);
 *   sl_tx                a store's transaction and its collector
 *
 * Thread safety: one thread at a time each. Ownership: both borrow the home, which outlives them.
 */
#ifndef SL_JOBS_TX_H
#define SL_JOBS_TX_H

#include <sys/types.h>

#include "jobs/client/notes.h"
#include "jobs/store/ops.h"
#include <sluice/adapter/observe.h>
#include <sluice/jobs.h>
#include <sluice/metrics.h>

/* Observations go to the handle's observer, and into one counter per kind of the environment's metrics
 * (sluice_job_observations_total{kind="job_created"}). sl__observe is for any thread; worker is borrowed. */
#define SL__OBSERVE_COUNT (SL_OBSERVE_CHAIN_COMPLETED + 1)

struct sl__observer {
	sl_observe_fn *fn;
	void *ctx;
	const char *worker; /* NULL: a client */
	bool counts;
	sl_counter *counters[SL__OBSERVE_COUNT];
};

/* Otherwise nothing need be collected. */
static inline bool sl__observer_listens(const struct sl__observer *o)
{
	return o->fn != NULL || o->counts;
}
/* The worker is filled in. No lock may be held. */
void sl__observe(const struct sl__observer *o, const struct sl_observation *observation);

/* What a client and a worker share: their store, their notifier and their observer. */
struct sl__home {
	struct sl_env env;
	pid_t pid;
	sl_store store;
	const sl_notify *notify; /* or NULL */
	struct sl__observer observer;
	const char *what; /* "jobs client", "worker": for errors */
};

struct sl__home_opts {
	const char *what; /* "jobs client", "worker" */
	const struct sl_env *env;
	const sl_store *store;   /* required */
	const sl_notify *notify; /* or NULL */
	sl_observe_fn *observe;  /* or NULL */
	void *observe_ctx;
	const char *worker; /* its id; NULL: a client */
};

/* A store or notifier of another version is SL_EINVAL. Nothing to free. */
SL_MUST_CHECK int sl__home_init(struct sl__home *home, const struct sl__home_opts *opts, struct sl_err *err);
/* SL_EFORKED in a child of the process that made it. */
SL_MUST_CHECK int sl__home_check(const struct sl__home *home, struct sl_err *err);

#define SL__EFFECTS_INLINE 4

struct sl__effects {
	const struct sl__home *home;
	struct sl__notes notes; /* also holds the names of the changes' types */
	struct sl_change *changes;
	size_t n, cap;
	uint64_t lost;               /* changes that found no memory: a warning is logged */
	struct sl_store_scope scope; /* for the store; without an observer, changes are not asked for */
	struct sl_change inline_changes[SL__EFFECTS_INLINE];
};

void sl__effects_init(struct sl__effects *fx, const struct sl__home *home);
/* Publish and observe what was collected, and empty it. For what is durable. */
void sl__effects_send(struct sl__effects *fx);
void sl__effects_fini(struct sl__effects *fx);
/* send when it has happened, then fini. */
void sl__effects_end(struct sl__effects *fx, bool happened);

/* A new transaction; or one on the caller's connection, when native is not NULL (see `join`). kept: an attempt's, on
 * which sl_tx_commit is refused and sl_tx_rollback does nothing; only sl__tx_commit and sl__tx_rollback end it. */
SL_MUST_CHECK int sl__tx_begin(const struct sl__home *home, void *native, bool kept, sl_tx **out, struct sl_err *err);
/* For the calls to the store, with sl__tx_scope. */
sl_store_tx *sl__tx_store(sl_tx *tx);
/* audit: who makes the next change in it; n 0: it is not audited. */
const struct sl_store_scope *sl__tx_scope(sl_tx *tx, const struct sl_audit_record *audit, size_t n);
/* Both free tx. The effects go out after the commit. */
SL_MUST_CHECK int sl__tx_commit(sl_tx *tx, struct sl_err *err);
void sl__tx_rollback(sl_tx *tx);
/* Is tx (not NULL) of this store and process? SL_EINVAL, SL_EFORKED. */
SL_MUST_CHECK int sl__tx_check(const sl_tx *tx, const struct sl__home *home, struct sl_err *err);

#endif
