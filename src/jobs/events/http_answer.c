/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an answer to a publish means.
 *
 *   200 with application/proto               the mark
 *   422, 400 with the server's own error     refused: the record that it names, or one that the log finds by halving
 *   413                                      the same: less at once may do
 *   409 with code "already_exists"           a conflict: the sender begins a new incarnation
 *   429; 503 with Retry-After                wait as told
 *   everything else                          tried again, for ever
 *
 * The server's own errors are JSON, as Connect has them: {"code":"invalid_argument","message":…,"refused":"17"}. Other
 * machines on the way say 400 and 409 as well: theirs are no reason to park or to stop anything.
 */
#include <jansson.h>
#include <stdlib.h>

#include <events.pb-c.h>

#include "jobs/events/http.h"

#define LINE_BYTES 160
#define SECRET_MIN 4 /* shorter ones are no secrets, and would hide too much */
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
	{407, 407, SL_EACCES, "the proxy wants a password"},
	{408, 408, SL_EAGAIN, "not now"},
	{421, 421, SL_ECONFIG, "the server has another store than this log is for"},
	{425, 425, SL_EAGAIN, "not now"},
	{429, 429, SL_EAGAIN, "too much at once"},
	{400, 499, SL_ECONFIG, "not taken"},
	{500, 599, SL_EUNAVAIL, "unavailable"},
};

static void hide(char *text, size_t len, const char *secret)
{
	size_t n = secret != NULL ? strlen(secret) : 0;
	if (n < SECRET_MIN)
		return;
	for (char *p = text, *end = text + len; (p = memmem(p, (size_t)(end - p), secret, n)) != NULL; p += n)
		memset(p, '*', n);
}

static bool type_is(const struct sl__http_response *r, const char *type)
{
	size_t n = strlen(type);
	return r->type != NULL && strncasecmp(r->type, type, n) == 0 &&
	       (r->type[n] == '\0' || strchr("; \t", r->type[n]));
}

/* ---- the server's own errors ---- */

struct fault {
	const char *code; /* NULL: not the server's */
	uint64_t refused;
	char line[LINE_BYTES];
};

static uint64_t number_of(const json_t *v)
{
	if (json_is_integer(v))
		return json_integer_value(v) > 0 ? (uint64_t)json_integer_value(v) : 0;
	const char *text = json_string_value(v);
	return text != NULL ? strtoull(text, NULL, 10) : 0;
}

/* root keeps the strings. The message is looked through again: in the body a secret may have been written with escapes.
 */
static void read_fault(const struct sl__http_response *r, json_t *root, const struct sl__event_http_secrets *secrets,
		       struct fault *f)
{
	char *message = (char *)(uintptr_t)json_string_value(json_object_get(root, "message"));
	f->code = json_string_value(json_object_get(root, "code"));
	f->refused = number_of(json_object_get(root, "refused"));
	if (f->code != NULL && message != NULL) {
		hide(message, strlen(message), secrets->token);
		hide(message, strlen(message), secrets->password);
		(void)sl__http_first_line(f->line, sizeof(f->line), message, strlen(message));
	} else {
		(void)sl__http_first_line(f->line, sizeof(f->line), r->body, r->len);
	}
}

static int refused(const struct sl__http_response *r, const struct fault *f, const char *shown,
		   struct sl_wal_reply *reply, struct sl_err *err)
{
	reply->refused = f->refused;
	int rc = sl_err_set(err, SL_EREFUSED, "%s: %d, refused: %s", shown, r->status, f->line);
	if (err != NULL)
		err->error_class = SL_CLASS_POISON;
	return rc;
}

static int again(const struct sl__http_response *r, const char *line, const char *shown, struct sl_err *err)
{
	static const struct meaning strange = {0, 0, SL_EUNAVAIL, "no answer that HTTP knows"};
	const struct meaning *m = &strange;
	for (size_t i = 0; i < SL_COUNT(meanings) && m == &strange; i++)
		if (r->status >= meanings[i].first && r->status <= meanings[i].last)
			m = &meanings[i];
	bool throttled = r->status == 429 || (r->status == 503 && r->has_retry_after);
	int code = throttled ? SL_EAGAIN : m->code;
	if (r->location != NULL)
		(void)sl_err_set(err, code, "%s: %d to %s: %s", shown, r->status, r->location, m->text);
	else
		(void)sl_err_set(err, code, "%s: %d, %s%s%s", shown, r->status, m->text, line[0] != '\0' ? ": " : "",
				 line);
	if (err == NULL)
		return code;
	err->error_class = throttled ? SL_CLASS_THROTTLED : SL_CLASS_FATAL;
	err->retryable = 1;
	err->retry_after_ms = r->has_retry_after ? r->retry_after_ms : 0;
	return code;
}

static int failed(const struct sl__http_response *r, const struct fault *f, const char *shown,
		  struct sl_wal_reply *reply, struct sl_err *err)
{
	bool ours = f->code != NULL && strcmp(f->code, "invalid_argument") == 0;
	if (r->status == 413 || ((r->status == 400 || r->status == 422) && ours))
		return refused(r, f, shown, reply, err);
	if (r->status == 409 && f->code != NULL && strcmp(f->code, "already_exists") == 0)
		return sl_err_set(err, SL_ECONFLICT, "%s: %s", shown, f->line);
	return again(r, f->line, shown, err);
}

/* ---- the mark ---- */

static void *pb_alloc(void *ctx, size_t n)
{
	return sl__alloc(ctx, n);
}

static void pb_free(void *ctx, void *p)
{
	sl__free(ctx, p);
}

/* Whoever else answers 200 on the way has no mark, and would be taken for a receiver that lost everything. */
static int taken(const struct sl__http_response *r, const char *shown, struct sl_wal_reply *reply,
		 const struct sl_env *env, struct sl_err *err)
{
	struct sl_env memory = *env;
	ProtobufCAllocator allocator = {pb_alloc, pb_free, &memory};
	Sluice__V1__PublishJobEventsResponse *m = NULL;
	if (type_is(r, "application/proto"))
		m = sluice__v1__publish_job_events_response__unpack(&allocator, r->len,
								    (const uint8_t *)(r->len > 0 ? r->body : ""));
	if (m == NULL)
		return sl_err_set(err, SL_EUNAVAIL, "%s: 200, but not from a Sluice server", shown);
	reply->mark = m->mark;
	reply->mark_crc = m->mark_crc;
	reply->mark_kind = m->mark_skipped ? SL_WAL_MARK_SKIPPED : SL_WAL_MARK_RECORD;
	sluice__v1__publish_job_events_response__free_unpacked(m, &allocator);
	return 0;
}

int sl__event_http_answer(struct sl__http_response *r, const struct sl__event_http_secrets *secrets, const char *shown,
			  struct sl_wal_reply *reply, const struct sl_env *env, struct sl_err *err)
{
	struct fault f = {.code = NULL};
	reply->refused = 0;
	if (r->status == 200)
		return taken(r, shown, reply, env, err);
	hide(r->body, r->len, secrets->token);
	hide(r->body, r->len, secrets->password);
	json_t *root = type_is(r, "application/json") ? json_loadb(r->body, r->len, 0, NULL) : NULL;
	read_fault(r, root, secrets, &f);
	int rc = failed(r, &f, shown, reply, err);
	json_decref(root);
	return rc;
}

/* ---- the target ---- */

bool sl__event_http_is_target(const char *text)
{
	return strlen(text) == TARGET_CHARS && strspn(text, "0123456789abcdef") == TARGET_CHARS;
}

int sl__event_http_target(struct sl__http_response *r, const struct sl__event_http_secrets *secrets, const char *shown,
			  char out[33], struct sl_err *err)
{
	struct fault f = {.code = NULL};
	hide(r->body, r->len, secrets->token);
	hide(r->body, r->len, secrets->password);
	json_t *root = type_is(r, "application/json") ? json_loadb(r->body, r->len, 0, NULL) : NULL;
	const char *target = json_string_value(json_object_get(root, "target"));
	int rc = 0;
	if (r->status == 200 && target != NULL && sl__event_http_is_target(target))
		memcpy(out, target, TARGET_CHARS + 1);
	else if (r->status == 200)
		rc = sl_err_set(err, SL_ECONFIG, "%s: no Sluice server answers at this URL", shown);
	else {
		read_fault(r, root, secrets, &f);
		rc = again(r, f.line, shown, err);
	}
	json_decref(root);
	return rc;
}
