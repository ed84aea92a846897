/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the HTTP part share.
 *
 * Threads. The network thread is libmicrohttpd's: it reads requests and writes answers. Workers run handlers and the
 * fill functions of streams. The ticker checks deadlines, heartbeats and clients that have left. An answer may come
 * from any thread.
 *
 *   network thread                 worker, or the thread that answers
 *   headers, body ─▶ srv_dispatch ─▶ suspended ─▶ handler ─▶ srv_answer ─▶ resumed
 *   queue the response ◀───────────────────────────────────────────────────┘
 *
 * Locks: h->mu guards the queue, the lists of connections and of held requests, and the streams' states. Nothing of
 * another part is called with it held. A request's fate is decided by the bits of `state`, so that answering,
 * suspending and giving up may meet in any order; `n_suspended` counts connections that libmicrohttpd must not be
 * stopped with.
 */
#ifndef SLUICE_SERVER_HTTP_INTERNAL_H
#define SLUICE_SERVER_HTTP_INTERNAL_H

#include "base/thread.h"
#include "server/http/accesslog.h"
#include "server/http/auth.h"
#include "server/http/http.h"
#include "server/http/net_text.h"
#include "server/http/route.h"
#include "server/http/tls.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#define SRV_ADDRESS_BYTES 64
#define SRV_MAX_QUERY 64
#define SRV_MAX_HEADERS 64
#define SRV_MAX_OUT 12
#define SRV_ARENA_BYTES 2048
#define SRV_MAX_SECRETS 4
#define SRV_GAUGES 4

/* Flags of our own routes, beside those of http.h. */
enum { SRV_OF_SESSION = 1 << 8, SRV_LOGIN = 1 << 9 };

/* How an actor is known. */
enum srv_way { SRV_BY_NOTHING = 0, SRV_BY_PLACE, SRV_BY_TOKEN, SRV_BY_COOKIE };

struct srv_conn {
	struct srv_conn *prev, *next; /* h->conns */
	srv_http *h;
	struct MHD_Connection *mhd;
	int fd;
	_Atomic int64_t deadline_ns; /* the ticker shuts the socket when it has passed; SL_FOREVER: never */
	srv_request *spare;          /* a used request to use again; network thread only */
	struct srv_crowd *crowd;     /* it is counted there; h->mu */
	bool own_user;               /* its socket is of our own user, or of root; known where no token is needed */
	char address[SRV_ADDRESS_BYTES];
};

/* Bits of srv_request.state. */
enum {
	R_ANSWERED = 1,  /* response and status are there, and will not change */
	R_SUSPENDED = 2, /* the connection was suspended for the handler: the second thread resumes it */
	R_ABANDONED = 4  /* the connection is gone or must go: an answer is thrown away */
};

struct arena {
	size_t used;
	struct arena_more *more;
	char bytes[SRV_ARENA_BYTES];
};

struct pair {
	const char *name, *value;
};

/* Header fields that are read for every request, found in one pass. */
enum {
	F_HOST,
	F_ORIGIN,
	F_AUTHORIZATION,
	F_COOKIE,
	F_FETCH_SITE,
	F_FETCH_MODE,
	F_CSRF,
	F_REQUEST_ID,
	F_LENGTH,
	F_CODING,
	F_EXPECT,
	F_CONTENT_CODING,
	F_FORWARDED_FOR, /* the last of several */
	F_FORWARDED_PROTO,
	F_COUNT
};

struct srv_request {
	srv_http *h;
	struct srv_conn *conn; /* network thread, or while suspended */
	_Atomic unsigned state;
	_Atomic unsigned refs; /* the connection, the answer, the running handler */
	srv_request *queue_next;
	srv_request *held_prev, *held_next; /* h->held while suspended, h->mu */
	bool held;
	bool begun, dispatched;
	bool head, has_body;
	bool unclear; /* where the body ends, and with it the request */
	char method[16];
	char *target; /* as sent */
	char *path;   /* the target without its query */
	struct srv_match match;
	struct pair query[SRV_MAX_QUERY];
	size_t n_query;
	struct pair headers[SRV_MAX_HEADERS]; /* copies: a handler may outlive the connection */
	size_t n_headers;
	bool headers_bad; /* too many, or no memory */
	const char *field[F_COUNT];
	unsigned seen[F_COUNT];
	char *body;
	size_t body_len, body_cap, dropped;
	struct srv_json_body json;
	size_t reserved; /* counted in h->body_bytes, in addition to the body */
	char id[65];
	char address[SRV_ADDRESS_BYTES];
	struct srv_identity identity;
	enum srv_way way;
	struct {
		char *text;
		size_t len;
	} secret[SRV_MAX_SECRETS]; /* values in libmicrohttpd's buffers that are wiped once checked */
	size_t n_secret;
	char session[SRV_SESSION_BYTES]; /* of a request to /session only */
	int64_t start_ns;
	struct pair out[SRV_MAX_OUT];
	size_t n_out;
	bool later;
	bool alone;                    /* it was among many, and is the route's own handler's now */
	bool ready;                    /* answered among many; it leaves with the others */
	struct srv_together *together; /* while it is handled with others */
	pthread_mutex_t later_mu;      /* recursive: gone may answer */
	void (*gone)(srv_request *r, void *ctx);
	void *gone_ctx;
	bool gone_called;
	int status;
	size_t answer_len;
	size_t answer_kept; /* counted in h->answer_bytes */
	struct MHD_Response *response;
	srv_stream *stream;
	bool is_stream;
	struct arena arena;
};

struct srv_http {
	struct sl_env env;
	int64_t body_max, header_deadline_ns, request_deadline_ns, heartbeat_ns, idle_ns, bodies_max, answers_max;
	int32_t connections_max, connections_per_address, n_threads;
	bool read_only;
	const char *store; /* for the session; may be NULL */
	sl_metrics *metrics;
	sl_gauge *gauges[SRV_GAUGES];
	sl_counter *cut_late, *cut_body, *denied, *refused_logins;
	srv_auth *auth;
	srv_tls *tls;        /* NULL: plain */
	srv_audit_fn *audit; /* of log-ins; NULL: nowhere */
	void *audit_ctx;
	int n_recording; /* threads that record a log-in; mu */
	srv_accesslog *access;
	bool needs_token, loopback, behind_proxy;
	int32_t streams_per_address;
	char local_csrf[SRV_CSRF_BYTES];
	char cookie[32]; /* its name; has the port in it, which browsers ignore for cookies */
	char **hosts;
	size_t n_hosts;
	srv_routes *routes;
	struct MHD_Daemon *daemon;
	char said[256]; /* by libmicrohttpd, while it starts */
	int listen_fd;
	char address[SRV_ADDRESS_BYTES];
	char boot[9]; /* random part of request ids */
	_Atomic uint64_t next_id;
	_Atomic bool refusing, stopping;
	_Atomic int64_t body_bytes, answer_bytes;
	_Atomic int64_t n_suspended;
	_Atomic int64_t n_active;                 /* requests from their dispatch until they are gone */
	_Atomic int n_busy;                       /* workers with a request */
	_Atomic int64_t n_connections, n_streams; /* for the metrics */

	sl__mutex mu;
	sl__cond work, tick, idle;
	srv_request *queue_first, *queue_last;
	srv_request *held;
	srv_stream *streams;
	struct srv_conn *conns;
	size_t n_conns;
	bool workers_end, ticker_end, ticker_again;
	bool closing; /* no connection may be suspended from here on */
	pthread_t *workers, ticker;
	int32_t n_started;
	bool ticker_started;
};

/* http/request.c */
srv_request *srv_request_new(srv_http *h, struct srv_conn *c, const char *target);
void srv_request_unref(srv_request *r);
void srv_request_detach(srv_request *r); /* the connection's reference; network thread */
void srv_request_free_spare(struct srv_conn *c);
void *srv_arena(srv_request *r, size_t size); /* lives until the request is gone; NULL without memory */
char *srv_arena_text(srv_request *r, const char *s);

/* http/begin.c: what is decided when the headers are there. Refused requests are answered when it returns. */
void srv_request_begin(srv_request *r, const char *method);
/* 0, or -1 when the connection must be cut. */
int srv_request_body(srv_request *r, const char *data, size_t len);

bool srv_is_read(const srv_request *r); /* GET, HEAD, OPTIONS: changes nothing */

/* http/guard.c. false: answered. */
bool srv_guard_host(srv_request *r);
bool srv_guard_actor(srv_request *r);

/* http/session.c */
int srv_session_add(srv_http *h, struct sl_err *err);
void srv_session_stop(srv_http *h); /* waits for the records of log-ins */

/* http/metrics.c */
int srv_metrics_start(srv_http *h, struct sl_err *err);
void srv_metrics_stop(srv_http *h);
void srv_metrics_count(srv_http *h, struct srv_endpoint *e, int status, int64_t ns, bool stream);

/* http/record.c: the access log. */
/* Requests that are handled together, and when the next ones may be. */
struct srv_together {
	struct srv_crowd *crowd;
	size_t n;
	int64_t began_ns;
	bool next_called;
};
void srv_record_access(srv_request *r, int64_t now_ns);

/* http/answer.c */
struct MHD_Response *srv_response_of(const void *data, size_t len, enum MHD_ResponseMemoryMode mode);
void srv_answer(srv_request *r, int status, struct MHD_Response *response, size_t len);
void srv_answer_leave(srv_request *r); /* what srv_answer left ready */
void srv_header_add(struct MHD_Response *response, const char *name, const char *value);

/* http/pool.c */
int srv_pool_start(srv_http *h, struct sl_err *err);
void srv_pool_stop(srv_http *h);
/* Network thread; r has its body. */
enum srv_dispatched {
	SRV_DISPATCH_ANSWERED, /* queue the answer */
	SRV_DISPATCH_SUSPENDED,
	SRV_DISPATCH_CUT /* the connection */
};
enum srv_dispatched srv_dispatch(srv_request *r);
void srv_hold(srv_request *r);                    /* h->mu held */
void srv_unhold(srv_request *r);                  /* takes h->mu */
void srv_queue_push(srv_http *h, srv_request *r); /* h->mu held */
void srv_suspend(srv_request *r);
void srv_resume(srv_request *r, bool locked); /* locked: h->mu is held */

void srv_run(srv_request *r); /* on a worker; takes the reference */

/* http/gather.c */
void srv_gather_queue(srv_http *h, srv_request *r); /* h->mu held */
void srv_gather_run(srv_http *h, srv_request *r);   /* on a worker */
void srv_gather_leave(struct srv_crowd *c);         /* a connection that was counted; h->mu held */
void srv_gather_free(srv_http *h);

/* http/stream.c */
void srv_stream_run(srv_request *r);                  /* a worker: fill */
void srv_stream_detach(srv_request *r);               /* network thread: the connection is done with it */
void srv_stream_tick(srv_request *r, int64_t now_ns); /* h->mu held */
void srv_stream_finish(srv_request *r);               /* h->mu held: end it */
void srv_stream_abandon(srv_request *r);              /* h->mu held: end it without waiting for its fill */

/* http/conn.c */
void srv_conn_notify(void *cls, struct MHD_Connection *mhd, void **socket_ctx,
		     enum MHD_ConnectionNotificationCode code);
bool srv_client_left(const struct srv_conn *c);
int srv_ticker_start(srv_http *h, struct sl_err *err);
void srv_ticker_stop(srv_http *h);
void srv_ticker_wake(srv_http *h); /* h->mu held: it runs immediately */

/* http/mhd.c: what libmicrohttpd calls. */
int srv_mhd_start(srv_http *h, struct sl_err *err);

#endif
