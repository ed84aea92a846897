/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch is an ordered array of items and a stack of segments that partition what has not ended:
 *
 *     items     ended │ top          │ below it     │ bottom
 *               0     lo             end            end            n
 *
 * Only the segment on top is ever written, so that items are written in the order in which they lie here: the order
 * within keys survives every split. Items of the segment on top may change places only to bring those to its
 * front that will not be written again; a whole segment that fails by itself may be moved after all others when they
 * share no key.
 */
#include "coordinator/coordinator.h"

void sl__batch_begin(struct sl__batch *b, size_t n)
{
	b->n = b->total = n;
	b->lo = 0;
	b->n_segments = 1;
	b->segments[0] = (struct sl__segment){.end = n};
	b->keyed = true;
	b->letter_tries = 0;
	b->down_to_one = false;
	b->first_failed_ms = b->last_failed_ms = 0;
}

/* Its items are not what they were: another idempotency key. */
static void forget_id(struct sl__segment *s)
{
	s->has_id = false;
	s->tries = 0;
}

void sl__batch_pop(struct sl__batch *b)
{
	b->lo = sl__top(b)->end;
	b->n_segments--;
	b->letter_tries = 0;
}

bool sl__batch_cut(struct sl__batch *b, size_t at)
{
	assert(at > b->lo && at < sl__top(b)->end);
	if (!b->small && b->n_segments == SL__SEGMENTS)
		return false;
	forget_id(sl__top(b));
	struct sl__segment part = *sl__top(b);
	part.end = at;
	b->segments[b->n_segments++] = part;
	return true;
}

void sl__batch_halve(struct sl__batch *b)
{
	size_t n = sl__top(b)->end - b->lo;
	sl__top(b)->retry = (struct sl__retry_state){0};
	sl__top(b)->owes = false;
	bool there_was_room = sl__batch_cut(b, b->lo + n / 2);
	assert(there_was_room); /* culprits take half of the stack at most, and halves log2 of a million */
	(void)there_was_room;
}

static void reverse(struct sl__queue_item *items, size_t lo, size_t hi)
{
	for (; lo + 1 < hi; lo++, hi--) {
		struct sl__queue_item item = items[lo];
		items[lo] = items[hi - 1];
		items[hi - 1] = item;
	}
}

void sl__batch_defer_top(struct sl__batch *b)
{
	struct sl__segment top = *sl__top(b);
	size_t n = top.end - b->lo;
	/* The items: those of the segment swap places with all that follow. */
	reverse(b->items, b->lo, top.end);
	reverse(b->items, top.end, b->n);
	reverse(b->items, b->lo, b->n);
	/* The segments: each of the others begins n earlier. */
	memmove(&b->segments[1], &b->segments[0], (b->n_segments - 1) * sizeof(top));
	for (size_t i = 1; i < b->n_segments; i++)
		b->segments[i].end -= n;
	top.end = b->n;
	b->segments[0] = top;
}

void sl__batch_kill(struct sl__batch *b, size_t n)
{
	if (b->lo + n == sl__top(b)->end) {
		sl__top(b)->dead = true;
		return;
	}
	bool there_was_room = sl__batch_cut(b, b->lo + n);
	assert(there_was_room);
	(void)there_was_room;
	sl__top(b)->dead = true;
}

void sl__batch_isolate(struct sl__batch *b, size_t k)
{
	struct sl__queue_item item = b->items[k];
	memmove(&b->items[b->lo + 1], &b->items[b->lo], (k - b->lo) * sizeof(item));
	b->items[b->lo] = item;
	bool between = k > b->lo && k + 1 < sl__top(b)->end;
	if (between && sl__batch_has_room(b))
		(void)sl__batch_cut(b, k + 1);
	sl__batch_kill(b, 1);
}

static size_t collect(struct sl__queue_item *to, const struct sl__queue_item *from, const uint8_t *outcomes, size_t n,
		      uint8_t which)
{
	size_t found = 0;
	for (size_t i = 0; i < n; i++)
		if (outcomes[i] == which)
			to[found++] = from[i];
	return found;
}

void sl__batch_sort(struct sl__batch *b, const uint8_t *outcomes, struct sl__queue_item *scratch, size_t *written,
		    size_t *poison)
{
	struct sl__queue_item *items = &b->items[b->lo];
	size_t n = sl__top(b)->end - b->lo;
	*written = collect(scratch, items, outcomes, n, SL_SINK_WRITTEN);
	*poison = collect(scratch + *written, items, outcomes, n, SL_SINK_POISON);
	size_t ended = *written + *poison;
	if (ended == 0)
		return;
	(void)collect(scratch + ended, items, outcomes, n, SL_SINK_AS_BATCH);
	memcpy(items, scratch, n * sizeof(*items));
	forget_id(sl__top(b));
}

/* ---- lists ---- */

void sl__batches_append(struct sl__batches *list, struct sl__batch *b)
{
	b->next = NULL;
	if (list->first == NULL)
		list->first = b;
	else
		list->last->next = b;
	list->last = b;
	list->n++;
	list->items += b->n - b->lo;
}

void sl__batches_prepend(struct sl__batches *list, struct sl__batch *b)
{
	b->next = list->first;
	list->first = b;
	if (list->last == NULL)
		list->last = b;
	list->n++;
	list->items += b->n - b->lo;
}

struct sl__batch *sl__batches_pop(struct sl__batches *list)
{
	struct sl__batch *b = list->first;
	if (b == NULL)
		return NULL;
	list->first = b->next;
	if (list->first == NULL)
		list->last = NULL;
	list->n--;
	list->items -= b->n - b->lo;
	return b;
}

/* ---- the heap: batches that wait for their next try, the earliest first ---- */

static void heap_swap(struct sl__heap *h, size_t i, size_t j)
{
	struct sl__batch *b = h->at[i];
	h->at[i] = h->at[j];
	h->at[j] = b;
}

static void rise(struct sl__heap *h, size_t i)
{
	for (; i > 0 && h->at[i]->due_ns < h->at[(i - 1) / 2]->due_ns; i = (i - 1) / 2)
		heap_swap(h, i, (i - 1) / 2);
}

void sl__heap_push(struct sl__heap *h, struct sl__batch *b)
{
	h->at[h->n++] = b;
	h->items += b->n - b->lo;
	rise(h, h->n - 1);
}

struct sl__batch *sl__heap_remove(struct sl__heap *h, size_t i)
{
	struct sl__batch *b = h->at[i];
	h->at[i] = h->at[--h->n];
	h->items -= b->n - b->lo;
	if (i < h->n) {
		/* The last one is here now: it may have to rise or to sink. */
		rise(h, i);
		for (;;) {
			size_t least = i, left = 2 * i + 1, right = left + 1;
			if (left < h->n && h->at[left]->due_ns < h->at[least]->due_ns)
				least = left;
			if (right < h->n && h->at[right]->due_ns < h->at[least]->due_ns)
				least = right;
			if (least == i)
				break;
			heap_swap(h, i, least);
			i = least;
		}
	}
	return b;
}

struct sl__batch *sl__heap_pop(struct sl__heap *h)
{
	return h->n > 0 ? sl__heap_remove(h, 0) : NULL;
}
