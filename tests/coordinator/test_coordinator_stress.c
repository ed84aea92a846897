/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ten producers, eight workers and a sink that fails in every way, from a seed: options, faults, batches of submits,
 * flushes, and a stop at some moment. Always: every accepted item ends exactly once, a refused one never; the counts of
 * health add up at every moment, and those of stop's report at the end; items of one key are written in order.
 *
 * SLUICE_STRESS_SEEDS=N runs N seeds, SLUICE_STRESS_SEED=S that one only; else as many as SLUICE_TEST_SECONDS allow.
 */
#include "base/env.h"
#include "coordinator/kit.h"
#include "support/budget.h"
#include "support/fault.h"
#include <sched.h>

#define PRODUCERS 10
#define WORKERS 8
#define EACH 120 /* items of a producer */
#define KEYS 7

/* cmocka's assertions are for its own thread. */
#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                \
			abort();                                                                                       \
		}                                                                                                      \
	} while (0)
#define CHECK_EQUAL(a, b)                                                                                              \
	do {                                                                                                           \
		uint64_t got = (uint64_t)(a), want = (uint64_t)(b);                                                    \
		if (got != want) {                                                                                     \
			fprintf(stderr, "%s:%d: %s is %ju, not %ju (%s)\n", __FILE__, __LINE__, #a, (uintmax_t)got,    \
				(uintmax_t)want, #b);                                                                  \
			abort();                                                                                       \
		}                                                                                                      \
	} while (0)

/* What became of an item. The value is its number, from 1. */
struct fate {
	atomic_uchar accepted, ends, how, dead, dropped, returned, in_target;
};

struct run {
	uint64_t seed;
	sl_coordinator *c;
	struct sl_coordinator_opts opts;
	struct fate fates[PRODUCERS * EACH + 1];
	bool bytes;
	uint32_t fault_share; /* of 256 */
	atomic_uint calls;
	atomic_bool cancelled, stopping;
	atomic_uint last_of_key[PRODUCERS][KEYS]; /* number last written; a key belongs to one producer */
	atomic_uint in_write[PRODUCERS][KEYS];
	atomic_ullong accepted;
	struct fault fault;
	atomic_int live; /* pointers to be freed */
};

static uint64_t mix(uint64_t x)
{
	x += 0x9E3779B97F4A7C15;
	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
	x = (x ^ x >> 27) * 0x94D049BB133111EB;
	return x ^ x >> 31;
}

static uint64_t draw(uint64_t *state)
{
	return mix(++*state * 0x2545F4914F6CDD1D);
}

static unsigned number_of(const struct run *r, const void *data)
{
	uint64_t v;
	if (!r->bytes)
		return (unsigned)*(const uint64_t *)data;
	memcpy(&v, data, sizeof(v));
	return (unsigned)v;
}

static unsigned producer_of(unsigned number)
{
	return (number - 1) / EACH;
}

static unsigned key_of(unsigned number)
{
	return number % KEYS;
}

/* ---- the sink ---- */

static void enter_keys(struct run *r, const struct sl_sink_batch *batch, unsigned delta)
{
	if (r->opts.per_key_order != SL_ON)
		return;
	for (size_t i = 0; i < batch->n; i++) {
		unsigned v = number_of(r, batch->items[i].data);
		atomic_uint *in = &r->in_write[producer_of(v)][key_of(v)];
		unsigned before = atomic_fetch_add(in, delta);
		/* Those of this batch may be several; those of another must not be there. */
		if (delta == 1)
			CHECK(before <= i);
	}
}

static void take(struct run *r, const struct sl_sink_item *item)
{
	unsigned v = number_of(r, item->data);
	CHECK(v >= 1 && v <= PRODUCERS * EACH);
	CHECK_EQUAL(atomic_load(&r->fates[v].ends), 0); /* it is ours as long as it has not ended */
	atomic_fetch_add(&r->fates[v].in_target, 1);
	if (r->opts.per_key_order != SL_ON)
		return;
	unsigned last = atomic_exchange(&r->last_of_key[producer_of(v)][key_of(v)], v);
	if (v <= last)
		print_error("seed %ju: %u was written after %u\n", (uintmax_t)r->seed, v, last);
	CHECK(v > last);
}

/* Items that no target takes. */
static bool is_poison(const struct run *r, unsigned v)
{
	return mix(r->seed ^ v * 31) % 61 == 0;
}

static void hang_until_cancelled(struct run *r)
{
	for (int i = 0; i < 2000 && !atomic_load(&r->cancelled); i++)
		(void)sched_yield();
}

static int stumble(struct run *r, uint64_t dice, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
		   struct sl_err *err)
{
	static const enum sl_err_class classes[] = {SL_CLASS_TRANSIENT, SL_CLASS_TRANSIENT, SL_CLASS_THROTTLED,
						    SL_CLASS_FATAL, SL_CLASS_NONE};
	int rc = kit_fail(err, classes[dice % 5]);
	if (dice % 5 == 2)
		err->retry_after_ms = (int64_t)(dice >> 8) % 3;
	if (dice % 5 == 4) /* transient by its words */
		(void)snprintf(err->msg, sizeof(err->msg), "connection lost");
	if ((dice >> 16) % 4 == 0 && r->opts.per_key_order != SL_ON)
		for (size_t i = 0; i < batch->n; i++)
			if ((mix(dice + i) & 3) == 0) {
				take(r, &batch->items[i]);
				reply->outcomes[i] = SL_SINK_WRITTEN;
			}
	if ((dice >> 20) % 32 == 0)
		hang_until_cancelled(r);
	return rc;
}

static int refuse_poison(struct run *r, uint64_t dice, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
			 struct sl_err *err)
{
	size_t first = SL_SINK_NO_CULPRIT;
	for (size_t i = 0; i < batch->n; i++) {
		if (!is_poison(r, number_of(r, batch->items[i].data)))
			continue;
		first = SL_MIN(first, i);
		if (dice % 3 == 2)
			reply->outcomes[i] = SL_SINK_POISON;
	}
	if (first == SL_SINK_NO_CULPRIT)
		return 0;
	if (dice % 3 == 1)
		reply->culprit = first;
	return kit_fail(err, SL_CLASS_POISON);
}

static int stress_write(void *sink, void *lane, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
			struct sl_err *err)
{
	struct run *r = sink;
	(void)lane;
	uint64_t dice = mix(r->seed ^ (uint64_t)atomic_fetch_add(&r->calls, 1) << 20);
	CHECK(batch->n >= 1 && batch->n <= (size_t)r->opts.batch_size);
	enter_keys(r, batch, 1);
	int rc = (dice & 255) < r->fault_share ? stumble(r, dice >> 8, batch, reply, err)
					       : refuse_poison(r, dice >> 8, batch, reply, err);
	if ((dice >> 40) % 8 == 0)
		(void)sched_yield();
	for (size_t i = 0; i < batch->n && rc == 0; i++)
		take(r, &batch->items[i]);
	enter_keys(r, batch, (unsigned)-1);
	return rc;
}

static int stress_attach(void *sink, void **lane, struct sl_err *err)
{
	struct run *r = sink;
	*lane = r;
	return mix(r->seed + atomic_fetch_add(&r->calls, 1)) % 8 == 0 ? kit_fail(err, SL_CLASS_FATAL) : 0;
}

static void stress_cancel(void *sink)
{
	atomic_store(&((struct run *)sink)->cancelled, true);
}

/* ---- callbacks ---- */

static void on_done(enum sl_item_end end, const struct sl_err *err, void *ctx)
{
	struct fate *f = ctx;
	CHECK((end == SL_ITEM_DEAD) == (err != NULL));
	atomic_fetch_add(&f->ends, 1);
	atomic_store(&f->how, (unsigned char)end);
}

static void on_dead(const struct sl_item *item, const struct sl_err *err, uint32_t attempts, void *ctx)
{
	struct run *r = ctx;
	CHECK(attempts > 0);
	CHECK(err->code != 0);
	atomic_fetch_add(&r->fates[number_of(r, item->data)].dead, 1);
}

static void on_drop(const struct sl_item *item, void *ctx)
{
	struct run *r = ctx;
	atomic_fetch_add(&r->fates[number_of(r, item->data)].dropped, 1);
}

static void free_item(void *item, void *ctx)
{
	struct run *r = ctx;
	atomic_fetch_sub(&r->live, 1);
	free(item);
}

static void on_returned(const struct sl_item *item, void *ctx)
{
	struct run *r = ctx;
	atomic_fetch_add(&r->fates[number_of(r, item->data)].returned, 1);
	if (!r->bytes)
		free_item((void *)(uintptr_t)item->data, r);
}

/* ---- producers ---- */

struct producer {
	struct run *r;
	unsigned index;
	pthread_t thread;
};

static struct sl_item make_item(struct run *r, unsigned v, char *key, uint64_t *bytes)
{
	struct sl_item item = {.data = bytes, .len = 8, .done = on_done, .done_ctx = &r->fates[v]};
	*bytes = v;
	if (!r->bytes) {
		uint64_t *own = malloc(sizeof(*own));
		*own = v;
		item.data = own;
		atomic_fetch_add(&r->live, 1);
	}
	if (r->opts.per_key_order == SL_ON) {
		key[0] = (char)producer_of(v);
		key[1] = (char)key_of(v);
		item.key = key;
		item.key_len = 2;
	}
	return item;
}

static void *produce(void *arg)
{
	struct producer *p = arg;
	struct run *r = p->r;
	uint64_t dice = r->seed * 100 + p->index;
	unsigned next = p->index * EACH + 1, end = next + EACH;
	while (next < end) {
		struct sl_item items[16];
		char keys[16][2];
		uint64_t bytes[16];
		size_t wanted = 1 + draw(&dice) % 16, n = SL_MIN(wanted, end - next), accepted = 0;
		for (size_t i = 0; i < n; i++)
			items[i] = make_item(r, next + (unsigned)i, keys[i], &bytes[i]);
		static const int64_t timeouts[] = {SL_UNLIMITED, SL_UNLIMITED, 0, 1};
		int rc = sl_coordinator_submit_many(r->c, items, n, timeouts[draw(&dice) % 4], &accepted);
		CHECK(rc == 0 || rc == SL_EFULL || rc == SL_ETIMEDOUT || rc == SL_ECLOSED || rc == SL_ENOMEM);
		CHECK(accepted == n || rc != 0);
		for (size_t i = 0; i < n; i++) {
			if (i < accepted)
				atomic_store(&r->fates[next + i].accepted, 1);
			else if (!r->bytes)
				free_item((void *)(uintptr_t)items[i].data, r);
		}
		atomic_fetch_add(&r->accepted, accepted);
		next += (unsigned)n;
		if (draw(&dice) % 32 == 0) {
			rc = sl_coordinator_flush(r->c, 1);
			CHECK(rc == 0 || rc == SL_ETIMEDOUT || rc == SL_ECLOSED);
		}
	}
	return NULL;
}

static void *watch(void *arg)
{
	struct run *r = arg;
	while (!atomic_load(&r->stopping)) {
		struct sl_coordinator_health h = {.struct_size = sizeof(h)};
		CHECK_EQUAL(sl_coordinator_get_health(r->c, &h), 0);
		CHECK_EQUAL(h.accepted, h.written + h.dead_letters + h.dropped + h.returned + h.queue_size +
						h.in_flight + h.retrying);
		CHECK(h.queue_size <= h.capacity);
		(void)sched_yield();
	}
	return NULL;
}

/* ---- a run ---- */

static void choose(struct run *r, uint64_t seed)
{
	uint64_t dice = seed * 7919;
	static const enum sl_overflow overflows[] = {SL_OVERFLOW_BLOCK, SL_OVERFLOW_BLOCK, SL_OVERFLOW_DROP_OLDEST,
						     SL_OVERFLOW_ERROR};
	r->seed = seed;
	r->bytes = draw(&dice) % 2 == 0;
	r->fault_share = (uint32_t)(draw(&dice) % 100);
	r->opts = (struct sl_coordinator_opts){
		SL_COORDINATOR_OPTS_INIT,
		.workers = WORKERS,
		.batch_size = (int32_t)(1 + draw(&dice) % 40),
		.capacity = (int64_t)(2 + draw(&dice) % 100),
		.flush_interval_ms = draw(&dice) % 2 == 0 ? SL_NONE : 1,
		.overflow_strategy = overflows[draw(&dice) % 4],
		.per_key_order = draw(&dice) % 2 == 0 ? SL_ON : SL_OFF,
		.adaptive = draw(&dice) % 2 == 0 ? SL_ON : SL_OFF,
		.retry.batches = (int32_t)(1 + draw(&dice) % 8),
		.retry.policy = {.max_attempts = (int32_t)(1 + draw(&dice) % 6), .first_ms = 1, .cap_ms = 2},
		.breaker.open_ms = 1,
		.breaker.open_max_ms = 3,
		.batch_bytes = draw(&dice) % 2 == 0 ? 64 : SL_UNLIMITED,
		.rate.items = draw(&dice) % 8 == 0 ? 1e6 : 0,
	};
	if (draw(&dice) % 4 == 0) {
		r->opts.workers = 2;
		r->opts.scaling.workers_min = 1;
		r->opts.scaling.workers_max = WORKERS;
		r->opts.scaling.up_ms = 1;
		r->opts.scaling.down_ms = 1;
	}
	if (r->opts.per_key_order == SL_ON && r->opts.overflow_strategy == SL_OVERFLOW_DROP_OLDEST)
		r->opts.overflow_strategy = SL_OVERFLOW_BLOCK;
	if (!r->bytes) {
		r->opts.items.kind = SL_ITEM_POINTERS;
		r->opts.items.free = free_item;
		r->opts.items.ctx = r;
	}
	r->opts.unwritten.on_dead = on_dead;
	r->opts.drop_callback = on_drop;
	r->opts.unwritten.on_returned = on_returned;
	r->opts.unwritten.dead_ctx = r->opts.drop_ctx = r->opts.unwritten.returned_ctx = r;
}

static void check_fates(struct run *r, const struct sl_coordinator_report *report)
{
	uint64_t ends[5] = {0}, dead = 0, dropped = 0, returned = 0;
	for (size_t i = 1; i <= PRODUCERS * EACH; i++) {
		struct fate *f = &r->fates[i];
		CHECK_EQUAL(f->ends, f->accepted);
		ends[f->how]++;
		dead += f->dead;
		dropped += f->dropped;
		returned += f->returned;
		if (f->accepted && f->how == SL_ITEM_WRITTEN)
			CHECK(f->in_target > 0);
		CHECK_EQUAL(f->dead, f->how == SL_ITEM_DEAD);
		CHECK_EQUAL(f->dropped, f->how == SL_ITEM_DROPPED);
		CHECK_EQUAL(f->returned, f->how == SL_ITEM_RETURNED);
	}
	CHECK_EQUAL(report->accepted, r->accepted);
	CHECK_EQUAL(report->accepted,
		    report->written + report->dead + report->dropped + report->returned + report->unknown);
	CHECK_EQUAL(report->unknown, 0);
	CHECK_EQUAL(report->written, ends[SL_ITEM_WRITTEN]);
	CHECK_EQUAL(report->dead, dead);
	CHECK_EQUAL(report->dropped, dropped);
	CHECK_EQUAL(report->returned, returned);
}

static uint64_t run_seed(uint64_t seed)
{
	struct run *r = calloc(1, sizeof(*r));
	static const struct sl_sink_ops ops = {.version = SL_SINK_VERSION,
					       .name = "stress",
					       .attach = stress_attach,
					       .write = stress_write,
					       .cancel = stress_cancel};
	const sl_sink sink = {.ops = &ops, .ctx = r};
	struct producer p[PRODUCERS];
	pthread_t watcher;
	struct sl_coordinator_report report = {.struct_size = sizeof(report)};
	uint64_t dice = seed + 5;
	choose(r, seed);
	fault_init(&r->fault, NULL);
	struct sl_env env = fault_env(&r->fault, NULL);
	r->opts.env = &env;
	CHECK_EQUAL(sl_coordinator_new(&r->c, &sink, &r->opts, NULL), 0);
	if (draw(&dice) % 3 == 0) /* some submit finds no memory */
		fault_arm_mem(&r->fault, (int64_t)(draw(&dice) % 200), FAULT_ONCE);
	CHECK_EQUAL(pthread_create(&watcher, NULL, watch, r), 0);
	for (unsigned i = 0; i < PRODUCERS; i++) {
		p[i] = (struct producer){.r = r, .index = i};
		CHECK_EQUAL(pthread_create(&p[i].thread, NULL, produce, &p[i]), 0);
	}
	bool early = draw(&dice) % 3 == 0;
	for (unsigned i = 0; i < PRODUCERS && !early; i++)
		pthread_join(p[i].thread, NULL);
	if (!early && draw(&dice) % 2 == 0)
		CHECK_EQUAL(sl_coordinator_flush(r->c, SL_UNLIMITED), 0);
	static const int64_t drains[] = {0, 1, 5, SL_UNLIMITED};
	int rc = sl_coordinator_stop(r->c, drains[draw(&dice) % 4], &report, NULL);
	CHECK(rc == 0 || rc == SL_EPENDING);
	CHECK_EQUAL(rc == SL_EPENDING, report.returned > 0);
	for (unsigned i = 0; i < PRODUCERS && early; i++)
		pthread_join(p[i].thread, NULL);
	atomic_store(&r->stopping, true);
	pthread_join(watcher, NULL);
	check_fates(r, &report);
	CHECK_EQUAL(sl_coordinator_free(r->c), 0);
	CHECK_EQUAL(r->live, 0);
	CHECK_EQUAL(fault_live_allocs(&r->fault), 0);
	fault_fini(&r->fault);
	free(r);
	return report.accepted;
}

static void every_accepted_item_ends_exactly_once_whatever_fails(void **state)
{
	const char *one = getenv("SLUICE_STRESS_SEED"), *many = getenv("SLUICE_STRESS_SEEDS");
	(void)state;
	if (one != NULL) {
		(void)run_seed(strtoull(one, NULL, 10));
		return;
	}
	uint64_t limit = many != NULL ? strtoull(many, NULL, 10) : UINT64_MAX, n = 0, items = 0;
	double end = many != NULL ? 1e18 : seconds_now() + test_seconds(2);
	do {
		uint64_t seed = ++n;
		if (getenv("SLUICE_STRESS_TALK") != NULL)
			fprintf(stderr, "seed %ju\n", (uintmax_t)seed);
		items += run_seed(seed);
	} while (n < limit && seconds_now() < end);
	printf("# coordinator stress: %ju seeds, %ju items accepted\n", (uintmax_t)n, (uintmax_t)items);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_accepted_item_ends_exactly_once_whatever_fails),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
