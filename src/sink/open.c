/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sinks by URL, and the null sink, which accepts everything and keeps nothing: for benchmarks and dry runs. What follows
 * the scheme of a URL may be secret: no message here shows it but for local paths.
 */
#include <stdlib.h>

#include "base/compare.h"
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

/* ---- null: ---- */

static int write_nothing(SL_UNUSED void *sink, SL_UNUSED void *lane, SL_UNUSED const struct sl_sink_batch *batch,
			 SL_UNUSED struct sl_sink_reply *reply, SL_UNUSED struct sl_err *err)
{
	return 0;
}

static void close_nothing(SL_UNUSED void *sink)
{
}

static const char *null_target(SL_UNUSED void *sink)
{
	return "null:";
}

static const struct sl_sink_ops null_ops = {.version = SL_SINK_VERSION,
					    .name = "null",
					    .write = write_nothing,
					    .close = close_nothing,
					    .target = null_target};

int sl_sink_null_open(sl_sink *out, const struct sl_sink_opts *opts, struct sl_err *err)
{
	struct sl_env env;
	int rc = sl__sink_check_opts(opts, SL__SINK_ROWS, "null:", &env, err);
	if (rc == 0)
		*out = (sl_sink){.ops = &null_ops};
	return rc;
}

static int open_null(sl_sink *out, const char *what, const struct sl_sink_opts *opts, struct sl_err *err)
{
	if (what[0] != '\0')
		return sl_err_set(err, SL_EINVAL, "null: takes no argument");
	return sl_sink_null_open(out, opts, err);
}

/* ---- schemes ---- */

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

static const struct scheme *find_scheme(const char *url, struct sl_err *err)
{
	for (size_t i = 0; url != NULL && i < SL_COUNT(schemes); i++)
		if (sl__starts_with(url, schemes[i].prefix))
			return &schemes[i];
	size_t n = url != NULL ? strcspn(url, ":") : 0;
	if (n == 0 || url[n] == '\0')
		(void)sl_err_set(err, SL_EINVAL, "a target begins with " KNOWN);
	else
		(void)sl_err_set(err, SL_EINVAL, "no sink \"%.*s\"; use " KNOWN, (int)SL_MIN(n, 20), url);
	return NULL;
}

/* What the scheme's functions get, in fresh memory of *env. Local paths are plain names, as those of job stores: nothing is
 * decoded. */
static int target_of(const struct scheme *s, const char *url, const struct sl_env *env, char **out, struct sl_err *err)
{
	const char *rest = url + strlen(s->prefix), *home = getenv("HOME");
	if (s->shape == SHAPE_PATH && rest[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "missing file name; give %sPATH", s->prefix);
	if (s->shape == SHAPE_PATH && sl__starts_with(rest, "//") && rest[2] != '/')
		return sl_err_set(err, SL_EINVAL, "write %sPATH, without //, for a local file", s->prefix);
	bool in_home = s->shape == SHAPE_PATH && sl__starts_with(rest, "~/");
	if (in_home && (home == NULL || home[0] != '/'))
		return sl_err_set(err, SL_ECONFIG, "%s: HOME is not set", url);
	*out = in_home ? sl__asprintf(env, "%s%s", home, rest + 1)
		       : sl__strdup(env, s->shape == SHAPE_URL ? url : rest);
	return *out != NULL ? 0 : sl_err_set(err, SL_ENOMEM, "out of memory for the name of a sink");
}

int sl_sink_open(sl_sink *out, const char *url, const struct sl_sink_opts *opts, struct sl_err *err)
{
	struct sl_env env;
	char *what = NULL;
	const struct scheme *s = find_scheme(url, err);
	if (s == NULL)
		return SL_EINVAL;
	int rc = sl__env_init(&env, SL_OPT_HAS(opts, env) ? opts->env : NULL, err);
	if (rc == 0)
		rc = target_of(s, url, &env, &what, err);
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
	int rc = sl__env_init(&env, SL_OPT_HAS(opts, env) ? opts->env : NULL, err);
	if (rc == 0)
		rc = target_of(s, url, &env, &what, err);
	if (rc != 0)
		return rc;
	rc = s->create(what, opts, columns, n, err);
	sl__free(&env, what);
	return rc;
}
