/* SPDX-License-Identifier: Apache-2.0 */
/* Values from the environment and from --set, and the rules for several settings together. */
#include "server/config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int unknown_setting(const char *source, const char *word, const char *nearest, struct sl_err *err)
{
	if (nearest != NULL)
		return sl_err_set(err, SL_ECONFIG, "%s: unknown setting %.80s; did you mean %s?", source, word,
				  nearest);
	return sl_err_set(err, SL_ECONFIG, "%s: unknown setting %.80s; see 'sluice config list'", source, word);
}

int srv_config_assign(struct srv_config *config, const char *text, struct sl_err *err)
{
	const char *equals = strchr(text, '='), *dot = strchr(text, '.');
	char full[SRV_N_SETTINGS][SRV_ENV_BYTES], given[SRV_ENV_BYTES];
	const char *names[SRV_N_SETTINGS];
	if (strncmp(text, "types.", 6) == 0)
		return srv_type_assign(config, text + 6, err);
	if (equals == NULL || dot == NULL || dot > equals || equals - text >= (ptrdiff_t)sizeof(given))
		return sl_err_set(err, SL_ECONFIG, "--set: '%.80s' is not SECTION.NAME=VALUE", text);
	(void)snprintf(given, sizeof(given), "%.*s", (int)(equals - text), text);
	for (int i = 0; i < SRV_N_SETTINGS; i++) {
		(void)snprintf(full[i], sizeof(full[i]), "%s.%s", srv_settings[i].section, srv_settings[i].name);
		names[i] = full[i];
		if (strcmp(given, full[i]) == 0)
			return srv_config_set(config, &srv_settings[i], equals + 1, err);
	}
	return unknown_setting("--set", given, srv_nearest(given, names, SRV_N_SETTINGS), err);
}

static int set_lines(struct srv_config *config, const struct srv_setting *s, const char *value, struct sl_err *err)
{
	int rc = 0;
	srv_config_clear(config, s);
	while (rc == 0 && *value) {
		char *line = strndup(value, strcspn(value, "\n"));
		rc = line != NULL ? *line ? srv_config_set(config, s, line, err) : 0
				  : sl_err_set(err, SL_ENOMEM, "out of memory");
		free(line);
		value += strcspn(value, "\n");
		value += *value == '\n';
	}
	return rc;
}

static int set_from_variable(struct srv_config *config, const char *variable, struct sl_err *err)
{
	const char *equals = strchr(variable, '='), *list[SRV_N_SETTINGS];
	char names[SRV_N_SETTINGS][SRV_ENV_BYTES], given[SRV_ENV_BYTES];
	size_t n = equals != NULL ? (size_t)(equals - variable) : 0;
	if (!n || n >= sizeof(given) || strncmp(variable, "SLUICE_", 7) != 0)
		return 0;
	(void)snprintf(given, sizeof(given), "%.*s", (int)n, variable);
	for (int i = 0; i < SRV_N_SETTINGS; i++) {
		list[i] = srv_setting_env(&srv_settings[i], names[i]);
		if (strcmp(given, list[i]) == 0) {
			const struct srv_setting *s = &srv_settings[i];
			int rc = s->kind == SRV_LIST ? set_lines(config, s, equals + 1, err)
						     : srv_config_set(config, s, equals + 1, err);
			if (rc != 0)
				return sl_err_wrap(err, rc, "%s", given);
			return 0;
		}
	}
	/* A variable of one of our sections is a mistake, SLUICE_SERVER_… for one; SLUICE_JOB_ID is not ours. */
	for (int i = 0; i < SRV_N_SETTINGS; i++) {
		const struct srv_setting section = {.section = srv_settings[i].section, .name = ""};
		char prefix[SRV_ENV_BYTES];
		(void)srv_setting_env(&section, prefix);
		if (strncmp(given, prefix, strlen(prefix)) == 0)
			return unknown_setting("environment", given, srv_nearest(given, list, SRV_N_SETTINGS), err);
	}
	return 0;
}

int srv_config_environment(struct srv_config *config, char *const *env, struct sl_err *err)
{
	int rc = 0;
	for (; rc == 0 && env != NULL && *env != NULL; env++)
		rc = set_from_variable(config, *env, err);
	return rc;
}

int srv_config_check(const struct srv_config *c, struct sl_err *err)
{
	struct srv_place at;
	int rc = srv_types_check(c, &at, err);
	if (rc != 0)
		return rc;
	if ((c->server_tls_cert_file == NULL) != (c->server_tls_key_file == NULL))
		return sl_err_set(err, SL_ECONFIG, "server.%s: missing; a certificate and its key go together",
				  c->server_tls_cert_file != NULL ? "tls_key_file" : "tls_cert_file");
	if (c->jobs_renew_interval_ms > c->jobs_lease_ms / 2)
		return sl_err_set(err, SL_ECONFIG, "jobs.renew_interval_ms: must be at most half of lease_ms, %lld",
				  (long long)c->jobs_lease_ms / 2);
	if (c->jobs_max_delay_ms && c->jobs_max_delay_ms < c->jobs_initial_delay_ms)
		return sl_err_set(err, SL_ECONFIG, "jobs.max_delay_ms: must not be shorter than initial_delay_ms");
	if (c->wal_retry_max_delay_ms < c->wal_retry_delay_ms)
		return sl_err_set(err, SL_ECONFIG, "wal.retry_max_delay_ms: must not be shorter than retry_delay_ms");
	if (c->coordinator_max_backoff_ms < c->coordinator_initial_backoff_ms)
		return sl_err_set(err, SL_ECONFIG,
				  "coordinator.max_backoff_ms: must not be shorter than initial_backoff_ms");
	if (c->coordinator_high_watermark > c->coordinator_capacity)
		return sl_err_set(err, SL_ECONFIG, "coordinator.high_watermark: must not be above capacity");
	if (c->coordinator_high_watermark && c->coordinator_low_watermark >= c->coordinator_high_watermark)
		return sl_err_set(err, SL_ECONFIG, "coordinator.low_watermark: must be below high_watermark");
	return 0;
}
