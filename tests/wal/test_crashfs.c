/* SPDX-License-Identifier: Apache-2.0 */
/* The crash filesystem itself: which states it makes, and which it must not make. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/crashfs.h"

#define IO(op, ...) crashfs_io.op(__VA_ARGS__, fs)

struct sums {
	size_t states, matching;
};

/* How many of the states at point satisfy fn. */
static struct sums count(const struct crashfs *fs, size_t point, size_t limit, bool (*fn)(struct crashfs *state))
{
	struct sums sums = {crashfs_states(fs, point, limit), 0};
	for (size_t k = 0; k < sums.states; k++) {
		struct crashfs *state = crashfs_crash(fs, point, k, limit, 7, NULL);
		sums.matching += fn(state);
		crashfs_free(state);
	}
	return sums;
}

static void write_all(struct crashfs *fs, int fd, uint8_t byte, size_t n, uint64_t offset)
{
	uint8_t buf[2048];
	memset(buf, byte, n);
	assert_int_equal(IO(pwrite, fd, buf, n, offset), (ssize_t)n);
}

static int make_synced(struct crashfs *fs, const char *path)
{
	int fd = IO(open, path, O_RDWR | O_CREAT, 0600);
	assert_true(fd >= 0);
	int dir = IO(open, "/", O_RDONLY | O_DIRECTORY, 0);
	assert_int_equal(IO(sync, fd), 0);
	assert_int_equal(IO(sync, dir), 0);
	assert_int_equal(IO(close, dir), 0);
	return fd;
}

static bool has_a(struct crashfs *fs)
{
	return crashfs_get(fs, "/a", NULL) != NULL;
}
static bool has_b(struct crashfs *fs)
{
	return crashfs_get(fs, "/b", NULL) != NULL;
}
static bool has_neither(struct crashfs *fs)
{
	return !has_a(fs) && !has_b(fs);
}

static void a_synced_file_without_a_synced_folder_may_be_missing(void **state)
{
	(void)state;
	struct crashfs *fs = crashfs_new();
	int fd = IO(open, "/a", O_RDWR | O_CREAT, 0600);
	write_all(fs, fd, 'x', 10, 0);
	assert_int_equal(IO(sync, fd), 0);
	struct sums s = count(fs, crashfs_point(fs), 64, has_a);
	assert_true(s.matching > 0 && s.matching < s.states);
	int dir = IO(open, "/", O_RDONLY | O_DIRECTORY, 0);
	assert_int_equal(IO(sync, dir), 0);
	s = count(fs, crashfs_point(fs), 64, has_a);
	assert_int_equal(s.matching, s.states);
	assert_int_equal(s.states, 2); /* one for each size of tear */
	crashfs_free(fs);
}

static bool is_whole(struct crashfs *fs)
{
	size_t n;
	const uint8_t *p = crashfs_get(fs, "/a", &n);
	return n == 2048 && p[0] == 'x' && memcmp(p, p + 1, n - 1) == 0;
}
static bool is_empty(struct crashfs *fs)
{
	size_t n;
	(void)crashfs_get(fs, "/a", &n);
	return n == 0;
}
static bool is_long_without_data(struct crashfs *fs)
{
	size_t n;
	const uint8_t *p = crashfs_get(fs, "/a", &n);
	return n == 2048 && p[0] == 0 && memcmp(p, p + 1, n - 1) == 0;
}
static bool is_torn_at_512(struct crashfs *fs)
{
	size_t n;
	const uint8_t *p = crashfs_get(fs, "/a", &n);
	return n == 2048 && p[511] == 'x' && p[512] == 0 && p[1023] == 0 && p[1024] == 'x';
}
static bool is_torn_at_64(struct crashfs *fs)
{
	size_t n;
	const uint8_t *p = crashfs_get(fs, "/a", &n);
	return n == 2048 && (p[63] == 'x') != (p[64] == 'x');
}

static void an_unsynced_write_may_be_whole_gone_torn_or_only_a_size(void **state)
{
	(void)state;
	struct crashfs *fs = crashfs_new();
	int fd = make_synced(fs, "/a");
	write_all(fs, fd, 'x', 2048, 0);
	size_t point = crashfs_point(fs);
	assert_true(count(fs, point, 64, is_whole).matching > 0);
	assert_true(count(fs, point, 64, is_empty).matching > 0);
	assert_true(count(fs, point, 64, is_long_without_data).matching > 0);
	assert_true(count(fs, point, 64, is_torn_at_512).matching > 0);
	assert_true(count(fs, point, 64, is_torn_at_64).matching > 0);
	assert_int_equal(IO(datasync, fd), 0);
	struct sums s = count(fs, crashfs_point(fs), 64, is_whole);
	assert_int_equal(s.matching, s.states);
	/* And before it returned nothing was promised. */
	assert_true(count(fs, point, 64, is_empty).matching > 0);
	crashfs_free(fs);
}

static void few_choices_are_enumerated_and_many_are_sampled(void **state)
{
	(void)state;
	struct crashfs *fs = crashfs_new();
	int fd = make_synced(fs, "/a");
	write_all(fs, fd, 'x', 1024, 0); /* two sectors and a size: eight states; sixteen pieces of 64: many */
	assert_int_equal(crashfs_states(fs, crashfs_point(fs), 100), 8 + 100);
	uint64_t seen[8];
	for (size_t k = 0; k < 8; k++) {
		struct crashfs *one = crashfs_crash(fs, crashfs_point(fs), k, 100, 7, &seen[k]);
		crashfs_free(one);
	}
	size_t distinct = 0;
	for (size_t k = 0; k < 8; k++) {
		bool fresh = true;
		for (size_t i = 0; i < k; i++)
			fresh = fresh && seen[i] != seen[k];
		distinct += fresh;
	}
	assert_int_equal(distinct, 5); /* without the size, the sectors do not show */
	crashfs_free(fs);
}

static void a_rename_is_whole_or_not_there(void **state)
{
	(void)state;
	struct crashfs *fs = crashfs_new();
	(void)make_synced(fs, "/a");
	assert_int_equal(IO(rename, "/a", "/b", 0), 0);
	size_t point = crashfs_point(fs);
	struct sums s = count(fs, point, 64, has_a);
	assert_true(s.matching > 0 && s.matching < s.states);
	assert_int_equal(count(fs, point, 64, has_neither).matching, 0);
	assert_int_equal(count(fs, point, 64, has_b).matching, s.states - s.matching);
	crashfs_free(fs);
}

static bool b_is_old(struct crashfs *fs)
{
	size_t n;
	const uint8_t *p = crashfs_get(fs, "/b", &n);
	return p != NULL && n == 8 && p[0] == 'o';
}

static void an_undone_rename_leaves_the_file_that_it_replaced(void **state)
{
	(void)state;
	struct crashfs *fs = crashfs_new();
	int old = make_synced(fs, "/b");
	write_all(fs, old, 'o', 8, 0);
	assert_int_equal(IO(datasync, old), 0);
	int new = make_synced(fs, "/a");
	write_all(fs, new, 'n', 8, 0);
	assert_int_equal(IO(datasync, new), 0);
	assert_int_equal(IO(rename, "/a", "/b", 1), -EEXIST);
	assert_int_equal(IO(rename, "/a", "/b", 0), 0);
	struct sums s = count(fs, crashfs_point(fs), 64, b_is_old);
	assert_true(s.matching > 0 && s.matching < s.states);
	int dir = IO(open, "/", O_RDONLY | O_DIRECTORY, 0);
	assert_int_equal(IO(sync, dir), 0);
	assert_int_equal(count(fs, crashfs_point(fs), 64, b_is_old).matching, 0);
	crashfs_free(fs);
}

static bool old_bytes_after_the_cut(struct crashfs *fs)
{
	size_t n;
	const uint8_t *p = crashfs_get(fs, "/a", &n);
	return n == 200 && p[150] == 'x';
}

static void a_truncation_that_happened_takes_the_bytes_with_it(void **state)
{
	(void)state;
	struct crashfs *fs = crashfs_new();
	int fd = make_synced(fs, "/a");
	write_all(fs, fd, 'x', 1000, 0);
	assert_int_equal(IO(datasync, fd), 0);
	assert_int_equal(IO(truncate, fd, 100), 0);
	write_all(fs, fd, 'y', 100, 100);
	assert_int_equal(count(fs, crashfs_point(fs), 1000, old_bytes_after_the_cut).matching, 0);
	crashfs_free(fs);
}

static void a_dead_process_changes_nothing_and_leaves_no_lock(void **state)
{
	(void)state;
	struct crashfs *fs = crashfs_new();
	int fd = make_synced(fs, "/a");
	assert_int_equal(IO(lock, fd), 0);
	int other = IO(open, "/a", O_RDWR, 0);
	assert_int_equal(IO(lock, other), -EWOULDBLOCK);
	write_all(fs, fd, 'x', 10, 0);
	crashfs_stop_at(fs, crashfs_point(fs));
	assert_int_equal(IO(pwrite, fd, "y", 1, 0), -EIO);
	assert_int_equal(IO(datasync, fd), -EIO);
	crashfs_kill(fs);
	assert_int_equal(crashfs_open_files(fs), 0);
	fd = IO(open, "/a", O_RDWR, 0);
	assert_int_equal(IO(lock, fd), 0);
	char c;
	assert_int_equal(IO(pread, fd, &c, 1, 0), 1);
	assert_int_equal(c, 'x');
	/* In the page cache, and no more durable than before. */
	assert_true(count(fs, crashfs_point(fs), 64, is_empty).matching > 0);
	crashfs_free(fs);
}

static void a_quota_gives_a_short_write_and_then_enospc(void **state)
{
	(void)state;
	struct crashfs *fs = crashfs_new();
	int fd = make_synced(fs, "/a");
	uint8_t buf[100] = {1};
	crashfs_quota(fs, 150);
	assert_int_equal(IO(pwrite, fd, buf, 100, 0), 100);
	assert_int_equal(IO(pwrite, fd, buf, 100, 100), 50);
	assert_int_equal(IO(pwrite, fd, buf, 50, 150), -ENOSPC);
	assert_int_equal(IO(pwrite, fd, buf, 100, 0), 100); /* overwriting needs no room */
	crashfs_free(fs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_synced_file_without_a_synced_folder_may_be_missing),
		cmocka_unit_test(an_unsynced_write_may_be_whole_gone_torn_or_only_a_size),
		cmocka_unit_test(few_choices_are_enumerated_and_many_are_sampled),
		cmocka_unit_test(a_rename_is_whole_or_not_there),
		cmocka_unit_test(an_undone_rename_leaves_the_file_that_it_replaced),
		cmocka_unit_test(a_truncation_that_happened_takes_the_bytes_with_it),
		cmocka_unit_test(a_dead_process_changes_nothing_and_leaves_no_lock),
		cmocka_unit_test(a_quota_gives_a_short_write_and_then_enospc),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
