/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/ask.h"

int ask_connect(const char *address)
{
	char host[64];
	const char *colon = strrchr(address, ':');
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(colon + 1))};
	(void)snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
	if (inet_pton(AF_INET, host, &to.sin_addr) != 1)
		fail_msg("%s is no address", address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (const struct sockaddr *)(const void *)&to, sizeof(to)) != 0)
		fail_msg("cannot connect to %s", address);
	return fd;
}

static void write_all(int fd, const void *data, size_t n)
{
	const char *p = data;
	while (n > 0) {
		ssize_t w = send(fd, p, n, MSG_NOSIGNAL);
		if (w <= 0)
			return; /* the answer shows what that means */
		p += w;
		n -= (size_t)w;
	}
}

void ask_send(int fd, const char *method, const char *path, const char *headers, const void *body, size_t len)
{
	char head[4096];
	struct sockaddr_in at;
	socklen_t n_at = sizeof(at);
	char length[64] = "";
	(void)getpeername(fd, (struct sockaddr *)(void *)&at, &n_at);
	if (body != NULL)
		(void)snprintf(length, sizeof(length), "Content-Length: %zu\r\n", len);
	int n = snprintf(head, sizeof(head), "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n%s%s\r\n", method, path,
			 ntohs(at.sin_port), length, headers);
	write_all(fd, head, (size_t)n);
	if (body != NULL)
		write_all(fd, body, len);
}

/* Reads until the head's empty line; what came after it stays in text. */
static char *read_head(int fd, size_t *have, size_t *head)
{
	char *text = malloc(65536);
	*have = 0;
	for (;;) {
		ssize_t n = recv(fd, text + *have, 65535 - *have, 0);
		if (n <= 0) {
			free(text);
			return NULL;
		}
		*have += (size_t)n;
		text[*have] = '\0';
		const char *end = memmem(text, *have, "\r\n\r\n", 4);
		if (end != NULL) {
			*head = (size_t)(end - text) + 4;
			return text;
		}
	}
}

void ask_receive(int fd, struct ask_answer *out)
{
	size_t have, head;
	char *text = read_head(fd, &have, &head);
	*out = (struct ask_answer){.status = 0};
	if (text == NULL)
		return;
	out->status = atoi(text + 9);
	out->head = strndup(text, head);
	size_t want = (size_t)strtoul(ask_header(out, "Content-Length"), NULL, 10);
	out->body = malloc(want + 1);
	out->len = have - head < want ? have - head : want;
	memcpy(out->body, text + head, out->len);
	free(text);
	while (out->len < want) {
		ssize_t n = recv(fd, out->body + out->len, want - out->len, 0);
		if (n <= 0)
			break;
		out->len += (size_t)n;
	}
	out->body[out->len] = '\0';
}

void ask_free(struct ask_answer *a)
{
	free(a->head);
	free(a->body);
	*a = (struct ask_answer){.status = 0};
}

void ask(const char *address, const char *method, const char *path, const char *headers, const void *body, size_t len,
	 struct ask_answer *out)
{
	int fd = ask_connect(address);
	ask_send(fd, method, path, headers, body, len);
	ask_receive(fd, out);
	(void)close(fd);
}

const char *ask_header(const struct ask_answer *a, const char *name)
{
	static char value[512];
	size_t n = strlen(name);
	value[0] = '\0';
	for (const char *line = a->head; line != NULL; line = strstr(line, "\r\n")) {
		line += line[0] == '\r' ? 2 : 0;
		if (strncasecmp(line, name, n) == 0 && line[n] == ':') {
			const char *at = line + n + 1 + strspn(line + n + 1, " ");
			(void)snprintf(value, sizeof(value), "%.*s", (int)strcspn(at, "\r"), at);
			break;
		}
	}
	return value;
}

/* ---- server-sent events ---- */

int ask_stream_open(struct ask_stream *s, const char *address, const char *path, const char *headers)
{
	size_t have, head;
	*s = (struct ask_stream){.fd = ask_connect(address)};
	ask_send(s->fd, "GET", path, headers, NULL, 0);
	char *text = read_head(s->fd, &have, &head);
	if (text == NULL)
		return 0;
	int status = atoi(text + 9);
	s->raw_len = have - head;
	assert_true(s->raw_len <= sizeof(s->raw));
	memcpy(s->raw, text + head, s->raw_len);
	free(text);
	return status;
}

static void take(struct ask_stream *s, const char *data, size_t n)
{
	if (s->len + n + 1 > s->cap) {
		s->cap = (s->len + n + 1) * 2;
		s->text = realloc(s->text, s->cap);
	}
	memcpy(s->text + s->len, data, n);
	s->len += n;
	s->text[s->len] = '\0';
}

/* Whole chunks leave raw. false: the last chunk was seen. */
static int unchunk(struct ask_stream *s)
{
	for (;;) {
		const char *line = memmem(s->raw, s->raw_len, "\r\n", 2);
		if (line == NULL)
			return 1;
		size_t head = (size_t)(line - s->raw) + 2, n = strtoul(s->raw, NULL, 16);
		if (n == 0)
			return 0;
		if (s->raw_len < head + n + 2)
			return 1;
		take(s, s->raw + head, n);
		s->raw_len -= head + n + 2;
		memmove(s->raw, s->raw + head + n + 2, s->raw_len);
	}
}

static int more(struct ask_stream *s)
{
	ssize_t n = recv(s->fd, s->raw + s->raw_len, sizeof(s->raw) - s->raw_len, 0);
	if (n <= 0)
		return 0;
	s->raw_len += (size_t)n;
	return unchunk(s);
}

unsigned long long ask_stream_next(struct ask_stream *s, const char **data)
{
	int open = unchunk(s);
	for (;;) {
		char *event = s->text != NULL ? s->text + s->at : NULL;
		char *end = event != NULL ? strstr(event, "\n\n") : NULL;
		if (end == NULL) {
			/* What was handed out is not needed any more. */
			if (s->at > 0) {
				s->len -= s->at;
				memmove(s->text, s->text + s->at, s->len + 1);
				s->at = 0;
			}
			if (!open)
				return 0;
			open = more(s);
			continue;
		}
		*end = '\0';
		s->at = (size_t)(end - s->text) + 2;
		if (strncmp(event, "id: ", 4) != 0)
			continue; /* a heartbeat */
		char *line = strstr(event, "\ndata: ");
		assert_non_null(line);
		*data = line + 7;
		return strtoull(event + 4, NULL, 10);
	}
}

void ask_stream_close(struct ask_stream *s)
{
	(void)close(s->fd);
	free(s->text);
	*s = (struct ask_stream){.fd = -1};
}
