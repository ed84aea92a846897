/* SPDX-License-Identifier: Apache-2.0 */
/* The receiver of logs, over real HTTP into a real store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <events.pb-c.h>

#include "server/ingest_kit.h"

#define PUBLISH "/sluice.v1.JobEvents/PublishJobEvents"

static struct kit kit;
static sl_event_http_sender *sender;

static int set_up(void **state)
{
	(void)state;
	kit_open(&kit, NULL);
	sender = kit_sender(&kit);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	sl_event_http_sender_free(sender);
	sender = NULL;
	kit_close(&kit);
	return 0;
}

static void expect_mark(struct kit_result r, uint64_t mark)
{
	if (r.rc != 0)
		fail_msg("%s: %s", sl_err_name(r.rc), r.err.msg);
	assert_int_equal(r.mark, mark);
}

/* ---- taking ---- */

static void a_batch_is_in_the_store_when_its_mark_is_answered(void **state)
{
	struct sl_event_row row;
	(void)state;
	expect_mark(kit_send(sender, "w-1", 7, 1, 3, kit.job_id), 3);
	assert_int_equal(kit_events(&kit), 3);
	assert_string_equal(kit_event(&kit, 2, &row), "w-1-2");
	assert_int_equal(row.sequence, 2);
	assert_int_equal(row.incarnation, 7);
	assert_int_equal(row.job_id, kit.job_id);
	assert_int_equal(row.attempt, 1);
	assert_int_equal(row.type, SL_EVENT_STDOUT);
	assert_int_equal(row.ts_ms, 1700000000000);
	assert_int_equal(row.crc, 2 * 0x9E3779B97F4A7C15u);
}

static void what_comes_again_is_taken_once(void **state)
{
	(void)state;
	expect_mark(kit_send(sender, "w", 1, 1, 5, kit.job_id), 5);
	expect_mark(kit_send(sender, "w", 1, 1, 5, kit.job_id), 5);
	expect_mark(kit_send(sender, "w", 1, 4, 4, kit.job_id), 7);
	assert_int_equal(kit_events(&kit), 7);
}

static void streams_and_incarnations_have_marks_of_their_own(void **state)
{
	(void)state;
	expect_mark(kit_send(sender, "a", 1, 1, 2, kit.job_id), 2);
	expect_mark(kit_send(sender, "a", 2, 1, 1, kit.job_id), 1);
	expect_mark(kit_send(sender, "b", 1, 1, 4, kit.job_id), 4);
	expect_mark(kit_send(sender, "a", 1, 3, 0, 0), 2);
	assert_int_equal(kit_events(&kit), 7);
}

static void a_gap_is_answered_with_the_mark_and_nothing_is_taken(void **state)
{
	(void)state;
	expect_mark(kit_send(sender, "w", 1, 1, 2, kit.job_id), 2);
	expect_mark(kit_send(sender, "w", 1, 5, 3, kit.job_id), 2);
	assert_int_equal(kit_events(&kit), 2);
}

static void skipped_sequences_move_the_mark(void **state)
{
	const struct sl_wal_range skipped[] = {{1, 2}, {4, 9}};
	const struct kit_record records[] = {
		{3, 30, {.type = SL_EVENT_LOG, .ts_ms = 1, .data = "three", .len = 5}},
		{10, 100, {.type = SL_EVENT_LOG, .ts_ms = 1, .data = "ten", .len = 3}},
	};
	(void)state;
	expect_mark(kit_send_records(sender, "w", 1, records, 2, skipped, 2), 10);
	assert_int_equal(kit_events(&kit), 2);
	assert_string_equal(kit_event(&kit, 2, NULL), "ten");
}

static void lines_without_a_job_have_no_job_and_no_attempt(void **state)
{
	struct sl_event_row row;
	const struct kit_record record = {
		1, 10, {.type = SL_EVENT_STDOUT, .attempt = 3, .ts_ms = 5, .data = "hi", .len = 2}};
	(void)state;
	expect_mark(kit_send_records(sender, "ship", 1, &record, 1, NULL, 0), 1);
	(void)kit_event(&kit, 1, &row);
	assert_int_equal(row.job_id, 0);
	assert_int_equal(row.attempt, 0);
	assert_int_equal(row.late, 0);
}

static void json_is_taken_as_protobuf_is(void **state)
{
	struct sl_event_row row;
	struct ask_answer a;
	(void)state;
	kit_post_json(
		&kit,
		"{\"stream\":\"curl\",\"incarnation\":3,\"token\":{\"jobId\":\"1\",\"attempt\":2},\"unknown\":[1],"
		"\"events\":[{\"sequence\":\"1\",\"crc\":\"18446744073709551615\",\"event\":{\"type\":\"STDOUT\","
		"\"tsMs\":\"1700000000123\",\"data\":\"aGVsbG8=\",\"partial\":true}},{\"sequence\":2,\"crc\":7,"
		"\"event\":{\"type\":7,\"ts_ms\":-5,\"token\":{\"job_id\":9},\"data\":\"_-8\"}}],"
		"\"skipped\":[{\"first\":3,\"last\":\"5\"}]}",
		&a);
	if (a.status != 200)
		fail_msg("%d %s", a.status, a.body);
	assert_string_equal(a.body, "{\"mark\":\"5\",\"markSkipped\":true}");
	assert_string_equal(ask_header(&a, "Content-Type"), "application/json");
	ask_free(&a);
	assert_string_equal(kit_event(&kit, 1, &row), "hello");
	assert_int_equal(row.job_id, 1);
	assert_int_equal(row.attempt, 2);
	assert_int_equal(row.partial, 1);
	assert_int_equal(row.crc, UINT64_MAX);
	assert_int_equal(row.ts_ms, 1700000000123);
	assert_string_equal(kit_event(&kit, 2, &row), "\xff\xef");
	assert_int_equal(row.job_id, 0); /* job 9 does not exist */
	assert_int_equal(row.late, 1);
	assert_int_equal(row.ts_ms, -5);
}

static void a_log_is_sent_through_it_as_a_whole(void **state)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT, .wal_dir = kit.dir, .archive_on_complete = SL_OFF};
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	sl_wal *log = NULL;
	char text[32];
	(void)state;
	assert_int_equal(sl_wal_open(&log, "whole", &opts, &err), 0);
	for (int i = 1; i <= 200; i++) {
		struct sl_event event = {.type = SL_EVENT_STDOUT, .job_id = kit.job_id, .attempt = 1, .data = text};
		void *bytes = NULL;
		size_t len = 0;
		event.len = (size_t)snprintf(text, sizeof(text), "line %d", i);
		assert_int_equal(sl_event_encode(&event, NULL, &bytes, &len, &err), 0);
		assert_int_equal(sl_wal_append(log, i == 100 ? "no event" : bytes, i == 100 ? 8 : len, NULL, &err), 0);
		sl_event_free(NULL, bytes);
	}
	assert_int_equal(sl_wal_sender_start(log, sl_event_http_sender_ops(), sender, &err), 0);
	assert_int_equal(sl_wal_sender_stop(log, SL_UNLIMITED, &err), 0);
	assert_int_equal(sl_wal_get_stats(log, &stats, &err), 0);
	assert_int_equal(stats.failed, 1);
	assert_int_equal(stats.sent, 199);
	assert_int_equal(sl_wal_close(log, &err), 0);
	assert_int_equal(kit_events(&kit), 199);
	assert_string_equal(kit_event(&kit, 99, NULL), "line 99");
	assert_string_equal(kit_event(&kit, 100, NULL), "line 101");
}

/* ---- refusing ---- */

static void another_content_under_a_known_sequence_is_a_conflict(void **state)
{
	const struct kit_record other = {1, 1, {.type = SL_EVENT_LOG, .data = "other", .len = 5}};
	(void)state;
	expect_mark(kit_send(sender, "w", 1, 1, 1, kit.job_id), 1);
	struct kit_result r = kit_send_records(sender, "w", 1, &other, 1, NULL, 0);
	assert_int_equal(r.rc, SL_ECONFLICT);
	assert_int_equal(kit_events(&kit), 1);
	/* Others are not in its way. */
	expect_mark(kit_send(sender, "w", 1, 2, 1, kit.job_id), 2);
}

static void an_event_that_no_store_can_keep_is_refused_by_its_sequence(void **state)
{
	const struct kit_record records[] = {{1, 1, {.type = SL_EVENT_LOG, .ts_ms = 1}},
					     {2, 2, {.type = SL_EVENT_LOG, .ts_ms = INT64_MAX}}};
	(void)state;
	struct kit_result r = kit_send_records(sender, "w", 1, records, 2, NULL, 0);
	assert_int_equal(r.rc, SL_EREFUSED);
	assert_int_equal(r.refused, 2);
	expect_mark(kit_send_records(sender, "w", 1, records, 1, NULL, 0), 1);
}

/* The edges of what is refused. */
static void what_a_store_can_just_keep_is_taken(void **state)
{
	char longest[SRV_STREAM_BYTES];
	const struct kit_record records[] = {
		{1, 1, {.type = SL_EVENT_LOG, .ts_ms = INT64_C(-62135596800000)}},
		{2, 2, {.type = SL_EVENT_LOG, .ts_ms = INT64_C(253402300799999)}},
		{5, 5, {.type = SL_EVENT_LOG, .ts_ms = 1}},
		{7, 7, {.type = SL_EVENT_LOG, .ts_ms = 1}},
	};
	const struct sl_wal_range skipped[] = {{3, 3}, {4, 4}, {6, 6}, {8, 9}};
	(void)state;
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	expect_mark(kit_send_records(sender, "w", 1, records, 4, skipped, 4), 9);
	expect_mark(kit_send_records(sender, "w", 2, records, 1, NULL, 0), 1);
	expect_mark(kit_send_records(sender, longest, 1, records, 1, NULL, 0), 1);
}

/* A large piece has a block to itself; the room that the block before it has left is still used. */
static void a_large_piece_of_a_publish_wastes_no_memory(void **state)
{
	struct srv_publish *p = srv_publish_new(100000);
	(void)state;
	assert_non_null(p);
	char *first = srv_publish_alloc(p, 16), *large = srv_publish_alloc(p, 20000);
	assert_non_null(first);
	assert_non_null(large);
	memset(large, 1, 20000);
	assert_ptr_equal(srv_publish_alloc(p, 16), first + 16);
	assert_int_equal(p->bytes, 16 + 20000 + 16);
	/* And it ends at its bound. */
	assert_null(srv_publish_alloc(p, p->bytes_max - p->bytes + 1));
	assert_non_null(srv_publish_alloc(p, (p->bytes_max - p->bytes) / 16 * 16));
	srv_publish_unref(p);
}

static void an_event_that_the_store_refuses_is_named_and_those_before_it_are_taken(void **state)
{
	(void)state;
	kit.poison = "w-3";
	struct kit_result r = kit_send(sender, "w", 1, 1, 5, kit.job_id);
	assert_int_equal(r.rc, SL_EREFUSED);
	assert_int_equal(r.refused, 3);
	assert_non_null(strstr(r.err.msg, "no poison here"));
	assert_int_equal(kit_events(&kit), 2);
	const struct sl_wal_range parked = {3, 3};
	const struct kit_record next = {4, 4, {.type = SL_EVENT_LOG, .data = "on", .len = 2}};
	expect_mark(kit_send_records(sender, "w", 1, &next, 1, &parked, 1), 4);
}

static void a_refused_event_is_422_with_its_sequence(void **state)
{
	struct ask_answer a;
	(void)state;
	kit_post_json(&kit, "{\"stream\":\"w\",\"events\":[{\"sequence\":1,\"event\":{}}]}", &a);
	assert_int_equal(a.status, 422);
	json_t *v = json_loads(a.body, 0, NULL);
	assert_string_equal(json_string_value(json_object_get(v, "code")), "invalid_argument");
	assert_string_equal(json_string_value(json_object_get(v, "refused")), "1");
	json_decref(v);
	ask_free(&a);
}

static void a_server_on_another_store_takes_nothing(void **state)
{
	struct sl_err err = SL_ERR_INIT;
	const struct sl_event_http_opts opts = {SL_EVENT_HTTP_OPTS_INIT, .url = kit.url,
						.target = "00000000000000000000000000000000"};
	sl_event_http_sender *other = NULL;
	(void)state;
	assert_int_equal(sl_event_http_sender_new(&other, &opts, &err), 0);
	struct kit_result r = kit_send(other, "w", 1, 1, 1, kit.job_id);
	assert_int_equal(r.rc, SL_ECONFIG);
	assert_int_equal(kit_events(&kit), 0);
	sl_event_http_sender_free(other);
}

static void what_is_no_request_gets_a_reason(void **state)
{
	static const struct {
		const char *headers, *body;
		int status;
		const char *code;
	} cases[] = {
		{"Content-Type: application/proto\r\n", "\xff", 400, "invalid_argument"},
		{"Content-Type: application/json\r\n", "{", 400, "invalid_argument"},
		{"Content-Type: application/json\r\n", "[]", 400, "invalid_argument"},
		{"Content-Type: application/json\r\n", "{\"stream\":\"../x\"}", 400, "invalid_argument"},
		{"Content-Type: application/json\r\n", "{\"stream\":\"a\\u0000b\"}", 400, "invalid_argument"},
		{"Content-Type: application/json\r\n", "{\"stream\":\"x.wal\"}", 400, "invalid_argument"},
		{"Content-Type: application/json\r\n", "{\"stream\":\"x\",\"incarnation\":-1}", 400,
		 "invalid_argument"},
		{"Content-Type: application/json\r\n",
		 "{\"stream\":\"x\",\"events\":[{\"sequence\":2,\"event\":{\"type\":1}},"
		 "{\"sequence\":2,\"event\":{\"type\":1}}]}",
		 400, "invalid_argument"},
		{"Content-Type: application/json\r\n", "{\"stream\":\"x\",\"skipped\":[{\"first\":3,\"last\":2}]}", 400,
		 "invalid_argument"},
		{"Content-Type: application/json\r\n",
		 "{\"stream\":\"x\",\"events\":[{\"sequence\":2,\"event\":{\"type\":1}}],\"skipped\":[{\"first\":1,"
		 "\"last\":2}]}",
		 400, "invalid_argument"},
		{"Content-Type: application/json\r\n",
		 "{\"stream\":\"x\",\"events\":[{\"sequence\":2,\"event\":{\"type\":1,\"data\":\"***\"}}]}", 400,
		 "invalid_argument"},
		{"Content-Type: application/json\r\n", "{\"stream\":\"x\",\"stream\":\"y\"}", 400, "invalid_argument"},
		{"Content-Type: application/json\r\n",
		 "{\"stream\":\"x\",\"events\":[{\"sequence\":1,\"event\":{\"type\":1,\"\\u0074ype\":7}}]}", 400,
		 "invalid_argument"},
		{"Content-Type: text/plain\r\n", "hello", 415, "unimplemented"},
		{"", "hello", 415, "unimplemented"},
		{"Content-Type: application/proto\r\nConnect-Protocol-Version: 2\r\n", "", 400, "failed_precondition"},
		{"Content-Type: application/proto\r\n", "", 400, "invalid_argument"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ask_answer a;
		ask(kit.address, "POST", PUBLISH, cases[i].headers, cases[i].body, strlen(cases[i].body), &a);
		if (a.status != cases[i].status)
			fail_msg("%s: %d %s", cases[i].body, a.status, a.body);
		json_t *v = json_loads(a.body, 0, NULL);
		assert_string_equal(json_string_value(json_object_get(v, "code")), cases[i].code);
		assert_true(json_string_length(json_object_get(v, "message")) > 0);
		json_decref(v);
		ask_free(&a);
	}
	assert_int_equal(kit_events(&kit), 0);
}

/* ---- what is in a message ---- */

/* A message of two good events and two good skipped ranges, for a test to break in one place. */
struct message {
	Sluice__V1__PublishJobEventsRequest request;
	Sluice__V1__LoggedEvent logged[2], *events[2];
	Sluice__V1__JobEvent event[2];
	Sluice__V1__TaskToken token;
	Sluice__V1__SequenceRange range[2], *ranges[2];
	uint8_t claim[16];
	char stream[SRV_STREAM_BYTES + 1];
};

static void good_message(struct message *m)
{
	memset(m, 0, sizeof(*m));
	sluice__v1__publish_job_events_request__init(&m->request);
	sluice__v1__task_token__init(&m->token);
	m->token.job_id = 9;
	m->token.attempt = 1;
	m->token.claim = (ProtobufCBinaryData){sizeof(m->claim), m->claim};
	for (size_t i = 0; i < 2; i++) {
		sluice__v1__job_event__init(&m->event[i]);
		m->event[i].type = SLUICE__V1__JOB_EVENT__TYPE__LOG;
		m->event[i].ts_ms = 1;
		m->event[i].token = &m->token;
		sluice__v1__logged_event__init(&m->logged[i]);
		m->logged[i].sequence = 10 * (i + 1);
		m->logged[i].event = &m->event[i];
		m->events[i] = &m->logged[i];
		sluice__v1__sequence_range__init(&m->range[i]);
		m->range[i].first = 10 * (i + 1) + 1;
		m->range[i].last = 10 * (i + 1) + 9;
		m->ranges[i] = &m->range[i];
	}
	(void)strcpy(m->stream, "w");
	m->request.stream = m->stream;
	m->request.events = m->events;
	m->request.skipped = m->ranges;
	m->request.n_events = m->request.n_skipped = 2;
}

static void parse_message(struct message *m, int rc, const char *why, uint64_t refused)
{
	struct sl_err err = SL_ERR_INIT;
	size_t n = sluice__v1__publish_job_events_request__get_packed_size(&m->request);
	uint8_t *body = malloc(n);
	assert_non_null(body);
	(void)sluice__v1__publish_job_events_request__pack(&m->request, body);
	struct srv_publish *p = srv_publish_new(n);
	assert_non_null(p);
	int got = srv_publish_proto(p, body, n, &err);
	if (got != rc || strstr(err.msg, why) == NULL || p->refused != refused)
		fail_msg("%d, refused %llu (%s), not %d, refused %llu (%s)", got, (unsigned long long)p->refused,
			 err.msg, rc, (unsigned long long)refused, why);
	srv_publish_unref(p);
	free(body);
}

static void every_part_of_a_message_that_no_store_can_keep_is_refused_by_name(void **state)
{
	struct message m;
	(void)state;
	good_message(&m);
	parse_message(&m, 0, "", 0);
#define BREAK(change, rc, why, refused)                                                                                \
	do {                                                                                                           \
		good_message(&m);                                                                                      \
		change;                                                                                                \
		parse_message(&m, rc, why, refused);                                                                   \
	} while (0)
	/* Events, each by its sequence. */
	BREAK(m.event[1].type = 0, SL_EREFUSED, "type", 20);
	BREAK(m.event[1].type = (Sluice__V1__JobEvent__Type)-1, SL_EREFUSED, "type", 20);
	BREAK(m.logged[1].event = NULL, SL_EREFUSED, "type", 20);
	BREAK(m.event[1].ts_ms = INT64_C(-62135596800001), SL_EREFUSED, "its time", 20);
	BREAK(m.event[1].ts_ms = INT64_C(253402300800000), SL_EREFUSED, "its time", 20);
	BREAK(m.token.job_id = (uint64_t)INT64_MAX + 1, SL_EREFUSED, "no such job", 10);
	BREAK(m.token.job_id = INT64_MAX, 0, "", 0);
	BREAK(m.token.attempt = -1, SL_EREFUSED, "negative attempt", 10);
	BREAK(m.token.claim.len = 15, SL_EREFUSED, "its claim must be 16 bytes", 10);
	BREAK(m.token.claim.len = 0, 0, "", 0);
	/* The order of sequences and ranges. */
	BREAK(m.logged[0].sequence = 0, SL_EDATA, "sequence 0 does not come after 0", 0);
	BREAK(m.logged[1].sequence = 10, SL_EDATA, "sequence 10 does not come after 10", 0);
	BREAK(m.logged[1].sequence = 9, SL_EDATA, "sequence 9 does not come after 10", 0);
	BREAK(m.logged[1].sequence = (uint64_t)INT64_MAX + 1, SL_EDATA, "does not come after 10", 0);
	BREAK(m.range[0].first = 0, SL_EDATA, "not in order", 0);
	BREAK(m.range[1].first = 19, SL_EDATA, "not in order", 0);
	BREAK(m.range[1].last = 20, SL_EDATA, "not in order", 0);
	BREAK(m.range[1].last = (uint64_t)INT64_MAX + 1, SL_EDATA, "not in order", 0);
	BREAK(m.range[1].last = INT64_MAX, 0, "", 0);
	BREAK(m.range[0].first = 10, SL_EDATA, "event 10 is both sent and skipped", 0);
	BREAK(m.range[0].last = 20, SL_EDATA, "event 20 is both sent and skipped", 0);
	/* The name of the stream. */
	BREAK(m.stream[0] = '\0', SL_EDATA, "stream: ", 0);
	BREAK((void)strcpy(m.stream, ".w"), SL_EDATA, "stream: ", 0);
	BREAK((void)strcpy(m.stream, "a/b"), SL_EDATA, "stream: ", 0);
	BREAK((void)strcpy(m.stream, "a.wal"), SL_EDATA, "stream: ", 0);
	BREAK(memset(m.stream, 'x', SRV_STREAM_BYTES), SL_EDATA, "stream: ", 0);
	BREAK(memset(m.stream, 'x', SRV_STREAM_BYTES - 1), 0, "", 0);
#undef BREAK
}

static void more_events_or_ranges_than_one_request_may_have_are_too_many(void **state)
{
	struct message m;
	(void)state;
	good_message(&m);
	/* Large enough that the bound of a message's memory is not met first. */
	m.range[0].first = m.range[0].last = UINT64_MAX;
	for (int which = 0; which < 2; which++) {
		size_t n = SRV_PUBLISH_EVENTS + 1;
		void **all = malloc(n * sizeof(*all));
		assert_non_null(all);
		for (size_t i = 0; i < n; i++)
			all[i] = which == 0 ? (void *)&m.logged[0] : (void *)&m.range[0];
		m.request.events = (Sluice__V1__LoggedEvent **)all;
		m.request.skipped = (Sluice__V1__SequenceRange **)all;
		m.request.n_events = which == 0 ? n : 0;
		m.request.n_skipped = which == 0 ? 0 : n;
		parse_message(&m, SL_ETOOBIG, "more than 65536 events", 0);
		free(all);
	}
}

static void empty_messages_without_end_are_too_much_for_their_size(void **state)
{
	/* 22 00: an event without anything. 200,000 of them would become 56 bytes each. */
	size_t n = 400000;
	char *body = malloc(n);
	struct ask_answer a;
	(void)state;
	for (size_t i = 0; i < n; i += 2) {
		body[i] = 0x22;
		body[i + 1] = 0;
	}
	ask(kit.address, "POST", PUBLISH, "Content-Type: application/proto\r\n", body, n, &a);
	assert_int_equal(a.status, 400);
	ask_free(&a);
	free(body);
}

/* ---- a store in trouble ---- */

/* Senders do not hurry; these do, a little. */
static void pause_briefly(void)
{
	const struct timespec time = {.tv_nsec = 20000000};
	(void)nanosleep(&time, NULL);
}

/* Until the member of what is at the path is this text. */
static void await_text(const char *path, const char *member, const char *text)
{
	for (bool is = false; !is;) {
		json_t *v = kit_get(&kit, path);
		const char *now = json_string_value(json_object_get(v, member));
		assert_non_null(now);
		is = strcmp(now, text) == 0;
		json_decref(v);
	}
}

static void an_unavailable_store_is_503_and_nothing_is_lost_or_duplicated(void **state)
{
	(void)state;
	expect_mark(kit_send(sender, "w", 1, 1, 2, kit.job_id), 2);
	atomic_store(&kit.away, 1);
	struct kit_result r = kit_send(sender, "w", 1, 3, 2, kit.job_id);
	assert_int_equal(r.rc, SL_EAGAIN);
	assert_int_equal(r.err.error_class, SL_CLASS_THROTTLED);
	assert_int_equal(r.err.retry_after_ms, 1000);
	await_text("/api/v1/backpressure", "state", "refusing");
	await_text("/api/v1/backpressure", "breaker", "open");
	/* Of what comes now, one is kept to find out when the store is back. No sender waits for that. */
	for (int i = 0; i < 3; i++)
		assert_int_equal(kit_send(sender, "v", 1, 1, 1, kit.job_id).rc, SL_EAGAIN);
	atomic_store(&kit.away, 0);
	while ((r = kit_send(sender, "w", 1, 3, 2, kit.job_id)).rc == SL_EAGAIN)
		pause_briefly();
	expect_mark(r, 4);
	while ((r = kit_send(sender, "v", 1, 1, 1, kit.job_id)).rc == SL_EAGAIN)
		pause_briefly();
	expect_mark(r, 1);
	assert_int_equal(kit_events(&kit), 5);
}

static void narrow(struct srv_config *config)
{
	config->coordinator_capacity = 2;
	config->coordinator_workers = 1;
	config->coordinator_batch_size = 1;
}

struct one_send {
	struct kit *k;
	const char *stream;
	struct kit_result result;
	pthread_t thread;
};

static void *send_one(void *ctx)
{
	struct one_send *x = ctx;
	sl_event_http_sender *s = kit_sender(x->k);
	x->result = kit_send(s, x->stream, 1, 1, 1, x->k->job_id);
	sl_event_http_sender_free(s);
	return NULL;
}

static json_int_t depth(struct kit *k)
{
	json_t *v = kit_get(k, "/api/v1/backpressure");
	json_int_t n = json_integer_value(json_object_get(v, "depth"));
	json_decref(v);
	return n;
}

static void a_full_queue_is_429_and_what_was_queued_is_taken(void **state)
{
	struct one_send x[3] = {{.k = &kit, .stream = "a"}, {.k = &kit, .stream = "b"}, {.k = &kit, .stream = "c"}};
	struct ask_answer a;
	(void)state;
	tear_down(state);
	kit_open(&kit, narrow);
	kit_block(&kit, true);
	assert_int_equal(pthread_create(&x[0].thread, NULL, send_one, &x[0]), 0);
	kit_await_waiting(&kit, 1);
	for (int i = 1; i < 3; i++) {
		assert_int_equal(pthread_create(&x[i].thread, NULL, send_one, &x[i]), 0);
		while (depth(&kit) < i)
			;
	}
	kit_post_json(&kit, "{\"stream\":\"d\",\"events\":[{\"sequence\":1,\"event\":{\"type\":1}}]}", &a);
	assert_int_equal(a.status, 429);
	assert_string_equal(ask_header(&a, "Retry-After"), "1");
	assert_non_null(strstr(a.body, "resource_exhausted"));
	ask_free(&a);
	json_t *v = kit_get(&kit, "/api/v1/backpressure");
	assert_string_equal(json_string_value(json_object_get(v, "state")), "refusing");
	assert_int_equal(json_integer_value(json_object_get(v, "capacity")), 2);
	json_decref(v);
	kit_block(&kit, false);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(pthread_join(x[i].thread, NULL), 0);
		expect_mark(x[i].result, 1);
	}
	assert_int_equal(kit_events(&kit), 3);
}

static void senders_in_the_queue_also_learn_that_the_store_is_unavailable(void **state)
{
	struct one_send x[3] = {{.k = &kit, .stream = "a"}, {.k = &kit, .stream = "b"}, {.k = &kit, .stream = "c"}};
	(void)state;
	tear_down(state);
	kit_open(&kit, narrow);
	kit_block(&kit, true);
	assert_int_equal(pthread_create(&x[0].thread, NULL, send_one, &x[0]), 0);
	kit_await_waiting(&kit, 1);
	for (int i = 1; i < 3; i++) {
		assert_int_equal(pthread_create(&x[i].thread, NULL, send_one, &x[i]), 0);
		while (depth(&kit) < i)
			;
	}
	atomic_store(&kit.away, 1);
	kit_block(&kit, false);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(pthread_join(x[i].thread, NULL), 0);
		assert_int_equal(x[i].result.rc, SL_EAGAIN);
	}
	/* Their items are still there, and come again: once each. */
	atomic_store(&kit.away, 0);
	for (int i = 0; i < 3; i++)
		do
			(void)send_one(&x[i]);
		while (x[i].result.rc == SL_EAGAIN);
	assert_int_equal(kit_events(&kit), 3);
}

static void requests_of_many_streams_share_a_transaction(void **state)
{
	enum { N = 8 };
	static char names[N][8];
	struct one_send x[N];
	(void)state;
	kit_block(&kit, true);
	for (int i = 0; i < N; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "s%d", i);
		x[i] = (struct one_send){.k = &kit, .stream = names[i]};
	}
	/* Four workers have one each; the others wait in the queue. */
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_create(&x[i].thread, NULL, send_one, &x[i]), 0);
		kit_await_waiting(&kit, (unsigned)i + 1);
	}
	for (int i = 4; i < N; i++)
		assert_int_equal(pthread_create(&x[i].thread, NULL, send_one, &x[i]), 0);
	while (depth(&kit) < 4)
		;
	kit_block(&kit, false);
	for (int i = 0; i < N; i++) {
		assert_int_equal(pthread_join(x[i].thread, NULL), 0);
		expect_mark(x[i].result, 1);
	}
	assert_int_equal(kit_events(&kit), N);
	assert_true(atomic_load(&kit.n_append) < N);
}

static void one_streams_trouble_is_not_its_neighbours(void **state)
{
	struct one_send x[] = {
		{.k = &kit, .stream = "first"}, {.k = &kit, .stream = "bad"}, {.k = &kit, .stream = "good"}};
	(void)state;
	tear_down(state);
	kit_open(&kit, narrow);
	kit.config.coordinator_capacity = 10;
	kit.config.coordinator_batch_size = 10;
	kit_stop(&kit);
	kit_start(&kit);
	kit.poison = "bad-1";
	kit_block(&kit, true);
	assert_int_equal(pthread_create(&x[0].thread, NULL, send_one, &x[0]), 0);
	kit_await_waiting(&kit, 1);
	for (int i = 1; i < 3; i++)
		assert_int_equal(pthread_create(&x[i].thread, NULL, send_one, &x[i]), 0);
	while (depth(&kit) < 2)
		;
	kit_block(&kit, false);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_join(x[i].thread, NULL), 0);
	expect_mark(x[0].result, 1);
	expect_mark(x[2].result, 1);
	assert_int_equal(x[1].result.rc, SL_EREFUSED);
	assert_int_equal(x[1].result.refused, 1);
	assert_int_equal(kit_events(&kit), 2);
}

/* More of them than open the breaker, before anything was ever taken. Each of them is answered in the end. */
static void streams_that_the_store_never_takes(char letter)
{
	struct one_send x[8];
	char odd[8][8];
	kit_open(&kit, narrow);
	kit.config.coordinator_capacity = 100;
	kit.config.coordinator_breaker_open_ms = 10;
	kit.config.coordinator_breaker_open_max_ms = 100;
	kit.config.coordinator_give_up_after_ms = 1000;
	kit_stop(&kit);
	kit_start(&kit);
	for (int i = 0; i < 8; i++) {
		(void)snprintf(odd[i], sizeof(odd[i]), "odd%c%d", letter, i);
		x[i] = (struct one_send){.k = &kit, .stream = odd[i]};
		assert_int_equal(pthread_create(&x[i].thread, NULL, send_one, &x[i]), 0);
	}
	sl_event_http_sender *s = kit_sender(&kit);
	for (int i = 0; i < 20; i++) {
		char stream[16];
		(void)snprintf(stream, sizeof(stream), "good%d", i);
		struct kit_result r;
		while ((r = kit_send(s, stream, 1, 1, 1, kit.job_id)).rc != 0) { /* a sender comes again */
			assert_true(sl_err_retryable(&r.err));
			pause_briefly();
		}
		expect_mark(r, 1);
	}
	for (int i = 0; i < 8; i++) {
		assert_int_equal(pthread_join(x[i].thread, NULL), 0);
		assert_int_not_equal(x[i].result.rc, 0);
	}
	assert_int_equal(kit_events(&kit), 20);
	sl_event_http_sender_free(s);
}

static void streams_that_the_store_never_takes_keep_no_other_from_it(void **state)
{
	for (const char *letter = "thfp"; *letter != '\0'; letter++) {
		tear_down(state);
		streams_that_the_store_never_takes(*letter);
	}
}

/* A sender that comes again: until it is taken or refused, or, as the store does neither, three times. */
static void *send_again(void *ctx)
{
	struct one_send *x = ctx;
	sl_event_http_sender *s = kit_sender(x->k);
	bool for_ever = strncmp(x->stream, "odd", 3) == 0 && x->stream[3] != 'p';
	for (int i = 0; !for_ever || i < 3; i++) {
		x->result = kit_send(s, x->stream, 1, 1, 1, x->k->job_id);
		if (x->result.rc == 0 || !sl_err_retryable(&x->result.err))
			break;
		pause_briefly();
	}
	sl_event_http_sender_free(s);
	return NULL;
}

/* Good streams and streams that fail for ever, with every class of error, in any mixture and order. */
static void mix_streams(uint64_t seed)
{
	enum { N = 24 };
	struct one_send x[N];
	char names[N][16];
	unsigned good = 0;
	for (int i = 0; i < N; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		unsigned dice = (unsigned)(seed >> 33);
		bool odd = dice % 2 == 0;
		(void)snprintf(names[i], sizeof(names[i]), odd ? "odd%c%d" : "good%c%d", "thfpn"[dice / 2 % 5], i);
		good += !odd;
		x[i] = (struct one_send){.k = &kit, .stream = names[i]};
	}
	for (int i = 0; i < N; i++)
		assert_int_equal(pthread_create(&x[i].thread, NULL, send_again, &x[i]), 0);
	for (int i = 0; i < N; i++) {
		assert_int_equal(pthread_join(x[i].thread, NULL), 0);
		if (strncmp(x[i].stream, "good", 4) == 0)
			expect_mark(x[i].result, 1);
		else
			assert_int_not_equal(x[i].result.rc, 0);
		if (strncmp(x[i].stream, "oddp", 4) == 0)
			assert_int_equal(x[i].result.rc, SL_EREFUSED);
	}
	assert_int_equal(kit_events(&kit), good);
}

static void quick(struct srv_config *config)
{
	config->coordinator_workers = 2;
	config->coordinator_batch_size = 4;
	config->coordinator_max_attempts = 3;
	config->coordinator_initial_backoff_ms = 5;
	config->coordinator_max_backoff_ms = 20;
	config->coordinator_breaker_open_ms = 10;
	config->coordinator_breaker_open_max_ms = 50;
	config->coordinator_give_up_after_ms = 500;
}

static void whatever_the_store_answers_to_some_streams_all_others_are_taken(void **state)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		tear_down(state);
		kit_open(&kit, quick);
		mix_streams(seed);
	}
}

static struct kit_result send_until_taken(int i)
{
	char stream[16];
	struct kit_result r;
	(void)snprintf(stream, sizeof(stream), "good%d", i);
	while ((r = kit_send(sender, stream, 1, 1, 1, kit.job_id)).rc == SL_EAGAIN)
		pause_briefly();
	return r;
}

/* Its sender was answered, and comes again and again: the queue is no place for what the store does not take. */
static void a_stream_has_at_most_one_publish_that_no_sender_waits_for(void **state)
{
	struct sl_err err = SL_ERR_INIT;
	json_int_t moving = 1, retrying = 0;
	tear_down(state);
	kit_open(&kit, quick);
	kit.config.coordinator_give_up_after_ms = 0;
	kit_stop(&kit);
	kit_start(&kit);
	sender = kit_sender(&kit);
	for (int i = 0; i < 20; i++) {
		struct kit_result r = kit_send(sender, "oddf1", 1, 1, 1, kit.job_id);
		assert_int_equal(r.rc, SL_EAGAIN);
		expect_mark(send_until_taken(i), 1);
	}
	while (moving > 0) {
		json_t *v = kit_get(&kit, "/api/v1/coordinator");
		moving = json_integer_value(json_object_get(v, "queue_size")) +
			 json_integer_value(json_object_get(v, "in_flight"));
		retrying = json_integer_value(json_object_get(v, "retrying"));
		json_decref(v);
	}
	assert_int_equal(retrying, 1);
	assert_int_equal(srv_ingest_stop(kit.ingest, 0, &err), 0); /* what waits for ever is not waited for */
}

static void a_server_that_stops_answers_who_waits(void **state)
{
	struct one_send x = {.k = &kit, .stream = "w"};
	struct sl_err err = SL_ERR_INIT;
	(void)state;
	kit_block(&kit, true);
	assert_int_equal(pthread_create(&x.thread, NULL, send_one, &x), 0);
	kit_await_waiting(&kit, 1);
	assert_int_equal(srv_http_stop(kit.http, 60000, &err), 0);
	assert_int_equal(pthread_join(x.thread, NULL), 0);
	assert_int_equal(x.result.rc, SL_EAGAIN);
	kit_block(&kit, false);
	kit_stop(&kit);
	/* It had been accepted, and is written; that it comes again changes nothing. */
	assert_int_equal(kit_events(&kit), 1);
	kit_start(&kit);
	expect_mark(kit_send(sender, "w", 1, 1, 1, kit.job_id), 1);
	assert_int_equal(kit_events(&kit), 1);
}

static void a_client_that_leaves_is_no_trouble(void **state)
{
	static const char body[] = "{\"stream\":\"w\",\"events\":[{\"sequence\":1,\"event\":{\"type\":1}}]}";
	(void)state;
	kit_block(&kit, true);
	int fd = ask_connect(kit.address);
	ask_send(fd, "POST", PUBLISH, "Content-Type: application/json\r\n", body, sizeof(body) - 1);
	kit_await_waiting(&kit, 1);
	(void)close(fd);
	kit_block(&kit, false);
	while (kit_events(&kit) < 1)
		;
	expect_mark(kit_send(sender, "v", 1, 1, 1, kit.job_id), 1);
}

/* ---- what can be seen ---- */

static void streams_are_listed_with_their_marks_and_what_waits(void **state)
{
	(void)state;
	expect_mark(kit_send(sender, "a", 1, 1, 3, kit.job_id), 3);
	expect_mark(kit_send(sender, "b", 2, 1, 1, kit.job_id), 1);
	json_t *v = kit_get(&kit, "/api/v1/streams?limit=1");
	json_t *item = json_array_get(json_object_get(v, "items"), 0);
	assert_string_equal(json_string_value(json_object_get(item, "stream")), "a");
	assert_int_equal(json_integer_value(json_object_get(item, "mark")), 3);
	assert_int_equal(json_integer_value(json_object_get(item, "lag")), 7);
	assert_string_equal(json_string_value(json_object_get(item, "last_at")), "2023-11-14T22:13:20.000Z");
	char path[128];
	(void)snprintf(path, sizeof(path), "/api/v1/streams?cursor=%s",
		       json_string_value(json_object_get(v, "next_cursor")));
	json_decref(v);
	v = kit_get(&kit, path);
	item = json_array_get(json_object_get(v, "items"), 0);
	assert_string_equal(json_string_value(json_object_get(item, "stream")), "b");
	assert_int_equal(json_integer_value(json_object_get(item, "incarnation")), 2);
	assert_true(json_is_null(json_object_get(v, "next_cursor")));
	json_decref(v);
}

static void the_coordinator_reports_its_state(void **state)
{
	struct sl_err err = SL_ERR_INIT;
	char target[33];
	(void)state;
	expect_mark(kit_send(sender, "a", 1, 1, 3, kit.job_id), 3);
	json_t *v = kit_get(&kit, "/api/v1/coordinator");
	while (json_integer_value(json_object_get(v, "written")) == 0) { /* counted after the answer */
		json_decref(v);
		v = kit_get(&kit, "/api/v1/coordinator");
	}
	assert_int_equal(json_integer_value(json_object_get(v, "accepted")), 1);
	assert_int_equal(json_integer_value(json_object_get(v, "written")), 1);
	assert_string_equal(json_string_value(json_object_get(v, "breaker")), "closed");
	assert_true(json_is_null(json_object_get(v, "last_error")));
	json_decref(v);
	v = kit_get(&kit, "/api/v1/backpressure");
	assert_string_equal(json_string_value(json_object_get(v, "state")), "ok");
	assert_int_equal(json_integer_value(json_object_get(v, "high")), 8000);
	assert_int_equal(json_integer_value(json_object_get(v, "low")), 5000);
	assert_int_equal(json_integer_value(json_object_get(v, "retry_after_ms")), 0);
	json_decref(v);
	assert_int_equal(sl_event_http_sender_target(sender, target, &err), 0);
	assert_string_equal(target, kit.target);
}

int main(void)
{
#define INGEST_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		INGEST_TEST(a_batch_is_in_the_store_when_its_mark_is_answered),
		INGEST_TEST(what_comes_again_is_taken_once),
		INGEST_TEST(streams_and_incarnations_have_marks_of_their_own),
		INGEST_TEST(a_gap_is_answered_with_the_mark_and_nothing_is_taken),
		INGEST_TEST(skipped_sequences_move_the_mark),
		INGEST_TEST(lines_without_a_job_have_no_job_and_no_attempt),
		INGEST_TEST(json_is_taken_as_protobuf_is),
		INGEST_TEST(a_log_is_sent_through_it_as_a_whole),
		INGEST_TEST(another_content_under_a_known_sequence_is_a_conflict),
		INGEST_TEST(an_event_that_no_store_can_keep_is_refused_by_its_sequence),
		INGEST_TEST(what_a_store_can_just_keep_is_taken),
		INGEST_TEST(a_large_piece_of_a_publish_wastes_no_memory),
		INGEST_TEST(an_event_that_the_store_refuses_is_named_and_those_before_it_are_taken),
		INGEST_TEST(a_refused_event_is_422_with_its_sequence),
		INGEST_TEST(a_server_on_another_store_takes_nothing),
		INGEST_TEST(what_is_no_request_gets_a_reason),
		INGEST_TEST(every_part_of_a_message_that_no_store_can_keep_is_refused_by_name),
		INGEST_TEST(more_events_or_ranges_than_one_request_may_have_are_too_many),
		INGEST_TEST(empty_messages_without_end_are_too_much_for_their_size),
		INGEST_TEST(an_unavailable_store_is_503_and_nothing_is_lost_or_duplicated),
		INGEST_TEST(a_full_queue_is_429_and_what_was_queued_is_taken),
		INGEST_TEST(senders_in_the_queue_also_learn_that_the_store_is_unavailable),
		INGEST_TEST(requests_of_many_streams_share_a_transaction),
		INGEST_TEST(one_streams_trouble_is_not_its_neighbours),
		INGEST_TEST(streams_that_the_store_never_takes_keep_no_other_from_it),
		INGEST_TEST(whatever_the_store_answers_to_some_streams_all_others_are_taken),
		INGEST_TEST(a_stream_has_at_most_one_publish_that_no_sender_waits_for),
		INGEST_TEST(a_server_that_stops_answers_who_waits),
		INGEST_TEST(a_client_that_leaves_is_no_trouble),
		INGEST_TEST(streams_are_listed_with_their_marks_and_what_waits),
		INGEST_TEST(the_coordinator_reports_its_state),
	};
	return cmocka_run_group_tests_name("ingest", tests, NULL, NULL);
}
