/* SPDX-License-Identifier: Apache-2.0 */
/* A unix socket in front of a server that counts round trips: how often the client spoke again after an answer. One
 * connection at a time. */
#ifndef TESTS_PG_PROXY_H
#define TESTS_PG_PROXY_H

#include "support/pg.h"

struct pg_proxy;

struct pg_proxy *pg_proxy_start(const struct pg_temp *server);
const char *pg_proxy_url(const struct pg_proxy *proxy);
unsigned pg_proxy_round_trips(const struct pg_proxy *proxy);
void pg_proxy_stop(struct pg_proxy *proxy);

#endif
