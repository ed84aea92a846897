/* SPDX-License-Identifier: Apache-2.0 */
/* Where values come from beside a file: the environment and --set; and what they must be together. */
#include "server/config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int unknown(const char *before, const char *word, const char *nearest, struct sl_err *err)
{
	if (nearest)
		return sl_err_set(err, SL_ECONFIG, "%s%.80s is no setting; did you mean %s?", before, word, nearest);
	return sl_err_set(err, SL_ECONFIG, "%s%.80s is no setting (see 'sluice config list')", before, word);
}

int srv_config_assign(struct srv_config *config, const char *text, struct sl_err *err)
{
	const char *equals = strchr(text, '='), *dot = strchr(text, '.');
	char full[SRV_N_SETTINGS][SRV_ENV_BYTES], given[SRV_ENV_BYTES];
	const char *names[SRV_N_SETTINGS];

	if (!equals || !dot || dot > equals || equals - text >= (ptrdiff_t)sizeof(given))
		return sl_err_set(err, SL_ECONFIG, "--set: '%.80s' is not SECTION.NAME=VALUE", text);
	(void)snprintf(given, sizeof(given), "%.*s", (int)(equals - text), text);
	for (int i = 0; i < SRV_N_SETTINGS; i++) {
		(void)snprintf(full[i], sizeof(full[i]), "%s.%s", srv_settings[i].section, srv_settings[i].name);
		names[i] = full[i];
		if (strcmp(given, full[i]) == 0)
			return srv_config_set(config, &srv_settings[i], equals + 1, err);
	}
	return unknown("--set: ", given, srv_nearest(given, names, SRV_N_SETTINGS), err);
}

/* Does a variable look as if it were meant for us? SLUICE_SERVER_…, not SLUICE_JOB_ID. */
static int names_section(const char *variable, size_t n)
{
	char upper[SRV_ENV_BYTES], given[SRV_ENV_BYTES];

	(void)snprintf(given, sizeof(given), "%.*s", (int)n, variable);
	for (const struct srv_setting *s = srv_settings; s->section; s++) {
		struct srv_setting section = {.section = s->section, .name = ""};

		(void)srv_setting_env(&section, upper);
		if (strncmp(given, upper, strlen(upper)) == 0)
			return 1;
	}
	return 0;
}

static int set_lines(struct srv_config *config, const struct srv_setting *s, const char *value, struct sl_err *err)
{
	int rc = 0;

	srv_config_clear(config, s);
	while (!rc && *value) {
		char *line = strndup(value, strcspn(value, "\n"));

		rc = line ? *line ? srv_config_set(config, s, line, err) : 0
			  : sl_err_set(err, SL_ENOMEM, "out of memory");
		free(line);
		value += strcspn(value, "\n");
		value += *value == '\n';
	}
	return rc;
}

static int take_variable(struct srv_config *config, const char *variable, struct sl_err *err)
{
	const char *equals = strchr(variable, '=');
	char names[SRV_N_SETTINGS][SRV_ENV_BYTES], given[SRV_ENV_BYTES];
	const char *list[SRV_N_SETTINGS];
	size_t n = equals ? (size_t)(equals - variable) : 0;
	int rc;

	if (!n || n >= sizeof(given) || strncmp(variable, "SLUICE_", 7) != 0)
		return 0;
	(void)snprintf(given, sizeof(given), "%.*s", (int)n, variable);
	for (int i = 0; i < SRV_N_SETTINGS; i++) {
		list[i] = srv_setting_env(&srv_settings[i], names[i]);
		if (strcmp(given, list[i]) != 0)
			continue;
		rc = srv_settings[i].kind == SRV_LIST ? set_lines(config, &srv_settings[i], equals + 1, err)
						      : srv_config_set(config, &srv_settings[i], equals + 1, err);
		return rc ? sl_err_wrap(err, rc, "%s", given) : 0;
	}
	return names_section(variable, n)
		       ? unknown("the environment's ", given, srv_nearest(given, list, SRV_N_SETTINGS), err)
		       : 0;
}

int srv_config_environment(struct srv_config *config, char *const *env, struct sl_err *err)
{
	int rc = 0;

	for (; !rc && env && *env; env++)
		rc = take_variable(config, *env, err);
	return rc;
}

int srv_config_check(const struct srv_config *c, struct sl_err *err)
{
	if (!c->server_tls_cert_file != !c->server_tls_key_file)
		return sl_err_set(err, SL_ECONFIG, "server.%s: a certificate and its key go together",
				  c->server_tls_cert_file ? "tls_key_file" : "tls_cert_file");
	if (c->jobs_renew_interval_ms > c->jobs_lease_ms / 2)
		return sl_err_set(err, SL_ECONFIG, "jobs.renew_interval_ms: at most half of lease_ms, %lld",
				  (long long)c->jobs_lease_ms / 2);
	if (c->jobs_max_delay_ms < c->jobs_initial_delay_ms)
		return sl_err_set(err, SL_ECONFIG, "jobs.max_delay_ms: shorter than initial_delay_ms");
	if (c->coordinator_max_backoff_ms < c->coordinator_initial_backoff_ms)
		return sl_err_set(err, SL_ECONFIG, "coordinator.max_backoff_ms: shorter than initial_backoff_ms");
	if (c->coordinator_high_watermark > c->coordinator_capacity)
		return sl_err_set(err, SL_ECONFIG, "coordinator.high_watermark: above capacity");
	if (c->coordinator_high_watermark && c->coordinator_low_watermark >= c->coordinator_high_watermark)
		return sl_err_set(err, SL_ECONFIG, "coordinator.low_watermark: not below high_watermark");
	return 0;
}
