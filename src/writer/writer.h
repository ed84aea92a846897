/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the block writer. One lock, mu, guards what enqueuers, completers, waiters and the loop share; shards and
 * limiter have their own, taken inside of mu or without it, never around it. One thread, the loop, schedules, settles,
 * and calls every callback, without a lock, so callbacks never overlap. All other threads change state under mu and stir
 * the loop.
 *
 *     writer.c    the handle, its options, blocks into their shards
 *     loop.c      rounds: settle, schedule, wait
 *     settle.c    how a write ended: completions from any thread; written, retried or reported as unwritten
 *     wait.c      backpressure, descriptors, the error state, the end
 *     metrics.c   on_metrics, registry, log records
 *
 * Invariants, under mu:
 *  W1  enqueued = written + unwritten + queued_blocks + in_flight_blocks; the bytes likewise.
 *  W2  A block is inside the shards (queued) or in exactly one slot (in flight). A slot is free, out (the driver has
 *      it), or completed. There is one for each permit of the limiter, and only the loop takes and frees both, so a
 *      permit always finds a free slot.
 *  W3  `pressed` is what the last change of the backlog made of it.
 *  W4  The loop sleeps only when `events` is what it was at the beginning of a round that could do nothing; a thread
 *      that changes something that a round reads calls sl__writer_stir.
 *  W5  Once `failed` or `done` is set nothing is enqueued any more; neither is ever taken back.
 */
#ifndef SL_WRITER_WRITER_H
#define SL_WRITER_WRITER_H

#include <stdatomic.h>

#include "base/fork_guard.h"
#include "base/thread.h"
#include "flow/limiter.h"
#include "flow/retry.h"
#include "flow/shards.h"
#include <sluice/metrics.h>
#include <sluice/writer.h>

#define SL__NS_PER_MS ((int64_t)1000000)
#define SL__WRITER_POLL_MS 100 /* readiness and driver-buffered bytes are read again this often */
#define SL__WRITER_KEY 4       /* characters of a shard key */
#define SL__WRITER_SLOT_BITS 16
#define SL__WRITER_BATCH 16 /* blocks that the loop moves under one lock */

struct sl__wblock {
	struct sl__shard_item item; /* first: a pointer to it is one to the block */
	struct sl_writer_block view;
	struct sl__retry_state retry;
	uint32_t attempts; /* begun */
	char tail[];       /* the hash, the bytes when they were copied */
};

/* A write in flight. */
struct sl__wslot {
	struct sl__wslot *next; /* free, or completed */
	struct sl__wblock *block;
	uint64_t id;
	int64_t began_ns;  /* with metrics only */
	bool out;          /* the driver has not completed it */
	struct sl_err err; /* completed: code 0 for success */
};

struct sl__wslots {
	struct sl__wslot *first, *last;
};

struct sl__writer_metrics {
	sl_counter *written, *physical_bytes, *failures, *retries, *unwritten;
	sl_histogram *latency;
	sl_gauge *gauges[5];
	size_t n_attached; /* of them */
};

enum sl__writer_phase { SL__WRITER_NEW, SL__WRITER_RUNNING, SL__WRITER_ENDED };

struct sl_writer {
	/* not changed after new */
	struct sl_env env;
	struct sl__fork_guard guard;
	struct sl_writer_opts o; /* every default filled in */
	char *name;
	struct sl_writer_driver_ops ops;
	void *driver;
	sl__shards *shards;
	sl__limiter *limiter;
	struct sl__wslot *slots; /* max_concurrent_writes */
	struct sl__writer_metrics metrics;

	/* Threads in sl_writer_complete. The loop may have dealt with a completion, and ended, before its thread has
	 * left the lock: free waits for that. */
	atomic_uint completing;

	sl__mutex mu;
	sl__cond wake;  /* for the loop */
	sl__cond clear; /* backpressure cleared, error, end */
	sl__cond over;  /* the loop has ended */
	enum sl__writer_phase phase;
	bool has_loop; /* loop is set: the thread that runs it */
	pthread_t loop;
	bool own_thread, joined; /* started by us; joined */
	pthread_t thread;
	bool done, failed;
	struct sl_err error; /* when failed */
	uint64_t events;
	bool asleep; /* the loop waits on wake */
	bool pressed;
	struct sl__wslots free, completed;
	uint64_t issued; /* attempts begun: the last id's number */
	uint64_t enqueued, queued_blocks, queued_bytes, in_flight_blocks, in_flight_bytes;
	uint64_t buffered; /* the driver's, as last read */
	uint64_t written, physical_bytes, unwritten, unwritten_bytes, failures, retries;
	int fds[2]; /* by enum sl_writer_event; -1: not asked for */

	/* the loop's alone */
	struct sl__prng prng;
	struct {
		uint64_t queued, in_flight, buffered;
	} reported;              /* by the last on_metrics */
	int64_t recheck_ns;      /* when shards that were not ready are asked again; SL_FOREVER: none is known */
	int64_t log_ns, warn_ns; /* no such record before */
	bool error_logged;
};

/* ---- loop.c ---- */
void sl__writer_loop(sl_writer *w);
/* Something has changed that the loop must handle. */
void sl__writer_stir(sl_writer *w) SL_REQUIRES(w->mu);

/* ---- settle.c ---- */
/* Put a slot that is out among the completed; err NULL: success. */
void sl__writer_ended(sl_writer *w, struct sl__wslot *slot, const struct sl_err *err) SL_REQUIRES(w->mu);
struct sl__wslot *sl__wslots_pop(struct sl__wslots *list);
void sl__wslots_append(struct sl__wslots *list, struct sl__wslot *slot);
/* Settle everything that the driver has completed. This and the next run on the loop, or on the thread of free; called
 * and return with mu held, which they release meanwhile. */
void sl__writer_settle(sl_writer *w) SL_REQUIRES(w->mu);
/* Report everything that is queued; in the error state. */
void sl__writer_report_queued(sl_writer *w) SL_REQUIRES(w->mu);

/* ---- wait.c ---- */
/* The backlog has changed. */
void sl__writer_press(sl_writer *w) SL_REQUIRES(w->mu);
/* Into the error state; the first error stays. The loop logs it. */
void sl__writer_fail(sl_writer *w, const struct sl_err *error) SL_REQUIRES(w->mu);
/* The loop has ended. */
void sl__writer_end(sl_writer *w) SL_REQUIRES(w->mu);
/* Above twice the limits with a block of len more. */
bool sl__writer_overfull(const sl_writer *w, size_t len) SL_REQUIRES(w->mu);

/* ---- metrics.c ---- */
SL_MUST_CHECK int sl__writer_metrics_attach(sl_writer *w, struct sl_err *err);
void sl__writer_metrics_detach(sl_writer *w);
/* Read the driver's buffer and report to on_metrics what has changed. On the loop; releases mu meanwhile. */
void sl__writer_report(sl_writer *w) SL_REQUIRES(w->mu);
/* The record of queue statistics, if one is due. Without mu, on the loop. */
void sl__writer_log_queue(sl_writer *w, uint64_t written) SL_EXCLUDES(w->mu);
/* The record of one round, if asked for. On the loop; releases mu meanwhile. */
void sl__writer_log_round(sl_writer *w, const char *reason) SL_REQUIRES(w->mu);
/* A failed attempt that is tried again, at most one record per log_interval_ms. Without mu, on the loop. */
void sl__writer_log_failure(sl_writer *w, const struct sl__wblock *block, int64_t delay_ms, const struct sl_err *err)
	SL_EXCLUDES(w->mu);

static inline bool sl__writer_is_loop(const sl_writer *w) SL_REQUIRES(w->mu)
{
	return w->has_loop && pthread_equal(w->loop, pthread_self());
}

#endif
