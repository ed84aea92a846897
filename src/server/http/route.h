/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of routes: a tree of path segments. A literal segment wins over a parameter, a parameter over a rest, and a
 * path that exists for another method only is known as such.
 *
 * Thread safety: added to by one thread before the first lookup; lookups are read-only. Ownership: the table copies
 * every string; parameter values point into what srv_routes_find was given.
 */
#ifndef SLUICE_SERVER_ROUTE_H
#define SLUICE_SERVER_ROUTE_H

#include "server/http/http.h"

#define SRV_MAX_PARAMS 8
#define SRV_MAX_SEGMENTS 24

struct srv_route_metrics; /* http/metrics.c */
struct srv_crowd;         /* http/gather.c */

struct srv_endpoint {
	struct srv_endpoint *next; /* of the same path, other methods */
	struct srv_endpoint *all;  /* every endpoint of the table */
	struct srv_route route;    /* strings are the table's */
	void *ctx;
	srv_many_fn *many;       /* NULL: each for itself */
	struct srv_crowd *crowd; /* with many: who waits */
	size_t n_params;
	char *params[SRV_MAX_PARAMS]; /* names, in the order of the path */
	struct srv_route_metrics *metrics;
};

typedef struct srv_routes srv_routes;

int srv_routes_new(srv_routes **out, struct sl_err *err);
void srv_routes_free(srv_routes *t);
/* SL_EEXIST: the same method and path are there; SL_EINVAL: a path that is not one. */
int srv_routes_add(srv_routes *t, const struct srv_route *route, void *ctx, struct sl_err *err);
struct srv_endpoint *srv_routes_first(srv_routes *t); /* then by ->all */

struct srv_match {
	struct srv_endpoint *endpoint;     /* NULL: none for this method */
	struct srv_endpoint *other;        /* one of another method, when endpoint is NULL: 405 */
	const char *value[SRV_MAX_PARAMS]; /* decoded */
};

/* Find path (it begins with '/'; escapes are decoded per segment, into scratch, which needs strlen(path) + 2 bytes).
 * HEAD is served by GET. 0, or SL_EINVAL: an empty, "." or ".." segment, a bad escape, not UTF-8, a control character.
 */
int srv_routes_find(srv_routes *t, const char *method, const char *path, char *scratch, struct srv_match *out);
/* "GET, HEAD, OPTIONS" of the path's endpoints, NUL-terminated. */
void srv_routes_allow(const struct srv_endpoint *first, char *out, size_t size);

#endif
