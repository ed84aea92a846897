/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "backup/restore/target.h"
#include "backup/restore_kit.h"

static void add(struct rk *k, struct bk_entry e)
{
	rk_add(k, &e);
}

static struct bk_entry with_links(struct bk_entry e)
{
	e.nlink = 2;
	return e;
}

/* a/ with two files, a link, a hard link; b, an empty file. */
static void publish_small_tree(struct rk *k)
{
	add(k, rk_dir("a"));
	add(k, with_links(rk_text(k, "a/one", "first")));
	add(k, rk_text(k, "a/two", "second"));
	add(k, rk_link(SL_BACKUP_SYMLINK, "a/way", "../outside/secret"));
	add(k, rk_link(SL_BACKUP_HARDLINK, "a/with", "a/one"));
	add(k, rk_text(k, "b", ""));
	(void)rk_publish(k);
}

static void every_kind_of_entry_comes_back(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, "a passphrase");
	publish_small_tree(&k);
	assert_int_equal(rk_restore(&k), 0);
	assert_int_equal(k.result.entries, 6);
	assert_int_equal(k.result.files, 3);
	assert_int_equal(k.result.bytes, 11);
	assert_int_equal(k.result.skipped, 0);
	assert_int_equal(k.result.problems, 0);
	rk_expect(&k, "a/one", "first");
	rk_expect(&k, "a/two", "second");
	rk_expect(&k, "b", "");
	assert_true(rk_stat(&k, "a/one").st_ino == rk_stat(&k, "a/with").st_ino);
	char full[512], target[64] = "";
	assert_int_equal(readlink(rk_path(&k, "to/a/way", full), target, sizeof(target) - 1), 17);
	assert_string_equal(target, "../outside/secret");
	rk_expect_outside_untouched(&k);
	rk_end(&k);
}

static void modes_and_times_are_those_of_the_snapshot(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	struct bk_entry d = rk_dir("d"), inner = rk_dir("d/inner"), f = rk_text(&k, "d/inner/f", "x"),
			way = rk_link(SL_BACKUP_SYMLINK, "d/way", "nowhere");
	d.mode = 01750;
	inner.mode = 0500;
	f.mode = 0405;
	f.mtime = (struct timespec){-2, 499999999}; /* before 1970 */
	add(&k, d);
	add(&k, inner);
	add(&k, f);
	add(&k, way);
	(void)rk_publish(&k);
	assert_int_equal(rk_restore(&k), 0);
	assert_int_equal(rk_stat(&k, "d").st_mode & 07777, 01750);
	assert_int_equal(rk_stat(&k, "d/inner").st_mode & 07777, 0500);
	assert_int_equal(rk_stat(&k, "d/inner/f").st_mode & 07777, 0405);
	struct stat st = rk_stat(&k, "d/inner/f");
	assert_int_equal(st.st_mtim.tv_sec, -2);
	assert_int_equal(st.st_mtim.tv_nsec, 499999999);
	static const char *const others[] = {"d", "d/inner", "d/way"};
	for (size_t i = 0; i < SL_COUNT(others); i++) {
		st = rk_stat(&k, others[i]);
		assert_int_equal(st.st_mtim.tv_sec, RK_MTIME_S);
		assert_int_equal(st.st_mtim.tv_nsec, 123456789);
	}
	rk_end(&k);
}

static void owners_and_devices_come_back_for_who_may(SL_UNUSED void **state)
{
	struct rk k;
	if (geteuid() != 0) {
		skip();
		return;
	}
	rk_begin(&k, NULL, NULL);
	struct bk_entry d = rk_dir("d"), f = rk_text(&k, "d/f", "x"), null = rk_node(SL_BACKUP_CHAR, "d/null"),
			loop = rk_node(SL_BACKUP_BLOCK, "d/loop"), fifo = rk_node(SL_BACKUP_FIFO, "d/fifo");
	d.uid = f.uid = null.uid = loop.uid = fifo.uid = 12345;
	d.gid = f.gid = null.gid = loop.gid = fifo.gid = 54321;
	null.rdev = makedev(1, 3);
	loop.rdev = makedev(7, 200);
	add(&k, d);
	add(&k, f);
	add(&k, fifo);
	add(&k, loop);
	add(&k, null);
	struct bk_entry way = rk_link(SL_BACKUP_SYMLINK, "d/way", "f");
	way.uid = 12345;
	add(&k, way);
	(void)rk_publish(&k);
	assert_int_equal(rk_restore(&k), 0);
	assert_int_equal(k.result.problems, 0);
	static const char *const paths[] = {"d", "d/f", "d/null", "d/loop", "d/fifo"};
	for (size_t i = 0; i < SL_COUNT(paths); i++) {
		assert_int_equal(rk_stat(&k, paths[i]).st_uid, 12345);
		assert_int_equal(rk_stat(&k, paths[i]).st_gid, 54321);
		assert_int_equal(rk_stat(&k, paths[i]).st_mode & 07777, i == 0 ? 0755 : 0644);
	}
	assert_int_equal(rk_stat(&k, "d/way").st_uid, 12345);
	assert_true(S_ISCHR(rk_stat(&k, "d/null").st_mode) && rk_stat(&k, "d/null").st_rdev == makedev(1, 3));
	assert_true(S_ISBLK(rk_stat(&k, "d/loop").st_mode) && rk_stat(&k, "d/loop").st_rdev == makedev(7, 200));
	assert_true(S_ISFIFO(rk_stat(&k, "d/fifo").st_mode));
	/* again, into what is there */
	assert_int_equal(rk_restore(&k), 0);
	assert_int_equal(k.result.skipped, 5);
	rk_end(&k);
}

static void devices_are_left_out_when_asked(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	struct bk_entry null = rk_node(SL_BACKUP_CHAR, "null");
	null.rdev = makedev(1, 3);
	add(&k, null);
	(void)rk_publish(&k);
	struct sl_backup_restore_opts opts = rk_opts(&k);
	opts.devices = SL_OFF;
	assert_int_equal(rk_restore_with(&k, &opts), 0);
	assert_int_equal(k.result.problems, 0);
	assert_false(rk_exists(&k, "null"));
	rk_end(&k);
}

/* A plain repository may say what anybody wrote into it. */
static void set_id_bits_come_back_from_an_encrypted_repository_and_else_when_asked(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	struct bk_entry d = rk_dir("d"), f = rk_text(&k, "d/f", "x");
	d.mode = 02755;
	f.mode = 06755;
	add(&k, d);
	add(&k, f);
	(void)rk_publish(&k);
	assert_int_equal(rk_restore(&k), 0);
	assert_int_equal(rk_stat(&k, "d").st_mode & 07777, 0755);
	assert_int_equal(rk_stat(&k, "d/f").st_mode & 07777, 0755);
	assert_int_equal(k.result.set_id_stripped, 2);
	assert_int_equal(k.result.problems, 0);
	char full[512];
	assert_int_equal(unlink(rk_path(&k, "to/d/f", full)), 0);
	struct sl_backup_restore_opts opts = rk_opts(&k);
	opts.set_id = SL_ON;
	assert_int_equal(rk_restore_with(&k, &opts), 0);
	assert_int_equal(rk_stat(&k, "d").st_mode & 07777, 02755);
	assert_int_equal(rk_stat(&k, "d/f").st_mode & 07777, 06755);
	assert_int_equal(k.result.set_id_stripped, 0);
	rk_end(&k);

	static const enum sl_switch switches[] = {SL_DEFAULT, SL_ON, SL_OFF};
	for (size_t i = 0; i < SL_COUNT(switches); i++) {
		rk_begin(&k, NULL, "a passphrase");
		f = rk_text(&k, "f", "x");
		f.mode = 06755;
		add(&k, f);
		(void)rk_publish(&k);
		opts = rk_opts(&k);
		opts.set_id = switches[i];
		assert_int_equal(rk_restore_with(&k, &opts), 0);
		assert_int_equal(rk_stat(&k, "f").st_mode & 07777, switches[i] == SL_OFF ? 0755 : 06755);
		assert_int_equal(k.result.set_id_stripped, switches[i] == SL_OFF);
		rk_end(&k);
	}
}

static void set_id_bits_go_when_the_owner_cannot_be_set(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	struct bk_entry f = rk_text(&k, "f", "x");
	f.mode = 06755;
	f.uid = 4242;
	add(&k, f);
	(void)rk_publish(&k);
	struct sl_backup_restore_opts opts = rk_opts(&k);
	opts.set_id = SL_ON;
	opts.owner = SL_OFF;
	assert_int_equal(rk_restore_with(&k, &opts), 0);
	assert_int_equal(rk_stat(&k, "f").st_uid, geteuid());
	assert_int_equal(rk_stat(&k, "f").st_mode & 07777, 0755);
	assert_int_equal(k.result.set_id_stripped, 1);
	rk_end(&k);
}

static ssize_t get_xattr(const struct rk *k, const char *path, const char *name, char *out, size_t n)
{
	char full[512];
	return lgetxattr(rk_path(k, path, full), name, out, n);
}

/* Those of the system: from an encrypted repository, for one who may set them, and else when asked for. */
static void attributes_come_back(const char *passphrase)
{
	struct rk k;
	char value[64];
	bool trusted = passphrase != NULL && geteuid() == 0;
	rk_begin(&k, NULL, passphrase);
	static const struct bk_xattr both[] = {{"security.sluice", (const uint8_t *)"s", 1},
					       {"user.a",
						(const uint8_t *)"1\0"
								 "2",
						3},
					       {"user.b", NULL, 0}};
	struct bk_entry d = rk_dir("d"), f = rk_text(&k, "d/f", "x");
	d.xattrs = f.xattrs = both;
	d.n_xattrs = f.n_xattrs = 3;
	f.mode = 0400;
	add(&k, d);
	add(&k, f);
	(void)rk_publish(&k);
	assert_int_equal(rk_restore(&k), 0);
	assert_int_equal(k.result.problems, 0);
	static const char *const paths[] = {"to/d", "to/d/f"};
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(get_xattr(&k, paths[i], "user.a", value, sizeof(value)), 3);
		assert_memory_equal(value,
				    "1\0"
				    "2",
				    3);
		assert_int_equal(get_xattr(&k, paths[i], "user.b", value, sizeof(value)), 0);
		assert_int_equal(get_xattr(&k, paths[i], "security.sluice", value, sizeof(value)), trusted ? 1 : -1);
	}
	assert_int_equal(k.result.security_stripped, trusted ? 0 : 2);
	if (geteuid() == 0) {
		struct sl_backup_restore_opts opts = rk_opts(&k);
		char full[512];
		assert_int_equal(unlink(rk_path(&k, "to/d/f", full)), 0);
		opts.security = SL_ON;
		assert_int_equal(rk_restore_with(&k, &opts), 0);
		for (size_t i = 0; i < 2; i++)
			assert_int_equal(get_xattr(&k, paths[i], "security.sluice", value, sizeof(value)), 1);
		assert_int_equal(k.result.security_stripped, 0);
		assert_int_equal(unlink(rk_path(&k, "to/d/f", full)), 0);
		opts.security = SL_OFF;
		assert_int_equal(rk_restore_with(&k, &opts), 0);
		assert_int_equal(get_xattr(&k, "to/d/f", "security.sluice", value, sizeof(value)), -1);
		assert_int_equal(k.result.security_stripped, 2);
	}
	rk_end(&k);
}

static void attributes_of_the_system_come_back_from_an_encrypted_repository_and_else_when_asked(SL_UNUSED void **state)
{
	attributes_come_back(NULL);
	attributes_come_back("a passphrase");
}

/* u::rw-, u:1234:r--, g::r--, m::r--, o::--- as the kernel keeps it */
static const uint8_t acl[] = {2, 0,    0,   0,   1,   0,   6,  0, 255, 255, 255, 255, 2,   0,  4,
			      0, 0xd2, 4,   0,   0,   4,   0,  4, 0,   255, 255, 255, 255, 16, 0,
			      4, 0,    255, 255, 255, 255, 32, 0, 0,   0,   255, 255, 255, 255};

static void access_lists_come_back_and_none_is_inherited(SL_UNUSED void **state)
{
	struct rk k;
	char value[64], full[512];
	rk_begin(&k, NULL, NULL);
	static const struct bk_xattr lists[] = {{"system.posix_acl_access", acl, sizeof(acl)},
						{"system.posix_acl_default", acl, sizeof(acl)}};
	struct bk_entry d = rk_dir("d"), f = rk_text(&k, "d/f", "x"), plain = rk_text(&k, "d/plain", "x");
	d.xattrs = f.xattrs = lists;
	d.n_xattrs = 2;
	f.n_xattrs = 1;
	d.mode = f.mode = 0640;
	add(&k, d);
	add(&k, f);
	add(&k, rk_dir("d/inner"));
	add(&k, plain);
	(void)rk_publish(&k);
	/* the target hands a list down to everything */
	assert_int_equal(mkdir(k.to, 0700), 0);
	if (setxattr(k.to, "system.posix_acl_default", acl, sizeof(acl), 0) != 0) {
		print_message("# the file system has no access lists\n");
		rk_end(&k);
		skip();
	}
	assert_int_equal(rk_restore(&k), 0);
	assert_int_equal(k.result.problems, 0);
	assert_int_equal(get_xattr(&k, "to/d", "system.posix_acl_default", value, sizeof(value)), sizeof(acl));
	assert_memory_equal(value, acl, sizeof(acl));
	assert_int_equal(get_xattr(&k, "to/d/f", "system.posix_acl_access", value, sizeof(value)), sizeof(acl));
	assert_memory_equal(value, acl, sizeof(acl));
	assert_int_equal(rk_stat(&k, "d/f").st_mode & 07777, 0640);
	assert_true(get_xattr(&k, "to/d/plain", "system.posix_acl_access", value, sizeof(value)) < 0);
	assert_true(get_xattr(&k, "to/d/inner", "system.posix_acl_access", value, sizeof(value)) < 0);
	assert_true(get_xattr(&k, "to/d/inner", "system.posix_acl_default", value, sizeof(value)) < 0);
	assert_int_equal(rk_stat(&k, "d/plain").st_mode & 07777, 0644);
	(void)removexattr(rk_path(&k, "to", full), "system.posix_acl_default");
	rk_end(&k);
}

static void an_attribute_that_cannot_be_set_is_reported(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	static const struct bk_xattr odd[] = {{"nonsense.a", (const uint8_t *)"1", 1}};
	struct bk_entry f = rk_text(&k, "f", "x");
	f.xattrs = odd;
	f.n_xattrs = 1;
	add(&k, f);
	(void)rk_publish(&k);
	assert_int_equal(rk_restore(&k), 0);
	assert_int_equal(k.result.problems, 1);
	assert_int_equal(k.problems[0].problem, SL_BACKUP_NOT_SET);
	assert_string_equal(k.problems[0].path, "f");
	rk_expect(&k, "f", "x");
	rk_end(&k);
}

static void holes_are_holes_again(SL_UNUSED void **state)
{
	struct rk k;
	size_t len;
	rk_begin(&k, NULL, NULL);
	static const struct bk_extent extents[] = {{1 << 20, 3}, {5 << 20, 4}};
	struct bk_entry f = rk_text(&k, "f", "abcdefg"), all = rk_text(&k, "g", "");
	f.size = 64 << 20;
	f.flags = all.flags = BK_ENTRY_SPARSE;
	f.extents = extents;
	f.n_extents = 2;
	all.size = 1 << 30;
	add(&k, f);
	add(&k, all);
	(void)rk_publish(&k);
	assert_int_equal(rk_restore(&k), 0);
	struct stat st = rk_stat(&k, "f");
	assert_int_equal(st.st_size, 64 << 20);
	assert_true(st.st_blocks * 512 < 1 << 20);
	char *bytes = rk_read(&k, "f", &len);
	assert_memory_equal(bytes + (1 << 20), "abc\0", 4);
	assert_memory_equal(bytes + (5 << 20) - 1, "\0defg\0", 6);
	free(bytes);
	assert_int_equal(rk_stat(&k, "g").st_size, 1 << 30);
	assert_int_equal(rk_stat(&k, "g").st_blocks, 0);
	rk_end(&k);
}

static void big_files_come_back_through_lists_of_blocks(SL_UNUSED void **state)
{
	struct rk k;
	enum { BLOCKS = 600, EACH = 3000 };
	rk_begin(&k, NULL, NULL);
	uint8_t *bytes = malloc(BLOCKS * EACH), *lists = malloc(BLOCKS * BK_LIST_REF_BYTES);
	struct bk_ref refs[2];
	for (size_t i = 0; i < BLOCKS * EACH; i++)
		bytes[i] = (uint8_t)(i * i / 777);
	for (size_t i = 0; i < BLOCKS; i++) {
		struct bk_ref ref = rk_block(&k, bytes + i * EACH, EACH);
		memcpy(lists + i * BK_LIST_REF_BYTES, ref.id.b, BK_ID_BYTES);
		sl__put32(lists + i * BK_LIST_REF_BYTES + BK_ID_BYTES, ref.len);
	}
	refs[0] = rk_block(&k, lists, 400 * BK_LIST_REF_BYTES);
	refs[1] = rk_block(&k, lists + 400 * BK_LIST_REF_BYTES, 200 * BK_LIST_REF_BYTES);
	struct bk_entry f = rk_text(&k, "f", "");
	f.flags = BK_ENTRY_LISTS;
	f.size = BLOCKS * EACH;
	f.refs = refs;
	f.n_refs = 2;
	add(&k, f);
	(void)rk_publish(&k);
	assert_int_equal(rk_restore(&k), 0);
	size_t len;
	char *back = rk_read(&k, "f", &len);
	assert_int_equal(len, BLOCKS * EACH);
	assert_memory_equal(back, bytes, len);
	free(back);
	free(lists);
	free(bytes);
	rk_end(&k);
}

/* Folders in folders, deeper than a path that the kernel takes at once, and a file in the last. */
static void add_deep(struct rk *k, char *path)
{
	enum { LEVELS = 25, EACH = 200 };
	for (size_t i = 0; i < LEVELS; i++) {
		memset(path + i * (EACH + 1), 'y', EACH);
		path[i * (EACH + 1) + EACH] = '\0';
		struct bk_entry e = rk_dir(path);
		rk_add(k, &e);
		path[i * (EACH + 1) + EACH] = '/';
	}
	memcpy(path + LEVELS * (EACH + 1), "file", 5);
	struct bk_entry e = rk_text(k, path, "deep");
	rk_add(k, &e);
}

static void names_that_are_not_utf8_and_long_paths_come_back(SL_UNUSED void **state)
{
	struct rk k;
	char path[8000], command[600];
	rk_begin(&k, NULL, NULL);
	add_deep(&k, path);
	add(&k, rk_text(&k, "\xff\xfe bad\n", "x"));
	(void)rk_publish(&k);
	assert_int_equal(rk_restore(&k), 0);
	assert_int_equal(k.result.files, 2);
	rk_expect(&k, "\xff\xfe bad\n", "x");
	assert_int_equal(rk_restore(&k), 0);
	assert_int_equal(k.result.skipped, 2);
	(void)snprintf(command, sizeof(command), "test $(find '%s' -size 4c -name file | wc -l) = 1 && rm -rf '%s'",
		       k.to, k.to);
	assert_int_equal(system(command), 0);
	rk_end(&k);
}

/* ---- what is there already ---- */

static void what_is_there_and_right_is_not_restored_again(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	publish_small_tree(&k);
	assert_int_equal(rk_restore(&k), 0);
	struct stat before = rk_stat(&k, "a/two");
	char full[512];
	assert_int_equal(unlink(rk_path(&k, "to/a/one", full)), 0);
	assert_int_equal(unlink(rk_path(&k, "to/a/with", full)), 0);
	assert_int_equal(rk_restore(&k), 0);
	assert_int_equal(k.result.skipped, 3);
	assert_int_equal(k.result.files, 1);
	assert_int_equal(rk_stat(&k, "a/two").st_ino, before.st_ino);
	rk_expect(&k, "a/with", "first");
	struct stat d = rk_stat(&k, "a");
	assert_int_equal(d.st_mtim.tv_sec, RK_MTIME_S);
	rk_end(&k);
}

static void a_foreign_file_in_the_target_ends_the_restore_and_is_kept(SL_UNUSED void **state)
{
	struct rk k;
	char full[512];
	rk_begin(&k, NULL, NULL);
	publish_small_tree(&k);
	assert_int_equal(mkdir(k.to, 0700), 0);
	assert_int_equal(mkdir(rk_path(&k, "to/a", full), 0700), 0);
	rk_write(&k, "to/a/two", "mine");
	assert_int_equal(rk_restore(&k), SL_EEXIST);
	assert_non_null(strstr(k.err.msg, "a/two"));
	rk_expect(&k, "a/two", "mine");
	rk_end(&k);
}

static void overwriting_replaces_files_and_keeps_folders(SL_UNUSED void **state)
{
	struct rk k;
	char full[512];
	rk_begin(&k, NULL, NULL);
	publish_small_tree(&k);
	assert_int_equal(mkdir(k.to, 0700), 0);
	assert_int_equal(mkdir(rk_path(&k, "to/a", full), 0700), 0);
	rk_write(&k, "to/a/two", "mine");
	rk_write(&k, "to/a/own", "stays");
	rk_write(&k, "to/a/way", "a file where a link should be");
	rk_write(&k, "to/a/with", "a file where a name should be");
	assert_int_equal(symlink("../outside/secret", rk_path(&k, "to/b", full)), 0);
	struct sl_backup_restore_opts opts = rk_opts(&k);
	opts.conflict = SL_BACKUP_OVERWRITE;
	assert_int_equal(rk_restore_with(&k, &opts), 0);
	rk_expect(&k, "a/two", "second");
	rk_expect(&k, "a/own", "stays");
	rk_expect(&k, "a/with", "first");
	rk_expect(&k, "b", "");
	assert_true(S_ISREG(rk_stat(&k, "b").st_mode));
	assert_true(S_ISLNK(rk_stat(&k, "a/way").st_mode));
	rk_expect_outside_untouched(&k);
	rk_end(&k);
}

/* Bits that rotted: size and time are as they were. To resume takes such a file for restored, to overwrite does not. */
static void overwriting_replaces_a_file_that_only_looks_the_same(SL_UNUSED void **state)
{
	struct rk k;
	char full[512];
	rk_begin(&k, NULL, NULL);
	publish_small_tree(&k);
	assert_int_equal(rk_restore(&k), 0);
	struct stat st = rk_stat(&k, "a/two");
	const struct timespec times[2] = {st.st_atim, st.st_mtim};
	rk_write(&k, "to/a/two", "sEcond");
	assert_int_equal(utimensat(AT_FDCWD, rk_path(&k, "to/a/two", full), times, 0), 0);
	assert_int_equal(rk_restore(&k), 0);
	rk_expect(&k, "a/two", "sEcond");
	struct sl_backup_restore_opts opts = rk_opts(&k);
	opts.conflict = SL_BACKUP_OVERWRITE;
	ino_t other = rk_stat(&k, "a/with").st_ino;
	assert_int_equal(rk_restore_with(&k, &opts), 0);
	rk_expect(&k, "a/two", "second");
	assert_int_equal(rk_stat(&k, "a/with").st_ino, other); /* what is right stays */
	rk_end(&k);
}

static void a_folder_is_never_replaced_by_a_file(SL_UNUSED void **state)
{
	struct rk k;
	char full[512];
	rk_begin(&k, NULL, NULL);
	publish_small_tree(&k);
	assert_int_equal(mkdir(k.to, 0700), 0);
	assert_int_equal(mkdir(rk_path(&k, "to/b", full), 0700), 0);
	struct sl_backup_restore_opts opts = rk_opts(&k);
	opts.conflict = SL_BACKUP_OVERWRITE;
	assert_int_equal(rk_restore_with(&k, &opts), SL_EEXIST);
	assert_true(S_ISDIR(rk_stat(&k, "b").st_mode));
	rk_end(&k);
}

static void overwriting_makes_a_folder_where_a_file_is(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	publish_small_tree(&k);
	assert_int_equal(mkdir(k.to, 0700), 0);
	rk_write(&k, "to/a", "a file");
	assert_int_equal(rk_restore(&k), SL_EEXIST);
	rk_expect(&k, "a", "a file");
	struct sl_backup_restore_opts opts = rk_opts(&k);
	opts.conflict = SL_BACKUP_OVERWRITE;
	assert_int_equal(rk_restore_with(&k, &opts), 0);
	rk_expect(&k, "a/one", "first");
	rk_end(&k);
}

static void leftovers_of_a_run_that_was_cut_off_are_removed(SL_UNUSED void **state)
{
	struct rk k;
	char full[512];
	rk_begin(&k, NULL, NULL);
	publish_small_tree(&k);
	assert_int_equal(mkdir(k.to, 0700), 0);
	assert_int_equal(mkdir(rk_path(&k, "to/a", full), 0700), 0);
	rk_write(&k, "to/" BK_TEMP_PREFIX "01234567-0", "half");
	rk_write(&k, "to/a/" BK_TEMP_PREFIX "01234567-1", "half");
	assert_int_equal(rk_leftovers(&k), 2);
	assert_int_equal(rk_restore(&k), 0);
	assert_int_equal(rk_leftovers(&k), 0);
	rk_end(&k);
}

#define STAGE BK_TEMP_PREFIX "01234567-tree"

static void make_old(const struct rk *k, const char *path)
{
	char full[512];
	const struct timespec times[2] = {{.tv_sec = 1500000000}, {.tv_sec = 1500000000}};
	assert_int_equal(utimensat(AT_FDCWD, rk_path(k, path, full), times, AT_SYMLINK_NOFOLLOW), 0);
}

/* What a run leaves that is killed while it restores to an empty folder: a/whole and a/link have their times. */
static void leave_a_stage(struct rk *k)
{
	static const char *const folders[] = {"to", "to/" STAGE, "to/" STAGE "/a", "to/" STAGE "/a/b",
					      "to/" STAGE "/c"};
	char full[512];
	for (size_t i = 0; i < SL_COUNT(folders); i++)
		assert_int_equal(mkdir(rk_path(k, folders[i], full), 0700), 0);
	rk_write(k, "to/" STAGE "/a/whole", "all of it");
	make_old(k, "to/" STAGE "/a/whole");
	assert_int_equal(symlink("whole", rk_path(k, "to/" STAGE "/a/link", full)), 0);
	make_old(k, "to/" STAGE "/a/link");
	rk_write(k, "to/" STAGE "/a/half", "half");
	rk_write(k, "to/" STAGE "/a/b/empty", "");
	rk_write(k, "to/" STAGE "/top", "half");
	assert_int_equal(symlink("whole", rk_path(k, "to/" STAGE "/c/young", full)), 0);
	rk_write(k, "to/" STAGE "/c/" BK_TEMP_PREFIX "01234567-99", "a further name");
	make_old(k, "to/" STAGE "/c/" BK_TEMP_PREFIX "01234567-99");
}

/* Whatever is restored next: partial files are never visible, and whole ones are not lost. */
static void a_killed_run_s_folder_gives_up_what_is_whole(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	add(&k, rk_text(&k, "other", "text"));
	(void)rk_publish(&k);
	leave_a_stage(&k);
	assert_int_equal(rk_restore(&k), 0);
	rk_expect(&k, "other", "text");
	rk_expect(&k, "a/whole", "all of it");
	assert_int_equal(rk_stat(&k, "a/whole").st_mtim.tv_sec, 1500000000);
	assert_true(rk_exists(&k, "a/link") && rk_exists(&k, "a/b") && rk_exists(&k, "c"));
	assert_false(rk_exists(&k, "a/half") || rk_exists(&k, "a/b/empty") || rk_exists(&k, "top"));
	assert_false(rk_exists(&k, "c/young"));
	assert_false(rk_exists(&k, STAGE));
	assert_int_equal(rk_leftovers(&k), 0);
	rk_end(&k);
}

static void a_killed_run_s_folder_does_not_replace_what_came_since(SL_UNUSED void **state)
{
	struct rk k;
	char full[512];
	rk_begin(&k, NULL, NULL);
	add(&k, rk_text(&k, "other", "text"));
	(void)rk_publish(&k);
	leave_a_stage(&k);
	rk_write(&k, "to/a", "mine");
	struct sl_backup_restore_opts opts = rk_opts(&k);
	assert_int_equal(sl_backup_restore(k.b, k.id, &opts, NULL, NULL), SL_EEXIST);
	rk_expect(&k, "a", "mine");
	rk_expect(&k, STAGE "/a/whole", "all of it");
	assert_int_equal(unlink(rk_path(&k, "to/a", full)), 0);
	assert_int_equal(rk_restore(&k), 0);
	rk_expect(&k, "a/whole", "all of it");
	assert_int_equal(rk_leftovers(&k), 0);
	rk_end(&k);
}

static void after_a_crash_of_the_machine_files_are_written_again(SL_UNUSED void **state)
{
	struct rk k;
	char full[512], mark[64];
	rk_begin(&k, NULL, NULL);
	publish_small_tree(&k);
	assert_int_equal(rk_restore(&k), 0);
	assert_true(getxattr(k.to, BK_TARGET_MARK, mark, sizeof(mark)) < 0);
	/* as a power loss may leave it: names, sizes and times are there, bytes are not */
	struct stat st = rk_stat(&k, "a/one");
	int fd = open(rk_path(&k, "to/a/one", full), O_WRONLY);
	assert_int_equal(pwrite(fd, "\0\0\0\0\0", 5, 0), 5);
	struct timespec times[2] = {st.st_atim, st.st_mtim};
	assert_int_equal(futimens(fd, times), 0);
	(void)close(fd);
	fd = open(rk_path(&k, "to/a/two", full), O_WRONLY);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(futimens(fd, times), 0);
	(void)close(fd);
	assert_int_equal(setxattr(k.to, BK_TARGET_MARK, "another boot", 12, 0), 0);
	assert_int_equal(rk_restore(&k), 0);
	rk_expect(&k, "a/one", "first");
	rk_expect(&k, "a/two", "second");
	rk_expect(&k, "a/with", "first");
	assert_true(rk_stat(&k, "a/one").st_ino == rk_stat(&k, "a/with").st_ino);
	assert_true(getxattr(k.to, BK_TARGET_MARK, mark, sizeof(mark)) < 0);
	rk_end(&k);
}

static void two_restores_do_not_write_to_one_folder_at_once(SL_UNUSED void **state)
{
	struct rk k;
	struct bk_target t;
	rk_begin(&k, NULL, NULL);
	publish_small_tree(&k);
	struct sl_backup_restore_opts opts = rk_opts(&k);
	assert_int_equal(sl__bk_target_open(&t, &k.env, &opts, false, NULL), 0);
	assert_int_equal(sl_backup_restore(k.b, k.id, &opts, NULL, NULL), SL_ELOCKED);
	sl__bk_target_close(&t);
	assert_int_equal(rk_restore(&k), 0);
	rk_end(&k);
}

/* ---- parts of a snapshot ---- */

static int restore_paths(struct rk *k, const char *one, const char *two)
{
	const char *paths[] = {one, two};
	struct sl_backup_restore_opts opts = rk_opts(k);
	opts.paths = paths;
	opts.n_paths = two != NULL ? 2 : 1;
	return rk_restore_with(k, &opts);
}

static void only_what_is_meant_is_restored(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	add(&k, rk_dir("a"));
	add(&k, rk_dir("a/deep"));
	add(&k, rk_text(&k, "a/deep/x", "x"));
	add(&k, rk_text(&k, "a/deeper", "y"));
	add(&k, rk_dir("b"));
	add(&k, rk_text(&k, "b/z", "z"));
	add(&k, rk_text(&k, "c", "c"));
	(void)rk_publish(&k);
	assert_int_equal(restore_paths(&k, "/a/deep/", "c"), 0);
	rk_expect(&k, "a/deep/x", "x");
	rk_expect(&k, "c", "c");
	assert_false(rk_exists(&k, "a/deeper"));
	assert_false(rk_exists(&k, "b"));
	/* a folder on the way that was made has the snapshot's time */
	assert_int_equal(rk_stat(&k, "a").st_mtim.tv_sec, RK_MTIME_S);
	rk_end(&k);
}

static void folders_on_the_way_that_were_there_are_left_alone(SL_UNUSED void **state)
{
	struct rk k;
	char full[512];
	rk_begin(&k, NULL, NULL);
	add(&k, rk_dir("a"));
	add(&k, rk_text(&k, "a/x", "x"));
	(void)rk_publish(&k);
	assert_int_equal(mkdir(k.to, 0700), 0);
	assert_int_equal(mkdir(rk_path(&k, "to/a", full), 0711), 0);
	assert_int_equal(restore_paths(&k, "a/x", NULL), 0);
	assert_int_equal(rk_stat(&k, "a").st_mode & 07777, 0711);
	assert_true(rk_stat(&k, "a").st_mtim.tv_sec != RK_MTIME_S);
	rk_end(&k);
}

static void a_path_that_is_not_in_the_snapshot_is_reported(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	publish_small_tree(&k);
	assert_int_equal(restore_paths(&k, "a/two", "nowhere"), SL_ENOENT);
	assert_non_null(strstr(k.err.msg, "nowhere"));
	rk_expect(&k, "a/two", "second");
	assert_int_equal(restore_paths(&k, "a/../b", NULL), SL_EINVAL);
	rk_end(&k);
}

static void a_name_of_a_file_that_is_not_meant_has_its_contents(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	add(&k, rk_dir("a"));
	add(&k, with_links(rk_text(&k, "a/file", "contents")));
	add(&k, rk_dir("b"));
	add(&k, rk_link(SL_BACKUP_HARDLINK, "b/one", "a/file"));
	add(&k, rk_link(SL_BACKUP_HARDLINK, "b/two", "a/file"));
	(void)rk_publish(&k);
	assert_int_equal(restore_paths(&k, "b", NULL), 0);
	assert_false(rk_exists(&k, "a"));
	rk_expect(&k, "b/one", "contents");
	assert_true(rk_stat(&k, "b/one").st_ino == rk_stat(&k, "b/two").st_ino);
	assert_int_equal(rk_stat(&k, "b").st_mtim.tv_sec, RK_MTIME_S);
	/* and when all of it is restored there, they are names of it again */
	assert_int_equal(rk_restore(&k), 0);
	rk_expect(&k, "a/file", "contents");
	assert_true(rk_stat(&k, "a/file").st_ino == rk_stat(&k, "b/one").st_ino);
	assert_true(rk_stat(&k, "a/file").st_ino == rk_stat(&k, "b/two").st_ino);
	rk_end(&k);
}

/* ---- damage ---- */

static void flip(struct rk *k, size_t from_end)
{
	char command[600];
	(void)snprintf(command, sizeof(command),
		       "f=$(ls '%s'/packs/*/* | head -n 1) && s=$(stat -c %%s $f) && chmod u+w $f && "
		       "printf '\\377\\000\\377\\000' | dd of=$f bs=1 seek=$((s - %zu)) conv=notrunc status=none",
		       k->repo, from_end);
	assert_int_equal(system(command), 0);
}

static void a_damaged_file_is_named_and_the_others_are_restored(SL_UNUSED void **state)
{
	struct rk k;
	uint8_t *noise = malloc(BK_SOLID_BELOW);
	rk_begin(&k, NULL, "secret");
	uint64_t x = 42;
	for (size_t i = 0; i < BK_SOLID_BELOW; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		noise[i] = (uint8_t)(x >> 56);
	}
	/* the damaged one has its own frame, the first in the pack */
	struct bk_entry bad = with_links(rk_file(&k, "m/bad", noise, BK_SOLID_BELOW));
	for (size_t i = 0; i < BK_SOLID_BELOW; i++)
		noise[i] ^= 0x55;
	add(&k, rk_text(&k, "a", "before"));
	add(&k, rk_dir("m"));
	add(&k, bad);
	add(&k, rk_link(SL_BACKUP_HARDLINK, "m/link", "m/bad"));
	add(&k, rk_file(&k, "m/next", noise, BK_SOLID_BELOW));
	add(&k, rk_text(&k, "z", "after"));
	(void)rk_publish(&k);
	struct stat st;
	char command[600];
	(void)snprintf(command, sizeof(command), "stat -c %%s '%s'/packs/*/*", k.repo);
	FILE *p = popen(command, "re");
	unsigned long size = 0;
	assert_int_equal(fscanf(p, "%lu", &size), 1);
	(void)pclose(p);
	flip(&k, size - 1000);
	assert_int_equal(rk_restore(&k), SL_ECORRUPT);
	assert_non_null(strstr(k.err.msg, "m/bad"));
	assert_int_equal(k.result.problems, 2);
	assert_int_equal(rk_problem_of(&k, "m/bad")->problem, SL_BACKUP_UNREADABLE);
	assert_non_null(rk_problem_of(&k, "m/link"));
	assert_false(rk_exists(&k, "m/bad"));
	assert_false(rk_exists(&k, "m/link"));
	rk_expect(&k, "a", "before");
	rk_expect(&k, "z", "after");
	size_t len;
	char *bytes = rk_read(&k, "m/next", &len);
	assert_memory_equal(bytes, noise, BK_SOLID_BELOW);
	free(bytes);
	st = rk_stat(&k, "m");
	assert_int_equal(st.st_mtim.tv_sec, RK_MTIME_S);
	free(noise);
	rk_end(&k);
}

static void a_missing_block_is_named_and_the_others_are_restored(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	struct bk_ref nowhere = {.id = {{7}}, .len = 5};
	struct bk_entry bad = rk_text(&k, "bad", "");
	bad.size = 5;
	bad.refs = &nowhere;
	bad.n_refs = 1;
	add(&k, bad);
	add(&k, rk_text(&k, "good", "good"));
	(void)rk_publish(&k);
	assert_int_equal(rk_restore(&k), SL_ECORRUPT);
	assert_non_null(rk_problem_of(&k, "bad"));
	assert_false(rk_exists(&k, "bad"));
	rk_expect(&k, "good", "good");
	rk_end(&k);
}

/* ---- options, progress, stop ---- */

static void wrong_options_are_named(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	publish_small_tree(&k);
	struct sl_backup_restore_opts opts = rk_opts(&k);
	opts.to = NULL;
	assert_int_equal(rk_restore_with(&k, &opts), SL_EINVAL);
	assert_int_equal(k.result.entries, 0);
	opts = rk_opts(&k);
	opts.conflict = (enum sl_backup_conflict)7;
	assert_int_equal(rk_restore_with(&k, &opts), SL_EINVAL);
	opts = rk_opts(&k);
	opts.struct_size = 0;
	assert_int_equal(rk_restore_with(&k, &opts), SL_EINVAL);
	opts = rk_opts(&k);
	assert_int_equal(sl_backup_restore(k.b, "0123456789abcdef", &opts, NULL, NULL), SL_ENOENT);
	opts.to = "/proc/nowhere/x";
	assert_true(sl_backup_restore(k.b, k.id, &opts, NULL, NULL) != 0);
	rk_end(&k);
}

static void stop_on_problem(SL_UNUSED enum sl_backup_problem problem, SL_UNUSED const char *path,
			    SL_UNUSED const struct sl_err *err, void *ctx)
{
	struct rk *k = ctx;
	struct sl_backup_progress p = {.struct_size = sizeof(p)};
	sl_backup_get_progress(k->b, &p);
	assert_string_equal(p.phase, "restore");
	assert_int_equal(p.errors, 1);
	sl_backup_stop(k->b);
}

static void a_restore_that_is_stopped_ends_and_can_be_resumed_later(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	static const struct bk_xattr odd[] = {{"nonsense.a", (const uint8_t *)"1", 1}};
	struct bk_entry f = rk_text(&k, "a", "x");
	f.xattrs = odd;
	f.n_xattrs = 1;
	add(&k, f);
	for (int i = 0; i < 100; i++) {
		char name[16];
		(void)snprintf(name, sizeof(name), "f%03d", i);
		add(&k, rk_text(&k, strdupa(name), "y"));
	}
	(void)rk_publish(&k);
	rk_reopen(&k, NULL, 1);
	struct sl_backup_restore_opts opts = rk_opts(&k);
	opts.on_problem = stop_on_problem;
	assert_int_equal(rk_restore_with(&k, &opts), SL_ECANCELLED);
	assert_true(k.result.files < 100);
	assert_int_equal(rk_restore(&k), 0);
	assert_true(k.result.files > 0);
	rk_expect(&k, "f099", "y");
	struct sl_backup_progress p = {.struct_size = sizeof(p)};
	sl_backup_get_progress(k.b, &p);
	assert_int_equal(p.files, 101);
	assert_int_equal(p.bytes, 101);
	assert_int_equal(p.totals_known, 1);
	rk_end(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kind_of_entry_comes_back),
		cmocka_unit_test(modes_and_times_are_those_of_the_snapshot),
		cmocka_unit_test(owners_and_devices_come_back_for_who_may),
		cmocka_unit_test(devices_are_left_out_when_asked),
		cmocka_unit_test(set_id_bits_come_back_from_an_encrypted_repository_and_else_when_asked),
		cmocka_unit_test(set_id_bits_go_when_the_owner_cannot_be_set),
		cmocka_unit_test(attributes_of_the_system_come_back_from_an_encrypted_repository_and_else_when_asked),
		cmocka_unit_test(access_lists_come_back_and_none_is_inherited),
		cmocka_unit_test(an_attribute_that_cannot_be_set_is_reported),
		cmocka_unit_test(holes_are_holes_again),
		cmocka_unit_test(big_files_come_back_through_lists_of_blocks),
		cmocka_unit_test(names_that_are_not_utf8_and_long_paths_come_back),
		cmocka_unit_test(what_is_there_and_right_is_not_restored_again),
		cmocka_unit_test(a_foreign_file_in_the_target_ends_the_restore_and_is_kept),
		cmocka_unit_test(overwriting_replaces_files_and_keeps_folders),
		cmocka_unit_test(overwriting_replaces_a_file_that_only_looks_the_same),
		cmocka_unit_test(a_folder_is_never_replaced_by_a_file),
		cmocka_unit_test(overwriting_makes_a_folder_where_a_file_is),
		cmocka_unit_test(leftovers_of_a_run_that_was_cut_off_are_removed),
		cmocka_unit_test(a_killed_run_s_folder_gives_up_what_is_whole),
		cmocka_unit_test(a_killed_run_s_folder_does_not_replace_what_came_since),
		cmocka_unit_test(after_a_crash_of_the_machine_files_are_written_again),
		cmocka_unit_test(two_restores_do_not_write_to_one_folder_at_once),
		cmocka_unit_test(only_what_is_meant_is_restored),
		cmocka_unit_test(folders_on_the_way_that_were_there_are_left_alone),
		cmocka_unit_test(a_path_that_is_not_in_the_snapshot_is_reported),
		cmocka_unit_test(a_name_of_a_file_that_is_not_meant_has_its_contents),
		cmocka_unit_test(a_damaged_file_is_named_and_the_others_are_restored),
		cmocka_unit_test(a_missing_block_is_named_and_the_others_are_restored),
		cmocka_unit_test(wrong_options_are_named),
		cmocka_unit_test(a_restore_that_is_stopped_ends_and_can_be_resumed_later),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
