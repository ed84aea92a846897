/* SPDX-License-Identifier: Apache-2.0 */
/* Sinks by URL. What follows the scheme of a URL may be secret: no message here shows it but for local paths. */
#include <stdlib.h>

#include "sink/sink.h"

typedef int open_fn(sl_sink *out, const char *what, const struct sl_sink_opts *opts, struct sl_err *err);
typedef int create_fn(const char *what, const struct sl_sink_opts *opts, const struct sl_column *columns, size_t n,
		      struct sl_err *err);

enum url_shape {
	SHAPE_URL,  /* the whole of it is handed on */
	SHAPE_REST, /* what follows the scheme */
	SHAPE_PATH  /* the same, as the name of a local file */
};

struct scheme {
	const char *prefix;
	enum url_shape shape;
	open_fn *open;
	create_fn *create; /* NULL: has no tables */
};

static int open_null(sl_sink *out, const char *what, const struct sl_sink_opts *opts, struct sl_err *err)
{
	if (what[0] != '\0')
		return sl_err_set(err, SL_EINVAL, "null: takes no argument");
	return sl_sink_null_open(out, opts, err);
}

/* The first that fits counts. */
static const struct scheme schemes[] = {
	{"postgres://", SHAPE_URL, sl_sink_postgres_open, sl__sink_postgres_create},
	{"postgresql://", SHAPE_URL, sl_sink_postgres_open, sl__sink_postgres_create},
	{"postgres:", SHAPE_REST, sl_sink_postgres_open, sl__sink_postgres_create},
	{"sqlite:", SHAPE_PATH, sl_sink_sqlite_open, sl__sink_sqlite_create},
	{"http://", SHAPE_URL, sl_sink_http_open, NULL},
	{"https://", SHAPE_URL, sl_sink_http_open, NULL},
	{"file:", SHAPE_PATH, sl_sink_file_open, NULL},
	{"exec:", SHAPE_REST, sl_sink_exec_open, NULL},
	{"null:", SHAPE_REST, open_null, NULL},
};

#define KNOWN "postgres://…, sqlite:FILE, https://…, file:PATH, exec:COMMAND or null:"

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

static const struct scheme *find_scheme(const char *url, struct sl_err *err)
{
	for (size_t i = 0; url != NULL && i < SL_COUNT(schemes); i++)
		if (begins(url, schemes[i].prefix))
			return &schemes[i];
	size_t n = url != NULL ? strcspn(url, ":") : 0;
	if (n == 0 || url[n] == '\0')
		(void)sl_err_set(err, SL_EINVAL, "a target is named by " KNOWN);
	else
		(void)sl_err_set(err, SL_EINVAL, "there is no sink \"%.*s\"; use " KNOWN, (int)SL_MIN(n, 20), url);
	return NULL;
}

/* The file of a local URL in fresh memory. Plain names, as those of job stores: nothing is decoded. */
static int local_path(const char *url, const char *prefix, const struct sl_env *env, char **out, struct sl_err *err)
{
	const char *path = url + strlen(prefix), *home = getenv("HOME");
	if (path[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "missing file name; give %sPATH", prefix);
	if (begins(path, "//") && path[2] != '/')
		return sl_err_set(err, SL_EINVAL, "write %sPATH, without //, for a file here", prefix);
	if (!begins(path, "~/"))
		*out = sl__strdup(env, path);
	else if (home == NULL || home[0] != '/')
		return sl_err_set(err, SL_ECONFIG, "%s: HOME is not set", url);
	else
		*out = sl__asprintf(env, "%s%s", home, path + 1);
	return *out != NULL ? 0 : sl_err_set(err, SL_ENOMEM, "no memory for the name of a file");
}

/* What the scheme's functions get, in fresh memory. */
static int target_of(const struct scheme *s, const char *url, const struct sl_env *env, char **out, struct sl_err *err)
{
	if (s->shape == SHAPE_PATH)
		return local_path(url, s->prefix, env, out, err);
	*out = sl__strdup(env, s->shape == SHAPE_URL ? url : url + strlen(s->prefix));
	return *out != NULL ? 0 : sl_err_set(err, SL_ENOMEM, "no memory for the name of a sink");
}

static int environment(struct sl_env *env, const struct sl_sink_opts *opts, struct sl_err *err)
{
	return sl__env_init(env, SL_OPT_HAS(opts, env) ? opts->env : NULL, err);
}

int sl_sink_open(sl_sink *out, const char *url, const struct sl_sink_opts *opts, struct sl_err *err)
{
	struct sl_env env;
	char *what = NULL;
	const struct scheme *s = find_scheme(url, err);
	if (s == NULL)
		return SL_EINVAL;
	int rc = environment(&env, opts, err);
	rc = rc != 0 ? rc : target_of(s, url, &env, &what, err);
	if (rc != 0)
		return rc;
	rc = s->open(out, what, opts, err);
	sl__free(&env, what);
	return rc;
}

void sl_sink_close(sl_sink *sink)
{
	if (sink == NULL || sink->ops == NULL)
		return;
	if (sink->ops->close != NULL)
		sink->ops->close(sink->ctx);
	*sink = (sl_sink){.ops = NULL};
}

const char *sl_sink_target(const sl_sink *sink)
{
	return sink->ops->target != NULL ? sink->ops->target(sink->ctx) : sink->ops->name;
}

int sl_sink_create_table(const char *url, const struct sl_sink_opts *opts, const struct sl_column *columns, size_t n,
			 struct sl_err *err)
{
	struct sl_env env;
	char *what = NULL;
	const struct scheme *s = find_scheme(url, err);
	if (s == NULL)
		return SL_EINVAL;
	if (s->create == NULL)
		return sl_err_set(err, SL_EUNSUPPORTED, "%s has no tables to create", s->prefix);
	int rc = environment(&env, opts, err);
	rc = rc != 0 ? rc : target_of(s, url, &env, &what, err);
	if (rc != 0)
		return rc;
	rc = s->create(what, opts, columns, n, err);
	sl__free(&env, what);
	return rc;
}
