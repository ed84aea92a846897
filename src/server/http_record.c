/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of a request: the line in the audit log, and the line in the access log. */
#include "http_internal.h"

#include <stdio.h>
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

/* The ids of the path and what the query asked. */
static json_t *params_json(const srv_request *r)
{
	json_t *all = json_object();
	const struct srv_endpoint *e = r->match.endpoint;
	for (size_t i = 0; i < e->n_params; i++)
		json_object_set_new(all, e->params[i], json_string(r->match.value[i]));
	for (size_t i = 0; i < r->n_query; i++)
		json_object_set_new(all, r->query[i].name, json_string(r->query[i].value));
	return all;
}

/* Before the answer leaves. An address that is gone (a handler that outlived the server's stop) is left out. */
void srv_record_audit(srv_request *r)
{
	srv_http *h = r->h;
	const struct srv_endpoint *e = r->match.endpoint;
	struct sl_err err = SL_ERR_INIT;
	char when[32];
	if (h->audit == NULL || e == NULL || e->route.audit == NULL)
		return;
	time_text(srv_real_ms(h), when);
	json_t *line =
		json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:o,s:i,s:s}", "time", when, "actor", r->identity.name, "role",
			  srv_role_name(r->identity.role), "address", r->address, "action", e->route.audit, "route",
			  e->route.path, "params", params_json(r), "status", r->status, "request_id", r->id);
	if (line != NULL && r->detail != NULL)
		json_object_set(line, "detail", r->detail);
	if (srv_audit_write(h->audit, line, &err) != 0)
		srv_log(h, SL_LOG_ERROR, "a change is not in the audit log, and further ones are refused", "error",
			err.msg);
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
