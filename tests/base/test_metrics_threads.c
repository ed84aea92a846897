/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that count, observe, register, attach and render at once: nothing is lost, every rendering is consistent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/thread.h"
#include "support/budget.h"
#include <sluice/metrics.h>

#define WORKERS 3

struct shared {
	struct sl_env env;
	sl_metrics *m;
	int stop; /* atomic */
};

struct worker {
	struct shared *shared;
	pthread_t thread;
	uint64_t rounds;
	uint64_t sum;
	const char *failed;
};

static double read_rounds(void *ctx)
{
	struct worker *w = ctx;
	return (double)__atomic_load_n(&w->rounds, __ATOMIC_RELAXED);
}

/* One round registers (finding what is there), attaches, adds and observes. */
static const char *one_round(struct worker *w, struct sl__prng *random)
{
	static const char *const parts[] = {"wal", "queue", "sender", "store"};
	const struct sl_metric_label label = {"part", parts[sl__prng_next(random) % SL_COUNT(parts)]};
	uint64_t value = sl__prng_next(random) >> (sl__prng_next(random) & 63) >> 12;
	sl_metrics *m = w->shared->m;
	sl_counter *c = NULL;
	sl_gauge *g = NULL;
	sl_histogram *h = NULL;
	if (sl_metrics_counter(m, "rounds_total", "Rounds.", &label, 1, &c, NULL) != 0 ||
	    sl_metrics_gauge(m, "level", "Level.", NULL, 0, &g, NULL) != 0 ||
	    sl_metrics_histogram(m, "values", "Values.", NULL, 0, SL_UNIT_COUNT, &h, NULL) != 0)
		return "get or create failed";
	if (sl_gauge_attach(g, read_rounds, w, NULL) != 0)
		return "attach failed";
	sl_counter_add(c, 1);
	sl_gauge_add(g, 1);
	sl_gauge_add(g, -1);
	sl_histogram_observe(h, value);
	sl_gauge_detach(g, read_rounds, w);
	w->sum += value;
	(void)__atomic_fetch_add(&w->rounds, 1, __ATOMIC_RELAXED);
	return NULL;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct sl__prng random;
	sl__prng_init(&random, &w->shared->env);
	while (w->failed == NULL && !__atomic_load_n(&w->shared->stop, __ATOMIC_RELAXED))
		w->failed = one_round(w, &random);
	return NULL;
}

static int collect(const char *data, size_t n, void *ctx)
{
	return sl__buf_append(ctx, data, n);
}

/* Buckets never fall, and the last one is the count. */
static void check_consistent(const char *text)
{
	uint64_t last = 0, count = 0;
	for (const char *at = text; (at = strstr(at, "values_bucket{le=\"")) != NULL; at++) {
		uint64_t n = strtoull(strchr(at, ' ') + 1, NULL, 10);
		assert_true(n >= last);
		last = n;
	}
	const char *at = strstr(text, "\nvalues_count ");
	if (at != NULL)
		count = strtoull(at + strlen("\nvalues_count "), NULL, 10);
	assert_int_equal(last, count);
}

static uint64_t counted(sl_metrics *m)
{
	static const char *const parts[] = {"wal", "queue", "sender", "store"};
	uint64_t sum = 0;
	for (size_t i = 0; i < SL_COUNT(parts); i++) {
		const struct sl_metric_label label = {"part", parts[i]};
		sl_counter *c = NULL;
		assert_int_equal(sl_metrics_counter(m, "rounds_total", "Rounds.", &label, 1, &c, NULL), 0);
		sum += sl_counter_value(c);
	}
	return sum;
}

static void nothing_is_lost_and_every_rendering_is_consistent(void **state)
{
	(void)state;
	struct shared shared = {0};
	struct worker workers[WORKERS] = {0};
	struct sl__buf text;
	uint64_t renderings = 0, rounds = 0, sum = 0;
	assert_int_equal(sl__env_init(&shared.env, NULL, NULL), 0);
	assert_int_equal(sl_metrics_new(&shared.m, NULL, NULL), 0);
	sl__buf_init(&text, &shared.env);
	for (int i = 0; i < WORKERS; i++) {
		workers[i].shared = &shared;
		assert_int_equal(sl__thread_start(&workers[i].thread, "metrics-test", work, &workers[i]), 0);
	}
	int64_t until = sl__deadline_ns(&shared.env, (int64_t)(test_seconds(1) * 1000));
	do {
		sl__buf_clear(&text);
		assert_int_equal(sl_metrics_render(shared.m, collect, &text, NULL), 0);
		check_consistent(sl__buf_str(&text));
		renderings++;
	} while (sl__mono_ns(&shared.env) < until);
	__atomic_store_n(&shared.stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < WORKERS; i++) {
		assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
		assert_null(workers[i].failed);
		rounds += workers[i].rounds;
		sum += workers[i].sum;
	}
	printf("# %llu rounds, %llu renderings\n", (unsigned long long)rounds, (unsigned long long)renderings);
	sl_histogram *h = NULL;
	assert_int_equal(sl_metrics_histogram(shared.m, "values", "Values.", NULL, 0, SL_UNIT_COUNT, &h, NULL), 0);
	sl_gauge *g = NULL;
	assert_int_equal(sl_metrics_gauge(shared.m, "level", "Level.", NULL, 0, &g, NULL), 0);
	assert_int_equal(counted(shared.m), rounds);
	assert_int_equal(sl_histogram_count(h), rounds);
	assert_int_equal(sl_histogram_sum(h), sum);
	assert_true(sl_gauge_value(g) == 0);
	sl__buf_fini(&text);
	sl_metrics_free(shared.m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_lost_and_every_rendering_is_consistent),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
