/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP part with real sockets and a virtual clock. */
#include "http_kit.h"
#include "support/quiet.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct fixture {
	struct http_kit kit;
	sem_t entered, leave; /* of /block */
	sem_t gone, done, filled;
	pthread_mutex_t mu;
	srv_request *waiting; /* of /long, mu */
	srv_stream *stream;   /* mu */
	int lines;            /* to send, mu */
	int sent;
	bool end;
};

static void hello(srv_request *r, void *ctx)
{
	(void)ctx;
	srv_json(r, 200,
		 json_pack("{s:s?,s:s?,s:s}", "id", srv_param(r, "id"), "q", srv_query(r, "q"), "actor", srv_actor(r)));
}

static void echo(srv_request *r, void *ctx)
{
	size_t n;
	const void *body = srv_body(r, &n);
	(void)ctx;
	srv_bytes(r, 200, "application/octet-stream", body, n);
}

static void silent(srv_request *r, void *ctx)
{
	(void)r;
	(void)ctx;
}

static void block(srv_request *r, void *ctx)
{
	struct fixture *f = ctx;
	sem_post(&f->entered);
	sem_wait(&f->leave);
	srv_json(r, 200, json_pack("{s:s?}", "header", srv_header(r, "X-Mine")));
}

static srv_request *take_waiting(struct fixture *f)
{
	pthread_mutex_lock(&f->mu);
	srv_request *r = f->waiting;
	f->waiting = NULL;
	pthread_mutex_unlock(&f->mu);
	return r;
}

static void long_gone(srv_request *r, void *ctx)
{
	struct fixture *f = ctx;
	if (take_waiting(f) == r)
		srv_error(r, 408, "timeout", "nothing came");
	sem_post(&f->gone);
}

static void wait_long(srv_request *r, void *ctx)
{
	struct fixture *f = ctx;
	srv_later(r, long_gone, f);
	pthread_mutex_lock(&f->mu);
	f->waiting = r;
	pthread_mutex_unlock(&f->mu);
	sem_post(&f->entered);
}

static ssize_t fill(srv_stream *s, char *buf, size_t cap, void *ctx)
{
	struct fixture *f = ctx;
	ssize_t n = 0;
	pthread_mutex_lock(&f->mu);
	f->stream = s;
	if (f->lines > f->sent)
		n = snprintf(buf, cap, "data: %d\n\n", ++f->sent);
	else if (f->end)
		n = -1;
	pthread_mutex_unlock(&f->mu);
	if (n == 0)
		sem_post(&f->filled);
	return n;
}

static void done(void *ctx)
{
	struct fixture *f = ctx;
	pthread_mutex_lock(&f->mu);
	f->stream = NULL;
	pthread_mutex_unlock(&f->mu);
	sem_post(&f->done);
}

static void stream(srv_request *r, void *ctx)
{
	const struct srv_stream_ops ops = {.fill = fill, .done = done};
	srv_stream_open(r, &ops, ctx);
}

static void send_lines(struct fixture *f, int n)
{
	pthread_mutex_lock(&f->mu);
	f->lines += n;
	if (f->stream != NULL)
		srv_stream_wake(f->stream);
	pthread_mutex_unlock(&f->mu);
}

static const char page[] = "<!doctype html>";

static void asset(srv_request *r, void *ctx)
{
	(void)ctx;
	srv_static(r, &(struct srv_content){"text/html; charset=utf-8", page, sizeof(page) - 1, "gzip", "\"v1\"", 0});
}

static void failing(srv_request *r, void *ctx)
{
	struct sl_err err = {.code = -atoi(srv_param(r, "code")), .retry_after_ms = 2500, .msg = "why"};
	(void)ctx;
	srv_fail(r, &err);
}

static void count_json(srv_request *r, void *ctx)
{
	json_t *body = srv_body_json(r);
	(void)ctx;
	if (body != NULL)
		srv_json(r, 200, json_pack("{s:i}", "n", (int)json_array_size(body)));
}

/* Which thread it runs on. */
static void thread_name(srv_request *r, void *ctx)
{
	char name[16] = "";
	(void)ctx;
	pthread_getname_np(pthread_self(), name, sizeof(name));
	bool worker = strcmp(name, "http-worker") == 0;
	srv_bytes(r, 200, "text/plain", worker ? "worker" : "network", worker ? 6 : 7);
}

static srv_handler_fn stream_waking;

static const struct srv_route routes[] = {
	{"GET", "/quick/{id}", SRV_READ, SRV_QUICK, hello, NULL},
	{"GET", "/pool/{id}", SRV_READ, 0, hello, NULL},
	{"POST", "/echo", SRV_WRITE, 0, echo, NULL},
	{"POST", "/json", SRV_WRITE, SRV_QUICK, count_json, NULL},
	{"GET", "/silent", SRV_READ, 0, silent, NULL},
	{"GET", "/block", SRV_READ, 0, block, NULL},
	{"GET", "/long", SRV_READ, SRV_LONG, wait_long, NULL},
	{"GET", "/long-quick", SRV_READ, SRV_LONG | SRV_QUICK, wait_long, NULL},
	{"GET", "/stream", SRV_READ, 0, stream, NULL},
	{"GET", "/waking", SRV_READ, 0, stream_waking, NULL},
	{"GET", "/asset", SRV_PUBLIC, SRV_QUICK, asset, NULL},
	{"GET", "/fail/{code}", SRV_READ, 0, failing, NULL},
	{"GET", "/easy", SRV_READ, SRV_EASY, thread_name, NULL},
	{"GET", "/where", SRV_READ, 0, thread_name, NULL},
	{"GET", "/easy-block", SRV_READ, SRV_EASY, block, NULL},
};

static struct fixture *make(const struct srv_http_opts *opts)
{
	struct fixture *f = calloc(1, sizeof(*f));
	sem_init(&f->entered, 0, 0);
	sem_init(&f->leave, 0, 0);
	sem_init(&f->gone, 0, 0);
	sem_init(&f->done, 0, 0);
	sem_init(&f->filled, 0, 0);
	pthread_mutex_init(&f->mu, NULL);
	kit_start(&f->kit, opts, routes, sizeof(routes) / sizeof(routes[0]), f);
	return f;
}

static void unmake(struct fixture *f)
{
	sem_destroy(&f->entered);
	sem_destroy(&f->leave);
	sem_destroy(&f->gone);
	sem_destroy(&f->done);
	sem_destroy(&f->filled);
	pthread_mutex_destroy(&f->mu);
	free(f);
}

static int set_up(void **state)
{
	*state = make(NULL);
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	for (int i = 0; i < 8; i++)
		sem_post(&f->leave); /* a test that failed may have left some waiting */
	kit_stop(&f->kit);
	unmake(f);
	return 0;
}

static void assert_answer(struct answer a, int status, const char *body)
{
	assert_int_equal(a.status, status);
	if (body != NULL)
		assert_string_equal(a.body, body);
	answer_free(&a);
}

static void quick_and_pooled_handlers_answer_alike(void **state)
{
	struct fixture *f = *state;
	static const char body[] = "{\"id\":\"a/b\",\"q\":\"x y\",\"actor\":\"local\"}";
	assert_answer(kit_ask(&f->kit, "GET", "/quick/a%2Fb?q=x+y", "", ""), 200, body);
	assert_answer(kit_ask(&f->kit, "GET", "/pool/a%2Fb?q=x%20y", "", ""), 200, body);
}

/* It runs on the network thread, once the workers of requests that were answered before are seen to be idle. */
static void await_easy(struct fixture *f)
{
	quiet_await();
	assert_answer(kit_ask(&f->kit, "GET", "/easy", "", ""), 200, "network");
}

/* What shares the store's readers with the workers runs beside one of them, never in the way of two: the network thread
 * would wait for a reader, and everybody with it. */
static void an_easy_handler_runs_on_the_network_thread_while_hardly_a_worker_is_busy(void **state)
{
	struct fixture *f = *state;
	int fd[2];
	assert_answer(kit_ask(&f->kit, "GET", "/where", "", ""), 200, "worker");
	for (int i = 0; i < 2; i++) {
		await_easy(f);
		fd[i] = kit_connect(&f->kit);
		kit_send(fd[i], "GET /block HTTP/1.1\r\nHost: localhost\r\n\r\n");
		sem_wait(&f->entered);
	}
	assert_answer(kit_ask(&f->kit, "GET", "/easy", "", ""), 200, "worker");
	/* One that has to wait waits there, and holds up no other. */
	int easy = kit_connect(&f->kit);
	kit_send(easy, "GET /easy-block HTTP/1.1\r\nHost: localhost\r\n\r\n");
	sem_wait(&f->entered);
	assert_answer(kit_ask(&f->kit, "GET", "/quick/1", "", ""), 200,
		      "{\"id\":\"1\",\"q\":null,\"actor\":\"local\"}");
	for (int i = 0; i < 3; i++)
		sem_post(&f->leave);
	for (int i = 0; i < 2; i++) {
		assert_answer(kit_read(fd[i], false), 200, "{\"header\":null}");
		close(fd[i]);
	}
	assert_answer(kit_read(easy, false), 200, "{\"header\":null}");
	close(easy);
	/* And again, when they have ended. */
	await_easy(f);
}

static void a_connection_serves_one_request_after_the_other(void **state)
{
	struct fixture *f = *state;
	int fd = kit_connect(&f->kit);
	for (int i = 0; i < 20; i++) {
		kit_send(fd, i % 2 == 0 ? "GET /quick/1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
					: "GET /pool/1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
		assert_answer(kit_read(fd, false), 200, "{\"id\":\"1\",\"q\":null,\"actor\":\"local\"}");
	}
	close(fd);
}

static void pipelined_requests_are_answered_in_order(void **state)
{
	struct fixture *f = *state;
	int fd = kit_connect(&f->kit);
	kit_send(fd, "GET /pool/1 HTTP/1.1\r\nHost: localhost\r\n\r\nGET /quick/2 HTTP/1.1\r\nHost: localhost\r\n\r\n"
		     "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc");
	assert_answer(kit_read(fd, false), 200, "{\"id\":\"1\",\"q\":null,\"actor\":\"local\"}");
	assert_answer(kit_read(fd, false), 200, "{\"id\":\"2\",\"q\":null,\"actor\":\"local\"}");
	assert_answer(kit_read(fd, false), 200, "abc");
	close(fd);
}

static void bodies_come_by_length_and_in_chunks(void **state)
{
	struct fixture *f = *state;
	char *big = malloc(300001);
	memset(big, 'x', 300000);
	big[300000] = '\0';
	assert_answer(kit_ask(&f->kit, "POST", "/echo", "", big), 200, big);
	assert_answer(kit_ask(&f->kit, "POST", "/echo", "Expect: 100-continue\r\n", "later"), 200, "later");
	assert_answer(kit_ask(&f->kit, "POST", "/echo", "", ""), 200, "");
	int fd = kit_connect(&f->kit);
	kit_send(fd, "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
	kit_send(fd, "4;x=y\r\ndefg\r\n0\r\n\r\n");
	assert_answer(kit_read(fd, false), 200, "abcdefg");
	close(fd);
	free(big);
}

static void invalid_json_is_answered_with_its_line(void **state)
{
	struct fixture *f = *state;
	struct answer a = kit_ask(&f->kit, "POST", "/json", "", "[1,\n2,}");
	assert_int_equal(a.status, 400);
	assert_non_null(strstr(a.body, "line 2"));
	answer_free(&a);
	assert_answer(kit_ask(&f->kit, "POST", "/json", "", "[1,2]"), 200, "{\"n\":2}");
}

static void a_handler_that_does_not_answer_is_answered_for(void **state)
{
	struct fixture *f = *state;
	assert_answer(kit_ask(&f->kit, "GET", "/silent", "", ""), 500, NULL);
}

static void head_options_and_unsupported_methods_are_answered(void **state)
{
	struct fixture *f = *state;
	struct answer a = kit_ask(&f->kit, "HEAD", "/quick/1", "", "");
	assert_int_equal(a.status, 200);
	assert_string_equal(answer_field(&a, "Content-Length"), "35");
	answer_free(&a);
	a = kit_ask(&f->kit, "OPTIONS", "/echo", "", "");
	assert_int_equal(a.status, 204);
	assert_string_equal(answer_field(&a, "Allow"), "POST, OPTIONS");
	answer_free(&a);
	a = kit_ask(&f->kit, "DELETE", "/echo", "", "");
	assert_int_equal(a.status, 405);
	assert_string_equal(answer_field(&a, "Allow"), "POST, OPTIONS");
	answer_free(&a);
	assert_answer(kit_ask(&f->kit, "GET", "/nothing", "", ""), 404, NULL);
	a = kit_ask(&f->kit, "HEAD", "/stream", "", "");
	assert_int_equal(a.status, 200);
	answer_free(&a);
	sem_wait(&f->done);
}

static void errors_become_statuses(void **state)
{
	struct fixture *f = *state;
	static const struct {
		const char *path;
		int status;
		const char *after;
	} cases[] = {
		{"/fail/1", 400, NULL},  {"/fail/5", 404, NULL},  {"/fail/6", 409, NULL}, {"/fail/19", 409, NULL},
		{"/fail/10", 413, NULL}, {"/fail/12", 429, "3"},  {"/fail/20", 503, "3"}, {"/fail/14", 503, "3"},
		{"/fail/18", 422, NULL}, {"/fail/30", 500, NULL}, {"/fail/2", 500, NULL},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct answer a = kit_ask(&f->kit, "GET", cases[i].path, "", "");
		const char *after = answer_field(&a, "Retry-After");
		assert_int_equal(a.status, cases[i].status);
		if (cases[i].after == NULL)
			assert_null(after);
		else
			assert_string_equal(after, cases[i].after);
		assert_non_null(strstr(a.body, "\"message\":\"why\""));
		answer_free(&a);
	}
}

/* A message is cut at a length, in the middle of a character if need be; the answer is JSON all the same. */
static void an_error_that_repeats_long_text_is_an_answer(void **state)
{
	struct fixture *f = *state;
	char path[1024] = "/";
	for (size_t odd = 0; odd < 2; odd++) {
		size_t n = 1 + odd;
		path[1] = 'x';
		for (; n + 2 < sizeof(path); n += 2)
			memcpy(path + n, "\xc3\xa9", 2);
		path[n] = '\0';
		struct answer a = kit_ask(&f->kit, "GET", path, "", "");
		assert_int_equal(a.status, 404);
		json_t *body = json_loadb(a.body, a.len, 0, NULL);
		const char *text = json_string_value(json_object_get(json_object_get(body, "error"), "message"));
		assert_non_null(text);
		assert_memory_equal(text, "no route /", 10);
		json_decref(body);
		answer_free(&a);
	}
	struct answer a = kit_ask(&f->kit, "G\xff", "/pool/7", "", "");
	assert_int_equal(a.status, 405);
	answer_free(&a);
}

static void assets_are_revalidated_and_come_with_a_policy(void **state)
{
	struct fixture *f = *state;
	struct answer a = kit_ask(&f->kit, "GET", "/asset", "Accept-Encoding: br, gzip\r\n", "");
	assert_int_equal(a.status, 200);
	assert_string_equal(answer_field(&a, "Content-Encoding"), "gzip");
	assert_non_null(strstr(answer_field(&a, "Content-Security-Policy"), "default-src 'none'"));
	assert_non_null(strstr(answer_field(&a, "Content-Security-Policy"), "frame-ancestors 'none'"));
	assert_string_equal(answer_field(&a, "Referrer-Policy"), "no-referrer");
	assert_string_equal(answer_field(&a, "X-Content-Type-Options"), "nosniff");
	assert_string_equal(answer_field(&a, "Cache-Control"), "no-cache");
	answer_free(&a);
	a = kit_ask(&f->kit, "GET", "/asset", "If-None-Match: \"v1\"\r\n", "");
	assert_int_equal(a.status, 304);
	assert_string_equal(answer_field(&a, "ETag"), "\"v1\"");
	answer_free(&a);
	assert_answer(kit_ask(&f->kit, "GET", "/asset", "If-None-Match: \"v0\"\r\n", ""), 200, page);
	assert_answer(kit_ask(&f->kit, "GET", "/asset", "Accept-Encoding: identity\r\n", ""), 406, NULL);
	a = kit_ask(&f->kit, "GET", "/quick/1", "", "");
	assert_string_equal(answer_field(&a, "Cache-Control"), "no-store");
	answer_free(&a);
}

static void a_sane_request_id_is_taken_over(void **state)
{
	struct fixture *f = *state;
	struct answer a = kit_ask(&f->kit, "GET", "/quick/1", "X-Request-Id: mine-1\r\n", "");
	assert_string_equal(answer_field(&a, "X-Request-Id"), "mine-1");
	answer_free(&a);
	a = kit_ask(&f->kit, "GET", "/none", "X-Request-Id: a\"b\r\n", "");
	assert_non_null(answer_field(&a, "X-Request-Id"));
	assert_null(strchr(answer_field(&a, "X-Request-Id"), '"'));
	assert_non_null(strstr(a.body, answer_field(&a, "X-Request-Id")));
	answer_free(&a);
}

/* Everybody has done what can be done now: sockets are read, the ticker has looked. */
static void settle(struct fixture *f)
{
	quiet_await();
	vclock_await_settled(&f->kit.clock, 1);
	quiet_await();
}

/* Let virtual time pass in steps until the client hears something (or the end). How many milliseconds that took. */
static int64_t pass_until_heard(struct fixture *f, int fd, int64_t step_ms)
{
	int64_t passed = 0;
	for (settle(f); kit_silent(fd); settle(f)) {
		vclock_advance_ms(&f->kit.clock, step_ms);
		passed += step_ms;
	}
	return passed;
}

/* A byte a second, until the server cuts. How many seconds that took. */
static int trickle(struct fixture *f, int fd, const char *text)
{
	for (int i = 0; text[i] != '\0'; i++) {
		char one[2] = {text[i], '\0'};
		kit_send(fd, one);
		settle(f);
		vclock_advance_ms(&f->kit.clock, 1000);
		settle(f);
		if (!kit_silent(fd))
			return i + 1;
	}
	return -1;
}

static void a_trickle_of_header_bytes_ends_at_the_deadline(void **state)
{
	struct fixture *f = *state;
	int fd = kit_connect(&f->kit);
	kit_send(fd, "GET /quick/1 HT");
	settle(f); /* it is known */
	int seconds = trickle(f, fd, "TP/1.1\r\nHost: localhost\r\nX: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy");
	assert_in_range(seconds, 10, 22); /* to the request line, and from there to the headers: ten seconds each */
	kit_await_end(fd);
	close(fd);
}

static void a_trickle_of_body_bytes_ends_at_the_deadline(void **state)
{
	struct fixture *f = *state;
	int fd = kit_connect(&f->kit);
	kit_send(fd, "POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n");
	kit_await_text(fd, "100 Continue\r\n\r\n");
	int seconds = trickle(f, fd, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
	assert_in_range(seconds, 29, 32);
	kit_await_end(fd);
	close(fd);
}

static void a_silent_connection_ends_at_the_header_deadline(void **state)
{
	struct fixture *f = *state;
	int fd = kit_connect(&f->kit);
	assert_in_range(pass_until_heard(f, fd, 1000), 9000, 13000);
	kit_await_end(fd);
	close(fd);
}

/* More than sockets hold, so that the rest of the answer waits for its reader. */
enum { LARGE_BYTES = 15 << 20 };

/* Ask for an answer of LARGE_BYTES; its first bytes are there, and body has room for all of it. */
static int ask_for_large_answer(struct fixture *f, char **body)
{
	int fd = kit_connect(&f->kit);
	char head[128];
	*body = malloc(LARGE_BYTES + 1);
	assert_non_null(*body);
	memset(*body, 'x', LARGE_BYTES);
	(*body)[LARGE_BYTES] = '\0';
	(void)snprintf(head, sizeof(head), "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n",
		       LARGE_BYTES);
	kit_send(fd, head);
	kit_send(fd, *body);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	assert_int_equal(poll(&p, 1, -1), 1);
	settle(f);
	return fd;
}

static void an_answer_that_is_not_taken_is_cut_at_its_deadline(void **state)
{
	struct fixture *f = *state;
	char *body;
	int fd = ask_for_large_answer(f, &body);
	vclock_advance_ms(&f->kit.clock, 30000 + LARGE_BYTES / 4 + 2000);
	settle(f);
	/* Only now does the client read: it gets what was on its way, and then the end. */
	ssize_t n;
	size_t got = 0;
	while ((n = read(fd, body, LARGE_BYTES)) > 0)
		got += (size_t)n;
	assert_true(got > 0 && got < LARGE_BYTES);
	free(body);
	close(fd);
}

static void a_reader_of_4_kib_a_second_gets_all_of_a_large_answer(void **state)
{
	struct fixture *f = *state;
	char *body;
	int fd = ask_for_large_answer(f, &body);
	vclock_advance_ms(&f->kit.clock, LARGE_BYTES / 4);
	settle(f);
	size_t got = 0;
	while (got < LARGE_BYTES) {
		ssize_t n = read(fd, body, LARGE_BYTES);
		assert_true(n > 0);
		got += (size_t)n;
	}
	free(body);
	close(fd);
}

static void a_kept_connection_ends_when_it_is_idle(void **state)
{
	struct fixture *f = *state;
	int fd = kit_connect(&f->kit);
	kit_send(fd, "GET /quick/1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
	assert_answer(kit_read(fd, false), 200, NULL);
	assert_true(pass_until_heard(f, fd, 5000) >= 55000);
	kit_await_end(fd);
	close(fd);
}

static int open_stream(struct fixture *f)
{
	int fd = kit_connect(&f->kit);
	kit_send(fd, "GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
	kit_await_text(fd, "\r\n\r\n");
	sem_wait(&f->filled);
	return fd;
}

static void a_stream_sends_what_it_is_woken_for_and_outlives_every_deadline(void **state)
{
	struct fixture *f = *state;
	int fd = open_stream(f);
	send_lines(f, 2);
	kit_await_text(fd, "data: 2\n\n");
	for (int i = 0; i < 20; i++) {
		settle(f);
		vclock_advance_ms(&f->kit.clock, 10000);
	}
	send_lines(f, 1);
	kit_await_text(fd, "data: 3\n\n");
	close(fd);
}

static void a_stream_beats_when_it_has_nothing_to_say(void **state)
{
	struct fixture *f = *state;
	int fd = open_stream(f);
	assert_true(pass_until_heard(f, fd, 250) >= 15000);
	kit_await_text(fd, ":\n\n");
	sem_wait(&f->filled); /* a beat is not what fill wrote: it is asked again */
	close(fd);
}

static ssize_t fill_and_wake(srv_stream *s, char *buf, size_t cap, void *ctx)
{
	struct fixture *f = ctx;
	if (f->sent++ == 0) {
		srv_stream_wake(s); /* something came after fill had looked */
		return 0;
	}
	return f->sent == 2 ? snprintf(buf, cap, "data: woken\n\n") : 0;
}

static void stream_waking(srv_request *r, void *ctx)
{
	const struct srv_stream_ops ops = {.fill = fill_and_wake, .done = done};
	srv_stream_open(r, &ops, ctx);
}

static void a_stream_that_is_woken_while_it_fills_fills_again(void **state)
{
	struct fixture *f = *state;
	int fd = kit_connect(&f->kit);
	kit_send(fd, "GET /waking HTTP/1.1\r\nHost: localhost\r\n\r\n");
	kit_await_text(fd, "data: woken\n\n");
	close(fd);
}

static void a_stream_that_ends_keeps_the_connection_open(void **state)
{
	struct fixture *f = *state;
	int fd = open_stream(f);
	pthread_mutex_lock(&f->mu);
	f->end = true;
	srv_stream_wake(f->stream);
	pthread_mutex_unlock(&f->mu);
	kit_await_text(fd, "0\r\n\r\n");
	sem_wait(&f->done);
	kit_send(fd, "GET /quick/1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
	assert_answer(kit_read(fd, false), 200, NULL);
	close(fd);
}

static void a_client_that_leaves_its_stream_is_noticed(void **state)
{
	struct fixture *f = *state;
	int fd = open_stream(f), ticks = 0;
	close(fd);
	for (settle(f); sem_trywait(&f->done) != 0; settle(f), ticks++)
		vclock_advance_ms(&f->kit.clock, 250);
	assert_in_range(ticks, 0, 59); /* before the first heartbeat: nothing was sent to find it out */
}

static void a_client_that_leaves_a_long_request_is_noticed(void **state)
{
	struct fixture *f = *state;
	static const char *const paths[] = {"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n",
					    "GET /long-quick HTTP/1.1\r\nHost: localhost\r\n\r\n"};
	for (int i = 0; i < 2; i++) {
		int fd = kit_connect(&f->kit);
		kit_send(fd, paths[i]);
		sem_wait(&f->entered);
		close(fd);
		for (settle(f); sem_trywait(&f->gone) != 0; settle(f))
			vclock_advance_ms(&f->kit.clock, 250);
	}
}

static void a_long_request_is_answered_by_another_thread(void **state)
{
	struct fixture *f = *state;
	for (int i = 0; i < 50; i++) {
		int fd = kit_connect(&f->kit);
		kit_send(fd, i % 2 == 0 ? "GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n"
					: "GET /long-quick HTTP/1.1\r\nHost: localhost\r\n\r\n");
		sem_wait(&f->entered);
		srv_json(take_waiting(f), 200, json_integer(i));
		struct answer a = kit_read(fd, false);
		assert_int_equal(atoi(a.body), i);
		answer_free(&a);
		close(fd);
	}
}

static void a_client_that_disconnects_while_its_handler_runs_affects_no_other(void **state)
{
	struct fixture *f = *state;
	int fd = kit_connect(&f->kit);
	kit_send(fd, "GET /block HTTP/1.1\r\nHost: localhost\r\n\r\n");
	sem_wait(&f->entered);
	close(fd);
	sem_post(&f->leave);
	assert_answer(kit_ask(&f->kit, "GET", "/quick/1", "", ""), 200, NULL);
}

static void a_body_above_the_limit_is_413_and_the_client_reads_it(void **state)
{
	const struct srv_http_opts opts = {.body_max = 1000};
	struct fixture *f = make(&opts);
	char body[1800];
	(void)state;
	memset(body, 'x', sizeof(body));
	body[sizeof(body) - 1] = '\0';
	assert_answer(kit_ask(&f->kit, "POST", "/echo", "", body), 413, NULL);
	assert_answer(kit_ask(&f->kit, "POST", "/echo", "Expect: 100-continue\r\n", ""), 200, "");
	int fd = kit_connect(&f->kit);
	kit_send(fd, "POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n");
	assert_answer(kit_read(fd, false), 413, NULL); /* at once: nothing was sent */
	kit_await_end(fd);
	close(fd);
	fd = kit_connect(&f->kit);
	kit_send(fd, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n");
	assert_answer(kit_read(fd, false), 413, NULL);
	kit_await_end(fd);
	close(fd);
	fd = kit_connect(&f->kit);
	kit_send(fd, "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n708\r\n");
	body[1799] = 'x';
	assert_int_equal(send(fd, body, 1800, MSG_NOSIGNAL), 1800);
	kit_send(fd, "\r\n0\r\n\r\n");
	assert_answer(kit_read(fd, false), 413, NULL);
	close(fd);
	kit_stop(&f->kit);
	unmake(f);
}

static void an_endless_chunked_body_is_cut(void **state)
{
	const struct srv_http_opts opts = {.body_max = 1000};
	struct fixture *f = make(&opts);
	int fd = kit_connect(&f->kit), n = 0;
	(void)state;
	kit_send(fd, "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
	for (; n < 100000 && send(fd, "10\r\nxxxxxxxxxxxxxxxx\r\n", 22, MSG_NOSIGNAL) > 0; n++)
		;
	assert_in_range(n, 1, 99999);
	close(fd);
	kit_stop(&f->kit);
	unmake(f);
}

static void bodies_together_have_a_limit(void **state)
{
	const struct srv_http_opts opts = {.bodies_max = 10000};
	struct fixture *f = make(&opts);
	char body[5001];
	(void)state;
	memset(body, 'x', sizeof(body));
	body[5000] = '\0';
	int fd = kit_connect(&f->kit);
	kit_send(fd, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5001\r\n\r\n");
	kit_send(fd, body);
	/* The first half-sent body takes 8 KiB: the second finds no room once the first is there. */
	struct answer a;
	do {
		a = kit_ask(&f->kit, "POST", "/echo", "", body);
		assert_true(a.status == 200 || a.status == 503);
		if (a.status == 503)
			assert_non_null(answer_field(&a, "Retry-After"));
		answer_free(&a);
	} while (a.status != 503);
	kit_send(fd, "y");
	assert_answer(kit_read(fd, false), 200, NULL);
	quiet_await(); /* its worker has let go of the first */
	assert_answer(kit_ask(&f->kit, "POST", "/echo", "", body), 200, body);
	close(fd);
	kit_stop(&f->kit);
	unmake(f);
}

static void an_address_has_a_limited_number_of_connections(void **state)
{
	const struct srv_http_opts opts = {.connections_per_address = 3};
	struct fixture *f = make(&opts);
	int fd[4];
	(void)state;
	for (int i = 0; i < 3; i++) {
		fd[i] = kit_connect(&f->kit);
		kit_send(fd[i], "GET /quick/1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
		assert_answer(kit_read(fd[i], false), 200, NULL);
	}
	fd[3] = kit_connect(&f->kit);
	kit_await_end(fd[3]);
	for (int i = 0; i < 4; i++)
		close(fd[i]);
	/* Once the server has seen one go, there is room again. */
	struct answer a;
	do {
		a = kit_ask(&f->kit, "GET", "/quick/1", "", "");
		answer_free(&a);
	} while (a.status == 0);
	assert_int_equal(a.status, 200);
	kit_stop(&f->kit);
	unmake(f);
}

static void refusing_stops_mutations_and_lets_reads_pass(void **state)
{
	struct fixture *f = *state;
	srv_http_refuse(f->kit.h);
	struct answer a = kit_ask(&f->kit, "POST", "/echo", "", "x");
	assert_int_equal(a.status, 503);
	assert_string_equal(answer_field(&a, "Retry-After"), "1");
	answer_free(&a);
	assert_answer(kit_ask(&f->kit, "GET", "/quick/1", "", ""), 200, NULL);
}

static void a_read_only_server_changes_nothing(void **state)
{
	const struct srv_http_opts opts = {.read_only = true};
	struct fixture *f = make(&opts);
	(void)state;
	struct answer a = kit_ask(&f->kit, "POST", "/echo", "", "x");
	assert_int_equal(a.status, 403);
	assert_non_null(strstr(a.body, "\"read_only\""));
	answer_free(&a);
	assert_answer(kit_ask(&f->kit, "GET", "/quick/1", "", ""), 200, NULL);
	kit_stop(&f->kit);
	unmake(f);
}

static void stopping_ends_streams_and_long_requests(void **state)
{
	struct fixture *f = make(NULL);
	(void)state;
	int s = open_stream(f), l = kit_connect(&f->kit);
	kit_send(l, "GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n");
	sem_wait(&f->entered);
	kit_stop(&f->kit);
	sem_wait(&f->done);
	sem_wait(&f->gone);
	assert_answer(kit_read(l, false), 408, NULL);
	kit_await_text(s, "0\r\n\r\n");
	kit_await_end(s);
	close(s);
	close(l);
	unmake(f);
}

struct stopping {
	struct fixture *f;
	int rc;
};

static void *stop_thread(void *ctx)
{
	struct stopping *s = ctx;
	s->rc = srv_http_stop(s->f->kit.h, 5000, NULL);
	return NULL;
}

static void stopping_waits_for_handlers(void **state)
{
	struct stopping s = {.f = make(NULL), .rc = 1};
	pthread_t t;
	(void)state;
	int fd = kit_connect(&s.f->kit);
	kit_send(fd, "GET /block HTTP/1.1\r\nHost: localhost\r\nX-Mine: kept\r\n\r\n");
	sem_wait(&s.f->entered);
	assert_int_equal(pthread_create(&t, NULL, stop_thread, &s), 0);
	vclock_await_waiters(&s.f->kit.clock, 2); /* the ticker and the stopping one */
	sem_post(&s.f->leave);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(s.rc, 0);
	assert_answer(kit_read(fd, false), 200, "{\"header\":\"kept\"}");
	close(fd);
	srv_http_free(s.f->kit.h);
	vclock_fini(&s.f->kit.clock);
	unmake(s.f);
}

static void *free_thread(void *ctx)
{
	struct stopping *s = ctx;
	srv_http_free(s->f->kit.h);
	return NULL;
}

static void stopping_gives_up_a_handler_at_the_deadline_and_freeing_waits_for_it(void **state)
{
	struct stopping s = {.f = make(NULL), .rc = 1};
	pthread_t t;
	(void)state;
	int fd = kit_connect(&s.f->kit);
	kit_send(fd, "GET /block HTTP/1.1\r\nHost: localhost\r\nX-Mine: kept\r\n\r\n");
	sem_wait(&s.f->entered);
	assert_int_equal(pthread_create(&t, NULL, stop_thread, &s), 0);
	vclock_await_waiters(&s.f->kit.clock, 2);
	vclock_advance_ms(&s.f->kit.clock, 6000);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(s.rc, SL_ETIMEDOUT);
	kit_await_end(fd);
	close(fd);
	assert_int_equal(pthread_create(&t, NULL, free_thread, &s), 0);
	sem_post(&s.f->leave); /* it reads its header, and its answer goes nowhere */
	assert_int_equal(pthread_join(t, NULL), 0);
	vclock_fini(&s.f->kit.clock);
	unmake(s.f);
}

static int listen_again_after_stopping(void)
{
	struct fixture *f = make(NULL);
	char address[64];
	srv_http *again = NULL;
	snprintf(address, sizeof(address), "%s", srv_http_address(f->kit.h));
	const struct srv_http_opts opts = {.listen = address};
	assert_true(srv_http_new(&again, &opts, NULL) != 0);
	kit_stop(&f->kit);
	int rc = srv_http_new(&again, &opts, NULL);
	if (rc == 0)
		srv_http_free(again);
	unmake(f);
	return rc;
}

static void the_address_is_free_again_after_stopping(void **state)
{
	int rc = -1;
	(void)state;
	for (int i = 0; i < 20 && rc != 0; i++) /* the kernel may have given the port to another process meanwhile */
		rc = listen_again_after_stopping();
	assert_int_equal(rc, 0);
}

static void an_address_that_others_reach_needs_tls_and_tokens(void **state)
{
	static const char *const open[] = {"0.0.0.0:0", "[::]:0", ":0", "192.0.2.1:0"};
	(void)state;
	for (size_t i = 0; i < sizeof(open) / sizeof(open[0]); i++) {
		const struct srv_http_opts opts = {.listen = open[i]};
		struct sl_err err = SL_ERR_INIT;
		srv_http *h = NULL;
		assert_int_equal(srv_http_new(&h, &opts, &err), SL_ECONFIG);
		assert_int_equal(sl_err_exit_code(err.code), 78);
		assert_non_null(strstr(err.msg, "TLS"));
		assert_non_null(strstr(err.msg, "tokens"));
	}
}

static void a_wrong_listen_address_is_named(void **state)
{
	static const char *const bad[] = {
		"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:99999", "no.such.name.invalid:1"};
	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const struct srv_http_opts opts = {.listen = bad[i]};
		struct sl_err err = SL_ERR_INIT;
		srv_http *h = NULL;
		assert_int_equal(srv_http_new(&h, &opts, &err), SL_ECONFIG);
		assert_non_null(strstr(err.msg, bad[i]));
	}
}

#define EACH(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(quick_and_pooled_handlers_answer_alike),
		EACH(an_easy_handler_runs_on_the_network_thread_while_hardly_a_worker_is_busy),
		EACH(a_connection_serves_one_request_after_the_other),
		EACH(pipelined_requests_are_answered_in_order),
		EACH(bodies_come_by_length_and_in_chunks),
		EACH(invalid_json_is_answered_with_its_line),
		EACH(a_handler_that_does_not_answer_is_answered_for),
		EACH(head_options_and_unsupported_methods_are_answered),
		EACH(errors_become_statuses),
		EACH(an_error_that_repeats_long_text_is_an_answer),
		EACH(assets_are_revalidated_and_come_with_a_policy),
		EACH(a_sane_request_id_is_taken_over),
		EACH(a_trickle_of_header_bytes_ends_at_the_deadline),
		EACH(a_trickle_of_body_bytes_ends_at_the_deadline),
		EACH(a_silent_connection_ends_at_the_header_deadline),
		EACH(an_answer_that_is_not_taken_is_cut_at_its_deadline),
		EACH(a_reader_of_4_kib_a_second_gets_all_of_a_large_answer),
		EACH(a_kept_connection_ends_when_it_is_idle),
		EACH(a_stream_sends_what_it_is_woken_for_and_outlives_every_deadline),
		EACH(a_stream_beats_when_it_has_nothing_to_say),
		EACH(a_stream_that_is_woken_while_it_fills_fills_again),
		EACH(a_stream_that_ends_keeps_the_connection_open),
		EACH(a_client_that_leaves_its_stream_is_noticed),
		EACH(a_client_that_leaves_a_long_request_is_noticed),
		EACH(a_long_request_is_answered_by_another_thread),
		EACH(a_client_that_disconnects_while_its_handler_runs_affects_no_other),
		cmocka_unit_test(a_body_above_the_limit_is_413_and_the_client_reads_it),
		cmocka_unit_test(an_endless_chunked_body_is_cut),
		cmocka_unit_test(bodies_together_have_a_limit),
		cmocka_unit_test(an_address_has_a_limited_number_of_connections),
		EACH(refusing_stops_mutations_and_lets_reads_pass),
		cmocka_unit_test(a_read_only_server_changes_nothing),
		cmocka_unit_test(stopping_ends_streams_and_long_requests),
		cmocka_unit_test(stopping_waits_for_handlers),
		cmocka_unit_test(stopping_gives_up_a_handler_at_the_deadline_and_freeing_waits_for_it),
		cmocka_unit_test(the_address_is_free_again_after_stopping),
		cmocka_unit_test(an_address_that_others_reach_needs_tls_and_tokens),
		cmocka_unit_test(a_wrong_listen_address_is_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
