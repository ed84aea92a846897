/* SPDX-License-Identifier: Apache-2.0 */
/* Repositories and targets that mean harm: whatever they say, nothing outside of the target is touched. */
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/sysmacros.h>
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

/* Publish, restore both ways, and see that it is refused; then end. */
static void expect_refused(struct rk *k, int code)
{
	(void)rk_publish(k);
	for (int overwrite = 0; overwrite < 2; overwrite++) {
		struct sl_backup_restore_opts opts = rk_opts(k);
		opts.conflict = overwrite ? SL_BACKUP_OVERWRITE : SL_BACKUP_RESUME;
		assert_int_equal(rk_restore_with(k, &opts), code);
		assert_true(k->err.msg[0] != '\0');
	}
	rk_expect_outside_untouched(k);
}

static void names_that_lead_outside_are_refused(SL_UNUSED void **state)
{
	static const char *const names[] = {"../outside/new",
					    "..",
					    ".",
					    "",
					    "/",
					    "a/../../outside/new",
					    "a/./b",
					    "a//b",
					    "a/",
					    "/tmp/sluice-hostile",
					    "a/b/../../../outside/new",
					    "../outside/secret"};
	for (size_t i = 0; i < SL_COUNT(names); i++) {
		struct rk k;
		rk_begin(&k, NULL, NULL);
		if (names[i][0] == 'a')
			add(&k, rk_dir("a"));
		struct bk_entry e = rk_text(&k, names[i], "harm");
		rk_add(&k, &e);
		expect_refused(&k, SL_ECORRUPT);
		rk_end(&k);
	}
	struct rk k;
	rk_begin(&k, NULL, NULL);
	struct bk_entry e = rk_text(&k, "a", "harm");
	e.path = "a\0b";
	e.path_len = 3;
	rk_add(&k, &e);
	expect_refused(&k, SL_ECORRUPT);
	rk_end(&k);
}

/* The second line, should a reader ever let one through. */
static void the_target_itself_refuses_such_names(SL_UNUSED void **state)
{
	struct rk k;
	struct bk_target t;
	struct bk_folder f;
	bool made;
	rk_begin(&k, NULL, NULL);
	struct sl_backup_restore_opts opts = rk_opts(&k);
	assert_int_equal(sl__bk_target_open(&t, &k.env, &opts, false, NULL), 0);
	sl__bk_folder_init(&f, &t);
	static const char *const names[] = {"..", "../outside", "a/..", "./a", "/a", "a//b", "a/", ""};
	for (size_t i = 0; i < SL_COUNT(names); i++) {
		size_t n = strlen(names[i]);
		assert_int_equal(sl__bk_target_path_check(names[i], n, NULL), SL_EDATA);
		assert_int_equal(sl__bk_folder_make(&f, names[i], n, &made, NULL), SL_EDATA);
		if (n > 0)
			assert_int_equal(sl__bk_folder_enter(&f, names[i], n, NULL), SL_EDATA);
	}
	assert_int_equal(sl__bk_open_beneath(t.root, "../outside", O_RDONLY | O_DIRECTORY), -1);
	sl__bk_folder_fini(&f);
	sl__bk_target_close(&t);
	rk_expect_outside_untouched(&k);
	rk_end(&k);
}

static void a_link_of_the_snapshot_is_not_a_way(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	add(&k, rk_link(SL_BACKUP_SYMLINK, "a", k.outside));
	add(&k, rk_text(&k, "a/new", "harm"));
	expect_refused(&k, SL_ECORRUPT);
	rk_end(&k);
	/* the same name twice: a link, then a folder */
	rk_begin(&k, NULL, NULL);
	add(&k, rk_link(SL_BACKUP_SYMLINK, "a", k.outside));
	add(&k, rk_dir("a"));
	add(&k, rk_text(&k, "a/new", "harm"));
	expect_refused(&k, SL_ECORRUPT);
	rk_end(&k);
}

static void a_link_in_the_target_is_not_a_way(SL_UNUSED void **state)
{
	for (int deep = 0; deep < 2; deep++) {
		struct rk k;
		char full[512];
		rk_begin(&k, NULL, NULL);
		add(&k, rk_dir("a"));
		add(&k, rk_dir("a/b"));
		add(&k, rk_text(&k, "a/b/secret", "harm"));
		assert_int_equal(mkdir(k.to, 0700), 0);
		if (deep)
			assert_int_equal(mkdir(rk_path(&k, "to/a", full), 0700), 0);
		assert_int_equal(symlink(k.outside, rk_path(&k, deep ? "to/a/b" : "to/a", full)), 0);
		expect_refused(&k, SL_EDATA);
		rk_end(&k);
	}
}

/* The lane finds a link where the plan had made a folder: another process swapped it. */
static void a_link_that_was_swapped_in_is_not_a_way(SL_UNUSED void **state)
{
	struct rk k;
	struct bk_target t;
	struct bk_folder plan, lane;
	bool made;
	char full[512], other[512], in_stage[100];
	rk_begin(&k, NULL, NULL);
	struct sl_backup_restore_opts opts = rk_opts(&k);
	assert_int_equal(sl__bk_target_open(&t, &k.env, &opts, false, NULL), 0);
	sl__bk_folder_init(&plan, &t);
	sl__bk_folder_init(&lane, &t);
	assert_int_equal(sl__bk_folder_make(&plan, "a", 1, &made, NULL), 0);
	assert_int_equal(sl__bk_folder_make(&plan, "a/b", 3, &made, NULL), 0);
	assert_true(t.staged); /* the target was not there */
	(void)snprintf(in_stage, sizeof(in_stage), "to/%s/a", t.stage);
	assert_int_equal(rename(rk_path(&k, in_stage, full), rk_path(&k, "to/moved", other)), 0);
	assert_int_equal(symlink(k.outside, full), 0);
	assert_int_equal(sl__bk_folder_enter(&lane, "a/b", 3, NULL), SL_EDATA);
	assert_int_equal(sl__bk_folder_enter(&lane, "a", 1, NULL), SL_EDATA);
	/* who is in the folder already writes into that folder, wherever its name has gone */
	struct bk_entry e = rk_text(&k, "a/b/new", "x");
	const struct bk_placing p = {.folder = &plan, .e = &e, .name = "new"};
	struct bk_file file = {.fd = -1};
	assert_int_equal(sl__bk_file_begin(&file, &p, NULL), 0);
	sl__bk_file_drop(&file);
	sl__bk_folder_fini(&plan);
	sl__bk_folder_fini(&lane);
	sl__bk_target_close(&t);
	rk_expect_outside_untouched(&k);
	rk_end(&k);
}

/* A thread exchanges a folder for a link and back, as fast as it can, while restores run. */
struct swapper {
	char a[512], link[512];
	atomic_bool stop;
	atomic_long swaps;
};

static void *swap(void *ctx)
{
	struct swapper *s = ctx;
	while (!atomic_load(&s->stop)) {
		if (renameat2(AT_FDCWD, s->a, AT_FDCWD, s->link, RENAME_EXCHANGE) == 0)
			atomic_fetch_add(&s->swaps, 1);
	}
	return NULL;
}

static void links_that_come_and_go_while_it_runs_lead_nowhere(SL_UNUSED void **state)
{
	struct rk k;
	struct swapper s = {.stop = false};
	pthread_t thread;
	rk_begin(&k, NULL, NULL);
	add(&k, rk_dir("a"));
	static char names[60][16];
	for (int i = 0; i < 60; i++) {
		(void)snprintf(names[i], sizeof(names[i]), i % 3 == 0 ? "a/d%02d" : "a/d%02d/f%02d", i / 3 * 3, i);
		struct bk_entry e = i % 3 == 0 ? rk_dir(names[i]) : rk_text(&k, names[i], "x");
		e.uid = 4242;
		e.mode = 0777;
		rk_add(&k, &e);
	}
	(void)rk_publish(&k);
	assert_int_equal(mkdir(k.to, 0700), 0);
	(void)rk_path(&k, "to/a", s.a);
	(void)rk_path(&k, "link", s.link);
	assert_int_equal(mkdir(s.a, 0700), 0);
	assert_int_equal(symlink(k.outside, s.link), 0);
	assert_int_equal(pthread_create(&thread, NULL, swap, &s), 0);
	while (atomic_load(&s.swaps) == 0)
		(void)sched_yield();
	struct sl_backup_restore_opts opts = rk_opts(&k);
	opts.conflict = SL_BACKUP_OVERWRITE;
	int refused = 0, done = 0;
	while (refused + done < 200 && done < 3) {
		int rc = sl_backup_restore(k.b, k.id, &opts, NULL, NULL);
		refused += rc != 0;
		done += rc == 0;
		rk_expect_outside_untouched(&k);
	}
	atomic_store(&s.stop, true);
	(void)pthread_join(thread, NULL);
	print_message("# %d restores under %ld swaps: %d refused, %d done\n", refused + done, atomic_load(&s.swaps),
		      refused, done);
	rk_end(&k);
}

static void a_hard_link_leads_only_to_a_file_of_the_snapshot(SL_UNUSED void **state)
{
	static const struct {
		const char *path, *target;
		int code;
	} cases[] = {
		{"b", "../outside/secret", SL_ECORRUPT},
		{"b", "a/../../outside/secret", SL_ECORRUPT},
		{"b", "/etc/passwd", SL_ECORRUPT},
		{"b", "b", SL_ECORRUPT},
		{"b", "c", SL_ECORRUPT},
		{"b", "a", SL_EDATA},        /* a folder */
		{"b", "a/mine", SL_EDATA},   /* in the target, not in the snapshot */
		{"b", "a/single", SL_EDATA}, /* says that it has one name */
	};
	for (size_t i = 0; i < SL_COUNT(cases); i++) {
		struct rk k;
		char full[512];
		rk_begin(&k, NULL, NULL);
		add(&k, rk_dir("a"));
		add(&k, rk_text(&k, "a/single", "x"));
		add(&k, rk_link(SL_BACKUP_HARDLINK, cases[i].path, cases[i].target));
		assert_int_equal(mkdir(k.to, 0700), 0);
		assert_int_equal(mkdir(rk_path(&k, "to/a", full), 0700), 0);
		rk_write(&k, "to/a/mine", "mine");
		expect_refused(&k, cases[i].code);
		assert_false(rk_exists(&k, "b"));
		rk_expect(&k, "a/mine", "mine");
		rk_end(&k);
	}
}

static void hard_links_in_a_circle_are_refused(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	add(&k, rk_link(SL_BACKUP_HARDLINK, "a", "b"));
	add(&k, rk_link(SL_BACKUP_HARDLINK, "b", "a"));
	expect_refused(&k, SL_ECORRUPT);
	rk_end(&k);
	/* a chain: a link to a link, not to a file */
	rk_begin(&k, NULL, NULL);
	add(&k, with_links(rk_text(&k, "a", "x")));
	add(&k, rk_link(SL_BACKUP_HARDLINK, "b", "a"));
	add(&k, rk_link(SL_BACKUP_HARDLINK, "c", "b"));
	expect_refused(&k, SL_EDATA);
	assert_int_equal(sl_backup_cat(k.b, k.id, "c", (sl_backup_bytes_fn *)(uintptr_t)1, NULL, NULL), SL_EINVAL);
	rk_end(&k);
}

static void a_hard_link_to_a_link_does_not_follow_it(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	add(&k, with_links(rk_link(SL_BACKUP_SYMLINK, "a", "../outside/secret")));
	add(&k, rk_link(SL_BACKUP_HARDLINK, "b", "a"));
	(void)rk_publish(&k);
	assert_int_equal(rk_restore(&k), 0);
	assert_true(S_ISLNK(rk_stat(&k, "b").st_mode));
	rk_expect_outside_untouched(&k);
	rk_end(&k);
}

static void entries_out_of_order_and_doubles_are_refused(SL_UNUSED void **state)
{
	static const char *const pairs[][2] = {{"b", "a"}, {"a", "a"}, {"a.b", "a/b"}};
	for (size_t i = 0; i < SL_COUNT(pairs); i++) {
		struct rk k;
		rk_begin(&k, NULL, NULL);
		add(&k, rk_dir("a"));
		add(&k, rk_text(&k, pairs[i][0], "one"));
		if (i == 0)
			rk_cut(&k);
		add(&k, rk_text(&k, pairs[i][1], "two"));
		expect_refused(&k, SL_ECORRUPT);
		rk_end(&k);
	}
}

static void something_below_a_file_is_refused(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	add(&k, rk_text(&k, "a", "a file"));
	add(&k, rk_text(&k, "a/b", "below it"));
	expect_refused(&k, SL_ECORRUPT);
	rk_end(&k);
	rk_begin(&k, NULL, NULL);
	add(&k, rk_text(&k, "nowhere/b", "a folder that is not there"));
	expect_refused(&k, SL_ECORRUPT);
	rk_end(&k);
}

static void sizes_that_lie_are_refused(SL_UNUSED void **state)
{
	static const uint64_t sizes[] = {0, 1, 4, 6, UINT64_MAX, 1ull << 62, INT64_MAX};
	for (size_t i = 0; i < SL_COUNT(sizes); i++) {
		struct rk k;
		rk_begin(&k, NULL, NULL);
		struct bk_entry e = rk_text(&k, "a", "12345");
		e.size = sizes[i];
		rk_add(&k, &e);
		expect_refused(&k, SL_ECORRUPT);
		assert_false(rk_exists(&k, "a"));
		rk_end(&k);
	}
}

static void a_length_of_a_block_that_lies_is_damage(SL_UNUSED void **state)
{
	struct rk k;
	rk_begin(&k, NULL, NULL);
	struct bk_ref ref = rk_block(&k, "12345", 5);
	struct bk_entry e = rk_text(&k, "a", "");
	ref.len = 7;
	e.size = 7;
	e.refs = &ref;
	e.n_refs = 1;
	rk_add(&k, &e);
	expect_refused(&k, SL_ECORRUPT);
	assert_false(rk_exists(&k, "a"));
	rk_end(&k);
}

static void a_file_of_holes_that_no_disk_has_is_left_out(SL_UNUSED void **state)
{
	static const uint64_t sizes[] = {1ull << 60, INT64_MAX, UINT64_MAX};
	for (size_t i = 0; i < SL_COUNT(sizes); i++) {
		struct rk k;
		rk_begin(&k, NULL, NULL);
		struct bk_entry e = rk_text(&k, "a", "");
		e.flags = BK_ENTRY_SPARSE;
		e.size = sizes[i];
		rk_add(&k, &e);
		add(&k, rk_text(&k, "b", "fine"));
		(void)rk_publish(&k);
		assert_int_equal(rk_restore(&k), SL_ETOOBIG);
		assert_non_null(rk_problem_of(&k, "a"));
		assert_false(rk_exists(&k, "a"));
		rk_expect(&k, "b", "fine");
		rk_end(&k);
	}
}

static void extents_that_lie_are_refused(SL_UNUSED void **state)
{
	static const struct bk_extent cases[][2] = {
		{{0, 3}, {2, 2}},              /* overlap: as bytes, a gap that wraps */
		{{0, 3}, {UINT64_MAX - 1, 2}}, /* beyond the end */
		{{100, 5}, {UINT64_MAX, 0}},   /* nothing, nowhere */
		{{0, 4}, {4, UINT64_MAX}},     /* a length that wraps */
		{{0, 3}, {3, 1}},              /* shorter than the blocks */
		{{0, 3}, {1 << 10, 1 << 10}},  /* longer than the blocks */
	};
	for (size_t i = 0; i < SL_COUNT(cases); i++) {
		struct rk k;
		rk_begin(&k, NULL, NULL);
		struct bk_entry e = rk_text(&k, "a", "12345");
		e.flags = BK_ENTRY_SPARSE;
		e.size = 1 << 20;
		e.extents = cases[i];
		e.n_extents = 2;
		rk_add(&k, &e);
		expect_refused(&k, SL_ECORRUPT);
		assert_false(rk_exists(&k, "a"));
		rk_end(&k);
	}
}

/* A list of n references to the same block of 5 bytes, of which the entry says that they are `size`. */
static void expect_list_refused(size_t n, uint32_t len, uint64_t size)
{
	struct rk k;
	uint8_t list[64 * BK_LIST_REF_BYTES];
	rk_begin(&k, NULL, NULL);
	struct bk_ref ref = rk_block(&k, "12345", 5);
	for (size_t i = 0; i < n; i++) {
		memcpy(list + i * BK_LIST_REF_BYTES, ref.id.b, BK_ID_BYTES);
		sl__put32(list + i * BK_LIST_REF_BYTES + BK_ID_BYTES, len);
	}
	struct bk_ref of_list = rk_block(&k, list, n * BK_LIST_REF_BYTES);
	struct bk_entry e = rk_text(&k, "a", ""), good = rk_text(&k, "b", "good");
	e.flags = BK_ENTRY_LISTS;
	e.size = size;
	e.refs = &of_list;
	e.n_refs = 1;
	rk_add(&k, &e);
	rk_add(&k, &good);
	(void)rk_publish(&k);
	assert_int_equal(rk_restore(&k), SL_ECORRUPT);
	assert_non_null(rk_problem_of(&k, "a"));
	assert_false(rk_exists(&k, "a"));
	rk_expect(&k, "b", "good");
	rk_end(&k);
}

static void lists_of_blocks_that_lie_are_damage(SL_UNUSED void **state)
{
	expect_list_refused(10, 5, 49);            /* more than the file */
	expect_list_refused(10, 5, 51);            /* less */
	expect_list_refused(10, 5, UINT64_MAX);    /* much less */
	expect_list_refused(10, 0, 10);            /* no length */
	expect_list_refused(10, UINT32_MAX, 50);   /* a length that no block has */
	expect_list_refused(10, BK_CHUNK_MAX, 50); /* one that this block has not */
}

/* 2 MiB of zeros in each of many blocks that are one block: small in the repository, and bounded by its list. */
static void a_bomb_is_written_no_further_than_its_size(SL_UNUSED void **state)
{
	struct rk k;
	uint8_t *zeros = calloc(1, BK_CHUNK_MAX);
	uint8_t list[8 * BK_LIST_REF_BYTES];
	rk_begin(&k, NULL, NULL);
	struct bk_ref ref = rk_block(&k, zeros, BK_CHUNK_MAX);
	for (size_t i = 0; i < 8; i++) {
		memcpy(list + i * BK_LIST_REF_BYTES, ref.id.b, BK_ID_BYTES);
		sl__put32(list + i * BK_LIST_REF_BYTES + BK_ID_BYTES, BK_CHUNK_MAX);
	}
	struct bk_ref of_list = rk_block(&k, list, sizeof(list));
	struct bk_entry e = rk_text(&k, "a", "");
	e.flags = BK_ENTRY_LISTS;
	e.size = BK_CHUNK_MAX + 1;
	e.refs = &of_list;
	e.n_refs = 1;
	rk_add(&k, &e);
	expect_refused(&k, SL_ECORRUPT);
	assert_false(rk_exists(&k, "a"));
	struct sl_backup_progress p = {.struct_size = sizeof(p)};
	sl_backup_get_progress(k.b, &p);
	assert_true(p.bytes <= BK_CHUNK_MAX + 1);
	free(zeros);
	rk_end(&k);
}

/* Folders in folders, each with as many attributes as may be. */
static void nested_attributes_have_a_bound(SL_UNUSED void **state)
{
	struct rk k;
	enum { LEVELS = 80, VALUE = 1000 << 10 };
	char path[2 * LEVELS + 1] = "";
	uint8_t *value = calloc(1, VALUE);
	struct bk_xattr x = {"nonsense.big", value, VALUE};
	rk_begin(&k, NULL, NULL);
	for (size_t i = 0; i < LEVELS; i++) {
		(void)snprintf(path + strlen(path), 3, "%s", i == 0 ? "a" : "/a");
		struct bk_entry e = rk_dir(path);
		e.xattrs = &x;
		e.n_xattrs = 1;
		rk_add(&k, &e);
	}
	(void)rk_publish(&k);
	assert_int_equal(rk_restore(&k), SL_ETOOBIG);
	free(value);
	rk_end(&k);
}

static void a_fifo_or_device_in_the_way_is_not_opened(SL_UNUSED void **state)
{
	struct rk k;
	char full[512];
	rk_begin(&k, NULL, NULL);
	add(&k, rk_text(&k, "a", "x"));
	(void)rk_publish(&k);
	assert_int_equal(mkdir(k.to, 0700), 0);
	assert_int_equal(mkfifo(rk_path(&k, "to/a", full), 0600), 0);
	assert_int_equal(rk_restore(&k), SL_EEXIST);
	struct sl_backup_restore_opts opts = rk_opts(&k);
	opts.conflict = SL_BACKUP_OVERWRITE;
	assert_int_equal(rk_restore_with(&k, &opts), 0);
	rk_expect(&k, "a", "x");
	rk_end(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_that_lead_outside_are_refused),
		cmocka_unit_test(the_target_itself_refuses_such_names),
		cmocka_unit_test(a_link_of_the_snapshot_is_not_a_way),
		cmocka_unit_test(a_link_in_the_target_is_not_a_way),
		cmocka_unit_test(a_link_that_was_swapped_in_is_not_a_way),
		cmocka_unit_test(links_that_come_and_go_while_it_runs_lead_nowhere),
		cmocka_unit_test(a_hard_link_leads_only_to_a_file_of_the_snapshot),
		cmocka_unit_test(hard_links_in_a_circle_are_refused),
		cmocka_unit_test(a_hard_link_to_a_link_does_not_follow_it),
		cmocka_unit_test(entries_out_of_order_and_doubles_are_refused),
		cmocka_unit_test(something_below_a_file_is_refused),
		cmocka_unit_test(sizes_that_lie_are_refused),
		cmocka_unit_test(a_length_of_a_block_that_lies_is_damage),
		cmocka_unit_test(a_file_of_holes_that_no_disk_has_is_left_out),
		cmocka_unit_test(extents_that_lie_are_refused),
		cmocka_unit_test(lists_of_blocks_that_lie_are_damage),
		cmocka_unit_test(a_bomb_is_written_no_further_than_its_size),
		cmocka_unit_test(nested_attributes_have_a_bound),
		cmocka_unit_test(a_fifo_or_device_in_the_way_is_not_opened),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
