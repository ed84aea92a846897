/* SPDX-License-Identifier: Apache-2.0 */
/* The environment: defaults, memory, time, and the real I/O table on a temporary folder. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/env.h"
#include "fail_mem.h"

struct fixture {
	struct sl_env env;
	char dir[64];
	char path[128]; /* of the last call of at */
};

static int make(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	if (f == NULL || sl__env_init(&f->env, NULL, NULL) != 0)
		return -1;
	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/sluice-env-XXXXXX");
	*state = f;
	return mkdtemp(f->dir) != NULL ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	(void)st, (void)kind, (void)ftw;
	return remove(path);
}

static int drop(void **state)
{
	struct fixture *f = *state;
	int rc = nftw(f->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	free(f);
	return rc;
}

static const char *at(struct fixture *f, const char *name)
{
	(void)snprintf(f->path, sizeof(f->path), "%s/%s", f->dir, name);
	return f->path;
}

static int new_file(struct fixture *f, const char *name)
{
	int fd = SL__IO(&f->env, open, at(f, name), O_RDWR | O_CREAT | O_EXCL, 0600);
	assert_true(fd >= 0);
	return fd;
}

/* ---- the environment itself ---- */

static void nothing_is_null_after_init_but_log_and_metrics(void **state)
{
	(void)state;
	struct sl_env env;
	memset(&env, 0xAA, sizeof(env));
	assert_int_equal(sl__env_init(&env, NULL, NULL), 0);
	assert_ptr_equal(env.io, &sl__io_real);
	assert_ptr_equal(env.clock, &sl__clock_real);
	assert_ptr_equal(env.mem, &sl__mem_real);
	assert_ptr_equal(env.rand, &sl__rand_real);
	assert_null(env.log);
	assert_null(env.metrics);
	assert_int_equal(env.log_level, SL_LOG_INFO);
	assert_int_equal(env.struct_size, sizeof(env));
}

static void given_tables_are_kept_and_a_shorter_struct_is_enough(void **state)
{
	(void)state;
	struct fail_mem mem = {0};
	struct sl_env env, wanted = {SL_ENV_INIT, .mem = &fail_mem_table, .mem_ctx = &mem, .log_level = SL_LOG_ERROR};
	assert_int_equal(sl__env_init(&env, &wanted, NULL), 0);
	assert_ptr_equal(env.mem, &fail_mem_table);
	assert_ptr_equal(env.mem_ctx, &mem);
	assert_int_equal(env.log_level, SL_LOG_ERROR);
	wanted.struct_size = offsetof(struct sl_env, mem); /* a caller that knows no memory table */
	assert_int_equal(sl__env_init(&env, &wanted, NULL), 0);
	assert_ptr_equal(env.mem, &sl__mem_real);
	assert_int_equal(env.log_level, SL_LOG_INFO);
}

static void a_table_of_another_version_is_refused(void **state)
{
	(void)state;
	struct sl_io io = sl__io_real;
	io.version++;
	const struct sl_env wanted = {SL_ENV_INIT, .io = &io};
	struct sl_env env;
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(sl__env_init(&env, &wanted, &err), SL_EINVAL);
	assert_int_equal(err.code, SL_EINVAL);
}

static void arrays_are_zeroed_and_an_overflow_gives_null(void **state)
{
	struct fixture *f = *state;
	unsigned char *p = sl__calloc(&f->env, 100, 3);
	assert_non_null(p);
	for (int i = 0; i < 300; i++)
		assert_int_equal(p[i], 0);
	sl__free(&f->env, p);
	assert_null(sl__calloc(&f->env, SIZE_MAX / 2, 3));
	p = sl__calloc(&f->env, 0, 8); /* never asks the table for nothing */
	assert_non_null(p);
	sl__free(&f->env, p);
	sl__free(&f->env, NULL);
}

static void texts_are_made_in_fresh_memory_or_not_at_all(void **state)
{
	(void)state;
	struct fail_mem mem = {0};
	struct sl_env env;
	const struct sl_env wanted = {SL_ENV_INIT, .mem = &fail_mem_table, .mem_ctx = &mem};
	assert_int_equal(sl__env_init(&env, &wanted, NULL), 0);
	char *copy = sl__strdup(&env, "text"), *made = sl__asprintf(&env, "%s-%05d", "job", 42);
	assert_string_equal(copy, "text");
	assert_string_equal(made, "job-00042");
	sl__free(&env, copy);
	sl__free(&env, made);
	mem.fail_at = mem.calls + 1;
	assert_null(sl__strdup(&env, "text"));
	mem.fail_at = mem.calls + 1;
	assert_null(sl__asprintf(&env, "%d", 1));
	assert_int_equal(mem.held, 0);
}

static void deadlines_saturate_instead_of_overflowing(void **state)
{
	struct fixture *f = *state;
	int64_t before = sl__mono_ns(&f->env), at_once = sl__deadline_ns(&f->env, 0);
	assert_true(at_once >= before);
	assert_true(sl__deadline_ns(&f->env, 1000) >= before + 1000000000);
	assert_true(sl__deadline_ns(&f->env, 1000) < SL_FOREVER);
	assert_true(sl__deadline_ns(&f->env, SL_UNLIMITED) == SL_FOREVER);
	assert_true(sl__deadline_ns(&f->env, INT64_MAX) == SL_FOREVER);
	assert_true(sl__deadline_ns(&f->env, INT64_MAX / 1000000) == SL_FOREVER);
}

static void the_folder_of_a_path_is_what_stands_before_the_last_slash(void **state)
{
	struct fixture *f = *state;
	static const char *const rows[][3] = {{"a/b/c", "a/b", "c"}, {"name", ".", "name"}, {"/top", "/", "top"}};
	for (size_t i = 0; i < SL_COUNT(rows); i++) {
		char *dir = sl__dirname(&f->env, rows[i][0]);
		assert_string_equal(dir, rows[i][1]);
		assert_string_equal(sl__basename(rows[i][0]), rows[i][2]);
		sl__free(&f->env, dir);
	}
}

static void random_numbers_differ_and_stay_in_the_unit_interval(void **state)
{
	struct fixture *f = *state;
	struct sl__prng a, b;
	sl__prng_init(&a, &f->env);
	sl__prng_init(&b, &f->env);
	assert_true(sl__prng_next(&a) != sl__prng_next(&b));
	double sum = 0;
	for (int i = 0; i < 10000; i++) {
		double u = sl__prng_unit(&a);
		assert_true(u >= 0 && u < 1);
		sum += u;
	}
	assert_true(sum > 4700 && sum < 5300); /* ten standard deviations */
	unsigned char one[64] = {0}, two[64] = {0};
	assert_int_equal(f->env.rand->fill(one, sizeof(one), NULL), 0);
	assert_int_equal(f->env.rand->fill(two, sizeof(two), NULL), 0);
	assert_memory_not_equal(one, two, sizeof(one));
}

/* ---- the real I/O table ---- */

static void what_is_written_is_read_back_at_its_place(void **state)
{
	struct fixture *f = *state;
	char back[16] = "";
	int fd = new_file(f, "x");
	assert_int_equal(sl__pwrite_full(&f->env, fd, "world", 5, 6), 0);
	assert_int_equal(sl__pwrite_full(&f->env, fd, "hello ", 6, 0), 0);
	assert_int_equal(SL__IO(&f->env, datasync, fd), 0);
	assert_int_equal(SL__IO(&f->env, sync, fd), 0);
	assert_int_equal(sl__pread_full(&f->env, fd, back, 11, 0), 11);
	assert_string_equal(back, "hello world");
	assert_int_equal(sl__pread_full(&f->env, fd, back, 16, 6), 5); /* a short file gives its count */
	assert_int_equal(sl__pread_full(&f->env, fd, back, 16, 11), 0);
	assert_int_equal(SL__IO(&f->env, truncate, fd, 5), 0);
	struct sl_io_stat st;
	assert_int_equal(SL__IO(&f->env, fstat, fd, &st), 0);
	assert_int_equal(st.size, 5);
	assert_int_equal(st.mode & 0777, 0600);
	assert_true(st.mtime_ms > 1600000000000);
	assert_int_equal(SL__IO(&f->env, close, fd), 0);
	assert_int_equal(SL__IO(&f->env, close, fd), -EBADF);
}

static void failures_are_negative_errnos(void **state)
{
	struct fixture *f = *state;
	struct sl_io_stat st;
	char byte = 0;
	assert_int_equal(SL__IO(&f->env, open, at(f, "none"), O_RDONLY, 0), -ENOENT);
	assert_int_equal(SL__IO(&f->env, stat, at(f, "none"), &st), -ENOENT);
	assert_int_equal(SL__IO(&f->env, unlink, at(f, "none")), -ENOENT);
	assert_int_equal(SL__IO(&f->env, mkdir, f->dir, 0700), -EEXIST);
	assert_int_equal(sl__pread_full(&f->env, -1, &byte, 1, 0), -EBADF);
	assert_int_equal(sl__pwrite_full(&f->env, -1, &byte, 1, 0), -EBADF);
	assert_int_equal(SL__IO(&f->env, datasync, -1), -EBADF);
	assert_int_equal(SL__IO(&f->env, sync, -1), -EBADF);
	assert_int_equal(SL__IO(&f->env, truncate, -1, 0), -EBADF);
	assert_int_equal(SL__IO(&f->env, fstat, -1, &st), -EBADF);
	assert_int_equal(SL__IO(&f->env, lock, -1), -EBADF);
	assert_int_equal(sl__sync_dir(&f->env, at(f, "none")), -ENOENT);
}

static void descriptors_are_closed_on_exec(void **state)
{
	struct fixture *f = *state;
	int fd = new_file(f, "x");
	assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
	sl__close_fd(&f->env, &fd);
	assert_int_equal(fd, -1);
	sl__close_fd(&f->env, &fd); /* closed already: nothing happens */
}

static void stat_does_not_follow_a_link(void **state)
{
	struct fixture *f = *state;
	struct sl_io_stat st;
	assert_int_equal(symlink("nowhere", at(f, "link")), 0);
	assert_int_equal(SL__IO(&f->env, stat, at(f, "link"), &st), 0);
	assert_true(S_ISLNK(st.mode));
}

static void rename_replaces_only_when_it_may(void **state)
{
	struct fixture *f = *state;
	char from[128];
	int one = new_file(f, "one"), two = new_file(f, "two");
	struct sl_io_stat before, after;
	assert_int_equal(SL__IO(&f->env, fstat, one, &before), 0);
	(void)snprintf(from, sizeof(from), "%s", at(f, "one"));
	assert_int_equal(SL__IO(&f->env, rename, from, at(f, "two"), 1), -EEXIST);
	assert_int_equal(SL__IO(&f->env, stat, from, &after), 0);
	assert_int_equal(SL__IO(&f->env, rename, from, at(f, "two"), 0), 0);
	assert_int_equal(SL__IO(&f->env, stat, at(f, "two"), &after), 0);
	assert_int_equal(after.ino, before.ino);
	assert_int_equal(after.dev, before.dev);
	(void)snprintf(from, sizeof(from), "%s", at(f, "two"));
	assert_int_equal(SL__IO(&f->env, rename, from, at(f, "three"), 1), 0);
	assert_int_equal(SL__IO(&f->env, stat, from, &after), -ENOENT);
	sl__close_fd(&f->env, &one);
	sl__close_fd(&f->env, &two);
}

static int count_name(const char *name, void *ctx)
{
	int *seen = ctx;
	assert_true(name[0] != '.');
	return ++*seen == 2 ? 77 : 0;
}

static void list_gives_every_name_until_the_callback_stops_it(void **state)
{
	struct fixture *f = *state;
	int seen = 0;
	assert_int_equal(SL__IO(&f->env, list, f->dir, count_name, &seen), 0);
	assert_int_equal(seen, 0);
	for (int i = 0; i < 3; i++) {
		int fd = new_file(f, i == 0 ? "a" : i == 1 ? "b" : "c");
		sl__close_fd(&f->env, &fd);
	}
	assert_int_equal(SL__IO(&f->env, list, f->dir, count_name, &seen), 77);
	assert_int_equal(seen, 2);
	assert_int_equal(SL__IO(&f->env, list, f->dir, count_name, &seen), 0);
	assert_int_equal(seen, 5);
	assert_int_equal(SL__IO(&f->env, list, at(f, "none"), count_name, &seen), -ENOENT);
}

static void a_lock_keeps_others_out_until_its_descriptor_is_gone(void **state)
{
	struct fixture *f = *state;
	int mine = new_file(f, "x"), other = SL__IO(&f->env, open, at(f, "x"), O_RDWR, 0);
	assert_true(other >= 0);
	assert_int_equal(SL__IO(&f->env, lock, mine), 0);
	assert_int_equal(SL__IO(&f->env, lock, mine), 0);
	assert_int_equal(SL__IO(&f->env, lock, other), -EWOULDBLOCK);
	sl__close_fd(&f->env, &mine);
	assert_int_equal(SL__IO(&f->env, lock, other), 0);
	sl__close_fd(&f->env, &other);
}

static void the_lock_of_a_dead_process_does_not_stay(void **state)
{
	struct fixture *f = *state;
	int fd = new_file(f, "x"), status = -1;
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		int own = open(f->path, O_RDWR);
		_exit(own >= 0 && SL__IO(&f->env, lock, own) == 0 ? 0 : 1); /* dies with the lock held */
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(SL__IO(&f->env, lock, fd), 0);
	sl__close_fd(&f->env, &fd);
}

/* ---- whole transfers over a table that does a byte or two at a time ---- */

struct slow_io {
	size_t most; /* bytes a call */
	int fail_at; /* this call fails with EIO; 0: none */
	int calls;
	int syncs;
	bool no_space; /* pwrite transfers nothing */
};

static ssize_t slow_pread(int fd, void *buf, size_t n, uint64_t offset, void *ctx)
{
	struct slow_io *s = ctx;
	if (++s->calls == s->fail_at)
		return -EIO;
	return sl__io_real.pread(fd, buf, SL_MIN(n, s->most), offset, NULL);
}

static ssize_t slow_pwrite(int fd, const void *buf, size_t n, uint64_t offset, void *ctx)
{
	struct slow_io *s = ctx;
	if (++s->calls == s->fail_at)
		return -EIO;
	return s->no_space ? 0 : sl__io_real.pwrite(fd, buf, SL_MIN(n, s->most), offset, NULL);
}

static int counted_sync(int fd, void *ctx)
{
	struct slow_io *s = ctx;
	s->syncs++;
	return s->fail_at < 0 ? -EIO : sl__io_real.sync(fd, NULL);
}

static void use_slow_io(struct fixture *f, struct sl_io *table, struct slow_io *s)
{
	*table = sl__io_real;
	table->pread = slow_pread;
	table->pwrite = slow_pwrite;
	table->sync = counted_sync;
	f->env.io = table;
	f->env.io_ctx = s;
}

static void short_transfers_are_carried_on_to_the_end(void **state)
{
	struct fixture *f = *state;
	struct sl_io table;
	struct slow_io slow = {.most = 3};
	char back[32] = "";
	int fd = new_file(f, "x");
	use_slow_io(f, &table, &slow);
	assert_int_equal(sl__pwrite_full(&f->env, fd, "0123456789", 10, 2), 0);
	assert_int_equal(slow.calls, 4);
	assert_int_equal(sl__pread_full(&f->env, fd, back, 10, 2), 10);
	assert_string_equal(back, "0123456789");
	slow.fail_at = slow.calls + 3; /* in the middle */
	assert_int_equal(sl__pread_full(&f->env, fd, back, 10, 2), -EIO);
	slow.fail_at = slow.calls + 2;
	assert_int_equal(sl__pwrite_full(&f->env, fd, "0123456789", 10, 2), -EIO);
	slow.no_space = true;
	assert_int_equal(sl__pwrite_full(&f->env, fd, "0123456789", 10, 2), -ENOSPC);
	sl__close_fd(&f->env, &fd);
}

/* ---- folders ---- */

static void missing_folders_are_made_private_and_synced_in_their_parents(void **state)
{
	struct fixture *f = *state;
	struct sl_io table;
	struct slow_io slow = {.most = 1};
	struct sl_io_stat st;
	use_slow_io(f, &table, &slow);
	assert_int_equal(sl__mkdirs(&f->env, at(f, "a/b/c")), 0);
	assert_int_equal(slow.syncs, 3);
	assert_int_equal(SL__IO(&f->env, stat, at(f, "a"), &st), 0);
	assert_int_equal(st.mode, S_IFDIR | 0700);
	assert_int_equal(SL__IO(&f->env, stat, at(f, "a/b/c"), &st), 0);
	assert_true(S_ISDIR(st.mode));
	assert_int_equal(sl__mkdirs(&f->env, at(f, "a/b/c")), 0); /* there already */
	assert_int_equal(sl__mkdirs(&f->env, at(f, "a//d/")), 0);
	assert_int_equal(SL__IO(&f->env, stat, at(f, "a/d"), &st), 0);
	assert_int_equal(sl__mkdirs(&f->env, f->dir), 0);
	assert_int_equal(sl__mkdirs(&f->env, "/"), 0);
}

static void a_relative_folder_is_made_where_the_process_stands(void **state)
{
	struct fixture *f = *state;
	struct sl_io_stat st;
	char *old = getcwd(NULL, 0);
	assert_non_null(old);
	assert_int_equal(chdir(f->dir), 0);
	int rc = sl__mkdirs(&f->env, "x/y");
	int one = sl__mkdirs(&f->env, "z");
	assert_int_equal(chdir(old), 0);
	free(old);
	assert_int_equal(rc, 0);
	assert_int_equal(one, 0);
	assert_int_equal(SL__IO(&f->env, stat, at(f, "x/y"), &st), 0);
	assert_int_equal(SL__IO(&f->env, stat, at(f, "z"), &st), 0);
}

static void what_cannot_be_a_folder_is_an_error(void **state)
{
	struct fixture *f = *state;
	int fd = new_file(f, "file");
	sl__close_fd(&f->env, &fd);
	assert_int_equal(sl__mkdirs(&f->env, at(f, "file")), -ENOTDIR);
	assert_int_equal(sl__mkdirs(&f->env, at(f, "file/")), -ENOTDIR);
	assert_int_equal(sl__mkdirs(&f->env, at(f, "file/sub")), -ENOTDIR);
	assert_int_equal(sl__mkdirs(&f->env, ""), -ENOENT);
}

static void a_link_to_a_folder_is_a_folder(void **state)
{
	struct fixture *f = *state;
	struct sl_io_stat st;
	assert_int_equal(SL__IO(&f->env, mkdir, at(f, "real"), 0700), 0);
	assert_int_equal(symlink("real", at(f, "link")), 0);
	assert_int_equal(sl__mkdirs(&f->env, at(f, "link")), 0);
	assert_int_equal(sl__mkdirs(&f->env, at(f, "link/sub")), 0);
	assert_int_equal(SL__IO(&f->env, stat, at(f, "real/sub"), &st), 0);
}

static void a_folder_whose_entry_cannot_be_synced_is_an_error(void **state)
{
	struct fixture *f = *state;
	struct sl_io table;
	struct slow_io slow = {.fail_at = -1};
	use_slow_io(f, &table, &slow);
	assert_int_equal(sl__mkdirs(&f->env, at(f, "a")), -EIO);
	assert_int_equal(sl__sync_dir(&f->env, f->dir), -EIO);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, make, drop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(nothing_is_null_after_init_but_log_and_metrics),
		CASE(given_tables_are_kept_and_a_shorter_struct_is_enough),
		CASE(a_table_of_another_version_is_refused),
		CASE(arrays_are_zeroed_and_an_overflow_gives_null),
		CASE(texts_are_made_in_fresh_memory_or_not_at_all),
		CASE(deadlines_saturate_instead_of_overflowing),
		CASE(the_folder_of_a_path_is_what_stands_before_the_last_slash),
		CASE(random_numbers_differ_and_stay_in_the_unit_interval),
		CASE(what_is_written_is_read_back_at_its_place),
		CASE(failures_are_negative_errnos),
		CASE(descriptors_are_closed_on_exec),
		CASE(stat_does_not_follow_a_link),
		CASE(rename_replaces_only_when_it_may),
		CASE(list_gives_every_name_until_the_callback_stops_it),
		CASE(a_lock_keeps_others_out_until_its_descriptor_is_gone),
		CASE(the_lock_of_a_dead_process_does_not_stay),
		CASE(short_transfers_are_carried_on_to_the_end),
		CASE(missing_folders_are_made_private_and_synced_in_their_parents),
		CASE(a_relative_folder_is_made_where_the_process_stands),
		CASE(what_cannot_be_a_folder_is_an_error),
		CASE(a_link_to_a_folder_is_a_folder),
		CASE(a_folder_whose_entry_cannot_be_synced_is_an_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
