/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/restore/select.h"

static bool usable(const char *path, size_t len)
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

/* *all: the path means everything. */
static int add(struct bk_select *s, const char *given, bool *all, struct sl_err *err)
{
	const char *path = given != NULL ? given : "";
	size_t len;
	while (*path == '/')
		path++;
	len = strlen(path);
	while (len > 0 && path[len - 1] == '/')
		len--;
	*all = len == 0;
	if (*all)
		return 0;
	if (!usable(path, len))
		return sl_err_set(err, SL_EINVAL, "%.150s: a path in a snapshot has no empty part, \".\" or \"..\"",
				  given);
	char *copy = sl__alloc(s->env, len + 1);
	if (copy == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for a path");
	memcpy(copy, path, len);
	copy[len] = '\0';
	s->paths[s->n++] = (struct bk_select_path){.path = copy, .len = len};
	return 0;
}

int sl__bk_select_init(struct bk_select *s, const struct sl_env *env, const char *const *paths, size_t n,
		       struct sl_err *err)
{
	*s = (struct bk_select){.env = env};
	if (n == 0)
		return 0;
	s->paths = sl__calloc(env, n, sizeof(s->paths[0]));
	if (s->paths == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for %zu paths", n);
	for (size_t i = 0; i < n; i++) {
		bool all;
		int rc = add(s, paths[i], &all, err);
		if (rc != 0 || all) {
			sl__bk_select_fini(s);
			return rc;
		}
	}
	return 0;
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
