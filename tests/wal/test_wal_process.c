/* SPDX-License-Identifier: Apache-2.0 */
/* A log on the real disk and the processes around it: modes, links, the default folder, locks, forks. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "box.h"

static int sum_sequences(const struct sl_wal_record *record, void *ctx)
{
	uint64_t *sum = ctx;
	*sum += record->sequence;
	return 0;
}

struct disk {
	char dir[32];
	struct sl_wal_opts opts;
	struct sl_err err;
};

static void disk_init(struct disk *d)
{
	memset(d, 0, sizeof(*d));
	memcpy(d->dir, "sluice-wal-XXXXXX", 18);
	assert_non_null(mkdtemp(d->dir));
	d->opts = (struct sl_wal_opts){SL_WAL_OPTS_INIT, .wal_dir = d->dir};
}

static void disk_fini(struct disk *d)
{
	char command[64];
	(void)snprintf(command, sizeof(command), "rm -rf %s", d->dir);
	assert_int_equal(system(command), 0);
}

static void files_are_private(void **state)
{
	(void)state;
	struct disk d;
	struct stat st;
	disk_init(&d);
	char dir[64], path[96];
	(void)snprintf(dir, sizeof(dir), "%s/x/y", d.dir);
	(void)snprintf(path, sizeof(path), "%s/s.wal", dir);
	d.opts.wal_dir = dir;
	mode_t old = umask(0);
	sl_wal *w = NULL;
	assert_int_equal(sl_wal_open(&w, "s", &d.opts, &d.err), 0);
	umask(old);
	assert_int_equal(stat(dir, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(sl_wal_close(w, &d.err), 0);
	disk_fini(&d);
}

static void a_symbolic_link_is_not_followed(void **state)
{
	(void)state;
	struct disk d;
	disk_init(&d);
	char link[64], target[64];
	(void)snprintf(target, sizeof(target), "%s/elsewhere", d.dir);
	(void)snprintf(link, sizeof(link), "%s/s.wal", d.dir);
	int fd = open(target, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(symlink("elsewhere", link), 0);
	sl_wal *w = NULL;
	assert_true(sl_wal_open(&w, "s", &d.opts, &d.err) < 0);
	struct stat st;
	assert_int_equal(stat(target, &st), 0);
	assert_int_equal(st.st_size, 0);
	disk_fini(&d);
}

static void the_default_folder_is_in_the_home_of_the_user(void **state)
{
	(void)state;
	struct disk d;
	disk_init(&d);
	char *home = getenv("HOME") != NULL ? strdup(getenv("HOME")) : NULL;
	char cwd[512], full[600];
	assert_non_null(getcwd(cwd, sizeof(cwd)));
	(void)snprintf(full, sizeof(full), "%s/%s", cwd, d.dir);
	assert_int_equal(setenv("HOME", full, 1), 0);
	sl_wal *w = NULL;
	int rc = sl_wal_open(&w, "s", NULL, &d.err);
	if (home != NULL)
		assert_int_equal(setenv("HOME", home, 1), 0);
	free(home);
	if (rc != 0)
		fail_msg("open: %s", d.err.msg);
	(void)box_append(w, "x");
	assert_int_equal(sl_wal_close(w, &d.err), 0);
	char path[700];
	(void)snprintf(path, sizeof(path), "%s/.sluice/wal/s.wal", full);
	assert_int_equal(access(path, R_OK), 0);
	disk_fini(&d);
}

static void a_second_opener_in_the_same_process_is_refused(void **state)
{
	(void)state;
	struct disk d;
	sl_wal *w = NULL, *other = NULL;
	disk_init(&d);
	assert_int_equal(sl_wal_open(&w, "s", &d.opts, &d.err), 0);
	assert_int_equal(sl_wal_open(&other, "s", &d.opts, &d.err), SL_ELOCKED);
	assert_non_null(strstr(d.err.msg, "s.wal"));
	assert_null(other);
	(void)box_append(w, "x");
	assert_int_equal(sl_wal_close(w, &d.err), 0);
	assert_int_equal(sl_wal_open(&w, "s", &d.opts, &d.err), 0);
	assert_int_equal(sl_wal_close(w, &d.err), 0);
	disk_fini(&d);
}

static void the_lock_stays_through_a_rotation(void **state)
{
	(void)state;
	struct disk d;
	sl_wal *w = NULL, *other = NULL;
	disk_init(&d);
	d.opts.segment_bytes = 4096;
	assert_int_equal(sl_wal_open(&w, "s", &d.opts, &d.err), 0);
	for (int i = 0; i < 3; i++) {
		box_append_n(w, 12, 500);
		assert_int_equal(sl_wal_open(&other, "s", &d.opts, &d.err), SL_ELOCKED);
	}
	assert_true(box_stats(w).segments > 3);
	assert_int_equal(sl_wal_close(w, &d.err), 0);
	disk_fini(&d);
}

/* A child that has the log open, until it is killed. Returns its pid once it has the log. */
static pid_t holder(struct disk *d)
{
	int ready[2];
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		sl_wal *w = NULL;
		int rc = sl_wal_open(&w, "s", &d->opts, NULL);
		if (rc == 0)
			rc = sl_wal_append(w, "from the child", 14, NULL, NULL);
		if (write(ready[1], rc == 0 ? "y" : "n", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	char c = 0;
	assert_int_equal(read(ready[0], &c, 1), 1);
	assert_int_equal(c, 'y');
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void another_process_is_refused_and_the_lock_of_a_dead_one_does_not_stay(void **state)
{
	(void)state;
	struct disk d;
	sl_wal *w = NULL;
	disk_init(&d);
	pid_t pid = holder(&d);
	assert_int_equal(sl_wal_open(&w, "s", &d.opts, &d.err), SL_ELOCKED);
	assert_int_equal(kill(pid, SIGKILL), 0);
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(sl_wal_open(&w, "s", &d.opts, &d.err), 0);
	assert_int_equal(box_stats(w).records, 1);
	assert_int_equal(sl_wal_close(w, &d.err), 0);
	disk_fini(&d);
}

/* Whether every call on w is refused with SL_EFORKED. Runs in the child. */
static int all_refused(sl_wal *w)
{
	struct sl_wal_ticket t = {0};
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	struct sl_wal_record r;
	struct sl_wal_span span = {"x", 1};
	uint64_t sum;
	int bad = 0;
	bad += sl_wal_append(w, "x", 1, NULL, NULL) != SL_EFORKED;
	bad += sl_wal_append_many(w, &span, 1, NULL, NULL, NULL) != SL_EFORKED;
	bad += sl_wal_submit(w, "x", 1, &t, NULL) != SL_EFORKED;
	bad += sl_wal_wait(w, &t, 0, NULL) != SL_EFORKED;
	bad += sl_wal_sync(w, NULL) != SL_EFORKED;
	bad += sl_wal_read(w, 1, &r, NULL) != SL_EFORKED;
	bad += sl_wal_iterate(w, 0, sum_sequences, &sum, NULL) != SL_EFORKED;
	bad += sl_wal_mark_sent(w, 1, 1, NULL) != SL_EFORKED;
	bad += sl_wal_sender_start(w, &walmodel_sender, NULL, NULL) != SL_EFORKED;
	bad += sl_wal_sender_stop(w, 0, NULL) != SL_EFORKED;
	bad += sl_wal_get_stats(w, &st, NULL) != SL_EFORKED;
	bad += sl_wal_archive(w, NULL, true, NULL) != SL_EFORKED;
	bad += sl_wal_fd(w, NULL) != SL_EFORKED;
	bad += sl_wal_close(w, NULL) != SL_EFORKED;
	return bad;
}

static void a_forked_child_is_refused_and_the_parent_keeps_working(void **state)
{
	(void)state;
	struct disk d;
	sl_wal *w = NULL;
	disk_init(&d);
	assert_int_equal(sl_wal_open(&w, "s", &d.opts, &d.err), 0);
	(void)box_append(w, "x");
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(all_refused(w));
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(box_append(w, "y"), 2);
	assert_int_equal(sl_wal_close(w, &d.err), 0);
	assert_int_equal(sl_wal_open(&w, "s", &d.opts, &d.err), 0);
	assert_int_equal(box_stats(w).records, 2);
	assert_int_equal(sl_wal_close(w, &d.err), 0);
	disk_fini(&d);
}

static void closing_nothing_is_allowed(void **state)
{
	(void)state;
	assert_int_equal(sl_wal_close(NULL, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_are_private),
		cmocka_unit_test(a_symbolic_link_is_not_followed),
		cmocka_unit_test(the_default_folder_is_in_the_home_of_the_user),
		cmocka_unit_test(a_second_opener_in_the_same_process_is_refused),
		cmocka_unit_test(the_lock_stays_through_a_rotation),
		cmocka_unit_test(another_process_is_refused_and_the_lock_of_a_dead_one_does_not_stay),
		cmocka_unit_test(a_forked_child_is_refused_and_the_parent_keeps_working),
		cmocka_unit_test(closing_nothing_is_allowed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
