/* SPDX-License-Identifier: Apache-2.0 */
/* Routes whose requests are handled together, with real sockets and a virtual clock. */
#include "http_kit.h"
#include "support/quiet.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOW_MS 4 /* of virtual time, for everything that is handled */

struct fixture {
	struct http_kit kit;
	sem_t entered, leave;
	_Atomic int calls; /* of many */
	const char *path;
};

/* "block" waits to be let go. */
static void one(srv_request *r, void *ctx)
{
	struct fixture *f = ctx;
	const char *body = srv_body(r, NULL);
	if (strcmp(body, "block") == 0) {
		sem_post(&f->entered);
		sem_wait(&f->leave);
	}
	vclock_advance_ms(&f->kit.clock, SLOW_MS);
	srv_bytes(r, 200, "text/plain", "alone", 5);
}

/* "single" is left; "bad" is refused. */
static void many(srv_request *const *all, size_t n, void *ctx)
{
	struct fixture *f = ctx;
	char text[16];
	int len = snprintf(text, sizeof(text), "%zu", n);
	atomic_fetch_add(&f->calls, 1);
	vclock_advance_ms(&f->kit.clock, SLOW_MS);
	srv_many_next(all);
	for (size_t i = 0; i < n; i++) {
		const char *body = srv_body(all[i], NULL);
		if (strcmp(body, "bad") == 0)
			srv_error(all[i], 422, "refused", "no");
		else if (strcmp(body, "single") != 0)
			srv_bytes(all[i], 200, "text/plain", text, (size_t)len);
	}
}

static void quick(srv_request *r, void *ctx)
{
	(void)ctx;
	srv_bytes(r, 200, "text/plain", "q", 1);
}

static int set_up(void **state)
{
	const struct srv_route routes[] = {
		{"POST", "/make", SRV_WRITE, 0, one, "make"},
		{"POST", "/far", SRV_WRITE, 0, one, "make"},
		{"GET", "/quick", SRV_READ, SRV_QUICK, quick, NULL},
	};
	struct fixture *f = calloc(1, sizeof(*f));
	struct http_kit *k = &f->kit;
	struct sl_err err = SL_ERR_INIT;
	const struct srv_http_opts o = {.env = &k->env, .listen = "127.0.0.1:0"};
	sem_init(&f->entered, 0, 0);
	sem_init(&f->leave, 0, 0);
	vclock_init(&k->clock);
	k->env = (struct sl_env){SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &k->clock};
	assert_int_equal(srv_http_new(&k->h, &o, &err), 0);
	assert_int_equal(srv_http_add(k->h, routes, 3, f, &err), 0);
	assert_int_equal(srv_http_gather(k->h, "GET", "/make", many, 1, &err), SL_ENOENT);
	assert_int_equal(srv_http_gather(k->h, "POST", "/make", many, 1, &err), 0);
	assert_int_equal(srv_http_gather(k->h, "POST", "/far", many, 2, &err), 0);
	assert_int_equal(srv_http_start(k->h, &err), 0);
	k->port = atoi(strrchr(srv_http_address(k->h), ':') + 1);
	f->path = "/make";
	*state = f;
	return 0;
}

static void unmake(struct fixture *f)
{
	sem_destroy(&f->entered);
	sem_destroy(&f->leave);
	free(f);
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	kit_stop(&f->kit);
	unmake(f);
	return 0;
}

static int ask_for(struct fixture *f, const char *query, const char *body)
{
	char text[256];
	int fd = kit_connect(&f->kit);
	snprintf(text, sizeof(text),
		 "POST %s%s HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: %s\r\nContent-Length: %zu\r\n\r\n%s", f->path,
		 query, body, strlen(body), body);
	kit_send(fd, text);
	return fd;
}

/* What was sent before is in the queue: the network thread has been round since, and every thread that can continue has
 * done so. */
static void settle(struct fixture *f)
{
	for (int i = 0; i < 3; i++) {
		struct answer a = kit_ask(&f->kit, "GET", "/quick", "", "");
		assert_int_equal(a.status, 200);
		answer_free(&a);
	}
	quiet_await();
}

static void assert_answer(int fd, int status, const char *body)
{
	struct answer a = kit_read(fd, false);
	assert_int_equal(a.status, status);
	if (body != NULL)
		assert_string_equal(a.body, body);
	answer_free(&a);
	close(fd);
}

static void those_who_come_while_one_is_handled_are_handled_together(void **state)
{
	struct fixture *f = *state;
	int first = ask_for(f, "", "block");
	sem_wait(&f->entered);
	int a = ask_for(f, "", "a"), b = ask_for(f, "", "bad"), c = ask_for(f, "", "single"), d = ask_for(f, "", "d");
	settle(f);
	assert_true(kit_silent(a));
	sem_post(&f->leave);
	assert_answer(first, 200, "alone");
	assert_answer(a, 200, "4");
	assert_answer(b, 422, NULL);
	assert_answer(c, 200, "alone");
	assert_answer(d, 200, "4");
	assert_int_equal(f->calls, 1);
}

static void a_client_that_disconnects_among_many_affects_no_other(void **state)
{
	struct fixture *f = *state;
	int first = ask_for(f, "", "block");
	sem_wait(&f->entered);
	int a = ask_for(f, "", "a"), b = ask_for(f, "", "b"), c = ask_for(f, "", "single");
	settle(f);
	close(b);
	close(c);
	sem_post(&f->leave);
	assert_answer(first, 200, "alone");
	assert_answer(a, 200, "3");
	settle(f);
	assert_int_equal(f->calls, 1);
}

/* Three are handled together and answered; n of them come again. */
static void three_then(struct fixture *f, int n, int *fd)
{
	int first = ask_for(f, "", "block"), three[3];
	sem_wait(&f->entered);
	for (int i = 0; i < 3; i++)
		three[i] = ask_for(f, "", "x");
	settle(f);
	sem_post(&f->leave);
	assert_answer(first, 200, NULL);
	for (int i = 0; i < 3; i++)
		assert_answer(three[i], 200, "3");
	for (int i = 0; i < n; i++)
		fd[i] = ask_for(f, "", "y");
}

static void those_who_come_again_are_waited_for(void **state)
{
	struct fixture *f = *state;
	int fd[3];
	three_then(f, 3, fd);
	for (int i = 0; i < 3; i++)
		assert_answer(fd[i], 200, "3");
}

static void those_who_do_not_come_again_are_waited_for_half_as_long_as_they_took(void **state)
{
	struct fixture *f = *state;
	int fd[2];
	three_then(f, 2, fd);
	settle(f);
	assert_true(kit_silent(fd[0]));
	vclock_advance_ms(&f->kit.clock, SLOW_MS / 2);
	assert_answer(fd[0], 200, "2");
	assert_answer(fd[1], 200, "2");
}

#define SOME 8 /* with the first one 9, of whom 5 are a part */

/* Some wait for others, who do not come. */
static void let_time_pass(struct fixture *f)
{
	vclock_await_waiters(&f->kit.clock, 2); /* the ticker is the other one */
	quiet_await();
	vclock_advance_ms(&f->kit.clock, SLOW_MS / 2);
}

static void two_parts(struct fixture *f, bool others_were_here)
{
	int first, fd[SOME];
	f->path = "/far";
	first = ask_for(f, "", "block");
	if (others_were_here)
		let_time_pass(f);
	sem_wait(&f->entered);
	for (int i = 0; i < SOME; i++)
		fd[i] = ask_for(f, "", i == 6 ? "bad" : i == 7 ? "single" : "x");
	settle(f);
	assert_true(kit_silent(fd[0]));
	sem_post(&f->leave);
	for (int i = 0; i < 5; i++)
		assert_answer(fd[i], 200, "5");
	let_time_pass(f);
	assert_answer(fd[5], 200, "3");
	assert_answer(fd[6], 422, NULL);
	assert_answer(fd[7], 200, "alone");
	assert_answer(first, 200, "alone");
}

static void many_clients_are_handled_in_two_parts(void **state)
{
	two_parts(*state, false);
}

/* With those of the first time there would be parts of nine. */
static void clients_that_have_left_are_not_counted(void **state)
{
	two_parts(*state, false);
	settle(*state);
	two_parts(*state, true);
}

static void few_clients_are_not_parted(void **state)
{
	struct fixture *f = *state;
	f->path = "/far";
	those_who_come_while_one_is_handled_are_handled_together(state);
}

static void those_who_wait_when_the_server_gives_up_are_not_handled(void **state)
{
	struct fixture *f;
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(set_up((void **)&f), 0);
	(void)state;
	int first = ask_for(f, "", "block");
	sem_wait(&f->entered);
	int a = ask_for(f, "", "a"), b = ask_for(f, "", "b");
	settle(f);
	assert_int_equal(srv_http_stop(f->kit.h, 0, &err), SL_ETIMEDOUT);
	kit_await_end(first);
	kit_await_end(a);
	kit_await_end(b);
	sem_post(&f->leave);
	srv_http_free(f->kit.h);
	assert_int_equal(f->calls, 0);
	vclock_fini(&f->kit.clock);
	close(first);
	close(a);
	close(b);
	unmake(f);
}

#define EACH(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(those_who_come_while_one_is_handled_are_handled_together),
		EACH(a_client_that_disconnects_among_many_affects_no_other),
		EACH(those_who_come_again_are_waited_for),
		EACH(those_who_do_not_come_again_are_waited_for_half_as_long_as_they_took),
		EACH(many_clients_are_handled_in_two_parts),
		EACH(few_clients_are_not_parted),
		EACH(clients_that_have_left_are_not_counted),
		cmocka_unit_test(those_who_wait_when_the_server_gives_up_are_not_handled),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
