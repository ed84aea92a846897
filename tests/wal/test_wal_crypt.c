/* SPDX-License-Identifier: Apache-2.0 */
/* Sealed payloads: the documented bytes, the place they are bound to, and what a key file must be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "wal/crypt.h"

static const struct wal_seal_ctx place = {"sealed", 0x5a17c3, 1, 1704067200000};

static struct sl_env real_env(void)
{
	struct sl_env env;
	assert_int_equal(sl__env_init(&env, NULL, NULL), 0);
	return env;
}

static void write_key(char path[64], const void *bytes, size_t n, mode_t mode)
{
	(void)snprintf(path, 64, "sluice-key-XXXXXX");
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, n), n);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

/* The code that loading such a file gives; *key when it is 0. */
static int load(const void *bytes, size_t n, mode_t mode, struct wal_key **key)
{
	struct sl_env env = real_env();
	struct sl_err err = SL_ERR_INIT;
	char path[64];
	write_key(path, bytes, n, mode);
	int rc = sl__wal_key_load(key, &env, path, &err);
	if (rc != 0)
		assert_non_null(strstr(err.msg, path));
	unlink(path);
	return rc;
}

static struct wal_key *counting_key(void)
{
	uint8_t raw[32];
	struct wal_key *key = NULL;
	for (uint8_t i = 0; i < 32; i++)
		raw[i] = i;
	assert_int_equal(load(raw, sizeof(raw), 0600, &key), 0);
	return key;
}

static void seal_example(const struct wal_key *key, uint8_t out[52])
{
	uint8_t nonce[WAL_NONCE_BYTES];
	for (uint8_t i = 0; i < WAL_NONCE_BYTES; i++)
		nonce[i] = (uint8_t)(0x40 + i);
	sl__wal_seal_payload(key, &place, nonce, &(struct sl_wal_span){"hello world!", 12}, out);
}

static void a_payload_is_sealed_as_the_format_says(void **state)
{
	(void)state;
	static const uint8_t behind_nonce[] = {0xbc, 0x5c, 0x69, 0x1c, 0xbf, 0xc0, 0x0e, 0x79, 0xfd, 0x98,
					       0xe3, 0x9f, 0xca, 0x20, 0xa9, 0x74, 0x89, 0x2d, 0xe4, 0x0e,
					       0xd9, 0xe2, 0x7c, 0x16, 0xbb, 0xbf, 0x1e, 0xff};
	struct wal_key *key = counting_key();
	uint8_t sealed[52], plain[12];
	seal_example(key, sealed);
	assert_int_equal(sealed[0], 0x40);
	assert_memory_equal(sealed + 24, behind_nonce, sizeof(behind_nonce));
	assert_int_equal(sl__wal_open_payload(key, &place, plain, sealed, sizeof(sealed)), 0);
	assert_memory_equal(plain, "hello world!", 12);
	assert_int_equal(sl__wal_open_payload(key, &place, sealed + 24, sealed, sizeof(sealed)), 0); /* in place */
	assert_memory_equal(sealed + 24, "hello world!", 12);
	sl__wal_key_free(key);
}

static void a_sealed_payload_opens_only_at_its_place(void **state)
{
	(void)state;
	struct wal_key *key = counting_key();
	uint8_t sealed[52], plain[12];
	seal_example(key, sealed);
	struct wal_seal_ctx other[] = {place, place, place, place};
	other[0].stream = "sealer";
	other[1].incarnation++;
	other[2].sequence++;
	other[3].timestamp_ms++;
	for (size_t i = 0; i < SL_COUNT(other); i++)
		assert_int_equal(sl__wal_open_payload(key, &other[i], plain, sealed, sizeof(sealed)), SL_EKEY);
	assert_int_equal(sl__wal_open_payload(key, &place, plain, sealed, sizeof(sealed)), 0);
	sl__wal_key_free(key);
}

static void every_flipped_bit_and_every_cut_is_noticed(void **state)
{
	(void)state;
	struct wal_key *key = counting_key();
	uint8_t sealed[52], plain[12];
	seal_example(key, sealed);
	for (size_t bit = 0; bit < sizeof(sealed) * 8; bit++) {
		sealed[bit / 8] ^= (uint8_t)(1U << bit % 8);
		assert_int_equal(sl__wal_open_payload(key, &place, plain, sealed, sizeof(sealed)), SL_EKEY);
		sealed[bit / 8] ^= (uint8_t)(1U << bit % 8);
	}
	for (size_t n = 0; n < sizeof(sealed); n++)
		assert_int_equal(sl__wal_open_payload(key, &place, plain, sealed, n), SL_EKEY);
	sl__wal_key_free(key);
}

static void an_empty_payload_is_sealed_too(void **state)
{
	(void)state;
	struct wal_key *key = counting_key();
	uint8_t nonce[WAL_NONCE_BYTES] = {0}, sealed[WAL_SEAL_BYTES];
	sl__wal_seal_payload(key, &place, nonce, &(struct sl_wal_span){NULL, 0}, sealed);
	assert_int_equal(sl__wal_open_payload(key, &place, NULL, sealed, sizeof(sealed)), 0);
	sealed[39] ^= 1;
	assert_int_equal(sl__wal_open_payload(key, &place, NULL, sealed, sizeof(sealed)), SL_EKEY);
	sl__wal_key_free(key);
}

static void a_key_may_be_raw_or_hexadecimal(void **state)
{
	(void)state;
	static const char hex[] = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F\r\n";
	uint8_t by_raw[52], by_hex[52];
	struct wal_key *key = counting_key();
	seal_example(key, by_raw);
	sl__wal_key_free(key);
	static const size_t lengths[] = {64, 65, 66}; /* without a newline, with half of one, with both bytes */
	for (size_t i = 0; i < SL_COUNT(lengths); i++) {
		char text[67];
		memcpy(text, hex, sizeof(hex));
		if (lengths[i] == 65)
			text[64] = '\n';
		key = NULL;
		assert_int_equal(load(text, lengths[i], 0600, &key), 0);
		seal_example(key, by_hex);
		assert_memory_equal(by_raw, by_hex, sizeof(by_raw));
		sl__wal_key_free(key);
	}
}

static void a_bad_key_file_is_refused_without_telling_the_key(void **state)
{
	(void)state;
	struct wal_key *key = NULL;
	char many[100];
	memset(many, 'a', sizeof(many));
	static const size_t wrong[] = {0, 1, 31, 33, 63, 65, 66, 67, 100};
	for (size_t i = 0; i < SL_COUNT(wrong); i++)
		assert_int_equal(load(many, wrong[i], 0600, &key), SL_EKEY);
	memset(many, 'g', sizeof(many));
	assert_int_equal(load(many, 64, 0600, &key), SL_EKEY);
	assert_int_equal(load(many, 32, 0640, &key), SL_EKEY);
	assert_int_equal(load(many, 32, 0604, &key), SL_EKEY);
	assert_null(key);
	struct sl_env env = real_env();
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(sl__wal_key_load(&key, &env, ".", &err), SL_EKEY);
	assert_int_equal(sl__wal_key_load(&key, &env, "no-such-sluice-key", &err), SL_EKEY);
	char path[64], link[80];
	write_key(path, many, 32, 0600);
	(void)snprintf(link, sizeof(link), "%s.link", path);
	assert_int_equal(symlink(path, link), 0);
	assert_int_equal(sl__wal_key_load(&key, &env, link, &err), SL_EKEY);
	assert_null(strstr(err.msg, "gggg"));
	unlink(link);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_payload_is_sealed_as_the_format_says),
		cmocka_unit_test(a_sealed_payload_opens_only_at_its_place),
		cmocka_unit_test(every_flipped_bit_and_every_cut_is_noticed),
		cmocka_unit_test(an_empty_payload_is_sealed_too),
		cmocka_unit_test(a_key_may_be_raw_or_hexadecimal),
		cmocka_unit_test(a_bad_key_file_is_refused_without_telling_the_key),
	};
	return cmocka_run_group_tests_name("crypt", tests, NULL, NULL);
}
