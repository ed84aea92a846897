/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every system call and every allocation fails once, and from the Nth on, for every N, while a log is opened, appended
 * to, rotated, marked, sent, archived, recovered and closed. Each time: a clean error, nothing left behind, nothing
 * acknowledged lost, and the log takes records again (tests/support/walmodel.h has the rules).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "world.h"

struct plan {
	const struct scenario *scenario;
	uint64_t seed;
	bool memory;
	int errnum;
	enum fault_mode mode;
	bool partial;
	int64_t n;
};

struct tally {
	uint64_t runs, noticed, usable, poisoned;
};

static struct tally sum;

static void refuse(const struct plan *p, const struct fault *f, const char *what)
{
	fail_msg("%s, seed %llu: %s %lld %s (%s, %s): %s", p->scenario->name, (unsigned long long)p->seed,
		 p->memory ? "allocation" : "call", (long long)p->n, p->mode == FAULT_ONCE ? "fails" : "and on fail",
		 p->memory ? "no memory" : f->failed_op, strerror(p->errnum), what);
}

static void check_error(const struct plan *p, const struct world *x, const struct fault *f)
{
	if (x->rc == 0)
		return;
	sum.noticed++;
	if (strcmp(sl_err_name(x->rc), "EUNKNOWN") == 0)
		refuse(p, f, "not an error code of ours");
	if (x->err.code != x->rc || x->err.msg[0] == '\0')
		refuse(p, f, "an error without its text");
	if (x->rc == SL_ECORRUPT)
		refuse(p, f, "a failure is taken for damage");
}

/* The disk is well again: what does the handle say? */
static void check_handle(const struct plan *p, struct world *x, const struct fault *f)
{
	if (x->w == NULL || p->mode == FAULT_FROM)
		return;
	bool full_disk = !p->memory && p->errnum == ENOSPC && strcmp(f->failed_op, "pwrite") == 0;
	if (world_append(x)) {
		sum.usable++;
	} else if (x->rc == SL_EPOISONED && !full_disk && !p->memory) {
		sum.poisoned++;
	} else if (x->rc != SL_ECLOSED) {
		char text[512];
		(void)snprintf(text, sizeof(text), "the next append says %s", x->err.msg);
		refuse(p, f, text);
	}
}

static void check_leaks(const struct plan *p, const struct world *x, struct fault *f)
{
	if (fault_open_fds(f) != 0 || crashfs_open_files(x->fs) != 0)
		refuse(p, f, "descriptors are left open");
	if (fault_live_allocs(f) != 0)
		refuse(p, f, "memory is left allocated");
	if (x->wrong[0] != '\0')
		refuse(p, f, x->wrong);
}

static void check_log(const struct plan *p, struct world *x, const struct fault *f)
{
	char why[512];
	crashfs_record(x->fs, false);
	struct walmodel_case c = world_case(x, WALMODEL_NEVER - 1);
	c.send = p->n % 5 == 0;
	if (walmodel_verify(&c, x->fs, why) != 0)
		refuse(p, f, why);
}

static void well_again(void *ctx)
{
	fault_disarm(ctx);
}

/* false: there was no Nth call. */
static bool run(const struct plan *p)
{
	struct fault f;
	struct world x;
	world_init(&x, p->seed, NULL, &f);
	/* A sender tries for ever; after an hour the disk is well again. */
	x.env.on_late = well_again;
	x.env.on_late_ctx = &f;
	x.env.late_ns = 3600 * INT64_C(1000000000);
	f.partial_writes = p->partial;
	if (p->memory)
		fault_arm_mem(&f, p->n, p->mode);
	else
		fault_arm_io(&f, p->n, p->mode, p->errnum, FAULT_ALL_OPS);
	p->scenario->run(&x);
	bool hit = fault_io_failed(&f) + fault_mem_failed(&f) > 0;
	check_error(p, &x, &f);
	if (p->mode == FAULT_ONCE) {
		fault_disarm(&f);
		check_handle(p, &x, &f);
	}
	if (x.w != NULL)
		(void)sl_wal_close(x.w, NULL);
	x.w = NULL;
	fault_disarm(&f);
	check_leaks(p, &x, &f);
	crashfs_kill(x.fs);
	walmodel_marks_forgettable(&x.model);
	check_log(p, &x, &f);
	world_fini(&x);
	sum.runs++;
	return hit;
}

static void all_n(struct plan p)
{
	for (p.n = 1; run(&p); p.n++)
		;
}

static void say(const char *what)
{
	printf("# %s: %llu runs, %llu reported the failure, %llu handles stayed usable, %llu were poisoned\n", what,
	       (unsigned long long)sum.runs, (unsigned long long)sum.noticed, (unsigned long long)sum.usable,
	       (unsigned long long)sum.poisoned);
	assert_true(sum.noticed > 0);
	sum = (struct tally){0};
}

static void every_call_fails(enum fault_mode mode, int errnum)
{
	for (size_t i = 0; i < n_scenarios; i++)
		for (uint64_t seed = 1; seed <= (WORLD_SLOW ? 1 : 2); seed++)
			all_n((struct plan){.scenario = &scenarios[i],
					    .seed = seed,
					    .errnum = errnum,
					    .mode = mode,
					    .partial = seed + i % 2 == 2});
	say(strerror(errnum));
}

static void every_call_fails_once_with_an_io_error(void **state)
{
	(void)state;
	every_call_fails(FAULT_ONCE, EIO);
}

static void every_call_fails_once_on_a_full_disk(void **state)
{
	(void)state;
	every_call_fails(FAULT_ONCE, ENOSPC);
}

static void from_every_call_on_all_fail_with_an_io_error(void **state)
{
	(void)state;
	every_call_fails(FAULT_FROM, EIO);
}

static void from_every_call_on_the_disk_is_full(void **state)
{
	(void)state;
	every_call_fails(FAULT_FROM, ENOSPC);
}

static void every_call_lacks_memory_in_the_kernel(void **state)
{
	(void)state;
	every_call_fails(FAULT_ONCE, ENOMEM);
}

static void every_allocation_fails(void **state)
{
	(void)state;
	for (size_t i = 0; i < n_scenarios; i++)
		for (int mode = FAULT_ONCE; mode <= FAULT_FROM; mode++)
			all_n((struct plan){.scenario = &scenarios[i],
					    .seed = 1,
					    .memory = true,
					    .errnum = ENOMEM,
					    .mode = (enum fault_mode)mode});
	say("allocations");
}

/* ---- threads ---- */

int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static int threads_until_failure = -1; /* -1: none fails */

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
	if (threads_until_failure == 0)
		return EAGAIN;
	if (threads_until_failure > 0)
		threads_until_failure--;
	return __real_pthread_create(t, attr, fn, arg);
}

static void a_log_without_its_helper_thread_does_not_open(void **state)
{
	(void)state;
	struct fault f;
	struct world x;
	world_init(&x, 1, NULL, &f);
	x.opts.background = SL_ON;
	x.env.clock.auto_advance = 0;
	threads_until_failure = 0;
	assert_false(world_open(&x));
	threads_until_failure = -1;
	assert_int_equal(x.rc, SL_EAGAIN);
	assert_int_equal(fault_open_fds(&f), 0);
	assert_int_equal(fault_live_allocs(&f), 0);
	assert_true(world_open(&x));
	assert_true(world_append(&x));
	assert_true(world_close(&x));
	world_fini(&x);
}

static void a_sender_without_its_thread_does_not_start_and_the_log_stays_usable(void **state)
{
	(void)state;
	struct fault f;
	struct world x;
	world_init(&x, 1, NULL, &f);
	assert_true(world_open(&x));
	assert_true(world_append(&x));
	threads_until_failure = 0;
	assert_false(world_send(&x));
	threads_until_failure = -1;
	assert_int_equal(x.rc, SL_EAGAIN);
	assert_true(world_append(&x));
	assert_true(world_send(&x));
	assert_true(world_close(&x));
	assert_int_equal(fault_live_allocs(&f), 0);
	world_fini(&x);
}

/* ---- randomness ---- */

static int no_entropy(void *buf, size_t n, void *ctx)
{
	(void)buf;
	(void)n;
	int *left = ctx;
	if ((*left)-- > 0) {
		memset(buf, 0x33 + *left, n);
		return 0;
	}
	return -EIO;
}

static void without_randomness_there_is_a_clean_error(void **state)
{
	(void)state;
	static const struct sl_rand table = {.version = SL_RAND_VERSION, .fill = no_entropy};
	bool failed = true;
	for (int n = 0; failed; n++) {
		struct fault f;
		struct world x;
		int left = n;
		world_init(&x, 1, NULL, &f);
		x.opts.key_file = WORLD_KEY;
		x.use.rand = &table;
		x.use.rand_ctx = &left;
		failed = !world_open(&x) || !world_append(&x) || !world_append(&x);
		if (x.w != NULL)
			assert_true(world_close(&x));
		assert_int_equal(fault_open_fds(&f), 0);
		assert_int_equal(fault_live_allocs(&f), 0);
		char why[512];
		struct walmodel_case c = world_case(&x, WALMODEL_NEVER - 1);
		crashfs_record(x.fs, false);
		if (walmodel_verify(&c, x.fs, why) != 0)
			fail_msg("after %d draws: %s", n, why);
		world_fini(&x);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_call_fails_once_with_an_io_error),
		cmocka_unit_test(every_call_fails_once_on_a_full_disk),
		cmocka_unit_test(from_every_call_on_all_fail_with_an_io_error),
		cmocka_unit_test(from_every_call_on_the_disk_is_full),
		cmocka_unit_test(every_call_lacks_memory_in_the_kernel),
		cmocka_unit_test(every_allocation_fails),
		cmocka_unit_test(a_log_without_its_helper_thread_does_not_open),
		cmocka_unit_test(a_sender_without_its_thread_does_not_start_and_the_log_stays_usable),
		cmocka_unit_test(without_randomness_there_is_a_clean_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
