/* SPDX-License-Identifier: Apache-2.0 */
/* What a restore keeps of the manifest while it runs: copies of entries, and sets of paths by their hashes. */
#include <stdlib.h>

#include "backup/restore/restore.h"
#include "base/sha256.h"

#define PATHS_MAX ((size_t)1 << 24) /* in a set: 256 MiB */

/* Where the next piece of a copy goes. */
struct layout {
	uint8_t *at;
};

static void *place(struct layout *l, const void *bytes, size_t n)
{
	uint8_t *p = l->at;
	if (n > 0)
		memcpy(p, bytes, n);
	l->at += (n + 7) & ~(size_t)7;
	return p;
}

static size_t room(size_t n)
{
	return (n + 7) & ~(size_t)7;
}

static size_t copy_bytes(const struct bk_entry *e, size_t path_len)
{
	size_t n = room(sizeof(*e)) + room(path_len + 1) + room(e->target_len + 1) +
		   room(e->xattrs_n * sizeof(e->xattrs[0])) + room(e->extents_n * sizeof(e->extents[0])) +
		   room(e->refs_n * sizeof(e->refs[0]));
	for (size_t i = 0; i < e->xattrs_n; i++)
		n += room(strlen(e->xattrs[i].name) + 1) + room(e->xattrs[i].len);
	return n;
}

struct bk_entry *sl__bk_entry_copy(const struct sl_env *env, const struct bk_entry *e, const char *path, size_t *bytes)
{
	const char *name = path != NULL ? path : e->path;
	size_t path_len = path != NULL ? strlen(path) : e->path_len, n = copy_bytes(e, path_len);
	struct layout l = {.at = sl__alloc(env, n)};
	if (l.at == NULL)
		return NULL;
	struct bk_entry *copy = place(&l, e, sizeof(*e));
	struct bk_xattr *xattrs = place(&l, e->xattrs, e->xattrs_n * sizeof(e->xattrs[0]));
	copy->xattrs = xattrs;
	copy->extents = place(&l, e->extents, e->extents_n * sizeof(e->extents[0]));
	copy->refs = place(&l, e->refs, e->refs_n * sizeof(e->refs[0]));
	copy->path = place(&l, name, path_len + 1);
	copy->path_len = path_len;
	copy->target = e->target != NULL ? place(&l, e->target, e->target_len + 1) : NULL;
	for (size_t i = 0; i < e->xattrs_n; i++) {
		xattrs[i].name = place(&l, e->xattrs[i].name, strlen(e->xattrs[i].name) + 1);
		xattrs[i].value = place(&l, e->xattrs[i].value, e->xattrs[i].len);
	}
	*bytes = n;
	return copy;
}

void sl__bk_run_free(const struct sl_env *env, struct bk_run *run)
{
	if (run == NULL)
		return;
	for (size_t i = 0; i < run->n; i++)
		sl__free(env, run->entries[i]);
	sl__free(env, run->entries);
	sl__free(env, run);
}

int sl__bk_path_key(const char *path, size_t len, struct bk_path_key *out, struct sl_err *err)
{
	uint8_t digest[SL__SHA256_BYTES];
	int rc = sl__sha256(path, len, digest, err);
	if (rc == 0)
		memcpy(out->b, digest, sizeof(out->b));
	return rc;
}

static int by_bytes(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct bk_path_key));
}

int sl__bk_path_set_add(const struct sl_env *env, struct bk_path_set *s, const char *path, size_t len,
			struct sl_err *err)
{
	if (s->n == s->cap) {
		size_t cap = s->cap > 0 ? 2 * s->cap : 64;
		if (cap > PATHS_MAX)
			return sl_err_set(err, SL_ETOOBIG, "more than %zu files have several names", PATHS_MAX);
		struct bk_path_key *keys = sl__realloc(env, s->keys, cap * sizeof(*keys));
		if (keys == NULL)
			return sl_err_set(err, SL_ENOMEM, "no memory for the names of %zu files", cap);
		s->keys = keys;
		s->cap = cap;
	}
	int rc = sl__bk_path_key(path, len, &s->keys[s->n], err);
	if (rc != 0)
		return rc;
	s->n++;
	s->sorted = false;
	return 0;
}

int sl__bk_path_set_has(struct bk_path_set *s, const char *path, size_t len, bool *out, struct sl_err *err)
{
	struct bk_path_key key;
	*out = false;
	if (s->n == 0)
		return 0;
	int rc = sl__bk_path_key(path, len, &key, err);
	if (rc != 0)
		return rc;
	if (!s->sorted)
		qsort(s->keys, s->n, sizeof(s->keys[0]), by_bytes);
	s->sorted = true;
	*out = bsearch(&key, s->keys, s->n, sizeof(s->keys[0]), by_bytes) != NULL;
	return 0;
}

void sl__bk_path_set_fini(const struct sl_env *env, struct bk_path_set *s)
{
	sl__free(env, s->keys);
	*s = (struct bk_path_set){0};
}
