/* SPDX-License-Identifier: Apache-2.0 */
/* Entries as bytes and back, what is refused, and manifests as streams of blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backup/create_kit.h"
#include "backup/manifest/manifest.h"

static struct sl_env env;

static uint64_t next(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

/* ---- one entry ---- */

struct made {
	char path[300], target[300], names[5][20];
	uint8_t values[5][100];
	struct bk_xattr xattrs[5];
	struct bk_extent extents[4];
	struct bk_ref refs[40];
	struct bk_entry e;
};

static void make_contents(struct made *m, uint64_t *x)
{
	struct bk_entry *e = &m->e;
	uint64_t total = 0, end = 0;
	e->n_refs = next(x) % 40;
	for (size_t i = 0; i < e->n_refs; i++) {
		ck_fill(m->refs[i].id.b, BK_ID_BYTES, next(x), 0);
		m->refs[i].len = 8 + (uint32_t)(next(x) % (BK_CHUNK_MAX - 8));
		total += m->refs[i].len;
	}
	e->refs = m->refs;
	e->size = total;
	e->flags = (uint8_t)(next(x) & (BK_ENTRY_CHANGED | BK_ENTRY_SQLITE | BK_ENTRY_FRESH));
	if (next(x) % 3 == 0 && (total >= 8 || total == 0)) {
		e->flags |= BK_ENTRY_SPARSE;
		e->extents = m->extents;
		e->n_extents = total == 0 ? 0 : 1 + next(x) % 4;
		for (size_t i = 0; i < e->n_extents; i++) {
			uint64_t len = i + 1 < e->n_extents ? 1 + total / 10 : total;
			m->extents[i] = (struct bk_extent){end + next(x) % 100000, len};
			end = m->extents[i].offset + len;
			total -= len;
		}
		e->size = end + next(x) % 1000;
	}
}

static void make_entry(struct made *m, uint64_t number, uint64_t *x)
{
	memset(m, 0, sizeof(*m));
	struct bk_entry *e = &m->e;
	e->type = (enum sl_backup_type)(1 + next(x) % 7);
	e->path_len = (size_t)snprintf(
		m->path, sizeof(m->path), "dir/%08llx%.*s", (unsigned long long)number, (int)(next(x) % 100),
		"/a/long/way/down/\xff\xfe/and/further/and/further/and/further/and/further/and/x");
	while (m->path[e->path_len - 1] == '/')
		m->path[--e->path_len] = '\0';
	e->path = m->path;
	e->mode = (uint32_t)next(x) & 07777;
	e->uid = (uint32_t)next(x);
	e->gid = (uint32_t)(next(x) % 100);
	e->mtime = (struct timespec){(int64_t)next(x), (long)(next(x) % BK_SECOND_NS)};
	e->ctime = (struct timespec){-(int64_t)(next(x) % 1000), (long)(next(x) % 3 == 0 ? BK_SECOND_NS - 1 : 0)};
	e->dev = next(x);
	e->ino = next(x) >> (next(x) % 64);
	e->nlink = next(x) % 3;
	if (e->type == SL_BACKUP_CHAR || e->type == SL_BACKUP_BLOCK)
		e->rdev = next(x);
	if (e->type == SL_BACKUP_SYMLINK || e->type == SL_BACKUP_HARDLINK) {
		e->target_len = (size_t)snprintf(m->target, sizeof(m->target), "dir/0%0*d", 1 + (int)(next(x) % 50), 0);
		e->target = m->target;
		if (e->type == SL_BACKUP_HARDLINK && number < 16)
			e->type = SL_BACKUP_SYMLINK;
	}
	e->n_xattrs = next(x) % 4 == 0 ? next(x) % 6 : 0;
	for (size_t i = 0; i < e->n_xattrs; i++) {
		(void)snprintf(m->names[i], sizeof(m->names[i]), "user.%zu", i);
		m->xattrs[i] = (struct bk_xattr){m->names[i], m->values[i], (uint32_t)(next(x) % 100)};
		ck_fill(m->values[i], 100, next(x), 0);
	}
	e->xattrs = m->xattrs;
	if (e->type == SL_BACKUP_FILE)
		make_contents(m, x);
}

static void expect_same(const struct bk_entry *a, const struct bk_entry *b)
{
	assert_int_equal(a->type, b->type);
	assert_int_equal(a->flags, b->flags);
	assert_int_equal(a->path_len, b->path_len);
	assert_string_equal(a->path, b->path);
	assert_true(a->mode == b->mode && a->uid == b->uid && a->gid == b->gid);
	assert_true(sl__bk_same_time(a->mtime, b->mtime) && sl__bk_same_time(a->ctime, b->ctime));
	assert_true(a->dev == b->dev && a->ino == b->ino && a->nlink == b->nlink);
	assert_true(a->size == b->size && a->rdev == b->rdev);
	assert_int_equal(a->target_len, b->target_len);
	assert_true(a->target_len == 0 || strcmp(a->target, b->target) == 0);
	assert_int_equal(a->n_xattrs, b->n_xattrs);
	for (size_t i = 0; i < a->n_xattrs; i++) {
		assert_string_equal(a->xattrs[i].name, b->xattrs[i].name);
		assert_int_equal(a->xattrs[i].len, b->xattrs[i].len);
		assert_memory_equal(a->xattrs[i].value, b->xattrs[i].value, a->xattrs[i].len);
	}
	assert_int_equal(a->n_extents, b->n_extents);
	assert_true(a->n_extents == 0 || memcmp(a->extents, b->extents, a->n_extents * sizeof(*a->extents)) == 0);
	assert_int_equal(a->n_refs, b->n_refs);
	for (size_t i = 0; i < a->n_refs; i++)
		assert_true(memcmp(&a->refs[i].id, &b->refs[i].id, BK_ID_BYTES) == 0 &&
			    a->refs[i].len == b->refs[i].len);
}

static void entries_come_back_as_they_went(void **state)
{
	(void)state;
	struct sl__buf buf;
	struct bk_entry_scratch *scratch;
	struct bk_entry e;
	size_t used;
	uint64_t x = 42;
	sl__buf_init(&buf, &env);
	assert_int_equal(sl__bk_entry_scratch_new(&scratch, &env), 0);
	static struct made a, b;
	make_entry(&a, 0, &x);
	for (uint64_t i = 1; i < 20000; i++) {
		make_entry(&b, i, &x);
		sl__buf_clear(&buf);
		if (sl__bk_entry_encode(&buf, &b.e, i % 2 ? a.path : "", i % 2 ? a.e.path_len : 0, NULL) != 0)
			fail_msg("%s: %s", b.path, sl__bk_entry_wrong(&b.e));
		assert_int_equal(sl__bk_entry_decode(
					 scratch, &(struct bk_entry_bytes){{buf.data, buf.len}, {a.path, a.e.path_len}},
					 &e, &used, NULL),
				 0);
		assert_int_equal(used, buf.len);
		expect_same(&b.e, &e);
		memcpy(a.path, b.path, sizeof(a.path));
		a.e.path_len = b.e.path_len;
	}
	sl__bk_entry_scratch_free(scratch);
	sl__buf_fini(&buf);
}

/* The example of docs/formats/backup.md. */
static void an_entry_has_the_bytes_that_the_format_says(void **state)
{
	(void)state;
	static const uint8_t expected[27] = {0x17, 0, 0, 0, 1, 0, 0, 5, 'e', 'm', 'p', 't', 'y'};
	struct bk_entry e = {.type = SL_BACKUP_FILE, .path = "empty", .path_len = 5};
	struct sl__buf buf;
	sl__buf_init(&buf, &env);
	assert_int_equal(sl__bk_entry_encode(&buf, &e, "", 0, NULL), 0);
	assert_int_equal(buf.len, sizeof(expected));
	assert_memory_equal(buf.data, expected, sizeof(expected));
	sl__buf_fini(&buf);
}

/* What is cut off asks for more; a changed byte is refused or is another entry that holds to the rules. */
static void bytes_that_are_no_entry_are_refused(void **state)
{
	(void)state;
	struct sl__buf buf;
	struct bk_entry_scratch *scratch;
	struct bk_entry e;
	size_t used, refused = 0, taken = 0;
	uint64_t x = 7;
	sl__buf_init(&buf, &env);
	assert_int_equal(sl__bk_entry_scratch_new(&scratch, &env), 0);
	static struct made m;
	for (uint64_t i = 0; i < 200; i++) {
		make_entry(&m, i + 100, &x);
		sl__buf_clear(&buf);
		assert_int_equal(sl__bk_entry_encode(&buf, &m.e, "", 0, NULL), 0);
		for (size_t n = 0; n < buf.len; n++) {
			assert_int_equal(sl__bk_entry_decode(scratch, &(struct bk_entry_bytes){{buf.data, n}, {"", 0}},
							     &e, &used, NULL),
					 SL_EAGAIN);
			assert_true(used == (n < 4 ? 4 : buf.len));
		}
		for (size_t n = 4; n < SL_MIN(buf.len, (size_t)400); n++) {
			uint8_t was = (uint8_t)buf.data[n];
			buf.data[n] = (char)(was ^ (1u << (next(&x) % 8)));
			struct sl_err err = SL_ERR_INIT;
			int rc = sl__bk_entry_decode(scratch, &(struct bk_entry_bytes){{buf.data, buf.len}, {"", 0}},
						     &e, &used, &err);
			assert_true(rc == 0 || (rc == SL_ECORRUPT && err.msg[0] != '\0'));
			assert_true(rc != 0 || sl__bk_entry_wrong(&e) == NULL);
			refused += rc != 0;
			taken += rc == 0;
			buf.data[n] = (char)was;
		}
	}
	print_message("# %zu refused, %zu other entries\n", refused, taken);
	sl__bk_entry_scratch_free(scratch);
	sl__buf_fini(&buf);
}

static const struct bk_ref one_byte = {.len = 1};

static struct bk_entry file(const char *path)
{
	return (struct bk_entry){.type = SL_BACKUP_FILE,
				 .path = path,
				 .path_len = strlen(path),
				 .size = 1,
				 .refs = &one_byte,
				 .n_refs = 1};
}

static void entries_that_break_a_rule_are_not_written(void **state)
{
	(void)state;
	static const char *const paths[] = {"", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", "a/../b", "/"};
	for (size_t i = 0; i < SL_COUNT(paths); i++) {
		struct bk_entry e = file(paths[i]);
		if (sl__bk_entry_wrong(&e) == NULL)
			fail_msg("'%s' is taken", paths[i]);
	}
	static const char *const good[] = {"a", "...", "a/...", ".a", "a..", "\xff", "a b/\n"};
	for (size_t i = 0; i < SL_COUNT(good); i++) {
		struct bk_entry e = file(good[i]);
		assert_null(sl__bk_entry_wrong(&e));
	}
	struct bk_extent past = {5, 10}, none = {0, 0}, two[] = {{0, 1}, {0, 1}};
	struct bk_xattr order[] = {{"b", NULL, 0}, {"a", NULL, 0}};
	struct bk_ref big = {.len = BK_CHUNK_MAX + 1}, list = {.len = 37};
#define WRONG(...)                                                                                                     \
	do {                                                                                                           \
		struct bk_entry e = file("x");                                                                         \
		__VA_ARGS__;                                                                                           \
		assert_non_null(sl__bk_entry_wrong(&e));                                                               \
	} while (0)
	WRONG(e.type = (enum sl_backup_type)0);
	WRONG(e.type = (enum sl_backup_type)8);
	WRONG(e.flags = 32);
	WRONG(e.mode = 010000);
	WRONG(e.size = 2);
	WRONG(e.refs = &big; e.size = big.len);
	WRONG(e.rdev = 1);
	WRONG(e.target = "y"; e.target_len = 1);
	WRONG(e.extents = &none; e.n_extents = 1);
	WRONG(e.flags = BK_ENTRY_SPARSE; e.size = 12; e.extents = &past; e.n_extents = 1);
	WRONG(e.flags = BK_ENTRY_SPARSE; e.size = 12; e.extents = two; e.n_extents = 2);
	WRONG(e.flags = BK_ENTRY_LISTS; e.refs = &list);
	WRONG(e.flags = BK_ENTRY_LISTS; e.n_refs = 0);
	WRONG(e.xattrs = order; e.n_xattrs = 2);
	WRONG(e.type = SL_BACKUP_DIR);
	WRONG(e.type = SL_BACKUP_SYMLINK; e.size = e.n_refs = 0);
	WRONG(e.type = SL_BACKUP_HARDLINK; e.size = e.n_refs = 0; e.target = "x"; e.target_len = 1);
	WRONG(e.type = SL_BACKUP_HARDLINK; e.size = e.n_refs = 0; e.target = "../a"; e.target_len = 4);
#undef WRONG
}

/* ---- order ---- */

static void a_folder_is_followed_by_what_is_in_it(void **state)
{
	(void)state;
	static const char *const sorted[] = {"\x01",  "a",   "a/b", "a/b/c", "a/b-c", "a/\xff",
					     "a\x01", "a-b", "a.b", "ab",    "b",     "\xff"};
	for (size_t i = 0; i < SL_COUNT(sorted); i++)
		for (size_t j = 0; j < SL_COUNT(sorted); j++) {
			int order = sl__bk_path_compare(sorted[i], strlen(sorted[i]), sorted[j], strlen(sorted[j]));
			assert_int_equal((order > 0) - (order < 0), (i > j) - (i < j));
		}
}

/* ---- streams of blocks ---- */

static struct bk_ref *write_manifest(struct ck *k, size_t entries, size_t skip, size_t *n)
{
	struct bk_index *index;
	struct bk_store *store;
	struct bk_manifest_writer *w;
	struct bk_ref *refs;
	assert_int_equal(sl__bk_index_for_reading(k->b, &index, NULL), 0);
	assert_int_equal(sl__bk_store_new(&store, k->b, index, 1, NULL), 0);
	assert_int_equal(sl__bk_manifest_writer_new(&w, k->b, store, 0, NULL), 0);
	for (size_t i = 0; i < entries; i++) {
		char path[64];
		if (i == skip)
			continue;
		(void)snprintf(path, sizeof(path), i % 100 == 0 ? "folder%06zu" : "folder%06zu/file%06zu", i / 100, i);
		struct bk_ref ref = {.len = 1};
		ck_fill(ref.id.b, sizeof(ref.id.b), i, 0);
		struct bk_entry e = file(path);
		e.refs = &ref;
		if (i % 100 == 0) {
			e.type = SL_BACKUP_DIR;
			e.size = e.n_refs = 0;
		}
		assert_int_equal(sl__bk_manifest_add(w, &e, NULL), 0);
	}
	assert_int_equal(sl__bk_manifest_finish(w, &refs, n, NULL), 0);
	assert_int_equal(sl__bk_store_finish(store, NULL), 0);
	sl__bk_manifest_writer_free(w);
	sl__bk_store_free(store);
	sl__bk_index_free(index);
	return refs;
}

static void a_manifest_is_cut_where_paths_say_and_read_block_by_block(void **state)
{
	(void)state;
	struct ck k;
	enum { ENTRIES = 30000 };
	size_t n, m, same = 0;
	ck_begin(&k, NULL);
	struct bk_ref *refs = write_manifest(&k, ENTRIES, SIZE_MAX, &n);
	assert_true(n > 5);
	struct bk_index *index;
	struct bk_reader *reader;
	struct bk_manifest_reader *r;
	struct bk_entry e;
	struct bk_snapshot s = {.manifest = refs, .n_manifest = n, .info = {.id = "test"}};
	assert_int_equal(sl__bk_index_for_reading(k.b, &index, NULL), 0);
	assert_int_equal(sl__bk_reader_new(&reader, k.b, index, NULL), 0);
	assert_int_equal(sl__bk_manifest_reader_new(&r, k.b, &s, reader, NULL), 0);
	size_t count = 0;
	while (sl__bk_manifest_next(r, &e, NULL) == 1)
		count++;
	assert_int_equal(count, ENTRIES);
	sl__bk_manifest_reader_free(r);
	/* Blocks in another order are not a manifest. */
	struct bk_ref swap = refs[1];
	refs[1] = refs[2];
	refs[2] = swap;
	assert_int_equal(sl__bk_manifest_reader_new(&r, k.b, &s, reader, NULL), 0);
	int rc;
	while ((rc = sl__bk_manifest_next(r, &e, &k.err)) == 1)
		;
	assert_int_equal(rc, SL_ECORRUPT);
	assert_non_null(strstr(k.err.msg, "snapshot test"));
	sl__bk_manifest_reader_free(r);
	refs[2] = refs[1];
	refs[1] = swap;
	sl__bk_reader_free(reader);
	sl__bk_index_free(index);
	/* Without one entry, only the block that it was in is another. */
	struct bk_ref *others = write_manifest(&k, ENTRIES, 15050, &m);
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < m; j++)
			same += memcmp(&refs[i].id, &others[j].id, sizeof(refs[i].id)) == 0;
	assert_true(same + 2 >= n);
	print_message("# %zu blocks, %zu of them with and without an entry\n", n, same);
	sl__free(&env, refs);
	sl__free(&env, others);
	ck_end(&k);
}

static void an_entry_outside_of_a_folder_is_refused(void **state)
{
	(void)state;
	struct ck k;
	struct bk_index *index;
	struct bk_store *store;
	struct bk_manifest_writer *w;
	struct bk_ref *refs;
	struct bk_reader *reader;
	struct bk_manifest_reader *r;
	struct bk_entry e;
	size_t n;
	static const char *const pairs[][2] = {{"a", "a/b"}, {"a", "b/c"}, {"a/b", "a/c"}};
	ck_begin(&k, NULL);
	for (size_t i = 0; i < SL_COUNT(pairs); i++) {
		assert_int_equal(sl__bk_index_for_reading(k.b, &index, NULL), 0);
		assert_int_equal(sl__bk_store_new(&store, k.b, index, 1, NULL), 0);
		assert_int_equal(sl__bk_manifest_writer_new(&w, k.b, store, 0, NULL), 0);
		for (int j = 0; j < 2; j++) {
			e = file(pairs[i][j]); /* "a" is a file, and nothing lies in a file */
			assert_int_equal(sl__bk_manifest_add(w, &e, NULL), 0);
		}
		assert_int_equal(sl__bk_manifest_finish(w, &refs, &n, NULL), 0);
		assert_int_equal(sl__bk_store_finish(store, NULL), 0);
		sl__bk_manifest_writer_free(w);
		sl__bk_store_free(store);
		sl__bk_index_free(index);
		struct bk_snapshot s = {.manifest = refs, .n_manifest = n, .info = {.id = "test"}};
		assert_int_equal(sl__bk_index_for_reading(k.b, &index, NULL), 0);
		assert_int_equal(sl__bk_reader_new(&reader, k.b, index, NULL), 0);
		assert_int_equal(sl__bk_manifest_reader_new(&r, k.b, &s, reader, NULL), 0);
		int rc;
		while ((rc = sl__bk_manifest_next(r, &e, NULL)) == 1)
			;
		assert_int_equal(rc, SL_ECORRUPT);
		sl__bk_manifest_reader_free(r);
		sl__bk_reader_free(reader);
		sl__bk_index_free(index);
		sl__free(&env, refs);
	}
	ck_end(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(entries_come_back_as_they_went),
		cmocka_unit_test(an_entry_has_the_bytes_that_the_format_says),
		cmocka_unit_test(bytes_that_are_no_entry_are_refused),
		cmocka_unit_test(entries_that_break_a_rule_are_not_written),
		cmocka_unit_test(a_folder_is_followed_by_what_is_in_it),
		cmocka_unit_test(a_manifest_is_cut_where_paths_say_and_read_block_by_block),
		cmocka_unit_test(an_entry_outside_of_a_folder_is_refused),
	};
	if (sl__env_init(&env, NULL, NULL) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
