/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The PostgreSQL notifier inside. Two threads, each with its own connection:
 *
 *	publish ──▶ inbox ─────────────────────────▶ listener ──▶ subscribers of this process
 *	        └─▶ outbox (merged) ─▶ publisher ──▶ NOTIFY ──▶ LISTEN of other processes ─▶ their listener
 *
 * A payload begins with the number of the notifier that sent it: its own listener has told those notes already and
 * takes them only as a sign that notifications arrive. What a store sends with a start (start_notification) is
 * such a payload too; that note does not go through the publisher.
 */
#ifndef SL_JOBS_NOTIFY_POSTGRES_H
#define SL_JOBS_NOTIFY_POSTGRES_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/buf.h"
#include "db/postgres.h"
#include "flow/tokens.h"
#include "jobs/notify/fanout.h"

#define SL__PG_CHANNEL "sluice"
#define SL__PG_PAYLOAD_MAX 7900 /* the server takes less than 8,000 bytes */

/* Payloads under construction: one after the other, each ended by a NUL. */
struct sl__pg_payloads {
	struct sl__buf text;
	size_t begin; /* of the one that is being written */
	uint64_t from;
};

struct sl__pg_notify {
	struct sl_env env;
	char *conninfo;
	pid_t pid;
	uint64_t id; /* of this notifier, never 0 */
	atomic_bool stopping;

	struct sl__fanout inbox; /* to the subscribers, told by the listener's thread */
	pthread_t listener;
	int wake_fd;            /* eventfd: something for the listener */
	atomic_bool subscribed; /* there are subscribers: the connection is wanted */
	atomic_bool healthy;

	struct sl__fanout outbox; /* to the server; its only subscriber writes payloads */
	pthread_t publisher;
	sl__mutex mu;
	sl__cond work;
	sl__tokens *tokens;              /* for sending */
	_Atomic int64_t start_ns;        /* when a start last asked for a notification */
	atomic_uint published;           /* calls since notes were sent last */
	unsigned price;                  /* the publisher's: tokens for sending next */
	bool has_work, probe_wanted;     /* under mu */
	struct sl__pg_conn out;          /* the publisher's, as the two below; out.pg NULL: not connected */
	struct sl__pg_payloads payloads; /* to be sent next */
	bool lost;                       /* notes were not sent */
};

void sl__pg_notify_opts(const struct sl__pg_notify *n, struct sl__pg_opts *out);

/* ---- postgres_payload.c ---- */

void sl__pg_payloads_init(struct sl__pg_payloads *p, const struct sl_env *env, uint64_t from);
void sl__pg_payloads_head(struct sl__pg_payloads *p); /* one without notes */
void sl__pg_payloads_add(struct sl__pg_payloads *p, const struct sl_note *note);
void sl__pg_payloads_end(struct sl__pg_payloads *p); /* close the last one */
void sl__pg_payloads_clear(struct sl__pg_payloads *p);
/* The payload of a note about one job of a type, without the job's id. The type's name is not too long for a note. */
void sl__pg_payload_of_start(uint64_t from, const char *type, struct sl_start_notification *out);
/* Put the notes of a payload into the inbox. Returns who sent it; 0 when it is not ours to read. */
uint64_t sl__pg_payload_take(const char *payload, uint64_t self, struct sl__fanout *inbox);

/* ---- postgres_listen.c, postgres_publish.c ---- */
void *sl__pg_listen_main(void *arg);
void *sl__pg_publish_main(void *arg);
/* The subscriber of the outbox; ctx is the notifier. */
void sl__pg_collect(const struct sl_note *note, void *ctx);
/* Send the payloads on a connection. lazy: the commit need not wait for the disk; never in a caller's transaction. */
SL_MUST_CHECK int sl__pg_send_payloads(struct sl__pg_conn *conn, const struct sl__pg_payloads *p, bool lazy,
				       struct sl_err *err);
/* Make the publisher send a sign of life that the listener should hear. */
void sl__pg_probe(struct sl__pg_notify *n);

#endif
