/* SPDX-License-Identifier: Apache-2.0 */
/* The specification's demo: 2 workers, capacity 1,000, batches of 50, 5,000 items. The sink is slow at first, so that
 * the queue fills and reports HIGH; then it recovers, and everything is written. */
#include <pthread.h>
#include <sluice/coordinator.h>
#include <stdio.h>

struct bar {
	char symbol[8];
	double close;
};

static struct {
	pthread_mutex_t mu;
	pthread_cond_t changed;
	int high, low; /* crossings reported so far */
} marks = {.mu = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Both run on one thread of the coordinator, strictly in turns; here a program would slow its sources down. */
static void on_high(void *ctx)
{
	(void)ctx;
	pthread_mutex_lock(&marks.mu);
	if (marks.high++ == 0)
		printf("backpressure HIGH: producers should slow down\n");
	pthread_cond_broadcast(&marks.changed);
	pthread_mutex_unlock(&marks.mu);
}

static void on_low(void *ctx)
{
	(void)ctx;
	pthread_mutex_lock(&marks.mu);
	if (marks.low++ == 0)
		printf("backpressure recovered\n");
	pthread_mutex_unlock(&marks.mu);
}

/* Nothing is written before the queue has reported HIGH. */
static int write_bars(void *sink, void *lane, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
		      struct sl_err *err)
{
	(void)sink, (void)lane, (void)batch, (void)reply, (void)err;
	pthread_mutex_lock(&marks.mu);
	while (marks.high == 0)
		pthread_cond_wait(&marks.changed, &marks.mu);
	pthread_mutex_unlock(&marks.mu);
	return 0; /* batch->items[0 … n-1] are in the database now */
}

/* What could not be written; a program would give dead_letters instead, and keep it. */
static void on_dead(const struct sl_item *item, const struct sl_err *err, uint32_t attempts, void *ctx)
{
	(void)item, (void)ctx;
	fprintf(stderr, "gave up after %u attempts: %s\n", attempts, err->msg);
}

int main(void)
{
	static const struct sl_sink_ops ops = {.version = SL_SINK_VERSION, .name = "bars", .write = write_bars};
	const sl_sink sink = {.ops = &ops};
	const struct sl_coordinator_opts opts = {
		SL_COORDINATOR_OPTS_INIT,
		.capacity = 1000,
		.workers = 2,
		.batch_size = 50,
		.flush_interval_ms = 250,
		.backpressure = {.on_high = on_high, .on_low = on_low},
		.unwritten = {.on_dead = on_dead},
	};
	struct sl_coordinator_report report = {.struct_size = sizeof(report)};
	struct sl_err err = SL_ERR_INIT;
	sl_coordinator *c;

	if (sl_coordinator_new(&c, &sink, &opts, &err) != 0) {
		fprintf(stderr, "%s\n", err.msg);
		return 1;
	}
	for (int i = 0; i < 5000; i++) {
		struct bar bar = {.symbol = "AAPL", .close = 190 + i % 100 / 100.0};
		if (sl_coordinator_submit(c, &bar, sizeof(bar), SL_UNLIMITED) !=
		    0) /* copied; waits while the queue is full */
			return 1;
	}
	if (sl_coordinator_stop(c, 10000, &report, &err) != 0) /* drains */
		fprintf(stderr, "%s\n", err.msg);
	if (sl_coordinator_free(c) != 0) /* and makes the last callbacks */
		return 1;
	printf("accepted %llu, written %llu, dead %llu\n", (unsigned long long)report.accepted,
	       (unsigned long long)report.written, (unsigned long long)report.dead);
	return err.code != 0;
}
