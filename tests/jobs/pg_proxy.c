/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/pg_proxy.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct pg_proxy {
	char folder[64], url[512];
	struct sockaddr_un server, mine;
	int listener;
	int stop[2];
	pthread_t thread;
	atomic_uint round_trips, last_answered;
};

static int must(int rc)
{
	if (rc < 0) {
		perror("proxy");
		abort();
	}
	return rc;
}

/* Copy what is there from one end to the other, or discard it (to is -1); 0 at the end. */
static ssize_t copy(int from, int to)
{
	char buf[65536];
	ssize_t n = read(from, buf, sizeof(buf));
	for (ssize_t done = 0; done < n && to >= 0;)
		done += must((int)write(to, buf + done, (size_t)(n - done)));
	return n;
}

static void relay(struct pg_proxy *p, int client)
{
	int server = must(socket(AF_UNIX, SOCK_STREAM, 0));
	bool answered = true; /* the server spoke last */
	must(connect(server, (struct sockaddr *)&p->server, sizeof(p->server)));
	struct pollfd fds[3] = {{.fd = client, .events = POLLIN},
				{.fd = server, .events = POLLIN},
				{.fd = p->stop[0], .events = POLLIN}};
	for (ssize_t n = 1; n > 0 && poll(fds, 3, -1) > 0 && fds[2].revents == 0;) {
		if (fds[0].revents != 0) {
			if (answered)
				atomic_fetch_add(&p->round_trips, 1);
			answered = false;
			n = copy(client, server);
		} else if (fds[1].revents != 0) {
			answered = true;
			n = copy(server, p->round_trips > p->last_answered ? -1 : client);
		}
	}
	close(server);
	close(client);
}

static void *proxy_main(void *arg)
{
	struct pg_proxy *p = arg;
	struct pollfd fds[2] = {{.fd = p->listener, .events = POLLIN}, {.fd = p->stop[0], .events = POLLIN}};
	while (poll(fds, 2, -1) > 0 && fds[1].revents == 0)
		relay(p, must(accept(p->listener, NULL, NULL)));
	return NULL;
}

/* The folder in host=%2F… of the server's URL. */
static void decode_folder(const char *url, char *out)
{
	const char *at = strstr(url, "host=");
	for (at = at != NULL ? at + 5 : ""; *at != '\0' && *at != '&'; out++) {
		if (*at == '%') {
			char hex[3] = {at[1], at[2], '\0'};
			*out = (char)strtol(hex, NULL, 16);
			at += 3;
		} else {
			*out = *at++;
		}
	}
	*out = '\0';
}

struct pg_proxy *pg_proxy_start(const struct pg_temp *server)
{
	struct pg_proxy *p = calloc(1, sizeof(*p));
	char folder[256];
	if (p == NULL)
		abort();
	decode_folder(pg_temp_url(server), folder);
	(void)snprintf(p->folder, sizeof(p->folder), "/tmp/sluice-proxy-XXXXXX");
	if (mkdtemp(p->folder) == NULL)
		abort();
	p->server.sun_family = p->mine.sun_family = AF_UNIX;
	(void)snprintf(p->server.sun_path, sizeof(p->server.sun_path), "%.80s/.s.PGSQL.5432", folder);
	(void)snprintf(p->mine.sun_path, sizeof(p->mine.sun_path), "%s/.s.PGSQL.5432", p->folder);
	(void)snprintf(p->url, sizeof(p->url), "postgres:///postgres?user=postgres&host=%s", p->folder);
	atomic_init(&p->last_answered, UINT_MAX);
	p->listener = must(socket(AF_UNIX, SOCK_STREAM, 0));
	must(bind(p->listener, (struct sockaddr *)&p->mine, sizeof(p->mine)));
	must(listen(p->listener, 4));
	must(pipe(p->stop));
	if (pthread_create(&p->thread, NULL, proxy_main, p) != 0)
		abort();
	return p;
}

const char *pg_proxy_url(const struct pg_proxy *p)
{
	return p->url;
}

unsigned pg_proxy_round_trips(const struct pg_proxy *p)
{
	return atomic_load(&p->round_trips);
}

void pg_proxy_swallow_after(struct pg_proxy *p, unsigned n)
{
	atomic_store(&p->last_answered, n == UINT_MAX ? n : atomic_load(&p->round_trips) + n);
}

void pg_proxy_stop(struct pg_proxy *p)
{
	must((int)write(p->stop[1], "", 1));
	pthread_join(p->thread, NULL);
	close(p->listener);
	close(p->stop[0]);
	close(p->stop[1]);
	unlink(p->mine.sun_path);
	rmdir(p->folder);
	free(p);
}
