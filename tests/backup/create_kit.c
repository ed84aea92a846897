/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/create_kit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "base/env.h"

int64_t ck_ahead_ms = 60000;

static int64_t ahead_real_ms(void *ctx)
{
	(void)ctx;
	return sl__clock_real.real_ms(NULL) + ck_ahead_ms;
}

struct sl_env ck_env(void)
{
	static struct sl_clock clock;
	clock = sl__clock_real;
	clock.real_ms = ahead_real_ms;
	return (struct sl_env){SL_ENV_INIT, .clock = &clock};
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)ftw;
	if (type == FTW_DNR)
		(void)chmod(path, 0700);
	(void)st;
	return remove(path);
}

void ck_remove(const char *path)
{
	(void)nftw(path, remove_one, 32, FTW_DEPTH | FTW_PHYS);
}

void ck_begin(struct ck *k, const struct sl_env *env)
{
	const char *tmp = getenv("TMPDIR");
	char made[200];
	memset(k, 0, sizeof(*k));
	k->env = env != NULL ? *env : ck_env();
	(void)snprintf(made, sizeof(made), "%.150s/sl-create-XXXXXX", tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp");
	assert_non_null(mkdtemp(made));
	char *real = realpath(made, NULL);
	assert_non_null(real);
	(void)snprintf(k->dir, sizeof(k->dir), "%s", real);
	free(real);
	(void)snprintf(k->tree, sizeof(k->tree), "%s/tree", k->dir);
	(void)snprintf(k->repo, sizeof(k->repo), "%s/repo", k->dir);
	(void)snprintf(k->out, sizeof(k->out), "%s/out", k->dir);
	assert_int_equal(mkdir(k->tree, 0755), 0);
	struct sl_driver_local_opts local = {SL_DRIVER_LOCAL_OPTS_INIT, .create = SL_ON};
	assert_int_equal(sl_driver_local_open(&k->driver, k->repo, &local, NULL), 0);
	k->opts = (struct sl_backup_opts){SL_BACKUP_OPTS_INIT, .env = &k->env, .encrypt = SL_OFF, .threads = 2};
	assert_int_equal(sl_backup_init(&k->driver, &k->opts, &k->err), 0);
	assert_int_equal(sl_backup_open(&k->b, &k->driver, &k->opts, &k->err), 0);
	k->paths[0] = k->tree;
	k->create = (struct sl_backup_create_opts){SL_BACKUP_CREATE_OPTS_INIT, .paths = k->paths, .n_paths = 1};
}

void ck_reopen(struct ck *k)
{
	sl_backup_close(k->b);
	k->b = NULL;
	assert_int_equal(sl_backup_open(&k->b, &k->driver, &k->opts, &k->err), 0);
}

void ck_end(struct ck *k)
{
	sl_backup_close(k->b);
	sl_driver_close(&k->driver);
	ck_remove(k->dir);
}

/* ---- create ---- */

static void note_problem(enum sl_backup_problem problem, const char *path, const struct sl_err *err, void *ctx)
{
	struct ck *k = ctx;
	assert_true(err != NULL && err->code != 0 && err->msg[0] != '\0');
	if (k->n_problems == sizeof(k->problems) / sizeof(k->problems[0]))
		return;
	struct ck_problem *p = &k->problems[k->n_problems++];
	p->problem = problem;
	(void)snprintf(p->path, sizeof(p->path), "%s", path);
	(void)snprintf(p->msg, sizeof(p->msg), "%s", err->msg);
	if (k->on_problem != NULL)
		k->on_problem(k, p);
}

int ck_create(struct ck *k)
{
	k->n_problems = 0;
	k->create.on_problem = note_problem;
	k->create.ctx = k;
	k->made = (struct sl_backup_created){.struct_size = sizeof(k->made)};
	k->err = (struct sl_err)SL_ERR_INIT;
	return sl_backup_create(k->b, &k->create, &k->made, &k->err);
}

void ck_create_ok(struct ck *k)
{
	size_t counted = 0;
	int rc = ck_create(k);
	if (rc != 0)
		fail_msg("create: %s", k->err.msg);
	for (size_t i = 0; i < k->n_problems; i++)
		counted += k->problems[i].problem != SL_BACKUP_SKIPPED; /* these are only reported */
	assert_int_equal(k->made.problems, counted);
}

const struct ck_problem *ck_problem_of(const struct ck *k, const char *path_end)
{
	size_t n = strlen(path_end);
	for (size_t i = 0; i < k->n_problems; i++) {
		size_t len = strlen(k->problems[i].path);
		if (len >= n && strcmp(k->problems[i].path + len - n, path_end) == 0)
			return &k->problems[i];
	}
	return NULL;
}

static void say_problem(enum sl_backup_problem problem, const char *path, const struct sl_err *err, void *ctx)
{
	(void)ctx;
	fail_msg("restore: %s %s: %s", sl_backup_problem_name(problem), path, err->msg);
}

void ck_restore(struct ck *k)
{
	struct sl_backup_restored r = {.struct_size = sizeof(r)};
	struct sl_backup_restore_opts o = {SL_BACKUP_RESTORE_OPTS_INIT, .to = k->out, .set_id = SL_ON,
					   .security = SL_ON, .on_problem = say_problem};
	ck_remove(k->out);
	if (sl_backup_restore(k->b, k->made.id, &o, &r, &k->err) != 0)
		fail_msg("restore: %s", k->err.msg);
}

void ck_restore_and_compare(struct ck *k)
{
	char there[1024];
	ck_restore(k);
	(void)snprintf(there, sizeof(there), "%s%s", k->out, k->tree);
	ck_compare(k->tree, there);
}

/* ---- comparing ---- */

static void compare_bytes(const char *a, const char *b, off_t size)
{
	static uint8_t x[1 << 16], y[1 << 16];
	int fa = open(a, O_RDONLY | O_CLOEXEC), fb = open(b, O_RDONLY | O_CLOEXEC);
	assert_true(fa >= 0 && fb >= 0);
	for (off_t at = 0; at < size;) {
		/* Holes of huge files are not gone through: both must have their data at the same places. */
		off_t da = lseek(fa, at, SEEK_DATA), db = lseek(fb, at, SEEK_DATA);
		if (da != db)
			fail_msg("%s has data at %ld, %s at %ld", a, (long)da, b, (long)db);
		if (da < 0)
			break;
		ssize_t n = pread(fa, x, sizeof(x), da);
		assert_true(n > 0);
		if (pread(fb, y, (size_t)n, da) != n || memcmp(x, y, (size_t)n) != 0)
			fail_msg("%s and %s differ at %ld", a, b, (long)da);
		at = da + n;
	}
	assert_int_equal(close(fa), 0);
	assert_int_equal(close(fb), 0);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

static size_t xattr_names(const char *path, char names[64][256])
{
	char list[16384];
	ssize_t len = llistxattr(path, list, sizeof(list));
	size_t n = 0;
	for (const char *p = list; len > 0 && p < list + len && n < 64; p += strlen(p) + 1)
		(void)snprintf(names[n++], 256, "%.255s", p);
	qsort(names, n, 256, by_name);
	return n;
}

static void compare_xattrs(const char *a, const char *b)
{
	static char na[64][256], nb[64][256];
	static char va[70000], vb[70000];
	size_t n = xattr_names(a, na);
	if (n != xattr_names(b, nb))
		fail_msg("%s and %s have not as many attributes", a, b);
	for (size_t i = 0; i < n; i++) {
		assert_string_equal(na[i], nb[i]);
		ssize_t la = lgetxattr(a, na[i], va, sizeof(va)), lb = lgetxattr(b, na[i], vb, sizeof(vb));
		if (la < 0 || la != lb || memcmp(va, vb, (size_t)la) != 0)
			fail_msg("%s and %s differ in %s", a, b, na[i]);
	}
}

static void compare_links(const char *a, const char *b)
{
	char ta[5000], tb[5000];
	ssize_t la = readlink(a, ta, sizeof(ta)), lb = readlink(b, tb, sizeof(tb));
	if (la <= 0 || la != lb || memcmp(ta, tb, (size_t)la) != 0)
		fail_msg("%s and %s lead elsewhere", a, b);
}

static int count_names(const char *path)
{
	DIR *d = opendir(path);
	int n = 0;
	assert_non_null(d);
	for (const struct dirent *e; (e = readdir(d)) != NULL;)
		n++;
	(void)closedir(d);
	return n;
}

static void compare_folders(const char *a, const char *b)
{
	DIR *d = opendir(a);
	assert_non_null(d);
	if (count_names(a) != count_names(b))
		fail_msg("%s and %s have not as many names", a, b);
	for (const struct dirent *e; (e = readdir(d)) != NULL;) {
		char x[3000], y[3000];
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		(void)snprintf(x, sizeof(x), "%s/%s", a, e->d_name);
		(void)snprintf(y, sizeof(y), "%s/%s", b, e->d_name);
		ck_compare(x, y);
	}
	(void)closedir(d);
}

void ck_compare(const char *a, const char *b)
{
	struct stat x, y;
	assert_int_equal(lstat(a, &x), 0);
	if (lstat(b, &y) != 0)
		fail_msg("%s is not there", b);
	if (x.st_mode != y.st_mode || x.st_uid != y.st_uid || x.st_gid != y.st_gid)
		fail_msg("%s: mode %o %u:%u, restored %o %u:%u", a, x.st_mode, x.st_uid, x.st_gid, y.st_mode, y.st_uid,
			 y.st_gid);
	if (x.st_mtim.tv_sec != y.st_mtim.tv_sec || x.st_mtim.tv_nsec != y.st_mtim.tv_nsec)
		fail_msg("%s: another time of change", a);
	if (!S_ISDIR(x.st_mode) && (x.st_size != y.st_size || x.st_nlink != y.st_nlink))
		fail_msg("%s: %ld bytes, %ld names; restored %ld, %ld", a, (long)x.st_size, (long)x.st_nlink,
			 (long)y.st_size, (long)y.st_nlink);
	assert_int_equal(x.st_rdev, y.st_rdev);
	compare_xattrs(a, b);
	if (S_ISREG(x.st_mode))
		compare_bytes(a, b, x.st_size);
	if (S_ISLNK(x.st_mode))
		compare_links(a, b);
	if (S_ISDIR(x.st_mode))
		compare_folders(a, b);
}

/* ---- making ---- */

const char *ck_path(const struct ck *k, const char *path, char out[1024])
{
	(void)snprintf(out, 1024, "%s/%s", k->tree, path);
	return out;
}

void ck_write(const struct ck *k, const char *path, const void *bytes, size_t n)
{
	char full[1024];
	int fd = open(ck_path(k, path, full), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	for (size_t at = 0; at < n;) {
		ssize_t got = write(fd, (const char *)bytes + at, n - at);
		assert_true(got > 0);
		at += (size_t)got;
	}
	assert_int_equal(close(fd), 0);
}

void ck_text(const struct ck *k, const char *path, const char *text)
{
	ck_write(k, path, text, strlen(text));
}

void ck_mkdir(const struct ck *k, const char *path)
{
	char full[1024];
	assert_int_equal(mkdir(ck_path(k, path, full), 0755), 0);
}

void ck_fill(uint8_t *out, size_t n, uint64_t seed, int text)
{
	uint64_t x = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
	for (size_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		out[i] = text ? (uint8_t)("etaoin shrdlu\n"[x % 14]) : (uint8_t)(x >> 24);
	}
}

void ck_write_seed(const struct ck *k, const char *path, size_t n, uint64_t seed)
{
	uint8_t *bytes = malloc(n + 1);
	assert_non_null(bytes);
	ck_fill(bytes, n, seed, seed % 2 == 0);
	ck_write(k, path, bytes, n);
	free(bytes);
}

static void set_xattr(const struct ck *k, const char *path, const char *name, const void *value, size_t n)
{
	char full[1024];
	if (lsetxattr(ck_path(k, path, full), name, value, n, 0) != 0)
		assert_true(errno == ENOTSUP || errno == EPERM);
}

/* An ACL as the kernel has it: version 2, then tag, permissions, id of each. */
static void set_acl(const struct ck *k, const char *path, const char *name)
{
	static const uint8_t acl[] = {2, 0,  0,   0,   1,   0,   7,  0, 255, 255, 255, 255, 2,   0,  6,
				      0, 57, 48,  0,   0,   4,   0,  5, 0,   255, 255, 255, 255, 16, 0,
				      7, 0,  255, 255, 255, 255, 32, 0, 5,   0,   255, 255, 255, 255};
	set_xattr(k, path, name, acl, sizeof(acl));
}

static void make_sparse(const struct ck *k, const char *path)
{
	char full[1024];
	int fd = open(ck_path(k, path, full), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "first", 5, 0), 5);
	assert_int_equal(pwrite(fd, "middle", 6, (off_t)3 << 20), 6);
	assert_int_equal(pwrite(fd, "late", 4, ((off_t)1 << 33) + 12345), 4);
	assert_int_equal(ftruncate(fd, ((off_t)1 << 34) + 77), 0);
	assert_int_equal(close(fd), 0);
}

static void set_old_time(const struct ck *k, const char *path, time_t seconds, long ns)
{
	char full[1024];
	struct timespec t[2] = {{.tv_sec = seconds, .tv_nsec = ns}, {.tv_sec = seconds, .tv_nsec = ns}};
	assert_int_equal(utimensat(AT_FDCWD, ck_path(k, path, full), t, AT_SYMLINK_NOFOLLOW), 0);
}

static void make_nodes(const struct ck *k)
{
	char full[1024], other[1024];
	assert_int_equal(mkfifo(ck_path(k, "kinds/fifo", full), 0640), 0);
	if (geteuid() == 0) {
		(void)mknod(ck_path(k, "kinds/char", full), S_IFCHR | 0600, makedev(1, 3));
		(void)mknod(ck_path(k, "kinds/block", full), S_IFBLK | 0660, makedev(7, 77));
		assert_int_equal(chown(ck_path(k, "kinds/owned", full), 12345, 54321), 0);
		assert_int_equal(chmod(full, 06755), 0);
	}
	assert_int_equal(symlink("../nowhere/\xff", ck_path(k, "kinds/link", full)), 0);
	assert_int_equal(symlink("/etc", ck_path(k, "kinds/link to a folder", full)), 0);
	assert_int_equal(link(ck_path(k, "kinds/owned", full), ck_path(k, "kinds/second name", other)), 0);
	assert_int_equal(link(full, ck_path(k, "third name", other)), 0);
}

int ck_mixed_tree(const struct ck *k)
{
	char full[1024];
	static uint8_t bytes[6 << 20];
	ck_mkdir(k, "kinds");
	ck_mkdir(k, "empty folder");
	ck_mkdir(k, "names");
	ck_mkdir(k, "sizes");
	ck_text(k, "kinds/owned", "a stranger\n");
	make_nodes(k);
	make_sparse(k, "kinds/sparse");
	assert_int_equal(truncate(ck_path(k, "kinds/sparse", full), ((off_t)1 << 34) + 78), 0);
	ck_write(k, "kinds/hole", "", 0);
	assert_int_equal(truncate(ck_path(k, "kinds/hole", full), 1 << 20), 0);
	ck_text(k, "names/ with blanks\tand\nlines", "1");
	ck_text(k, "names/\xff\xfe\x80 not UTF-8", "2");
	ck_text(k, "names/-", "3");
	ck_text(k, "names/*?[x]", "4");
	ck_text(k, "names/.hidden", "5");
	static const size_t sizes[] = {0, 1, 511, 512, 4096, 131071, 131072, 131073, 524288, 2097152, 2097153, 6 << 20};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		char name[64];
		(void)snprintf(name, sizeof(name), "sizes/%zu", sizes[i]);
		ck_fill(bytes, sizes[i], i + 1, i % 2 == 0);
		ck_write(k, name, bytes, sizes[i]);
	}
	static uint8_t value[3000];
	set_xattr(k, "sizes/1", "user.one", "value", 5);
	set_xattr(k, "sizes/1", "user.empty", "", 0);
	set_xattr(k, "sizes/0", "user.of.nothing", "\0\1\2", 3);
	set_xattr(k, "sizes/524288", "user.long", value, sizeof(value));
	set_xattr(k, "names", "user.of.a.folder", "x", 1);
	set_xattr(k, "kinds/link", "trusted.of.a.link", "y", 1);
	set_xattr(k, "kinds/fifo", "trusted.of.a.fifo", "z", 1);
	set_acl(k, "sizes/4096", "system.posix_acl_access");
	set_acl(k, "names", "system.posix_acl_default");
	assert_int_equal(chmod(ck_path(k, "sizes/512", full), 0), 0);
	assert_int_equal(chmod(ck_path(k, "empty folder", full), 01777), 0);
	set_old_time(k, "sizes/511", -5000000000, 999999999);
	set_old_time(k, "kinds/link", 1, 1);
	set_old_time(k, "names", 1234567890, 5);
	return 0;
}

struct listing {
	struct ck *k;
	char *text;
	size_t len, cap;
};

static int list_one(const struct sl_backup_entry *e, void *ctx)
{
	struct listing *l = ctx;
	const char *below = l->k->tree + 1;
	size_t n = strlen(below);
	if (strncmp(e->path, below, n) != 0 || e->path[n] != '/')
		return 0;
	size_t len = strlen(e->path + n + 1);
	if (l->len + len + 2 > l->cap) {
		l->cap = 2 * l->cap + len + 2;
		l->text = realloc(l->text, l->cap);
		assert_non_null(l->text);
	}
	memcpy(l->text + l->len, e->path + n + 1, len);
	l->len += len;
	l->text[l->len++] = '\n';
	l->text[l->len] = '\0';
	return 0;
}

char *ck_listing(struct ck *k)
{
	struct listing l = {.k = k, .text = calloc(1, 256), .cap = 256};
	assert_non_null(l.text);
	if (sl_backup_ls(k->b, k->made.id, NULL, list_one, &l, &k->err) != 0)
		fail_msg("ls: %s", k->err.msg);
	return l.text;
}

/* ---- stepping in ---- */

static int count_puts(struct bad_driver *b, enum bad_op op, const char *name, void *ctx)
{
	(void)b;
	(void)name;
	struct ck_step *s = ctx;
	if (op == BAD_SCHEDULE_PUT && __atomic_add_fetch(&s->puts, 1, __ATOMIC_RELAXED) == s->at)
		s->fn(s->k);
	return 0;
}

void ck_step_in(struct ck *k, struct bad_driver *bad, sl_driver *handle, struct ck_step *s)
{
	sl_backup_close(k->b);
	bad_driver_init(bad, &k->driver, 1);
	bad->hook = count_puts;
	bad->hook_ctx = s;
	*handle = bad_driver_handle(bad);
	k->opts.pack_bytes = 64 << 10;
	k->opts.backlog_limit_bytes = 1 << 20; /* who reads is not far ahead of what is written */
	k->opts.max_concurrent_writes = 1;
	assert_int_equal(sl_backup_open(&k->b, handle, &k->opts, &k->err), 0);
}

void ck_step_out(struct ck *k, struct bad_driver *bad)
{
	sl_backup_close(k->b);
	k->b = NULL;
	k->driver = bad->under;
	bad->under = (sl_driver){0};
	bad_driver_fini(bad);
	ck_reopen(k);
}

void ck_many_files(const struct ck *k)
{
	/* 12 MB that do not compress: each frame fills a pack of 64 KiB. */
	for (int i = 0; i < 40; i++) {
		char name[32];
		(void)snprintf(name, sizeof(name), "%02d", i);
		ck_write_seed(k, name, 300000, (uint64_t)(2 * i + 1));
	}
}

void ck_check(struct ck *k)
{
	struct sl_backup_check_opts o = {SL_BACKUP_CHECK_OPTS_INIT, .read_data = SL_ON};
	struct sl_backup_checked r = {.struct_size = sizeof(r)};
	if (sl_backup_check(k->b, &o, &r, &k->err) != 0)
		fail_msg("check: %s", k->err.msg);
}
