/* SPDX-License-Identifier: Apache-2.0 */
/* What the HTTP sink sends, and how: connections, keys, bodies, tokens, TLS; no secrets in messages; options. */
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
#include "support/vclock.h"

/* ---- connections, large things ---- */

static void one_connection_serves_many_batches(void **state)
{
	(void)state;
	sl_sink sink = http_open(http_url("/in"), NULL);
	void *lane = sink_attach(&sink);
	for (int i = 0; i < 50; i++) {
		if (i % 10 == 0)
			(void)http_server_command(&http_server, "script 500@failed");
		assert_int_equal(http_write_two(&sink, lane).rc, i % 10 == 0 ? SL_EAGAIN : 0);
	}
	struct http_counts c = http_server_counts(&http_server);
	assert_int_equal(c.requests, 50);
	assert_int_equal(c.connections, 1);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

static void a_kept_connection_that_the_server_has_closed_is_made_anew(void **state)
{
	(void)state;
	sl_sink sink = http_open(http_url("/in"), NULL);
	void *lane = sink_attach(&sink);
	assert_int_equal(http_write_two(&sink, lane).rc, 0);
	(void)http_server_command(&http_server, "down");
	(void)http_server_command(&http_server, "up");
	assert_int_equal(http_write_two(&sink, lane).rc, 0);
	assert_int_equal(http_server_counts(&http_server).batches, 2);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

static void the_end_of_a_long_answer_is_not_waited_for(void **state)
{
	(void)state;
	sl_sink sink = http_open(http_url("/in"), NULL);
	void *lane = sink_attach(&sink);
	(void)http_server_command(&http_server, "script big");
	assert_int_equal(http_write_two(&sink, lane).rc, 0);
	assert_int_equal(http_write_two(&sink, lane).rc, 0);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

/* A large body asks first; a smaller one runs into a closed connection, which must not raise SIGPIPE. */
static void a_body_that_is_refused_before_it_was_sent_does_no_harm(void **state)
{
	static const size_t sizes[] = {4 << 20, 900 << 10};
	(void)state;
	sl_sink sink = http_open(http_url("/in"), NULL);
	void *lane = sink_attach(&sink);
	for (int i = 0; i < 20; i++) {
		size_t n = sizes[i % 2];
		char *text = malloc(n + 1);
		assert_non_null(text);
		memset(text, ' ', n);
		memcpy(text, "{\"id\":1}", 8);
		text[n] = '\0';
		const char *const texts[] = {text};
		(void)http_server_command(&http_server, "script early");
		struct http_result r = http_write(&sink, lane, texts, 1, (uint8_t)i, 0);
		assert_int_not_equal(r.rc, 0);
		if (i % 2 == 0)
			assert_int_equal(r.rc, SL_ETOOBIG);
		(void)http_server_command(&http_server, "script");
		assert_int_equal(http_write(&sink, lane, texts, 1, (uint8_t)i, 1).rc, 0);
		free(text);
	}
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

static void a_batch_that_is_too_large_is_halved(void **state)
{
	static const struct sink_fixture plain = {.name = "http"};
	struct sink_delivery d = {.secret = NULL};
	struct sink_run run;
	(void)state;
	(void)http_server_command(&http_server, "always limit:10");
	sl_sink sink = http_open(http_url("/in"), NULL);
	void *lane = sink_attach(&sink);
	sink_run_make(&run, &plain, 1, 100);
	assert_int_equal(sink_deliver(&sink, lane, run.items, 100, &d), 0);
	assert_int_equal(d.dead.n, 0);
	(void)http_server_command(&http_server, "always limit:0");
	assert_int_equal(sink_deliver(&sink, lane, run.items, 3, &d), 0);
	assert_int_equal(d.dead.n, 3);
	assert_int_equal(d.dead_as.code, SL_ETOOBIG);
	sink_run_fini(&run);
	sink_delivery_fini(&d);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

static bool is_hex32(const char *s)
{
	return strlen(s) == 32 && strspn(s, "0123456789abcdef") == 32;
}

/* ---- what is sent ---- */

static void a_batch_has_the_same_key_whenever_it_is_sent(void **state)
{
	char key[64];
	(void)state;
	sl_sink sink = http_open(http_url("/in"), NULL);
	void *lane = sink_attach(&sink);
	(void)http_server_command(&http_server, "script +500");
	assert_int_equal(http_write(&sink, lane, http_two, 2, 0xA7, 0).rc, SL_EAGAIN);
	(void)snprintf(key, sizeof(key), "%s", http_server_command(&http_server, "last Idempotency-Key"));
	assert_true(is_hex32(key));
	assert_memory_equal(key, "a7a7", 4);
	assert_int_equal(http_write(&sink, lane, http_two, 2, 0xA7, 1).rc, 0);
	assert_string_equal(http_server_command(&http_server, "last Idempotency-Key"), key);
	assert_int_equal(http_server_counts(&http_server).repeats, 1);
	assert_string_equal(http_server_command(&http_server, "ids"), "1 2");
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

static void the_request_carries_what_the_options_say(void **state)
{
	static const char *const headers[] = {"X-Tenant: blue", "Authorization: Custom 1"};
	(void)state;
	sl_sink sink = http_open(http_url("/a%20b?x=1&y=2#z"),
				 &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .headers = headers, .n_headers = 2});
	void *lane = sink_attach(&sink);
	assert_int_equal(http_write_two(&sink, lane).rc, 0);
	assert_string_equal(http_server_command(&http_server, "path"), "/a%20b?x=1&y=2");
	assert_string_equal(http_server_command(&http_server, "last X-Tenant"), "blue");
	assert_string_equal(http_server_command(&http_server, "last Authorization"), "Custom 1");
	assert_string_equal(http_server_command(&http_server, "last Content-Type"), "application/x-ndjson");
	assert_string_equal(http_server_command(&http_server, "body"), "\"{\\\"id\\\":1}\\n{\\\"id\\\":2}\\n\"");
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

static void the_user_of_the_url_is_sent_as_basic_authorization(void **state)
{
	char url[128];
	(void)state;
	(void)snprintf(url, sizeof(url), "http://me:p%%40ss@127.0.0.1:%d/in", http_server.port);
	sl_sink sink = http_open(url, NULL);
	void *lane = sink_attach(&sink);
	assert_int_equal(http_write_two(&sink, lane).rc, 0);
	assert_string_equal(http_server_command(&http_server, "last Authorization"), "Basic bWU6cEBzcw==");
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

static void any_json_value_is_an_item_of_an_array(void **state)
{
	static const char *const texts[] = {" [1,\r\n2] ", "\"a\"", "9007199254740993", "null"};
	(void)state;
	(void)http_server_command(&http_server, "script 200");
	sl_sink sink =
		http_open(http_url("/in"), &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .body = SL_HTTP_JSON_ARRAY});
	void *lane = sink_attach(&sink);
	assert_int_equal(http_write(&sink, lane, texts, 4, 1, 0).rc, 0);
	assert_string_equal(http_server_command(&http_server, "body"),
			    "\"[ [1,  2] ,\\\"a\\\",9007199254740993,null]\"");
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

#define EVENT(n, time)                                                                                                 \
	"{\\\"specversion\\\":\\\"1.0\\\",\\\"id\\\":\\\"0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b-" n                          \
	"\\\",\\\"source\\\":\\\"/over "                                                                               \
	"\\\\\\\"there\\\\\\\"\\\",\\\"type\\\":\\\"com.example.row\\\",\\\"time\\\":\\\"" time                        \
	"\\\",\\\"datacontenttype\\\":\\\"application/json\\\",\\\"data\\\":"

static void an_event_is_the_same_whenever_it_is_sent(void **state)
{
	struct vclock clock;
	static const char *const columns[] = {"id", "name"}, *const rows[] = {"1,\"x\"\"y\"", "2,"};
	const char *first = "\"[" EVENT(
		"0", "2023-11-14T22:13:20.000Z") "{\\\"id\\\":\\\"1\\\",\\\"name\\\":\\\"x\\\\\\\"y\\\"}}"
						 "," EVENT("1", "2023-11-14T22:13:20.000Z") "{\\\"id\\\":\\\"2\\\","
											    "\\\"name\\\":null}}]\"";
	(void)state;
	vclock_init(&clock);
	clock.real_offset_ms = 1700000000000 - clock.now_ns / 1000000;
	const struct sl_env env = {SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &clock};
	const struct sl_sink_opts opts = {SL_SINK_OPTS_INIT,
					  .env = &env,
					  .format = SL_ROWS_CSV,
					  .columns = columns,
					  .n_columns = 2,
					  .body = SL_HTTP_CLOUD_EVENTS,
					  .event_type = "com.example.row",
					  .event_source = "/over \"there\""};
	sl_sink sink = http_open(http_url("/in"), &opts);
	void *lane = sink_attach(&sink), *other = sink_attach(&sink);
	(void)http_server_command(&http_server, "script 500 503 200");
	assert_int_equal(http_write(&sink, lane, rows, 2, 0x0B, 0).rc, SL_EAGAIN);
	assert_string_equal(http_server_command(&http_server, "body"), first);
	vclock_advance_ms(&clock, 5000);
	assert_int_equal(http_write(&sink, other, rows, 2, 0x0B, 1).rc, SL_EUNAVAIL);
	assert_string_equal(http_server_command(&http_server, "body"), first);
	assert_int_equal(http_write(&sink, lane, rows, 2, 0x0B, 2).rc, 0);
	assert_string_equal(http_server_command(&http_server, "body"), first);
	assert_int_equal(http_write(&sink, lane, rows, 2, 0x0C, 0).rc, 0);
	assert_non_null(strstr(http_server_command(&http_server, "body"), "2023-11-14T22:13:25.000Z"));
	sink_detach(&sink, lane);
	sink_detach(&sink, other);
	sl_sink_close(&sink);
	vclock_fini(&clock);
}

/* ---- tokens ---- */

static sl_sink open_with_token(const char *token)
{
	place_write(http_place.path, token, strlen(token));
	return http_open(http_url("/in"), &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .token_file = http_place.path});
}

static void a_token_is_read_again_after_a_401(void **state)
{
	(void)state;
	(void)http_server_command(&http_server, "token first");
	sl_sink sink = open_with_token(" first \nnot this\n");
	void *lane = sink_attach(&sink), *other = sink_attach(&sink);
	assert_int_equal(http_write_two(&sink, lane).rc, 0);
	assert_int_equal(http_write_two(&sink, other).rc, 0);
	(void)http_server_command(&http_server, "token second");
	place_write(http_place.path, "second", 6);
	assert_int_equal(http_write_two(&sink, lane).rc, 0);
	assert_int_equal(http_server_counts(&http_server).requests, 4);
	/* The other lane has it, too. */
	assert_int_equal(http_write_two(&sink, other).rc, 0);
	assert_int_equal(http_server_counts(&http_server).requests, 5);
	sink_detach(&sink, lane);
	sink_detach(&sink, other);
	sl_sink_close(&sink);
}

/* The file is newer than the token in use, which is good: nothing is sent twice. */
static void a_renewed_token_file_costs_no_request_while_the_old_token_works(void **state)
{
	(void)state;
	(void)http_server_command(&http_server, "token first");
	sl_sink sink = open_with_token("first");
	void *lane = sink_attach(&sink);
	assert_int_equal(http_write_two(&sink, lane).rc, 0);
	place_write(http_place.path, "second", 6);
	assert_int_equal(http_write_two(&sink, lane).rc, 0);
	assert_int_equal(http_server_counts(&http_server).requests, 2);
	/* A failure that is not about the token does not make it send again either. */
	(void)http_server_command(&http_server, "script 500");
	assert_int_not_equal(http_write_two(&sink, lane).rc, 0);
	assert_int_equal(http_server_counts(&http_server).requests, 3);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

static void a_token_that_is_still_the_same_is_not_tried_twice(void **state)
{
	(void)state;
	(void)http_server_command(&http_server, "token other");
	sl_sink sink = open_with_token("first");
	void *lane = sink_attach(&sink);
	struct http_result r = http_write_two(&sink, lane);
	assert_int_equal(r.rc, SL_EACCES);
	assert_int_equal(r.err.error_class, SL_CLASS_FATAL);
	assert_int_equal(http_server_counts(&http_server).requests, 1);
	/* Another one that is no good either: one more try, no more. */
	place_write(http_place.path, "third", 5);
	assert_int_equal(http_write_two(&sink, lane).rc, SL_EACCES);
	assert_int_equal(http_server_counts(&http_server).requests, 3);
	/* A file that is gone or empty leaves the last one. */
	place_write(http_place.path, "", 0);
	assert_int_equal(http_write_two(&sink, lane).rc, SL_EACCES);
	(void)unlink(http_place.path);
	assert_int_equal(http_write_two(&sink, lane).rc, SL_EACCES);
	(void)http_server_command(&http_server, "token third");
	assert_int_equal(http_write_two(&sink, lane).rc, 0);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

/* ---- secrets ---- */

static void no_message_repeats_a_secret(void **state)
{
	static const char *const headers[] = {"X-Key: sesame-1"};
	char url[160];
	(void)state;
	(void)http_server_command(&http_server, "always echo");
	place_write(http_place.path, "sesame-2", 8);
	const struct sl_sink_opts with_token = {SL_SINK_OPTS_INIT, .headers = headers, .n_headers = 1,
						.token_file = http_place.path};
	const struct sl_sink_opts with_header = {SL_SINK_OPTS_INIT, .headers = headers, .n_headers = 1};
	for (int i = 0; i < 2; i++) {
		(void)snprintf(url, sizeof(url), "http://%s127.0.0.1:%d/in?key=sesame-3", i == 0 ? "" : "me:sesame-4@",
			       http_server.port);
		sl_sink sink = http_open(url, i == 0 ? &with_token : &with_header);
		void *lane = sink_attach(&sink);
		assert_null(strstr(sl_sink_target(&sink), "sesame"));
		assert_non_null(strstr(sl_sink_target(&sink), "/in?…"));
		struct http_result r = http_write_two(&sink, lane);
		assert_int_equal(r.rc, SL_EAGAIN);
		assert_non_null(strstr(r.err.msg, "127.0.0.1"));
		assert_null(strstr(r.err.msg, "sesame"));
		assert_null(strstr(r.err.msg, "bWU6c2VzYW1lLTQ=")); /* me:sesame-4 */
		assert_non_null(strstr(r.err.msg, "***"));
		(void)http_server_command(&http_server, "script moved");
		assert_null(strstr(http_write_two(&sink, lane).err.msg, "sesame"));
		sink_detach(&sink, lane);
		sl_sink_close(&sink);
	}
}

/* ---- options ---- */

static void expect_refusal(const char *url, const struct sl_sink_opts *opts, int code, const char *words)
{
	struct sl_err err = SL_ERR_INIT;
	sl_sink sink = {0};
	int rc = sl_sink_open(&sink, url, opts, &err);
	if (rc != code || strstr(err.msg, words) == NULL || strstr(err.msg, "sesame") != NULL)
		fail_msg("%s: %s: %s", words, sl_err_name(rc), err.msg);
	assert_null(sink.ops);
}

static void urls_that_mean_nothing_are_refused_without_being_shown(void **state)
{
	static const char *const urls[] = {"http://",
					   "http://me:sesame@",
					   "http://me:sesame@host:port/",
					   "http://me:sesame@ho st/",
					   "https://me:sesame@host:99999/",
					   "http://me:se/sa@me:sesame/"};
	(void)state;
	for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++)
		expect_refusal(urls[i], NULL, SL_EINVAL, "invalid URL");
	/* As sl_sink_target shows it. */
	expect_refusal("http://host/in?…", NULL, SL_EINVAL, "give the whole URL");
}

static void options_that_mean_nothing_are_refused_by_name(void **state)
{
	static const struct {
		const char *header, *words;
	} headers[] = {{"sesame", "number 1"},
		       {": sesame", "number 1"},
		       {"Na me: sesame", "number 1"},
		       {"Name:", "number 1"},
		       {"Name: ", "number 1"},
		       {"Name: sesame\r\nOther: 1", "number 1"},
		       {"content-TYPE: sesame", "sets content-TYPE"},
		       {"Idempotency-Key: sesame", "Idempotency-Key"},
		       {"Content-Length: 7", "Content-Length"},
		       {"Transfer-Encoding: chunked", "Transfer-Encoding"}};
	const char *url = "http://127.0.0.1:1/in", *const authorization[] = {"authorization: sesame"};
	(void)state;
	for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
		expect_refusal(url,
			       &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .headers = &headers[i].header, .n_headers = 1},
			       SL_EINVAL, headers[i].words);
	expect_refusal("http://me@127.0.0.1:1/in",
		       &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .headers = authorization, .n_headers = 1}, SL_EINVAL,
		       "Authorization");
	expect_refusal(url, &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .format = SL_ROWS_CSV}, SL_EINVAL, "columns");
	expect_refusal(url, &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .table = "t"}, SL_EINVAL, "table");
	expect_refusal(url, &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .event_type = "t"}, SL_EINVAL, "event_type");
	expect_refusal(url, &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .timeout_ms = -5}, SL_EINVAL, "timeout_ms");
	expect_refusal(url, &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .body = SL_HTTP_CLOUD_EVENTS, .event_source = ""},
		       SL_EINVAL, "event_source");
	expect_refusal(url, &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .ca_file = http_place.path}, SL_ENOENT,
		       "ca_file");
	expect_refusal(url, &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .token_file = http_place.path}, SL_ENOENT,
		       "token_file");
	place_write(http_place.path, "\nsesame", 7);
	expect_refusal(url, &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .token_file = http_place.path}, SL_ECONFIG,
		       "no token");
	place_write(http_place.path, "two sesame", 10);
	expect_refusal(url, &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .token_file = http_place.path}, SL_ECONFIG,
		       "no token");
	place_write(http_place.path, "sesame", 6);
	for (mode_t bit = 1; bit <= 040; bit <<= 1) {
		assert_int_equal(chmod(http_place.path, 0600 | bit), 0);
		expect_refusal(url, &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .token_file = http_place.path},
			       SL_ECONFIG, "chmod 600");
	}
	assert_int_equal(chmod(http_place.path, 0600), 0);
	expect_refusal("http://me@127.0.0.1:1/in",
		       &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .token_file = http_place.path}, SL_EINVAL,
		       "token_file");
}

static void a_check_connects_and_sends_nothing(void **state)
{
	struct sl_err err = SL_ERR_INIT;
	(void)state;
	sl_sink sink = http_open(http_url("/in"), NULL);
	assert_int_equal(sink.ops->check(sink.ctx, &err), 0);
	(void)http_server_command(&http_server, "down");
	assert_int_equal(sink.ops->check(sink.ctx, &err), SL_EUNAVAIL);
	assert_int_equal(err.error_class, SL_CLASS_FATAL);
	(void)http_server_command(&http_server, "up");
	assert_int_equal(http_server_counts(&http_server).requests, 0);
	sl_sink_close(&sink);
}

/* ---- TLS ---- */

static struct http_result write_tls(const char *host, int port, const char *ca_file)
{
	char url[64];
	(void)snprintf(url, sizeof(url), "https://%s:%d/in", host, port);
	sl_sink sink = http_open(url, &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .ca_file = ca_file});
	void *lane = sink_attach(&sink);
	struct http_result r = http_write_two(&sink, lane);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
	return r;
}

static void only_a_certificate_that_is_trusted_for_the_name_will_do(void **state)
{
	struct http_server tls;
	char other[160];
	(void)state;
	http_server_certificate(http_place.path);
	(void)snprintf(other, sizeof(other), "%s.other", http_place.path);
	http_server_certificate(other);
	http_server_start(&tls, http_place.path, http_place.path);
	assert_int_equal(write_tls("127.0.0.1", tls.port, http_place.path).rc, 0);
	const struct http_result bad[] = {write_tls("127.0.0.1", tls.port, NULL),
					  write_tls("127.0.0.1", tls.port, other),
					  write_tls("localhost", tls.port, http_place.path)};
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(bad[i].rc, SL_ECONFIG);
		assert_int_equal(bad[i].err.error_class, SL_CLASS_FATAL);
		assert_non_null(strstr(bad[i].err.msg, "certificate"));
	}
	assert_int_equal(http_server_counts(&tls).requests, 1);
	http_server_stop(&tls);
}

int main(void)
{
	(void)umask(077); /* files with tokens are closed to others */
	const struct CMUnitTest tests[] = {
		HTTP_TEST(one_connection_serves_many_batches),
		HTTP_TEST(a_kept_connection_that_the_server_has_closed_is_made_anew),
		HTTP_TEST(the_end_of_a_long_answer_is_not_waited_for),
		HTTP_TEST(a_body_that_is_refused_before_it_was_sent_does_no_harm),
		HTTP_TEST(a_batch_that_is_too_large_is_halved),
		HTTP_TEST(a_batch_has_the_same_key_whenever_it_is_sent),
		HTTP_TEST(the_request_carries_what_the_options_say),
		HTTP_TEST(the_user_of_the_url_is_sent_as_basic_authorization),
		HTTP_TEST(any_json_value_is_an_item_of_an_array),
		HTTP_TEST(an_event_is_the_same_whenever_it_is_sent),
		HTTP_TEST(a_token_is_read_again_after_a_401),
		HTTP_TEST(a_renewed_token_file_costs_no_request_while_the_old_token_works),
		HTTP_TEST(a_token_that_is_still_the_same_is_not_tried_twice),
		HTTP_TEST(no_message_repeats_a_secret),
		HTTP_TEST(urls_that_mean_nothing_are_refused_without_being_shown),
		HTTP_TEST(options_that_mean_nothing_are_refused_by_name),
		HTTP_TEST(a_check_connects_and_sends_nothing),
		HTTP_TEST(only_a_certificate_that_is_trusted_for_the_name_will_do),
	};
	http_server_start(&http_server, NULL, NULL);
	int failed = cmocka_run_group_tests_name("http_sink", tests, NULL, NULL);
	http_server_stop(&http_server);
	return failed;
}
