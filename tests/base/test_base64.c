/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base64.h"

/* RFC 4648, section 10. */
static const struct {
	const char *bytes, *text;
} vectors[] = {{"", ""},
	       {"f", "Zg=="},
	       {"fo", "Zm8="},
	       {"foo", "Zm9v"},
	       {"foob", "Zm9vYg=="},
	       {"fooba", "Zm9vYmE="},
	       {"foobar", "Zm9vYmFy"},
	       {"\xfb\xff\xbf", "+/+/"}};

static void bytes_become_padded_text_and_back(void **state)
{
	(void)state;
	for (size_t i = 0; i < SL_COUNT(vectors); i++) {
		struct sl__buf text;
		char bytes[16];
		size_t n = strlen(vectors[i].bytes);
		sl__buf_init(&text, &sl__env_real);
		assert_int_equal(sl__base64_append(&text, vectors[i].bytes, n), 0);
		assert_string_equal(sl__buf_str(&text), vectors[i].text);
		assert_int_equal(text.len, SL__BASE64_LEN(n));
		assert_true(SL__BASE64_DECODED_MAX(text.len) >= n);
		assert_int_equal(sl__base64_decode(bytes, sl__buf_str(&text), text.len), n);
		assert_memory_equal(bytes, vectors[i].bytes, n);
		sl__buf_fini(&text);
	}
}

static void appended_text_follows_what_was_there(void **state)
{
	(void)state;
	struct sl__buf b;
	sl__buf_init(&b, &sl__env_real);
	assert_int_equal(sl__base64_append(&b, NULL, 0), 0);
	assert_int_equal(b.len, 0);
	assert_int_equal(sl__buf_str_append(&b, "data:"), 0);
	assert_int_equal(sl__base64_append(&b, "fooba", 5), 0);
	assert_string_equal(sl__buf_str(&b), "data:Zm9vYmE=");
	sl__buf_fini(&b);
}

static void both_alphabets_are_decoded_with_or_without_padding(void **state)
{
	(void)state;
	uint8_t out[8];
	assert_int_equal(sl__base64_decode(out, "-_-_", 4), 3);
	assert_memory_equal(out, "\xfb\xff\xbf", 3);
	assert_int_equal(sl__base64_decode(out, "Zg", 2), 1);
	assert_int_equal(sl__base64_decode(out, "Zm8", 3), 2);
}

static void text_that_is_not_base64_is_refused(void **state)
{
	(void)state;
	uint8_t out[16];
	static const char *const bad[] = {"Z", "Zm9vY", "Zm 9v", "Zm9v\n", "Z=g=", "Zm9v!", "\xc3\xa4"};
	for (size_t i = 0; i < SL_COUNT(bad); i++)
		assert_int_equal(sl__base64_decode(out, bad[i], strlen(bad[i])), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_become_padded_text_and_back),
		cmocka_unit_test(appended_text_follows_what_was_there),
		cmocka_unit_test(both_alphabets_are_decoded_with_or_without_padding),
		cmocka_unit_test(text_that_is_not_base64_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
