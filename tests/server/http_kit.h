/* SPDX-License-Identifier: Apache-2.0 */
/* A server of HTTP alone, on a virtual clock, and clients that speak to it over real sockets, byte by byte if need be.
 * A hang fails after half a minute of real time. */
#ifndef TESTS_HTTP_KIT_H
#define TESTS_HTTP_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/http/http.h"
#include "support/vclock.h"

struct http_kit {
	struct vclock clock;
	struct sl_env env;
	srv_http *h;
	int port;
};

/* opts may be NULL; its env and listen are ours. Routes are added and the server started. */
void kit_start(struct http_kit *k, const struct srv_http_opts *opts, const struct srv_route *routes, size_t n,
	       void *ctx);
void kit_stop(struct http_kit *k); /* stops, within ten virtual seconds that do not pass, and frees */

struct answer {
	int status; /* 0: the connection ended without one */
	char head[8192];
	char *body;
	size_t len;
};

int kit_connect(const struct http_kit *k);
void kit_send(int fd, const char *text);
/* One answer; with Content-Length, chunked, or none for 204, 304 and HEAD (no_body). Free with answer_free. */
struct answer kit_read(int fd, bool no_body);
/* The field's value in the head, or NULL. Static buffer. */
const char *answer_field(const struct answer *a, const char *name);
void answer_free(struct answer *a);
/* A request on its own connection: "GET /x". fields: "A: b\r\n…" or "". */
struct answer kit_ask(const struct http_kit *k, const char *method, const char *path, const char *fields,
		      const char *body);
/* Read until text has come; of a stream. */
void kit_await_text(int fd, const char *text);
/* Reads and drops until the other side has closed or reset. */
void kit_await_end(int fd);
/* Nothing can be read, now. */
bool kit_silent(int fd);

#endif
