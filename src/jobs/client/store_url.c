/* SPDX-License-Identifier: Apache-2.0 */
/* Stores and notifiers by URL: which kind it is, and where its file lies. */
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include <sluice/jobs.h>

#define DEFAULT_URL "sqlite:~/.sluice/sluice.db"

enum url_kind { URL_SQLITE = 1, URL_POSTGRES = 2 };

const char *sl_store_default_url(void)
{
	return DEFAULT_URL;
}

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* The kind, or a negative SL_E…. Only the scheme is put into the error: the rest may hold a password. */
static int kind_of(const char *url, struct sl_err *err)
{
	if (url == NULL || url[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "no store was named; use sqlite:FILE or postgres://…");
	if (begins(url, "sqlite:"))
		return URL_SQLITE;
	if (begins(url, "postgres://") || begins(url, "postgresql://"))
		return URL_POSTGRES;
	size_t scheme = strcspn(url, ":");
	if (url[scheme] == '\0')
		return sl_err_set(err, SL_EINVAL, "a store is named by sqlite:FILE or postgres://…");
	return sl_err_set(err, SL_EINVAL, "there is no store \"%.*s\"; use sqlite:FILE or postgres://…",
			  (int)SL_MIN(scheme, 20), url);
}

/* The file of a sqlite: URL in fresh memory. */
static int sqlite_path(const char *url, const struct sl_env *env, char **out, struct sl_err *err)
{
	const char *path = url + strlen("sqlite:"), *home = getenv("HOME");
	if (path[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "sqlite: needs the name of a file behind it");
	if (begins(path, "//") && path[2] != '/')
		return sl_err_set(err, SL_EINVAL, "write sqlite:FILE, without //, for a file here");
	if (!begins(path, "~/"))
		*out = sl__strdup(env, path);
	else if (home == NULL || home[0] != '/')
		return sl_err_set(err, SL_ECONFIG, "%s: HOME is not set", url);
	else
		*out = sl__asprintf(env, "%s%s", home, path + 1);
	return *out != NULL ? 0 : sl_err_set(err, SL_ENOMEM, "no memory for the name of a store");
}

int sl_store_open(sl_store *out, const char *url, const struct sl_store_opts *opts, struct sl_err *err)
{
	struct sl_env env;
	char *path = NULL;
	int kind = kind_of(url, err);
	if (kind < 0)
		return kind;
	if (kind == URL_POSTGRES)
		return sl_store_postgres_open(out, url, opts, err);
	int rc = sl__env_init(&env, SL_OPT_HAS(opts, env) ? opts->env : NULL, err);
	rc = rc != 0 ? rc : sqlite_path(url, &env, &path, err);
	if (rc != 0)
		return rc;
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
	char *path = NULL;
	int kind = kind_of(url, err);
	if (kind < 0)
		return kind;
	if (kind == URL_POSTGRES)
		return sl_notify_postgres_open(out, url, env, err);
	int rc = sl__env_init(&full, env, err);
	rc = rc != 0 ? rc : sqlite_path(url, &full, &path, err);
	if (rc != 0)
		return rc;
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
