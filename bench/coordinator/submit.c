/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator by itself: P producers submit to W workers that write batches of 500 into a sink that takes all and
 * keeps nothing. Prints items per second per case, the memory above the empty process with a full queue of 10,000 items
 * of 100 bytes, and the CPU time of an idle coordinator. Fails when an item was lost.
 * Usage: sluice-bench-submit [seconds per case] [producers] [workers] [case]
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <sluice/coordinator.h>
#include <sluice/sink.h>

#define MANY 64
#define BYTES 100

struct run {
	sl_coordinator *c;
	size_t many; /* items a call; 1: the plain submit */
	size_t len;  /* of byte items; 0: pointers */
	atomic_bool stop;
	_Atomic uint64_t submitted;
};

static double now(void)
{
	struct timespec ts;
	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static double cpu(void)
{
	struct rusage u;
	(void)getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static void pause_for(double seconds)
{
	struct timespec ts = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
	(void)nanosleep(&ts, NULL);
}

/* Resident bytes now, from /proc. */
static long resident(void)
{
	long pages = 0, ignored;
	FILE *f = fopen("/proc/self/statm", "r");
	if (f == NULL || fscanf(f, "%ld %ld", &ignored, &pages) != 2)
		pages = 0;
	if (f != NULL)
		(void)fclose(f);
	return pages * sysconf(_SC_PAGESIZE);
}

static void no_dead(const struct sl_item *item, const struct sl_err *err, uint32_t attempts, void *ctx)
{
	(void)item;
	(void)err;
	(void)attempts;
	(void)ctx;
	abort();
}

static sl_coordinator *start(const sl_sink *sink, enum sl_item_kind kind, int workers)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_coordinator_opts opts = {SL_COORDINATOR_OPTS_INIT, .workers = workers, .items.kind = kind,
					   .unwritten.on_dead = no_dead};
	sl_coordinator *c;
	if (sl_coordinator_new(&c, sink, &opts, &err) != 0) {
		fprintf(stderr, "%s\n", err.msg);
		exit(1);
	}
	return c;
}

static void *produce(void *arg)
{
	struct run *r = arg;
	char text[BYTES] = "x";
	struct sl_item items[MANY] = {{0}};
	uint64_t n = 0;
	for (size_t i = 0; i < MANY; i++)
		items[i] = (struct sl_item){.data = r->len != 0 ? (void *)text : (void *)(uintptr_t)(i + 1),
					    .len = r->len};
	while (!atomic_load_explicit(&r->stop, memory_order_relaxed)) {
		size_t accepted = 0;
		if (r->many == 1)
			accepted = sl_coordinator_submit(r->c, items[0].data, r->len, SL_UNLIMITED) == 0;
		else if (sl_coordinator_submit_many(r->c, items, r->many, SL_UNLIMITED, &accepted) != 0)
			break;
		n += accepted;
	}
	atomic_fetch_add(&r->submitted, n);
	return NULL;
}

static int run_case(const sl_sink *sink, size_t many, size_t len, double seconds, int producers, int workers)
{
	struct run r = {.many = many, .len = len};
	struct sl_coordinator_report report = {.struct_size = sizeof(report)};
	pthread_t p[64];
	r.c = start(sink, len != 0 ? SL_ITEM_BYTES : SL_ITEM_POINTERS, workers);
	double begin = now(), cpu_before = cpu();
	for (int i = 0; i < producers; i++)
		(void)pthread_create(&p[i], NULL, produce, &r);
	pause_for(seconds);
	atomic_store(&r.stop, true);
	for (int i = 0; i < producers; i++)
		(void)pthread_join(p[i], NULL);
	int rc = sl_coordinator_stop(r.c, SL_UNLIMITED, &report, NULL);
	double took = now() - begin, used = cpu() - cpu_before;
	struct sl_coordinator_health h = {.struct_size = sizeof(h)};
	int health = sl_coordinator_get_health(r.c, &h);
	bool right = rc == 0 && health == 0 && report.written == r.submitted;
	printf("submit P%d W%d, %-8s %2zu a call: %7.2f M items/s, %6.1f ns of CPU an item, %5.1f items a batch %s\n",
	       producers, workers, len != 0 ? "bytes" : "pointers", many, (double)report.written / took / 1e6,
	       used * 1e9 / (double)report.written, (double)report.written / (double)(h.batches != 0 ? h.batches : 1),
	       right ? "" : "WRONG");
	if (sl_coordinator_free(r.c) != 0)
		right = false;
	return right ? 0 : 1;
}

/* ---- memory and idle CPU ---- */

struct gate {
	pthread_mutex_t mu;
	pthread_cond_t open;
	bool shut;
};

static int write_at_the_gate(void *sink, void *lane, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
			     struct sl_err *err)
{
	struct gate *g = sink;
	(void)lane;
	(void)batch;
	(void)reply;
	(void)err;
	(void)pthread_mutex_lock(&g->mu);
	while (g->shut)
		(void)pthread_cond_wait(&g->open, &g->mu);
	(void)pthread_mutex_unlock(&g->mu);
	return 0;
}

/* All workers hold a batch and the queue is full: the most that it ever holds. */
static int measure_memory(int workers)
{
	static const struct sl_sink_ops ops = {.version = SL_SINK_VERSION, .name = "gate", .write = write_at_the_gate};
	struct gate g = {.mu = PTHREAD_MUTEX_INITIALIZER, .open = PTHREAD_COND_INITIALIZER, .shut = true};
	sl_sink sink = {.ops = &ops, .ctx = &g};
	char text[BYTES] = "x";
	long empty = resident();
	sl_coordinator *c = start(&sink, SL_ITEM_BYTES, workers);
	uint64_t n = 0;
	struct sl_coordinator_health h = {.struct_size = sizeof(h)};
	do {
		while (sl_coordinator_submit(c, text, sizeof(text), 0) == 0)
			n++;
		pause_for(0.02);
	} while (sl_coordinator_get_health(c, &h) == 0 && h.queue_size < h.capacity);
	printf("memory, capacity 10,000, W%d, %d-byte items: %.2f MiB above the empty process (%llu items inside)\n",
	       workers, BYTES, (double)(resident() - empty) / 1048576, (unsigned long long)n);
	(void)pthread_mutex_lock(&g.mu);
	g.shut = false;
	(void)pthread_cond_broadcast(&g.open);
	(void)pthread_mutex_unlock(&g.mu);
	return sl_coordinator_stop(c, SL_UNLIMITED, NULL, NULL) != 0 || sl_coordinator_free(c) != 0;
}

static int measure_idle(const sl_sink *sink, double seconds, int workers)
{
	sl_coordinator *c = start(sink, SL_ITEM_POINTERS, workers);
	pause_for(0.1);
	double before = cpu();
	pause_for(seconds);
	printf("idle W%d: %.3f ms of CPU in %.1f s\n", workers, (cpu() - before) * 1000, seconds);
	return sl_coordinator_stop(c, SL_UNLIMITED, NULL, NULL) != 0 || sl_coordinator_free(c) != 0;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1;
	int producers = argc > 2 ? atoi(argv[2]) : 4, workers = argc > 3 ? atoi(argv[3]) : 4;
	int only = argc > 4 ? atoi(argv[4]) : 0;
	sl_sink sink;
	if (seconds <= 0 || producers < 1 || producers > 64 || workers < 1 || workers > 64) {
		fprintf(stderr,
			"usage: sluice-bench-submit [seconds per case] [producers 1-64] [workers 1-64] [case 1-6]\n");
		return 64;
	}
	if (sl_sink_null_open(&sink, NULL, NULL) != 0)
		return 1;
	int bad = 0;
	if (only == 0 || only == 1) /* first: nothing has touched the heap yet */
		bad |= measure_memory(workers);
	if (only == 0 || only == 2)
		bad |= run_case(&sink, 1, 0, seconds, producers, workers);
	if (only == 0 || only == 3)
		bad |= run_case(&sink, MANY, 0, seconds, producers, workers);
	if (only == 0 || only == 4)
		bad |= run_case(&sink, 1, BYTES, seconds, producers, workers);
	if (only == 0 || only == 5)
		bad |= run_case(&sink, MANY, BYTES, seconds, producers, workers);
	if (only == 0 || only == 6)
		bad |= measure_idle(&sink, seconds, workers);
	sl_sink_close(&sink);
	return bad;
}
