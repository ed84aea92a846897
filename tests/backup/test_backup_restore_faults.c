/* SPDX-License-Identifier: Apache-2.0 */
/* A restore that is killed, that has no memory, that cannot read, that has no space: what is there is whole. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backup/restore_kit.h"
#include "support/budget.h"
#include "support/fault.h"

#define FILES 400

static char names[FILES][32];
static char texts[FILES][80];

/* Ten folders with files whose contents say who they are, and a further name of each tenth. */
static void publish_many(struct rk *k, size_t files)
{
	for (size_t i = 0; i < files; i++) {
		bool first = i % 40 == 0, link = i % 40 == 39;
		if (first) {
			(void)snprintf(names[i], sizeof(names[i]), "d%02zu", i / 40);
			struct bk_entry d = rk_dir(names[i]);
			rk_add(k, &d);
			continue;
		}
		(void)snprintf(names[i], sizeof(names[i]), "d%02zu/f%03zu", i / 40, i);
		(void)snprintf(texts[i], sizeof(texts[i]), "file %zu, %.31s", i, names[i]);
		/* refs of the kit are few: these live here */
		static struct bk_ref refs[FILES];
		refs[i] = rk_block(k, texts[i], strlen(texts[i]));
		struct bk_entry e =
			link ? rk_link(SL_BACKUP_HARDLINK, names[i], names[i - 1]) : rk_text(k, names[i], "");
		if (!link) {
			e.size = refs[i].len;
			e.refs = &refs[i];
			e.n_refs = 1;
			e.nlink = i % 40 == 38 ? 2 : 1;
		}
		rk_add(k, &e);
	}
	(void)rk_publish(k);
}

/* What is there is whole; how many files are. */
static size_t expect_whole(struct rk *k, size_t files)
{
	size_t there = 0;
	for (size_t i = 0; i < files; i++) {
		size_t len;
		if (i % 40 == 0)
			continue;
		char *bytes = rk_read(k, names[i], &len);
		if (bytes == NULL)
			continue;
		there++;
		assert_string_equal(bytes, texts[i % 40 == 39 ? i - 1 : i]);
		free(bytes);
	}
	return there;
}

/* A child opens the repository and restores; it is killed once this name is there. */
static void restore_and_die(const struct rk *k, const char *name)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		sl_driver driver = {0};
		sl_backup *b = NULL;
		struct sl_driver_local_opts local = {SL_DRIVER_LOCAL_OPTS_INIT};
		struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .threads = 2};
		struct sl_backup_restore_opts restore = {SL_BACKUP_RESTORE_OPTS_INIT, .to = k->to};
		if (sl_driver_local_open(&driver, k->repo, &local, NULL) != 0 ||
		    sl_backup_open(&b, &driver, &opts, NULL) != 0)
			_exit(3);
		_exit(sl_backup_restore(b, k->id, &restore, NULL, NULL) != 0 ? 4 : 0);
	}
	char path[1024];
	int status = 0;
	pid_t ended = 0;
	(void)snprintf(path, sizeof(path), "%s/%s", k->to, name);
	while (access(path, F_OK) != 0 && (ended = waitpid(pid, &status, WNOHANG)) == 0)
		(void)sched_yield();
	if (ended == 0) {
		(void)kill(pid, SIGKILL);
		ended = waitpid(pid, &status, 0);
	}
	assert_int_equal(ended, pid);
	assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
}

static void a_restore_that_is_killed_leaves_whole_files_and_can_be_resumed(SL_UNUSED void **state)
{
	int rounds = 0, cut = 0;
	unsigned seed = 1;
	for (double end = seconds_now() + test_seconds(1.5); seconds_now() < end; rounds++) {
		struct rk k;
		rk_begin(&k, NULL, NULL);
		publish_many(&k, FILES);
		for (int kills = 0; kills < 3; kills++) {
			seed = seed * 1103515245 + 12345;
			restore_and_die(&k, names[(seed >> 16) % FILES]);
			size_t there = expect_whole(&k, FILES);
			cut += there > 0 && there < FILES - FILES / 40;
		}
		assert_int_equal(rk_restore(&k), 0);
		assert_int_equal(expect_whole(&k, FILES), FILES - FILES / 40);
		assert_true(rk_stat(&k, "d00/f038").st_ino == rk_stat(&k, "d00/f039").st_ino);
		assert_int_equal(rk_stat(&k, "d05").st_mtim.tv_sec, RK_MTIME_S);
		rk_end(&k);
	}
	print_message("# %d restores, each killed three times, %d of these half-way\n", rounds, cut);
}

static void no_memory_anywhere_leaves_whole_files_and_no_leak(SL_UNUSED void **state)
{
	struct rk k;
	struct fault f;
	char command[300];
	int64_t n = 0;
	rk_begin(&k, NULL, NULL);
	publish_many(&k, 80);
	fault_init(&f, NULL);
	struct sl_env env = fault_env(&f, NULL);
	rk_reopen(&k, &env, 2);
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", k.to);
	for (n = 1;; n++) {
		int64_t live = fault_live_allocs(&f);
		fault_arm_mem(&f, n, FAULT_ONCE);
		int rc = rk_restore(&k);
		fault_disarm(&f);
		assert_int_equal(fault_live_allocs(&f), live);
		assert_int_equal(fault_open_fds(&f), 0);
		(void)expect_whole(&k, 80);
		if (fault_mem_failed(&f) == 0) {
			assert_int_equal(rc, 0);
			break;
		}
		assert_true(rc == 0 || rc == SL_ENOMEM);
		if (n % 7 == 0)
			assert_int_equal(system(command), 0); /* from the beginning */
	}
	print_message("# %lld allocations made to fail\n", (long long)n - 1);
	assert_int_equal(rk_restore(&k), 0);
	assert_int_equal(expect_whole(&k, 80), 78);
	sl_backup_close(k.b);
	k.b = NULL;
	rk_end(&k);
	fault_fini(&f);
}

static void a_full_disk_is_reported_and_leaves_only_whole_files(SL_UNUSED void **state)
{
	struct rk k;
	if (geteuid() != 0) {
		skip();
		return;
	}
	rk_begin(&k, NULL, NULL);
	publish_many(&k, FILES);
	assert_int_equal(mkdir(k.to, 0700), 0);
	if (mount("none", k.to, "tmpfs", 0, "size=200k,mode=700") != 0) {
		print_message("# nothing may be mounted here\n");
		rk_end(&k);
		skip();
	}
	int rc = rk_restore(&k);
	size_t there = expect_whole(&k, FILES);
	char msg[256];
	(void)snprintf(msg, sizeof(msg), "%s", k.err.msg);
	assert_int_equal(umount2(k.to, MNT_DETACH), 0);
	assert_int_equal(rc, SL_ENOSPC);
	assert_non_null(strstr(msg, strerror(ENOSPC)));
	assert_true(there > 0 && there < FILES);
	rk_end(&k);
}

/* Every read of the repository fails once: the restore says so, or names the file, and nothing is half there. */
static void a_repository_that_cannot_be_read_is_reported(SL_UNUSED void **state)
{
	struct rk k;
	struct fault f;
	char command[300];
	rk_begin(&k, NULL, NULL);
	publish_many(&k, 80);
	fault_init(&f, NULL);
	struct sl_env env = fault_env(&f, NULL);
	struct sl_driver_local_opts local = {SL_DRIVER_LOCAL_OPTS_INIT, .env = &env};
	sl_backup_close(k.b);
	sl_driver_close(&k.driver);
	assert_int_equal(sl_driver_local_open(&k.driver, k.repo, &local, NULL), 0);
	struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .threads = 2};
	assert_int_equal(sl_backup_open(&k.b, &k.driver, &opts, NULL), 0);
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", k.to);
	int64_t n;
	for (n = 1;; n++) {
		fault_arm_io(&f, n, FAULT_ONCE, EIO, FAULT_ALL_OPS);
		int rc = rk_restore(&k);
		fault_disarm(&f);
		size_t there = expect_whole(&k, 80);
		if (fault_io_failed(&f) == 0) {
			assert_int_equal(rc, 0);
			break;
		}
		assert_true(rc != 0 || there == 78);
		assert_true(rc == 0 || rc == SL_EIO || rc == SL_ECORRUPT);
		assert_int_equal(system(command), 0);
	}
	print_message("# %lld reads made to fail\n", (long long)n - 1);
	sl_backup_close(k.b);
	k.b = NULL;
	sl_driver_close(&k.driver);
	assert_int_equal(fault_open_fds(&f), 0);
	rk_end(&k);
	fault_fini(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_restore_that_is_killed_leaves_whole_files_and_can_be_resumed),
		cmocka_unit_test(no_memory_anywhere_leaves_whole_files_and_no_leak),
		cmocka_unit_test(a_full_disk_is_reported_and_leaves_only_whole_files),
		cmocka_unit_test(a_repository_that_cannot_be_read_is_reported),
	};
	/* Hundreds of restores end with a sync: not of a disk that others write to. */
	if (access("/dev/shm", W_OK) == 0)
		(void)setenv("TMPDIR", "/dev/shm", 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
