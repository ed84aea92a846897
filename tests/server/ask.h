/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plain HTTP client for tests of the server: a connection, bytes out, an answer in. Blocking; a failure of the
 * connection fails the test, unless it is asked for.
 *
 * Thread safety: a connection belongs to one thread. Ownership: an answer is freed by ask_free.
 */
#ifndef TESTS_SERVER_ASK_H
#define TESTS_SERVER_ASK_H

#include <stddef.h>

struct ask_answer {
	int status; /* 0: the connection ended without one */
	char *head; /* with its status line */
	char *body; /* ends with a NUL */
	size_t len;
};

/* address: "127.0.0.1:PORT". */
int ask_connect(const char *address);
/* "POST", path, "Name: value\r\n…" (may be ""), a body (NULL: none). */
void ask_send(int fd, const char *method, const char *path, const char *headers, const void *body, size_t len);
/* An answer with Content-Length; of one without, only the head. */
void ask_receive(int fd, struct ask_answer *out);
void ask_free(struct ask_answer *a);
/* A request on its own connection. */
void ask(const char *address, const char *method, const char *path, const char *headers, const void *body, size_t len,
	 struct ask_answer *out);
/* The value of a header of the answer, in a static buffer; "" if it has no such header. */
const char *ask_header(const struct ask_answer *a, const char *name);

/* ---- server-sent events ---- */

struct ask_stream {
	int fd;
	char *text; /* chunks taken apart */
	size_t len, cap, at;
	char raw[65536];
	size_t raw_len;
};

/* Sends the request and reads the head of the answer, which is its status. */
int ask_stream_open(struct ask_stream *s, const char *address, const char *path, const char *headers);
/* The next event: its id, and its data in *data (lives until the next call). 0: the stream has ended. Heartbeats are
 * skipped. */
unsigned long long ask_stream_next(struct ask_stream *s, const char **data);
void ask_stream_close(struct ask_stream *s);

#endif
