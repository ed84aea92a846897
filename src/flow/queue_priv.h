/* SPDX-License-Identifier: Apache-2.0 */
/* What a queue is made of, for its two files: queue.c moves items, queue_open.c creates it and reports its marks. */
#ifndef SL_FLOW_QUEUE_PRIV_H
#define SL_FLOW_QUEUE_PRIV_H

#include "base/thread.h"
#include "flow/queue.h"

#define POOL_WAITERS 32 /* sleepers beyond these are signalled under the lock */

/* What a push wants: its items in the ring, in order, or room for some of them. */
struct intake {
	const struct sl__queue_item *items; /* that are left */
	size_t n;
	struct sl__queue_room *room; /* NULL: the items go in; else it takes the room, and n becomes 0 */
};

struct waiter {
	sl__cond cond;
	struct waiter *next;
	bool pooled;
	bool listed; /* in poppers or pushers; cleared by who wakes it */
	/* a popper */
	size_t max, promised;
	int64_t linger_ns;
	bool timed;            /* sleeps with a deadline that is no later than its linger allows */
	bool keeper;           /* was woken to arm a timer */
	bool interrupted;      /* was woken to return with nothing */
	struct intake *intake; /* of a pusher */
};

struct waiters {
	struct waiter *first, *last;
	uint32_t n;
};

/* Signals to send once the lock is released. */
struct wakes {
	struct waiter *w[6];
	unsigned n;
	bool notify;
};

struct sl__queue {
	struct sl_env env; /* first: sl__flow_new */
	sl__mutex mu;
	struct sl__queue_item *ring;
	size_t capacity, max_bytes;
	size_t limit, limit_bytes; /* the same, without what is reserved */
	size_t head, tail;         /* ring indexes of the oldest and of the next free slot */
	size_t depth, bytes;
	uint64_t n_in, n_out;
	size_t wake_at;     /* a push that brings depth here has a popper to wake */
	size_t promised;    /* items meant for poppers on their way */
	uint32_t unstamped; /* push calls since the clock was read */
	uint32_t since_pop; /* push calls since a pop, saturating at EXACT_STAMPS */
	uint64_t flush_seq; /* items before it are due whatever their age */
	int64_t stamp_ns;   /* the clock's last reading */
	size_t high, low, high_bytes, low_bytes;
	bool above;
	bool keeper_coming;
	bool interrupt;                   /* the next popper that would sleep returns instead */
	enum sl__queue_close_mode closed; /* 0: open */
	enum sl__queue_overflow overflow;
	struct waiters poppers, pushers;
	struct waiter *pool;
	uint64_t crossings, reported;
	uint64_t dropped, taken, refused;
	sl__cond notify;
	bool notifier_runs, stopping;
	pthread_t notifier;
	sl__queue_mark_fn *on_high, *on_low;
	sl__queue_drop_fn *on_drop;
	void *ctx;
	struct waiter waiters[POOL_WAITERS];
};

#endif
