/* SPDX-License-Identifier: Apache-2.0 */
/* The table of settings and the check of a single value: see config.h. */
#include "server/config/config.h"
#include "base/base.h"

#include <ctype.h>
#include <errno.h>
#include <sluice/adapter/io.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const srv_choices_access_log[] = {"off", "logfmt", "json", NULL};
const char *const srv_choices_log_level[] = {"debug", "info", "warn", "error", NULL};
const char *const srv_choices_damage[] = {"salvage", "truncate", "refuse", NULL};
const char *const srv_choices_rows[] = {"csv", "jsonl", NULL};
const char *const srv_choices_gaps[] = {"stop", "record", NULL};
const char *const srv_choices_bad_rows[] = {"stop", "divert", NULL};

#define SRV_ROW(row_kind, row_section, row_name, row_flag, letter, arg, row_def, least, most, row_choices, row_help)   \
	{.kind = SRV_##row_kind,                                                                                       \
	 .section = #row_section,                                                                                      \
	 .name = #row_name,                                                                                            \
	 .flag = row_flag,                                                                                             \
	 .def = row_def,                                                                                               \
	 .min = least,                                                                                                 \
	 .max = most,                                                                                                  \
	 .choices = row_choices,                                                                                       \
	 .help = row_help,                                                                                             \
	 .offset = offsetof(struct srv_config, row_section##_##row_name)},

const struct srv_setting srv_settings[] = {SRV_SETTINGS(SRV_ROW){.section = NULL}};

static void *field_of(struct srv_config *config, const struct srv_setting *s)
{
	return (char *)config + s->offset;
}

const struct srv_setting *srv_setting_find(const char *section, const char *name)
{
	for (const struct srv_setting *s = srv_settings; s->section; s++) {
		if (strcmp(s->section, section) == 0 && strcmp(s->name, name) == 0)
			return s;
	}
	return NULL;
}

const char *srv_setting_env(const struct srv_setting *setting, char to[SRV_ENV_BYTES])
{
	/* The name that the other commands know. */
	if (strcmp(setting->section, "store") == 0 && strcmp(setting->name, "url") == 0)
		(void)snprintf(to, SRV_ENV_BYTES, "SLUICE_STORE");
	else
		(void)snprintf(to, SRV_ENV_BYTES, "SLUICE_%s_%s", setting->section, setting->name);
	for (char *p = to; *p; p++)
		*p = (char)toupper((unsigned char)*p);
	return to;
}

const char *srv_setting_expects(const struct srv_setting *setting, char *to, size_t size)
{
	static const char *const words[] = {[SRV_TEXT] = "a text",
					    [SRV_PATH] = "a path",
					    [SRV_NUMBER] = "a whole number",
					    [SRV_MILLIS] = "milliseconds, or a duration such as 250ms, 60s or 5m,",
					    [SRV_BYTES] = "bytes, or a size such as 64KiB or 16MiB,",
					    [SRV_FACTOR] = "a number such as 2 or 1.5",
					    [SRV_SWITCH] = "true or false",
					    [SRV_CHOICE] = "one of",
					    [SRV_LIST] = "a list of texts"};
	int used = snprintf(to, size, "%s", words[setting->kind]);
	if (setting->kind == SRV_NUMBER || setting->kind == SRV_MILLIS || setting->kind == SRV_BYTES)
		(void)snprintf(to + used, size - (size_t)used, " from %lld to %lld", (long long)setting->min,
			       (long long)setting->max);
	if (setting->kind == SRV_FACTOR)
		(void)snprintf(to + used, size - (size_t)used, " from %g to %g", (double)setting->min / 1000,
			       (double)setting->max / 1000);
	for (int i = 0; setting->kind == SRV_CHOICE && setting->choices[i] != NULL && (size_t)used < size; i++)
		used += snprintf(to + used, size - (size_t)used, "%s %s", i ? "," : "", setting->choices[i]);
	return to;
}

/* ---- values ---- */

struct unit {
	const char *name;
	int64_t factor;
};
static const struct unit durations[] = {{"", 1},        {"ms", 1},       {"s", 1000}, {"m", 60000},
					{"h", 3600000}, {"d", 86400000}, {NULL, 0}};
static const struct unit sizes[] = {{"", 1}, {"B", 1}, {"KiB", 1024}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {NULL, 0}};
static const struct unit plain[] = {{"", 1}, {NULL, 0}};

/* The number that a text means. -1: it is not what the setting expects. */
static int read_setting_value(const struct srv_setting *s, const char *text, int64_t *out)
{
	static const char *const no[] = {"false", "no", "off", "0"}, *const yes[] = {"true", "yes", "on", "1"};
	const struct unit *unit = s->kind == SRV_MILLIS ? durations : s->kind == SRV_BYTES ? sizes : plain;
	char *end;
	long long n;
	double factor;
	switch (s->kind) {
	case SRV_NUMBER:
	case SRV_MILLIS:
	case SRV_BYTES:
		errno = 0;
		n = strtoll(text, &end, 10);
		if (errno || end == text || isspace((unsigned char)*text))
			return -1;
		while (unit->name != NULL && strcmp(end, unit->name) != 0)
			unit++;
		if (unit->name == NULL || __builtin_mul_overflow(n, unit->factor, out))
			return -1;
		return *out < s->min || *out > s->max ? -1 : 0;
	case SRV_FACTOR:
		factor = strtod(text, &end);
		if (end == text || *end != '\0' || isspace((unsigned char)*text) ||
		    !(factor * 1000 >= (double)s->min) || !(factor * 1000 <= (double)s->max))
			return -1;
		*out = (int64_t)(factor * 1000 + 0.5);
		return 0;
	case SRV_SWITCH:
		for (int i = 0; i < 4; i++) {
			*out = strcasecmp(text, yes[i]) == 0;
			if (*out || strcasecmp(text, no[i]) == 0)
				return 0;
		}
		return -1;
	case SRV_CHOICE:
		for (*out = 0; s->choices[*out]; ++*out) {
			if (strcmp(s->choices[*out], text) == 0)
				return 0;
		}
		return -1;
	case SRV_TEXT:
	case SRV_PATH:
	case SRV_LIST:
		break;
	}
	return 0;
}

int srv_setting_store(void *base, const struct srv_setting *setting, const char *label, const char *text,
		      struct sl_err *err)
{
	void *member = (char *)base + setting->offset;
	char expected[160];
	int64_t number = 0;
	if (read_setting_value(setting, text, &number))
		return sl_err_set(err, SL_ECONFIG, "%s: '%.60s' is not %s", label, text,
				  srv_setting_expects(setting, expected, sizeof(expected)));
	if (setting->kind == SRV_PATH) {
		struct sl_err why;
		if (sl_check_local_path(label, text, &why))
			return sl_err_set(err, SL_ECONFIG, "%s", why.msg);
	}
	if (setting->kind == SRV_LIST) {
		struct srv_list *list = member;
		char **items = realloc(list->items, (list->n + 2) * sizeof(*items));
		if (items == NULL)
			return sl__no_memory(err, setting->name);
		list->items = items;
		items[list->n] = strdup(text);
		if (items[list->n] == NULL)
			return sl__no_memory(err, setting->name);
		items[++list->n] = NULL;
	} else if (setting->kind == SRV_TEXT || setting->kind == SRV_PATH) {
		char **field = member;
		char *copy = *text ? strdup(text) : NULL; /* an empty text takes a value back */

		if (*text && copy == NULL)
			return sl__no_memory(err, setting->name);
		free(*field);
		*field = copy;
	} else {
		*(int64_t *)member = number;
	}
	return 0;
}

int srv_config_set(struct srv_config *config, const struct srv_setting *setting, const char *text, struct sl_err *err)
{
	char label[96];
	(void)snprintf(label, sizeof(label), "%s.%s", setting->section, setting->name);
	config->given[setting - srv_settings] = true;
	return srv_setting_store(config, setting, label, text, err);
}

void srv_config_clear(struct srv_config *config, const struct srv_setting *setting)
{
	struct srv_list *list = field_of(config, setting);
	if (setting->kind != SRV_LIST)
		return;
	for (size_t i = 0; i < list->n; i++)
		free(list->items[i]);
	free(list->items);
	*list = (struct srv_list){.n = 0};
}

int srv_config_init(struct srv_config *config, struct sl_err *err)
{
	memset(config, 0, sizeof(*config));
	for (const struct srv_setting *s = srv_settings; s->section; s++) {
		int rc = s->def != NULL ? srv_config_set(config, s, s->def, err) : 0;
		if (rc != 0)
			return rc;
		if (s->def == NULL && (s->kind == SRV_CHOICE || (s->kind == SRV_MILLIS && s->min == 0)))
			*(int64_t *)field_of(config, s) = -1;
	}
	memset(config->given, 0, sizeof(config->given));
	return 0;
}

bool srv_config_given(const struct srv_config *config, const char *section, const char *name)
{
	const struct srv_setting *s = srv_setting_find(section, name);
	return s != NULL && config->given[s - srv_settings];
}

void srv_config_fini(struct srv_config *config)
{
	for (const struct srv_setting *s = srv_settings; s->section; s++) {
		if (s->kind == SRV_TEXT || s->kind == SRV_PATH)
			free(*(char **)field_of(config, s));
		srv_config_clear(config, s);
	}
	srv_types_fini(config);
	free(config->file);
	memset(config, 0, sizeof(*config));
}

/* ---- the nearest known word ---- */

/* Edits (insert, delete, replace, swap of neighbours) that make a out of b; words are short. */
static size_t distance(const char *a, const char *b)
{
	enum { LONGEST = 63 };
	size_t rows[3][LONGEST + 1];
	size_t n = strlen(b);

	if (n > LONGEST || strlen(a) > LONGEST)
		return SIZE_MAX;
	for (size_t k = 0; k <= n; k++)
		rows[0][k] = k;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t *now = rows[i % 3], *before = rows[(i + 2) % 3], *second = rows[(i + 1) % 3];
		now[0] = i;
		for (size_t k = 1; k <= n; k++) {
			size_t best = before[k - 1] + (a[i - 1] != b[k - 1]);
			best = before[k] + 1 < best ? before[k] + 1 : best;
			best = now[k - 1] + 1 < best ? now[k - 1] + 1 : best;
			if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1] && second[k - 2] + 1 < best)
				best = second[k - 2] + 1;
			now[k] = best;
		}
	}
	return rows[strlen(a) % 3][n];
}

const char *srv_nearest(const char *word, const char *const *words, size_t n)
{
	const char *dot = strrchr(word, '.'); /* a section that is right makes its setting no more alike */
	size_t limit = strlen(dot != NULL ? dot + 1 : word) / 3 +
		       2; /* further away it is another word: a hint would mislead */
	const char *best = NULL, *only = NULL;
	size_t n_completed = 0;
	for (size_t i = 0; i < n; i++) {
		size_t d = distance(word, words[i]);
		if (d < limit) {
			limit = d;
			best = words[i];
		}
	}
	/* The only one that begins so: "vers" is far from "version", and yet no other. */
	for (size_t i = 0; i < n && strlen(word) >= 3; i++) {
		if (strncmp(words[i], word, strlen(word)) == 0) {
			only = words[i];
			n_completed++;
		}
	}
	return best != NULL ? best : n_completed == 1 ? only : NULL;
}
