/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The receiver of logs: PublishJobEvents, through a write coordinator into the store's events, and those who follow a
 * job's events.
 *
 *   POST …/PublishJobEvents ─▶ struct srv_publish ─▶ coordinator, in order per stream ─▶ sink: one transaction for many
 *           ▲                                                                                │ streams
 *           └───────────── the answer: mark, refused, conflict, 429, 503 ◀── completion ─────┤
 *                                                                   followers are woken ◀────┘
 *
 * Guarantee: a mark in an answer is durable; what came again is taken once. Whatever is not answered with a mark is
 * still the sender's, so that nothing is lost when the server ends with items in its queue.
 *
 * Thread safety: every function from any thread. A publish belongs to its handler until it is submitted, then to the
 * coordinator's worker that has it; only its request is shared, and the thread that takes it out answers it.
 */
#ifndef SLUICE_SERVER_INGEST_H
#define SLUICE_SERVER_INGEST_H

#include "base/thread.h"
#include "server/core.h"

#include <stdatomic.h>

#include <sluice/coordinator.h>
#include <sluice/events.h>

#define SRV_STREAM_BYTES 201     /* a stream's id with its NUL */
#define SRV_PUBLISH_EVENTS 65536 /* in one request */
#define SRV_PUBLISH_JSON_BYTES ((size_t)4 * 1024 * 1024)

/* ---- a request ---- */

struct srv_block; /* of memory */

struct srv_publish {
	struct srv_ingest *ingest;
	_Atomic(srv_request *) request; /* NULL: answered */
	_Atomic unsigned refs;
	bool json; /* how to answer */
	char key[SRV_STREAM_BYTES + 4];
	size_t key_len;
	char stream[SRV_STREAM_BYTES];
	uint32_t incarnation;
	uint64_t last;            /* of the sender's log; 0: not reported */
	struct sl_wal_mark after; /* where the sender takes the store to be */
	struct sl_event_writer writer;
	struct sl_audit_record record; /* of the writer; the request may be gone by then */
	struct sl_event_row *rows;
	size_t n;
	struct sl_wal_range *skipped;
	size_t n_skipped;
	struct srv_block *blocks;
	size_t bytes, bytes_max; /* of the blocks */
	struct srv_publish *next_waiting, **prev_waiting;
	_Atomic bool unheard; /* its sender was answered before it ended */
	uint64_t away_at;     /* 1 + the writes that had succeeded when it failed first for lack of a store; 0: never */
	/* What became of it, once settled. */
	bool settled;
	int rc; /* 0, SL_EREFUSED, SL_ECONFLICT, SL_EACCES, SL_EAGAIN */
	struct sl_wal_mark mark;
	uint64_t refused;
	char why[SL_ERR_MSG_BYTES];
};

struct srv_publish *srv_publish_new(size_t body_len);
void srv_publish_unref(struct srv_publish *p); /* NULL is allowed */
/* Memory that lives as long as p; NULL: none, or more than a body of this size may need. */
void *srv_publish_alloc(struct srv_publish *p, size_t n);

/* Fill p from a body. SL_EDATA: it is no request of ours. SL_EREFUSED: it is, but p->refused is an event that no store
 * can keep. SL_ETOOBIG, SL_ENOMEM. */
int srv_publish_proto(struct srv_publish *p, const void *body, size_t len, struct sl_err *err);
int srv_publish_json(struct srv_publish *p, const void *body, size_t len, struct sl_err *err);
/* The end of both: names and numbers are in range, rows and ranges in order. */
int srv_publish_check(struct srv_publish *p, struct sl_err *err);

/* ---- followers ---- */

struct srv_follow;
int srv_follow_new(struct srv_follow **out, struct srv_core *core, struct sl_err *err);
void srv_follow_free(struct srv_follow *f); /* after the last stream has ended; NULL is allowed */
int srv_follow_add(srv_http *h, struct srv_follow *f, struct sl_err *err);
/* There are new events of these rows' jobs. */
void srv_follow_poke(struct srv_follow *f, const struct sl_event_row *rows, size_t n);

/* ---- streams that this server hears of ---- */

struct srv_heard; /* the newest few thousand */
struct srv_heard *srv_heard_new(void);
void srv_heard_free(struct srv_heard *h);
/* last: of the sender's log; 0: not reported. */
void srv_heard_of(struct srv_heard *h, const char *stream, uint32_t incarnation, uint64_t last, int64_t now_ms);

/* ---- publishes that wait: ingest/ingest.c ---- */

struct srv_waiting {
	sl__mutex mu;
	struct srv_publish *first;
	int64_t away_until_ms; /* nothing is taken until then; 0: the store is there */
};

struct srv_ingest;
/* Answer the sender of p with 503; p keeps waiting. */
void srv_wait_unheard(struct srv_publish *p, int64_t ms, const char *why);
/* The store could not be reached: answer all, and refuse for a while. */
void srv_wait_away(struct srv_ingest *ingest);
void srv_wait_back(struct srv_ingest *ingest);

/* ---- the whole ---- */

struct srv_ingest {
	struct srv_core *core;
	const struct sl_env *env;
	sl_sink sink;
	sl_coordinator *coordinator;
	struct srv_follow *follow;
	struct srv_heard *heard;
	struct srv_waiting wait;
	char target[33];
	uint64_t high, low;               /* watermarks */
	sl_counter *events, *requests[4]; /* by outcome */
	_Atomic uint64_t successes;       /* writes to the store */
	_Atomic bool stopping;
};

/* ingest/sink.c */
extern const struct sl_sink_ops srv_ingest_sink;
/* ingest/streams.c: /api/v1/backpressure, coordinator, streams, target */
int srv_ingest_look_add(srv_http *h, struct srv_ingest *ingest, struct sl_err *err);
const char *srv_breaker_name(enum sl_breaker_state state);

#endif
