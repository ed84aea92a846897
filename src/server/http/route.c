/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree of routes: see route.h. A node has its literal children, at most one parameter and at most one rest, and the
 * endpoints that end there, one per method. A lookup tries literal, parameter and rest in this order and backtracks.
 */
#include "server/http/route.h"

#include "server/http/net_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
	struct node *sibling;
	struct node *children;          /* literal ones */
	struct node *param, *rest;      /* at most one each */
	struct srv_endpoint *endpoints; /* that end here */
	char *name;                     /* of a literal */
	size_t len;
};

struct srv_routes {
	struct node root;
	struct srv_endpoint *first, **last;
};

struct segments {
	const char *method; /* of the request */
	size_t n;
	struct {
		const char *text;
		size_t len;
	} at[SRV_MAX_SEGMENTS];
};

int srv_routes_new(srv_routes **out, struct sl_err *err)
{
	srv_routes *t = calloc(1, sizeof(*t));
	if (t == NULL)
		return sl_err_set(err, SL_ENOMEM, "routes");
	t->last = &t->first;
	*out = t;
	return 0;
}

static void endpoint_free(struct srv_endpoint *e)
{
	if (e == NULL)
		return;
	for (size_t i = 0; i < e->n_params; i++)
		free(e->params[i]);
	free((void *)(uintptr_t)e->route.method);
	free((void *)(uintptr_t)e->route.path);
	free((void *)(uintptr_t)e->route.audit);
	free(e->metrics);
	free(e);
}

static void node_fini(struct node *n)
{
	struct node *next, *one[2] = {n->param, n->rest};
	for (struct node *c = n->children; c != NULL; c = next) {
		next = c->sibling;
		node_fini(c);
		free(c);
	}
	for (size_t i = 0; i < 2; i++) {
		if (one[i] != NULL) {
			node_fini(one[i]);
			free(one[i]);
		}
	}
	free(n->name);
}

void srv_routes_free(srv_routes *t)
{
	if (t == NULL)
		return;
	node_fini(&t->root);
	for (struct srv_endpoint *e = t->first, *next; e != NULL; e = next) {
		next = e->all;
		endpoint_free(e);
	}
	free(t);
}

struct srv_endpoint *srv_routes_first(srv_routes *t)
{
	return t->first;
}

static struct node *add_node(struct node **place, const char *text, size_t len)
{
	if (*place == NULL || text != NULL) {
		struct node *n = calloc(1, sizeof(*n));
		if (n == NULL || (text != NULL && (n->name = strndup(text, len)) == NULL)) {
			free(n);
			return NULL;
		}
		n->len = len;
		n->sibling = *place;
		*place = n;
	}
	return *place;
}

/* The node where the route ends, added to the tree: "jobs", "{id}" or a last "{path*}" per segment. */
static int add_route_path(srv_routes *t, struct srv_endpoint *e, struct node **out, struct sl_err *err)
{
	struct node *at = &t->root;
	const char *p = e->route.path;
	if (p[0] != '/')
		return sl_err_set(err, SL_EINVAL, "route \"%s\": a path begins with /", p);
	do {
		size_t len = strcspn(++p, "/");
		struct node *n = NULL;
		if (len > 2 && p[0] == '{' && p[len - 1] == '}') {
			bool rest = p[len - 2] == '*';
			if (e->n_params == SRV_MAX_PARAMS || (rest && p[len] != '\0'))
				return sl_err_set(err, SL_EINVAL,
						  "route %s: too many parameters, or a rest before the end",
						  e->route.path);
			e->params[e->n_params] = strndup(p + 1, len - (rest ? 3 : 2));
			if (e->params[e->n_params] != NULL) {
				e->n_params++;
				n = add_node(rest ? &at->rest : &at->param, NULL, 0);
			}
		} else {
			n = at->children;
			while (n != NULL && (n->len != len || memcmp(n->name, p, len) != 0))
				n = n->sibling;
			if (n == NULL)
				n = add_node(&at->children, p, len);
		}
		if (n == NULL)
			return sl_err_set(err, SL_ENOMEM, "route %s", e->route.path);
		at = n;
		p += len;
	} while (*p != '\0');
	*out = at;
	return 0;
}

int srv_routes_add(srv_routes *t, const struct srv_route *route, void *ctx, struct sl_err *err)
{
	struct srv_endpoint *e = calloc(1, sizeof(*e));
	struct node *at = NULL;
	if (e == NULL)
		return sl_err_set(err, SL_ENOMEM, "route %s", route->path);
	e->route = *route;
	e->ctx = ctx;
	e->route.method = strdup(route->method);
	e->route.path = strdup(route->path);
	e->route.audit = route->audit != NULL ? strdup(route->audit) : NULL;
	int rc = 0;
	if (e->route.method == NULL || e->route.path == NULL || (route->audit != NULL && e->route.audit == NULL))
		rc = sl_err_set(err, SL_ENOMEM, "route %s", route->path);
	else
		rc = add_route_path(t, e, &at, err);
	for (struct srv_endpoint *x = at != NULL ? at->endpoints : NULL; rc == 0 && x != NULL; x = x->next)
		if (strcmp(x->route.method, route->method) == 0)
			rc = sl_err_set(err, SL_EEXIST, "route %s %s exists already", route->method, route->path);
	if (rc != 0) {
		endpoint_free(e);
		return rc;
	}
	e->next = at->endpoints;
	at->endpoints = e;
	*t->last = e;
	t->last = &e->all;
	return 0;
}

static bool ends_here(struct node *n, const char *method, struct srv_match *out)
{
	for (struct srv_endpoint *e = n->endpoints; e != NULL; e = e->next)
		if (strcmp(e->route.method, method) == 0 ||
		    (strcmp(method, "HEAD") == 0 && strcmp(e->route.method, "GET") == 0)) {
			out->endpoint = e;
			return true;
		}
	if (out->other == NULL)
		out->other = n->endpoints;
	return false;
}

static bool find_segments(struct node *at, const struct segments *s, size_t i, size_t params, struct srv_match *out)
{
	if (i == s->n)
		return ends_here(at, s->method, out);
	for (struct node *n = at->children; n != NULL; n = n->sibling)
		if (n->len == s->at[i].len && memcmp(n->name, s->at[i].text, n->len) == 0 &&
		    find_segments(n, s, i + 1, params, out))
			return true;
	if (at->param != NULL && s->at[i].len > 0 && params < SRV_MAX_PARAMS) {
		out->value[params] = s->at[i].text;
		if (find_segments(at->param, s, i + 1, params + 1, out))
			return true;
	}
	if (at->rest == NULL || params == SRV_MAX_PARAMS || !ends_here(at->rest, s->method, out))
		return false;
	/* Join the segments from i on again, in place: they follow each other in the scratch. */
	for (size_t k = i; k + 1 < s->n; k++)
		((char *)(uintptr_t)s->at[k].text)[s->at[k].len] = '/';
	out->value[params] = s->at[i].text;
	return true;
}

int srv_routes_find(srv_routes *t, const char *method, const char *path, char *scratch, struct srv_match *out)
{
	struct segments s = {.method = method};
	memset(out, 0, sizeof(*out));
	if (path[0] != '/')
		return SL_EINVAL;
	const char *p = path;
	do {
		size_t len = strcspn(++p, "/");
		ptrdiff_t n = srv_percent_decode(scratch, p, len, false);
		bool root = len == 0 && p == path + 1 && *p == '\0';
		if (s.n == SRV_MAX_SEGMENTS || n < 0)
			return SL_EINVAL;
		/* No valid path has such a segment: it would climb, or name nothing. */
		if (!root && (n == 0 || strcmp(scratch, ".") == 0 || strcmp(scratch, "..") == 0))
			return SL_EINVAL;
		for (ptrdiff_t i = 0; i < n; i++)
			if ((unsigned char)scratch[i] < 0x20 || scratch[i] == 0x7f)
				return SL_EINVAL;
		s.at[s.n].text = scratch;
		s.at[s.n++].len = (size_t)n;
		scratch += n + 1;
		p += len;
	} while (*p != '\0');
	find_segments(&t->root, &s, 0, 0, out);
	return 0;
}

void srv_routes_allow(const struct srv_endpoint *first, char *out, size_t size)
{
	size_t n = 0;
	out[0] = '\0';
	for (const struct srv_endpoint *e = first; e != NULL && n < size; e = e->next) {
		const char *more = strcmp(e->route.method, "GET") == 0 ? ", HEAD" : "";
		n += (size_t)snprintf(out + n, size - n, "%s%s, ", e->route.method, more);
	}
	if (n < size)
		snprintf(out + n, size - n, "OPTIONS");
}
