/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP server as a whole: its options, its listening socket, start, stop and reload. */
#include "server/http/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int64_t or_default(int64_t v, int64_t standard)
{
	return v > 0 ? v : standard;
}

/* Everything that the options name, before a socket is bound. */
static int open_http_parts(srv_http *h, const struct srv_http_opts *o, struct sl_err *err)
{
	int rc = srv_routes_new(&h->routes, err);
	if (rc != 0)
		return rc;
	h->hosts = o->n_hosts > 0 ? calloc(o->n_hosts, sizeof(*h->hosts)) : NULL;
	for (; h->hosts != NULL && h->n_hosts < o->n_hosts; h->n_hosts++)
		if ((h->hosts[h->n_hosts] = strdup(o->hosts[h->n_hosts])) == NULL)
			break;
	if (h->n_hosts != o->n_hosts)
		return sl_err_set(err, SL_ENOMEM, "hosts of the server");
	if ((o->tls_cert_file == NULL) != (o->tls_key_file == NULL))
		return sl_err_set(err, SL_ECONFIG, "TLS needs both a certificate and a key");
	if (o->tls_cert_file != NULL && (rc = srv_tls_new(&h->tls, o->tls_cert_file, o->tls_key_file, err)) != 0)
		return rc;
	rc = srv_auth_new(&h->auth, o->tokens_file, err);
	if (rc != 0)
		return rc;
	if (o->access_log != SRV_ACCESS_OFF) {
		int fd = o->access_fd != 0 ? o->access_fd : STDERR_FILENO;
		rc = srv_accesslog_new(&h->access, fd, o->access_log == SRV_ACCESS_JSON ? SL_LOG_JSON : SL_LOG_LOGFMT,
				       err);
		if (rc != 0)
			return rc;
	}
	rc = srv_metrics_start(h, err);
	if (rc != 0)
		return rc;
	return srv_session_add(h, err);
}

/* Resolve "127.0.0.1:7070", "[::1]:7070", ":7070" (every address) or "localhost:7070". */
static int resolve_listen(const char *listen, struct addrinfo **out, struct sl_err *err)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	char host[256];
	const char *colon = strrchr(listen, ':'), *from = listen;
	size_t n = colon != NULL ? (size_t)(colon - listen) : 0;
	if (colon == NULL || colon[1] == '\0' || n + 1 > sizeof(host) ||
	    strspn(colon + 1, "0123456789") != strlen(colon + 1) || strlen(colon + 1) > 5 || atoi(colon + 1) > 65535)
		return sl_err_set(err, SL_ECONFIG, "listen \"%s\": expected ADDRESS:PORT", listen);
	if (n >= 2 && from[0] == '[' && from[n - 1] == ']') {
		from++;
		n -= 2;
	}
	memcpy(host, from, n);
	host[n] = '\0';
	int failed = getaddrinfo(host[0] != '\0' ? host : NULL, colon + 1, &hints, out);
	return failed != 0 ? sl_err_set(err, SL_ECONFIG, "listen %s: %s", listen, gai_strerror(failed)) : 0;
}

/* Bind the address, if the server may be reached there. */
static int bind_address(srv_http *h, const char *listen_on, const struct addrinfo *a, struct sl_err *err)
{
	const struct sockaddr *sa = a->ai_addr;
	if (sa->sa_family == AF_INET)
		h->loopback = ntohl(((const struct sockaddr_in *)(const void *)sa)->sin_addr.s_addr) >> 24 == 127;
	else
		h->loopback = sa->sa_family == AF_INET6 &&
			      IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr);

	/* Beyond loopback, every client needs a token and every connection TLS. */
	h->needs_token = srv_auth_tokens(h->auth) > 0;
	if (h->behind_proxy && !h->needs_token)
		return sl_err_set(err, SL_ECONFIG,
				  "behind_proxy: a server behind a proxy needs a tokens file, because the clients of "
				  "the proxy appear as local");
	if (!h->loopback && !h->behind_proxy && (h->tls == NULL || !h->needs_token))
		return sl_err_set(err, SL_ECONFIG, "listen %s: an address other than loopback needs %s%s%s", listen_on,
				  h->tls != NULL ? "" : "a TLS certificate and key",
				  h->tls == NULL && !h->needs_token ? ", and " : "",
				  h->needs_token ? "" : "a tokens file");

	int one = 1;
	h->listen_fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (h->listen_fd < 0)
		return sl_err_set_errno(err, errno, "listen on %s", listen_on);
	setsockopt(h->listen_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(h->listen_fd, a->ai_addr, a->ai_addrlen) != 0 || listen(h->listen_fd, 1024) != 0)
		return sl_err_set_errno(err, errno,
					errno == EADDRINUSE ? "listen on %s: in use by another process; choose another "
							      "address with --listen (port 0: any free port)"
							    : "listen on %s",
					listen_on);

	/* The address as it was bound, with the port that the system chose for 0. */
	struct sockaddr_storage bound;
	socklen_t n = sizeof(bound);
	char host[INET6_ADDRSTRLEN], port[8];
	getsockname(h->listen_fd, (struct sockaddr *)&bound, &n);
	getnameinfo((struct sockaddr *)&bound, n, host, sizeof(host), port, sizeof(port),
		    NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(h->address, sizeof(h->address), bound.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
	return 0;
}

int srv_http_new(srv_http **out, const struct srv_http_opts *opts, struct sl_err *err)
{
	srv_http *h = sodium_init() >= 0 ? calloc(1, sizeof(*h)) : NULL;
	if (h == NULL)
		return sl_err_set(err, SL_ENOMEM, "server");
	h->listen_fd = -1;
	sl__mutex_init(&h->mu);
	sl__cond_init(&h->work);
	sl__cond_init(&h->tick);
	sl__cond_init(&h->idle);
	/* Options: 0 stands for the default. */
	h->body_max = or_default(opts->body_max, 16 << 20);
	h->bodies_max = or_default(opts->bodies_max, 256 << 20);
	h->answers_max = or_default(opts->answers_max, 256 << 20);
	h->header_deadline_ns = or_default(opts->header_deadline_ms, 10000) * 1000000;
	h->request_deadline_ns = or_default(opts->request_deadline_ms, 30000) * 1000000;
	h->heartbeat_ns = or_default(opts->heartbeat_ms, 15000) * 1000000;
	h->idle_ns = or_default(opts->idle_ms, 60000) * 1000000;
	h->connections_max = (int32_t)or_default(opts->connections_max, 1024);
	h->connections_per_address = (int32_t)or_default(opts->connections_per_address, 256);
	h->n_threads = (int32_t)or_default(opts->threads, 8);
	h->behind_proxy = opts->behind_proxy;
	h->streams_per_address = (int32_t)or_default(opts->streams_per_address, (h->connections_per_address + 1) / 2);
	h->read_only = opts->read_only;
	h->store = opts->store;
	h->metrics = opts->metrics;
	int rc = sl__env_init(&h->env, opts->env, err);
	if (rc == 0)
		rc = open_http_parts(h, opts, err);
	const char *listen_on = opts->listen != NULL ? opts->listen : "127.0.0.1:7070";
	struct addrinfo *found = NULL;
	if (rc == 0)
		rc = resolve_listen(listen_on, &found, err);
	if (rc == 0) {
		rc = bind_address(h, listen_on, found, err);
		freeaddrinfo(found);
	}
	if (rc != 0) {
		srv_http_free(h);
		return rc;
	}
	/* Request ids begin with a random part of this process; the cookie is named after the port. */
	const char *port = strrchr(h->address, ':');
	snprintf(h->boot, sizeof(h->boot), "%08x", randombytes_random());
	snprintf(h->cookie, sizeof(h->cookie), "%ssluice_%s", h->tls != NULL ? "__Host-" : "", port + 1);
	srv_auth_local_csrf(h->auth, h->local_csrf);
	*out = h;
	return 0;
}

int srv_http_add(srv_http *h, const struct srv_route *routes, size_t n, void *ctx, struct sl_err *err)
{
	for (size_t i = 0; i < n; i++) {
		int rc = srv_routes_add(h->routes, &routes[i], ctx, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

int srv_http_start(srv_http *h, struct sl_err *err)
{
	int rc = srv_pool_start(h, err);
	if (rc != 0)
		return rc;
	rc = srv_ticker_start(h, err);
	if (rc != 0)
		return rc;
	return srv_mhd_start(h, err);
}

void srv_http_audit(srv_http *h, srv_audit_fn *fn, void *ctx)
{
	h->audit = fn;
	h->audit_ctx = ctx;
}

void srv_http_refuse(srv_http *h)
{
	atomic_store(&h->refusing, true);
}

int srv_http_stop(srv_http *h, int64_t deadline_ms, struct sl_err *err)
{
	int64_t deadline = sl__mono_ns(&h->env) + deadline_ms * 1000000;
	if (h->daemon == NULL)
		return 0;
	atomic_store(&h->stopping, true);
	MHD_quiesce_daemon(h->daemon);
	/* No connection is accepted any more. The socket is closed when the network thread has ended: that thread may
	 * still remove it from its epoll, and would remove another file that has the same number by then. */
	(void)shutdown(h->listen_fd, SHUT_RDWR);
	sl__lock(&h->mu);
	/* End streams, and have the ticker notify handlers that answer later. */
	for (srv_request *r = h->held, *next; r != NULL; r = next) {
		next = r->held_next;
		if (r->stream != NULL)
			srv_stream_finish(r);
	}
	srv_ticker_wake(h);
	while (atomic_load(&h->n_active) > 0)
		if (!sl__wait(&h->env, &h->idle, &h->mu, deadline))
			break;
	/* Abandon what still runs: no connection stays suspended, and later answers are discarded. */
	bool late = atomic_load(&h->n_active) > 0;
	h->closing = true;
	for (srv_request *r = h->held, *next; r != NULL; r = next) {
		next = r->held_next;
		if (r->stream != NULL)
			srv_stream_abandon(r);
		else if ((atomic_fetch_or(&r->state, R_ABANDONED) & (R_ANSWERED | R_ABANDONED | R_SUSPENDED)) ==
			 R_SUSPENDED)
			srv_resume(r, true);
	}
	while (atomic_load(&h->n_suspended) > 0)
		(void)sl__wait(&h->env, &h->idle, &h->mu, SL_FOREVER);
	sl__unlock(&h->mu);
	MHD_stop_daemon(h->daemon);
	h->daemon = NULL;
	(void)close(h->listen_fd);
	h->listen_fd = -1;
	srv_ticker_stop(h);
	return late ? sl_err_set(err, SL_ETIMEDOUT, "requests were still running when the server stopped") : 0;
}

void srv_http_free(srv_http *h)
{
	if (h == NULL)
		return;
	if (h->daemon != NULL)
		(void)!srv_http_stop(h, 0, NULL);
	srv_ticker_stop(h);
	srv_pool_stop(h);
	srv_session_stop(h);
	if (h->listen_fd >= 0)
		close(h->listen_fd);
	srv_metrics_stop(h);
	srv_gather_free(h);
	srv_routes_free(h->routes);
	srv_auth_free(h->auth);
	srv_tls_free(h->tls);
	srv_accesslog_free(h->access);
	for (size_t i = 0; i < h->n_hosts; i++)
		free(h->hosts[i]);
	free(h->hosts);
	sl__cond_fini(&h->work);
	sl__cond_fini(&h->tick);
	sl__cond_fini(&h->idle);
	sl__mutex_fini(&h->mu);
	free(h);
}

const char *srv_http_address(const srv_http *h)
{
	return h->address;
}

/* Each by itself: a bad certificate must not keep a token alive that was taken out of the file. */
int srv_http_reload(srv_http *h, struct sl_err *err)
{
	int tokens = srv_auth_reload(h->auth, err);
	int tls = h->tls != NULL ? srv_tls_reload(h->tls, tokens == 0 ? err : NULL) : 0;
	return tokens != 0 ? tokens : tls;
}
