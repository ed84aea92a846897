/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A configuration file: two levels of YAML, sections and their settings. The whole file is read, so that one run of
 * `sluice config check` reports every problem.
 */
#include "server/config/config.h"
#include "server/config/yaml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings_file {
	struct srv_config *config;
	struct srv_yaml yaml;
	yaml_mark_t places[SRV_N_SETTINGS]; /* of the values that were seen */
	bool seen[SRV_N_SETTINGS];
};

/* `name:` with nothing after it, or ~, or null: as if it were not there. */
static bool is_null(const yaml_node_t *node)
{
	const char *text = srv_yaml_text(node);
	return text != NULL && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
	       (*text == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
}

static const char *shape_of(const yaml_node_t *node)
{
	return node->type == YAML_MAPPING_NODE ? "a section" : node->type == YAML_SEQUENCE_NODE ? "a list" : "a value";
}

static void set_scalar(struct settings_file *f, const struct srv_setting *s, const yaml_node_t *value)
{
	struct sl_err err = SL_ERR_INIT;
	const char *text = srv_yaml_text(value);
	if (text == NULL)
		srv_yaml_problem(&f->yaml, &value->start_mark, "%s.%s: expected a value, not %s", s->section, s->name,
				 shape_of(value));
	else if (strlen(text) != value->data.scalar.length)
		srv_yaml_problem(&f->yaml, &value->start_mark, "%s.%s contains a NUL character", s->section, s->name);
	else if (srv_config_set(f->config, s, text, &err) != 0)
		srv_yaml_problem(&f->yaml, &value->start_mark, "%s", err.msg);
}

static void take_setting(struct settings_file *f, const char *section, const yaml_node_t *key, const yaml_node_t *value)
{
	const char *name = srv_yaml_text(key);
	if (name == NULL) {
		srv_yaml_problem(&f->yaml, &key->start_mark, "expected the name of a setting, not %s", shape_of(key));
		return;
	}
	const struct srv_setting *s = srv_setting_find(section, name);
	if (s == NULL) {
		const char *names[SRV_N_SETTINGS];
		char what[96];
		size_t n = 0;
		for (int i = 0; i < SRV_N_SETTINGS; i++)
			if (strcmp(srv_settings[i].section, section) == 0)
				names[n++] = srv_settings[i].name;
		(void)snprintf(what, sizeof(what), "setting of '%s':", section);
		srv_yaml_unknown(&f->yaml, key, what, names, n);
		return;
	}
	size_t index = (size_t)(s - srv_settings);
	if (f->seen[index]) {
		srv_yaml_problem(&f->yaml, &key->start_mark, "%s.%s is given twice", section, s->name);
		return;
	}
	f->seen[index] = true;
	f->places[index] = value->start_mark;
	if (is_null(value))
		return;
	srv_config_clear(f->config, s);
	if (s->kind != SRV_LIST || value->type != YAML_SEQUENCE_NODE) {
		set_scalar(f, s, value);
		return;
	}
	for (yaml_node_item_t *i = value->data.sequence.items.start; i < value->data.sequence.items.top; i++)
		set_scalar(f, s, srv_yaml_node(&f->yaml, *i));
}

/* One setting of a type; prefix: "retry." inside of its section `retry`. */
static void take_type_setting(struct settings_file *f, const char *type, const char *prefix, const yaml_node_t *key,
			      const yaml_node_t *value)
{
	struct sl_err err = SL_ERR_INIT;
	const char *word = srv_yaml_text(key), *text = srv_yaml_text(value);
	struct srv_type_value set = {
		type, text, NULL, {(unsigned)value->start_mark.line + 1, (unsigned)value->start_mark.column + 1}};
	const struct srv_type *known = srv_type_find(f->config, type);
	char name[96];
	if (word == NULL) {
		srv_yaml_problem(&f->yaml, &key->start_mark, "expected the name of a setting, not %s", shape_of(key));
		return;
	}
	if (*prefix == '\0' && strcmp(word, "retry") == 0 && value->type == YAML_MAPPING_NODE) {
		for (yaml_node_pair_t *p = value->data.mapping.pairs.start; p < value->data.mapping.pairs.top; p++)
			take_type_setting(f, type, "retry.", srv_yaml_node(&f->yaml, p->key),
					  srv_yaml_node(&f->yaml, p->value));
		return;
	}
	(void)snprintf(name, sizeof(name), "%s%s", prefix, word);
	for (size_t i = 0; i < SRV_N_TYPE_SETTINGS; i++) {
		if (strcmp(srv_type_settings[i].name, name) != 0)
			continue;
		set.setting = &srv_type_settings[i];
		if (srv_type_has(known, (enum srv_type_index)i))
			srv_yaml_problem(&f->yaml, &key->start_mark, "types.%s.%s is given twice", type, name);
		else if (text == NULL)
			srv_yaml_problem(&f->yaml, &value->start_mark, "types.%s.%s: expected a value, not %s", type,
					 name, shape_of(value));
		else if (!is_null(value) && srv_type_set(f->config, &set, &err) != 0)
			srv_yaml_problem(&f->yaml, &value->start_mark, "%s", err.msg);
		return;
	}
	const char *nearest = srv_type_nearest(name);
	srv_yaml_problem(&f->yaml, &key->start_mark, "unknown setting 'types.%.60s.%.60s'%s%s%s", type, name,
			 nearest != NULL ? "; did you mean '" : "", nearest != NULL ? nearest : "",
			 nearest != NULL ? "'?" : "");
}

/* types: {TYPE: {SETTING: VALUE}} */
static void take_types(struct settings_file *f, const yaml_node_t *types)
{
	for (yaml_node_pair_t *t = types->data.mapping.pairs.start; t < types->data.mapping.pairs.top; t++) {
		const yaml_node_t *key = srv_yaml_node(&f->yaml, t->key), *value = srv_yaml_node(&f->yaml, t->value);
		const char *type = srv_yaml_text(key);
		if (type == NULL)
			srv_yaml_problem(&f->yaml, &key->start_mark, "expected the name of a type, not %s",
					 shape_of(key));
		else if (value->type == YAML_MAPPING_NODE)
			for (yaml_node_pair_t *p = value->data.mapping.pairs.start; p < value->data.mapping.pairs.top;
			     p++)
				take_type_setting(f, type, "", srv_yaml_node(&f->yaml, p->key),
						  srv_yaml_node(&f->yaml, p->value));
		else if (!is_null(value))
			srv_yaml_problem(&f->yaml, &value->start_mark,
					 "types.%.60s: expected its settings, such as {command: ./mail}, not %s", type,
					 shape_of(value));
	}
}

static void take_section(struct settings_file *f, const yaml_node_t *key, const yaml_node_t *value)
{
	const char *names[SRV_N_SETTINGS + 1], *name = srv_yaml_text(key), *owner = NULL;
	bool known = false;
	if (name == NULL) {
		srv_yaml_problem(&f->yaml, &key->start_mark, "expected the name of a section, not %s", shape_of(key));
		return;
	}
	for (int i = 0; i < SRV_N_SETTINGS; i++) {
		names[i] = srv_settings[i].section;
		known = known || strcmp(names[i], name) == 0;
		if (owner == NULL && strcmp(srv_settings[i].name, name) == 0)
			owner = names[i];
	}
	names[SRV_N_SETTINGS] = "types";
	if (strcmp(name, "types") == 0 && value->type == YAML_MAPPING_NODE) {
		take_types(f, value);
		return;
	}
	known |= strcmp(name, "types") == 0;
	if (!known && owner != NULL && srv_nearest(name, names, SRV_N_SETTINGS + 1) == NULL)
		srv_yaml_problem(&f->yaml, &key->start_mark, "'%.60s' belongs in section '%s'", name, owner);
	else if (!known)
		srv_yaml_unknown(&f->yaml, key, "section", names, SRV_N_SETTINGS + 1);
	else if (value->type == YAML_MAPPING_NODE)
		for (yaml_node_pair_t *p = value->data.mapping.pairs.start; p < value->data.mapping.pairs.top; p++)
			take_setting(f, name, srv_yaml_node(&f->yaml, p->key), srv_yaml_node(&f->yaml, p->value));
	else if (!is_null(value))
		srv_yaml_problem(&f->yaml, &value->start_mark, "expected the settings of '%s', not %s", name,
				 shape_of(value));
}

static int take_settings(const yaml_node_t *root, void *ctx)
{
	struct settings_file *f = ctx;
	struct sl_err err = SL_ERR_INIT;
	const yaml_mark_t *at = NULL;
	if (root == NULL || is_null(root))
		return 0;
	if (root->type != YAML_MAPPING_NODE) {
		srv_yaml_problem(&f->yaml, &root->start_mark, "expected sections, not %s", shape_of(root));
		return 0;
	}
	for (yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top; p++)
		take_section(f, srv_yaml_node(&f->yaml, p->key), srv_yaml_node(&f->yaml, p->value));
	if (f->yaml.n_problems > 0 || srv_config_check(f->config, &err) == 0)
		return 0;
	struct srv_place place;
	if (srv_types_check(f->config, &place, &err) != 0) {
		const yaml_mark_t mark = {.line = place.line - 1, .column = place.column - 1};
		srv_yaml_problem(&f->yaml, place.line > 0 ? &mark : NULL, "%s", err.msg);
		return 0;
	}
	/* A problem of several settings together begins with the one that it is about. */
	for (int i = 0; i < SRV_N_SETTINGS; i++) {
		char name[SRV_ENV_BYTES];
		int n = snprintf(name, sizeof(name), "%s.%s:", srv_settings[i].section, srv_settings[i].name);
		if (f->seen[i] && strncmp(err.msg, name, (size_t)n) == 0)
			at = &f->places[i];
	}
	srv_yaml_problem(&f->yaml, at, "%s", err.msg);
	return 0;
}

int srv_config_file(struct srv_config *config, const char *path, srv_problem_fn *fn, void *ctx, struct sl_err *err)
{
	struct settings_file f = {.config = config,
				  .yaml = {.fn = fn, .ctx = ctx, .take = take_settings, .take_ctx = &f}};
	free(config->file);
	config->file = strdup(path);
	if (config->file == NULL)
		return sl__no_memory(err, path);
	int rc = srv_yaml_read(&f.yaml, path, err), n = f.yaml.n_problems;
	if (rc != 0)
		return rc;
	return n > 0 ? sl_err_set(err, SL_ECONFIG, "%s: %d problem%s", path, n, n == 1 ? "" : "s") : 0;
}
