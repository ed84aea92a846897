/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What follows when the lanes have ended and every file exists: hard links, then the attributes of folders.
 *
 * A hard link leads to an entry of this snapshot that this restore has created or found unchanged, never to another
 * file of the target folder: `linked` contains the entries with several names. When a link is selected and its target
 * is not, the first such link stands in for the target: it was restored with the target's contents, and the others are
 * links to it.
 *
 * Folders get their attributes last: the time of a folder changes with every file that is created in it, and its mode
 * may lock out the user who restores. The manifest is read once more. Folders on the path to the current entry are on
 * a stack, and each gets its attributes when it is left. So inner ones come first, and memory holds the folders of one
 * path.
 */
#include "backup/helpers.h"
#include "backup/restore/restore.h"

#define STACK_BYTES_MAX (64u << 20) /* of entries; a hostile snapshot could nest folders that have many attributes */

/* ---- stand-ins ---- */

/* Where a target is or belongs in the sorted array. */
static size_t stand_in_position(const struct bk_restore *r, const char *target, size_t len, bool *found)
{
	size_t low = 0, high = r->n_stand_in;
	*found = false;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		const struct bk_stand_in *s = &r->stand_in[mid];
		int c = memcmp(s->target, target, SL_MIN(s->target_len, len));
		if (c == 0)
			c = (s->target_len > len) - (s->target_len < len);
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
	bool found;
	size_t at = stand_in_position(r, target, len, &found);
	return found ? &r->stand_in[at] : NULL;
}

int sl__bk_stand_in_add(struct bk_restore *r, const struct bk_entry *link, struct sl_err *err)
{
	bool found;
	size_t at = stand_in_position(r, link->target, link->target_len, &found);
	if (found)
		return 0;
	struct bk_stand_in *grown = sl__grow(r->env, r->stand_in, r->n_stand_in, &r->cap_stand_in, sizeof(*grown));
	if (grown == NULL)
		return sl__no_memory(err, "restore hard links");
	r->stand_in = grown;
	struct bk_stand_in s = {.target = sl__strdup(r->env, link->target),
				.path = sl__strdup(r->env, link->path),
				.target_len = link->target_len,
				.path_len = link->path_len};
	if (s.target == NULL || s.path == NULL) {
		sl__free(r->env, s.target);
		sl__free(r->env, s.path);
		return sl__no_memory(err, "restore hard links");
	}
	memmove(&r->stand_in[at + 1], &r->stand_in[at], (r->n_stand_in - at) * sizeof(s));
	r->stand_in[at] = s;
	r->n_stand_in++;
	return 0;
}

/* ---- hard links ---- */

/* ctx: the folder of link sources. */
static int link_entry(struct bk_restore *r, const struct bk_entry *e, struct sl_err *err, void *ctx)
{
	struct sl_err why = SL_ERR_INIT;
	if (e->type != SL_BACKUP_HARDLINK || sl__bk_select(&r->select, e->path, e->path_len) != BK_IS_SELECTED)
		return 0;
	/* What the link is to be made to, by name. */
	const struct bk_stand_in *s = sl__bk_stand_in_find(r, e->target, e->target_len);
	bool known = s != NULL, gone;
	const char *path = known ? s->path : e->target;
	size_t len = known ? s->path_len : e->target_len;
	int rc = known ? 0 : sl__bk_path_set_has(&r->linked, e->target, e->target_len, &known, err);
	if (rc != 0)
		return rc;
	if (!known)
		return sl_err_set(err, SL_EDATA, "cannot link %.100s to %.100s, which is not a file of this snapshot",
				  e->path, e->target);
	rc = sl__bk_path_set_has(&r->gone, path, len, &gone, err);
	if (rc != 0)
		return rc;
	if (s != NULL && len == e->path_len && memcmp(path, e->path, len) == 0)
		return 0; /* the entry stands in for its target and exists already */
	if (gone) {
		(void)sl_err_set(&why, SL_ECORRUPT, "%.100s is a hard link to %.100s, which is damaged", e->path,
				 e->target);
		return sl__bk_restore_leave_out(r, e, &why, true, err);
	}

	struct bk_folder *from = ctx;
	size_t from_parent = sl__bk_path_parent(path, len), parent = sl__bk_path_parent(e->path, e->path_len);
	struct bk_placing p = {.folder = &r->folder, .e = e, .name = e->path + (parent > 0 ? parent + 1 : 0)};
	bool linked;
	rc = sl__bk_folder_enter(from, path, from_parent, &why);
	if (rc == 0)
		rc = sl__bk_folder_enter(&r->folder, e->path, parent, &why);
	if (rc == 0)
		rc = sl__bk_target_link(from, path + (from_parent > 0 ? from_parent + 1 : 0), &p, &linked, &why);
	if (rc == 0) {
		sl__bk_restore_count(r, e, !linked);
		return 0;
	}
	if (sl__bk_restore_is_of_file(&why))
		return sl__bk_restore_leave_out(r, e, &why, false, err);
	return sl__bk_result(rc, &why, err);
}

int sl__bk_restore_links(struct bk_restore *r, struct sl_err *err)
{
	struct bk_folder from;
	sl__bk_folder_init(&from, &r->target);
	int rc = sl__bk_restore_walk(r, link_entry, &from, err);
	sl__bk_folder_fini(&from);
	return rc;
}

/* ---- attributes of folders ---- */

struct folder_stack {
	struct folder_level {
		struct bk_entry *e;
		size_t bytes;
	} * levels;
	size_t n, cap;
	size_t bytes; /* of all */
};

/* Leave all folders that do not contain path; NULL: all. */
static int leave_folders(struct bk_restore *r, struct folder_stack *s, const char *path, size_t len, struct sl_err *err)
{
	while (s->n > 0) {
		struct bk_entry *top = s->levels[s->n - 1].e;
		if (path != NULL && sl__bk_path_within(path, len, top->path, top->path_len))
			break;
		s->bytes -= s->levels[--s->n].bytes;
		int rc = sl__bk_folder_enter(&r->folder, top->path, top->path_len, err);
		if (rc == 0) {
			sl__bk_target_attributes(&r->target, r->folder.fd, r->folder.is_path, top);
			sl__bk_restore_count(r, top, false);
		}
		sl__free(r->env, top);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int restore_folder(struct bk_restore *r, const struct bk_entry *e, struct sl_err *err, void *ctx)
{
	struct folder_stack *s = ctx;
	bool made = true;
	int rc = leave_folders(r, s, e->path, e->path_len, err);
	if (rc != 0 || e->type != SL_BACKUP_DIR)
		return rc;
	enum bk_selected selected = sl__bk_select(&r->select, e->path, e->path_len);
	if (selected == BK_ABOVE_SELECTED)
		rc = sl__bk_path_set_has(&r->made, e->path, e->path_len, &made, err);
	if (rc != 0 || selected == BK_NOT_SELECTED || !made)
		return rc;

	/* Onto the stack. */
	size_t bytes;
	struct folder_level *grown = sl__grow(r->env, s->levels, s->n, &s->cap, sizeof(*grown));
	if (grown == NULL)
		return sl__no_memory(err, "restore nested folders");
	s->levels = grown;
	struct bk_entry *copy = sl__bk_entry_copy(r->env, e, NULL, &bytes);
	if (copy == NULL)
		return sl__no_memory(err, "restore nested folders");
	s->levels[s->n++] = (struct folder_level){.e = copy, .bytes = bytes};
	s->bytes += bytes;
	if (s->bytes > STACK_BYTES_MAX)
		return sl_err_set(err, SL_ETOOBIG, "%.150s: nested folders have more than %u MiB of attributes",
				  e->path, STACK_BYTES_MAX >> 20);
	return 0;
}

int sl__bk_restore_folders(struct bk_restore *r, struct sl_err *err)
{
	struct folder_stack s = {0};
	int rc = sl__bk_restore_walk(r, restore_folder, &s, err);
	if (rc == 0)
		rc = leave_folders(r, &s, NULL, 0, err);
	while (s.n > 0)
		sl__free(r->env, s.levels[--s.n].e);
	sl__free(r->env, s.levels);
	return rc;
}
