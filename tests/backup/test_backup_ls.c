/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/restore_kit.h"

static void add(struct rk *k, struct bk_entry e)
{
	rk_add(k, &e);
}

struct listing {
	char text[2000];
	int left; /* entries after which it ends with 77; 0: never */
};

static int note(const struct sl_backup_entry *e, void *ctx)
{
	struct listing *l = ctx;
	size_t n = strlen(l->text);
	(void)snprintf(l->text + n, sizeof(l->text) - n, "%d %s %o %llu%s%s|", (int)e->type, e->path, e->mode,
		       (unsigned long long)e->size, e->target != NULL ? " " : "", e->target != NULL ? e->target : "");
	return l->left > 0 && --l->left == 0 ? 77 : 0;
}

static void publish_tree(struct rk *k)
{
	static const struct bk_extent extents[] = {{1 << 17, 3}, {1 << 18, 4}};
	static const struct bk_xattr x = {"user.a", (const uint8_t *)"1", 1};
	struct bk_entry one = rk_text(k, "a/one", "first"), sparse = rk_text(k, "a/sparse", "abcdefg");
	one.nlink = 2;
	one.xattrs = &x;
	one.n_xattrs = 1;
	sparse.flags = BK_ENTRY_SPARSE;
	sparse.size = 1 << 20;
	sparse.extents = extents;
	sparse.n_extents = 2;
	add(k, rk_dir("a"));
	rk_add(k, &one);
	rk_add(k, &sparse);
	add(k, rk_link(SL_BACKUP_SYMLINK, "a/way", "one"));
	rk_cut(k);
	add(k, rk_link(SL_BACKUP_HARDLINK, "a/with", "a/one"));
	add(k, rk_text(k, "ab", "x"));
	add(k, rk_text(k, "b", ""));
	(void)rk_publish(k);
}

static void the_entries_of_a_snapshot_are_listed_in_order(SL_UNUSED void **state)
{
	struct rk k;
	struct listing l = {.left = 0};
	rk_begin(&k, NULL, "secret");
	publish_tree(&k);
	assert_int_equal(sl_backup_ls(k.b, "latest", NULL, note, &l, NULL), 0);
	assert_string_equal(l.text, "2 a 755 0|1 a/one 644 5|1 a/sparse 644 1048576|3 a/way 644 0 one|"
				    "4 a/with 644 0 a/one|1 ab 644 1|1 b 644 0|");
	rk_end(&k);
}

static void a_part_of_a_snapshot_is_listed(SL_UNUSED void **state)
{
	struct rk k;
	static const struct {
		const char *below, *text;
		int code;
	} cases[] = {
		{"a/one", "1 a/one 644 5|", 0},
		{"/b/", "1 b 644 0|", 0},
		{"a/on", "", SL_ENOENT},
		{"c", "", SL_ENOENT},
		{"..", "", SL_EINVAL},
		{"a", "2 a 755 0|1 a/one 644 5|1 a/sparse 644 1048576|3 a/way 644 0 one|4 a/with 644 0 a/one|", 0},
	};
	rk_begin(&k, NULL, NULL);
	publish_tree(&k);
	for (size_t i = 0; i < SL_COUNT(cases); i++) {
		struct listing l = {.left = 0};
		assert_int_equal(sl_backup_ls(k.b, k.id, cases[i].below, note, &l, NULL), cases[i].code);
		assert_string_equal(l.text, cases[i].text);
	}
	struct listing l = {.left = 0};
	assert_int_equal(sl_backup_ls(k.b, "0000000000", NULL, note, &l, NULL), SL_ENOENT);
	rk_end(&k);
}

static void who_lists_may_end_it(SL_UNUSED void **state)
{
	struct rk k;
	struct listing l = {.left = 2};
	rk_begin(&k, NULL, NULL);
	publish_tree(&k);
	assert_int_equal(sl_backup_ls(k.b, k.id, NULL, note, &l, NULL), 77);
	assert_string_equal(l.text, "2 a 755 0|1 a/one 644 5|");
	rk_end(&k);
}

static int stop(SL_UNUSED const struct sl_backup_entry *e, void *ctx)
{
	sl_backup_stop(ctx);
	return 0;
}

static void listing_can_be_stopped(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	publish_tree(&k);
	assert_int_equal(sl_backup_ls(k.b, k.id, NULL, stop, k.b, NULL), SL_ECANCELLED);
	rk_end(&k);
}

/* ---- cat ---- */

struct contents {
	uint8_t bytes[1 << 20];
	size_t len;
	int code; /* that it returns */
};

static int gather(const void *bytes, size_t len, void *ctx)
{
	struct contents *c = ctx;
	assert_true(c->len + len <= sizeof(c->bytes));
	memcpy(c->bytes + c->len, bytes, len);
	c->len += len;
	return c->code;
}

static void the_contents_of_a_file_are_given(SL_UNUSED void **state)
{
	struct rk k;
	struct contents *c = calloc(1, sizeof(*c));
	static const char *const paths[] = {"a/one", "/a/one", "a/with"};
	rk_begin(&k, NULL, "secret");
	publish_tree(&k);
	for (size_t i = 0; i < SL_COUNT(paths); i++) {
		c->len = 0;
		assert_int_equal(sl_backup_cat(k.b, k.id, paths[i], gather, c, NULL), 0);
		assert_int_equal(c->len, 5);
		assert_memory_equal(c->bytes, "first", 5);
	}
	c->len = 0;
	assert_int_equal(sl_backup_cat(k.b, k.id, "b", gather, c, NULL), 0);
	assert_int_equal(c->len, 0);
	c->code = 5;
	assert_int_equal(sl_backup_cat(k.b, k.id, "a/one", gather, c, NULL), 5);
	free(c);
	rk_end(&k);
}

static void holes_are_given_as_zeros(SL_UNUSED void **state)
{
	struct rk k;
	struct contents *c = calloc(1, sizeof(*c));
	uint8_t *expected = calloc(1, 1 << 20);
	memcpy(expected + (1 << 17), "abc", 3);
	memcpy(expected + (1 << 18), "defg", 4);
	rk_begin(&k, NULL, NULL);
	publish_tree(&k);
	memset(c->bytes, 0xff, sizeof(c->bytes));
	assert_int_equal(sl_backup_cat(k.b, k.id, "a/sparse", gather, c, NULL), 0);
	assert_int_equal(c->len, 1 << 20);
	assert_memory_equal(c->bytes, expected, 1 << 20);
	free(expected);
	free(c);
	rk_end(&k);
}

static void only_files_have_contents(SL_UNUSED void **state)
{
	struct rk k;
	struct contents *c = calloc(1, sizeof(*c));
	rk_begin(&k, NULL, NULL);
	publish_tree(&k);
	assert_int_equal(sl_backup_cat(k.b, k.id, "a", gather, c, NULL), SL_EINVAL);
	assert_int_equal(sl_backup_cat(k.b, k.id, "a/way", gather, c, NULL), SL_EINVAL);
	assert_int_equal(sl_backup_cat(k.b, k.id, "/", gather, c, NULL), SL_EINVAL);
	assert_int_equal(sl_backup_cat(k.b, k.id, "a/nothing", gather, c, NULL), SL_ENOENT);
	assert_int_equal(sl_backup_cat(k.b, k.id, "z", gather, c, NULL), SL_ENOENT);
	assert_int_equal(c->len, 0);
	free(c);
	rk_end(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_entries_of_a_snapshot_are_listed_in_order),
		cmocka_unit_test(a_part_of_a_snapshot_is_listed),
		cmocka_unit_test(who_lists_may_end_it),
		cmocka_unit_test(listing_can_be_stopped),
		cmocka_unit_test(the_contents_of_a_file_are_given),
		cmocka_unit_test(holes_are_given_as_zeros),
		cmocka_unit_test(only_files_have_contents),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
