/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ordered pipeline: a numbered stream is cut into aligned partitions, the partitions are built and stored in
 * parallel, and each is committed in the order of the stream. The formats are the caller's: a source, a build, a store
 * and a commit, given as a table of functions.
 *
 *     dispatcher (1 thread)  ──▶  bounded queue  ──▶  workers (N threads)  ──▶  window  ──▶  sequencer (1 thread)
 *     next, sequence check,                           build, store,                          commit, in order,
 *     aligned partitions                              retried where they are                 retried without overtaking
 *
 * Guarantees
 *  - commit is called for one partition at a time, in the order of their numbers, without a gap and without a
 *    repetition, whatever the order in which workers finish. What one commit returned 0 for is never offered again by
 *    this run; a later run that begins after it (see `begin`) never offers it at all.
 *  - Boundaries are floor(sequence / partition_size): they depend on nothing else, so they never drift.
 *  - A missing, repeated or smaller number stops the run at its place (SL_EGAP, SL_EDUPLICATE); the error has both
 *    numbers and the source's own words for the place. What lies before the partition that it falls into is still
 *    committed.
 *  - A partition that fails for good stops the run: everything before it is committed, nothing after it ever is, no
 *    thread is left, and the error names the partition, the attempt, the step and the cause.
 *  - Bounded: at most queue_size partitions (and queue_bytes of elements) wait for a worker, each worker and the
 *    dispatcher hold one, and at most `window` finished ones wait for an earlier one. A slow partition stops the
 *    source; it does not increase memory use.
 *  - Every element, output and reference that was handed over is released exactly once, also after an error, a stop
 *    and a failed allocation.
 *  - An idle pipeline uses no CPU.
 * Not guaranteed: that build and store are called only once for a partition (retries, and a run that was stopped or
 * killed before the commit), so both must be repeatable; that a commit which failed had no effect (the catalog may have
 * taken it while its answer was lost), so commit must be idempotent by the partition's numbers. With both, the effect
 * is exactly once.
 *
 * Names of the specification: a PartitionTask is a struct sl_pipeline_partition, a PartitionResult what build and store
 * made of it; Dispatcher, WorkerPool and Sequencer are threads of the handle; the fields of its `perf:` have their names.
 *
 * Thread safety: sl_pipeline_stop, sl_pipeline_stopping and sl_pipeline_get_stats from any thread at once, also from
 * the callbacks; sl_pipeline_stop also from a signal handler. sl_pipeline_run once per handle; sl_pipeline_free after
 * run has returned, as the last call. A handle does not work in a forked child (SL_EFORKED).
 * Ownership: the table, its ctx and the environment's tables must outlive the handle; strings in options are copied.
 */
#ifndef SLUICE_PIPELINE_H
#define SLUICE_PIPELINE_H

#include <sluice/adapter/env.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_pipeline sl_pipeline;

/* The highest number that a stream may have: the one after it must be a number as well. */
#define SL_SEQUENCE_MAX ((uint64_t)INT64_MAX - 1)

/* A run of the stream: the numbers first … last, of one partition (first == last: a single one). */
struct sl_pipeline_element {
	uint64_t first, last;
	void *data;   /* the source's */
	size_t bytes; /* what it weighs against queue_bytes; may be 0 */
};

/* A partition on its way. Lives for the call that gets it. */
struct sl_pipeline_partition {
	uint64_t start, end; /* its numbers, both included */
	uint64_t number;     /* floor(start / partition_size) */
	uint32_t attempt;    /* of this step, from 1 */
	/* In order, covering start … end; released once it is stored: n_elements is 0 in commit. */
	const struct sl_pipeline_element *elements;
	size_t n_elements;
	size_t bytes; /* of all elements; also in commit */
};

#define SL_PIPELINE_OPS_VERSION 1
#define SL_PIPELINE_END 1 /* of next: the source has no more */

/*
 * What the caller supplies. Functions return 0 or a negative SL_E… with *err filled; no lock is held. Whether a failed
 * build or store is tried again is read from the error's class and code, never from its text: transient,
 * throttled and fatal ("the target is unavailable") are, and so is a plain SL_EIO, since every attempt begins afresh;
 * poison and everything else is for good. SL_ECANCELLED calls the run off: it ends there as by an error, but that is
 * neither logged nor counted as a failure.
 */
struct sl_pipeline_ops {
	int version; /* SL_PIPELINE_OPS_VERSION */

	/* ---- dispatcher's thread ---- */
	/* The next element: 0 (the pipeline owns it until release), SL_PIPELINE_END, or an error, which stops the run
	 * at that place. May block; must return soon, with anything, once interrupt was called or the descriptor of
	 * sl_pipeline_stop_fd is readable. */
	int (*next)(struct sl_pipeline_element *out, struct sl_err *err, void *ctx);
	/* Where the element stands, for people: "line 17". Writes at most n bytes with the NUL. May be NULL. */
	void (*describe)(const struct sl_pipeline_element *e, char *text, size_t n, void *ctx);

	/* ---- the thread of sl_pipeline_run ---- */
	/* The run is to end: a next that blocks should return. At most once. May be NULL. */
	void (*interrupt)(void *ctx);

	/* ---- workers' threads ---- */
	/* Scratch of one worker, made before its first build and freed at its end. May both be NULL (state NULL). A
	 * failure counts as one of the first partition that the worker took. */
	int (*worker_init)(unsigned index, void **state, struct sl_err *err, void *ctx);
	void (*worker_free)(void *state, void *ctx);
	/* Make the partition's output from its elements. *out is NULL before the call; on failure it is ignored. */
	int (*build)(void *state, const struct sl_pipeline_partition *p, void **out, struct sl_err *err, void *ctx);
	/* Bring it to where it stays, durably; *ref (NULL before the call) says where, for commit. Must replace what an
	 * earlier attempt or run left there. May be NULL when build does both. */
	int (*store)(void *state, const struct sl_pipeline_partition *p, void *out, void **ref, struct sl_err *err,
		     void *ctx);

	/* ---- sequencer's thread ---- */
	/* Metadata, audit event and checkpoint of the partition, durable when 0 returns. Errors that are transient,
	 * throttled or fatal are tried again in place, see commit_patience_ms; fatal ones that are not retryable
	 * (a full or read-only disk, a password that is refused) retry_attempts times at most. */
	int (*commit)(const struct sl_pipeline_partition *p, void *out, void *ref, struct sl_err *err, void *ctx);

	/* ---- any of the threads above, once for each thing; never with NULL; may be NULL ---- */
	void (*release_element)(struct sl_pipeline_element *e, void *ctx);
	void (*release_output)(void *out, void *ctx);
	void (*release_ref)(void *ref, void *ctx);
};

/*
 * The named points at which on_step is called, in this order for each partition: "dispatched" (before it is queued),
 * "built", "stored" (each after every attempt that succeeded), "before_commit" (each attempt), "committed". On the
 * stage's own thread, no lock held. For tests that stop a process there, and for progress.
 */
typedef void sl_pipeline_step_fn(const char *step, const struct sl_pipeline_partition *p, void *ctx);

enum sl_pipeline_begin {
	SL_PIPELINE_ANYWHERE = 0, /* with the first number that comes */
	/* With the number `first`, the one after the checkpoint: smaller ones are skipped (their order is checked all
	 * the same), and an input that begins after it has a gap. */
	SL_PIPELINE_AT = 1
};

struct sl_pipeline_opts {
	size_t struct_size; /* SL_PIPELINE_OPTS_INIT fills it */
	const struct sl_env *env;
	const char *name; /* of threads and log records, at most 100 bytes; default "pipeline" */
	const struct sl_pipeline_ops *ops;
	void *ctx; /* of ops and on_step */

	uint64_t partition_size; /* numbers of a whole partition; required, 1 to 2^48 */
	enum sl_pipeline_begin begin;
	uint64_t first;
	/* When the source ends within a partition: on commits the short partition (the next run continues after it, up
	 * to the boundary); off, the default, leaves it uncommitted until a run sees it whole. */
	enum sl_switch final;

	/* the specification's `perf:` */
	int32_t workers;          /* default 4; at most 256 */
	int32_t queue_size;       /* partitions; default 8; at most 65,536 */
	int32_t retry_attempts;   /* of a partition in its worker, the first try counts; default 3; SL_UNLIMITED */
	int64_t retry_backoff_ms; /* before the first retry, doubling up to a minute, ±50 %; default 1000; SL_NONE */

	int32_t window;      /* finished partitions that may wait, counted from the next expected one; default workers +
				queue_size; at most 1,048,576 */
	int64_t queue_bytes; /* of the elements in the queue; default SL_UNLIMITED; a larger partition goes alone */
	/* How long a commit that fails in a way that may pass is tried again: default SL_UNLIMITED, until stopped. Once
	 * SL_PIPELINE_DRAIN was asked for, at most retry_attempts more. SL_NONE: not at all. */
	int64_t commit_patience_ms;
	/* on: after a store that failed, the same output is stored again; off, the default: it is built anew. */
	enum sl_switch keep_output;
	sl_pipeline_step_fn *on_step; /* may be NULL */
};
#define SL_PIPELINE_OPTS_INIT .struct_size = sizeof(struct sl_pipeline_opts)

/* Nothing runs yet. SL_EINVAL names the option; SL_ENOMEM; SL_EIO and the like when there are no descriptors. */
SL_API SL_MUST_CHECK int sl_pipeline_new(sl_pipeline **out, const struct sl_pipeline_opts *opts, struct sl_err *err);
/* NULL is allowed. In a forked child it frees nothing. */
SL_API void sl_pipeline_free(sl_pipeline *p);

enum sl_pipeline_stop {
	SL_PIPELINE_GO = 0,
	/* Take no more from the source; commit what was cut into whole partitions; end. */
	SL_PIPELINE_DRAIN = 1,
	/* End as soon as every callback that runs has returned; the commit that runs counts, no other begins. What was
	 * stored and not committed is built again by the next run. */
	SL_PIPELINE_NOW = 2
};

struct sl_pipeline_stats {
	size_t struct_size;
	uint64_t dispatched;     /* partitions given to the queue */
	uint64_t stored;         /* built and stored */
	uint64_t committed;      /* partitions */
	uint64_t skipped;        /* elements below `first` */
	uint64_t retries;        /* of build and store */
	uint64_t commit_retries; /* of commit */
	bool has_last;           /* true: something was committed, and */
	uint64_t last;           /* the last number of it: the checkpoint */
	uint64_t next;           /* the number that the next commit begins with; valid once something was dispatched */
	uint64_t queue_depth;    /* now, as all below */
	uint64_t queue_bytes;
	uint32_t workers;
	uint32_t workers_busy; /* in build or store; not those that wait for a retry or the window */
	double utilisation;    /* share of the workers' time in build and store since run began, 0 to 1 */
	uint64_t window;
	uint64_t window_used;     /* finished, waiting for an earlier one */
	uint64_t window_used_max; /* most ever */
	int64_t commit_lag_ms;    /* how long the oldest finished partition has waited for its commit; 0: none waits */
	enum sl_pipeline_stop stopping;
};

/*
 * Run until the source ends, a stop or an error. 0: the source has ended, or a drain was asked for, and every whole
 * partition is committed. SL_ECANCELLED: SL_PIPELINE_NOW was asked for. Else the error of the first thing in the order
 * of the stream that failed for good. *stats (NULL allowed) is filled in every case: the next run continues
 * after `last`. When it returns no thread is left. SL_EINVAL: ran before; SL_EAGAIN: no threads; SL_ENOMEM; SL_EFORKED.
 */
SL_API SL_MUST_CHECK int sl_pipeline_run(sl_pipeline *p, struct sl_pipeline_stats *stats, struct sl_err *err);

/* Ask the run to end. Async-signal-safe; never waits. NOW after DRAIN hastens it; DRAIN after NOW changes nothing;
 * before run it makes run end at once. */
SL_API void sl_pipeline_stop(sl_pipeline *p, enum sl_pipeline_stop how);
/* What was asked for so far: a long build may check it and give up. Async-signal-safe. */
SL_API enum sl_pipeline_stop sl_pipeline_stopping(const sl_pipeline *p);
/* Readable once next is to return: a stop was asked for or the run has failed. For poll; do not
 * read or close it. */
SL_API int sl_pipeline_stop_fd(const sl_pipeline *p);

/* struct_size must be set. SL_EFORKED. */
SL_API SL_MUST_CHECK int sl_pipeline_get_stats(sl_pipeline *p, struct sl_pipeline_stats *out);

#ifdef __cplusplus
}
#endif
#endif
