/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring under one mutex. What makes it fast is when it signals, not how it locks:
 *
 *  - A push signals a popper only when that popper has something to do: a full batch, a first item for one that does
 *    not linger, or a timer to arm (the keeper, below). Items promised to a popper that is already on its way are not
 *    counted for the next one. The push path compares one number, wake_at, against the depth.
 *  - Signals are sent after the mutex is released, and who finds it taken spins for a moment before it sleeps: with
 *    single pushes from two cores that doubled the rate.
 *  - Both sides give up the CPU a few times before they go to sleep over a full queue or leave with a small batch: with
 *    more threads than cores that lets the other side run, and costs under a microsecond otherwise.
 *  - A popper that makes room moves the items of blocked pushers into the ring itself, first come first served, so a
 *    pusher that wakes has nothing left to fight for.
 *
 * Lingering poppers sleep without a deadline while the queue is empty. The first item wakes the one with the shortest
 * linger, the keeper, which goes back to sleep with the item's age as deadline; the others sleep on until a batch is
 * full. A popper that goes to sleep over a queue that is not empty arms its own deadline.
 *
 * Invariants, all under mu:
 *  I1  n_in - n_out = depth <= limit <= capacity, bytes <= limit_bytes <= max_bytes, bytes = sum over the ring; what the
 *      limits are below capacity and max_bytes is reserved.
 *  I2  While pushers are blocked, the first one's next item does not fit, and n_in <= flush_seq (all are due).
 *  I3  When poppers sleep: depth - promised < wake_at - promised, or a popper is on its way.
 *  I4  above flips exactly with crossings; crossings - reported is what the notifier has to deliver, and parity says which.
 */
#include "flow/queue_priv.h"

#include <sched.h>

#define GATHER_YIELDS 8 /* before a popper that does not linger leaves with a batch that still grows */
#define FULL_YIELDS 4   /* before a pusher blocks */
#define EXACT_STAMPS 32 /* pushes after a pop whose time is read one by one */
#define STAMP_EVERY 16  /* and after those, one of this many */

/* ---- sleepers ---- */

static struct waiter *get_waiter(sl__queue *q, struct waiter *spare) SL_REQUIRES(q->mu)
{
	struct waiter *w = q->pool;
	if (w != NULL) {
		q->pool = w->next;
		return w;
	}
	*spare = (struct waiter){.pooled = false};
	sl__cond_init(&spare->cond);
	return spare;
}

static void put_waiter(sl__queue *q, struct waiter *w) SL_REQUIRES(q->mu)
{
	if (!w->pooled) {
		sl__cond_fini(&w->cond);
		return;
	}
	w->next = q->pool;
	q->pool = w;
}

static void append_waiter(struct waiters *list, struct waiter *w)
{
	w->next = NULL;
	w->listed = true;
	if (list->first == NULL)
		list->first = w;
	else
		list->last->next = w;
	list->last = w;
	list->n++;
}

static void unlist(struct waiters *list, struct waiter *w)
{
	struct waiter *before = NULL;
	for (struct waiter *at = list->first; at != w; at = at->next)
		before = at;
	if (before == NULL)
		list->first = w->next;
	else
		before->next = w->next;
	if (list->last == w)
		list->last = before;
	w->listed = false;
	list->n--;
}

/* A node of the pool lives as long as the queue, so its signal can wait until the lock is free: at worst it wakes a
 * later user of the node for nothing. A node on a sleeper's stack cannot wait. */
static void add_wake(struct wakes *wakes, struct waiter *w)
{
	if (w->pooled && wakes->n < SL_COUNT(wakes->w))
		wakes->w[wakes->n++] = w;
	else
		sl__signal(&w->cond);
}

static void send_wakes(sl__queue *q, struct wakes *wakes)
{
	for (unsigned i = 0; i < wakes->n; i++)
		sl__signal(&wakes->w[i]->cond);
	if (wakes->notify)
		sl__signal(&q->notify);
	*wakes = (struct wakes){0};
}

static void unlock_and_wake(sl__queue *q, struct wakes *wakes) SL_RELEASE(q->mu)
{
	sl__unlock(&q->mu);
	if (SL_UNLIKELY(wakes->n != 0 || wakes->notify))
		send_wakes(q, wakes);
}

/* ---- waking poppers ---- */

/* Items present are due now: nothing more is to be waited for. */
static bool due_at_once(const sl__queue *q) SL_REQUIRES(q->mu)
{
	return q->n_out < q->flush_seq || q->closed != 0;
}

/* The depth beyond what is promised at which w has a batch to take. */
static size_t need_of(const sl__queue *q, const struct waiter *w) SL_REQUIRES(q->mu)
{
	return w->linger_ns == 0 || due_at_once(q) ? 1 : SL_MIN(w->max, q->capacity);
}

static void wake_popper(sl__queue *q, struct waiter *w, size_t promise, struct wakes *wakes) SL_REQUIRES(q->mu)
{
	unlist(&q->poppers, w);
	w->promised = promise;
	q->promised += promise;
	add_wake(wakes, w);
}

/* Wake every popper that has something to do, and set wake_at for the next push. */
static void wake_poppers(sl__queue *q, struct wakes *wakes) SL_REQUIRES(q->mu)
{
	size_t have;
	struct waiter *w;
	for (;;) {
		have = q->depth > q->promised ? q->depth - q->promised : 0;
		w = have > 0 ? q->poppers.first : NULL;
		while (w != NULL && have < need_of(q, w))
			w = w->next;
		if (w == NULL)
			break;
		wake_popper(q, w, SL_MIN(have, w->max), wakes);
	}
	/* The popper whose age limit comes first becomes the keeper, when no popper keeps its time yet. */
	struct waiter *keeper = q->poppers.first;
	for (w = keeper; w != NULL; w = w->next)
		if (w->linger_ns < keeper->linger_ns)
			keeper = w;
	if (keeper != NULL && (q->keeper_coming || keeper->timed || keeper->linger_ns == SL_FOREVER))
		keeper = NULL;
	if (have > 0 && keeper != NULL) {
		keeper->keeper = q->keeper_coming = true;
		wake_popper(q, keeper, 0, wakes);
		keeper = NULL;
	}
	size_t need = keeper != NULL ? 1 : SIZE_MAX;
	for (w = q->poppers.first; w != NULL; w = w->next)
		need = SL_MIN(need, need_of(q, w));
	if (__builtin_add_overflow(q->promised, need, &q->wake_at))
		q->wake_at = SIZE_MAX;
}

/* ---- the ring ---- */

static bool fits(const sl__queue *q, size_t bytes) SL_REQUIRES(q->mu)
{
	return q->depth < q->limit && bytes <= q->limit_bytes - q->bytes;
}

static size_t remove_items(sl__queue *q, struct sl__queue_item *out, size_t max, uint64_t *first) SL_REQUIRES(q->mu)
{
	size_t n = SL_MIN(max, q->depth), bytes = 0, head = q->head;
	if (first != NULL)
		*first = q->n_out;
	for (size_t i = 0; i < n; i++) {
		out[i] = q->ring[head];
		bytes += out[i].bytes;
		head = head + 1 == q->capacity ? 0 : head + 1;
	}
	q->head = head;
	q->depth -= n;
	q->bytes -= bytes;
	q->n_out += n;
	return n;
}

/* The time at which items go in. Exact for a slow stream; a storm does not pay for the clock on every item. */
static int64_t stamp(sl__queue *q) SL_REQUIRES(q->mu)
{
	if (SL_LIKELY(q->since_pop == EXACT_STAMPS && ++q->unstamped < STAMP_EVERY && q->depth != 0))
		return q->stamp_ns;
	if (q->since_pop < EXACT_STAMPS)
		q->since_pop++;
	q->unstamped = 0;
	return q->stamp_ns = sl__mono_ns(&q->env);
}

static void mark_if_high(sl__queue *q, struct wakes *wakes) SL_REQUIRES(q->mu)
{
	if (q->above || (q->depth < q->high && q->bytes < q->high_bytes))
		return;
	q->above = true;
	q->crossings++;
	wakes->notify = q->notifier_runs;
}

static void mark_if_low(sl__queue *q, struct wakes *wakes) SL_REQUIRES(q->mu)
{
	if (!q->above || q->depth > q->low || q->bytes > q->low_bytes)
		return;
	q->above = false;
	q->crossings++;
	wakes->notify = q->notifier_runs;
}

static size_t put_what_fits(sl__queue *q, const struct sl__queue_item *items, size_t n) SL_REQUIRES(q->mu)
{
	size_t done = 0, tail = q->tail, room = q->limit_bytes - q->bytes;
	int64_t at_ns = stamp(q);
	n = SL_MIN(n, q->limit - q->depth);
	for (; done < n && items[done].bytes <= room; done++) {
		room -= items[done].bytes;
		q->ring[tail] = items[done];
		q->ring[tail].at_ns = at_ns;
		tail = tail + 1 == q->capacity ? 0 : tail + 1;
	}
	q->tail = tail;
	q->depth += done;
	q->bytes = q->limit_bytes - room;
	q->n_in += done;
	return done;
}

/* Give what fits now to who wants it: items go in, or room is reserved for them. */
static void take_in(sl__queue *q, struct intake *in) SL_REQUIRES(q->mu)
{
	if (in->room != NULL) {
		struct sl__queue_room room = {0};
		size_t left = q->limit_bytes - q->bytes, n = SL_MIN(in->n, q->limit - q->depth);
		for (; room.n < n && in->items[room.n].bytes <= left - room.bytes; room.n++)
			room.bytes += in->items[room.n].bytes;
		q->limit -= room.n;
		q->limit_bytes -= room.bytes;
		*in->room = room;
		in->n = room.n > 0 ? 0 : in->n;
		return;
	}
	size_t done = put_what_fits(q, in->items, in->n);
	in->items += done;
	in->n -= done;
}

/* Items that could not go in make what is inside due: the batch cannot grow any more. */
static void found_no_room(sl__queue *q, struct wakes *wakes) SL_REQUIRES(q->mu)
{
	q->flush_seq = q->n_in;
	mark_if_high(q, wakes);
	wake_poppers(q, wakes);
}

/* After items went out, or room was given back: serve the blocked pushers in their order, and let those go that are
 * done. */
static void shrunk(sl__queue *q, struct wakes *wakes) SL_REQUIRES(q->mu)
{
	q->since_pop = 0;
	mark_if_low(q, wakes);
	struct waiter *w;
	while (q->closed == 0 && (w = q->pushers.first) != NULL) {
		take_in(q, w->intake);
		if (w->intake->n > 0) {
			q->flush_seq = q->n_in;
			break;
		}
		unlist(&q->pushers, w);
		add_wake(wakes, w);
	}
	mark_if_high(q, wakes);
	wake_poppers(q, wakes);
}

/* ---- push ---- */

/* Wait for room until in has what it wants, the deadline, or the close. */
static void push_blocking(sl__queue *q, struct intake *in, int64_t timeout_ms, struct wakes *wakes) SL_REQUIRES(q->mu)
{
	if (q->pushers.first == NULL) {
		/* Let others run for a moment: there may be room without a sleep. */
		found_no_room(q, wakes);
		for (int i = 0;
		     i < FULL_YIELDS && q->closed == 0 && q->pushers.first == NULL && !fits(q, in->items->bytes); i++) {
			unlock_and_wake(q, wakes);
			(void)sched_yield();
			sl__lock(&q->mu);
		}
		if (q->closed == 0 && q->pushers.first == NULL)
			take_in(q, in);
	}
	if (in->n == 0 || q->closed != 0)
		return;
	/* Sleep in the line of pushers until it was served, or the deadline, or the end. */
	int64_t deadline_ns = sl__deadline_ns(&q->env, timeout_ms);
	struct waiter spare, *w = get_waiter(q, &spare);
	w->intake = in;
	append_waiter(&q->pushers, w);
	found_no_room(q, wakes);
	send_wakes(q, wakes);
	while (w->listed && q->closed == 0)
		if (!sl__wait(&q->env, &w->cond, &q->mu, deadline_ns))
			break;
	if (w->listed) {
		bool was_first = q->pushers.first == w;
		unlist(&q->pushers, w);
		/* I2: the next in line may have a smaller item. */
		if (was_first && q->closed == 0)
			shrunk(q, wakes);
	}
	put_waiter(q, w);
}

/* Push all of in, dropping the oldest where needed. The callback runs between rounds, without the lock. */
static void push_dropping(sl__queue *q, struct intake *in, struct wakes *wakes) SL_REQUIRES(q->mu)
{
	struct sl__queue_item dropped[32];
	while (in->n > 0 && q->closed == 0) {
		size_t n_dropped = 0;
		uint64_t first = q->n_out;
		for (;;) {
			take_in(q, in);
			if (in->n == 0 || n_dropped == SL_COUNT(dropped))
				break;
			n_dropped += remove_items(q, &dropped[n_dropped], 1, NULL);
		}
		if (n_dropped == 0)
			break;
		q->dropped += n_dropped;
		found_no_room(q, wakes);
		mark_if_low(q, wakes);
		mark_if_high(q, wakes);
		if (q->on_drop == NULL)
			continue;
		unlock_and_wake(q, wakes);
		for (size_t i = 0; i < n_dropped; i++)
			q->on_drop(&dropped[i], first + i, q->ctx);
		sl__lock(&q->mu);
	}
}

/* The single push is what most producers do, and mostly there is room, and no waiter or callback is due. */
int sl__queue_push_item(sl__queue *q, struct sl__queue_item item, int64_t timeout_ms)
{
	size_t pushed;
	sl__lock(&q->mu);
	size_t depth = q->depth + 1, bytes = q->bytes + item.bytes;
	bool quiet = depth < q->wake_at && (q->above || (depth < q->high && bytes < q->high_bytes));
	if (SL_UNLIKELY(!quiet || q->closed != 0 || q->pushers.first != NULL || !fits(q, item.bytes))) {
		sl__unlock(&q->mu);
		return sl__queue_push_many(q, &item, 1, timeout_ms, &pushed);
	}
	item.at_ns = stamp(q);
	q->ring[q->tail] = item;
	q->tail = q->tail + 1 == q->capacity ? 0 : q->tail + 1;
	q->depth = depth;
	q->bytes = bytes;
	q->n_in++;
	sl__unlock(&q->mu);
	return 0;
}

/* Why something found no room. */
static int why_refused(const sl__queue *q, enum sl__queue_overflow overflow, int64_t timeout_ms) SL_REQUIRES(q->mu)
{
	if (q->closed != 0)
		return SL_ECLOSED;
	return overflow == SL__QUEUE_ERROR || timeout_ms == 0 ? SL_EFULL : SL_ETIMEDOUT;
}

/* Push the items before the first one that is too big, by the overflow rule where they do not all fit. What in has left
 * then did not go in. */
static int push_items(sl__queue *q, struct intake *in, enum sl__queue_overflow overflow, int64_t timeout_ms)
{
	struct wakes wakes = {0};
	size_t n = in->n, good = 0;
	while (good < n && in->items[good].bytes <= q->max_bytes)
		good++;
	in->n = good;
	sl__lock(&q->mu);
	if (SL_LIKELY(good > 0 && q->closed == 0 && q->pushers.first == NULL))
		take_in(q, in);
	if (SL_UNLIKELY(in->n > 0 && q->closed == 0)) {
		if (overflow == SL__QUEUE_DROP_OLDEST)
			push_dropping(q, in, &wakes);
		else if (overflow == SL__QUEUE_BLOCK && timeout_ms != 0)
			push_blocking(q, in, timeout_ms, &wakes);
		else
			found_no_room(q, &wakes);
	}
	int rc = 0;
	if (in->n > 0 || SL_UNLIKELY(good < n)) {
		q->refused += in->n > 0 ? in->n : n - good;
		rc = in->n == 0 && q->closed == 0 ? SL_ETOOBIG : why_refused(q, overflow, timeout_ms);
	}
	in->n += n - good;
	mark_if_high(q, &wakes);
	if (q->depth >= q->wake_at)
		wake_poppers(q, &wakes);
	unlock_and_wake(q, &wakes);
	return rc;
}

int sl__queue_push_many(sl__queue *q, const struct sl__queue_item *items, size_t n, int64_t timeout_ms, size_t *pushed)
{
	struct intake in = {.items = items, .n = n};
	int rc = push_items(q, &in, q->overflow, timeout_ms);
	*pushed = n - in.n;
	return rc;
}

int sl__queue_push_waiting(sl__queue *q, const struct sl__queue_item *items, size_t n, int64_t timeout_ms,
			   size_t *pushed)
{
	struct intake in = {.items = items, .n = n};
	int rc = push_items(q, &in, SL__QUEUE_BLOCK, timeout_ms);
	*pushed = n - in.n;
	return rc;
}

int sl__queue_reserve(sl__queue *q, const struct sl__queue_item *items, size_t n, int64_t timeout_ms,
		      struct sl__queue_room *room)
{
	struct wakes wakes = {0};
	struct intake in = {.items = items, .n = n, .room = room};
	assert(n > 0 && q->overflow != SL__QUEUE_DROP_OLDEST);
	*room = (struct sl__queue_room){0};
	if (items->bytes > q->max_bytes)
		return SL_ETOOBIG;
	sl__lock(&q->mu);
	if (q->closed == 0 && q->pushers.first == NULL)
		take_in(q, &in);
	if (in.n > 0 && q->closed == 0) {
		if (q->overflow == SL__QUEUE_BLOCK && timeout_ms != 0)
			push_blocking(q, &in, timeout_ms, &wakes);
		else
			found_no_room(q, &wakes);
	}
	int rc = in.n > 0 ? why_refused(q, q->overflow, timeout_ms) : 0;
	if (rc != 0)
		q->refused += n;
	unlock_and_wake(q, &wakes);
	return rc;
}

int sl__queue_push_reserved(sl__queue *q, const struct sl__queue_item *items, size_t n,
			    const struct sl__queue_room *room)
{
	struct wakes wakes = {0};
	assert(n <= room->n);
	sl__lock(&q->mu);
	q->limit += room->n;
	q->limit_bytes += room->bytes;
	size_t done = n > 0 && q->closed == 0 ? put_what_fits(q, items, n) : 0;
	assert(done == n || q->closed != 0);
	q->refused += n - done;
	if (done < room->n)
		shrunk(q, &wakes);
	else if (q->pushers.first != NULL)
		found_no_room(q, &wakes); /* I2: what has just come is due, too */
	mark_if_high(q, &wakes);
	if (q->depth >= q->wake_at)
		wake_poppers(q, &wakes);
	unlock_and_wake(q, &wakes);
	return done < n ? SL_ECLOSED : 0;
}

/* ---- pop ---- */

/* 0: there is a batch to take now. 1: none yet, *until_ns is when to check again. Else the error to return. */
static int batch_ready(sl__queue *q, const struct waiter *w, int64_t deadline_ns, int64_t *until_ns) SL_REQUIRES(q->mu)
{
	if (q->closed == SL__QUEUE_TAKE_BACK || (q->closed != 0 && q->depth == 0))
		return SL_ECLOSED;
	if (q->depth > 0 && q->depth >= need_of(q, w))
		return 0;
	*until_ns = deadline_ns;
	if (q->depth > 0 && w->linger_ns != SL_FOREVER)
		*until_ns = SL_MIN(deadline_ns, q->ring[q->head].at_ns + w->linger_ns);
	if (*until_ns == SL_FOREVER || sl__mono_ns(&q->env) < *until_ns)
		return 1;
	return q->depth > 0 ? 0 : SL_ETIMEDOUT;
}

/* Sleep until there is a batch to take: 0, or why not. */
static int await_batch(sl__queue *q, size_t max, int64_t linger_ms, int64_t timeout_ms, struct wakes *wakes)
	SL_REQUIRES(q->mu)
{
	int64_t until_ns, deadline_ns = timeout_ms < 0 ? SL_FOREVER : sl__deadline_ns(&q->env, timeout_ms);
	struct waiter spare, *w = get_waiter(q, &spare);
	w->max = max;
	int64_t ns = 0;
	/* A quarter of the range leaves room to add it to a time. */
	w->linger_ns = linger_ms < 0 || __builtin_mul_overflow(linger_ms, (int64_t)1000000, &ns) || ns > SL_FOREVER / 4
			       ? SL_FOREVER
			       : ns;
	w->interrupted = false;
	int rc;
	for (bool again = false;; again = true) {
		if (timeout_ms != 0 && (!again || w->linger_ns == 0)) {
			/* Before a sleep, and before leaving with a small batch: let the producers run while that
			 * brings more. */
			size_t before = 0;
			for (int i = 0;
			     i < GATHER_YIELDS && (i == 0 || q->depth > before) && q->depth < max && !due_at_once(q);
			     i++) {
				before = q->depth;
				unlock_and_wake(q, wakes);
				(void)sched_yield();
				sl__lock(&q->mu);
			}
		}
		rc = batch_ready(q, w, deadline_ns, &until_ns);
		if (rc != 1)
			break;
		if (q->interrupt) {
			q->interrupt = false;
			rc = SL_EAGAIN;
			break;
		}
		w->timed = q->depth > 0;
		append_waiter(&q->poppers, w);
		wake_poppers(q, wakes);
		send_wakes(q, wakes);
		(void)sl__wait(&q->env, &w->cond, &q->mu, until_ns);
		if (w->listed)
			unlist(&q->poppers, w);
		if (w->keeper)
			w->keeper = q->keeper_coming = false;
		q->promised -= w->promised;
		w->promised = 0;
		if (w->interrupted) {
			rc = q->closed == SL__QUEUE_TAKE_BACK || (q->closed != 0 && q->depth == 0) ? SL_ECLOSED
												   : SL_EAGAIN;
			break;
		}
	}
	put_waiter(q, w);
	return rc;
}

int sl__queue_pop_at(sl__queue *q, struct sl__queue_item *out, size_t max, int64_t linger_ms, int64_t timeout_ms,
		     size_t *n, uint64_t *first)
{
	struct wakes wakes = {0};
	*n = 0;
	assert(max > 0);
	sl__lock(&q->mu);
	int rc = 0;
	if (q->depth < max || q->closed != 0)
		rc = await_batch(q, max, linger_ms, timeout_ms, &wakes);
	if (rc == 0)
		*n = remove_items(q, out, max, first);
	shrunk(q, &wakes);
	unlock_and_wake(q, &wakes);
	return rc;
}

size_t sl__queue_take_at(sl__queue *q, struct sl__queue_item *out, size_t max, uint64_t *first)
{
	struct wakes wakes = {0};
	sl__lock(&q->mu);
	size_t n = remove_items(q, out, max, first);
	q->taken += n;
	shrunk(q, &wakes);
	unlock_and_wake(q, &wakes);
	return n;
}

/* ---- the rest ---- */

void sl__queue_flush(sl__queue *q)
{
	struct wakes wakes = {0};
	sl__lock(&q->mu);
	q->flush_seq = q->n_in;
	wake_poppers(q, &wakes);
	unlock_and_wake(q, &wakes);
}

void sl__queue_interrupt(sl__queue *q)
{
	struct wakes wakes = {0};
	sl__lock(&q->mu);
	struct waiter *w = q->poppers.first;
	q->interrupt = w == NULL;
	if (w != NULL) {
		w->interrupted = true;
		wake_popper(q, w, 0, &wakes);
	}
	unlock_and_wake(q, &wakes);
}

void sl__queue_close(sl__queue *q, enum sl__queue_close_mode mode)
{
	struct wakes wakes = {0};
	sl__lock(&q->mu);
	q->closed = SL_MAX(q->closed, mode);
	while (q->poppers.first != NULL)
		wake_popper(q, q->poppers.first, 0, &wakes);
	for (struct waiter *w = q->pushers.first; w != NULL; w = w->next)
		add_wake(&wakes, w);
	unlock_and_wake(q, &wakes);
}

void sl__queue_stats(sl__queue *q, struct sl__queue_stats *out)
{
	sl__lock(&q->mu);
	int64_t age_ns = q->depth > 0 ? sl__mono_ns(&q->env) - q->ring[q->head].at_ns : 0;
	*out = (struct sl__queue_stats){.depth = q->depth,
					.capacity = q->capacity,
					.bytes = q->bytes,
					.oldest_age_ms = age_ns / 1000000,
					.pushed = q->n_in,
					.popped = q->n_out - q->dropped - q->taken,
					.dropped = q->dropped,
					.taken = q->taken,
					.refused = q->refused,
					.blocked_pushers = q->pushers.n,
					.waiting_poppers = q->poppers.n,
					.crossings = q->crossings,
					.above_high = q->above};
	sl__unlock(&q->mu);
}
