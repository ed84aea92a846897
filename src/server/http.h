/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP: routes, requests, answers and streams over libmicrohttpd, and who may ask for what.
 *
 * Thread safety: see each function; a request is answered once, from any thread.
 * Ownership: what accessors return lives until the request is answered.
 */
#ifndef SLUICE_SERVER_HTTP_H
#define SLUICE_SERVER_HTTP_H

#include <jansson.h>
#include <sys/types.h>

#include <sluice/adapter/env.h>
#include <sluice/metrics.h>

typedef struct srv_http srv_http;       /* a listening server */
typedef struct srv_request srv_request; /* one request, from its headers to its answer */
typedef struct srv_stream srv_stream;   /* an answer without end (server-sent events) */

enum srv_role { SRV_PUBLIC = 0, SRV_READ = 1, SRV_WRITE = 2, SRV_ADMIN = 3 };
enum {
	SRV_QUICK = 1 /* never waits for a disk or another machine for long: answered on the network thread */,
	SRV_LONG = 2 /* may stay unanswered for a minute: the handler only registers it and returns (srv_later) */
};
typedef void srv_handler_fn(srv_request *r, void *ctx);
struct srv_route {
	const char *method; /* "GET" … */
	const char *path;   /* "/api/v1/jobs/{id}/events"; a last "{path*}" takes the rest */
	enum srv_role
		role; /* needed; mutations (not GET/HEAD) also pass the CSRF check when the actor came by cookie */
	unsigned flags;
	srv_handler_fn *fn;
	const char *audit; /* name of the mutation in the audit log: "jobs.cancel"; NULL: none */
};
struct srv_http_opts {
	const char *listen;
	const char *tls_cert_file, *tls_key_file, *tokens_file;
	const char *const *hosts;
	size_t n_hosts; /* names that Host may say beside the address */
	int64_t body_max, header_deadline_ms, request_deadline_ms;
	int32_t connections_max, connections_per_address, threads;
	int read_only;
	int access_log; /* 0 off 1 logfmt 2 json */
	const char *audit_file;
	sl_metrics *metrics;
	const struct sl_env *env;
	int64_t heartbeat_ms; /* of streams; default 15 s */
	int64_t idle_ms;      /* a kept connection without a request, or an answer that nobody takes; default 60 s */
	int64_t bodies_max;   /* bytes of all bodies in memory together; default 256 MiB */
	int access_fd;        /* where the access log goes; 0: standard error */
};
int srv_http_new(srv_http **out, const struct srv_http_opts *opts, struct sl_err *err); /* binds; serves nothing yet */
int srv_http_add(srv_http *h, const struct srv_route *routes, size_t n, void *ctx, struct sl_err *err);
int srv_http_start(srv_http *h, struct sl_err *err);
void srv_http_refuse(srv_http *h); /* 503 + Retry-After for mutations and ingest from now on */
int srv_http_stop(srv_http *h, int64_t deadline_ms, struct sl_err *err); /* resumes and ends all streams first */
void srv_http_free(srv_http *h);
const char *srv_http_address(const srv_http *h);      /* "127.0.0.1:7070", with the real port when 0 was asked */
int srv_http_reload(srv_http *h, struct sl_err *err); /* tokens and certificates from their files again (SIGHUP) */

const char *srv_method(const srv_request *r);
const char *srv_path(const srv_request *r);
const char *srv_param(const srv_request *r, const char *name); /* of the path, decoded; NULL */
const char *srv_query(const srv_request *r, const char *name); /* decoded UTF-8, NULL when absent */
void srv_query_each(const srv_request *r, int (*fn)(const char *name, const char *value, void *ctx), void *ctx);
const char *srv_header(const srv_request *r, const char *name);
const void *srv_body(const srv_request *r, size_t *len); /* whole; NUL behind it */
json_t *srv_body_json(srv_request *r);                   /* borrowed; NULL: 400 was answered already */
const char *srv_request_id(const srv_request *r);
const char *srv_actor(const srv_request *r);
enum srv_role srv_role(const srv_request *r);
void srv_audit_detail(srv_request *r, json_t *detail); /* more for the line in the audit log; takes the reference */

/* Exactly one answer a request, from any thread, after which r is gone. */
void srv_json(srv_request *r, int status, json_t *body);                                    /* takes the reference */
void srv_bytes(srv_request *r, int status, const char *type, const void *data, size_t len); /* copied */
void srv_static(srv_request *r, const char *type, const void *data, size_t len, const char *encoding,
		const char *etag); /* not copied */
void srv_error(srv_request *r, int status, const char *code, const char *fmt,
	       ...);                                     /* {"error":{"code","message","request_id"}} */
void srv_fail(srv_request *r, const struct sl_err *err); /* SL_E… → status and code, Retry-After from retry_after_ms */
void srv_set_header(srv_request *r, const char *name, const char *value); /* before the answer */
void srv_retry_after(srv_request *r, int64_t ms);
void srv_later(srv_request *r, void (*gone)(srv_request *r, void *ctx),
	       void *ctx); /* SRV_LONG: will be answered later; gone: client left or server stops: answer now */
/* Server-sent events: fill is called when the client can take more: bytes written (>0), 0: nothing now (sleeps until
 * srv_stream_wake, heartbeat comments are sent by http), <0: end. */
struct srv_stream_ops {
	ssize_t (*fill)(srv_stream *s, char *buf, size_t cap, void *ctx);
	void (*done)(void *ctx);
};
void srv_stream_open(srv_request *r, const struct srv_stream_ops *ops, void *ctx); /* 200 text/event-stream */
void srv_stream_wake(srv_stream *s); /* from any thread, until done was called */

#endif
