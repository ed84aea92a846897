/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A configuration file: two levels of YAML, sections and their settings. The whole file is read, so that one run of
 * `sluice config check` reports every problem.
 */
#include "server/config/config.h"
#include "server/config/yaml.h"

#include <stdio.h>
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

static void take_section(struct settings_file *f, const yaml_node_t *key, const yaml_node_t *value)
{
	const char *names[SRV_N_SETTINGS], *name = srv_yaml_text(key), *owner = NULL;
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
	if (!known && owner != NULL && srv_nearest(name, names, SRV_N_SETTINGS) == NULL)
		srv_yaml_problem(&f->yaml, &key->start_mark, "'%.60s' belongs in section '%s'", name, owner);
	else if (!known)
		srv_yaml_unknown(&f->yaml, key, "section", names, SRV_N_SETTINGS);
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
	int rc = srv_yaml_read(&f.yaml, path, err), n = f.yaml.n_problems;
	if (rc != 0)
		return rc;
	return n > 0 ? sl_err_set(err, SL_ECONFIG, "%s: %d problem%s", path, n, n == 1 ? "" : "s") : 0;
}
