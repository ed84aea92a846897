/* SPDX-License-Identifier: Apache-2.0 */
/* Changes and their records in the audit trail: no record, no change. And the trail itself, to read. */
#include "server/api/api.h"

#include <inttypes.h>
#include <stdio.h>

sl_jobs *srv_changes_open(const struct srv_core *core, const struct sl_audit_record *records, size_t n,
			  struct sl_err *err)
{
	const struct sl_jobs_opts opts = {
		SL_JOBS_OPTS_INIT,    .env = core->env, .store = core->store, .notify = core->notify,
		.types = core->types, .audit = records, .n_audit = n};
	sl_jobs *jobs;
	return sl_jobs_open(&jobs, &opts, err) == 0 ? jobs : NULL;
}

bool srv_change_begin(srv_request *r, const struct srv_core *core, struct srv_change *c)
{
	struct sl_err err = SL_ERR_INIT;
	srv_audit_record(r, &c->record);
	c->jobs = srv_changes_open(core, &c->record, 1, &err);
	if (c->jobs == NULL)
		srv_fail(r, &err);
	return c->jobs != NULL;
}

void srv_change_end(struct srv_change *c)
{
	sl_jobs_close(c->jobs);
}

bool srv_change_record(srv_request *r, const struct srv_core *core)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_audit_record record;
	srv_audit_record(r, &record);
	if (sl_jobs_audit_put(core->jobs, &record, &err) == 0)
		return true;
	(void)!sl_err_wrap(&err, err.code, "nothing was changed, because the change could not be recorded");
	srv_fail(r, &err);
	return false;
}

int srv_record_login(const struct sl_audit_record *record, struct sl_err *err, void *ctx)
{
	const struct srv_core *core = ctx;
	return sl_jobs_audit_put(core->jobs, record, err);
}

/* ---- reading ---- */

struct audit_page {
	struct srv_out out;
	uint64_t last;
	uint32_t n;
};

static int add_record(const struct sl_audit_record *a, void *ctx)
{
	static const char *const ways[] = {"library", "command", "http"};
	struct audit_page *p = ctx;
	struct srv_out *o = &p->out;
	srv_out_open(o, '{');
	SRV_FIELD(o, "id", id, a->id);
	SRV_FIELD(o, "time", time, a->time_ms);
	SRV_FIELD(o, "actor", str, a->actor);
	SRV_FIELD(o, "via", str, (unsigned)a->via < 3 ? ways[a->via] : "unknown");
	SRV_FIELD(o, "address", str, a->address);
	SRV_FIELD(o, "action", str, a->action);
	SRV_FIELD(o, "request_id", str, a->request_id);
	srv_out_begin(o, "chains", '[');
	for (size_t i = 0; i < a->n_chains; i++)
		srv_out_id(o, a->chains[i]);
	srv_out_close(o, ']');
	SRV_FIELD(o, "detail", raw, a->detail);
	p->last = a->id;
	p->n++;
	return srv_out_end(o);
}

void srv_audit_list(srv_request *r, void *ctx)
{
	static const char *const names[] = {"limit", "cursor", NULL};
	struct srv_api *api = ctx;
	struct sl_err err = SL_ERR_INIT;
	struct audit_page p = {0};
	const char *cursor = srv_query(r, "cursor");
	char next[32];
	uint32_t limit;
	uint64_t before = 0;
	if (!srv_in_query(r, names) || !srv_in_limit(r, &limit) ||
	    (cursor != NULL && !srv_in_number(r, "cursor", cursor, INT64_MAX, &before)))
		return;
	srv_items_begin(&p.out);
	int rc = sl_jobs_audit_list(api->core->jobs, before, limit, add_record, &p, &err);
	(void)snprintf(next, sizeof(next), "%" PRIu64, p.last);
	srv_items_answer(r, &p.out, rc, &err, p.n == limit ? next : "");
}
