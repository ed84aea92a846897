/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batcher: collects items and says when to flush them together: by count, by bytes, or by the age of the oldest,
 * whichever comes first. It is passive: no thread, no lock, no clock; the caller passes the time in, waits
 * until sl__batcher_deadline with whatever it waits on, and takes the batch.
 *
 * Guarantees: items leave in the order in which they came, each in exactly one batch; a batch has at most max_items
 * items and at most max_bytes bytes, except that one item larger than max_bytes is a batch alone. Once its buffers
 * have grown, adding allocates nothing. Not guaranteed: that anybody flushes in time.
 *
 * The usual shape, under the caller's lock:
 *
 *	int rc = sl__batcher_add(&b, now, data, len);       0, SL__BATCH_READY, or SL_EFULL: flush first, then add again
 *	if (rc == SL__BATCH_READY || sl__batcher_due(&b, now))
 *		sl__batcher_take(&b, &batch);               then unlock, write batch.spans[0 … n), sl__batch_drop
 *
 * A batch that could not be written stays with the caller: drop what was, keep the rest, try again; meanwhile the
 * batcher fills its other buffer, and refuses more with SL_EFULL when that is full too. So memory is bounded by two
 * batches.
 *
 * Thread safety: none; the caller's lock. A batch that was taken is the caller's and needs no lock.
 * Ownership: bytes are copied by add; what spans point to lives until the batch is dropped, taken into or ended.
 */
#ifndef SL_FLOW_BATCHER_H
#define SL_FLOW_BATCHER_H

#include "base/env.h"

struct sl__span {
	const void *data;
	size_t len;
};

struct sl__batcher_opts {
	int32_t max_items;   /* default 50 */
	int64_t max_bytes;   /* of the items together; default 256 KiB */
	int64_t max_wait_ms; /* of the oldest; default 100; SL_NONE: every item at once; SL_UNLIMITED */
};

/* Zero-initialise. spans, n, bytes and oldest_ns are for the caller to read. */
struct sl__batch {
	struct sl__span *spans; /* the items, in order */
	size_t n;
	size_t bytes;      /* of all items in it */
	int64_t oldest_ns; /* when its first item was added */
	size_t cap_spans;  /* the rest is private */
	char *buf;
	size_t cap_bytes;
	size_t start_span; /* spans[-start_span] is where the allocation begins: a prefix was dropped */
};

struct sl__batcher {
	const struct sl_env *env; /* the caller's; must outlive the batcher */
	size_t max_items, max_bytes;
	int64_t max_wait_ns; /* SL_FOREVER: no limit */
	struct sl__batch fill;
};

/* What add returns when the batch is complete: the item is in; take it now. */
#define SL__BATCH_READY 1

/* SL_EINVAL names the field that is out of range. opts may be NULL. Allocates nothing. */
SL_MUST_CHECK int sl__batcher_init(struct sl__batcher *b, const struct sl_env *env, const struct sl__batcher_opts *opts,
				   struct sl_err *err);
void sl__batcher_fini(struct sl__batcher *b);

/* 0: in, not due. SL__BATCH_READY: in, flush now (full, or the oldest is too old). SL_EFULL: not in, it does not fit
 * beside what is there; take, then add again. SL_ENOMEM: not in, nothing changed. */
SL_MUST_CHECK int sl__batcher_add(struct sl__batcher *b, int64_t now_ns, const void *data, size_t len);
/* When the oldest item is due; SL_FOREVER without an item or a limit. */
int64_t sl__batcher_deadline(const struct sl__batcher *b);
/* Full, or its deadline has come. False when empty. */
bool sl__batcher_due(const struct sl__batcher *b, int64_t now_ns);
static inline bool sl__batcher_empty(const struct sl__batcher *b)
{
	return b->fill.n == 0;
}
/* Hand the items over: *to, which must be empty (zeroed, or all dropped), gets them, and gives its buffers in exchange.
 * Never allocates and never fails. */
void sl__batcher_take(struct sl__batcher *b, struct sl__batch *to);

/* Forget the first n items of a batch: they are written. */
void sl__batch_drop(struct sl__batch *batch, size_t n);
/* Free the buffers of a batch, whatever is in it. */
void sl__batch_fini(struct sl__batch *batch, const struct sl_env *env);

#endif
