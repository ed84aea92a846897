/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network that can be cut: a relay on its own port in front of a server. While it is cut, every connection is
 * reset, those that are open with whatever was on its way in them, and those that come.
 *
 * Thread safety: cut from any thread; start and stop from one.
 */
#ifndef SLUICE_CLI_DEMO_RELAY_H
#define SLUICE_CLI_DEMO_RELAY_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define DEMORELAY_PAIRS 64

struct demorelay {
	int listener;
	struct sockaddr_in to;
	int port;                      /* of the listener */
	int pairs[DEMORELAY_PAIRS][2]; /* client and server; -1: none */
	_Atomic bool cut, stop;
	_Atomic int resets; /* connections that a cut has ended */
	pthread_t thread;
};

/* In front of 127.0.0.1:port. 0, or an errno. */
int demorelay_start(struct demorelay *relay, int port);
void demorelay_cut(struct demorelay *relay, bool cut);
void demorelay_stop(struct demorelay *relay);

#endif
