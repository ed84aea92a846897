/* SPDX-License-Identifier: Apache-2.0 */
/* The schema of a dataset: copied, guessed, and as the catalog's text. schema.h describes the text. */
#include "pipeline/export/schema.h"

#include <stdio.h>
#include <stdlib.h>

#include "format/row.h"

void sl__schema_fini(struct sl__schema *s)
{
	for (size_t i = 0; s->columns != NULL && i < s->n; i++)
		sl__free(s->env, (void *)(uintptr_t)s->columns[i].name);
	if (s->env != NULL)
		sl__free(s->env, s->columns);
	*s = (struct sl__schema){.env = NULL};
}

size_t sl__schema_find(const struct sl__schema *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++)
		if (strcmp(s->columns[i].name, name) == 0)
			return i;
	return SIZE_MAX;
}

static int init_schema(struct sl__schema *s, const struct sl_env *env, size_t n, struct sl_err *err)
{
	*s = (struct sl__schema){.env = env};
	if (n == 0 || n > SL__SCHEMA_COLUMNS_MAX)
		return sl_err_set(err, SL_EINVAL, "%zu columns; a dataset has 1 to %zu", n, SL__SCHEMA_COLUMNS_MAX);
	s->columns = sl__calloc(env, n, sizeof(*s->columns));
	return s->columns != NULL ? 0 : sl__no_memory(err, "a schema");
}

static int add_schema_column(struct sl__schema *s, const struct sl_parquet_column *c, struct sl_err *err)
{
	if (c->name == NULL || c->name[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "columns: column %zu has no name", s->n + 1);
	if (c->kind < SL_PARQUET_BOOL || c->kind > SL_PARQUET_FIXED)
		return sl_err_set(err, SL_EINVAL, "columns: %.100s: unknown kind", c->name);
	if (sl__schema_find(s, c->name) != SIZE_MAX)
		return sl_err_set(err, SL_EINVAL, "columns: duplicate column %.100s", c->name);
	char *name = sl__strdup(s->env, c->name);
	if (name == NULL)
		return sl__no_memory(err, "a schema");
	s->columns[s->n] = *c;
	s->columns[s->n].name = name;
	s->columns[s->n++].nullable = c->nullable;
	return 0;
}

int sl__schema_copy(struct sl__schema *out, const struct sl_env *env, const struct sl_parquet_column *columns, size_t n,
		    struct sl_err *err)
{
	struct sl__schema s SL_CLEANUP(sl__schema_fini);
	int rc = init_schema(&s, env, n, err);
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = add_schema_column(&s, &columns[i], err);
	if (rc != 0)
		return rc;
	*out = s;
	s = (struct sl__schema){.env = NULL};
	return 0;
}

/* ---- guessed ---- */

int sl__schema_guess(struct sl__schema *out, const struct sl_env *env, const struct sl__guessed *from,
		     struct sl_err *err)
{
	static const enum sl_parquet_kind kinds[] = {[SL_COLUMN_INTEGER] = SL_PARQUET_INT64,
						     [SL_COLUMN_REAL] = SL_PARQUET_DOUBLE,
						     [SL_COLUMN_BOOLEAN] = SL_PARQUET_BOOL,
						     [SL_COLUMN_TIMESTAMP] = SL_PARQUET_TIMESTAMP,
						     [SL_COLUMN_DATE] = SL_PARQUET_DATE};
	struct sl__schema s SL_CLEANUP(sl__schema_fini);
	int rc = init_schema(&s, env, from->n, err);
	for (size_t i = 0; rc == 0 && i < from->n; i++) {
		const struct sl_column *guess = &from->columns[i];
		struct sl_parquet_column c = {.name = guess->name, .kind = SL_PARQUET_STRING, .nullable = true};
		if ((size_t)guess->kind < SL_COUNT(kinds) && kinds[guess->kind] != 0)
			c.kind = kinds[guess->kind];
		if (strcmp(c.name, from->sequence) == 0) {
			c.kind = SL_PARQUET_INT64;
			c.nullable = false;
		}
		rc = add_schema_column(&s, &c, err);
	}
	if (rc != 0)
		return rc;
	*out = s;
	s = (struct sl__schema){.env = NULL};
	return 0;
}

/* ---- types as text ---- */

static bool number_in(const char **p, int32_t *out)
{
	char *end;
	if (**p < '0' || **p > '9')
		return false;
	long v = strtol(*p, &end, 10);
	*p = end;
	*out = (int32_t)SL_MIN(v, 1000000);
	return true;
}

static bool unit_in(const char *p, struct sl_parquet_column *out)
{
	static const struct {
		const char *text;
		enum sl_parquet_unit unit;
		bool local;
	} units[] = {{"(micros)", SL_PARQUET_MICROS, false},      {"(millis)", SL_PARQUET_MILLIS, false},
		     {"(nanos)", SL_PARQUET_NANOS, false},        {"(micros,local)", SL_PARQUET_MICROS, true},
		     {"(millis,local)", SL_PARQUET_MILLIS, true}, {"(nanos,local)", SL_PARQUET_NANOS, true},
		     {"(local)", SL_PARQUET_MICROS, true},        {"", SL_PARQUET_MICROS, false}};
	for (size_t i = 0; i < SL_COUNT(units); i++)
		if (strcmp(p, units[i].text) == 0) {
			out->unit = units[i].unit;
			out->local = units[i].local;
			return true;
		}
	return false;
}

/* (18,2) of a decimal, (16) of fixed bytes. */
static bool numbers_in(const char *p, struct sl_parquet_column *out)
{
	bool decimal = out->kind == SL_PARQUET_DECIMAL;
	if (*p++ != '(' || !number_in(&p, decimal ? &out->precision : &out->length))
		return false;
	if (decimal && (*p++ != ',' || !number_in(&p, &out->scale)))
		return false;
	if (strcmp(p, ")") != 0)
		return false;
	if (decimal)
		return out->precision >= 1 && out->precision <= 18 && out->scale <= out->precision;
	return out->length >= 1 && out->length <= 65536;
}

int sl_export_column_type(const char *text, struct sl_parquet_column *column, struct sl_err *err)
{
	static const struct {
		const char *word;
		enum sl_parquet_kind kind;
	} words[] = {
		{"bool", SL_PARQUET_BOOL},     {"int32", SL_PARQUET_INT32},     {"int64", SL_PARQUET_INT64},
		{"float", SL_PARQUET_FLOAT},   {"double", SL_PARQUET_DOUBLE},   {"timestamp", SL_PARQUET_TIMESTAMP},
		{"date", SL_PARQUET_DATE},     {"decimal", SL_PARQUET_DECIMAL}, {"string", SL_PARQUET_STRING},
		{"binary", SL_PARQUET_BINARY}, {"fixed", SL_PARQUET_FIXED}};
	struct sl_parquet_column c = *column;
	size_t len = strcspn(text, "(");
	for (size_t i = 0; i < SL_COUNT(words); i++) {
		if (strlen(words[i].word) != len || memcmp(words[i].word, text, len) != 0)
			continue;
		c.kind = words[i].kind;
		bool good = c.kind == SL_PARQUET_TIMESTAMP                               ? unit_in(text + len, &c)
			    : c.kind == SL_PARQUET_DECIMAL || c.kind == SL_PARQUET_FIXED ? numbers_in(text + len, &c)
											 : text[len] == '\0';
		if (!good)
			break;
		*column = c;
		return 0;
	}
	return sl_err_set(
		err, SL_EINVAL,
		"type \"%.60s\": not one of bool, int32, int64, float, double, timestamp(millis|micros|nanos[,local]), "
		"date, decimal(P,S), string, binary, fixed(N)",
		text);
}

/* ---- the text of the catalog ---- */

void sl__schema_put(struct sl__buf *buf, const struct sl__schema *s)
{
	char type[64];
	sl__buf_clear(buf);
	(void)sl__buf_printf(buf, "{\"format\":1,\"zstd_level\":%d}\n", (int)s->zstd_level);
	for (size_t i = 0; i < s->n; i++) {
		const struct sl_parquet_column *c = &s->columns[i];
		(void)sl__buf_append(buf, "{", 1);
		if (c->dictionary == SL_ON || c->dictionary == SL_OFF)
			(void)sl__buf_printf(buf, "\"dictionary\":\"%s\",", c->dictionary == SL_ON ? "on" : "off");
		(void)sl__buf_str_append(buf, "\"name\":");
		sl__put_json_string(buf, c->name, strlen(c->name));
		(void)sl__buf_printf(buf, ",\"nullable\":%s,\"type\":\"%s\"}\n", c->nullable ? "true" : "false",
				     sl_parquet_type_name(c, type, sizeof(type)));
	}
}

enum { F_FORMAT, F_LEVEL, F_NAME, F_NULLABLE, F_TYPE, F_DICTIONARY, F_N };
static const char *const fields_of_text[] = {"format", "zstd_level", "name", "nullable", "type", "dictionary"};
static const char unreadable[] = "the catalog's schema cannot be parsed";

static bool field_text(const struct sl__field *f, char *to, size_t n)
{
	bool fits = (f->kind == SL__FIELD_TEXT || f->kind == SL__FIELD_NUMBER) && f->len < n;
	if (fits) {
		memcpy(to, f->text, f->len);
		to[f->len] = '\0';
	}
	return fits;
}

static int parse_column(struct sl__schema *s, const struct sl__field *f, struct sl_err *err)
{
	char type[64], word[8];
	struct sl_parquet_column c = {.nullable = f[F_NULLABLE].kind == SL__FIELD_TRUE};
	char *name = sl__alloc(s->env, f[F_NAME].len + 1);
	if (name == NULL)
		return sl__no_memory(err, "a schema");
	int rc = SL_EINVAL;
	if (field_text(&f[F_NAME], name, f[F_NAME].len + 1) && field_text(&f[F_TYPE], type, sizeof(type)))
		rc = sl_export_column_type(type, &c, NULL);
	if (field_text(&f[F_DICTIONARY], word, sizeof(word)))
		c.dictionary = strcmp(word, "on") == 0 ? SL_ON : SL_OFF;
	c.name = name;
	if (rc == 0)
		rc = add_schema_column(s, &c, err);
	sl__free(s->env, name);
	return rc == 0 || rc == SL_ENOMEM ? rc : sl_err_set(err, SL_ECORRUPT, "%s", unreadable);
}

int sl__schema_parse(struct sl__schema *out, const struct sl_env *env, const char *text, struct sl_err *err)
{
	const struct sl__row_opts opts = {.env = env, .columns = fields_of_text, .n_columns = F_N};
	struct sl__row_reader *r = NULL;
	struct sl__schema s SL_CLEANUP(sl__schema_fini);
	struct sl__field f[F_N];
	size_t lines = 0;
	for (const char *p = text; *p != '\0'; p++)
		lines += *p == '\n';
	int rc = init_schema(&s, env, lines > 1 ? lines - 1 : 0, err);
	if (rc == SL_EINVAL)
		return sl_err_set(err, SL_ECORRUPT, "%s", unreadable);
	if (rc == 0)
		rc = sl__row_reader_new(&r, &opts, err);
	for (size_t line = 0; rc == 0 && *text != '\0'; line++) {
		char format[8], level[8];
		size_t len = strcspn(text, "\n");
		if (sl__row_read(r, text, len, f, err) != 0) {
			rc = sl_err_set(err, SL_ECORRUPT, "%s", unreadable);
		} else if (line > 0) {
			rc = parse_column(&s, f, err);
		} else if (!field_text(&f[F_FORMAT], format, sizeof(format)) ||
			   !field_text(&f[F_LEVEL], level, sizeof(level))) {
			rc = sl_err_set(err, SL_ECORRUPT, "%s", unreadable);
		} else if (strcmp(format, "1") != 0) {
			rc = sl_err_set(err, SL_EUNSUPPORTED, "the dataset was created by a later version of Sluice");
		} else {
			s.zstd_level = (int32_t)strtol(level, NULL, 10);
		}
		text += len + (text[len] == '\n');
	}
	sl__row_reader_free(r);
	if (rc != 0)
		return rc;
	*out = s;
	s = (struct sl__schema){.env = NULL};
	return 0;
}
