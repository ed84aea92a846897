/* SPDX-License-Identifier: Apache-2.0 */
/* The event batcher in front of a log: by items, by bytes, by time, on demand, and when the log says no. */
#include "box.h"

static void the_batcher_flushes_by_items_bytes_and_on_demand(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	sl_wal_batcher *e = NULL;
	struct sl_wal_batcher_opts opts = {SL_WAL_BATCHER_OPTS_INIT, .max_items = 3, .max_bytes = 1000,
					   .background = SL_OFF};
	assert_int_equal(sl_wal_batcher_new(&e, w, &opts, &b.err), 0);
	assert_int_equal(sl_wal_batcher_add(e, "a", 1, &b.err), 0);
	assert_int_equal(sl_wal_batcher_add(e, "b", 1, &b.err), 0);
	assert_int_equal(box_stats(w).records, 0);
	assert_int_equal(sl_wal_batcher_add(e, "c", 1, &b.err), 0);
	assert_int_equal(box_stats(w).records, 3);
	assert_int_equal(box_stats(w).flushes, 1); /* one record an event, one flush a batch */
	char big[1000] = {0};
	assert_int_equal(sl_wal_batcher_add(e, "d", 1, &b.err), 0);
	assert_int_equal(sl_wal_batcher_add(e, big, sizeof(big), &b.err), 0);
	assert_true(box_stats(w).records >= 4);
	assert_int_equal(sl_wal_batcher_add(e, "f", 1, &b.err), 0);
	assert_int_equal(sl_wal_batcher_flush(e, &b.err), 0);
	assert_int_equal(box_stats(w).records, 6);
	assert_int_equal(sl_wal_batcher_add(e, "g", 1, &b.err), 0);
	size_t lost = 9;
	assert_int_equal(sl_wal_batcher_free(e, &lost, &b.err), 0);
	assert_int_equal(lost, 0);
	assert_int_equal(box_stats(w).records, 7);
	assert_int_equal(sl_wal_batcher_free(NULL, NULL, NULL), 0);
	box_close(&b, w);
	box_fini(&b);
}

static void the_batcher_flushes_when_the_oldest_has_waited_long_enough(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	sl_wal_batcher *e = NULL;
	struct sl_wal_batcher_opts opts = {SL_WAL_BATCHER_OPTS_INIT, .flush_interval_ms = 100, .background = SL_OFF};
	assert_int_equal(sl_wal_batcher_new(&e, w, &opts, &b.err), 0);
	assert_int_equal(sl_wal_batcher_add(e, "a", 1, &b.err), 0);
	vclock_advance_ms(&b.e.clock, 99);
	assert_int_equal(sl_wal_batcher_add(e, "b", 1, &b.err), 0);
	assert_int_equal(box_stats(w).records, 0);
	vclock_advance_ms(&b.e.clock, 1);
	assert_int_equal(sl_wal_batcher_add(e, "c", 1, &b.err), 0);
	assert_int_equal(box_stats(w).records, 3);
	assert_int_equal(sl_wal_batcher_free(e, NULL, &b.err), 0);
	box_close(&b, w);
	box_fini(&b);
}

static void the_batcher_keeps_a_batch_that_failed_and_tries_it_first(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	sl_wal_batcher *e = NULL;
	struct sl_wal_batcher_opts opts = {SL_WAL_BATCHER_OPTS_INIT, .max_items = 2, .background = SL_OFF};
	assert_int_equal(sl_wal_batcher_new(&e, w, &opts, &b.err), 0);
	crashfs_quota(b.fs, 20);
	assert_int_equal(sl_wal_batcher_add(e, "a", 1, &b.err), 0);
	assert_int_equal(sl_wal_batcher_add(e, "b", 1, &b.err), SL_ENOSPC);
	crashfs_quota(b.fs, SIZE_MAX);
	assert_int_equal(sl_wal_batcher_flush(e, &b.err), 0);
	assert_int_equal(sl_wal_batcher_add(e, "c", 1, &b.err), 0);
	crashfs_quota(b.fs, 20);
	size_t lost = 0;
	assert_int_equal(sl_wal_batcher_free(e, &lost, &b.err), SL_ENOSPC);
	assert_int_equal(lost, 1);
	crashfs_quota(b.fs, SIZE_MAX);
	box_close(&b, w);
	assert_scan(&b, BOX_PATH, "1=a 2=b");
	box_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_batcher_flushes_by_items_bytes_and_on_demand),
		cmocka_unit_test(the_batcher_flushes_when_the_oldest_has_waited_long_enough),
		cmocka_unit_test(the_batcher_keeps_a_batch_that_failed_and_tries_it_first),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
