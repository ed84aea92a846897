/* SPDX-License-Identifier: Apache-2.0 */
/* The outbox's endpoint by itself: tokens, TLS, and answers that are not 2xx. No answer loses an event. */
#include <inttypes.h>
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

#include "base/base.h"
#include "pipeline/catalog_place.h"
#include "sink/http_server.h"

#define WAIT_MS 100000

static struct catalog_place place;
static struct http_server server;

struct opened {
	sl_catalog *c;
	sl_catalog_lease *lease;
	char url[64], token[128];
	struct sl_outbox_opts opts;
};

static int set_up(void **state)
{
	struct opened *o = calloc(1, sizeof(*o));
	struct sl_err err = SL_ERR_INIT;
	assert_non_null(o);
	catalog_place_set_up(&place);
	(void)http_server_command(&server, "clear");
	o->c = catalog_place_open(&place, NULL);
	assert_int_equal(sl_catalog_lease_acquire(o->c, "d", NULL, &o->lease, &err), 0);
	catalog_define(o->c, o->lease);
	(void)snprintf(o->url, sizeof(o->url), "http://127.0.0.1:%d/audit", server.port);
	(void)snprintf(o->token, sizeof(o->token), "%s/token", place.dir);
	o->opts = (struct sl_outbox_opts){SL_OUTBOX_OPTS_INIT, .endpoint = o->url, .retry_ms = 1};
	*state = o;
	return 0;
}

static int tear_down(void **state)
{
	struct opened *o = *state;
	sl_catalog_lease_release(o->lease);
	sl_catalog_close(o->c);
	free(o);
	catalog_place_tear_down(&place);
	return 0;
}

static void commit_some(struct opened *o, uint64_t first, uint64_t n)
{
	struct sl_err err = SL_ERR_INIT;
	for (uint64_t i = first; i < first + n; i++)
		assert_int_equal(catalog_commit(o->c, o->lease, i * 100, i * 100 + 99, NULL, &err), 0);
}

static void write_token(const struct opened *o, const char *token)
{
	FILE *f = fopen(o->token, "w");
	assert_non_null(f);
	assert_int_equal(fchmod(fileno(f), 0600), 0);
	assert_true(fputs(token, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static sl_outbox *start(struct opened *o)
{
	struct sl_err err = SL_ERR_INIT;
	sl_outbox *box = NULL;
	if (sl_outbox_start(o->c, o->lease, &o->opts, &box, &err) != 0)
		fail_msg("%s", err.msg);
	return box;
}

/* One attempt in its own run. No other may follow it: a slow server would answer one that is cut off by the end of the
 * run when the test has already continued. */
static int deliver(struct opened *o, struct sl_err *err)
{
	int64_t retry_ms = o->opts.retry_ms;
	o->opts.retry_ms = 3600000;
	sl_outbox *box = start(o);
	o->opts.retry_ms = retry_ms;
	int rc = sl_outbox_drain(box, SL_NONE, err);
	sl_outbox_stop(box);
	return rc;
}

static uint64_t delivered(void)
{
	return (uint64_t)catalog_place_number(&place, "SELECT delivered_endpoint FROM sluice_dataset WHERE name='d'");
}

/* What was taken: the events of partitions [from, to), then of the next range, in this order; {0, 0} is the end. */
static void assert_taken(const uint64_t ranges[][2])
{
	char want[1024] = "";
	size_t n = 0;
	for (; (*ranges)[1] != 0; ranges++)
		for (uint64_t i = (*ranges)[0]; i < (*ranges)[1]; i++)
			n += (size_t)snprintf(want + n, sizeof(want) - n, "%sd:%" PRIu64 "-%" PRIu64, n > 0 ? " " : "",
					      i * 100, i * 100 + 99);
	assert_string_equal(http_server_command(&server, "ids"), want);
}

/* ---- tokens ---- */

static void the_token_of_the_file_is_sent(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	(void)http_server_command(&server, "token sesame");
	write_token(o, " sesame \nnot this\n");
	o->opts.token_file = o->token;
	commit_some(o, 0, 2);
	assert_int_equal(deliver(o, &err), 0);
	assert_taken((const uint64_t[][2]){{0, 2}, {0, 0}});
	assert_string_equal(http_server_command(&server, "last Content-Type"), "application/x-ndjson");
	/* Without one there is no header, and no event is lost by being refused. */
	o->opts.token_file = NULL;
	commit_some(o, 2, 1);
	assert_int_equal(deliver(o, &err), SL_EUNAVAIL);
	assert_non_null(strstr(err.msg, "401"));
	assert_null(strstr(err.msg, "sesame"));
	assert_int_equal(delivered(), 2);
	assert_int_equal(sl_outbox_start(o->c, o->lease,
					 &(struct sl_outbox_opts){SL_OUTBOX_OPTS_INIT, .endpoint = o->url,
								  .token_file = place.url},
					 &(sl_outbox *){NULL}, &err),
			 SL_ENOENT);
}

static void a_token_is_read_again_after_a_401(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	(void)http_server_command(&server, "token first");
	write_token(o, "first");
	o->opts.token_file = o->token;
	o->opts.retry_ms = 3600000; /* it is not a later attempt that brings it */
	sl_outbox *box = start(o);
	commit_some(o, 0, 1);
	assert_int_equal(sl_outbox_drain(box, SL_NONE, &err), 0);
	(void)http_server_command(&server, "token second");
	write_token(o, "second");
	commit_some(o, 1, 1);
	assert_int_equal(sl_outbox_drain(box, SL_NONE, &err), 0);
	assert_int_equal(http_server_counts(&server).requests, 3);
	/* One that is the same as before is not tried twice. */
	(void)http_server_command(&server, "token third");
	commit_some(o, 2, 1);
	assert_int_equal(sl_outbox_drain(box, SL_NONE, &err), SL_EUNAVAIL);
	assert_int_equal(http_server_counts(&server).requests, 4);
	write_token(o, "third");
	assert_int_equal(sl_outbox_drain(box, SL_NONE, &err), 0);
	sl_outbox_stop(box);
	assert_taken((const uint64_t[][2]){{0, 3}, {0, 0}});
	assert_int_equal(delivered(), 3);
}

/* ---- TLS ---- */

static void only_who_has_a_certificate_of_the_ca_file_gets_events(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	struct http_server tls;
	char own[128], other[128];
	(void)snprintf(own, sizeof(own), "%s/own.pem", place.dir);
	(void)snprintf(other, sizeof(other), "%s/other.pem", place.dir);
	http_server_certificate(own);
	http_server_certificate(other);
	http_server_start(&tls, own, own);
	(void)snprintf(o->url, sizeof(o->url), "https://127.0.0.1:%d/audit", tls.port);
	commit_some(o, 0, 2);
	assert_int_not_equal(deliver(o, &err), 0); /* the system's authorities do not know it */
	o->opts.ca_file = other;
	assert_int_not_equal(deliver(o, &err), 0);
	assert_int_equal(http_server_counts(&tls).requests, 0);
	assert_int_equal(delivered(), 0);
	o->opts.ca_file = own;
	assert_int_equal(deliver(o, &err), 0);
	assert_string_equal(http_server_command(&tls, "ids"), "d:0-99 d:100-199");
	assert_int_equal(delivered(), 2);
	http_server_stop(&tls);
}

/* ---- answers ---- */

static void events_wait_for_an_endpoint_that_fails_and_keep_their_order(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	(void)http_server_command(&server, "script 500 503 reset 502 half");
	sl_outbox *box = start(o);
	commit_some(o, 0, 3);
	sl_outbox_wake(box);
	commit_some(o, 3, 2);
	assert_int_equal(sl_outbox_drain(box, WAIT_MS, &err), 0);
	assert_taken((const uint64_t[][2]){{0, 5}, {0, 0}});
	/* Accepted, and the answer was lost: the same events again, with the same ids, before any other. */
	(void)http_server_command(&server, "script +close +500");
	commit_some(o, 5, 2);
	assert_int_equal(sl_outbox_drain(box, WAIT_MS, &err), 0);
	assert_taken((const uint64_t[][2]){{0, 5}, {5, 7}, {5, 7}, {5, 7}, {0, 0}});
	assert_int_equal(delivered(), 7);
	sl_outbox_stop(box);
}

/* No event is skipped, whatever the endpoint thinks of it: that would be a gap in a chain. */
static void an_event_that_is_refused_is_never_left_out(void **state)
{
	static const char *const refusals[] = {"400", "404", "413", "422", "302", "308"};
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	commit_some(o, 0, 2);
	for (size_t i = 0; i < SL_COUNT(refusals); i++) {
		(void)http_server_command(&server, "always %s@not_today", refusals[i]);
		assert_int_equal(deliver(o, &err), SL_EUNAVAIL);
		assert_non_null(strstr(err.msg, refusals[i]));
		assert_non_null(strstr(err.msg, "not today"));
		assert_true(sl_err_retryable(&err));
		assert_int_equal(delivered(), 0);
	}
	(void)http_server_command(&server, "always usual");
	commit_some(o, 2, 1);
	assert_int_equal(deliver(o, &err), 0);
	assert_taken((const uint64_t[][2]){{0, 3}, {0, 0}});
	assert_int_equal(delivered(), 3);
	/* Any 2xx accepts. */
	(void)http_server_command(&server, "always 204");
	commit_some(o, 3, 1);
	assert_int_equal(deliver(o, &err), 0);
	assert_int_equal(delivered(), 4);
}

static void an_endpoint_that_asks_for_patience_gets_it(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	(void)http_server_command(&server, "always 503:3600"); /* the outbox may have tried before drain is called */
	commit_some(o, 0, 1);
	sl_outbox *box = start(o);
	assert_int_equal(sl_outbox_drain(box, SL_NONE, &err), SL_EUNAVAIL);
	assert_int_equal(err.retry_after_ms, 3600000);
	(void)http_server_command(&server, "always usual");
	assert_int_equal(sl_outbox_drain(box, SL_NONE, &err), 0); /* a caller waits: sent immediately */
	sl_outbox_stop(box);
	assert_taken((const uint64_t[][2]){{0, 1}, {0, 0}});
}

static void an_outbox_without_its_lease_sends_nothing_twice(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	commit_some(o, 0, 1);
	catalog_place_exec(&place, "UPDATE sluice_dataset SET fence=fence+1,holder='x' WHERE name='d'");
	sl_outbox *box = start(o);
	assert_int_equal(sl_outbox_drain(box, SL_UNLIMITED, &err), SL_ESTALE); /* at once: waiting does not help */
	sl_outbox_wake(box);
	assert_int_equal(sl_outbox_drain(box, SL_UNLIMITED, &err), SL_ESTALE);
	sl_outbox_stop(box);
	assert_int_equal(http_server_counts(&server).requests, 1);
	assert_int_equal(delivered(), 0);
}

int main(int argc, char **argv)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(the_token_of_the_file_is_sent),
		T(a_token_is_read_again_after_a_401),
		T(only_who_has_a_certificate_of_the_ca_file_gets_events),
		T(events_wait_for_an_endpoint_that_fails_and_keep_their_order),
		T(an_event_that_is_refused_is_never_left_out),
		T(an_endpoint_that_asks_for_patience_gets_it),
		T(an_outbox_without_its_lease_sends_nothing_twice),
	};
	int rc = catalog_place_start(&place, argc, argv);
	if (rc != 0)
		return rc;
	http_server_start(&server, NULL, NULL);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	http_server_stop(&server);
	catalog_place_stop(&place);
	return rc;
}
