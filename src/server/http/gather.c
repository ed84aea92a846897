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

#define MANY_BYTES ((size_t)1 << 20) /* of bodies that are handled together, in addition to the first */
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

int srv_http_gather(srv_http *h, const char *method, const char *path, srv_many_fn *many, size_t parts,
		    struct sl_err *err)
{
	struct srv_endpoint *e = srv_routes_first(h->routes);
	while (e != NULL && (strcmp(e->route.method, method) != 0 || strcmp(e->route.path, path) != 0))
		e = e->all;
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
	for (struct srv_endpoint *e = h->routes != NULL ? srv_routes_first(h->routes) : NULL; e != NULL; e = e->all) {
		if (e->crowd != NULL) {
			sl__cond_fini(&e->crowd->gathered);
			free(e->crowd);
		}
	}
}

static srv_request *pop_request(struct srv_crowd *c)
{
	srv_request *r = c->first;
	c->first = r->queue_next;
	if (c->first == NULL)
		c->last = NULL;
	c->n--;
	return r;
}

/* How many are handled together at most, where they are parted. */
static size_t most_together(const struct srv_crowd *c)
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

/* The next one is appended to the queue, so that a single worker does other things as well. */
static void gather_next(srv_http *h, struct srv_crowd *c, size_t n, int64_t began_ns)
{
	sl__lock(&h->mu);
	c->took_ns = sl__mono_ns(&h->env) - began_ns;
	c->were = n > c->n ? n : c->n; /* clients that left may return, in addition to those that are here */
	c->busy = c->n > 0;
	if (c->busy)
		srv_queue_push(h, pop_request(c));
	sl__unlock(&h->mu);
}

/* All that are kept together come again after their answers, and are called then. */
void srv_many_next(srv_request *const *all)
{
	struct srv_together *t = all[0]->together;
	if (t->crowd->parts == 1 || t->next_called)
		return;
	t->next_called = true;
	gather_next(all[0]->h, t->crowd, t->n, t->began_ns);
}

void srv_gather_run(srv_http *h, srv_request *r)
{
	const struct srv_endpoint *e = r->match.endpoint;
	struct srv_crowd *c = e->crowd;
	srv_request *all[SRV_MANY_MAX] = {r};
	size_t n = 1, bytes = 0;

	/* Wait for as many as there were the last time, or a part of them; the first one is here. */
	sl__lock(&h->mu);
	int64_t wait_ns = SL_MIN(c->took_ns / GATHER_PART, GATHER_MAX_NS);
	int64_t deadline = sl__mono_ns(&h->env) + wait_ns;
	size_t expected = SL_MIN(c->were, most_together(c));
	c->expected = expected > 0 ? expected - 1 : 0;
	while (c->n < c->expected && !atomic_load(&h->stopping))
		if (!sl__wait(&h->env, &c->gathered, &h->mu, deadline))
			break;
	c->expected = 0;
	size_t most = SL_MIN(most_together(c), SRV_MANY_MAX);
	while (n < most && c->first != NULL && (bytes += c->first->body_len) <= MANY_BYTES)
		all[n++] = pop_request(c);
	sl__unlock(&h->mu);

	struct srv_together t = {.crowd = c, .n = n, .began_ns = sl__mono_ns(&h->env)};
	if (n == 1) {
		srv_run(r);
		gather_next(h, c, n, t.began_ns);
		return;
	}
	bool abandoned = false;
	for (size_t i = 0; i < n; i++)
		abandoned |= (atomic_load(&all[i]->state) & R_ABANDONED) != 0;
	if (!abandoned) {
		for (size_t i = 0; i < n; i++)
			all[i]->together = &t;
		e->many(all, n, e->ctx);
	}
	/* Those without an answer go to the queue, to be handled alone. */
	for (size_t i = 0; i < n; i++) {
		all[i]->together = NULL;
		if (all[i]->ready) {
			srv_answer_leave(all[i]);
			srv_request_unref(all[i]);
			continue;
		}
		all[i]->alone = true;
		sl__lock(&h->mu);
		srv_queue_push(h, all[i]);
		sl__unlock(&h->mu);
	}
	if (!t.next_called)
		gather_next(h, c, n, t.began_ns);
}
