/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/http/net_text.h"

static const char *decoded(const char *s, bool plus)
{
	static char out[256];
	return srv_percent_decode(out, s, strlen(s), plus) < 0 ? NULL : out;
}

static void escapes_are_decoded(void **state)
{
	(void)state;
	assert_string_equal(decoded("a%20b%2Fc", false), "a b/c");
	assert_string_equal(decoded("a+b", false), "a+b");
	assert_string_equal(decoded("a+b%2b", true), "a b+");
	assert_string_equal(decoded("%C3%A9%e2%82%ac", false), "é€");
	assert_string_equal(decoded("", false), "");
}

static void half_escapes_and_what_is_not_utf8_are_refused(void **state)
{
	static const char *const bad[] = {
		"%",      "%4",     "%zz",       "a%",           "%00",       "a%00b",
		"%c0%af", "%c1%81", "%e0%80%af", "%f0%80%80%af", "%ed%a0%80", "%f4%90%80%80",
		"%ff",    "%c3",    "%e2%82",    "%f8%88%80%80", "%80",       "%c3%28",
	};
	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_null(decoded(bad[i], false));
}

static void a_copy_is_whole_characters(void **state)
{
	char out[8];
	(void)state;
	srv_utf8_copy(out, sizeof(out), "abc");
	assert_string_equal(out, "abc");
	srv_utf8_copy(out, sizeof(out), "abcdef\xc3\xa9"); /* of the last there is room for a half */
	assert_string_equal(out, "abcdef");
	srv_utf8_copy(out, sizeof(out), "abcde\xc3\xa9g");
	assert_string_equal(out, "abcde\xc3\xa9");
	srv_utf8_copy(out, sizeof(out),
		      "a\xff"
		      "b\xe2\x82");
	assert_string_equal(out, "a?b??");
	srv_utf8_copy(out, 1, "a");
	assert_string_equal(out, "");
}

static void a_query_is_taken_apart_into_decoded_pairs(void **state)
{
	const char query[] = "&a=1&&b&c=&=d&e=x%3Dy%26z&a=2", *q = query, *name, *value;
	static const char *const expected[][2] = {{"a", "1"}, {"b", ""},      {"c", ""},
						  {"", "d"},  {"e", "x=y&z"}, {"a", "2"}};
	char scratch[2 * sizeof(query) + 2], *s = scratch;
	(void)state;
	for (size_t i = 0; i < 6; i++) {
		assert_int_equal(srv_query_next(&q, query + sizeof(query) - 1, &s, &name, &value), 1);
		assert_string_equal(name, expected[i][0]);
		assert_string_equal(value, expected[i][1]);
	}
	assert_int_equal(srv_query_next(&q, query + sizeof(query) - 1, &s, &name, &value), 0);
}

static void a_query_of_names_alone_fits_into_twice_its_size(void **state)
{
	const char query[] = "a&b&c&d&e&f&g&h", *q = query, *name, *value;
	size_t n = sizeof(query) - 1, size = 2 * n + 2;
	char *scratch = malloc(size), *s = scratch;
	(void)state;
	while (srv_query_next(&q, query + n, &s, &name, &value) == 1)
		assert_true((size_t)(s - scratch) <= size);
	free(scratch);
}

static void a_malformed_query_is_refused(void **state)
{
	const char *q = "a=%", *name, *value;
	char scratch[16], *s = scratch;
	(void)state;
	assert_int_equal(srv_query_next(&q, q + 3, &s, &name, &value), -1);
}

static void assert_cookie(const char *field, const char *expected)
{
	size_t n = 99;
	const char *v = srv_cookie_find(field, "sid", &n);
	if (expected == NULL) {
		assert_null(v);
		return;
	}
	assert_non_null(v);
	assert_int_equal(n, strlen(expected));
	assert_memory_equal(v, expected, n);
}

static void a_cookie_is_found_by_its_whole_name(void **state)
{
	(void)state;
	assert_cookie("sid=abc", "abc");
	assert_cookie("a=b; sid=abc ; c=d", "abc");
	assert_cookie("xsid=1; sid=2", "2");
	assert_cookie("sid", NULL);
	assert_cookie("sid=", "");
	assert_cookie("sidx=1", NULL);
	assert_cookie("", NULL);
	assert_cookie(" ; ;;sid=1;sid=2", "1");
}

static void assert_host(const char *s, const char *name, int port, bool address)
{
	struct srv_host h;
	assert_true(srv_host_parse(s, strlen(s), &h));
	assert_int_equal(h.len, strlen(name));
	assert_memory_equal(h.name, name, h.len);
	assert_int_equal(h.port, port);
	assert_int_equal(h.is_address, address);
}

static void a_host_is_a_name_or_an_address_with_a_port_or_without(void **state)
{
	(void)state;
	assert_host("localhost:7070", "localhost", 7070, false);
	assert_host("127.0.0.1", "127.0.0.1", -1, true);
	assert_host("[::1]:7070", "::1", 7070, true);
	assert_host("[fe80::1]", "fe80::1", -1, true);
	assert_host("sluice.example.com:443", "sluice.example.com", 443, false);
	/* Names that look like addresses are names: a resolver may be asked about them. */
	assert_host("127.0.0.1.evil.example", "127.0.0.1.evil.example", -1, false);
	assert_host("127.0.0.256", "127.0.0.256", -1, false);
	assert_host("0177.0.0.1", "0177.0.0.1", -1, false);
	assert_host("127.1", "127.1", -1, false);
	assert_host("1.2.3.4.", "1.2.3.4.", -1, false);
}

static void what_is_no_authority_is_no_host(void **state)
{
	static const char *const bad[] = {"",     ":80",      "a:",   "a:0",   "a:65536", "a:80x", "a b",
					  "a/b",  "user@a",   "[::1", "[]:80", "[::1]x",  "[a b]", "::1",
					  "a:-1", "a:000080", "é",    "[12]",  "a,b",     "a\x01b"};
	struct srv_host h;
	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (srv_host_parse(bad[i], strlen(bad[i]), &h))
			fail_msg("\"%s\" is taken for a host", bad[i]);
}

static void a_coding_is_accepted_when_it_is_named_or_nothing_is_said(void **state)
{
	(void)state;
	assert_true(srv_accepts_coding(NULL, "gzip"));
	assert_true(srv_accepts_coding("gzip, deflate, br", "gzip"));
	assert_true(srv_accepts_coding("br;q=1.0, GZIP;q=0.2", "gzip"));
	assert_true(srv_accepts_coding("*", "gzip"));
	assert_false(srv_accepts_coding("", "gzip"));
	assert_false(srv_accepts_coding("identity", "gzip"));
	assert_false(srv_accepts_coding("gzip;q=0", "gzip"));
	assert_false(srv_accepts_coding("gzip;q=0.000, *", "gzip"));
	assert_false(srv_accepts_coding("*;q=0", "gzip"));
	assert_false(srv_accepts_coding("xgzip", "gzip"));
}

static void an_etag_matches_weakly_and_in_a_list(void **state)
{
	(void)state;
	assert_true(srv_etag_matches("\"abc\"", "\"abc\""));
	assert_true(srv_etag_matches("\"x\", W/\"abc\"", "\"abc\""));
	assert_true(srv_etag_matches("*", "\"abc\""));
	assert_false(srv_etag_matches("\"abcd\"", "\"abc\""));
	assert_false(srv_etag_matches("\"a,b\", \"c\"", "\"b\""));
	assert_false(srv_etag_matches(NULL, "\"abc\""));
	assert_false(srv_etag_matches("abc", "\"abc\""));
}

static void only_a_plain_request_id_is_taken_over(void **state)
{
	char longest[66];
	(void)state;
	memset(longest, 'a', 65);
	longest[65] = '\0';
	assert_false(srv_request_id_ok(longest));
	longest[64] = '\0';
	assert_true(srv_request_id_ok(longest));
	assert_true(srv_request_id_ok("01HZ-abc_d.e"));
	assert_false(srv_request_id_ok(""));
	assert_false(srv_request_id_ok("a b"));
	assert_false(srv_request_id_ok("a\"b"));
	assert_false(srv_request_id_ok("é"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(escapes_are_decoded),
		cmocka_unit_test(half_escapes_and_what_is_not_utf8_are_refused),
		cmocka_unit_test(a_copy_is_whole_characters),
		cmocka_unit_test(a_query_is_taken_apart_into_decoded_pairs),
		cmocka_unit_test(a_query_of_names_alone_fits_into_twice_its_size),
		cmocka_unit_test(a_malformed_query_is_refused),
		cmocka_unit_test(a_cookie_is_found_by_its_whole_name),
		cmocka_unit_test(a_host_is_a_name_or_an_address_with_a_port_or_without),
		cmocka_unit_test(what_is_no_authority_is_no_host),
		cmocka_unit_test(a_coding_is_accepted_when_it_is_named_or_nothing_is_said),
		cmocka_unit_test(an_etag_matches_weakly_and_in_a_list),
		cmocka_unit_test(only_a_plain_request_id_is_taken_over),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
