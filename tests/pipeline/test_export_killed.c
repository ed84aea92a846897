/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An export that is killed with SIGKILL, at each named step and at random, as often as one likes: what it has left when
 * it came to its end is what an export without a crash leaves: every file, every row of the catalog, every event.
 *
 * All exports run in children; this process never has a second thread.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/env.h"
#include "pipeline/export_rig.h"
#include "support/budget.h"

static const char *const steps[] = {"built",         "temp_written", "temp_synced",   "renamed",       "folder_synced",
				    "before_commit", "committed",    "before_outbox", "outbox_written"};

#define PARTITIONS 8 /* 17 … 399 by 50 */
#define FIRST 17
#define ROWS 383

/* ---- a child that exports ---- */

struct trap {
	const char *step; /* NULL: none */
	int at;           /* which time, from 1 */
	atomic_int seen;
};

static void on_step(const char *step, uint64_t number, void *ctx)
{
	struct trap *t = ctx;
	(void)number;
	if (t->step != NULL && strcmp(step, t->step) == 0 && atomic_fetch_add(&t->seen, 1) + 1 == t->at)
		kill(getpid(), SIGKILL);
}

/* One run of it, or a backfill of the range; returns its result. */
static int run(const struct sl_export_opts *o, const struct sl_export_range *range, struct sl_err *err)
{
	sl_export *e = NULL;
	if (range == NULL)
		return export_rig_run(o, NULL, err);
	int rc = sl_export_new(&e, o, err);
	rc = rc != 0 ? rc : sl_export_backfill(e, range, 1, NULL, err);
	sl_export_free(e);
	return rc;
}

static pid_t start_one(const struct sl_export_opts *o, const struct sl_export_range *range, const char *step, int at)
{
	fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child != 0)
		return child;
	struct trap trap = {.step = step, .at = at};
	struct sl_export_opts opts = *o;
	struct sl_err err = SL_ERR_INIT;
	opts.on_step = on_step;
	opts.on_step_ctx = &trap;
	int rc = run(&opts, range, &err);
	if (rc != 0)
		fprintf(stderr, "# the export failed: %s\n", err.msg);
	_exit(rc == 0 ? 0 : 1);
}

static pid_t start(const struct sl_export_opts *o, const char *step, int at)
{
	return start_one(o, NULL, step, at);
}

/* true: it was killed; false: it came to its end. Anything else fails the test. */
static bool ended_killed(pid_t child)
{
	int status = 0;
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFSIGNALED(status)) {
		assert_int_equal(WTERMSIG(status), SIGKILL);
		return true;
	}
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	return false;
}

static void complete(const struct sl_export_opts *o)
{
	assert_false(ended_killed(start(o, NULL, 0)));
}

/* What an export without a crash leaves. */
static char *reference(struct export_rig *x)
{
	export_rig_to(x, "reference");
	struct sl_export_opts o = export_rig_opts(x);
	complete(&o);
	char *text = export_rig_look(x, NULL);
	assert_non_null(strstr(text, "checkpoint 399"));
	return text;
}

static void assert_like(const struct export_rig *x, const char *must_be, const char *when)
{
	char *is = export_rig_look(x, NULL);
	export_rig_assert_same(is, must_be, when);
	export_rig_assert_verified(x, true);
	free(is);
}

/* ---- at each step ---- */

/* Killed the at-th time that a step is passed, and completed by another run. false: the step was passed fewer times. */
static bool kill_at(struct export_rig *x, const char *step, int at, const char *must_be)
{
	char when[64];
	(void)snprintf(when, sizeof(when), "killed at %s, time %d", step, at);
	export_rig_to(x, "killed");
	struct sl_export_opts o = export_rig_opts(x);
	bool killed = ended_killed(start(&o, step, at));
	export_rig_assert_committed_files(x);
	export_rig_assert_verified(x, false);
	complete(&o);
	assert_like(x, must_be, when);
	return killed;
}

static void kill_at_every_step(const char *suffix)
{
	struct export_rig x;
	const int times[] = {1, 4, PARTITIONS};
	export_rig_init(&x, suffix, FIRST, ROWS);
	char *must_be = reference(&x);
	int kills = 0;
	for (size_t i = 0; i < SL_COUNT(steps); i++)
		for (size_t k = 0; k < SL_COUNT(times); k++) {
			bool killed = kill_at(&x, steps[i], times[k], must_be);
			/* events go out several at a time: those steps are passed at least once */
			assert_true(killed || (times[k] > 1 && strstr(steps[i], "outbox") != NULL));
			kills += killed;
		}
	print_message("# %d kills\n", kills);
	free(must_be);
	export_rig_fini(&x);
}

static void killed_at_each_step_a_csv_export_ends_as_if_nothing_had_happened(void **state)
{
	(void)state;
	kill_at_every_step(".csv");
}

static void killed_at_each_step_a_json_lines_export_ends_as_if_nothing_had_happened(void **state)
{
	(void)state;
	kill_at_every_step(".jsonl");
}

/* ---- again and again ---- */

static void killed_at_one_step_after_the_other_it_still_ends_as_if_nothing_had_happened(void **state)
{
	struct export_rig x;
	(void)state;
	export_rig_init(&x, ".csv", FIRST, ROWS);
	char *must_be = reference(&x);
	export_rig_to(&x, "killed");
	struct sl_export_opts o = export_rig_opts(&x);
	int kills = 0;
	for (size_t round = 0; round < 2; round++)
		for (size_t i = 0; i < SL_COUNT(steps); i++)
			kills += ended_killed(start(&o, steps[i], 1));
	assert_true(kills >= 9);
	complete(&o);
	assert_like(&x, must_be, "killed again and again");
	free(must_be);
	export_rig_fini(&x);
}

/* Every worker count gives the same bytes, also when they take turns with crashes between them. */
static void the_number_of_workers_may_change_from_crash_to_crash(void **state)
{
	struct export_rig x;
	(void)state;
	export_rig_init(&x, ".jsonl", FIRST, ROWS);
	char *must_be = reference(&x);
	export_rig_to(&x, "killed");
	struct sl_export_opts o = export_rig_opts(&x);
	for (int32_t workers = 1; workers <= 6; workers++) {
		o.perf.workers = workers;
		(void)ended_killed(start(&o, "committed", 1));
	}
	complete(&o);
	assert_like(&x, must_be, "with 1 to 6 workers");
	free(must_be);
	export_rig_fini(&x);
}

/* The last partition was closed short, stored, and not committed; meanwhile the input has grown. */
static void close_short_and_grow(bool killed_at_the_commit)
{
	struct export_rig x;
	export_rig_init(&x, ".csv", FIRST, ROWS);
	char *must_be = reference(&x);
	export_rig_to(&x, "killed");
	struct sl_export_opts o = export_rig_opts(&x);
	export_rig_input(&x, ROWS - 20);
	assert_true(ended_killed(start(&o, "before_commit", PARTITIONS)));
	export_rig_input(&x, ROWS);
	if (killed_at_the_commit)
		assert_true(ended_killed(start(&o, "committed", 1)));
	complete(&o);
	assert_like(&x, must_be, "closed short, then grown");
	free(must_be);
	export_rig_fini(&x);
}

static void a_short_last_partition_that_was_not_committed_leaves_nothing_behind(void **state)
{
	(void)state;
	close_short_and_grow(false);
	close_short_and_grow(true);
}

/* ---- backfills ---- */

#define BACKFILLED 5 /* 17 … 216 by 50 */
#define LATE 217

static const struct sl_export_range below = {FIRST, LATE - 1};

/* The export of what comes late, and an input that has the rest as well. */
static struct sl_export_opts export_late(struct export_rig *x, const char *to)
{
	export_rig_to(x, to);
	struct sl_export_opts o = export_rig_opts(x);
	x->first = LATE;
	export_rig_input(x, FIRST + ROWS - LATE);
	complete(&o);
	x->first = FIRST;
	export_rig_input(x, ROWS);
	return o;
}

static bool backfill_killed(struct export_rig *x, const char *step, int at, const char *must_be)
{
	char when[64];
	(void)snprintf(when, sizeof(when), "backfill killed at %s, time %d", step, at);
	struct sl_export_opts o = export_late(x, "killed");
	bool killed = ended_killed(start_one(&o, &below, step, at));
	export_rig_assert_committed_files(x);
	export_rig_assert_verified(x, false);
	assert_false(ended_killed(start_one(&o, &below, NULL, 0)));
	assert_like(x, must_be, when);
	return killed;
}

static void killed_at_each_step_a_backfill_leaves_no_gap_and_ends_as_if_nothing_had_happened(void **state)
{
	struct export_rig x;
	int kills = 0;
	(void)state;
	export_rig_init(&x, ".csv", FIRST, ROWS);
	struct sl_export_opts o = export_late(&x, "reference");
	assert_false(ended_killed(start_one(&o, &below, NULL, 0)));
	char *must_be = export_rig_look(&x, NULL);
	assert_non_null(strstr(must_be, "start 17 checkpoint 399"));
	for (size_t i = 0; i < SL_COUNT(steps); i++)
		for (int at = 1; at <= BACKFILLED; at++) {
			bool killed = backfill_killed(&x, steps[i], at, must_be);
			assert_true(killed || (at > 1 && strstr(steps[i], "outbox") != NULL));
			kills += killed;
		}
	print_message("# %d kills\n", kills);
	free(must_be);
	export_rig_fini(&x);
}

/* The file of a range that was cut elsewhere is in the way of none. */
static void a_backfill_of_another_range_leaves_nothing_of_one_that_was_killed(void **state)
{
	static const struct sl_export_range less = {FIRST, 90};
	struct export_rig x;
	(void)state;
	export_rig_init(&x, ".csv", FIRST, ROWS);
	struct sl_export_opts o = export_late(&x, "killed");
	assert_true(ended_killed(start_one(&o, &less, "renamed", 2)));
	export_rig_assert_verified(&x, false);
	assert_false(ended_killed(start_one(&o, &below, NULL, 0)));
	export_rig_assert_verified(&x, true);
	export_rig_fini(&x);
}

/* ---- at random ---- */

/* Killed after this many microseconds, unless it has ended before. */
static bool kill_after(pid_t child, uint64_t us)
{
	int fd = (int)syscall(SYS_pidfd_open, child, 0);
	assert_true(fd >= 0);
	struct pollfd look = {.fd = fd, .events = POLLIN};
	struct timespec wait = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
	(void)ppoll(&look, 1, &wait, NULL);
	(void)kill(child, SIGKILL);
	close(fd);
	return ended_killed(child);
}

static void killed_at_random_it_ends_as_if_nothing_had_happened(void **state)
{
	struct export_rig x;
	const char *seed = getenv("SLUICE_TEST_SEED");
	struct sl__prng prng = {.s = seed != NULL ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL)};
	struct sl_env real;
	int streams = 0, kills = 0;
	(void)state;
	print_message("# SLUICE_TEST_SEED=%llu\n", (unsigned long long)prng.s);
	assert_int_equal(sl__env_init(&real, NULL, NULL), 0);
	export_rig_init(&x, ".csv", FIRST, ROWS);
	char *must_be = reference(&x);
	struct sl_export_opts o = export_rig_opts(&x);
	int64_t began = sl__mono_ns(&real);
	export_rig_to(&x, "killed");
	complete(&o);
	uint64_t whole_us = (uint64_t)(sl__mono_ns(&real) - began) / 1000;
	int64_t end = sl__deadline_ns(&real, (int64_t)(test_seconds(2) * 1000));
	do {
		export_rig_to(&x, "killed");
		for (int i = 0; i < 6; i++) {
			kills += kill_after(start(&o, NULL, 0), sl__prng_next(&prng) % (whole_us + whole_us / 4));
			export_rig_assert_committed_files(&x);
			export_rig_assert_verified(&x, false);
		}
		complete(&o);
		assert_like(&x, must_be, "killed at random");
		streams++;
	} while (sl__mono_ns(&real) < end);
	print_message("# %d exports, %d kills at random, one takes %llu ms\n", streams, kills,
		      (unsigned long long)whole_us / 1000);
	free(must_be);
	export_rig_fini(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_at_each_step_a_csv_export_ends_as_if_nothing_had_happened),
		cmocka_unit_test(killed_at_each_step_a_json_lines_export_ends_as_if_nothing_had_happened),
		cmocka_unit_test(killed_at_one_step_after_the_other_it_still_ends_as_if_nothing_had_happened),
		cmocka_unit_test(the_number_of_workers_may_change_from_crash_to_crash),
		cmocka_unit_test(a_short_last_partition_that_was_not_committed_leaves_nothing_behind),
		cmocka_unit_test(killed_at_each_step_a_backfill_leaves_no_gap_and_ends_as_if_nothing_had_happened),
		cmocka_unit_test(a_backfill_of_another_range_leaves_nothing_of_one_that_was_killed),
		cmocka_unit_test(killed_at_random_it_ends_as_if_nothing_had_happened),
	};
	return cmocka_run_group_tests_name("export, killed", tests, NULL, NULL);
}
