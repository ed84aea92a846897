/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SQLite store and its file: who may read it, what is no database, a full disk, the lock between processes, two
 * processes that migrate at once, a caller's own connection.
 *
 * Other processes are this program again: argv[1] says what they do, and they talk through stdin and stdout.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "jobs/sqlite_place.h"
#include "jobs/store/ops.h"
#include "support/fault.h"
#include "support/vclock.h"

static struct sl_err err;

/* flock as the store calls it, which can fail as on a file system without locks. */
static _Atomic int no_locks; /* 0: never, LOCK_NB: for calls that do not wait, LOCK_EX: for calls that do */
/* The next lock is granted only after this time: another process holds it. */
static struct vclock *lock_clock;
static int64_t lock_takes_ms;

int flock(int fd, int how)
{
	int deny = atomic_load(&no_locks);
	if ((how & LOCK_EX) && lock_takes_ms > 0) {
		vclock_advance_ms(lock_clock, lock_takes_ms);
		lock_takes_ms = 0;
	}
	if ((how & LOCK_EX) && deny == (how & LOCK_NB ? LOCK_NB : LOCK_EX)) {
		errno = ENOLCK;
		return -1;
	}
	return (int)syscall(SYS_flock, fd, how);
}

static int try_open(sl_store *s, const char *path, int64_t timeout_ms)
{
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .statement_timeout_ms = timeout_ms};
	memset(&err, 0, sizeof(err));
	return sl_store_sqlite_open(s, path, &opts, &err);
}

static sl_store open_at(const char *path)
{
	sl_store s;
	if (try_open(&s, path, 0) != 0)
		fail_msg("open: %s", err.msg);
	return s;
}

static int start_tx(const sl_store *s, sl_store_tx *tx, uint64_t *id)
{
	struct sl_new_chain chain = {.job = {.type = "t", .input = "{}"}};
	struct sl_started out = {0};
	memset(&err, 0, sizeof(err));
	int rc = s->ops->start(s->ctx, &chain, 1, &(struct sl_store_scope){.tx = tx}, &out, &err);
	*id = out.chain_id;
	return rc;
}

static int start(const sl_store *s)
{
	uint64_t id;
	return start_tx(s, NULL, &id);
}

/* With a time limit of a millisecond, the moment in which the helper thread hands a lock over may be too long. */
static int start_at_last(const sl_store *s)
{
	int rc;
	do
		rc = start(s);
	while (rc == SL_EAGAIN);
	return rc;
}

/* Is the lock file of the database locked? */
static bool lock_is_held(const char *path)
{
	char name[320];
	(void)snprintf(name, sizeof(name), "%s-lock", path);
	int fd = open(name, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	bool held = flock(fd, LOCK_EX | LOCK_NB) != 0;
	close(fd);
	return held;
}

static unsigned mode_of(const char *path, const char *suffix)
{
	char name[320];
	struct stat st;
	(void)snprintf(name, sizeof(name), "%s%s", path, suffix);
	return stat(name, &st) == 0 ? st.st_mode & 07777 : 0;
}

static int set_up(void **state)
{
	static struct sqlite_place place;
	*state = &place;
	return sqlite_place_init(&place);
}

static int tear_down(void **state)
{
	sqlite_place_fini(*state);
	return 0;
}

/* ---- the file ---- */

static void the_files_are_the_owners_alone_and_missing_folders_are_made(void **state)
{
	struct sqlite_place *p = *state;
	char path[256], dir[128];
	(void)snprintf(dir, sizeof(dir), "%s/a/b", p->dir);
	(void)snprintf(path, sizeof(path), "%s/jobs.db", dir);
	mode_t old = umask(0);
	sl_store s = open_at(path);
	assert_int_equal(start(&s), 0);
	assert_int_equal(mode_of(path, ""), 0600);
	assert_int_equal(mode_of(path, "-wal"), 0600);
	assert_int_equal(mode_of(path, "-shm"), 0600);
	assert_int_equal(mode_of(path, "-lock"), 0600);
	assert_int_equal(mode_of(dir, ""), 0700);
	umask(old);
	sl_store_close(&s);
}

static void what_is_no_database_is_refused_and_left_alone(void **state)
{
	struct sqlite_place *p = *state;
	sl_store s;
	char text[64] = "";
	FILE *f = fopen(p->path, "w");
	fputs("this is a letter to a friend, and no database at all", f);
	fclose(f);
	assert_int_equal(try_open(&s, p->path, 0), SL_ECORRUPT);
	assert_int_equal(err.error_class, SL_CLASS_FATAL);
	assert_non_null(strstr(err.msg, "not a database"));
	f = fopen(p->path, "r");
	assert_non_null(fgets(text, sizeof(text), f));
	fclose(f);
	assert_string_equal(text, "this is a letter to a friend, and no database at all");
}

static void a_newer_schema_is_refused_and_kept(void **state)
{
	struct sqlite_place *p = *state;
	sl_store s = open_at(p->path);
	sl_store_close(&s);
	assert_int_equal(sqlite_do(p->path, "UPDATE sluice_meta SET value=99 WHERE name='schema_version'"), 0);
	assert_int_equal(try_open(&s, p->path, 0), SL_EUNSUPPORTED);
	assert_non_null(strstr(err.msg, "99"));
	assert_string_equal(sqlite_ask(p->path, "SELECT value FROM sluice_meta WHERE name='schema_version'"), "99");
}

static void without_leave_to_migrate_an_old_schema_is_refused(void **state)
{
	struct sqlite_place *p = *state;
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .migrate = SL_OFF};
	sl_store s;
	assert_int_equal(sl_store_sqlite_open(&s, p->path, &opts, &err), SL_EUNSUPPORTED);
	s = open_at(p->path);
	sl_store_close(&s);
	assert_int_equal(sl_store_sqlite_open(&s, p->path, &opts, &err), 0);
	sl_store_close(&s);
}

static void a_store_may_live_in_a_file_with_tables_of_the_caller(void **state)
{
	struct sqlite_place *p = *state;
	sqlite3 *db;
	assert_int_equal(sqlite3_open(p->path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "CREATE TABLE job(x); INSERT INTO job VALUES(7); PRAGMA user_version=5", NULL,
				      NULL, NULL),
			 0);
	(void)sqlite3_close(db);
	sl_store s = open_at(p->path);
	assert_int_equal(start(&s), 0);
	sl_store_close(&s);
	assert_string_equal(sqlite_ask(p->path, "SELECT x FROM job"), "7");
	assert_string_equal(sqlite_ask(p->path, "PRAGMA user_version"), "5");
}

static void closing_leaves_the_log_for_the_next(void **state)
{
	struct sqlite_place *p = *state;
	char wal[256];
	struct stat st;
	sl_store s = open_at(p->path);
	assert_int_equal(start(&s), 0);
	sl_store_close(&s);
	(void)snprintf(wal, sizeof(wal), "%s-wal", p->path);
	assert_int_equal(stat(wal, &st), 0);
	assert_true(st.st_size > 0);
	assert_string_equal(sqlite_ask(p->path, "SELECT count(*) FROM sluice_job"), "1");
}

static void the_log_does_not_grow_for_ever(void **state)
{
	enum { N = 2000 };
	struct sqlite_place *p = *state;
	static struct sl_new_chain chains[N];
	static struct sl_started started[N];
	static char input[2001];
	char wal[256];
	struct stat st;
	sl_store s = open_at(p->path);
	memset(input, '7', sizeof(input) - 1);
	for (size_t i = 0; i < N; i++)
		chains[i] = (struct sl_new_chain){.job = {.type = "t", .input = input}};
	/* 80 MB in all, in commits of 4 MB. */
	for (int round = 0; round < 20; round++)
		assert_int_equal(s.ops->start(s.ctx, chains, N, NULL, started, &err), 0);
	(void)snprintf(wal, sizeof(wal), "%s-wal", p->path);
	assert_int_equal(stat(wal, &st), 0);
	assert_true(st.st_size < 40 << 20);
	sl_store_close(&s);
	assert_null(sqlite_wrong(p->path));
}

static void two_names_of_a_file_have_one_lock(void **state)
{
	struct sqlite_place *p = *state;
	char other[256];
	sl_store_tx *tx;
	sl_store a = open_at(p->path), b;
	(void)snprintf(other, sizeof(other), "%s/other.db", p->dir);
	assert_int_equal(symlink(p->path, other), 0);
	assert_int_equal(try_open(&b, other, 1), 0);
	assert_int_equal(a.ops->begin(a.ctx, &tx, &err), 0);
	assert_int_equal(start(&b), SL_EAGAIN);
	a.ops->rollback(tx);
	assert_int_equal(start_at_last(&b), 0);
	sl_store_close(&b);
	sl_store_close(&a);
}

static void a_forked_child_is_refused(void **state)
{
	struct sqlite_place *p = *state;
	sl_store s = open_at(p->path);
	pid_t pid = fork();
	if (pid == 0) {
		uint64_t id;
		int64_t now;
		bool good = start_tx(&s, NULL, &id) == SL_EFORKED && s.ops->now_ms(s.ctx, &now, NULL) == SL_EFORKED;
		sl_store_close(&s);
		_exit(good ? 0 : 1);
	}
	int status = -1;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(start(&s), 0);
	sl_store_close(&s);
}

/* ---- things that need another user or another disk: done in a child, which says by its exit code where it failed ----
 */

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, err.msg);                  \
			return 1;                                                                                      \
		}                                                                                                      \
	} while (0)
#define CANNOT 77

static int in_child(int (*fn)(struct sqlite_place *), struct sqlite_place *p)
{
	int status = -1;
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0)
		_exit(fn(p));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* 0, or not possible for this user: then the output says that nothing was seen. */
static void assert_can(int rc)
{
	if (rc == CANNOT)
		printf("# not tried: this user may neither change identity nor mount\n");
	else
		assert_int_equal(rc, 0);
}

static int read_only_child(struct sqlite_place *p)
{
	sl_store s;
	if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
		return CANNOT;
	CHECK(try_open(&s, p->path, 0) == SL_EACCES);
	CHECK(strstr(err.msg, p->path) != NULL);
	return 0;
}

static void a_file_that_may_not_be_written_is_refused_by_name(void **state)
{
	struct sqlite_place *p = *state;
	sl_store s = open_at(p->path);
	sl_store_close(&s);
	assert_int_equal(chmod(p->path, 0444), 0);
	assert_int_equal(chmod(p->dir, 0555), 0);
	int rc = in_child(read_only_child, p);
	(void)chmod(p->dir, 0700);
	assert_can(rc);
}

static int fill_disk(const char *dir, char filler[256])
{
	char zeros[4096] = {0};
	(void)snprintf(filler, 256, "%s/filler", dir);
	int fd = open(filler, O_CREAT | O_WRONLY, 0600);
	while (write(fd, zeros, sizeof(zeros)) == sizeof(zeros))
		;
	return close(fd);
}

static int full_disk_child(struct sqlite_place *p)
{
	char path[256], filler[256];
	sl_store s;
	uint64_t id, before;
	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount("tmpfs", p->dir, "tmpfs", 0, "size=1m") != 0)
		return CANNOT;
	(void)snprintf(path, sizeof(path), "%s/jobs.db", p->dir);
	CHECK(try_open(&s, path, 0) == 0);
	CHECK(start_tx(&s, NULL, &before) == 0);
	CHECK(fill_disk(p->dir, filler) == 0);
	int rc = 0;
	for (int i = 0; i < 1000 && rc == 0; i++)
		rc = start_tx(&s, NULL, &id);
	CHECK(rc == SL_ENOSPC);
	CHECK(sl_err_retryable(&err));
	CHECK(start_tx(&s, NULL, &id) == SL_ENOSPC);
	CHECK(unlink(filler) == 0);
	CHECK(start_tx(&s, NULL, &id) == 0);
	CHECK(id > before);
	sl_store_close(&s);
	CHECK(sqlite_wrong(path) == NULL);
	return 0;
}

static void a_full_disk_is_reported_and_survived(void **state)
{
	int rc = in_child(full_disk_child, *state);
	assert_can(rc);
}

static int failed_write_child(struct sqlite_place *p)
{
	struct rlimit none = {0, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
	sl_store s;
	uint64_t id, before;
	CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
	CHECK(try_open(&s, p->path, 0) == 0);
	CHECK(start_tx(&s, NULL, &before) == 0);
	CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0); /* every write to a file fails with EFBIG */
	CHECK(start_tx(&s, NULL, &id) == SL_EUNAVAIL);
	CHECK(sl_err_retryable(&err) && err.error_class == SL_CLASS_FATAL);
	CHECK(start_tx(&s, NULL, &id) == SL_EUNAVAIL);
	CHECK(setrlimit(RLIMIT_FSIZE, &all) == 0);
	CHECK(start_tx(&s, NULL, &id) == 0);
	CHECK(id == before + 1);
	sl_store_close(&s);
	CHECK(sqlite_wrong(p->path) == NULL);
	return 0;
}

static void after_a_failed_write_the_store_connects_again_by_itself(void **state)
{
	assert_int_equal(in_child(failed_write_child, *state), 0);
}

/* ---- memory that runs out ---- */

static int note_id(const struct sl_claimed_job *job, void *ctx)
{
	struct sl_settle *t = ctx;
	t->id = job->id;
	t->chain_id = job->chain_id;
	t->fence = job->fence;
	return 0;
}

static int pass_job(const struct sl_job *job, void *ctx)
{
	(void)job;
	(void)ctx;
	return 0;
}

/* A bit of everything that needs memory. The first failure ends it. */
static int walk(const char *path, const struct sl_env *env, uint64_t round)
{
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .env = env};
	struct sl_claim_type type = {.type = "t", .limit = 2};
	struct sl_claim_request request = {.worker = "w", .types = &type, .n_types = 1, .limit = 1, .lease_ms = 60000};
	struct sl_claim_reply reply;
	struct sl_settle settle = {.kind = SL_SETTLE_COMPLETE, .worker = "w", .last_of_claim = 1};
	struct sl_settle_result result;
	struct sl_started started = {0};
	struct sl_job_filter filter = {.statuses = 1u << SL_JOB_RUNNING};
	struct sl_event_mark mark = {.stream = "s", .incarnation = (uint32_t)round};
	struct sl_outstanding out;
	sl_store_tx *tx;
	sl_store s;
	size_t n;
	struct sl_reaped reaped;
	int rc = sl_store_sqlite_open(&s, path, &opts, &err);
	if (rc != 0)
		return rc;
	rc = s.ops->begin(s.ctx, &tx, &err);
	if (rc == 0) {
		struct sl_new_chain chain = {.job = {.type = "t"}};
		rc = s.ops->start(s.ctx, &chain, 1, &(struct sl_store_scope){.tx = tx}, &started, &err);
		chain.job.blockers = &started.chain_id;
		chain.job.n_blockers = 1;
		rc = rc != 0 ? rc : s.ops->start(s.ctx, &chain, 1, &(struct sl_store_scope){.tx = tx}, &started, &err);
		if (rc == 0)
			rc = s.ops->commit(tx, &err);
		else
			s.ops->rollback(tx);
	}
	memcpy(request.claim.bytes, &round, sizeof(round));
	settle.claim = request.claim;
	rc = rc != 0 ? rc
		     : s.ops->exchange(s.ctx,
				       &(struct sl_exchange){.request = &request,
							     .reply = &reply,
							     .claimed = note_id,
							     .claimed_ctx = &settle},
				       NULL, &err);
	rc = rc != 0 ? rc : s.ops->list_jobs(s.ctx, &filter, pass_job, NULL, &err);
	rc = rc != 0 ? rc : s.ops->outstanding(s.ctx, &(const char *){"t"}, 1, &out, &err);
	rc = rc != 0 ? rc : s.ops->reap(s.ctx, NULL, 0, 10, &reaped, NULL, &err);
	rc = rc != 0 ? rc : s.ops->events_append(s.ctx, NULL, 0, &mark, 1, NULL, &err);
	rc = rc != 0 ? rc
		     : s.ops->exchange(s.ctx,
				       &(struct sl_exchange){.settles = &settle, .n_settles = 1, .results = &result},
				       NULL, &err);
	rc = rc != 0 ? rc : s.ops->remove(s.ctx, (struct sl_ids){&started.chain_id, 1}, true, NULL, &n, &err);
	sl_store_close(&s);
	return rc;
}

static void when_memory_runs_out_anywhere_nothing_is_half_done(void **state)
{
	struct sqlite_place *p = *state;
	struct fault f;
	fault_init(&f, NULL);
	struct sl_env env = fault_env(&f, NULL);
	int64_t n = 1;
	sl_store s = open_at(p->path); /* so that the check of the first round finds a database */
	sl_store_close(&s);
	for (;; n++) {
		fault_arm_mem(&f, n, FAULT_ONCE);
		memset(&err, 0, sizeof(err));
		int rc = walk(p->path, &env, (uint64_t)n);
		fault_disarm(&f);
		assert_int_equal(fault_live_allocs(&f), 0);
		const char *wrong = sqlite_wrong(p->path);
		if (wrong != NULL)
			fail_msg("without allocation %d: %s", (int)n, wrong);
		if (fault_mem_failed(&f) == 0) {
			assert_int_equal(rc, 0);
			break;
		}
		assert_int_equal(rc, SL_ENOMEM);
		assert_int_equal(err.code, SL_ENOMEM);
	}
	printf("# %d allocations failed\n", (int)n - 1);
	assert_true(n > 10);
	fault_fini(&f);
}

/* ---- the lock ---- */

static void check_that_the_lock_is_held(const struct sl_change *change, void *ctx)
{
	(void)change;
	assert_true(lock_is_held(ctx));
}

static void every_write_holds_the_lock_and_lets_go_of_it(void **state)
{
	struct sqlite_place *p = *state;
	struct sl_store_scope scope = {.change = check_that_the_lock_is_held, .ctx = p->path};
	struct sl_new_chain chain = {.job = {.type = "t"}};
	struct sl_started started;
	sl_store_tx *tx;
	sqlite3 *db;
	sl_store s = open_at(p->path);
	assert_false(lock_is_held(p->path));
	assert_int_equal(s.ops->start(s.ctx, &chain, 1, &scope, &started, &err), 0);
	assert_false(lock_is_held(p->path));
	assert_int_equal(s.ops->begin(s.ctx, &tx, &err), 0);
	assert_true(lock_is_held(p->path));
	assert_int_equal(s.ops->commit(tx, &err), 0);
	assert_false(lock_is_held(p->path));
	assert_int_equal(sqlite3_open(p->path, &db), SQLITE_OK);
	assert_int_equal(s.ops->join(s.ctx, db, &tx, &err), 0);
	assert_true(lock_is_held(p->path));
	s.ops->rollback(tx);
	assert_false(lock_is_held(p->path));
	(void)sqlite3_close(db);
	/* A failure lets go as well. */
	assert_int_equal(s.ops->complete_chain(s.ctx, 999, NULL, NULL, &err), SL_ENOENT);
	assert_false(lock_is_held(p->path));
	sl_store_close(&s);
}

/* ---- other processes ---- */

struct other {
	pid_t pid;
	int to, from;
};

/* This program again, with stdin and stdout as pipes. */
static struct other spawn(const char *what, const char *path)
{
	int in[2], out[2];
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		if (dup2(in[0], 0) == 0 && dup2(out[1], 1) == 1)
			(void)execl("/proc/self/exe", "test_sqlite_file", what, path, (char *)NULL);
		_exit(126);
	}
	close(in[0]);
	close(out[1]);
	return (struct other){pid, in[1], out[0]};
}

static char hear(struct other *o)
{
	char c = 0;
	assert_int_equal(read(o->from, &c, 1), 1);
	return c;
}

static void say(struct other *o)
{
	assert_int_equal(write(o->to, "x", 1), 1);
}

static void end(struct other *o, int signal)
{
	if (signal != 0)
		kill(o->pid, signal);
	int status;
	assert_int_equal(waitpid(o->pid, &status, 0), o->pid);
	if (signal == 0)
		assert_int_equal(status, 0);
	close(o->to);
	close(o->from);
}

static void send_word(char c)
{
	if (write(1, &c, 1) != 1)
		_exit(2);
}

static void await_word(void)
{
	char c;
	if (read(0, &c, 1) != 1)
		_exit(3);
}

/* Begin a transaction, write in it, and hold it until a byte arrives. */
static int hold_main(const char *path)
{
	sl_store s;
	sl_store_tx *tx;
	uint64_t id;
	if (try_open(&s, path, 0) != 0 || s.ops->begin(s.ctx, &tx, &err) != 0 || start_tx(&s, tx, &id) != 0)
		return 1;
	send_word('h');
	await_word();
	if (s.ops->commit(tx, &err) != 0)
		return 1;
	send_word('c');
	await_word();
	sl_store_close(&s);
	return 0;
}

/* Open, and with it migrate, when a byte arrives. */
static int migrate_main(const char *path)
{
	sl_store s;
	char id[33];
	send_word('r');
	await_word();
	if (try_open(&s, path, 0) != 0 || s.ops->target_id(s.ctx, id, &err) != 0 || start(&s) != 0) {
		fprintf(stderr, "%s\n", err.msg);
		return 1;
	}
	if (write(1, id, 32) != 32)
		return 1;
	sl_store_close(&s);
	return 0;
}

/* Inspect the file as another program would: plain SQLite, which cleans up when it closes last. Sends the number of
 * jobs that it saw. */
static int look_main(const char *path)
{
	sqlite3 *db;
	sqlite3_stmt *count;
	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK ||
	    sqlite3_prepare_v2(db, "SELECT count(*) FROM sluice_job", -1, &count, NULL) != SQLITE_OK ||
	    sqlite3_step(count) != SQLITE_ROW)
		return 1;
	char seen = (char)('0' + sqlite3_column_int(count, 0));
	if (sqlite3_finalize(count) != SQLITE_OK || sqlite3_close(db) != SQLITE_OK)
		return 1;
	send_word(seen);
	return 0;
}

static char seen_from_outside(const char *path)
{
	struct other o = spawn("look", path);
	char seen = hear(&o);
	end(&o, 0);
	return seen;
}

static void a_program_that_looks_into_the_file_takes_nothing_from_those_who_write(void **state)
{
	struct sqlite_place *p = *state;
	sl_notify notify;
	sl_store a = open_at(p->path), b = open_at(p->path); /* in one process */
	assert_int_equal(sl_notify_sqlite_open(&notify, p->path, NULL, &err), 0);
	for (char n = '1'; n < '4'; n++) {
		assert_int_equal(start(&a), 0);
		assert_int_equal(seen_from_outside(p->path), n);
	}
	sl_notify_close(&notify);
	sl_store_close(&b);
	assert_int_equal(start(&a), 0);
	assert_int_equal(seen_from_outside(p->path), '4');
	sl_store_close(&a);
	assert_null(sqlite_wrong(p->path));
}

static void the_lock_of_a_killed_process_does_not_stay(void **state)
{
	struct sqlite_place *p = *state;
	sl_store s;
	assert_int_equal(try_open(&s, p->path, 1), 0);
	struct other o = spawn("hold", p->path);
	assert_int_equal(hear(&o), 'h');
	assert_true(lock_is_held(p->path));
	assert_int_equal(start(&s), SL_EAGAIN);
	assert_int_equal(err.error_class, SL_CLASS_TRANSIENT);
	assert_non_null(strstr(err.msg, "-lock")); /* refused by our lock, before SQLite's own */
	end(&o, SIGKILL);
	/* What it had not committed is gone with it. */
	assert_int_equal(start_at_last(&s), 0);
	assert_string_equal(sqlite_ask(p->path, "SELECT count(*) FROM sluice_job"), "1");
	sl_store_close(&s);
}

static void a_stopped_holder_costs_others_their_time_limit_and_no_more(void **state)
{
	struct sqlite_place *p = *state;
	sl_store s;
	assert_int_equal(try_open(&s, p->path, 1), 0);
	struct other o = spawn("hold", p->path);
	assert_int_equal(hear(&o), 'h');
	assert_int_equal(kill(o.pid, SIGSTOP), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(start(&s), SL_EAGAIN);
	/* Reads still work. */
	struct sl_outstanding out;
	assert_int_equal(s.ops->outstanding(s.ctx, NULL, 0, &out, &err), 0);
	assert_int_equal(out.due, 0);
	/* A store whose helper waits in the kernel can be closed. */
	sl_store_close(&s);
	assert_int_equal(kill(o.pid, SIGCONT), 0);
	say(&o);
	assert_int_equal(hear(&o), 'c');
	s = open_at(p->path);
	assert_int_equal(start(&s), 0);
	say(&o);
	end(&o, 0);
	assert_string_equal(sqlite_ask(p->path, "SELECT count(*) FROM sluice_job"), "2");
	sl_store_close(&s);
}

/* ---- leases that cannot be renewed while the lock is held ---- */

#define LEASE_MS 1000

struct leases {
	struct vclock clock;
	struct sl_env env;
	sl_store a, b; /* as of two processes */
};

static void leases_open(struct leases *l, const char *path)
{
	vclock_init(&l->clock);
	l->env = (struct sl_env){SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &l->clock};
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .env = &l->env};
	assert_int_equal(sl_store_sqlite_open(&l->a, path, &opts, &err), 0);
	assert_int_equal(sl_store_sqlite_open(&l->b, path, &opts, &err), 0);
	lock_clock = &l->clock;
}

static void leases_close(struct leases *l)
{
	sl_store_close(&l->a);
	sl_store_close(&l->b);
	vclock_fini(&l->clock);
}

static int on_claimed(const struct sl_claimed_job *job, void *ctx)
{
	*(uint64_t *)ctx = job->id;
	return 0;
}

/* The next job of the type, or 0, under a claim with this number. */
static uint64_t claim_next(const sl_store *s, uint8_t number, struct sl_claim_reply *reply)
{
	uint64_t id = 0;
	const struct sl_claim_type type = {.type = "t", .limit = 1, .free = 1};
	const struct sl_claim_request request = {.claim = {{number}},
						 .worker = "w",
						 .types = &type,
						 .n_types = 1,
						 .limit = 1,
						 .free = 1,
						 .lease_ms = LEASE_MS};
	assert_int_equal(s->ops->exchange(s->ctx,
					  &(struct sl_exchange){.request = &request,
								.reply = reply,
								.claimed = on_claimed,
								.claimed_ctx = &id},
					  NULL, &err),
			 0);
	return id;
}

static void claim_one(const sl_store *s, uint8_t number)
{
	struct sl_claim_reply reply;
	assert_int_equal(start(s), 0);
	assert_int_not_equal(claim_next(s, number, &reply), 0);
}

static struct sl_reaped reap(const sl_store *s)
{
	struct sl_reaped out;
	const struct sl_reap_type type = {.type = "t"};
	assert_int_equal(s->ops->reap(s->ctx, &type, 1, 100, &out, NULL, &err), 0);
	return out;
}

/* What a transaction that lasted five leases leaves to those who would take its jobs back. */
static void check_protection(const char *path, void (*finish)(const sl_store *s, sl_store_tx *tx), sqlite3 *native)
{
	struct leases l;
	sl_store_tx *tx;
	leases_open(&l, path);
	claim_one(&l.a, 1);
	int rc = native != NULL ? l.a.ops->join(l.a.ctx, native, &tx, &err) : l.a.ops->begin(l.a.ctx, &tx, &err);
	assert_int_equal(rc, 0);
	vclock_advance_ms(&l.clock, 5 * LEASE_MS);
	finish(&l.a, tx);
	assert_int_equal(reap(&l.b).n, 0);
	vclock_advance_ms(&l.clock, LEASE_MS + 1);
	assert_int_equal(reap(&l.b).n, 1);
	leases_close(&l);
}

static void commit(const sl_store *s, sl_store_tx *tx)
{
	assert_int_equal(s->ops->commit(tx, &err), 0);
}

static void roll_back(const sl_store *s, sl_store_tx *tx)
{
	s->ops->rollback(tx);
}

static void a_transaction_protects_the_leases_that_could_not_be_renewed_meanwhile(void **state)
{
	struct sqlite_place *p = *state;
	check_protection(p->path, commit, NULL);
	check_protection(p->path, roll_back, NULL);
}

static void so_does_a_joined_transaction(void **state)
{
	struct sqlite_place *p = *state;
	sqlite3 *db;
	sl_store s = open_at(p->path);
	assert_int_equal(sqlite3_open(p->path, &db), SQLITE_OK);
	check_protection(p->path, commit, db);
	check_protection(p->path, roll_back, db);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	sl_store_close(&s);
}

static void a_reaper_that_waited_for_the_lock_lets_renewals_go_first(void **state)
{
	struct sqlite_place *p = *state;
	struct leases l;
	leases_open(&l, p->path);
	claim_one(&l.a, 1);
	vclock_advance_ms(&l.clock, LEASE_MS / 2);
	claim_one(&l.a, 2);
	vclock_advance_ms(&l.clock, LEASE_MS / 2);
	/* The first lease has run out, the second does while some other process keeps everybody from the lock. */
	lock_takes_ms = LEASE_MS;
	struct sl_reaped got = reap(&l.b);
	assert_int_equal(got.n, 1);
	assert_in_range(got.next_expiry_in_ms, 1, 500); /* within the second that a lost job may wait */
	/* Its owner waited as well, and renews it now; otherwise the next look takes it. */
	const uint64_t id = 2, fence = 1;
	const struct sl_renewal r = {.claim = {{2}}, .lease_ms = LEASE_MS, .ids = &id, .fences = &fence, .n = 1};
	assert_int_equal(l.a.ops->renew(l.a.ctx, &r, 1, NULL, NULL, &err), 0);
	vclock_advance_ms(&l.clock, got.next_expiry_in_ms);
	assert_int_equal(reap(&l.b).n, 0);
	vclock_advance_ms(&l.clock, LEASE_MS);
	assert_int_equal(reap(&l.b).n, 1);
	leases_close(&l);
}

static void rows_of_the_queue_without_a_job_block_nothing(void **state)
{
	struct sqlite_place *p = *state;
	struct sl_claim_reply reply;
	sl_store s = open_at(p->path);
	/* In front of the queue, where a claim of one finds them first, singly claimed ones and scheduled ones too. */
	for (int i = 0; i < 4; i++)
		assert_int_equal(start(&s), 0);
	assert_int_equal(sqlite_do(p->path, "DELETE FROM sluice_job WHERE id < 4;"
					    "UPDATE sluice_ready SET solo=1 WHERE id=2;"
					    "DELETE FROM sluice_ready WHERE id=3;"
					    "INSERT INTO sluice_sched(type,due_us,id,priority,solo,tried)"
					    " VALUES('t',1,3,0,0,0);"
					    "UPDATE sluice_count SET ready=ready-1,sched=sched+1"),
			 0);
	uint64_t got = 0;
	for (uint8_t i = 1; i < 8 && got == 0; i++) {
		got = claim_next(&s, i, &reply);
		if (got == 0)
			assert_int_equal(reply.next_due_in_ms, 0); /* look again now, not with the next poll */
	}
	assert_int_equal(got, 4);
	assert_string_equal(sqlite_ask(p->path, "SELECT count(*) FROM sluice_ready"), "0");
	assert_string_equal(sqlite_ask(p->path, "SELECT ready+sched FROM sluice_count"), "0");
	sl_store_close(&s);
	assert_null(sqlite_wrong(p->path));
}

static void a_file_system_without_locks_is_an_error_and_not_a_lock(void **state)
{
	struct sqlite_place *p = *state;
	sl_store s = open_at(p->path);
	atomic_store(&no_locks, LOCK_NB);
	assert_int_equal(start(&s), SL_EUNAVAIL);
	assert_int_equal(err.sys_errno, ENOLCK);
	assert_non_null(strstr(err.msg, "no locks available"));
	atomic_store(&no_locks, 0);
	struct other o = spawn("hold", p->path);
	assert_int_equal(hear(&o), 'h');
	atomic_store(&no_locks, LOCK_EX); /* now in the helper, which waits for the other process */
	assert_int_equal(start(&s), SL_EUNAVAIL);
	assert_int_equal(err.sys_errno, ENOLCK);
	assert_non_null(strstr(err.msg, "-lock"));
	atomic_store(&no_locks, 0);
	say(&o);
	assert_int_equal(hear(&o), 'c');
	assert_int_equal(start(&s), 0);
	say(&o);
	end(&o, 0);
	assert_string_equal(sqlite_ask(p->path, "SELECT count(*) FROM sluice_job"), "2");
	sl_store_close(&s);
}

static void processes_that_migrate_at_once_agree(void **state)
{
	enum { N = 6 };
	struct sqlite_place *p = *state;
	struct other o[N];
	char first[33] = "", id[33] = "";
	for (int i = 0; i < N; i++)
		o[i] = spawn("migrate", p->path);
	for (int i = 0; i < N; i++)
		assert_int_equal(hear(&o[i]), 'r');
	for (int i = 0; i < N; i++)
		say(&o[i]);
	for (int i = 0; i < N; i++) {
		size_t n = 0;
		for (ssize_t got; n < 32 && (got = read(o[i].from, id + n, 32 - n)) > 0;)
			n += (size_t)got;
		assert_int_equal(n, 32);
		if (i == 0)
			memcpy(first, id, sizeof(first));
		assert_string_equal(id, first);
		end(&o[i], 0);
	}
	assert_string_equal(sqlite_ask(p->path, "SELECT count(*) FROM sluice_job"), "6");
	assert_null(sqlite_wrong(p->path));
}

/* ---- a connection of the caller's ---- */

static void a_joined_connection_must_be_idle_and_to_the_same_file(void **state)
{
	struct sqlite_place *p = *state;
	sl_store s = open_at(p->path);
	sl_store_tx *tx;
	sqlite3 *db;
	char other[256];
	(void)snprintf(other, sizeof(other), "%s/other.db", p->dir);
	assert_int_equal(sqlite3_open(other, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "CREATE TABLE x(y)", NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(s.ops->join(s.ctx, db, &tx, &err), SL_EINVAL);
	assert_non_null(strstr(err.msg, other));
	(void)sqlite3_close(db);
	assert_int_equal(sqlite3_open(p->path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "BEGIN", NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(s.ops->join(s.ctx, db, &tx, &err), SL_EINVAL);
	assert_int_equal(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(s.ops->join(s.ctx, db, &tx, &err), 0);
	s.ops->rollback(tx);
	(void)sqlite3_close(db);
	sl_store_close(&s);
}

static int level_of(sqlite3 *db)
{
	sqlite3_stmt *st;
	assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA synchronous", -1, &st, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(st), SQLITE_ROW);
	int level = sqlite3_column_int(st, 0);
	(void)sqlite3_finalize(st);
	return level;
}

static void a_joined_transaction_is_durable_whatever_the_caller_has_set(void **state)
{
	struct sqlite_place *p = *state;
	sl_store s = open_at(p->path);
	sl_store_tx *tx;
	sqlite3 *db;
	uint64_t id;
	assert_int_equal(sqlite3_open(p->path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "PRAGMA synchronous=OFF; CREATE TABLE mine(x)", NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(s.ops->join(s.ctx, db, &tx, &err), 0);
	assert_int_equal(level_of(db), 2);
	assert_int_equal(sqlite3_exec(s.ops->native(tx), "INSERT INTO mine VALUES(1)", NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(start_tx(&s, tx, &id), 0);
	assert_int_equal(s.ops->commit(tx, &err), 0);
	assert_int_equal(level_of(db), 0);
	/* Nothing of ours is left behind: no statement keeps the connection from closing. */
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	assert_string_equal(
		sqlite_ask(p->path, "SELECT (SELECT count(*) FROM mine)||(SELECT count(*) FROM sluice_job)"), "11");
	assert_int_equal(start(&s), 0);
	sl_store_close(&s);
}

/* ---- urls ---- */

static void a_store_is_opened_by_its_url(void **state)
{
	struct sqlite_place *p = *state;
	char url[256];
	sl_store s;
	assert_string_equal(sl_store_default_url(), "sqlite:~/.sluice/sluice.db");
	assert_int_equal(setenv("HOME", p->dir, 1), 0);
	assert_int_equal(sl_store_open(&s, sl_store_default_url(), NULL, &err), 0);
	assert_string_equal(s.ops->name, "sqlite");
	sl_store_close(&s);
	(void)snprintf(url, sizeof(url), "%s/.sluice/sluice.db", p->dir);
	assert_int_equal(mode_of(url, ""), 0600);
	(void)snprintf(url, sizeof(url), "sqlite:%s", p->path);
	assert_int_equal(sl_store_open(&s, url, NULL, &err), 0);
	sl_store_close(&s);
	sl_store_close(&s);
	assert_int_equal(sl_store_open(&s, "sqlite:", NULL, &err), SL_EINVAL);
	assert_int_equal(sl_store_open(&s, "sqlite://here.db", NULL, &err), SL_EINVAL);
	assert_int_equal(sl_store_open(&s, NULL, NULL, &err), SL_EINVAL);
	assert_int_equal(sl_store_open(&s, "mysql://me:secret@there/db", NULL, &err), SL_EINVAL);
	assert_null(strstr(err.msg, "secret"));
	assert_non_null(strstr(err.msg, "mysql"));
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "hold") == 0)
		return hold_main(argv[2]);
	if (argc == 3 && strcmp(argv[1], "migrate") == 0)
		return migrate_main(argv[2]);
	if (argc == 3 && strcmp(argv[1], "look") == 0)
		return look_main(argv[2]);
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(the_files_are_the_owners_alone_and_missing_folders_are_made),
		TEST(what_is_no_database_is_refused_and_left_alone),
		TEST(a_newer_schema_is_refused_and_kept),
		TEST(without_leave_to_migrate_an_old_schema_is_refused),
		TEST(a_store_may_live_in_a_file_with_tables_of_the_caller),
		TEST(closing_leaves_the_log_for_the_next),
		TEST(the_log_does_not_grow_for_ever),
		TEST(two_names_of_a_file_have_one_lock),
		TEST(a_forked_child_is_refused),
		TEST(a_file_that_may_not_be_written_is_refused_by_name),
		TEST(a_full_disk_is_reported_and_survived),
		TEST(after_a_failed_write_the_store_connects_again_by_itself),
		TEST(when_memory_runs_out_anywhere_nothing_is_half_done),
		TEST(every_write_holds_the_lock_and_lets_go_of_it),
		TEST(a_program_that_looks_into_the_file_takes_nothing_from_those_who_write),
		TEST(the_lock_of_a_killed_process_does_not_stay),
		TEST(a_stopped_holder_costs_others_their_time_limit_and_no_more),
		TEST(a_transaction_protects_the_leases_that_could_not_be_renewed_meanwhile),
		TEST(so_does_a_joined_transaction),
		TEST(a_reaper_that_waited_for_the_lock_lets_renewals_go_first),
		TEST(rows_of_the_queue_without_a_job_block_nothing),
		TEST(a_file_system_without_locks_is_an_error_and_not_a_lock),
		TEST(processes_that_migrate_at_once_agree),
		TEST(a_joined_connection_must_be_idle_and_to_the_same_file),
		TEST(a_joined_transaction_is_durable_whatever_the_caller_has_set),
		TEST(a_store_is_opened_by_its_url),
	};
	return cmocka_run_group_tests_name("sqlite file", tests, NULL, NULL);
}
