/* SPDX-License-Identifier: Apache-2.0 */
/* Encryption at rest: the right key, a wrong one, none, and bytes that were tampered with. */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "box.h"
#include <sluice/wal_files.h>

static void put_key(struct box *b, const char *path, uint8_t byte)
{
	uint8_t key[32];
	memset(key, byte, sizeof(key));
	crashfs_put(b->fs, path, key, sizeof(key));
}

static void an_encrypted_log_opens_with_its_key_only(void **state)
{
	(void)state;
	struct box b;
	sl_wal *w;
	box_init(&b);
	put_key(&b, "/key", 1);
	put_key(&b, "/other", 2);
	b.opts.key_file = "/key";
	w = box_open(&b);
	assert_int_equal(box_stats(w).format_version, 2);
	(void)box_append(w, "a secret payload");
	box_close(&b, w);
	size_t n;
	const uint8_t *p = box_bytes(&b, BOX_PATH, &n);
	assert_null(memmem(p, n, "secret", 6));
	assert_int_equal(p[8], 2);
	assert_scan(&b, BOX_PATH, "1=a secret payload");
	b.opts.key_file = "/other";
	assert_int_equal(box_try_open(&b, &w), SL_EKEY);
	b.opts.key_file = NULL;
	assert_int_equal(box_try_open(&b, &w), SL_EKEY);
	b.opts.key_file = "/missing";
	assert_true(box_try_open(&b, &w) < 0);
	b.opts.key_file = "/key";
	w = box_open(&b);
	struct sl_wal_record r;
	assert_int_equal(sl_wal_read(w, 1, &r, &b.err), 0);
	assert_memory_equal(r.payload, "a secret payload", 16);
	sl_wal_record_free(w, &r);
	box_close(&b, w);
	box_fini(&b);
}

static void a_key_is_kept_next_to_a_log_and_opens_with_that_only(void **state)
{
	(void)state;
	struct box b;
	sl_wal *w;
	const uint8_t key[SL_WAL_KEY_BYTES] = {1, 2, 3};
	uint8_t sealed[SL_WAL_SEALED_KEY_BYTES], again[SL_WAL_SEALED_KEY_BYTES], out[SL_WAL_KEY_BYTES];
	box_init(&b);
	put_key(&b, "/key", 1);
	put_key(&b, "/other", 2);
	w = box_open(&b);
	assert_int_equal(sl_wal_seal_key(w, key, sealed, &b.err), SL_ENOENT);
	assert_int_equal(sl_wal_open_key(w, sealed, out, &b.err), SL_ENOENT);
	box_close(&b, w);
	b.opts.key_file = "/key";
	w = box_open(&b);
	assert_int_equal(sl_wal_seal_key(w, key, sealed, &b.err), 0);
	assert_int_equal(sl_wal_seal_key(w, key, again, &b.err), 0);
	assert_memory_not_equal(sealed, again, sizeof(sealed));
	assert_null(memmem(sealed, sizeof(sealed), key, 8));
	assert_int_equal(sl_wal_open_key(w, sealed, out, &b.err), 0);
	assert_memory_equal(out, key, sizeof(key));
	/* A forked child has the log, but not its key. */
	pid_t pid = fork();
	if (pid == 0)
		_exit(sl_wal_open_key(w, sealed, out, NULL) == SL_EKEY ? 0 : 1);
	int status = 1;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	sealed[40] ^= 1;
	assert_int_equal(sl_wal_open_key(w, sealed, out, &b.err), SL_EKEY);
	sealed[40] ^= 1;
	box_close(&b, w);
	assert_int_equal(sl_wal_open(&w, "another", &b.opts, &b.err), 0);
	assert_int_equal(sl_wal_open_key(w, sealed, out, &b.err), SL_EKEY);
	box_close(&b, w);
	b.opts.key_file = "/other";
	assert_int_equal(sl_wal_open(&w, "other", &b.opts, &b.err), 0);
	assert_int_equal(sl_wal_open_key(w, sealed, out, &b.err), SL_EKEY);
	box_close(&b, w);
	box_fini(&b);
}

/* With a right CRC, so that only the cipher can notice. */
static void a_tampered_payload_is_noticed(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	put_key(&b, "/key", 1);
	b.opts.key_file = "/key";
	sl_wal *w = box_open(&b);
	(void)box_append(w, "first");
	(void)box_append(w, "other");
	box_close(&b, w);
	size_t n;
	uint8_t copy[256];
	const uint8_t *stored = box_bytes(&b, BOX_PATH, &n);
	memcpy(copy, stored, n);
	size_t total = 32 + 40 + 5;
	copy[16 + 24 + 30] ^= 1;
	uint64_t crc = box_crc64(copy + 20, total - 12);
	memcpy(copy + 16 + total - 8, &crc, 8);
	crashfs_put(b.fs, BOX_PATH, copy, n);
	const char *seen = box_scan(&b, BOX_PATH);
	assert_null(strstr(seen, "1=first"));
	struct sl_wal_record r;
	if (box_try_open(&b, &w) == 0) {
		assert_true(sl_wal_read(w, 1, &r, &b.err) < 0);
		box_close(&b, w);
	} else {
		assert_true(b.err.code == SL_EKEY || b.err.code == SL_ECORRUPT);
	}
	box_fini(&b);
}

static void a_key_file_that_others_can_read_or_of_a_wrong_size_is_refused(void **state)
{
	(void)state;
	struct box b;
	sl_wal *w;
	box_init(&b);
	crashfs_put(b.fs, "/key", "too short", 9);
	b.opts.key_file = "/key";
	assert_int_equal(box_try_open(&b, &w), SL_EKEY);
	assert_null(strstr(b.err.msg, "too short"));
	int fd = crashfs_io.open("/open", O_CREAT | O_RDWR, 0644, b.fs);
	uint8_t key[32] = {1};
	assert_int_equal(crashfs_io.pwrite(fd, key, 32, 0, b.fs), 32);
	assert_int_equal(crashfs_io.close(fd, b.fs), 0);
	b.opts.key_file = "/open";
	assert_int_equal(box_try_open(&b, &w), SL_EKEY);
	box_fini(&b);
}

static void a_hexadecimal_key_is_the_same_key(void **state)
{
	(void)state;
	struct box b;
	char hex[65];
	box_init(&b);
	put_key(&b, "/raw", 0xAB);
	for (size_t i = 0; i < 32; i++)
		memcpy(hex + 2 * i, i % 2 == 0 ? "ab" : "AB", 2);
	hex[64] = '\n';
	crashfs_put(b.fs, "/hex", hex, 65);
	b.opts.key_file = "/raw";
	sl_wal *w = box_open(&b);
	(void)box_append(w, "x");
	box_close(&b, w);
	b.opts.key_file = "/hex";
	assert_scan(&b, BOX_PATH, "1=x");
	box_close(&b, box_open(&b));
	box_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_encrypted_log_opens_with_its_key_only),
		cmocka_unit_test(a_key_is_kept_next_to_a_log_and_opens_with_that_only),
		cmocka_unit_test(a_tampered_payload_is_noticed),
		cmocka_unit_test(a_key_file_that_others_can_read_or_of_a_wrong_size_is_refused),
		cmocka_unit_test(a_hexadecimal_key_is_the_same_key),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
