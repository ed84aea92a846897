/* SPDX-License-Identifier: Apache-2.0 */
/* Creates in processes of their own: killed, or without the right to read everything. */
#include <grp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backup/create_kit.h"

/* ---- killed ---- */

static void die(struct ck *k)
{
	(void)k;
	(void)kill(getpid(), SIGKILL);
}

static void what_a_killed_create_has_stored_is_used_by_the_next(void **state)
{
	(void)state;
	for (int64_t at = 1; at <= 4; at++) {
		struct ck k;
		struct bad_driver bad;
		sl_driver handle;
		struct ck_step s = {.k = &k, .at = at, .fn = die};
		ck_begin(&k, NULL);
		ck_many_files(&k);
		pid_t child = fork();
		assert_true(child >= 0);
		if (child == 0) {
			/* A handle of the child's own: the other does not work here. */
			struct sl_driver_local_opts local = {SL_DRIVER_LOCAL_OPTS_INIT};
			k.b = NULL;
			if (sl_driver_local_open(&k.driver, k.repo, &local, NULL) != 0)
				_exit(1);
			ck_step_in(&k, &bad, &handle, &s);
			(void)ck_create(&k);
			_exit(2);
		}
		int status;
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		ck_create_ok(&k);
		assert_true(at < 3 || k.made.known_blocks > 0);
		ck_restore_and_compare(&k);
		ck_check(&k);
		ck_end(&k);
	}
}

/* ---- what may not be read ---- */

static int create_as_another_user(struct ck *k)
{
	struct sl_driver_local_opts local = {SL_DRIVER_LOCAL_OPTS_INIT};
	if (setgroups(0, NULL) != 0 || setgid(65534) != 0 || setuid(65534) != 0)
		return 10;
	k->b = NULL;
	if (sl_driver_local_open(&k->driver, k->repo, &local, &k->err) != 0 ||
	    sl_backup_open(&k->b, &k->driver, &k->opts, &k->err) != 0)
		return 11;
	if (ck_create(k) != 0)
		return 12;
	const struct ck_problem *file = ck_problem_of(k, "/tree/closed"),
				*dir = ck_problem_of(k, "/tree/closed folder");
	if (file == NULL || file->problem != SL_BACKUP_UNREADABLE || dir == NULL ||
	    dir->problem != SL_BACKUP_UNREADABLE)
		return 13;
	if (k->n_problems != 2 || k->made.files != 1)
		return 14;
	char *text = ck_listing(k);
	int rc = strcmp(text, "closed folder\nopen\n") == 0 ? 0 : 15;
	free(text);
	return rc;
}

static void give_away(const char *path)
{
	char command[1200];
	(void)snprintf(command, sizeof(command), "chown -R 65534:65534 '%s'", path);
	assert_int_equal(system(command), 0);
}

static void unreadable_files_are_reported_and_do_not_stop_the_backup(void **state)
{
	(void)state;
	struct ck k;
	char path[1024];
	if (geteuid() != 0)
		skip();
	ck_begin(&k, NULL);
	assert_int_equal(chmod(k.dir, 0755), 0);
	ck_text(&k, "closed", "1");
	assert_int_equal(chmod(ck_path(&k, "closed", path), 0600), 0);
	ck_mkdir(&k, "closed folder");
	ck_text(&k, "closed folder/in", "2");
	assert_int_equal(chmod(ck_path(&k, "closed folder", path), 0700), 0);
	ck_text(&k, "open", "3");
	give_away(k.repo);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(create_as_another_user(&k));
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	ck_end(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_killed_create_has_stored_is_used_by_the_next),
		cmocka_unit_test(unreadable_files_are_reported_and_do_not_stop_the_backup),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
