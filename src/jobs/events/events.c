/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job events as bytes, and batches of them on their way into a log.
 *
 * Encoding is protobuf-c's. Decoding is done here, because a decoded event must point into its record instead of
 * copying it, and because bytes of any origin come in: known fields are read (the last one of a number wins), unknown
 * ones are skipped, and what does not add up is refused.
 */
#include <events.pb-c.h>

#include "jobs/events/events.h"

#define CLAIM_BYTES sizeof(struct sl_claim_id)
#define SPLIT_BYTES ((size_t)32 * 1024) /* a larger batch may need more than one flush */

_Static_assert((int)SL_EVENT_STARTED == SLUICE__V1__JOB_EVENT__TYPE__STARTED &&
		       (int)SL_EVENT_STDOUT == SLUICE__V1__JOB_EVENT__TYPE__STDOUT &&
		       (int)SL_EVENT_STDERR == SLUICE__V1__JOB_EVENT__TYPE__STDERR &&
		       (int)SL_EVENT_PROGRESS == SLUICE__V1__JOB_EVENT__TYPE__PROGRESS &&
		       (int)SL_EVENT_EXITED == SLUICE__V1__JOB_EVENT__TYPE__EXITED &&
		       (int)SL_EVENT_ERROR == SLUICE__V1__JOB_EVENT__TYPE__ERROR &&
		       (int)SL_EVENT_LOG == SLUICE__V1__JOB_EVENT__TYPE__LOG,
	       "the header and the protocol number the types alike");

const char *sl_event_type_name(enum sl_event_type type)
{
	static const char *const names[] = {"unknown",  "started", "stdout", "stderr",
					    "progress", "exited",  "error",  "log"};
	return type > 0 && (size_t)type < SL_COUNT(names) ? names[type] : names[0];
}

/* ---- encoding ---- */

int sl__event_pack(struct sl__buf *out, const struct sl_event *event, struct sl_err *err)
{
	static const struct sl_claim_id no_claim;
	Sluice__V1__TaskToken token = SLUICE__V1__TASK_TOKEN__INIT;
	Sluice__V1__JobEvent message = SLUICE__V1__JOB_EVENT__INIT;
	/* The message borrows everything from event. protobuf-c has no const, and encoding only reads. */
	union {
		const void *in;
		uint8_t *out;
	} claim = {event->claim.bytes}, data = {event->data};
	if ((int)event->type < 1)
		return sl_err_set(err, SL_EINVAL, "type: %d is not one of enum sl_event_type", (int)event->type);
	token.job_id = event->job_id;
	token.attempt = event->attempt;
	if (memcmp(&event->claim, &no_claim, sizeof(no_claim)) != 0)
		token.claim = (ProtobufCBinaryData){CLAIM_BYTES, claim.out};
	message.type = (Sluice__V1__JobEvent__Type)event->type;
	if (event->job_id != 0 || event->attempt != 0 || token.claim.len != 0)
		message.token = &token;
	message.ts_ms = event->ts_ms;
	message.position = event->position;
	message.partial = event->partial;
	message.data = (ProtobufCBinaryData){event->len, data.out};
	size_t n = event->len > SL_WAL_MAX_PAYLOAD ? event->len : sluice__v1__job_event__get_packed_size(&message);
	if (n > SL_WAL_MAX_PAYLOAD)
		return sl_err_set(err, SL_ETOOBIG, "an event of %zu bytes; at most %zu fit a record of the log", n,
				  SL_WAL_MAX_PAYLOAD);
	if (sl__buf_reserve(out, n) != 0)
		return sl_err_set(err, SL_ENOMEM, "encode an event: out of memory");
	out->len += sluice__v1__job_event__pack(&message, (uint8_t *)out->data + out->len);
	out->data[out->len] = '\0';
	return 0;
}

int sl_event_encode(const struct sl_event *event, const struct sl_env *env, void **out, size_t *len, struct sl_err *err)
{
	struct sl_env e;
	struct sl__buf buf;
	int rc = sl__env_init(&e, env, err);
	if (rc != 0)
		return rc;
	sl__buf_init(&buf, &e);
	rc = sl__event_pack(&buf, event, err);
	if (rc != 0) {
		sl__buf_fini(&buf);
		return rc;
	}
	*len = buf.len;
	*out = sl__buf_take(&buf);
	return 0;
}

void sl_event_free(const struct sl_env *env, void *encoded)
{
	struct sl_env e;
	if (sl__env_init(&e, env, NULL) == 0)
		sl__free(&e, encoded);
}

/* ---- decoding ---- */

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct reader {
	const uint8_t *at, *end;
	const char *bad; /* what is wrong; NULL: nothing yet */
};

/* One field: for WIRE_BYTES the span, else the number. */
struct field {
	uint32_t number;
	enum wire wire;
	uint64_t value;
	const uint8_t *bytes;
	size_t len;
};

static bool malformed(struct reader *r, const char *why)
{
	r->bad = why;
	return false;
}

static bool get_event_varint(struct reader *r, uint64_t *out)
{
	uint64_t v = 0;
	for (unsigned shift = 0; shift < 64; shift += 7) {
		if (r->at == r->end)
			return malformed(r, "a number is truncated");
		uint8_t byte = *r->at++;
		if (shift == 63 && byte > 1)
			break;
		v |= (uint64_t)(byte & 0x7F) << shift;
		if ((byte & 0x80) == 0) {
			*out = v;
			return true;
		}
	}
	return malformed(r, "a number is longer than 64 bits");
}

static bool get_event_bytes(struct reader *r, size_t n, struct field *f)
{
	if ((size_t)(r->end - r->at) < n)
		return malformed(r, "a field is truncated");
	f->bytes = r->at;
	f->len = n;
	r->at += n;
	return true;
}

/* false at the end of the message, and when it is bad. */
static bool next_field(struct reader *r, struct field *f)
{
	uint64_t key, n = 0;
	if (r->bad != NULL || r->at == r->end || !get_event_varint(r, &key))
		return false;
	if (key >> 3 == 0 || key >> 3 > 0x1FFFFFFF)
		return malformed(r, "a field has no valid number");
	*f = (struct field){.number = (uint32_t)(key >> 3), .wire = (enum wire)(key & 7)};
	switch (f->wire) {
	case WIRE_VARINT:
		return get_event_varint(r, &f->value);
	case WIRE_64:
		return get_event_bytes(r, 8, f);
	case WIRE_32:
		return get_event_bytes(r, 4, f);
	case WIRE_BYTES:
		if (!get_event_varint(r, &n))
			return false;
		return n <= SIZE_MAX ? get_event_bytes(r, (size_t)n, f) : malformed(r, "a field is truncated");
	}
	return malformed(r, "a field has an unknown wire type");
}

/* Is it this field? Another wire type under its number is malformed. */
static bool is_field(struct reader *r, const struct field *f, uint32_t number, enum wire wire)
{
	if (f->number != number)
		return false;
	return f->wire == wire || malformed(r, "a field has another wire type than in JobEvent");
}

static void decode_token(struct reader *outer, const struct field *f, struct sl_event *out)
{
	struct reader r = {f->bytes, f->bytes + f->len, NULL};
	struct field x;
	while (next_field(&r, &x)) {
		if (is_field(&r, &x, 1, WIRE_VARINT)) {
			out->job_id = x.value;
		} else if (is_field(&r, &x, 2, WIRE_VARINT)) {
			if ((int64_t)x.value < INT32_MIN || (int64_t)x.value > INT32_MAX)
				(void)malformed(&r, "the attempt is out of range");
			out->attempt = (int32_t)(int64_t)x.value;
		} else if (is_field(&r, &x, 3, WIRE_BYTES)) {
			if (x.len == CLAIM_BYTES)
				memcpy(out->claim.bytes, x.bytes, CLAIM_BYTES);
			else if (x.len == 0)
				out->claim = (struct sl_claim_id){{0}};
			else
				(void)malformed(&r, "the claim is not 16 bytes long");
		}
	}
	if (r.bad != NULL)
		outer->bad = r.bad;
}

int sl_event_decode(const void *record, size_t len, struct sl_event *out, struct sl_err *err)
{
	const uint8_t *bytes = record != NULL ? record : (const uint8_t *)"";
	struct reader r = {bytes, bytes + len, NULL};
	struct sl_event event = {.data = bytes};
	struct field f;
	while (next_field(&r, &f)) {
		if (is_field(&r, &f, 1, WIRE_VARINT)) {
			if (f.value > INT32_MAX)
				(void)malformed(&r, "the type is out of range");
			event.type = (enum sl_event_type)(f.value & INT32_MAX);
		} else if (is_field(&r, &f, 2, WIRE_BYTES)) {
			decode_token(&r, &f, &event);
		} else if (is_field(&r, &f, 3, WIRE_VARINT)) {
			event.ts_ms = (int64_t)f.value;
		} else if (is_field(&r, &f, 4, WIRE_VARINT)) {
			event.position = f.value;
		} else if (is_field(&r, &f, 5, WIRE_VARINT)) {
			event.partial = f.value != 0;
		} else if (is_field(&r, &f, 6, WIRE_BYTES)) {
			event.data = f.bytes;
			event.len = f.len;
		}
	}
	if (r.bad == NULL && (int)event.type < 1)
		r.bad = "it has no type";
	if (r.bad != NULL)
		return sl_err_set(err, SL_EDATA, "not a JobEvent: %s", r.bad);
	*out = event;
	return 0;
}

/* ---- batches ---- */

/* The event as it was added, but for its data: those are the end of its record, and the bytes may still move. */
struct batch_entry {
	size_t end; /* where its record ends */
	struct sl_event event;
};

static const struct batch_entry *batched_at(const struct sl__event_batch *b, size_t i)
{
	return &((const struct batch_entry *)(const void *)b->entries.data)[i];
}

void sl__event_batch_init(struct sl__event_batch *b, const struct sl_env *env)
{
	sl__buf_init(&b->bytes, env);
	sl__buf_init(&b->entries, env);
	sl__buf_init(&b->spans, env);
	b->n = 0;
}

void sl__event_batch_fini(struct sl__event_batch *b)
{
	sl__buf_fini(&b->bytes);
	sl__buf_fini(&b->entries);
	sl__buf_fini(&b->spans);
	b->n = 0;
}

void sl__event_batch_clear(struct sl__event_batch *b)
{
	sl__buf_clear(&b->bytes);
	sl__buf_clear(&b->entries);
	b->n = 0;
}

int sl__event_batch_add(struct sl__event_batch *b, const struct sl_event *event, struct sl_err *err)
{
	if (sl__buf_reserve(&b->entries, sizeof(struct batch_entry)) != 0)
		return sl_err_set(err, SL_ENOMEM, "collect events: out of memory");
	int rc = sl__event_pack(&b->bytes, event, err);
	if (rc != 0)
		return rc;
	struct batch_entry entry = {b->bytes.len, *event};
	rc = sl__buf_append(&b->entries, &entry, sizeof(entry));
	assert(rc == 0);
	b->n++;
	return rc;
}

static struct sl_wal_span span_of(const struct sl__event_batch *b, size_t i)
{
	size_t start = i > 0 ? batched_at(b, i - 1)->end : 0;
	return (struct sl_wal_span){b->bytes.data + start, batched_at(b, i)->end - start};
}

static int make_spans(struct sl__event_batch *b, struct sl_err *err)
{
	sl__buf_clear(&b->spans);
	for (size_t i = 0; i < b->n; i++) {
		struct sl_wal_span span = span_of(b, i);
		(void)sl__buf_append(&b->spans, &span, sizeof(span));
	}
	return b->spans.failed != 0 ? sl_err_set(err, SL_ENOMEM, "append events: out of memory") : 0;
}

/* What goes with one flush is in the log as a whole or not at all. It is waited for before the next part is submitted:
 * otherwise it could fail and the next succeed, and a recovery takes what is in the log for the first events of all. */
int sl__event_batch_submit(struct sl__event_batch *b, const struct sl__event_log *to, struct sl_wal_ticket *ticket,
			   struct sl_err *err)
{
	size_t done = 0, n = 0;
	int rc = make_spans(b, err);
	const struct sl_wal_span *spans = (const struct sl_wal_span *)(const void *)b->spans.data;
	while (rc == 0 && done < b->n) {
		if (done > 0) {
			rc = sl_wal_wait(to->log, ticket, SL_UNLIMITED, err);
			if (rc != 0)
				return rc;
			to->on_part(done, ticket->sequence, to->ctx);
		}
		rc = sl_wal_submit_many(to->log, spans + done, b->n - done, ticket, &n, err);
		done += n;
	}
	return rc;
}

int sl__event_batch_append(struct sl__event_batch *b, const struct sl__event_log *to, uint64_t *last,
			   struct sl_err *err)
{
	struct sl_wal_ticket ticket;
	uint64_t first = 0;
	size_t done = 0;
	int rc;
	if (b->n == 0)
		return 0;
	/* Many flushes: each part is reported when it is durable. */
	if (b->bytes.len > SPLIT_BYTES) {
		rc = sl__event_batch_submit(b, to, &ticket, err);
		if (rc == 0)
			rc = sl_wal_wait(to->log, &ticket, SL_UNLIMITED, err);
		if (rc == 0)
			*last = ticket.sequence;
		return rc;
	}
	rc = make_spans(b, err);
	if (rc != 0)
		return rc;
	rc = sl_wal_append_many(to->log, (const struct sl_wal_span *)(const void *)b->spans.data, b->n, &first, &done,
				err);
	if (rc == 0)
		*last = first + b->n - 1;
	else if (done > 0)
		to->on_part(done, first + done - 1, to->ctx);
	return rc;
}

void sl__event_batch_get(const struct sl__event_batch *b, size_t i, struct sl_event *out)
{
	const struct batch_entry *e = batched_at(b, i);
	*out = e->event;
	out->data = b->bytes.data + e->end - e->event.len; /* the last field of a record */
}
