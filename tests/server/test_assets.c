/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/assets.h"
#include "server/http/net_text.h"

static void gzip_is_sent_only_to_those_who_take_it(void **state)
{
	(void)state;
	assert_true(srv_accepts_coding("gzip", "gzip"));
	assert_true(srv_accepts_coding("gzip, deflate, br", "gzip"));
	assert_true(srv_accepts_coding("br;q=1.0, GZIP;q=0.8, *;q=0.1", "gzip"));
	assert_true(srv_accepts_coding("*", "gzip"));
	assert_true(srv_accepts_coding("gzip;q=0.001", "gzip"));
	assert_false(srv_accepts_coding("", "gzip"));
	assert_false(srv_accepts_coding("identity", "gzip"));
	assert_false(srv_accepts_coding("gzip;q=0", "gzip"));
	assert_false(srv_accepts_coding("gzip;q=0.000, deflate;q=1", "gzip"));
	assert_false(srv_accepts_coding("x-gzip-like, notgzip", "gzip"));
	assert_false(srv_accepts_coding("*;q=0", "gzip"));
}

static void the_q_of_another_coding_says_nothing_of_gzip(void **state)
{
	(void)state;
	assert_true(srv_accepts_coding("gzip, br;q=0", "gzip"));
	assert_false(srv_accepts_coding("deflate, br;q=1", "gzip"));
	assert_false(srv_accepts_coding("*, gzip;q=0", "gzip"));
	assert_true(srv_accepts_coding("*;q=0, gzip", "gzip"));
}

static void every_file_is_found_by_its_path_and_no_other(void **state)
{
	(void)state;
	assert_true(srv_n_assets > 10);
	for (size_t i = 0; i < srv_n_assets; i++) {
		const struct srv_asset *a = &srv_assets[i];
		assert_ptr_equal(srv_asset_find(a->path), a);
		assert_true(strcmp(a->path, "/") == 0 || strncmp(a->path, "/assets/", 8) == 0);
	}
	assert_null(srv_asset_find("/assets/js/main.js"));
	assert_null(srv_asset_find("/assets/"));
	assert_null(srv_asset_find(""));
}

static void the_two_encodings_of_a_file_have_different_tags(void **state)
{
	(void)state;
	for (size_t i = 0; i < srv_n_assets; i++) {
		const struct srv_asset *a = &srv_assets[i];
		assert_string_not_equal(a->etag, a->etag_gzip);
		assert_true(a->etag[0] == '"' && a->etag[strlen(a->etag) - 1] == '"');
		assert_memory_equal(a->gzip, "\x1f\x8b", 2);
		assert_true(a->plain_len > 0 && a->gzip_len > 18);
	}
}

static void the_whole_dashboard_is_small(void **state)
{
	size_t bytes = 0;
	(void)state;
	for (size_t i = 0; i < srv_n_assets; i++)
		bytes += srv_assets[i].gzip_len;
	print_message("# %zu bytes in %zu files, compressed\n", bytes, srv_n_assets);
	assert_true(bytes <= 180 * 1024); /* of 200 KB for a first load, headers and data included */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gzip_is_sent_only_to_those_who_take_it),
		cmocka_unit_test(the_q_of_another_coding_says_nothing_of_gzip),
		cmocka_unit_test(every_file_is_found_by_its_path_and_no_other),
		cmocka_unit_test(the_two_encodings_of_a_file_have_different_tags),
		cmocka_unit_test(the_whole_dashboard_is_small),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
