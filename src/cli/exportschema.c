/* SPDX-License-Identifier: Apache-2.0 */
/* The YAML file with the columns of an export. */
#include "exportschema.h"

#include "configfile.h"
#include "server/config/yaml.h"

#include <ctype.h>
#include <errno.h>
#include <sluice/export.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
	struct exportschema *schema;
	struct srv_yaml yaml;
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

/* Of a value that is known to be one. */
static const char *value_of(const yaml_node_t *node)
{
	const char *text = srv_yaml_text(node);

	return text != NULL ? text : "";
}

/* ---- one column ---- */

static int take_number(struct reader *r, const yaml_node_t *value, enum key key, long least, long most, int32_t *out)
{
	const char *text = value_of(value);
	char *end;
	long n;

	/* strtol takes blanks and a sign before a number, which YAML did not mean. */
	errno = 0;
	n = strtol(text, &end, 10);
	if (errno || end == text || *end || isspace((unsigned char)*text) || n < least || n > most) {
		srv_yaml_problem(&r->yaml, &value->start_mark, "%s: '%.60s' is not a whole number from %ld to %ld",
				 key_names[key], text, least, most);
		return -1;
	}
	*out = (int32_t)n;
	return 0;
}

static const struct type *take_type(struct reader *r, const yaml_node_t *value, struct sl_parquet_column *c)
{
	const char *names[N_TYPES];

	/* A plain name; details are separate keys. */
	for (int i = 0; i < N_TYPES; i++) {
		names[i] = types[i].name;
		if (strcmp(value_of(value), types[i].name) == 0) {
			c->kind = types[i].kind;
			return &types[i];
		}
	}
	/* As 'sluice parquet schema' prints it, with its details. */
	if (strchr(value_of(value), '(') != NULL) {
		static const struct type complete = {.name = "with its details in brackets", .detail = DETAIL_NONE};
		struct sl_err err;

		if (sl_export_column_type(value_of(value), c, &err) == 0)
			return &complete;
		srv_yaml_problem(&r->yaml, &value->start_mark, "%s", err.msg);
		return NULL;
	}
	srv_yaml_unknown(&r->yaml, value, "type", names, N_TYPES);
	return NULL;
}

static int take_name(struct reader *r, const yaml_node_t *value, struct sl_parquet_column *c)
{
	const char *text = value_of(value);

	if (!*text || strlen(text) != value->data.scalar.length) {
		srv_yaml_problem(&r->yaml, &value->start_mark, "name: %s",
				 *text ? "contains a NUL character" : "is empty");
		return 0;
	}
	for (size_t i = 0; i < r->schema->n; i++) {
		if (r->schema->columns[i].name != NULL && strcmp(r->schema->columns[i].name, text) == 0) {
			srv_yaml_problem(&r->yaml, &value->start_mark, "duplicate column '%.60s'", text);
			return 0;
		}
	}
	c->name = strdup(text);
	return c->name != NULL ? 0 : -1;
}

/* What goes with the type, once that is known. */
static void take_details(struct reader *r, const yaml_node_t *node, const struct type *type,
			 const yaml_node_t *const *values, struct sl_parquet_column *c)
{
	static const char *const units[] = {"micros", "millis", "nanos"}; /* as enum sl_parquet_unit */

	/* A detail of another type is a mistake, not ignored. */
	for (int k = KEY_UNIT; k < N_KEYS; k++) {
		if (values[k] != NULL && key_details[k] != type->detail)
			srv_yaml_problem(&r->yaml, &values[k]->start_mark, "%s: a column of type %s has none",
					 key_names[k], type->name);
	}
	if (type->detail == DETAIL_UNIT && values[KEY_UNIT] != NULL) {
		int unit = 0;

		while (unit < 3 && strcmp(value_of(values[KEY_UNIT]), units[unit]) != 0)
			unit++;
		if (unit < 3)
			c->unit = (enum sl_parquet_unit)unit;
		else
			srv_yaml_unknown(&r->yaml, values[KEY_UNIT], "unit", units, 3);
	}
	if (type->detail == DETAIL_LENGTH && values[KEY_LENGTH] == NULL)
		srv_yaml_problem(&r->yaml, &node->start_mark, "a column of type fixed needs a length");
	else if (type->detail == DETAIL_LENGTH)
		(void)take_number(r, values[KEY_LENGTH], KEY_LENGTH, 1, 65536, &c->length);
	if (type->detail != DETAIL_DECIMAL)
		return;
	if (values[KEY_PRECISION] == NULL)
		srv_yaml_problem(&r->yaml, &node->start_mark, "a column of type decimal needs a precision");
	else if (take_number(r, values[KEY_PRECISION], KEY_PRECISION, 1, 18, &c->precision) == 0 &&
		 values[KEY_SCALE] != NULL)
		(void)take_number(r, values[KEY_SCALE], KEY_SCALE, 0, c->precision, &c->scale);
}

/* The values of a column by key. Unknown names and what is not a value are reported and left out. */
static void gather(struct reader *r, const yaml_node_t *node, const yaml_node_t **values)
{
	for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
		const yaml_node_t *key = srv_yaml_node(&r->yaml, p->key);
		const yaml_node_t *value = srv_yaml_node(&r->yaml, p->value);
		int k = 0;

		while (srv_yaml_text(key) != NULL && k < N_KEYS && strcmp(key_names[k], srv_yaml_text(key)) != 0)
			k++;
		if (srv_yaml_text(key) == NULL)
			srv_yaml_problem(&r->yaml, &key->start_mark, "expected a name, not a list or a mapping");
		else if (k == N_KEYS)
			srv_yaml_unknown(&r->yaml, key, "property of a column", key_names, N_KEYS);
		else if (srv_yaml_text(value) == NULL)
			srv_yaml_problem(&r->yaml, &value->start_mark, "%s: expected a value, not a list or a mapping",
					 key_names[k]);
		else {
			if (values[k] != NULL)
				srv_yaml_problem(&r->yaml, &key->start_mark, "%s is given twice", key_names[k]);
			else
				values[k] = value;
		}
	}
}

static int take_column(struct reader *r, const yaml_node_t *node, struct sl_parquet_column *c)
{
	const yaml_node_t *values[N_KEYS] = {NULL};
	const struct type *type = NULL;
	int before = r->yaml.n_problems;

	c->nullable = true;
	if (node->type != YAML_MAPPING_NODE) {
		srv_yaml_problem(&r->yaml, &node->start_mark, "expected a column as a mapping: {name: …, type: …}");
		return 0;
	}
	/* All keys are read before they are judged, so that every problem is reported at once. */
	gather(r, node, values);
	for (int k = KEY_NAME; k <= KEY_TYPE && r->yaml.n_problems == before; k++) {
		if (values[k] == NULL)
			srv_yaml_problem(&r->yaml, &node->start_mark, "column without a %s", key_names[k]);
	}
	if (values[KEY_NAME] != NULL && take_name(r, values[KEY_NAME], c))
		return -1;
	if (values[KEY_NULLABLE] != NULL) {
		const char *text = value_of(values[KEY_NULLABLE]);

		if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
			c->nullable = *text == 't';
		else
			srv_yaml_problem(&r->yaml, &values[KEY_NULLABLE]->start_mark,
					 "nullable: '%.60s' is not true or false", text);
	}
	if (values[KEY_TYPE] != NULL)
		type = take_type(r, values[KEY_TYPE], c);
	if (type != NULL)
		take_details(r, node, type, values, c);
	return 0;
}

/* ---- the file ---- */

static int take_document(const yaml_node_t *root, void *ctx)
{
	struct reader *r = ctx;
	struct exportschema *schema = r->schema;
	const yaml_node_t *list = NULL;
	size_t n;

	if (root == NULL || root->type != YAML_MAPPING_NODE) {
		srv_yaml_problem(&r->yaml, root != NULL ? &root->start_mark : NULL,
				 "a schema must begin with 'columns:' and a list of columns");
		return 0;
	}
	/* One key, "columns": anything else is most likely a slip of indentation. */
	for (yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top; p++) {
		const yaml_node_t *key = srv_yaml_node(&r->yaml, p->key);

		if (srv_yaml_text(key) != NULL && strcmp(srv_yaml_text(key), "columns") == 0 && list == NULL)
			list = srv_yaml_node(&r->yaml, p->value);
		else
			srv_yaml_problem(&r->yaml, &key->start_mark, "unknown key '%.60s'; a schema has only 'columns'",
					 srv_yaml_text(key) != NULL ? srv_yaml_text(key) : "…");
	}
	if (list == NULL || list->type != YAML_SEQUENCE_NODE) {
		srv_yaml_problem(&r->yaml, list != NULL ? &list->start_mark : &root->start_mark,
				 "a schema must begin with 'columns:' and a list of columns");
		return 0;
	}
	n = (size_t)(list->data.sequence.items.top - list->data.sequence.items.start);
	if (n == 0) {
		srv_yaml_problem(&r->yaml, &list->start_mark, "no columns");
		return 0;
	}
	/* The count grows with each column, so that a failure frees what is there. */
	schema->columns = calloc(n, sizeof(*schema->columns));
	for (size_t i = 0; schema->columns != NULL && i < n; i++, schema->n++) {
		if (take_column(r, srv_yaml_node(&r->yaml, list->data.sequence.items.start[i]), &schema->columns[i]))
			return SL_ENOMEM;
	}
	return schema->columns != NULL ? 0 : SL_ENOMEM;
}

int exportschema_read(struct exportschema *schema, struct cli *cli, const char *path)
{
	struct configfile_problems problems = {.cli = cli, .path = path};
	struct reader r = {.schema = schema,
			   .yaml = {.fn = configfile_problem, .ctx = &problems, .take = take_document, .take_ctx = &r}};
	struct sl_err err = SL_ERR_INIT;
	int rc;

	*schema = (struct exportschema){.n = 0};
	rc = srv_yaml_read(&r.yaml, path, &err);
	if (rc == SL_ENOMEM)
		return cli_no_memory(cli);
	if (rc != 0)
		return cli_fail(cli, &err, path);
	return r.yaml.n_problems ? sl_err_exit_code(SL_ECONFIG) : 0;
}

void exportschema_fini(struct exportschema *schema)
{
	for (size_t i = 0; schema->columns != NULL && i < schema->n; i++)
		free((char *)(uintptr_t)schema->columns[i].name);
	free(schema->columns);
	*schema = (struct exportschema){.n = 0};
}
