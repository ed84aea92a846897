/* SPDX-License-Identifier: Apache-2.0 */
/* Archives as files: what is written is read back, and nothing damaged is taken for whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>

#include "support/crashfs.h"
#include "wal/archive_zst.h"
#include "wal/format.h"

struct place {
	struct crashfs *fs;
	struct sl_env env;
	uint8_t *bytes; /* of the segment /s */
	int fd;
};

static void place_init(struct place *p, size_t n)
{
	p->fs = crashfs_new();
	crashfs_record(p->fs, false);
	struct sl_env in = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = p->fs};
	assert_int_equal(sl__env_init(&p->env, &in, NULL), 0);
	p->bytes = malloc(n + WAL_HEADER_BYTES);
	assert_non_null(p->bytes);
	for (size_t i = 0; i < n; i++)
		p->bytes[i] = (uint8_t)(i * i >> 3 & 0x0F);
	sl__wal_header_encode(p->bytes, (struct wal_header){.version = 1, .incarnation = 0xabcdef});
	crashfs_put(p->fs, "/s", p->bytes, n);
	p->fd = crashfs_io.open("/s", O_RDWR, 0, p->fs);
	assert_true(p->fd >= 0);
}

static void place_fini(struct place *p)
{
	crashfs_io.close(p->fd, p->fs);
	assert_int_equal(crashfs_open_files(p->fs), 0);
	crashfs_free(p->fs);
	free(p->bytes);
}

static void archive(struct place *p, size_t n)
{
	int fd = -1;
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(sl__wal_zst_write(&(struct wal_zst_source){&p->env, p->fd, n}, "/z", 3, &fd, &err), 0);
	crashfs_io.close(fd, p->fs);
}

/* Strictly: a damaged archive is SL_ECORRUPT. */
static int load(struct place *p, const char *path, uint8_t **data, size_t *n)
{
	struct sl_err err = SL_ERR_INIT;
	struct wal_zst_content c;
	int rc = sl__wal_zst_load(&p->env, path, &c, &err);
	if (rc != 0) {
		assert_non_null(strstr(err.msg, path));
		return rc;
	}
	if (c.n_damage > 0) {
		assert_true(strlen(c.damage[0].reason) > 0);
		sl__wal_zst_content_free(&c, &p->env);
		return SL_ECORRUPT;
	}
	*data = c.data;
	*n = c.size;
	return 0;
}

static void what_is_written_is_read_back(void **state)
{
	(void)state;
	/* Around the pieces in which files are read and written. */
	static const size_t sizes[] = {16, 17, 1000, 262143, 262144, 262145, 524288, 3000000};
	for (size_t i = 0; i < SL_COUNT(sizes); i++) {
		struct place p;
		uint8_t *data;
		size_t n;
		place_init(&p, sizes[i]);
		archive(&p, sizes[i]);
		assert_int_equal(load(&p, "/z", &data, &n), 0);
		assert_int_equal(n, sizes[i]);
		assert_memory_equal(data, p.bytes, n);
		sl__free(&p.env, data);
		place_fini(&p);
	}
}

static void every_cut_is_noticed(void **state)
{
	(void)state;
	struct place p;
	uint8_t *data;
	size_t n, zn;
	place_init(&p, 1000);
	archive(&p, 1000);
	uint8_t z[1200];
	const void *live = crashfs_get(p.fs, "/z", &zn);
	assert_true(zn <= sizeof(z));
	memcpy(z, live, zn);
	for (size_t cut = 0; cut < zn; cut++) {
		crashfs_put(p.fs, "/cut", z, cut);
		assert_int_equal(load(&p, "/cut", &data, &n), SL_ECORRUPT);
	}
	place_fini(&p);
}

static void no_flipped_bit_changes_what_is_read(void **state)
{
	(void)state;
	struct place p;
	size_t zn;
	place_init(&p, 300);
	archive(&p, 300);
	uint8_t z[500];
	const void *live = crashfs_get(p.fs, "/z", &zn);
	assert_true(zn <= sizeof(z));
	memcpy(z, live, zn);
	for (size_t bit = 0; bit < zn * 8; bit++) {
		uint8_t *data;
		size_t n;
		z[bit / 8] ^= (uint8_t)(1U << bit % 8);
		crashfs_put(p.fs, "/flip", z, zn);
		z[bit / 8] ^= (uint8_t)(1U << bit % 8);
		if (load(&p, "/flip", &data, &n) != 0)
			continue;
		assert_int_equal(n, 300);
		assert_memory_equal(data, p.bytes, n);
		sl__free(&p.env, data);
	}
	place_fini(&p);
}

static void several_frames_are_one_content(void **state)
{
	(void)state;
	struct place p;
	uint8_t *data, z[2400];
	size_t n, zn;
	place_init(&p, 1000);
	archive(&p, 1000);
	const void *live = crashfs_get(p.fs, "/z", &zn);
	assert_true(zn * 2 <= sizeof(z));
	memcpy(z, live, zn);
	memcpy(z + zn, z, zn);
	crashfs_put(p.fs, "/two", z, zn * 2);
	assert_int_equal(load(&p, "/two", &data, &n), 0);
	assert_int_equal(n, 2000);
	assert_memory_equal(data + 1000, p.bytes, 1000);
	sl__free(&p.env, data);
	crashfs_put(p.fs, "/junk", z, zn + 3);
	assert_int_equal(load(&p, "/junk", &data, &n), SL_ECORRUPT);
	place_fini(&p);
}

static enum wal_zst_match compare(struct place *p, const char *path, uint64_t n)
{
	enum wal_zst_match match;
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(sl__wal_zst_compare(&(struct wal_zst_source){&p->env, p->fd, n}, path, &match, &err), 0);
	return match;
}

static void an_archive_holds_a_segment_only_with_all_its_bytes(void **state)
{
	(void)state;
	struct place p;
	place_init(&p, 300000);
	archive(&p, 290000);
	assert_int_equal(compare(&p, "/z", 290000), WAL_ZST_HOLDS);
	assert_int_equal(compare(&p, "/z", 280000), WAL_ZST_HOLDS);
	assert_int_equal(compare(&p, "/z", 290001), WAL_ZST_DIFFERS);
	uint8_t other = (uint8_t)(p.bytes[289999] ^ 1);
	assert_int_equal(crashfs_io.pwrite(p.fd, &other, 1, 289999, p.fs), 1);
	assert_int_equal(compare(&p, "/z", 290000), WAL_ZST_DIFFERS);
	uint8_t header[WAL_HEADER_BYTES];
	sl__wal_header_encode(header, (struct wal_header){.version = 1, .incarnation = 0xabcde0});
	assert_int_equal(crashfs_io.pwrite(p.fd, header, sizeof(header), 0, p.fs), sizeof(header));
	assert_int_equal(compare(&p, "/z", 290000), WAL_ZST_STRANGER);
	crashfs_put(p.fs, "/text", "no archive", 10);
	assert_int_equal(compare(&p, "/text", 290000), WAL_ZST_STRANGER);
	crashfs_mkdir(p.fs, "/folder");
	assert_int_equal(compare(&p, "/folder", 290000), WAL_ZST_STRANGER);
	enum wal_zst_match match;
	assert_int_equal(sl__wal_zst_compare(&(struct wal_zst_source){&p.env, p.fd, 16}, "/none", &match, NULL),
			 SL_ENOENT);
	place_fini(&p);
}

static void archives_are_known_by_their_names(void **state)
{
	(void)state;
	static const char *const yes[] = {"a.wal.zst",
					  "a.wal.17.zst",
					  "a.wal.abcdef.zst",
					  "a.wal.17.00ff00.zst",
					  "a.wal-2.zst",
					  "a.wal.17-3.zst",
					  "a.b.wal.9.abcdef-12.zst",
					  "a.wal.123456.zst",
					  "a.wal.123456.123456-2.zst"};
	static const char *const no[] = {"a.wal",         "a.wal.17",
					 "a.zst",         ".wal.zst",
					 "a.wal.zst.bak", "a.wal.abcde.zst",
					 "a.wal-.zst",    "a.wal.17.18.19.zst",
					 ".a.wal.zst",    "a.wal.ABCDEF.zst",
					 "a.wal.zst.zst", "a.wal.damaged-9.zst",
					 "a/b.wal.zst",   "a.wal.17.abcdef-x.zst",
					 "a.wal.17.zst ", ""};
	size_t id_len;
	for (size_t i = 0; i < SL_COUNT(yes); i++) {
		assert_true(sl__wal_archive_name(yes[i], &id_len));
		assert_int_equal(id_len, strstr(yes[i], ".wal") - yes[i]);
	}
	for (size_t i = 0; i < SL_COUNT(no); i++)
		assert_false(sl__wal_archive_name(no[i], &id_len));
	const char *id_at;
	assert_true(sl__wal_archive_temp_name(".a.wal.17.zst.tmp-00ff", &id_at, &id_len));
	assert_int_equal(id_len, 1);
	assert_int_equal(*id_at, 'a');
	assert_false(sl__wal_archive_temp_name(".a.wal.17.zst.tmp-", &id_at, &id_len));
	assert_false(sl__wal_archive_temp_name(".a.wal.17.zst.tmp-xyz", &id_at, &id_len));
	assert_false(sl__wal_archive_temp_name("a.wal.17.zst.tmp-00", &id_at, &id_len));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_read_back),
		cmocka_unit_test(every_cut_is_noticed),
		cmocka_unit_test(no_flipped_bit_changes_what_is_read),
		cmocka_unit_test(several_frames_are_one_content),
		cmocka_unit_test(an_archive_holds_a_segment_only_with_all_its_bytes),
		cmocka_unit_test(archives_are_known_by_their_names),
	};
	return cmocka_run_group_tests_name("zst", tests, NULL, NULL);
}
