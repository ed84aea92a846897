/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attributes of folders, at the end: a folder's time changes with every file that is made in it, and its mode may
 * shut out who restores. The manifest is read once more; folders on the way from the top to the entry at hand are on a
 * stack, and one that is left gets its attributes, so those inside come first and memory holds one path's folders.
 */
#include "backup/restore/restore.h"

#define STACK_BYTES_MAX (64u << 20) /* of entries; a hostile snapshot could nest folders that have many attributes */

struct stack {
	struct level {
		struct bk_entry *e;
		size_t bytes;
	} * levels;
	size_t n, cap;
	size_t bytes; /* of all */
};

static int leave_top(struct bk_restore *r, struct stack *s, struct sl_err *err)
{
	struct bk_entry *e = s->levels[--s->n].e;
	s->bytes -= s->levels[s->n].bytes;
	int rc = sl__bk_folder_enter(&r->folder, e->path, e->path_len, err);
	if (rc == 0) {
		sl__bk_target_attributes(&r->target, r->folder.fd, r->folder.is_path, e, sl__bk_restore_not_set, r);
		sl__bk_restore_count(r, e, false);
	}
	sl__free(r->env, e);
	return rc;
}

/* Leave all folders that path is not in. */
static int leave_until(struct bk_restore *r, struct stack *s, const char *path, size_t len, struct sl_err *err)
{
	int rc = 0;
	while (rc == 0 && s->n > 0) {
		const struct bk_entry *top = s->levels[s->n - 1].e;
		if (sl__bk_path_within(path, len, top->path, top->path_len))
			break;
		rc = leave_top(r, s, err);
	}
	return rc;
}

static int push(struct bk_restore *r, struct stack *s, const struct bk_entry *e, struct sl_err *err)
{
	size_t bytes;
	if (s->n == s->cap) {
		size_t cap = s->cap > 0 ? 2 * s->cap : 32;
		struct level *more = sl__realloc(r->env, s->levels, cap * sizeof(*more));
		if (more == NULL)
			return sl_err_set(err, SL_ENOMEM, "no memory for nested folders");
		s->levels = more;
		s->cap = cap;
	}
	struct bk_entry *copy = sl__bk_entry_copy(r->env, e, NULL, &bytes);
	if (copy == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for nested folders");
	s->levels[s->n++] = (struct level){.e = copy, .bytes = bytes};
	s->bytes += bytes;
	if (s->bytes > STACK_BYTES_MAX)
		return sl_err_set(err, SL_ETOOBIG, "%.150s: folders in folders with more than %u MiB of attributes",
				  e->path, STACK_BYTES_MAX >> 20);
	return 0;
}

static int folder_entry(struct bk_restore *r, const struct bk_entry *e, void *ctx, struct sl_err *err)
{
	struct stack *s = ctx;
	bool ours = true;
	int rc = leave_until(r, s, e->path, e->path_len, err);
	if (rc != 0 || e->type != SL_BACKUP_DIR)
		return rc;
	enum bk_selected selected = sl__bk_select(&r->select, e->path, e->path_len);
	if (selected == BK_ABOVE_SELECTED)
		rc = sl__bk_path_set_has(&r->made, e->path, e->path_len, &ours, err);
	return rc == 0 && selected != BK_NOT_SELECTED && ours ? push(r, s, e, err) : rc;
}

int sl__bk_restore_folders(struct bk_restore *r, struct sl_err *err)
{
	struct stack s = {0};
	int rc = sl__bk_restore_walk(r, folder_entry, &s, err);
	while (rc == 0 && s.n > 0)
		rc = leave_top(r, &s, err);
	while (s.n > 0)
		sl__free(r->env, s.levels[--s.n].e);
	sl__free(r->env, s.levels);
	return rc;
}
