/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of a request: its record in the audit trail, and the line in the access log. */
#include "base/buf.h"
#include "server/http/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One member of an object that is written as text: every change has one, and building JSON objects costs more. */
static void put_member(struct sl__buf *out, const char *name, const char *value)
{
	const char *const parts[] = {name, value};
	if (out->len > 0 && out->data[out->len - 1] != '{')
		(void)sl__buf_append(out, ",", 1);
	for (size_t i = 0; i < 2; i++) {
		const char *s = parts[i];
		while ((unsigned char)*s >= 0x20 && (unsigned char)*s <= 0x7E && *s != '"' && *s != '\\')
			s++;
		if (*s == '\0') { /* nothing to escape */
			(void)sl__buf_printf(out, "\"%s\"", parts[i]);
		} else {
			json_t *v = json_string(parts[i]);
			char *text = v != NULL ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
			(void)sl__buf_str_append(out, text != NULL ? text : "null");
			free(text);
			json_decref(v);
		}
		if (i == 0)
			(void)sl__buf_append(out, ":", 1);
	}
}

void srv_audit_record(srv_request *r, struct sl_audit_record *out)
{
	const struct srv_endpoint *e = r->match.endpoint;
	struct sl__buf t SL_CLEANUP(sl__buf_fini);
	sl__buf_init(&t, &sl__env_real);
	(void)sl__buf_append(&t, "{", 1);
	put_member(&t, "route", e->route.path);
	/* The ids of the path, and the query. */
	(void)sl__buf_str_append(&t, ",\"params\":{");
	for (size_t i = 0; i < e->n_params; i++)
		put_member(&t, e->params[i], r->match.value[i]);
	for (size_t i = 0; i < r->n_query; i++)
		put_member(&t, r->query[i].name, r->query[i].value);
	(void)sl__buf_str_append(&t, "}}");
	*out = (struct sl_audit_record){.via = SL_VIA_HTTP,
					.actor = r->identity.name,
					.address = r->address,
					.action = e->route.audit != NULL ? e->route.audit : e->route.path,
					.request_id = r->id,
					.detail = t.failed == 0 ? srv_arena_text(r, sl__buf_str(&t)) : NULL};
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
