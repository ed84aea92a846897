/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bounded queue as a hand-off: four producers push single items, four consumers pop batches, through 8,192 places.
 * Stated without a peer; it is here so that a change of its wake policy shows.
 */
#include <pthread.h>
#include <stdlib.h>

#include "bench.h"
#include "flow/queue.h"

#define THREADS 4
#define CAPACITY 8192
#define BATCH 64

struct side {
	pthread_t thread;
	sl__queue *q;
	uint64_t end_ns;
	uint64_t items;
};

/* The clock is read only every 256 items: it must not be what is measured. */
static void *produce(void *arg)
{
	struct side *me = arg;
	while (now_ns() < me->end_ns && !bench_stopped)
		for (int i = 0; i < 256; i++)
			if (sl__queue_push(me->q, me, 0) == 0)
				me->items++;
	return NULL;
}

static void *consume(void *arg)
{
	struct side *me = arg;
	struct sl__queue_item batch[BATCH];
	size_t n;
	while (sl__queue_pop(me->q, batch, BATCH, 0, SL_UNLIMITED, &n) == 0)
		me->items += n;
	return NULL;
}

static void start(struct side *sides, sl__queue *q, uint64_t end_ns, void *(*fn)(void *))
{
	for (int i = 0; i < THREADS; i++) {
		sides[i] = (struct side){.q = q, .end_ns = end_ns};
		if (pthread_create(&sides[i].thread, NULL, fn, &sides[i]) != 0)
			abort();
	}
}

static uint64_t join(struct side *sides)
{
	uint64_t items = 0;
	for (int i = 0; i < THREADS; i++) {
		pthread_join(sides[i].thread, NULL);
		items += sides[i].items;
	}
	return items;
}

/* Items per second through the queue, or a negative value when an item was lost or made up. */
static double hand_off(int slice_ms)
{
	struct side producers[THREADS], consumers[THREADS];
	struct sl__queue_opts opts = {.capacity = CAPACITY};
	sl__queue *q = NULL;
	if (sl__queue_new(&q, &opts, NULL) != 0)
		return -1;
	uint64_t begin = now_ns(), end = begin + (uint64_t)slice_ms * 1000000U;
	start(consumers, q, end, consume);
	start(producers, q, end, produce);
	uint64_t pushed = join(producers);
	sl__queue_close(q, SL__QUEUE_DRAIN);
	uint64_t popped = join(consumers);
	double seconds = (double)(now_ns() - begin) / 1e9;
	sl__queue_free(q);
	return pushed == popped ? (double)popped / seconds : -1;
}

void row_queue(struct report *r, const struct settings *s)
{
	struct line l = {.row = "queue", .unit = "M items/s", .against = "-"};
	double rates[MAX_ROUNDS];
	for (int i = 0; i < s->rounds; i++)
		if ((rates[i] = hand_off(s->slice_ms)) < 0) {
			fprintf(r->details, "\nqueue failed\n");
			return;
		}
	l.ours_rate = median(rates, s->rounds);
	l.value = l.ours_rate / 1e6;
	(void)snprintf(l.work, sizeof(l.work), "queue, 4 producers, 4 consumers");
	format_rate(l.ours, sizeof(l.ours), l.ours_rate);
	report_line(r, &l);
}
