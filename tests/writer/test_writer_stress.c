/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Producers, a driver with its own threads that completes, fails, throttles, refuses, answers twice and forgets to
 * signal, readers of statistics, and in some runs an error: from a seed, on the real clock. Always: without an error
 * every enqueued block is written exactly once; with one, every block is either written or reported, exactly once;
 * bytes that were handed over are released exactly once; physical bytes are the sum of the successes; first attempts of
 * a shard go out in the order in which a producer enqueued them; the backlog stays within its bound; the counts add up
 * at every moment.
 *
 * SLUICE_WRITER_SEEDS=N runs N seeds, SLUICE_WRITER_SEED=S that one only; else as many as SLUICE_TEST_SECONDS allow.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/budget.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/writer.h>

#define PRODUCERS 4
#define EACH 300
#define SHARDS 9
#define COMPLETERS 3
#define MAX_BLOCK 600
#define LIMIT 4000

/* cmocka's assertions are for its own thread. */
#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                \
			abort();                                                                                       \
		}                                                                                                      \
	} while (0)

struct fate {
	atomic_int accepted, safe, written, unwritten, released;
	size_t len;
	int shard;
};

struct run;
struct block_ctx {
	struct run *run;
	int number;
};

struct run {
	uint64_t seed;
	sl_writer *w;
	struct fate fates[PRODUCERS * EACH];
	struct block_ctx ctxs[PRODUCERS * EACH];
	unsigned fail_share, refuse_share, inside_share, block_share; /* of 256 */
	bool with_error, signals;
	bool twice;               /* completes twice at times: then the threads that do so have to end before free */
	int poison_at, cancel_at; /* a call of schedule_write; 0: never */
	atomic_uint calls;
	atomic_bool stop;
	atomic_uint blocked;              /* a bit for each shard that is not ready */
	int last[PRODUCERS][SHARDS];      /* number of the last first attempt; the loop's alone */
	uint64_t physical, written_bytes; /* the loop's alone */
	struct {
		uint64_t queued, in_flight;
	} reported;
	atomic_int in_callback;
	/* writes that a completer will answer */
	pthread_mutex_t mu;
	pthread_cond_t more;
	struct {
		struct sl_write write;
		int number, call;
	} pending[256];
	int n_pending;
};

static uint64_t mix(uint64_t x)
{
	x += 0x9E3779B97F4A7C15;
	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
	x = (x ^ x >> 27) * 0x94D049BB133111EB;
	return x ^ x >> 31;
}

static uint64_t chance(const struct run *r, uint64_t a, uint64_t b)
{
	return mix(mix(r->seed ^ a * 0x2545F4914F6CDD1D) ^ b);
}

/* ---- the driver ---- */

/* What call number `call` of schedule_write comes to. */
static void answer(struct run *r, struct sl_write write, int number, int call)
{
	struct sl_err err = SL_ERR_INIT;
	bool fails = chance(r, 1, (uint64_t)call) % 256 < r->fail_share;
	if (call == r->poison_at) {
		(void)sl_err_set(&err, SL_EDATA, "poison");
		err.error_class = SL_CLASS_POISON;
	} else if (fails) {
		(void)sl_err_set(&err, SL_EIO, "away");
		err.error_class = chance(r, 2, (uint64_t)call) % 2 ? SL_CLASS_THROTTLED : SL_CLASS_TRANSIENT;
		err.retry_after_ms = 1;
	} else {
		CHECK(atomic_fetch_add(&r->fates[number].safe, 1) == 0);
	}
	CHECK(sl_writer_complete(write, err.code != 0 ? &err : NULL) == 0);
	if (r->twice && call % 5 == 0)
		CHECK(sl_writer_complete(write, NULL) == SL_EDUPLICATE);
}

static void check_order(struct run *r, int number, uint32_t attempt)
{
	int *last = &r->last[number / EACH][r->fates[number].shard];
	if (attempt != 1)
		return;
	CHECK(number + 1 > *last);
	*last = number + 1;
}

static int schedule(void *driver, const struct sl_writer_block *block, uint32_t attempt, struct sl_write write,
		    struct sl_err *err)
{
	struct run *r = driver;
	int number = ((struct block_ctx *)block->ctx)->number, call = (int)atomic_fetch_add(&r->calls, 1) + 1;
	CHECK(block->len == r->fates[number].len);
	CHECK(memcmp(block->bytes, &number, sizeof(number)) == 0);
	check_order(r, number, attempt);
	if (call == r->cancel_at)
		CHECK(sl_writer_cancel(r->w, NULL) == 0);
	uint64_t luck = chance(r, 3, (uint64_t)call) % 256;
	if (luck < r->refuse_share && call != r->poison_at)
		return sl_err_set(err, SL_EAGAIN, "busy");
	if (luck < r->refuse_share + r->inside_share) {
		answer(r, write, number, call);
		return 0;
	}
	pthread_mutex_lock(&r->mu);
	CHECK(r->n_pending < 256);
	r->pending[r->n_pending].write = write;
	r->pending[r->n_pending].number = number;
	r->pending[r->n_pending++].call = call;
	pthread_cond_signal(&r->more);
	pthread_mutex_unlock(&r->mu);
	return 0;
}

static void *completer(void *arg)
{
	struct run *r = arg;
	pthread_mutex_lock(&r->mu);
	for (;;) {
		while (r->n_pending == 0 && !atomic_load(&r->stop))
			pthread_cond_wait(&r->more, &r->mu);
		if (r->n_pending == 0)
			break;
		int i = (int)(mix((uint64_t)r->n_pending) % (uint64_t)r->n_pending); /* in any order */
		__typeof__(r->pending[0]) x = r->pending[i];
		r->pending[i] = r->pending[--r->n_pending];
		pthread_mutex_unlock(&r->mu);
		answer(r, x.write, x.number, x.call);
		pthread_mutex_lock(&r->mu);
	}
	pthread_mutex_unlock(&r->mu);
	return NULL;
}

static bool is_ready(void *driver, const char *key, size_t key_len)
{
	struct run *r = driver;
	CHECK(key_len == 4);
	return (atomic_load(&r->blocked) >> (unsigned)(key[3] - '0') & 1) == 0;
}

/* Shards come and go; the signal is given or forgotten. */
static void *flicker(void *arg)
{
	struct run *r = arg;
	for (uint64_t i = 0; !atomic_load(&r->stop); i++) {
		unsigned shard = (unsigned)(chance(r, 4, i) % SHARDS);
		char key[8];
		(void)snprintf(key, sizeof(key), "sh0%u", shard);
		if (chance(r, 5, i) % 256 < r->block_share) {
			atomic_fetch_or(&r->blocked, 1u << shard);
		} else {
			atomic_store(&r->blocked, 0);
			if (r->signals)
				CHECK(sl_writer_shard_ready(r->w, i % 2 ? key : NULL, 4) == 0);
		}
		struct sl_writer_stats s = {.struct_size = sizeof(s)};
		CHECK(sl_writer_get_stats(r->w, &s) == 0);
		CHECK(s.enqueued == s.written + s.unwritten + s.queued_blocks + s.in_flight_blocks);
		CHECK(s.target_concurrent_writes >= 1 && s.target_concurrent_writes <= s.max_concurrent_writes);
		sched_yield();
	}
	atomic_store(&r->blocked, 0);
	return NULL;
}

/* ---- callbacks ---- */

static void on_metrics(uint64_t queued, uint64_t in_flight, uint64_t buffered, void *ctx)
{
	struct run *r = ctx;
	CHECK(atomic_fetch_add(&r->in_callback, 1) == 0);
	CHECK(buffered == 0 && (queued != r->reported.queued || in_flight != r->reported.in_flight));
	CHECK(queued + in_flight <= 2 * LIMIT);
	r->reported.queued = queued;
	r->reported.in_flight = in_flight;
	CHECK(atomic_fetch_sub(&r->in_callback, 1) == 1);
}

static void on_physical(uint64_t bytes, void *ctx)
{
	((struct run *)ctx)->physical += bytes;
}

static void on_written(const struct sl_writer_block *block, void *ctx)
{
	struct run *r = ctx;
	int number = ((struct block_ctx *)block->ctx)->number;
	r->written_bytes += block->len;
	atomic_fetch_add(&r->fates[number].written, 1);
}

static void on_unwritten(const struct sl_writer_block *block, uint32_t attempts, const struct sl_err *reason, void *ctx)
{
	struct run *r = ctx;
	(void)attempts;
	CHECK(reason->code != 0 && reason->msg[0] != '\0');
	atomic_fetch_add(&r->fates[((struct block_ctx *)block->ctx)->number].unwritten, 1);
}

static void on_release(const struct sl_writer_block *block)
{
	struct block_ctx *c = block->ctx;
	atomic_fetch_add(&c->run->fates[c->number].released, 1);
	free((void *)(uintptr_t)block->bytes);
}

/* ---- producers ---- */

static int enqueue_one(struct run *r, int number)
{
	struct fate *f = &r->fates[number];
	char hash[32];
	f->shard = (int)(chance(r, 6, (uint64_t)number) % SHARDS);
	f->len = sizeof(number) + chance(r, 7, (uint64_t)number) % (MAX_BLOCK - sizeof(number));
	(void)snprintf(hash, sizeof(hash), "sh0%d%06d", f->shard, number);
	char *bytes = calloc(1, f->len);
	CHECK(bytes != NULL);
	memcpy(bytes, &number, sizeof(number));
	r->ctxs[number] = (struct block_ctx){r, number};
	const struct sl_writer_block block = {.hash = hash,
					      .hash_len = strlen(hash),
					      .bytes = bytes,
					      .len = f->len,
					      .release = on_release,
					      .ctx = &r->ctxs[number]};
	atomic_store(&f->accepted, 1);
	int rc = sl_writer_enqueue_block(r->w, &block, NULL);
	if (rc != 0) {
		atomic_store(&f->accepted, 0);
		free(bytes);
	}
	return rc;
}

struct producer {
	struct run *run;
	int index;
	pthread_t thread;
};

static void *produce(void *arg)
{
	struct producer *p = arg;
	struct run *r = p->run;
	for (int i = 0; i < EACH; i++) {
		int rc = sl_writer_wait_for_backpressure_clear(r->w, SL_UNLIMITED, NULL);
		if (rc == 0)
			rc = enqueue_one(r, p->index * EACH + i);
		if (rc == SL_EFULL) {
			i--;
			continue;
		}
		if (rc != 0) {
			CHECK(r->with_error && sl_writer_error(r->w, NULL) == rc);
			break;
		}
	}
	return NULL;
}

/* ---- a run ---- */

static void draw(struct run *r)
{
	r->fail_share = chance(r, 10, 0) % 3 == 0 ? 0 : (unsigned)(chance(r, 10, 1) % 60);
	r->refuse_share = (unsigned)(chance(r, 11, 0) % 20);
	r->inside_share = (unsigned)(chance(r, 12, 0) % 200);
	r->block_share = (unsigned)(chance(r, 13, 0) % 200);
	r->signals = chance(r, 14, 0) % 4 != 0;
	r->twice = chance(r, 17, 0) % 2;
	uint64_t error = chance(r, 15, 0) % 4;
	int at = 1 + (int)(chance(r, 16, 0) % (PRODUCERS * EACH));
	r->poison_at = error == 1 ? at : 0;
	r->cancel_at = error == 2 ? at : 0;
	r->with_error = r->poison_at != 0 || r->cancel_at != 0;
}

static void check_fates(struct run *r, int rc)
{
	uint64_t bytes = 0, accepted = 0;
	for (int i = 0; i < PRODUCERS * EACH; i++) {
		struct fate *f = &r->fates[i];
		CHECK(f->written + f->unwritten == f->accepted);
		CHECK(f->released == f->accepted);
		CHECK(f->safe == f->written); /* what the driver made safe is counted, and nothing else */
		bytes += f->written ? f->len : 0;
		accepted += (uint64_t)f->accepted;
		if (rc == 0)
			CHECK(f->accepted == 1 && f->written == 1);
	}
	struct sl_writer_stats s = {.struct_size = sizeof(s)};
	CHECK(sl_writer_get_stats(r->w, &s) == 0);
	CHECK(s.enqueued == accepted && s.written + s.unwritten == accepted);
	CHECK(s.physical_bytes == bytes && r->physical == bytes && r->written_bytes == bytes);
	CHECK(r->reported.queued == 0 && r->reported.in_flight == 0);
}

static void make_writer(struct run *r)
{
	static const struct sl_writer_driver_ops ops = {.version = SL_WRITER_DRIVER_VERSION,
							.name = "stress",
							.schedule_write = schedule,
							.is_shard_ready = is_ready};
	const struct sl_writer_opts opts = {
		SL_WRITER_OPTS_INIT,
		.max_concurrent_writes = 1 + (int32_t)(chance(r, 20, 0) % 32),
		.backlog_limit_bytes = LIMIT,
		.backlog_limit_blocks = 5 + (int64_t)(chance(r, 21, 0) % 100),
		.max_retry_attempts = SL_UNLIMITED,
		.retry_policy = {.first_ms = 1, .cap_ms = 2},
		.window_ms = 1,
		.cooldown_ms = 1,
		.cooldown_step = 2,
		.on_metrics = on_metrics,
		.handle_physical_bytes = on_physical,
		.on_written = on_written,
		.on_unwritten = on_unwritten,
		.ctx = r,
	};
	CHECK(sl_writer_new(&r->w, &ops, r, &opts, NULL) == 0);
	CHECK(sl_writer_start(r->w, NULL) == 0);
}

static void end_completers(struct run *r, const pthread_t *completers)
{
	pthread_mutex_lock(&r->mu);
	pthread_cond_broadcast(&r->more);
	pthread_mutex_unlock(&r->mu);
	for (int i = 0; i < COMPLETERS; i++)
		CHECK(pthread_join(completers[i], NULL) == 0);
}

static int run_seed(uint64_t seed)
{
	struct run *r = calloc(1, sizeof(*r));
	struct producer producers[PRODUCERS];
	pthread_t completers[COMPLETERS], flickerer;
	CHECK(r != NULL);
	r->seed = seed;
	pthread_mutex_init(&r->mu, NULL);
	pthread_cond_init(&r->more, NULL);
	draw(r);
	make_writer(r);
	for (int i = 0; i < COMPLETERS; i++)
		CHECK(pthread_create(&completers[i], NULL, completer, r) == 0);
	CHECK(pthread_create(&flickerer, NULL, flicker, r) == 0);
	for (int i = 0; i < PRODUCERS; i++) {
		producers[i] = (struct producer){.run = r, .index = i};
		CHECK(pthread_create(&producers[i].thread, NULL, produce, &producers[i]) == 0);
	}
	for (int i = 0; i < PRODUCERS; i++)
		CHECK(pthread_join(producers[i].thread, NULL) == 0);
	CHECK(sl_writer_signal_done(r->w) == 0);
	int rc = sl_writer_join(r->w, SL_UNLIMITED, NULL);
	CHECK(rc == 0 || r->with_error);
	atomic_store(&r->stop, true);
	CHECK(pthread_join(flickerer, NULL) == 0);
	if (r->twice)
		end_completers(r, completers);
	check_fates(r, rc);
	CHECK(sl_writer_free(r->w) == 0); /* though a completer may not have come back from its last call */
	if (!r->twice)
		end_completers(r, completers);
	pthread_mutex_destroy(&r->mu);
	pthread_cond_destroy(&r->more);
	free(r);
	return rc;
}

static void every_block_is_written_or_reported_exactly_once(void **state)
{
	uint64_t only = test_number("SLUICE_WRITER_SEED", 0), seeds = test_number("SLUICE_WRITER_SEEDS", 0);
	double until = seconds_now() + test_seconds(1);
	uint64_t seed = only != 0 ? only : 1;
	int errors = 0, runs = 0;
	(void)state;
	do {
		errors += run_seed(seed) != 0;
		runs++;
		seed++;
	} while (only == 0 && (seeds != 0 ? seed <= seeds : seconds_now() < until));
	printf("# %d runs of %d blocks, %d of them with an error\n", runs, PRODUCERS * EACH, errors);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(every_block_is_written_or_reported_exactly_once)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
