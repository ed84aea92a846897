/* SPDX-License-Identifier: Apache-2.0 */
/* Selections, positions in files and sets of paths (entries.h). */
#include <stdlib.h>

#include "backup/restore/entries.h"
#include "base/sha256.h"

#define PATHS_MAX ((size_t)1 << 24) /* in a set: 256 MiB */

/* ---- selection ---- */

bool sl__bk_path_is_plain(const char *path, size_t len)
{
	size_t start = 0;
	for (size_t i = 0; i <= len; i++) {
		if (i < len && path[i] != '/')
			continue;
		size_t n = i - start;
		if (n == 0 || (n == 1 && path[start] == '.') || (n == 2 && memcmp(path + start, "..", 2) == 0))
			return false;
		start = i + 1;
	}
	return true;
}

int sl__bk_select_init(struct bk_select *s, const struct sl_env *env, const char *const *paths, size_t n,
		       struct sl_err *err)
{
	*s = (struct bk_select){.env = env};
	if (n == 0)
		return 0;
	s->paths = sl__calloc(env, n, sizeof(s->paths[0]));
	if (s->paths == NULL)
		return sl__no_memory(err, "select paths");
	int rc = 0;
	for (size_t i = 0; i < n; i++) {
		const char *path = paths[i] != NULL ? paths[i] : "";
		while (*path == '/')
			path++;
		size_t len = strlen(path);
		while (len > 0 && path[len - 1] == '/')
			len--;
		if (len == 0) /* it means everything */
			goto done;
		if (!sl__bk_path_is_plain(path, len)) {
			rc = sl_err_set(err, SL_EINVAL,
					"%.150s: a path in a snapshot has no empty component, \".\" or \"..\"",
					paths[i]);
			goto done;
		}
		char *copy = sl__alloc(env, len + 1);
		if (copy == NULL) {
			rc = sl__no_memory(err, "select paths");
			goto done;
		}
		memcpy(copy, path, len);
		copy[len] = '\0';
		s->paths[s->n++] = (struct bk_select_path){.path = copy, .len = len};
	}
	return 0;
done:
	sl__bk_select_fini(s);
	return rc;
}

void sl__bk_select_fini(struct bk_select *s)
{
	for (size_t i = 0; i < s->n; i++)
		sl__free(s->env, s->paths[i].path);
	if (s->env != NULL)
		sl__free(s->env, s->paths);
	*s = (struct bk_select){.env = s->env};
}

enum bk_selected sl__bk_select(struct bk_select *s, const char *path, size_t len)
{
	enum bk_selected found = s->n == 0 ? BK_IS_SELECTED : BK_NOT_SELECTED;
	for (size_t i = 0; i < s->n; i++) {
		struct bk_select_path *p = &s->paths[i];
		if (sl__bk_path_within(path, len, p->path, p->len)) {
			p->met = true;
			found = BK_IS_SELECTED;
		} else if (found == BK_NOT_SELECTED && sl__bk_path_within(p->path, p->len, path, len)) {
			found = BK_ABOVE_SELECTED;
		}
	}
	return found;
}

int sl__bk_select_all_met(const struct bk_select *s, const char *snapshot, struct sl_err *err)
{
	for (size_t i = 0; i < s->n; i++) {
		if (!s->paths[i].met)
			return sl_err_set(err, SL_ENOENT, "the snapshot %s has no %.150s", snapshot, s->paths[i].path);
	}
	return 0;
}

/* ---- a position in the contents of a file ---- */

void sl__bk_cursor_init(struct bk_cursor *c, const struct bk_entry *e)
{
	*c = (struct bk_cursor){.e = e, .left = (e->flags & BK_ENTRY_SPARSE) != 0 ? 0 : e->size};
}

static int size_disagrees(const struct bk_entry *e, struct sl_err *err)
{
	return sl_err_set(err, SL_ECORRUPT, "%.150s: its blocks and its size do not agree", e->path);
}

int sl__bk_cursor_next(struct bk_cursor *c, struct sl_err *err)
{
	const struct bk_entry *e = c->e;
	while (c->left == 0) {
		if (c->extent >= e->n_extents)
			return size_disagrees(e, err);
		const struct bk_extent *x = &e->extents[c->extent++];
		if (x->offset < c->offset || x->offset > e->size || x->length > e->size - x->offset)
			return size_disagrees(e, err);
		c->offset = x->offset;
		c->left = x->length;
	}
	return 0;
}

int sl__bk_cursor_end(const struct bk_cursor *c, struct sl_err *err)
{
	bool sparse = (c->e->flags & BK_ENTRY_SPARSE) != 0;
	if (c->left != 0 || (sparse && c->extent != c->e->n_extents))
		return size_disagrees(c->e, err);
	return 0;
}

/* ---- sets of paths ---- */

static int path_key(const char *path, size_t len, struct bk_path_key *out, struct sl_err *err)
{
	uint8_t digest[SL__SHA256_BYTES];
	int rc = sl__sha256(path, len, digest, err);
	if (rc == 0)
		memcpy(out->b, digest, sizeof(out->b));
	return rc;
}

static int compare_path_keys(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct bk_path_key));
}

int sl__bk_path_set_add(const struct sl_env *env, struct bk_path_set *s, const char *path, size_t len,
			struct sl_err *err)
{
	if (s->n == PATHS_MAX)
		return sl_err_set(err, SL_ETOOBIG, "more than %zu files have several names", PATHS_MAX);
	struct bk_path_key *keys = sl__grow(env, s->keys, s->n, &s->cap, sizeof(*keys));
	if (keys == NULL)
		return sl__no_memory(err, "restore files with several names");
	s->keys = keys;
	int rc = path_key(path, len, &s->keys[s->n], err);
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
	int rc = path_key(path, len, &key, err);
	if (rc != 0)
		return rc;
	if (!s->sorted)
		qsort(s->keys, s->n, sizeof(s->keys[0]), compare_path_keys);
	s->sorted = true;
	*out = bsearch(&key, s->keys, s->n, sizeof(s->keys[0]), compare_path_keys) != NULL;
	return 0;
}

void sl__bk_path_set_fini(const struct sl_env *env, struct bk_path_set *s)
{
	sl__free(env, s->keys);
	*s = (struct bk_path_set){0};
}
