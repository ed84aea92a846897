/* SPDX-License-Identifier: Apache-2.0 */
/* A unix socket in front of a server that counts round trips: how often the client spoke again after an answer. It can
 * swallow answers. One connection at a time. */
#ifndef TESTS_PG_PROXY_H
#define TESTS_PG_PROXY_H

#include "support/pg.h"

struct pg_proxy;

struct pg_proxy *pg_proxy_start(const struct pg_temp *server);
const char *pg_proxy_url(const struct pg_proxy *proxy);
unsigned pg_proxy_round_trips(const struct pg_proxy *proxy);
/* Answers to what the client says after its next n times do not come back, until the server closes the connection. */
void pg_proxy_swallow_after(struct pg_proxy *proxy, unsigned n);
void pg_proxy_stop(struct pg_proxy *proxy);

#endif
