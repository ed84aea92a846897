/* SPDX-License-Identifier: Apache-2.0 */
/* A tree with everything that a file can have, backed up by create and restored: nothing is different. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "backup/restore_kit.h"

#define OTHER_USER 12345 /* any user and group but root */

/* ---- the tree ---- */

static void make_file(const char *path, size_t len, unsigned seed, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	uint8_t *bytes = malloc(len + 1);
	assert_true(fd >= 0 && bytes != NULL);
	for (size_t i = 0; i < len; i++) {
		seed = seed * 1664525 + 1013904223;
		bytes[i] = (uint8_t)(seed >> (i % 3000 < 1500 ? 24 : 30)); /* half of it compresses well */
	}
	assert_int_equal(write(fd, bytes, len), (ssize_t)len);
	assert_int_equal(fchmod(fd, mode), 0);
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
				    {.tv_sec = 1000000000 + seed % 1000, .tv_nsec = 123456789}};
	assert_int_equal(futimens(fd, times), 0);
	free(bytes);
	(void)close(fd);
}

static void make_sparse(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "begin", 5, 3 << 20), 5);
	assert_int_equal(pwrite(fd, "end", 3, 40 << 20), 3);
	assert_int_equal(ftruncate(fd, 64 << 20), 0);
	(void)close(fd);
}

static void set_text(const char *path, const char *name, const char *value)
{
	assert_int_equal(lsetxattr(path, name, value, strlen(value), 0), 0);
}

/* u::rw-, u:1234:r--, g::r--, m::r--, o::--- as the kernel keeps it */
static const uint8_t acl[] = {2, 0,    0,   0,   1,   0,   6,  0, 255, 255, 255, 255, 2,   0,  4,
			      0, 0xd2, 4,   0,   0,   4,   0,  4, 0,   255, 255, 255, 255, 16, 0,
			      4, 0,    255, 255, 255, 255, 32, 0, 0,   0,   255, 255, 255, 255};

/* In the current folder. */
static void make_tree(bool privileged)
{
	assert_int_equal(mkdir("d", 0755), 0);
	assert_int_equal(mkdir("d/empty", 0711), 0);
	assert_int_equal(mkdir("d/many", 0755), 0);
	for (unsigned i = 0; i < 300; i++) {
		char name[64];
		(void)snprintf(name, sizeof(name), "d/many/f%03u", i);
		make_file(name, i * 97 % 20000, i, 0600 + i % 64);
	}
	make_file("d/big", (9 << 20) + 17, 5, 0644);
	make_file("d/nothing", 0, 0, 0);
	make_file("d/\xff\xfe not utf-8\n", 100, 1, 0644);
	make_sparse("d/sparse");
	assert_int_equal(link("d/big", "d/z-link"), 0);
	assert_int_equal(symlink("../nowhere\xff", "d/dangling"), 0);
	assert_int_equal(symlink("/etc/passwd", "d/absolute"), 0);
	assert_int_equal(link("d/dangling", "d/zz-link-of-a-link"), 0);
	assert_int_equal(mkfifo("d/fifo", 0620), 0);
	set_text("d/big", "user.one", "1");
	set_text("d/many", "user.folder", "yes");
	if (lsetxattr("d/many/f001", "system.posix_acl_access", acl, sizeof(acl), 0) == 0)
		assert_int_equal(lsetxattr("d/many", "system.posix_acl_default", acl, sizeof(acl), 0), 0);
	assert_int_equal(mkdir("d/closed", 0700), 0);
	make_file("d/closed/inside", 10, 3, 0400);
	if (privileged) {
		make_file("d/owned", 30, 2, 0600);
		assert_int_equal(chown("d/owned", OTHER_USER, 777), 0);
		assert_int_equal(chmod("d/owned", 06755), 0);
		assert_int_equal(lchown("d/absolute", 3, 4), 0);
		assert_int_equal(mknod("d/null", S_IFCHR | 0666, makedev(1, 3)), 0);
		assert_int_equal(chown("d/closed", OTHER_USER, OTHER_USER), 0);
		set_text("d/owned", "security.sluice-test", "s");
		set_text("d/absolute", "trusted.sluice-test", "t");
	}
	assert_int_equal(chmod("d/closed", 0500), 0);
	struct timespec times[2] = {{.tv_sec = 77}, {.tv_sec = 77777, .tv_nsec = 7}};
	assert_int_equal(utimensat(AT_FDCWD, "d/closed", times, 0), 0);
	assert_int_equal(utimensat(AT_FDCWD, "d/dangling", times, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(utimensat(AT_FDCWD, "d", times, 0), 0);
}

/* ---- comparing ---- */

struct comparing {
	uint64_t entries;
	ino_t inodes[1000][2]; /* of files with several names: there and here */
	size_t n_inodes;
};

static void compare_xattrs(const char *a, const char *b)
{
	char names[4096], other[4096], x[4096], y[4096];
	ssize_t n = llistxattr(a, names, sizeof(names)), m = llistxattr(b, other, sizeof(other));
	assert_int_equal(n, m);
	for (char *name = names; name < names + n; name += strlen(name) + 1) {
		ssize_t p = lgetxattr(a, name, x, sizeof(x)), q = lgetxattr(b, name, y, sizeof(y));
		assert_true(p >= 0);
		assert_int_equal(p, q);
		assert_memory_equal(x, y, (size_t)p);
	}
}

static void compare_bytes(const char *a, const char *b)
{
	static uint8_t x[1 << 16], y[1 << 16];
	int f = open(a, O_RDONLY | O_CLOEXEC), g = open(b, O_RDONLY | O_CLOEXEC);
	ssize_t n;
	if (f < 0 && errno == EACCES) /* its mode is 0, and it is empty */
		return;
	assert_true(f >= 0 && g >= 0);
	while ((n = read(f, x, sizeof(x))) > 0) {
		assert_int_equal(read(g, y, sizeof(y)), n);
		assert_memory_equal(x, y, (size_t)n);
	}
	assert_int_equal(n, 0);
	(void)close(f);
	(void)close(g);
}

static void compare_links(struct comparing *c, const struct stat *x, const struct stat *y)
{
	assert_int_equal(x->st_nlink, y->st_nlink);
	for (size_t i = 0; i < c->n_inodes; i++) {
		if (c->inodes[i][0] == x->st_ino) {
			assert_true(c->inodes[i][1] == y->st_ino);
			return;
		}
		assert_true(c->inodes[i][1] != y->st_ino);
	}
	assert_true(c->n_inodes < SL_COUNT(c->inodes));
	c->inodes[c->n_inodes][0] = x->st_ino;
	c->inodes[c->n_inodes++][1] = y->st_ino;
}

static void compare(struct comparing *c, const char *a, const char *b);

static void compare_folders(struct comparing *c, const char *a, const char *b)
{
	DIR *there = opendir(a), *here = opendir(b);
	const struct dirent *d;
	int n = 0;
	assert_true(there != NULL && here != NULL);
	while ((d = readdir(there)) != NULL) {
		char x[1024], y[1024];
		n++;
		if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
			continue;
		(void)snprintf(x, sizeof(x), "%s/%s", a, d->d_name);
		(void)snprintf(y, sizeof(y), "%s/%s", b, d->d_name);
		compare(c, x, y);
	}
	while (readdir(here) != NULL)
		n--;
	assert_int_equal(n, 0);
	(void)closedir(there);
	(void)closedir(here);
}

static void compare(struct comparing *c, const char *a, const char *b)
{
	struct stat x, y;
	assert_int_equal(lstat(a, &x), 0);
	assert_int_equal(lstat(b, &y), 0);
	c->entries++;
	assert_int_equal(x.st_mode, y.st_mode);
	assert_int_equal(x.st_uid, y.st_uid);
	assert_int_equal(x.st_gid, y.st_gid);
	assert_int_equal(x.st_mtim.tv_sec, y.st_mtim.tv_sec);
	assert_int_equal(x.st_mtim.tv_nsec, y.st_mtim.tv_nsec);
	assert_int_equal(x.st_rdev, y.st_rdev);
	compare_xattrs(a, b);
	if (S_ISDIR(x.st_mode)) {
		compare_folders(c, a, b);
		return;
	}
	assert_int_equal(x.st_size, y.st_size);
	compare_links(c, &x, &y);
	if (S_ISREG(x.st_mode)) {
		compare_bytes(a, b);
		if (x.st_blocks * 512 < x.st_size / 2)
			assert_true(y.st_blocks * 512 < y.st_size / 2);
	} else if (S_ISLNK(x.st_mode)) {
		char t[256] = "", u[256] = "";
		assert_true(readlink(a, t, sizeof(t) - 1) > 0 && readlink(b, u, sizeof(u) - 1) > 0);
		assert_string_equal(t, u);
	}
}

/* ---- there and back ---- */

static void back_up(struct rk *k, const char *tree)
{
	struct sl_backup_create_opts opts = {SL_BACKUP_CREATE_OPTS_INIT, .paths = &tree, .n_paths = 1};
	struct sl_backup_created created = {.struct_size = sizeof(created)};
	int rc = sl_backup_create(k->b, &opts, &created, &k->err);
	if (rc != 0)
		print_message("# %s\n", k->err.msg);
	assert_int_equal(rc, 0);
	assert_int_equal(created.problems, 0);
	memcpy(k->id, created.id, sizeof(k->id));
}

static void round_trip(bool privileged, const char *passphrase)
{
	struct rk k;
	char tree[512], back[1024], cwd[512];
	struct comparing c = {0};
	assert_non_null(getcwd(cwd, sizeof(cwd)));
	rk_begin(&k, NULL, passphrase);
	assert_int_equal(mkdir(rk_path(&k, "tree", tree), 0755), 0);
	assert_int_equal(chdir(tree), 0);
	make_tree(privileged);
	assert_int_equal(chdir(cwd), 0);
	back_up(&k, tree);
	struct sl_backup_restore_opts opts = rk_opts(&k);
	opts.set_id = SL_ON;
	opts.security = SL_ON;
	for (int again = 0; again < 3; again++) {
		opts.conflict = again == 2 ? SL_BACKUP_OVERWRITE : SL_BACKUP_RESUME;
		int rc = rk_restore_with(&k, &opts);
		if (rc != 0 || k.n_problems > 0)
			print_message("# %d %s %s\n", rc, k.err.msg, k.problems[0].msg);
		assert_int_equal(rc, 0);
		assert_int_equal(k.n_problems, 0);
		if (again > 0)
			assert_int_equal(k.result.files, 0);
		(void)snprintf(back, sizeof(back), "%s%s/d", k.to, tree);
		(void)snprintf(tree + strlen(tree), sizeof(tree) - strlen(tree), "/d");
		memset(&c, 0, sizeof(c));
		compare(&c, tree, back);
		tree[strlen(tree) - 2] = '\0';
		if (again == 1) { /* for the third time: something is different */
			(void)snprintf(back, sizeof(back), "%s%s/d/closed", k.to, tree);
			assert_int_equal(chmod(back, 0), 0);
			(void)snprintf(back, sizeof(back), "%s%s/d/many", k.to, tree);
			assert_int_equal(chmod(back, 0500), 0);
		}
	}
	print_message("# %llu entries are the same\n", (unsigned long long)c.entries);
	assert_true(c.entries > 300);
	char closed[1024];
	(void)snprintf(closed, sizeof(closed), "chmod -R u+rwx '%s'", k.dir);
	assert_int_equal(system(closed), 0);
	rk_end(&k);
}

static void everything_comes_back_for_root(SL_UNUSED void **state)
{
	if (geteuid() != 0) {
		skip();
		return;
	}
	round_trip(true, "a passphrase");
}

/* In a child, because a process does not become root again. */
static void all_that_may_be_set_comes_back_for_anybody(SL_UNUSED void **state)
{
	char dir[] = "/tmp/sl-anybody-XXXXXX";
	if (geteuid() != 0) {
		round_trip(false, NULL);
		return;
	}
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chown(dir, OTHER_USER, OTHER_USER), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (setresgid(OTHER_USER, OTHER_USER, OTHER_USER) != 0 ||
		    setresuid(OTHER_USER, OTHER_USER, OTHER_USER) != 0)
			_exit(3);
		(void)setenv("TMPDIR", dir, 1);
		round_trip(false, NULL);
		_exit(0);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everything_comes_back_for_root),
		cmocka_unit_test(all_that_may_be_set_comes_back_for_anybody),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
