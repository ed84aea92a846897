/* SPDX-License-Identifier: Apache-2.0 */
/* The sender over HTTP without a server: what it sends, and what it makes of answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <events.pb-c.h>

#include "jobs/events/http.h"

#define SHOWN "http://h:1"

struct given {
	int status;
	const char *type, *body;
	size_t len; /* 0: of the text */
	int64_t retry_after_ms;
};

static struct sl_err err;
static struct sl_wal_reply reply;

static int answer(const struct given *g)
{
	static char body[1024];
	struct sl_env env;
	size_t n = g->len != 0 ? g->len : strlen(g->body);
	const struct sl__event_http_peer peer = {.shown = SHOWN, .token = "sesame-token", .password = "sesame-word"};
	assert_int_equal(sl__env_init(&env, NULL, NULL), 0);
	memcpy(body, g->body, n);
	body[n] = '\0';
	struct sl__http_response r = {.status = g->status,
				      .type = g->type,
				      .body = body,
				      .len = n,
				      .has_retry_after = g->retry_after_ms >= 0,
				      .retry_after_ms = g->retry_after_ms};
	err = (struct sl_err)SL_ERR_INIT;
	reply = (struct sl_wal_reply){.mark = 99};
	return sl__event_http_answer(&r, &peer, &reply, &env, &err);
}

static void the_mark_of_a_server_acknowledges(void **state)
{
	(void)state;
	assert_int_equal(answer(&(struct given){200, "application/proto", "\x08\x2a", 2, -1}), 0);
	assert_int_equal(reply.mark, 42);
}

/* An empty body would be the mark 0: a receiver that has lost everything. */
static void a_200_that_is_not_from_a_server_acknowledges_nothing(void **state)
{
	(void)state;
	assert_int_equal(answer(&(struct given){200, "text/html", "<html>log in</html>", 0, -1}), SL_EUNAVAIL);
	assert_int_equal(answer(&(struct given){200, NULL, "", 0, -1}), SL_EUNAVAIL);
	assert_int_equal(answer(&(struct given){200, "application/proto", "\xff", 1, -1}), SL_EUNAVAIL);
	assert_int_equal(reply.mark, 99);
}

static void a_refusal_names_its_sequence(void **state)
{
	const struct given g = {422, "application/json",
				"{\"code\":\"invalid_argument\",\"message\":\"too old\",\"refused\":\"17\"}", 0, -1};
	(void)state;
	assert_int_equal(answer(&g), SL_EREFUSED);
	assert_int_equal(reply.refused, 17);
	assert_non_null(strstr(err.msg, "too old"));
}

static void what_a_proxy_refuses_is_tried_again(void **state)
{
	(void)state;
	assert_int_equal(answer(&(struct given){400, "text/html", "bad request", 0, -1}), SL_ECONFIG);
	assert_int_equal(answer(&(struct given){422, "application/json", "{\"error\":\"no\"}", 0, -1}), SL_ECONFIG);
	assert_int_equal(answer(&(struct given){409, "text/plain", "busy", 0, -1}), SL_ECONFIG);
	/* Less at once may do: the log halves its batch. */
	assert_int_equal(answer(&(struct given){413, "text/html", "too large", 0, -1}), SL_EREFUSED);
	assert_int_equal(reply.refused, 0);
}

static void a_conflict_of_the_server_stops(void **state)
{
	const struct given g = {409, "application/json", "{\"code\":\"already_exists\",\"message\":\"another CRC\"}", 0,
				-1};
	(void)state;
	assert_int_equal(answer(&g), SL_ECONFLICT);
}

static void a_throttling_answer_returns_how_long_to_wait(void **state)
{
	static const int statuses[] = {429, 503};
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(answer(&(struct given){statuses[i], "application/json", "{}", 0, 3000}), SL_EAGAIN);
		assert_int_equal(err.error_class, SL_CLASS_THROTTLED);
		assert_int_equal(err.retry_after_ms, 3000);
	}
}

static void everything_else_is_tried_for_ever(void **state)
{
	static const struct {
		int status, code;
	} cases[] = {{301, SL_ECONFIG}, {401, SL_EACCES},   {403, SL_EACCES},   {404, SL_ECONFIG},
		     {421, SL_ECONFIG}, {500, SL_EUNAVAIL}, {502, SL_EUNAVAIL}, {503, SL_EUNAVAIL}};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(answer(&(struct given){cases[i].status, "text/plain", "x", 0, -1}), cases[i].code);
		assert_int_equal(err.error_class, SL_CLASS_FATAL);
	}
}

static void no_message_repeats_a_secret(void **state)
{
	(void)state;
	assert_int_equal(answer(&(struct given){500, "text/plain", "sesame-token and sesame-word", 0, -1}),
			 SL_EUNAVAIL);
	assert_null(strstr(err.msg, "sesame"));
	assert_int_equal(answer(&(struct given){422, "application/json",
						"{\"code\":\"invalid_argument\",\"message\":\"no \\u0073esame-token, "
						"sesame\\u002dword\"}",
						0, -1}),
			 SL_EREFUSED);
	assert_null(strstr(err.msg, "sesame"));
}

static void a_batch_is_the_message_that_protobuf_reads(void **state)
{
	struct sl_env env;
	struct sl__buf body;
	void *bytes = NULL;
	size_t len = 0;
	uint64_t bad = 0;
	const struct sl_event event = {.type = SL_EVENT_STDOUT, .job_id = 300, .attempt = 2, .data = "hi", .len = 2};
	(void)state;
	assert_int_equal(sl__env_init(&env, NULL, NULL), 0);
	sl__buf_init(&body, &env);
	assert_int_equal(sl_event_encode(&event, NULL, &bytes, &len, &err), 0);
	const struct sl_wal_record records[] = {
		{.sequence = 200, .payload = bytes, .payload_len = len, .crc = UINT64_MAX},
		{.sequence = 203, .payload = bytes, .payload_len = len, .crc = 0}};
	const struct sl_wal_range skipped = {201, 202};
	const struct sl_wal_batch batch = {.stream = "w",
					   .incarnation = 70000,
					   .records = records,
					   .n_records = 2,
					   .skipped = &skipped,
					   .n_skipped = 1,
					   .last_sequence = 999};
	assert_int_equal(sl__event_http_body(&body, &batch, &bad, &err), 0);
	Sluice__V1__PublishJobEventsRequest *m =
		sluice__v1__publish_job_events_request__unpack(NULL, body.len, (const uint8_t *)body.data);
	assert_non_null(m);
	assert_string_equal(m->stream, "w");
	assert_int_equal(m->incarnation, 70000);
	assert_int_equal(m->last, 999);
	assert_int_equal(m->n_events, 2);
	assert_int_equal(m->events[0]->sequence, 200);
	assert_true(m->events[0]->crc == UINT64_MAX);
	assert_int_equal(m->events[1]->sequence, 203);
	assert_int_equal(m->events[1]->event->token->job_id, 300);
	assert_int_equal(m->n_skipped, 1);
	assert_int_equal(m->skipped[0]->last, 202);
	sluice__v1__publish_job_events_request__free_unpacked(m, NULL);
	sl_event_free(NULL, bytes);
	sl__buf_fini(&body);
}

static void a_record_that_is_no_event_is_refused_before_it_is_sent(void **state)
{
	struct sl_env env;
	struct sl__buf body;
	uint64_t bad = 0;
	const struct sl_wal_record record = {.sequence = 5, .payload = "\xff", .payload_len = 1};
	const struct sl_wal_batch batch = {.stream = "w", .records = &record, .n_records = 1};
	(void)state;
	assert_int_equal(sl__env_init(&env, NULL, NULL), 0);
	sl__buf_init(&body, &env);
	assert_int_equal(sl__event_http_body(&body, &batch, &bad, &err), SL_EREFUSED);
	assert_int_equal(bad, 5);
	sl__buf_fini(&body);
}

static void options_that_cannot_be_meant_are_named(void **state)
{
	static const struct sl_event_http_opts cases[] = {
		{SL_EVENT_HTTP_OPTS_INIT},
		{SL_EVENT_HTTP_OPTS_INIT, .url = "ftp://h"},
		{SL_EVENT_HTTP_OPTS_INIT, .url = "http://h/?x=1"},
		{SL_EVENT_HTTP_OPTS_INIT, .url = SHOWN, .target = "short"},
		{SL_EVENT_HTTP_OPTS_INIT, .url = SHOWN, .timeout_ms = -1},
		{SL_EVENT_HTTP_OPTS_INIT, .url = SHOWN, .token = ""},
		{SL_EVENT_HTTP_OPTS_INIT, .url = SHOWN, .token = " word"},
		{SL_EVENT_HTTP_OPTS_INIT, .url = SHOWN, .token = "word\r\nX-More: 1"},
		{SL_EVENT_HTTP_OPTS_INIT, .url = SHOWN, .token = "word", .token_file = "/nowhere/token"},
		{SL_EVENT_HTTP_OPTS_INIT, .url = "http://user:word@h", .token = "word"},
	};
	sl_event_http_sender *s = NULL;
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(sl_event_http_sender_new(&s, &cases[i], &err), SL_EINVAL);
	const struct sl_event_http_opts missing = {SL_EVENT_HTTP_OPTS_INIT, .url = SHOWN,
						   .token_file = "/nowhere/token"};
	assert_int_equal(sl_event_http_sender_new(&s, &missing, &err), SL_ENOENT);
	assert_null(s);
	sl_event_http_sender_free(NULL);
}

static void a_missing_ca_file_is_noticed_at_the_start(void **state)
{
	struct sl_event_http_opts opts = {SL_EVENT_HTTP_OPTS_INIT, .url = "https://localhost:1",
					  .ca_file = "/nowhere/ca.pem"};
	sl_event_http_sender *s = NULL;
	(void)state;
	assert_int_equal(sl_event_http_sender_new(&s, &opts, &err), SL_ENOENT);
	assert_non_null(strstr(err.msg, "ca_file /nowhere/ca.pem"));
	assert_null(s);
	opts.ca_file = "/dev/null"; /* it can be read; what is in it is TLS's matter */
	int before = dup(0);
	assert_int_equal(sl_event_http_sender_new(&s, &opts, &err), 0);
	sl_event_http_sender_free(s);
	int after = dup(0); /* the lowest free number: nothing was left open */
	assert_int_equal(after, before + 1);
	(void)close(before);
	(void)close(after);
}

/* Nothing listens on port 1. A cancel that came before the send ends it, and the next one runs again. */
static void a_cancel_is_not_lost_and_ends_one_send(void **state)
{
	const struct sl_event_http_opts opts = {SL_EVENT_HTTP_OPTS_INIT, .url = "http://127.0.0.1:1"};
	const struct sl_wal_batch batch = {.stream = "w"};
	sl_event_http_sender *s = NULL;
	(void)state;
	assert_int_equal(sl_event_http_sender_new(&s, &opts, &err), 0);
	sl_event_http_sender_ops()->cancel(s);
	assert_int_equal(sl_event_http_sender_ops()->send(&batch, &reply, &err, s), SL_ECANCELLED);
	assert_int_equal(sl_event_http_sender_ops()->send(&batch, &reply, &err, s), SL_EUNAVAIL);
	sl_event_http_sender_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_mark_of_a_server_acknowledges),
		cmocka_unit_test(a_missing_ca_file_is_noticed_at_the_start),
		cmocka_unit_test(a_200_that_is_not_from_a_server_acknowledges_nothing),
		cmocka_unit_test(a_refusal_names_its_sequence),
		cmocka_unit_test(what_a_proxy_refuses_is_tried_again),
		cmocka_unit_test(a_conflict_of_the_server_stops),
		cmocka_unit_test(a_throttling_answer_returns_how_long_to_wait),
		cmocka_unit_test(everything_else_is_tried_for_ever),
		cmocka_unit_test(no_message_repeats_a_secret),
		cmocka_unit_test(a_batch_is_the_message_that_protobuf_reads),
		cmocka_unit_test(a_record_that_is_no_event_is_refused_before_it_is_sent),
		cmocka_unit_test(options_that_cannot_be_meant_are_named),
		cmocka_unit_test(a_cancel_is_not_lost_and_ends_one_send),
	};
	(void)setenv("no_proxy", "*", 1);
	return cmocka_run_group_tests_name("event_http", tests, NULL, NULL);
}
