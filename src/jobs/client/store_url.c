/* SPDX-License-Identifier: Apache-2.0 */
/* Stores and notifiers by URL: sqlite:FILE or postgres://…. */
#include <stdlib.h>
#include <string.h>

#include "base/compare.h"
#include "base/env.h"
#include "jobs/notify/ops.h"
#include <sluice/jobs.h>

#define DEFAULT_URL "sqlite:~/.sluice/sluice.db"

const char *sl_store_default_url(void)
{
	return DEFAULT_URL;
}

/* *env: the given one, filled, which owns *path: the file of a sqlite: URL, in new memory; NULL for PostgreSQL. Errors show only the scheme: the rest may hold
 * a password. */
static int parse_url(const char *url, const struct sl_env *given, struct sl_env *env, char **path, struct sl_err *err)
{
	int rc = sl__env_init(env, given, err);
	if (rc != 0)
		return rc;
	*path = NULL;
	if (url == NULL || url[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "missing store; use sqlite:FILE or postgres://…");
	if (sl__starts_with(url, "postgres://") || sl__starts_with(url, "postgresql://"))
		return 0;
	if (!sl__starts_with(url, "sqlite:")) {
		size_t scheme = strcspn(url, ":");
		if (url[scheme] == '\0')
			return sl_err_set(err, SL_EINVAL, "the store is not a URL; use sqlite:FILE or postgres://…");
		return sl_err_set(err, SL_EINVAL, "unknown store \"%.*s\"; use sqlite:FILE or postgres://…",
				  (int)SL_MIN(scheme, 20), url);
	}
	const char *file = url + strlen("sqlite:"), *home = getenv("HOME");
	if (file[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "sqlite: missing file name; use sqlite:FILE");
	if (sl__starts_with(file, "//") && file[2] != '/')
		return sl_err_set(err, SL_EINVAL, "write sqlite:FILE, without //, for a file here");
	if (!sl__starts_with(file, "~/"))
		*path = sl__strdup(env, file);
	else if (home == NULL || home[0] != '/')
		return sl_err_set(err, SL_ECONFIG, "%s: HOME is not set", url);
	else
		*path = sl__asprintf(env, "%s%s", home, file + 1);
	return *path != NULL ? 0 : sl_err_set(err, SL_ENOMEM, "no memory for the name of a store");
}

int sl_store_open(sl_store *out, const char *url, const struct sl_store_opts *opts, struct sl_err *err)
{
	struct sl_env env;
	char *path;
	int rc = parse_url(url, SL_OPT_HAS(opts, env) ? opts->env : NULL, &env, &path, err);
	if (rc != 0)
		return rc;
	if (path == NULL)
		return sl_store_postgres_open(out, url, opts, err);
	rc = sl_store_sqlite_open(out, path, opts, err);
	sl__free(&env, path);
	return rc;
}

void sl_store_close(sl_store *store)
{
	if (store == NULL || store->ops == NULL)
		return;
	store->ops->close(store->ctx);
	*store = (sl_store){.ops = NULL};
}

int sl_notify_open(sl_notify *out, const char *url, const struct sl_env *env, struct sl_err *err)
{
	struct sl_env full;
	char *path;
	int rc = parse_url(url, env, &full, &path, err);
	if (rc != 0)
		return rc;
	if (path == NULL)
		return sl_notify_postgres_open(out, url, env, err);
	rc = sl_notify_sqlite_open(out, path, env, err);
	sl__free(&full, path);
	return rc;
}

void sl_notify_close(sl_notify *notify)
{
	if (notify == NULL || notify->ops == NULL)
		return;
	notify->ops->close(notify->ctx);
	*notify = (sl_notify){.ops = NULL};
}
