/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which entries of a snapshot are meant: all of them, or given paths and what is below.
 *
 * Thread safety: one thread at a time. Ownership: copies the paths.
 */
#ifndef SL_BACKUP_RESTORE_SELECT_H
#define SL_BACKUP_RESTORE_SELECT_H

#include "backup/repo/format.h"

enum bk_selected {
	BK_NOT_SELECTED = 0,
	BK_ABOVE_SELECTED = 1, /* a folder on the way to one that is meant */
	BK_IS_SELECTED = 2
};

struct bk_select {
	const struct sl_env *env;
	struct bk_select_path {
		char *path;
		size_t len;
		bool met;
	} * paths;
	size_t n; /* 0: everything */
};

/* Leading and trailing slashes do not matter; a path that is nothing else means everything. SL_EINVAL: "..", "." or an
 * empty component; SL_ENOMEM. */
SL_MUST_CHECK int sl__bk_select_init(struct bk_select *s, const struct sl_env *env, const char *const *paths, size_t n,
				     struct sl_err *err);
void sl__bk_select_fini(struct bk_select *s);
enum bk_selected sl__bk_select(struct bk_select *s, const char *path, size_t len);
/* SL_ENOENT names a path that no entry has matched. */
SL_MUST_CHECK int sl__bk_select_all_met(const struct bk_select *s, const char *snapshot, struct sl_err *err);

/* Whether path is folder or something in it. */
static inline bool sl__bk_path_within(const char *path, size_t len, const char *folder, size_t folder_len)
{
	return len >= folder_len && memcmp(path, folder, folder_len) == 0 &&
	       (len == folder_len || path[folder_len] == '/');
}

#endif
