/* SPDX-License-Identifier: Apache-2.0 */
/* Following a job's events as server-sent events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "server/ingest_kit.h"

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
	kit_close(&kit);
	return 0;
}

static void publish(uint64_t first, size_t n)
{
	struct kit_result r = kit_send(sender, "w", 1, first, n, kit.job_id);
	if (r.rc != 0)
		fail_msg("%s", r.err.msg);
	assert_int_equal(r.mark, first + n - 1);
}

static void open_stream(struct ask_stream *s, const char *query, const char *headers)
{
	char path[128];
	(void)snprintf(path, sizeof(path), "/api/v1/jobs/%llu/events/stream%s", (unsigned long long)kit.job_id, query);
	assert_int_equal(ask_stream_open(s, kit.address, path, headers), 200);
}

/* The next event is the one with this offset, and its text is "w-SEQUENCE". */
static void expect_event(struct ask_stream *s, uint64_t offset, uint64_t sequence)
{
	const char *data = "";
	char text[32];
	assert_int_equal(ask_stream_next(s, &data), offset);
	json_t *v = json_loads(data, 0, NULL);
	(void)snprintf(text, sizeof(text), "w-%llu", (unsigned long long)sequence);
	assert_string_equal(json_string_value(json_object_get(v, "text")), text);
	assert_int_equal(json_integer_value(json_object_get(v, "offset")), offset);
	json_decref(v);
}

/* ---- */

static void what_is_there_comes_first_and_then_what_comes(void **state)
{
	struct ask_stream s;
	(void)state;
	publish(1, 2);
	open_stream(&s, "", "");
	expect_event(&s, 1, 1);
	expect_event(&s, 2, 2);
	publish(3, 1);
	expect_event(&s, 3, 3);
	publish(4, 2);
	expect_event(&s, 4, 4);
	expect_event(&s, 5, 5);
	ask_stream_close(&s);
}

static void a_stream_resumes_where_it_was_left(void **state)
{
	struct ask_stream s;
	(void)state;
	publish(1, 5);
	open_stream(&s, "?after=1", "Last-Event-ID: 3\r\n");
	expect_event(&s, 4, 4);
	ask_stream_close(&s);
	open_stream(&s, "?after=4", "");
	expect_event(&s, 5, 5);
	publish(6, 1);
	expect_event(&s, 6, 6);
	ask_stream_close(&s);
}

static void an_event_has_the_fields_that_the_api_names(void **state)
{
	const struct kit_record records[] = {
		{1, 1, {.type = SL_EVENT_STDERR, .attempt = 2, .ts_ms = 1700000000123, .data = "a\xff", .len = 2}},
		{2,
		 2,
		 {.type = SL_EVENT_STDOUT, .attempt = 2, .ts_ms = 1, .partial = true, .data = "a\0b\n\"", .len = 5}}};
	struct kit_record mine[2] = {records[0], records[1]};
	struct ask_stream s;
	const char *data = "";
	(void)state;
	mine[0].event.job_id = mine[1].event.job_id = kit.job_id;
	assert_int_equal(kit_send_records(sender, "w", 1, mine, 2, NULL, 0).rc, 0);
	open_stream(&s, "", "");
	assert_int_equal(ask_stream_next(&s, &data), 1);
	assert_string_equal(data, "{\"offset\":1,\"type\":\"stderr\",\"ts\":\"2023-11-14T22:13:20.123Z\",\"attempt\":2,"
				  "\"late\":true,\"partial\":false,\"stream\":\"w\",\"data_b64\":\"Yf8=\"}");
	assert_int_equal(ask_stream_next(&s, &data), 2);
	assert_string_equal(data, "{\"offset\":2,\"type\":\"stdout\",\"ts\":\"1970-01-01T00:00:00.001Z\",\"attempt\":2,"
				  "\"late\":true,\"partial\":true,\"stream\":\"w\",\"text\":\"a\\u0000b\\n\\\"\"}");
	ask_stream_close(&s);
}

static void what_another_process_writes_is_seen_as_well(void **state)
{
	struct ask_stream s;
	struct sl_err err = SL_ERR_INIT;
	struct sl_event_row row = {.stream = "other",
				   .incarnation = 1,
				   .sequence = 1,
				   .job_id = kit.job_id,
				   .type = SL_EVENT_STDOUT,
				   .payload = "w-7",
				   .payload_len = 3};
	struct sl_wal_mark mark = {0};
	(void)state;
	publish(1, 1);
	open_stream(&s, "", "");
	expect_event(&s, 1, 1);
	assert_int_equal(sl_events_take(&kit.inner, "other", 1, NULL, &row, 1, NULL, 0, &mark, &err), 0);
	expect_event(&s, 2, 7);
	ask_stream_close(&s);
}

static void events_of_other_jobs_are_not_in_it(void **state)
{
	struct ask_stream s;
	(void)state;
	open_stream(&s, "", "");
	assert_int_equal(kit_send(sender, "elsewhere", 1, 1, 3, kit.job_id + 1).rc, 0);
	publish(1, 1);
	expect_event(&s, 4, 1);
	ask_stream_close(&s);
}

static void an_unknown_job_or_an_invalid_offset_is_an_error(void **state)
{
	struct ask_answer a;
	(void)state;
	ask(kit.address, "GET", "/api/v1/jobs/4711/events/stream", "", NULL, 0, &a);
	assert_int_equal(a.status, 404);
	ask_free(&a);
	ask(kit.address, "GET", "/api/v1/jobs/x/events/stream", "", NULL, 0, &a);
	assert_int_equal(a.status, 400);
	ask_free(&a);
	ask(kit.address, "GET", "/api/v1/jobs/1/events/stream?after=-1", "", NULL, 0, &a);
	assert_int_equal(a.status, 400);
	ask_free(&a);
	ask(kit.address, "GET", "/api/v1/jobs/1/events/stream", "Last-Event-ID: soon\r\n", NULL, 0, &a);
	assert_int_equal(a.status, 400);
	ask_free(&a);
}

/* The window holds 256 KiB; he who does not read meanwhile gets everything, once and in order. */
static void a_slow_reader_misses_nothing(void **state)
{
	enum { N = 20000, STEP = 500 };
	struct ask_stream slow, fast;
	(void)state;
	open_stream(&slow, "", "");
	open_stream(&fast, "", "");
	for (uint64_t i = 1; i <= N; i += STEP) {
		publish(i, STEP);
		for (uint64_t k = i; k < i + STEP; k++)
			expect_event(&fast, k, k);
	}
	for (uint64_t k = 1; k <= N; k++)
		expect_event(&slow, k, k);
	publish(N + 1, 1);
	expect_event(&slow, N + 1, N + 1);
	expect_event(&fast, N + 1, N + 1);
	ask_stream_close(&slow);
	ask_stream_close(&fast);
}

/* Both ends of their connections are in this process. */
static size_t followers_possible(size_t want)
{
	struct rlimit files;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
	files.rlim_cur = files.rlim_max < want * 2 + 200 ? files.rlim_max : want * 2 + 200;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
	return (size_t)(files.rlim_cur - 200) / 2;
}

static void a_thousand_followers_of_one_job_share_what_is_read(void **state)
{
	enum { BATCHES = 20 };
	size_t n = followers_possible(1000);
	struct ask_stream *s = calloc(n, sizeof(*s));
	(void)state;
	publish(1, 1);
	for (size_t i = 0; i < n; i++) {
		open_stream(&s[i], "?after=0", "");
		expect_event(&s[i], 1, 1);
	}
	unsigned before = atomic_load(&kit.n_read);
	for (uint64_t b = 0; b < BATCHES; b++) {
		publish(2 + b * 3, 3);
		for (size_t i = 0; i < n; i++)
			for (uint64_t k = 0; k < 3; k++)
				expect_event(&s[i], 2 + b * 3 + k, 2 + b * 3 + k);
	}
	unsigned reads = atomic_load(&kit.n_read) - before;
	printf("# %zu followers, %d batches, %u reads of the store\n", n, BATCHES, reads);
	/* One a batch, and one a second for what others may have written, however long it all took. */
	assert_true(reads < n);
	for (size_t i = 0; i < n; i++)
		ask_stream_close(&s[i]);
	free(s);
}

static void an_unavailable_store_only_delays_events(void **state)
{
	struct ask_stream s;
	(void)state;
	publish(1, 1);
	open_stream(&s, "", "");
	expect_event(&s, 1, 1);
	atomic_store(&kit.away, 1);
	struct ask_stream late;
	open_stream(&late, "", "");
	struct sl_err err = SL_ERR_INIT;
	struct sl_event_row row = {.stream = "w2",
				   .incarnation = 1,
				   .sequence = 1,
				   .job_id = kit.job_id,
				   .type = 2,
				   .payload = "w-2",
				   .payload_len = 3};
	struct sl_wal_mark mark = {0};
	assert_int_equal(sl_events_take(&kit.inner, "w2", 1, NULL, &row, 1, NULL, 0, &mark, &err), 0);
	atomic_store(&kit.away, 0);
	expect_event(&s, 2, 2);
	expect_event(&late, 1, 1);
	expect_event(&late, 2, 2);
	ask_stream_close(&s);
	ask_stream_close(&late);
}

static void a_server_that_stops_ends_its_streams(void **state)
{
	struct ask_stream s;
	const char *data;
	(void)state;
	publish(1, 1);
	open_stream(&s, "", "");
	expect_event(&s, 1, 1);
	kit_stop(&kit);
	assert_int_equal(ask_stream_next(&s, &data), 0);
	ask_stream_close(&s);
}

int main(void)
{
#define FOLLOW_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		FOLLOW_TEST(what_is_there_comes_first_and_then_what_comes),
		FOLLOW_TEST(a_stream_resumes_where_it_was_left),
		FOLLOW_TEST(an_event_has_the_fields_that_the_api_names),
		FOLLOW_TEST(what_another_process_writes_is_seen_as_well),
		FOLLOW_TEST(events_of_other_jobs_are_not_in_it),
		FOLLOW_TEST(an_unknown_job_or_an_invalid_offset_is_an_error),
		FOLLOW_TEST(a_slow_reader_misses_nothing),
		FOLLOW_TEST(a_thousand_followers_of_one_job_share_what_is_read),
		FOLLOW_TEST(an_unavailable_store_only_delays_events),
		FOLLOW_TEST(a_server_that_stops_ends_its_streams),
	};
	return cmocka_run_group_tests_name("follow", tests, NULL, NULL);
}
