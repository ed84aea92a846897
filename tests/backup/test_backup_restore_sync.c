/* SPDX-License-Identifier: Apache-2.0 */
/* What a restore syncs, and what becomes of it when that fails. The program defines its own syncfs, which replaces the
 * C library's. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "backup/restore/target.h"
#include "backup/restore_kit.h"

#define BLOCK ((size_t)1 << 20)
#define FILES 25
#define BLOCKS_PER_FILE 8u /* 200 MiB in all */

static atomic_int syncs;
static int failing;       /* which one fails; 0: none */
static atomic_bool early; /* one came while files were missing */

/* How many files of ours the folder has; below it is the stage, which has them while the lanes work. */
static int count_files(int folder)
{
	const struct dirent *d;
	int n = 0, fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	if (dir == NULL)
		abort();
	while ((d = readdir(dir)) != NULL) {
		n += d->d_name[0] == 'f';
		if (strncmp(d->d_name, BK_TEMP_PREFIX, strlen(BK_TEMP_PREFIX)) != 0)
			continue;
		int stage = openat(fd, d->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (stage >= 0) { /* else it was moved away just now */
			n += count_files(stage);
			(void)close(stage);
		}
	}
	(void)closedir(dir);
	return n;
}

int syncfs(int fd)
{
	if (count_files(fd) < FILES)
		atomic_store(&early, true);
	if (atomic_fetch_add(&syncs, 1) + 1 != failing)
		return 0;
	errno = EIO;
	return -1;
}

static char names[FILES][16];

/* Files that all have the same block several times: much to write, little to make. */
static void publish_large(struct rk *k)
{
	static struct bk_ref refs[BLOCKS_PER_FILE];
	char *bytes = malloc(BLOCK);
	assert_non_null(bytes);
	memset(bytes, 'x', BLOCK);
	refs[0] = rk_block(k, bytes, BLOCK);
	for (size_t i = 1; i < BLOCKS_PER_FILE; i++)
		refs[i] = refs[0];
	for (size_t i = 0; i < FILES; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "f%02zu", i);
		struct bk_entry e = rk_text(k, names[i], "");
		e.size = BLOCKS_PER_FILE * BLOCK;
		e.refs = refs;
		e.n_refs = BLOCKS_PER_FILE;
		rk_add(k, &e);
	}
	free(bytes);
	(void)rk_publish(k);
}

static int restore_failing(struct rk *k, int which)
{
	failing = which;
	atomic_store(&syncs, 0);
	return rk_restore(k);
}

static void empty_target(const struct rk *k)
{
	char command[300];
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", k->to);
	assert_int_equal(system(command), 0);
}

static bool is_marked(const struct rk *k)
{
	return getxattr(k->to, BK_TARGET_MARK, NULL, 0) >= 0;
}

static void expect_all(const struct rk *k)
{
	for (size_t i = 0; i < FILES; i++)
		assert_int_equal(rk_stat(k, names[i]).st_size, BLOCKS_PER_FILE * BLOCK);
}

static void much_is_written_back_before_the_end(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	publish_large(&k);
	atomic_store(&early, false);
	for (int i = 0; i < 100 && !atomic_load(&early); i++) { /* the lanes do not wait for the thread that syncs */
		empty_target(&k);
		assert_int_equal(restore_failing(&k, 0), 0);
		assert_true(atomic_load(&syncs) >= 2);
		expect_all(&k);
		assert_false(is_marked(&k));
	}
	assert_true(atomic_load(&early));
	rk_end(&k);
}

static void little_is_synced_once(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	struct bk_entry e = rk_text(&k, "small", "text");
	rk_add(&k, &e);
	(void)rk_publish(&k);
	assert_int_equal(restore_failing(&k, 0), 0);
	assert_int_equal(atomic_load(&syncs), 1);
	rk_end(&k);
}

/* Change a byte of a file, and neither its size nor its time: only who does not trust them reads on. */
static void spoil(const struct rk *k, const char *name)
{
	char path[512];
	struct stat st = rk_stat(k, name);
	struct timespec times[2] = {st.st_atim, st.st_mtim};
	(void)snprintf(path, sizeof(path), "%s/%s", k->to, name);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "?", 1, 4711), 1);
	assert_int_equal(futimens(fd, times), 0);
	assert_int_equal(close(fd), 0);
}

static void expect_whole(const struct rk *k, const char *name)
{
	size_t len;
	char *bytes = rk_read(k, name, &len);
	assert_non_null(bytes);
	assert_int_equal(len, BLOCKS_PER_FILE * BLOCK);
	assert_int_equal(bytes[4711], 'x');
	free(bytes);
}

/* A failed sync is reported once, and what it should have written may be gone although it can still be read. */
static void a_sync_that_fails_ends_the_restore_and_the_next_trusts_nothing(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	publish_large(&k);
	assert_int_equal(restore_failing(&k, 0), 0);
	int last = atomic_load(&syncs);
	for (int which = 1; which <= last; which++) {
		empty_target(&k);
		int rc = restore_failing(&k, which);
		if (rc == 0) { /* the lanes were faster this time: there was one sync less */
			assert_true(atomic_load(&syncs) < which);
			continue;
		}
		assert_int_equal(rc, SL_EIO);
		assert_non_null(strstr(k.err.msg, "sync"));
		char mark[64];
		ssize_t n = getxattr(k.to, BK_TARGET_MARK, mark, sizeof(mark));
		if (n < 0) {
			print_message("# no attributes here: a next run would trust what it finds\n");
			continue;
		}
		bool there = rk_exists(&k, names[0]);
		if (there)
			spoil(&k, names[0]);
		assert_int_equal(restore_failing(&k, 0), 0);
		expect_all(&k);
		expect_whole(&k, names[0]);
		assert_false(is_marked(&k));
	}
	rk_end(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(much_is_written_back_before_the_end),
		cmocka_unit_test(little_is_synced_once),
		cmocka_unit_test(a_sync_that_fails_ends_the_restore_and_the_next_trusts_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
