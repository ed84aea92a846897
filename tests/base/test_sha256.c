/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 against the published test vectors of FIPS 180, whole and in pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/sha256.h"

static void assert_hash(const uint8_t digest[SL__SHA256_BYTES], const char *expected)
{
	char hex[SL__SHA256_HEX];

	sl__sha256_hex(digest, hex);
	assert_string_equal(hex, expected);
}

static void known_messages_have_their_known_hash(void **state)
{
	uint8_t digest[SL__SHA256_BYTES];

	(void)state;
	assert_int_equal(sl__sha256(NULL, 0, digest, NULL), 0);
	assert_hash(digest, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	assert_int_equal(sl__sha256("abc", 3, digest, NULL), 0);
	assert_hash(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void pieces_hash_as_the_whole_does(void **state)
{
	struct sl__sha256 h;
	uint8_t digest[SL__SHA256_BYTES];

	(void)state;
	assert_int_equal(sl__sha256_begin(&h, NULL), 0);
	assert_int_equal(sl__sha256_update(&h, "a", 1, NULL), 0);
	assert_int_equal(sl__sha256_update(&h, NULL, 0, NULL), 0);
	assert_int_equal(sl__sha256_update(&h, "bc", 2, NULL), 0);
	assert_int_equal(sl__sha256_final(&h, digest, NULL), 0);
	assert_hash(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void a_hash_that_is_dropped_can_be_dropped_again(void **state)
{
	struct sl__sha256 h;

	(void)state;
	assert_int_equal(sl__sha256_begin(&h, NULL), 0);
	sl__sha256_drop(&h);
	sl__sha256_drop(&h);
	assert_null(h.md);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_messages_have_their_known_hash),
		cmocka_unit_test(pieces_hash_as_the_whole_does),
		cmocka_unit_test(a_hash_that_is_dropped_can_be_dropped_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
