/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A publish from JSON, in protobuf's mapping: names in camel or snake case, 64-bit numbers as numbers or strings, bytes
 * as base64, enumerations by name or number; null is as if it were not there, and unknown names are ignored.
 */
#include "base/base64.h"
#include "server/ingest/ingest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int bad(struct sl_err *err, const char *name, const char *what)
{
	return sl_err_set(err, SL_EDATA, "%s: not %s", name, what);
}

/* By either name; NULL also for null. */
static json_t *get(const json_t *object, const char *camel, const char *snake)
{
	json_t *v = json_object_get(object, camel);
	v = v != NULL || snake == NULL ? v : json_object_get(object, snake);
	return json_is_null(v) ? NULL : v;
}

static int get_u64(const json_t *v, const char *name, uint64_t *out, struct sl_err *err)
{
	char *end = NULL;
	const char *text = json_string_value(v);
	if (v == NULL)
		return 0;
	if (json_is_integer(v) && json_integer_value(v) >= 0) {
		*out = (uint64_t)json_integer_value(v);
		return 0;
	}
	if (text == NULL || text[0] < '0' || text[0] > '9')
		return bad(err, name, "a number without a sign");
	errno = 0;
	*out = strtoull(text, &end, 10);
	return *end == '\0' && errno == 0 ? 0 : bad(err, name, "a number of 64 bits");
}

static int get_i64(const json_t *v, const char *name, int64_t *out, struct sl_err *err)
{
	char *end = NULL;
	const char *text = json_string_value(v);
	if (v == NULL)
		return 0;
	if (json_is_integer(v)) {
		*out = json_integer_value(v);
		return 0;
	}
	if (text == NULL || strspn(text, "-0123456789") != strlen(text) || text[0] == '\0')
		return bad(err, name, "a number");
	errno = 0;
	*out = strtoll(text, &end, 10);
	return *end == '\0' && errno == 0 ? 0 : bad(err, name, "a number of 64 bits");
}

static int get_bytes(struct srv_publish *p, const json_t *v, const char *name, const void **out, size_t *len,
		     struct sl_err *err)
{
	size_t n = json_string_length(v);
	*out = "";
	*len = 0;
	if (v == NULL)
		return 0;
	if (!json_is_string(v))
		return bad(err, name, "bytes in base64");
	uint8_t *bytes = srv_publish_alloc(p, SL__BASE64_DECODED_MAX(n));
	if (bytes == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for an event");
	ssize_t got = sl__base64_decode(bytes, json_string_value(v), n);
	if (got < 0)
		return bad(err, name, "bytes in base64");
	*out = bytes;
	*len = (size_t)got;
	return 0;
}

/* ---- messages ---- */

static int get_type(const json_t *v, int32_t *out, struct sl_err *err)
{
	const char *text = json_string_value(v);
	int64_t number = 0;
	if (text == NULL) {
		int rc = get_i64(v, "type", &number, err);
		*out = number > 0 && number <= INT32_MAX ? (int32_t)number : 0;
		return rc;
	}
	for (int type = SL_EVENT_STARTED; type <= SL_EVENT_LOG; type++)
		if (strcasecmp(text, sl_event_type_name(type)) == 0) {
			*out = type;
			return 0;
		}
	return bad(err, "type", "a type of event");
}

struct token {
	uint64_t job_id;
	int32_t attempt;
	struct sl_claim_id claim;
};

static int get_token(struct srv_publish *p, const json_t *v, struct token *out, struct sl_err *err)
{
	int64_t attempt = 0;
	const void *claim;
	size_t n;
	if (v == NULL)
		return 0;
	if (!json_is_object(v))
		return bad(err, "token", "an object");
	*out = (struct token){0};
	int rc = get_u64(get(v, "jobId", "job_id"), "token.jobId", &out->job_id, err);
	rc = rc != 0 ? rc : get_i64(get(v, "attempt", NULL), "token.attempt", &attempt, err);
	rc = rc != 0 ? rc : get_bytes(p, get(v, "claim", NULL), "token.claim", &claim, &n, err);
	if (rc != 0)
		return rc;
	if (attempt < INT32_MIN || attempt > INT32_MAX)
		return bad(err, "token.attempt", "a number of 32 bits");
	out->attempt = (int32_t)attempt;
	if (n == sizeof(out->claim))
		memcpy(&out->claim, claim, n);
	return n == 0 || n == sizeof(out->claim) ? 0 : bad(err, "token.claim", "16 bytes");
}

static int get_event(struct srv_publish *p, const json_t *v, struct token token, struct sl_event_row *e,
		     struct sl_err *err)
{
	const json_t *partial = get(v, "partial", NULL);
	uint64_t position = 0;
	if (v == NULL)
		return 0;
	if (!json_is_object(v) || (partial != NULL && !json_is_boolean(partial)))
		return bad(err, json_is_object(v) ? "partial" : "event",
			   json_is_object(v) ? "true or false" : "an object");
	int rc = get_type(get(v, "type", NULL), &e->type, err);
	rc = rc != 0 ? rc : get_token(p, get(v, "token", NULL), &token, err);
	rc = rc != 0 ? rc : get_i64(get(v, "tsMs", "ts_ms"), "tsMs", &e->ts_ms, err);
	rc = rc != 0 ? rc : get_u64(get(v, "position", NULL), "position", &position, err);
	rc = rc != 0 ? rc : get_bytes(p, get(v, "data", NULL), "data", &e->payload, &e->payload_len, err);
	e->job_id = token.job_id;
	e->attempt = token.job_id != 0 ? token.attempt : 0;
	e->claim = token.claim;
	e->partial = json_is_true(partial);
	return rc;
}

static int get_events(struct srv_publish *p, const json_t *list, struct token token, struct sl_err *err)
{
	size_t n = json_array_size(list);
	if (list != NULL && !json_is_array(list))
		return bad(err, "events", "a list");
	if (n > SRV_PUBLISH_EVENTS)
		return sl_err_set(err, SL_ETOOBIG, "more than %d events", SRV_PUBLISH_EVENTS);
	p->rows = srv_publish_alloc(p, n * sizeof(*p->rows));
	if (p->rows == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for %zu events", n);
	for (; p->n < n; p->n++) {
		const json_t *v = json_array_get(list, p->n);
		struct sl_event_row *e = &p->rows[p->n];
		*e = (struct sl_event_row){.stream = p->stream, .incarnation = p->incarnation, .payload = ""};
		if (!json_is_object(v))
			return bad(err, "events", "a list of objects");
		int rc = get_u64(get(v, "sequence", NULL), "sequence", &e->sequence, err);
		rc = rc != 0 ? rc : get_u64(get(v, "crc", NULL), "crc", &e->crc, err);
		rc = rc != 0 ? rc : get_event(p, get(v, "event", NULL), token, e, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int get_skipped(struct srv_publish *p, const json_t *list, struct sl_err *err)
{
	size_t n = json_array_size(list);
	if (list != NULL && !json_is_array(list))
		return bad(err, "skipped", "a list");
	p->skipped = srv_publish_alloc(p, n * sizeof(*p->skipped));
	if (p->skipped == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for %zu ranges", n);
	for (; p->n_skipped < n; p->n_skipped++) {
		const json_t *v = json_array_get(list, p->n_skipped);
		struct sl_wal_range *range = &p->skipped[p->n_skipped];
		*range = (struct sl_wal_range){0};
		int rc = get_u64(get(v, "first", NULL), "skipped.first", &range->first, err);
		rc = rc != 0 ? rc : get_u64(get(v, "last", NULL), "skipped.last", &range->last, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int take_object(struct srv_publish *p, const json_t *root, struct sl_err *err)
{
	const json_t *stream = get(root, "stream", NULL);
	uint64_t incarnation = 0;
	struct token token = {0};
	if (!json_is_object(root))
		return bad(err, "the body", "an object");
	if (!json_is_string(stream) || json_string_length(stream) >= sizeof(p->stream))
		return bad(err, "stream", "the name of a stream");
	/* A NUL in it ends it, and the name is not what was meant. */
	if (strlen(json_string_value(stream)) != json_string_length(stream))
		return bad(err, "stream", "the name of a stream");
	(void)strcpy(p->stream, json_string_value(stream));
	int rc = get_u64(get(root, "incarnation", NULL), "incarnation", &incarnation, err);
	if (rc == 0 && incarnation > UINT32_MAX)
		rc = bad(err, "incarnation", "a number of 32 bits");
	p->incarnation = (uint32_t)incarnation;
	rc = rc != 0 ? rc : get_u64(get(root, "last", NULL), "last", &p->last, err);
	rc = rc != 0 ? rc : get_u64(get(root, "after", NULL), "after", &p->after.sequence, err);
	rc = rc != 0 ? rc : get_u64(get(root, "afterCrc", "after_crc"), "afterCrc", &p->after.crc, err);
	p->after.kind = p->after.sequence != 0 ? SL_WAL_MARK_RECORD : SL_WAL_MARK_UNKNOWN;
	rc = rc != 0 ? rc : get_token(p, get(root, "token", NULL), &token, err);
	rc = rc != 0 ? rc : get_events(p, get(root, "events", NULL), token, err);
	rc = rc != 0 ? rc : get_skipped(p, get(root, "skipped", NULL), err);
	return rc != 0 ? rc : srv_publish_check(p, err);
}

int srv_publish_json(struct srv_publish *p, const void *body, size_t len, struct sl_err *err)
{
	json_error_t why;
	if (len > SRV_PUBLISH_JSON_BYTES)
		return sl_err_set(err, SL_ETOOBIG, "JSON of more than %zu bytes; send protobuf",
				  SRV_PUBLISH_JSON_BYTES);
	if (srv_json_cost(body, len) > SRV_JSON_COST_MAX)
		return sl_err_set(err, SL_ETOOBIG, "the body has too many JSON values; send protobuf, or fewer events");
	json_t *root = json_loadb(body, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
	if (root == NULL)
		return sl_err_set(err, SL_EDATA, "the body is not JSON: %s at line %d, column %d", why.text, why.line,
				  why.column);
	int rc = take_object(p, root, err);
	json_decref(root);
	return rc;
}
