/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes whose requests are handled together. One worker at a time has some of a route: while it handles them, others
 * gather, and leave together afterwards.
 *
 * Clients that got their answers at the same time come again at about the same time. So the worker waits for as many as
 * there were the last time, for a part of the time that those took: what they wait for (a disk's sync) is the same for
 * one and for many, and a request that comes too late waits for the whole of it. A client that is alone never waits.
 *
 * Where the store lies elsewhere, many clients are handled in two parts that take turns: while the store works for one,
 * the answers and the next requests of the other are on their way.
 */
#include "server/http/internal.h"

#include <stdlib.h>
#include <string.h>

#define MANY_BYTES ((size_t)1 << 20) /* of bodies that are handled together, beside the first */
#define GATHER_PART 2                /* of what the last ones took, to wait for others */
#define GATHER_MAX_NS 5000000        /* when those took long, what they waited for was not a disk */
#define PARTED_LEAST 8               /* clients; fewer stay together */

struct srv_crowd {
	sl__cond gathered;
	size_t parts;
	/* under h->mu: */
	size_t clients; /* connections that have been here */
	srv_request *first, *last;
	size_t n;
	size_t expected; /* waited for; 0: no worker waits */
	size_t were;     /* the last time */
	int64_t took_ns;
	bool busy; /* one is in the queue, or a worker has some */
};

static struct srv_endpoint *find(srv_http *h, const char *method, const char *path)
{
	struct srv_endpoint *e = srv_routes_first(h->routes);
	while (e != NULL && (strcmp(e->route.method, method) != 0 || strcmp(e->route.path, path) != 0))
		e = e->all;
	return e;
}

int srv_http_gather(srv_http *h, const char *method, const char *path, srv_many_fn *many, size_t parts,
		    struct sl_err *err)
{
	struct srv_endpoint *e = find(h, method, path);
	if (e == NULL)
		return sl_err_set(err, SL_ENOENT, "there is no route %s %s", method, path);
	e->crowd = calloc(1, sizeof(*e->crowd));
	if (e->crowd == NULL)
		return sl_err_set(err, SL_ENOMEM, "gather requests");
	sl__cond_init(&e->crowd->gathered);
	e->crowd->parts = parts;
	e->many = many;
	return 0;
}

void srv_gather_free(srv_http *h)
{
	for (struct srv_endpoint *e = h->routes != NULL ? srv_routes_first(h->routes) : NULL; e != NULL; e = e->all)
		if (e->crowd != NULL) {
			sl__cond_fini(&e->crowd->gathered);
			free(e->crowd);
		}
}

static srv_request *take(struct srv_crowd *c)
{
	srv_request *r = c->first;
	c->first = r->queue_next;
	if (c->first == NULL)
		c->last = NULL;
	c->n--;
	return r;
}

/* How many are handled together at most, where they are parted. */
static size_t part(const struct srv_crowd *c)
{
	return c->parts > 1 && c->clients >= PARTED_LEAST ? (c->clients + c->parts - 1) / c->parts : SRV_MANY_MAX;
}

void srv_gather_leave(struct srv_crowd *c)
{
	c->clients--;
}

void srv_gather_queue(srv_http *h, srv_request *r)
{
	struct srv_crowd *c = r->match.endpoint->crowd;
	if (r->conn->crowd == NULL) {
		r->conn->crowd = c;
		c->clients++;
	}
	if (!c->busy) {
		c->busy = true;
		srv_queue_push(h, r);
		return;
	}
	r->queue_next = NULL;
	*(c->last != NULL ? &c->last->queue_next : &c->first) = r;
	c->last = r;
	c->n++;
	if (c->n == c->expected)
		sl__signal(&c->gathered);
}

/* h->mu held. Wait for as many as there were, or a part; the first of them is here. */
static void wait_for_others(srv_http *h, struct srv_crowd *c) SL_REQUIRES(h->mu)
{
	int64_t some = c->took_ns / GATHER_PART;
	int64_t deadline = sl__mono_ns(&h->env) + (some < GATHER_MAX_NS ? some : GATHER_MAX_NS);
	size_t all = c->were < part(c) ? c->were : part(c);
	c->expected = all > 0 ? all - 1 : 0;
	while (c->n < c->expected && !atomic_load(&h->stopping))
		if (!sl__wait(&h->env, &c->gathered, &h->mu, deadline))
			break;
	c->expected = 0;
}

/* h->mu held: r and those after it, up to a bound; their number. */
static size_t take_many(struct srv_crowd *c, srv_request *r, srv_request **all)
{
	size_t most = part(c), n = 1, bytes = 0;
	all[0] = r;
	while (n < most && n < SRV_MANY_MAX && c->first != NULL && (bytes += c->first->body_len) <= MANY_BYTES)
		all[n++] = take(c);
	return n;
}

static bool any_abandoned(srv_request *const *all, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((atomic_load(&all[i]->state) & R_ABANDONED) != 0)
			return true;
	return false;
}

/* The next one is appended to the queue, so that a single worker does other things as well. */
static void call_next(srv_http *h, struct srv_crowd *c, size_t n, int64_t began_ns)
{
	sl__lock(&h->mu);
	c->took_ns = sl__mono_ns(&h->env) - began_ns;
	c->were = n > c->n ? n : c->n; /* those who have gone may come again, beside those who are here */
	c->busy = c->n > 0;
	if (c->busy)
		srv_queue_push(h, take(c));
	sl__unlock(&h->mu);
}

/* All that are kept together come again after their answers, and are called then. */
void srv_many_next(srv_request *const *all)
{
	struct srv_together *t = all[0]->together;
	if (t->crowd->parts == 1 || t->next_called)
		return;
	t->next_called = true;
	call_next(all[0]->h, t->crowd, t->n, t->began_ns);
}

static void run_many(srv_http *h, const struct srv_endpoint *e, srv_request **all, size_t n)
{
	struct srv_together t = {.crowd = e->crowd, .n = n, .began_ns = sl__mono_ns(&h->env)};
	if (!any_abandoned(all, n)) {
		for (size_t i = 0; i < n; i++)
			all[i]->together = &t;
		e->many(all, n, e->ctx);
	}
	/* Those that are left unanswered go to the queue, each for itself. */
	for (size_t i = 0; i < n; i++) {
		srv_request *r = all[i];
		r->together = NULL;
		if (r->ready) {
			srv_answer_leave(r);
			srv_request_unref(r);
			continue;
		}
		r->alone = true;
		sl__lock(&h->mu);
		srv_queue_push(h, r);
		sl__unlock(&h->mu);
	}
	if (!t.next_called)
		call_next(h, e->crowd, n, t.began_ns);
}

void srv_gather_run(srv_http *h, srv_request *r)
{
	struct srv_endpoint *e = r->match.endpoint;
	srv_request *all[SRV_MANY_MAX];
	sl__lock(&h->mu);
	wait_for_others(h, e->crowd);
	size_t n = take_many(e->crowd, r, all);
	sl__unlock(&h->mu);
	if (n > 1) {
		run_many(h, e, all, n);
		return;
	}
	int64_t began = sl__mono_ns(&h->env);
	srv_run(r);
	call_next(h, e->crowd, n, began);
}
