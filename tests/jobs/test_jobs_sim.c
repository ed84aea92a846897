/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulation of jobs, seed by seed.
 *
 *	SLUICE_SIM_SEEDS=n   so many seeds (default: as many as SLUICE_TEST_SECONDS, default 2, allow)
 *	SLUICE_SIM_FROM=n    the first one (default 1)
 *	SLUICE_SIM_SEED=n    this seed alone, with its trace
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "jobs/sim.h"

/* Seeds that failed once, and what was wrong then. They are run first, always. A change of what the simulation draws
 * makes other runs of them: put the fault back for a moment, and take the first seed that finds it. */
static const uint64_t once_failed[] = {
	76,   /* a lease was given up while a run of its claim had been left to it */
	5,    /* a continuation behind a chain that was not there held its whole batch up for ever */
	237,  /* a claim for some types made the worker forget when a job of others was due */
	224,  /* an attempt that was aborted because its lease could not be renewed must be given back */
	2161, /* a hint that comes while a claim is under way must count */
};

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *s = getenv(name);
	return s != NULL && *s != '\0' ? strtoull(s, NULL, 0) : otherwise;
}

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void run_seed(uint64_t seed, struct sim_report *sum)
{
	struct sim_report r;
	sim_run(&(struct sim_opts){.seed = seed}, &r);
	if (r.failed) {
		print_error("seed %llu: %s\nreplay: SLUICE_SIM_SEED=%llu tests/jobs/test_jobs_sim\n",
			    (unsigned long long)seed, r.why, (unsigned long long)seed);
		fail();
	}
	sum->steps += r.steps;
	sum->jobs += r.jobs;
	sum->completions += r.completions;
	sum->reaped += r.reaped;
	sum->lost_answers += r.lost_answers;
	sum->late_applies += r.late_applies;
	sum->kills += r.kills;
	sum->pauses += r.pauses;
	sum->virtual_ms += r.virtual_ms;
}

static void every_seed_keeps_the_rules(void **state)
{
	(void)state;
	uint64_t most = number("SLUICE_SIM_SEEDS", 0), from = number("SLUICE_SIM_FROM", 1), n = 0;
	const char *seconds = getenv("SLUICE_TEST_SECONDS");
	double until = now_s() + (seconds != NULL ? atof(seconds) : 2.0);
	struct sim_report sum = {0};
	for (; most > 0 ? n < most : n == 0 || now_s() < until; n++)
		run_seed(from + n, &sum);
	printf("# %llu seeds from %llu: %llu jobs, %llu completions, %llu reaped, %llu answers lost, %llu applied "
	       "late, "
	       "%llu kills, %llu pauses, %llu steps, %llu s of virtual time\n",
	       (unsigned long long)n, (unsigned long long)from, (unsigned long long)sum.jobs,
	       (unsigned long long)sum.completions, (unsigned long long)sum.reaped,
	       (unsigned long long)sum.lost_answers, (unsigned long long)sum.late_applies,
	       (unsigned long long)sum.kills, (unsigned long long)sum.pauses, (unsigned long long)sum.steps,
	       (unsigned long long)sum.virtual_ms / 1000);
}

static void seeds_that_failed_once_pass(void **state)
{
	(void)state;
	struct sim_report sum = {0};
	for (size_t i = 0; i < sizeof once_failed / sizeof once_failed[0]; i++)
		run_seed(once_failed[i], &sum);
}

static void the_same_seed_gives_the_same_run(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 5; seed++) {
		struct sim_report a, b;
		sim_run(&(struct sim_opts){.seed = seed}, &a);
		sim_run(&(struct sim_opts){.seed = seed}, &b);
		assert_int_equal(a.steps, b.steps);
		assert_int_equal(a.completions, b.completions);
		assert_int_equal(a.virtual_ms, b.virtual_ms);
	}
}

/* The checks see what they are there for: each broken promise turns a seed red, by one of its rules. */
static void a_store_that_breaks_its_promise_is_found(void **state)
{
	(void)state;
	static const struct {
		enum memstore_break broken;
		const char *name;
	} breaks[] = {{MEMSTORE_NO_FENCE, "no fence"},
		      {MEMSTORE_UNBLOCK_EARLY, "unblock early"},
		      {MEMSTORE_UNBLOCK_ENDED, "unblock ended"},
		      {MEMSTORE_UNBLOCK_NEVER, "unblock never"},
		      {MEMSTORE_TORN_CONTINUE, "torn continue"},
		      {MEMSTORE_REAP_LIVE, "reap live"},
		      {MEMSTORE_CLAIM_TWICE, "claim twice"},
		      {MEMSTORE_LEASE_LOST, "lease lost"},
		      {MEMSTORE_REDRIVE_COMPLETED, "redrive completed"}};
	for (size_t i = 0; i < sizeof breaks / sizeof breaks[0]; i++) {
		struct sim_report r = {0};
		uint64_t seed = 0;
		while (!r.failed && ++seed <= 300)
			sim_run(&(struct sim_opts){.seed = seed, .broken = breaks[i].broken}, &r);
		if (!r.failed)
			fail_msg("300 seeds passed on a store with: %s", breaks[i].name);
		printf("# %s: seed %llu: %s\n", breaks[i].name, (unsigned long long)seed, r.why);
	}
}

static int replay(uint64_t seed)
{
	struct sim_report r;
	sim_run(&(struct sim_opts){.seed = seed, .trace = true}, &r);
	printf("1..1\n%s 1 - seed %llu %s\n", r.failed ? "not ok" : "ok", (unsigned long long)seed, r.why);
	return r.failed;
}

int main(void)
{
	if (getenv("SLUICE_SIM_SEED") != NULL)
		return replay(number("SLUICE_SIM_SEED", 0));
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(seeds_that_failed_once_pass),
		cmocka_unit_test(every_seed_keeps_the_rules),
		cmocka_unit_test(the_same_seed_gives_the_same_run),
		cmocka_unit_test(a_store_that_breaks_its_promise_is_found),
	};
	return cmocka_run_group_tests_name("simulation of jobs", tests, NULL, NULL);
}
