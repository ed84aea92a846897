/* SPDX-License-Identifier: Apache-2.0 */
/* What a create reads stays as it is: nothing in the tree is written, made or removed, whatever lies beside a database.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backup/create/source_vfs.h"
#include "backup/create_kit.h"

/* ---- a picture of the tree ---- */

static uint64_t sum_of(const char *path)
{
	uint8_t buf[4096];
	uint64_t sum = 14695981039346656037u;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOATIME);
	for (ssize_t n; fd >= 0 && (n = read(fd, buf, sizeof(buf))) > 0;)
		for (ssize_t i = 0; i < n; i++)
			sum = (sum ^ buf[i]) * 1099511628211u;
	if (fd >= 0)
		(void)close(fd);
	return sum;
}

/* Names, inodes, owners, sizes, times and contents; free. */
static char *picture(const struct ck *k)
{
	struct dirent **names;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);
	int n = scandir(k->tree, &names, NULL, alphasort);
	assert_true(n >= 0);
	for (int i = 0; i < n; i++) {
		char path[1024];
		struct stat st;
		assert_int_equal(lstat(ck_path(k, names[i]->d_name, path), &st), 0);
		if (strcmp(names[i]->d_name, "..") != 0)
			(void)fprintf(out, "%s %lu %o %u:%u %ld %ld.%09ld %ld.%09ld %016lx\n", names[i]->d_name,
				      (unsigned long)st.st_ino, st.st_mode, st.st_uid, st.st_gid, (long)st.st_size,
				      (long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (long)st.st_ctim.tv_sec,
				      st.st_ctim.tv_nsec, S_ISREG(st.st_mode) ? (unsigned long)sum_of(path) : 0ul);
		free(names[i]);
	}
	free(names);
	assert_int_equal(fclose(out), 0);
	return text;
}

/* Twice, so that a parent is there, too; with databases in their turn and ahead of everything. */
static void create_and_expect_untouched(struct ck *k)
{
	char *before = picture(k);
	for (int i = 0; i < 3; i++) {
		k->create.databases_first = i == 2 ? SL_ON : SL_OFF;
		ck_create_ok(k);
		char *after = picture(k);
		assert_string_equal(before, after);
		free(after);
	}
	free(before);
}

/* ---- databases, made by another process ---- */

static void exec_or_exit(sqlite3 *db, const char *sql)
{
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		_exit(1);
}

struct other {
	pid_t pid;
	int hold; /* it lives until this is closed */
};

/* Runs the statements on its connection and then waits for the end: killed, so that nothing is tidied up. */
static void start_other(struct other *o, const struct ck *k, const char *name, const char *sql)
{
	int ready[2], hold[2];
	char path[1024], byte = 0;
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
	o->pid = fork();
	assert_true(o->pid >= 0);
	if (o->pid == 0) {
		sqlite3 *db;
		(void)close(hold[1]);
		if (sqlite3_open(ck_path(k, name, path), &db) != SQLITE_OK)
			_exit(1);
		exec_or_exit(db, sql);
		if (write(ready[1], &byte, 1) != 1)
			_exit(1);
		(void)!read(hold[0], &byte, 1);
		_exit(0);
	}
	(void)close(hold[0]);
	(void)close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	(void)close(ready[0]);
	o->hold = hold[1];
}

static void end_other(struct other *o)
{
	int status;
	(void)close(o->hold);
	assert_int_equal(waitpid(o->pid, &status, 0), o->pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void leave(const struct ck *k, const char *name, const char *sql)
{
	struct other o;
	start_other(&o, k, name, sql);
	end_other(&o);
}

/* Opened and closed as it should be. */
static void make_db(const struct ck *k, const char *name, const char *sql)
{
	char path[1024];
	sqlite3 *db;
	assert_int_equal(sqlite3_open(ck_path(k, name, path), &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void expect_listing(struct ck *k, const char *expected)
{
	char *text = ck_listing(k);
	assert_string_equal(text, expected);
	free(text);
}

static int64_t restored_rows(struct ck *k, const char *name)
{
	char path[1024];
	sqlite3 *db;
	sqlite3_stmt *s;
	ck_restore(k);
	(void)snprintf(path, sizeof(path), "%s%s/%s", k->out, k->tree, name);
	assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &s, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(s), SQLITE_ROW);
	assert_string_equal((const char *)sqlite3_column_text(s, 0), "ok");
	assert_int_equal(sqlite3_finalize(s), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "SELECT count(*) FROM t", -1, &s, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(s), SQLITE_ROW);
	int64_t n = sqlite3_column_int64(s, 0);
	assert_int_equal(sqlite3_finalize(s), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	return n;
}

#define ROWS(n) "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < " #n ") "
#define SEVEN "CREATE TABLE t(a, pad); " ROWS(7) "INSERT INTO t SELECT i, zeroblob(300) FROM n; "

/* ---- nothing is going on ---- */

static void databases_at_rest_are_copied_and_left_as_they_are(void **state)
{
	(void)state;
	static const char *const modes[] = {"DELETE", "TRUNCATE", "PERSIST", "WAL"};
	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		struct ck k;
		char sql[400];
		ck_begin(&k, NULL);
		(void)snprintf(sql, sizeof(sql), "PRAGMA journal_mode=%s; %s", modes[i], SEVEN);
		make_db(&k, "x?%41#.db", sql);
		assert_int_equal(chmod(k.tree, 0555), 0);
		create_and_expect_untouched(&k);
		assert_int_equal(chmod(k.tree, 0755), 0);
		assert_int_equal(k.made.problems, 0);
		expect_listing(&k, "x?%41#.db\n");
		assert_int_equal(restored_rows(&k, "x?%41#.db"), 7);
		ck_end(&k);
	}
}

/* ---- journals that another program left ---- */

/* Its changes are in the file, and what they replaced only in the journal: both are kept, for SQLite to put right. */
static void a_hot_journal_is_kept_with_its_database_and_neither_is_touched(void **state)
{
	(void)state;
	struct ck k;
	ck_begin(&k, NULL);
	make_db(&k, "x.db", SEVEN);
	leave(&k, "x.db",
	      "PRAGMA synchronous=OFF; PRAGMA cache_size=2; BEGIN; UPDATE t SET a = 0; " ROWS(
		      500) "INSERT INTO t SELECT i, zeroblob(3000) FROM n");
	create_and_expect_untouched(&k);
	expect_listing(&k, "x.db\nx.db-journal\n");
	assert_int_equal(k.made.problems, 1);
	assert_int_equal(ck_problem_of(&k, "/tree/x.db")->problem, SL_BACKUP_AS_FILE);
	assert_non_null(strstr(ck_problem_of(&k, "/tree/x.db")->msg, "ended in the middle of a change"));
	assert_int_equal(restored_rows(&k, "x.db"), 7);
	ck_end(&k);
}

static void a_journal_that_names_another_file_does_not_lead_to_it(void **state)
{
	(void)state;
	static const uint8_t magic[8] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
	for (int real = 0; real <= 1; real++) {
		struct ck k;
		char victim[1024];
		uint8_t journal[2048];
		uint32_t sum = 0;
		ck_begin(&k, NULL);
		make_db(&k, "x.db", SEVEN);
		ck_text(&k, "victim", "owned by another");
		(void)ck_path(&k, "victim", victim);
		size_t n = strlen(victim), at = 600;
		memset(journal, 'J', at);
		if (real)
			memcpy(journal, magic, sizeof(magic));
		memcpy(journal + at, victim, n);
		at += n;
		for (size_t i = 0; i < n; i++)
			sum += (uint8_t)victim[i];
		const uint32_t tail[2] = {(uint32_t)n, sum};
		for (size_t i = 0; i < 8; i++)
			journal[at++] = (uint8_t)(tail[i / 4] >> (24 - i % 4 * 8));
		memcpy(journal + at, magic, sizeof(magic));
		ck_write(&k, "x.db-journal", journal, at + sizeof(magic));
		create_and_expect_untouched(&k);
		expect_listing(&k, "victim\nx.db\nx.db-journal\n");
		assert_int_equal(k.made.problems, real);
		ck_end(&k);
	}
}

static void rows_in_a_log_that_no_process_has_open_are_in_the_copy(void **state)
{
	(void)state;
	for (int shm = 0; shm <= 1; shm++) {
		struct ck k;
		char path[1024];
		ck_begin(&k, NULL);
		make_db(&k, "x.db", "PRAGMA journal_mode=WAL; " SEVEN);
		leave(&k, "x.db", "INSERT INTO t VALUES(8, 8)");
		if (!shm)
			assert_int_equal(unlink(ck_path(&k, "x.db-shm", path)), 0);
		create_and_expect_untouched(&k);
		assert_int_equal(k.made.problems, 0);
		expect_listing(&k, "x.db\n");
		assert_int_equal(restored_rows(&k, "x.db"), 8);
		ck_end(&k);
	}
}

/* ---- another program has it open ---- */

static void rows_in_the_log_of_a_program_that_runs_are_in_the_copy(void **state)
{
	(void)state;
	static const char *const first[] = {"SELECT 1", "PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA wal_checkpoint"};
	for (size_t i = 0; i < sizeof(first) / sizeof(*first); i++) {
		struct ck k;
		struct other o;
		char sql[400];
		ck_begin(&k, NULL);
		make_db(&k, "x.db", "PRAGMA journal_mode=WAL; " SEVEN);
		(void)snprintf(sql, sizeof(sql), "INSERT INTO t VALUES(8, 8); %s; INSERT INTO t VALUES(9, 9)",
			       first[i]);
		start_other(&o, &k, "x.db", sql);
		create_and_expect_untouched(&k);
		assert_int_equal(k.made.problems, 0);
		expect_listing(&k, "x.db\n");
		assert_int_equal(restored_rows(&k, "x.db"), 9);
		end_other(&o);
		ck_end(&k);
	}
}

/* The first rows after an empty log, and a log that was emptied: there is no reader's mark yet that fits. */
static void an_empty_log_of_a_program_that_runs_is_no_obstacle(void **state)
{
	(void)state;
	static const char *const last[] = {"SELECT count(*) FROM t",
					   "INSERT INTO t VALUES(8, 8); DELETE FROM t WHERE a = 8; "
					   "PRAGMA wal_checkpoint(TRUNCATE)"};
	for (size_t i = 0; i < sizeof(last) / sizeof(*last); i++) {
		struct ck k;
		struct other o;
		ck_begin(&k, NULL);
		make_db(&k, "x.db", "PRAGMA journal_mode=WAL; " SEVEN);
		start_other(&o, &k, "x.db", last[i]);
		create_and_expect_untouched(&k);
		assert_int_equal(k.made.problems, 0);
		expect_listing(&k, "x.db\n");
		assert_int_equal(restored_rows(&k, "x.db"), 7);
		end_other(&o);
		ck_end(&k);
	}
}

static void a_transaction_that_is_open_in_a_journal_is_not_in_the_copy(void **state)
{
	(void)state;
	struct ck k;
	struct other o;
	ck_begin(&k, NULL);
	make_db(&k, "x.db", SEVEN);
	start_other(&o, &k, "x.db", "BEGIN IMMEDIATE; INSERT INTO t VALUES(8, 8)");
	create_and_expect_untouched(&k);
	assert_int_equal(k.made.problems, 0);
	expect_listing(&k, "x.db\n");
	assert_int_equal(restored_rows(&k, "x.db"), 7);
	end_other(&o);
	ck_end(&k);
}

static void write_and_close(const struct ck *k)
{
	pid_t child = fork();
	int status;
	assert_true(child >= 0);
	if (child == 0) {
		char path[1024];
		sqlite3 *db;
		if (sqlite3_open(ck_path(k, "x.db", path), &db) != SQLITE_OK)
			_exit(1);
		exec_or_exit(db, "INSERT INTO t VALUES(8, 8); PRAGMA wal_checkpoint");
		_exit(sqlite3_close(db) == SQLITE_OK ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Without a -shm there is no lock that would keep others from writing; but what they do cannot be undone unseen. */
static void who_writes_while_a_database_without_a_shm_is_read_is_noticed(void **state)
{
	(void)state;
	struct ck k;
	char uri[BK_SOURCE_NAME_BYTES + 40], name[BK_SOURCE_NAME_BYTES];
	sqlite3 *db;
	ck_begin(&k, NULL);
	make_db(&k, "x.db", "PRAGMA journal_mode=WAL; " SEVEN);
	int dir = open(k.tree, O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_non_null(sl__bk_source_vfs());
	sl__bk_source_name(name, dir, "x.db");
	(void)snprintf(uri, sizeof(uri), "file:%s?readonly_shm=1", name);
	assert_int_equal(sqlite3_open_v2(uri, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, sl__bk_source_vfs()->zName),
			 SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "BEGIN; SELECT count(*) FROM t", NULL, NULL, NULL), SQLITE_OK);
	assert_false(sl__bk_source_disturbed(db));
	write_and_close(&k);
	assert_true(sl__bk_source_disturbed(db));
	/* And it writes nothing, whatever statements it is given. */
	char *before = picture(&k);
	assert_int_not_equal(sqlite3_exec(db, "COMMIT; PRAGMA journal_mode=DELETE; DELETE FROM t", NULL, NULL, NULL),
			     SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	char *after = picture(&k);
	assert_string_equal(before, after);
	free(before);
	free(after);
	assert_int_equal(close(dir), 0);
	ck_end(&k);
}

/* ---- a database that only its program can read ---- */

static void the_log_of_a_database_that_cannot_be_copied_is_kept(void **state)
{
	(void)state;
	struct ck k;
	struct other o;
	ck_begin(&k, NULL);
	make_db(&k, "x.db", "PRAGMA journal_mode=WAL; " SEVEN);
	start_other(&o, &k, "x.db", "PRAGMA locking_mode=EXCLUSIVE; INSERT INTO t VALUES(8, 8)");
	for (int first = 0; first <= 1; first++) {
		k.create.databases_first = first ? SL_ON : SL_OFF;
		char *before = picture(&k);
		ck_create_ok(&k);
		char *after = picture(&k);
		assert_string_equal(before, after);
		free(before);
		free(after);
		assert_int_equal(k.made.problems, 1);
		assert_int_equal(k.problems[0].problem, SL_BACKUP_AS_FILE);
		expect_listing(&k, "x.db\nx.db-wal\n");
		assert_int_equal(restored_rows(&k, "x.db"), 8);
	}
	end_other(&o);
	ck_end(&k);
}

static void a_copy_that_there_is_no_place_for_leaves_the_tree_as_it_is(void **state)
{
	(void)state;
	struct ck k;
	struct other o;
	ck_begin(&k, NULL);
	make_db(&k, "x.db", "PRAGMA journal_mode=WAL; " SEVEN);
	start_other(&o, &k, "x.db", "INSERT INTO t VALUES(8, 8)");
	assert_int_equal(setenv("TMPDIR", "/nowhere", 1), 0);
	create_and_expect_untouched(&k);
	assert_int_equal(unsetenv("TMPDIR"), 0);
	assert_int_equal(k.made.problems, 1);
	assert_int_equal(k.problems[0].problem, SL_BACKUP_AS_FILE);
	expect_listing(&k, "x.db\nx.db-wal\n");
	assert_int_equal(restored_rows(&k, "x.db"), 8);
	end_other(&o);
	ck_end(&k);
}

/* ---- names are not enough ---- */

static void files_that_are_only_named_like_journals_are_in_the_snapshot(void **state)
{
	(void)state;
	struct ck k;
	char path[1024];
	ck_begin(&k, NULL);
	make_db(&k, "one", SEVEN);
	ck_text(&k, "one-journal", "dear diary");
	ck_text(&k, "one-shm", "shhhm");
	ck_text(&k, "one-wal", "wallpapers that I like");
	make_db(&k, "two", "PRAGMA journal_mode=WAL; " SEVEN);
	assert_int_equal(symlink("nowhere", ck_path(&k, "two-wal", path)), 0);
	assert_int_equal(symlink("nowhere", ck_path(&k, "two-shm", path)), 0);
	ck_mkdir(&k, "two-journal");
	make_db(&k, "xyz", SEVEN);
	assert_int_equal(mkfifo(ck_path(&k, "xyz-journal", path), 0600), 0);
	assert_int_equal(mkfifo(ck_path(&k, "xyz-shm", path), 0600), 0);
	assert_int_equal(mkfifo(ck_path(&k, "xyz-wal", path), 0600), 0);
	create_and_expect_untouched(&k);
	assert_int_equal(k.made.problems, 0);
	expect_listing(&k, "one\none-journal\none-shm\none-wal\ntwo\ntwo-journal\ntwo-shm\ntwo-wal\n"
			   "xyz\nxyz-journal\nxyz-shm\nxyz-wal\n");
	ck_end(&k);
}

/* ---- without SQLite ---- */

static void without_sqlite_a_copy_of_the_parent_is_not_taken_over(void **state)
{
	(void)state;
	struct ck k;
	ck_begin(&k, NULL);
	make_db(&k, "x.db", "PRAGMA journal_mode=WAL; " SEVEN);
	ck_create_ok(&k);
	leave(&k, "x.db", "INSERT INTO t VALUES(8, 8)");
	k.create.sqlite = SL_OFF;
	ck_create_ok(&k);
	expect_listing(&k, "x.db\nx.db-shm\nx.db-wal\n");
	assert_int_equal(restored_rows(&k, "x.db"), 8);
	ck_end(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(databases_at_rest_are_copied_and_left_as_they_are),
		cmocka_unit_test(a_hot_journal_is_kept_with_its_database_and_neither_is_touched),
		cmocka_unit_test(a_journal_that_names_another_file_does_not_lead_to_it),
		cmocka_unit_test(rows_in_a_log_that_no_process_has_open_are_in_the_copy),
		cmocka_unit_test(rows_in_the_log_of_a_program_that_runs_are_in_the_copy),
		cmocka_unit_test(an_empty_log_of_a_program_that_runs_is_no_obstacle),
		cmocka_unit_test(a_transaction_that_is_open_in_a_journal_is_not_in_the_copy),
		cmocka_unit_test(who_writes_while_a_database_without_a_shm_is_read_is_noticed),
		cmocka_unit_test(the_log_of_a_database_that_cannot_be_copied_is_kept),
		cmocka_unit_test(a_copy_that_there_is_no_place_for_leaves_the_tree_as_it_is),
		cmocka_unit_test(files_that_are_only_named_like_journals_are_in_the_snapshot),
		cmocka_unit_test(without_sqlite_a_copy_of_the_parent_is_not_taken_over),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
