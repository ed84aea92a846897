/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP: routes, requests, answers and streams over libmicrohttpd, and who may ask for what.
 *
 * A handler is found by method and path after the request's form, its Host, its actor and its origin were checked;
 * what does not pass never reaches it. Guarantee: every request is answered or its connection cut; headers, body and
 * the taking of an answer have deadlines that a trickle of bytes does not move; connections, bodies, queries and header
 * fields have limits; tokens, cookies and queries are in no log. Not guaranteed: that a client sees the answer to a
 * mutation that was made.
 *
 * Loopback needs no token (unless a tokens file is given); any other address is refused without TLS and tokens.
 * /api/v1/session is served by this part itself.
 *
 * Thread safety: srv_http_new, _add, _start, _stop and _free by one thread, in this order; _refuse, _reload and
 * _address by any. A request belongs to its handler, or to the thread it was handed to, until it is answered: once, from
 * any thread. Ownership: options and routes are copied; what accessors return lives until the request is answered.
 */
#ifndef SLUICE_SERVER_HTTP_H
#define SLUICE_SERVER_HTTP_H

#include <jansson.h>
#include <sys/types.h>

#include "server/http/json_body.h"

#include <sluice/adapter/env.h>
#include <sluice/job.h>
#include <sluice/metrics.h>

typedef struct srv_http srv_http;       /* a listening server */
typedef struct srv_request srv_request; /* one request, from its headers to its answer */
typedef struct srv_stream srv_stream;   /* an answer without end (server-sent events) */

enum srv_role { SRV_PUBLIC = 0, SRV_READ = 1, SRV_WRITE = 2, SRV_ADMIN = 3 };
enum {
	SRV_QUICK = 1 /* never waits for a disk or another machine for long: runs on the network thread */,
	SRV_LONG = 2, /* may stay unanswered for a minute: the handler only registers it and returns (srv_later) */
	SRV_BY_ENQUEUE = 16, /* a token with a scope enqueue: gets here too; the handler asks srv_may_enqueue */
	SRV_BY_SHIP = 32,    /* the same for ship: and worker:, and srv_may_ship and srv_may_work */
	SRV_EASY = 4 /* as SRV_QUICK while hardly a worker is busy, since it shares with them what it could wait for */
};
/* Runs on the network thread with SRV_QUICK, else on one of the pool's workers, where it may wait for the store. It
 * answers, or calls srv_later before it returns; one that does neither is answered with 500. No lock is held. */
typedef void srv_handler_fn(srv_request *r, void *ctx);
/* Requests of one route that have come while those before them were handled: 2 to SRV_MANY_MAX of them. Answers each
 * before it returns, or leaves it as it is: then the route's own handler gets it, alone. The answers leave together. */
#define SRV_MANY_MAX 256
typedef void srv_many_fn(srv_request *const *all, size_t n, void *ctx);
/* Within it: what they waited for has happened, so that the next ones may be handled while these are answered. */
void srv_many_next(srv_request *const *all);
struct srv_route {
	const char *method; /* "GET" (which serves HEAD too), "POST", … */
	const char *path;   /* "/api/v1/jobs/{id}/events"; a last "{path*}" takes the rest; a literal wins over {id} */
	enum srv_role role; /* needed. What is not GET or HEAD also passes the CSRF check when a browser asks. */
	unsigned flags;     /* SRV_QUICK, SRV_LONG, SRV_EASY */
	srv_handler_fn *fn;
	const char *audit; /* name of the change in the audit trail: "jobs.cancel"; NULL: it changes nothing. The
			      handler writes the record (srv_audit_record), in the transaction of the change */
};

enum srv_access_log { SRV_ACCESS_OFF = 0, SRV_ACCESS_LOGFMT = 1, SRV_ACCESS_JSON = 2 };
/* Zero and NULL are the defaults. Durations in milliseconds, sizes in bytes. */
struct srv_http_opts {
	const char *listen;                       /* "127.0.0.1:7070"; port 0: any free one */
	const char *tls_cert_file, *tls_key_file; /* PEM; the key closed to others */
	const char *tokens_file;                  /* see auth.h; given, every client needs a token, on loopback too */
	const char *const *hosts; /* names that Host may say beside addresses, localhost and the certificate's */
	size_t n_hosts;
	int64_t body_max; /* of one body; 16 MiB. More is 413. */
	int64_t header_deadline_ms,
		request_deadline_ms; /* until the headers are there: 10 s; until the body is: 30 s */
	int32_t connections_max, connections_per_address; /* 1024, 256 */
	int32_t threads;                                  /* workers; 8 */
	/* A proxy in front adds the client's address to X-Forwarded-For and may take TLS off: any address may be
	 * listened on without TLS, tokens are needed on loopback too, and limits by address are those of the clients.
	 */
	bool behind_proxy;
	int32_t streams_per_address; /* half of connections_per_address; more is 429 */
	bool read_only;              /* mutations are 403 */
	const char *store;           /* for the session: what commands give as --store, or NULL; borrowed */
	enum srv_access_log access_log;
	sl_metrics *metrics;
	const struct sl_env *env; /* clock and log */
	int64_t heartbeat_ms;     /* of streams; 15 s */
	int64_t idle_ms;     /* a kept connection without a request, or an answer that the client does not read; 60 s */
	int64_t bodies_max;  /* of all bodies, and of what is parsed from them, together; 256 MiB. More is 503. */
	int64_t answers_max; /* of all answers that clients have not taken yet; 256 MiB. More is 503. */
	int access_fd;       /* where the access log goes; 0: standard error */
};

/* What jansson frees of a log-in is wiped from now on: it holds a token. To be called before any other thread and
 * anything else of jansson, by a program that serves. */
void srv_http_wipe_json(void);

/* Where such a route is, it answers a browser that asks for a page at a path without a route. */
#define SRV_UNKNOWN_PAGE "/not-found"

/* Binds; serves nothing yet, but connections wait. SL_ECONFIG: options that are wrong or unsafe together, files that
 * cannot be used; SL_EACCES and others: the address cannot be had. */
SL_MUST_CHECK int srv_http_new(srv_http **out, const struct srv_http_opts *opts, struct sl_err *err);
/* Before srv_http_start. SL_EEXIST: a route is there already. */
SL_MUST_CHECK int srv_http_add(srv_http *h, const struct srv_route *routes, size_t n, void *ctx, struct sl_err *err);
/* After the route was added (without SRV_QUICK), before srv_http_start: its requests are handled one after the other,
 * or together by many, since what they wait for is cheaper so. parts: 1 keeps all of them together; with 2 one half's
 * answers and next requests are on their way while the other half is handled. SL_ENOENT: there is no such route. */
SL_MUST_CHECK int srv_http_gather(srv_http *h, const char *method, const char *path, srv_many_fn *many, size_t parts,
				  struct sl_err *err);
/* Before srv_http_start: where log-ins are recorded, on a separate thread; fn may wait for the store. */
typedef int srv_audit_fn(const struct sl_audit_record *record, struct sl_err *err, void *ctx);
void srv_http_audit(srv_http *h, srv_audit_fn *fn, void *ctx);
SL_MUST_CHECK int srv_http_start(srv_http *h, struct sl_err *err);
/* From now on 503 with Retry-After for everything that is not GET or HEAD. */
void srv_http_refuse(srv_http *h);
/* Takes no connection and no request any more, ends all streams, calls gone of those who wait, and lets handlers end
 * until the deadline. SL_ETIMEDOUT: some still run; their connections are cut, and srv_http_free waits for them. */
int srv_http_stop(srv_http *h, int64_t deadline_ms, struct sl_err *err);
void srv_http_free(srv_http *h);                 /* stops without waiting when that was not done */
const char *srv_http_address(const srv_http *h); /* "127.0.0.1:7070", with the real port when 0 was asked */
/* Tokens, certificate and key from their files again (SIGHUP). What was in force stays so on failure. */
int srv_http_reload(srv_http *h, struct sl_err *err);

const char *srv_path(const srv_request *r);                    /* as sent, without the query */
const char *srv_param(const srv_request *r, const char *name); /* of the path, decoded; NULL */
const char *srv_query(const srv_request *r,
		      const char *name); /* decoded UTF-8, the first of that name; NULL when absent */
void srv_query_each(const srv_request *r, int (*fn)(const char *name, const char *value, void *ctx), void *ctx);
const char *srv_header(const srv_request *r, const char *name); /* never Authorization or Cookie */
const void *srv_body(const srv_request *r, size_t *len);        /* whole, followed by a NUL */
/* The body as JSON; borrowed. NULL: answered already, with 400, with 413 when building it would take too much memory,
 * or with 503 when other requests use that memory now. */
json_t *srv_body_json(srv_request *r);
/* The same, but the values of members called name are kept as text where their object is nested depth deep (1: members
 * of the body itself). Such a member holds a number; srv_body_opaque has its text, not checked, in the body. */
json_t *srv_body_json_but(srv_request *r, const char *name, int depth);
struct srv_text srv_body_opaque(const srv_request *r, const json_t *member);
/* Count bytes that the request makes us allocate with the bodies, until it is gone. False: there is no room for them.
 */
bool srv_body_reserve(size_t bytes, void *request);
const char *srv_actor(const srv_request *r);
enum srv_role srv_role(const srv_request *r);
/* May its token start jobs of the type, or publish to the stream? Those with the role of the route may. */
bool srv_may_enqueue(const srv_request *r, const char *type);
bool srv_may_ship(const srv_request *r, const char *stream);
/* Does one of its scopes name the stream, or the type for a worker? The role does not count. */
bool srv_ships(const srv_request *r, const char *stream);
bool srv_may_work(const srv_request *r, const char *type);
bool srv_works(const srv_request *r); /* is it a worker's token at all? */
/* The name of its token; NULL: the server has none. */
const char *srv_token(const srv_request *r);
/* The record of the change that r asks for. Its strings live until r is answered. */
void srv_audit_record(srv_request *r, struct sl_audit_record *out);

/* Exactly one answer a request, from any thread, after which r is gone. Do not hold a lock that its gone takes. */
void srv_json(srv_request *r, int status, json_t *body);                                    /* takes the reference */
void srv_bytes(srv_request *r, int status, const char *type, const void *data, size_t len); /* copied */
void srv_bytes_own(srv_request *r, int status, const char *type, void *data, size_t len);   /* freed by the answer */
/* Not copied: data lives as long as the server. Cached after revalidation, unless srv_set_header said otherwise. */
struct srv_content {
	const char *type;
	const void *data;
	size_t len;
	const char *encoding; /* what data is compressed with, or NULL */
	const char *etag;     /* a quoted string, or NULL: 304 when the client has it */
	int status;           /* 0: 200 */
};
void srv_static(srv_request *r, const struct srv_content *content);
/* {"error":{"code","message","request_id"}} */
void srv_error(srv_request *r, int status, const char *code, const char *fmt, ...) SL_PRINTF(4, 5);
/* SL_E… → status and code, Retry-After from retry_after_ms with 429 and 503. */
void srv_fail(srv_request *r, const struct sl_err *err);
void srv_set_header(srv_request *r, const char *name, const char *value); /* before the answer; copied; 12 at most */
void srv_retry_after(srv_request *r, int64_t ms);
/* It will be answered later, perhaps by another thread. gone (may be NULL) is called at most once, by a thread of ours,
 * when the client has left or the server stops: answer now, or let the thread that is about to. It is not called after
 * the answer, and an answer by another thread waits until it has returned. */
void srv_later(srv_request *r, void (*gone)(srv_request *r, void *ctx), void *ctx);

/*
 * Server-sent events. fill runs on a worker when the client can take more: bytes written (> 0); 0: nothing now, it
 * sleeps until srv_stream_wake, while heartbeat comments keep the connection; < 0: the end. It may wait for the store.
 * done is called once, when neither fill runs nor anything of ours uses ctx any more, by any thread of ours: be quick.
 */
struct srv_stream_ops {
	ssize_t (*fill)(srv_stream *s, char *buf, size_t cap, void *ctx);
	void (*done)(void *ctx);
};
void srv_stream_open(srv_request *r, const struct srv_stream_ops *ops, void *ctx); /* 200 text/event-stream */
/* From any thread, also inside fill, until done was called: what calls it and done agree by a lock of theirs, which
 * fill and done may take. */
void srv_stream_wake(srv_stream *s);

#endif
