/* SPDX-License-Identifier: Apache-2.0 */
/* What the HTTP sink makes of answers: statuses, times to come back, items that they name, and those that never come.
 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/env.h"
#include "net/http.h"
#include "sink/http.h"
#include "sink/http_kit.h"
#include "support/vclock.h"

/* ---- statuses ---- */

static void each_status_has_its_class(void **state)
{
	static const struct http_expectation table[] = {
		{"200", 0, SL_CLASS_NONE, 0, ""},
		{"201", 0, SL_CLASS_NONE, 0, ""},
		{"204", 0, SL_CLASS_NONE, 0, ""},
		{"301", SL_ECONFIG, SL_CLASS_FATAL, 0, "301, redirects are not followed"},
		{"moved", SL_ECONFIG, SL_CLASS_FATAL, 0, "308 to https://elsewhere.example/new?…: redirects"},
		{"304", SL_ECONFIG, SL_CLASS_FATAL, 0, "304"},
		{"400", SL_EREFUSED, SL_CLASS_POISON, 0, "400, refused"},
		{"400@not_a_city|at_all", SL_EREFUSED, SL_CLASS_POISON, 0, "400, refused: not a city"},
		{"401", SL_EACCES, SL_CLASS_FATAL, 0, "check the token"},
		{"403", SL_EACCES, SL_CLASS_FATAL, 0, "forbidden"},
		{"404", SL_ECONFIG, SL_CLASS_FATAL, 0, "this URL does not exist"},
		{"405", SL_ECONFIG, SL_CLASS_FATAL, 0, "POST is not allowed"},
		{"408", SL_EAGAIN, SL_CLASS_TRANSIENT, 0, "408"},
		{"409", SL_EAGAIN, SL_CLASS_TRANSIENT, 0, "409"},
		{"410", SL_ECONFIG, SL_CLASS_FATAL, 0, "gone"},
		{"413", SL_ETOOBIG, SL_CLASS_POISON, 0, "too large"},
		{"415", SL_ECONFIG, SL_CLASS_FATAL, 0, "body"},
		{"418", SL_ECONFIG, SL_CLASS_FATAL, 0, "418"},
		{"422", SL_EREFUSED, SL_CLASS_POISON, 0, "422"},
		{"422@{\"error\":\"no_\\u0063ity\"}", SL_EREFUSED, SL_CLASS_POISON, 0, "422, refused: no city"},
		{"425", SL_EAGAIN, SL_CLASS_TRANSIENT, 0, "425"},
		{"429", SL_EAGAIN, SL_CLASS_THROTTLED, 0, "too many"},
		{"429:7", SL_EAGAIN, SL_CLASS_THROTTLED, 7000, "too many"},
		{"429:soon", SL_EAGAIN, SL_CLASS_THROTTLED, 0, "too many"},
		{"500", SL_EAGAIN, SL_CLASS_TRANSIENT, 0, "500, server error"},
		{"500:3@out_of_luck", SL_EAGAIN, SL_CLASS_TRANSIENT, 3000, "server error: out of luck"},
		{"501", SL_ECONFIG, SL_CLASS_FATAL, 0, "501"},
		{"502", SL_EUNAVAIL, SL_CLASS_FATAL, 0, "unavailable"},
		{"503", SL_EUNAVAIL, SL_CLASS_FATAL, 0, "unavailable"},
		{"503:120", SL_EAGAIN, SL_CLASS_THROTTLED, 120000, "unavailable"},
		{"504", SL_EUNAVAIL, SL_CLASS_FATAL, 0, "unavailable"},
		{"507", SL_EUNAVAIL, SL_CLASS_FATAL, 0, "space"},
		{"522", SL_EUNAVAIL, SL_CLASS_FATAL, 0, "unavailable"},
		{"599", SL_EAGAIN, SL_CLASS_TRANSIENT, 0, "599"},
	};
	(void)state;
	sl_sink sink = http_open(http_url("/in"), NULL);
	void *lane = sink_attach(&sink);
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		const struct http_expectation *e = &table[i];
		(void)http_server_command(&http_server, "script %s", e->behaviour);
		struct http_result r = http_write_two(&sink, lane);
		http_expect(&r, e);
		assert_true(r.rc == 0 || strncmp(r.err.msg, "http: http://127.0.0.1:", 23) == 0);
	}
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

/* The server's own Date counts, so that neither its clock nor ours matters. */
static void a_date_to_come_back_at_is_read_by_the_servers_clock(void **state)
{
	struct vclock clock; /* shows 2023 */
	(void)state;
	vclock_init(&clock);
	const struct sl_env env = {SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &clock};
	sl_sink sink = http_open(http_url("/in"), &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .env = &env});
	void *lane = sink_attach(&sink);
	(void)http_server_command(&http_server, "script 429:date+60 503:date+3600 429:date+-9999");
	struct http_result r = http_write_two(&sink, lane);
	assert_int_equal(r.err.error_class, SL_CLASS_THROTTLED);
	assert_in_range(r.err.retry_after_ms, 59000, 61000);
	r = http_write_two(&sink, lane);
	assert_int_equal(r.err.error_class, SL_CLASS_THROTTLED);
	assert_in_range(r.err.retry_after_ms, 3599000, 3601000);
	r = http_write_two(&sink, lane);
	assert_int_equal(r.err.retry_after_ms, 0);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
	vclock_fini(&clock);
}

static void retry_after_is_seconds_or_a_date_and_nothing_else(void **state)
{
	const int64_t now = 784111777000; /* Sun, 06 Nov 1994 08:49:37 GMT */
	int64_t ms = -1;
	(void)state;
	assert_true(sl__http_retry_after("0", now, &ms) && ms == 0);
	assert_true(sl__http_retry_after("120", now, &ms) && ms == 120000);
	assert_true(sl__http_retry_after("Sun, 06 Nov 1994 08:49:47 GMT", now, &ms) && ms == 10000);
	assert_true(sl__http_retry_after("Sunday, 06-Nov-94 08:49:47 GMT", now, &ms) && ms == 10000);
	assert_true(sl__http_retry_after("Sun Nov  6 08:49:47 1994", now, &ms) && ms == 10000);
	assert_true(sl__http_retry_after("Sun, 06 Nov 1994 08:00:00 GMT", now, &ms) && ms == 0);
	assert_true(sl__http_retry_after("99999999999999999999999999", now, &ms) && ms > 0);
	/* A year that milliseconds cannot count. */
	assert_true(sl__http_retry_after("Sun, 06 Nov 2147483647 08:49:47 GMT", now, &ms) && ms > now);
	ms = -1;
	assert_false(sl__http_retry_after("", now, &ms));
	assert_false(sl__http_retry_after("-1", now, &ms));
	assert_false(sl__http_retry_after("1.5", now, &ms));
	assert_false(sl__http_retry_after("12 apples", now, &ms));
	assert_false(sl__http_retry_after("soon", now, &ms));
	assert_int_equal(ms, -1);
}

/* The behaviour is that of every request, because libcurl repeats what fails on a kept connection. */
static void expect_and_recover(const sl_sink *sink, const struct http_expectation *table, size_t n)
{
	void *lane = sink_attach(sink);
	for (size_t i = 0; i < n; i++) {
		(void)http_server_command(&http_server, "always %s", table[i].behaviour);
		struct http_result r = http_write_two(sink, lane);
		http_expect(&r, &table[i]);
		(void)http_server_command(&http_server, "always usual");
		/* Where the time of requests is short, a busy machine may need several. */
		do {
			r = http_write_two(sink, lane);
		} while (r.rc == SL_ETIMEDOUT);
		assert_int_equal(r.rc, 0);
	}
	sink_detach(sink, lane);
}

static void an_answer_that_does_not_come_whole_is_fatal_and_the_lane_stays_usable(void **state)
{
	static const struct http_expectation table[] = {
		{"close", SL_EUNAVAIL, SL_CLASS_FATAL, 0, "the connection was lost"},
		{"reset", SL_EUNAVAIL, SL_CLASS_FATAL, 0, "the connection was lost"},
		{"half", SL_EUNAVAIL, SL_CLASS_FATAL, 0, "the connection was lost"},
		{"garbage", SL_EUNAVAIL, SL_CLASS_FATAL, 0, "the answer is not HTTP"},
	};
	(void)state;
	sl_sink sink = http_open(http_url("/in"), NULL);
	expect_and_recover(&sink, table, sizeof(table) / sizeof(table[0]));
	sl_sink_close(&sink);
}

static void an_answer_that_does_not_come_in_time_is_fatal_and_the_lane_stays_usable(void **state)
{
	static const struct http_expectation table[] = {
		{"hang", SL_ETIMEDOUT, SL_CLASS_FATAL, 0, "no answer in time"},
		{"drip", SL_ETIMEDOUT, SL_CLASS_FATAL, 0, "no answer in time"},
	};
	(void)state;
	sl_sink sink =
		http_open(http_url("/in"), &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .timeout_ms = HTTP_HANG_MS});
	expect_and_recover(&sink, table, sizeof(table) / sizeof(table[0]));
	sl_sink_close(&sink);
}

static void a_connection_that_is_not_taken_ends_with_the_connect_timeout(void **state)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(at);
	int full[4], fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char url[64];
	(void)state;
	assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
	assert_int_equal(listen(fd, 0), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
	for (size_t i = 0; i < 4; i++) {
		full[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		(void)connect(full[i], (struct sockaddr *)&at, size);
	}
	(void)snprintf(url, sizeof(url), "http://127.0.0.1:%d/", ntohs(at.sin_port));
	sl_sink sink = http_open(url, &(struct sl_sink_opts){SL_SINK_OPTS_INIT, .connect_timeout_ms = HTTP_HANG_MS});
	void *lane = sink_attach(&sink);
	struct http_result r = http_write_two(&sink, lane);
	assert_int_equal(r.rc, SL_ETIMEDOUT);
	assert_int_equal(r.err.error_class, SL_CLASS_FATAL);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
	for (size_t i = 0; i < 4; i++)
		(void)close(full[i]);
	(void)close(fd);
}

static void an_unknown_host_name_is_fatal(void **state)
{
	(void)state;
	sl_sink sink = http_open("http://unknown.invalid/in", NULL);
	void *lane = sink_attach(&sink);
	struct http_result r = http_write_two(&sink, lane);
	assert_int_equal(r.rc, SL_EUNAVAIL);
	assert_int_equal(r.err.error_class, SL_CLASS_FATAL);
	assert_non_null(strstr(r.err.msg, "unknown.invalid"));
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

/* ---- items that an answer names ---- */

static const char *const five[] = {"{\"id\":0}", "{\"id\":1}", "{\"id\":2}", "{\"id\":3}", "{\"id\":4}"};

struct naming {
	const char *answer;
	const char *outcomes; /* of the five: '.' as the batch, 'p' poison */
	const char *words;
};

static void expect_naming(const sl_sink *sink, void *lane, const struct naming *n)
{
	(void)http_server_command(&http_server, "script 422@%s", n->answer);
	struct http_result r = http_write(sink, lane, five, 5, 1, 0);
	assert_int_equal(r.rc, SL_EREFUSED);
	assert_int_equal(r.err.error_class, SL_CLASS_POISON);
	assert_int_equal(r.culprit, SL_SINK_NO_CULPRIT);
	for (size_t i = 0; i < 5; i++)
		if (r.outcomes[i] != (n->outcomes[i] == 'p' ? SL_SINK_POISON : SL_SINK_AS_BATCH))
			fail_msg("%s: item %zu is %d", n->answer, i, r.outcomes[i]);
	if (strstr(r.err.msg, n->words) == NULL)
		fail_msg("%s: %s", n->answer, r.err.msg);
}

static void an_answer_names_the_items_that_are_refused(void **state)
{
	static const struct naming table[] = {
		{"{\"index\":3}", "...p.", "422, refused"},
		{"{\"error\":\"no_city\",\"index\":0}", "p....", "refused: no city"},
		{"{\"errors\":[{\"index\":1,\"error\":\"a\"}]}", ".p...", "refused: a"},
		{"{\"errors\":[{\"index\":1,\"message\":\"a\"},{\"index\":4,\"message\":\"a\"}]}", ".p..p",
		 "refused: a"},
		{"{\"errors\":_[_{\"index\":1}_,_{\"index\":4}_]_}", ".p..p", "422, refused"},
		/* another reason: reported when the others are gone */
		{"{\"errors\":[{\"index\":2,\"detail\":\"a\"},{\"index\":3,\"detail\":\"b\"}]}", "..p..", "refused: a"},
		/* nothing that could be meant */
		{"{\"index\":5}", ".....", "422"},
		{"{\"index\":-1}", ".....", "422"},
		{"{\"index\":1.0}", ".....", "422"},
		{"{\"index\":\"1\"}", ".....", "422"},
		{"{\"index\":99999999999999999999}", ".....", "422"},
		{"{\"errors\":[]}", ".....", "422"},
		{"{\"errors\":[7]}", ".....", "422"},
		{"{\"errors\":{\"index\":1}}", ".....", "422"},
		{"{\"errors\":[{\"index\":9}],\"index\":2}", "..p..", "422"},
		{"{\"index\":1", ".....", "422"},
		{"[]", ".....", "422"},
		{"1", ".....", "422"},
	};
	(void)state;
	sl_sink sink = http_open(http_url("/in"), NULL);
	void *lane = sink_attach(&sink);
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		expect_naming(&sink, lane, &table[i]);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

/* Item 1 is not valid JSON and stays here, so that number 1 of the body is item 2. */
static void numbers_count_in_the_body_that_was_sent(void **state)
{
	static const char *const texts[] = {"{\"id\":0}", "{", "{\"id\":2}", "{\"id\":3}"};
	(void)state;
	sl_sink sink = http_open(http_url("/in"), NULL);
	void *lane = sink_attach(&sink);
	(void)http_server_command(&http_server, "script 422@{\"index\":1} 422@{\"index\":0} 422@{\"index\":3}");
	struct http_result r = http_write(&sink, lane, texts, 4, 1, 0);
	assert_int_equal(r.outcomes[2], SL_SINK_POISON);
	assert_int_equal(r.outcomes[1], SL_SINK_AS_BATCH);
	r = http_write(&sink, lane, texts, 4, 1, 0);
	assert_int_equal(r.outcomes[0], SL_SINK_POISON);
	r = http_write(&sink, lane, texts, 4, 1, 0);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(r.outcomes[i], SL_SINK_AS_BATCH);
	r = http_write(&sink, lane, texts, 4, 1, 0);
	assert_int_equal(r.rc, SL_EDATA);
	assert_memory_equal(r.outcomes,
			    ((uint8_t[]){SL_SINK_WRITTEN, SL_SINK_POISON, SL_SINK_WRITTEN, SL_SINK_WRITTEN}), 4);
	assert_string_equal(http_server_command(&http_server, "ids"), "0 2 3");
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

/* What a server repeats may be written with escapes, or follow a NUL. */
static void a_secret_is_hidden_however_it_is_written(void **state)
{
	static const char *const headers[] = {"X-Key: sesame-1"};
	static const struct {
		const char *text;
		size_t len;
	} bodies[] = {
#define BODY(text) {text, sizeof(text) - 1}
		BODY("{\"error\":\"no \\u0073esame-1\"}"),
		BODY("{\"error\":\"no sesame\\/2\"}"),
		BODY("{\"errors\":[{\"index\":0,\"message\":\"Bearer \\u0073ome sesame\\/2\"}]}"),
		BODY("no\0Basic bWU6c2VzYW1lLTQ="),
		BODY("no Basic\x7f"
		     "bWU6c2VzYW1lLTQ="),
		BODY("no\0 sesame/2"),
#undef BODY
	};
	struct sl_env env;
	struct sl__http_url url;
	(void)state;
	assert_int_equal(sl__env_init(&env, NULL, NULL), 0);
	assert_int_equal(sl__http_url_init(&url, "http://me:sesame-4@h/?key=sesame-3", &env, NULL), 0);
	const struct sl__http_secrets secrets = {.url = &url, .headers = headers, .n_headers = 1, .token = "sesame/2"};
	const struct sl__refusals none = SL__REFUSALS_INIT;
	for (size_t i = 0; i < SL_COUNT(bodies); i++) {
		struct sl_sink_item item = {.data = "{}", .len = 2};
		const struct sl_sink_batch batch = {.items = &item, .n = 1};
		uint8_t outcome = SL_SINK_AS_BATCH;
		struct sl_sink_reply reply = {.outcomes = &outcome};
		struct sl_err err = SL_ERR_INIT;
		char body[128] = "";
		memcpy(body, bodies[i].text, bodies[i].len);
		struct sl__http_response r = {.status = 422, .body = body, .len = bodies[i].len};
		const struct sl__http_answer_to to = {.batch = &batch, .refused = &none, .reply = &reply};
		assert_int_equal(sl__http_answer(&r, &secrets, &to, &err), SL_EREFUSED);
		if (strstr(err.msg, "sesame") != NULL || strstr(err.msg, "bWU6") != NULL ||
		    strstr(err.msg, "**") == NULL)
			fail_msg("%s", err.msg);
	}
	sl__http_url_fini(&url);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HTTP_TEST(each_status_has_its_class),
		HTTP_TEST(a_date_to_come_back_at_is_read_by_the_servers_clock),
		HTTP_TEST(retry_after_is_seconds_or_a_date_and_nothing_else),
		HTTP_TEST(an_answer_that_does_not_come_whole_is_fatal_and_the_lane_stays_usable),
		HTTP_TEST(an_answer_that_does_not_come_in_time_is_fatal_and_the_lane_stays_usable),
		HTTP_TEST(a_connection_that_is_not_taken_ends_with_the_connect_timeout),
		HTTP_TEST(an_unknown_host_name_is_fatal),
		HTTP_TEST(an_answer_names_the_items_that_are_refused),
		HTTP_TEST(numbers_count_in_the_body_that_was_sent),
		HTTP_TEST(a_secret_is_hidden_however_it_is_written),
	};
	http_server_start(&http_server, NULL, NULL);
	int failed = cmocka_run_group_tests_name("http_answer", tests, NULL, NULL);
	http_server_stop(&http_server);
	return failed;
}
