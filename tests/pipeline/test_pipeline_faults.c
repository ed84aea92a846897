/* SPDX-License-Identifier: Apache-2.0 */
/* Without memory, without threads, without descriptors: an error, nothing lost, nothing left over. */
#include <errno.h>
#include <sys/resource.h>

#include "base/base.h"
#include "base/thread.h"
#include "pipeline/rig.h"

/* The linker sends the library's calls here (--wrap), so that the Nth start of a thread can fail. */
static int starts_until_failure;
int __real_sl__thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg);
int __wrap_sl__thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg);
int __wrap_sl__thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg)
{
	if (starts_until_failure > 0 && --starts_until_failure == 0)
		return -EAGAIN;
	return __real_sl__thread_start(out, name, fn, arg);
}

/* New and run; what new returned when it failed. */
static int attempt(struct rig *r)
{
	sl_pipeline_free(r->p);
	r->p = NULL;
	r->at_begun = false;
	int rc = sl_pipeline_new(&r->p, &r->o, &r->err);
	if (rc != 0)
		assert_null(r->p);
	else
		rc = sl_pipeline_run(r->p, NULL, &r->err);
	assert_int_equal(r->live_elements + r->live_outputs + r->live_refs + r->live_states, 0);
	return rc;
}

static void assert_prefix(struct rig *r)
{
	if (r->n_commits > 0)
		rig_assert_chain(r, 0, 10 * r->n_commits - 1, 10);
}

static void any_allocation_may_fail_and_the_next_run_completes(void **state)
{
	struct rig *r = *state;
	int64_t n = 1, failed = 0;
	r->to = 99;
	r->run = 3;
	r->o.retry_attempts = 1;
	for (;; n++) {
		r->n_commits = 0;
		r->o.begin = SL_PIPELINE_ANYWHERE;
		fault_arm_mem(&r->fault, n, FAULT_ONCE);
		int rc = attempt(r);
		bool none_left = fault_mem_failed(&r->fault) == 0;
		fault_disarm(&r->fault);
		assert_true(rc == 0 || rc == SL_ENOMEM);
		assert_prefix(r);
		failed += rc != 0;
		if (rc != 0)
			assert_int_equal(rig_resume(r), 0);
		rig_assert_chain(r, 0, 99, 10);
		if (none_left)
			break;
	}
	assert_true(failed > 10);
	print_message("# %lld allocations failed, %lld of them ended the run\n", (long long)n - 1, (long long)failed);
}

static void memory_that_never_comes_back_ends_the_run(void **state)
{
	struct rig *r = *state;
	r->to = 99;
	for (int64_t n = 1; n < 40; n++) {
		r->n_commits = 0;
		fault_arm_mem(&r->fault, n, FAULT_FROM);
		int rc = attempt(r);
		fault_disarm(&r->fault);
		assert_true(rc == 0 || rc == SL_ENOMEM);
		assert_prefix(r);
	}
}

static void a_thread_that_cannot_be_started_ends_the_run_before_it_began(void **state)
{
	struct rig *r = *state;
	for (int n = 1; n <= 6; n++) { /* committer, four workers, dispatcher */
		starts_until_failure = n;
		assert_int_equal(attempt(r), SL_EAGAIN);
		assert_int_equal(starts_until_failure, 0);
		assert_int_equal(r->n_commits, 0);
	}
	starts_until_failure = 0;
	assert_int_equal(attempt(r), 0);
	rig_assert_chain(r, 0, 59, 10);
}

static void without_descriptors_no_handle_is_made(void **state)
{
	struct rig *r = *state;
	struct rlimit limit, none;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	int rc = sl_pipeline_new(&r->p, &r->o, &r->err);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_true(rc != 0);
	assert_int_equal(r->err.sys_errno, EMFILE);
	assert_null(r->p);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(any_allocation_may_fail_and_the_next_run_completes),
		CASE(memory_that_never_comes_back_ends_the_run),
		CASE(a_thread_that_cannot_be_started_ends_the_run_before_it_began),
		CASE(without_descriptors_no_handle_is_made),
	};
	return cmocka_run_group_tests_name("pipeline faults", tests, NULL, NULL);
}
