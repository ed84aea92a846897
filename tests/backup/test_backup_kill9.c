/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill -9 of real processes on the real disk. Children create, prune and forget, up to three at once, in one
 * repository, and report each snapshot whose create has succeeded; each is killed before one of its changes to the
 * disk, drawn at random: between two of them a kill leaves nothing else. Then the repository is checked, every byte
 * of it, and snapshots are restored and compared with the tree as it was: nothing that was done is lost, nothing is
 * there in part, and nothing needs a repair.
 *
 *   SLUICE_KILL_CYCLES=N   how many kills, instead of a few seconds' worth
 *   SLUICE_KILL_SEED=S     other moments
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/env.h"
#include <sluice/backup_care.h>

#define FILES 12
#define CHILDREN 3
#define KEEP 3
#define SNAPSHOTS 64
#define FILE_MAX 90000

struct kept {
	char id[SL_BACKUP_ID_BYTES];
	uint64_t tree; /* the number of the tree it was made of */
};

enum work { CREATE, PRUNE, FORGET, WORKS };

struct world {
	char folder[200];
	uint64_t chance;
	uint64_t tree; /* the one that is there: file i has version versions[i] */
	uint64_t versions[FILES];
	uint64_t past[SNAPSHOTS * 4][FILES]; /* of tree n, at n modulo its length */
	struct kept kept[SNAPSHOTS];
	size_t n_kept;
	double typical[WORKS]; /* how many changes each kind of work makes */
	uint64_t kills, creates, restored, unfinished;
};

static uint64_t draw(uint64_t *state)
{
	*state += UINT64_C(0x9e3779b97f4a7c15);
	uint64_t x = *state;
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static uint64_t below(struct world *w, uint64_t n)
{
	return draw(&w->chance) % n;
}

static int64_t now_us(void)
{
	struct timespec ts;
	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static void path_of(const struct world *w, char out[300], const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void path_of(const struct world *w, char out[300], const char *fmt, ...)
{
	va_list args;
	int n = snprintf(out, 300, "%s/", w->folder);
	va_start(args, fmt);
	(void)vsnprintf(out + n, 300 - (size_t)n, fmt, args);
	va_end(args);
}

/* ---- the tree ---- */

static size_t contents(size_t file, uint64_t version, uint8_t bytes[FILE_MAX])
{
	uint64_t state = version % 7 * 100 + file; /* old contents come again */
	size_t len = draw(&state) % FILE_MAX;
	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)(draw(&state) & 15);
	return len;
}

static void write_file(const struct world *w, size_t file, uint64_t version)
{
	static uint8_t bytes[FILE_MAX];
	char path[300];
	path_of(w, path, "tree/f%02zu", file);
	size_t len = contents(file, version, bytes);
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
	assert_true(fd >= 0 && write(fd, bytes, len) == (ssize_t)len && close(fd) == 0);
}

static void change_tree(struct world *w)
{
	for (uint64_t n = below(w, 4); n > 0; n--) {
		size_t file = (size_t)below(w, FILES);
		write_file(w, file, ++w->versions[file]);
	}
	w->tree++;
	memcpy(w->past[w->tree % (SNAPSHOTS * 4)], w->versions, sizeof(w->versions));
}

/* ---- children ---- */

/* The disk of a child: `left` changes, and then a kill. */
static atomic_llong left;

static void count_down(void)
{
	if (atomic_fetch_sub(&left, 1) == 1)
		(void)kill(getpid(), SIGKILL);
}

static ssize_t killing_pwrite(int fd, const void *buf, size_t n, uint64_t offset, void *ctx)
{
	count_down();
	return sl__io_real.pwrite(fd, buf, n, offset, ctx);
}

static int killing_datasync(int fd, void *ctx)
{
	count_down();
	return sl__io_real.datasync(fd, ctx);
}

static int killing_sync(int fd, void *ctx)
{
	count_down();
	return sl__io_real.sync(fd, ctx);
}

static int killing_rename(const char *from, const char *to, int noreplace, void *ctx)
{
	count_down();
	return sl__io_real.rename(from, to, noreplace, ctx);
}

static int killing_unlink(const char *path, void *ctx)
{
	count_down();
	return sl__io_real.unlink(path, ctx);
}

static int killing_mkdir(const char *path, mode_t mode, void *ctx)
{
	count_down();
	return sl__io_real.mkdir(path, mode, ctx);
}

struct report {
	char id[SL_BACKUP_ID_BYTES];
	uint64_t tree;
};

static sl_backup *open_repository(const struct world *w, const struct sl_env *env, sl_driver *driver,
				  struct sl_err *err)
{
	char path[300];
	path_of(w, path, "repo");
	const struct sl_driver_local_opts local = {SL_DRIVER_LOCAL_OPTS_INIT, .env = env};
	const struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .threads = 2, .pack_bytes = 64 << 10};
	sl_backup *b = NULL;
	if (sl_driver_local_open(driver, path, &local, err) != 0 || sl_backup_open(&b, driver, &opts, err) != 0)
		return NULL;
	return b;
}

static int create(const struct world *w, sl_backup *b, int out, struct sl_err *err)
{
	char path[300];
	path_of(w, path, "tree");
	const char *paths[] = {path};
	const struct sl_backup_create_opts opts = {SL_BACKUP_CREATE_OPTS_INIT, .paths = paths, .n_paths = 1,
						   .host = "h"};
	struct sl_backup_created made = {.struct_size = sizeof(made)};
	int rc = sl_backup_create(b, &opts, &made, err);
	if (rc != 0)
		return rc;
	struct report r = {.tree = w->tree};
	memcpy(r.id, made.id, sizeof(r.id));
	return write(out, &r, sizeof(r)) == sizeof(r) ? 0 : SL_EIO;
}

static int work(const struct world *w, enum work what, int out, struct sl_err *err)
{
	sl_driver driver = {0};
	struct sl_io io = sl__io_real;
	io.pwrite = killing_pwrite;
	io.datasync = killing_datasync;
	io.sync = killing_sync;
	io.rename = killing_rename;
	io.unlink = killing_unlink;
	io.mkdir = killing_mkdir;
	const struct sl_env env = {SL_ENV_INIT, .io = &io};
	sl_backup *b = open_repository(w, &env, &driver, err);
	if (b == NULL)
		return err->code;
	const struct sl_backup_prune_opts prune = {SL_BACKUP_PRUNE_OPTS_INIT, .session_silence_ms = 60000};
	const struct sl_backup_forget_opts forget = {SL_BACKUP_FORGET_OPTS_INIT, .keep_last = KEEP};
	int rc = what == CREATE  ? create(w, b, out, err)
		 : what == PRUNE ? sl_backup_prune(b, &prune, NULL, err)
				 : sl_backup_forget(b, &forget, NULL, err);
	sl_backup_close(b);
	sl_driver_close(&driver);
	return rc == SL_ELOCKED ? 0 : rc;
}

/* kill_at 0: it may end. */
static pid_t start(const struct world *w, enum work what, int64_t kill_at, int out)
{
	atomic_store(&left, kill_at);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid != 0)
		return pid;
	struct sl_err err = SL_ERR_INIT;
	int rc = work(w, what, out, &err);
	if (rc != 0)
		(void)fprintf(stderr, "# child: %s\n", err.msg);
	_exit(rc == 0 ? 0 : 1);
}

/* Killed, or done; nothing else. What is drawn from grows with each kill, and shrinks with each end that came first. */
static void end_child(struct world *w, pid_t pid, enum work what, bool kills)
{
	int status = 0;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status)) {
		assert_int_equal(WTERMSIG(status), SIGKILL);
		w->kills++;
		w->typical[what] *= 1.05;
	} else {
		assert_int_equal(WEXITSTATUS(status), 0);
		if (kills && w->typical[what] > 4)
			w->typical[what] /= 1.2;
	}
}

/* ---- what must be there ---- */

static void take_reports(struct world *w, int in)
{
	struct report r;
	while (read(in, &r, sizeof(r)) == sizeof(r)) {
		w->creates++;
		assert_true(w->n_kept < SNAPSHOTS);
		w->kept[w->n_kept] = (struct kept){.tree = r.tree};
		memcpy(w->kept[w->n_kept++].id, r.id, sizeof(r.id));
	}
}

struct listing {
	char ids[SNAPSHOTS * 4][SL_BACKUP_ID_BYTES];
	size_t n;
};

static int list_one(const struct sl_backup_snapshot *s, void *ctx)
{
	struct listing *l = ctx;
	assert_true(l->n < SNAPSHOTS * 4);
	memcpy(l->ids[l->n++], s->id, SL_BACKUP_ID_BYTES);
	return 0;
}

static bool is_listed(const struct listing *l, const char *id)
{
	for (size_t i = 0; i < l->n; i++)
		if (strcmp(l->ids[i], id) == 0)
			return true;
	return false;
}

/* Forget keeps the last ones; what it may have removed is not looked for any more. */
static void settle(struct world *w, const struct listing *l, bool forgets)
{
	size_t n = 0;
	for (size_t i = 0; i < w->n_kept; i++) {
		bool there = is_listed(l, w->kept[i].id);
		if (!there && !(forgets && w->n_kept + w->unfinished >= KEEP))
			fail_msg("snapshot %s was done and is not there", w->kept[i].id);
		if (there)
			w->kept[n++] = w->kept[i];
	}
	assert_true(l->n >= (w->n_kept < KEEP ? w->n_kept : KEEP));
	w->n_kept = n;
	w->unfinished = l->n - n; /* published, but killed before they reported it */
}

static void compare_file(const struct world *w, const char *root, size_t file, uint64_t version)
{
	static uint8_t want[FILE_MAX], is[FILE_MAX + 1];
	char path[600];
	size_t len = contents(file, version, want);
	(void)snprintf(path, sizeof(path), "%s%s/tree/f%02zu", root, w->folder, file);
	int fd = open(path, O_RDONLY);
	if (fd < 0)
		fail_msg("%s: %s", path, strerror(errno));
	ssize_t got = read(fd, is, sizeof(is));
	(void)close(fd);
	if (got != (ssize_t)len || memcmp(is, want, len) != 0)
		fail_msg("%s has other bytes than it had", path);
}

static void remove_tree(const char *path)
{
	char command[400];
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", path);
	assert_int_equal(system(command), 0);
}

static void restore(struct world *w, sl_backup *b, const struct kept *k)
{
	char to[300];
	struct sl_err err = SL_ERR_INIT;
	path_of(w, to, "restored");
	const struct sl_backup_restore_opts opts = {SL_BACKUP_RESTORE_OPTS_INIT, .to = to};
	struct sl_backup_restored out = {.struct_size = sizeof(out)};
	if (sl_backup_restore(b, k->id, &opts, &out, &err) != 0)
		fail_msg("restore %s: %s", k->id, err.msg);
	for (size_t i = 0; i < FILES; i++)
		compare_file(w, to, i, w->past[k->tree % (SNAPSHOTS * 4)][i]);
	remove_tree(to);
	w->restored++;
}

static int show(const struct sl_backup_finding *f, void *ctx)
{
	(void)ctx;
	if (!f->harmless)
		print_message("# %s %s %s %s: %s\n", sl_backup_fault_name(f->fault), f->object,
			      f->snapshot != NULL ? f->snapshot : "", f->path != NULL ? f->path : "", f->reason.msg);
	return 0;
}

static void judge(struct world *w, bool forgets, bool all)
{
	struct sl_err err = SL_ERR_INIT;
	sl_driver driver = {0};
	static struct listing l;
	l.n = 0;
	sl_backup *b = open_repository(w, NULL, &driver, &err);
	if (b == NULL)
		fail_msg("open: %s", err.msg);
	const struct sl_backup_check_opts check = {SL_BACKUP_CHECK_OPTS_INIT, .read_data = SL_ON, .on_finding = show};
	if (sl_backup_check(b, &check, NULL, &err) != 0 || sl_backup_list(b, list_one, NULL, &l, &err) != 0)
		fail_msg("%s", err.msg);
	settle(w, &l, forgets);
	for (size_t i = 0; i < w->n_kept && all; i++)
		restore(w, b, &w->kept[i]);
	if (w->n_kept > 0 && !all)
		restore(w, b, &w->kept[below(w, w->n_kept)]);
	sl_backup_close(b);
	sl_driver_close(&driver);
}

/* Sessions of the killed look as if they had been silent for an hour: the next prune may take them for dead. */
static void age_sessions(const struct world *w)
{
	char path[300];
	path_of(w, path, "repo/sessions");
	DIR *dir = opendir(path);
	for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
		struct timespec times[2] = {{.tv_sec = time(NULL) - 3600}, {.tv_sec = time(NULL) - 3600}};
		if (e->d_name[0] != '.')
			(void)utimensat(dirfd(dir), e->d_name, times, 0);
	}
	if (dir != NULL)
		(void)closedir(dir);
}

/* ---- cycles ---- */

static void cycle(struct world *w)
{
	static const enum work kinds[] = {CREATE, CREATE, CREATE, PRUNE, PRUNE, FORGET};
	pid_t pids[CHILDREN];
	enum work whats[CHILDREN];
	bool kills[CHILDREN];
	int pipes[2], n = 1 + (int)below(w, CHILDREN);
	bool forgets = w->n_kept > SNAPSHOTS / 2;
	change_tree(w);
	if (below(w, 2) == 0)
		age_sessions(w);
	assert_int_equal(pipe2(pipes, O_NONBLOCK | O_CLOEXEC), 0);
	for (int i = 0; i < n; i++) {
		enum work what = forgets && i == 0 ? FORGET : kinds[below(w, sizeof(kinds) / sizeof(kinds[0]))];
		forgets = forgets || what == FORGET;
		whats[i] = what;
		kills[i] = below(w, 8) != 0;
		pids[i] = start(w, what, kills[i] ? 1 + (int64_t)below(w, (uint64_t)w->typical[what]) : 0, pipes[1]);
	}
	for (int i = 0; i < n; i++)
		end_child(w, pids[i], whats[i], kills[i]);
	(void)close(pipes[1]);
	take_reports(w, pipes[0]);
	(void)close(pipes[0]);
	judge(w, forgets, false);
}

static void begin(struct world *w)
{
	const char *seed = getenv("SLUICE_KILL_SEED");
	const char *tmp =
		access("/dev/shm", W_OK) == 0 ? "/dev/shm" : getenv("TMPDIR"); /* a kill is not a power loss */
	char path[300];
	struct sl_err err = SL_ERR_INIT;
	memset(w, 0, sizeof(*w));
	w->chance = seed != NULL ? strtoull(seed, NULL, 10) : (uint64_t)now_us();
	print_message("# SLUICE_KILL_SEED=%llu\n", (unsigned long long)w->chance);
	(void)snprintf(w->folder, sizeof(w->folder), "%s/sluice-kill9-XXXXXX", tmp != NULL ? tmp : "/tmp");
	assert_non_null(mkdtemp(w->folder));
	path_of(w, path, "tree");
	assert_int_equal(mkdir(path, 0755), 0);
	for (size_t i = 0; i < FILES; i++)
		write_file(w, i, 0);
	path_of(w, path, "repo");
	sl_driver driver = {0};
	const struct sl_driver_local_opts local = {SL_DRIVER_LOCAL_OPTS_INIT, .create = SL_ON};
	const struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .encrypt = SL_OFF};
	if (sl_driver_local_open(&driver, path, &local, &err) != 0 || sl_backup_init(&driver, &opts, &err) != 0)
		fail_msg("init: %s", err.msg);
	sl_driver_close(&driver);
	int pipes[2];
	for (size_t i = 0; i < WORKS; i++)
		w->typical[i] = 30;
	memcpy(w->past[0], w->versions, sizeof(w->versions));
	assert_int_equal(pipe2(pipes, O_NONBLOCK | O_CLOEXEC), 0);
	end_child(w, start(w, CREATE, 0, pipes[1]), CREATE, false);
	take_reports(w, pipes[0]);
	(void)close(pipes[0]);
	(void)close(pipes[1]);
}

static void killed_creates_prunes_and_forgets_lose_nothing_and_need_no_repair(void **state)
{
	(void)state;
	static struct world w;
	const char *cycles = getenv("SLUICE_KILL_CYCLES"), *seconds = getenv("SLUICE_TEST_SECONDS");
	begin(&w);
	int64_t end = now_us() + (int64_t)(1e6 * (seconds != NULL ? strtod(seconds, NULL) : 2));
	uint64_t want = cycles != NULL ? strtoull(cycles, NULL, 10) : 0;
	while (want > 0 ? w.kills < want : now_us() < end)
		cycle(&w);
	judge(&w, false, true);
	print_message("# %llu kills, %llu snapshots done, %llu restored and compared\n", (unsigned long long)w.kills,
		      (unsigned long long)w.creates, (unsigned long long)w.restored);
	remove_tree(w.folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_creates_prunes_and_forgets_lose_nothing_and_need_no_repair),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
