/* SPDX-License-Identifier: Apache-2.0 */
/* Batches that wait for their next try, the earliest first. The room is that of all batches, so a push cannot fail. */
#include "coordinator/coordinator.h"

static void swap(struct sl__heap *h, size_t i, size_t j)
{
	struct sl__batch *b = h->at[i];
	h->at[i] = h->at[j];
	h->at[j] = b;
}

static void rise(struct sl__heap *h, size_t i)
{
	for (; i > 0 && h->at[i]->due_ns < h->at[(i - 1) / 2]->due_ns; i = (i - 1) / 2)
		swap(h, i, (i - 1) / 2);
}

void sl__heap_push(struct sl__heap *h, struct sl__batch *b)
{
	h->at[h->n++] = b;
	h->items += b->n - b->lo;
	rise(h, h->n - 1);
}

static void sink_down(struct sl__heap *h, size_t i)
{
	for (;;) {
		size_t least = i, left = 2 * i + 1, right = left + 1;
		if (left < h->n && h->at[left]->due_ns < h->at[least]->due_ns)
			least = left;
		if (right < h->n && h->at[right]->due_ns < h->at[least]->due_ns)
			least = right;
		if (least == i)
			return;
		swap(h, i, least);
		i = least;
	}
}

struct sl__batch *sl__heap_remove(struct sl__heap *h, size_t i)
{
	struct sl__batch *b = h->at[i];
	h->at[i] = h->at[--h->n];
	h->items -= b->n - b->lo;
	if (i < h->n) {
		rise(h, i);
		sink_down(h, i);
	}
	return b;
}

struct sl__batch *sl__heap_pop(struct sl__heap *h)
{
	return h->n > 0 ? sl__heap_remove(h, 0) : NULL;
}
