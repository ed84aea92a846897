/* SPDX-License-Identifier: Apache-2.0 */
/* Types, errors and schedules. */
#include "server/api/api.h"
#include "server/api/counts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- types ---- */

/* Counts come ordered by type; one that is paused and has no job comes with none. */
struct types {
	struct srv_out out;
	char type[129];
	uint64_t by[SL_JOB_STATUS_COUNT + 1], due, retrying;
	int64_t oldest_ms;
	bool paused;
	const struct srv_served *served;
};

static void flush_type(struct types *t)
{
	if (t->type[0] == '\0')
		return;
	srv_out_open(&t->out, '{');
	SRV_FIELD(&t->out, "type", str, t->type);
	SRV_FIELD(&t->out, "paused", bool, t->paused);
	SRV_FIELD(&t->out, "served", bool, srv_served(t->served, t->type));
	SRV_FIELD(&t->out, "ready", int, (int64_t)t->due);
	SRV_FIELD(&t->out, "scheduled", int, (int64_t)(t->by[SL_JOB_PENDING] - t->due - t->retrying));
	SRV_FIELD(&t->out, "retrying", int, (int64_t)t->retrying);
	for (enum sl_job_status s = SL_JOB_BLOCKED; s <= SL_JOB_CANCELLED; s++)
		SRV_FIELD(&t->out, sl_job_status_name(s), int, (int64_t)t->by[s]);
	SRV_FIELD(&t->out, "oldest_at", time, t->oldest_ms);
	srv_out_close(&t->out, '}');
}

static int add_type_count(const struct sl_job_count *c, void *ctx)
{
	struct types *t = ctx;
	if (strcmp(t->type, c->type) != 0) {
		flush_type(t);
		*t = (struct types){.out = t->out, .served = t->served};
		(void)snprintf(t->type, sizeof(t->type), "%s", c->type);
	}
	t->by[c->status] = c->count;
	t->due += c->due;
	t->retrying += c->retrying;
	t->paused = t->paused || c->paused;
	if (c->status == SL_JOB_PENDING)
		t->oldest_ms = c->oldest_ms;
	return 0;
}

void srv_types_list(srv_request *r, void *ctx)
{
	struct srv_api *api = ctx;
	struct sl_err err = SL_ERR_INIT;
	struct srv_served served;
	struct types t = {.served = &served};
	if (!srv_in_query(r, NULL))
		return;
	srv_items_begin(&t.out);
	int rc = srv_served_read(&served, api->core, &err);
	if (rc == 0)
		rc = srv_counts_each(api->counts, add_type_count, &t, &err);
	flush_type(&t);
	srv_served_free(&served);
	srv_items_answer(r, &t.out, rc, &err, NULL);
}

static void pause_or_resume(srv_request *r, struct srv_api *api, bool paused)
{
	const char *type = srv_param(r, "type");
	struct sl_err err = SL_ERR_INIT;
	struct srv_out o = {0};
	struct srv_change c;
	if (!srv_in_query(r, NULL) || !srv_in_no_body(r) || !srv_change_begin(r, api->core, &c))
		return;
	int rc = paused ? sl_jobs_pause(c.jobs, type, &err) : sl_jobs_resume(c.jobs, type, &err);
	srv_change_end(&c);
	srv_counts_forget(api->counts);
	srv_out_open(&o, '{');
	SRV_FIELD(&o, "type", str, type);
	SRV_FIELD(&o, "paused", bool, paused);
	srv_out_close(&o, '}');
	srv_out_answer(r, 200, &o, rc != 0 ? &err : NULL);
}

void srv_types_pause(srv_request *r, void *ctx)
{
	pause_or_resume(r, ctx, true);
}

void srv_types_resume(srv_request *r, void *ctx)
{
	pause_or_resume(r, ctx, false);
}

/* ---- errors ---- */

static int add_error(const struct sl_error_group *g, void *ctx)
{
	struct srv_out *o = ctx;
	srv_out_open(o, '{');
	SRV_FIELD(o, "type", str, g->type);
	SRV_FIELD(o, "error", str, g->error);
	SRV_FIELD(o, "count", int, (int64_t)g->count);
	SRV_FIELD(o, "retrying", int, (int64_t)g->retrying);
	SRV_FIELD(o, "first_at", time, g->first_ms);
	SRV_FIELD(o, "last_at", time, g->last_ms);
	SRV_FIELD(o, "sample_id", id, g->sample_id);
	return srv_out_end(o);
}

void srv_errors_list(srv_request *r, void *ctx)
{
	static const char *const names[] = {"type", "cursor", "limit", NULL};
	struct srv_api *api = ctx;
	struct sl_err err = SL_ERR_INIT;
	struct srv_out o = {0};
	const char *type = srv_query(r, "type"), *cursor = srv_query(r, "cursor");
	uint64_t after = 0, reached = 0;
	struct sl_error_filter f = {SL_ERROR_FILTER_INIT, .types = &type, .n_types = type != NULL, .reached = &reached};
	char next[32] = "";
	if (!srv_in_query(r, names) || !srv_in_limit(r, &f.limit) ||
	    (cursor != NULL && !srv_in_number(r, "cursor", cursor, INT64_MAX, &after)))
		return;
	f.after = after;
	srv_items_begin(&o);
	int rc = sl_jobs_errors(api->core->jobs, &f, add_error, &o, &err);
	if (reached != 0)
		(void)snprintf(next, sizeof(next), "%" PRIu64, reached);
	srv_items_answer(r, &o, rc, &err, next);
}

/* ---- schedules ---- */

/* One by its name, or all. */
struct crons {
	struct srv_out out;
	const char *name;
	bool found;
};

static int add_cron(const struct sl_cron *c, void *ctx)
{
	struct crons *all = ctx;
	if (all->name != NULL && strcmp(all->name, c->name) != 0)
		return 0;
	srv_out_open(&all->out, '{');
	SRV_FIELD(&all->out, "name", str, c->name);
	SRV_FIELD(&all->out, "spec", str, c->spec);
	SRV_FIELD(&all->out, "type", str, c->type);
	SRV_FIELD(&all->out, "input", raw, c->input);
	SRV_FIELD(&all->out, "priority", int, c->priority);
	SRV_FIELD(&all->out, "catch_up", bool, c->catch_up);
	SRV_FIELD(&all->out, "paused", bool, c->paused);
	SRV_FIELD(&all->out, "next_at", time, c->next_ms);
	SRV_FIELD(&all->out, "last_at", time, c->last_ms);
	SRV_FIELD(&all->out, "last_chain", id, c->last_chain);
	all->found = true;
	return srv_out_end(&all->out);
}

void srv_cron_list(srv_request *r, void *ctx)
{
	struct srv_api *api = ctx;
	struct sl_err err = SL_ERR_INIT;
	struct crons all = {0};
	if (!srv_in_query(r, NULL))
		return;
	srv_items_begin(&all.out);
	int rc = sl_jobs_cron_list(api->core->jobs, add_cron, &all, &err);
	srv_items_answer(r, &all.out, rc, &err, NULL);
}

void srv_cron_put(srv_request *r, void *ctx)
{
	static const char *const names[] = {"spec", "type", "input", "priority", "catch_up", "paused", NULL};
	struct srv_api *api = ctx;
	struct sl_err err = SL_ERR_INIT;
	struct sl_cron c = {SL_CRON_INIT, .name = srv_param(r, "name")};
	char *input = NULL;
	struct srv_change change;
	bool catch_up = false, paused = false;
	struct srv_object body;
	if (!srv_in_query(r, NULL) || !srv_in_body(r, names, "input", &body) || !srv_in_text(&body, "spec", &c.spec) ||
	    !srv_in_text(&body, "type", &c.type) || !srv_in_type(r, c.type) || !srv_in_priority(&body, &c.priority) ||
	    !srv_in_bool(&body, "catch_up", &catch_up) || !srv_in_bool(&body, "paused", &paused))
		return;
	if (c.spec == NULL || c.type == NULL) {
		srv_error(r, 400, "invalid", "%s: missing", c.spec != NULL ? "type" : "spec");
		return;
	}
	if (!srv_in_opaque(&body, "input", &input))
		return;
	c.input = input;
	c.catch_up = catch_up;
	c.paused = paused;
	if (!srv_change_begin(r, api->core, &change)) {
		free(input);
		return;
	}
	int rc = sl_jobs_cron_put(change.jobs, &c, &err);
	srv_change_end(&change);
	free(input);
	/* Answer with the schedule as the store has it. */
	struct crons one = {.name = c.name};
	if (rc == 0)
		rc = sl_jobs_cron_list(api->core->jobs, add_cron, &one, &err);
	if (rc == 0 && !one.found)
		rc = sl_err_set(&err, SL_ENOENT, "no schedule '%s'", c.name);
	srv_out_answer(r, 200, &one.out, rc != 0 ? &err : NULL);
}

void srv_cron_delete(srv_request *r, void *ctx)
{
	struct srv_api *api = ctx;
	struct sl_err err = SL_ERR_INIT;
	struct srv_out o = {0};
	struct srv_change c;
	if (!srv_in_query(r, NULL) || !srv_in_no_body(r) || !srv_change_begin(r, api->core, &c))
		return;
	int rc = sl_jobs_cron_remove(c.jobs, srv_param(r, "name"), &err);
	srv_change_end(&c);
	srv_out_open(&o, '{');
	SRV_FIELD(&o, "deleted", int, 1);
	srv_out_close(&o, '}');
	srv_out_answer(r, 200, &o, rc != 0 ? &err : NULL);
}
