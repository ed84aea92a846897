/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hard links, when every file is there. A link leads to an entry of this snapshot that this restore has put there or
 * found right, never to another file of the target folder: `linked` knows the entries with several names. Where a link
 * is meant and its target is not, the first such link stands in for it: it was restored with the target's contents, and
 * the others are links to it.
 */
#include <stdlib.h>

#include "backup/restore/restore.h"

static int by_target(const void *a, const void *b)
{
	const struct bk_stand_in *x = a, *y = b;
	size_t n = SL_MIN(x->target_len, y->target_len);
	int c = memcmp(x->target, y->target, n);
	return c != 0 ? c : (x->target_len > y->target_len) - (x->target_len < y->target_len);
}

/* Where a target is or belongs in the sorted array. */
static size_t place_of(const struct bk_restore *r, const struct bk_stand_in *key, bool *found)
{
	size_t low = 0, high = r->stand_in_n;
	*found = false;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		int c = by_target(&r->stand_in[mid], key);
		if (c == 0) {
			*found = true;
			return mid;
		}
		if (c < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

const struct bk_stand_in *sl__bk_stand_in_find(const struct bk_restore *r, const char *target, size_t len)
{
	struct bk_stand_in key = {.target = (char *)(uintptr_t)target, .target_len = len};
	bool found;
	size_t at = place_of(r, &key, &found);
	return found ? &r->stand_in[at] : NULL;
}

static int make_room(struct bk_restore *r)
{
	if (r->stand_in_n < r->stand_in_cap)
		return 0;
	size_t cap = r->stand_in_cap > 0 ? 2 * r->stand_in_cap : 16;
	struct bk_stand_in *more = sl__realloc(r->env, r->stand_in, cap * sizeof(*more));
	if (more == NULL)
		return SL_ENOMEM;
	r->stand_in = more;
	r->stand_in_cap = cap;
	return 0;
}

int sl__bk_stand_in_add(struct bk_restore *r, const struct bk_entry *link, struct sl_err *err)
{
	struct bk_stand_in key = {.target = (char *)(uintptr_t)link->target, .target_len = link->target_len};
	bool found;
	size_t at = place_of(r, &key, &found);
	if (found)
		return 0;
	struct bk_stand_in s = {.target = sl__strdup(r->env, link->target),
				.path = sl__strdup(r->env, link->path),
				.target_len = link->target_len,
				.path_len = link->path_len};
	if (s.target == NULL || s.path == NULL || make_room(r) != 0) {
		sl__free(r->env, s.target);
		sl__free(r->env, s.path);
		return sl_err_set(err, SL_ENOMEM, "no memory for the target of a link");
	}
	memmove(&r->stand_in[at + 1], &r->stand_in[at], (r->stand_in_n - at) * sizeof(s));
	r->stand_in[at] = s;
	r->stand_in_n++;
	return 0;
}

/* What a link is to be made to, by name; NULL: it stands in for its target and is there already. */
struct source {
	const char *path;
	size_t len;
	bool gone; /* it could not be restored */
};

static int find_source(struct bk_restore *r, const struct bk_entry *e, struct source *out, struct sl_err *err)
{
	const struct bk_stand_in *s = sl__bk_stand_in_find(r, e->target, e->target_len);
	bool known = s != NULL;
	*out = (struct source){.path = s != NULL ? s->path : e->target, .len = s != NULL ? s->path_len : e->target_len};
	int rc = known ? 0 : sl__bk_path_set_has(&r->linked, e->target, e->target_len, &known, err);
	if (rc != 0)
		return rc;
	if (!known)
		return sl_err_set(err, SL_EDATA,
				  "%.100s: is to be linked to %.100s, which is not a file of this snapshot", e->path,
				  e->target);
	rc = sl__bk_path_set_has(&r->gone, out->path, out->len, &out->gone, err);
	if (s != NULL && s->path_len == e->path_len && memcmp(s->path, e->path, e->path_len) == 0)
		out->path = NULL;
	return rc;
}

static int make_link(struct bk_restore *r, struct bk_folder *from, const struct bk_entry *e, const struct source *s,
		     struct sl_err *err)
{
	size_t from_parent = sl__bk_path_parent(s->path, s->len), parent = sl__bk_path_parent(e->path, e->path_len);
	const char *from_name = s->path + (from_parent > 0 ? from_parent + 1 : 0);
	const char *name = e->path + (parent > 0 ? parent + 1 : 0);
	bool linked;
	int rc = sl__bk_folder_enter(from, s->path, from_parent, err);
	if (rc == 0)
		rc = sl__bk_folder_enter(&r->folder, e->path, parent, err);
	if (rc == 0)
		rc = sl__bk_target_link(from, from_name, &r->folder, e, name, &linked, err);
	if (rc == 0)
		sl__bk_restore_count(r, e, !linked);
	return rc;
}

static int link_entry(struct bk_restore *r, const struct bk_entry *e, void *ctx, struct sl_err *err)
{
	struct source s;
	struct sl_err why = SL_ERR_INIT;
	if (e->type != SL_BACKUP_HARDLINK || sl__bk_select(&r->select, e->path, e->path_len) != BK_IS_SELECTED)
		return 0;
	int rc = find_source(r, e, &s, err);
	if (rc != 0 || s.path == NULL)
		return rc;
	if (s.gone) {
		(void)sl_err_set(&why, SL_ECORRUPT, "%.100s: the file %.100s, of which it is a name, is damaged",
				 e->path, e->target);
		return sl__bk_restore_leave_out(r, e, &why, true, err);
	}
	rc = make_link(r, ctx, e, &s, &why);
	if (rc == 0)
		return 0;
	if (sl__bk_restore_is_of_file(&why))
		return sl__bk_restore_leave_out(r, e, &why, false, err);
	if (err != NULL)
		*err = why;
	return rc;
}

int sl__bk_restore_links(struct bk_restore *r, struct sl_err *err)
{
	struct bk_folder from;
	sl__bk_folder_init(&from, &r->target);
	int rc = sl__bk_restore_walk(r, link_entry, &from, err);
	sl__bk_folder_fini(&from);
	return rc;
}
