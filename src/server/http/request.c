/* SPDX-License-Identifier: Apache-2.0 */
/* A request's memory and what handlers read of it. */
#include "server/http/internal.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct arena_more {
	struct arena_more *next;
	_Alignas(16) char bytes[];
};

void *srv_arena(srv_request *r, size_t size)
{
	size_t need = (size + 15) & ~(size_t)15;
	if (need <= sizeof(r->arena.bytes) - r->arena.used) {
		void *p = r->arena.bytes + r->arena.used;
		r->arena.used += need;
		return p;
	}
	struct arena_more *more = malloc(sizeof(*more) + size);
	if (more == NULL)
		return NULL;
	more->next = r->arena.more;
	r->arena.more = more;
	return more->bytes;
}

char *srv_arena_text(srv_request *r, const char *s)
{
	size_t n = strlen(s) + 1;
	char *p = srv_arena(r, n);
	return p != NULL ? memcpy(p, s, n) : NULL;
}

static void request_free(srv_request *r)
{
	pthread_mutex_destroy(&r->later_mu);
	free(r);
}

srv_request *srv_request_new(srv_http *h, struct srv_conn *c, const char *target)
{
	srv_request *r = c->spare;
	c->spare = NULL;
	if (r == NULL) {
		r = calloc(1, sizeof(*r));
		if (r == NULL)
			return NULL;
		pthread_mutexattr_t attr;
		pthread_mutexattr_init(&attr);
		pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
		pthread_mutex_init(&r->later_mu, &attr);
		pthread_mutexattr_destroy(&attr);
	}
	r->h = h;
	r->conn = c;
	atomic_init(&r->state, 0);
	atomic_init(&r->refs, 2);
	r->start_ns = sl__mono_ns(&h->env);
	memcpy(r->address, c->address, sizeof(r->address));
	r->target = srv_arena_text(r, target);
	if (r->target == NULL) {
		request_free(r);
		return NULL;
	}
	return r;
}

/* The last reference goes: keep r for the connection's next request, or free it. */
static void let_go(srv_request *r, struct srv_conn *keep)
{
	srv_http *h = r->h;
	bool dispatched = r->dispatched;
	/* Everything that a later request on the same connection must not see. */
	size_t from = offsetof(srv_request, queue_next), to = offsetof(srv_request, later_mu);
	srv_json_body_fini(&r->json);
	atomic_fetch_sub(&r->h->body_bytes, (int64_t)(r->body_cap + r->reserved));
	if (r->match.endpoint != NULL && (r->match.endpoint->route.flags & SRV_OF_SESSION) != 0) {
		/* The new session's id, wherever the answer kept it. */
		const char *cookie = r->response != NULL ? MHD_get_response_header(r->response, "Set-Cookie") : NULL;
		if (cookie != NULL)
			sodium_memzero((void *)(uintptr_t)cookie, strlen(cookie));
		if (r->body != NULL)
			sodium_memzero(r->body, r->body_cap); /* also of a login that was refused before it ran */
		for (size_t i = 0; i < r->n_out; i++)
			sodium_memzero((void *)(uintptr_t)r->out[i].value, strlen(r->out[i].value));
		sodium_memzero(r->session, sizeof(r->session));
	}
	free(r->body);
	if (r->response != NULL)
		MHD_destroy_response(r->response);
	atomic_fetch_sub(&r->h->answer_bytes, (int64_t)r->answer_kept);
	/* The arena keeps its first block. */
	for (struct arena_more *m = r->arena.more, *next; m != NULL; m = next) {
		next = m->next;
		free(m);
	}
	r->arena.more = NULL;
	r->arena.used = 0;
	memset((char *)r + from, 0, to - from);
	from = offsetof(srv_request, gone);
	to = offsetof(srv_request, arena);
	memset((char *)r + from, 0, to - from);
	if (keep != NULL && keep->spare == NULL)
		keep->spare = r;
	else
		request_free(r);
	if (dispatched && atomic_fetch_sub(&h->n_active, 1) == 1 && atomic_load(&h->stopping)) {
		sl__lock(&h->mu);
		sl__broadcast(&h->idle);
		sl__unlock(&h->mu);
	}
}

void srv_request_unref(srv_request *r)
{
	if (atomic_fetch_sub(&r->refs, 1) == 1)
		let_go(r, NULL);
}

void srv_request_detach(srv_request *r)
{
	struct srv_conn *c = r->conn;
	r->conn = NULL;
	if (atomic_fetch_sub(&r->refs, 1) == 1)
		let_go(r, c);
}

void srv_request_free_spare(struct srv_conn *c)
{
	if (c->spare != NULL)
		request_free(c->spare);
}

const char *srv_path(const srv_request *r)
{
	return r->path;
}

const char *srv_param(const srv_request *r, const char *name)
{
	const struct srv_endpoint *e = r->match.endpoint;
	for (size_t i = 0; e != NULL && i < e->n_params; i++)
		if (strcmp(e->params[i], name) == 0)
			return r->match.value[i];
	return NULL;
}

const char *srv_query(const srv_request *r, const char *name)
{
	for (size_t i = 0; i < r->n_query; i++)
		if (strcmp(r->query[i].name, name) == 0)
			return r->query[i].value;
	return NULL;
}

void srv_query_each(const srv_request *r, int (*fn)(const char *name, const char *value, void *ctx), void *ctx)
{
	for (size_t i = 0; i < r->n_query; i++)
		if (fn(r->query[i].name, r->query[i].value, ctx) != 0)
			return;
}

const char *srv_header(const srv_request *r, const char *name)
{
	for (size_t i = 0; i < r->n_headers; i++)
		if (strcasecmp(r->headers[i].name, name) == 0)
			return r->headers[i].value;
	return NULL;
}

const void *srv_body(const srv_request *r, size_t *len)
{
	if (len != NULL)
		*len = r->body_len;
	return r->body != NULL ? r->body : "";
}

bool srv_body_reserve(size_t bytes, void *request)
{
	srv_request *r = request;
	if (atomic_fetch_add(&r->h->body_bytes, (int64_t)bytes) + (int64_t)bytes > r->h->bodies_max) {
		atomic_fetch_sub(&r->h->body_bytes, (int64_t)bytes);
		return false;
	}
	r->reserved += bytes;
	return true;
}

json_t *srv_body_json_but(srv_request *r, const char *name, int depth)
{
	struct sl_err err = SL_ERR_INIT;
	if (r->json.json != NULL)
		return r->json.json;
	const struct srv_json_opts opts = {name, depth, srv_body_reserve, r};
	int rc = srv_json_body_parse(&r->json, (struct srv_text){r->body != NULL ? r->body : "", r->body_len}, &opts,
				     &err);
	if (rc == SL_EDATA) {
		srv_error(r, 400, "bad_json", "%s", err.msg);
	} else if (rc == SL_EFULL) {
		srv_retry_after(r, 1000);
		srv_error(r, 503, "busy", "%s", err.msg);
	} else if (rc != 0) {
		srv_fail(r, &err);
	}
	return r->json.json;
}

json_t *srv_body_json(srv_request *r)
{
	return srv_body_json_but(r, NULL, 0);
}

struct srv_text srv_body_opaque(const srv_request *r, const json_t *member)
{
	return srv_json_body_text(&r->json, member);
}

const char *srv_actor(const srv_request *r)
{
	return r->identity.name;
}

enum srv_role srv_role(const srv_request *r)
{
	return r->identity.role;
}

bool srv_may_enqueue(const srv_request *r, const char *type)
{
	return r->identity.role >= SRV_WRITE || srv_scope_has(r->identity.enqueue, type, false);
}

bool srv_may_ship(const srv_request *r, const char *stream)
{
	return r->identity.role >= SRV_WRITE || srv_ships(r, stream);
}

bool srv_ships(const srv_request *r, const char *stream)
{
	return srv_scope_has(r->identity.ship, stream, true);
}

bool srv_may_work(const srv_request *r, const char *type)
{
	return srv_scope_has(r->identity.worker, type, false);
}

bool srv_works(const srv_request *r)
{
	return r->identity.worker[0] != '\0';
}

const char *srv_token(const srv_request *r)
{
	return r->h->needs_token ? r->identity.name : NULL;
}
