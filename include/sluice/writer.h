/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The block writer: takes blocks that a repository lacks, keeps them in shards by the beginning of their hash, and
 * hands them to a driver, several at a time, fairly over the shards, with retries, a concurrency that gives way when
 * the driver fails, and backpressure for those who read.
 *
 * Guarantees
 *  - Every enqueued block ends exactly once: written (the driver completed it without an error), or unwritten and
 *    reported to on_unwritten with its reason. Unwritten blocks exist only in the error state. At every moment
 *    enqueued = written + unwritten + queued + in flight.
 *  - Every block is attempted at least once unless the error state comes first, and again until it is written or its
 *    attempts are used up.
 *  - Physical bytes are those of blocks that the driver completed successfully, and nothing else.
 *  - Within a shard blocks go out in the order in which they were enqueued. A block that waits for its retry_at is
 *    skipped by the others of its shard, and goes ahead of them when it is due. Shards take turns; one that is not
 *    ready is skipped at no cost to the others.
 *  - A signal that the driver forgot, or that was lost, delays by 100 ms at most: readiness and driver-buffered bytes
 *    are read again that often while they matter. An idle writer uses no CPU.
 *  - Bounded: enqueue refuses what would lift the backlog above twice its limit, in bytes or blocks; so memory is at
 *    most that (or the limit and one block, where that is more) and about 200 bytes a block.
 * Not guaranteed: an order over shards; that the driver sees a block only once (an attempt that failed may have had an
 * effect: blocks are content-addressed, so writing one twice is harmless); that a driver which never completes a write
 * lets the writer end.
 *
 *                                  round robin                       complete(NULL)
 *     enqueue ─▶ buckets by shard ─────────────▶ schedule_write ─▶ in flight ─────▶ written: handle_physical_bytes
 *                   ▲  retry_at                                        │
 *                   └────────────── attempts left ◀────────────────────┤ complete(err), or refused
 *                                                                      └ attempts used up: FAILED
 *
 *     OPEN ── signal_done ──▶ DRAINING ── nothing queued or in flight ──▶ ENDED
 *       └─────────┬───────────────┘
 *                 └ attempts used up, cancel ──▶ FAILED: waiters are released, what is queued is reported,
 *                                                in-flight writes are awaited and counted ──▶ ENDED
 *
 * Names of the specification, a WriterWorker: functions, callbacks and options have its names, in small letters with
 * underscores and with their units (handlePhysicalBytes, backlogLimitBytes). throwIfError is sl_writer_error, enqueue
 * sl_writer_enqueue, logInterval log_interval_ms, and the completion of scheduleWrite is sl_writer_complete.
 *
 * Thread safety: all functions from any thread at once, except sl_writer_free, which must be the last call, also of the
 * driver's; only the completions that join has waited for may still be on their way out. Callbacks of the options and
 * functions of the driver are called on the writer's one thread (that of run or start), so never two at a time, with no
 * lock held; they may enqueue, complete, signal and read statistics, but not wait (SL_EINVAL:
 * sl_writer_wait_for_backpressure_clear, sl_writer_join). A handle does not work in a forked child (SL_EFORKED).
 * Ownership: see sl_writer_enqueue and struct sl_writer_block; strings in options are copied; the driver is the caller's
 * and must outlive the handle.
 */
#ifndef SLUICE_WRITER_H
#define SLUICE_WRITER_H

#include <sluice/adapter/env.h>
#include <sluice/retry.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_writer sl_writer;

/* The bytes of a block are not needed any more: it has ended. Called exactly once for a block that was handed over,
 * after on_written or on_unwritten. */
struct sl_writer_block;
typedef void sl_writer_release_fn(const struct sl_writer_block *block);

struct sl_writer_block {
	const void *hash; /* see enum sl_writer_hash; 1 to 255 bytes, always copied */
	size_t hash_len;
	const void *bytes; /* may be NULL when len is 0 */
	size_t len;
	sl_writer_release_fn *release; /* of enqueue_block; NULL: the bytes need no release */
	void *ctx;                     /* the caller's: shown wherever the block is */
};

/* How hashes are written. The shard key is always text: the hash's first four hexadecimal characters; a shorter hash is
 * its own key. */
enum sl_writer_hash {
	SL_WRITER_HASH_TEXT = 0,  /* hexadecimal characters: the key is the first four of them as they are */
	SL_WRITER_HASH_BINARY = 1 /* bytes: the key is the first two of them, in lower case */
};

/* One attempt to write one block, from schedule_write to its completion. Copy it freely. */
struct sl_write {
	sl_writer *writer;
	uint64_t id; /* never 0, never used again */
};

#define SL_WRITER_DRIVER_VERSION 1

/* Where blocks go. Only schedule_write is required. */
struct sl_writer_driver_ops {
	int version;      /* SL_WRITER_DRIVER_VERSION */
	const char *name; /* of metrics and log records */
	/*
	 * Begin to write a block, and return: completion comes by sl_writer_complete, from any thread, also from inside
	 * this call. block and what it points to live until then and no longer. attempt counts from 1. A negative SL_E…
	 * with *err filled (never NULL): refused, a failed attempt that must not be completed. A driver that blocks
	 * here holds up everything else.
	 */
	int (*schedule_write)(void *driver, const struct sl_writer_block *block, uint32_t attempt,
			      struct sl_write write, struct sl_err *err);
	/* Whether blocks of this shard may be scheduled. NULL: always. key is NUL-terminated, key_len without it. */
	bool (*is_shard_ready)(void *driver, const char *shard_key, size_t key_len);
	/* Wait until a shard may have become ready, at most timeout_ms (1 to 100), when all that is queued is not and
	 * nothing is in flight: true, or false when none has. What is enqueued meanwhile waits as well: a driver that can
	 * call sl_writer_shard_ready leaves this NULL. */
	bool (*wait_for_any_shard_ready)(void *driver, int64_t timeout_ms);
	/* Bytes of completed writes that the driver still holds; they count as backlog. NULL: 0. Cheap. */
	uint64_t (*driver_buffered_bytes)(void *driver);
	/* The writer has from now on at most this many writes in flight (those that are out already stay). */
	void (*on_concurrency_limit_changed)(void *driver, uint32_t concurrency);
};

/* Whenever one of the three has changed: in order, the last call with the values that hold. Changes that came while a
 * call was on its way, and blocks enqueued in a burst, may be reported as one. */
typedef void sl_writer_metrics_fn(uint64_t queued_bytes, uint64_t in_flight_bytes, uint64_t driver_buffered_bytes,
				  void *ctx);
/* A block of this many bytes was written. */
typedef void sl_writer_physical_fn(uint64_t bytes, void *ctx);
typedef void sl_writer_written_fn(const struct sl_writer_block *block, void *ctx);
/* A block will not be written. reason: why its own last attempt failed, when that ended it; SL_ECANCELLED with the
 * error of the writer in its text otherwise. attempts: those begun, 0 to the bound. */
typedef void sl_writer_unwritten_fn(const struct sl_writer_block *block, uint32_t attempts, const struct sl_err *reason,
				    void *ctx);

struct sl_writer_opts {
	size_t struct_size; /* SL_WRITER_OPTS_INIT fills it */
	const struct sl_env *env;
	const char *name; /* of the thread and of log records; default "writer" */
	enum sl_writer_hash hash_form;

	int32_t max_concurrent_writes; /* default 16; at most 4,096 */
	/* Backpressure starts when the backlog (queued, in flight, driver-buffered) is above the limit and clears when
	 * it is at or below clear. */
	int64_t backlog_limit_bytes; /* default 256 MiB */
	int64_t backlog_clear_bytes; /* default half the limit; SL_NONE: empty */
	/* The same for the number of blocks queued and in flight, so that tiny ones are bounded too; clears at half.
	 * Default 65,536. */
	int64_t backlog_limit_blocks;

	int32_t max_retry_attempts;          /* the first try counts; 0: retry_policy.max_attempts; SL_UNLIMITED */
	struct sl_retry_policy retry_policy; /* zero fields from SL_RETRY_WRITER: 5 attempts, 2 s to 30 s, ±50 % */
	/* target_concurrent_writes is halved (minimum 1) on a failure, once per window, and goes up by cooldown_step
	 * after each cooldown without a failure, to max_concurrent_writes. */
	int64_t window_ms;     /* default 1,000 */
	int64_t cooldown_ms;   /* default 5,000 */
	int32_t cooldown_step; /* default 1 */

	int64_t log_interval_ms;   /* least time between two records of queue statistics; default 5,000; SL_NONE: 0 */
	enum sl_switch loop_debug; /* a debug record for every round of the loop; default off */

	sl_writer_metrics_fn *on_metrics;
	sl_writer_physical_fn *handle_physical_bytes;
	sl_writer_written_fn *on_written;
	sl_writer_unwritten_fn *on_unwritten;
	void *ctx; /* of these four */
};
#define SL_WRITER_OPTS_INIT .struct_size = sizeof(struct sl_writer_opts)

/* A writer that takes blocks and does nothing with them before run or start. SL_EINVAL names the option; SL_ENOMEM. */
SL_API SL_MUST_CHECK int sl_writer_new(sl_writer **out, const struct sl_writer_driver_ops *ops, void *driver,
				       const struct sl_writer_opts *opts, struct sl_err *err);
/* SL_EPENDING while it runs (join first); blocks in a writer that never ran are reported as cancelled, on this thread.
 * SL_EFORKED. NULL is allowed. */
SL_API SL_MUST_CHECK int sl_writer_free(sl_writer *w);

/* Run the loop on this thread until it has ended: 0, everything was written; else the error, as from sl_writer_error.
 * SL_EINVAL: it was run or started before. */
SL_API SL_MUST_CHECK int sl_writer_run(sl_writer *w, struct sl_err *err);
/* The same on a thread of the writer's. SL_EAGAIN (no thread), SL_EINVAL. */
SL_API SL_MUST_CHECK int sl_writer_start(sl_writer *w, struct sl_err *err);
/* Wait until the loop has ended: as sl_writer_run. SL_ETIMEDOUT after timeout_ms (SL_UNLIMITED waits), SL_EINVAL when
 * it was never begun. Not an end: see signal_done and cancel. */
SL_API SL_MUST_CHECK int sl_writer_join(sl_writer *w, int64_t timeout_ms, struct sl_err *err);

/*
 * Enqueue a block; hash and bytes are copied. Never waits: listen to backpressure. SL_EFULL: twice the limit is
 * reached, wait and try again; SL_EINVAL (hash_len); SL_ECLOSED after signal_done; SL_ENOMEM; in the error state the
 * error. On failure the block is not the writer's, and will not be written or reported.
 */
SL_API SL_MUST_CHECK int sl_writer_enqueue(sl_writer *w, const void *hash, size_t hash_len, const void *bytes,
					   size_t len, struct sl_err *err);
/* The same without a copy of the bytes: when 0 returns, they are the writer's until block->release; the hash is copied.
 * On failure they stay the caller's, and release is not called. */
SL_API SL_MUST_CHECK int sl_writer_enqueue_block(sl_writer *w, const struct sl_writer_block *block, struct sl_err *err);

/* Block while backpressure is active. 0: it is not (or the loop has ended well); SL_ETIMEDOUT (timeout_ms 0 asks
 * without waiting, SL_UNLIMITED waits); in the error state the error, at once. */
SL_API SL_MUST_CHECK int sl_writer_wait_for_backpressure_clear(sl_writer *w, int64_t timeout_ms, struct sl_err *err);

/* For event loops: descriptors for poll(2), readable as long as what they stand for is so. They belong to w and are not
 * to be read from. Made on the first call. Negative SL_E… on failure. */
enum sl_writer_event {
	SL_WRITER_CLEAR = 0, /* sl_writer_wait_for_backpressure_clear would not block */
	SL_WRITER_ENDED = 1  /* sl_writer_join would not block */
};
SL_API int sl_writer_fd(sl_writer *w, enum sl_writer_event event, struct sl_err *err);

/* Nothing more will be enqueued: the loop ends when everything is written. Idempotent. */
SL_API SL_MUST_CHECK int sl_writer_signal_done(sl_writer *w);
/* Go into the error state with reason (NULL: SL_ECANCELLED), unless it is there or the loop has ended. */
SL_API SL_MUST_CHECK int sl_writer_cancel(sl_writer *w, const struct sl_err *reason);
/* The specification's throwIfError: 0, or the code of the error that put the writer into its error state, with *err
 * filled. */
SL_API SL_MUST_CHECK int sl_writer_error(sl_writer *w, struct sl_err *err);

/* ---- for drivers ---- */

/*
 * The write has ended: err NULL (or with code 0), the block is safe; else why not. Class poison: trying again is of no
 * use, which uses the attempts up at once; throttled: not counted, tried again after retry_after_ms; every other class
 * counts as one attempt. At most once: SL_EDUPLICATE for a write that was completed or refused before, which changes
 * nothing; SL_EINVAL for one that never was. From any thread, until sl_writer_free. err is copied; the block is not to
 * be used once this was called.
 */
SL_API int sl_writer_complete(struct sl_write write, const struct sl_err *err);
/* The signal for wait_for_any_shard_ready: a shard (NULL: any of them) may have become ready. From any thread. */
SL_API int sl_writer_shard_ready(sl_writer *w, const char *shard_key, size_t key_len);

struct sl_writer_stats {
	size_t struct_size;
	uint64_t enqueued; /* = written + unwritten + queued_blocks + in_flight_blocks */
	uint64_t queued_blocks, queued_bytes;
	uint64_t in_flight_blocks, in_flight_bytes;
	uint64_t driver_buffered_bytes; /* as last read */
	uint64_t written, physical_bytes;
	uint64_t unwritten, unwritten_bytes;
	uint64_t failures; /* attempts that failed */
	uint64_t retries;  /* of them: tried again, or to be */
	uint32_t target_concurrent_writes, max_concurrent_writes;
	bool backpressure; /* true: active */
};
/* One moment. SL_EFORKED. */
SL_API SL_MUST_CHECK int sl_writer_get_stats(sl_writer *w, struct sl_writer_stats *out);

#ifdef __cplusplus
}
#endif
#endif
