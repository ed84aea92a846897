/* SPDX-License-Identifier: Apache-2.0 */
/* SQLite databases in a tree: copied as a consistent snapshot, whichever process writes to them. */
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backup/create_kit.h"
#include "backup/manifest/manifest.h"

static sqlite3 *open_db(const struct ck *k, const char *name)
{
	char path[1024];
	sqlite3 *db;
	assert_int_equal(sqlite3_open(ck_path(k, name, path), &db), SQLITE_OK);
	assert_int_equal(sqlite3_busy_timeout(db, 20000), SQLITE_OK);
	return db;
}

static void run(sqlite3 *db, const char *sql)
{
	char *why = NULL;
	if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK)
		fail_msg("%s: %s", sql, why);
}

static int64_t number(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *s;
	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(s), SQLITE_ROW);
	int64_t n = sqlite3_column_int64(s, 0);
	assert_int_equal(sqlite3_finalize(s), SQLITE_OK);
	return n;
}

static sqlite3 *open_restored(const struct ck *k, const char *name)
{
	char path[1024];
	sqlite3 *db;
	(void)snprintf(path, sizeof(path), "%s%s/%s", k->out, k->tree, name);
	assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
	return db;
}

static void expect_sound(sqlite3 *db)
{
	sqlite3_stmt *s;
	assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &s, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(s), SQLITE_ROW);
	assert_string_equal((const char *)sqlite3_column_text(s, 0), "ok");
	assert_int_equal(sqlite3_finalize(s), SQLITE_OK);
}

static bool exists(const struct ck *k, const char *name)
{
	char path[1024];
	return access(ck_path(k, name, path), F_OK) == 0;
}

static void expect_listing(struct ck *k, const char *expected)
{
	char *text = ck_listing(k);
	assert_string_equal(text, expected);
	free(text);
}

/* ---- what is in the log is in the copy ---- */

static void a_database_with_its_log_is_one_file_in_the_snapshot(void **state)
{
	(void)state;
	struct ck k;
	ck_begin(&k, NULL);
	sqlite3 *db = open_db(&k, "x.db");
	run(db, "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; CREATE TABLE t(a); INSERT INTO t VALUES(1)");
	assert_true(exists(&k, "x.db-wal") && exists(&k, "x.db-shm"));
	ck_text(&k, "x.db-wal.txt", "no journal");
	ck_text(&k, "y-wal", "ownerless");
	ck_create_ok(&k);
	assert_int_equal(k.made.problems, 0);
	expect_listing(&k, "x.db\nx.db-wal.txt\ny-wal\n");
	ck_restore(&k);
	sqlite3 *copy = open_restored(&k, "x.db");
	assert_int_equal(number(copy, "SELECT sum(a) FROM t"), 1);
	expect_sound(copy);
	sqlite3_close(copy);
	/* Only the log changes: the database's file is as before, and yet it is copied anew. */
	run(db, "INSERT INTO t VALUES(41)");
	ck_create_ok(&k);
	ck_restore(&k);
	copy = open_restored(&k, "x.db");
	assert_int_equal(number(copy, "SELECT sum(a) FROM t"), 42);
	sqlite3_close(copy);
	sqlite3_close(db);
	ck_end(&k);
}

static void a_database_at_rest_is_taken_over_and_left_as_it_is(void **state)
{
	(void)state;
	struct ck k;
	struct stat before, after;
	char path[1024];
	for (int wal = 0; wal <= 1; wal++) {
		ck_begin(&k, NULL);
		sqlite3 *db = open_db(&k, "x.db");
		run(db, wal ? "PRAGMA journal_mode=WAL; CREATE TABLE t(a)" : "CREATE TABLE t(a)");
		run(db, "INSERT INTO t VALUES(7)");
		sqlite3_close(db);
		assert_false(exists(&k, "x.db-wal"));
		assert_int_equal(stat(ck_path(&k, "x.db", path), &before), 0);
		ck_create_ok(&k);
		expect_listing(&k, "x.db\n");
		/* Nothing is left beside it, and it was not written to. */
		assert_false(exists(&k, "x.db-wal") || exists(&k, "x.db-shm") || exists(&k, "x.db-journal"));
		assert_int_equal(stat(path, &after), 0);
		assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
		assert_int_equal(before.st_ctim.tv_nsec, after.st_ctim.tv_nsec);
		ck_create_ok(&k);
		assert_int_equal(k.made.files_unchanged, 1);
		ck_restore(&k);
		sqlite3 *copy = open_restored(&k, "x.db");
		assert_int_equal(number(copy, "SELECT a FROM t"), 7);
		sqlite3_close(copy);
		ck_end(&k);
	}
}

/* ---- locks ---- */

/* A program that backs up its own data has connections to it. */
static void connections_of_this_process_keep_their_locks(void **state)
{
	(void)state;
	for (int wal = 0; wal <= 1; wal++) {
		struct ck k;
		ck_begin(&k, NULL);
		sqlite3 *db = open_db(&k, "x.db");
		run(db, wal ? "PRAGMA journal_mode=WAL; CREATE TABLE t(a)" : "CREATE TABLE t(a)");
		run(db, "BEGIN; SELECT count(*) FROM t"); /* a read transaction: a shared lock */
		ck_create_ok(&k);
		assert_int_equal(k.made.problems, 0);
		/* Another process must still find it in use. */
		pid_t child = fork();
		assert_true(child >= 0);
		if (child == 0) {
			char path[1024];
			struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
			int fd = open(ck_path(&k, "x.db", path), O_RDWR | O_CLOEXEC);
			_exit(fd >= 0 && fcntl(fd, F_GETLK, &all) == 0 && all.l_type != F_UNLCK ? 0 : 1);
		}
		int status;
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		run(db, "COMMIT");
		sqlite3_close(db);
		ck_end(&k);
	}
}

/* ---- another process writes ---- */

/* Money is moved between two tables; no moment sees any of it missing. */
static void write_until_killed(const struct ck *k, bool wal)
{
	char path[1024];
	sqlite3 *db;
	if (sqlite3_open(ck_path(k, "x.db", path), &db) != SQLITE_OK)
		_exit(1);
	(void)sqlite3_busy_timeout(db, 60000);
	(void)sqlite3_exec(db, wal ? "PRAGMA synchronous=OFF" : "PRAGMA synchronous=OFF", NULL, NULL, NULL);
	for (unsigned i = 0;; i++) {
		char sql[400];
		(void)snprintf(sql, sizeof(sql),
			       "BEGIN IMMEDIATE; UPDATE a SET v = v - %1$u WHERE id = %2$u;"
			       "UPDATE b SET v = v + %1$u WHERE id = %3$u; COMMIT",
			       i % 7, i % 2000 + 1, (i * 7919) % 2000 + 1);
		if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
			(void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	}
}

static void a_database_that_others_write_to_is_copied_as_a_consistent_snapshot(void **state)
{
	(void)state;
	for (int wal = 0; wal <= 1; wal++) {
		struct ck k;
		int64_t last = -1;
		int moved = 0;
		ck_begin(&k, NULL);
		sqlite3 *db = open_db(&k, "x.db");
		run(db, wal ? "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF" : "PRAGMA synchronous=OFF");
		run(db,
		    "CREATE TABLE a(id INTEGER PRIMARY KEY, v, pad); CREATE TABLE b(id INTEGER PRIMARY KEY, v, pad);"
		    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)"
		    "INSERT INTO a SELECT i, 1000, zeroblob(500) FROM n;"
		    "INSERT INTO b SELECT id, 0, pad FROM a");
		sqlite3_close(db);
		pid_t child = fork();
		assert_true(child >= 0);
		if (child == 0)
			write_until_killed(&k, wal);
		for (int i = 0; i < 6 || moved < 2; i++) { /* the other one may stall for a while */
			ck_create_ok(&k);
			assert_int_equal(k.made.problems, 0);
			ck_restore(&k);
			sqlite3 *copy = open_restored(&k, "x.db");
			expect_sound(copy);
			assert_int_equal(number(copy, "SELECT (SELECT sum(v) FROM a) + (SELECT sum(v) FROM b)"),
					 2000000);
			int64_t b = number(copy, "SELECT sum(v) FROM b");
			moved += b != last;
			last = b;
			sqlite3_close(copy);
		}
		assert_int_equal(kill(child, SIGKILL), 0);
		assert_int_equal(waitpid(child, NULL, 0), child);
		print_message("# %s: %d copies differ from the one before\n", wal ? "log" : "journal", moved);
		ck_end(&k);
	}
}

/* ---- first ---- */

static void step(struct ck *k, const struct ck_problem *p)
{
	(void)p;
	sqlite3 *db = open_db(k, "z.db");
	run(db, "INSERT INTO t VALUES(1)");
	sqlite3_close(db);
}

static void databases_come_first_when_they_are_asked_to(void **state)
{
	(void)state;
	for (int first = 0; first <= 1; first++) {
		struct ck k;
		char path[1024];
		ck_begin(&k, NULL);
		sqlite3 *db = open_db(&k, "z.db");
		run(db, "CREATE TABLE t(a)");
		sqlite3_close(db);
		ck_text(&k, "a", "1");
		/* When the walk of the rest comes by here, the database is written to. */
		assert_int_equal(mknod(ck_path(&k, "b", path), S_IFSOCK | 0600, 0), 0);
		k.on_problem = step;
		k.create.databases_first = first ? SL_ON : SL_OFF;
		ck_create_ok(&k);
		expect_listing(&k, "a\nz.db\n");
		ck_restore(&k);
		sqlite3 *copy = open_restored(&k, "z.db");
		assert_int_equal(number(copy, "SELECT count(*) FROM t"), first ? 0 : 1);
		sqlite3_close(copy);
		ck_end(&k);
	}
}

/* ---- what is no database, or none that can be copied ---- */

static void files_that_only_look_like_databases_are_files(void **state)
{
	(void)state;
	struct ck k;
	uint8_t page[1024] = "SQLite format 2";
	ck_begin(&k, NULL);
	ck_write(&k, "a", page, sizeof(page));
	ck_write(&k, "a-journal", page, 100);
	memcpy(page, "SQLite format 3", 16);
	ck_write(&k, "short", page, 100);
	ck_create_ok(&k);
	assert_int_equal(k.made.problems, 0);
	ck_restore_and_compare(&k);
	ck_end(&k);
}

static void a_database_that_cannot_be_copied_is_reported_and_kept_as_a_file(void **state)
{
	(void)state;
	struct ck k;
	uint8_t pages[8192] = "SQLite format 3";
	ck_begin(&k, NULL);
	ck_fill(pages + 16, sizeof(pages) - 16, 3, 0);
	ck_write(&k, "broken", pages, sizeof(pages));
	ck_write(&k, "broken-wal", pages, 300);
	ck_create_ok(&k);
	assert_int_equal(k.made.problems, 1);
	assert_int_equal(ck_problem_of(&k, "/tree/broken")->problem, SL_BACKUP_CHANGED);
	ck_restore(&k);
	static const char *const kept[] = {"broken", "broken-wal"};
	for (size_t i = 0; i < 2; i++) {
		char path[1024], there[1024];
		(void)snprintf(there, sizeof(there), "%s%s/%s", k.out, k.tree, kept[i]);
		ck_compare(ck_path(&k, kept[i], path), there);
	}
	/* What only holds locks is not opened. */
	ck_write(&k, "broken-shm", (uint8_t[32768]){0}, 32768);
	ck_create_ok(&k);
	expect_listing(&k, "broken\nbroken-wal\n");
	/* Without a journal it would seem unchanged; it is reported as long as it is broken. */
	char journal[1024];
	assert_int_equal(unlink(ck_path(&k, "broken-wal", journal)), 0);
	(void)unlink(ck_path(&k, "broken-shm", journal));
	for (int i = 0; i < 2; i++) {
		ck_create_ok(&k);
		assert_int_equal(k.made.problems, 1);
		assert_int_equal(k.made.files_changed, 1);
	}
	ck_end(&k);
}

static void with_sqlite_off_databases_are_files(void **state)
{
	(void)state;
	struct ck k;
	ck_begin(&k, NULL);
	sqlite3 *db = open_db(&k, "x.db");
	run(db, "PRAGMA journal_mode=WAL; CREATE TABLE t(a)");
	k.create.sqlite = SL_OFF;
	pid_t child = fork(); /* not in this process: it holds locks */
	assert_true(child >= 0);
	if (child == 0) {
		struct sl_driver_local_opts local = {SL_DRIVER_LOCAL_OPTS_INIT};
		_exit(sl_driver_local_open(&k.driver, k.repo, &local, NULL) == 0 &&
				      sl_backup_open(&k.b, &k.driver, &k.opts, NULL) == 0 && ck_create(&k) == 0 &&
				      strcmp(ck_listing(&k), "x.db\nx.db-shm\nx.db-wal\n") == 0
			      ? 0
			      : 1);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	sqlite3_close(db);
	ck_end(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_database_with_its_log_is_one_file_in_the_snapshot),
		cmocka_unit_test(a_database_at_rest_is_taken_over_and_left_as_it_is),
		cmocka_unit_test(connections_of_this_process_keep_their_locks),
		cmocka_unit_test(a_database_that_others_write_to_is_copied_as_a_consistent_snapshot),
		cmocka_unit_test(databases_come_first_when_they_are_asked_to),
		cmocka_unit_test(files_that_only_look_like_databases_are_files),
		cmocka_unit_test(a_database_that_cannot_be_copied_is_reported_and_kept_as_a_file),
		cmocka_unit_test(with_sqlite_off_databases_are_files),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
