/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings of one type of job: the section `types` of a file, and --set types.TYPE.SETTING=VALUE. What a type does not
 * set comes from the section `jobs`.
 *
 * A type's name may have dots, so a setting is found from the end of the text: mail.eu.retry.first is retry.first of the
 * type mail.eu.
 */
#include "base/base.h"
#include "server/config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TYPE_ROW(row_kind, member, row_name, least, most, row_help)                                                    \
	{.kind = SRV_##row_kind,                                                                                       \
	 .section = "types",                                                                                           \
	 .name = row_name,                                                                                             \
	 .min = least,                                                                                                 \
	 .max = most,                                                                                                  \
	 .help = row_help,                                                                                             \
	 .offset = offsetof(struct srv_type, member)},

const struct srv_setting srv_type_settings[] = {SRV_TYPE_SETTINGS(TYPE_ROW){.section = NULL}};

const struct srv_type *srv_type_find(const struct srv_config *config, const char *name)
{
	for (size_t i = 0; i < config->types.n; i++)
		if (strcmp(config->types.items[i].name, name) == 0)
			return &config->types.items[i];
	return NULL;
}

bool srv_type_has(const struct srv_type *type, enum srv_type_index index)
{
	return type != NULL && (type->given & 1U << index) != 0;
}

const char *srv_type_place(const struct srv_config *config, const struct srv_type *type, enum srv_type_index index,
			   char *to, size_t size)
{
	const struct srv_place *at = &type->places[index];
	if (at->line > 0)
		(void)snprintf(to, size, "%s:%u:%u: types.%s.%s", config->file != NULL ? config->file : "", at->line,
			       at->column, type->name, srv_type_settings[index].name);
	else
		(void)snprintf(to, size, "--set types.%s.%s", type->name, srv_type_settings[index].name);
	return to;
}

static struct srv_type *find_or_add_type(struct srv_config *config, const char *name, struct sl_err *err)
{
	struct srv_type *found = (struct srv_type *)(uintptr_t)srv_type_find(config, name);
	if (found != NULL)
		return found;
	struct srv_type *items = realloc(config->types.items, (config->types.n + 1) * sizeof(*items));
	if (items != NULL)
		config->types.items = items;
	char *copy = items != NULL ? strdup(name) : NULL;
	if (copy == NULL) {
		(void)sl__no_memory(err, "types");
		return NULL;
	}
	items[config->types.n] = (struct srv_type){.name = copy};
	return &items[config->types.n++];
}

static int check_type_name(const char *name, struct sl_err *err)
{
	size_t n = strlen(name);
	size_t good = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/-");
	if (n > 0 && n <= 128 && good == n)
		return 0;
	return sl_err_set(err, SL_ECONFIG, "types: invalid type \"%.60s\"; use 1 to 128 letters, digits and . _ : / -",
			  name);
}

int srv_type_set(struct srv_config *config, const struct srv_type_value *value, struct sl_err *err)
{
	const struct srv_setting *setting = value->setting;
	const char *name = value->type, *text = value->text;
	size_t index = (size_t)(setting - srv_type_settings);
	char label[224];
	int rc = check_type_name(name, err);
	if (rc != 0)
		return rc;
	struct srv_type *type = find_or_add_type(config, name, err);
	if (type == NULL)
		return SL_ENOMEM;
	(void)snprintf(label, sizeof(label), "types.%s.%s", name, setting->name);
	if (setting->kind == SRV_TEXT && *text == '\0')
		return sl_err_set(err, SL_ECONFIG, "%s: missing value", label);
	rc = srv_setting_store(type, setting, label, text, err);
	if (rc != 0)
		return rc;
	type->given |= 1U << index;
	type->places[index] = value->at;
	return 0;
}

const char *srv_type_nearest(const char *word)
{
	const char *names[2 * SRV_N_TYPE_SETTINGS];
	/* The whole names, then their last parts. */
	for (size_t i = 0; i < SRV_N_TYPE_SETTINGS; i++) {
		const char *dot = strrchr(srv_type_settings[i].name, '.');
		names[i] = srv_type_settings[i].name;
		names[SRV_N_TYPE_SETTINGS + i] = dot != NULL ? dot + 1 : names[i];
	}
	const char *nearest = srv_nearest(word, names, SL_COUNT(names));
	for (size_t i = 0; nearest != NULL && i < SRV_N_TYPE_SETTINGS; i++)
		if (nearest == names[SRV_N_TYPE_SETTINGS + i])
			return names[i];
	return nearest;
}

int srv_type_assign(struct srv_config *config, const char *text, struct sl_err *err)
{
	const char *equals = strchr(text, '=');
	for (size_t i = 0; equals != NULL && i < SRV_N_TYPE_SETTINGS; i++) {
		size_t whole = (size_t)(equals - text), n = strlen(srv_type_settings[i].name);
		if (whole <= n + 1 || text[whole - n - 1] != '.' ||
		    strncmp(equals - n, srv_type_settings[i].name, n) != 0)
			continue;
		char *name = strndup(text, whole - n - 1);
		const struct srv_type_value value = {name, equals + 1, &srv_type_settings[i], {0, 0}};
		int rc = name != NULL ? srv_type_set(config, &value, err) : sl__no_memory(err, "types");
		free(name);
		return rc;
	}
	const char *dot = equals != NULL ? memrchr(text, '.', (size_t)(equals - text)) : NULL;
	if (dot == NULL || dot == text)
		return sl_err_set(err, SL_ECONFIG,
				  "--set: 'types.%.80s' is not types.TYPE.SETTING=VALUE, such as types.mail.lease=60s",
				  text);
	char word[64];
	(void)snprintf(word, sizeof(word), "%.*s", (int)(equals - dot - 1), dot + 1);
	const char *nearest = srv_type_nearest(word);
	return sl_err_set(err, SL_ECONFIG, "--set: unknown setting types.%.*s%s%s%s", (int)(equals - text), text,
			  nearest != NULL ? "; did you mean " : "; see 'sluice config list'",
			  nearest != NULL ? nearest : "", nearest != NULL ? "?" : "");
}

void srv_types_fini(struct srv_config *config)
{
	for (size_t i = 0; i < config->types.n; i++) {
		free(config->types.items[i].name);
		free(config->types.items[i].command);
	}
	free(config->types.items);
	config->types.items = NULL;
	config->types.n = 0;
}

/* ---- what holds for a type ---- */

void srv_type_resolve(const struct srv_config *c, const char *name, struct srv_type *out)
{
	const struct srv_type *own = srv_type_find(c, name);
	*out = (struct srv_type){.retry_first = c->jobs_initial_delay_ms,
				 .retry_cap = c->jobs_max_delay_ms,
				 .retry_multiplier = c->jobs_multiplier,
				 .max_attempts = c->jobs_max_attempts,
				 .timeout = c->jobs_timeout_ms,
				 .next_job_delay = c->jobs_next_job_delay_ms,
				 .lease = c->jobs_lease_ms,
				 .renew = c->jobs_renew_interval_ms};
	if (own == NULL)
		return;
	for (int i = 0; i < SRV_N_TYPE_SETTINGS; i++) {
		const struct srv_setting *s = &srv_type_settings[i];
		if (srv_type_has(own, (enum srv_type_index)i) && s->kind != SRV_TEXT)
			memcpy((char *)out + s->offset, (const char *)own + s->offset, sizeof(int64_t));
	}
	out->given = own->given;
	/* A lease and its renewal are a pair: the renewal of all types does not fit the lease of one. */
	if (srv_type_has(own, SRV_TYPE_lease) && !srv_type_has(own, SRV_TYPE_renew))
		out->renew = 0;
}

int srv_types_check(const struct srv_config *config, struct srv_place *at, struct sl_err *err)
{
	for (size_t i = 0; i < config->types.n; i++) {
		const struct srv_type *own = &config->types.items[i];
		struct srv_type t;
		srv_type_resolve(config, own->name, &t);
		if (t.renew > t.lease / 2) {
			enum srv_type_index which = srv_type_has(own, SRV_TYPE_renew) ? SRV_TYPE_renew : SRV_TYPE_lease;
			*at = own->places[which];
			return sl_err_set(
				err, SL_ECONFIG,
				"types.%s.%s: the renewal, %lld ms, must be at most half of the lease, %lld ms",
				own->name, srv_type_settings[which].name, (long long)t.renew, (long long)t.lease);
		}
		if (t.retry_cap < t.retry_first && srv_type_has(own, SRV_TYPE_retry_cap)) {
			*at = own->places[SRV_TYPE_retry_cap];
			return sl_err_set(err, SL_ECONFIG,
					  "types.%s.retry.cap: must not be shorter than retry.first, %lld ms",
					  own->name, (long long)t.retry_first);
		}
	}
	return 0;
}

int srv_types_registry(const struct srv_config *config, const struct sl_env *env, sl_job_types **out,
		       struct sl_err *err)
{
	sl_job_types *types = NULL;
	int rc = sl_job_types_new(&types, env, err);
	for (size_t i = 0; rc == 0 && i < config->types.n; i++) {
		const struct srv_type *own = &config->types.items[i];
		const struct sl_job_type type = {SL_JOB_TYPE_INIT, .name = own->name,
						 .priority = (int32_t)own->priority};
		rc = sl_job_types_add(types, &type, err);
	}
	if (rc != 0) {
		sl_job_types_free(types);
		return rc;
	}
	sl_job_types_allow_others(types);
	*out = types;
	return 0;
}
