/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulation of jobs, seed by seed.
 *
 *	SLUICE_SIM_SEEDS=n   the number of seeds (default: as many as SLUICE_TEST_SECONDS, default 2, allow)
 *	SLUICE_SIM_FROM=n    the first one (default 1)
 *	SLUICE_SIM_JOBS=n    the number of processes (default 1)
 *	SLUICE_SIM_SEED=n    this seed alone, with its trace
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jobs/sim.h"
#include "support/budget.h"

#define MOST_JOBS 64

/* Seeds that failed once, and what was wrong then. They are run first, always. A change of what the simulation draws
 * makes other runs of them: put the fault back for a moment, and take the first seed that finds it. */
static const uint64_t once_failed[] = {
	76,     /* a lease was given up while a run of its claim had been left to it */
	5,      /* a continuation blocked by a chain that did not exist held up its whole batch for ever */
	237,    /* a claim for some types made the worker forget when a job of others was due */
	224,    /* an attempt that was aborted because its lease could not be renewed must be given back */
	6179,   /* a schedule that was replaced was moved on by who had read the one before */
	2161,   /* a hint that comes while a claim is under way must count */
	31478,  /* a worker that was still stopped when offers were asked for: the check's fault */
	194438, /* and one that waited after a call had failed: the same */
	867988, /* a worker that was stopped twice counted as running after the shorter stop: the simulation's fault */
	573407, /* a stalled clock was read in an endless loop: the simulation's fault */
	248943, /* a tick came late by the time that a worker's clock had stalled */
};

/* What a share of the seeds came to. */
struct tally {
	uint64_t n, failed; /* failed: the seed; 0: none */
	struct sim_report sum;
};

static void add(struct sim_report *sum, const struct sim_report *r)
{
#define X(name, words) sum->name += r->name;
	SIM_COUNTS(X)
#undef X
}

static void print_tally(const struct tally *t, uint64_t from)
{
	printf("# %llu seeds from %llu", (unsigned long long)t->n, (unsigned long long)from);
	const char *between = ": ";
#define X(name, words)                                                                                                 \
	printf("%s%llu " words, between, (unsigned long long)t->sum.name);                                             \
	between = ", ";
	SIM_COUNTS(X)
#undef X
	printf("\n");
}

static void run_seed(uint64_t seed, struct tally *t)
{
	struct sim_report r;
	sim_run(&(struct sim_opts){.seed = seed}, &r);
	add(&t->sum, &r);
	t->n++;
	if (!r.failed)
		return;
	t->failed = seed;
	memcpy(t->sum.why, r.why, sizeof(r.why));
}

static void judge(const struct tally *t)
{
	if (t->failed == 0)
		return;
	print_error("seed %llu: %s\nreplay: SLUICE_SIM_SEED=%llu tests/jobs/test_jobs_sim\n",
		    (unsigned long long)t->failed, t->sum.why, (unsigned long long)t->failed);
	fail();
}

/* What one of several processes runs. */
struct share {
	uint64_t from, step, most; /* every step-th seed; most 0: until the time is up */
	double until;
};

static void run_share(const struct share *s, struct tally *t)
{
	for (uint64_t seed = s->from; t->failed == 0; seed += s->step) {
		if (s->most > 0 ? t->n == s->most : t->n > 0 && seconds_now() >= s->until)
			break;
		run_seed(seed, t);
	}
}

static int start_share(const struct share *s, pid_t *pid)
{
	int fds[2];
	assert_int_equal(pipe(fds), 0);
	fflush(stdout);
	*pid = fork();
	assert_true(*pid >= 0);
	if (*pid > 0) {
		close(fds[1]);
		return fds[0];
	}
	struct tally t = {0};
	run_share(s, &t);
	_exit(write(fds[1], &t, sizeof(t)) == (ssize_t)sizeof(t) ? 0 : 1);
}

static void collect_share(int fd, pid_t pid, struct tally *sum)
{
	struct tally t = {0};
	int status = 0;
	ssize_t got = read(fd, &t, sizeof(t));
	close(fd);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (got != (ssize_t)sizeof(t) || status != 0)
		fail_msg("a process of the simulation ended with status %d", status);
	add(&sum->sum, &t.sum);
	sum->n += t.n;
	if (t.failed != 0 && (sum->failed == 0 || t.failed < sum->failed)) {
		sum->failed = t.failed;
		memcpy(sum->sum.why, t.sum.why, sizeof(t.sum.why));
	}
}

static void every_seed_keeps_the_rules(void **state)
{
	(void)state;
	uint64_t most = test_number("SLUICE_SIM_SEEDS", 0), from = test_number("SLUICE_SIM_FROM", 1);
	uint64_t jobs = test_number("SLUICE_SIM_JOBS", 1);
	double until = seconds_now() + test_seconds(2);
	struct tally sum = {0};
	int fds[MOST_JOBS];
	pid_t pids[MOST_JOBS];
	jobs = jobs < 1 ? 1 : jobs > MOST_JOBS ? MOST_JOBS : jobs;
	if (most > 0 && jobs > most)
		jobs = most;
	for (uint64_t i = 0; i < jobs; i++) {
		struct share s = {from + i, jobs, most > 0 ? most / jobs + (i < most % jobs) : 0, until};
		if (jobs == 1)
			run_share(&s, &sum);
		else
			fds[i] = start_share(&s, &pids[i]);
	}
	for (uint64_t i = 0; i < jobs && jobs > 1; i++)
		collect_share(fds[i], pids[i], &sum);
	print_tally(&sum, from);
	judge(&sum);
}

static void seeds_that_failed_once_pass(void **state)
{
	(void)state;
	struct tally t = {0};
	for (size_t i = 0; i < sizeof(once_failed) / sizeof(once_failed[0]) && t.failed == 0; i++)
		run_seed(once_failed[i], &t);
	judge(&t);
}

static void the_same_seed_gives_the_same_run(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 16; seed++) {
		struct sim_report a, b;
		sim_run(&(struct sim_opts){.seed = seed}, &a);
		sim_run(&(struct sim_opts){.seed = seed}, &b);
#define X(name, words) assert_int_equal(a.name, b.name);
		SIM_COUNTS(X)
#undef X
	}
}

/* The checks see what they are there for: each broken promise turns a seed red, by one of its rules. */
struct breach {
	const char *name;
	enum memstore_break broken;
	enum sim_wrong wrong;
	uint64_t after; /* seeds that pass, known because it takes many to find this one */
};

static void find_breaches(const struct breach *breaches, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct sim_report r = {0};
		uint64_t seed = breaches[i].after;
		while (!r.failed && ++seed <= breaches[i].after + 300)
			sim_run(&(struct sim_opts){.seed = seed,
						   .broken = breaches[i].broken,
						   .wrong = breaches[i].wrong},
				&r);
		if (!r.failed)
			fail_msg("300 seeds passed with: %s", breaches[i].name);
		printf("# %s: seed %llu: %s\n", breaches[i].name, (unsigned long long)seed, r.why);
	}
}

static void a_store_that_breaks_its_promise_is_found(void **state)
{
	(void)state;
	static const struct breach breaches[] = {{"no fence", MEMSTORE_NO_FENCE, 0, 0},
						 {"unblock early", MEMSTORE_UNBLOCK_EARLY, 0, 0},
						 {"unblock ended", MEMSTORE_UNBLOCK_ENDED, 0, 0},
						 {"unblock never", MEMSTORE_UNBLOCK_NEVER, 0, 0},
						 {"torn continue", MEMSTORE_TORN_CONTINUE, 0, 0},
						 {"reap live", MEMSTORE_REAP_LIVE, 0, 0},
						 {"claim twice", MEMSTORE_CLAIM_TWICE, 0, 0},
						 {"lease lost", MEMSTORE_LEASE_LOST, 0, 0},
						 {"a loss is not charged", MEMSTORE_LOSS_FREE, 0, 0},
						 {"redrive completed", MEMSTORE_REDRIVE_COMPLETED, 0, 0},
						 {"failed under the same fence", MEMSTORE_FAIL_SAME_FENCE, 0, 0},
						 {"settled when failed", MEMSTORE_SETTLE_FAILED, 0, 0},
						 {"handed over and queued", MEMSTORE_OFFER_QUEUED, 0, 0},
						 {"any tick", MEMSTORE_CRON_ANY_TICK, 0, 0},
						 {"a schedule stays", MEMSTORE_CRON_STAYS, 0, 0},
						 {"a tick without a job", MEMSTORE_CRON_NO_JOB, 0, 0},
						 {"events twice", MEMSTORE_EVENTS_TWICE, 0, 0},
						 {"events lost", MEMSTORE_EVENTS_LOST, 0, 0},
						 {"offsets with gaps", MEMSTORE_EVENTS_OFFSETS, 0, 0},
						 {"any CRC", MEMSTORE_EVENTS_ANY_CRC, 0, 0},
						 {"never late", MEMSTORE_EVENTS_NEVER_LATE, 0, 0}};
	find_breaches(breaches, sizeof(breaches) / sizeof(breaches[0]));
}

static void a_worker_that_breaks_a_rule_is_found(void **state)
{
	(void)state;
	static const struct breach breaches[] = {{"the other catch-up", 0, SIM_WRONG_CATCH_UP, 0},
						 {"no worker fires", 0, SIM_WRONG_NO_TURN, 0},
						 {"a minute too far", 0, SIM_WRONG_SPEC, 0},
						 {"settled before the sync", 0, SIM_WRONG_NO_WAIT, 0},
						 {"sent before the sync", 0, SIM_WRONG_EARLY, 0},
						 {"no answer is an answer", 0, SIM_WRONG_TRUST, 0},
						 {"no way back", 0, SIM_WRONG_NO_WAY_BACK, 0},
						 {"on after a conflict", 0, SIM_WRONG_CONTINUE, 0},
						 {"any mark", 0, SIM_WRONG_ANY_MARK, 0},
						 {"only what is pending", 0, SIM_WRONG_NO_PROBE, 1700},
						 {"parked for an outage", 0, SIM_WRONG_PARK, 0},
						 {"no worker recovers", 0, SIM_WRONG_NO_RECOVERY, 0},
						 {"an offer taken twice", 0, SIM_WRONG_OFFER_TWICE, 0},
						 {"an offer left behind", 0, SIM_WRONG_OFFER_LEFT, 0},
						 {"no worker offers", 0, SIM_WRONG_NO_OFFER, 0}};
	find_breaches(breaches, sizeof(breaches) / sizeof(breaches[0]));
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
		return replay(test_number("SLUICE_SIM_SEED", 0));
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(seeds_that_failed_once_pass),
		cmocka_unit_test(every_seed_keeps_the_rules),
		cmocka_unit_test(the_same_seed_gives_the_same_run),
		cmocka_unit_test(a_store_that_breaks_its_promise_is_found),
		cmocka_unit_test(a_worker_that_breaks_a_rule_is_found),
	};
	return cmocka_run_group_tests_name("simulation of jobs", tests, NULL, NULL);
}
