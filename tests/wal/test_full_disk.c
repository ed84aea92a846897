/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real filesystem that is really full: a tmpfs of 512 KiB, mounted in its own namespace so that nothing is left
 * behind. Where mounting is not allowed, the same runs on the filesystem in memory with a quota, and says so.
 */
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/walmodel.h"

#define DISK_BYTES (512 * 1024)

/* A disk with room: a real one of which a file takes the space, or a quota. */
struct disk {
	bool real;
	char dir[64];
	struct crashfs *fs;
	struct walmodel_env env;
	struct sl_wal_opts opts;
};

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                \
			return 1;                                                                                      \
		}                                                                                                      \
	} while (0)

/* Take all the space but about `leave` bytes. */
static void fill(struct disk *d, size_t leave)
{
	if (!d->real) {
		crashfs_quota(d->fs, SIZE_MAX);
		size_t n = 0;
		(void)crashfs_get(d->fs, "/w/s.wal", &n);
		crashfs_quota(d->fs, n + 16 + leave);
		return;
	}
	char path[96], zeros[4096] = {0};
	(void)snprintf(path, sizeof(path), "%s/filler", d->dir);
	int fd = open(path, O_CREAT | O_WRONLY | O_APPEND, 0600);
	while (write(fd, zeros, sizeof(zeros)) == sizeof(zeros))
		;
	struct stat st;
	if (leave > 0 && fstat(fd, &st) == 0 &&
	    ftruncate(fd, st.st_size > (off_t)leave ? st.st_size - (off_t)leave : 0) != 0)
		abort();
	close(fd);
}

static void make_room(struct disk *d)
{
	char path[96];
	if (!d->real) {
		crashfs_quota(d->fs, SIZE_MAX);
		return;
	}
	(void)snprintf(path, sizeof(path), "%s/filler", d->dir);
	(void)unlink(path);
}

static int count(const struct sl_wal_record *record, void *ctx)
{
	uint64_t *next = ctx;
	return record->sequence == ++*next && walmodel_id_of(record->payload, record->payload_len) == *next ? 0 : 99;
}

static int append(sl_wal *w, uint64_t id, uint64_t *sequence)
{
	uint8_t payload[WALMODEL_MAX_PAYLOAD];
	struct sl_err err = SL_ERR_INIT;
	return sl_wal_append(w, payload, walmodel_payload(id, payload), sequence, &err);
}

/* Append until the disk is full, make room, continue; several times; then read everything. */
static int append_on_a_full_disk(struct disk *d)
{
	struct sl_err err = SL_ERR_INIT;
	sl_wal *w = NULL;
	uint64_t last = 0, sequence = 0, full = 0;
	CHECK(sl_wal_open(&w, "s", &d->opts, &err) == 0);
	for (int round = 0; round < 4; round++) {
		fill(d, round == 0 ? 0 : 4096 * (size_t)round + 100);
		int rc;
		while ((rc = append(w, last + 1, &sequence)) == 0)
			CHECK(sequence == ++last);
		CHECK(rc == SL_ENOSPC);
		full++;
		CHECK(append(w, last + 1, &sequence) == SL_ENOSPC);
		make_room(d);
		for (int i = 0; i < 5; i++) {
			CHECK(append(w, last + 1, &sequence) == 0); /* the handle is usable again */
			CHECK(sequence == ++last);
		}
	}
	CHECK(sl_wal_close(w, &err) == 0);
	CHECK(sl_wal_open(&w, "s", &d->opts, &err) == 0);
	uint64_t seen = 0;
	CHECK(sl_wal_iterate(w, 0, count, &seen, &err) == 0);
	CHECK(seen == last);
	CHECK(sl_wal_close(w, &err) == 0);
	printf("# %s: full %llu times, %llu records, all there\n", d->real ? "tmpfs" : "quota",
	       (unsigned long long)full, (unsigned long long)last);
	return 0;
}

/* The disk fills while the log is opened for the first time, and while a crashed one is recovered. */
static int open_on_a_full_disk(struct disk *d)
{
	struct sl_err err = SL_ERR_INIT;
	sl_wal *w = NULL;
	if (d->real)
		fill(d, 0);
	else
		crashfs_quota(d->fs, 0);
	CHECK(sl_wal_open(&w, "s", &d->opts, &err) == SL_ENOSPC);
	make_room(d);
	uint64_t sequence;
	CHECK(sl_wal_open(&w, "s", &d->opts, &err) == 0);
	CHECK(append(w, 1, &sequence) == 0 && sequence == 1);
	CHECK(sl_wal_close(w, &err) == 0);
	fill(d, 0);
	int rc = sl_wal_open(&w, "s", &d->opts, &err); /* needs no space, or says so */
	CHECK(rc == 0 || rc == SL_ENOSPC);
	if (rc == 0)
		(void)sl_wal_close(w, NULL);
	make_room(d);
	CHECK(sl_wal_open(&w, "s", &d->opts, &err) == 0);
	uint64_t seen = 0;
	CHECK(sl_wal_iterate(w, 0, count, &seen, &err) == 0 && seen == 1);
	CHECK(sl_wal_close(w, &err) == 0);
	return 0;
}

static bool has_file(struct disk *d, const char *path)
{
	struct stat st;
	return d->real ? stat(path, &st) == 0 : crashfs_get(d->fs, path, NULL) != NULL;
}

static int archive_on_a_full_disk(struct disk *d)
{
	struct sl_err err = SL_ERR_INIT;
	sl_wal *w = NULL;
	uint64_t sequence, seen = 0;
	char log[96], archive[96];
	(void)snprintf(log, sizeof(log), "%s/s.wal", d->opts.wal_dir);
	(void)snprintf(archive, sizeof(archive), "%s/s.wal.zst", d->opts.archive_dir);
	CHECK(sl_wal_open(&w, "s", &d->opts, &err) == 0);
	for (uint64_t i = 1; i <= 100; i++)
		CHECK(append(w, i, &sequence) == 0);
	CHECK(sl_wal_close(w, &err) == 0);
	fill(d, d->real ? 8192 : 2000);
	CHECK(sl_wal_archive_path(log, d->opts.archive_dir, true, &d->opts, &err) == SL_ENOSPC);
	CHECK(has_file(d, log));
	CHECK(!has_file(d, archive));
	make_room(d);
	CHECK(sl_wal_archive_path(log, d->opts.archive_dir, true, &d->opts, &err) == 0);
	CHECK(!has_file(d, log));
	struct sl_wal_scan_opts scan = {SL_WAL_SCAN_OPTS_INIT, .env = d->opts.env, .on_record = count, .ctx = &seen};
	CHECK(sl_wal_scan(archive, &scan, NULL, &err) == 0);
	CHECK(seen == 100);
	return 0;
}

/* ---- the disks ---- */

/* A mount namespace of our own; as another user than root, together with a user namespace. */
static bool enter_namespace(void)
{
	if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
		return false;
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static int on_tmpfs(const char *dir, int (*fn)(struct disk *d))
{
	char options[64], wal[128], archive[128];
	if (!enter_namespace())
		return 77;
	(void)snprintf(options, sizeof(options), "size=%d", DISK_BYTES);
	if (mount("sluice-test", dir, "tmpfs", 0, options) != 0)
		return 77;
	struct disk d = {.real = true};
	(void)snprintf(d.dir, sizeof(d.dir), "%s", dir);
	(void)snprintf(wal, sizeof(wal), "%s/w", dir);
	(void)snprintf(archive, sizeof(archive), "%s/a", dir);
	d.opts = (struct sl_wal_opts){SL_WAL_OPTS_INIT, .wal_dir = wal, .archive_dir = archive};
	return fn(&d);
}

static int on_quota(int (*fn)(struct disk *d))
{
	struct disk d = {.fs = crashfs_new()};
	crashfs_record(d.fs, false);
	walmodel_env_init(&d.env, d.fs, 1);
	d.opts = (struct sl_wal_opts){SL_WAL_OPTS_INIT, .env = &d.env.env, .wal_dir = "/w", .archive_dir = "/a",
				      .background = SL_OFF};
	int rc = fn(&d);
	walmodel_env_fini(&d.env);
	crashfs_free(d.fs);
	return rc;
}

/* In a child, whose namespace and mount go with it. */
static void on_both(int (*fn)(struct disk *d))
{
	char dir[] = "full-disk-XXXXXX";
	int status;
	assert_int_equal(on_quota(fn), 0);
	assert_non_null(mkdtemp(dir));
	fflush(NULL);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int rc = on_tmpfs(dir, fn);
		fflush(NULL);
		_exit(rc);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(rmdir(dir), 0);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		printf("# no mount is allowed here: only the quota was tried\n");
	else
		assert_int_equal(WEXITSTATUS(status), 0);
}

static void an_append_fails_while_the_disk_is_full_and_succeeds_when_there_is_room(void **state)
{
	(void)state;
	on_both(append_on_a_full_disk);
}

static void a_log_that_cannot_be_made_or_recovered_is_not_harmed(void **state)
{
	(void)state;
	on_both(open_on_a_full_disk);
}

static void an_archive_that_does_not_fit_is_not_published_and_the_log_stays(void **state)
{
	(void)state;
	on_both(archive_on_a_full_disk);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_append_fails_while_the_disk_is_full_and_succeeds_when_there_is_room),
		cmocka_unit_test(a_log_that_cannot_be_made_or_recovered_is_not_harmed),
		cmocka_unit_test(an_archive_that_does_not_fit_is_not_published_and_the_log_stays),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
