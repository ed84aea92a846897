/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts the server together: store, notifier and client, then HTTP with the routes of every part; takes it apart in the
 * opposite order. See server.h.
 */
#include "server/server.h"

#include "base/time.h"
#include "server/backup/backup.h"
#include "server/export/export.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int open_store(srv_server *s, struct sl_err *err)
{
	const struct srv_config *c = s->config;
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .env = &s->env, .connections = (int32_t)c->store_connections,
				     .connect_timeout_ms = c->store_connect_timeout_ms,
				     .statement_timeout_ms = c->store_statement_timeout_ms};
	struct sl_jobs_opts jobs = {SL_JOBS_OPTS_INIT, .env = &s->env, .store = &s->store, .notify = &s->notify};
	struct sl_err why = SL_ERR_INIT;
	int rc = sl_metrics_new(&s->metrics, &s->env, err);
	if (rc != 0)
		return rc;
	s->env.metrics = s->metrics;
	rc = sl_store_open(&s->store, s->places.store_url, &opts, err);
	if (rc != 0)
		return rc;
	rc = sl_notify_open(&s->notify, s->places.store_url, &s->env, &why);
	if (rc == SL_EACCES) {
		/* Processes that cannot notify each other poll. */
		sl__log(&s->env, SL_LOG_WARN, "server", "notifications are unavailable, falling back to polling",
			SL__F_STR("error", why.msg));
		rc = sl_notify_local_open(&s->notify, &s->env, err);
	} else if (rc != 0 && err != NULL) {
		*err = why;
	}
	if (rc != 0)
		return rc;
	rc = srv_types_registry(c, &s->env, &s->core.types, err);
	if (rc != 0)
		return rc;
	jobs.types = s->core.types;
	rc = sl_jobs_open(&s->core.jobs, &jobs, err);
	if (rc != 0)
		return rc;
	s->core.env = &s->env;
	s->core.metrics = s->metrics;
	s->core.store = &s->store;
	s->core.notify = &s->notify;
	s->core.config = c;
	s->core.wal_dir = s->places.wal_dir;
	s->core.dlq_dir = s->places.dlq_dir;
	return 0;
}

/* 0 in the settings is for ever; -1, what the store has. */
static int64_t setting_to_keep(int64_t setting)
{
	return setting == 0 ? SL_UNLIMITED : SL_MAX(setting, 0);
}

/* Before the export begins: from now on what it has not exported is kept, by all processes of the store. */
static int start_retention(srv_server *s, struct sl_err *err)
{
	const struct srv_config *c = s->config;
	char *name = NULL;
	if (s->core.exports != NULL && asprintf(&name, "%s/%s", c->export_events_dir, c->export_events_dataset) < 0)
		return sl__no_memory(err, "server");
	const struct sl_retention_opts opts = {SL_RETENTION_OPTS_INIT,
					       .env = &s->env,
					       .store = &s->store,
					       .keep = {SL_RETENTION_INIT,
							.completed_ms = setting_to_keep(c->retention_completed),
							.failed_ms = setting_to_keep(c->retention_failed),
							.events_ms = setting_to_keep(c->retention_events),
							.lines_ms = setting_to_keep(c->retention_lines)},
					       .export_name = name,
					       .checkpoint = name != NULL ? srv_exports_checkpoint : NULL,
					       .checkpoint_ctx = s->core.exports};
	int rc = sl_retention_start(&s->retention, &opts, err);
	free(name);
	return rc;
}

static int open_http(srv_server *s, struct sl_err *err)
{
	const struct srv_config *c = s->config;
	struct srv_http_opts opts = {
		.listen = c->server_listen,
		.tls_cert_file = c->server_tls_cert_file,
		.tls_key_file = c->server_tls_key_file,
		.tokens_file = c->server_tokens_file,
		.hosts = (const char *const *)c->server_hosts.items,
		.n_hosts = c->server_hosts.n,
		.body_max = c->server_body_max_bytes,
		.header_deadline_ms = c->server_header_deadline_ms,
		.request_deadline_ms = c->server_request_deadline_ms,
		.connections_max = (int32_t)c->server_connections_max,
		.connections_per_address = (int32_t)c->server_connections_per_address,
		.threads = (int32_t)c->server_threads,
		.read_only = c->server_read_only != 0,
		.store = s->places.shown_store,
		.behind_proxy = c->server_behind_proxy != 0,
		.access_log = (enum srv_access_log)c->server_access_log, /* as srv_choices_access_log */
		.metrics = s->metrics,
		.env = &s->env,
	};
	int rc = srv_http_new(&s->http, &opts, err);
	if (rc != 0)
		return rc;
	srv_http_audit(s->http, srv_record_login, &s->core);
	const char *scheme = c->server_tls_cert_file != NULL ? "https" : "http";
	if (asprintf(&s->url, "%s://%s/", scheme, srv_http_address(s->http)) < 0) {
		s->url = NULL;
		return sl__no_memory(err, "server");
	}
	return 0;
}

/* What serves requests. Health comes first, since others add checks. */
static int add_parts(srv_server *s, struct sl_err *err)
{
	struct srv_core *core = &s->core;
	int rc = srv_health_new(&s->health, core, err);
	if (rc != 0)
		return rc;
	rc = srv_health_add_routes(s->http, s->health, err);
	if (rc != 0)
		return rc;

	rc = srv_ingest_new(&core->ingest, core, err);
	if (rc != 0)
		return rc;
	s->pulse = (struct srv_pulse){.ingest = core->ingest, .stuck_ms = 2 * s->config->store_statement_timeout_ms};
	rc = srv_ingest_add(s->http, core->ingest, err);
	if (rc != 0)
		return rc;
	rc = srv_health_add_check(s->health, "ingest", srv_check_ingest, &s->pulse, err);
	if (rc != 0)
		return rc;

	rc = srv_exports_new(&core->exports, core, err);
	if (rc == 0 && core->exports != NULL)
		rc = srv_health_add_check(s->health, "export", srv_check_export, core->exports, err);
	if (rc != 0)
		return rc;

	rc = srv_backups_new(&core->backups, core, err);
	if (rc != 0)
		return rc;
	rc = srv_api_add(s->http, core, err);
	if (rc != 0)
		return rc;
	return srv_assets_add(s->http, err);
}

/* The data folder and those above it, which no other user may read. */
static int make_data_folder(srv_server *s, struct sl_err *err)
{
	const char *path = s->places.data;
	char *copy = strdup(path);
	int failed = copy != NULL ? 0 : ENOMEM;
	for (char *p = copy != NULL ? copy + 1 : NULL; p != NULL && !failed; p++) {
		char was = *p;
		if (was != '/' && was != '\0')
			continue;
		*p = '\0';
		failed = mkdir(copy, 0700) && errno != EEXIST ? errno : 0;
		*p = was;
		if (was == '\0')
			break;
	}
	free(copy);
	return failed ? sl_err_set_errno(err, failed, "create the folder %s", path) : 0;
}

int srv_server_new(srv_server **out, const struct srv_config *config, const struct sl_env *env, struct sl_err *err)
{
	/* Each needs the ones before it. */
	static int (*const steps[])(srv_server * s, struct sl_err * err) = {make_data_folder, open_store, open_http,
									    add_parts};
	srv_server *s = calloc(1, sizeof(*s));
	if (s == NULL)
		return sl__no_memory(err, "server");
	s->config = config;
	int rc = sl__env_init(&s->env, env, err);
	if (rc == 0)
		rc = srv_places_init(&s->places, config, err);
	for (size_t i = 0; rc == 0 && i < SL_COUNT(steps); i++)
		rc = steps[i](s, err);
	if (rc != 0) {
		srv_server_free(s);
		return rc;
	}
	*out = s;
	return 0;
}

int srv_server_start(srv_server *s, const struct srv_systemd *systemd, struct sl_err *err)
{
	int rc = srv_health_start(s->health, systemd, err);
	if (rc != 0)
		return rc;
	rc = start_retention(s, err);
	if (rc != 0)
		return rc;
	rc = srv_exports_start(s->core.exports, err);
	if (rc != 0)
		return rc;
	rc = srv_backups_start(s->core.backups, err);
	if (rc != 0)
		return rc;
	rc = srv_http_start(s->http, err);
	s->running = rc == 0;
	return rc;
}

int srv_server_reload(srv_server *s, struct sl_err *err)
{
	return srv_http_reload(s->http, err);
}

void srv_server_refuse(srv_server *s)
{
	srv_health_drain(s->health);
	srv_http_refuse(s->http);
}

int srv_server_stop(srv_server *s, int64_t deadline_ms, struct sl_err *err)
{
	int64_t until = sl__clock_ms() + deadline_ms;
	int rc = srv_ingest_stop(s->core.ingest, deadline_ms, err);
	sl_retention_stop(s->retention);
	s->retention = NULL;
	srv_exports_stop(s->core.exports, SL_MAX(until - sl__clock_ms(), 0));
	srv_backups_stop(s->core.backups);
	deadline_ms = SL_MAX(until - sl__clock_ms(), 0);
	int cut = s->running ? srv_http_stop(s->http, deadline_ms, rc == 0 ? err : NULL) : 0;
	srv_health_stop(s->health); /* what its checks read may go now */
	s->running = false;
	if (rc == 0)
		rc = cut;
	return rc;
}

void srv_server_free(srv_server *s)
{
	struct sl_err err = SL_ERR_INIT;
	if (s == NULL)
		return;
	(void)srv_server_stop(s, 0, &err);
	srv_http_free(s->http);
	srv_api_free(&s->core);
	srv_health_stop(s->health);
	srv_exports_free(s->core.exports);
	srv_backups_free(s->core.backups);
	srv_ingest_free(s->core.ingest);
	srv_health_free(s->health);
	sl_jobs_close(s->core.jobs);
	sl_job_types_free(s->core.types);
	if (s->notify.ops != NULL)
		sl_notify_close(&s->notify);
	if (s->store.ops != NULL)
		sl_store_close(&s->store);
	sl_metrics_free(s->metrics);
	srv_places_fini(&s->places);
	free(s->url);
	free(s);
}
