/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A storm for SLUICE_TEST_SECONDS: random shapes of pipelines, steps that fail by lot, stops from other threads and
 * from callbacks, a thread that inspects the statistics; after every run what is committed is a prefix of the stream,
 * and a last run without trouble completes it. On the real clock, so that every wait is a real one.
 */
#include <sched.h>
#include <time.h>

#include "base/base.h"
#include "base/env.h"
#include "pipeline/rig.h"
#include "support/budget.h"

struct storm {
	struct sl__prng prng; /* under the rig's lock */
	uint64_t trouble;     /* one step in this many fails; 0: none */
	atomic_bool watching;
	uint64_t runs, stops, failures, looks;
};

static uint64_t lot(struct rig *r, uint64_t n)
{
	struct storm *s = r->own;
	rig_lock(r);
	uint64_t x = sl__prng_next(&s->prng) % n;
	rig_unlock(r);
	return x;
}

static int trouble(struct rig *r, const struct sl_pipeline_partition *p, struct sl_err *err)
{
	struct storm *s = r->own;
	(void)p;
	for (uint64_t i = lot(r, 4); i > 0; i--)
		sched_yield();
	if (s->trouble == 0 || lot(r, s->trouble) != 0)
		return 0;
	if (lot(r, 20) == 0)
		sl_pipeline_stop(r->p, lot(r, 2) == 0 ? SL_PIPELINE_DRAIN : SL_PIPELINE_NOW);
	return sl_err_set(err, lot(r, 8) == 0 ? SL_EDATA : SL_ETIMEDOUT, "by lot");
}

static void *watch(void *arg)
{
	struct rig *r = arg;
	struct storm *s = r->own;
	struct sl_pipeline_stats stats = {.struct_size = sizeof(stats)};
	while (atomic_load(&s->watching)) {
		if (sl_pipeline_get_stats(r->p, &stats) != 0 || stats.committed > stats.dispatched ||
		    stats.window_used > stats.window || stats.utilisation > 1)
			abort();
		s->looks++;
		if (s->trouble != 0 && lot(r, 300) == 0)
			sl_pipeline_stop(r->p, lot(r, 3) == 0 ? SL_PIPELINE_NOW : SL_PIPELINE_DRAIN);
		sched_yield();
	}
	return NULL;
}

static void shape(struct rig *r)
{
	r->o.workers = (int32_t)(1 + lot(r, 8));
	r->o.queue_size = (int32_t)(1 + lot(r, 6));
	r->o.window = (int32_t)(1 + lot(r, 12));
	r->o.retry_backoff_ms = lot(r, 2) == 0 ? SL_NONE : 1;
	r->o.keep_output = lot(r, 2) == 0 ? SL_ON : SL_OFF;
	r->run = 1 + lot(r, 10);
	((struct storm *)r->own)->trouble = 3 + lot(r, 100);
}

static void run_watched(struct rig *r)
{
	struct storm *s = r->own;
	pthread_t watcher;
	if (r->n_commits > 0) {
		r->o.begin = SL_PIPELINE_AT;
		r->o.first = r->commits[r->n_commits - 1].end + 1;
	}
	rig_start(r);
	atomic_store(&s->watching, true);
	assert_int_equal(pthread_create(&watcher, NULL, watch, r), 0);
	int rc = rig_join(r);
	atomic_store(&s->watching, false);
	pthread_join(watcher, NULL);
	s->runs++;
	s->stops += rc == SL_ECANCELLED;
	s->failures += rc == SL_EDATA || rc == SL_ETIMEDOUT;
	if (rc != 0 && rc != SL_ECANCELLED && rc != SL_EDATA && rc != SL_ETIMEDOUT)
		fail_msg("%s", r->err.msg);
	if (r->n_commits > 0)
		rig_assert_chain(r, 0, r->commits[r->n_commits - 1].end, 10);
}

static void one_stream(struct rig *r)
{
	struct storm *s = r->own;
	r->n_commits = 0;
	r->o.begin = SL_PIPELINE_ANYWHERE;
	r->to = 10 * (1 + lot(r, 200)) - 1;
	for (int i = 0; i < 3; i++) {
		shape(r);
		run_watched(r);
	}
	s->trouble = 0;
	run_watched(r);
	assert_int_equal(r->rc, 0);
	rig_assert_chain(r, 0, r->to, 10);
}

static void a_storm_of_failures_and_stops_leaves_a_prefix_that_the_next_run_completes(void **state)
{
	struct rig *r = *state;
	const char *seed = getenv("SLUICE_TEST_SEED");
	struct storm s = {.prng = {.s = seed != NULL ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL)}};
	struct sl_env real;
	uint64_t streams = 0;
	print_message("# SLUICE_TEST_SEED=%llu\n", (unsigned long long)s.prng.s);
	assert_int_equal(sl__env_init(&real, NULL, NULL), 0);
	r->env.clock = NULL;
	r->own = &s;
	r->on_build = r->on_store = r->on_commit = trouble;
	int64_t end = sl__deadline_ns(&real, (int64_t)(test_seconds(1) * 1000));
	do {
		one_stream(r);
		streams++;
	} while (sl__mono_ns(&real) < end);
	print_message("# %llu streams, %llu runs, %llu stopped, %llu failed, %llu looks\n", (unsigned long long)streams,
		      (unsigned long long)s.runs, (unsigned long long)s.stops, (unsigned long long)s.failures,
		      (unsigned long long)s.looks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_storm_of_failures_and_stops_leaves_a_prefix_that_the_next_run_completes, rig_setup,
			rig_teardown),
	};
	return cmocka_run_group_tests_name("pipeline threads", tests, NULL, NULL);
}
