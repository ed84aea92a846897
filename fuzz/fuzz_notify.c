/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the payload of a PostgreSQL notification, and as notifications to send. Any client with NOTIFY can send
 * anything: subscribers get only valid notifications, a line that cannot be read means "check everything", subscribers
 * do not get what this process sent, and notifications that are sent arrive unchanged.
 */
#include <stdint.h>

#include "base/env.h"
#include "jobs/notify/payload.h"
#include "must.h"

#define SELF UINT64_C(0x1122334455667788)
#define OTHER UINT64_C(0x99)
#define NOTES_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct heard {
	size_t n, all; /* notes; of kind 0 */
	struct sl__fanout_note notes[SL__FANOUT_MAX];
};

static void hear(const struct sl_note *note, void *ctx)
{
	struct heard *h = ctx;
	MUST(note->kind <= SL_NOTE_CHAIN_ENDED && note->reason <= SL_LOST_FAILED);
	MUST(note->type == NULL || (note->type[0] != '\0' && strlen(note->type) < SL__FANOUT_TYPE_BYTES));
	if (note->kind == 0) {
		h->all++;
		return;
	}
	MUST(h->n < SL__FANOUT_MAX);
	h->notes[h->n].note = *note;
	(void)snprintf(h->notes[h->n].type, sizeof(h->notes[h->n].type), "%s", note->type != NULL ? note->type : "");
	h->n++;
}

static void wake(void *ctx)
{
	(void)ctx;
}

static bool same(const struct sl_note *a, const struct sl__fanout_note *b)
{
	return a->kind == b->note.kind && a->reason == b->note.reason && a->id == b->note.id &&
	       strcmp(a->type != NULL ? a->type : "", b->type) == 0;
}

/* ---- a payload of anybody ---- */

static void take(struct sl__fanout *inbox, const char *payload, struct heard *h)
{
	uint64_t from = sl__pg_payload_take(payload, SELF, inbox);
	sl__fanout_deliver(inbox);
	/* Only whole payloads of others have something to say. */
	MUST((from != 0 && from != SELF) || (h->n == 0 && h->all == 0));
	const char *lines = strchr(payload, '\n');
	MUST(from == 0 || lines != NULL);
	MUST(from == 0 || from == SELF || lines[1] == '\0' || h->n + h->all > 0);
}

/* ---- notes of ours ---- */

/* Four bytes a note: kind and reason, id, length of the type and its letter. */
static size_t make_notes(const uint8_t *data, size_t size, struct sl_note *notes, char types[][160])
{
	size_t n = 0;
	for (; n < NOTES_MAX && 4 * (n + 1) <= size; n++, data += 4) {
		size_t len = data[2] % 160;
		memset(types[n], 'a' + data[3] % 26, len);
		types[n][len < 159 ? len : 159] = '\0';
		notes[n] = (struct sl_note){.kind = (enum sl_note_kind)(1 + data[0] % SL_NOTE_CHAIN_ENDED),
					    .reason = (enum sl_lost_reason)(data[0] / 16 % (SL_LOST_FAILED + 1)),
					    .id = (uint64_t)data[1] << (data[3] % 57),
					    .type = len > 0 ? types[n] : NULL};
	}
	return n;
}

/* Every note is heard as it was sent, but for those that were merged: each of these has one that says as much. */
static bool is_heard(const struct sl_note *note, const struct heard *h)
{
	struct sl_note sent = *note;
	if (sent.type != NULL && strlen(sent.type) >= SL__FANOUT_TYPE_BYTES)
		sent.type = NULL;
	for (size_t i = 0; i < h->n; i++) {
		const struct sl__fanout_note *x = &h->notes[i];
		if (same(&sent, x) || (sent.kind == x->note.kind && sent.kind != SL_NOTE_JOB_SCHEDULED &&
				       sent.id == x->note.id && sent.reason == x->note.reason))
			return true;
		if (sent.kind == SL_NOTE_JOB_SCHEDULED && x->note.kind == sent.kind &&
		    strcmp(sent.type != NULL ? sent.type : "", x->type) == 0)
			return true;
	}
	return false;
}

static void send_and_take(struct sl__fanout *inbox, const struct sl_env *env, const uint8_t *data, size_t size,
			  struct heard *h)
{
	struct sl_note notes[NOTES_MAX];
	static char types[NOTES_MAX][160];
	struct sl__pg_payloads p;
	size_t n = make_notes(data, size, notes, types);
	sl__pg_payloads_init(&p, env, OTHER);
	for (size_t i = 0; i < n; i++)
		sl__pg_payloads_add(&p, &notes[i]);
	sl__pg_payloads_end(&p);
	MUST(p.text.failed == 0);
	for (size_t at = 0; at < p.text.len; at += strlen(p.text.data + at) + 1) {
		MUST(strlen(p.text.data + at) <= SL__PG_PAYLOAD_MAX);
		MUST(sl__pg_payload_take(p.text.data + at, SELF, inbox) == OTHER);
	}
	sl__fanout_deliver(inbox);
	MUST(h->all == 0);
	for (size_t i = 0; i < n; i++)
		MUST(is_heard(&notes[i], h));
	sl__buf_fini(&p.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sl_env env;
	struct sl__fanout inbox;
	struct heard h = {0};
	if (size == 0)
		return 0;
	MUST(sl__env_init(&env, NULL, NULL) == 0 && sl__fanout_init(&inbox, &env, wake, NULL, NULL) == 0);
	MUST(sl__fanout_subscribe(&inbox, hear, &h, NULL) == 0);
	if (data[0] % 2 == 0) {
		char *payload = malloc(size);
		MUST(payload != NULL);
		memcpy(payload, data + 1, size - 1);
		payload[size - 1] = '\0';
		take(&inbox, payload, &h);
		free(payload);
	} else {
		send_and_take(&inbox, &env, data + 1, size - 1, &h);
	}
	sl__fanout_fini(&inbox);
	return 0;
}
