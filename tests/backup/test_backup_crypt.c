/* SPDX-License-Identifier: Apache-2.0 */
/* Ids, derived keys and seals. The known answers come of plain Python: hashlib and scripts/wal_seal.py. */
#include <sodium.h>

#include "backup/format_kit.h"
#include "base/sha256.h"
#include "support/fault.h"

static void assert_hex(const void *bytes, size_t n, const char *want)
{
	char hex[512];
	assert_true(2 * n < sizeof(hex));
	sl__bk_hex(bytes, n, hex);
	assert_string_equal(hex, want);
}

static struct bk_id hash_of(const struct bk_keys *keys, const void *bytes, size_t n)
{
	struct sl_env env = kit_env();
	struct bk_hasher *h = NULL;
	struct bk_id id;
	assert_int_equal(sl__bk_hasher_new(&h, &env, keys, NULL), 0);
	assert_int_equal(sl__bk_hash(h, bytes, n, &id, NULL), 0);
	sl__bk_hasher_free(h);
	return id;
}

static void an_id_is_the_sha256_in_a_plain_repository(SL_UNUSED void **state)
{
	struct bk_keys keys = kit_keys(0);
	struct bk_id id = hash_of(&keys, "abc", 3);
	assert_hex(&id, sizeof(id), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	id = hash_of(&keys, NULL, 0);
	assert_hex(&id, sizeof(id), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

static void an_id_is_an_hmac_in_an_encrypted_repository(SL_UNUSED void **state)
{
	/* RFC 4231, case 2: a short key padded with zeros is the same key. */
	struct bk_keys keys = {.encrypted = true, .id = "Jefe"};
	struct bk_id id = hash_of(&keys, "what do ya want for nothing?", 28);
	assert_hex(&id, sizeof(id), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

static void a_hasher_serves_any_number_of_blocks_of_any_length(SL_UNUSED void **state)
{
	struct sl_env env = kit_env();
	uint8_t bytes[1000];
	kit_random(bytes, sizeof(bytes), 3);
	for (int which = 0; which < 2; which++) {
		struct bk_keys keys = kit_keys(which);
		struct bk_hasher *h = NULL;
		assert_int_equal(sl__bk_hasher_new(&h, &env, &keys, NULL), 0);
		for (size_t n = 0; n <= sizeof(bytes); n++) {
			struct bk_id id, want = hash_of(&keys, bytes, n);
			assert_int_equal(sl__bk_hash(h, bytes, n, &id, NULL), 0);
			assert_memory_equal(&id, &want, sizeof(id));
		}
		sl__bk_hasher_free(h);
	}
}

static void keys_are_derived_from_the_master_key(SL_UNUSED void **state)
{
	struct bk_keys keys = kit_keys(1);
	assert_hex(keys.data, 32, "1e4652560d8e8adaebdbe8bb5d2b2e7ba0700a695076d9d5d73b89b7592703e3");
	assert_hex(keys.id, 32, "4a0fc49be88244031caf7377f8b113c5657537ea1e6d24389d638309921cba91");
	assert_hex(keys.gear, 32, "41e0c5e3ccbbdf44e66893ff78d8a4d13d016c309dbdb7e1a9fbba8a65c94c40");
	sl__bk_keys_wipe(&keys);
	assert_memory_equal(keys.data, (uint8_t[32]){0}, 32);
	assert_memory_equal(keys.master, (uint8_t[32]){0}, 32);
}

static int count_up(void *buf, size_t n, SL_UNUSED void *ctx)
{
	for (size_t i = 0; i < n; i++)
		((uint8_t *)buf)[i] = (uint8_t)i;
	return 0;
}

static int no_randomness(SL_UNUSED void *buf, SL_UNUSED size_t n, SL_UNUSED void *ctx)
{
	return -5;
}

static void a_seal_has_the_documented_bytes(SL_UNUSED void **state)
{
	static const struct sl_rand counted = {.version = SL_RAND_VERSION, .fill = count_up};
	struct sl_env env = kit_env();
	struct bk_keys plain = kit_keys(0), keys = kit_keys(1);
	uint8_t out[64];
	env.rand = &counted;
	assert_int_equal(
		sl__bk_seal(&(struct bk_seal){&env, &keys, BK_KIND_FRAME, "aad", 3}, "a block of bytes", 16, out, NULL),
		0);
	assert_hex(out, 56,
		   "000102030405060708090a0b0c0d0e0f1011121314151617"
		   "f854d2b9cd7652f9c1c86b0ef3ab524ee1ec6143e3ec9eaf1cbc3ab615d173ee");
	assert_int_equal(sl__bk_seal(&(struct bk_seal){&env, &plain, BK_KIND_FRAME, "aad", 3}, "a block of bytes", 16,
				     out, NULL),
			 0);
	assert_hex(out, 24, "1b4f73d987e0bed36120626c6f636b206f66206279746573");
}

static void what_is_sealed_opens_again_whatever_its_length(SL_UNUSED void **state)
{
	struct sl_env env = kit_env();
	uint8_t bytes[600], sealed[600 + BK_SEAL_MAX];
	kit_random(bytes, sizeof(bytes), 4);
	for (size_t n = 0; n <= 2 * sizeof(bytes) + 1; n++) {
		struct bk_keys keys = kit_keys((int)(n % 2));
		size_t len = n / 2, got = len + sl__bk_seal_bytes(&keys);
		uint8_t *opened, *body = sealed + sl__bk_seal_front(&keys);
		memcpy(body, bytes, len); /* in place */
		assert_int_equal(
			sl__bk_seal(&(struct bk_seal){&env, &keys, BK_KIND_MARK, NULL, 0}, body, len, sealed, NULL), 0);
		assert_int_equal(sl__bk_unseal(&(struct bk_seal){NULL, &keys, BK_KIND_MARK, NULL, 0}, sealed, &got,
					       &opened, NULL),
				 0);
		assert_int_equal(got, len);
		assert_ptr_equal(opened, body);
		assert_memory_equal(opened, bytes, len);
	}
}

/* Long ones are encrypted by another library than short ones: both must read what the other wrote. */
static void long_seals_are_libsodium_s_byte_by_byte(SL_UNUSED void **state)
{
	static const size_t lengths[] = {8191, 8192, 8193, 65536, 1000003};
	static uint8_t bytes[1000003], sealed[sizeof(bytes) + BK_SEAL_MAX], theirs[sizeof(bytes) + 16];
	struct sl_env env = kit_env();
	struct bk_keys keys = kit_keys(1);
	uint8_t ad[1 + BK_NAME_BYTES + 3];
	kit_random(bytes, sizeof(bytes), 6);
	ad[0] = BK_KIND_FRAME;
	memcpy(ad + 1, keys.repository, BK_NAME_BYTES);
	memcpy(ad + 1 + BK_NAME_BYTES, "aad", 3);
	for (size_t i = 0; i < SL_COUNT(lengths); i++) {
		size_t len = lengths[i], got = len + BK_SEAL_ENCRYPTED;
		uint8_t *opened = NULL;
		assert_int_equal(
			sl__bk_seal(&(struct bk_seal){&env, &keys, BK_KIND_FRAME, "aad", 3}, bytes, len, sealed, NULL),
			0);
		assert_int_equal(crypto_aead_xchacha20poly1305_ietf_encrypt(theirs, NULL, bytes, len, ad, sizeof(ad),
									    NULL, sealed, keys.data),
				 0);
		assert_memory_equal(sealed + 24, theirs, len + 16);
		assert_int_equal(sl__bk_unseal(&(struct bk_seal){NULL, &keys, BK_KIND_FRAME, "aad", 3}, sealed, &got,
					       &opened, NULL),
				 0);
		assert_int_equal(got, len);
		assert_memory_equal(opened, bytes, len);
	}
}

/* In the nonce, at the text's ends, in the tag; and of another kind. */
static void a_flipped_bit_breaks_a_long_seal(SL_UNUSED void **state)
{
	enum { LEN = 20000, WHOLE = LEN + BK_SEAL_ENCRYPTED };
	static const size_t places[] = {0, 15, 16, 23, 24, 9000, LEN + 23, LEN + 24, WHOLE - 1};
	static uint8_t bytes[LEN], sealed[WHOLE], copy[WHOLE];
	struct sl_env env = kit_env();
	struct bk_keys keys = kit_keys(1);
	uint8_t *opened;
	size_t got = WHOLE;
	kit_random(bytes, sizeof(bytes), 7);
	assert_int_equal(sl__bk_seal(&(struct bk_seal){&env, &keys, BK_KIND_FRAME, NULL, 0}, bytes, LEN, sealed, NULL),
			 0);
	for (size_t i = 0; i < SL_COUNT(places); i++) {
		memcpy(copy, sealed, WHOLE);
		copy[places[i]] ^= 1;
		assert_int_equal(sl__bk_unseal(&(struct bk_seal){NULL, &keys, BK_KIND_FRAME, NULL, 0}, copy, &got,
					       &opened, NULL),
				 SL_ECORRUPT);
	}
	memcpy(copy, sealed, WHOLE);
	assert_int_equal(
		sl__bk_unseal(&(struct bk_seal){NULL, &keys, BK_KIND_MARK, NULL, 0}, copy, &got, &opened, NULL),
		SL_ECORRUPT);
}

struct sealed {
	struct bk_keys keys;
	uint8_t bytes[100 + BK_SEAL_MAX];
	size_t len;
};

static struct sealed seal_text(int which)
{
	struct sl_env env = kit_env();
	struct sealed s = {.keys = kit_keys(which)};
	uint8_t text[100];
	kit_text(text, sizeof(text), 5);
	s.len = sizeof(text) + sl__bk_seal_bytes(&s.keys);
	assert_int_equal(sl__bk_seal(&(struct bk_seal){&env, &s.keys, BK_KIND_SNAPSHOT, "here", 4}, text, sizeof(text),
				     s.bytes, NULL),
			 0);
	return s;
}

static int open_sealed(struct sealed s, enum bk_kind kind, const char *aad)
{
	uint8_t *bytes = NULL;
	size_t len = s.len;
	struct sl_err err = SL_ERR_INIT;
	int rc = sl__bk_unseal(&(struct bk_seal){NULL, &s.keys, kind, aad, strlen(aad)}, s.bytes, &len, &bytes, &err);
	if (rc != 0) {
		assert_int_equal(err.code, rc);
		assert_null(bytes);
		assert_int_equal(len, s.len);
	}
	return rc;
}

static void a_seal_does_not_open_as_something_else(SL_UNUSED void **state)
{
	for (int which = 0; which < 2; which++) {
		struct sealed s = seal_text(which);
		assert_int_equal(open_sealed(s, BK_KIND_SNAPSHOT, "here"), 0);
		assert_int_equal(open_sealed(s, BK_KIND_SESSION, "here"), SL_ECORRUPT);
		assert_int_equal(open_sealed(s, BK_KIND_SNAPSHOT, "her"), SL_ECORRUPT);
		assert_int_equal(open_sealed(s, BK_KIND_SNAPSHOT, "hero"), SL_ECORRUPT);
		s.keys.repository[3] ^= 1;
		assert_int_equal(open_sealed(s, BK_KIND_SNAPSHOT, "here"), SL_ECORRUPT);
	}
}

static void a_flipped_bit_or_a_missing_byte_breaks_a_seal(SL_UNUSED void **state)
{
	for (int which = 0; which < 2; which++) {
		const struct sealed whole = seal_text(which);
		for (size_t bit = 0; bit < 8 * whole.len; bit++) {
			struct sealed s = whole;
			s.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
			assert_int_equal(open_sealed(s, BK_KIND_SNAPSHOT, "here"), SL_ECORRUPT);
		}
		for (size_t len = 0; len < whole.len; len++) {
			struct sealed s = whole;
			s.len = len;
			assert_int_equal(open_sealed(s, BK_KIND_SNAPSHOT, "here"), SL_ECORRUPT);
		}
	}
}

static void no_nonce_is_used_when_there_is_no_randomness(SL_UNUSED void **state)
{
	static const struct sl_rand none = {.version = SL_RAND_VERSION, .fill = no_randomness};
	struct sl_env env = kit_env();
	struct bk_keys keys = kit_keys(1);
	struct sl_err err = SL_ERR_INIT;
	uint8_t out[3 + BK_SEAL_MAX];
	env.rand = &none;
	assert_int_equal(sl__bk_seal(&(struct bk_seal){&env, &keys, BK_KIND_FRAME, NULL, 0}, "abc", 3, out, &err),
			 SL_EIO);
	assert_non_null(strstr(err.msg, "nonce"));
}

static void hexadecimal_text_is_taken_in_one_form_only(SL_UNUSED void **state)
{
	uint8_t out[4] = {9, 9, 9, 9};
	char text[9];
	sl__bk_hex("\x00\x7f\xab\xff", 4, text);
	assert_string_equal(text, "007fabff");
	assert_true(sl__bk_unhex(text, out, 4));
	assert_memory_equal(out, "\x00\x7f\xab\xff", 4);
	static const char *const bad[] = {"", "007fabf", "007fabff0", "007fABff", "007fabfg", "0 7fabff", "007fab\nf"};
	for (size_t i = 0; i < SL_COUNT(bad); i++) {
		uint8_t kept[4] = {1, 2, 3, 4};
		assert_false(sl__bk_unhex(bad[i], kept, 4));
		assert_memory_equal(kept, "\1\2\3\4", 4);
	}
}

static void a_hasher_without_memory_is_an_error_and_nothing_else(SL_UNUSED void **state)
{
	struct fault f;
	fault_init(&f, NULL);
	struct sl_env base = fault_env(&f, NULL), env;
	struct bk_keys keys = kit_keys(1);
	struct bk_hasher *h = NULL;
	assert_int_equal(sl__env_init(&env, &base, NULL), 0);
	fault_arm_mem(&f, 1, FAULT_ONCE);
	assert_int_equal(sl__bk_hasher_new(&h, &env, &keys, NULL), SL_ENOMEM);
	assert_null(h);
	fault_disarm(&f);
	assert_int_equal(sl__bk_hasher_new(&h, &env, &keys, NULL), 0);
	sl__bk_hasher_free(h);
	assert_int_equal(fault_live_allocs(&f), 0);
	fault_fini(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_id_is_the_sha256_in_a_plain_repository),
		cmocka_unit_test(an_id_is_an_hmac_in_an_encrypted_repository),
		cmocka_unit_test(a_hasher_serves_any_number_of_blocks_of_any_length),
		cmocka_unit_test(keys_are_derived_from_the_master_key),
		cmocka_unit_test(a_seal_has_the_documented_bytes),
		cmocka_unit_test(what_is_sealed_opens_again_whatever_its_length),
		cmocka_unit_test(long_seals_are_libsodium_s_byte_by_byte),
		cmocka_unit_test(a_flipped_bit_breaks_a_long_seal),
		cmocka_unit_test(a_seal_does_not_open_as_something_else),
		cmocka_unit_test(a_flipped_bit_or_a_missing_byte_breaks_a_seal),
		cmocka_unit_test(no_nonce_is_used_when_there_is_no_randomness),
		cmocka_unit_test(hexadecimal_text_is_taken_in_one_form_only),
		cmocka_unit_test(a_hasher_without_memory_is_an_error_and_nothing_else),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
