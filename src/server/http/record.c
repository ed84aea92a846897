/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of a request: its record in the audit trail, and the line in the access log. */
#include "server/http/internal.h"
#include "server/http/out.h"

void srv_audit_record(srv_request *r, struct sl_audit_record *out)
{
	const struct srv_endpoint *e = r->match.endpoint;
	struct srv_out detail SL_CLEANUP(srv_out_free) = {0};
	srv_out_open(&detail, '{');
	SRV_FIELD(&detail, "route", str, e->route.path);
	/* The ids of the path, and the query. */
	srv_out_begin(&detail, "params", '{');
	for (size_t i = 0; i < e->n_params; i++)
		SRV_FIELD(&detail, e->params[i], str, r->match.value[i]);
	for (size_t i = 0; i < r->n_query; i++)
		SRV_FIELD(&detail, r->query[i].name, str, r->query[i].value);
	srv_out_close(&detail, '}');
	srv_out_close(&detail, '}');
	*out = (struct sl_audit_record){.via = SL_VIA_HTTP,
					.actor = r->identity.name,
					.address = r->address,
					.action = e->route.audit != NULL ? e->route.audit : e->route.path,
					.request_id = r->id,
					.detail = detail.text.failed ? NULL
								     : srv_arena_text(r, sl__buf_str(&detail.text))};
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
	const struct sl_log_field fields[SRV_ACCESS_FIELDS] = {
		{.key = "request_id", .str = r->id},
		{.key = "address", .str = r->address},
		{.key = "actor", .str = r->identity.name},
		{.key = "method", .str = r->method},
		{.key = "path", .str = r->path != NULL ? r->path : ""}, /* the query may hold private data */
		{.key = "status", .kind = SL_LOG_I64, .num = (uint64_t)r->status},
		{.key = "bytes", .kind = SL_LOG_U64, .num = r->answer_len},
		{.key = "us", .kind = SL_LOG_U64, .num = (uint64_t)(now_ns - r->start_ns) / 1000},
	};
	srv_accesslog_add(h->access, sl__real_ms(&h->env), fields);
}
