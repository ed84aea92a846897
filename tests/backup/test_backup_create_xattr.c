/* SPDX-License-Identifier: Apache-2.0 */
/* Extended attributes of files: of every length, and when they cannot be read. */
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "backup/create/create.h"
#include "backup/create_kit.h"

/* ---- the system's calls, as the library finds them ---- */

static bool made_up;      /* two attributes of these lengths, whatever the file system can hold */
static size_t lengths[2]; /* of user.a and user.b */
static int broken;        /* errno of every read of user.x */

ssize_t flistxattr(int fd, char *list, size_t size)
{
	static const char names[] = "user.a\0user.b";
	if (!made_up)
		return syscall(SYS_flistxattr, fd, list, size);
	assert_true(size >= sizeof(names));
	memcpy(list, names, sizeof(names));
	return sizeof(names);
}

ssize_t fgetxattr(int fd, const char *name, void *value, size_t size)
{
	if (broken != 0 && strcmp(name, "user.x") == 0) {
		errno = broken;
		return -1;
	}
	if (!made_up)
		return syscall(SYS_fgetxattr, fd, name, value, size);
	bool b = strcmp(name, "user.b") == 0;
	size_t n = lengths[b];
	if (size == 0)
		return (ssize_t)n;
	if (size < n) {
		errno = ERANGE;
		return -1;
	}
	memset(value, b ? 'b' : 'a', n);
	return (ssize_t)n;
}

/* ---- */

static void expect_attribute(const struct bk_xattr *x, const char *name, size_t n)
{
	assert_string_equal(x->name, name);
	assert_int_equal(x->len, n);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(x->value[i], name[5]);
}

static void expect_read(size_t a, size_t b)
{
	struct sl_env env;
	assert_int_equal(sl__env_init(&env, NULL, NULL), 0);
	struct bk_item *item = sl__bk_item_new(&env, "x", 1, NULL, 0);
	assert_non_null(item);
	lengths[0] = a;
	lengths[1] = b;
	assert_int_equal(sl__bk_xattrs_read(&env, item, 0, -1, NULL), 0);
	assert_int_equal(item->e.n_xattrs, 2);
	expect_attribute(&item->e.xattrs[0], "user.a", a);
	expect_attribute(&item->e.xattrs[1], "user.b", b);
	sl__bk_item_free(&env, item);
}

static void values_of_every_length_are_read_whole(void **state)
{
	(void)state;
	made_up = true;
	for (size_t room = 256; room <= 65536; room *= 2)
		for (size_t a = room - 2; a <= room + 2 && a <= 65536; a++) {
			expect_read(a, 0);
			expect_read(a, 1);
			expect_read(a, 110);
			expect_read(a, room - 1);
			expect_read(a, room);
			expect_read(0, a);
		}
	made_up = false;
}

static void attributes_that_could_not_be_read_are_read_the_next_time(void **state)
{
	(void)state;
	struct ck k;
	char path[1024];
	ck_begin(&k, NULL);
	ck_text(&k, "a", "small");
	ck_write_seed(&k, "b", 3 << 20, 1);
	ck_mkdir(&k, "c");
	static const char *const names[] = {"a", "b", "c"};
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(setxattr(ck_path(&k, names[i], path), "user.x", "y", 1, 0), 0);
	for (int i = 0; i < 2; i++) {
		broken = EIO;
		ck_create_ok(&k);
		broken = 0;
		assert_int_equal(k.made.problems, 3);
	}
	ck_create_ok(&k);
	assert_int_equal(k.made.problems, 0);
	ck_restore_and_compare(&k);
	ck_create_ok(&k);
	assert_int_equal(k.made.files_unchanged, 2);
	ck_end(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_of_every_length_are_read_whole),
		cmocka_unit_test(attributes_that_could_not_be_read_are_read_the_next_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
