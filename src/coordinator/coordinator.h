/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the write coordinator. One lock, mu, guards what workers, the keeper, stop and health share; the queue, the
 * breaker, the limiter and the token buckets have their own, taken inside of mu or without it, never around it. Sinks,
 * callbacks, logs and dead letters are called without a lock.
 *
 *     coordinator.c  options.c   the handle and its options        pick.c             workers, and who takes which batch
 *     submit.c  item.c           what goes into the queue          write.c   gate.c   one write, and what a failure means
 *     batch.c                    batches, segments, their order    settle.c           how items end; dead letters; flush
 *     keeper.c                   time and the number of workers    stop.c             the end
 *     keys.c                     order within keys                 durable.c          the logs
 *     health.c                   state and metrics
 *
 * Invariants, under mu:
 *  C1  accepted (the queue's pushed) = written + dead + dropped + returned + queue depth + outside; outside is what was
 *      taken out and has not ended.
 *  C2  A batch is in exactly one place: free, with a worker (n_busy, or n_popping while it is empty), in the
 *      heap, held, or left for stop. There are workers_max + retry.batches of them, and a worker takes an empty one
 *      only while fewer than retry.batches wait, so there is always one for it; or, to probe, while one is free. A few
 *      items that fail by themselves wait in a small batch, which is allocated, so that they take no room from others.
 *  C3  `state` is the breaker's state after the last report; a batch goes into a write only with a permit.
 *  C4  A worker that waits on `work` could not do anything when it began to; code that changes that calls sl__stir.
 */
#ifndef SL_COORDINATOR_COORDINATOR_H
#define SL_COORDINATOR_COORDINATOR_H

#include <stdatomic.h>

#include "base/fork_guard.h"
#include "base/thread.h"
#include "flow/breaker.h"
#include "flow/limiter.h"
#include "flow/pool.h"
#include "flow/queue.h"
#include "flow/retry.h"
#include "flow/tokens.h"
#include <sluice/coordinator.h>
#include <sluice/metrics.h>

#define SL__NS_PER_MS ((int64_t)1000000)

/* ---- items ---- */

/* What the pointer of an item in the queue is. */
enum sl__item_tag {
	SL__ITEM_RAW = 0,   /* the user's pointer */
	SL__ITEM_BLOCK = 1, /* a copy of the bytes and nothing else; NULL for no bytes */
	SL__ITEM_BOX = 2    /* a struct sl__box */
};

struct sl__box;

/* The items of one key outside the queue, in order. It lives in the first of them. */
struct sl__key {
	struct sl__box *last;
	struct sl__box *chain;      /* the next key of the same bucket */
	struct sl__box *ready_next; /* the next key that waits for a batch */
	struct sl__batch *holder;   /* the batch that the first n_held are in; NULL: none */
	size_t n_held, n_aside;
	uint64_t hash;
};

/* An item with more than its bytes: one allocation, followed by the key and the bytes. */
struct sl__box {
	const void *data; /* the bytes, here; or the user's pointer */
	size_t len;
	uint64_t position;
	struct sl_input_range range;
	sl_item_done_fn *done;
	void *done_ctx;
	sl_wal *log; /* that has it as `sequence`; NULL: none */
	uint64_t sequence;
	/* keys.c, once it is outside the queue: */
	struct sl__box *prev, *next; /* of its key */
	struct sl__key key_state;    /* when it is the first of its key */
	uint64_t at;                 /* its place in the queue's order */
	int64_t at_ns;
	uint8_t key_len;
	char tail[]; /* the key, the bytes */
};

/* Make the item that goes into the queue. SL_ENOMEM; SL_ETOOBIG; SL_EINVAL. */
SL_MUST_CHECK int sl__item_make(const sl_coordinator *c, const struct sl_item *in, struct sl__queue_item *out);
/* The same, always as a box: with a copy of `bytes` bytes after it, or for pointer items with `pointer`, which is the
 * box's from then on. */
SL_MUST_CHECK int sl__item_box(const sl_coordinator *c, const struct sl_item *in, const void *pointer, size_t bytes,
			       struct sl__queue_item *out);
/* Free what make allocated; not the user's pointer. For a submit that failed. */
void sl__item_unmake(const sl_coordinator *c, const struct sl__queue_item *q);
/* The user's view of an item. */
struct sl_item sl__item_view(const struct sl__queue_item *q);
/* Its bytes, for a log or a letter; *out lives until the next call on this thread. */
SL_MUST_CHECK int sl__item_bytes(const sl_coordinator *c, const struct sl_item *item, const void **out, size_t *len);
/* Call its done callback. */
void sl__item_call_done(const struct sl__queue_item *q, enum sl_item_end end, const struct sl_err *err);
/* Free it; keep: but not the user's pointer. */
void sl__item_free(const sl_coordinator *c, const struct sl__queue_item *q, bool keep);

static inline struct sl__box *sl__box_of(const struct sl__queue_item *q)
{
	return q->tag == SL__ITEM_BOX ? q->ptr : NULL;
}

/* ---- batches ---- */

/* Items that are written together. The segments of a batch follow one another; the one on top begins at lo. */
struct sl__segment {
	size_t end;        /* index after its last item */
	uint32_t attempts; /* writes that its items were part of */
	struct sl__retry_state retry;
	int64_t failed_ns;  /* its first failure; counts when failed */
	uint64_t successes; /* c->successes at that time: more of them prove that the target works without it */
	int64_t due_ns;     /* not written before */
	bool failed;        /* once or more */
	bool owes;          /* that first failure was not charged: nothing proved that the target works */
	bool halving;       /* its attempts were used up together: each further failure halves it */
	bool last_call;     /* it failed after its time was up, and nothing shows that the target works */
	bool dead;          /* never to be written; the batch's err says why */
	bool has_id;
	uint8_t id[16];
	uint32_t tries; /* with this id */
};

/* Halving needs log2(batch_size) of them; those that a named culprit makes stop at half. */
#define SL__SEGMENTS 64
/* Items of a small batch, and how many of those there are. */
#define SL__SMALL_ITEMS 8
#define SL__SMALL_BATCHES 4096

struct sl__batch {
	struct sl__batch *next; /* of the list it is in */
	struct sl__queue_item *items;
	size_t n, lo; /* items; those below lo have ended */
	size_t n_segments;
	struct sl__segment *segments; /* the last is on top; SL__SEGMENTS, of a small one SL__SMALL_ITEMS */
	uint64_t first, total;        /* places in the queue's order; without keys the items are from there */
	bool small;
	bool loops;                              /* ending an item is more than counting it */
	bool probes;                             /* counted in c->probing */
	bool keyed;                              /* its items are known to keys.c */
	uint32_t letter_tries;                   /* of its dead segment at the dead letters */
	uint64_t turn;                           /* when it was written last, counted in c->turns */
	bool down_to_one;                        /* a single item failed after its time was up */
	int64_t due_ns;                          /* in the heap */
	int64_t first_failed_ms, last_failed_ms; /* Unix */
	struct sl_err err;                       /* of the last failure */
};

struct sl__batches {
	struct sl__batch *first, *last;
	size_t n, items;
};

static inline struct sl__segment *sl__top(struct sl__batch *b)
{
	return &b->segments[b->n_segments - 1];
}

/* The n items are one segment. */
void sl__batch_begin(struct sl__batch *b, size_t n);
/* The segment on top has ended. */
void sl__batch_pop(struct sl__batch *b);
/* Cut the segment on top at index at, inside of it; the first part is on top then. false: no room to do so. */
bool sl__batch_cut(struct sl__batch *b, size_t at);
/* There is room to halve the segment on top, also if it turns out to be poison afterwards. */
static inline bool sl__batch_has_room(const struct sl__batch *b)
{
	return b->small || b->n_segments < SL__SEGMENTS / 2;
}
/* Halve the segment on top, which has two items or more. Its retries begin anew. */
void sl__batch_halve(struct sl__batch *b);
/* Move the segment on top to the bottom: what else there is goes first. The order of items changes. */
void sl__batch_defer_top(struct sl__batch *b);
/* Put item k of the segment on top alone into a dead segment on top of it; what came before k and what comes after it
 * are separate segments while there is room. */
void sl__batch_isolate(struct sl__batch *b, size_t k);
/* Sort the segment on top by its outcomes (outcomes[0] is item lo, and all are known): those written first, then those
 * that are poison, then the rest, each in order. Returns their numbers. scratch has room for the segment. */
void sl__batch_sort(struct sl__batch *b, const uint8_t *outcomes, struct sl__queue_item *scratch, size_t *written,
		    size_t *poison);
/* The first n items of the segment on top become a separate dead segment. */
void sl__batch_kill(struct sl__batch *b, size_t n);

void sl__batches_append(struct sl__batches *list, struct sl__batch *b);
void sl__batches_prepend(struct sl__batches *list, struct sl__batch *b);
struct sl__batch *sl__batches_pop(struct sl__batches *list);

/* A binary heap by due_ns, within a fixed room. */
struct sl__heap {
	struct sl__batch **at;
	size_t n, items;
};
void sl__heap_push(struct sl__heap *h, struct sl__batch *b);
struct sl__batch *sl__heap_pop(struct sl__heap *h);
/* Take out the one at index i. */
struct sl__batch *sl__heap_remove(struct sl__heap *h, size_t i);

/* ---- the handle ---- */

struct sl__worker {
	sl_coordinator *c;
	void *lane;
	bool attached;
	struct sl_sink_item *items; /* batch_size */
	uint8_t *outcomes;          /* batch_size */
	size_t dirty;               /* items below it may have a key or a position set */
	struct sl__prng prng;
	uint8_t id[16]; /* random, and counted up */
};

struct sl__coordinator_metrics {
	sl_counter *writes_ok, *writes_failed, *worker_errors, *dropped, *dead, *retries;
	sl_histogram *latency, *batch_items;
	sl_gauge *depth, *oldest_age, *breaker_open, *workers;
	bool attached;
};

/* One caller of flush: how many of the items before `until` have not ended. */
struct sl__flusher {
	struct sl__flusher *next;
	uint64_t until, left;
	bool closed; /* stop gave one of them back */
};

struct sl__keys {
	struct sl__box **buckets; /* first boxes of keys */
	size_t n_buckets;         /* a power of two */
	struct sl__box *ready, *ready_last;
	size_t n_aside; /* items that wait for their key */
	uint64_t seed;  /* of the hash: a sender must not choose who shares a bucket */
};

struct sl_coordinator {
	/* not changed after new */
	struct sl_env env;
	struct sl__fork_guard guard;
	struct sl_coordinator_opts o; /* every default filled in */
	char *name;
	char *target; /* of the sink, for dead letters */
	sl_sink sink;
	bool raw;   /* pointer items without more go in as they are */
	bool boxes; /* everything is boxed */
	bool logs;  /* there is one */
	bool loops; /* every item has something to free or a callback to call */
	size_t batch_size, batch_bytes, item_max;
	sl__queue *queue;
	sl__breaker *breaker;
	sl__limiter *limiter; /* NULL: not adaptive */
	sl__tokens *rate_items, *rate_bytes;
	size_t chunk_items, chunk_bytes; /* of one write at most; SIZE_MAX: no rate */
	double rate_unreduced;           /* of rate_items */
	sl__pool *pool;
	pthread_t keeper, feeder;
	bool keeper_runs, feeder_runs;
	struct sl__worker *workers;
	uint32_t n_first; /* of them take part from the start */
	struct sl__batch *batches;
	size_t n_batches;
	struct sl__coordinator_metrics metrics;

	sl__mutex mu;
	sl__cond work;    /* a worker that waits may have something to do */
	sl__cond park;    /* for workers that are not needed */
	sl__cond ticks;   /* for the keeper */
	sl__cond settled; /* items ended, or a step of stop was made */
	sl__cond fed;     /* the logs are in the queue */

	struct sl__batches free, held, left;
	struct sl__heap heap;
	size_t n_small;       /* small batches */
	size_t n_big_waiting; /* the others in the heap or held */
	struct sl__keys keys;
	struct sl__flusher *flushers;

	uint32_t running, target_workers; /* taking part; should */
	uint32_t n_busy;                  /* workers with a batch */
	uint32_t n_popping, n_at_once;    /* in the queue's pop; of those without linger */
	uint32_t n_idle;                  /* waiting on `work` */
	uint32_t n_token_waits;           /* waiting for the rate */
	uint32_t probing;                 /* batches taken while the breaker was not closed, without a permit so far */
	uint32_t limit;                   /* the limiter's */
	int64_t limit_next_ns;            /* its next step up */
	enum sl__breaker_state state;
	int64_t probe_ns;         /* when not closed: a probe makes sense from here on */
	bool probe_new;           /* the last probe was a batch that had waited: new items are next */
	uint64_t turns;           /* writes that have begun */
	uint64_t successes;       /* writes that got something into the target */
	int64_t failing_since_ns; /* no write has since; 0: the last one did */
	bool nudged;              /* a worker was woken and has not checked yet */

	int64_t keeper_until_ns; /* its deadline */
	int64_t scale_at_ns;     /* when the number of workers is checked next; SL_FOREVER: none */
	bool scale_quiet;   /* nothing happens; the next batch starts the checks again. Never set without scaling */
	int64_t pressed_ns; /* more workers were needed since; 0: are not */
	int64_t window_ns;  /* n_busy was never above peak_busy since */
	uint32_t peak_busy;

	uint64_t written, dead, dropped, returned, spilled;
	uint64_t ended; /* for flush: a batch counts when all of it has ended */
	uint64_t n_writes, n_failures, n_splits;
	struct sl_err last_error;

	atomic_bool feeding; /* the logs are not in the queue yet; changed under mu */
	bool closed;         /* no intake */
	bool unfed;          /* the time for feeding is over */
	bool drained;        /* and the queue is empty */
	bool halted;         /* nothing is begun any more */
	bool quit;           /* threads leave */
	bool stop_runs;      /* a thread is in stop */
	bool joined;         /* threads have left */
	bool stopped;        /* stop has given an answer */
};

/* ---- options.c, health.c ---- */
SL_MUST_CHECK int sl__coordinator_options(struct sl_coordinator_opts *out, const struct sl_coordinator_opts *opts,
					  const sl_sink *sink, struct sl_err *err);
SL_MUST_CHECK int sl__coordinator_metrics_attach(sl_coordinator *c, struct sl_err *err);
void sl__coordinator_metrics_detach(sl_coordinator *c);

/* ---- pick.c ---- */

/* From when on a waiting batch may be taken, and an empty one filled from the queue: SL_FOREVER when only a change can
 * allow it. */
int64_t sl__takeable_at(const sl_coordinator *c) SL_REQUIRES(c->mu);
int64_t sl__poppable_at(const sl_coordinator *c) SL_REQUIRES(c->mu);
/* Something has changed: wake the threads that it concerns. */
void sl__stir(sl_coordinator *c) SL_REQUIRES(c->mu);
/* Wake a worker that waits, for work or for items. */
void sl__wake_worker(sl_coordinator *c) SL_REQUIRES(c->mu);
/* The worker gives a batch out of its hands. */
void sl__put_free(sl_coordinator *c, struct sl__batch *b) SL_REQUIRES(c->mu);
void sl__put_held(sl_coordinator *c, struct sl__batch *b, bool first) SL_REQUIRES(c->mu);
void sl__put_heap(sl_coordinator *c, struct sl__batch *b, int64_t due_ns) SL_REQUIRES(c->mu);
void sl__put_left(sl_coordinator *c, struct sl__batch *b) SL_REQUIRES(c->mu);
/* An empty batch that no worker has. */
void sl__batch_done(sl_coordinator *c, struct sl__batch *b) SL_REQUIRES(c->mu);

/* The thread of a worker. */
void sl__worker_main(unsigned index, void *ctx);

/* ---- write.c, gate.c ---- */
/* What became of a step with a batch. */
enum sl__step {
	SL__STEP_ON = 0,  /* continue with it */
	SL__STEP_GONE = 1 /* it waits somewhere: not ours any more */
};
/* Write the segment on top. Called and returns with mu held. */
enum sl__step sl__write(sl_coordinator *c, struct sl__worker *w, struct sl__batch *b) SL_REQUIRES(c->mu);

struct sl__permits {
	struct sl__breaker_permit breaker;
	bool limited; /* a permit of the limiter is out */
};
/* Tokens, breaker, limiter. SL__STEP_GONE: the batch waits for one of them. Called and returns with mu held. */
enum sl__step sl__gate_enter(sl_coordinator *c, struct sl__batch *b, size_t bytes, struct sl__permits *permits)
	SL_REQUIRES(c->mu);
/* What came of the write. alone: it failed, and others did not; that says nothing about the target. */
void sl__gate_leave(sl_coordinator *c, const struct sl__permits *permits, int rc, enum sl_err_class error_class,
		    bool alone) SL_REQUIRES(c->mu);
/* Something got into the target since the first failure of the segment on top: it fails by itself. */
static inline bool sl__fails_alone(const sl_coordinator *c, struct sl__batch *b) SL_REQUIRES(c->mu)
{
	return sl__top(b)->failed && c->successes > sl__top(b)->successes;
}
/* When the segment on top has waited for long enough; SL_FOREVER: never. */
static inline int64_t sl__gives_up_ns(const sl_coordinator *c, struct sl__batch *b)
{
	const struct sl__segment *s = sl__top(b);
	return s->failed && c->o.retry.give_up_after_ms != SL_UNLIMITED
		       ? s->failed_ns + c->o.retry.give_up_after_ms * SL__NS_PER_MS
		       : SL_FOREVER;
}
static inline bool sl__is_late(const sl_coordinator *c, struct sl__batch *b)
{
	return sl__mono_ns(&c->env) >= sl__gives_up_ns(c, b);
}

/* ---- settle.c ---- */

/* Put the dead segment on top into the dead letters. Called and returns with mu held. */
enum sl__step sl__bury(sl_coordinator *c, struct sl__worker *w, struct sl__batch *b) SL_REQUIRES(c->mu);
/* The first n items of b that have not ended do: callbacks and memory (without the lock), marks in the log, counts. A batch without keys is
 * settled for flush when all of it has ended. */
void sl__end_items(sl_coordinator *c, struct sl__batch *b, size_t n, enum sl_item_end end, const struct sl_err *err)
	SL_REQUIRES(c->mu);
/* Count n that ended; nothing else. */
void sl__count_ended(sl_coordinator *c, uint64_t n, enum sl_item_end end) SL_REQUIRES(c->mu);
/* n items from place `first` on have ended, for flush. */
void sl__settle(sl_coordinator *c, uint64_t first, uint64_t n, bool returned) SL_REQUIRES(c->mu);
/* All of b has ended. */
void sl__settle_batch(sl_coordinator *c, struct sl__batch *b, bool returned) SL_REQUIRES(c->mu);
sl__queue_drop_fn sl__on_drop;

/* What has not ended, and where it is. */
struct sl__tally {
	struct sl__queue_stats queue;
	uint64_t ended, outside, waiting; /* waiting: outside in the heap, held, left or queued for a key */
};
struct sl__tally sl__tally(sl_coordinator *c) SL_REQUIRES(c->mu);

/* ---- keys.c ---- */
SL_MUST_CHECK int sl__keys_init(sl_coordinator *c);
/* Sort what b has out of the queue: items that must wait for their key go aside, the others are its one segment. */
void sl__keys_admit(sl_coordinator *c, struct sl__batch *b) SL_REQUIRES(c->mu);
/* Fill the empty batch b with what waits for ready keys; there are some. */
void sl__keys_take_ready(sl_coordinator *c, struct sl__batch *b) SL_REQUIRES(c->mu);
/* box, in a batch, has ended. */
void sl__keys_end(sl_coordinator *c, struct sl__box *box) SL_REQUIRES(c->mu);
/* The items are in another batch now. */
void sl__keys_moved(sl_coordinator *c, struct sl__batch *b) SL_REQUIRES(c->mu);
/* An item of the segment on top has the same key as a later one in the batch. */
bool sl__keys_shared(const struct sl__batch *b);
/* For stop: up to max items that wait aside, in order within each key. */
size_t sl__keys_take_aside(sl_coordinator *c, struct sl__queue_item *out, size_t max) SL_REQUIRES(c->mu);
static inline bool sl__has_keys(const sl_coordinator *c)
{
	return c->keys.buckets != NULL;
}

/* ---- durable.c ---- */
/* Start to feed what the logs have pending. */
SL_MUST_CHECK int sl__durable_start(sl_coordinator *c, struct sl_err *err);
/* Wait until it is all in the queue. SL_EFULL (timeout 0), SL_ETIMEDOUT, SL_ECLOSED. */
SL_MUST_CHECK int sl__await_fed(sl_coordinator *c, int64_t timeout_ms);
/* Reserve room, append, then push. *accepted counts up. */
SL_MUST_CHECK int sl__durable_submit(sl_coordinator *c, const struct sl_item *items, size_t n, int64_t timeout_ms,
				     size_t *accepted);
/* Items ended: mark those that are in a log. */
void sl__durable_mark(const sl_coordinator *c, const struct sl__queue_item *items, size_t n, bool sent);
/* Append up to 64 items that are in no log to spill_wal; all or none. */
SL_MUST_CHECK int sl__durable_spill(sl_coordinator *c, const struct sl__queue_item *items, size_t n,
				    struct sl_err *err);
/* Records that the logs have pending. */
SL_MUST_CHECK int sl__durable_pending(const sl_coordinator *c, uint64_t *n, struct sl_err *err);
/* Milliseconds until deadline_ns, rounded up. */
int64_t sl__left_ms(const sl_coordinator *c, int64_t deadline_ns);

/* ---- keeper.c ---- */
void *sl__coordinator_keep(void *arg);
/* The keeper sleeps longer than it should: wake it. */
void sl__keeper_check(sl_coordinator *c) SL_REQUIRES(c->mu);
/* The limiter's limit now. */
void sl__refresh_limit(sl_coordinator *c) SL_REQUIRES(c->mu);
/* Something began to happen. */
void sl__scale_begin(sl_coordinator *c) SL_REQUIRES(c->mu);

/* ---- stop.c ---- */
void sl__join_threads(sl_coordinator *c);

#endif
