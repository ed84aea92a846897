/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the server share: the open store and the log's receiver. Made by the server before the first
 * request, gone after the last.
 */
#ifndef SLUICE_SERVER_CORE_H
#define SLUICE_SERVER_CORE_H

#include "base/env.h"
#include "jobs/notify/ops.h"
#include "server/http/http.h"

#include <sluice/events.h>
#include <sluice/jobs.h>

struct srv_config;
struct srv_ingest;
struct srv_api;
struct srv_exports;
struct srv_backups;

struct srv_core {
	const struct sl_env *env; /* complete: sl__env_init */
	sl_metrics *metrics;
	sl_store *store;
	sl_notify *notify;
	sl_jobs *jobs;
	struct srv_ingest *ingest;   /* NULL: none */
	struct srv_api *api;         /* made by srv_api_add */
	struct srv_exports *exports; /* NULL: none are configured */
	struct srv_backups *backups; /* NULL: no repository is configured */
	const struct srv_config *config;
	sl_job_types *types; /* the settings of single types */
	const char *wal_dir;
	const char *dlq_dir;
};

/* Routes under /api/v1. Their threads end with srv_api_free, after the last request. */
int srv_api_add(srv_http *h, struct srv_core *core, struct sl_err *err);
void srv_api_free(struct srv_core *core);
/* Where the HTTP part records log-ins; ctx is the core. */
int srv_record_login(const struct sl_audit_record *record, struct sl_err *err, void *ctx);
int srv_ingest_new(struct srv_ingest **out, struct srv_core *core, struct sl_err *err);
int srv_ingest_add(srv_http *h, struct srv_ingest *ingest, struct sl_err *err);
/* For sl_event_sender_on_taken: counts what this process writes to the store directly, and wakes its followers, as for
 * events that come over HTTP. From any thread, until srv_ingest_free. */
void srv_ingest_taken(const struct sl_wal_batch *batch, const struct sl_event_row *rows, void *ingest);
int srv_ingest_stop(struct srv_ingest *ingest, int64_t deadline_ms, struct sl_err *err);
void srv_ingest_free(struct srv_ingest *ingest);
int srv_assets_add(srv_http *h, struct sl_err *err);

#endif
