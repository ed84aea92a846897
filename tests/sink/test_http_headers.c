/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of the HTTP sink that come from a file: what is sent, what is refused, what is never shown. */
#include <fcntl.h>
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

#include "sink/http_kit.h"

static void put(const char *text)
{
	place_write(http_place.path, text, strlen(text));
}

static const char *last(const char *header)
{
	return http_server_command(&http_server, "last %s", header);
}

static void every_header_of_the_file_is_sent(void **state)
{
	static const char *const own[] = {"X-Own: of the options"};
	(void)state;
	put("# for the ingest\n"
	    "\n"
	    "Authorization: Token sesame, open\r\n"
	    " \t\n"
	    "X-Tenant:blue \t \n"
	    "#X-Off: 1\n"
	    "X-Colons: a:b # and this\n"
	    "X-Last: caf\xc3\xa9");
	sl_sink sink =
		http_open(http_url("/in"), &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .headers = own, .n_headers = 1,
								  .header_file = http_place.path});
	void *lane = sink_attach(&sink);
	assert_int_equal(http_write_two(&sink, lane).rc, 0);
	assert_string_equal(last("X-Own"), "of the options");
	assert_string_equal(last("Authorization"), "Token sesame, open");
	assert_string_equal(last("X-Tenant"), "blue");
	assert_string_equal(last("X-Off"), "-");
	assert_string_equal(last("X-Colons"), "a:b # and this");
	assert_int_equal(strncmp(last("X-Last"), "caf", 3), 0);
	assert_string_equal(last("Content-Type"), "application/x-ndjson");
	assert_int_equal(strlen(last("Idempotency-Key")), 32);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

/* ---- what is no header ---- */

static void expect_refusal(const char *url, const struct sl_sink_opts *opts, int code, const char *words)
{
	struct sl_err err = SL_ERR_INIT;
	sl_sink sink = {0};
	int rc = sl_sink_open(&sink, url, opts, &err);
	if (rc != code || strstr(err.msg, words) == NULL || strstr(err.msg, "header_file") == NULL)
		fail_msg("%s: %s: %s", words, sl_err_name(rc), err.msg);
	if (strstr(err.msg, "sesame") != NULL)
		fail_msg("a value is shown: %s", err.msg);
	assert_null(sink.ops);
}

static void a_file_with_a_bad_line_is_refused_with_its_number(void **state)
{
	static const struct {
		const char *text, *words;
	} files[] = {{"X-A: 1\nsesame\n", "line 2 is not \"Name: value\""},
		     {"sesame sesame: 1\n", "line 1 is not"},
		     {"X-A: 1\n\n# x\n : sesame\n", "line 4 is not"},
		     {"X-A: 1\n X-Folded: sesame\n", "line 2 is not"},
		     {"X-Sesame:\n", "line 1 is not"},
		     {"X-Sesame: \t \r\n", "line 1 is not"},
		     {"X-Sesame;\n", "line 1 is not"},
		     {"X-A: 1\r\nX-B: ses\rame\r\n", "line 2 has a control character"},
		     {"X-B: \x1bsesame", "line 1 has a control character"},
		     {"X-B: sesame\x7f\n", "line 1 has a control character"},
		     {"X-A: 1\nContent-length: 7\n", "line 2: the sink sets Content-length itself"},
		     {"idempotency-key: sesame\n", "line 1: the sink sets idempotency-key itself"},
		     {"Authorization: sesame\nX-A: 1\nauthorization: sesame\n", "line 3: Authorization is already set"},
		     {"", "no headers in it"},
		     {"# sesame\n\n", "no headers in it"}};
	(void)state;
	const struct sl_sink_opts opts = {SL_SINK_OPTS_INIT, .header_file = http_place.path};
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		put(files[i].text);
		expect_refusal("http://127.0.0.1:1/in", &opts, SL_ECONFIG, files[i].words);
	}
	place_write(http_place.path, "X-A: 1\nX-B: se\0same\n", 20);
	expect_refusal("http://127.0.0.1:1/in", &opts, SL_ECONFIG, "line 2 has a control character");
}

static void authorization_is_set_in_one_place_only(void **state)
{
	static const char *const own[] = {"authorization: sesame"};
	char token[160];
	(void)state;
	put("X-A: 1\nAuthorization: sesame\n");
	(void)snprintf(token, sizeof(token), "%s.token", http_place.path);
	place_write(token, "sesame", 6);
	struct sl_sink_opts opts = {SL_SINK_OPTS_INIT, .header_file = http_place.path};
	expect_refusal("http://me@127.0.0.1:1/in", &opts, SL_ECONFIG, "line 2: Authorization is already set");
	opts.token_file = token;
	expect_refusal("http://127.0.0.1:1/in", &opts, SL_ECONFIG, "line 2: Authorization is already set");
	opts.token_file = NULL;
	opts.headers = own;
	opts.n_headers = 1;
	expect_refusal("http://127.0.0.1:1/in", &opts, SL_ECONFIG, "line 2: Authorization is already set");
}

static void a_header_file_that_cannot_be_read_or_is_too_large_is_reported(void **state)
{
	const struct sl_sink_opts opts = {SL_SINK_OPTS_INIT, .header_file = http_place.path};
	char *text = calloc(1, 70000);
	size_t n = 0;
	(void)state;
	assert_non_null(text);
	expect_refusal("http://127.0.0.1:1/in", &opts, SL_ENOENT, http_place.path);
	expect_refusal("null:", &opts, SL_EINVAL, "does not apply to this kind");
	memset(text, '#', 66000);
	put(text);
	expect_refusal("http://127.0.0.1:1/in", &opts, SL_ECONFIG, "longer than 64 KiB");
	for (int i = 0; i < 257; i++)
		n += (size_t)snprintf(text + n, 70000 - n, "X-%d: 1\n", i);
	put(text);
	expect_refusal("http://127.0.0.1:1/in", &opts, SL_ECONFIG, "line 257: more than 256 headers");
	text[n - strlen("X-256: 1\n")] = '\0';
	put(text);
	sl_sink sink = http_open(http_url("/in"), &opts);
	void *lane = sink_attach(&sink);
	free(text);
	assert_int_equal(http_write_two(&sink, lane).rc, 0);
	assert_string_equal(last("X-0"), "1");
	assert_string_equal(last("X-255"), "1");
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

/* ---- another file later ---- */

static void the_file_is_read_again_after_a_401(void **state)
{
	(void)state;
	(void)http_server_command(&http_server, "token first");
	put("Authorization: Bearer first\nX-Turn: 1\n");
	sl_sink sink =
		http_open(http_url("/in"), &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .header_file = http_place.path});
	void *lane = sink_attach(&sink), *other = sink_attach(&sink);
	assert_int_equal(http_write_two(&sink, lane).rc, 0);
	assert_int_equal(http_write_two(&sink, other).rc, 0);
	(void)http_server_command(&http_server, "token second");
	put("X-Turn: 2\nX-More: 3\nAuthorization: Bearer second\n");
	assert_int_equal(http_write_two(&sink, lane).rc, 0);
	assert_int_equal(http_server_counts(&http_server).requests, 4);
	assert_string_equal(last("X-Turn"), "2");
	assert_string_equal(last("X-More"), "3");
	/* The other lane has it, too. */
	assert_int_equal(http_write_two(&sink, other).rc, 0);
	assert_int_equal(http_server_counts(&http_server).requests, 5);
	sink_detach(&sink, lane);
	sink_detach(&sink, other);
	sl_sink_close(&sink);
}

static void a_file_that_is_the_same_or_no_good_is_not_tried_again(void **state)
{
	(void)state;
	(void)http_server_command(&http_server, "token other");
	put("Authorization: Bearer first\n");
	sl_sink sink =
		http_open(http_url("/in"), &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .header_file = http_place.path});
	void *lane = sink_attach(&sink);
	assert_int_equal(http_write_two(&sink, lane).rc, SL_EACCES);
	put("# the same\nAuthorization: Bearer first\n");
	assert_int_equal(http_write_two(&sink, lane).rc, SL_EACCES);
	put("no header\n");
	assert_int_equal(http_write_two(&sink, lane).rc, SL_EACCES);
	(void)unlink(http_place.path);
	assert_int_equal(http_write_two(&sink, lane).rc, SL_EACCES);
	assert_int_equal(http_server_counts(&http_server).requests, 4);
	(void)http_server_command(&http_server, "token first");
	assert_int_equal(http_write_two(&sink, lane).rc, 0);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

/* ---- secrets ---- */

static void no_message_repeats_a_value_of_the_file(void **state)
{
	(void)state;
	put("X-Key: sesame-1\nAuthorization: Token sesame-2\nCookie: id=sesame-3; lang=en\n");
	sl_sink sink =
		http_open(http_url("/in"), &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .header_file = http_place.path});
	void *lane = sink_attach(&sink);
	(void)http_server_command(&http_server,
				  "script echo 500@sesame-1 500@Token_sesame-2 500@only_sesame-2 500@sesame-3_is_bad");
	for (int i = 0; i < 5; i++) {
		struct http_result r = http_write_two(&sink, lane);
		assert_int_equal(r.rc, SL_EAGAIN);
		if (strstr(r.err.msg, "sesame") != NULL || strstr(r.err.msg, "***") == NULL)
			fail_msg("%s", r.err.msg);
	}
	assert_null(strstr(sl_sink_target(&sink), "sesame"));
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HTTP_TEST(every_header_of_the_file_is_sent),
		HTTP_TEST(a_file_with_a_bad_line_is_refused_with_its_number),
		HTTP_TEST(authorization_is_set_in_one_place_only),
		HTTP_TEST(a_header_file_that_cannot_be_read_or_is_too_large_is_reported),
		HTTP_TEST(the_file_is_read_again_after_a_401),
		HTTP_TEST(a_file_that_is_the_same_or_no_good_is_not_tried_again),
		HTTP_TEST(no_message_repeats_a_value_of_the_file),
	};
	http_server_start(&http_server, NULL, NULL);
	int failed = cmocka_run_group_tests_name("http_headers", tests, NULL, NULL);
	http_server_stop(&http_server);
	return failed;
}
