/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/http/route.h"

static void handler(srv_request *r, void *ctx)
{
	(void)r;
	(void)ctx;
}

static const char *const table[][2] = {
	{"GET", "/"},
	{"GET", "/jobs"},
	{"POST", "/jobs"},
	{"GET", "/jobs/{id}"},
	{"DELETE", "/jobs/{id}"},
	{"POST", "/jobs/bulk"},
	{"GET", "/jobs/{id}/events/{n}"},
	{"GET", "/assets/{path*}"},
};

static int set_up(void **state)
{
	srv_routes *t;
	if (srv_routes_new(&t, NULL) != 0)
		return -1;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		const struct srv_route r = {.method = table[i][0], .path = table[i][1], .fn = handler};
		if (srv_routes_add(t, &r, NULL, NULL) != 0)
			return -1;
	}
	*state = t;
	return 0;
}

static int tear_down(void **state)
{
	srv_routes_free(*state);
	return 0;
}

static char scratch[512];

static struct srv_match find(srv_routes *t, const char *method, const char *path)
{
	struct srv_match m;
	assert_int_equal(srv_routes_find(t, method, path, scratch, &m), 0);
	return m;
}

static void assert_route(srv_routes *t, const char *method, const char *path, const char *expected)
{
	struct srv_match m = find(t, method, path);
	assert_non_null(m.endpoint);
	assert_string_equal(m.endpoint->route.path, expected);
}

static void literals_parameters_and_a_rest_are_told_apart(void **state)
{
	assert_route(*state, "GET", "/", "/");
	assert_route(*state, "GET", "/jobs", "/jobs");
	assert_route(*state, "GET", "/jobs/7", "/jobs/{id}");
	assert_route(*state, "POST", "/jobs/bulk", "/jobs/bulk");
	assert_route(*state, "GET", "/jobs/7/events/8", "/jobs/{id}/events/{n}");
	assert_route(*state, "GET", "/assets/js/a.js", "/assets/{path*}");
}

static void a_literal_of_another_method_does_not_hide_a_parameter(void **state)
{
	struct srv_match m = find(*state, "GET", "/jobs/bulk");
	assert_non_null(m.endpoint);
	assert_string_equal(m.value[0], "bulk");
}

static void head_is_served_by_get(void **state)
{
	assert_route(*state, "HEAD", "/jobs", "/jobs");
}

static void values_are_decoded_and_may_hold_a_slash(void **state)
{
	struct srv_match m = find(*state, "GET", "/jobs/a%2Fb%20c/events/%C3%A9");
	assert_string_equal(m.value[0], "a/b c");
	assert_string_equal(m.value[1], "é");
	m = find(*state, "GET", "/assets/a/b%20c/d");
	assert_string_equal(m.value[0], "a/b c/d");
}

static void another_method_is_known_as_such(void **state)
{
	char allow[128];
	struct srv_match m = find(*state, "PUT", "/jobs/7");
	assert_null(m.endpoint);
	assert_non_null(m.other);
	srv_routes_allow(m.other, allow, sizeof(allow));
	assert_string_equal(allow, "DELETE, GET, HEAD, OPTIONS");
}

static void unknown_paths_are_nobodys(void **state)
{
	static const char *const unknown[] = {"/job", "/jobs/1/x", "/assets", "/jobs/1/events", "/jobsx", "/J"};
	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
		struct srv_match m = find(*state, "GET", unknown[i]);
		assert_null(m.endpoint);
		assert_null(m.other);
	}
}

static void tricks_are_refused(void **state)
{
	static const char *const bad[] = {
		"",
		"jobs",
		"*",
		"//",
		"/jobs//7",
		"/jobs/",
		"/assets/../jobs",
		"/assets/%2e%2e/jobs",
		"/assets/.%2E/x",
		"/assets/./x",
		"/assets/%2e",
		"/assets/a%00b",
		"/assets/%c0%ae%c0%ae/x",
		"/assets/%e0%80%ae",
		"/assets/%ff",
		"/assets/%",
		"/assets/a%0d%0ab",
		"/assets/%7f",
		"/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t/u/v/w/x/y/z",
		"http://localhost/jobs",
	};
	struct srv_match m;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (srv_routes_find(*state, "GET", bad[i], scratch, &m) != SL_EINVAL)
			fail_msg("%s is taken", bad[i]);
}

static void the_same_route_twice_is_refused(void **state)
{
	const struct srv_route again = {.method = "GET", .path = "/jobs/{name}", .fn = handler};
	assert_int_equal(srv_routes_add(*state, &again, NULL, NULL), SL_EEXIST);
}

static void a_rest_before_the_end_is_refused(void **state)
{
	const struct srv_route bad = {.method = "GET", .path = "/x/{path*}/y", .fn = handler};
	const struct srv_route relative = {.method = "GET", .path = "x", .fn = handler};
	assert_int_equal(srv_routes_add(*state, &bad, NULL, NULL), SL_EINVAL);
	assert_int_equal(srv_routes_add(*state, &relative, NULL, NULL), SL_EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(literals_parameters_and_a_rest_are_told_apart, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_literal_of_another_method_does_not_hide_a_parameter, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(head_is_served_by_get, set_up, tear_down),
		cmocka_unit_test_setup_teardown(values_are_decoded_and_may_hold_a_slash, set_up, tear_down),
		cmocka_unit_test_setup_teardown(another_method_is_known_as_such, set_up, tear_down),
		cmocka_unit_test_setup_teardown(unknown_paths_are_nobodys, set_up, tear_down),
		cmocka_unit_test_setup_teardown(tricks_are_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_same_route_twice_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_rest_before_the_end_is_refused, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
