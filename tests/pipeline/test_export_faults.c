/* SPDX-License-Identifier: Apache-2.0 */
/* Every I/O call and every allocation of an export fails once: it ends with an error or continues, and a run without
 * faults after it leaves what a run without any leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <time.h>

#include "base/base.h"
#include "export_place.h"
#include "support/budget.h"
#include "support/fault.h"

struct faults {
	struct place place;
	char *wanted;
};

static int open_faults(void **state)
{
	struct faults *f = calloc(1, sizeof(*f));
	struct sl_export_result r;
	char *text = rows_csv(5, 39);
	place_open(&f->place);
	place_write(&f->place, "in.csv", text, strlen(text));
	free(text);
	const struct sl_export_opts opts = place_opts(&f->place, 10);
	assert_int_equal(place_run(&opts, &r, NULL), 0);
	f->wanted = place_show(&f->place);
	*state = f;
	return 0;
}

static int close_faults(void **state)
{
	struct faults *f = *state;
	place_close(&f->place);
	free(f->wanted);
	free(f);
	return 0;
}

static void expect_recovery(const struct faults *f, int64_t at)
{
	struct sl_export_result r;
	struct sl_err err = SL_ERR_INIT;
	const struct sl_export_opts opts = place_opts(&f->place, 10);
	if (place_run(&opts, &r, &err) != 0)
		fail_msg("call %lld, then: %s", (long long)at, err.msg);
	char *now = place_show(&f->place);
	if (strcmp(now, f->wanted) != 0)
		fail_msg("call %lld: is:\n%s\nnot:\n%s", (long long)at, now, f->wanted);
	free(now);
}

static void fail_each_call(struct faults *f, int error, int retries)
{
	struct fault fault;
	struct sl_err err = SL_ERR_INIT;
	struct sl_export_result r;
	int64_t failed = 1, at = 1, refused = 0;
	fault_init(&fault, NULL);
	fault.partial_writes = 1;
	struct sl_env env = fault_env(&fault, NULL);
	for (; failed > 0; at++) {
		struct sl_export_opts opts = place_opts(&f->place, 10);
		opts.env = &env;
		opts.perf.workers = 1;
		opts.perf.retry_attempts = retries;
		place_clear(&f->place);
		fault_arm_io(&fault, at, FAULT_ONCE, error, FAULT_ALL_OPS);
		int rc = place_run(&opts, &r, &err);
		failed = fault_io_failed(&fault);
		fault_disarm(&fault);
		refused += rc != 0;
		assert_int_equal(fault_open_fds(&fault), 0);
		assert_int_equal(fault_live_allocs(&fault), 0);
		expect_recovery(f, at);
	}
	printf("# %lld calls failed, %lld runs ended with an error\n", (long long)at - 2, (long long)refused);
	assert_true(at > 30);
	/* With one attempt a failed step is an error; a second one retries what belongs to a partition. */
	if (retries == 1)
		assert_true(refused > 10);
	else
		assert_in_range(refused, 1, at / 4);
	fault_fini(&fault);
}

static void a_full_disk_at_any_call_leaves_what_the_next_run_completes(void **state)
{
	fail_each_call(*state, ENOSPC, 1);
}

static void an_io_error_at_any_call_leaves_what_the_next_run_completes(void **state)
{
	fail_each_call(*state, EIO, 2);
}

/* Threads allocate in any order, so that the n-th is not always the same; the sweep is bounded by time. */
static void a_failed_allocation_leaves_what_the_next_run_completes(void **state)
{
	struct faults *f = *state;
	struct fault fault;
	struct sl_err err = SL_ERR_INIT;
	struct sl_export_result r;
	time_t end = time(NULL) + (time_t)test_seconds(2);
	int64_t failed = 1, at = 1, step = 1;
	fault_init(&fault, NULL);
	struct sl_env env = fault_env(&fault, NULL);
	for (; failed > 0 && time(NULL) <= end; at += step) {
		struct sl_export_opts opts = place_opts(&f->place, 10);
		opts.env = &env;
		opts.perf.workers = 1;
		place_clear(&f->place);
		fault_arm_mem(&fault, at, FAULT_ONCE);
		int rc = place_run(&opts, &r, &err);
		failed = fault_mem_failed(&fault);
		fault_disarm(&fault);
		if (rc != 0 && rc != SL_ENOMEM)
			fail_msg("allocation %lld: %d: %s", (long long)at, rc, err.msg);
		assert_int_equal(fault_open_fds(&fault), 0);
		assert_int_equal(fault_live_allocs(&fault), 0);
		expect_recovery(f, at);
	}
	printf("# %lld allocations failed\n", (long long)at - 1);
	fault_fini(&fault);
}

#define WITH_FAULTS(test) cmocka_unit_test_setup_teardown(test, open_faults, close_faults)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_FAULTS(a_full_disk_at_any_call_leaves_what_the_next_run_completes),
		WITH_FAULTS(an_io_error_at_any_call_leaves_what_the_next_run_completes),
		WITH_FAULTS(a_failed_allocation_leaves_what_the_next_run_completes),
	};
	return cmocka_run_group_tests_name("export_faults", tests, NULL, NULL);
}
