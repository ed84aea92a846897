/* SPDX-License-Identifier: Apache-2.0 */
/* A create without memory, with a repository that fails at every single call: no snapshot, or a whole one. */
#include <unistd.h>

#include "backup/bad_driver.h"
#include "backup/create_kit.h"
#include "backup/shelf.h"
#include "support/budget.h"
#include "support/fault.h"

/* A tree that needs each kind of memory: items, links, attributes, extents, several blocks. */
static void small_tree(struct ck *k)
{
	char one[1024], two[1024];
	ck_mkdir(k, "d");
	ck_text(k, "d/a", "1");
	assert_int_equal(link(ck_path(k, "d/a", one), ck_path(k, "d/b", two)), 0);
	ck_write_seed(k, "big", 700000, 1);
	assert_int_equal(symlink("d", ck_path(k, "link", one)), 0);
	ck_text(k, "sparse", "x");
	assert_int_equal(truncate(ck_path(k, "sparse", one), 1 << 20), 0);
}

static int count_snapshot(const struct sl_backup_snapshot *s, void *ctx)
{
	(void)s;
	(*(int *)ctx)++;
	return 0;
}

static int snapshots(struct ck *k)
{
	int n = 0;
	assert_int_equal(sl_backup_list(k->b, count_snapshot, NULL, &n, NULL), 0);
	return n;
}

/* The kit's repository in memory instead of in its folder, wrapped in a driver that can fail. */
static void use_memory(struct ck *k, struct shelf *mem, struct bad_driver *bad, sl_driver *handle)
{
	sl_backup_close(k->b);
	k->b = NULL;
	shelf_init(mem);
	sl_driver under = shelf_driver(mem);
	bad_driver_init(bad, &under, 1);
	*handle = bad_driver_handle(bad);
	k->opts.retry_first_ms = 1;
	k->opts.max_retry_attempts = 1;
	assert_int_equal(sl_backup_init(handle, &k->opts, &k->err), 0);
	assert_int_equal(sl_backup_open(&k->b, handle, &k->opts, &k->err), 0);
}

/* Each time from the same state. */
static int64_t fail_each(struct ck *k, struct fault *f, struct shelf *mem)
{
	struct shelf before;
	int64_t n = 1, failed = 1;
	int had = snapshots(k);
	shelf_init(&before);
	shelf_copy(&before, mem);
	ck_create_ok(k);
	const struct sl_backup_created whole = k->made;
	for (double end = seconds_now() + test_seconds(3); failed != 0 && seconds_now() < end; n++) {
		shelf_copy(mem, &before);
		int64_t live = fault_live_allocs(f);
		fault_arm_mem(f, n, FAULT_ONCE);
		int rc = ck_create(k);
		fault_disarm(f);
		failed = fault_mem_failed(f);
		assert_int_equal(fault_live_allocs(f), live);
		assert_true(rc == 0 || rc == SL_ENOMEM);
		assert_int_equal(snapshots(k), had + (rc == 0));
		if (rc == 0) { /* then nothing is missing: a name of a file is a link to it still */
			assert_int_equal(k->made.entries, whole.entries);
			assert_int_equal(k->made.files, whole.files);
			assert_int_equal(k->made.problems, 0);
		}
		if (n % 16 == 0)
			ck_check(k);
	}
	assert_true(failed != 0 || snapshots(k) == had + 1);
	shelf_copy(mem, &before);
	shelf_fini(&before);
	return n - 1 - (failed == 0);
}

static void every_allocation_may_fail(void **state)
{
	(void)state;
	struct ck k;
	struct fault f;
	struct shelf mem;
	struct bad_driver bad;
	sl_driver handle;
	const struct sl_env beneath = ck_env();
	fault_init(&f, &beneath);
	struct sl_env env = fault_env(&f, &beneath);
	ck_begin(&k, &env);
	use_memory(&k, &mem, &bad, &handle);
	small_tree(&k);
	print_message("# first: %d allocations failed\n", (int)fail_each(&k, &f, &mem));
	ck_create_ok(&k);
	print_message("# unchanged: %d allocations failed\n", (int)fail_each(&k, &f, &mem));
	k.create.force = SL_ON;
	print_message("# all read again: %d allocations failed\n", (int)fail_each(&k, &f, &mem));
	ck_check(&k);
	ck_create_ok(&k);
	ck_restore_and_compare(&k);
	sl_backup_close(k.b);
	k.b = NULL;
	bad_driver_fini(&bad);
	shelf_fini(&mem);
	ck_end(&k);
	assert_int_equal(fault_live_allocs(&f), 0);
	fault_fini(&f);
}

static void every_call_of_the_repository_may_fail(void **state)
{
	(void)state;
	struct ck k;
	struct shelf mem;
	struct bad_driver bad;
	sl_driver handle;
	ck_begin(&k, NULL);
	use_memory(&k, &mem, &bad, &handle);
	small_tree(&k);
	bad.fail_ops = BAD_ALL_OPS;
	bad.fail_code = SL_EIO;
	struct shelf before;
	int64_t n = 1, failed = 1;
	int made = 0;
	ck_create_ok(&k);
	ck_write_seed(&k, "d/new", 5000, 5);
	shelf_init(&before);
	shelf_copy(&before, &mem);
	for (double end = seconds_now() + test_seconds(3); failed != 0 && seconds_now() < end; n++) {
		shelf_copy(&mem, &before);
		bad.counted = bad.failed = 0;
		bad.fail_at = n;
		int rc = ck_create(&k);
		bad.fail_at = 0;
		failed = bad.failed;
		made += rc == 0;
		assert_true(rc == 0 || k.err.msg[0] != '\0');
		assert_int_equal(snapshots(&k), 1 + (rc == 0));
		ck_check(&k);
		if (rc == 0)
			ck_restore_and_compare(&k);
	}
	assert_true(failed != 0 || made > 0);
	print_message("# %d calls failed, %d creates came to their end\n", (int)n - 2, made);
	shelf_fini(&before);
	ck_create_ok(&k);
	ck_restore_and_compare(&k);
	sl_backup_close(k.b);
	k.b = NULL;
	bad_driver_fini(&bad);
	shelf_fini(&mem);
	ck_end(&k);
}

static void a_store_that_fails_for_good_ends_the_create_with_its_error(void **state)
{
	(void)state;
	struct ck k;
	struct shelf mem;
	struct bad_driver bad;
	sl_driver handle;
	ck_begin(&k, NULL);
	use_memory(&k, &mem, &bad, &handle);
	k.opts.pack_bytes = 64 << 10;
	sl_backup_close(k.b);
	assert_int_equal(sl_backup_open(&k.b, &handle, &k.opts, &k.err), 0);
	for (int i = 0; i < 20; i++) {
		char name[16];
		(void)snprintf(name, sizeof(name), "%02d", i);
		ck_write_seed(&k, name, 1 << 20, (uint64_t)(2 * i + 1));
	}
	bad.fail_ops = BAD_OP(BAD_SCHEDULE_PUT);
	bad.fail_code = SL_ENOSPC;
	bad.fail_on = true;
	bad.fail_at = 3;
	assert_int_equal(ck_create(&k), SL_ENOSPC);
	bad.fail_at = 0;
	bad.fail_on = false;
	assert_int_equal(snapshots(&k), 0);
	ck_create_ok(&k);
	ck_restore_and_compare(&k);
	sl_backup_close(k.b);
	k.b = NULL;
	bad_driver_fini(&bad);
	shelf_fini(&mem);
	ck_end(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_allocation_may_fail),
		cmocka_unit_test(every_call_of_the_repository_may_fail),
		cmocka_unit_test(a_store_that_fails_for_good_ends_the_create_with_its_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
