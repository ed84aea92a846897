/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot that is open for reading its entries: what ls and cat share.
 *
 * Thread safety: one thread at a time. Ownership: owns all that is in it.
 */
#ifndef SL_BACKUP_VIEW_H
#define SL_BACKUP_VIEW_H

#include "backup/manifest/manifest.h"

struct bk_view {
	struct sl_backup *b;
	struct bk_snapshot snapshot;
	struct bk_index *index;
	struct bk_reader *reader; /* of the manifest */
	struct bk_manifest_reader *entries;
};

/* snapshot: an id, a beginning of one, or "latest". Begins the call (sl__bk_begin). *out is to be closed in any case.
 */
SL_MUST_CHECK int sl__bk_view_open(struct bk_view *out, struct sl_backup *b, const char *snapshot, const char *phase,
				   struct sl_err *err);
void sl__bk_view_close(struct bk_view *l);
/* The next entry: 1; 0: the end; or a negative SL_E…. */
SL_MUST_CHECK int sl__bk_view_next(struct bk_view *l, struct bk_entry *e, struct sl_err *err);
/* The entry of this path, searched from the beginning. SL_ENOENT. It lives until the next call. */
SL_MUST_CHECK int sl__bk_view_find(struct bk_view *l, const char *path, size_t len, struct bk_entry *e,
				   struct sl_err *err);

#endif
