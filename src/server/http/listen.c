/* SPDX-License-Identifier: Apache-2.0 */
/* The listening socket: "127.0.0.1:7070", "[::1]:7070", ":7070" (every address), "localhost:7070". */
#include "server/http/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int split(const char *listen, char *host, size_t size, const char **port)
{
	const char *colon = strrchr(listen, ':');
	size_t n = colon != NULL ? (size_t)(colon - listen) : 0;
	if (colon == NULL || colon[1] == '\0' || n + 1 > size || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
	    strlen(colon + 1) > 5 || atoi(colon + 1) > 65535)
		return -1;
	if (n >= 2 && listen[0] == '[' && listen[n - 1] == ']') {
		listen++;
		n -= 2;
	}
	memcpy(host, listen, n);
	host[n] = '\0';
	*port = colon + 1;
	return 0;
}

static int bind_to(const struct addrinfo *a)
{
	int one = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 1024) == 0)
		return fd;
	int rc = -errno;
	close(fd);
	return rc;
}

static bool is_loopback(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)(const void *)sa)->sin_addr.s_addr) >> 24 == 127;
	return sa->sa_family == AF_INET6 &&
	       IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr);
}

int srv_listen_find(const char *listen, struct addrinfo **found, bool *loopback, struct sl_err *err)
{
	char host[256];
	const char *port;
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	if (split(listen, host, sizeof(host), &port) != 0)
		return sl_err_set(err, SL_ECONFIG, "listen \"%s\": expected ADDRESS:PORT", listen);
	int rc = getaddrinfo(host[0] != '\0' ? host : NULL, port, &hints, found);
	if (rc != 0)
		return sl_err_set(err, SL_ECONFIG, "listen %s: %s", listen, gai_strerror(rc));
	*loopback = is_loopback((*found)->ai_addr);
	return 0;
}

int srv_listen_bind(srv_http *h, const struct addrinfo *found, const char *listen, struct sl_err *err)
{
	int fd = bind_to(found);
	if (fd == -EADDRINUSE)
		return sl_err_set_errno(
			err, EADDRINUSE,
			"listen on %s, where another process listens (--listen takes another address, port 0 any "
			"free port)",
			listen);
	if (fd < 0)
		return sl_err_set_errno(err, -fd, "listen on %s", listen);
	h->listen_fd = fd;
	struct sockaddr_storage sa;
	socklen_t n = sizeof(sa);
	char host[INET6_ADDRSTRLEN], port[8];
	getsockname(h->listen_fd, (struct sockaddr *)&sa, &n);
	getnameinfo((struct sockaddr *)&sa, n, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(h->address, sizeof(h->address), sa.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
	return 0;
}
