/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of a request: its record in the audit trail, and the line in the access log. */
#include "server/http/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON as text: one for every change, so it is not made of objects first ---- */

struct text {
	char *text;
	size_t len, cap;
};

static void put(struct text *l, const char *data, size_t n)
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

static void put_text(struct text *l, const char *text)
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

static void put_string(struct text *l, const char *s)
{
	if (is_plain(s)) {
		put(l, "\"", 1);
		put_text(l, s);
		put(l, "\"", 1);
		return;
	}
	json_t *v = json_string(s);
	char *text = v != NULL ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
	put_text(l, text != NULL ? text : "null");
	free(text);
	json_decref(v);
}

static void put_member(struct text *l, const char *name, const char *value)
{
	if (l->len > 0 && l->text != NULL && l->text[l->len - 1] != '{')
		put(l, ",", 1);
	put_string(l, name);
	put(l, ":", 1);
	put_string(l, value);
}

/* The ids of the path and what the query asked. */
static void put_params(struct text *l, const srv_request *r)
{
	const struct srv_endpoint *e = r->match.endpoint;
	put_text(l, ",\"params\":{");
	for (size_t i = 0; i < e->n_params; i++)
		put_member(l, e->params[i], r->match.value[i]);
	for (size_t i = 0; i < r->n_query; i++)
		put_member(l, r->query[i].name, r->query[i].value);
	put(l, "}", 1);
}

void srv_audit_record(srv_request *r, struct sl_audit_record *out)
{
	const struct srv_endpoint *e = r->match.endpoint;
	struct text t = {0};
	put(&t, "{", 1);
	put_member(&t, "route", e->route.path);
	put_params(&t, r);
	put(&t, "}", 2); /* with the NUL */
	*out = (struct sl_audit_record){.via = SL_VIA_HTTP,
					.actor = r->identity.name,
					.address = r->address,
					.action = e->route.audit != NULL ? e->route.audit : e->route.path,
					.request_id = r->id,
					.detail = t.text != NULL ? srv_arena_text(r, t.text) : NULL};
	free(t.text);
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
	const struct srv_access line = {.time_ms = sl__real_ms(&h->env),
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
