/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sequencer: elements come in any order from many threads and leave in theirs, one after the other.
 *
 * An element covers the numbers start … end; the one that follows it starts at end + 1. Single numbers are the case
 * start == end.
 *
 * Guarantees
 *  - next gives each element exactly once, in order, without a gap: the element that starts at `first`, then the one
 *    that starts after its end, and so on.
 *  - The buffer is bounded: an element that starts `window` numbers or more after the next expected one waits in push
 *    until the flow has moved on. The next expected element is always let in at once, so the flow cannot block itself
 *    as long as the producer of the next element is not busy pushing another.
 *  - A number that was seen before is refused (SL_EDUPLICATE), also where ranges overlap. A number that is missing at
 *    the end is an error of next (SL_EGAP) which names it.
 *  - A failed element stops the flow at exactly its place: everything before it still comes out, then next returns its
 *    error, for ever. What comes after it is refused (SL_ECANCELLED) or handed back by take, never lost.
 *  - After cancel, a failure or a gap no thread stays blocked in here.
 * Not guaranteed: speed for huge buffers; each push shifts what is buffered after it (fine for thousands).
 *
 *     open ── close ──▶ closing ── all out ──▶ SL_ECLOSED
 *      │                   │
 *      └───── failed element or gap reached by next, cancel ──▶ stopped: its error; take
 *
 * Thread safety: every function from any thread at once, but free, which must be the last call. One thread at a time
 * should call next: the order is the order in which it returns.
 * Ownership: ptr is the caller's business; a push that did not return 0 left the element with the caller.
 */
#ifndef SL_FLOW_SEQUENCER_H
#define SL_FLOW_SEQUENCER_H

#include "base/thread.h"

typedef struct sl__sequencer sl__sequencer;

struct sl__element {
	uint64_t start, end; /* start <= end < UINT64_MAX */
	void *ptr;
};

struct sl__sequencer_opts {
	uint64_t first;  /* the number that is expected first */
	uint64_t window; /* numbers, from the next expected one on, that may be buffered; at least 1 */
};

/* SL_EINVAL (window is 0), SL_ENOMEM. env is copied. */
SL_MUST_CHECK int sl__sequencer_new(sl__sequencer **out, const struct sl_env *env,
				    const struct sl__sequencer_opts *opts, struct sl_err *err);
/* What is still buffered is forgotten: take it back first. NULL is allowed. */
void sl__sequencer_free(sl__sequencer *s);

/*
 * Hand an element over; waits while it is too far ahead, at most timeout_ms (SL_UNLIMITED; 0 does not wait). Other than
 * 0: SL_ETIMEDOUT; SL_EDUPLICATE; SL_ECANCELLED (the flow has stopped, or will stop before it gets here); SL_ECLOSED
 * (pushed after close); SL_EINVAL; SL_ENOMEM. A push that waits when close is called still goes in.
 */
SL_MUST_CHECK int sl__sequencer_push(sl__sequencer *s, const struct sl__element *element, int64_t timeout_ms,
				     struct sl_err *err);
/* The element start … end has failed for good with *why, whose code must not be 0. Never waits, whatever the window.
 * SL_EDUPLICATE, SL_EINVAL. Of several failures the first in order counts. */
SL_MUST_CHECK int sl__sequencer_fail(sl__sequencer *s, uint64_t start, uint64_t end, const struct sl_err *why,
				     struct sl_err *err);

/*
 * The next element in order; waits at most timeout_ms. Other than 0: SL_ETIMEDOUT; SL_ECLOSED (closed, and everything
 * came out); the failed element's error; SL_EGAP (closed, and a number is missing); SL_ECANCELLED. The last three are
 * for ever.
 */
SL_MUST_CHECK int sl__sequencer_next(sl__sequencer *s, struct sl__element *out, int64_t timeout_ms, struct sl_err *err);

/* No element will be pushed any more. last (may be NULL) is the number that must come out last: one that is missing
 * before it is a gap. Idempotent; the first call's last counts. */
void sl__sequencer_close(sl__sequencer *s, const uint64_t *last);
/* Stop now: every waiter returns SL_ECANCELLED. Does nothing when the flow has stopped already. */
void sl__sequencer_cancel(sl__sequencer *s);
/* Once the flow has stopped: an element that never came out, in order, to be released. False when no element is left,
 * or the flow has not stopped. */
bool sl__sequencer_take(sl__sequencer *s, struct sl__element *out);

struct sl__sequencer_stats {
	uint64_t next;          /* the number expected next */
	size_t buffered;        /* elements inside */
	size_t buffered_max;    /* most ever */
	size_t waiting;         /* pushes that wait for the window */
	uint64_t highest_start; /* of what is buffered; 0: nothing is */
};
void sl__sequencer_get_stats(sl__sequencer *s, struct sl__sequencer_stats *out);

#endif
