/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The payloads of PostgreSQL notifications: notes as text (payload.c has the format).
 *
 * Thread safety: one thread at a time. Ownership: env is borrowed; the owner of the payloads frees their text.
 */
#ifndef SL_JOBS_NOTIFY_PAYLOAD_H
#define SL_JOBS_NOTIFY_PAYLOAD_H

#include "base/buf.h"
#include "jobs/notify/fanout.h"

#define SL__PG_CHANNEL "sluice"
#define SL__PG_PAYLOAD_MAX 7900 /* the server takes less than 8,000 bytes */

/* Payloads under construction: one after the other, each ended by a NUL. */
struct sl__pg_payloads {
	struct sl__buf text;
	size_t begin;  /* of the one that is being written */
	uint64_t from; /* the number of the sender */
};

void sl__pg_payloads_init(struct sl__pg_payloads *p, const struct sl_env *env, uint64_t from);
void sl__pg_payloads_head(struct sl__pg_payloads *p); /* one without notes */
void sl__pg_payloads_add(struct sl__pg_payloads *p, const struct sl_note *note);
void sl__pg_payloads_end(struct sl__pg_payloads *p); /* close the last one */
/* The payload of a note about one job of a type, without the job's id. The type's name is not too long for a note. */
void sl__pg_payload_of_start(uint64_t from, const char *type, struct sl_start_notification *out);
/* Put the notes of a payload into the inbox. Returns who sent it; 0 when it is not ours to read. */
uint64_t sl__pg_payload_take(const char *payload, uint64_t self, struct sl__fanout *inbox);

#endif
