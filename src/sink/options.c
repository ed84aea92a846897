/* SPDX-License-Identifier: Apache-2.0 */
/* The options of sinks: which sink accepts which, and a copy that lives as long as the sink. */
#include <string.h>

#include "sink/sink.h"

/* A field that is set although its group is not the sink's. */
static const char *foreign_option(const struct sl_sink_opts *o, unsigned groups)
{
	const struct {
		unsigned group;
		bool set;
		const char *name;
	} fields[] = {
		{SL__SINK_ROWS, o->format != SL_ROWS_JSON, "format"},
		{SL__SINK_ROWS, o->columns != NULL || o->n_columns != 0, "columns"},
		{SL__SINK_ROWS, o->null_text != NULL, "null_text"},
		{SL__SINK_ROWS, o->delimiter != 0, "delimiter"},
		{SL__SINK_TABLE, o->table != NULL, "table"},
		{SL__SINK_TABLE, o->on_conflict != NULL || o->n_on_conflict != 0, "on_conflict"},
		{SL__SINK_TABLE, o->immutable_rows != 0, "immutable_rows"},
		{SL__SINK_TABLE | SL__SINK_HTTP, o->connect_timeout_ms != 0, "connect_timeout_ms"},
		{SL__SINK_TABLE, o->statement_timeout_ms != 0, "statement_timeout_ms"},
		{SL__SINK_HTTP, o->body != SL_HTTP_JSON_LINES, "body"},
		{SL__SINK_HTTP, o->headers != NULL || o->n_headers != 0, "headers"},
		{SL__SINK_HTTP, o->header_file != NULL, "header_file"},
		{SL__SINK_HTTP, o->token_file != NULL, "token_file"},
		{SL__SINK_HTTP, o->event_type != NULL, "event_type"},
		{SL__SINK_HTTP, o->event_source != NULL, "event_source"},
		{SL__SINK_HTTP, o->ca_file != NULL, "ca_file"},
		{SL__SINK_HTTP | SL__SINK_EXEC, o->timeout_ms != 0, "timeout_ms"},
		{SL__SINK_FILE, o->file_format != SL_ROWS_JSON, "file_format"},
		{SL__SINK_FILE, o->rotate_bytes != 0, "rotate_bytes"},
		{SL__SINK_FILE, o->rotate_ms != 0, "rotate_ms"},
		{SL__SINK_FILE, o->zstd_level != 0, "zstd_level"},
		{SL__SINK_EXEC, o->argv != NULL, "argv"},
	};
	for (size_t i = 0; i < SL_COUNT(fields); i++) {
		if (fields[i].set && (fields[i].group & groups) == 0)
			return fields[i].name;
	}
	return NULL;
}

static const char *bad_option(const struct sl_sink_opts *o)
{
	if (o->format != SL_ROWS_JSON && o->format != SL_ROWS_CSV)
		return "format";
	if ((o->columns == NULL) != (o->n_columns == 0))
		return "n_columns";
	if ((o->on_conflict == NULL) != (o->n_on_conflict == 0))
		return "n_on_conflict";
	if (o->immutable_rows == SL_ON && o->n_on_conflict == 0)
		return "immutable_rows";
	if ((o->headers == NULL) != (o->n_headers == 0))
		return "n_headers";
	if (o->connect_timeout_ms < 0)
		return "connect_timeout_ms";
	if (o->statement_timeout_ms < 0 && o->statement_timeout_ms != SL_UNLIMITED)
		return "statement_timeout_ms";
	if (o->body < SL_HTTP_JSON_LINES || o->body > SL_HTTP_CLOUD_EVENTS)
		return "body";
	if (o->timeout_ms < 0)
		return "timeout_ms";
	if (o->file_format != SL_ROWS_JSON && o->file_format != SL_ROWS_CSV)
		return "file_format";
	if (o->rotate_bytes < 0)
		return "rotate_bytes";
	if (o->rotate_ms < 0)
		return "rotate_ms";
	if (o->zstd_level < 0 || o->zstd_level > 19)
		return "zstd_level";
	return NULL;
}

int sl__sink_check_opts(const struct sl_sink_opts *opts, unsigned groups, const char *sink, struct sl_env *env,
			struct sl_err *err)
{
	if (opts == NULL)
		return sl__env_init(env, NULL, err);
	if (opts->struct_size < offsetof(struct sl_sink_opts, format))
		return sl_err_set(err, SL_EINVAL, "%s: struct_size: begin the options with SL_SINK_OPTS_INIT", sink);
	struct sl_sink_opts wide;
	sl__opts_copy(&wide, sizeof(wide), opts); /* as long as ours */
	int n = (int)strcspn(sink, ":");          /* some are named with their colon, others without */
	const char *name = foreign_option(&wide, groups);
	if (name != NULL)
		return sl_err_set(err, SL_EINVAL, "%.*s: the option %s does not apply to this kind of sink", n, sink,
				  name);
	name = bad_option(&wide);
	if (name != NULL)
		return sl_err_set(err, SL_EINVAL, "%.*s: %s is out of range", n, sink, name);
	return sl__env_init(env, wide.env, err);
}

/* ---- the copy ---- */

static const char *copy_text(const char *s, const struct sl_env *env, bool *failed)
{
	const char *copy = s != NULL && !*failed ? sl__strdup(env, s) : NULL;
	*failed = *failed || (s != NULL && copy == NULL);
	return copy;
}

/* NULL stays NULL. */
static const char *const *copy_list(const char *const *list, size_t n, const struct sl_env *env, bool *failed)
{
	const char *const *copy = list != NULL && !*failed ? sl__strdup_list(env, list, n) : NULL;
	*failed = *failed || (list != NULL && copy == NULL);
	return copy;
}

static void free_copy(const void *copy, const struct sl_env *env)
{
	union {
		const void *in;
		void *out;
	} p = {.in = copy};
	sl__free(env, p.out);
}

int sl__sink_copy_opts(struct sl_sink_opts *out, const struct sl_sink_opts *opts, const struct sl_env *env,
		       struct sl_err *err)
{
	struct sl_sink_opts o;
	sl__opts_copy(&o, sizeof(o), opts);
	bool failed = false;
	o.env = env;
	o.columns = copy_list(o.columns, o.n_columns, env, &failed);
	o.null_text = copy_text(o.null_text, env, &failed);
	o.table = copy_text(o.table, env, &failed);
	o.on_conflict = copy_list(o.on_conflict, o.n_on_conflict, env, &failed);
	o.headers = copy_list(o.headers, o.n_headers, env, &failed);
	o.header_file = copy_text(o.header_file, env, &failed);
	o.token_file = copy_text(o.token_file, env, &failed);
	o.event_type = copy_text(o.event_type, env, &failed);
	o.event_source = copy_text(o.event_source, env, &failed);
	o.ca_file = copy_text(o.ca_file, env, &failed);
	size_t n_argv = 0;
	while (o.argv != NULL && o.argv[n_argv] != NULL)
		n_argv++;
	o.argv = copy_list(o.argv, n_argv, env, &failed);
	if (failed) {
		sl__sink_free_opts(&o, env);
		return sl_err_set(err, SL_ENOMEM, "sink: out of memory");
	}
	*out = o;
	return 0;
}

void sl__sink_free_opts(struct sl_sink_opts *opts, const struct sl_env *env)
{
	free_copy(opts->columns, env);
	free_copy(opts->null_text, env);
	free_copy(opts->table, env);
	free_copy(opts->on_conflict, env);
	free_copy(opts->headers, env);
	free_copy(opts->header_file, env);
	free_copy(opts->token_file, env);
	free_copy(opts->event_type, env);
	free_copy(opts->event_source, env);
	free_copy(opts->ca_file, env);
	free_copy(opts->argv, env);
	*opts = (struct sl_sink_opts){SL_SINK_OPTS_INIT};
}
