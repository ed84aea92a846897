/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server: an open store, the receiver of the log, the API and the dashboard at one address.
 *
 * Guarantee: what was acknowledged before a drain is in the store, or in a place that can be listed.
 *
 * Thread safety: one thread makes, starts, reloads, drains and frees; ready and health may be asked from any.
 * Ownership: config and env must outlive the server.
 */
#ifndef SLUICE_SERVER_SERVER_H
#define SLUICE_SERVER_SERVER_H

#include "server/config/config.h"
#include "server/core.h"
#include "server/health.h"
#include <sluice/retention.h>

/* To be read by others, from srv_server_new to srv_server_free. */
typedef struct srv_server {
	const struct srv_config *config;
	struct sl_env env; /* the caller's, with our metrics */
	struct srv_places places;
	sl_metrics *metrics;
	sl_store store;
	sl_notify notify;
	struct srv_core core;
	srv_http *http;
	struct srv_health *health;
	struct srv_pulse pulse;
	sl_retention_thread *retention; /* deletes what is too old; NULL: not started */
	bool running;
	char *url; /* "http://127.0.0.1:7070/" */
} srv_server;

/* Opens the store and binds the address; nothing is served yet. */
int srv_server_new(srv_server **out, const struct srv_config *config, const struct sl_env *env, struct sl_err *err);
/* systemd may be NULL; it must outlive the server. Ready when 0 returns. */
int srv_server_start(srv_server *server, const struct srv_systemd *systemd, struct sl_err *err);
/* Tokens and certificates from their files again. */
int srv_server_reload(srv_server *server, struct sl_err *err);
/* From now on changes and events are refused (503) and /readyz says no; what is open may finish. */
void srv_server_refuse(srv_server *server);
/* End: the coordinator, with the requests that wait for it, then the export, then all connections, within deadline_ms
 * together. The first error is returned; everything is stopped anyway. */
int srv_server_stop(srv_server *server, int64_t deadline_ms, struct sl_err *err);
void srv_server_free(srv_server *server);

#endif
