/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the HTTP sink share: one scripted server, a folder for each test, single writes.
 *
 * Thread safety: one thread at a time. Failures fail the test.
 */
#ifndef TESTS_SINK_HTTP_KIT_H
#define TESTS_SINK_HTTP_KIT_H

#include "sink/contract_kit.h"
#include "sink/http_server.h"
#include "sink/place.h"

#define HTTP_HANG_MS 300 /* the time of a request that is meant to run out */

extern struct http_server http_server;
extern struct place http_place;

/* Of each test: the server forgets, and place is a new folder. */
int http_set_up(void **state);
int http_tear_down(void **state);
#define HTTP_TEST(name) cmocka_unit_test_setup_teardown(name, http_set_up, http_tear_down)

/* The server's address followed by path; lives until the next call. */
const char *http_url(const char *path);
sl_sink http_open(const char *url, const struct sl_sink_opts *opts);

/* What came of one write. */
struct http_result {
	int rc;
	struct sl_err err;
	uint8_t outcomes[16];
	size_t culprit;
};
/* A batch of at most 16 items, whose id is 16 times the byte. */
struct http_result http_write(const sl_sink *sink, void *lane, const char *const *texts, size_t n, uint8_t id,
			      uint32_t tries);
/* {"id":1} and {"id":2}, each time as a separate batch. */
extern const char *const http_two[2];
struct http_result http_write_two(const sl_sink *sink, void *lane);

/* How a write must end. */
struct http_expectation {
	const char *behaviour;
	int code;
	enum sl_err_class error_class;
	int64_t retry_after_ms;
	const char *words; /* in the message */
};
void http_expect(const struct http_result *r, const struct http_expectation *e);

#endif
