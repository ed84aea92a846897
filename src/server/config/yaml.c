/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A configuration file: two levels of YAML, sections and their settings. The whole file is looked at, so that one run
 * of `sluice config check` names every problem with its line and column; a document's nodes know where they stand
 * (libcyaml 1.3 stops at the first problem and places an unknown name at the line before it).
 */
#include "server/config/config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct reader {
	struct srv_config *config;
	yaml_document_t doc;
	yaml_mark_t places[SRV_N_SETTINGS]; /* of the values that were seen */
	char seen[SRV_N_SETTINGS];
	srv_config_problem_fn *fn;
	void *ctx;
	int problems;
};

static void problem(struct reader *r, const yaml_mark_t *at, const char *fmt, ...) SL_PRINTF(3, 4);
static void problem(struct reader *r, const yaml_mark_t *at, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	r->problems++;
	r->fn(at ? at->line + 1 : 0, at ? at->column + 1 : 0, text, r->ctx);
}

static const char *text_of(const yaml_node_t *node)
{
	return node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
}

/* `name:` with nothing behind it, or ~, or null: as if it were not there. */
static int is_null(const yaml_node_t *node)
{
	const char *text = text_of(node);

	return text && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
	       (!*text || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
}

static const char *shape_of(const yaml_node_t *node)
{
	return node->type == YAML_MAPPING_NODE ? "a section" : node->type == YAML_SEQUENCE_NODE ? "a list" : "a value";
}

static void take_scalar(struct reader *r, const struct srv_setting *s, const yaml_node_t *value)
{
	struct sl_err err = SL_ERR_INIT;

	if (!text_of(value))
		problem(r, &value->start_mark, "%s.%s: %s where a value is expected", s->section, s->name,
			shape_of(value));
	else if (strlen(text_of(value)) != value->data.scalar.length)
		problem(r, &value->start_mark, "%s.%s: a NUL character in it", s->section, s->name);
	else if (srv_config_set(r->config, s, text_of(value), &err))
		problem(r, &value->start_mark, "%s", err.msg);
}

static void take_value(struct reader *r, const struct srv_setting *s, const yaml_node_t *value)
{
	r->places[s - srv_settings] = value->start_mark;
	if (is_null(value))
		return;
	srv_config_clear(r->config, s);
	if (s->kind != SRV_LIST || value->type != YAML_SEQUENCE_NODE) {
		take_scalar(r, s, value);
		return;
	}
	for (yaml_node_item_t *i = value->data.sequence.items.start; i < value->data.sequence.items.top; i++)
		take_scalar(r, s, yaml_document_get_node(&r->doc, *i));
}

static void unknown_name(struct reader *r, const char *section, const yaml_node_t *key)
{
	const char *names[SRV_N_SETTINGS], *nearest;
	size_t n = 0;

	for (const struct srv_setting *s = srv_settings; s->section; s++) {
		if (strcmp(s->section, section) == 0)
			names[n++] = s->name;
	}
	nearest = srv_nearest(text_of(key), names, n);
	problem(r, &key->start_mark, "'%.60s' is no setting of '%s'%s%s%s", text_of(key), section,
		nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

static void unknown_section(struct reader *r, const yaml_node_t *key)
{
	const char *names[SRV_N_SETTINGS], *nearest;

	for (int i = 0; i < SRV_N_SETTINGS; i++)
		names[i] = srv_settings[i].section;
	nearest = srv_nearest(text_of(key), names, SRV_N_SETTINGS);
	for (int i = 0; !nearest && i < SRV_N_SETTINGS; i++) {
		if (strcmp(srv_settings[i].name, text_of(key)) == 0) {
			problem(r, &key->start_mark, "'%.60s' belongs into the section '%s'", text_of(key), names[i]);
			return;
		}
	}
	problem(r, &key->start_mark, "'%.60s' is no section%s%s%s", text_of(key), nearest ? "; did you mean '" : "",
		nearest ? nearest : "", nearest ? "'?" : "");
}

static void take_pair(struct reader *r, const char *section, const yaml_node_t *key, const yaml_node_t *value)
{
	const struct srv_setting *s = text_of(key) ? srv_setting_find(section, text_of(key)) : NULL;

	if (!text_of(key))
		problem(r, &key->start_mark, "%s where the name of a setting is expected", shape_of(key));
	else if (!s)
		unknown_name(r, section, key);
	else if (r->seen[s - srv_settings]++)
		problem(r, &key->start_mark, "%s.%s is given twice", section, s->name);
	else
		take_value(r, s, value);
}

static int known_section(const char *name)
{
	for (const struct srv_setting *s = srv_settings; s->section; s++) {
		if (strcmp(s->section, name) == 0)
			return 1;
	}
	return 0;
}

static void take_section(struct reader *r, const yaml_node_t *key, const yaml_node_t *value)
{
	if (!text_of(key)) {
		problem(r, &key->start_mark, "%s where the name of a section is expected", shape_of(key));
	} else if (!known_section(text_of(key))) {
		unknown_section(r, key);
	} else if (value->type == YAML_MAPPING_NODE) {
		for (yaml_node_pair_t *p = value->data.mapping.pairs.start; p < value->data.mapping.pairs.top; p++)
			take_pair(r, text_of(key), yaml_document_get_node(&r->doc, p->key),
				  yaml_document_get_node(&r->doc, p->value));
	} else if (!is_null(value)) {
		problem(r, &value->start_mark, "%s where the settings of '%s' are expected", shape_of(value),
			text_of(key));
	}
}

/* What single values do not show; the text begins with the setting that it is about. */
static void take_together(struct reader *r)
{
	struct sl_err err = SL_ERR_INIT;
	const yaml_mark_t *at = NULL;

	if (r->problems || !srv_config_check(r->config, &err))
		return;
	for (int i = 0; i < SRV_N_SETTINGS; i++) {
		char name[SRV_ENV_BYTES];
		int n = snprintf(name, sizeof(name), "%s.%s:", srv_settings[i].section, srv_settings[i].name);

		if (r->seen[i] && strncmp(err.msg, name, (size_t)n) == 0)
			at = &r->places[i];
	}
	problem(r, at, "%s", err.msg);
}

static void take_document(struct reader *r)
{
	yaml_node_t *root = yaml_document_get_root_node(&r->doc);

	if (!root || is_null(root))
		return;
	if (root->type != YAML_MAPPING_NODE) {
		problem(r, &root->start_mark, "%s where sections are expected", shape_of(root));
		return;
	}
	for (yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top; p++)
		take_section(r, yaml_document_get_node(&r->doc, p->key), yaml_document_get_node(&r->doc, p->value));
	take_together(r);
}

/* The parser's own words, with the place where it gave up. */
static void syntax_problem(struct reader *r, const yaml_parser_t *parser)
{
	problem(r, parser->error == YAML_READER_ERROR ? NULL : &parser->problem_mark, "%s%s%s",
		parser->context ? parser->context : "", parser->context ? ": " : "",
		parser->problem ? parser->problem : "not YAML");
}

/* What cannot be read, a folder for one, is told as such, before the parser makes an "input error" of it. */
static FILE *open_file(const char *path, struct sl_err *err)
{
	FILE *file = fopen(path, "rbe");
	int c = file ? getc(file) : EOF;

	if (file && (c != EOF || !ferror(file))) {
		(void)ungetc(c, file); /* nothing, at the end */
		return file;
	}
	(void)sl_err_set_errno(err, errno, "%s %s", file ? "read" : "open", path);
	if (file)
		(void)fclose(file);
	return NULL;
}

int srv_config_file(struct srv_config *config, const char *path, srv_config_problem_fn *fn, void *ctx,
		    struct sl_err *err)
{
	struct reader r = {.config = config, .fn = fn, .ctx = ctx};
	yaml_parser_t parser;
	FILE *file = open_file(path, err);

	if (!file)
		return err ? err->code : SL_EIO;
	if (!yaml_parser_initialize(&parser)) {
		(void)fclose(file);
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	}
	yaml_parser_set_input_file(&parser, file);
	if (!yaml_parser_load(&parser, &r.doc)) {
		syntax_problem(&r, &parser);
	} else {
		take_document(&r);
		yaml_document_delete(&r.doc);
	}
	yaml_parser_delete(&parser);
	(void)fclose(file);
	return r.problems
		       ? sl_err_set(err, SL_ECONFIG, "%s: %d problem%s", path, r.problems, r.problems == 1 ? "" : "s")
		       : 0;
}
