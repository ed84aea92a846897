/* SPDX-License-Identifier: Apache-2.0 */
/* The local driver: the contract of all drivers, and what only a folder has: permissions, links, temporary files, full
 * and failing disks. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backup/bad_driver.h"
#include "backup/driver_contract.h"
#include "backup/place.h"
#include "backup/shelf.h"
#include "support/crashfs.h"
#include "support/fault.h"

static struct place place;

static void open_local(sl_driver *out, const struct sl_env *env, const char *path)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_driver_local_opts opts = {SL_DRIVER_LOCAL_OPTS_INIT, .env = env, .create = SL_ON};
	if (sl_driver_local_open(out, path, &opts, &err) != 0)
		fail_msg("%s", err.msg);
}

static void fixture_open(sl_driver *out, int fresh, void *ctx)
{
	(void)ctx;
	if (fresh)
		place_make(&place);
	open_local(out, NULL, place.path);
}

static void fixture_clean(void *ctx)
{
	(void)ctx;
	place_remove(&place);
}

/* The same in the memory of a crash filesystem. */
static void crashfs_open(sl_driver *out, int fresh, void *ctx)
{
	struct crashfs **fs = ctx;
	if (fresh)
		*fs = crashfs_new();
	struct sl_env env = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = *fs};
	open_local(out, &env, "/repo");
}

static void crashfs_clean(void *ctx)
{
	struct crashfs **fs = ctx;
	assert_int_equal(crashfs_open_files(*fs), 0);
	crashfs_free(*fs);
}

/* The misbehaving driver of the tests, configured only to be slow. */
static struct bad_driver bads[2];
static int n_bads;

static void bad_open(sl_driver *out, int fresh, void *ctx)
{
	sl_driver under;
	fixture_open(&under, fresh, ctx);
	assert_true(n_bads < 2);
	bad_driver_init(&bads[n_bads], &under, 1);
	bads[n_bads].delay = true;
	*out = bad_driver_handle(&bads[n_bads++]);
}

static void bad_clean(void *ctx)
{
	while (n_bads > 0)
		bad_driver_fini(&bads[--n_bads]);
	fixture_clean(ctx);
}

/* The driver of other tests, in memory. */
static struct shelf shelf;

static void shelf_open(sl_driver *out, int fresh, void *ctx)
{
	(void)ctx;
	if (fresh) {
		shelf_init(&shelf);
		shelf.has_lock = true;
	}
	*out = shelf_driver(&shelf);
}

static void shelf_clean(void *ctx)
{
	(void)ctx;
	shelf_fini(&shelf);
}

static int put(const sl_driver *d, const char *name, const char *text, enum sl_driver_put how)
{
	return d->ops->put(d->driver, name, text, strlen(text), how, NULL);
}

static void path_of(const char *name, char out[256])
{
	(void)snprintf(out, 256, "%s/%s", place.path, name);
}

static unsigned mode_of(const char *name)
{
	char path[256];
	struct stat st;
	path_of(name, path);
	assert_int_equal(lstat(path, &st), 0);
	return st.st_mode & 07777;
}

static int count_file(const char *name, void *ctx)
{
	(void)name;
	++*(int *)ctx;
	return 0;
}

static int count_temporary(const struct crashfs *fs)
{
	int n = 0;
	(void)crashfs_each(fs, "/repo/tmp", count_file, &n);
	return n;
}

/* ---- options ---- */

static void bad_options_are_named(void **state)
{
	sl_driver d = {.ops = NULL};
	struct sl_err err = SL_ERR_INIT;
	struct sl_driver_local_opts opts = {SL_DRIVER_LOCAL_OPTS_INIT, .threads = 65};
	char longer[5000];
	(void)state;
	assert_int_equal(sl_driver_local_open(&d, "/tmp", &opts, &err), SL_EINVAL);
	assert_non_null(strstr(err.msg, "threads"));
	memset(longer, 'a', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	assert_int_equal(sl_driver_local_open(&d, longer, NULL, &err), SL_EINVAL);
	assert_int_equal(sl_driver_local_open(&d, "", NULL, &err), SL_EINVAL);
	assert_int_equal(sl_driver_local_open(&d, NULL, NULL, &err), SL_EINVAL);
	assert_null(d.ops);
}

static void a_folder_is_made_only_when_that_is_asked_for(void **state)
{
	sl_driver d = {.ops = NULL};
	char path[256];
	struct sl_driver_local_opts opts = {SL_DRIVER_LOCAL_OPTS_INIT, .create = SL_ON};
	(void)state;
	place_make(&place);
	path_of("not/there", path);
	assert_int_equal(sl_driver_local_open(&d, path, NULL, NULL), SL_ENOENT);
	assert_int_equal(sl_driver_local_open(&d, path, &opts, NULL), 0);
	sl_driver_close(&d);
	sl_driver_close(&d);
	sl_driver_close(NULL);
	assert_int_equal(mode_of("not/there"), 0700);
	assert_int_equal(sl_driver_local_open(&d, path, NULL, NULL), 0);
	assert_int_equal(put(&d, "file", "x", SL_DRIVER_NEW), 0);
	sl_driver_close(&d);
	path_of("not/there/file", path);
	assert_int_not_equal(sl_driver_local_open(&d, path, NULL, NULL), 0);
	place_remove(&place);
}

/* ---- permissions and links ---- */

static void other_users_cannot_read_files_and_folders(void **state)
{
	sl_driver d;
	mode_t old = umask(0);
	(void)state;
	fixture_open(&d, 1, NULL);
	assert_int_equal(put(&d, "packs/3f/a", "x", SL_DRIVER_NEW), 0);
	assert_int_equal(mode_of("packs"), 0700);
	assert_int_equal(mode_of("packs/3f"), 0700);
	assert_int_equal(mode_of("packs/3f/a"), 0600);
	assert_int_equal(mode_of("tmp"), 0700);
	(void)umask(old);
	sl_driver_close(&d);
	place_remove(&place);
}

static void a_link_in_place_of_an_object_is_not_followed(void **state)
{
	sl_driver d;
	char outside[256], inside[256], buf[8];
	size_t got;
	struct sl_driver_stat st;
	(void)state;
	fixture_open(&d, 1, NULL);
	path_of("outside", outside);
	path_of("object", inside);
	assert_int_equal(put(&d, "outside", "secret", SL_DRIVER_NEW), 0);
	assert_int_equal(symlink(outside, inside), 0);
	assert_int_equal(d.ops->get(d.driver, "object", 0, buf, sizeof(buf), &got, NULL), SL_EACCES);
	assert_int_equal(d.ops->stat(d.driver, "object", &st, NULL), SL_ENOENT);
	assert_int_not_equal(put(&d, "object", "x", SL_DRIVER_UPDATE), 0);
	assert_int_equal(put(&d, "object", "x", SL_DRIVER_NEW), SL_EEXIST);
	assert_int_equal(put(&d, "object", "y", SL_DRIVER_REPLACE), 0);
	assert_int_equal(d.ops->get(d.driver, "outside", 0, buf, sizeof(buf), &got, NULL), 0);
	assert_memory_equal(buf, "secret", 6);
	sl_driver_close(&d);
	place_remove(&place);
}

static void the_drivers_own_folder_holds_no_objects(void **state)
{
	sl_driver d;
	(void)state;
	fixture_open(&d, 1, NULL);
	assert_int_equal(put(&d, "tmp/a", "x", SL_DRIVER_NEW), SL_EINVAL);
	assert_int_equal(put(&d, "tmp", "x", SL_DRIVER_NEW), SL_EINVAL);
	assert_int_equal(put(&d, "tmpa", "x", SL_DRIVER_NEW), 0);
	sl_driver_close(&d);
	place_remove(&place);
}

/* ---- temporary files ---- */

static void make_old(const char *name, int hours)
{
	char path[256];
	struct timespec times[2];
	path_of(name, path);
	int fd = open(path, O_WRONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	assert_int_equal(clock_gettime(CLOCK_REALTIME, &times[0]), 0);
	times[0].tv_sec -= 3600 * hours;
	times[1] = times[0];
	assert_int_equal(futimens(fd, times), 0);
	assert_int_equal(close(fd), 0);
}

static bool is_there(const char *name)
{
	char path[256];
	path_of(name, path);
	return access(path, F_OK) == 0;
}

static void dead_temporary_files_are_removed_and_live_ones_are_not(void **state)
{
	sl_driver d;
	(void)state;
	fixture_open(&d, 1, NULL);
	assert_int_equal(put(&d, "a", "x", SL_DRIVER_NEW), 0);
	sl_driver_close(&d);
	make_old("tmp/00dead", 25);
	make_old("tmp/00live", 0);
	make_old("tmp/lock-prune", 25);
	fixture_open(&d, 0, NULL);
	assert_int_equal(put(&d, "b", "x", SL_DRIVER_NEW), 0);
	assert_false(is_there("tmp/00dead"));
	assert_true(is_there("tmp/00live"));
	assert_true(is_there("tmp/lock-prune"));
	sl_driver_close(&d);
	place_remove(&place);
}

static void folders_that_were_removed_are_created_again(void **state)
{
	sl_driver d;
	char path[256];
	(void)state;
	fixture_open(&d, 1, NULL);
	assert_int_equal(put(&d, "x/a", "1", SL_DRIVER_NEW), 0);
	assert_int_equal(d.ops->remove(d.driver, "x/a", NULL), 0);
	path_of("x", path);
	assert_int_equal(rmdir(path), 0);
	path_of("tmp", path);
	assert_int_equal(rmdir(path), 0);
	for (int i = 0; i < 3; i++)
		(void)put(&d, "x/b", "1", SL_DRIVER_NEW);
	assert_true(is_there("x/b"));
	sl_driver_close(&d);
	place_remove(&place);
}

/* ---- descriptors ---- */

static void more_objects_than_descriptors_are_kept_can_be_read(void **state)
{
	sl_driver d;
	char name[32], buf[32];
	size_t got;
	(void)state;
	fixture_open(&d, 1, NULL);
	for (int i = 0; i < 100; i++) {
		(void)snprintf(name, sizeof(name), "x/%d", i);
		assert_int_equal(put(&d, name, name, SL_DRIVER_NEW), 0);
	}
	for (int i = 0; i < 1000; i++) {
		(void)snprintf(name, sizeof(name), "x/%d", i * 37 % 100);
		assert_int_equal(d.ops->get(d.driver, name, 2, buf, sizeof(buf), &got, NULL), 0);
		assert_int_equal(got, strlen(name) - 2);
		assert_memory_equal(buf, name + 2, got);
	}
	sl_driver_close(&d);
	place_remove(&place);
}

static void a_kept_descriptor_does_not_outlive_its_name(void **state)
{
	sl_driver d;
	char buf[8];
	size_t got;
	(void)state;
	fixture_open(&d, 1, NULL);
	assert_int_equal(put(&d, "a", "xone", SL_DRIVER_NEW), 0);
	assert_int_equal(d.ops->get(d.driver, "a", 1, buf, sizeof(buf), &got, NULL), 0);
	assert_int_equal(put(&d, "a", "xtwo", SL_DRIVER_REPLACE), 0);
	assert_int_equal(d.ops->get(d.driver, "a", 1, buf, sizeof(buf), &got, NULL), 0);
	assert_memory_equal(buf, "two", 3);
	assert_int_equal(d.ops->rename(d.driver, "a", "b", NULL), 0);
	assert_int_equal(d.ops->get(d.driver, "a", 1, buf, sizeof(buf), &got, NULL), SL_ENOENT);
	assert_int_equal(d.ops->get(d.driver, "b", 1, buf, sizeof(buf), &got, NULL), 0);
	assert_int_equal(d.ops->remove(d.driver, "b", NULL), 0);
	assert_int_equal(d.ops->get(d.driver, "b", 1, buf, sizeof(buf), &got, NULL), SL_ENOENT);
	sl_driver_close(&d);
	place_remove(&place);
}

/* ---- failures ---- */

static pthread_mutex_t done_mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done_cond = PTHREAD_COND_INITIALIZER;
static int done_count, done_code;

static void note_done(const struct sl_err *err, void *ctx)
{
	(void)ctx;
	(void)pthread_mutex_lock(&done_mu);
	done_count++;
	done_code = err != NULL ? err->code : 0;
	(void)pthread_cond_signal(&done_cond);
	(void)pthread_mutex_unlock(&done_mu);
}

/* Schedule, and wait; what it ended with. */
static int put_bytes_scheduled(const sl_driver *d, const char *name, const void *bytes, size_t len)
{
	done_count = 0;
	int rc = d->ops->schedule_put(d->driver, name, bytes, len, note_done, NULL, NULL);
	if (rc != 0)
		return rc;
	(void)pthread_mutex_lock(&done_mu);
	while (done_count == 0)
		(void)pthread_cond_wait(&done_cond, &done_mu);
	(void)pthread_mutex_unlock(&done_mu);
	return done_code;
}

static int put_scheduled(const sl_driver *d, const char *name, const char *text)
{
	return put_bytes_scheduled(d, name, text, strlen(text));
}

/* Large enough for a write around the page cache, with a tail that is no whole page. */
#define LARGE_BYTES ((64u << 10) + 4096 + 100)
static _Alignas(4096) char large[LARGE_BYTES + 1];

static void fill_large(void)
{
	for (size_t i = 0; i < LARGE_BYTES; i++)
		large[i] = (char)('a' + i * 7 % 23 + i / 4096 % 3);
}

/* Everything a driver does, once; what of it succeeded is in ok. */
struct story {
	bool opened, put, replaced, updated, scheduled, large, synced, renamed, removed;
};

static int pass(const char *name, const struct sl_driver_stat *stat, void *ctx)
{
	(void)name, (void)stat, (void)ctx;
	return 0;
}

static void tell_story(const struct sl_env *env, struct story *ok)
{
	sl_driver d;
	struct sl_driver_stat st;
	struct sl_driver_local_opts opts = {SL_DRIVER_LOCAL_OPTS_INIT, .env = env, .create = SL_ON, .threads = 1};
	char buf[64];
	int64_t now;
	size_t got;
	*ok = (struct story){.opened = sl_driver_local_open(&d, "/repo", &opts, NULL) == 0};
	if (!ok->opened)
		return;
	void *lock = NULL;
	if (d.ops->lock(d.driver, "prune", &lock, NULL) == 0)
		d.ops->unlock(d.driver, lock);
	ok->put = put(&d, "a/put", "first", SL_DRIVER_NEW) == 0;
	ok->replaced = put(&d, "a/put", "second", SL_DRIVER_REPLACE) == 0;
	ok->updated = put(&d, "a/put", "update", SL_DRIVER_UPDATE) == 0;
	ok->scheduled = put_scheduled(&d, "b/c/scheduled", "in the background") == 0;
	fill_large();
	ok->large = put_scheduled(&d, "b/c/large", large) == 0;
	ok->synced = d.ops->sync(d.driver, NULL) == 0;
	ok->renamed =
		put(&d, "s/x", "to be renamed", SL_DRIVER_NEW) == 0 && d.ops->rename(d.driver, "s/x", "t/x", NULL) == 0;
	ok->removed = put(&d, "r", "to be removed", SL_DRIVER_NEW) == 0 && d.ops->remove(d.driver, "r", NULL) == 0;
	(void)d.ops->get(d.driver, "a/put", 0, buf, sizeof(buf), &got, NULL);
	(void)d.ops->get(d.driver, "a/put", 1, buf, sizeof(buf), &got, NULL);
	(void)d.ops->stat(d.driver, "t/x", &st, NULL);
	(void)d.ops->now_ms(d.driver, &now, NULL);
	(void)d.ops->list(d.driver, "a", pass, NULL, NULL);
	sl_driver_close(&d);
}

/* The file holds one of the texts (separated by |) or, when it may, is not there. */
static void expect_file(const struct crashfs *fs, const char *path, const char *texts, bool may_be_missing)
{
	size_t n = 0;
	const char *bytes = crashfs_get(fs, path, &n);
	if (bytes == NULL) {
		if (!may_be_missing)
			fail_msg("%s is not there", path);
		return;
	}
	for (const char *t = texts; *t != '\0'; t += strcspn(t, "|"), t += *t == '|')
		if (strcspn(t, "|") == n && memcmp(t, bytes, n) == 0)
			return;
	fail_msg("%s holds \"%.*s\"", path, (int)n, bytes);
}

/* torn: an update was cut off. */
static void expect_story(const struct crashfs *fs, const struct story *ok, bool torn)
{
	const char *kept = ok->updated ? "update" : ok->replaced ? "second|update" : "first|second|update";
	size_t n;
	if (!torn)
		expect_file(fs, "/repo/a/put", kept, !ok->put && !ok->replaced);
	expect_file(fs, "/repo/b/c/scheduled", "in the background", !ok->scheduled);
	expect_file(fs, "/repo/b/c/large", large, !ok->large);
	expect_file(fs, "/repo/t/x", "to be renamed", !ok->renamed);
	expect_file(fs, "/repo/s/x", "to be renamed", true);
	if (ok->renamed)
		assert_null(crashfs_get(fs, "/repo/s/x", &n));
	expect_file(fs, "/repo/r", "to be removed", true);
	if (ok->removed)
		assert_null(crashfs_get(fs, "/repo/r", &n));
}

static void every_failing_call_leaves_whole_objects_and_nothing_behind(void **state)
{
	int64_t n = 1;
	(void)state;
	for (bool injected = true; injected; n++) {
		struct crashfs *fs = crashfs_new();
		struct sl_env base = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = fs};
		struct fault f;
		struct story ok;
		fault_init(&f, &base);
		f.partial_writes = n % 2 == 0;
		struct sl_env env = fault_env(&f, NULL);
		fault_arm_io(&f, n, FAULT_ONCE, n % 3 == 0 ? ENOSPC : EIO, FAULT_ALL_OPS);
		tell_story(&env, &ok);
		fault_disarm(&f);
		injected = fault_io_failed(&f) != 0;
		expect_story(fs, &ok, ok.replaced && !ok.updated && strcmp(f.failed_op, "pwrite") == 0);
		int temporary = count_temporary(fs) - 1; /* the lock stays */
		if (ok.opened && temporary > 0 && strcmp(f.failed_op, "unlink") != 0)
			fail_msg("call %lld (%s) leaves a temporary file", (long long)n, f.failed_op);
		if (!injected)
			assert_true(ok.put && ok.replaced && ok.updated && ok.scheduled && ok.large && ok.synced &&
				    ok.renamed && ok.removed);
		assert_int_equal(fault_open_fds(&f), 0);
		assert_int_equal(fault_live_allocs(&f), 0);
		fault_fini(&f);
		crashfs_free(fs);
	}
	printf("# %lld calls failed, one after another\n", (long long)n - 2);
}

static void every_failing_allocation_is_reported_and_damages_nothing(void **state)
{
	int64_t n = 1;
	(void)state;
	for (bool injected = true; injected; n++) {
		struct crashfs *fs = crashfs_new();
		struct sl_env base = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = fs};
		struct fault f;
		struct story ok;
		fault_init(&f, &base);
		struct sl_env env = fault_env(&f, NULL);
		fault_arm_mem(&f, n, FAULT_ONCE);
		tell_story(&env, &ok);
		fault_disarm(&f);
		injected = fault_mem_failed(&f) != 0;
		expect_story(fs, &ok, false);
		assert_int_equal(fault_open_fds(&f), 0);
		assert_int_equal(fault_live_allocs(&f), 0);
		fault_fini(&f);
		crashfs_free(fs);
	}
	printf("# %lld allocations failed, one after another\n", (long long)n - 2);
}

static void a_full_disk_is_reported_and_no_partial_object_gets_a_name(void **state)
{
	struct crashfs *fs;
	struct sl_err err = SL_ERR_INIT;
	static char bytes[50000];
	size_t n;
	sl_driver d;
	(void)state;
	crashfs_open(&d, 1, &fs);
	assert_int_equal(put(&d, "a", "x", SL_DRIVER_NEW), 0);
	crashfs_quota(fs, crashfs_used(fs) + 10000);
	assert_int_equal(d.ops->put(d.driver, "packs/00/b", bytes, sizeof(bytes), SL_DRIVER_NEW, &err), SL_ENOSPC);
	assert_non_null(strstr(err.msg, "packs/00/b"));
	assert_non_null(strstr(err.msg, "No space left"));
	assert_int_equal(err.error_class, SL_CLASS_TRANSIENT);
	assert_null(crashfs_get(fs, "/repo/packs/00/b", &n));
	assert_int_equal(count_temporary(fs), 0);
	bytes[sizeof(bytes) - 1] = '\0';
	memset(bytes, 'a', sizeof(bytes) - 1);
	assert_int_equal(put_scheduled(&d, "packs/00/c", bytes), SL_ENOSPC);
	assert_null(crashfs_get(fs, "/repo/packs/00/c", &n));
	assert_int_equal(count_temporary(fs), 0);
	crashfs_quota(fs, SIZE_MAX);
	assert_int_equal(put_scheduled(&d, "packs/00/c", bytes), 0);
	assert_int_equal(d.ops->sync(d.driver, NULL), 0);
	sl_driver_close(&d);
	crashfs_clean(&fs);
}

/* D3 */
static void after_a_failed_sync_of_a_folder_nothing_more_is_promised(void **state)
{
	struct crashfs *fs = crashfs_new();
	struct sl_env base = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = fs};
	struct fault f;
	struct sl_err err = SL_ERR_INIT;
	char buf[8];
	size_t got;
	sl_driver d;
	(void)state;
	fault_init(&f, &base);
	struct sl_env env = fault_env(&f, NULL);
	open_local(&d, &env, "/repo");
	assert_int_equal(put_scheduled(&d, "x/a", "1"), 0);
	fault_arm_io(&f, 1, FAULT_ONCE, EIO, FAULT_OP(FAULT_SYNC));
	assert_int_equal(d.ops->sync(d.driver, &err), SL_EIO);
	fault_disarm(&f);
	assert_int_equal(d.ops->sync(d.driver, &err), SL_EPOISONED);
	assert_int_equal(err.error_class, SL_CLASS_POISON);
	assert_int_equal(put(&d, "x/b", "1", SL_DRIVER_NEW), SL_EPOISONED);
	assert_int_equal(put_scheduled(&d, "x/b", "1"), SL_EPOISONED);
	assert_int_equal(d.ops->rename(d.driver, "x/a", "x/b", NULL), SL_EPOISONED);
	assert_int_equal(d.ops->remove(d.driver, "x/a", NULL), SL_EPOISONED);
	assert_int_equal(d.ops->get(d.driver, "x/a", 0, buf, sizeof(buf), &got, NULL), 0);
	sl_driver_close(&d);
	open_local(&d, &env, "/repo");
	assert_int_equal(put(&d, "x/b", "1", SL_DRIVER_NEW), 0);
	sl_driver_close(&d);
	fault_fini(&f);
	crashfs_free(fs);
}

/* A file's own sync that failed costs the file only: it is written anew from memory. */
static void after_a_failed_sync_of_a_file_the_put_can_be_tried_again(void **state)
{
	struct crashfs *fs = crashfs_new();
	struct sl_env base = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = fs};
	struct fault f;
	size_t n;
	sl_driver d;
	(void)state;
	fault_init(&f, &base);
	struct sl_env env = fault_env(&f, NULL);
	open_local(&d, &env, "/repo");
	fault_arm_io(&f, 1, FAULT_ONCE, EIO, FAULT_OP(FAULT_DATASYNC));
	assert_int_equal(put_scheduled(&d, "x/a", "1"), SL_EIO);
	fault_disarm(&f);
	assert_null(crashfs_get(fs, "/repo/x/a", &n));
	assert_int_equal(put_scheduled(&d, "x/a", "1"), 0);
	assert_int_equal(d.ops->sync(d.driver, NULL), 0);
	sl_driver_close(&d);
	fault_fini(&f);
	crashfs_free(fs);
}

/* A table that asks for a sync of the driver's while the driver syncs a folder. */
struct nested {
	struct sl_io io;
	struct crashfs *fs;
	sl_driver d;
	int depth, inner_syncs;
	const char *remove_at_datasync; /* or NULL */
	int direct_fd;                  /* opened for writes around the page cache; -1: none */
	size_t direct_bytes;            /* written that way */
	size_t direct_at_once;          /* a call writes no more; 0: any number */
	bool refuse_open, refuse_write;
};

static int nested_sync(int fd, void *ctx)
{
	struct nested *n = ctx;
	if (n->depth > 0)
		n->inner_syncs++;
	if (n->depth++ == 0)
		assert_int_equal(n->d.ops->sync(n->d.driver, NULL), 0);
	n->depth--;
	return crashfs_io.sync(fd, n->fs);
}

#define NESTED(ret, op, params, args)                                                                                  \
	static ret nested_##op params                                                                                  \
	{                                                                                                              \
		return crashfs_io.op args;                                                                             \
	}
#define FS (((struct nested *)ctx)->fs)
NESTED(int, close, (int fd, void *ctx), (fd, FS))
NESTED(ssize_t, pread, (int fd, void *buf, size_t n, uint64_t at, void *ctx), (fd, buf, n, at, FS))
NESTED(int, truncate, (int fd, uint64_t size, void *ctx), (fd, size, FS))
NESTED(int, fstat, (int fd, struct sl_io_stat *out, void *ctx), (fd, out, FS))
NESTED(int, stat, (const char *path, struct sl_io_stat *out, void *ctx), (path, out, FS))
NESTED(int, rename, (const char *from, const char *to, int keep, void *ctx), (from, to, keep, FS))
NESTED(int, unlink, (const char *path, void *ctx), (path, FS))
NESTED(int, mkdir, (const char *path, mode_t mode, void *ctx), (path, mode, FS))
NESTED(int, list, (const char *path, sl_io_list_fn *fn, void *fn_ctx, void *ctx), (path, fn, fn_ctx, FS))
NESTED(int, lock, (int fd, void *ctx), (fd, FS))

static int nested_open(const char *path, int flags, mode_t mode, void *ctx)
{
	struct nested *n = ctx;
	bool direct = (flags & O_DIRECT) != 0;
	if (direct && n->refuse_open)
		return -EINVAL;
	int fd = crashfs_io.open(path, flags, mode, n->fs);
	if (direct || fd == n->direct_fd)
		n->direct_fd = direct ? fd : -1;
	return fd;
}

/* As strict as a file system may be. */
static ssize_t nested_pwrite(int fd, const void *buf, size_t len, uint64_t at, void *ctx)
{
	struct nested *n = ctx;
	if (fd != n->direct_fd)
		return crashfs_io.pwrite(fd, buf, len, at, n->fs);
	if (n->refuse_write || (uintptr_t)buf % 4096 != 0 || len % 4096 != 0 || at % 4096 != 0)
		return -EINVAL;
	if (n->direct_at_once != 0 && n->direct_at_once < len)
		len = n->direct_at_once;
	ssize_t put = crashfs_io.pwrite(fd, buf, len, at, n->fs);
	n->direct_bytes += put > 0 ? (size_t)put : 0;
	return put;
}

static int nested_datasync(int fd, void *ctx)
{
	struct nested *n = ctx;
	if (n->remove_at_datasync != NULL)
		assert_int_equal(crashfs_io.unlink(n->remove_at_datasync, n->fs), 0);
	return crashfs_io.datasync(fd, n->fs);
}

static void nested_open_driver(struct nested *n)
{
	*n = (struct nested){.fs = crashfs_new(), .depth = 1, .direct_fd = -1};
	n->io = (struct sl_io){SL_IO_VERSION,   nested_open,   nested_close,    nested_pread, nested_pwrite,
			       nested_datasync, nested_sync,   nested_truncate, nested_fstat, nested_stat,
			       nested_rename,   nested_unlink, nested_mkdir,    nested_list,  nested_lock};
	struct sl_env env = {SL_ENV_INIT, .io = &n->io, .io_ctx = n};
	open_local(&n->d, &env, "/repo");
}

/* As a session that is taken for dead while its heart beats. */
static void an_update_of_an_object_that_is_removed_meanwhile_is_not_reported_as_done(void **state)
{
	struct nested n;
	size_t len;
	(void)state;
	nested_open_driver(&n);
	assert_int_equal(put(&n.d, "sessions/a", "one", SL_DRIVER_NEW), 0);
	n.remove_at_datasync = "/repo/sessions/a";
	assert_int_equal(put(&n.d, "sessions/a", "two", SL_DRIVER_UPDATE), SL_ENOENT);
	assert_null(crashfs_get(n.fs, "/repo/sessions/a", &len));
	sl_driver_close(&n.d);
	crashfs_free(n.fs);
}

static void a_sync_does_not_trust_in_one_that_is_still_on_its_way(void **state)
{
	struct nested n;
	(void)state;
	nested_open_driver(&n);
	assert_int_equal(put_scheduled(&n.d, "x/a", "1"), 0);
	n.inner_syncs = n.depth = 0;
	assert_int_equal(n.d.ops->sync(n.d.driver, NULL), 0);
	assert_true(n.inner_syncs >= 2); /* x and the folder it is in, though a sync of both had begun */
	sl_driver_close(&n.d);
	crashfs_free(n.fs);
}

static void expect_large(const struct nested *n, const char *bytes, size_t len)
{
	size_t is = 0;
	const char *there = crashfs_get(n->fs, "/repo/packs/00/a", &is);
	assert_non_null(there);
	assert_int_equal(is, len);
	assert_memory_equal(there, bytes, len);
	assert_int_equal(crashfs_open_files(n->fs), 0);
}

static void put_large(struct nested *n, const char *bytes, size_t len)
{
	n->direct_bytes = 0;
	assert_int_equal(put_bytes_scheduled(&n->d, "packs/00/a", bytes, len), 0);
	expect_large(n, bytes, len);
}

static void the_whole_pages_of_a_large_object_go_around_the_page_cache(void **state)
{
	struct nested n;
	(void)state;
	fill_large();
	nested_open_driver(&n);
	put_large(&n, large, LARGE_BYTES);
	assert_int_equal(n.direct_bytes, LARGE_BYTES - 100);
	put_large(&n, large, LARGE_BYTES - 100);
	assert_int_equal(n.direct_bytes, LARGE_BYTES - 100);
	n.direct_at_once = 4096;
	put_large(&n, large, LARGE_BYTES);
	assert_int_equal(n.direct_bytes, LARGE_BYTES - 100);
	put_large(&n, large + 1, LARGE_BYTES - 1);
	assert_int_equal(n.direct_bytes, 0);
	put_large(&n, large, 5000);
	assert_int_equal(n.direct_bytes, 0);
	sl_driver_close(&n.d);
	crashfs_free(n.fs);
}

static void what_cannot_go_around_the_page_cache_goes_through_it(void **state)
{
	struct nested n;
	(void)state;
	fill_large();
	nested_open_driver(&n);
	n.refuse_open = true;
	put_large(&n, large, LARGE_BYTES);
	n.refuse_open = false;
	n.refuse_write = true;
	put_large(&n, large, LARGE_BYTES);
	assert_int_equal(n.direct_bytes, 0);
	n.refuse_write = false;
	n.direct_at_once = 10000; /* ends inside of a page */
	put_large(&n, large, LARGE_BYTES);
	assert_int_equal(n.direct_bytes, 10000);
	sl_driver_close(&n.d);
	crashfs_free(n.fs);
}

static void a_large_object_on_a_disk_is_whole(void **state)
{
	static char is[LARGE_BYTES + 1];
	size_t got = 0;
	sl_driver d;
	(void)state;
	fill_large();
	fixture_open(&d, 1, NULL);
	assert_int_equal(put_bytes_scheduled(&d, "packs/00/a", large, LARGE_BYTES), 0);
	assert_int_equal(d.ops->get(d.driver, "packs/00/a", 0, is, sizeof(is), &got, NULL), 0);
	assert_int_equal(got, LARGE_BYTES);
	assert_memory_equal(is, large, LARGE_BYTES);
	sl_driver_close(&d);
	place_remove(&place);
}

static void a_forked_child_is_refused(void **state)
{
	sl_driver d;
	int status = 0;
	(void)state;
	fixture_open(&d, 1, NULL);
	assert_int_equal(put_scheduled(&d, "a", "x"), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		char buf[8];
		size_t got;
		int rc = d.ops->get(d.driver, "a", 0, buf, sizeof(buf), &got, NULL);
		int rc2 = put(&d, "b", "x", SL_DRIVER_NEW);
		sl_driver_close(&d);
		_exit(rc == SL_EFORKED && rc2 == SL_EFORKED ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	sl_driver_close(&d);
	place_remove(&place);
}

/* Without an argument what only a folder has; "contract", "crashfs" and "bad": the contract on a disk, in memory, and
 * by the driver of the tests. */
int main(int argc, char **argv)
{
	struct crashfs *fs = NULL;
	const struct driver_fixture local = {"local driver", fixture_open, fixture_clean, NULL};
	const struct driver_fixture in_memory = {"local driver on a crash filesystem", crashfs_open, crashfs_clean,
						 &fs};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_options_are_named),
		cmocka_unit_test(a_folder_is_made_only_when_that_is_asked_for),
		cmocka_unit_test(other_users_cannot_read_files_and_folders),
		cmocka_unit_test(a_link_in_place_of_an_object_is_not_followed),
		cmocka_unit_test(the_drivers_own_folder_holds_no_objects),
		cmocka_unit_test(dead_temporary_files_are_removed_and_live_ones_are_not),
		cmocka_unit_test(folders_that_were_removed_are_created_again),
		cmocka_unit_test(more_objects_than_descriptors_are_kept_can_be_read),
		cmocka_unit_test(a_kept_descriptor_does_not_outlive_its_name),
		cmocka_unit_test(every_failing_call_leaves_whole_objects_and_nothing_behind),
		cmocka_unit_test(every_failing_allocation_is_reported_and_damages_nothing),
		cmocka_unit_test(a_full_disk_is_reported_and_no_partial_object_gets_a_name),
		cmocka_unit_test(after_a_failed_sync_of_a_folder_nothing_more_is_promised),
		cmocka_unit_test(after_a_failed_sync_of_a_file_the_put_can_be_tried_again),
		cmocka_unit_test(an_update_of_an_object_that_is_removed_meanwhile_is_not_reported_as_done),
		cmocka_unit_test(a_sync_does_not_trust_in_one_that_is_still_on_its_way),
		cmocka_unit_test(the_whole_pages_of_a_large_object_go_around_the_page_cache),
		cmocka_unit_test(what_cannot_go_around_the_page_cache_goes_through_it),
		cmocka_unit_test(a_large_object_on_a_disk_is_whole),
		cmocka_unit_test(a_forked_child_is_refused),
	};
	const struct driver_fixture bad = {"driver of the tests", bad_open, bad_clean, NULL};
	const struct driver_fixture on_shelf = {"driver in memory", shelf_open, shelf_clean, NULL};
	const struct {
		const char *name;
		const struct driver_fixture *fixture;
	} parts[] = {{"contract", &local}, {"crashfs", &in_memory}, {"bad", &bad}, {"shelf", &on_shelf}};
	if (argc == 1)
		return cmocka_run_group_tests(tests, NULL, NULL);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (strcmp(argv[1], parts[i].name) == 0)
			return driver_contract_run(parts[i].fixture);
	print_message("Bail out! no part %s\n", argv[1]);
	return 64;
}
