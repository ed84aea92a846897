/* SPDX-License-Identifier: Apache-2.0 */
#include "http_kit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define HANG_SECONDS 120

void kit_start(struct http_kit *k, const struct srv_http_opts *opts, const struct srv_route *routes, size_t n,
	       void *ctx)
{
	struct srv_http_opts o = opts != NULL ? *opts : (struct srv_http_opts){0};
	struct sl_err err = SL_ERR_INIT;
	vclock_init(&k->clock);
	k->env = (struct sl_env){SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &k->clock};
	o.env = &k->env;
	o.listen = "127.0.0.1:0";
	if (srv_http_new(&k->h, &o, &err) != 0 || srv_http_add(k->h, routes, n, ctx, &err) != 0 ||
	    srv_http_start(k->h, &err) != 0)
		fail_msg("%s", err.msg);
	k->port = atoi(strrchr(srv_http_address(k->h), ':') + 1);
}

void kit_stop(struct http_kit *k)
{
	struct sl_err err = SL_ERR_INIT;
	if (srv_http_stop(k->h, 10000, &err) != 0)
		fail_msg("%s", err.msg);
	srv_http_free(k->h);
	vclock_fini(&k->clock);
}

int kit_connect(const struct http_kit *k)
{
	const struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)k->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const struct timeval hang = {.tv_sec = HANG_SECONDS};
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &hang, sizeof(hang));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &hang, sizeof(hang));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

void kit_send(int fd, const char *text)
{
	for (size_t n = strlen(text); n > 0;) {
		ssize_t sent = send(fd, text, n, MSG_NOSIGNAL);
		if (sent <= 0)
			return; /* cut: the test sees it when it reads */
		text += sent;
		n -= (size_t)sent;
	}
}

/* One byte, or -1 at the end. */
static int get(int fd)
{
	unsigned char c;
	ssize_t n = recv(fd, &c, 1, 0);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		fail_msg("the server says nothing");
	return n == 1 ? c : -1;
}

static bool read_until(int fd, char *buf, size_t size, const char *end)
{
	size_t n = 0, e = strlen(end);
	for (int c; n + 1 < size && (c = get(fd)) >= 0;) {
		buf[n++] = (char)c;
		buf[n] = '\0';
		if (n >= e && memcmp(buf + n - e, end, e) == 0)
			return true;
	}
	return false;
}

const char *answer_field(const struct answer *a, const char *name)
{
	static char value[1024];
	size_t n = strlen(name);
	for (const char *p = strstr(a->head, "\r\n"); p != NULL; p = strstr(p + 2, "\r\n"))
		if (strncasecmp(p + 2, name, n) == 0 && p[2 + n] == ':') {
			p += 3 + n + strspn(p + 3 + n, " ");
			snprintf(value, sizeof(value), "%.*s", (int)strcspn(p, "\r"), p);
			return value;
		}
	return NULL;
}

static bool append(struct answer *a, int fd, size_t n)
{
	a->body = realloc(a->body, a->len + n + 1);
	for (size_t i = 0; i < n; i++) {
		int c = get(fd);
		if (c < 0)
			return false;
		a->body[a->len++] = (char)c;
	}
	a->body[a->len] = '\0';
	return true;
}

static void read_chunks(struct answer *a, int fd)
{
	char line[64];
	unsigned long n = 1;
	while (n > 0 && read_until(fd, line, sizeof(line), "\r\n")) {
		n = strtoul(line, NULL, 16);
		if (!append(a, fd, n) || !read_until(fd, line, sizeof(line), "\r\n"))
			return;
	}
}

struct answer kit_read(int fd, bool no_body)
{
	struct answer a = {0};
	if (!read_until(fd, a.head, sizeof(a.head), "\r\n\r\n"))
		return a;
	a.status = atoi(a.head + 9);
	if (a.status == 100)
		return kit_read(fd, no_body);
	a.body = calloc(1, 1);
	if (no_body || a.status == 204 || a.status == 304)
		return a;
	const char *length = answer_field(&a, "Content-Length");
	if (length != NULL)
		append(&a, fd, strtoul(length, NULL, 10));
	else
		read_chunks(&a, fd);
	return a;
}

void answer_free(struct answer *a)
{
	free(a->body);
	a->body = NULL;
}

struct answer kit_ask(const struct http_kit *k, const char *method, const char *path, const char *fields,
		      const char *body)
{
	char head[2048];
	int fd = kit_connect(k);
	snprintf(head, sizeof(head), "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n%s\r\n", method, path,
		 strlen(body), fields);
	kit_send(fd, head);
	kit_send(fd, body);
	struct answer a = kit_read(fd, strcmp(method, "HEAD") == 0);
	close(fd);
	return a;
}

void kit_await_text(int fd, const char *text)
{
	char buf[4096];
	if (!read_until(fd, buf, sizeof(buf), text))
		fail_msg("\"%s\" did not come", text);
}

void kit_await_end(int fd)
{
	while (get(fd) >= 0)
		;
}

bool kit_silent(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, 0) == 0;
}
