/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scripted HTTP server in its own process (http_server.py lists the commands).
 *
 * Thread safety: one thread at a time. Failures end the test program.
 */
#ifndef TESTS_SINK_HTTP_SERVER_H
#define TESTS_SINK_HTTP_SERVER_H

#include <stdio.h>
#include <sys/types.h>

struct http_server {
	pid_t pid;
	FILE *to, *from;
	int port;
	char *reply; /* to the last command, without its line end */
	size_t cap;
};

struct http_counts {
	unsigned connections, requests, batches, repeats;
};

/* Make a certificate for 127.0.0.1 with its key, both in this file. */
void http_server_certificate(const char *path);
/* With a certificate and its key: TLS. NULL: plain. */
void http_server_start(struct http_server *s, const char *certificate, const char *key);
void http_server_stop(struct http_server *s);
/* One command; its reply lives until the next one. */
const char *http_server_command(struct http_server *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
struct http_counts http_server_counts(struct http_server *s);

#endif
