/* SPDX-License-Identifier: Apache-2.0 */
/* The routes of the API, and the parts with state that serve them. */
#include "server/api/api.h"
#include "base/time.h"
#include "server/api/counts.h"

#include <stdlib.h>
#include <string.h>

/* openapi.json, made part of the program by the build. */
extern const unsigned char srv_openapi_json[];
extern const unsigned srv_openapi_json_len;

static void openapi(srv_request *r, void *ctx)
{
	(void)ctx;
	srv_static(r, &(struct srv_content){"application/json", srv_openapi_json, srv_openapi_json_len, NULL, NULL, 0});
}

#define GET(path, fn, flags)                                                                                           \
	{                                                                                                              \
		"GET", SRV_API path, SRV_READ, flags, fn, NULL                                                         \
	}
#define CHANGE(method, path, fn, audit) CHANGE_BY(method, path, 0, fn, audit)
#define CHANGE_BY(method, path, flags, fn, audit)                                                                      \
	{                                                                                                              \
		method, SRV_API path, SRV_WRITE, flags, fn, audit                                                      \
	}

static const struct srv_route routes[] = {
	GET("/openapi.json", openapi, SRV_QUICK),
	CHANGE_BY("POST", "/chains", SRV_BY_ENQUEUE, srv_chains_start, "chains.start"),
	CHANGE_BY("POST", "/chains/bulk", SRV_BY_ENQUEUE, srv_chains_bulk, "chains.start_bulk"),
	GET("/chains", srv_list_chains, 0),
	GET("/chains/{id}", srv_chains_show, 0),
	GET("/chains/{id}/wait", srv_chains_wait, SRV_LONG),
	CHANGE("POST", "/chains/{id}/complete", srv_chains_complete, "chains.complete"),
	CHANGE("POST", "/chains/{id}/fail", srv_chains_fail, "chains.fail"),
	CHANGE("POST", "/chains/{id}/cancel", srv_chains_cancel, "chains.cancel"),
	CHANGE("POST", "/chains/{id}/trigger", srv_chains_trigger, "chains.trigger"),
	CHANGE("POST", "/chains/{id}/retry", srv_chains_retry, "chains.retry"),
	CHANGE("DELETE", "/chains/{id}", srv_chains_delete, "chains.delete"),
	CHANGE("POST", "/chains/cancel", srv_bulk_cancel, "chains.cancel_many"),
	CHANGE("POST", "/chains/retry", srv_bulk_retry, "chains.retry_many"),
	CHANGE("POST", "/chains/trigger", srv_bulk_trigger, "chains.trigger_many"),
	CHANGE("POST", "/chains/delete", srv_bulk_delete, "chains.delete_many"),
	GET("/jobs", srv_list_jobs, 0),
	GET("/jobs/{id}", srv_jobs_show, SRV_EASY),
	GET("/jobs/{id}/events", srv_jobs_events, 0),
	GET("/types", srv_types_list, 0),
	CHANGE("POST", "/types/{type}/pause", srv_types_pause, "types.pause"),
	CHANGE("POST", "/types/{type}/resume", srv_types_resume, "types.resume"),
	GET("/workers", srv_workers_list, 0),
	GET("/workers/{worker}", srv_workers_show, 0),
	GET("/leases", srv_leases_list, 0),
	GET("/errors", srv_errors_list, 0),
	GET("/cron", srv_cron_list, 0),
	CHANGE("PUT", "/cron/{name}", srv_cron_put, "cron.put"),
	CHANGE("DELETE", "/cron/{name}", srv_cron_delete, "cron.delete"),
	{"GET", "/api/v1/audit", SRV_ADMIN, 0, srv_audit_list, NULL},
	GET("/stats", srv_stats_show, 0),
	GET("/stats/stream", srv_stats_stream, 0),
	GET("/history", srv_history_show, 0),
	GET("/pipeline", srv_pipeline_show, 0),
	GET("/exports", srv_exports_list, 0),
	GET("/exports/{dataset}/partitions", srv_exports_partitions, 0),
	GET("/exports/{dataset}/events", srv_exports_events, 0),
	GET("/exports/{dataset}/head", srv_exports_head, 0),
	GET("/exports/{dataset}/verify", srv_exports_verification, 0),
	CHANGE("POST", "/exports/{dataset}/verify", srv_exports_verify_now, "exports.verify"),
	GET("/backups", srv_backups_list, 0),
	GET("/backups/check", srv_backups_show_check, 0),
	CHANGE("POST", "/backups/check", srv_backups_check_now, "backups.check"),
	GET("/dead-letters", srv_letters_list, 0),
	GET("/dead-letters/{id}", srv_letters_show, 0),
	CHANGE("POST", "/dead-letters/{id}/redrive", srv_letters_redrive, "dead_letters.redrive"),
	CHANGE("POST", "/dead-letters/redrive", srv_letters_redrive_all, "dead_letters.redrive_all"),
};

static int count_jobs(sl_job_count_fn *fn, void *fn_ctx, struct sl_err *err, void *ctx)
{
	const struct srv_core *core = ctx;
	return sl_jobs_counts(core->jobs, fn, fn_ctx, err);
}

static int64_t counts_clock_ms(void *ctx)
{
	(void)ctx;
	return sl__clock_ms();
}

int srv_api_add(srv_http *h, struct srv_core *core, struct sl_err *err)
{
	struct srv_api *api = calloc(1, sizeof(*api));
	if (api == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	api->core = core;
	core->api = api;
	int rc = srv_counts_new(&api->counts, &(struct srv_counts_source){count_jobs, counts_clock_ms, core}, err);
	if (rc != 0)
		return rc;
	rc = srv_waits_new(&api->waits, api, err);
	if (rc != 0)
		return rc;
	rc = srv_letters_new(&api->letters, core, err);
	if (rc != 0)
		return rc;
	rc = srv_stats_new(&api->stats, core, api->letters, err);
	if (rc != 0)
		return rc;
	/* A route that is easy for a store in a file is a network round trip for another store. */
	struct srv_route all[SL_COUNT(routes)];
	bool local = strcmp(core->store->ops->name, "sqlite") == 0;
	for (size_t i = 0; i < SL_COUNT(routes); i++) {
		all[i] = routes[i];
		all[i].flags &= local ? ~0U : ~(unsigned)SRV_EASY;
	}
	rc = srv_http_add(h, all, SL_COUNT(all), api, err);
	if (rc != 0)
		return rc;
	return srv_http_gather(h, "POST", SRV_API "/chains", srv_chains_start_many, local ? 1 : 2, err);
}

void srv_api_free(struct srv_core *core)
{
	struct srv_api *api = core->api;
	if (api == NULL)
		return;
	srv_waits_free(api->waits);
	srv_stats_free(api->stats);
	srv_letters_free(api->letters);
	srv_counts_free(api->counts);
	free(api);
	core->api = NULL;
}
