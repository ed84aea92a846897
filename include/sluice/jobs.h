/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs: a queue in your database, with leases, chains and workers. A program opens a store, registers its job types,
 * enqueues chains with a client and runs them with a worker (<sluice/worker.h>). Client and worker also work in separate
 * programs.
 *
 * How it works
 *  - A job has a type, which names its handler, and a JSON input. A chain is one job after the other: sl_jobs_enqueue
 *    starts it with its first job, whose id is the chain's. A job completes the chain with an output, or continues it
 *    with the next job. The status of a chain is that of its last job; <sluice/job.h> draws the statuses.
 *  - A job with blockers waits until those chains have completed. A blocker that fails, is cancelled or deleted leaves
 *    it blocked; once that chain is redriven and completes, the job is pending.
 *  - A pending job is due at its time by the store's clock. Workers claim due jobs of their types, smaller priorities
 *    first, then smaller ids. A notification wakes them early; polling finds the job when the notification is lost.
 *  - A claim takes a lease of lease_ms, which the worker renews every renew_interval_ms. A job whose lease has expired is
 *    taken back by any worker of its type. The first time it runs again immediately, later by its retry policy.
 *  - An attempt is one run of the handler. One that fails is retried after a delay (10 s, doubling up to 300 s) until
 *    max_attempts are used up (default: never) or the handler fails the job for good. Runs that were lost with their
 *    worker count; those that asked for a later time, or that a worker gave back at its stop, do not. Attempt numbers
 *    grow and are never given twice, but some may be skipped.
 *  - Completed, failed and cancelled are final. A failed or cancelled chain is kept, and can be redriven or deleted.
 *  - A key deduplicates: while it holds, another start with it returns the chain that is there.
 *
 * Guarantees
 *  - Once starting a chain has returned 0 (and the caller's transaction, if any, has committed), the chain survives
 *    crashes of clients, workers and the database. It stays visible until it completes, fails, is cancelled or is
 *    deleted.
 *  - At most one completion of a job is accepted. A worker that lost its lease cannot complete the job; the handler's
 *    abort signal gives the reason.
 *  - A completion, the next job of the chain and the jobs it unblocks are one transaction.
 * Not guaranteed: that a handler runs only once. Handlers run at least once, so side effects outside the store must be
 * idempotent. SQL that a handler runs in the completing transaction takes effect once.
 *
 * Names of the specification: createQueuertClient is sl_jobs_open, startJobChain sl_jobs_enqueue, getJobChain
 * sl_jobs_get_chain, completeJobChain sl_jobs_complete, deleteJobChains sl_jobs_delete, waitForJobChainCompletion
 * sl_jobs_wait; withNotify is a transaction of sl_jobs_begin, whose commit notifies once. A stateAdapter is a sl_store, a
 * notifyAdapter a sl_notify, the observabilityAdapter `observe`, the jobTypeRegistry sl_job_types; retryConfig is the
 * field retry, leaseConfig lease_ms and renew_interval_ms.
 *
 * Thread safety: all functions on a client may be called from any thread, except sl_jobs_close, which must be last. A
 * transaction is used by one thread at a time. Handles do not work in a forked child (SL_EFORKED).
 * Ownership: strings and arrays given in are copied before a call returns, unless it says otherwise.
 */
#ifndef SLUICE_JOBS_H
#define SLUICE_JOBS_H

#include <sluice/adapter/env.h>
#include <sluice/adapter/observe.h>
#include <sluice/event.h>
#include <sluice/retry.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- stores and notifiers ---- */

struct sl_store_opts {
	size_t struct_size;
	const struct sl_env *env;
	int32_t connections;          /* at most; default 4; transactions have all but one. A worker's renewals have one
					 more, which nothing else uses. PostgreSQL only */
	int64_t connect_timeout_ms;   /* default 5,000 */
	int64_t statement_timeout_ms; /* default 30,000; SL_UNLIMITED */
	const char *schema;           /* PostgreSQL: default "sluice" */
	enum sl_switch migrate;       /* bring the schema up to date; default on. Off: SL_EUNSUPPORTED when it is not */
	enum sl_switch create;        /* create a store that does not exist; default on. Off: SL_EUNAVAIL */
};
#define SL_STORE_OPTS_INIT .struct_size = sizeof(struct sl_store_opts)

/* url: "sqlite:FILE" (created with mode 0600, folders with 0700; a leading ~/ is the home folder) or "postgres://…",
 * "postgresql://…". A password belongs in PGPASSWORD, a service or a passfile; it is never put into an error text.
 * Free with sl_store_close, after all clients and workers that use it. */
SL_API SL_MUST_CHECK int sl_store_open(sl_store *out, const char *url, const struct sl_store_opts *opts,
				       struct sl_err *err);
SL_API SL_MUST_CHECK int sl_store_sqlite_open(sl_store *out, const char *path, const struct sl_store_opts *opts,
					      struct sl_err *err);
SL_API SL_MUST_CHECK int sl_store_postgres_open(sl_store *out, const char *conninfo, const struct sl_store_opts *opts,
						struct sl_err *err);
SL_API void sl_store_close(sl_store *store);
/* The default of the command: "sqlite:~/.sluice/sluice.db". */
SL_API const char *sl_store_default_url(void);

/* The notifier that suits the url: LISTEN/NOTIFY, or unix sockets next to the SQLite file. In-process: for one process
 * with any store. All deliver within the process at once. Free with sl_notify_close, after its users. */
SL_API SL_MUST_CHECK int sl_notify_open(sl_notify *out, const char *url, const struct sl_env *env, struct sl_err *err);
SL_API SL_MUST_CHECK int sl_notify_local_open(sl_notify *out, const struct sl_env *env, struct sl_err *err);
SL_API SL_MUST_CHECK int sl_notify_sqlite_open(sl_notify *out, const char *path, const struct sl_env *env,
					       struct sl_err *err);
SL_API SL_MUST_CHECK int sl_notify_postgres_open(sl_notify *out, const char *conninfo, const struct sl_env *env,
						 struct sl_err *err);
SL_API void sl_notify_close(sl_notify *notify);

/* ---- types ---- */

/* Validate JSON for the type. Returns 0, or an error whose message is for the author of the JSON. */
typedef int sl_job_validate_fn(const char *type, const char *json, struct sl_err *err, void *ctx);

struct sl_job_type {
	size_t struct_size;
	const char *name;             /* 1 to 128 bytes of [A-Za-z0-9._:/-] */
	struct sl_retry_policy retry; /* zero fields from SL_RETRY_JOBS; max_attempts too: default SL_UNLIMITED */
	int64_t lease_ms;             /* default 60,000 */
	int64_t renew_interval_ms;    /* default 30,000, or a third of a lease_ms that was given; at most half of it */
	int64_t timeout_ms;           /* of one attempt; default SL_UNLIMITED. Its abort is a request: a handler that
					 ignores it keeps slot and lease, and its attempt fails when it returns */
	int32_t priority;             /* of new jobs that give none */
	int32_t slots;                /* at once in one worker; default: all of the worker's */
	sl_job_validate_fn *validate_input;
	sl_job_validate_fn *validate_output;
	void *validate_ctx;
};
#define SL_JOB_TYPE_INIT .struct_size = sizeof(struct sl_job_type)

/* The registry that clients and workers share. Types are added before it is used; it outlives its users. */
typedef struct sl_job_types sl_job_types;
SL_API SL_MUST_CHECK int sl_job_types_new(sl_job_types **out, const struct sl_env *env, struct sl_err *err);
SL_API SL_MUST_CHECK int sl_job_types_add(sl_job_types *types, const struct sl_job_type *type, struct sl_err *err);
/* Allow types that are not in the registry, with all defaults. Without this call, a new job of such a type is
 * SL_EINVAL. */
SL_API void sl_job_types_allow_others(sl_job_types *types);
SL_API void sl_job_types_free(sl_job_types *types);

/* ---- client ---- */

typedef struct sl_jobs sl_jobs;

struct sl_jobs_opts {
	size_t struct_size;
	const struct sl_env *env;
	const sl_store *store;     /* required; outlives the client */
	const sl_notify *notify;   /* NULL: none; waiting then polls */
	const sl_job_types *types; /* NULL: any type, all defaults */
	sl_observe_fn *observe;
	void *observe_ctx;
	int64_t wait_poll_ms; /* of sl_jobs_wait; default 1,000 with a healthy notifier, else 100 */
	/* Who makes the changes of this client. Each change then writes the record to the audit trail in its own
	 * transaction, with the chains that it changed: without the record there is no change. Outlives the client. A
	 * client is cheap to open, so one for each request is fine. Several, n_audit of them: of sl_jobs_enqueue_many
	 * only; they stand for its chains in turn. NULL: changes are not audited. */
	const struct sl_audit_record *audit;
	size_t n_audit; /* default 1 */
};
#define SL_JOBS_OPTS_INIT .struct_size = sizeof(struct sl_jobs_opts)

/* Make a client of a store. The store, the notifier and the records of opts must outlive it. SL_EINVAL names the field.
 * *out is untouched on failure. */
SL_API SL_MUST_CHECK int sl_jobs_open(sl_jobs **out, const struct sl_jobs_opts *opts, struct sl_err *err);
SL_API void sl_jobs_close(sl_jobs *client);

/* A transaction for the calls below that take one, and for your own SQL through sl_tx_native. */
typedef struct sl_tx sl_tx;
SL_API SL_MUST_CHECK int sl_jobs_begin(sl_jobs *client, sl_tx **out, struct sl_err *err);
/* On your own connection (PGconn *, sqlite3 *). A PGconn inside a transaction is joined: sl_tx_commit and
 * sl_tx_rollback then only release it, and you end your own transaction, of which the notification is a part;
 * sl_tx_notify_after makes it a separate call for you to make. An idle PGconn, and any sqlite3 (which must be idle),
 * gets a transaction that sl_tx_commit and sl_tx_rollback end. */
SL_API SL_MUST_CHECK int sl_jobs_join(sl_jobs *client, void *native, sl_tx **out, struct sl_err *err);
SL_API void *sl_tx_native(sl_tx *tx);
/* SAVEPOINT, RELEASE and ROLLBACK TO of SQL. A rollback drops the notifications of what it undoes. SL_EINVAL: an
 * invalid or unknown name. */
SL_API SL_MUST_CHECK int sl_tx_savepoint(sl_tx *tx, const char *name, struct sl_err *err);
SL_API SL_MUST_CHECK int sl_tx_release(sl_tx *tx, const char *name, struct sl_err *err);
SL_API SL_MUST_CHECK int sl_tx_rollback_to(sl_tx *tx, const char *name, struct sl_err *err);
/* Both free tx. After a commit the notifications of all calls in it go out, merged: this is how to batch them. */
SL_API SL_MUST_CHECK int sl_tx_commit(sl_tx *tx, struct sl_err *err);
SL_API void sl_tx_rollback(sl_tx *tx);
/* Of a joined transaction that you end yourself, before sl_tx_commit: keep the notifications out of it. sl_tx_commit
 * then keeps tx for sl_tx_notify, to be called once your own COMMIT has succeeded: it notifies and frees tx.
 * When your transaction did not commit, free tx with sl_tx_rollback. */
SL_API void sl_tx_notify_after(sl_tx *tx);
SL_API void sl_tx_notify(sl_tx *tx);

/* tx NULL: an own transaction. chains[n], out[n]. All or none. SL_EINVAL, and SL_EDATA for JSON, name what is wrong
 * with which chain. With a registry of types, a type that is not in it is SL_EINVAL. */
SL_API SL_MUST_CHECK int sl_jobs_enqueue(sl_jobs *client, sl_tx *tx, const struct sl_new_chain *chain,
					 struct sl_started *out, struct sl_err *err);
SL_API SL_MUST_CHECK int sl_jobs_enqueue_many(sl_jobs *client, sl_tx *tx, const struct sl_new_chain *chains, size_t n,
					      struct sl_started *out, struct sl_err *err);

/* Enqueue chains once: a call with the key and the hash of an earlier one gets the results of that one (again is true),
 * and makes nothing, whatever process calls, for as long as the first call said. The results are kept in the transaction
 * of the start; a call that fails keeps nothing. SL_ECONFLICT: the key was used with another hash. */
SL_API SL_MUST_CHECK int sl_jobs_enqueue_once(sl_jobs *client, struct sl_once *once, struct sl_err *err);

/* A copy, to be released with sl_job_release or sl_chain_release, which take NULL. SL_ENOENT. */
SL_API SL_MUST_CHECK int sl_jobs_get(sl_jobs *client, uint64_t id, struct sl_job **out, struct sl_err *err);
SL_API SL_MUST_CHECK int sl_jobs_get_chain(sl_jobs *client, uint64_t id, struct sl_chain **out, struct sl_err *err);
SL_API void sl_job_release(sl_jobs *client, struct sl_job *job);
SL_API void sl_chain_release(sl_jobs *client, struct sl_chain *chain);
/* fn is called with no lock held and may use the client. The cursor of the next page is the last id seen. */
SL_API SL_MUST_CHECK int sl_jobs_list(sl_jobs *client, const struct sl_job_filter *filter, sl_job_fn *fn, void *ctx,
				      struct sl_err *err);
SL_API SL_MUST_CHECK int sl_jobs_list_chains(sl_jobs *client, const struct sl_job_filter *filter, sl_chain_fn *fn,
					     void *ctx, struct sl_err *err);
/* Visit the attempts of a job, the first one first. fn as above. */
SL_API SL_MUST_CHECK int sl_jobs_attempts(sl_jobs *client, uint64_t id, sl_attempt_record_fn *fn, void *ctx,
					  struct sl_err *err);
/* Visit the number of jobs of each type and status. fn as above. */
SL_API SL_MUST_CHECK int sl_jobs_counts(sl_jobs *client, sl_job_count_fn *fn, void *ctx, struct sl_err *err);

/* Claims in force, in the order of their ids after `after` (NULL: from the first), at most limit (0: 100; 10,000). */
SL_API SL_MUST_CHECK int sl_jobs_leases(sl_jobs *client, const uint8_t after[16], uint32_t limit, sl_lease_fn *fn,
					void *ctx, struct sl_err *err);
/* Workers in the order of their names: those that report to the store, every 30 s while they run, and those that hold
 * leases. One that was killed is listed for 90 s, and until its leases expire. */
struct sl_worker_info {
	const char *worker;
	uint64_t leases, jobs;
	const char *const *types; /* that it serves; of one that does not report, those of its jobs, in order */
	size_t n_types;
	int64_t oldest_claimed_ms; /* 0: it holds no lease */
	int64_t until_ms;          /* the first of its leases runs out; 0 */
	/* What it reports. seen_ms 0: nothing, and none of these is set. Times are the store's. */
	int64_t seen_ms, started_ms;
	const char *host, *version;
	int64_t pid;
	uint32_t slots;
	const char *error; /* its last failure, of an attempt or of its log; NULL: none */
	int64_t error_ms;
};
typedef int sl_worker_info_fn(const struct sl_worker_info *worker, void *ctx);
SL_API SL_MUST_CHECK int sl_jobs_workers(sl_jobs *client, sl_worker_info_fn *fn, void *ctx, struct sl_err *err);
/* Failed jobs, and jobs that are tried again, grouped by their errors; NULL: the defaults of a filter. */
SL_API SL_MUST_CHECK int sl_jobs_errors(sl_jobs *client, const struct sl_error_filter *filter, sl_error_group_fn *fn,
					void *ctx, struct sl_err *err);
/* Streams of events in the order of (stream, incarnation) after *after (NULL: from the first), limit as above. */
SL_API SL_MUST_CHECK int sl_jobs_event_streams(sl_jobs *client, const struct sl_event_stream *after, uint32_t limit,
					       sl_event_stream_fn *fn, void *ctx, struct sl_err *err);

/* Wait until the chain has ended: completed, failed or cancelled. *out (may be NULL) as from get_chain. SL_ETIMEDOUT;
 * SL_ENOENT (also when it is deleted meanwhile). timeout_ms: SL_UNLIMITED; 0 asks once. */
SL_API SL_MUST_CHECK int sl_jobs_wait(sl_jobs *client, uint64_t chain_id, int64_t timeout_ms, struct sl_chain **out,
				      struct sl_err *err);

/*
 * Changes from outside. tx NULL: an own transaction. A worker that runs the job is notified immediately, and its
 * handler aborted. *n (may be NULL): how many chains were changed; SL_ENOENT for an unknown one, and none is changed.
 */
/* Complete the chain with the output, whatever its current job does. SL_EEXIST when it has ended. */
SL_API SL_MUST_CHECK int sl_jobs_complete(sl_jobs *client, sl_tx *tx, uint64_t chain_id, const char *output,
					  struct sl_err *err);
/* Fail the chain with an error for people (NULL: "failed from outside"), whatever its current job does. SL_ENOENT;
 * SL_EEXIST when it has ended. */
SL_API SL_MUST_CHECK int sl_jobs_fail(sl_jobs *client, sl_tx *tx, uint64_t chain_id, const char *error,
				      struct sl_err *err);
/* Chains that have ended are skipped. */
SL_API SL_MUST_CHECK int sl_jobs_cancel(sl_jobs *client, sl_tx *tx, const uint64_t *chains, size_t n_chains, size_t *n,
					struct sl_err *err);
/* Failed and cancelled chains continue at their last job, with all its attempts; others are skipped. A chain that was
 * enqueued with a key takes it again, unless one that has ended holds it. SL_EEXIST: another chain that has not ended
 * has the key of one of them; SL_ECONFLICT: one of them waits for a chain that was deleted, and could only be completed
 * from outside, or deleted. Then none is changed, and the message names both chains. */
SL_API SL_MUST_CHECK int sl_jobs_redrive(sl_jobs *client, sl_tx *tx, const uint64_t *chains, size_t n_chains, size_t *n,
					 struct sl_err *err);
/* Make jobs that are scheduled for later due now. */
SL_API SL_MUST_CHECK int sl_jobs_trigger(sl_jobs *client, sl_tx *tx, const uint64_t *chains, size_t n_chains, size_t *n,
					 struct sl_err *err);
/* Delete chains with their jobs, attempts, keys and events. SL_EPENDING when a chain outside of the set waits for one of
 * them and not cascade: nothing is deleted, and the message names one. With cascade those are deleted too. */
SL_API SL_MUST_CHECK int sl_jobs_delete(sl_jobs *client, sl_tx *tx, const uint64_t *chains, size_t n_chains,
					bool cascade, size_t *n, struct sl_err *err);
/* No job of a paused type is claimed, by any worker; those that run continue. */
SL_API SL_MUST_CHECK int sl_jobs_pause(sl_jobs *client, const char *type, struct sl_err *err);
SL_API SL_MUST_CHECK int sl_jobs_resume(sl_jobs *client, const char *type, struct sl_err *err);
/* Delete what ended more than keep_ms ago, in bounded batches, until nothing is left; *n (may be NULL) chains. Events
 * older than that which came after their job was deleted are removed, too. */
SL_API SL_MUST_CHECK int sl_jobs_prune(sl_jobs *client, int64_t keep_ms, uint64_t *n, struct sl_err *err);

/* Recurring schedules. spec: five fields (minute hour day-of-month month day-of-week; lists, ranges, steps, names) or
 * @yearly @monthly @weekly @daily @hourly, in UTC. Fired by every worker; each tick is enqueued exactly once over all.
 * next_ms, last_ms and last_chain of *cron are ignored. */
SL_API SL_MUST_CHECK int sl_jobs_cron_put(sl_jobs *client, const struct sl_cron *cron, struct sl_err *err);
/* Remove a schedule; jobs that it has enqueued stay. SL_ENOENT. */
SL_API SL_MUST_CHECK int sl_jobs_cron_remove(sl_jobs *client, const char *name, struct sl_err *err);
/* Visit every schedule. fn is called with no lock held and may use the client. */
SL_API SL_MUST_CHECK int sl_jobs_cron_list(sl_jobs *client, sl_cron_fn *fn, void *ctx, struct sl_err *err);
/* The first tick after after_ms; SL_EDATA with the place that is wrong; SL_ENOENT when it never fires (30 February). */
SL_API SL_MUST_CHECK int sl_cron_next(const char *spec, int64_t after_ms, int64_t *next_ms, struct sl_err *err);

/* The audit trail. SL_EUNSUPPORTED when the store has no audit trail.
 * Record a change outside the store, before it is made. */
SL_API SL_MUST_CHECK int sl_jobs_audit_put(sl_jobs *client, const struct sl_audit_record *record, struct sl_err *err);
/* The newest first, with smaller ids than `before` (0: from the newest), at most `limit` (1 to 10,000). */
SL_API SL_MUST_CHECK int sl_jobs_audit_list(sl_jobs *client, uint64_t before, uint32_t limit, sl_audit_record_fn *fn,
					    void *ctx, struct sl_err *err);
/* Delete records that are older than keep_ms. *n (may be NULL): how many. */
SL_API SL_MUST_CHECK int sl_jobs_audit_prune(sl_jobs *client, int64_t keep_ms, uint64_t *n, struct sl_err *err);

/* Events of a job that have reached the store, in order of offset. */
SL_API SL_MUST_CHECK int sl_jobs_events(sl_jobs *client, uint64_t job_id, uint64_t after, uint32_t limit,
					sl_event_row_fn *fn, void *ctx, struct sl_err *err);

#ifdef __cplusplus
}
#endif
#endif
