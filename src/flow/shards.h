/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shards: items in one FIFO per key, taken fairly over the keys, with a gate that says which keys are ready and a time
 * before which an item is not to be taken.
 *
 * Guarantees
 *  - Within a key items leave in the order in which they came. An item that waits for its time is skipped, and goes
 *    ahead of its key's other items once it is due (several: the earliest first, then in the order of their coming).
 *  - Over the keys the turn goes round: a key that has been served is served again only after every other key that was
 *    ready and had something due.
 *  - A key that is not ready is asked once and then left aside until sl__shards_recheck; a waiting item stands in a
 *    heap. Neither costs the others anything. Adding, taking and giving back are O(1), or O(log n) for a waiting item.
 *  - An item that was taken can always be put back (retry): that needs no memory and cannot fail.
 *  - A key with nothing in it takes no memory.
 * Not guaranteed: that a key is still ready when its item has been taken; waking anybody (callers have conditions of
 * their own: after push and retry, wake the taker, who sleeps until sl__shards_next_due or its poll interval).
 *
 *     push ──▶ inside ── take ──▶ out ── done ──▶ forgotten
 *                ▲                 │
 *                └───── retry ─────┘
 *
 * Thread safety: every function from any thread at once, but free, which must be the last call.
 * Ownership: items are the caller's memory and stay so; they must not move or be freed while inside or out.
 */
#ifndef SL_FLOW_SHARDS_H
#define SL_FLOW_SHARDS_H

#include "base/thread.h"

typedef struct sl__shards sl__shards;
struct sl__shard;

/* Embedded in what the caller queues. */
struct sl__shard_item {
	size_t bytes; /* what it counts; set before push */
	/* private: */
	struct sl__shard *shard;
	struct sl__shard_item *next, *child; /* in a FIFO, or in the heap */
	int64_t not_before_ns;
	uint64_t order;
};

/* Is this key ready to be served? Called by take, without locks; may push, and may call recheck. */
typedef bool sl__shards_ready_fn(const void *key, size_t key_len, void *ctx);

#define SL__SHARD_MAX_KEY 255

/* ready may be NULL: every key is, always. env is copied. SL_ENOMEM. */
SL_MUST_CHECK int sl__shards_new(sl__shards **out, const struct sl_env *env, sl__shards_ready_fn *ready, void *ctx,
				 struct sl_err *err);
/* Items inside or out are forgotten. NULL is allowed. */
void sl__shards_free(sl__shards *s);

/* Add an item after its key's others; not_before_ns 0: due now. SL_ENOMEM, SL_EINVAL (a key above
 * SL__SHARD_MAX_KEY bytes). */
SL_MUST_CHECK int sl__shards_push(sl__shards *s, const void *key, size_t key_len, struct sl__shard_item *item,
				  int64_t not_before_ns);
/* The next item whose turn it is; it is then out, until done or retry. NULL: nothing is due at a key that is ready. */
struct sl__shard_item *sl__shards_take(sl__shards *s);
/* Put an item that is out back in, to go ahead of its key's others from not_before_ns on (0: at once). Never fails. */
void sl__shards_retry(sl__shards *s, struct sl__shard_item *item, int64_t not_before_ns);
/* An item that is out is dealt with. */
void sl__shards_done(sl__shards *s, struct sl__shard_item *item);
/* Any item, whether its key is ready and its time has come or not; it is out as after take. For giving everything up.
 * NULL: nothing is inside, but for the key that a take in another thread is asking about at this moment. */
struct sl__shard_item *sl__shards_take_any(sl__shards *s);

/* Ask the keys that were not ready again at the next take. Call it when one may have become ready, and every now and
 * then in case that was missed. One key: key; all: NULL. */
void sl__shards_recheck(sl__shards *s, const void *key, size_t key_len);

/* The key of an item that is inside or out. *len may be NULL. */
const void *sl__shard_key(const struct sl__shard_item *item, size_t *len);
/* When the first waiting item is due (monotonic ns); SL_FOREVER: none waits. */
int64_t sl__shards_next_due(sl__shards *s);

struct sl__shards_stats {
	uint64_t items, bytes; /* inside */
	uint64_t out;          /* taken, neither done nor back */
	uint64_t waiting;      /* inside, for their time */
	uint64_t keys;         /* with something inside or out */
	uint64_t not_ready;    /* keys left aside */
};
void sl__shards_get_stats(sl__shards *s, struct sl__shards_stats *out);

#endif
