/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue by itself: P producers push pointers (one by one, or N at a time), C consumers pop batches and add them up.
 * Prints items per second per case, and fails when an item was lost or doubled.
 * Usage: bench_queue [seconds per case] [producers] [consumers]
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/thread.h"
#include "flow/queue.h"

#define BATCH 500

struct run {
	sl__queue *q;
	size_t push; /* items a call */
	int64_t linger_ms;
	atomic_bool stop;
	_Atomic uint64_t in, in_sum, out, out_sum, pops;
};

static void *produce(void *arg)
{
	struct run *r = arg;
	struct sl__queue_item items[64] = {{0}};
	uint64_t n = 0, sum = 0;
	while (!atomic_load_explicit(&r->stop, memory_order_relaxed)) {
		size_t pushed;
		for (size_t i = 0; i < r->push; i++)
			items[i].ptr = (void *)(uintptr_t)(n + i + 1);
		if (sl__queue_push_many(r->q, items, r->push, SL_UNLIMITED, &pushed) != 0)
			break;
		for (size_t i = 0; i < pushed; i++)
			sum += ++n;
	}
	atomic_fetch_add(&r->in, n);
	atomic_fetch_add(&r->in_sum, sum);
	return NULL;
}

static void *consume(void *arg)
{
	struct run *r = arg;
	struct sl__queue_item batch[BATCH];
	uint64_t out = 0, sum = 0, pops = 0;
	size_t n;
	while (sl__queue_pop(r->q, batch, BATCH, r->linger_ms, SL_UNLIMITED, &n) == 0) {
		for (size_t i = 0; i < n; i++)
			sum += (uintptr_t)batch[i].ptr;
		out += n;
		pops++;
	}
	atomic_fetch_add(&r->out, out);
	atomic_fetch_add(&r->out_sum, sum);
	atomic_fetch_add(&r->pops, pops);
	return NULL;
}

static double now(void)
{
	struct timespec ts;
	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static int run_case(size_t push, int64_t linger_ms, double seconds, int producers, int consumers)
{
	struct run r = {.push = push, .linger_ms = linger_ms};
	struct sl__queue_opts opts = {.capacity = 10000};
	pthread_t p[64], c[64];
	if (sl__queue_new(&r.q, &opts, NULL) != 0)
		return 1;
	double start = now();
	for (int i = 0; i < consumers; i++)
		(void)pthread_create(&c[i], NULL, consume, &r);
	for (int i = 0; i < producers; i++)
		(void)pthread_create(&p[i], NULL, produce, &r);
	struct timespec ts = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
	(void)nanosleep(&ts, NULL);
	atomic_store(&r.stop, true);
	for (int i = 0; i < producers; i++)
		(void)pthread_join(p[i], NULL);
	sl__queue_close(r.q, SL__QUEUE_DRAIN);
	for (int i = 0; i < consumers; i++)
		(void)pthread_join(c[i], NULL);
	double took = now() - start;
	bool right = r.in == r.out && r.in_sum == r.out_sum;
	printf("queue P%d C%d push %-2zu pop %d linger %-3lld ms: %7.2f M items/s, %5.1f items a pop %s\n", producers,
	       consumers, push, BATCH, (long long)linger_ms, (double)r.out / took / 1e6,
	       (double)r.out / (double)(r.pops != 0 ? r.pops : 1), right ? "" : "WRONG");
	sl__queue_free(r.q);
	return right ? 0 : 1;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1;
	int producers = argc > 2 ? atoi(argv[2]) : 4, consumers = argc > 3 ? atoi(argv[3]) : 4;
	if (seconds <= 0 || producers < 1 || producers > 64 || consumers < 1 || consumers > 64) {
		fprintf(stderr, "usage: bench_queue [seconds per case] [producers 1-64] [consumers 1-64]\n");
		return 64;
	}
	int bad = 0;
	bad |= run_case(1, 250, seconds, producers, consumers);
	bad |= run_case(1, 0, seconds, producers, consumers);
	bad |= run_case(64, 250, seconds, producers, consumers);
	bad |= run_case(64, 0, seconds, producers, consumers);
	return bad;
}
