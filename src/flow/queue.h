/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bounded queue: many producers, many consumers, FIFO, bounded by items and by bytes.
 *
 * Guarantees
 *  - An item that was pushed with success leaves exactly once: popped, dropped (drop_oldest only, and reported), or
 *    taken back. A push that failed left its item with the caller.
 *  - Never more than capacity items, nor more than max_bytes bytes, are inside. An item above max_bytes is refused.
 *  - Room that was reserved is kept: a push into it neither waits nor fails, unless the queue is closed.
 *  - Blocked pushers are served in the order of their arrival; none is overtaken. One sl__queue_push_many may go in in
 *    pieces, with other producers' items between them.
 *  - Crossing the high mark upwards and then the low mark downwards are reported by on_high and on_low: exactly once per
 *    crossing, in order, strictly alternating, on one notifier thread of the queue, with no lock held. A slow callback
 *    delays later ones and never merges them. A callback may push, also blocking, and may close the queue.
 *  - An idle queue uses no CPU: every sleep ends by a signal or by a deadline that a caller gave.
 * Not guaranteed: an order between items pushed at the same moment by different threads; an exact age under a storm
 * (see at_ns); delivery of marks that are still pending when the process ends.
 *
 * A batch closes (sl__queue_pop) when it has max items, or its oldest item is linger_ms old, or the timeout of the call
 * has passed, or it cannot grow: a push found no room, or the queue was flushed or closed. With linger_ms 0 whatever is
 * there is taken at once. So "an idle worker flushes at once; under load a batch closes by size or age" is:
 *     sl__queue_pop(q, batch, batch_size, NOTHING IN FLIGHT ? 0 : flush_interval_ms, SL_UNLIMITED, &n)
 *
 *                  push        close(DRAIN)            close(TAKE_BACK)
 *     open ────────────▶ open ──────────────▶ draining ──────────────────▶ closed
 *     push: as the overflow says              SL_ECLOSED                   SL_ECLOSED
 *     pop:  a batch                           what is left, at once,       SL_ECLOSED
 *                                             then SL_ECLOSED
 *     take: what is there, never waits        the same                     the same
 *
 * Thread safety: every function from any thread at once, but sl__queue_free, which must be the last call.
 * Ownership: the queue holds pointers and never reads or frees what they point to. What is still inside at
 * sl__queue_free is forgotten: take it back first.
 */
#ifndef SL_FLOW_QUEUE_H
#define SL_FLOW_QUEUE_H

#include "base/env.h"

typedef struct sl__queue sl__queue;

struct sl__queue_item {
	void *ptr;
	union {
		struct {
			uint64_t bytes : 56; /* what it counts against max_bytes; may be 0 */
			uint64_t tag : 8;    /* the caller's: what kind of pointer it is */
		};
		uint64_t both; /* written at once, see sl__queue_item */
	};
	/* Out only: monotonic time at which it went in. Within a storm of pushes without a pop the clock is read for
	 * every 16th call only, and those between carry the time of the one before: never too young, and too old by at
	 * most the time of 15 calls. */
	int64_t at_ns;
};

#define SL__QUEUE_BYTES_MAX (((uint64_t)1 << 56) - 1) /* what an item can count; more counts as so much */

/* An item to push. On a hot path: two fields of bits written one by one and read as one word wait for each other. */
static inline struct sl__queue_item sl__queue_item(void *ptr, uint64_t bytes, uint8_t tag)
{
	struct sl__queue_item item;
	bytes = bytes < SL__QUEUE_BYTES_MAX ? bytes : SL__QUEUE_BYTES_MAX;
	item.ptr = ptr;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	item.both = bytes | (uint64_t)tag << 56;
#else
	item.both = bytes << 8 | tag;
#endif
	item.at_ns = 0;
	return item;
}

enum sl__queue_overflow {
	SL__QUEUE_BLOCK = 0,       /* wait for room */
	SL__QUEUE_DROP_OLDEST = 1, /* make room by dropping what waits longest, telling on_drop */
	SL__QUEUE_ERROR = 2        /* SL_EFULL */
};

enum sl__queue_close_mode {
	SL__QUEUE_DRAIN = 1,    /* poppers get the rest */
	SL__QUEUE_TAKE_BACK = 2 /* poppers stop now; sl__queue_take gets the rest */
};

/* On the notifier thread, no lock held; may push and close, must not free the queue. */
typedef void sl__queue_mark_fn(void *ctx);
/* On the thread whose push made the room, no lock held, after it was made. The item is the callback's now. position:
 * how many items went in before it. */
typedef void sl__queue_drop_fn(const struct sl__queue_item *item, uint64_t position, void *ctx);

struct sl__queue_opts {
	const struct sl_env *env; /* copied; NULL: the real one */
	const char *name;         /* of the notifier thread; NULL: "sl-queue" */
	size_t capacity;          /* items, at least 1 */
	size_t max_bytes;         /* 0: no bound */
	int64_t high_watermark;   /* items; 0: 80 % of capacity, at least 1 */
	int64_t low_watermark;    /* items, below high; 0: 50 % of capacity; SL_NONE: empty */
	enum sl__queue_overflow overflow;
	sl__queue_mark_fn *on_high; /* NULL allowed; high: items >= high_watermark or bytes >= 80 % of max_bytes */
	sl__queue_mark_fn *on_low;  /* NULL allowed; low: items <= low_watermark and bytes <= 50 % of max_bytes */
	sl__queue_drop_fn *on_drop; /* NULL allowed */
	void *ctx;                  /* of the three */
};

struct sl__queue_stats {
	size_t depth, capacity;
	size_t bytes;
	int64_t oldest_age_ms; /* of the item that leaves next; 0 when empty */
	uint64_t pushed;       /* = popped + dropped + taken + depth, always */
	uint64_t popped, dropped, taken;
	uint64_t refused;         /* items refused: full, timed out, too big, closed */
	uint32_t blocked_pushers; /* now */
	uint32_t waiting_poppers; /* now */
	uint64_t crossings;       /* of the marks; odd: now above */
	bool above_high;
};

/* SL_EINVAL names the bad option; SL_ENOMEM; SL_EAGAIN when the notifier thread cannot be started. */
SL_MUST_CHECK int sl__queue_new(sl__queue **out, const struct sl__queue_opts *opts, struct sl_err *err);
/* Delivers the crossings that are pending, joins the notifier, frees. NULL allowed. */
void sl__queue_free(sl__queue *q);

/*
 * Push one item. 0: it is in the queue. SL_ETOOBIG: its bytes are above max_bytes. SL_ECLOSED. When there is no room:
 * block waits up to timeout_ms (SL_UNLIMITED; 0 does not wait and gives SL_EFULL; else SL_ETIMEDOUT), drop_oldest makes
 * room, error gives SL_EFULL. A push behind blocked pushers has no room.
 */
SL_MUST_CHECK int sl__queue_push_item(sl__queue *q, struct sl__queue_item item, int64_t timeout_ms);
static inline int SL_MUST_CHECK sl__queue_push_timed(sl__queue *q, void *ptr, size_t bytes, int64_t timeout_ms)
{
	return sl__queue_push_item(q, sl__queue_item(ptr, bytes, 0), timeout_ms);
}
static inline int SL_MUST_CHECK sl__queue_push(sl__queue *q, void *ptr, size_t bytes)
{
	return sl__queue_push_timed(q, ptr, bytes, SL_UNLIMITED);
}
/* Never waits. */
static inline int SL_MUST_CHECK sl__queue_try_push(sl__queue *q, void *ptr, size_t bytes)
{
	return sl__queue_push_timed(q, ptr, bytes, 0);
}

/*
 * Push n items in order; n may exceed the capacity. *pushed (never NULL) counts those that are in, also on failure: the
 * first *pushed items belong to the queue, the others stay with the caller. Errors as above; SL_ETOOBIG is about
 * items[*pushed].
 */
SL_MUST_CHECK int sl__queue_push_many(sl__queue *q, const struct sl__queue_item *items, size_t n, int64_t timeout_ms,
				      size_t *pushed);
/* The same, but it waits for room whatever the overflow is. */
SL_MUST_CHECK int sl__queue_push_waiting(sl__queue *q, const struct sl__queue_item *items, size_t n, int64_t timeout_ms,
					 size_t *pushed);

/* Room for n items of `bytes` bytes together, which no other push can use. */
struct sl__queue_room {
	size_t n;
	size_t bytes;
};
/*
 * Reserve room for the first of items, of which only the bytes are read: for what has to happen between the decision
 * that there is room and the push, such as making the items durable. 0 and room->n >= 1, at most n: those for which
 * there is room now. Without room for the first: as a push, and in its turn among the pushers that are blocked.
 * Not for a queue that drops. What was reserved is given back by sl__queue_push_reserved.
 */
SL_MUST_CHECK int sl__queue_reserve(sl__queue *q, const struct sl__queue_item *items, size_t n, int64_t timeout_ms,
				    struct sl__queue_room *room);
/* Push n items, all or none, into the room, and give back what they do not need of it; n may be 0. The items are the
 * first of those that it was reserved for. SL_ECLOSED. */
SL_MUST_CHECK int sl__queue_push_reserved(sl__queue *q, const struct sl__queue_item *items, size_t n,
					  const struct sl__queue_room *room);

/*
 * Pop a batch of 1 to max items into out, oldest first (when a batch closes: see above). 0 and *n >= 1; SL_ETIMEDOUT
 * (nothing came within timeout_ms; SL_UNLIMITED waits), SL_EAGAIN (interrupted) or SL_ECLOSED (and empty) with *n = 0.
 * linger_ms SL_UNLIMITED: never by age. *first (NULL allowed) is the position of out[0]: how many items went in before
 * it; those after it have the positions that follow.
 */
SL_MUST_CHECK int sl__queue_pop_at(sl__queue *q, struct sl__queue_item *out, size_t max, int64_t linger_ms,
				   int64_t timeout_ms, size_t *n, uint64_t *first);
static inline int SL_MUST_CHECK sl__queue_pop(sl__queue *q, struct sl__queue_item *out, size_t max, int64_t linger_ms,
					      int64_t timeout_ms, size_t *n)
{
	return sl__queue_pop_at(q, out, max, linger_ms, timeout_ms, n, NULL);
}

/* Take up to max items without waiting, in any state; returns how many. Counted as taken, not popped. */
size_t sl__queue_take_at(sl__queue *q, struct sl__queue_item *out, size_t max, uint64_t *first);
static inline size_t sl__queue_take(sl__queue *q, struct sl__queue_item *out, size_t max)
{
	return sl__queue_take_at(q, out, max, NULL);
}

/* One popper that waits, or else the next that would have to, returns SL_EAGAIN: there is something else to do. Those
 * that are not yet heeded are one. */
void sl__queue_interrupt(sl__queue *q);

/* What is in the queue now is due at once: lingering poppers take it. */
void sl__queue_flush(sl__queue *q);

/* Stop intake: blocked and later pushers get SL_ECLOSED. May be called again, and to go from DRAIN to TAKE_BACK. */
void sl__queue_close(sl__queue *q, enum sl__queue_close_mode mode);

void sl__queue_stats(sl__queue *q, struct sl__queue_stats *out);

#endif
