/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A publish from JSON, in protobuf's mapping: names in camel or snake case, 64-bit numbers as numbers or strings, bytes
 * as base64, enumerations by name or number; null is as if it were not there, and unknown names are ignored.
 */
#include "base/base64.h"
#include "server/ingest/ingest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int is_not(struct sl_err *err, const char *name, const char *what)
{
	return sl_err_set(err, SL_EDATA, "%s: must be %s", name, what);
}

/* NULL also for null. */
static json_t *member_value(const json_t *object, const char *name)
{
	json_t *v = json_object_get(object, name);
	return json_is_null(v) ? NULL : v;
}

/* ---- numbers and bytes ---- */

/* A member that is a number. What is missing leaves its place as it is. */
struct number_field {
	const char *name, *snake; /* snake NULL: the same */
	uint64_t *u64;            /* one of the two */
	int64_t *i64;
	const char *prefix; /* of the name in an error; NULL: none */
};

static int read_numbers(const json_t *object, const struct number_field *fields, size_t n, struct sl_err *err)
{
	for (size_t i = 0; i < n; i++) {
		const struct number_field *f = &fields[i];
		const json_t *v = json_object_get(object, f->name);
		if (v == NULL && f->snake != NULL)
			v = json_object_get(object, f->snake);
		if (v == NULL || json_is_null(v))
			continue;
		if (json_is_integer(v) && (f->i64 != NULL || json_integer_value(v) >= 0)) {
			if (f->u64 != NULL)
				*f->u64 = (uint64_t)json_integer_value(v);
			else
				*f->i64 = json_integer_value(v);
			continue;
		}
		char name[32], *end = NULL;
		const char *text = json_string_value(v), *chars = f->u64 != NULL ? "0123456789" : "-0123456789";
		(void)snprintf(name, sizeof(name), "%s%s", f->prefix != NULL ? f->prefix : "", f->name);
		if (text == NULL || text[0] == '\0' || strspn(text, chars) != json_string_length(v))
			return is_not(err, name, f->u64 != NULL ? "a number without a sign" : "a number");
		errno = 0;
		if (f->u64 != NULL)
			*f->u64 = strtoull(text, &end, 10);
		else
			*f->i64 = strtoll(text, &end, 10);
		if (*end != '\0' || errno != 0)
			return is_not(err, name, "a number of 64 bits");
	}
	return 0;
}

static int read_base64(struct srv_publish *p, const json_t *v, const char *name, struct srv_text *out,
		       struct sl_err *err)
{
	size_t n = json_string_length(v);
	*out = (struct srv_text){"", 0};
	if (v == NULL)
		return 0;
	if (!json_is_string(v))
		return is_not(err, name, "bytes in base64");
	char *bytes = srv_publish_alloc(p, SL__BASE64_DECODED_MAX(n));
	if (bytes == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for an event");
	ssize_t got = sl__base64_decode(bytes, json_string_value(v), n);
	if (got < 0)
		return is_not(err, name, "bytes in base64");
	*out = (struct srv_text){bytes, (size_t)got};
	return 0;
}

/* ---- messages ---- */

/* A name or a number; one that no store can keep is 0, and srv_publish_check refuses it. */
static int read_event_type(const json_t *event, enum sl_event_type *out, struct sl_err *err)
{
	const char *text = json_string_value(json_object_get(event, "type"));
	int64_t number = 0;
	if (text == NULL) {
		int rc = read_numbers(event, &(struct number_field){"type", .i64 = &number}, 1, err);
		*out = number > 0 && number <= INT32_MAX ? (enum sl_event_type)number : (enum sl_event_type)0;
		return rc;
	}
	for (enum sl_event_type type = SL_EVENT_STARTED; type <= SL_EVENT_LOG; type++)
		if (strcasecmp(text, sl_event_type_name(type)) == 0) {
			*out = type;
			return 0;
		}
	return is_not(err, "type", "a type of event");
}

struct token {
	uint64_t job_id;
	int32_t attempt;
	struct sl_claim_id claim;
};

static int read_token(struct srv_publish *p, const json_t *v, struct token *out, struct sl_err *err)
{
	int64_t attempt = 0;
	struct srv_text claim;
	if (v == NULL)
		return 0;
	if (!json_is_object(v))
		return is_not(err, "token", "an object");
	*out = (struct token){0};
	const struct number_field numbers[] = {
		{"jobId", "job_id", .u64 = &out->job_id, .prefix = "token."},
		{"attempt", .i64 = &attempt, .prefix = "token."},
	};
	int rc = read_numbers(v, numbers, SL_COUNT(numbers), err);
	if (rc != 0)
		return rc;
	rc = read_base64(p, member_value(v, "claim"), "token.claim", &claim, err);
	if (rc != 0)
		return rc;
	if (attempt < INT32_MIN || attempt > INT32_MAX)
		return is_not(err, "token.attempt", "a number of 32 bits");
	out->attempt = (int32_t)attempt;
	if (claim.len == sizeof(out->claim))
		memcpy(&out->claim, claim.at, claim.len);
	return claim.len == 0 || claim.len == sizeof(out->claim) ? 0 : is_not(err, "token.claim", "16 bytes");
}

static int read_event(struct srv_publish *p, const json_t *v, struct token token, struct sl_event_row *e,
		      struct sl_err *err)
{
	const json_t *partial = member_value(v, "partial");
	uint64_t position; /* it is checked, and not kept */
	struct srv_text data;
	if (v == NULL)
		return 0;
	if (!json_is_object(v))
		return is_not(err, "event", "an object");
	if (partial != NULL && !json_is_boolean(partial))
		return is_not(err, "partial", "true or false");
	int rc = read_event_type(v, &e->type, err);
	if (rc != 0)
		return rc;
	rc = read_token(p, member_value(v, "token"), &token, err);
	if (rc != 0)
		return rc;
	const struct number_field numbers[] = {{"tsMs", "ts_ms", .i64 = &e->ts_ms}, {"position", .u64 = &position}};
	rc = read_numbers(v, numbers, SL_COUNT(numbers), err);
	if (rc != 0)
		return rc;
	rc = read_base64(p, member_value(v, "data"), "data", &data, err);
	if (rc != 0)
		return rc;
	e->payload = data.at;
	e->payload_len = data.len;
	e->job_id = token.job_id;
	e->attempt = token.job_id != 0 ? token.attempt : 0;
	e->claim = token.claim;
	e->partial = json_is_true(partial);
	return 0;
}

static int read_events(struct srv_publish *p, const json_t *list, struct token token, struct sl_err *err)
{
	size_t n = json_array_size(list);
	if (list != NULL && !json_is_array(list))
		return is_not(err, "events", "a list");
	if (n > SRV_PUBLISH_EVENTS)
		return sl_err_set(err, SL_ETOOBIG, "more than %d events", SRV_PUBLISH_EVENTS);
	p->rows = srv_publish_alloc(p, n * sizeof(*p->rows));
	if (p->rows == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for %zu events", n);
	for (; p->n < n; p->n++) {
		const json_t *v = json_array_get(list, p->n);
		struct sl_event_row *e = &p->rows[p->n];
		*e = (struct sl_event_row){.stream = p->stream, .incarnation = p->incarnation, .payload = ""};
		if (!json_is_object(v))
			return is_not(err, "events", "a list of objects");
		const struct number_field numbers[] = {{"sequence", .u64 = &e->sequence}, {"crc", .u64 = &e->crc}};
		int rc = read_numbers(v, numbers, SL_COUNT(numbers), err);
		if (rc != 0)
			return rc;
		rc = read_event(p, member_value(v, "event"), token, e, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int read_skipped(struct srv_publish *p, const json_t *list, struct sl_err *err)
{
	size_t n = json_array_size(list);
	if (list != NULL && !json_is_array(list))
		return is_not(err, "skipped", "a list");
	p->skipped = srv_publish_alloc(p, n * sizeof(*p->skipped));
	if (p->skipped == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for %zu ranges", n);
	for (; p->n_skipped < n; p->n_skipped++) {
		struct sl_wal_range *range = &p->skipped[p->n_skipped];
		*range = (struct sl_wal_range){0};
		const struct number_field numbers[] = {{"first", .u64 = &range->first, .prefix = "skipped."},
						       {"last", .u64 = &range->last, .prefix = "skipped."}};
		int rc = read_numbers(json_array_get(list, p->n_skipped), numbers, SL_COUNT(numbers), err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int read_publish(struct srv_publish *p, const json_t *root, struct sl_err *err)
{
	const json_t *stream = json_object_get(root, "stream");
	uint64_t incarnation = 0;
	struct token token = {0};
	if (!json_is_object(root))
		return is_not(err, "the body", "an object");
	/* A NUL in it would end it, and the name would not be what was meant. */
	if (!json_is_string(stream) || json_string_length(stream) >= sizeof(p->stream) ||
	    strlen(json_string_value(stream)) != json_string_length(stream))
		return is_not(err, "stream", "the name of a stream");
	(void)strcpy(p->stream, json_string_value(stream));

	const struct number_field numbers[] = {
		{"incarnation", .u64 = &incarnation},
		{"last", .u64 = &p->last},
		{"after", .u64 = &p->after.sequence},
		{"afterCrc", "after_crc", .u64 = &p->after.crc},
	};
	int rc = read_numbers(root, numbers, SL_COUNT(numbers), err);
	if (rc != 0)
		return rc;
	if (incarnation > UINT32_MAX)
		return is_not(err, "incarnation", "a number of 32 bits");
	p->incarnation = (uint32_t)incarnation;
	p->after.kind = p->after.sequence != 0 ? SL_WAL_MARK_RECORD : SL_WAL_MARK_UNKNOWN;

	rc = read_token(p, member_value(root, "token"), &token, err);
	if (rc != 0)
		return rc;
	rc = read_events(p, member_value(root, "events"), token, err);
	if (rc != 0)
		return rc;
	rc = read_skipped(p, member_value(root, "skipped"), err);
	if (rc != 0)
		return rc;
	return srv_publish_check(p, err);
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
		return sl_err_set(err, SL_EDATA, "the body is not valid JSON: %s at line %d, column %d", why.text,
				  why.line, why.column);
	int rc = read_publish(p, root, err);
	json_decref(root);
	return rc;
}
