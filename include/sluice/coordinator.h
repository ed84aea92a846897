/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The write coordinator: any number of threads hand items over; a bounded queue, workers that batch, retries, a circuit
 * breaker and dead letters get them into a sink, at close to the rate that the target allows.
 *
 * Guarantees
 *  - Every accepted item ends exactly once as one of: written, dead (in the dead letters, or given to on_dead), dropped
 *    (drop_oldest only, and reported), returned (by stop: reported, or spilled to a log). accepted = written + dead +
 *    dropped + returned + unknown + waiting + in flight, always; unknown are those whose sink had not come back when
 *    stop ran out of time.
 *  - No error of the sink ends a worker or loses an item. A target that is down charges no attempts. An item that the
 *    target never takes, whatever the error, goes to the dead letters alone: the rest of its batch and all other
 *    batches are written.
 *  - Bounded: at most `capacity` items wait in the queue and at most workers_max + retry.batches batches are outside of
 *    it. Pressure goes back to the submitter as the overflow strategy says.
 *  - With per_key_order, items of one key are written in the order of their submission by one thread, also across
 *    retries, while other keys continue.
 *  - With a log, an item that submit accepted survives kill -9 and power loss: it is written after a restart.
 *  - An idle coordinator uses no CPU; an idle worker writes an item at once.
 * Not guaranteed: an order without per_key_order; that the sink sees an item only once (see <sluice/adapter/sink.h>).
 *
 *     submit ─▶ queue ─▶ worker: batch ─▶ limit, rate, breaker ─▶ sink.write ─▶ written
 *                           ▲                                        │ transient, throttled, target away
 *                           └────────── heap by next time ◀──────────┤
 *                                                                    └ poison: split ─▶ dead letters
 *
 * Thread safety: all functions from any thread at once, except sl_coordinator_free, which must be the last call.
 * Callbacks: on the thread that their comment names, no lock held; they may submit (not blocking for ever from a
 * worker's thread: a done callback that waits for room waits for itself) and read health, but not stop or free. A
 * handle does not work in a forked child (SL_EFORKED). Ownership: see enum sl_item_kind; strings in options are copied;
 * the sink, the log and the dead letters are the caller's and must outlive the handle.
 */
#ifndef SLUICE_COORDINATOR_H
#define SLUICE_COORDINATOR_H

#include <sluice/adapter/sink.h>
#include <sluice/dead_letter.h>
#include <sluice/retry.h>
#include <sluice/wal.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_coordinator sl_coordinator;

enum sl_item_kind {
	SL_ITEM_BYTES = 0, /* submit copies len bytes; the copy is freed when the item has ended */
	/* submit hands the pointer over: with items.copy a copy is made first and the caller keeps the original; else
	 * the coordinator owns the pointer from the moment that submit returned 0. items.free (may be NULL) is called
	 * exactly once when the item has ended, after done and on_dead; not for returned items that on_returned took.
	 */
	SL_ITEM_POINTERS = 1
};

enum sl_overflow {
	SL_OVERFLOW_BLOCK = 0,       /* submit waits until there is room */
	SL_OVERFLOW_DROP_OLDEST = 1, /* what waits longest in the queue is dropped */
	SL_OVERFLOW_ERROR = 2        /* submit fails with SL_EFULL (the specification's QueueFullError) */
};

/* How an item ended. */
enum sl_item_end {
	SL_ITEM_WRITTEN = 1,
	SL_ITEM_DEAD = 2,
	SL_ITEM_DROPPED = 3,
	SL_ITEM_RETURNED = 4 /* stop gave it back, or spilled it to the log */
};

/* Called once when the item has ended; err only for SL_ITEM_DEAD, else NULL. On a worker's thread, or on the thread
 * that submitted (a drop) or stopped (a return). */
typedef void sl_item_done_fn(enum sl_item_end end, const struct sl_err *err, void *ctx);

struct sl_item {
	const void *data; /* the bytes, or the pointer */
	size_t len;       /* of the bytes; of a pointer what it counts against max_bytes, may be 0 */
	const void *key;  /* of per_key_order, copied; NULL: no order for this one; at most 255 bytes */
	size_t key_len;
	uint64_t position;     /* shown to the sink and in dead letters: a line, an offset; 0: none */
	sl_item_done_fn *done; /* may be NULL */
	void *done_ctx;
	struct sl_input_range range; /* shown to the sink: which bytes of an input it is; end 0: none */
};

/* On the coordinator's notifier thread, alternating, exactly once per crossing. May submit. */
typedef void sl_backpressure_fn(void *ctx);
/* An item was dropped to make room. On the submitter's thread; item lives for the call. */
typedef void sl_item_drop_fn(const struct sl_item *item, void *ctx);
/* An item will never be written. On a worker's thread; item lives for the call. */
typedef void sl_item_dead_fn(const struct sl_item *item, const struct sl_err *err, uint32_t attempts, void *ctx);
/* stop hands an item back. On stop's thread. Byte items live for the call; a pointer item becomes the callback's. */
typedef void sl_item_return_fn(const struct sl_item *item, void *ctx);
/* Decide what an error of the sink that carries no class means; called on a worker's thread. */
typedef enum sl_err_class sl_classify_fn(const struct sl_err *err, void *ctx);

/* The marks of the queue, and what is called when one is crossed. */
struct sl_coordinator_backpressure {
	int64_t high_watermark;      /* default 80 % of capacity */
	int64_t low_watermark;       /* default 50 % of capacity; SL_NONE: empty */
	sl_backpressure_fn *on_high; /* the specification's on_backpressure_high */
	sl_backpressure_fn *on_low;  /* … and on_backpressure_low */
	void *ctx;                   /* of both */
	uint64_t reserved[2];
};

/* What a failed write means, and when it is repeated. */
struct sl_coordinator_retry {
	struct sl_retry_policy policy;      /* zero fields from SL_RETRY_COORDINATOR */
	sl_classify_fn *classify_retryable; /* default: the specification's keywords */
	void *classify_ctx;
	int32_t batches; /* failed batches that wait for their time; default 2 * workers_max, at least 4 */
	/* What has failed for this long is dead, also when nothing proves that the target works without it. Default
	 * SL_UNLIMITED: a transient failure is charged only once another batch, or part of the same one, was written
	 * since its first failure, and the other retryable ones never are; so they wait for as long as it takes. */
	int64_t give_up_after_ms;
	uint64_t reserved[4];
};

/* What an item is. */
struct sl_coordinator_items {
	enum sl_item_kind kind;
	void *(*copy)(const void *item, size_t len, void *ctx); /* NULL result: out of memory */
	void (*free)(void *item, void *ctx);
	/* Bytes of a pointer item, for the log and the dead letters: *out lives until the next call on this thread or
	 * the item's end. Required for pointer items with wal, spill_wal or dead_letters. */
	int (*encode)(const void *item, size_t len, const void **out, size_t *out_len, void *ctx);
	/* A pointer item from bytes that encode made, as if it had been submitted. Required for pointer items with wal
	 * or spill_wal, which give back what an earlier run left. An error leaves the record in its log. */
	int (*decode)(const void *bytes, size_t n, void **item, size_t *len, void *ctx);
	void *ctx; /* of the four */
	uint64_t reserved[4];
};

/* How many workers there are; unset: `workers`, always. */
struct sl_coordinator_scaling {
	int32_t workers_min, workers_max;
	int64_t up_ms;   /* every worker busy and a batch for each waiting, or the oldest item older than
			    flush_interval_ms, for this long: one more; default 100 */
	int64_t down_ms; /* a worker that was idle for this long ends; default 5000 */
	uint64_t reserved[2];
};

/* When writing to the target is paused. */
struct sl_coordinator_breaker {
	int32_t failures;    /* in a row that open the breaker; default 5; SL_UNLIMITED: only fatal ones */
	int64_t open_ms;     /* first pause before a probe; default 1000, doubling up to open_max_ms */
	int64_t open_max_ms; /* default 30,000 */
	uint64_t reserved[2];
};

/* The specification's RateCoordinator. */
struct sl_coordinator_rate {
	double items;         /* in any second at most, a twentieth of them at a time; 0: no limit */
	double bytes;         /* the same in bytes; an item that is larger than a part goes alone, and is paid for */
	double reduce_factor; /* of reduce_tokens; default 0.5 */
	enum sl_switch by_watermark; /* the high mark reduces, the low mark restores; default off */
	uint64_t reserved[2];
};

/* What cannot be written: dead_letters or on_dead is required. */
struct sl_coordinator_unwritten {
	sl_dlq *dead_letters;
	const char *target;       /* of the dead letters: where they were going; default: the sink's */
	sl_item_dead_fn *on_dead; /* with dead_letters: called after the dead letter is durable */
	void *dead_ctx;
	sl_item_return_fn *on_returned; /* see stop */
	void *returned_ctx;
	uint64_t reserved[4];
};

struct sl_coordinator_opts {
	size_t struct_size; /* SL_COORDINATOR_OPTS_INIT fills it */
	const struct sl_env *env;
	const char *name; /* of threads, log records and the dead letters' source; default "coordinator" */

	/* the specification's parameters, with those in backpressure and retry */
	int64_t capacity;          /* default 10,000 */
	int32_t workers;           /* default 4; at most 256 */
	int32_t batch_size;        /* default 500; at most 1,000,000 */
	int64_t flush_interval_ms; /* default 250; SL_NONE: never wait for a batch to grow */
	enum sl_overflow overflow_strategy;
	sl_item_drop_fn *drop_callback;
	void *drop_ctx;

	/* Of the items in the queue; default 64 MiB; SL_UNLIMITED. One item above it is refused with SL_ETOOBIG; so are
	 * bytes that dead_letters (64 MiB) or a log (16 MiB less 300 bytes) could not take. */
	int64_t max_bytes;
	int64_t batch_bytes;          /* of one batch; default 8 MiB; a larger item goes alone; SL_UNLIMITED */
	enum sl_switch per_key_order; /* default off */
	enum sl_switch adaptive;      /* halve the concurrency when the target struggles, raise it step by step;
					 default on */

	/* durability */
	sl_wal *wal;       /* submit returns when the item is on disk; pending records are written first. See below. */
	sl_wal *spill_wal; /* only what stop could not write goes there, and comes back at the next start */

	struct sl_coordinator_backpressure backpressure;
	struct sl_coordinator_retry retry;
	struct sl_coordinator_items items;
	struct sl_coordinator_scaling scaling;
	struct sl_coordinator_breaker breaker;
	struct sl_coordinator_rate rate;
	struct sl_coordinator_unwritten unwritten;
};
#define SL_COORDINATOR_OPTS_INIT .struct_size = sizeof(struct sl_coordinator_opts)

/*
 * Start: workers run when 0 returns. Logs are read first: pending records of wal and spill_wal are queued ahead of
 * everything that is submitted, by a thread of their own; submits wait for that thread to have queued them all. A log
 * that is used here must have no sender. SL_EINVAL names the option; SL_ENOMEM; SL_EAGAIN (no threads).
 */
SL_API SL_MUST_CHECK int sl_coordinator_new(sl_coordinator **out, const sl_sink *sink,
					    const struct sl_coordinator_opts *opts, struct sl_err *err);
/* After stop. SL_ETIMEDOUT, with the handle still valid, while a write has not come back; SL_EPENDING when items are
 * still inside (a write came back since, or the spill log failed: call stop again); SL_EINVAL before stop; SL_EFORKED.
 * NULL is allowed. */
SL_API int sl_coordinator_free(sl_coordinator *c);

/*
 * Submit an item. 0: accepted (with a log: durable). No room: as overflow_strategy says, for at most timeout_ms
 * (SL_UNLIMITED; 0: never waits): SL_EFULL; SL_ETIMEDOUT. SL_ETOOBIG, SL_ECLOSED (stopped), SL_ENOMEM, SL_EFORKED, and
 * with a log what sl_wal_append returns. On failure the item stays the caller's and will not be written; with a log,
 * room is reserved before the append, so an item that finds none is not in the log either. There is no sl_err: the code
 * says all; with a log, the log's own message is in the handle's log records. The specification's submit, try_submit
 * (timeout 0) and submit with a timeout.
 */
SL_API SL_MUST_CHECK int sl_coordinator_submit(sl_coordinator *c, const void *item, size_t len, int64_t timeout_ms);
/* n items in order, each with everything: key, position, completion callback; n may exceed the capacity. *accepted
 * counts those accepted, also on failure: the first *accepted are the coordinator's, the others stay the caller's. NULL
 * is allowed: of one item the code says it. */
SL_API SL_MUST_CHECK int sl_coordinator_submit_many(sl_coordinator *c, const struct sl_item *items, size_t n,
						    int64_t timeout_ms, size_t *accepted);

/* Wait until everything that was accepted before this call has ended. Batches do not wait to grow meanwhile.
 * SL_ETIMEDOUT; SL_ECLOSED when stop came first and did not finish them. */
SL_API SL_MUST_CHECK int sl_coordinator_flush(sl_coordinator *c, int64_t timeout_ms);

struct sl_coordinator_report {
	size_t struct_size;
	uint64_t accepted, written, dead, dropped, returned, unknown;
	uint64_t spilled; /* of those returned: in the log */
};

/*
 * Stop intake, write what is there for up to drain_timeout_ms (0: nothing new is begun; SL_UNLIMITED), then cancel the
 * sink and give back what is left: with wal it stays pending there; with spill_wal it is appended; else on_returned
 * gets each item. Without any of the three, stop refuses to lose items: SL_EPENDING with the count in the message,
 * intake stays closed, workers continue, and stop may be called again. 0: everything was written, dead or dropped,
 * and no log has a pending record.
 * SL_EPENDING with a report: some were given back, or a log has records that were never queued. SL_ETIMEDOUT: a write
 * has not come back, a second after the sink was cancelled; its items are unknown; the handle stays valid, and stop may
 * be called again to learn how they ended. What the spill log returns when it fails: nothing is lost, and stop may be
 * called again. *report may be NULL. Idempotent.
 */
SL_API SL_MUST_CHECK int sl_coordinator_stop(sl_coordinator *c, int64_t drain_timeout_ms,
					     struct sl_coordinator_report *report, struct sl_err *err);

enum sl_breaker_state { SL_BREAKER_CLOSED = 0, SL_BREAKER_OPEN = 1, SL_BREAKER_HALF_OPEN = 2 };

/* The specification's CoordinatorHealth, and more. One moment: accepted = written + dead_letters + dropped + returned +
 * queue_size + in_flight + retrying. */
struct sl_coordinator_health {
	size_t struct_size;
	uint32_t workers_alive; /* taking part now; parked ones do not count */
	uint64_t queue_size, capacity;
	uint64_t queue_bytes;
	enum sl_breaker_state breaker;
	int64_t oldest_age_ms; /* of what waits in the queue or for a retry; 0: nothing */
	uint64_t in_flight;    /* items that a worker has taken, most of them in the sink */
	uint64_t retrying;     /* items that wait for their time, for the breaker or for earlier items of their key */
	uint64_t dead_letters; /* since the start */
	uint64_t accepted, written, dropped, returned;
	uint64_t batches, failures, splits; /* writes that succeeded, that failed; batches split for poison */
	uint32_t concurrency;               /* the adaptive limit now */
	double rate_items;                  /* the limit now; 0: none */
	bool backpressure;                  /* true: above the high mark and not yet below the low one */
	struct sl_err last_error;           /* of the sink; code 0: none so far */
	int64_t failing_ms;                 /* time without a successful write; 0: the last one succeeded */
};
SL_API SL_MUST_CHECK int sl_coordinator_get_health(sl_coordinator *c, struct sl_coordinator_health *out);

/* The specification's RateCoordinator: multiply the rate limits by reduce_factor (not below a sixteenth), and bring
 * them back. Without a limit there is nothing to reduce: SL_EINVAL. */
SL_API int sl_coordinator_reduce_tokens(sl_coordinator *c);
SL_API int sl_coordinator_restore_tokens(sl_coordinator *c);

/* The specification's default_retry_classifier: transient or poison, by keywords in the message; a class that is set
 * stays. */
SL_API enum sl_err_class sl_default_retry_classifier(const struct sl_err *err, void *ctx);

#ifdef __cplusplus
}
#endif
#endif
