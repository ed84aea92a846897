/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storage that is full or fails: the run ends with an error that names the partition, nothing after it is committed,
 * no temporary file stays, and a run with room again ends as if there had always been some. What fails only once is
 * tried again and not seen at all.
 */
#include <errno.h>

#include "base/base.h"
#include "pipeline/export_rig.h"
#include "support/fault.h"

#define FIRST 17
#define ROWS 383
#define PARTITIONS 8

struct storage {
	struct export_rig x;
	struct fault fault;
	struct sl_env env;
	char *must_be;
};

static int setup(void **state)
{
	struct storage *s = calloc(1, sizeof(*s));
	struct sl_err err = SL_ERR_INIT;
	export_rig_init(&s->x, ".csv", FIRST, ROWS);
	export_rig_to(&s->x, "reference");
	struct sl_export_opts o = export_rig_opts(&s->x);
	if (export_rig_run(&o, NULL, &err) != 0)
		fail_msg("%s", err.msg);
	s->must_be = export_rig_look(&s->x, NULL);
	fault_init(&s->fault, NULL);
	s->env = fault_env(&s->fault, NULL);
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	struct storage *s = *state;
	assert_int_equal(fault_open_fds(&s->fault), 0);
	assert_int_equal(fault_live_allocs(&s->fault), 0);
	fault_fini(&s->fault);
	export_rig_fini(&s->x);
	free(s->must_be);
	free(s);
	return 0;
}

static int run(struct storage *s, int32_t attempts, struct sl_err *err)
{
	struct sl_export_opts o = export_rig_opts(&s->x);
	o.env = &s->env;
	o.perf.retry_attempts = attempts;
	return export_rig_run(&o, NULL, err);
}

static void assert_complete(struct storage *s, const char *when)
{
	char *is = export_rig_look(&s->x, NULL);
	export_rig_assert_same(is, s->must_be, when);
	export_rig_assert_verified(&s->x, true);
	free(is);
}

static void assert_no_temporary_files(const struct storage *s)
{
	char *is = export_rig_look(&s->x, NULL);
	if (strstr(is, ".tmp-") != NULL)
		fail_msg("left over:\n%s", is);
	free(is);
}

/* ---- full ---- */

static void full_from(struct storage *s, int64_t n)
{
	struct sl_err err = SL_ERR_INIT;
	char when[64];
	(void)snprintf(when, sizeof(when), "full from write %lld on", (long long)n);
	export_rig_to(&s->x, "full");
	fault_arm_io(&s->fault, n, FAULT_FROM, ENOSPC, FAULT_OP(FAULT_PWRITE));
	assert_int_equal(run(s, 2, &err), SL_ENOSPC);
	fault_disarm(&s->fault);
	assert_no_temporary_files(s);
	assert_true(export_rig_assert_committed_files(&s->x) < PARTITIONS);
	if (run(s, 2, &err) != 0)
		fail_msg("%s: %s", when, err.msg);
	assert_complete(s, when);
}

/* Every partition writes at least once, so that one of them finds no room. */
static void full_storage_ends_the_run_and_one_with_room_ends_as_if_there_had_been_some(void **state)
{
	for (int64_t n = 1; n <= PARTITIONS; n++)
		full_from(*state, n);
}

static void a_full_storage_names_the_partition_and_the_file(void **state)
{
	struct storage *s = *state;
	struct sl_err err = SL_ERR_INIT;
	export_rig_to(&s->x, "full");
	fault_arm_io(&s->fault, 1, FAULT_FROM, ENOSPC, FAULT_OP(FAULT_PWRITE));
	assert_int_equal(run(s, 2, &err), SL_ENOSPC);
	fault_disarm(&s->fault);
	/* the first partition in order is reported, whichever failed first */
	assert_non_null(strstr(err.msg, "partition 17 to 49, attempt 2 of 2: build: write "));
	assert_non_null(strstr(err.msg, "No space left on device"));
	assert_int_equal(export_rig_assert_committed_files(&s->x), 0);
}

/* ---- failing ---- */

/* Each partition makes each of these calls. */
static void a_call_that_fails_once_is_not_seen(void **state)
{
	struct storage *s = *state;
	const unsigned ops[] = {FAULT_OP(FAULT_PWRITE), FAULT_OP(FAULT_DATASYNC), FAULT_OP(FAULT_RENAME)};
	for (size_t i = 0; i < SL_COUNT(ops); i++)
		for (int64_t n = 1; n <= PARTITIONS; n++) {
			struct sl_err err = SL_ERR_INIT;
			export_rig_to(&s->x, "once");
			fault_arm_io(&s->fault, n, FAULT_ONCE, EIO, ops[i]);
			int rc = run(s, 3, &err);
			assert_int_equal(fault_io_failed(&s->fault), 1);
			fault_disarm(&s->fault);
			if (rc != 0)
				fail_msg("%s %lld: %s", s->fault.failed_op, (long long)n, err.msg);
			assert_complete(s, s->fault.failed_op);
		}
}

/* Without retries, and also before the first partition is begun. */
static void any_call_may_fail_and_the_next_run_completes(void **state)
{
	struct storage *s = *state;
	int64_t n = 1, ended = 0;
	for (;; n += 2) {
		struct sl_err err = SL_ERR_INIT;
		export_rig_to(&s->x, "any");
		fault_arm_io(&s->fault, n, FAULT_ONCE, EIO, FAULT_ALL_OPS & ~FAULT_OP(FAULT_CLOSE));
		int rc = run(s, 1, &err);
		bool none_left = fault_io_failed(&s->fault) == 0;
		fault_disarm(&s->fault);
		ended += rc != 0;
		export_rig_assert_committed_files(&s->x);
		if (run(s, 1, &err) != 0)
			fail_msg("after call %lld (%s): %s", (long long)n, s->fault.failed_op, err.msg);
		assert_complete(s, s->fault.failed_op);
		if (none_left)
			break;
	}
	assert_true(ended > 20);
	print_message("# %lld calls failed, %lld runs ended\n", (long long)n, (long long)ended);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(full_storage_ends_the_run_and_one_with_room_ends_as_if_there_had_been_some),
		CASE(a_full_storage_names_the_partition_and_the_file),
		CASE(a_call_that_fails_once_is_not_seen),
		CASE(any_call_may_fail_and_the_next_run_completes),
	};
	return cmocka_run_group_tests_name("export, storage", tests, NULL, NULL);
}
