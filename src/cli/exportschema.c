/* SPDX-License-Identifier: Apache-2.0 */
#include "exportschema.h"

#include "server/config/config.h"

#include <ctype.h>
#include <errno.h>
#include <sluice/export.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct reader {
	struct exportschema *schema;
	struct cli *cli;
	const char *path;
	yaml_document_t doc;
	int problems;
};

/* What a type has beside its name and whether it is nullable. */
enum detail { DETAIL_NONE, DETAIL_UNIT, DETAIL_DECIMAL, DETAIL_LENGTH };

static const struct type {
	const char *name;
	enum sl_parquet_kind kind;
	enum detail detail;
} types[] = {
	{"bool", SL_PARQUET_BOOL, DETAIL_NONE},     {"int32", SL_PARQUET_INT32, DETAIL_NONE},
	{"int64", SL_PARQUET_INT64, DETAIL_NONE},   {"float", SL_PARQUET_FLOAT, DETAIL_NONE},
	{"double", SL_PARQUET_DOUBLE, DETAIL_NONE}, {"timestamp", SL_PARQUET_TIMESTAMP, DETAIL_UNIT},
	{"date", SL_PARQUET_DATE, DETAIL_NONE},     {"decimal", SL_PARQUET_DECIMAL, DETAIL_DECIMAL},
	{"string", SL_PARQUET_STRING, DETAIL_NONE}, {"binary", SL_PARQUET_BINARY, DETAIL_NONE},
	{"fixed", SL_PARQUET_FIXED, DETAIL_LENGTH},
};
enum { N_TYPES = sizeof(types) / sizeof(types[0]) };

enum key { KEY_NAME, KEY_TYPE, KEY_NULLABLE, KEY_UNIT, KEY_PRECISION, KEY_SCALE, KEY_LENGTH, N_KEYS };
static const char *const key_names[N_KEYS] = {"name", "type", "nullable", "unit", "precision", "scale", "length"};
/* The types that each of the last ones is for. */
static const enum detail key_details[N_KEYS] = {[KEY_UNIT] = DETAIL_UNIT,
						[KEY_PRECISION] = DETAIL_DECIMAL,
						[KEY_SCALE] = DETAIL_DECIMAL,
						[KEY_LENGTH] = DETAIL_LENGTH};

static void problem(struct reader *r, const yaml_mark_t *at, const char *fmt, ...) SL_PRINTF(3, 4);
static void problem(struct reader *r, const yaml_mark_t *at, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	r->problems++;
	if (at)
		cli_say(r->cli, SL_LOG_ERROR, "%s:%zu:%zu: %s", r->path, at->line + 1, at->column + 1, text);
	else
		cli_say(r->cli, SL_LOG_ERROR, "%s: %s", r->path, text);
}

static const char *text_of(const yaml_node_t *node)
{
	return node && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
}

/* Of a value that is known to be one. */
static const char *value_of(const yaml_node_t *node)
{
	const char *text = text_of(node);

	return text ? text : "";
}

static void unknown_word(struct reader *r, const yaml_node_t *node, const char *what, const char *const *words,
			 size_t n)
{
	const char *nearest = srv_nearest(value_of(node), words, n);

	problem(r, &node->start_mark, "'%.60s' is no %s%s%s%s", value_of(node), what, nearest ? "; did you mean '" : "",
		nearest ? nearest : "", nearest ? "'?" : "");
}

/* ---- one column ---- */

static int take_number(struct reader *r, const yaml_node_t *value, enum key key, long least, long most, int32_t *out)
{
	const char *text = value_of(value);
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	if (errno || end == text || *end || isspace((unsigned char)*text) || n < least || n > most) {
		problem(r, &value->start_mark, "%s: '%.60s' is not a whole number from %ld to %ld", key_names[key],
			text, least, most);
		return -1;
	}
	*out = (int32_t)n;
	return 0;
}

static void take_unit(struct reader *r, const yaml_node_t *value, struct sl_parquet_column *c)
{
	static const char *const units[] = {"micros", "millis", "nanos"}; /* as enum sl_parquet_unit */

	for (int i = 0; i < 3; i++) {
		if (strcmp(value_of(value), units[i]) == 0) {
			c->unit = (enum sl_parquet_unit)i;
			return;
		}
	}
	unknown_word(r, value, "unit", units, 3);
}

static void take_nullable(struct reader *r, const yaml_node_t *value, struct sl_parquet_column *c)
{
	const char *text = value_of(value);

	if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
		c->nullable = *text == 't';
	else
		problem(r, &value->start_mark, "nullable: '%.60s' is not true or false", text);
}

static const struct type *take_type(struct reader *r, const yaml_node_t *value, struct sl_parquet_column *c)
{
	const char *names[N_TYPES];

	for (int i = 0; i < N_TYPES; i++) {
		names[i] = types[i].name;
		if (strcmp(value_of(value), types[i].name) == 0) {
			c->kind = types[i].kind;
			return &types[i];
		}
	}
	/* As 'sluice parquet schema' prints it, with its details. */
	if (strchr(value_of(value), '(')) {
		static const struct type complete = {.name = "with its details in brackets", .detail = DETAIL_NONE};
		struct sl_err err;

		if (sl_export_column_type(value_of(value), c, &err) == 0)
			return &complete;
		problem(r, &value->start_mark, "%s", err.msg);
		return NULL;
	}
	unknown_word(r, value, "type", names, N_TYPES);
	return NULL;
}

static int take_name(struct reader *r, const yaml_node_t *value, struct sl_parquet_column *c)
{
	const char *text = value_of(value);

	if (!*text || strlen(text) != value->data.scalar.length) {
		problem(r, &value->start_mark, "name: %s", *text ? "a NUL character in it" : "is empty");
		return 0;
	}
	for (size_t i = 0; i < r->schema->n; i++) {
		if (r->schema->columns[i].name && strcmp(r->schema->columns[i].name, text) == 0) {
			problem(r, &value->start_mark, "the column '%.60s' is there twice", text);
			return 0;
		}
	}
	c->name = strdup(text);
	return c->name ? 0 : -1;
}

/* What goes with the type, once that is known. */
static void take_details(struct reader *r, const yaml_node_t *node, const struct type *type, yaml_node_t *const *values,
			 struct sl_parquet_column *c)
{
	for (int k = KEY_UNIT; k < N_KEYS; k++) {
		if (values[k] && key_details[k] != type->detail)
			problem(r, &values[k]->start_mark, "%s: a column of type %s has none", key_names[k],
				type->name);
	}
	if (type->detail == DETAIL_UNIT && values[KEY_UNIT])
		take_unit(r, values[KEY_UNIT], c);
	if (type->detail == DETAIL_LENGTH && !values[KEY_LENGTH])
		problem(r, &node->start_mark, "a column of type fixed needs a length");
	else if (type->detail == DETAIL_LENGTH)
		(void)take_number(r, values[KEY_LENGTH], KEY_LENGTH, 1, 65536, &c->length);
	if (type->detail != DETAIL_DECIMAL)
		return;
	if (!values[KEY_PRECISION])
		problem(r, &node->start_mark, "a column of type decimal needs a precision");
	else if (take_number(r, values[KEY_PRECISION], KEY_PRECISION, 1, 18, &c->precision) == 0 && values[KEY_SCALE])
		(void)take_number(r, values[KEY_SCALE], KEY_SCALE, 0, c->precision, &c->scale);
}

static int key_of(const char *text)
{
	for (int k = 0; k < N_KEYS; k++) {
		if (strcmp(key_names[k], text) == 0)
			return k;
	}
	return -1;
}

/* The values of a column by key. Names that are none, and what is no value, are told and left out. */
static void gather(struct reader *r, const yaml_node_t *node, yaml_node_t **values)
{
	for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
		yaml_node_t *key = yaml_document_get_node(&r->doc, p->key);
		yaml_node_t *value = yaml_document_get_node(&r->doc, p->value);
		int k = text_of(key) ? key_of(text_of(key)) : -1;

		if (!text_of(key))
			problem(r, &key->start_mark, "a list or a mapping where a name is expected");
		else if (k < 0)
			unknown_word(r, key, "property of a column", key_names, N_KEYS);
		else if (!text_of(value))
			problem(r, &value->start_mark, "%s: a list or a mapping where a value is expected",
				key_names[k]);
		else if (values[k])
			problem(r, &key->start_mark, "%s is given twice", key_names[k]);
		else
			values[k] = value;
	}
}

static int take_column(struct reader *r, const yaml_node_t *node, struct sl_parquet_column *c)
{
	yaml_node_t *values[N_KEYS] = {NULL};
	const struct type *type = NULL;
	int before = r->problems;

	c->nullable = 1;
	if (node->type != YAML_MAPPING_NODE) {
		problem(r, &node->start_mark, "a column is a mapping: {name: …, type: …}");
		return 0;
	}
	gather(r, node, values);
	for (int k = KEY_NAME; k <= KEY_TYPE && r->problems == before; k++) {
		if (!values[k])
			problem(r, &node->start_mark, "a column without a %s", key_names[k]);
	}
	if (values[KEY_NAME] && take_name(r, values[KEY_NAME], c))
		return -1;
	if (values[KEY_NULLABLE])
		take_nullable(r, values[KEY_NULLABLE], c);
	if (values[KEY_TYPE])
		type = take_type(r, values[KEY_TYPE], c);
	if (type)
		take_details(r, node, type, values, c);
	return 0;
}

/* ---- the file ---- */

static int take_columns(struct reader *r, const yaml_node_t *list)
{
	size_t n = (size_t)(list->data.sequence.items.top - list->data.sequence.items.start);

	if (n == 0) {
		problem(r, &list->start_mark, "no columns");
		return 0;
	}
	r->schema->columns = calloc(n, sizeof(*r->schema->columns));
	if (!r->schema->columns)
		return -1;
	for (size_t i = 0; i < n; i++, r->schema->n++) {
		if (take_column(r, yaml_document_get_node(&r->doc, list->data.sequence.items.start[i]),
				&r->schema->columns[i]))
			return -1;
	}
	return 0;
}

static int take_document(struct reader *r)
{
	const yaml_node_t *root = yaml_document_get_root_node(&r->doc), *list = NULL;

	if (!root || root->type != YAML_MAPPING_NODE) {
		problem(r, root ? &root->start_mark : NULL, "a schema begins with 'columns:' and a list of them");
		return 0;
	}
	for (yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top; p++) {
		const yaml_node_t *key = yaml_document_get_node(&r->doc, p->key);

		if (text_of(key) && strcmp(text_of(key), "columns") == 0 && !list)
			list = yaml_document_get_node(&r->doc, p->value);
		else
			problem(r, &key->start_mark, "'%.60s' where only one 'columns' is expected",
				text_of(key) ? text_of(key) : "…");
	}
	if (list && list->type == YAML_SEQUENCE_NODE)
		return take_columns(r, list);
	problem(r, list ? &list->start_mark : &root->start_mark, "a schema begins with 'columns:' and a list of them");
	return 0;
}

static int parse(struct reader *r, FILE *file)
{
	yaml_parser_t parser;
	int rc = 0;

	if (!yaml_parser_initialize(&parser))
		return -1;
	yaml_parser_set_input_file(&parser, file);
	if (!yaml_parser_load(&parser, &r->doc)) {
		problem(r, parser.error == YAML_READER_ERROR ? NULL : &parser.problem_mark, "%s%s%s",
			parser.context ? parser.context : "", parser.context ? ": " : "",
			parser.problem ? parser.problem : "not YAML");
	} else {
		rc = take_document(r);
		yaml_document_delete(&r->doc);
	}
	yaml_parser_delete(&parser);
	return rc;
}

int exportschema_read(struct exportschema *schema, struct cli *cli, const char *path)
{
	struct reader r = {.schema = schema, .cli = cli, .path = path};
	struct sl_err err = SL_ERR_INIT;
	FILE *file = fopen(path, "rbe");
	int rc;

	*schema = (struct exportschema){.n = 0};
	if (!file) {
		(void)sl_err_set_errno(&err, errno, "open %s", path);
		return cli_fail(cli, &err, path);
	}
	rc = parse(&r, file);
	(void)fclose(file);
	if (rc) {
		cli_say(cli, SL_LOG_ERROR, "out of memory");
		return EXIT_INTERNAL;
	}
	return r.problems ? sl_err_exit_code(SL_ECONFIG) : 0;
}

void exportschema_fini(struct exportschema *schema)
{
	for (size_t i = 0; schema->columns && i < schema->n; i++)
		free((char *)(uintptr_t)schema->columns[i].name);
	free(schema->columns);
	*schema = (struct exportschema){.n = 0};
}
