/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree that changes while it is backed up, and creates that are cut off or run beside each other. A socket in the
 * tree is where a test steps in: it is reported on the walk's thread, when names before it are not read yet.
 */
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "backup/bad_driver.h"
#include "backup/create_kit.h"
#include "backup/manifest/manifest.h"

static void make_socket(struct ck *k, const char *name)
{
	char path[1024];
	assert_int_equal(mknod(ck_path(k, name, path), S_IFSOCK | 0600, 0), 0);
}

static void expect_listing(struct ck *k, const char *expected)
{
	char *text = ck_listing(k);
	assert_string_equal(text, expected);
	free(text);
}

static void restore_text(struct ck *k, const char *name, const char *expected)
{
	char path[1024], text[256] = "";
	(void)snprintf(path, sizeof(path), "%s%s/%s", k->out, k->tree, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	ssize_t n = read(fd, text, sizeof(text) - 1);
	close(fd);
	assert_int_equal(n, strlen(expected));
	assert_string_equal(text, expected);
}

/* ---- between the walk and the reading ---- */

static void remove_a(struct ck *k, const struct ck_problem *p)
{
	char path[1024];
	if (p->problem == SL_BACKUP_SKIPPED)
		assert_int_equal(unlink(ck_path(k, "a", path)), 0);
}

static void a_file_that_vanishes_is_reported_and_does_not_stop_the_backup(void **state)
{
	(void)state;
	struct ck k;
	ck_begin(&k, NULL);
	ck_text(&k, "a", "was here");
	make_socket(&k, "b");
	ck_text(&k, "c", "stays");
	k.on_problem = remove_a;
	ck_create_ok(&k);
	assert_int_equal(k.made.problems, 1); /* the socket is only reported */
	assert_int_equal(ck_problem_of(&k, "/tree/a")->problem, SL_BACKUP_VANISHED);
	expect_listing(&k, "c\n");
	ck_end(&k);
}

static void remove_c(struct ck *k, const struct ck_problem *p)
{
	char path[1024];
	if (p->problem == SL_BACKUP_SKIPPED)
		ck_remove(ck_path(k, "c", path));
}

static void a_name_that_is_listed_and_then_gone_is_reported(void **state)
{
	(void)state;
	struct ck k;
	ck_begin(&k, NULL);
	make_socket(&k, "b");
	ck_mkdir(&k, "c");
	ck_text(&k, "c/in", "1");
	ck_text(&k, "d", "2");
	k.on_problem = remove_c;
	ck_create_ok(&k);
	assert_int_equal(ck_problem_of(&k, "/tree/c")->problem, SL_BACKUP_VANISHED);
	expect_listing(&k, "d\n");
	ck_end(&k);
}

/* As long as before, but with another time. */
static void replace_a(struct ck *k, const struct ck_problem *p)
{
	char path[1024];
	struct timespec t[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	if (p->problem != SL_BACKUP_SKIPPED)
		return;
	ck_text(k, "a", "TEXT");
	assert_int_equal(utimensat(AT_FDCWD, ck_path(k, "a", path), t, 0), 0);
}

static void rewrite_a(struct ck *k, const struct ck_problem *p)
{
	if (p->problem == SL_BACKUP_SKIPPED)
		ck_text(k, "a", "another text, longer");
}

static void a_file_that_changed_since_it_was_listed_is_in_the_snapshot_as_it_is_now(void **state)
{
	(void)state;
	for (int longer = 0; longer <= 1; longer++) {
		struct ck k;
		char now[1024], there[1024];
		ck_begin(&k, NULL);
		ck_text(&k, "a", "text");
		make_socket(&k, "b");
		k.on_problem = longer ? rewrite_a : replace_a;
		ck_create_ok(&k);
		assert_int_equal(k.made.problems, 0);
		ck_restore(&k);
		restore_text(&k, "a", longer ? "another text, longer" : "TEXT");
		(void)snprintf(there, sizeof(there), "%s%s/a", k.out, k.tree);
		ck_compare(ck_path(&k, "a", now), there);
		ck_end(&k);
	}
}

static void link_a_elsewhere(struct ck *k, const struct ck_problem *p)
{
	char path[1024], other[1024];
	if (p->problem != SL_BACKUP_SKIPPED)
		return;
	assert_int_equal(unlink(ck_path(k, "a", path)), 0);
	(void)snprintf(other, sizeof(other), "%s/secret", k->dir);
	assert_int_equal(symlink(other, path), 0);
	assert_int_equal(rename(ck_path(k, "a folder", path), ck_path(k, "moved", other)), 0);
	assert_int_equal(symlink(k->dir, path), 0);
}

static void names_that_are_swapped_for_links_do_not_lead_elsewhere(void **state)
{
	(void)state;
	struct ck k;
	char secret[1024];
	ck_begin(&k, NULL);
	(void)snprintf(secret, sizeof(secret), "%s/secret", k.dir);
	int fd = open(secret, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, "secret", 6), 6);
	close(fd);
	ck_text(&k, "a", "open");
	ck_mkdir(&k, "a folder");
	ck_text(&k, "a folder/secret", "open");
	make_socket(&k, "b");
	k.on_problem = link_a_elsewhere;
	ck_create_ok(&k);
	assert_int_equal(ck_problem_of(&k, "/tree/a")->problem, SL_BACKUP_VANISHED);
	assert_int_equal(ck_problem_of(&k, "/tree/a folder/secret")->problem, SL_BACKUP_VANISHED);
	assert_int_equal(k.made.files, 0);
	assert_int_equal(k.made.read_bytes, 0);
	ck_end(&k);
}

/* C3 */
static void another_name_takes_the_place_of_one_that_vanished(void **state)
{
	(void)state;
	struct ck k;
	char one[1024], two[1024];
	ck_begin(&k, NULL);
	ck_text(&k, "a", "of three names");
	make_socket(&k, "b");
	assert_int_equal(link(ck_path(&k, "a", one), ck_path(&k, "c", two)), 0);
	assert_int_equal(link(one, ck_path(&k, "d", two)), 0);
	k.on_problem = remove_a;
	ck_create_ok(&k);
	assert_int_equal(ck_problem_of(&k, "/tree/a")->problem, SL_BACKUP_VANISHED);
	expect_listing(&k, "c\nd\n");
	assert_int_equal(k.made.files, 1);
	assert_int_equal(unlink(ck_path(&k, "b", one)), 0);
	ck_restore(&k);
	restore_text(&k, "c", "of three names");
	restore_text(&k, "d", "of three names");
	ck_check(&k);
	ck_end(&k);
}

static void move_folder_a(struct ck *k, const struct ck_problem *p)
{
	char from[1024], to[1024];
	(void)snprintf(to, sizeof(to), "%s/elsewhere", k->dir);
	if (p->problem == SL_BACKUP_SKIPPED)
		assert_int_equal(rename(ck_path(k, "a", from), to), 0);
}

/* The same, when the file itself is as the walk saw it: its folder was moved away. */
static void another_name_takes_the_place_of_one_whose_folder_was_moved(void **state)
{
	(void)state;
	struct ck k;
	char one[1024], two[1024];
	ck_begin(&k, NULL);
	ck_mkdir(&k, "a");
	ck_text(&k, "a/1", "of two names");
	make_socket(&k, "b");
	assert_int_equal(link(ck_path(&k, "a/1", one), ck_path(&k, "c", two)), 0);
	k.on_problem = move_folder_a;
	ck_create_ok(&k);
	assert_int_equal(ck_problem_of(&k, "/tree/a/1")->problem, SL_BACKUP_VANISHED);
	expect_listing(&k, "a\nc\n");
	assert_int_equal(k.made.files, 1);
	ck_restore(&k);
	restore_text(&k, "c", "of two names");
	ck_check(&k);
	ck_end(&k);
}

/* ---- while it is read ---- */

static void cut_big(struct ck *k)
{
	char path[1024];
	assert_int_equal(truncate(ck_path(k, "big", path), 6 << 20), 0);
}

static void grow_big(struct ck *k)
{
	char path[1024];
	int fd = open(ck_path(k, "big", path), O_WRONLY | O_APPEND | O_CLOEXEC);
	assert_int_equal(write(fd, "more", 4), 4);
	close(fd);
}

static void a_file_that_changes_while_it_is_read_is_reported_and_kept_as_read(void **state)
{
	(void)state;
	for (int grows = 0; grows <= 1; grows++) {
		struct ck k;
		struct bad_driver bad;
		sl_driver handle;
		struct ck_step s = {.k = &k, .at = 1, .fn = grows ? grow_big : cut_big};
		ck_begin(&k, NULL);
		ck_write_seed(&k, "big", 24u << 20, 1);
		ck_step_in(&k, &bad, &handle, &s);
		ck_create_ok(&k);
		assert_int_equal(k.made.problems, 1);
		assert_int_equal(ck_problem_of(&k, "/tree/big")->problem, SL_BACKUP_CHANGED);
		assert_int_equal(k.made.files, 1);
		assert_true(grows ? k.made.bytes == 24u << 20 : k.made.bytes < 24u << 20);
		ck_step_out(&k, &bad);
		ck_check(&k);
		ck_restore(&k);
		/* What was reported as changed is read again, whatever its times say. */
		ck_create_ok(&k);
		assert_int_equal(k.made.files_unchanged, 0);
		assert_int_equal(k.made.problems, 0);
		ck_restore_and_compare(&k);
		ck_end(&k);
	}
}

/* ---- cut off ---- */

static void stop(struct ck *k)
{
	sl_backup_stop(k->b);
}

static int count_snapshot(const struct sl_backup_snapshot *s, void *ctx)
{
	(void)s;
	(*(int *)ctx)++;
	return 0;
}

static void what_a_stopped_create_has_stored_is_used_by_the_next(void **state)
{
	(void)state;
	struct ck k;
	struct bad_driver bad;
	sl_driver handle;
	struct ck_step s = {.k = &k, .at = 2, .fn = stop};
	int snapshots = 0;
	ck_begin(&k, NULL);
	ck_many_files(&k);
	ck_step_in(&k, &bad, &handle, &s);
	assert_int_equal(ck_create(&k), SL_ECANCELLED);
	assert_int_equal(sl_backup_list(k.b, count_snapshot, NULL, &snapshots, NULL), 0);
	assert_int_equal(snapshots, 0);
	ck_step_out(&k, &bad);
	ck_create_ok(&k);
	assert_true(k.made.known_blocks > 0);
	assert_true(k.made.new_blocks > 1);
	assert_int_equal(k.made.files, 40);
	ck_restore_and_compare(&k);
	ck_check(&k);
	print_message("# %d blocks were there, %d were not\n", (int)k.made.known_blocks, (int)k.made.new_blocks);
	ck_end(&k);
}

/* ---- beside each other ---- */

static void *create_beside(void *arg)
{
	struct ck *k = arg;
	for (int i = 0; i < 3; i++)
		if (ck_create(k) != 0)
			return (void *)k->err.msg;
	return NULL;
}

static void two_creates_at_once_both_hold_everything(void **state)
{
	(void)state;
	struct ck k, other;
	pthread_t thread;
	void *failed;
	ck_begin(&k, NULL);
	ck_mixed_tree(&k);
	ck_many_files(&k);
	memcpy(&other, &k, sizeof(other));
	other.paths[0] = other.tree;
	other.create.paths = other.paths;
	other.opts.env = &other.env;
	other.create.host = "other";
	struct sl_driver_local_opts local = {SL_DRIVER_LOCAL_OPTS_INIT};
	assert_int_equal(sl_driver_local_open(&other.driver, k.repo, &local, NULL), 0);
	assert_int_equal(sl_backup_open(&other.b, &other.driver, &other.opts, NULL), 0);
	assert_int_equal(pthread_create(&thread, NULL, create_beside, &other), 0);
	const char *mine = create_beside(&k);
	assert_int_equal(pthread_join(thread, &failed), 0);
	if (mine != NULL || failed != NULL)
		fail_msg("%s", mine != NULL ? mine : (const char *)failed);
	ck_restore_and_compare(&k);
	ck_restore_and_compare(&other);
	ck_check(&k);
	sl_backup_close(other.b);
	sl_driver_close(&other.driver);
	ck_end(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_that_vanishes_is_reported_and_does_not_stop_the_backup),
		cmocka_unit_test(a_name_that_is_listed_and_then_gone_is_reported),
		cmocka_unit_test(a_file_that_changed_since_it_was_listed_is_in_the_snapshot_as_it_is_now),
		cmocka_unit_test(names_that_are_swapped_for_links_do_not_lead_elsewhere),
		cmocka_unit_test(another_name_takes_the_place_of_one_that_vanished),
		cmocka_unit_test(another_name_takes_the_place_of_one_whose_folder_was_moved),
		cmocka_unit_test(a_file_that_changes_while_it_is_read_is_reported_and_kept_as_read),
		cmocka_unit_test(what_a_stopped_create_has_stored_is_used_by_the_next),
		cmocka_unit_test(two_creates_at_once_both_hold_everything),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
