/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots of real trees: what is in them, what is read again and what is not. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "backup/create_kit.h"
#include "backup/manifest/manifest.h"

/* ---- everything that a file has ---- */

static void every_kind_of_file_comes_back_as_it_was(void **state)
{
	(void)state;
	for (int threads = 1; threads <= 4; threads += 3) {
		struct ck k;
		ck_begin(&k, NULL);
		k.opts.threads = threads;
		ck_reopen(&k);
		ck_mixed_tree(&k);
		ck_create_ok(&k);
		assert_int_equal(k.made.problems, 0);
		ck_restore_and_compare(&k);
		ck_check(&k);
		/* and from a parent */
		ck_create_ok(&k);
		assert_int_equal(k.made.read_bytes, 0);
		assert_int_equal(k.made.files_unchanged, k.made.files);
		ck_restore_and_compare(&k);
		ck_end(&k);
	}
}

static void an_encrypted_repository_holds_the_same(void **state)
{
	(void)state;
	struct ck k;
	ck_begin(&k, NULL);
	sl_backup_close(k.b);
	k.b = NULL;
	sl_driver_close(&k.driver);
	ck_remove(k.repo);
	struct sl_driver_local_opts local = {SL_DRIVER_LOCAL_OPTS_INIT, .create = SL_ON};
	assert_int_equal(sl_driver_local_open(&k.driver, k.repo, &local, NULL), 0);
	k.opts.encrypt = SL_ON;
	k.opts.passphrase = "open";
	k.opts.passphrase_len = 4;
	assert_int_equal(sl_backup_init(&k.driver, &k.opts, &k.err), 0);
	ck_reopen(&k);
	ck_mixed_tree(&k);
	ck_create_ok(&k);
	ck_restore_and_compare(&k);
	ck_create_ok(&k);
	assert_int_equal(k.made.read_bytes, 0);
	ck_end(&k);
}

/* What the file system does not keep, it clamps: then that is what has to come back. */
static void times_of_any_year_come_back(void **state)
{
	(void)state;
	static const struct timespec times[] = {
		{-62135596800, 1},        /* year 1 */
		{-9223372037, 999999999}, /* before the first that fits into 64 bits of nanoseconds, in 1677 */
		{-2147483648, 0},         /* 1901 */
		{-1, 999999999},          /* the last one before 1970 */
		{9225014400, 123456789},  /* 2262-05-01, after the last that fits */
		{15000000000, 1},         /* 2445 */
		{253402300800, 0},        /* year 10000 */
		{INT64_C(1) << 45, 5},    /* in a million years */
	};
	struct ck k;
	char name[32], full[1024];
	int kept = 0;
	ck_begin(&k, NULL);
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		struct timespec both[2] = {times[i], times[i]};
		struct stat st;
		(void)snprintf(name, sizeof(name), "file-%zu", i);
		ck_text(&k, name, name);
		assert_int_equal(utimensat(AT_FDCWD, ck_path(&k, name, full), both, 0), 0);
		assert_int_equal(stat(full, &st), 0);
		if (st.st_mtim.tv_sec == times[i].tv_sec && st.st_mtim.tv_nsec == times[i].tv_nsec)
			kept++;
	}
	print_message("# this file system keeps %d of %zu times\n", kept, sizeof(times) / sizeof(times[0]));
	ck_create_ok(&k);
	ck_restore_and_compare(&k);
	/* and they are compared as they are */
	ck_create_ok(&k);
	assert_int_equal(k.made.files_unchanged, k.made.files);
	ck_restore_and_compare(&k);
	ck_end(&k);
}

/* Paths of more than PATH_MAX bytes, and more levels than folders may be open. */
static void deep_trees_are_walked_to_their_end(void **state)
{
	(void)state;
	struct ck k;
	char name[41];
	ck_begin(&k, NULL);
	memset(name, 'd', 40);
	name[40] = '\0';
	int dir = open(k.tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < 150; i++) {
		assert_int_equal(mkdirat(dir, name, 0755), 0);
		int fd = openat(dir, "zz", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		assert_int_equal(write(fd, &i, sizeof(i)), sizeof(i));
		close(fd);
		int next = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		close(dir);
		dir = next;
	}
	close(dir);
	ck_create_ok(&k);
	assert_int_equal(k.made.files, 150);
	assert_int_equal(k.made.problems, 0);
	assert_int_equal(k.made.read_bytes, 150 * sizeof(int));
	ck_create_ok(&k);
	assert_int_equal(k.made.files_unchanged, 150);
	ck_check(&k);
	ck_end(&k);
}

/* ---- what is read again ---- */

static void what_changed_shortly_before_the_start_is_read_again(void **state)
{
	(void)state;
	struct ck k;
	ck_begin(&k, NULL);
	ck_text(&k, "new", "contents");
	ck_ahead_ms = 0;
	ck_create_ok(&k);
	ck_ahead_ms = 60000;
	/* Its time need not have moved if it changed right after the snapshot, so it is read. */
	ck_create_ok(&k);
	assert_int_equal(k.made.read_bytes, 8);
	assert_int_equal(k.made.new_blocks, 1); /* the manifest: the mark is gone */
	/* Then it was old enough. */
	ck_create_ok(&k);
	assert_int_equal(k.made.read_bytes, 0);
	assert_int_equal(k.made.files_unchanged, 1);
	ck_end(&k);
}

static void a_change_shows_even_when_size_and_time_are_as_before(void **state)
{
	(void)state;
	struct ck k;
	char path[1024];
	struct stat st;
	ck_begin(&k, NULL);
	ck_text(&k, "a", "same");
	ck_text(&k, "b", "before");
	ck_create_ok(&k);
	assert_int_equal(stat(ck_path(&k, "b", path), &st), 0);
	ck_text(&k, "b", "behind");
	struct timespec t[2] = {st.st_atim, st.st_mtim};
	assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
	ck_create_ok(&k);
	assert_int_equal(k.made.files_changed, 1);
	assert_int_equal(k.made.files_unchanged, 1);
	assert_int_equal(k.made.read_bytes, 6);
	ck_restore_and_compare(&k);
	ck_end(&k);
}

static void new_names_and_removed_ones_leave_the_others_alone(void **state)
{
	(void)state;
	struct ck k;
	char path[1024];
	ck_begin(&k, NULL);
	for (int i = 0; i < 400; i++) {
		char name[64];
		if (i % 20 == 0) {
			(void)snprintf(name, sizeof(name), "d%02d", i / 20);
			ck_mkdir(&k, name);
		}
		(void)snprintf(name, sizeof(name), "d%02d/%d", i / 20, i % 20);
		ck_write_seed(&k, name, (size_t)(i * 37 % 5000), (uint64_t)i);
	}
	ck_create_ok(&k);
	assert_int_equal(k.made.files_new, 400);
	assert_int_equal(unlink(ck_path(&k, "d07/3", path)), 0);
	ck_text(&k, "d07/33", "new");
	ck_remove(ck_path(&k, "d11", path));
	ck_mkdir(&k, "d110");
	ck_text(&k, "d110/x", "also new");
	ck_create_ok(&k);
	assert_int_equal(k.made.files, 400 - 20 + 1);
	assert_int_equal(k.made.files_unchanged, 400 - 20 - 1);
	assert_int_equal(k.made.files_new, 2);
	assert_int_equal(k.made.read_bytes, 3 + 8);
	ck_restore_and_compare(&k);
	ck_check(&k);
	ck_end(&k);
}

static void force_reads_everything_and_stores_nothing_twice(void **state)
{
	(void)state;
	struct ck k;
	ck_begin(&k, NULL);
	ck_write_seed(&k, "a", 700000, 1);
	ck_text(&k, "b", "text");
	ck_create_ok(&k);
	k.create.force = SL_ON;
	ck_create_ok(&k);
	assert_int_equal(k.made.read_bytes, 700004);
	assert_true(k.made.new_blocks <= 1); /* the manifest, when a folder above has changed meanwhile */
	assert_true(k.made.new_bytes < 4096);
	assert_int_equal(k.made.files_changed, 2);
	ck_end(&k);
}

static void the_parent_is_the_newest_of_the_same_host_and_paths(void **state)
{
	(void)state;
	struct ck k;
	ck_begin(&k, NULL);
	ck_text(&k, "a", "1");
	k.create.host = "one";
	ck_create_ok(&k);
	char first[SL_BACKUP_ID_BYTES];
	memcpy(first, k.made.id, sizeof(first));
	k.create.host = "two";
	ck_create_ok(&k);
	assert_int_equal(k.made.files_new, 1); /* another host's is none */
	k.create.parent = first;
	ck_create_ok(&k);
	assert_int_equal(k.made.files_unchanged, 1); /* but may be asked for */
	k.create.parent = "0123456789abcdef0123456789abcdef";
	assert_int_equal(ck_create(&k), SL_ENOENT);
	ck_end(&k);
}

/* F5: a pack that a mark names, that is gone, or of which the end is missing, does not count. */
static void blocks_of_packs_that_do_not_count_are_stored_again(void **state)
{
	(void)state;
	enum { MARKED, GONE, CUT, HOWS };
	for (int how = MARKED; how < HOWS; how++) {
		struct ck k;
		struct bk_ids packs = {0};
		char mark[BK_NAME_HEX], name[SL_DRIVER_NAME_BYTES];
		ck_begin(&k, NULL);
		ck_write_seed(&k, "a", 300000, 1);
		ck_write_seed(&k, "b", 3000, 2);
		ck_create_ok(&k);
		uint64_t blocks = k.made.new_blocks;
		assert_int_equal(sl__bk_list_packs(k.b, &packs, NULL, NULL, NULL), 0);
		assert_true(packs.n > 0);
		for (size_t i = 0; how != MARKED && i < packs.n; i++) {
			sl__bk_pack_name(&packs.ids[i], name);
			assert_int_equal(k.driver.ops->remove(k.driver.driver, name, NULL), 0);
			if (how == CUT)
				assert_int_equal(
					k.driver.ops->put(k.driver.driver, name, "SLPACK01", 8, SL_DRIVER_NEW, NULL),
					0);
		}
		if (how == MARKED)
			assert_int_equal(sl__bk_mark_put(k.b, &packs, mark, NULL), 0);
		ck_create_ok(&k);
		assert_int_equal(k.made.new_blocks, blocks);
		assert_int_equal(k.made.read_bytes, 303000);
		sl__bk_ids_fini(&k.b->env, &packs);
		ck_restore_and_compare(&k);
		ck_end(&k);
	}
}

static void only_the_files_whose_blocks_do_not_count_are_read(void **state)
{
	(void)state;
	struct ck k;
	struct bk_ids before = {0}, packs = {0}, gone = {0};
	char mark[BK_NAME_HEX];
	ck_begin(&k, NULL);
	ck_write_seed(&k, "a", 300000, 1);
	ck_create_ok(&k);
	assert_int_equal(sl__bk_list_packs(k.b, &before, NULL, NULL, NULL), 0);
	ck_write_seed(&k, "b", 200000, 2);
	ck_create_ok(&k);
	assert_int_equal(sl__bk_list_packs(k.b, &packs, NULL, NULL, NULL), 0);
	/* The first snapshot's packs are marked for deletion; the second's has b, and the manifest. */
	assert_int_equal(sl__bk_mark_put(k.b, &before, mark, NULL), 0);
	ck_create_ok(&k);
	assert_int_equal(k.made.read_bytes, 300000);
	assert_int_equal(k.made.files_unchanged, 1);
	assert_int_equal(k.made.files_changed, 1);
	ck_restore_and_compare(&k);
	sl__bk_ids_fini(&k.b->env, &before);
	sl__bk_ids_fini(&k.b->env, &packs);
	sl__bk_ids_fini(&k.b->env, &gone);
	ck_end(&k);
}

/* ---- large files ---- */

static int count_ref(const struct bk_ref *ref, void *ctx)
{
	assert_true(ref->len > 0);
	(*(size_t *)ctx)++;
	return 0;
}

/* How many packs have the first list of the snapshot's file of many blocks; name: the smallest of them. */
static size_t packs_of_list(const struct ck *k, char name[SL_DRIVER_NAME_BYTES])
{
	struct bk_index *index = NULL;
	struct bk_reader *reader = NULL;
	struct bk_snapshot snapshot = {.manifest = NULL};
	struct bk_manifest_reader *manifest = NULL;
	struct bk_entry e = {.flags = 0};
	struct bk_found places[4];
	size_t n = 0;
	uint64_t smallest = UINT64_MAX;
	assert_int_equal(sl__bk_index_for_reading(k->b, &index, NULL), 0);
	assert_int_equal(sl__bk_reader_new(&reader, k->b, index, NULL), 0);
	assert_int_equal(sl__bk_snapshot_load(k->b, k->made.id, &snapshot, NULL), 0);
	assert_int_equal(sl__bk_manifest_reader_new(&manifest, k->b, &snapshot, reader, NULL), 0);
	while ((e.flags & BK_ENTRY_LISTS) == 0)
		assert_int_equal(sl__bk_manifest_next(manifest, &e, NULL), 1);
	n = (size_t)sl__bk_index_places(index, &e.refs[0].id, places, SL_COUNT(places), NULL);
	assert_true(n <= SL_COUNT(places)); /* and not an error */
	for (size_t i = 0; i < n; i++) {
		struct sl_driver_stat st;
		char pack[SL_DRIVER_NAME_BYTES];
		sl__bk_pack_name(&places[i].pack, pack);
		assert_int_equal(k->driver.ops->stat(k->driver.driver, pack, &st, NULL), 0);
		if (st.size < smallest)
			memcpy(name, pack, sizeof(pack));
		smallest = SL_MIN(smallest, st.size);
	}
	sl__bk_manifest_reader_free(manifest);
	sl__bk_snapshot_fini(&k->b->env, &snapshot);
	sl__bk_reader_free(reader);
	sl__bk_index_free(index);
	return n;
}

/* A pack is lost that has lists, and no contents: files are taken over, and their lists are in two packs again. */
static void lists_that_are_taken_over_are_put_into_a_second_pack_again(void **state)
{
	(void)state;
	struct ck k;
	char name[SL_DRIVER_NAME_BYTES];
	ck_begin(&k, NULL);
	assert_int_equal(
		sl__bk_chunker_init(&k.b->chunker, &k.b->keys, &(struct bk_chunk_sizes){4096, 8192, 16384}, NULL), 0);
	ck_write_seed(&k, "many", 48u << 20, 1);
	ck_create_ok(&k);
	for (int lost = 0; lost < 2; lost++) {
		assert_int_equal(packs_of_list(&k, name), 2);
		assert_int_equal(k.driver.ops->remove(k.driver.driver, name, NULL), 0);
		assert_int_equal(packs_of_list(&k, name), 1);
		ck_create_ok(&k);
		assert_int_equal(k.made.read_bytes, 0);
		assert_int_equal(packs_of_list(&k, name), 2);
		ck_restore_and_compare(&k);
	}
	ck_end(&k);
}

/* With small blocks a file of some megabytes has more than an entry may name. */
static void files_of_many_blocks_have_them_in_lists(void **state)
{
	(void)state;
	struct ck k;
	ck_begin(&k, NULL);
	assert_int_equal(
		sl__bk_chunker_init(&k.b->chunker, &k.b->keys, &(struct bk_chunk_sizes){4096, 8192, 16384}, NULL), 0);
	ck_write_seed(&k, "many", 48u << 20, 1);
	ck_write_seed(&k, "few", 1u << 20, 3);
	ck_create_ok(&k);
	ck_restore_and_compare(&k);
	/* The references, lists opened, and the lists themselves. */
	struct bk_index *index;
	struct bk_reader *reader;
	struct bk_snapshot snapshot;
	struct bk_manifest_reader *manifest;
	struct bk_entry e;
	assert_int_equal(sl__bk_index_for_reading(k.b, &index, NULL), 0);
	assert_int_equal(sl__bk_reader_new(&reader, k.b, index, NULL), 0);
	assert_int_equal(sl__bk_snapshot_load(k.b, k.made.id, &snapshot, NULL), 0);
	assert_int_equal(sl__bk_manifest_reader_new(&manifest, k.b, &snapshot, reader, NULL), 0);
	size_t blocks = 0, all = 0;
	int rc;
	while ((rc = sl__bk_manifest_next(manifest, &e, NULL)) == 1) {
		if ((e.flags & BK_ENTRY_LISTS) == 0)
			continue;
		assert_true(e.n_refs > 1);
		assert_int_equal(sl__bk_entry_refs(reader, &e, count_ref, &blocks, NULL), 0);
		assert_int_equal(sl__bk_entry_all_refs(reader, &e, count_ref, &all, NULL), 0);
		assert_int_equal(all, blocks + e.n_refs);
		for (size_t i = 0; i < e.n_refs; i++) { /* of metadata: in two packs */
			struct bk_found places[4];
			size_t n = 0;
			n = (size_t)sl__bk_index_places(index, &e.refs[i].id, places, 4, NULL);
			assert_int_equal(n, 2);
		}
	}
	assert_int_equal(rc, 0);
	assert_true(blocks > BK_LIST_REFS);
	print_message("# %zu blocks in lists\n", blocks);
	sl__bk_manifest_reader_free(manifest);
	sl__bk_snapshot_fini(&k.b->env, &snapshot);
	sl__bk_reader_free(reader);
	sl__bk_index_free(index);
	/* Taken over, lists and all: no file is read again. */
	ck_create_ok(&k);
	assert_int_equal(k.made.read_bytes, 0);
	ck_check(&k);
	ck_end(&k);
}

struct expected_cuts {
	const struct bk_chunker *chunker;
	struct bk_hasher *hasher;
	const uint8_t *bytes;
	size_t n, at;
};

static int expect_cut(const struct bk_ref *ref, void *ctx)
{
	struct expected_cuts *x = ctx;
	struct bk_id id;
	assert_int_equal(ref->len, sl__bk_chunk(x->chunker, x->bytes + x->at, x->n - x->at));
	assert_int_equal(sl__bk_hash(x->hasher, x->bytes + x->at, ref->len, &id, NULL), 0);
	assert_memory_equal(&ref->id, &id, sizeof(id));
	x->at += ref->len;
	return 0;
}

/* However it was read: what lies in a buffer together has no say in where a file is cut. */
static void files_of_every_size_are_cut_where_their_bytes_say(void **state)
{
	(void)state;
	struct ck k;
	struct bk_index *index;
	struct bk_reader *reader;
	struct bk_snapshot snapshot;
	struct bk_manifest_reader *manifest;
	struct bk_entry e;
	ck_begin(&k, NULL);
	const size_t lens[] = {(21u << 20) + 12345, 3u << 20, (1u << 20) + 1, 1u << 20, (1u << 20) - 1, 600000, 200000};
	struct expected_cuts x = {.chunker = &k.b->chunker};
	size_t files = 0;
	uint8_t *bytes = malloc(lens[0]);
	assert_non_null(bytes);
	ck_fill(bytes, lens[0], 9, 0);
	memset(bytes + (9u << 20), 0, 5u << 20); /* nothing to go by: blocks of the largest length */
	x.bytes = bytes;
	for (size_t i = 0; i < SL_COUNT(lens); i++) {
		const char name[] = {(char)('a' + i), '\0'};
		ck_write(&k, name, bytes, lens[i]);
	}
	ck_create_ok(&k);
	assert_int_equal(sl__bk_hasher_new(&x.hasher, &k.b->env, &k.b->keys, NULL), 0);
	assert_int_equal(sl__bk_index_for_reading(k.b, &index, NULL), 0);
	assert_int_equal(sl__bk_reader_new(&reader, k.b, index, NULL), 0);
	assert_int_equal(sl__bk_snapshot_load(k.b, k.made.id, &snapshot, NULL), 0);
	assert_int_equal(sl__bk_manifest_reader_new(&manifest, k.b, &snapshot, reader, NULL), 0);
	while (sl__bk_manifest_next(manifest, &e, NULL) == 1)
		if (e.type == SL_BACKUP_FILE) {
			x.n = lens[files++];
			x.at = 0;
			assert_int_equal(sl__bk_entry_refs(reader, &e, expect_cut, &x, NULL), 0);
			assert_int_equal(x.at, x.n);
		}
	assert_int_equal(files, SL_COUNT(lens));
	sl__bk_manifest_reader_free(manifest);
	sl__bk_snapshot_fini(&k.b->env, &snapshot);
	sl__bk_reader_free(reader);
	sl__bk_index_free(index);
	sl__bk_hasher_free(x.hasher);
	free(bytes);
	ck_restore_and_compare(&k);
	ck_end(&k);
}

static void the_same_data_is_stored_once_wherever_it_is(void **state)
{
	(void)state;
	struct ck k;
	ck_begin(&k, NULL);
	uint8_t *bytes = malloc(5u << 20);
	assert_non_null(bytes);
	ck_fill(bytes, 5u << 20, 7, 0);
	ck_write(&k, "a", bytes, 5u << 20);
	ck_write(&k, "b", bytes, 5u << 20);
	/* Shifted: the cuts find each other again. */
	ck_write(&k, "c", bytes + 1000, (5u << 20) - 1000);
	free(bytes);
	ck_create_ok(&k);
	assert_true(k.made.new_bytes < (7u << 20));
	assert_true(k.made.known_blocks > 0);
	ck_restore_and_compare(&k);
	ck_end(&k);
}

/* ---- which names ---- */

static void expect_listing(struct ck *k, const char *expected)
{
	char *text = ck_listing(k);
	assert_string_equal(text, expected);
	free(text);
}

static void patterns_leave_names_out_with_all_below(void **state)
{
	(void)state;
	struct ck k;
	char whole[1024], absolute[1024];
	ck_begin(&k, NULL);
	ck_mkdir(&k, "build");
	ck_text(&k, "build/x", "1");
	ck_mkdir(&k, "src");
	ck_mkdir(&k, "src/build");
	ck_text(&k, "src/a.c", "2");
	ck_text(&k, "src/a.o", "3");
	ck_mkdir(&k, "src/keep");
	ck_text(&k, "src/keep/b.o.c", "4");
	ck_text(&k, "src/keep/cache", "5");
	ck_mkdir(&k, "cache");
	ck_text(&k, "cache/y", "6");
	(void)snprintf(whole, sizeof(whole), "%s/cache", k.tree);
	(void)snprintf(absolute, sizeof(absolute), "%s/src/build/", k.tree);
	const char *excludes[] = {"*.o", whole, "**/tree/build", absolute};
	k.create.excludes = excludes;
	k.create.n_excludes = 4;
	ck_create_ok(&k);
	expect_listing(&k, "src\nsrc/a.c\nsrc/keep\nsrc/keep/b.o.c\nsrc/keep/cache\n");
	const char *bad[] = {"ok", ""};
	k.create.excludes = bad;
	k.create.n_excludes = 2;
	assert_int_equal(ck_create(&k), SL_EINVAL);
	assert_non_null(strstr(k.err.msg, "pattern 2"));
	ck_end(&k);
}

static int print_entry(const struct sl_backup_entry *e, void *ctx)
{
	(void)snprintf((char *)ctx + strlen(ctx), 1000, "%s%s\n", e->path, e->type == SL_BACKUP_DIR ? "/" : "");
	return 0;
}

static void given_paths_are_merged_and_have_their_folders_above_them(void **state)
{
	(void)state;
	struct ck k;
	char a[1024], b[1024], c[1024], d[1024], e[1024], text[8192] = "", expected[8192] = "";
	ck_begin(&k, NULL);
	ck_mkdir(&k, "x");
	ck_mkdir(&k, "x/y");
	ck_text(&k, "x/y/file", "1");
	ck_text(&k, "x/other", "2");
	ck_mkdir(&k, "z");
	ck_text(&k, "z/in", "3");
	assert_int_equal(symlink("z", ck_path(&k, "to z", e)), 0);
	assert_int_equal(symlink("x/other", ck_path(&k, "to other", b)), 0);
	const char *paths[] = {ck_path(&k, "x/y/file", a), ck_path(&k, "x/y/../y///", c), b, ck_path(&k, "to z", d)};
	k.create.paths = paths;
	k.create.n_paths = 4;
	ck_create_ok(&k);
	assert_int_equal(sl_backup_ls(k.b, k.made.id, NULL, print_entry, text, NULL), 0);
	for (const char *slash = strchr(k.tree + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/'))
		(void)snprintf(expected + strlen(expected), 1000, "%.*s/\n", (int)(slash - k.tree - 1), k.tree + 1);
	static const char *const below[] = {"/", "/to other", "/x/", "/x/y/", "/x/y/file", "/z/", "/z/in"};
	for (size_t i = 0; i < SL_COUNT(below); i++)
		(void)snprintf(expected + strlen(expected), 1000, "%.200s%s\n", k.tree + 1, below[i]);
	assert_string_equal(text, expected);
	/* The same set, written otherwise, has it as parent. */
	const char *again[] = {e, c, b};
	k.create.paths = again;
	k.create.n_paths = 3;
	ck_create_ok(&k);
	assert_int_equal(k.made.files_unchanged, 2);
	ck_end(&k);
}

static void bad_options_are_refused_by_name(void **state)
{
	(void)state;
	struct ck k;
	ck_begin(&k, NULL);
	k.paths[0] = "/no/such/path";
	assert_int_equal(ck_create(&k), SL_ENOENT);
	assert_non_null(strstr(k.err.msg, "/no/such/path"));
	k.paths[0] = "";
	assert_int_equal(ck_create(&k), SL_EINVAL);
	k.create.n_paths = 0;
	assert_int_equal(ck_create(&k), SL_EINVAL);
	k.create.n_paths = 1;
	k.paths[0] = k.tree;
	k.create.force = (enum sl_switch)7;
	assert_int_equal(ck_create(&k), SL_EINVAL);
	k.create.force = SL_DEFAULT;
	const char *tags[] = {""};
	k.create.tags = tags;
	k.create.n_tags = 1;
	assert_int_equal(ck_create(&k), SL_EINVAL);
	k.create.n_tags = 0;
	ck_create_ok(&k);
	ck_end(&k);
}

static int keep_snapshot(const struct sl_backup_snapshot *s, void *ctx)
{
	struct ck *k = ctx;
	assert_string_equal(s->id, k->made.id);
	assert_string_equal(s->host, "box");
	assert_int_equal(s->time_ms, 1234567890123);
	assert_int_equal(s->n_tags, 2);
	assert_string_equal(s->tags[1], "nightly");
	assert_int_equal(s->n_paths, 1);
	assert_string_equal(s->paths[0], k->tree);
	assert_int_equal(s->files, 1);
	assert_int_equal(s->bytes, 5);
	assert_int_equal(s->entries, k->made.entries);
	return 0;
}

static void a_snapshot_says_what_it_is_of(void **state)
{
	(void)state;
	struct ck k;
	const char *tags[] = {"one", "nightly"};
	ck_begin(&k, NULL);
	ck_text(&k, "a", "12345");
	k.create.tags = tags;
	k.create.n_tags = 2;
	k.create.host = "box";
	k.create.time_ms = 1234567890123;
	ck_create_ok(&k);
	assert_int_equal(sl_backup_list(k.b, keep_snapshot, NULL, &k, NULL), 0);
	struct sl_backup_progress p = {.struct_size = sizeof(p)};
	ck_create_ok(&k);
	sl_backup_get_progress(k.b, &p);
	assert_true(p.totals_known);
	assert_int_equal(p.bytes, 5);
	assert_int_equal(p.bytes_total, 5);
	assert_int_equal(p.files, p.files_total);
	ck_end(&k);
}

/* What is not read (holes, further names, files that vanished) also counts as done when the walk is past it. Otherwise
 * a progress that knows the total would stall before the end, and show a remaining time for ever. */
static void what_is_done_adds_up_to_the_whole(void **state)
{
	(void)state;
	struct ck k;
	char one[1024], two[1024];
	struct sl_backup_progress p = {.struct_size = sizeof(p)};
	ck_begin(&k, NULL);
	ck_write_seed(&k, "big", 700000, 1);
	assert_int_equal(link(ck_path(&k, "big", one), ck_path(&k, "other name", two)), 0);
	ck_text(&k, "sparse", "x");
	assert_int_equal(truncate(ck_path(&k, "sparse", one), 5 << 20), 0);
	for (int again = 0; again <= 1; again++) {
		ck_create_ok(&k);
		sl_backup_get_progress(k.b, &p);
		assert_true(p.totals_known);
		assert_int_equal(p.bytes_total, 2 * 700000 + (5 << 20));
		assert_int_equal(p.bytes, p.bytes_total);
		assert_int_equal(p.files, p.files_total);
	}
	ck_end(&k);
}

static void a_socket_is_reported_and_left_out(void **state)
{
	(void)state;
	struct ck k;
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	char cwd[4096];
	ck_begin(&k, NULL);
	assert_non_null(getcwd(cwd, sizeof(cwd)));
	assert_int_equal(chdir(k.tree), 0);
	(void)snprintf(at.sun_path, sizeof(at.sun_path), "sock");
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(s, (struct sockaddr *)&at, sizeof(at)), 0);
	close(s);
	assert_int_equal(chdir(cwd), 0);
	ck_create_ok(&k);
	assert_int_equal(k.made.problems, 0); /* only reported */
	assert_int_equal(ck_problem_of(&k, "/tree/sock")->problem, SL_BACKUP_SKIPPED);
	expect_listing(&k, "");
	ck_end(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kind_of_file_comes_back_as_it_was),
		cmocka_unit_test(an_encrypted_repository_holds_the_same),
		cmocka_unit_test(times_of_any_year_come_back),
		cmocka_unit_test(deep_trees_are_walked_to_their_end),
		cmocka_unit_test(what_changed_shortly_before_the_start_is_read_again),
		cmocka_unit_test(a_change_shows_even_when_size_and_time_are_as_before),
		cmocka_unit_test(new_names_and_removed_ones_leave_the_others_alone),
		cmocka_unit_test(force_reads_everything_and_stores_nothing_twice),
		cmocka_unit_test(the_parent_is_the_newest_of_the_same_host_and_paths),
		cmocka_unit_test(blocks_of_packs_that_do_not_count_are_stored_again),
		cmocka_unit_test(only_the_files_whose_blocks_do_not_count_are_read),
		cmocka_unit_test(files_of_many_blocks_have_them_in_lists),
		cmocka_unit_test(lists_that_are_taken_over_are_put_into_a_second_pack_again),
		cmocka_unit_test(files_of_every_size_are_cut_where_their_bytes_say),
		cmocka_unit_test(the_same_data_is_stored_once_wherever_it_is),
		cmocka_unit_test(patterns_leave_names_out_with_all_below),
		cmocka_unit_test(given_paths_are_merged_and_have_their_folders_above_them),
		cmocka_unit_test(bad_options_are_refused_by_name),
		cmocka_unit_test(a_snapshot_says_what_it_is_of),
		cmocka_unit_test(what_is_done_adds_up_to_the_whole),
		cmocka_unit_test(a_socket_is_reported_and_left_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
