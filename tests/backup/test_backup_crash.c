/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power loss during whole creates, forgets and prunes. They run on the local driver on a crash filesystem, and some of
 * them in processes that are killed in the middle; then, for points of the history, states that a loss could leave
 * there are rebuilt. In all of them the repository opens, every snapshot that was reported as done (and that no forget
 * had begun to remove) is there, every block that any snapshot needs is there and right, and another create and two
 * prunes succeed and leave it so.
 *
 *   SLUICE_TEST_SECONDS=N              how long (default 2)
 *   SLUICE_CRASH_STATES=N              how many states, instead of how long
 *   SLUICE_CRASH_SEED=seed:point:k     only this state
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backup/care_kit.h"
#include "support/budget.h"
#include "support/crashfs.h"

#define STEPS 9
#define STATES_PER_POINT 12
#define TREES 2
#define CONTENTS 5
#define NEVER SIZE_MAX

struct done {
	char id[SL_BACKUP_ID_BYTES];
	size_t from, until; /* points between which it must be there */
};

struct run {
	struct crashfs *fs;
	uint64_t seed, chance;
	struct done done[STEPS];
	int n;
};

static char folder[200]; /* of the trees */

static uint64_t below(uint64_t *state, uint64_t n)
{
	*state += UINT64_C(0x9e3779b97f4a7c15);
	uint64_t x = *state;
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (x ^ (x >> 31)) % n;
}

/* ---- a repository on a crash filesystem ---- */

struct handle {
	struct sl_env env;
	sl_driver driver;
	sl_backup *b;
};

static int open_driver(struct handle *h, struct crashfs *fs, struct sl_err *err)
{
	memset(h, 0, sizeof(*h));
	h->env = (struct sl_env){SL_ENV_INIT, .io = &crashfs_io, .io_ctx = fs};
	const struct sl_driver_local_opts opts = {SL_DRIVER_LOCAL_OPTS_INIT, .env = &h->env, .threads = 1,
						  .create = SL_ON};
	return sl_driver_local_open(&h->driver, "/repo", &opts, err);
}

static int open_handle(struct handle *h, struct crashfs *fs, struct sl_err *err)
{
	const struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .threads = 1, .max_retry_attempts = 1};
	int rc = open_driver(h, fs, err);
	return rc == 0 ? sl_backup_open(&h->b, &h->driver, &opts, err) : rc;
}

static void close_handle(struct handle *h)
{
	sl_backup_close(h->b);
	sl_driver_close(&h->driver);
}

static int create(sl_backup *b, int tree, char id[SL_BACKUP_ID_BYTES], struct sl_err *err)
{
	char path[300];
	snprintf(path, sizeof(path), "%s/t%d", folder, tree);
	const char *paths[] = {path};
	const struct sl_backup_create_opts opts = {SL_BACKUP_CREATE_OPTS_INIT, .paths = paths, .n_paths = 1,
						   .host = "h"};
	struct sl_backup_created out = {.struct_size = sizeof(out)};
	int rc = sl_backup_create(b, &opts, &out, err);
	if (rc == 0)
		memcpy(id, out.id, sizeof(out.id));
	return rc;
}

static int prune(sl_backup *b, struct sl_err *err)
{
	const struct sl_backup_prune_opts opts = {SL_BACKUP_PRUNE_OPTS_INIT, .repack_percent = 95};
	return sl_backup_prune(b, &opts, NULL, err);
}

/* ---- a run ---- */

static int forget_one(struct run *r, sl_backup *b, struct sl_err *err)
{
	for (int i = 0; i < r->n; i++) {
		if (r->done[i].until != NEVER)
			continue;
		const char *id = r->done[i].id;
		const struct sl_backup_forget_opts opts = {SL_BACKUP_FORGET_OPTS_INIT, .snapshots = &id,
							   .n_snapshots = 1};
		r->done[i].until = crashfs_point(r->fs);
		return sl_backup_forget(b, &opts, NULL, err);
	}
	return 0;
}

static int step(struct run *r, sl_backup *b, struct sl_err *err)
{
	uint64_t what = below(&r->chance, 8);
	if (what < 3) {
		struct done *d = &r->done[r->n];
		int rc = create(b, (int)below(&r->chance, TREES), d->id, err);
		d->from = crashfs_point(r->fs);
		d->until = NEVER;
		r->n += rc == 0;
		return rc;
	}
	return what < 5 ? forget_one(r, b, err) : prune(b, err);
}

/* The process has died somewhere in its step; another one begins. What it wrote and did not sync is still there. */
static void begin_anew(struct run *r, struct handle *h)
{
	struct sl_err err = SL_ERR_INIT;
	close_handle(h);
	crashfs_stop_at(r->fs, SIZE_MAX);
	crashfs_kill(r->fs);
	if (open_handle(h, r->fs, &err) != 0)
		fail_msg("seed %llu: open: %s", (unsigned long long)r->seed, err.msg);
}

static void run(struct run *r, uint64_t seed)
{
	const struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .encrypt = SL_OFF};
	struct sl_err err = SL_ERR_INIT;
	struct handle h;
	*r = (struct run){.fs = crashfs_new(), .seed = seed, .chance = seed};
	if (open_driver(&h, r->fs, &err) != 0 || sl_backup_init(&h.driver, &opts, &err) != 0)
		fail_msg("init: %s", err.msg);
	close_handle(&h);
	crashfs_settle(r->fs);
	if (open_handle(&h, r->fs, &err) != 0)
		fail_msg("open: %s", err.msg);
	for (int i = 0; i < STEPS; i++) {
		bool dies = below(&r->chance, 3) == 0;
		if (dies)
			crashfs_stop_at(r->fs, crashfs_point(r->fs) + (size_t)below(&r->chance, 40));
		int rc = step(r, h.b, &err);
		if (rc != 0 && !crashfs_stopped(r->fs))
			fail_msg("seed %llu: %s", (unsigned long long)seed, err.msg);
		if (dies)
			begin_anew(r, &h);
	}
	close_handle(&h);
}

/* ---- a state ---- */

static int show(const struct sl_backup_finding *f, void *ctx)
{
	(void)ctx;
	if (!f->harmless)
		print_message("# %s %s %s: %s\n", sl_backup_fault_name(f->fault), f->object,
			      f->path != NULL ? f->path : "", f->reason.msg);
	return 0;
}

static const char *check(sl_backup *b, struct sl_err *err)
{
	const struct sl_backup_check_opts opts = {SL_BACKUP_CHECK_OPTS_INIT, .read_data = SL_ON, .on_finding = show};
	return sl_backup_check(b, &opts, NULL, err) == 0 ? NULL : err->msg;
}

static const char *find_done(const struct run *r, size_t point, sl_backup *b)
{
	for (int i = 0; i < r->n; i++) {
		char id[SL_BACKUP_ID_BYTES];
		if (r->done[i].from <= point && point < r->done[i].until &&
		    sl_backup_resolve(b, r->done[i].id, id, NULL) != 0)
			return "a snapshot that was done is not there";
	}
	return NULL;
}

static const char *go_on(sl_backup *b, struct sl_err *err)
{
	char id[SL_BACKUP_ID_BYTES];
	if (create(b, 0, id, err) != 0 || prune(b, err) != 0 || prune(b, err) != 0)
		return err->msg;
	return check(b, err);
}

/* NULL, or the promise that is broken. */
static const char *judge(const struct run *r, size_t point, struct crashfs *fs, struct sl_err *err)
{
	struct handle h;
	const char *wrong = open_handle(&h, fs, err) != 0 ? err->msg : NULL;
	if (wrong == NULL)
		wrong = find_done(r, point, h.b);
	if (wrong == NULL)
		wrong = check(h.b, err);
	if (wrong == NULL)
		wrong = go_on(h.b, err);
	close_handle(&h);
	return wrong;
}

static void try_state(const struct run *r, size_t point, size_t k)
{
	struct sl_err err = SL_ERR_INIT;
	struct crashfs *fs = crashfs_crash(r->fs, point, k, STATES_PER_POINT, r->seed, NULL);
	const char *wrong = judge(r, point, fs, &err);
	if (wrong != NULL) {
		print_message("# SLUICE_CRASH_SEED=%llu:%zu:%zu violates a promise: %s\n", (unsigned long long)r->seed,
			      point, k, wrong);
		fail();
	}
	crashfs_free(fs);
}

static bool try_one(void)
{
	unsigned long long seed;
	size_t point, k;
	const char *text = getenv("SLUICE_CRASH_SEED");
	struct run r;
	if (text == NULL || sscanf(text, "%llu:%zu:%zu", &seed, &point, &k) != 3)
		return false;
	run(&r, seed);
	crashfs_print_log(r.fs, point, stdout);
	try_state(&r, point, k);
	crashfs_free(r.fs);
	return true;
}

static void a_power_loss_at_any_point_of_creates_and_prunes_costs_nothing_that_was_done(void **state)
{
	(void)state;
	double end = seconds_now() + test_seconds(2);
	uint64_t states = 0, most = test_number("SLUICE_CRASH_STATES", 0), seeds = 0;
	while (!try_one() && (most > 0 ? states < most : seconds_now() < end)) {
		struct run r;
		run(&r, ++seeds);
		size_t points = crashfs_point(r.fs);
		/* Some points of each seed, and at each the states in which most is lost or torn: k goes round. */
		for (int i = 0; i < 40 && (most > 0 ? states < most : seconds_now() < end); i++, states++) {
			size_t point = (size_t)below(&r.chance, points + 1);
			size_t all = crashfs_states(r.fs, point, STATES_PER_POINT);
			try_state(&r, point, (size_t)below(&r.chance, all));
		}
		crashfs_free(r.fs);
	}
	print_message("# %llu states of %llu seeds\n", (unsigned long long)states, (unsigned long long)seeds);
}

/* ---- the trees ---- */

static void write_file(const char *path, int number)
{
	struct care_file file = {.seed = (uint64_t)number + 100, .len = 3000};
	uint8_t *bytes = care_bytes(&file);
	int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
	assert_true(fd >= 0 && write(fd, bytes, file.len) == (ssize_t)file.len && close(fd) == 0);
	free(bytes);
}

static void each_file(void (*fn)(const char *path, int number))
{
	for (int t = 0; t < TREES; t++) {
		for (int c = 0; c < CONTENTS; c++) {
			char path[300];
			snprintf(path, sizeof(path), "%s/t%d/f%d", folder, t, c);
			if ((t + c) % 3 != 0)
				fn(path, c);
		}
	}
}

static int set_up(void **state)
{
	(void)state;
	const char *tmp = getenv("TMPDIR");
	snprintf(folder, sizeof(folder), "%s/sluice-crash-XXXXXX", tmp != NULL ? tmp : "/tmp");
	assert_non_null(mkdtemp(folder));
	for (int t = 0; t < TREES; t++) {
		char path[300];
		snprintf(path, sizeof(path), "%s/t%d", folder, t);
		assert_int_equal(mkdir(path, 0755), 0);
	}
	each_file(write_file);
	return 0;
}

static void remove_file(const char *path, int number)
{
	(void)number;
	(void)unlink(path);
}

static int tear_down(void **state)
{
	(void)state;
	each_file(remove_file);
	for (int t = 0; t < TREES; t++) {
		char path[300];
		snprintf(path, sizeof(path), "%s/t%d", folder, t);
		(void)rmdir(path);
	}
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_power_loss_at_any_point_of_creates_and_prunes_costs_nothing_that_was_done),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
