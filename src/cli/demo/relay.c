/* SPDX-License-Identifier: Apache-2.0 */
/* A TCP relay between workers and server, on one thread. */
#include "cli/demo/relay.h"

#include "base/thread.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define POLL_MS 20

/* With a reset, so that both ends notice at once. */
static void reset(int *fd)
{
	struct linger now = {.l_onoff = 1, .l_linger = 0};

	if (*fd < 0)
		return;
	/* Without linger a close sends a reset instead of what is still in the buffer. */
	(void)setsockopt(*fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	(void)close(*fd);
	*fd = -1;
}

static void reset_pair(int pair[2])
{
	reset(&pair[0]);
	reset(&pair[1]);
}

static void reset_all(struct demorelay *r)
{
	for (int i = 0; i < DEMORELAY_PAIRS; i++) {
		r->resets += r->pairs[i][0] >= 0;
		reset_pair(r->pairs[i]);
	}
}

static void accept_pair(struct demorelay *r)
{
	int client = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC);
	int server = client >= 0 && !r->cut ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
	int pair[2] = {client, server};

	/* While the network is cut a connection is accepted and reset: that is what a client of a dead peer sees. */
	if (server >= 0 && connect(server, (const struct sockaddr *)&r->to, sizeof(r->to)) == 0) {
		for (int i = 0; i < DEMORELAY_PAIRS; i++) {
			if (r->pairs[i][0] < 0) {
				memcpy(r->pairs[i], pair, sizeof(pair));
				return;
			}
		}
	}
	reset_pair(pair);
}

/* What is there goes over; the end of one side is the end of both. */
static void pass_bytes(int from, int to, int pair[2])
{
	char buf[16384];
	ssize_t n = recv(from, buf, sizeof(buf), 0);

	for (ssize_t done = 0, w; n > 0 && done < n; done += w) {
		w = send(to, buf + done, (size_t)(n - done), MSG_NOSIGNAL);
		if (w <= 0)
			n = -1;
	}
	if (n <= 0)
		reset_pair(pair);
}

static void *run_relay(void *arg)
{
	struct demorelay *r = arg;

	while (!r->stop) {
		struct pollfd fds[2 * DEMORELAY_PAIRS + 1];

		/* Both ends of each pair, and the listener last. Descriptors of -1 are ignored by poll. */
		for (int i = 0; i < 2 * DEMORELAY_PAIRS; i++)
			fds[i] = (struct pollfd){.fd = r->pairs[i / 2][i % 2], .events = POLLIN};
		fds[2 * DEMORELAY_PAIRS] = (struct pollfd){.fd = r->listener, .events = POLLIN};
		(void)poll(fds, 2 * DEMORELAY_PAIRS + 1, POLL_MS);
		/* A cut is noticed within one round. */
		if (r->cut)
			reset_all(r);
		/* A pair may have been reset by its other end in this round: then its descriptor has changed. */
		for (int i = 0; i < 2 * DEMORELAY_PAIRS; i++) {
			int *pair = r->pairs[i / 2];

			if (fds[i].revents && pair[i % 2] == fds[i].fd && fds[i].fd >= 0)
				pass_bytes(pair[i % 2], pair[1 - i % 2], pair);
		}
		if (fds[2 * DEMORELAY_PAIRS].revents)
			accept_pair(r);
	}
	return NULL;
}

int demorelay_start(struct demorelay *r, int port)
{
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof(here);
	int failed;

	memset(r, 0, sizeof(*r));
	for (int i = 0; i < DEMORELAY_PAIRS; i++)
		r->pairs[i][0] = r->pairs[i][1] = -1;
	r->to = here;
	r->to.sin_port = htons((uint16_t)port);
	/* Port 0: the system chooses one that is free. */
	r->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (r->listener < 0 || bind(r->listener, (const struct sockaddr *)&here, sizeof(here)) ||
	    listen(r->listener, 64) || getsockname(r->listener, (struct sockaddr *)&here, &n))
		return errno;
	r->port = ntohs(here.sin_port);
	failed = -sl__thread_start(&r->thread, "relay", run_relay, r);
	if (failed)
		r->port = 0;
	return failed;
}

void demorelay_cut(struct demorelay *r, bool cut)
{
	r->cut = cut;
}

void demorelay_stop(struct demorelay *r)
{
	if (!r->port)
		return;
	/* The thread ends within one round; nothing else uses the descriptors then. */
	r->stop = 1;
	(void)pthread_join(r->thread, NULL);
	reset_all(r);
	(void)close(r->listener);
	r->port = 0;
}
