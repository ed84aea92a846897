/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A publish from its body: memory, the protobuf form, and the checks that both forms share. Bodies come from the
 * network: memory is bounded by the size of the body, and every number by what both databases can keep.
 */
#include "server/ingest/ingest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <events.pb-c.h>

#define BLOCK_BYTES ((size_t)16 * 1024)
/* protobuf-c makes at most about 28 bytes of one (of messages that are empty); real events stay below 8. */
#define BYTES_PER_BYTE 16
#define BYTES_MORE ((size_t)32 * 1024 * 1024)
#define TS_MIN_MS INT64_C(-62135596800000) /* 0001-01-01 */
#define TS_MAX_MS INT64_C(253402300799999) /* 9999-12-31 */

struct srv_block {
	struct srv_block *next;
	size_t used, cap;
	_Alignas(16) char bytes[];
};

/* ---- memory ---- */

struct srv_publish *srv_publish_new(size_t body_len)
{
	struct srv_publish *p = calloc(1, sizeof(*p));
	if (p == NULL)
		return NULL;
	size_t a = body_len * BYTES_PER_BYTE + BLOCK_BYTES, b = body_len * 2 + BYTES_MORE;
	p->bytes_max = a < b ? a : b;
	atomic_init(&p->refs, 1);
	return p;
}

void srv_publish_unref(struct srv_publish *p)
{
	if (p == NULL || atomic_fetch_sub(&p->refs, 1) > 1)
		return;
	for (struct srv_block *b = p->blocks, *next; b != NULL; b = next) {
		next = b->next;
		free(b);
	}
	free(p);
}

void *srv_publish_alloc(struct srv_publish *p, size_t n)
{
	size_t need = (n + 15) & ~(size_t)15;
	struct srv_block *b = p->blocks;
	if (need < n || need > p->bytes_max - p->bytes)
		return NULL;
	if (b == NULL || need > b->cap - b->used) {
		size_t cap = need > BLOCK_BYTES / 4 ? need : BLOCK_BYTES;
		b = malloc(sizeof(*b) + cap);
		if (b == NULL)
			return NULL;
		*b = (struct srv_block){.next = p->blocks, .cap = cap};
		/* A block that is full from the start does not hide the room in the one before. */
		if (cap == need && p->blocks != NULL) {
			b->next = p->blocks->next;
			p->blocks->next = b;
		} else {
			p->blocks = b;
		}
	}
	void *at = b->bytes + b->used;
	b->used += need;
	p->bytes += need;
	return at;
}

/* ---- checks ---- */

static bool name_is_good(const char *s)
{
	size_t n = strlen(s);
	const char *chars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	return n > 0 && n < SRV_STREAM_BYTES && s[0] != '.' && strspn(s, chars) == n && strstr(s, ".wal") == NULL;
}

/* What a store cannot keep; NULL: nothing. */
static const char *why_refused(const struct sl_event_row *e)
{
	if ((int)e->type < 1)
		return "missing type";
	if (e->ts_ms < TS_MIN_MS || e->ts_ms > TS_MAX_MS)
		return "its time is not between the years 1 and 9999";
	if (e->job_id > INT64_MAX)
		return "no such job";
	if (e->attempt < 0)
		return "negative attempt";
	return e->payload_len > SL_WAL_MAX_PAYLOAD ? "too large" : NULL;
}

int srv_publish_check(struct srv_publish *p, struct sl_err *err)
{
	if (!name_is_good(p->stream))
		return sl_err_set(err, SL_EDATA, "stream: must be letters, digits, '.', '_' and '-', at most %d",
				  SRV_STREAM_BYTES - 1);

	/* Events and ranges in order, and no event in a range. */
	uint64_t before = 0;
	for (size_t i = 0; i < p->n; before = p->rows[i++].sequence)
		if (p->rows[i].sequence <= before || p->rows[i].sequence > INT64_MAX)
			return sl_err_set(err, SL_EDATA, "events: sequence %" PRIu64 " does not come after %" PRIu64,
					  p->rows[i].sequence, before);
	before = 0;
	for (size_t i = 0; i < p->n_skipped; before = p->skipped[i++].last)
		if (p->skipped[i].first <= before || p->skipped[i].last < p->skipped[i].first ||
		    p->skipped[i].last > INT64_MAX)
			return sl_err_set(err, SL_EDATA, "skipped: the ranges are not in order");
	for (size_t i = 0, k = 0; i < p->n && k < p->n_skipped;) {
		if (p->rows[i].sequence > p->skipped[k].last)
			k++;
		else if (p->rows[i].sequence < p->skipped[k].first)
			i++;
		else
			return sl_err_set(err, SL_EDATA, "skipped: event %" PRIu64 " is both sent and skipped",
					  p->rows[i].sequence);
	}

	for (size_t i = 0; i < p->n; i++) {
		const char *why = why_refused(&p->rows[i]);
		if (why == NULL)
			continue;
		p->refused = p->rows[i].sequence;
		return sl_err_set(err, SL_EREFUSED, "event %" PRIu64 ": %s", p->refused, why);
	}
	size_t n = strlen(p->stream);
	memcpy(p->key, p->stream, n + 1);
	memcpy(p->key + n + 1, &p->incarnation, sizeof(p->incarnation));
	p->key_len = n + 1 + sizeof(p->incarnation);
	return 0;
}

/* ---- protobuf ---- */

static void *alloc_for_protobuf(void *ctx, size_t n)
{
	return srv_publish_alloc(ctx, n);
}

static void free_for_protobuf(void *ctx, void *memory)
{
	(void)ctx;
	(void)memory;
}

int srv_publish_proto(struct srv_publish *p, const void *body, size_t len, struct sl_err *err)
{
	ProtobufCAllocator allocator = {alloc_for_protobuf, free_for_protobuf, p};
	const Sluice__V1__PublishJobEventsRequest *m =
		sluice__v1__publish_job_events_request__unpack(&allocator, len, body);
	if (m == NULL)
		return sl_err_set(err, SL_EDATA, "the body is not a PublishJobEventsRequest");
	if (m->n_events > SRV_PUBLISH_EVENTS || m->n_skipped > SRV_PUBLISH_EVENTS)
		return sl_err_set(err, SL_ETOOBIG, "more than %d events", SRV_PUBLISH_EVENTS);
	p->rows = srv_publish_alloc(p, m->n_events * sizeof(*p->rows));
	p->skipped = srv_publish_alloc(p, m->n_skipped * sizeof(*p->skipped));
	if (p->rows == NULL || p->skipped == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for %zu events", m->n_events);
	for (size_t i = 0; i < m->n_events; i++, p->n++) {
		const Sluice__V1__JobEvent *event = m->events[i]->event;
		struct sl_event_row *e = &p->rows[i];
		*e = (struct sl_event_row){.stream = p->stream,
					   .incarnation = m->incarnation,
					   .sequence = m->events[i]->sequence,
					   .crc = m->events[i]->crc,
					   .payload = ""};
		if (event == NULL)
			continue;
		const Sluice__V1__TaskToken *token = event->token != NULL ? event->token : m->token;
		bool has_claim = token != NULL && token->claim.len == sizeof(e->claim.bytes);
		e->job_id = token != NULL ? token->job_id : 0;
		/* Lines that belong to no job belong to no attempt. */
		e->attempt = token != NULL && token->job_id != 0 ? token->attempt : 0;
		if (has_claim)
			memcpy(e->claim.bytes, token->claim.data, sizeof(e->claim.bytes));
		e->type = (enum sl_event_type)event->type;
		e->partial = event->partial;
		e->ts_ms = event->ts_ms;
		e->payload = event->data.data != NULL ? event->data.data : (const uint8_t *)"";
		e->payload_len = event->data.len;
		if (event->token != NULL && event->token->claim.len != 0 && !has_claim) {
			p->refused = e->sequence;
			return sl_err_set(err, SL_EREFUSED, "event %" PRIu64 ": its claim must be 16 bytes long",
					  p->refused);
		}
	}
	for (size_t i = 0; i < m->n_skipped; i++, p->n_skipped++)
		p->skipped[i] = (struct sl_wal_range){m->skipped[i]->first, m->skipped[i]->last};
	p->incarnation = m->incarnation;
	p->last = m->last;
	if (m->after != 0)
		p->after = (struct sl_wal_mark){m->after, m->after_crc, SL_WAL_MARK_RECORD};
	/* One that is too long is no good name, however it is cut. */
	(void)strncpy(p->stream, m->stream, sizeof(p->stream) - 1);
	if (strlen(m->stream) >= sizeof(p->stream))
		p->stream[0] = '\0';
	return srv_publish_check(p, err);
}
