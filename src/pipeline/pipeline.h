/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pipeline inside: the handle, a partition's task, and what the stages call of each other.
 *
 * The order of the stream is kept as ordinals: the n-th partition that this run dispatches has the ordinal n, from 0,
 * and these are the numbers of the sequencer. An error of the source, of a worker or of a commit belongs to the ordinal
 * at which the stream cannot continue; the sequencer lets everything before it out and nothing after it.
 *
 * Invariants, under mu
 *  L1  limit only falls. A partition whose ordinal is at or above it will never be committed: its holder
 *      releases it at the next check, and nothing waits for it. A failure lowers it to its ordinal, SL_PIPELINE_NOW to 0.
 *  L2  The queue is closed by the dispatcher alone, at its end; workers pop until then, also what is abandoned, so that
 *      the dispatcher never waits for room that does not come.
 *  L3  The last worker closes the sequencer, so that the committer knows that nothing comes any more.
 *
 * Locks: mu is a leaf: nothing else is locked, and no callback is called, while it is held.
 */
#ifndef SL_PIPELINE_PIPELINE_H
#define SL_PIPELINE_PIPELINE_H

#include <stdatomic.h>

#include "base/fork_guard.h"
#include "base/thread.h"
#include "flow/pool.h"
#include "flow/queue.h"
#include "flow/retry.h"
#include "flow/sequencer.h"
#include <sluice/metrics.h>
#include <sluice/pipeline.h>

/* A partition from its first element to its commit; one thread at a time holds it. */
struct sl__task {
	struct sl_pipeline_partition part; /* part.elements points into elements */
	struct sl_pipeline_element *elements;
	size_t cap;
	uint64_t ordinal;
	bool built;
	void *out, *ref;
	int64_t stored_ns;
	struct sl__task *older, *younger; /* among those that are stored and not committed, under mu */
};

struct sl__pipeline_metrics {
	sl_gauge *queue_depth, *workers_busy, *workers, *window_used, *commit_lag;
	sl_counter *build_retries, *store_retries, *commit_retries, *committed, *failed;
	sl_histogram *lag;
	size_t n_attached; /* gauges that read this pipeline */
};

struct sl_pipeline {
	struct sl_env env;
	struct sl_pipeline_opts o; /* resolved: no defaults left; o.name is `name` */
	char name[128];
	struct sl_retry_policy retry;  /* of a worker */
	struct sl_retry_policy commit; /* the same without a bound */
	struct sl__fork_guard guard;
	sl__queue *queue;
	sl__sequencer *sequencer;
	sl__pool *dispatcher, *workers, *committer;
	int wake_fd; /* an eventfd: the thread of run has something to inspect */
	int stop_fd; /* an eventfd that is never read */
	atomic_bool ran;
	atomic_int stop;                /* enum sl_pipeline_stop, only rises */
	atomic_bool failed;             /* something failed for good: take no more from the source */
	atomic_bool done;               /* the committer has left */
	bool interrupted;               /* run's thread: the source was interrupted */
	enum sl_pipeline_stop acted_on; /* run's thread: the stop that was acted on */
	int rc;                         /* the committer's, read after it was joined */
	struct sl_err error;            /* with rc */
	struct sl__pipeline_metrics metrics;

	sl__mutex mu;
	sl__cond changed; /* limit or stop changed: what waits for a retry checks them */
	uint64_t limit;
	unsigned workers_left;
	uint64_t ordinals;                /* dispatched so far */
	struct sl_pipeline_stats stats;   /* the counters of it */
	struct sl__task *oldest, *newest; /* stored and not committed, by time */
	int64_t began_ns, ended_ns;       /* of run; 0: not yet */
	int64_t busy_ns;                  /* of finished attempts */
	int64_t busy_since_sum;           /* of those that run: the sum of their beginnings */
	uint32_t busy;
};

/* stage.c: tasks */
/* false without memory: the element stays the caller's. */
SL_MUST_CHECK bool sl__task_append(sl_pipeline *p, struct sl__task *t, const struct sl_pipeline_element *e);
void sl__task_release_elements(sl_pipeline *p, struct sl__task *t);
/* Output and reference. */
void sl__task_release_product(sl_pipeline *p, struct sl__task *t);
/* All of it. NULL is allowed. */
void sl__task_free(sl_pipeline *p, struct sl__task *t);
void sl__pipeline_release_element(sl_pipeline *p, struct sl_pipeline_element *e);

/* The stages' threads. */
void sl__dispatcher_main(unsigned index, void *ctx);
void sl__pipeline_worker_main(unsigned index, void *ctx);
void sl__committer_main(unsigned index, void *ctx);

/* worker.c: no longer among those that are stored and not committed. */
void sl__pipeline_unlist(sl_pipeline *p, struct sl__task *t);

/* stage.c: what the stages share. */
void sl__pipeline_wake(sl_pipeline *p);
/* Take no more from the source? */
static inline bool sl__pipeline_ending(sl_pipeline *p)
{
	return atomic_load(&p->stop) != SL_PIPELINE_GO || atomic_load(&p->failed);
}
bool sl__pipeline_abandoned(sl_pipeline *p, uint64_t ordinal);
/* The stream cannot continue at ordinal, because of *why. */
void sl__pipeline_fail(sl_pipeline *p, uint64_t ordinal, const struct sl_err *why);
/* Wait for a retry. false: it is abandoned. Returns early, and true, when stop rises above `seen`. */
SL_MUST_CHECK bool sl__pipeline_pause(sl_pipeline *p, uint64_t ordinal, int64_t delay_ms, enum sl_pipeline_stop seen);
void sl__pipeline_step(sl_pipeline *p, const char *step, const struct sl__task *t);
/* A callback that returned rc must have filled err; one that did not gets the text of its code. */
void sl__pipeline_complete_err(struct sl_err *err, int rc);
/* Log a retry of `step`. */
void sl__pipeline_log_retry(sl_pipeline *p, const struct sl__task *t, const char *step, int64_t delay_ms,
			    const struct sl_err *err);

/* metrics.c */
SL_MUST_CHECK int sl__pipeline_metrics_attach(sl_pipeline *p, struct sl_err *err);
void sl__pipeline_metrics_detach(sl_pipeline *p);

#endif
