/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Retention: old chains and events are deleted while the store is in use. A worker (struct sl_worker_opts) or any other
 * program runs it. Of all processes that run it on a store, one deletes; when that one ends, another takes over.
 *
 * Guarantees
 *  - A chain is deleted whole, with its events, and only after it has ended. It is kept while a job may ask for its output
 *    (one that has not ended, or failed and may be retried), and while its key holds: a key of scope `any` without a
 *    window holds until the chain is deleted or pruned by a person.
 *  - An event above the checkpoint of an export of the store is kept, and so is its chain. An export that has not run for
 *    90 days no longer counts.
 *  - Each step is a short transaction on a bounded number of rows, followed by a pause of 19 times its duration.
 *  - The mark of a stream is kept for as long as it has events. Without events it goes when a newer incarnation of the
 *    stream has followed, after at least a day, or after 90 days without a record.
 * Not guaranteed: that something is deleted at once when it is old enough. The store is searched every tenth of the
 * shortest limit (1 s to 60 s); what was skipped because it had not ended is found by a later search.
 *
 * Thread safety: all functions from any thread, but sl_retention_stop must be the last on its handle.
 * Ownership: strings in options are copied; the store must outlive the handle.
 */
#ifndef SLUICE_RETENTION_H
#define SLUICE_RETENTION_H

#include <sluice/jobs.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * How long to keep what. 0: what another process has set for the store, else the default. SL_UNLIMITED: for ever. A value
 * that is given is kept in the store, where it applies to all processes that delete.
 */
struct sl_retention {
	size_t struct_size;
	int64_t completed_ms; /* completed chains, after their end; default 7 days */
	int64_t failed_ms;    /* failed and cancelled chains, after their end; default 90 days */
	int64_t events_ms;    /* events of jobs that are kept, by the time of the event; default 30 days */
	int64_t lines_ms;     /* lines that were shipped without a job, the same; default 30 days */
};
#define SL_RETENTION_INIT .struct_size = sizeof(struct sl_retention)

/* The checkpoint of the export that this process runs; 0: not known yet. From the thread of the handle. */
typedef uint64_t sl_retention_checkpoint_fn(void *ctx);

struct sl_retention_opts {
	size_t struct_size;
	const struct sl_env *env;
	const sl_store *store; /* required */
	struct sl_retention keep;
	/* The name of an export of the store's events; its checkpoint is then kept in the store and heeded by all
	 * processes. NULL: none. */
	const char *export_name;
	sl_retention_checkpoint_fn *checkpoint;
	void *checkpoint_ctx;
};
#define SL_RETENTION_OPTS_INIT .struct_size = sizeof(struct sl_retention_opts)

typedef struct sl_retention_thread sl_retention_thread;

/* Start a thread that deletes what is too old. Limits and the export's name are in the store when 0 is returned, unless it
 * is unavailable: then they follow. SL_EINVAL names the field; SL_EUNSUPPORTED: the store has no retention. */
SL_API SL_MUST_CHECK int sl_retention_start(sl_retention_thread **out, const struct sl_retention_opts *opts,
					    struct sl_err *err);
/* End the thread after its current step, and free the handle. NULL is allowed. */
SL_API void sl_retention_stop(sl_retention_thread *thread);

/* What is in effect in a store. */
struct sl_retention_status {
	size_t struct_size;
	struct sl_retention keep; /* SL_UNLIMITED: for ever */
	bool active;              /* a process deletes now */
	int64_t deleted_ms;       /* when something was last deleted; 0: not yet */
	/* Deleted since the store was created. */
	uint64_t chains;                      /* also by sl_jobs_prune */
	uint64_t completed_jobs, failed_jobs; /* of these chains */
	uint64_t events;                      /* that were too old themselves */
	bool exports;                         /* an export is heeded */
	uint64_t exported;                    /* its checkpoint */
};
SL_API SL_MUST_CHECK int sl_retention_get(const sl_store *store, struct sl_retention_status *out, struct sl_err *err);

#ifdef __cplusplus
}
#endif
#endif
