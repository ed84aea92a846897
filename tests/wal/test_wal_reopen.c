/* SPDX-License-Identifier: Apache-2.0 */
/* sl_wal_reopen: a handle whose flush failed takes records again, and nothing that was refused comes back. */
#include <errno.h>
#include <stdio.h>

#include "box.h"
#include "support/fault.h"

struct broken {
	struct box b;
	struct fault f;
	struct sl_env env;
	sl_wal *w;
};

static void broken_open(struct broken *x)
{
	box_init(&x->b);
	fault_init(&x->f, &x->b.e.env);
	x->env = fault_env(&x->f, &x->b.e.env);
	x->b.opts.env = &x->env;
	x->w = box_open(&x->b);
}

static void broken_close(struct broken *x)
{
	if (x->w != NULL)
		box_close(&x->b, x->w);
	assert_int_equal(fault_open_fds(&x->f), 0);
	fault_fini(&x->f);
	x->b.opts.env = &x->b.e.env;
	box_fini(&x->b);
}

/* The next sync fails, or all of them, that of the cut included; and with it the append of `text`. */
static void poison_by(struct broken *x, const char *text, enum fault_mode mode)
{
	fault_arm_io(&x->f, 1, mode, EIO, FAULT_SYNC_OPS);
	assert_int_equal(sl_wal_append(x->w, text, strlen(text), NULL, &x->b.err), SL_EIO);
	fault_disarm(&x->f);
	assert_int_equal(sl_wal_append(x->w, "no", 2, NULL, &x->b.err), SL_EPOISONED);
}

static void poison(struct broken *x, const char *text)
{
	poison_by(x, text, FAULT_ONCE);
}

static void a_poisoned_log_takes_records_again_and_what_was_refused_stays_away(void **state)
{
	(void)state;
	struct broken x;
	struct sl_wal_ticket lost;
	broken_open(&x);
	assert_int_equal(box_append(x.w, "a"), 1);
	assert_int_equal(sl_wal_submit(x.w, "lost", 4, &lost, &x.b.err), 0);
	poison(&x, "b");
	assert_int_equal(sl_wal_reopen(x.w, &x.b.err), 0);
	assert_int_equal(sl_wal_wait(x.w, &lost, 0, &x.b.err), SL_EIO);
	assert_int_equal(box_append(x.w, "c"), 2);
	poison(&x, "d");
	assert_int_equal(sl_wal_reopen(x.w, &x.b.err), 0);
	assert_int_equal(sl_wal_reopen(x.w, &x.b.err), 0); /* harmless on one that works */
	assert_int_equal(box_append(x.w, "e"), 3);
	broken_close(&x);
}

/* A power loss at any time after the reopening has the records that were acknowledged, and no other. */
static void lose_power_after_a_reopening(enum fault_mode mode)
{
	struct broken x;
	broken_open(&x);
	crashfs_record(x.b.fs, true);
	crashfs_settle(x.b.fs);
	(void)box_append(x.w, "a");
	poison_by(&x, "refused", mode);
	assert_int_equal(sl_wal_reopen(x.w, &x.b.err), 0);
	size_t from = crashfs_point(x.b.fs);
	(void)box_append(x.w, "c");
	size_t to = crashfs_point(x.b.fs);
	for (size_t point = from; point <= to; point++) {
		size_t n = crashfs_states(x.b.fs, point, 64);
		for (size_t k = 0; k < n; k++) {
			struct box after = {.fs = crashfs_crash(x.b.fs, point, k, 64, 1, NULL), .opts = x.b.opts};
			walmodel_env_init(&after.e, after.fs, 1);
			after.opts.env = &after.e.env;
			sl_wal *w = box_open(&after);
			box_close(&after, w);
			const char *has = box_scan(&after, BOX_PATH);
			if (strcmp(has, "1=a 2=c") != 0 && (point == to || strcmp(has, "1=a") != 0))
				fail_msg("point %zu of %zu, state %zu: %s", point, to, k, has);
			box_fini(&after);
		}
	}
	broken_close(&x);
}

static void a_power_loss_after_a_reopening_keeps_exactly_what_was_acknowledged(void **state)
{
	(void)state;
	lose_power_after_a_reopening(FAULT_ONCE);
	lose_power_after_a_reopening(FAULT_FROM);
}

static void a_reopening_that_fails_can_be_tried_again(void **state)
{
	(void)state;
	int64_t failed = 1;
	for (int64_t n = 1; failed > 0; n++) {
		struct broken x;
		broken_open(&x);
		(void)box_append(x.w, "a");
		poison(&x, "b");
		fault_arm_io(&x.f, n, FAULT_ONCE, EIO, FAULT_ALL_OPS);
		int rc = sl_wal_reopen(x.w, &x.b.err);
		failed = fault_io_failed(&x.f);
		fault_disarm(&x.f);
		assert_int_equal(rc != 0, failed > 0); /* none of its steps may be left out */
		if (rc != 0) {
			assert_true(x.b.err.msg[0] != '\0');
			assert_int_equal(sl_wal_append(x.w, "no", 2, NULL, &x.b.err), SL_EPOISONED);
			assert_int_equal(sl_wal_reopen(x.w, &x.b.err), 0);
		}
		assert_int_equal(box_append(x.w, "c"), 2);
		box_close(&x.b, x.w);
		x.w = NULL;
		x.b.opts.env = &x.b.e.env;
		assert_scan(&x.b, BOX_PATH, "1=a 2=c");
		broken_close(&x);
	}
}

/* Whichever of a rotation's calls fails: afterwards the log works, and everything acknowledged is in it once. */
static void a_rotation_that_failed_half_way_is_undone(void **state)
{
	(void)state;
	int64_t failed = 1;
	int poisoned = 0;
	for (int64_t n = 1; failed > 0; n++) {
		struct broken x;
		box_init(&x.b);
		x.b.opts.segment_bytes = 4096;
		fault_init(&x.f, &x.b.e.env);
		x.env = fault_env(&x.f, &x.b.e.env);
		x.b.opts.env = &x.env;
		x.w = box_open(&x.b);
		box_append_n(x.w, 1, 4200); /* the next one begins a new segment */
		fault_arm_io(&x.f, n, FAULT_ONCE, EIO, FAULT_ALL_OPS);
		int rc = sl_wal_append(x.w, "b", 1, NULL, &x.b.err);
		failed = fault_io_failed(&x.f);
		fault_disarm(&x.f);
		poisoned += rc != 0;
		if (rc != 0) {
			assert_int_equal(sl_wal_reopen(x.w, &x.b.err), 0);
			assert_int_equal(box_append(x.w, "b"), 2);
		}
		assert_int_equal(box_append(x.w, "c"), 3);
		assert_int_equal(box_stats(x.w).last_sequence, 3);
		box_close(&x.b, x.w);
		x.w = box_open(&x.b);
		assert_int_equal(box_stats(x.w).records, 3);
		assert_int_equal(box_stats(x.w).damaged_ranges, 0);
		assert_int_equal(box_append(x.w, "d"), 4);
		broken_close(&x);
	}
	assert_true(poisoned > 3);
}

static void a_full_disk_is_ready_again_only_when_there_is_room(void **state)
{
	(void)state;
	struct broken x;
	broken_open(&x);
	(void)box_append(x.w, "a");
	crashfs_quota(x.b.fs, crashfs_used(x.b.fs));
	assert_int_equal(sl_wal_append(x.w, "b", 1, NULL, &x.b.err), SL_ENOSPC);
	assert_int_equal(sl_wal_reopen(x.w, &x.b.err), SL_ENOSPC);
	crashfs_quota(x.b.fs, SIZE_MAX);
	assert_int_equal(sl_wal_reopen(x.w, &x.b.err), 0);
	assert_int_equal(box_append(x.w, "c"), 2);
	box_close(&x.b, x.w);
	x.w = NULL;
	x.b.opts.env = &x.b.e.env;
	assert_scan(&x.b, BOX_PATH, "1=a 2=c");
	broken_close(&x);
}

static void damage_is_left_to_a_recovery(void **state)
{
	(void)state;
	struct broken x;
	broken_open(&x);
	(void)box_append(x.w, "a");
	(void)box_append(x.w, "b");
	poison(&x, "c");
	box_flip(&x.b, BOX_PATH, (16 + 30) * 8);
	assert_int_equal(sl_wal_reopen(x.w, &x.b.err), SL_ECORRUPT);
	assert_int_equal(sl_wal_append(x.w, "no", 2, NULL, &x.b.err), SL_EPOISONED);
	(void)sl_wal_close(x.w, NULL);
	x.w = NULL;
	broken_close(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_poisoned_log_takes_records_again_and_what_was_refused_stays_away),
		cmocka_unit_test(a_power_loss_after_a_reopening_keeps_exactly_what_was_acknowledged),
		cmocka_unit_test(a_reopening_that_fails_can_be_tried_again),
		cmocka_unit_test(a_rotation_that_failed_half_way_is_undone),
		cmocka_unit_test(a_full_disk_is_ready_again_only_when_there_is_room),
		cmocka_unit_test(damage_is_left_to_a_recovery),
	};
	return cmocka_run_group_tests_name("wal reopen", tests, NULL, NULL);
}
