/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What restore, ls and cat share about the entries of a snapshot: which ones are selected, where the bytes of a file
 * go, and sets of paths.
 *
 * Thread safety: one thread at a time per struct.
 */
#ifndef SL_BACKUP_RESTORE_ENTRIES_H
#define SL_BACKUP_RESTORE_ENTRIES_H

#include "backup/manifest/manifest.h"

/* ---- selection: all entries, or given paths and what is below them ---- */

enum bk_selected {
	BK_NOT_SELECTED = 0,
	BK_ABOVE_SELECTED = 1, /* a folder on the way to a selected one */
	BK_IS_SELECTED = 2
};

struct bk_select {
	const struct sl_env *env;
	struct bk_select_path {
		char *path; /* a copy */
		size_t len;
		bool met; /* an entry matched it */
	} * paths;
	size_t n; /* 0: everything */
};

/* Leading and trailing slashes do not matter; a path without other characters means everything. SL_EINVAL: "..", "." or
 * an empty component; SL_ENOMEM. */
SL_MUST_CHECK int sl__bk_select_init(struct bk_select *s, const struct sl_env *env, const char *const *paths, size_t n,
				     struct sl_err *err);
void sl__bk_select_fini(struct bk_select *s);
enum bk_selected sl__bk_select(struct bk_select *s, const char *path, size_t len);
/* SL_ENOENT names a path that no entry has matched. */
SL_MUST_CHECK int sl__bk_select_all_met(const struct bk_select *s, const char *snapshot, struct sl_err *err);

/* Is no component of the path empty, "." or ".."? */
bool sl__bk_path_is_plain(const char *path, size_t len);
/* Is path the folder, or something in it? */
static inline bool sl__bk_path_within(const char *path, size_t len, const char *folder, size_t folder_len)
{
	return len >= folder_len && memcmp(path, folder, folder_len) == 0 &&
	       (len == folder_len || path[folder_len] == '/');
}

/* ---- a position in the contents of a file ---- */

struct bk_cursor {
	const struct bk_entry *e;
	uint64_t offset; /* of the next byte in the file */
	uint64_t left;   /* bytes that may follow there: of the extent, or of the file */
	size_t extent;   /* the next one */
};
void sl__bk_cursor_init(struct bk_cursor *c, const struct bk_entry *e);
/* To be called before a byte: when the extent has ended, move to the next one. What lies between the old offset and the
 * new one is a hole. SL_ECORRUPT: there is no room for another byte. */
SL_MUST_CHECK int sl__bk_cursor_next(struct bk_cursor *c, struct sl_err *err);
/* To be called after the last block. SL_ECORRUPT: bytes are missing. */
SL_MUST_CHECK int sl__bk_cursor_end(const struct bk_cursor *c, struct sl_err *err);

/* ---- sets of paths, each by the first 16 bytes of its SHA-256 ---- */

struct bk_path_set {
	struct bk_path_key {
		uint8_t b[16];
	} * keys;
	size_t n, cap;
	bool sorted;
};
SL_MUST_CHECK int sl__bk_path_set_add(const struct sl_env *env, struct bk_path_set *s, const char *path, size_t len,
				      struct sl_err *err);
SL_MUST_CHECK int sl__bk_path_set_has(struct bk_path_set *s, const char *path, size_t len, bool *out,
				      struct sl_err *err);
void sl__bk_path_set_fini(const struct sl_env *env, struct bk_path_set *s);

#endif
