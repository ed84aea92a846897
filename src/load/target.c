/* SPDX-License-Identifier: Apache-2.0 */
/* Targets as JSON text, and back; target.h says what is in it. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load/target.h"

static const char *const bodies[] = {"jsonl", "array", "cloudevents"};

/* A target must be written completely: a dead letter without its key would be appended instead of replacing a row. */
struct text {
	json_t *object;
	bool failed;
};

static void set_value(struct text *t, const char *name, json_t *value)
{
	t->failed = value == NULL || json_object_set_new(t->object, name, value) || t->failed;
}

static void set_text(struct text *t, const char *name, const char *value)
{
	if (value != NULL)
		set_value(t, name, json_string(value));
}

static void set_list(struct text *t, const char *name, const char *const *list, size_t n)
{
	json_t *array = list != NULL ? json_array() : NULL;

	for (size_t i = 0; array != NULL && i < n; i++)
		if (json_array_append_new(array, json_string(list[i]))) {
			json_decref(array);
			array = NULL;
		}
	if (list != NULL)
		set_value(t, name, array);
}

static void set_number(struct text *t, const char *name, int64_t value)
{
	if (value)
		set_value(t, name, json_integer(value));
}

/* A path that means the same from any folder; as given when it does not exist yet. */
static json_t *path_json(const char *scheme, const char *path)
{
	char full[PATH_MAX];

	return json_sprintf("%s%s", scheme, realpath(path, full) != NULL ? full : path);
}

static json_t *target_json(const char *target)
{
	if (strncmp(target, "sqlite:", 7) == 0)
		return path_json("sqlite:", target + 7);
	if (strncmp(target, "file:", 5) == 0)
		return path_json("file:", target + 5);
	return json_string(target);
}

static bool is_http(const char *url)
{
	return strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0;
}

/* Targets leave out what may be secret. Those of HTTP leave out the query, without which it is another URL. */
static bool is_partial(const char *url)
{
	size_t authority = strcspn(url, "/") + 2;

	if (!is_http(url))
		return false;
	return strpbrk(url, "?#") != NULL || memchr(url + authority, '@', strcspn(url + authority, "/")) != NULL;
}

static void set_path(struct text *t, const char *name, const char *path)
{
	if (path != NULL)
		set_value(t, name, path_json("", path));
}

int sl__load_target_write(const struct load_target *s, const sl_sink *sink, char out[LOAD_TARGET_BYTES])
{
	const struct sl_sink_opts *o = &s->opts;
	struct text t = {.object = json_object()};
	const char delimiter[] = {o->delimiter, '\0'};
	char *text;
	size_t n;

	set_value(&t, "to", target_json(sl_sink_target(sink)));
	if (is_partial(s->url))
		set_value(&t, "partial", json_true());
	set_text(&t, "format", o->format == SL_ROWS_CSV ? "csv" : "jsonl");
	set_text(&t, "table", o->table);
	set_list(&t, "columns", o->columns, o->n_columns);
	set_list(&t, "on_conflict", o->on_conflict, o->n_on_conflict);
	set_text(&t, "null", o->null_text);
	set_text(&t, "delimiter", o->delimiter ? delimiter : NULL);
	set_text(&t, "body", o->body ? bodies[o->body] : NULL);
	set_path(&t, "header_file", o->header_file);
	set_path(&t, "token_file", o->token_file);
	set_path(&t, "ca_file", o->ca_file);
	set_text(&t, "file_format", o->file_format == SL_ROWS_CSV ? "csv" : NULL);
	set_number(&t, "zstd_level", o->zstd_level);
	set_number(&t, "rotate_bytes", o->rotate_bytes);
	text = t.failed ? NULL : json_dumps(t.object, JSON_COMPACT);
	json_decref(t.object);
	if (text == NULL)
		return SL_ENOMEM;
	n = strlen(text);
	if (n < LOAD_TARGET_BYTES)
		memcpy(out, text, n + 1);
	free(text);
	return n < LOAD_TARGET_BYTES ? 0 : SL_ETOOBIG;
}

static const char *text_of(const json_t *j, const char *name)
{
	return json_string_value(json_object_get(j, name));
}

static int list_of(const struct sl_env *env, const json_t *j, const char *name, const char ***out, size_t *n)
{
	json_t *array = json_object_get(j, name), *value;
	size_t i;

	if (array == NULL)
		return 0;
	*n = json_array_size(array);
	*out = sl__calloc(env, *n + 1, sizeof(**out));
	if (*out == NULL)
		return SL_ENOMEM;
	if (!*n)
		return SL_EDATA;
	json_array_foreach(array, i, value)
	{
		(*out)[i] = json_string_value(value);
		if ((*out)[i] == NULL)
			return SL_EDATA;
	}
	return 0;
}

int sl__load_target_read(struct load_target *s, const struct sl_env *env, const char *text, struct sl_err *err)
{
	json_t *j = json_loads(text, 0, NULL);
	char *again = j != NULL ? json_dumps(j, JSON_COMPACT) : NULL;

	/* Without memory jansson can silently drop characters of a string. What it has read must be what
	 * sl__load_target_write has written. */
	if (again == NULL || strcmp(again, text) != 0) {
		json_decref(j);
		j = NULL;
	}
	free(again);
	const char *to = j != NULL ? text_of(j, "to") : NULL, *format = j != NULL ? text_of(j, "format") : NULL,
		   *body = j != NULL ? text_of(j, "body") : NULL,
		   *file_format = j != NULL ? text_of(j, "file_format") : NULL;
	int rc = to != NULL && format != NULL ? 0 : SL_EDATA;

	*s = (struct load_target){.env = env, .url = to, .kept = j, .opts = {SL_SINK_OPTS_INIT}};
	if (rc == 0)
		rc = list_of(env, j, "columns", &s->lists[0], &s->opts.n_columns);
	if (rc == 0)
		rc = list_of(env, j, "on_conflict", &s->lists[1], &s->opts.n_on_conflict);
	if (rc != 0) {
		sl__load_target_fini(s);
		if (rc == SL_ENOMEM)
			return sl__no_memory(err, "target");
		return sl_err_set(err, SL_EINVAL, "the target is unknown, or out of memory; give --to-wal=FILE");
	}
	s->partial = json_is_true(json_object_get(j, "partial"));
	s->opts.format = strcmp(format, "csv") == 0 ? SL_ROWS_CSV : SL_ROWS_JSON;
	s->opts.columns = s->lists[0];
	s->opts.on_conflict = s->lists[1];
	s->opts.table = text_of(j, "table");
	s->opts.null_text = text_of(j, "null");
	if (text_of(j, "delimiter") != NULL)
		s->opts.delimiter = *text_of(j, "delimiter");
	s->opts.header_file = text_of(j, "header_file");
	s->opts.token_file = text_of(j, "token_file");
	s->opts.ca_file = text_of(j, "ca_file");
	s->opts.file_format = file_format != NULL ? SL_ROWS_CSV : SL_ROWS_JSON;
	s->opts.zstd_level = (int32_t)json_integer_value(json_object_get(j, "zstd_level"));
	s->opts.rotate_bytes = json_integer_value(json_object_get(j, "rotate_bytes"));
	for (int i = 0; i < 3; i++)
		if (body != NULL && strcmp(body, bodies[i]) == 0)
			s->opts.body = (enum sl_http_body)i;
	return 0;
}

void sl__load_target_fit(struct load_target *s, const char *url)
{
	bool file = strncmp(url, "file:", 5) == 0;

	/* Options of files only, and of databases only. */
	if (!file) {
		s->opts.file_format = SL_ROWS_JSON;
		s->opts.zstd_level = 0;
		s->opts.rotate_bytes = 0;
	}
	if (file || is_http(url) || strncmp(url, "exec:", 5) == 0 || strncmp(url, "null:", 5) == 0) {
		s->opts.table = NULL;
		s->opts.on_conflict = NULL;
		s->opts.n_on_conflict = 0;
	}
	if (is_http(url))
		return;
	s->opts.header_file = s->opts.token_file = s->opts.ca_file = NULL;
	s->opts.body = SL_HTTP_JSON_LINES;
}

void sl__load_target_fini(struct load_target *t)
{
	for (size_t i = 0; t->env != NULL && i < SL_COUNT(t->lists); i++)
		sl__free(t->env, t->lists[i]);
	json_decref(t->kept);
	*t = (struct load_target){.url = NULL};
}

int sl__load_set_token(struct sl_sink_opts *opts, const char *url, const char *token, char *header[1])
{
	if (token == NULL || !*token || opts->token_file != NULL || !is_http(url))
		return 0;
	if (asprintf(&header[0], "Authorization: Bearer %s", token) < 0) {
		header[0] = NULL;
		return SL_ENOMEM;
	}
	opts->headers = (const char *const *)header;
	opts->n_headers = 1;
	return 0;
}
