/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job events as bytes. Packing is protobuf-c's; reading is done here, because a decoded event must point into its
 * record instead of copying it, and because bytes of any origin come in: the fields of a message are walked over, known
 * ones are taken (the last one of a number wins), unknown ones are passed over, and what does not add up is refused.
 */
#include <events.pb-c.h>

#include "jobs/events/events.h"

#define CLAIM_BYTES sizeof(struct sl_claim_id)

_Static_assert((int)SL_EVENT_STARTED == SLUICE__V1__JOB_EVENT__TYPE__STARTED &&
		       (int)SL_EVENT_STDOUT == SLUICE__V1__JOB_EVENT__TYPE__STDOUT &&
		       (int)SL_EVENT_STDERR == SLUICE__V1__JOB_EVENT__TYPE__STDERR &&
		       (int)SL_EVENT_PROGRESS == SLUICE__V1__JOB_EVENT__TYPE__PROGRESS &&
		       (int)SL_EVENT_EXITED == SLUICE__V1__JOB_EVENT__TYPE__EXITED &&
		       (int)SL_EVENT_ERROR == SLUICE__V1__JOB_EVENT__TYPE__ERROR &&
		       (int)SL_EVENT_LOG == SLUICE__V1__JOB_EVENT__TYPE__LOG,
	       "the header and the protocol number the types alike");

const char *sl_event_type_name(int type)
{
	static const char *const names[] = {"unknown",  "started", "stdout", "stderr",
					    "progress", "exited",  "error",  "log"};
	return type > 0 && (size_t)type < SL_COUNT(names) ? names[type] : names[0];
}

/* ---- encoding ---- */

static bool claim_is_empty(const struct sl_claim_id *claim)
{
	static const struct sl_claim_id none;
	return memcmp(claim, &none, sizeof(none)) == 0;
}

/* The message borrows everything from event; the casts take const away because protobuf-c has no const, and packing
 * only reads. */
static void as_message(const struct sl_event *event, Sluice__V1__TaskToken *token, Sluice__V1__JobEvent *out)
{
	union {
		const void *in;
		uint8_t *out;
	} claim = {event->claim.bytes}, data = {event->data};
	sluice__v1__task_token__init(token);
	sluice__v1__job_event__init(out);
	token->job_id = event->job_id;
	token->attempt = event->attempt;
	if (!claim_is_empty(&event->claim))
		token->claim = (ProtobufCBinaryData){CLAIM_BYTES, claim.out};
	out->type = (Sluice__V1__JobEvent__Type)event->type;
	if (event->job_id != 0 || event->attempt != 0 || token->claim.len != 0)
		out->token = token;
	out->ts_ms = event->ts_ms;
	out->position = event->position;
	out->partial = event->partial != 0;
	out->data = (ProtobufCBinaryData){event->len, data.out};
}

int sl__event_pack(struct sl__buf *out, const struct sl_event *event, struct sl_err *err)
{
	Sluice__V1__TaskToken token;
	Sluice__V1__JobEvent message;
	if (event->type < 1)
		return sl_err_set(err, SL_EINVAL, "type: %d is not one of enum sl_event_type", event->type);
	as_message(event, &token, &message);
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

static bool fail(struct reader *r, const char *why)
{
	r->bad = why;
	return false;
}

static bool get_varint(struct reader *r, uint64_t *out)
{
	uint64_t v = 0;
	for (unsigned shift = 0; shift < 64; shift += 7) {
		if (r->at == r->end)
			return fail(r, "a number is cut off");
		uint8_t byte = *r->at++;
		if (shift == 63 && byte > 1)
			break;
		v |= (uint64_t)(byte & 0x7F) << shift;
		if ((byte & 0x80) == 0) {
			*out = v;
			return true;
		}
	}
	return fail(r, "a number is longer than 64 bits");
}

static bool get_bytes(struct reader *r, size_t n, struct field *f)
{
	if ((size_t)(r->end - r->at) < n)
		return fail(r, "a field is cut off");
	f->bytes = r->at;
	f->len = n;
	r->at += n;
	return true;
}

/* false at the end of the message, and when it is bad. */
static bool next_field(struct reader *r, struct field *f)
{
	uint64_t key, n = 0;
	if (r->bad != NULL || r->at == r->end || !get_varint(r, &key))
		return false;
	if (key >> 3 == 0 || key >> 3 > 0x1FFFFFFF)
		return fail(r, "a field has no valid number");
	*f = (struct field){.number = (uint32_t)(key >> 3), .wire = (enum wire)(key & 7)};
	switch (f->wire) {
	case WIRE_VARINT:
		return get_varint(r, &f->value);
	case WIRE_64:
		return get_bytes(r, 8, f);
	case WIRE_32:
		return get_bytes(r, 4, f);
	case WIRE_BYTES:
		if (!get_varint(r, &n))
			return false;
		return n <= SIZE_MAX ? get_bytes(r, (size_t)n, f) : fail(r, "a field is cut off");
	}
	return fail(r, "a field has an unknown wire type");
}

/* Is it this field? Under its number another wire type is no message of ours. */
static bool is(struct reader *r, const struct field *f, uint32_t number, enum wire wire)
{
	if (f->number != number)
		return false;
	return f->wire == wire || fail(r, "a field has another wire type than in JobEvent");
}

static void take_token(struct reader *outer, const struct field *f, struct sl_event *out)
{
	struct reader r = {f->bytes, f->bytes + f->len, NULL};
	struct field x;
	while (next_field(&r, &x)) {
		if (is(&r, &x, 1, WIRE_VARINT)) {
			out->job_id = x.value;
		} else if (is(&r, &x, 2, WIRE_VARINT)) {
			if ((int64_t)x.value < INT32_MIN || (int64_t)x.value > INT32_MAX)
				(void)fail(&r, "the attempt is out of range");
			out->attempt = (int32_t)(int64_t)x.value;
		} else if (is(&r, &x, 3, WIRE_BYTES)) {
			if (x.len == CLAIM_BYTES)
				memcpy(out->claim.bytes, x.bytes, CLAIM_BYTES);
			else if (x.len == 0)
				out->claim = (struct sl_claim_id){{0}};
			else
				(void)fail(&r, "the claim is not 16 bytes long");
		}
	}
	if (r.bad != NULL)
		outer->bad = r.bad;
}

static void take_field(struct reader *r, const struct field *f, struct sl_event *out)
{
	if (is(r, f, 1, WIRE_VARINT)) {
		if (f->value > INT32_MAX)
			(void)fail(r, "the type is out of range");
		out->type = (int)(f->value & INT32_MAX);
	} else if (is(r, f, 2, WIRE_BYTES)) {
		take_token(r, f, out);
	} else if (is(r, f, 3, WIRE_VARINT)) {
		out->ts_ms = (int64_t)f->value;
	} else if (is(r, f, 4, WIRE_VARINT)) {
		out->position = f->value;
	} else if (is(r, f, 5, WIRE_VARINT)) {
		out->partial = f->value != 0;
	} else if (is(r, f, 6, WIRE_BYTES)) {
		out->data = f->bytes;
		out->len = f->len;
	}
}

int sl_event_decode(const void *record, size_t len, struct sl_event *out, struct sl_err *err)
{
	const uint8_t *bytes = record != NULL ? record : (const uint8_t *)"";
	struct reader r = {bytes, bytes + len, NULL};
	struct sl_event event = {.data = bytes};
	struct field f;
	while (next_field(&r, &f))
		take_field(&r, &f, &event);
	if (r.bad == NULL && event.type < 1)
		r.bad = "it has no type";
	if (r.bad != NULL) {
		int rc = sl_err_set(err, SL_EDATA, "not a JobEvent: %s", r.bad);
		if (err != NULL)
			err->error_class = SL_CLASS_POISON;
		return rc;
	}
	*out = event;
	return 0;
}
