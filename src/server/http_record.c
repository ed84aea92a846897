/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of a request: the line in the audit log, and the line in the access log. */
#include "http_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void time_text(int64_t ms, char out[32])
{
	time_t s = (time_t)(ms / 1000);
	struct tm tm;
	gmtime_r(&s, &tm);
	size_t n = strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out + n, 32 - n, ".%03dZ", (int)(ms % 1000));
}

/* ---- a line as text: one for every change, so it is not made of objects first ---- */

static void put(struct srv_lines *l, const char *data, size_t n)
{
	if (l->text == NULL && l->cap != 0)
		return; /* there was no memory */
	if (n > l->cap - l->len) {
		size_t cap = 2 * l->cap + n + 1024;
		char *text = realloc(l->text, cap);
		if (text == NULL)
			free(l->text);
		l->text = text;
		l->cap = cap;
		if (text == NULL)
			return;
	}
	memcpy(l->text + l->len, data, n);
	l->len += n;
}

static void put_text(struct srv_lines *l, const char *text)
{
	put(l, text, strlen(text));
}

static bool is_plain(const char *s)
{
	for (; *s != '\0'; s++)
		if ((unsigned char)*s < 0x20 || (unsigned char)*s > 0x7E || *s == '"' || *s == '\\')
			return false;
	return true;
}

static void put_json(struct srv_lines *l, json_t *v)
{
	char *text = v != NULL ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
	put_text(l, text != NULL ? text : "null");
	free(text);
}

static void put_string(struct srv_lines *l, const char *s)
{
	if (is_plain(s)) {
		put(l, "\"", 1);
		put_text(l, s);
		put(l, "\"", 1);
		return;
	}
	json_t *v = json_string(s);
	put_json(l, v);
	json_decref(v);
}

static void put_member(struct srv_lines *l, const char *name, const char *value)
{
	if (l->len > 0 && l->text != NULL && l->text[l->len - 1] != '{')
		put(l, ",", 1);
	put_string(l, name);
	put(l, ":", 1);
	put_string(l, value);
}

/* The ids of the path and what the query asked. */
static void put_params(struct srv_lines *l, const srv_request *r)
{
	const struct srv_endpoint *e = r->match.endpoint;
	put_text(l, ",\"params\":{");
	for (size_t i = 0; i < e->n_params; i++)
		put_member(l, e->params[i], r->match.value[i]);
	for (size_t i = 0; i < r->n_query; i++)
		put_member(l, r->query[i].name, r->query[i].value);
	put(l, "}", 1);
}

static void put_line(struct srv_lines *l, const srv_request *r)
{
	const struct srv_endpoint *e = r->match.endpoint;
	char when[32], status[32];
	time_text(srv_real_ms(r->h), when);
	snprintf(status, sizeof status, ",\"status\":%d", r->status);
	put(l, "{", 1);
	put_member(l, "time", when);
	put_member(l, "actor", r->identity.name);
	put_member(l, "role", srv_role_name(r->identity.role));
	put_member(l, "address", r->address);
	put_member(l, "action", e->route.audit);
	put_member(l, "route", e->route.path);
	put_params(l, r);
	put_text(l, status);
	put_member(l, "request_id", r->id);
	if (r->detail != NULL) {
		put_text(l, ",\"detail\":");
		put_json(l, r->detail);
	}
	put(l, "}\n", 2);
}

void srv_record_lines(srv_http *h, struct srv_lines *l)
{
	struct sl_err err = SL_ERR_INIT;
	int rc = l->text != NULL ? srv_audit_put(h->audit, l->text, l->len, &err)
		 : l->cap != 0   ? sl_err_set(&err, SL_ENOMEM, "audit log: out of memory")
				 : 0;
	if (rc != 0)
		srv_log(h, SL_LOG_ERROR, "a change is not in the audit log, and further ones are refused", "error",
			err.msg);
	free(l->text);
}

/* Before the answer leaves. An address that is gone (a handler that outlived the server's stop) is left out. */
void srv_record_audit(srv_request *r)
{
	const struct srv_endpoint *e = r->match.endpoint;
	struct srv_lines own = {0};
	if (r->h->audit == NULL || e == NULL || e->route.audit == NULL)
		return;
	put_line(r->together != NULL ? &r->together->lines : &own, r);
	if (r->together == NULL)
		srv_record_lines(r->h, &own);
}

/* When the answer is out, or the client gone. */
void srv_record_access(srv_request *r, int64_t now_ns)
{
	srv_http *h = r->h;
	srv_metrics_count(h, r->match.endpoint, r->status, now_ns - r->start_ns, r->is_stream);
	if (r->status == 401 || r->status == 403)
		sl_counter_add(h->denied, 1);
	if (h->access == NULL)
		return;
	const struct srv_access line = {.time_ms = srv_real_ms(h),
					.request_id = r->id,
					.address = r->address,
					.actor = r->identity.name,
					.method = r->method,
					.path = r->path != NULL ? r->path : "",
					.status = r->status,
					.bytes = r->answer_len,
					.micros = (uint64_t)(now_ns - r->start_ns) / 1000};
	srv_accesslog_add(h->access, &line);
}
