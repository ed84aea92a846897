/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/tiny_endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define BODY_MAX 200000

struct tiny_endpoint {
	int fd, stop[2];
	char url[64];
	pthread_t thread;
	pthread_mutex_t mu;
	pthread_cond_t asked;
	int status, requests; /* under mu */
	char accepted[BODY_MAX];
};

/* 0: there is something to read; else it is time to stop. */
static int wait_for(struct tiny_endpoint *e, int fd)
{
	struct pollfd p[2] = {{.fd = e->stop[0], .events = POLLIN}, {.fd = fd, .events = POLLIN}};
	while (poll(p, 2, -1) < 0)
		;
	return p[0].revents != 0 ? -1 : 0;
}

/* A whole request into buf; the length of its body, -1 at the end. */
static long read_request(struct tiny_endpoint *e, int fd, char *buf, char **body)
{
	size_t n = 0;
	for (;;) {
		if (wait_for(e, fd) != 0)
			return -1;
		ssize_t got = read(fd, buf + n, BODY_MAX - 1 - n);
		if (got <= 0)
			return -1;
		n += (size_t)got;
		buf[n] = '\0';
		*body = strstr(buf, "\r\n\r\n");
		const char *length = strcasestr(buf, "Content-Length: ");
		if (*body == NULL || length == NULL)
			continue;
		*body += 4;
		long len = strtol(length + strlen("Content-Length: "), NULL, 10);
		if (buf + n - *body >= len)
			return len;
	}
}

static int note_request(struct tiny_endpoint *e, const char *body, long len)
{
	pthread_mutex_lock(&e->mu);
	int status = e->status;
	if (status == 200)
		strncat(e->accepted, body, (size_t)len);
	e->requests++;
	pthread_cond_broadcast(&e->asked);
	pthread_mutex_unlock(&e->mu);
	return status;
}

static void serve(struct tiny_endpoint *e, int fd, char *buf)
{
	char answer[128], *body;
	long len;
	while ((len = read_request(e, fd, buf, &body)) >= 0) {
		int status = note_request(e, body, len);
		if (status == TINY_ENDPOINT_SILENT)
			(void)wait_for(e, e->stop[0]);
		if (status <= 0)
			return;
		int n = snprintf(answer, sizeof(answer), "HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n", status);
		if (write(fd, answer, (size_t)n) != n)
			return;
	}
}

static void *main_of(void *arg)
{
	struct tiny_endpoint *e = arg;
	char *buf = malloc(BODY_MAX);
	while (buf != NULL && wait_for(e, e->fd) == 0) {
		int fd = accept(e->fd, NULL, NULL);
		if (fd < 0)
			continue;
		serve(e, fd, buf);
		(void)close(fd);
	}
	free(buf);
	return NULL;
}

struct tiny_endpoint *tiny_endpoint_start(void)
{
	struct tiny_endpoint *e = calloc(1, sizeof(*e));
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	assert_non_null(e);
	e->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(e->fd >= 0);
	assert_int_equal(bind(e->fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(e->fd, 8), 0);
	assert_int_equal(getsockname(e->fd, (struct sockaddr *)&at, &len), 0);
	assert_int_equal(pipe(e->stop), 0);
	(void)snprintf(e->url, sizeof(e->url), "http://127.0.0.1:%d/audit", ntohs(at.sin_port));
	e->status = 200;
	(void)pthread_mutex_init(&e->mu, NULL);
	(void)pthread_cond_init(&e->asked, NULL);
	assert_int_equal(pthread_create(&e->thread, NULL, main_of, e), 0);
	return e;
}

const char *tiny_endpoint_url(const struct tiny_endpoint *e)
{
	return e->url;
}

void tiny_endpoint_answer(struct tiny_endpoint *e, int status)
{
	pthread_mutex_lock(&e->mu);
	e->status = status;
	pthread_mutex_unlock(&e->mu);
}

void tiny_endpoint_wait_request(struct tiny_endpoint *e)
{
	pthread_mutex_lock(&e->mu);
	while (e->requests == 0)
		(void)pthread_cond_wait(&e->asked, &e->mu);
	pthread_mutex_unlock(&e->mu);
}

const char *tiny_endpoint_accepted(struct tiny_endpoint *e)
{
	return e->accepted;
}

void tiny_endpoint_stop(struct tiny_endpoint *e)
{
	assert_int_equal(write(e->stop[1], "", 1), 1);
	(void)pthread_join(e->thread, NULL);
	(void)close(e->fd);
	(void)close(e->stop[0]);
	(void)close(e->stop[1]);
	pthread_cond_destroy(&e->asked);
	pthread_mutex_destroy(&e->mu);
	free(e);
}
