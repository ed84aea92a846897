/* SPDX-License-Identifier: Apache-2.0 */
/* The server's life: options, start, stop. And what libmicrohttpd calls. */
#include "http_internal.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int64_t or_default(int64_t v, int64_t standard)
{
	return v > 0 ? v : standard;
}

static void *on_uri(void *cls, const char *uri, struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct srv_conn *c = info != NULL ? info->socket_context : NULL;
	if (c == NULL)
		return NULL;
	srv_http *h = cls;
	srv_request *r = srv_request_new(h, c, uri);
	if (r != NULL)
		atomic_store(&c->deadline_ns, r->start_ns + h->header_deadline_ns);
	return r;
}

static enum MHD_Result queue_answer(srv_request *r)
{
	struct MHD_Response *response = r->response;
	if (response == NULL)
		return MHD_NO;
	atomic_store(&r->conn->deadline_ns, SL_FOREVER);
	return MHD_queue_response(r->conn->mhd, (unsigned)r->status, response);
}

static enum MHD_Result on_access(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
				 const char *version, const char *data, size_t *len, void **ctx)
{
	srv_request *r = *ctx;
	(void)cls;
	(void)mhd;
	(void)url;
	(void)version;
	if (r == NULL)
		return MHD_NO;
	if (!r->begun) {
		r->begun = true;
		srv_request_begin(r, method);
		return MHD_YES;
	}
	if (*len > 0) {
		int rc = srv_request_body(r, data, *len);
		*len = 0;
		return rc == 0 ? MHD_YES : MHD_NO;
	}
	unsigned state = atomic_load(&r->state);
	if ((state & R_ANSWERED) != 0)
		return queue_answer(r);
	if ((state & R_ABANDONED) != 0 || r->dispatched)
		return (state & R_ABANDONED) != 0 ? MHD_NO : MHD_YES;
	atomic_store(&r->conn->deadline_ns, SL_FOREVER);
	srv_dispatch(r);
	return (atomic_load(&r->state) & (R_ANSWERED | R_SUSPENDED)) == R_ANSWERED ? queue_answer(r) : MHD_YES;
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **ctx, enum MHD_RequestTerminationCode code)
{
	srv_http *h = cls;
	srv_request *r = *ctx;
	(void)mhd;
	(void)code;
	if (r == NULL)
		return;
	*ctx = NULL;
	atomic_store(&r->conn->deadline_ns, srv_mono_ns(h) + h->idle_ns);
	if (r->held)
		srv_unhold(r);
	if (r->stream != NULL)
		srv_stream_detach(r);
	/* Without an answer nobody will give one but a handler that still runs: it finds the request abandoned. */
	unsigned old = atomic_fetch_or(&r->state, R_ABANDONED);
	if ((old & R_ANSWERED) == 0 && !r->dispatched)
		srv_request_unref(r);
	srv_request_detach(r);
}

static size_t keep_escapes(void *cls, struct MHD_Connection *mhd, char *s)
{
	(void)cls;
	(void)mhd;
	return strlen(s);
}

static void on_log(void *cls, const char *fmt, va_list args)
{
	char text[256];
	int n = vsnprintf(text, sizeof text, fmt, args);
	if (n > 0 && (size_t)n < sizeof text && text[n - 1] == '\n')
		text[n - 1] = '\0';
	srv_log(cls, SL_LOG_DEBUG, "libmicrohttpd", "text", text);
}

static void init_locks(srv_http *h)
{
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&h->mu, NULL);
	pthread_cond_init(&h->work, &attr);
	pthread_cond_init(&h->tick, &attr);
	pthread_cond_init(&h->idle, &attr);
	pthread_condattr_destroy(&attr);
}

static void take_opts(srv_http *h, const struct srv_http_opts *o)
{
	if (o->env != NULL)
		h->env = *o->env;
	h->body_max = or_default(o->body_max, 16 << 20);
	h->bodies_max = or_default(o->bodies_max, 256 << 20);
	h->header_deadline_ns = or_default(o->header_deadline_ms, 10000) * 1000000;
	h->request_deadline_ns = or_default(o->request_deadline_ms, 30000) * 1000000;
	h->heartbeat_ns = or_default(o->heartbeat_ms, 15000) * 1000000;
	h->idle_ns = or_default(o->idle_ms, 60000) * 1000000;
	h->connections_max = (int32_t)or_default(o->connections_max, 1024);
	h->connections_per_address = (int32_t)or_default(o->connections_per_address, 256);
	h->n_threads = (int32_t)or_default(o->threads, 8);
	h->read_only = o->read_only;
	h->metrics = o->metrics;
}

int srv_http_new(srv_http **out, const struct srv_http_opts *opts, struct sl_err *err)
{
	srv_http *h = calloc(1, sizeof *h);
	if (h == NULL)
		return sl_err_set(err, SL_ENOMEM, "server");
	if (sodium_init() < 0) {
		free(h);
		return sl_err_set(err, SL_EINTERNAL, "libsodium does not start");
	}
	h->listen_fd = -1;
	init_locks(h);
	take_opts(h, opts);
	snprintf(h->boot, sizeof h->boot, "%08x", randombytes_random());
	int rc = srv_routes_new(&h->routes, err);
	if (rc == 0)
		rc = srv_listen(h, opts->listen != NULL ? opts->listen : "127.0.0.1:7070", err);
	if (rc != 0) {
		srv_http_free(h);
		return rc;
	}
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

static int start_daemon(srv_http *h, struct sl_err *err)
{
	const unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
	h->daemon = MHD_start_daemon(
		flags, 0, NULL, NULL, on_access, h, MHD_OPTION_EXTERNAL_LOGGER, on_log, h, MHD_OPTION_LISTEN_SOCKET,
		h->listen_fd, MHD_OPTION_URI_LOG_CALLBACK, on_uri, h, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
		MHD_OPTION_NOTIFY_CONNECTION, srv_conn_notify, h, MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, h,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned)h->connections_max, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
		(unsigned)h->connections_per_address, MHD_OPTION_CONNECTION_TIMEOUT,
		(unsigned)(h->idle_ns / 1000000000 + 1), MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
	if (h->daemon == NULL)
		return sl_err_set(err, SL_EUNAVAIL, "start the HTTP server on %s", h->address);
	return 0;
}

int srv_http_start(srv_http *h, struct sl_err *err)
{
	int rc = srv_pool_start(h, err);
	if (rc == 0)
		rc = srv_ticker_start(h, err);
	if (rc == 0)
		rc = start_daemon(h, err);
	return rc;
}

void srv_http_refuse(srv_http *h)
{
	atomic_store(&h->refusing, 1);
}

/* h->mu held: end streams, and have the ticker tell those who answer later. */
static void end_held(srv_http *h)
{
	for (srv_request *r = h->held, *next; r != NULL; r = next) {
		next = r->held_next;
		if (r->stream != NULL)
			srv_stream_finish(r);
	}
	pthread_cond_broadcast(&h->tick);
}

/* h->mu held: the deadline has passed. No connection stays suspended; what still runs answers into nothing. */
static void abandon_held(srv_http *h)
{
	for (srv_request *r = h->held, *next; r != NULL; r = next) {
		next = r->held_next;
		if (r->stream != NULL)
			srv_stream_abandon(r);
		else if ((atomic_fetch_or(&r->state, R_ABANDONED) & (R_ANSWERED | R_ABANDONED | R_SUSPENDED)) ==
			 R_SUSPENDED)
			srv_resume(r, true);
	}
}

int srv_http_stop(srv_http *h, int64_t deadline_ms, struct sl_err *err)
{
	int64_t deadline = srv_mono_ns(h) + deadline_ms * 1000000;
	if (h->daemon == NULL)
		return 0;
	atomic_store(&h->stopping, 1);
	MHD_quiesce_daemon(h->daemon);
	close(h->listen_fd);
	h->listen_fd = -1;
	pthread_mutex_lock(&h->mu);
	end_held(h);
	while (atomic_load(&h->n_active) > 0)
		if (srv_wait(h, &h->idle, &h->mu, deadline) == ETIMEDOUT)
			break;
	bool late = atomic_load(&h->n_active) > 0;
	abandon_held(h);
	while (atomic_load(&h->n_suspended) > 0)
		srv_wait(h, &h->idle, &h->mu, SL_FOREVER);
	pthread_mutex_unlock(&h->mu);
	MHD_stop_daemon(h->daemon);
	h->daemon = NULL;
	srv_ticker_stop(h);
	return late ? sl_err_set(err, SL_ETIMEDOUT, "requests were still running when the server stopped") : 0;
}

void srv_http_free(srv_http *h)
{
	if (h == NULL)
		return;
	if (h->daemon != NULL) {
		int rc = srv_http_stop(h, 0, NULL);
		(void)rc;
	}
	srv_ticker_stop(h);
	srv_pool_stop(h);
	if (h->listen_fd >= 0)
		close(h->listen_fd);
	srv_routes_free(h->routes);
	pthread_cond_destroy(&h->work);
	pthread_cond_destroy(&h->tick);
	pthread_cond_destroy(&h->idle);
	pthread_mutex_destroy(&h->mu);
	free(h);
}

const char *srv_http_address(const srv_http *h)
{
	return h->address;
}

int srv_http_reload(srv_http *h, struct sl_err *err)
{
	(void)h;
	(void)err;
	return 0;
}
