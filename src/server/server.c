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

/* The folders and files of a server, from what was configured and from the data folder for what was not. */

/* value, or <prefix><folder>/<name>. */
static char *place(const char *value, const char *prefix, const char *folder, const char *name)
{
	char *out = NULL;

	if (value)
		return strdup(value);
	return asprintf(&out, "%s%s/%s", prefix, folder, name) < 0 ? NULL : out;
}

/* A leading ~/ is the home folder. */
static char *data_folder(const char *configured)
{
	const char *home = getenv("HOME");
	const char *rest = configured ? configured : "~/.sluice";
	char *out = NULL;

	if (strncmp(rest, "~/", 2) != 0)
		return strdup(rest);
	if (!home || !*home)
		return NULL;
	return asprintf(&out, "%s/%s", home, rest + 2) < 0 ? NULL : out;
}

int srv_places_init(struct srv_places *p, const struct srv_config *config, struct sl_err *err)
{
	memset(p, 0, sizeof(*p));
	p->data = data_folder(config->server_data);
	if (!p->data)
		return sl_err_set(err, SL_ECONFIG, "HOME is not set; give --data=DIR");
	p->store_url = place(config->store_url, "sqlite:", p->data, "sluice.db");
	p->wal_dir = place(config->wal_wal_dir, "", p->data, "wal");
	p->archive_dir = place(config->wal_archive_dir, "", p->data, "archive");
	p->dlq_dir = place(NULL, "", p->data, "dead");
	if (!p->store_url || !p->wal_dir || !p->archive_dir || !p->dlq_dir)
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	return 0;
}

void srv_places_fini(struct srv_places *p)
{
	free(p->data);
	free(p->store_url);
	free(p->wal_dir);
	free(p->archive_dir);
	free(p->dlq_dir);
	memset(p, 0, sizeof(*p));
}

struct srv_server {
	const struct srv_config *config;
	struct sl_env env; /* the caller's, with our metrics */
	struct srv_places places;
	sl_metrics *metrics;
	sl_store store;
	sl_notify notify;
	sl_jobs *jobs;
	struct srv_core core;
	srv_http *http;
	struct srv_health *health;
	struct srv_ingest *ingest;
	struct srv_pulse pulse;
	int running;
	char *url;
};

static int open_store(srv_server *s, struct sl_err *err)
{
	const struct srv_config *c = s->config;
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .env = &s->env, .connections = (int32_t)c->store_connections,
				     .connect_timeout_ms = c->store_connect_timeout_ms,
				     .statement_timeout_ms = c->store_statement_timeout_ms};
	struct sl_jobs_opts jobs = {SL_JOBS_OPTS_INIT, .env = &s->env, .store = &s->store, .notify = &s->notify};
	struct sl_err why = SL_ERR_INIT;
	int rc = sl_store_open(&s->store, s->places.store_url, &opts, err);

	if (rc)
		return rc;
	rc = sl_notify_open(&s->notify, s->places.store_url, &s->env, &why);
	if (rc == SL_EACCES) {
		/* Processes that cannot notify each other poll. */
		sl__log(&s->env, SL_LOG_WARN, "server", "no notifications from other processes; polling instead",
			SL__F_STR("error", why.msg));
		rc = sl_notify_local_open(&s->notify, &s->env, err);
	} else if (rc && err)
		*err = why;
	return rc ? rc : sl_jobs_open(&s->jobs, &jobs, err);
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
		.read_only = (int)c->server_read_only,
		.behind_proxy = (int)c->server_behind_proxy,
		.access_log = (int)c->server_access_log,
		.metrics = s->metrics,
		.env = &s->env,
	};

	int rc = srv_http_new(&s->http, &opts, err);
	if (!rc)
		srv_http_audit(s->http, srv_record_login, &s->core);
	return rc;
}

static int add_ingest(srv_server *s, struct sl_err *err)
{
	int rc = srv_ingest_new(&s->ingest, &s->core, err);

	if (rc)
		return rc;
	s->core.ingest = s->ingest;
	s->pulse = (struct srv_pulse){.ingest = s->ingest, .stuck_ms = 2 * s->config->store_statement_timeout_ms};
	rc = srv_ingest_add(s->http, s->ingest, err);
	if (rc != 0)
		return rc;
	return srv_health_add_check(s->health, "ingest", srv_check_ingest, &s->pulse, err);
}

static int add_exports(srv_server *s, struct sl_err *err)
{
	int rc = srv_exports_new(&s->core.exports, &s->core, err);

	if (rc || !s->core.exports)
		return rc;
	return srv_health_add_check(s->health, "export", srv_check_export, s->core.exports, err);
}

/* Every part adds what it serves. */
static int add_routes(srv_server *s, struct sl_err *err)
{
	int rc = srv_health_new(&s->health, &s->core, err);

	rc = rc ? rc : srv_health_add_routes(s->http, s->health, err);
	rc = rc ? rc : add_ingest(s, err);
	rc = rc ? rc : add_exports(s, err);
	rc = rc ? rc : srv_backups_new(&s->core.backups, &s->core, err);
	rc = rc ? rc : srv_api_add(s->http, &s->core, err);
	return rc ? rc : srv_assets_add(s->http, err);
}

static int make_url(srv_server *s, struct sl_err *err)
{
	const char *scheme = s->config->server_tls_cert_file ? "https" : "http";

	if (asprintf(&s->url, "%s://%s/", scheme, srv_http_address(s->http)) < 0) {
		s->url = NULL;
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	}
	return 0;
}

/* The data folder and those above it, which no other user may read. */
static int make_folder(const char *path, struct sl_err *err)
{
	char *copy = strdup(path);
	int failed = copy ? 0 : ENOMEM;

	for (char *p = copy ? copy + 1 : NULL; p && !failed; p++) {
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
	return failed ? sl_err_set_errno(err, failed, "make the folder %s", path) : 0;
}

int srv_server_new(srv_server **out, const struct srv_config *config, const struct sl_env *env, struct sl_err *err)
{
	srv_server *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	s->config = config;
	rc = sl__env_init(&s->env, env, err);
	rc = rc ? rc : srv_places_init(&s->places, config, err);
	rc = rc ? rc : make_folder(s->places.data, err);
	rc = rc ? rc : sl_metrics_new(&s->metrics, env, err);
	s->env.metrics = s->metrics;
	rc = rc ? rc : open_store(s, err);
	if (!rc) {
		s->core = (struct srv_core){.env = &s->env,
					    .metrics = s->metrics,
					    .store = &s->store,
					    .notify = &s->notify,
					    .jobs = s->jobs,
					    .config = s->config,
					    .wal_dir = s->places.wal_dir,
					    .dlq_dir = s->places.dlq_dir};
	}
	rc = rc ? rc : open_http(s, err);
	rc = rc ? rc : make_url(s, err);
	rc = rc ? rc : add_routes(s, err);
	if (rc) {
		srv_server_free(s);
		return rc;
	}
	*out = s;
	return 0;
}

int srv_server_start(srv_server *s, const struct srv_systemd *systemd, struct sl_err *err)
{
	int rc = srv_health_start(s->health, systemd, err);

	rc = rc ? rc : srv_exports_start(s->core.exports, err);
	rc = rc ? rc : srv_backups_start(s->core.backups, err);
	rc = rc ? rc : srv_http_start(s->http, err);
	s->running = !rc;
	return rc;
}

struct srv_health *srv_server_health(srv_server *s)
{
	return s->health;
}

const char *srv_server_url(const srv_server *s)
{
	return s->url;
}

const struct srv_core *srv_server_core(const srv_server *s)
{
	return &s->core;
}

const struct srv_places *srv_server_places(const srv_server *s)
{
	return &s->places;
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

static int64_t left_ms(int64_t begun_ms, int64_t deadline_ms)
{
	int64_t left = deadline_ms - (sl__clock_ms() - begun_ms);

	return left > 0 ? left : 0;
}

int srv_server_stop(srv_server *s, int64_t deadline_ms, struct sl_err *err)
{
	int64_t begun = sl__clock_ms();
	int rc = s->ingest ? srv_ingest_stop(s->ingest, deadline_ms, err) : 0;

	srv_exports_stop(s->core.exports, left_ms(begun, deadline_ms));
	srv_backups_stop(s->core.backups);
	deadline_ms = left_ms(begun, deadline_ms);
	if (s->running && !rc)
		rc = srv_http_stop(s->http, deadline_ms, err);
	else if (s->running)
		(void)!srv_http_stop(s->http, deadline_ms, NULL);
	srv_health_stop(s->health); /* what its checks read may go now */
	s->running = 0;
	return rc;
}

void srv_server_free(srv_server *s)
{
	struct sl_err err = SL_ERR_INIT;

	if (!s)
		return;
	(void)srv_server_stop(s, 0, &err);
	srv_http_free(s->http);
	srv_api_free(&s->core);
	srv_health_stop(s->health);
	srv_exports_free(s->core.exports);
	srv_backups_free(s->core.backups);
	srv_ingest_free(s->ingest);
	srv_health_free(s->health);
	sl_jobs_close(s->jobs);
	if (s->notify.ops)
		sl_notify_close(&s->notify);
	if (s->store.ops)
		sl_store_close(&s->store);
	sl_metrics_free(s->metrics);
	srv_places_fini(&s->places);
	free(s->url);
	free(s);
}
