/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of a create: made absolute and real, sorted, without those inside others. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "backup/create/walk.h"
#include "backup/manifest/manifest.h"

/* The length without slashes at the end. */
static size_t trimmed_length(const char *path)
{
	size_t n = strlen(path);
	while (n > 1 && path[n - 1] == '/')
		n--;
	return n;
}

/* 0 or a negative errno. */
static int real_path(const char *path, char out[PATH_MAX])
{
	struct stat st;
	char folder[PATH_MAX];
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return realpath(path, out) != NULL ? 0 : -errno;
	if (lstat(path, &st) != 0)
		return -errno;

	/* The real name of the folder, then the last component as it is: a link to a file is backed up as a link. */
	size_t n = trimmed_length(path), base = n;
	while (base > 0 && path[base - 1] != '/')
		base--;
	if (n >= sizeof(folder))
		return -ENAMETOOLONG;
	memcpy(folder, base > 0 ? path : ".", base > 0 ? base : 1);
	folder[base > 0 ? base : 1] = '\0';
	if (realpath(folder, out) == NULL)
		return -errno;
	size_t len = strcmp(out, "/") == 0 ? 0 : strlen(out);
	if (len + 1 + (n - base) >= PATH_MAX)
		return -ENAMETOOLONG;
	out[len] = '/';
	memcpy(out + len + 1, path + base, n - base);
	out[len + 1 + (n - base)] = '\0';
	return 0;
}

static int root_init(struct bk_root *r, const struct sl_env *env, const char *path, struct sl_err *err)
{
	char real[PATH_MAX];
	if (path == NULL || path[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "paths: a path is empty");
	int rc = real_path(path, real);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "cannot back up %.160s", path);
	r->path = sl__strdup(env, real + 1);
	r->given = sl__strdup(env, path);
	if (r->path == NULL || r->given == NULL)
		return sl__no_memory(err, "create a snapshot");
	r->given[trimmed_length(path)] = '\0';
	return 0;
}

static void root_fini(const struct sl_env *env, struct bk_root *r)
{
	sl__free(env, r->path);
	sl__free(env, r->given);
}

static int compare_roots(const void *a, const void *b)
{
	const struct bk_root *x = a, *y = b;
	return sl__bk_path_compare(x->path, strlen(x->path), y->path, strlen(y->path));
}

int sl__bk_roots_init(struct bk_roots *out, const struct sl_env *env, const char *const *paths, size_t n,
		      struct sl_err *err)
{
	struct bk_roots r = {NULL, 0};
	if (paths == NULL || n == 0)
		return sl_err_set(err, SL_EINVAL, "paths: no path is given");
	r.roots = sl__calloc(env, n, sizeof(*r.roots));
	int rc = r.roots == NULL ? sl__no_memory(err, "create a snapshot") : 0;
	for (; rc == 0 && r.n < n; r.n++)
		rc = root_init(&r.roots[r.n], env, paths[r.n], err);
	if (rc != 0) {
		sl__bk_roots_fini(env, &r);
		return rc;
	}
	/* Sorted, what is inside another root directly follows it. */
	qsort(r.roots, r.n, sizeof(*r.roots), compare_roots);
	size_t kept = 0;
	for (size_t i = 0; i < r.n; i++) {
		const char *path = r.roots[i].path, *outer = kept > 0 ? r.roots[kept - 1].path : NULL;
		size_t len = outer != NULL ? strlen(outer) : 0;
		if (outer != NULL &&
		    (len == 0 || (strncmp(path, outer, len) == 0 && (path[len] == '\0' || path[len] == '/'))))
			root_fini(env, &r.roots[i]);
		else
			r.roots[kept++] = r.roots[i];
	}
	r.n = kept;
	*out = r;
	return 0;
}

void sl__bk_roots_fini(const struct sl_env *env, struct bk_roots *r)
{
	for (size_t i = 0; i < r->n; i++)
		root_fini(env, &r->roots[i]);
	sl__free(env, r->roots);
	*r = (struct bk_roots){NULL, 0};
}
