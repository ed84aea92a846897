/* SPDX-License-Identifier: Apache-2.0 */
/* Answers: how each kind is made, and how it reaches the network thread. */
#include "server/http/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void srv_header_add(struct MHD_Response *response, const char *name, const char *value)
{
	if (response != NULL)
		MHD_add_response_header(response, name, value);
}

struct MHD_Response *srv_response_of(const void *data, size_t len, enum MHD_ResponseMemoryMode mode)
{
	return MHD_create_response_from_buffer(len, (void *)(uintptr_t)data, mode);
}

void srv_set_header(srv_request *r, const char *name, const char *value)
{
	char *n = srv_arena_text(r, name), *v = srv_arena_text(r, value);
	if (r->n_out == SRV_MAX_OUT || n == NULL || v == NULL)
		return;
	r->out[r->n_out++] = (struct pair){.name = n, .value = v};
}

static bool has_out(const srv_request *r, const char *name)
{
	for (size_t i = 0; i < r->n_out; i++)
		if (strcasecmp(r->out[i].name, name) == 0)
			return true;
	return false;
}

void srv_retry_after(srv_request *r, int64_t ms)
{
	char text[24];
	snprintf(text, sizeof(text), "%lld", (long long)(ms <= 1000 ? 1 : (ms + 999) / 1000));
	srv_set_header(r, "Retry-After", text);
}

/* The page and its modules come from here and nowhere else, and no site may frame it. */
#define PAGE_POLICY                                                                                                    \
	"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "             \
	"connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
#define DATA_POLICY "default-src 'none'; frame-ancestors 'none'"

static void finish_headers(srv_request *r)
{
	const char *type = MHD_get_response_header(r->response, "Content-Type");
	bool page = type != NULL && strncmp(type, "text/html", 9) == 0;
	for (size_t i = 0; i < r->n_out; i++)
		srv_header_add(r->response, r->out[i].name, r->out[i].value);
	srv_header_add(r->response, "X-Request-Id", r->id);
	srv_header_add(r->response, "X-Content-Type-Options", "nosniff");
	srv_header_add(r->response, "Content-Security-Policy", page ? PAGE_POLICY : DATA_POLICY);
	srv_header_add(r->response, "Cross-Origin-Resource-Policy", "same-origin");
	if (page) {
		srv_header_add(r->response, "Referrer-Policy", "no-referrer");
		srv_header_add(r->response, "Cross-Origin-Opener-Policy", "same-origin");
	}
}

/* The later one of this thread and the suspending thread resumes. */
static void leave_with_answer(srv_request *r, bool locked)
{
	unsigned old = atomic_fetch_or(&r->state, R_ANSWERED);
	if (locked)
		pthread_mutex_unlock(&r->later_mu);
	if ((old & R_SUSPENDED) != 0 && (old & R_ABANDONED) == 0)
		srv_resume(r, false);
	srv_request_unref(r);
}

void srv_answer_leave(srv_request *r)
{
	if (r->response != NULL)
		finish_headers(r);
	leave_with_answer(r, false);
}

/* The answer's reference goes; the caller's r is gone. */
void srv_answer(srv_request *r, int status, struct MHD_Response *response, size_t len)
{
	bool later = r->later;
	if (later)
		pthread_mutex_lock(&r->later_mu); /* a gone that runs elsewhere ends first */
	r->response = response;
	r->status = response != NULL ? status : 500;
	r->answer_len = len;
	r->ready = true;
	if (r->together != NULL)
		return; /* the rest when it leaves: the first are on their way while the last are finished */
	if (response != NULL)
		finish_headers(r);
	leave_with_answer(r, later);
}

/* Small answers are not counted: connections are, and each has one. */
#define COUNTED_BYTES ((size_t)64 * 1024)

/* data belongs to the response. An answer that does not fit next to those that wait for their clients is not kept. */
static void answer_buffer(srv_request *r, int status, const char *type, struct MHD_Response *response, size_t len)
{
	srv_http *h = r->h;
	if (response != NULL && len > COUNTED_BYTES) {
		bool full = atomic_fetch_add(&h->answer_bytes, (int64_t)len) + (int64_t)len > h->answers_max;
		/* A change that was made is answered as such. */
		if (full && srv_is_read(r)) {
			atomic_fetch_sub(&h->answer_bytes, (int64_t)len);
			MHD_destroy_response(response);
			char text[256];
			len = (size_t)snprintf(text, sizeof(text),
					       "{\"error\":{\"code\":\"busy\",\"message\":\"too many large answers are "
					       "not read yet\",\"request_id\":\"%s\"}}",
					       r->id);
			response = srv_response_of(text, len, MHD_RESPMEM_MUST_COPY);
			srv_retry_after(r, 1000);
			status = 503;
			type = "application/json";
		} else {
			r->answer_kept = len;
		}
	}
	if (type != NULL)
		srv_header_add(response, "Content-Type", type);
	if (!has_out(r, "Cache-Control"))
		srv_header_add(response, "Cache-Control", "no-store");
	srv_answer(r, status, response, len);
}

void srv_json(srv_request *r, int status, json_t *body)
{
	char *text = body != NULL ? json_dumps(body, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
	size_t n = text != NULL ? strlen(text) : 0;
	json_decref(body);
	answer_buffer(r, status, "application/json",
		      text != NULL ? srv_response_of(text, n, MHD_RESPMEM_MUST_FREE) : NULL, n);
}

void srv_bytes(srv_request *r, int status, const char *type, const void *data, size_t len)
{
	answer_buffer(r, status, type, srv_response_of(data, len, MHD_RESPMEM_MUST_COPY), len);
}

void srv_bytes_own(srv_request *r, int status, const char *type, void *data, size_t len)
{
	struct MHD_Response *response = srv_response_of(data, len, MHD_RESPMEM_MUST_FREE);
	if (response == NULL)
		free(data);
	answer_buffer(r, status, type, response, len);
}

void srv_static(srv_request *r, const struct srv_content *c)
{
	if (c->encoding != NULL && !srv_accepts_coding(srv_header(r, "Accept-Encoding"), c->encoding)) {
		srv_error(r, 406, "not_acceptable", "available with the encoding %s only", c->encoding);
		return;
	}
	bool same = c->etag != NULL && srv_etag_matches(srv_header(r, "If-None-Match"), c->etag);
	size_t len = same ? 0 : c->len;
	struct MHD_Response *response = srv_response_of(same ? "" : c->data, len, MHD_RESPMEM_PERSISTENT);
	srv_header_add(response, "Content-Type", c->type);
	if (c->encoding != NULL) {
		srv_header_add(response, "Content-Encoding", c->encoding);
		srv_header_add(response, "Vary", "Accept-Encoding");
	}
	if (c->etag != NULL)
		srv_header_add(response, "ETag", c->etag);
	if (!has_out(r, "Cache-Control"))
		srv_header_add(response, "Cache-Control", "no-cache");
	srv_answer(r, same ? 304 : c->status != 0 ? c->status : 200, response, len);
}

/* The message may repeat what a client sent, cut anywhere: JSON takes whole characters only. */
static void answer_error(srv_request *r, int status, const char *code, const char *message)
{
	char text[512];
	srv_utf8_copy(text, sizeof(text), message);
	json_t *e = json_pack("{s:{s:s,s:s,s:s}}", "error", "code", code, "message", text, "request_id", r->id);
	srv_json(r, status, e);
}

void srv_error(srv_request *r, int status, const char *code, const char *fmt, ...)
{
	char message[512];
	va_list args;
	va_start(args, fmt);
	vsnprintf(message, sizeof(message), fmt, args);
	va_end(args);
	answer_error(r, status, code, message);
}

static const struct {
	int code, status;
	const char *name;
} statuses[] = {
	{SL_EINVAL, 400, "invalid"},       {SL_EDATA, 400, "bad_data"},
	{SL_ENOENT, 404, "not_found"},     {SL_EEXIST, 409, "exists"},
	{SL_EPENDING, 409, "pending"},     {SL_ECONFLICT, 409, "conflict"},
	{SL_ETOOBIG, 413, "too_big"},      {SL_EFULL, 429, "full"},
	{SL_EUNAVAIL, 503, "unavailable"}, {SL_EAGAIN, 503, "try_again"},
	{SL_EREFUSED, 422, "refused"},     {SL_ETIMEDOUT, 503, "timed_out"},
	{SL_ELOCKED, 503, "locked"},       {SL_ECANCELLED, 503, "cancelled"},
	{SL_EACCES, 403, "forbidden"},     {SL_EUNSUPPORTED, 501, "unsupported"},
};

void srv_fail(srv_request *r, const struct sl_err *err)
{
	int status = 500;
	const char *code = "internal";
	for (size_t i = 0; i < SL_COUNT(statuses); i++)
		if (statuses[i].code == err->code) {
			status = statuses[i].status;
			code = statuses[i].name;
		}
	if (status == 429 || status == 503)
		srv_retry_after(r, err->retry_after_ms);
	answer_error(r, status, code, err->msg[0] != '\0' ? err->msg : sl_err_text(err->code));
}
