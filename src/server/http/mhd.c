/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libmicrohttpd 0.9.75 calls, in the order of a request's life:
 *
 *   on_uri        the request line is there: the request is made
 *   on_access     first with the headers, then for every piece of the body, then without one; after a suspension again
 *   on_completed  the answer is out, or the connection is lost: the connection lets go of the request
 *
 * An answer can be queued at the first call or at the last, never between; one that is known earlier (a refusal) waits
 * for the body's end, which is read and dropped, so that clients that send first and read then see it.
 */
#include "server/http/internal.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a connection's buffers. Above 32 KiB libmicrohttpd maps them by themselves, and gives them back to the system when
 * the connection ends: what a request or an answer held does not stay in the heap. */
#define CONNECTION_BYTES ((size_t)40 * 1024)

#define PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

static void *on_uri(void *cls, const char *uri, struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct srv_conn *c = info != NULL ? info->socket_context : NULL;
	srv_http *h = cls;
	srv_request *r = c != NULL ? srv_request_new(h, c, uri) : NULL;
	if (r != NULL)
		atomic_store(&c->deadline_ns, r->start_ns + h->header_deadline_ns);
	return r;
}

static enum MHD_Result queue_answer(srv_request *r)
{
	if (r->response == NULL)
		return MHD_NO;
	/* A client that reads less than 4 KiB per second is cut. */
	int64_t deadline = SL_FOREVER;
	if (!r->is_stream)
		deadline = sl__mono_ns(&r->h->env) + r->h->request_deadline_ns + (int64_t)(r->answer_len / 4) * 1000000;
	atomic_store(&r->conn->deadline_ns, deadline);
	return MHD_queue_response(r->conn->mhd, (unsigned)r->status, r->response);
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
		/* The body of a refused request is not read if its end is unknown, the client waits for permission, or
		 * it is far too large. */
		const char *length = r->field[F_LENGTH];
		bool refused = (atomic_load(&r->state) & R_ANSWERED) != 0 && r->has_body;
		bool unwanted = r->field[F_EXPECT] != NULL ||
				(length != NULL && strtoull(length, NULL, 10) > 2 * (uint64_t)r->h->body_max);
		if (!r->unclear && !(refused && unwanted))
			return MHD_YES;
		srv_header_add(r->response, "Connection", "close");
		return queue_answer(r);
	}
	if (*len > 0) {
		bool going = srv_request_body(r, data, *len) == 0;
		if (r->match.endpoint != NULL && (r->match.endpoint->route.flags & SRV_LOGIN) != 0)
			sodium_memzero((void *)(uintptr_t)data, *len); /* a token: not to be left in a buffer */
		*len = 0;
		return going ? MHD_YES : MHD_NO;
	}
	unsigned state = atomic_load(&r->state);
	if ((state & R_ANSWERED) != 0)
		return queue_answer(r);
	if ((state & R_ABANDONED) != 0)
		return MHD_NO;
	atomic_store(&r->conn->deadline_ns, SL_FOREVER);
	switch (srv_dispatch(r)) {
	case SRV_DISPATCH_ANSWERED:
		return queue_answer(r);
	case SRV_DISPATCH_SUSPENDED:
		return MHD_YES;
	case SRV_DISPATCH_CUT:
		break;
	}
	return MHD_NO;
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **ctx, enum MHD_RequestTerminationCode code)
{
	srv_http *h = cls;
	srv_request *r = *ctx;
	int64_t now = sl__mono_ns(&h->env);
	(void)code;
	if (r == NULL)
		return;
	*ctx = NULL;
	atomic_store(&r->conn->deadline_ns, now + h->idle_ns);
	if (r->held)
		srv_unhold(r);
	if (r->stream != NULL)
		srv_stream_detach(r);
	/* Before it was dispatched only this thread answers. Afterwards a handler may still run: its answer is
	 * discarded. */
	unsigned old = atomic_fetch_or(&r->state, R_ABANDONED);
	if ((old & R_ANSWERED) != 0 || !r->dispatched) {
		if ((old & R_ANSWERED) == 0) {
			/* What libmicrohttpd itself answered to something that is not a request; 0: nothing. */
			const union MHD_ConnectionInfo *info =
				MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_HTTP_STATUS);
			r->status = info != NULL ? (int)info->http_status : 0;
		}
		srv_record_access(r, now);
	}
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

SL_PRINTF(2, 0) static void log_mhd(void *cls, const char *fmt, va_list args)
{
	char text[256];
	int n = vsnprintf(text, sizeof(text), fmt, args);
	if (n > 0 && (size_t)n < sizeof(text) && text[n - 1] == '\n')
		text[n - 1] = '\0';
	srv_http *h = cls;
	if (h->daemon == NULL) /* it does not start: this is why */
		snprintf(h->said, sizeof(h->said), "%s", text);
	sl__log(&h->env, SL_LOG_DEBUG, "http", "libmicrohttpd", SL__F_STR("text", text));
}

/* The connection was put into the session by srv_conn_notify. */
static int on_handshake(gnutls_session_t session, const gnutls_datum_t *ca, int n_ca,
			const gnutls_pk_algorithm_t *algorithms, int n_algorithms, gnutls_pcert_st **chain, unsigned *n,
			gnutls_privkey_t *key)
{
	const struct srv_conn *c = gnutls_session_get_ptr(session);
	(void)ca;
	(void)n_ca;
	(void)algorithms;
	(void)n_algorithms;
	return c != NULL ? srv_tls_current(c->h->tls, chain, n, key) : -1;
}

int srv_mhd_start(srv_http *h, struct sl_err *err)
{
	const unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
	struct MHD_OptionItem tls[] = {
		{MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)(intptr_t)on_handshake},
		{MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)PRIORITIES},
		{MHD_OPTION_END, 0, NULL},
	};
	h->daemon = MHD_start_daemon(
		flags | (h->tls != NULL ? MHD_USE_TLS : 0), 0, NULL, NULL, on_access, h, MHD_OPTION_EXTERNAL_LOGGER,
		log_mhd, h, MHD_OPTION_LISTEN_SOCKET, h->listen_fd, MHD_OPTION_URI_LOG_CALLBACK, on_uri, h,
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, srv_conn_notify, h,
		MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, h, MHD_OPTION_CONNECTION_LIMIT,
		(unsigned)h->connections_max, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
		/* A proxy is one address for all its clients. */
		(unsigned)(h->behind_proxy ? h->connections_max : h->connections_per_address),
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(h->idle_ns / 1000000000 + 1), MHD_OPTION_STRICT_FOR_CLIENT, 1,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_BYTES, MHD_OPTION_ARRAY, h->tls != NULL ? tls : tls + 2,
		MHD_OPTION_END);
	return h->daemon != NULL ? 0 : sl_err_set(err, SL_EUNAVAIL, "serve on %s: %s", h->address, h->said);
}
