/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a publish, and what its answer means.
 *
 * The request is a PublishJobEventsRequest. A record is an encoded JobEvent already, so its bytes go into the message
 * as they are, and only what surrounds them is encoded here. The answer:
 *
 *   200 with application/proto               the mark
 *   422, 400 with the server's own error     refused: the record that it names, or one that the log finds by halving
 *   413                                      the same: a smaller batch may be accepted
 *   409 with code "already_exists"           a conflict: the sender begins a new incarnation
 *   429; 503 with Retry-After                wait for that time
 *   everything else                          retried, without a limit
 *
 * The server's own errors are JSON, as Connect has them: {"code":"invalid_argument","message":…,"refused":"17"}.
 * Proxies on the way answer 400 and 409 as well: that is no reason to park or to stop anything.
 */
#include <jansson.h>
#include <stdlib.h>

#include <events.pb-c.h>

#include "base/varint.h"
#include "jobs/events/http.h"

#define LINE_BYTES 160
#define SECRET_MIN 4 /* a shorter one would hide too much */
#define TARGET_CHARS 32

struct meaning {
	int first, last; /* of the status codes */
	int code;
	const char *text;
};

/* The first that fits counts. */
static const struct meaning meanings[] = {
	{300, 399, SL_ECONFIG, "redirects are not followed; name the URL that it moved to"},
	{401, 401, SL_EACCES, "not authorized; check the token"},
	{403, 403, SL_EACCES, "forbidden; the token needs the role write"},
	{404, 405, SL_ECONFIG, "no Sluice server answers at this URL"},
	{407, 407, SL_EACCES, "the proxy requires a password"},
	{408, 408, SL_EAGAIN, "try again later"},
	{421, 421, SL_ECONFIG, "the server has another store than this log is for"},
	{425, 425, SL_EAGAIN, "try again later"},
	{429, 429, SL_EAGAIN, "too many requests"},
	{400, 499, SL_ECONFIG, "not accepted"},
	{500, 599, SL_EUNAVAIL, "unavailable"},
};

/* ---- the body ---- */

#define KEY(number, wire) ((uint64_t)(number) << 3 | (wire))
enum { VARINT = 0, FIXED64 = 1, BYTES = 2 };

static size_t varint_size(uint64_t v)
{
	size_t n = 1;
	for (; v > 0x7F; v >>= 7)
		n++;
	return n;
}

static void put_wire_number(struct sl__buf *b, uint64_t key, uint64_t v)
{
	if (v == 0)
		return;
	sl__varint_put(b, key);
	sl__varint_put(b, v);
}

static void put_wire_bytes(struct sl__buf *b, uint64_t key, const void *data, size_t n)
{
	sl__varint_put(b, key);
	sl__varint_put(b, n);
	(void)sl__buf_append(b, data, n);
}

int sl__event_http_body(struct sl__buf *out, const struct sl_wal_batch *batch, uint64_t *refused, struct sl_err *err)
{
	for (size_t i = 0; i < batch->n_records; i++) {
		const struct sl_wal_record *r = &batch->records[i];
		struct sl_event event;
		if (sl_event_decode(r->payload, r->payload_len, &event, err) == 0)
			continue;
		*refused = r->sequence;
		if (err != NULL)
			err->code = SL_EREFUSED;
		return SL_EREFUSED;
	}
	sl__buf_clear(out);
	put_wire_bytes(out, KEY(2, BYTES), batch->stream, strlen(batch->stream));
	put_wire_number(out, KEY(3, VARINT), batch->incarnation);
	/* LoggedEvent: sequence = 1, crc = 2, event = 3. */
	for (size_t i = 0; i < batch->n_records; i++) {
		const struct sl_wal_record *r = &batch->records[i];
		size_t n = 1 + varint_size(r->sequence) + 1 + 8 + 1 + varint_size(r->payload_len) + r->payload_len;
		sl__varint_put(out, KEY(4, BYTES));
		sl__varint_put(out, n);
		size_t start = out->len;
		put_wire_number(out, KEY(1, VARINT), r->sequence);
		sl__varint_put(out, KEY(2, FIXED64));
		(void)sl__buf_put64(out, r->crc);
		put_wire_bytes(out, KEY(3, BYTES), r->payload, r->payload_len);
		assert(out->failed != 0 || out->len - start == n);
		(void)start;
	}
	/* SequenceRange: first = 1, last = 2. */
	for (size_t i = 0; i < batch->n_skipped; i++) {
		const struct sl_wal_range *r = &batch->skipped[i];
		sl__varint_put(out, KEY(5, BYTES));
		sl__varint_put(out, (r->first != 0 ? 1 + varint_size(r->first) : 0) +
					    (r->last != 0 ? 1 + varint_size(r->last) : 0));
		put_wire_number(out, KEY(1, VARINT), r->first);
		put_wire_number(out, KEY(2, VARINT), r->last);
	}
	put_wire_number(out, KEY(6, VARINT), batch->last_sequence);
	if (batch->after.kind == SL_WAL_MARK_RECORD && batch->after.sequence != 0) {
		put_wire_number(out, KEY(7, VARINT), batch->after.sequence);
		sl__varint_put(out, KEY(8, FIXED64));
		(void)sl__buf_put64(out, batch->after.crc);
	}
	return out->failed != 0 ? sl_err_set(err, SL_ENOMEM, "publish events: out of memory") : 0;
}

/* ---- the answer ---- */

static void hide_secret(char *text, size_t len, const char *secret)
{
	size_t n = secret != NULL ? strlen(secret) : 0;
	if (n < SECRET_MIN)
		return;
	for (char *p = text, *end = text + len; (p = memmem(p, (size_t)(end - p), secret, n)) != NULL; p += n)
		memset(p, '*', n);
}

static bool content_type_is(const struct sl__http_response *r, const char *type)
{
	size_t n = strlen(type);
	return r->type != NULL && strncasecmp(r->type, type, n) == 0 &&
	       (r->type[n] == '\0' || strchr("; \t", r->type[n]));
}

/* An answer that may be an error. */
struct fault {
	struct sl__http_response *response;
	const struct sl__event_http_peer *peer;
	json_t *root;     /* the body; NULL: not JSON */
	const char *code; /* of the server's own errors; NULL: not one of them */
	uint64_t refused;
	char line[LINE_BYTES]; /* its message */
};

static void read_fault(struct fault *f)
{
	struct sl__http_response *r = f->response;
	const struct sl__event_http_peer *peer = f->peer;
	hide_secret(r->body, r->len, peer->token);
	hide_secret(r->body, r->len, peer->password);
	f->root = content_type_is(r, "application/json") ? json_loadb(r->body, r->len, 0, NULL) : NULL;
	char *message = (char *)(uintptr_t)json_string_value(json_object_get(f->root, "message"));
	const json_t *refused = json_object_get(f->root, "refused");
	f->code = json_string_value(json_object_get(f->root, "code"));
	if (json_is_integer(refused))
		f->refused = json_integer_value(refused) > 0 ? (uint64_t)json_integer_value(refused) : 0;
	else if (json_is_string(refused))
		f->refused = strtoull(json_string_value(refused), NULL, 10);
	if (f->code == NULL || message == NULL) {
		(void)sl__http_first_line(f->line, sizeof(f->line), r->body, r->len);
		return;
	}
	/* Searched once more: in the body a secret may have been written with escapes. */
	hide_secret(message, strlen(message), peer->token);
	hide_secret(message, strlen(message), peer->password);
	(void)sl__http_first_line(f->line, sizeof(f->line), message, strlen(message));
}

/* A failure that is retried, and when. */
static int retry_later(const struct fault *f, struct sl_err *err)
{
	static const struct meaning strange = {0, 0, SL_EUNAVAIL, "not an HTTP status"};
	const struct sl__http_response *r = f->response;
	const struct meaning *m = &strange;
	for (size_t i = 0; i < SL_COUNT(meanings) && m == &strange; i++)
		if (r->status >= meanings[i].first && r->status <= meanings[i].last)
			m = &meanings[i];
	bool throttled = r->status == 429 || (r->status == 503 && r->has_retry_after);
	int code = throttled ? SL_EAGAIN : m->code;
	if (r->location != NULL)
		(void)sl_err_set(err, code, "%s: %d to %s: %s", f->peer->shown, r->status, r->location, m->text);
	else
		(void)sl_err_set(err, code, "%s: %d, %s%s%s", f->peer->shown, r->status, m->text,
				 f->line[0] != '\0' ? ": " : "", f->line);
	if (err == NULL)
		return code;
	err->error_class = throttled ? SL_CLASS_THROTTLED : SL_CLASS_FATAL;
	err->retry_after_ms = r->has_retry_after ? r->retry_after_ms : 0;
	return code;
}

static void *pb_alloc(void *ctx, size_t n)
{
	return sl__alloc(ctx, n);
}

static void pb_free(void *ctx, void *p)
{
	sl__free(ctx, p);
}

int sl__event_http_answer(struct sl__http_response *r, const struct sl__event_http_peer *peer,
			  struct sl_wal_reply *reply, const struct sl_env *env, struct sl_err *err)
{
	struct fault f = {.response = r, .peer = peer};
	reply->refused = 0;
	if (r->status == 200) {
		/* The mark. Another server that answers 200 has none, and would look like a receiver that lost
		 * everything. */
		struct sl_env memory = *env;
		ProtobufCAllocator allocator = {pb_alloc, pb_free, &memory};
		Sluice__V1__PublishJobEventsResponse *m = NULL;
		const uint8_t *body = (const uint8_t *)(r->len > 0 ? r->body : "");
		if (content_type_is(r, "application/proto"))
			m = sluice__v1__publish_job_events_response__unpack(&allocator, r->len, body);
		if (m == NULL)
			return sl_err_set(err, SL_EUNAVAIL, "%s: 200, but not from a Sluice server", peer->shown);
		reply->mark = m->mark;
		reply->mark_crc = m->mark_crc;
		reply->mark_kind = m->mark_skipped ? SL_WAL_MARK_SKIPPED : SL_WAL_MARK_RECORD;
		sluice__v1__publish_job_events_response__free_unpacked(m, &allocator);
		return 0;
	}
	read_fault(&f);
	int rc;
	bool invalid = f.code != NULL && strcmp(f.code, "invalid_argument") == 0;
	if (r->status == 413 || ((r->status == 400 || r->status == 422) && invalid)) {
		reply->refused = f.refused;
		rc = sl_err_set(err, SL_EREFUSED, "%s: %d, refused: %s", peer->shown, r->status, f.line);
	} else if (r->status == 409 && f.code != NULL && strcmp(f.code, "already_exists") == 0) {
		rc = sl_err_set(err, SL_ECONFLICT, "%s: %s", peer->shown, f.line);
	} else {
		rc = retry_later(&f, err);
	}
	json_decref(f.root);
	return rc;
}

/* ---- the target ---- */

bool sl__event_http_is_target(const char *text)
{
	return strlen(text) == TARGET_CHARS && strspn(text, "0123456789abcdef") == TARGET_CHARS;
}

int sl__event_http_target(struct sl__http_response *r, const struct sl__event_http_peer *peer, char out[33],
			  struct sl_err *err)
{
	struct fault f = {.response = r, .peer = peer};
	int rc = 0;
	read_fault(&f);
	const char *target = json_string_value(json_object_get(f.root, "target"));
	if (r->status != 200) {
		rc = retry_later(&f, err);
	} else if (target != NULL && sl__event_http_is_target(target)) {
		memcpy(out, target, TARGET_CHARS + 1);
	} else {
		rc = sl_err_set(err, SL_ECONFIG, "%s: no Sluice server answers at this URL", peer->shown);
	}
	json_decref(f.root);
	return rc;
}
