/* SPDX-License-Identifier: Apache-2.0 */
/* The outbox: events reach files and an endpoint in order, and no accident leaves a line torn or there twice. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "pipeline/catalog_place.h"
#include "pipeline/tiny_endpoint.h"
#include "support/crashfs.h"
#include "support/fault.h"

#define MANY 60000
#define WAIT_MS 100000

static struct catalog_place place;

struct opened {
	sl_catalog *c;
	sl_catalog_lease *lease;
};

static void open_it(struct opened *o, const struct sl_env *env)
{
	struct sl_err err = SL_ERR_INIT;
	o->c = catalog_place_open(&place, env);
	assert_int_equal(sl_catalog_lease_acquire(o->c, "d", NULL, &o->lease, &err), 0);
	catalog_define(o->c, o->lease);
}

static void close_it(struct opened *o)
{
	sl_catalog_lease_release(o->lease);
	sl_catalog_close(o->c);
	*o = (struct opened){NULL, NULL};
}

static int set_up(void **state)
{
	struct opened *o = calloc(1, sizeof(*o));
	assert_non_null(o);
	catalog_place_set_up(&place);
	open_it(o, NULL);
	*state = o;
	return 0;
}

static int tear_down(void **state)
{
	close_it(*state);
	free(*state);
	catalog_place_tear_down(&place);
	return 0;
}

static void commit_some(struct opened *o, uint64_t first, uint64_t n)
{
	struct sl_err err = SL_ERR_INIT;
	for (uint64_t i = first; i < first + n; i++)
		assert_int_equal(catalog_commit(o->c, o->lease, i * 100, i * 100 + 99, NULL, &err), 0);
}

/* ---- what the files must be ---- */

static int add_line(uint64_t number, const char *event, size_t len, void *ctx)
{
	char *text = ctx;
	(void)number;
	size_t at = strlen(text);
	assert_true(at + len + 2 < MANY);
	memcpy(text + at, event, len);
	memcpy(text + at + len, "\n", 2);
	return 0;
}

static void expected(struct opened *o, char out[MANY])
{
	struct sl_err err = SL_ERR_INIT;
	out[0] = '\0';
	assert_int_equal(sl_catalog_events(o->c, "d", 0, 0, add_line, out, &err), 0);
}

static void file_path(uint64_t first, char out[256])
{
	(void)snprintf(out, 256, "%s/d/_audit/events-%020" PRIu64 ".jsonl", place.dir, first);
}

static size_t read_file(const char *path, char *out, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	ssize_t n = read(fd, out, size - 1);
	assert_true(n >= 0);
	(void)close(fd);
	out[n] = '\0';
	return (size_t)n;
}

static void write_file(const char *path, const char *data, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, n), (ssize_t)n);
	(void)close(fd);
}

static void assert_files_are_the_catalog(struct opened *o)
{
	static char want[MANY], got[MANY];
	char path[256];
	expected(o, want);
	file_path(1, path);
	(void)read_file(path, got, sizeof(got));
	assert_string_equal(got, want);
}

static int deliver(struct opened *o, const struct sl_outbox_opts *opts, struct sl_err *err)
{
	struct sl_outbox_opts files = {SL_OUTBOX_OPTS_INIT, .dir = place.dir};
	sl_outbox *box = NULL;
	int rc = sl_outbox_start(o->c, o->lease, opts != NULL ? opts : &files, &box, err);
	if (rc == 0)
		rc = sl_outbox_drain(box, SL_NONE, err);
	sl_outbox_stop(box);
	return rc;
}

/* ---- files ---- */

static void committed_events_are_in_the_files_in_order(void **state)
{
	struct opened *o = *state;
	struct sl_outbox_opts opts = {SL_OUTBOX_OPTS_INIT, .dir = place.dir};
	struct sl_err err = SL_ERR_INIT;
	sl_outbox *box = NULL;
	commit_some(o, 0, 3);
	assert_int_equal(sl_outbox_start(o->c, o->lease, &opts, &box, &err), 0);
	commit_some(o, 3, 4);
	sl_outbox_wake(box);
	assert_int_equal(sl_outbox_drain(box, WAIT_MS, &err), 0);
	assert_files_are_the_catalog(o);
	assert_int_equal(catalog_place_number(&place, "SELECT delivered_files FROM sluice_dataset WHERE name='d'"), 7);
	sl_outbox_stop(box);
	/* Another run has nothing to do, and does nothing. */
	assert_int_equal(deliver(o, NULL, &err), 0);
	assert_files_are_the_catalog(o);
	commit_some(o, 7, 1);
	assert_int_equal(deliver(o, NULL, &err), 0);
	assert_files_are_the_catalog(o);
	struct stat st;
	char path[256];
	file_path(1, path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

/* A file cut at every byte after the mark, with zeros and with rubbish after the cut. */
static void a_torn_tail_is_written_again(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	static char whole[MANY], torn[MANY + 64];
	char path[256];
	commit_some(o, 0, 3);
	assert_int_equal(deliver(o, NULL, &err), 0);
	file_path(1, path);
	size_t n = read_file(path, whole, sizeof(whole)), first = strcspn(whole, "\n") + 1;
	for (size_t cut = first; cut < n; cut += 37)
		for (int kind = 0; kind < 3; kind++) {
			memcpy(torn, whole, cut);
			memset(torn + cut, kind == 1 ? '\0' : '\n', 64);
			write_file(path, torn, cut + (kind == 0 ? 0 : 64));
			catalog_place_exec(&place, "UPDATE sluice_dataset SET delivered_files=1 WHERE name='d'");
			assert_int_equal(deliver(o, NULL, &err), 0);
			assert_files_are_the_catalog(o);
		}
}

static void a_file_that_was_changed_is_left_alone_and_reported(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	static char whole[MANY], changed[MANY], after[MANY];
	char path[256];
	commit_some(o, 0, 2);
	assert_int_equal(deliver(o, NULL, &err), 0);
	file_path(1, path);
	size_t n = read_file(path, whole, sizeof(whole));
	commit_some(o, 2, 1);
	for (size_t at = 0; at < n; at += 13) {
		memcpy(changed, whole, n);
		changed[at] ^= 1;
		write_file(path, changed, n);
		assert_int_equal(deliver(o, NULL, &err), SL_ECONFLICT);
		assert_non_null(strstr(err.msg, "_audit"));
		assert_int_equal(read_file(path, after, sizeof(after)), n);
		assert_memory_equal(after, changed, n);
	}
	write_file(path, whole, n);
	assert_int_equal(deliver(o, NULL, &err), 0);
	assert_files_are_the_catalog(o);
}

static int take_delivered(const struct sl_dataset *d, void *ctx)
{
	*(uint64_t *)ctx = d->delivered_files;
	return 0;
}

static void files_that_were_removed_are_written_anew(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	char path[256];
	commit_some(o, 0, 3);
	assert_int_equal(deliver(o, NULL, &err), 0);
	file_path(1, path);
	assert_int_equal(unlink(path), 0);
	commit_some(o, 3, 2);
	assert_int_equal(deliver(o, NULL, &err), 0);
	assert_files_are_the_catalog(o);
}

/* The run before has written them, and died before it marked them: they stay, and are marked. */
static void events_that_are_written_and_not_marked_are_marked(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	static char whole[MANY];
	char path[256];
	struct stat before, after;
	commit_some(o, 0, 3);
	assert_int_equal(deliver(o, NULL, &err), 0);
	file_path(1, path);
	(void)read_file(path, whole, sizeof(whole));
	assert_int_equal(stat(path, &before), 0);
	catalog_place_exec(&place, "UPDATE sluice_dataset SET delivered_files=1 WHERE name='d'");
	assert_int_equal(deliver(o, NULL, &err), 0);
	assert_files_are_the_catalog(o);
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(after.st_size, before.st_size);
	uint64_t delivered = 0;
	assert_int_equal(sl_catalog_datasets(o->c, "d", take_delivered, &delivered, &err), 0);
	assert_int_equal(delivered, 3);
}

/* Valid events that the catalog does not have: it was restored from a backup, say. */
static void files_that_are_ahead_of_the_catalog_are_a_conflict(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	commit_some(o, 0, 3);
	assert_int_equal(deliver(o, NULL, &err), 0);
	catalog_place_exec(&place, "DELETE FROM sluice_audit_event WHERE number=3");
	catalog_place_exec(&place, "UPDATE sluice_dataset SET events=2,delivered_files=2 WHERE name='d'");
	assert_int_equal(deliver(o, NULL, &err), SL_ECONFLICT);
	assert_non_null(strstr(err.msg, "event 3 differs from the catalog's"));
}

static void a_full_file_is_followed_by_another(void **state)
{
	struct opened *o = *state;
	struct sl_outbox_opts opts = {SL_OUTBOX_OPTS_INIT, .dir = place.dir, .file_bytes = 2000};
	struct sl_err err = SL_ERR_INIT;
	static char want[MANY], got[MANY], one[MANY];
	char path[256];
	int files = 0;
	for (uint64_t i = 0; i < 12; i++) {
		commit_some(o, i, 1);
		if (i % 3 == 2)
			assert_int_equal(deliver(o, &opts, &err), 0);
	}
	got[0] = '\0';
	for (uint64_t i = 1; i <= 12; i++) {
		file_path(i, path);
		if (access(path, F_OK) != 0)
			continue;
		files++;
		assert_true(read_file(path, one, sizeof(one)) < 3000);
		strcat(got, one);
	}
	expected(o, want);
	assert_string_equal(got, want);
	assert_true(files >= 4);
	/* One that a crash left empty is gone on with. */
	file_path(13, path);
	write_file(path, "", 0);
	commit_some(o, 12, 1);
	assert_int_equal(deliver(o, &opts, &err), 0);
	assert_true(read_file(path, one, sizeof(one)) > 100);
	/* One that leaves events out is not, be it the only one. */
	file_path(20, path);
	write_file(path, "", 0);
	assert_int_equal(deliver(o, &opts, &err), SL_ECONFLICT);
	for (uint64_t i = 1; i <= 13; i++) {
		file_path(i, path);
		(void)unlink(path);
	}
	catalog_place_exec(&place, "UPDATE sluice_dataset SET delivered_files=0 WHERE name='d'");
	assert_int_equal(deliver(o, &opts, &err), SL_ECONFLICT);
}

/* A file that cannot be opened or read is an error, and not an empty one that is written anew. All calls of a kind
 * fail from the nth on: the outbox tries again, and must not succeed then. */
static void existing_files_that_cannot_be_read_are_reported_and_left_alone(void **state)
{
	struct opened *o = *state;
	static const struct {
		enum fault_op op;
		int64_t nth;
		const char *says;
	} calls[] = {{FAULT_OPEN, 1, "open"},
		     {FAULT_FSTAT, 1, "stat"},
		     {FAULT_PREAD, 1, "read"},
		     {FAULT_OPEN, 2, "open"}}; /* to append to it */
	static char before[MANY], after[MANY];
	char path[256];
	struct fault f;
	struct sl_err err = SL_ERR_INIT;
	close_it(o);
	fault_init(&f, NULL);
	struct sl_env env = fault_env(&f, NULL);
	open_it(o, &env);
	commit_some(o, 0, 3);
	assert_int_equal(deliver(o, NULL, &err), 0);
	file_path(1, path);
	size_t len = read_file(path, before, sizeof(before));
	commit_some(o, 3, 1);
	for (size_t n = 0; n < sizeof(calls) / sizeof(calls[0]); n++) {
		err = (struct sl_err)SL_ERR_INIT;
		fault_arm_io(&f, calls[n].nth, FAULT_FROM, EIO, FAULT_OP(calls[n].op));
		int rc = deliver(o, NULL, &err);
		fault_disarm(&f);
		if (rc != SL_EIO || strstr(err.msg, calls[n].says) == NULL || strstr(err.msg, path) == NULL)
			fail_msg("call %zu: %d, %s", n + 1, rc, err.msg);
		assert_int_equal(fault_open_fds(&f), 0);
		assert_int_equal(read_file(path, after, sizeof(after)), len);
		assert_memory_equal(after, before, len);
	}
	assert_int_equal(deliver(o, NULL, &err), 0);
	assert_files_are_the_catalog(o);
	close_it(o);
	fault_fini(&f);
	open_it(o, NULL);
}

static void every_call_that_fails_leaves_files_that_the_next_run_completes(void **state)
{
	struct opened *o = *state;
	static const int errors[] = {EIO, ENOSPC};
	struct fault f;
	int64_t n, tried = 0;
	close_it(o);
	fault_init(&f, NULL);
	f.partial_writes = 1;
	struct sl_env env = fault_env(&f, NULL);
	open_it(o, &env);
	for (uint64_t round = 0; round < 2; round++)
		for (n = 1;; n++) {
			struct sl_err err = SL_ERR_INIT;
			static char command[300];
			(void)snprintf(command, sizeof(command), "rm -rf %s/d", place.dir);
			assert_int_equal(system(command), 0);
			catalog_place_exec(&place, "UPDATE sluice_dataset SET delivered_files=0 WHERE name='d'");
			if (o->lease != NULL && n == 1)
				commit_some(o, round * 2, 2);
			fault_arm_io(&f, n, FAULT_ONCE, errors[round], FAULT_ALL_OPS);
			int rc = deliver(o, NULL, &err);
			fault_disarm(&f);
			bool injected = fault_io_failed(&f) != 0;
			assert_true(rc == 0 || injected);
			assert_int_equal(fault_open_fds(&f), 0);
			assert_int_equal(deliver(o, NULL, &err), 0);
			assert_files_are_the_catalog(o);
			if (!injected)
				break;
			tried++;
		}
	printf("# %ld calls failed in turn\n", (long)tried);
	assert_true(tried > 10);
	close_it(o);
	assert_int_equal(fault_live_allocs(&f), 0);
	fault_fini(&f);
	open_it(o, NULL);
}

static void allocations_that_fail_lose_nothing(void **state)
{
	struct opened *o = *state;
	struct fault f;
	int64_t n;
	commit_some(o, 0, 2);
	close_it(o);
	fault_init(&f, NULL);
	struct sl_env env = fault_env(&f, NULL);
	open_it(o, &env);
	for (n = 1;; n++) {
		struct sl_err err = SL_ERR_INIT;
		fault_arm_mem(&f, n, FAULT_ONCE);
		int rc = deliver(o, NULL, &err);
		fault_disarm(&f);
		bool injected = fault_mem_failed(&f) != 0;
		assert_true(rc == 0 || injected);
		if (!injected)
			break;
	}
	assert_files_are_the_catalog(o);
	close_it(o);
	assert_int_equal(fault_live_allocs(&f), 0);
	printf("# %ld allocations failed in turn\n", (long)(n - 1));
	fault_fini(&f);
	open_it(o, NULL);
}

/* ---- power loss: any subset of what was not synced ---- */

static void fs_path(uint64_t first, char out[64])
{
	(void)snprintf(out, 64, "/x/d/_audit/events-%020" PRIu64 ".jsonl", first);
}

static void after_a_power_loss_the_files_are_completed(void **state)
{
	struct opened *o = *state;
	static char want[MANY];
	struct sl_err err = SL_ERR_INIT;
	struct crashfs *fs = crashfs_new();
	struct sl_env env = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = fs};
	struct sl_outbox_opts opts = {SL_OUTBOX_OPTS_INIT, .dir = "/x"};
	size_t states = 0;
	char path[64];
	crashfs_mkdir(fs, "/x");
	close_it(o);
	open_it(o, &env);
	for (uint64_t i = 0; i < 4; i++) {
		commit_some(o, i, 1);
		assert_int_equal(deliver(o, &opts, &err), 0);
	}
	expected(o, want);
	close_it(o);
	for (size_t point = 0; point <= crashfs_point(fs); point++)
		for (size_t k = 0; k < crashfs_states(fs, point, 12); k++) {
			struct crashfs *left = crashfs_crash(fs, point, k, 12, 1, NULL);
			struct sl_env after = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = left};
			size_t n = 0;
			/* The mark may be lost as well. */
			catalog_place_exec(&place, "UPDATE sluice_dataset SET delivered_files=0 WHERE name='d'");
			open_it(o, &after);
			assert_int_equal(deliver(o, &opts, &err), 0);
			close_it(o);
			fs_path(1, path);
			const char *got = crashfs_get(left, path, &n);
			assert_non_null(got);
			assert_int_equal(n, strlen(want));
			assert_memory_equal(got, want, n);
			crashfs_free(left);
			states++;
		}
	printf("# %zu states\n", states);
	assert_true(states > 20);
	crashfs_free(fs);
	open_it(o, NULL);
}

/* In no state that a power loss leaves now is anything missing that the mark says was delivered. */
static void assert_marked_is_there(struct opened *o, struct crashfs *fs)
{
	static char want[MANY];
	char path[64];
	size_t point = crashfs_point(fs);
	expected(o, want);
	assert_int_equal(catalog_place_number(&place, "SELECT events-delivered_files FROM sluice_dataset"
						      " WHERE name='d'"),
			 0);
	fs_path(1, path);
	for (size_t k = 0; k < crashfs_states(fs, point, 12); k++) {
		struct crashfs *left = crashfs_crash(fs, point, k, 12, 1, NULL);
		size_t n = 0;
		const char *got = crashfs_get(left, path, &n);
		assert_non_null(got);
		assert_int_equal(n, strlen(want));
		assert_memory_equal(got, want, n);
		crashfs_free(left);
	}
}

static void what_is_marked_as_delivered_survives_a_power_loss(void **state)
{
	struct opened *o = *state;
	static char want[MANY];
	struct sl_err err = SL_ERR_INIT;
	struct crashfs *fs = crashfs_new();
	struct sl_env env = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = fs};
	struct sl_outbox_opts opts = {SL_OUTBOX_OPTS_INIT, .dir = "/x"};
	char path[64];
	crashfs_mkdir(fs, "/x");
	close_it(o);
	open_it(o, &env);
	for (uint64_t i = 0; i < 3; i++) {
		commit_some(o, i, 1);
		assert_int_equal(deliver(o, &opts, &err), 0);
		assert_marked_is_there(o, fs);
	}
	/* Lines that a run has written and not lived to sync: the next one does, before it marks them. */
	commit_some(o, 3, 1);
	expected(o, want);
	fs_path(1, path);
	int fd = crashfs_io.open(path, O_RDWR, 0, fs);
	assert_true(fd >= 0);
	assert_int_equal(crashfs_io.pwrite(fd, want, strlen(want), 0, fs), strlen(want));
	assert_int_equal(crashfs_io.close(fd, fs), 0);
	assert_int_equal(deliver(o, &opts, &err), 0);
	assert_marked_is_there(o, fs);
	close_it(o);
	crashfs_free(fs);
	open_it(o, NULL);
}

/* ---- killed ---- */

static void die_at(const char *step, uint64_t event, void *ctx)
{
	const char *where = ctx;
	(void)event;
	if (strcmp(step, where) == 0)
		(void)raise(SIGKILL);
}

static _Noreturn void run_and_die(const char *where, uint64_t first)
{
	struct opened o;
	struct sl_err err = SL_ERR_INIT;
	struct sl_outbox_opts opts = {SL_OUTBOX_OPTS_INIT, .dir = place.dir, .on_step = die_at,
				      .on_step_ctx = (void *)(uintptr_t)where};
	open_it(&o, NULL);
	commit_some(&o, first, 2);
	(void)!deliver(&o, &opts, &err);
	_exit(1);
}

static void a_process_killed_at_any_step_leaves_nothing_torn_or_doubled(void **state)
{
	static const char *const steps[] = {"before_outbox", "outbox_written"};
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	close_it(o);
	for (uint64_t i = 0; i < 6; i++) {
		int status;
		pid_t child = fork();
		if (child == 0)
			run_and_die(steps[i % 2], 2 * i);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		if (i == 3) { /* in between one run comes to its end */
			open_it(o, NULL);
			assert_int_equal(deliver(o, NULL, &err), 0);
			assert_files_are_the_catalog(o);
			close_it(o);
		}
	}
	open_it(o, NULL);
	assert_int_equal(deliver(o, NULL, &err), 0);
	assert_files_are_the_catalog(o);
}

/* ---- a holder that lost its lease ---- */

static void an_outbox_without_its_lease_stops(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	commit_some(o, 0, 1);
	catalog_place_exec(&place, "UPDATE sluice_dataset SET fence=fence+1,holder='x' WHERE name='d'");
	assert_int_equal(deliver(o, NULL, &err), SL_ESTALE);
	assert_int_equal(catalog_place_number(&place, "SELECT delivered_files FROM sluice_dataset WHERE name='d'"), 0);
	sl_catalog_lease_release(o->lease);
	assert_int_equal(sl_catalog_lease_acquire(o->c, "d", NULL, &o->lease, &err), 0);
}

/* ---- the endpoint ---- */

static void an_endpoint_gets_every_event_in_order(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	static char want[MANY];
	struct tiny_endpoint *e = tiny_endpoint_start();
	struct sl_outbox_opts opts = {SL_OUTBOX_OPTS_INIT, .dir = place.dir, .endpoint = tiny_endpoint_url(e),
				      .retry_ms = 1};
	sl_outbox *box = NULL;
	commit_some(o, 0, 5);
	assert_int_equal(sl_outbox_start(o->c, o->lease, &opts, &box, &err), 0);
	assert_int_equal(sl_outbox_drain(box, WAIT_MS, &err), 0);
	commit_some(o, 5, 3);
	assert_int_equal(sl_outbox_drain(box, WAIT_MS, &err), 0);
	sl_outbox_stop(box);
	expected(o, want);
	assert_string_equal(tiny_endpoint_accepted(e), want);
	/* What was accepted is not sent again by the next run. */
	commit_some(o, 8, 1);
	assert_int_equal(deliver(o, &opts, &err), 0);
	expected(o, want);
	assert_string_equal(tiny_endpoint_accepted(e), want);
	assert_files_are_the_catalog(o);
	tiny_endpoint_stop(e);
}

static void an_endpoint_that_fails_holds_up_neither_commits_nor_files(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	static char want[MANY];
	struct tiny_endpoint *e = tiny_endpoint_start();
	struct sl_outbox_opts opts = {SL_OUTBOX_OPTS_INIT, .dir = place.dir, .endpoint = tiny_endpoint_url(e),
				      .retry_ms = 1};
	sl_outbox *box = NULL;
	tiny_endpoint_answer(e, 503);
	assert_int_equal(sl_outbox_start(o->c, o->lease, &opts, &box, &err), 0);
	commit_some(o, 0, 5);
	assert_int_equal(sl_outbox_drain(box, SL_NONE, &err), SL_EUNAVAIL);
	assert_non_null(strstr(err.msg, "503"));
	assert_files_are_the_catalog(o);
	assert_int_equal(catalog_place_number(&place, "SELECT events-delivered_endpoint FROM sluice_dataset"
						      " WHERE name='d'"),
			 5);
	/* Dropped in the middle: the batch comes again, nothing is left out. */
	tiny_endpoint_answer(e, TINY_ENDPOINT_HANG_UP);
	assert_int_equal(sl_outbox_drain(box, SL_NONE, &err), SL_EUNAVAIL);
	tiny_endpoint_answer(e, 200);
	assert_int_equal(sl_outbox_drain(box, WAIT_MS, &err), 0);
	expected(o, want);
	assert_string_equal(tiny_endpoint_accepted(e), want);
	sl_outbox_stop(box);
	tiny_endpoint_stop(e);
}

static void stopping_does_not_wait_for_an_endpoint_that_hangs(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	struct tiny_endpoint *e = tiny_endpoint_start();
	struct sl_outbox_opts opts = {SL_OUTBOX_OPTS_INIT, .endpoint = tiny_endpoint_url(e), .timeout_ms = 3600000};
	sl_outbox *box = NULL;
	tiny_endpoint_answer(e, TINY_ENDPOINT_SILENT);
	commit_some(o, 0, 1);
	assert_int_equal(sl_outbox_start(o->c, o->lease, &opts, &box, &err), 0);
	tiny_endpoint_wait_request(e);
	assert_int_equal(sl_outbox_drain(box, 1, &err), SL_ETIMEDOUT);
	sl_outbox_stop(box); /* comes back, or the test times out */
	tiny_endpoint_stop(e);
}

static void options_that_cannot_be_are_refused(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	sl_outbox *box = NULL;
	struct sl_outbox_opts opts = {SL_OUTBOX_OPTS_INIT, .endpoint = "ftp://user:secret@h/x"};
	assert_int_equal(sl_outbox_start(o->c, o->lease, &opts, &box, &err), SL_EINVAL);
	assert_null(strstr(err.msg, "secret"));
	opts = (struct sl_outbox_opts){SL_OUTBOX_OPTS_INIT, .dir = place.dir, .file_bytes = -5};
	assert_int_equal(sl_outbox_start(o->c, o->lease, &opts, &box, &err), SL_EINVAL);
	assert_non_null(strstr(err.msg, "file_bytes"));
	opts = (struct sl_outbox_opts){SL_OUTBOX_OPTS_INIT, .dir = "s3://user:secret@bucket/x"};
	assert_int_equal(sl_outbox_start(o->c, o->lease, &opts, &box, &err), SL_EINVAL);
	assert_non_null(strstr(err.msg, "s3:// is not supported here"));
	assert_null(strstr(err.msg, "secret"));
}

int main(int argc, char **argv)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(committed_events_are_in_the_files_in_order),
		T(a_torn_tail_is_written_again),
		T(a_file_that_was_changed_is_left_alone_and_reported),
		T(files_that_were_removed_are_written_anew),
		T(events_that_are_written_and_not_marked_are_marked),
		T(files_that_are_ahead_of_the_catalog_are_a_conflict),
		T(a_full_file_is_followed_by_another),
		T(existing_files_that_cannot_be_read_are_reported_and_left_alone),
		T(every_call_that_fails_leaves_files_that_the_next_run_completes),
		T(allocations_that_fail_lose_nothing),
		T(after_a_power_loss_the_files_are_completed),
		T(what_is_marked_as_delivered_survives_a_power_loss),
		T(a_process_killed_at_any_step_leaves_nothing_torn_or_doubled),
		T(an_outbox_without_its_lease_stops),
		T(an_endpoint_gets_every_event_in_order),
		T(an_endpoint_that_fails_holds_up_neither_commits_nor_files),
		T(stopping_does_not_wait_for_an_endpoint_that_hangs),
		T(options_that_cannot_be_are_refused),
	};
	int rc = catalog_place_start(&place, argc, argv);
	if (rc != 0)
		return rc;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	catalog_place_stop(&place);
	return rc;
}
