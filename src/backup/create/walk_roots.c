/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of a create: made absolute and real, put in order, those inside of others left away. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "backup/create/walk.h"
#include "backup/manifest/manifest.h"

static size_t trimmed(const char *path)
{
	size_t n = strlen(path);
	while (n > 1 && path[n - 1] == '/')
		n--;
	return n;
}

/* The real name of the folder, then the last component as it is: a link that is no folder is backed up as a link. */
static int locate_file(const char *path, char out[PATH_MAX])
{
	char folder[PATH_MAX];
	size_t n = trimmed(path), base = n;
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

static int locate(const char *path, char out[PATH_MAX])
{
	struct stat st;
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return realpath(path, out) != NULL ? 0 : -errno;
	return lstat(path, &st) == 0 ? locate_file(path, out) : -errno;
}

static int init_one(struct bk_root *r, const struct sl_env *env, const char *path, struct sl_err *err)
{
	char real[PATH_MAX];
	if (path == NULL || path[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "paths: an empty one");
	int rc = locate(path, real);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "cannot back up %.160s", path);
	r->path = sl__strdup(env, real + 1);
	r->given = sl__strdup(env, path);
	if (r->path == NULL || r->given == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for the paths");
	r->given[trimmed(path)] = '\0';
	return 0;
}

static int by_path(const void *a, const void *b)
{
	const struct bk_root *x = a, *y = b;
	return sl__bk_path_compare(x->path, strlen(x->path), y->path, strlen(y->path));
}

static bool is_within(const char *path, const char *outer)
{
	size_t n = strlen(outer);
	return n == 0 || (strncmp(path, outer, n) == 0 && (path[n] == '\0' || path[n] == '/'));
}

static void fini_one(const struct sl_env *env, struct bk_root *r)
{
	sl__free(env, r->path);
	sl__free(env, r->given);
}

/* In order, whatever is inside of another comes behind it, with nothing else between. */
static void merge(const struct sl_env *env, struct bk_roots *r)
{
	size_t kept = 0;
	qsort(r->roots, r->n, sizeof(*r->roots), by_path);
	for (size_t i = 0; i < r->n; i++) {
		if (kept > 0 && is_within(r->roots[i].path, r->roots[kept - 1].path))
			fini_one(env, &r->roots[i]);
		else
			r->roots[kept++] = r->roots[i];
	}
	r->n = kept;
}

int sl__bk_roots_init(struct bk_roots *out, const struct sl_env *env, const char *const *paths, size_t n,
		      struct sl_err *err)
{
	struct bk_roots r = {NULL, 0};
	if (paths == NULL || n == 0)
		return sl_err_set(err, SL_EINVAL, "paths: none is given");
	r.roots = sl__calloc(env, n, sizeof(*r.roots));
	int rc = r.roots == NULL ? sl_err_set(err, SL_ENOMEM, "no memory for the paths") : 0;
	for (; rc == 0 && r.n < n; r.n++)
		rc = init_one(&r.roots[r.n], env, paths[r.n], err);
	if (rc != 0) {
		sl__bk_roots_fini(env, &r);
		return rc;
	}
	merge(env, &r);
	*out = r;
	return 0;
}

void sl__bk_roots_fini(const struct sl_env *env, struct bk_roots *r)
{
	for (size_t i = 0; i < r->n; i++)
		fini_one(env, &r->roots[i]);
	sl__free(env, r->roots);
	*r = (struct bk_roots){NULL, 0};
}
